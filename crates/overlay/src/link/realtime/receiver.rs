use super::Config;
use crate::counters::{Drop, Drops};
use crate::wire::{MAX_NACK_RANGES, NackRange};
use std::collections::VecDeque;
use trunkline_base::{Place, SeqTracker, Time};

/// 16,384 numbers: a round trip of what one core forwards, with room to spare.
type Numbers = SeqTracker<256>;

/// A gap of more packets than this is an outage or a confused neighbour, not
/// loss to repair: a tenth of a second of two hundred calls, and four times
/// what a sender repeats in one burst by default.
pub(crate) const MAX_GAP: u64 = 1_024;

/// Gaps that may wait for the reordering tolerance, and ranges that may wait
/// to be asked for.
const MAX_PENDING: usize = 4 * MAX_NACK_RANGES;

/// The receiving half: tells new packets from duplicates and finds what to ask
/// for, each packet at most once.
#[derive(Debug)]
pub struct Receiver {
    numbers: Numbers,
    /// The latest moment at which any packet seen is still of use.
    useful_until: Time,
    gaps: VecDeque<Gap>,
    asks: VecDeque<NackRange>,
    reorder: u16,
    recovery: bool,
    stats: ReceiverStats,
}

/// What the receiver has seen.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets accepted.
    pub received: u64,
    /// Packets found missing when a later one came.
    pub missing: u64,
    /// Packets asked for.
    pub asked: u64,
    /// Missing packets that came after all, repeated or reordered.
    pub filled: u64,
}

/// What an arriving packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// To be forwarded.
    New,
    /// Seen before, or too old to tell.
    Duplicate,
}

/// Missing numbers `first..end`, and how many packets came after them.
#[derive(Debug, Clone, Copy)]
struct Gap {
    first: u64,
    end: u64,
    later: u16,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Receiver {
        Receiver {
            numbers: Numbers::default(),
            useful_until: Time::ZERO,
            gaps: VecDeque::with_capacity(MAX_PENDING),
            asks: VecDeque::with_capacity(MAX_PENDING),
            reorder: config.reorder.max(1),
            recovery: config.recovery,
            stats: ReceiverStats::default(),
        }
    }

    /// Forgets the numbers: the sender has started anew.
    pub(crate) fn restart(&mut self) {
        self.numbers = Numbers::default();
        self.gaps.clear();
        self.asks.clear();
    }

    /// Takes note of the packet numbered `wire_seq`, which is of use until
    /// `deadline`. A repair asked for now would arrive at `repaired_at`.
    pub(crate) fn accept(
        &mut self,
        wire_seq: u16,
        deadline: Time,
        repaired_at: Time,
        drops: &mut Drops,
    ) -> Arrival {
        // Whose the missing packet is nobody knows. Ask if any flow of this
        // link would be glad of it; the sender knows its deadline.
        self.useful_until = self.useful_until.max(deadline);
        let seq = match self.numbers.note(wire_seq) {
            Place::Known => return Arrival::Duplicate,
            Place::Start => {
                self.gaps.clear();
                self.stats.received += 1;
                return Arrival::New;
            }
            Place::Behind { seq } => {
                self.stats.filled += 1;
                seq
            }
            Place::Ahead { seq, missing } => {
                if missing > MAX_GAP {
                    self.gaps.clear();
                } else if missing > 0 {
                    self.stats.missing += missing;
                    if self.recovery && self.gaps.len() < MAX_PENDING {
                        self.gaps.push_back(Gap { first: seq - missing, end: seq, later: 0 });
                    }
                }
                seq
            }
        };
        self.stats.received += 1;
        if !self.gaps.is_empty() {
            self.ripen(seq, repaired_at < self.useful_until, drops);
        }
        Arrival::New
    }

    /// Turns gaps that enough later packets have followed into requests.
    fn ripen(&mut self, arrived: u64, in_time: bool, drops: &mut Drops) {
        for gap in &mut self.gaps {
            if arrived >= gap.end {
                gap.later += 1;
            }
        }
        while let Some(gap) = self.gaps.front().filter(|gap| gap.later >= self.reorder) {
            let (first, end) = (gap.first, gap.end);
            self.gaps.pop_front();
            if in_time {
                self.ask(first, end);
            } else {
                drops.add(Drop::RepeatLate, end - first);
            }
        }
    }

