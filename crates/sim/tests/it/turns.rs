//! Sources that share a link: each has its turn, whatever the others send.

use crate::common::*;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_overlay::node::Routing;
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{Application, HostId, Io, Topology, World};

const RATE: u64 = 5_000_000;
/// Bytes of a datagram of the flood.
const BYTES: usize = 1_000;

/// Nodes 1 and 3 send over node 2 to node 4; the last link has 5 Mbit/s.
fn net() -> Topology {
    net_with_loss(0.0)
}

fn net_with_loss(loss: f64) -> Topology {
    let mut t = Topology::new();
    let hosts = [1, 2, 3, 4].map(|n| t.host(NodeId(n)));
    let wide =
        || LinkModel { rate: Some(Bitrate::from_bps(100_000_000)), ..link(ms(5), Loss::None) };
    let thin = || LinkModel {
        rate: Some(Bitrate::from_bps(RATE + RATE / 10)),
        queue: Queue::Packets(100),
        ..link(ms(10), if loss > 0.0 { uniform(loss) } else { Loss::None })
    };
    t.link(hosts[0], hosts[1], wide(), wide());
    t.link(hosts[2], hosts[1], wide(), wide());
    t.link_with(hosts[1], hosts[3], thin(), thin(), |config| {
        config.rate = Some(Bitrate::from_bps(RATE));
    });
    t.link_state(&Routing::default());
    t
}

/// Datagrams from `host`, as many as fill the thin link `factor` times.
fn flood(world: &mut World, host: HostId, service: Service, factor: f64) {
    let mut source = VoiceSource::new(NodeId(4), 7_000, service, at(3_000), 1 << 20);
    source.bytes = BYTES;
    source.spacing =
        std::time::Duration::from_secs_f64(8.0 * BYTES as f64 / (factor * RATE as f64));
    world.attach(HostId(3), 7_000, VoiceSink::default()).unwrap();
    world.attach(host, 0, source).unwrap();
}

/// Mbit/s of a stream from node 1 beside datagrams from `beside`.
fn stream_beside(beside: Option<(HostId, f64)>) -> f64 {
    let mut world = net().build(1).unwrap();
    let sink = world.attach(HostId(3), 5_000, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(4), 5_000, at(5_000), Writing::Bulk(1 << 30));
    let source = world.attach(HostId(0), 0, source).unwrap();
    if let Some((host, factor)) = beside {
        flood(&mut world, host, Service::Reliable, factor);
    }
    world.run_until(at(15_000));
    let before = world.app(sink).read;
    world.run_until(at(45_000));
    assert_eq!((world.app(source).reset, world.app(sink).wrong), (None, 0));
    8e-6 * (world.app(sink).read - before) as f64 / 30.0
}

#[test]
fn a_stream_has_its_share_beside_datagrams_of_others() {
    let alone = stream_beside(None);
    println!("alone {alone:.2} Mbit/s");
    for host in [HostId(2), HostId(0)] {
        for factor in [0.8, 1.0, 2.0, 8.0] {
            let share = stream_beside(Some((host, factor))) / alone;
            println!("beside node {}'s {factor} × the rate: {share:.2} of that", host.0 + 1);
            // Of a link that the datagrams fill to 80 %, 20 % are left, and half is its share.
            assert!(share >= 0.45, "{share:.3} beside {factor} × from {host:?}");
        }
    }
}

/// A call leaves a link's window in slow start, which a configured rate keeps from ever being full:
/// what waits for that rate is marked nevertheless.
#[test]
fn a_stream_beside_a_call_builds_no_queue_on_a_link_with_a_rate() {
    let mut world = net().build(1).unwrap();
    let calls = calls(&mut world, (0, 3), RT, 5_000, 1, (at(4_000), 2_000));
    let sink = world.attach(HostId(3), 6_000, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(4), 6_000, at(5_000), Writing::Bulk(1 << 30));
    world.attach(HostId(0), 0, source).unwrap();
    for second in 8..40 {
        world.run_until(at(1_000 * second));
        let rtt = world.node(HostId(0)).streams().next().and_then(|stream| stream.rtt);
        assert!(rtt.is_some_and(|rtt| rtt < ms(400)), "{rtt:?} after {second} s");
    }
    let mbps = 8e-6 * world.app(sink).read as f64 / 35.0;
    assert!(mbps > 4.2, "{mbps:.2} Mbit/s");
    world.run_until(at(46_000));
    assert_eq!(outcome(&world, &calls).lost, 0);
}

