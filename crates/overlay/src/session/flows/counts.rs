//! What is counted of a flow, and over which time.

use core::ops::AddAssign;
use core::time::Duration;
use trunkline_base::Time;

/// What has passed of a flow. What only a destination knows stays zero at an
/// origin.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets that came, or were sent, each once.
    pub packets: u64,
    /// Their bytes, of the application alone.
    pub bytes: u64,
    /// Packets that the origin has sent, by their numbers.
    pub expected: u64,
    /// Those of them that did not come before their deadline. Of a part of a
    /// call it can be negative: what was missed before has come.
    pub missed: i64,
    /// Runs of missed packets.
    pub bursts: i64,
    /// Packets that came at their deadline or after it: missed, but not lost.
    pub late: u64,
    /// Packets that a link had lost and repeated.
    pub recovered: u64,
    /// What was left until the deadlines of the packets that came, in sum: µs.
    pub remaining_us: u64,
    /// By how much packets came nearer to each other or further apart than they
    /// were sent, in sum: ns.
    pub wander_ns: u64,
    /// Of how many packets that is known.
    pub wandered: u64,
}

impl Counts {
    /// Packets that did not come at all, as far as one knows: none if more came
    /// late or after a gap than were missed.
    pub fn lost(&self) -> u64 {
        u64::try_from(self.missed).unwrap_or(0).saturating_sub(self.late)
    }

    /// Mean of what was left until the deadline, where a packet came.
    pub fn mean_remaining(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.remaining_us.checked_div(self.packets)?))
    }

    /// Jitter: the mean of what RFC 3550 (6.4.1) averages.
    pub fn jitter(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.wander_ns.checked_div(self.wandered)?))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.expected += more.expected;
        self.missed += more.missed;
        self.bursts += more.bursts;
        self.late += more.late;
        self.recovered += more.recovered;
        self.remaining_us += more.remaining_us;
        self.wander_ns += more.wander_ns;
        self.wandered += more.wandered;
    }
}

/// Ten whole seconds, and the one that has begun.
const SECONDS: u64 = 11;

/// What is counted where a flow begins.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Volume {
    pub packets: u64,
    pub bytes: u64,
}

impl AddAssign for Volume {
    fn add_assign(&mut self, more: Volume) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

impl From<Volume> for Counts {
    fn from(Volume { packets, bytes }: Volume) -> Counts {
        Counts { packets, bytes, ..Counts::default() }
    }
}

/// Counts of each of the last seconds, and of all before them.
#[derive(Debug)]
pub(super) struct History<C> {
    before: C,
    ring: [C; SECONDS as usize],
    /// The second that the newest part of the ring is for.
    second: u64,
}

fn second(at: Time) -> u64 {
    at.as_nanos() / 1_000_000_000
}

impl<C: Copy + Default + AddAssign + Into<Counts>> History<C> {
    pub(super) fn new(now: Time) -> History<C> {
        let ring = [C::default(); SECONDS as usize];
        History { before: C::default(), ring, second: second(now) }
    }

    pub(super) fn add(&mut self, now: Time, more: C) {
        let second = second(now).max(self.second);
        for passed in (self.second + 1..=second).rev().take(SECONDS as usize) {
            self.before += std::mem::take(&mut self.ring[(passed % SECONDS) as usize]);
        }
        self.second = second;
        self.ring[(second % SECONDS) as usize] += more;
    }

    /// The whole call.
    pub(super) fn call(&self) -> Counts {
        let mut sum = self.before;
        self.ring.iter().for_each(|part| sum += *part);
        sum.into()
    }

    /// The last ten to eleven seconds: what passed in them, and how long they
    /// are for a flow that began at `since`.
    pub(super) fn recent(&self, now: Time, since: Time) -> (Counts, Duration) {
        let first = second(now).saturating_sub(SECONDS - 1);
        let kept = self.second.saturating_sub(SECONDS - 1)..=self.second;
        let mut sum = C::default();
        for second in kept.filter(|second| *second >= first) {
            sum += self.ring[(second % SECONDS) as usize];
        }
        (sum.into(), now.since(since.max(Time::from_millis(first * 1_000))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_seconds_are_those_of_a_full_list(
            gaps in prop::collection::vec(prop_oneof![0u64..400, 0u64..15_000], 1..80),
            after in 0u64..15_000,
        ) {
            let mut at = 123_456;
            let since = Time::from_millis(at);
            let mut history = History::new(since);
            let mut all = Vec::new();
            for gap in gaps {
                at += gap;
                history.add(Time::from_millis(at), Counts { packets: 1, ..Counts::default() });
                all.push(at);
            }
            let now = at + after;
            let (recent, span) = history.recent(Time::from_millis(now), since);
            let begins = (now / 1_000 - 10) * 1_000;
            let count = all.iter().filter(|t| **t >= begins).count() as u64;
            prop_assert_eq!((recent.packets, history.call().packets), (count, all.len() as u64));
            let from = begins.max(123_456);
            prop_assert_eq!(span, Duration::from_millis(now - from));
        }
    }
}
