use super::*;
use crate::link_model::{Cause, Impairment, LinkModel, Loss, PacketFate, Queue};
use crate::{Time, rng};
use core::time::Duration;

fn state(red: Red) -> RedState {
    RedState::new(red, RATE, rng(1, 0))
}

/// 125 bytes take 1 ms.
const RATE: Bitrate = Bitrate::from_bps(1_000_000);

fn near(what: &str, measured: f64, expected: f64, tolerance: f64) {
    assert!(
        (measured - expected).abs() <= tolerance,
        "{what}: {measured} is not {expected} ± {tolerance}"
    );
}

/// A busy queue of this many packets.
fn waiting(packets: usize) -> Backlog {
    Backlog { now: Time::ZERO, packets, bytes: 125 * packets, idle_since: None }
}

#[test]
fn a_burst_raises_the_average_as_published() {
    // Section VI-A, equation 2: an empty queue that grows from 0 to L packets
    // with L arrivals.
    for (weight, packets) in [(0.001, 10), (0.002, 50), (0.1, 5)] {
        for unit in [Unit::Packets, Unit::Bytes] {
            let mut red = state(Red { unit, weight, ..Red::default() });
            for k in 1..=packets {
                red.sample(&waiting(k));
            }
            let l = packets as f64;
            let published = l + 1.0 + (libm::pow(1.0 - weight, l + 1.0) - 1.0) / weight;
            let scale = if unit == Unit::Bytes { 125.0 } else { 1.0 };
            near("average", red.average / scale, published, 1e-9);
        }
    }
}

#[test]
fn idle_time_counts_as_small_packets() {
    let mut red = state(Red { weight: 0.01, packet: 125, ..Red::default() });
    red.average = 10.0;
    let idle = |ms: u64| Backlog {
        now: Time::from_millis(100 + ms),
        packets: 0,
        bytes: 0,
        idle_since: Some(Time::from_millis(100)),
    };
    red.sample(&idle(0));
    near("at once", red.average, 10.0, 1e-12);
    red.sample(&idle(30));
    near("after 30 packets' time", red.average, 10.0 * libm::pow(0.99, 30.0), 1e-9);
}

#[test]
fn chosen_packets_are_uniformly_spaced_as_published() {
    const CHOSEN: u64 = 40_000;
    // 1/p_b whole, so that the distances are exactly 1 … 1/p_b.
    for most in [2u64, 10, 50] {
        let share = 1.0 / most as f64;
        let mut red = state(Red::default());
        let mut distances = vec![0u64; most as usize + 1];
        let (mut since, mut sum) = (0, 0);
        while distances.iter().sum::<u64>() < CHOSEN {
            since += 1;
            if red.chosen(share) {
                distances[since as usize] += 1;
                (sum, since) = (sum + since, 0);
            }
        }
        // E[X] = 1/(2p) + 1/2, and Var[X] = (1/p² - 1)/12.
        let n = CHOSEN as f64;
        let mean = 0.5 / share + 0.5;
        let sigma = ((1.0 / (share * share) - 1.0) / 12.0 / n).sqrt();
        near("mean distance", sum as f64 / n, mean, 4.0 * sigma);
        for (distance, &count) in distances.iter().enumerate().skip(1) {
            let sigma = (n * share * (1.0 - share)).sqrt();
            near(&format!("{distance} of {most}"), count as f64, n * share, 4.5 * sigma);
        }
    }
}

#[test]
fn the_share_rises_from_min_to_max_and_beyond_if_gentle() {
    let plain = Red { max_p: 0.1, ..Red::default() };
    let gentle = Red { gentle: true, ..plain };
    for (average, share) in [(4.9, 0.0), (5.0, 0.0), (10.0, 0.05), (14.0, 0.09)] {
        near("share", plain.share(average).unwrap(), share, 1e-12);
        assert_eq!(plain.share(average), gentle.share(average));
    }
    assert_eq!(plain.share(15.0), None);
    for (average, share) in [(15.0, 0.1), (22.5, 0.55), (29.7, 0.982)] {
        near("gentle share", gentle.share(average).unwrap(), share, 1e-12);
    }
    assert_eq!(gentle.share(30.0), None);
}

/// Offers equal packets at `load` times the rate for `seconds`; returns the link and the mean
/// waiting time in packets.
fn overload(red: Red, load: f64, seconds: u64, ecn: Ecn) -> (Impairment, f64) {
    let model = LinkModel { rate: Some(RATE), queue: Queue::Red(red), ..LinkModel::default() };
    let mut link = Impairment::new(model, 3, 0).unwrap();
    let n = (seconds as f64 * 1_000.0 * load) as u64;
    let (mut waited, mut delivered) = (0.0, 0.0);
    for k in 0..n {
        let now = Time::from_nanos((k as f64 * 1e6 / load) as u64);
        if let PacketFate::Deliver(at) = link.offer_ecn(now, 125, &mut ecn.clone()) {
            // The average needs time to settle.
            if k > n / 10 {
                waited += at.since(now).as_secs_f64() * 1e3 - 1.0;
                delivered += 1.0;
            }
        }
    }
    (link, waited / delivered)
}

