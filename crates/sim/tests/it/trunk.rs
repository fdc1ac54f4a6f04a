//! Packets of many calls in common datagrams: fewer on the network, without any effect on the
//! calls.

use crate::common::*;
use trunkline_base::Time;
use trunkline_base::link_model::{Chain, Loss};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::node::{Changes, Nodes};
use trunkline_overlay::trunk::{Config, Multiplex, ReceiverStats, State, Stats};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::{Call, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, World};

const FAR: NodeId = NodeId(3);

/// Three nodes in a row, the first with trunks to the last, and calls of 20 s from 1 s on, starting
/// 2 ms apart.
fn world(trunk: Option<Config>, loss: &Loss, n: u16) -> (World, Vec<Call>) {
    let links = [link(ms(10), loss.clone()), link(ms(10), loss.clone())];
    let mut t = Topology::chain(links);
    t.config_mut(HostId(0)).trunks.extend(trunk);
    let mut world = t.build(11).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, n, (at(1_000), 1_000));
    (world, made)
}

fn sent(world: &World) -> Stats {
    world.node(HostId(0)).trunks(world.now()).next().expect("a trunk").stats
}

fn received(world: &World) -> ReceiverStats {
    world.node(HostId(2)).receiving(world.now()).next().expect("a trunk").stats
}

/// Numbers of envelopes and bytes that the first node sends.
fn traffic(world: &World) -> (u64, u64) {
    let sent = stats(world, 0, 0).sent();
    (sent.envelopes, sent.bytes)
}

#[test]
fn calls_take_a_fraction_of_the_packets_and_wait_no_longer_than_they_may() {
    let (mut plain, alone) = world(None, &Loss::None, 10);
    let (mut trunked, together) = world(Some(Config::new(FAR)), &Loss::None, 10);
    for world in [&mut plain, &mut trunked] {
        world.run_until(at(25_000));
    }
    let (before, after) = (outcome(&plain, &alone), outcome(&trunked, &together));
    assert_eq!((before.sent, before.lost, before.duplicates), (10_000, 0, 0));
    assert_eq!((after.sent, after.lost, after.late, after.duplicates), (10_000, 0, 0, 0));
    assert_eq!(before.delay(1.0), Some(ms(20)));
    assert_eq!(after.delay(1.0), Some(ms(22)), "the wait, and not more");
    let ((envelopes, bytes), (fewer, less)) = (traffic(&plain), traffic(&trunked));
    // Ten calls 2 ms apart: two packets meet within 2 ms, and have 44 + 8 + 2 · 5 bytes of headers
    // instead of 2 · 44, and 2 · 1 of RTP instead of 2 · 12.
    assert!(2 * fewer < envelopes + 1_000, "{fewer} of {envelopes}");
    assert!(less < bytes - 23 * 10_000, "{less} of {bytes}");
    let trunk = sent(&trunked);
    assert_eq!(trunk.packets + trunk.alone + trunk.unanswered, 10_000);
    assert_eq!((trunk.unanswered, trunk.dropped), (0, 0));
    // All but the first five packets of each call, and one a second.
    assert!(trunk.compressed > 10 * (1_000 - 5 - 20 - 1), "{trunk:?}");
    assert_eq!(trunk.header_bytes_saved, 11 * trunk.compressed);
    assert_eq!(received(&trunked).no_template, 0);
}

#[test]
fn the_only_call_doesnt_wait() {
    let (mut world, made) = world(Some(Config::new(FAR)), &Loss::None, 1);
    world.run_until(at(25_000));
    assert_eq!(outcome(&world, &made).delay(1.0), Some(ms(20)));
    let trunk = sent(&world);
    assert_eq!((trunk.alone, trunk.packets), (1_000, 0));
}

