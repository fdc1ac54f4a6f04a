//! Neighbours that are configured by name. While such a link is down, the addresses of its name
//! take turns, and the name is looked up again whenever the last answer has expired. A link that is
//! up keeps the address it has.

use super::{LinkName, PacketThread, WantedPaths};
use crate::clock;
use crate::datapath::lookup::{Lookups, Reply};
use crate::node::config::{Host, Whose, nobodys};
use crate::resolver::Answer;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::link::{Link, LinkId};

/// Time for which each address is tried: a handshake is sent several times in it. It doubles each
/// time that all have had a turn, up to [`MOST_ROUNDS`] times.
const TURN: Duration = Duration::from_secs(1);
const MOST_ROUNDS: u32 = 3;
/// Interval at which links that are down are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Least time for which an answer is used, and between two lookups.
const LEAST_FRESH: Duration = Duration::from_secs(5);
/// Longest time for which an answer is used.
const MOST_FRESH: Duration = Duration::from_secs(300);
/// Least interval between two lines about one error of one name: the answers may alternate.
const AGAIN: Duration = Duration::from_secs(60);

/// Reason why a name has led nowhere, and what to do about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum LookupError {
    /// The name doesn't exist.
    #[error("the name does not exist: correct it, or add it to DNS or /etc/hosts")]
    NoName,
    /// The name exists without an address.
    #[error("the name exists, but has no address: add one to DNS or /etc/hosts")]
    NoAddress,
    /// The name has no address of the only family in `listen`, IPv4.
    #[error(
        "the name has only IPv6 addresses: add \"[::]:PORT\" to [node] listen, or an IPv4 address to \
         the name"
    )]
    OnlyIpv6,
    /// The name has no address of the only family in `listen`, IPv6.
    #[error(
        "the name has only IPv4 addresses: add \"0.0.0.0:PORT\" to [node] listen, or an IPv6 address \
         to the name"
    )]
    OnlyIpv4,
    /// The name has no address of the family of the link's source.
    #[error("the name has no address of the IP version of `source`: change one of the two")]
    OtherThanSource,
    /// The name leads to this node.
    #[error("that is this node's own address: give the neighbour's")]
    ThisNode,
    /// No node has such an address.
    #[error("the name has an address that no single machine has: correct it in DNS or /etc/hosts")]
    Nobody,
    /// There is no interface of the name after the `%`.
    #[error("this machine has no interface of that name: `ip link` lists those that it has")]
    NoInterface,
    /// The name service failed, or did not answer.
    #[error("the name servers fail or do not answer: check /etc/resolv.conf and the network")]
    NoAnswer,
}

/// The name of one link's neighbour.
struct Lookup {
    host: Host,
    /// Own address that the link is to leave from, if one is configured.
    source: Option<IpAddr>,
    addresses: Vec<SocketAddr>,
    /// Address that has the next turn.
    next: usize,
    turn_at: Time,
    /// Number of times that all have had a turn, up to [`MOST_ROUNDS`].
    rounds: u32,
    /// Time until which the addresses are used before another lookup.
    fresh_until: Time,
    /// Whether a query awaits its answer.
    is_asked: bool,
    error: Option<LookupError>,
    /// The error that was logged last, unless it has ended.
    said: Option<LookupError>,
    /// When each error was logged last.
    said_at: BTreeMap<LookupError, Time>,
}

impl Lookup {
    /// Nothing is known of the name yet.
    fn new(host: Host) -> Lookup {
        Lookup {
            host,
            source: None,
            addresses: Vec::new(),
            next: 0,
            turn_at: Time::ZERO,
            rounds: 0,
            fresh_until: Time::ZERO,
            is_asked: false,
            error: None,
            said: None,
            said_at: BTreeMap::new(),
        }
    }

    /// Sets the error, or that there is none. Returns whether it is to be logged.
    fn set_error(&mut self, now: Time, error: Option<LookupError>) -> bool {
        self.error = error;
        let Some(error) = error else {
            self.said = None;
            return false;
        };
        let is_recent = self.said_at.get(&error).is_some_and(|at| now.since(*at) < AGAIN);
        if self.said == Some(error) || is_recent {
            return false;
        }
        self.said = Some(error);
        self.said_at.insert(error, now);
        true
    }

