//! The growth function of CUBIC (RFC 9438).

use core::time::Duration;
use trunkline_base::Time;

/// C, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// The window after a loss, as a share of the one before (section 4.6).
const BETA: f64 = 0.7;
/// What Reno would add in each round trip if it came down to the same share (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// An epoch of congestion avoidance. Windows are in segments here.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// The window at the last loss.
    w_max: f64,
    /// Since when the window has grown undisturbed; pauses push it on.
    began: Option<Time>,
    /// When the window was last not used up.
    paused: Option<Time>,
    /// How long it takes to be at `w_max` again, in seconds.
    k: f64,
    /// The window that Reno would have in its place.
    w_est: f64,
    /// Less than a byte that the window has still to grow.
    rest: f64,
}

impl Cubic {
    /// By how many bytes a window of `cwnd` grows as `acked` bytes were acknowledged.
    pub fn grow(&mut self, now: Time, cwnd: u64, acked: u64, rtt: Duration, segment: u64) -> u64 {
        let in_segments = |bytes: u64| bytes as f64 / segment as f64;
        let window = in_segments(cwnd);
        if let (Some(began), Some(paused)) = (self.began, self.paused.take()) {
            self.began = Some((began + now.since(paused)).min(now));
        }
        let began = *self.began.get_or_insert_with(|| {
            self.w_max = self.w_max.max(window);
            self.k = libm::cbrt((self.w_max - window) / C);
            self.w_est = window;
            now
        });
        self.w_est += ALPHA * in_segments(acked) / window;
        let t = (now.since(began) + rtt).as_secs_f64();
        let cubic = C * (t - self.k).powi(3) + self.w_max;
        // At most half as much again in a round trip (section 4.2).
        let target = cubic.clamp(window, 1.5 * window);
        let step = (target - window) / window * in_segments(acked);
        let step = step.max(self.w_est - window).max(0.0);
        self.rest += step * segment as f64;
        let whole = libm::floor(self.rest);
        self.rest -= whole;
        whole as u64
    }

    /// The window was not used up just now: time in which it isn't doesn't count.
    pub fn pause(&mut self, now: Time) {
        self.paused.get_or_insert(now);
    }

    /// The window after a loss, in bytes.
    pub fn on_loss(&mut self, cwnd: u64, segment: u64) -> u64 {
        let window = cwnd as f64 / segment as f64;
        // Section 4.7: who has less than before leaves room for newcomers.
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        (self.began, self.paused, self.rest) = (None, None, 0.0);
        (cwnd as f64 * BETA) as u64
    }
}
