//! Trad and Afifi's TFMC beyond their figures: how the interval between reports, the segment in the
//! equation and the length of the queue change it. Of the overlay's own trunks: what a packet costs,
//! how long it waits, how many calls a link carries, and which are refused.

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

/// Why bounds are what they are: no paper gives one.
const BEFORE: &str = "set before anything was measured";

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

/// An experiment of one figure, which has its name.
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

/// A claim of our own that is expected to hold.
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

/// The value and interval of the first row that is so; not a number without one.
fn first(table: &Table, columns: [&'static str; 3], is: impl Fn(&Record<'_>) -> bool) -> Measured {
    table.iter().find(is).map_or_else(none, |r| Measured::of(&r, columns))
}

/// Rows that are so as a line, by the column `x`, with intervals where columns have them.
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
