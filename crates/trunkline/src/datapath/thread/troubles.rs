//! Troubles of links: reasons why their packets stay at this machine. The log says each with what can
//! be done, and says when it has ended.

use super::hosts::name_of;
use super::uplinks::Elsewhere;
use super::{LinkName, PacketThread};
use crate::clock;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::link::{Link, LinkId};

/// Interval between two looks at the links while there is trouble.
const LOOK: Duration = Duration::from_secs(1);
/// Number of errors in one failure that are worth a line. A few are a moment's.
const FEW: u64 = 3;
/// Time for which an interface that takes nothing is not worth a line: it is busy.
const BUSY: Duration = Duration::from_secs(1);
/// Least interval between lines about new troubles of one link.
const PAUSE: Duration = Duration::from_secs(10);
/// Time without trouble after which it has ended.
const CALM: Duration = Duration::from_secs(1);
/// Time for which packets arrive at another own address than the link's that is worth a line: a
/// neighbour follows a link that has moved, in half a second.
const ASTRAY: Duration = Duration::from_secs(3);
/// Interval between lines about a refusal of all and of some packets: the share may vary.
const AKIN: Duration = Duration::from_secs(60);
/// Interval between lines about the same trouble of a link.
const AGAIN: Duration = Duration::from_secs(600);

/// Why packets of a link don't leave as they should.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Trouble {
    /// The interface, of this name, has no carrier.
    NoCarrier(String),
    /// The kernel refuses them, for a reason as in errno(3).
    Refused(i32),
    /// The kernel refuses some of them, for a reason as in errno(3).
    PartlyRefused(i32),
    /// They wait for a machine that doesn't say its link-layer address.
    Silent(IpAddr),
    /// The interface takes nothing.
    Stalled,
    /// Behind the interface they wait in a queue of their own, which takes nothing.
    StalledAlone,
    /// They leave by another interface than the one that has their source.
    Elsewhere(Elsewhere),
    /// The neighbour's arrive at this own address, which is not the link's.
    Astray(IpAddr),
}

impl Trouble {
    /// Whether the link's packets don't leave, or not all of them.
    fn is_outage(&self) -> bool {
        !matches!(self, Trouble::Elsewhere(_) | Trouble::Astray(_))
    }

    /// Whether `other` is the same refusal of more or fewer packets.
    fn is_akin(&self, other: &Trouble) -> bool {
        use Trouble::{PartlyRefused, Refused};
        match (self, other) {
            (Refused(a), PartlyRefused(b)) | (PartlyRefused(a), Refused(b)) => a == b,
            _ => false,
        }
    }
}

/// The trouble of a link that was logged last.
#[derive(Debug)]
struct Told {
    name: LinkName,
    trouble: Trouble,
    /// When it was seen first, and when its last line was written.
    since: Time,
    at: Time,
    /// Since when it has not been seen.
    calm: Option<Time>,
    is_over: bool,
}

/// The troubles that were logged.
#[derive(Default, Debug)]
pub struct Troubles {
    told: BTreeMap<LinkId, Told>,
    /// How many of them are not over.
    last: usize,
    looked: Time,
}

impl Troubles {
    /// When to look at the links, of which some are in trouble or not: a second after the last look,
    /// as long as a line about a trouble or its end is due.
    fn look_at(&self, some_are: bool) -> Time {
        if some_are || self.last > 0 { self.looked + LOOK } else { Time::NEVER }
    }

    /// Forgets links that are gone: another may have the number of one.
    fn keep(&mut self, is_there: impl Fn(LinkId, &LinkName) -> bool) {
        self.told.retain(|link, told| is_there(*link, &told.name));
        self.last = self.told.values().filter(|told| !told.is_over).count();
    }

