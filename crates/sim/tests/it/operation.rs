//! Actions of an operator on nodes: tracing a route, changing settings, draining.

use crate::common::*;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::Loss;
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::link::{LinkChange, LinkId};
use trunkline_overlay::node::{Access, Changes, Echo, EchoAnswer, Nodes, Routing};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::wire::{MAX_HOPS, NodeId};
use trunkline_sim::{HostId, Topology, World, WorldError};

fn echo(to: u32, hops: u8, nonce: u64) -> Echo {
    Echo { to: NodeId(to), service: BE, size: 64, hops, nonce }
}

/// Sends an echo from the first host, and waits a second for its answer.
fn ask(world: &mut World, echo: Echo) -> Option<EchoAnswer> {
    world.operate(HostId(0), |now, node| node.echo(now, &echo)).unwrap();
    let until = world.now() + Duration::from_secs(1);
    world.run_until(until);
    world.operate(HostId(0), |_, node| {
        let answer = node.next_echo();
        assert_eq!(node.next_echo(), None, "one for one");
        answer
    })
}

#[test]
fn a_trace_over_a_chain_names_every_hop_and_its_distance() {
    for service in [BE, RT] {
        let mut world = Topology::chain(vec![link(ms(10), Loss::None); 4]).build(1).unwrap();
        world.run_until(at(1_000));
        for hops in 1..=MAX_HOPS {
            let sent = Echo { service, ..echo(5, hops, u64::from(hops)) };
            let answer = ask(&mut world, sent).unwrap();
            let crossed = hops.min(4);
            assert_eq!(answer.nonce, u64::from(hops));
            assert_eq!(answer.from, NodeId(u32::from(crossed) + 1), "{hops}");
            assert_eq!((answer.hops, answer.reached), (crossed, hops >= 4));
            assert_eq!(answer.rtt, ms(20) * u32::from(crossed));
        }
        let stats = |h| world.node(HostId(h)).stats();
        assert_eq!([1, 2, 3].map(|h| stats(h).drops.get(DropReason::HopLimit)), [0; 3], "answered");
        assert_eq!([1, 2, 3].map(|h| stats(h).echoes_answered), [1; 3]);
        assert_eq!(stats(4).echoes_answered, u64::from(MAX_HOPS) - 3);
    }
}

#[test]
fn an_echo_that_ends_where_it_would_turn_back_is_answered() {
    let mut t = Topology::chain(vec![link(ms(1), Loss::None); 2]);
    for (at, via) in [(0, 2), (1, 3), (2, 2)] {
        let route = StaticRoute { to: None, via: NodeId(via), onward: Duration::ZERO };
        t.config_mut(HostId(at)).routes = vec![route];
    }
    let mut world = t.build(1).unwrap();
    world.run_until(at(500));
    let answer = ask(&mut world, echo(9, 2, 1)).unwrap();
    assert_eq!((answer.from, answer.reached), (NodeId(3), false));
}

#[test]
fn news_waits_at_no_hop() {
    let mut t = Topology::chain(vec![link(ms(1), Loss::None); 4]);
    t.link_state(&Routing::default());
    let mut world = t.build(1).unwrap();
    world.run_until(at(3_000));
    let computed =
        |world: &World| world.node(HostId(4)).router().expect("dynamic").stats().spf_runs;
    let before = computed(&world);
    world.operate(HostId(0), |now, node| node.drain(now, true));
    world.run_until(at(3_005));
    assert_eq!(computed(&world), before + 1);
}

