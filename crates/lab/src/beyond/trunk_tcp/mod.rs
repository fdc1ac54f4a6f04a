//! Calls that share a link with a TCP, as in figures 6 and 7 of Trad, Afifi: *Adaptive Multiplexing
//! Scheme for Voice Flow Transmission Across Best-Effort IP Networks* (INRIA RR-4929), but with the
//! overlay's nodes: simulated with a simulated TCP, and daemons with the kernel's.

mod figures;
mod testbed;

use super::{PAPER, means};
use crate::chain::DEADLINE;
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size, fnv1a};
use crate::scenario::{self, Call, Carrier, Host, Link, Scenario, Transfer, Vertex};
use crate::table::{Cell, Column, Table};
use crate::testbed::PLACES;
use crate::tfmc::network::within;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Queue};
use trunkline_base::{Bitrate, rng};
use trunkline_net::IpVersion;
use trunkline_overlay::trunk::{Config, Multiplex};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::tcp::Profile;

const FIGURE: &str = "trunk-tcp";

/// Quantities that have an interval.
const COMPARED: [&str; 4] = ["tcp_mbit_s", "voice_mbit_s", "missed_pct", "delay_p99_ms"];

const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("calls").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("tcp_mbit_s", 3),
    Column::number("tcp_mbit_s_low", 3),
    Column::number("tcp_mbit_s_high", 3),
    Column::number("voice_mbit_s", 3),
    Column::number("voice_mbit_s_low", 3),
    Column::number("voice_mbit_s_high", 3),
    Column::number("missed_pct", 3),
    Column::number("missed_pct_low", 3),
    Column::number("missed_pct_high", 3),
    Column::number("delay_p99_ms", 2),
    Column::number("delay_p99_ms_low", 2),
    Column::number("delay_p99_ms_high", 2),
    Column::number("packets_s", 0),
    Column::number("bytes_per_packet", 1),
    Column::number("dropped_pct", 2),
    Column::number("late_us", 0),
    Column::number("callers_late_pct", 2),
    Column::text("valid"),
];

/// A run's quantities, in the order of their columns.
type Run = [f64; 9];

/// Number of calls in the paper (section 5.4).
const CALLS: u32 = 200;
/// Bytes of a packet: RTP header, and 20 ms of G.729.
const PACKET: usize = 12 + 20;
/// The bottleneck (section 5.4): its rate in Mbit/s, its delay, and its queue, ns-2's default.
const RATE: u64 = 10;
const DELAY: Duration = Duration::from_millis(10);
const QUEUE: Queue = Queue::Packets(50);
/// Rate of the access links, which the paper doesn't give.
const ACCESS_RATE: u64 = 100;
const ACCESS_DELAY: Duration = Duration::from_millis(1);
/// The TCP begins at a random time within this long after the calls, so that no two runs are the
/// same, and lasts this much shorter than the run: the kernel's can only send for whole seconds.
const WITHIN: Duration = Duration::from_secs(1);
/// Name of the transfer and of its links.
const TCP: &str = "tcp";

/// Transport of the calls.
#[derive(Clone, Copy, PartialEq, Debug)]
struct TrunkMode {
    /// Value of the column `calls`.
    name: &'static str,
    /// The trunk's mode; `None` without calls.
    multiplex: Option<Multiplex>,
}

/// All transports, in the order of the rows.
const ALL: [TrunkMode; 4] = [
    TrunkMode { name: "none", multiplex: None },
    TrunkMode { name: "off", multiplex: Some(Multiplex::Off) },
    TrunkMode { name: "fill", multiplex: Some(Multiplex::Fill) },
    TrunkMode { name: "tfmc", multiplex: Some(Multiplex::Tfmc) },
];

fn mbit_s(rate: u64) -> Option<Bitrate> {
    Some(Bitrate::from_bps(1_000_000 * rate))
}

