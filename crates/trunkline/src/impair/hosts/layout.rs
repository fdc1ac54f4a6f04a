//! Addresses of the hosts, and routes of the packets.
//!
//! A host has addresses such as `10.64.0.1` and `fd74:6c::1`, and further ones for each private
//! edge, like a machine with several network interfaces: packets to such an address take that edge.
//! All addresses of a host are on one device.

use super::super::pump::VALID;
use super::super::socket::SLOT;
use super::config::{EdgeEnd, Hosts};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;
use trunkline_net::wifi::Cell;
use trunkline_net::{DirectionId, Network, VertexId};

/// First two bytes of the hosts' IPv4 addresses, and of the routers'.
const HOSTS_V4: [u8; 2] = [10, 64];
const ROUTERS_V4: [u8; 2] = [10, 65];
/// Third group of the hosts' IPv6 addresses, and of the routers'; all are unique local (RFC 4193).
const HOSTS_V6: u16 = 0;
const ROUTERS_V6: u16 = 1;

/// Prefixes of the addresses of all hosts.
pub const PREFIXES: [&str; 2] = ["10.64.0.0/16", "fd74:6c::/64"];

/// Route from one interface to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// Number of routers on the route.
    pub routers: u8,
    /// Path MTU: the largest packet that all edges allow, in bytes.
    pub mtu: u16,
    /// The router at the first edge that has the path MTU, or else the first router.
    pub narrow: u32,
    delay: Duration,
}

/// Addresses and routes of a network. Interface `n` is vertex `n` of the network.
#[derive(Debug)]
pub struct Layout {
    /// Interfaces of each host.
    pub of_host: Vec<Range<usize>>,
    /// Host of each interface.
    pub host_of: Vec<usize>,
    ways: BTreeMap<(u32, u32), HostPath>,
}

/// Builds the network that a file describes, without packets in flight.
pub fn build(hosts: &Hosts) -> (Network, Layout) {
    let mut net = Network::new(hosts.seed);
    // A slot may have to hold the longest packet of any edge.
    let place = hosts.all_edges().map(|(_, mtu)| usize::from(mtu)).fold(SLOT, usize::max);
    net.set_limit((usize::try_from(hosts.buffer).unwrap_or(usize::MAX) / place).max(1));
    net.set_payload_memory(place);
    let mut ends: Vec<[VertexId; 2]> = vec![[VertexId::default(); 2]; hosts.edges.len()];
    let (mut of_host, mut host_of) = (Vec::new(), Vec::new());
    for n in 0..hosts.hosts.len() {
        let first = host_of.len();
        let own = net.host();
        host_of.push(n);
        for (edge, vertices) in hosts.edges.iter().zip(&mut ends) {
            for (end, vertex) in edge.ends.iter().zip(vertices) {
                if *end == EdgeEnd::Host(n) {
                    *vertex = own;
                    if edge.is_private {
                        *vertex = net.host();
                        host_of.push(n);
                    }
                }
            }
        }
        of_host.push(first..host_of.len());
    }
    let routers: Vec<VertexId> = hosts.routers.iter().map(|_| net.router()).collect();
    for (edge, vertices) in hosts.edges.iter().zip(&mut ends) {
        for (end, vertex) in edge.ends.iter().zip(&mut *vertices) {
            if let EdgeEnd::Router(n) = *end {
                *vertex = routers[n];
            }
        }
        let [forward, reverse] = edge.directions.each_ref().map(|d| d.model.clone());
        let stream = edge.directions[0].stream;
        net.connect_streams(vertices[0], vertices[1], forward, reverse, stream).expect(VALID);
    }
    for (cell, n) in hosts.cells.iter().zip(0..) {
        // Streams of edges count upwards.
        let stream = u64::MAX - n;
        let medium = net.medium(Cell::new(cell.config, hosts.seed, stream).expect(VALID));
        for (station, (ends, _)) in (0..).zip(cell.edges()) {
            let [a, b] = ends.map(|end| match end {
                EdgeEnd::Host(n) => VertexId(of_host[n].start as u32),
                EdgeEnd::Router(n) => routers[n],
            });
            net.connect_over(a, b, medium, Cell::lanes(station), Cell::HOP);
        }
    }
    let ways = ways(hosts, &net, &host_of, routers.first().map_or(0, |r| r.0));
    (net, Layout { of_host, host_of, ways })
}

/// Computes the routes between the interfaces of different hosts, where they exist.
fn ways(
    hosts: &Hosts,
    net: &Network,
    host_of: &[usize],
    first_router: u32,
) -> BTreeMap<(u32, u32), HostPath> {
    let edges: Vec<_> = hosts.all_edges().collect();
    let way = |path: Vec<DirectionId>| {
        let edge = |d: &DirectionId| edges[d.edge().0 as usize];
        let mtu = path.iter().map(|d| edge(d).1).min()?;
        let narrow = path.iter().find(|d| edge(d).1 == mtu)?;
        let (ends, _) = edge(narrow);
        let router = ends.iter().find_map(|end| match end {
            EdgeEnd::Router(n) => Some(first_router + *n as u32),
            EdgeEnd::Host(_) => None,
        });
        let delays = path.iter().map(|&d| net.model(d).map_or(Cell::HOP, |model| model.delay));
        Some(HostPath {
            routers: u8::try_from(path.len() - 1).unwrap_or(u8::MAX),
            mtu,
            narrow: router.unwrap_or(first_router) - first_router,
            delay: delays.sum(),
        })
    };
    let mut ways = BTreeMap::new();
    for to in 0..host_of.len() {
        let paths = net.paths(VertexId(to as u32));
        let others = (0..host_of.len()).filter(|from| host_of[*from] != host_of[to]);
        let found = others.map(|from| from as u32).filter_map(|from| {
            let way = way(paths(VertexId(from))?)?;
            Some(((from, to as u32), way))
        });
        ways.extend(found);
    }
    ways
}

