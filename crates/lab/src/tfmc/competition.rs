//! Calls that share a link with a TCP, with TFMC and without, in every reading of the paper's text.

use super::network::{INTERVAL, Multiplexing, RunResult, Setup, Times, mean_known};
use super::readings::{Place, config, places};
use super::{PAPER, figures, median_cells};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use std::time::Duration;
use trunkline_rate::tfmc::RTP_BYTES;

/// Values of the column `row`: medians over all runs, one run, or half a second of the first run.
pub const ALL: &str = "all";
pub const RUN: &str = "run";
pub const BINNED: &str = "bin";

/// The declared reading, in the column `reading`.
pub const DECLARED: &str = "declared";
/// Always as many packets in a datagram as fit, at the declared place.
pub const FULL: &str = "46";
/// Half of the gain in isolation: single packets that are as short as if 46 had shared the headers,
/// and 46 packets in datagrams that are as long as 46 of them.
pub const FEWER_BYTES: &str = "fewer-bytes";
pub const FEWER_DATAGRAMS: &str = "fewer-datagrams";
/// Set-ups that are no readings, but show which part of TFMC has which effect.
pub const PARTS: [&str; 3] = [FULL, FEWER_BYTES, FEWER_DATAGRAMS];

/// How packets are carried, in the column `carried`: a datagram for each, or as the reading says.
pub const SINGLY: &str = "singly";
pub const TFMC: &str = "tfmc";

