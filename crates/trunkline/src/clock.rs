//! The driver's clock: CLOCK_MONOTONIC, shared by all processes of a host.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;
use trunkline_base::Time;

/// Reads CLOCK_MONOTONIC.
///
/// # Panics
/// Never on Linux, where the clock exists and is past its epoch.
pub fn now() -> Time {
    Time::from_nanos(read(ClockId::CLOCK_MONOTONIC))
}

/// Converts `time` to an absolute CLOCK_MONOTONIC time for a timer.
pub fn to_timespec(time: Time) -> TimeSpec {
    TimeSpec::from(Duration::from_nanos(time.as_nanos()))
}

/// Nanoseconds since 1970, which grow from one start of a node to the next.
pub fn since_epoch() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

fn read(id: ClockId) -> u64 {
    let t = clock_gettime(id).expect("Linux has the clock");
    u64::try_from(Duration::from(t).as_nanos()).unwrap_or(u64::MAX)
}

/// Converts the kernel's receive timestamps from CLOCK_REALTIME to CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct Stamps {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
    offset: i128,
}

impl Stamps {
    /// Samples the offset between the clocks. Sampling once per wake-up follows every step and slew
    /// of the real-time clock.
    ///
    /// Being descheduled between the two readings would shift the offset. The clocks are therefore
    /// read up to a few times until the readings are close together, the monotonic clock last: the
    /// remaining error makes a datagram seem to arrive later, never earlier.
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

    /// Arrival time of a datagram stamped `stamp` (since 1970): at most `now`, and at least
    /// `empty`, the time that its socket was last seen empty. The bounds absorb steps of the clock.
    /// If the process has not run for a while, `empty` may be long ago: waiting in the socket must
    /// not look like delay on the path.
    pub fn place(&self, stamp: Duration, empty: Time, now: Time) -> Time {
        let nanos = i128::try_from(stamp.as_nanos()).unwrap_or(i128::MAX) - self.offset;
        let at = Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
        at.clamp(empty.min(now), now)
    }
}
