//! How often something may be done.

use crate::Time;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

/// How often a token comes, and how many are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Tokens per second; 0 gives none, not even a first.
    pub per_second: u32,
    /// The most that may be spent at once.
    pub burst: u32,
}

impl Rate {
    /// Never.
    pub const NONE: Rate = Rate { per_second: 0, burst: 0 };

    /// So many per second, and so many at once.
    pub const fn new(per_second: u32, burst: u32) -> Rate {
        Rate { per_second, burst }
    }

    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }
}

/// A token bucket, as the moment at which it will be full (the generic cell
/// rate algorithm, ITU-T I.371).
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    full_at: Time,
}

impl Pacer {
    /// With its whole burst.
    pub const FULL: Pacer = Pacer { full_at: Time::ZERO };

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Time, rate: Rate) -> bool {
        let after = self.full_at.max(now) + rate.interval();
        let fits = rate.per_second > 0 && after <= now + rate.interval() * rate.burst.max(1);
        if fits {
            self.full_at = after;
        }
        fits
    }
}

/// A bucket for each source address, in a table that does not grow beyond
/// `max`: only addresses that have shown a cookie get here.
#[derive(Debug)]
pub struct PerSource {
    buckets: BTreeMap<IpAddr, Pacer>,
    max: usize,
}

impl PerSource {
    /// For at most `max` sources.
    pub fn new(max: usize) -> PerSource {
        PerSource { buckets: BTreeMap::new(), max: max.max(1) }
    }

    /// Takes a token of the source that `from` belongs to, if there is one and the
    /// table has room.
    pub fn take(&mut self, now: Time, from: SocketAddr, rate: Rate) -> bool {
        let source = network(from.ip());
        if !self.buckets.contains_key(&source) && self.buckets.len() >= self.max {
            // A full bucket says nothing that a new one does not.
            self.buckets.retain(|_, bucket| bucket.full_at > now);
            if self.buckets.len() >= self.max {
                return false;
            }
        }
        self.buckets.entry(source).or_insert(Pacer::FULL).take(now, rate)
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

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let (mut bucket, rate) = (Pacer::FULL, Rate::new(50, 10));
        let mut taken =
            |from: u64, to: u64| (from..to).filter(|ms| bucket.take(at(*ms), rate)).count();
        assert_eq!(taken(1_000, 1_001), 1);
        assert_eq!(taken(1_001, 2_001), 59);
        assert_eq!(taken(5_000, 5_021), 10 + 1);
    }

    #[test]
    fn the_table_of_sources_is_bounded() {
        let (mut table, rate) = (PerSource::new(3), Rate::new(1, 1));
        let host = |n: u8| SocketAddr::from(([10, 0, 0, n], 7));
        assert!((1..=3).all(|n| table.take(at(0), host(n), rate)));
        assert!(!table.take(at(1), host(4), rate), "no room");
        assert!(!table.take(at(1), host(1), rate), "spent");
        assert!(table.take(at(1_001), host(4), rate), "the others are full again");
        assert_eq!(table.buckets.len(), 1);
        let v6 = |n: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], 7));
        assert!(table.take(at(1_001), v6(1), rate));
        assert!(!table.take(at(1_001), v6(2), rate), "one network");
    }
}
