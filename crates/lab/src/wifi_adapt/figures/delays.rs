//! Figures 4 and 5: delays of the calls' packets.

use super::set_up::{
    ALL_30, DECLARED, GREEDY_TFRC, LATE, NEW_TABLE, POLLS_5, POLLS_7, POLLS_10, POLLS_15, POLLS_20,
    SetUp, in_each,
};
use super::{CELLS, MAXIMUM, MEAN, PUBLISHED, at, differences, draw, maximum, reads};
use crate::claim::Verdict::{Exceeds, Fails, Holds, Undecided};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::ADAPTIVE;

/// Effect of polling on delay.
const INTERVAL: &str = "A packet waits for half of the service interval on average and for all of it \
                        at most, whatever is adapted.";
/// Reason why a maximum of one service interval isn't decided.
const NEARLY: &str = "A service interval of 9.31 ms, and then the turns of other calls.";
/// Reason why TFRC's packets arrive sooner than in the paper.
const OWN_QUEUE: &str = "In a queue of their own, calls' packets wait for a frame of other traffic \
                         and a few of other calls, under any control. In one queue with other \
                         traffic (`one-queue`), 50 packets of 0.5 ms are ahead of each: 24 ms, and \
                         at most 26.";
/// Cause of greedy TFRC's delay.
const OWN_PACKETS: &str = "Its own 50 packets are ahead of each: 0.29 ms each, with other traffic in \
                           between.";
/// Reason why greedy TFRC is farther from adaptation than in the paper.
const FILLED: &str = "Greedy flows fill the queue with up to 952 KB/s each, where figure 6 ends at \
                      20; adaptation's queue is nearly empty here, where the paper has up to 4 ms.";
/// Reason why adaptation's delay differs little from TFRC's.
const ALIKE: &str = "Calls don't fill their queue at any rate, so that packets wait as long under \
                     both.";
/// Effect of polling on TFRC.
const POLLED_TFRC: &str = "TFRC's packets wait for half of the service interval of 6.83 ms, as \
                           adaptation's do.";
/// Reason why TFRC's maximum with polls isn't decided.
const PAIRS: &str = "7.5 ms up to 14 stations; with 17 or more TFRC sometimes sends two packets in a \
                     service interval, of which the second waits for the next, and runs differ.";

pub fn fig4() -> Figure {
    Figure {
        name: "fig4",
        title: "Mean delay of calls, by number of stations",
        section: "5, figure 4",
        caption: "The access point sends a call of user priority 6 and other traffic of priority 1 \
               to each station. The mean delay of the calls' packets, from the gateway to the \
               station, with the paper's control, with TFRC as the codec's 50 packets a second and \
               greedy, and with G.711 throughout.",
        chart: draw("Mean delay of calls", "mean delay (ms)", CELLS, &[("", MEAN)], None),
        claims: [short(), long(), ten_less(), less()].into_iter().flatten().collect(),
    }
}

fn short() -> Vec<Claim> {
    let entries = [
        ("adaptive", DECLARED, Holds, ""),
        ("adaptive-2005", NEW_TABLE, Holds, ""),
        ("adaptive-30-in-all", ALL_30, Holds, ""),
        ("adaptive-later", LATE, Holds, ""),
        ("adaptive-polled-20", POLLS_20, Fails, INTERVAL),
        ("adaptive-polled-15", POLLS_15, Fails, INTERVAL),
        ("adaptive-polled-10", POLLS_10, Fails, INTERVAL),
        ("adaptive-polled-7", POLLS_7, Holds, ""),
        ("adaptive-polled-5", POLLS_5, Holds, ""),
    ];
    in_each(entries, |id, set_up| Claim {
        measure: Box::new(move |t| maximum(at(t, set_up.adaptive(), MEAN, |_| true))),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation the mean delay is below 4 ms at every number of stations",
            Some("it keeps average delay below 4 ms with few calls and with many"),
            Bound::below(4.0, PUBLISHED),
            "one-queue",
        )
    })
}