/// One packet of the stream takes 20 ms of the link, but there is room for all calls.
#[test]
fn calls_of_two_nodes_lose_nothing_beside_a_stream_on_a_thin_link() {
    let mut t = Topology::new();
    let hosts = [1, 2, 3, 4].map(|n| t.host(NodeId(n)));
    let wide = || link(ms(5), Loss::None);
    let thin = || LinkModel { rate: Some(Bitrate::from_bps(385_000)), ..wide() };
    t.link(hosts[0], hosts[1], wide(), wide());
    t.link(hosts[2], hosts[1], wide(), wide());
    t.link_with(hosts[1], hosts[3], thin(), thin(), |config| {
        config.rate = Some(Bitrate::from_bps(350_000));
    });
    t.link_state(&Routing::default());
    let mut world = t.build(1).unwrap();
    let from = [(0, 5_000), (2, 5_100)];
    let calls = from.map(|(n, port)| calls(&mut world, (n, 3), RT, port, 1, (at(8_000), 1_000)));
    world.attach(HostId(3), 6_000, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(4), 6_000, at(5_000), Writing::Bulk(1 << 30));
    world.attach(HostId(0), 0, source).unwrap();
    world.run_until(at(30_000));
    for calls in calls {
        let outcome = outcome(&world, &calls);
        assert!(outcome.lost + outcome.late <= 5, "{outcome:?}");
    }
}

/// Packets of 1,000 bytes in real time, at a multiple of the link's rate, with this lifetime in
/// milliseconds.
fn flood_in_real_time(world: &mut World, factor: f64, lifetime: u8) {
    let mut source = VoiceSource::new(NodeId(4), 7_000, RT, at(3_000), 1 << 20);
    (source.bytes, source.deadline_ms) = (1_000, lifetime);
    // With the bytes of all headers.
    source.spacing = std::time::Duration::from_secs_f64(8.0 * 1_106.0 / (factor * RATE as f64));
    world.attach(HostId(3), 7_000, VoiceSink::default()).unwrap();
    world.attach(HostId(2), 0, source).unwrap();
}

#[test]
fn calls_lose_nothing_beside_a_flood_in_real_time() {
    for factor in [1.2, 2.0, 4.0, 16.0] {
        let mut world = net().build(1).unwrap();
        let calls = calls(&mut world, (0, 3), RT, 5_000, 5, (at(5_000), 1_000));
        flood_in_real_time(&mut world, factor, 100);
        world.run_until(at(30_000));
        let outcome = outcome(&world, &calls);
        let lost = (outcome.sent, outcome.lost + outcome.late);
        assert_eq!(lost, (5_000, 0), "beside {factor} × the rate");
    }
}

/// Packets with a shorter lifetime go first, so that those of calls wait the longest.
#[test]
fn a_short_lifetime_takes_nothing_from_calls() {
    for (factor, lifetime) in [(2.0, 30), (2.0, 20), (2.0, 15), (2.0, 5), (1.2, 15)] {
        let mut world = net().build(1).unwrap();
        let calls = calls(&mut world, (0, 3), RT, 5_000, 5, (at(6_000), 1_000));
        flood_in_real_time(&mut world, factor, lifetime);
        world.run_until(at(30_000));
        let outcome = outcome(&world, &calls);
        let lost = outcome.lost + outcome.late;
        assert!(lost * 200 <= outcome.sent, "{factor} × the rate for {lifetime} ms: {lost} lost");
    }
}

/// Share of the packets of `n` calls that are lost beside a flood, on a link that loses `loss`.
fn lost_beside(loss: f64, n: u16, flood: Option<(f64, u8)>) -> f64 {
    let mut world = net_with_loss(loss).build(1).unwrap();
    let calls = calls(&mut world, (0, 3), RT, 5_000, n, (at(6_000), 1_000));
    if let Some((factor, lifetime)) = flood {
        flood_in_real_time(&mut world, factor, lifetime);
    }
    world.run_until(at(30_000));
    let outcome = outcome(&world, &calls);
    (outcome.lost + outcome.late) as f64 / outcome.sent as f64
}

