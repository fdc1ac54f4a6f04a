//! Neighbours that lie, nodes that are revoked, and replayed recordings: other links are not
//! affected, and everything is bounded and counted.

use crate::common::liar::{self, Liar, Nobody, identity, link_state, record, throw};
use crate::common::{RT, at, calls, link, ms, outcome};
use pcap_file::pcapng::{Block, PcapNgReader};
use std::cell::RefCell;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use trunkline_base::link_model::Loss;
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::RxDatagram;
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::handshake;
use trunkline_overlay::identity::Trust;
use trunkline_overlay::link::{LinkCost, LinkId};
use trunkline_overlay::node::{Changes, Routing};
use trunkline_overlay::route::update::{Update, path_number, sign};
use trunkline_overlay::route::{Advert, CostModel, RefusedRecord, Router};
use trunkline_overlay::wire::{
    ControlKind, DataHeader, FlowHeader, HopHeader, Metric, NodeId, Service,
};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World, address};

const LIAR: NodeId = NodeId(66);
const VICTIM: HostId = HostId(1);
/// The victim's link to the liar, which follows those to nodes 1 and 3.
const TO_LIAR: LinkId = LinkId(2);

/// Nodes 1, 2 and 3 in a row, all sealed; node 2, the victim, accepts three unconfigured
/// neighbours.
fn row() -> Topology {
    let model = || link(ms(10), Loss::None);
    let mut t = Topology::new();
    let hosts = [1, 2, 3].map(|n| t.host(NodeId(n)));
    t.link(hosts[0], hosts[1], model(), model());
    t.link(hosts[1], hosts[2], model(), model());
    t.seal();
    t.link_state(&Routing::default());
    t.config_mut(VICTIM).sealing.as_mut().unwrap().unconfigured_peers = 3;
    t
}

/// The row, with the liar as a neighbour of node 2 on a link that is up and has a cost.
fn with_liar() -> (World, Liar) {
    let mut world = row().build(1).unwrap();
    world.run_until(at(3_000));
    let mut liar = Liar::new(LIAR, "", (VICTIM, NodeId(2)));
    assert!(liar.greet(&mut world));
    keep_up(&mut world, &mut liar, 4_000, |_, _, _| {});
    liar.introduce(&mut world);
    keep_up(&mut world, &mut liar, 5_000, |_, _, _| {});
    assert!(world.node(VICTIM).link(TO_LIAR).unwrap().monitor().is_up());
    (world, liar)
}

/// A neighbour that sends a goodbye and a hello a thousand times a second takes down its own link,
/// and only rarely; replayed recordings of it take nothing down.
#[test]
fn goodbyes_without_end_cost_little_and_only_their_own_link() {
    let (mut world, mut liar) = with_liar();
    let made = calls(&mut world, (0, 2), RT, 5_000, 10, (at(5_100), 1_500));
    let of_liar = |world: &World| world.node(VICTIM).link(TO_LIAR).unwrap().stats();
    let before = *router(&world, HostId(0)).stats();
    let goodbye = liar.seal(&[ControlKind::Goodbye as u8]);
    let address = liar.address();
    let mut ups = 0;
    keep_up(&mut world, &mut liar, 35_200, |world, liar, _| {
        if !world.node(VICTIM).link(TO_LIAR).unwrap().monitor().is_up() {
            ups += 1;
        }
        throw(world, VICTIM, address, &goodbye);
        liar.say(world, &[ControlKind::Goodbye as u8]);
        liar.hello(world);
    });
    let stats = of_liar(&world);
    assert_eq!((stats.downs, stats.goodbyes), (7, 7), "four, and one in ten seconds");
    assert!(ups <= 7 * 12, "{ups} ms of 30 s: hellos brought the link up as ever");
    assert!(stats.drops.get(DropReason::Replayed) >= 30_000, "{:?}", stats.drops);
    assert_eq!(outcome(&world, &made).missed.events, 0, "of 15,000 packets");
    let told = router(&world, HostId(0)).stats().accepted - before.accepted;
    assert!(told <= 20, "{told} updates in 30 s");
    let computed = world.node(VICTIM).control().handshakes().unwrap().initiations;
    assert!(computed <= 20, "{computed} handshakes begun");
}

