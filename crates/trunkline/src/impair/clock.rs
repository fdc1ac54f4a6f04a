//! The relay's clock: CLOCK_MONOTONIC since the start of the run, where the loss processes begin.

use crate::clock::{self, Stamps};
use nix::sys::time::TimeSpec;
use std::time::Duration;
use trunkline_base::Time;

/// A clock that starts with the run; see the module.
#[derive(Debug)]
pub struct Clock {
    start: Time,
    stamps: Stamps,
}

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Clock {
        Clock { start: clock::now(), stamps: Stamps::sample() }
    }

    /// Samples the clock offset. Call it once per wake-up, before [`Clock::place`].
    pub fn sample(&mut self) {
        self.stamps = Stamps::sample();
    }

    /// Time since the start of the run.
    pub fn now(&self) -> Time {
        Time::ZERO + clock::now().since(self.start)
    }

    /// Arrival time of a datagram that the kernel stamped `stamp` (CLOCK_REALTIME); never in the
    /// future.
    pub fn place(&self, stamp: TimeSpec) -> Time {
        // After a step of the clock, a datagram would seem to have waited longer.
        const OLDEST: Duration = Duration::from_millis(200);
        let now = clock::now();
        let at = self.stamps.place(Duration::from(stamp), now - OLDEST, now);
        Time::ZERO + at.since(self.start)
    }

    /// Converts `time` to CLOCK_MONOTONIC, for an absolute timer.
    pub fn to_monotonic(&self, time: Time) -> TimeSpec {
        clock::to_timespec(self.start + time.since(Time::ZERO))
    }
}
