//! The paper's statements on its testbed and protocol, apart from its figures.

use super::network::{START, links};
use super::throughput::PORT;
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Column, Table};
use std::time::Duration;
use trunkline_net::IpVersion;
use trunkline_overlay::node::Echo;
use trunkline_overlay::wire::{MAX_HOPS, NodeId, Service};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{HostId, Topology, World};

const COLUMNS: &[Column] =
    &[Column::text("quantity").parameter(), Column::text("unit"), Column::number("value", 3)];

const ROUND_TRIP: &str = "round trip";
const ACKS: &str = "acknowledgements in a window";

/// Links between the ends, and the delay of each.
const HOPS: u32 = 5;
const DELAY: Duration = Duration::from_millis(10);
/// Bytes of ping's default payload with its header.
const PING: usize = 64;

/// The experiment on the testbed itself.
pub fn experiment() -> Experiment {
    super::experiment("setup", COLUMNS, Box::new(points), vec![figure()])
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let seconds = size.pick(2, 20, 60);
    let point = |key: &str, x, measure| Point {
        key: key.to_owned(),
        x,
        figures: vec!["setup"],
        weight: 0.1,
        measure,
    };
    vec![
        point("round-trip", 0.0, Box::new(move |i| round_trip(sabotage, i))),
        point("acknowledgements", 1.0, Box::new(move |i| acks(seconds, sabotage, i))),
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

fn value(table: &Table, quantity: &'static str) -> Measured {
    let row = table.iter().find(|r| r.is("quantity", quantity));
    Measured::census(row.map_or(f64::NAN, |r| r.number("value")))
}

fn figure() -> Figure {
    Figure {
        name: "setup",
        title: "The paper's links and acknowledgements",
        section: "Experimental results",
        caption: "Six nodes in a row with five links of 10 ms and 10 Mbit/s: the round trip of an echo \
               without other traffic, and the acknowledgements that the receiving end of a stream \
               sends in a round trip, which is the time of a window.",
        chart: one_panel(chart),
        claims: vec![
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
        ],
    }
}

fn chart(table: &Table) -> Chart {
    let mark = |(n, quantity): (usize, &'static str)| Series {
        name: quantity.to_owned(),
        style: Style::nth(n),
        points: vec![Mark { x: n as f64, y: value(table, quantity).estimate, interval: None }],
    };
    Chart {
        title: "Six nodes in a row".to_owned(),
        x: Axis::linear("", (-0.5, 1.5), 1.0),
        y: Axis::linear("round trip (ms); acknowledgements", (0.0, 120.0), 20.0),
        series: [ROUND_TRIP, ACKS].into_iter().enumerate().map(mark).collect(),
    }
}
