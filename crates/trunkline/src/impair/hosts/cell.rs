//! Cells of IEEE 802.11e between hosts.

use super::config::{EdgeEnd, Spots, Wrong, find};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::num::NonZeroU8;
use toml::Spanned;
use trunkline_net::wifi::edca::{ACCESS_POINT_2005, DRAFT, STATION_2005};
use trunkline_net::wifi::{self, Config, InvalidCell};

/// Largest IP packet in a cell, in bytes.
pub const MTU: u16 = 1_500;

/// An access point and its stations, which share one radio channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Name of the cell in the ledger, where it precedes the station's.
    pub name: String,
    /// The host or router that is the access point.
    pub access_point: EdgeEnd,
    /// The hosts or routers that are stations, and their names, in the order of the file.
    pub stations: Vec<(EdgeEnd, String)>,
    /// Channel access and other parameters of the cell.
    pub config: Config,
}

/// A cell as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellText {
    pub name: Option<Spanned<String>>,
    access_point: Spanned<String>,
    stations: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    parameters: Parameters,
    queue: Option<Spanned<usize>>,
    attempts: Option<Spanned<NonZeroU8>>,
    bit_error_rate: Option<Spanned<f64>>,
}

/// Contention parameters of the queues.
#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "kebab-case")]
enum Parameters {
    /// The defaults of IEEE 802.11e-2005.
    #[default]
    Standard,
    /// The defaults of the standard's drafts.
    Draft,
}

fn value<T: Copy>(key: Option<&Spanned<T>>, default: T) -> T {
    key.map_or(default, |key| *key.get_ref())
}

impl Cell {
    /// Checks the text of a cell, which begins at position `at` of the file.
    pub fn new(text: CellText, (name, at): (String, usize), spots: &Spots) -> Result<Cell, Wrong> {
        let access_point = find(spots, &text.access_point)?;
        let mut seen = BTreeSet::from([access_point]);
        let station = |station: &Spanned<String>| {
            let spot = find(spots, station)?;
            let name = station.get_ref();
            match seen.insert(spot) {
                true => Ok((spot, name.clone())),
                false => Err((station.span().start, format!("\"{name}\" is in the cell already"))),
            }
        };
        let stations =
            text.stations.get_ref().iter().map(station).collect::<Result<Vec<_>, _>>()?;
        if stations.is_empty() {
            return Err((text.stations.span().start, "a cell has one station or more".into()));
        }
        let [station, own] = match text.parameters {
            Parameters::Standard => [STATION_2005, ACCESS_POINT_2005],
            Parameters::Draft => [DRAFT; 2],
        };
        let default = Config::default();
        let config = Config {
            stations: u16::try_from(stations.len()).unwrap_or(u16::MAX),
            station,
            access_point: own,
            queue: value(text.queue.as_ref(), default.queue),
            attempts: text.attempts.as_ref().map_or(default.attempts, |key| key.get_ref().get()),
            bit_error_rate: value(text.bit_error_rate.as_ref(), default.bit_error_rate),
        };
        match wifi::Cell::new(config, 0, 0) {
            Ok(_) => Ok(Cell { name, access_point, stations, config }),
            Err(why) => {
                let key = match why {
                    InvalidCell::Stations(_) => Some(text.stations.span()),
                    InvalidCell::Queue(_) => text.queue.map(|key| key.span()),
                    InvalidCell::Attempts => text.attempts.map(|key| key.span()),
                    InvalidCell::BitErrorRate(_) => text.bit_error_rate.map(|key| key.span()),
                    InvalidCell::Access(_) | InvalidCell::NoStation(_) => None,
                };
                Err((key.map_or(at, |key| key.start), format!("cell {name}: {why}")))
            }
        }
    }

    /// Ends of each station's edge, and the edge's name.
    pub fn edges(&self) -> impl Iterator<Item = ([EdgeEnd; 2], String)> {
        let edge = |(spot, name): &(EdgeEnd, String)| {
            ([self.access_point, *spot], format!("{} {name}", self.name))
        };
        self.stations.iter().map(edge)
    }
}
