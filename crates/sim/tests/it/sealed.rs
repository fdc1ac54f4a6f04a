//! Nodes with keys and certificates that find each other, seal their links, and use link-state
//! routing.

use crate::common::{RT, at, calls, flow, link, ms, outcome, uniform};
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::node::{Access, Changes, Node, Nodes, Routing};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World};

/// Nodes 1 to 4 in a ring, with equal links except for the delay of the last.
fn ring(model: &LinkModel) -> World {
    let mut t = Topology::new();
    let hosts: Vec<HostId> = (1..=4).map(|n| t.host(NodeId(n))).collect();
    for i in 0..4 {
        let mut model = model.clone();
        if i == 3 {
            model.delay *= 2;
        }
        t.link(hosts[i], hosts[(i + 1) % 4], model.clone(), model);
    }
    t.seal();
    t.link_state(&Routing::default());
    t.build(7).unwrap()
}

#[test]
fn certified_nodes_find_each_other_and_call() {
    let mut world = ring(&link(ms(10), uniform(0.02)));
    world.run_until(at(5_000));
    for host in 0..4 {
        let node = world.node(HostId(host));
        for (id, link) in node.links() {
            assert!(link.is_sealed() && link.is_ready() && link.monitor().is_up());
            let neighbour = link.config().neighbour;
            assert_eq!(node.control().name(id), Some(&*format!("node-{neighbour}")));
        }
        let router = node.control().router().unwrap();
        assert_eq!(router.nodes(), 4, "node {} knows all", host + 1);
    }
    // 1 and 4 are neighbours over 20 ms; two links of 10 ms lead from 1 to 3.
    let router = world.node(HostId(0)).control().router().unwrap();
    let route = router.route(NodeId(3), Metric::Latency).unwrap();
    assert_eq!(route.path, [1, 2, 3].map(NodeId));
    assert_eq!(route.cost, 200, "in tenths of a millisecond");

    let made = calls(&mut world, (0, 2), RT, 5_000, 10, (at(6_000), 500));
    world.run_until(at(20_000));
    let missed = outcome(&world, &made).missed.events;
    assert!(missed <= 5, "{missed} of 5000");
}

/// Node 1 reaches node 4 over one link or over three of 10 ms each. With 60 ms on the single link,
/// the metrics disagree: latency prefers three links, hops and loss prefer one.
#[test]
fn each_flow_chooses_by_its_own_metric() {
    let mut world = ring(&link(ms(10), Loss::None));
    let long = link(ms(60), Loss::None);
    for end in [WireEnd::First, WireEnd::Second] {
        world.change(WireId(3), end, long.clone()).unwrap();
    }
    world.run_until(at(20_000));
    let mut delays = Vec::new();
    for (metric, port) in [(None, 5_000), (Some(Metric::Hops), 5_001), (Some(Metric::Loss), 5_002)]
    {
        let start = world.now() + ms(100);
        let mut source = VoiceSource::new(NodeId(4), port, RT, start, 50);
        source.metric = metric;
        let sink = world.attach(HostId(3), port, VoiceSink::default()).unwrap();
        let call = (world.attach(HostId(0), 0, source).unwrap(), sink);
        world.run_until(world.now() + ms(3_000));
        let arrival = flow(&world, call).arrivals[10].unwrap();
        delays.push(arrival.delay);
    }
    assert!((30..35).contains(&delays[0].as_millis()), "expected latency: {:?}", delays[0]);
    assert!((60..65).contains(&delays[1].as_millis()), "the fewest links: {:?}", delays[1]);
    assert!((60..65).contains(&delays[2].as_millis()), "no losses, so the fewest: {:?}", delays[2]);
}

/// Node 1 has only one path, to node 2. From there, one link of 60 ms leads to node 4, or two of 10
/// ms.
#[test]
fn relays_follow_the_metric_of_a_flow() {
    let mut t = Topology::new();
    let hosts: Vec<HostId> = (1..=4).map(|n| t.host(NodeId(n))).collect();
    for (a, b, delay) in [(0, 1, 10), (1, 2, 10), (2, 3, 10), (1, 3, 60)] {
        let model = || link(ms(delay), Loss::None);
        t.link(hosts[a], hosts[b], model(), model());
    }
    t.seal();
    t.link_state(&Routing::default());
    let mut world = t.build(7).unwrap();
    world.run_until(at(5_000));
    let metrics = [(None, 30), (Some(Metric::Hops), 70)];
    let flows = metrics.map(|(metric, delay)| {
        let mut source = VoiceSource::new(NodeId(4), 5_000 + delay, RT, at(6_000), 50);
        source.metric = metric;
        let sink = world.attach(HostId(3), 5_000 + delay, VoiceSink::default()).unwrap();
        ((world.attach(HostId(0), 0, source).unwrap(), sink), delay)
    });
    world.run_until(at(9_000));
    for (call, delay) in flows {
        let took = flow(&world, call).arrivals[10].unwrap().delay.as_millis();
        assert!((u128::from(delay)..u128::from(delay) + 5).contains(&took), "{took} ms");
    }
}