    /// Says whether to log that a link has `trouble` now, or that the one that was logged has ended.
    fn news(
        &mut self,
        now: Time,
        (link, name): (LinkId, &LinkName),
        trouble: Option<(&Trouble, Time)>,
    ) -> Option<News> {
        let told = self.told.get_mut(&link);
        let Some((trouble, begun)) = trouble else {
            let told = told.filter(|told| !told.is_over)?;
            let calm = *told.calm.get_or_insert(now);
            // One trouble may follow another.
            if now.since(calm) < CALM {
                return None;
            }
            told.is_over = true;
            self.last -= 1;
            return Some(News::Over(calm.since(told.since)));
        };
        let mut told = told;
        if let Some(told) = &mut told {
            told.calm = None;
        }
        let lasting = told.as_ref().filter(|told| !told.is_over);
        let silence = match lasting {
            Some(told) if told.trouble == *trouble => AGAIN,
            Some(told) if told.trouble.is_akin(trouble) => AKIN,
            _ => PAUSE,
        };
        if told.as_ref().is_some_and(|told| now.since(told.at) < silence) {
            return None;
        }
        // An outage may have one reason after the other.
        let before = told.filter(|told| !told.is_over);
        let since = match before {
            Some(told) if told.trouble == *trouble => told.since,
            Some(told) if told.trouble.is_outage() && trouble.is_outage() => told.since,
            _ => begun,
        };
        let (name, trouble) = (name.clone(), trouble.clone());
        let told = Told { name, trouble, since, at: now, calm: None, is_over: false };
        let before = self.told.insert(link, told);
        self.last += usize::from(before.is_none_or(|before| before.is_over));
        Some(News::Trouble)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    Trouble,
    /// The trouble has ended, after this time.
    Over(Duration),
}

impl PacketThread {
    /// Time of the next [`PacketThread::log_troubles`].
    pub(super) fn look_for_troubles_at(&self) -> Time {
        self.troubles.look_at(self.uplinks.have_trouble(clock::now()))
    }

    /// Logs which links are in trouble, and what can be done about that.
    pub(super) fn log_troubles(&mut self, now: Time) {
        if now < self.look_for_troubles_at() {
            return;
        }
        self.troubles.looked = now;
        let node = self.node.node();
        let is_astray = |id: &LinkId| node.link(*id).is_some_and(|link| link.astray(now).is_some());
        self.uplinks.astray.retain(is_astray);
        self.troubles.keep(|id, name| node.link(id).is_some_and(|link| name_of(link) == *name));
        for (id, link) in node.links() {
            let trouble = self.trouble(now, id, link);
            let seen = trouble.as_ref().map(|(trouble, since)| (trouble, *since));
            if let Some(news) = self.troubles.news(now, (id, &name_of(link)), seen) {
                log(link, news, trouble.map(|(trouble, _)| trouble));
            }
        }
    }

