//! The measurements behind figures 4 to 7: by number of stations, cell and transport. The first cell
//! is that of the declared reading, and the others are those of other readings, except the last,
//! which the paper's priorities exclude.

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
    Column::number("jitter_ms", 3),
    Column::number("jitter_low_ms", 3),
    Column::number("jitter_high_ms", 3),
    Column::number("r", 1),
    Column::number("r_low", 1),
    Column::number("r_high", 1),
    Column::number("lost_pct", 3),
    Column::number("background_mbit_s", 2),
];

/// Value of the column `cell`: EDCA with the drafts' parameters.
pub const DRAFT: &str = "draft";
/// EDCA with the standard's parameters, in the same column.
pub const STANDARD: &str = "2005";
/// As [`DRAFT`], with 30 Mbit/s of background traffic in all, in the same column.
pub const IN_ALL: &str = "30-in-all";
/// As [`DRAFT`], with background traffic that begins later than the calls, in the same column.
pub const LATER: &str = "later";
/// As [`DRAFT`], with calls and background traffic in one queue, in the same column.
pub const ONE_QUEUE: &str = "one-queue";
/// The hybrid coordinator (HCCA), which serves calls at intervals of at most this many
/// milliseconds, in the same column.
pub const POLLED_20: &str = "polled-20";
pub const POLLED_15: &str = "polled-15";
pub const POLLED_10: &str = "polled-10";
pub const POLLED_7: &str = "polled-7";
pub const POLLED_5: &str = "polled-5";

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

/// Background traffic to each station. The paper doesn't give it; with this much the cell is full at
/// seven stations, about where the paper's curves bend.
pub const BACKGROUND: Bitrate = Bitrate::from_bps(4_000_000);
/// Background traffic to all stations together, in [`IN_ALL`]: more than any cell carries.
const ALL_BACKGROUND: u64 = 30_000_000;
/// Interval between two reports; the paper doesn't give it.
pub const REPORT: Duration = Duration::from_millis(100);

/// A cell that is measured.
struct CellKind {
    /// Its name in the column `cell`.
    name: &'static str,
    /// Medium access of the access point.
    access: Access,
    /// The transports that are measured in it.
    schemes: &'static [&'static str],
}

/// Polls at intervals of at most this many milliseconds. The scheduler rounds them down to whole
/// parts of a beacon interval: 20, 15, 10, 7 and 5 ms to 17.07, 14.63, 9.31, 6.83 and 4.88.
const fn polls(millis: u64) -> Access {
    Access::Polled(Duration::from_millis(millis))
}

const fn kind(name: &'static str, access: Access, schemes: &'static [&'static str]) -> CellKind {
    CellKind { name, access, schemes }
}

/// Every cell, with the transports that claims compare in it.
const CELLS: [CellKind; 10] = [
    kind(DRAFT, Access::Draft, &SCHEMES),
    kind(STANDARD, Access::Standard, &[ADAPTIVE, TFRC, GREEDY]),
    kind(IN_ALL, Access::Draft, &[ADAPTIVE, TFRC]),
    kind(LATER, Access::Draft, &[ADAPTIVE, TFRC]),
    kind(POLLED_20, polls(20), &[ADAPTIVE]),
    kind(POLLED_15, polls(15), &[ADAPTIVE]),
    kind(POLLED_10, polls(10), &[ADAPTIVE]),
    kind(POLLED_7, polls(7), &[ADAPTIVE, TFRC]),
    kind(POLLED_5, polls(5), &[ADAPTIVE]),
    kind(ONE_QUEUE, Access::OneQueue, &[ADAPTIVE, TFRC]),
];

/// Numbers of stations including the access point, as on the figures' axes.
const STATIONS: [u16; 15] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 19, 21, 24];
const QUICK_STATIONS: [u16; 5] = [2, 4, 7, 10, 21];

/// The experiment behind figures 4 to 7.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "stations",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let stations: &[u16] = size.pick(&[4], &QUICK_STATIONS, &STATIONS);
    // The descent from 64 kbit/s is in the bandwidth: much shorter calls would have more of it than the
    // paper's.
    let (runs, seconds) = size.pick((1, 2), (3, 12), (5, 20));
    let point = |kind: &'static CellKind, stations: u16, over: &'static str| Point {
        key: format!("{}-{stations}+{}", kind.name, over.replace('/', "-")),
        x: stations.into(),
        figures: match kind.name {
            ONE_QUEUE => vec!["one-queue"],
            _ => vec!["fig4", "fig4b", "fig5", "fig5b", "fig6", "fig7"],
        },
        weight: f64::from(runs * seconds) * (0.0025 + 0.0005 * f64::from(stations)),
        measure: Box::new(move |inputs| {
            let length = Duration::from_secs(seconds.into());
            Ok(vec![row(kind, stations, over, (length, runs), sabotage, inputs)?])
        }),
    };
    let each = |n: u16, kind: &'static CellKind| {
        kind.schemes.iter().map(move |&over| point(kind, n, over))
    };
    stations.iter().flat_map(|&n| CELLS.iter().flat_map(move |kind| each(n, kind))).collect()
}

/// Whether a point's key is that of this transport, in this cell.
pub fn is_of(key: &str, (cell, over): (&str, &str)) -> bool {
    let Some((setting, sent)) = key.split_once('+') else { return false };
    setting.rsplit_once('-').is_some_and(|(name, _)| name == cell) && sent == over.replace('/', "-")
}

