use crate::link::realtime::{MAX_GAP, MAX_RUNS};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{SeqTracker, Time};

/// A run of missing numbers, `first..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u64,
    pub end: u64,
    /// After this time a request would be answered too late.
    until: Time,
    /// When the answer to the last request should have arrived.
    overdue: Time,
    /// Minimum time between two requests.
    rest: Duration,
}

/// Maximum number of requests for a packet that is followed, so that a short round trip does not
/// cause many of them.
const MAX_REQUESTS: u32 = 8;

/// Missing packets that would still be useful, oldest first: at most [`MAX_RUNS`] runs of
/// [`MAX_GAP`] numbers together, since every request goes through all of them.
#[derive(Debug)]
pub(super) struct MissingList(VecDeque<Run>);

impl MissingList {
    pub fn new() -> MissingList {
        MissingList(VecDeque::with_capacity(MAX_RUNS))
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs named by a request at `now`: those with time left for an answer, and those that ran out
    /// of it since the last request, until its answer is overdue.
    pub fn to_ask(&self, now: Time) -> impl Iterator<Item = &Run> {
        self.0.iter().filter(move |run| now < run.until || now <= run.overdue)
    }

    /// Adds the run `first..end`, due at once; false if there is no room.
    pub fn push(&mut self, now: Time, first: u64, end: u64, until: Time) -> bool {
        let numbers: u64 = self.0.iter().map(|run| run.end - run.first).sum();
        if self.0.len() == MAX_RUNS || numbers + (end - first) > MAX_GAP {
            return false;
        }
        let rest = until.since(now) / MAX_REQUESTS;
        self.0.push_back(Run { first, end, until, overdue: Time::ZERO, rest });
        true
    }

    /// Removes number `seq`, which has arrived; `numbers` records all that have.
    pub fn filled(&mut self, seq: u64, numbers: &SeqTracker) {
        let Some(at) = self.0.iter().position(|r| (r.first..r.end).contains(&seq)) else { return };
        let run = &mut self.0[at];
        while run.first < run.end && numbers.has(run.first) {
            run.first += 1;
        }
        while run.first < run.end && numbers.has(run.end - 1) {
            run.end -= 1;
        }
        if run.first == run.end {
            self.0.remove(at);
        }
    }

    /// Removes runs that can no longer be in time, and returns the number of packets still missing
    /// in them.
    pub fn expire(&mut self, now: Time, numbers: &SeqTracker) -> u64 {
        let mut gone = 0;
        self.0.retain(|run| {
            let late = now >= run.until;
            if late {
                gone += (run.first..run.end).filter(|&seq| !numbers.has(seq)).count() as u64;
            }
            !late
        });
        gone
    }

    /// When the first answer is overdue.
    pub fn overdue_at(&self) -> Option<Time> {
        self.0.iter().map(|run| run.overdue).min()
    }

    /// Whether some run has time for at most one more request.
    pub fn is_urgent(&self, now: Time, patience: Duration) -> bool {
        self.0.iter().any(|run| run.until < now + 2 * patience)
    }

    /// Records a request for everything at `now`; answers should arrive within `patience`.
    pub fn asked(&mut self, now: Time, patience: Duration) {
        for run in self.0.iter_mut().filter(|run| run.overdue <= now) {
            run.overdue = now + patience.max(run.rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_goes_through_is_bounded() {
        let push =
            |list: &mut MissingList, first, end| list.push(Time::ZERO, first, end, Time::NEVER);
        let mut list = MissingList::new();
        assert!(push(&mut list, 0, MAX_GAP - 1));
        assert!(!push(&mut list, 2_000, 2_002) && push(&mut list, 2_000, 2_001));
        assert!(!push(&mut list, 3_000, 3_001));
        list.clear();
        let runs = (0..MAX_GAP).filter(|&k| push(&mut list, 2 * k, 2 * k + 1)).count();
        assert_eq!(runs, MAX_RUNS);
    }

    #[test]
    fn what_has_become_too_late_is_soon_named_no_more() {
        let ms = Time::from_millis;
        let mut list = MissingList::new();
        assert!(list.push(ms(0), 5, 6, ms(30)));
        list.asked(ms(20), Duration::from_millis(22));
        let named = [29, 42, 43].map(|at| list.to_ask(ms(at)).count());
        assert_eq!(named, [1, 1, 0]);
    }
}
