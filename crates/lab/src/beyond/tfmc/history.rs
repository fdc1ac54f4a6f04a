//! Loss events by the trunk's own numbers, and by those of one call.

use super::alone::{Alone, BEGIN, Net};
use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use crate::tfmc::network::mean;
use std::time::Duration;
use trunkline_rate::tfmc::{Config, Numbers};
use trunkline_sim::agent::trunk::Mode;

const FIGURE: &str = "tfmc-history";

const COLUMNS: &[Column] = &[
    Column::text("numbers"),
    Column::number("packets", 0),
    Column::number("loss_pct", 1),
    Column::number("runs", 0),
    Column::number("saw_a_loss", 0),
    Column::number("noticed_ms", 1),
    Column::number("noticed_low_ms", 1),
    Column::number("noticed_high_ms", 1),
    Column::number("events_pct", 4),
    Column::number("events_low_pct", 4),
    Column::number("events_high_pct", 4),
];
const NOTICED: [&str; 3] = ["noticed_ms", "noticed_low_ms", "noticed_high_ms"];
const EVENTS: [&str; 3] = ["events_pct", "events_low_pct", "events_high_pct"];

/// In the column `numbers`.
const TRUNK: &str = "trunk";
const ONE_CALL: &str = "one call";

const LOSSES: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
/// Packets in a datagram.
const PACKETS: [usize; 3] = [1, 10, 46];
/// How often the receiver is asked for its loss event rate.
const SAMPLED: Duration = Duration::from_millis(100);

/// The experiment on whose numbers show losses.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

/// How often a trunk is measured, and for how long.
fn extent(size: Size) -> (u64, Duration) {
    let (runs, seconds) = size.pick((1, 2), (16, 5), (20, 20));
    (runs, Duration::from_secs(seconds))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let losses: &[f64] = size.pick(&[3.0], &[1.0], &LOSSES);
    let places = losses.iter().flat_map(|loss| PACKETS.map(|packets| (*loss, packets)));
    let (runs, length) = extent(size);
    let one = |(loss, packets): (f64, usize)| Point {
        key: format!("{loss}-{packets}"),
        x: loss,
        figures: vec![FIGURE],
        weight: 0.06 * runs as f64 * length.as_secs_f64() / packets as f64,
        measure: Box::new(move |inputs| measure((loss, packets), (size, sabotage), inputs)),
    };
    places.map(one).collect()
}

fn measure(
    (loss, packets): (f64, usize),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, length) = extent(size);
    let one = |name: &'static str| {
        let numbers = match name {
            ONE_CALL if !sabotage.is("trunk-numbers") => Numbers::OneFlow,
            _ => Numbers::Trunk,
        };
        let alone = Alone {
            config: Config { numbers, ..Config::default() },
            mode: Mode::Fixed(packets),
            loss: loss / 100.0,
            length,
        };
        let seen: Vec<(Option<f64>, f64)> = (0..runs)
            .map(|n| watch(&alone, inputs.seed.wrapping_add(n)))
            .collect::<Result<_, PointError>>()?;
        let noticed: Vec<f64> = seen.iter().filter_map(|(noticed, _)| *noticed).collect();
        let mut row: Vec<Cell> =
            vec![name.into(), (packets as u64).into(), loss.into(), runs.into()];
        row.push((noticed.len() as u64).into());
        // A run that saw none would have seen it later than all this.
        row.extend(mean_cells(&seen, |(noticed, _)| noticed.unwrap_or(1e3 * length.as_secs_f64())));
        row.extend(mean_cells(&seen, |(_, events)| 100.0 * events));
        Ok(row)
    };
    [TRUNK, ONE_CALL].map(one).into_iter().collect()
}

