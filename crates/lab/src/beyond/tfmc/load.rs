//! Number of calls that a link carries, with a trunk and without.

use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim, Measured};
use crate::dccp_voice::Codec;
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Guide, Panel, Panels, Style};
use crate::table::{Cell, Column, Table};
use crate::tfmc::live::{Carrier, INTERVAL, Live, fill};
use crate::tfmc::mean_cells;
use crate::tfmc::network::{mean, within};
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Queue};
use trunkline_base::{Bitrate, rng};

const FIGURE: &str = "tfmc-load";

const COLUMNS: &[Column] = &[
    Column::text("row").parameter(),
    Column::text("codec").parameter(),
    Column::text("carried").parameter(),
    Column::number("calls", 0).parameter(),
    Column::number("speech_pct", 1).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("r", 2),
    Column::number("r_low", 2),
    Column::number("r_high", 2),
    Column::number("r_mean", 2),
    Column::number("never_came_pct", 3),
    Column::number("packets_together", 2),
    Column::number("calls_per_mbit_s", 2),
    Column::number("calls_per_mbit_s_low", 2),
    Column::number("calls_per_mbit_s_high", 2),
];
const RATING: [&str; 3] = ["r", "r_low", "r_high"];
const CAPACITY: [&str; 3] = ["calls_per_mbit_s", "calls_per_mbit_s_low", "calls_per_mbit_s_high"];

/// Values of the column `row`: R at this many calls, or the largest number of calls.
const RATED: &str = "rated";
const MOST: &str = "most";

/// Values of the column `carried`: plain UDP, the overlay without a trunk, and with one that waits
/// for this many milliseconds.
const UDP: &str = "udp";
const ALONE: &str = "alone";
const WAIT_2: &str = "2 ms";
const WAIT_5: &str = "5 ms";
const WAIT_10: &str = "10 ms";
const CARRIED: [&str; 5] = [UDP, ALONE, WAIT_2, WAIT_5, WAIT_10];

/// Rate of the link, in Mbit/s. It is 20 ms long, and its queue holds 50 ms, counted in bytes, so
/// that neither short nor long packets are favoured.
const RATE_MBIT_S: u64 = 2;
const DELAY: Duration = Duration::from_millis(20);
const ROOM: usize = 12_500;
/// R below which many users are dissatisfied (ITU-T G.107, table B.1).
const ENOUGH: f64 = 70.0;

/// The experiment on the capacity of a link.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

/// Number of runs, and their duration.
fn extent(size: Size) -> (u64, Duration) {
    let (runs, millis) = size.pick((1, 300), (4, 1_000), (6, 2_000));
    (runs, Duration::from_millis(millis))
}