/// A record of node 66, with its link to node 2 and this digest.
fn differing(seq: u64, digest: u32) -> Vec<u8> {
    let cost = LinkCost { latency: 1, ..LinkCost::default() };
    let links = vec![Advert { neighbour: NodeId(2), path: path_number(""), cost }];
    let update = Update { origin: LIAR, seq, fragment: 0, draining: false, digest, links };
    link_state(&[&sign(update.emit().unwrap(), &identity(LIAR))[..], &[0, 0]].concat())
}

/// A member advertises another digest of its settings a thousand times a second: its
/// neighbour passes on as many records as a node may send, no node computes routes for
/// them, and calls miss nothing.
#[test]
fn a_digest_that_changes_all_the_time_costs_little() {
    let (mut world, mut liar) = with_liar();
    let update = liar.update(present(&world), &[NodeId(2)]);
    liar.say(&mut world, &update);
    keep_up_a_while(&mut world, &mut liar);
    let made = calls(&mut world, (0, 2), RT, 5_000, 10, (at(5_500), 250));
    let before = *router(&world, HostId(0)).stats();
    keep_up(&mut world, &mut liar, 11_200, |world, liar, t| {
        let digest = if t % 3 == 0 { CostModel::default().digest() } else { t as u32 };
        liar.say(world, &differing(present(world), digest));
    });
    let after = *router(&world, HostId(0)).stats();
    let heard = after.accepted - before.accepted;
    assert!((200..=6 * 40 + 100).contains(&heard), "{heard} of 6,000");
    assert_eq!(after.spf_runs, before.spf_runs, "no route depends on it");
    let changes = router(&world, HostId(0)).differing_changes();
    assert!((1..=heard).contains(&changes), "{changes} of {heard}");
    assert!(router(&world, HostId(0)).differing().all(|node| node == LIAR));
    assert_eq!(outcome(&world, &made).missed.events, 0, "of 2,500 packets");
}

/// A batch with more routing frames than the queue to control holds: each one above that is counted
/// as a drop, and the packets behind them are still delivered.
#[test]
fn a_full_queue_to_control_costs_no_packet() {
    let (mut world, mut liar) = with_liar();
    let routing = link_state(&[]).repeat(380);
    let mut envelopes = [0, 1, 2, 3].map(|n| {
        let header = DataHeader {
            flow: FlowHeader {
                service: Service::BestEffort,
                metric: Metric::default(),
                source: LIAR,
                destination: NodeId(2),
                source_port: 5,
                destination_port: 9,
                flow_seq: n,
            },
            hop: HopHeader { recovered: false, hop_limit: 9, link_seq: n, remaining_ms: 0 },
        };
        let mut packet = [0; 64];
        let mut w = Writer::new(&mut packet);
        header.emit(0, &mut w).unwrap();
        liar.seal(&[&routing, w.written()].concat())
    });
    let from = liar.address();
    world.operate(VICTIM, |at, node| {
        let mut batch =
            envelopes.each_mut().map(|bytes| RxDatagram { at, from, local: None, bytes });
        node.recv(at, &mut batch, &mut Nobody);
    });
    let node = world.node(VICTIM);
    assert_eq!(node.stats().drops.get(DropReason::NoPort), 4, "all four packets arrived");
    let dropped = node.link(TO_LIAR).unwrap().stats().drops.get(DropReason::ControlFull);
    assert_eq!(dropped, 4 * 380 - 1_024);
}

/// Runs until `end`: the liar sends a hello every 100 ms, and `more` is called every ms.
fn keep_up(
    world: &mut World,
    liar: &mut Liar,
    end: u64,
    mut more: impl FnMut(&mut World, &mut Liar, u64),
) {
    let start = world.now().as_micros() / 1_000;
    for t in start + 1..=end {
        world.run_until(at(t));
        if t % 100 == 0 {
            liar.hello(world);
        }
        more(world, liar, t);
    }
}

