//! A penalty that an operator adds to a link's cost, so that traffic prefers other paths.

use crate::common::{RT, at, calls, flow, link, ms, outcome, uniform};
use std::time::Duration;
use trunkline_base::link_model::Loss;
use trunkline_overlay::link::{LinkChange, LinkId};
use trunkline_overlay::node::{Changes, Routing};
use trunkline_overlay::wire::NodeId;
use trunkline_sim::{HostId, Topology, World};

/// Two paths from node 1 to node 4: 20 ms over node 2, 30 ms over node 3.
fn diamond() -> World {
    let mut t = Topology::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| t.host(NodeId(id)));
    for (x, y, delay) in [(a, b, 10), (b, d, 10), (a, c, 15), (c, d, 15)] {
        t.link(x, y, link(ms(delay), Loss::None), link(ms(delay), Loss::None));
    }
    t.link_state(&Routing::default());
    t.build(5).unwrap()
}

/// Sets a link's penalty as a reload does.
fn penalise(world: &mut World, host: HostId, id: LinkId, penalty: Duration) {
    world.operate(host, |now, node| {
        let config = node.link(id).expect("a link").config();
        let (rate, dscp, liveness) = (config.rate, config.dscp, config.liveness.clone());
        let name = (config.neighbour, config.path.clone());
        let damping = config.damping;
        let change = LinkChange { rate, dscp, penalty, damping, liveness };
        node.reconfigure(now, &Changes { links: vec![(name, change)], ..Changes::default() });
    });
}

/// The penalty is set at the call's own node, and at the relay, from where it has to be flooded.
#[test]
fn a_call_goes_another_way_while_a_link_has_a_penalty_and_misses_nothing() {
    for (host, id) in [(HostId(0), LinkId(0)), (HostId(1), LinkId(1))] {
        let mut world = diamond();
        let made = calls(&mut world, (0, 3), RT, 5_000, 1, (at(3_000), 600));
        let back = calls(&mut world, (3, 0), RT, 5_000, 1, (at(3_000), 600));
        world.run_until(at(6_000));
        penalise(&mut world, host, id, ms(20));
        world.run_until(at(9_000));
        // Less than the difference between the two paths.
        penalise(&mut world, host, id, ms(5));
        world.run_until(at(12_000));
        penalise(&mut world, host, id, Duration::ZERO);
        world.run_until(at(16_000));
        for made in [&made, &back] {
            assert_eq!(outcome(&world, made).missed.events, 0);
        }
        let delays = |call| -> Vec<u64> {
            let arrivals = flow(&world, call).arrivals.iter();
            arrivals.map(|a| a.expect("it came").delay.as_millis() as u64).collect()
        };
        let there = delays(made[0]);
        // 50 packets a second from 3 s on; a change takes effect within 0.1 s.
        for (packets, delay) in [(0..150, 20), (155..300, 30), (305..600, 20)] {
            assert_eq!(there[packets.clone()], vec![delay; packets.len()], "{packets:?}");
        }
        assert!(delays(back[0]).iter().all(|d| *d == 20), "each direction has its own");
    }
}

/// A penalty is not a delay: losses on a link before it are recovered as if there were no penalty.
#[test]
fn the_only_way_recovers_in_spite_of_a_penalty() {
    let missed = |penalty| {
        let mut t = Topology::new();
        let hosts = [1, 2, 3].map(|n| t.host(NodeId(n)));
        for (x, loss) in [(0, uniform(0.05)), (1, Loss::None)] {
            let model = link(ms(10), loss);
            t.link(hosts[x], hosts[x + 1], model.clone(), model);
        }
        t.config_mut(hosts[1]).links[1].penalty = penalty;
        t.link_state(&Routing::default());
        let mut world = t.build(6).unwrap();
        let made = calls(&mut world, (0, 2), RT, 5_000, 10, (at(3_000), 500));
        world.run_until(at(16_000));
        outcome(&world, &made).missed.events
    };
    let (without, with) = (missed(Duration::ZERO), missed(Duration::from_secs(5)));
    assert!(without < 25 && with < 25, "{without} and {with} of 5000, 250 of which were lost");
}
