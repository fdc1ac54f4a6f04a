//! Floods in real time on a link that loses packets, and floods of a node beside its own calls.

use crate::common::*;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{Chain, LinkModel, Loss, Queue};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Call, CallOutcome, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, World};

const RATE: u64 = 6_000_000;
/// Headers of a packet on the link, in bytes.
const HEADERS: usize = 106;

/// Nodes 1 and 3 send over node 2 to node 4; the last link has 6 Mbit/s.
fn net(loss: Loss) -> World {
    let mut t = Topology::new();
    let hosts = [1, 2, 3, 4].map(|n| t.host(NodeId(n)));
    let wide = || link(ms(2), Loss::None);
    let thin = || LinkModel {
        rate: Some(Bitrate::from_bps(RATE + RATE / 10)),
        queue: Queue::Packets(100),
        ..link(ms(2), loss.clone())
    };
    t.link(hosts[0], hosts[1], wide(), wide());
    t.link(hosts[2], hosts[1], wide(), wide());
    t.link_with(hosts[1], hosts[3], thin(), thin(), |config| {
        config.rate = Some(Bitrate::from_bps(RATE));
    });
    t.link_state(&Routing::default());
    t.build(1).unwrap()
}

/// `n` calls from node 1, of 500 packets each with this lifetime in milliseconds.
fn some_calls(world: &mut World, n: u16, lifetime: u8) -> Vec<Call> {
    let one = |k: u16| {
        let (port, start) = (5_000 + k, at(6_000) + ms(2) * u32::from(k));
        let mut source = VoiceSource::new(NodeId(4), port, RT, start, 500);
        source.deadline_ms = lifetime;
        let sink = world.attach(HostId(3), port, VoiceSink::default()).unwrap();
        (world.attach(HostId(0), 0, source).unwrap(), sink)
    };
    (0..n).map(one).collect()
}

/// Packets of `bytes` bytes from `host`, which fill the link `factor` times; the first at `start`.
fn flood(world: &mut World, host: u32, (factor, bytes, lifetime): (f64, usize, u8), start: u64) {
    let mut source = VoiceSource::new(NodeId(4), 7_000, RT, at(start), 1 << 20);
    (source.bytes, source.deadline_ms) = (bytes, lifetime);
    let bits = 8.0 * (bytes + HEADERS) as f64;
    source.spacing = Duration::from_secs_f64(bits / (factor * RATE as f64));
    world.attach(HostId(3), 7_000, VoiceSink::default()).unwrap();
    world.attach(HostId(host), 0, source).unwrap();
}

/// Share of the calls' packets that are lost or late.
fn missed(world: &World, calls: &[Call], lifetime: u8) -> f64 {
    let outcome = CallOutcome::of(world, calls, ms(lifetime.into()));
    (outcome.lost + outcome.late) as f64 / outcome.sent as f64
}

/// A retransmission that waits for its source's turn is not queued again for each further request.
/// That would take the link's rate, and the budget for retransmissions, from others.
#[test]
fn a_flood_that_is_repaired_leaves_calls_theirs() {
    let mut k = 0;
    for p in [0.02, 0.05, 0.08] {
        for b in [p, 0.75] {
            for lifetime in [100, 255] {
                let loss = Loss::Burst { p, b, chain: Chain::PerPacket };
                let n = [1, 6, 10][k % 3];
                let mut alone = net(loss.clone());
                let calls = some_calls(&mut alone, n, lifetime);
                alone.run_until(at(17_000));
                let alone = missed(&alone, &calls, lifetime);
                for factor in [[0.9, 2.0], [1.2, 3.0]][k % 2] {
                    let mut world = net(loss.clone());
                    let calls = some_calls(&mut world, n, lifetime);
                    flood(&mut world, 2, (factor, [172, 1_000][k / 2 % 2], lifetime), 5_000);
                    world.run_until(at(17_000));
                    let beside = missed(&world, &calls, lifetime);
                    let sent = stats(&world, 1, 2).of(Service::RealTime).retransmissions.envelopes;
                    let receiver = stats(&world, 3, 0).of(Service::RealTime).receiver.unwrap();
                    let times = sent as f64 / receiver.missing as f64;
                    println!(
                        "{p} lost, b {b}, {lifetime} ms, {n} calls beside {factor} x: \
                         {alone:.4} alone, {beside:.4}; {times:.2} retransmissions for each lost"
                    );
                    assert!(beside <= alone + 0.005, "{beside} missed");
                    assert!(times <= 3.0, "{times} retransmissions for each lost packet");
                    assert_eq!(dropped(&world, 1, 2, DropReason::RetransmitBudget), 0);
                }
                k += 1;
            }
        }
    }
}

/// The flood and the calls are of one node, so that only its flows can be told apart.
#[test]
fn a_call_is_whole_beside_a_flood_of_its_own_node() {
    for (p, lifetime) in [(0.0, 100), (0.08, 100), (0.08, 255)] {
        for factor in [1.2, 2.0, 4.0] {
            let mut world = net(if p > 0.0 { uniform(p) } else { Loss::None });
            let calls = some_calls(&mut world, 2, lifetime);
            // Another flow, which needs a tenth of the link.
            let mut other = VoiceSource::new(NodeId(4), 7_100, RT, at(5_000), 1 << 20);
            (other.bytes, other.spacing) = (650, ms(10));
            world.attach(HostId(3), 7_100, VoiceSink::default()).unwrap();
            world.attach(HostId(0), 0, other).unwrap();
            // It begins 100 ms before the calls.
            flood(&mut world, 0, (factor, 1_000, 100), 5_900);
            world.run_until(at(17_000));
            let outcome = CallOutcome::of(&world, &calls, ms(lifetime.into()));
            let lost = outcome.lost + outcome.late;
            println!("{p} lost, beside {factor} x: {lost} of {} missed", outcome.sent);
            assert!(lost <= if p > 0.0 { 1 } else { 0 }, "{outcome:?}");
        }
    }
}