#[test]
fn only_echoes_learn_where_their_hop_limit_ran_out() {
    // Nodes that forward packets for an unknown node in a circle.
    let mut t = Topology::new();
    let (a, b, c) = (t.host(NodeId(1)), t.host(NodeId(2)), t.host(NodeId(3)));
    for (x, y) in [(a, b), (b, c), (c, a)] {
        t.link(x, y, link(ms(1), Loss::None), link(ms(1), Loss::None));
    }
    for (at, via) in [(a, b), (b, c), (c, a)] {
        let via = NodeId(via.0 + 1);
        t.config_mut(at).routes.push(StaticRoute { to: None, via, onward: Duration::ZERO });
    }
    let mut world = t.build(1).unwrap();
    world.run_until(at(500));
    let calls = calls_to(&mut world, 9);
    let answer = ask(&mut world, echo(9, MAX_HOPS, 1)).unwrap();
    assert_eq!((answer.hops, answer.reached), (MAX_HOPS, false));
    let stats: Vec<_> = (0..3).map(|h| world.node(HostId(h)).stats()).collect();
    let limited: u64 = stats.iter().map(|s| s.drops.get(DropReason::HopLimit)).sum();
    assert_eq!(limited, calls);
    assert_eq!(stats.iter().map(|s| s.echoes_answered).sum::<u64>(), 1);
}

/// Sends ten packets of an application to a node that doesn't exist.
fn calls_to(world: &mut World, node: u32) -> u64 {
    use trunkline_sim::voice::VoiceSource;
    let source = VoiceSource::new(NodeId(node), 1, RT, world.now(), 10);
    world.attach(HostId(0), 0, source).unwrap();
    10
}

#[test]
fn a_flood_of_echoes_is_answered_as_far_as_the_limit_goes() {
    let mut world = Topology::chain([link(ms(1), Loss::None)]).build(1).unwrap();
    world.run_until(at(500));
    let mut answers = 0;
    for round in 0..100 {
        world.operate(HostId(0), |now, node| {
            for k in 0..10 {
                node.echo(now, &echo(2, 1, round * 10 + k)).unwrap();
            }
        });
        let until = world.now() + ms(10);
        world.run_until(until);
        answers +=
            world.operate(HostId(0), |_, node| std::iter::from_fn(|| node.next_echo()).count());
    }
    let stats = world.node(HostId(1)).stats();
    // A burst of a second's worth, and a hundred more in this second.
    assert!((195..=201).contains(&answers), "{answers}");
    assert_eq!(stats.echoes_answered, answers as u64);
    assert_eq!(stats.drops.get(DropReason::EchoLimit), 1_000 - answers as u64);
}

#[test]
fn settings_change_under_a_call_that_notices_nothing() {
    let mut world = Topology::chain(vec![link(ms(10), Loss::None); 2]).build(1).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 10, (at(500), 200));
    for round in 0..40u64 {
        world.run_until(at(600 + 100 * round));
        world.operate(HostId((round % 3) as u32), |now, node| {
            let config = node.link(LinkId(0)).expect("a link").config();
            let rate = config.rate.is_none().then(|| Bitrate::from_bps(10_000_000));
            let liveness = config.liveness.clone();
            let (penalty, damping) = (config.penalty, config.damping);
            let dscp = (config.dscp + 1) % 64;
            let change = LinkChange { rate, dscp, penalty, damping, liveness };
            let name = (config.neighbour, config.path.clone());
            node.reconfigure(
                now,
                &Changes { links: vec![(name, change.clone())], ..Changes::default() },
            );
            node.reconfigure(
                now,
                &Changes {
                    links: vec![((NodeId(99), String::new()), change)],
                    ..Changes::default()
                },
            );
        });
    }
    world.run_until(at(6_000));
    let o = outcome(&world, &made);
    assert_eq!((o.sent, o.lost, o.late), (2_000, 0, 0));
    assert_ne!(world.node(HostId(0)).link(LinkId(0)).expect("a link").config().dscp, 46);
}

