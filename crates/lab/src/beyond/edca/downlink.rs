//! Voice and background traffic from an access point to its stations: the traffic of the paper's
//! section 5, with G.711 throughout.

mod figures;

use super::BACKGROUND_BYTES;
use crate::beyond::{PAPER, means};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use rand::Rng as _;
use std::time::Duration;
use trunkline_base::stats::quantile;
use trunkline_base::{Bitrate, Time, rng};
use trunkline_net::wifi::edca::{ACCESS_POINT_2005, AccessTable, DRAFT, STATION_2005};
use trunkline_net::wifi::phy::{ACK_TIME, SIFS, SLOT, data_time};
use trunkline_net::wifi::{
    AccessCategory, Config, Direction, Msdu, MsduOutcome, Stream, StreamDirection,
};

/// Figures by the number of stations and by the rate of background traffic.
const FIGURES: [&str; 2] = ["edca", "edca-rates"];

const COLUMNS: &[Column] = &[
    Column::text("access").parameter(),
    Column::number("stations", 0).parameter(),
    Column::number("offered_mbit_s", 1).parameter(),
    Column::number("room_mbit_s", 3),
    Column::number("runs", 0).parameter(),
    Column::number("longest_ms", 3),
    Column::number("voice_ms", 3),
    Column::number("voice_ms_low", 3),
    Column::number("voice_ms_high", 3),
    Column::number("p99_ms", 3),
    Column::number("p99_ms_low", 3),
    Column::number("p99_ms_high", 3),
    Column::number("background_mbit_s", 3),
    Column::number("background_mbit_s_low", 3),
    Column::number("background_mbit_s_high", 3),
    Column::number("lost_pct", 3),
];

/// Medium access of the access point.
#[derive(Clone, Copy)]
struct Access {
    /// Name in the column `access`.
    name: &'static str,
    table: AccessTable,
    /// The directions whose voice is sent in turns of the hybrid coordinator; `None` without turns.
    turns: Option<StreamDirection>,
}

const ACCESSES: [Access; 5] = [
    Access { name: "own table", table: ACCESS_POINT_2005, turns: None },
    Access { name: "stations' table", table: STATION_2005, turns: None },
    Access { name: "draft", table: DRAFT, turns: None },
    Access { name: "turns", table: ACCESS_POINT_2005, turns: Some(StreamDirection::Down) },
    Access { name: "polls", table: ACCESS_POINT_2005, turns: Some(StreamDirection::Both) },
];
const OWN: &str = ACCESSES[0].name;
const STATIONS_TABLE: &str = ACCESSES[1].name;
const OF_DRAFT: &str = ACCESSES[2].name;
const TURNS: &str = ACCESSES[3].name;
/// As above, and stations are also polled for packets, which they don't have.
const POLLS: &str = ACCESSES[4].name;

/// Bytes of a G.711 packet with IP, UDP and RTP headers, sent every 20 ms (table 1 of the paper).
const VOICE_BYTES: u32 = 200;
const VOICE_EVERY: Duration = Duration::from_millis(20);
/// User priorities of the paper's section 5.
const VOICE_PRIORITY: u8 = 6;
const BACKGROUND_PRIORITY: u8 = 1;
/// Background for each station, in Mbit/s. The paper doesn't give it; its curves bend at 6 to 8
/// stations, where a cell carries this much for each.
const RATE: u32 = 4;

/// Stations as the paper counts them, including the access point.
const STATIONS: [u16; 12] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24];
const QUICK_STATIONS: [u16; 6] = [2, 6, 8, 12, 18, 24];
/// Number of stations at which the paper's curves bend.
const STATIONS_FOR_RATES: u16 = 8;

/// Number of runs of a point, and their duration: at full size as in the paper.
fn extent(size: Size) -> (u64, Duration) {
    let (runs, seconds) = size.pick((2, 1), (5, 8), (5, 20));
    (runs, Duration::from_secs(seconds))
}
/// Packets sent before this time don't count.
const BEFORE_IT: Duration = Duration::from_secs(1);
/// Time that packets still queued at the end have to arrive.
const AFTER_IT: Duration = Duration::from_millis(200);

pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: FIGURES[0],
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::stations(), figures::rates()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let stations: &[u16] = size.pick(&[8], &QUICK_STATIONS, &STATIONS);
    let rates: &[u32] = size.pick(&[], &[1, 2, 3, 4, 6], &[1, 2, 3, 4, 5, 6]);
    let of = |&access: &Access| {
        let by_stations = stations.iter().map(move |&n| (FIGURES[0], n, RATE, f64::from(n)));
        let by_rate =
            rates.iter().map(move |&rate| (FIGURES[1], STATIONS_FOR_RATES, rate, f64::from(rate)));
        by_stations.chain(by_rate).map(move |(figure, stations, rate, x)| {
            let place = CellLoad { access, stations, rate };
            Point {
                key: format!("{figure}-{}-{x}", access.name.replace([' ', '\''], "-")),
                x,
                figures: vec![figure],
                weight: 1.5e-4
                    * extent(size).0 as f64
                    * extent(size).1.as_secs_f64()
                    * f64::from(stations),
                measure: Box::new(move |inputs| place.measure((size, sabotage), inputs)),
            }
        })
    };
    ACCESSES.iter().flat_map(of).collect()
}

/// An access point with its stations and their traffic.
#[derive(Clone, Copy)]
struct CellLoad {
    access: Access,
    /// Number of stations, including the access point.
    stations: u16,
    /// Background traffic for each station, in Mbit/s.
    rate: u32,
}

impl CellLoad {
    /// Background traffic that the cell has room for, in Mbit/s: packets one after the other, each
    /// with its acknowledgement, AIFS and half the window, in the time that voice leaves. A voice
    /// packet takes its exchange, and background traffic another AIFS after it.
    fn room(&self) -> f64 {
        let background = &self.access.table[AccessCategory::Background as usize];
        let us = |span: Duration| span.as_nanos() as f64 / 1e3;
        let exchange = |bytes| us(data_time(bytes) + SIFS + ACK_TIME + background.aifs());
        let each = exchange(BACKGROUND_BYTES) + f64::from(background.cw_min) / 2.0 * us(SLOT);
        let voice = f64::from(self.stations - 1) * exchange(VOICE_BYTES) / us(VOICE_EVERY);
        8.0 * f64::from(BACKGROUND_BYTES) / each * (1.0 - voice)
    }

    fn measure(
        &self,
        (size, sabotage): (Size, Sabotage),
        inputs: &Inputs<'_>,
    ) -> Result<Cells, PointError> {
        let (runs, lasts) = extent(size);
        let runs = (0..runs)
            .map(|n| self.run(lasts, sabotage, inputs.seed.wrapping_add(n)))
            .collect::<Result<Vec<Run>, PointError>>()?;
        let offered = f64::from(self.stations - 1) * f64::from(self.rate);
        let mut row: Vec<Cell> = vec![self.access.name.into(), u64::from(self.stations).into()];
        row.extend([offered, self.room(), runs.len() as f64].map(Cell::from));
        row.push(runs.iter().map(|run| run.longest).fold(0.0, f64::max).into());
        let numbers: Vec<[f64; 4]> =
            runs.iter().map(|r| [r.mean, r.p99, r.background, r.lost]).collect();
        row.extend(means::cells(&numbers, 3));
        Ok(vec![row])
    }

    fn cell(&self, sabotage: Sabotage, seed: u64) -> Result<trunkline_net::wifi::Cell, PointError> {
        let mut table = self.access.table;
        if sabotage.is("wide-windows") {
            table[AccessCategory::Background as usize].cw_min = 127;
        }
        let stations = self.stations - 1;
        let config = Config { stations, access_point: table, ..Config::default() };
        let mut cell = trunkline_net::wifi::Cell::new(config, seed, 0)?;
        let bits = 8 * u64::from(VOICE_BYTES);
        let stretch = if sabotage.is("twice-the-interval") { 2 } else { 1 };
        let turns = self.access.turns.filter(|_| !sabotage.is("no-turns"));
        for (station, ways) in
            turns.into_iter().flat_map(|ways| (0..stations).map(move |s| (s, ways)))
        {
            cell.admit(
                Time::ZERO,
                Stream {
                    station,
                    priority: VOICE_PRIORITY,
                    ways,
                    mean_rate: Bitrate::from_bps(bits * 1_000 / VOICE_EVERY.as_millis() as u64),
                    nominal: VOICE_BYTES,
                    maximum: VOICE_BYTES,
                    max_service_interval: VOICE_EVERY * stretch,
                },
            )?;
        }
        Ok(cell)
    }

