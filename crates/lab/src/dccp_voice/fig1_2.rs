//! Figures 1 and 2: calls by delay, over the variants of TFRC that were specified at the time.

use super::call::Codec;
use super::charts::{Along, above, along, at, differences, draw, one};
use super::transport::{PAPERS, UNMODIFIED};
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict, maximum};
use crate::experiment::Figure;
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::table::Table;

/// Delays beyond 50 ms, in milliseconds, that every size except `Size::Tiny` measures.
const LONG: [f64; 4] = [100.0, 150.0, 250.0, 400.0];
/// Delays at which R of the variants has not reached its lowest value yet, in milliseconds.
const SHORT: [f64; 3] = [50.0, 100.0, 150.0];
/// Difference that is not visible in the paper's figures.
pub const ALIKE: &str = "3 points, the precision with which the paper's figures can be read";

/// Largest difference that still counts as close.
pub const CLOSE: &str = "10 points, a step of Table II";

/// Figures 1, 1b and 2, on the unmodified variants by delay.
pub fn figures() -> Vec<Figure> {
    vec![fig1(), fig1b(), fig2()]
}

fn fig1() -> Figure {
    Figure {
        name: "fig1",
        title: "Voice quality, by delay, without loss",
        section: "IV-A",
        caption: "One direction of a call, 100 talkspurts, over UDP, TCP and three variants of TFRC, \
               whose receivers report what they received since the last report, including pauses: \
               each talkspurt begins at a small part of the rate that it needs. All have 38 ms of \
               delay on top of network and playout, chosen so that UDP falls below 50 where the \
               paper's does.",
        chart: draw("Without loss", Along::Delay(0.0), &PAPERS[..5]),
        claims: vec![
            below_50(),
            not_yet_at_50(),
            udp_falls(),
            g729_below(),
            same(),
            tcp_like_udp("g729-tcp-equals-udp", Codec::G729, &[0.0, 50.0, 100.0, 250.0, 400.0]),
            tcp_like_udp("g711-tcp-to-100", Codec::G711, &[0.0, 50.0, 100.0]),
            g711_falls(),
            sustains("g729-tcp-to-250", Codec::G729),
            sustains("g711-tcp-to-250", Codec::G711),
            window_3390(),
            codecs_meet(),
        ],
    }
}

fn fig2() -> Figure {
    Figure {
        name: "fig2",
        title: "Voice quality, by delay, 0.1 % lost",
        section: "IV-B",
        caption: "The same at 0.1 % loss in both directions, so that TFRC leaves slow start. Its \
               initial rate after a pause then follows from the smallest rate of RFC 3448: a \
               segment in 64 s.",
        chart: draw("0.1 % lost", Along::Delay(0.1), &PAPERS[..5]),
        claims: vec![
            better("better-tfrc", "tfrc"),
            better("better-sp", "tfrc-sp"),
            better("better-sp-fr", "tfrc-sp-fr"),
            still_below(),
            sp_like_tfrc(),
            restart_better(),
            g729_near_udp(),
            g711_beneath(),
            better_with_segment(),
        ],
    }
}

fn fig1b() -> Figure {
    Figure {
        name: "fig1b",
        title: "Cost of a playout that doesn't know the future",
        section: "III-E, beyond",
        caption: "Not in the paper. R with the best playout for the whole call minus R with one that \
               plays each talkspurt at the delay that 99 % of the last 10,000 packets had, at 0.1 \
               % loss.",
        chart: Box::new(adaptive),
        claims: vec![Claim {
            id: "udp",
            statement: "over UDP, an adaptive playout is within a point of the best one, up to 250 ms",
            published: None,
            bound: Bound::at_most(1.0, OWN_TARGET),
            unit: "points of R",
            measure: Box::new(|t| {
                let places = along(&[50.0, 150.0, 250.0], 0.1);
                let each = Codec::ALL.iter().flat_map(|c| places.iter().map(|p| (*c, *p)));
                let less = |(codec, place)| match at(t, codec, "udp", place) {
                    Some(row) => Measured::census(row.number("adaptive_playout_less_r")),
                    None => Measured::census(f64::NAN),
                };
                Measured::maximum(each.map(less))
            }),
            at: &[50.0, 150.0, 250.0],
            sabotage: "a-second-to-begin-with",
            ..Claim::default()
        }],
    }
}

