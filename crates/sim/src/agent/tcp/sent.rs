//! What has been sent and not yet acknowledged: the queue of segments, and the
//! scoreboard of what the receiver has reported (RFC 6675, section 2).

use super::profile::Counting;
use super::ranges::Ranges;
use std::collections::VecDeque;
use trunkline_base::Time;

/// A segment on its way, by its numbers in the stream, from `start` to before `end`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sent {
    /// Its first number.
    pub start: u64,
    /// The number after its last.
    pub end: u64,
    /// When it was sent last.
    pub at: Time,
    /// Which transmission that was, counted over all segments: RFC 8985 tells those of
    /// one moment apart by their sequence numbers, which would take a repetition for
    /// earlier than new data that went before it.
    pub nth: u64,
    /// Whether it has been SACKed.
    pub sacked: bool,
    /// Whether it counts as lost.
    pub lost: bool,
    /// Whether it was lost and is on its way again.
    pub again: bool,
    /// Whether it has ever been sent again.
    pub repeated: bool,
}

/// The queue of segments, ascending and without gaps, and sums over it in what the
/// congestion window counts.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    counting: Counting,
    queue: VecDeque<Sent>,
    sacked_ranges: Ranges,
    gaps: Vec<(u64, u64)>,
    /// Sums over all, the SACKed, the lost, and those on their way again.
    out: u64,
    sacked: u64,
    lost: u64,
    again: u64,
    /// How many are SACKed.
    sacked_segments: u64,
    /// Nothing below is lost and not on its way again.
    hint: u64,
    transmissions: u64,
    /// Every transmission in its order, with the number after the segment; what does
    /// not agree with the segment any more counts no longer.
    order: Option<VecDeque<(u64, u64)>>,
}

impl Scoreboard {
    /// Nothing has been sent; `ordered` keeps the order of time for RACK.
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

    /// What a segment counts.
    pub fn cost(&self, start: u64, end: u64) -> u64 {
        self.counting.cost(start, end)
    }

    fn cost_of(&self, s: &Sent) -> u64 {
        self.cost(s.start, s.end)
    }

    /// Whether all has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many segments are not acknowledged.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The oldest.
    pub fn first(&self) -> Option<&Sent> {
        self.queue.front()
    }

    /// How many are SACKed.
    pub fn sacked_segments(&self) -> u64 {
        self.sacked_segments
    }

