//! Throughput of a reliable link, compared with a TCP over the same link: figure 9, and the
//! overheads.

use super::network::{MESSAGE, QUEUE};
use super::{BEFORE, DEFAULT_PACKETS, FULL_PACKETS, line, mean_cells, ratio};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Chart, Style, one_panel};
use crate::table::{Cell, Column, Record, Table};
use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss, Queue};
use trunkline_base::{Bitrate, Time};
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::session::wire::{ToClient, ToNode};
use trunkline_overlay::wire::{DATA_OVERHEAD, NodeId, Service};
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};
use trunkline_sim::stream::{StreamSink, StreamSource, Writing};
use trunkline_sim::{Application, HostId, Io, Topology, World};

const COLUMNS: &[Column] = &[
    Column::text("carried").parameter(),
    Column::number("rate_mbit_s", 1).parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("goodput_mbit_s", 4),
    Column::number("goodput_low_mbit_s", 4),
    Column::number("goodput_high_mbit_s", 4),
];
const GOODPUT: [&str; 3] = ["goodput_mbit_s", "goodput_low_mbit_s", "goodput_high_mbit_s"];

/// Values of the column `carried`.
const LINK: &str = "link";
const BEST_EFFORT: &str = "best-effort";
const STREAM: &str = "stream";
const STREAM_MTU: &str = "stream-mtu";
/// The same with packets as full as the TCP's.
const FULL: [&str; 3] = ["link-full", "best-effort-full", "stream-full"];
const TCPS: [&str; 2] = ["linux-2.4", "linux-6"];

/// The rate of figure 9's link in Mbit/s, and the shares of packets that it loses in both
/// directions, in tenths of a percent.
const FIG9_RATE: f64 = 10.0;
const LOSSES: [u32; 7] = [0, 2, 5, 8, 10, 15, 20];
/// Rates of the links without loss, in Mbit/s.
const RATES: [f64; 7] = [0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0];
const DELAY: Duration = Duration::from_millis(10);

/// Bytes around a message: the overlay's, and the headers of IPv4 and UDP; and Ethernet's header,
/// which the simulator doesn't count.
const AROUND: usize = DATA_OVERHEAD + Protocol::UDP.headers(IpVersion::V4);
const ETHERNET: f64 = 14.0;
/// Bytes of a message whose packet is as long as the TCP's longest.
const FULL_MESSAGE: usize = 1_500 - AROUND;
/// Bytes of a stream's header in front of its data.
const STREAM_HEAD: usize = 5;
/// Largest IP packets of a link, counted with IPv6's header: for a stream whose packets have a
/// message each, and for one that uses a link's default. The third is the smallest that a node
/// accepts.
const MTUS: [usize; 3] = [MESSAGE + STREAM_HEAD + DATA_OVERHEAD + 48, 1_280, 576];
/// Bytes by which IPv4's header is shorter than IPv6's, with which links count.
const IPV4_SHORTER: usize = IpVersion::V6.header() - IpVersion::V4.header();
/// The [`MTUS`] entry for packets of 1,500 bytes.
const FULL_MTU: usize = 1_500 + IPV4_SHORTER;

pub const PORT: u16 = 5_000;
/// By this time nodes have found each other.
const START: Time = Time::from_millis(3_000);

/// The experiment behind figure 9 and the overheads.
pub fn experiment() -> Experiment {
    let figures = vec![fig9(), overheads()];
    Experiment {
        revision: 4,
        ..super::experiment("throughput", COLUMNS, Box::new(points), figures)
    }
}

/// Time before a run counts, and the time for which it counts.
#[derive(Clone, Copy)]
struct Span {
    before: Duration,
    measured: Duration,
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let (runs, seconds) = size.pick((1, 4), (4, 20), (10, 120));
    let losses: &[u32] = size.pick(&[10], &[0, 5, 10, 20], &LOSSES);
    let rates: &[f64] = size.pick(&[1.0], &[0.5, 10.0, 50.0], &RATES);
    let span = |runs: u64, seconds: u64| {
        let span = Span {
            before: Duration::from_secs(seconds / 4),
            measured: Duration::from_secs(seconds),
        };
        (runs, span)
    };
    let lossy = losses.iter().map(|&tenths| {
        let loss = f64::from(tenths) / 1_000.0;
        let (runs, span) = span(runs, seconds);
        Point {
            key: format!("loss-{tenths}"),
            x: f64::from(tenths) / 10.0,
            figures: vec!["fig9"],
            weight: 0.04 * runs as f64 * span.measured.as_secs_f64(),
            measure: Box::new(move |i| measure((FIG9_RATE, loss), (runs, span), sabotage, i)),
        }
    });
    let clean = rates.iter().map(|&rate| {
        // Without loss, nothing is random. A slow link's queue empties in bursts, of which a run
        // needs some.
        let (runs, span) = span(1, (size.pick(8.0, 40.0, 120.0) / rate.min(1.0)) as u64);
        Point {
            key: format!("rate-{rate}"),
            x: rate,
            figures: vec!["overheads"],
            weight: 0.005 * rate * span.measured.as_secs_f64(),
            measure: Box::new(move |i| measure((rate, 0.0), (runs, span), sabotage, i)),
        }
    });
    lossy.chain(clean).collect()
}