/// A relay that is being drained, or that doesn't admit all nodes for transit, announces this: a
/// call takes another path, and loses nothing by draining.
#[test]
fn calls_leave_a_relay_that_wants_no_transit() {
    type Act = fn(&mut Node, Time, bool);
    let drain: Act = |node, now, on| node.drain(now, on);
    let access: Act = |node, now, on| {
        let transit = if on { Nodes::only([NodeId(9)]) } else { Nodes::All };
        let access = Some(Access { transit, ..Access::default() });
        node.reconfigure(now, &Changes { access, ..Changes::default() });
    };
    for (what, wants_none) in [("drain", drain), ("transit", access)] {
        let mut world = ring(&link(ms(10), Loss::None));
        let relay = HostId(1);
        let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(6_000), 1_000));
        let passed = |world: &World| world.node(relay).stats().forwarded;
        world.run_until(at(10_000));
        assert!(passed(&world) > 150, "{what}: the way is over node 2");
        world.operate(relay, |now, node| wants_none(node, now, true));
        world.run_until(at(11_000));
        let before = passed(&world);
        world.run_until(at(14_000));
        assert_eq!(passed(&world), before, "{what}");
        world.operate(relay, |now, node| wants_none(node, now, false));
        world.run_until(at(30_000));
        assert!(passed(&world) > before + 300, "{what}: the way is over node 2 again");
        let lost = outcome(&world, &made).missed.events;
        // Packets on their way when transit is forbidden are refused.
        assert!(lost <= if what == "drain" { 0 } else { 3 }, "{what}: {lost} of 1000");
    }
}

/// Both ends of a link use the smaller of their MTUs.
#[test]
fn neighbours_agree_on_the_smaller_packet() {
    let mut t = Topology::chain(vec![link(ms(10), Loss::None)]);
    t.seal();
    t.config_mut(HostId(1)).links[0].mtu = 1_000;
    let mut world = t.build(1).unwrap();
    world.run_until(at(2_000));
    for host in [HostId(0), HostId(1)] {
        let (_, link) = world.node(host).links().next().unwrap();
        assert_eq!(link.config().mtu, 1_000);
    }
}

/// Node 2 has lost its keys and has no address for node 1: the handshake starts again as soon as
/// the link is dead, and not only when the keys expire.
#[test]
fn who_is_silent_is_greeted_again() {
    let mut t = Topology::chain(vec![link(ms(10), Loss::None)]);
    t.seal();
    t.config_mut(HostId(1)).links[0].address = None;
    let mut world = t.build(1).unwrap();
    world.run_until(at(5_000));
    world.restart(HostId(1)).unwrap();
    world.run_until(at(9_000));
    for host in [HostId(0), HostId(1)] {
        let (_, link) = world.node(host).links().next().unwrap();
        assert!(link.monitor().is_up(), "{host:?}");
    }
}

/// An unconfigured peer has one link, also after its link is added to the configuration.
#[test]
fn a_newcomer_that_is_configured_has_one_link() {
    let mut t = Topology::chain(vec![link(ms(10), Loss::None)]);
    t.seal();
    t.config_mut(HostId(1)).sealing.as_mut().unwrap().unconfigured_peers = 3;
    let own = t.config_mut(HostId(1)).links[0].clone();
    let mut world = t.build(1).unwrap();
    world.run_until(at(3_000));
    let removed = vec![(own.neighbour, own.path.clone())];
    for (changes, what) in [
        (Changes { removed, ..Changes::default() }, "a unconfigured_peer"),
        (Changes { added: vec![own], ..Changes::default() }, "configured"),
    ] {
        world.operate(HostId(1), |now, node| node.reconfigure(now, &changes));
        let end = world.now() + ms(6_000);
        world.run_until(end);
        let links: Vec<_> = world.node(HostId(1)).links().map(|(_, l)| l).collect();
        assert_eq!((links.len(), links[0].monitor().is_up()), (1, true), "{what}");
    }
}

/// Keys are replaced every two minutes, and no packet is missed.
#[test]
fn new_keys_cost_no_packet() {
    let mut world = ring(&link(ms(10), Loss::None));
    let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(5_000), 30_000));
    world.run_until(at(615_000));
    assert_eq!(outcome(&world, &made).missed.events, 0);
    assert_eq!(flow(&world, made[0]).arrivals.len(), 30_000);
    let handshakes = world.node(HostId(0)).control().handshakes().unwrap();
    assert!(handshakes.established >= 10, "{handshakes:?}");
    for (_, link) in world.node(HostId(0)).links() {
        assert_eq!(link.stats().drops.get(DropReason::NoSession), 0);
    }
}
