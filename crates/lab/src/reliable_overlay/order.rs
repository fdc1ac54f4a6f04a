//! Benefit of relays that forward messages as they arrive, out of order.

use super::network::{Carrier, DELAY, HOPS, Stream, delays, links};
use super::{BEFORE, line, mean_cells};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use std::time::Duration;
use trunkline_base::link_model::Loss;

const COLUMNS: &[Column] = &[
    Column::text("relays").parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("added_ms", 3),
    Column::number("added_low_ms", 3),
    Column::number("added_high_ms", 3),
    Column::number("over_in_order", 3),
    Column::number("over_in_order_low", 3),
    Column::number("over_in_order_high", 3),
];
const ADDED: [&str; 3] = ["added_ms", "added_low_ms", "added_high_ms"];
const OVER: [&str; 3] = ["over_in_order", "over_in_order_low", "over_in_order_high"];

/// Values of the column `relays`.
const AS_THEY_COME: &str = "as they come";
const IN_ORDER: &str = "in order";

/// Shares of packets that each link loses, in tenths of a percent.
const LOSSES: [u32; 5] = [5, 10, 20, 30, 50];

/// The experiment on the order in which relays forward messages.
pub fn experiment() -> Experiment {
    super::experiment("order", COLUMNS, Box::new(points), vec![figure()])
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let losses: &[u32] = size.pick(&[20], &[10, 20], &LOSSES);
    let (runs, messages) = size.pick((2, 300), (5, 2_000), (10, 10_000));
    let one = |&tenths: &u32| Point {
        key: tenths.to_string(),
        x: f64::from(tenths) / 10.0,
        figures: vec!["order"],
        weight: 2.4 * runs as f64 * f64::from(messages) / 10_000.0,
        measure: Box::new(move |inputs| {
            measure(f64::from(tenths) / 1_000.0, (runs, messages), sabotage, inputs)
        }),
    };
    losses.iter().map(one).collect()
}

fn measure(
    loss: f64,
    (runs, messages): (u64, u32),
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let stream = Stream { rate: 1_000_000, messages };
    let mean = |carried: &Carrier, loss: f64, seed: u64| {
        let mut links = links(HOPS, DELAY, 0.0);
        if loss > 0.0 {
            links.iter_mut().for_each(|link| link.loss = Loss::Bernoulli { p: loss });
        }
        let delays = delays(carried, links, stream, seed)?;
        let sum: f64 = delays.iter().map(Duration::as_secs_f64).sum();
        Ok::<f64, PointError>(1e3 * sum / delays.len() as f64)
    };
    let as_they_come = match sabotage.is("in-order-relays") {
        true => Carrier::InOrderRelays,
        false => Carrier::HopByHop,
    };
    // Both have the same losses on the first link.
    let one = |n| {
        let seed = inputs.seed.wrapping_add(n);
        let added = |carried: &Carrier| {
            Ok::<f64, PointError>(mean(carried, loss, seed)? - mean(carried, 0.0, seed)?)
        };
        Ok((added(&as_they_come)?, added(&Carrier::InOrderRelays)?))
    };
    let pairs: Vec<(f64, f64)> = (0..runs).map(one).collect::<Result<_, PointError>>()?;
    let row = |name: &'static str, of: fn(&(f64, f64)) -> f64| {
        let mut row: Vec<Cell> = vec![name.into(), (100.0 * loss).into(), runs.into()];
        row.extend(mean_cells(&pairs.iter().map(of).collect::<Vec<_>>()));
        row.extend(mean_cells(&pairs.iter().map(|pair| of(pair) / pair.1).collect::<Vec<_>>()));
        row
    };
    Ok(vec![row(AS_THEY_COME, |pair| pair.0), row(IN_ORDER, |pair| pair.1)])
}

/// Mean delay that loss adds if relays forward messages as they arrive, divided by the one if they
/// put them in order, at 2 % loss.
fn over(table: &Table) -> Measured {
    let is = |r: &Record<'_>| r.is("relays", AS_THEY_COME) && r.number("loss_pct") == 2.0;
    let none = Measured::census(f64::NAN);
    table.iter().find(is).map_or(none, |r| Measured::of(&r, OVER))
}

fn figure() -> Figure {
    Figure {
        name: "order",
        title: "Benefit of relays that don't wait for order",
        section: "Related work",
        caption: "Messages of 1,000 bytes at 1,000 kbit/s over five links, each of which loses \
               packets in both directions: the delay that loss adds on average until messages can \
               be read in order, if relays forward them as they arrive, and if they put them in \
               order first. The paper claims lower latency for the former.",
        chart: one_panel(chart),
        claims: vec![Claim {
            unit: "of what in-order relays add",
            measure: Box::new(over),
            at: &[2.0],
            expected: Verdict::Undecided,
            why: "By about a tenth: a message most often waits for one that was lost on the same \
                  link, and it waits for that wherever messages are put in order.",
            ..Claim::holding(
                "out-of-order",
                "with 2 % loss on each link, relays that forward messages as they arrive add at \
                 most nine tenths of the delay of those that put them in order",
                Some(
                    "out-of-order forwarding makes traffic less bursty, and latency and jitter lower",
                ),
                Bound::at_most(0.9, BEFORE),
                "in-order-relays",
            )
        }],
    }
}

fn chart(table: &Table) -> Chart {
    let series = [AS_THEY_COME, IN_ORDER].into_iter().enumerate().map(|(n, relays)| {
        line(table, (relays, Style::nth(n)), "loss_pct", ADDED, move |r| r.is("relays", relays))
    });
    Chart {
        title: "Five links with loss".to_owned(),
        x: Axis::linear("lost on each link (%)", (0.0, 5.0), 1.0),
        y: Axis::linear("delay that loss adds (ms)", (0.0, 40.0), 10.0),
        series: series.collect(),
    }
}
