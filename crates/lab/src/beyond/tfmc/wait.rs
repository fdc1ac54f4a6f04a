//! Cost of a packet and its added delay, by the number of calls in a trunk and the time that
//! packets wait for each other.

use super::{BEFORE, claim, experiment as one_figure, line};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::live::{Carrier, INTERVAL, Live, RTP, fill};
use crate::tfmc::mean_cells;
use crate::tfmc::network::within;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_base::rng;

const FIGURE: &str = "tfmc-wait";

const COLUMNS: &[Column] = &[
    Column::number("calls", 0).parameter(),
    Column::number("wait_ms", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("packets_together", 2),
    Column::number("bytes", 2),
    Column::number("bytes_low", 2),
    Column::number("bytes_high", 2),
    Column::number("added_ms", 3),
    Column::number("added_low_ms", 3),
    Column::number("added_high_ms", 3),
    Column::number("added_most_ms", 3),
    Column::number("udp_bytes", 2),
    Column::number("iax2_bytes", 2),
    Column::number("iax2_added_ms", 3),
    Column::number("tcrtp_bytes", 2),
];
const COST: [&str; 3] = ["bytes", "bytes_low", "bytes_high"];
const ADDED: [&str; 3] = ["added_ms", "added_low_ms", "added_high_ms"];

const CALLS: [u32; 8] = [2, 5, 10, 20, 50, 100, 200, 500];
const WAITS: [u64; 5] = [0, 1, 2, 5, 10];

/// Bytes of speech in a packet of G.729: 20 for 20 ms.
const SPEECH: usize = 20;
/// Bytes of IPv4 and UDP headers.
const IP_UDP: usize = 28;
/// Largest IAX2 datagram, including the IP header, in bytes.
const MTU: usize = 1_500;
/// Bytes of a meta trunk frame's header with its timestamp, and of the header in front of each
/// call's speech in it, if calls have separate timestamps: length, call number, timestamp (RFC
/// 5456, section 8.1.3.2). IAX2's speech has no RTP header.
const IAX2: [usize; 2] = [8, 6];
/// Bytes of the IP, L2TPv3 and PPPMux headers of a packet, 20 + 4 + 1, and of the ECRTP and PPPMux
/// headers of each payload in it: context, flags, UDP checksum, protocol and length. Counted here
/// from the layers that RFC 4170 names, not taken from its own figures.
const TCRTP: [usize; 2] = [25, 6];

/// The experiment on the cost and delay of packets in a trunk.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

/// Number of runs, and their duration.
fn extent(size: Size) -> (u64, Duration) {
    let (runs, seconds) = size.pick((1, 1), (3, 1), (6, 2));
    (runs, Duration::from_secs(seconds))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let calls: &[u32] = size.pick(&[2, 20], &[2, 10, 50, 200], &CALLS);
    let waits: &[u64] = size.pick(&[0, 2], &[2, 10], &WAITS);
    let places = calls.iter().flat_map(|calls| waits.iter().map(move |wait| (*calls, *wait)));
    let (runs, length) = extent(size);
    let one = |(calls, wait): (u32, u64)| Point {
        key: format!("{calls}-{wait}"),
        x: calls.into(),
        figures: vec![FIGURE],
        weight: 4e-4 * runs as f64 * length.as_secs_f64() * f64::from(calls),
        measure: Box::new(move |inputs| measure((calls, wait), (size, sabotage), inputs)),
    };
    places.map(one).collect()
}

/// Results of a run: packets per datagram, bytes of each on the wire, and their mean and largest
/// delay beyond the wire's, in milliseconds.
struct Run {
    together: f64,
    bytes: f64,
    added: f64,
    most: f64,
}

fn measure(
    (calls, wait): (u32, u64),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    // A point is named after the requested settings, even when a sabotage changes them.
    let waits = if sabotage.is("wait-10ms") { 10 } else { wait };
    let (runs, length) = extent(size);
    let one = |n: u64| {
        let seed = inputs.seed.wrapping_add(n);
        let mut rng = rng(seed, 1);
        let live = Live {
            carried: match sabotage.is("trunk-off") {
                true => Carrier::Alone,
                false => Carrier::Trunk(fill(Duration::from_millis(waits))),
            },
            wire: LinkModel { delay: Duration::from_millis(20), ..LinkModel::default() },
            begins: (0..calls).map(|_| within(INTERVAL, &mut rng)).collect(),
            speech: SPEECH,
            length,
            both_ways: true,
        };
        let seen = live.run(seed)?;
        let delays = seen.outcome(Duration::MAX).delays;
        let ms = |delay: &Duration| 1e3 * delay.as_secs_f64() - 20.0;
        Ok(Run {
            together: seen.packed(),
            bytes: seen.bytes_per_packet(),
            added: delays.iter().map(ms).sum::<f64>() / delays.len() as f64,
            most: delays.last().map_or(f64::NAN, ms),
        })
    };
    let runs: Vec<Run> = (0..runs).map(one).collect::<Result<_, PointError>>()?;
    let [together, ..] = mean_cells(&runs, |run| run.together);
    let mut row: Vec<Cell> = vec![u64::from(calls).into(), wait.into(), (runs.len() as u64).into()];
    row.push(together);
    row.extend(mean_cells(&runs, |run| run.bytes));
    row.extend(mean_cells(&runs, |run| run.added));
    row.push(runs.iter().map(|run| run.most).fold(f64::NAN, f64::max).into());
    row.push(((IP_UDP + RTP + SPEECH) as f64).into());
    row.push(iax2(calls).into());
    // A call's packets are due at any time between two trunk frames.
    row.push((500.0 * INTERVAL.as_secs_f64()).into());
    let together = runs.iter().map(|run| run.together).sum::<f64>() / runs.len() as f64;
    let [packet, payload] = TCRTP;
    row.push((packet as f64 / together + (payload + SPEECH) as f64).into());
    Ok(vec![row])
}

/// Bytes per packet of this many calls, if IAX2 sends them every 20 ms.
fn iax2(calls: u32) -> f64 {
    let [frame, call] = IAX2;
    let (call, in_front) = (call + SPEECH, IP_UDP + frame);
    let frames = (calls as usize).div_ceil((MTU - in_front) / call);
    (call as f64) + (frames * in_front) as f64 / f64::from(calls)
}

fn at(calls: u32, wait: u64) -> impl Fn(&Record<'_>) -> bool {
    move |r| r.number("calls") == f64::from(calls) && r.number("wait_ms") == wait as f64
}

/// Bytes that a packet of 200 calls costs more than in this column.
fn over(table: &Table, column: &'static str, wait: u64) -> Measured {
    let row = table.iter().find(at(200, wait));
    row.map_or_else(super::none, |r| {
        Measured::of(&r, COST).minus(&Measured::census(r.number(column)))
    })
}

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "Bytes and delay, by calls and wait",
        section: "beyond, after 5.2",
        caption: "Calls of G.729 in both directions between two overlay nodes, begun at random times, \
               over a trunk that lets packets wait for others for 0 to 10 ms: all bytes on the \
               IPv4 wire per packet of the calls, including hellos, seals and reports, and the \
               packets' delay beyond the wire's. Black: UDP, and by calculation IAX2's trunk \
               frames every 20 ms with a timestamp for each call (RFC 5456, 8.1.3.2); pale: TCRTP \
               (RFC 4170), by the headers of its layers, with as many packets together as the \
               trunk of 2 ms has. None of the three seals its packets.",
        chart: Box::new(chart),
        claims: claims(),
    }
}

