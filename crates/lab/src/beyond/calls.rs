//! One call over an overlay: what it misses, and which way it takes.

use super::overlay::Settings;
use crate::chain::{DEADLINE, PACKET};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_overlay::link::Link;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::voice::{Arrival, Call, Sinks, VoiceLog, VoiceSource};
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

/// The relay of the shortest way.
pub const RELAY: HostId = HostId(1);
/// The wires of the shortest way.
pub const SHORTEST: [WireId; 2] = [WireId(0), WireId(1)];

/// An overlay, and a call over it.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Two hosts, and the one-way delay between them in ms; the wires of the
    /// shortest way first.
    pub wires: &'static [(u32, u32, u64)],
    /// Where the call begins and ends.
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

/// Until the first packet, links and routes come up.
const START: Time = Time::from_millis(10_000);
/// What is under way when the last packet is sent arrives within this time.
const DRAIN: Duration = Duration::from_millis(500);

/// A call in both directions.
pub struct Conversation {
    world: World,
    ends: [HostId; 2],
    calls: [Call<VoiceLog>; 2],
    /// Packets so far of each end's flow on each of its links, the link that
    /// the last one took, and the moments at which that was another than
    /// before.
    ways: [Way; 2],
}

#[derive(Default)]
struct Way {
    sent: Vec<u64>,
    link: Option<usize>,
    changes: Vec<Time>,
}

impl Conversation {
    /// A call that lasts until `end`, with this loss on all links.
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

    /// Lets it go on, and looks after every packet which way it took.
    pub fn run_until(&mut self, end: Time) {
        while self.world.now() < end {
            self.world.run_until(end.min(self.world.now() + PACKET));
            let now = self.world.now();
            for (way, host) in self.ways.iter_mut().zip(self.ends) {
                way.look(now, &self.world, host);
            }
        }
    }

    /// The network, to break something.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// How often either direction took another way than before since `from`.
    pub fn changes(&self, from: Time) -> u64 {
        let since = |w: &Way| w.changes.iter().filter(|&&at| at >= from).count() as u64;
        self.ways.iter().map(since).sum()
    }

    /// How often the direction that did so more often took another way than
    /// before, since `from` and before `until`.
    pub fn most_changes(&self, from: Time, until: Time) -> u64 {
        let within = |w: &Way| w.changes.iter().filter(|&&at| from <= at && at < until).count();
        self.ways.iter().map(within).max().unwrap_or(0) as u64
    }

    /// How long after `event` both directions had left the shortest way for
    /// good; `None` if one takes it at the end.
    pub fn left(&self, event: Time) -> Option<Duration> {
        let left = |way: &Way| {
            let last = *way.changes.last()?;
            (way.link != Some(0)).then(|| last.since(event))
        };
        let [a, b] = [&self.ways[0], &self.ways[1]].map(left);
        Some(a?.max(b?))
    }

    /// How often a link was declared dead, by either end.
    pub fn deaths(&self) -> u64 {
        let hosts = (0..self.world.hosts()).map(HostId);
        hosts.flat_map(|h| self.world.node(h).links()).map(|(_, link)| link.stats().downs).sum()
    }

    /// Ends it: how long after `event` the last packet was sent that never came
    /// or came too late; zero if none was.
    pub fn whole_after(&mut self, event: Time) -> Duration {
        self.finish();
        self.gap(event, Time::NEVER)
    }

    /// Lets everything arrive that is still under way: no packet is sent any more.
    pub fn finish(&mut self) {
        self.world.run_until(self.world.now() + DRAIN);
    }

    /// Once it has ended: how long after `from` the last packet was sent, before
    /// `until`, that never came or came too late; zero if none was.
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
    /// Finds the link that a new packet went into at `host`.
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
