//! Figures 9 and 10: the calls of figures 1 and 2 over the overlay (§IV-A).

use super::fig1_2::OTHER_SPEECH;
use super::quality::{Statistic, apart, at, chart, note};
use crate::experiment::{Claim, Figure, Verdict, smallest};
use crate::table::Table;

/// Both figures.
pub fn figures() -> Vec<Figure> {
    vec![fig9(), fig10()]
}

const PATHS: [(&str, &str); 2] = [("overlay", "overlay, "), ("udp", "UDP, ")];

fn fig9() -> Figure {
    Figure {
        name: "fig9",
        title: "Average PESQ with real-time recovery, against plain UDP",
        section: "IV-A",
        says: "Ten streams over five links of 10 ms, the middle one losing in both directions, \
               codec threshold 100 ms. Whatever the burstiness, the codec sustains losses of 7 to \
               8 % with telephone quality on average.",
        chart: Box::new(|t| {
            chart("Real-time recovery over five links: average PESQ", t, Statistic::Mean, &PATHS)
        }),
        claims: vec![
            sustained(
                Statistic::Mean,
                7.0,
                "the average is above 4.0 at 7 % loss, at the worst of the burstinesses",
                &[0.0, 7.0],
            ),
            as_good_as(
                Statistic::Mean,
                (7.0, 1.0),
                "7 % with recovery is about as good as 1 % without: both are said to be just above \
                 4.0; the mean difference over the burstinesses is at least −0.1",
                &[1.0, 7.0],
            ),
            whatever(
                Statistic::Mean,
                7.0,
                "burstiness plays no major role: at 7 % the intervals of the four averages are at most 0.1 apart",
                &[7.0],
            ),
        ],
    }
}

fn fig10() -> Figure {
    Figure {
        name: "fig10",
        title: "5th percentile PESQ with real-time recovery, against plain UDP",
        section: "IV-A",
        says: "The worst twentieth of the same segments: telephone quality up to 3.5 % loss, and \
               burstiness plays no major role here either.",
        chart: Box::new(|t| {
            chart(
                "Real-time recovery over five links: 5th percentile PESQ",
                t,
                Statistic::P5,
                &PATHS,
            )
        }),
        claims: vec![
            sustained(
                Statistic::P5,
                3.5,
                "the 5th percentile is above 4.0 at 3.5 % loss, at the worst of the burstinesses",
                &[0.0, 3.5],
            ),
            as_good_as(
                Statistic::P5,
                (3.5, 0.5),
                "3.5 % with recovery is better than 0.5 % without: 4.0 against less; the \
                 mean difference over the burstinesses is at least −0.1",
                &[0.5, 3.5],
            ),
            whatever(
                Statistic::P5,
                3.5,
                "burstiness plays no major role: at 3.5 % the intervals of the four percentiles are at most 0.1 apart",
                &[3.5],
            ),
        ],
    }
}

fn worst(values: &[(f64, (f64, f64))]) -> f64 {
    smallest(values.iter().map(|v| v.0))
}

fn sustained(
    statistic: Statistic,
    loss: f64,
    says: &'static str,
    at_losses: &'static [f64],
) -> Claim {
    Claim {
        id: "sustained",
        says,
        published: 4.0,
        unit: "PESQ, at least",
        decimals: 2,
        judge: Box::new(move |table| {
            let measured = worst(&at(table, statistic, "overlay", loss));
            let note = note(table, statistic, "overlay", loss);
            Verdict { measured, holds: measured >= 4.0, note }
        }),
        at: at_losses,
        expected: false,
        why: OTHER_SPEECH,
        sabotage: "nacks-off",
    }
}

/// A claim that does not depend on the speech.
fn as_good_as(
    statistic: Statistic,
    (with, without): (f64, f64),
    says: &'static str,
    at_losses: &'static [f64],
) -> Claim {
    let difference = move |table: &Table| {
        let (with, without) =
            (at(table, statistic, "overlay", with), at(table, statistic, "udp", without));
        let mean = |v: &[(f64, (f64, f64))]| v.iter().map(|v| v.0).sum::<f64>() / v.len() as f64;
        mean(&with) - mean(&without)
    };
    Claim {
        id: "as-good-as",
        says,
        published: -0.1,
        unit: "PESQ, at least",
        decimals: 2,
        judge: Box::new(move |table| {
            let measured = difference(table);
            Verdict::new(measured, measured >= -0.1)
        }),
        at: at_losses,
        expected: true,
        why: "",
        sabotage: "nacks-off",
    }
}

fn whatever(
    statistic: Statistic,
    loss: f64,
    says: &'static str,
    at_losses: &'static [f64],
) -> Claim {
    Claim {
        id: "burstiness",
        says,
        published: 0.1,
        unit: "PESQ apart, at most",
        decimals: 2,
        judge: Box::new(move |table| {
            let measured = apart(&at(table, statistic, "overlay", loss));
            Verdict::new(measured, measured <= 0.1)
        }),
        at: at_losses,
        expected: true,
        why: "",
        sabotage: "one-repeat-at-a-time",
    }
}
