//! Agents of all kinds on two hosts behind routers, in one queue.

use std::time::Duration;
use trunkline_base::link_model::{Count, LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{Bins, Class, DropReason, EdgeLedger, IpVersion, Protocol};
use trunkline_overlay::link;
use trunkline_overlay::node::Config;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::{AgentId, Cbr, Meter};
use trunkline_sim::voice::{Call, CallOutcome, VOICE_PACKET, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, WireEnd, WireId, World, WorldError, address};

const CBR: Class = Class(1);
const PLAIN: Class = Class(2);
const OVERLAY: Class = Class(3);
const CLASSES: [Class; 3] = [CBR, PLAIN, OVERLAY];

/// Traffic from the first host to the second: a constant bit rate with TCP's sizes, a call on plain
/// UDP, and a call over a link of the overlay.
struct Shared {
    world: World,
    hosts: [HostId; 2],
    /// Wire from the first host to its router; the bottleneck leads to the other router.
    access: WireId,
    bottleneck: WireId,
    cbr: (AgentId<Cbr>, AgentId<Meter>),
    plain: Call,
    overlay: Call,
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Time {
    Time::from_millis(n)
}

fn link(rate: u64, delay: u64, queue: usize) -> LinkModel {
    let (rate, queue) = (Some(Bitrate::from_bps(rate)), Queue::Packets(queue));
    LinkModel { rate, queue, delay: ms(delay), loss: Loss::None, ..LinkModel::default() }
}

/// Starts all traffic at 1 s for `seconds`; the constant bit rate has this `spacing`.
fn shared(seconds: u64, spacing: Duration) -> Result<Shared, WorldError> {
    let mut world = World::new(IpVersion::V6, 7);
    let config = |own, peer, host| {
        let mut link = link::Config::new(NodeId(peer));
        link.address = Some(address(HostId(host), 0));
        Config { links: vec![link], ..Config::new(NodeId(own)) }
    };
    let a = world.add_host(config(1, 2, 1))?;
    let b = world.add_host(config(2, 1, 0))?;
    let (near, far) = (world.add_router(), world.add_router());
    // Without jitter, a call would always or never get the slot that a packet of the constant bit
    // rate has just freed.
    let fast = LinkModel { jitter: ms(2), ..link(100_000_000, 1, 100) };
    let access = world.cable(a, near, fast.clone(), fast.clone())?;
    // 12 ms in total, so that retransmissions over the overlay arrive within 100 ms.
    let narrow = link(10_000_000, 10, 10);
    let bottleneck = world.cable(near, far, narrow.clone(), narrow)?;
    world.cable(far, b, fast.clone(), fast)?;
    world.connect_routed(a, b)?;
    for host in [a, b] {
        world.set_class(host, Protocol::UDP, address(host, 0).port(), OVERLAY)?;
    }

    let start = at(1_000);
    let count = u64::try_from(ms(1_000 * seconds).as_nanos() / spacing.as_nanos()).unwrap();
    let to = world.endpoint(b, 80);
    let mut cbr = Cbr::tcp_sizes(4_000, to, start, spacing, count);
    cbr.tos = 0x20;
    let meter = world.bind(b, Protocol::TCP, 80, Meter::default())?;
    let cbr = (world.bind(a, Protocol::TCP, 4_000, cbr)?, meter);
    world.set_class(a, Protocol::TCP, 4_000, CBR)?;
    let voice = |service, start| VoiceSource::new(NodeId(2), 5_000, service, start, 50 * seconds);
    let sink = world.attach_udp(b, 5_000, a, VoiceSink::default())?;
    let source = voice(Service::BestEffort, start + ms(3));
    let plain = (world.attach_udp(a, 6_000, b, source)?, sink);
    world.set_class(a, Protocol::UDP, 6_000, PLAIN)?;
    let sink = world.attach(b, 5_000, VoiceSink::default())?;
    let overlay = (world.attach(a, 0, voice(Service::RealTime, start + ms(7)))?, sink);
    Ok(Shared { world, hosts: [a, b], access, bottleneck, cbr, plain, overlay })
}

impl Shared {
    /// Packets of each class on the first host's cable, for each bin.
    fn sent(&self, bins: usize) -> Vec<[u64; 3]> {
        let of = |class, bin: usize| {
            let bins = self.world.bins(self.access, WireEnd::First, class);
            bins.get(bin).map_or(0, |b| b.offered.packets)
        };
        (0..bins).map(|bin| CLASSES.map(|class| of(class, bin))).collect()
    }
}

fn plus(a: Count, b: Count) -> Count {
    Count { packets: a.packets + b.packets, bytes: a.bytes + b.bytes }
}

fn adds_up(l: &EdgeLedger) -> bool {
    let parts = [l.arrived, l.lost, l.queue_dropped, l.no_room, l.under_way()];
    parts.into_iter().fold(Count::default(), plus) == l.offered
}

#[test]
fn three_kinds_of_flows_in_one_queue_add_up() {
    // 1,500 bytes every 1.2 ms would take all of the 10 Mbit/s.
    let mut shared = shared(20, Duration::from_micros(1_130)).unwrap();
    let Shared { bottleneck, cbr, plain, overlay, .. } = shared;
    let world = &mut shared.world;
    let bins = Bins { from: at(1_000), width: ms(1_000), count: 20 };
    world.record(bottleneck, WireEnd::First, bins);
    for stop in [5_000, 13_370, 22_000] {
        world.run_until(at(stop));
        let [total, _] = world.edge_ledgers(bottleneck);
        let classes = CLASSES.map(|class| world.class_ledgers(bottleneck, class)[0]);
        assert!(adds_up(&total) && classes.iter().all(adds_up), "{classes:#?}");
        let sum = classes.iter().fold(EdgeLedger::default(), |sum, l| sum.plus(l));
        assert_eq!(sum, total, "at {stop} ms");
        // Counters of the queue itself.
        let [model, _] = world.ledgers(bottleneck);
        assert_eq!((total.offered, total.queue_dropped), (model.offered, model.queue_dropped));
    }
    let ledgers = CLASSES.map(|class| world.class_ledgers(bottleneck, class)[0]);
    let dropped = ledgers.map(|l| l.queue_dropped.packets);
    assert!(dropped.iter().all(|&n| n > 0), "{dropped:?}");

    // Packets have the length that their protocol requires.
    let sent = world.agent(cbr.0).sent();
    assert_eq!(ledgers[0].offered, Count { packets: sent, bytes: 1_500 * sent });
    let voice = 1_000 * (VOICE_PACKET as u64 + 48);
    assert_eq!(ledgers[1].offered, Count { packets: 1_000, bytes: voice });
    // End to end, nothing else is lost.
    let meter = world.agent(cbr.1);
    assert_eq!((meter.received.packets, meter.tos), (ledgers[0].arrived.packets, 0x20));
    let dropped = world.flow(CBR).dropped(DropReason::Queue);
    assert_eq!((dropped, world.flow(CBR).all_dropped()), (ledgers[0].queue_dropped, dropped));
    let [of_plain, of_overlay] =
        [plain, overlay].map(|call| CallOutcome::of(world, &[call], ms(100)));
    assert_eq!(of_plain.lost, ledgers[1].queue_dropped.packets);
    // Whether a packet finds the queue full depends on those just before it, so the calls' losses
    // differ. The overlay also recovers most packets that the queue dropped.
    assert!(of_overlay.recovered > of_overlay.lost, "{of_overlay:?}");
    assert!(of_overlay.lost < ledgers[2].queue_dropped.packets);

    // Every second carries nearly the full capacity, and never more.
    let second = |bin| CLASSES.map(|class| world.bins(bottleneck, WireEnd::First, class)[bin]);
    for bin in 1..20 {
        let bytes: u64 = second(bin).iter().map(|b| b.arrived.bytes).sum();
        assert!((1_225_000..=1_251_500).contains(&bytes), "{bytes} bytes in second {bin}");
    }
}

#[test]
fn a_stalled_host_silences_all_its_agents() {
    let mut shared = shared(9, ms(5)).unwrap();
    let bins = Bins { from: at(0), width: ms(100), count: 100 };
    shared.world.record(shared.access, WireEnd::First, bins);
    shared.world.run_until(at(4_999));
    shared.world.stall(shared.hosts[0], at(8_000));
    shared.world.run_until(at(12_000));
    let sent = shared.sent(100);
    assert!(sent[15..50].iter().flatten().all(|&n| n > 0), "before: {sent:?}");
    assert!(sent[50..80].iter().flatten().all(|&n| n == 0), "meanwhile: {sent:?}");
    assert!(sent[80].iter().all(|&n| n > 0), "at once after: {sent:?}");
    // A source of speech then sends everything that it has recorded at once, which is more than the
    // queues hold.
    let outcome = CallOutcome::of(&shared.world, &[shared.plain], ms(100));
    let dropped = shared.world.flow(PLAIN).dropped(DropReason::Queue).packets;
    assert_eq!((outcome.sent, outcome.lost), (450, dropped));
    assert!((10..150).contains(&dropped), "{dropped}");
}

#[test]
fn a_crashed_host_silences_all_its_agents_and_hears_nothing() {
    let mut shared = shared(9, ms(5)).unwrap();
    let [a, b] = shared.hosts;
    let world = &mut shared.world;
    let back = world.endpoint(a, 90);
    let cbr = Cbr::tcp_sizes(91, back, at(1_000), ms(10), 900);
    world.bind(b, Protocol::TCP, 91, cbr).unwrap();
    let meter = world.bind(a, Protocol::TCP, 90, Meter::default()).unwrap();
    world.record(shared.access, WireEnd::First, Bins { from: at(0), width: ms(100), count: 100 });
    world.run_until(at(4_999));
    let before = world.agent(meter).received.packets;
    world.crash(a);
    world.run_until(at(8_000));
    assert!(world.is_down(a) && world.agent(meter).received.packets == before);
    world.restart(a).unwrap();
    world.run_until(at(12_000));
    let sent = shared.sent(100);
    assert!(sent[15..50].iter().flatten().all(|&n| n > 0), "before: {sent:?}");
    assert!(sent[50..80].iter().flatten().all(|&n| n == 0), "meanwhile: {sent:?}");
    assert!(sent[85..95].iter().flatten().all(|&n| n > 0), "after: {sent:?}");
    let received = shared.world.agent(meter).received.packets;
    assert_eq!(received, 900 - 300, "what came in 3 s went nowhere");
    // Only the packets that the plain call would have sent meanwhile are lost.
    let outcome = CallOutcome::of(&shared.world, &[shared.plain], ms(100));
    assert_eq!((outcome.sent, outcome.lost), (450, 150));
}

#[test]
fn a_port_has_one_agent() {
    let mut world = World::new(IpVersion::V6, 1);
    let host = world.add_plain_host();
    world.bind(host, Protocol::UDP, 7, Meter::default()).unwrap();
    let taken = world.bind(host, Protocol::UDP, 7, Meter::default()).unwrap_err();
    assert_eq!(taken, WorldError::PortTaken(host, Protocol::UDP, 7));
    assert_eq!(taken.to_string(), "UDP port 7 of host 0 is taken");
    assert!(world.bind(host, Protocol::TCP, 7, Meter::default()).is_ok());
    let nobody = world.set_class(host, Protocol::DCCP, 7, CBR);
    assert_eq!(nobody, Err(WorldError::NobodyBound(host, Protocol::DCCP, 7)));
    let no_node = world.attach(host, 0, VoiceSink::default()).unwrap_err();
    assert_eq!(no_node, WorldError::NoNode(host));
}
