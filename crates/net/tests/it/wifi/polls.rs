//! Polling turns, with their times worked out by hand.

use super::{arrivals, cell, down, drain, table, up, us};
use std::time::Duration;
use trunkline_base::{Bitrate, Time};
use trunkline_net::wifi::{Cell, Lost, NotAdmitted, Refusal, Stream, StreamDirection};

/// The service interval in µs: a sixth of a beacon interval, and less than 20 ms.
pub const INTERVAL: u64 = 102_400 / 6;

pub fn voice(station: u16, ways: StreamDirection) -> Stream {
    Stream {
        station,
        priority: 6,
        ways,
        mean_rate: Bitrate::from_bps(80_000),
        nominal: 200,
        maximum: 200,
        max_service_interval: Duration::from_millis(20),
    }
}

pub fn polled(stations: u16, ways: StreamDirection) -> Cell {
    let mut cell = cell(stations, table(2, 0, 0));
    (0..stations).for_each(|s| cell.admit(Time::ZERO, voice(s, ways)).unwrap());
    cell
}

/// A PIFS, 25 µs; data and poll, 76; a SIFS; data and acknowledgement, 76; a SIFS; the
/// acknowledgement, 28. The medium is idle at 237, and others wait for their AIFS.
#[test]
fn one_packet_each_way() {
    let mut cell = polled(2, StreamDirection::Both);
    cell.set_present(Time::ZERO, 1, false).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    cell.enqueue(Time::ZERO, &up(0, 6, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(200)), [(1, 25 + 76), (2, 101 + 16 + 76)]);
    let counters = cell.counters();
    assert_eq!((counters.polls, counters.polled, counters.piggybacked), (1, 2, 1));
    // The other station's turn begins a PIFS after the acknowledgement ends at 237, and the poll
    // takes 32. It doesn't answer, and after a PIFS the turns end.
    cell.enqueue(us(200), &down(0, 1, 200, 3)).unwrap();
    let idle = 237 + 25 + 32;
    assert_eq!(arrivals(&mut cell, us(1_000)), [(3, idle + 34 + 76)]);
    assert_eq!((cell.counters().polls, cell.counters().broken_turns), (2, 1));
}

/// 160 kbit/s are two packets in each interval. The frames are: down and poll, up and
/// acknowledgement, down and acknowledgement, up and acknowledgement, acknowledgement.
#[test]
fn acknowledgements_carry_data() {
    let mut cell = cell(1, table(2, 0, 0));
    let mean_rate = Bitrate::from_bps(160_000);
    cell.admit(Time::ZERO, Stream { mean_rate, ..voice(0, StreamDirection::Both) }).unwrap();
    for k in 0..3 {
        cell.enqueue(Time::ZERO, &down(0, 6, 200, k)).unwrap();
        cell.enqueue(Time::ZERO, &up(0, 6, 200, 10 + k)).unwrap();
    }
    // The turn has 2·2·136 + 48 = 592 µs from 25 on: a fifth data frame at 393 would end, with SIFS
    // and acknowledgement, at 377 + 136 = 513; a sixth at 469 + 136 = 605; there is no seventh.
    let at = |k: u64| 25 + 76 + k * 92;
    let expected = [0, 10, 1, 11, 2, 12].into_iter().zip((0..).map(at));
    assert_eq!(arrivals(&mut cell, us(700)), expected.collect::<Vec<_>>());
    let counters = cell.counters();
    assert_eq!((counters.polls, counters.polled, counters.piggybacked), (1, 6, 5));
}

