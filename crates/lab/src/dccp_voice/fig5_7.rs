//! Figures 5, 6 and 7: calls over the variant of TFRC that the paper proposes.

use super::SEGMENT_FLOOR;
use super::call::Codec;
use super::charts::{Along, BOTH_OF_USE, along, differences, draw, of_use, one, only_where};
use super::fig1_2::{ALIKE, CLOSE, points};
use super::lossy::{LOSSES, at_50_ms};
use super::transport::{MODIFIED, PAPERS, UNMODIFIED};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict};
use crate::experiment::Figure;
use crate::table::Table;

/// Transports of the figures. Two of them have a floor in bytes.
const SHOWN: [&str; 8] = [
    PAPERS[0],
    PAPERS[1],
    PAPERS[2],
    PAPERS[3],
    PAPERS[4],
    PAPERS[5],
    "tfrc-md-8-segments",
    "tfrc-md-1-segment",
];
/// A floor of one segment of 1,460 bytes per round trip.
pub const ONE_SEGMENT: &str = "tfrc-md-1-segment";
/// Why nothing can be said about a call beyond 150 ms.
const USELESS: &str = "Eight packets per round trip are at most 16 a second from 250 ms on, so that \
                       nothing is left of a call, with loss or without.";

/// Figures 5 and 6, on the modified variant by delay.
pub fn by_delay() -> Vec<Figure> {
    vec![
        Figure {
            name: "fig5",
            title: "Voice quality over the modified TFRC, by delay, without loss",
            section: "VI-A",
            caption: "The paper's SP+FR+MD never falls below eight packets per round trip, and \
                   ignores the receive rate of the first report after a pause. For comparison, the \
                   same with a floor of eight segments of 1,460 bytes, and of one.",
            chart: draw("Without loss", Along::Delay(0.0), &SHOWN),
            claims: vec![
                equals_udp("to-50", MODIFIED, &[50.0], Verdict::Holds),
                equals_udp("to-100", MODIFIED, &[100.0], Verdict::Fails),
                g729_close("g729-close", MODIFIED, Verdict::Fails),
                g711_falls("g711-falls", MODIFIED),
                equals_udp("one-segment-to-100", ONE_SEGMENT, &[50.0, 100.0], Verdict::Holds),
                g729_close("one-segment-g729-close", ONE_SEGMENT, Verdict::Holds),
                g711_falls("one-segment-g711-falls", ONE_SEGMENT),
                tcp_above("tcp-above", 0.0),
                first_report(),
                above_others("above-others", MODIFIED, 0.0),
                above_others("one-segment-above-others", ONE_SEGMENT, 0.0),
            ],
        },
        Figure {
            name: "fig6",
            title: "Voice quality over the modified TFRC, by delay, 0.1 % lost",
            section: "VI-B",
            caption: "The same at 0.1 % loss in both directions.",
            chart: draw("0.1 % lost", Along::Delay(0.1), &SHOWN),
            claims: vec![
                equals_udp_lossy(),
                tcp_above("tcp-above", 0.1),
                less_above("less-above", MODIFIED),
                less_above("one-segment-less-above", ONE_SEGMENT),
                better("better-than-without", MODIFIED, &[250.0]),
                better("one-segment-better-than-without", ONE_SEGMENT, &[250.0]),
                better("better-at-400", MODIFIED, &[400.0]),
                above_others("above-others", MODIFIED, 0.1),
                above_others("one-segment-above-others", ONE_SEGMENT, 0.1),
            ],
        },
    ]
}

