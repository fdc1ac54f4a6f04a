use crate::link::ring::Slot;
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A packet to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    /// Its place in the order: its deadline in nanoseconds, or its number in the fair one.
    pub key: u64,
    /// Order of arrival; odd for a retransmission. Both share one word: a job is copied for each
    /// packet, and reading one word that was written in pieces is slow.
    order: u64,
    pub slot: Slot,
}

impl Job {
    pub fn is_retransmission(&self) -> bool {
        self.order % 2 == 1
    }
}

/// A bounded queue of packets to be sent, least key first, then in the order of arrival.
///
/// Packets with the same time allowance arrive in the order of their deadlines and are kept in a
/// line, which costs a sixth less per forwarded packet than a heap of all. The heap takes those
/// that belong further forward.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    line: VecDeque<Job>,
    heap: BinaryHeap<Reverse<Job>>,
    max: usize,
    order: u64,
}

impl SendQueue {
    pub fn new(max: usize) -> SendQueue {
        SendQueue {
            line: VecDeque::with_capacity(max),
            heap: BinaryHeap::with_capacity(max),
            max,
            order: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.line.len() + self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.heap.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Adds a job; the caller has checked that there is room.
    pub fn push(&mut self, key: u64, slot: Slot, retransmit: bool) {
        self.order += 2;
        let job = Job { key, order: self.order + u64::from(retransmit), slot };
        if self.line.back().is_none_or(|last| last.key <= key) {
            self.line.push_back(job);
        } else {
            self.heap.push(Reverse(job));
        }
    }

    /// The job with the least key.
    pub fn first(&self) -> Option<&Job> {
        if self.is_in_heap() { self.heap.peek().map(|Reverse(job)| job) } else { self.line.front() }
    }

    /// Removes the first job and returns it.
    pub fn pop(&mut self) -> Option<Job> {
        if self.is_in_heap() {
            self.heap.pop().map(|Reverse(job)| job)
        } else {
            self.line.pop_front()
        }
    }

    /// The first job of those that came in order, and of those that overtake them.
    pub fn fronts(&self) -> impl Iterator<Item = &Job> {
        self.line.front().into_iter().chain(self.heap.peek().map(|Reverse(job)| job))
    }

    /// All jobs, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.line.iter().chain(self.heap.iter().map(|Reverse(job)| job))
    }

    /// Gives each job another key, in the order of arrival.
    pub fn reorder(&mut self, mut key: impl FnMut(&Job) -> u64) {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        all.extend(self.line.drain(..).map(Reverse));
        all.sort_unstable_by_key(|Reverse(job)| job.order);
        all.iter_mut().for_each(|Reverse(job)| job.key = key(job));
        all.sort_unstable_by_key(|Reverse(job)| *job);
        self.line.extend(all.drain(..).map(|Reverse(job)| job));
        self.heap = BinaryHeap::from(all);
    }

    /// Whether the first job is in the heap.
    fn is_in_heap(&self) -> bool {
        self.heap
            .peek()
            .is_some_and(|Reverse(job)| self.line.front().is_none_or(|first| job < first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the queue with a sorted list.
        #[test]
        fn the_earliest_goes_first(
            steps in prop::collection::vec(prop::option::of(0u64..20), 1..200),
            again in 1usize..20,
        ) {
            let mut queue = SendQueue::new(1_000);
            let mut model: Vec<(u64, Slot)> = Vec::new();
            for (slot, step) in (0..).zip(steps) {
                // Each job has another key, now and then.
                if slot as usize % again == again - 1 {
                    queue.reorder(|job| (job.key * 7 + 3) % 20);
                    model.iter_mut().for_each(|(key, _)| *key = (*key * 7 + 3) % 20);
                }
                match step {
                    Some(ms) => {
                        queue.push(ms, slot, false);
                        model.push((ms, slot));
                    }
                    None => {
                        model.sort_unstable();
                        let want = (!model.is_empty()).then(|| model.remove(0).1);
                        prop_assert_eq!(queue.pop().map(|job| job.slot), want);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
