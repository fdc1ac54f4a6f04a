//! The paper's sentences about PESQ with other speech: with a telephone's filter and without, 22
//! readers and five languages. A score depends on the speakers; the validity of a sentence should
//! not.

use super::quality::{self, Path, QualityPoint, READABLE};
use super::{PAPER, burst_label};
use crate::chain::{Bursts, Policy};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, Sabotage, Size, fnv1a};
use crate::plot::{Axis, Chart, Mark, Marker, Series, Style, one_panel};
use crate::speech::{Filter, Variant};
use crate::table::{Cell, Column, Record, Table};

/// Voices and filter, then columns of [`quality::COLUMNS`].
const COLUMNS: &[Column] = &[
    Column::text("voices").parameter(),
    Column::text("filter").parameter(),
    Column::text("path").parameter(),
    Column::text("burst_pct").parameter(),
    Column::number("loss_pct", 2).parameter(),
    Column::number("segments", 0).parameter(),
    Column::number("missed_pct", 4),
    Column::number("pesq_mean", 3),
    Column::number("pesq_mean_low", 3),
    Column::number("pesq_mean_high", 3),
    Column::number("pesq_p5", 3),
    Column::number("pesq_p5_low", 3),
    Column::number("pesq_p5_high", 3),
    Column::number("mos_lqo_mean", 2),
    Column::number("mos_lqo_p5", 2),
    Column::text("paper_says"),
    Column::text("verdict"),
];

/// A sentence of the paper about one point.
struct Sentence {
    figure: &'static str,
    path: &'static str,
    loss_pct: f64,
    /// The burstiness that it is about; `None` for any.
    burst_pct: Option<&'static str>,
    /// Name of the column, without `_low` and `_high`.
    statistic: &'static str,
    /// The score that the published sentence names.
    score: f64,
    /// Whether the sentence says "at least", or exactly this score.
    at_least: bool,
}

const SENTENCES: [Sentence; 4] = {
    const FIG1: Sentence = Sentence {
        figure: "fig1",
        path: "udp",
        loss_pct: 1.0,
        burst_pct: None,
        statistic: "pesq_mean",
        score: 4.0,
        at_least: true,
    };
    const P5: Sentence = Sentence { statistic: "pesq_p5", ..FIG1 };
    [
        FIG1,
        Sentence {
            figure: "fig2",
            loss_pct: 0.5,
            burst_pct: Some("75"),
            score: 3.69,
            at_least: false,
            ..P5
        },
        Sentence { figure: "fig9", path: "overlay", loss_pct: 7.0, ..FIG1 },
        Sentence { figure: "fig10", path: "overlay", loss_pct: 3.5, ..P5 },
    ]
};

impl Sentence {
    fn is_about(&self, row: &Record<'_>) -> bool {
        row.is("path", self.path)
            && row.number("loss_pct") == self.loss_pct
            && self.burst_pct.is_none_or(|b| row.is("burst_pct", b))
    }

    fn text(&self) -> String {
        let statistic = if self.statistic == "pesq_p5" { "5th percentile" } else { "mean" };
        let than = if self.at_least { " at least" } else { "" };
        format!("{}: {statistic}{than} {:.2}", self.figure, self.score)
    }