impl TrunkMode {
    /// The calls from `a` to `b`, and the TCP from `c` to `d`, over the same bottleneck for
    /// `seconds`.
    fn scenario(self, (seconds, seed): (u64, u64), sabotage: Sabotage) -> Scenario {
        let multiplex = match self.multiplex {
            _ if sabotage.is("no-calls") => None,
            Some(Multiplex::Off) if sabotage.is("swapped") => Some(Multiplex::Tfmc),
            Some(Multiplex::Tfmc) if sabotage.is("swapped") => Some(Multiplex::Off),
            as_named => as_named,
        };
        let length = Duration::from_secs(seconds);
        let from = within(WITHIN, &mut rng(seed, fnv1a(TCP.bytes())));
        let mut hosts: Vec<Host> = ["a", "b", "c", "d"].map(Host::new).into();
        for (from, to) in [(0, 2), (1, 1)] {
            if let Some(multiplex) = multiplex.filter(|_| !sabotage.is("no-trunk")) {
                hosts[from].trunks.push(Config { multiplex, ..Config::new(NodeId(to)) });
            }
        }
        let access = LinkModel {
            rate: mbit_s(ACCESS_RATE),
            delay: ACCESS_DELAY,
            queue: Queue::Packets(1_000),
            ..LinkModel::default()
        };
        let narrow =
            LinkModel { rate: mbit_s(RATE), delay: DELAY, queue: QUEUE, ..LinkModel::default() };
        let wire = |name: &str, ends, model: &LinkModel| Link {
            name: name.into(),
            named: false,
            ends,
            wire: Some([model.clone(), model.clone()]),
            overlay: None,
            routed: None,
        };
        let [near, far] = [0, 1].map(Vertex::Router);
        let way = DELAY + 2 * ACCESS_DELAY;
        let overlay = Link::between((0, 1), LinkModel::default());
        Scenario {
            name: FIGURE.into(),
            length,
            ip: IpVersion::V6,
            pesq: false,
            sealed: true,
            hosts,
            routers: vec!["near".into(), "far".into()],
            links: vec![
                Link { wire: None, routed: Some([way, way]), ..overlay },
                wire("a", (Vertex::Host(0), near), &access),
                wire("c", (Vertex::Host(2), near), &access),
                wire("bottleneck", (near, far), &narrow),
                wire("voice", (far, Vertex::Host(1)), &access),
                wire(TCP, (far, Vertex::Host(3)), &access),
            ],
            calls: multiplex.iter().map(|_| calls()).collect(),
            streams: Vec::new(),
            transfers: vec![Transfer {
                name: TCP.into(),
                ends: (2, 3),
                from,
                until: from + length - WITHIN,
                congestion: "reno",
                profile: Profile::linux_6(),
            }],
            programs: Vec::new(),
            faults: Vec::new(),
        }
    }
}

fn calls() -> Call {
    Call {
        name: "calls".into(),
        ends: (0, 1),
        count: CALLS,
        carrier: Carrier::Overlay(Service::RealTime),
        bytes: PACKET,
        threshold: DEADLINE,
    }
}

/// The quantities of a run that lasted `seconds`, from its tables; `late` holds those that only the
/// testbed has.
fn seen(calls: &Table, links: &Table, seconds: u64, late: [f64; 2]) -> Run {
    let count = |link: &str, column: &str| {
        let is_it = |r: &crate::table::Record<'_>| {
            r.is("link", link) && r.is("way", "there") && r.is("class", "all")
        };
        links.iter().find(is_it).map_or(f64::NAN, |r| r.number(column))
    };
    let of_calls = |column| calls.iter().next().map_or(f64::NAN, |r| r.number(column));
    let seconds = seconds as f64;
    let arrived = |link, seconds| 8e-6 * count(link, "arrived_bytes") / seconds;
    [
        arrived(TCP, seconds - WITHIN.as_secs_f64()),
        arrived("voice", seconds),
        of_calls("missed_pct"),
        of_calls("delay_p99_ms"),
        count("a", "offered") / seconds,
        count("a", "offered_bytes") / of_calls("sent"),
        100.0 * count("bottleneck", "queue_dropped") / count("bottleneck", "offered"),
        late[0],
        late[1],
    ]
}

fn row(at: &str, carried: TrunkMode, runs: &[Run], valid: bool) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![at.into(), carried.name.into(), (runs.len() as u64).into()];
    row.extend(means::cells(runs, COMPARED.len()));
    row.push(Cell::yes(valid));
    row
}

/// The experiment on calls that share a link with a TCP.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "trunk-beside-tcp",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::simulated()],
        testbed: Some(testbed::testbed()),
    }
}

/// Number of runs in the simulator, and length of the calls, in seconds.
fn extent(size: Size) -> (u64, u64) {
    size.pick((1, 2), (4, 10), (10, 60))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, seconds) = extent(size);
    let one = |carried: TrunkMode| {
        let measure = move |inputs: &Inputs<'_>| {
            let run = |n| {
                let seed = inputs.seed.wrapping_add(n);
                let scenario = carried.scenario((seconds, seed), sabotage);
                let done = scenario::simulate(&scenario, None, seed)?;
                Ok(seen(&done.calls, &done.links, seconds, [f64::NAN; 2]))
            };
            let runs = (0..runs).map(run).collect::<Result<Vec<Run>, PointError>>()?;
            Ok(vec![row(PLACES[0], carried, &runs, true)])
        };
        Point {
            key: carried.name.into(),
            x: 0.0,
            figures: vec![FIGURE],
            weight: 0.015 * (runs * seconds) as f64,
            measure: Box::new(measure),
        }
    };
    ALL.into_iter().map(one).collect()
}

/// The testbed's rows. `runs` gives the runs of each transport, and whether they are valid.
fn rows_of(runs: impl Fn(TrunkMode) -> (Vec<Run>, bool)) -> Cells {
    let row = |carried| {
        let (runs, valid) = runs(carried);
        (!runs.is_empty()).then(|| row(PLACES[1], carried, &runs, valid))
    };
    ALL.into_iter().filter_map(row).collect()
}
