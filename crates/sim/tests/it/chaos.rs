//! Overlays in which anything happens to wires, nodes and operators for a minute, and then nothing:
//! soon all nodes must agree with the actual network, and calls over it lose nothing.

use crate::common::{self, RT, link, ms};
use rand::Rng as _;
use trunkline_base::link_model::{Chain, LinkModel, Loss};
use trunkline_base::{Rng, rng};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::identity::{Identity, PublicKey, Trust};
use trunkline_overlay::link;
use trunkline_overlay::node::{Changes, Routing};
use trunkline_overlay::wire::version::{CURRENT, VersionRange};
use trunkline_overlay::wire::{Metric, NodeId};
use trunkline_sim::random::{Graph, Waxman};
use trunkline_sim::voice::{Call, CallOutcome, VoiceSink, VoiceSource};
use trunkline_sim::{HostId, WireEnd, WireId, World};

const ENDS: [WireEnd; 2] = [WireEnd::First, WireEnd::Second];
/// Longest stall of a host, in ms.
const LONGEST_STALL: u32 = 4_000;
/// Maximum time in seconds until all nodes agree once the faults have ended: updates are then no
/// longer held back, and are retransmitted at least this often.
const PATIENCE: u64 = 12;
/// Time in seconds until the penalties for links that failed have expired: three minutes.
const FORGIVEN: u64 = 185;

struct Overlay {
    world: World,
    graph: Graph,
    rng: Rng,
    sealed: bool,
    /// Links that an operator has removed, each with its host.
    removed: Vec<(HostId, link::Config)>,
    /// Log of events, for the analysis of a failure.
    story: Vec<String>,
}

impl Overlay {
    /// Draws an overlay of 3 to 10 nodes. Most are sealed, and in those a quarter of the nodes are
    /// upgraded already.
    fn new(seed: u64) -> Overlay {
        let mut rng = rng(seed, 0xc4a05);
        let nodes = 3 + rng.next_u32() % 8;
        let graph = Waxman { degree: 3.0, ..Waxman::continent(nodes) }.draw(seed);
        let mut topology = graph.topology();
        topology.link_state(&Routing::default());
        let sealed = !seed.is_multiple_of(4);
        if sealed {
            topology.seal();
            for host in (0..nodes).map(HostId).filter(|_| rng.next_u32().is_multiple_of(4)) {
                let sealing = topology.config_mut(host).sealing.as_mut().expect("sealed");
                sealing.offer.versions = VersionRange::up_to(CURRENT + 1);
            }
        }
        let world = topology.build(seed).expect("a valid world");
        let story = vec![format!("seed {seed}, {nodes} nodes, sealed: {sealed}")];
        Overlay { world, graph, rng, sealed, removed: Vec::new(), story }
    }

    fn pick(&mut self, of: u32) -> u32 {
        self.rng.next_u32() % of
    }

    fn pick_host(&mut self) -> HostId {
        HostId(self.pick(self.world.hosts()))
    }

    fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.world.hosts()).map(HostId)
    }

    fn run(&mut self, for_ms: u64) {
        self.world.run_until(self.world.now() + ms(for_ms));
    }

    fn tell(&mut self, what: &str) {
        self.story.push(format!("{:?} {what}", self.world.now()));
    }

    fn network(&mut self) {
        let wire = WireId(self.pick(self.world.wires()));
        let end = ENDS[self.pick(2) as usize];
        let what = match self.pick(5) {
            0 => {
                self.world.cut(wire);
                "cut"
            }
            1 => {
                self.world.blackhole(wire, end);
                "blackholed"
            }
            2 => {
                let p = 0.05 * f64::from(1 + self.pick(8));
                let loss = Loss::Burst { p, b: 0.75, chain: Chain::PerPacket };
                self.change(wire, end, LinkModel { loss, ..self.model(wire) });
                "lossy"
            }
            3 => {
                let delay = self.model(wire).delay + ms(self.pick(200).into());
                self.change(wire, end, LinkModel { delay, jitter: ms(30), ..self.model(wire) });
                "slow"
            }
            _ => {
                self.mend(wire);
                "mended"
            }
        };
        self.tell(&format!("{wire:?} {end:?} is {what}"));
    }

    fn model(&self, wire: WireId) -> LinkModel {
        link(self.graph.links[wire.0 as usize].2, Loss::None)
    }

    fn change(&mut self, wire: WireId, end: WireEnd, model: LinkModel) {
        self.world.change(wire, end, model).expect("a valid model");
    }

    fn mend(&mut self, wire: WireId) {
        self.world.mend(wire);
        ENDS.into_iter().for_each(|end| self.change(wire, end, self.model(wire)));
    }

    fn node(&mut self) {
        let host = self.pick_host();
        let what = match self.pick(5) {
            0 => {
                self.world.crash(host);
                "crashes"
            }
            1 if !self.world.is_down(host) => {
                self.world.stop(host);
                "stops"
            }
            2 => {
                let stall = ms(self.pick(LONGEST_STALL).into());
                self.world.stall(host, self.world.now() + stall);
                "stalls"
            }
            _ => {
                self.restart(host);
                "starts"
            }
        };
        self.tell(&format!("{host:?} {what}"));
    }

    /// Restarts a host with its original configuration.
    fn restart(&mut self, host: HostId) {
        self.removed.retain(|(at, _)| *at != host);
        self.world.restart(host).expect("as before");
    }

    fn operator(&mut self) {
        let host = self.pick_host();
        let links = self.world.node(host).links().map(|(_, link)| link.config().clone());
        let links: Vec<_> = links.collect();
        if self.world.is_down(host) || links.is_empty() {
            return self.give_back(host);
        }
        let some = links[self.pick(links.len() as u32) as usize].clone();
        let what = match self.pick(6) {
            0 => {
                let on = self.pick(2) == 1;
                self.world.operate(host, |now, node| node.drain(now, on));
                "is drained or no more"
            }
            1 => {
                let penalty = ms(self.pick(50).into());
                self.penalise(host, &some, penalty);
                "has another penalty"
            }
            2 => {
                let removed = vec![(some.neighbour, some.path.clone())];
                self.reconfigure(host, &Changes { removed, ..Changes::default() });
                self.removed.push((host, some));
                "lacks a link"
            }
            3 => {
                self.give_back(host);
                "has its links again"
            }
            n => {
                let revoked = (n == 4).then(|| key(some.neighbour)).into_iter().collect();
                self.trust(host, revoked);
                "trusts others"
            }
        };
        self.tell(&format!("{host:?} {what}"));
    }

    fn reconfigure(&mut self, host: HostId, changes: &Changes) {
        self.world.operate(host, |now, node| node.reconfigure(now, changes));
    }

    fn penalise(&mut self, host: HostId, config: &link::Config, penalty: std::time::Duration) {
        let link::Config { rate, dscp, damping, liveness, .. } = config.clone();
        let change = link::LinkChange { rate, dscp, penalty, damping, liveness };
        let links = vec![((config.neighbour, config.path.clone()), change)];
        self.reconfigure(host, &Changes { links, ..Changes::default() });
    }

    fn give_back(&mut self, host: HostId) {
        let (here, rest): (Vec<_>, _) = self.removed.drain(..).partition(|(at, _)| *at == host);
        self.removed = rest;
        let added = here.into_iter().map(|(_, config)| config).collect();
        self.reconfigure(host, &Changes { added, ..Changes::default() });
    }

    fn trust(&mut self, host: HostId, revoked: Vec<PublicKey>) {
        if self.sealed {
            let overlay_keys = vec![Identity::from_secret(&[0xff; 32]).public()];
            let trust = Some((Trust { overlay_keys, revoked }, Vec::new()));
            self.reconfigure(host, &Changes { trust, ..Changes::default() });
        }
    }

    /// Restores the intended state of everything.
    fn peace(&mut self) {
        // Stalls end, and nodes that are stopping stop.
        self.run(u64::from(LONGEST_STALL) + 500);
        (0..self.world.wires()).for_each(|wire| self.mend(WireId(wire)));
        for host in self.hosts() {
            if self.world.is_down(host) {
                self.restart(host);
            }
            self.world.operate(host, |now, node| node.drain(now, false));
            self.give_back(host);
            self.trust(host, Vec::new());
        }
        self.tell("peace");
    }

    /// Runs until all nodes agree, and returns the time that this took, in seconds.
    fn settle(&mut self) -> Option<f64> {
        let agree = |world: &World| world.disagreement(Metric::default()).is_none();
        let start = self.world.now();
        while !agree(&self.world) {
            if self.world.now().since(start).as_secs() >= PATIENCE {
                return None;
            }
            self.run(100);
        }
        Some(self.world.now().since(start).as_secs_f64())
    }

    /// Starts a call from each host to the next.
    fn calls(&mut self, port: u16, count: u64) -> Vec<Call> {
        let (hosts, start) = (self.world.hosts(), self.world.now() + ms(100));
        let call = |from: u32| {
            let to = (from + 1) % hosts;
            let source = VoiceSource::new(NodeId(to + 1), port, RT, start, count);
            let sink = self.world.attach(HostId(to), port, VoiceSink::default()).unwrap();
            (self.world.attach(HostId(from), 0, source).unwrap(), sink)
        };
        (0..hosts).map(call).collect()
    }

    fn check(&self, holds: bool, what: &str) {
        let wrong = self.world.disagreement(Metric::default());
        assert!(holds, "{what}: {wrong:?}\n{}", self.story.join("\n"));
    }
}

