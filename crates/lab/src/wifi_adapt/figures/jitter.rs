//! Figure 5b: jitter, and the budget of 150 ms with a wired part.

use super::set_up::{ALL_30, DECLARED, GREEDY_TFRC, LATE, NEW_TABLE, POLLS_7, in_each};
use super::{CELLS, JITTER, MANY, MAXIMUM, at, differences, draw, maximum, minimum, reads};
use crate::claim::Verdict::{Fails, Holds, Undecided};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::ADAPTIVE;

/// Reason why the jitters hardly differ with few calls.
const SAME: &str = "With 7 to 9 calls packets wait for the same frames under both, and the difference \
                    is 0.01 ms of 0.27; by contention it is 0.1 ms with 23.";
/// Reason why adaptation's is greater.
const LESS: &str = "Adaptation's is 0.01 ms greater, of 0.17.";
/// Reason why the jitters hardly differ with polls.
const POLLS: &str =
    "Both are what remains of the service interval: the difference is 0.01 ms of 0.9.";

/// Duration of a packet, and the wired part of an intercontinental call (section 3), in
/// milliseconds.
const BEFORE: f64 = 20.0 + 100.0;

pub fn fig5b() -> Figure {
    Figure {
        name: "fig5b",
        title: "Jitter of the calls' delays, by number of stations",
        section: "5, after figures 5 and 6",
        caption: "Mean difference between the delays of two successive packets of a call (D of RFC \
               3550), averaged over the calls. The claims on the budget add the longest delay of \
               figure 5 to 100 ms of an intercontinental wired part and the 20 ms of a packet.",
        chart: draw("Jitter of calls", "jitter (ms)", CELLS, &[("", JITTER)], None),
        claims: [jitter(), budget()].into_iter().flatten().collect(),
    }
}

fn jitter() -> Vec<Claim> {
    let entries = [
        ("jitter", DECLARED, Undecided, SAME),
        ("jitter-greedy", GREEDY_TFRC, Holds, ""),
        ("jitter-2005", NEW_TABLE, Fails, LESS),
        ("jitter-30-in-all", ALL_30, Undecided, SAME),
        ("jitter-later", LATE, Undecided, SAME),
        ("jitter-polled-7", POLLS_7, Undecided, POLLS),
    ];
    in_each(entries, |id, set_up| Claim {
        at: MANY,
        measure: Box::new(move |t| {
            let schemes = [set_up.tfrc, ADAPTIVE];
            minimum(differences(t, set_up.cell, schemes, JITTER, |calls| calls > 6.0))
        }),
        reads: reads([set_up.adaptive(), set_up.tfrc()]),
        ..claim(
            id,
            "with adaptation and more than 6 calls the jitter is less than with TFRC",
            Some("low variation of the sending rate reduces the delay jitter"),
            Bound::above(0.0, "reduced"),
            match set_up.reading {
                "greedy" => "unmarked-beside-50/s",
                _ => "adaptive-unmarked",
            },
        )
    })
}

fn budget() -> Vec<Claim> {
    let entries = [
        ("budget", DECLARED, Holds, ""),
        ("budget-2005", NEW_TABLE, Holds, ""),
        ("budget-30-in-all", ALL_30, Holds, ""),
        ("budget-later", LATE, Holds, ""),
        ("budget-polled-7", POLLS_7, Holds, ""),
    ];
    in_each(entries, |id, set_up| Claim {
        measure: Box::new(move |t| {
            let longest = maximum(at(t, set_up.adaptive(), MAXIMUM, |_| true));
            let note = longest.note.clone();
            longest.minus(&Measured::census(-BEFORE)).noting(note)
        }),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation no packet takes longer than 150 ms from mouth to ear, with a wired \
             part of 100 ms",
            Some("the one-way delay is at most 150 ms, including the wide area network"),
            Bound::at_most(
                150.0,
                "the paper's number; 100 ms are its intercontinental calls (section 3), and a \
                 packet holds 20 ms of speech",
            ),
            "deep-one-queue",
        )
    })
}
