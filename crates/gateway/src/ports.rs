//! The pool of free media ports.

use core::ops::RangeInclusive;
use rand::RngExt as _;
use rand::rngs::ChaCha20Rng;
use std::collections::VecDeque;

/// Pairs of ports: the first is even, for RTP; the next is for RTCP (RFC 3550, 11).
#[derive(Debug)]
pub(crate) struct Ports {
    /// Free pairs, longest free first, so that stray packets of an ended call don't reach the next
    /// one.
    free: VecDeque<u16>,
    /// Makes the next port unpredictable, so that no attacker can send to it before the phone does.
    rng: ChaCha20Rng,
}

impl Ports {
    /// All pairs in `range`, to be drawn with `rng`.
    pub fn new(range: &RangeInclusive<u16>, rng: ChaCha20Rng) -> Ports {
        let fits = |port: &u16| *port < *range.end();
        let first = range.start().checked_next_multiple_of(2).unwrap_or(u16::MAX);
        let free = (first..=*range.end()).step_by(2).filter(fits).collect();
        Ports { free, rng }
    }

    /// Takes a pair from the half that has been free longer, if `open` succeeds for it; tries up to
    /// eight.
    pub fn take(&mut self, mut open: impl FnMut(u16) -> bool) -> Option<u16> {
        for _ in 0..8.min(self.free.len()) {
            let drawn = self.rng.random_range(0..self.free.len().div_ceil(2));
            let port = self.free.swap_remove_front(drawn)?;
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

    /// Number of free pairs.
    pub fn len(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use std::collections::BTreeSet;

    fn pool(range: RangeInclusive<u16>, seed: u64) -> Ports {
        Ports::new(&range, ChaCha20Rng::seed_from_u64(seed))
    }

    #[test]
    fn pairs_are_even_and_there_are_as_many_as_fit() {
        let mut ports = pool(10_001..=10_007, 1);
        assert_eq!(ports.len(), 3);
        // Another process has this one.
        let mut take = || ports.take(|port| port != 10_006);
        let mut taken = [take(), take()];
        taken.sort();
        assert_eq!(taken, [Some(10_002), Some(10_004)]);
        assert_eq!(take(), None);
        assert_eq!(ports.take(|_| true), Some(10_006));
        assert_eq!(ports.take(|_| true), None);
        for range in [0..=0, 65_535..=65_535, 9..=9] {
            assert_eq!(pool(range.clone(), 5).len(), 0, "{range:?}");
        }
        assert_eq!(pool(65_534..=65_535, 0).len(), 1);
    }

    #[test]
    fn nobody_can_tell_which_is_next_but_it_is_not_the_last_that_came_back() {
        let next = |seed| {
            let mut ports = pool(10_000..=10_999, seed);
            let first = ports.take(|_| true);
            (first, ports.take(|_| true))
        };
        let drawn: BTreeSet<_> = (0..50).map(next).collect();
        assert!(drawn.len() > 45, "{drawn:?}");
        let steps: BTreeSet<_> =
            drawn.iter().filter_map(|(a, b)| Some(b.as_ref()?.wrapping_sub((*a)?))).collect();
        assert!(steps.len() > 40, "{steps:?}");
        let mut ports = pool(10_000..=10_099, 7);
        for _ in 0..200 {
            let port = ports.take(|_| true).expect("a port");
            ports.give_back(port);
            assert_ne!(ports.take(|_| true).inspect(|port| ports.give_back(*port)), Some(port));
        }
    }
}
