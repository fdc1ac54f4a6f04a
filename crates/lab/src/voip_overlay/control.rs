//! The paper's statements on its control traffic (§III-A): hellos, link updates, the time until a
//! dead link is left, and the number of nodes.

mod dead;
mod figures;
mod nodes;
mod quiet;
mod updates;

pub use updates::{ETHERNET, links_in_a_packet};

use super::PAPER;
use crate::experiment::{Experiment, Point, Sabotage, Size};
use crate::table::{Cell, Column};
use trunkline_base::stats::Mean;

/// Columns of very different measurements: the quantity and the setting, the position on the
/// figure's horizontal axis, and the number of values.
const COLUMNS: &[Column] = &[
    Column::text("what").parameter(),
    Column::text("setting").parameter(),
    Column::number("x", 0).parameter(),
    Column::number("value", 3),
    Column::number("low", 3),
    Column::number("high", 3),
    Column::number("of", 0),
];

/// The experiment on the overlay's control traffic: `control-updates`, `control-quiet`,
/// `control-dead` and `control-nodes`.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "control",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let mut points = updates::points(size, sabotage);
    points.extend(quiet::points(size, sabotage));
    points.extend(dead::points(size, sabotage));
    points.extend(nodes::points(size, sabotage));
    points
}

/// A row with the mean of some values.
fn row(what: &str, setting: &str, x: f64, values: &[f64]) -> Vec<Cell> {
    let Mean { estimate, interval: (low, high) } = Mean::of(values);
    let of = values.len() as f64;
    let mut row = vec![Cell::from(what), setting.into()];
    row.extend([x, estimate, low, high, of].map(Cell::from));
    row
}
