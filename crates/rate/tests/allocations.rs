//! Neither packets nor reports allocate, with losses among them.

use std::time::Duration;
use trunkline_base::Time;
use trunkline_rate::tfrc::{Config, Receiver, Sender};

#[test]
fn a_packet_costs_no_allocation() {
    for config in [
        Config::basic(160),
        Config::small_packets(160),
        Config::minimum_delay(160),
        Config::rfc5348(160),
    ] {
        let mut sender = Sender::new(config, 1, Time::ZERO);
        let mut receiver = Receiver::new(config, 1);
        let mut now = Time::ZERO;
        let (mut reports, mut packets) = (0, 0);
        let counted = allocation_counter::measure(|| {
            while packets < 10_000 {
                now = now.max(sender.next_send());
                let data = sender.send(now, 160).expect("it may be sent now");
                packets += 1;
                if packets % 50 == 0 {
                    continue; // lost
                }
                let there = now + Duration::from_millis(30);
                if receiver.receive(there, &data, 160) == Ok(true) {
                    let report = receiver.report(there).expect("one is due");
                    now = there + Duration::from_millis(30);
                    sender.feedback(now, &report).expect("an honest report");
                    reports += 1;
                }
                if sender.next_timeout() <= now {
                    sender.expire(now);
                }
            }
        });
        // Else nothing was measured.
        assert!(reports > 1_000 && sender.loss() > 0.0, "{reports} reports");
        assert_eq!(counted.count_total, 0, "{config:?}");
    }
}
