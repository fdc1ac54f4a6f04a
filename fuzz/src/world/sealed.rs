//! A sealed node that carries a call with an honest neighbour, while a certified one lies and an
//! attacker sends arbitrary datagrams.
//!
//! Invariants: links and records stay within their bounds; each datagram is accepted or counted;
//! and the call loses nothing, since no attacker can suppress the packets of its two nodes.

use super::driver::{Applications, message, settle};
use super::{Scene, Step};
use crate::script::micros;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::counters::{DropReason, Drops};
use trunkline_overlay::handshake::message::Initiation;
use trunkline_overlay::handshake::{self, Event, Handshakes, Offer, Peer};
use trunkline_overlay::identity::{Certificate, Identity, MacKey, Trust};
use trunkline_overlay::link::{self, LinkId};
use trunkline_overlay::node::{Changes, Config, Node, Routing, Sealing, Start};
use trunkline_overlay::route::Limits;
use trunkline_overlay::route::update::{Introduction, MAX_FRAGMENTS, sign};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::{
    ControlKind, ENVELOPE_OVERHEAD, Hello, Incarnation, Kind, Metric, NodeId, Null, ReceiverIndex,
    Seal, Service,
};

/// The node under test, its honest neighbour, and the liar.
const NODE: usize = 1;
const HONEST: usize = 2;
const LIAR: usize = 3;
/// Secret of the operator's key; those of the nodes are their numbers.
const OPERATOR: u8 = 200;
/// Wall clock at the start, 1 January 2027, in nanoseconds since 1970.
pub(super) const WALL: u64 = 1_798_761_600_000_000_000;
const DELAY: Duration = Duration::from_millis(5);
/// Interval between two packets of the call in one direction.
const PACKETS: Duration = Duration::from_millis(20);
const PORT: u16 = 5;
/// Maximum number of datagrams that an attacker records.
const RECORDED: usize = 256;
const MAX_NODES: usize = 8;
const UNCONFIGURED_PEERS: u16 = 2;
/// Maximum number of links that a script can add.
const ADDED: usize = 3;

fn id(n: usize) -> NodeId {
    NodeId(n as u32)
}

fn identity(n: usize) -> Identity {
    Identity::from_secret(&[n as u8; 32])
}

fn operator() -> Identity {
    identity(usize::from(OPERATOR))
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n as u8], 7_000))
}

fn certificate(n: usize) -> Certificate {
    Certificate::issue(&operator(), id(n), "node", identity(n).public(), 0).expect("a short name")
}

fn trust(revoked: bool) -> Trust {
    let revoked = if revoked { vec![identity(LIAR).public()] } else { Vec::new() };
    Trust { overlay_keys: vec![operator().public()], revoked }
}

/// Credentials of node `n`: its key, a certificate, and trust in the others' certificates.
pub(super) fn sealing(n: usize) -> Sealing {
    let mut sealing = Sealing::new(identity(n));
    sealing.certificate = Some(certificate(n));
    sealing.trust = trust(false);
    sealing
}

fn link_to(n: usize) -> link::Config {
    let mut link = link::Config::new(id(n));
    link.realtime.bytes = 64 << 10;
    link.best_effort.bytes = 16 << 10;
    link
}

/// A node, and a session that holds the call's port.
struct Driven {
    node: Node,
    session: SessionId,
    applications: Applications,
    /// Datagrams in flight to it: arrival time, source and bytes.
    inbox: VecDeque<(Time, SocketAddr, Vec<u8>)>,
}

impl Driven {
    fn new(n: usize, other: usize, now: Time) -> Driven {
        let mut config = Config::new(id(n));
        let mut link = link_to(other);
        link.address = Some(address(other));
        config.links.push(link);
        let mut sealing = sealing(n);
        sealing.unconfigured_peers = UNCONFIGURED_PEERS;
        sealing.unconfigured_peer = link_to(0);
        config.sealing = Some(sealing);
        let limits = Limits { max_nodes: MAX_NODES, max_queue: 64, ..Limits::default() };
        config.routing = Some(Routing { limits, ..Routing::default() });
        let start = Start { unix_nanos: WALL, ..Start::simulated(now, Incarnation(5), n as u64) };
        let mut node = Node::new(config, start).expect("valid");
        let session = node.session_open().expect("there is room");
        let mut applications = Applications::default();
        let bind = message(&ToNode::Bind { version: SESSION_VERSION, port: PORT });
        node.session_recv(now, session, &bind, &mut applications);
        applications.messages.clear();
        Driven { node, session, applications, inbox: VecDeque::new() }
    }

