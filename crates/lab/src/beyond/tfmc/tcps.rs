//! Many TCPs beside one trunk.

use super::queue::extent;
use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::mean_cells;
use crate::tfmc::network::{Carried, INTERVAL, Seen, Setup};
use trunkline_rate::tfmc::{Config, Segment};

const FIGURE: &str = "tfmc-tcps";

const COLUMNS: &[Column] = &[
    Column::text("carried"),
    Column::number("tcps", 0),
    Column::number("runs", 0),
    Column::number("tcp_each_mbit_s", 3),
    Column::number("tcp_each_low_mbit_s", 3),
    Column::number("tcp_each_high_mbit_s", 3),
    Column::number("voice_mbit_s", 3),
    Column::number("voice_low_mbit_s", 3),
    Column::number("voice_high_mbit_s", 3),
    Column::number("packets_per_datagram", 2),
    Column::number("over_share_pct", 2),
    Column::number("over_share_low_pct", 2),
    Column::number("over_share_high_pct", 2),
    Column::number("lost_pct", 3),
    Column::number("delay_ms", 2),
];
const EACH: [&str; 3] = ["tcp_each_mbit_s", "tcp_each_low_mbit_s", "tcp_each_high_mbit_s"];
const VOICE: [&str; 3] = ["voice_mbit_s", "voice_low_mbit_s", "voice_high_mbit_s"];
const OVER: [&str; 3] = ["over_share_pct", "over_share_low_pct", "over_share_high_pct"];

/// In the column `carried`; the last two are TFMC with a TCP's segment in its equation, and with
/// the datagram to come.
const SINGLY: &str = "singly";
const TFMC: &str = "tfmc";
const NOMINAL: &str = "tfmc-1460";
const CHOSEN: &str = "tfmc-chosen";
const CARRIED: [&str; 4] = [SINGLY, TFMC, NOMINAL, CHOSEN];
const TCPS: [u16; 6] = [1, 2, 4, 8, 16, 32];

/// The experiment on many TCPs beside one trunk.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let counts: &[u16] = size.pick(&[2], &[1, 8], &TCPS);
    let (runs, times) = extent(size);
    let one = |&tcps: &u16| Point {
        key: tcps.to_string(),
        x: tcps.into(),
        figures: vec![FIGURE],
        weight: 4.0 * runs as f64 * times.end.as_secs_f64() / 60.0,
        measure: Box::new(move |inputs| measure(tcps, (size, sabotage), inputs)),
    };
    counts.iter().map(one).collect()
}

fn measure(
    tcps: u16,
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, times) = extent(size);
    let one = |name: &'static str| {
        let carried = match name {
            _ if sabotage.is("no-tfmc") => Carried::Singly,
            _ if sabotage.is("everything-allowed") => Carried::Tfmc(generous()),
            SINGLY => Carried::Singly,
            TFMC => Carried::Tfmc(Config::default()),
            CHOSEN => Carried::Tfmc(Config { segment: Segment::Chosen, ..Config::default() }),
            _ => Carried::Tfmc(Config { segment: Segment::Nominal(1_460.0), ..Config::default() }),
        };
        let setup = Setup { tcps, window: None, ..Setup::new(carried, INTERVAL, times) };
        let runs: Vec<Seen> = (0..runs)
            .map(|n| setup.run(inputs.seed.wrapping_add(n)))
            .collect::<Result<_, PointError>>()?;
        let mut row: Vec<Cell> = vec![name.into(), u64::from(tcps).into()];
        row.push((runs.len() as u64).into());
        row.extend(mean_cells(&runs, |seen| seen.tcp_after() / f64::from(tcps)));
        row.extend(mean_cells(&runs, Seen::voice));
        row.push(mean_cells(&runs, Seen::packed)[0].clone());
        row.extend(mean_cells(&runs, |seen| 100.0 * seen.over_share()));
        row.push(mean_cells(&runs, |seen| 100.0 * seen.lost())[0].clone());
        row.push(mean_cells(&runs, Seen::delay_ms)[0].clone());
        Ok(row)
    };
    CARRIED.map(one).into_iter().collect()
}

/// Parameters with which the equation allows so much that nothing is ever too much.
fn generous() -> Config {
    Config { segment: Segment::Nominal(1e12), ..Config::default() }
}

fn at(carried: &'static str, tcps: u16) -> impl Fn(&Record<'_>) -> bool {
    move |r| r.is("carried", carried) && r.number("tcps") == f64::from(tcps)
}

/// Why some runs come out as they do.
const BISTABLE: &str = "Loss events are counted in datagrams, and there is one in a round trip at most: of \
                        10,000 datagrams in a second far fewer begin an event than of 217. A trunk that \
                        sends singly may find that it may, and one that sends 46 at a time that it must: \
                        runs stay in one or the other.";

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "Many TCPs beside one trunk",
        section: "beyond, after 5.4",
        says: "The network of figures 6 to 8, where the calls' packets are spread over 20 ms, with 1 \
               to 32 TCPs without a limit to their windows: what each TCP gets, what the calls get, \
               and how many of the reports leave the trunk over its share. Calls can't take less than \
               2.56 Mbit/s, the speech behind RTP's headers.",
        chart: Box::new(chart),
        claims: vec![
            Claim {
                unit: "Mbit/s",
                measure: Box::new(|t| first(t, VOICE, at(NOMINAL, 8))),
                expected: Verdict::Undecided,
                why: BISTABLE,
                at: &[8.0],
                ..claim(
                    "down-to-the-floor",
                    "beside eight TCPs a trunk under TFMC with a TCP's segment takes at most a fifth \
                     more than its speech behind RTP's headers",
                    Bound::at_most(1.2 * 2.56, BEFORE),
                    "no-tfmc",
                )
            },
            Claim {
                unit: "% of the reports",
                decimals: 1,
                measure: Box::new(|t| first(t, OVER, at(NOMINAL, 8))),
                expected: Verdict::Undecided,
                why: BISTABLE,
                at: &[8.0],
                ..claim(
                    "over-its-share",
                    "there it is over its share, as even that is more than a TCP gets, after nearly every \
                     report",
                    Bound::at_least(80.0, BEFORE),
                    "everything-allowed",
                )
            },
        ],
    }
}

fn chart(table: &Table) -> Panels {
    let panel = |y, columns: &'static [&'static str]| {
        let of = |(n, name): (usize, &'static str)| {
            line(table, (name, Style::nth(n)), ("tcps", columns), move |r| r.is("carried", name))
        };
        Panel::new(y, CARRIED.into_iter().enumerate().map(of).collect())
    };
    Panels {
        title: "Many TCPs beside one trunk".to_owned(),
        x: Axis::log("TCPs", (1.0, 100.0)),
        panels: vec![
            panel(Axis::linear("each TCP (Mbit/s)", (0.0, 8.0), 2.0), &EACH),
            panel(Axis::linear("calls (Mbit/s)", (0.0, 5.0), 1.0), &VOICE),
            panel(Axis::linear("over share (%)", (0.0, 100.0), 50.0), &OVER),
        ],
        guides: Vec::new(),
    }
}
