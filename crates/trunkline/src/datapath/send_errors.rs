//! Errors of the kernel when it refuses to send, by link.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::UplinkId;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::LinkName;

/// Errors that are further apart belong to different failures.
const PAUSE: Duration = Duration::from_secs(10);
/// Time without an error, while packets are taken, after which a failure has ended: what leaves
/// between two errors ends none.
const CALM: Duration = Duration::from_secs(2);

/// Errors of the datagrams of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError {
    /// The last error, as in errno(3).
    pub errno: i32,
    /// Datagrams that the kernel has refused since the start.
    pub count: u64,
    /// How many of them before the present or last failure.
    pub before: u64,
    /// First error of the present or last failure.
    pub since: Time,
    /// Time of the last error.
    pub last: Time,
    /// First time after the last error but one that the kernel took a datagram, if it did.
    pub taken: Option<Time>,
    /// Whether it has taken one since the last error.
    pub is_answered: bool,
    /// Whether the node itself keeps everything back, for the reason of the error.
    pub is_held: bool,
}

impl SendError {
    /// Whether the failure may last: its last error is recent, or no packet was taken since.
    pub fn lasts(&self, now: Time) -> bool {
        let pause = if self.is_answered { CALM } else { PAUSE };
        self.is_held || now.since(self.last) < pause
    }

    /// Whether the kernel refuses some packets and takes others.
    pub fn is_partial(&self, now: Time) -> bool {
        let took = self.taken.is_some_and(|at| now.since(at) < CALM);
        !self.is_held && self.errno != libc::EMSGSIZE && took && self.lasts(now)
    }
}

/// Where a link's packets go at present.
#[derive(Debug)]
struct Lead {
    name: LinkName,
    to: (UplinkId, SocketAddr),
}

/// The errors of all links. Those of packets to other addresses, such as answers to handshakes,
/// belong to none.
#[derive(Default, Debug)]
pub struct SendErrors {
    links: BTreeMap<LinkId, SendError>,
    leads: BTreeMap<LinkId, Lead>,
    /// The link whose packets go by an uplink to an address.
    by_place: BTreeMap<(UplinkId, SocketAddr), LinkId>,
    /// Links of which nothing was taken since their last error.
    open: BTreeSet<LinkId>,
    /// Number of links of which everything is kept back.
    held: usize,
    /// Time of the last error of all.
    last: Option<Time>,
}

impl SendErrors {
    /// Records that the packets of `link`, which is called `name`, go by an uplink to an address
    /// from now on. A link that takes the number of a former one begins without errors.
    pub fn lead(&mut self, link: LinkId, name: &LinkName, to: (UplinkId, SocketAddr)) {
        let before = self.leads.get(&link);
        if before.is_some_and(|lead| lead.to == to && lead.name == *name) {
            return;
        }
        if let Some(lead) = before.filter(|lead| self.by_place.get(&lead.to) == Some(&link)) {
            self.by_place.remove(&lead.to);
        }
        if before.is_some_and(|lead| lead.name != *name) {
            self.remove(link);
        }
        self.leads.insert(link, Lead { name: name.clone(), to });
        self.by_place.insert(to, link);
    }

