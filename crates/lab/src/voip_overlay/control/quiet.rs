//! Traffic while nothing happens: hellos, and nothing else.

use super::row;
use crate::experiment::{Cells, Inputs, Point, PointError, Sabotage, Size};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Ledger, LinkModel};
use trunkline_overlay::counters::Traffic;
use trunkline_overlay::link::{self, IP_UDP_HEADERS, LinkStats};
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::node::Routing;
use trunkline_overlay::route::Limits;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::random::Waxman;
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

/// By this time links are up, and all records have been flooded.
const START: Time = Time::from_millis(120_000);
const HOUR: Duration = Duration::from_secs(3_600);
/// Number of nodes in the paper's smaller networks (IV-B).
const NODES: u32 = 15;
const DEGREE: f64 = 4.0;

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let mut liveness = Liveness::PAPER;
    if sabotage.is("a-tenth-more-hellos") {
        liveness.interval = liveness.interval * 10 / 11;
    }
    let headers = if sabotage.is("headers-counted") { IP_UDP_HEADERS as f64 } else { 0.0 };
    let minutes = size.pick(2, 60, 600);
    let mut points = Vec::new();
    for (x, sealed) in [(0u32, false), (1, true)] {
        let liveness = liveness.clone();
        points.push(Point {
            key: format!("hellos-{}", name(sealed)),
            x: x.into(),
            figures: vec!["control-quiet"],
            weight: 2e-4 * f64::from(minutes),
            measure: Box::new(move |inputs| hellos(inputs, &liveness, sealed, headers, minutes)),
        });
    }
    let hours = size.pick(0.05, 1.0, 10.0);
    let mut daemon = Limits::default();
    let never = Duration::from_secs(1_000_000);
    let said_once = Limits { refresh: never, max_age: 2 * never, ..daemon };
    if sabotage.is("renewed-ten-times-as-often") {
        daemon.refresh /= 10;
    }
    for (x, setting, limits) in [(2u32, "said once", said_once), (3, "renewed", daemon)] {
        points.push(Point {
            key: format!("calm-{}", setting.replace(' ', "-")),
            x: x.into(),
            figures: vec!["control-quiet"],
            weight: 2.0 * hours,
            measure: Box::new(move |inputs| calm(inputs, setting, limits, hours)),
        });
    }
    points
}

fn name(sealed: bool) -> &'static str {
    if sealed { "sealed" } else { "unsealed" }
}

fn wire() -> LinkModel {
    // Delays vary a little: that must not cause updates either.
    let (delay, jitter) = (Duration::from_millis(10), Duration::from_millis(1));
    LinkModel { delay, jitter, ..LinkModel::default() }
}

/// Hellos on an otherwise idle link, in intervals of a minute.
fn hellos(
    inputs: &Inputs<'_>,
    liveness: &Liveness,
    sealed: bool,
    headers: f64,
    minutes: u32,
) -> Result<Cells, PointError> {
    let mut topology = Topology::chain([wire()]);
    let ends = [HostId(0), HostId(1)];
    for end in ends {
        topology.config_mut(end).links[0].liveness = liveness.clone();
    }
    if sealed {
        topology.seal();
    }
    let mut world = topology.build(inputs.seed)?;
    world.run_until(START);
    let said = |world: &World| {
        let hellos = ends.map(|end| stats(world, end).hellos);
        let sum = |of: fn(&Traffic) -> u64| hellos.iter().map(of).sum::<u64>();
        [sum(|h| h.envelopes), sum(|h| h.bytes), on_the_link(world)]
    };
    let mut before = said(&world);
    let (mut size, mut rate, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..minutes {
        world.run_until(world.now() + Duration::from_secs(60));
        let now = said(&world);
        let [hellos, of_hellos, all] = [0, 1, 2].map(|n| (now[n] - before[n]) as f64);
        size.push(of_hellos / hellos + headers);
        rate.push(hellos / 2.0 / 60.0);
        bytes.push(all / 60.0);
        before = now;
    }
    let (setting, x) = (name(sealed), f64::from(u8::from(sealed)));
    Ok(vec![
        row("hello (bytes)", setting, x, &size),
        row("hellos a second from an end", setting, x, &rate),
        row("bytes a second on a link", setting, x, &bytes),
    ])
}

fn stats(world: &World, host: HostId) -> LinkStats {
    let mut links = world.node(host).links();
    links.next().map(|(_, link)| link.stats()).unwrap_or_default()
}

/// UDP payload sent in both directions, including handshakes.
fn on_the_link(world: &World) -> u64 {
    let payload = |l: &Ledger| l.offered.bytes - IP_UDP_HEADERS as u64 * l.offered.packets;
    world.ledgers(WireId(0)).iter().map(payload).sum()
}

/// An overlay without events: updates that a node signs per hour, and the share of all bytes that
/// is not hellos.
fn calm(
    inputs: &Inputs<'_>,
    setting: &str,
    limits: Limits,
    hours: f64,
) -> Result<Cells, PointError> {
    let mut world = overlay(limits, inputs.seed)?;
    world.run_until(START);
    let hosts = || (0..NODES).map(HostId);
    let signed = |world: &World| -> Vec<u64> {
        hosts().map(|h| world.node(h).router().map_or(0, |r| r.stats().originated)).collect()
    };
    let bytes = |world: &World| -> Vec<[u64; 2]> {
        let sent = |[hellos, updates]: [u64; 2], s: LinkStats| {
            [hellos + s.hellos.bytes, updates + s.routing.bytes]
        };
        let of_node = |h| world.node(h).links().map(|(_, l)| l.stats()).fold([0; 2], sent);
        hosts().map(of_node).collect()
    };
    let (signed_before, bytes_before) = (signed(&world), bytes(&world));
    world.run_until(START + HOUR.mul_f64(hours));
    let updates: Vec<f64> = signed(&world)
        .iter()
        .zip(&signed_before)
        .map(|(now, before)| (now - before) as f64 / hours)
        .collect();
    let shares: Vec<f64> = bytes(&world)
        .iter()
        .zip(&bytes_before)
        .map(|(now, before)| [0, 1].map(|n| (now[n] - before[n]) as f64))
        .map(|[hellos, routing]| 100.0 * routing / (hellos + routing))
        .collect();
    let x = if setting == "renewed" { 3.0 } else { 2.0 };
    Ok(vec![
        row("updates a node and hour", setting, x, &updates),
        row("bytes that are no hellos (%)", setting, x, &shares),
    ])
}

fn overlay(limits: Limits, seed: u64) -> Result<World, WorldError> {
    let graph = Waxman { degree: DEGREE, ..Waxman::continent(NODES) }.draw(seed);
    let mut topology = Topology::new();
    for id in 1..=NODES {
        topology.host(NodeId(id));
    }
    for &(a, b, delay) in &graph.links {
        let model = LinkModel { delay, ..wire() };
        let paper = |link: &mut link::Config| link.liveness = Liveness::PAPER;
        topology.link_with(a, b, model.clone(), model, paper);
    }
    topology.link_state(&Routing { limits, ..Routing::default() });
    topology.build(seed)
}
