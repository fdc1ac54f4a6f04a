//! Slots: when whose backoff ends.

use super::phy::SLOT;
use core::time::Duration;
use trunkline_base::Time;

/// The slot boundaries of everybody who waits equally long after the medium is busy,
/// counted since the beginning.
///
/// At each boundary an access function either transmits, if its backoff is over, or
/// takes one from it (IEEE 802.11e-2005, 9.9.1.3): also at the one at which another
/// begins to transmit. So a backoff drawn while `passed` boundaries have been ends
/// at boundary `passed` + backoff, and needn't be touched until then.
pub struct Grid {
    aifs: Duration,
    /// When the first boundary of this idle time is: a multiple of slots before or
    /// after all others' first.
    first: Time,
    /// The number of that boundary: so many have passed before.
    passed: u64,
}

impl Grid {
    pub fn new(aifs: Duration) -> Grid {
        Grid { aifs, first: Time::ZERO, passed: 0 }
    }

    /// When a boundary is, if the medium stays idle; of one that has passed, the
    /// next.
    pub fn at(&self, boundary: u64) -> Time {
        let slots = boundary.saturating_sub(self.passed);
        let nanos = slots.saturating_mul(SLOT.as_nanos() as u64);
        self.first + Duration::from_nanos(nanos)
    }

    /// The first boundary of this idle time that isn't before `now`.
    pub fn from(&self, now: Time) -> u64 {
        self.passed + now.since(self.first).as_nanos().div_ceil(SLOT.as_nanos()) as u64
    }

    /// How many boundaries have been, up to when the medium became busy last.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// The medium becomes busy at `at`: a boundary then is the last to pass.
    pub fn busy(&mut self, at: Time) {
        if at >= self.first {
            let slots = at.since(self.first).as_nanos() / SLOT.as_nanos();
            self.passed += slots as u64 + 1;
        }
        self.first = Time::NEVER;
    }

    /// The medium is idle from `at` on.
    pub fn idle(&mut self, at: Time) {
        self.first = at + self.aifs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_counts_for_those_who_hear_another_begin() {
        let us = Time::from_micros;
        let mut grid = Grid::new(Duration::from_micros(34));
        grid.idle(us(100));
        assert_eq!((grid.at(0), grid.at(3)), (us(134), us(161)));
        assert_eq!([134, 135, 143, 144].map(|t| grid.from(us(t))), [0, 1, 1, 2]);
        assert_eq!(grid.from(us(90)), 0);
        // At 152 boundary 2 is: three have passed, so a backoff of 3 is over.
        grid.busy(us(152));
        assert_eq!(grid.passed(), 3);
        grid.idle(us(500));
        assert_eq!(grid.at(3), us(534));
        // Busy again before anything could pass.
        grid.busy(us(525));
        assert_eq!(grid.passed(), 3);
        grid.idle(us(600));
        assert_eq!((grid.at(1), grid.at(4)), (us(634), us(643)));
    }
}
