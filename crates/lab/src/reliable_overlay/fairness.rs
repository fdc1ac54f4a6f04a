//! Fairness of reliable links with TCPs at a bottleneck, and of streams that share a chain.

use super::network::MESSAGE;
use super::throughput::{Reader, Writer};
use super::{BEFORE, mean_cells};
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::table::{Cell, Column, Record, Table};
use crate::tfmc::network::within;
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Queue, Red};
use trunkline_base::{Bitrate, Rng, Time, rng};
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{HostId, RouterId, Topology, World};

const COLUMNS: &[Column] = &[
    Column::text("flows").parameter(),
    Column::number("of_each", 0).parameter(),
    Column::number("delay_ms", 0).parameter(),
    Column::text("queue").parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("jain", 4),
    Column::number("jain_low", 4),
    Column::number("jain_high", 4),
    Column::number("ratio", 3),
    Column::number("ratio_low", 3),
    Column::number("ratio_high", 3),
    Column::number("ours_mbit_s", 3),
    Column::number("tcp_mbit_s", 3),
];
const JAIN: [&str; 3] = ["jain", "jain_low", "jain_high"];
const RATIO: [&str; 3] = ["ratio", "ratio_low", "ratio_high"];

/// Values of the column `flows`.
const BESIDE_TCPS: &str = "links beside TCPs";
const STREAMS: &str = "streams";

const EACH: [u32; 3] = [1, 2, 4];
/// One-way delays of the bottleneck, in milliseconds.
const DELAYS: [u64; 2] = [10, 50];
/// Values of the column `queue`.
const QUEUES: [(&str, Queue); 2] = [("drop-tail", Queue::Packets(100)), ("red", RED)];
/// The thresholds of 10 and 30 packets are a fifth and three fifths of what the shorter path holds.
const RED: Queue = Queue::Red(Red {
    unit: trunkline_base::link_model::Unit::Packets,
    limit: 100,
    min: 10.0,
    max: 30.0,
    max_p: 0.1,
    weight: 0.002,
    packet: 1_000,
    gentle: true,
    ecn: false,
});
/// Rate of the bottleneck and of each link of the chain, in bits per second.
const RATE: u64 = 20_000_000;
/// Smallest value that a ratio uses, in Mbit/s.
const MIN_MBIT_S: f64 = 0.001;
/// Number of streams that share a chain.
const SHARING: u32 = 4;
const HOPS: usize = 3;

const PORT: u16 = 5_000;
/// Nodes find each other within this time; flows begin within the second after it.
const START: Duration = Duration::from_secs(3);
const WITHIN: Duration = Duration::from_secs(1);

/// The experiment on how flows share a bottleneck.
pub fn experiment() -> Experiment {
    Experiment {
        revision: 3,
        ..super::experiment("fairness", COLUMNS, Box::new(points), vec![figure()])
    }
}

/// Number of runs, and the time before and during the measurement.
fn spans(size: Size) -> (u64, [Duration; 2]) {
    let (runs, before, measured) = size.pick((1, 2, 3), (3, 8, 30), (10, 20, 120));
    (runs, [before, measured].map(Duration::from_secs))
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, spans) = spans(size);
    let cost = 0.06 * runs as f64 * (spans[0] + spans[1]).as_secs_f64();
    let point = |key: String, each: u32, measure| Point {
        key,
        x: each.into(),
        figures: vec!["fairness"],
        weight: cost,
        measure,
    };
    let mut points = Vec::new();
    for delay in DELAYS {
        for (name, queue) in QUEUES {
            for each in EACH {
                let at = (each, delay, name);
                points.push(point(
                    format!("{name}-{delay}-{each}"),
                    each,
                    Box::new(move |inputs: &Inputs<'_>| {
                        let run = |seed| beside(each, (delay, queue), spans, sabotage, seed);
                        row((BESIDE_TCPS, at), runs, inputs, run)
                    }),
                ));
            }
        }
    }
    let at = (SHARING, 10, QUEUES[0].0);
    points.push(point(
        "streams".into(),
        SHARING,
        Box::new(move |inputs: &Inputs<'_>| {
            row((STREAMS, at), runs, inputs, |seed| streams(spans, sabotage, seed))
        }),
    ));
    points.retain(|p| match size {
        Size::Tiny => ["streams", "red-10-2"].contains(&p.key.as_str()),
        Size::Quick => p.key == "streams" || p.x == 2.0,
        Size::Full => true,
    });
    points
}

