//! Streams in simulated networks: all data written are read unchanged, whatever happens to the
//! links and relays in between.

use crate::common::{RT, at, calls, link, ms, outcome, stats, uniform};
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time};
use trunkline_net::Protocol;
use trunkline_overlay::node::{Routing, StreamStats};
use trunkline_overlay::session::wire::stream::Reset;
use trunkline_overlay::wire::{Metric, NodeId, Service};
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{AppId, HostId, Topology, WireEnd, WireId, World};

const PORT: u16 = 5_000;

type Pair = (AppId<StreamSource>, AppId<StreamSink>);

fn transfer(world: &mut World, (from, to): (u32, u32), port: u16, bytes: u64) -> Pair {
    let sink = world.attach(HostId(to), port, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(to + 1), port, at(3_000), Writing::Bulk(bytes));
    (world.attach(HostId(from), 0, source).unwrap(), sink)
}

fn mbps(world: &World, (_, sink): Pair) -> f64 {
    let sink = world.app(sink);
    let took = sink.ended.expect("an end").since(sink.first.expect("a beginning"));
    8e-6 * sink.read as f64 / took.as_secs_f64()
}

fn streams(world: &World, host: u32) -> StreamStats {
    world.node(HostId(host)).stats().streams
}

/// Asserts that exactly these bytes were read, and that both sides have ended.
fn is_whole(world: &World, (source, sink): Pair, bytes: u64) {
    let (source, sink) = (world.app(source), world.app(sink));
    assert_eq!((source.reset, &sink.resets), (None, &vec![]));
    assert_eq!((sink.read, sink.wrong), (bytes, 0), "{:?}", (source.written(), sink.ended));
    assert!(sink.ended.is_some() && source.ended.is_some());
}

fn chain(rate: u64, delays: &[u64], losses: &[f64]) -> Topology {
    let rate = Some(Bitrate::from_bps(rate));
    let model = |(&delay, &p)| {
        let loss = if p > 0.0 { uniform(p) } else { Loss::None };
        LinkModel { rate, ..link(ms(delay), loss) }
    };
    Topology::chain(delays.iter().zip(losses).map(model))
}

#[test]
fn a_clean_chain_is_filled_and_nothing_is_repeated() {
    for seal in [false, true] {
        let mut topology = chain(10_000_000, &[10, 10, 10], &[0.0, 0.0, 0.0]);
        if seal {
            topology.seal();
        }
        let mut world = topology.build(1).unwrap();
        let pair = transfer(&mut world, (0, 3), PORT, 20_000_000);
        world.run_until(at(40_000));
        is_whole(&world, pair, 20_000_000);
        assert!(mbps(&world, pair) > 8.6, "{}", mbps(&world, pair));
        assert_eq!(streams(&world, 0).retransmitted, 0);
    }
}

/// A TCP's share of the middle link alone would be 3.9 Mbit/s at 1 % loss; over the three links,
/// the stream's own window determines the throughput.
#[test]
fn loss_on_a_link_costs_what_it_costs_there() {
    let mut world = chain(20_000_000, &[10, 10, 10], &[0.0, 0.01, 0.0]).build(3).unwrap();
    let pair = transfer(&mut world, (0, 3), PORT, 10_000_000);
    world.run_until(at(60_000));
    is_whole(&world, pair, 10_000_000);
    assert!(mbps(&world, pair) > 3.0, "{}", mbps(&world, pair));
    assert!(streams(&world, 0).retransmitted < 100, "{:?}", streams(&world, 0));
}

/// The relay restarts five times; the data that it held are lost, and the end retransmits them.
#[test]
fn relays_that_crash_and_routes_that_change_lose_nothing() {
    for seal in [false, true] {
        // A ring of five with two paths from 0 to 2.
        let mut topology = Topology::new();
        for id in 1..=5 {
            topology.host(NodeId(id));
        }
        for (a, b) in [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2)] {
            let rate = Some(Bitrate::from_bps(8_000_000));
            let model = LinkModel { rate, ..link(ms(8), uniform(0.005)) };
            topology.link(HostId(a), HostId(b), model.clone(), model);
        }
        topology.link_state(&Routing::default());
        if seal {
            topology.seal();
        }
        let mut world = topology.build(4).unwrap();
        let pair = transfer(&mut world, (0, 2), PORT, 30_000_000);
        for round in 0..5u64 {
            world.run_until(at(6_000 + 8_000 * round));
            world.crash(HostId(1));
            world.run_until(at(6_500 + 8_000 * round + 500 * (round % 3)));
            world.restart(HostId(1)).unwrap();
        }
        world.run_until(at(150_000));
        is_whole(&world, pair, 30_000_000);
    }
}