/// This includes definitions of contexts that are lost: they are sent again a second later.
#[test]
fn links_recover_trunk_packets_as_they_do_others() {
    let burst = Loss::Burst { p: 0.05, b: 0.5, chain: Chain::PerPacket };
    for loss in [uniform(0.05), burst] {
        let (mut plain, alone) = world(None, &loss, 20);
        let (mut trunked, together) = world(Some(Config::new(FAR)), &loss, 20);
        for world in [&mut plain, &mut trunked] {
            world.run_until(at(25_000));
        }
        let (before, after) = (outcome(&plain, &alone), outcome(&trunked, &together));
        assert!(after.recovered > 1_000, "{}", after.recovered);
        assert_eq!(after.duplicates, 0);
        let missed = |o: &trunkline_sim::voice::CallOutcome| o.lost + o.late;
        assert!(missed(&after) < missed(&before) + 200, "{after:?}");
        assert!(received(&trunked).no_template < 20, "a thousandth: {:?}", received(&trunked));
        // Each packet reached the right port.
        for &call in &together {
            let flow = flow(&trunked, call);
            assert!(flow.arrivals.iter().flatten().count() > 950);
            assert_eq!(trunked.app(call.1).flows.len(), 1);
        }
    }
}

#[test]
fn a_node_that_starts_again_is_told_again() {
    let (mut world, made) = world(Some(Config::new(FAR)), &Loss::None, 10);
    world.run_until(at(5_000));
    world.crash(HostId(2));
    world.run_until(at(5_200));
    world.restart(HostId(2)).unwrap();
    world.run_until(at(6_500));
    let open = |world: &World| world.node(HostId(0)).trunks(world.now()).next().unwrap().state;
    assert_eq!(open(&world), State::Open);
    let before = world.node(HostId(2)).stats().to_sessions;
    world.run_until(at(25_000));
    let after = world.node(HostId(2)).stats();
    assert!(after.to_sessions >= before + 10 * 700, "{after:?}");
    // The first node's contexts may also have been replaced meanwhile.
    assert!(after.drops.get(DropReason::TrunkUnknown) < 300, "{after:?}");
    assert!(made.iter().all(|&call| world.app(call.1).flows.len() == 1));
}

#[test]
fn an_end_that_takes_none_gets_packets_one_by_one() {
    let links = [link(ms(10), Loss::None), link(ms(10), Loss::None)];
    let mut t = Topology::chain(links);
    t.config_mut(HostId(0)).trunks.push(Config::new(FAR));
    t.config_mut(HostId(2)).access.from = Nodes::only([NodeId(9)]);
    let mut world = t.build(11).unwrap();
    calls(&mut world, (0, 2), RT, 5_000, 5, (at(1_000), 100));
    world.run_until(at(5_000));
    let trunk = world.node(HostId(0)).trunks(world.now()).next().unwrap();
    assert_eq!((trunk.state, trunk.stats.packets), (State::Refused, 0));
    assert_eq!(trunk.stats.unanswered, 500);
    // Its rules admit packets from node 9 only, with or without trunks.
    assert_eq!(world.node(HostId(2)).stats().drops.get(DropReason::Forbidden), 500);
}

#[test]
fn trunks_come_and_go_while_calls_go_on() {
    let (mut world, made) = world(None, &Loss::None, 10);
    let far = Config::new(FAR);
    let all = [vec![far], vec![Config { wait: ms(10), ..far }], vec![], vec![far]];
    let off = vec![Config { multiplex: Multiplex::Off, ..far }];
    for (n, trunks) in all.into_iter().chain([off]).cycle().take(60).enumerate() {
        world.run_until(at(1_000 + 333 * n as u64));
        let changes = Changes { trunks: Some(trunks), ..Changes::default() };
        world.operate(HostId(0), |now, node| node.reconfigure(now, &changes));
    }
    world.run_until(at(25_000));
    let outcome = outcome(&world, &made);
    assert_eq!((outcome.lost, outcome.late, outcome.duplicates), (0, 0, 0));
}