/// Goodput of each overlay flow and of each TCP, in Mbit/s.
type Shares = [Vec<f64>; 2];

fn row(
    (flows, (each, delay, queue)): (&'static str, (u32, u64, &'static str)),
    runs: u64,
    inputs: &Inputs<'_>,
    run: impl Fn(u64) -> Result<Shares, PointError>,
) -> Result<Cells, PointError> {
    let runs: Vec<Shares> =
        (0..runs).map(|n| run(inputs.seed.wrapping_add(n))).collect::<Result<_, _>>()?;
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let all = |f: &dyn Fn(&Shares) -> f64| runs.iter().map(f).collect::<Vec<f64>>();
    let mut row: Vec<Cell> = vec![flows.into(), u64::from(each).into(), delay.into()];
    row.extend([queue.into(), Cell::from(runs.len() as u64)]);
    row.extend(mean_cells(&all(&|run| jain(&run.concat()))));
    // The mean of logarithms: a share twice the other's is as far off as half of it.
    let [estimate, low, high] = {
        // A TCP that gets nothing has a ratio too; without TCPs there is none.
        let at_least = |x: f64| if x < MIN_MBIT_S { MIN_MBIT_S } else { x };
        let [ours, tcps] = [0, 1].map(|n| all(&|run| at_least(mean(&run[n]))));
        let logs: Vec<f64> = ours.iter().zip(&tcps).map(|(a, b)| libm::log(a / b)).collect();
        let m = trunkline_base::stats::Mean::of(&logs);
        [m.estimate, m.interval.0, m.interval.1].map(libm::exp)
    };
    row.extend([estimate, low, high].map(Cell::from));
    row.extend([0, 1].map(|n| Cell::from(mean(&all(&|run| mean(&run[n]))))));
    Ok(vec![row])
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// Two routers with a bottleneck between them, and hosts on both sides.
struct Net {
    world: World,
    routers: [RouterId; 2],
    rng: Rng,
}

impl Net {
    fn plug(&mut self, hosts: [HostId; 2]) -> Result<(), PointError> {
        let access = LinkModel {
            rate: Some(Bitrate::from_bps(5 * RATE)),
            delay: Duration::from_millis(1),
            queue: Queue::Packets(1_000),
            ..LinkModel::default()
        };
        for (host, router) in hosts.into_iter().zip(self.routers) {
            self.world.cable(host, router, access.clone(), access.clone())?;
        }
        Ok(())
    }

    fn start(&mut self) -> Time {
        Time::ZERO + START + within(WITHIN, &mut self.rng)
    }
}

/// Runs this many reliable links and as many TCPs over the same bottleneck.
fn beside(
    each: u32,
    (delay, queue): (u64, Queue),
    [before, measured]: [Duration; 2],
    sabotage: Sabotage,
    seed: u64,
) -> Result<Shares, PointError> {
    let mut topology = Topology::new();
    let hosts: Vec<HostId> = (1..=2 * each).map(|id| topology.host(NodeId(id))).collect();
    let way = Duration::from_millis(delay + 2);
    hosts.chunks(2).for_each(|pair| topology.routed_link(pair[0], pair[1], way, way));
    let service = match sabotage.is("best-effort-links") {
        true => Service::BestEffort,
        false => Service::Reliable,
    };
    let mut world = topology.over(IpVersion::V4).build(seed)?;
    let routers = [world.add_router(), world.add_router()];
    let (delay, rate) = (Duration::from_millis(delay), Some(Bitrate::from_bps(RATE)));
    let narrow = LinkModel { delay, rate, queue, ..LinkModel::default() };
    world.cable(routers[0], routers[1], narrow.clone(), narrow)?;
    let mut net = Net { world, routers, rng: rng(seed, 1) };
    let mut readers = Vec::new();
    for (pair, to) in hosts.chunks(2).zip((2..).step_by(2)) {
        net.plug([pair[0], pair[1]])?;
        readers.push(net.world.attach(pair[1], PORT, Reader::default())?);
        let start = net.start();
        net.world.attach(pair[0], 0, Writer::new(service, MESSAGE, NodeId(to), start))?;
    }
    let mut sinks = Vec::new();
    for n in 0..each {
        let [a, b] = [net.world.add_plain_host(), net.world.add_plain_host()];
        net.plug([a, b])?;
        let (to, profile) = (net.world.endpoint(b, PORT), Profile::linux_6());
        let sink = Sink::new(profile.clone(), PORT, n);
        sinks.push(net.world.bind(b, Protocol::TCP, PORT, sink)?);
        let span = (net.start(), Time::NEVER);
        let bulk = Bulk::new(profile, PORT, to, n, span, u64::MAX);
        net.world.bind(a, Protocol::TCP, PORT, bulk)?;
    }
    let bytes = |world: &World| {
        let links = readers.iter().map(|&reader| world.app(reader).bytes).collect::<Vec<_>>();
        [links, sinks.iter().map(|&sink| world.agent(sink).bytes()).collect()]
    };
    Ok(shares(&mut net.world, bytes, [before, measured]))
}

/// Runs streams from the first node of a chain to the last.
fn streams(
    [before, measured]: [Duration; 2],
    sabotage: Sabotage,
    seed: u64,
) -> Result<Shares, PointError> {
    let rate = Some(Bitrate::from_bps(RATE));
    let model = LinkModel { delay: Duration::from_millis(10), rate, ..LinkModel::default() };
    let mut world = Topology::chain(vec![model; HOPS]).build(seed)?;
    let mut rng = rng(seed, 1);
    let mut sinks = Vec::new();
    for n in 0..SHARING {
        let mut start = Time::ZERO + START + within(WITHIN, &mut rng);
        if n == 0 && sabotage.is("best-effort-links") {
            // One flow gets nothing, as if the others had taken it all.
            start += before + measured;
        }
        let port = PORT + n as u16;
        sinks.push(world.attach(HostId(HOPS as u32), port, StreamSink::default())?);
        let to = NodeId(HOPS as u32 + 1);
        let source = StreamSource::new(to, port, start, Writing::Bulk(u64::MAX));
        world.attach(HostId(0), 0, source)?;
    }
    let bytes =
        |world: &World| [sinks.iter().map(|&sink| world.app(sink).read).collect(), Vec::new()];
    Ok(shares(&mut world, bytes, [before, measured]))
}

/// Goodput of each flow in the time that counts.
fn shares(
    world: &mut World,
    bytes: impl Fn(&World) -> [Vec<u64>; 2],
    [before, measured]: [Duration; 2],
) -> Shares {
    let begin = Time::ZERO + START + WITHIN + before;
    world.run_until(begin);
    let earlier = bytes(world);
    world.run_until(begin + measured);
    let later = bytes(world);
    let mbit_s =
        |(later, earlier): (&u64, &u64)| 8e-6 * (later - earlier) as f64 / measured.as_secs_f64();
    [0, 1].map(|n| later[n].iter().zip(&earlier[n]).map(mbit_s).collect())
}

fn figure() -> Figure {
    let of = |flows: &'static str, columns: [&'static str; 3]| {
        move |t: &Table| -> Vec<Measured> {
            let note = |r: Record<'_>| {
                let [each, delay] = ["of_each", "delay_ms"].map(|column| r.number(column));
                let queue = r.text("queue");
                Measured::of(&r, columns).noting(format!("{each} of each, {delay} ms, {queue}."))
            };
            t.iter().filter(|r| r.is("flows", flows)).map(note).collect()
        }
    };
    let (ratios, jains, streams) =
        (of(BESIDE_TCPS, RATIO), of(BESIDE_TCPS, JAIN), of(STREAMS, JAIN));
    let nothing = || Measured::census(f64::NAN);
    let off = |m: &Measured| libm::fabs(libm::log(m.estimate));
    let least = move |all: Vec<Measured>| {
        let least = all.into_iter().min_by(|a, b| a.estimate.total_cmp(&b.estimate));
        least.unwrap_or_else(nothing)
    };
    Figure {
        name: "fairness",
        title: "Fairness of reliable links with TCPs at a bottleneck, and of streams over a chain",
        section: "Spines congestion control and reliability",
        caption: "1, 2 and 4 reliable links, each with unlimited data, and as many TCPs of Linux 6 \
               (Reno) over one bottleneck of 20 Mbit/s and 10 or 50 ms, with a queue of 100 \
               packets and with random early detection (10 and 30 packets, gentle, without marks): \
               Jain's index over all, and the goodput of a link against that of a TCP, in bytes of \
               messages. And four streams from end to end over the same three links of 10 ms.",
        chart: Box::new(panels),
        claims: vec![
            Claim {
                unit: "of a TCP's",
                measure: Box::new(move |t| {
                    let all = ratios(t).into_iter();
                    all.max_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_else(nothing)
                }),
                ..Claim::holding(
                    "ratio",
                    "where the two differ most, a reliable link carries between half and twice \
                     what a TCP does",
                    None,
                    Bound::within(0.5, 2.0, BEFORE),
                    "best-effort-links",
                )
            },
            Claim {
                measure: Box::new(move |t| least(jains(t))),
                ..Claim::holding(
                    "jain",
                    "Jain's index over all links and TCPs is at least 0.9 at every place",
                    None,
                    Bound::at_least(0.9, BEFORE),
                    "best-effort-links",
                )
            },
            Claim {
                measure: Box::new(move |t| least(streams(t))),
                ..Claim::holding(
                    "streams",
                    "Jain's index over four streams that share a chain is at least 0.9",
                    None,
                    Bound::at_least(0.9, BEFORE),
                    "best-effort-links",
                )
            },
        ],
    }
}

