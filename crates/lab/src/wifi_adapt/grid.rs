//! The measurements behind figures 4 to 7: by number of stations, cell and transport.

use super::topology::{Access, RunSummary, Scheme, Setting};
use super::{PAPER, figures};
use crate::experiment::{Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use crate::tfmc::mean_cells;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_rate::vegas::{self, CodecRate};

/// One row for each cell, number of stations and transport. Each measure has its mean over the
/// runs, and, if claims read it, the mean's 95 % interval.
pub const COLUMNS: &[Column] = &[
    Column::text("cell").parameter(),
    Column::text("calls_over").parameter(),
    Column::number("stations", 0).parameter(),
    Column::number("calls", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("mean_ms", 3),
    Column::number("mean_low_ms", 3),
    Column::number("mean_high_ms", 3),
    Column::number("max_ms", 3),
    Column::number("max_low_ms", 3),
    Column::number("max_high_ms", 3),
    Column::number("kb_s", 3),
    Column::number("kb_low_s", 3),
    Column::number("kb_high_s", 3),
    Column::number("payload_kb_s", 3),
    Column::number("payload_kb_low_s", 3),
    Column::number("payload_kb_high_s", 3),
    Column::number("variation_pct", 2),
    Column::number("variation_low_pct", 2),
    Column::number("variation_high_pct", 2),
    Column::number("fairness", 4),
    Column::number("fairness_low", 4),
    Column::number("fairness_high", 4),
    Column::number("r", 1),
    Column::number("r_low", 1),
    Column::number("r_high", 1),
    Column::number("lost_pct", 3),
    Column::number("background_mbit_s", 2),
];

/// Value of the column `cell`: EDCA with the drafts' parameters, by which the figures are judged.
pub const DRAFT: &str = "draft";
/// EDCA with the standard's parameters, in the same column.
pub const STANDARD: &str = "2005";
/// Calls and background traffic in one queue, with the drafts' parameters, in the same column.
pub const ONE_QUEUE: &str = "one-queue";
/// The hybrid coordinator (HCCA), in the same column.
pub const POLLED: &str = "polled";
/// Medium access of the access point, by the column `cell`.
const CELLS: [(&str, Access); 4] = [
    (DRAFT, Access::Draft),
    (STANDARD, Access::Standard),
    (ONE_QUEUE, Access::OneQueue),
    // The interval between a call's packets, which the scheduler rounds to 17.07 ms.
    (POLLED, Access::Polled(Duration::from_millis(20))),
];

/// Value of the column `calls_over`: the paper's control.
pub const ADAPTIVE: &str = "adaptive";
/// TFRC with the packets of G.711, in the same column.
pub const TFRC: &str = "tfrc-50/s";
/// TFRC with as much as it allows, in the same column.
pub const GREEDY: &str = "tfrc-greedy";
/// G.711 throughout, in the same column.
pub const G711: &str = "g711";
/// The transports, in the order of the table.
pub const SCHEMES: [&str; 4] = [ADAPTIVE, TFRC, GREEDY, G711];

/// Background traffic to each station; the paper doesn't give it.
pub const BACKGROUND: Bitrate = Bitrate::from_bps(4_000_000);
/// Interval between two reports; the paper doesn't give it.
pub const REPORT: Duration = Duration::from_millis(100);

/// Numbers of stations including the access point, as on the figures' axes.
const STATIONS: [u16; 15] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 19, 21, 24];
const QUICK_STATIONS: [u16; 5] = [2, 4, 7, 10, 21];

/// The experiment behind figures 4 to 7.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "stations",
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let stations: &[u16] = size.pick(&[4], &QUICK_STATIONS, &STATIONS);
    let (runs, seconds) = size.pick((1, 2), (3, 8), (5, 20));
    let point = |(name, access): (&'static str, Access), stations: u16, over: &'static str| Point {
        key: format!("{name}-{stations}+{}", over.replace('/', "-")),
        x: stations.into(),
        figures: match name {
            DRAFT | ONE_QUEUE => vec!["fig4", "fig4b", "fig5", "fig6", "fig7"],
            _ => vec!["fig4", "fig4b", "fig5", "fig7"],
        },
        weight: f64::from(runs * seconds) * (0.0025 + 0.0005 * f64::from(stations)),
        measure: Box::new(move |inputs| {
            let length = Duration::from_secs(seconds.into());
            let row = row((name, access), stations, over, (length, runs), sabotage, inputs)?;
            Ok(vec![row])
        }),
    };
    let cell = |n: u16, cell| SCHEMES.map(|over| point(cell, n, over));
    stations.iter().flat_map(|&n| CELLS.into_iter().flat_map(move |c| cell(n, c))).collect()
}

/// Whether a point's key is that of this transport, in this cell.
pub fn is_of(key: &str, (cell, over): (&str, &str)) -> bool {
    let Some((setting, sent)) = key.split_once('+') else { return false };
    setting.rsplit_once('-').is_some_and(|(name, _)| name == cell) && sent == over.replace('/', "-")
}

/// The transport of this name.
fn scheme(name: &str, sabotage: Sabotage) -> Scheme {
    let config = vegas::Config::paper();
    match name {
        ADAPTIVE if sabotage.is("no-adaptation") => Scheme::Fixed(CodecRate::Kbps64),
        ADAPTIVE if sabotage.is("lowest-rate") || sabotage.is("two-classes") => {
            Scheme::Fixed(CodecRate::Kbps16)
        }
        ADAPTIVE if sabotage.is("alpha-equals-beta") => {
            Scheme::Adaptive(vegas::Config { alpha: config.beta, ..config })
        }
        ADAPTIVE => Scheme::Adaptive(config),
        TFRC => Scheme::Tfrc,
        GREEDY if sabotage.is("codec-limited") => Scheme::Tfrc,
        GREEDY => Scheme::Greedy,
        _ => Scheme::Fixed(CodecRate::Kbps64),
    }
}

fn row(
    (cell, access): (&str, Access),
    stations: u16,
    over: &str,
    (length, runs): (Duration, u32),
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Vec<Cell>, PointError> {
    let calls = stations - 1;
    let setting = Setting {
        calls,
        scheme: scheme(over, sabotage),
        adaptive: if sabotage.is("two-classes") { calls / 2 } else { calls },
        access: if sabotage.is("one-queue") { Access::OneQueue } else { access },
        background: if sabotage.is("no-background") { Bitrate::from_bps(0) } else { BACKGROUND },
        both_ways: false,
        fec: None,
        repairs: true,
        bit_error_rate: 0.0,
        attempts: 7,
        queue: if sabotage.is("deep-queues") { 200 } else { 50 },
        report: if sabotage.is("slow-reports") { 3 * REPORT } else { REPORT },
        length,
    };
    let run = |n: u32| setting.run(inputs.seed.wrapping_add(n.into()));
    let seen = (0..runs).map(run).collect::<Result<Vec<RunSummary>, _>>()?;
    let mut row: Vec<Cell> = vec![cell.into(), over.into()];
    row.extend([stations.into(), calls.into(), runs.into()].map(|n: u64| Cell::from(n)));
    let measures: [fn(&RunSummary) -> f64; 7] = [
        |s| s.mean_ms,
        |s| s.max_ms,
        |s| s.bandwidth,
        |s| s.payload,
        |s| s.variation_pct,
        |s| s.fairness,
        |s| s.r,
    ];
    row.extend(measures.iter().flat_map(|of| mean_cells(&seen, of)));
    let others: [fn(&RunSummary) -> f64; 2] = [|s| s.lost_pct, |s| s.background];
    row.extend(others.iter().map(|of| mean_cells(&seen, of)[0].clone()));
    Ok(row)
}
