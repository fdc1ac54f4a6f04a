//! Agreement of all nodes on a network with links over shared cables and routers.

use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_net::IpVersion;
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Routing};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::{Disagreement, HostId, WireEnd, World, WorldError, address};

/// Three nodes in a triangle of links, all over one router; only the first `cables` of them have a
/// cable to it.
fn star(cables: u32) -> Result<World, WorldError> {
    let mut world = World::new(IpVersion::V6, 1);
    let model = LinkModel { delay: Duration::from_millis(5), ..LinkModel::default() };
    let middle = world.add_router();
    for host in 0..3 {
        let others = |of: u32| (0..3).filter(move |host| *host != of);
        let to = |other: u32| {
            let back = others(other).position(|peer| peer == host).expect("all have links");
            let address = Some(address(HostId(other), back as u16));
            link::Config { address, ..link::Config::new(NodeId(other + 1)) }
        };
        let links = others(host).map(to).collect();
        let routing = Some(Routing::default());
        let id = world.add_host(Config { links, routing, ..Config::new(NodeId(host + 1)) })?;
        if host < cables {
            world.cable(id, middle, model.clone(), model.clone())?;
        }
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        world.connect_routed(HostId(a), HostId(b))?;
    }
    Ok(world)
}

fn wrong(world: &World) -> Option<Disagreement> {
    world.disagreement(Metric::default())
}

#[test]
fn links_over_routers_are_looked_at() {
    let mut world = star(3).unwrap();
    assert!(matches!(wrong(&world), Some(Disagreement::Stale { .. } | Disagreement::NoWay { .. })));
    world.run_until(Time::from_millis(10_000));
    assert_eq!(wrong(&world), None);

    // The third node's cable: its links are dead as soon as one direction is.
    let cable = trunkline_sim::WireId(2);
    world.blackhole(cable, WireEnd::First);
    let dead = wrong(&world);
    assert!(matches!(dead, Some(Disagreement::DeadWay { .. })), "{dead:?}");
    world.run_until(Time::from_millis(20_000));
    assert_eq!(wrong(&world), None, "it is known that there is no way");

    world.mend(cable);
    let missing = wrong(&world);
    assert!(missing.is_some(), "it could be reached");
    world.run_until(Time::from_millis(30_000));
    assert_eq!(wrong(&world), None);
}

#[test]
fn a_link_that_no_cable_leads_to_is_dead() {
    let mut world = star(2).unwrap();
    assert!(wrong(&world).is_some());
    world.run_until(Time::from_millis(10_000));
    assert_eq!(wrong(&world), None, "two agree, and nobody can reach the third");
}