fn measure(
    (rate, loss): (f64, f64),
    (runs, span): (u64, Span),
    sabotage: Sabotage,
    inputs: &Inputs<'_>,
) -> Result<Cells, PointError> {
    let model = |bytes: f64| {
        // Links are slower by the share of Ethernet's header.
        let rate = Bitrate::from_bps((1e6 * rate * bytes / (bytes + ETHERNET)) as u64);
        let loss = if loss > 0.0 { Loss::Bernoulli { p: loss } } else { Loss::None };
        LinkModel {
            delay: DELAY,
            rate: Some(rate),
            loss,
            queue: queue(rate),
            ..LinkModel::default()
        }
    };
    let ours = |service, bytes: usize| {
        let service = match service {
            Service::Reliable if sabotage.is("best-effort-links") => Service::BestEffort,
            service => service,
        };
        let link = model((bytes + AROUND) as f64);
        let bytes = if sabotage.is("short-messages") { MESSAGE / 5 } else { bytes };
        move |seed| overlay((service, bytes), link.clone(), span, seed)
    };
    let streaming = |mtu: usize| {
        let mtu = if sabotage.is("short-messages") { MTUS[2] } else { mtu };
        move |seed| stream(mtu, model((mtu - IPV4_SHORTER) as f64), span, seed)
    };
    let tcp = |profile: Profile| {
        let (packet, is_v6) = (profile.mtu as f64, sabotage.is("ipv6"));
        let ip = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
        move |seed| tcp((&profile, ip), model(packet), span, seed)
    };
    let mut rows = Vec::new();
    let mut row = |name: &'static str, run: &dyn Fn(u64) -> Result<f64, PointError>| {
        let goodputs: Vec<f64> =
            (0..runs).map(|n| run(inputs.seed.wrapping_add(n))).collect::<Result<_, _>>()?;
        let mut row: Vec<Cell> = vec![name.into(), rate.into(), (100.0 * loss).into(), runs.into()];
        row.extend(mean_cells(&goodputs));
        rows.push(row);
        Ok::<(), PointError>(())
    };
    row(LINK, &ours(Service::Reliable, MESSAGE))?;
    if loss == 0.0 {
        row(BEST_EFFORT, &ours(Service::BestEffort, MESSAGE))?;
        row(STREAM, &streaming(MTUS[0]))?;
        row(STREAM_MTU, &streaming(MTUS[1]))?;
        row(FULL[0], &ours(Service::Reliable, FULL_MESSAGE))?;
        row(FULL[1], &ours(Service::BestEffort, FULL_MESSAGE))?;
        row(FULL[2], &streaming(FULL_MTU))?;
    }
    row(TCPS[0], &tcp(Profile::linux_2_4()))?;
    row(TCPS[1], &tcp(Profile::linux_6()))?;
    Ok(rows)
}

/// A queue of at least 20 ms at this rate, so that a window that halves leaves no gap.
fn queue(rate: Bitrate) -> Queue {
    let Queue::Packets(least) = QUEUE else { return QUEUE };
    Queue::Packets(least.max((rate.as_bps() as f64 * 0.020 / 8.0 / 1_000.0) as usize))
}

/// Goodput of messages over one link between two nodes, in Mbit/s.
fn overlay(
    (service, bytes): (Service, usize),
    model: LinkModel,
    span: Span,
    seed: u64,
) -> Result<f64, PointError> {
    let mut topology = Topology::chain([model.clone()]);
    for host in [0, 1] {
        let mtu = &mut topology.config_mut(HostId(host)).links[0].mtu;
        *mtu = (*mtu).max(bytes + AROUND + IPV4_SHORTER);
    }
    if service == Service::BestEffort {
        // No other limit applies.
        topology.config_mut(HostId(0)).links[0].rate = model.rate;
    }
    let mut world = topology.over(IpVersion::V4).build(seed)?;
    let reader = world.attach(HostId(1), PORT, Reader::default())?;
    world.attach(HostId(0), 0, Writer::new(service, bytes, NodeId(2), START))?;
    goodput(&mut world, START, span, |world| world.app(reader).bytes)
}

