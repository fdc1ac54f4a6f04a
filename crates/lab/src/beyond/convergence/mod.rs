//! Time until four nodes agree on their routes after an event: in the simulator, and with real
//! daemons for comparison.

mod control;
mod figures;
mod script;
mod simulate;
#[expect(clippy::disallowed_methods, reason = "real daemons need real time")]
mod testbed;

use super::PAPER;
use super::overlay::Settings;
use crate::experiment::{Cells, Experiment, Inputs, Point, Sabotage, Size};
use crate::table::{Cell, Column};
use crate::testbed::PLACES;
use rand::Rng as _;
use script::{Event, SCRIPT, Settled};
use simulate::Simulated;
use std::time::Duration;
use trunkline_base::rng;
use trunkline_base::stats::{quantile, quantile_interval};

/// The figure's name in files and on the command line.
const FIGURE: &str = "convergence";

const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("event").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("share_pct", 0).parameter(),
    Column::number("converged_s", 3),
    Column::number("converged_low_s", 3),
    Column::number("converged_high_s", 3),
    Column::number("look_ms", 1),
    Column::number("unsettled", 0),
    Column::text("valid"),
];

/// Shares of the runs, in percent, at which the time to converge is reported.
const SHARES: [u32; 7] = [5, 25, 50, 75, 90, 95, 100];
/// The experiment on how soon four nodes agree on their routes.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "converging",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::simulated()],
        testbed: Some(testbed::testbed()),
    }
}

/// The points of the experiment: only one, as each run goes through every event.
fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let runs = size.pick(2_u64, 10, 100);
    let [settings, ..] = Settings::all(sabotage);
    let settings = settings.broken_for(sabotage, script::NODES as u32);
    let measure = move |inputs: &Inputs<'_>| {
        let one = |run| {
            // Each run starts its nodes twice.
            let seed = inputs.seed.wrapping_add(2 * run);
            let mut overlay = Simulated::new(&settings, seed);
            script::live(&mut overlay, &SCRIPT, &mut rng(seed, 1))
        };
        let runs: Vec<Vec<Settled>> = (0..runs).map(one).collect::<Result<_, _>>()?;
        Ok(rows(PLACES[0], &runs.concat(), true))
    };
    vec![Point {
        key: "runs".into(),
        x: 0.0,
        figures: vec![FIGURE],
        weight: 0.1 * runs as f64,
        measure: Box::new(measure),
    }]
}

/// For each event that occurred, the time to converge at each share of its runs.
fn rows(place: &str, all: &[Settled], valid: bool) -> Cells {
    let of = |event: Event| {
        let here: Vec<&Settled> = all.iter().filter(|s| s.event == event).collect();
        let seconds = |d: Duration| d.as_secs_f64();
        let mut took: Vec<f64> = here.iter().map(|s| seconds(s.took)).collect();
        took.sort_unstable_by(f64::total_cmp);
        let look = here.iter().map(|s| 1e3 * seconds(s.look)).fold(0.0, f64::max);
        let unsettled = here.iter().filter(|s| !s.for_good).count() as u64;
        SHARES.map(|percent| {
            let share = f64::from(percent) / 100.0;
            let value = quantile(&took, share).unwrap_or(f64::NAN);
            let (low, high) = quantile_interval(&took, share).unwrap_or((f64::NAN, f64::NAN));
            let mut row: Vec<Cell> = vec![place.into(), event.name().into()];
            row.extend([took.len() as f64, f64::from(percent), value, low, high].map(Cell::from));
            row.extend([look.into(), unsettled.into(), Cell::yes(valid)]);
            row
        })
    };
    let there_was = |event: &Event| all.iter().any(|s| s.event == *event);
    Event::ALL.into_iter().filter(there_was).flat_map(of).collect()
}

/// A random time between two hellos, for any interval up to the paper's.
fn some_time(rng: &mut trunkline_base::Rng) -> Duration {
    Duration::from_micros(rng.next_u64() % 1_000_000)
}
