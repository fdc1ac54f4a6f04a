//! Nodes whose settings of routing differ, and nodes that share other settings than the
//! defaults.

use crate::common::*;
use trunkline_overlay::node::Routing;
use trunkline_overlay::route::{CostModel, Router};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::{HostId, Topology, World};

/// 1 – 2 – 3 – 4 with 10 ms and a loss of 2 % each, by link state.
fn chain() -> Topology {
    let mut t = Topology::chain(vec![link(ms(10), uniform(0.02)); 3]);
    t.link_state(&Routing::default());
    t
}

fn router(world: &World, host: u32) -> &Router {
    world.node(HostId(host)).router().unwrap()
}

/// Node 4 alone has a deadline of 120 ms. Every other node names it, it names all others,
/// and calls go both ways nevertheless.
#[test]
fn nodes_that_differ_are_named_and_served() {
    for sealed in [false, true] {
        let mut t = chain();
        if sealed {
            t.seal();
        }
        let odd = t.config_mut(HostId(3)).routing.as_mut().unwrap();
        odd.cost.deadline = ms(120);
        let mut world = t.build(1).unwrap();
        world.run_until(at(5_000));
        for host in 0..3 {
            assert!(router(&world, host).differing().eq([NodeId(4)]));
            assert_eq!(router(&world, host).differing_changes(), 1);
        }
        assert!(router(&world, 3).differing().eq([1, 2, 3].map(NodeId)));
        let both: Vec<_> = [(0, 3), (3, 0)]
            .into_iter()
            .flat_map(|ends| calls(&mut world, ends, RT, 7_000, 1, (at(5_000), 500)))
            .collect();
        world.run_until(at(20_000));
        let outcome = outcome(&world, &both);
        assert_eq!(outcome.sent, 1_000);
        assert!(outcome.lost + outcome.late < 10, "{outcome:?}");
    }
}

/// Costs of the route to `to`: as `router` computes it, and as `model` computes it from the
/// records along the same path.
fn costs(router: &Router, to: NodeId, model: &CostModel) -> (u64, u64) {
    let route = router.route(to, Metric::ExpectedLatency).unwrap();
    let hop = |ends: &[NodeId]| {
        let records = router.records().filter(|(key, ..)| key.origin == ends[0]);
        let link = records.flat_map(|(_, _, links)| links).find(|link| link.neighbour == ends[1]);
        u64::from(model.cost(Metric::ExpectedLatency, &link.unwrap().cost))
    };
    (route.cost, route.path.windows(2).map(hop).sum())
}

/// The deadline of the paper's first measurements. All nodes agree, and compute by it.
#[test]
fn nodes_with_one_deadline_of_120_ms_agree() {
    let mut t = chain();
    let model = CostModel { deadline: ms(120), ..CostModel::default() };
    t.link_state(&Routing { cost: model, ..Routing::default() });
    let mut world = t.build(1).unwrap();
    let call = calls(&mut world, (0, 3), RT, 7_000, 1, (at(5_000), 500));
    world.run_until(at(30_000));
    for host in 0..4 {
        let router = router(&world, host);
        assert_eq!((router.differing().len(), router.differing_changes()), (0, 0));
        for to in (0..4).filter(|to| *to != host) {
            let (computed, expected) = costs(router, NodeId(to + 1), &model);
            assert_eq!(computed, expected, "from host {host} to {to}");
        }
    }
    let (computed, by_default) = costs(router(&world, 0), NodeId(4), &CostModel::default());
    assert!(computed > by_default, "a missed packet counts as 120 ms: {computed} {by_default}");
    let outcome = outcome(&world, &call);
    assert_eq!(outcome.sent, 500);
    assert!(outcome.lost + outcome.late < 5, "{outcome:?}");
}
