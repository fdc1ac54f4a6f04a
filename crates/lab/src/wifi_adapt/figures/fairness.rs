//! Figure 7: fairness between calls.

use super::set_up::{
    ALL_30, DECLARED, GREEDY_NEW_TABLE, GREEDY_TFRC, LATE, NEW_TABLE, POLLS_7, SetUp, in_each,
};
use super::{CELLS, FAIRNESS, MANY, PUBLISHED, at, differences, draw, minimum, reads};
use crate::claim::Verdict::{Fails, Holds, Undecided};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::table::Table;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::ADAPTIVE;

/// Reason why the runs don't decide how fair adaptation is.
const SPREAD: &str = "It is 0.997 or more with 6 calls or more. With 2 to 4, a call's phase relative \
                      to the other traffic determines its round trips for a whole run, and runs \
                      differ.";
/// Reason why TFRC's flows are equal, as far as the cell has room for them.
const EQUAL: &str = "By arithmetic: nothing is lost, or hardly anything, all flows send all packets \
                     of the codec, and the index is 1 with any number of flows.";
/// Reason why greedy flows are equal.
const SHARED: &str =
    "All flows meet about the same losses, and in the long run get about the same.";
/// Uncertainty of the index of greedy flows.
const NEAR: &str = "0.60 on average; flows that have lost once hardly recover, and runs differ.";
/// Reason why the index doesn't visibly change.
const HARDLY: &str = "At least 0.99 with 6 flows and with 20.";
/// Direction in which the index of greedy flows changes.
const FALLS: &str = "It falls from 1.00 to 0.60.";
/// Reason why adaptation can't be fairer.
const ONE: &str = "TFRC's index is 1 by arithmetic; adaptation's is 0.998 or more.";
/// Reason why it isn't decided which is fairer.
const CLOSE: &str = "Both are at least 0.99.";
/// The same where TFRC is less fair with many flows only.
const FEW_FLOWS: &str = "With 13 flows or more TFRC has 0.91 to 0.51, and adaptation 0.998; with 7 \
                         to 11 both have more than 0.98, and runs differ.";
/// Contradiction in the paper's own numbers.
const OPPOSITE: &str = "Both have 0.999 or more with 6 calls and with 20. The paper's own numbers say \
                        the opposite: TFRC's index is 0.4 with 6 flows and 0.62 with 20, and \
                        adaptation's nearly 1 with both.";
/// Reason why the number of calls hardly matters.
const NO_DIFFERENCE: &str = "Both have 0.99 or more with 6 calls and with 20.";

/// Numbers of calls that the paper names, and of stations with them.
const SIX: f64 = 6.0;
const TWENTY: f64 = 20.0;
const BOTH: &[f64] = &[7.0, 21.0];

pub fn fig7() -> Figure {
    Figure {
        name: "fig7",
        title: "Fairness between calls, by number of stations",
        section: "5, figure 7",
        caption: "Jain's index of the calls' rates: 1 if all are equal, 1/n if one has everything.",
        chart: draw(
            "Fairness between calls",
            "fairness index",
            CELLS,
            &[("", FAIRNESS)],
            Some(1.0),
        ),
        claims: [fair(), low(), improved(), rises(), fairer(), especially()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn fair() -> Vec<Claim> {
    let entries = [
        ("adaptive", DECLARED, Undecided, SPREAD),
        ("adaptive-2005", NEW_TABLE, Undecided, SPREAD),
        ("adaptive-30-in-all", ALL_30, Holds, ""),
        ("adaptive-later", LATE, Undecided, SPREAD),
        ("adaptive-polled-7", POLLS_7, Undecided, SPREAD),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "",
        measure: Box::new(move |t| minimum(at(t, set_up.adaptive(), FAIRNESS, |_| true))),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation the index is at least 0.95 at every number of stations",
            Some("the index is kept almost at 1 independently of the number of flows"),
            Bound::at_least(0.95, "\"almost at 1\" is interpreted as a twentieth below"),
            "two-classes",
        )
    })
}

/// TFRC's index with this many calls.
fn of_tfrc(t: &Table, set_up: SetUp, calls: f64) -> Measured {
    Measured::maximum(at(t, set_up.tfrc(), FAIRNESS, |n| n == calls))
}

fn low() -> Vec<Claim> {
    let entries = [
        ("tfrc-6", DECLARED, Fails, EQUAL),
        ("tfrc-6-greedy", GREEDY_TFRC, Fails, SHARED),
        ("tfrc-6-2005", NEW_TABLE, Fails, EQUAL),
        ("tfrc-6-greedy-2005", GREEDY_NEW_TABLE, Fails, SHARED),
        ("tfrc-6-30-in-all", ALL_30, Fails, EQUAL),
        ("tfrc-6-later", LATE, Fails, EQUAL),
        ("tfrc-6-polled-7", POLLS_7, Fails, EQUAL),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "",
        at: &[7.0],
        measure: Box::new(move |t| of_tfrc(t, set_up, SIX)),
        reads: reads([set_up.tfrc()]),
        ..claim(
            id,
            "with 6 calls over TFRC the index is below 0.4",
            Some("with TFRC the index goes below 0.4 with 6 flows"),
            Bound::below(0.4, PUBLISHED),
            "undivided-index",
        )
    })
}

