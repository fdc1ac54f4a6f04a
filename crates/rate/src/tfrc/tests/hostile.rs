//! No input from the other end causes a panic, or a rate out of bounds.

use super::*;
use proptest::prelude::*;

fn variants() -> Vec<Config> {
    let draft = Config { restart: Some(fr::Restart::DRAFT), ..Config::faster_restart(160) };
    let doubles = md::Minimum { doubles: true, ..md::Minimum::PAPER };
    vec![
        Config::basic(20),
        Config::basic(0),
        Config::small_packets(20),
        Config::faster_restart(20),
        draft,
        Config::minimum_delay(160),
        Config { minimum: Some(doubles), ..Config::minimum_delay(160) },
        Config::rfc5348(1_460),
        Config { granularity: ms(10), measure: Measure::WithoutIdle, ..Config::basic(9_000) },
    ]
}

fn report(acknowledged: u16) -> Feedback {
    let elapsed = Duration::ZERO;
    Feedback { flow: FLOW, acknowledged, elapsed, receive_rate: 100.0, loss: 0.0 }
}

#[test]
fn each_mistake_has_its_error_and_changes_nothing() {
    use FeedbackError as E;
    let mut r = Reports::begun(Config::basic(20));
    r.send();
    r.send();
    r.now += RTT;
    let before = format!("{:?}", r.sender);
    let good = report(2);
    for (bad, error) in [
        (Feedback { flow: 8, ..good }, E::Flow { got: 8, expected: FLOW }),
        (report(3), E::Future(3)),
        (report(u16::MAX), E::Future(u16::MAX)),
        (report(0), E::Stale(0)),
        (Feedback { receive_rate: -1.0, ..good }, E::ReceiveRate(-1.0)),
        (Feedback { loss: 1.5, ..good }, E::Loss(1.5)),
        (Feedback { loss: -0.1, ..good }, E::Loss(-0.1)),
        (Feedback { elapsed: RTT, ..good }, E::RoundTrip { since: RTT, elapsed: RTT }),
        (Feedback { elapsed: ms(101), ..good }, E::RoundTrip { since: RTT, elapsed: ms(101) }),
    ] {
        assert_eq!(r.sender.feedback(r.now, &bad), Err(error));
    }
    for none in [Feedback { loss: f64::NAN, ..good }, Feedback { receive_rate: f64::NAN, ..good }] {
        assert!(r.sender.feedback(r.now, &none).is_err());
    }
    assert_eq!(format!("{:?}", r.sender), before);
    assert_eq!(r.sender.feedback(r.now, &good), Ok(()));
    assert_eq!(r.sender.feedback(r.now, &good), Err(E::Stale(2)));
    // Too long ago to be true, and too far behind to be remembered.
    r.send();
    let late = r.now + Duration::from_secs(100);
    assert!(matches!(r.sender.feedback(late, &report(3)), Err(E::RoundTrip { .. })));
    let config = Config { remembered: 4, ..Config::basic(20) };
    let mut r = Reports::begun(config);
    let first = r.send();
    for _ in 0..4 {
        r.send();
    }
    r.now += RTT;
    assert_eq!(r.sender.feedback(r.now, &report(first)), Err(E::Forgotten(first)));
}

#[test]
fn packets_that_are_not_of_the_flow_are_refused() {
    let mut receiver = Receiver::new(Config::basic(20), FLOW);
    let data = Data { flow: FLOW, number: 5, rtt: None };
    assert_eq!(receiver.report(at(0)), None);
    let foreign = Data { flow: 9, ..data };
    let error = DataError::Flow { got: 9, expected: FLOW };
    assert_eq!(receiver.receive(at(0), &foreign, 20), Err(error));
    assert_eq!(receiver.receive(at(0), &data, 20), Ok(true));
    assert_eq!(receiver.receive(at(1), &data, 20), Err(DataError::Known(5)));
    assert!(receiver.report(at(1)).is_some());
    assert_eq!(receiver.report(at(1)), None);
}

/// 70,000 packets without a loss: numbers wrap, and no loss is detected.
#[test]
fn numbers_wrap() {
    let mut p = Path::new(Config { max_rate: 20_000.0, ..Config::basic(20) });
    let sent = p.send(Time::ZERO, at(75_000), |_| false);
    assert!(sent > 70_000, "{sent}");
    assert_eq!((p.sender.loss(), p.sender.rate()), (0.0, 20_000.0));
}