    /// Takes new addresses. Those that it had keep their order, since a name server may give another
    /// each time. A new one has its turn at once; others follow those that it had, which would never
    /// have theirs if each answer brought more new ones than it lasts for.
    fn take(&mut self, now: Time, link: &LinkName, found: Vec<SocketAddr>) {
        let had = self.addresses.len();
        self.addresses.rotate_left(self.next.min(had));
        self.next = 0;
        self.addresses.retain(|address| found.contains(address));
        let kept = self.addresses.len();
        let is_new = |address: &SocketAddr| !self.addresses.contains(address);
        let new: Vec<_> = found.into_iter().filter(is_new).collect();
        if kept == had && new.is_empty() {
            return;
        }
        if let Some((first, others)) = new.split_first() {
            (self.turn_at, self.rounds) = (now, 0);
            self.addresses.insert(0, *first);
            self.addresses.extend(others);
        }
        let (host, addresses) = (&self.host, &self.addresses);
        tracing::info!(%host, neighbour = link.0.0, ?addresses, "the name was looked up");
    }

    /// The address that has the next turn. Turns become longer: a path may be long.
    fn turn(&mut self, now: Time) -> Option<SocketAddr> {
        if self.next >= self.addresses.len() {
            (self.next, self.rounds) = (0, (self.rounds + 1).min(MOST_ROUNDS));
        }
        let address = *self.addresses.get(self.next)?;
        (self.next, self.turn_at) = (self.next + 1, now + TURN * (1 << self.rounds));
        Some(address)
    }
}

/// The names of neighbours that are configured by name.
pub struct Hosts {
    /// Whether IPv4 and IPv6 addresses are useful.
    families: [bool; 2],
    lookups: Option<Lookups>,
    links: BTreeMap<LinkName, Lookup>,
    look_at: Time,
}

impl Hosts {
    /// Creates the lookups of a node that listens at `listeners`.
    pub fn new(listeners: impl Iterator<Item = SocketAddr> + Clone) -> Hosts {
        let families = [false, true].map(|v6| listeners.clone().any(|l| l.is_ipv6() == v6));
        Hosts { families, lookups: None, links: BTreeMap::new(), look_at: Time::NEVER }
    }

    /// Time of the next [`PacketThread::look_for_hosts`].
    pub fn look_at(&self) -> Time {
        self.look_at
    }

    /// The name of a link's neighbour, and why it has led nowhere, if that is so.
    pub fn of(&self, link: &LinkName) -> Option<(&Host, Option<LookupError>)> {
        self.links.get(link).map(|lookup| (&lookup.host, lookup.error))
    }

    /// Sets the names of the links in `wanted`.
    pub fn want(&mut self, wanted: &WantedPaths) {
        let host = |link: &LinkName| wanted.get(link).and_then(|path| path.host.as_ref());
        self.links.retain(|link, lookup| host(link) == Some(&lookup.host));
        for (link, path) in wanted {
            let Some(host) = &path.host else { continue };
            let lookup =
                self.links.entry(link.clone()).or_insert_with(|| Lookup::new(host.clone()));
            lookup.source = path.source;
        }
        self.look_at = if self.links.is_empty() { Time::NEVER } else { Time::ZERO };
    }

    /// Whether a name has led nowhere.
    fn has_errors(&self) -> bool {
        self.links.values().any(|lookup| lookup.error.is_some())
    }

    /// Forgets why the name of a link has led nowhere, which is up: its neighbour may have called, and
    /// nothing is looked up any more.
    fn is_up(&mut self, link: &LinkName) {
        if let Some(lookup) = self.links.get_mut(link) {
            (lookup.error, lookup.said) = (None, None);
        }
    }

    /// Takes the answer to a query; `useless` is the reason why an address can't be a neighbour's.
    fn answered(
        &mut self,
        now: Time,
        reply: Reply,
        useless: impl Fn(&SocketAddr) -> Option<LookupError>,
    ) {
        let ((link, host), answer) = reply;
        let asked = self.links.get_mut(&link).filter(|lookup| lookup.host == host);
        let Some(lookup) = asked else { return };
        lookup.is_asked = false;
        let (error, fresh) = match answer {
            Answer::Addresses(mut all, fresh) => {
                let source = lookup.source;
                let is_other = |a: &SocketAddr| source.is_some_and(|s| s.is_ipv6() != a.is_ipv6());
                let why = |a: &SocketAddr| {
                    useless(a).or(is_other(a).then_some(LookupError::OtherThanSource))
                };
                let first = all.first().and_then(why);
                all.retain(|address| why(address).is_none());
                let error = first.filter(|_| all.is_empty());
                if error.is_none() {
                    lookup.take(now, &link, all);
                }
                let fresh = if error.is_some() { LEAST_FRESH } else { fresh };
                (error, fresh)
            }
            // The addresses that it had may still be right.
            Answer::Nothing if host.zone().is_some() => {
                (Some(LookupError::NoInterface), LEAST_FRESH)
            }
            Answer::NoName => (Some(LookupError::NoName), LEAST_FRESH),
            Answer::Nothing => (Some(LookupError::NoAddress), LEAST_FRESH),
            Answer::Silence => (Some(LookupError::NoAnswer), LEAST_FRESH),
        };
        if lookup.set_error(now, error)
            && let Some(error) = error
        {
            tracing::warn!(%host, neighbour = link.0.0, "{error}");
        }
        lookup.fresh_until = now + fresh.clamp(LEAST_FRESH, MOST_FRESH);
        self.look_at = now;
    }

