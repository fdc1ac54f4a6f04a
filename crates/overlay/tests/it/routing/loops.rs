//! Duration of packet loops after a change.

use super::agreement::cost;
use super::net::Net;
use core::time::Duration;
use rand::RngExt;
use trunkline_overlay::wire::Metric;

/// Packets that visit a host twice while tables differ, and the time of the last one.
#[test]
fn loops_end_with_convergence() {
    let mut rng = trunkline_base::rng(7, 0);
    let (mut packets, mut looping, mut latest) = (0, 0, Duration::ZERO);
    for run in 0..20 {
        let mut net = Net::new(20, 0.05, run);
        for i in 0..20 {
            net.join(i, (i + 1) % 20, [cost(rng.random_range(2..20), 0); 2]);
        }
        for _ in 0..12 {
            let (a, b) = (rng.random_range(0..20), rng.random_range(1..19));
            net.join(a, (a + b) % 20, [cost(rng.random_range(2..20), 0); 2]);
        }
        net.run(Duration::from_secs(5));
        let changed = net.now;
        net.down(rng.random_range(0..net.cables.len()));
        for _ in 0..500 {
            net.run(Duration::from_millis(1));
            for pair in 0..20 * 20 {
                let (from, to) = (pair / 20, pair % 20);
                let walk = net.walk(from, to, Metric::ExpectedLatency);
                let mut seen = walk.clone();
                seen.sort_unstable();
                seen.dedup();
                packets += 1;
                if seen.len() < walk.len() {
                    looping += 1;
                    latest = latest.max(net.now.since(changed));
                }
            }
        }
    }
    println!("{looping} of {packets} packets looped, the last {latest:?} after the change");
    // One lost frame is retransmitted after 50 ms; 20 hosts are at most 100 ms across.
    assert!(latest < Duration::from_millis(300), "{latest:?}");
    assert!(looping * 100 < packets, "{looping} of {packets}");
}
