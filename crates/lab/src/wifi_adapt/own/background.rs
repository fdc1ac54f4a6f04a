//! The amount of background traffic, which the paper doesn't give.

use super::{BANDWIDTH, FEW, MEAN, PAPERS, RATING, base, controls, draw_where, point, rows, with};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::{Figure, Point, Sabotage, Size};
use crate::plot::Axis;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::topology::{Access, Scheme, Setting};
use trunkline_base::Bitrate;
use trunkline_rate::vegas::CodecRate;

/// Numbers of calls: the paper's 4, 7, 12 and 21 stations.
const CALLS: [u16; 4] = [3, 6, FEW, 20];
/// Background traffic in kbit/s that doesn't fill the cell of [`FEW`] stations, which carries 21 to
/// 26 Mbit/s.
const NOT_FULL: [f64; 2] = [1_000.0, 2_000.0];

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let calls: &[u16] = size.pick(&[3], &[3, FEW], &CALLS);
    let rates: &[u32] = size.pick(&[4], &[1, 3, 6], &[1, 2, 3, 4, 5, 6]);
    let one = |calls: u16, rate: u32| {
        let silent = rate == 6 && sabotage.is("silent-at-six");
        let background = Bitrate::from_bps(if silent { 0 } else { u64::from(rate) * 1_000_000 });
        let setting = Setting { background, ..base(Access::Draft, calls, sabotage) };
        let [paper, _] = controls(sabotage);
        let others = [("tfrc-50/s", Scheme::Tfrc), ("g711", Scheme::Fixed(CodecRate::Kbps64))];
        let mut ways = with(setting, [paper].into_iter().chain(others));
        if sabotage != Sabotage::NONE {
            ways.truncate(1);
        }
        point("background", (format!("{calls}-{rate}"), rate.into()), ways, size)
    };
    calls.iter().flat_map(|&n| rates.iter().map(move |&rate| one(n, rate))).collect()
}

pub fn figure() -> Figure {
    Figure {
        name: "background",
        title: "Amount of background traffic",
        section: "5, beyond figures 4 and 6",
        caption: "As figures 4, 4b and 6, for the cell with the drafts' parameters, with 1 to 6 \
               Mbit/s of background traffic to each station, where those have 4. The chart shows \
               12 stations.",
        chart: draw_where(
            |r| r.number("calls") == f64::from(FEW),
            "Background traffic",
            || Axis::linear("background traffic to each station (kbit/s)", (0.0, 7_000.0), 1_000.0),
            "background_kbit_s",
            &[("mean delay (ms)", MEAN), ("R", RATING), ("KB/s", BANDWIDTH)],
        ),
        claims: vec![
            Claim {
                measure: Box::new(|t| {
                    Measured::maximum(rows(t, PAPERS).map(|r| Measured::of(&r, MEAN)))
                }),
                ..claim(
                    "mean",
                    "with adaptation the mean delay is below 4 ms at every rate of background \
                     traffic",
                    None,
                    Bound::below(4.0, "the paper's number, for a rate that it doesn't give"),
                    "one-queue",
                )
            },
            Claim {
                unit: "KB/s",
                measure: Box::new(|t| {
                    let few = rows(t, PAPERS).filter(|r| r.number("calls") == f64::from(FEW));
                    // The sabotage removes all background traffic in place of 6 Mbit/s.
                    let full = few.filter(|r| !NOT_FULL.contains(&r.number("background_kbit_s")));
                    let all = full.map(|r| Measured::of(&r, BANDWIDTH));
                    Measured::range(&all.collect::<Vec<_>>())
                }),
                ..claim(
                    "choice",
                    "where the cell is full calls have the same bandwidth within 0.5 KB/s at every \
                     rate of background traffic",
                    None,
                    Bound::at_most(0.5, "an eighth of the paper's 4 KB/s"),
                    "silent-at-six",
                )
            },
            Claim {
                expected: Verdict::Fails,
                why: "49 to 52 wherever the cell is full, and 62 to 92 where it isn't.",
                unit: "of R",
                decimals: 1,
                measure: Box::new(|t| {
                    Measured::minimum(rows(t, PAPERS).map(|r| Measured::of(&r, RATING)))
                }),
                ..claim(
                    "acceptable",
                    "with adaptation R is at least 70 at every rate of background traffic",
                    None,
                    Bound::at_least(70.0, OWN_TARGET),
                    "lowest-rate",
                )
            },
        ],
    }
}
