//! Figures 4, 4b and 5: delays of the calls' packets, and their effect on quality.

use super::{
    CELLS, MAXIMUM, MEAN, PUBLISHED, RATING, Sent, at, differences, draw, fails, maximum, minimum,
    reads,
};
use crate::claim::{Bound, Claim};
use crate::experiment::Figure;
use crate::wifi_adapt::claim;
use crate::wifi_adapt::grid::{ADAPTIVE, DRAFT, G711, GREEDY, ONE_QUEUE, POLLED, STANDARD, TFRC};

/// Reason why TFRC's packets arrive sooner there than in the paper.
const OWN_QUEUE: &str = "In a separate queue, a call's packets wait for a frame of the background \
                         traffic and a few of other calls, under any control. With background \
                         traffic in the same queue (one-queue) 50 packets of 0.5 ms are ahead of \
                         each: 24 ms, and at most 26. That is nearly the paper's TFRC, as are \
                         greedy flows with priority 6; it doesn't say which it simulated.";
/// Reason why adaptation doesn't help where all share one queue.
const FULL: &str = "A queue that background traffic fills is as long whatever calls send.";
/// Effect of polling on delay.
const INTERVAL: &str = "A service interval of 17 ms, of which a packet waits half on average and \
                        at most all: the standard's scheduler gives at least this for 20 ms \
                        between packets.";
/// Cost of adaptation in quality, and the delay that it saves.
const CODEC: &str = "The round trip of an idle cell is 0.12 ms, so that a frame of 0.4 ms ahead \
                     counts as congestion: the codec falls to 16 and 24 kbit/s, which cost 50 and \
                     25 points, to save less than 0.1 ms of delay, which is inaudible.";