    /// The links of which something is known.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        self.leads.keys().chain(self.links.keys()).copied()
    }

    /// Forgets the errors of a link that is gone, and where its packets went.
    pub fn forget(&mut self, link: LinkId) {
        self.remove(link);
        if let Some(lead) = self.leads.remove(&link)
            && self.by_place.get(&lead.to) == Some(&link)
        {
            self.by_place.remove(&lead.to);
        }
    }

    /// Records that `error` kept `count` datagrams from being sent by an uplink to an address.
    pub fn note(&mut self, now: Time, to: (UplinkId, SocketAddr), error: &io::Error, count: u64) {
        let Some(&link) = self.by_place.get(&to) else { return };
        self.note_of(now, link, error.raw_os_error().unwrap_or_default(), count);
    }

    fn note_of(&mut self, now: Time, link: LinkId, errno: i32, count: u64) {
        let entry = self.links.entry(link).or_insert(SendError {
            errno,
            count: 0,
            before: 0,
            since: now,
            last: now,
            taken: None,
            is_answered: false,
            is_held: false,
        });
        if !entry.lasts(now) {
            (entry.since, entry.before, entry.taken) = (now, entry.count, None);
        }
        self.last = Some(now);
        entry.errno = errno;
        entry.count += count;
        entry.last = now;
        entry.is_answered = false;
        // Packets that are too large are refused between others.
        if errno == libc::EMSGSIZE {
            self.open.remove(&link);
        } else {
            self.open.insert(link);
        }
    }

    /// Records that everything of `link` is kept back for the reason `errno`, or (`None`) that it is
    /// not. That is a failure whether or not there is anything to send.
    pub fn hold(&mut self, now: Time, link: LinkId, errno: Option<i32>) {
        if let Some(errno) = errno {
            self.note_of(now, link, errno, 0);
        }
        let Some(entry) = self.links.get_mut(&link) else { return };
        if entry.is_held != errno.is_some() {
            entry.is_held = errno.is_some();
            self.held = if entry.is_held { self.held + 1 } else { self.held - 1 };
        }
    }

    fn remove(&mut self, link: LinkId) {
        self.open.remove(&link);
        let was_held = self.links.remove(&link).is_some_and(|entry| entry.is_held);
        self.held -= usize::from(was_held);
    }

    /// Records that the kernel has taken datagrams by an uplink to some addresses. That matters only
    /// after an error: packets cost nothing more otherwise.
    pub fn sent(&mut self, now: Time, uplink: UplinkId, to: impl Iterator<Item = SocketAddr>) {
        if self.open.is_empty() {
            return;
        }
        for to in to {
            let link = self.by_place.get(&(uplink, to)).filter(|link| self.open.remove(link));
            if let Some(entry) = link.and_then(|link| self.links.get_mut(link)) {
                (entry.taken, entry.is_answered) = (Some(now), true);
            }
        }
    }

    /// Whether any error is recent, or a link is held.
    pub fn are_recent(&self, now: Time) -> bool {
        self.held > 0 || self.last.is_some_and(|last| now.since(last) < PAUSE)
    }

    /// The errors of a link, if there were any.
    pub fn of(&self, link: LinkId) -> Option<SendError> {
        self.links.get(&link).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_overlay::wire::NodeId;

    fn to(uplink: u16, host: u8) -> (UplinkId, SocketAddr) {
        (UplinkId(uplink), SocketAddr::from(([192, 0, 2, host], 7_000)))
    }

    fn link(node: u32, path: &str) -> LinkName {
        (NodeId(node), path.into())
    }

    fn refused(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn a_failure_begins_anew_after_a_pause() {
        let mut errors = SendErrors::default();
        errors.lead(LinkId(0), &link(2, ""), to(1, 1));
        for at in [1_000, 2_000, 11_000, 30_000] {
            errors.note(Time::from_millis(at), to(1, 1), &refused(libc::ENETUNREACH), 2);
        }
        let (since, last) = (Time::from_millis(30_000), Time::from_millis(30_000));
        let errno = libc::ENETUNREACH;
        let (taken, is_answered, is_held) = (None, false, false);
        let expected =
            SendError { errno, count: 8, before: 6, since, last, taken, is_answered, is_held };
        assert_eq!(errors.of(LinkId(0)), Some(expected));
        assert!(expected.lasts(Time::from_millis(39_999)));
        assert!(!expected.lasts(Time::from_millis(40_000)));
        assert_eq!(errors.of(LinkId(1)), None);
    }

    /// A firewall was mended; what fails next, fails for another reason.
    #[test]
    fn a_failure_is_over_a_while_after_something_is_sent() {
        let mut errors = SendErrors::default();
        errors.lead(LinkId(0), &link(2, ""), to(1, 1));
        let lasts =
            |errors: &SendErrors, at| errors.of(LinkId(0)).unwrap().lasts(Time::from_millis(at));
        errors.note(Time::from_millis(1_000), to(1, 1), &refused(libc::EPERM), 1);
        let now = Time::from_millis(1_200);
        errors.sent(now, UplinkId(1), [to(1, 2).1].into_iter());
        errors.sent(now, UplinkId(2), [to(1, 1).1].into_iter());
        assert!(lasts(&errors, 10_999));
        errors.sent(now, UplinkId(1), [to(1, 1).1].into_iter());
        assert!(lasts(&errors, 2_999) && !lasts(&errors, 3_000));
        errors.note(Time::from_millis(3_100), to(1, 1), &refused(libc::EPERM), 1);
        let again = errors.of(LinkId(0)).unwrap();
        assert_eq!((again.since, again.count), (Time::from_millis(3_100), 2));
        assert!(lasts(&errors, 5_500));
        // Small packets leave between those that are too large.
        errors.note(Time::from_millis(6_000), to(1, 1), &refused(libc::EMSGSIZE), 1);
        errors.sent(Time::from_millis(6_100), UplinkId(1), [to(1, 1).1].into_iter());
        assert!(lasts(&errors, 15_999) && !lasts(&errors, 16_000));
    }

    /// A firewall lets a number of packets through in each second.
    #[test]
    fn a_failure_of_some_packets_is_one_failure() {
        let mut errors = SendErrors::default();
        errors.lead(LinkId(0), &link(2, ""), to(1, 1));
        let at = |n: u64| Time::from_millis(1_000 + 20 * n);
        let error = |errors: &SendErrors| errors.of(LinkId(0)).unwrap();
        for n in 0..500 {
            match n % 2 {
                0 => errors.note(at(n), to(1, 1), &refused(libc::EPERM), 1),
                _ => errors.sent(at(n), UplinkId(1), [to(1, 1).1].into_iter()),
            }
            let error = error(&errors);
            assert!(error.lasts(at(n)) && error.is_partial(at(n)) == (n > 0), "{n}");
        }
        assert_eq!((error(&errors).since, error(&errors).before), (at(0), 0));
        // From here on none is let through.
        for n in 500..600 {
            errors.note(at(n), to(1, 1), &refused(libc::EPERM), 1);
        }
        assert!(error(&errors).lasts(at(600)) && !error(&errors).is_partial(at(600)));
    }

    /// No packet need be refused: the neighbour's calls may keep this node from calling.
    #[test]
    fn a_link_that_is_held_has_a_reason_without_a_packet() {
        let (mut errors, at) = (SendErrors::default(), Time::from_millis);
        errors.lead(LinkId(0), &link(2, ""), to(65, 1));
        let missing = Some(libc::EADDRNOTAVAIL);
        errors.hold(at(1_000), LinkId(0), missing);
        errors.hold(at(2_000), LinkId(0), missing);
        let error = errors.of(LinkId(0)).unwrap();
        assert_eq!((error.errno, error.count, error.since), (libc::EADDRNOTAVAIL, 0, at(1_000)));
        assert!(error.lasts(at(600_000)) && errors.are_recent(at(600_000)));
        errors.hold(at(601_000), LinkId(0), None);
        errors.sent(at(601_000), UplinkId(65), [to(65, 1).1].into_iter());
        assert!(!errors.of(LinkId(0)).unwrap().lasts(at(601_000)));
        errors.hold(at(601_000), LinkId(0), missing);
        errors.forget(LinkId(0));
        assert!(!errors.are_recent(at(700_000)));
        assert_eq!(errors.links().count(), 0);
    }

    /// Two links to one address by different interfaces. The uplink of the first is closed, and the
    /// second takes its number.
    #[test]
    fn errors_stay_with_their_link() {
        let mut errors = SendErrors::default();
        let at = Time::from_millis;
        let (fibre, lte) = (LinkId(0), LinkId(1));
        errors.lead(fibre, &link(2, "fibre"), to(3, 1));
        errors.lead(lte, &link(2, "lte"), to(4, 1));
        errors.note(at(1_000), to(4, 1), &refused(libc::EPERM), 5);
        errors.lead(lte, &link(2, "lte"), to(5, 1));
        errors.lead(fibre, &link(2, "fibre"), to(4, 1));
        assert_eq!(errors.of(fibre), None);
        errors.note(at(2_000), to(5, 1), &refused(libc::EPERM), 1);
        assert_eq!(errors.of(lte).map(|error| error.count), Some(6));
        // They swap.
        errors.lead(fibre, &link(2, "fibre"), to(5, 1));
        errors.lead(lte, &link(2, "lte"), to(4, 1));
        errors.note(at(3_000), to(4, 1), &refused(libc::EINVAL), 1);
        assert_eq!((errors.of(fibre), errors.of(lte).map(|e| e.count)), (None, Some(7)));
        // Another link takes the number of one that was removed.
        errors.lead(lte, &link(3, ""), to(4, 1));
        assert_eq!(errors.of(lte), None);
        errors.note(at(4_000), to(6, 9), &refused(libc::EPERM), 1);
        assert_eq!(errors.links.len(), 0, "no link leads there");
        // It goes, too.
        errors.note(at(5_000), to(4, 1), &refused(libc::EPERM), 1);
        errors.forget(lte);
        errors.note(at(6_000), to(4, 1), &refused(libc::EPERM), 1);
        assert_eq!(errors.of(lte), None);
        assert_eq!(errors.links().collect::<Vec<_>>(), [fibre]);
    }
}
