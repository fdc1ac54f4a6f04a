//! The link to use for each destination: from computed routes, an operator's routes, or both.

use crate::link::LinkId;
use crate::wire::{Metric, NodeId};
use core::time::Duration;

/// The end of a link, indexed by link number: the neighbour, and whether the link is up. `None` is
/// a number without a link.
type End = Option<(NodeId, bool)>;

/// A route set by an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// The destination; `None` means every node that no other route names.
    pub to: Option<NodeId>,
    /// The neighbour that packets are sent to.
    pub via: NodeId,
    /// One-way delay from that neighbour to the destination; zero if unknown. Recovery before that
    /// neighbour leaves this much of a packet's time unused.
    pub onward: Duration,
}

/// The first step of a route to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The link to send on.
    pub link: LinkId,
    /// One-way delay, as in [`StaticRoute::onward`].
    pub onward: Duration,
}

/// The first step by each metric.
type Hops = [Option<Hop>; Metric::COUNT];

/// The table that forwarding uses: immutable once built.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ForwardingTable {
    /// Ascending by id; their places are those of the hops.
    nodes: Vec<NodeId>,
    hops: Vec<Hops>,
    index: Index,
    default: Option<Hop>,
}

/// Number of nodes below which a search takes no longer than a hash.
const FEW: usize = 5;

/// Places of nodes by a hash of their ids: each packet looks two nodes up, and searches among a
/// thousand would be a twentieth of its cost.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Index {
    /// Bits of a hash that are cut off.
    shift: u32,
    /// Where the nodes of each hash begin in `places`, and the end of the last ones.
    starts: Box<[u32]>,
    /// Nodes with their places in the table, ascending by hash, then by id.
    places: Box<[(NodeId, u32)]>,
}

impl Index {
    /// An index of `nodes`, which are ascending.
    fn new(nodes: &[NodeId]) -> Index {
        // Most hashes have one node or none.
        let bits = (2 * nodes.len()).next_power_of_two().ilog2();
        let mut index = Index { shift: u32::BITS - bits, ..Index::default() };
        let mut places: Box<[_]> = nodes.iter().copied().zip(0..).collect();
        places.sort_by_key(|&(node, _)| index.hash(node));
        let start = |hash| places.partition_point(|&(node, _)| index.hash(node) < hash) as u32;
        index.starts = (0..=1 << bits).map(start).collect();
        Index { places, ..index }
    }

    /// Ids that count up, in whatever bits, differ in the upper bits of this product.
    #[inline]
    fn hash(&self, node: NodeId) -> usize {
        (u64::from(node.0.wrapping_mul(0x9e37_79b9)) >> self.shift) as usize
    }

    /// Place of a node. Ids that were chosen to have one hash cost a search among them.
    #[inline(never)]
    fn place(&self, node: NodeId) -> Option<usize> {
        let [from, to, ..] = self.starts.get(self.hash(node)..)? else { return None };
        let few = self.places.get(*from as usize..*to as usize)?;
        let at = few.binary_search_by_key(&node, |&(node, _)| node).ok()?;
        Some(few[at].1 as usize)
    }
}

impl ForwardingTable {
    /// Builds a table from `routes` over `links`, the same for every metric. Among several routes
    /// to one node, the first with a link that is up is used, in the given order; if no link is up,
    /// the first route. A neighbour that no route names is reached directly.
    pub fn from_static(routes: &[StaticRoute], links: &[End]) -> ForwardingTable {
        let best = |to| best(routes, links, to, true).or_else(|| best(routes, links, to, false));
        let named = routes.iter().filter_map(|r| r.to);
        let ends = links.iter().flatten().map(|&(node, _)| node);
        let mut nodes: Vec<NodeId> = named.chain(ends).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let direct = |node| {
            let link = |want_up| link_to(links, node, Duration::ZERO, want_up);
            link(true).or_else(|| link(false))
        };
        let entries = nodes
            .into_iter()
            .filter_map(|node| Some((node, best(Some(node)).or_else(|| direct(node))?)))
            .map(|(node, hop)| (node, [Some(hop); Metric::COUNT]));
        ForwardingTable::of(entries, best(None))
    }

    /// A table of these entries, which are ascending by node.
    fn of(entries: impl Iterator<Item = (NodeId, Hops)>, default: Option<Hop>) -> ForwardingTable {
        let (nodes, hops): (Vec<_>, _) = entries.unzip();
        let index = Index::new(&nodes);
        ForwardingTable { nodes, hops, index, default }
    }

    /// Builds a table from `computed` hops (ascending by node), over which `routes` with a link
    /// that is up take precedence. A neighbour without a computed hop, because it does not
    /// advertise its links, is reached directly. If no link to a destination is up, one that is
    /// down is used: it may be up in a moment.
    pub(super) fn computed(
        computed: Vec<(NodeId, Hops)>,
        routes: &[StaticRoute],
        links: &[End],
    ) -> ForwardingTable {
        let best = |to, want_up| best(routes, links, to, want_up);
        let named = routes.iter().filter_map(|r| r.to);
        let ends = links.iter().flatten().map(|&(node, _)| node);
        let mut nodes: Vec<NodeId> =
            computed.iter().map(|&(node, _)| node).chain(named).chain(ends).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let hops = |node: NodeId| {
            if let Some(hop) = best(Some(node), true) {
                return [Some(hop); Metric::COUNT];
            }
            let direct = |want_up| link_to(links, node, Duration::ZERO, want_up);
            match computed.binary_search_by_key(&node, |&(n, _)| n) {
                Ok(i) if computed[i].1 != [None; Metric::COUNT] => computed[i].1,
                _ => {
                    let down = || best(Some(node), false).or_else(|| direct(false));
                    [direct(true).or_else(down); Metric::COUNT]
                }
            }
        };
        let entries = nodes
            .into_iter()
            .map(|node| (node, hops(node)))
            .filter(|(_, hops)| hops.iter().any(Option::is_some));
        ForwardingTable::of(entries, best(None, true).or_else(|| best(None, false)))
    }