    /// One call and one background flow to each station, each begun at a random time in its first
    /// interval.
    fn run(&self, lasts: Duration, sabotage: Sabotage, seed: u64) -> Result<Run, PointError> {
        let mut cell = self.cell(sabotage, seed)?;
        let mut phases = rng(seed, 1);
        let mut flow = |station: u16, voice: bool| {
            let background = u64::from(BACKGROUND_BYTES) * 8_000 / u64::from(self.rate);
            let every = if voice { VOICE_EVERY } else { Duration::from_nanos(background) };
            let next = Duration::from_nanos(phases.next_u64() % every.as_nanos() as u64);
            Flow { station, voice, every, next: Time::ZERO + next }
        };
        let mut flows: Vec<Flow> = (0..self.stations - 1)
            .flat_map(|station| [(station, true), (station, false)])
            .map(|(station, voice)| flow(station, voice))
            .collect();
        let begin = Time::ZERO + BEFORE_IT;
        let end = begin + lasts;
        let mut seen = Arrivals { begin, end, delays: Vec::new(), background: 0 };
        let (mut voice, mut now) = (0u64, Time::ZERO);
        while now < end {
            let Some(flow) = flows.iter_mut().min_by_key(|flow| flow.next) else { break };
            now = flow.next.min(end);
            while let Some(outcome) = cell.advance(now) {
                seen.take(&outcome);
            }
            if now < end {
                voice += u64::from(flow.voice && now >= begin);
                // Packets that don't fit into the queue are lost.
                let _ = cell.enqueue(now, &flow.packet(sabotage));
                flow.next += flow.every;
            }
        }
        while let Some(outcome) = cell.advance(end + AFTER_IT) {
            seen.take(&outcome);
        }
        Ok(seen.run(voice, lasts))
    }
}

/// Packets of one length to one station, at regular times.
struct Flow {
    station: u16,
    voice: bool,
    every: Duration,
    next: Time,
}

impl Flow {
    /// The packet that is due. Its handle encodes the due time, in ns, and whether it is voice.
    fn packet(&self, sabotage: Sabotage) -> Msdu {
        let (priority, bytes) = match self.voice {
            true if sabotage.is("one-queue") => (BACKGROUND_PRIORITY, VOICE_BYTES),
            true => (VOICE_PRIORITY, VOICE_BYTES),
            false => (BACKGROUND_PRIORITY, BACKGROUND_BYTES),
        };
        let handle = self.next.as_nanos() << 1 | u64::from(self.voice);
        Msdu { station: self.station, way: Direction::Down, priority, bytes, handle }
    }
}

/// Packets that arrived within the part of a run that counts.
struct Arrivals {
    /// Begin and end of the interval that counts.
    begin: Time,
    end: Time,
    /// Delays of voice packets sent in that interval, in ns.
    delays: Vec<u64>,
    /// Background packets that arrived in that interval.
    background: u64,
}

/// Results of one run.
struct Run {
    /// Mean delay of voice packets, in ms.
    mean: f64,
    p99: f64,
    longest: f64,
    /// Goodput of all background traffic, in Mbit/s.
    background: f64,
    /// Voice packets that never arrived, in percent.
    lost: f64,
}

impl Arrivals {
    fn take(&mut self, &MsduOutcome { at, handle, result }: &MsduOutcome) {
        let sent = Time::from_nanos(handle >> 1);
        match (result, handle & 1 == 1) {
            (Ok(()), true) if sent >= self.begin => {
                self.delays.push(at.since(sent).as_nanos() as u64);
            }
            (Ok(()), false) if at > self.begin && at <= self.end => self.background += 1,
            _ => {}
        }
    }

    fn run(mut self, voice: u64, lasts: Duration) -> Run {
        self.delays.sort_unstable();
        let ms = |ns: u64| ns as f64 / 1e6;
        let n = self.delays.len() as f64;
        let at = |share| quantile(&self.delays, share).map_or(f64::NAN, ms);
        Run {
            mean: ms(self.delays.iter().sum()) / n,
            p99: at(0.99),
            longest: at(1.0),
            background: self.background as f64 * 8e-6 * f64::from(BACKGROUND_BYTES)
                / lasts.as_secs_f64(),
            lost: 100.0 * (1.0 - n / voice as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12,000 bits in 364 + 16 + 28 + 79 + 67.5 = 554.5 µs are 21.64 Mbit/s; each call takes
    /// 76 + 16 + 28 + 79 = 199 µs of 20 ms.
    #[test]
    fn room_by_hand() {
        let room =
            |n: usize, stations| CellLoad { access: ACCESSES[n], stations, rate: RATE }.room();
        assert!((room(0, 8) - 12_000.0 / 554.5 * (1.0 - 7.0 * 0.00995)).abs() < 1e-9);
        assert!((room(2, 1) - 12_000.0 / (408.0 + 34.0 + 67.5)).abs() < 1e-9);
    }
}
