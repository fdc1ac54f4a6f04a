//! Packets that a call misses when its path fails, and path changes without need.

mod figures;

use super::PAPER;
use super::calls::{Conversation, RELAY, SHORTEST, THREE_WAYS};
use super::overlay::Settings;
use crate::chain::{Bursts, PACKET};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::stats::{quantile, quantile_interval};
use trunkline_base::{Rng, Time, rng};
use trunkline_sim::{WireEnd, WorldError};

const COLUMNS: &[Column] = &[
    Column::text("settings").parameter(),
    Column::text("event").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("hours", 2).parameter(),
    Column::number("share_pct", 0).parameter(),
    Column::number("whole_s", 3),
    Column::number("whole_low_s", 3),
    Column::number("whole_high_s", 3),
    Column::number("left_s", 3),
    Column::number("left_low_s", 3),
    Column::number("left_high_s", 3),
    Column::number("changes", 0),
    Column::number("most_changes", 0),
    Column::number("deaths", 0),
    Column::number("late_changes", 0),
];

/// Shares of the runs, in percent, at which recovery times are reported.
const SHARES: [u32; 7] = [5, 25, 50, 75, 90, 95, 100];
/// Time of the event: the call is ten seconds old and undisturbed so far.
const EVENT: Time = Time::from_millis(20_000);
/// Time that a run is observed after the event: one and a half times what the paper's hellos take.
const WATCHED: Duration = Duration::from_secs(15);

/// Event on the shortest path.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    /// One of its wires is cut.
    Cut,
    /// One direction of one of its wires drops everything.
    Blackhole,
    /// The relay of the shortest path crashes.
    Crash,
    /// One of its wires loses 30 % in both directions from now on.
    Degraded(Bursts),
}

const UNIFORM: Bursts = Bursts { burstiness: None, spacing: None };
const BURSTY: Bursts = Bursts { burstiness: Some(0.75), spacing: None };
const IN_TIME: Bursts = Bursts { burstiness: Some(0.75), spacing: Some(PACKET) };

const EVENTS: [(&str, Event); 6] = [
    ("cut", Event::Cut),
    ("blackhole", Event::Blackhole),
    ("crash", Event::Crash),
    ("30 %", Event::Degraded(UNIFORM)),
    ("30 % bursty", Event::Degraded(BURSTY)),
    ("30 % bursty in time", Event::Degraded(IN_TIME)),
];

/// Loss on every link in runs without other events, per packet and in time.
const STEADY: [(&str, Bursts); 2] = [("steady 5/75", BURSTY), ("steady 5/75 in time", IN_TIME)];

/// The experiment on calls whose path fails, and on calls without failures.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "failover",
        revision: 5,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let runs = size.pick(2, 10, 400);
    // The run includes the start of each, when little is known about the links.
    let lives = size.pick(1, 2, 24);
    let seconds = size.pick(20, 1_800, 3_600);
    let mut points = Vec::new();
    for settings in Settings::all(sabotage) {
        let name = settings.name;
        for (x, (event, what)) in (0u32..).zip(EVENTS) {
            let row = vec![Cell::from(name), event.into(), runs.into()];
            let settings = settings.clone();
            let measure = move |inputs: &Inputs<'_>| failures(inputs, &settings, what, runs, &row);
            points.push(Point {
                key: format!("{name}-{event}").replace([' ', '%'], "-"),
                x: x.into(),
                figures: figures::showing(name),
                weight: 0.03 * runs as f64,
                measure: Box::new(measure),
            });
        }
        for (x, (loss, bursts)) in (10u32..).zip(STEADY) {
            let row = vec![Cell::from(name), loss.into(), lives.into()];
            let settings = settings.clone();
            let cut = sabotage.is("a-cut-in-the-middle");
            let measure = move |inputs: &Inputs<'_>| {
                steady(inputs, &settings, bursts, (lives, seconds, cut), &row)
            };
            points.push(Point {
                key: format!("{name}-{loss}").replace([' ', '/'], "-"),
                x: x.into(),
                figures: figures::showing(name),
                weight: 5e-4 * (lives * seconds) as f64,
                measure: Box::new(measure),
            });
        }
    }
    points
}

/// Outcome of one run.
struct Failure {
    /// Seconds from the event until the last missed packet, and until both directions had left the
    /// shortest path; the observed time if they never did.
    whole: f64,
    left: f64,
    changes: u64,
    deaths: u64,
}

