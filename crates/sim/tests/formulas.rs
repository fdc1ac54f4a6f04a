//! Two nodes of an overlay that compute their ways by different formulas.

mod common;

use common::*;
use trunkline_overlay::node::{Notice, Routing};
use trunkline_overlay::route::Formula::{Measured, Paper};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{HostId, Topology};

/// 1 – 2 – 3 – 4, sealed: 4 computes by the paper's formula. All that are not by it
/// say so once, it says so of all others, and calls go both ways as ever.
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
        let mut told = |host: u32| {
            world.operate(HostId(host), |_, node| {
                let notices = core::iter::from_fn(|| node.next_notice());
                let formula = |n| matches!(n, Notice::OtherFormula(..) | Notice::SameFormula(_));
                notices.filter(|n| formula(n.clone())).collect::<Vec<_>>()
            })
        };
        for host in 0..3 {
            assert_eq!(told(host), [Notice::OtherFormula(NodeId(4), Some(Paper))]);
        }
        let others = [1, 2, 3].map(|n| Notice::OtherFormula(NodeId(n), Some(Measured)));
        assert_eq!(told(3), others);
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
