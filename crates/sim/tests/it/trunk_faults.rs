//! Trunks with misbehaving paths, ends, operators and applications.

use crate::common::*;
use rand::Rng as _;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Chain, LinkModel, Loss};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::node::Changes;
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::trunk::{Config, Multiplex};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::{Call, VoiceSink, VoiceSource};
use trunkline_sim::{AppId, Application, HostId, Io, Topology, WireEnd, WireId, World};

const FAR: NodeId = NodeId(3);

/// Three nodes in a row, 10 ms apart, with a trunk from the first to the last.
fn row(trunk: Config, loss: &Loss) -> World {
    let mut t = Topology::chain([link(ms(10), loss.clone()), link(ms(10), loss.clone())]);
    t.config_mut(HostId(0)).trunks.push(trunk);
    t.build(5).unwrap()
}

fn trunk(world: &World) -> trunkline_overlay::node::Trunk {
    world.node(HostId(0)).trunks(world.now()).next().expect("a trunk")
}

/// A call with `bytes` every 20 ms.
fn call(world: &mut World, port: u16, bytes: usize, start: Time, count: u64) -> Call {
    let mut source = VoiceSource::new(FAR, port, RT, start, count);
    source.bytes = bytes;
    let sink = world.attach(HostId(2), port, VoiceSink::default()).unwrap();
    (world.attach(HostId(0), 0, source).unwrap(), sink)
}

/// `n` calls of G.729, spread over 20 ms.
fn g729(world: &mut World, n: u16, first_port: u16, start: Time, count: u64) -> Vec<Call> {
    (0..n)
        .map(|k| {
            let start = start + ms(20) * u32::from(k) / u32::from(n);
            call(world, first_port + k, 32, start, count)
        })
        .collect()
}

fn refused(world: &World, calls: &[Call]) -> u64 {
    calls.iter().map(|c| world.app(c.0).refused()).sum()
}

fn share() -> Config {
    Config { admit_share: true, ..Config::new(FAR) }
}

/// Too many calls for a lossy path, and all but a few hang up: later calls are not refused because
/// of the earlier traffic, nor while a single remaining call shares packets with no other.
#[test]
fn a_trunk_that_was_over_its_share_takes_calls_when_the_others_have_ended() {
    for (remains, n) in [(0, 450), (0, 451), (0, 452), (0, 453), (0, 454), (1, 453), (2, 454)] {
        let mut world = row(share(), &uniform(0.02));
        g729(&mut world, 200, 5_000, at(1_000), n);
        g729(&mut world, remains, 6_000, at(1_000), 1_500);
        world.run_until(at(8_000));
        assert!(trunk(&world).is_over_share, "{:?}", trunk(&world));
        let late = g729(&mut world, 5, 7_000, at(20_000), 200);
        world.run_until(at(25_000));
        assert_eq!(refused(&world, &late), 0, "{remains}, {n}: {:?}", trunk(&world));
    }
}

/// Existing calls continue, whatever they send and whichever node was silent meanwhile.
#[test]
fn calls_that_are_there_go_on_over_the_share() {
    let mut world = row(share(), &uniform(0.02));
    let mut made = g729(&mut world, 200, 5_000, at(1_000), 1_500);
    made.push(call(&mut world, 6_000, 1_180, at(1_000), 1_500));
    world.run_until(at(8_000));
    assert!(trunk(&world).is_over_share, "{:?}", trunk(&world));
    // The far end is away for so long that its earlier answer has expired.
    world.crash(HostId(2));
    world.run_until(at(15_000));
    world.restart(HostId(2)).unwrap();
    world.run_until(at(32_000));
    assert_eq!(refused(&world, &made), 0, "{:?}", trunk(&world));
}

/// After a reload, reports are expected at the new trunk's interval, and count as missing only by
/// that.
#[test]
fn a_trunk_that_was_reloaded_knows_how_often_reports_come() {
    let tfmc = Config { multiplex: Multiplex::Tfmc, ..share() };
    let mut t = Topology::chain([link(ms(2), Loss::None), link(ms(2), Loss::None)]);
    t.config_mut(HostId(0)).trunks.push(tfmc);
    let mut world = t.build(5).unwrap();
    let made = g729(&mut world, 100, 5_000, at(1_000), 900);
    world.run_until(at(5_000));
    let changes = Changes { trunks: Some(vec![share()]), ..Changes::default() };
    world.operate(HostId(0), |now, node| node.reconfigure(now, &changes));
    for t in (6_000..15_000).step_by(100) {
        world.run_until(at(t));
        let trunk = trunk(&world);
        assert!(trunk.share.is_none() && !trunk.is_over_share, "{t}: {trunk:?}");
    }
    let late = g729(&mut world, 5, 7_000, at(15_100), 50);
    world.run_until(at(20_000));
    assert_eq!((refused(&world, &late), refused(&world, &made)), (0, 0));
}

