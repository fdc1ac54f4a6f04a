use crate::link::ring::Slot;
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use trunkline_base::Time;

/// A packet to be sent: ordered by deadline, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub deadline: Time,
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

/// A bounded queue of packets to be sent, earliest deadline first.
///
/// Packets with the same time allowance arrive in the order of their deadlines and are kept in a
/// line, which costs a sixth less per forwarded packet than a heap of all. The heap takes those
/// that belong further forward.
#[derive(Debug)]
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

    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Adds a job; the caller has checked that there is room.
    pub fn push(&mut self, deadline: Time, slot: Slot, retransmit: bool) {
        self.order += 2;
        let job = Job { deadline, order: self.order + u64::from(retransmit), slot };
        if self.line.back().is_none_or(|last| last.deadline <= deadline) {
            self.line.push_back(job);
        } else {
            self.heap.push(Reverse(job));
        }
    }

    /// The job with the earliest deadline.
    pub fn first(&self) -> Option<&Job> {
        if self.is_in_heap() { self.heap.peek().map(|Reverse(job)| job) } else { self.line.front() }
    }

    /// Removes the earliest job and returns it.
    pub fn pop(&mut self) -> Option<Job> {
        if self.is_in_heap() {
            self.heap.pop().map(|Reverse(job)| job)
        } else {
            self.line.pop_front()
        }
    }

    /// Whether the earliest job is in the heap.
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
        ) {
            let mut queue = SendQueue::new(1_000);
            let mut model: Vec<(u64, Slot)> = Vec::new();
            for (slot, step) in (0..).zip(steps) {
                match step {
                    Some(ms) => {
                        queue.push(Time::from_millis(ms), slot, false);
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
