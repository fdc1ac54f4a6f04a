//! Calls that a trunk refuses while it sends more than a TCP would.

use super::{BEFORE, claim, experiment as one_figure, first, line};
use crate::claim::{Bound, Claim, Verdict};
use crate::dccp_voice::Codec;
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Panel, Panels, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::live::{HOSTS, INTERVAL, NODES, PORT, RTP, due, fill, rating};
use crate::tfmc::mean_cells;
use crate::tfmc::network::{mean_known, within};
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time, rng};
use trunkline_net::{Class, IpVersion, Protocol};
use trunkline_overlay::session::wire::{RefusalReason, ToClient};
use trunkline_overlay::trunk::{self, Multiplex};
use trunkline_overlay::wire::Service;
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
use trunkline_sim::voice::{VoiceLog, VoiceSource};
use trunkline_sim::{AppId, Application, Io, Topology, WireId, World};

const FIGURE: &str = "tfmc-admit";

const COLUMNS: &[Column] = &[
    Column::text("path").parameter(),
    Column::text("admit").parameter(),
    Column::number("offered", 0).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("refused_pct", 2),
    Column::number("refused_low_pct", 2),
    Column::number("refused_high_pct", 2),
    Column::number("r", 2),
    Column::number("r_low", 2),
    Column::number("r_high", 2),
    Column::number("better_by", 2),
    Column::number("better_by_low", 2),
    Column::number("better_by_high", 2),
    Column::number("good_pct", 2),
    Column::number("tcp_mbit_s", 3),
    Column::number("tcp_low_mbit_s", 3),
    Column::number("tcp_high_mbit_s", 3),
];
const REFUSED: [&str; 3] = ["refused_pct", "refused_low_pct", "refused_high_pct"];
const RATING: [&str; 3] = ["r", "r_low", "r_high"];
/// Difference in R from the run that admits all calls.
const BETTER: [&str; 3] = ["better_by", "better_by_low", "better_by_high"];
const TCP_RATE: [&str; 3] = ["tcp_mbit_s", "tcp_low_mbit_s", "tcp_high_mbit_s"];

/// Values of the column `path`: 2 Mbit/s that the trunk shares with a TCP, the same with calls
/// offered within 20 s instead of 5, or 10 Mbit/s that lose 3 % of all packets.
const BESIDE: &str = "tcp";
const SLOWLY: &str = "tcp-slowly";
const LOSSY: &str = "lossy";
/// Values of the column `admit`, as in a trunk's configuration.
const SHARE: &str = "share";
const ALL: &str = "all";

const OFFERED: [u32; 6] = [25, 50, 75, 100, 150, 200];
const DELAY: Duration = Duration::from_millis(10);
/// Queue of the narrower path, in bytes: 50 ms.
const ROOM: usize = 12_500;
const TCP: Class = Class(2);
const CODEC: Codec = Codec::G729;
/// R below which many users are dissatisfied (ITU-T G.107, table B.1).
const ENOUGH: f64 = 70.0;

/// The experiment on calls that are refused.
pub fn experiment() -> Experiment {
    one_figure(COLUMNS, Box::new(points), figure())
}

/// Number of runs; first and last time at which calls are offered; begin and end of the measurement
/// of admitted calls.
fn extent(size: Size, path: &str) -> (u64, [Time; 4]) {
    let within = match path {
        SLOWLY => 20,
        _ => size.pick(1, 5, 5),
    };
    // Runs fall in two groups, so a few of them say nothing about the mean.
    let (runs, [first, settle, measure]) =
        size.pick((1, [1, 1, 1]), (12, [2, 1, 2]), (6, [3, 2, 5]));
    let times = [first, first + within, first + within + settle];
    let [first, last, from] = times.map(|s| Time::from_millis(1_000 * s));
    (runs, [first, last, from, from + Duration::from_secs(measure)])
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let offered: &[u32] = size.pick(&[50], &[25, 200], &OFFERED);
    let places = offered.iter().flat_map(|n| [BESIDE, SLOWLY, LOSSY].map(|path| (path, *n)));
    // The behaviour of a few calls doesn't depend on how fast they arrive.
    let places = places.filter(|(path, offered)| *path != SLOWLY || *offered >= 100);
    let one = |(path, offered): (&'static str, u32)| {
        let (runs, times) = extent(size, path);
        let seconds = times[3].since(times[0]).as_secs_f64();
        Point {
            key: format!("{path}-{offered}"),
            x: offered.into(),
            figures: vec![FIGURE],
            weight: 1e-4 * runs as f64 * seconds * f64::from(offered),
            measure: Box::new(move |inputs| measure((path, offered), (size, sabotage), inputs)),
        }
    };
    places.map(one).collect()
}

