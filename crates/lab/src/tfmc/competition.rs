//! Calls that share a link with a TCP: every spread of the calls' beginnings, with TFMC and
//! without.

use super::network::{Multiplexing, RunResult, Setup, Times, mean_known};
use super::{PAPER, figures, mean_cells};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use std::time::Duration;
use trunkline_rate::tfmc::{Config, Segment};

/// Values of the column `row`: a whole configuration, or half a second of its first run.
pub const ALL: &str = "all";
const BINNED: &str = "bin";
/// How packets are carried, in the column `carried`.
pub const SINGLY: &str = "singly";
/// TFMC as the paper describes it, except that the trunk's sequence numbers reveal loss events.
pub const TFMC: &str = "tfmc";
/// The same with the RTP sequence numbers of the observed call, as in the paper.
pub const ONE_CALL: &str = "tfmc-one-call";
/// TFMC with a TCP's segment in equation (2).
pub const NOMINAL: &str = "tfmc-1460";
/// TFMC with the size of the next datagrams in equation (2).
pub const CHOSEN: &str = "tfmc-chosen";
/// Always as many packets in a datagram as fit.
pub const FULL: &str = "46";
/// Half of the gain in isolation: single packets that are as short as if 46 had shared the headers,
/// and 46 packets in datagrams that are as long as 46 of them.
pub const FEWER_BYTES: &str = "fewer-bytes";
pub const FEWER_DATAGRAMS: &str = "fewer-datagrams";
/// All transports of the packets, in the order of the rows.
pub const CARRIED: [&str; 8] =
    [SINGLY, TFMC, ONE_CALL, NOMINAL, CHOSEN, FULL, FEWER_BYTES, FEWER_DATAGRAMS];

/// Spreads of the calls' beginnings, in milliseconds; their packets keep these distances.
const SPREADS: [u32; 5] = [0, 1, 5, 10, 20];
/// The TCP's window in packets: ns-2's default, or unlimited.
const WINDOWS: [Option<u64>; 2] = [Some(20), None];

/// The configuration assumed for the paper, which doesn't give it. Packets "occur at the same
/// instant" (section 5.1), which a millisecond nearly is, and no window is mentioned, so that it is
/// ns-2's default. This was fixed before the first measurement.
pub const DECLARED: (u32, Option<u64>) = (1, Some(20));

pub const COLUMNS: &[Column] = &[
    Column::text("row").parameter(),
    Column::text("carried").parameter(),
    Column::number("spread_ms", 0).parameter(),
    Column::text("window").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("time_s", 1).parameter(),
    Column::number("tcp_mbit_s", 3),
    Column::number("voice_mbit_s", 3),
    Column::number("packets_per_datagram", 2),
    Column::number("delay_ms", 2),
    Column::number("delay_max_ms", 2),
    Column::number("tcp_low_mbit_s", 3),
    Column::number("tcp_high_mbit_s", 3),
    Column::number("voice_low_mbit_s", 3),
    Column::number("voice_high_mbit_s", 3),
    Column::number("kept_pct", 2),
    Column::number("kept_low_pct", 2),
    Column::number("kept_high_pct", 2),
    Column::number("lead_mbit_s", 3),
    Column::number("lead_low_mbit_s", 3),
    Column::number("lead_high_mbit_s", 3),
    Column::number("variation_pct", 2),
    Column::number("lost_pct", 3),
    Column::number("lost_least_pct", 3),
    Column::number("lost_most_pct", 3),
    Column::number("over_share_pct", 2),
    Column::number("changes_per_s", 2),
    Column::number("saved_mbit_s", 3),
    Column::number("saved_low_mbit_s", 3),
    Column::number("saved_high_mbit_s", 3),
    Column::number("smoother_pct", 2),
    Column::number("smoother_low_pct", 2),
    Column::number("smoother_high_pct", 2),
    Column::number("faster_ms", 3),
    Column::number("faster_low_ms", 3),
    Column::number("faster_high_ms", 3),
    Column::number("fastest_ms", 3),
    Column::number("fastest_low_ms", 3),
    Column::number("fastest_high_ms", 3),
];

const FIGURES: [&str; 5] = ["fig6", "fig7", "fig7b", "fig7c", "fig8"];

