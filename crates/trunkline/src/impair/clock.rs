//! The relay's time: CLOCK_MONOTONIC, from the start of the run.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use trunkline_base::Time;

/// Reads the monotonic clock and places the kernel's receive timestamps,
/// which are CLOCK_REALTIME, on it.
#[derive(Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC at [`Time::ZERO`], ns.
    start: i128,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
    offset: i128,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> nix::Result<Clock> {
        let mut clock = Clock { start: read(ClockId::CLOCK_MONOTONIC)?, offset: 0 };
        clock.sample()?;
        Ok(clock)
    }

    /// Learns the offset between the clocks; once per wake-up follows every
    /// step and slew of the real-time clock.
    ///
    /// Being descheduled between the two readings would shift it. Hence a few
    /// attempts to read them together, and the monotonic clock last: what is
    /// left of the error makes a packet seem to come later, never earlier, so
    /// that none is sent before its delay has passed.
    pub fn sample(&mut self) -> nix::Result<()> {
        const TOGETHER: i128 = 2_000;
        for _ in 0..4 {
            let before = read(ClockId::CLOCK_MONOTONIC)?;
            let real = read(ClockId::CLOCK_REALTIME)?;
            let after = read(ClockId::CLOCK_MONOTONIC)?;
            self.offset = real - after;
            if after - before < TOGETHER {
                break;
            }
        }
        Ok(())
    }

    /// Now.
    pub fn now(&self) -> nix::Result<Time> {
        Ok(self.since_start(read(ClockId::CLOCK_MONOTONIC)?))
    }

    /// A receive timestamp (CLOCK_REALTIME) as a time of ours, which may lie after now if the
    /// clock was stepped: the caller clamps.
    pub fn place(&self, stamp: TimeSpec) -> Time {
        self.since_start(nanos(stamp) - self.offset)
    }

    /// `time` as CLOCK_MONOTONIC, for an absolute timer.
    pub fn to_monotonic(&self, time: Time) -> TimeSpec {
        let nanos = u64::try_from(self.start + i128::from(time.as_nanos())).unwrap_or(u64::MAX);
        TimeSpec::from(Duration::from_nanos(nanos))
    }

    fn since_start(&self, nanos: i128) -> Time {
        Time::from_nanos(u64::try_from((nanos - self.start).max(0)).unwrap_or(u64::MAX))
    }
}

fn read(id: ClockId) -> nix::Result<i128> {
    clock_gettime(id).map(nanos)
}

fn nanos(t: TimeSpec) -> i128 {
    i128::from(t.tv_sec()) * 1_000_000_000 + i128::from(t.tv_nsec())
}
