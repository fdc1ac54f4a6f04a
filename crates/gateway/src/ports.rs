//! Which of the ports for media are free.

use core::ops::RangeInclusive;
use std::collections::VecDeque;

/// Pairs of ports: the first is even, for RTP; its successor is for RTCP (RFC 3550, 11).
#[derive(Debug)]
pub(crate) struct Ports {
    /// That which has been free longest is first, lest packets of one call come to the
    /// next.
    free: VecDeque<u16>,
}

impl Ports {
    /// The pairs in `range`, from a place in it that differs from one start to the next.
    pub fn new(range: &RangeInclusive<u16>, start: u64) -> Ports {
        let fits = |port: &u16| *port < *range.end();
        let first = range.start().checked_next_multiple_of(2).unwrap_or(u16::MAX);
        let mut free: VecDeque<u16> = (first..=*range.end()).step_by(2).filter(fits).collect();
        if !free.is_empty() {
            free.rotate_left((start % free.len() as u64) as usize);
        }
        Ports { free }
    }

    /// A pair that `open` can have; each is asked for once, at most eight are.
    pub fn take(&mut self, mut open: impl FnMut(u16) -> bool) -> Option<u16> {
        for _ in 0..8.min(self.free.len()) {
            let port = self.free.pop_front()?;
            if open(port) {
                return Some(port);
            }
            self.free.push_back(port);
        }
        None
    }

    pub fn give_back(&mut self, port: u16) {
        self.free.push_back(port);
    }

    /// How many pairs are free.
    pub fn len(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_even_and_come_back_last() {
        let mut ports = Ports::new(&(10_001..=10_007), 1);
        assert_eq!(ports.len(), 3);
        assert_eq!(ports.take(|_| true), Some(10_004));
        ports.give_back(10_004);
        // Somebody else has one.
        assert_eq!(ports.take(|port| port != 10_006), Some(10_002));
        assert_eq!(ports.take(|_| true), Some(10_004));
        assert_eq!(ports.take(|_| true), Some(10_006));
        assert_eq!(ports.take(|_| true), None);
        for range in [0..=0, 65_535..=65_535, 9..=9] {
            assert_eq!(Ports::new(&range, 5).len(), 0, "{range:?}");
        }
        assert_eq!(Ports::new(&(65_534..=65_535), 0).len(), 1);
    }
}
