//! Delay of messages from A to F, hop by hop and end to end, by loss on the link between C and D.

mod testbed;

use super::network::{Carrier, DELAY, HOPS, Stream, delays, links};
use super::{delay_figures, mean_cells};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use crate::testbed::PLACES;
use std::time::Duration;
use trunkline_sim::agent::tcp::Profile;

pub const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("carried").parameter(),
    Column::number("rate_kbit_s", 0).parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("messages", 0).parameter(),
    Column::number("unread", 0),
    Column::number("mean_ms", 3),
    Column::number("mean_low_ms", 3),
    Column::number("mean_high_ms", 3),
    Column::number("jitter_ms", 3),
    Column::number("jitter_low_ms", 3),
    Column::number("jitter_high_ms", 3),
    Column::number("backlog_pct", 2),
    Column::number("later_60_pct", 4),
    Column::number("later_80_pct", 4),
    Column::number("later_100_pct", 4),
    Column::number("later_120_pct", 4),
    Column::number("later_120_low_pct", 4),
    Column::number("later_120_high_pct", 4),
    Column::number("later_140_pct", 4),
    Column::number("later_160_pct", 4),
    Column::number("later_180_pct", 4),
    Column::number("later_200_pct", 4),
    Column::number("later_220_pct", 4),
    Column::number("later_240_pct", 4),
    Column::number("later_260_pct", 4),
    Column::number("later_280_pct", 4),
    Column::text("valid"),
];

/// Value of the column `carried`: reliable links between neighbours.
pub const HOP_BY_HOP: &str = "hop-by-hop";
/// A stream over the same links, in the same column.
pub const STREAM: &str = "stream";
/// TCPs from end to end, in the same column: Linux at the time of the paper, and today's.
pub const TCPS: [&str; 2] = ["linux-2.4", "linux-6"];
/// Reliable links between sealed nodes, which only the testbed has, in the same column.
pub const HOP_BY_HOP_SEALED: &str = "hop-by-hop-sealed";
/// A stream between sealed nodes, in the same column.
pub const STREAM_SEALED: &str = "stream-sealed";
/// The kernel's TCP from end to end, in the same column.
pub const LIVE_TCPS: [&str; 2] = ["tcp-reno", "tcp-cubic"];
/// Rates of the messages, in kbit/s.
pub const RATES: [u32; 2] = [500, 1_000];
/// Shares of packets lost between C and D, in tenths of a percent.
const LOSSES: [u32; 12] = [0, 2, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20];

/// Queue from which a transport counts as not keeping up: half a second of messages.
const BACKLOG: Duration = Duration::from_millis(500);

/// Parts of a run whose means are taken as independent of each other.
const BATCHES: usize = 20;

/// The experiment behind figures 11 to 14.
pub fn experiment() -> Experiment {
    let figures = delay_figures::all();
    Experiment {
        revision: 5,
        testbed: Some(testbed::testbed()),
        ..super::experiment("delays", COLUMNS, Box::new(points), figures)
    }
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let losses: &[u32] = size.pick(&[10], &[0, 2, 5, 10, 20], &LOSSES);
    let messages = size.pick(600, 10_000, 200_000);
    let one = |rate: u32, tenths: u32| Point {
        key: format!("{rate}-{tenths}"),
        x: f64::from(tenths) / 10.0,
        figures: if rate == RATES[0] { vec!["fig11", "fig13", "fig14"] } else { vec!["fig12"] },
        weight: 18.0 * f64::from(messages) / 200_000.0,
        measure: Box::new(move |inputs| {
            let stream = Stream { rate: u64::from(rate) * 1_000, messages };
            rows(stream, f64::from(tenths) / 1_000.0, sabotage, inputs)
        }),
    };
    RATES.iter().flat_map(|&rate| losses.iter().map(move |&tenths| one(rate, tenths))).collect()
}

