//! Trunks whose paths, ends, operators and applications do what they shouldn't.

mod common;

use common::*;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Loss;
use trunkline_overlay::counters::Drop;
use trunkline_overlay::node::Changes;
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::trunk::{Config, Multiplex};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::{Call, VoiceSink, VoiceSource};
use trunkline_sim::{Application, HostId, Io, Topology, World};

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

/// A call of `bytes` each 20 ms.
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

/// Too many calls for a lossy path, and all hang up: whoever calls then is not refused
/// for what others sent, nor while one that nobody shares with goes on.
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

/// Those that are there go on, whatever they send and whoever was silent meanwhile.
#[test]
fn calls_that_are_there_go_on_over_the_share() {
    let mut world = row(share(), &uniform(0.02));
    let mut made = g729(&mut world, 200, 5_000, at(1_000), 1_500);
    made.push(call(&mut world, 6_000, 1_180, at(1_000), 1_500));
    world.run_until(at(8_000));
    assert!(trunk(&world).is_over_share, "{:?}", trunk(&world));
    // The far end is away for so long that its answer counts no more.
    world.crash(HostId(2));
    world.run_until(at(15_000));
    world.restart(HostId(2)).unwrap();
    world.run_until(at(32_000));
    assert_eq!(refused(&world, &made), 0, "{:?}", trunk(&world));
}

/// Reports come as often as the reloaded trunk asks for, and are missed only if more
/// are missing.
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

/// Sends real time to one port of the far node.
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

/// An application that sends to the far node itself, with too little time, or nothing.
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
        assert_eq!(drops.get(Drop::Malformed), 0);
    }
}

/// Packets that may be recovered are, though others beside them may not.
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
    println!("{missed:?} missed");
    assert!(missed[1] < 2 * missed[0] + 50, "{missed:?}");
}