fn measure(
    (path, offered): (&'static str, u32),
    (size, sabotage): (Size, Sabotage),
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let (runs, times) = extent(size, path);
    let mbit_s = |admit| match path {
        LOSSY if admit == ALL && sabotage.is("narrow-for-all") => 2,
        LOSSY => 10,
        _ => 2,
    };
    let loss = if path == LOSSY { Loss::Bernoulli { p: 0.03 } } else { Loss::None };
    // A point is named after the requested settings, even when a sabotage changes them.
    let offers = if sabotage.is("400-offered") { 400 } else { offered };
    let setup = |admit| Setup {
        rate: Bitrate::from_bps(1_000_000 * mbit_s(admit)),
        loss: loss.clone(),
        tcp: path != LOSSY,
        admit_share: match () {
            () if sabotage.is("admit-all") => false,
            () if sabotage.is("share-admits-all") => admit == ALL,
            () => admit == SHARE,
        },
        offered: offers,
        times,
    };
    let all = |admit| {
        let seeds = (0..runs).map(|n| inputs.seed.wrapping_add(n));
        seeds.map(|seed| setup(admit).run(seed)).collect::<Result<Vec<Run>, _>>()
    };
    let [share, all] = [all(SHARE)?, all(ALL)?];
    let row = |admit: &str, runs: &[Run]| {
        let mut row: Vec<Cell> = vec![path.into(), admit.into(), u64::from(offered).into()];
        row.push((runs.len() as u64).into());
        row.extend(mean_cells(runs, |run| 100.0 * run.refused));
        row.extend(mean_cells(runs, |run| run.r));
        let pairs: Vec<(&Run, &Run)> = runs.iter().zip(&all).collect();
        row.extend(mean_cells(&pairs, |(run, all)| run.r - all.r));
        row.push(mean_cells(runs, |run| 100.0 * run.good)[0].clone());
        row.extend(mean_cells(runs, |run| run.tcp_mbit_s));
        row
    };
    Ok(vec![row(SHARE, &share), row(ALL, &all)])
}

/// A call that gives up when it is refused.
struct Caller {
    source: VoiceSource,
    is_refused: bool,
}

impl Application for Caller {
    fn start(&mut self, io: &mut Io<'_>) {
        self.source.start(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if !self.is_refused {
            self.source.wake(io);
        }
    }

    fn receive(&mut self, message: &ToClient<'_>, _: &mut Io<'_>) {
        self.is_refused |=
            matches!(message, ToClient::Error { refusal: RefusalReason::OverShare, .. });
    }
}

type Call = (AppId<Caller>, AppId<VoiceLog>);

/// A trunk over a path, and the calls offered to it.
struct Setup {
    rate: Bitrate,
    loss: Loss,
    tcp: bool,
    admit_share: bool,
    offered: u32,
    times: [Time; 4],
}

/// The share of refused calls, the mean R of the others, the share of those with an R of at least
/// [`ENOUGH`], and the TCP's throughput.
struct Run {
    refused: f64,
    r: f64,
    good: f64,
    tcp_mbit_s: f64,
}

impl Setup {
    fn run(&self, seed: u64) -> Result<Run, PointError> {
        let (mut world, bottleneck) = self.build(seed)?;
        let calls = self.calls(&mut world, seed)?;
        let [_, _, from, to] = self.times;
        let tcp = |world: &World| world.class_ledgers(bottleneck, TCP)[0].arrived.bytes;
        world.run_until(from);
        let before = tcp(&world);
        world.run_until(to);
        let tcp_bytes = tcp(&world) - before;
        // Packets still in flight arrive.
        world.run_until(to + Duration::from_secs(1));
        let (refused, there): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|(source, _)| world.app(*source).is_refused);
        let rated = |&(source, sink): &Call| {
            let origin = world.origin(source);
            rating(due(&world.app(source).source, (world.app(sink), origin), (from, to)), CODEC)
        };
        let rated: Vec<f64> = there.iter().map(rated).collect();
        let good = rated.iter().filter(|r| **r >= ENOUGH).count();
        Ok(Run {
            refused: refused.len() as f64 / f64::from(self.offered),
            r: mean_known(rated.iter().copied()),
            good: good as f64 / rated.len() as f64,
            tcp_mbit_s: 8e-6 * tcp_bytes as f64 / to.since(from).as_secs_f64(),
        })
    }

    /// Builds hosts on separate links at both ends of a bottleneck, and returns the bottleneck.
    fn build(&self, seed: u64) -> Result<(World, WireId), PointError> {
        let mut topology = Topology::new();
        let [a, b] = NODES.map(|id| topology.host(id));
        topology.routed_link(a, b, DELAY, DELAY);
        topology.config_mut(a).trunks.push(trunk::Config {
            multiplex: Multiplex::Tfmc,
            admit_share: self.admit_share,
            ..fill(Duration::from_millis(5))
        });
        topology.seal();
        let mut world = topology.over(IpVersion::V4).build(seed)?;
        let routers = [world.add_router(), world.add_router()];
        let queue = Queue::Bytes(ROOM);
        let clean =
            LinkModel { rate: Some(self.rate), delay: DELAY, queue, ..LinkModel::default() };
        let narrow = LinkModel { loss: self.loss.clone(), ..clean.clone() };
        let bottleneck = world.cable(routers[0], routers[1], narrow, clean)?;
        let mut ends = vec![[a, b]];
        if self.tcp {
            ends.push([world.add_plain_host(), world.add_plain_host()]);
        }
        for (host, router) in ends.iter().flat_map(|ends| ends.iter().zip(routers)) {
            let rate = Some(Bitrate::from_bps(100_000_000));
            let access = LinkModel {
                rate,
                delay: Duration::from_millis(1),
                queue: Queue::Packets(1_000),
                ..LinkModel::default()
            };
            world.cable(*host, router, access.clone(), access)?;
        }
        for &[a, b] in &ends[1..] {
            let profile = Profile { window_limit: None, ..Profile::ns2_reno() };
            let to = world.endpoint(b, PORT);
            let start = Time::ZERO + within(Duration::from_millis(100), &mut rng(seed, 2));
            world.bind(b, Protocol::TCP, PORT, Sink::new(profile.clone(), PORT, 1))?;
            let bulk = Bulk::new(profile, PORT, to, 1, (start, Time::NEVER), u64::MAX);
            world.bind(a, Protocol::TCP, PORT, bulk)?;
            world.set_class(a, Protocol::TCP, PORT, TCP)?;
        }
        Ok((world, bottleneck))
    }

    /// Calls that begin at random times and last until the end.
    fn calls(&self, world: &mut World, seed: u64) -> Result<Vec<Call>, PointError> {
        let [first, last, _, end] = self.times;
        let mut rng = rng(seed, 1);
        let one = |k: u32| {
            let (port, start) = (PORT + k as u16, first + within(last.since(first), &mut rng));
            let count = end.since(start).as_nanos() / INTERVAL.as_nanos() + 1;
            let count = count as u64;
            let mut source = VoiceSource::new(NODES[1], port, Service::RealTime, start, count);
            source.bytes = RTP + CODEC.framing().payload();
            // Allows for a TCP's queue and a retransmission.
            source.deadline_ms = 200;
            let sink = world.attach(HOSTS[1], port, VoiceLog::default())?;
            Ok((world.attach(HOSTS[0], 0, Caller { source, is_refused: false })?, sink))
        };
        (0..self.offered).map(one).collect()
    }
}

fn at(path: &'static str, admit: &'static str, offered: u32) -> impl Fn(&Record<'_>) -> bool {
    move |r| r.is("path", path) && r.is("admit", admit) && r.number("offered") == f64::from(offered)
}

/// Reason why the link is left without headroom.
const FULL: &str = "A trunk learns that it exceeds its share from losses, and has few before the \
                    link is full, while the TCP gives way: some 165 calls are admitted, and \
                    without a TCP the link carries 131 (tfmc-load). Calls that have been admitted \
                    stay.";

fn figure() -> Figure {
    Figure {
        name: FIGURE,
        title: "Calls refused by a trunk over its share",
        section: "beyond, after 5.3",
        caption: "Calls of G.729 offered within 5 s to a trunk between overlay nodes with TFMC (waits \
               of at most 5 ms), which last to the end: over 2 Mbit/s that are shared with a TCP \
               without a window limit, there also within 20 s, and over 10 Mbit/s that lose 3 % of \
               all packets. With admit = \"share\" new calls are refused while the trunk sends \
               more than a TCP would; with \"all\" none is. Mean R of the admitted calls, each \
               with the best possible playout and a further delay of 38 ms.",
        chart: Box::new(chart),
        claims: claims(),
    }
}

/// The claim that of 200 calls offered, those admitted are good enough.
fn good(id: &'static str, says: &'static str, path: &'static str, expected: Verdict) -> Claim {
    let why = "below, many users are dissatisfied (G.107, table B.1)";
    Claim {
        unit: "R",
        measure: Box::new(move |t| first(t, RATING, at(path, SHARE, 200)).limited(0.0, 100.0)),
        at: &[200.0],
        expected,
        why: FULL,
        ..claim(id, says, Bound::at_least(ENOUGH, why), "admit-all")
    }
}

fn claims() -> Vec<Claim> {
    let beside = |columns, path, admit, offered| {
        move |t: &Table| first(t, columns, at(path, admit, offered))
    };
    vec![
        good(
            "good",
            "of 200 calls offered within 5 s next to a TCP, those that a trunk admits by its share \
             are good enough",
            BESIDE,
            Verdict::Fails,
        ),
        good("good-slowly", "so are those of 200 within 20 s", SLOWLY, Verdict::Undecided),
        Claim {
            unit: "R",
            measure: Box::new(beside(BETTER, BESIDE, SHARE, 200)),
            at: &[200.0],
            ..claim(
                "better",
                "offered within 5 s, they are better than if all are admitted",
                Bound::above(0.0, BEFORE),
                "share-admits-all",
            )
        },
        Claim {
            unit: "Mbit/s",
            measure: Box::new(|t| {
                first(t, TCP_RATE, at(SLOWLY, SHARE, 200)).limited(0.0, f64::INFINITY)
            }),
            at: &[200.0],
            expected: Verdict::Fails,
            why: FULL,
            ..claim(
                "tcp",
                "offered within 20 s, they leave the TCP at least half of its half of the link",
                Bound::at_least(0.5, BEFORE),
                "admit-all",
            )
        },
        Claim {
            unit: "%",
            measure: Box::new(beside(REFUSED, BESIDE, SHARE, 25)),
            at: &[25.0],
            ..claim(
                "few",
                "of 25 calls, which take less than a TCP, nearly none is refused",
                Bound::at_most(5.0, BEFORE),
                "400-offered",
            )
        },
        Claim {
            unit: "R",
            measure: Box::new(|t| first(t, BETTER, at(LOSSY, SHARE, 200)).abs()),
            at: &[200.0],
            ..claim(
                "in-vain",
                "where a path loses packets whatever the load, refusing calls has no use: those \
                 that are admitted are no better for it",
                Bound::at_most(1.0, BEFORE),
                "narrow-for-all",
            )
        },
    ]
}

fn chart(table: &Table) -> Panels {
    const PATHS: [(&str, &str); 3] =
        [(BESIDE, "with a TCP"), (SLOWLY, "slowly"), (LOSSY, "3 % lost")];
    let panel = |y, columns: &'static [&'static str], paths: &[(&'static str, &'static str)]| {
        let kinds = paths.iter().flat_map(|kind| [SHARE, ALL].map(|admit| (*kind, admit)));
        let of = |(n, ((path, words), admit)): (usize, ((&'static str, &str), &'static str))| {
            let name = (format!("{admit}, {words}"), Style::nth(n));
            line(table, name, ("offered", columns), move |r| {
                r.is("path", path) && r.is("admit", admit)
            })
        };
        Panel::new(y, kinds.enumerate().map(of).collect())
    };
    Panels {
        title: "Calls offered to a trunk with TFMC".to_owned(),
        x: Axis::linear("calls offered", (0.0, 200.0), 50.0),
        panels: vec![
            panel(Axis::linear("R", (0.0, 100.0), 25.0), &RATING, &PATHS),
            panel(Axis::linear("refused (%)", (0.0, 100.0), 25.0), &REFUSED, &PATHS),
            panel(Axis::linear("TCP (Mbit/s)", (0.0, 2.0), 0.5), &TCP_RATE, &PATHS[..2]),
        ],
        guides: Vec::new(),
    }
}
