//! The kernel's routes (rtnetlink(7)): by which interface packets leave, and when that may have
//! changed.

use super::mmsg::Egress;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::net::{IpAddr, SocketAddr as IpSocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Groups of messages about changes: of interfaces, own addresses, routes and policy rules.
const GROUPS: [libc::c_uint; 7] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
];

/// Messages about changes that are read in one call, so that a storm of them doesn't hold up
/// packets.
const MESSAGES: usize = 64;

/// The kernel's choice of interface, source address and next hop for a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Index of the interface.
    pub interface: u32,
    /// Source address that the kernel chooses.
    pub source: Option<IpAddr>,
    /// Machine that the interface hands them to: a router, or the destination itself.
    pub next_hop: IpAddr,
}

impl Way {
    fn of(to: IpAddr, route: &RouteMessage) -> Option<Way> {
        let (mut interface, mut source, mut next_hop) = (None, None, to);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::PrefSource(address) => source = ip(address),
                RouteAttribute::Gateway(address) => next_hop = ip(address).unwrap_or(to),
                // A router whose address is of the other IP version.
                RouteAttribute::Via(RouteVia::Inet(address)) => next_hop = (*address).into(),
                RouteAttribute::Via(RouteVia::Inet6(address)) => next_hop = (*address).into(),
                _ => {}
            }
        }
        Some(Way { interface: interface?, source, next_hop })
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Two sockets of the kernel's routing: one for questions, one that is told of changes.
pub struct Routes {
    asks: Socket,
    changes: Socket,
    number: u32,
}

impl Routes {
    /// Opens the sockets; fails where the system forbids them (`RestrictAddressFamilies` of
    /// systemd without AF_NETLINK).
    pub fn open() -> io::Result<Routes> {
        let mut asks = Socket::new(NETLINK_ROUTE)?;
        asks.bind_auto()?;
        asks.connect(&SocketAddr::new(0, 0))?;
        let mut changes = Socket::new(NETLINK_ROUTE)?;
        changes.bind_auto()?;
        for group in GROUPS {
            changes.add_membership(group)?;
        }
        changes.set_non_blocking(true)?;
        Ok(Routes { asks, changes, number: 0 })
    }

    /// How UDP packets from `port` to `to` leave, if they leave by `egress`. The error is the
    /// kernel's, if it has no route.
    pub fn towards(&mut self, to: &IpSocketAddr, port: u16, egress: Egress) -> io::Result<Way> {
        let route = self.route(to.ip(), Some((port, to.port())), egress)?;
        Way::of(to.ip(), &route).ok_or_else(|| io::Error::other("a route without an interface"))
    }

    /// Whether `ip` is an address of this machine.
    pub fn is_local(&mut self, ip: IpAddr) -> bool {
        let route = self.route(ip, None, Egress::default());
        route.is_ok_and(|route| route.header.kind == RouteType::Local)
    }

    /// Asks for the route of a packet with these UDP ports. Routes with several next hops and policy
    /// rules may choose by them; kernels before Linux 4.17 ignore them here.
    fn route(
        &mut self,
        to: IpAddr,
        ports: Option<(u16, u16)>,
        egress: Egress,
    ) -> io::Result<RouteMessage> {
        let mut question = RouteMessage::default();
        question.header.address_family =
            if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        question.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        question.attributes.push(RouteAttribute::Destination(RouteAddress::from(to)));
        if let Some(source) = egress.source.filter(|source| source.is_ipv4() == to.is_ipv4()) {
            question.header.source_prefix_length = question.header.destination_prefix_length;
            question.attributes.push(RouteAttribute::Source(RouteAddress::from(source)));
        }
        if egress.interface != 0 {
            question.attributes.push(RouteAttribute::Oif(egress.interface));
        }
        if let Some((from, to)) = ports {
            question.attributes.push(RouteAttribute::IpProto(libc::IPPROTO_UDP as u8));
            question.attributes.push(RouteAttribute::Sport(from));
            question.attributes.push(RouteAttribute::Dport(to));
        }
        match self.ask(RouteNetlinkMessage::GetRoute(question))? {
            RouteNetlinkMessage::NewRoute(route) => Ok(route),
            _ => Err(io::Error::other("an answer that is no route")),
        }
    }

    /// Whether `next_hop` has not told the kernel its link-layer address; `None` if the kernel knows
    /// nothing of it.
    pub fn is_silent(&mut self, interface: u32, next_hop: IpAddr) -> Option<bool> {
        let mut question = NeighbourMessage::default();
        question.header.family =
            if next_hop.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        question.header.ifindex = interface;
        let address = match next_hop {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        question.attributes.push(NeighbourAttribute::Destination(address));
        // An interface without such addresses has no entry.
        let Ok(RouteNetlinkMessage::NewNeighbour(known)) =
            self.ask(RouteNetlinkMessage::GetNeighbour(question))
        else {
            return None;
        };
        let silent = [NeighbourState::Incomplete, NeighbourState::Failed];
        Some(silent.contains(&known.header.state))
    }

    /// The kernel answers before it returns from the question.
    fn ask(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.number = self.number.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST, self.number);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.asks.send(&bytes, 0)?;
        loop {
            let mut bytes = Vec::with_capacity(8 << 10);
            self.asks.recv(&mut bytes, libc::MSG_DONTWAIT)?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes);
            let answer = answer.map_err(io::Error::other)?;
            if answer.header.sequence_number != self.number {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(inner) => Ok(inner),
                NetlinkPayload::Error(error) => Err(error.to_io()),
                _ => Err(io::Error::other("an answer that is no route")),
            };
        }
    }

    /// Whether anything has changed since the last call. May return true again for the same
    /// changes.
    pub fn have_changed(&mut self) -> bool {
        let mut changed = false;
        for _ in 0..MESSAGES {
            // Only the kernel can send here. What was lost for want of room is a change, too.
            match self.changes.recv(&mut [0u8; 1].as_mut_slice(), libc::MSG_TRUNC) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                _ => changed = true,
            }
        }
        changed
    }
}

impl AsFd for Routes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_this_host_leave_by_its_loopback() {
        let mut routes = Routes::open().expect("netlink");
        let here = nix::net::if_::if_nametoindex("lo").expect("a loopback");
        let mut ask = |to: &str, source: Option<&str>| {
            let [to, source] =
                [Some(to), source].map(|a| a.map(|a| a.parse().expect("an address")));
            let to = IpSocketAddr::new(to.expect("given"), 7_000);
            routes.towards(&to, 7_000, Egress { source, interface: 0 })
        };
        for address in ["127.0.0.1", "127.3.2.1"] {
            let way = ask(address, None).expect("a route");
            assert_eq!((way.interface, way.next_hop.to_string()), (here, address.into()));
            assert!(way.source.is_some_and(|source| source.is_loopback()), "{way:?}");
        }
        let chosen = ask("127.0.0.1", Some("127.0.0.9")).expect("a route");
        assert_eq!(chosen.interface, here);
        // No question is answered with the answer to another.
        let nowhere = ask("240.0.0.1", None);
        let again = ask("127.0.0.1", None).expect("a route");
        assert_eq!(again.interface, here, "after {nowhere:?}");
        while routes.have_changed() {}
    }
}