fn adaptive(table: &Table) -> Panels {
    let panel = |codec: Codec| {
        let series = |(n, name): (usize, &&str)| {
            let rows = table.iter().filter(|r| {
                r.is("codec", codec.name()) && r.is("transport", name) && r.number("loss_pct") > 0.0
            });
            let mark = |r: crate::table::Record<'_>| Mark {
                x: r.number("delay_ms"),
                y: r.number("adaptive_playout_less_r"),
                interval: None,
            };
            Series {
                name: (*name).to_owned(),
                style: Style::nth(n),
                points: rows.map(mark).collect(),
            }
        };
        let shown = ["udp", "tcp", "tfrc-sp-fr-md"];
        let y = Axis::linear(&format!("R minus, {}", codec.name()), (0.0, 40.0), 10.0);
        Panel::new(y, shown.iter().enumerate().map(series).collect())
    };
    Panels {
        title: "Best playout minus an adaptive one, 0.1 % lost".to_owned(),
        x: Axis::linear("one-way delay (ms)", (0.0, 450.0), 50.0),
        panels: vec![panel(Codec::G729), panel(Codec::G711)],
        guides: Vec::new(),
    }
}

/// A claim in points of R; the caller sets the other fields.
pub fn points(id: &'static str, says: &'static str, bound: Bound) -> Claim {
    Claim {
        id,
        statement: says,
        published: None,
        bound,
        unit: "points of R",
        decimals: 1,
        measure: Box::new(|_| Measured::census(f64::NAN)),
        sabotage: "nagle",
        ..Claim::default()
    }
}

fn below_50() -> Claim {
    Claim {
        published: Some("R quickly drops below 50 when the delay exceeds 50 ms, over any variant"),
        measure: Box::new(|t| {
            let all = Codec::ALL.iter().flat_map(|codec| {
                UNMODIFIED
                    .iter()
                    .flat_map(|name| LONG.iter().map(|delay| one(t, *codec, name, (*delay, 0.0))))
            });
            Measured::maximum(all)
        }),
        at: &LONG,
        sabotage: "idle-excluded",
        ..points(
            "below-50",
            "at 100 ms and beyond, TFRC, SP and SP+FR have R below 50 with both codecs",
            Bound::below(50.0, "the paper's 50"),
        )
    }
}

/// The other half of the sentence of [`below_50`].
fn not_yet_at_50() -> Claim {
    Claim {
        published: below_50().published,
        measure: Box::new(|t| {
            let all = Codec::ALL
                .iter()
                .flat_map(|codec| UNMODIFIED.iter().map(|name| one(t, *codec, name, (50.0, 0.0))));
            Measured::minimum(all)
        }),
        at: &[50.0],
        expected: Verdict::Fails,
        why: "At 50 ms it has dropped below 50 with both codecs.",
        sabotage: "tfrc-later",
        ..points(
            "not-yet-at-50",
            "at 50 ms, TFRC, SP and SP+FR have R of 50 or more with both codecs",
            Bound::at_least(50.0, "the paper's 50"),
        )
    }
}

/// Delays from which on R of a call without loss falls along a line, in milliseconds.
const ON_A_LINE: [f64; 2] = [250.0, 400.0];

/// The delay at which R over UDP reaches 50, in milliseconds.
fn reaches_50(t: &Table, codec: Codec) -> f64 {
    let [from, to] = ON_A_LINE;
    let [near, far] = ON_A_LINE.map(|delay| one(t, codec, "udp", (delay, 0.0)).estimate);
    from + (near - 50.0) / (near - far) * (to - from)
}

