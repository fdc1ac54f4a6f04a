//! Files over streams, compared with a TCP from end to end over the same links.

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the programs on a testbed's hosts use sockets and files"
)]
mod carry;
mod figure;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real daemons need real time, and separate files"
)]
mod testbed;

pub use carry::{By, Part, carry};

use super::mean_cells;
use super::network::lay;
use crate::chain::DEADLINE;
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::reliable_overlay::network::over_routers;
use crate::table::{Cell, Column};
use crate::testbed::PLACES;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::link;
use trunkline_overlay::node::Routing;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::voice::{CallOutcome, VoiceSink, VoiceSource};
use trunkline_sim::{AppId, HostId, Topology, WireId, World};

const COLUMNS: &[Column] = &[
    Column::text("where").parameter(),
    Column::text("carried").parameter(),
    Column::text("network").parameter(),
    Column::number("mib", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("mbit_s", 3),
    Column::number("mbit_s_low", 3),
    Column::number("mbit_s_high", 3),
    Column::number("astray", 0),
    Column::number("repeated", 1),
    Column::number("kills", 0),
    Column::number("detour_pct", 1),
    Column::number("missed_pct", 4),
    Column::number("missed_low_pct", 4),
    Column::number("missed_high_pct", 4),
    Column::text("valid"),
];
const MBIT_S: [&str; 3] = ["mbit_s", "mbit_s_low", "mbit_s_high"];
const MISSED: [&str; 3] = ["missed_pct", "missed_low_pct", "missed_high_pct"];

/// Values of the column `carried`.
const STREAM: &str = "stream";
const SEALED: &str = "stream-sealed";
/// Over links with packets as large as the TCPs', instead of the default of 1,280 bytes.
const LARGE: &str = "stream-1500";
const TCPS: [&str; 2] = ["linux-2.4", "linux-6"];
const CALLS: &str = "calls";
const CALLS_BESIDE: &str = "calls-beside-stream";

/// Values of the column `network`.
const LOSSY: &str = "lossy";
const CLEAN: &str = "clean";
const FAILING: &str = "failing";
const PACED: &str = "lossy-paced";

/// The row of links: their number, delay and rate, and the loss of the middle one in both
/// directions.
const HOPS: usize = 3;
const DELAY: Duration = Duration::from_millis(10);
const RATE: u64 = 20_000_000;
const LOSS: f64 = 0.01;
/// The links of the ring: their rate and loss.
const RING_RATE: u64 = 8_000_000;
const RING_LOSS: f64 = 0.005;
/// How often its relay fails, and for how long: longer than its neighbours need to notice.
const KILLS: u32 = 5;
const DOWN: Duration = Duration::from_millis(1_500);
/// Send rate of nodes that have the rate of their links configured: lower than that by the part of
/// the datagrams' headers that nodes don't count.
const PACE: u64 = 19_500_000;
/// Number of G.711 calls with 20 ms packets.
const CALL_COUNT: u16 = 10;

const PORT: u16 = 5_000;
/// By this time nodes have found each other.
const START: Time = Time::from_millis(3_000);
/// Timeout of a file, per MiB.
const PATIENCE: Duration = Duration::from_secs(30);

/// The experiment on file transfers.
pub fn experiment() -> Experiment {
    let figures = vec![figure::figure()];
    Experiment {
        revision: 3,
        testbed: Some(testbed::testbed()),
        ..super::experiment("transfer", COLUMNS, Box::new(points), figures)
    }
}

/// A row of links with a middle one that loses this share.
fn links(loss: f64) -> Vec<LinkModel> {
    let rate = Some(Bitrate::from_bps(RATE));
    let mut links = vec![LinkModel { delay: DELAY, rate, ..LinkModel::default() }; HOPS];
    if loss > 0.0 {
        links[HOPS / 2].loss = Loss::Bernoulli { p: loss };
    }
    links
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, mib, large) = size.pick((1, 1, 2), (8, 8, 16), (10, 64, 256));
    let point = |key: &str, n: f64, weight: f64, measure| Point {
        key: key.into(),
        x: n,
        figures: vec!["transfer"],
        weight,
        measure,
    };
    let ring = size.pick(1, 16, 64);
    let each = 0.05 * (runs * mib) as f64;
    vec![
        point(
            LOSSY,
            0.0,
            4.0 * each,
            Box::new(move |i: &Inputs<'_>| files((LOSSY, LOSS), mib, runs, sabotage, i)),
        ),
        point(
            CLEAN,
            1.0,
            0.2 * large as f64,
            // Without loss, nothing is random.
            Box::new(move |i: &Inputs<'_>| files((CLEAN, 0.0), large, 1, sabotage, i)),
        ),
        point(
            FAILING,
            2.0,
            2.0 * each,
            Box::new(move |i: &Inputs<'_>| failing(ring, runs, sabotage, i)),
        ),
        point(
            "calls",
            3.0,
            4.0 * each,
            Box::new(move |i: &Inputs<'_>| calls(mib, runs, sabotage, i)),
        ),
    ]
}

/// Results of one file.
#[derive(Clone, Copy)]
struct Moved {
    mbit_s: f64,
    /// Bytes that didn't arrive, and bytes that differ from what was written.
    astray: u64,
    /// Packets that the stream retransmitted from end to end.
    retransmitted: f64,
    /// Number of times that a relay failed during the transfer.
    kills: f64,
    /// Share of the first node's traffic that took the longer path, in percent.
    detour_pct: f64,
    /// Share of the concurrent calls' packets that were missed, in percent.
    missed_pct: f64,
}

impl Moved {
    /// An empty result, with NaN for what was not measured.
    const NONE: Moved = Moved {
        mbit_s: 0.0,
        astray: 0,
        retransmitted: f64::NAN,
        kills: f64::NAN,
        detour_pct: f64::NAN,
        missed_pct: f64::NAN,
    };
}

/// A row of the simulator.
fn row(carried: &str, network: &str, mib: u64, runs: &[Moved]) -> Vec<Cell> {
    row_at(PLACES[0], (carried, network, mib), runs, true)
}

fn row_at(
    at: &str,
    (carried, network, mib): (&str, &str, u64),
    runs: &[Moved],
    valid: bool,
) -> Vec<Cell> {
    let of = |f: fn(&Moved) -> f64| runs.iter().map(f).collect::<Vec<f64>>();
    let mut row: Vec<Cell> = vec![at.into(), carried.into(), network.into(), mib.into()];
    row.push((runs.len() as u64).into());
    row.extend(mean_cells(&of(|run| run.mbit_s)));
    row.push(runs.iter().map(|run| run.astray).sum::<u64>().into());
    let mean = |f: fn(&Moved) -> f64| of(f).iter().sum::<f64>() / runs.len() as f64;
    row.push(mean(|run| run.retransmitted).into());
    row.push(of(|run| run.kills).into_iter().reduce(f64::min).unwrap_or(f64::NAN).into());
    row.push(mean(|run| run.detour_pct).into());
    row.extend(mean_cells(&of(|run| run.missed_pct)));
    row.push(Cell::yes(valid));
    row
}

fn each(
    runs: u64,
    inputs: &Inputs<'_>,
    run: impl Fn(u64) -> Result<Moved, PointError>,
) -> Result<Vec<Moved>, PointError> {
    (0..runs).map(|n| run(inputs.seed.wrapping_add(n))).collect()
}

fn files(
    (network, loss): (&'static str, f64),
    mib: u64,
    runs: u64,
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let stream = |carried: &'static str| {
        move |seed| {
            if sabotage.is("end-to-end-only") {
                return File::new(over_routers(links(loss), seed)?, HostId(1), mib)?.whole();
            }
            let mut topology = Topology::chain(links(loss));
            if carried == SEALED {
                topology.seal();
            }
            let mtu = match carried {
                _ if sabotage.is("short-messages") => Some(576),
                LARGE => Some(1_500),
                _ => None,
            };
            if let Some(mtu) = mtu {
                adjust(&mut topology, HOPS as u32, |link| link.mtu = mtu);
            }
            File::new(topology.over(IpVersion::V4).build(seed)?, HostId(HOPS as u32), mib)?.whole()
        }
    };
    let mut rows = [STREAM, SEALED, LARGE]
        .into_iter()
        .map(|name| Ok(row(name, network, mib, &each(runs, inputs, stream(name))?)))
        .collect::<Result<Cells, PointError>>()?;
    for (name, profile) in TCPS.into_iter().zip([Profile::linux_2_4(), Profile::linux_6()]) {
        let run = |seed| tcp(&profile, loss, mib, seed);
        rows.push(row(name, network, mib, &each(runs, inputs, run)?));
    }
    Ok(rows)
}

fn adjust(topology: &mut Topology, last: u32, change: impl Fn(&mut link::Config)) {
    (0..=last)
        .for_each(|host| topology.config_mut(HostId(host)).links.iter_mut().for_each(&change));
}

/// A file in transfer over a stream.
struct File {
    world: World,
    source: AppId<StreamSource>,
    sink: AppId<StreamSink>,
    bytes: u64,
}

impl File {
    /// Starts a file from the first host to `last`.
    fn new(mut world: World, last: HostId, mib: u64) -> Result<File, PointError> {
        let (to, bytes) = (NodeId(last.0 + 1), mib << 20);
        let sink = world.attach(last, PORT, StreamSink::default())?;
        let source = StreamSource::new(to, PORT, START, Writing::Bulk(bytes));
        let source = world.attach(HostId(0), 0, source)?;
        Ok(File { world, source, sink, bytes })
    }

    fn is_under_way(&self) -> bool {
        let reset = self.world.app(self.source).reset;
        self.world.app(self.sink).ended.is_none() && reset.is_none()
    }

    /// Continues until the whole file has arrived, or has timed out.
    fn whole(&mut self) -> Result<Moved, PointError> {
        let last = START + PATIENCE * (self.bytes >> 20) as u32;
        while self.is_under_way() && self.world.now() < last {
            self.world.run_until(self.world.now() + Duration::from_millis(500));
        }
        Ok(self.moved(f64::NAN))
    }

    fn moved(&self, missed_pct: f64) -> Moved {
        let sink = self.world.app(self.sink);
        // A transfer that was reset has an end too.
        let is_right = sink.resets.is_empty() && self.world.app(self.source).reset.is_none();
        let astray = if is_right { self.bytes.abs_diff(sink.read) } else { self.bytes };
        let took = sink.ended.map_or(f64::INFINITY, |end| end.since(START).as_secs_f64());
        Moved {
            mbit_s: 8e-6 * sink.read as f64 / took,
            astray: astray + sink.wrong,
            retransmitted: self.world.node(HostId(0)).stats().streams.retransmitted as f64,
            missed_pct,
            ..Moved::NONE
        }
    }
}

/// Sends the same file by a TCP from end to end, over routers.
fn tcp(profile: &Profile, loss: f64, mib: u64, seed: u64) -> Result<Moved, PointError> {
    let mut world = World::new(IpVersion::V4, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    lay(&mut world, (a, b), links(loss))?;
    let (to, bytes) = (world.endpoint(b, PORT), mib << 20);
    let sink = world.bind(b, Protocol::TCP, PORT, Sink::new(profile.clone(), PORT, 7))?;
    let span = (START, Time::NEVER);
    let bulk = Bulk::new(profile.clone(), PORT, to, seed as u32, span, bytes);
    world.bind(a, Protocol::TCP, PORT, bulk)?;
    let last = START + PATIENCE * mib as u32;
    let mut now = START;
    while world.agent(sink).bytes() < bytes && now < last {
        now += Duration::from_millis(10);
        world.run_until(now);
    }
    let came = world.agent(sink).bytes();
    let mbit_s = 8e-6 * came as f64 / now.since(START).as_secs_f64();
    Ok(Moved { mbit_s, astray: bytes - came, ..Moved::NONE })
}

/// Sends a file over a ring of five nodes, with two links in one direction and three in the other.
/// The relay on the shorter path fails five times and restarts, so that the route changes to the
/// other path and back.
fn failing(
    mib: u64,
    runs: u64,
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let run = |sealed: bool| {
        move |seed| {
            let mut topology = Topology::new();
            for id in 1..=5 {
                topology.host(NodeId(id));
            }
            for (a, b) in [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2)] {
                let loss = Loss::Bernoulli { p: RING_LOSS };
                let rate = Some(Bitrate::from_bps(RING_RATE));
                let model = LinkModel { delay: DELAY, rate, loss, ..LinkModel::default() };
                topology.link(HostId(a), HostId(b), model.clone(), model);
            }
            topology.link_state(&Routing::default());
            if sealed {
                topology.seal();
            }
            let mut file = File::new(topology.over(IpVersion::V4).build(seed)?, HostId(2), mib)?;
            // All failures are within the shortest possible duration of the transfer, unless the
            // file is small.
            let least = Duration::from_secs(8 * (mib << 20) / RING_RATE);
            let every = (least / KILLS).max(2 * DOWN);
            let mut kills = 0.0;
            for n in 0..KILLS {
                file.world.run_until(START + every * n + every / 2);
                file.world.crash(HostId(1));
                file.world.run_until(file.world.now() + DOWN);
                kills += f64::from(u8::from(file.is_under_way()));
                if sabotage.is("end-crashes") && n == 2 {
                    file.world.crash(HostId(2));
                    file.world.restart(HostId(2))?;
                }
                file.world.restart(HostId(1))?;
            }
            let moved = file.whole()?;
            let [short, long] = [0, 2].map(|wire| {
                let [there, _] = file.world.ledgers(WireId(wire));
                there.offered.bytes as f64
            });
            Ok(Moved { kills, detour_pct: 100.0 * long / (short + long), ..moved })
        }
    };
    let ours = [(STREAM, false), (SEALED, true)];
    let row = |(name, sealed)| Ok(row(name, FAILING, mib, &each(runs, inputs, run(sealed))?));
    ours.into_iter().map(row).collect()
}

/// Calls over the same links, alone and with a file: with nodes that have the rate of their links
/// configured, so that only they queue packets, and with others.
fn calls(
    mib: u64,
    runs: u64,
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let mut rows = Vec::new();
    // Queues the calls behind the file.
    let service = match sabotage.is("calls-as-files") {
        true => Service::Reliable,
        false => Service::RealTime,
    };
    for (network, pace) in [(LOSSY, None), (PACED, Some(Bitrate::from_bps(PACE)))] {
        // At most as long as the file takes.
        let packets = 50 * (8 * (mib << 20) / RATE);
        for (name, bytes) in [(CALLS, 0), (CALLS_BESIDE, mib)] {
            let run = |seed| {
                let mut topology = Topology::chain(links(LOSS));
                adjust(&mut topology, HOPS as u32, |link| link.rate = pace);
                let mut file = File::new(
                    topology.over(IpVersion::V4).build(seed)?,
                    HostId(HOPS as u32),
                    bytes,
                )?;
                let world = &mut file.world;
                let mut calls = Vec::new();
                for n in 0..CALL_COUNT {
                    let start = START + Duration::from_millis(2) * u32::from(n);
                    let (to, port) = (NodeId(HOPS as u32 + 1), PORT + 1 + n);
                    let source = VoiceSource::new(to, port, service, start, packets);
                    let sink = world.attach(HostId(HOPS as u32), port, VoiceSink::default())?;
                    calls.push((world.attach(HostId(0), 0, source)?, sink));
                }
                let length = Duration::from_millis(20) * packets as u32;
                world.run_until(START + length + Duration::from_secs(1));
                let missed = CallOutcome::of(world, &calls, DEADLINE).missed.estimate;
                let sink = file.world.app(file.sink);
                let mbit_s = 8e-6 * sink.read as f64 / (length.as_secs_f64() + 1.0);
                Ok(Moved { mbit_s, astray: sink.wrong, ..file.moved(100.0 * missed) })
            };
            rows.push(row(name, network, bytes, &each(runs, inputs, run)?));
        }
    }
    Ok(rows)
}
