//! No input from the other end causes a panic, or a number of packets out of bounds.

use super::*;
use proptest::prelude::*;

#[test]
fn each_mistake_has_its_error_and_changes_nothing() {
    use FeedbackError as E;
    let mut trunk = Trunk::new(Config::default());
    trunk.report(0.01);
    let sent = trunk.send(40);
    let before = format!("{:?}", trunk.sender);
    for (number, loss, error) in [
        (sent + 1, 0.0, E::Future(sent + 1)),
        (u32::MAX, 0.0, E::Future(u32::MAX)),
        (u32::MAX / 2 + sent, 0.0, E::Future(u32::MAX / 2 + sent)),
        (159, 0.0, E::Stale(159)),
        (0, 0.0, E::Stale(0)),
        (200, 1.5, E::Loss(1.5)),
        (200, -0.1, E::Loss(-0.1)),
        // Sent just now: no time is left for the path.
        (sent, 0.0, E::RoundTrip { since: Duration::ZERO, elapsed: Duration::ZERO }),
    ] {
        assert_eq!(trunk.hear(number, loss), Err(error));
    }
    assert!(matches!(trunk.hear(200, f64::NAN), Err(E::Loss(_))));
    let held = Feedback { number: 200, elapsed: ms(40), loss: 0.0 };
    let error = E::RoundTrip { since: ms(39), elapsed: ms(40) };
    assert_eq!(trunk.sender.feedback(trunk.now, &held), Err(error));
    assert_eq!(format!("{:?}", trunk.sender), before);
    assert_eq!(trunk.hear(200, 0.0), Ok(()));
    assert_eq!(trunk.hear(200, 0.0), Err(E::Stale(200)), "replayed");
    assert_eq!(trunk.hear(199, 1.0), Err(E::Stale(199)), "overtaken");
    // Too long ago to be true, and too far behind to be remembered.
    let late = trunk.now + Duration::from_secs(100);
    let report = Feedback { number: 210, elapsed: Duration::ZERO, loss: 0.0 };
    assert!(matches!(trunk.sender.feedback(late, &report), Err(E::RoundTrip { .. })));
    let mut short = Trunk::new(Config { remembered: 4, ..Config::default() });
    short.send(6);
    assert_eq!(short.hear(1, 0.0), Err(E::Forgotten(1)));
    assert_eq!(short.hear(2, 0.0), Ok(()));
}

/// The extremes that an accepted report can claim: everything lost, and nothing.
#[test]
fn a_liar_gets_every_packet_singly_or_as_many_as_fit() {
    let mut trunk = Trunk::new(Config::default());
    assert_eq!(trunk.report(1.0), 46);
    assert!(trunk.sender.over_share());
    assert_eq!(trunk.report(1e-300), 1);
    assert!(trunk.sender.share().unwrap().is_finite());
}

#[test]
fn a_datagram_counts_once() {
    let mut receiver = Receiver::new(Config::default());
    assert_eq!(receiver.report(at(0)), None);
    assert_eq!(receiver.receive(at(0), 5), Ok(false));
    assert_eq!(receiver.receive(at(0), 5), Err(DataError::Known(5)));
    assert_eq!(receiver.receive(at(0), 5_000), Ok(false));
    assert_eq!(receiver.receive(at(0), 6), Err(DataError::Known(6)), "too late to tell");
    assert_eq!(receiver.receive(at(0), 4_999), Ok(false));
    assert_eq!(receiver.receive(at(0), 4_998), Ok(true));
    let report = receiver.report(at(2)).unwrap();
    assert_eq!((report.number, report.elapsed), (5_000, ms(2)));
    assert_eq!(receiver.report(at(2)), None);
}

/// Numbers wrap from 2³² − 1 to 0 without a loss.
#[test]
fn numbers_wrap() {
    let mut receiver = Receiver::new(Config::default());
    for n in 0..100u32 {
        receiver.receive(at(n.into()), n.wrapping_sub(50)).unwrap();
    }
    assert_eq!(receiver.loss(at(100)), 0.0);
    let near = begin(u32::MAX);
    assert_eq!(extend(near, 3), near + 4);
    assert_eq!(extend(near + 4, u32::MAX), near);
}

