//! Networks that change during calls.

use crate::common::*;
use trunkline_base::link_model::{InvalidModel, LinkModel, Loss};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::random::Waxman;
use trunkline_sim::voice::Call;
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World, WorldError};

const A_B: WireId = WireId(0);

/// Two paths from host 0 to host 3, by host 1 (wires 0 and 1) and by host 2, with routes over the
/// first and, if it is dead, the second; one call in each direction.
fn diamond(seed: u64) -> (World, [Call; 2]) {
    let mut t = Topology::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| t.host(NodeId(id)));
    for (x, y) in [(a, b), (b, d), (a, c), (c, d)] {
        let model = link(ms(10), Loss::None);
        t.link(x, y, model.clone(), model);
    }
    for via in [b, c] {
        t.route(a, d, via, ms(10));
        t.route(d, a, via, ms(10));
    }
    let mut world = t.build(seed).unwrap();
    let there = calls(&mut world, (0, 3), RT, 5_000, 1, (at(2_000), 500))[0];
    let back = calls(&mut world, (3, 0), RT, 5_000, 1, (at(2_000), 500))[0];
    (world, [there, back])
}

/// Send time in ms of the last packet of `call` that never arrived.
fn last_lost(world: &World, call: Call) -> Option<u64> {
    let arrivals = &flow(world, call).arrivals;
    let lost = |k: &u64| arrivals.get(*k as usize).is_none_or(Option::is_none);
    let sent = world.app(call.0).sent();
    Some(2_000 + 20 * (0..sent).rev().find(lost)?)
}

#[test]
fn a_cut_wire_is_gone_until_it_is_mended() {
    let (mut world, [there, back]) = diamond(1);
    world.run_until(at(4_000));
    world.cut(A_B);
    assert_eq!(world.model(A_B, WireEnd::Second).loss, Loss::EVERYTHING);
    world.run_until(at(9_000));
    // The far end is not notified, and the relay has no other path: routes are static.
    assert_eq!(stats(&world, 0, 0).downs, 1);
    assert_eq!(stats(&world, 3, 0).downs, 0);
    world.mend(A_B);
    assert_eq!(world.model(A_B, WireEnd::First).loss, Loss::None);
    world.run_until(at(15_000));
    let lost = last_lost(&world, there).unwrap();
    assert!((4_000..5_200).contains(&lost), "{lost}: a second until it is dead");
    let lost = last_lost(&world, back).unwrap();
    assert!((8_900..9_020).contains(&lost), "{lost}: as long as it is cut");
}

#[test]
fn a_blackhole_has_one_direction() {
    let (mut world, [there, back]) = diamond(2);
    world.run_until(at(4_000));
    world.blackhole(A_B, WireEnd::First);
    world.run_until(at(15_000));
    // A neighbour that is received but doesn't receive is useless, so both ends take the link down.
    assert_eq!((stats(&world, 0, 0).downs, stats(&world, 1, 0).downs), (1, 1));
    let lost = last_lost(&world, there).unwrap();
    assert!((4_900..5_300).contains(&lost), "{lost}");
    assert_eq!(last_lost(&world, back), None, "that direction carries what it is given");
}

#[test]
fn a_crashed_relay_says_nothing_until_it_is_started_again() {
    let (mut world, made) = diamond(3);
    world.run_until(at(4_000));
    world.crash(HostId(1));
    let heard = stats(&world, 0, 0).received.envelopes;
    world.run_until(at(8_000));
    assert!(stats(&world, 0, 0).received.envelopes <= heard + 10, "but for what was under way");
    world.restart(HostId(1)).unwrap();
    world.run_until(at(15_000));
    for call in made {
        let lost = last_lost(&world, call).unwrap();
        assert!((4_000..5_200).contains(&lost), "{lost}");
    }
    assert_eq!(stats(&world, 0, 0).restarts, 1);
    assert!(stats(&world, 1, 0).received.envelopes > 100);
}

#[test]
fn applications_of_a_crashed_node_send_into_nothing() {
    let (mut world, made) = diamond(4);
    world.run_until(at(4_000));
    world.crash(HostId(0));
    world.run_until(at(6_001));
    world.restart(HostId(0)).unwrap();
    world.run_until(at(15_000));
    let o = outcome(&world, &made[..1]);
    assert!((99..=101).contains(&o.lost), "{} of 100", o.lost);
}

