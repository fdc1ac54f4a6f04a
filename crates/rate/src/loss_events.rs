//! The loss event rate p, derived from the sequence numbers that arrive (RFC 3448, section 5; RFC
//! 5348, section 5).
//!
//! A loss event is a lost packet and all others lost within a round trip of it: TCP, too, halves
//! its window once for them. A loss interval lies between the beginnings of two events and is
//! counted in packets; p is the inverse of a weighted mean of the last eight.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use trunkline_base::Time;

/// Number of later packets whose arrival makes a missing one count as lost (section 5.1).
pub const REORDERED: u32 = 3;

/// Number of intervals in the mean (section 5.4).
pub const INTERVALS: usize = 8;

/// The weights of section 5.4 for eight intervals, the most recent first:
/// w_i = 1 for i < 4, then 1 − (i − 3)/5.
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Maximum number of gaps tracked at once: more than can exist, as each arrival adds at most one,
/// and brings all those below it closer to being lost.
const MAX_GAPS: usize = 16;

/// Optional rules for counting losses.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Config {
    /// RFC 4828, section 3: an interval of at most two round trips counts as N/K packets, where K
    /// of its N were lost, and the open interval is left out while it is that short.
    pub short_intervals: bool,
    /// History discounting (section 5.5, optional): the smallest factor by which a long open
    /// interval discounts those before it, 0 to 1. RFC 3448 has 0.5, RFC 5348 0.25.
    pub discount: Option<f64>,
}

/// Result of a packet's arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The packet completes no loss event.
    None,
    /// The first loss event. The history needs a first interval: [`History::seed`].
    First,
    /// One or more further loss events.
    Event,
}

/// A run of missing numbers, and the packets around it.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The missing numbers, both inclusive.
    first: u64,
    last: u64,
    /// The packets on either side when the gap opened: number and time of arrival.
    before: (u64, Time),
    after: (u64, Time),
    /// Number of packets with higher numbers that have arrived.
    later: u32,
}

/// A loss interval that a later loss event has closed.
#[derive(Clone, Copy, Debug)]
struct Interval {
    packets: f64,
    /// DF_i, the factor by which it has been discounted.
    discount: f64,
}

/// The open interval, which began with the last loss event.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its first number, which is lost, and the time at which that was due.
    first: u64,
    since: Time,
    /// Number of lost packets in the interval.
    lost: u32,
}

/// Number of packets in `from..end`, saturating.
fn count(from: u64, end: u64) -> u32 {
    u32::try_from(end - from).unwrap_or(u32::MAX)
}

/// The loss history of a stream of numbered packets.
///
/// Numbers are unwrapped ([`trunkline_base::extend`]). The history keeps at most 16 gaps and nine
/// intervals, and allocates nothing after [`History::new`].
#[derive(Clone, Debug)]
pub struct History {
    config: Config,
    /// The highest number received, and its time of arrival.
    highest: Option<(u64, Time)>,
    /// Gaps sorted by their numbers.
    gaps: VecDeque<Gap>,
    /// `None` before the first loss event.
    open: Option<Open>,
    /// Closed intervals, most recent first.
    closed: VecDeque<Interval>,
}

impl History {
    /// Creates an empty history.
    pub fn new(config: Config) -> History {
        History {
            config,
            highest: None,
            gaps: VecDeque::with_capacity(MAX_GAPS),
            open: None,
            closed: VecDeque::with_capacity(INTERVALS + 1),
        }
    }

    /// Whether a loss event has been seen.
    pub fn has_lost(&self) -> bool {
        self.open.is_some()
    }

    /// Records the first arrival of packet `number` at `now`; `rtt` is the sender's round-trip
    /// time. A packet that arrives after it was counted as lost changes nothing.
    pub fn arrive(&mut self, number: u64, now: Time, rtt: Duration) -> News {
        let had_lost = self.has_lost();
        let Some((highest, at)) = self.highest else {
            self.highest = Some((number, now));
            return News::None;
        };
        if number > highest {
            if number > highest + 1 {
                let (before, after) = ((highest, at), (number, now));
                let (first, last) = (highest + 1, number - 1);
                self.gaps.push_back(Gap { first, last, before, after, later: 0 });
            }
            self.highest = Some((number, now));
        } else {
            self.fill(number);
        }
        for gap in &mut self.gaps {
            gap.later += u32::from(number > gap.last);
        }
        let mut events = 0;
        while let Some(&gap) = self.gaps.front()
            && (gap.later >= REORDERED || self.gaps.len() == MAX_GAPS)
        {
            self.gaps.pop_front();
            events += self.lose(&gap, rtt);
        }
        match (events, had_lost) {
            (0, _) => News::None,
            (_, true) => News::Event,
            (_, false) => News::First,
        }
    }

    /// Removes `number` from its gap.
    fn fill(&mut self, number: u64) {
        let Some(at) = self.gaps.iter().position(|g| (g.first..=g.last).contains(&number)) else {
            return;
        };
        let gap = self.gaps[at];
        let left = Gap { last: number - 1, ..gap };
        let right = Gap { first: number + 1, ..gap };
        // Removing the number may leave the gap empty.
        match (gap.first < number, number < gap.last) {
            (false, false) => drop(self.gaps.remove(at)),
            (true, false) => self.gaps[at] = left,
            (false, true) => self.gaps[at] = right,
            (true, true) => {
                self.gaps[at] = left;
                self.gaps.insert(at + 1, right);
            }
        }
    }

