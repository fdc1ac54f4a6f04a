//! The relay's time: CLOCK_MONOTONIC, from the start of the run, since that is
//! where the loss processes begin.

use crate::clock::{self, Stamps};
use nix::sys::time::TimeSpec;
use std::time::Duration;
use trunkline_base::Time;

/// The time since the start of the run; see the module.
#[derive(Debug)]
pub struct Clock {
    start: Time,
    stamps: Stamps,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock { start: clock::now(), stamps: Stamps::sample() }
    }

    /// To be called once per wake-up, before [`Clock::place`].
    pub fn sample(&mut self) {
        self.stamps = Stamps::sample();
    }

    /// The present time, counted from the start of the run.
    pub fn now(&self) -> Time {
        Time::ZERO + clock::now().since(self.start)
    }

    /// When the datagram that the kernel stamped `stamp` (CLOCK_REALTIME)
    /// arrived; not after now.
    pub fn place(&self, stamp: TimeSpec) -> Time {
        // After a step of the clock a datagram would seem to have waited for longer.
        const OLDEST: Duration = Duration::from_millis(200);
        let now = clock::now();
        let at = self.stamps.place(Duration::from(stamp), now - OLDEST, now);
        Time::ZERO + at.since(self.start)
    }

    /// `time` as CLOCK_MONOTONIC, for an absolute timer.
    pub fn to_monotonic(&self, time: Time) -> TimeSpec {
        clock::to_timespec(self.start + time.since(Time::ZERO))
    }
}
