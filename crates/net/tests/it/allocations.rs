//! A frame's passage through an 802.11e cell allocates nothing, once the queues have been full.

use trunkline_base::{Bitrate, Time};
use trunkline_net::wifi::{Cell, Config, Counters, Direction, Msdu, Stream, StreamDirection};

const STATIONS: u16 = 4;
/// A packet of each category, and those of streams.
const PACKETS: [(Direction, u8); 10] = [
    (Direction::Down, 0),
    (Direction::Down, 1),
    (Direction::Down, 5),
    (Direction::Down, 6),
    (Direction::Down, 7),
    (Direction::Up, 0),
    (Direction::Up, 1),
    (Direction::Up, 5),
    (Direction::Up, 6),
    (Direction::Up, 7),
];

/// Offers, in each millisecond, one of each packet for a station in turn, which is more than fits;
/// returns how many were accepted, and how many arrived or were lost.
fn play(cell: &mut Cell, ms: core::ops::Range<u64>) -> (u64, u64) {
    let (mut taken, mut ended) = (0, 0);
    for now in ms {
        let station = (now % u64::from(STATIONS)) as u16;
        let now = Time::from_millis(now);
        while cell.advance(now).is_some() {
            ended += 1;
        }
        for (way, priority) in PACKETS {
            let msdu = Msdu { station, way, priority, bytes: 200, handle: 0 };
            taken += u64::from(cell.enqueue(now, &msdu).is_ok());
        }
    }
    (taken, ended)
}

/// Fills each queue completely, so that all outcomes wait at once.
fn fill(cell: &mut Cell) {
    for station in 0..STATIONS {
        for (way, priority) in PACKETS {
            let msdu = Msdu { station, way, priority, bytes: 200, handle: 0 };
            while cell.enqueue(Time::ZERO, &msdu).is_ok() {}
        }
    }
    let last = Msdu { station: 0, way: Direction::Down, priority: 0, bytes: 200, handle: 0 };
    cell.enqueue(Time::from_millis(5_000), &last).unwrap();
}

#[test]
fn a_frame_costs_no_allocation() {
    let config = Config { stations: STATIONS, bit_error_rate: 1e-5, ..Config::default() };
    let mut cell = Cell::new(config, 1, 0).unwrap();
    for station in 0..STATIONS {
        let stream = Stream {
            station,
            priority: 6,
            ways: StreamDirection::Both,
            mean_rate: Bitrate::from_bps(80_000),
            nominal: 200,
            maximum: 200,
            max_service_interval: core::time::Duration::from_millis(20),
        };
        cell.admit(Time::ZERO, stream).unwrap();
    }
    fill(&mut cell);
    play(&mut cell, 5_000..6_000);
    let before = cell.counters();
    let (mut taken, mut ended) = (0, 0);
    let counted = allocation_counter::measure(|| (taken, ended) = play(&mut cell, 6_000..10_000));
    // Otherwise nothing was measured.
    let Counters { contended, collisions, internal_collisions, damaged, polled, .. } =
        cell.counters();
    assert!(taken > 5_000 && ended > 5_000, "{taken} taken, {ended} ended");
    assert!(contended > before.contended && polled > before.polled);
    assert!(collisions > before.collisions && damaged > before.damaged);
    assert!(internal_collisions > before.internal_collisions);
    assert_eq!(counted.count_total, 0);
    let seen = allocation_counter::measure(|| drop(core::hint::black_box(Box::new(1))));
    assert_eq!(seen.count_total, 1, "the counter counts");
}
