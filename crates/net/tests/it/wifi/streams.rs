//! Streams that end, and the fate of their packets.

use super::polls::{INTERVAL, polled, voice};
use super::{arrivals, cell, cell_of, down, drain, table, up, us};
use trunkline_base::Time;
use trunkline_net::wifi::{Config, Lost, NotAdmitted, SILENT_TURNS, StreamDirection};

/// A packet that waits for the PIFS contends from the next slot on: 9 µs, and 76.
#[test]
fn packets_of_a_removed_stream_contend() {
    let mut cell = polled(2, StreamDirection::Down);
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    assert!(cell.remove_stream(us(5), 0, 6));
    assert_eq!(arrivals(&mut cell, us(1_000)), [(1, 9 + 76)]);
    assert_eq!((cell.counters().polled, cell.counters().contended), (0, 1));
    // The other station's stream still exists, and this one's doesn't.
    cell.enqueue(us(1_000), &down(1, 6, 200, 2)).unwrap();
    assert_eq!(arrivals(&mut cell, us(2_000)).len(), 1);
    assert_eq!((cell.counters().polled, cell.counters().contended), (1, 1));
    for (station, priority) in [(0, 6), (1, 7), (2, 6), (u16::MAX, u8::MAX)] {
        assert!(!cell.remove_stream(us(2_000), station, priority));
    }
}

/// Packets of the station's other stream, queued between them, keep waiting for their turn.
#[test]
fn packets_of_other_streams_wait_on() {
    let mut cell = polled(1, StreamDirection::Down);
    cell.admit(Time::ZERO, super::polls::voice(0, StreamDirection::Down)).unwrap_err();
    let video = trunkline_net::wifi::Stream { priority: 5, ..voice(0, StreamDirection::Down) };
    cell.admit(Time::ZERO, video).unwrap();
    for (k, priority) in [(1, 5), (2, 6), (3, 5), (4, 6)] {
        cell.enqueue(Time::ZERO, &down(0, priority, 200, k)).unwrap();
    }
    assert!(cell.remove_stream(Time::ZERO, 0, 6));
    let all: Vec<u64> = arrivals(&mut cell, us(40_000)).into_iter().map(|a| a.0).collect();
    let of = |wanted: [u64; 2]| all.iter().filter(|k| wanted.contains(k)).eq(&wanted);
    assert!(all.len() == 4 && of([1, 3]) && of([2, 4]), "{all:?}");
    assert_eq!((cell.counters().polled, cell.counters().contended), (2, 2));
}

/// The turn continues as in `one_packet_each_way`, and no other follows.
#[test]
fn a_turn_under_way_ends_first() {
    let mut cell = polled(1, StreamDirection::Both);
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 1)).unwrap();
    cell.enqueue(Time::ZERO, &up(0, 6, 200, 2)).unwrap();
    assert_eq!(cell.advance(us(50)), None);
    // Removing twice is the same as once.
    assert!(cell.remove_stream(us(50), 0, 6) && cell.remove_stream(us(50), 0, 6));
    assert_eq!(cell.admit(us(50), voice(0, StreamDirection::Up)), Err(NotAdmitted::Twice(0, 6)));
    assert_eq!(arrivals(&mut cell, us(237)), [(1, 101), (2, 193)]);
    assert_eq!((cell.counters().polls, cell.next_timeout()), (1, Time::NEVER));
    // A later packet contends: 237 + 34, and 9 µs slots to 300.
    cell.enqueue(us(300), &up(0, 6, 200, 3)).unwrap();
    assert_eq!(arrivals(&mut cell, us(1_000)), [(3, 271 + 4 * 9 + 76)]);
    assert_eq!(cell.admit(us(1_000), voice(0, StreamDirection::Up)), Ok(()));
}

/// A queue of one packet, occupied by a contending one.
#[test]
fn what_has_no_room_is_lost() {
    let mut cell = cell_of(Config {
        stations: 1,
        access_point: table(2, 0, 0),
        queue: 1,
        ..Config::default()
    });
    cell.enqueue(Time::ZERO, &down(0, 7, 200, 1)).unwrap();
    cell.admit(Time::ZERO, voice(0, StreamDirection::Down)).unwrap();
    cell.enqueue(Time::ZERO, &down(0, 6, 200, 2)).unwrap();
    assert!(cell.remove_stream(us(10), 0, 6));
    assert_eq!(drain(&mut cell, us(1_000)), [(2, 10, Err(Lost::NoRoom)), (1, 76, Ok(()))]);
    assert_eq!(cell.queued(), 0);
}

