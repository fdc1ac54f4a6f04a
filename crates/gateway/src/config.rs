//! What an operator says of a gateway.

use crate::media::Unfit;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use ipnet::IpNet;
use trunkline_overlay::wire::NodeId;
use trunkline_sip::value::host_address;

/// How SIP is carried between two hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
    /// A connection that is encrypted (RFC 3261, 26.2).
    Tls,
}

impl Transport {
    /// The transport as a Via writes it.
    pub fn in_via(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
        }
    }

    /// The transport as a URI writes it.
    pub fn in_uri(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
        }
    }

    /// The port where it isn't said (RFC 3261, 19.1.2).
    pub fn default_port(self) -> u16 {
        match self {
            Transport::Udp | Transport::Tcp => 5060,
            Transport::Tls => 5061,
        }
    }

    /// Reads what a URI says, in small letters.
    pub fn parse(text: &[u8]) -> Option<Transport> {
        [Transport::Udp, Transport::Tcp, Transport::Tls]
            .into_iter()
            .find(|t| t.in_uri().as_bytes() == text)
    }
}

/// Where SIP comes in, and leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// How it is carried.
    pub transport: Transport,
    /// Where others find it: an address of this machine, or what a NAT makes of it.
    pub address: SocketAddr,
}

/// Whom a route leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Hosts that are named by their address.
    Network(IpNet),
    /// Hosts of this name, in small letters.
    Domain(String),
}

/// A way to where this gateway wouldn't send by itself: another gateway, a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// For requests whose URI names this.
    pub to: Destination,
    /// The next hop of such requests.
    pub via: SocketAddr,
    /// The transport to that hop.
    pub transport: Transport,
    /// By TLS: what its certificate calls it; without, it must name its address.
    pub name: Option<String>,
}

/// All that a gateway goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node that it is part of.
    pub node: NodeId,
    /// Where SIP comes in; a hop names them by their place here.
    pub sockets: Vec<Socket>,
    /// What others call this gateway beside its sockets' addresses, in small letters.
    pub names: Vec<String>,
    /// Where media are wanted: an address of IPv4, one of IPv6, or both.
    pub media: Vec<IpAddr>,
    /// Other addresses of this machine at which its media ports may be found.
    pub own: Vec<IpAddr>,
    /// The UDP ports for media, and the node's virtual ports for the same: each stream
    /// takes two pairs.
    pub ports: RangeInclusive<u16>,
    /// Who may send requests.
    pub allow: Vec<IpNet>,
    /// Who may in addition say that media come over the overlay, and is told so: other
    /// gateways, and proxies between them.
    pub trust: Vec<IpNet>,
    /// Of the routes that fit, the longest network is taken.
    pub routes: Vec<Route>,
    /// How many calls there may be at a time.
    pub max_calls: usize,
    /// How many transactions there may be at a time.
    pub max_transactions: usize,
}

impl Config {
    /// Whether `address` is one of these networks'.
    pub(crate) fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }

    /// Whether `address` is this machine's.
    pub(crate) fn is_here(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.media.contains(&address) || self.own.contains(&address)
    }

    /// What a certificate at `remote` must be for, if a route says so.
    pub(crate) fn name_at(&self, transport: Transport, remote: SocketAddr) -> Option<&str> {
        let leads = |route: &&Route| (route.transport, route.via) == (transport, remote);
        self.routes.iter().filter(leads).find_map(|route| route.name.as_deref())
    }

    /// Whether what `address` says of the overlay is believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        Config::is_in(&self.trust, address)
    }

    /// Whether requests from there are heard at all: from who may call, is trusted, or
    /// is where a route leads.
    pub fn admits(&self, address: IpAddr) -> bool {
        let is_via = |route: &Route| route.via.ip() == address.to_canonical();
        Config::is_in(&self.allow, address)
            || self.trusts(address)
            || self.routes.iter().any(is_via)
    }

    /// Whether media may go to `at`: not to where SIP from this gateway's address is
    /// believed, and to another gateway only if that is trusted to say so.
    pub(crate) fn check_media(&self, at: SocketAddr, is_believed: bool) -> Result<(), Unfit> {
        let speaks_sip = self.sockets.iter().map(|socket| socket.address);
        let speaks_sip = speaks_sip.chain(self.routes.iter().map(|route| route.via));
        let usual = [Transport::Udp.default_port(), Transport::Tls.default_port()];
        let is_signalling = usual.contains(&at.port()) || speaks_sip.into_iter().any(|s| s == at);
        match is_signalling {
            true => Err(Unfit::Signalling(at)),
            false if self.trusts(at.ip()) && !is_believed => Err(Unfit::Trusted(at)),
            false => Ok(()),
        }
    }

    /// The route for a host, as a URI writes it.
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

    /// The first socket of this transport that reaches addresses like `remote`.
    pub(crate) fn socket(&self, transport: Transport, remote: IpAddr) -> Option<u32> {
        let fits = |s: &Socket| s.transport == transport && s.address.is_ipv4() == remote.is_ipv4();
        self.sockets.iter().position(fits).and_then(|n| u32::try_from(n).ok())
    }

    /// Whether a URI that names this host and port means this gateway.
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

    /// Where media are wanted by who has an address like `like`.
    pub(crate) fn media_like(&self, like: IpAddr) -> Option<IpAddr> {
        let same = self.media.iter().find(|ip| ip.is_ipv4() == like.is_ipv4());
        same.or(self.media.first()).copied()
    }
}