fn improved() -> Vec<Claim> {
    let entries = [
        ("tfrc-20", DECLARED, Fails, EQUAL),
        ("tfrc-20-greedy", GREEDY_TFRC, Fails, SHARED),
        ("tfrc-20-2005", NEW_TABLE, Fails, EQUAL),
        ("tfrc-20-greedy-2005", GREEDY_NEW_TABLE, Undecided, NEAR),
        ("tfrc-20-30-in-all", ALL_30, Fails, EQUAL),
        ("tfrc-20-later", LATE, Fails, EQUAL),
        ("tfrc-20-polled-7", POLLS_7, Fails, EQUAL),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "",
        at: &[21.0],
        measure: Box::new(move |t| of_tfrc(t, set_up, TWENTY)),
        reads: reads([set_up.tfrc()]),
        ..claim(
            id,
            "with 20 calls over TFRC the index is 0.57 to 0.67",
            Some("with TFRC the index is 0.62 with 20 flows"),
            Bound::within(0.57, 0.67, "the paper's 0.62, to 0.05"),
            "undivided-index",
        )
    })
}

fn rises() -> Vec<Claim> {
    let entries = [
        ("tfrc-rises", DECLARED, Fails, EQUAL),
        ("tfrc-rises-greedy", GREEDY_TFRC, Undecided, HARDLY),
        ("tfrc-rises-2005", NEW_TABLE, Fails, EQUAL),
        ("tfrc-rises-greedy-2005", GREEDY_NEW_TABLE, Fails, FALLS),
        ("tfrc-rises-30-in-all", ALL_30, Fails, EQUAL),
        ("tfrc-rises-later", LATE, Fails, EQUAL),
        ("tfrc-rises-polled-7", POLLS_7, Undecided, HARDLY),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "",
        at: BOTH,
        measure: Box::new(move |t| of_tfrc(t, set_up, TWENTY).minus(&of_tfrc(t, set_up, SIX))),
        reads: reads([set_up.tfrc()]),
        ..claim(
            id,
            "with 20 calls over TFRC the index is higher than with 6",
            Some("TFRC's index is improved when the number of flows is increased"),
            Bound::above(0.0, "improved"),
            "halved-of-many",
        )
    })
}

fn fairer() -> Vec<Claim> {
    let entries = [
        ("fairer", DECLARED, Fails, ONE),
        ("fairer-greedy", GREEDY_TFRC, Undecided, CLOSE),
        ("fairer-2005", NEW_TABLE, Fails, ONE),
        ("fairer-greedy-2005", GREEDY_NEW_TABLE, Undecided, FEW_FLOWS),
        ("fairer-30-in-all", ALL_30, Fails, ONE),
        ("fairer-later", LATE, Fails, ONE),
        ("fairer-polled-7", POLLS_7, Fails, ONE),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "",
        at: MANY,
        measure: Box::new(move |t| {
            let schemes = [ADAPTIVE, set_up.tfrc];
            minimum(differences(t, set_up.cell, schemes, FAIRNESS, |calls| calls > 6.0))
        }),
        reads: reads([set_up.adaptive(), set_up.tfrc()]),
        ..claim(
            id,
            "with more than 6 calls the index is higher with adaptation than with TFRC",
            Some("the control achieves considerably better fairness than TFRC"),
            Bound::above(0.0, "fairer"),
            match set_up.reading {
                "greedy-2005" => "two-classes-beside-50/s",
                _ => "two-classes",
            },
        )
    })
}

fn especially() -> Vec<Claim> {
    let entries = [
        ("especially-many", DECLARED, Undecided, OPPOSITE),
        ("especially-many-greedy", GREEDY_TFRC, Undecided, NO_DIFFERENCE),
        ("especially-many-2005", NEW_TABLE, Fails, NO_DIFFERENCE),
        ("especially-many-greedy-2005", GREEDY_NEW_TABLE, Holds, ""),
        ("especially-many-30-in-all", ALL_30, Undecided, NO_DIFFERENCE),
        ("especially-many-later", LATE, Fails, NO_DIFFERENCE),
        ("especially-many-polled-7", POLLS_7, Undecided, NO_DIFFERENCE),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "",
        at: BOTH,
        measure: Box::new(move |t| {
            let more = |calls| {
                let adaptive = at(t, set_up.adaptive(), FAIRNESS, move |n| n == calls);
                Measured::maximum(adaptive).minus(&of_tfrc(t, set_up, calls))
            };
            more(TWENTY).minus(&more(SIX))
        }),
        reads: reads([set_up.adaptive(), set_up.tfrc()]),
        ..claim(
            id,
            "with 20 calls adaptation's index is farther above TFRC's than with 6",
            Some(
                "the control is fairer than TFRC especially when the number of flows is increased",
            ),
            Bound::above(0.0, "especially"),
            match set_up.reading {
                "greedy-2005" => "two-classes-beside-50/s",
                _ => "two-classes-of-many",
            },
        )
    })
}
