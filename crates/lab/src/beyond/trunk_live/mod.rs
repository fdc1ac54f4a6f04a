//! Calls over a link that is too slow for them without a trunk, with a trunk and without: between
//! two simulated nodes, and between two daemons over the same modelled link.

mod figures;
mod testbed;

use super::{PAPER, means};
use crate::chain::DEADLINE;
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::scenario::{self, Call, Carrier, Host, Link, Scenario};
use crate::table::{Cell, Column, Table};
use crate::testbed::PLACES;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_media::quality::emodel::{Codec, Parameters, rate};
use trunkline_net::IpVersion;
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{DATA_OVERHEAD, NodeId, Service};

const FIGURE: &str = "trunk-live";

/// Quantities that claims compare: each has a mean and both ends of its 95 % interval.
const COMPARED: [&str; 5] = ["packets_s", "bytes_per_packet", "missed_pct", "r", "delay_p99_ms"];
/// Quantities with only a mean in the table.
const TOLD: [&str; 6] =
    ["mbit_s", "dropped_pct", "cpu_a_pct", "cpu_b_pct", "late_us", "callers_late_pct"];

const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("trunk").parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("calls", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("packets_s", 1),
    Column::number("packets_s_low", 1),
    Column::number("packets_s_high", 1),
    Column::number("bytes_per_packet", 2),
    Column::number("bytes_per_packet_low", 2),
    Column::number("bytes_per_packet_high", 2),
    Column::number("missed_pct", 4),
    Column::number("missed_pct_low", 4),
    Column::number("missed_pct_high", 4),
    Column::number("r", 2),
    Column::number("r_low", 2),
    Column::number("r_high", 2),
    Column::number("delay_p99_ms", 2),
    Column::number("delay_p99_ms_low", 2),
    Column::number("delay_p99_ms_high", 2),
    Column::number("mbit_s", 3),
    Column::number("dropped_pct", 2),
    Column::number("cpu_a_pct", 1),
    Column::number("cpu_b_pct", 1),
    Column::number("late_us", 0),
    Column::number("callers_late_pct", 2),
    Column::text("valid"),
];

/// Bytes of a packet: RTP header, and 20 ms of G.729.
const PACKET: usize = 12 + 20;
/// Number of packets that a call sends per second.
const PER_SECOND: f64 = 50.0;
/// Bytes of the IPv6 and UDP headers of a packet.
const IP_UDP: usize = 48;
/// Bytes on the link of a packet that no trunk carries.
const ALONE: usize = IP_UDP + DATA_OVERHEAD + PACKET;
/// One-way delay of the link.
const DELAY: Duration = Duration::from_millis(20);
/// Time from speech to packet: the 20 ms of speech in it.
const PACKETIZATION: Duration = Duration::from_millis(20);
/// Loss on the link, in percent.
const LOSSES: [f64; 2] = [0.0, 1.0];
/// Number of calls in the simulator.
const CALLS: u32 = 500;

/// One measured configuration: the number of calls, whether they have a trunk, and the loss.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Params {
    has_trunk: bool,
    /// Loss in each direction, in percent.
    loss: f64,
    calls: u32,
}

impl Params {
    /// Every place with this many calls; only those without loss for [`Size::Tiny`].
    fn all(size: Size, calls: u32) -> impl Iterator<Item = Params> {
        let losses = size.pick(&LOSSES[..1], &LOSSES, &LOSSES);
        let of = move |has_trunk| losses.iter().map(move |&loss| Params { has_trunk, loss, calls });
        [false, true].into_iter().flat_map(of)
    }

