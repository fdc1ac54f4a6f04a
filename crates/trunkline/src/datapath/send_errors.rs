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
    /// Whether the kernel has taken a datagram since.
    pub is_over: bool,
}

impl SendError {
    /// Whether the failure may last: its last error is recent, and nothing was sent since.
    pub fn lasts(&self, now: Time) -> bool {
        !self.is_over && now.since(self.last) < PAUSE
    }
}

/// The errors of all destinations.
#[derive(Default, Debug)]
pub struct SendErrors {
    destinations: BTreeMap<(UplinkId, SocketAddr), SendError>,
    /// Time of the last error of all.
    last: Option<Time>,
}

impl SendErrors {
    /// Records that `error` kept `count` datagrams from being sent by an uplink to an address.
    pub fn note(&mut self, now: Time, to: (UplinkId, SocketAddr), error: &io::Error, count: u64) {
        let all = &mut self.destinations;
        if all.len() >= MAX_DESTINATIONS && !all.contains_key(&to) {
            let oldest = all.iter().min_by_key(|(_, e)| e.last).map(|(to, _)| *to);
            oldest.and_then(|to| all.remove(&to));
        }
        let new = SendError { errno: 0, count: 0, since: now, last: now, is_over: false };
        let entry = all.entry(to).or_insert(new);
        if !entry.lasts(now) {
            entry.since = now;
        }
        entry.is_over = false;
        self.last = Some(now);
        entry.errno = error.raw_os_error().unwrap_or_default();
        entry.count += count;
        entry.last = now;
    }

    /// Records that the kernel has taken datagrams by an uplink to some addresses. That matters only
    /// while an error is recent: packets cost nothing more otherwise.
    pub fn sent(&mut self, now: Time, uplink: UplinkId, to: impl Iterator<Item = SocketAddr>) {
        if self.last.is_none_or(|last| now.since(last) >= PAUSE) {
            return;
        }
        for to in to {
            if let Some(entry) = self.destinations.get_mut(&(uplink, to)) {
                entry.is_over = true;
            }
        }
    }

    /// The errors of datagrams by an uplink to an address, if there were any.
    pub fn of(&self, to: (UplinkId, SocketAddr)) -> Option<SendError> {
        self.destinations.get(&to).copied()
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
        let errno = libc::ENETUNREACH;
        let expected = SendError { errno, count: 8, since, last, is_over: false };
        assert_eq!(errors.of(to), Some(expected));
        assert!(expected.lasts(Time::from_millis(39_999)));
        assert!(!expected.lasts(Time::from_millis(40_000)));
        assert_eq!(errors.of((UplinkId(2), to.1)), None);
    }

    /// A firewall was mended; what fails next, fails for another reason.
    #[test]
    fn a_failure_is_over_once_something_is_sent() {
        let mut errors = SendErrors::default();
        let to = (UplinkId(1), "192.0.2.1:7000".parse().unwrap());
        let other: SocketAddr = "192.0.2.2:7000".parse().unwrap();
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let lasts = |errors: &SendErrors, at| errors.of(to).unwrap().lasts(Time::from_millis(at));
        errors.note(Time::from_millis(1_000), to, &refused, 1);
        let now = Time::from_millis(1_200);
        errors.sent(now, UplinkId(1), [other].into_iter());
        errors.sent(now, UplinkId(2), [to.1].into_iter());
        assert!(lasts(&errors, 1_500));
        errors.sent(now, UplinkId(1), [to.1].into_iter());
        assert!(!lasts(&errors, 1_500));
        errors.note(Time::from_millis(2_000), to, &refused, 1);
        let again = errors.of(to).unwrap();
        assert_eq!((again.since, again.count), (Time::from_millis(2_000), 2));
        assert!(lasts(&errors, 2_500));
    }

    #[test]
    fn destinations_are_bounded() {
        let mut errors = SendErrors::default();
        let to = |n: u16| (UplinkId(1), SocketAddr::from(([192, 0, 2, 1], n)));
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        for n in 0..2_000u16 {
            errors.note(Time::from_millis(n.into()), to(n), &refused, 1);
        }
        assert_eq!(errors.destinations.len(), MAX_DESTINATIONS);
        assert_eq!((errors.of(to(0)), errors.of(to(1_999)).is_some()), (None, true));
    }
}
