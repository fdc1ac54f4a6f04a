//! Delivery over several hops, and reproducibility of runs.

use crate::common::*;
use std::time::Duration;
use trunkline_base::link_model::{Chain, LinkModel, Loss};
use trunkline_net::IpVersion;
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::wire::{MAX_HOPS, NodeId, Service};
use trunkline_sim::voice::{CallOutcome, VoiceLog, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

#[test]
fn five_hops_without_loss_take_their_delay_and_deliver_once() {
    for service in [BE, RT] {
        let mut world = Topology::chain(vec![link(ms(10), Loss::None); 5]).build(1).unwrap();
        let made = calls(&mut world, (0, 5), service, 5_000, 10, (at(1_000), 100));
        world.run_until(at(4_000));
        let o = outcome(&world, &made);
        assert_eq!((o.sent, o.lost, o.recovered, o.duplicates), (1_000, 0, 0, 0), "{service:?}");
        assert!(o.delays.iter().all(|d| *d == ms(50)), "{service:?}");
        assert!(made.iter().all(|&c| flow(&world, c).out_of_order == 0));
    }
}

#[test]
fn a_log_knows_what_a_sink_knows() {
    let run = |log: bool| {
        let lossy = LinkModel { jitter: ms(10), ..link(ms(10), uniform(0.2)) };
        let mut world = Topology::chain([lossy.clone(), lossy]).build(4).unwrap();
        let source = VoiceSource::new(NodeId(3), 5_000, RT, at(500), 1_000);
        let source = world.attach(HostId(0), 0, source).unwrap();
        let mut o = if log {
            let sink = world.attach(HostId(2), 5_000, VoiceLog::default()).unwrap();
            world.run_until(at(22_000));
            CallOutcome::of(&world, &[(source, sink)], ms(35))
        } else {
            let sink = world.attach(HostId(2), 5_000, VoiceSink::default()).unwrap();
            world.run_until(at(22_000));
            CallOutcome::of(&world, &[(source, sink)], ms(35))
        };
        let up = |d: &Duration| Duration::from_micros(d.as_nanos().div_ceil(1_000) as u64);
        o.delays = o.delays.iter().map(up).collect();
        let (lost, late, recovered) = (o.lost, o.late, o.recovered);
        assert!(lost > 5 && late > 100 && recovered > 100, "{lost} {late} {recovered}");
        format!("{o:?}")
    };
    assert_eq!(run(true), run(false));
}

fn digest(seed: u64) -> (u64, u64) {
    let lossy = LinkModel { jitter: ms(3), ..link(ms(10), uniform(0.05)) };
    let mut world = Topology::chain([lossy.clone(), lossy]).build(seed).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 5, (at(500), 100));
    world.run_until(at(4_000));
    (world.digest(), outcome(&world, &made).lost)
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1).0, digest(2).0);
}

#[test]
fn a_seed_is_the_same_run_on_every_machine() {
    // Without nodes, so that the digest doesn't change with the overlay's protocol.
    let outages = Loss::Burst { p: 0.2, b: 0.75, chain: Chain::Continuous { spacing: ms(20) } };
    let model = LinkModel { jitter: ms(30), ..link(ms(10), outages) };
    let mut world = World::new(IpVersion::V6, 1);
    let (a, b) = world.plain_path(model.clone(), model, None).unwrap();
    let source = VoiceSource::new(NodeId(0), 7, BE, at(1_000), 500);
    world.attach_plain(a, 9, source).unwrap();
    world.attach_plain(b, 7, VoiceSink::default()).unwrap();
    world.run_until(at(12_000));
    assert_eq!(format!("{:#018x}", world.digest()), "0xc988da42b61df138");
}

#[test]
fn a_plain_path_shares_a_links_luck() {
    // Without hellos, only the calls on the forward wire would advance a per-packet chain; a
    // process in continuous time doesn't depend on them.
    let outages = Loss::Burst { p: 0.2, b: 0.75, chain: Chain::Continuous { spacing: ms(20) } };
    let model = link(ms(10), outages);
    let mut world = Topology::chain([model.clone()]).build(3).unwrap();
    let (a, b) = world.plain_path(model.clone(), model, Some(WireId(0))).unwrap();
    let over = calls(&mut world, (0, 1), BE, 5_000, 1, (at(1_000), 500));
    let source = VoiceSource::new(NodeId(0), 7, BE, at(1_000), 500);
    let plain = (
        world.attach_plain(a, 9, source).unwrap(),
        world.attach_plain(b, 7, VoiceSink::default()).unwrap(),
    );
    assert!(matches!(
        world.attach_plain(b, 7, VoiceSink::default()),
        Err(WorldError::PlainPort(7))
    ));
    world.run_until(at(12_000));
    let plain_flow = flow(&world, plain);
    assert_eq!(plain_flow.arrivals, flow(&world, over[0]).arrivals);
    let lost = CallOutcome::of(&world, &[plain], ms(100)).lost;
    assert!((50..200).contains(&lost), "{lost} of 500 at 20 % loss");
}