/// Sends real-time packets to one port of the far node.
struct Sender {
    port: u16,
    deadline_ms: u8,
    payload: Vec<u8>,
    every: Duration,
    until: Time,
}

impl Application for Sender {
    fn start(&mut self, io: &mut Io<'_>) {
        io.wake_at(at(1_000));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let &mut Sender { port, deadline_ms, ref payload, every, until } = self;
        io.send(&ToNode::Send { service: RT, deadline_ms, to: FAR, port, payload });
        if io.now() < until {
            io.wake_at(io.now() + every);
        }
    }

    fn receive(&mut self, _: &ToClient<'_>, _: &mut Io<'_>) {}
}

/// An application that sends to the far node itself, with too short a deadline, or without a
/// payload.
#[test]
fn what_one_application_sends_costs_others_nothing() {
    for (port, deadline_ms, len) in [
        (9_000, 100, 0),
        (9_000, 0, 32),
        (9_000, 1, 32),
        (9_000, 15, 32),
        (0, 100, 32),
        (0, 100, 0),
    ] {
        let mut world = row(Config::new(FAR), &Loss::None);
        let made = g729(&mut world, 20, 5_000, at(1_000), 450);
        let (payload, every, until) = (vec![5; len], ms(1), at(10_000));
        world.attach(HostId(0), 0, Sender { port, deadline_ms, payload, every, until }).unwrap();
        world.run_until(at(12_000));
        let outcome = outcome(&world, &made);
        let drops = world.node(HostId(2)).stats().drops;
        let got = (outcome.sent, outcome.lost, outcome.late, outcome.duplicates);
        assert_eq!(got, (9_000, 0, 0, 0), "port {port}, {deadline_ms} ms, {len} bytes: {drops:?}");
        assert_eq!(drops.get(DropReason::Malformed), 0);
    }
}

/// Packets with time for recovery are recovered, even in one envelope with packets without.
#[test]
fn a_short_deadline_is_its_own() {
    let mut missed = Vec::new();
    for with in [false, true] {
        let mut world = row(Config::new(FAR), &uniform(0.05));
        let made = g729(&mut world, 20, 5_000, at(1_000), 950);
        if with {
            let (payload, every, until) = (vec![0; 32], ms(1), at(20_000));
            let hasty = Sender { port: 9_000, deadline_ms: 25, payload, every, until };
            world.attach(HostId(0), 0, hasty).unwrap();
        }
        world.run_until(at(22_000));
        let outcome = outcome(&world, &made);
        missed.push(outcome.lost + outcome.late);
    }
    assert!(missed[1] < 2 * missed[0] + 50, "{missed:?}");
}

/// Sends packets that contain their ports and their number in the flow.
struct Churner {
    own: u16,
    sent: BTreeMap<u16, u32>,
    phase_ms: u64,
    k: u64,
}

const PORTS: u16 = 100;
const A_TIME: u16 = 43;

impl Application for Churner {
    fn start(&mut self, io: &mut Io<'_>) {
        io.wake_at(at(1_000) + Duration::from_micros(113) * u32::from(self.own));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let phase = io.now().as_nanos() / 1_000_000 / self.phase_ms;
        let to = (self.k % u64::from(A_TIME)) as u16 + A_TIME * (phase % 50) as u16;
        let port = 9_000 + (self.own * 37 + to) % PORTS;
        self.k += 1;
        let number = self.sent.entry(port).or_default();
        *number += 1;
        let mut payload = [&self.own.to_be_bytes()[..], &port.to_be_bytes()].concat();
        payload.extend(number.to_be_bytes());
        io.send(&ToNode::Send { service: RT, deadline_ms: 100, to: FAR, port, payload: &payload });
        io.wake_at(io.now() + ms(20));
    }

    fn receive(&mut self, _: &ToClient<'_>, _: &mut Io<'_>) {}
}