fn router(world: &World, host: HostId) -> &Router {
    world.node(host).router().unwrap()
}

/// A sequence number for the current time, as an honest node would use.
fn present(world: &World) -> u64 {
    world.now().as_nanos()
}

#[test]
fn a_flood_of_lies_reaches_no_other_link() {
    let (mut world, mut liar) = with_liar();
    let made = calls(&mut world, (0, 2), RT, 5_000, 10, (at(5_100), 500));
    let before = *router(&world, VICTIM).stats();
    let (mut frames, mut newest) = (0, 0);
    keep_up(&mut world, &mut liar, 15_200, |world, liar, t| {
        // 2,000 own updates a second, each with different links; two forgeries in the names of
        // others; and old, reused and far-ahead numbers.
        let seq = present(world);
        for n in 0..2 {
            let to = [NodeId(2), NodeId(1_000 + (t % 50) as u32)];
            let own = liar.update(seq + n, &to);
            liar.say(world, &own);
        }
        newest = seq + 1;
        let forged =
            |origin, seq| link_state(&record(NodeId(origin), seq, &[LIAR], &identity(LIAR)));
        for lie in [
            forged(1, seq),
            forged(500 + (t % 1_000) as u32, seq),
            liar.update(seq - 1_000_000_000, &[NodeId(2)]),
            liar.update(u64::MAX, &[NodeId(2)]),
            link_state(&[0xff; 90]),
            vec![3, 0xff, 0xff, 1, 2, 3],
        ] {
            liar.say(world, &lie);
        }
        frames += 8;
    });
    assert_eq!(outcome(&world, &made).missed.events, 0, "of 5,000 packets");

    let of = |host: HostId| router(&world, host).stats();
    let refused = router(&world, VICTIM).refused(TO_LIAR);
    let news = of(VICTIM).accepted - before.accepted;
    assert!(
        news <= 40 * 11 + 10 + 20,
        "{news}: an origin's updates are believed 40 times a second"
    );
    for why in [
        RefusedRecord::TooFarAhead,
        RefusedRecord::OriginRate,
        RefusedRecord::Older,
        RefusedRecord::NeighbourRate,
    ] {
        assert!(refused.of(why) > 100, "{why:?}: {refused:?}");
    }
    assert!(refused.of(RefusedRecord::BadSignature) > 0, "{refused:?}");
    // A record that is too short or too long for its frame ends the envelope.
    let (_, link) = world.node(VICTIM).links().nth(2).unwrap();
    assert_eq!(link.stats().drops.get(DropReason::Malformed), frames / 8);
    // Each update was accepted, refused, or is still waiting.
    let at_most = frames / 8 * 7;
    let counted = refused.total() + news;
    assert!(counted <= at_most + 20 && counted + 512 >= at_most, "{counted} of {at_most}");
    // No other node had a reason to refuse anything, or learned of a node that doesn't exist.
    for host in [HostId(0), HostId(2)] {
        for why in [RefusedRecord::BadSignature, RefusedRecord::NeighbourRate] {
            assert_eq!(of(host).refused.of(why), 0, "{host:?} {why:?}");
        }
        assert!(of(host).accepted <= 40 * 15 + 50);
    }
    for host in [HostId(0), VICTIM, HostId(2)] {
        assert_eq!(router(&world, host).nodes(), 4);
        assert!(router(&world, host).records().count() <= 8);
    }
    // At 50 µs per signature, this is at most a twentieth of a processor.
    let checks = of(VICTIM).checks - before.checks;
    assert!(checks <= 1_000 * 11 + 2_000, "{checks} signatures");
    assert!(newest > 0);
}

