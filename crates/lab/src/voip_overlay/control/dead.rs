//! Time until a dead link is detected and left.

use super::COLUMNS;
use crate::experiment::{Cells, Inputs, Point, PointError, Sabotage, Size};
use crate::table::Cell;
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::stats::{quantile, quantile_interval};
use trunkline_base::{Rng, Time, rng};
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::{Metric, NodeId, Service};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World, WorldError};

/// Wires between hosts with their one-way delay in ms: A–B–D takes 20 ms, A–C–D 24. The first two
/// are the shorter path.
const WIRES: [(u32, u32, u64); 4] = [(0, 1, 10), (1, 3, 10), (0, 2, 12), (2, 3, 12)];
const ENDS: [HostId; 2] = [HostId(0), HostId(3)];
const RELAY: HostId = HostId(1);
/// By this time all nodes have both paths.
const CALL: Time = Time::from_millis(8_000);
/// Time from which failures begin, after the call has started.
const START: Time = Time::from_millis(10_000);
/// No setting detects a failure sooner, as [`PRECISE`] would show.
const EARLY: Duration = Duration::from_millis(7_500);
const PRECISE: Duration = Duration::from_millis(1);
/// Time that a failure is observed, longer than any setting takes.
const WATCHED: Duration = Duration::from_secs(15);
const PACKET: Duration = Duration::from_millis(20);
/// The quantiles that are measured, in percent of the runs.
pub const SHARES: [f64; 7] = [0.0, 5.0, 25.0, 50.0, 75.0, 95.0, 100.0];

/// Settings: their names, seconds of silence, and whether a call's packets count as a sign of life
/// until the cut.
const SETTINGS: [(&str, u64, bool); 4] = [
    ("9 s with a call", 9, true),
    ("9 s idle", 9, false),
    ("10 s with a call", 10, true),
    ("10 s idle", 10, false),
];

/// The names of [`SETTINGS`], for the chart.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, ..)| *name)
}

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let runs = size.pick(2, 40, 1_000);
    let point = |(x, &(setting, seconds, call)): (u32, &(&'static str, u64, bool))| {
        let mut dead_after = Duration::from_secs(seconds);
        // The paper's mode, as configured and as it behaves.
        if seconds == 9 {
            dead_after = Liveness::PAPER.dead_after;
        }
        if sabotage.is("a-second-more-patience") {
            dead_after += Duration::from_secs(1);
        }
        let liveness = Liveness { dead_after, ..Liveness::PAPER };
        Point {
            key: format!("dead-{}", setting.replace(' ', "-")),
            x: x.into(),
            figures: vec!["control-dead"],
            weight: 0.02 * f64::from(runs),
            measure: Box::new(move |inputs| measure(inputs, setting, &liveness, call, runs)),
        }
    };
    (0u32..).zip(&SETTINGS).map(point).collect()
}

fn measure(
    inputs: &Inputs<'_>,
    setting: &str,
    liveness: &Liveness,
    call: bool,
    runs: u32,
) -> Result<Cells, PointError> {
    let one = |run| failure(liveness, call, inputs.seed.wrapping_add(u64::from(run)));
    let all: Vec<Failure> = (0..runs).map(one).collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for (what, of) in
        [("found (s)", (|c| c.found) as fn(&Failure) -> f64), ("left (s)", |c| c.left)]
    {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        for percent in SHARES {
            let share = percent / 100.0;
            let value = quantile(&values, share).unwrap_or(f64::NAN);
            let (low, high) = quantile_interval(&values, share).unwrap_or((f64::NAN, f64::NAN));
            let mut row: Vec<Cell> = vec![what.into(), setting.into()];
            row.extend([percent, value, low, high, f64::from(runs)].map(Cell::from));
            debug_assert_eq!(row.len(), COLUMNS.len());
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Times in seconds after the failure of the shorter path.
struct Failure {
    /// Until one end of the link declared it dead.
    found: f64,
    /// Until both ends of the call use the other path.
    left: f64,
}

fn failure(liveness: &Liveness, call: bool, seed: u64) -> Result<Failure, WorldError> {
    let mut luck = rng(seed, 1);
    let mut world = overlay(liveness, seed)?;
    // A random moment between two hellos, on either of the two links.
    let at = START + Duration::from_micros(luck.next_u64() % 1_000_000);
    if call {
        let count = ((at + WATCHED).since(CALL).as_nanos() / PACKET.as_nanos()) as u64;
        for (from, to) in [(ENDS[0], ENDS[1]), (ENDS[1], ENDS[0])] {
            let source = VoiceSource::new(NodeId(to.0 + 1), 5_000, Service::RealTime, CALL, count);
            world.attach(to, 5_000, VoiceSink::default())?;
            world.attach(from, 0, source)?;
        }
    }
    world.run_until(at);
    strike(&mut world, &mut luck);
    world.run_until(at + EARLY);
    let (mut found, mut left) = (None, None);
    while left.is_none() && world.now() < at + WATCHED {
        world.run_until(world.now() + PRECISE);
        let after = world.now().since(at).as_secs_f64();
        if found.is_none() && is_found(&world) {
            found = Some(after);
        }
        if ENDS.iter().zip(ENDS.iter().rev()).all(|(&end, &other)| goes_round(&world, end, other)) {
            left = Some(after);
        }
    }
    let never = WATCHED.as_secs_f64();
    Ok(Failure { found: found.unwrap_or(never), left: left.unwrap_or(never) })
}

fn overlay(liveness: &Liveness, seed: u64) -> Result<World, WorldError> {
    let mut topology = Topology::new();
    let hosts: Vec<HostId> = (1..=4).map(|id| topology.host(NodeId(id))).collect();
    for (a, b, delay) in WIRES {
        let model = LinkModel { delay: Duration::from_millis(delay), ..LinkModel::default() };
        let (a, b) = (hosts[a as usize], hosts[b as usize]);
        topology.link_with(a, b, model.clone(), model, |link| link.liveness = liveness.clone());
    }
    topology.link_state(&Routing::default());
    topology.build(seed)
}

/// Cuts one of the two links of the shorter path, in both directions or one; or kills their relay.
fn strike(world: &mut World, luck: &mut Rng) {
    let wire = WireId((luck.next_u64() % 2) as u32);
    let end = [WireEnd::First, WireEnd::Second][(luck.next_u64() % 2) as usize];
    match luck.next_u64() % 3 {
        0 => world.cut(wire),
        1 => world.blackhole(wire, end),
        _ => world.crash(RELAY),
    }
}

/// Whether either end of a link that was up has declared it dead.
fn is_found(world: &World) -> bool {
    let hosts = (0..world.hosts()).map(HostId).filter(|&h| !world.is_down(h));
    hosts.flat_map(|h| world.node(h).links()).any(|(_, link)| !link.monitor().is_up())
}

/// Whether `end` sends packets for `other` over the second path.
fn goes_round(world: &World, end: HostId, other: HostId) -> bool {
    let node = world.node(end);
    let hop = node.table().next_hop(NodeId(other.0 + 1), Metric::default());
    let link = hop.and_then(|hop| node.link(hop.link));
    link.is_some_and(|link| link.config().neighbour == NodeId(3))
}
