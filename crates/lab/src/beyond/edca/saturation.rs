//! Saturation: stations that always have a packet to send contend with each other.

use super::bianchi::{Predicted, Saturated};
use super::{BACKGROUND_BYTES, BEFORE, claim};
use crate::beyond::{PAPER, means};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::wifi::edca::{Access, DRAFT, STATION_2005};
use trunkline_net::wifi::{AccessCategory, Config, Direction, Msdu, MsduOutcome};

const FIGURE: &str = "edca-saturation";

const COLUMNS: &[Column] = &[
    Column::text("parameters").parameter(),
    Column::number("stations", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("model_mbit_s", 3),
    Column::number("model_collides_pct", 2),
    Column::number("mbit_s", 3),
    Column::number("mbit_s_low", 3),
    Column::number("mbit_s_high", 3),
    Column::number("collides_pct", 2),
];

/// Access category in which all stations send.
#[derive(Clone, Copy)]
struct Parameters {
    /// Name in the column `parameters`.
    name: &'static str,
    access: Access,
    category: AccessCategory,
}

const fn of(name: &'static str, table: &[Access; 4], category: AccessCategory) -> Parameters {
    Parameters { name, access: table[category as usize], category }
}

const PARAMETERS: [Parameters; 4] = [
    of("2005 best effort", &STATION_2005, AccessCategory::BestEffort),
    of("2005 voice", &STATION_2005, AccessCategory::Voice),
    of("draft best effort", &DRAFT, AccessCategory::BestEffort),
    of("draft voice", &DRAFT, AccessCategory::Voice),
];

/// Number of stations besides the access point.
const STATIONS: [u16; 23] =
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24];
const QUICK_STATIONS: [u16; 6] = [2, 4, 8, 12, 16, 24];

/// Number of runs, their duration, and how long stations send before each.
fn extent(size: Size) -> (u64, Duration) {
    let (runs, seconds) = size.pick((2, 1), (5, 20), (10, 60));
    (runs, Duration::from_secs(seconds))
}
const BEFORE_IT: Duration = Duration::from_secs(1);

pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: FIGURE,
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figure()],
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let stations: &[u16] = size.pick(&[4], &QUICK_STATIONS, &STATIONS);
    let places = PARAMETERS.iter().flat_map(|p| stations.iter().map(move |&n| (p, n)));
    let one = |(parameters, stations): (&'static Parameters, u16)| Point {
        key: format!("{}-{stations}", parameters.name.replace(' ', "-")),
        x: stations.into(),
        figures: vec![FIGURE],
        weight: 1e-3 * extent(size).0 as f64 * extent(size).1.as_secs_f64(),
        measure: Box::new(move |inputs| measure(parameters, stations, (size, sabotage), inputs)),
    };
    places.map(one).collect()
}

fn measure(
    parameters: &Parameters,
    stations: u16,
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, lasts) = extent(size);
    let saturated = Saturated {
        stations,
        access: parameters.access,
        attempts: Config::default().attempts,
        bytes: BACKGROUND_BYTES,
    };
    let Predicted { collides, mbit_s } = saturated.predict();
    // Simulates a single station, which never collides.
    let stations = if sabotage.is("no-collisions") { 1 } else { stations };
    let measured = Saturated { stations, ..saturated };
    let runs = (0..runs)
        .map(|n| run(&measured, parameters.category, lasts, inputs.seed.wrapping_add(n)))
        .collect::<Result<Vec<[f64; 2]>, PointError>>()?;
    let mut row: Vec<Cell> = vec![parameters.name.into(), u64::from(saturated.stations).into()];
    row.extend([(runs.len() as f64).into(), mbit_s.into(), (100.0 * collides).into()]);
    row.extend(means::cells(&runs, 1));
    Ok(vec![row])
}

/// Throughput in Mbit/s, and failed attempts in percent.
fn run(
    saturated: &Saturated,
    category: AccessCategory,
    lasts: Duration,
    seed: u64,
) -> Result<[f64; 2], PointError> {
    let Saturated { stations, access, attempts, bytes } = *saturated;
    let config = Config { stations, station: [access; 4], attempts, ..Config::default() };
    let mut cell = trunkline_net::wifi::Cell::new(config, seed, 0)?;
    let priority = match category {
        AccessCategory::Background => 1,
        AccessCategory::BestEffort => 0,
        AccessCategory::Video => 5,
        AccessCategory::Voice => 6,
    };
    let packet = |station: u16| {
        let handle = u64::from(station);
        Msdu { station, way: Direction::Up, priority, bytes, handle }
    };
    // A packet that arrives is replaced at once; the extra ones fill the rest of an opportunity.
    for _ in 0..=saturated.burst() {
        (0..stations).try_for_each(|station| cell.enqueue(Time::ZERO, &packet(station)))?;
    }
    let begin = Time::ZERO + BEFORE_IT;
    let mut arrived_by = |end| -> Result<(f64, f64), PointError> {
        let (mut arrived, before) = (0u64, cell.counters().contended);
        while let Some(MsduOutcome { at, handle, result }) = cell.advance(end) {
            arrived += u64::from(result.is_ok());
            cell.enqueue(at, &packet(handle as u16))?;
        }
        Ok((arrived as f64, (cell.counters().contended - before) as f64))
    };
    arrived_by(begin)?;
    let (arrived, sent) = arrived_by(begin + lasts)?;
    let mbit_s = arrived * 8e-6 * f64::from(bytes) / lasts.as_secs_f64();
    // Packets after the first in an opportunity can't collide.
    let (lost, first) = (sent - arrived, arrived / f64::from(saturated.burst()));
    Ok([mbit_s, 100.0 * lost / (lost + first)])
}