    /// Only links are looked at: anyone can make this node answer an address that the kernel
    /// refuses.
    fn trouble(&self, now: Time, id: LinkId, link: &Link) -> Option<(Trouble, Time)> {
        let uplinks = &self.uplinks;
        if let Some((interface, since)) = uplinks.without_carrier(id, link) {
            return Some((Trouble::NoCarrier(interface.clone()), *since));
        }
        if let Some((next_hop, since)) = uplinks.next_hops.awaited_by(id) {
            return Some((Trouble::Silent(next_hop), since));
        }
        let stalled = uplinks.stalled(id, link);
        if let Some(since) = stalled.filter(|since| now.since(*since) >= BUSY) {
            let alone = uplinks.own_queues.waits_alone(id);
            return Some((if alone { Trouble::StalledAlone } else { Trouble::Stalled }, since));
        }
        let error = uplinks.error_of(id).filter(|error| {
            // A full queue of an interface is no fault.
            let is_fault = error.errno != libc::ENOBUFS;
            let are_many = error.is_held || error.count - error.before >= FEW;
            is_fault && error.lasts(now) && are_many
        });
        if let Some(error) = error {
            let refused = match error.is_partial(now) {
                true => Trouble::PartlyRefused,
                false => Trouble::Refused,
            };
            return Some((refused(error.errno), error.since));
        }
        if let Some(elsewhere) = uplinks.elsewhere(id) {
            return Some((Trouble::Elsewhere(elsewhere.clone()), now));
        }
        astray(now, link).map(|(own, since)| (Trouble::Astray(own), since))
    }
}

/// Own address that the packets of `link` have arrived at for a while, and since when, if it is not
/// one that the link is bound to.
pub(super) fn astray(now: Time, link: &Link) -> Option<(IpAddr, Time)> {
    link.astray(now).filter(|(_, since)| now.since(*since) >= ASTRAY)
}

fn log(link: &Link, news: News, trouble: Option<Trouble>) {
    let config = link.config();
    let (neighbour, path) = (config.neighbour.0, config.path.as_str());
    let path = Some(path).filter(|path| !path.is_empty());
    let address = link.address().map(tracing::field::display);
    let trouble = match (news, trouble) {
        (News::Trouble, Some(trouble)) => trouble,
        (News::Over(after), _) => {
            let after_s = after.as_secs();
            tracing::info!(neighbour, path, address, after_s, "packets leave again");
            return;
        }
        (News::Trouble, None) => return,
    };
    let address = address.filter(|_| !matches!(trouble, Trouble::Elsewhere(_)));
    let (error, next_hop) = match &trouble {
        Trouble::Refused(errno) | Trouble::PartlyRefused(errno) => {
            (Some(tracing::field::debug(Errno::from_raw(*errno))), None)
        }
        Trouble::Silent(next_hop) => (None, Some(tracing::field::display(next_hop))),
        _ => (None, None),
    };
    tracing::warn!(neighbour, path, address, error, next_hop, "{}", text(&trouble));
}

/// Describes a trouble, and what to do about it.
fn text(trouble: &Trouble) -> String {
    match trouble {
        Trouble::NoCarrier(interface) => format!(
            "the interface {interface:?} has no carrier, so nothing leaves: see `ip link`, its cable, \
             or the modem that is behind it"
        ),
        Trouble::Refused(errno) => {
            format!("the kernel refuses to send packets: {}", remedy(*errno))
        }
        Trouble::PartlyRefused(errno) => {
            format!("the kernel refuses to send some of the packets: {}", remedy(*errno))
        }
        Trouble::Silent(next_hop) => format!(
            "packets wait for a next hop that doesn't answer ARP or neighbour discovery: see `ip \
             neigh show {next_hop}`, its cable and VLAN, and whether a route leads to it (`ip route \
             get ADDRESS`)"
        ),
        Trouble::Stalled => {
            "the interface takes no packets: see `ip -statistics link`, and the modem \
                             that is behind it"
                .to_string()
        }
        Trouble::StalledAlone => {
            "the interface takes no packets for this address, but others: see \
                                  `tc -statistics qdisc` and `tc -statistics class show dev \
                                  INTERFACE`, or whether that machine has left the radio network"
                .to_string()
        }
        Trouble::Astray(own) => format!(
            "the neighbour's packets arrive at {own}, which is not the `source` or of the `interface` \
             of the link: see whether packets from there reach the neighbour and come back, and \
             correct `address` in its [[link]]"
        ),
        Trouble::Elsewhere(Elsewhere { by, own }) => format!(
            "the link leaves by {by:?}, but its source is an address of {own}: add `interface = \
             \"{own}\"` to the link, or a policy route, and see whether {own} is up (`ip link`)"
        ),
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
            "there is no route, or its interface is down, or the next hop does not answer: see \
             `ip route get ADDRESS` (with `oif INTERFACE` if the link has one), and `ip link`"
        }
        libc::EADDRNOTAVAIL => {
            "this machine lacks the address that the link leaves from: see `ip addr`, `source` in \
             [[link]] and `listen` in [node]"
        }
        libc::EADDRINUSE => {
            "another machine on the network has the address that the link leaves from: see \
             `ip -6 addr show dadfailed`, give one of the two another address, and then add it again"
        }
        libc::EAFNOSUPPORT => {
            "the address is not of the IP version of `source` in [[link]], or of `listen` in [node]: \
             change one of the two"
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
    use trunkline_overlay::wire::NodeId;

    const LINK: LinkId = LinkId(1);

    fn name() -> LinkName {
        (NodeId(2), "lte".into())
    }

    #[test]
    fn a_link_does_not_end_the_trouble_of_a_former_one_with_its_number() {
        let mut troubles = Troubles::default();
        let now = Time::from_millis(10_000);
        let trouble = Some((&Trouble::Stalled, now));
        assert_eq!(troubles.news(now, (LINK, &name()), trouble), Some(News::Trouble));
        let other = (NodeId(3), String::new());
        troubles.keep(|_, name| *name == other);
        assert_eq!(troubles.news(now, (LINK, &other), None), None);
        assert_eq!(troubles.look_at(false), Time::NEVER);
    }

    #[test]
    fn a_trouble_is_logged_when_it_begins_and_ends() {
        let (at, mut troubles) = (Time::from_millis, Troubles::default());
        let (refused, other) = (Trouble::Refused(libc::EPERM), Trouble::Stalled);
        let over = |s| Some(News::Over(Duration::from_secs(s)));
        troubles.looked = at(9_000);
        assert_eq!(troubles.look_at(false), Time::NEVER);
        assert_eq!(troubles.look_at(true), at(10_000));
        assert_eq!(
            troubles.news(at(10_000), (LINK, &name()), Some((&refused, at(10_000)))),
            Some(News::Trouble)
        );
        assert_eq!(troubles.look_at(false), at(10_000), "its end is worth a line");
        assert_eq!(troubles.news(at(20_000), (LINK, &name()), Some((&refused, at(20_000)))), None);
        assert_eq!(troubles.news(at(36_000), (LINK, &name()), None), None);
        assert_eq!(troubles.news(at(37_000), (LINK, &name()), None), over(26));
        assert_eq!(troubles.news(at(38_000), (LINK, &name()), None), None);
        assert_eq!(troubles.look_at(false), Time::NEVER);
        // The same again.
        assert_eq!(
            troubles.news(at(40_000), (LINK, &name()), Some((&refused, at(40_000)))),
            Some(News::Trouble)
        );
        assert_eq!(
            troubles.news(at(639_999), (LINK, &name()), Some((&refused, at(639_999)))),
            None
        );
        assert_eq!(
            troubles.news(at(640_000), (LINK, &name()), Some((&refused, at(640_000)))),
            Some(News::Trouble)
        );
        // Two in turn are no more lines.
        assert_eq!(troubles.news(at(641_000), (LINK, &name()), Some((&other, at(641_000)))), None);
        assert_eq!(
            troubles.news(at(650_000), (LINK, &name()), Some((&other, at(650_000)))),
            Some(News::Trouble)
        );
        assert_eq!(troubles.news(at(650_000), (LINK, &name()), None), None);
        assert_eq!(troubles.news(at(651_000), (LINK, &name()), None), over(610));
    }

    /// Between two faults there may be a moment without one.
    #[test]
    fn packets_leave_again_only_after_a_while() {
        let (at, mut troubles) = (Time::from_millis, Troubles::default());
        let (refused, silent) = (Trouble::Refused(libc::EPERM), Trouble::Silent([10; 4].into()));
        let mut news = |now, trouble: Option<&Trouble>| {
            troubles.news(at(now), (LINK, &name()), trouble.map(|trouble| (trouble, at(now))))
        };
        assert_eq!(news(10_000, Some(&refused)), Some(News::Trouble));
        assert_eq!(news(15_000, None), None);
        assert_eq!(news(15_900, Some(&silent)), None, "it is too soon for another line");
        assert_eq!(news(20_000, Some(&silent)), Some(News::Trouble));
        assert_eq!(news(21_000, None), None);
        assert_eq!(news(22_000, None), Some(News::Over(Duration::from_secs(11))));
    }

    #[test]
    fn a_share_of_refused_packets_that_varies_gets_few_lines() {
        let mut troubles = Troubles::default();
        let both = [Trouble::Refused(libc::EPERM), Trouble::PartlyRefused(libc::EPERM)];
        let news = |n: u64| {
            let now = Time::from_millis(1_000 * n);
            let trouble = &both[(n / 7 % 2) as usize];
            troubles.news(now, (LINK, &name()), Some((trouble, now)))
        };
        let lines = (10..610).filter_map(news).count();
        assert!(lines <= 11, "{lines} lines in ten minutes");
    }

    #[test]
    fn a_stall_lasts_no_longer_because_the_link_left_elsewhere_before() {
        let (at, mut troubles) = (Time::from_millis, Troubles::default());
        let elsewhere = Trouble::Elsewhere(Elsewhere { by: "eth1".into(), own: "eth2".into() });
        let mut news = |now, trouble: Option<&Trouble>, since| {
            let trouble = trouble.map(|trouble| (trouble, at(since)));
            troubles.news(at(now), (LINK, &name()), trouble)
        };
        let over = |s| Some(News::Over(Duration::from_secs(s)));
        assert_eq!(news(10_000, Some(&elsewhere), 10_000), Some(News::Trouble));
        assert_eq!(news(35_000, Some(&Trouble::Stalled), 34_000), Some(News::Trouble));
        assert_eq!(news(44_000, None, 0), None);
        assert_eq!(news(45_000, None, 0), over(10));
        // One outage with two reasons.
        let refused = Trouble::Refused(libc::ENETDOWN);
        assert_eq!(news(60_000, Some(&refused), 60_000), Some(News::Trouble));
        assert_eq!(news(70_000, Some(&Trouble::Stalled), 69_000), Some(News::Trouble));
        assert_eq!(news(75_000, None, 0), None);
        assert_eq!(news(76_000, None, 0), over(15));
    }

    #[test]
    fn an_interface_that_flaps_gets_few_lines() {
        let mut troubles = Troubles::default();
        let refused = Trouble::Refused(libc::ENETDOWN);
        let news = |n: u64| {
            let now = Time::from_millis(1_000 * n);
            let trouble = (n % 4 < 2).then_some((&refused, now));
            troubles.news(now, (LINK, &name()), trouble)
        };
        let lines = (10..610).filter_map(news).count();
        assert!(lines <= 100, "{lines} lines in ten minutes");
    }
}
