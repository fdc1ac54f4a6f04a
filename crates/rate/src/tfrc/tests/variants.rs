//! The differences of each variant.

use super::*;

/// One segment per round trip: s/R for s = 20 bytes and R = 0.1 s.
const ONE: f64 = 200.0;

/// At p = 0.01 and R = 0.1 s a segment takes 0.00890217 s (see the equation's test):
/// 1460/0.00890217 = 164,005.0. In packets of 20 bytes, a third of that is payload: 54,668.3. With
/// 160 bytes, four fifths: 131,204.0.
#[test]
fn small_packets_by_hand() {
    for (segment, want) in [(20, 54_668.3), (160, 131_204.0)] {
        let mut r = Reports::begun(Config::small_packets(segment));
        let x = r.round(1e6, 0.01);
        assert!((x / want - 1.0).abs() < 1e-5, "{x} is not {want}");
        // 54,668 bytes per second would be 2,733 packets; 10 ms between them allow 100.
        let before = {
            r.send();
            r.now
        };
        assert_eq!(r.sender.next_send(), before + ms(10));
    }
    // In slow start, nothing is scaled.
    let mut r = Reports::begun(Config::small_packets(20));
    near(r.round(ONE, 0.0), 2.0 * ONE);
}

/// X_active_recv = 1000: after a pause the rate goes to 4 · 50 and 4 · 200, is then limited to
/// 1000, and at last to 2 · 600 without faster restart.
#[test]
fn faster_restart_quadruples_up_to_what_it_was() {
    let mut r = Reports::begun(Config::faster_restart(20));
    let _ = [0.001, 0.001].map(|loss| r.round(1_000.0, loss));
    // 4 · 50 = 200 < X_fast_max = 1000.
    near(r.round(50.0, 0.001), 200.0);
    near(r.round(200.0, 0.001), 800.0);
    near(r.round(300.0, 0.001), 1_000.0);
    near(r.round(600.0, 0.001), 1_200.0);
    // A loss during a restart halves the target rate: X_fast_max = 50.
    let mut r = Reports::begun(Config::faster_restart(20));
    let _ = [0.001, 0.001].map(|loss| r.round(1_000.0, loss));
    near(r.round(100.0, 0.002), 200.0);
    near(r.round(20.0, 0.001), 50.0);
    // A rate of half an hour ago counts nothing, one of 20 minutes ago half.
    for (minutes, limit) in [(31, 200.0), (20, 400.0), (9, 400.0), (25, 250.0)] {
        let mut r = Reports::begun(Config::faster_restart(20));
        let _ = [0.001, 0.001].map(|loss| r.round(1_000.0, loss));
        r.now += Duration::from_secs(60 * minutes) - RTT;
        near(r.round(100.0, 0.001), limit);
    }
}

/// Before the first loss, the prototype's faster restart has no effect; the draft's leaves eight
/// packets per round trip after a pause.
#[test]
fn faster_restart_before_the_first_loss() {
    let after_pause = |config: Config, loss: f64| {
        let mut r = Reports::begun(config);
        let _ = [1.0, 2.0, 4.0, 8.0, 16.0].map(|n| r.round(n * ONE, loss));
        r.wait(20) / ONE
    };
    near(after_pause(Config::faster_restart(20), 0.0), 4.0);
    near(after_pause(Config::faster_restart(20), 1e-4), 8.0);
    let draft = Config { restart: Some(fr::Restart::DRAFT), ..Config::faster_restart(20) };
    near(after_pause(draft, 0.0), 8.0);
    // The first report lowers it nevertheless: to s/R.
    let mut r = Reports::begun(Config::faster_restart(20));
    near(r.round(10.0, 0.0), ONE);
}

#[test]
fn minimum_delay_never_falls_below_eight_per_round_trip() {
    let eight = 8.0 * ONE;
    let mut r = Reports::begun(Config::minimum_delay(20));
    near(r.sender.rate(), eight);
    near(r.round(1.0, 0.0), eight);
    near(r.round(1.0, 1.0), eight);
    r.send();
    near(r.wait(30), eight);
    // In bytes of the nominal segment: 8 · 1460 bytes per 0.1 s.
    let bytes = md::Minimum { least: Some(Least::Bytes(11_680.0)), ..md::Minimum::PAPER };
    let r = Reports::begun(Config { minimum: Some(bytes), ..Config::minimum_delay(20) });
    near(r.sender.rate(), 116_800.0);
}

