//! What multiplexing saves when calls pause.

use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use crate::tfmc::network::within;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::{Time, rng};
use trunkline_media::talk::{Framing, Model};
use trunkline_net::Protocol;
use trunkline_rate::tfmc::{IP_UDP_BYTES, RTP_BYTES};
use trunkline_sim::World;
use trunkline_sim::agent::trunk::{Mode, Receiver, Sender, Trunk};

const FIGURE: &str = "tfmc-talkspurts";

const COLUMNS: &[Column] = &[
    Column::text("calls_are"),
    Column::number("calls", 0),
    Column::number("wait_ms", 0),
    Column::number("runs", 0),
    Column::number("packets_per_datagram", 2),
    Column::number("saved_pct", 2),
    Column::number("saved_low_pct", 2),
    Column::number("saved_high_pct", 2),
];
const SAVED: [&str; 3] = ["saved_pct", "saved_low_pct", "saved_high_pct"];

/// In the column `calls_are`.
const CONSTANT: &str = "constant";
const PAUSING: &str = "pausing";

/// G.723.1 at 5.3 kbit/s: 20 bytes for 30 ms.
const G723: Framing =
    Framing { frame: Duration::from_millis(30), frame_bytes: 20, frames_per_packet: 1 };
const CALLS: [u32; 4] = [8, 20, 50, 200];
const WAITS: [u64; 5] = [2, 5, 10, 20, 30];
/// The most packets in a datagram: eight streams (section 4.2).
const PACKETS: usize = 8;

/// The experiment on calls that pause.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

/// How often it is measured, and for how long.
fn extent(size: Size) -> (u64, Duration) {
    let (runs, seconds) = size.pick((1, 5), (4, 20), (12, 60));
    (runs, Duration::from_secs(seconds))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let counts: &[u32] = size.pick(&[8], &[8, 50], &CALLS);
    let waits: &[u64] = size.pick(&[30], &[5, 30], &WAITS);
    let places = counts.iter().flat_map(|calls| waits.iter().map(move |wait| (*calls, *wait)));
    let (runs, length) = extent(size);
    let one = |(calls, wait): (u32, u64)| Point {
        key: format!("{calls}-{wait}"),
        x: calls.into(),
        figures: vec![FIGURE],
        weight: 1e-4 * runs as f64 * length.as_secs_f64() * f64::from(calls),
        measure: Box::new(move |inputs| measure((calls, wait), (size, sabotage), inputs)),
    };
    places.map(one).collect()
}

fn measure(
    (calls, wait): (u32, u64),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, length) = extent(size);
    let waits = if sabotage.is("no-wait") { 0 } else { wait };
    let one = |name: &'static str| {
        let runs: Vec<(f64, f64)> = (0..runs)
            .map(|n| saved(calls, name == PAUSING, waits, length, inputs.seed.wrapping_add(n)))
            .collect::<Result<_, PointError>>()?;
        let mut row: Vec<Cell> = vec![name.into(), u64::from(calls).into(), wait.into()];
        row.push((runs.len() as u64).into());
        row.push(mean_cells(&runs, |(packed, _)| *packed)[0].clone());
        row.extend(mean_cells(&runs, |(_, saved)| 100.0 * saved));
        Ok(row)
    };
    [CONSTANT, PAUSING].map(one).into_iter().collect()
}

