//! What the receiving end may ask for, whatever its policy.

use super::missing::MissingList;
use crate::counters::ReceiverStats;
use crate::link::SMALLEST_HEADERS;
use crate::link::realtime::budget::RecoveryBudget;
use crate::link::realtime::{MAX_GUESS, MAX_RUNS};
use crate::wire::{DATA_OVERHEAD, ENVELOPE_OVERHEAD, MAX_NACK_RANGES, NACK_RANGE_LEN, NackRange};
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{SeqTracker, Time};

/// What a policy has to ask by. It holds the bounds: no request is made for what
/// is missing and would come too late, each gap is asked for directly once at
/// most, and what goes beyond that waits for an answer or is paid for out of the
/// budget.
#[derive(Debug)]
pub(in crate::link::realtime) struct Requests {
    pub(super) now: Time,
    pub(super) rtt: Duration,
    pub(super) numbers: SeqTracker,
    /// The latest moment at which any packet seen is still of use.
    pub(super) useful_until: Time,
    /// When the policy wants to be called.
    pub(super) wake: Time,
    asks: VecDeque<PendingRequest>,
    missing: MissingList,
    /// The highest number asked for that nothing had shown to be missing.
    guessed: u64,
    /// Bytes that requests may take beyond one for each answer waited for.
    pub(super) budget: RecoveryBudget,
    pub(super) stats: ReceiverStats,
}

/// Packets that have turned out to be missing together. It is used up by asking.
#[derive(Debug)]
pub(in crate::link::realtime) struct Gap {
    pub(super) first: u64,
    pub(super) end: u64,
    /// From here on an answer would come too late.
    pub(super) until: Time,
    /// Bytes of the packet that showed the gap.
    pub(super) len: usize,
}

/// A range that waits to be asked for, in so many envelopes.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    range: NackRange,
    envelopes: u8,
    /// Whether it is part of what is followed.
    followed: bool,
}

/// The most envelopes in which one gap is asked for directly.
const MAX_ENVELOPES: u8 = 3;
/// Bytes of a request for one run, with IPv4 and UDP headers.
pub(super) const REQUEST: usize = SMALLEST_HEADERS + ENVELOPE_OVERHEAD + 2 + NACK_RANGE_LEN;
/// The most that is kept for requests: 32 of them.
const MAX_CREDIT: f64 = 32.0 * REQUEST as f64;
/// What an answer may come later than the round trip says, beside a part of it.
const GRACE: Duration = Duration::from_millis(1);

/// For policies.
impl Requests {
    /// The moment of what is going on.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The link's round trip; zero while it is not known.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Asks for `gap` at once, in 1 to 3 envelopes, and leaves it at that.
    pub fn request(&mut self, gap: Gap, envelopes: u8) {
        if self.now < gap.until {
            let envelopes = envelopes.clamp(1, MAX_ENVELOPES);
            let ask = |range| PendingRequest { range, envelopes, followed: false };
            self.stats.asked += queue(&mut self.asks, &self.numbers, gap.first..gap.end, ask);
        }
    }

    /// Keeps `gap` among what [`Requests::ask_for_all`] asks for, until it comes
    /// or would come too late; false if there is no room. What is too late makes
    /// room when the policy is called at the moment it has set.
    pub fn follow(&mut self, gap: Gap) -> bool {
        let Gap { first, end, until, len } = gap;
        let followed = self.now < until && self.missing.push(self.now, first, end, until);
        if followed {
            self.stats.asked += end - first;
            self.earn(first, end - first, len);
        }
        followed
    }

    /// One request for everything that is followed, in place of one that waits to
    /// be sent, and for the next `guess` packets, which nothing shows to be
    /// missing, 0 to 16: sent after all that has come, they may be of use for longer,
    /// and whether they are only the sender knows. Free if an answer is overdue, or something has not been
    /// asked for yet; false if it is neither and the budget has too little.
    pub fn ask_for_all(&mut self, guess: u16) -> bool {
        let guess = guess.min(MAX_GUESS);
        let due = self.overdue_at().is_some_and(|at| at <= self.now);
        let early = !due && (guess > 0 || !self.missing.is_empty());
        if early && !self.budget.spend(REQUEST as f64) {
            return false;
        }
        self.asks.retain(|ask| !ask.followed);
        let ask = |range| PendingRequest { range, envelopes: 1, followed: true };
        for run in self.missing.to_ask(self.now) {
            queue(&mut self.asks, &self.numbers, run.first..run.end, ask);
        }
        let patience = self.reorder_window();
        self.missing.asked(self.now, patience);
        if guess > 0
            && let Some(highest) = self.numbers.highest()
            && self.asks.len() < MAX_RUNS
        {
            self.guessed = highest + u64::from(guess);
            let range = NackRange { first: (highest + 1) as u16, count: guess };
            self.asks.push_back(ask(range));
        }
        true
    }

