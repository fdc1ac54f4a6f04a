//! A node's traffic with and without packets, counted separately; and links over cables in a
//! topology.

use crate::common::*;
use trunkline_net::{Class, EdgeLedger, Protocol};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::CallOutcome;
use trunkline_sim::{HostId, Topology, WireId, World, address};

const PACKETS: Class = Class(1);
const CONTROL: Class = Class(2);

/// Runs a call of ten seconds over `topology`'s two hosts.
fn run(topology: Topology, service: Service) -> World {
    let mut world = topology.build(1).unwrap();
    for host in [HostId(0), HostId(1)] {
        world.set_class(host, Protocol::UDP, address(host, 0).port(), PACKETS).unwrap();
        world.set_control_class(host, CONTROL);
    }
    calls(&mut world, (0, 1), service, 5_000, 1, (at(1_000), 500));
    world.run_until(at(13_000));
    let all = world.edge_ledgers(WireId(0));
    let [packets, control] = ledgers(&world);
    assert_eq!([0, 1].map(|n| packets[n].plus(&control[n])), all);
    world
}

/// Ledgers of packets and of control, each in both directions.
fn ledgers(world: &World) -> [[EdgeLedger; 2]; 2] {
    [PACKETS, CONTROL].map(|class| world.class_ledgers(WireId(0), class))
}

/// Number of hellos that the two nodes have sent in separate envelopes.
fn hellos(world: &World) -> [u64; 2] {
    [0, 1].map(|host| stats(world, host, 0).hellos.envelopes)
}

#[test]
fn packets_and_control_have_ledgers_of_their_own() {
    let lossy = || Topology::chain([link(ms(10), uniform(0.05))]);
    let world = run(lossy(), BE);
    let [packets, control] = ledgers(&world).map(|l| l.map(|way| way.offered.packets));
    assert_eq!((packets, control), ([500, 0], hellos(&world)));
    // Retransmissions count as packets, requests don't.
    let world = run(lossy(), RT);
    let [packets, control] = ledgers(&world).map(|l| l.map(|way| way.offered.packets));
    assert!(packets[0] > 515 && packets[1] == 0, "{packets:?}");
    assert!(control[1] > hellos(&world)[1] + 15, "{control:?}");
    assert_eq!(control[0], hellos(&world)[0]);
}

#[test]
fn of_what_is_sealed_only_handshakes_are_seen() {
    let mut sealed = Topology::chain([link(ms(10), uniform(0.0))]);
    sealed.seal();
    let world = run(sealed, BE);
    let [packets, control] = ledgers(&world).map(|l| l.map(|way| way.offered.packets));
    assert!(packets[1] >= hellos(&world)[1] && packets[0] > 500, "{packets:?}");
    assert!((1..10).contains(&control[0]), "{control:?}");
}

#[test]
fn a_link_of_a_topology_may_go_over_cables() {
    let mut topology = Topology::new();
    let hosts: Vec<HostId> = (1..=3).map(|id| topology.host(NodeId(id))).collect();
    let wire = link(ms(10), uniform(0.0));
    topology.routed_link(hosts[0], hosts[1], ms(3), ms(3));
    topology.link(hosts[1], hosts[2], wire.clone(), wire);
    topology.route_all();
    let mut world = topology.build(1).unwrap();
    assert_eq!(world.wires(), 1, "the other has none");
    let router = world.add_router();
    for (host, delay) in [(hosts[0], ms(1)), (hosts[1], ms(2))] {
        let model = link(delay, uniform(0.0));
        world.cable(host, router, model.clone(), model).unwrap();
    }
    let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(1_000), 100));
    world.run_until(at(5_000));
    let outcome = CallOutcome::of(&world, &made, ms(100));
    assert_eq!((outcome.lost, outcome.delay(1.0)), (0, Some(ms(13))));
}
