//! Cookies, with which an unknown peer shows that it receives at its address.

use super::message::COOKIE;
use crate::identity::mac::first_half;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use ring::hmac;
use subtle::ConstantTimeEq;
use trunkline_base::Time;

/// Time for which a secret creates cookies; they stay valid for as long again.
pub(super) const COOKIE_SECRET: Duration = Duration::from_secs(120);

/// Cookies are a keyed hash of an address, so none needs to be remembered.
pub(super) struct Cookies {
    keys: [hmac::Key; 2],
    rotate_at: Time,
}

impl Cookies {
    pub fn new(secrets: [[u8; 32]; 2]) -> Cookies {
        let keys = secrets.map(|s| hmac::Key::new(hmac::HMAC_SHA256, &s));
        Cookies { keys, rotate_at: Time::ZERO }
    }

    /// Replaces the secrets that are too old at `now`. An idle node calls this late, so both may
    /// be.
    pub fn rotate(&mut self, now: Time, secret: impl FnOnce() -> [u8; 32]) {
        if now < self.rotate_at {
            return;
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret());
        if now < self.rotate_at + COOKIE_SECRET {
            self.keys.swap(0, 1);
            self.keys[0] = key;
            self.rotate_at += COOKIE_SECRET;
        } else {
            self.keys = [key.clone(), key];
            self.rotate_at = now + COOKIE_SECRET;
        }
    }

    pub fn make(&self, to: SocketAddr) -> [u8; COOKIE] {
        cookie(&self.keys[0], to)
    }

    /// Whether `shown` was recently handed out to `from`.
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

    #[test]
    fn a_cookie_expires_on_an_idle_node() {
        let a = SocketAddr::from(([10, 0, 0, 1], 7));
        // Times at which the node receives something, and whether a cookie made at 0 is valid at the
        // last of them.
        for (received, valid) in [
            (&[239_999][..], true),
            (&[240_000], false),
            (&[1_000_000], false),
            (&[200_000, 239_999], true),
            (&[200_000, 240_000], false),
        ] {
            let mut cookies = Cookies::new([[1; 32], [2; 32]]);
            let mut secrets = (3..).map(|n| [n; 32]);
            cookies.rotate(at(0), || secrets.next().unwrap());
            let cookie = cookies.make(a);
            for &ms in received {
                cookies.rotate(at(ms), || secrets.next().unwrap());
            }
            assert_eq!(cookies.check(a, &cookie), valid, "{received:?}");
        }
    }
}