#[test]
fn a_link_that_its_other_end_denies_attracts_nothing() {
    let (mut world, mut liar) = with_liar();
    // Two links of 10 ms lead to node 3, and the liar claims to have one of 0.1 ms.
    let seq = present(&world);
    let lie = liar.update(seq, &[NodeId(2), NodeId(3)]);
    liar.say(&mut world, &lie);
    keep_up(&mut world, &mut liar, 7_000, |_, _, _| {});
    let of_liar = |world: &World| {
        let records = router(world, HostId(0)).records();
        records.filter(|(key, ..)| key.origin == LIAR).map(|(_, _, links)| links.len()).max()
    };
    assert_eq!(of_liar(&world), Some(2), "everyone has been told");
    for host in [HostId(0), VICTIM] {
        assert_eq!(router(&world, host).stats().denied, 1);
        for metric in Metric::ALL {
            let route = router(&world, host).route(NodeId(3), metric).unwrap();
            assert!(!route.path.contains(&LIAR), "{route:?}");
        }
    }
    // A link advertised by both ends exists, which shows that the lie was processed.
    assert!(router(&world, HostId(0)).route(LIAR, Metric::Latency).is_some());
}

#[test]
fn numbers_that_are_reused_or_wrap_change_nothing() {
    let (mut world, mut liar) = with_liar();
    let here = |world: &World| {
        let records = router(world, VICTIM).records();
        let own = records.filter(|(key, ..)| key.origin == LIAR);
        own.map(|(_, seq, links)| (seq, links.len())).max_by_key(|&(_, links)| links).unwrap()
    };
    let seq = present(&world);
    let refused = |world: &World, why| router(world, VICTIM).refused(TO_LIAR).of(why);
    let first = liar.update(seq, &[NodeId(2), NodeId(3)]);
    liar.say(&mut world, &first);
    keep_up(&mut world, &mut liar, 5_200, |_, _, _| {});
    assert_eq!(here(&world), (seq, 2));
    // Another record with the same number, with the greatest number, and with the number after
    // that.
    for (number, why) in [
        (seq, RefusedRecord::Reused),
        (u64::MAX, RefusedRecord::TooFarAhead),
        (0, RefusedRecord::Older),
    ] {
        let before = refused(&world, why);
        let lie = liar.update(number, &[NodeId(2)]);
        liar.say(&mut world, &lie);
        keep_up_a_while(&mut world, &mut liar);
        assert_eq!(refused(&world, why), before + 1, "{why:?}");
        assert_eq!(here(&world), (seq, 2));
    }
    // An update with the next number is accepted.
    let next = liar.update(seq + 1, &[NodeId(2)]);
    liar.say(&mut world, &next);
    keep_up_a_while(&mut world, &mut liar);
    assert_eq!(here(&world), (seq + 1, 1));
}

fn keep_up_a_while(world: &mut World, liar: &mut Liar) {
    let end = world.now().as_micros() / 1_000 + 200;
    keep_up(world, liar, end, |_, _, _| {});
}

#[test]
fn a_revoked_node_is_out() {
    let (mut world, mut liar) = with_liar();
    let seq = present(&world);
    let update = liar.update(seq, &[NodeId(2)]);
    liar.say(&mut world, &update);
    keep_up_a_while(&mut world, &mut liar);
    assert_eq!(router(&world, HostId(2)).nodes(), 4);
    let made = calls(&mut world, (0, 2), RT, 5_000, 5, (at(5_500), 500));
    keep_up(&mut world, &mut liar, 6_000, |_, _, _| {});
    for host in [HostId(0), VICTIM, HostId(2)] {
        let revoked = vec![identity(LIAR).public()];
        let trust = Trust { overlay_keys: vec![liar::operator().public()], revoked };
        world.operate(host, |now, node| {
            node.reconfigure(
                now,
                &Changes { trust: Some((trust, Vec::new())), ..Changes::default() },
            );
        });
    }
    let seq = seq + 1;
    keep_up(&mut world, &mut liar, 10_000, |world, liar, _| {
        let update = liar.update(seq, &[NodeId(2)]);
        liar.say(world, &update);
    });
    let (_, link) = world.node(VICTIM).links().nth(2).unwrap();
    assert!(!link.is_ready() && !link.monitor().is_up());
    let drops = |world: &World| {
        let link = world.node(VICTIM).link(TO_LIAR).unwrap().stats().drops;
        let node = world.node(VICTIM).stats().drops;
        link.get(DropReason::NoSession) + node.get(DropReason::UnknownReceiver)
    };
    assert_eq!(drops(&world), 4_000 + 40, "every envelope of it");
    for host in [HostId(0), VICTIM, HostId(2)] {
        assert_eq!(router(&world, host).nodes(), 3, "{host:?} has forgotten it");
    }
    let before = world.node(VICTIM).control().handshakes().unwrap().clone();
    let mut again = Liar::new(LIAR, "", (VICTIM, NodeId(2)));
    world.run_until(at(20_000));
    assert!(!again.greet(&mut world));
    let after = world.node(VICTIM).control().handshakes().unwrap();
    let revoked = handshake::RefusedHandshake::Revoked;
    assert_eq!(after.refused(revoked), before.refused(revoked) + 1);
    assert_eq!(outcome(&world, &made).missed.events, 0);
}

