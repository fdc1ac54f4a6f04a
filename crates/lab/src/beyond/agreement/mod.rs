//! Checks that the simulator agrees with real daemons in the same scenarios: residual loss, delays,
//! and the silence in calls when a link or a relay fails.

mod figures;
mod networks;
mod testbed;

use super::PAPER;
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::scenario::{self, Scenario};
use crate::table::{Cell, Column, Table};
use crate::testbed::PLACES;
use networks::{Kind, Network};
use trunkline_base::stats::Mean;

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
    column: &'static str,
    /// The kind of networks in which the quantity is measured.
    kind: Kind,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity { name: "missed", unit: "%", column: "missed_pct", kind: Kind::Lossy },
    Quantity { name: "median delay", unit: "ms", column: "delay_p50_ms", kind: Kind::Lossy },
    Quantity { name: "p99 delay", unit: "ms", column: "delay_p99_ms", kind: Kind::Lossy },
    Quantity { name: "silence", unit: "ms", column: "gap_max_ms", kind: Kind::Failing },
];

/// The value of a quantity in one network and one run.
#[derive(Clone, Copy)]
struct Value {
    network: &'static str,
    quantity: &'static str,
    number: f64,
}

/// The experiment that compares the simulator with the testbed.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "agreeing",
        revision: 2,
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
                (values.iter().filter(is_it).map(|v| v.number).collect(), true)
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
            let sum: f64 = rows.iter().map(|(_, row)| row.number(quantity.column)).sum();
            let number = sum / rows.len() as f64;
            values.push(Value { network: network.name, quantity: quantity.name, number });
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
        let Mean { estimate, interval } = Mean::of(&numbers);
        let mut row: Vec<Cell> = vec![at.into(), network.name.into()];
        row.extend([quantity.name, quantity.unit].map(Cell::from));
        row.push((numbers.len() as u64).into());
        row.extend([estimate, interval.0.max(0.0), interval.1].map(Cell::from));
        row.push(Cell::yes(valid));
        (!numbers.is_empty()).then_some(row)
    })
    .collect()
}
