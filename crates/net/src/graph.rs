//! Hosts, routers, edges, and the routes between them.

use crate::ledger::VertexLedger;
use crate::network::HOP_LIMIT;
use core::fmt;
use core::time::Duration;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use trunkline_base::link_model::InvalidModel;

/// A host or router of a network: an index, in the order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VertexId(pub u32);

impl fmt::Display for VertexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vertex {}", self.0)
    }
}

/// An edge of a network: an index, in the order of connecting. An edge has two directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeId(pub u32);

impl EdgeId {
    /// The direction from the first endpoint of the edge to the second.
    pub fn forward(self) -> DirectionId {
        DirectionId(2 * self.0)
    }

    /// The direction from the second endpoint of the edge to the first.
    pub fn reverse(self) -> DirectionId {
        DirectionId(2 * self.0 + 1)
    }
}

/// One direction of an edge: twice the edge's number, plus one for the reverse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DirectionId(pub u32);

impl fmt::Display for DirectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "direction {}", self.0)
    }
}

impl DirectionId {
    /// The edge that this is a direction of.
    pub fn edge(self) -> EdgeId {
        EdgeId(self.0 / 2)
    }

    /// The edge's other direction.
    pub fn back(self) -> DirectionId {
        DirectionId(self.0 ^ 1)
    }
}

/// The method by which a network finds its routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Routing {
    /// The smallest sum of the delays that the edges were connected with; ties go to the fewest
    /// edges, then to the edge connected first. A [`set_route`](crate::Network::set_route) takes
    /// precedence.
    #[default]
    ShortestDelay,
    /// Only the routes of [`set_route`](crate::Network::set_route).
    Table,
}

/// Reasons for rejecting an edge, a model or a route.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NetError {
    /// The link model is not valid.
    #[error("{0}")]
    Model(#[from] InvalidModel),
    /// The direction has no model, because it belongs to a medium.
    #[error("{0} belongs to a medium, which has no link model")]
    NoModel(DirectionId),
    /// The direction of the route does not begin at this vertex.
    #[error("{1} does not begin at {0}, so it cannot be a route there")]
    NotFromHere(VertexId, DirectionId),
}

const NONE: u32 = u32::MAX;

pub(crate) struct Vertex {
    pub router: bool,
    /// The directions that begin at this vertex.
    out: Vec<u32>,
    pub ledger: VertexLedger,
}

/// A direction, as routing sees it.
struct Arc {
    from: u32,
    delay: u64,
}

/// The topology and its routing tables.
#[derive(Default)]
pub(crate) struct Graph {
    pub vertices: Vec<Vertex>,
    /// The only direction that begins at a host, or [`NONE`]; indexed by vertex. Such a host needs
    /// no table: the vertex at the other end routes. Read for every packet.
    only: Vec<u32>,
    arcs: Vec<Arc>,
    /// The vertex where a direction ends; indexed by direction. Read for every packet.
    ends: Vec<u32>,
    routing: Routing,
    /// Routes set by hand, by destination and vertex.
    set: BTreeMap<(u32, u32), u32>,
    /// For each destination, built on first use: the direction to take at each vertex, or [`NONE`].
    tables: Vec<Option<Box<[u32]>>>,
}

impl Graph {
    pub fn set_routing(&mut self, routing: Routing) {
        self.routing = routing;
        self.tables.clear();
    }

    pub fn add(&mut self, router: bool) -> VertexId {
        let ledger = VertexLedger::default();
        self.vertices.push(Vertex { router, out: Vec::new(), ledger });
        self.only.push(NONE);
        self.tables.clear();
        VertexId(self.vertices.len() as u32 - 1)
    }

    /// Adds two directions, one each way.
    pub fn join(&mut self, a: VertexId, b: VertexId, delays: [Duration; 2]) {
        for ((from, to), delay) in [(a, b), (b, a)].into_iter().zip(delays) {
            let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
            let vertex = &mut self.vertices[from.0 as usize];
            vertex.out.push(self.arcs.len() as u32);
            self.only[from.0 as usize] = match vertex.out[..] {
                [only] if !vertex.router => only,
                _ => NONE,
            };
            self.arcs.push(Arc { from: from.0, delay });
            self.ends.push(to.0);
        }
        self.tables.clear();
    }

