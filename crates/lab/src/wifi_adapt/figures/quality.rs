//! Figure 4b: the quality of calls.

use super::set_up::{ALL_30, DECLARED, LATE, NEW_TABLE, POLLS_7, SetUp, in_each};
use super::{CELLS, RATING, at, differences, draw, minimum, reads};
use crate::claim::Verdict::Fails;
use crate::claim::{Bound, Claim};
use crate::experiment::Figure;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::{ADAPTIVE, DRAFT, G711};

/// Cost of adaptation in quality, and the delay that it saves.
const CODEC: &str = "The round trip of an idle cell is 0.12 ms, so that a frame of 0.4 ms ahead \
                     counts as congestion: the codec falls to 16 and 24 kbit/s, which cost 50 and \
                     25 points, to save less than 0.1 ms of delay, which is inaudible.";
/// The same where calls wait for polls.
const POLLS: &str = "The shortest wait for a poll is the gateway's BaseRTT, and most are many times as \
                     long: the codec is at 16 kbit/s, which costs 50 points, and the wait stays.";

/// Compared with G.711 throughout, in place of TFRC.
const NO_CONTROL: SetUp = SetUp { reading: "no-control", cell: DRAFT, tfrc: G711 };

pub fn fig4b() -> Figure {
    Figure {
        name: "fig4b",
        title: "Quality of calls, by number of stations",
        section: "5, beyond figure 4",
        caption: "R of the calls of figure 4 by the E-model: with the codecs' impairments averaged \
               over a call, the losses, and a playout for which no packet is late. The wired part \
               has no delay.",
        chart: draw("Quality of calls", "R", CELLS, &[("", RATING)], Some(100.0)),
        claims: [improved(), acceptable()].into_iter().flatten().collect(),
    }
}

fn improved() -> Vec<Claim> {
    let entries = [
        ("improved", DECLARED, Fails, CODEC),
        ("improved-no-control", NO_CONTROL, Fails, CODEC),
        ("improved-2005", NEW_TABLE, Fails, CODEC),
        ("improved-30-in-all", ALL_30, Fails, CODEC),
        ("improved-later", LATE, Fails, CODEC),
        ("improved-polled-7", POLLS_7, Fails, POLLS),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "of R",
        decimals: 1,
        measure: Box::new(move |t| {
            let schemes = [ADAPTIVE, set_up.tfrc];
            minimum(differences(t, set_up.cell, schemes, RATING, |_| true))
        }),
        reads: reads([set_up.adaptive(), set_up.tfrc()]),
        ..claim(
            id,
            "with adaptation R is higher at every number of stations",
            Some("the control ensures a reduced delay, and this improves perceived voice quality"),
            Bound::above(0.0, "improved"),
            "lowest-rate",
        )
    })
}

fn acceptable() -> Vec<Claim> {
    let entries = [
        ("acceptable", DECLARED, Fails, CODEC),
        ("acceptable-2005", NEW_TABLE, Fails, CODEC),
        ("acceptable-30-in-all", ALL_30, Fails, CODEC),
        ("acceptable-later", LATE, Fails, CODEC),
        ("acceptable-polled-7", POLLS_7, Fails, POLLS),
    ];
    in_each(entries, |id, set_up| Claim {
        unit: "of R",
        decimals: 1,
        measure: Box::new(move |t| minimum(at(t, set_up.adaptive(), RATING, |_| true))),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation R is at least 70 at every number of stations",
            Some("it adapts the bit rate so as to preserve acceptable levels of quality"),
            Bound::at_least(70.0, "below, many users are dissatisfied (ITU-T G.107, annex B)"),
            "lowest-rate",
        )
    })
}
