//! Exchanges worked out by hand, with windows of zero slots wherever randomness would change the
//! result.

use super::{arrivals, cell, cell_of, down, drain, table, up, us};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::wifi::edca::{Access, DRAFT, STATION_2005};
use trunkline_net::wifi::{Cell, Config, Lost, MsduOutcome};

/// 22 + 8·1,538 bits are 86 symbols: 20 + 86·4 = 364 µs. Then SIFS 16, the acknowledgement 28, AIFS
/// 16 + 7·9 = 79, and the next frame without backoff.
#[test]
fn a_frame_of_1500_bytes() {
    let mut cell = cell(1, table(7, 0, 0));
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 1)).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 2)).unwrap();
    let second = 364 + 16 + 28 + 79 + 364;
    assert_eq!(arrivals(&mut cell, us(5_000)), [(1, 364), (2, second)]);
    assert_eq!(cell.queued(), 0);
    // Each exchange keeps the medium busy for 364 + 16 + 28.
    assert_eq!(cell.counters().busy, Duration::from_micros(2 * 408));
    assert_eq!(cell.next_timeout(), Time::NEVER);
}

/// 22 + 8·238 bits are 14 symbols: 76 µs. AIFSN 2: 34 µs.
#[test]
fn a_frame_of_200_bytes() {
    let mut cell = cell(1, table(2, 0, 0));
    cell.enqueue(Time::ZERO, &up(0, 6, 200, 1)).unwrap();
    cell.enqueue(Time::ZERO, &up(0, 6, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(5_000)), [(1, 76), (2, 76 + 44 + 34 + 76)]);
}

/// The frame, 50 µs until its sender gives up, AIFS 79, and the frame again.
#[test]
fn a_lost_frame_comes_again_after_the_timeout() {
    let mut cell = cell(1, table(7, 0, 0));
    cell.set_bit_error_rate(Time::ZERO, 0, 1.0).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 1)).unwrap();
    assert_eq!(cell.advance(us(364)), None);
    cell.set_bit_error_rate(us(400), 0, 0.0).unwrap();
    assert_eq!(arrivals(&mut cell, us(5_000)), [(1, 364 + 50 + 79 + 364)]);
    let counters = cell.counters();
    assert_eq!((counters.contended, counters.damaged), (2, 1));
}

/// Seven frames and timeouts, with an AIFS between them.
#[test]
fn the_seventh_attempt_is_the_last() {
    let mut cell = cell(1, table(7, 0, 0));
    cell.set_bit_error_rate(Time::ZERO, 0, 1.0).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 1)).unwrap();
    let dropped = 7 * (364 + 50) + 6 * 79;
    assert_eq!(drain(&mut cell, us(9_000)), [(1, dropped, Err(Lost::RetryLimit))]);
    assert_eq!(cell.counters().contended, 7);
}

/// The acknowledgement is damaged: its sender learns of this when it ends, at 408 µs, waits for an
/// AIFS and retransmits the packet that arrived at 364.
#[test]
fn a_lost_acknowledgement_repeats_what_has_arrived() {
    let mut cell = cell(1, table(7, 0, 0));
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 1)).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 1, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(380)), [(1, 364)]);
    cell.set_bit_error_rate(us(380), 0, 1.0).unwrap();
    assert_eq!(cell.advance(us(450)), None);
    cell.set_bit_error_rate(us(450), 0, 0.0).unwrap();
    let again = 408 + 79 + 408;
    assert_eq!(arrivals(&mut cell, us(5_000)), [(2, again + 79 + 76)]);
}

/// A packet that arrives while the medium is idle waits for the next multiple of 9 µs; one that
/// arrives in the AIFS waits for its end.
#[test]
fn an_idle_medium_is_taken_at_the_next_slot() {
    let mut cell = cell(2, table(2, 0, 0));
    cell.enqueue(us(1_000), &down(0, 6, 200, 1)).unwrap();
    // 112·9 = 1,008. Acknowledged at 1,008 + 120 = 1,128.
    assert_eq!(arrivals(&mut cell, us(1_130)), [(1, 1_008 + 76)]);
    cell.enqueue(us(1_130), &up(1, 6, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(1_300)), [(2, 1_128 + 34 + 76)]);
}