/// The claim that the mean or maximum delay of a transport stays below a bound everywhere.
fn below(
    id: &'static str,
    sent: Sent,
    columns: [&'static str; 3],
    bound: f64,
    calls: fn(f64) -> bool,
    words: [&'static str; 2],
) -> Claim {
    let [says, published] = words;
    Claim {
        measure: Box::new(move |t| maximum(at(t, sent, columns, calls))),
        reads: reads([sent]),
        ..claim(id, says, Some(published), Bound::below(bound, PUBLISHED), "one-queue")
    }
}

pub fn fig4() -> Figure {
    const ADAPTS: &str = "it keeps average delay below 4 ms with few calls and with many";
    const RISES: &str = "with TFRC average delay rises above 15 ms";
    const POLLED_BELOW: &str = "with adaptation and polls it is below 4 ms everywhere";
    let adaptive =
        |id, cell, says| below(id, (cell, ADAPTIVE), MEAN, 4.0, |_| true, [says, ADAPTS]);
    let tfrc = |id, sent: Sent, says, sabotage| Claim {
        measure: Box::new(move |t| maximum(at(t, sent, MEAN, |_| true))),
        reads: reads([sent]),
        ..claim(id, says, Some(RISES), Bound::above(15.0, PUBLISHED), sabotage)
    };
    Figure {
        name: "fig4",
        title: "Mean delay of calls, by number of stations",
        section: "5, figure 4",
        caption: "The access point sends a call of user priority 6 and 4 Mbit/s of priority 1 to each \
               station. The mean delay of the calls' packets, from the gateway to the station, \
               with the paper's control, with TFRC as the codec's 50 packets a second and greedy, \
               and with G.711 throughout.",
        chart: draw("Mean delay of calls", "mean delay (ms)", CELLS, &[("", MEAN)], None),
        claims: vec![
            adaptive("adaptive", DRAFT, "with adaptation the mean delay is below 4 ms everywhere"),
            adaptive(
                "adaptive-2005",
                STANDARD,
                "with adaptation and the standard's parameters it is below 4 ms everywhere",
            ),
            fails(INTERVAL, adaptive("adaptive-polled", POLLED, POLLED_BELOW)),
            fails(
                FULL,
                Claim {
                    sabotage: "deep-queues",
                    ..adaptive(
                        "adaptive-one-queue",
                        ONE_QUEUE,
                        "with adaptation and everything in one queue it is below 4 ms everywhere",
                    )
                },
            ),
            fails(
                OWN_QUEUE,
                tfrc(
                    "tfrc",
                    (DRAFT, TFRC),
                    "with TFRC limited to the codec the mean delay is above 15 ms somewhere",
                    "no-background",
                ),
            ),
            fails(
                "It results from its own 50 packets: 0.29 ms each, with background traffic in \
                 between.",
                tfrc(
                    "tfrc-greedy",
                    (DRAFT, GREEDY),
                    "with greedy TFRC the mean delay is above 15 ms somewhere",
                    "codec-limited",
                ),
            ),
            tfrc(
                "tfrc-one-queue",
                (ONE_QUEUE, TFRC),
                "with TFRC limited to the codec and everything in one queue it is above 15 ms somewhere",
                "no-background",
            ),
        ],
    }
}

pub fn fig4b() -> Figure {
    let fixed_less = |id, cell, says| Claim {
        unit: "of R",
        decimals: 1,
        measure: Box::new(move |t| {
            minimum(differences(t, cell, [ADAPTIVE, G711], RATING, |_| true))
        }),
        reads: reads([(cell, ADAPTIVE), (cell, G711)]),
        ..claim(
            id,
            says,
            Some("the control ensures a reduced delay, and this improves perceived voice quality"),
            Bound::at_least(0.0, "not worse than without the control"),
            "lowest-rate",
        )
    };
    let acceptable = |id, cell, says| Claim {
        unit: "of R",
        decimals: 1,
        measure: Box::new(move |t| minimum(at(t, (cell, ADAPTIVE), RATING, |_| true))),
        reads: reads([(cell, ADAPTIVE)]),
        ..claim(
            id,
            says,
            Some("it adapts the bit rate so as to preserve acceptable levels of quality"),
            Bound::at_least(70.0, "below, many users are dissatisfied (ITU-T G.107, annex B)"),
            "lowest-rate",
        )
    };
    Figure {
        name: "fig4b",
        title: "Quality of calls, by number of stations",
        section: "5, beyond figure 4",
        caption: "R of the calls of figure 4 by the E-model: with the codecs' impairments averaged \
               over a call, the losses, and a playout for which no packet is late. The wired part \
               has no delay.",
        chart: draw("Quality of calls", "R", CELLS, &[("", RATING)], Some(100.0)),
        claims: vec![
            fails(
                CODEC,
                fixed_less(
                    "not-below-g711",
                    DRAFT,
                    "with adaptation R is nowhere below that with G.711 throughout",
                ),
            ),
            fails(
                CODEC,
                fixed_less(
                    "not-below-g711-one-queue",
                    ONE_QUEUE,
                    "with adaptation and everything in one queue R is nowhere below that with \
                     G.711 throughout",
                ),
            ),
            fails(
                CODEC,
                acceptable("acceptable", DRAFT, "with adaptation R is at least 70 everywhere"),
            ),
            fails(
                CODEC,
                acceptable(
                    "acceptable-2005",
                    STANDARD,
                    "with adaptation and the standard's parameters R is at least 70 everywhere",
                ),
            ),
        ],
    }
}

pub fn fig5() -> Figure {
    Figure {
        name: "fig5",
        title: "Maximum delay of calls, by number of stations",
        section: "5, figure 5",
        caption: "The longest delay of any packet of any call in a run, averaged over the runs of \
               figure 4.",
        chart: draw("Maximum delay of calls", "maximum delay (ms)", CELLS, &[("", MAXIMUM)], None),
        claims: [fig5_adaptive(), fig5_tfrc()].into_iter().flatten().collect(),
    }
}

fn fig5_adaptive() -> Vec<Claim> {
    const FEW: &str = "with adaptation the maximum is below 10 ms with fewer than 10 calls";
    const MANY: &str = "with adaptation the maximum is below 20 ms with more than 10 calls";
    let adaptive =
        |id, cell, bound, calls, words| below(id, (cell, ADAPTIVE), MAXIMUM, bound, calls, words);
    vec![
        adaptive(
            "adaptive-few",
            DRAFT,
            10.0,
            |n| n < 10.0,
            ["with adaptation and fewer than 10 calls the maximum is below 10 ms", FEW],
        ),
        adaptive(
            "adaptive-many",
            DRAFT,
            20.0,
            |n| n > 10.0,
            ["with adaptation and more than 10 calls it is below 20 ms", MANY],
        ),
        adaptive(
            "adaptive-few-2005",
            STANDARD,
            10.0,
            |n| n < 10.0,
            ["with the standard's parameters and fewer than 10 calls it is below 10 ms", FEW],
        ),
        adaptive(
            "adaptive-many-2005",
            STANDARD,
            20.0,
            |n| n > 10.0,
            ["with the standard's parameters and more than 10 calls it is below 20 ms", MANY],
        ),
        fails(
            INTERVAL,
            adaptive(
                "adaptive-few-polled",
                POLLED,
                10.0,
                |n| n < 10.0,
                ["with polls and fewer than 10 calls it is below 10 ms", FEW],
            ),
        ),
        adaptive(
            "adaptive-many-polled",
            POLLED,
            20.0,
            |n| n > 10.0,
            ["with polls and more than 10 calls it is below 20 ms", MANY],
        ),
    ]
}

fn fig5_tfrc() -> Vec<Claim> {
    let tfrc = |id, sent: Sent, says, sabotage| Claim {
        measure: Box::new(move |t| maximum(at(t, sent, MAXIMUM, |_| true))),
        reads: reads([sent]),
        ..claim(
            id,
            says,
            Some("for TFRC the maximum is about 25 ms"),
            Bound::within(
                20.0,
                30.0,
                "\"about 25 ms\" is interpreted as a fifth in either \
                                       direction",
            ),
            sabotage,
        )
    };
    vec![
        fails(
            OWN_QUEUE,
            tfrc(
                "tfrc",
                (DRAFT, TFRC),
                "with TFRC limited to the codec the largest maximum is 20 to 30 ms",
                "no-background",
            ),
        ),
        tfrc(
            "tfrc-greedy",
            (DRAFT, GREEDY),
            "with greedy TFRC the largest maximum is 20 to 30 ms",
            "codec-limited",
        ),
        tfrc(
            "tfrc-one-queue",
            (ONE_QUEUE, TFRC),
            "with TFRC limited to the codec and everything in one queue it is 20 to 30 ms",
            "no-background",
        ),
    ]
}