/// A sender with 64 packets per round trip that paused for 2 s and has sent again.
fn resumed(minimum: md::Minimum, loss: f64) -> (Reports, u16) {
    let mut r = Reports::begun(Config { minimum: Some(minimum), ..Config::minimum_delay(20) });
    let _ = [8.0, 16.0, 32.0].map(|n| r.round(n * ONE, loss));
    near(r.sender.rate(), 64.0 * ONE);
    r.now += ms(2_000);
    let first = r.send();
    near(r.sender.rate(), 8.0 * ONE);
    (r, first)
}

#[test]
fn minimum_delay_discards_the_first_report_after_a_pause() {
    for loss in [0.0, 1e-6] {
        let (mut r, first) = resumed(md::Minimum::PAPER, loss);
        r.now += RTT;
        // The first report, whatever it contains, neither raises nor lowers the rate.
        near(r.report(first, 1e6, loss), 8.0 * ONE);
        // The second report counts; after a loss it quadruples the rate.
        let factor = if loss > 0.0 { 4.0 } else { 2.0 };
        near(r.round(8.0 * ONE, loss), factor * 8.0 * ONE);
    }
    // If it is not discarded, the first report counts: the rate doubles, as twice the receive rate
    // is above that.
    let keeps = md::Minimum { discards: false, ..md::Minimum::PAPER };
    let (mut r, first) = resumed(keeps, 0.0);
    r.now += RTT;
    near(r.report(first, 12.0 * ONE, 0.0), 16.0 * ONE);
    // The paper's improvement: without a loss, the first report doubles the rate.
    let doubles = md::Minimum { doubles: true, ..md::Minimum::PAPER };
    let (mut r, first) = resumed(doubles, 0.0);
    r.now += RTT;
    near(r.report(first, 1.0, 0.0), 16.0 * ONE);
    let (mut r, first) = resumed(doubles, 0.0);
    r.now += RTT;
    near(r.report(first, 1.0, 1e-3), 8.0 * ONE);
}

/// The losses of the first report count: at p = 0.5, X_calc is far below eight packets per round
/// trip.
#[test]
fn minimum_delay_believes_the_losses_of_that_report() {
    let none = md::Minimum { least: None, ..md::Minimum::PAPER };
    let mut r = Reports::begun(Config { minimum: Some(none), ..Config::minimum_delay(20) });
    let _ = [8.0, 16.0].map(|n| r.round(n * ONE, 1e-6));
    r.now += ms(2_000);
    let first = r.send();
    r.now += RTT;
    let x = r.report(first, 1e6, 0.5);
    near(r.sender.loss(), 0.5);
    assert!(x <= r.sender.calculated().max(20.0 / 64.0), "{x}");
}

/// Without a floor, a report can take the rate below a packet per round trip. Packets sent as soon
/// as that allows end no pause, whatever a report in between changes, so their receive rate counts
/// and the rate rises again.
#[test]
fn minimum_delay_without_a_floor_returns_from_the_least_rate() {
    for doubles in [false, true] {
        let none = md::Minimum { least: None, doubles, ..md::Minimum::PAPER };
        let mut r = Reports::begun(Config { minimum: Some(none), ..Config::minimum_delay(20) });
        let _ = [8.0, 16.0].map(|n| r.round(n * ONE, 1e-6));
        near(r.round(0.0, 1e-6), 20.0 / 64.0);
        for _ in 0..12 {
            let received = r.sender.rate();
            r.round(received, 1e-6);
        }
        assert!(r.sender.rate() >= 8.0 * ONE, "{}", r.sender.rate());
    }
}