    fn recv(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let mut batch = [RxDatagram { at: now, from, local: None, bytes: &mut bytes }];
        self.node.recv(now, &mut batch, &mut self.applications);
    }
}

/// The lying neighbour, with a genuine handshake and seal.
struct Liar {
    handshakes: Handshakes,
    seal: Seal,
    starts: u64,
}

impl Liar {
    fn new(starts: u64, path: u8, now: Time) -> Liar {
        let config = handshake::Config {
            node: id(LIAR),
            identity: identity(LIAR),
            certificate: Some(certificate(LIAR)),
            trust: trust(false),
            incarnation: Incarnation(starts),
            offer: Offer::default(),
            limits: handshake::Limits::default(),
        };
        let mut entropy = [9; 32];
        entropy[..8].copy_from_slice(&starts.to_be_bytes());
        let mut handshakes = Handshakes::new(config, entropy);
        let path = "x".repeat(usize::from(path % 8));
        let peer =
            Peer { node: id(NODE), path, key: None, address: Some(address(NODE)), mtu: 1_280 };
        handshakes.add(LinkId(0), peer, now);
        Liar { handshakes, seal: Seal::Aead(Box::default()), starts }
    }
}

pub(super) struct World {
    now: Time,
    node: Driven,
    honest: Driven,
    liar: Liar,
    /// Handshake messages of the node to the liar, at any of its addresses.
    to_liar: Vec<Vec<u8>>,
    recorded: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Number of arrivals of each packet of the call, by direction and number.
    call: BTreeMap<(usize, u16), u32>,
    next_packet: Time,
    number: u16,
    added: Vec<LinkId>,
    arena: TxArena,
}

impl Scene for World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep { unit, n } => {
                let long = Duration::from_micros(micros(unit, n).min(1_000_000));
                self.run_until(self.now + long);
            }
            Step::Calm { .. } => {
                let call = core::mem::replace(&mut self.next_packet, Time::NEVER);
                self.run_until(self.now + Duration::from_secs(40));
                self.next_packet = call.max(self.now);
            }
            Step::Revoke { yes } => {
                let trust = Some((trust(yes % 2 > 0), Vec::new()));
                self.reconfigure(&Changes { trust, ..Changes::default() });
            }
            Step::Add { path, reachable } => {
                let mut link = link_to(LIAR);
                link.path = "x".repeat(usize::from(path % 8));
                link.address = (reachable % 2 > 0).then(|| address(LIAR));
                let alike = |l: &link::Link| {
                    l.config().path == link.path && l.config().neighbour == id(LIAR)
                };
                if self.added.len() < ADDED && !self.node.node.links().any(|(_, l)| alike(l)) {
                    let before: Vec<LinkId> = self.node.node.links().map(|(id, _)| id).collect();
                    self.reconfigure(&Changes { added: vec![link], ..Changes::default() });
                    let new =
                        self.node.node.links().map(|(id, _)| id).find(|id| !before.contains(id));
                    self.added.extend(new);
                }
            }
            Step::Remove { link } => {
                let name = |(id, link): (LinkId, &link::Link)| {
                    (id, (link.config().neighbour, link.config().path.clone()))
                };
                let links: Vec<_> = self.node.node.links().map(name).skip(1).collect();
                let which = usize::from(link) % links.len().max(1);
                let Some((link, name)) = links.get(which).cloned() else { return };
                self.added.retain(|l| *l != link);
                self.reconfigure(&Changes { removed: vec![name], ..Changes::default() });
            }
            Step::Restart { node: path } => {
                self.liar = Liar::new(self.liar.starts + 1, path, self.now);
                self.to_liar.clear();
            }
            Step::Greet { from } => self.greet(from),
            _ => self.lie(step),
        }
        self.settle();
        self.check();
    }

    /// Checks that the call has lost nothing, and received nothing twice.
    fn finish(&mut self) {
        self.next_packet = Time::NEVER;
        self.run_until(self.now + Duration::from_millis(100));
        for (which, times) in &self.call {
            assert_eq!(*times, 1, "{which:?}");
        }
    }
}