/// The experiment behind figures 6 to 8.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "competition",
        revision: 1,
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

/// Number of runs of a configuration.
pub fn runs(size: Size) -> u64 {
    size.pick(1, 6, 10)
}

/// Value of the column for the TCP's window.
pub fn window_name(window: Option<u64>) -> String {
    window.map_or("none".to_owned(), |packets| packets.to_string())
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let places = SPREADS.into_iter().flat_map(|spread| WINDOWS.map(|window| (spread, window)));
    let measured = |place: &(u32, Option<u64>)| match size {
        Size::Tiny => *place == DECLARED,
        // The declared spread, and the uniform one.
        Size::Quick => place.0 == DECLARED.0 || place.0 == 20,
        Size::Full => true,
    };
    let one = |(spread, window): (u32, Option<u64>)| Point {
        key: format!("{spread}-{}", window_name(window)),
        x: spread.into(),
        figures: FIGURES.into(),
        weight: 3.0 * runs(size) as f64 * times(size).end.as_secs_f64() / 60.0,
        measure: Box::new(move |inputs| measure((spread, window), (size, sabotage), inputs)),
    };
    places.filter(measured).map(one).collect()
}

fn measure(
    (spread, window): (u32, Option<u64>),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let used = match () {
        () if sabotage.is("spread-20ms") => 20,
        () if sabotage.is("spread-1ms") => 1,
        () if sabotage.is("singly-5ms") => 5,
        () => spread,
    };
    let all = |name| {
        let carried = carried(name, sabotage);
        let setup = Setup::new(carried, Duration::from_millis(used.into()), times(size));
        let longer = sabotage.is("longer-path") && name != SINGLY;
        let delay = if longer { 2 * setup.delay } else { setup.delay };
        let headers = match name {
            // 32 and 28/46 bytes for each packet, rounded up.
            FEWER_BYTES => (Some(0), 13),
            // 28 and 46 times 59 and a little, for 46 times 60.
            FEWER_DATAGRAMS => (Some(46), 39),
            _ => setup.headers,
        };
        let setup = Setup { window, delay, headers, ..setup };
        (0..runs(size))
            .map(|n| setup.run(inputs.seed.wrapping_add(n)))
            .collect::<Result<Vec<_>, _>>()
    };
    let without = all(SINGLY)?;
    let mut rows = Cells::new();
    // Transports that no claim reads are measured with the declared window alone.
    let shown = if window == DECLARED.1 { &CARRIED[..] } else { &CARRIED[..5] };
    for &name in shown {
        let others = if name == SINGLY { None } else { Some(all(name)?) };
        let runs = others.as_ref().unwrap_or(&without);
        let front = |row: &str| -> Vec<Cell> {
            let place =
                [row.into(), name.into(), f64::from(spread).into(), window_name(window).into()];
            let mut front = Vec::from(place);
            front.push((runs.len() as u64).into());
            front
        };
        let mut row = front(ALL);
        row.extend(summary(runs));
        row.extend(
            others
                .as_ref()
                .map_or_else(|| vec![f64::NAN.into(); 12], |with| compared(&without, with)),
        );
        rows.push(row);
        if (spread, window) == DECLARED {
            rows.extend(bins(&runs[0]).map(|bin| {
                let mut row = front(BINNED);
                row.extend(bin);
                row.resize(COLUMNS.len(), f64::NAN.into());
                row
            }));
        }
    }
    Ok(rows)
}

/// Transport of packets by its name in the table, broken according to `sabotage`.
fn carried(name: &str, sabotage: Sabotage) -> Multiplexing {
    let mut config = match name {
        ONE_CALL => Config::paper(),
        NOMINAL => Config { segment: Segment::Nominal(1_460.0), ..Config::default() },
        CHOSEN => Config { segment: Segment::Chosen, ..Config::default() },
        _ => Config::default(),
    };
    if sabotage.is("swing-every-second") {
        config.feedback_interval = Duration::from_secs(1);
        config.segment = Segment::Datagram;
    }
    match () {
        () if name == FEWER_BYTES => Multiplexing::Singly,
        () if name == FULL || name == FEWER_DATAGRAMS => Multiplexing::Fixed(46),
        () if name == SINGLY || sabotage.is("no-tfmc") || sabotage.is("singly-5ms") => {
            Multiplexing::Singly
        }
        () if sabotage.is("m-fixed-1") => Multiplexing::Fixed(1),
        () if sabotage.is("m-fixed-46") => Multiplexing::Fixed(46),
        () => Multiplexing::Tfmc(config),
    }
}

