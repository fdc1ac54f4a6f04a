//! Calls in both directions, in which stations contend with each other and with the access point.

use super::{
    BANDWIDTH, MAXIMUM, MEAN, OURS, PAPERS, RATING, base, codecs, draw, most, point, rows, with,
};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Figure, Point, Sabotage, Size};
use crate::plot::Axis;
use crate::wifi_adapt::bed::{Access, Setting};
use crate::wifi_adapt::claim;

const CALLS: [u16; 12] = [5, 10, 15, 20, 25, 30, 35, 38, 40, 42, 44, 50];
/// About as many calls as in the paper's figures, which are compared with delays here.
const PUBLISHED: f64 = 20.0;

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let calls: &[u16] = size.pick(&[10], &[10, 20, 30, 38, 40, 42, 44], &CALLS);
    let one = |&calls: &u16| {
        let setting = Setting { both_ways: true, ..base(Access::Draft, calls, sabotage) };
        let place = (calls.to_string(), calls.into());
        point("uplink", place, with(setting, codecs(sabotage)), size)
    };
    calls.iter().map(one).collect()
}

pub fn figure() -> Figure {
    Figure {
        name: "uplink",
        title: "Calls in both directions",
        section: "beyond the paper",
        says: "As capacity, but each station sends as well as it receives, so that stations and \
               the access point contend for the channel and collide. Mean R of both directions of \
               all calls, and their packets' delay, with 24 Mbit/s of background traffic from the \
               access point.",
        chart: draw(
            "Calls in both directions",
            || Axis::linear("calls", (0.0, 50.0), 10.0),
            "calls",
            &[
                ("R", RATING),
                ("mean delay (ms)", MEAN),
                ("maximum delay (ms)", MAXIMUM),
                ("KB/s", BANDWIDTH),
            ],
        ),
        claims: [capacity(), delays()].into_iter().flatten().collect(),
    }
}

fn capacity() -> Vec<Claim> {
    let beats = |id, over, says, sabotage, why| Claim {
        expected: Verdict::Undecided,
        why,
        unit: "calls",
        decimals: 0,
        measure: Box::new(move |t| {
            let [ours, theirs] = [over, "g711"].map(|over| most(t, over, RATING, |r| r >= 70.0));
            let note = format!("{:.0} calls and {:.0}.", ours.estimate, theirs.estimate);
            ours.minus(&theirs).noting(note)
        }),
        ..claim(id, says, None, Bound::above(0.0, "more"), sabotage)
    };
    vec![
        beats(
            "more-good-calls",
            OURS,
            "with this project's defaults more calls have an R of 70 in both directions than with \
             G.711 throughout",
            "lowest-rate",
            "Both end at the same measured number. The floor of 10 ms lets the codec fall once \
             queues have filled, and R then loses as much by the codec as it gains from fewer \
             losses.",
        ),
        beats(
            "more-good-calls-g726",
            "g726-32",
            "with G.726 at 32 kbit/s throughout more calls have an R of 70 in both directions than \
             with G.711",
            "g726-16",
            "Two more, within the variation of runs: contention and preambles dominate an \
             exchange, and shorter packets don't reduce those.",
        ),
    ]
}

fn delays() -> Vec<Claim> {
    let below = |id, columns: [&'static str; 3], bound, says, sabotage| Claim {
        measure: Box::new(move |t| {
            let few = rows(t, PAPERS).filter(|r| r.number("calls") <= PUBLISHED);
            Measured::maximum(few.map(|r| Measured::of(&r, columns)))
        }),
        ..claim(
            id,
            says,
            None,
            Bound::below(bound, "the paper's number for calls in one direction"),
            sabotage,
        )
    };
    vec![
        below(
            "mean",
            MEAN,
            4.0,
            "with the paper's control and up to 20 calls in both directions the mean delay is \
             below 4 ms",
            "one-queue",
        ),
        below(
            "maximum",
            MAXIMUM,
            20.0,
            "with the paper's control and up to 20 calls in both directions the maximum is below \
             20 ms",
            "deep-one-queue",
        ),
    ]
}
