//! Backpressure in both directions between a node and its applications, in the simulator.

use crate::common::*;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Bitrate, Time};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{AppId, Application, HostId, Io, Topology, World};

const SIZE: usize = 1_000;
/// Length on the link: 20 bytes of frame header, 24 of envelope and 28 of IP and UDP are added.
const ON_LINK: u64 = SIZE as u64 + 72;

/// Writes `count` packets as fast as the node accepts them, at most sixteen per millisecond.
struct Writer {
    to: (u32, u16),
    service: Service,
    waits: bool,
    start: Time,
    count: u32,
    sent: u32,
    held: bool,
    holds: u32,
}

impl Writer {
    fn new(to: (u32, u16), waits: bool, count: u32) -> Writer {
        let service = BE;
        Writer { to, service, waits, start: at(1_000), count, sent: 0, held: false, holds: 0 }
    }

    fn write(&mut self, io: &mut Io<'_>) {
        for _ in 0..16 {
            if self.held || self.sent == self.count {
                return;
            }
            let mut payload = [0; SIZE];
            payload[..4].copy_from_slice(&self.sent.to_be_bytes());
            let (node, port) = (NodeId(self.to.0), self.to.1);
            io.send(&ToNode::Send {
                service: self.service,
                deadline_ms: 255,
                to: node,
                port,
                payload: &payload,
            });
            self.sent += 1;
        }
        io.wake_at(io.now() + ms(1));
    }
}

impl Application for Writer {
    fn start(&mut self, io: &mut Io<'_>) {
        io.send(&ToNode::Blocking(self.waits));
        io.wake_at(self.start);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.write(io);
    }

    fn receive(&mut self, message: &ToClient<'_>, _: &mut Io<'_>) {
        panic!("{message:?}");
    }

    fn on_flow_control(&mut self, on: bool, io: &mut Io<'_>) {
        assert_ne!(self.held, on, "each begins and ends");
        self.held = on;
        self.holds += u32::from(on);
        if !on {
            self.write(io);
        }
    }
}

/// Records the packets from each source port and the time of the last one. An idle reader accepts
/// nothing.
#[derive(Default)]
struct Reader {
    idle: bool,
    came: BTreeMap<u16, Vec<u32>>,
    last: Time,
}

impl Application for Reader {
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>) {
        if let ToClient::Received { port, payload, .. } = message {
            let n = u32::from_be_bytes(payload[..4].try_into().unwrap());
            self.came.entry(*port).or_default().push(n);
            self.last = io.now();
        }
    }

    fn reads(&self) -> bool {
        !self.idle
    }
}

const SLOW: u64 = 256_000;

/// Host 0 has a slow link to host 1 and a fast one to host 2.
fn fork() -> World {
    let mut t = Topology::new();
    let hosts = [1, 2, 3].map(|id| t.host(NodeId(id)));
    for (far, rate) in [(1, SLOW), (2, 20_000_000)] {
        let model = link(ms(10), Loss::None);
        t.link_with(hosts[0], hosts[far], model.clone(), model, |c| {
            c.rate = Some(Bitrate::from_bps(rate));
        });
    }
    t.route_all();
    t.build(3).unwrap()
}

fn whole(came: &[u32], count: u32) -> bool {
    came.iter().copied().eq(0..count)
}

/// Three writers and a call share the slow link, and one writer has the fast link.
#[test]
fn who_waits_loses_nothing_and_holds_up_nobody_else() {
    const EACH: u32 = 200;
    let mut world = fork();
    let reader = world.attach(HostId(1), 4_000, Reader::default()).unwrap();
    let other = world.attach(HostId(2), 4_000, Reader::default()).unwrap();
    let slow: Vec<_> = (0..3)
        .map(|_| world.attach(HostId(0), 0, Writer::new((2, 4_000), true, EACH)).unwrap())
        .collect();
    let fast = world.attach(HostId(0), 0, Writer::new((3, 4_000), true, 1_000)).unwrap();
    let call = calls(&mut world, (0, 1), RT, 5_000, 1, (at(1_000), 500));

    let came = |world: &World| world.app(reader).came.values().map(Vec::len).collect::<Vec<_>>();
    // The first writer finds the queue empty.
    world.run_until(at(2_000));
    let before = came(&world);
    world.run_until(at(8_000));
    let shares: Vec<_> = came(&world).iter().zip(&before).map(|(after, b)| after - b).collect();
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(shares.len() == 3 && most - least <= 1, "in turns: {shares:?}");

    world.run_until(at(60_000));
    for writer in &slow {
        let port = world.origin(*writer).1;
        assert!(whole(&world.app(reader).came[&port], EACH));
        assert!(world.app(*writer).holds >= EACH / 16, "after each sixteen, it waits");
    }
    let drops = |why| dropped(&world, 0, 0, why);
    assert_eq!((drops(DropReason::QueueFull), drops(DropReason::QueueDelay)), (0, 0));
    // The link was busy until the end, so the writers were no slower than necessary. The call takes
    // 65 kbit/s of it for ten seconds, and hellos the rest.
    let least = Duration::from_secs_f64((600 * ON_LINK * 8) as f64 / SLOW as f64);
    let took = world.app(reader).last.since(at(1_000));
    assert!((least..least * 2).contains(&took), "{took:?}, at least {least:?}");

    // Sixteen packets per millisecond are six times the rate of that link.
    let took = world.app(other).last.since(at(1_000));
    assert!(whole(&world.app(other).came[&world.origin(fast).1], 1_000));
    assert!(took < ms(1_000), "{took:?}");

    let heard = outcome(&world, &call);
    assert_eq!((heard.sent, heard.lost, heard.late), (500, 0, 0));
    // One packet of 1,072 bytes may be in transmission, and pacing runs ahead by 1 ms.
    assert!(heard.delay(1.0) <= Some(ms(10 + 34 + 2)), "{:?}", heard.delay(1.0));
}

