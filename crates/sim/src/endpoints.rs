//! Hosts, their addresses, and the agents bound to their ports.

use crate::error::WorldError;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use trunkline_base::Time;
use trunkline_net::{Endpoint, IpVersion, Protocol, VertexId};
use trunkline_overlay::wire::NodeId;

/// Index of a host in its world, in the order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.0)
    }
}

/// Index of a router in its world, in the order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouterId(pub u32);

/// An end of a cable ([`World::cable`](crate::World::cable)): a host or a router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkEnd {
    /// A host's own interface.
    Host(HostId),
    /// A router between cables.
    Router(RouterId),
}

impl From<HostId> for LinkEnd {
    fn from(host: HostId) -> LinkEnd {
        LinkEnd::Host(host)
    }
}

impl From<RouterId> for LinkEnd {
    fn from(router: RouterId) -> LinkEnd {
        LinkEnd::Router(router)
    }
}

/// Index of a wire in its world, in the order of connecting. A wire has two ends and two
/// directions, each impaired separately.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WireId(pub u32);

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wire {}", self.0)
    }
}

/// Port of a host's first link; the others follow it.
const FIRST_PORT: u16 = 7_000;

/// Bit of a port that [`World::rebind`](crate::World::rebind) flips; no host has so many links that
/// they would use it.
pub const NAT: u16 = 1 << 15;

/// Maximum number of datagrams that wait for a stalled process: Linux gives a socket 212,992 bytes,
/// and a small datagram takes 768.
pub const SOCKET_BUFFER: u32 = 277;

/// Address at which the `link`-th link of `host` listens, in the order of the host's configuration.
/// The addresses are made up, in 10.0.0.0/8: one IP address per host and one port per link.
///
/// # Panics
///
/// Above 16,777,214 hosts or 58,535 links of one host.
pub fn address(host: HostId, link: u16) -> SocketAddr {
    let [high, a, b, c] = (host.0 + 1).to_be_bytes();
    assert_eq!(high, 0, "host {} does not fit in 10.0.0.0/8", host.0);
    let port = FIRST_PORT.checked_add(link).expect("a host's links fit in its ports");
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, a, b, c)), port)
}

/// The inverse of [`address`].
pub fn locate(address: SocketAddr) -> Option<(HostId, u16)> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let [10, a, b, c] = ip.octets() else { return None };
    let host = u32::from_be_bytes([0, a, b, c]).checked_sub(1)?;
    Some((HostId(host), address.port().checked_sub(FIRST_PORT)?))
}

/// State of a stalled host: the end of the stall, the datagrams that wait, and those that
/// overflowed.
#[derive(Clone, Copy, Default)]
pub struct Stall {
    pub until: Time,
    pub waiting: u32,
    pub overflowed: u64,
}

/// One end of a link between two nodes.
#[derive(Clone, Copy)]
pub struct Port {
    /// Interface that sends and receives the link's datagrams.
    pub vertex: VertexId,
    /// Port of this end, as seen by the other end.
    pub outside: u16,
    /// The other end: its host, the index of its link, and the source of its datagrams as seen
    /// here.
    pub peer: (u32, u16),
    pub peer_at: Endpoint,
}

/// A machine with interfaces, and agents on its ports.
pub struct Host {
    /// The interface that is shared, not dedicated to one link.
    pub vertex: VertexId,
    /// Index of the node's agent, and the node's id.
    pub node: Option<(u32, NodeId)>,
    /// Connection of each link in the node's configuration.
    pub ports: Vec<Option<Port>>,
    /// First port of each binding, as [`place`]s in ascending order. They are stored separately
    /// because each datagram is looked up in them.
    firsts: Vec<u32>,
    /// Last port of each binding, and its agent.
    bindings: Vec<(u32, u32)>,
    /// Whether it has crashed and was not restarted.
    pub down: bool,
    pub stall: Stall,
}

/// A protocol's port as one number.
fn place(protocol: Protocol, port: u16) -> u32 {
    u32::from(protocol.0) << 16 | u32::from(port)
}

impl Host {
    pub fn new(vertex: VertexId) -> Host {
        Host {
            vertex,
            node: None,
            ports: Vec::new(),
            firsts: Vec::new(),
            bindings: Vec::new(),
            down: false,
            stall: Stall::default(),
        }
    }

