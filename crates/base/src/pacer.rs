//! How often something may be done: the generic cell rate algorithm of ITU-T
//! I.371 (Annex A) and the ATM Forum's Traffic Management 4.1 (4.4.2).

use crate::Time;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

/// How often something may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// In the long run; 0 is never, not even a first time.
    pub per_second: u32,
    /// How many times at once, after a pause; 0 is as good as 1.
    pub burst: u32,
}

impl Rate {
    /// A rate that never lets anything pass.
    pub const NONE: Rate = Rate { per_second: 0, burst: 0 };

    /// So many per second, and so many at once.
    pub const fn new(per_second: u32, burst: u32) -> Rate {
        Rate { per_second, burst }
    }
}

/// Lets things pass at a rate: GCRA(T, τ) in its form of virtual scheduling. With
/// *tat*, the theoretical arrival time of the next, one that comes at t
///
/// - conforms if tat ≤ t + τ,
/// - and if it does, tat becomes max(t, tat) + n·T, where n is what it costs.
///
/// τ = (N − 1)·T lets N pass at once that cost 1 each. What costs more may pass
/// where 1 may, and the next waits the longer for it. This is a token bucket that
/// needs no timer, kept as the one moment at which it is full.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    interval: Duration,
    tolerance: Duration,
    tat: Time,
}

impl Pacer {
    /// One every `interval` (T), and `burst` (N; 0 is as good as 1) at once.
    pub const fn new(interval: Duration, burst: u32) -> Pacer {
        let tolerance = interval.saturating_mul(burst.saturating_sub(1));
        Pacer { interval, tolerance, tat: Time::ZERO }
    }

    /// At this rate.
    pub fn of(rate: Rate) -> Pacer {
        match Duration::from_secs(1).checked_div(rate.per_second) {
            Some(interval) => Pacer::new(interval, rate.burst),
            None => Pacer { tat: Time::NEVER, ..Pacer::new(Duration::ZERO, 0) },
        }
    }

    /// For what costs time, which may pass as long as no more than `tolerance` (τ)
    /// is owed: see [`Pacer::spend_time`].
    pub const fn of_time(tolerance: Duration) -> Pacer {
        Pacer { interval: Duration::ZERO, tolerance, tat: Time::ZERO }
    }

    /// Whether something may pass now.
    pub fn is_ready(&self, now: Time) -> bool {
        self.tat.since(now) <= self.tolerance
    }

    /// From when on something may.
    pub fn next(&self) -> Time {
        self.tat - self.tolerance
    }

    /// Lets something pass that costs `cost` (n), if it may.
    pub fn admit(&mut self, now: Time, cost: u32) -> bool {
        let may = self.is_ready(now);
        if may {
            self.spend(now, cost);
        }
        may
    }

    /// Reckons with what has passed, whether it might or not.
    pub fn spend(&mut self, now: Time, cost: u32) {
        self.spend_time(now, self.interval.saturating_mul(cost));
    }

    /// The same of something that costs so much time, n·T.
    pub fn spend_time(&mut self, now: Time, time: Duration) {
        self.tat = self.tat.max(now) + time;
    }

    /// Whether nothing has passed of late that still counts.
    pub fn is_idle(&self, now: Time) -> bool {
        self.tat <= now
    }
}

/// A pacer for each source address, in a table that does not grow beyond `max`:
/// no place for addresses that are made up.
#[derive(Debug)]
pub struct PerSource {
    pacers: BTreeMap<IpAddr, Pacer>,
    rate: Rate,
    max: usize,
}

impl PerSource {
    /// At most `max` sources at once, each at this rate.
    pub fn new(max: usize, rate: Rate) -> PerSource {
        PerSource { pacers: BTreeMap::new(), rate, max: max.max(1) }
    }

    /// Whether the source that `from` belongs to may once more. It may not if the
    /// table is full of others.
    pub fn admit(&mut self, now: Time, from: SocketAddr) -> bool {
        let source = network(from.ip());
        if !self.pacers.contains_key(&source) && self.pacers.len() >= self.max {
            // An idle one says nothing that a new one does not.
            self.pacers.retain(|_, pacer| !pacer.is_idle(now));
            if self.pacers.len() >= self.max {
                return false;
            }
        }
        self.pacers.entry(source).or_insert_with(|| Pacer::of(self.rate)).admit(now, 1)
    }
}

/// One customer has one IPv4 address, or a /64 (RFC 6177).
fn network(ip: IpAddr) -> IpAddr {
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
        // 149 ms are owed, and 99 may be.
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
        /// I.371 gives two forms of the algorithm that must always agree. The other
        /// is a leaky bucket: X units of time in it, which drain as time passes; one
        /// that comes conforms if no more than τ is left then, and pours n·T in.
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
