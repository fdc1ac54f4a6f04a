//! A BaseRTT for each call, compared with the paper's one for all calls of a gateway.

use super::{
    BANDWIDTH, FAIRNESS, FEW, OURS, PAPERS, RATING, base, controls, draw, point, rows, with,
};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Figure, Point, Sabotage, Size};
use crate::plot::Axis;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::topology::{Access, Scheme, Setting};
use trunkline_rate::vegas::{self, BaseRttScope, CodecRate};

/// Numbers of calls: the paper's 4, 7, 12 and 21 stations.
const CALLS: [u16; 4] = [3, 6, FEW, 20];

/// The paper's control with a BaseRTT for each call, in the column `calls_over`.
const PER_CALL: &str = "per-call";

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let calls: &[u16] = size.pick(&[3], &[3, 20], &CALLS);
    let one = |&calls: &u16| {
        let config = vegas::Config { scope: BaseRttScope::Call, ..vegas::Config::paper() };
        let low = Scheme::Fixed(CodecRate::Kbps16);
        let per_call = if sabotage.is("per-call-at-16") { low } else { Scheme::Adaptive(config) };
        let [paper, ours] = controls(sabotage);
        let setting = base(Access::Draft, calls, sabotage);
        let mut ways = with(setting, [paper, (PER_CALL, per_call), ours]);
        if sabotage.is("two-classes") {
            ways[0].1 = Setting { scheme: low, adaptive: calls / 2, ..setting };
        }
        point("base-rtt", (calls.to_string(), calls.into()), ways, size)
    };
    calls.iter().map(one).collect()
}

pub fn figure() -> Figure {
    Figure {
        name: "base-rtt",
        title: "One BaseRTT for a gateway, and one for each call",
        section: "4.2, beyond",
        caption: "4 to 21 stations with 24 Mbit/s of background traffic in all, EDCA with the drafts' \
               parameters. The paper's control compares each round trip with the shortest of all \
               calls of the gateway; or, as a choice of this project, with the shortest of its own \
               call; or with that, but at least 10 ms, with the other defaults of this project.",
        chart: draw(
            "BaseRTT",
            || Axis::linear("calls", (0.0, 25.0), 5.0),
            "calls",
            &[("R", RATING), ("KB/s", BANDWIDTH), ("fairness index", FAIRNESS)],
        ),
        claims: vec![
            Claim {
                expected: Verdict::Undecided,
                why: "It is 5 to 7 higher with 6 calls or more, and 2 with 3, where runs differ as \
                      much.",
                unit: "of R",
                decimals: 1,
                measure: Box::new(|t| {
                    let [own, shared] = [PER_CALL, PAPERS]
                        .map(|over| rows(t, over).map(|r| Measured::of(&r, RATING)));
                    Measured::minimum(own.zip(shared).map(|(a, b)| a.minus(&b)))
                }),
                ..claim(
                    "better-per-call",
                    "with a BaseRTT for each call R is higher than with the gateway's",
                    None,
                    Bound::above(
                        0.0,
                        "a call's own shortest round trip is at least the gateway's, so that the \
                         rate falls later",
                    ),
                    "per-call-at-16",
                )
            },
            Claim {
                unit: "",
                decimals: 3,
                measure: Box::new(|t| {
                    Measured::minimum(rows(t, PAPERS).map(|r| Measured::of(&r, FAIRNESS)))
                }),
                ..claim(
                    "fair",
                    "with the gateway's BaseRTT the index of fairness is at least 0.95",
                    None,
                    Bound::at_least(0.95, "the bound of figure 7"),
                    "two-classes",
                )
            },
            Claim {
                unit: "of R",
                decimals: 1,
                measure: Box::new(|t| {
                    Measured::minimum(rows(t, OURS).map(|r| Measured::of(&r, RATING)))
                }),
                ..claim(
                    "floor",
                    "with this project's defaults R is at least 85",
                    None,
                    Bound::at_least(85.0, "as in the figure on reports"),
                    "no-floor",
                )
            },
        ],
    }
}
