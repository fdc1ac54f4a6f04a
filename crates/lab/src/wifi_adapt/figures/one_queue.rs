//! Calls in the queue of the background traffic, which the paper's priorities exclude.

use super::{MANY, MAXIMUM, MEAN, VARIATION, at, differences, draw, maximum, minimum, reads};
use crate::claim::{Bound, Claim};
use crate::experiment::Figure;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::{ADAPTIVE, ONE_QUEUE, TFRC};

/// Reason for bounds that are the paper's numbers of another cell.
const ANOTHER: &str = "the paper's number, for calls of a priority of their own";

pub fn one_queue() -> Figure {
    let longest = |id, over, columns, says, bound| Claim {
        measure: Box::new(move |t| maximum(at(t, (ONE_QUEUE, over), columns, |_| true))),
        reads: reads([(ONE_QUEUE, over)]),
        ..claim(id, says, None, bound, "no-background")
    };
    Figure {
        name: "one-queue",
        title: "Calls in one queue with other traffic, by number of stations",
        section: "5, beyond figures 4 to 6",
        caption: "As figures 4 to 6, but calls have the priority of other traffic, which the paper \
               excludes: its calls have user priority 6. TFRC's delays there are nearly those that \
               the paper reports for TFRC, but so are adaptation's.",
        chart: draw(
            "One queue",
            "",
            &[ONE_QUEUE],
            &[("mean delay (ms)", MEAN), ("maximum delay (ms)", MAXIMUM)],
            None,
        ),
        claims: vec![
            longest(
                "tfrc-mean",
                TFRC,
                MEAN,
                "with TFRC and one queue the mean delay is above 15 ms at some number of stations",
                Bound::above(15.0, ANOTHER),
            ),
            longest(
                "tfrc-maximum",
                TFRC,
                MAXIMUM,
                "with TFRC and one queue the largest maximum is 20 to 30 ms",
                Bound::within(
                    20.0,
                    30.0,
                    "the paper's 25 ms, for calls of a priority of their own",
                ),
            ),
            longest(
                "adaptive-mean",
                ADAPTIVE,
                MEAN,
                "with adaptation and one queue the mean delay is above 15 ms at some number of \
                 stations as well",
                Bound::above(15.0, "the paper's number for TFRC"),
            ),
            Claim {
                unit: "% of the mean",
                at: MANY,
                measure: Box::new(|t| {
                    let schemes = [TFRC, ADAPTIVE];
                    minimum(differences(t, ONE_QUEUE, schemes, VARIATION, |calls| calls > 6.0))
                }),
                reads: reads([(ONE_QUEUE, ADAPTIVE), (ONE_QUEUE, TFRC)]),
                ..claim(
                    "smoother",
                    "with more than 6 calls and one queue adaptation varies less than TFRC",
                    None,
                    Bound::above(0.0, "the paper's words, for calls of a priority of their own"),
                    "no-background",
                )
            },
        ],
    }
}
