//! Errors of the kernel when it refuses to send, by uplink and destination.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::UplinkId;
use trunkline_overlay::link::LinkId;

/// Maximum number of destinations with errors. The one with the oldest error makes room.
const MAX_DESTINATIONS: usize = 1_024;

/// Errors that are further apart belong to different failures.
const PAUSE: Duration = Duration::from_secs(10);

/// Number of errors of one destination that are worth a log line, and age at which they no longer
/// are.
const FEW: u64 = 3;
const OLD: Duration = Duration::from_secs(2);

/// Interval between two lines about the same error of a link.
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
    /// The last error of each link that was logged, and when.
    told: BTreeMap<LinkId, (i32, Time)>,
    /// Time of the last look for errors to be logged.
    looked: Time,
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

    /// Whether to look for errors to be logged: some are recent, and the last look is a second ago.
    pub fn is_worth_a_look(&mut self, now: Time) -> bool {
        let is_recent = self.last.is_some_and(|last| now.since(last) < OLD);
        let looks = is_recent && now.since(self.looked) >= Duration::from_secs(1);
        if looks {
            self.looked = now;
        }
        looks
    }

    /// The present error of a link, if it is to be logged; it counts as logged then. Only links are
    /// asked about: anyone can make this node answer an address that the kernel refuses.
    pub fn take_untold(
        &mut self,
        now: Time,
        link: LinkId,
        to: (UplinkId, SocketAddr),
    ) -> Option<i32> {
        let error = self.destinations.get(&to).filter(|error| {
            // A full queue of an interface is no fault.
            now.since(error.last) < OLD && error.count >= FEW && error.errno != libc::ENOBUFS
        })?;
        let is_told = self.told.get(&link).is_some_and(|&(errno, at)| {
            let silence = if errno == error.errno { AGAIN } else { PAUSE };
            now.since(at) < silence
        });
        if is_told {
            return None;
        }
        self.told.insert(link, (error.errno, now));
        Some(error.errno)
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
            "a firewall of this machine rejects them: allow UDP to that address (`nft list ruleset`)"
        }
        libc::EACCES => {
            "a route prohibits them, or the address is a broadcast one: see `ip route get ADDRESS`"
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            "there is no route, or its next hop does not answer, or this machine lacks the link's \
             `source`: see `ip route get ADDRESS` and `ip addr`"
        }
        libc::ENODEV | libc::ENXIO | libc::ENETDOWN => {
            "the interface does not exist or is down: see `ip link`, and `interface` in [[link]]"
        }
        libc::EINVAL => {
            "a route is a blackhole, or `source` or `interface` in [[link]] does not fit the \
             address: see `ip route get ADDRESS`"
        }
        libc::EMSGSIZE => {
            "packets are larger than the interface takes: lower `mtu` in [[link]], or raise the \
             interface's (`ip link`)"
        }
        _ => "see errno(3), and `trunkline links`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_link_is_logged_once_in_a_while() {
        let mut errors = SendErrors::default();
        let to = |n: u16| (UplinkId(1), SocketAddr::from(([192, 0, 2, 1], n)));
        let at = Time::from_millis;
        let note = |errors: &mut SendErrors, ms, n, errno| {
            errors.note(at(ms), to(n), &io::Error::from_raw_os_error(errno), 1);
        };
        let log = |errors: &mut SendErrors, ms, n| errors.take_untold(at(ms), LinkId(n), to(n));
        assert!(!errors.is_worth_a_look(at(1_000)));
        for ms in [1_000, 1_100] {
            note(&mut errors, ms, 1, libc::EPERM);
        }
        assert_eq!(log(&mut errors, 1_200, 1), None, "it may be a moment's");
        note(&mut errors, 1_300, 1, libc::EPERM);
        (0..9).for_each(|_| note(&mut errors, 1_300, 2, libc::ENOBUFS));
        assert!(errors.is_worth_a_look(at(1_400)) && !errors.is_worth_a_look(at(2_399)));
        assert_eq!([1, 2].map(|n| log(&mut errors, 1_400, n)), [Some(libc::EPERM), None]);
        assert_eq!(log(&mut errors, 1_400, 1), None);
        note(&mut errors, 2_000, 1, libc::ENETUNREACH);
        assert_eq!(log(&mut errors, 2_000, 1), None, "two errors in turn are no more lines");
        note(&mut errors, 12_000, 1, libc::ENETUNREACH);
        assert_eq!(log(&mut errors, 12_000, 1), Some(libc::ENETUNREACH));
        note(&mut errors, 611_999, 1, libc::ENETUNREACH);
        assert_eq!(log(&mut errors, 611_999, 1), None);
        note(&mut errors, 612_000, 1, libc::ENETUNREACH);
        assert_eq!(log(&mut errors, 612_000, 1), Some(libc::ENETUNREACH));
        assert!(!errors.is_worth_a_look(at(614_000)), "it is over");
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