fn figure() -> Figure {
    let claims = PARAMETERS.iter().map(|p| as_the_model(p.name)).collect();
    Figure {
        name: FIGURE,
        title: "Throughput of stations that always have a packet to send",
        section: "beyond",
        caption: "2 to 24 stations of an 802.11e cell (802.11a at 36 Mbit/s), each of which always \
               has packets of 1,500 bytes for the access point in one category, with the \
               parameters of IEEE 802.11e-2005 and of the draft as simulated in 2004: throughput \
               compared with Bianchi's model, with a retry limit of 7 and with transmission \
               opportunities.",
        chart: one_panel(chart),
        claims,
    }
}

fn rows<'a>(table: &'a Table, name: &'static str) -> impl Iterator<Item = Record<'a>> {
    table.iter().filter(move |r| r.is("parameters", name))
}

fn chart(table: &Table) -> Chart {
    let mut series = Vec::new();
    for (n, Parameters { name, .. }) in PARAMETERS.iter().enumerate() {
        let mark = |r: Record<'_>| {
            let Measured { estimate, interval, .. } = means::of(&r, "mbit_s");
            Mark { x: r.number("stations"), y: estimate, interval: Some(interval) }
        };
        let style = Style { dash: "", ..Style::nth(n) };
        series.push(Series {
            name: (*name).to_owned(),
            style,
            points: rows(table, name).map(mark).collect(),
        });
    }
    // The four lines form one series, with a gap before each.
    let model = PARAMETERS.iter().flat_map(|Parameters { name, .. }| {
        let mark = |r: Record<'_>| (r.number("stations"), r.number("model_mbit_s"));
        std::iter::once((f64::NAN, f64::NAN)).chain(rows(table, name).map(mark))
    });
    series.push(Series {
        name: "Bianchi's model".to_owned(),
        style: Style::SECOND_CURVE,
        points: model.map(|(x, y)| Mark { x, y, interval: None }).collect(),
    });
    Chart {
        title: "Stations that always have a packet to send".to_owned(),
        x: Axis::linear("stations", (0.0, 24.0), 4.0),
        y: Axis::linear("throughput (Mbit/s)", (0.0, 30.0), 5.0),
        series,
    }
}

/// The claim that the cell carries what the model predicts.
fn as_the_model(name: &'static str) -> Claim {
    let (id, says) = match name {
        "2005 best effort" => (
            "model-2005-best-effort",
            "in best effort of IEEE 802.11e-2005 the throughput is that of the model, whatever the \
             number of stations",
        ),
        "2005 voice" => (
            "model-2005-voice",
            "in voice of IEEE 802.11e-2005 the throughput is that of the model, whatever the \
             number of stations",
        ),
        "draft best effort" => (
            "model-draft-best-effort",
            "in the draft's best effort the throughput is that of the model, whatever the number \
             of stations",
        ),
        _ => (
            "model-draft-voice",
            "in the draft's voice the throughput is that of the model, whatever the number of \
             stations",
        ),
    };
    Claim {
        unit: "%",
        measure: Box::new(move |table| {
            let off = |r: Record<'_>| {
                let m = means::of(&r, "mbit_s").times(100.0 / r.number("model_mbit_s"));
                let off = m.minus(&Measured::census(100.0));
                (off, r.number("stations"))
            };
            let all: Vec<(Measured, f64)> = rows(table, name).map(off).collect();
            let farthest =
                all.iter().max_by(|a, b| a.0.estimate.abs().total_cmp(&b.0.estimate.abs()));
            let note = farthest.map_or(String::new(), |(m, n)| {
                format!("Largest difference: {:+.2} % at {n:.0} stations.", m.estimate)
            });
            Measured::maximum(all.iter().map(|(m, _)| m.abs())).noting(note)
        }),
        ..claim(id, says, Bound::at_most(5.0, BEFORE), "no-collisions")
    }
}