    /// Index of the agent bound to a port.
    pub fn bound(&self, protocol: Protocol, port: u16) -> Option<u32> {
        let here = place(protocol, port);
        // Ports are mostly assigned consecutively.
        let guess = here.wrapping_sub(*self.firsts.first()?) as usize;
        let at = match self.firsts.get(guess) {
            Some(first) if *first == here => guess,
            _ => self.firsts.partition_point(|first| *first <= here).checked_sub(1)?,
        };
        let (last, agent) = self.bindings[at];
        (here <= last).then_some(agent)
    }

    /// Binds an agent to the ports from `first` to `last`; false if one is taken.
    pub fn bind(&mut self, protocol: Protocol, first: u16, last: u16, agent: u32) -> bool {
        let (first, last) = (place(protocol, first), place(protocol, last));
        let at = self.firsts.partition_point(|other| *other <= last);
        let free = at.checked_sub(1).is_none_or(|before| self.bindings[before].0 < first);
        if free {
            self.firsts.insert(at, first);
            self.bindings.insert(at, (last, agent));
        }
        free
    }
}

/// An interface of a host, or a router.
#[derive(Clone, Copy)]
pub struct Iface {
    /// Index of the host; `None` for a router.
    pub host: Option<u32>,
    /// The agent that receives everything here, if the interface is dedicated to one link.
    pub only: Option<u32>,
    pub ip: Ipv4Addr,
    /// Source port that a NAT gives to everything sent from here.
    pub nat: Option<u16>,
    /// Whether everything sent from here is marked as ECN-capable.
    pub ecn_capable: bool,
}

/// All hosts, and all interfaces indexed by their vertex in the network.
pub struct Endpoints {
    pub hosts: Vec<Host>,
    pub ifaces: Vec<Iface>,
    /// The IP version of every packet.
    pub ip: IpVersion,
}

impl Endpoints {
    /// No hosts and interfaces yet.
    pub fn new(ip: IpVersion) -> Endpoints {
        Endpoints { hosts: Vec::new(), ifaces: Vec::new(), ip }
    }

    /// Address of an endpoint, as a node sees it.
    pub fn address(&self, of: Endpoint) -> SocketAddr {
        let iface = &self.ifaces[of.vertex.0 as usize];
        SocketAddr::new(IpAddr::V4(iface.ip), iface.nat.unwrap_or(of.port))
    }

    /// Source and destination endpoints for a datagram from the node at host `sender` to the
    /// address `to`, if one of its links leads there.
    pub fn towards(&self, sender: u32, to: SocketAddr) -> Option<(Endpoint, Endpoint)> {
        let inside = SocketAddr::new(to.ip(), to.port() & !NAT);
        let (host, link) = locate(inside)?;
        let port = self.hosts.get(host.0 as usize)?.ports.get(usize::from(link))?.as_ref()?;
        let here = Endpoint { vertex: port.vertex, port: port.outside };
        (port.peer.0 == sender && port.outside == to.port()).then_some((port.peer_at, here))
    }

    /// Changes the port of one end of a link, as the other end sees it.
    pub fn rebind(&mut self, host: HostId, link: u16) {
        let at = &mut self.hosts[host.0 as usize];
        let (Some((node, _)), Some(port)) = (at.node, &mut at.ports[usize::from(link)]) else {
            return;
        };
        port.outside ^= NAT;
        let &mut Port { vertex, outside, peer: (peer, back), .. } = port;
        // Already bound, if this is the second time.
        at.bind(Protocol::UDP, outside, outside, node);
        self.ifaces[vertex.0 as usize].nat = Some(outside);
        if let Some(far) = &mut self.hosts[peer as usize].ports[usize::from(back)] {
            far.peer_at.port = outside;
        }
    }

    /// Index of the node's agent at a host.
    pub fn node(&self, host: HostId) -> Result<u32, WorldError> {
        let node = self.hosts[host.0 as usize].node;
        node.map(|(agent, _)| agent).ok_or(WorldError::NoNode(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back() {
        for (host, link) in [(0, 0), (254, 1), (255, 2), (70_000, 58_000)] {
            let host = HostId(host);
            assert_eq!(locate(address(host, link)), Some((host, link)));
        }
        assert_eq!(address(HostId(1), 2).to_string(), "10.0.0.2:7002");
        for unknown_peer in ["192.0.2.1:7000", "10.0.0.0:7000", "10.0.0.1:53", "[::1]:7000"] {
            assert_eq!(locate(unknown_peer.parse().unwrap()), None);
        }
    }
}
