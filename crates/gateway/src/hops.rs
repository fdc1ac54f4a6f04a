//! Next hops of requests: a known flow, an address in the URI, the next hop of a route, or a name
//! that has to be looked up.

use crate::config::{Config, Socket, Transport};
use crate::media::is_nobodys;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_base::Time;
use trunkline_sip::proxy::Target;
use trunkline_sip::transaction::Hop;
use trunkline_sip::value::{Uri, host_address};

/// Longest time that an answer of the name service is used.
const FRESH: Duration = Duration::from_secs(60);
/// Shortest time that an answer is used: the messages of a call follow each other closely.
const USED: Duration = Duration::from_secs(5);
/// Maximum number of names whose answers are kept.
const NAMES: usize = 1_000;
/// Size in bytes above which a request avoids UDP if it can (RFC 3261, 18.1.1).
pub(crate) const LARGE: usize = 1_300;
/// Time for which a port that takes no connection is sent long requests by UDP.
const UDP_ONLY: Duration = Duration::from_secs(600);

/// Result of a name lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The address, and how long it may be used.
    Address(IpAddr, Duration),
    /// The name doesn't exist, or has no address.
    Nothing,
    /// The name service failed, or did not answer.
    NoAnswer,
}

/// Reasons for which a request has no next hop now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoHop {
    /// The URI's host is a name that has not been looked up yet.
    Unknown(String),
    /// The name doesn't exist.
    NoSuchName,
    /// The name service failed to answer a moment ago.
    NoAnswer,
    /// The destination is this host's loopback, or not a single host's address.
    Forbidden,
    /// No socket has the transport that the URI requires.
    NoTransport,
    /// The URI can't be parsed.
    Uri,
}

/// The two ends of a connection: local socket, remote address, and the name that the remote
/// certificate must contain, if not its address (RFC 5922, 7).
type ConnectionKey = (u32, SocketAddr, Option<String>);

/// A connection that is open or being made.
#[derive(Debug)]
pub(crate) struct Connection {
    place: ConnectionKey,
    /// When the last message arrived on it, if any has.
    pub heard: Option<Time>,
    /// Sender of the request for which this gateway makes it; `None` if the other end has made it.
    pub made_for: Option<IpAddr>,
    /// Time until which a phone is registered by it.
    pub registered: Time,
}

impl Connection {
    /// The socket and the address at its two ends.
    pub fn ends(&self) -> (u32, SocketAddr) {
        (self.place.0, self.place.1)
    }
}

/// Known connections and resolved names.
#[derive(Debug, Default)]
pub(crate) struct Hops {
    /// Connections that are open or being made, by their ends.
    connections: BTreeMap<ConnectionKey, u64>,
    open: BTreeMap<u64, Connection>,
    /// Outgoing connections that no message has used yet.
    unused: BTreeSet<u64>,
    /// Outgoing connections that are made only because a request is long.
    for_length: BTreeSet<u64>,
    /// Ports of hosts that have not taken such a connection, and until when that is remembered. One
    /// port says nothing of another, and a URI may name any.
    udp_only: BTreeMap<SocketAddr, Time>,
    last: u64,
    names: BTreeMap<String, (Found, Time)>,
}

impl Hops {
    /// `first` determines the numbers of connections. It should differ at each start, because
    /// phones may return flow tokens from an earlier one.
    pub fn new(first: u64) -> Hops {
        Hops { last: first >> 1, ..Hops::default() }
    }

    /// Forgets outgoing connections that were planned but never used.
    pub fn forget_unused(&mut self) {
        for connection in std::mem::take(&mut self.unused) {
            self.closed(connection);
        }
    }

    /// Whether there are no unused connections to forget.
    pub fn are_used(&self) -> bool {
        self.unused.is_empty()
    }

    /// Notes that a message uses the connection of `hop`.
    pub fn used(&mut self, hop: &Hop) {
        if let Some(connection) = hop.connection {
            self.unused.remove(&connection);
        }
    }

    /// Registers a connection of socket `socket` to or from `remote`, and returns its number.
    pub fn connected(&mut self, socket: u32, remote: SocketAddr) -> u64 {
        self.add((socket, remote, None))
    }

