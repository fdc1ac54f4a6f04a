//! Streams that open on a thin link that others fill, and while their route changes.

use crate::common::*;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{HostId, Topology, WireId};

const BULK: u16 = 5_000;
const SHORT: u16 = 6_000;

/// Times from opening a short stream to its first byte, beside `bulk` endless ones, over one sealed
/// link with a round trip of 40 ms. Its router has a queue of `queue` packets, and the nodes
/// don't know its rate.
fn first_bytes(kbps: u64, bulk: u16, queue: usize) -> Vec<Option<Duration>> {
    let model = || LinkModel {
        rate: Some(Bitrate::from_bps(1_000 * kbps)),
        queue: Queue::Packets(queue),
        ..link(ms(20), Loss::None)
    };
    let mut topology = Topology::chain([model()]);
    topology.seal();
    let mut world = topology.build(1).unwrap();
    for n in 0..bulk {
        world.attach(HostId(1), BULK + n, StreamSink::default()).unwrap();
        let begins = at(3_000 + 100 * u64::from(n));
        let source = StreamSource::new(NodeId(2), BULK + n, begins, Writing::Bulk(u64::MAX));
        world.attach(HostId(0), 0, source).unwrap();
    }
    (0..10u16)
        .map(|n| {
            let begins = 40_000 + 31_370 * u64::from(n);
            let sink = world.attach(HostId(1), SHORT + n, StreamSink::default()).unwrap();
            let source = StreamSource::new(NodeId(2), SHORT + n, at(begins), Writing::Bulk(6));
            world.attach(HostId(0), 0, source).unwrap();
            (0..31_000).step_by(10).find_map(|wait| {
                world.run_until(at(begins + wait));
                (world.app(sink).read > 0).then(|| ms(wait))
            })
        })
        .collect()
}

#[test]
fn a_stream_opens_beside_bulk_on_a_thin_link() {
    for (kbps, most) in [(64, [2_300, 2_300, 3_000]), (128, [1_200, 1_200, 1_300])] {
        for (bulk, most) in [1, 2, 4].into_iter().zip(most) {
            let mut times = first_bytes(kbps, bulk, 6);
            println!("{kbps} kbit/s, {bulk} bulk streams: {times:?}");
            times.sort();
            let median = times[5].expect("it opens");
            assert!(median <= ms(most), "{kbps} kbit/s, {bulk} bulk streams: {median:?}");
        }
    }
}

#[test]
fn a_stream_opens_behind_a_long_queue() {
    for kbps in [64, 128] {
        for bulk in [1, 2, 4] {
            let times = first_bytes(kbps, bulk, 100);
            println!("{kbps} kbit/s, {bulk} bulk streams: {times:?}");
            assert!(times.iter().all(Option::is_some), "{kbps} kbit/s, {bulk}: {times:?}");
        }
    }
}

/// The link that a stream's request, its answer or the echo of that crosses is cut at this moment.
#[test]
fn a_stream_opens_while_its_route_changes() {
    for cut_after in (0..200).step_by(10) {
        let mut t = Topology::new();
        let hosts = [1, 2, 3, 4].map(|n| t.host(NodeId(n)));
        for (a, b, delay) in [(0, 1, 20), (1, 3, 20), (0, 2, 30), (2, 3, 30)] {
            t.link(hosts[a], hosts[b], link(ms(delay), Loss::None), link(ms(delay), Loss::None));
        }
        t.link_state(&Routing::default());
        let mut world = t.build(1).unwrap();
        let sink = world.attach(HostId(3), SHORT, StreamSink::default()).unwrap();
        let source = StreamSource::new(NodeId(4), SHORT, at(5_000), Writing::Bulk(10_000));
        let source = world.attach(HostId(0), 0, source).unwrap();
        world.run_until(at(5_000 + cut_after));
        world.cut(WireId((cut_after / 10 % 2) as u32));
        // Packets that were lost with the link are sent again after five seconds, and five more.
        world.run_until(at(30_000));
        let (source, sink) = (world.app(source), world.app(sink));
        assert_eq!((source.reset, sink.read, sink.streams), (None, 10_000, 1), "{cut_after} ms");
    }
}

/// Streams that have ended are forgotten for new ones, however those of two nodes alternate.
#[test]
fn ended_streams_make_room_for_new_ones() {
    let mut t = Topology::new();
    let hosts = [1, 2, 3].map(|n| t.host(NodeId(n)));
    for other in [hosts[0], hosts[2]] {
        t.link(other, hosts[1], link(ms(5), Loss::None), link(ms(5), Loss::None));
    }
    t.route_all();
    t.config_mut(hosts[1]).streams.max = 64;
    let mut world = t.build(1).unwrap();
    let sink = world.attach(hosts[1], SHORT, StreamSink::default()).unwrap();
    let mut sources = Vec::new();
    for n in 0..330u64 {
        let host = if n % 11 == 10 { hosts[2] } else { hosts[0] };
        let source = StreamSource::new(NodeId(2), SHORT, at(1_000 + 100 * n), Writing::Bulk(9));
        sources.push(world.attach(host, 0, source).unwrap());
    }
    world.run_until(at(60_000));
    let reset = sources.iter().filter(|&&source| world.app(source).reset.is_some()).count();
    assert_eq!((reset, world.app(sink).streams), (0, 330));
}