    /// Verdict by the 95 % interval, and the precision of a printed plot.
    fn verdict(&self, row: &Record<'_>) -> &'static str {
        let [low, high] =
            ["low", "high"].map(|end| row.number(&format!("{}_{end}", self.statistic)));
        let rounded = |score: f64| libm::round(100.0 * score) / 100.0;
        let (least, most) = (rounded(self.score - READABLE), rounded(self.score + READABLE));
        let bound = match self.at_least {
            true => Bound::at_least(least, ""),
            false => Bound::within(least, most, ""),
        };
        bound.judge((low, high)).name()
    }
}

/// The experiment that judges the paper's sentences with other speech.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "speech",
        revision: 1,
        columns: COLUMNS,
        needs_speech: true,
        points: Box::new(points),
        figures: vec![figure()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let worst = Bursts::PAPER[3];
    let overlay = || Path::Overlay(Policy::new("overlay", |_| {}));
    // As many segments as figures 1, 2, 9 and 10 have, which gives their numbers for their speech.
    let (one, ten) = (size.pick(1, 50, 500), size.pick(1, 5, 50));
    let mut points = Vec::new();
    for variant in Variant::ALL {
        let mut add = |path: Path, loss_pct: f64, bursts: Bursts| {
            let (calls, segments) = if matches!(path, Path::Udp) { (1, one) } else { (10, ten) };
            let bursts = vec![bursts];
            let (really, concealed) = (None, true);
            let point = QualityPoint { path, calls, segments, bursts, loss_pct, really, concealed };
            let played = match variant.filter {
                Filter::Irs if sabotage.is("unfiltered") => {
                    Variant { filter: Filter::None, ..variant }
                }
                _ => variant,
            };
            points.push(heard(variant, played, point.into_point(&[FIGURE])));
        };
        add(Path::Udp, 0.0, worst);
        if size == Size::Tiny {
            continue;
        }
        add(Path::Udp, 0.5, worst);
        for bursts in [Bursts::PAPER[0], worst] {
            add(Path::Udp, 1.0, bursts);
            add(overlay(), 3.5, bursts);
            add(overlay(), 7.0, bursts);
        }
    }
    points
}

/// `point` with this speech (or with `played` in its place), and the losses of the same point of
/// the figures.
fn heard(variant: Variant, played: Variant, point: Point) -> Point {
    let (name, measure) = (point.key, point.measure);
    let key = format!("{variant}-{name}");
    let own = fnv1a(name.bytes()) ^ fnv1a(key.bytes());
    let measure = Box::new(move |inputs: &Inputs<'_>| {
        let speech = inputs.speech.expect("the experiment says that it needs speech");
        let speech = speech.variant(played)?;
        let inputs = Inputs { seed: inputs.seed ^ own, speech: Some(&speech) };
        Ok(measure(&inputs)?.into_iter().map(|row| beside(variant, row)).collect::<Cells>())
    });
    Point { key, measure, ..point }
}

/// A row of [`COLUMNS`] from one of [`quality::COLUMNS`].
fn beside(variant: Variant, row: Vec<Cell>) -> Vec<Cell> {
    let printed = crate::table::print(quality::COLUMNS, row.clone());
    let table = Table { columns: quality::COLUMNS, rows: vec![printed] };
    let record = table.iter().next().expect("the row");
    let sentence = SENTENCES.iter().find(|s| s.is_about(&record));
    let cell = |column: &Column| {
        let at = quality::COLUMNS.iter().position(|c| c.name == column.name);
        match (column.name, at) {
            (_, Some(at)) => row[at].clone(),
            ("voices", _) => variant.voices.name().into(),
            ("filter", _) => variant.filter.name().into(),
            ("paper_says", _) => sentence.map_or(String::new(), Sentence::text).into(),
            _ => sentence.map_or("", |s| s.verdict(&record)).into(),
        }
    };
    COLUMNS.iter().map(cell).collect()
}

const FIGURE: &str = "speech";

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "The paper's statements on PESQ, with other speech",
        section: "II-C and IV-A, beyond",
        caption: "Not in the paper, whose recording is unknown. Verdicts on its sentences about PESQ \
               with 22 readers and with five languages, through the send filter of a telephone \
               (the modified IRS of ITU-T P.830, at -26 dBov) and without. The figures use the \
               readers, filtered. A verdict is by the 95 % interval, and 0.05 for the precision of \
               a printed plot.",
        chart: one_panel(chart),
        claims: vec![without_loss()],
    }
}