/// The time of a removed stream goes to the next one requested.
#[test]
fn a_removed_stream_makes_room_for_another() {
    let mut cell = polled(46, StreamDirection::Both);
    let other = |cell: &mut trunkline_net::wifi::Cell| {
        cell.admit(
            Time::ZERO,
            trunkline_net::wifi::Stream { priority: 7, ..voice(3, StreamDirection::Both) },
        )
    };
    assert!(matches!(other(&mut cell), Err(NotAdmitted::NoTime { .. })));
    assert!(cell.remove_stream(Time::ZERO, 0, 6));
    assert_eq!(other(&mut cell), Ok(()));
}

/// A vanished station is polled 50 times, while the other one is polled in each interval. When it
/// returns, it contends.
#[test]
fn a_silent_station_is_polled_no_longer() {
    let mut cell = polled(2, StreamDirection::Both);
    cell.set_present(Time::ZERO, 1, false).unwrap();
    // Downlink packets that it never acknowledges contend after that, up to their retry limit.
    for k in 0..3 {
        cell.enqueue(Time::ZERO, &down(1, 6, 200, k)).unwrap();
    }
    let intervals = 200;
    let end = us(INTERVAL * intervals - 1_000);
    let lost = drain(&mut cell, end);
    assert_eq!(lost.len(), 3);
    assert!(lost.iter().all(|o| o.2 == Err(Lost::RetryLimit)));
    let counters = cell.counters();
    assert_eq!(counters.polls, intervals + u64::from(SILENT_TURNS));
    assert_eq!(counters.silenced, 1);
    cell.set_present(end, 1, true).unwrap();
    cell.enqueue(end, &up(1, 6, 200, 9)).unwrap();
    assert_eq!(arrivals(&mut cell, us(INTERVAL * intervals))[0].0, 9);
}

/// A stream to a silent station ends as well: 50 turns with packets, of which seven are given up,
/// and the others contend. Earlier acknowledged turns don't count.
#[test]
fn a_stream_to_a_silent_station_ends() {
    let mut cell = polled(1, StreamDirection::Down);
    let away = 100;
    let (mut polled, mut silenced) = (0, None);
    for k in 0..300 {
        let now = us(20_000 * k);
        if k == away {
            cell.set_present(now, 0, false).unwrap();
            polled = cell.counters().polled;
        }
        cell.enqueue(now, &down(0, 6, 200, k)).unwrap();
        drain(&mut cell, us(20_000 * k + 19_999));
        silenced = silenced.or((cell.counters().silenced > 0).then_some(k));
    }
    assert_eq!(polled, away);
    let counters = cell.counters();
    assert_eq!((counters.polled, counters.silenced), (polled + u64::from(SILENT_TURNS), 1));
    assert!(silenced.is_some_and(|k| k < away + u64::from(SILENT_TURNS)), "{silenced:?}");
    assert_eq!(cell.queued(), 0);
}

/// 240 bits, each wrong with probability 0.001, arrive with 0.787, so 38 of 100 polls aren't
/// answered, and ten in a row before or after an absence of forty occur once in 16,000.
#[test]
fn errors_and_short_absences_end_no_stream() {
    let mut cell = polled(1, StreamDirection::Both);
    cell.set_bit_error_rate(Time::ZERO, 0, 1e-3).unwrap();
    let away = us(INTERVAL * 100);
    assert_eq!(drain(&mut cell, away), []);
    cell.set_present(away, 0, false).unwrap();
    let back = us(INTERVAL * (90 + u64::from(SILENT_TURNS)));
    assert_eq!(drain(&mut cell, back), []);
    cell.set_present(back, 0, true).unwrap();
    assert_eq!(drain(&mut cell, us(INTERVAL * 1_000 - 1_000)), []);
    let counters = cell.counters();
    assert!(counters.damaged > 200, "{counters:?}");
    assert_eq!((counters.polls, counters.silenced), (1_000, 0));
}

/// If all stations are silent, nothing is polled and the cell sleeps.
#[test]
fn a_cell_of_silent_stations_sleeps() {
    let mut cell = cell(3, table(2, 0, 0));
    for station in 0..3 {
        cell.admit(Time::ZERO, voice(station, StreamDirection::Up)).unwrap();
        cell.set_present(Time::ZERO, station, false).unwrap();
    }
    assert_eq!(drain(&mut cell, Time::from_millis(60_000)), []);
    assert_eq!((cell.next_timeout(), cell.counters().silenced), (Time::NEVER, 3));
}
