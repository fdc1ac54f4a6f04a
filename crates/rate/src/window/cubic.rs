//! The growth function of CUBIC (RFC 9438).

use core::time::Duration;
use trunkline_base::Time;

/// C, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// Window after a loss, as a share of the one before (section 4.6).
const BETA: f64 = 0.7;
/// Growth of Reno per round trip, in segments, if it decreased to the same share (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// An epoch of congestion avoidance. Windows are in segments here.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// The window at the last loss.
    w_max: f64,
    /// Start of undisturbed growth; pauses move it forward.
    began: Option<Time>,
    /// Time since which the window has not been used up.
    paused: Option<Time>,
    /// Time until the window is back at `w_max`, in seconds.
    k: f64,
    /// The window that Reno would have instead.
    w_est: f64,
    /// Growth still to be applied, less than a byte.
    rest: f64,
}

impl Cubic {
    /// Growth in bytes of a window of `cwnd` when `acked` bytes are acknowledged.
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
        // At most half as much again per round trip (section 4.2).
        let target = cubic.clamp(window, 1.5 * window);
        let step = (target - window) / window * in_segments(acked);
        let step = step.max(self.w_est - window).max(0.0);
        self.rest += step * segment as f64;
        let whole = libm::floor(self.rest);
        self.rest -= whole;
        whole as u64
    }

    /// Records that the window is not used up at `now`: such time doesn't count.
    pub fn pause(&mut self, now: Time) {
        self.paused.get_or_insert(now);
    }

    /// The window after a loss, in bytes.
    pub fn on_loss(&mut self, cwnd: u64, segment: u64) -> u64 {
        let window = cwnd as f64 / segment as f64;
        // Section 4.7: a flow whose window is smaller than before makes room for new flows.
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        (self.began, self.paused, self.rest) = (None, None, 0.0);
        (cwnd as f64 * BETA) as u64
    }
}