/// A sender with a minimum rate keeps sending while the path is down. When the path is back, the
/// numbers may have advanced by more than half of the number space.
#[test]
fn however_many_are_lost_the_next_is_heard() {
    for lost in [30_000, 32_768, 40_000, 65_535, 65_536, 200_000u32] {
        let mut receiver = Receiver::new(Config::minimum_delay(20), FLOW);
        let mut come = |n: u32| {
            let data = Data { flow: FLOW, number: n as u16, rtt: Some(RTT) };
            receiver.receive(at(20 * u64::from(n)), &data, 20)
        };
        (0..100).for_each(|n| assert!(come(n).is_ok()));
        assert_eq!(come(99), Err(DataError::Known(99)));
        let heard = (100 + lost..400 + lost).filter(|n| come(*n).is_ok()).count();
        // After this long, the same number as the last can't be told from a duplicate.
        let expected = if lost == 65_535 { 299 } else { 300 };
        assert_eq!(heard, expected, "{lost}");
    }
}

proptest! {
    #[test]
    fn reports_of_any_kind_leave_the_rate_in_bounds(
        which in 0usize..9,
        script in proptest::collection::vec(
            (0u8..6, any::<u64>(), any::<u16>(), any::<f64>(), 0.0..1.0f64, 0u64..1 << 40),
            1..200,
        ),
    ) {
        let config = variants()[which];
        let mut sender = Sender::new(config, FLOW, Time::ZERO);
        let (mut now, mut latest) = (Time::ZERO, Time::ZERO);
        let (mut sent, most) = (0u16, config.max_rate);
        for (kind, any, number, float, share, nanos) in script {
            // Mostly small steps; sometimes the clock jumps, also back.
            now = match kind {
                5 => Time::from_nanos(any),
                _ => now + Duration::from_nanos(nanos >> 8),
            };
            match kind {
                0 | 1 => {
                    now = now.max(sender.next_send());
                    let bytes = usize::from(number);
                    sent = sender.send(now, bytes).map_or(sent, |data| data.number);
                }
                2 => {
                    let honest = Feedback {
                        elapsed: Duration::from_nanos(nanos >> 16),
                        receive_rate: nanos as f64 / 1e3,
                        loss: if any % 2 == 0 { 0.0 } else { share * share * share },
                        ..report(sent)
                    };
                    let _ = sender.feedback(now, &honest);
                }
                3 => {
                    let made_up = Feedback {
                        flow: FLOW,
                        acknowledged: if any % 2 == 0 { sent } else { number },
                        elapsed: Duration::from_nanos(any >> (any % 64)),
                        receive_rate: float,
                        loss: if any % 3 == 0 { float } else { share },
                    };
                    let _ = sender.feedback(now, &made_up);
                }
                4 => {
                    now = now.max(sender.next_timeout());
                    sender.expire(now);
                }
                _ => {}
            }
            let least = config.segment() / 64.0;
            let x = sender.rate();
            prop_assert!(x >= least.min(most) && x <= most, "{} is not within {} and {}", x, least, most);
            // Nor does it wait for ever: at s/64 s for a packet, and four of the longest round
            // trips for a report.
            latest = latest.max(now);
            let longest = Duration::from_secs_f64(64.0 * 65_535.0 / config.segment());
            prop_assert!(sender.next_send() <= latest + longest + ms(10));
            prop_assert!(sender.next_timeout() <= latest + 4 * MAX_BACKOFF);
        }
    }

    #[test]
    fn a_receiver_takes_anything(
        which in 0usize..9,
        script in proptest::collection::vec(
            (any::<u16>(), any::<u32>(), 0u64..1 << 36, any::<bool>(), 0usize..2_000), 1..300,
        ),
    ) {
        let config = variants()[which];
        let mut receiver = Receiver::new(config, FLOW);
        let (mut now, mut next) = (Time::ZERO, 0u16);
        for (number, us, nanos, jump, bytes) in script {
            now = if jump { Time::from_nanos(nanos << 8) } else { now + Duration::from_nanos(nanos >> 10) };
            next = if jump { number } else { next.wrapping_add(1) };
            let rtt = (us % 3 > 0).then(|| Duration::from_micros(us.into()));
            let data = Data { flow: FLOW, number: next, rtt };
            if receiver.receive(now, &data, bytes) == Ok(true) {
                let report = receiver.report(now).unwrap();
                prop_assert!((0.0..=1.0).contains(&report.loss));
                prop_assert!(report.receive_rate >= 0.0 && report.receive_rate.is_finite());
                prop_assert_eq!(Feedback::parse(&report.emit()).map(|f| f.flow), Ok(FLOW));
            }
        }
    }

    /// More loss or a longer round trip never raises X_calc, in any variant.
    #[test]
    fn x_calc_is_monotone(
        which in 0usize..9, p in 1e-9..1.0f64, more in 0.0..1.0f64, ms_ in 1u64..5_000, longer in 0u64..5_000,
    ) {
        let config = variants()[which];
        let x = config.calculated(ms(ms_), p);
        prop_assert!(config.calculated(ms(ms_), p + more) <= x);
        prop_assert!(config.calculated(ms(ms_ + longer), p) <= x);
    }
}
