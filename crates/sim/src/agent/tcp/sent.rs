//! Unacknowledged segments: the queue, and the scoreboard of the receiver's reports (RFC 6675,
//! section 2).

use super::profile::Counting;
use super::ranges::Ranges;
use std::collections::VecDeque;
use trunkline_base::Time;

/// A segment on its way, with the numbers from `start` to before `end`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sent {
    /// Number of its first byte.
    pub start: u64,
    /// Number after its last byte.
    pub end: u64,
    /// Time of its last transmission.
    pub at: Time,
    /// Ordinal of that transmission over all segments. RFC 8985 orders transmissions of the same
    /// moment by sequence number, which would place a retransmission before new data that was sent
    /// earlier.
    pub nth: u64,
    /// Whether it has been SACKed.
    pub sacked: bool,
    /// Whether it is considered lost.
    pub lost: bool,
    /// Whether it was lost and has been retransmitted since.
    pub again: bool,
    /// Whether it was ever retransmitted.
    pub retransmitted: bool,
}

/// The queue of segments, ascending and without gaps, with sums in the unit of the congestion
/// window.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    counting: Counting,
    queue: VecDeque<Sent>,
    sacked_ranges: Ranges,
    gaps: Vec<(u64, u64)>,
    /// Sums over all segments, those SACKed, those lost, and those retransmitted since.
    out: u64,
    sacked: u64,
    lost: u64,
    again: u64,
    /// Number of SACKed segments.
    sacked_segments: u64,
    /// No segment below this number needs to be retransmitted.
    hint: u64,
    transmissions: u64,
    /// All transmissions in order, each with the number after its segment; entries that no longer
    /// match their segment are ignored.
    order: Option<VecDeque<(u64, u64)>>,
}

impl Scoreboard {
    /// Creates an empty scoreboard; `ordered` tracks the order of transmissions for RACK.
    pub fn new(counting: Counting, ordered: bool) -> Scoreboard {
        Scoreboard {
            counting,
            queue: VecDeque::new(),
            sacked_ranges: Ranges::default(),
            gaps: Vec::new(),
            out: 0,
            sacked: 0,
            lost: 0,
            again: 0,
            sacked_segments: 0,
            hint: 0,
            transmissions: 0,
            order: ordered.then(VecDeque::new),
        }
    }

    /// Size of a segment in the unit of the congestion window.
    pub fn cost(&self, start: u64, end: u64) -> u64 {
        self.counting.cost(start, end)
    }

    fn cost_of(&self, s: &Sent) -> u64 {
        self.cost(s.start, s.end)
    }

    /// Whether everything has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of unacknowledged segments.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The oldest unacknowledged segment.
    pub fn first(&self) -> Option<&Sent> {
        self.queue.front()
    }

    /// Number of SACKed segments.
    pub fn sacked_segments(&self) -> u64 {
        self.sacked_segments
    }

    /// Amount lost, retransmitted or not.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Amount not acknowledged yet.
    pub fn outstanding(&self) -> u64 {
        self.out
    }

    /// RFC 6675's pipe: the amount neither SACKed nor lost, plus retransmissions on their way.
    pub fn pipe(&self) -> u64 {
        self.out - self.sacked - self.lost + self.again
    }

    /// The pipe plus SACKed segments, which a sender without limited transmit does not count as
    /// received until it is in recovery.
    pub fn flight(&self) -> u64 {
        self.out - self.lost + self.again
    }

    /// Adds a new segment that was sent.
    pub fn push(&mut self, start: u64, end: u64, at: Time) {
        self.transmissions += 1;
        let (nth, no) = (self.transmissions, false);
        let new = Sent { start, end, at, nth, sacked: no, lost: no, again: no, retransmitted: no };
        self.out += self.cost_of(&new);
        self.queue.push_back(new);
        if let Some(order) = &mut self.order {
            order.push_back((nth, end));
        }
    }

    /// The first lost segment that was not retransmitted yet.
    pub fn next_lost(&mut self) -> Option<(usize, Sent)> {
        if self.lost == self.again {
            return None;
        }
        let from = self.queue.partition_point(|s| s.end <= self.hint);
        let found = self.queue.range(from..).position(|s| s.lost && !s.again)?;
        let index = from + found;
        self.hint = self.queue[index].start;
        Some((index, self.queue[index]))
    }

