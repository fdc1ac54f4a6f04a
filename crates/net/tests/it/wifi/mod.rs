//! The 802.11e cell: times worked out by hand, saturation by Bianchi's model, polling turns,
//! streams that end, and properties for any traffic.

mod exchange;
mod naive;
mod polls;
mod properties;
mod saturation;
mod streams;
mod trouble;

use trunkline_base::Time;
use trunkline_net::wifi::edca::{Access, AccessTable};
use trunkline_net::wifi::{Cell, Config, Direction, Lost, Msdu, MsduOutcome};

fn us(n: u64) -> Time {
    Time::from_micros(n)
}

/// A table with four equal categories, one packet at a time.
fn table(aifsn: u8, cw_min: u16, cw_max: u16) -> AccessTable {
    [Access { aifsn, cw_min, cw_max, txop_limit: std::time::Duration::ZERO }; 4]
}

/// A cell in which all nodes use this table.
fn cell(stations: u16, table: AccessTable) -> Cell {
    cell_of(Config { stations, station: table, access_point: table, ..Config::default() })
}

fn cell_of(config: Config) -> Cell {
    Cell::new(config, 1, 0).unwrap()
}

fn down(station: u16, priority: u8, bytes: u32, handle: u64) -> Msdu {
    Msdu { station, way: Direction::Down, priority, bytes, handle }
}

fn up(station: u16, priority: u8, bytes: u32, handle: u64) -> Msdu {
    Msdu { way: Direction::Up, ..down(station, priority, bytes, handle) }
}

/// All outcomes up to `end`: handle, µs and result.
fn drain(cell: &mut Cell, end: Time) -> Vec<(u64, u64, Result<(), Lost>)> {
    let outcomes = std::iter::from_fn(|| cell.advance(end));
    outcomes.map(|MsduOutcome { at, handle, result }| (handle, at.as_micros(), result)).collect()
}

/// As [`drain`], where every packet arrives.
fn arrivals(cell: &mut Cell, end: Time) -> Vec<(u64, u64)> {
    let all = drain(cell, end).into_iter();
    all.inspect(|o| assert_eq!(o.2, Ok(()), "{o:?}")).map(|o| (o.0, o.1)).collect()
}
