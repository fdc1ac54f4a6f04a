use super::*;
use proptest::prelude::*;

const SEGMENT: usize = 1_000;
const RTT: Duration = Duration::from_millis(100);

fn window(algorithm: Algorithm) -> Window {
    Window::new(Config { algorithm, ..Config::new(SEGMENT) })
}

/// Acknowledges the whole window, segment by segment, in one round trip.
fn round(window: &mut Window, now: &mut Time) {
    for _ in 0..window.size() / SEGMENT as u64 {
        window.on_ack(*now, SEGMENT as u64, RTT, true);
    }
    *now += RTT;
}

#[test]
fn reno_doubles_then_adds_one_and_halves() {
    let (mut w, mut now) = (window(Algorithm::Reno), Time::from_millis(1));
    assert_eq!(w.size(), 10_000);
    round(&mut w, &mut now);
    assert_eq!(w.size(), 20_000);
    w.on_loss();
    assert_eq!(w.size(), 10_000);
    for n in 1..=5 {
        round(&mut w, &mut now);
        assert_eq!(w.size(), 10_000 + n * 1_000);
    }
    w.on_timeout(true);
    assert_eq!(w.size(), 1_000);
    (0..3).for_each(|_| round(&mut w, &mut now));
    assert_eq!(w.size(), 7_500, "slow start up to half of before");
    w.on_timeout(true);
    w.on_timeout(false);
    round(&mut w, &mut now);
    round(&mut w, &mut now);
    assert_eq!(w.size(), 3_750, "only the first of a row halves");
}

/// A mark reduces the window less than a loss, and a spurious loss not at all.
#[test]
fn marks_leave_more_than_losses_and_wrong_suspicions_all() {
    for (algorithm, marked, lost) in
        [(Algorithm::Reno, 160_000, 80_000), (Algorithm::Cubic, 170_000, 112_000)]
    {
        let (mut w, mut now) = (window(algorithm), Time::from_millis(1));
        (0..4).for_each(|_| round(&mut w, &mut now));
        w.on_ack(now, 40_000, RTT, true);
        let mut marks = w.clone();
        marks.on_mark();
        assert_eq!(marks.size(), marked);
        let mut losses = w.clone();
        losses.on_loss();
        assert!(losses.size() < marks.size() && losses.size() >= lost);
        losses.undo(&w);
        assert_eq!(losses.size(), 200_000);
        assert!(w.is_in_slow_start() && !losses.is_in_slow_start(), "but no doubling goes on");
        // Growth beyond the earlier window stays.
        let before = marks.clone();
        round(&mut marks, &mut now);
        let grown = marks.size();
        marks.undo(&before);
        assert_eq!(marks.size(), grown);
    }
}

#[test]
fn what_is_not_used_does_not_grow() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut w = window(algorithm);
        w.on_ack(Time::ZERO, 1_000_000, RTT, false);
        assert_eq!(w.size(), 10_000);
        w.on_ack(Time::ZERO, 1_000_000, RTT, true);
        w.on_idle();
        assert_eq!(w.size(), 10_000);
    }
}

/// RFC 9438, figure 1: back at the old maximum after K, flat there, and up again.
#[test]
fn cubic_is_at_its_old_maximum_after_k() {
    let (mut w, mut now) = (window(Algorithm::Cubic), Time::from_millis(1));
    while w.size() < 1_000_000 {
        round(&mut w, &mut now);
    }
    let max = w.size() as f64;
    w.on_loss();
    assert_eq!(w.size(), (max * 0.7) as u64);
    let k = libm::cbrt(max / 1_000.0 * 0.3 / 0.4);
    let begun = now;
    while now.since(begun).as_secs_f64() < k {
        round(&mut w, &mut now);
    }
    let at_k = w.size() as f64 / max;
    assert!((0.98..1.02).contains(&at_k), "{at_k}");
    while now.since(begun).as_secs_f64() < 2.0 * k {
        round(&mut w, &mut now);
    }
    assert!(w.size() as f64 / max > 1.25, "the same again, upwards");
}

#[test]
fn cubic_is_no_slower_than_reno_where_reno_is_fast() {
    let [reno, cubic] = [Algorithm::Reno, Algorithm::Cubic].map(|algorithm| {
        let mut w = Window::new(Config { algorithm, initial: 8, ..Config::new(SEGMENT) });
        let (mut now, rtt) = (Time::from_millis(1), Duration::from_millis(5));
        w.on_loss();
        let mut sum = 0;
        for n in 1..2_000 {
            for _ in 0..w.size() / SEGMENT as u64 {
                w.on_ack(now, SEGMENT as u64, rtt, true);
            }
            now += rtt;
            sum += w.size();
            if n % 10 == 0 {
                w.on_loss();
            }
        }
        sum
    });
    assert!(cubic * 100 > reno * 95, "{cubic} {reno}");
}

