//! Overlays as drawn by the topology generator BRITE.

use crate::endpoints::HostId;
use crate::random::{Graph, distance};
use core::time::Duration;
use trunkline_base::rng;

/// Parameters of an overlay that grows node by node: BRITE 2.1's router-level Waxman model with
/// incremental growth (Medina, Lakhina, Matta, Byers, *BRITE: an approach to universal topology
/// generation*, 2001), on which VoIP overlays were evaluated (Amir et al. 2005, IV-B). Half of the
/// nodes have two links, and the oldest about ten; all nodes are connected.
#[derive(Clone, Copy, Debug)]
pub struct Brite {
    /// Number of nodes; more than `links`.
    pub nodes: u32,
    /// m: number of links that a new node makes to existing ones; at least 1.
    pub links: u32,
    /// β: the likelihood of a link falls by a factor of e over this share of the square's diagonal.
    pub beta: f64,
    /// One-way delay between opposite corners of the square.
    pub across: Duration,
}

/// Separates this generator's randomness from that of others with the same seed.
const STREAM: u64 = 0x0062_7269_7465;

impl Brite {
    /// BRITE's defaults, m = 2 and β = 0.2. Its α, 0.15, scales all likelihoods alike. A node tries
    /// until it has all its links, so α only affects how long that takes.
    pub fn new(nodes: u32) -> Brite {
        Brite { nodes, links: 2, beta: 0.2, across: Duration::from_millis(100) }
    }

    /// Draws an overlay; the same seed gives the same one. It has m · `nodes` links, or fewer if
    /// one of the first m nodes is already linked to all others when its turn comes.
    ///
    /// # Panics
    ///
    /// If there are no links, or fewer than m + 1 nodes.
    pub fn draw(&self, seed: u64) -> Graph {
        assert!(0 < self.links && self.links < self.nodes, "too few nodes for so many links");
        let mut rng = rng(seed, STREAM);
        let mut uniform = move || {
            use rand::Rng as _;
            ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let places: Vec<(f64, f64)> = (0..self.nodes).map(|_| (uniform(), uniform())).collect();
        let mut graph = Graph { places, links: Vec::new() };
        // The first m nodes exist from the beginning, without links. Each other node links to m of
        // those before it; then each of the first m links to m of the others.
        for node in self.links..self.nodes {
            self.join(&mut graph, node, 0..node, &mut uniform);
        }
        for node in 0..self.links {
            self.join(&mut graph, node, self.links..self.nodes, &mut uniform);
        }
        graph
    }

    /// Links `node` to m different nodes of the range. BRITE tries nodes at random and keeps each
    /// with Waxman's likelihood until it has m, so each is chosen in proportion to that likelihood.
    fn join(
        &self,
        graph: &mut Graph,
        node: u32,
        to: core::ops::Range<u32>,
        uniform: &mut impl FnMut() -> f64,
    ) {
        let places = &graph.places;
        let far = |other: u32| distance(places[node as usize], places[other as usize]);
        let linked = |other: u32| {
            let ends = (HostId(node.min(other)), HostId(node.max(other)));
            graph.links.iter().any(|l| (l.0, l.1) == ends)
        };
        let mut there: Vec<(u32, f64)> = to
            .filter(|&other| !linked(other))
            .map(|other| (other, libm::exp(-far(other) / self.beta)))
            .collect();
        let mut new = Vec::new();
        for _ in 0..self.links.min(there.len() as u32) {
            let mut left = uniform() * there.iter().map(|t| t.1).sum::<f64>();
            let reached = |&(_, weight): &(u32, f64)| {
                left -= weight;
                left < 0.0
            };
            // Rounding may leave a small remainder.
            let at = there.iter().position(reached).unwrap_or(there.len() - 1);
            let other = there.remove(at).0;
            let delay = self.across.mul_f64(far(other));
            new.push((HostId(node.min(other)), HostId(node.max(other)), delay));
        }
        graph.links.extend(new);
    }
}

impl Graph {
    /// The two hosts that are farthest apart along the shortest path, and their distance; `None` if
    /// some host can't be reached.
    pub fn diameter(&self) -> Option<(HostId, HostId, Duration)> {
        let hosts = self.places.len();
        let mut next = vec![Vec::new(); hosts];
        for &(a, b, delay) in &self.links {
            next[a.0 as usize].push((b.0 as usize, delay));
            next[b.0 as usize].push((a.0 as usize, delay));
        }
        let mut widest = None;
        for from in 0..hosts {
            for (to, far) in distances(&next, from).into_iter().enumerate().skip(from + 1) {
                let far = far?;
                if widest.is_none_or(|(_, _, most)| far > most) {
                    widest = Some((HostId(from as u32), HostId(to as u32), far));
                }
            }
        }
        widest
    }

