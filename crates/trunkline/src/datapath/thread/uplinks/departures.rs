//! How links leave: by which listener, from which address and by which interface.

use super::own_queues::GroupId;
use super::{Uplinks, WantedPath};
use crate::addresses;
use crate::datapath::mmsg::Egress;
use crate::datapath::routes::{Routes, Way};
use nix::net::if_::if_nametoindex;
use std::net::{IpAddr, SocketAddr};
use trunkline_overlay::arena::{LocalAddress, OwnAddresses};
use trunkline_overlay::node::LinkName;

/// The properties that distinguish an uplink from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Departure {
    /// Number of the listener whose address it has.
    pub(super) listener: usize,
    /// Index of the interface by which its packets leave; 0 if they may leave by any.
    pub(super) interface: u32,
    pub(super) egress: Egress,
    pub(super) sharing: Sharing,
}

/// The links whose packets leave by an uplink: what waits in it holds up all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// All that leave so, except for the others here.
    Links,
    /// Those whose next hops don't answer.
    Silent,
    /// Those whose packets wait in a queue of their own, or may do so.
    Own(GroupId),
    /// None any more: their packets may leave while what waits in it doesn't.
    Left,
}

/// Why a link has no uplink to leave by.
pub(super) enum NoWay {
    /// Nothing may leave, for a reason as in errno(3): its interface or its source does not exist, or
    /// the kernel would not use it.
    Held(i32),
    /// There is no listener of the address family.
    Family,
}

/// A link that leaves by another interface than the one that has its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// The interface that it leaves by.
    pub by: String,
    /// The interface that has its source.
    pub own: String,
}

impl Uplinks {
    /// The number of the socket that `local` names, if this machine still has that address.
    fn listener_of(&self, local: LocalAddress) -> Option<usize> {
        let listener = usize::from(local.socket);
        let own = local.ip.unwrap_or(self.listeners.get(listener)?.ip());
        let is_here = own.is_unspecified() || own.is_loopback() || self.own.contains(&own);
        is_here.then_some(listener)
    }

    /// How packets leave by `listener` from its address `source`. A socket that is bound to an
    /// address sends from that.
    pub(super) fn egress_from(&self, listener: usize, source: Option<IpAddr>) -> Egress {
        let is_any = self.listeners.get(listener).is_some_and(|l| l.ip().is_unspecified());
        Egress { source: source.filter(|_| is_any), interface: 0 }
    }

    /// The listener whose uplink packets for `to` leave by, if `own` is to be their source.
    pub(super) fn listener_towards(&self, to: &SocketAddr, own: Option<IpAddr>) -> Option<usize> {
        let of_family = |listener: &SocketAddr| listener.is_ipv6() == to.is_ipv6();
        let sends = |listener: &SocketAddr| own.is_some_and(|own| listener.ip() == own);
        let fits = |l: &SocketAddr| of_family(l) && (sends(l) || l.ip().is_unspecified());
        let listeners = || self.listeners.iter();
        listeners().position(fits).or_else(|| listeners().position(of_family))
    }