fn udp_falls() -> Claim {
    const PAPERS: [f64; 2] = [375.0, 425.0];
    Claim {
        published: Some(
            "UDP only reaches such a low quality when the delay exceeds 375 to 425 ms, depending on \
             the codec",
        ),
        measure: Box::new(|t| {
            let [first, last] = [Codec::G729, Codec::G711].map(|codec| reaches_50(t, codec));
            let outside = maximum([PAPERS[0] - first, last - PAPERS[1], 0.0]);
            Measured::census(outside).noting(format!("At {first:.0} and {last:.0} ms."))
        }),
        at: &ON_A_LINE,
        unit: "ms outside of 375 to 425",
        expected: Verdict::Fails,
        why: "The codecs are λ1 = 10 points apart, which are 75 ms, not 50, at the E-model's 0.134 \
              points/ms. The delay on top of network and playout was chosen so that both ends are \
              missed by as much.",
        sabotage: "g729-later",
        ..points(
            "udp-falls",
            "over UDP R falls below 50 between 375 and 425 ms, with either codec",
            Bound::at_most(0.0, "the paper's 375 and 425 ms"),
        )
    }
}

fn g729_below() -> Claim {
    Claim {
        published: Some(
            "voice quality over UDP with G.729 is roughly 10 points below that with G.711, at low \
             delays",
        ),
        measure: Box::new(|t| {
            let each = [0.0, 50.0].map(|delay| {
                let of = |codec| at(t, codec, "udp", (delay, 0.0));
                match (of(Codec::G711), of(Codec::G729)) {
                    (Some(g711), Some(g729)) => above(&g711, &g729),
                    _ => Measured::census(f64::NAN),
                }
            });
            Measured::maximum(each)
        }),
        at: &[0.0, 50.0],
        why: "It is λ1 of Table III.",
        sabotage: "g729-later",
        ..points(
            "g729-below",
            "over UDP at 0 and 50 ms, R of G.729 is 10 points below that of G.711",
            Bound::within(7.0, 13.0, "the paper's 10 with the precision of its figures, 3 points"),
        )
    }
}

