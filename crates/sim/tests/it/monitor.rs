//! Measurements of a link by its two ends, and the time they take.

use crate::common::*;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Impairment, LinkModel, Loss, PacketFate};
use trunkline_overlay::monitor::{LinkQuality, Liveness, LossEstimate};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{HostId, Topology, WireId, World};

/// Two nodes; `there` is the loss in the direction from the first.
fn pair(there: Loss, liveness: &Liveness) -> World {
    let mut t = Topology::new();
    let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
    let models = (link(ms(20), there), link(ms(20), Loss::None));
    t.link_with(a, b, models.0, models.1, |c| c.liveness = liveness.clone());
    t.route_all();
    t.build(5).unwrap()
}

/// A trace of `calm` packets without loss, followed by `packets` with this loss.
fn then(calm: usize, loss: Loss, packets: usize) -> Loss {
    let model = LinkModel { loss, ..LinkModel::default() };
    let mut wire = Impairment::new(model, 3, 0).unwrap();
    let lost = (0..packets).map(|_| matches!(wire.offer(Time::ZERO, 1), PacketFate::Drop(_)));
    Loss::Trace(std::iter::repeat_n(false, calm).chain(lost).collect())
}

fn quality(world: &World, host: u32) -> LinkQuality {
    world.node(HostId(host)).links().next().expect("a link").1.monitor().quality()
}

/// First time at which `done` holds, to within 5 ms.
fn until(world: &mut World, limit: Time, done: impl Fn(&World) -> bool) -> Option<Time> {
    while !done(world) {
        if world.now() >= limit {
            return None;
        }
        world.run_until(world.now() + ms(5));
    }
    Some(world.now())
}

fn begins(world: &mut World) -> Time {
    let lossy = |w: &World| w.ledgers(WireId(0)).iter().any(|l| l.lost.packets > 0);
    until(world, at(120_000), lossy).expect("the losses never began")
}

#[test]
fn one_direction_dead_takes_both_ends_down() {
    for (liveness, limit) in [(Liveness::default(), ms(1_200)), (Liveness::PAPER, ms(11_000))] {
        let mut world = pair(then(40, Loss::Bernoulli { p: 1.0 }, 100_000), &liveness);
        let cut = begins(&mut world);
        assert!(quality(&world, 0).up && quality(&world, 1).up);
        let down = |w: &World| !quality(w, 0).up && !quality(w, 1).up;
        let after = until(&mut world, cut + limit, down).map(|at| at.since(cut));
        // The last hello received was sent up to an interval before.
        assert!(after >= Some(liveness.dead_after - liveness.interval), "{after:?}");
        // Both stay down, although one end still receives the other's hellos.
        world.run_until(cut + Duration::from_secs(60));
        assert!(down(&world));
        assert_eq!([0, 1].map(|host| quality(&world, host).downs), [1, 1]);
    }
}

/// "In under 10 seconds" (Amir et al. 2005, III-A): at any time since the last hello, and even if a
/// hello is on its way when the link fails.
#[test]
fn the_papers_hellos_find_a_failure_in_under_ten_seconds() {
    let mut longest = Duration::ZERO;
    for phase in (0..1_000).step_by(20) {
        let mut world = pair(Loss::None, &Liveness::PAPER);
        world.run_until(at(20_000 + phase));
        world.cut(WireId(0));
        let cut = world.now();
        let down = |w: &World| !quality(w, 0).up && !quality(w, 1).up;
        let found = until(&mut world, cut + ms(15_000), down).expect("it is found");
        longest = longest.max(found.since(cut));
    }
    assert!(ms(8_900) < longest && longest < ms(10_000), "{longest:?}");
}

/// An outage that took the link down is not also counted as loss: otherwise traffic would avoid the
/// link again once it is back.
#[test]
fn a_link_that_comes_back_is_as_good_as_it_was() {
    let mut world = pair(Loss::None, &Liveness::default());
    world.run_until(at(5_000));
    world.cut(WireId(0));
    world.run_until(at(8_000));
    assert!(!quality(&world, 0).up && !quality(&world, 1).up);
    world.mend(WireId(0));
    for second in 9..20 {
        world.run_until(at(second * 1_000));
        for q in [0, 1].map(|host| quality(&world, host)) {
            let none = |l: Option<_>| l.is_none_or(|l: LossEstimate| l.loss == 0.0);
            assert!(q.up && none(q.loss_in) && none(q.loss_out), "{second} s: {q:?}");
        }
    }
}

