//! Paths that are searched by the share of packets in time itself, which no single link cost
//! expresses (§IV-B): the greedy optimiser and the best path.

use super::delivery::{Arrivals, Law};
use super::network::{Network, Way};
use core::cmp::Ordering;

/// Dijkstra's algorithm with the share in time as the distance: each partial path has its arrivals,
/// and the one with the largest share is extended next. Without losses all shares are equal; among
/// equal shares the earlier arrival is preferred, as it leaves the most time.
pub fn greedy(network: &Network, law: &Law) -> Way {
    let (from, to) = network.ends;
    let nodes = network.next.len();
    let mut best: Vec<Option<Arrivals>> = vec![None; nodes];
    let mut last: Vec<Option<(usize, usize)>> = vec![None; nodes];
    let mut open = vec![true; nodes];
    best[from] = Some(Arrivals::at_source());
    loop {
        let there = (0..nodes).filter(|&n| open[n]);
        let there = there.filter_map(|n| best[n].as_ref().map(|arrivals| (n, arrivals)));
        let next = there.max_by(|(_, a), (_, b)| in_time(a, b));
        let (node, here) = next.map(|(n, a)| (n, a.clone())).expect("every node can be reached");
        if node == to {
            break;
        }
        open[node] = false;
        for &(other, link) in network.next[node].iter().filter(|n| open[n.0]) {
            let there = here.over(&network.links[link], law);
            if best[other].as_ref().is_none_or(|b| in_time(&there, b).is_gt()) {
                best[other] = Some(there);
                last[other] = Some((node, link));
            }
        }
    }
    let mut way: Way =
        core::iter::successors(last[to], |&(node, _)| last[node]).map(|l| l.1).collect();
    way.reverse();
    way
}

/// Compares by the share in time; of equal shares the earlier is the greater.
fn in_time(a: &Arrivals, b: &Arrivals) -> Ordering {
    a.delivered().total_cmp(&b.delivered()).then_with(|| b.first().cmp(&a.first()))
}

/// The path with the largest share in time among all: better than `known`, or `known` itself.
/// Partial paths are abandoned if neither the rest without loss in time, nor the rest with the
/// least loss in any time, would be better.
pub fn best(network: &Network, law: &Law, known: Way) -> Way {
    let to = network.ends.1;
    let survives = |l: &super::delivery::Link| -libm::log(1.0 - (law.residual)(l.loss));
    let search = Search {
        network,
        law,
        latency: network.distances(to, |l| l.delay as f64).iter().map(|d| *d as u64).collect(),
        survival: network.distances(to, survives).iter().map(|d| libm::exp(-d)).collect(),
        share: network.delivered(&known, law),
        best: known,
        way: Vec::new(),
        on_way: vec![false; network.next.len()],
    };
    search.run()
}

struct Search<'a> {
    network: &'a Network,
    law: &'a Law,
    /// Smallest latency from each node to the end, in nanoseconds.
    latency: Vec<u64>,
    /// Upper bound of the share of packets at each node that reaches the end.
    survival: Vec<f64>,
    share: f64,
    best: Way,
    way: Way,
    on_way: Vec<bool>,
}

impl Search<'_> {
    fn run(mut self) -> Way {
        self.descend(self.network.ends.0, &Arrivals::at_source());
        self.best
    }

    fn descend(&mut self, node: usize, here: &Arrivals) {
        if node == self.network.ends.1 {
            let share = here.delivered();
            if share > self.share {
                (self.share, self.best) = (share, self.way.clone());
            }
            return;
        }
        let Some(left) = self.law.deadline.checked_sub(self.latency[node]) else { return };
        if here.within(left) * self.survival[node] <= self.share {
            return;
        }
        self.on_way[node] = true;
        for &(other, link) in &self.network.next[node] {
            if !self.on_way[other] {
                self.way.push(link);
                self.descend(other, &here.over(&self.network.links[link], self.law));
                self.way.pop();
            }
        }
        self.on_way[node] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voip_overlay::fig12_13::delivery::Link;
    use std::time::Duration;

    /// Every simple path, by exhaustive search.
    fn every(
        network: &Network,
        node: usize,
        way: &mut Way,
        seen: &mut Vec<usize>,
        all: &mut Vec<Way>,
    ) {
        if node == network.ends.1 {
            all.push(way.clone());
            return;
        }
        for &(other, link) in &network.next[node] {
            if !seen.contains(&other) {
                way.push(link);
                seen.push(other);
                every(network, other, way, seen, all);
                seen.pop();
                way.pop();
            }
        }
    }

    #[test]
    fn the_best_of_all_is_found() {
        let law = Law::PAPER;
        for seed in 0..30 {
            let diameter = Duration::from_millis([10, 50, 80, 95, 100][seed as usize % 5]);
            let network = Network::draw(9, diameter, (seed, 0));
            let mut all = Vec::new();
            let from = network.ends.0;
            every(&network, from, &mut Vec::new(), &mut vec![from], &mut all);
            let most = all.iter().map(|way| network.delivered(way, &law)).fold(0.0, f64::max);
            let found = best(&network, &law, all[0].clone());
            assert!((network.delivered(&found, &law) - most).abs() < 1e-12, "seed {seed}");
            let greedy = greedy(&network, &law);
            assert!(all.contains(&greedy) && network.delivered(&greedy, &law) <= most);
        }
    }

    /// Of two paths without loss, the one with the lower indices.
    #[test]
    fn greedy_takes_the_earlier_of_equals() {
        for (first, second, way) in [(20, 30, vec![0, 1]), (30, 20, vec![2, 3])] {
            let link = |a, b, ms: u64| Link { ends: (a, b), delay: ms * 1_000_000, loss: 0.0 };
            let links =
                vec![link(0, 1, first), link(1, 3, first), link(0, 2, second), link(2, 3, second)];
            assert_eq!(greedy(&of(links, 3), &Law::PAPER), way);
        }
    }

    fn of(links: Vec<Link>, to: usize) -> Network {
        let mut next = vec![Vec::new(); to + 1];
        for (number, link) in links.iter().enumerate() {
            next[link.ends.0].push((link.ends.1, number));
            next[link.ends.1].push((link.ends.0, number));
        }
        Network { links, next, ends: (0, to) }
    }

    /// The paper's Figure 11: which path to D is better depends on the link after it, which the
    /// greedy optimiser doesn't consider.
    #[test]
    fn greedy_decides_too_early() {
        let link = |a, b, ms: u64, loss| Link { ends: (a, b), delay: ms * 1_000_000, loss };
        // A–B–D is slow and lossless, A–C–D fast and lossy; then D–E.
        let network = |last_ms| {
            let links = vec![
                link(0, 1, 30, 0.0),
                link(1, 3, 30, 0.0),
                link(0, 2, 10, 0.02),
                link(2, 3, 10, 0.02),
                link(3, 4, last_ms, 0.0),
            ];
            of(links, 4)
        };
        let law = Law::PAPER;
        let (slow, fast) = (vec![0, 1, 4], vec![2, 3, 4]);
        assert_eq!(
            (greedy(&network(30), &law), greedy(&network(60), &law)),
            (slow.clone(), slow.clone())
        );
        assert_eq!(best(&network(30), &law, fast.clone()), slow);
        assert_eq!(best(&network(60), &law, slow), fast);
    }
}
