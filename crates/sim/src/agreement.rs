//! Checks whether all nodes of a world agree with its actual network.

use crate::capture::WireEnd;
use crate::endpoints::{HostId, WireId};
use crate::random::Pieces;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_base::link_model::Loss;
use trunkline_overlay::route::{Key, Router};
use trunkline_overlay::wire::{Metric, NodeId};

/// An error in a node's view of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Disagreement {
    /// The node does not use link-state routing.
    #[error("{0} does not compute routes: set `routing` in its configuration")]
    NoRouting(HostId),
    /// The node lacks the newest record of another node that it can reach.
    #[error("{at} lacks the newest records of {of}")]
    Stale {
        /// The node with the stale database.
        at: HostId,
        /// The origin of the missing record.
        of: HostId,
    },
    /// The node has no route to another node that it can reach.
    #[error("{at} has no route to {to}")]
    NoWay {
        /// The node that lacks the route.
        at: HostId,
        /// Destination of the missing route.
        to: HostId,
    },
    /// The node has a route over a dead host or link.
    #[error("{at} has a route to {to} over a dead host or link")]
    DeadWay {
        /// The node with the dead route.
        at: HostId,
        /// Destination of the dead route.
        to: HostId,
    },
}

/// The actual network, against which nodes are checked.
struct Truth<'a> {
    /// Running hosts by node id, each with its router.
    nodes: BTreeMap<NodeId, (HostId, &'a Router)>,
    /// Pairs of nodes with a link that delivers in both directions.
    alive: BTreeSet<(NodeId, NodeId)>,
    pieces: Pieces,
}

impl World {
    /// The first error in any node's view: a record that is not its origin's newest, a missing
    /// route (by `metric`), or a route over a dead host or link. A link is dead if either direction
    /// of its wire, or of its path over cables and routers, loses everything
    /// ([`Loss::EVERYTHING`]). Records of unreachable nodes don't matter if there are no routes to
    /// them.
    pub fn disagreement(&self, metric: Metric) -> Option<Disagreement> {
        let mut truth = match self.truth() {
            Ok(truth) => truth,
            Err(host) => return Some(Disagreement::NoRouting(host)),
        };
        if let Some((at, of)) = self.stale_pairs(&mut truth).first().copied() {
            return Some(Disagreement::Stale { at, of });
        }
        for (&id, &(at, router)) in &truth.nodes {
            for (&other, &(to, _)) in truth.nodes.iter().filter(|(other, _)| **other != id) {
                let reachable = truth.pieces.root(at.0) == truth.pieces.root(to.0);
                let Some(route) = router.route(other, metric) else {
                    match reachable {
                        true => return Some(Disagreement::NoWay { at, to }),
                        false => continue,
                    }
                };
                let exists = |w: &[NodeId]| truth.alive.contains(&(w[0], w[1]));
                if route.path.last() != Some(&other) || !route.path.windows(2).all(exists) {
                    return Some(Disagreement::DeadWay { at, to });
                }
            }
        }
        None
    }

    /// Number of pairs of nodes in which the first lacks the newest record of the second, which it
    /// can reach.
    pub fn stale(&self) -> usize {
        self.truth().map_or(usize::MAX, |mut truth| self.stale_pairs(&mut truth).len())
    }

    fn stale_pairs(&self, truth: &mut Truth<'_>) -> Vec<(HostId, HostId)> {
        // The newest records of each origin, and the nodes that lack them.
        let newest: BTreeMap<Key, u64> =
            truth.nodes.iter().flat_map(|(&id, &(_, r))| own(r, id)).collect();
        let mut stale = Vec::new();
        for &(at, router) in truth.nodes.values() {
            let here: BTreeMap<Key, u64> = router.records().map(|(k, seq, _)| (k, seq)).collect();
            let mut wrong: Vec<HostId> = Vec::new();
            for (key, seq) in &newest {
                let Some(&(of, _)) = truth.nodes.get(&key.origin) else { continue };
                let reachable = truth.pieces.root(at.0) == truth.pieces.root(of.0);
                if reachable && here.get(key) != Some(seq) && wrong.last() != Some(&of) {
                    wrong.push(of);
                }
            }
            stale.extend(wrong.into_iter().map(|of| (at, of)));
        }
        stale
    }

    /// The actual network; the error is a host that computes no routes.
    fn truth(&self) -> Result<Truth<'_>, HostId> {
        let mut nodes = BTreeMap::new();
        for host in self.overlay_hosts().filter(|&h| !self.is_down(h)) {
            let node = self.node(host);
            nodes.insert(self.node_id(host), (host, node.router().ok_or(host)?));
        }
        let (mut alive, mut pieces) = (BTreeSet::new(), Pieces::new(self.hosts()));
        let wires = (0..self.wires()).map(WireId).filter_map(|wire| {
            let carries = |end| self.model(wire, end).loss != Loss::EVERYTHING;
            let ends = self.link_of(wire)?;
            [WireEnd::First, WireEnd::Second].into_iter().all(carries).then_some(ends)
        });
        for ends in wires.chain(self.routed_links()) {
            if !ends.iter().any(|&h| self.is_down(h)) {
                let [a, b] = ends.map(|h| self.node_id(h));
                alive.extend([(a, b), (b, a)]);
                pieces.join(ends[0].0, ends[1].0);
            }
        }
        Ok(Truth { nodes, alive, pieces })
    }
}

fn own(router: &Router, id: NodeId) -> impl Iterator<Item = (Key, u64)> {
    router.records().filter(move |(key, ..)| key.origin == id).map(|(key, seq, _)| (key, seq))
}