    /// The first step towards `node` by `metric`.
    pub fn next_hop(&self, node: NodeId, metric: Metric) -> Option<Hop> {
        match self.place(node) {
            Some(place) => self.hops[place][metric as usize],
            None => self.default,
        }
    }

    /// Whether `node` has an entry of its own.
    pub fn names(&self, node: NodeId) -> bool {
        self.place(node).is_some()
    }

    #[inline]
    fn place(&self, node: NodeId) -> Option<usize> {
        if self.nodes.len() < FEW {
            return self.nodes.binary_search(&node).ok();
        }
        self.index.place(node)
    }

    /// The nodes that have their own entry, ascending.
    pub(crate) fn destinations(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Every destination that has its own entry, by `metric`.
    pub fn iter(&self, metric: Metric) -> impl Iterator<Item = (NodeId, Hop)> {
        let hops = self.nodes.iter().zip(&self.hops);
        hops.filter_map(move |(&node, hops)| Some((node, hops[metric as usize]?)))
    }
}

fn link_to(links: &[End], via: NodeId, onward: Duration, want_up: bool) -> Option<Hop> {
    let leads = |(node, up)| node == via && (up || !want_up);
    let found = links.iter().position(|end| end.is_some_and(leads))?;
    u16::try_from(found).ok().map(|link| Hop { link: LinkId(link), onward })
}

fn best(routes: &[StaticRoute], links: &[End], to: Option<NodeId>, want_up: bool) -> Option<Hop> {
    let mut to = routes.iter().filter(|r| r.to == to);
    to.find_map(|r| link_to(links, r.via, r.onward, want_up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Ids at every distance from each other, some of which have one hash.
        #[test]
        fn each_node_is_found_at_its_place(
            first in any::<u32>(), step in 0..32u32,
            few in prop::collection::btree_set(0..300u32, 0..200),
        ) {
            let id = |n: u32| NodeId(first.wrapping_add(n << step));
            let mut nodes: Vec<_> = few.into_iter().map(id).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let index = Index::new(&nodes);
            for node in (0..300).map(id) {
                prop_assert_eq!(index.place(node), nodes.binary_search(&node).ok());
            }
        }
    }

    #[test]
    fn nodes_of_one_hash_are_told_apart() {
        // The inverse of the factor leads to ids of chosen products.
        let inverse = (0..5)
            .fold(1u32, |x, _| x.wrapping_mul(2u32.wrapping_sub(x.wrapping_mul(0x9e37_79b9))));
        let mut nodes: Vec<_> = (0..1_000).map(|n| NodeId(inverse.wrapping_mul(n))).collect();
        nodes.sort_unstable();
        let index = Index::new(&nodes);
        assert!(nodes.iter().all(|&node| index.hash(node) == 0));
        for (place, node) in nodes.iter().enumerate() {
            assert_eq!(index.place(*node), Some(place));
        }
        assert_eq!(index.place(NodeId(inverse.wrapping_mul(1_000))), None);
        assert_eq!(Index::default().place(NodeId(1)), None);
    }

    #[test]
    fn the_first_route_that_is_up_counts() {
        let (b, c, d, z) = (NodeId(2), NodeId(3), NodeId(4), NodeId(99));
        let route = |to, via| StaticRoute { to, via, onward: Duration::ZERO };
        let routes = [route(Some(d), b), route(Some(d), c), route(None, c)];
        let table = |links: &[(NodeId, bool)]| {
            let links: Vec<End> = links.iter().copied().map(Some).collect();
            let t = ForwardingTable::from_static(&routes, &links);
            [d, z, b].map(|n| t.next_hop(n, Metric::default()).map(|hop| hop.link.0))
        };
        assert_eq!(table(&[(b, true), (c, true)]), [Some(0), Some(1), Some(0)]);
        assert_eq!(table(&[(b, false), (c, true)]), [Some(1), Some(1), Some(0)]);
        assert_eq!(table(&[(b, false), (c, false)]), [Some(0), Some(1), Some(0)]);
        // A second path to the same neighbour takes over.
        assert_eq!(table(&[(b, false), (b, true), (c, true)]), [Some(1), Some(2), Some(1)]);
        assert_eq!(
            ForwardingTable::from_static(&[], &[Some((b, true))]).next_hop(z, Metric::Hops),
            None
        );
    }

    #[test]
    fn an_operators_route_comes_before_a_computed_one_while_its_link_is_up() {
        let (b, c, d) = (NodeId(2), NodeId(3), NodeId(4));
        let hop = |link| Some(Hop { link: LinkId(link), onward: Duration::ZERO });
        let computed = || vec![(c, [hop(1); Metric::COUNT]), (d, [hop(1); Metric::COUNT])];
        let routes = [StaticRoute { to: Some(d), via: b, onward: Duration::ZERO }];
        let to = |links: [bool; 2], node| {
            let links = [Some((b, links[0])), Some((c, links[1]))];
            let table = ForwardingTable::computed(computed(), &routes, &links);
            table.next_hop(node, Metric::Loss).map(|hop| hop.link.0)
        };
        assert_eq!((to([true, true], d), to([true, true], c)), (Some(0), Some(1)));
        assert_eq!(to([false, true], d), Some(1), "its link is down");
        // A neighbour that advertises no links, and one that is down.
        assert_eq!((to([true, true], b), to([false, true], b)), (Some(0), Some(0)));
    }
}