    /// What is lost, whether on its way again or not.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// All that is not acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.out
    }

    /// RFC 6675's pipe: what is neither SACKed nor lost, and what is on its way again.
    pub fn pipe(&self) -> u64 {
        self.out - self.sacked - self.lost + self.again
    }

    /// The same with the SACKed, which a sender without limited transmit does not
    /// take for received until it is in recovery.
    pub fn flight(&self) -> u64 {
        self.out - self.lost + self.again
    }

    /// A new segment has been sent.
    pub fn push(&mut self, start: u64, end: u64, at: Time) {
        self.transmissions += 1;
        let (nth, no) = (self.transmissions, false);
        let new = Sent { start, end, at, nth, sacked: no, lost: no, again: no, repeated: no };
        self.out += self.cost_of(&new);
        self.queue.push_back(new);
        if let Some(order) = &mut self.order {
            order.push_back((nth, end));
        }
    }

    /// The first that is lost and not on its way again.
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

    /// Joins the segment at `index`, which is lost, with those after it that are lost,
    /// too, while they have at most `most` bytes together.
    pub fn join(&mut self, index: usize, most: u64) {
        while let (Some(&here), Some(&next)) = (self.queue.get(index), self.queue.get(index + 1)) {
            if !next.lost || next.again || here.again || next.end - here.start > most {
                return;
            }
            let joined = Sent { end: next.end, repeated: true, ..here };
            let saved = self.cost_of(&here) + self.cost_of(&next) - self.cost_of(&joined);
            self.out -= saved;
            self.lost -= saved;
            self.queue[index] = joined;
            self.queue.remove(index + 1);
        }
    }

    /// The segment at `index` has been sent again.
    pub fn repeat(&mut self, index: usize, at: Time) -> Sent {
        let cost = self.cost_of(&self.queue[index]);
        self.transmissions += 1;
        let s = &mut self.queue[index];
        s.repeated = true;
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

    /// Marks as lost, anew if it is on its way again.
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

    /// Marks the oldest as lost unless it is already.
    pub fn lose_first(&mut self) {
        if self.queue.front().is_some_and(|s| !s.lost) {
            self.lose(0);
        }
    }

    /// Marks as lost what is not SACKed and for which `is_lost` holds.
    pub fn lose_if(&mut self, is_lost: impl Fn(usize, &Sent) -> bool) {
        for index in 0..self.queue.len() {
            if is_lost(index, &self.queue[index]) {
                self.lose(index);
            }
        }
    }

    /// Marks as lost what lies in `from..to`, as far as it is neither SACKed nor has
    /// been lost before.
    pub fn lose_between(&mut self, from: u64, to: u64) {
        let first = self.queue.partition_point(|s| s.start < from);
        let last = self.queue.partition_point(|s| s.end <= to);
        for index in first..last {
            if !self.queue[index].lost {
                self.lose(index);
            }
        }
    }

    /// Nothing is lost after all.
    pub fn unlose(&mut self) {
        for s in &mut self.queue {
            (s.lost, s.again) = (false, false);
        }
        (self.lost, self.again) = (0, 0);
        // What was lost had left the order of time.
        if let Some(order) = &mut self.order {
            order.clear();
            order.extend(self.queue.iter().filter(|s| !s.sacked).map(|s| (s.nth, s.end)));
            order.make_contiguous().sort_unstable();
        }
    }

    /// The receiver has dropped what it had reported (RFC 2018, section 8).
    pub fn renege(&mut self) {
        for s in &mut self.queue {
            s.sacked = false;
        }
        (self.sacked, self.sacked_segments) = (0, 0);
        self.sacked_ranges.clear();
    }

    /// All before `una` has come; calls `delivered` for each segment, oldest first.
    pub fn acknowledge(&mut self, una: u64, mut delivered: impl FnMut(&Sent)) {
        while let Some(&s) = self.queue.front() {
            if s.start >= una {
                break;
            }
            let gone = Sent { end: s.end.min(una), ..s };
            let rest = Sent { start: gone.end, ..s };
            // A part of a packet leaves the packet where it was.
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

    /// `start..end` has come; calls `delivered` for each segment that is SACKed
    /// thereby, in the order of their numbers, as it was before.
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

    /// Everything below is lost by RFC 6675's IsLost: more than (`dup_thresh` − 1)
    /// segments of `mss` bytes above it are SACKed, or as many ranges.
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

    /// How many segments there are up to the highest that is SACKed.
    pub fn forward(&self) -> usize {
        let fack = self.sacked_ranges.iter().next_back().map_or(0, |(_, right)| right);
        self.queue.partition_point(|s| s.end <= fack)
    }

    /// The number behind the segment at `index`, or the beginning of all.
    pub fn end_of(&self, index: usize) -> u64 {
        self.queue.get(index).map_or(0, |s| s.end)
    }

    /// Marks as lost what was sent before the transmission `nth`, the latest that has
    /// been delivered, and at `due` at the latest (RFC 8985, section 6.2, step 5). When
    /// the last was sent that was sent before it, too, but later than that.
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

    /// The segment of a transmission, if it is still on its way by it.
    fn find(&self, nth: u64, end: u64) -> Option<usize> {
        let index = self.queue.partition_point(|s| s.end < end);
        let s = self.queue.get(index)?;
        (s.end == end && s.nth == nth && !s.sacked && s.lost == s.again).then_some(index)
    }

    /// The sums, counted anew: out, SACKed, lost, again.
    #[cfg(test)]
    pub fn recount(&self) -> [u64; 4] {
        let sum = |holds: fn(&Sent) -> bool| {
            self.queue.iter().filter(|s| holds(s)).map(|s| self.cost_of(s)).sum()
        };
        [sum(|_| true), sum(|s| s.sacked), sum(|s| s.lost), sum(|s| s.again)]
    }

    /// The sums as they are kept.
    #[cfg(test)]
    pub fn sums(&self) -> [u64; 4] {
        [self.out, self.sacked, self.lost, self.again]
    }
}