impl World {
    /// Creates two neighbours with an established link.
    pub(super) fn new() -> World {
        let now = Time::from_millis(1_000);
        let mut world = World {
            now,
            node: Driven::new(NODE, HONEST, now),
            honest: Driven::new(HONEST, NODE, now),
            liar: Liar::new(1, 0, now),
            to_liar: Vec::new(),
            recorded: VecDeque::new(),
            call: BTreeMap::new(),
            next_packet: Time::NEVER,
            number: 0,
            added: Vec::new(),
            arena: TxArena::new(16 << 10, 64),
        };
        world.run_until(now + Duration::from_secs(3));
        for (at, to) in [(&world.node, HONEST), (&world.honest, NODE)] {
            assert!(at.node.table().next_hop(id(to), Metric::default()).is_some(), "no route");
        }
        world.next_packet = world.now;
        world
    }

    fn reconfigure(&mut self, changes: &Changes) {
        self.node.node.reconfigure(self.now, changes);
    }

    fn from(n: u8, before: SocketAddr) -> SocketAddr {
        match n {
            0 => before,
            1 => address(HONEST),
            _ => SocketAddr::from(([198, 51, 100, n], 9_000)),
        }
    }

    fn greet(&mut self, from: u8) {
        let from = Self::from(from, address(LIAR));
        self.liar.handshakes.restart(LinkId(0), self.now);
        for _ in 0..5 {
            let liar = &mut self.liar;
            liar.handshakes.handle_timeout(self.now);
            for bytes in self.to_liar.drain(..) {
                liar.handshakes.recv(self.now, WALL / 1_000_000_000, address(NODE), &bytes);
            }
            let mut out = Vec::new();
            while let Some(event) = liar.handshakes.poll() {
                match event {
                    Event::Send { bytes, .. } => out.push(bytes),
                    Event::Established(e) => {
                        let Seal::Aead(sealed) = &mut liar.seal else { unreachable!() };
                        sealed.install(e.keys, self.now);
                    }
                    _ => {}
                }
            }
            out.into_iter().for_each(|bytes| self.receive(from, &bytes));
            self.settle();
        }
    }

    fn lie(&mut self, step: &Step) {
        let seq = |n: u16| WALL + self.now.as_nanos() + u64::from(n);
        match *step {
            Step::Hello { from, echo: age, .. } => {
                let now = self.now.as_micros() as u32;
                let echo = Some((now.wrapping_sub(1_000 * u32::from(age)), 0));
                let hello = Hello { sent_us: now, echo, heard_ms: Some(0), ..Hello::default() };
                let mut frame = [0; 64];
                let mut w = Writer::new(&mut frame);
                hello.emit(&mut w).expect("it fits");
                self.say(from, w.written());
            }
            Step::Frames { from, ref frames, .. } => self.say(from, frames),
            Step::Links { origin, seq: n, fragment, age, ref ends } => {
                let record = links(origin, seq(n), fragment, age, ends);
                self.tell(&record);
            }
            Step::ManyLinks { origin, seq: first, n } => {
                let first = seq(first);
                for k in 0..n {
                    self.tell(&links(origin, first + u64::from(k), 0, 0, &[1, k, k, 1]));
                }
            }
            Step::Wrap { origin, seq } => {
                self.tell(&links(origin, u64::MAX.wrapping_add(seq.into()), 0, 0, &[1, 0]));
            }
            Step::Introduce { origin, seq: n, certificate: ref bytes } => {
                let genuine = || certificate(LIAR).to_bytes();
                let certificate = if bytes.is_empty() { genuine() } else { bytes.clone() };
                let origin = NodeId(u32::from(origin % 16));
                if let Ok(signed) = (Introduction { origin, seq: seq(n), certificate }).emit() {
                    let record = [&sign(signed, &identity(LIAR))[..], &[0, 0]].concat();
                    self.tell(&record);
                }
            }
            Step::Copy { pick, from, .. } => self.again(pick, from, |_| {}),
            Step::Truncate { pick, from, len } => {
                self.again(pick, from, |bytes| bytes.truncate(usize::from(len) % bytes.len()));
            }
            Step::Alter { pick, from, at, xor, mac, .. } => self.again(pick, from, |bytes| {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= xor;
                stamp(mac, bytes);
            }),
            Step::Raw { from, mac, ref bytes } => {
                let mut bytes = bytes.clone();
                stamp(mac, &mut bytes);
                self.receive(Self::from(from, address(66)), &bytes);
            }
            Step::Initiations { from, n } => {
                let mac = MacKey::for_node(&identity(NODE).public()).expect("a key");
                for k in 0..n % 128 {
                    let noise = [k; 200];
                    let bytes = Initiation { cookie: [0; 16], noise: &noise }.emit(&mac);
                    self.receive(Self::from(from, address(66)), &bytes);
                }
            }
            Step::Unsealed { from, ref frames } => {
                let index = ReceiverIndex::derived(id(HONEST), id(NODE), "");
                let mut bytes = vec![0; ENVELOPE_OVERHEAD + frames.len()];
                Seal::frames_mut(&mut bytes).copy_from_slice(frames);
                Seal::Null(Null::new(index, Incarnation(9))).seal(&mut bytes);
                self.receive(Self::from(from, address(HONEST)), &bytes);
            }
            _ => {}
        }
    }

