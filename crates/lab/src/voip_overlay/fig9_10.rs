//! Figures 9 and 10: the calls of figures 1 and 2 over the overlay (§IV-A).

use super::quality::{NO_MAJOR_ROLE, PSTN, READABLE, Statistic, at, chart, pooled};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::Figure;
use crate::plot::one_panel;
use crate::table::Table;

/// Figures 9 and 10 with their claims.
pub fn figures() -> Vec<Figure> {
    vec![fig9(), fig10()]
}

const PATHS: [(&str, &str); 2] = [("overlay", "overlay, "), ("udp", "UDP, ")];

fn fig9() -> Figure {
    Figure {
        name: "fig9",
        title: "Average PESQ with real-time recovery, compared with plain UDP",
        section: "IV-A",
        caption: "Ten streams over five links of 10 ms, the middle one of which loses in both \
               directions, codec threshold 100 ms. Whatever the burstiness, the codec sustains \
               losses of 7 to 8 % with telephone quality on average.",
        chart: one_panel(|t| {
            chart("Real-time recovery over five links: average PESQ", t, Statistic::Mean, &PATHS)
        }),
        claims: vec![
            sustained(
                "seven-percent",
                Statistic::Mean,
                7.0,
                "at 7 % loss the average, over all burstinesses, is that of the telephone network",
                "losses of 7 to 8 % are sustained with telephone quality on average",
                &[0.0, 7.0],
            ),
            sustained(
                "eight-percent",
                Statistic::Mean,
                8.0,
                "at 8 % loss, too",
                "losses of 7 to 8 % are sustained with telephone quality on average",
                &[0.0, 8.0],
            ),
            Claim {
                id: "as-one-without",
                statement: "7 % with recovery is as good as 1 % without: the averages over all \
                       burstinesses differ by no more than the precision of a plot",
                published: None,
                bound: Bound::at_least(
                    -READABLE,
                    "equal, to the 0.05 that can be read from a plot",
                ),
                unit: "PESQ better",
                measure: Box::new(|t| better(t, Statistic::Mean, 7.0, 1.0)),
                at: &[0.0, 1.0, 7.0],
                sabotage: "one-request-in-ten-unanswered",
                ..Claim::default()
            },
            whatever(
                Statistic::Mean,
                7.0,
                "at 7 % loss the averages of the four burstinesses differ little",
                "telephone quality regardless of burstiness",
                &[7.0],
            ),
        ],
    }
}

fn fig10() -> Figure {
    Figure {
        name: "fig10",
        title: "5th percentile PESQ with real-time recovery, compared with plain UDP",
        section: "IV-A",
        caption: "The worst twentieth of the same segments: telephone quality up to 3.5 % loss, and \
               burstiness plays no major role here either.",
        chart: one_panel(|t| {
            chart(
                "Real-time recovery over five links: 5th percentile PESQ",
                t,
                Statistic::P5,
                &PATHS,
            )
        }),
        claims: vec![
            sustained(
                "sustained",
                Statistic::P5,
                3.5,
                "at 3.5 % loss the 5th percentile, over all burstinesses, is that of the telephone \
                 network",
                "up to 3.5 % loss the worst twentieth has telephone quality",
                &[0.0, 3.5],
            ),
            Claim {
                id: "better-than-half-without",
                statement: "3.5 % with recovery is better than 0.5 % without: the 5th percentiles over \
                       all burstinesses",
                published: None,
                bound: Bound::above(0.0, "better"),
                unit: "PESQ better",
                measure: Box::new(|t| better(t, Statistic::P5, 3.5, 0.5)),
                at: &[0.0, 0.5, 3.5],
                sabotage: "one-request-in-two-unanswered",
                ..Claim::default()
            },
            whatever(
                Statistic::P5,
                3.5,
                "at 3.5 % loss the 5th percentiles of the four burstinesses differ little",
                "burstiness plays no major role for the worst twentieth either",
                &[3.5],
            ),
        ],
    }
}

fn sustained(
    id: &'static str,
    statistic: Statistic,
    loss: f64,
    says: &'static str,
    published: &'static str,
    at: &'static [f64],
) -> Claim {
    let sabotage = match (statistic, loss) {
        (Statistic::P5, _) => "one-request-in-two-unanswered",
        (Statistic::Mean, 8.0) => "concealment-off",
        _ => "one-request-in-ten-unanswered",
    };
    Claim {
        id,
        statement: says,
        published: Some(published),
        bound: PSTN,
        unit: "PESQ",
        measure: Box::new(move |table| pooled(table, statistic, "overlay", loss)),
        at,
        expected: match (statistic, loss) {
            (Statistic::P5, _) => Verdict::Undecided,
            (Statistic::Mean, 8.0) => Verdict::Fails,
            _ => Verdict::Holds,
        },
        sabotage,
        ..Claim::default()
    }
}

/// How much better `with` percent of loss sounds with recovery than `without` percent without: this
/// does not depend on the speech.
fn better(table: &Table, statistic: Statistic, with: f64, without: f64) -> Measured {
    let (with, without) =
        (pooled(table, statistic, "overlay", with), pooled(table, statistic, "udp", without));
    let note = format!("{:.2} against {:.2}.", with.estimate, without.estimate);
    with.minus(&without).noting(note)
}

fn whatever(
    statistic: Statistic,
    loss: f64,
    says: &'static str,
    published: &'static str,
    at_losses: &'static [f64],
) -> Claim {
    Claim {
        id: "burstiness",
        statement: says,
        published: Some(published),
        bound: NO_MAJOR_ROLE,
        unit: "PESQ apart",
        measure: Box::new(move |table| Measured::range(&at(table, statistic, "overlay", loss))),
        at: at_losses,
        expected: match statistic {
            Statistic::Mean => Verdict::Holds,
            Statistic::P5 => Verdict::Undecided,
        },
        sabotage: "one-repeat-at-a-time",
        ..Claim::default()
    }
}
