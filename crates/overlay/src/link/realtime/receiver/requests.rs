//! Requests that the receiving end may make, whatever its policy.

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

/// A policy's interface for requests. It enforces the bounds: no request names a missing packet
/// that would arrive too late, each gap is requested directly at most once, and any further request
/// waits for an answer to be overdue or is paid for from the budget.
#[derive(Debug)]
pub(in crate::link::realtime) struct Requests {
    pub(super) now: Time,
    pub(super) rtt: Duration,
    pub(super) numbers: SeqTracker,
    /// Latest time at which any packet seen is still useful.
    pub(super) useful_until: Time,
    /// When the policy wants to be called next.
    pub(super) wake: Time,
    asks: VecDeque<PendingRequest>,
    missing: MissingList,
    /// Highest number requested without a sign that it was missing.
    guessed: u64,
    /// Bytes available for requests beyond one for each awaited answer.
    pub(super) budget: RecoveryBudget,
    pub(super) stats: ReceiverStats,
}

/// Packets that were found missing together. A request consumes it.
#[derive(Debug)]
pub(in crate::link::realtime) struct Gap {
    pub(super) first: u64,
    pub(super) end: u64,
    /// From this time on an answer would arrive too late.
    pub(super) until: Time,
    /// Bytes of the packet that revealed the gap.
    pub(super) len: usize,
}

/// A range to be requested, in a number of envelopes.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    range: NackRange,
    envelopes: u8,
    /// Whether it belongs to the followed runs.
    followed: bool,
}

/// Maximum number of envelopes in which one gap is requested directly.
const MAX_ENVELOPES: u8 = 3;
/// Bytes of a request for one run, IPv4 and UDP headers included.
pub(super) const REQUEST: usize = SMALLEST_HEADERS + ENVELOPE_OVERHEAD + 2 + NACK_RANGE_LEN;
/// Maximum budget kept for requests, in bytes: 32 of them.
const MAX_CREDIT: f64 = 32.0 * REQUEST as f64;
/// Extra time allowed for an answer, in addition to the round trip and a part of it.
const GRACE: Duration = Duration::from_millis(1);

/// The part that policies use.
impl Requests {
    /// Time of the event being handled.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The link's round trip; zero while it is unknown.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Requests `gap` at once, in 1 to 3 envelopes, and never again.
    pub fn request(&mut self, gap: Gap, envelopes: u8) {
        if self.now < gap.until {
            let envelopes = envelopes.clamp(1, MAX_ENVELOPES);
            let ask = |range| PendingRequest { range, envelopes, followed: false };
            self.stats.asked += queue(&mut self.asks, &self.numbers, gap.first..gap.end, ask);
        }
    }

    /// Adds `gap` to the runs that [`Requests::ask_for_all`] requests, until it arrives or would
    /// arrive too late; false if there is no room. Expired runs make room when the policy is called
    /// at the time it has set.
    pub fn follow(&mut self, gap: Gap) -> bool {
        let Gap { first, end, until, len } = gap;
        let followed = self.now < until && self.missing.push(self.now, first, end, until);
        if followed {
            self.stats.asked += end - first;
            self.earn(first, end - first, len);
        }
        followed
    }

    /// Queues one request for all followed runs, which replaces any that is still waiting to be
    /// sent, and for the next `guess` packets (0 to 16), which nothing shows to be missing. Those
    /// were sent after everything that has arrived, so they may be useful for longer; only the
    /// sender knows. The request is free if an answer is overdue, or if some run has not been
    /// requested yet; otherwise it is paid for from the budget, and false means that the budget was
    /// too small.
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

    /// Whether some followed run has time for at most one more request.
    pub fn is_last_chance(&self) -> bool {
        self.missing.is_urgent(self.now, self.reorder_window())
    }

    /// Whether the answer to a request made at `at` could be in time.
    pub fn is_in_time(&self, at: Time) -> bool {
        at + self.rtt < self.useful_until
    }

    /// Whether the budget can pay for a request that is not due.
    pub fn can_pay(&self) -> bool {
        self.budget.left() >= REQUEST as f64
    }

    /// Whether the budget is more than half full.
    pub fn is_rich(&self) -> bool {
        self.budget.left() * 2.0 > MAX_CREDIT
    }

    /// Schedules the policy's next call at `at`, in place of any time set before.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = at;
    }
}

/// The part that the receiver uses.
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

    /// Discards all state that refers to the old numbering.
    pub(super) fn renumber(&mut self) {
        self.asks.clear();
        self.missing.clear();
        self.guessed = 0;
        self.wake = Time::NEVER;
    }

    /// Records that packet `seq` has arrived late or retransmitted.
    pub(super) fn filled(&mut self, seq: u64) {
        self.stats.filled += 1;
        self.missing.filled(seq, &self.numbers);
    }

    /// Packet `seq`, of `len` bytes, arrives retransmitted and is the newest: it was requested on a
    /// guess, unless another node requested it.
    pub(super) fn came_unseen(&mut self, seq: u64, len: usize) {
        if seq <= self.guessed {
            self.earn(seq, 1, len);
            self.stats.missing += 1;
            self.stats.asked += 1;
            self.stats.filled += 1;
        }
    }

    /// Removes packets that can no longer be in time, and returns their number.
    pub(super) fn expire(&mut self) -> u64 {
        self.missing.expire(self.now, &self.numbers)
    }

    /// Number of ranges that wait to be requested, up to the number that fits in one frame.
    pub(super) fn pending(&self) -> usize {
        self.asks.len().min(MAX_NACK_RANGES)
    }

    /// Takes the next range. One that goes in further envelopes is moved to the end.
    pub(super) fn take(&mut self) -> Option<NackRange> {
        let ask = self.asks.pop_front()?;
        if ask.envelopes > 1 {
            self.asks.push_back(PendingRequest { envelopes: ask.envelopes - 1, ..ask });
        }
        Some(ask.range)
    }

    /// Earns budget for `packets` lost packets of `len` bytes, from number `first` on.
    fn earn(&mut self, first: u64, packets: u64, len: usize) {
        let bytes = packets as f64 * (len + DATA_OVERHEAD + SMALLEST_HEADERS) as f64;
        self.budget.lost(u32::try_from(packets).unwrap_or(u32::MAX), bytes);
        // A correct guess was the one request that each loss gets for free.
        if first <= self.guessed {
            self.budget.give(REQUEST as f64);
        }
    }

    /// Time allowed for an answer.
    fn reorder_window(&self) -> Duration {
        self.rtt + GRACE + self.rtt / 16
    }
}

/// Queues an `ask` for each run of numbers in the range that are still missing and that the sender
/// may still have; returns how many numbers that is.
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
