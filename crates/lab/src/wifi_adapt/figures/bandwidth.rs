//! Figure 6: the bandwidth of calls, and its variation.

use super::set_up::{
    ALL_30, DECLARED, GREEDY_TFRC, LATE, NEW_TABLE, POLLS_5, POLLS_7, POLLS_10, POLLS_15, POLLS_20,
    SetUp, in_each,
};
use super::{BANDWIDTH, MANY, PAYLOAD, VARIATION, at, differences, draw, maximum, minimum, reads};
use crate::claim::Verdict::{Fails, Holds};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::table::Table;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::{ADAPTIVE, DRAFT, POLLED_7, TFRC};

/// Reason why adaptation is not above TFRC.
const BELOW: &str = "Nothing is lost, so that TFRC sends all packets of G.711, 10 KB/s, which \
                     adaptation can't exceed.";
/// The same for greedy flows.
const FLOODED: &str = "Greedy flows send what the cell carries: 952 KB/s with one call.";
/// Reason why the rate without headers isn't 4 KB/s.
const HALF: &str = "Calls are at 16 kbit/s most of the time, which are 2 KB/s without headers.";
/// Reason why calls are faster with the access point's own parameters.
const HIGHER: &str = "The access point waits for a shorter time, and round trips are shorter: more \
                      steps up to 24 and 32 kbit/s.";
/// Reason why calls are faster with an idle second.
const SECOND: &str = "By arithmetic: the second without other traffic, at 10 KB/s, adds 0.28 to the \
                      declared reading's 4.3 to 4.4.";
/// Reason why TFRC varies less.
const CONSTANT: &str = "TFRC without losses sends the packets of the codec, at a constant rate.";
/// Reason why TFRC's bandwidth is flatter.
const FLAT: &str = "TFRC has 10.00 KB/s throughout, and adaptation 4.42 to 4.32.";

/// Without the headers of IP, UDP and RTP.
const SPEECH: SetUp = SetUp { reading: "payload", cell: DRAFT, tfrc: TFRC };
/// Over the numbers of stations, not from second to second.
const BY_STATIONS: SetUp = SetUp { reading: "by-stations", cell: DRAFT, tfrc: TFRC };

/// Numbers of stations with fewer than 8 calls.
const FEW: &[f64] = &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];

pub fn fig6() -> Figure {
    Figure {
        name: "fig6",
        title: "Mean bandwidth of calls, by number of stations",
        section: "5, figure 6",
        caption: "Rate at which a call arrives, in kilobytes (1,000 bytes) a second, with IP, UDP and \
               RTP headers and without: 4 KB/s are 16 kbit/s with headers, or 32 kbit/s without. \
               Smoothness: the coefficient of variation of the rate from second to second.",
        chart: draw(
            "Mean bandwidth of calls",
            "",
            &[DRAFT, POLLED_7],
            &[("KB/s", BANDWIDTH), ("payload KB/s", PAYLOAD)],
            None,
        ),
        claims: [above_tfrc(), steady(), smoother()].into_iter().flatten().collect(),
    }
}

fn above_tfrc() -> Vec<Claim> {
    let entries = [
        ("above-tfrc", DECLARED, Fails, BELOW),
        ("above-tfrc-greedy", GREEDY_TFRC, Fails, FLOODED),
        ("above-tfrc-2005", NEW_TABLE, Fails, BELOW),
        ("above-tfrc-30-in-all", ALL_30, Fails, BELOW),
        ("above-tfrc-later", LATE, Fails, BELOW),
        ("above-tfrc-polled-7", POLLS_7, Fails, BELOW),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "KB/s",
        at: FEW,
        measure: Box::new(move |t| {
            let schemes = [ADAPTIVE, set_up.tfrc];
            minimum(differences(t, set_up.cell, schemes, BANDWIDTH, |calls| calls < 8.0))
        }),
        reads: reads([set_up.adaptive(), set_up.tfrc()]),
        ..claim(
            id,
            "with fewer than 8 calls adaptation has more than TFRC at every number of stations",
            Some("with fewer than 8 calls the mean bandwidth is higher than TFRC's"),
            Bound::above(0.0, "higher"),
            "lowest-rate",
        )
    })
}