#[test]
fn a_cut_only_delays() {
    let mut world = chain(8_000_000, &[10, 10], &[0.0, 0.01]).build(5).unwrap();
    let pair = transfer(&mut world, (0, 2), PORT, 10_000_000);
    for round in 0..4 {
        world.run_until(at(5_000 + 8_000 * round));
        world.cut(WireId(1));
        world.run_until(at(9_000 + 8_000 * round));
        world.mend(WireId(1));
    }
    world.run_until(at(120_000));
    is_whole(&world, pair, 10_000_000);
}

#[test]
fn a_crash_of_an_end_resets() {
    for victim in [0, 2] {
        let mut world = chain(4_000_000, &[10, 10], &[0.0, 0.0]).build(5).unwrap();
        let pair = transfer(&mut world, (0, 2), PORT, 30_000_000);
        world.run_until(at(8_000));
        world.crash(HostId(victim));
        world.run_until(at(9_000));
        world.restart(HostId(victim)).unwrap();
        world.run_until(at(80_000));
        let (source, sink) = (world.app(pair.0), world.app(pair.1));
        if victim == 2 {
            assert_eq!(source.reset, Some(Reset::Unknown));
        } else {
            assert_eq!(sink.resets, [Reset::Unknown]);
        }
        assert_eq!(sink.wrong, 0);
        for host in [0, 2] {
            assert_eq!(streams(&world, host).open, 0);
        }
    }
}

#[test]
fn one_that_nobody_takes_is_refused() {
    let mut world = chain(4_000_000, &[10, 10], &[0.0, 0.0]).build(5).unwrap();
    let refused = |world: &mut World, node: u32| {
        let source = StreamSource::new(NodeId(node), 1, at(3_000), Writing::Bulk(1_000));
        world.attach(HostId(0), 0, source).unwrap()
    };
    let ids = [2, 3, 1, 9].map(|node| refused(&mut world, node));
    world.run_until(at(20_000));
    let why = ids.map(|id| world.app(id).reset.unwrap());
    use Reset::{NoRoute, NotListening};
    assert_eq!(why, [NotListening, NotListening, NotListening, NoRoute]);
}

/// Both ends are at one node, so no link is needed.
#[test]
fn a_stream_within_a_node() {
    let mut world = chain(4_000_000, &[10], &[0.0]).build(5).unwrap();
    let pair = transfer(&mut world, (0, 0), PORT, 5_000_000);
    world.run_until(at(30_000));
    is_whole(&world, pair, 5_000_000);
    assert_eq!(stats(&world, 0, 0).of(Service::Reliable).originals.envelopes, 0);
}

/// Several streams share a chain evenly, whatever their order of starting, and don't affect calls.
#[test]
fn streams_share_and_voice_goes_first() {
    let missed = |with: bool| {
        let mut topology = chain(8_000_000, &[10, 10], &[0.0, 0.01]);
        topology.config_mut(HostId(0)).links[0].rate = Some(Bitrate::from_bps(7_800_000));
        topology.config_mut(HostId(1)).links[1].rate = Some(Bitrate::from_bps(7_800_000));
        let mut world = topology.build(5).unwrap();
        let calls = calls(&mut world, (0, 2), RT, 6_000, 10, (at(3_000), 3_000));
        let pairs: Vec<_> = (0..if with { 4 } else { 0 })
            .map(|k| transfer(&mut world, (0, 2), PORT + k, 100_000_000))
            .collect();
        world.run_until(at(63_000));
        let read: Vec<_> = pairs.iter().map(|p| world.app(p.1).read as f64).collect();
        if with {
            let (sum, squares): (f64, f64) =
                read.iter().fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
            assert!(sum * sum / (4.0 * squares) > 0.95, "{read:?}");
        }
        outcome(&world, &calls).missed.estimate
    };
    let (without, with) = (missed(false), missed(true));
    assert!(with < without + 0.001, "{with} with files, {without} without");
}

