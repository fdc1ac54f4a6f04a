//! Counters of a flow, and the intervals that they cover.

use core::ops::AddAssign;
use core::time::Duration;
use trunkline_base::Time;

/// Counters of a flow. Those that only a destination can know stay zero at an origin.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets received, or sent, each counted once.
    pub packets: u64,
    /// Bytes of application data in these packets.
    pub bytes: u64,
    /// Packets that the origin has sent, according to their numbers.
    pub expected: u64,
    /// Expected packets that did not arrive before their deadline. For a part of a call it can be
    /// negative, if packets missed earlier have arrived.
    pub missed: i64,
    /// Number of runs of missed packets.
    pub bursts: i64,
    /// Packets that arrived at or after their deadline: missed, but not lost.
    pub late: u64,
    /// Packets that a link had lost and retransmitted.
    pub recovered: u64,
    /// Sum of the time left until the deadline when packets arrived, in µs.
    pub remaining_us: u64,
    /// Sum of the changes in spacing between sending and arrival, in ns.
    pub wander_ns: u64,
    /// Number of packets in that sum.
    pub wandered: u64,
}

impl Counts {
    /// Packets that did not arrive at all, as far as known: none if more arrived late or after a
    /// gap than were missed.
    pub fn lost(&self) -> u64 {
        u64::try_from(self.missed).unwrap_or(0).saturating_sub(self.late)
    }

    /// Mean time left until the deadline when packets arrived; `None` if no packet did.
    pub fn mean_remaining(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.remaining_us.checked_div(self.packets)?))
    }

    /// Jitter: the mean of the values that RFC 3550 (6.4.1) averages.
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

/// Ten whole seconds, and the current one.
const SECONDS: u64 = 11;

/// Counters at the origin of a flow.
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

/// Counts of each of the last seconds, and of the time before.
#[derive(Debug)]
pub(super) struct History<C> {
    before: C,
    ring: [C; SECONDS as usize],
    /// The second that the newest part of the ring covers.
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

    /// Counts of the whole call.
    pub(super) fn call(&self) -> Counts {
        let mut sum = self.before;
        self.ring.iter().for_each(|part| sum += *part);
        sum.into()
    }

    /// Counts of the last ten to eleven seconds, and the length of that interval, which is shorter
    /// for a flow that began at a later `since`.
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