/// After how many milliseconds of the calls the receiver knows of a loss, and the mean of its loss
/// event rate in the second half of the run.
fn watch(alone: &Alone, seed: u64) -> Result<(Option<f64>, f64), PointError> {
    let Net { mut world, receiver, .. } = alone.net(seed)?;
    let (end, mut now, mut rates) = (BEGIN + alone.length, BEGIN, Vec::new());
    while now < end {
        now += SAMPLED;
        world.run_until(now);
        if now > BEGIN + alone.length / 2 {
            let tfmc = world.agent(receiver).tfmc();
            rates.push(tfmc.map_or(f64::NAN, |tfmc| tfmc.loss(now)));
        }
    }
    let first = world.agent(receiver).first_loss();
    Ok((first.map(|at| 1e3 * at.since(BEGIN).as_secs_f64()), mean(&rates)))
}

fn is(numbers: &'static str, packets: usize, loss: f64) -> impl Fn(&Record<'_>) -> bool {
    move |r| {
        r.is("numbers", numbers)
            && r.number("packets") == packets as f64
            && r.number("loss_pct") == loss
    }
}

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "Losses by the numbers of one call and by the trunk's own",
        section: "beyond, after 5.1.2",
        says: "The paper's receiver finds losses in the RTP sequence numbers of one of the multiplexed \
               calls. 200 calls spread over 20 ms on a link of 20 ms that loses datagrams \
               independently of each other, with 1, 10 or 46 packets in a datagram: when the \
               receiver knows of the first loss, and the loss event rate that it reports. A run in \
               which none is seen counts as its whole length.",
        chart: Box::new(chart),
        claims: vec![
            Claim {
                unit: "ms",
                decimals: 0,
                measure: Box::new(|t| later(t, 10, 1.0)),
                at: &[1.0],
                ..claim(
                    "late",
                    "by the numbers of one call the first loss is noticed at least 0.5 s later than by \
                     the trunk's own, with ten packets in a datagram of which 1 % are lost",
                    Bound::at_least(500.0, BEFORE),
                    "trunk-numbers",
                )
            },
            Claim {
                unit: "times",
                decimals: 1,
                measure: Box::new(|t| {
                    let own = first(t, EVENTS, is(TRUNK, 1, 1.0));
                    first(t, EVENTS, is(ONE_CALL, 1, 1.0)).times(1.0 / own.estimate)
                }),
                at: &[1.0],
                ..claim(
                    "overestimated",
                    "of datagrams of one packet of which 1 % are lost, one call sees at least three \
                     times the trunk's loss event rate, as none of its losses share a round trip",
                    Bound::at_least(3.0, BEFORE),
                    "trunk-numbers",
                )
            },
        ],
    }
}

/// How many milliseconds later one call's numbers show the first loss.
fn later(table: &Table, packets: usize, loss: f64) -> Measured {
    let own = first(table, NOTICED, is(TRUNK, packets, loss));
    first(table, NOTICED, is(ONE_CALL, packets, loss)).minus(&own)
}

fn chart(table: &Table) -> Panels {
    let panel = |y, columns: &'static [&'static str]| {
        let of = |(n, packets): (usize, usize)| {
            [TRUNK, ONE_CALL].map(|numbers| {
                let style = Style::nth(n);
                let style = if numbers == TRUNK { style } else { style.pale() };
                line(
                    table,
                    (format!("{numbers}, {packets}"), style),
                    ("loss_pct", columns),
                    move |r| r.is("numbers", numbers) && r.number("packets") == packets as f64,
                )
            })
        };
        Panel::new(y, PACKETS.into_iter().enumerate().flat_map(of).collect())
    };
    Panels {
        title: "By whose numbers losses are found".to_owned(),
        x: Axis::log("datagrams lost (%)", (0.1, 10.0)),
        panels: vec![
            panel(Axis::log("first loss noticed (ms)", (1.0, 100_000.0)), &["noticed_ms"]),
            panel(Axis::log("loss events (%)", (0.001, 100.0)), &["events_pct"]),
        ],
        guides: Vec::new(),
    }
}
