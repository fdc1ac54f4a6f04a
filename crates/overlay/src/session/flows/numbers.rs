//! A flow's packets by their numbers, to find the missing ones.

use super::counts::Counts;
use core::time::Duration;
use trunkline_base::{SeqWindow, Time, first};

/// Distance behind the highest number within which a packet still counts.
const WINDOW: u64 = 256;
type SeenWindow = SeqWindow<[u64; 4]>;

/// A jump ahead of at most this distance is accepted without considering the clock: as many may be
/// lost in a row, and after a pause the next number arrives.
const SMALL: u16 = 64;

/// Packets per second that a sender is assumed to send before its rate is known: the 50 packets of
/// a call.
const PACE: u64 = 50;

/// Follows the 16-bit numbers of a flow, from one packet to the next.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Packets that arrived before their deadline.
    in_time: SeenWindow,
    /// The lowest number that counts as expected.
    base: u64,
    /// Arrival time of the packet with the highest number.
    at: Time,
    /// The most numbers used in one second so far.
    pace: u64,
    /// Start of the current second, and the numbers used in it.
    second: (Time, u64),
    /// Number of times that the sender has restarted its numbers.
    pub restarts: u64,
}

/// Distance of a packet from the highest number before it, and its effect on the counts.
pub(super) struct Step {
    /// Negative for a packet that comes behind others; `None` after a restart of the numbers.
    pub ahead: Option<i64>,
    pub counts: Counts,
}

const ONE: Counts = Counts {
    packets: 0,
    bytes: 0,
    expected: 1,
    missed: 0,
    bursts: 0,
    late: 0,
    recovered: 0,
    remaining_us: 0,
    wander_ns: 0,
    wandered: 0,
};

impl Numbers {
    /// Begins with the packet that has this `number`.
    pub(super) fn begin(now: Time, number: u16, late: bool) -> (Numbers, Step) {
        let start = first(number);
        let mut numbers = Numbers {
            in_time: SeenWindow::starting_at(start, [0; 4]),
            base: start,
            at: now,
            pace: PACE,
            second: (now, 0),
            restarts: 0,
        };
        let counts = numbers.start(now, number, late);
        (numbers, Step { ahead: None, counts })
    }

    fn start(&mut self, now: Time, number: u16, late: bool) -> Counts {
        let start = first(number);
        // A late packet counts as missing.
        self.in_time = SeenWindow::starting_at(if late { start - WINDOW } else { start }, [0; 4]);
        self.in_time.pass(start);
        (self.base, self.at) = (start, now);
        let missed = i64::from(late);
        Counts { missed, bursts: missed, ..ONE }
    }

    /// Takes the next packet, which is not a copy.
    pub(super) fn note(&mut self, now: Time, number: u16, late: bool) -> Step {
        let highest = self.in_time.highest();
        let behind = (highest as u16).wrapping_sub(number);
        if u64::from(behind) < WINDOW {
            let counts = self.fill(highest - u64::from(behind), late);
            return Step { ahead: Some(-i64::from(behind)), counts };
        }
        match self.leap(now, number.wrapping_sub(highest as u16)) {
            Some(ahead) => {
                let counts = self.advance(ahead, late);
                self.at = now;
                Step { ahead: Some(ahead as i64), counts }
            }
            None => {
                self.restarts += 1;
                Step { ahead: None, counts: self.start(now, number, late) }
            }
        }
    }

    /// The true distance of a packet that seems to be `ahead`; `None` if no outage explains it, so
    /// that the sender must have restarted its numbers.
    fn leap(&mut self, now: Time, ahead: u16) -> Option<u64> {
        if now.since(self.second.0) >= Duration::from_secs(1) {
            self.second = (now, 0);
        }
        if ahead <= SMALL {
            self.second.1 += u64::from(ahead);
            self.pace = self.pace.max(self.second.1);
            return Some(ahead.into());
        }
        let silence = now.since(self.at);
        let sent = |d: Duration| (u128::from(self.pace) * d.as_nanos() / 1_000_000_000) as u64;
        // The numbers may have wrapped meanwhile, once or several times.
        let around = (sent(silence) + (1 << 15)).saturating_sub(ahead.into()) >> 16;
        let ahead = u64::from(ahead) + (around << 16);
        let most = sent(silence + Duration::from_secs(1)).saturating_mul(3) / 2 + u64::from(SMALL);
        (ahead <= most).then_some(ahead)
    }

    /// Moves the highest number forward by `ahead`.
    fn advance(&mut self, ahead: u64, late: bool) -> Counts {
        let highest = self.in_time.highest();
        // A run of missed packets that continues is not a new one.
        let goes_on = highest >= self.base && !self.in_time.contains(highest);
        let gap = (ahead - 1) as i64;
        let counts = Counts {
            expected: ahead,
            missed: gap + i64::from(late),
            bursts: i64::from(gap > 0 || late) - i64::from(goes_on && (gap > 0 || late)),
            ..ONE
        };
        match late {
            true => self.in_time.pass(highest + ahead),
            false => drop(self.in_time.insert(highest + ahead)),
        }
        counts
    }

    /// Counts a packet that arrived after others with higher numbers.
    fn fill(&mut self, seq: u64, late: bool) -> Counts {
        if seq < self.base {
            return self.begin_before(seq, late);
        }
        let counts = Counts { expected: 0, ..ONE };
        if late || !self.in_time.insert(seq) {
            return counts;
        }
        // It was the only one in a run of missed packets, one at an end, or one in the middle.
        let missed =
            |n: u64| n >= self.base && n <= self.in_time.highest() && !self.in_time.contains(n);
        let neighbours = i64::from(missed(seq - 1)) + i64::from(missed(seq + 1));
        Counts { missed: -1, bursts: neighbours - 1, ..counts }
    }

    /// Counts a packet from before the first one received.
    fn begin_before(&mut self, seq: u64, late: bool) -> Counts {
        let gap = (self.base - seq - 1) as i64;
        let goes_on = !self.in_time.contains(self.base);
        self.base = seq;
        if !late {
            self.in_time.insert(seq);
        }
        let more = gap > 0 || late;
        Counts {
            expected: gap as u64 + 1,
            missed: gap + i64::from(late),
            bursts: i64::from(more) - i64::from(more && goes_on),
            ..ONE
        }
    }
}
