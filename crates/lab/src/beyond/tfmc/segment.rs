//! The segment size in the throughput equation: that of the datagram, which grows with the number
//! of packets that the equation decides, that of a TCP, or that of the next datagram.

use super::alone::{Alone, BEGIN, Net};
use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use std::time::Duration;
use trunkline_rate::tfmc::{Config, Segment};
use trunkline_sim::agent::trunk::Mode;

const FIGURE: &str = "tfmc-segment";

const COLUMNS: &[Column] = &[
    Column::text("segment").parameter(),
    Column::number("loss_pct", 2).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("packets_per_datagram", 2),
    Column::number("changes_per_s", 3),
    Column::number("changes_low_per_s", 3),
    Column::number("changes_high_per_s", 3),
    Column::number("sent_mbit_s", 3),
    Column::number("over_share_pct", 2),
    Column::number("events_pct", 4),
];
const CHANGES: [&str; 3] = ["changes_per_s", "changes_low_per_s", "changes_high_per_s"];

/// Values of the column `segment`.
const DATAGRAM: &str = "datagram";
const NOMINAL: &str = "1460";
const CHOSEN: &str = "chosen";
const LOSSES: [f64; 6] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// The experiment on the segment size in the throughput equation.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

/// Number of runs, and their duration before and during the measurement.
fn extent(size: Size) -> (u64, [Duration; 2]) {
    let (runs, seconds) = size.pick((1, [1, 1]), (3, [2, 3]), (10, [5, 15]));
    (runs, seconds.map(Duration::from_secs))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let losses: &[f64] = size.pick(&[0.1], &[0.1, 1.0], &LOSSES);
    let (runs, [before, measured]) = extent(size);
    let one = |&loss: &f64| Point {
        key: loss.to_string(),
        x: loss,
        figures: vec![FIGURE],
        weight: 0.04 * runs as f64 * (before + measured).as_secs_f64(),
        measure: Box::new(move |inputs| measure(loss, (size, sabotage), inputs)),
    };
    losses.iter().map(one).collect()
}

/// Results of a run while it was measured.
struct Run {
    packed: f64,
    changes: f64,
    mbit_s: f64,
    over_share: f64,
    events: f64,
}

fn measure(
    loss: f64,
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, spans) = extent(size);
    let one = |name: &'static str| {
        let segment = match () {
            () if sabotage.is("nominal-everywhere") => Segment::Nominal(1_460.0),
            () if sabotage.is("datagram-everywhere") => Segment::Datagram,
            () if name == NOMINAL => Segment::Nominal(1_460.0),
            () if name == CHOSEN => Segment::Chosen,
            () => Segment::Datagram,
        };
        let config = Config { segment, ..Config::default() };
        let length = spans[0] + spans[1];
        let alone = Alone { config, mode: Mode::Tfmc, loss: loss / 100.0, length };
        let runs: Vec<Run> = (0..runs)
            .map(|n| run(&alone, spans, inputs.seed.wrapping_add(n)))
            .collect::<Result<_, PointError>>()?;
        let first = |of: fn(&Run) -> f64| mean_cells(&runs, of)[0].clone();
        let mut row: Vec<Cell> = vec![name.into(), loss.into(), (runs.len() as u64).into()];
        row.push(first(|run| run.packed));
        row.extend(mean_cells(&runs, |run| run.changes));
        row.push(first(|run| run.mbit_s));
        row.push(first(|run| 100.0 * run.over_share));
        row.push(first(|run| 100.0 * run.events));
        Ok(row)
    };
    [DATAGRAM, NOMINAL, CHOSEN].map(one).into_iter().collect()
}

fn run(alone: &Alone, [before, measured]: [Duration; 2], seed: u64) -> Result<Run, PointError> {
    let Net { mut world, wire, sender, .. } = alone.net(seed)?;
    let look = |world: &trunkline_sim::World| {
        (world.agent(sender).stats(), world.edge_ledgers(wire)[0].offered.bytes)
    };
    world.run_until(BEGIN + before);
    let (then, bytes) = look(&world);
    world.run_until(BEGIN + before + measured);
    let (now, all) = look(&world);
    let seconds = measured.as_secs_f64();
    let reports = (now.reports - then.reports).max(1) as f64;
    Ok(Run {
        packed: (now.packets - then.packets) as f64 / (now.datagrams - then.datagrams) as f64,
        changes: (now.changes - then.changes) as f64 / seconds,
        mbit_s: 8e-6 * (all - bytes) as f64 / seconds,
        over_share: (now.over_share - then.over_share) as f64 / reports,
        events: world.agent(sender).tfmc().map_or(f64::NAN, |tfmc| tfmc.loss()),
    })
}

fn at(segment: &'static str, loss: f64) -> impl Fn(&Record<'_>) -> bool {
    move |r| r.is("segment", segment) && r.number("loss_pct") == loss
}

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "The segment size in the equation: the datagram's own, or a TCP's",
        section: "beyond, after 5.1.1",
        caption: "The paper's equation (2) uses the size of the present datagram as the segment: more \
               packets in a datagram raise the allowed rate, so that fewer are needed. 200 calls \
               spread over 20 ms on a link with a round trip of 40 ms that loses datagrams \
               independently of each other; the same with 1,460 bytes in the equation, a TCP's \
               segment; and with the datagram that is to be chosen, which solves (2) and (4) at \
               once.",
        chart: Box::new(chart),
        claims: vec![
            Claim {
                unit: "1/s",
                measure: Box::new(|t| first(t, CHANGES, at(DATAGRAM, 0.1))),
                at: &[0.1],
                ..claim(
                    "swings",
                    "with the datagram's own size, the number of packets in a datagram changes \
                     more than ten times a second at 0.1 % loss",
                    Bound::above(10.0, BEFORE),
                    "nominal-everywhere",
                )
            },
            Claim {
                unit: "1/s",
                measure: Box::new(|t| first(t, CHANGES, at(NOMINAL, 0.1))),
                at: &[0.1],
                ..claim(
                    "nominal-is-steady",
                    "with a segment of 1,460 bytes it changes at most once a second",
                    Bound::at_most(1.0, BEFORE),
                    "datagram-everywhere",
                )
            },
        ],
    }
}

fn chart(table: &Table) -> Panels {
    let panel = |y, columns: &'static [&'static str]| {
        let of = |(n, name, segment): (usize, &'static str, &'static str)| {
            line(table, (name, Style::nth(n)), ("loss_pct", columns), move |r| {
                r.is("segment", segment)
            })
        };
        Panel::new(
            y,
            [
                (0, "present datagram", DATAGRAM),
                (1, "1,460 bytes", NOMINAL),
                (2, "next datagram", CHOSEN),
            ]
            .map(of)
            .into(),
        )
    };
    let count = Axis::linear("packets in a datagram", (0.0, 50.0), 10.0);
    let changes = table.iter().map(|r| r.number("changes_per_s"));
    let changes = Axis::fitting("changes a second", 0.0, changes);
    Panels {
        title: "By the segment size in the equation".to_owned(),
        x: Axis::log("datagrams lost (%)", (0.01, 10.0)),
        panels: vec![
            panel(count, &["packets_per_datagram"]),
            panel(changes, &CHANGES),
            panel(Axis::linear("sent (Mbit/s)", (2.0, 5.0), 1.0), &["sent_mbit_s"]),
        ],
        guides: Vec::new(),
    }
}