/// Figure 7, on the modified variant by loss.
pub fn by_loss() -> Figure {
    Figure {
        name: "fig7",
        title: "Voice quality over the modified TFRC, by loss, at 50 ms",
        section: "VI-C",
        caption: "The same at 50 ms, by loss. Eight packets per round trip exceed a call's 50 a \
               second up to a one-way delay of 80 ms, so that the floor alone carries it.",
        chart: draw("One-way delay of 50 ms", Along::Loss, &SHOWN),
        claims: vec![
            Claim {
                published: Some("voice quality is identical to that over UDP with both codecs"),
                measure: Box::new(|t| {
                    let places = at_50_ms(&LOSSES);
                    let each = differences(t, &Codec::ALL, ["udp", MODIFIED], &places);
                    Measured::maximum(each.into_iter().map(|d| d.abs()))
                }),
                at: &LOSSES,
                sabotage: "no-floor",
                ..points(
                    "equals-udp",
                    "SP+FR+MD has the R of UDP at every loss rate",
                    Bound::at_most(3.0, ALIKE),
                )
            },
            Claim {
                published: Some("SP+FR+MD outperforms TCP"),
                measure: Box::new(|t| {
                    let places = at_50_ms(&[1.0, 3.0, 10.0]);
                    Measured::minimum(differences(t, &Codec::ALL, [MODIFIED, "tcp"], &places))
                }),
                at: &[1.0, 3.0, 10.0],
                expected: Verdict::Undecided,
                why: "With G.711 it does. With G.729's λ2, the losses of UDP and TFRC cost more \
                      than the delay of TCP's retransmissions, which selective acknowledgments \
                      keep short.",
                sabotage: "modified-later",
                ..points(
                    "beats-tcp",
                    "SP+FR+MD has a higher R than TCP at 1 to 10 % loss",
                    Bound::above(0.0, "the paper gives no number"),
                )
            },
            Claim {
                published: Some("SP+FR+MD outperforms TCP"),
                measure: Box::new(|t| {
                    let places = at_50_ms(&[1.0, 3.0, 10.0]);
                    Measured::minimum(differences(t, &[Codec::G711], [MODIFIED, "tcp"], &places))
                }),
                at: &[1.0, 3.0, 10.0],
                sabotage: "no-floor",
                ..points(
                    "beats-tcp-g711",
                    "with G.711, SP+FR+MD has a higher R than TCP at 1 to 10 % loss",
                    Bound::above(0.0, "the paper gives no number"),
                )
            },
            above_others_lossy(),
        ],
    }
}

/// The reading in which a claim judges this variant.
fn reading(name: &str) -> &'static str {
    if name == ONE_SEGMENT { SEGMENT_FLOOR } else { "" }
}

/// Minimum of the differences between a variant and each of the unmodified ones, at these points.
fn lead(t: &Table, name: &'static str, places: &[(f64, f64)]) -> Measured {
    let each =
        UNMODIFIED.iter().flat_map(|other| differences(t, &Codec::ALL, [name, *other], places));
    Measured::minimum(each)
}

fn above_others(id: &'static str, name: &'static str, loss: f64) -> Claim {
    let ours = name == ONE_SEGMENT;
    Claim {
        published: Some(if loss > 0.0 {
            "at 0.1 % loss, SP+FR+MD is again significantly above the other variants of TFRC"
        } else {
            "without loss, SP+FR+MD is significantly higher than the other variants of TFRC"
        }),
        reading: reading(name),
        measure: Box::new(move |t| lead(t, name, &along(&[50.0, 100.0, 150.0, 250.0], loss))),
        at: &[50.0, 100.0, 150.0, 250.0],
        expected: Verdict::Fails,
        why: if ours {
            "At 250 ms nothing is left of a call with G.711 over any of them. Up to 150 ms it is far \
             above them."
        } else {
            "At 250 ms nothing is left of a call over any of them: eight packets per round trip are \
             16 a second. Up to 150 ms it is far above them."
        },
        sabotage: "modified-later",
        ..points(
            id,
            if ours {
                "with a floor of one segment per round trip, R is 10 points above TFRC, SP and \
                 SP+FR at 50 to 250 ms, with both codecs"
            } else {
                "SP+FR+MD is 10 points above TFRC, SP and SP+FR at 50 to 250 ms, with both codecs"
            },
            Bound::above(10.0, CLOSE),
        )
    }
}

fn above_others_lossy() -> Claim {
    Claim {
        published: Some("at 50 ms, SP+FR+MD again outperforms the other variants of TFRC"),
        measure: Box::new(|t| lead(t, MODIFIED, &at_50_ms(&LOSSES))),
        at: &LOSSES,
        sabotage: "modified-later",
        ..points(
            "above-others",
            "SP+FR+MD has a higher R than TFRC, SP and SP+FR at every loss rate",
            Bound::above(0.0, "the paper gives no number"),
        )
    }
}

