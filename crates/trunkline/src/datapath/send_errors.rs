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

/// Errors of one destination that are worth a log line, age at which they no longer are, and interval
/// between two lines about the same error.
const FEW: u64 = 3;
const OLD: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(600);

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
    /// The last error of each destination that was logged, and when.
    told: BTreeMap<(UplinkId, SocketAddr), (i32, Time)>,
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

    /// The next destination with an error that is still to be logged; it counts as logged then.
    pub fn next_untold(&mut self, now: Time) -> Option<((UplinkId, SocketAddr), i32)> {
        if self.last.is_none_or(|last| now.since(last) >= OLD) {
            return None;
        }
        let told = &self.told;
        let is_untold = |to: &(UplinkId, SocketAddr), e: &SendError| {
            let same = told.get(to).filter(|(errno, _)| *errno == e.errno);
            same.is_none_or(|(_, at)| now.since(*at) >= AGAIN)
        };
        let mut recent = self.destinations.iter().filter(|(_, e)| {
            // A full queue of an interface is no fault.
            now.since(e.last) < OLD && e.count >= FEW && e.errno != libc::ENOBUFS
        });
        let (&to, &SendError { errno, .. }) = recent.find(|(to, e)| is_untold(to, e))?;
        if self.told.len() >= MAX_DESTINATIONS {
            self.told.retain(|_, (_, at)| now.since(*at) < AGAIN);
        }
        self.told.insert(to, (errno, now));
        Some((to, errno))
    }

    /// The errors of datagrams by an uplink to an address, if there were any.
    pub fn of(&self, to: (UplinkId, SocketAddr)) -> Option<SendError> {
        self.destinations.get(&to).copied()
    }
}

/// Advice for an operator about an error.
pub fn remedy(errno: i32) -> &'static str {
    match errno {
        libc::EPERM => {
            "a firewall of this machine rejects them: allow UDP to that address \
                        (`nft list ruleset`)"
        }
        libc::EACCES => {
            "a route prohibits them, or the address is a broadcast one: see \
                         `ip route get ADDRESS`"
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            "there is no route, or its next hop does not answer, or this machine lacks the link's \
             `source`: see `ip route get ADDRESS` and `ip addr`"
        }
        libc::ENODEV | libc::ENXIO | libc::ENETDOWN => {
            "the interface does not exist or is down: see `ip link`, and `interface` in [[link]]"
        }
        libc::EINVAL => {
            "a route is a blackhole, or `source` or `interface` in [[link]] don't fit \
                         the address: see `ip route get ADDRESS`"
        }
        libc::EMSGSIZE => {
            "packets are larger than the interface takes: lower `mtu` in [[link]], or \
                           raise the interface's (`ip link`)"
        }
        _ => "see errno(3), and `trunkline links`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_logged_once_in_a_while() {
        let mut errors = SendErrors::default();
        let to = |n: u16| (UplinkId(1), SocketAddr::from(([192, 0, 2, 1], n)));
        let at = Time::from_millis;
        let note = |errors: &mut SendErrors, ms, to, errno| {
            errors.note(at(ms), to, &io::Error::from_raw_os_error(errno), 1);
        };
        for ms in [1_000, 1_100] {
            note(&mut errors, ms, to(1), libc::EPERM);
        }
        assert_eq!(errors.next_untold(at(1_200)), None, "it may be a moment's");
        note(&mut errors, 1_300, to(1), libc::EPERM);
        (0..9).for_each(|_| note(&mut errors, 1_300, to(2), libc::ENOBUFS));
        assert_eq!(errors.next_untold(at(1_400)), Some((to(1), libc::EPERM)));
        assert_eq!(errors.next_untold(at(1_400)), None);
        note(&mut errors, 2_000, to(1), libc::ENETUNREACH);
        assert_eq!(errors.next_untold(at(2_000)), Some((to(1), libc::ENETUNREACH)));
        note(&mut errors, 600_000, to(1), libc::ENETUNREACH);
        assert_eq!(errors.next_untold(at(600_000)), None);
        note(&mut errors, 603_000, to(1), libc::ENETUNREACH);
        assert_eq!(errors.next_untold(at(603_000)), Some((to(1), libc::ENETUNREACH)));
        assert_eq!(errors.next_untold(at(606_000)), None, "it is over");
    }

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
