//! Calls over a row of nodes, and over plain UDP: the networks of the VoIP
//! overlay paper's experiments.

mod in_order;

use std::sync::Arc;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{Chain as Moves, LinkModel, Loss};
use trunkline_net::IpVersion;
use trunkline_overlay::link::realtime::{self, Recovery};
use trunkline_overlay::link::{self, IP_UDP_HEADERS};
use trunkline_overlay::monitor::Liveness;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Arrival, Call, CallOutcome, Sinks as _, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

/// Interval between two packets of a call.
pub const PACKET: Duration = Duration::from_millis(20);
/// Largest useful one-way latency (Amir et al. 2005, §IV-A).
pub const DEADLINE: Duration = Duration::from_millis(100);
/// Nodes find each other and measure round trips before the first packet, which is sent at this
/// time.
const START: Time = Time::from_millis(10_000);
/// Packets still in flight when the last one is sent arrive within this time.
const DRAIN: Duration = Duration::from_secs(3);
/// Bytes of IPv4 and UDP headers. Links count IPv6's, which are longer.
const IPV4_UDP: u64 = 28;

/// Approximate time that the simulator needs for a packet on one link, in seconds.
pub const SECONDS_PER_HOP: f64 = 0.6e-6;

/// How lost packets are recovered: named settings of every link.
#[derive(Clone)]
pub struct Policy {
    /// The policy's name in tables and legends.
    pub name: &'static str,
    /// Changes a link's settings to this policy's.
    pub adjust: Arc<dyn Fn(&mut link::Config) + Send + Sync>,
}

impl Policy {
    /// A policy that applies `adjust` to the paper's settings.
    pub fn new(
        name: &'static str,
        adjust: impl Fn(&mut link::Config) + Send + Sync + 'static,
    ) -> Policy {
        let adjust = move |config: &mut link::Config| {
            paper_mode(config);
            adjust(config);
        };
        Policy { name, adjust: Arc::new(adjust) }
    }

    /// The paper's policy: each missing packet is requested once, at the first gap.
    pub fn paper() -> Policy {
        Policy::new("paper", |_| {})
    }
}

/// The paper's settings (§III-A, §IV-A), whatever the daemon's defaults are. Retransmissions may be
/// a quarter of the originals, a limit that must not bind here: at 10 % loss about a tenth is
/// requested.
fn paper_mode(config: &mut link::Config) {
    config.liveness = Liveness::PAPER;
    config.realtime = realtime::Config::paper();
}

/// Correlation between successive losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// P(lost | previous lost); `None` loses each packet independently.
    pub burstiness: Option<f64>,
    /// The packet interval for which `burstiness` holds, in continuous time; `None` for a chain
    /// with one step per packet, as in the paper.
    pub spacing: Option<Duration>,
}

impl Bursts {
    /// The paper's four, per packet: uniform, 25 %, 50 % and 75 %.
    pub const PAPER: [Bursts; 4] = [
        Bursts::packets(None),
        Bursts::packets(Some(0.25)),
        Bursts::packets(Some(0.5)),
        Bursts::packets(Some(0.75)),
    ];

    const fn packets(burstiness: Option<f64>) -> Bursts {
        Bursts { burstiness, spacing: None }
    }

    /// Name of the burstiness: `uniform`, `25`, `50` or `75`.
    pub fn name(&self) -> String {
        self.burstiness.map_or("uniform".to_owned(), |b| format!("{:.0}", b * 100.0))
    }

    /// Name of the chain's clock: `packet` or `time`.
    pub fn chain_name(&self) -> &'static str {
        if self.spacing.is_some() { "time" } else { "packet" }
    }

    /// The process that loses the share `p`.
    pub fn losing(&self, p: f64) -> Loss {
        let chain = self.spacing.map_or(Moves::PerPacket, |spacing| Moves::Continuous { spacing });
        match self.burstiness {
            _ if p == 0.0 => Loss::None,
            None => Loss::Bernoulli { p },
            Some(b) => Loss::Burst { p, b, chain },
        }
    }
}

/// Calls over nodes in a row.
#[derive(Clone)]
pub struct Chain {
    /// Model of each link, the same in both directions.
    pub links: Vec<LinkModel>,
    /// The recovery policy of all links.
    pub policy: Policy,
    /// Number of calls from the first node to the last; their packets are spread evenly over 20 ms.
    pub calls: u32,
    /// Number of packets of each call.
    pub packets: u64,
}

/// A simulated network after its calls have ended.
pub struct Run {
    world: World,
    calls: Vec<Call>,
    /// The node and port of the source of each call, as its sink sees them.
    heard_from: Vec<(NodeId, u16)>,
    wires: u32,
}

impl Chain {
    /// Simulates the calls until their last packet has arrived or is lost.
    pub fn run(&self, seed: u64) -> Result<Run, WorldError> {
        let last = self.links.len() as u32;
        let mut world = self.world(seed)?;
        let mut calls = Vec::new();
        for k in 0..self.calls {
            let (port, to) = (5_000 + k as u16, NodeId(last + 1));
            let start = START + PACKET * k / self.calls;
            let source = VoiceSource::new(to, port, Service::RealTime, start, self.packets);
            let sink = world.attach(HostId(last), port, VoiceSink::default())?;
            calls.push((world.attach(HostId(0), 0, source)?, sink));
        }
        let heard_from = calls.iter().map(|(source, _)| world.origin(*source)).collect();
        world.run_until(end(self.packets));
        Ok(Run { world, calls, heard_from, wires: last })
    }