#[test]
fn a_window_leaves_within_its_round_trip() {
    let mut w = window(Algorithm::Reno);
    assert_eq!(w.pace(10_000, RTT), RTT / 2);
    w.on_loss();
    assert_eq!(w.pace(6_000, RTT), RTT);
}

#[test]
fn round_trips_are_smoothed_and_time_out() {
    let mut rtt = RoundTrip::default();
    assert_eq!((rtt.timeout(), rtt.smoothed()), (Duration::from_secs(1), None));
    rtt.sample(Duration::from_millis(80));
    assert_eq!(rtt.timeout(), Duration::from_millis(80 + 4 * 40));
    (0..100).for_each(|_| rtt.sample(Duration::from_millis(40)));
    assert!((40..43).contains(&rtt.timeout().as_millis()), "{:?}", rtt.timeout());
    rtt.sample(Duration::from_millis(50));
    assert_eq!(rtt.shortest(), Some(Duration::from_millis(40)));
    assert_eq!(rtt.latest(), Some(Duration::from_millis(50)));
}

#[test]
fn names_come_back() {
    for name in Algorithm::NAMES {
        assert_eq!(name.parse::<Algorithm>().unwrap().to_string(), name);
    }
    assert_eq!("vegas".parse::<Algorithm>(), Err(UnknownAlgorithm));
}

proptest! {
    /// Any events in any order keep the window within its bounds.
    #[test]
    fn the_window_stays_within_its_bounds(
        algorithm in prop::sample::select(vec![Algorithm::Reno, Algorithm::Cubic]),
        segment in 1usize..9_100,
        steps in prop::collection::vec((0u8..6, any::<u32>()), 0..300),
    ) {
        let config = Config { algorithm, max: 1 << 20, ..Config::new(segment) };
        let mut w = Window::new(config);
        let mut now = Time::ZERO;
        for (step, n) in steps {
            let span = Duration::from_micros(n.into());
            now += span;
            match step {
                0 => w.on_loss(),
                1 => w.on_timeout(n % 2 == 0),
                2 => w.on_idle(),
                3 => w.on_ack(now, n.into(), span, false),
                _ => w.on_ack(now, (n % 100_000).into(), span, true),
            }
            prop_assert!((segment as u64..=1 << 20).contains(&w.size()), "{}", w.size());
            w.pace(n as usize, span);
        }
    }
}

/// The window doubles while data lost by a timeout is retransmitted; it stays while the gaps of a
/// loss event are.
#[test]
fn a_window_grows_in_the_recovery_of_a_timeout_only() {
    let progress = |window: &Window| Progress {
        acknowledged: window.size(),
        in_flight: window.size(),
        recovering: true,
        flow_controlled: true,
        rtt: RTT,
    };
    let mut window = Window::new(Config { initial: 100, ..Config::new(SEGMENT) });
    window.on_loss();
    let halved = window.size();
    window.on_progress(Time::ZERO, &progress(&window));
    assert_eq!(window.size(), halved);
    window.on_timeout(true);
    for n in 1..5 {
        window.on_progress(Time::ZERO, &progress(&window));
        assert_eq!(window.size(), (SEGMENT as u64) << n);
    }
}

/// Losses or marks of data sent before a reduction reduce the window no further; those of data sent
/// since do, including retransmissions.
#[test]
fn each_loss_event_reduces_once() {
    let mut control = Control::new(Config { initial: 64, ..Config::new(SEGMENT) });
    let sent = |transmissions| Extent { next: 64, transmissions };
    control.on_loss(3, sent(64));
    assert_eq!(control.size(), 32_000);
    control.on_loss(64, sent(70));
    control.on_mark(20, sent(70));
    assert_eq!(control.size(), 32_000);
    control.on_loss(65, sent(72));
    assert_eq!(control.size(), 16_000, "a retransmission was lost");
    control.on_progress(Time::ZERO, 64, 1_000, 16_000);
    control.on_mark(64, sent(72));
    assert_eq!(control.size(), 12_800);
    control.undo();
    assert_eq!(control.size(), 12_800, "a mark is none that could be a mistake");
    control.on_loss(73, sent(80));
    control.undo();
    assert_eq!(control.size(), 12_800);
}

/// Acknowledgements alone leave the timer backed off (Karn); a measured round trip resets it.
#[test]
fn a_timer_stays_backed_off_until_a_round_trip_is_measured() {
    let mut control = Control::new(Config::new(SEGMENT));
    assert_eq!((control.expire(), control.expire()), (1, 2));
    control.on_timeout(Extent { next: 10, transmissions: 10 });
    control.on_progress(Time::ZERO, 5, 5_000, 5_000);
    control.presume_round_trip(RTT);
    assert_eq!(control.timeouts(), 2);
    control.on_round_trip(RTT);
    assert_eq!(control.timeouts(), 0);
}
