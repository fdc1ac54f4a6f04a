//! A node that dials in, with a clock that went back an hour while it was down, and another port
//! from its NAT: it is a neighbour and has routes again within seconds.

use crate::common::{RT, at, calls, link, ms, outcome};
use trunkline_base::link_model::Loss;
use trunkline_overlay::node::{Notice, Routing};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World};

const FAR: HostId = HostId(2);
const HOUR: core::time::Duration = core::time::Duration::from_secs(3_600);

/// Nodes 1, 2 and 3 in a row; node 3 dials in.
fn row() -> World {
    let mut t = Topology::chain(vec![link(ms(20), Loss::None); 2]);
    t.seal();
    t.link_state(&Routing::default());
    t.config_mut(HostId(1)).links[1].address = None;
    t.build(1).unwrap()
}

fn reaches(world: &World, from: u32, to: u32) -> bool {
    let router = world.node(HostId(from)).router().unwrap();
    router.route(NodeId(to + 1), Metric::default()).is_some()
}

/// Time in ms after the restart at which both ends of the row have a route to each other.
fn back_up_after(world: &mut World) -> Option<u64> {
    let restarted = world.now();
    (0..20_000).step_by(50).find(|t| {
        world.run_until(restarted + ms(*t));
        reaches(world, 0, 2) && reaches(world, 2, 0)
    })
}

/// The other nodes have records from node 3 that are an hour ahead.
fn set_back() -> World {
    let mut world = row();
    world.restart_ahead(FAR, HOUR).unwrap();
    world.run_until(at(10_000));
    assert!(reaches(&world, 0, 2) && reaches(&world, 2, 0));
    world.crash(FAR);
    world.run_until(at(14_000));
    assert!(!reaches(&world, 0, 2));
    world.rebind(WireId(1), WireEnd::Second);
    world.restart(FAR).unwrap();
    world
}

#[test]
fn a_node_whose_clock_went_back_is_routed_to_at_once() {
    let mut world = set_back();
    let after = back_up_after(&mut world).expect("within 20 s");
    println!("routed to after {after} ms");
    assert!(after <= 2_000, "{after} ms");
    let superseded = world.node(FAR).router().unwrap().stats().superseded;
    assert!(superseded > 0, "its own records came back, and it went above them");
    let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(20_000), 500));
    world.run_until(at(32_000));
    assert_eq!(outcome(&world, &made).missed.events, 0);
    for (host, own) in [(HostId(1), false), (FAR, true)] {
        let notices: Vec<_> =
            world.operate(host, |_, node| std::iter::from_fn(|| node.next_notice()).collect());
        let told = |n: &&Notice| matches!(n, Notice::ClockBehind { own: o, .. } if *o == own);
        assert_eq!(notices.iter().filter(told).count(), 1, "{host:?}: {notices:?}");
    }
}

/// A relay's neighbour gets another port during calls.
#[test]
fn a_new_mapping_under_calls_costs_them_next_to_nothing() {
    let mut world = row();
    world.run_until(at(5_000));
    let forth = calls(&mut world, (0, 2), RT, 5_000, 5, (at(5_000), 500));
    let back = calls(&mut world, (2, 0), RT, 6_000, 5, (at(5_000), 500));
    world.run_until(at(10_000));
    world.rebind(WireId(1), WireEnd::Second);
    world.run_until(at(17_000));
    let (forth, back) = (outcome(&world, &forth).missed, outcome(&world, &back).missed);
    println!("missed of 2,500 each way: {} and {}", forth.events, back.events);
    assert_eq!((forth.events, back.events), (0, 0), "what was lost came again in time");
    assert!(world.misdirected() > 0, "it was lost");
    let stats = world.node(HostId(1)).links().nth(1).unwrap().1.stats();
    assert_eq!(stats.downs, 0);
}
