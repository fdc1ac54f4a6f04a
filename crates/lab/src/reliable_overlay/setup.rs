//! The paper's statements on its testbed and protocol, apart from its figures.

use super::network::{START, links};
use super::throughput::PORT;
use crate::claim::{Bound, Claim, Measured, Verdict, maximum};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Column, Table};
use crate::voip_overlay::control;
use std::time::Duration;
use trunkline_base::link_model::Ledger;
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::node::Echo;
use trunkline_overlay::wire::{MAX_HOPS, NodeId, Service};
use trunkline_sim::random::Graph;
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{HostId, Topology, WireId, World};

const COLUMNS: &[Column] =
    &[Column::text("quantity").parameter(), Column::text("unit"), Column::number("value", 3)];

const ROUND_TRIP: &str = "round trip";
const ACKS: &str = "acknowledgements in a window";
const IDLE: &str = "control traffic on an idle link";
const LINKS: &str = "most links in a packet";

/// Links between the ends, and the delay of each.
const HOPS: u32 = 5;
const DELAY: Duration = Duration::from_millis(10);
/// Bytes of ping's default payload with its header.
const PING: usize = 64;

/// The experiment on the testbed itself.
pub fn experiment() -> Experiment {
    Experiment {
        revision: 2,
        ..super::experiment("setup", COLUMNS, Box::new(points), vec![figure()])
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let seconds = size.pick(2, 20, 60);
    let point = |key: &str, x, measure| Point {
        key: key.to_owned(),
        x,
        figures: vec!["setup"],
        weight: 0.005 * seconds as f64,
        measure,
    };
    vec![
        point("round-trip", 0.0, Box::new(move |i| round_trip(sabotage, i))),
        point("acknowledgements", 1.0, Box::new(move |i| acks(seconds, sabotage, i))),
        point("idle", 2.0, Box::new(move |i| idle(seconds, sabotage, i))),
        point("links", 3.0, Box::new(move |_| Ok(links_in_a_packet(sabotage)))),
    ]
}

fn chain(sabotage: Sabotage, seed: u64) -> Result<World, PointError> {
    let delay = if sabotage.is("longer-links") { DELAY + DELAY / 20 } else { DELAY };
    let links = links(HOPS as usize, delay, 0.0);
    let mut world = Topology::chain(links).over(IpVersion::V4).build(seed)?;
    world.run_until(START);
    Ok(world)
}

fn round_trip(sabotage: Sabotage, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
    let mut world = chain(sabotage, inputs.seed)?;
    let echo = Echo {
        to: NodeId(HOPS + 1),
        service: Service::BestEffort,
        size: PING,
        hops: MAX_HOPS,
        nonce: 1,
    };
    let is_sent = world.operate(HostId(0), |now, node| node.echo(now, &echo)).is_ok();
    world.run_until(START + Duration::from_secs(1));
    let answer = world.operate(HostId(0), |_, node| node.next_echo()).filter(|_| is_sent);
    let ms = answer.map_or(f64::NAN, |answer| 1e3 * answer.rtt.as_secs_f64());
    Ok(vec![vec![ROUND_TRIP.into(), "ms".into(), ms.into()]])
}

/// Segments without data that the receiving end sends in a round trip, in which the sending end
/// sends a window.
fn acks(seconds: u64, sabotage: Sabotage, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
    let mut world = chain(sabotage, inputs.seed)?;
    let last = HostId(HOPS);
    world.attach(last, PORT, StreamSink::default())?;
    let writing = match sabotage.is("a-message-a-second") {
        true => Writing::Messages { bytes: 1_000, spacing: Duration::from_secs(1), count: 1_000 },
        false => Writing::Bulk(u64::MAX),
    };
    world.attach(HostId(0), 0, StreamSource::new(NodeId(HOPS + 1), PORT, START, writing))?;
    let sent = |world: &World| {
        let links = world.node(last).links();
        links.map(|(_, link)| link.stats().of(Service::Reliable).originals.envelopes).sum::<u64>()
    };
    // The window has grown by then.
    let from = START + Duration::from_secs(seconds);
    world.run_until(from);
    let before = sent(&world);
    world.run_until(from + Duration::from_secs(seconds));
    let rtt = world.node(HostId(0)).streams().find_map(|stream| stream.rtt);
    let rtt = rtt.map_or(f64::NAN, |rtt| rtt.as_secs_f64());
    let per_window = (sent(&world) - before) as f64 / seconds as f64 * rtt;
    Ok(vec![vec![ACKS.into(), "".into(), per_window.into()]])
}

/// UDP payload on an idle sealed link with the papers' hellos, both directions together.
fn idle(seconds: u64, sabotage: Sabotage, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
    let mut topology = Topology::chain(links(1, DELAY, 0.0)).over(IpVersion::V4);
    for end in [HostId(0), HostId(1)] {
        let mut liveness = Liveness::PAPER;
        if sabotage.is("twice-the-hellos") {
            liveness.interval /= 2;
        }
        topology.config_mut(end).links[0].liveness = liveness;
    }
    topology.seal();
    let mut world = topology.build(inputs.seed)?;
    let headers = Protocol::UDP.headers(IpVersion::V4) as u64;
    let payload = |l: &Ledger| l.offered.bytes - headers * l.offered.packets;
    let sent = |world: &World| world.ledgers(WireId(0)).iter().map(payload).sum::<u64>();
    // Records have been flooded by then.
    let from = START + Duration::from_secs(60);
    world.run_until(from);
    let before = sent(&world);
    world.run_until(from + Duration::from_secs(seconds));
    let a_second = (sent(&world) - before) as f64 / seconds as f64;
    Ok(vec![vec![IDLE.into(), "bytes/s".into(), a_second.into()]])
}

/// Nodes of overlays in which each has a link to each other one: a record has at most 32 links.
const MESHES: [u32; 4] = [9, 17, 25, 33];

fn links_in_a_packet(sabotage: Sabotage) -> Cells {
    let mtu = if sabotage.is("half-a-packet") { control::ETHERNET / 2 } else { control::ETHERNET };
    let mesh = |nodes: u32| {
        let pairs = (0..nodes).flat_map(|a| (0..a).map(move |b| (HostId(b), HostId(a), DELAY)));
        Graph { places: Vec::new(), links: pairs.collect() }
    };
    let each = MESHES.map(|nodes| control::links_in_a_packet(&mesh(nodes), mtu));
    vec![vec![LINKS.into(), "".into(), maximum(each).into()]]
}

/// A quantity of one run; those that no run measures are exact.
fn value(table: &Table, quantity: &'static str) -> Measured {
    let row = table.iter().find(|r| r.is("quantity", quantity));
    let value = row.map_or(f64::NAN, |r| r.number("value"));
    if quantity == LINKS { Measured::census(value) } else { Measured::of_one_run(value) }
}

fn figure() -> Figure {
    Figure {
        name: "setup",
        title: "The paper's links and acknowledgements",
        section: "Experimental results",
        caption: "Six nodes in a row with five links of 10 ms and 10 Mbit/s: the round trip of an echo \
               without other traffic, and the acknowledgements that the receiving end of a stream \
               sends in a round trip, which is the time of a window. A link without traffic, sealed \
               and with a hello a second from each end. Packets with the records of overlays of 9 \
               to 33 nodes, each of which has links to all others.",
        chart: one_panel(chart),
        claims: of_streams().into_iter().chain(of_control_traffic()).collect(),
    }
}

fn of_streams() -> [Claim; 2] {
    [
        Claim {
            unit: "ms",
            decimals: 2,
            at: &[0.0],
            measure: Box::new(|t| value(t, ROUND_TRIP)),
            why: "Ten transmissions of the echo's packet take the time beyond 100 ms.",
            ..Claim::holding(
                "round-trip",
                "an echo takes about 100 ms from the first node to the last and back",
                Some("the round trip between the ends is 99.96 ms without traffic"),
                Bound::within(98.0, 102.0, "99.96, to a fiftieth of it"),
                "longer-links",
            )
        },
        Claim {
            unit: "in a window",
            decimals: 1,
            at: &[1.0],
            measure: Box::new(|t| value(t, ACKS)),
            ..Claim::holding(
                "four-acks",
                "the receiving end of a stream acknowledges at least four times in a window",
                Some("at least four acknowledgements are used for each end-to-end window"),
                Bound::at_least(4.0, "as published"),
                "a-message-a-second",
            )
        },
    ]
}

fn of_control_traffic() -> [Claim; 2] {
    [
        Claim {
            unit: "bytes/s",
            decimals: 1,
            at: &[2.0],
            measure: Box::new(|t| value(t, IDLE)),
            expected: Verdict::Fails,
            why: "A sealed hello has 46 bytes: 22 of its own and 24 of the envelope that \
                  authenticates it.",
            ..Claim::holding(
                "idle-link",
                "an idle link carries at most 56 bytes/s, both directions together",
                Some("an idle link carries two packets of 28 bytes each second"),
                Bound::at_most(56.0, "2 × 28, whatever the 28 bytes consist of"),
                "twice-the-hellos",
            )
        },
        Claim {
            unit: "links",
            decimals: 0,
            at: &[3.0],
            measure: Box::new(|t| value(t, LINKS)),
            expected: Verdict::Exceeds,
            why: "A record has 80 bytes for its node and 10 for each of at most 32 links.",
            ..Claim::holding(
                "links-in-a-packet",
                "where nodes have many links, a packet carries the state of 90",
                Some("a link-state packet can describe up to 90 links"),
                Bound::at_least(90.0, "as published").better(90.0),
                "half-a-packet",
            )
        },
    ]
}

fn chart(table: &Table) -> Chart {
    let mark = |(n, quantity): (usize, &'static str)| Series {
        name: quantity.to_owned(),
        style: Style::nth(n),
        points: vec![Mark { x: n as f64, y: value(table, quantity).estimate, interval: None }],
    };
    Chart {
        title: "Six nodes in a row".to_owned(),
        x: Axis::linear("", (-0.5, 3.5), 1.0),
        y: Axis::linear("ms, acknowledgements, bytes/s, links", (0.0, 140.0), 20.0),
        series: [ROUND_TRIP, ACKS, IDLE, LINKS].into_iter().enumerate().map(mark).collect(),
    }
}
