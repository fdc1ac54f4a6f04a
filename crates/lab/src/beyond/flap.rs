//! Links that fail again and again: whether recovery from the n-th failure takes as long as from
//! the first, with and without an alternative path.

mod figures;

use super::PAPER;
use super::calls::{Conversation, SHORTEST, Shape};
use super::overlay::Settings;
use crate::chain::{Bursts, DEADLINE};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::stats::quantile;
use trunkline_base::{Rng, Time, rng};
use trunkline_overlay::link::LinkId;
use trunkline_sim::{HostId, WireEnd, WireId, WorldError};

const COLUMNS: &[Column] = &[
    Column::text("network").parameter(),
    Column::text("failure").parameter(),
    Column::number("outage_s", 1).parameter(),
    Column::number("pause_s", 1).parameter(),
    Column::number("nth", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("gap_s", 3),
    Column::number("gap_most_s", 3),
    Column::number("changes_most", 0),
    Column::number("deaths", 1),
];

/// A–B–C takes 20 ms; there is no other path.
const CHAIN: Shape =
    Shape { wires: &[(0, 1, 10), (1, 2, 10)], ends: [HostId(0), HostId(2)], sealed: true };
/// A–B–D takes 20 ms, and A–C–D 24.
const DIAMOND: Shape = Shape {
    wires: &[(0, 1, 10), (1, 3, 10), (0, 2, 12), (2, 3, 12)],
    ends: [HostId(0), HostId(3)],
    sealed: true,
};
const NETWORKS: [(&str, Shape); 2] = [("chain", CHAIN), ("diamond", DIAMOND)];

/// Node B, the relay on the shortest path.
const RELAY: HostId = HostId(1);

/// Repeated failure on the shortest path.
#[derive(Clone, Copy, PartialEq)]
enum Failure {
    /// Its relay stalls, and then processes everything at once.
    Stall,
    /// One of its wires is cut, the same one each time.
    Cut,
    /// Its relay dies without a goodbye, and is started again.
    Crash,
}

const FAILURES: [(&str, Failure); 3] =
    [("stall", Failure::Stall), ("cut", Failure::Cut), ("crash", Failure::Crash)];

/// Time of the first failure: the call is ten seconds old, and all links have been measured.
const FIRST: Time = Time::from_millis(20_000);
/// Time that a run is observed after the end of the last failure.
const WATCHED: Duration = Duration::from_secs(30);
/// Loss on the wire that alternates between losing packets and losing none before its only failure.
const SWING: f64 = 0.05;
const SWINGS: usize = 5;
/// Time until nodes accept a swing: the longest hold-down of an improvement, and the same again to
/// measure it.
const PATIENCE: Duration = Duration::from_secs(300);

/// The experiment on links that fail repeatedly.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "flap",
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let runs = size.pick(1, 2, 20);
    let failures = size.pick(3, 10, 10);
    let pauses: &[f64] = size.pick(&[5.0], &[2.0, 5.0, 20.0], &[2.0, 5.0, 10.0, 20.0, 30.0, 60.0]);
    let outages: &[f64] = size.pick(&[1.5], &[1.5, 3.0], &[0.7, 1.5, 3.0, 10.0]);
    let [settings, ..] = Settings::all(sabotage);
    let mut points = Vec::new();
    for (n, (network, shape)) in NETWORKS.into_iter().enumerate() {
        for (kind, what) in FAILURES {
            for (&outage, &pause) in outages.iter().flat_map(|o| pauses.iter().map(move |p| (o, p)))
            {
                let flaps = Flaps {
                    shape,
                    what,
                    failures,
                    outage: Duration::from_secs_f64(outage),
                    pause: Duration::from_secs_f64(pause),
                };
                let settings = settings.clone();
                let row = vec![Cell::from(network), kind.into(), outage.into(), pause.into()];
                let measure = move |inputs: &Inputs<'_>| {
                    let one = |run| flaps.run(&settings, inputs.seed.wrapping_add(run));
                    let all = (0..runs).map(one).collect::<Result<Vec<_>, _>>()?;
                    Ok(rows(&row, &all))
                };
                points.push(Point {
                    key: format!("{network}-{kind}-{outage}-{pause}"),
                    x: n as f64,
                    figures: vec![figures::NAMES[n]],
                    weight: 2e-3 * (outage + pause) * failures as f64 * runs as f64,
                    measure: Box::new(measure),
                });
            }
        }
    }
    if size > Size::Tiny {
        points.push(swung(settings, size.pick(1, 2, 20)));
    }
    points
}

/// The chain with a wire that begins to lose packets as soon as nodes believe that it loses none,
/// before its relay stalls once.
fn swung(settings: Settings, runs: u64) -> Point {
    let outage = Duration::from_millis(1_500);
    let row = vec!["chain".into(), "stall after swings".into(), outage.as_secs_f64().into()];
    let measure = move |inputs: &Inputs<'_>| {
        let one = |run| after_swings(&settings, outage, inputs.seed.wrapping_add(run));
        let all = (0..runs).map(one).collect::<Result<Vec<_>, _>>()?;
        let mut row = row.clone();
        row.push(f64::NAN.into());
        Ok(rows(&row, &all))
    };
    Point {
        key: "swings".to_owned(),
        x: 2.0,
        figures: vec![figures::NAMES[0]],
        weight: 1.5 * runs as f64,
        measure: Box::new(measure),
    }
}