fn failures(
    inputs: &Inputs<'_>,
    settings: &Settings,
    event: Event,
    runs: u64,
    row: &[Cell],
) -> Result<Cells, PointError> {
    let one = |run| failure(settings, event, inputs.seed.wrapping_add(run));
    let all: Vec<Failure> = (0..runs).map(one).collect::<Result<_, _>>()?;
    let sorted = |of: fn(&Failure) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let (whole, left) = (sorted(|f| f.whole), sorted(|f| f.left));
    let total = |of: fn(&Failure) -> u64| all.iter().map(of).sum::<u64>();
    let most = all.iter().map(|f| f.changes).max().unwrap_or(0);
    let rows = SHARES.into_iter().map(|percent| {
        let share = f64::from(percent) / 100.0;
        let mut row = row.to_vec();
        row.extend([Cell::from(f64::NAN), f64::from(percent).into()]);
        for values in [&whole, &left] {
            let (low, high) = quantile_interval(values, share).unwrap_or((f64::NAN, f64::NAN));
            let value = quantile(values, share).unwrap_or(f64::NAN);
            row.extend([value, low, high].map(Cell::from));
        }
        row.extend([total(|f| f.changes), most, total(|f| f.deaths)].map(Cell::from));
        row.push(f64::NAN.into());
        row
    });
    Ok(rows.collect())
}

fn failure(settings: &Settings, event: Event, seed: u64) -> Result<Failure, WorldError> {
    let mut rng = rng(seed, 1);
    // A random moment between two hellos and between two packets.
    let at = EVENT + Duration::from_micros(rng.next_u64() % 1_000_000);
    let mut call = Conversation::new(&THREE_WAYS, settings, Loss::None, at + WATCHED, seed)?;
    call.run_until(at);
    inject(&mut call, event, &mut rng)?;
    call.run_until(at + WATCHED);
    Ok(Failure {
        changes: call.changes(at),
        left: call.left(at).unwrap_or(WATCHED).as_secs_f64(),
        deaths: call.deaths(),
        whole: call.whole_after(at).as_secs_f64(),
    })
}

fn inject(call: &mut Conversation, event: Event, rng: &mut Rng) -> Result<(), WorldError> {
    let wire = SHORTEST[(rng.next_u64() % 2) as usize];
    let end = [WireEnd::First, WireEnd::Second][(rng.next_u64() % 2) as usize];
    let world = call.world_mut();
    match event {
        Event::Cut => world.cut(wire),
        Event::Blackhole => world.blackhole(wire, end),
        Event::Crash => world.crash(RELAY),
        Event::Degraded(bursts) => {
            for end in [WireEnd::First, WireEnd::Second] {
                let model =
                    LinkModel { loss: bursts.losing(0.3), ..world.model(wire, end).clone() };
                world.change(wire, end, model)?;
            }
        }
    }
    Ok(())
}

/// By this time after the start, enough is known about all links.
const KNOWN: Time = Time::from_millis(20 * 60 * 1_000);

fn steady(
    inputs: &Inputs<'_>,
    settings: &Settings,
    bursts: Bursts,
    (lives, seconds, cut): (u64, u64, bool),
    row: &[Cell],
) -> Result<Cells, PointError> {
    let end = EVENT + Duration::from_secs(seconds);
    let loss = bursts.losing(0.05);
    let (mut changes, mut most, mut deaths, mut late) = (0, 0, 0, 0);
    for life in 0..lives {
        let seed = inputs.seed.wrapping_add(life);
        let mut call = Conversation::new(&THREE_WAYS, settings, loss.clone(), end, seed)?;
        if cut {
            call.run_until(EVENT + Duration::from_secs(seconds / 2));
            call.world_mut().cut(SHORTEST[0]);
        }
        call.run_until(end);
        // Earlier, some links have not been advertised yet.
        changes += call.changes(EVENT);
        most = most.max(call.most_changes(EVENT, end));
        deaths += call.deaths();
        late += call.changes(KNOWN);
    }
    let mut row = row.to_vec();
    row.extend([Cell::from((lives * seconds) as f64 / 3_600.0), 100.0.into()]);
    row.extend([f64::NAN; 6].map(Cell::from));
    row.extend([changes, most, deaths, late].map(Cell::from));
    Ok(vec![row])
}