fn configs() -> [Config; 5] {
    let odd = Config {
        header: 3_000,
        per_packet: 0,
        mtu: 0,
        remembered: 0,
        datagrams_per_feedback: 0,
        feedback_interval: Duration::ZERO,
        rtt_keeps: f64::NAN,
        segment: Segment::Nominal(f64::NAN),
        ..Config::default()
    };
    let chosen = Config { segment: Segment::Chosen, ..Config::default() };
    [Config::default(), nominal(), Config { mtu: 1_280, ..Config::paper() }, chosen, odd]
}

proptest! {
    #[test]
    fn reports_of_any_kind_leave_m_in_bounds(
        which in 0usize..5,
        script in proptest::collection::vec(
            (0u8..6, any::<u64>(), any::<u32>(), any::<f64>(), 0.0..1.0f64, 0u64..1 << 40),
            1..200,
        ),
    ) {
        let config = configs()[which];
        let mut sender = Sender::new(config, Time::ZERO);
        let (mut now, mut sent) = (Time::ZERO, 0u32);
        for (kind, any, number, float, share, nanos) in script {
            // Mostly small steps; sometimes the clock jumps, also back.
            now = match kind {
                5 => Time::from_nanos(any),
                _ => now + Duration::from_nanos(nanos >> 10),
            };
            match kind {
                0 | 1 => {
                    for _ in 0..any % 12 {
                        sent = sender.sent(now, number as usize % 50, any as usize % 2_000);
                    }
                }
                2 => {
                    let elapsed = Duration::from_nanos(nanos >> 16);
                    let loss = if any % 2 == 0 { 0.0 } else { share * share * share };
                    let _ = sender.feedback(now, &Feedback { number: sent, elapsed, loss });
                }
                3 => {
                    let made_up = Feedback {
                        number: if any % 2 == 0 { sent } else { number },
                        elapsed: Duration::from_nanos(any >> (any % 64)),
                        loss: if any % 3 == 0 { float } else { share },
                    };
                    let _ = sender.feedback(now, &made_up);
                }
                4 => {
                    // A timeout that never happens is not waited for.
                    if sender.next_timeout() < Time::NEVER {
                        now = now.max(sender.next_timeout());
                    }
                    sender.expire(now);
                }
                _ => {}
            }
            let most = config.packing(0.0).most(config.mtu);
            prop_assert!((1..=most).contains(&sender.multiplex()), "{} packets", sender.multiplex());
            prop_assert!(sender.share().is_none_or(|share| share >= 0.0 && share.is_finite()));
            prop_assert!((0.0..=1.0).contains(&sender.loss()));
        }
    }

    #[test]
    fn a_receiver_takes_anything(
        which in 0usize..5,
        script in proptest::collection::vec((any::<u32>(), any::<u16>(), 0u64..1 << 36, any::<bool>()), 1..300),
    ) {
        let mut receiver = Receiver::new(configs()[which]);
        let (mut now, mut next) = (Time::ZERO, 0u32);
        for (number, sequence, nanos, jump) in script {
            now = if jump { Time::from_nanos(nanos << 8) } else { now + Duration::from_nanos(nanos >> 10) };
            next = if jump { number } else { next.wrapping_add(1) };
            receiver.set_rtt(Duration::from_nanos(nanos));
            receiver.receive_of_flow(now, sequence);
            if receiver.receive(now, next) == Ok(true) {
                let report = receiver.report(now).unwrap();
                prop_assert!((0.0..=1.0).contains(&report.loss), "{:?}", report);
            }
        }
    }

    /// More loss or a longer round trip never means fewer packets per datagram, with a nominal
    /// segment.
    #[test]
    fn worse_never_means_fewer(loss in 1e-6..1.0f64, more in 0.0..1.0f64) {
        let m = |loss: f64| Trunk::new(nominal()).report(loss.min(1.0));
        prop_assert!(m(loss + more) >= m(loss));
    }
}