fn rows(
    stream: Stream,
    loss: f64,
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let profiles = [Profile::linux_2_4(), Profile::linux_6()];
    let tcp = |profile: &Profile| Carrier::EndToEnd(Box::new(profile.clone()));
    let (ours, ours_in_order) = match () {
        () if sabotage.is("in-order-relays") => (Carrier::InOrderRelays, Carrier::Stream),
        () if sabotage.is("end-to-end-only") => (tcp(&profiles[0]), tcp(&profiles[0])),
        () => (Carrier::HopByHop, Carrier::Stream),
    };
    let [then, now] = [0, 1].map(|n| (TCPS[n], tcp(&profiles[n])));
    let all = [(HOP_BY_HOP, ours), (STREAM, ours_in_order), then, now];
    let measured = |(name, carried): (&'static str, Carrier)| {
        let delays = delays(&carried, links(HOPS, DELAY, loss), stream, inputs.seed)?;
        Ok(row((PLACES[0], name), stream, loss, &delays, true))
    };
    all.into_iter().map(measured).collect()
}

/// The table's row for a stream whose messages had these delays, without those that could not be
/// read.
fn row(
    (at, carried): (&str, &str),
    stream: Stream,
    loss: f64,
    delays: &[Duration],
    valid: bool,
) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![at.into(), carried.into(), (stream.rate as f64 / 1e3).into()];
    row.extend([Cell::from(100.0 * loss), u64::from(stream.messages).into()]);
    row.push((u64::from(stream.messages) - delays.len() as u64).into());
    row.extend(measures(delays));
    row.push(Cell::yes(valid));
    row
}

/// Mean, jitter, backlog, and the shares that exceeded each limit.
fn measures(delays: &[Duration]) -> Vec<Cell> {
    let ms = |d: &Duration| d.as_secs_f64() * 1e3;
    let size = delays.len().div_ceil(BATCHES).max(1);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let means: Vec<f64> =
        delays.chunks(size).map(|c| mean(&c.iter().map(ms).collect::<Vec<_>>())).collect();
    let jitter = jitter(delays);
    let jitters: Vec<f64> = jitter.chunks(size).map(mean).collect();
    let later = |delays: &[Duration], than: Duration| {
        100.0 * delays.iter().filter(|d| **d > than).count() as f64 / delays.len() as f64
    };
    let mut cells: Vec<Cell> = mean_cells(&means).into();
    cells.extend(mean_cells(&jitters));
    cells.push(later(delays, BACKLOG).into());
    for limit in (60..=280).step_by(20).map(Duration::from_millis) {
        if limit == Duration::from_millis(120) {
            let each: Vec<f64> = delays.chunks(size).map(|c| later(c, limit)).collect();
            cells.extend(mean_cells(&each));
        } else {
            cells.push(later(delays, limit).into());
        }
    }
    cells
}

/// RFC 3550's estimate of jitter (section 6.4.1) at each message, in milliseconds.
fn jitter(delays: &[Duration]) -> Vec<f64> {
    let mut jitter = 0.0;
    let step = |pair: &[Duration]| {
        let difference = pair[1].abs_diff(pair[0]).as_secs_f64() * 1e3;
        jitter += (difference - jitter) / 16.0;
        jitter
    };
    delays.windows(2).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_follows_the_differences_of_delays() {
        let steady = vec![Duration::from_millis(50); 100];
        assert!(jitter(&steady).iter().all(|j| *j == 0.0));
        let swings: Vec<_> = (0..400).map(|n| Duration::from_millis(50 + 8 * (n % 2))).collect();
        let last = *jitter(&swings).last().unwrap();
        assert!((7.9..8.0).contains(&last), "{last}");
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let (delays, stream) =
            (vec![Duration::from_millis(50); 90], Stream { rate: 1, messages: 100 });
        let row = row((PLACES[0], STREAM), stream, 0.0, &delays, true);
        assert_eq!((row.len(), &row[5]), (COLUMNS.len(), &Cell::Number(10.0)));
    }
}
