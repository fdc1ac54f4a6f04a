//! The real-time service with recovery until the deadline.

use crate::common::*;
use std::time::Duration;
use trunkline_base::link_model::{Chain, Ledger, LinkModel, Loss};
use trunkline_overlay::link::realtime::{self, Recovery};
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::{Call, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId, World};

fn bursts(p: f64, b: f64, chain: Chain) -> Loss {
    Loss::Burst { p, b, chain }
}

/// `n` calls over a chain of links of 10 ms with a lossy one in the middle.
fn chain(
    hops: u32,
    n: u16,
    loss: &Loss,
    seconds: u64,
    adjust: impl Fn(&mut realtime::Config),
) -> (World, Vec<Call>) {
    let mut t = Topology::new();
    let hosts: Vec<HostId> = (1..=hops + 1).map(|id| t.host(NodeId(id))).collect();
    for k in 0..hops as usize {
        let loss = if k as u32 == hops / 2 { loss.clone() } else { Loss::None };
        let model = link(ms(10), loss);
        t.link_with(hosts[k], hosts[k + 1], model.clone(), model, |c| {
            c.liveness = Liveness::PAPER;
            adjust(&mut c.realtime);
        });
    }
    t.route_all();
    let mut world = t.build(11).unwrap();
    let made = calls(&mut world, (0, hops), RT, 5_000, n, (at(3_000), 50 * seconds));
    world.run_until(at(4_000 + 1_000 * seconds));
    (world, made)
}

/// Bytes on the lossy wire in both directions.
fn bytes(world: &World, hops: u32) -> f64 {
    let offered = |l: &Ledger| l.offered.bytes;
    world.ledgers(WireId(hops / 2)).iter().map(offered).sum::<u64>() as f64
}

#[test]
fn little_is_left_and_it_costs_little() {
    let per_packet = Chain::PerPacket;
    let in_time = Chain::Continuous { spacing: ms(2) };
    let calm = bytes(&chain(1, 10, &Loss::None, 100, |_| {}).0, 1);
    for (loss, most) in [
        (uniform(0.05), 2),
        (bursts(0.05, 0.5, per_packet), 3),
        (bursts(0.05, 0.75, per_packet), 20),
        (bursts(0.05, 0.5, in_time), 3),
        (bursts(0.05, 0.75, in_time), 6),
    ] {
        let (world, made) = chain(1, 10, &loss, 100, |_| {});
        let o = outcome(&world, &made);
        // One request per loss would leave 240 of these 50,000 packets missing.
        assert!(o.lost <= most, "{} of {} lost over {loss:?}", o.lost, o.sent);
        assert_eq!((o.late, o.duplicates), (0, 0), "{loss:?}");
        let overhead = bytes(&world, 1) / calm - 1.0;
        assert!((0.05..0.09).contains(&overhead), "{overhead} over {loss:?}");
    }
}

#[test]
fn on_a_chain_repairs_leave_time_for_the_links_that_follow() {
    let (world, made) = chain(5, 10, &uniform(0.05), 100, |_| {});
    let o = outcome(&world, &made);
    assert!(o.lost <= 20, "{} of {} lost", o.lost, o.sent);
    assert_eq!(o.late, 0);
    assert!(o.delay(1.0) > Some(ms(80)), "second requests: {:?}", o.delay(1.0));
    let late = |adjust: fn(&mut realtime::Config)| {
        outcome(&chain(5, 10, &uniform(0.05), 20, adjust).0, &made).lost
    };
    assert!(late(|c| c.recovery_budget = 0.0) > late(|_| {}), "without extra requests and copies");
}

#[test]
fn a_lossless_link_pays_nothing() {
    for n in [1, 10] {
        let (world, made) = chain(1, n, &Loss::None, 20, |_| {});
        assert_eq!(outcome(&world, &made).lost, 0);
        assert_eq!(stats(&world, 1, 0).of(RT).requests.envelopes, 0);
        assert_eq!(stats(&world, 0, 0).of(RT).retransmissions.envelopes, 0);
    }
}

/// A single call: the next packet, which would reveal a gap, arrives 20 ms later.
#[test]
fn a_silence_is_noticed_before_the_next_packet() {
    let lost_at = |recovery| {
        let (world, made) = chain(1, 1, &uniform(0.05), 400, |c| c.recovery = recovery);
        let arrivals = flow(&world, made[0]).arrivals.iter().flatten();
        let mut delays: Vec<Duration> = arrivals.filter(|a| a.recovered).map(|a| a.delay).collect();
        delays.sort_unstable();
        (delays[delays.len() / 2], outcome(&world, &made).lost)
    };
    let (paper, lost) = lost_at(Recovery::ONCE);
    assert_eq!(paper, ms(50));
    assert!(lost > 50, "{lost}");
    let (ours, lost) = lost_at(Recovery::UNTIL_DEADLINE);
    assert!(ours <= ms(36), "{ours:?}");
    assert!(lost <= 2, "{lost}");
}

/// The last packet of a talkspurt is followed by no other.
#[test]
fn the_end_of_a_talkspurt_is_recovered() {
    let lost_of_last = |recovery| {
        let mut t = Topology::new();
        let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
        let model = LinkModel { loss: uniform(0.1), ..link(ms(10), Loss::None) };
        t.link_with(a, b, model.clone(), model, |c| c.realtime.recovery = recovery);
        let mut world = t.build(12).unwrap();
        // 300 times two seconds of speech and one of silence, as consecutive calls.
        let spurts: Vec<_> = (0..300)
            .map(|k| {
                let start = at(1_000 + 3_000 * k);
                let source = VoiceSource::new(NodeId(2), 5_000 + k as u16, RT, start, 100);
                let sink = world.attach(b, 5_000 + k as u16, VoiceSink::default()).unwrap();
                (world.attach(a, 0, source).unwrap(), sink)
            })
            .collect();
        world.run_until(at(1_000 * 1_000));
        let lacks_last = |&&c: &&Call| flow(&world, c).arrivals.len() < 100;
        spurts.iter().filter(lacks_last).count()
    };
    let paper = lost_of_last(Recovery::ONCE);
    assert!((15..=45).contains(&paper), "a tenth of 300, never repaired: {paper}");
    let ours = lost_of_last(Recovery::UNTIL_DEADLINE);
    assert!(ours <= 4, "{ours} of 300");
}

/// A loss of half the packets, in both directions.
#[test]
fn heavy_loss_costs_no_more_than_the_budget() {
    let (world, _) = chain(1, 10, &uniform(0.5), 60, |_| {});
    let (tx, rx) = (stats(&world, 0, 0).of(RT), stats(&world, 1, 0).of(RT));
    let (originals, repeats) = (tx.originals.envelopes, tx.retransmissions.envelopes);
    assert!(repeats <= originals / 2 + 256, "{repeats} for {originals}");
    // Each loss is requested at most five times, and most losses share a request.
    assert!(rx.requests.envelopes < 2 * originals, "{}", rx.requests.envelopes);
}
