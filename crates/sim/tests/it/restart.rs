//! Nodes that restart during calls.

use crate::common::*;
use trunkline_base::link_model::Loss;
use trunkline_overlay::counters::DropReason;
use trunkline_sim::voice::Call;
use trunkline_sim::{HostId, Topology, World};

/// Five calls over two links, with a restart of `host` after two seconds.
fn restarted(host: u32) -> (World, Vec<Call>) {
    let mut world = Topology::chain(vec![link(ms(10), Loss::None); 2]).build(4).unwrap();
    let made = calls(&mut world, (0, 2), RT, 5_000, 5, (at(1_000), 200));
    world.run_until(at(3_001));
    world.restart(HostId(host)).unwrap();
    world.run_until(at(6_000));
    (world, made)
}

#[test]
fn a_relay_that_restarts_loses_nothing_and_asks_for_nothing() {
    let (world, made) = restarted(1);
    let o = outcome(&world, &made);
    // Packets on their way to the old start reach the new one.
    assert_eq!((o.sent, o.lost, o.late, o.duplicates), (1_000, 0, 0, 0));
    // Its new sequence numbers are not mistaken for old ones or for a gap.
    for (host, link) in [(0, 0), (1, 0), (1, 1), (2, 0)] {
        assert_eq!(
            stats(&world, host, link).of(RT).receiver.unwrap().asked,
            0,
            "host {host} link {link}"
        );
        assert_eq!(
            dropped(&world, host, link, DropReason::Duplicate),
            0,
            "host {host} link {link}"
        );
        assert_eq!(stats(&world, host, link).downs, 0, "host {host} link {link}");
    }
    // Each neighbour has noticed the restart.
    assert_eq!((stats(&world, 0, 0).restarts, stats(&world, 2, 0).restarts), (1, 1));
}

#[test]
fn a_destination_that_restarts_loses_nothing() {
    let (world, made) = restarted(2);
    let o = outcome(&world, &made);
    assert_eq!((o.lost, o.late, o.duplicates), (0, 0, 0));
    assert_eq!(stats(&world, 1, 1).of(RT).retransmissions.envelopes, 0);
}

/// A restarted node numbers its flows from other values, far from the old ones: the first such
/// number is not trusted, the second is.
#[test]
fn a_source_that_restarts_loses_one_packet_of_each_call_at_most() {
    let (world, made) = restarted(0);
    let o = outcome(&world, &made);
    assert_eq!((o.late, o.duplicates), (0, 0));
    for &call in &made {
        let lost = flow(&world, call).arrivals.iter().filter(|a| a.is_none()).count();
        assert!(lost <= 1, "{lost} packets of 20 ms");
    }
}
