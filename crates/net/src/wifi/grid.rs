//! Slot grids: the time at which a backoff ends.

use super::phy::SLOT;
use core::time::Duration;
use trunkline_base::Time;

/// The slot boundaries of all access functions with the same AIFS, counted since the beginning.
///
/// At each boundary an access function either transmits, if its backoff has ended, or decrements it
/// (IEEE 802.11e-2005, 9.9.1.3), even at a boundary where another function begins to transmit. So a
/// backoff drawn after `passed` boundaries ends at boundary `passed` + backoff, and needn't be
/// updated until then.
pub struct Grid {
    aifs: Duration,
    /// Time of the first boundary of this idle time; it differs from that of every other grid by a
    /// whole number of slots.
    first: Time,
    /// Number of that boundary: the count of boundaries passed before.
    passed: u64,
}

impl Grid {
    pub fn new(aifs: Duration) -> Grid {
        Grid { aifs, first: Time::ZERO, passed: 0 }
    }

    /// Time of a boundary if the medium stays idle; for a past one, the time of the next.
    pub fn at(&self, boundary: u64) -> Time {
        let slots = boundary.saturating_sub(self.passed);
        let nanos = slots.saturating_mul(SLOT.as_nanos() as u64);
        self.first + Duration::from_nanos(nanos)
    }

    /// The first boundary of this idle time that isn't before `now`.
    pub fn from(&self, now: Time) -> u64 {
        self.passed + now.since(self.first).as_nanos().div_ceil(SLOT.as_nanos()) as u64
    }

    /// Number of boundaries passed by the time that the medium last became busy.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Makes the medium busy at `at`: a boundary at that time is the last to pass.
    pub fn busy(&mut self, at: Time) {
        if at >= self.first {
            let slots = at.since(self.first).as_nanos() / SLOT.as_nanos();
            self.passed += slots as u64 + 1;
        }
        self.first = Time::NEVER;
    }

    /// Makes the medium idle from `at` on.
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
        // 152 is boundary 2: three have passed, so a backoff of 3 has ended.
        grid.busy(us(152));
        assert_eq!(grid.passed(), 3);
        grid.idle(us(500));
        assert_eq!(grid.at(3), us(534));
        // Busy again before any boundary passed.
        grid.busy(us(525));
        assert_eq!(grid.passed(), 3);
        grid.idle(us(600));
        assert_eq!((grid.at(1), grid.at(4)), (us(634), us(643)));
    }
}