fn claims() -> Vec<Claim> {
    vec![
        Claim {
            unit: "bytes",
            measure: Box::new(|t| {
                let many = |r: &Record<'_>| r.number("calls") >= 50.0;
                let waiting = |r: &Record<'_>| r.number("wait_ms") >= 2.0;
                let of = t.iter().filter(|r| many(r) && waiting(r));
                Measured::maximum(of.map(|r| Measured::of(&r, COST)))
            }),
            at: &[50.0, 100.0, 200.0, 500.0],
            ..claim(
                "fifty-calls",
                "from 50 calls on, a packet in a sealed trunk with waits from 2 ms on costs less \
                 than its 60 bytes over plain UDP",
                Bound::below(60.0, "20 of speech, 12 of RTP, 28 of UDP and IPv4"),
                "trunk-off",
            )
        },
        Claim {
            unit: "ms",
            decimals: 3,
            measure: Box::new(|t| {
                let beyond = |r: Record<'_>| r.number("added_most_ms") - r.number("wait_ms");
                Measured::maximum(t.iter().map(|r| Measured::census(beyond(r))))
            }),
            ..claim(
                "no-longer",
                "no packet is delayed by more than the wait, whatever the number of calls",
                Bound::at_most(0.001, "a microsecond, to which delays are rounded up"),
                "wait-10ms",
            )
        },
        Claim {
            unit: "bytes",
            measure: Box::new(|t| over(t, "iax2_bytes", 10)),
            at: &[200.0],
            expected: Verdict::Fails,
            why: "IAX2 has neither an RTP header, for which the trunk has a byte, nor a seal, and \
                  one frame in 20 ms.",
            ..claim(
                "iax2",
                "200 calls that wait for 10 ms, as long as with IAX2 on average, cost no more than \
                 with its trunk frames",
                Bound::at_most(0.0, BEFORE),
                "trunk-off",
            )
        },
        Claim {
            unit: "bytes",
            measure: Box::new(|t| over(t, "tcrtp_bytes", 2)),
            at: &[200.0],
            expected: Verdict::Fails,
            why: "Both compress RTP's header. TCRTP has no envelope with a seal, which takes 24 \
                  bytes of a trunk packet.",
            ..claim(
                "tcrtp",
                "200 calls that wait for 2 ms cost no more than with TCRTP and as many packets \
                 together",
                Bound::at_most(0.0, BEFORE),
                "trunk-off",
            )
        },
    ]
}

fn chart(table: &Table) -> Panels {
    let trunks = |columns: &'static [&'static str]| {
        let of = |(n, wait): (usize, u64)| {
            line(table, (format!("{wait} ms"), Style::nth(n)), ("calls", columns), move |r| {
                r.number("wait_ms") == wait as f64
            })
        };
        WAITS.into_iter().enumerate().map(of).collect::<Vec<_>>()
    };
    let other = |(name, style): (&'static str, Style), column: &'static [&'static str]| {
        line(table, (name, style), ("calls", column), |r| r.number("wait_ms") == 2.0)
    };
    let mut bytes = trunks(&COST);
    bytes.push(other(("UDP", Style::CURVE), &["udp_bytes"]));
    bytes.push(other(("IAX2", Style::SECOND_CURVE), &["iax2_bytes"]));
    bytes.push(other(("TCRTP", Style::nth(2).pale()), &["tcrtp_bytes"]));
    let mut added = trunks(&ADDED);
    added.push(other(("IAX2", Style::SECOND_CURVE), &["iax2_added_ms"]));
    Panels {
        title: "Calls of G.729 over a trunk".to_owned(),
        x: Axis::log("calls", (1.0, 1_000.0)),
        panels: vec![
            Panel::new(Axis::linear("bytes of a packet", (0.0, 140.0), 20.0), bytes),
            Panel::new(Axis::linear("added (ms)", (0.0, 12.0), 2.0), added),
        ],
        guides: Vec::new(),
    }
}