    /// The nodes and their links, with this chain's policy.
    fn world(&self, seed: u64) -> Result<World, WorldError> {
        let mut topology = Topology::chain(self.links.iter().cloned());
        for host in 0..=self.links.len() as u32 {
            for link in &mut topology.config_mut(HostId(host)).links {
                (self.policy.adjust)(link);
            }
        }
        topology.build(seed)
    }

    /// The bytes of the same run with recovery off and no loss, extrapolated from two short runs:
    /// without either, equal times cost equal bytes.
    pub fn undisturbed_bytes(&self) -> Result<f64, WorldError> {
        let perfect = |packets| {
            let links = self.links.iter().map(|l| LinkModel { loss: Loss::None, ..l.clone() });
            let off = Policy::new("off", |config| config.realtime.recovery = Recovery::OFF);
            let chain = Chain { links: links.collect(), policy: off, packets, ..self.clone() };
            Ok::<f64, WorldError>(chain.run(0)?.bytes() as f64)
        };
        // Calls of 20 s and 60 s, which are whole numbers of hello intervals.
        let (short, long) = (1_000, 3_000);
        let (a, b) = (perfect(short)?, perfect(long)?);
        Ok(a + (b - a) * (self.packets as f64 - short as f64) / (long - short) as f64)
    }
}

fn end(packets: u64) -> Time {
    START + Duration::from_millis(20 * packets) + PACKET + DRAIN
}

/// One call over plain UDP.
pub fn udp(model: LinkModel, packets: u64, seed: u64) -> Result<Run, WorldError> {
    let mut world = World::new(IpVersion::V6, seed);
    let (here, there) = world.plain_path(model.clone(), model, None)?;
    let source = VoiceSource::new(NodeId::NONE, 5_000, Service::BestEffort, START, packets);
    let sink = world.attach_plain(there, 5_000, VoiceSink::default())?;
    let call = (world.attach_plain(here, 5_000, source)?, sink);
    let heard_from = vec![world.origin(call.0)];
    world.run_until(end(packets));
    Ok(Run { world, calls: vec![call], heard_from, wires: 1 })
}

impl Run {
    /// Packets, losses and delays of all calls.
    pub fn outcome(&self) -> CallOutcome {
        let calls = self.calls.iter().zip(&self.heard_from);
        let twice = calls.map(|(&(_, sink), &from)| self.world.app(sink).duplicates(from)).sum();
        CallOutcome::of_packets(self.packets().flatten(), twice, DEADLINE)
    }

    /// For each call, the fate of each packet: its send time and its arrival.
    pub fn packets(&self) -> impl Iterator<Item = impl Iterator<Item = (Time, Option<Arrival>)>> {
        self.calls.iter().zip(&self.heard_from).map(|(&(source, sink), from)| {
            let flow = self.world.app(sink).flows.get(from);
            let arrival = move |k: u64| flow.and_then(|f| *f.arrivals.get(k as usize)?);
            let source = self.world.app(source);
            (0..source.sent()).map(move |k| (source.sent_at(k), arrival(k)))
        })
    }

    /// For each call, which of its packets are missed: lost, or later than
    /// [`DEADLINE`].
    pub fn missed(&self) -> impl Iterator<Item = Vec<bool>> {
        let missed =
            |(_, arrival): (_, Option<Arrival>)| arrival.is_none_or(|a| a.delay > DEADLINE);
        self.packets().map(move |call| call.map(missed).collect())
    }

    /// Bytes sent on all links in both directions, with IPv4 and UDP headers and all traffic
    /// between nodes.
    pub fn bytes(&self) -> u64 {
        let ledgers = (0..self.wires).flat_map(|wire| self.world.ledgers(WireId(wire)));
        let ipv4 = |bytes, packets| bytes - packets * (IP_UDP_HEADERS as u64 - IPV4_UDP);
        ledgers.map(|l| ipv4(l.offered.bytes, l.offered.packets)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten(bursts: Bursts, p: f64) -> LinkModel {
        let delay = Duration::from_millis(10);
        LinkModel { delay, loss: bursts.losing(p), ..LinkModel::default() }
    }

    fn chain(p: f64, policy: Policy) -> Chain {
        Chain { links: vec![ten(Bursts::PAPER[0], p)], policy, calls: 10, packets: 2_000 }
    }

    #[test]
    fn without_loss_nothing_is_added() {
        let chain = chain(0.0, Policy::paper());
        let (bytes, undisturbed) =
            (chain.run(1).unwrap().bytes() as f64, chain.undisturbed_bytes().unwrap());
        assert!((bytes / undisturbed - 1.0).abs() < 1e-4, "{bytes} {undisturbed}");
        // 244 bytes per packet (160 + 12 RTP + 44 + 28), and little else.
        assert!((bytes / 20_000.0 - 244.0).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn what_is_repeated_costs() {
        let chain = chain(0.05, Policy::paper());
        let run = chain.run(1).unwrap();
        let extra = run.bytes() as f64 / chain.undisturbed_bytes().unwrap() - 1.0;
        // A twentieth is retransmitted, with as many requests of a third of the size.
        assert!((0.05..0.075).contains(&extra), "{extra}");
        let missed = run.missed().flatten().filter(|m| *m).count() as u64;
        let outcome = run.outcome();
        assert_eq!(missed, outcome.lost + outcome.late);
        assert!(outcome.recovered > 800 && missed > 30, "{missed}");
    }

    #[test]
    fn udp_recovers_nothing() {
        let run = udp(ten(Bursts::PAPER[2], 0.05), 20_000, 1).unwrap();
        let lost = run.outcome().lost;
        assert!((800..1_200).contains(&lost), "{lost}");
    }
}