/// A turn has 2·136 + 48 = 320 µs from 25 on, until 345. The second downlink packet would be
/// acknowledged at 193 + 136 = 329, the second uplink packet at 285 + 136 = 421.
#[test]
fn a_turn_is_for_what_fits() {
    let mut cell = polled(1, StreamDirection::Both);
    for k in 0..2 {
        cell.enqueue(Time::ZERO, &down(0, 6, 200, k)).unwrap();
        cell.enqueue(Time::ZERO, &up(0, 6, 200, 10 + k)).unwrap();
    }
    assert_eq!(arrivals(&mut cell, us(5_000)), [(0, 101), (10, 193), (1, 285)]);
    // The rest follows in the next interval, 102.4/6 ms after the first began, with a poll of 32.
    assert_eq!(arrivals(&mut cell, us(20_000)), [(11, INTERVAL + 32 + 16 + 76)]);
}

/// No packets: a poll, 32, SIFS, QoS Null, 32.
#[test]
fn polls_cost_time_without_packets_too() {
    let mut cell = polled(1, StreamDirection::Up);
    assert_eq!(drain(&mut cell, us(5_000)), []);
    assert_eq!(cell.counters().busy, Duration::from_micros(32 + 16 + 32));
    assert_eq!(cell.next_timeout().as_micros(), INTERVAL);
}

/// A downlink-only stream is not polled, and without packets nothing is sent.
#[test]
fn what_goes_down_needs_no_poll() {
    let mut cell = polled(2, StreamDirection::Down);
    assert_eq!(cell.next_timeout(), Time::NEVER);
    cell.enqueue(us(100), &down(0, 6, 200, 1)).unwrap();
    cell.enqueue(us(100), &down(1, 6, 200, 2)).unwrap();
    // 76, then SIFS, 28 and a SIFS after the station's frame.
    assert_eq!(arrivals(&mut cell, us(5_000)), [(1, 100 + 76), (2, 220 + 16 + 76)]);
    assert_eq!(cell.counters().polls, 0);
    assert_eq!(cell.next_timeout(), Time::NEVER);
    // Uplink packets contend.
    cell.enqueue(us(9_000), &up(0, 6, 200, 3)).unwrap();
    assert_eq!(arrivals(&mut cell, us(10_000)).len(), 1);
}

/// A frame of 1,500 bytes is on the air when the interval begins: polls start a PIFS after its
/// acknowledgement, before any AIFS ends.
#[test]
fn polls_wait_for_an_exchange_and_for_no_other() {
    let mut cell = polled(1, StreamDirection::Both);
    assert_eq!(drain(&mut cell, us(INTERVAL - 100)), []);
    cell.enqueue(us(INTERVAL - 66), &up(0, 1, 1_500, 1)).unwrap();
    cell.enqueue(us(INTERVAL - 60), &up(0, 1, 1_500, 2)).unwrap();
    cell.enqueue(us(INTERVAL - 60), &down(0, 6, 200, 3)).unwrap();
    let all = arrivals(&mut cell, us(INTERVAL + 2_000));
    let first = all[0].1;
    assert_eq!(all[1], (3, first + 44 + 25 + 76));
    // A QoS CF-Ack without data answers, 32: then an AIFS of 34 and the frame.
    assert_eq!(all[2], (2, all[1].1 + 16 + 32 + 34 + 364));
}

/// With AIFSN 1 and no backoff, a station starts at the same time as the polls: a frame and the
/// poll are lost, and the turn with them.
#[test]
fn a_station_that_waits_for_a_pifs_collides_with_the_poll() {
    let mut cell = cell(2, table(1, 0, 0));
    cell.admit(Time::ZERO, voice(0, StreamDirection::Both)).unwrap();
    assert_eq!(drain(&mut cell, us(INTERVAL - 100)), []);
    cell.enqueue(us(INTERVAL - 66), &up(1, 1, 1_500, 1)).unwrap();
    cell.enqueue(us(INTERVAL - 60), &up(1, 1, 1_500, 2)).unwrap();
    let all = arrivals(&mut cell, us(INTERVAL + 2_000));
    // Both begin 44 + 25 after the first has arrived; the frame's 364 is the longer. Then the
    // medium is idle, and after 25 the frame is sent again.
    assert_eq!(all[1], (2, all[0].1 + 69 + 364 + 25 + 364));
    assert_eq!((cell.counters().collisions, cell.counters().broken_turns), (1, 1));
}