/// A reader that doesn't read blocks only its own stream, up to its limit; the others get
/// everything.
#[test]
fn one_that_is_not_read_is_nobody_elses_loss() {
    let mut world = chain(8_000_000, &[10, 10], &[0.0, 0.0]).build(5).unwrap();
    let lazy = world.attach(HostId(2), 1, StreamSink::that_rests()).unwrap();
    let source = StreamSource::new(NodeId(3), 1, at(3_000), Writing::Bulk(50_000_000));
    let source = world.attach(HostId(0), 0, source).unwrap();
    let pair = transfer(&mut world, (0, 2), PORT, 5_000_000);
    world.run_until(at(300_000));
    is_whole(&world, pair, 5_000_000);
    let kept = world.app(source).written();
    assert!(world.app(lazy).read == 256 << 10 && kept < 5 << 20, "{kept}");
    // After ten minutes, the stream is reset.
    assert_eq!(world.app(source).reset, None);
    world.run_until(at(620_000));
    assert_eq!(world.app(source).reset, Some(Reset::Stalled));
}

/// Both directions have ended long before the last bytes are read, and the node keeps those until
/// then.
#[test]
fn what_is_read_late_is_all_there() {
    let mut world = chain(8_000_000, &[10, 10], &[0.0, 0.0]).build(5).unwrap();
    let sink = StreamSink::that_rests_until(at(120_000));
    let sink = world.attach(HostId(2), PORT, sink).unwrap();
    let source = StreamSource::new(NodeId(3), PORT, at(3_000), Writing::Bulk(1_000_000));
    let source = world.attach(HostId(0), 0, source).unwrap();
    world.run_until(at(119_000));
    assert_eq!(world.app(sink).read, 256 << 10);
    assert_eq!((streams(&world, 0).open, streams(&world, 2).open), (0, 1));
    world.run_until(at(130_000));
    is_whole(&world, (source, sink), 1_000_000);
    world.run_until(at(200_000));
    assert_eq!(streams(&world, 2).open, 0);
}

/// The only relay says goodbye and is back two seconds later. Data written meanwhile, with nothing
/// in flight that would time out, leave as soon as there is a route.
#[test]
fn what_is_written_without_a_way_leaves_when_there_is_one() {
    let mut topology = chain(8_000_000, &[10, 10], &[0.0, 0.0]);
    topology.link_state(&Routing::default());
    let mut world = topology.build(5).unwrap();
    let sink = world.attach(HostId(2), PORT, StreamSink::of_messages(1_000)).unwrap();
    let writing = Writing::Messages { bytes: 1_000, spacing: ms(100), count: 200 };
    let source = StreamSource::new(NodeId(3), PORT, at(3_000), writing);
    world.attach(HostId(0), 0, source).unwrap();
    world.run_until(at(8_000));
    world.stop(HostId(1));
    world.run_until(at(10_000));
    world.restart(HostId(1)).unwrap();
    world.run_until(at(40_000));
    let delays = &world.app(sink).delays;
    assert_eq!(delays.len(), 200);
    let slowest = delays.iter().max().unwrap();
    assert!(*slowest > ms(1_000) && *slowest < ms(4_500), "{slowest:?}");
}

/// Time in ms from when node 0 has a route to node 3 until more has been read there.
fn until_read_on(world: &mut World, pair: Pair, mut now: u64) -> u64 {
    let read = world.app(pair.1).read;
    let mut until = |is_so: &dyn Fn(&World) -> bool| {
        while !is_so(world) {
            now += 1;
            assert!(now < 60_000);
            world.run_until(at(now));
        }
        now
    };
    let back = until(&|world| {
        world.node(HostId(0)).table().next_hop(NodeId(3), Metric::default()).is_some()
    });
    until(&|world| world.app(pair.1).read > read) - back
}

