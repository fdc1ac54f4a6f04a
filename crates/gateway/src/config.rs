//! Configuration of a gateway.

use crate::media::MediaRejected;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use ipnet::IpNet;
use std::sync::Arc;
use trunkline_overlay::wire::NodeId;
use trunkline_sip::value::host_address;

/// Transport of SIP messages between two hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// SIP over UDP datagrams.
    Udp,
    /// SIP over a TCP connection.
    Tcp,
    /// SIP over a TLS connection (RFC 3261, 26.2).
    Tls,
}

impl Transport {
    /// Name of the transport in a Via header.
    pub fn in_via(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
        }
    }

    /// Name of the transport in a URI.
    pub fn in_uri(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
        }
    }

    /// Default port of the transport (RFC 3261, 19.1.2).
    pub fn default_port(self) -> u16 {
        match self {
            Transport::Udp | Transport::Tcp => 5060,
            Transport::Tls => 5061,
        }
    }

    /// Parses a transport in a URI; it must be in lower case.
    pub fn parse(text: &[u8]) -> Option<Transport> {
        [Transport::Udp, Transport::Tcp, Transport::Tls]
            .into_iter()
            .find(|t| t.in_uri().as_bytes() == text)
    }
}

/// A socket that receives and sends SIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The transport that it carries.
    pub transport: Transport,
    /// The address by which others reach it: one of this machine's, or its translation by a NAT.
    pub address: SocketAddr,
    /// The address of this machine that it is bound to.
    pub local: IpAddr,
}

/// Hosts that a route applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Hosts given by an address in this network.
    Network(IpNet),
    /// Hosts with this name, in lower case.
    Domain(String),
}

/// A next hop for some destinations, such as another gateway or a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Hosts in the request URI that this route applies to.
    pub to: Destination,
    /// Address of the next hop.
    pub via: SocketAddr,
    /// The transport to that hop.
    pub transport: Transport,
    /// With TLS: the name that the hop's certificate must contain. If `None`, the certificate must
    /// name the hop's address.
    pub name: Option<String>,
}

/// When a media port that has learned its source takes another one, without a new description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relearn {
    /// When the same stream continues from another port of the same address, and after five seconds
    /// of silence that was not agreed.
    #[default]
    Silent,
    /// Whenever an allowed source sends.
    Always,
    /// Only when the source is the described place.
    Never,
}

/// Rules for the peers in some networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Name by which messages refer to the network.
    pub name: String,
    /// Addresses that the signalling of these peers comes from.
    pub networks: Vec<IpNet>,
    /// Whether media are sent to where media come from, if that is not the described place. A peer
    /// that sends from one port and receives at another needs false.
    pub symmetric: bool,
    /// Other networks that their media may come from.
    pub sources: Vec<IpNet>,
    /// When their media may come from another source than before.
    pub relearn: Relearn,
    /// Time after the first packet in which a new description's sources are learned.
    pub learn: Duration,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            name: String::new(),
            networks: Vec::new(),
            symmetric: true,
            sources: Vec::new(),
            relearn: Relearn::default(),
            learn: Duration::from_secs(2),
        }
    }
}

/// Complete configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Id of the node that the gateway belongs to.
    pub node: NodeId,
    /// Sockets for SIP; a hop refers to them by index.
    pub sockets: Vec<Socket>,
    /// Names of this gateway in URIs, in lower case, besides its sockets' addresses.
    pub names: Vec<String>,
    /// Addresses to receive media at: those that phones may be told.
    pub media: Vec<IpAddr>,
    /// Other addresses of this machine at which its media ports may be reached.
    pub own: Vec<IpAddr>,
    /// Range of the UDP ports for media, and of the node's virtual ports with the same numbers.
    /// Each stream takes two pairs.
    pub ports: RangeInclusive<u16>,
    /// Networks that may send requests.
    pub allow: Vec<IpNet>,
    /// Networks that may also advertise virtual ports, and that are offered them: other gateways,
    /// and proxies in between.
    pub trust: Vec<IpNet>,
    /// Nodes of gateways at addresses that are trusted, as far as they are known beforehand.
    pub nodes: Vec<(IpNet, NodeId)>,
    /// Routes to next hops; the longest matching network wins.
    pub routes: Vec<Route>,
    /// Rules for the peers of some networks; the longest matching network wins.
    pub networks: Vec<Arc<Network>>,
    /// Rules for all other peers.
    pub elsewhere: Arc<Network>,
    /// Time without a packet or a message after which an answered call is ended, unless its ends
    /// have agreed to be silent.
    pub idle: Duration,
    /// Whether the ends of calls are told when the gateway stops.
    pub bye_at_stop: bool,
    /// Maximum number of concurrent calls.
    pub max_calls: usize,
    /// Maximum number of concurrent transactions.
    pub max_transactions: usize,
}