/// Largest difference between any two of the variants.
fn apart(t: &Table, names: &[[&'static str; 2]], places: &[(f64, f64)]) -> Measured {
    let each = names.iter().flat_map(|pair| differences(t, &Codec::ALL, *pair, places));
    Measured::maximum(each.map(|d| d.abs()))
}

fn same() -> Claim {
    Claim {
        published: Some("voice quality over TFRC, SP and SP+FR is identical"),
        measure: Box::new(|t| {
            let pairs = [["tfrc", "tfrc-sp"], ["tfrc-sp", "tfrc-sp-fr"]];
            apart(t, &pairs, &along(&[50.0, 100.0, 150.0, 250.0, 400.0], 0.0))
        }),
        at: &[50.0, 100.0, 150.0, 250.0, 400.0],
        sabotage: "idle-excluded-for-small-packets",
        ..points(
            "same",
            "TFRC, SP and SP+FR have the same R at every delay",
            Bound::at_most(3.0, ALIKE),
        )
    }
}

fn tcp_like_udp(id: &'static str, codec: Codec, delays: &'static [f64]) -> Claim {
    let g729 = codec == Codec::G729;
    Claim {
        published: Some(if g729 {
            "voice quality over UDP and TCP is exactly the same for the low-bandwidth G.729"
        } else {
            "voice quality for TCP degrades at delays exceeding 100 ms with G.711"
        }),
        measure: Box::new(move |t| {
            let places = along(delays, 0.0);
            let each = differences(t, &[codec], ["udp", "tcp"], &places);
            Measured::maximum(each.into_iter().map(|d| d.abs()))
        }),
        at: delays,
        ..points(
            id,
            if g729 {
                "G.729 over TCP has the R of UDP at every delay"
            } else {
                "G.711 over TCP has the R of UDP up to 100 ms"
            },
            Bound::at_most(3.0, ALIKE),
        )
    }
}

fn g711_falls() -> Claim {
    Claim {
        published: Some("voice quality for TCP degrades at delays exceeding 100 ms with G.711"),
        measure: Box::new(|t| {
            let places = along(&[150.0, 250.0, 400.0], 0.0);
            Measured::minimum(differences(t, &[Codec::G711], ["udp", "tcp"], &places))
        }),
        at: &[150.0, 250.0, 400.0],
        why: "After a pause FreeBSD begins with one segment of 1,448 bytes, which G.711 fills in \
              181 ms: with a longer round trip it has to wait. RFC 3390's window, which the paper \
              names, lasts for three times as long (tcp-rfc3390).",
        sabotage: "initial-window-3390",
        ..points(
            "g711-tcp-falls",
            "G.711 over TCP falls below UDP beyond 100 ms",
            Bound::above(3.0, ALIKE),
        )
    }
}

fn sustains(id: &'static str, codec: Codec) -> Claim {
    let g729 = codec == Codec::G729;
    Claim {
        published: Some("TCP sustains R above 50 up to 250 ms or more, depending on the codec"),
        measure: Box::new(move |t| {
            let each = [50.0, 100.0, 150.0, 250.0].map(|delay| one(t, codec, "tcp", (delay, 0.0)));
            Measured::minimum(each)
        }),
        at: &[50.0, 100.0, 150.0, 250.0],
        expected: if g729 { Verdict::Holds } else { Verdict::Undecided },
        why: if g729 {
            ""
        } else {
            "With one segment after each pause G.711 is at 50, to the precision of 15 calls. With \
             RFC 3390's window it would be as over UDP (tcp-rfc3390)."
        },
        ..points(
            id,
            if g729 {
                "G.729 over TCP has R above 50 up to 250 ms"
            } else {
                "G.711 over TCP has R above 50 up to 250 ms"
            },
            Bound::above(50.0, "the paper's 50"),
        )
    }
}

fn window_3390() -> Claim {
    Claim {
        measure: Box::new(|t| {
            let places = along(&[50.0, 100.0, 150.0, 250.0], 0.0);
            let each = differences(t, &Codec::ALL, ["udp", "tcp-rfc3390"], &places);
            Measured::maximum(each)
        }),
        at: &[50.0, 100.0, 150.0, 250.0],
        why: "4,380 bytes last for 548 ms of G.711: a one-way delay of 274 ms.",
        ..points(
            "window-3390",
            "a TCP that begins with RFC 3390's window after a pause has the R of UDP up to 250 ms",
            Bound::at_most(3.0, ALIKE),
        )
    }
}

fn codecs_meet() -> Claim {
    Claim {
        published: Some("at 400 ms, R for G.711 and G.729 are very similar"),
        measure: Box::new(|t| {
            let of = |codec| at(t, codec, "udp", (400.0, 0.0));
            match (of(Codec::G711), of(Codec::G729)) {
                (Some(g711), Some(g729)) => above(&g711, &g729),
                _ => Measured::census(f64::NAN),
            }
        }),
        at: &[400.0],
        expected: Verdict::Fails,
        why: "By Table III they are λ1 = 10 apart without loss, at every delay: delay has the same \
              effect on both.",
        sabotage: "g729-later",
        ..points(
            "codecs-meet",
            "over UDP at 400 ms, R of G.711 is that of G.729",
            Bound::at_most(3.0, ALIKE),
        )
    }
}

fn gain(t: &Table, name: &str, delays: &[f64]) -> Measured {
    let each = Codec::ALL.iter().flat_map(|codec| {
        delays.iter().map(|delay| {
            one(t, *codec, name, (*delay, 0.1)).minus(&one(t, *codec, name, (*delay, 0.0)))
        })
    });
    Measured::minimum(each)
}

fn better(id: &'static str, name: &'static str) -> Claim {
    let says = match name {
        "tfrc" => "TFRC at 0.1 % loss has a higher R than without, at 50 to 150 ms",
        "tfrc-sp" => "SP at 0.1 % loss has a higher R than without, at 50 to 150 ms",
        _ => "SP+FR at 0.1 % loss has a higher R than without, at 50 to 150 ms",
    };
    Claim {
        published: Some("the performance of the variants has increased by the small loss"),
        measure: Box::new(move |t| gain(t, name, &SHORT)),
        at: &SHORT,
        expected: if name == "tfrc-sp-fr" { Verdict::Holds } else { Verdict::Fails },
        why: match name {
            "tfrc-sp-fr" => "",
            _ => {
                "After a loss the rate may fall to a segment in 64 s (RFC 3448, section 4.3), in \
                 slow start only to one per round trip: if that floor also applies after a loss, \
                 TFRC is better with 0.1 % loss (tfrc-segment-per-rtt)."
            }
        },
        sabotage: "half-lost-but-over-tcp",
        ..points(id, says, Bound::above(0.0, "the paper gives no number"))
    }
}

fn better_with_segment() -> Claim {
    Claim {
        measure: Box::new(|t| gain(t, "tfrc-segment-per-rtt", &[50.0])),
        at: &[50.0],
        sabotage: "half-lost-but-over-tcp",
        ..points(
            "better-with-a-segment",
            "TFRC with a floor of one segment per round trip has a higher R at 0.1 % loss than \
             without, with both codecs at 50 ms",
            Bound::above(0.0, "as for the paper's variants"),
        )
    }
}

fn still_below() -> Claim {
    Claim {
        published: Some("still significantly worse than either UDP or TCP"),
        measure: Box::new(|t| {
            let places = along(&[50.0, 100.0, 150.0, 250.0], 0.1);
            let each = UNMODIFIED.iter().flat_map(|name| {
                ["udp", "tcp"]
                    .into_iter()
                    .flat_map(|better| differences(t, &Codec::ALL, [better, *name], &places))
            });
            Measured::minimum(each)
        }),
        at: &[50.0, 100.0, 150.0, 250.0],
        sabotage: "idle-excluded",
        ..points(
            "still-below",
            "at 0.1 % loss, 50 to 250 ms, UDP and TCP have a higher R than the three variants",
            Bound::above(10.0, CLOSE),
        )
    }
}

fn sp_like_tfrc() -> Claim {
    Claim {
        published: Some("SP does not significantly improve voice quality with either codec"),
        measure: Box::new(|t| {
            let pair = ["tfrc-sp", "tfrc"];
            Measured::maximum(differences(t, &Codec::ALL, pair, &along(&SHORT, 0.1)))
        }),
        at: &SHORT,
        sabotage: "idle-excluded-for-small-packets",
        ..points(
            "sp-like-tfrc",
            "at 0.1 % loss SP is not above TFRC, at 50 to 150 ms",
            Bound::at_most(10.0, CLOSE),
        )
    }
}

fn restart_better() -> Claim {
    Claim {
        published: Some("the moderately better performance of SP+FR"),
        measure: Box::new(|t| {
            let pair = ["tfrc-sp-fr", "tfrc-sp"];
            Measured::minimum(differences(t, &Codec::ALL, pair, &along(&SHORT, 0.1)))
        }),
        at: &SHORT,
        sabotage: "no-restart",
        ..points(
            "restart-better",
            "at 0.1 % loss SP+FR is above SP, at 50 to 150 ms",
            Bound::at_least(1.0, "the paper gives no number: a point"),
        )
    }
}

fn g729_near_udp() -> Claim {
    Claim {
        published: Some(
            "a lower-bitrate codec, such as G.729, can maintain a quality over TCP that is \
             reasonably close to that of UDP",
        ),
        measure: Box::new(|t| {
            let places = along(&[50.0, 100.0, 150.0, 250.0], 0.1);
            Measured::maximum(differences(t, &[Codec::G729], ["udp", "tcp"], &places))
        }),
        at: &[50.0, 100.0, 150.0, 250.0],
        sabotage: "nagle",
        ..points(
            "g729-near-udp",
            "G.729 over TCP at 0.1 % loss is close to UDP, at 50 to 250 ms",
            Bound::at_most(10.0, CLOSE),
        )
    }
}

fn g711_beneath() -> Claim {
    Claim {
        published: Some(
            "with a higher-bandwidth codec, quality over TCP decreases quickly beneath that of the \
             lower-bandwidth codec",
        ),
        measure: Box::new(|t| {
            let each = [250.0, 400.0].map(|delay| {
                let of = |codec| at(t, codec, "tcp", (delay, 0.1));
                match (of(Codec::G729), of(Codec::G711)) {
                    (Some(g729), Some(g711)) => above(&g729, &g711),
                    _ => Measured::census(f64::NAN),
                }
            });
            Measured::minimum(each)
        }),
        at: &[250.0, 400.0],
        sabotage: "tcp-keeps-its-window",
        ..points(
            "g711-beneath-g729",
            "over TCP at 0.1 % loss G.711 has a lower R than G.729 beyond 200 ms",
            Bound::above(0.0, "the paper gives no number"),
        )
    }
}
