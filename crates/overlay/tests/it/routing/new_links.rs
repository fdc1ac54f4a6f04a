//! The order in which nodes learn of a link that has come up.

use super::agreement::cost;
use super::net::{Net, id};
use core::time::Duration;
use trunkline_overlay::link::LinkId;
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::wire::{Metric, NodeId};

/// Whether `host` has a record of `origin` that lists `neighbour`.
fn knows(net: &Net, host: usize, origin: usize, neighbour: NodeId) -> bool {
    let records = net.hosts[host].router.records();
    let mut links = records.filter(|(key, ..)| key.origin == id(origin)).flat_map(|r| r.2);
    links.any(|link| link.neighbour == neighbour)
}

/// A ring of `hosts` with links of 1 ms, at rest.
fn ring(hosts: usize, seed: u64) -> Net {
    let mut net = Net::new(hosts, 0.0, seed);
    for host in 0..hosts {
        net.join(host, (host + 1) % hosts, [cost(1, 0); 2]);
    }
    net.run(Duration::from_secs(2));
    net
}

/// Packets for a link would come back from an end that does not count it yet.
#[test]
fn others_learn_of_a_new_link_after_its_two_ends() {
    for seed in 0..20 {
        let mut net = ring(6, seed);
        // Through host 3, news of each end reaches the other's neighbours sooner than the other.
        net.join(0, 3, [cost(20, 0); 2]);
        let mut learned = 0;
        for _ in 0..400 {
            net.run(Duration::from_micros(500));
            let both = |host| knows(&net, host, 0, id(3)) && knows(&net, host, 3, id(0));
            learned = [1, 2, 4, 5].into_iter().filter(|&host| both(host)).count();
            for (end, other) in [(0, 3), (3, 0)] {
                let route = net.hosts[end].router.route(id(other), Metric::Hops).expect("a ring");
                assert!(learned == 0 || route.path.len() == 2, "seed {seed}, host {end}");
            }
        }
        assert_eq!(learned, 4, "seed {seed}");
    }
}

#[test]
fn a_failure_spreads_at_once_while_a_link_is_new() {
    let mut net = ring(6, 1);
    net.join(0, 3, [cost(50, 0); 2]);
    net.run(Duration::from_millis(51));
    net.down(0);
    // Over the link of 1 ms, with at most 2 ms of jitter.
    net.run(Duration::from_millis(4));
    assert!(!knows(&net, 5, 0, id(1)));
}

/// The neighbour at the end of the new link takes it for down.
#[test]
fn a_drain_spreads_at_once_while_a_link_is_new() {
    let mut net = ring(6, 1);
    net.join(0, 3, [cost(400, 0); 2]);
    net.hosts[3].router.link_down(net.now, LinkId(2));
    net.run(Duration::from_millis(60));
    net.hosts[0].router.drain(net.now, true);
    net.run(Duration::from_millis(4));
    let route = net.hosts[5].router.route(id(1), Metric::Hops).expect("a ring");
    assert_eq!(route.path.len(), 5, "around the draining node");
}

/// An operator's routes take effect at once, however often they change, and a failure after that
/// does, too.
#[test]
fn changes_of_routes_delay_no_other() {
    let mut net = ring(6, 1);
    for via in [1, 5].into_iter().cycle().take(50) {
        let route = StaticRoute { to: Some(NodeId(99)), via: id(via), onward: Duration::ZERO };
        net.hosts[0].router.set_routes(net.now, vec![route]);
        net.run(Duration::from_millis(1));
    }
    net.down(0);
    net.run(Duration::from_millis(20));
    assert_eq!(net.walk(0, 1, Metric::Hops).len(), 6);
}

/// The neighbour at the end of the new link takes it for down.
#[test]
fn a_silent_neighbour_delays_news_by_a_fifth_of_a_second() {
    let mut net = Net::new(4, 0.0, 1);
    for (a, b) in [(0, 1), (1, 2), (2, 0)] {
        net.join(a, b, [cost(1, 0); 2]);
    }
    net.run(Duration::from_secs(2));
    net.join(0, 3, [cost(1, 0); 2]);
    net.hosts[3].router.link_down(net.now, LinkId(0));
    net.run(Duration::from_millis(199));
    assert!(!knows(&net, 1, 0, id(3)));
    net.run(Duration::from_millis(5));
    assert!(knows(&net, 1, 0, id(3)));
}
