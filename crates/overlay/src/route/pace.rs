//! A token bucket as one number: the generic cell rate algorithm (ITU-T I.371).

use core::time::Duration;
use trunkline_base::Time;

/// So many units per second, and so many at once after a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    per_unit: Duration,
    burst: Duration,
    /// When the bucket will be full again.
    full_at: Time,
}

impl Pace {
    /// `per_second` is at least 1.
    pub fn new(per_second: u32, burst: u32) -> Pace {
        let per_unit = Duration::from_nanos(1_000_000_000 / u64::from(per_second.max(1)));
        Pace { per_unit, burst: per_unit.saturating_mul(burst), full_at: Time::ZERO }
    }

    /// From when on anything may be taken. Something larger than what is left
    /// may: what follows waits for it.
    pub fn ready_at(&self) -> Time {
        self.full_at - self.burst
    }

    /// Whether anything is left, or about to be.
    pub fn ready(&self, now: Time) -> bool {
        self.full_at.since(now) <= self.burst
    }

    pub fn take(&mut self, now: Time, units: u32) {
        self.full_at = self.full_at.max(now) + self.per_unit.saturating_mul(units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut pace = Pace::new(100, 5);
        let mut taken = |from: u64, to: u64| {
            (from..to)
                .filter(|&ms| {
                    let now = Time::from_millis(ms);
                    let ok = pace.ready(now);
                    if ok {
                        pace.take(now, 1);
                    }
                    ok
                })
                .count()
        };
        // The last of the burst may be taken before it is whole.
        assert_eq!(taken(0, 1_000), 6 + 99);
        assert_eq!(taken(1_000, 2_000), 100);
        assert_eq!(taken(10_000, 10_003), 3);
    }
}
