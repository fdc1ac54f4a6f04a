//! Progress of a run on standard error. Apart from the testbed, this is the only part of the lab
//! that reads a clock: no result may depend on it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use trunkline_lab::output::counted;
use trunkline_lab::run::Progress;

/// A progress bar with an estimate on a terminal; elsewhere an occasional line.
pub struct Bar {
    bar: ProgressBar,
    points: usize,
    unit: &'static str,
    plain: bool,
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    points: usize,
    weight: f64,
    spoken: Instant,
}

/// Total length of the bar, of which weights are shares.
const WHOLE: u64 = 10_000;
/// Runs shorter than this show no progress.
const SILENT_FOR: Duration = Duration::from_secs(2);
/// Interval between two plain lines.
const EVERY: Duration = Duration::from_secs(15);

#[expect(clippy::disallowed_methods, reason = "progress may read the clock; results may not")]
fn now() -> Instant {
    Instant::now()
}

impl Bar {
    /// A bar for this many points, or other things of which one is named `unit`.
    pub fn new(points: usize, unit: &'static str) -> Bar {
        let plain = !std::io::stderr().is_terminal();
        let target =
            if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(WHOLE), target);
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {eta} left");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        let begun = now();
        let state = Mutex::new(State { points: 0, weight: 0.0, spoken: begun });
        Bar { bar, points, unit, plain, begun, state }
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Removes the bar and prints the total duration.
    pub fn finish(&self) {
        self.clear();
        let took = now().duration_since(self.begun);
        errln!("{} in {:.1} s", counted(self.points, self.unit), took.as_secs_f64());
    }
}

/// A [`Bar`] and the total weight of all points.
pub struct Weighed<'a>(pub &'a Bar, pub f64);

impl Progress for Weighed<'_> {
    fn done(&self, weight: f64) {
        let Weighed(bar, total) = self;
        let Ok(mut state) = bar.state.lock() else { return };
        state.points += 1;
        state.weight += weight;
        let share = (state.weight / total).min(1.0);
        bar.bar.set_position((share * WHOLE as f64) as u64);
        let all = counted(bar.points, bar.unit);
        bar.bar.set_message(format!("{} of {all}", state.points));
        let now = now();
        let running = now.duration_since(bar.begun);
        let quiet = if running < EVERY { SILENT_FOR } else { EVERY };
        if bar.plain && now.duration_since(state.spoken) >= quiet && state.points < bar.points {
            state.spoken = now;
            let left = running.as_secs_f64() * (1.0 / share - 1.0);
            let share = share * 100.0;
            errln!("{} of {all}, {share:.0} %, about {left:.0} s left", state.points);
        }
    }
}
