//! Helpers shared by the tests.

pub mod liar;

use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::link::LinkStats;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Call, CallOutcome, VoiceFlow, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, World};

pub const RT: Service = Service::RealTime;
pub const BE: Service = Service::BestEffort;

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

pub fn link(delay: Duration, loss: Loss) -> LinkModel {
    LinkModel { delay, loss, ..LinkModel::default() }
}

pub fn uniform(p: f64) -> Loss {
    Loss::Bernoulli { p }
}

/// Starts `n` calls of `count` packets, the first at `start`, the others 2 ms after one another.
/// Host `h` of a chain has node `h + 1`. The sinks' ports distinguish groups of calls.
pub fn calls(
    world: &mut World,
    (from, to): (u32, u32),
    service: Service,
    first_port: u16,
    n: u16,
    (start, count): (Time, u64),
) -> Vec<Call> {
    (0..n)
        .map(|k| {
            let (port, start) = (first_port + k, start + ms(2) * u32::from(k));
            let source = VoiceSource::new(NodeId(to + 1), port, service, start, count);
            let sink = world.attach(HostId(to), port, VoiceSink::default()).unwrap();
            (world.attach(HostId(from), 0, source).unwrap(), sink)
        })
        .collect()
}

pub fn outcome(world: &World, calls: &[Call]) -> CallOutcome {
    CallOutcome::of(world, calls, ms(100))
}

/// The sink's record of a call.
pub fn flow(world: &World, call: Call) -> &VoiceFlow {
    &world.app(call.1).flows[&world.origin(call.0)]
}

/// Counters of one link of a host.
pub fn stats(world: &World, host: u32, link: usize) -> LinkStats {
    world.node(HostId(host)).links().nth(link).expect("a link").1.stats()
}

pub fn dropped(world: &World, host: u32, link: usize, why: DropReason) -> u64 {
    stats(world, host, link).drops.get(why)
}
