//! Calls over every transport, by delay and by loss.

use super::call::{Call, Codec, Path};
use super::fig5_7::ONE_SEGMENT;
use super::transport::{self, Transport};
use super::{PAPER, fig1_2, fig5_7, lossy};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use std::fmt::Write as _;
use std::time::Duration;
use trunkline_base::stats::quantile;
use trunkline_media::playout::adaptive::Config;

/// The part of the mouth-to-ear delay that is neither network nor playout: the paper doesn't give
/// it. With 38 ms, R of UDP falls below 50 at 437 ms with G.711 and at 363 ms with G.729, whose
/// middle is that of the paper's "375–425 ms, depending on the codec".
pub const FIXED: Duration = Duration::from_millis(38);

pub const COLUMNS: &[Column] = &[
    Column::text("codec").parameter(),
    Column::text("transport").parameter(),
    Column::text("loss_on").parameter(),
    Column::number("delay_ms", 0).parameter(),
    Column::number("loss_pct", 2).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("r", 2),
    Column::number("r_q1", 2),
    Column::number("r_q3", 2),
    Column::number("r_without_fixed_delay", 2),
    Column::number("id", 2),
    Column::number("ie", 2),
    Column::number("dropped_by_sender_pct", 2),
    Column::number("dropped_by_playout_pct", 2),
    Column::number("lost_pct", 2),
    Column::number("adaptive_playout_less_r", 2),
    Column::text("r_of_each_run"),
];

/// Delays of figures 1, 2, 5 and 6 in milliseconds; the paper doesn't have the last two.
const DELAYS: [u32; 11] = [0, 25, 50, 100, 150, 200, 250, 300, 350, 400, 450];
const QUICK_DELAYS: [u32; 6] = [0, 50, 100, 150, 250, 400];
/// Losses of figures 4 and 7 in percent.
const LOSSES: [f64; 10] = [0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0];
const QUICK_LOSSES: [f64; 4] = [0.01, 1.0, 3.0, 10.0];

/// The experiments behind figures 1, 2 and 4 to 7.
pub fn experiments() -> Vec<Experiment> {
    let one = |name, points, figures| Experiment {
        paper: PAPER,
        name,
        revision: 3,
        columns: COLUMNS,
        needs_speech: false,
        points,
        figures,
        testbed: None,
    };
    let mut by_delay = fig1_2::figures();
    by_delay.extend(fig5_7::by_delay());
    let mut by_loss = lossy::figures();
    by_loss.push(fig5_7::by_loss());
    vec![
        one("delay", Box::new(by_delay_points), by_delay),
        one("loss", Box::new(by_loss_points), by_loss),
    ]
}

fn by_delay_points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let delays: &[u32] = size.pick(&[150], &QUICK_DELAYS, &DELAYS);
    let all = delays.iter().flat_map(|&delay_ms| {
        [(0.0, &["fig1", "fig2", "fig5", "fig6"][..]), (0.1, &["fig1b", "fig2", "fig6"])].map(
            |(loss_pct, figures)| {
                let path = Path { delay_ms, loss: loss_pct / 100.0, both: true };
                let key = format!("{delay_ms}-{loss_pct}");
                point(key, delay_ms.into(), figures, path, (size, sabotage))
            },
        )
    });
    all.collect()
}

fn by_loss_points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let losses: &[f64] = size.pick(&[1.0], &QUICK_LOSSES, &LOSSES);
    let all = losses.iter().flat_map(|&loss_pct| {
        [("both", true), ("forward", false)].map(|(name, both)| {
            let path = Path { delay_ms: 50, loss: loss_pct / 100.0, both };
            let key = format!("{loss_pct}-{name}");
            point(key, loss_pct, &["fig4", "fig7"], path, (size, sabotage))
        })
    });
    all.collect()
}