    /// Looks up the name of a link that is down, if need be. Returns the address that has its turn
    /// now, if another is to have it.
    fn of_down_link(&mut self, now: Time, link: &LinkName) -> Option<SocketAddr> {
        let lookup = self.links.get_mut(link)?;
        if now >= lookup.fresh_until
            && !lookup.is_asked
            && let Some(lookups) = &self.lookups
        {
            lookup.is_asked = true;
            lookups.ask((link.clone(), lookup.host.clone()));
        }
        if now < lookup.turn_at {
            return None;
        }
        lookup.turn(now)
    }
}

/// The neighbour and the path of a link.
pub fn name_of(link: &Link) -> LinkName {
    (link.config().neighbour, link.config().path.clone())
}

impl PacketThread {
    /// Looks at links that are down and whose neighbours are configured by name.
    pub(super) fn look_for_hosts(&mut self, now: Time) {
        if now < self.hosts.look_at {
            return;
        }
        self.hosts.look_at = now + LOOK;
        if self.hosts.lookups.is_none() {
            let started = Lookups::start(self.hosts.families, Arc::clone(&self.wake));
            let failed = |error: &_| tracing::error!(%error, "cannot start looking up names");
            self.hosts.lookups = started.inspect_err(failed).ok();
            if self.hosts.lookups.is_none() {
                self.hosts.look_at = now + LEAST_FRESH;
            }
        }
        self.forget_errors_of_links_that_are_up();
        let links = self.node.node().links();
        // A link that has just gone down first tries the address that it had.
        let waits = links.filter(|(_, link)| {
            let quality = || link.monitor().quality();
            !link.monitor().is_up() && (link.address().is_none() || now >= quality().since + TURN)
        });
        let down = waits.map(|(id, link)| (id, name_of(link)));
        for (id, link) in down.collect::<Vec<(LinkId, LinkName)>>() {
            if let Some(address) = self.hosts.of_down_link(now, &link) {
                self.node.set_address(now, id, address);
                self.uplinks.waiting.insert(id);
            }
        }
        // The first message to an address leaves as its route demands.
        self.assign_uplinks();
    }

    fn forget_errors_of_links_that_are_up(&mut self) {
        if !self.hosts.has_errors() {
            return;
        }
        let up = self.node.node().links().filter(|(_, link)| link.monitor().is_up());
        for link in up.map(|(_, link)| name_of(link)).collect::<Vec<_>>() {
            self.hosts.is_up(&link);
        }
    }

