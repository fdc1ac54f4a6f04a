use super::file::Scenario;
use super::rows::{COLUMNS, row};
use super::{DRAIN, SPACING, WARM_UP};
use crate::experiment::PointError;
use crate::speech::Speech;
use crate::table::Table;
use trunkline_base::Time;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Sinks, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology};

/// The scenario's nodes, links and routes. Links have the daemon's own settings.
pub(super) fn topology(scenario: &Scenario) -> Topology {
    let mut topology = Topology::new();
    for n in 0..scenario.hosts.len() {
        topology.host(node(n));
    }
    for link in &scenario.links {
        let (a, b) = (host(link.ends.0), host(link.ends.1));
        let (there, back) = (link.there.clone(), link.back.clone());
        topology.link_with(a, b, there, back, |c| c.realtime.recovery = link.recovery);
    }
    topology.route_all();
    topology
}

/// The node of the `n`-th host.
pub(super) fn node(n: usize) -> NodeId {
    NodeId(n as u32 + 1)
}

/// The `n`-th host.
pub(super) fn host(n: usize) -> HostId {
    HostId(n as u32)
}

/// Runs a scenario; a row for each of its `[[call]]`s.
///
/// # Errors
///
/// If its network can't be built or its speech not be compared.
pub fn simulate(
    scenario: &Scenario,
    speech: Option<&Speech>,
    seed: u64,
) -> Result<Table, PointError> {
    let mut world = topology(scenario).build(seed)?;
    let start = Time::ZERO + WARM_UP;
    let mut calls = Vec::new();
    for place in scenario.placed() {
        let call = place.call;
        let service = if call.realtime { Service::RealTime } else { Service::BestEffort };
        let (to, at) = (node(call.ends.1), start + place.offset);
        let mut source = VoiceSource::new(to, place.port, service, at, scenario.packets());
        source.spacing = SPACING;
        source.deadline_ms = u8::try_from(call.threshold.as_millis()).unwrap_or(u8::MAX);
        let sink = world.attach(host(call.ends.1), place.port, VoiceSink::default())?;
        calls.push((world.attach(host(call.ends.0), 0, source)?, sink));
    }
    world.run_until(start + scenario.length + DRAIN);
    let mut packets = calls.iter().map(|&(source, sink)| {
        let arrival = world.app(sink).arrivals(world.origin(source));
        let source = world.app(source);
        (0..source.sent()).map(|n| (source.sent_at(n), arrival(n))).collect()
    });
    let (mut rows, speech) = (Vec::new(), speech.filter(|_| scenario.pesq));
    for call in &scenario.calls {
        let group: Vec<_> = packets.by_ref().take(call.count as usize).collect();
        rows.push(row("simulator", call, &group, speech, true)?);
    }
    Ok(Table { columns: COLUMNS, rows })
}