/// A stalled relay sends nothing. Packets that wait beyond their deadline, counted from their
/// arrival, are dropped, as are those that find the buffer full.
#[test]
fn a_stalled_host_does_later_what_is_of_use() {
    let (mut world, [there, back]) = diamond(5);
    world.run_until(at(4_000));
    world.stall(HostId(1), at(4_700));
    world.run_until(at(15_000));
    // Too short for any node, including the stalled one, to declare it dead.
    let downs = [0, 1, 2, 3].map(|h| stats(&world, h, 0).downs);
    assert_eq!((downs, world.overflowed(HostId(1))), ([0; 4], 0));
    let mut late = 0;
    for call in [there, back] {
        // After 700 ms, only packets from the last 90 ms can still be sent: of their 100 ms, 10 are
        // behind them.
        let lost = last_lost(&world, call).unwrap();
        assert!((4_580..=4_620).contains(&lost), "{lost}");
        let arrivals = &flow(&world, call).arrivals;
        let longest = arrivals.iter().flatten().map(|a| a.delay).max().unwrap();
        assert!((ms(80)..=ms(111)).contains(&longest), "{longest:?}");
        late += world.app(call.0).sent() - arrivals.iter().flatten().count() as u64;
    }
    let dropped = [0, 1].map(|l| stats(&world, 1, l).drops.get(DropReason::Late));
    assert_eq!((dropped.iter().sum::<u64>(), late / 10), (late, 6), "{dropped:?}");

    let (mut world, _) = diamond(5);
    world.run_until(at(4_000));
    world.stall(HostId(1), at(8_000));
    world.run_until(at(15_000));
    // Its neighbours have declared it dead. It did the same to them, because their hellos of the
    // last seconds found the buffer full.
    assert_eq!([0, 1, 2, 3].map(|h| stats(&world, h, 0).downs), [1, 1, 0, 1]);
    // Two calls for a second, then hellos and probes only.
    assert!(world.overflowed(HostId(1)) < 200);
}

#[test]
fn changes_are_part_of_the_same_run() {
    let run = |seed| {
        let (mut world, _) = diamond(seed);
        let lossy = link(ms(10), Loss::Bernoulli { p: 0.3 });
        for k in 0..10 {
            world.run_until(at(2_500 + k * 500));
            match k % 4 {
                0 => world.cut(A_B),
                1 => world.mend(A_B),
                2 => world.change(A_B, WireEnd::First, lossy.clone()).unwrap(),
                _ => world.stall(HostId(2), at(3_000 + k * 500)),
            }
        }
        world.crash(HostId(2));
        world.restart(HostId(2)).unwrap();
        world.run_until(at(10_000));
        world.digest()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_bad_model_is_refused_and_changes_nothing() {
    let (mut world, _) = diamond(1);
    let before = world.model(A_B, WireEnd::First).clone();
    let bad = LinkModel { loss: Loss::Bernoulli { p: 7.0 }, ..before.clone() };
    let why = world.change(A_B, WireEnd::First, bad);
    assert_eq!(why, Err(WorldError::Change(A_B, InvalidModel::Loss(7.0))));
    assert!(why.unwrap_err().to_string().starts_with("the new model of wire 0: loss is 7"));
    assert_eq!(*world.model(A_B, WireEnd::First), before);
}

/// Every link of a random overlay comes up, over the wire of its number.
#[test]
fn a_random_overlay_lives() {
    let graph = Waxman::continent(30).draw(5);
    let mut world = graph.topology().build(5).unwrap();
    world.run_until(at(3_000));
    for host in 0..30 {
        for (_, link) in world.node(HostId(host)).links() {
            assert!(link.monitor().is_up());
            let rtt = link.monitor().rtt().get().unwrap();
            let there = link.config().neighbour.0 - 1;
            let pair = (host.min(there), host.max(there));
            let wire = graph.links.iter().position(|l| (l.0.0, l.1.0) == pair).unwrap();
            let delay = world.model(WireId(wire as u32), WireEnd::First).delay;
            assert_eq!(delay, graph.links[wire].2);
            assert!(rtt.abs_diff(2 * delay) < ms(1), "{rtt:?} {delay:?}");
        }
    }
}
