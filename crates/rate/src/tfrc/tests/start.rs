//! RFC 3448 with RFC 4342, step by step: s = 20 bytes, R = 0.1 s.

use super::*;

/// One segment per round trip: s/R.
const ONE: f64 = 200.0;

fn basic() -> Reports {
    Reports::new(Config::basic(20))
}

/// X = s bytes per second, and a report without a receive rate makes it s/R.
#[test]
fn one_packet_per_second_then_one_per_round_trip() {
    let mut r = basic();
    assert_eq!((r.sender.rate(), r.sender.next_send()), (20.0, Time::ZERO));
    assert_eq!(r.sender.next_timeout(), at(2_000));
    let first = r.send();
    assert_eq!(r.sender.next_send(), at(1_000));
    assert_eq!(r.sender.send(at(999), 20), Err(TooEarly { at: at(1_000) }));
    r.now = at(100);
    near(r.report(first, 0.0, 0.0), ONE);
    assert_eq!(r.sender.rtt(), Some(RTT));
    assert_eq!(r.sender.next_send(), at(100));
    // max(4 R, 2 s/X) = max(0.4, 0.2).
    assert_eq!(r.sender.next_timeout(), at(500));
}

#[test]
fn without_a_report_the_first_rate_is_halved_down_to_a_packet_in_64_s() {
    let mut r = basic();
    r.send();
    near(r.wait(1), 10.0);
    // 2 s/X = 4 s.
    assert_eq!(r.sender.next_timeout(), at(6_000));
    near(r.wait(10), 20.0 / 64.0);
}

#[test]
fn doubles_once_a_round_trip_up_to_twice_what_is_received() {
    let mut r = Reports::begun(Config::basic(20));
    near(r.round(ONE, 0.0), 2.0 * ONE);
    near(r.round(2.0 * ONE, 0.0), 4.0 * ONE);
    near(r.round(1.1 * ONE, 0.0), 2.2 * ONE);
    near(r.round(0.1 * ONE, 0.0), ONE);
    near(r.round(ONE, 0.0), 2.0 * ONE);
    // The second of two reports within a round trip does not double the rate.
    let (one, two) = (r.send(), r.send());
    r.now += RTT;
    near(r.report(one, 9.0 * ONE, 0.0), 4.0 * ONE);
    r.now += ms(1);
    near(r.report(two, 9.0 * ONE, 0.0), 4.0 * ONE);
}

/// For p = 0.01 and s = 20 bytes: X_calc = 20/0.00890217 = 2246.643 bytes per second; see the
/// equation's test.
#[test]
fn after_a_loss_the_equation_and_the_receive_rate_bound_the_rate() {
    let mut r = Reports::begun(Config::basic(20));
    let x_calc = r.round(1e6, 0.01);
    assert!((x_calc - 2_246.643).abs() < 1e-2, "{x_calc}");
    near(r.sender.calculated(), x_calc);
    near(r.round(500.0, 0.01), 1_000.0);
    // The first report after a pause: 20 bytes in 1.6 s.
    near(r.round(12.5, 0.01), 25.0);
    // The lower bound: s/64 s.
    near(r.round(0.0, 0.01), 20.0 / 64.0);
    // The same with one segment per round trip as the lower bound.
    let floor = Config { avoidance: Least::Segments(1.0), ..Config::basic(20) };
    let mut r = Reports::begun(floor);
    near(r.round(12.5, 0.01), ONE);
}

#[test]
fn without_reports_the_rate_is_halved() {
    // Limited by X_recv: X_calc = 2246 > 2 · 500.
    let mut r = Reports::begun(Config::basic(20));
    r.round(500.0, 0.01);
    r.send();
    near(r.wait(1), 500.0);
    // Limited by X_calc, beyond twice X_recv.
    let mut r = Reports::begun(Config::basic(20));
    let x = r.round(1e6, 0.01);
    r.send();
    near(r.wait(1), x / 2.0);
    // Limited by X_calc, too, if it is between X_recv and twice that: 2246 between 1500 and 3000.
    let mut r = Reports::begun(Config::basic(20));
    near(r.round(1_500.0, 0.01), x);
    r.send();
    near(r.wait(1), x / 2.0);
    // In slow start: X_recv = 4/RTT becomes 2/RTT, and X = 8/RTT becomes 4/RTT.
    let mut r = Reports::begun(Config::basic(20));
    let _ = [1.0, 2.0, 4.0].map(|n| r.round(n * ONE, 0.0));
    near(r.sender.rate(), 8.0 * ONE);
    r.send();
    near(r.wait(1), 4.0 * ONE);
    r.send();
    near(r.wait(1), 2.0 * ONE);
}

/// RFC 3390's window for small packets is 4 s: 800 bytes per second (RFC 4342, section
/// 5.1).
#[test]
fn a_pause_leaves_the_initial_window() {
    let mut r = Reports::begun(Config::basic(20));
    let _ = [1.0, 2.0, 4.0, 8.0].map(|n| r.round(n * ONE, 0.0));
    near(r.sender.rate(), 16.0 * ONE);
    // The first timer was set before the last packet; after that, nothing is sent.
    near(r.wait(1), 8.0 * ONE);
    near(r.wait(20), 4.0 * ONE);
    // Only then, after a packet without a report, is it halved again.
    r.send();
    near(r.wait(1), 2.0 * ONE);
    // A rate that was lower before stays unchanged.
    let mut r = Reports::begun(Config::basic(20));
    near(r.round(1.0 * ONE, 0.0), 2.0 * ONE);
    near(r.wait(20), 2.0 * ONE);
    // RFC 3448 alone leaves two segments.
    let mut r = Reports::begun(Config { recover: Least::Segments(2.0), ..Config::basic(20) });
    let _ = [1.0, 2.0, 4.0, 8.0].map(|n| r.round(n * ONE, 0.0));
    near(r.wait(20), 2.0 * ONE);
    // The same after a loss, where X_calc = 2246 bytes per second = 11.2 per round trip.
    let mut r = Reports::begun(Config::basic(20));
    r.round(1e6, 0.01);
    near(r.wait(20), 4.0 * ONE);
}