/// Asserts that every packet that arrives is addressed to it.
struct Strict {
    own: u16,
    /// Difference between a packet's flow sequence and its own number, by source port.
    numbers: BTreeMap<u16, u16>,
    heard: u64,
    renumbered: u64,
}

impl Application for Strict {
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        let &ToClient::Received { flow_seq, from, port, payload, .. } = message else { return };
        let be = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
        assert_eq!((from, port, self.own), (NodeId(1), be(0), be(2)), "at {:?}", io.now());
        let off = flow_seq.wrapping_sub(be(6));
        self.renumbered += u64::from(self.numbers.insert(port, off).is_some_and(|o| o != off));
        self.heard += 1;
    }
}

fn churn(world: &mut World, phase_ms: u64) -> Vec<AppId<Strict>> {
    let sinks = (0..PORTS).map(|n| {
        let own = 9_000 + n;
        world
            .attach(
                HostId(2),
                own,
                Strict { own, numbers: Default::default(), heard: 0, renumbered: 0 },
            )
            .unwrap()
    });
    let sinks = sinks.collect();
    for own in 1..=PORTS {
        let sent = Default::default();
        world.attach(HostId(0), own, Churner { own, sent, phase_ms, k: 0 }).unwrap();
    }
    sinks
}

fn wrong_numbers(world: &World, sinks: &[AppId<Strict>]) -> u64 {
    sinks.iter().map(|sink| world.app(*sink).renumbered).sum()
}

/// More than 4,000 flows at a time, replaced every seven seconds, over wires that lose 35 % and
/// reorder.
#[test]
fn contexts_that_change_on_a_bad_path_bring_nothing_to_a_wrong_port() {
    let loss = Loss::Burst { p: 0.35, b: 0.75, chain: Chain::PerPacket };
    let model = LinkModel { jitter: ms(30), ..link(ms(10), loss) };
    let mut t = Topology::chain([model.clone(), model]);
    t.config_mut(HostId(0)).trunks.push(Config::new(FAR));
    let mut world = t.build(6).unwrap();
    let sinks = churn(&mut world, 7_000);
    world.run_until(at(36_000));
    let heard: u64 = sinks.iter().map(|sink| world.app(*sink).heard).sum();
    assert!(heard > 60_000, "{heard}");
    assert_eq!(wrong_numbers(&world, &sinks), 0);
    assert!(trunk(&world).stats.packets > 40_000, "{:?}", trunk(&world));
}

const HOSTS: [HostId; 3] = [HostId(0), HostId(1), HostId(2)];
const WIRES: [WireId; 2] = [WireId(0), WireId(1)];
const ENDS: [WireEnd; 2] = [WireEnd::First, WireEnd::Second];

fn mend(world: &mut World, wire: WireId) {
    world.mend(wire);
    ENDS.into_iter().for_each(|end| world.change(wire, end, link(ms(10), Loss::None)).unwrap());
}

fn start_all(world: &mut World) {
    for host in HOSTS {
        if world.is_down(host) {
            world.restart(host).unwrap();
        }
    }
}

fn reload(world: &mut World, host: HostId, trunks: Vec<Config>) {
    let changes = Changes { trunks: Some(trunks), ..Changes::default() };
    if !world.is_down(host) {
        world.operate(host, |now, node| node.reconfigure(now, &changes));
    }
}

/// Causes a random fault of a wire or node.
fn fault(world: &mut World, pick: &mut impl FnMut(u32) -> u32) {
    let (wire, end) = (WIRES[pick(2) as usize], ENDS[pick(2) as usize]);
    let host = HOSTS[pick(3) as usize];
    match pick(10) {
        0 => world.cut(wire),
        1 => world.blackhole(wire, end),
        2 | 3 => {
            let p = 0.05 * f64::from(1 + pick(12));
            let loss = Loss::Burst { p, b: 0.75, chain: Chain::PerPacket };
            world.change(wire, end, link(ms(10), loss)).unwrap();
        }
        4 => {
            let delay = ms(u64::from(pick(200)));
            let model = LinkModel { delay, jitter: ms(30), ..LinkModel::default() };
            world.change(wire, end, model).unwrap();
        }
        5 | 6 => mend(world, wire),
        7 if pick(3) == 0 => world.crash(host),
        8 if pick(3) == 0 => world.stall(host, world.now() + ms(u64::from(pick(8_000)))),
        _ => start_all(world),
    }
}