/// A number of calls that exceeds every kind's capacity, and the step between the numbers at which
/// R is shown.
fn calls(codec: Codec) -> (u32, u32) {
    match codec {
        Codec::G729 => (200, 10),
        Codec::G711 => (32, 2),
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let carried: &[&str] = size.pick(&[WAIT_2], &[UDP, ALONE, WAIT_2, WAIT_10], &CARRIED);
    let places = Codec::ALL.iter().flat_map(|codec| carried.iter().map(move |c| (*codec, *c)));
    let (runs, length) = extent(size);
    let one = |(codec, carried): (Codec, &'static str)| Point {
        key: format!("{}-{}", codec.name(), carried.replace(' ', "")),
        x: 0.0,
        figures: vec![FIGURE],
        weight: 0.1 * runs as f64 * length.as_secs_f64() * f64::from(calls(codec).0) / 100.0,
        measure: Box::new(move |inputs| measure((codec, carried), (size, sabotage), inputs)),
    };
    places.map(one).collect()
}

/// R of the worst call and on average, the share of packets that never arrived, and packets per
/// datagram.
struct Run {
    worst: f64,
    r: f64,
    never_came: f64,
    together: f64,
}

/// One kind of call over the link.
#[derive(Clone, Copy)]
struct Kind {
    codec: Codec,
    carried: Carrier,
    length: Duration,
}

impl Kind {
    /// Share of the link that the speech of this many calls takes without headers, in percent.
    fn speech(&self, calls: u32) -> f64 {
        let bytes = f64::from(calls) * self.codec.framing().payload() as f64;
        8e-4 * bytes / INTERVAL.as_secs_f64() / RATE_MBIT_S as f64
    }

    fn run(&self, calls: u32, seed: u64) -> Result<Run, PointError> {
        let mut rng = rng(seed, 1);
        let live = Live {
            carried: self.carried,
            wire: LinkModel {
                rate: Some(Bitrate::from_bps(1_000_000 * RATE_MBIT_S)),
                delay: DELAY,
                queue: Queue::Bytes(ROOM),
                ..LinkModel::default()
            },
            begins: (0..calls).map(|_| within(INTERVAL, &mut rng)).collect(),
            speech: self.codec.framing().payload(),
            length: self.length,
            both_ways: false,
        };
        let seen = live.run(seed)?;
        let outcome = seen.outcome(Duration::MAX);
        let ratings = seen.ratings(self.codec);
        Ok(Run {
            worst: ratings.iter().copied().fold(f64::INFINITY, f64::min),
            r: mean(&ratings),
            never_came: outcome.lost as f64 / outcome.sent as f64,
            together: seen.packed(),
        })
    }

    /// Largest number of calls, up to `most`, at which each has an R of at least [`ENOUGH`].
    fn capacity(&self, most: u32, seed: u64) -> Result<u32, PointError> {
        let (mut good, mut bad) = (0, most + 1);
        while bad - good > 1 {
            let middle = good.midpoint(bad);
            match self.run(middle, seed)?.worst >= ENOUGH {
                true => good = middle,
                false => bad = middle,
            }
        }
        Ok(good)
    }
}

fn measure(
    (codec, name): (Codec, &'static str),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let carried = match name {
        UDP => Carrier::Udp,
        ALONE => Carrier::Alone,
        _ if sabotage.is("trunk-off") => Carrier::Alone,
        WAIT_2 => Carrier::Trunk(fill(Duration::from_millis(2))),
        WAIT_5 => Carrier::Trunk(fill(Duration::from_millis(5))),
        _ => Carrier::Trunk(fill(Duration::from_millis(10))),
    };
    let (times, length) = extent(size);
    let kind = Kind { codec, carried, length };
    let seeds = || (0..times).map(|n| inputs.seed.wrapping_add(n));
    let front = |row: &str| -> Vec<Cell> { vec![row.into(), codec.name().into(), name.into()] };
    let nothing = || Cell::from(f64::NAN);
    let (most, step) = calls(codec);
    let steps = size.pick(most / 2, 4 * step, step) as usize;
    let mut rows = Cells::new();
    for calls in (steps as u32..=most).step_by(steps) {
        let runs: Vec<Run> = seeds().map(|seed| kind.run(calls, seed)).collect::<Result<_, _>>()?;
        let mut row = front(RATED);
        row.extend([u64::from(calls).into(), kind.speech(calls).into(), times.into()]);
        row.extend(mean_cells(&runs, |run| run.worst));
        row.push(mean_cells(&runs, |run| run.r)[0].clone());
        row.push(mean_cells(&runs, |run| 100.0 * run.never_came)[0].clone());
        row.push(mean_cells(&runs, |run| run.together)[0].clone());
        row.extend([nothing(), nothing(), nothing()]);
        rows.push(row);
    }
    let found: Vec<u32> =
        seeds().map(|seed| kind.capacity(most, seed)).collect::<Result<_, _>>()?;
    let mut row = front(MOST);
    row.extend([nothing(), nothing(), times.into()]);
    row.extend([nothing(), nothing(), nothing(), nothing(), nothing(), nothing()]);
    row.extend(mean_cells(&found, |calls| f64::from(*calls) / RATE_MBIT_S as f64));
    rows.push(row);
    Ok(rows)
}

/// Largest number of calls per Mbit/s.
fn most(table: &Table, codec: Codec, carried: &'static str) -> Measured {
    first(table, CAPACITY, |r| {
        r.is("row", MOST) && r.is("codec", codec.name()) && r.is("carried", carried)
    })
}

fn figure() -> Figure {
    let on_the_link = |id, says, bound, measure| Claim {
        unit: "calls per Mbit/s",
        measure,
        ..claim(id, says, bound, "trunk-off")
    };
    Figure {
        name: FIGURE,
        title: "Calls on a link",
        section: "beyond, after 5.4",
        caption: "Calls in one direction, begun at random times, over a link of 2 Mbit/s and 20 ms on \
               IPv4 with a queue of 50 ms: R of the worst call by the share of the link that the \
               calls' speech alone would take, with the best possible playout and a further delay \
               of 38 ms, over plain UDP, over two overlay nodes without a trunk, and with trunks \
               that wait for 2 to 10 ms; and the largest number of calls with R of 70 each. The \
               mean R is of little use: a full queue always drops packets of the same calls, and \
               the others miss nothing.",
        chart: Box::new(chart),
        claims: vec![
            on_the_link(
                "g729-udp",
                "with the default wait of 2 ms, a sealed trunk carries more calls of G.729 than plain \
                 UDP does",
                Bound::above(0.0, BEFORE),
                Box::new(|t| most(t, Codec::G729, WAIT_2).minus(&most(t, Codec::G729, UDP))),
            ),
            on_the_link(
                "g729-alone",
                "and more than twice as many as the overlay carries without a trunk",
                Bound::at_least(0.0, BEFORE),
                Box::new(|t| {
                    let alone = most(t, Codec::G729, ALONE).times(2.0);
                    most(t, Codec::G729, WAIT_2).minus(&alone)
                }),
            ),
            on_the_link(
                "g711-udp",
                "with G.711 a trunk that waits for 10 ms carries as many as plain UDP",
                Bound::at_least(0.0, BEFORE),
                Box::new(|t| most(t, Codec::G711, WAIT_10).minus(&most(t, Codec::G711, UDP))),
            ),
        ],
    }
}

fn chart(table: &Table) -> Panels {
    let panel = |codec: Codec| {
        let of = |(n, name): (usize, &'static str)| {
            let style = if name == UDP { Style::CURVE } else { Style::nth(n - 1) };
            line(table, (name, style), ("speech_pct", &RATING), move |r| {
                r.is("row", RATED) && r.is("codec", codec.name()) && r.is("carried", name)
            })
        };
        let series = CARRIED.into_iter().enumerate().map(of).collect();
        let label = format!("R, {}", codec.name());
        let guides = vec![Guide { at: ENOUGH, label: "R = 70".to_owned() }];
        Panel { guides, ..Panel::new(Axis::linear(&label, (0.0, 100.0), 25.0), series) }
    };
    Panels {
        title: "Calls on a link of 2 Mbit/s".to_owned(),
        x: Axis::linear("speech alone (% of the link)", (0.0, 100.0), 20.0),
        panels: Codec::ALL.map(panel).into(),
        guides: Vec::new(),
    }
}