    /// Counts the packets of `gap` as lost; returns the number of new loss events.
    fn lose(&mut self, gap: &Gap, rtt: Duration) -> u32 {
        // Each packet is assumed to have been due on the straight line between its neighbours
        // (section 5.2).
        let numbers = gap.after.0 - gap.before.0;
        let span = gap.after.1.since(gap.before.1).as_nanos() as f64;
        let spacing = span / numbers as f64;
        let due = |number: u64| {
            let nanos = spacing * (number - gap.before.0) as f64;
            gap.before.1 + Duration::from_nanos(nanos as u64)
        };
        // The smallest number of packets that takes more than a round trip.
        let rtt_nanos = rtt.as_nanos() as f64;
        let step = match rtt_nanos < span {
            true => (rtt_nanos / spacing) as u64 + 1,
            false => u64::MAX,
        };
        let mut from = gap.first;
        let mut events = 0;
        // Packets that belong to the current loss event.
        if let Some(open) = &mut self.open {
            let within = |number: u64| due(number) <= open.since + rtt;
            let end = match (within(gap.first), within(gap.last)) {
                (false, _) => gap.first,
                (_, true) => gap.last + 1,
                (true, false) => {
                    let left = (open.since + rtt).since(gap.before.1).as_nanos() as f64;
                    let end = gap.before.0.saturating_add((left / spacing) as u64 + 1);
                    end.clamp(gap.first + 1, gap.last)
                }
            };
            open.lost = open.lost.saturating_add(count(from, end));
            from = end;
        }
        // Skip the events that would be forgotten again: all but the last nine.
        let (left, kept) = ((gap.last + 1).saturating_sub(from), INTERVALS as u64 + 1);
        let more = left.div_ceil(step).saturating_sub(kept);
        from += more.saturating_mul(step);
        while from <= gap.last {
            let end = from.saturating_add(step).min(gap.last + 1);
            self.begin(Open { first: from, since: due(from), lost: count(from, end) }, rtt);
            events += 1;
            from = end;
        }
        events
    }

    /// Starts a loss event, which closes the open interval.
    fn begin(&mut self, event: Open, rtt: Duration) {
        if let Some(open) = self.open {
            let factor = self.discount(&open);
            for interval in &mut self.closed {
                interval.discount *= factor;
            }
            let n = event.first.saturating_sub(open.first).max(1) as f64;
            let packets = match self.is_short(&open, event.since, rtt) {
                true => n / f64::from(open.lost.max(1)).min(n),
                false => n,
            };
            self.closed.push_front(Interval { packets, discount: 1.0 });
            self.closed.truncate(INTERVALS);
        }
        self.open = Some(event);
    }

    fn is_short(&self, open: &Open, until: Time, rtt: Duration) -> bool {
        self.config.short_intervals && until.since(open.since) <= rtt.saturating_mul(2)
    }

    /// Sets the length of the interval before the first loss event to `packets`, at least 1. The
    /// packets counted until then say little, as the rate was still rising (section 6.3.1).
    pub fn seed(&mut self, packets: f64) {
        if self.has_lost() && self.closed.len() < INTERVALS {
            let packets = if packets >= 1.0 { packets.min(1e15) } else { 1.0 };
            self.closed.push_back(Interval { packets, discount: 1.0 });
        }
    }

    /// p, the loss event rate at `now`, 0 to 1: 0 before the first loss event.
    ///
    /// While fewer than eight intervals have closed, it is the mean of those, with the open one in
    /// place of the oldest or without it, as in RFC 5348; RFC 3448 leaves this open.
    pub fn rate(&self, now: Time, rtt: Duration) -> f64 {
        let (Some(open), Some((highest, _))) = (&self.open, self.highest) else { return 0.0 };
        let count = (highest + 1).saturating_sub(open.first).max(1) as f64;
        let factor = self.discount(open);
        let (mut with, mut without) = ((WEIGHTS[0] * count, WEIGHTS[0]), (0.0, 0.0));
        for (n, interval) in self.closed.iter().enumerate() {
            let weight = WEIGHTS[n] * interval.discount;
            without = (without.0 + weight * interval.packets, without.1 + weight);
            if n + 1 < self.closed.len() {
                let weight = WEIGHTS[n + 1] * interval.discount * factor;
                with = (with.0 + weight * interval.packets, with.1 + weight);
            }
        }
        if self.closed.is_empty() {
            return (with.1 / with.0).min(1.0);
        }
        let closed = without.1 / without.0;
        if self.is_short(open, now, rtt) {
            return closed.min(1.0);
        }
        // The open interval counts only if it is long enough to lower p, as it does not yet end
        // with a loss.
        closed.min(with.1 / with.0).min(1.0)
    }

    /// DF, by which the open interval discounts those before it (section 5.5).
    fn discount(&self, open: &Open) -> f64 {
        let (Some(least), Some((highest, _))) = (self.config.discount, self.highest) else {
            return 1.0;
        };
        let (mut sum, mut total) = (0.0, 0.0);
        for (interval, weight) in self.closed.iter().zip(WEIGHTS) {
            sum += weight * interval.discount * interval.packets;
            total += weight * interval.discount;
        }
        let count = (highest + 1).saturating_sub(open.first) as f64;
        let mean = sum / total;
        // Without intervals the mean is NaN, and nothing is discounted.
        if count > 2.0 * mean { (2.0 * mean / count).max(least.clamp(0.0, 1.0)) } else { 1.0 }
    }
}
