//! Voice quality by loss, over plain UDP and over the overlay: the common part of figures 1, 2, 9
//! and 10.

use super::{PAPER, burst_label, fig1_2, fig9_10, ten_ms, unanswered};
use crate::chain::{self, Bursts, Chain, Policy, Run, SECONDS_PER_HOP};
use crate::claim::{Bound, Measured, minimum};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style};
use crate::speech::{PACKETS, Speech};
use crate::table::{Cell, Column, Record, Table};
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::stats::{Mean, quantile, quantile_interval};
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::quality::pesq::Score;

/// A row has one path, one loss rate and one burstiness.
pub const COLUMNS: &[Column] = &[
    Column::text("path").parameter(),
    Column::number("calls", 0).parameter(),
    Column::text("chain").parameter(),
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
    Column::number("overhead_pct", 3),
];

/// The loss rates of figures 1, 2, 9 and 10, in percent.
pub const LOSSES: [f64; 13] = [0.0, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// The Internet's average by Andersen et al. (§II-B), as loss in percent and burstiness.
pub const INTERNET: (f64, Bursts) = (0.42, Bursts { burstiness: Some(0.72), spacing: None });
/// Losses that the claims read: PESQ takes most of a quick run's time.
const QUICK_UDP: [f64; 4] = [0.0, 0.5, 1.0, 10.0];
const QUICK_OVERLAY: [f64; 4] = [0.0, 3.5, 7.0, 8.0];

/// Approximate time to score a segment, in seconds.
const PESQ_SECONDS: f64 = 0.07;

/// Path of a call.
#[derive(Clone)]
pub enum Path {
    /// 50 ms and 10 Mbit/s, without recovery, for one call (§II-C).
    Udp,
    /// Five links of 10 ms with this recovery, the middle one of which loses packets in both
    /// directions (§IV-A, figure 8).
    Overlay(Policy),
}

/// One point of such a figure; every figure of voice quality is built from these.
#[derive(Clone)]
pub struct QualityPoint {
    /// Path of the calls.
    pub path: Path,
    /// Number of simultaneous calls. Plain UDP has one, as loss is per stream there.
    pub calls: u32,
    /// Number of 12 s segments that each call plays.
    pub segments: usize,
    /// Correlation between successive losses. Without loss all are the same, and one measurement
    /// represents them.
    pub bursts: Vec<Bursts>,
    /// Share of packets that the lossy link loses, in percent.
    pub loss_pct: f64,
    /// The loss process to use instead in a sabotage.
    pub really: Option<fn(Bursts, f64) -> Loss>,
    /// Whether missed packets are concealed by Appendix I, or replaced by silence.
    pub concealed: bool,
}

impl QualityPoint {
    /// Converts this measurement to a point of an experiment, shown in `figures`.
    pub fn into_point(self, figures: &[&'static str]) -> Point {
        let QualityPoint { calls, loss_pct, segments, .. } = self;
        let path = self.name();
        let bursts = self.bursts[0];
        let which = if loss_pct == 0.0 {
            String::new()
        } else {
            format!("-{}{}", bursts.chain_name(), bursts.name())
        };
        // PESQ takes far longer than the network, if any packet is missed.
        let (scored, hops) = match self.path {
            Path::Udp => (1.0 - libm::exp(-6.0 * loss_pct), 1.0),
            Path::Overlay(_) => (1.0 - libm::exp(-0.12 * loss_pct * loss_pct), 5.0),
        };
        let a_segment = PESQ_SECONDS * scored + hops * PACKETS as f64 * SECONDS_PER_HOP;
        Point {
            key: format!("{path}-calls{calls}{which}-loss{loss_pct}"),
            x: loss_pct,
            figures: figures.to_vec(),
            weight: f64::from(calls) * segments as f64 * a_segment,
            measure: Box::new(move |inputs| self.measure(inputs)),
        }
    }

    /// Name of the path: `udp`, or that of the policy.
    fn name(&self) -> &'static str {
        match &self.path {
            Path::Udp => "udp",
            Path::Overlay(policy) => policy.name,
        }
    }

    fn measure(&self, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
        let speech = inputs.speech.expect("the experiment says that it needs speech");
        let bursts = self.bursts[0];
        let normal = |bursts: Bursts, p| bursts.losing(p);
        let loss = self.really.unwrap_or(normal)(bursts, self.loss_pct / 100.0);
        let packets = (self.segments * PACKETS) as u64;
        let (run, overhead) = match &self.path {
            Path::Udp => {
                let model = LinkModel {
                    delay: Duration::from_millis(50),
                    rate: Some(Bitrate::from_bps(10_000_000)),
                    loss,
                    ..LinkModel::default()
                };
                (chain::udp(model, packets, inputs.seed)?, 0.0)
            }
            Path::Overlay(policy) => {
                let links = (0..5).map(|k| ten_ms(if k == 2 { loss.clone() } else { Loss::None }));
                let policy = policy.clone();
                let chain = Chain { links: links.collect(), policy, calls: self.calls, packets };
                let run = chain.run(inputs.seed)?;
                let overhead = run.bytes() as f64 / chain.undisturbed_bytes()? - 1.0;
                (run, overhead)
            }
        };
        let heard = Heard::of(&run, self.calls, speech, self.concealed)?;
        let row = |b: &Bursts| self.row(*b, &heard, overhead);
        Ok(if self.loss_pct == 0.0 {
            self.bursts.iter().map(row).collect()
        } else {
            vec![row(&bursts)]
        })
    }

    fn row(&self, bursts: Bursts, heard: &Heard, overhead: f64) -> Vec<Cell> {
        let p5 = |s: &[f64]| quantile(s, 0.05).unwrap_or(f64::NAN);
        let interval = quantile_interval(&heard.raw, 0.05).unwrap_or((f64::NAN, f64::NAN));
        vec![
            self.name().into(),
            u64::from(self.calls).into(),
            bursts.chain_name().into(),
            bursts.name().into(),
            self.loss_pct.into(),
            (heard.raw.len() as u64).into(),
            (100.0 * heard.missed).into(),
            heard.mean.estimate.into(),
            heard.mean.interval.0.into(),
            heard.mean.interval.1.into(),
            p5(&heard.raw).into(),
            interval.0.into(),
            interval.1.into(),
            Mean::of(&heard.mos_lqo).estimate.into(),
            p5(&heard.mos_lqo).into(),
            (100.0 * overhead).into(),
        ]
    }
}

/// Scores of all listeners of a run.
struct Heard {
    missed: f64,
    mean: Mean,
    /// Raw PESQ of each segment, in ascending order.
    raw: Vec<f64>,
    /// MOS-LQO of each segment, in ascending order.
    mos_lqo: Vec<f64>,
}

impl Heard {
    /// Calls begin at different segments, so that short ones together play all of the speech.
    fn of(run: &Run, calls: u32, speech: &Speech, concealed: bool) -> Result<Heard, PointError> {
        let (mut scores, mut missed, mut sent) = (Vec::new(), 0, 0);
        // Loss of quality of each segment compared with no loss. Only the losses are random, not
        // the speech.
        let mut worse = Vec::new();
        for (k, call) in run.missed().enumerate() {
            missed += call.iter().filter(|m| **m).count();
            sent += call.len();
            let start = k * speech.len() / calls as usize;
            let heard = match concealed {
                true => speech.listen(&call, start, &mut Concealing::new(Law::Mu)),
                false => speech.listen(&call, start, &mut Law::Mu.clone()),
            }?;
            for (n, score) in heard.into_iter().enumerate() {
                if let (Some(score), Some(clean)) = (score, speech.lossless(start + n)?) {
                    worse.push(score.raw - clean.raw);
                    scores.push(score);
                }
            }
        }
        scores.sort_by(|a: &Score, b| a.raw.total_cmp(&b.raw));
        let raw: Vec<f64> = scores.iter().map(|s| s.raw).collect();
        let Mean { estimate, .. } = Mean::of(&raw);
        let lost = Mean::of(&worse);
        let (low, high) = lost.interval;
        let by = estimate - lost.estimate;
        let mean = Mean { estimate, interval: (by + low, by + high) };
        let missed = missed as f64 / sent as f64;
        Ok(Heard { missed, mean, raw, mos_lqo: scores.iter().map(|s| s.mos_lqo).collect() })
    }
}

/// The experiment behind the four figures.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "quality",
        revision: 3,
        columns: COLUMNS,
        needs_speech: true,
        points: Box::new(points),
        figures: [fig1_2::figures(), fig9_10::figures()].into_iter().flatten().collect(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let bursts: &[Bursts] = size.pick(&Bursts::PAPER[..2], &Bursts::PAPER, &Bursts::PAPER);
    let concealed = !sabotage.is("concealment-off");
    let mut points = Vec::new();
    for over_udp in [true, false] {
        let quick = if over_udp { QUICK_UDP } else { QUICK_OVERLAY };
        let losses: &[f64] = size.pick(&[0.0, 5.0], &quick, &LOSSES);
        for &loss_pct in losses {
            let groups: Vec<&[Bursts]> =
                if loss_pct == 0.0 { vec![bursts] } else { bursts.chunks(1).collect() };
            for bursts in groups {
                // The paper plays five minutes twenty times: 500 segments. With fewer than 72, the 5th
                // percentile would have no interval.
                let (path, calls, segments, figures) = match over_udp {
                    true => (
                        Path::Udp,
                        1,
                        size.pick(1, 80, 500),
                        &["fig1", "fig2", "fig9", "fig10"][..],
                    ),
                    false => (
                        Path::Overlay(policy(sabotage, loss_pct)),
                        size.pick(2, 10, 10),
                        size.pick(1, 8, 50),
                        &["fig9", "fig10"][..],
                    ),
                };
                let (bursts, really) = (bursts.to_vec(), really(&path, sabotage));
                let one =
                    QualityPoint { path, calls, segments, bursts, loss_pct, really, concealed };
                points.push(one.into_point(figures));
            }
        }
    }
    points.extend(internet(size, sabotage));
    points
}

/// A call at the Internet's average loss, over plain UDP and over the overlay.
fn internet(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (loss_pct, bursts) = INTERNET;
    let overlay = |policy: Policy| (Path::Overlay(policy), 10, size.pick(1, 8, 50));
    let policy = policy(sabotage, loss_pct);
    // Replaces UDP by the overlay.
    let udp = match sabotage.is("recovered") {
        true => overlay(Policy { name: "udp", ..policy.clone() }),
        false => (Path::Udp, 1, size.pick(1, 80, 500)),
    };
    let paths = [udp, overlay(policy)];
    let one = |(path, calls, segments)| {
        let (bursts, really, concealed) = (vec![bursts], None, true);
        let one = QualityPoint { path, calls, segments, bursts, loss_pct, really, concealed };
        one.into_point(&["fig2"])
    };
    // The tiny size only measures other losses.
    let paths = paths.into_iter().filter(|_| size > Size::Tiny);
    paths.map(one).collect()
}

/// The paper's recovery policy; a sabotage scales with the loss of the link.
fn policy(sabotage: Sabotage, loss_pct: f64) -> Policy {
    Policy::new("overlay", move |config| {
        let realtime = &mut config.realtime;
        if sabotage.is("one-repeat-at-a-time") {
            realtime.retransmit_burst = 1;
        }
        unanswered(sabotage, realtime, loss_pct / 100.0);
    })
}

/// The loss process of a sabotaged run.
fn really(path: &Path, sabotage: Sabotage) -> Option<fn(Bursts, f64) -> Loss> {
    // Uniform loss in place of the burstiest, and vice versa.
    if sabotage.is("bursts-the-other-way-round") {
        return Some(|bursts, p| {
            let at = Bursts::PAPER.iter().position(|b| b.burstiness == bursts.burstiness);
            Bursts::PAPER[Bursts::PAPER.len() - 1 - at.unwrap_or(0)].losing(p)
        });
    }
    if !matches!(path, Path::Udp) {
        return None;
    }
    match () {
        () if sabotage.is("udp-loses-a-fifth") => Some(|bursts, p| bursts.losing(0.2 * p)),
        () if sabotage.is("udp-loses-twice") => Some(|bursts, p| bursts.losing(2.0 * p)),
        // p is used as P(lost | previous received), as if bursts came on top.
        () if sabotage.is("bursts-on-top") => {
            Some(|bursts, p| bursts.losing(p / (1.0 - bursts.burstiness.unwrap_or(p) + p)))
        }
        () => None,
    }
}

/// The statistic that a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The mean over all segments.
    Mean,
    /// The 5th percentile over all segments.
    P5,
}

