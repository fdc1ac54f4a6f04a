//! Links that fail again and again: the n-th failure heals like the first.

use crate::common::{RT, at, calls, flow, link, ms, uniform};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Loss;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::Call;
use trunkline_sim::{HostId, Topology, WireEnd, WireId, World};

/// Three nodes in a row with links of 10 ms. If it `waits`, the middle one has no addresses, and
/// its neighbours must contact it first.
fn row(waits: bool) -> Topology {
    // No static routes, unlike [`Topology::chain`].
    let mut t = Topology::new();
    let [a, b, c] = [1, 2, 3].map(|id| t.host(NodeId(id)));
    for (x, y) in [(a, b), (b, c)] {
        t.link(x, y, link(ms(10), Loss::None), link(ms(10), Loss::None));
    }
    if waits {
        t.config_mut(b).links.iter_mut().for_each(|link| link.address = None);
    }
    t
}

/// Builds a world with the daemon's defaults: sealed, with link-state routing.
fn built(mut t: Topology, seed: u64) -> World {
    t.seal();
    t.link_state(&Routing::default());
    t.build(seed).unwrap()
}

/// Two paths from node 1 to node 4: 20 ms over node 2, 24 ms over node 3.
fn diamond(seed: u64) -> World {
    let mut t = Topology::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| t.host(NodeId(id)));
    for (x, y, delay) in [(a, b, 10), (b, d, 10), (a, c, 12), (c, d, 12)] {
        t.link(x, y, link(ms(delay), Loss::None), link(ms(delay), Loss::None));
    }
    built(t, seed)
}

/// Time from `start` to the last packet that did not arrive within 100 ms, among those sent at or
/// after `start` and before `end`.
fn gap(world: &World, call: Call, (first, start, end): (Time, Time, Time)) -> Duration {
    let arrivals = &flow(world, call).arrivals;
    let sent_at = |k: u64| first + ms(20 * k);
    let missed = |k: &u64| {
        let arrival = arrivals.get(*k as usize).copied().flatten();
        (start..end).contains(&sent_at(*k)) && arrival.is_none_or(|a| a.delay > ms(100))
    };
    let last = (0..world.app(call.0).sent()).rev().find(missed);
    last.map_or(Duration::ZERO, |k| sent_at(k).since(start))
}

const FIRST: Time = Time::from_millis(10_000);

#[test]
fn each_stop_of_the_only_relay_heals_like_the_first() {
    for every in [2_500, 6_500, 15_000] {
        let mut world = built(row(false), 3);
        let there = calls(&mut world, (0, 2), RT, 5_000, 1, (FIRST, 9_000))[0];
        let back = calls(&mut world, (2, 0), RT, 5_000, 1, (FIRST, 9_000))[0];
        let starts: Vec<u64> = (0..6).map(|n| 20_000 + every * n).collect();
        for &start in &starts {
            world.run_until(at(start));
            world.stall(HostId(1), at(start + 1_500));
        }
        world.run_until(at(starts[5] + 30_000));
        for (n, &start) in starts.iter().enumerate() {
            for call in [there, back] {
                // Packets on their way when the next stop begins count as missed by that one.
                let end = starts.get(n + 1).map_or(start + 29_000, |&next| next - 100);
                let end = at(end);
                let gap = gap(&world, call, (FIRST, at(start), end));
                assert!(gap <= ms(2_700), "every {every} ms, stop {n}: {gap:?}");
            }
        }
    }
}

/// Three times, a link loses 5 % as soon as its estimated loss is back to zero; then there is one
/// outage.
#[test]
fn an_outage_after_swings_of_loss_heals_like_any_other() {
    let mut world = built(row(false), 4);
    let call = calls(&mut world, (0, 2), RT, 5_000, 1, (FIRST, 40_000))[0];
    world.run_until(at(20_000));
    let said = |world: &World| {
        let link = world.node(HostId(0)).link(LinkId(0)).unwrap();
        link.monitor().advertised().unwrap().loss
    };
    let swing = |world: &mut World, loss: f64| {
        for end in [WireEnd::First, WireEnd::Second] {
            let model = if loss > 0.0 { uniform(loss) } else { Loss::None };
            world.change(WireId(0), end, link(ms(10), model)).unwrap();
        }
        while (said(world) - loss).abs() > 0.024 {
            world.run_until(world.now() + ms(100));
        }
    };
    for _ in 0..3 {
        swing(&mut world, 0.05);
        swing(&mut world, 0.0);
    }
    let start = world.now() + ms(1_000);
    assert!(start < at(600_000), "{start:?}");
    world.run_until(start);
    world.stall(HostId(1), start + ms(1_500));
    world.run_until(start + ms(200_000));
    let gap = gap(&world, call, (FIRST, start, start + ms(199_000)));
    assert!(gap <= ms(2_700), "{gap:?}");
}