/// Goodput of a stream from end to end over one link, in Mbit/s, with packets of at most `mtu`
/// bytes.
fn stream(mtu: usize, model: LinkModel, span: Span, seed: u64) -> Result<f64, PointError> {
    let mut topology = Topology::chain([model]);
    for host in [0, 1] {
        topology.config_mut(HostId(host)).links[0].mtu = mtu;
    }
    let mut world = topology.over(IpVersion::V4).build(seed)?;
    let reader = world.attach(HostId(1), PORT, StreamSink::default())?;
    let source = StreamSource::new(NodeId(2), PORT, START, Writing::Bulk(u64::MAX));
    world.attach(HostId(0), 0, source)?;
    goodput(&mut world, START, span, |world| world.app(reader).read)
}

/// Goodput of a TCP over one link, in Mbit/s.
fn tcp(
    (profile, ip): (&Profile, IpVersion),
    model: LinkModel,
    span: Span,
    seed: u64,
) -> Result<f64, PointError> {
    let mut world = World::new(ip, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    world.cable(a, b, model.clone(), model)?;
    let to = world.endpoint(b, PORT);
    let sink = world.bind(b, Protocol::TCP, PORT, Sink::new(profile.clone(), PORT, 7))?;
    let always = (Time::ZERO, Time::NEVER);
    let bulk = Bulk::new(profile.clone(), PORT, to, seed as u32, always, u64::MAX);
    world.bind(a, Protocol::TCP, PORT, bulk)?;
    goodput(&mut world, Time::ZERO, span, |world| world.agent(sink).bytes())
}

fn goodput(
    world: &mut World,
    start: Time,
    span: Span,
    bytes: impl Fn(&World) -> u64,
) -> Result<f64, PointError> {
    world.run_until(start + span.before);
    let before = bytes(world);
    world.run_until(start + span.before + span.measured);
    Ok(8e-6 * (bytes(world) - before) as f64 / span.measured.as_secs_f64())
}

/// Sends messages as fast as its node accepts them.
pub struct Writer {
    service: Service,
    bytes: usize,
    to: NodeId,
    start: Time,
    held: bool,
}

impl Writer {
    /// A writer that sends messages of `bytes`, at most [`FULL_MESSAGE`], to a node from `start` on.
    pub fn new(service: Service, bytes: usize, to: NodeId, start: Time) -> Writer {
        Writer { service, bytes, to, start, held: false }
    }

    fn write(&self, io: &mut Io<'_>) {
        // The first message of a batch that finds no room delays the rest.
        for _ in 0..16 {
            let (service, to) = (self.service, self.to);
            let payload = &[0; FULL_MESSAGE][..self.bytes];
            io.send(&ToNode::Send { service, deadline_ms: 255, to, port: PORT, payload });
        }
        io.wake_at(io.now() + Duration::from_millis(1));
    }
}

impl Application for Writer {
    fn start(&mut self, io: &mut Io<'_>) {
        io.send(&ToNode::Blocking(true));
        io.wake_at(self.start);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if !self.held {
            self.write(io);
        }
    }

    fn receive(&mut self, _: &ToClient<'_>, _: &mut Io<'_>) {}

    fn on_flow_control(&mut self, on: bool, io: &mut Io<'_>) {
        self.held = on;
        if !on {
            self.write(io);
        }
    }
}

/// Counts the bytes of the messages that arrive.
#[derive(Default)]
pub struct Reader {
    /// Bytes of all messages that arrived.
    pub bytes: u64,
}

impl Application for Reader {
    fn receive(&mut self, message: &ToClient<'_>, _: &mut Io<'_>) {
        if let ToClient::Received { payload, .. } = message {
            self.bytes += payload.len() as u64;
        }
    }
}

fn at<'a>(table: &'a Table, carried: &'a str, column: &'a str, x: f64) -> Option<Record<'a>> {
    table.iter().find(|r| r.is("carried", carried) && r.number(column) == x)
}

/// Largest shortfall compared with a TCP over all rates, in percent of it.
fn under(table: &Table, carried: &'static str) -> Measured {
    let one = |r: Record<'_>| {
        let rate = r.number("rate_mbit_s");
        let tcp = at(table, TCPS[0], "rate_mbit_s", rate)?;
        let less = 100.0 * (1.0 - r.number(GOODPUT[0]) / tcp.number(GOODPUT[0]));
        Some(Measured::census(less).noting(format!("At {rate} Mbit/s.")))
    };
    let clean = table.iter().filter(|r| r.is("carried", carried) && r.number("loss_pct") == 0.0);
    let all = clean.filter_map(one);
    all.max_by(|a, b| a.estimate.total_cmp(&b.estimate)).unwrap_or(Measured::census(f64::NAN))
}

