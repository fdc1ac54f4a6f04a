//! Number of links into which a path of 50 ms has to be divided.

use super::network::{Carrier, Stream, delays, links};
use super::{BEFORE, line, mean_cells, ratio};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Style, one_panel};
use crate::table::{Cell, Column, Table};
use std::time::Duration;

const COLUMNS: &[Column] = &[
    Column::number("hops", 0).parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("mean_ms", 3),
    Column::number("mean_low_ms", 3),
    Column::number("mean_high_ms", 3),
];
const MEAN: [&str; 3] = ["mean_ms", "mean_low_ms", "mean_high_ms"];

const HOPS: [u32; 6] = [1, 2, 3, 4, 6, 8];
const LOSSES: [f64; 2] = [0.01, 0.02];
/// The propagation delay of all links together.
const DELAY: Duration = Duration::from_millis(50);

/// The experiment on the number of hops.
pub fn experiment() -> Experiment {
    super::experiment("hops", COLUMNS, Box::new(points), vec![figure()])
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let hops: &[u32] = size.pick(&[2], &HOPS, &HOPS);
    let (runs, messages) = size.pick((2, 300), (4, 4_000), (10, 20_000));
    let one = |&hops: &u32| Point {
        key: hops.to_string(),
        x: hops.into(),
        figures: vec!["hops"],
        weight: f64::from(hops) * 0.4 * runs as f64 * f64::from(messages) / 20_000.0,
        measure: Box::new(move |inputs| measure(hops, (runs, messages), sabotage, inputs)),
    };
    hops.iter().map(one).collect()
}

fn measure(
    hops: u32,
    (runs, messages): (u64, u32),
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let stream = Stream { rate: 500_000, messages };
    // Without division, more hops have no effect.
    let cut = if sabotage.is("one-hop") && hops < 8 { 1 } else { hops };
    let row = |loss: f64| {
        let one = |n| {
            let links = links(cut as usize, DELAY / cut, loss);
            let delays = delays(&Carrier::HopByHop, links, stream, inputs.seed.wrapping_add(n))?;
            let sum: f64 = delays.iter().map(Duration::as_secs_f64).sum();
            // Transmission takes longer over more links, so only the delay that loss adds is
            // compared.
            Ok(1e3 * sum / delays.len() as f64)
        };
        let means: Vec<f64> = (0..runs).map(one).collect::<Result<_, PointError>>()?;
        let mut row: Vec<Cell> = vec![u64::from(hops).into(), (100.0 * loss).into(), runs.into()];
        row.extend(mean_cells(&means));
        Ok(row)
    };
    [0.0].into_iter().chain(LOSSES).map(row).collect()
}

/// Mean delay that loss adds over this many hops, in milliseconds.
fn added(table: &Table, hops: u32, loss: f64) -> Measured {
    let at = |pct: f64| {
        let row = table
            .iter()
            .find(|r| r.number("hops") == f64::from(hops) && r.number("loss_pct") == pct);
        row.map_or(Measured::census(f64::NAN), |r| Measured::of(&r, MEAN))
    };
    at(100.0 * loss).minus(&at(0.0))
}

/// Share of the saving of eight hops over one that this many hops reach.
fn share(table: &Table, hops: u32) -> Measured {
    let [one, some, eight] = [1, hops, 8].map(|hops| added(table, hops, LOSSES[1]));
    // The part that they don't save is small, and hardly depends on the delay that one hop adds.
    let Measured { estimate, interval, .. } = ratio(&some.minus(&eight), &one.minus(&eight));
    let saved = |rest: f64| 100.0 * (1.0 - rest);
    Measured::new(saved(estimate), (saved(interval.1), saved(interval.0)))
}

fn figure() -> Figure {
    Figure {
        name: "hops",
        title: "Number of links into which a path has to be divided",
        section: "Conclusion",
        caption: "A path of 50 ms divided into one to eight equal links, the middle one of which \
               loses 1 or 2 % of the packets; 500 kbit/s of messages of 1,000 bytes. The paper's \
               conclusion refers to simulations whose figures are in its first half.",
        chart: one_panel(chart),
        claims: vec![Claim {
            unit: "% of the saving of eight hops",
            decimals: 0,
            measure: Box::new(|t| Measured::minimum([2, 3, 4].map(|hops| share(t, hops)))),
            ..Claim::holding(
                "a-few-are-enough",
                "two to four equal hops bring at least 80 % of the saving of eight in the delay \
                 that 2 % loss adds",
                Some(
                    "a small number of approximately equal hops, two to four, captures most of the \
                     benefit",
                ),
                Bound::at_least(80.0, BEFORE),
                "one-hop",
            )
        }],
    }
}

fn chart(table: &Table) -> Chart {
    let series = [0.0].into_iter().chain(LOSSES).enumerate().map(|(n, loss)| {
        let pct = 100.0 * loss;
        line(table, (format!("{pct} % lost"), Style::nth(n)), "hops", MEAN, move |r| {
            r.number("loss_pct") == pct
        })
    });
    Chart {
        title: "500 kbit/s over 50 ms, divided into hops".to_owned(),
        x: Axis::linear("hops", (1.0, 8.0), 1.0),
        y: Axis::linear("mean delay (ms)", (50.0, 64.0), 2.0),
        series: series.collect(),
    }
}