/// A pause of 1.5 s between two talkspurts of 50 packets per second: the first report after it
/// covers 2 · 20 bytes in 1.54 s, and takes the rate to s/R.
#[test]
fn a_pause_makes_the_first_report_useless() {
    let rate_after = |config: Config| {
        let mut p = Path::new(config);
        for n in 0..100 {
            let now = at(20 * n);
            p.listen(now);
            if p.sender.next_send() <= now {
                let data = p.sender.send(now, 20).unwrap();
                if p.receiver.receive(now + RTT / 2, &data, 20).unwrap() {
                    let report = p.receiver.report(now + RTT / 2).unwrap();
                    p.reports.push_back((now + RTT, report));
                }
            }
        }
        let again = at(20 * 99 + 1_500);
        p.listen(again);
        assert!(p.sender.rate() >= 4.0 * ONE, "the pause itself takes little");
        p.send(again, again + ms(1), |_| false);
        p.listen(again + RTT);
        p.sender.rate()
    };
    near(rate_after(Config::basic(20)), ONE);
    let excluded = Config { measure: Measure::WithoutIdle, ..Config::basic(20) };
    let x = rate_after(excluded);
    assert!(x >= 1_000.0, "{x}");
    assert!(rate_after(Config::rfc5348(20)) >= 1_000.0);
    assert!(rate_after(Config::minimum_delay(20)) >= 8.0 * ONE);
}

/// Packets are 20 ms apart, and no. 50 is lost; R = 100 ms. The loss is detected at no. 53. In the
/// 100 ms until then 49, 51, 52 and 53 arrived, of 20 bytes each: 800 bytes per second. X_calc
/// should be about that. It is not exact, because p is the mean of the first interval and one that
/// has just begun.
#[test]
fn the_first_loss_leaves_the_rate_that_was_received() {
    for config in [Config::basic(20), Config::small_packets(20), Config::basic(160)] {
        let mut receiver = Receiver::new(config, FLOW);
        let bytes = usize::from(config.segment);
        let data = |number| Data { flow: FLOW, number, rtt: Some(RTT) };
        let mut report = None;
        for n in (0..54).filter(|n| *n != 50) {
            let now = at(20 * u64::from(n));
            if receiver.receive(now, &data(n), bytes).unwrap() {
                report = receiver.report(now);
            }
        }
        let report = report.unwrap();
        assert_eq!(report.acknowledged, 53, "a new loss event is reported at once");
        assert!(report.loss > 0.0);
        let x = config.calculated(RTT, report.loss);
        let received = 4.0 * bytes as f64 / 0.1;
        assert!((x / received - 1.0).abs() < 0.15, "{x} of {received}");
    }
}

/// Each report's rate covers the packets since the previous report, over the time between the two.
#[test]
fn the_receive_rate_is_that_since_the_last_report() {
    let mut receiver = Receiver::new(Config::basic(20), FLOW);
    let mut reports = vec![];
    let mut number = 0;
    let mut come = |now: Time, rtt| {
        let data = Data { flow: FLOW, number, rtt };
        number += 1;
        if receiver.receive(now, &data, 20).unwrap() {
            reports.push((now, receiver.report(now).unwrap().receive_rate));
        }
    };
    // Without a round-trip time each packet is reported; the first report has no rate.
    come(at(0), None);
    come(at(20), None);
    // Then one packet in every 100 ms or more is reported.
    (2..8).for_each(|n| come(at(20 * n), Some(RTT)));
    // After a pause: 2 of 20 bytes (at 140 and 1620 ms) in 1500 ms.
    come(at(1_620), Some(RTT));
    (82..87).for_each(|n| come(at(20 * n), Some(RTT)));
    let times: Vec<Time> = reports.iter().map(|r| r.0).collect();
    assert_eq!(times, [0, 20, 120, 1_620, 1_720].map(at));
    assert_eq!(reports[0].1, 0.0);
    near(reports[2].1, 100.0 / 0.1);
    near(reports[3].1, 40.0 / 1.5);
    near(reports[4].1, 100.0 / 0.1);
}

/// 4 is lost, which 5 reveals, as it arrives after 6 and 7. 7 has been acknowledged, so 8 carries
/// the report.
#[test]
fn what_a_late_packet_shows_is_reported_with_the_next() {
    let mut receiver = Receiver::new(Config::basic(20), FLOW);
    let mut come = |ms: u64, number| {
        let data = Data { flow: FLOW, number, rtt: Some(RTT) };
        let due = receiver.receive(at(ms), &data, 20).unwrap();
        let report = receiver.report(at(ms));
        assert_eq!(report.is_some(), due);
        report.map(|r| (r.acknowledged, r.loss > 0.0))
    };
    assert_eq!(come(0, 1), Some((1, false)));
    assert_eq!(come(40, 2), None);
    assert_eq!(come(60, 3), None);
    assert_eq!(come(95, 6), None);
    assert_eq!(come(100, 7), Some((7, false)));
    assert_eq!(come(105, 5), None);
    assert_eq!(come(120, 8), Some((8, true)));
    // Nor does a late packet trigger the report of each round trip.
    assert_eq!(come(140, 10), None);
    assert_eq!(come(210, 11), None);
    assert_eq!(come(220, 12), Some((12, true)));
    assert_eq!(come(320, 9), None);
    assert_eq!(come(330, 13), Some((13, true)));
}
