//! Figures 5, 6 and 7: calls over the variant of TFRC that the paper proposes.

use super::SEGMENT_FLOOR;
use super::call::Codec;
use super::charts::{
    Along, BOTH_OF_USE, EITHER_OF_USE, along, differences, draw, of_use, one, only_where,
};
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
/// Delays, in milliseconds, at which the variants differ from UDP and TCP: up to 100 ms all are
/// alike, by the paper's own words.
const WHERE_THEY_DIFFER: [f64; 3] = [150.0, 250.0, 400.0];

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
                better("better-than-without", MODIFIED),
                better("one-segment-better-than-without", ONE_SEGMENT),
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
                    let places = at_50_ms(&LOSSES);
                    Measured::minimum(differences(t, &Codec::ALL, [MODIFIED, "tcp"], &places))
                }),
                at: &LOSSES,
                expected: Verdict::Undecided,
                why: "With G.711 it does from 1 % on. At 0.01 % both are within a tenth of a point \
                      of UDP. With G.729's λ2, the losses of UDP and TFRC cost more than the delay \
                      of TCP's retransmissions, which selective acknowledgments keep short.",
                sabotage: "modified-later",
                ..points(
                    "beats-tcp",
                    "SP+FR+MD has a higher R than TCP at every loss rate, 0.01 to 10 %",
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

/// Minimum of the differences between a variant and each of the unmodified ones, at those points
/// where something is left of either call.
fn lead(t: &Table, name: &'static str, places: &[(f64, f64)]) -> Measured {
    let pairs = || UNMODIFIED.iter().map(|other| [name, *other]);
    let each = pairs().flat_map(|pair| differences(t, &Codec::ALL, pair, places)).collect();
    let holds: Vec<bool> = pairs().flat_map(|pair| either_of_use(t, pair, places)).collect();
    only_where(EITHER_OF_USE, &holds, each, Measured::minimum)
}

/// Whether something is left of a call over either transport, with each codec at each place.
fn either_of_use(t: &Table, pair: [&str; 2], places: &[(f64, f64)]) -> Vec<bool> {
    let [a, b] = pair.map(|name| of_use(t, &Codec::ALL, name, places));
    a.into_iter().zip(b).map(|(a, b)| a || b).collect()
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
        expected: if loss > 0.0 { Verdict::Fails } else { Verdict::Holds },
        why: if loss > 0.0 {
            "At 250 ms with G.711, and only there: SP+FR delivers an eighth of the packets, so that \
             the point is read, and R is that of silence over each of them. Up to 150 ms the lead \
             is 11 points or more."
        } else {
            ""
        },
        sabotage: "modified-later",
        ..points(
            id,
            if ours {
                "with a floor of one segment per round trip, R is 10 points above TFRC, SP and \
                 SP+FR at 50 to 250 ms, with both codecs, where something is left of either call"
            } else {
                "SP+FR+MD is 10 points above TFRC, SP and SP+FR at 50 to 250 ms, with both codecs, \
                 where something is left of either call"
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
            let holds = either_of_use(t, pair, &places);
            let each = differences(t, &Codec::ALL, pair, &places);
            only_where(EITHER_OF_USE, &holds, each, Measured::minimum)
        }),
        at: &[150.0, 250.0],
        sabotage: "floor-of-the-codec",
        ..points(
            id,
            // Up to 100 ms both are identical to UDP, by the paper's own words.
            "TCP has a higher R than SP+FR+MD at 150 to 250 ms, with both codecs",
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
            let pair = ["tcp", name];
            let by = |loss| differences(t, &Codec::ALL, pair, &along(&WHERE_THEY_DIFFER, loss));
            let each = by(0.1).into_iter().zip(by(0.0)).map(|(lossy, clean)| lossy.minus(&clean));
            let four = [("tcp", 0.0), ("tcp", 0.1), (name, 0.0), (name, 0.1)];
            let holds = all_of_use(t, &four, &WHERE_THEY_DIFFER);
            only_where(BOTH_OF_USE, &holds, each.collect(), Measured::maximum)
        }),
        at: &WHERE_THEY_DIFFER,
        expected: if ours { Verdict::Holds } else { Verdict::Undecided },
        sabotage: if ours { "twentieth-lost" } else { "twentieth-lost-with-such-a-floor" },
        ..points(
            id,
            if ours {
                "with a floor of one segment, TCP's lead is smaller at 0.1 % loss than without, at \
                 150 to 400 ms, with both codecs, where something is left of the calls"
            } else {
                "TCP's lead over SP+FR+MD is smaller at 0.1 % loss than without, at 150 to 400 ms, \
                 with both codecs, where something is left of the calls"
            },
            Bound::at_most(-1.0, "the paper gives no number: a point"),
        )
    }
}

/// Whether something is left of a call over each of these transports at its loss, with each codec
/// at each delay.
fn all_of_use(t: &Table, calls: &[(&'static str, f64)], delays: &[f64]) -> Vec<bool> {
    let each = calls.iter().map(|(name, loss)| of_use(t, &Codec::ALL, name, &along(delays, *loss)));
    let both = |a: Vec<bool>, b: Vec<bool>| a.into_iter().zip(b).map(|(a, b)| a && b).collect();
    each.reduce(both).unwrap_or_default()
}

fn better(id: &'static str, name: &'static str) -> Claim {
    let ours = name == ONE_SEGMENT;
    Claim {
        published: Some(
            "SP+FR+MD is slightly better than without loss, especially when delays exceed 250 ms",
        ),
        reading: reading(name),
        measure: Box::new(move |t| {
            let [lossy, clean] = [0.1, 0.0].map(|loss| each_r(t, name, loss));
            let gains = lossy.into_iter().zip(clean).map(|(lossy, clean)| lossy.minus(&clean));
            let holds = all_of_use(t, &[(name, 0.1), (name, 0.0)], &WHERE_THEY_DIFFER);
            only_where(BOTH_OF_USE, &holds, gains.collect(), Measured::minimum)
        }),
        at: &WHERE_THEY_DIFFER,
        expected: if ours { Verdict::Fails } else { Verdict::Undecided },
        why: if ours {
            "The gain of the faster restart is no larger than the effect of the losses."
        } else {
            ""
        },
        sabotage: if ours { "twentieth-lost" } else { "twentieth-lost-with-such-a-floor" },
        ..points(
            id,
            if ours {
                "with a floor of one segment, R is higher at 0.1 % loss than without, at 150 to 400 \
                 ms, with both codecs, where something is left of the calls"
            } else {
                "SP+FR+MD has a higher R at 0.1 % loss than without, at 150 to 400 ms, with both \
                 codecs, where something is left of the calls"
            },
            Bound::at_least(1.0, "slightly better: a point"),
        )
    }
}

/// R of a variant at this loss, with each codec where the variants differ.
fn each_r(t: &Table, name: &'static str, loss: f64) -> Vec<Measured> {
    let places = along(&WHERE_THEY_DIFFER, loss);
    Codec::ALL.iter().flat_map(|codec| places.iter().map(|p| one(t, *codec, name, *p))).collect()
}