fn panels(table: &Table) -> Panels {
    let series = |columns: [&str; 3]| -> Vec<Series> {
        let places = DELAYS.iter().flat_map(|&delay| QUEUES.map(|(queue, _)| (delay, queue)));
        let one = |(n, (delay, queue)): (usize, (u64, &str))| {
            let is = |r: &Record<'_>| {
                r.is("flows", BESIDE_TCPS)
                    && r.is("queue", queue)
                    && r.number("delay_ms") == delay as f64
            };
            let mark = |r: Record<'_>| {
                let Measured { estimate, interval, .. } = Measured::of(&r, columns);
                Mark { x: r.number("of_each"), y: estimate, interval: Some(interval) }
            };
            let points = table.iter().filter(is).map(mark).collect();
            Series { name: format!("{delay} ms, {queue}"), style: Style::nth(n), points }
        };
        places.enumerate().map(one).collect()
    };
    Panels {
        title: "Reliable links and as many TCPs".to_owned(),
        x: Axis::linear("of each", (0.0, 5.0), 1.0),
        panels: vec![
            Panel::new(Axis::log("a link's goodput / a TCP's", (0.2, 5.0)), series(RATIO)),
            Panel::new(Axis::linear("Jain's index", (0.5, 1.0), 0.1), series(JAIN)),
        ],
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_of_equal_shares_and_the_least_of_one() {
        assert_eq!(jain(&[2.0; 4]), 1.0);
        assert_eq!(jain(&[3.0, 0.0, 0.0, 0.0]), 0.25);
    }
}
