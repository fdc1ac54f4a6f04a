//! Overhead of a link with the daemon's default settings under constant loss: all bytes, including
//! hellos and probes.

mod figures;

use super::PAPER;
use crate::chain::{Bursts, PACKET};
use crate::experiment::{Cells, Experiment, Inputs, Point, PointError, Sabotage, Size};
use crate::table::{Cell, Column};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::LinkModel;
use trunkline_base::stats::Mean;
use trunkline_overlay::link::IP_UDP_HEADERS;
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

const COLUMNS: &[Column] = &[
    Column::number("calls", 0).parameter(),
    Column::text("voice").parameter(),
    Column::number("delay_ms", 0).parameter(),
    Column::text("chain").parameter(),
    Column::text("burst_pct").parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("back_pct", 1).parameter(),
    Column::number("runs", 0).parameter(),
    Column::number("minutes", 1).parameter(),
    Column::number("bytes_pct", 2),
    Column::number("bytes_low_pct", 2),
    Column::number("bytes_high_pct", 2),
    Column::number("hellos_pct", 2),
    Column::number("repairs_pct", 2),
    Column::number("probing_pct", 2),
    Column::number("probing_low_pct", 2),
    Column::number("probing_high_pct", 2),
];

const LOSSES: [f64; 13] = [0.1, 0.2, 0.5, 0.8, 1.0, 1.2, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0];
const QUICK_LOSSES: [f64; 7] = [0.2, 1.0, 1.2, 2.0, 5.0, 15.0, 20.0];
/// Losses for ten calls, which take ten times as long to simulate.
const QUICK_TEN: [f64; 3] = [1.0, 5.0, 20.0];

/// Bytes of IPv4 and UDP headers. Links count IPv6's, which are longer.
const IPV4_UDP: u64 = 28;
/// Bytes of a G.711 packet on the link: 160 of speech, RTP, envelope and frame, UDP and IPv4.
const ALONE: u64 = 160 + 12 + 44 + IPV4_UDP;
/// By this time nodes have found each other.
const START: Time = Time::from_millis(5_000);

const UNIFORM: Bursts = Bursts::PAPER[0];
const OUTAGES: Bursts = Bursts { burstiness: Some(0.75), spacing: Some(PACKET) };

/// The experiment on the overhead of a link under constant loss.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "steady",
        revision: 2,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(points),
        figures: figures::all(),
        testbed: None,
    }
}

/// One link with constant loss.
#[derive(Clone)]
struct SteadyPoint {
    calls: u32,
    /// Whether both ends send voice, or only the first.
    both: bool,
    delay_ms: u64,
    bursts: Bursts,
    loss_pct: f64,
    /// Loss of the return direction, in percent.
    back_pct: f64,
    runs: u64,
    seconds: u64,
    shipped: Liveness,
}

fn points(size: Size, sabotage: Sabotage) -> Vec<Point> {
    let mut shipped = Liveness::default();
    // As if a question were never answered: hellos never stop.
    if sabotage.is("questions-without-end") {
        shipped.interval = Duration::from_millis(20);
    }
    if sabotage.is("hellos-by-themselves") {
        shipped.piggyback = false;
    }
    let [first, .., last] = Bursts::PAPER;
    let all: Vec<Bursts> = Bursts::PAPER.into_iter().chain([OUTAGES]).collect();
    let bursts = size.pick(vec![first], vec![first, last, OUTAGES], all);
    let point = |calls, bursts, loss_pct| SteadyPoint {
        calls,
        both: true,
        delay_ms: 10,
        bursts,
        loss_pct,
        back_pct: loss_pct,
        runs: size.pick(2, 3, if calls > 1 { 10 } else { 40 }),
        seconds: size.pick(20, if calls > 1 { 300 } else { 600 }, 600),
        shipped: shipped.clone(),
    };
    let mut points = Vec::new();
    for calls in [1, 10] {
        let quick: &[f64] = if calls > 1 { &QUICK_TEN } else { &QUICK_LOSSES };
        let losses: &[f64] = size.pick(&[1.0], quick, &LOSSES);
        let figures = figures::on_the_grid(calls);
        for &bursts in &bursts {
            let on = |&loss| point(calls, bursts, loss).into_point(figures.clone());
            points.extend(losses.iter().map(on));
        }
    }
    let few: &[f64] = size.pick(&[], &[1.0, 5.0], &[0.5, 1.0, 2.0, 5.0, 10.0]);
    for &loss in few {
        for bursts in [UNIFORM, OUTAGES] {
            let there = point(1, bursts, loss);
            let off = [
                SteadyPoint { delay_ms: 5, ..there.clone() },
                SteadyPoint { delay_ms: 40, ..there.clone() },
                SteadyPoint { back_pct: 0.0, ..there.clone() },
            ];
            points.extend(off.map(|p| p.into_point(vec![figures::ELSEWHERE])));
            let one_way = SteadyPoint { both: false, ..there };
            points.push(one_way.into_point(vec![figures::ONE_WAY]));
        }
    }
    points
}