/// The access point's own queues would start at that time, too: they wait, and that is no failed
/// attempt.
#[test]
fn the_access_point_polls_before_it_contends() {
    let mut cell = cell(1, table(1, 0, 0));
    cell.admit(Time::ZERO, voice(0, StreamDirection::Up)).unwrap();
    assert_eq!(drain(&mut cell, us(INTERVAL - 100)), []);
    for (k, priority) in [(1, 1), (2, 1), (3, 5)] {
        cell.enqueue(us(INTERVAL - 66), &down(0, priority, 1_500, k)).unwrap();
    }
    let first = arrivals(&mut cell, us(INTERVAL + 400));
    // Poll and QoS Null: 25 + 32 + 16 + 32 after the acknowledgement.
    let (_, at) = first[0];
    let lost = cell.counters().internal_collisions;
    let second = arrivals(&mut cell, us(at + 1_000));
    assert_eq!(second[0].1, at + 44 + 25 + 32 + 16 + 32 + 25 + 364);
    assert_eq!((cell.counters().collisions, cell.counters().broken_turns), (0, 0));
    // At the start, video preceded background, and does so again after the polls if it is there.
    assert_eq!((first[0].0, second[0].0, lost), (3, 1, 1));
}

/// The station vanishes while it answers, and returns at once: its packet is lost with it, the
/// answer isn't received, and the packet that it would have acknowledged is retransmitted.
#[test]
fn an_answer_dies_with_its_sender() {
    let mut cell = polled(1, StreamDirection::Both);
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    cell.enqueue(Time::ZERO, &up(0, 6, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(150)), [(1, 101)]);
    cell.set_present(us(150), 0, false).unwrap();
    cell.set_present(us(150), 0, true).unwrap();
    cell.enqueue(us(150), &up(0, 6, 200, 3)).unwrap();
    assert_eq!(drain(&mut cell, us(1_000)), [(2, 150, Err(Lost::Gone))]);
    assert_eq!((cell.counters().polls, cell.counters().broken_turns), (1, 1));
    // Data and poll, 76, SIFS, data and acknowledgement.
    assert_eq!(arrivals(&mut cell, us(20_000)), [(3, INTERVAL + 76 + 16 + 76)]);
    assert_eq!(cell.counters().polled, 4);
}

/// The station is away for 10 µs of the packet, or of its acknowledgement: the packet is
/// retransmitted an interval later, and has or has not arrived the first time.
#[test]
fn a_turn_breaks_when_its_station_is_away() {
    for (away, came) in [(50, INTERVAL + 76), (110, 101)] {
        let mut cell = polled(1, StreamDirection::Down);
        cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
        cell.set_present(us(away), 0, false).unwrap();
        cell.set_present(us(away + 10), 0, true).unwrap();
        assert_eq!(drain(&mut cell, us(20_000)), [(1, came, Ok(()))], "away at {away}");
        assert_eq!((cell.counters().polled, cell.counters().broken_turns), (2, 1));
    }
}

/// A packet that its station never acknowledges is sent in seven intervals.
#[test]
fn polled_packets_have_a_retry_limit() {
    let mut cell = polled(1, StreamDirection::Both);
    cell.set_present(Time::ZERO, 0, false).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    // The first interval's turn begins at 25, all others when they are due.
    let last = 6 * 17_066_666 / 1_000 + 76;
    assert_eq!(drain(&mut cell, us(200_000)), [(1, last, Err(Lost::RetryLimit))]);
}