/// Few calls beside packets that need just about all of the link.
#[test]
fn a_flood_just_above_the_rate_takes_nothing_from_calls() {
    let mut worst = 0.0_f64;
    for n in [1, 2, 5, 10] {
        for factor in [0.95, 1.0, 1.02, 1.04, 1.1] {
            for lifetime in [5, 20] {
                let lost = lost_beside(0.0, n, Some((factor, lifetime)));
                println!("{n} calls beside {factor} × the rate for {lifetime} ms: {lost:.4}");
                worst = worst.max(lost);
            }
        }
    }
    assert!(worst <= 0.005, "{worst}");
}

/// Packets with a short lifetime don't go before retransmissions of calls.
#[test]
fn calls_are_repaired_beside_a_flood() {
    let mut worst = 0.0_f64;
    for loss in [0.02, 0.05, 0.1] {
        let alone = lost_beside(loss, 18, None);
        for lifetime in [5, 20, 100] {
            let lost = lost_beside(loss, 18, Some((2.0, lifetime)));
            println!("{loss} lost: {alone:.4} alone, {lost:.4} beside 2 × for {lifetime} ms");
            worst = worst.max(lost - alone);
        }
    }
    assert!(worst <= 0.005, "{worst}");
}

/// With retransmissions, the link carries more than the sources have sent.
#[test]
fn calls_lose_nothing_beside_a_flood_on_a_link_that_loses_packets() {
    let mut worst = 0.0_f64;
    for loss in [0.05, 0.1, 0.15, 0.2] {
        let alone = lost_beside(loss, 10, None);
        for factor in [0.75, 0.8] {
            for lifetime in [50, 100] {
                let lost = lost_beside(loss, 10, Some((factor, lifetime)));
                println!(
                    "{loss} lost: {alone:.4} alone, {lost:.4} beside {factor} × for {lifetime} ms"
                );
                worst = worst.max(lost - alone);
            }
        }
    }
    assert!(worst <= 0.01, "{worst}");
}

/// Calls that need a bit more than an equal share have that share: half of the link.
#[test]
fn calls_that_need_more_than_a_share_have_it() {
    let mut worst = 1.0_f64;
    for n in [26, 29, 32] {
        // A packet of a call has 172 bytes, and 84 more of headers.
        let need = f64::from(n) * 50.0 * 8.0 * 256.0 / RATE as f64;
        for lifetime in [5, 15, 50, 100] {
            let got = need * (1.0 - lost_beside(0.0, n, Some((2.0, lifetime))));
            println!(
                "{n} calls need {need:.3} of the link and get {got:.3} beside 2 × for {lifetime} ms"
            );
            worst = worst.min(got / need.min(0.5));
        }
    }
    assert!(worst >= 0.9, "{worst}");
}

/// Sends in real time for a second, with a burst 50 ms before it, and pauses for as long again and
/// longer: less than half of the link on average.
struct OnOff {
    burst: usize,
}

impl Application for OnOff {
    fn start(&mut self, io: &mut Io<'_>) {
        io.wake_at(at(4_000));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let us = io.now().since(at(4_000)).as_micros() % 2_500_000;
        let (count, deadline_ms) = match us {
            0 => (self.burst, 50),
            50_000..1_000_000 => (1, 5),
            _ => (0, 5),
        };
        for _ in 0..count {
            let (to, payload) = (NodeId(4), &[0; 1_000]);
            io.send(&ToNode::Send { service: RT, deadline_ms, to, port: 7_000, payload });
        }
        // 0.98 × the rate.
        io.wake_at(
            io.now()
                + std::time::Duration::from_micros(if us == 0 { 50_000 } else { 1_806 })
                    .min(std::time::Duration::from_micros((2_500_000 - us) as u64)),
        );
    }

    fn receive(&mut self, _: &ToClient<'_>, _: &mut Io<'_>) {}
}

#[test]
fn a_flood_with_pauses_takes_nothing_from_calls() {
    let mut worst = 0.0_f64;
    for n in [3, 5, 10] {
        for burst in [0, 10, 23] {
            let mut world = net().build(1).unwrap();
            let calls = calls(&mut world, (0, 3), RT, 5_000, n, (at(6_000), 1_000));
            world.attach(HostId(3), 7_000, VoiceSink::default()).unwrap();
            world.attach(HostId(2), 0, OnOff { burst }).unwrap();
            world.run_until(at(30_000));
            let outcome = outcome(&world, &calls);
            let lost = (outcome.lost + outcome.late) as f64 / outcome.sent as f64;
            println!("{n} calls beside bursts of {burst} packets: {lost:.4}");
            worst = worst.max(lost);
        }
    }
    assert!(worst <= 0.01, "{worst}");
}