    /// Value of the column `trunk`.
    fn name(&self) -> &'static str {
        if self.has_trunk { "fill" } else { "none" }
    }

    /// Name of the place in files and samples.
    fn key(&self) -> String {
        format!("{}-{}-{}", self.name(), self.loss, self.calls)
    }

    /// Rate of the link, in bit/s: exactly what the calls would take as plain UDP over IPv6.
    fn rate(&self) -> u64 {
        u64::from(self.calls) * 8 * (PACKET + IP_UDP) as u64 * PER_SECOND as u64
    }

    /// The place as a scenario that lasts `seconds`.
    fn scenario(&self, seconds: u64, sabotage: Sabotage) -> Scenario {
        let (mut a, b) = (Host::new("a"), Host::new("b"));
        if self.has_trunk && !sabotage.is("no-trunk") {
            a.trunks.push(trunk::Config::new(NodeId(2)));
        }
        let rate = if sabotage.is("twice-the-rate") { 2 * self.rate() } else { self.rate() };
        let p = self.loss / 100.0;
        let model = LinkModel {
            delay: DELAY,
            rate: Some(Bitrate::from_bps(rate)),
            queue: Queue::Packets(100),
            loss: if p > 0.0 { Loss::Bernoulli { p } } else { Loss::None },
            ..LinkModel::default()
        };
        Scenario {
            name: FIGURE.into(),
            length: Duration::from_secs(seconds),
            ip: IpVersion::V6,
            pesq: false,
            sealed: true,
            hosts: vec![a, b],
            routers: Vec::new(),
            links: vec![Link::between((0, 1), model)],
            calls: vec![Call {
                name: "calls".into(),
                ends: (0, 1),
                count: self.calls,
                carrier: Carrier::Overlay(Service::RealTime),
                bytes: PACKET,
                threshold: DEADLINE,
            }],
            streams: Vec::new(),
            transfers: Vec::new(),
            programs: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// The quantities of one run: [`COMPARED`], then [`TOLD`].
type Run = [f64; COMPARED.len() + TOLD.len()];

/// The quantities of a run that lasted `seconds`, from its tables; `told` holds the last four of
/// [`TOLD`], which only the testbed has.
fn seen(calls: &Table, links: &Table, seconds: u64, told: [f64; 4]) -> Run {
    let there = links.iter().find(|r| r.is("way", "there") && r.is("class", "all"));
    let count = |column| there.map_or(f64::NAN, |r| r.number(column));
    let of_calls = |column| calls.iter().next().map_or(f64::NAN, |r| r.number(column));
    let (seconds, bytes) = (seconds as f64, count("offered_bytes"));
    let missed = of_calls("missed_pct");
    let heard = Parameters::default()
        .with_delay(DEADLINE + PACKETIZATION)
        .with_codec(Codec::G729A)
        .with_loss(missed / 100.0, 1.0);
    let [cpu_a, cpu_b, late, callers_late] = told;
    [
        count("offered") / seconds,
        bytes / of_calls("sent"),
        missed,
        // Below 0 the scale has no meaning.
        rate(&heard).r.max(0.0),
        of_calls("delay_p99_ms"),
        8e-6 * bytes / seconds,
        100.0 * count("queue_dropped") / count("offered"),
        cpu_a,
        cpu_b,
        late,
        callers_late,
    ]
}

/// The row of a place for these runs.
fn row(at: &str, place: &Params, runs: &[Run], valid: bool) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![at.into(), place.name().into(), place.loss.into()];
    row.extend([u64::from(place.calls), runs.len() as u64].map(Cell::from));
    row.extend(means::cells(runs, COMPARED.len()));
    row.push(Cell::yes(valid));
    row
}

/// The experiment on calls over a link that is too slow for them without a trunk.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "trunk-link",
        revision: 1,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: vec![figures::simulated()],
        testbed: Some(testbed::testbed()),
    }
}

/// Number of runs in the simulator, and length of the calls, in seconds.
fn extent(size: Size) -> (u64, u64) {
    size.pick((1, 1), (3, 2), (8, 20))
}

/// The points of the simulator, with the testbed's number of calls too if that differs.
fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, seconds) = extent(size);
    let one = |place: Params| {
        let measure = move |inputs: &Inputs<'_>| {
            let run = |n| {
                let scenario = place.scenario(seconds, sabotage);
                let done = scenario::simulate(&scenario, None, inputs.seed.wrapping_add(n))?;
                Ok(seen(&done.calls, &done.links, seconds, [f64::NAN; 4]))
            };
            let runs = (0..runs).map(run).collect::<Result<Vec<Run>, PointError>>()?;
            Ok(vec![row(PLACES[0], &place, &runs, true)])
        };
        Point {
            key: place.key(),
            x: place.loss,
            figures: vec![FIGURE],
            weight: 3e-4 * f64::from(place.calls) * (runs * seconds) as f64,
            measure: Box::new(measure),
        }
    };
    let mut calls = vec![CALLS, testbed::CALLS];
    calls.dedup();
    calls.into_iter().flat_map(|calls| Params::all(size, calls)).map(one).collect()
}

/// The testbed's rows. `runs` gives the runs at a place, and whether they are valid.
fn rows_of(runs: impl Fn(&Params) -> (Vec<Run>, bool)) -> Cells {
    let row = |place: Params| {
        let (runs, valid) = runs(&place);
        (!runs.is_empty()).then(|| row(PLACES[1], &place, &runs, valid))
    };
    Params::all(Size::Full, testbed::CALLS).filter_map(row).collect()
}
