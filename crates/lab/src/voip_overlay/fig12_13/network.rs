//! Random overlays like the paper's (§IV-B), and paths through them by the overlay's metrics.

use super::delivery::{Law, Link, delivered};
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::rng;
use trunkline_overlay::link::LinkCost;
use trunkline_overlay::route::spf::{Graph, Tree};
use trunkline_overlay::route::{Advert, CostModel};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::random::Brite;

/// The largest loss of a link.
pub const MAX_LOSS: f64 = 0.05;
/// Separates the randomness of losses from that of the graph with the same seed.
const STREAM: u64 = 0x6c6f_7373_6573;

/// A path: the indices of its links, in order.
pub type Way = Vec<usize>;

/// An overlay and its two most distant nodes.
#[derive(Clone, Debug)]
pub struct Network {
    /// Every link of the network, in the order of the graph's.
    pub links: Vec<Link>,
    /// For each node, its neighbours and the links to them.
    pub next: Vec<Vec<(usize, usize)>>,
    /// The two most distant nodes, between which paths are searched.
    pub ends: (usize, usize),
}

impl Network {
    /// Draws a graph by BRITE's rule, with 2 links for each node and the square scaled so that its
    /// two most distant nodes are `diameter` apart; half of the links, selected at random, lose up
    /// to 5 %. The same seed and number give the same graph; neighbouring seeds share none.
    pub fn draw(nodes: u32, diameter: Duration, (seed, number): (u64, u64)) -> Network {
        let seed = rng(seed, number).next_u64();
        let mut graph = Brite::new(nodes).draw(seed);
        let (from, to) = graph.stretch(diameter).expect("each new node is linked");
        let mut rng = rng(seed, STREAM);
        let mut uniform = move || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut order: Vec<usize> = (0..graph.links.len()).collect();
        let mut losses = vec![0.0; order.len()];
        for k in 0..order.len() / 2 {
            let other = k + (uniform() * (order.len() - k) as f64) as usize;
            order.swap(k, other);
            losses[order[k]] = MAX_LOSS * uniform();
        }
        let links = graph.links.iter().zip(losses).map(|(&(a, b, delay), loss)| {
            let ends = (a.0 as usize, b.0 as usize);
            Link { ends, delay: delay.as_nanos() as u64, loss }
        });
        let links: Vec<Link> = links.collect();
        let mut next = vec![Vec::new(); nodes as usize];
        for (number, link) in links.iter().enumerate() {
            next[link.ends.0].push((link.ends.1, number));
            next[link.ends.1].push((link.ends.0, number));
        }
        Network { links, next, ends: (from.0 as usize, to.0 as usize) }
    }

    /// The same network with other losses, as a function of the present ones.
    pub fn with_loss(&self, other: impl Fn(f64) -> f64) -> Network {
        let links = self.links.iter().map(|l| Link { loss: other(l.loss), ..*l }).collect();
        Network { links, ..self.clone() }
    }

    /// The path that overlay nodes would take: their costs, in the units of their updates (0.1 ms),
    /// and their shortest paths.
    pub fn by_metric(&self, metric: Metric, model: &CostModel) -> Way {
        let id = |node: usize| NodeId(node as u32 + 1);
        let adverts = self.links.iter().flat_map(|link| {
            let cost = LinkCost::measured(Duration::from_nanos(link.delay), link.loss, None);
            let advert = |to| Advert { neighbour: id(to), path: 0, cost };
            let (a, b) = link.ends;
            [(id(a), advert(b)), (id(b), advert(a))]
        });
        let graph = Graph::of(&adverts.collect::<Vec<_>>(), model);
        let mut tree = Tree::default();
        tree.run(&graph, id(self.ends.0), metric);
        let nodes = tree.path(&graph, id(self.ends.1));
        let step = |pair: &[NodeId]| {
            let [a, b] = [0, 1].map(|k: usize| pair[k].0 as usize - 1);
            let to = self.next[a].iter().find(|n| n.0 == b);
            to.expect("nodes in a row are linked").1
        };
        nodes.windows(2).map(step).collect()
    }