/// Data lost on a link are retransmitted as soon as it is up, however long it was down, and not
/// only when a timer with a backoff of seconds expires.
#[test]
fn a_link_that_is_up_again_is_used_at_once() {
    for outage in [3_000, 9_000] {
        let mut topology = chain(8_000_000, &[10, 10], &[0.0, 0.0]);
        topology.link_state(&Routing::default());
        let mut world = topology.build(5).unwrap();
        let pair = transfer(&mut world, (0, 2), PORT, 8_000_000);
        world.run_until(at(8_000));
        world.cut(WireId(1));
        world.run_until(at(8_000 + outage));
        world.mend(WireId(1));
        let took = until_read_on(&mut world, pair, 8_000 + outage);
        assert!(took < 100, "after {outage} ms: {took} ms");
        world.run_until(at(90_000));
        is_whole(&world, pair, 8_000_000);
    }
}

/// After the crash of its relay, a stream uses another path at once, too.
#[test]
fn another_way_is_used_at_once() {
    for outage in [6_000, 9_000, 12_000] {
        let mut topology = Topology::new();
        for id in 1..=4 {
            topology.host(NodeId(id));
        }
        for (a, b) in [(0, 1), (1, 2), (0, 3), (3, 2)] {
            let rate = Some(Bitrate::from_bps(8_000_000));
            let model = LinkModel { rate, ..link(ms(10), Loss::None) };
            topology.link(HostId(a), HostId(b), model.clone(), model);
        }
        topology.link_state(&Routing::default());
        let mut world = topology.build(5).unwrap();
        world.cut(WireId(2));
        let pair = transfer(&mut world, (0, 2), PORT, 8_000_000);
        world.run_until(at(8_000));
        world.crash(HostId(1));
        world.run_until(at(8_000 + outage));
        world.mend(WireId(2));
        let took = until_read_on(&mut world, pair, 8_000 + outage);
        assert!(took < 200, "after {outage} ms: {took} ms");
        world.run_until(at(90_000));
        is_whole(&world, pair, 8_000_000);
    }
}

/// A link that is silent for longer than two timeouts, but not long enough to count as down, has
/// lost a whole window. All of it is retransmitted within a few round trips, instead of one packet
/// in each.
#[test]
fn a_short_silence_costs_little_more_than_itself() {
    for silence in [150, 300, 450] {
        let mut world = chain(40_000_000, &[10, 10], &[0.0, 0.0]).build(5).unwrap();
        let pair = transfer(&mut world, (0, 2), PORT, 60_000_000);
        let mut now = 10_000;
        world.run_until(at(now));
        world.cut(WireId(0));
        now += silence;
        world.run_until(at(now));
        world.mend(WireId(0));
        let goal = world.app(pair.1).read + 2_000_000;
        while world.app(pair.1).read < goal && now < 60_000 {
            now += 10;
            world.run_until(at(now));
        }
        let took = now - 10_000 - silence;
        assert!(took < 1_200, "2 MB took {took} ms after {silence} ms of silence");
        world.run_until(at(90_000));
        is_whole(&world, pair, 60_000_000);
    }
}

/// Data that waited in a node because the next link was silent don't count as a queue that makes
/// the stream slow down for seconds: between silences, it uses most of the link.
#[test]
fn short_silences_again_and_again_leave_a_stream_most_of_the_rest() {
    for (silence, least) in [(300, 7.0), (500, 5.8), (800, 4.0)] {
        let mut world = chain(10_000_000, &[10, 10, 10], &[0.0; 3]).build(1).unwrap();
        let pair = transfer(&mut world, (0, 3), PORT, 100_000_000);
        let mut before = 0;
        for round in 2..12 {
            if round == 4 {
                before = world.app(pair.1).read;
            }
            world.run_until(at(3_000 * round - silence));
            world.cut(WireId(1));
            world.run_until(at(3_000 * round));
            world.mend(WireId(1));
        }
        let mbps = 8e-6 * (world.app(pair.1).read - before) as f64 / 24.0;
        assert!(mbps > least, "{mbps} Mbit/s with {silence} ms of silence in every 3 s");
    }
}

