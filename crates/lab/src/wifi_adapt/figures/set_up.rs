//! The set-ups in which the paper's sentences are judged: for each reading, where its numbers stand
//! in the table.

use crate::claim::{Claim, Verdict};
use crate::wifi_adapt::grid::{
    ADAPTIVE, DRAFT, GREEDY, IN_ALL, LATER, POLLED_5, POLLED_7, POLLED_10, POLLED_15, POLLED_20,
    STANDARD, TFRC,
};

/// The columns from which a reading of a sentence takes its numbers.
#[derive(Clone, Copy)]
pub struct SetUp {
    /// Name of the reading, as registered for the paper; empty for the declared one.
    pub reading: &'static str,
    /// Value of the column `cell` in its rows.
    pub cell: &'static str,
    /// Value of the column `calls_over` in TFRC's rows.
    pub tfrc: &'static str,
}

impl SetUp {
    const fn new(reading: &'static str, cell: &'static str, tfrc: &'static str) -> SetUp {
        SetUp { reading, cell, tfrc }
    }

    /// The rows of the paper's control: cell and transport.
    pub fn adaptive(self) -> (&'static str, &'static str) {
        (self.cell, ADAPTIVE)
    }

    /// The rows of TFRC: cell and transport.
    pub fn tfrc(self) -> (&'static str, &'static str) {
        (self.cell, self.tfrc)
    }
}

pub const DECLARED: SetUp = SetUp::new("", DRAFT, TFRC);
pub const NEW_TABLE: SetUp = SetUp::new("2005", STANDARD, TFRC);
pub const GREEDY_TFRC: SetUp = SetUp::new("greedy", DRAFT, GREEDY);
pub const GREEDY_NEW_TABLE: SetUp = SetUp::new("greedy-2005", STANDARD, GREEDY);
pub const ALL_30: SetUp = SetUp::new("30-in-all", IN_ALL, TFRC);
pub const LATE: SetUp = SetUp::new("later", LATER, TFRC);
pub const POLLS_20: SetUp = SetUp::new("polled-20", POLLED_20, TFRC);
pub const POLLS_15: SetUp = SetUp::new("polled-15", POLLED_15, TFRC);
pub const POLLS_10: SetUp = SetUp::new("polled-10", POLLED_10, TFRC);
pub const POLLS_7: SetUp = SetUp::new("polled-7", POLLED_7, TFRC);
pub const POLLS_5: SetUp = SetUp::new("polled-5", POLLED_5, TFRC);

/// A claim's identifier, its set-up, and its published verdict with the reason for it.
pub type Entry = (&'static str, SetUp, Verdict, &'static str);

/// A claim in each of these set-ups.
pub fn in_each(
    entries: impl IntoIterator<Item = Entry>,
    claim: impl Fn(&'static str, SetUp) -> Claim,
) -> Vec<Claim> {
    let one = |(id, set_up, expected, why): Entry| {
        let reading = set_up.reading;
        Claim { reading, expected, why, ..claim(id, set_up) }
    };
    entries.into_iter().map(one).collect()
}
