use crate::link::ring::Slot;
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use trunkline_base::Time;

/// Something to send: ordered by deadline, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub deadline: Time,
    /// By arrival; odd for a repetition. One word for both: a job is copied for each
    /// packet, and what was written in pieces is slow to read as one.
    order: u64,
    pub slot: Slot,
}

impl Job {
    pub fn is_retransmission(&self) -> bool {
        self.order % 2 == 1
    }
}

/// What waits to be sent, earliest deadline first, at most so many.
///
/// Packets of one deadline come in the order of their deadlines: those stand in
/// a line, which costs a sixth less per forwarded packet than a heap of all. The
/// heap is for those that would have to stand further forward.
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

    /// Adds a job; the caller has seen that there is room.
    pub fn push(&mut self, deadline: Time, slot: Slot, retransmit: bool) {
        self.order += 2;
        let job = Job { deadline, order: self.order + u64::from(retransmit), slot };
        if self.line.back().is_none_or(|last| last.deadline <= deadline) {
            self.line.push_back(job);
        } else {
            self.heap.push(Reverse(job));
        }
    }

    /// The earliest job.
    pub fn first(&self) -> Option<&Job> {
        if self.is_in_heap() { self.heap.peek().map(|Reverse(job)| job) } else { self.line.front() }
    }

    /// Takes the earliest job out.
    pub fn pop(&mut self) -> Option<Job> {
        if self.is_in_heap() {
            self.heap.pop().map(|Reverse(job)| job)
        } else {
            self.line.pop_front()
        }
    }

    /// Where the earliest job is.
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
        /// Against a sorted list.
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