/// The link's goodput divided by a TCP's, where it is farthest from one, over all losses.
fn beside(table: &Table, tcp: &'static str) -> Measured {
    let one = |r: Record<'_>| {
        let loss = r.number("loss_pct");
        let tcp = at(table, tcp, "loss_pct", loss)?;
        let times = ratio(&Measured::of(&r, GOODPUT), &Measured::of(&tcp, GOODPUT));
        Some(times.noting(format!("At {loss} % loss.")))
    };
    let off = |m: &Measured| libm::fabs(libm::log(m.estimate));
    let all = table.iter().filter(|r| r.is("carried", LINK)).filter_map(one);
    all.max_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(Measured::census(f64::NAN))
}

fn fig9() -> Figure {
    Figure {
        name: "fig9",
        title: "Goodput of a reliable link, by loss",
        section: "Spines congestion control and reliability, figure 9",
        caption: "One link of 10 ms and 10 Mbit/s that loses packets in both directions: goodput of a \
               reliable link in messages of 1,000 bytes, compared with a TCP alone on the same \
               link. Only the horizontal axis of the figure has survived.",
        chart: one_panel(loss_chart),
        claims: vec![Claim {
            unit: "of the TCP's",
            measure: Box::new(|t| beside(t, TCPS[1])),
            expected: Verdict::Fails,
            why: "Both have the same window in packets, but the link's are smaller: a message of \
                  1,000 bytes in 1,072, where the TCP has 1,448 in 1,500. The window grows by \
                  1,280 bytes per round trip, the largest packet that a link carries by default.",
            ..Claim::holding(
                "as-a-tcp",
                "a reliable link carries between three quarters and four thirds of what the TCP of \
                 Linux 6 does, at every loss rate",
                None,
                Bound::within(0.75, 4.0 / 3.0, BEFORE),
                "best-effort-links",
            )
        }],
    }
}

const LINK_SAYS: &str =
    "the link protocol achieves about 3.5 % less than a TCP, from 0.5 to 100 Mbit/s";
const BEST_EFFORT_SAYS: &str = "the best-effort protocol has an overhead of about 2.3 %";
const BOTH_LEVELS: &str =
    "the end-to-end connection that uses both levels shows an overhead of at most 5.7 %";

const LINK_BOUND: Bound =
    Bound::at_most(3.5, "the paper's number; \"about\": half a point less").better(3.0);
const BEST_EFFORT_BOUND: Bound =
    Bound::at_most(2.3, "the paper's number; \"about\": half a point less").better(1.8);
const BOTH_BOUND: Bound = Bound::at_most(5.7, "the paper's number");

const HOLDS: (Verdict, &str) = (Verdict::Holds, "");

