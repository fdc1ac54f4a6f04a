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

    /// Takes a new secret if the current one is too old.
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
}