    /// When the first answer to [`Requests::ask_for_all`] is overdue.
    pub fn overdue_at(&self) -> Option<Time> {
        self.missing.overdue_at()
    }

    /// Whether something that is followed has time for one more request at most.
    pub fn is_last_chance(&self) -> bool {
        self.missing.is_urgent(self.now, self.reorder_window())
    }

    /// Whether the answer to a request at `at` could be of use.
    pub fn is_in_time(&self, at: Time) -> bool {
        at + self.rtt < self.useful_until
    }

    /// Whether the budget has room for a request that is not due.
    pub fn can_pay(&self) -> bool {
        self.budget.left() >= REQUEST as f64
    }

    /// Whether the budget is more than half full.
    pub fn is_rich(&self) -> bool {
        self.budget.left() * 2.0 > MAX_CREDIT
    }

    /// Has the policy called at `at`, in place of any moment set before.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = at;
    }
}

/// For the receiver.
impl Requests {
    pub(super) fn new(share: f64) -> Requests {
        Requests {
            now: Time::ZERO,
            rtt: Duration::ZERO,
            numbers: SeqTracker::default(),
            useful_until: Time::ZERO,
            wake: Time::NEVER,
            asks: VecDeque::with_capacity(MAX_RUNS),
            missing: MissingList::new(),
            guessed: 0,
            budget: RecoveryBudget::new(share, MAX_CREDIT),
            stats: ReceiverStats::default(),
        }
    }

    /// Forgets what was noted by numbers that count no more.
    pub(super) fn renumber(&mut self) {
        self.asks.clear();
        self.missing.clear();
        self.guessed = 0;
        self.wake = Time::NEVER;
    }

    /// Packet `seq` has come late or repeated.
    pub(super) fn filled(&mut self, seq: u64) {
        self.stats.filled += 1;
        self.missing.filled(seq, &self.numbers);
    }

    /// Packet `seq`, of `len` bytes, comes repeated and is the newest: it was
    /// asked for on a guess, unless somebody else asked.
    pub(super) fn came_unseen(&mut self, seq: u64, len: usize) {
        if seq <= self.guessed {
            self.earn(seq, 1, len);
            self.stats.missing += 1;
            self.stats.asked += 1;
            self.stats.filled += 1;
        }
    }

    /// Forgets what can't be in time any more; how many packets that were.
    pub(super) fn expire(&mut self) -> u64 {
        self.missing.expire(self.now, &self.numbers)
    }

    /// How many ranges wait to be asked for, at most what one frame holds.
    pub(super) fn pending(&self) -> usize {
        self.asks.len().min(MAX_NACK_RANGES)
    }

    /// The next range. What is to go in further envelopes goes to the end.
    pub(super) fn take(&mut self) -> Option<NackRange> {
        let ask = self.asks.pop_front()?;
        if ask.envelopes > 1 {
            self.asks.push_back(PendingRequest { envelopes: ask.envelopes - 1, ..ask });
        }
        Some(ask.range)
    }

    /// So many packets of `len` bytes from `first` on were lost.
    fn earn(&mut self, first: u64, packets: u64, len: usize) {
        let bytes = packets as f64 * (len + DATA_OVERHEAD + SMALLEST_HEADERS) as f64;
        self.budget.lost(u32::try_from(packets).unwrap_or(u32::MAX), bytes);
        // A guess that was right was the one request that each loss has.
        if first <= self.guessed {
            self.budget.give(REQUEST as f64);
        }
    }

    /// How long to wait for an answer.
    fn reorder_window(&self) -> Duration {
        self.rtt + GRACE + self.rtt / 16
    }
}

/// Queues an `ask` for each run of those that have not come meanwhile and that the
/// sender may still have; how many numbers these are.
fn queue(
    asks: &mut VecDeque<PendingRequest>,
    numbers: &SeqTracker,
    Range { start, end }: Range<u64>,
    ask: impl Fn(NackRange) -> PendingRequest,
) -> u64 {
    let mut queued = 0;
    let mut run: Option<NackRange> = None;
    for seq in start..=end {
        if asks.len() == MAX_RUNS {
            break;
        }
        let missing = seq < end && !numbers.has(seq) && numbers.in_reach(seq);
        match &mut run {
            Some(range) if missing && range.count < 256 => range.count += 1,
            _ => {
                if let Some(range) = run.take() {
                    queued += u64::from(range.count);
                    asks.push_back(ask(range));
                }
                run = missing.then_some(NackRange { first: seq as u16, count: 1 });
            }
        }
    }
    queued
}