impl Config {
    /// Whether `address` is in any of `networks`.
    pub(crate) fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }

    /// Whether `address` is one of this machine's.
    pub(crate) fn is_here(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.media.contains(&address) || self.own.contains(&address)
    }

    /// Name that the certificate at `remote` must contain, if a route sets one.
    pub(crate) fn name_at(&self, transport: Transport, remote: SocketAddr) -> Option<&str> {
        self.routes_to(transport, remote).find_map(|route| route.name.as_deref())
    }

    /// The routes whose next hop is at `remote`.
    pub(crate) fn routes_to(
        &self,
        transport: Transport,
        remote: SocketAddr,
    ) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(move |route| (route.transport, route.via) == (transport, remote))
    }

    /// Whether virtual ports advertised by `address` are trusted.
    pub fn trusts(&self, address: IpAddr) -> bool {
        Config::is_in(&self.trust, address)
    }

    /// Whether requests from `address` are accepted: it may call, is trusted, or is the next hop of
    /// a route.
    pub fn admits(&self, address: IpAddr) -> bool {
        Config::is_in(&self.allow, address) || self.is_peer(address)
    }

    /// Whether `address` is a configured peer's: it is trusted, or is the next hop of a route.
    pub(crate) fn is_peer(&self, address: IpAddr) -> bool {
        let is_via = |route: &Route| route.via.ip() == address.to_canonical();
        self.trusts(address) || self.routes.iter().any(is_via)
    }

    /// Checks that media may go to `at`: not to SIP ports, where a packet from this gateway's
    /// address could pass for its signalling, and to another gateway only if the sender of the
    /// description is trusted.
    pub(crate) fn check_media(
        &self,
        at: SocketAddr,
        is_believed: bool,
    ) -> Result<(), MediaRejected> {
        let speaks_sip = self.sockets.iter().map(|socket| socket.address);
        let speaks_sip = speaks_sip.chain(self.routes.iter().map(|route| route.via));
        let usual = [Transport::Udp.default_port(), Transport::Tls.default_port()];
        let is_signalling = usual.contains(&at.port()) || speaks_sip.into_iter().any(|s| s == at);
        match is_signalling {
            true => Err(MediaRejected::Signalling(at)),
            false if self.trusts(at.ip()) && !is_believed => Err(MediaRejected::Trusted(at)),
            false => Ok(()),
        }
    }

    /// The rules for a peer whose signalling comes from `address`.
    pub(crate) fn network(&self, address: IpAddr) -> &Arc<Network> {
        let address = address.to_canonical();
        let fits = |network: &IpNet| network.contains(&address).then(|| network.prefix_len());
        let rank = |rules: &&Arc<Network>| rules.networks.iter().filter_map(fits).max();
        let found = self.networks.iter().filter(|rules| rank(rules).is_some()).max_by_key(rank);
        found.unwrap_or(&self.elsewhere)
    }

    /// The route for a host, given as in a URI.
    pub(crate) fn route(&self, host: &str) -> Option<&Route> {
        let address = host_address(host.as_bytes());
        let rank = |route: &&Route| match (&route.to, address) {
            (Destination::Network(network), Some(ip)) if network.contains(&ip) => {
                Some(u32::from(network.prefix_len()))
            }
            (Destination::Domain(name), None) if name.eq_ignore_ascii_case(host) => Some(0),
            _ => None,
        };
        self.routes.iter().filter(|r| rank(r).is_some()).max_by_key(rank)
    }

    /// Index of the first socket with this transport and the address family of `remote`; of several
    /// the one bound to `local`, which packets to `remote` come from.
    pub(crate) fn socket(
        &self,
        transport: Transport,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Option<u32> {
        let fits = |s: &Socket| s.transport == transport && s.address.is_ipv4() == remote.is_ipv4();
        let leads = |s: &Socket| fits(s) && local == Some(s.local);
        let found = self.sockets.iter().position(leads);
        let found = found.or_else(|| self.sockets.iter().position(fits));
        found.and_then(|n| u32::try_from(n).ok())
    }

    /// Whether a URI with this host and port refers to this gateway.
    pub(crate) fn is_own(&self, host: &[u8], port: Option<u16>, secure: bool) -> bool {
        let Some(ip) = host_address(host) else {
            let has = |port| self.sockets.iter().any(|socket| socket.address.port() == port);
            let is = |name: &String| name.as_bytes().eq_ignore_ascii_case(host);
            let is_named = self.names.iter().any(is);
            return is_named && port.is_none_or(has);
        };
        self.sockets.iter().any(|socket| {
            let usual = match secure {
                true => Transport::Tls.default_port(),
                false => socket.transport.default_port(),
            };
            socket.address.ip() == ip && socket.address.port() == port.unwrap_or(usual)
        })
    }

    /// The address for media of a peer at `like`: the one that packets to it come from, or one of
    /// the same family, if there is one.
    pub(crate) fn media_like(&self, like: IpAddr, local: Option<IpAddr>) -> Option<IpAddr> {
        let same = || self.media.iter().find(|ip| ip.is_ipv4() == like.is_ipv4());
        let local = self.media.iter().find(|ip| local == Some(**ip));
        local.or_else(same).or(self.media.first()).copied()
    }
}