/// Slots after the AIFS of the first exchange at which the second of two packets is sent, where the
/// second arrives at `second` µs. With CW 15, for 4,000 seeds.
fn begins(second: u64, other: u16) -> [u32; 17] {
    let config = Config {
        stations: 2,
        station: table(2, 15, 1_023),
        access_point: table(2, 15, 1_023),
        ..Config::default()
    };
    let mut slots = [0; 17];
    for seed in 0..4_000 {
        let mut cell = Cell::new(config, seed, 0).unwrap();
        cell.enqueue(Time::ZERO, &up(0, 0, 1_500, 1)).unwrap();
        cell.enqueue(us(second), &up(other, 0, 200, 2)).unwrap();
        let (_, arrived) = arrivals(&mut cell, us(5_000))[1];
        let waited = arrived - (364 + 44 + 34 + 76);
        assert_eq!(waited % 9, 0);
        slots[(waited / 9).min(16) as usize] += 1;
    }
    slots
}

/// 4,000 draws from 16: 250 each, with a standard deviation of 15.3.
fn is_uniform(slots: &[u32]) -> bool {
    slots.iter().all(|&n| n.abs_diff(250) < 65)
}

/// A sender draws a backoff after its frame, and so does a function that gets its first packet
/// while another sends; a backoff counts down whether or not there is a packet.
#[test]
fn backoffs_are_drawn_after_a_frame_and_when_the_medium_is_busy() {
    for (second, other) in [(0, 0), (100, 0), (100, 1), (400, 1)] {
        let slots = begins(second, other);
        assert!(is_uniform(&slots[..16]) && slots[16] == 0, "{slots:?}");
    }
    // In the AIFS the medium is idle: station 1 sends at its end.
    assert_eq!(begins(420, 1)[0], 4_000);
    // At 442 + 5·9 station 0 sends at once if its backoff was at most 5, or else when it ends.
    let slots = begins(442 + 5 * 9, 0);
    assert_eq!(slots[..5], [0; 5]);
    assert!(slots[5].abs_diff(6 * 250) < 130 && is_uniform(&slots[6..16]), "{slots:?}");
}

/// A TXOP of 1,504 µs: each exchange takes 408 and a SIFS before the next; the fourth would end at
/// 4·408 + 3·16 = 1,680.
#[test]
fn a_txop_is_for_what_fits() {
    let access = Access { txop_limit: Duration::from_micros(1_504), ..table(2, 0, 0)[0] };
    let mut cell = cell(1, [access; 4]);
    (0..4).for_each(|k| cell.enqueue(Time::ZERO, &down(0, 6, 1_500, k)).unwrap());
    let third = 2 * 424 + 364;
    let fourth = third + 44 + 34 + 364;
    assert_eq!(arrivals(&mut cell, us(5_000)), [(0, 364), (1, 788), (2, third), (3, fourth)]);
    assert_eq!(third, 1_212);
}

/// Voice and background start at the same time within the access point: voice goes first, 0 to 120
/// µs with its acknowledgement, and background fails without sending.
#[test]
fn voice_goes_first_within_a_station() {
    let mut cell = cell(2, table(2, 0, 0));
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 1)).unwrap();
    cell.enqueue(Time::ZERO, &down(1, 6, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(5_000)), [(2, 76), (1, 120 + 34 + 364)]);
    let counters = cell.counters();
    assert_eq!((counters.internal_collisions, counters.collisions), (1, 0));
    assert_eq!(counters.contended, 2, "the loser didn't send");
}