/// The claim that a transport carries not much less than a TCP alone on the link, with the
/// verdict that is expected and the reason.
fn most(
    (id, carried, reading): (&'static str, &'static str, &'static str),
    (says, published): (&'static str, &'static str),
    bound: Bound,
    (expected, why): (Verdict, &'static str),
) -> Claim {
    Claim {
        unit: "% less than TCP",
        reading,
        measure: Box::new(move |t| under(t, carried)),
        expected,
        why,
        ..Claim::holding(id, says, Some(published), bound, "short-messages")
    }
}

fn overheads() -> Figure {
    Figure {
        name: "overheads",
        title: "Overhead of a reliable link and a stream without loss",
        section: "Spines congestion control and reliability",
        caption: "One link of 10 ms and 0.5 to 100 Mbit/s without loss, with a TCP, with a reliable \
               link, with best effort at the link's rate, and with a stream from end to end \
               through both levels of reliability and congestion control, in packets of 1,000 \
               bytes of it (`stream`) and of as many as a link carries by default (`stream-mtu`); and \
               in packets as full as the TCP's, of 1,500 bytes (`-full`): bytes of messages that \
               arrive. Ethernet's 14 bytes count, as they did on the \
               paper's links, and IPv4's headers.",
        chart: one_panel(overhead_chart),
        claims: overhead_claims(),
    }
}

fn overhead_claims() -> Vec<Claim> {
    vec![
        alone(),
        most(
            ("link-protocol", LINK, ""),
            ("messages of 1,000 bytes over a reliable link", LINK_SAYS),
            LINK_BOUND,
            (
                Verdict::Fails,
                "It is the size of the packets: 72 bytes around 1,000, where the TCP has 52 around \
                     1,448. Best effort's packets are as large; acknowledgements add a quarter of a \
                     point at most.",
            ),
        ),
        most(
            ("link-protocol-full", FULL[0], FULL_PACKETS),
            ("messages of 1,428 bytes over a reliable link", LINK_SAYS),
            LINK_BOUND,
            (
                Verdict::Exceeds,
                "Of a reliable link's overhead nearly all is the packets' headers: 20 bytes more \
                     than the TCP's around as much data. The paper's nodes sent longer headers, or \
                     more acknowledgements; it doesn't say which.",
            ),
        ),
        most(
            ("best-effort", BEST_EFFORT, ""),
            ("messages of 1,000 bytes by best effort", BEST_EFFORT_SAYS),
            BEST_EFFORT_BOUND,
            (
                Verdict::Fails,
                "72 bytes around 1,000 are more than 52 around 1,448, whatever the protocol does.",
            ),
        ),
        most(
            ("best-effort-full", FULL[1], FULL_PACKETS),
            ("messages of 1,428 bytes by best effort", BEST_EFFORT_SAYS),
            BEST_EFFORT_BOUND,
            HOLDS,
        ),
        most(
            ("both-levels", STREAM, ""),
            ("a stream from end to end in packets of 1,000 bytes of it", BOTH_LEVELS),
            BOTH_BOUND,
            (
                Verdict::Fails,
                "Only on the slowest links: there, packets are farther apart than the 5 ms for \
                     which an acknowledgement waits for data of the other end, so that those of both \
                     levels are sent separately.",
            ),
        ),
        most(
            ("both-levels-mtu", STREAM_MTU, DEFAULT_PACKETS),
            (
                "a stream from end to end in packets as large as a link carries by default",
                BOTH_LEVELS,
            ),
            BOTH_BOUND,
            (
                Verdict::Fails,
                "Only on the slowest link, as with packets of 1,000 bytes, but by less.",
            ),
        ),
        most(
            ("both-levels-full", FULL[2], FULL_PACKETS),
            ("a stream from end to end in packets of 1,500 bytes", BOTH_LEVELS),
            BOTH_BOUND,
            HOLDS,
        ),
    ]
}

/// Checks the set-up: what a TCP carries shows the headers of its packets.
fn alone() -> Claim {
    Claim {
        unit: "Mbit/s",
        at: &[10.0],
        measure: Box::new(|t| {
            let row = at(t, TCPS[0], "rate_mbit_s", 10.0);
            // Nothing is random without loss.
            Measured::census(row.map_or(f64::NAN, |row| row.number(GOODPUT[0])))
        }),
        ..Claim::holding(
            "tcp-alone",
            "the TCP of Linux 2.4 alone on a link of 10 Mbit/s",
            Some("a TCP achieves about 9.59 Mbit/s on each of the 10 ms links"),
            Bound::within(9.54, 9.64, "\"about\": 0.05 to either side"),
            "ipv6",
        )
    }
}

fn loss_chart(table: &Table) -> Chart {
    let one = |(n, carried): (usize, &'static str)| {
        line(table, (carried, Style::nth(n)), "loss_pct", GOODPUT, move |r| {
            r.is("carried", carried)
        })
    };
    Chart {
        title: "One link of 10 ms, 10 Mbit/s".to_owned(),
        x: Axis::linear("lost (%)", (0.0, 2.0), 0.5),
        y: Axis::linear("goodput (Mbit/s)", (0.0, 10.0), 2.0),
        series: [LINK, TCPS[0], TCPS[1]].into_iter().enumerate().map(one).collect(),
    }
}

fn overhead_chart(table: &Table) -> Chart {
    let one = |(n, carried): (usize, &'static str)| {
        let mut series = line(table, (carried, Style::nth(n)), "rate_mbit_s", GOODPUT, move |r| {
            r.is("carried", carried) && r.number("loss_pct") == 0.0
        });
        for mark in &mut series.points {
            (mark.y, mark.interval) = (100.0 * mark.y / mark.x, None);
        }
        series
    };
    Chart {
        title: "One link of 10 ms without loss".to_owned(),
        x: Axis::log("rate (Mbit/s)", (0.4, 120.0)),
        y: Axis::linear("goodput (% of the rate)", (85.0, 100.0), 5.0),
        series: [LINK, BEST_EFFORT, STREAM, STREAM_MTU]
            .into_iter()
            .chain(FULL)
            .chain(TCPS)
            .enumerate()
            .map(one)
            .collect(),
    }
}
