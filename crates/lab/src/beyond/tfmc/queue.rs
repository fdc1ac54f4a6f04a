//! The bottleneck's queue: its length, and whether it counts packets or bytes.

use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use crate::tfmc::network::{Multiplexing, RunResult, Setup, Times};
use std::time::Duration;
use trunkline_base::link_model;
use trunkline_rate::tfmc::Config;

const FIGURE: &str = "tfmc-queue";

const COLUMNS: &[Column] = &[
    Column::text("carried").parameter(),
    Column::text("counts").parameter(),
    Column::number("room_packets", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("tcp_mbit_s", 3),
    Column::number("tcp_low_mbit_s", 3),
    Column::number("tcp_high_mbit_s", 3),
    Column::number("voice_mbit_s", 3),
    Column::number("voice_low_mbit_s", 3),
    Column::number("voice_high_mbit_s", 3),
    Column::number("lost_pct", 3),
    Column::number("delay_ms", 2),
];
const TCP: [&str; 3] = ["tcp_mbit_s", "tcp_low_mbit_s", "tcp_high_mbit_s"];
const VOICE: [&str; 3] = ["voice_mbit_s", "voice_low_mbit_s", "voice_high_mbit_s"];

/// Values of the columns `carried` and `counts`.
const SINGLY: &str = "singly";
const TFMC: &str = "tfmc";
const PACKETS: &str = "packets";
const BYTES: &str = "bytes";

/// Queue sizes in packets, or in bytes of as many TCP packets.
const ROOM: [usize; 5] = [20, 50, 100, 150, 200];
/// Bytes of a TCP packet with its headers.
const TCP_PACKET: usize = 1_040;
/// Calls begin within a millisecond, as in the paper's figures.
const SPREAD: Duration = Duration::from_millis(1);

/// The experiment on the bottleneck's queue.
pub fn experiment() -> Experiment {
    Experiment { revision: 2, ..one_figure(COLUMNS, Box::new(points), figure()) }
}

/// Number of runs, and the times at which flows begin and end.
pub fn extent(size: Size) -> (u64, Times) {
    let (runs, seconds) = size.pick((1, [1, 3, 1]), (3, [3, 8, 2]), (6, [10, 30, 5]));
    let [calls, end, settled] = seconds.map(Duration::from_secs);
    (runs, Times { calls, end, settled })
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let rooms: &[usize] = size.pick(&[50], &[50, 200], &ROOM);
    let places = rooms.iter().flat_map(|room| [PACKETS, BYTES].map(|counts| (counts, *room)));
    let (runs, times) = extent(size);
    let one = |(counts, room): (&'static str, usize)| Point {
        key: format!("{counts}-{room}"),
        x: room as f64,
        figures: vec![FIGURE],
        weight: 2.0 * runs as f64 * times.end.as_secs_f64() / 60.0,
        measure: Box::new(move |inputs| measure((counts, room), (size, sabotage), inputs)),
    };
    places.map(one).collect()
}

fn measure(
    (counts, room): (&'static str, usize),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, times) = extent(size);
    let queue = match counts {
        BYTES => link_model::Queue::Bytes(TCP_PACKET * room),
        _ => link_model::Queue::Packets(room),
    };
    let one = |name: &'static str| {
        let carried = match name {
            TFMC => Multiplexing::Tfmc(Config::default()),
            _ => Multiplexing::Singly,
        };
        let setup = Setup { queue, ..Setup::new(carried, SPREAD, times) };
        let favoured = counts == BYTES || name == TFMC;
        let narrow = sabotage.is("window-of-4") && favoured;
        let setup = if narrow { Setup { window: Some(4), ..setup } } else { setup };
        let runs: Vec<RunResult> = (0..runs)
            .map(|n| setup.run(inputs.seed.wrapping_add(n)))
            .collect::<Result<_, PointError>>()?;
        let mut row: Vec<Cell> = vec![name.into(), counts.into(), (room as u64).into()];
        row.push((runs.len() as u64).into());
        row.extend(mean_cells(&runs, RunResult::tcp_after));
        row.extend(mean_cells(&runs, RunResult::voice));
        row.push(mean_cells(&runs, |seen| 100.0 * seen.lost())[0].clone());
        row.push(mean_cells(&runs, RunResult::delay_ms)[0].clone());
        Ok(row)
    };
    [SINGLY, TFMC].map(one).into_iter().collect()
}

fn at(carried: &'static str, counts: &'static str, room: f64) -> impl Fn(&Record<'_>) -> bool {
    move |r| r.is("carried", carried) && r.is("counts", counts) && r.number("room_packets") == room
}

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "A TCP and calls, by the size of the queue",
        section: "beyond, after 5.4",
        caption: "The network of figures 6 to 8, with calls that begin within a millisecond, and a \
               bottleneck queue of 20 to 200 packets, or of the bytes of as many TCP packets.",
        chart: Box::new(chart),
        claims: vec![
            Claim {
                unit: "Mbit/s",
                measure: Box::new(|t| {
                    first(t, TCP, at(SINGLY, BYTES, 50.0)).minus(&first(
                        t,
                        TCP,
                        at(SINGLY, PACKETS, 50.0),
                    ))
                }),
                at: &[50.0],
                ..claim(
                    "bytes",
                    "next to calls without multiplexing, a TCP gets more if the queue counts \
                     bytes, which favours the calls' short packets, than with 50 packets",
                    Bound::above(0.0, BEFORE),
                    "window-of-4",
                )
            },
            Claim {
                unit: "Mbit/s",
                measure: Box::new(|t| {
                    first(t, TCP, at(TFMC, PACKETS, 200.0)).minus(&first(
                        t,
                        TCP,
                        at(SINGLY, PACKETS, 200.0),
                    ))
                }),
                at: &[200.0],
                ..claim(
                    "long",
                    "with a queue of 200 packets, enough for those of all calls at once, TFMC \
                     still gives the TCP more",
                    Bound::above(0.0, BEFORE),
                    "window-of-4",
                )
            },
        ],
    }
}

fn chart(table: &Table) -> Panels {
    let panel = |counts: &'static str| {
        let of = |(n, name, carried, columns): (usize, &'static str, &'static str, _)| {
            line(table, (name, Style::nth(n)), ("room_packets", columns), move |r| {
                r.is("carried", carried) && r.is("counts", counts)
            })
        };
        let series = [
            (0, "TCP with TFMC", TFMC, &TCP[..]),
            (1, "calls with TFMC", TFMC, &VOICE[..]),
            (2, "TCP with single packets", SINGLY, &TCP[..]),
            (3, "calls, single packets", SINGLY, &VOICE[..]),
        ];
        let label = format!("Mbit/s, queue of {counts}");
        Panel::new(Axis::linear(&label, (0.0, 8.0), 2.0), series.map(of).into())
    };
    Panels {
        title: "By the size of the queue".to_owned(),
        x: Axis::linear("queue size (packets of the TCP)", (0.0, 200.0), 50.0),
        panels: vec![panel(PACKETS), panel(BYTES)],
        guides: Vec::new(),
    }
}