pub const COLUMNS: &[Column] = &[
    Column::text("row").parameter(),
    Column::text("reading").parameter(),
    Column::text("carried").parameter(),
    Column::number("spread_ms", 0).parameter(),
    Column::text("window").parameter(),
    Column::number("access_mbit_s", 0).parameter(),
    Column::number("access_packets", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("run", 0).parameter(),
    Column::number("time_s", 1).parameter(),
    Column::number("longest_wait_ms", 2).parameter(),
    Column::number("tcp_mbit_s", 3),
    Column::number("voice_mbit_s", 3),
    Column::number("packets_per_datagram", 2),
    Column::number("delay_ms", 2),
    Column::number("delay_max_ms", 2),
    Column::number("variation_pct", 2),
    Column::number("lost_pct", 3),
    Column::number("lost_least_pct", 3),
    Column::number("lost_most_pct", 3),
    Column::number("over_share_pct", 2),
    Column::number("changes_per_s", 2),
    Column::number("offered_mbit_s", 3),
    Column::number("router_packets_s", 0),
    Column::number("kept_pct", 2),
    Column::number("lead_mbit_s", 3),
    Column::number("tcp_lowest_pct", 1),
    Column::number("less_offered_mbit_s", 3),
    Column::number("less_carried_mbit_s", 3),
    Column::number("smoother_pct", 2),
    Column::number("faster_ms", 3),
    Column::number("fastest_ms", 3),
    Column::number("fewer_packets_s", 0),
    Column::number("tcp_low_mbit_s", 3),
    Column::number("tcp_high_mbit_s", 3),
    Column::number("kept_low_pct", 2),
    Column::number("kept_high_pct", 2),
    Column::number("lead_low_mbit_s", 3),
    Column::number("lead_high_mbit_s", 3),
    Column::number("tcp_lowest_low_pct", 1),
    Column::number("tcp_lowest_high_pct", 1),
    Column::number("less_offered_low_mbit_s", 3),
    Column::number("less_offered_high_mbit_s", 3),
    Column::number("less_carried_low_mbit_s", 3),
    Column::number("less_carried_high_mbit_s", 3),
    Column::number("smoother_low_pct", 2),
    Column::number("smoother_high_pct", 2),
    Column::number("faster_low_ms", 3),
    Column::number("faster_high_ms", 3),
    Column::number("fastest_low_ms", 3),
    Column::number("fastest_high_ms", 3),
    Column::number("fewer_packets_low_s", 0),
    Column::number("fewer_packets_high_s", 0),
];

/// Number of a run's quantities, from the column `tcp_mbit_s` on, and positions among them of those
/// that have an interval, in the order of its columns.
const QUANTITIES: usize = 22;
const WITH_INTERVAL: [usize; 10] = [0, 13, 14, 15, 16, 17, 18, 19, 20, 21];

const FIGURES: [&str; 6] = ["fig6", "fig6b", "fig7", "fig7b", "fig7c", "fig8"];
/// Readings that figures show over time.
const OVER_TIME: [&str; 2] = ["", "next-size"];

/// The experiment behind figures 6 to 8.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "competition",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

/// Times at which calls begin and everything ends: in the paper after 20 s and after 60.
pub fn times(size: Size) -> Times {
    let [calls, end, settled] =
        size.pick([1, 3, 1], [4, 12, 2], [20, 60, 5]).map(Duration::from_secs);
    Times { calls, end, settled }
}

/// Number of runs of a configuration: with fewer than six, the interval of a median doesn't have 95
/// %.
fn runs(size: Size) -> u64 {
    size.pick(1, 6, 10)
}

/// Value of the column `reading` for the reading `name`, which is empty if declared.
pub fn shown(name: &'static str) -> &'static str {
    if name.is_empty() { DECLARED } else { name }
}

/// Whether a point measures the reading `name`: one measures all at the same place, in the same
/// runs.
pub fn measures(name: &'static str) -> impl Fn(&str) -> bool {
    let key = Place::of(name).key();
    move |point| point == key
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let readings: Vec<&'static str> = match size {
        Size::Tiny => vec![""],
        Size::Quick => std::iter::once("").chain(places()).collect(),
        Size::Full => std::iter::once("").chain(places()).chain(PARTS).collect(),
    };
    let mut by_place: Vec<(String, Vec<&'static str>)> = Vec::new();
    for name in readings {
        let key = Place::of(name).key();
        match by_place.iter_mut().find(|(place, _)| *place == key) {
            Some((_, names)) => names.push(name),
            None => by_place.push((key, vec![name])),
        }
    }
    let one = |((key, names), n): ((String, Vec<&'static str>), u32)| Point {
        key,
        x: n.into(),
        figures: FIGURES.into(),
        weight: 0.4
            * (1 + names.len()) as f64
            * runs(size) as f64
            * (times(size).end.as_secs_f64() / 60.0),
        measure: Box::new(move |inputs| measure(&names, (size, sabotage), inputs)),
    };
    by_place.into_iter().zip(0..).map(one).collect()
}

fn measure(
    names: &[&'static str],
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let all = |setup: &Setup| {
        (0..runs(size))
            .map(|n| setup.run(inputs.seed.wrapping_add(n)))
            .collect::<Result<Vec<_>, _>>()
    };
    let singly = setup(names[0], Multiplexing::Singly, (size, sabotage));
    let without = all(&singly)?;
    let values: Vec<_> = without.iter().map(|run| quantities(run, None)).collect();
    let front = |name, carried| Front { name, carried, setup: &singly, runs: runs(size) };
    let mut rows = front(names[0], SINGLY).rows(&values, &without[0]);
    for &name in names {
        let with = setup(name, carried(name, sabotage), (size, sabotage));
        let with = Setup { headers: headers(name, sabotage), ..broken(with, sabotage) };
        let seen = all(&with)?;
        let pairs = without.iter().zip(&seen);
        let values: Vec<_> = pairs.map(|(without, run)| quantities(run, Some(without))).collect();
        rows.extend(front(name, TFMC).rows(&values, &seen[0]));
    }
    Ok(rows)
}

/// The parameters of a row.
struct Front<'a> {
    name: &'static str,
    carried: &'static str,
    /// The set-up of single packets.
    setup: &'a Setup,
    runs: u64,
}

impl Front<'_> {
    /// The row over all runs, one for each, and where a figure shows them over time, those of the
    /// first run's half seconds.
    fn rows(&self, values: &[[f64; QUANTITIES]], first: &RunResult) -> Cells {
        let mut rows = vec![self.row(ALL, [f64::NAN; 2], medians(values))];
        rows.extend(values.iter().zip(1..).map(|(values, n)| {
            self.row(RUN, [f64::from(n), f64::NAN], values.map(Cell::from).into())
        }));
        if OVER_TIME.contains(&self.name) {
            rows.extend(bins(first).map(|(time, cells)| self.row(BINNED, [1.0, time], cells)));
        }
        rows
    }

    /// A row with these numbers of run and time, and cells from `tcp_mbit_s` on; missing ones are
    /// empty.
    fn row(&self, row: &str, place: [f64; 2], cells: Vec<Cell>) -> Vec<Cell> {
        let Setup { spread, window, access, .. } = *self.setup;
        let at = Place { spread, window, access };
        let mut cells_of_row: Vec<Cell> = vec![row.into(), shown(self.name).into()];
        cells_of_row.extend([self.carried.into(), at.spread_ms().into(), at.window_name().into()]);
        cells_of_row.extend([f64::from(access.mbit_s).into(), (access.packets as u64).into()]);
        cells_of_row.push(self.runs.into());
        cells_of_row.extend(place.map(Cell::from));
        cells_of_row.push(self.setup.longest_wait_ms().into());
        cells_of_row.extend(cells);
        cells_of_row.resize(COLUMNS.len(), f64::NAN.into());
        cells_of_row
    }
}

/// The network of a reading.
fn setup(name: &'static str, carried: Multiplexing, (size, sabotage): (Size, Sabotage)) -> Setup {
    let place = match () {
        () if sabotage.is("one-access") => {
            Place { access: Place::DECLARED.access, ..Place::of(name) }
        }
        () if sabotage.is("one-spread") => Place::DECLARED,
        () => Place::of(name),
    };
    let setup = place.apply(Setup::new(carried, place.spread, times(size)));
    match () {
        () if sabotage.is("tcps-instead") => Setup { calls: 10, late_tcps: 3, ..setup },
        () if sabotage.is("no-tcp") => Setup { tcps: 0, ..setup },
        () if sabotage.is("longer-path") => Setup { window: None, ..setup },
        () => setup,
    }
}

/// The set-up with what a sabotage breaks for TFMC alone.
fn broken(setup: Setup, sabotage: Sabotage) -> Setup {
    match () {
        () if sabotage.is("longer-path") => {
            Setup { delay: setup.delay + Duration::from_millis(50), ..setup }
        }
        () if sabotage.is("more-calls") => Setup { calls: 300, spread: INTERVAL, ..setup },
        () => Setup { outage: sabotage.is("outage"), ..setup },
    }
}

/// Bytes of headers in front of each datagram, if they aren't those of UDP and IPv4, and in front of
/// each packet's speech.
fn headers(name: &str, sabotage: Sabotage) -> (Option<usize>, usize) {
    match name {
        // 32 and 28/46 bytes for each packet, rounded up.
        FEWER_BYTES => (Some(0), 13),
        // 28 and 46 times 59 and a little, for 46 times 60.
        FEWER_DATAGRAMS => (Some(46), 39),
        _ if sabotage.is("long-headers") => (None, RTP_BYTES + 50),
        _ => (None, RTP_BYTES),
    }
}

/// Transport of packets in a reading, broken according to `sabotage`.
fn carried(name: &str, sabotage: Sabotage) -> Multiplexing {
    match name {
        FEWER_BYTES => Multiplexing::Singly,
        FULL | FEWER_DATAGRAMS => Multiplexing::Fixed(46),
        _ if sabotage.is("more-calls") => Multiplexing::Singly,
        _ if sabotage.is("one-size") => Multiplexing::Tfmc(config("trunk-60-bytes")),
        name => Multiplexing::Tfmc(config(name)),
    }
}

/// A run's quantities in the order of their columns; those after `tcp_lowest_pct` are the effect of
/// TFMC, compared with a run without it.
fn quantities(seen: &RunResult, without: Option<&RunResult>) -> [f64; QUANTITIES] {
    let most = |values: Vec<f64>| values.into_iter().fold(f64::NAN, f64::max);
    let spoken = (seen.times().end - seen.times().calls).as_secs_f64();
    let effect = |of: &dyn Fn(&RunResult) -> f64| without.map_or(f64::NAN, |w| of(w) - of(seen));
    let fastest = without.map_or(f64::NAN, |without| {
        let pairs = without.delays_ms().into_iter().zip(seen.delays_ms());
        most(pairs.map(|(without, with)| without - with).collect())
    });
    [
        seen.tcp_after(),
        seen.voice(),
        seen.packed(),
        seen.delay_ms(),
        most(seen.delays_ms()),
        100.0 * seen.variation(),
        100.0 * seen.lost(),
        100.0 * seen.lost[0],
        100.0 * seen.lost[seen.lost.len() - 1],
        100.0 * seen.over_share(),
        seen.stats.changes as f64 / spoken,
        seen.offered(),
        seen.router_packets(),
        100.0 * seen.tcp_after() / seen.tcp_before(),
        seen.tcp_after() - seen.voice(),
        100.0 * seen.tcp_lowest(),
        effect(&RunResult::offered),
        effect(&RunResult::voice),
        effect(&|run| 100.0 * run.variation()),
        effect(&RunResult::delay_ms),
        fastest,
        effect(&RunResult::router_packets),
    ]
}

/// The columns from `tcp_mbit_s` on, over all runs.
fn medians(runs: &[[f64; QUANTITIES]]) -> Vec<Cell> {
    let of = |n: usize| median_cells(runs.iter().map(|values| values[n]));
    let middle = (0..QUANTITIES).map(|n| of(n)[0].clone());
    let ends = WITH_INTERVAL.into_iter().flat_map(|n| {
        let [_, low, high] = of(n);
        [low, high]
    });
    middle.chain(ends).collect()
}

/// Beginning of each half second, and its columns from `tcp_mbit_s` to `delay_max_ms`.
fn bins(seen: &RunResult) -> impl Iterator<Item = (f64, Vec<Cell>)> + '_ {
    (0..seen.tcp.len()).map(|n| {
        let from = 0.5 * n as f64;
        let delays = seen
            .delays
            .iter()
            .filter(move |(due, _)| (from..from + 0.5).contains(&(due.as_nanos() as f64 / 1e9)));
        let delays = delays.filter_map(|(_, delay)| Some(1e3 * (*delay)?.as_secs_f64()));
        let most = delays.clone().fold(f64::NAN, f64::max);
        let numbers =
            [seen.tcp[n], seen.voice[n], seen.packets_per_datagram[n], mean_known(delays), most];
        (from, numbers.map(Cell::from).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of an interval follow those of the quantities, in the same order.
    #[test]
    fn intervals_stand_in_their_columns() {
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let first = names.iter().position(|name| *name == "tcp_mbit_s").unwrap();
        assert_eq!(names.len(), first + QUANTITIES + 2 * WITH_INTERVAL.len());
        for (k, n) in WITH_INTERVAL.into_iter().enumerate() {
            let ends = [0, 1].map(|end| names[first + QUANTITIES + 2 * k + end]);
            let without = ends.map(|name| name.replace("_low_", "_").replace("_high_", "_"));
            assert_eq!(without, [names[first + n]; 2], "{ends:?}");
        }
    }

    /// Readings at one place are compared in the same runs, and each is measured once.
    #[test]
    fn a_place_is_a_point() {
        let points = points(Size::Full, Sabotage::NONE);
        let of = |name| {
            let measured = points.iter().filter(|point| measures(name)(&point.key));
            measured.map(|point| point.key.clone()).collect::<Vec<_>>()
        };
        assert!(places().chain(PARTS).all(|name| of(name).len() == 1));
        assert_eq!((of(""), of("")), (of("next-size"), of(FULL)));
        assert_ne!(of(""), of("spread-20"));
    }
}
