//! Memory that a peak has left behind: the allocator keeps freed memory for later, which others on
//! the machine may need sooner. Only glibc's allocator needs a request to return it, or has one.

use crate::{clock, sys};
use std::time::Duration;
use trunkline_base::Time;

/// Interval between two looks at the allocator.
const EVERY: Duration = Duration::from_secs(30);
/// Bytes that the allocator may keep.
const KEPT: usize = 8 << 20;

/// Gives freed memory back to the system, within a minute.
///
/// That takes a millisecond for each 5 MiB of a thread's memory, in which that thread must wait if
/// it allocates. So it is done after peaks only. A packet thread allocates for new sessions and
/// flows, not for packets, and frees some tens of MiB after a peak of these: ten milliseconds. The
/// buffers of streams, which are larger, are returned at once ([`sys::keep_little_memory`]).
pub struct HeapTrimmer {
    next: Time,
    /// Bytes of this process that were in memory after the last time, or later if less.
    resident: usize,
}

impl HeapTrimmer {
    pub fn new(now: Time) -> HeapTrimmer {
        HeapTrimmer { next: now + EVERY, resident: 0 }
    }

    /// Gives memory back, if it is time to look, the allocator keeps much, and the process has grown
    /// since the last time: free memory that has been given back still counts as kept.
    pub fn look(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let Some((used, free)) = sys::heap() else { return };
        let resident = resident();
        self.resident = self.resident.min(resident);
        if free > KEPT.max(used / 4) && resident - self.resident > KEPT {
            sys::trim_heap();
            self.resident = self::resident();
        }
    }
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * sys::page_size()
}

/// Gives memory back in a thread of its own, for as long as the process lasts.
pub fn trim_in_background() {
    let forever = || {
        let mut trimmer = HeapTrimmer::new(clock::now());
        loop {
            std::thread::sleep(EVERY);
            trimmer.look(clock::now());
        }
    };
    // Without the thread, the memory stays as it is.
    if sys::heap().is_some() {
        let _ = std::thread::Builder::new().name("memory".into()).spawn(forever);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_given_back() {
        let mut trimmer = HeapTrimmer::new(Time::ZERO);
        let mut left = Vec::new();
        for round in 1..=2 {
            // Small pieces, of which one in a thousand stays and holds its surroundings.
            let mut pieces: Vec<_> = (0..40_000).map(|_| Box::new([7_u8; 1_000])).collect();
            let peak = resident();
            left.extend(pieces.drain(..).step_by(1_000));
            trimmer.look(Time::ZERO + EVERY * round);
            let now = resident();
            assert!(now + (30 << 20) < peak, "round {round}: {peak} bytes, then {now}");
        }
    }
}
