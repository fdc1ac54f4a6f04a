//! Number of nodes that an overlay can have.

use super::row;
use crate::experiment::{Cells, Inputs, Point, PointError, Sabotage, Size};
use crate::voip_overlay::without_packets;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::link;
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::node::Routing;
use trunkline_overlay::route::Limits;
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::random::Waxman;
use trunkline_sim::{HostId, World};

/// Shortest interval between two computations of paths, of which hundreds of nodes make very many
/// while they start; five times the daemon's.
const SPF_INTERVAL: Duration = Duration::from_millis(100);
/// Mean number of links of a node, as in the paper's networks (IV-B).
const LINKS: f64 = 4.0;
const STEP: Duration = Duration::from_millis(100);
/// An overlay that does not agree by this time counts as not agreeing.
const PATIENCE: Time = Time::from_millis(10_000);

pub fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let sizes: &[u32] = size.pick(&[20], &[300], &[50, 100, 200, 300, 500]);
    let point = |&nodes: &u32| {
        let mut limits = Limits { spf_interval: SPF_INTERVAL, spf_burst: 1, ..Limits::default() };
        if sabotage.is("room-for-all-but-one") {
            limits.max_nodes = nodes as usize - 1;
        }
        let runs = size.pick(1, 2, 3);
        Point {
            key: format!("{nodes}-nodes"),
            x: nodes.into(),
            figures: vec!["control-nodes"],
            weight: 5e-5 * f64::from(nodes * nodes * runs),
            measure: Box::new(move |inputs| measure(inputs, nodes, limits, runs)),
        }
    };
    sizes.iter().map(point).collect()
}

fn measure(
    inputs: &Inputs<'_>,
    nodes: u32,
    limits: Limits,
    runs: u32,
) -> Result<Cells, PointError> {
    let (mut agreed, mut known, mut kilobytes) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..u64::from(runs) {
        let seed = inputs.seed.wrapping_add(run);
        let graph = Waxman { degree: LINKS, ..Waxman::continent(nodes) }.draw(seed);
        let mut topology = graph.topology();
        for host in (0..nodes).map(HostId) {
            let config = topology.config_mut(host);
            config.links.iter_mut().for_each(quiet);
            config.routing = Some(Routing { limits, ..Routing::default() });
        }
        let mut world = topology.build(seed)?;
        agreed.push(settle(&mut world));
        let routers = || (0..nodes).filter_map(|h| world.node(HostId(h)).router());
        let ways = |from: u32| {
            let router = world.node(HostId(from)).router();
            let others = (1..=nodes).map(NodeId);
            router.map_or(0, |r| {
                others.filter(|&to| r.route(to, Metric::default()).is_some()).count()
            })
        };
        // A node also has a path to itself.
        known.push((0..nodes).map(ways).min().unwrap_or(0) as f64);
        let sent: u64 = routers().map(|r| r.stats().sent_bytes).sum();
        kilobytes.push(sent as f64 / f64::from(nodes) / 1e3);
    }
    let x = nodes.into();
    Ok(vec![
        row("agreed after (s)", "paper", x, &agreed),
        row("nodes with a way from each", "paper", x, &known),
        row("flooded by a node (kB)", "paper", x, &kilobytes),
    ])
}

/// Sets the paper's hellos.
fn quiet(link: &mut link::Config) {
    link.liveness = Liveness::PAPER;
    without_packets(link);
}

/// Seconds until all nodes agree on the overlay's state; NaN if they never do.
fn settle(world: &mut World) -> f64 {
    loop {
        world.run_until(world.now() + STEP);
        if world.disagreement(Metric::default()).is_none() {
            return world.now().since(Time::ZERO).as_secs_f64();
        }
        if world.now() >= PATIENCE {
            return f64::NAN;
        }
    }
}