/// The transport of this name.
fn scheme(name: &str, calls: u16, sabotage: Sabotage) -> Scheme {
    let config = vegas::Config::paper();
    let classes_beside_50 = sabotage.is("two-classes-beside-50/s");
    let beside_50 = classes_beside_50 || sabotage.is("unmarked-beside-50/s");
    let many = calls >= MANY && (sabotage.is("two-classes-of-many") || classes_beside_50);
    match name {
        ADAPTIVE if sabotage.is("no-adaptation") => Scheme::Fixed(CodecRate::Kbps64),
        ADAPTIVE if many || sabotage.is("lowest-rate") || sabotage.is("two-classes") => {
            Scheme::Fixed(CodecRate::Kbps16)
        }
        ADAPTIVE => Scheme::Adaptive(config),
        TFRC => Scheme::Tfrc,
        GREEDY if beside_50 || sabotage.is("codec-limited") => Scheme::Tfrc,
        GREEDY => Scheme::Greedy,
        _ => Scheme::Fixed(CodecRate::Kbps64),
    }
}

/// Number of calls from which a sabotage of many calls affects them.
const MANY: u16 = 10;

/// Number of calls that are treated alike; the others are as [`Setting::adaptive`] has it.
fn controlled(over: &str, calls: u16, sabotage: Sabotage) -> u16 {
    let many = |name| calls >= MANY && sabotage.is(name);
    let halved = match over {
        ADAPTIVE => {
            sabotage.is("two-classes")
                || many("two-classes-of-many")
                || many("two-classes-beside-50/s")
        }
        TFRC | GREEDY => many("halved-of-many"),
        _ => false,
    };
    if halved { calls / 2 } else { calls }
}

/// Variations of the declared reading, to show what `BACKGROUND` decides.
pub const RATES: &[(&str, &str)] = &[
    ("other-traffic-1", "1 Mbit/s of other traffic to each station instead of 4"),
    ("other-traffic-2", "2 Mbit/s of other traffic to each station instead of 4"),
    ("other-traffic-3", "3 Mbit/s of other traffic to each station instead of 4"),
    ("other-traffic-5", "5 Mbit/s of other traffic to each station instead of 4"),
    ("other-traffic-6", "6 Mbit/s of other traffic to each station instead of 4"),
];

/// Background traffic to each station in one of [`RATES`].
fn other_rate(variation: Sabotage) -> Option<Bitrate> {
    let (name, _) = RATES.iter().find(|(name, _)| variation.is(name))?;
    let mbit_s: u64 = name.rsplit('-').next()?.parse().ok()?;
    Some(Bitrate::from_bps(1_000_000 * mbit_s))
}

/// Medium access of the access point.
fn access(of: Access, over: &str, sabotage: Sabotage) -> Access {
    let unmarked = sabotage.is("adaptive-unmarked") || sabotage.is("unmarked-beside-50/s");
    let alone = over == ADAPTIVE && unmarked;
    match of {
        _ if alone || sabotage.is("one-queue") || sabotage.is("deep-one-queue") => Access::OneQueue,
        Access::Polled(_) if sabotage.is("no-polls") => Access::Standard,
        access => access,
    }
}

fn row(
    kind: &CellKind,
    stations: u16,
    over: &str,
    (length, runs): (Duration, u32),
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Vec<Cell>, PointError> {
    let calls = stations - 1;
    let background = match kind.name {
        _ if sabotage.is("no-background") => Bitrate::from_bps(0),
        IN_ALL => Bitrate::from_bps(ALL_BACKGROUND / u64::from(calls)),
        _ => other_rate(sabotage).unwrap_or(BACKGROUND),
    };
    let setting = Setting {
        calls,
        scheme: scheme(over, calls, sabotage),
        adaptive: controlled(over, calls, sabotage),
        access: access(kind.access, over, sabotage),
        background,
        // A second of the paper's 20: ten reports of an idle cell.
        background_after: if kind.name == LATER { length / 20 } else { Duration::ZERO },
        both_ways: false,
        fec: None,
        repairs: true,
        bit_error_rate: 0.0,
        attempts: 7,
        queue: if sabotage.is("deep-one-queue") { 200 } else { 50 },
        report: if sabotage.is("slow-reports") { 3 * REPORT } else { REPORT },
        length,
    };
    let run = |n: u32| setting.run(inputs.seed.wrapping_add(n.into()));
    let mut seen = (0..runs).map(run).collect::<Result<Vec<RunSummary>, _>>()?;
    if sabotage.is("undivided-index") {
        seen.iter_mut().for_each(|run| run.fairness *= f64::from(calls));
    }
    let mut row: Vec<Cell> = vec![kind.name.into(), over.into()];
    row.extend([stations.into(), calls.into(), runs.into()].map(|n: u64| Cell::from(n)));
    let measures: [fn(&RunSummary) -> f64; 8] = [
        |s| s.mean_ms,
        |s| s.max_ms,
        |s| s.bandwidth,
        |s| s.payload,
        |s| s.variation_pct,
        |s| s.fairness,
        |s| s.jitter_ms,
        |s| s.r,
    ];
    row.extend(measures.iter().flat_map(|of| mean_cells(&seen, of)));
    let others: [fn(&RunSummary) -> f64; 2] = [|s| s.lost_pct, |s| s.background];
    row.extend(others.iter().map(|of| mean_cells(&seen, of)[0].clone()));
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variation_s_name_and_words_say_its_rate() {
        for (name, does) in RATES {
            let rate = other_rate(Sabotage::named(name)).unwrap();
            assert_ne!(rate, BACKGROUND);
            let mbit_s = rate.as_bps() / 1_000_000;
            assert!(does.starts_with(&format!("{mbit_s} Mbit/s ")), "{name}: {does}");
        }
        assert_eq!(other_rate(Sabotage::NONE), None);
    }
}