/// Public key of a node, derived as in [`trunkline_sim::Topology::seal`].
fn key(node: NodeId) -> PublicKey {
    let mut secret = [0; 32];
    secret[..4].copy_from_slice(&node.0.to_be_bytes());
    Identity::from_secret(&secret).public()
}

/// Runs one overlay, and returns the time in seconds from the end of the faults until all nodes
/// agree.
fn live(seed: u64) -> f64 {
    let mut overlay = Overlay::new(seed);
    overlay.calls(5_000, 3_000);
    while overlay.world.now() < common::at(60_000) {
        let pause = overlay.pick(2_000);
        overlay.run(pause.into());
        match overlay.pick(3) {
            0 => overlay.network(),
            1 => overlay.node(),
            _ => overlay.operator(),
        }
    }
    overlay.peace();
    let settled = overlay.settle();
    overlay.check(settled.is_some(), "they never agree");
    overlay.run(1_000 * FORGIVEN);
    let still = overlay.settle() == Some(0.0);
    overlay.check(still, "they agree no more");

    let made = overlay.calls(6_000, 100);
    overlay.run(5_000);
    let outcome = CallOutcome::of(&overlay.world, &made, ms(250));
    overlay.check(outcome.lost == 0, &format!("calls lose {} packets", outcome.lost));
    for host in overlay.hosts() {
        let node = overlay.world.node(host);
        for drops in node.links().map(|(_, l)| l.stats().drops).chain([node.stats().drops]) {
            let bad = [DropReason::Malformed, DropReason::Forged].map(|why| drops.get(why));
            overlay.check(bad == [0, 0], &format!("{host:?} was sent nonsense"));
        }
    }
    settled.unwrap_or_default()
}

fn lives(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        println!("seed {seed}: all agree after {:.1} s", live(seed));
    }
}

#[test]
fn whatever_has_happened_in_peace_all_agree() {
    lives(0..12);
}

#[test]
#[ignore = "five minutes in release"]
fn whatever_has_happened_to_two_thousand_overlays_in_peace_all_agree() {
    lives(12..2_000);
}