/// Against voice that always starts at the same boundary, background loses seven times, which is
/// the retry limit: at the start of the seventh voice frame.
#[test]
fn losing_within_a_station_counts_as_an_attempt() {
    let mut cell = cell(1, table(2, 0, 0));
    cell.enqueue(Time::ZERO, &down(0, 1, 1_500, 99)).unwrap();
    (0..10).for_each(|k| cell.enqueue(Time::ZERO, &down(0, 6, 200, k)).unwrap());
    let all = drain(&mut cell, us(5_000));
    let background = all.iter().find(|o| o.0 == 99).unwrap();
    assert_eq!(*background, (99, 6 * (120 + 34), Err(Lost::RetryLimit)));
    assert_eq!(all.iter().filter(|o| o.2.is_ok()).count(), 10);
}

/// Two stations start at once: both frames are lost, and the medium is busy for the longer one and
/// the timeout.
#[test]
fn stations_collide() {
    let mut cell = cell(2, table(2, 0, 0));
    cell.enqueue(Time::ZERO, &up(0, 6, 200, 1)).unwrap();
    cell.enqueue(Time::ZERO, &up(1, 6, 1_500, 2)).unwrap();
    let dropped = 7 * (364 + 50) + 6 * 34;
    let mut all = drain(&mut cell, us(9_000));
    all.sort_unstable_by_key(|o| o.0);
    assert_eq!(all, [1, 2].map(|k| (k, dropped, Err(Lost::RetryLimit))));
    assert_eq!((cell.counters().collisions, cell.counters().contended), (7, 14));
}

/// Throughput in Mbit/s where the access point always has a packet of 1,500 bytes.
fn alone(access: Access) -> f64 {
    let mut cell = cell(1, [access; 4]);
    let packet = down(0, 1, 1_500, 0);
    (0..3).for_each(|_| cell.enqueue(Time::ZERO, &packet).unwrap());
    let (end, mut arrived) = (Time::from_millis(20_000), 0u32);
    while let Some(MsduOutcome { at, .. }) = cell.advance(end) {
        arrived += 1;
        cell.enqueue(at, &packet).unwrap();
    }
    f64::from(arrived * 12_000) / 20e6
}

/// The capacity of 36 Mbit/s: 364 + 16 + 28 + 79 + 7.5·9 = 554.5 µs for 12,000 bits are 21.64
/// Mbit/s; with AIFSN 1 and CW 7, 364 + 44 + 25 + 31.5 = 464.5 µs are 25.83 Mbit/s. The mean
/// backoff of 40,000 draws is known to 9·4.6/200 = 0.2 µs.
#[test]
fn what_one_sender_carries() {
    let near = |measured: f64, expected: f64| {
        assert!((measured / expected - 1.0).abs() < 0.002, "{measured} and not {expected}");
    };
    near(alone(STATION_2005[0]), 21.641);
    near(alone(DRAFT[3]), 25.834);
}

/// With the standard's parameters, voice at the access point waits for at most one background frame
/// that began before, however much background traffic there is.
#[test]
fn voice_waits_for_one_background_frame() {
    let mut cell = cell_of(Config { stations: 4, ..Config::default() });
    let end = Time::from_millis(2_000);
    let fill = |cell: &mut Cell, now| {
        while cell.enqueue(now, &down(1, 1, 1_500, u64::MAX)).is_ok() {}
    };
    let (mut longest, mut sum, mut n) = (0, 0, 0);
    for k in 0..end.as_micros() / 20_000 {
        let now = us(k * 20_000 + 7 * k % 400);
        while let Some(outcome) = cell.advance(now) {
            if outcome.handle != u64::MAX {
                let took = outcome.at.as_micros() - outcome.handle;
                (longest, sum, n) = (longest.max(took), sum + took, n + 1);
            }
        }
        fill(&mut cell, now);
        cell.enqueue(now, &down(2, 6, 200, now.as_micros())).unwrap();
    }
    // The rest of an exchange, 408, AIFS 25, up to 3 slots, and the frame, 76.
    assert!(longest <= 408 + 25 + 27 + 76, "{longest} µs");
    assert!(sum / n > 100 && n >= 98, "{} µs of {n}: it does wait", sum / n);
}
