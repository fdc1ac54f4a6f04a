//! Figure 7: fairness between calls.

use super::{CELLS, FAIRNESS, PUBLISHED, Sent, at, draw, fails, maximum, minimum, reads};
use crate::claim::{Bound, Claim, Verdict};
use crate::experiment::Figure;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::{ADAPTIVE, DRAFT, GREEDY, ONE_QUEUE, POLLED, STANDARD, TFRC};

/// Reason why TFRC's flows are equal.
const ALIKE: &str =
    "In `one-queue` all calls meet about the same losses, and in the long run get about the same.";
/// Reason why five runs don't decide how fair adaptation is.
const SPREAD: &str = "It is 0.99 or more with 6 calls or more. With 3 and 4 a call's phase \
                      relative to the background traffic determines its round trip for a whole \
                      run, and runs differ.";

pub fn fig7() -> Figure {
    Figure {
        name: "fig7",
        title: "Fairness between calls, by number of stations",
        section: "5, figure 7",
        says: "Jain's index of the calls' rates: 1 if all are equal, 1/n if one has everything.",
        chart: draw(
            "Fairness between calls",
            "fairness index",
            CELLS,
            &[("", FAIRNESS)],
            Some(1.0),
        ),
        claims: [fair(), unfair()].into_iter().flatten().collect(),
    }
}

fn fair() -> Vec<Claim> {
    let fair = |id, cell, says| Claim {
        unit: "",
        measure: Box::new(move |t| minimum(at(t, (cell, ADAPTIVE), FAIRNESS, |_| true))),
        reads: reads([(cell, ADAPTIVE)]),
        ..claim(
            id,
            says,
            Some("the index is kept almost at 1 independently of the number of flows"),
            Bound::at_least(0.95, "\"almost at 1\" is interpreted as a twentieth below"),
            "two-classes",
        )
    };
    vec![
        Claim {
            expected: Verdict::Undecided,
            why: SPREAD,
            ..fair("adaptive", DRAFT, "with adaptation the index is at least 0.95 everywhere")
        },
        Claim {
            expected: Verdict::Undecided,
            why: SPREAD,
            ..fair(
                "adaptive-2005",
                STANDARD,
                "with adaptation and the standard's parameters it is at least 0.95 everywhere",
            )
        },
        fair("adaptive-polled", POLLED, "with adaptation and polls it is at least 0.95 everywhere"),
    ]
}

fn unfair() -> Vec<Claim> {
    let tfrc = |id, sent: Sent, says, (calls, bound): (f64, Bound), published, sabotage| Claim {
        unit: "",
        measure: Box::new(move |t| maximum(at(t, sent, FAIRNESS, |n| n == calls))),
        reads: reads([sent]),
        ..claim(id, says, Some(published), bound, sabotage)
    };
    let six = (6.0, Bound::below(0.4, PUBLISHED));
    let twenty = (20.0, Bound::within(0.57, 0.67, "the paper's 0.62, to 0.05"));
    const SIX: &str = "with TFRC the index goes below 0.4 with 6 flows";
    const TWENTY: &str = "with TFRC the index is 0.62 with 20 flows";
    vec![
        fails(
            ALIKE,
            tfrc(
                "tfrc-6",
                (DRAFT, GREEDY),
                "with 6 calls over greedy TFRC it is below 0.4",
                six,
                SIX,
                "codec-limited",
            ),
        ),
        fails(
            ALIKE,
            tfrc(
                "tfrc-6-one-queue",
                (ONE_QUEUE, TFRC),
                "with 6 calls over TFRC limited to the codec and everything in one queue it is below 0.4",
                six,
                SIX,
                "no-background",
            ),
        ),
        fails(
            ALIKE,
            tfrc(
                "tfrc-20",
                (DRAFT, GREEDY),
                "with 20 calls over greedy TFRC it is 0.57 to 0.67",
                twenty,
                TWENTY,
                "codec-limited",
            ),
        ),
        fails(
            ALIKE,
            tfrc(
                "tfrc-20-one-queue",
                (ONE_QUEUE, TFRC),
                "with 20 calls over TFRC limited to the codec and everything in one queue it is 0.57 to \
                     0.67",
                twenty,
                TWENTY,
                "no-background",
            ),
        ),
    ]
}
