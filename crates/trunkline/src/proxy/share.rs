//! Shares of a proxy's places: one node or host can't take those of all others.

use crate::call::line::Target;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use trunkline_base::network;
use trunkline_client::NodeId;

/// The node or host that a flow comes from, whatever its ports. A host has one IPv4 address, or a
/// /64 of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    Node(NodeId),
    Host(IpAddr),
}

impl From<&Target> for Origin {
    fn from(target: &Target) -> Origin {
        match target {
            Target::Overlay(address) => Origin::Node(address.node),
            Target::Udp(address) => Origin::from(*address),
        }
    }
}

impl From<SocketAddr> for Origin {
    fn from(address: SocketAddr) -> Origin {
        Origin::Host(network(address.ip()))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Node(node) => write!(f, "node {node}"),
            Origin::Host(ip @ IpAddr::V6(_)) => write!(f, "{ip}/64"),
            Origin::Host(ip) => write!(f, "{ip}"),
        }
    }
}

/// Number of connections of each origin.
#[derive(Debug)]
pub struct Shares {
    max: usize,
    open: Mutex<BTreeMap<Origin, usize>>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct Place<'s> {
    shares: &'s Shares,
    origin: Origin,
}

impl Shares {
    /// Allows `max` connections of each origin.
    pub fn new(max: usize) -> Shares {
        Shares { max, open: Mutex::default() }
    }

    /// Number of connections allowed for each origin.
    pub fn max(&self) -> usize {
        self.max
    }

    /// A place for one more connection of `origin`, if it has fewer than allowed.
    pub fn place(&self, origin: Origin) -> Option<Place<'_>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(&origin).copied().unwrap_or(0);
        (count < self.max).then(|| {
            open.insert(origin, count + 1);
            Place { shares: self, origin }
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut open = self.shares.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = open.get_mut(&self.origin) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(&self.origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_origin_whatever_its_ports_and_addresses() {
        let of = |text: &str| Origin::from(text.parse::<SocketAddr>().unwrap()).to_string();
        assert_eq!(of("192.0.2.1:5"), "192.0.2.1");
        assert_eq!(of("[::ffff:192.0.2.1]:6"), "192.0.2.1");
        assert_eq!(of("[2001:db8::1:2:3:4]:7"), "2001:db8::/64");
    }

    #[test]
    fn each_origin_has_its_places() {
        let shares = Shares::new(2);
        let node = |id| Origin::Node(NodeId(id));
        let first = shares.place(node(1));
        let second = shares.place(node(1));
        assert!(first.is_some() && second.is_some() && shares.place(node(1)).is_none());
        assert!(shares.place(node(2)).is_some());
        drop(first);
        assert!(shares.place(node(1)).is_some());
        drop(second);
        assert_eq!(shares.open.lock().map(|open| open.len()).ok(), Some(0));
    }
}