    /// How a link that is configured as `wanted`, and whose neighbour has spoken to `local`, leaves
    /// for `to`.
    pub(super) fn departure(
        &mut self,
        (wanted, local): (&WantedPath, Option<LocalAddress>),
        to: &SocketAddr,
    ) -> Result<(Departure, Option<Way>), NoWay> {
        let mut egress = Egress { source: wanted.source, interface: 0 };
        if let Some(name) = &wanted.interface {
            egress.interface =
                if_nametoindex(name.as_str()).map_err(|_| NoWay::Held(libc::ENODEV))?;
        }
        let mut listener = self.listener_towards(to, egress.source).ok_or(NoWay::Family)?;
        if egress.source.is_some_and(|source| source.is_ipv6() != to.is_ipv6()) {
            return Err(NoWay::Held(libc::EAFNOSUPPORT));
        }
        let local = local.filter(|_| egress.source.is_none());
        let spoken = local.and_then(|local| Some((self.listener_of(local)?, local.ip)));
        let first = listener;
        let mut way = self.way(listener, to, egress);
        let usual = way.and_then(|way| way.source);
        let mut theirs = None;
        if let Some((spoken, own)) = spoken {
            listener = spoken;
            // The kernel may choose the same address for as long as its routes stay.
            let source = own.filter(|_| own != usual);
            theirs = source.and_then(|_| self.way(spoken, to, Egress { source, ..egress }));
            if theirs.is_some() || self.routes.is_none() {
                (egress.source, way) = (source, theirs.or(way));
            }
        } else if egress.source.is_none() && usual.is_some() {
            listener = self.listener_towards(to, usual).ok_or(NoWay::Family)?;
        }
        let asked = egress.source;
        egress.source = self.egress_from(listener, asked).source;
        let source = egress.source.or_else(|| self.address_of(listener));
        if let Some(errno) = source.and_then(|source| self.unusable(source)) {
            return Err(NoWay::Held(errno));
        }
        if (source != asked || listener != first) && theirs.is_none() {
            way = self.way(listener, to, Egress { source, ..egress });
        }
        if way.is_some_and(|way| ![0, way.interface].contains(&egress.interface)) {
            // IPv6 prefers a route to the interface that it is given.
            return Err(NoWay::Held(libc::ENETUNREACH));
        }
        let silent = way.is_some_and(|way| self.next_hops.contains(&(way.interface, way.next_hop)));
        let interface = way.map_or(0, |way| way.interface);
        let sharing = if silent { Sharing::Silent } else { Sharing::Links };
        Ok((Departure { listener, interface, egress, sharing }, way))
    }

    /// Reason why nothing can arrive for a link whose neighbour has yet to call, as in errno(3): this
    /// machine lacks its source or its interface.
    pub(super) fn missing(&mut self, link: &LinkName) -> Option<i32> {
        let WantedPath { source, interface, .. } = self.wanted.get(link)?.clone();
        let lacks = |name: &String| if_nametoindex(name.as_str()).is_err();
        if interface.as_ref().is_some_and(lacks) {
            return Some(libc::ENODEV);
        }
        self.unusable(source?)
    }

    /// The own addresses that the paths of a link may use, if its section says that: its `source`, or
    /// those of its `interface`. An interface without an address borrows that of another one, and
    /// those of the loopback may be used on all.
    pub(super) fn own_addresses(
        &mut self,
        link: &LinkName,
        to: Option<SocketAddr>,
    ) -> Option<OwnAddresses> {
        let wanted = self.wanted.get(link)?;
        if let Some(source) = wanted.source {
            return Some(OwnAddresses::new(vec![source]));
        }
        let name = wanted.interface.clone()?;
        let interface = if_nametoindex(name.as_str()).unwrap_or(0);
        let all = self.own_by_interface.as_ref()?;
        let of = |name: &str| all.get(name).into_iter().flatten().copied();
        let has_none = !of(&name).any(|ip| addresses::is_routed(&ip));
        let mut own: Vec<_> = of(&name).chain(of("lo")).collect();
        let borrowed = to.filter(|_| interface != 0).and_then(|to| {
            let listener = self.listener_towards(&to, None)?;
            self.way(listener, &to, Egress { source: None, interface })
        });
        own.extend(borrowed.and_then(|way| way.source));
        let is_unknown = has_none && interface != 0 && borrowed.is_none();
        (!is_unknown).then(|| OwnAddresses::new(own))
    }

    /// The address that `listener` is bound to, if it is a single one.
    fn address_of(&self, listener: usize) -> Option<IpAddr> {
        let ip = self.listeners.get(listener)?.ip();
        (!ip.is_unspecified()).then_some(ip)
    }

    /// Reason why nothing can leave from `ip`, as in errno(3), if nothing can.
    fn unusable(&mut self, ip: IpAddr) -> Option<i32> {
        match self.duplicates.contains(&ip) {
            true => Some(libc::EADDRINUSE),
            false => (!self.is_here(ip)).then_some(libc::EADDRNOTAVAIL),
        }
    }

