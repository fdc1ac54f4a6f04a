//! Properties for any traffic.

use super::us;
use proptest::prelude::*;
use std::time::Duration;
use trunkline_base::{Bitrate, Time};
use trunkline_net::wifi::edca::{ACCESS_POINT_2005, DRAFT, STATION_2005};
use trunkline_net::wifi::{Cell, Config, Direction, Msdu, MsduOutcome, Stream, StreamDirection};

const STATIONS: u16 = 4;

/// A driver's action, and its delay in µs after the previous one.
#[derive(Clone, Debug)]
enum Does {
    Sends { station: u16, up: bool, priority: u8, bytes: u32 },
    Present(u16, bool),
    Errors(u16, f64),
    Admits { station: u16, priority: u8, ways: StreamDirection },
    Removes { station: u16, priority: u8 },
    Looks,
}

fn does() -> impl Strategy<Value = Does> {
    let station = 0..STATIONS;
    let sends = (station.clone(), any::<bool>(), 0u8..8, 1u32..2_296);
    let sends = sends.prop_map(|(station, up, priority, bytes)| Does::Sends {
        station,
        up,
        priority,
        bytes,
    });
    let errors = prop::sample::select(vec![0.0, 1e-5, 1e-4, 1.0]);
    let ways = prop::sample::select(vec![
        StreamDirection::Down,
        StreamDirection::Up,
        StreamDirection::Both,
    ]);
    let admits = (station.clone(), 0u8..8, ways);
    let removes = (station.clone(), 0u8..8);
    prop_oneof![
        20 => sends,
        1 => (station.clone(), any::<bool>()).prop_map(|(s, there)| Does::Present(s, there)),
        1 => (station, errors).prop_map(|(s, rate)| Does::Errors(s, rate)),
        1 => admits.prop_map(|(station, priority, ways)| Does::Admits { station, priority, ways }),
        1 => removes.prop_map(|(station, priority)| Does::Removes { station, priority }),
        5 => Just(Does::Looks),
    ]
}

fn script() -> impl Strategy<Value = Vec<(u64, Does)>> {
    prop::collection::vec((prop_oneof![3 => 0u64..50, 1 => 0u64..3_000], does()), 1..400)
}

fn config() -> impl Strategy<Value = Config> {
    let tables = [STATION_2005, ACCESS_POINT_2005, DRAFT].to_vec();
    let table = prop::sample::select(tables);
    let tables = (table.clone(), table);
    (tables, 1usize..60, 1u8..8).prop_map(|((station, access_point), queue, attempts)| Config {
        stations: STATIONS,
        station,
        access_point,
        queue,
        attempts,
        bit_error_rate: 0.0,
    })
}

/// Number of accepted packets, and their outcomes until `end`; checks on the way that every packet
/// is accounted for.
fn play(
    cell: &mut Cell,
    script: &[(u64, Does)],
    end: Duration,
) -> Result<(u64, Vec<MsduOutcome>), TestCaseError> {
    play_late(cell, script, &[0], end)
}

/// Plays as [`play`] does, with a driver whose clock lags by `lags` in µs, one after the other, for
/// every action except looking.
fn play_late(
    cell: &mut Cell,
    script: &[(u64, Does)],
    lags: &[u64],
    end: Duration,
) -> Result<(u64, Vec<MsduOutcome>), TestCaseError> {
    let (mut present, mut taken, mut outcomes) = (Time::ZERO, 0u64, Vec::new());
    for ((gap, what), lag) in script.iter().zip(lags.iter().cycle()) {
        present += Duration::from_micros(*gap);
        let now = present - Duration::from_micros(*lag);
        match *what {
            Does::Sends { station, up, priority, bytes } => {
                let way = if up { Direction::Up } else { Direction::Down };
                let msdu = Msdu { station, way, priority, bytes, handle: taken };
                taken += u64::from(cell.enqueue(now, &msdu).is_ok());
            }
            Does::Present(station, there) => cell.set_present(now, station, there).unwrap(),
            Does::Errors(station, rate) => cell.set_bit_error_rate(now, station, rate).unwrap(),
            Does::Admits { station, priority, ways } => {
                // A stream that isn't admitted contends.
                let _ = cell.admit(
                    now,
                    Stream {
                        station,
                        priority,
                        ways,
                        mean_rate: Bitrate::from_bps(80_000),
                        nominal: 200,
                        maximum: 1_500,
                        max_service_interval: Duration::from_millis(10),
                    },
                );
            }
            Does::Removes { station, priority } => {
                let _ = cell.remove_stream(now, station, priority);
            }
            Does::Looks => {
                outcomes.extend(std::iter::from_fn(|| cell.advance(present)));
                prop_assert_eq!(taken, (outcomes.len() + cell.queued()) as u64);
            }
        }
    }
    // A station that receives no poll keeps its packets for as long as that lasts.
    (0..STATIONS).for_each(|s| cell.set_bit_error_rate(present, s, 0.0).unwrap());
    outcomes.extend(std::iter::from_fn(|| cell.advance(present + end)));
    Ok((taken, outcomes))
}

