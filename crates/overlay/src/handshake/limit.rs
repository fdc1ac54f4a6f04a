//! What strangers may make a node compute and send: token buckets and cookies.

use super::message::{COOKIE, first_half};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use ring::hmac;
use std::collections::BTreeMap;
use subtle::ConstantTimeEq;
use trunkline_base::Time;

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

    pub(crate) const fn new(per_second: u32, burst: u32) -> Rate {
        Rate { per_second, burst }
    }

    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }
}

/// A token bucket, as the moment at which it will be full (the generic cell
/// rate algorithm, ITU-T I.371).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    full_at: Time,
}

impl Bucket {
    pub const FULL: Bucket = Bucket { full_at: Time::ZERO };

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
pub(crate) struct PerSource {
    buckets: BTreeMap<IpAddr, Bucket>,
    max: usize,
}

impl PerSource {
    pub fn new(max: usize) -> PerSource {
        PerSource { buckets: BTreeMap::new(), max: max.max(1) }
    }

    pub fn take(&mut self, now: Time, from: SocketAddr, rate: Rate) -> bool {
        let source = network(from.ip());
        if !self.buckets.contains_key(&source) && self.buckets.len() >= self.max {
            // A full bucket says nothing that a new one does not.
            self.buckets.retain(|_, bucket| bucket.full_at > now);
            if self.buckets.len() >= self.max {
                return false;
            }
        }
        self.buckets.entry(source).or_insert(Bucket::FULL).take(now, rate)
    }
}

/// One customer has one IPv4 address, or a /64 (RFC 6177).
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

/// How long a secret makes cookies; it is believed as long again.
pub(super) const COOKIE_SECRET: Duration = Duration::from_secs(120);

/// Cookies: a keyed hash of an address, so that none needs to be remembered.
pub(super) struct Cookies {
    keys: [hmac::Key; 2],
    rotate_at: Time,
}

impl Cookies {
    pub fn new(secrets: [[u8; 32]; 2]) -> Cookies {
        let keys = secrets.map(|s| hmac::Key::new(hmac::HMAC_SHA256, &s));
        Cookies { keys, rotate_at: Time::ZERO }
    }

    /// Takes a new secret if the present one is old.
    pub fn rotate(&mut self, now: Time, secret: impl FnOnce() -> [u8; 32]) {
        if now >= self.rotate_at {
            self.keys.swap(0, 1);
            self.keys[0] = hmac::Key::new(hmac::HMAC_SHA256, &secret());
            self.rotate_at = now + COOKIE_SECRET;
        }
    }

    pub fn make(&self, to: SocketAddr) -> [u8; COOKIE] {
        cookie(&self.keys[0], to)
    }

    /// Whether `shown` was handed out to `from` of late.
    pub fn check(&self, from: SocketAddr, shown: &[u8; COOKIE]) -> bool {
        // Most initiations carry none.
        shown != &[0; COOKIE]
            && self.keys.iter().any(|key| cookie(key, from)[..].ct_eq(&shown[..]).into())
    }
}

fn cookie(key: &hmac::Key, address: SocketAddr) -> [u8; COOKIE] {
    let mut bytes = [0; 18];
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    first_half(&hmac::sign(key, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let (mut bucket, rate) = (Bucket::FULL, Rate::new(50, 10));
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

    #[test]
    fn a_cookie_is_for_one_address_and_a_while() {
        let mut cookies = Cookies::new([[1; 32], [2; 32]]);
        let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 7)), SocketAddr::from(([10, 0, 0, 1], 8)));
        cookies.rotate(at(0), || [3; 32]);
        let cookie = cookies.make(a);
        assert!(cookies.check(a, &cookie));
        assert!(!cookies.check(b, &cookie));
        assert!(!cookies.check(a, &[0; COOKIE]));
        cookies.rotate(at(119_999), || unreachable!());
        cookies.rotate(at(120_000), || [4; 32]);
        assert!(cookies.check(a, &cookie));
        cookies.rotate(at(240_000), || [5; 32]);
        assert!(!cookies.check(a, &cookie));
    }
}