/// Applies a random configuration of trunks.
fn operate(world: &mut World, pick: &mut impl FnMut(u32) -> u32) {
    let host = HostId(2 * pick(2));
    let all = [Multiplex::Fill, Multiplex::Tfmc, Multiplex::Off];
    let trunk = Config {
        multiplex: all[pick(3) as usize],
        wait: ms(u64::from(pick(11))),
        admit_share: pick(3) == 0,
        ..Config::new(NodeId(3 - host.0))
    };
    // Trunks to the other end, to the node in between, and to a node that doesn't exist.
    let trunks = [(trunk, 4), (Config::new(NodeId(2)), 2), (Config::new(NodeId(77)), 2)];
    let trunks = trunks.into_iter().filter(|(_, of)| pick(*of) > 0).map(|(trunk, _)| trunk);
    let trunks = trunks.collect();
    reload(world, host, trunks);
}

/// Random faults of wires, nodes and operators; once they have ended, calls lose nothing.
#[test]
fn whatever_happens_to_a_trunk_calls_go_on_in_peace() {
    for seed in 0..2u64 {
        let mut rng = trunkline_base::rng(seed, 0x7a);
        let mut pick = move |of: u32| rng.next_u32() % of;
        let mut t = Topology::chain([link(ms(10), Loss::None), link(ms(10), Loss::None)]);
        if seed % 2 == 0 {
            t.seal();
        }
        let mut world = t.build(seed).unwrap();
        let peace = |world: &mut World| {
            reload(world, HostId(0), vec![Config::new(FAR)]);
            reload(world, HostId(2), vec![Config::new(NodeId(1))]);
        };
        peace(&mut world);
        churn(&mut world, 7_000);
        g729(&mut world, 60, 5_000, at(1_000), 2_000);
        calls(&mut world, (2, 0), RT, 20_000, 20, (at(1_000), 2_000));
        while world.now() < at(30_000) {
            let end = world.now() + ms(20 + u64::from(pick(300)));
            world.run_until(end);
            match pick(6) {
                0 => operate(&mut world, &mut pick),
                _ => fault(&mut world, &mut pick),
            }
        }
        // All stalls have ended by then.
        world.run_until(at(39_000));
        start_all(&mut world);
        WIRES.into_iter().for_each(|wire| mend(&mut world, wire));
        peace(&mut world);
        world.run_until(at(50_000));
        let late = g729(&mut world, 60, 8_000, at(50_000), 250);
        world.run_until(at(57_000));
        let outcome = outcome(&world, &late);
        assert_eq!((outcome.lost, outcome.late, refused(&world, &late)), (0, 0, 0), "{seed}");
        assert!(trunk(&world).stats.packets > 10_000, "{:?}", trunk(&world));
        for node in HOSTS.map(|host| world.node(host)) {
            let all = node.links().map(|(_, l)| l.stats().drops).chain([node.stats().drops]);
            assert!(all.map(|d| d.get(DropReason::Malformed)).all(|n| n == 0), "{seed}");
        }
    }
}

/// The second link has a smaller MTU than the first node's link.
#[test]
fn what_a_link_further_on_does_not_carry() {
    let mut t = Topology::new();
    let h = [1, 2, 3].map(|n| t.host(NodeId(n)));
    for (at, mtu) in [(0, 1_500), (1, 1_280)] {
        t.link_with(h[at], h[at + 1], link(ms(10), Loss::None), link(ms(10), Loss::None), |c| {
            c.mtu = mtu;
        });
    }
    t.route_all();
    t.config_mut(HostId(0)).trunks.push(Config::new(FAR));
    let mut world = t.build(5).unwrap();
    let made = g729(&mut world, 600, 5_000, at(1_000), 250);
    world.run_until(at(8_000));
    let outcome = outcome(&world, &made);
    assert_eq!((outcome.sent, outcome.lost), (150_000, 0), "{:?}", trunk(&world));
}

/// Two thousand flows that begin in the same 20 ms.
#[test]
fn many_flows_begin_at_once() {
    let mut world = row(Config::new(FAR), &uniform(0.02));
    let made = g729(&mut world, 2_000, 5_000, at(1_000), 100);
    world.run_until(at(5_000));
    let outcome = outcome(&world, &made);
    assert!(outcome.lost + outcome.late < 200, "{} {}", outcome.lost, outcome.late);
}