/// The farthest of the rates with more than 6 calls from 4 KB/s.
fn four(t: &Table, set_up: SetUp) -> Measured {
    let columns = if set_up.reading == SPEECH.reading { PAYLOAD } else { BANDWIDTH };
    let all = at(t, set_up.adaptive(), columns, |calls| calls > 6.0);
    let (least, most) = (minimum(all.clone()), maximum(all));
    let range = format!("{:.2} to {:.2} KB/s.", least.estimate, most.estimate);
    let off = |m: &Measured| m.minus(&Measured::census(4.0)).abs();
    Measured::maximum([off(&least), off(&most)]).noting(range)
}

fn steady() -> Vec<Claim> {
    let entries = [
        ("steady", DECLARED, Holds, ""),
        ("steady-payload", SPEECH, Fails, HALF),
        ("steady-2005", NEW_TABLE, Fails, HIGHER),
        ("steady-30-in-all", ALL_30, Holds, ""),
        ("steady-later", LATE, Fails, SECOND),
        ("steady-polled-20", POLLS_20, Holds, ""),
        ("steady-polled-15", POLLS_15, Holds, ""),
        ("steady-polled-10", POLLS_10, Holds, ""),
        ("steady-polled-7", POLLS_7, Holds, ""),
        ("steady-polled-5", POLLS_5, Holds, ""),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "KB/s",
        at: MANY,
        measure: Box::new(move |t| four(t, set_up)),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with more than 6 calls adaptation has 4 KB/s, to 0.5, at every number of stations",
            Some("with more than 6 calls the mean bandwidth is steady (4 KB/s)"),
            Bound::at_most(0.5, "the values that round to 4"),
            "no-adaptation",
        )
    })
}

fn smoother() -> Vec<Claim> {
    let entries = [
        ("smoother", DECLARED, Fails, CONSTANT),
        ("smoother-by-stations", BY_STATIONS, Fails, FLAT),
        ("smoother-greedy", GREEDY_TFRC, Holds, ""),
        ("smoother-2005", NEW_TABLE, Fails, CONSTANT),
        ("smoother-30-in-all", ALL_30, Fails, CONSTANT),
        ("smoother-later", LATE, Fails, CONSTANT),
        ("smoother-polled-7", POLLS_7, Fails, CONSTANT),
    ];
    in_each(entries, |id, set_up| {
        let by_stations = set_up.reading == BY_STATIONS.reading;
        let sabotage = match set_up.reading {
            "by-stations" => "two-classes-of-many",
            "greedy" => "codec-limited",
            _ => "slow-reports",
        };
        Claim {
            unit: if by_stations { "KB/s" } else { "% of the mean" },
            at: MANY,
            measure: Box::new(move |t| if by_stations { flatter(t) } else { smooth(t, set_up) }),
            reads: reads([set_up.adaptive(), set_up.tfrc()]),
            ..claim(
                id,
                "with more than 6 calls adaptation varies less than TFRC",
                Some("with more than 6 calls it is smoother than TFRC's"),
                Bound::above(0.0, "smoother"),
                sabotage,
            )
        }
    })
}

/// Variation of TFRC's rate from second to second, less that of adaptation.
fn smooth(t: &Table, set_up: SetUp) -> Measured {
    let schemes = [set_up.tfrc, ADAPTIVE];
    minimum(differences(t, set_up.cell, schemes, VARIATION, |calls| calls > 6.0))
}

/// Range of TFRC's mean bandwidth over the numbers of stations, less that of adaptation's.
fn flatter(t: &Table) -> Measured {
    let range = |over| Measured::range(&at(t, (DRAFT, over), BANDWIDTH, |calls| calls > 6.0));
    range(TFRC).minus(&range(ADAPTIVE))
}
