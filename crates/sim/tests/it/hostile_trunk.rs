//! A member that lies about trunks, in the names of others: an honest trunk continues, and the
//! traffic that the lies cause is bounded.

use crate::common::liar::Liar;
use crate::common::{RT, at, calls, link, ms, outcome};
use trunkline_base::link_model::Loss;
use trunkline_base::wire::Writer;
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::node::{MAX_RECEIVING, Routing};
use trunkline_overlay::trunk::{Answer, Config, Head, Message, State, TRUNK_VERSION};
use trunkline_overlay::wire::{DataHeader, FlowHeader, HopHeader, Metric, NodeId, Service};
use trunkline_rate::tfmc::Feedback;
use trunkline_sim::voice::Call;
use trunkline_sim::{HostId, Topology, World};

const LIAR: NodeId = NodeId(66);
const VICTIM: HostId = HostId(1);

/// Nodes 1, 2 and 3 in a row, with a trunk from 1 to 3, and a liar as neighbour of node 2.
fn world() -> (World, Liar) {
    let model = || link(ms(10), Loss::None);
    let mut t = Topology::new();
    let hosts = [1, 2, 3].map(|n| t.host(NodeId(n)));
    t.link(hosts[0], hosts[1], model(), model());
    t.link(hosts[1], hosts[2], model(), model());
    t.seal();
    t.link_state(&Routing::default());
    t.config_mut(VICTIM).sealing.as_mut().unwrap().unconfigured_peers = 3;
    let share = Config { admit_share: true, ..Config::new(NodeId(3)) };
    t.config_mut(hosts[0]).trunks.push(share);
    let mut world = t.build(1).unwrap();
    world.run_until(at(3_000));
    let mut liar = Liar::new(LIAR, "", (VICTIM, NodeId(2)));
    assert!(liar.greet(&mut world));
    (world, liar)
}

fn trunk(world: &World) -> trunkline_overlay::node::Trunk {
    world.node(HostId(0)).trunks(world.now()).next().expect("a trunk")
}

/// A data frame from `source`, as the `n`th on this link.
fn frame(n: u16, source: NodeId, destination: NodeId, payload: &[u8]) -> Vec<u8> {
    let header = DataHeader {
        flow: FlowHeader {
            service: Service::RealTime,
            metric: Metric::default(),
            source,
            destination,
            source_port: 0,
            destination_port: 0,
            flow_seq: n,
        },
        hop: HopHeader { recovered: false, hop_limit: 9, link_seq: n, remaining_ms: 200 },
    };
    let mut head = [0; 64];
    let mut w = Writer::new(&mut head);
    header.emit(payload.len() as u16, &mut w).unwrap();
    [w.written(), payload].concat()
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = [0; 32];
    let mut w = Writer::new(&mut bytes);
    message.emit(&mut w).unwrap();
    w.written().to_vec()
}

/// Runs twenty calls of 10 s from node 1 to node 3, while the liar sends `per_ms` packets every
/// millisecond from 5 s on.
fn attack(
    per_ms: u64,
    mut what: impl FnMut(u64) -> (NodeId, NodeId, Vec<u8>),
) -> (World, Vec<Call>) {
    let (mut world, mut liar) = world();
    let made = calls(&mut world, (0, 2), RT, 5_000, 20, (at(4_000), 500));
    let mut n = 0u64;
    for t in 3_001..=16_000 {
        world.run_until(at(t));
        if t % 100 == 0 {
            liar.hello(&mut world);
        }
        if t < 5_000 {
            continue;
        }
        let frames: Vec<Vec<u8>> = (0..per_ms)
            .map(|_| {
                n += 1;
                let (from, to, payload) = what(n);
                frame(n as u16, from, to, &payload)
            })
            .collect();
        frames.chunks(15).for_each(|f| liar.say(&mut world, &f.concat()));
        assert!(world.node(HostId(2)).receiving(world.now()).count() <= MAX_RECEIVING);
    }
    (world, made)
}

fn ask(generation: u16, report_ms: u16) -> Vec<u8> {
    let version = TRUNK_VERSION;
    bytes(&Message::Ask { version, generation, report_ms, rtt: None })
}