/// An end-to-end TCP with segments of 1,448 bytes and a round trip of 1.2 s carries 0.12 Mbit/s at
/// 1 % loss by the square-root law.
#[test]
fn a_stream_over_long_links_that_lose_carries_more_than_a_tcp_from_end_to_end() {
    let mut carried = 0.0;
    for seed in 1..=3 {
        let mut world = chain(10_000_000, &[200; 3], &[0.0, 0.01, 0.0]).build(seed).unwrap();
        let pair = transfer(&mut world, (0, 3), PORT, 100_000_000);
        world.run_until(at(63_000));
        let before = world.app(pair.1).read;
        world.run_until(at(263_000));
        carried += 8e-6 * (world.app(pair.1).read - before) as f64 / 200.0 / 3.0;
    }
    assert!(carried > 0.15, "{carried} Mbit/s");
}

/// A stream starts while a TCP fills a queue of 1.2 s, far longer than the timer of a link that has
/// measured an empty queue. The stream still gets a share.
#[test]
fn a_stream_that_begins_behind_a_tcp_in_a_slow_queue_gets_a_share() {
    for late in [400, 600, 800] {
        let mut topology = Topology::new();
        let hosts = [1, 2].map(|id| topology.host(NodeId(id)));
        topology.routed_link(hosts[0], hosts[1], ms(12), ms(12));
        let mut world = topology.build(1).unwrap();
        let routers = [world.add_router(), world.add_router()];
        let rate = |bps| Some(Bitrate::from_bps(bps));
        let (slow, fast) = (rate(1_000_000), rate(5_000_000));
        let queue = Queue::Packets(100);
        let slow = LinkModel { rate: slow, queue, ..link(ms(10), Loss::None) };
        let queue = Queue::Packets(5_000);
        let fast = LinkModel { rate: fast, queue, ..link(ms(1), Loss::None) };
        world.cable(routers[0], routers[1], slow.clone(), slow).unwrap();
        let plain = [world.add_plain_host(), world.add_plain_host()];
        for ends in [hosts, plain] {
            for (host, router) in ends.into_iter().zip(routers) {
                world.cable(host, router, fast.clone(), fast.clone()).unwrap();
            }
        }
        let sink = world.attach(hosts[1], PORT, StreamSink::default()).unwrap();
        let begins = at(3_000 + late);
        let source = StreamSource::new(NodeId(2), PORT, begins, Writing::Bulk(u64::MAX));
        world.attach(hosts[0], 0, source).unwrap();
        let (to, tcp) = (world.endpoint(plain[1], 80), Profile::linux_6());
        let peer = world.bind(plain[1], Protocol::TCP, 80, Sink::new(tcp.clone(), 80, 7)).unwrap();
        let bulk = Bulk::new(tcp, 4_000, to, 7, (at(3_100), Time::NEVER), u64::MAX);
        world.bind(plain[0], Protocol::TCP, 4_000, bulk).unwrap();
        let read = |world: &World| [world.app(sink).read, world.agent(peer).bytes()];
        world.run_until(at(63_000));
        let before = read(&world);
        world.run_until(at(363_000));
        let [ours, its] = [0, 1].map(|n| (read(&world)[n] - before[n]) as f64);
        assert!((0.5..2.0).contains(&(ours / its)), "{late} ms late: {ours} and {its} bytes");
    }
}