/// Packets in a datagram, and the share of bytes on the wire that are saved against a datagram for
/// each.
fn saved(
    calls: u32,
    pausing: bool,
    wait: u64,
    length: Duration,
    seed: u64,
) -> Result<(f64, f64), PointError> {
    let mut luck = rng(seed, 1);
    let end = Time::ZERO + length;
    let call = |n: u32| -> Vec<Time> {
        let begin = within(G723.interval(), &mut luck);
        if !pausing {
            let packets = (length.as_nanos() / G723.interval().as_nanos()) as u32;
            return (0..packets).map(|k| Time::ZERO + begin + G723.interval() * k).collect();
        }
        // From within the call, so that not all speak at first.
        let skipped = Duration::from_secs(20) + begin;
        let packets = Model::default().packets(G723, rng(seed, 2 + u64::from(n)));
        let times = packets.map(|packet| Time::ZERO + packet.time.since(Time::ZERO + skipped));
        times.skip_while(|at| *at == Time::ZERO).take_while(|at| *at < end).collect()
    };
    let trunk = Trunk::new(G723.payload(), (0..calls).map(call));
    let wait = Duration::from_millis(wait);
    let trunk = Trunk { mode: Mode::Fixed(PACKETS), wait, ..trunk };
    let mut world = World::new(seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let wire = world.cable(a, b, LinkModel::default(), LinkModel::default())?;
    let to = world.endpoint(b, 9);
    world.bind(b, Protocol::UDP, 9, Receiver::new(9, trunk.clone()))?;
    let packets = trunk.packets.len() as f64;
    let sender = world.bind(a, Protocol::UDP, 8, Sender::new(8, to, trunk, Time::ZERO))?;
    world.run_until(end + Duration::from_secs(1));
    let bytes = world.edge_ledgers(wire)[0].arrived.bytes as f64;
    let singly = packets * (IP_UDP_BYTES + RTP_BYTES + G723.payload()) as f64;
    let stats = world.agent(sender).stats();
    Ok((stats.packets as f64 / stats.datagrams as f64, 1.0 - bytes / singly))
}

fn at(calls_are: &'static str, calls: u32, wait: u64) -> impl Fn(&Record<'_>) -> bool {
    move |r| {
        r.is("calls_are", calls_are)
            && r.number("calls") == f64::from(calls)
            && r.number("wait_ms") == wait as f64
    }
}

/// What the paper says of eight streams.
const PUBLISHED: &str = "40 % of the bandwidth is saved for 8 multiplexed G.723.1 streams";

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "Bytes saved when calls pause",
        section: "beyond, after 2 and 4.2",
        says: "Calls of G.723.1 (20 bytes every 30 ms), eight packets in a datagram at most, by how \
               long a packet waits for others at most: calls without pauses, and pale with talkspurts \
               and pauses of 1.0 and 1.5 s on average, during which the codec sends nothing (section \
               2).",
        chart: Box::new(chart),
        claims: vec![
            Claim {
                published: Some(PUBLISHED),
                unit: "%",
                measure: Box::new(|t| first(t, SAVED, at(CONSTANT, 8, 30))),
                at: &[8.0],
                ..claim(
                    "eight",
                    "eight G.723.1 streams without pauses save 40 % of the bytes if packets wait for \
                     30 ms",
                    Bound::within(39.5, 41.0, "what rounds to 40 %, and equation (8)'s 40.8"),
                    "no-wait",
                )
            },
            Claim {
                unit: "%",
                measure: Box::new(|t| first(t, SAVED, at(PAUSING, 8, 30))),
                at: &[8.0],
                expected: Verdict::Fails,
                why: "Of eight calls that speak for 40 % of the time, three speak at once on average and \
                      share a datagram.",
                ..claim(
                    "eight-pausing",
                    "so do eight that pause",
                    Bound::at_least(39.5, BEFORE),
                    "no-wait",
                )
            },
            Claim {
                unit: "%",
                measure: Box::new(|t| first(t, SAVED, at(PAUSING, 50, 30))),
                at: &[50.0],
                ..claim(
                    "fifty-pausing",
                    "fifty calls that pause fill datagrams of eight, and save 40 %, too",
                    Bound::at_least(39.5, BEFORE),
                    "no-wait",
                )
            },
        ],
    }
}

fn chart(table: &Table) -> Panels {
    let of = |(n, calls): (usize, u32)| {
        [CONSTANT, PAUSING].map(|name| {
            let style = if name == PAUSING { Style::nth(n).pale() } else { Style::nth(n) };
            line(table, (format!("{calls}, {name}"), style), ("wait_ms", &SAVED), move |r| {
                r.is("calls_are", name) && r.number("calls") == f64::from(calls)
            })
        })
    };
    let series = CALLS.into_iter().enumerate().flat_map(of).collect();
    Panels {
        title: "Bytes saved by G.723.1 calls".to_owned(),
        x: Axis::linear("waits at most (ms)", (0.0, 30.0), 10.0),
        panels: vec![Panel::new(Axis::linear("saved (%)", (0.0, 50.0), 10.0), series)],
        guides: Vec::new(),
    }
}
