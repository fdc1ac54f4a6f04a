use super::wheel::Wheel;
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

/// Where a job is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Part {
    #[default]
    Line,
    Heap,
    Wheel,
}

impl Job {
    pub fn is_retransmission(&self) -> bool {
        self.order % 2 == 1
    }
}

/// A bounded queue of packets to be sent, least key first, then in the order of arrival.
///
/// Packets with the same time allowance arrive in the order of their deadlines and are kept in a
/// line, which costs a sixth less per forwarded packet than a heap of all. Those that belong
/// further forward are in the heap, or in the fair order in a wheel: there are many of them where
/// many sources have packets.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    line: VecDeque<Job>,
    heap: BinaryHeap<Reverse<Job>>,
    wheel: Wheel,
    /// Number of jobs that are not in the line.
    overtaking: usize,
    /// Where the first job is.
    front: Part,
    is_fair: bool,
    max: usize,
    order: u64,
}

impl SendQueue {
    pub fn new(max: usize) -> SendQueue {
        SendQueue {
            line: VecDeque::with_capacity(max),
            heap: BinaryHeap::with_capacity(max),
            wheel: Wheel::new(max),
            overtaking: 0,
            front: Part::Line,
            is_fair: false,
            max,
            order: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.line.len() + self.overtaking
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.overtaking == 0
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Adds a job; the caller has checked that there is room.
    #[inline]
    pub fn push(&mut self, key: u64, slot: Slot, retransmit: bool) {
        self.order += 2;
        let job = Job { key, order: self.order + u64::from(retransmit), slot };
        match self.line.back() {
            Some(last) if last.key <= key => {}
            None if self.overtaking == 0 => self.front = Part::Line,
            _ => return self.push_to_parts(job),
        }
        self.line.push_back(job);
    }

    fn push_to_parts(&mut self, job: Job) {
        let is_first = self.first().is_none_or(|first| job < *first);
        // In the fair order, a key is hardly ever less than one that has left.
        let part = if self.line.is_empty() {
            self.line.push_back(job);
            Part::Line
        } else if self.is_fair && self.wheel.push(job) {
            Part::Wheel
        } else {
            self.heap.push(Reverse(job));
            Part::Heap
        };
        self.overtaking += usize::from(part != Part::Line);
        if is_first {
            self.front = part;
        }
    }

    /// The job with the least key.
    #[inline]
    pub fn first(&self) -> Option<&Job> {
        match self.front {
            Part::Line => self.line.front(),
            Part::Heap => self.heap.peek().map(|Reverse(job)| job),
            Part::Wheel => self.wheel.first(),
        }
    }

    /// Removes the first job and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<Job> {
        if self.overtaking == 0 { self.line.pop_front() } else { self.pop_of_parts() }
    }

    fn pop_of_parts(&mut self) -> Option<Job> {
        self.overtaking -= usize::from(self.front != Part::Line);
        let job = match self.front {
            Part::Line => self.line.pop_front(),
            Part::Heap => self.heap.pop().map(|Reverse(job)| job),
            Part::Wheel => self.wheel.pop(),
        };
        let line = self.line.front().map(|job| (job, Part::Line));
        let heap = self.heap.peek().map(|Reverse(job)| (job, Part::Heap));
        let wheel = self.wheel.first().map(|job| (job, Part::Wheel));
        let first = [line, heap, wheel].into_iter().flatten().min_by_key(|(job, _)| *job);
        self.front = first.map_or(Part::Line, |(_, part)| part);
        job
    }

    /// The first job of those that came in order, and of those that overtake them.
    pub fn fronts(&self) -> impl Iterator<Item = &Job> {
        let heap = self.heap.peek().map(|Reverse(job)| job);
        [self.line.front(), heap, self.wheel.first()].into_iter().flatten()
    }

    /// All jobs, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.line.iter().chain(self.heap.iter().map(|Reverse(job)| job)).chain(self.wheel.iter())
    }

    /// Gives each job another key, in the order of arrival. In the fair order, keys of packets that
    /// come are not less than those of packets that leave.
    pub fn reorder(&mut self, is_fair: bool, mut key: impl FnMut(&Job) -> u64) {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        all.extend(self.line.drain(..).chain(self.wheel.iter().copied()).map(Reverse));
        self.wheel.restart();
        (self.overtaking, self.front, self.is_fair) = (0, Part::Line, is_fair);
        all.sort_unstable_by_key(|Reverse(job)| job.order);
        all.iter_mut().for_each(|Reverse(job)| job.key = key(job));
        all.sort_unstable_by_key(|Reverse(job)| *job);
        self.line.extend(all.drain(..).map(|Reverse(job)| job));
        self.heap = BinaryHeap::from(all);
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
            again in 1usize..20, power in 1u32..14, is_fair in any::<bool>(),
        ) {
            // Their bits are spread over all digits of the wheel.
            let key = |n: u64| n.pow(power);
            let other = |was: u64| key(((0..20).find(|&n| key(n) == was).unwrap() * 7 + 3) % 20);
            let mut queue = SendQueue::new(1_000);
            let mut model: Vec<(u64, Slot)> = Vec::new();
            for (slot, step) in (0..).zip(steps) {
                // Each job has another key, now and then.
                if slot as usize % again == again - 1 {
                    queue.reorder(is_fair, |job| other(job.key));
                    model.iter_mut().for_each(|(key, _)| *key = other(*key));
                }
                match step {
                    Some(n) => {
                        queue.push(key(n), slot, false);
                        model.push((key(n), slot));
                    }
                    None => {
                        model.sort_unstable();
                        let want = (!model.is_empty()).then(|| model.remove(0).1);
                        prop_assert_eq!(queue.pop().map(|job| job.slot), want);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.iter().count(), model.len());
                let first = queue.first().map(|job| job.slot);
                prop_assert_eq!(first, model.iter().min().map(|(_, slot)| *slot));
            }
        }
    }
}