/// A link becomes many times slower while a full window of a stream is on its way: waiting data are
/// not retransmitted again and again, before or behind that link, so that the application keeps
/// reading.
#[test]
fn a_link_that_becomes_far_slower_is_not_filled_with_retransmissions() {
    for slow in [0, 1] {
        let mut shares = Vec::new();
        for n in (1..=8).map(|n| 5 * n) {
            let model = |bps| LinkModel {
                rate: Some(Bitrate::from_bps(bps)),
                queue: Queue::Packets(100),
                ..link(ms(20 + 2 * n), Loss::None)
            };
            let rate = 300_000 + 10_000 * n;
            let chain = [model(40_000_000), model(40_000_000)];
            let mut world = Topology::chain(chain).build(n).unwrap();
            let pair = transfer(&mut world, (0, 2), PORT, 200_000_000);
            world.run_until(at(10_000));
            for end in [WireEnd::First, WireEnd::Second] {
                world.change(WireId(slow), end, model(rate)).unwrap();
            }
            let begun = world.app(pair.1).read;
            world.run_until(at(100_000));
            let read = world.app(pair.1).read - begun;
            shares.push(read as f64 * 8.0 / 90.0 / rate as f64);
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        // The sender waits for its own link, but learns of another one only by what is lost there.
        let (most, each) = if slow == 0 { (0.9, 0.85) } else { (0.75, 0.55) };
        assert!(mean > most && shares.iter().all(|&share| share > each), "link {slow}: {shares:?}");
    }
}

/// The capacity of a link goes to all streams of its node in turn, even if they have large windows
/// from when the link was faster.
#[test]
fn streams_of_a_node_share_a_link_that_is_full() {
    let model = |bps| LinkModel {
        rate: Some(Bitrate::from_bps(bps)),
        queue: Queue::Packets(100),
        ..link(ms(50), Loss::None)
    };
    let mut world = Topology::chain([model(40_000_000)]).build(5).unwrap();
    let pairs = [0, 1, 2].map(|n| transfer(&mut world, (0, 1), PORT + n, 200_000_000));
    world.run_until(at(10_000));
    world.change(WireId(0), WireEnd::First, model(300_000)).unwrap();
    let before = pairs.map(|pair| world.app(pair.1).read);
    world.run_until(at(70_000));
    let read = [0, 1, 2].map(|n| world.app(pairs[n].1).read - before[n]);
    let all: u64 = read.iter().sum();
    assert!(read.iter().all(|&one| 5 * one > all), "{read:?}");
}

/// Hundreds of streams wait for a slow link. Others can still open, in both directions, before each
/// of those has had its turn, and data in the reverse direction aren't delayed by the
/// acknowledgements.
#[test]
fn streams_that_wait_hold_up_neither_requests_nor_acknowledgements() {
    let model = LinkModel {
        rate: Some(Bitrate::from_bps(256_000)),
        queue: Queue::Packets(20),
        ..link(ms(20), Loss::None)
    };
    let mut world = Topology::chain([model]).build(5).unwrap();
    for n in 0..300 {
        transfer(&mut world, (0, 1), PORT + n, 200_000_000);
    }
    world.run_until(at(40_000));
    let start = |world: &mut World, (from, to): (u32, u32), bytes| {
        let port = PORT + 1_000 + to as u16;
        let sink = world.attach(HostId(to), port, StreamSink::default()).unwrap();
        let writing = Writing::Bulk(bytes);
        let source = StreamSource::new(NodeId(to + 1), port, at(40_000), writing);
        (world.attach(HostId(from), 0, source).unwrap(), sink)
    };
    let there = start(&mut world, (0, 1), 500);
    let back = start(&mut world, (1, 0), 1_000_000);
    world.run_until(at(45_000));
    for pair in [there, back] {
        assert_eq!((world.app(pair.0).reset, world.app(pair.1).streams), (None, 1));
        assert!(world.app(pair.0).written() > 0);
    }
    world.run_until(at(75_000));
    let rate = world.app(back.1).read as f64 * 8.0 / 35.0;
    assert!(rate > 0.5 * 256e3, "{rate} bit/s");
}

/// Far more streams cross a relay than its slow link can carry: copies of data already waiting
/// there don't displace new data.
#[test]
fn a_relays_queue_is_no_longer_than_the_ends_wait() {
    let model = |bps| LinkModel {
        rate: Some(Bitrate::from_bps(bps)),
        queue: Queue::Packets(50),
        ..link(ms(20), Loss::None)
    };
    let mut world = Topology::chain([model(10_000_000), model(256_000)]).build(5).unwrap();
    let pairs: Vec<_> =
        (0..50).map(|n| transfer(&mut world, (0, 2), PORT + n, 200_000_000)).collect();
    world.run_until(at(60_000));
    let read = |world: &World| pairs.iter().map(|pair| world.app(pair.1).read).sum::<u64>();
    let before = read(&world);
    world.run_until(at(160_000));
    let rate = (read(&world) - before) as f64 * 8.0 / 100.0;
    assert!(pairs.iter().all(|pair| world.app(pair.0).reset.is_none()));
    assert!(rate > 0.7 * 256e3, "{rate} bit/s");
}