impl Statistic {
    /// Value and interval of the statistic in a row.
    pub fn of(self, r: &Record<'_>) -> Measured {
        Measured::of(
            r,
            match self {
                Statistic::Mean => ["pesq_mean", "pesq_mean_low", "pesq_mean_high"],
                Statistic::P5 => ["pesq_p5", "pesq_p5_low", "pesq_p5_high"],
            },
        )
    }
}

/// PESQ by loss, a series for each path and burstiness. UDP is pale where it only serves for
/// comparison.
pub fn chart(title: &str, table: &Table, statistic: Statistic, paths: &[(&str, &str)]) -> Chart {
    let mut series = Vec::new();
    for (path, label) in paths {
        for (n, burst) in ["uniform", "25", "50", "75"].into_iter().enumerate() {
            let here = table.iter().filter(|r| r.is("path", path) && r.is("burst_pct", burst));
            let mark = |r: Record<'_>| {
                let Measured { estimate, interval, .. } = statistic.of(&r);
                Mark { x: r.number("loss_pct"), y: estimate, interval: Some(interval) }
            };
            let points: Vec<Mark> = here.map(mark).collect();
            let pale = paths.len() > 1 && *path == "udp";
            let style = if pale { Style::nth(n).pale() } else { Style::nth(n) };
            if !points.is_empty() {
                series.push(Series {
                    name: format!("{label}{}", burst_label(burst)),
                    style,
                    points,
                });
            }
        }
    }
    // The paper's threshold.
    let line = [0.0, 100.0].map(|x| Mark { x, y: 4.0, interval: None }).to_vec();
    series.push(Series {
        name: "PSTN quality: 4.0".into(),
        style: Style::SECOND_CURVE,
        points: line,
    });
    let y = match statistic {
        Statistic::Mean => "average PESQ of segments (raw, P.862)",
        Statistic::P5 => "5th percentile PESQ of segments (raw, P.862)",
    };
    let losses = table.iter().map(|r| r.number("loss_pct"));
    Chart {
        title: title.to_owned(),
        x: Axis::fitting("loss rate of the network (%)", 0.0, losses),
        y: Axis::linear(y, (1.5, 4.5), 0.5),
        series,
    }
}