fn long() -> Vec<Claim> {
    let entries = [
        ("tfrc", DECLARED, Fails, OWN_QUEUE),
        ("tfrc-greedy", GREEDY_TFRC, Fails, OWN_PACKETS),
        ("tfrc-2005", NEW_TABLE, Fails, OWN_QUEUE),
        ("tfrc-30-in-all", ALL_30, Fails, OWN_QUEUE),
        ("tfrc-later", LATE, Fails, OWN_QUEUE),
        ("tfrc-polled-7", POLLS_7, Fails, POLLED_TFRC),
    ];
    in_each(entries, |id, set_up| Claim {
        measure: Box::new(move |t| maximum(at(t, set_up.tfrc(), MEAN, |_| true))),
        reads: reads([set_up.tfrc()]),
        ..claim(
            id,
            "with TFRC the mean delay is above 15 ms at some number of stations",
            Some("with TFRC average delay rises above 15 ms"),
            Bound::above(15.0, PUBLISHED),
            without_load(set_up),
        )
    })
}

/// The sabotage that shortens TFRC's delay.
fn without_load(set_up: SetUp) -> &'static str {
    match set_up.reading {
        "greedy" | "greedy-2005" => "codec-limited",
        "polled-7" => "no-polls",
        _ => "no-background",
    }
}

fn ten_less() -> Vec<Claim> {
    let entries = [
        ("ten-less", DECLARED, Fails, ALIKE),
        ("ten-less-greedy", GREEDY_TFRC, Exceeds, FILLED),
        ("ten-less-2005", NEW_TABLE, Fails, ALIKE),
        ("ten-less-30-in-all", ALL_30, Fails, ALIKE),
        ("ten-less-later", LATE, Fails, ALIKE),
        ("ten-less-polled-7", POLLS_7, Fails, ALIKE),
    ];
    in_each(entries, |id, set_up| Claim {
        measure: Box::new(move |t| {
            let [tfrc, adaptive] =
                [set_up.tfrc(), set_up.adaptive()].map(|sent| maximum(at(t, sent, MEAN, |_| true)));
            let note = format!("{:.2} and {:.2} ms.", tfrc.estimate, adaptive.estimate);
            tfrc.minus(&adaptive).noting(note)
        }),
        reads: reads([set_up.tfrc(), set_up.adaptive()]),
        ..claim(
            id,
            "the longest mean delay with adaptation is at least 8 ms shorter than with TFRC",
            Some("the delay on the WLAN is reduced by about 10 ms"),
            Bound::at_least(8.0, "\"about 10 ms\" is interpreted as a fifth in either direction")
                .better(12.0),
            "adaptive-unmarked",
        )
    })
}