    fn add(&mut self, place: ConnectionKey) -> u64 {
        self.last += 1;
        self.connections.insert(place.clone(), self.last);
        let new = Connection { place, heard: None, made_for: None, registered: Time::ZERO };
        self.open.insert(self.last, new);
        self.last
    }

    /// Name that the certificate at the other end of a connection must contain, if not its address.
    pub fn name_of(&self, connection: u64) -> Option<&str> {
        self.open.get(&connection)?.place.2.as_deref()
    }

    /// Removes a connection that has closed.
    pub fn closed(&mut self, connection: u64) {
        self.unused.remove(&connection);
        self.for_length.remove(&connection);
        if let Some(Connection { place, .. }) = self.open.remove(&connection)
            && self.connections.get(&place) == Some(&connection)
        {
            self.connections.remove(&place);
        }
    }

    /// Whether a connection is made only because a request is long: UDP would do.
    pub fn is_for_length(&self, connection: u64) -> bool {
        self.for_length.contains(&connection)
    }

    /// Notes that a message has arrived on a connection.
    pub fn heard(&mut self, now: Time, connection: u64) {
        if let Some(known) = self.open.get_mut(&connection) {
            known.heard = Some(now);
        }
    }

    /// Notes for whose request a connection is made that has just been planned.
    pub fn made_for(&mut self, sender: IpAddr, hop: &Hop) {
        if let Some(connection) = hop.connection.filter(|n| self.unused.contains(n))
            && let Some(known) = self.open.get_mut(&connection)
        {
            known.made_for = Some(sender.to_canonical());
        }
    }

    /// Notes until when a phone is registered by a connection; `None` if it no longer is.
    pub fn registered(&mut self, connection: u64, until: Option<Time>) {
        if let Some(known) = self.open.get_mut(&connection) {
            known.registered = until.map_or(Time::ZERO, |until| until.max(known.registered));
        }
    }

    /// A connection that is open, or still to be made.
    pub fn connection(&self, connection: u64) -> Option<&Connection> {
        self.open.get(&connection)
    }

    /// Whether nothing has arrived on a connection since `sent`.
    pub fn is_silent(&self, sent: Time, connection: u64) -> bool {
        self.open.get(&connection).and_then(|known| known.heard).is_none_or(|heard| heard < sent)
    }

    /// Notes that the host of a connection takes none at that port, or answers nothing there: the
    /// port is sent long requests by UDP for some time.
    pub fn takes_only_udp(&mut self, now: Time, connection: u64) {
        let Some((_, remote)) = self.open.get(&connection).map(Connection::ends) else { return };
        if self.udp_only.len() >= NAMES {
            self.udp_only.retain(|_, until| *until > now);
        }
        if self.udp_only.len() >= NAMES {
            self.udp_only.pop_first();
        }
        self.udp_only.insert(remote, now + UDP_ONLY);
    }

    /// Whether messages can still be sent to `hop`.
    pub fn is_usable(&self, hop: &Hop) -> bool {
        let leads = |connection| {
            let known = self.open.get(&connection);
            known.is_some_and(|known| known.ends() == (hop.socket, hop.remote))
        };
        hop.connection.is_none_or(leads)
    }

    /// Whether a connection is open, or still to be made.
    pub fn is_open(&self, connection: u64) -> bool {
        self.open.contains_key(&connection)
    }

    /// Stores the name service's answer for `name`.
    pub fn named(&mut self, now: Time, name: &str, found: Found) {
        if self.names.len() >= NAMES {
            self.names.retain(|_, (_, until)| *until > now);
        }
        if self.names.len() >= NAMES {
            self.names.pop_first();
        }
        let fresh = match found {
            Found::Address(_, fresh) => fresh.clamp(USED, FRESH),
            Found::Nothing => FRESH,
            Found::NoAnswer => USED,
        };
        self.names.insert(name.to_ascii_lowercase(), (found, now + fresh));
    }