    #[inline]
    pub fn end(&self, direction: DirectionId) -> VertexId {
        VertexId(self.ends[direction.0 as usize])
    }

    pub fn set_route(
        &mut self,
        at: VertexId,
        to: VertexId,
        direction: DirectionId,
    ) -> Result<(), NetError> {
        if self.arcs[direction.0 as usize].from != at.0 {
            return Err(NetError::NotFromHere(at, direction));
        }
        self.set.insert((to.0, at.0), direction.0);
        self.tables.clear();
        Ok(())
    }

    /// The direction to take at `at` towards `to`.
    #[inline]
    pub fn next_hop(&mut self, at: VertexId, to: VertexId) -> Option<DirectionId> {
        match self.only[at.0 as usize] {
            NONE => self.look_up(at, to),
            only => Some(DirectionId(only)),
        }
    }

    fn look_up(&mut self, at: VertexId, to: VertexId) -> Option<DirectionId> {
        if self.tables.is_empty() {
            self.tables.resize_with(self.vertices.len(), || None);
        }
        if self.tables[to.0 as usize].is_none() {
            self.tables[to.0 as usize] = Some(self.table(to));
        }
        let table = self.tables[to.0 as usize].as_ref()?;
        Some(table[at.0 as usize]).filter(|&d| d != NONE).map(DirectionId)
    }

    /// Returns a function from a vertex to all directions that a packet takes from there to `to`;
    /// `None` if it doesn't get there.
    pub fn paths(&self, to: VertexId) -> impl Fn(VertexId) -> Option<Vec<DirectionId>> {
        let kept = self.tables.get(to.0 as usize).and_then(Option::as_deref);
        let table = kept.map_or_else(|| Cow::Owned(self.table(to).into_vec()), Cow::Borrowed);
        move |from| {
            let (mut here, mut path) = (from, Vec::new());
            while here != to {
                let stray = here != from && !self.vertices[here.0 as usize].router;
                if stray || path.len() > usize::from(HOP_LIMIT) {
                    return None;
                }
                let direction = match self.only[here.0 as usize] {
                    NONE => table[here.0 as usize],
                    only => only,
                };
                path.push(DirectionId(Some(direction).filter(|&d| d != NONE)?));
                here = VertexId(self.ends[direction as usize]);
            }
            Some(path)
        }
    }

    fn table(&self, to: VertexId) -> Box<[u32]> {
        let mut table = match self.routing {
            Routing::ShortestDelay => self.shortest(to),
            Routing::Table => vec![NONE; self.vertices.len()].into(),
        };
        for (&(_, at), &direction) in self.set.range((to.0, 0)..=(to.0, u32::MAX)) {
            table[at as usize] = direction;
        }
        table
    }

    /// Dijkstra's algorithm, backwards from the destination. Hosts forward nothing, so no route
    /// leads through one.
    fn shortest(&self, to: VertexId) -> Box<[u32]> {
        let unreached = (u64::MAX, u32::MAX, NONE);
        // Delay, edges, first direction: smaller is better.
        let mut best = vec![unreached; self.vertices.len()];
        let mut queue = BinaryHeap::from([Reverse((0u64, 0u32, to.0))]);
        best[to.0 as usize] = (0, 0, NONE);
        while let Some(Reverse((delay, edges, here))) = queue.pop() {
            let vertex = &self.vertices[here as usize];
            let passes_on = vertex.router || here == to.0;
            if (delay, edges) != (best[here as usize].0, best[here as usize].1) || !passes_on {
                continue;
            }
            for &out in &vertex.out {
                // The other direction of this edge leads to this vertex.
                let arc = &self.arcs[(out ^ 1) as usize];
                let found = (delay.saturating_add(arc.delay), edges + 1, out ^ 1);
                if arc.from != to.0 && found < best[arc.from as usize] {
                    best[arc.from as usize] = found;
                    queue.push(Reverse((found.0, found.1, arc.from)));
                }
            }
        }
        best.into_iter().map(|(.., direction)| direction).collect()
    }
}