#[test]
fn a_packet_in_a_circle_dies() {
    let mut t = Topology::new();
    let [a, b, c] = [1, 2, 3].map(|id| t.host(NodeId(id)));
    t.link(a, b, link(ms(1), Loss::None), link(ms(1), Loss::None));
    t.link(b, c, link(ms(1), Loss::None), link(ms(1), Loss::None));
    t.link(c, a, link(ms(1), Loss::None), link(ms(1), Loss::None));
    // Node d can't be reached: each node forwards packets for it to the next.
    let d = t.host(NodeId(4));
    t.link(c, d, link(ms(1), Loss::None), link(ms(1), Loss::None));
    t.route(a, d, b, Duration::ZERO);
    t.route(b, d, c, Duration::ZERO);
    t.route(c, d, a, Duration::ZERO);
    let mut world = t.build(1).unwrap();
    let made = calls(&mut world, (0, 3), RT, 5_000, 1, (at(1_000), 10));
    world.run_until(at(3_000));
    assert_eq!(outcome(&world, &made).lost, 10);
    let died = [a, b, c].map(|h| world.node(h).stats().drops.get(DropReason::HopLimit));
    assert_eq!(died.iter().sum::<u64>(), 10);
    let sent = |h: u32| (0..2).map(move |l| (h, l));
    let crossed: u64 =
        (0..3).flat_map(sent).map(|(h, l)| stats(&world, h, l).of(RT).originals.envelopes).sum();
    assert_eq!(crossed, 10 * u64::from(MAX_HOPS));
}

/// A loop of two nodes ends long before a loop of three.
#[test]
fn a_packet_turns_back_three_times_at_most() {
    let mut t = Topology::new();
    let [a, b, c] = [1, 2, 3].map(|id| t.host(NodeId(id)));
    t.link(a, b, link(ms(1), Loss::None), link(ms(1), Loss::None));
    t.link(b, c, link(ms(1), Loss::None), link(ms(1), Loss::None));
    t.route(a, c, b, Duration::ZERO);
    t.route(b, c, a, Duration::ZERO);
    let mut world = t.build(1).unwrap();
    calls(&mut world, (0, 2), RT, 5_000, 1, (at(1_000), 10));
    world.run_until(at(3_000));
    let bounced = [a, b].map(|h| world.node(h).stats().drops.get(DropReason::Bounced));
    assert_eq!(bounced, [10, 0]);
    let crossed = [0, 1].map(|host| stats(&world, host, 0).of(RT).originals.envelopes);
    assert_eq!(crossed, [20, 20]);
}

#[test]
fn mistakes_have_their_errors() {
    let mut world = Topology::chain([LinkModel::default()]).build(1).unwrap();
    let (a, b) = (HostId(0), HostId(1));
    let perfect = LinkModel::default;
    assert_eq!(world.connect(a, b, perfect(), perfect()), Err(WorldError::NoLink(a, b)));
    world.attach(a, 5, VoiceSink::default()).unwrap();
    let twice = world.attach(a, 5, VoiceSink::default()).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "host 0 refused port 5: the virtual port is taken by another application"
    );
    let bad = Topology::chain([link(ms(1), uniform(2.0))]).build(1).err().unwrap();
    assert!(matches!(bad, WorldError::Model(..)), "{bad}");
    // A node without a route drops the packets.
    let mut lonely = Topology::new();
    let host = lonely.host(NodeId(1));
    let mut world = lonely.build(1).unwrap();
    let to = NodeId(2);
    let source = VoiceSource::new(to, 1, Service::RealTime, at(0), 3);
    let source = world.attach(host, 0, source).unwrap();
    world.run_until(at(100));
    assert_eq!(world.app(source).sent(), 3);
    assert_eq!(world.node(host).stats().drops.get(DropReason::NoRoute), 3);
}