#[test]
fn burst_loss_both_ways_is_no_death() {
    let loss =
        || Loss::Burst { p: 0.3, b: 0.75, chain: trunkline_base::link_model::Chain::PerPacket };
    let mut t = Topology::new();
    let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
    t.link_with(a, b, link(ms(20), loss()), link(ms(20), loss()), |_| {});
    let mut world = t.build(6).unwrap();
    world.run_until(at(600_000));
    assert_eq!([0, 1].map(|host| quality(&world, host).downs), [0, 0]);
}

#[test]
fn the_sender_learns_of_thirty_percent_within_a_second_of_a_call() {
    let trace = then(1_500, Loss::Bernoulli { p: 0.3 }, 50_000);
    let mut world = pair(trace, &Liveness::default());
    calls(&mut world, (0, 1), RT, 5_000, 1, (at(1_000), 6_000));
    calls(&mut world, (1, 0), RT, 6_000, 1, (at(1_000), 6_000));
    let worse = begins(&mut world);
    let known = |w: &World| quality(w, 0).loss_out.is_some_and(|l| l.loss > 0.1);
    let after = until(&mut world, worse + ms(1_000), known);
    assert!(after.is_some(), "not within a second");
    world.run_until(worse + ms(30_000));
    let (out, back) = (quality(&world, 0), quality(&world, 1));
    let loss = out.loss_out.unwrap();
    assert!((0.25..0.35).contains(&loss.loss), "{loss:?}");
    assert!((loss.loss - back.loss_in.unwrap().loss).abs() < 1e-4, "both ends know the same");
    assert_eq!(out.loss_in.unwrap().loss, 0.0, "the other direction loses nothing");
    assert!(out.residual_out.is_some_and(|r| r < 0.1), "{:?}", out.residual_out);
    // 160-byte packets every 20 ms, each with 44 bytes of headers.
    let rate = back.rate_out.as_bps() / 8;
    assert!((10_500..14_000).contains(&rate), "{rate}");
    // Hellos carry times in whole microseconds.
    let [jitter, rtt] = [out.jitter, out.rtt].map(|d| d.expect("is measured"));
    assert!(jitter < Duration::from_micros(1) && rtt.abs_diff(ms(40)) < Duration::from_micros(1));
}

#[test]
fn an_idle_link_costs_a_hundred_bytes_a_second_at_the_papers_rate() {
    let mut world = pair(Loss::None, &Liveness::PAPER);
    world.run_until(at(100_000));
    let bytes: u64 = (0..2).map(|host| stats(&world, host, 0).hellos.bytes).sum();
    assert!(bytes <= 100 * 100, "{bytes} bytes in 100 s");
}

/// Bytes on a link in both directions, in two minutes of a G.711 conversation, as a percentage
/// above its packets alone. The link loses `p`, beginning a minute before.
fn overhead(p: f64, probes: bool, seed: u64) -> f64 {
    let mut t = Topology::new();
    let (a, b) = (t.host(NodeId(1)), t.host(NodeId(2)));
    let model = link(ms(10), Loss::Bernoulli { p });
    t.link_with(a, b, model.clone(), model, |c| c.liveness.probes = probes);
    t.route_all();
    let mut world = t.build(seed).unwrap();
    let packets = 9_000;
    calls(&mut world, (0, 1), RT, 5_000, 1, (at(1_000), packets));
    calls(&mut world, (1, 0), RT, 6_000, 1, (at(1_000), packets));
    let bytes = |w: &World| w.ledgers(WireId(0)).iter().map(|l| l.offered.bytes).sum::<u64>();
    world.run_until(at(60_000));
    let before = bytes(&world);
    world.run_until(at(180_000));
    // 160 bytes of speech, 12 of RTP, 44 of the overlay, 48 of IPv6 and UDP.
    let alone = 2.0 * 6_000.0 * 264.0;
    100.0 * ((bytes(&world) - before) as f64 / alone - 1.0)
}

#[test]
fn a_steady_loss_is_not_probed_for_ever() {
    for p in [0.01, 0.012, 0.02] {
        let mean = |probes| (1..=2).map(|seed| overhead(p, probes, seed)).sum::<f64>() / 2.0;
        let (with, without) = (mean(true), mean(false));
        assert!(with - without < 1.5, "{p}: {with:.2} % with probes, {without:.2} % without");
    }
}

/// A hello takes 94 bytes of this link if sent alone, and 22 along with a packet: 940 bytes a
/// second, or about 250.
#[test]
fn hellos_ride_with_voice() {
    let hellos = overhead(0.0, true, 1);
    assert!((0.5..1.2).contains(&hellos), "{hellos} %");
}