/// A writer that exceeds the link without blocking takes its part of the queue; a blocking writer
/// still gets through.
#[test]
fn a_flood_that_does_not_wait_starves_nobody_who_does() {
    let mut world = fork();
    let reader = world.attach(HostId(1), 4_000, Reader::default()).unwrap();
    let polite = world.attach(HostId(0), 0, Writer::new((2, 4_000), true, 100)).unwrap();
    let flood = world.attach(HostId(0), 0, Writer::new((2, 4_000), false, 60_000)).unwrap();
    world.run_until(at(60_000));
    let came = |app: AppId<Writer>| &world.app(reader).came[&world.origin(app).1];
    assert!(whole(came(polite), 100), "{} came", came(polite).len());
    assert!(came(flood).len() < 2_000 && world.app(flood).holds == 0);
    assert!(dropped(&world, 0, 0, DropReason::QueueDelay) > 0);
}

/// One application at a node doesn't read, and the other does.
#[test]
fn who_does_not_read_loses_its_own() {
    let mut world = fork();
    let idle = Reader { idle: true, ..Reader::default() };
    let idle = world.attach(HostId(2), 4_001, idle).unwrap();
    let reader = world.attach(HostId(2), 4_000, Reader::default()).unwrap();
    let writers = [4_000, 4_001]
        .map(|port| world.attach(HostId(0), 0, Writer::new((3, port), true, 100)).unwrap());
    world.run_until(at(5_000));
    assert!(whole(&world.app(reader).came[&world.origin(writers[0]).1], 100));
    assert!(world.app(idle).came.is_empty());
    let node = world.node(HostId(2));
    assert_eq!(node.stats().drops.get(DropReason::SessionFull), 100);
    let (flows, _) = node.flows(world.now(), 0, 100);
    let refused: BTreeMap<_, _> = flows.iter().map(|(f, _)| (f.ends.port, f.refused)).collect();
    assert_eq!(refused, BTreeMap::from([(4_000, 0), (4_001, 100)]), "told apart");
}

/// Repeated stalls have the same effect as the first.
#[test]
fn a_host_that_stalls_again_and_again_holds_back_and_goes_on() {
    let mut world = fork();
    let reader = world.attach(HostId(1), 4_000, Reader::default()).unwrap();
    let writer = world.attach(HostId(0), 0, Writer::new((2, 4_000), true, 500)).unwrap();
    for time in 0..5u64 {
        world.run_until(at(1_000 + 3_000 * time));
        let until = world.now() + ms(1_000);
        world.stall(HostId(0), until);
    }
    world.run_until(at(60_000));
    assert!(whole(&world.app(reader).came[&world.origin(writer).1], 500));
    assert!(!world.app(writer).held);
    assert_eq!(dropped(&world, 0, 0, DropReason::QueueDelay), 0);
}

/// While a stream from or through its node fills the link, an application that blocks to send
/// single messages gets through.
#[test]
fn a_stream_holds_up_nobody_who_sends_single_messages() {
    for from in [0, 1] {
        let model =
            |bps| LinkModel { rate: Some(Bitrate::from_bps(bps)), ..link(ms(10), Loss::None) };
        let models = [model(200_000_000), model(40_000_000), model(200_000_000)];
        let mut world = Topology::chain(models).build(5).unwrap();
        let reader = world.attach(HostId(3), 4_000, Reader::default()).unwrap();
        world.attach(HostId(3), 5_000, StreamSink::default()).unwrap();
        let bulk = StreamSource::new(NodeId(4), 5_000, at(1_000), Writing::Bulk(u64::MAX));
        world.attach(HostId(from), 0, bulk).unwrap();
        let writer = Writer { service: Service::Reliable, ..Writer::new((4, 4_000), true, 1_000) };
        let writer = Writer { start: at(15_000), ..writer };
        let writer = world.attach(HostId(1), 0, writer).unwrap();
        world.run_until(at(25_000));
        let came = &world.app(reader).came[&world.origin(writer).1];
        assert!(came.len() == 1_000, "{} of 1,000 beside a stream of host {from}", came.len());
    }
}