/// Difference that is not visible on a printed plot whose axis spans five points.
pub const READABLE: f64 = 0.05;
/// The quality of the telephone network.
pub const PSTN: Bound = Bound::above(4.0, "the paper's number, which its text gives");
/// Bound for the claim that burstiness plays no major role.
pub const NO_MAJOR_ROLE: Bound = Bound::at_most(
    2.0 * READABLE,
    "twice the 0.05 to which a printed plot can be read: curves that are farther apart can be \
     distinguished",
);
/// Bound for the claim that burstiness plays a role.
pub const A_ROLE: Bound = Bound::above(2.0 * READABLE, NO_MAJOR_ROLE.why);

/// Value and interval of `path` at `loss_pct`, for each burstiness.
pub fn at(table: &Table, statistic: Statistic, path: &str, loss_pct: f64) -> Vec<Measured> {
    let there = |r: &Record<'_>| r.is("path", path) && r.number("loss_pct") == loss_pct;
    table.iter().filter(there).map(|r| statistic.of(&r)).collect()
}

/// The mean of [`at`] over the burstinesses, with a note.
pub fn pooled(table: &Table, statistic: Statistic, path: &str, loss_pct: f64) -> Measured {
    let each = at(table, statistic, path, loss_pct);
    let worst = minimum(each.iter().map(|v| v.estimate));
    let note = note(table, statistic, path, loss_pct);
    Measured::mean(&each).noting(format!("At the worst burstiness {worst:.2}. {note}"))
}

/// A note with the same value as MOS-LQO at `loss_pct` and without loss, and the raw score without
/// loss: it shows how much of the distance to 4.0 is due to the codec.
pub fn note(table: &Table, statistic: Statistic, path: &str, loss_pct: f64) -> String {
    let (raw, lqo) = match statistic {
        Statistic::Mean => ("pesq_mean", "mos_lqo_mean"),
        Statistic::P5 => ("pesq_p5", "mos_lqo_p5"),
    };
    let least = |column: &str, loss: f64| {
        let there = table.iter().filter(|r| r.is("path", path) && r.number("loss_pct") == loss);
        minimum(there.map(|r| r.number(column)))
    };
    let clean = least(raw, 0.0);
    let clean = if clean.is_finite() {
        format!(" Without any loss this speech scores {clean:.2} ({:.2}).", least(lqo, 0.0))
    } else {
        String::new()
    };
    format!("As MOS-LQO: {:.2}.{clean}", least(lqo, loss_pct))
}