    /// The next hop of a request to `uri` that is `bytes` long, and whether it uses a connection
    /// only because of its length. `local` gives the address that packets to another come from.
    pub fn resolve(
        &mut self,
        now: Time,
        config: &Config,
        uri: &[u8],
        bytes: usize,
        local: impl Fn(IpAddr) -> Option<IpAddr>,
    ) -> Result<(Hop, bool), NoHop> {
        let target = Target::of(uri).ok_or(NoHop::Uri)?;
        let host = core::str::from_utf8(&target.host).map_err(|_| NoHop::Uri)?;
        let parsed = Uri::parse(uri).ok_or(NoHop::Uri)?;
        if let Some(route) = config.route(host) {
            // Every hop of a `sips:` request must be encrypted (RFC 3261, 26.2.2).
            if parsed.secure && route.transport != Transport::Tls {
                return Err(NoHop::NoTransport);
            }
            let name = route.name.clone();
            let from = local(route.via.ip());
            return Ok((self.hop(config, (route.transport, from), route.via, name)?, false));
        }
        let said = target.transport.as_deref();
        let transport = match said {
            Some(said) => Some(Transport::parse(said).ok_or(NoHop::NoTransport)?),
            None => None,
        };
        let ip = self.address(now, host)?;
        // Services that listen on loopback are not for phones.
        let is_local = |socket: &Socket| socket.address.ip().is_loopback();
        let inside = ip.to_canonical().is_loopback() && !config.sockets.iter().any(is_local);
        if is_nobodys(ip) || inside {
            return Err(NoHop::Forbidden);
        }
        let has = |transport| config.socket(transport, ip, None).is_some();
        let is_free = transport.is_none() && has(Transport::Udp);
        let by_tcp = SocketAddr::new(ip, target.port.unwrap_or(Transport::Tcp.default_port()));
        let takes_both = self.udp_only.get(&by_tcp).is_none_or(|until| now >= *until);
        let is_long = is_free && bytes > LARGE && takes_both && has(Transport::Tcp);
        let usual = if is_free && !is_long { Transport::Udp } else { Transport::Tcp };
        let choice = transport.unwrap_or(usual);
        let port = target.port.unwrap_or(choice.default_port());
        let called = core::str::from_utf8(parsed.host).map_err(|_| NoHop::Uri)?;
        let (is_address, remote) = (host_address(parsed.host).is_some(), SocketAddr::new(ip, port));
        let name = match is_address {
            false => Some(called.to_ascii_lowercase()),
            // Requests within a call give the next gateway by its address. Its certificate must
            // contain the same name as on the route of the first request.
            true => config.name_at(choice, remote).map(str::to_owned),
        };
        let hop = self.hop(config, (choice, local(ip)), remote, name)?;
        if let Some(connection) = hop.connection {
            // One that a URI requires is not only for length.
            match is_long {
                true if self.unused.contains(&connection) => self.for_length.insert(connection),
                true => false,
                false => self.for_length.remove(&connection),
            };
        }
        Ok((hop, is_long))
    }

    fn address(&self, now: Time, host: &str) -> Result<IpAddr, NoHop> {
        if let Some(ip) = host_address(host.as_bytes()) {
            return Ok(ip);
        }
        let name = host.to_ascii_lowercase();
        match self.names.get(&name) {
            Some((found, until)) if *until > now => match *found {
                Found::Address(ip, _) => Ok(ip),
                Found::Nothing => Err(NoHop::NoSuchName),
                Found::NoAnswer => Err(NoHop::NoAnswer),
            },
            _ => Err(NoHop::Unknown(name)),
        }
    }

