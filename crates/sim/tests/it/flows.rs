//! Flow counters of nodes, compared with the simulator's records.

use crate::common::*;
use trunkline_overlay::node::Node;
use trunkline_overlay::session::flows::{Counts, Flow, Received};
use trunkline_sim::voice::Call;
use trunkline_sim::{HostId, Topology, World};

/// All flows of `node`, read in small batches.
fn flows(node: &Node, now: u64) -> Vec<Flow> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page;
        (page, next) = node.flows(at(now), from, 3);
        all.extend(page.into_iter().map(|(flow, _)| flow));
    }
    all
}

/// The flow of `call` at its destination, host `to`.
fn at_destination(world: &World, call: Call, to: u32, now: u64) -> (Flow, Received) {
    let (node, port) = world.origin(call.0);
    let flows = flows(world.node(HostId(to)), now);
    let flow = flows
        .into_iter()
        .find(|f| f.received.is_some() && (f.ends.peer, f.ends.peer_port) == (node, port))
        .expect("packets came");
    let received = flow.received.expect("it ends here");
    (flow, received)
}

/// Two links of 10 and 20 ms that lose packets in both directions.
fn two_links(loss: f64) -> Topology {
    let model = |delay| link(ms(delay), uniform(loss));
    Topology::chain([model(10), model(20)])
}

#[test]
fn a_destination_knows_what_was_lost_on_the_way() {
    for (service, seed) in [(BE, 1), (RT, 2)] {
        let mut world = two_links(0.05).build(seed).unwrap();
        let made = calls(&mut world, (0, 2), service, 5_000, 10, (at(2_000), 2_000));
        world.run_until(at(43_000));
        let mut sum = Counts::default();
        for &call in &made {
            let known = flow(&world, call);
            let (seen, received) = at_destination(&world, call, 2, 43_000);
            let first = known.arrivals.iter().position(Option::is_some).unwrap();
            let missing = known.arrivals[first..].iter().filter(|a| a.is_none()).count();
            let recovered =
                known.arrivals.iter().flatten().filter(|arrival| arrival.recovered).count();
            let c = seen.call;
            assert_eq!(
                (c.packets, c.lost(), c.recovered, received.restarts),
                (known.received, missing as u64, recovered as u64, 0),
                "{service:?}"
            );
            assert_eq!(c.expected, (known.arrivals.len() - first) as u64);
            // The recent counters cover the last ten seconds, the packets from here on.
            let recent = known.arrivals[1_500..].iter().flatten().count() as u64;
            assert!(seen.recent.packets.abs_diff(recent) <= 100, "{:?} {recent}", seen.recent);
            // The deadline of 100 ms, and the delays, up to the rounding of two hops.
            let near = |got: Option<core::time::Duration>, want: f64, what| {
                let got = got.expect("a way leads back").as_secs_f64() * 1e3;
                assert!((got - want).abs() < 1.6, "{what}: {got} ms for {want}");
            };
            near(received.deadline(), 100.0, "deadline");
            let delays: Vec<_> = known.arrivals.iter().flatten().map(|a| a.delay).collect();
            let mean = delays.iter().map(|d| d.as_secs_f64()).sum::<f64>() / delays.len() as f64;
            near(received.delay(&c), mean * 1e3, "delay");
            sum += c;
        }
        // The sum includes each link's 5 %, within four standard deviations.
        if service == BE {
            let (p, n) = (1.0 - 0.95f64 * 0.95, sum.expected as f64);
            let share = sum.lost() as f64 / n;
            assert!((share - p).abs() < 4.0 * (p * (1.0 - p) / n).sqrt(), "{share} for {p}");
            // Independent losses come in runs of 1 / (1 - p) on average.
            let run = sum.missed as f64 / sum.bursts as f64;
            assert!((run - 1.0 / (1.0 - p)).abs() < 0.05, "{run}");
        } else {
            assert!(sum.recovered > sum.expected / 12, "{sum:?}");
        }
    }
}

#[test]
fn an_origin_knows_what_it_has_sent() {
    let mut world = two_links(0.0).build(3).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 3, (at(1_000), 500));
    world.run_until(at(13_000));
    let seen = flows(world.node(HostId(0)), 13_000);
    assert_eq!(seen.len(), made.len());
    for flow in seen {
        assert_eq!((flow.call.packets, flow.call.bytes, flow.refused), (500, 500 * 172, 0));
        assert!(flow.received.is_none() && !flow.over);
    }
    assert!(flows(world.node(HostId(1)), 13_000).is_empty(), "a relay keeps none");
}