/// A report that was in flight when the pause ended is unaffected by the pause: it counts, and the
/// next one is the first.
#[test]
fn a_stale_report_after_a_pause_is_not_the_first() {
    let mut r = Reports::begun(Config::minimum_delay(20));
    let _ = [8.0, 16.0].map(|n| r.round(n * ONE, 0.0));
    let old = r.send();
    r.now += ms(110);
    let first = r.send();
    near(r.sender.rate(), 8.0 * ONE);
    r.now += ms(1);
    near(r.report(old, 16.0 * ONE, 0.0), 16.0 * ONE);
    r.now += ms(99);
    near(r.report(first, 1e6, 0.0), 16.0 * ONE);
    near(r.round(1e6, 0.0), 32.0 * ONE);
}

/// The first report makes the rate W_init/R = 4 s/R; the receive rates of two round trips count,
/// and twice the highest is the bound.
#[test]
fn rfc5348_by_hand() {
    let mut r = Reports::new(Config::rfc5348(20));
    near(r.round(0.0, 0.0), 4.0 * ONE);
    near(r.round(1_000.0, 0.0), 1_600.0);
    // Sent as soon as allowed: the set holds 1000 and 100.
    near(r.round(100.0, 0.0), 2_000.0);
    // A pause, after which only data limited the sender.
    r.now += ms(1_500);
    near(r.round(10.0, 0.0), 2_000.0);
    // A loss in such an interval halves the entries: the larger of 0.85 · 10 and 500 counts, and is
    // not doubled. X_calc at p = 0.001 is larger.
    r.now += ms(1_500);
    near(r.round(10.0, 0.001), 500.0);
    assert!(r.sender.calculated() > 500.0);
}

#[test]
fn rfc5348_without_reports() {
    let mut r = Reports::new(Config::rfc5348(20));
    // Idle from the start: nothing is halved.
    near(r.wait(3), 20.0);
    r.round(0.0, 0.0);
    near(r.round(1_000.0, 0.0), 1_600.0);
    // W_init/R = 800: while idle, slow start is not halved below 2 · 800.
    r.wait(1);
    let x = r.sender.rate();
    near(r.wait(20), x.min(800.0));
    // In congestion avoidance, limited by X_recv = 400 < W_init/R.
    let mut r = Reports::new(Config::rfc5348(20));
    r.round(0.0, 0.0);
    r.round(400.0, 0.0);
    // Data limited the sender when the loss occurred: 0.85 · 400.
    near(r.round(400.0, 0.001), 340.0);
    near(r.round(400.0, 0.001), 800.0);
    r.send();
    near(r.wait(1), 400.0);
    near(r.wait(5), 400.0);
}

/// RFC 5348, section 8.3: X = 10 packets per round trip of 100 ms, t_gran = 10 ms: t_ipi
/// = 10 ms, t_delta = min(10, 10, 100)/2 = 5 ms. With a round trip of 4 ms it is 2 ms.
/// (The RFC's own example has t_ipi = 1 ms, which would be 100 packets.)
#[test]
fn packets_may_go_half_a_granularity_early() {
    let gran = Config { granularity: ms(10), ..Config::rfc5348(20) };
    let mut r = Reports::begun(gran);
    r.round(5.0 * ONE, 0.0);
    r.round(5.0 * ONE, 0.0);
    near(r.sender.rate(), 10.0 * ONE);
    r.now += ms(500);
    r.send();
    let sent = r.now;
    assert_eq!(r.sender.next_send(), sent + ms(5));
    // Nominal times stay on their grid.
    r.send();
    assert_eq!(r.sender.next_send(), sent + ms(15));
    // A delay of 4 ms is made up for; one of 100 ms is not.
    let late = |by: u64| {
        let mut s = r.sender.clone();
        s.send(sent + ms(20 + by), 20).unwrap();
        s.next_send().since(sent).as_millis()
    };
    assert_eq!([late(0), late(4), late(100)], [25, 25, 125]);
}

#[test]
fn charged_by_segments_a_large_packet_costs_no_more() {
    let config = Config { charge: Charge::Segment, ..Config::basic(20) };
    for (config, gap) in [(config, 100), (Config::basic(20), 200)] {
        let mut r = Reports::begun(config);
        r.now += ms(1_000);
        r.sender.send(r.now, 40).unwrap();
        assert_eq!(r.sender.next_send(), r.now + ms(gap));
    }
}