/// A packet arrives in each of seven intervals, but its acknowledgement never does: an attempt each
/// time, but one arrival.
#[test]
fn lost_answers_are_failed_attempts() {
    let mut cell = polled(1, StreamDirection::Down);
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    let mut came = Vec::new();
    for k in 1..=7 {
        // The frame takes 76 µs, and the acknowledgement begins a SIFS later.
        let sent = cell.next_timeout() + Duration::from_micros(76 + 20);
        came.extend(arrivals(&mut cell, sent));
        cell.set_bit_error_rate(sent, 0, 1.0).unwrap();
        came.extend(arrivals(&mut cell, sent + Duration::from_micros(100)));
        cell.set_bit_error_rate(sent, 0, 0.0).unwrap();
        assert_eq!(cell.counters().polled, k);
    }
    assert_eq!((came, cell.next_timeout()), (vec![(1, 101)], Time::NEVER));
}

/// A further stream does not change an interval that has begun.
#[test]
fn streams_come_while_others_are_served() {
    let mut cell = polled(2, StreamDirection::Both);
    assert_eq!(drain(&mut cell, us(5_000)), []);
    cell.admit(us(5_000), Stream { priority: 7, ..voice(0, StreamDirection::Up) }).unwrap();
    assert_eq!(cell.next_timeout().as_micros(), INTERVAL);
}

#[test]
fn what_is_not_admitted() {
    let mut cell = cell(60, table(2, 0, 0));
    let mut admit = |stream| cell.admit(Time::ZERO, stream);
    let good = voice(0, StreamDirection::Both);
    assert_eq!(admit(Stream { station: 60, ..good }), Err(NotAdmitted::NoStation(60)));
    assert_eq!(admit(Stream { priority: 8, ..good }), Err(NotAdmitted::NoPriority(8)));
    for (nominal, maximum) in [(0, 200), (201, 200), (200, 2_297)] {
        let expected = Err(NotAdmitted::Size { nominal, maximum });
        assert_eq!(admit(Stream { nominal, maximum, ..good }), expected);
    }
    let none = Bitrate::from_bps(0);
    assert_eq!(admit(Stream { mean_rate: none, ..good }), Err(NotAdmitted::Rate));
    let short = Duration::from_micros(999);
    let expected = Err(NotAdmitted::Interval(short));
    assert_eq!(admit(Stream { max_service_interval: short, ..good }), expected);
    let greedy = Stream { mean_rate: Bitrate::from_bps(u64::MAX), ..good };
    assert!(matches!(admit(greedy), Err(NotAdmitted::NoTime { .. })));
    assert_eq!(admit(good), Ok(()));
    assert_eq!(admit(good), Err(NotAdmitted::Twice(0, 6)));
    // 46 of these fit; see the scheduler's unit test.
    let admitted = (1..60).take_while(|&s| admit(voice(s, StreamDirection::Both)).is_ok()).count();
    assert_eq!(admitted, 45);
    // A packet for which the turn might never have room.
    let long = cell.enqueue(Time::ZERO, &down(0, 6, 201, 1));
    assert_eq!(long, Err(Refusal::TooLong(201, 200)));
}

/// 46 calls in both directions, each with a packet every 20 ms: each packet arrives within a
/// service interval plus the time of the interval's turns.
#[test]
fn as_many_calls_as_are_admitted_are_served() {
    let mut cell = polled(46, StreamDirection::Both);
    let (mut longest, mut arrived) = (0, 0);
    for ms in 0..2_000u64 {
        let now = Time::from_millis(ms);
        for (handle, at) in arrivals(&mut cell, now) {
            longest = longest.max(at - handle);
            arrived += 1;
        }
        for station in (0..46).filter(|&s| u64::from(s) % 20 == ms % 20) {
            cell.enqueue(now, &down(station, 6, 200, now.as_micros())).unwrap();
            cell.enqueue(now, &up(station, 6, 200, now.as_micros())).unwrap();
        }
    }
    assert!(arrived > 2 * 46 * 98, "{arrived}");
    let bound = INTERVAL + 46 * 320;
    assert!(longest <= bound, "{longest} µs, and at most {bound}");
}
