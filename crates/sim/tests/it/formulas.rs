//! Nodes of an overlay that compute routes by different formulas.

use crate::common::*;
use trunkline_overlay::node::Routing;
use trunkline_overlay::route::Formula::{Measured, Paper};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{HostId, Topology};

/// 1 – 2 – 3 – 4, sealed or not: 4 uses the paper's formula. All others report it as different, it
/// reports all others, and calls work in both directions as before.
#[test]
fn nodes_that_differ_are_named_and_served() {
    for sealed in [false, true] {
        let mut t = Topology::chain(vec![link(ms(10), uniform(0.02)); 3]);
        t.link_state(&Routing::default());
        if sealed {
            t.seal();
        }
        let odd = t.config_mut(HostId(3)).routing.as_mut().unwrap();
        odd.cost.formula = Paper;
        let mut world = t.build(1).unwrap();
        world.run_until(at(5_000));
        let router = |host: u32| world.node(HostId(host)).router().unwrap();
        for host in 0..3 {
            assert!(router(host).other_formulas().eq([(NodeId(4), Some(Paper))]));
            assert_eq!(router(host).formula_changes(), 1);
        }
        let others = [1, 2, 3].map(|n| (NodeId(n), Some(Measured)));
        assert!(router(3).other_formulas().eq(others));
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