/// One end replaces a link, and numbers its packets from the start. The other end, which has kept
/// its link, must not take them for earlier ones.
#[test]
fn a_link_that_is_replaced_at_one_end_carries_calls_at_once() {
    for sealed in [false, true] {
        let mut t = Topology::chain(vec![link(ms(10), Loss::None)]);
        if sealed {
            t.seal();
        }
        let mut world = t.build(1).unwrap();
        let before = calls(&mut world, (0, 1), RT, 5_000, 1, (at(1_000), 100));
        world.run_until(at(4_000));
        world.operate(HostId(0), |now, node| {
            let config = node.link(LinkId(0)).expect("a link").config().clone();
            let removed = vec![(config.neighbour, config.path.clone())];
            let added = vec![config];
            node.reconfigure(now, &Changes { removed, added, ..Changes::default() });
            let (_, link) = node.links().next().unwrap();
            assert_eq!(link.monitor().quality().since, now, "it has been down since now");
        });
        world.run_until(at(5_000));
        let after = calls(&mut world, (0, 1), RT, 6_000, 1, (at(6_000), 100));
        world.run_until(at(9_000));
        for made in [before, after] {
            let o = outcome(&world, &made);
            assert_eq!((o.sent, o.lost, o.late), (100, 0, 0), "sealed: {sealed}");
        }
    }
}

#[test]
fn routes_change_at_once() {
    let mut t = Topology::new();
    let hosts: Vec<_> = (1..=4).map(|n| t.host(NodeId(n))).collect();
    for (x, y, d) in [(0, 1, 5), (1, 3, 5), (0, 2, 20), (2, 3, 20)] {
        t.link(hosts[x], hosts[y], link(ms(d), Loss::None), link(ms(d), Loss::None));
    }
    t.route_all();
    let mut world = t.build(1).unwrap();
    world.run_until(at(1_000));
    let rtt = |world: &mut World, nonce| ask(world, echo(4, 9, nonce)).unwrap().rtt;
    let before = rtt(&mut world, 1);
    let via = |n| vec![StaticRoute { to: Some(NodeId(4)), via: NodeId(n), onward: ms(5) }];
    let mut take = |n: u32, nonce| {
        let changes = Changes { routes: Some(via(n)), ..Changes::default() };
        world.operate(HostId(0), |now, node| node.reconfigure(now, &changes));
        rtt(&mut world, nonce)
    };
    let (slow, fast) = (take(3, 2), take(2, 3));
    assert!(slow > fast && (before == slow || before == fast), "{before:?} {slow:?} {fast:?}");
}

#[test]
fn a_draining_node_takes_no_sessions_and_carries_on() {
    use trunkline_sim::voice::VoiceSink;
    let mut world = Topology::chain(vec![link(ms(10), Loss::None); 2]).build(1).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 5, (at(500), 100));
    world.run_until(at(1_000));
    world.operate(HostId(1), |now, node| node.drain(now, true));
    assert!(world.node(HostId(1)).is_draining());
    let refused = world.attach(HostId(1), 7, VoiceSink::default()).unwrap_err();
    assert!(matches!(refused, WorldError::Sessions(HostId(1))), "{refused}");
    world.run_until(at(4_000));
    assert_eq!(outcome(&world, &made).lost, 0, "what is under way goes on");
    world.operate(HostId(1), |now, node| node.drain(now, false));
    world.attach(HostId(1), 7, VoiceSink::default()).unwrap();
}

#[test]
fn rules_change_at_once() {
    let mut world = Topology::chain(vec![link(ms(10), Loss::None); 2]).build(1).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(500), 100));
    let set = |world: &mut World, transit| {
        let access = Some(Access { transit, ..Access::default() });
        let changes = Changes { access, ..Changes::default() };
        world.operate(HostId(1), |now, node| node.reconfigure(now, &changes));
    };
    world.run_until(at(1_005));
    set(&mut world, Nodes::only([]));
    world.run_until(at(1_505));
    set(&mut world, Nodes::All);
    world.run_until(at(4_000));
    let forbidden = world.node(HostId(1)).stats().drops.get(DropReason::Forbidden);
    // 25 packets are sent in those 500 ms.
    assert!((24..=26).contains(&forbidden), "{forbidden}");
    assert_eq!(outcome(&world, &made).lost, forbidden);
}