    /// Merges the lost segment at `index` with the lost segments after it, as long as they total at
    /// most `most` bytes.
    pub fn join(&mut self, index: usize, most: u64) {
        while let (Some(&here), Some(&next)) = (self.queue.get(index), self.queue.get(index + 1)) {
            if !next.lost || next.again || here.again || next.end - here.start > most {
                return;
            }
            let joined = Sent { end: next.end, retransmitted: true, ..here };
            let saved = self.cost_of(&here) + self.cost_of(&next) - self.cost_of(&joined);
            self.out -= saved;
            self.lost -= saved;
            self.queue[index] = joined;
            self.queue.remove(index + 1);
        }
    }

    /// Records a retransmission of the segment at `index`.
    pub fn retransmit(&mut self, index: usize, at: Time) -> Sent {
        let cost = self.cost_of(&self.queue[index]);
        self.transmissions += 1;
        let s = &mut self.queue[index];
        s.retransmitted = true;
        (s.at, s.nth) = (at, self.transmissions);
        if s.lost && !s.again {
            s.again = true;
            self.again += cost;
        }
        if let Some(order) = &mut self.order {
            order.push_back((s.nth, s.end));
        }
        *s
    }

    /// Marks a segment as lost, again if it has been retransmitted.
    fn lose(&mut self, index: usize) {
        let s = self.queue[index];
        let cost = self.cost_of(&s);
        if s.sacked || s.lost && !s.again {
            return;
        }
        if s.again {
            self.again -= cost;
        } else {
            self.lost += cost;
        }
        (self.queue[index].lost, self.queue[index].again) = (true, false);
        self.hint = self.hint.min(s.start);
    }

    /// Marks the oldest segment as lost, unless it already is.
    pub fn lose_first(&mut self) {
        if self.queue.front().is_some_and(|s| !s.lost) {
            self.lose(0);
        }
    }

    /// Marks segments as lost if they are not SACKed and `is_lost` holds.
    pub fn lose_if(&mut self, is_lost: impl Fn(usize, &Sent) -> bool) {
        for index in 0..self.queue.len() {
            if is_lost(index, &self.queue[index]) {
                self.lose(index);
            }
        }
    }

    /// Marks the segments in `from..to` as lost, unless they are SACKed or were lost before.
    pub fn lose_between(&mut self, from: u64, to: u64) {
        let first = self.queue.partition_point(|s| s.start < from);
        let last = self.queue.partition_point(|s| s.end <= to);
        for index in first..last {
            if !self.queue[index].lost {
                self.lose(index);
            }
        }
    }

    /// Clears all loss marks, because nothing was lost.
    pub fn unlose(&mut self) {
        for s in &mut self.queue {
            (s.lost, s.again) = (false, false);
        }
        (self.lost, self.again) = (0, 0);
        // Lost segments had been removed from the order of transmissions.
        if let Some(order) = &mut self.order {
            order.clear();
            order.extend(self.queue.iter().filter(|s| !s.sacked).map(|s| (s.nth, s.end)));
            order.make_contiguous().sort_unstable();
        }
    }

    /// Forgets all SACKs, because the receiver dropped data that it had reported (RFC 2018, section
    /// 8).
    pub fn renege(&mut self) {
        for s in &mut self.queue {
            s.sacked = false;
        }
        (self.sacked, self.sacked_segments) = (0, 0);
        self.sacked_ranges.clear();
    }

    /// Removes everything before `una`, and calls `delivered` for each segment, oldest first.
    pub fn acknowledge(&mut self, una: u64, mut delivered: impl FnMut(&Sent)) {
        while let Some(&s) = self.queue.front() {
            if s.start >= una {
                break;
            }
            let gone = Sent { end: s.end.min(una), ..s };
            let rest = Sent { start: gone.end, ..s };
            // A partly acknowledged packet stays in the count.
            let cost = match self.counting {
                Counting::Packets if s.end > una => 0,
                _ => self.cost_of(&gone),
            };
            self.out -= cost;
            self.sacked -= if s.sacked { cost } else { 0 };
            self.lost -= if s.lost { cost } else { 0 };
            self.again -= if s.again { cost } else { 0 };
            if s.end > una {
                self.queue[0] = rest;
                break;
            }
            self.sacked_segments -= u64::from(s.sacked);
            self.queue.pop_front();
            delivered(&s);
        }
        self.sacked_ranges.drop_below(una);
        if let Some(order) = &mut self.order {
            while order.front().is_some_and(|&(_, end)| end <= una) {
                order.pop_front();
            }
        }
    }

