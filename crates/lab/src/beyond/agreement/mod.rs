//! Checks that the simulator agrees with real daemons in the same scenarios: residual loss, delays,
//! and the silence in calls when a link or a relay fails.

mod figures;
mod networks;
mod testbed;

use super::{PAPER, means};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::scenario::{self, Scenario};
use crate::table::{Cell, Column, Table};
use crate::testbed::PLACES;
use networks::{Kind, Network};
use trunkline_base::stats::{Mean, Ratio};

const FIGURE: &str = "agreement";

const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("network").parameter(),
    Column::text("quantity").parameter(),
    Column::text("unit").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("mean", 4),
    Column::number("low", 4),
    Column::number("high", 4),
    Column::text("valid"),
];

/// A compared quantity: its name, its unit, and its column in a scenario's table.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    /// Empty for missed packets, which are counted: see [`MISSED`].
    column: &'static str,
    /// The kind of networks in which the quantity is measured.
    kind: Kind,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity { name: "missed", unit: "%", column: "", kind: Kind::Lossy },
    Quantity { name: "median delay", unit: "ms", column: "delay_p50_ms", kind: Kind::Lossy },
    Quantity { name: "p99 delay", unit: "ms", column: "delay_p99_ms", kind: Kind::Lossy },
    Quantity { name: "silence", unit: "ms", column: "gap_max_ms", kind: Kind::Failing },
];

/// The quantity whose runs are counts of packets: sent, missed, and lost on a link, recovered or
/// not.
const MISSED: &str = "missed";

/// The value of a quantity in one network and one run; or three counts of packets.
#[derive(Clone)]
struct Value {
    network: &'static str,
    quantity: &'static str,
    numbers: Vec<f64>,
}

/// The experiment that compares the simulator with the testbed.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "agreeing",
        revision: 3,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::simulated()],
        testbed: Some(testbed::testbed()),
    }
}

/// Number of runs in the simulator, and length of the calls, in seconds.
fn extent(size: Size) -> (u64, u64) {
    size.pick((1, 12), (8, 45), (30, 60))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, seconds) = extent(size);
    let one = |network: &'static Network| {
        let measure = move |inputs: &Inputs<'_>| {
            let run = |n| {
                let seed = inputs.seed.wrapping_add(n);
                let scenario = networks::scenario(&[network], (seconds, seed), sabotage);
                Ok(values(&scenario, &scenario::simulate(&scenario, None, seed)?.calls))
            };
            let values = (0..runs).map(run).collect::<Result<Vec<_>, PointError>>()?.concat();
            Ok(rows(PLACES[0], |name, quantity| {
                let is_it = |v: &&Value| v.network == name && v.quantity == quantity;
                (values.iter().filter(is_it).flat_map(|v| v.numbers.clone()).collect(), true)
            }))
        };
        Point {
            key: network.name.into(),
            x: 0.0,
            figures: vec![FIGURE],
            weight: 0.001 * (runs * seconds) as f64,
            measure: Box::new(measure),
        }
    };
    networks::ALL.iter().map(one).collect()
}

/// The values of each network in a scenario's table. Copies of a network are averaged, since
/// they share a run.
fn values(scenario: &Scenario, calls: &Table) -> Vec<Value> {
    let mut values = Vec::new();
    for network in &networks::ALL {
        // A call is named after its network; for failing networks, a number follows.
        let is_of = |name: &str| name.split('.').next() == Some(network.name);
        let rows: Vec<_> =
            scenario.calls.iter().zip(calls.iter()).filter(|(call, _)| is_of(&call.name)).collect();
        for quantity in QUANTITIES.iter().filter(|q| q.kind == network.kind && !rows.is_empty()) {
            let sum = |column: &str| rows.iter().map(|(_, row)| row.number(column)).sum::<f64>();
            let numbers = match quantity.name {
                MISSED => {
                    let [lost, late] = ["lost", "late"].map(sum);
                    vec![sum("sent"), lost + late, lost + sum("recovered")]
                }
                _ => vec![sum(quantity.column) / rows.len() as f64],
            };
            values.push(Value { network: network.name, quantity: quantity.name, numbers });
        }
    }
    values
}

/// The rows of all networks and quantities that have values. `values` gives the numbers for a
/// network and a quantity, and whether they are valid.
fn rows(at: &str, values: impl Fn(&str, &str) -> (Vec<f64>, bool)) -> Cells {
    let each = networks::ALL.iter().flat_map(|n| QUANTITIES.iter().map(move |q| (n, q)));
    each.filter_map(|(network, quantity)| {
        let (numbers, valid) = values(network.name, quantity.name);
        let (runs, Mean { estimate, interval }) = match quantity.name {
            MISSED => missed_pct(&numbers),
            _ => (numbers.len(), Mean::of(&numbers)),
        };
        let mut row: Vec<Cell> = vec![at.into(), network.name.into()];
        row.extend([quantity.name, quantity.unit].map(Cell::from));
        row.push((runs as u64).into());
        // NaN stays NaN.
        let low = if interval.0 < 0.0 { 0.0 } else { interval.0 };
        row.extend([estimate, low, interval.1].map(Cell::from));
        row.push(Cell::yes(valid));
        (!numbers.is_empty()).then_some(row)
    })
    .collect()
}

/// Number of runs, and the share of packets missed in all of them, in percent.
fn missed_pct(counts: &[f64]) -> (usize, Mean) {
    let runs = counts.as_chunks::<3>().0;
    let whole = runs.iter().map(|run| run.map(|count| count as u64));
    let Ratio { estimate, interval: (low, high), .. } = means::missed(&whole.collect::<Vec<_>>());
    (runs.len(), Mean { estimate: 100.0 * estimate, interval: (100.0 * low, 100.0 * high) })
}
