//! Which link leads to which node. For now routes come from the configuration;
//! they stay as an operator's override once routes are computed.

use crate::link::LinkId;
use crate::wire::NodeId;
use core::time::Duration;

/// An operator's route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// The destination; `None` is every node that no other route names.
    pub to: Option<NodeId>,
    /// The neighbour that leads there.
    pub via: NodeId,
    /// One-way delay from that neighbour to the destination; zero if unknown.
    /// Recovery on the way there leaves so much of a packet's time alone.
    pub onward: Duration,
}

/// The first step towards a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The link to take.
    pub link: LinkId,
    /// As [`StaticRoute::onward`].
    pub onward: Duration,
}

/// What forwarding reads: immutable once built.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ForwardingTable {
    exact: Vec<(NodeId, Hop)>,
    default: Option<Hop>,
}

impl ForwardingTable {
    /// The table of `routes` over `links` (each the neighbour at its other end
    /// and whether it is up). Of several routes to one node the first whose
    /// link is up counts, in the order given; if none is up, the first. A
    /// neighbour that no route names is reached directly.
    pub fn from_static(routes: &[StaticRoute], links: &[(NodeId, bool)]) -> ForwardingTable {
        let link_to = |via: NodeId, onward: Duration, want_up: bool| {
            let found = links.iter().position(|&(node, up)| node == via && (up || !want_up))?;
            u16::try_from(found).ok().map(|link| Hop { link: LinkId(link), onward })
        };
        let best = |to: Option<NodeId>| {
            let pick = |want_up| {
                let mut to = routes.iter().filter(|r| r.to == to);
                to.find_map(|r| link_to(r.via, r.onward, want_up))
            };
            pick(true).or_else(|| pick(false))
        };
        let named = routes.iter().filter_map(|r| r.to);
        let mut nodes: Vec<NodeId> = named.chain(links.iter().map(|&(node, _)| node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let direct = |node| {
            let link = |want_up| link_to(node, Duration::ZERO, want_up);
            link(true).or_else(|| link(false))
        };
        let exact = nodes
            .into_iter()
            .filter_map(|node| Some((node, best(Some(node)).or_else(|| direct(node))?)))
            .collect();
        ForwardingTable { exact, default: best(None) }
    }

    /// The first step towards `node`.
    pub fn next_hop(&self, node: NodeId) -> Option<Hop> {
        match self.exact.binary_search_by_key(&node, |&(n, _)| n) {
            Ok(i) => Some(self.exact[i].1),
            Err(_) => self.default,
        }
    }

    /// Every destination that has an entry of its own.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Hop)> {
        self.exact.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_route_that_is_up_counts() {
        let (b, c, d, z) = (NodeId(2), NodeId(3), NodeId(4), NodeId(99));
        let route = |to, via| StaticRoute { to, via, onward: Duration::ZERO };
        let routes = [route(Some(d), b), route(Some(d), c), route(None, c)];
        let table = |links: &[(NodeId, bool)]| {
            let t = ForwardingTable::from_static(&routes, links);
            [d, z, b].map(|n| t.next_hop(n).map(|hop| hop.link.0))
        };
        assert_eq!(table(&[(b, true), (c, true)]), [Some(0), Some(1), Some(0)]);
        assert_eq!(table(&[(b, false), (c, true)]), [Some(1), Some(1), Some(0)]);
        assert_eq!(table(&[(b, false), (c, false)]), [Some(0), Some(1), Some(0)]);
        // A second path to the same neighbour takes over.
        assert_eq!(table(&[(b, false), (b, true), (c, true)]), [Some(1), Some(2), Some(1)]);
        assert_eq!(ForwardingTable::from_static(&[], &[(b, true)]).next_hop(z), None);
    }
}