/// An operator removes the wrong key and restores it: all routes return at once, although no
/// neighbour retransmits updates that were acknowledged before.
#[test]
fn trust_that_is_given_back_brings_back_who_it_was_taken_from() {
    let keys = || vec![liar::operator().public()];
    let revoked = Trust { overlay_keys: keys(), revoked: vec![identity(NodeId(1)).public()] };
    for (mistake, left) in [(revoked, 2), (Trust::default(), 1)] {
        let mut world = row().build(1).unwrap();
        world.run_until(at(3_000));
        let right = Trust { overlay_keys: keys(), revoked: Vec::new() };
        for (trust, nodes) in [(mistake, left), (right, 3)] {
            let changes = Changes { trust: Some((trust, Vec::new())), ..Changes::default() };
            world.operate(HostId(2), |now, node| node.reconfigure(now, &changes));
            let end = world.now() + ms(4_000);
            world.run_until(end);
            assert_eq!(router(&world, HostId(2)).nodes(), nodes);
        }
        // A link that was just dead is not used at once.
        let end = world.now() + ms(60_000);
        world.run_until(end);
        let route = router(&world, HostId(2)).route(NodeId(1), Metric::Hops).unwrap();
        assert_eq!(route.path.len(), 3);
    }
}

/// One certified node may have several paths, but may not take all slots.
#[test]
fn a_newcomer_leaves_room_for_others() {
    let mut t = row();
    t.config_mut(VICTIM).sealing.as_mut().unwrap().unconfigured_peers = 16;
    let mut world = t.build(1).unwrap();
    world.run_until(at(1_000));
    let mut taken = 0;
    for path in 0..40 {
        world.run_until(at(1_000 + 1_000 * (path + 1)));
        let mut greedy = Liar::new(LIAR, &format!("path {path}"), (VICTIM, NodeId(2)));
        taken += usize::from(greedy.greet(&mut world));
    }
    assert!((1..=8).contains(&taken), "{taken} of 16 places for one node");
    assert_eq!(world.node(VICTIM).links().count(), 2 + taken);
    let full = world.node(VICTIM).control().handshakes().unwrap();
    assert!(full.refused(handshake::RefusedHandshake::UnconfiguredPeersFull) >= 40 - taken as u64);
    assert!(Liar::new(NodeId(67), "", (VICTIM, NodeId(2))).greet(&mut world), "another node");
    // None of them has sent anything else, so their slots are free after five minutes.
    world.run_until(at(300_000));
    assert_eq!(world.node(VICTIM).links().count(), 2 + taken + 1);
    world.run_until(at(345_000));
    assert_eq!(world.node(VICTIM).links().count(), 2);
}