/// Twenty thousand requests a second from invented nodes.
#[test]
fn questions_from_invented_nodes_end_no_trunk() {
    let (world, made) =
        attack(20, |n| (NodeId(1_000 + n as u32 % 10_000), NodeId(3), ask(n as u16, 1)));
    let outcome = outcome(&world, &made);
    let far = world.node(HostId(2));
    assert_eq!((outcome.lost, outcome.late), (0, 0));
    let trunk = trunk(&world);
    assert_eq!((trunk.state, trunk.stats.unanswered), (State::Open, 0), "{trunk:?}");
    assert_eq!(far.receiving(world.now()).count(), MAX_RECEIVING);
    assert!(far.stats().drops.get(DropReason::EchoLimit) > 200_000);
    let (_, towards) = far.links().next().unwrap();
    assert!(towards.stats().sent().envelopes < 11 * (130 + 100 + 50), "answers");
}

/// Packets of generations without a preceding request, with all kinds of entries.
#[test]
fn packets_of_nobodys_trunk_end_no_trunk() {
    let (world, made) = attack(20, |n| {
        let head = Head { entries: n as u8, generation: n as u16, number: 9, remaining_ms: 9 };
        let from = if n % 2 == 0 { NodeId(1) } else { NodeId(1_000 + n as u32 % 100) };
        (from, NodeId(3), [&head.bytes()[..], &[n as u8; 40]].concat())
    });
    let outcome = outcome(&world, &made);
    let trunk = trunk(&world);
    assert_eq!((trunk.state, trunk.stats.unanswered), (State::Open, 0), "{trunk:?}");
    assert_eq!((outcome.lost, outcome.late), (0, 0));
}

/// Answers and reports to the honest sender, apparently from its far end.
#[test]
fn answers_and_reports_by_others_stop_nothing() {
    let (world, made) = attack(20, |n| {
        let (version, generation) = (TRUNK_VERSION, n as u16);
        let number = (n / 65_536 * 37) as u32;
        let report = Feedback { number, elapsed: ms(0), loss: 1.0 };
        let all = [Answer::Refused, Answer::Fresh, Answer::Unknown, Answer::Known];
        let answer = all[(n / 65_536) as usize % 4];
        let message = match n % 2 {
            0 => Message::Answer { version, generation, answer, latest: n as u8 },
            _ => Message::Report { version, generation, report },
        };
        (NodeId(3), NodeId(1), bytes(&message))
    });
    let outcome = outcome(&world, &made);
    let trunk = trunk(&world);
    assert_eq!((outcome.lost, outcome.late), (0, 0));
    // One in 65,536 guesses is right, and costs at most a second.
    assert!(trunk.stats.unanswered < 4 * 1_100, "{trunk:?}");
    assert_eq!(made.iter().map(|c| world.app(c.0).refused()).sum::<u64>(), 0);
}

/// Requests in the name of an honest sender, which would make the far end forget that sender's
/// trunk.
#[test]
fn questions_in_the_name_of_an_honest_node_end_no_trunk() {
    for every in [1u64, 100, 310] {
        let (world, made) = attack(1, |n| {
            let what = if n % every == 0 { ask(n as u16, 1) } else { vec![99; 8] };
            (NodeId(1), NodeId(3), what)
        });
        let outcome = outcome(&world, &made);
        assert_eq!((outcome.lost, outcome.late), (0, 0), "{every} ms");
        let trunk = trunk(&world);
        assert_eq!((trunk.state, trunk.stats.unanswered), (State::Open, 0), "{trunk:?}");
    }
}

/// Packets in the name of the honest sender, one for each generation, with numbers far ahead: once
/// the liar is silent, losses are reported again and new calls are admitted.
#[test]
fn numbers_far_ahead_stop_no_reports() {
    // The liar is active for 65,536 packets from 5 s on.
    let (mut world, made) = attack(20, |n| {
        let lies = n <= 65_536;
        let (number, to) = if lies { (1 << 22, NodeId(3)) } else { (0, NodeId(77)) };
        let head = Head { entries: 1, generation: n as u16, number, remaining_ms: 9 };
        (NodeId(1), to, [&head.bytes()[..], &[0; 4]].concat())
    });
    let honest = outcome(&world, &made);
    assert_eq!((honest.lost, honest.late), (0, 0));
    let mut seen = Vec::new();
    for (k, from) in [(0u16, 17_000), (1, 60_000)] {
        let calls = calls(&mut world, (0, 2), RT, 6_000 + 100 * k, 20, (at(from), 400));
        world.run_until(at(from + 4_000));
        let late = self::calls(&mut world, (0, 2), RT, 6_050 + 100 * k, 5, (at(from + 4_000), 50));
        world.run_until(at(from + 9_000));
        let refused: u64 = calls.iter().chain(&late).map(|c| world.app(c.0).refused()).sum();
        seen.push((from, refused));
    }
    assert!(seen.iter().all(|(_, refused)| *refused == 0), "{seen:?}");
}
