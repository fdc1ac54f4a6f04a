//! Memory that a peak has left behind: the allocator keeps freed memory for later, which others on
//! the machine may need sooner.

use crate::sys;
use std::time::Duration;
use trunkline_base::Time;

/// Interval between two looks at the allocator.
const EVERY: Duration = Duration::from_secs(30);
/// Bytes that the allocator may keep.
const KEPT: usize = 16 << 20;

/// Gives freed memory back to the system, within a minute.
pub struct HeapTrimmer {
    next: Time,
}

impl HeapTrimmer {
    pub fn new(now: Time) -> HeapTrimmer {
        HeapTrimmer { next: now + EVERY }
    }

    /// Gives memory back, if it is time to look and the allocator keeps much more than is in use.
    pub fn look(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        if let Some((used, free)) = sys::heap()
            && free > KEPT.max(used / 2)
        {
            sys::trim_heap();
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Bytes of this process that are in memory.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.unwrap_or(0) * 4_096
    }

    #[test]
    fn a_peak_is_given_back() {
        // Small pieces, of which one in a thousand stays and holds its surroundings.
        let mut pieces: Vec<Box<[u8; 1_000]>> =
            (0..200_000).map(|_| Box::new([7; 1_000])).collect();
        let peak = resident();
        let mut n = 0;
        pieces.retain(|_| {
            n += 1;
            n % 1_000 == 0
        });
        let mut trimmer = HeapTrimmer::new(Time::ZERO);
        trimmer.look(Time::ZERO + EVERY);
        let now = resident();
        assert!(now + (150 << 20) < peak, "{peak} bytes, then {now}");
    }
}
