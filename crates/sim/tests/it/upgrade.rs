//! Relays that are drained, stopped and restarted one after another, as an upgrade does, while
//! calls go on.

use crate::common::*;
use rand::RngExt;
use std::time::Duration;
use trunkline_base::Rng;
use trunkline_base::link_model::Loss;
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::{Call, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, World};

/// Number of calls in each direction: together they send a packet each millisecond.
const CALLS: u16 = 20;
/// Start of the calls, in ms.
const START: u64 = 3_000;
/// Time between the steps of an upgrade, in ms.
const STEP: u64 = 500;

/// A ring of `nodes` hosts with a few chords, sealed and with link-state routing. Delays are
/// random: up to 0.3 ms, as within a site, or up to 30 ms.
fn ring(rng: &mut Rng, nodes: u32) -> Topology {
    let mut t = Topology::new();
    let hosts: Vec<HostId> = (1..=nodes).map(|id| t.host(NodeId(id))).collect();
    let mut pairs: Vec<(usize, usize)> = (0..nodes as usize).map(|k| (k, k + 1)).collect();
    pairs.last_mut().expect("a ring").1 = 0;
    for _ in 0..nodes / 2 {
        let [a, b] = [0, 0].map(|_: i32| rng.random_range(0..nodes) as usize);
        let is_new = !pairs.iter().any(|&pair| pair == (a, b) || pair == (b, a));
        if a != b && is_new {
            pairs.push((a, b));
        }
    }
    for (a, b) in pairs {
        let most = [300, 30_000][usize::from(rng.random_bool(0.5))];
        let delay = Duration::from_micros(rng.random_range(50..=most));
        let model = link(delay, Loss::None);
        t.link(hosts[a], hosts[b], model.clone(), model);
    }
    t.seal();
    t.link_state(&Routing::default());
    t
}

/// Starts calls between hosts 0 and `to`, which send until `end`.
fn talk(world: &mut World, to: u32, end: u64) -> Vec<Call> {
    let mut made = Vec::new();
    for (from, to) in [(0, to), (to, 0)] {
        for k in 0..CALLS {
            let (port, start) = (5_000 + k, at(START + u64::from(k)));
            let count = (end - START) / 20;
            let source = VoiceSource::new(NodeId(to + 1), port, RT, start, count);
            let sink = world.attach(HostId(to), port, VoiceSink::default()).unwrap();
            made.push((world.attach(HostId(from), 0, source).unwrap(), sink));
        }
    }
    made
}

/// Neighbours of a relay that drains or returns learn of it at different times, yet no packet is
/// lost: one that comes back is returned, and others learn of a new link after its two ends.
#[test]
fn an_upgrade_of_all_relays_loses_nothing() {
    let mut losses = Vec::new();
    for seed in 0..24 {
        let mut rng = trunkline_base::rng(seed, 0x1d);
        let nodes = rng.random_range(4..=12);
        let mut world = ring(&mut rng, nodes).build(seed).unwrap();
        let to = nodes / 2;
        let relays: Vec<u32> = (1..nodes).filter(|&host| host != to).collect();
        let end = START + 1_000 + 3 * STEP * relays.len() as u64;
        let made = talk(&mut world, to, end);
        let mut now = START + 1_000;
        for relay in relays.into_iter().map(HostId) {
            world.run_until(at(now));
            world.operate(relay, |now, node| node.drain(now, true));
            world.run_until(at(now + STEP));
            world.stop(relay);
            world.run_until(at(now + 2 * STEP));
            world.restart(relay).unwrap();
            now += 3 * STEP;
        }
        world.run_until(at(end + 2_000));
        let o = outcome(&world, &made);
        assert!(o.sent > 5_000, "seed {seed}: {}", o.sent);
        if o.lost > 0 {
            losses.push((seed, o.lost, o.sent));
        }
    }
    assert_eq!(losses, [], "(seed, lost, sent)");
}
