//! Neither packets nor reports allocate, even with losses.

use std::time::Duration;
use trunkline_base::Time;
use trunkline_rate::tfmc;
use trunkline_rate::tfrc::{Config, Receiver, Sender};
use trunkline_rate::vegas;

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
        // Otherwise nothing was measured.
        assert!(reports > 1_000 && sender.loss() > 0.0, "{reports} reports");
        assert_eq!(counted.count_total, 0, "{config:?}");
    }
}

#[test]
fn a_datagram_of_a_trunk_costs_no_allocation() {
    for config in [tfmc::Config::default(), tfmc::Config::paper()] {
        let mut now = Time::ZERO;
        let (mut sender, mut receiver) =
            (tfmc::Sender::new(config, now), tfmc::Receiver::new(config));
        let mut reports = 0;
        let counted = allocation_counter::measure(|| {
            for n in 0..10_000u32 {
                now += Duration::from_millis(1);
                let number = sender.sent(now, sender.multiplex(), 20 * sender.multiplex());
                if n % 50 == 0 {
                    continue; // lost
                }
                let there = now + Duration::from_millis(30);
                receiver.receive_of_flow(there, n as u16);
                if receiver.receive(there, number) == Ok(true) {
                    let report = receiver.report(there).expect("one is due");
                    let back = there + Duration::from_millis(30);
                    sender.feedback(back, &report).expect("an honest report");
                    receiver.set_rtt(sender.rtt().expect("a report has come"));
                    reports += 1;
                }
                if sender.next_timeout() <= now {
                    sender.expire(now);
                }
            }
        });
        // Otherwise nothing was measured.
        assert!(reports > 1_000 && sender.loss() > 0.0, "{reports} reports");
        assert_eq!(counted.count_total, 0, "{config:?}");
    }
}

#[test]
fn a_report_on_a_codec_costs_no_allocation() {
    for config in [vegas::Config::default(), vegas::Config::paper()] {
        let rate = vegas::CodecRate::Kbps64;
        let mut control = vegas::Control::new(config, rate, Time::ZERO);
        let mut hop = vegas::HopBaseRtt::default();
        let mut changes = 0;
        let counted = allocation_counter::measure(|| {
            let mut before = control.rate();
            for n in 0..10_000u64 {
                let rtt = Some(Duration::from_millis(10 + n * n % 50));
                let lost = u32::from(n % 7 == 0);
                let loss = vegas::Loss { expected: 5, lost, runs: lost };
                let report = vegas::ReceiverReport { rtt, loss };
                let now = Time::from_millis(100 * n);
                let decision = control.report(now, &report, &mut hop).expect("a possible report");
                changes += u32::from(decision.rate != before);
                before = decision.rate;
                control.expire(now);
            }
        });
        // Otherwise nothing was measured.
        assert!(changes > 100, "{changes} changes");
        assert_eq!(counted.count_total, 0, "{config:?}");
    }
}
