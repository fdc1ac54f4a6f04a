//! Rate limits: the generic cell rate algorithm of ITU-T I.371 (Annex A) and the ATM Forum's
//! Traffic Management 4.1 (4.4.2).

use crate::Time;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

/// A rate limit with a burst allowance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Long-term events per second; 0 allows none, not even a first.
    pub per_second: u32,
    /// Events at once after a pause; 0 counts as 1.
    pub burst: u32,
}

impl Rate {
    /// A rate that admits nothing.
    pub const NONE: Rate = Rate { per_second: 0, burst: 0 };

    /// Creates a limit of `per_second` events per second, and `burst` at once.
    pub const fn new(per_second: u32, burst: u32) -> Rate {
        Rate { per_second, burst }
    }
}

/// A rate limiter: GCRA(T, τ) in its virtual scheduling form. With *tat*, the theoretical arrival
/// time of the next event, an event at t
///
/// - conforms if tat ≤ t + τ,
/// - and if it does, tat becomes max(t, tat) + n·T, where n is its cost.
///
/// τ = (N − 1)·T admits N events of cost 1 at once. A costlier event is admitted wherever one of
/// cost 1 would be, and the next one waits correspondingly longer. This is a token bucket without a
/// timer, stored as the time at which it is full.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    interval: Duration,
    tolerance: Duration,
    tat: Time,
}

impl Pacer {
    /// Admits one event every `interval` (T), and `burst` (N; 0 counts as 1) at once.
    pub const fn new(interval: Duration, burst: u32) -> Pacer {
        let tolerance = interval.saturating_mul(burst.saturating_sub(1));
        Pacer { interval, tolerance, tat: Time::ZERO }
    }

    /// Creates a pacer for `rate`.
    pub fn of(rate: Rate) -> Pacer {
        match Duration::from_secs(1).checked_div(rate.per_second) {
            Some(interval) => Pacer::new(interval, rate.burst),
            None => Pacer { tat: Time::NEVER, ..Pacer::new(Duration::ZERO, 0) },
        }
    }

    /// Creates a pacer for events that cost time, which are admitted while no more than `tolerance`
    /// (τ) is owed: see [`Pacer::spend_time`].
    pub const fn of_time(tolerance: Duration) -> Pacer {
        Pacer { interval: Duration::ZERO, tolerance, tat: Time::ZERO }
    }

    /// Whether an event would be admitted now.
    pub fn is_ready(&self, now: Time) -> bool {
        self.tat.since(now) <= self.tolerance
    }

    /// The earliest time at which an event is admitted.
    pub fn next(&self) -> Time {
        self.tat - self.tolerance
    }

    /// Admits an event of cost `cost` (n) if it conforms.
    pub fn admit(&mut self, now: Time, cost: u32) -> bool {
        let may = self.is_ready(now);
        if may {
            self.spend(now, cost);
        }
        may
    }

    /// Charges an event of cost `cost`, whether or not it conforms.
    pub fn spend(&mut self, now: Time, cost: u32) {
        self.spend_time(now, self.interval.saturating_mul(cost));
    }

    /// Charges `time` (n·T), whether or not the event conforms.
    pub fn spend_time(&mut self, now: Time, time: Duration) {
        self.tat = self.tat.max(now) + time;
    }

    /// Whether no past event counts any longer.
    pub fn is_idle(&self, now: Time) -> bool {
        self.tat <= now
    }
}

/// A pacer for each source address, in a table of at most `max` entries, so that spoofed addresses
/// cannot exhaust memory.
#[derive(Debug)]
pub struct PerSource {
    pacers: BTreeMap<IpAddr, Pacer>,
    rate: Rate,
    max: usize,
}

impl PerSource {
    /// Creates a table of at most `max` sources, each limited to this rate.
    pub fn new(max: usize, rate: Rate) -> PerSource {
        PerSource { pacers: BTreeMap::new(), rate, max: max.max(1) }
    }