    /// Sends `frames` sealed by the liar, if it has keys.
    fn say(&mut self, from: u8, frames: &[u8]) {
        let mut bytes = vec![0; ENVELOPE_OVERHEAD + frames.len()];
        Seal::frames_mut(&mut bytes).copy_from_slice(frames);
        if self.liar.seal.seal(&mut bytes) {
            self.receive(Self::from(from, address(LIAR)), &bytes);
        }
    }

    fn tell(&mut self, record: &[u8]) {
        let len = (record.len() as u16).to_be_bytes();
        self.say(0, &[&[ControlKind::LinkState as u8][..], &len, record].concat());
    }

    fn again(&mut self, pick: u8, from: u8, change: impl FnOnce(&mut Vec<u8>)) {
        let i = usize::from(pick) % self.recorded.len().max(1);
        let Some((before, mut bytes)) = self.recorded.get(i).cloned() else { return };
        change(&mut bytes);
        self.receive(Self::from(from, before), &bytes);
    }

    /// Receives an attacker's datagram, and checks that it is accepted or counted.
    fn receive(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.record(from, bytes);
        let before = accounted(&self.node.node);
        self.node.recv(self.now, from, bytes);
        // An answer has its effect only on later messages.
        let is_answer = Kind::of(bytes) == Ok(Kind::Answer);
        assert!(is_answer || accounted(&self.node.node) > before, "neither taken nor counted");
    }

    fn record(&mut self, from: SocketAddr, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.recorded.len() == RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((from, bytes.to_vec()));
    }

    /// Runs the two honest nodes up to `end`.
    fn run_until(&mut self, end: Time) {
        loop {
            self.settle();
            let arrival = |d: &Driven| d.inbox.front().map_or(Time::NEVER, |i| i.0);
            let both = [&self.node, &self.honest];
            let due = both.map(|d| arrival(d).min(d.node.next_timeout(self.now)));
            let next = due[0].min(due[1]).min(self.next_packet);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if next == self.next_packet {
                self.next_packet += PACKETS;
                self.speak();
            }
            for n in [NODE, HONEST] {
                while let Some((at, from, bytes)) = self.side(n).inbox.pop_front() {
                    if at > self.now {
                        self.side(n).inbox.push_front((at, from, bytes));
                        break;
                    }
                    if n == NODE {
                        self.record(from, &bytes);
                    }
                    let now = self.now;
                    self.side(n).recv(now, from, &bytes);
                }
            }
            self.hear();
        }
    }

    fn side(&mut self, n: usize) -> &mut Driven {
        if n == NODE { &mut self.node } else { &mut self.honest }
    }

