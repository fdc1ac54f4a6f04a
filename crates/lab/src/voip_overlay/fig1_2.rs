//! Figures 1 and 2: what loss does to one call over plain UDP (§II-C).

use super::quality::{Statistic, apart, at, chart, note};
use crate::experiment::{Claim, Figure, Verdict, largest, smallest};

/// Both figures.
pub fn figures() -> Vec<Figure> {
    vec![fig1(), fig2()]
}

/// Why absolute scores differ from the paper's.
pub const OTHER_SPEECH: &str = "The paper's recording is unknown and its PESQ is another program; on \
     our speech G.711 has less to lose before it falls below 4.0.";

fn fig1() -> Figure {
    Figure {
        name: "fig1",
        title: "Average PESQ against network loss, plain UDP",
        section: "II-C",
        says: "A five-minute recording as G.711 with concealment over 50 ms and 10 Mbit/s, twenty \
               times; average PESQ of segments of 12 s. The codec takes up to 1 % loss with a PESQ \
               above 4.0, the quality of the telephone network. Burstiness plays no major role \
               until loss, and with it quality, is bad anyway.",
        chart: Box::new(|t| {
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
                says: "the average is above 4.0 at 1 % loss, at the worst of the burstinesses",
                published: 4.0,
                unit: "PESQ, at least",
                decimals: 2,
                judge: Box::new(|table| {
                    let values = at(table, Statistic::Mean, "udp", 1.0);
                    let worst = smallest(values.iter().map(|v| v.0));
                    let note = note(table, Statistic::Mean, "udp", 1.0);
                    Verdict { measured: worst, holds: worst >= 4.0, note }
                }),
                at: &[0.0, 1.0],
                expected: false,
                why: OTHER_SPEECH,
                sabotage: "udp-loses-thrice",
            },
            Claim {
                id: "burstiness",
                says: "burstiness matters little to the average at low loss: at 0.5 and 1 % the \
                       intervals of the four are at most 0.1 apart",
                published: 0.1,
                unit: "PESQ apart, at most",
                decimals: 2,
                judge: Box::new(|table| {
                    let at = |loss| apart(&at(table, Statistic::Mean, "udp", loss));
                    let worst = at(0.5).max(at(1.0));
                    Verdict::new(worst, worst <= 0.1)
                }),
                at: &[0.5, 1.0],
                expected: true,
                why: "",
                sabotage: "bursts-on-top",
            },
        ],
    }
}

fn fig2() -> Figure {
    Figure {
        name: "fig2",
        title: "5th percentile PESQ against network loss, plain UDP",
        section: "II-C",
        says: "The worst twentieth of the same segments. For these, burstiness matters, and even \
               at 0.5 % loss the codec is below telephone quality: 3.69 at 75 % burstiness.",
        chart: Box::new(|t| {
            let title = "Network loss: 5th percentile PESQ, one call over UDP";
            chart(title, t, Statistic::P5, &[("udp", "")])
        }),
        claims: vec![
            Claim {
                id: "half-percent",
                says: "0.5 % loss brings the 5th percentile below 4.0, even at the best of the \
                       burstinesses",
                published: 4.0,
                unit: "PESQ, less than",
                decimals: 2,
                judge: Box::new(|table| {
                    let values = at(table, Statistic::P5, "udp", 0.5);
                    let best = largest(values.iter().map(|v| v.0));
                    // On speech that is below 4.0 anyway, loss must still show.
                    let without = at(table, Statistic::P5, "udp", 0.0);
                    let holds = best < 4.0 && without.iter().all(|v| best < v.0);
                    let note = note(table, Statistic::P5, "udp", 0.5);
                    Verdict { measured: best, holds, note }
                }),
                at: &[0.0, 0.5],
                expected: true,
                why: "",
                sabotage: "udp-loses-nothing",
            },
            Claim {
                id: "3.69",
                says: "at 0.5 % loss and 75 % burstiness it is 3.69 (to 0.1)",
                published: 3.69,
                unit: "PESQ",
                decimals: 2,
                judge: Box::new(|table| {
                    let values = at(table, Statistic::P5, "udp", 0.5);
                    let (worst, (low, high)) =
                        values.last().copied().unwrap_or((f64::NAN, (f64::NAN, f64::NAN)));
                    let note = format!("95 % interval {low:.2} to {high:.2}.");
                    Verdict { measured: worst, holds: (worst - 3.69).abs() <= 0.1, note }
                }),
                at: &[0.5],
                expected: false,
                why: "On our speech it is 3.51 at full size (95 % interval 3.42 to 3.59), 0.41 below \
                      what this speech has without loss.",
                sabotage: "udp-loses-thrice",
            },
        ],
    }
}