#[test]
fn under_steady_overload_the_queue_settles_where_the_formula_says() {
    // The excess must be dropped: 1 - 1/load. By the mean distance, RED chooses 2 p_b / (1 + p_b)
    // of all packets, which gives p_b and with it the average.
    for load in [1.005, 1.01, 1.02] {
        let red = Red::default();
        let (link, queue) = overload(red, load, 1_000, Ecn::NotCapable);
        let l = link.ledger();
        let excess = 1.0 - 1.0 / load;
        near(
            "early drops",
            l.early_dropped.packets as f64 / l.offered.packets as f64,
            excess,
            4e-4,
        );
        assert_eq!(l.forced_dropped().packets, 0, "at {load}");
        let share = excess / (2.0 - excess);
        let average = red.min + (red.max - red.min) * share / red.max_p;
        // On average, half of the packet in transmission remains to be sent.
        near(&format!("wait at {load}"), queue, average + 0.5, 0.1);
    }
}

#[test]
fn far_too_much_is_dropped_by_force_and_gently_by_chance() {
    let (link, queue) = overload(Red::default(), 1.5, 100, Ecn::NotCapable);
    // Two packets out of three fit; at most 2 max_p of them are chosen at random.
    let l = link.ledger();
    near("drops", l.queue_dropped.packets as f64 / l.offered.packets as f64, 1.0 / 3.0, 0.01);
    assert!(l.forced_dropped().packets > 8 * l.early_dropped.packets, "{l:?}");
    near("the wait stays about max", queue, 15.0, 1.0);

    let (link, queue) = overload(Red { gentle: true, ..Red::default() }, 1.5, 100, Ecn::NotCapable);
    let l = link.ledger();
    near("drops", l.queue_dropped.packets as f64 / l.offered.packets as f64, 1.0 / 3.0, 0.01);
    assert!(l.early_dropped.packets > 8 * l.forced_dropped().packets, "{l:?}");
    // 2 p_b / (1 + p_b) = 1/3 at p_b = 0.2, a little above max.
    near("wait", queue, 15.0 * (1.0 + (0.2 - 0.02) / 0.98) + 0.5, 0.1);
}

#[test]
fn what_can_be_marked_is_marked_and_stays() {
    let marking = Red { ecn: true, ..Red::default() };
    for ecn in [Ecn::Ect0, Ecn::Ect1] {
        // No sender slows down, so the average rises to max, where forced drops begin.
        let l = overload(marking, 1.01, 100, ecn).0.ledger();
        assert!(l.marked.packets > 500, "{l:?}");
        assert_eq!(l.early_dropped.packets, 0);
        assert!(l.forced_dropped().packets > 500, "{l:?}");
    }
    // Packets marked upstream are neither dropped nor counted again.
    let l = overload(marking, 1.01, 100, Ecn::Marked).0.ledger();
    assert_eq!((l.marked.packets, l.early_dropped.packets), (0, 0));
    let without = overload(marking, 1.01, 100, Ecn::NotCapable).0.ledger();
    assert_eq!(without, overload(Red::default(), 1.01, 100, Ecn::Ect0).0.ledger());
    assert_eq!(without.marked.packets, 0);
    assert!(without.early_dropped.packets > 500);

    // From max on, the random choice drops packets although it could mark them.
    let gentle = Red { gentle: true, ..marking };
    let mut red = state(gentle);
    red.average = 29.0;
    let refused = (0..1_000).filter(|_| {
        red.average = 29.0;
        red.admit(125, &waiting(29), &mut Ecn::Ect0.clone()) == Err(Rejection::Early)
    });
    assert!(refused.count() > 900);
}

#[test]
fn the_buffer_has_an_end_all_the_same() {
    // A slowly moving average admits a sudden burst of 200, as far as there is room.
    let model = LinkModel {
        rate: Some(RATE),
        queue: Queue::Red(Red { limit: 50, ..Red::default() }),
        loss: Loss::None,
        delay: Duration::ZERO,
        ..LinkModel::default()
    };
    let mut link = Impairment::new(model, 1, 0).unwrap();
    let full = (0..200).filter(|_| link.offer(Time::ZERO, 125) == PacketFate::Drop(Cause::Queue));
    assert!(full.count() >= 149);
    let l = link.ledger();
    assert!(l.delivered.packets <= 51 && l.forced_dropped().packets > 140, "{l:?}");
}