    /// Scales all links so that the two hosts farthest apart are `diameter` apart along the
    /// shortest path, and returns them. Link delays are rounded down to a nanosecond, so the path
    /// is never longer. `None`, without any change, if some host can't be reached.
    pub fn stretch(&mut self, diameter: Duration) -> Option<(HostId, HostId)> {
        let (from, to, now) = self.diameter().filter(|d| !d.2.is_zero())?;
        for (_, _, delay) in &mut self.links {
            let nanos = delay.as_nanos() * diameter.as_nanos() / now.as_nanos();
            *delay = Duration::from_nanos(nanos as u64);
        }
        Some((from, to))
    }
}

/// Distance of each host from `from` (Dijkstra's algorithm).
fn distances(next: &[Vec<(usize, Duration)>], from: usize) -> Vec<Option<Duration>> {
    let mut far = vec![None; next.len()];
    let mut done = vec![false; next.len()];
    far[from] = Some(Duration::ZERO);
    let nearest = |far: &[Option<Duration>], done: &[bool]| {
        let open = far.iter().enumerate().filter(|&(n, _)| !done[n]);
        open.filter_map(|(n, far)| far.map(|far| (far, n))).min()
    };
    while let Some((at, node)) = nearest(&far, &done) {
        done[node] = true;
        for &(other, delay) in &next[node] {
            let new = at + delay;
            if far[other].is_none_or(|old| new < old) {
                far[other] = Some(new);
            }
        }
    }
    far
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Statistics to compare: links per node, and link lengths as shares of the square's diagonal.
    #[derive(Default)]
    struct Shape {
        degrees: Vec<f64>,
        lengths: Vec<f64>,
    }

    impl Shape {
        fn add(&mut self, nodes: usize, links: impl Iterator<Item = (usize, usize, f64)>) {
            let mut degrees = vec![0.0; nodes];
            for (a, b, length) in links {
                degrees[a] += 1.0;
                degrees[b] += 1.0;
                self.lengths.push(length);
            }
            self.degrees.extend(degrees);
        }

        fn of(model: &Brite, seeds: core::ops::Range<u64>) -> Shape {
            let mut shape = Shape::default();
            for graph in seeds.map(|seed| model.draw(seed)) {
                let across = model.across.as_secs_f64();
                let link = |&(a, b, delay): &(HostId, HostId, Duration)| {
                    (a.0 as usize, b.0 as usize, delay.as_secs_f64() / across)
                };
                shape.add(graph.places.len(), graph.links.iter().map(link));
            }
            shape
        }
    }

    /// Largest difference between two distributions (Kolmogorov, Smirnov).
    fn apart(a: &[f64], b: &[f64]) -> f64 {
        let below =
            |all: &[f64], x: f64| all.iter().filter(|v| **v <= x).count() as f64 / all.len() as f64;
        a.iter().map(|&x| (below(a, x) - below(b, x)).abs()).fold(0.0, f64::max)
    }

    /// Whether the degrees and lengths of three graphs differ from those of many graphs of `model`
    /// by no more than three graphs of the model may.
    fn fits(three: &Shape, model: &Brite) -> [bool; 2] {
        let many = Shape::of(model, 1_000..1_060);
        let own: Vec<Shape> = (0..40).map(|k| Shape::of(model, 3 * k..3 * k + 3)).collect();
        let within = |get: fn(&Shape) -> &[f64]| {
            let most = own.iter().map(|s| apart(get(s), get(&many))).fold(0.0, f64::max);
            apart(get(three), get(&many)) <= most
        };
        [within(|s| &s.degrees), within(|s| &s.lengths)]
    }

    /// Parses a BRITE file: a section of nodes (number, x, y, …) and one of links (number, from,
    /// to, length, …).
    fn read(text: &str, shape: &mut Shape) -> (usize, usize) {
        let (nodes, edges) = text.split_once("Edges:").expect("two sections");
        let rows = |section: &str| {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            let rows: Vec<Vec<String>> = section.lines().skip(1).map(words).collect();
            rows.into_iter().filter(|r| r.len() > 5).collect::<Vec<_>>()
        };
        let nodes = rows(nodes.split_once("Nodes:").expect("two sections").1).len();
        let edges = rows(edges);
        let diagonal = 1_000.0 * libm::sqrt(2.0);
        shape.add(
            nodes,
            edges.iter().map(|e| {
                let number = |n: usize| e[n].parse::<f64>().expect("a number");
                (number(1) as usize, number(2) as usize, number(3) / diagonal)
            }),
        );
        (nodes, edges.len())
    }

    /// Three graphs drawn by BRITE 2.1 with m = 2, α = 0.15, β = 0.2 and growth 1 (incremental) or
    /// 2 (all nodes at once), read from `topology/brite` in `$TRUNKLINE_DATA`, or else in
    /// `shared/data` next to the workspace.
    #[expect(clippy::disallowed_methods, reason = "a test has to find its data")]
    fn reference(growth: u32) -> Option<Shape> {
        let root = std::env::var("TRUNKLINE_DATA").map_or_else(
            |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
            Into::into,
        );
        let mut shape = Shape::default();
        for n in 1..=3 {
            let name = format!("topology/brite/rtwaxman_n100_np1_g{growth}_s{n}.brite");
            let Ok(text) = std::fs::read_to_string(root.join(name)) else {
                eprintln!("skipped: no reference data");
                return None;
            };
            let (nodes, links) = read(&text, &mut shape);
            assert_eq!((nodes, links == 200), (100, growth == 1));
        }
        Some(shape)
    }

    #[test]
    fn degrees_and_lengths_are_those_of_brite() {
        let (Some(theirs), Some(at_once)) = (reference(1), reference(2)) else { return };
        let model = Brite::new(100);
        assert_eq!(fits(&theirs, &model), [true, true]);
        // The comparison rejects other models: all nodes at once, links half or twice as long, and
        // one or three links per node.
        assert!(!fits(&at_once, &model)[0]);
        let beta = |beta| fits(&theirs, &Brite { beta, ..model })[1];
        assert_eq!([0.1, 0.4].map(beta), [false, false]);
        let links = |links| fits(&theirs, &Brite { links, ..model })[0];
        assert_eq!([1, 3].map(links), [false, false]);
    }

    #[test]
    fn each_node_brings_its_links_and_reaches_all() {
        for (nodes, links) in [(15, 30), (100, 200)] {
            for seed in 0..20 {
                let graph = Brite::new(nodes).draw(seed);
                let mut pairs: Vec<_> = graph.links.iter().map(|l| (l.0, l.1)).collect();
                pairs.sort_unstable();
                pairs.dedup();
                assert_eq!((pairs.len(), graph.links.len()), (links, links));
                assert!(pairs.iter().all(|(a, b)| a < b));
                assert!(graph.is_connected(|_| true));
                assert_eq!(graph, Brite::new(nodes).draw(seed));
                assert_ne!(graph, Brite::new(nodes).draw(seed + 1));
            }
        }
        // A first node that is already linked to all others gets no more links.
        assert_eq!(Brite::new(3).draw(0).links.len(), 2);
        assert_eq!(Brite { links: 1, ..Brite::new(2) }.draw(0).links.len(), 1);
    }

    #[test]
    fn a_stretched_graph_has_the_diameter_asked_for() {
        for seed in 0..20 {
            let mut graph = Brite::new(15).draw(seed);
            let before = graph.diameter().unwrap();
            let wanted = Duration::from_millis(80);
            assert_eq!(graph.stretch(wanted), Some((before.0, before.1)));
            let short = wanted.checked_sub(graph.diameter().unwrap().2).expect("never longer");
            assert!(short < Duration::from_nanos(15), "{short:?}");
        }
        let alone = Graph { places: vec![(0.0, 0.0); 2], links: Vec::new() };
        assert_eq!((alone.diameter(), alone.clone().stretch(Duration::from_secs(1))), (None, None));
    }
}