/// A relay without its neighbours' addresses has to be contacted by them after a restart. This must
/// not take longer after a longer outage, nor after a cut that outlived the sessions.
#[test]
fn how_long_an_outage_was_makes_no_difference_to_how_soon_it_is_over() {
    for (crashes, outage) in [(true, 1_500), (true, 6_000), (true, 30_000), (false, 200_000)] {
        for seed in 0..4 {
            let mut world = built(row(true), seed);
            let call = calls(&mut world, (0, 2), RT, 5_000, 1, (FIRST, 12_000))[0];
            let start = at(20_000 + 137 * seed);
            world.run_until(start);
            if crashes {
                world.crash(HostId(1));
            } else {
                world.cut(WireId(0));
            }
            let end = start + ms(outage);
            world.run_until(end);
            if crashes {
                world.restart(HostId(1)).unwrap();
            } else {
                world.mend(WireId(0));
            }
            world.run_until(end + ms(10_000));
            let gap = gap(&world, call, (FIRST, end, end + ms(9_000)));
            assert!(gap <= ms(1_200), "{outage} ms, seed {seed}: {gap:?} more");
        }
    }
}

/// Where another path exists, traffic stays on it while the shorter one keeps failing, and returns
/// once that has not failed for long.
#[test]
fn a_call_stays_off_a_way_that_keeps_failing_until_it_has_been_calm() {
    let mut world = diamond(5);
    let call = calls(&mut world, (0, 3), RT, 5_000, 1, (FIRST, 17_500))[0];
    for n in 0..10u64 {
        let start = 20_000 + 8_000 * n;
        world.run_until(at(start));
        let damping = |world: &World| {
            let node = world.node(HostId(0));
            node.link(LinkId(0)).unwrap().monitor().damping()
        };
        assert_eq!(damping(&world).share > 0.0, n >= 2, "failure {n}");
        world.stall(HostId(1), at(start + 1_500));
    }
    let last = 92_000;
    world.run_until(at(last + 260_000));
    for n in 0..10 {
        let start = at(20_000 + 8_000 * n);
        let gap = gap(&world, call, (FIRST, start, start + ms(8_000)));
        assert!(gap <= if n < 2 { ms(1_300) } else { Duration::ZERO }, "failure {n}: {gap:?}");
    }
    // Three half-lives after the last failure.
    let delay = |s: u64| {
        let k = (at(1_000 * s).since(FIRST).as_millis() / 20) as usize;
        flow(&world, call).arrivals[k].unwrap().delay.as_millis()
    };
    assert_eq!([60, 92, 150, 200, 271].map(delay), [24; 5]);
    assert_eq!(delay(275), 20);
}

/// The stall is longer than replaced sessions are kept: when it ends, both ends of a link begin
/// handshakes, which may cross.
#[test]
fn what_was_begun_at_both_ends_of_a_stall_ends_in_one_session() {
    for seed in 0..12 {
        let mut world = built(row(false), seed);
        let there = calls(&mut world, (0, 2), RT, 5_000, 1, (FIRST, 4_000))[0];
        let back = calls(&mut world, (2, 0), RT, 5_000, 1, (FIRST, 4_000))[0];
        let start = at(30_000 + 37 * seed);
        world.run_until(start);
        world.stall(HostId(1), start + ms(3_000));
        let end = start + ms(3_000);
        world.run_until(end + ms(40_000));
        for call in [there, back] {
            let gap = gap(&world, call, (FIRST, end, end + ms(39_000)));
            assert!(gap <= ms(1_200), "seed {seed}: {gap:?} more");
        }
    }
}
