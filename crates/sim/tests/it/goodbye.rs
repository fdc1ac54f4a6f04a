//! A node that stops says goodbye, and its neighbours lose less than after a silent end.

use crate::common::*;
use trunkline_base::link_model::{Chain, Loss};
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::Call;
use trunkline_sim::{HostId, Topology, World};

/// The relay that the tests stop.
const RELAY: HostId = HostId(1);

/// Two paths from host 0 to host 3: by the relay, 20 ms, and by host 2, 30 ms; sealed and with
/// link-state routing. There is a call in each direction from 3 s to 13 s.
fn diamond(loss: &Loss) -> (World, [Call; 2]) {
    let mut t = Topology::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| t.host(NodeId(id)));
    for (x, y, delay) in [(a, b, 10), (b, d, 10), (a, c, 15), (c, d, 15)] {
        let model = link(ms(delay), loss.clone());
        t.link(x, y, model.clone(), model);
    }
    t.seal();
    t.link_state(&Routing::default());
    let mut world = t.build(5).unwrap();
    let call = |world: &mut World, ends| calls(world, ends, RT, 5_000, 1, (at(3_000), 500))[0];
    let made = [call(&mut world, (0, 3)), call(&mut world, (3, 0))];
    world.run_until(at(6_000));
    let relayed = world.node(RELAY).stats().forwarded;
    assert!(relayed > 250, "the calls take the way by the relay: {relayed}");
    (world, made)
}

/// Time in ms from the first to the last packet of `call` that never arrived; 0 if all did.
fn gap(world: &World, call: Call) -> u64 {
    let arrivals = &flow(world, call).arrivals;
    let lost = |k: &u64| arrivals.get(*k as usize).is_none_or(Option::is_none);
    let mut lost = (0..world.app(call.0).sent()).filter(lost);
    let Some(first) = lost.next() else { return 0 };
    20 * (lost.next_back().unwrap_or(first) - first + 1)
}

#[test]
fn calls_leave_a_relay_that_stops_within_a_round_trip() {
    let (mut world, made) = diamond(&Loss::None);
    world.stop(RELAY);
    world.run_until(at(6_030));
    for host in [0, 3] {
        let link = stats(&world, host, 0);
        assert_eq!((link.downs, link.goodbyes), (1, 1), "host {host}");
    }
    assert!(!world.is_down(RELAY), "what is under way comes through");
    world.run_until(at(6_050));
    assert!(world.is_down(RELAY));
    world.run_until(at(15_000));
    assert_eq!(made.map(|call| gap(&world, call)), [0, 0]);
}

#[test]
fn a_crash_is_found_out_by_silence() {
    let (mut world, made) = diamond(&Loss::None);
    world.crash(RELAY);
    world.run_until(at(6_800));
    assert_eq!([0, 3].map(|host| stats(&world, host, 0).downs), [0, 0]);
    world.run_until(at(15_000));
    for (call, host) in made.into_iter().zip([0, 3]) {
        let gap = gap(&world, call);
        assert!((800..=1_200).contains(&gap), "{gap} ms");
        let link = stats(&world, host, 0);
        assert_eq!((link.downs, link.goodbyes), (1, 0));
    }
}

/// After a restart it is a neighbour as before, and repeated stops lose no packet.
#[test]
fn each_stop_of_a_relay_loses_as_little_as_the_first() {
    let (mut world, made) = diamond(&Loss::None);
    for round in 0..4 {
        let start = 6_000 + 1_500 * round;
        world.run_until(at(start));
        world.stop(RELAY);
        world.run_until(at(start + 100));
        for host in [0, 3] {
            let link = stats(&world, host, 0);
            assert_eq!((link.downs, link.goodbyes), (round + 1, round + 1), "round {round}");
            let node = world.node(HostId(host)).links().next().unwrap().1.monitor();
            assert_eq!(node.damping().share, 0.0, "nothing was lost, so nothing is held");
        }
        world.restart(RELAY).unwrap();
    }
    world.run_until(at(15_000));
    for host in [0, 3] {
        let node = world.node(HostId(host));
        assert!(node.links().all(|(_, link)| link.monitor().is_up()), "host {host}");
    }
    assert_eq!(made.map(|call| gap(&world, call)), [0, 0]);
}

/// A neighbour that can only dial in contacts the node at once after its goodbye. It is admitted by
/// the next start, because the stopping node agrees on no new keys.
#[test]
fn who_dials_in_finds_the_node_again() {
    let mut t = Topology::chain([link(ms(10), Loss::None)]);
    t.seal();
    t.config_mut(RELAY).links[0].address = None;
    let mut world = t.build(4).unwrap();
    for start in [3_000, 20_000] {
        world.run_until(at(start));
        let before = stats(&world, 0, 0);
        world.stop(RELAY);
        world.run_until(at(start + 500));
        assert_eq!(stats(&world, 0, 0).goodbyes, before.goodbyes + 1);
        world.restart(RELAY).unwrap();
        world.run_until(at(start + 3_000));
        let node = world.node(HostId(0));
        assert!(node.links().all(|(_, link)| link.monitor().is_up()), "after {start}");
    }
}

/// With several copies, one gets through where a single datagram often would not.
#[test]
fn losses_rarely_take_every_copy() {
    let losses = Loss::Burst { p: 0.1, b: 0.5, chain: Chain::PerPacket };
    let mut heard = 0;
    for seed in 0..100 {
        let mut t = Topology::chain([link(ms(20), losses.clone())]);
        t.seal();
        let mut world = t.build(seed).unwrap();
        world.run_until(at(3_000));
        world.stop(RELAY);
        world.run_until(at(3_100));
        heard += stats(&world, 0, 0).goodbyes;
    }
    // The loss of all seven copies has a probability of 0.1 · 0.5⁶; in a few runs the link was
    // down.
    assert!(heard >= 97, "{heard} of 100");
}
