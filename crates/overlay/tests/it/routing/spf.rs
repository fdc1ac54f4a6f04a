//! Shortest paths compared with another implementation.

use petgraph::algo::dijkstra;
use petgraph::graph::{DiGraph, NodeIndex};
use proptest::prelude::*;
use std::collections::BTreeMap;
use trunkline_overlay::link::LinkCost;
use trunkline_overlay::route::spf::{Graph, Tree};
use trunkline_overlay::route::{Advert, CostModel};
use trunkline_overlay::wire::{Metric, NodeId};

fn cost() -> impl Strategy<Value = LinkCost> {
    // Few different values, so that many paths are equal.
    (0u16..5, 0u16..4, 0u16..3, 0u16..2).prop_map(|(latency, loss, residual, penalty)| LinkCost {
        latency: latency * 100,
        loss: loss * 2_000,
        residual: residual * 500,
        penalty: penalty * 100,
    })
}

type Ends = (u32, u32, u8);

fn links() -> impl Strategy<Value = BTreeMap<Ends, LinkCost>> {
    let ends = (0u32..20, 0u32..20, 0u8..2).prop_filter("no loops", |(a, b, _)| a != b);
    let pairs = prop::collection::vec((ends, cost(), cost(), 0u8..8), 1..80);
    pairs.prop_map(|pairs| {
        let mut all = BTreeMap::new();
        for ((a, b, path), there, back, denied) in pairs {
            all.insert((a, b, path), there);
            if denied > 0 {
                all.insert((b, a, path), back);
            }
        }
        all
    })
}

proptest! {
    #[test]
    fn distances_are_those_of_petgraph(links in links()) {
        let model = CostModel::default();
        let adverts: Vec<_> = links
            .iter()
            .map(|(&(a, b, path), &cost)| (NodeId(a), Advert { neighbour: NodeId(b), path, cost }))
            .collect();
        let graph = Graph::of(&adverts, &model);
        for metric in Metric::ALL {
            let mut theirs = DiGraph::<u32, u64>::new();
            let at: Vec<NodeIndex> = (0..20).map(|n| theirs.add_node(n)).collect();
            for (&(a, b, path), c) in &links {
                if links.contains_key(&(b, a, path)) {
                    theirs.add_edge(at[a as usize], at[b as usize], model.cost(metric, c).into());
                }
            }
            let source = adverts[0].0;
            let want = dijkstra(&theirs, at[source.0 as usize], None, |e| *e.weight());
            let mut tree = Tree::default();
            tree.run(&graph, source, metric);
            for &node in graph.nodes() {
                prop_assert_eq!(tree.distance(&graph, node), want.get(&at[node.0 as usize]).copied());
                check_path(&links, &graph, &tree, &model, metric, (source, node))?;
            }
        }
    }
}

/// Every node makes the same choice, every time: by the lower node.
#[test]
fn of_equal_paths_that_by_the_lower_node_counts() {
    let cost = LinkCost { latency: 100, ..LinkCost::default() };
    let ends = [(9, 3), (9, 2), (2, 5), (3, 5), (5, 7)];
    let both = ends.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
    let adverts: Vec<_> =
        both.map(|(a, b)| (NodeId(a), Advert { neighbour: NodeId(b), path: 0, cost })).collect();
    let graph = Graph::of(&adverts, &CostModel::default());
    for (metric, source) in Metric::ALL.into_iter().flat_map(|m| [(m, 9), (m, 7)]) {
        let mut tree = Tree::default();
        tree.run(&graph, NodeId(source), metric);
        let mut path =
            tree.path(&graph, NodeId(16 - source)).iter().map(|n| n.0).collect::<Vec<_>>();
        path.sort_unstable();
        assert_eq!(path, [2, 5, 7, 9], "{metric} from {source}");
    }
}

/// Checks that the path exists, has the stated cost, and begins at the right node.
fn check_path(
    links: &BTreeMap<Ends, LinkCost>,
    graph: &Graph,
    tree: &Tree,
    model: &CostModel,
    metric: Metric,
    (source, node): (NodeId, NodeId),
) -> Result<(), TestCaseError> {
    let path = tree.path(graph, node);
    let Some(distance) = tree.distance(graph, node) else {
        prop_assert!(path.is_empty() && tree.way(graph, node).is_none());
        return Ok(());
    };
    prop_assert_eq!((path.first(), path.last()), (Some(&source), Some(&node)));
    let cheapest = |pair: &[NodeId]| {
        let of = |path| {
            links.get(&(pair[1].0, pair[0].0, path))?;
            Some(u64::from(model.cost(metric, links.get(&(pair[0].0, pair[1].0, path))?)))
        };
        (0..2).filter_map(of).min().unwrap()
    };
    prop_assert_eq!(path.windows(2).map(cheapest).sum::<u64>(), distance);
    prop_assert_eq!(tree.way(graph, node).map(|w| w.neighbour), path.get(1).copied());
    Ok(())
}
