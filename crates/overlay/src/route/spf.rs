//! Shortest paths from this node, by each metric: Dijkstra's algorithm over dense indices, in
//! memory that is kept between runs.

use super::database::Database;
use super::update::{Advert, Part};
use crate::link::LinkCost;
use crate::route::CostModel;
use crate::wire::{Metric, NodeId};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

/// Extra cost of a link out of a draining node: more than any path, and a power of two, so that it
/// can be separated from the rest.
const DRAIN: u64 = 1 << 44;
const NOWHERE: u32 = u32::MAX;

/// A link that both ends advertise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Edge {
    from: u32,
    to: u32,
    path: u8,
    cost: LinkCost,
}

/// The overlay as described by the database.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: Vec<NodeId>,
    draining: Vec<bool>,
    edges: Vec<Edge>,
    /// Index of the first edge of each node, plus a final one.
    first: Vec<u32>,
    /// Cost of each edge, by each metric.
    costs: [Vec<u32>; Metric::COUNT],
    all: Vec<Edge>,
    /// Number of links that only one end advertises.
    denied: u64,
}

impl Graph {
    /// Rebuilds the graph from the links of all nodes: the present ones of `own`, and those in the
    /// database of the others. A link counts only if both ends advertise it.
    pub(super) fn rebuild(
        &mut self,
        own: NodeId,
        links: &[Advert],
        db: &Database,
        model: &CostModel,
    ) {
        let of_others = || {
            let updates = db.iter().filter(|(key, _)| matches!(key.part, Part::Links(_)));
            updates.filter(move |(key, _)| key.origin != own)
        };
        self.nodes.clear();
        self.nodes.push(own);
        self.nodes.extend(of_others().map(|(key, _)| key.origin));
        self.nodes.sort_unstable();
        self.nodes.dedup();
        self.draining.clear();
        self.draining.resize(self.nodes.len(), false);
        self.all.clear();
        self.denied = 0;
        self.add(own, links);
        for (key, entry) in of_others() {
            if let Some(index) = self.index(key.origin) {
                self.draining[index as usize] |= entry.draining;
            }
            self.add(key.origin, &entry.links);
        }
        self.connect(model);
    }

    /// A graph of `links` (the node and its advert): for tests and benchmarks.
    pub fn of(links: &[(NodeId, Advert)], model: &CostModel) -> Graph {
        let mut graph = Graph::default();
        graph.nodes.extend(links.iter().flat_map(|(from, link)| [*from, link.neighbour]));
        graph.nodes.sort_unstable();
        graph.nodes.dedup();
        graph.draining.resize(graph.nodes.len(), false);
        for (from, link) in links {
            graph.add(*from, core::slice::from_ref(link));
        }
        graph.connect(model);
        graph
    }

    fn add(&mut self, from: NodeId, links: &[Advert]) {
        let Some(index) = self.index(from) else { return };
        for link in links {
            match self.index(link.neighbour) {
                Some(to) => {
                    self.all.push(Edge { from: index, to, path: link.path, cost: link.cost });
                }
                None => self.denied += 1,
            }
        }
    }

    fn connect(&mut self, model: &CostModel) {
        let ends = |e: &Edge| (e.from, e.to, e.path);
        self.all.sort_unstable();
        // A node that lists a link in two records gets the cheaper one.
        self.all.dedup_by_key(|e| ends(e));
        self.edges.clear();
        for edge in &self.all {
            let back = (edge.to, edge.from, edge.path);
            if self.all.binary_search_by_key(&back, ends).is_ok() {
                self.edges.push(*edge);
            } else {
                self.denied += 1;
            }
        }
        self.first.clear();
        self.first.resize(self.nodes.len() + 1, 0);
        for edge in &self.edges {
            self.first[edge.from as usize + 1] += 1;
        }
        for i in 1..self.first.len() {
            self.first[i] += self.first[i - 1];
        }
        for (metric, costs) in Metric::ALL.into_iter().zip(&mut self.costs) {
            costs.clear();
            costs.extend(self.edges.iter().map(|e| model.cost(metric, &e.cost)));
        }
    }

    /// The nodes, ascending by id.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Number of directed links that count.
    pub fn links(&self) -> usize {
        self.edges.len()
    }