    /// Admits one event from the source that `from` belongs to. Rejects it if the table is full of
    /// other sources.
    pub fn admit(&mut self, now: Time, from: SocketAddr) -> bool {
        let source = network(from.ip());
        if !self.pacers.contains_key(&source) && self.pacers.len() >= self.max {
            // An idle pacer carries no more information than a new one.
            self.pacers.retain(|_, pacer| !pacer.is_idle(now));
            if self.pacers.len() >= self.max {
                return false;
            }
        }
        self.pacers.entry(source).or_insert_with(|| Pacer::of(self.rate)).admit(now, 1)
    }
}

/// The unit of one customer: an IPv4 address, or a /64 (RFC 6177).
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut pacer = Pacer::of(Rate::new(50, 10));
        let mut passed =
            |from: u64, to: u64| (from..to).filter(|&ms| pacer.admit(at(ms), 1)).count();
        assert_eq!(passed(1_000, 1_001), 1);
        assert_eq!(passed(1_001, 2_001), 59);
        assert_eq!(passed(5_000, 5_021), 10 + 1);
    }

    #[test]
    fn the_last_may_cost_more_than_is_left_and_the_next_waits_for_it() {
        let mut pacer = Pacer::new(Duration::from_millis(1), 100);
        assert!(pacer.admit(at(0), 99) && pacer.admit(at(0), 50));
        assert!(!pacer.admit(at(0), 1));
        // 149 ms are owed, and 99 ms are tolerated.
        assert_eq!(pacer.next(), at(50));
        assert!(!pacer.is_ready(at(49)) && pacer.is_ready(at(50)));
        assert!(!pacer.is_idle(at(148)) && pacer.is_idle(at(149)));
    }

    #[test]
    fn what_costs_time_may_owe_the_tolerance() {
        let ms = Duration::from_millis;
        let mut pacer = Pacer::of_time(ms(3));
        pacer.spend_time(at(10), ms(4));
        assert!(!pacer.is_ready(at(10)) && pacer.is_ready(at(11)));
    }

    #[test]
    fn no_rate_is_never() {
        let mut pacer = Pacer::of(Rate::NONE);
        assert!(!pacer.admit(at(0), 1) && !pacer.admit(at(1 << 40), 0));
        assert_eq!(pacer.next(), Time::NEVER);
        assert!(Pacer::of(Rate::new(1, 0)).admit(at(0), 1), "a burst of 0 is one of 1");
    }

    #[test]
    fn the_table_of_sources_is_bounded() {
        let mut table = PerSource::new(3, Rate::new(1, 1));
        let host = |n: u8| SocketAddr::from(([10, 0, 0, n], 7));
        assert!((1..=3).all(|n| table.admit(at(0), host(n))));
        assert!(!table.admit(at(1), host(4)), "no room");
        assert!(!table.admit(at(1), host(1)), "spent");
        assert!(table.admit(at(1_001), host(4)), "the others are idle again");
        assert_eq!(table.pacers.len(), 1);
        let v6 = |n: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], 7));
        assert!(table.admit(at(1_001), v6(1)));
        assert!(!table.admit(at(1_001), v6(2)), "one network");
    }

    proptest! {
        /// I.371 gives two forms of the algorithm that must always agree. The other one is a leaky
        /// bucket: its content X, in units of time, drains as time passes; an arrival conforms if
        /// no more than τ is left, and pours n·T in.
        #[test]
        fn virtual_scheduling_is_the_leaky_bucket(
            interval in 1u64..1_000,
            burst in 0u32..20,
            arrivals in prop::collection::vec((0u64..3_000, 0u32..5), 1..200),
        ) {
            let mut pacer = Pacer::new(Duration::from_nanos(interval), burst);
            let tolerance = interval * u64::from(burst.max(1) - 1);
            let (mut now, mut level) = (0, 0u64);
            for (pause, cost) in arrivals {
                now += pause;
                level = level.saturating_sub(pause);
                let conforms = level <= tolerance;
                prop_assert_eq!(pacer.admit(Time::from_nanos(now), cost), conforms);
                if conforms {
                    level += interval * u64::from(cost);
                }
            }
        }
    }
}
