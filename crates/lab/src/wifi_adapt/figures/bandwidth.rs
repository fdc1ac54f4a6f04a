//! Figure 6: the bandwidth of calls, and its variation.

use super::{BANDWIDTH, PAYLOAD, VARIATION, at, differences, draw, fails, maximum, minimum, reads};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::table::Table;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::{ADAPTIVE, DRAFT, GREEDY, ONE_QUEUE, TFRC};

/// Numbers of stations with fewer than 8 calls, and with more than 6, that a check measures.
const FEW: &[f64] = &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
const MANY: &[f64] = &[8.0, 9.0, 10.0, 12.0, 14.0, 17.0, 19.0, 21.0, 24.0];

/// Reason why adaptation is not above TFRC.
const BELOW: &str = "Nothing is lost, so TFRC sends all packets of G.711, 10 KB/s, and greedy \
                     flows send what the cell carries. Adaptation can't exceed the former, and \
                     gives way to background traffic.";

pub fn fig6() -> Figure {
    Figure {
        name: "fig6",
        title: "Mean bandwidth of calls, by number of stations",
        section: "5, figure 6",
        says: "Rate at which a call arrives, in kilobytes (1,000 bytes) a second, with IP, UDP and \
               RTP headers and without: 4 KB/s are 16 kbit/s with headers, or 32 kbit/s without. \
               The paper doesn't say which. Smoothness: the coefficient of variation of the rate \
               from second to second.",
        chart: draw(
            "Mean bandwidth of calls",
            "",
            &[DRAFT, ONE_QUEUE],
            &[("KB/s", BANDWIDTH), ("payload KB/s", PAYLOAD)],
            None,
        ),
        claims: [above_tfrc(), steady(), smoother()].into_iter().flatten().collect(),
    }
}

fn above_tfrc() -> Vec<Claim> {
    const HIGHER: &str = "with fewer than 8 calls the mean bandwidth is higher than TFRC's";
    let above = |id, cell, over, says| Claim {
        unit: "KB/s",
        at: FEW,
        measure: Box::new(move |t| {
            minimum(differences(t, cell, [ADAPTIVE, over], BANDWIDTH, |calls| calls < 8.0))
        }),
        reads: reads([(cell, ADAPTIVE), (cell, over)]),
        ..claim(id, says, Some(HIGHER), Bound::above(0.0, "higher"), "lowest-rate")
    };
    vec![
        fails(
            BELOW,
            above(
                "above-tfrc",
                DRAFT,
                TFRC,
                "with fewer than 8 calls adaptation has more than TFRC limited to the codec",
            ),
        ),
        fails(
            BELOW,
            above(
                "above-tfrc-greedy",
                DRAFT,
                GREEDY,
                "with fewer than 8 calls adaptation has more than greedy TFRC",
            ),
        ),
        fails(
            "With fewer than 7 stations the cell isn't full: nothing is lost, and TFRC sends all \
             packets of G.711.",
            above(
                "above-tfrc-one-queue",
                ONE_QUEUE,
                TFRC,
                "with fewer than 8 calls and everything in one queue adaptation has more than TFRC \
                     limited to the codec",
            ),
        ),
    ]
}

fn steady() -> Vec<Claim> {
    const STEADY: &str = "with more than 6 calls the mean bandwidth is steady (4 KB/s)";
    fn four(t: &Table, columns: [&'static str; 3]) -> Measured {
        let all = at(t, (DRAFT, ADAPTIVE), columns, |calls| calls > 6.0);
        let (least, most) = (minimum(all.clone()), maximum(all));
        let off = |m: &Measured| m.minus(&Measured::census(4.0)).abs();
        maximum(vec![off(&least).noting(least.note), off(&most).noting(most.note)])
    }
    let steady = |id, says, columns, sabotage| Claim {
        unit: "KB/s",
        at: MANY,
        measure: Box::new(move |t| four(t, columns)),
        reads: reads([(DRAFT, ADAPTIVE)]),
        ..claim(id, says, Some(STEADY), Bound::at_most(0.5, "the values that round to 4"), sabotage)
    };
    vec![
        fails(
            "It is steady, 4.7 to 4.8: 16 kbit/s are 4 KB/s with headers, and calls are a fifth \
             above that because of steps up to 24 and 32 kbit/s and the descent from 64 at the \
             beginning.",
            steady(
                "steady",
                "with more than 6 calls adaptation has 4 KB/s with headers, to 0.5",
                BANDWIDTH,
                "alpha-equals-beta",
            ),
        ),
        fails(
            "It is steady, 2.7 to 2.8, as far below the paper's 4 as it is above it with headers.",
            steady(
                "steady-payload",
                "with more than 6 calls adaptation has 4 KB/s without headers, to 0.5",
                PAYLOAD,
                "no-adaptation",
            ),
        ),
    ]
}

fn smoother() -> Vec<Claim> {
    const SMOOTH: &str = "with more than 6 calls it is smoother than TFRC's";
    let smoother = |id, cell, over, says, sabotage| Claim {
        unit: "% of the mean",
        decimals: 2,
        at: MANY,
        measure: Box::new(move |t| {
            minimum(differences(t, cell, [over, ADAPTIVE], VARIATION, |calls| calls > 6.0))
        }),
        reads: reads([(cell, ADAPTIVE), (cell, over)]),
        ..claim(id, says, Some(SMOOTH), Bound::above(0.0, "smoother"), sabotage)
    };
    vec![
        fails(
            "TFRC without losses sends the packets of the codec, at a constant rate.",
            smoother(
                "smoother",
                DRAFT,
                TFRC,
                "with more than 6 calls adaptation varies less than TFRC limited to the codec",
                "slow-reports",
            ),
        ),
        fails(
            "Where a greedy flow has a large share, it varies less than a codec between 16 and 32 \
             kbit/s.",
            smoother(
                "smoother-greedy",
                DRAFT,
                GREEDY,
                "with more than 6 calls adaptation varies less than greedy TFRC",
                "codec-limited",
            ),
        ),
        smoother(
            "smoother-one-queue",
            ONE_QUEUE,
            TFRC,
            "with more than 6 calls and everything in one queue adaptation varies less than TFRC \
                 limited to the codec",
            "no-background",
        ),
    ]
}