    /// Number of directed links that don't count, since only one end advertises them.
    pub fn denied(&self) -> u64 {
        self.denied
    }

    pub(super) fn index(&self, node: NodeId) -> Option<u32> {
        self.nodes.binary_search(&node).ok().map(|i| i as u32)
    }

    fn edges_of(&self, node: u32) -> core::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }
}

/// The shortest paths from one node to all others, by one metric.
#[derive(Debug, Default)]
pub struct Tree {
    distance: Vec<u64>,
    /// Index of the last edge on the path.
    last: Vec<u32>,
    /// Index of the first edge on the path.
    first: Vec<u32>,
    /// Delay beyond the first link, in 0.1 ms.
    onward: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

/// The first step of a path to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// First neighbour on the path.
    pub neighbour: NodeId,
    /// Number of the link to that neighbour.
    pub path: u8,
    /// One-way delay of the path after that neighbour.
    pub onward: Duration,
}

impl Tree {
    /// Computes the paths from `source`; there are none if the graph doesn't contain it. Among
    /// equal paths, the one through the lower node ids is used.
    pub fn run(&mut self, graph: &Graph, source: NodeId, metric: Metric) {
        let n = graph.nodes.len();
        let costs = &graph.costs[metric as usize];
        self.distance.clear();
        self.distance.resize(n, u64::MAX);
        for edges in [&mut self.last, &mut self.first] {
            edges.clear();
            edges.resize(n, NOWHERE);
        }
        self.onward.clear();
        self.onward.resize(n, 0);
        self.heap.clear();
        let Some(source) = graph.index(source) else { return };
        self.distance[source as usize] = 0;
        self.heap.push(Reverse((0, source)));
        while let Some(Reverse((distance, node))) = self.heap.pop() {
            let at = node as usize;
            if distance > self.distance[at] {
                continue;
            }
            let drain = if graph.draining[at] && node != source { DRAIN } else { 0 };
            for i in graph.edges_of(node) {
                let edge = &graph.edges[i];
                let to = edge.to as usize;
                let new = distance + u64::from(costs[i]) + drain;
                if new >= self.distance[to] {
                    continue;
                }
                self.distance[to] = new;
                self.last[to] = i as u32;
                (self.first[to], self.onward[to]) = if node == source {
                    (i as u32, 0)
                } else {
                    (self.first[at], self.onward[at] + u32::from(edge.cost.latency))
                };
                self.heap.push(Reverse((new, edge.to)));
            }
        }
    }

    /// The cost of the path to `node`, without the extra cost of draining nodes; `None` if there is
    /// no path.
    pub fn distance(&self, graph: &Graph, node: NodeId) -> Option<u64> {
        Some(self.with_drain(graph, node)? % DRAIN)
    }

    /// Whether every path to `node` leads through a draining node.
    pub fn is_last_resort(&self, graph: &Graph, node: NodeId) -> bool {
        self.with_drain(graph, node).is_some_and(|cost| cost >= DRAIN)
    }

    fn with_drain(&self, graph: &Graph, node: NodeId) -> Option<u64> {
        let distance = *self.distance.get(graph.index(node)? as usize)?;
        (distance != u64::MAX).then_some(distance)
    }

    /// The first step to `node`; `None` if there is no path, or it is the source.
    pub fn way(&self, graph: &Graph, node: NodeId) -> Option<NextHop> {
        let at = graph.index(node)? as usize;
        let edge = graph.edges.get(*self.first.get(at)? as usize)?;
        Some(NextHop {
            neighbour: graph.nodes[edge.to as usize],
            path: edge.path,
            onward: Duration::from_micros(100) * self.onward[at],
        })
    }

    /// The nodes on the path to `node`, the source first; empty if there is no path.
    pub fn path(&self, graph: &Graph, node: NodeId) -> Vec<NodeId> {
        let mut path = Vec::new();
        if self.distance(graph, node).is_none() {
            return path;
        }
        let mut at = graph.index(node);
        while let Some(i) = at {
            path.push(graph.nodes[i as usize]);
            at = graph.edges.get(self.last[i as usize] as usize).map(|e| e.from);
        }
        path.reverse();
        path
    }
}
