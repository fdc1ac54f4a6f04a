//! Figures 1 and 2: the effect of loss on one call over plain UDP (§II-C).

use super::quality::{A_ROLE, INTERNET, NO_MAJOR_ROLE, PSTN, Statistic, at, chart, pooled};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::Figure;
use crate::plot::one_panel;
use crate::table::Table;

/// Figures 1 and 2 with their claims.
pub fn figures() -> Vec<Figure> {
    vec![fig1(), fig2()]
}

fn fig1() -> Figure {
    Figure {
        name: "fig1",
        title: "Average PESQ by network loss, plain UDP",
        section: "II-C",
        says: "A five-minute recording as G.711 with concealment over 50 ms and 10 Mbit/s, twenty \
               times; average PESQ of segments of 12 s. Up to 1 % loss the codec has a PESQ above \
               4.0, the quality of the telephone network. Burstiness plays no major role until \
               loss is high, and quality therefore low.",
        chart: one_panel(|t| {
            chart(
                "Network loss: average PESQ, one call over UDP",
                t,
                Statistic::Mean,
                &[("udp", "")],
            )
        }),
        claims: vec![
            Claim {
                id: "one-percent",
                says: "at 1 % loss the average, over all burstinesses, is that of the telephone \
                       network",
                published: Some("up to 1 % loss the average is above 4.0"),
                bound: PSTN,
                unit: "PESQ",
                measure: Box::new(|t| pooled(t, Statistic::Mean, "udp", 1.0)),
                at: &[0.0, 1.0],
                sabotage: "udp-loses-twice",
                ..Claim::default()
            },
            Claim {
                id: "burstiness-low",
                says: "at 0.5 and 1 % loss the averages of the four burstinesses differ little",
                published: Some("burstiness plays no major role until loss is relatively high"),
                bound: NO_MAJOR_ROLE,
                unit: "PESQ apart",
                measure: Box::new(|t| {
                    let of = |loss| Measured::range(&at(t, Statistic::Mean, "udp", loss));
                    Measured::maximum([of(0.5), of(1.0)])
                }),
                at: &[0.5, 1.0],
                sabotage: "bursts-on-top",
                ..Claim::default()
            },
            Claim {
                id: "burstiness-high",
                says: "at 10 % loss the average at 75 % burstiness is below that of uniform loss",
                published: Some("burstiness plays a role once loss is relatively high"),
                bound: A_ROLE,
                unit: "PESQ below",
                measure: Box::new(|t| below_uniform(&at(t, Statistic::Mean, "udp", 10.0))),
                at: &[10.0],
                sabotage: "bursts-the-other-way-round",
                ..Claim::default()
            },
        ],
    }
}

/// Quality at 75 % burstiness below that of uniform loss.
fn below_uniform(values: &[Measured]) -> Measured {
    match values {
        [uniform, .., most] => uniform.minus(most),
        _ => Measured::census(f64::NAN),
    }
}

fn fig2() -> Figure {
    Figure {
        name: "fig2",
        title: "5th percentile PESQ by network loss, plain UDP",
        section: "II-C",
        says: "The worst twentieth of the same segments. For these, burstiness matters, and even \
               at 0.5 % loss the codec is below telephone quality: 3.69 at 75 % burstiness.",
        chart: one_panel(|t| {
            let title = "Network loss: 5th percentile PESQ, one call over UDP";
            chart(title, t, Statistic::P5, &[("udp", "")])
        }),
        claims: vec![
            Claim {
                id: "half-percent",
                says: "0.5 % loss lowers the 5th percentile, over all burstinesses, from above 4.0 \
                       to less",
                published: Some("even at 0.5 % loss it is below 4.0"),
                bound: Bound::below(4.0, "the paper's number"),
                unit: "PESQ",
                measure: Box::new(brought_below),
                at: &[0.0, 0.5],
                sabotage: "udp-loses-a-fifth",
                ..Claim::default()
            },
            Claim {
                id: "3.69",
                says: "at 0.5 % loss and 75 % burstiness it is 3.69",
                published: Some("3.69 at 0.5 % loss and 75 % burstiness"),
                bound: Bound::within(
                    3.64,
                    3.74,
                    "the paper's number, within the 0.05 to which a printed plot can be read",
                ),
                unit: "PESQ",
                measure: Box::new(|t| {
                    let nothing = || Measured::census(f64::NAN);
                    at(t, Statistic::P5, "udp", 0.5).pop().unwrap_or_else(nothing)
                }),
                at: &[0.5],
                expected: Verdict::Undecided,
                sabotage: "udp-loses-a-fifth",
                ..Claim::default()
            },
            Claim {
                id: "burstiness",
                says: "at 0.5 % loss the 5th percentile at 75 % burstiness is below that of uniform \
                       loss",
                published: Some("for the streams hit hardest burstiness has a significant impact"),
                bound: A_ROLE,
                unit: "PESQ below",
                measure: Box::new(|t| below_uniform(&at(t, Statistic::P5, "udp", 0.5))),
                at: &[0.5],
                sabotage: "bursts-the-other-way-round",
                ..Claim::default()
            },
            internet(),
        ],
    }
}

fn internet() -> Claim {
    Claim {
        id: "internet",
        says: "at the loss of the Internet as Andersen et al. measured it, 0.42 % on average with \
               72 % burstiness, the 5th percentile is below that of the telephone network",
        published: Some(
            "at 0.42 % loss and 72 % burstiness, the Internet's averages, new solutions are \
             required to compete with the telephone network",
        ),
        bound: Bound::below(4.0, "the quality of the telephone network"),
        unit: "PESQ",
        measure: Box::new(|t| {
            let of = |path| pooled(t, Statistic::P5, path, INTERNET.0);
            let (without, with) = (of("udp"), of("overlay"));
            let note = format!("Over the overlay, as in figure 10, {:.2}.", with.estimate);
            without.noting(note)
        }),
        at: &[INTERNET.0],
        sabotage: "recovered",
        ..Claim::default()
    }
}

/// The 5th percentile at 0.5 % loss. Speech that is below 4.0 without any loss can't confirm the
/// claim.
fn brought_below(table: &Table) -> Measured {
    let of = |loss| pooled(table, Statistic::P5, "udp", loss);
    let (without, with) = (of(0.0), of(0.5));
    if without.estimate > 4.0 {
        return with;
    }
    let note = "This speech is below 4.0 without any loss.";
    Measured { interval: (f64::NEG_INFINITY, f64::INFINITY), ..with }.noting(note)
}