    fn hop(
        &mut self,
        config: &Config,
        (transport, local): (Transport, Option<IpAddr>),
        remote: SocketAddr,
        name: Option<String>,
    ) -> Result<Hop, NoHop> {
        let socket = config.socket(transport, remote.ip(), local).ok_or(NoHop::NoTransport)?;
        if transport == Transport::Udp {
            return Ok(Hop { socket, remote, connection: None });
        }
        let place = (socket, remote, name.filter(|_| transport == Transport::Tls));
        let connection = self.connections.get(&place).copied().unwrap_or_else(|| {
            let connection = self.add(place);
            self.unused.insert(connection);
            connection
        });
        let connection = Some(connection);
        Ok(Hop { socket, remote, connection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Destination, Route};
    use trunkline_overlay::wire::NodeId;

    fn config() -> Config {
        let at = |transport, address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            Socket { transport, address, local: address.ip() }
        };
        let route = |to, via: &str, transport| {
            let name = (transport == Transport::Tls).then(|| "sip.example".to_owned());
            Route { to, via: via.parse().unwrap(), transport, name }
        };
        let network = |text: &str| Destination::Network(text.parse().unwrap());
        Config {
            node: NodeId(1),
            sockets: vec![
                at(Transport::Udp, "192.0.2.1:5060"),
                at(Transport::Tcp, "192.0.2.1:5060"),
                at(Transport::Udp, "[2001:db8::1]:5060"),
                at(Transport::Tls, "192.0.2.1:5061"),
            ],
            names: vec![],
            media: vec![],
            own: vec![],
            ports: 0..=0,
            allow: vec![],
            trust: vec![],
            nodes: vec![],
            networks: vec![],
            elsewhere: Default::default(),
            idle: std::time::Duration::from_secs(600),
            bye_at_stop: true,
            routes: vec![
                route(network("10.0.0.0/8"), "192.0.2.2:5070", Transport::Udp),
                route(network("10.1.0.0/16"), "192.0.2.3:5070", Transport::Tcp),
                route(Destination::Domain("b.example".into()), "192.0.2.4:1", Transport::Udp),
                route(network("10.3.0.0/16"), "192.0.2.5:5061", Transport::Tls),
            ],
            max_calls: 0,
            max_transactions: 0,
        }
    }

    #[test]
    fn requests_go_where_their_uri_says_or_a_route_leads() {
        let (config, mut hops) = (config(), Hops::default());
        let mut to = |uri: &str, bytes| {
            let (hop, is_long) =
                hops.resolve(Time::ZERO, &config, uri.as_bytes(), bytes, |_| None)?;
            assert_eq!(is_long, bytes == 1_500 && hop.connection.is_some());
            Ok((hop.socket, hop.remote.to_string(), hop.connection))
        };
        let is = |socket, remote: &str, connection| Ok((socket, remote.to_owned(), connection));
        assert_eq!(to("sip:b@198.51.100.1", 500), is(0, "198.51.100.1:5060", None));
        assert_eq!(to("sip:b@198.51.100.1:7", 1_500), is(1, "198.51.100.1:7", Some(1)));
        assert_eq!(to("sip:b@198.51.100.1:7;transport=udp", 1_500), is(0, "198.51.100.1:7", None));
        assert_eq!(to("sip:b@198.51.100.1:7;transport=tcp", 9), is(1, "198.51.100.1:7", Some(1)));
        assert_eq!(to("sip:b@[2001:db8::2]", 1_500), is(2, "[2001:db8::2]:5060", None));
        assert_eq!(to("sip:b@10.2.0.1", 9), is(0, "192.0.2.2:5070", None));
        assert_eq!(to("sip:b@10.1.0.1", 9), is(1, "192.0.2.3:5070", Some(2)));
        assert_eq!(to("sip:b@B.example", 9), is(0, "192.0.2.4:1", None));
        assert_eq!(to("sips:b@[2001:db8::2]", 9), Err(NoHop::NoTransport));
        assert_eq!(to("sips:b@10.2.0.1", 9), Err(NoHop::NoTransport), "its route is by UDP");
        assert_eq!(to("sip:b@198.51.100.1;transport=ws", 9), Err(NoHop::NoTransport));
        assert_eq!(to("tel:1", 9), Err(NoHop::Uri));
        for host in ["127.0.0.1:9101", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "224.0.0.1"] {
            assert_eq!(to(&format!("sip:b@{host}"), 9), Err(NoHop::Forbidden), "{host}");
        }
        assert_eq!(to("sip:b@C.example", 9), Err(NoHop::Unknown("c.example".into())));
    }

    #[test]
    fn names_are_kept_for_a_while() {
        let (config, mut hops) = (config(), Hops::default());
        let at = |seconds| Found::Address([198, 51, 100, 7].into(), Duration::from_secs(seconds));
        hops.named(Time::ZERO, "C.example", at(3_600));
        hops.named(Time::ZERO, "d.example", Found::Nothing);
        hops.named(Time::ZERO, "e.example", Found::NoAnswer);
        hops.named(Time::ZERO, "f.example", at(0));
        hops.named(Time::ZERO, "g.example", at(20));
        let mut to = |uri: &str, at| {
            hops.resolve(Time::from_millis(at), &config, uri.as_bytes(), 1, |_| None)
        };
        assert_eq!(to("sip:c.Example", 0).unwrap().0.remote.to_string(), "198.51.100.7:5060");
        assert_eq!(to("sip:d.example", 59_999), Err(NoHop::NoSuchName));
        assert_eq!(to("sip:e.example", 4_999), Err(NoHop::NoAnswer));
        assert!(to("sip:f.example", 4_999).is_ok() && to("sip:g.example", 19_999).is_ok());
        for (name, until) in [("e", 5_000), ("f", 5_000), ("g", 20_000)] {
            let name = format!("{name}.example");
            assert_eq!(to(&format!("sip:{name}"), until), Err(NoHop::Unknown(name)));
        }
        assert_eq!(to("sip:c.example", 60_000), Err(NoHop::Unknown("c.example".into())));
    }

    #[test]
    fn a_certificate_names_who_was_asked_for() {
        let (config, mut hops) = (config(), Hops::default());
        let at = Found::Address([198, 51, 100, 7].into(), FRESH);
        hops.named(Time::ZERO, "a.example", at);
        hops.named(Time::ZERO, "c.example", at);
        // A connection made by the peer proves nothing about its identity.
        hops.connected(3, "198.51.100.7:5061".parse().unwrap());
        let mut to = |uri: &str| {
            let (hop, _) = hops.resolve(Time::ZERO, &config, uri.as_bytes(), 1, |_| None).unwrap();
            let connection = hop.connection.unwrap();
            (connection, hops.name_of(connection).map(str::to_owned))
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(to("sips:b@198.51.100.7"), (1, None));
        assert_eq!(to("sips:b@A.example"), (2, named("a.example")));
        assert_eq!(to("sip:b@a.example;transport=tls"), (2, named("a.example")));
        assert_eq!(to("sips:b@c.example"), (3, named("c.example")));
        assert_eq!(to("sips:b@10.3.0.1"), (4, named("sip.example")));
        // Later requests within the call.
        assert_eq!(to("sip:192.0.2.5:5061;transport=tls;lr"), (4, named("sip.example")));
        assert_eq!(to("sip:192.0.2.5:5062;transport=tls;lr").1, None);
        assert_eq!(to("sip:b@a.example;transport=tcp").1, None);
    }

    #[test]
    fn a_connection_is_used_until_it_is_over() {
        let (config, mut hops) = (config(), Hops::default());
        let uri = b"sip:b@198.51.100.1;transport=tcp";
        let to = |hops: &mut Hops| hops.resolve(Time::ZERO, &config, uri, 1, |_| None).unwrap().0;
        let hop = to(&mut hops);
        assert_eq!(to(&mut hops), hop);
        assert!(hops.is_usable(&hop));
        hops.closed(hop.connection.unwrap());
        assert!(!hops.is_usable(&hop));
        let again = to(&mut hops);
        assert!(again != hop && hops.is_usable(&again));
        // A connection that no message uses is not kept for ever.
        hops.used(&again);
        hops.forget_unused();
        assert!(hops.is_usable(&again));
        let other =
            hops.resolve(Time::ZERO, &config, b"sip:b@198.51.100.2;transport=tcp", 1, |_| None);
        hops.forget_unused();
        assert!(!hops.is_usable(&other.unwrap().0));
    }

    #[test]
    fn the_connection_of_an_earlier_start_is_nobody_elses() {
        let (mut before, mut after) = (Hops::new(1), Hops::new(1));
        let [a, b] = ["192.0.2.1:1", "192.0.2.2:2"].map(|at| at.parse().unwrap());
        let connection = Some(before.connected(1, a));
        assert_eq!(Some(after.connected(1, b)), connection);
        let hop = Hop { socket: 1, remote: a, connection };
        assert!(before.is_usable(&hop) && !after.is_usable(&hop));
    }
}
