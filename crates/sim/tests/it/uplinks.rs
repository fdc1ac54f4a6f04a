//! Uplinks that take nothing for a while.

use crate::common::*;
use trunkline_base::link_model::Loss;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{HostId, Topology, World};

/// Hosts 1 and 2 are neighbours of host 0, by links 0 and 1.
fn star(seed: u64) -> World {
    let mut t = Topology::new();
    let [a, b, c] = [1, 2, 3].map(|id| t.host(NodeId(id)));
    for other in [b, c] {
        t.link(a, other, link(ms(10), Loss::None), link(ms(10), Loss::None));
    }
    t.build(seed).unwrap()
}

#[test]
fn an_uplink_that_hangs_costs_no_other() {
    let mut world = star(1);
    let hung = calls(&mut world, (0, 1), RT, 5_000, 20, (at(1_000), 1_250));
    let bulk = calls(&mut world, (0, 1), BE, 6_000, 20, (at(1_000), 1_250));
    let other = calls(&mut world, (0, 2), RT, 5_000, 5, (at(1_000), 1_250));
    world.run_until(at(5_000));
    // Twice, since the second time must do no more harm than the first.
    for seconds in [5, 15] {
        world.hang(HostId(0), LinkId(0), true);
        world.run_until(at(1_000 * (seconds + 6)));
        world.hang(HostId(0), LinkId(0), false);
        world.run_until(at(1_000 * (seconds + 10)));
    }
    world.run_until(at(28_000));
    let o = outcome(&world, &other);
    assert_eq!((o.lost, o.late), (0, 0), "of {}", o.sent);
    assert_eq!(stats(&world, 0, 1).downs + stats(&world, 2, 0).downs, 0);
    for calls in [&hung, &bulk] {
        let o = outcome(&world, calls);
        // 12 of 25 s are lost, but for what could wait; nothing arrives when it is of no use.
        assert!(
            (0.40..0.56).contains(&(o.lost as f64 / o.sent as f64)),
            "{} of {}",
            o.lost,
            o.sent
        );
        assert_eq!(o.late, 0);
    }
    assert_eq!((stats(&world, 1, 0).downs, stats(&world, 0, 0).downs), (2, 2));
}

#[test]
fn a_node_that_restarts_behind_an_uplink_that_hangs_uses_the_other() {
    let mut world = star(2);
    world.run_until(at(1_000));
    world.hang(HostId(0), LinkId(0), true);
    world.restart(HostId(0)).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(5_000), 100));
    world.run_until(at(8_000));
    assert_eq!(outcome(&world, &made).lost, 0);
    assert!(world.node(HostId(0)).links().all(|(id, link)| link.monitor().is_up() == (id.0 == 1)));
}