proptest! {
    /// sent = delivered + dropped + queued, each packet once, in the order of time; and in the end
    /// nothing is stuck, although the driver's clock goes back.
    #[test]
    fn every_packet_has_one_end(
        config in config(),
        seed in any::<u64>(),
        script in script(),
        lags in prop::collection::vec(prop_oneof![2 => Just(0), 1 => 0u64..5_000], 1..100),
    ) {
        let mut cell = Cell::new(config, seed, 0).unwrap();
        let (taken, outcomes) = play_late(&mut cell, &script, &lags, Duration::from_secs(30))?;
        prop_assert_eq!(cell.queued(), 0);
        prop_assert!(outcomes.is_sorted_by_key(|o| o.at));
        let mut handles: Vec<u64> = outcomes.iter().map(|o| o.handle).collect();
        handles.sort_unstable();
        prop_assert!(handles.into_iter().eq(0..taken));
    }

    #[test]
    fn the_same_seed_gives_the_same_outcomes(
        config in config(), seed in any::<u64>(), script in script(), step in 1u64..5_000,
    ) {
        let cell = || Cell::new(config, seed, 0).unwrap();
        let mut first = cell();
        let (_, outcomes) = play(&mut first, &script, Duration::from_secs(1))?;
        let mut second = cell();
        prop_assert_eq!(&outcomes, &play(&mut second, &script, Duration::from_secs(1))?.1);
        prop_assert_eq!(first.counters(), second.counters());
        // The number of looks makes no difference.
        let looks: Vec<_> = script.iter().flat_map(|(gap, what)| {
            // Looking at the same time is looking before the action at that time.
            let looks = gap.saturating_sub(1) / step;
            let look = (0..looks).map(move |_| (step, Does::Looks));
            look.chain([(gap - looks * step, what.clone())])
        }).collect();
        let mut third = cell();
        prop_assert_eq!(&outcomes, &play(&mut third, &looks, Duration::from_secs(1))?.1);
    }

    /// The medium is never busy for longer than the time that has passed.
    #[test]
    fn time_is_spent_once(config in config(), seed in any::<u64>(), script in script()) {
        let mut cell = Cell::new(config, seed, 0).unwrap();
        play(&mut cell, &script, Duration::from_secs(1))?;
        let lasted: u64 = script.iter().map(|(gap, _)| gap).sum();
        let end = us(lasted) + Duration::from_secs(1);
        prop_assert!(cell.counters().busy <= end.since(Time::ZERO));
    }
}

/// A stream that is removed during a turn can be admitted again after it, whether or not the cell
/// was advanced meanwhile.
#[test]
fn what_was_removed_may_be_admitted_again() {
    let stream = Stream {
        station: 0,
        priority: 6,
        ways: StreamDirection::Both,
        mean_rate: Bitrate::from_bps(80_000),
        nominal: 200,
        maximum: 1_500,
        max_service_interval: Duration::from_millis(10),
    };
    for removed in 0..200 {
        for looks in [true, false] {
            let config = Config { stations: STATIONS, ..Config::default() };
            let mut cell = Cell::new(config, 1, 0).unwrap();
            cell.admit(us(0), stream).unwrap();
            assert!(cell.remove_stream(us(removed), 0, 6));
            if looks {
                assert_eq!(cell.advance(us(removed + 5_000)), None);
            }
            assert_eq!(cell.admit(us(removed + 5_000), stream), Ok(()), "{removed}, {looks}");
        }
    }
}