/// Bytes on the link, in percent of those of the packets alone.
struct Cost {
    all: f64,
    hellos: f64,
    repairs: f64,
}

impl SteadyPoint {
    /// A point is named after the requested settings, even when a sabotage changes them.
    fn into_point(self, figures: Vec<&'static str>) -> Point {
        let SteadyPoint { calls, delay_ms, bursts, loss_pct, back_pct, .. } = &self;
        let key = format!(
            "calls{calls}-{}-{delay_ms}ms-{}{}-loss{loss_pct}-{back_pct}",
            self.voice().replace(' ', "-"),
            bursts.chain_name(),
            bursts.name()
        );
        let packets = self.runs * 2 * self.seconds * u64::from(*calls) * 100;
        Point {
            key,
            x: *loss_pct,
            figures,
            weight: 1e-6 * packets as f64,
            measure: Box::new(move |inputs| self.measure(inputs)),
        }
    }

    fn voice(&self) -> &'static str {
        if self.both { "both ways" } else { "one way" }
    }

    fn measure(&self, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
        let silent = Liveness { probes: false, ..self.shipped.clone() };
        let mut shipped = Vec::new();
        let mut probing = Vec::new();
        for run in 0..self.runs {
            let seed = inputs.seed.wrapping_add(run);
            let [with, without] = [self.run(&self.shipped, seed)?, self.run(&silent, seed)?];
            probing.push(with.all - without.all);
            shipped.push(with);
        }
        let mean = |of: fn(&Cost) -> f64| Mean::of(&shipped.iter().map(of).collect::<Vec<_>>());
        let (bytes, probing) = (mean(|c| c.all), Mean::of(&probing));
        Ok(vec![vec![
            u64::from(self.calls).into(),
            self.voice().into(),
            self.delay_ms.into(),
            self.bursts.chain_name().into(),
            self.bursts.name().into(),
            self.loss_pct.into(),
            self.back_pct.into(),
            self.runs.into(),
            Cell::from(self.seconds as f64 / 60.0),
            bytes.estimate.into(),
            bytes.interval.0.into(),
            bytes.interval.1.into(),
            mean(|c| c.hellos).estimate.into(),
            mean(|c| c.repairs).estimate.into(),
            probing.estimate.into(),
            probing.interval.0.into(),
            probing.interval.1.into(),
        ]])
    }

    /// Runs two sealed nodes from their first hello on.
    fn run(&self, liveness: &Liveness, seed: u64) -> Result<Cost, WorldError> {
        let delay = Duration::from_millis(self.delay_ms);
        let model = |pct: f64| LinkModel {
            delay,
            loss: self.bursts.losing(pct / 100.0),
            ..LinkModel::default()
        };
        let mut topology = Topology::new();
        let ends = [topology.host(NodeId(1)), topology.host(NodeId(2))];
        let (there, back) = (model(self.loss_pct), model(self.back_pct));
        topology.link_with(ends[0], ends[1], there, back, |c| c.liveness = liveness.clone());
        topology.seal();
        let mut world = topology.build(seed)?;
        let mut flows = 0;
        for call in 0..self.calls {
            for (way, (from, to)) in
                [(ends[0], ends[1]), (ends[1], ends[0])].into_iter().enumerate()
            {
                if way == 1 && !self.both {
                    continue;
                }
                let (port, node) = (5_000 + call as u16, NodeId(to.0 + 1));
                let start = START + PACKET * (2 * call + way as u32) / (2 * self.calls);
                let source =
                    VoiceSource::new(node, port, Service::RealTime, start, self.seconds * 50);
                world.attach(to, port, VoiceSink::default())?;
                world.attach(from, 0, source)?;
                flows += 1;
            }
        }
        world.run_until(START + Duration::from_secs(self.seconds));
        let alone = (flows * self.seconds * 50 * ALONE) as f64;
        let share = |bytes: u64| 100.0 * bytes as f64 / alone;
        let (hellos, repairs) = spent(&world, ends);
        let all = share(on_the_link(&world)) - 100.0;
        Ok(Cost { all, hellos: share(hellos), repairs: share(repairs) })
    }
}

fn on_the_link(world: &World) -> u64 {
    let ipv4 = |bytes, packets| bytes - packets * (IP_UDP_HEADERS as u64 - IPV4_UDP);
    world.ledgers(WireId(0)).iter().map(|l| ipv4(l.offered.bytes, l.offered.packets)).sum()
}

/// Bytes spent on hellos, and on requests and retransmissions.
fn spent(world: &World, ends: [HostId; 2]) -> (u64, u64) {
    let stats = || ends.into_iter().flat_map(|end| world.node(end).links()).map(|(_, l)| l.stats());
    let hellos = stats().map(|s| s.hellos.bytes + IPV4_UDP * s.hellos.envelopes).sum();
    let of_services = stats().flat_map(|s| Service::ALL.map(|service| s.of(service)));
    let repairs = of_services.flat_map(|s| [s.requests, s.retransmissions]);
    (hellos, repairs.map(|t| t.bytes + IPV4_UDP * t.envelopes).sum())
}
