//! A congestion window with pacing: how much a sender with per-packet acknowledgements may have in
//! flight, and how fast it may send it.
//!
//! [`Window`] is the share of one TCP: it grows and shrinks by RFC 5681 ([`Algorithm::Reno`]) or
//! RFC 9438 ([`Algorithm::Cubic`]). It counts bytes, and grows by the bytes acknowledged (RFC
//! 3465). [`RoundTrip`] is the estimate for timeouts and pacing (RFC 6298). [`Control`] combines
//! both, and adjusts them once per loss event. The caller detects which packets are lost. While
//! calls share the path, the window yields to a growing delay as well ([`Control::yield_to_calls`]).

mod control;
mod cubic;
mod round_trip;
#[cfg(test)]
mod tests;
mod yielding;

pub use control::{Control, Extent};
pub use round_trip::RoundTrip;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use cubic::Cubic;
use trunkline_base::Time;
use yielding::{Adjustment, TARGET};

/// The rules by which the window grows without loss and shrinks with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// One segment more per round trip, and half at a loss (RFC 5681).
    #[default]
    Reno,
    /// The cubic function of the time since the last loss (RFC 9438): more than Reno on
    /// long, fast paths, and no less elsewhere.
    Cubic,
}

impl Algorithm {
    /// Configuration names of all algorithms.
    pub const NAMES: [&'static str; 2] = ["reno", "cubic"];

    /// The algorithm's name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Reno => "reno",
            Algorithm::Cubic => "cubic",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name is not that of an [`Algorithm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such congestion control: use {}", Algorithm::NAMES.join(" or "))]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let all = [Algorithm::Reno, Algorithm::Cubic];
        all.into_iter().find(|a| a.name() == name).ok_or(UnknownAlgorithm)
    }
}

/// Parameters of a [`Window`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Segment size in bytes: the largest packet with all its headers; 1 to 65,535.
    pub segment: usize,
    /// Initial window, in segments: 10 by default (RFC 6928).
    pub initial: u32,
    /// Maximum window, in bytes; at least two segments.
    pub max: u64,
    /// Rules for growth and reduction.
    pub algorithm: Algorithm,
}

impl Config {
    /// Starts with ten segments of `segment` bytes, at most 16 MiB, with Reno.
    pub fn new(segment: usize) -> Config {
        Config { segment, initial: 10, max: 16 << 20, algorithm: Algorithm::Reno }
    }
}

/// Queueing delay that slow start may cause while it yields.
const OVERSHOOT: Duration = Duration::from_millis(60);

/// Where a delay has ended slow start and no queue forms for more than this many rounds, the window
/// grows faster again: by an eighth of the target in each of two rounds, then by two, and so on. The
/// delay may have been another's, or jitter's.
const SHORT: u32 = 3;

/// Largest growth in such a round, in eighths of the target.
const MOST_GROWTH: u32 = 12;

/// Contents of an acknowledgement.
struct Progress {
    /// Bytes acknowledged for the first time.
    acknowledged: u64,
    /// Bytes in flight before the acknowledgement.
    in_flight: u64,
    /// Whether data sent before the last loss event is still unacknowledged.
    recovering: bool,
    /// Whether the window or the pace has delayed data since the previous acknowledgement.
    flow_controlled: bool,
    /// Smoothed round trip; zero if none was measured.
    rtt: Duration,
}

/// Pacing sends a window in less than a round trip, so that the pace isn't the limit: at 6/5 of the
/// window, and at twice the window in slow start, where it doubles (as Linux does).
const PACING_GAIN: (u32, u32) = (6, 5);
const PACING_GAIN_SLOW_START: (u32, u32) = (2, 1);
/// While it yields, a window is sent evenly over its round trip, or else a long path's queue would
/// grow by a part of that round trip.
const PACING_GAIN_YIELDING: (u32, u32) = (21, 20);

/// `window` times `to / from`.
fn scale(window: u64, to: Duration, from: Duration) -> u64 {
    let scaled = u128::from(window) * to.as_nanos() / from.as_nanos().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The congestion window of one sender.
#[derive(Clone, Debug)]
pub struct Window {
    config: Config,
    cwnd: u64,
    /// Slow start threshold in bytes; unlimited before the first loss.
    ssthresh: u64,
    /// Bytes acknowledged towards the next segment of congestion avoidance.
    acked: u64,
    cubic: Cubic,
    /// Whether it yields to calls.
    yields: bool,
    /// The slow start threshold, or the window if that was larger, before it emptied the queue.
    before_pause: u64,
    /// Whether a delay has set the threshold, and not a loss.
    is_bound_by_delay: bool,
    /// Queueing delay by which congestion avoidance may grow in a round trip, where no queue forms.
    growth: Duration,
}

impl Window {
    /// Creates the window before anything was sent.
    pub fn new(config: Config) -> Window {
        let config = Config { segment: config.segment.clamp(1, 65_535), ..config };
        let segment = config.segment as u64;
        let config = Config { max: config.max.max(2 * segment), ..config };
        let cwnd = (segment * u64::from(config.initial.max(1))).min(config.max);
        Window {
            config,
            cwnd,
            ssthresh: u64::MAX,
            acked: 0,
            cubic: Cubic::default(),
            yields: false,
            before_pause: u64::MAX,
            is_bound_by_delay: false,
            growth: Duration::ZERO,
        }
    }

    /// Bytes that may be in flight.
    pub fn size(&self) -> u64 {
        self.cwnd
    }

    /// Whether the window still doubles in each round trip.
    pub fn is_in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Time that `bytes` take at the window's pace over a path with this round trip.
    pub fn pace(&self, bytes: usize, rtt: Duration) -> Duration {
        let (times, of) = match () {
            () if self.yields => PACING_GAIN_YIELDING,
            () if self.is_in_slow_start() => PACING_GAIN_SLOW_START,
            () => PACING_GAIN,
        };
        let nanos = rtt.as_nanos() * bytes as u128 * u128::from(of);
        let nanos = nanos / (u128::from(self.cwnd) * u128::from(times));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Handles an acknowledgement. In loss recovery the window stays unchanged; but after a timeout
    /// it grows while the lost data is retransmitted (RFC 5681, section 3.1), or else a whole
    /// window would be retransmitted at one packet per round trip.
    fn on_progress(&mut self, now: Time, progress: &Progress) {
        let Progress { acknowledged, in_flight, recovering, flow_controlled, rtt } = *progress;
        if recovering && !self.is_in_slow_start() {
            return;
        }
        let full = in_flight + self.config.segment as u64 > self.cwnd;
        let half_full = self.is_in_slow_start() && 2 * in_flight > self.cwnd;
        self.on_ack(now, acknowledged, rtt, full || half_full || flow_controlled);
    }

    /// Grows the window for `bytes` acknowledged bytes, unless it was not used up (RFC 7661):
    /// `limited` is whether it was.
    fn on_ack(&mut self, now: Time, bytes: u64, rtt: Duration, limited: bool) {
        if !limited {
            self.cubic.pause(now);
            return;
        }
        let mut left = bytes;
        if self.is_in_slow_start() {
            let up = self.in_slow_start(left, rtt).min(self.ssthresh - self.cwnd);
            self.cwnd += up;
            left = if self.is_in_slow_start() { 0 } else { left - up };
        }
        if left > 0 {
            let segment = self.config.segment as u64;
            if self.yields {
                self.cwnd += scale(left, self.growth, rtt).min(left / 2);
            }
            match self.config.algorithm {
                Algorithm::Reno => self.add(left),
                // Between two measurements of a delay, CUBIC may grow by more than the target.
                Algorithm::Cubic if self.yields => self.add(left),
                Algorithm::Cubic => {
                    self.cwnd += self.cubic.grow(now, self.cwnd, left, rtt, segment)
                }
            }
        }
        self.cwnd = self.cwnd.min(self.config.max);
    }

    /// Growth in slow start by `bytes` acknowledged bytes. A queue shows a round trip later: while it
    /// yields, that adds half a window at most, and on a long path whose rate is not known no more
    /// than [`OVERSHOOT`] takes.
    fn in_slow_start(&self, bytes: u64, rtt: Duration) -> u64 {
        match () {
            () if !self.yields => bytes,
            () if self.ssthresh == u64::MAX => (bytes / 2).min(scale(bytes, OVERSHOOT, rtt)),
            () => bytes / 2,
        }
    }

    /// Grows by a segment for each window acknowledged.
    fn add(&mut self, acknowledged: u64) {
        self.acked += acknowledged;
        if self.acked >= self.cwnd {
            self.acked -= self.cwnd;
            self.cwnd += self.config.segment as u64;
        }
    }

    /// Handles the loss of packets in flight; called once for all that were sent before the sender
    /// detected it, which is a loss event.
    pub fn on_loss(&mut self) {
        let segment = self.config.segment as u64;
        self.ssthresh = match self.config.algorithm {
            Algorithm::Reno => self.cwnd / 2,
            Algorithm::Cubic => self.cubic.on_loss(self.cwnd, segment),
        }
        .max(2 * segment);
        self.cwnd = self.ssthresh;
        self.acked = 0;
        (self.is_bound_by_delay, self.growth) = (false, Duration::ZERO);
    }

    /// Handles a packet that a queue on the path marked instead of dropping it; called at most once
    /// per round trip, as for losses. A queue that marks is short, so a smaller reduction than by
    /// half drains it: to 0.8 of the window, and with CUBIC to 0.85 (RFC 8511).
    pub fn on_mark(&mut self) {
        let segment = self.config.segment as u64;
        let stays = match self.config.algorithm {
            Algorithm::Reno => self.cwnd * 4 / 5,
            Algorithm::Cubic => {
                self.cubic.on_loss(self.cwnd, segment);
                self.cwnd * 17 / 20
            }
        };
        self.ssthresh = stays.max(2 * segment);
        self.cwnd = self.ssthresh;
        self.acked = 0;
    }

    /// The minimum window while it yields, in bytes: on a slow line, a second segment would double the
    /// queue.
    fn minimum(&self) -> u64 {
        self.config.segment as u64
    }

    /// Makes room for calls that share the path.
    fn on_delay(&mut self, adjustment: Adjustment) {
        let minimum = self.minimum();
        match adjustment {
            Adjustment::Drain => {
                self.before_pause = self.ssthresh.max(self.cwnd);
                (self.ssthresh, self.cwnd) = (minimum, minimum);
                self.growth = Duration::ZERO;
            }
            // Most of the rate at once and slow start for the rest, so that the pause costs little.
            Adjustment::Resume { window, at_once } => {
                // Slow start that has found no bound yet begins again.
                let is_bounded = self.before_pause < u64::MAX;
                let bound = window.map_or(self.before_pause, |window| window.max(minimum));
                self.ssthresh = if is_bounded { bound } else { u64::MAX };
                self.is_bound_by_delay = is_bounded;
                self.cwnd = at_once.max(2 * minimum).clamp(self.cwnd, self.config.max);
            }
            Adjustment::Fit { base, queue, .. } if queue > TARGET => {
                (self.is_bound_by_delay, self.growth) = (true, Duration::ZERO);
                let stays = scale(self.cwnd, base + TARGET, base + queue);
                self.cwnd = stays.max(self.cwnd / 2).max(minimum);
                self.ssthresh = self.cwnd;
                self.acked = 0;
                self.cubic.on_loss(self.cwnd, self.config.segment as u64);
            }
            Adjustment::Fit { queue, .. } if queue > TARGET / 2 => {
                if self.ssthresh > self.cwnd {
                    (self.ssthresh, self.is_bound_by_delay) = (self.cwnd, true);
                }
                self.growth = Duration::ZERO;
            }
            Adjustment::Fit { short, .. } => {
                let more = (short.saturating_sub(SHORT).div_ceil(2)).min(MOST_GROWTH);
                self.growth =
                    if self.is_bound_by_delay { TARGET / 8 * more } else { Duration::ZERO };
            }
        }
    }

    /// Undoes a reduction for a spurious loss, as the packet has arrived: the window is at least
    /// what it was `before`, but no longer in slow start (RFC 4015).
    pub fn undo(&mut self, before: &Window) {
        if before.cwnd > self.cwnd {
            *self = before.clone();
            self.ssthresh = self.ssthresh.min(self.cwnd);
        }
    }

    /// Handles an expiry of the retransmission timer without an acknowledgement (RFC 5681, section
    /// 3.1); `first` is whether this is the first in a row, since later ones only wait longer.
    pub fn on_timeout(&mut self, first: bool) {
        if first {
            self.on_loss();
        }
        self.cwnd = self.config.segment as u64;
        self.acked = 0;
    }

    /// Handles a pause longer than a timeout, after which the path's capacity is unknown: the
    /// window falls to the initial one (RFC 5681, section 4.1).
    pub fn on_idle(&mut self) {
        let initial = self.config.segment as u64 * u64::from(self.config.initial.max(1));
        self.cwnd = self.cwnd.min(initial);
        self.acked = 0;
        self.cubic = Cubic::default();
    }
}
