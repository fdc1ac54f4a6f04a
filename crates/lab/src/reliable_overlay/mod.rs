//! Amir, Danilov: *Reliable Communication in Overlay Networks*, DSN 2003.
//!
//! The second half of the paper, whose figures were measured on a testbed: the throughput of
//! reliable links, and the delay of messages over five of them, compared with a TCP from end to
//! end.

mod daemon_network;
mod delay_figures;
mod delays;
mod fairness;
mod hops;
pub mod messages;
pub mod network;
mod order;
mod setup;
mod throughput;
pub mod transfer;

use crate::claim::Measured;
use crate::experiment::{Experiment, Figure, Points};
use crate::papers::Reading;
use crate::plot::{Mark, Series, Style};
use crate::table::{Cell, Column, Record, Table};

/// The folder of this paper's figures, in command lines and results.
pub const PAPER: &str = "reliable-overlay";

/// Every experiment on this paper.
pub fn experiments() -> Vec<Experiment> {
    vec![
        delays::experiment(),
        hops::experiment(),
        order::experiment(),
        setup::experiment(),
        throughput::experiment(),
        fairness::experiment(),
        transfer::experiment(),
    ]
}

/// The declared reading of the paper's sentences.
pub const DECLARED: &str = "messages of 1,000 bytes, as the paper sends in each experiment of its section \
     on Spines, over IPv4 and with the 14 bytes of Ethernet's header.";

/// Readings of the paper's sentences on overhead.
const FULL_PACKETS: &str = "full-packets";
const DEFAULT_PACKETS: &str = "default-packets";

/// Readings other than the declared one.
pub const READINGS: &[Reading] = &[
    Reading {
        name: FULL_PACKETS,
        differs: "packets of 1,500 bytes, as full as the TCP's: the paper compares bytes of data, and \
                  doesn't say in what messages",
    },
    Reading { name: DEFAULT_PACKETS, differs: "packets as large as a link carries by default" },
];

/// Reason for bounds that the paper doesn't give.
const BEFORE: &str = "set before the first measurement";

/// The mean of values and both ends of its 95 % interval.
fn mean_cells(values: &[f64]) -> [Cell; 3] {
    crate::tfmc::mean_cells(values, |value| *value)
}

/// An experiment without a testbed.
fn experiment(
    name: &'static str,
    columns: &'static [Column],
    points: Points,
    figures: Vec<Figure>,
) -> Experiment {
    Experiment {
        paper: PAPER,
        name,
        revision: 1,
        columns,
        needs_speech: false,
        points,
        figures,
        testbed: None,
    }
}

/// `a / b`, both measured independently of each other.
fn ratio(a: &Measured, b: &Measured) -> Measured {
    let estimate = a.estimate / b.estimate;
    // From the differences of logarithms; an end at or below zero leaves the ratio unbounded.
    let log = |m: &Measured| {
        let of = |x: f64| libm::log(x.max(f64::MIN_POSITIVE));
        Measured::new(of(m.estimate), (of(m.interval.0), of(m.interval.1)))
    };
    let (low, high) = log(a).minus(&log(b)).interval;
    Measured::new(estimate, (libm::exp(low), libm::exp(high)))
}

/// Rows that satisfy a condition as a line by the column `x`, with their intervals.
fn line(
    table: &Table,
    (name, style): (impl Into<String>, Style),
    x: &str,
    columns: [&str; 3],
    is: impl Fn(&Record<'_>) -> bool,
) -> Series {
    let mark = |r: Record<'_>| {
        let Measured { estimate, interval, .. } = Measured::of(&r, columns);
        Mark { x: r.number(x), y: estimate, interval: Some(interval) }
    };
    Series { name: name.into(), style, points: table.iter().filter(is).map(mark).collect() }
}