fn less() -> Vec<Claim> {
    let entries = [
        ("less", DECLARED, Holds, ""),
        ("less-greedy", GREEDY_TFRC, Holds, ""),
        ("less-2005", NEW_TABLE, Holds, ""),
        ("less-30-in-all", ALL_30, Holds, ""),
        ("less-later", LATE, Holds, ""),
        ("less-polled-7", POLLS_7, Undecided, ALIKE),
    ];
    in_each(entries, |id, set_up| Claim {
        measure: Box::new(move |t| {
            let schemes = [set_up.tfrc, ADAPTIVE];
            Measured::mean(&differences(t, set_up.cell, schemes, MEAN, |_| true))
        }),
        reads: reads([set_up.tfrc(), set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation the mean delay is shorter than with TFRC, on average over the numbers \
             of stations",
            Some("the transmission delay is reduced compared to TFRC"),
            Bound::above(0.0, "shorter"),
            "adaptive-unmarked",
        )
    })
}

pub fn fig5() -> Figure {
    Figure {
        name: "fig5",
        title: "Maximum delay of calls, by number of stations",
        section: "5, figure 5",
        caption: "The longest delay of any packet of any call in a run, averaged over the runs of \
               figure 4.",
        chart: draw("Maximum delay of calls", "maximum delay (ms)", CELLS, &[("", MAXIMUM)], None),
        claims: [few(), many(), longest()].into_iter().flatten().collect(),
    }
}

/// The paper's sentence on both numbers of calls.
const LIMITS: &str = "adaptation keeps the maximum below 10 ms with fewer than 10 calls, and below \
                      20 ms with more than 10";

fn few() -> Vec<Claim> {
    let entries = [
        ("adaptive-few", DECLARED, Holds, ""),
        ("adaptive-few-2005", NEW_TABLE, Holds, ""),
        ("adaptive-few-30-in-all", ALL_30, Holds, ""),
        ("adaptive-few-later", LATE, Holds, ""),
        ("adaptive-few-polled-20", POLLS_20, Fails, INTERVAL),
        ("adaptive-few-polled-15", POLLS_15, Fails, INTERVAL),
        ("adaptive-few-polled-10", POLLS_10, Undecided, NEARLY),
        ("adaptive-few-polled-7", POLLS_7, Holds, ""),
        ("adaptive-few-polled-5", POLLS_5, Holds, ""),
    ];
    in_each(entries, |id, set_up| Claim {
        at: &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
        measure: Box::new(move |t| maximum(at(t, set_up.adaptive(), MAXIMUM, |n| n < 10.0))),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation and fewer than 10 calls the maximum is below 10 ms",
            Some(LIMITS),
            Bound::below(10.0, PUBLISHED),
            "one-queue",
        )
    })
}

fn many() -> Vec<Claim> {
    let entries = [
        ("adaptive-many", DECLARED, Holds, ""),
        ("adaptive-many-2005", NEW_TABLE, Holds, ""),
        ("adaptive-many-30-in-all", ALL_30, Holds, ""),
        ("adaptive-many-later", LATE, Holds, ""),
        ("adaptive-many-polled-20", POLLS_20, Holds, ""),
        ("adaptive-many-polled-15", POLLS_15, Holds, ""),
        ("adaptive-many-polled-10", POLLS_10, Holds, ""),
        ("adaptive-many-polled-7", POLLS_7, Holds, ""),
        ("adaptive-many-polled-5", POLLS_5, Holds, ""),
    ];
    in_each(entries, |id, set_up| Claim {
        at: &[12.0, 14.0, 17.0, 19.0, 21.0, 24.0],
        measure: Box::new(move |t| maximum(at(t, set_up.adaptive(), MAXIMUM, |n| n > 10.0))),
        reads: reads([set_up.adaptive()]),
        ..claim(
            id,
            "with adaptation and more than 10 calls the maximum is below 20 ms",
            Some(LIMITS),
            Bound::below(20.0, PUBLISHED),
            "one-queue",
        )
    })
}

fn longest() -> Vec<Claim> {
    let entries = [
        ("tfrc", DECLARED, Fails, OWN_QUEUE),
        ("tfrc-greedy", GREEDY_TFRC, Holds, ""),
        ("tfrc-2005", NEW_TABLE, Fails, OWN_QUEUE),
        ("tfrc-30-in-all", ALL_30, Fails, OWN_QUEUE),
        ("tfrc-later", LATE, Fails, OWN_QUEUE),
        ("tfrc-polled-7", POLLS_7, Undecided, PAIRS),
    ];
    in_each(entries, |id, set_up| Claim {
        measure: Box::new(move |t| maximum(at(t, set_up.tfrc(), MAXIMUM, |_| true))),
        reads: reads([set_up.tfrc()]),
        ..claim(
            id,
            "with TFRC the largest maximum is 20 to 30 ms",
            Some("for TFRC the maximum is about 25 ms"),
            Bound::within(
                20.0,
                30.0,
                "\"about 25 ms\" is interpreted as a fifth in either direction",
            ),
            without_load(set_up),
        )
    })
}
