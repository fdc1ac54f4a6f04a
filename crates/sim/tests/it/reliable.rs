//! Reliable links in simulated networks: no message that a node has accepted is lost on a link or
//! arrives twice, regardless of faults in links and relays.

use crate::common::{RT, at, calls, dropped, flow, link, ms, outcome, stats, uniform};
use std::time::Duration;
use trunkline_base::link_model::{Chain, LinkModel, Loss};
use trunkline_base::{Bitrate, Time};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::wire::NodeId;
use trunkline_overlay::wire::Service;
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::voice::{Call, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World};

const RELIABLE: Service = Service::Reliable;

/// A stream of messages of 1,000 bytes at this interval.
fn stream(world: &mut World, to: u32, spacing: Duration, (start, count): (Time, u64)) -> Call {
    let mut source = VoiceSource::new(NodeId(to + 1), 6_000, RELIABLE, start, count);
    (source.spacing, source.bytes, source.deadline_ms) = (spacing, 1_000, 255);
    let sink = world.attach(HostId(to), 6_000, VoiceSink::default()).unwrap();
    (world.attach(HostId(0), 0, source).unwrap(), sink)
}

/// Asserts that all messages arrived exactly once.
fn all_came(world: &World, call: Call, count: u64) {
    let flow = flow(world, call);
    assert_eq!((flow.received, flow.duplicates), (count, 0));
    assert_eq!(flow.arrivals.len() as u64, count);
}

#[test]
fn every_message_comes_once_over_links_that_lose_a_lot() {
    let bursts = Loss::Burst { p: 0.1, b: 0.5, chain: Chain::PerPacket };
    for (seal, loss) in [(false, uniform(0.1)), (true, uniform(0.1)), (false, bursts)] {
        for seed in 1..=3 {
            let mut model = link(ms(10), loss.clone());
            model.jitter = ms(3);
            let mut topology = Topology::chain([model.clone(), model.clone(), model]);
            if seal {
                topology.seal();
            }
            let mut world = topology.build(seed).unwrap();
            let call = stream(&mut world, 3, ms(20), (at(3_000), 1_500));
            world.run_until(at(45_000));
            all_came(&world, call, 1_500);
            let sent = stats(&world, 0, 0).of(RELIABLE);
            assert!(sent.retransmissions.envelopes > 100, "{sent:?}");
            assert!(sent.retransmissions.envelopes < 400, "{sent:?}");
        }
    }
}

/// The middle relay restarts ten times: the messages that it held are lost, and all those that its
/// neighbours hold arrive once.
#[test]
fn a_relay_that_starts_anew_loses_only_what_it_held() {
    for seal in [false, true] {
        let model = link(ms(5), uniform(0.02));
        let mut topology = Topology::chain([model.clone(), model]);
        if seal {
            topology.seal();
        }
        let mut world = topology.build(7).unwrap();
        let call = stream(&mut world, 2, ms(5), (at(3_000), 10_000));
        for round in 0..10 {
            world.run_until(at(4_000 + 4_000 * round));
            world.crash(HostId(1));
            world.run_until(at(4_300 + 4_000 * round));
            world.restart(HostId(1)).unwrap();
        }
        world.run_until(at(70_000));
        let flow = flow(&world, call);
        assert_eq!(flow.duplicates, 0, "sealed {seal}");
        // Ten times the messages that a relay holds, a round trip's worth.
        let lost = 10_000 - flow.received;
        assert!(lost < 10 * 30, "{lost} lost, sealed {seal}");
        let last = flow.arrivals.iter().rev().take(500).filter(|a| a.is_some()).count();
        assert_eq!(last, 500, "it goes on as before, sealed {seal}");
    }
}

/// Five cuts of five seconds each: nothing is lost, and all messages arrive soon after.
#[test]
fn an_outage_only_delays() {
    let mut world = Topology::chain([link(ms(10), Loss::None)]).build(3).unwrap();
    let call = stream(&mut world, 1, ms(20), (at(3_000), 3_000));
    for round in 0..5 {
        world.run_until(at(5_000 + 10_000 * round));
        world.cut(WireId(0));
        world.run_until(at(10_000 + 10_000 * round));
        world.mend(WireId(0));
    }
    world.run_until(at(70_000));
    all_came(&world, call, 3_000);
    let slowest = flow(&world, call).arrivals.iter().flatten().map(|a| a.delay).max().unwrap();
    assert!(slowest < ms(7_500), "{slowest:?}");
}

/// A transfer at full speed takes nothing from calls on the same link.
#[test]
fn a_transfer_does_not_go_before_voice() {
    let missed = |with_file: bool| {
        let model =
            LinkModel { rate: Some(Bitrate::from_bps(4_000_000)), ..link(ms(10), uniform(0.01)) };
        let mut topology = Topology::chain([model]);
        topology.config_mut(HostId(0)).links[0].rate = Some(Bitrate::from_bps(3_900_000));
        let mut world = topology.build(5).unwrap();
        let calls = calls(&mut world, (0, 1), RT, 5_000, 10, (at(3_000), 3_000));
        if with_file {
            stream(&mut world, 1, ms(1), (at(3_000), 60_000));
        }
        world.run_until(at(70_000));
        if with_file {
            // The transfer exceeded the link, so the window was in full use.
            assert!(dropped(&world, 0, 0, DropReason::QueueFull) > 10_000);
            assert!(stats(&world, 0, 0).of(RELIABLE).originals.bytes > 10_000_000);
        }
        outcome(&world, &calls).missed.estimate
    };
    let (without, with) = (missed(false), missed(true));
    assert!(with < without + 0.001, "{with} with a file, {without} without");
}

/// Data for a neighbour that stopped reading are not kept for ever, and don't delay others.
#[test]
fn what_a_dead_neighbour_is_sent_is_bounded() {
    let mut world = Topology::chain([link(ms(5), Loss::None)]).build(9).unwrap();
    stream(&mut world, 1, ms(1), (at(3_000), 60_000));
    world.run_until(at(4_000));
    world.crash(HostId(1));
    world.run_until(at(60_000));
    let full = dropped(&world, 0, 0, DropReason::QueueFull);
    assert!((50_000..56_000).contains(&full), "{full}");
    // Retransmissions become less and less frequent.
    let repeats = stats(&world, 0, 0).of(RELIABLE).retransmissions.envelopes;
    assert!(repeats < 200, "{repeats}");
}

/// A link's round trip grows to sixty times its length. The link measures the new time, instead of
/// giving up all its data before acknowledgements can arrive.
#[test]
fn a_far_longer_round_trip_is_learned() {
    let model =
        |delay| LinkModel { rate: Some(Bitrate::from_bps(40_000_000)), ..link(delay, Loss::None) };
    let mut world = Topology::chain([model(ms(10)), model(ms(10))]).build(5).unwrap();
    let sink = world.attach(HostId(2), 5_000, StreamSink::default()).unwrap();
    let source = StreamSource::new(NodeId(3), 5_000, at(3_000), Writing::Bulk(400_000_000));
    world.attach(HostId(0), 0, source).unwrap();
    world.run_until(at(15_000));
    for end in [WireEnd::First, WireEnd::Second] {
        world.change(WireId(0), end, model(ms(600))).unwrap();
    }
    world.run_until(at(20_000));
    let read = world.app(sink).read;
    world.run_until(at(45_000));
    let more = world.app(sink).read - read;
    assert!(more > 1_000_000, "{more} bytes in 25 s");
}
