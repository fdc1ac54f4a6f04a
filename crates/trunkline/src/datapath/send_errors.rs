//! Errors of the kernel when it refuses to send, by uplink and destination.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::UplinkId;

/// Maximum number of destinations with errors. The one with the oldest error makes room.
const MAX_DESTINATIONS: usize = 1_024;

/// Errors that are further apart belong to different failures.
const PAUSE: Duration = Duration::from_secs(10);

/// Errors of datagrams to one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError {
    /// The last error, as in errno(3).
    pub errno: i32,
    /// Datagrams that the kernel has refused since the start.
    pub count: u64,
    /// First error of the present or last failure.
    pub since: Time,
    /// Time of the last error.
    pub last: Time,
}

impl SendError {
    /// Whether the failure may last: its last error is recent.
    pub fn lasts(&self, now: Time) -> bool {
        now.since(self.last) < PAUSE
    }
}

/// The errors of all destinations.
#[derive(Default, Debug)]
pub struct SendErrors(BTreeMap<(UplinkId, SocketAddr), SendError>);

impl SendErrors {
    /// Records that `error` kept `count` datagrams from being sent by an uplink to an address.
    pub fn note(&mut self, now: Time, to: (UplinkId, SocketAddr), error: &io::Error, count: u64) {
        if self.0.len() >= MAX_DESTINATIONS && !self.0.contains_key(&to) {
            let oldest = self.0.iter().min_by_key(|(_, e)| e.last).map(|(to, _)| *to);
            oldest.and_then(|to| self.0.remove(&to));
        }
        let new = SendError { errno: 0, count: 0, since: now, last: now };
        let entry = self.0.entry(to).or_insert(new);
        if !entry.lasts(now) {
            entry.since = now;
        }
        entry.errno = error.raw_os_error().unwrap_or_default();
        entry.count += count;
        entry.last = now;
    }

    /// The errors of datagrams by an uplink to an address, if there were any.
    pub fn of(&self, to: (UplinkId, SocketAddr)) -> Option<SendError> {
        self.0.get(&to).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_begins_anew_after_a_pause() {
        let mut errors = SendErrors::default();
        let to = (UplinkId(1), "192.0.2.1:7000".parse().unwrap());
        let unreachable = io::Error::from_raw_os_error(libc::ENETUNREACH);
        for at in [1_000, 2_000, 11_000, 30_000] {
            errors.note(Time::from_millis(at), to, &unreachable, 2);
        }
        let (since, last) = (Time::from_millis(30_000), Time::from_millis(30_000));
        let expected = SendError { errno: libc::ENETUNREACH, count: 8, since, last };
        assert_eq!(errors.of(to), Some(expected));
        assert!(expected.lasts(Time::from_millis(39_999)));
        assert!(!expected.lasts(Time::from_millis(40_000)));
        assert_eq!(errors.of((UplinkId(2), to.1)), None);
    }

    #[test]
    fn destinations_are_bounded() {
        let mut errors = SendErrors::default();
        let to = |n: u16| (UplinkId(1), SocketAddr::from(([192, 0, 2, 1], n)));
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        for n in 0..2_000u16 {
            errors.note(Time::from_millis(n.into()), to(n), &refused, 1);
        }
        assert_eq!(errors.0.len(), MAX_DESTINATIONS);
        assert_eq!((errors.of(to(0)), errors.of(to(1_999)).is_some()), (None, true));
    }
}
