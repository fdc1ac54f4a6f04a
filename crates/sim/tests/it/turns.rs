//! Sources that share a link: each has its turn, whatever the others send.

use crate::common::*;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, World};

const RATE: u64 = 5_000_000;
/// Bytes of a datagram of the flood.
const BYTES: usize = 1_000;

/// Nodes 1 and 3 send over node 2 to node 4; the last link has 5 Mbit/s.
fn net() -> Topology {
    let mut t = Topology::new();
    let hosts = [1, 2, 3, 4].map(|n| t.host(NodeId(n)));
    let wide =
        || LinkModel { rate: Some(Bitrate::from_bps(100_000_000)), ..link(ms(5), Loss::None) };
    let thin = || LinkModel {
        rate: Some(Bitrate::from_bps(RATE + RATE / 10)),
        queue: Queue::Packets(100),
        ..link(ms(10), Loss::None)
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

#[test]
fn calls_lose_nothing_beside_a_flood_in_real_time() {
    for factor in [1.2, 2.0] {
        let mut world = net().build(1).unwrap();
        let calls = calls(&mut world, (0, 3), RT, 5_000, 5, (at(5_000), 1_000));
        flood(&mut world, HostId(2), RT, factor);
        world.run_until(at(30_000));
        let outcome = outcome(&world, &calls);
        println!("beside {factor} × the rate: {outcome:?}");
        assert_eq!(
            (outcome.sent, outcome.lost + outcome.late),
            (5_000, 0),
            "beside {factor} × the rate"
        );
    }
}
