//! One call over an overlay: the packets that it misses, and the path that it takes.

use super::overlay::Settings;
use crate::chain::{DEADLINE, PACKET};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_overlay::link::Link;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Arrival, Call, Sinks, VoiceLog, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

/// The relay on the shortest path.
pub const RELAY: HostId = HostId(1);
/// The wires of the shortest path.
pub const SHORTEST: [WireId; 2] = [WireId(0), WireId(1)];

/// An overlay, and a call over it.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Two hosts and the one-way delay between them in ms. The wires of the shortest path come
    /// first.
    pub wires: &'static [(u32, u32, u64)],
    /// The hosts at the two ends of the call.
    pub ends: [HostId; 2],
    /// Whether nodes have keys and seal their links.
    pub sealed: bool,
}

/// A–B–D takes 20 ms, A–C–D 24, A–E–F–D 45.
pub const THREE_WAYS: Shape = Shape {
    wires: &[(0, 1, 10), (1, 3, 10), (0, 2, 12), (2, 3, 12), (0, 4, 15), (4, 5, 15), (5, 3, 15)],
    ends: [HostId(0), HostId(3)],
    sealed: false,
};

/// Links and routes come up before the first packet, which is sent at this time.
const START: Time = Time::from_millis(10_000);
/// Packets still in flight when the last one is sent arrive within this time.
const DRAIN: Duration = Duration::from_millis(500);

/// A call in both directions.
pub struct Conversation {
    world: World,
    ends: [HostId; 2],
    calls: [Call<VoiceLog>; 2],
    /// For each end's flow: packets sent so far on each of its links, the link of the last packet,
    /// and the times at which the link changed.
    ways: [Way; 2],
}

#[derive(Default)]
struct Way {
    sent: Vec<u64>,
    link: Option<usize>,
    changes: Vec<Time>,
}

impl Conversation {
    /// A call that lasts until `end`, with this loss on every link.
    pub fn new(
        shape: &Shape,
        settings: &Settings,
        loss: Loss,
        end: Time,
        seed: u64,
    ) -> Result<Conversation, WorldError> {
        let mut topology = Topology::new();
        let last = shape.wires.iter().map(|&(a, b, _)| a.max(b)).max().unwrap_or(0);
        let hosts: Vec<HostId> = (0..=last).map(|id| topology.host(NodeId(id + 1))).collect();
        for &(a, b, delay) in shape.wires {
            let delay = Duration::from_millis(delay);
            let model = LinkModel { delay, loss: loss.clone(), ..LinkModel::default() };
            let (a, b) = (hosts[a as usize], hosts[b as usize]);
            topology.link_with(a, b, model.clone(), model, |link| settings.adjust(link));
        }
        for &host in &hosts {
            topology.config_mut(host).routing = Some(settings.routing.clone());
        }
        if shape.sealed {
            topology.seal();
        }
        let mut world = topology.build(seed)?;
        let count = (end.since(START).as_nanos() / PACKET.as_nanos()) as u64;
        let mut flow = |from: HostId, to: HostId| {
            let node = NodeId(to.0 + 1);
            let source = VoiceSource::new(node, 5_000, Service::RealTime, START, count);
            let sink = world.attach(to, 5_000, VoiceLog::default())?;
            Ok::<_, WorldError>((world.attach(from, 0, source)?, sink))
        };
        let ends @ [a, b] = shape.ends;
        let calls = [flow(a, b)?, flow(b, a)?];
        Ok(Conversation { world, ends, calls, ways: Default::default() })
    }

    /// Continues the call until `end`. After every packet it checks which path the packet took.
    pub fn run_until(&mut self, end: Time) {
        while self.world.now() < end {
            self.world.run_until(end.min(self.world.now() + PACKET));
            let now = self.world.now();
            for (way, host) in self.ways.iter_mut().zip(self.ends) {
                way.look(now, &self.world, host);
            }
        }
    }

    /// The network, for injecting faults.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Number of path changes since `from`, summed over both directions.
    pub fn changes(&self, from: Time) -> u64 {
        let since = |w: &Way| w.changes.iter().filter(|&&at| at >= from).count() as u64;
        self.ways.iter().map(since).sum()
    }

    /// Number of path changes since `from` and before `until`, in the direction that changed more
    /// often.
    pub fn most_changes(&self, from: Time, until: Time) -> u64 {
        let within = |w: &Way| w.changes.iter().filter(|&&at| from <= at && at < until).count();
        self.ways.iter().map(within).max().unwrap_or(0) as u64
    }

    /// Time from `event` until both directions had left the shortest path for good; `None` if one
    /// still uses it at the end.
    pub fn left(&self, event: Time) -> Option<Duration> {
        let left = |way: &Way| {
            let last = *way.changes.last()?;
            (way.link != Some(0)).then(|| last.since(event))
        };
        let [a, b] = [&self.ways[0], &self.ways[1]].map(left);
        Some(a?.max(b?))
    }

    /// Number of times that either end declared a link dead.
    pub fn deaths(&self) -> u64 {
        let hosts = (0..self.world.hosts()).map(HostId);
        hosts.flat_map(|h| self.world.node(h).links()).map(|(_, link)| link.stats().downs).sum()
    }

    /// Ends the call. Returns the time from `event` until the last packet that was lost or late was
    /// sent; zero if there was none.
    pub fn whole_after(&mut self, event: Time) -> Duration {
        self.finish();
        self.gap(event, Time::NEVER)
    }

    /// Delivers all packets that are still in flight; no new packet is sent.
    pub fn finish(&mut self) {
        self.world.run_until(self.world.now() + DRAIN);
    }

    /// For a call that has ended: time from `from` until the last packet sent before `until` that
    /// was lost or late; zero if there was none.
    pub fn gap(&self, from: Time, until: Time) -> Duration {
        let last = self.calls.iter().filter_map(|&(source, sink)| {
            let arrivals = self.world.app(sink).arrivals(self.world.origin(source));
            let source = self.world.app(source);
            let missed = |a: Option<Arrival>| a.is_none_or(|a| a.delay > DEADLINE);
            let before = |&k: &u64| source.sent_at(k) < until;
            let last = (0..source.sent()).rev().filter(before).find(|&k| missed(arrivals(k)))?;
            Some(source.sent_at(last))
        });
        last.max().map_or(Duration::ZERO, |at| at.since(from))
    }
}

impl Way {
    /// Finds the link that took the newest packet at `host`.
    fn look(&mut self, now: Time, world: &World, host: HostId) {
        let links = world.node(host).links();
        let originals = |link: &Link| link.stats().of(Service::RealTime).originals.envelopes;
        let sent: Vec<u64> = links.map(|(_, link)| originals(link)).collect();
        self.sent.resize(sent.len(), 0);
        let grown = (0..sent.len()).find(|&k| sent[k] > self.sent[k]);
        if grown.is_some() && grown != self.link {
            if self.link.is_some() {
                self.changes.push(now);
            }
            self.link = grown;
        }
        self.sent = sent;
    }
}