impl Layout {
    /// Returns the route from one interface to another, if there is one.
    pub fn way(&self, from: usize, to: usize) -> Option<HostPath> {
        self.ways.get(&(from as u32, to as u32)).copied()
    }

    /// Finds the interface with this address, if there is one.
    pub fn find(&self, address: IpAddr) -> Option<usize> {
        let number = match address {
            IpAddr::V4(v4) => match v4.octets() {
                [a, b, high, low] if [a, b] == HOSTS_V4 => u16::from_be_bytes([high, low]),
                _ => return None,
            },
            IpAddr::V6(v6) => match v6.segments() {
                [0xfd74, 0x6c, HOSTS_V6, 0, 0, 0, 0, number] => number,
                _ => return None,
            },
        };
        let interface = usize::from(number).checked_sub(1)?;
        (interface < self.host_of.len()).then_some(interface)
    }

    /// For each interface of another host that `host` can reach: that interface, and the local
    /// interface with the least delay to it.
    pub fn nearest(&self, host: usize) -> impl Iterator<Item = (usize, usize)> {
        let own = self.of_host[host].clone();
        let others = (0..self.host_of.len()).filter(move |n| self.host_of[*n] != host);
        others.filter_map(move |to| {
            let ways = own.clone().filter_map(|from| Some((self.way(from, to)?.delay, from)));
            ways.min().map(|(_, from)| (to, from))
        })
    }
}

/// The addresses of interface `n`.
pub fn addresses(n: usize) -> (Ipv4Addr, Ipv6Addr) {
    numbered(HOSTS_V4, HOSTS_V6, n)
}

/// The addresses from which router `n` sends errors.
pub fn router_addresses(n: usize) -> (Ipv4Addr, Ipv6Addr) {
    numbered(ROUTERS_V4, ROUTERS_V6, n)
}

fn numbered([a, b]: [u8; 2], group: u16, n: usize) -> (Ipv4Addr, Ipv6Addr) {
    // The number of interfaces is limited well below this.
    let number = n as u16 + 1;
    let [high, low] = number.to_be_bytes();
    (Ipv4Addr::new(a, b, high, low), Ipv6Addr::new(0xfd74, 0x6c, group, 0, 0, 0, 0, number))
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::parse;
    use super::*;
    use trunkline_base::Time;
    use trunkline_net::{Class, Endpoint, Packet, Protocol};

    const TEXT: &str = "host = [{ name = \"a\" }, { name = \"b\" }]\n\
        router = [{ name = \"r\" }, { name = \"s\" }]\n\
        edge = [\
        { between = [\"a\", \"r\"], delay = \"1ms\" },\
        { between = [\"a\", \"b\"], delay = \"1ms\", private = true },\
        { between = [\"r\", \"s\"], delay = \"2ms\", mtu = 1400 },\
        { between = [\"s\", \"b\"], delay = \"3ms\" }]";

    #[test]
    fn hosts_and_their_private_edges_have_addresses_and_are_found_by_them() {
        let (_, layout) = build(&parse(TEXT).expect("valid"));
        assert_eq!(layout.of_host, [0..2, 2..4]);
        assert_eq!(layout.host_of, [0, 0, 1, 1]);
        for n in 0..4 {
            let (v4, v6) = addresses(n);
            assert_eq!((layout.find(v4.into()), layout.find(v6.into())), (Some(n), Some(n)));
        }
        assert_eq!(addresses(299).0.to_string(), "10.64.1.44");
        for other in ["10.64.0.0", "10.64.0.5", "10.65.0.1", "fd74:6c::", "fd74:6c::5", "fe80::1"] {
            assert_eq!(layout.find(other.parse().expect("an address")), None, "{other}");
        }
    }

    #[test]
    fn memory_is_for_packets_as_long_as_the_widest_edge_takes() {
        let text = TEXT.replace("3ms\" }", "3ms\", mtu = 9000 }");
        let hosts = parse(&format!("buffer = \"90 kB\"\n{text}")).expect("valid");
        let (mut net, _) = build(&hosts);
        let end = |n| Endpoint { vertex: VertexId(n), port: 0 };
        for _ in 0..15 {
            let packet = Packet {
                from: end(0),
                to: end(2),
                protocol: Protocol::UDP,
                tos: 0,
                class: Class::default(),
                bytes: 1_000,
                payload: &[],
            };
            net.send(Time::ZERO, &packet);
        }
        assert_eq!(net.ledger(DirectionId(0)).no_room.packets, 5, "there is room for ten");
    }

    #[test]
    fn ways_know_their_routers_and_the_narrowest_edge() {
        let (_, layout) = build(&parse(TEXT).expect("valid"));
        // The private edge is shorter but has other addresses.
        let far = layout.way(0, 2).expect("a way");
        assert_eq!((far.routers, far.mtu, far.narrow), (2, 1_400, 0));
        let near = layout.way(1, 3).expect("a way");
        assert_eq!((near.routers, near.mtu), (0, 1_500));
        assert_eq!((layout.way(0, 3), layout.way(0, 1)), (None, None), "hosts pass nothing on");
        assert_eq!(layout.nearest(0).collect::<Vec<_>>(), [(2, 0), (3, 1)]);
    }
}