/// The claim that speech without loss is above the paper's 4.0.
fn without_loss() -> Claim {
    Claim {
        id: "without-loss",
        statement: "through the filter and without loss, the 5th percentile is above 4.0, for both sets \
               of voices",
        published: None,
        bound: Bound::at_least(4.0, "the paper's percentiles of 4.0 with loss presuppose it"),
        unit: "PESQ",
        // Without loss, there is no sampling error.
        measure: Box::new(|table| {
            let there = |r: &Record<'_>| r.is("filter", "irs") && r.number("loss_pct") == 0.0;
            let p5 = |r: Record<'_>| Measured::census(r.number("pesq_p5"));
            Measured::minimum(table.iter().filter(there).map(p5))
        }),
        at: &[0.0],
        sabotage: "unfiltered",
        ..Claim::default()
    }
}

fn chart(table: &Table) -> Chart {
    let mut series = Vec::new();
    for (n, variant) in Variant::ALL.into_iter().enumerate() {
        for (path, what) in [("udp", "UDP"), ("overlay", "overlay")] {
            let here = |r: &Record<'_>| {
                r.is("voices", variant.voices.name())
                    && r.is("filter", variant.filter.name())
                    && r.is("path", path)
                    && r.is("burst_pct", "75")
            };
            let mark = |r: Record<'_>| Mark {
                x: r.number("loss_pct"),
                y: r.number("pesq_mean"),
                interval: Some((r.number("pesq_mean_low"), r.number("pesq_mean_high"))),
            };
            let points: Vec<Mark> = table.iter().filter(here).map(mark).collect();
            let ring = Style { marker: Marker::Ring, ..Style::nth(n) };
            let style = if path == "udp" { Style::nth(n) } else { ring };
            if !points.is_empty() {
                series.push(Series { name: format!("{variant}, {what}"), style, points });
            }
        }
    }
    let line = [0.0, 100.0].map(|x| Mark { x, y: 4.0, interval: None }).to_vec();
    series.push(Series {
        name: "PSTN quality: 4.0".into(),
        style: Style::SECOND_CURVE,
        points: line,
    });
    let losses = table.iter().map(|r| r.number("loss_pct"));
    Chart {
        title: format!("Average PESQ by voices and filter, {}", burst_label("75")),
        x: Axis::fitting("loss rate of the network (%)", 0.0, losses),
        y: Axis::linear("average PESQ of segments (raw, P.862)", (3.5, 4.5), 0.25),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_decides() {
        let verdict = |loss: f64, burst: &str, mean: [f64; 2], p5: [f64; 2]| {
            let number = |n: f64| Cell::Number(n);
            let row = quality::COLUMNS.iter().map(|c| match c.name {
                "path" => "udp".into(),
                "burst_pct" => burst.into(),
                "chain" => "packet".into(),
                "loss_pct" => number(loss),
                "pesq_mean_low" => number(mean[0]),
                "pesq_mean_high" => number(mean[1]),
                "pesq_p5_low" => number(p5[0]),
                "pesq_p5_high" => number(p5[1]),
                _ => number(1.0),
            });
            match beside(Variant::default(), row.collect()).pop() {
                Some(Cell::Text(verdict)) => verdict,
                other => panic!("{other:?}"),
            }
        };
        let any = [0.0, 4.5];
        assert_eq!(verdict(1.0, "25", [3.95, 4.2], any), "holds");
        assert_eq!(verdict(1.0, "25", [3.94, 4.2], any), "undecided");
        assert_eq!(verdict(1.0, "25", [3.90, 3.94], any), "fails");
        assert_eq!(verdict(0.5, "75", any, [3.64, 3.74]), "holds");
        assert_eq!(verdict(0.5, "75", any, [3.63, 3.70]), "undecided");
        assert_eq!(verdict(0.5, "75", any, [3.75, 3.80]), "fails");
        assert_eq!(verdict(0.5, "25", any, any), "", "the paper says nothing of it");
    }
}
