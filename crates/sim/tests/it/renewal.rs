//! Certificates that expire, and their replacements.

use crate::common::{RT, at, calls, link, ms, outcome};
use trunkline_base::link_model::Loss;
use trunkline_overlay::identity::{Certificate, Identity};
use trunkline_overlay::node::{Changes, Routing};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::{HostId, Topology, World};

/// A certificate of `host` in a sealed topology that expires at `until` seconds; the world begins
/// at 1970.
fn certificate(t: &mut Topology, host: HostId, until: u64) -> Certificate {
    // The operator's key, as in `Topology::seal`.
    let overlay = Identity::from_secret(&[0xff; 32]);
    let config = t.config_mut(host);
    let key = config.sealing.as_ref().expect("sealed").identity.public();
    Certificate::issue(&overlay, config.id, &format!("node-{}", config.id), key, until).unwrap()
}

fn show(t: &mut Topology, host: HostId, certificate: Certificate) {
    t.config_mut(host).sealing.as_mut().expect("sealed").certificate = Some(certificate);
}

fn renew(world: &mut World, host: HostId, certificate: &Certificate) {
    let changes = Changes { certificate: Some(certificate.clone()), ..Changes::default() };
    world.operate(host, |now, node| node.reconfigure(now, &changes));
}

/// Number of nodes that `host` has records of, and of its links that are up.
fn sees(world: &World, host: u32) -> (usize, usize) {
    let node = world.node(HostId(host));
    let up = node.links().filter(|(_, link)| link.monitor().is_up()).count();
    (node.router().expect("link state").nodes(), up)
}

/// Nodes 1 to 4 in a ring; node 2's first certificate expires at 300 s. Also returns its second
/// one, which doesn't expire during the test.
fn ring() -> (World, Certificate) {
    let mut t = Topology::new();
    let hosts: Vec<HostId> = (1..=4).map(|n| t.host(NodeId(n))).collect();
    for i in 0..4 {
        let model = link(ms(if i < 2 { 10 } else { 30 }), Loss::None);
        t.link(hosts[i], hosts[(i + 1) % 4], model.clone(), model);
    }
    t.seal();
    t.link_state(&Routing::default());
    let first = certificate(&mut t, HostId(1), 300);
    show(&mut t, HostId(1), first);
    let second = certificate(&mut t, HostId(1), 3_000);
    (t.build(7).unwrap(), second)
}

/// All nodes, near and far, continue to trust node 2, and a call over it misses nothing.
#[test]
fn a_certificate_is_renewed_under_a_call() {
    let (mut world, second) = ring();
    let made = calls(&mut world, (0, 2), RT, 5_000, 1, (at(5_000), 29_500));
    world.run_until(at(200_000));
    renew(&mut world, HostId(1), &second);
    world.run_until(at(597_000));
    // Node 4 is two links away, and the certificate that it received first has expired.
    assert_eq!([0, 1, 2, 3].map(|h| sees(&world, h)), [(4, 2); 4]);
    assert_eq!(outcome(&world, &made).missed.events, 0);
    for host in 0..4 {
        for (_, link) in world.node(HostId(host)).links() {
            assert_eq!(link.monitor().quality().downs, 0, "node {}", host + 1);
        }
    }
}

/// Links last as long as their sessions, three minutes at most; then calls take other paths, until
/// the node has another certificate.
#[test]
fn a_node_whose_certificate_is_over_is_left_out_until_it_has_another() {
    let (mut world, second) = ring();
    world.run_until(at(299_000));
    assert_eq!([0, 1, 3].map(|h| sees(&world, h)), [(4, 2); 3]);
    world.run_until(at(300_000 + 180_000 + 2_000));
    assert_eq!([0, 2].map(|h| sees(&world, h)), [(3, 1); 2], "neighbours");
    assert_eq!((sees(&world, 1).1, sees(&world, 3)), (0, (3, 2)));
    world.run_until(at(550_000));
    renew(&mut world, HostId(1), &second);
    world.run_until(at(556_000));
    assert_eq!([0, 1, 2, 3].map(|h| sees(&world, h)), [(4, 2); 4]);
}

/// Node 2 has node 1's key in its configuration and needs no certificate; node 3 trusts node 1 only
/// by its certificate.
#[test]
fn who_knows_a_node_by_its_certificate_alone_forgets_it_when_that_is_over() {
    // Before and after node 1 refreshes its records, at 600 s.
    for renewed_at in [500, 620] {
        let model = || link(ms(10), Loss::None);
        let mut t = Topology::new();
        let hosts = [1, 2, 3].map(|n| t.host(NodeId(n)));
        t.link(hosts[0], hosts[1], model(), model());
        t.link(hosts[1], hosts[2], model(), model());
        t.seal();
        t.link_state(&Routing::default());
        for (at, of) in [(0, 1), (1, 0)] {
            let key = t.config_mut(hosts[of]).sealing.as_ref().expect("sealed").identity.public();
            t.config_mut(hosts[at]).links[0].key = Some(key);
        }
        let first = certificate(&mut t, hosts[0], 300);
        show(&mut t, hosts[0], first);
        let second = certificate(&mut t, hosts[0], 3_000);
        let mut world = t.build(3).unwrap();
        let reaches = |world: &World, node, to| {
            let router = world.node(HostId(node)).router().expect("link state");
            router.route(NodeId(to), Metric::Latency).is_some()
        };
        world.run_until(at(299_000));
        assert_eq!([0, 1, 2].map(|h| sees(&world, h)), [(3, 1), (3, 2), (3, 1)]);
        assert!(reaches(&world, 2, 1));
        // Nodes look for expired certificates once a minute.
        for seconds in [362, renewed_at] {
            world.run_until(at(1_000 * seconds));
            assert_eq!([0, 1, 2].map(|h| sees(&world, h)), [(3, 1), (3, 2), (2, 1)]);
            assert!(reaches(&world, 1, 1) && !reaches(&world, 2, 1), "{seconds} s");
        }
        renew(&mut world, hosts[0], &second);
        world.run_until(at(1_000 * renewed_at + 1_000));
        assert_eq!([0, 1, 2].map(|h| sees(&world, h)), [(3, 1), (3, 2), (3, 1)]);
        assert!(reaches(&world, 2, 1), "renewed at {renewed_at} s");
    }
}
