//! The interval between reports, and how soon the trunk reacts to losses.

use super::alone::{Alone, BEGIN, Net, link};
use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use crate::tfmc::network::within;
use std::time::Duration;
use trunkline_base::rng;
use trunkline_rate::tfmc::Config;
use trunkline_sim::WireEnd;
use trunkline_sim::agent::trunk::Mode;

const FIGURE: &str = "tfmc-feedback";

const COLUMNS: &[Column] = &[
    Column::number("interval_ms", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("reacts_ms", 2),
    Column::number("reacts_low_ms", 2),
    Column::number("reacts_high_ms", 2),
    Column::number("reports_per_s", 1),
    Column::number("reports_kbit_s", 2),
];
const REACTS: [&str; 3] = ["reacts_ms", "reacts_low_ms", "reacts_high_ms"];
const INTERVALS: [u64; 6] = [5, 10, 20, 50, 100, 200];

/// Time from the start of the calls to the first losses; up to an interval of 200 ms is added at
/// random.
const QUIET: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_millis(200);
/// Share of datagrams that are lost then: of 10,000 a second, the first after 3 ms on average.
const LOSS: f64 = 0.03;
/// Resolution of the reaction time, and how long to wait for a reaction.
const STEP: Duration = Duration::from_micros(500);
const PATIENCE: Duration = Duration::from_secs(1);

/// The experiment on the interval between reports.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let intervals: &[u64] = size.pick(&[5], &[5, 200], &INTERVALS);
    let runs = size.pick(2, 12, 40);
    let one = |&interval: &u64| {
        let used = match () {
            () if sabotage.is("interval-200") => 200,
            () if sabotage.is("interval-5") => 5,
            () => interval,
        };
        Point {
            key: interval.to_string(),
            x: interval as f64,
            figures: vec![FIGURE],
            weight: 0.08 * runs as f64,
            measure: Box::new(move |inputs| measure(interval, used, runs, inputs)),
        }
    };
    intervals.iter().map(one).collect()
}

fn measure(interval: u64, used: u64, runs: u64, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
    let config = Config { feedback_interval: Duration::from_millis(used), ..Config::default() };
    let length = QUIET + WITHIN + PATIENCE;
    let alone = Alone { config, mode: Mode::Tfmc, loss: 0.0, length };
    let runs: Vec<(f64, f64)> = (0..runs)
        .map(|n| reaction(&alone, inputs.seed.wrapping_add(n)))
        .collect::<Result<_, PointError>>()?;
    let [reports, ..] = mean_cells(&runs, |(_, reports)| *reports);
    // 28 bytes of IPv4 and UDP, and the report itself.
    let bytes = (28 + trunkline_rate::tfmc::FEEDBACK_BYTES) as f64;
    let [rate, ..] = mean_cells(&runs, |(_, reports)| 8e-3 * bytes * reports);
    let mut row: Vec<Cell> = vec![interval.into(), (runs.len() as u64).into()];
    row.extend(mean_cells(&runs, |(reacts, _)| *reacts));
    row.extend([reports, rate]);
    Ok(vec![row])
}

/// Milliseconds from the beginning of losses until several packets share a datagram (NaN if they
/// never do), and reports per second before the losses.
fn reaction(alone: &Alone, seed: u64) -> Result<(f64, f64), PointError> {
    let Net { mut world, wire, sender, .. } = alone.net(seed)?;
    let begin = BEGIN + QUIET + within(WITHIN, &mut rng(seed, 2));
    world.run_until(begin);
    let reports = world.agent(sender).stats().reports as f64 / begin.since(BEGIN).as_secs_f64();
    world.change(wire, WireEnd::First, link(LOSS))?;
    let mut now = begin;
    while now < begin + PATIENCE && world.agent(sender).multiplex() == 1 {
        now += STEP;
        world.run_until(now);
    }
    let reacted = world.agent(sender).multiplex() > 1;
    Ok((if reacted { 1e3 * now.since(begin).as_secs_f64() } else { f64::NAN }, reports))
}

fn at(interval: u64) -> impl Fn(&Record<'_>) -> bool {
    move |r| r.number("interval_ms") == interval as f64
}

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "Reaction time of a trunk to losses, by the interval between reports",
        section: "beyond, after 5.1.2",
        caption: "The paper's receiver reports every 5 ms. 200 calls on a link with a round trip of \
               40 ms that begins to lose 3 % of the datagrams: the time until more than one packet \
               shares a datagram, including one delay in each direction, and the cost of the \
               reports.",
        chart: Box::new(chart),
        claims: vec![
            Claim {
                unit: "ms",
                decimals: 1,
                measure: Box::new(|t| first(t, REACTS, at(5))),
                at: &[5.0],
                ..claim(
                    "soon",
                    "with a report every 5 ms a trunk reacts within two round trips",
                    Bound::at_most(80.0, BEFORE),
                    "interval-200",
                )
            },
            Claim {
                unit: "ms",
                decimals: 1,
                measure: Box::new(|t| first(t, REACTS, at(200)).minus(&first(t, REACTS, at(5)))),
                at: &[5.0, 200.0],
                ..claim(
                    "later",
                    "with a report every 200 ms it reacts later by about half of that",
                    Bound::within(50.0, 150.0, BEFORE),
                    "interval-5",
                )
            },
        ],
    }
}

fn chart(table: &Table) -> Panels {
    let panel = |y, columns: &'static [&'static str], name| {
        Panel::new(y, vec![line(table, (name, Style::nth(0)), ("interval_ms", columns), |_| true)])
    };
    Panels {
        title: "By the interval between reports".to_owned(),
        x: Axis::log("interval between reports (ms)", (1.0, 1_000.0)),
        panels: vec![
            panel(Axis::linear("reacts after (ms)", (0.0, 250.0), 50.0), &REACTS, "reaction"),
            panel(
                Axis::linear("reports (kbit/s)", (0.0, 80.0), 20.0),
                &["reports_kbit_s"],
                "reports",
            ),
        ],
        guides: Vec::new(),
    }
}
