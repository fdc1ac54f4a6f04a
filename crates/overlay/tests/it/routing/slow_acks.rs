//! Retransmissions to a neighbour that takes long to acknowledge, as on a busy machine.

use super::agreement::cost;
use super::net::{Net, id};
use core::time::Duration;
use trunkline_overlay::link::LinkId;

/// Changes a cost of host 0 once a second; returns the number of records that it retransmitted.
fn changes(net: &mut Net, count: u16) -> u64 {
    let before = net.hosts[0].router.stats().repeated;
    for k in 0..count {
        net.cost(0, LinkId(0), cost(20 + k % 2, 0));
        net.run(Duration::from_secs(1));
    }
    net.hosts[0].router.stats().repeated - before
}

/// Sets the time that a frame takes each way, in units of 100 µs; the routers believe that it takes
/// none.
fn delay(net: &mut Net, latency: u16) {
    for host in &mut net.hosts {
        host.links[0].2.latency = latency;
        host.router.set_rtt(LinkId(0), Duration::ZERO);
    }
}

#[test]
fn a_neighbour_that_acknowledges_late_is_not_sent_everything_twice() {
    let mut net = Net::new(2, 0.0, 1);
    net.join(0, 1, [cost(20, 0); 2]);
    delay(&mut net, 2_000);
    net.run(Duration::from_secs(5));
    changes(&mut net, 5);
    let late = changes(&mut net, 20);
    assert!(late <= 2, "{late} of 20 records were sent again");

    // When it is prompt again, a lost record is soon replaced.
    delay(&mut net, 10);
    changes(&mut net, 30);
    net.loss = 1.0;
    net.cost(0, LinkId(0), cost(40, 0));
    net.run(Duration::from_millis(20));
    net.loss = 0.0;
    net.run(Duration::from_millis(130));
    let records = net.hosts[1].router.records();
    let latest = records.filter(|r| r.0.origin == id(0)).flat_map(|r| r.2).next();
    assert_eq!(latest.map(|advert| advert.cost.latency), Some(cost(40, 0).latency));
}

/// The acknowledgements of a lossy link are no sign of a slow neighbour.
#[test]
fn losses_do_not_delay_retransmissions() {
    let mut net = Net::new(2, 0.2, 2);
    net.join(0, 1, [cost(20, 0); 2]);
    net.run(Duration::from_secs(5));
    changes(&mut net, 200);
    for k in 0..3 {
        net.loss = 1.0;
        net.cost(0, LinkId(0), cost(40 + k, 0));
        net.run(Duration::from_millis(20));
        net.loss = 0.0;
        net.run(Duration::from_millis(130));
        let records = net.hosts[1].router.records();
        let latest = records.filter(|r| r.0.origin == id(0)).flat_map(|r| r.2).next();
        assert_eq!(latest.map(|advert| advert.cost.latency), Some(cost(40 + k, 0).latency));
        net.loss = 0.2;
        net.run(Duration::from_secs(2));
    }
}