/// 200 calls of G.729 over two links that lose 1 % each; losses that the links repair count, too.
/// Without loss, packets leave one by one. With loss, as many leave together as needed for the
/// trunk to send no more than a TCP, if they arrive within the wait.
#[test]
fn a_trunk_of_tfmc_puts_together_what_a_lossy_path_asks_for() {
    let mut seen = Vec::new();
    for loss in [Loss::None, uniform(0.01)] {
        let mut t = Topology::chain([link(ms(10), loss.clone()), link(ms(10), loss)]);
        let multiplex = Multiplex::Tfmc;
        t.config_mut(HostId(0)).trunks.push(Config { multiplex, ..Config::new(FAR) });
        let mut world = t.build(5).unwrap();
        g729(&mut world, 200, at(1_000), 750);
        world.run_until(at(15_500));
        seen.push(world.node(HostId(0)).trunks(world.now()).next().unwrap());
    }
    let [clean, lossy] = seen[..] else { panic!() };
    assert_eq!((clean.loss, clean.share, clean.is_over_share), (0.0, None, false));
    assert!(clean.stats.packets < clean.stats.trunk_packets * 11 / 10, "{clean:?}");
    assert!(clean.rtt.is_some_and(|rtt| (ms(40)..ms(45)).contains(&rtt)), "{clean:?}");
    assert!(lossy.loss > 0.001 && lossy.share.is_some(), "{lossy:?}");
    assert!(lossy.stats.packets > lossy.stats.trunk_packets * 3, "{lossy:?}");
}

/// `n` calls of 20 bytes and an RTP header, with their packets evenly spread in time.
fn g729(world: &mut World, n: u16, start: Time, count: u64) -> Vec<Call> {
    (0..n)
        .map(|k| {
            let port = 5_000 + k + 1_000 * (start.as_nanos() / 1_000_000_000) as u16;
            let start = start + ms(20) * u32::from(k) / u32::from(n);
            let mut source = VoiceSource::new(FAR, port, RT, start, count);
            source.bytes = 32;
            let sink = world.attach(HostId(2), port, VoiceSink::default()).unwrap();
            (world.attach(HostId(0), 0, source).unwrap(), sink)
        })
        .collect()
}

#[test]
fn new_calls_are_refused_while_the_trunk_is_over_its_share() {
    let mut t = Topology::chain([link(ms(10), uniform(0.02)), link(ms(10), uniform(0.02))]);
    t.config_mut(HostId(0)).trunks.push(Config { admit_share: true, ..Config::new(FAR) });
    let mut world = t.build(5).unwrap();
    let first = g729(&mut world, 200, at(1_000), 900);
    let second = g729(&mut world, 10, at(8_000), 100);
    world.run_until(at(15_000));
    let over = world.node(HostId(0)).trunks(world.now()).next().unwrap();
    assert!(over.is_over_share, "{over:?}");
    let refused = |calls: &[Call]| calls.iter().map(|c| world.app(c.0).refused()).sum::<u64>();
    assert_eq!(refused(&first), 0, "{over:?}");
    assert_eq!(refused(&second), 1_000, "{over:?}");
    assert_eq!(world.node(HostId(0)).stats().drops.get(DropReason::OverShare), 1_000);
}

/// Real-time packets of other sizes, and packets to an unbound port.
#[test]
fn what_does_not_fit_leaves_by_itself_and_an_unbound_port_is_told() {
    let mut t = Topology::chain([link(ms(10), Loss::None), link(ms(10), Loss::None)]);
    t.config_mut(HostId(0)).trunks.push(Config::new(FAR));
    let mut world = t.build(3).unwrap();
    let sizes = [28, 172, 600, 1_170, 1_180];
    let made: Vec<Call> = (0..)
        .zip(sizes)
        .map(|(k, bytes)| {
            let mut source = VoiceSource::new(FAR, 6_000 + k, RT, at(1_000), 500);
            source.bytes = bytes;
            let sink = world.attach(HostId(2), 6_000 + k, VoiceSink::default()).unwrap();
            (world.attach(HostId(0), 0, source).unwrap(), sink)
        })
        .collect();
    let nobody = VoiceSource::new(FAR, 7_000, RT, at(1_000), 500);
    world.attach(HostId(0), 0, nobody).unwrap();
    world.run_until(at(15_000));
    let outcome = outcome(&world, &made);
    assert_eq!((outcome.sent, outcome.lost, outcome.duplicates), (2_500, 0, 0));
    let far = world.node(HostId(2)).stats();
    assert_eq!(far.drops.get(DropReason::NoPort), 500);
    assert!(far.port_unreachable_sent > 0);
    assert_eq!(world.node(HostId(0)).stats().port_unreachable_accepted, far.port_unreachable_sent);
    assert!(sent(&world).alone >= 1_000, "{:?}", sent(&world));
}
