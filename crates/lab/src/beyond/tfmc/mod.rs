//! Trad and Afifi's TFMC beyond their figures: the interval between reports, the segment size in the
//! equation, and the length of the queue; and for the overlay's trunks the cost of a packet, its
//! waiting time, the number of calls that a link carries, and the calls that are refused.

mod admit;
mod alone;
mod feedback;
mod load;
mod queue;
mod segment;
mod wait;

use super::PAPER;
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Experiment, Figure, Points};
use crate::plot::{Mark, Series, Style};
use crate::table::{Column, Record, Table};

/// Reason for bounds that no paper gives.
const BEFORE: &str = "set before the first measurement";

/// Every experiment on TFMC that the paper doesn't have.
pub fn experiments() -> Vec<Experiment> {
    vec![
        feedback::experiment(),
        segment::experiment(),
        queue::experiment(),
        wait::experiment(),
        admit::experiment(),
        load::experiment(),
    ]
}

/// An experiment with a single figure of the same name.
fn experiment(columns: &'static [Column], points: Points, figure: Figure) -> Experiment {
    Experiment {
        paper: PAPER,
        name: figure.name,
        revision: 1,
        columns,
        needs_speech: false,
        points,
        figures: vec![figure],
        testbed: None,
    }
}

/// A claim of this project that is expected to hold.
fn claim(id: &'static str, says: &'static str, bound: Bound, sabotage: &'static str) -> Claim {
    Claim {
        id,
        says,
        published: None,
        bound,
        measure: Box::new(|_| none()),
        sabotage,
        ..Claim::default()
    }
}

fn none() -> Measured {
    Measured::census(f64::NAN)
}

/// Value and interval of the first row that satisfies `is`; NaN if there is none.
fn first(table: &Table, columns: [&'static str; 3], is: impl Fn(&Record<'_>) -> bool) -> Measured {
    table.iter().find(is).map_or_else(none, |r| Measured::of(&r, columns))
}

/// Rows that satisfy a condition as a line by the column `x`, with intervals where columns have
/// them.
fn line(
    table: &Table,
    (name, style): (impl Into<String>, Style),
    (x, columns): (&str, &[&'static str]),
    is: impl Fn(&Record<'_>) -> bool,
) -> Series {
    let mark = |r: Record<'_>| {
        let interval = match columns {
            [_, low, high] => Some((r.number(low), r.number(high))),
            _ => None,
        };
        Mark { x: r.number(x), y: r.number(columns[0]), interval }
    };
    Series { name: name.into(), style, points: table.iter().filter(is).map(mark).collect() }
}
