//! Routers joined by simulated channels.

use core::time::Duration;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_base::{Rng, Time};
use trunkline_overlay::identity::{PublicKey, Trust};
use trunkline_overlay::link::{LinkCost, LinkId};
use trunkline_overlay::route::{
    Config, CostModel, ForwardingTable, Keys, Neighbour, RefusedRecord, Router, Signature, Signer,
};
use trunkline_overlay::wire::{Metric, NodeId};

/// A time in nanoseconds since 1970, in 2027.
pub const WALL: u64 = 1_800_000_000_000_000_000;
/// Maximum length of a frame in an envelope of the default MTU.
pub const ROOM: usize = 1_280 - 48 - 24;

/// A toy signature, which only shows the signer and the signed message: its node, and a hash of the
/// message.
#[derive(Clone, Copy, Debug)]
pub struct Toy(pub NodeId);

fn toy(origin: NodeId, message: &[u8]) -> Signature {
    let mut signature = [0; 64];
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ u64::from(origin.0);
    for &byte in message {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    signature[..8].copy_from_slice(&hash.to_be_bytes());
    signature
}

impl Signer for Toy {
    fn sign(&self, message: &[u8]) -> Signature {
        toy(self.0, message)
    }
}

/// Contains the nodes that have shown a certificate; a certificate is the node's number.
#[derive(Clone, Debug, Default)]
pub struct ToyKeys(pub std::collections::BTreeSet<u32>);

impl Keys for ToyKeys {
    fn knows(&self, origin: NodeId) -> bool {
        self.0.contains(&origin.0)
    }
    fn verify(&self, origin: NodeId, message: &[u8], signature: &Signature) -> bool {
        self.knows(origin) && *signature == toy(origin, message)
    }
    fn introduce(
        &mut self,
        origin: NodeId,
        certificate: &[u8],
        message: &[u8],
        signature: &Signature,
        _wall_ns: u64,
    ) -> Result<(), RefusedRecord> {
        if certificate != origin.0.to_be_bytes() {
            return Err(RefusedRecord::BadCertificate);
        }
        if *signature != toy(origin, message) {
            return Err(RefusedRecord::BadSignature);
        }
        self.0.insert(origin.0);
        Ok(())
    }
    fn set_trust(&mut self, _: &Trust, _: &[(NodeId, PublicKey)], _: u64) {}

    fn expire(&mut self, _: u64) -> Vec<NodeId> {
        Vec::new()
    }

    fn forget(&mut self, origin: NodeId) {
        self.0.remove(&origin.0);
    }
}

pub struct Host {
    pub router: Router,
    pub table: Arc<ForwardingTable>,
    /// Other end, its link, and this end's cost, of each link.
    pub links: Vec<(usize, LinkId, LinkCost)>,
    lives: u64,
    model: CostModel,
}

/// One cable: its hosts, and the link number at each.
#[derive(Clone, Copy)]
pub struct Cable {
    pub ends: [(usize, LinkId); 2],
    pub up: bool,
    path: u8,
    /// For each end, the life of its host that the other has met.
    met: [u64; 2],
}

pub struct Net {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub cables: Vec<Cable>,
    /// Share of frames lost, 0 to 1.
    pub loss: f64,
    in_flight: BTreeMap<(Time, u64), (usize, LinkId, Vec<u8>)>,
    sent: u64,
    pub bytes: u64,
    rng: Rng,
}

pub fn id(host: usize) -> NodeId {
    NodeId(host as u32 + 1)
}

fn router(host: usize, model: CostModel, wall: u64, now: Time) -> Router {
    let mut config = Config::new(id(host));
    config.cost = model;
    config.certificate = Some(id(host).0.to_be_bytes().to_vec());
    let keys = ToyKeys([id(host).0].into());
    Router::new(config, Box::new(keys), Box::new(Toy(id(host))), wall, now)
}

impl Net {
    pub fn new(hosts: usize, loss: f64, seed: u64) -> Net {
        Net::mixed(&vec![CostModel::default(); hosts], loss, seed)
    }

    /// Creates one host for each model, with which it computes costs.
    pub fn mixed(models: &[CostModel], loss: f64, seed: u64) -> Net {
        let now = Time::from_millis(1);
        let host = |(i, &model)| Host {
            router: router(i, model, WALL, now),
            table: Arc::default(),
            links: Vec::new(),
            lives: 0,
            model,
        };
        Net {
            now,
            hosts: models.iter().enumerate().map(host).collect(),
            cables: Vec::new(),
            loss,
            in_flight: BTreeMap::new(),
            sent: 0,
            bytes: 0,
            rng: trunkline_base::rng(seed, 0),
        }
    }

    /// Joins two hosts and brings the link up.
    pub fn join(&mut self, a: usize, b: usize, costs: [LinkCost; 2]) -> usize {
        let path = self.cables.iter().filter(|c| c.ends.map(|e| e.0) == [a, b]).count() as u8;
        let ends = [a, b].map(|h| (h, LinkId(self.hosts[h].links.len() as u16)));
        self.hosts[a].links.push((b, ends[1].1, costs[0]));
        self.hosts[b].links.push((a, ends[0].1, costs[1]));
        self.cables.push(Cable { ends, up: false, path, met: [0; 2] });
        self.up(self.cables.len() - 1, true);
        self.cables.len() - 1
    }

    /// Brings a link up. Its neighbour notices on its own that a host has restarted since, as from
    /// the start in its envelopes.
    pub fn up(&mut self, cable: usize, restarted: bool) {
        let Cable { ends, path, met, .. } = self.cables[cable];
        let lives = ends.map(|(host, _)| self.hosts[host].lives);
        (self.cables[cable].up, self.cables[cable].met) = (true, lives);
        for (i, ((host, link), (other, _))) in
            [(ends[0], ends[1]), (ends[1], ends[0])].into_iter().enumerate()
        {
            let restarted = restarted || met[1 - i] != lives[1 - i];
            let host = &mut self.hosts[host];
            let cost = host.links[usize::from(link.0)].2;
            let rtt = Duration::from_micros(200) * u32::from(cost.latency);
            let neighbour = Neighbour { id: id(other), path, restarted, rtt };
            host.router.link_up(self.now, link, neighbour);
            host.router.set_cost(self.now, link, cost);
        }
    }

    pub fn down(&mut self, cable: usize) {
        self.cables[cable].up = false;
        for (host, link) in self.cables[cable].ends {
            self.hosts[host].router.link_down(self.now, link);
        }
    }

    /// A host advertises another cost of its link, which keeps its speed.
    pub fn cost(&mut self, host: usize, link: LinkId, cost: LinkCost) {
        self.hosts[host].router.set_cost(self.now, link, cost);
    }

    /// Restarts a host, with its clock shifted by this many nanoseconds.
    pub fn restart(&mut self, host: usize, clock: i64) {
        self.restart_with(host, clock, self.hosts[host].model);
    }

    /// The same, with another model from then on.
    pub fn restart_with(&mut self, host: usize, clock: i64, model: CostModel) {
        let life = &mut self.hosts[host];
        life.model = model;
        life.lives += 1;
        let wall = (WALL + self.now.as_nanos()).saturating_add_signed(clock);
        life.router = router(host, model, wall, self.now);
        life.table = Arc::default();
        // Envelopes from an earlier life are no longer opened.
        let links = &self.hosts;
        self.in_flight.retain(|_, (to, link, _)| {
            *to != host && links[*to].links[usize::from(link.0)].0 != host
        });
        for cable in 0..self.cables.len() {
            if self.cables[cable].up && self.cables[cable].ends.iter().any(|e| e.0 == host) {
                self.down(cable);
                self.up(cable, true);
            }
        }
    }

    /// Passes `frame` to `host` as if it came over `link`.
    pub fn inject(&mut self, host: usize, link: LinkId, frame: &[u8]) {
        let wall = WALL + self.now.as_nanos();
        self.hosts[host].router.recv(self.now, wall, link, frame);
    }

    /// Lets every host do its work at this moment.
    pub fn settle(&mut self) {
        for h in 0..self.hosts.len() {
            self.settle_one(h);
        }
    }

    fn settle_one(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        host.router.handle_timeout(self.now);
        if let Some(table) = host.router.table() {
            host.table = table;
        }
        for l in 0..host.links.len() {
            let (to, far, cost) = host.links[l];
            while let Some(frame) = host.router.poll_frame(LinkId(l as u16), self.now, ROOM) {
                assert!(frame.len() <= ROOM);
                self.bytes += frame.len() as u64;
                if self.rng.random_bool(self.loss) {
                    continue;
                }
                let jitter = Duration::from_micros(self.rng.random_range(0..2_000));
                let at = self.now + Duration::from_micros(100) * u32::from(cost.latency) + jitter;
                self.sent += 1;
                self.in_flight.insert((at, self.sent), (to, far, frame));
            }
        }
    }

    /// Runs for the time `d`.
    pub fn run(&mut self, d: Duration) {
        let end = self.now + d;
        self.settle();
        let mut rounds = 0u64;
        loop {
            rounds += 1;
            assert!(rounds < 20_000_000, "it does not come to rest");
            let timer = self.hosts.iter().map(|h| h.router.next_timeout()).min();
            let frame = self.in_flight.first_key_value().map_or(Time::NEVER, |(k, _)| k.0);
            let next = timer.unwrap_or(Time::NEVER).min(frame);
            if next > end {
                break;
            }
            assert!(next > self.now || frame <= self.now, "a router would spin");
            self.now = next.max(self.now);
            while let Some(entry) = self.in_flight.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (to, link, frame) = entry.remove();
                self.inject(to, link, &frame);
                self.settle_one(to);
            }
            for h in 0..self.hosts.len() {
                if self.hosts[h].router.next_timeout() <= self.now {
                    self.settle_one(h);
                }
            }
        }
        self.now = end;
    }

    /// Hosts that can be reached from `host` over cables that are up.
    pub fn component(&self, host: usize) -> Vec<usize> {
        let mut seen = vec![host];
        let mut i = 0;
        while i < seen.len() {
            for cable in self.cables.iter().filter(|c| c.up) {
                let [(a, _), (b, _)] = cable.ends;
                for (from, to) in [(a, b), (b, a)] {
                    if from == seen[i] && !seen.contains(&to) {
                        seen.push(to);
                    }
                }
            }
            i += 1;
        }
        seen.sort_unstable();
        seen
    }

    /// Path of a packet, host by host, until it arrives, has no route, or has crossed 32 links.
    pub fn walk(&self, from: usize, to: usize, metric: Metric) -> Vec<usize> {
        let mut at = vec![from];
        while at.len() <= 32 && at[at.len() - 1] != to {
            let host = &self.hosts[at[at.len() - 1]];
            let Some(hop) = host.table.next_hop(id(to), metric) else { break };
            at.push(host.links[usize::from(hop.link.0)].0);
        }
        at
    }
}
