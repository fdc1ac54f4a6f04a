//! Meters that both ends of a link feed from their normal traffic.

use crate::counters::ReceiverStats;
use core::time::Duration;
use trunkline_base::{Bitrate, Time};

/// Interarrival jitter of hellos (RFC 3550, 6.4.1): the smoothed difference between the intervals
/// at which two were sent and received.
#[derive(Debug, Default)]
pub(super) struct Jitter {
    last: Option<(u16, u32, Time)>,
    micros: Option<f64>,
}

/// A difference above this is due to a clock that jumped, and is not jitter.
const ABSURD: f64 = 10e6;

impl Jitter {
    pub fn on_hello(&mut self, at: Time, seq: u16, sent_us: u32) {
        let Some((last_seq, last_sent, last_at)) = self.last else {
            self.last = Some((seq, sent_us, at));
            return;
        };
        // A reordered hello shows little about the path now.
        if (seq.wrapping_sub(last_seq) as i16) <= 0 {
            return;
        }
        self.last = Some((seq, sent_us, at));
        let sent = f64::from(sent_us.wrapping_sub(last_sent));
        let came = at.since(last_at).as_micros() as f64;
        let difference = (came - sent).abs();
        if difference < ABSURD {
            let before = self.micros.unwrap_or(0.0);
            self.micros = Some(before + (difference - before) / 16.0);
        }
    }

    /// The sender has restarted its numbering.
    pub fn restart(&mut self) {
        self.last = None;
    }

    pub fn get(&self) -> Option<Duration> {
        self.micros.map(|us| Duration::from_nanos((us * 1e3) as u64))
    }
}

/// A byte rate, averaged with a time constant of two seconds: suitable for a display.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    before: Option<(Time, u64)>,
    bytes_per_second: f64,
}

const MEMORY: f64 = 2.0;

impl Throughput {
    /// Takes the total number of bytes transferred so far.
    pub fn update(&mut self, now: Time, bytes: u64) {
        let Some((then, before)) = self.before else {
            self.before = Some((now, bytes));
            return;
        };
        let seconds = now.since(then).as_secs_f64();
        // Probes may be as little as 10 ms apart; such short intervals give no useful rate.
        if seconds < 0.1 {
            return;
        }
        self.before = Some((now, bytes));
        let rate = bytes.saturating_sub(before) as f64 / seconds;
        let weight = 1.0 - libm::exp(-seconds / MEMORY);
        self.bytes_per_second += weight * (rate - self.bytes_per_second);
    }

    pub fn get(&self) -> Bitrate {
        Bitrate::from_bps((self.bytes_per_second * 8.0) as u64)
    }
}

/// Share of real-time packets that did not arrive in spite of recovery.
#[derive(Debug, Default)]
pub(super) struct Residual {
    before: ReceiverStats,
    expected: f64,
    missed: f64,
}

/// Packets needed for an estimate, and packets from which on older ones fade.
const ENOUGH: f64 = 500.0;
const PLENTY: f64 = 20_000.0;

impl Residual {
    pub fn update(&mut self, now: ReceiverStats) {
        let before = core::mem::replace(&mut self.before, now);
        let new = |pick: fn(&ReceiverStats) -> u64| pick(&now) as f64 - pick(&before) as f64;
        // Packets filled now may have been missing before: over time the sums agree.
        let missed = new(|s| s.missing) - new(|s| s.filled);
        let expected = new(|s| s.received) + missed;
        // Losses in an outage are not residual loss.
        if missed > 0.9 * expected {
            return;
        }
        self.expected += expected;
        self.missed += missed;
        if self.expected > PLENTY {
            self.expected /= 2.0;
            self.missed /= 2.0;
        }
    }

    /// Discards the estimate: the link has changed.
    pub fn forget(&mut self) {
        (self.expected, self.missed) = (0.0, 0.0);
    }

    pub fn get(&self) -> Option<f64> {
        (self.expected >= ENOUGH).then(|| (self.missed / self.expected).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_of_distances_and_not_of_clocks() {
        let mut steady = Jitter::default();
        let mut shaken = Jitter::default();
        for k in 0..500u32 {
            // The sender's clock wraps meanwhile, and has another offset.
            let sent = (u32::MAX - 20_000_000).wrapping_add(k * 200_000);
            let at = Time::from_millis(7_000 + 200 * u64::from(k));
            steady.on_hello(at, k as u16, sent);
            let late = Duration::from_millis(if k % 2 == 0 { 0 } else { 6 });
            shaken.on_hello(at + late, k as u16, sent);
        }
        assert_eq!(steady.get(), Some(Duration::ZERO));
        let jitter = shaken.get().unwrap_or_default().as_secs_f64();
        assert!((jitter - 0.006).abs() < 1e-4, "{jitter}");
    }

    #[test]
    fn throughput_follows_within_seconds_and_fades() {
        let mut t = Throughput::default();
        let mut bytes = 0;
        for k in 0..100 {
            t.update(Time::from_millis(200 * k), bytes);
            bytes += 2_000;
        }
        let bps = t.get().as_bps();
        assert!((79_000..=80_000).contains(&bps), "{bps}");
        (100..200).for_each(|k| t.update(Time::from_millis(200 * k), bytes));
        assert!(t.get().as_bps() < 100);
    }

    #[test]
    fn what_recovery_leaves_is_known_when_there_was_traffic() {
        let mut r = Residual::default();
        let stats =
            |received, missing, filled| ReceiverStats { received, missing, filled, asked: 0 };
        r.update(stats(400, 20, 0));
        assert_eq!(r.get(), None);
        // Retransmissions of earlier packets arrive now.
        r.update(stats(1_000, 50, 45));
        assert_eq!(r.get(), Some(5.0 / 1_005.0));
        r.update(stats(1_001, 5_050, 45));
        assert_eq!(r.get(), Some(5.0 / 1_005.0), "an outage");
        r.forget();
        assert_eq!(r.get(), None);
    }
}