/// Outcome of one failure.
#[derive(Clone, Copy)]
struct FailureOutcome {
    /// Seconds from its beginning until the last missed packet was sent, and path changes in the
    /// direction that changed more often, both until the next failure.
    gap: f64,
    changes: u64,
    /// Links declared dead by either end during the whole run.
    deaths: u64,
}

fn rows(row: &[Cell], runs: &[Vec<FailureOutcome>]) -> Cells {
    let failures = runs.first().map_or(0, Vec::len);
    let nth = |n: usize| {
        let here: Vec<FailureOutcome> = runs.iter().map(|run| run[n]).collect();
        let mut gaps: Vec<f64> = here.iter().map(|o| o.gap).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let changes = here.iter().map(|o| o.changes).max().unwrap_or(0);
        let deaths = here.iter().map(|o| o.deaths).sum::<u64>() as f64 / here.len() as f64;
        let mut row = row.to_vec();
        row.extend([Cell::from(n as u64 + 1), (runs.len() as u64).into()]);
        row.push(quantile(&gaps, 0.5).unwrap_or(f64::NAN).into());
        row.push(gaps.last().copied().unwrap_or(f64::NAN).into());
        row.extend([Cell::from(changes), deaths.into()]);
        row
    };
    (0..failures).map(nth).collect()
}

/// A path that fails repeatedly.
#[derive(Clone, Copy)]
struct Flaps {
    shape: Shape,
    what: Failure,
    failures: u32,
    outage: Duration,
    pause: Duration,
}

impl Flaps {
    fn run(&self, settings: &Settings, seed: u64) -> Result<Vec<FailureOutcome>, PointError> {
        let mut rng = rng(seed, 1);
        let wire = SHORTEST[(rng.next_u64() % 2) as usize];
        // A random moment between two hellos and between two packets.
        let mut starts = vec![FIRST + somewhere(&mut rng)];
        for _ in 1..self.failures {
            let last = starts[starts.len() - 1];
            starts.push(last + self.outage + self.pause + somewhere(&mut rng));
        }
        let end = starts[starts.len() - 1] + self.outage + WATCHED;
        let mut call = Conversation::new(&self.shape, settings, Loss::None, end, seed)?;
        for &start in &starts {
            call.run_until(start);
            self.fail(&mut call, wire, start + self.outage)?;
        }
        call.run_until(end);
        call.finish();
        let deaths = call.deaths();
        // Packets in flight when the next failure begins count towards that one.
        let until = starts.iter().skip(1).map(|&next| next - DEADLINE).chain([end]);
        let outcome = |(&start, until)| FailureOutcome {
            gap: call.gap(start, until).as_secs_f64(),
            changes: call.most_changes(start, until),
            deaths,
        };
        Ok(starts.iter().zip(until).map(outcome).collect())
    }

    /// Injects a failure that ends at `until`.
    fn fail(&self, call: &mut Conversation, wire: WireId, until: Time) -> Result<(), WorldError> {
        match self.what {
            Failure::Stall => call.world_mut().stall(RELAY, until),
            Failure::Cut => call.world_mut().cut(wire),
            Failure::Crash => call.world_mut().crash(RELAY),
        }
        call.run_until(until);
        match self.what {
            Failure::Stall => {}
            Failure::Cut => call.world_mut().mend(wire),
            Failure::Crash => call.world_mut().restart(RELAY)?,
        }
        Ok(())
    }
}

fn somewhere(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.next_u64() % 300_000)
}

fn after_swings(
    settings: &Settings,
    outage: Duration,
    seed: u64,
) -> Result<Vec<FailureOutcome>, PointError> {
    let longest = PATIENCE * 2 * SWINGS as u32;
    let end = FIRST + longest + outage + WATCHED;
    let mut call = Conversation::new(&CHAIN, settings, Loss::None, end, seed)?;
    call.run_until(FIRST);
    for _ in 0..SWINGS {
        for loss in [SWING, 0.0] {
            lose(&mut call, loss)?;
        }
    }
    let start = call.world_mut().now() + somewhere(&mut rng(seed, 1));
    call.run_until(start);
    call.world_mut().stall(RELAY, start + outage);
    let end = start + outage + 6 * WATCHED;
    call.run_until(end);
    call.finish();
    let (changes, deaths) = (call.most_changes(start, end), call.deaths());
    Ok(vec![FailureOutcome { gap: call.gap(start, end).as_secs_f64(), changes, deaths }])
}

/// Makes the first wire lose this share from now on, and runs until the first node reports it.
fn lose(call: &mut Conversation, loss: f64) -> Result<(), WorldError> {
    let world = call.world_mut();
    for end in [WireEnd::First, WireEnd::Second] {
        let uniform = Bursts { burstiness: None, spacing: None };
        let model =
            LinkModel { loss: uniform.losing(loss), ..world.model(SHORTEST[0], end).clone() };
        world.change(SHORTEST[0], end, model)?;
    }
    let until = world.now() + PATIENCE;
    loop {
        let world = call.world_mut();
        let link = world.node(HostId(0)).link(LinkId(0));
        let said = link.and_then(|l| l.monitor().advertised()).map_or(0.0, |q| q.loss);
        let now = world.now();
        if (said - loss).abs() < SWING / 2.0 || now >= until {
            return Ok(());
        }
        call.run_until(now + Duration::from_millis(200));
    }
}