fn equals_udp(
    id: &'static str,
    name: &'static str,
    delays: &'static [f64],
    expected: Verdict,
) -> Claim {
    let ours = name == ONE_SEGMENT;
    let says = match (ours, delays[0] > 50.0) {
        (true, _) => "with a floor of one segment per round trip, R is that of UDP up to 100 ms",
        (_, true) => "SP+FR+MD has the R of UDP at 100 ms",
        _ => "SP+FR+MD has the R of UDP at 50 ms",
    };
    Claim {
        published: Some("up to 100 ms, SP+FR+MD is identical to UDP with both codecs"),
        reading: reading(name),
        measure: Box::new(move |t| {
            let each = differences(t, &Codec::ALL, ["udp", name], &along(delays, 0.0));
            Measured::maximum(each.into_iter().map(|d| d.abs()))
        }),
        at: delays,
        expected,
        why: match expected {
            Verdict::Fails => {
                "Eight packets in 200 ms are 40 a second, and both codecs need 50: a floor in \
                 packets can't carry them. One in bytes can."
            }
            _ => "",
        },
        sabotage: "no-floor",
        ..points(id, says, Bound::at_most(3.0, ALIKE))
    }
}

fn g729_close(id: &'static str, name: &'static str, expected: Verdict) -> Claim {
    let ours = name == ONE_SEGMENT;
    Claim {
        published: Some("for G.729 it remains close to UDP up to 250 ms"),
        reading: reading(name),
        measure: Box::new(move |t| {
            let places = along(&[100.0, 150.0, 250.0], 0.0);
            Measured::maximum(differences(t, &[Codec::G729], ["udp", name], &places))
        }),
        at: &[100.0, 150.0, 250.0],
        expected,
        why: if ours {
            "1,460 bytes per round trip are G.729's 1,000 B/s up to a round trip of 1.46 s."
        } else {
            "Eight packets per round trip are fewer than 50 a second beyond 80 ms, whatever their \
             size."
        },
        sabotage: "no-floor",
        ..points(
            id,
            if ours {
                "with a floor of one segment per round trip, G.729 is close to UDP up to 250 ms"
            } else {
                "with SP+FR+MD, G.729 is close to UDP up to 250 ms"
            },
            Bound::at_most(10.0, CLOSE),
        )
    }
}

fn g711_falls(id: &'static str, name: &'static str) -> Claim {
    let ours = name == ONE_SEGMENT;
    Claim {
        published: Some("for G.711 it quickly degrades when delays exceed 100 ms"),
        reading: reading(name),
        measure: Box::new(move |t| {
            let places = along(&[150.0, 250.0, 400.0], 0.0);
            Measured::minimum(differences(t, &[Codec::G711], ["udp", name], &places))
        }),
        at: &[150.0, 250.0, 400.0],
        why: if ours {
            "1,460 bytes per round trip are G.711's 8,000 B/s up to a one-way delay of 91 ms. This \
             floor, and neither that of eight packets nor that of eight segments, gives what the \
             paper shows for both codecs."
        } else {
            ""
        },
        sabotage: "floor-of-the-codec",
        ..points(
            id,
            if ours {
                "with a floor of one segment per round trip, G.711 falls below UDP beyond 100 ms"
            } else {
                "with SP+FR+MD, G.711 falls below UDP beyond 100 ms"
            },
            Bound::above(10.0, CLOSE),
        )
    }
}

fn tcp_above(id: &'static str, loss: f64) -> Claim {
    Claim {
        published: Some("TCP still outperforms SP+FR+MD in this scenario"),
        measure: Box::new(move |t| {
            let (pair, places) = (["tcp", MODIFIED], along(&[150.0, 250.0], loss));
            let holds = of_use(t, &Codec::ALL, &pair, &places);
            let each = differences(t, &Codec::ALL, pair, &places);
            only_where(BOTH_OF_USE, &holds, each, Measured::minimum)
        }),
        at: &[150.0, 250.0],
        sabotage: "floor-of-the-codec",
        ..points(
            id,
            // Up to 100 ms both are identical to UDP, by the paper's own words.
            "TCP has a higher R than SP+FR+MD at 150 to 250 ms, with both codecs, where both are \
             above 0",
            Bound::above(0.0, "the paper gives no number"),
        )
    }
}

