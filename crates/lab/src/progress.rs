//! How a run gets on, on standard error. The only place of the lab, but for the
//! testbed, that looks at a clock: no result may depend on it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use trunkline_lab::run::Progress;

/// A bar with an estimate on a terminal; elsewhere a line now and then.
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

/// Weights are shares of this.
const WHOLE: u64 = 10_000;
/// A short run says nothing but its result.
const SILENT_FOR: Duration = Duration::from_secs(2);
/// Between two plain lines.
const EVERY: Duration = Duration::from_secs(15);

#[expect(clippy::disallowed_methods, reason = "progress may tell the time; results may not")]
fn now() -> Instant {
    Instant::now()
}

impl Bar {
    /// For so many points, or what `unit` says.
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

    /// Ends the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Ends the bar and says how long everything took.
    pub fn finish(&self) {
        self.clear();
        let took = now().duration_since(self.begun);
        errln!("{} {} in {:.1} s", self.points, self.unit, took.as_secs_f64());
    }
}

/// A [`Bar`] and the weight of all points.
pub struct Weighed<'a>(pub &'a Bar, pub f64);

impl Progress for Weighed<'_> {
    fn done(&self, weight: f64) {
        let Weighed(bar, total) = self;
        let Ok(mut state) = bar.state.lock() else { return };
        state.points += 1;
        state.weight += weight;
        let share = (state.weight / total).min(1.0);
        bar.bar.set_position((share * WHOLE as f64) as u64);
        bar.bar.set_message(format!("{} of {} {}", state.points, bar.points, bar.unit));
        let now = now();
        let running = now.duration_since(bar.begun);
        let quiet = if running < EVERY { SILENT_FOR } else { EVERY };
        if bar.plain && now.duration_since(state.spoken) >= quiet && state.points < bar.points {
            state.spoken = now;
            let left = running.as_secs_f64() * (1.0 / share - 1.0);
            errln!(
                "{} of {} {}, {:.0} %, about {left:.0} s left",
                state.points,
                bar.points,
                bar.unit,
                share * 100.0
            );
        }
    }
}