    /// Queues requests for those of `first..end` that have not come meanwhile.
    fn ask(&mut self, first: u64, end: u64) {
        let mut run: Option<NackRange> = None;
        for seq in first..=end {
            if self.asks.len() == MAX_PENDING {
                return;
            }
            let wanted = seq < end && !self.numbers.has(seq);
            match &mut run {
                Some(range) if wanted && range.count < 256 => range.count += 1,
                _ => {
                    if let Some(range) = run.take() {
                        self.stats.asked += u64::from(range.count);
                        self.asks.push_back(range);
                    }
                    run = wanted.then_some(NackRange { first: seq as u16, count: 1 });
                }
            }
        }
    }

    /// How many ranges wait to be asked for, at most what one frame holds.
    pub(crate) fn pending_asks(&self) -> usize {
        self.asks.len().min(MAX_NACK_RANGES)
    }

    /// The next `n` ranges, to be written into a request.
    pub(crate) fn take_asks(&mut self, n: usize) -> ([NackRange; MAX_NACK_RANGES], usize) {
        let mut out = [NackRange { first: 0, count: 1 }; MAX_NACK_RANGES];
        let mut taken = 0;
        for (place, range) in out.iter_mut().zip(self.asks.drain(..n.min(self.asks.len()))) {
            *place = range;
            taken += 1;
        }
        (out, taken)
    }

    /// What has been seen so far.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Time = Time::from_millis(1);

    fn feed(r: &mut Receiver, seqs: &[u16]) -> Vec<(u16, u16)> {
        let mut drops = Drops::default();
        for &s in seqs {
            r.accept(s, SOON, Time::ZERO, &mut drops);
        }
        let n = r.pending_asks();
        let (ranges, n) = r.take_asks(n);
        ranges[..n].iter().map(|x| (x.first, x.count)).collect()
    }

    #[test]
    fn the_first_gap_is_asked_for_once() {
        let mut r = Receiver::new(&Config::default());
        assert_eq!(feed(&mut r, &[10, 11, 14]), [(12, 2)]);
        assert_eq!(feed(&mut r, &[15, 16, 12]), []);
        let mut drops = Drops::default();
        assert_eq!(r.accept(12, SOON, Time::ZERO, &mut drops), Arrival::Duplicate);
        assert_eq!(r.accept(13, SOON, Time::ZERO, &mut drops), Arrival::New);
        assert_eq!(r.stats(), ReceiverStats { received: 7, missing: 2, asked: 2, filled: 2 });
    }

    #[test]
    fn with_tolerance_a_swap_costs_nothing() {
        let mut r = Receiver::new(&Config { reorder: 3, ..Config::default() });
        assert_eq!(feed(&mut r, &[1, 3, 2, 4, 5, 6, 7]), []);
        assert_eq!(feed(&mut r, &[9, 10]), []);
        assert_eq!(feed(&mut r, &[11]), [(8, 1)]);
        // Of a gap of three, the one that came late is left out.
        assert_eq!(feed(&mut r, &[15, 13, 16, 17]), [(12, 1), (14, 1)]);
    }

    #[test]
    fn numbers_wrap() {
        let mut r = Receiver::new(&Config::default());
        assert_eq!(feed(&mut r, &[65_534, 1]), [(65_535, 2)]);
    }

    #[test]
    fn an_outage_is_not_repaired_and_late_repairs_are_not_asked_for() {
        let mut r = Receiver::new(&Config::default());
        assert_eq!(feed(&mut r, &[0, 5_000]), []);
        let mut drops = Drops::default();
        r.accept(5_002, SOON, SOON, &mut drops);
        assert_eq!((r.pending_asks(), drops.get(Drop::RepeatLate)), (0, 1));
        // Of a flow that has time left, whatever shows the gap.
        let later = Time::from_millis(100);
        r.accept(5_003, later, SOON, &mut drops);
        r.accept(5_005, SOON, SOON, &mut drops);
        assert_eq!(r.pending_asks(), 1);
    }

    #[test]
    fn a_sender_that_went_on_during_a_long_outage_is_heard_again() {
        let mut r = Receiver::new(&Config::default());
        feed(&mut r, &[0, 1, 2]);
        let mut drops = Drops::default();
        let heard: Vec<_> =
            (40_000..40_010).map(|s| r.accept(s, SOON, Time::ZERO, &mut drops)).collect();
        assert_eq!(heard.iter().filter(|a| **a == Arrival::New).count(), 9);
    }

    #[test]
    fn long_gaps_are_split_into_what_the_wire_holds() {
        let mut r = Receiver::new(&Config::default());
        assert_eq!(feed(&mut r, &[0, 601]), [(1, 256), (257, 256), (513, 88)]);
    }
}