/// The columns from `time_s` to `changes_per_s`, over all runs.
fn summary(runs: &[RunResult]) -> Vec<Cell> {
    let mean = |of: fn(&RunResult) -> f64| mean_cells(runs, of);
    let [tcp, tcp_low, tcp_high] = mean(RunResult::tcp_after);
    let [voice, voice_low, voice_high] = mean(RunResult::voice);
    let [packed, ..] = mean(RunResult::packed);
    let [delay, ..] = mean_cells_known(runs, RunResult::delay_ms);
    let most = |seen: &RunResult| seen.delays_ms().into_iter().fold(f64::NAN, f64::max);
    let [delay_max, ..] = mean_cells_known(runs, most);
    let mut row: Vec<Cell> = vec![f64::NAN.into(), tcp, voice, packed, delay, delay_max];
    row.extend([tcp_low, tcp_high, voice_low, voice_high]);
    row.extend(mean(|seen| 100.0 * seen.tcp_after() / seen.tcp_before()));
    row.extend(mean(|seen| seen.tcp_after() - seen.voice()));
    let first = |of: fn(&RunResult) -> f64| mean(of)[0].clone();
    row.push(first(|seen| 100.0 * seen.variation()));
    row.push(first(|seen| 100.0 * seen.lost()));
    row.push(first(|seen| 100.0 * seen.lost[0]));
    row.push(first(|seen| 100.0 * seen.lost[seen.lost.len() - 1]));
    row.push(first(|seen| 100.0 * seen.over_share()));
    let spoken = (runs[0].times().end - runs[0].times().calls).as_secs_f64();
    let [changes, ..] = mean_cells(runs, |seen| seen.stats.changes as f64 / spoken);
    row.push(changes);
    row
}

/// The last twelve columns: the effect of TFMC, run by run.
fn compared(without: &[RunResult], with: &[RunResult]) -> Vec<Cell> {
    let pairs: Vec<(&RunResult, &RunResult)> = without.iter().zip(with).collect();
    let faster = |(without, with): &(&RunResult, &RunResult)| {
        let pairs = without.delays_ms().into_iter().zip(with.delays_ms());
        pairs.map(|(without, with)| without - with).collect::<Vec<f64>>()
    };
    let mut row = Vec::new();
    row.extend(mean_cells(&pairs, |(a, b)| a.voice() - b.voice()));
    row.extend(mean_cells(&pairs, |(a, b)| 100.0 * (a.variation() - b.variation())));
    row.extend(mean_cells_known(&pairs, |(a, b)| a.delay_ms() - b.delay_ms()));
    row.extend(mean_cells_known(&pairs, |pair| faster(pair).into_iter().fold(f64::NAN, f64::max)));
    row
}

/// Mean over the runs that have a number: a call that loses every packet has no delay.
fn mean_cells_known<T>(runs: &[T], of: impl Fn(&T) -> f64) -> [Cell; 3] {
    let known: Vec<f64> = runs.iter().map(of).filter(|value| !value.is_nan()).collect();
    if known.is_empty() {
        [f64::NAN; 3].map(Cell::from)
    } else {
        mean_cells(&known, |value| *value)
    }
}

/// The columns from `time_s` to `delay_max_ms` in each half second.
fn bins(seen: &RunResult) -> impl Iterator<Item = Vec<Cell>> + '_ {
    (0..seen.tcp.len()).map(|n| {
        let from = 0.5 * n as f64;
        let delays = seen
            .delays
            .iter()
            .filter(move |(due, _)| (from..from + 0.5).contains(&(due.as_nanos() as f64 / 1e9)));
        let delays = delays.filter_map(|(_, delay)| Some(1e3 * (*delay)?.as_secs_f64()));
        let most = delays.clone().fold(f64::NAN, f64::max);
        let numbers = [
            from,
            seen.tcp[n],
            seen.voice[n],
            seen.packets_per_datagram[n],
            mean_known(delays),
            most,
        ];
        numbers.map(Cell::from).into()
    })
}