    /// Share of packets that arrive in time on this path.
    pub fn delivered(&self, way: &Way, law: &Law) -> f64 {
        delivered(way.iter().map(|&l| &self.links[l]), law)
    }

    /// Distance of each node from `from` by `cost` of the links (Dijkstra's algorithm).
    pub fn distances(&self, from: usize, cost: impl Fn(&Link) -> f64) -> Vec<f64> {
        let mut far = vec![f64::INFINITY; self.next.len()];
        let mut open: Vec<usize> = (0..far.len()).collect();
        far[from] = 0.0;
        while let Some(at) = (0..open.len()).min_by(|&a, &b| far[open[a]].total_cmp(&far[open[b]]))
        {
            let node = open.swap_remove(at);
            for &(other, link) in &self.next[node] {
                far[other] = far[other].min(far[node] + cost(&self.links[link]));
            }
        }
        far
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_overlay::route::Formula;

    #[test]
    fn half_of_the_links_lose_up_to_a_twentieth() {
        let mut all = Vec::new();
        for seed in 0..50 {
            let network = Network::draw(15, Duration::from_millis(50), (seed, 0));
            let lossy = network.links.iter().map(|l| l.loss).filter(|p| *p > 0.0);
            let lossy: Vec<f64> = lossy.collect();
            assert_eq!((network.links.len(), lossy.len()), (30, 15));
            all.extend(lossy);
        }
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 0.025).abs() < 0.002, "{mean}");
        assert!(all.iter().all(|p| (0.0..MAX_LOSS).contains(p)));
        let first = |seed: (u64, u64)| Network::draw(15, Duration::from_millis(50), seed).links;
        assert!(first((1, 2)) == first((1, 2)));
        assert!(first((1, 2)) != first((2, 1)) && first((1, 2)) != first((1, 1)));
    }

    /// The costs that nodes compute in their units equal the formulas, up to a tenth of a
    /// millisecond per link.
    #[test]
    fn ways_are_the_cheapest() {
        let model = CostModel { formula: Formula::Paper, ..CostModel::default() };
        for seed in 0..50 {
            let network = Network::draw(15, Duration::from_millis(80), (seed, 0));
            let expected = |l: &Link| {
                let (t, p) = (l.delay as f64 / 1e6, l.loss);
                let lost = 2.0 * p * p - 3.0 * p * p * p;
                (1.0 - p) * t + (p - lost) * (3.0 * t + 2.0) + lost * 100.0
            };
            let latency = |l: &Link| l.delay as f64 / 1e6;
            let loss = |l: &Link| -libm::log(1.0 - l.loss);
            type Cost<'a> = &'a dyn Fn(&Link) -> f64;
            let all: [(Metric, Cost<'_>, f64); 4] = [
                (Metric::ExpectedLatency, &expected, 0.06),
                (Metric::Latency, &latency, 0.05),
                (Metric::Loss, &loss, 1e-5),
                (Metric::Hops, &|_| 1.0, 0.0),
            ];
            for (metric, cost, each) in all {
                let way = network.by_metric(metric, &model);
                let taken: f64 = way.iter().map(|&l| cost(&network.links[l])).sum();
                let least = network.distances(network.ends.0, cost)[network.ends.1];
                let off = taken - least;
                assert!((-1e-9..=each * 15.0 + 1e-9).contains(&off), "{metric} {seed}: {off}");
            }
        }
    }

    #[test]
    fn nothing_is_faster_than_the_diameter() {
        for seed in 0..20 {
            let network = Network::draw(100, Duration::from_millis(95), (1, seed));
            let far = network.distances(network.ends.0, |l| l.delay as f64 / 1e6);
            assert!((far[network.ends.1] - 95.0).abs() < 1e-4);
            assert!(far.iter().all(|f| *f < 95.0 + 1e-4));
        }
    }
}
