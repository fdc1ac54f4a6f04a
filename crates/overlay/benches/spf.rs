//! Shortest paths from one node of a large overlay, with every metric.

use core::hint::black_box;
use core::time::Duration;
use criterion::{Criterion, criterion_group, criterion_main};
use rand::RngExt;
use trunkline_overlay::link::LinkCost;
use trunkline_overlay::route::spf::{Graph, Tree};
use trunkline_overlay::route::{Advert, CostModel};
use trunkline_overlay::wire::{Metric, NodeId};

/// A ring, so that all nodes are connected, plus random links across it. Both directions of each
/// link are present, each with its own cost.
fn overlay(nodes: u32, links: u32) -> Vec<(NodeId, Advert)> {
    let mut rng = trunkline_base::rng(1, 0);
    let mut out = Vec::new();
    for i in 0..links {
        let (a, b) = if i < nodes {
            (i, (i + 1) % nodes)
        } else {
            let a = rng.random_range(0..nodes);
            (a, (a + rng.random_range(2..nodes - 2)) % nodes)
        };
        for (from, to) in [(a, b), (b, a)] {
            let delay = Duration::from_micros(rng.random_range(1_000..50_000));
            let cost = LinkCost::measured(delay, f64::from(rng.random_range(0u8..50)) / 1e3, None);
            // Several links between one pair are separate paths.
            let path = (i / nodes) as u8;
            out.push((NodeId(1_000 + from), Advert { neighbour: NodeId(1_000 + to), path, cost }));
        }
    }
    out
}

fn spf(c: &mut Criterion) {
    let model = CostModel::default();
    let links = overlay(500, 2_000);
    let graph = Graph::of(&links, &model);
    println!("{} nodes, {} directed links", graph.nodes().len(), graph.links());
    let mut trees: [Tree; Metric::COUNT] = Default::default();
    let mut run = |graph: &Graph| {
        for (tree, metric) in trees.iter_mut().zip(Metric::ALL) {
            tree.run(graph, NodeId(1_000), metric);
        }
    };
    c.bench_function("spf, 500 nodes, 2,000 links, 4 metrics", |b| {
        b.iter(|| run(black_box(&graph)));
    });
    c.bench_function("the same with building the graph", |b| {
        b.iter(|| run(&Graph::of(black_box(&links), &model)));
    });
}

criterion_group!(benches, spf);
criterion_main!(benches);
