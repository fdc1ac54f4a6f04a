//! The driver's time: CLOCK_MONOTONIC, the same for every process of a host.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;
use trunkline_base::Time;

/// CLOCK_MONOTONIC, now.
///
/// # Panics
/// Never on Linux, where the clock exists and is past its epoch.
pub fn now() -> Time {
    Time::from_nanos(read(ClockId::CLOCK_MONOTONIC))
}

/// `time` as an absolute CLOCK_MONOTONIC time for a timer.
pub fn to_timespec(time: Time) -> TimeSpec {
    TimeSpec::from(Duration::from_nanos(time.as_nanos()))
}

/// Nanoseconds since 1970: grows from one start of a node to the next.
pub fn since_epoch() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

fn read(id: ClockId) -> u64 {
    let t = clock_gettime(id).expect("Linux has the clock");
    u64::try_from(Duration::from(t).as_nanos()).unwrap_or(u64::MAX)
}

/// Places the kernel's receive timestamps, which are CLOCK_REALTIME, on
/// CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct Stamps {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
    offset: i128,
}

impl Stamps {
    /// Learns the offset; once per wake-up follows every step and slew of the
    /// real-time clock.
    ///
    /// Being descheduled between the two readings would shift it. Hence a few
    /// attempts to read them together, and the monotonic clock last: what is
    /// left of the error makes a datagram seem to come later, never earlier.
    pub fn sample() -> Stamps {
        const TOGETHER: Duration = Duration::from_micros(2);
        let mut offset = 0;
        for _ in 0..4 {
            let (before, real, after) = (now(), since_epoch(), now());
            offset = i128::from(real) - i128::from(after.as_nanos());
            if after.since(before) < TOGETHER {
                break;
            }
        }
        Stamps { offset }
    }

    /// When the datagram stamped `stamp` (since 1970) arrived: no later than
    /// `now`, nor before its socket was last seen `empty`; a stepped clock says
    /// so. After a process had no time to run for a while, that may be long ago:
    /// what came meanwhile must not look as if its way had taken so long.
    pub fn place(&self, stamp: Duration, empty: Time, now: Time) -> Time {
        let nanos = i128::try_from(stamp.as_nanos()).unwrap_or(i128::MAX) - self.offset;
        let at = Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
        at.clamp(empty.min(now), now)
    }
}
