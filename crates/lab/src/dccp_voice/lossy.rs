//! Figure 4: calls by loss, over the variants of TFRC that were specified at the time.

use super::call::Codec;
use super::charts::{Along, at, differences, draw, one};
use super::fig1_2::{ALIKE, CLOSE, points};
use super::transport::{PAPERS, UNMODIFIED};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Figure;
use crate::table::Table;

/// Losses at 50 ms, in percent, that every size measures, and those well below 10 %.
pub const LOSSES: [f64; 4] = [0.01, 1.0, 3.0, 10.0];
const SMALL: [f64; 3] = [0.01, 1.0, 3.0];

/// Figure 4, on the unmodified variants by loss.
pub fn figures() -> Vec<Figure> {
    vec![fig4()]
}

/// These losses, in percent, at the figures' 50 ms.
pub fn at_50_ms(losses: &[f64]) -> Vec<(f64, f64)> {
    losses.iter().map(|loss| (50.0, *loss)).collect()
}

fn fig4() -> Figure {
    Figure {
        name: "fig4",
        title: "Voice quality, by loss, at 50 ms",
        section: "IV-C",
        caption: "The same at a one-way delay of 50 ms, with 0.01 to 10 % of the packets lost in both \
               directions. The data also include the variant in which only the forward direction \
               loses.",
        chart: draw("One-way delay of 50 ms", Along::Loss, &PAPERS[..5]),
        claims: vec![
            below_tcp(),
            poor_at_10(),
            overtakes(),
            restart_best(),
            far_below(),
            loss_weighs_more(),
            modern_tcp(),
        ],
    }
}

fn below_tcp() -> Claim {
    Claim {
        published: Some("all TFRC variants perform worse than TCP in almost all cases"),
        measure: Box::new(|t| {
            let each = UNMODIFIED
                .iter()
                .flat_map(|name| differences(t, &Codec::ALL, ["tcp", *name], &at_50_ms(&SMALL)));
            Measured::minimum(each)
        }),
        at: &SMALL,
        sabotage: "idle-excluded",
        ..points(
            "below-tcp",
            "at up to 3 % loss, TFRC, SP and SP+FR have a lower R than TCP",
            Bound::above(3.0, ALIKE),
        )
    }
}

fn poor_at_10() -> Claim {
    Claim {
        published: Some("when loss rates approach 10 %, voice quality is still poor (R ≤ 50)"),
        measure: Box::new(|t| {
            let each = UNMODIFIED
                .iter()
                .flat_map(|name| Codec::ALL.iter().map(|codec| one(t, *codec, name, (50.0, 10.0))));
            Measured::maximum(each)
        }),
        at: &[10.0],
        sabotage: "idle-excluded",
        ..points(
            "poor-at-10",
            "at 10 % loss TFRC, SP and SP+FR have R of at most 50",
            Bound::at_most(50.0, "the paper's 50"),
        )
    }
}

fn overtakes() -> Claim {
    Claim {
        published: Some("TFRC only starts to outperform TCP when loss rates approach 10 %"),
        measure: Box::new(|t| {
            let each = UNMODIFIED
                .iter()
                .flat_map(|name| differences(t, &Codec::ALL, [*name, "tcp"], &[(50.0, 10.0)]));
            Measured::maximum(each)
        }),
        at: &[10.0],
        sabotage: "half-lost-but-over-tcp",
        ..points(
            "overtakes",
            "at 10 % loss some variant has a higher R than TCP",
            Bound::above(0.0, "the paper gives no number"),
        )
    }
}

fn restart_best() -> Claim {
    Claim {
        published: Some("SP+FR is the best TFRC variant"),
        measure: Box::new(|t| {
            let each = ["tfrc", "tfrc-sp"].into_iter().flat_map(|other| {
                differences(t, &Codec::ALL, ["tfrc-sp-fr", other], &at_50_ms(&[1.0, 3.0, 10.0]))
            });
            Measured::minimum(each)
        }),
        at: &[1.0, 3.0, 10.0],
        sabotage: "no-restart",
        ..points(
            "restart-best",
            "at 1 to 10 % loss SP+FR has a higher R than TFRC and SP",
            Bound::above(0.0, "the paper gives no number"),
        )
    }
}

fn far_below() -> Claim {
    Claim {
        published: Some(
            "voice quality of all TFRC variants is significantly below those of UDP and TCP, even at \
             a loss rate of 0.01 %",
        ),
        measure: Box::new(|t| {
            let each = UNMODIFIED.iter().flat_map(|name| {
                let by = |better| differences(t, &Codec::ALL, [better, *name], &at_50_ms(&[0.01]));
                ["udp", "tcp"].into_iter().flat_map(by)
            });
            Measured::minimum(each)
        }),
        at: &[0.01],
        sabotage: "idle-excluded",
        ..points(
            "far-below",
            "at 0.01 % loss, R of TFRC, SP and SP+FR is 10 points below that of UDP and TCP",
            Bound::above(10.0, CLOSE),
        )
    }
}

/// How much more of R a variant of TFRC loses to missed packets than TCP does to the longer playout
/// that its retransmissions need. Both are means over the runs.
fn by_loss_less_by_delay(t: &Table, codec: Codec, name: &str, loss: f64) -> Measured {
    let of = |name: &str, column| {
        at(t, codec, name, (50.0, loss)).map_or(f64::NAN, |row| row.number(column))
    };
    let by_loss = of(name, "ie") - codec.coefficients().gamma1;
    let by_playout = of("tcp", "id") - of("udp", "id");
    Measured::census(by_loss - by_playout)
}

fn loss_weighs_more() -> Claim {
    Claim {
        published: Some(
            "with a 50 ms path, impairment due to loss may have a greater impact than that due to \
             playout delay; additional experiments are needed to validate this hypothesis",
        ),
        measure: Box::new(|t| {
            let each = UNMODIFIED.iter().flat_map(|name| {
                Codec::ALL.iter().flat_map(|codec| {
                    SMALL.iter().map(|loss| by_loss_less_by_delay(t, *codec, name, *loss))
                })
            });
            Measured::minimum(each)
        }),
        at: &SMALL,
        sabotage: "idle-excluded",
        ..points(
            "loss-weighs-more",
            "at up to 3 % loss, TFRC, SP and SP+FR lose more of R to missed packets than TCP loses \
             to the delay that its retransmissions add to the playout",
            Bound::above(0.0, "the paper gives no number"),
        )
    }
}

fn modern_tcp() -> Claim {
    Claim {
        published: Some(
            "a modern TCP can sustain voice calls at similar or even better quality, at least in \
             the scenarios of the paper",
        ),
        measure: Box::new(|t| {
            let pair = ["tcp-linux-6", "tfrc-sp-fr-md"];
            Measured::minimum(differences(t, &Codec::ALL, pair, &at_50_ms(&SMALL)))
        }),
        at: &SMALL,
        sabotage: "nagle",
        ..points(
            "modern-tcp",
            "at 50 ms and up to 3 % loss, Linux's TCP (RACK-TLP, proportional rate reduction) has \
             at least the R of SP+FR+MD",
            Bound::at_least(-3.0, ALIKE),
        )
    }
}
