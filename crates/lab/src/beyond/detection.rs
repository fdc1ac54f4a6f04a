//! How long to wait for a silent neighbour: false deaths against the time to detect a real failure
//! (Amir et al. 2005, §III-A and §V-B).

mod figures;
mod link;

use super::PAPER;
use crate::chain::{Bursts, PACKET};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use link::{Pair, Stalls};
use std::time::Duration;
use trunkline_base::stats::{Mean, Ratio};
use trunkline_overlay::monitor::Liveness;

const COLUMNS: &[Column] = &[
    Column::text("loss").parameter(),
    Column::number("hello_ms", 0).parameter(),
    Column::text("probes").parameter(),
    Column::number("dead_after_s", 1).parameter(),
    Column::number("link_days", 3).parameter(),
    Column::number("false_deaths", 0),
    Column::number("per_day", 2),
    Column::number("per_day_low", 2),
    Column::number("per_day_high", 2),
    Column::number("cuts", 0),
    Column::number("detect_s", 3),
    Column::number("detect_low_s", 3),
    Column::number("detect_high_s", 3),
    Column::number("bytes_per_s", 1),
];

/// Seconds of silence after which a link counts as dead.
const DEAD_AFTER: [f64; 10] = [0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0];
const QUICK_DEAD_AFTER: [f64; 5] = [0.4, 1.0, 2.0, 5.0, 10.0];

/// Hello intervals of silence that a node must tolerate.
const MIN_SILENT_HELLOS: u32 = 3;

/// Impairment of hellos on the link.
#[derive(Clone, Copy)]
struct Impairment {
    name: &'static str,
    loss: f64,
    bursts: Bursts,
    stalls: Option<Stalls>,
}

const fn bursty(spacing: Option<Duration>) -> Bursts {
    Bursts { burstiness: Some(0.75), spacing }
}

const fn steady(name: &'static str, loss: f64, spacing: Option<Duration>) -> Impairment {
    Impairment { name, loss, bursts: bursty(spacing), stalls: None }
}

const fn stalled(name: &'static str, longest: Duration) -> Impairment {
    let stalls = Some(Stalls { longest });
    Impairment { name, loss: 0.05, bursts: bursty(Some(PACKET)), stalls }
}

/// Steady loss, per packet as in the paper and in continuous time; and the Planetlab hosts of §V-B,
/// which lost tens to hundreds of packets in a row because they were not scheduled: tenths of a
/// second to seconds at 50 packets/s, and eight seconds in another case (§V-A).
const TROUBLES: [Impairment; 6] = [
    steady("5/75", 0.05, None),
    steady("10/75", 0.10, None),
    steady("20/75", 0.20, None),
    steady("5/75 in time", 0.05, Some(PACKET)),
    stalled("stalls to 2 s", Duration::from_secs(2)),
    stalled("stalls to 8 s", Duration::from_secs(8)),
];

/// The experiment on false deaths of links and the time to detect real ones.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "detection",
        revision: 4,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (minutes, cuts) = size.pick((2, 3), (6 * 60, 20), (10 * 24 * 60, 200));
    let dead_after: &[f64] = size.pick(&[1.0, 3.0], &QUICK_DEAD_AFTER, &DEAD_AFTER);
    let troubles = size.pick(&TROUBLES[4..5], &TROUBLES[..], &TROUBLES[..]);
    let mut points = Vec::new();
    for &trouble in troubles {
        for hello_ms in [50, 200, 1_000] {
            let interval = Duration::from_millis(hello_ms);
            for probes in [true, false] {
                for &dead_after_s in dead_after {
                    let dead_after = Duration::from_secs_f64(dead_after_s);
                    // Nodes accept no smaller value: a single lost hello would be a death.
                    if dead_after < MIN_SILENT_HELLOS * interval {
                        continue;
                    }
                    let liveness = Liveness { interval, dead_after, probes, ..Liveness::default() };
                    let one = DetectionPoint { trouble, liveness, minutes, cuts };
                    points.push(one.into_point(sabotage));
                }
            }
        }
    }
    points
}

/// One setting on one impaired link.
#[derive(Clone)]
struct DetectionPoint {
    trouble: Impairment,
    liveness: Liveness,
    /// Minutes that the link is observed without a real failure.
    minutes: u64,
    /// Number of real failures.
    cuts: u32,
}

impl DetectionPoint {
    fn broken(mut self, sabotage: Sabotage) -> DetectionPoint {
        if sabotage.is("no-loss") {
            (self.trouble.loss, self.trouble.stalls) = (0.0, None);
        }
        if sabotage.is("no-stalls") {
            self.trouble.stalls = None;
        }
        if sabotage.is("stalls-of-eight-seconds") {
            let longest = Duration::from_secs(8);
            self.trouble.stalls = self.trouble.stalls.map(|_| Stalls { longest });
        }
        if sabotage.is("probes-off") {
            self.liveness.probes = false;
        }
        if sabotage.is("twice-the-patience") {
            self.liveness.dead_after *= 2;
        }
        if sabotage.is("half-the-patience") {
            let least = MIN_SILENT_HELLOS * self.liveness.interval;
            self.liveness.dead_after = least.max(self.liveness.dead_after / 2);
        }
        self
    }

    /// A point is named after the requested settings, even when a sabotage changes them.
    fn into_point(self, sabotage: Sabotage) -> Point {
        let DetectionPoint { trouble, liveness, minutes, cuts } = &self;
        let (hello_ms, dead_after_s) =
            (liveness.interval.as_millis(), liveness.dead_after.as_secs_f64());
        let (figures, probes) = (figures::showing(trouble.name), yes(liveness.probes));
        let name = trouble.name.replace(['/', ' '], "-");
        let seconds = 60 * minutes + u64::from(*cuts) * 15;
        let key = format!("{name}-hello{hello_ms}-probes-{probes}-dead{dead_after_s}");
        let weight = 4e-4 * seconds as f64 / hello_ms as f64;
        let setting =
            vec![trouble.name.into(), (hello_ms as u64).into(), probes.into(), dead_after_s.into()];
        let one = self.broken(sabotage);
        let measure = move |inputs: &Inputs<'_>| one.measure(inputs, setting.clone());
        Point { key, x: dead_after_s, figures, weight, measure: Box::new(measure) }
    }

    fn measure(&self, inputs: &Inputs<'_>, mut row: Vec<Cell>) -> Result<Cells, PointError> {
        let DetectionPoint { trouble, liveness, minutes, cuts } = self;
        let loss = trouble.bursts.losing(trouble.loss);
        let mut pair = Pair::new(loss, trouble.stalls, liveness, inputs.seed)?;
        let watched = pair.watch(*minutes);
        // Intervals of a tenth of a second are short enough for at most one death in each.
        let clusters: Vec<_> = watched.iter().map(|m| (m.deaths, 600)).collect();
        let deaths = Ratio::of_clusters(&clusters);
        let per_day = |share: f64| share * 864_000.0;
        let bytes: u64 = watched.iter().map(|m| m.bytes).sum();
        let detected = Mean::of(&pair.cut(*cuts));
        row.extend([
            Cell::from(*minutes as f64 / 1_440.0),
            deaths.events.into(),
            per_day(deaths.estimate).into(),
            per_day(deaths.interval.0).into(),
            per_day(deaths.interval.1).into(),
            u64::from(*cuts).into(),
            detected.estimate.into(),
            detected.interval.0.into(),
            detected.interval.1.into(),
            (bytes as f64 / (60 * minutes) as f64).into(),
        ]);
        Ok(vec![row])
    }
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