/// Twenty calls of one node need two fifths of the link: more than an equal share of all nodes, of
/// which most send next to nothing, but less than those leave.
#[test]
fn quiet_nodes_take_nothing_from_calls() {
    for quiet in [0, 3, 20] {
        let mut t = net();
        let wide = || link(ms(5), Loss::None);
        for n in 0..quiet {
            let host = t.host(NodeId(10 + n));
            t.link(host, HostId(1), wide(), wide());
        }
        let mut world = t.build(1).unwrap();
        let calls = calls(&mut world, (0, 3), RT, 5_000, 20, (at(6_000), 500));
        world.attach(HostId(3), 7_100, VoiceSink::default()).unwrap();
        for n in 0..quiet {
            let mut source = VoiceSource::new(NodeId(4), 7_100, RT, at(4_000), 1 << 20);
            (source.bytes, source.spacing) = (40, ms(100));
            world.attach(HostId(4 + n), 0, source).unwrap();
        }
        flood_in_real_time(&mut world, 2.0, 100);
        world.run_until(at(20_000));
        let outcome = outcome(&world, &calls);
        let lost = (outcome.sent, outcome.lost + outcome.late);
        assert_eq!(lost, (10_000, 0), "beside {quiet} quiet nodes");
    }
}

/// Sends twelve times the rate in best effort to 300 ports, with another length every 400 ms.
struct Lengths {
    sent: u64,
}

impl Application for Lengths {
    fn start(&mut self, io: &mut Io<'_>) {
        io.wake_at(at(4_000));
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let turn = io.now().since(at(0)).as_millis() / 400;
        let payload = &[0; 500][..[240, 500, 110][turn as usize % 3]];
        for _ in 0..7_500 / (payload.len() + 106) {
            let (service, port) = (BE, 10_000 + (self.sent % 300) as u16);
            io.send(&ToNode::Send { service, deadline_ms: 255, to: NodeId(4), port, payload });
            self.sent += 1;
        }
        io.wake_at(io.now() + ms(1));
    }

    fn receive(&mut self, _: &ToClient<'_>, _: &mut Io<'_>) {}
}

/// Packets that wait keep storage of every size. The other node needs half of its share.
#[test]
fn lengths_of_packets_take_no_room_of_others() {
    let mut world = net().build(1).unwrap();
    let sink = world.attach(HostId(3), 5_000, VoiceSink::default()).unwrap();
    let mut source = VoiceSource::new(NodeId(4), 5_000, BE, at(5_000), 1_240);
    (source.bytes, source.spacing, source.deadline_ms) = (1_100, ms(8), 255);
    world.attach(HostId(0), 0, source).unwrap();
    world.attach(HostId(2), 0, Lengths { sent: 0 }).unwrap();
    world.run_until(at(17_000));
    let came: u64 = world.app(sink).flows.values().map(|flow| flow.received).sum();
    assert_eq!(came, 1_240);
}

/// A call with long intervals measures no pace of the link: it alone is never above its share.
#[test]
fn a_call_is_whole_once_a_flood_has_ended() {
    for spacing in [20, 30, 50, 60, 80, 120] {
        let mut world = net().build(1).unwrap();
        let mut call = VoiceSource::new(NodeId(4), 5_000, RT, at(2_000), 30_000 / spacing);
        call.spacing = ms(spacing);
        let heard = world.attach(HostId(3), 5_000, VoiceSink::default()).unwrap();
        world.attach(HostId(0), 0, call).unwrap();
        // For a second, from the third on.
        let mut flood = VoiceSource::new(NodeId(4), 7_000, RT, at(3_000), 5_000);
        (flood.bytes, flood.spacing) = (172, std::time::Duration::from_micros(200));
        world.attach(HostId(3), 7_000, VoiceSink::default()).unwrap();
        world.attach(HostId(2), 0, flood).unwrap();
        world.run_until(at(34_000));
        let count: u64 = world.app(heard).flows.values().map(|flow| flow.received).sum();
        assert_eq!(count, 30_000 / spacing, "at intervals of {spacing} ms");
    }
}