#[test]
fn an_unsealed_node_and_a_sealed_one_never_link() {
    for sealed in [HostId(0), HostId(1)] {
        let mut t = Topology::new();
        let hosts = [t.host(NodeId(1)), t.host(NodeId(2))];
        t.link(hosts[0], hosts[1], link(ms(10), Loss::None), link(ms(10), Loss::None));
        t.seal();
        let open = hosts[1 - sealed.0 as usize];
        t.config_mut(open).sealing = None;
        let mut world = t.build(1).unwrap();
        world.run_until(at(30_000));
        for host in [sealed, open] {
            let node = world.node(host);
            let (_, link) = node.links().next().unwrap();
            assert!(!link.monitor().is_up(), "{host:?}");
            assert_eq!(link.stats().received.envelopes, 0);
            assert!(
                node.stats().drops.get(DropReason::UnknownReceiver) > 0,
                "{host:?} says why not"
            );
        }
        let (_, link) = world.node(sealed).links().next().unwrap();
        assert_eq!(link.stats().hellos.envelopes, 0, "nothing in the clear");
    }
}

#[derive(Clone, Default)]
struct Recording(Rc<RefCell<Vec<u8>>>);

impl Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Recording {
    /// Captured datagrams that arrived from `from`.
    fn datagrams(&self, from: SocketAddr) -> Vec<Vec<u8>> {
        let file = self.0.borrow();
        let mut reader = PcapNgReader::new(&file[..]).unwrap();
        let mut all = Vec::new();
        while let Some(block) = reader.next_block() {
            // An IPv4 header without options, then UDP.
            if let Ok(Block::EnhancedPacket(packet)) = block
                && packet.data[20..22] == from.port().to_be_bytes()
                && SocketAddr::from(([12, 13, 14, 15].map(|i| packet.data[i]), from.port())) == from
            {
                all.push(packet.data[28..].to_vec());
            }
        }
        all
    }
}

/// All datagrams that node 1 ever sent to the victim are replayed three times: before the victim
/// restarts, right after that, when it has forgotten all sessions, and later.
#[test]
fn whole_sessions_sent_again_change_nothing() {
    let run = |replay: bool| {
        let mut world = row().build(1).unwrap();
        let recording = Recording::default();
        world.capture(WireId(0), WireEnd::Second, recording.clone()).unwrap();
        let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(110_000), 4_500));
        let from = address(HostId(0), 0);
        let mut sent = 0;
        let mut again = |world: &mut World| {
            if replay {
                let all = recording.datagrams(from);
                assert!(all.len() > 1_000, "{} datagrams", all.len());
                sent += all.len() as u64;
                all.iter().for_each(|bytes| throw(world, VICTIM, from, bytes));
            }
        };
        // Sessions are renewed every two minutes.
        world.run_until(at(130_000));
        again(&mut world);
        world.run_until(at(131_000));
        let first = refused(&world);
        world.restart(VICTIM).unwrap();
        again(&mut world);
        world.run_until(at(150_000));
        again(&mut world);
        world.run_until(at(204_000));
        (
            outcome(&world, &made).missed.events,
            sent,
            first,
            refused(&world),
            world.node(VICTIM).links().count(),
        )
    };
    let (missed, ..) = run(false);
    let (missed_too, sent, first, after, links) = run(true);
    println!("{missed} and {missed_too} missed over the restart; {sent} sent again");
    // The first replayed handshake is answered, but its keys are never used: the next attempt
    // follows 250 ms later.
    assert!(missed_too <= missed + 18, "{missed_too} missed, {missed} without");
    // The restarted node may have answered the two handshakes that it had forgotten, but no other
    // replayed datagram.
    assert!(first + after + 2 >= sent, "{} of {sent} counted", first + after);
    assert_eq!(links, 2);
}

/// Number of datagrams that the victim has refused, for any reason.
fn refused(world: &World) -> u64 {
    let node = world.node(VICTIM);
    let drops = |d: trunkline_overlay::counters::Drops| -> u64 {
        DropReason::ALL.map(|w| d.get(w)).iter().sum()
    };
    let links: u64 = node.links().map(|(_, l)| drops(l.stats().drops)).sum();
    let shakes: u64 = node.control().handshakes().unwrap().refusals().map(|(_, n)| n).sum();
    links + drops(node.stats().drops) + shakes
}