    /// Marks `start..end` as SACKed. Calls `delivered` for each segment newly SACKed, in the order
    /// of their numbers, with its earlier state.
    pub fn sack(&mut self, start: u64, end: u64, mut delivered: impl FnMut(&Sent)) {
        let mut gaps = core::mem::take(&mut self.gaps);
        gaps.clear();
        self.sacked_ranges.gaps(start, end, &mut gaps);
        self.sacked_ranges.insert(start, end);
        for &(left, right) in &gaps {
            let from = self.queue.partition_point(|s| s.end <= left);
            for index in from..self.queue.len() {
                let s = self.queue[index];
                if s.start >= right {
                    break;
                }
                if s.sacked || !self.sacked_ranges.covers(s.start, s.end) {
                    continue;
                }
                let cost = self.cost_of(&s);
                self.sacked += cost;
                self.sacked_segments += 1;
                self.lost -= if s.lost { cost } else { 0 };
                self.again -= if s.again { cost } else { 0 };
                let here = &mut self.queue[index];
                (here.sacked, here.lost, here.again) = (true, false, false);
                delivered(&s);
            }
        }
        self.gaps = gaps;
    }

    /// The number below which everything is lost by RFC 6675's IsLost: more than (`dup_thresh` − 1)
    /// segments of `mss` bytes above it are SACKed, or `dup_thresh` ranges.
    pub fn lost_below(&self, dup_thresh: usize, mss: u64) -> u64 {
        let enough = (dup_thresh as u64 - 1) * mss;
        let mut bytes = 0;
        for (nth, (left, right)) in self.sacked_ranges.iter().rev().enumerate() {
            bytes += right - left;
            if bytes > enough || nth + 1 >= dup_thresh {
                return left;
            }
        }
        0
    }

    /// Number of segments up to the highest SACKed one.
    pub fn forward(&self) -> usize {
        let fack = self.sacked_ranges.iter().next_back().map_or(0, |(_, right)| right);
        self.queue.partition_point(|s| s.end <= fack)
    }

    /// Number after the segment at `index`; 0 if there is no such segment.
    pub fn end_of(&self, index: usize) -> u64 {
        self.queue.get(index).map_or(0, |s| s.end)
    }

    /// Marks segments as lost that were sent before transmission `nth`, the latest one delivered,
    /// and no later than `due` (RFC 8985, section 6.2, step 5). Returns the send time of the last
    /// segment that was also sent before `nth`, but after `due`.
    pub fn lose_by_time(&mut self, nth: u64, due: Time) -> Option<Time> {
        let mut order = self.order.take()?;
        while let Some(&(sent, end)) = order.front() {
            if let Some(index) = self.find(sent, end) {
                if sent >= nth || self.queue[index].at > due {
                    break;
                }
                self.lose(index);
            }
            order.pop_front();
        }
        let before = order.partition_point(|&(sent, _)| sent < nth);
        let mut open = order.range(..before).rev();
        let open = open.find_map(|&(sent, end)| self.find(sent, end));
        self.order = Some(order);
        open.map(|index| self.queue[index].at)
    }

    /// Index of a transmission's segment, if that transmission is still on its way.
    fn find(&self, nth: u64, end: u64) -> Option<usize> {
        let index = self.queue.partition_point(|s| s.end < end);
        let s = self.queue.get(index)?;
        (s.end == end && s.nth == nth && !s.sacked && s.lost == s.again).then_some(index)
    }

    /// The sums counted again from the segments: out, SACKed, lost, retransmitted.
    #[cfg(test)]
    pub fn recount(&self) -> [u64; 4] {
        let sum = |holds: fn(&Sent) -> bool| {
            self.queue.iter().filter(|s| holds(s)).map(|s| self.cost_of(s)).sum()
        };
        [sum(|_| true), sum(|s| s.sacked), sum(|s| s.lost), sum(|s| s.again)]
    }

    /// The running sums, in the same order.
    #[cfg(test)]
    pub fn sums(&self) -> [u64; 4] {
        [self.out, self.sacked, self.lost, self.again]
    }
}
