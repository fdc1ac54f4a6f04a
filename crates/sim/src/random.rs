//! Random overlays, for experiments that must not depend on a single topology.

use crate::endpoints::HostId;
use crate::topology::Topology;
use core::time::Duration;
use rand::Rng as _;
use trunkline_base::link_model::LinkModel;
use trunkline_base::rng;
use trunkline_overlay::wire::NodeId;

pub use crate::brite::Brite;

/// Parameters of a random overlay: nodes are placed uniformly in a square, and linked with a
/// likelihood that falls with distance (Waxman, *Routing of multipoint connections*, 1988).
#[derive(Clone, Copy, Debug)]
pub struct Waxman {
    /// Number of nodes, at least 2.
    pub nodes: u32,
    /// Links per node on average, each counted at both ends. There are always enough links to
    /// connect all nodes, and at most one per pair.
    pub degree: f64,
    /// Reach of links: the likelihood of a link falls by a factor of e over this share of the
    /// square's diagonal.
    pub reach: f64,
    /// One-way delay between opposite corners of the square.
    pub across: Duration,
    /// Delay of the shortest link, such as a millisecond for the local networks at its two ends.
    pub least: Duration,
}

impl Waxman {
    /// `nodes` on a continent: six links per node, and longest links about as long as 4,000 km of
    /// fibre with detours.
    pub fn continent(nodes: u32) -> Waxman {
        let (across, least) = (Duration::from_millis(40), Duration::from_millis(1));
        Waxman { nodes, degree: 6.0, reach: 0.2, across, least }
    }

    /// Draws an overlay; the same seed gives the same one.
    ///
    /// # Panics
    ///
    /// With fewer than two nodes.
    pub fn draw(&self, seed: u64) -> Graph {
        assert!(self.nodes >= 2, "an overlay has at least two nodes");
        let mut rng = rng(seed, STREAM);
        let mut uniform = move || ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let places: Vec<(f64, f64)> = (0..self.nodes).map(|_| (uniform(), uniform())).collect();
        // Waxman draws each link independently, which leaves the degree to chance and the overlay
        // in pieces. Here each pair gets the first event of a Poisson process with Waxman's
        // probability as its rate. Taking pairs in the order of these events draws them one after
        // the other by that weight.
        let mut pairs = Vec::new();
        for a in 0..self.nodes {
            for b in a + 1..self.nodes {
                let far = distance(places[a as usize], places[b as usize]);
                let rate = libm::exp(-far / self.reach);
                pairs.push((-libm::log(uniform()) / rate, far, a, b));
            }
        }
        pairs.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then((x.2, x.3).cmp(&(y.2, y.3))));
        // First the links that connect the pieces (Kruskal), then the others.
        let mut pieces = Pieces::new(self.nodes);
        let (mut links, rest): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|&(_, _, a, b)| pieces.join(a, b));
        let wanted = (f64::from(self.nodes) * self.degree / 2.0) as usize;
        links.extend(rest.into_iter().take(wanted.saturating_sub(links.len())));
        let delay = |far: f64| self.least + self.across.mul_f64(far);
        let link = |(_, far, a, b)| (HostId(a), HostId(b), delay(far));
        Graph { places, links: links.into_iter().map(link).collect() }
    }
}

/// Separates this generator's randomness from that of others with the same seed.
const STREAM: u64 = 0x7761_786d_616e;

/// Distance between two points, as a share of the square's diagonal.
pub(crate) fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (x, y) = (a.0 - b.0, a.1 - b.1);
    libm::sqrt((x * x + y * y) / 2.0)
}

/// Nodes and links of an overlay, without settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// Position of each node, from (0, 0) to (1, 1).
    pub places: Vec<(f64, f64)>,
    /// The two hosts and the one-way delay of each link, in the order of the wires in a world built
    /// from [`Graph::topology`].
    pub links: Vec<(HostId, HostId, Duration)>,
}

impl Graph {
    /// A topology in which host `h` has node `h + 1`, with default settings and no routes.
    pub fn topology(&self) -> Topology {
        let mut topology = Topology::new();
        for id in 1..=self.places.len() as u32 {
            topology.host(NodeId(id));
        }
        for &(a, b, delay) in &self.links {
            let model = LinkModel { delay, ..LinkModel::default() };
            topology.link(a, b, model.clone(), model);
        }
        topology
    }

    /// Whether the links that `keep` selects by index connect all nodes.
    pub fn is_connected(&self, keep: impl Fn(usize) -> bool) -> bool {
        let mut pieces = Pieces::new(self.places.len() as u32);
        let there = self.links.iter().enumerate().filter(|&(n, _)| keep(n));
        let joined = there.filter(|(_, (a, b, _))| pieces.join(a.0, b.0)).count();
        joined + 1 == self.places.len()
    }
}

/// Disjoint sets of connected nodes.
pub(crate) struct Pieces(Vec<u32>);

impl Pieces {
    pub fn new(nodes: u32) -> Pieces {
        Pieces((0..nodes).collect())
    }

    pub fn root(&mut self, mut node: u32) -> u32 {
        while self.0[node as usize] != node {
            let above = self.0[self.0[node as usize] as usize];
            self.0[node as usize] = above;
            node = above;
        }
        node
    }

    /// Joins the pieces of `a` and `b`, and returns whether they were separate.
    pub fn join(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a as usize] = b;
        a != b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_asked_and_connected() {
        for seed in 0..20 {
            let graph = Waxman::continent(100).draw(seed);
            assert_eq!((graph.places.len(), graph.links.len()), (100, 300));
            assert!(graph.is_connected(|_| true));
            let (least, most) = (Duration::from_millis(1), Duration::from_millis(41));
            assert!(graph.links.iter().all(|l| (least..most).contains(&l.2) && l.0 < l.1));
            let mut pairs: Vec<_> = graph.links.iter().map(|l| (l.0, l.1)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), 300, "one link for each pair");
            assert_eq!(graph, Waxman::continent(100).draw(seed));
            assert_ne!(graph, Waxman::continent(100).draw(seed + 1));
        }
    }

    #[test]
    fn near_nodes_are_linked_more_often() {
        // Two random points are 0.37 diagonals apart on average: 16 ms.
        let mean = |reach| {
            let graph = Waxman { reach, ..Waxman::continent(100) }.draw(1);
            graph.links.iter().map(|l| l.2.as_secs_f64()).sum::<f64>() / 300.0
        };
        assert!(mean(0.1) < 0.008 && mean(100.0) > 0.014, "{} {}", mean(0.1), mean(100.0));
    }

    #[test]
    fn few_links_are_a_tree_and_many_are_all_pairs() {
        let links = |degree| Waxman { degree, ..Waxman::continent(10) }.draw(3).links.len();
        assert_eq!((links(0.0), links(100.0)), (9, 45));
        assert_eq!(Waxman::continent(2).draw(0).links.len(), 1);
    }

    #[test]
    fn a_piece_without_links_is_noticed() {
        let graph = Waxman { degree: 0.0, ..Waxman::continent(10) }.draw(3);
        assert!(!graph.is_connected(|n| n != 4));
    }
}