/// The claim that the paper's second change is an improvement.
fn first_report() -> Claim {
    Claim {
        published: Some(
            "the send rate does not drop near zero both because it is bounded and because the \
             miscalculated receive rate is ignored",
        ),
        measure: Box::new(|t| {
            let places = along(&[50.0, 100.0, 150.0], 0.0);
            let pair = [MODIFIED, "tfrc-md-first-report"];
            Measured::maximum(differences(t, &Codec::ALL, pair, &places))
        }),
        at: &[50.0, 100.0, 150.0],
        expected: Verdict::Fails,
        why: "The rate after a pause is the floor either way: by the paper's rule if the report is \
              discarded, and because the reported rate is almost zero if it is used.",
        sabotage: "modified-later",
        ..points(
            "first-report",
            "discarding the first report after a pause raises R somewhere, at 50 to 150 ms",
            Bound::above(3.0, ALIKE),
        )
    }
}

fn equals_udp_lossy() -> Claim {
    Claim {
        measure: Box::new(|t| {
            let each =
                differences(t, &Codec::ALL, ["udp", ONE_SEGMENT], &along(&[50.0, 100.0], 0.1));
            Measured::maximum(each.into_iter().map(|d| d.abs()))
        }),
        at: &[50.0, 100.0],
        sabotage: "no-floor",
        ..points(
            "one-segment-to-100",
            "with a floor of one segment per round trip, R is that of UDP up to 100 ms",
            Bound::at_most(3.0, OWN_TARGET),
        )
    }
}

fn less_above(id: &'static str, name: &'static str) -> Claim {
    let ours = name == ONE_SEGMENT;
    Claim {
        published: Some(
            "the difference between TCP and SP+FR+MD has diminished, especially above 200 ms",
        ),
        reading: reading(name),
        measure: Box::new(move |t| {
            let (codec, pair) = (&[Codec::G729], ["tcp", name]);
            let by = |loss| differences(t, codec, pair, &along(&[250.0], loss));
            let each = by(0.1).into_iter().zip(by(0.0)).map(|(lossy, clean)| lossy.minus(&clean));
            let places = [(250.0, 0.0), (250.0, 0.1)];
            let holds = of_use(t, codec, &pair, &places).into_iter().all(|holds| holds);
            only_where(BOTH_OF_USE, &[holds], each.collect(), Measured::maximum)
        }),
        at: &[250.0],
        expected: if ours { Verdict::Holds } else { Verdict::Undecided },
        why: if ours { "" } else { USELESS },
        sabotage: if ours { "twentieth-lost" } else { "twentieth-lost-with-such-a-floor" },
        ..points(
            id,
            if ours {
                "with a floor of one segment, TCP's lead is smaller at 0.1 % loss than without, \
                 G.729 at 250 ms"
            } else {
                "TCP's lead over SP+FR+MD is smaller at 0.1 % loss than without, G.729 at 250 ms"
            },
            Bound::at_most(-1.0, "the paper gives no number: a point"),
        )
    }
}

fn better(id: &'static str, name: &'static str, delay: &'static [f64; 1]) -> Claim {
    let ours = name == ONE_SEGMENT;
    Claim {
        published: Some(
            "SP+FR+MD is slightly better than without loss, especially when delays exceed 250 ms",
        ),
        reading: reading(name),
        measure: Box::new(move |t| {
            let places = [0.1, 0.0].map(|loss| (delay[0], loss));
            let [lossy, clean] = places.map(|place| one(t, Codec::G729, name, place));
            let holds = of_use(t, &[Codec::G729], &[name], &places).into_iter().all(|holds| holds);
            let gain = vec![lossy.minus(&clean)];
            only_where(BOTH_OF_USE, &[holds], gain, Measured::maximum)
        }),
        at: delay,
        expected: Verdict::Undecided,
        why: if ours {
            "The gain of the faster restart is about as large as the effect of the losses."
        } else {
            USELESS
        },
        sabotage: if ours { "twentieth-lost" } else { "twentieth-lost-with-such-a-floor" },
        ..points(
            id,
            match (ours, delay[0] > 250.0) {
                (true, _) => {
                    "with a floor of one segment, G.729 at 250 ms is better at 0.1 % loss than \
                     without"
                }
                (_, false) => "SP+FR+MD is better at 0.1 % loss than without, G.729 at 250 ms",
                (_, true) => "SP+FR+MD is better at 0.1 % loss than without, G.729 at 400 ms",
            },
            Bound::at_least(1.0, "slightly better: a point"),
        )
    }
}