    /// Whether this machine has the address `ip`. A socket may be bound to one that it doesn't have
    /// yet, and IPv6 then sends from there all the same.
    fn is_here(&mut self, ip: IpAddr) -> bool {
        // The addresses of a network that is this machine's as a whole are not listed.
        let is_local = |routes: &mut Routes| routes.is_local(ip);
        ip.is_loopback() || self.own.contains(&ip) || self.routes.as_mut().is_none_or(is_local)
    }

    /// The kernel's route from `listener` to `to`. Without one, nothing can be sent now, and the kernel reports the
    /// next change.
    fn way(&mut self, listener: usize, to: &SocketAddr, egress: Egress) -> Option<Way> {
        let scope = match to {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let interface = if egress.interface == 0 { scope } else { egress.interface };
        let port = self.listeners.get(listener)?.port();
        self.routes.as_mut()?.towards(to, port, Egress { interface, ..egress }).ok()
    }

    /// The other interface by which a link leaves than the one that has its configured source: the
    /// network there may drop it.
    pub(super) fn elsewhere_by(wanted: &WantedPath, interface: u32) -> Option<Elsewhere> {
        let source = wanted.source.filter(|_| wanted.interface.is_none() && interface != 0)?;
        let own = addresses::interface_of(source)?;
        let by = addresses::interface_name(interface)?;
        (by != own).then_some(Elsewhere { by, own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::record;
    use crate::datapath::udp::Udp;
    use nix::sys::epoll::{Epoll, EpollCreateFlags};
    use trunkline_overlay::link::LinkId;

    /// The uplinks of a node that listens at `listen`.
    fn uplinks(listen: &str) -> Uplinks {
        let udp = Udp::bind(listen.parse().expect("an address"), false);
        let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
        let mut sockets = [udp.expect("bound")];
        Uplinks::new(&mut sockets, [].into(), &epoll, &mut record::arena()).expect("uplinks")
    }

    /// The kernel sends IPv6 packets from any address that a socket with IP_FREEBIND names.
    #[test]
    fn nothing_leaves_from_an_address_that_this_machine_lacks() {
        let to = ["192.0.2.1:7000", "[2001:db8::1]:7000"].map(|to| to.parse().expect("an address"));
        for (listen, source, to) in [
            ("0.0.0.0:0", Some("192.0.2.7"), to[0]),
            ("192.0.2.7:0", None, to[0]),
            ("[::]:0", Some("2001:db8::7"), to[1]),
            ("[2001:db8::7]:0", None, to[1]),
        ] {
            let mut uplinks = uplinks(listen);
            let source = source.map(|ip| ip.parse().expect("an address"));
            let wanted = WantedPath { source, ..WantedPath::default() };
            let found = uplinks.departure((&wanted, None), &to);
            assert!(matches!(found, Err(NoWay::Held(libc::EADDRNOTAVAIL))), "{listen} {source:?}");
        }
        let mut uplinks = uplinks("0.0.0.0:0");
        for here in ["127.0.0.1", "127.3.2.1"] {
            let source = Some(here.parse().expect("an address"));
            let wanted = WantedPath { source, ..WantedPath::default() };
            let found = uplinks.departure((&wanted, None), &"127.0.0.1:7".parse().expect("one"));
            assert!(found.is_ok(), "{here}");
        }
    }

    #[test]
    fn each_link_of_which_nothing_leaves_has_an_uplink_of_its_own() {
        let (mut uplinks, mut arena) = (uplinks("0.0.0.0:0"), record::arena());
        let mut hold = |uplinks: &mut Uplinks, n| uplinks.hold(LinkId(n), libc::ENODEV, &mut arena);
        let (first, second) = (hold(&mut uplinks, 0), hold(&mut uplinks, 1));
        assert_ne!(first, second);
        uplinks.forget(LinkId(0));
        assert_eq!(hold(&mut uplinks, 2), first);
        assert_eq!(uplinks.held.len(), 2);
    }
}