    /// Takes the answers of the name service.
    pub(super) fn take_replies(&mut self) {
        let now = clock::now();
        while let Some(reply) = self.hosts.lookups.as_ref().and_then(Lookups::reply) {
            let uplinks = &self.uplinks;
            let useless = |a: &SocketAddr| {
                let nobody = nobodys(*a, Whose::Neighbour).map(|_| LookupError::Nobody);
                nobody.or_else(|| uplinks.unreachable(a))
            };
            self.hosts.answered(now, reply, useless);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_overlay::wire::NodeId;

    /// Each answer brings more new addresses than have their turn until the next one, and one that
    /// stays.
    #[test]
    fn an_address_that_stays_has_its_turn() {
        let address = |n: u16| SocketAddr::from(([192, 0, 2, 1], n));
        let host = Host { name: "relay.example".into(), port: 7_000 };
        let link: LinkName = (NodeId(2), String::new());
        let mut lookup = Lookup::new(host);
        let mut turns = Vec::new();
        for answer in 0..3u16 {
            let at = Time::from_millis(5_000 * u64::from(answer));
            let found = (0..8).map(|n| address(100 * (answer + 1) + n)).chain([address(7)]);
            lookup.take(at, &link, found.collect());
            turns.extend((0..5).filter_map(|_| lookup.turn(at)));
        }
        assert!(turns.contains(&address(7)), "{turns:?}");
        let new = |answer: u16| address(100 * answer);
        assert!((1..=3).all(|answer| turns.contains(&new(answer))), "a new one at once: {turns:?}");
    }

    #[test]
    fn answers_that_alternate_get_few_lines() {
        let mut lookup = Lookup::new(Host { name: "relay.example".into(), port: 7_000 });
        let mut line =
            |second: u64, error| lookup.set_error(Time::from_millis(1_000 * second), error);
        let errors = [LookupError::ThisNode, LookupError::NoName].map(Some);
        let lines = (0..120).filter(|n| line(5 * n, errors[usize::from(n % 2 == 1)])).count();
        assert_eq!(lines, 20, "in ten minutes");
        // One that lasts is logged once, and again when it has come back after a while.
        assert!(
            !line(600, errors[1])
                && !line(602, None)
                && line(605, errors[1])
                && !line(900, errors[1])
        );
        assert!(!line(905, None) && line(910, errors[1]));
        // So is one that has come back sooner, but later.
        assert!(!line(920, None) && !line(930, errors[1]) && line(970, errors[1]));
    }

    /// The lookups of one link to a name, which leaves from `source`.
    fn hosts(source: Option<&str>) -> (Hosts, LinkName, Host) {
        let host = Host { name: "relay.example".into(), port: 7_000 };
        let link: LinkName = (NodeId(2), String::new());
        let source = source.map(|ip| ip.parse().expect("an address"));
        let path =
            crate::datapath::WantedPath { source, interface: None, host: Some(host.clone()) };
        let mut hosts = Hosts::new(["0.0.0.0:7000".parse().expect("an address")].into_iter());
        hosts.want(&[(link.clone(), path)].into());
        (hosts, link, host)
    }

    #[test]
    fn each_reason_why_a_name_leads_nowhere_is_told_with_what_to_do() {
        let found = |all: &[&str]| {
            let all = all.iter().map(|a| a.parse().expect("an address")).collect();
            Answer::Addresses(all, Duration::ZERO)
        };
        let v6 = found(&["[2001:db8::1]:7000"]);
        let own = found(&["192.0.2.1:7000"]);
        for (answer, source, says) in [
            (Answer::NoName, None, "the name does not exist: correct it"),
            (Answer::Nothing, None, "the name exists, but has no address: add one"),
            (Answer::Silence, None, "do not answer: check /etc/resolv.conf"),
            (v6, Some("192.0.2.7"), "no address of the IP version of `source`: change"),
            (own, None, "that is this node's own address: give the neighbour's"),
        ] {
            let (mut hosts, link, host) = hosts(source);
            let useless = |a: &SocketAddr| {
                (a.ip() == IpAddr::from([192, 0, 2, 1])).then_some(LookupError::ThisNode)
            };
            hosts.answered(Time::ZERO, ((link.clone(), host), answer), useless);
            let error = hosts.of(&link).expect("a name").1.expect("an error").to_string();
            assert!(error.contains(says), "{error}");
        }
        let (mut hosts, link, host) = hosts(Some("192.0.2.7"));
        let both = found(&["[2001:db8::1]:7000", "192.0.2.2:7000"]);
        hosts.answered(Time::ZERO, ((link.clone(), host), both), |_| None);
        assert_eq!(hosts.of(&link).expect("a name").1, None);
        assert_eq!(hosts.links[&link].addresses, ["192.0.2.2:7000".parse().expect("an address")]);
    }

    #[test]
    fn an_error_ends_once_the_link_is_up_by_its_name_or_a_lookup_succeeds() {
        let (mut hosts, link, host) = hosts(None);
        let address: SocketAddr = "192.0.2.2:7000".parse().expect("an address");
        let found = || Answer::Addresses(vec![address], Duration::ZERO);
        let answer = |hosts: &mut Hosts, answer| {
            hosts.answered(Time::ZERO, ((link.clone(), host.clone()), answer), |_| None);
        };
        answer(&mut hosts, found());
        answer(&mut hosts, Answer::Silence);
        assert!(hosts.has_errors());
        hosts.is_up(&link);
        assert!(!hosts.has_errors());
        answer(&mut hosts, Answer::NoName);
        assert!(hosts.has_errors());
        answer(&mut hosts, found());
        assert!(!hosts.has_errors());
    }
}