    fn speak(&mut self) {
        self.number = self.number.wrapping_add(1);
        for n in [NODE, HONEST] {
            let (to, now, payload) = (id(NODE + HONEST - n), self.now, self.number.to_be_bytes());
            let send = ToNode::Send {
                service: Service::RealTime,
                deadline_ms: 100,
                to,
                port: PORT,
                payload: &payload,
            };
            let said = message(&send);
            let number = self.number;
            let side = self.side(n);
            side.node.session_recv(now, side.session, &said, &mut side.applications);
            self.call.insert((n, number), 0);
        }
    }

    fn hear(&mut self) {
        for n in [NODE, HONEST] {
            let messages = core::mem::take(&mut self.side(n).applications.messages);
            for m in messages {
                let bytes = [&m.head[..], &m.payload].concat();
                let Ok(ToClient::Received { from, payload, .. }) = ToClient::parse(&bytes) else {
                    panic!("a node says what nobody asked for");
                };
                // Packets of the liar do not belong to the call.
                if from == id(NODE + HONEST - n)
                    && let Some(number) = payload.first_chunk().map(|b| u16::from_be_bytes(*b))
                    && let Some(times) = self.call.get_mut(&(NODE + HONEST - n, number))
                {
                    *times += 1;
                }
            }
        }
    }

    fn settle(&mut self) {
        let at = self.now + DELAY;
        let Driven { node, applications, .. } = &mut self.node;
        for envelope in settle(node, self.now, &mut self.arena, applications) {
            if envelope.to == address(HONEST) {
                self.honest.inbox.push_back((at, address(NODE), envelope.bytes));
            } else if Kind::of(&envelope.bytes).is_ok_and(Kind::is_handshake)
                && self.to_liar.len() < RECORDED
            {
                self.to_liar.push(envelope.bytes);
            }
        }
        let Driven { node, applications, .. } = &mut self.honest;
        for envelope in settle(node, self.now, &mut self.arena, applications) {
            self.node.inbox.push_back((at, address(HONEST), envelope.bytes));
        }
        self.hear();
    }

    fn check(&self) {
        let node = &self.node.node;
        let links = node.links().count();
        assert!(links <= 1 + usize::from(UNCONFIGURED_PEERS) + ADDED, "{links} links");
        for at in [node, &self.honest.node] {
            let router = at.router().expect("configured");
            assert!(router.nodes() <= MAX_NODES);
            let most = MAX_NODES * (usize::from(MAX_FRAGMENTS) + 1);
            assert!(router.records().count() <= most);
            let (_, link) = at.links().next().expect("the honest link");
            assert!(link.monitor().is_up() && link.is_ready(), "the honest link is down");
        }
    }
}

/// Encodes a record of `origin` about its links, signed by the liar.
fn links(origin: u8, seq: u64, fragment: u8, age: u16, ends: &[u8]) -> Vec<u8> {
    let ends = &ends[..ends.len().min(64) / 2 * 2];
    let mut signed = vec![fragment % MAX_FRAGMENTS];
    signed.extend(u32::from(origin % 16).to_be_bytes());
    signed.extend(seq.to_be_bytes());
    signed.push((ends.len() / 2) as u8);
    for end in ends.chunks_exact(2) {
        signed.extend(u32::from(end[0] % 16).to_be_bytes());
        signed.extend([0, 0, end[1], 0, 0, 0]);
    }
    [&sign(signed, &identity(LIAR))[..], &age.to_be_bytes()].concat()
}

/// Stamps a MAC that the node may accept: under its own key, or under a query's.
fn stamp(mac: u8, bytes: &mut [u8]) {
    let key = match mac % 3 {
        1 => MacKey::for_node(&identity(NODE).public()),
        2 => Some(MacKey::for_overlay(&operator().public())),
        _ => None,
    };
    if let Some(key) = key {
        key.stamp(bytes);
    }
}

/// Sum of all counters that record received datagrams.
fn accounted(node: &Node) -> u64 {
    let drops = |d: &Drops| DropReason::ALL.map(|why| d.get(why)).iter().sum::<u64>();
    let of_link = |l: &link::Link| drops(&l.stats().drops) + l.stats().received.envelopes;
    let links: u64 = node.links().map(|(_, l)| of_link(l)).sum();
    let shakes = node.control().handshakes().expect("it is sealed");
    let refused: u64 = shakes.refusals().map(|(_, n)| n).sum();
    drops(&node.stats().drops) + links + refused + shakes.answers + shakes.established
}