fn point(
    key: String,
    x: f64,
    figures: &[&'static str],
    path: Path,
    (size, sabotage): (Size, Sabotage),
) -> Point {
    let runs = size.pick(1, 9, 15);
    let measure = move |inputs: &Inputs<'_>| measure(&path, size, sabotage, inputs.seed);
    Point {
        key,
        x,
        figures: figures.to_vec(),
        weight: runs as f64 * f64::from(cycles(size)) / 100.0 * 0.06,
        measure: Box::new(measure),
    }
}

/// Number of talkspurts in a call.
fn cycles(size: Size) -> u32 {
    size.pick(10, 50, 100)
}

/// Measures the same calls over every transport.
fn measure(path: &Path, size: Size, sabotage: Sabotage, seed: u64) -> Result<Cells, PointError> {
    let seeds: Vec<u64> = (0..size.pick(1, 9, 15)).map(|n| seed.wrapping_add(n)).collect();
    let mut rows = Cells::new();
    for codec in Codec::ALL {
        let calls: Vec<Call> =
            seeds.iter().map(|&seed| Call::draw(codec, cycles(size), seed)).collect();
        for name in transport::PAPERS.into_iter().chain(transport::OURS) {
            // As in the paper, whose prototype wasn't stable then. Without delay, timers of four
            // round trips expire all the time.
            if path.delay_ms == 0 && name.starts_with("tfrc") {
                continue;
            }
            let transport = transport::named(name, codec, sabotage);
            let broken = path_of(path, (codec, name), sabotage);
            let runs = calls.iter().zip(&seeds);
            let playout = playout(sabotage);
            let runs = runs.map(|(call, &seed)| run(call, &transport, &broken, (seed, playout)));
            rows.push(row(codec, name, path, &runs.collect::<Result<Vec<_>, _>>()?));
        }
    }
    Ok(rows)
}

/// The path of a codec over a transport: the same for all unless a sabotage breaks it.
fn path_of(path: &Path, (codec, name): (Codec, &str), sabotage: Sabotage) -> Path {
    let mut path = *path;
    let is_tfrc = name.starts_with("tfrc");
    if sabotage.is("half-lost-but-over-tcp") && path.loss > 0.0 {
        path.loss = if is_tfrc { 0.5 } else { 0.0 };
    }
    let loses_a_twentieth =
        sabotage.is("twentieth-lost") || sabotage.is("twentieth-lost-with-such-a-floor");
    if loses_a_twentieth && is_tfrc && path.loss > 0.0 {
        path.loss = 0.05;
    }
    if (sabotage.is("tfrc-later") && is_tfrc)
        || (sabotage.is("g729-later") && codec == Codec::G729)
        || (sabotage.is("modified-later") && [transport::MODIFIED, ONE_SEGMENT].contains(&name))
    {
        path.delay_ms += 100;
    }
    path
}

/// Results of one run.
struct Run {
    r: f64,
    without_fixed: f64,
    adaptive_less: f64,
    id: f64,
    ie: f64,
    /// Shares of the packets that the sender dropped, that the playout dropped, and that were lost.
    missed: [f64; 3],
}

/// Parameters of the adaptive playout.
fn playout(sabotage: Sabotage) -> Config {
    let mut config = Config::default();
    if sabotage.is("a-second-to-begin-with") {
        (config.quantile, config.initial) = (1.0, Duration::from_secs(1));
    }
    config
}

fn run(
    call: &Call,
    transport: &Transport,
    path: &Path,
    (seed, playout): (u64, Config),
) -> Result<Run, PointError> {
    let carried = call.carry(transport, path, seed)?;
    let all = carried.delays.len() as f64;
    let best = |fixed| call.best(&carried, fixed).expect("a call has packets");
    let (with, without) = (best(FIXED), best(Duration::ZERO));
    let adapted = call.adapted(&carried, FIXED, playout).expect("a call has packets");
    let dropped = carried.dropped();
    let missed = [dropped, with.dropped(), with.lost() - dropped.min(with.lost())];
    Ok(Run {
        r: with.rating.r,
        without_fixed: without.rating.r,
        adaptive_less: with.rating.r - adapted.rating.r,
        id: with.rating.id,
        ie: with.rating.ie,
        missed: missed.map(|n| n as f64 / all),
    })
}

fn row(codec: Codec, transport: &str, path: &Path, runs: &[Run]) -> Vec<Cell> {
    let quartiles = |value: &dyn Fn(&Run) -> f64| {
        let mut sorted: Vec<f64> = runs.iter().map(value).collect();
        sorted.sort_by(f64::total_cmp);
        [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share).unwrap_or(f64::NAN))
    };
    let mean =
        |value: &dyn Fn(&Run) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
    let [q1, r, q3] = quartiles(&|run| run.r);
    // A single run has a value and no spread.
    let [q1, q3] = if runs.len() > 1 { [q1, q3] } else { [f64::NAN; 2] };
    let mut each = String::new();
    for run in runs {
        let space = if each.is_empty() { "" } else { " " };
        write!(each, "{space}{:.2}", run.r).expect("a string takes everything");
    }
    let mut row: Vec<Cell> = vec![codec.name().into(), transport.into()];
    row.push(if path.both { "both ways" } else { "way there" }.into());
    row.extend([f64::from(path.delay_ms), 100.0 * path.loss].map(Cell::from));
    row.push((runs.len() as u64).into());
    row.extend([r, q1, q3, quartiles(&|run| run.without_fixed)[1]].map(Cell::from));
    row.extend([mean(&|run| run.id), mean(&|run| run.ie)].map(Cell::from));
    row.extend([0, 1, 2].map(|n| Cell::from(100.0 * mean(&|run| run.missed[n]))));
    row.push(quartiles(&|run| run.adaptive_less)[1].into());
    row.push(each.into());
    row
}
