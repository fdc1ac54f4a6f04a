//! Sets of sequence numbers, stored as ranges.

use std::collections::VecDeque;

/// A set of numbers as ascending ranges that neither overlap nor touch, each from its first number
/// to before its last.
#[derive(Clone, Debug, Default)]
pub struct Ranges(VecDeque<(u64, u64)>);

impl Ranges {
    /// Adds `start..end`, and returns the range of the set that contains it now.
    pub fn insert(&mut self, start: u64, end: u64) -> (u64, u64) {
        let from = self.0.partition_point(|r| r.1 < start);
        let to = self.0.partition_point(|r| r.0 <= end);
        if from >= to {
            self.0.insert(from, (start, end));
            return (start, end);
        }
        let merged = (start.min(self.0[from].0), end.max(self.0[to - 1].1));
        self.0[from] = merged;
        if to - from > 1 {
            self.0.drain(from + 1..to);
        }
        merged
    }

    /// Whether all of `start..end` is in the set.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.0.partition_point(|r| r.1 < end);
        self.0.get(at).is_some_and(|r| r.0 <= start && end <= r.1)
    }

    /// Appends the parts of `start..end` that are not in the set to `out`.
    pub fn gaps(&self, mut start: u64, end: u64, out: &mut Vec<(u64, u64)>) {
        let from = self.0.partition_point(|r| r.1 <= start);
        for &(left, right) in self.0.range(from..) {
            if left >= end {
                break;
            }
            if left > start {
                out.push((start, left));
            }
            start = right;
        }
        if start < end {
            out.push((start, end));
        }
    }

    /// Removes all numbers below `at`.
    pub fn drop_below(&mut self, at: u64) {
        while self.0.front().is_some_and(|r| r.1 <= at) {
            self.0.pop_front();
        }
        if let Some(first) = self.0.front_mut() {
            first.0 = first.0.max(at);
        }
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Number of ranges in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all numbers from the set.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_agree_with_a_set(
            inserts in prop::collection::vec((0u64..60, 1u64..9), 1..30),
            below in 0u64..20,
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len) in inserts {
                let end = start + len;
                let mut gaps = Vec::new();
                ranges.gaps(start, end, &mut gaps);
                let missing: Vec<u64> = gaps.iter().flat_map(|g| g.0..g.1).collect();
                let new: Vec<u64> = (start..end).filter(|n| !set.contains(n)).collect();
                prop_assert_eq!(missing, new);
                set.extend(start..end);
                let (left, right) = ranges.insert(start, end);
                prop_assert!((left..right).all(|n| set.contains(&n)));
                prop_assert!(!set.contains(&right) && (left == 0 || !set.contains(&(left - 1))));
                prop_assert!(ranges.covers(start, end));
            }
            ranges.drop_below(below);
            set.retain(|&n| n >= below);
            let all: Vec<u64> = ranges.iter().flat_map(|r| r.0..r.1).collect();
            prop_assert_eq!(all, set.iter().copied().collect::<Vec<_>>());
            for start in 0..70 {
                let covered = (start..start + 3).all(|n| set.contains(&n));
                prop_assert_eq!(ranges.covers(start, start + 3), covered);
            }
        }
    }
}
