//! A node with three neighbours and arbitrary applications, unsealed. A script feeds it real
//! envelopes of the neighbours (reordered, repeated, altered), forged ones, raw bytes and session
//! messages, and advances the clock.
//!
//! Invariants: two nodes with the same input emit the same bytes; hellos keep their minimum
//! interval and retransmissions their budget; applications receive no more bytes than came in, and
//! no packet twice; every incoming packet is sent, delivered or counted as dropped.

use super::check::{Bounds, Emitted};
use super::driver::{Applications, Envelope, LARGEST, Once, message, settle, take};
use super::{Scene, Step};
use crate::script::micros;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use trunkline_base::wire::Writer;
use trunkline_base::{Bitrate, Time};
use trunkline_overlay::arena::{RxDatagram, TxArena, UplinkId};
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::link::{self, LinkId};
use trunkline_overlay::node::{Config, Drained, Node, Start, Timer};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{RefusalReason, SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::{
    DataHeader, ENVELOPE_OVERHEAD, FlowHeader, Hello, HopHeader, Incarnation, Nack, NackRange,
    NodeId, Null, ReceiverIndex, Seal, Service,
};

/// The node under test; its neighbours are 2, 3 and 4.
pub const OWN: NodeId = NodeId(1);
pub const LINKS: usize = 3;

/// The uplink of a link: the first two share one.
fn uplink(link: usize) -> UplinkId {
    UplinkId(1 + (link / 2) as u16)
}
const UPLINKS: usize = 2;
/// Application ports here and at the neighbours are 0 to 7.
const PORTS: u8 = 8;
const MAX_SESSIONS: usize = 6;
/// Maximum number of envelopes in flight in one direction; more push out the oldest.
const UNDER_WAY: usize = 64;

pub fn neighbour(link: usize) -> NodeId {
    NodeId(link as u32 + 2)
}

fn address(link: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, link as u8 + 2), 7_000).into()
}

fn elsewhere(n: u8) -> SocketAddr {
    (Ipv4Addr::new(198, 51, 100, n), 9_000).into()
}

/// Destinations of packets: the node, its neighbours, two nodes behind them, and one behind the
/// default route.
fn destination(n: u8) -> NodeId {
    NodeId([1, 2, 3, 4, 20, 30, 99][usize::from(n % 7)])
}

fn service(n: u8) -> Service {
    if n.is_multiple_of(2) { Service::RealTime } else { Service::BestEffort }
}

/// Makes rings so small that scripts fill them.
fn small(link: &mut link::Config) {
    link.realtime.bytes = 16 << 10;
    link.realtime.packets = 16;
    link.realtime.retransmit_burst = 8;
    link.best_effort.bytes = 4 << 10;
    link.best_effort.packets = 8;
}

/// Configures a link with an address and all defaults, one that waits for its neighbour to send
/// first and has small packets, and one with a rate.
fn config(settings: &[u8]) -> Config {
    let mut config = Config::new(OWN);
    config.max_sessions = MAX_SESSIONS;
    for i in 0..LINKS {
        let mut link = link::Config::new(neighbour(i));
        small(&mut link);
        link.address = (i != 1).then(|| address(i));
        link.realtime.reorder = u16::from(settings[0] % 4);
        link.realtime.recovery = match settings[1] % 8 {
            0 => Recovery::OFF,
            1..4 => Recovery::ONCE,
            _ => Recovery::UNTIL_DEADLINE,
        };
        config.links.push(link);
    }
    config.links[1].mtu = [1_280, 576][usize::from(settings[2] % 2)];
    let kbits = [64, 512, 2_000, 100_000][usize::from(settings[3] % 4)];
    config.links[2].rate = Some(Bitrate::from_bps(kbits * 1_000));
    config.routes = [(Some(20), 2), (Some(20), 4), (Some(30), 3), (None, 4)]
        .map(|(to, via)| StaticRoute {
            to: to.map(NodeId),
            via: NodeId(via),
            onward: Duration::from_millis(u64::from(settings[0] / 4)),
        })
        .to_vec();
    config
}

fn set_rooms(rooms: &[usize], arena: &mut TxArena) {
    for (&room, n) in rooms.iter().zip(1..) {
        arena.set_room(UplinkId(n), room);
    }
}

struct Peer {
    node: Node,
    incarnation: u64,
    session: SessionId,
}

impl Peer {
    fn new(link: usize, incarnation: u64, now: Time) -> Peer {
        let id = neighbour(link);
        let mut config = Config::new(id);
        let mut to_us = link::Config::new(OWN);
        small(&mut to_us);
        to_us.address = Some((Ipv4Addr::new(192, 0, 2, 1), 7_000).into());
        config.links.push(to_us);
        config.routes.push(StaticRoute { to: None, via: OWN, onward: Duration::ZERO });
        let mut node =
            Node::new(config, Start::simulated(now, Incarnation(incarnation), 7)).expect("valid");
        let session = node.session_open().expect("there is room");
        let bind = message(&ToNode::Bind { version: SESSION_VERSION, port: 5 });
        node.session_recv(now, session, &bind, &mut Applications::default());
        Peer { node, incarnation, session }
    }
}

/// A datagram in flight to the node.
struct Datagram {
    from: SocketAddr,
    bytes: Vec<u8>,
}

pub(super) struct World {
    now: Time,
    node: Node,
    /// Receives the same input as `node`, and must emit the same output.
    twin: Node,
    applications: Applications,
    twin_applications: Applications,
    open: Vec<SessionId>,
    /// Ports held by open sessions.
    ports: BTreeMap<SessionId, u16>,
    once: Once,
    peers: Vec<Peer>,
    under_way: VecDeque<Datagram>,
    said: VecDeque<(usize, Vec<u8>)>,
    emitted: Emitted,
    bounds: Bounds,
    /// Room of each uplink whenever the node transmits.
    rooms: [usize; UPLINKS],
}

impl World {
    pub(super) fn new(settings: &[u8]) -> World {
        let now = Time::from_millis(1_000);
        let seed = u64::from(settings[4]);
        let node = || {
            let start = Start::simulated(now, Incarnation(5), seed);
            let mut node = Node::new(config(settings), start).expect("valid");
            (0..LINKS).for_each(|i| node.set_uplink(LinkId(i as u16), uplink(i), None));
            node
        };
        World {
            now,
            node: node(),
            twin: node(),
            applications: Applications::default(),
            twin_applications: Applications::default(),
            open: Vec::new(),
            ports: BTreeMap::new(),
            once: Once::default(),
            peers: (0..LINKS).map(|i| Peer::new(i, 5, now)).collect(),
            under_way: VecDeque::new(),
            said: VecDeque::new(),
            emitted: Emitted::default(),
            bounds: Bounds::default(),
            rooms: [usize::MAX; UPLINKS],
        }
    }

    fn sleep(&mut self, micros: u64) {
        self.now += Duration::from_micros(micros);
    }
}

impl Scene for World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep { unit, n } => self.sleep(micros(unit, n)),
            Step::Wake { arena, .. } => {
                let at = self.node.next_timeout(self.now);
                if at != Time::NEVER {
                    self.now = self.now.max(at);
                }
                self.settle(arena);
            }
            Step::Settle { arena, .. } => self.settle(arena),
            Step::Transmit { bytes, runs } => self.transmit_once(bytes, runs),
            Step::Room { uplink, bytes } => {
                let room = if bytes == u16::MAX { usize::MAX } else { usize::from(bytes) };
                self.rooms[usize::from(uplink) % UPLINKS] = room;
            }
            Step::Open {} => self.open_session(),
            Step::Close { session } => self.close_session(session),
            Step::Full { yes, .. } => {
                self.applications.full = yes % 2 == 1;
                self.twin_applications.full = self.applications.full;
            }
            Step::PeersHear {} => self.peers_hear(),
            Step::Restart { node } => {
                let link = usize::from(node) % LINKS;
                let incarnation = self.peers[link].incarnation + 1;
                self.peers[link] = Peer::new(link, incarnation, self.now);
            }
            Step::Bind { .. } | Step::Send { .. } | Step::Say { .. } => self.application_step(step),
            Step::Raw { .. }
            | Step::Frames { .. }
            | Step::Data { .. }
            | Step::Nack { .. }
            | Step::Hello { .. } => self.forged_step(step),
            Step::Arrive { .. }
            | Step::Overtake { .. }
            | Step::Copy { .. }
            | Step::Alter { .. }
            | Step::Lose { .. } => self.network_step(step),
            _ => {}
        }
    }

    /// Lets everything queued be sent or expire, and checks that no packet is unaccounted for.
    fn finish(&mut self) {
        // Packets for an uplink that accepts nothing stay queued, whatever their deadlines.
        self.rooms = [usize::MAX; UPLINKS];
        self.settle(3);
        self.sleep(1_000_000_000);
        self.settle(3);
        // Hellos due at this moment precede packets, and use up the rate.
        while let Timer::Pace(_) = self.node.timer(self.now) {
            let at = self.node.next_timeout(self.now);
            self.now = at;
            self.settle(3);
        }
        self.bounds.check(&self.node);
        assert_eq!(self.node.stats(), self.twin.stats());
        for ((_, link), (_, twin)) in self.node.links().zip(self.twin.links()) {
            assert_eq!(link.stats(), twin.stats());
        }
    }
}

impl World {
    fn application_step(&mut self, step: &Step) {
        match *step {
            Step::Bind { session, port } => {
                // One port more than the other steps use.
                let port = u16::from(port % (PORTS + 1));
                let bind = ToNode::Bind { version: SESSION_VERSION, port };
                self.say(session, &message(&bind));
            }
            Step::Send { node, session, service: s, deadline, to, port, len, count } => {
                let packet = packet(s, deadline, destination(to), port, len);
                let at = usize::from(node) % (1 + LINKS);
                let Some(link) = at.checked_sub(1) else {
                    for _ in 0..count % 64 {
                        self.say(session, &packet);
                    }
                    return;
                };
                let peer = &mut self.peers[link];
                for _ in 0..count % 64 {
                    let sink = &mut Applications::default();
                    peer.node.session_recv(self.now, peer.session, &packet, sink);
                }
                self.settle_peer(link);
            }
            Step::Say { pick, ref bytes } => self.say(pick, bytes),
            _ => {}
        }
    }

    /// Sends the forgery of a step in an envelope like a neighbour's.
    fn forged_step(&mut self, step: &Step) {
        let mut frame = vec![0; 256 + 20];
        let mut w = Writer::new(&mut frame);
        let link = match *step {
            Step::Raw { from, ref bytes, .. } => {
                let from = match usize::from(from) {
                    link @ 0..LINKS => address(link),
                    _ => elsewhere(from),
                };
                return self.receive(0, vec![Datagram { from, bytes: bytes.clone() }]);
            }
            Step::Frames { from, incarnation, ref frames } => {
                return self.receive_forged(from, incarnation, frames);
            }
            Step::Data { link, first, seq, from, to, port, flow_seq, remaining, len } => {
                let header = DataHeader {
                    flow: FlowHeader {
                        service: service(first),
                        metric: trunkline_overlay::wire::Metric::default(),
                        source: destination(from),
                        destination: destination(to),
                        source_port: 5,
                        destination_port: u16::from(port % PORTS),
                        flow_seq,
                    },
                    hop: HopHeader {
                        recovered: first & 2 != 0,
                        hop_limit: first >> 3,
                        link_seq: seq,
                        remaining_ms: remaining,
                    },
                };
                header.emit(u16::from(len), &mut w).expect("it fits");
                w.bytes(&vec![len; usize::from(len)]).expect("it fits");
                link
            }
            Step::Nack { link, first, count, n, step } => {
                let range = |k: u16| NackRange {
                    first: first.wrapping_add(k * u16::from(step)),
                    count: u16::from(count) + 1,
                };
                let ranges: Vec<_> = (0..=u16::from(n % 64)).map(range).collect();
                Nack::emit(service((first >> 8) as u8), &ranges, &mut w).expect("it fits");
                link
            }
            Step::Hello { from: link, sent, echo, held } => {
                // Times near the node's own, so that some are plausible.
                let near = |x: u16| self.now.as_micros() as u32 - 32_768 + u32::from(x);
                let held = u32::from(held);
                let echo = (held != 65_535).then_some((near(echo), held));
                Hello {
                    probe: link % 2 == 1,
                    seq: 0,
                    sent_us: near(sent),
                    echo,
                    ..Hello::default()
                }
                .emit(&mut w)
                .expect("it fits");
                link
            }
            _ => return,
        };
        let frame = w.written().to_vec();
        self.receive_forged(link, 5, &frame);
    }

    fn receive_forged(&mut self, link: u8, incarnation: u8, frames: &[u8]) {
        let link = usize::from(link) % LINKS;
        let index = ReceiverIndex::derived(neighbour(link), OWN, "");
        let mut bytes = vec![0; ENVELOPE_OVERHEAD + frames.len()];
        Seal::frames_mut(&mut bytes).copy_from_slice(frames);
        Seal::Null(Null::new(index, Incarnation(incarnation.into()))).seal(&mut bytes);
        self.receive(0, vec![Datagram { from: address(link), bytes }]);
    }

    fn network_step(&mut self, step: &Step) {
        let pick = |pick: u8, of: usize| (of > 0).then(|| usize::from(pick) % of);
        let picked = |p: u8| pick(p, self.under_way.len());
        match *step {
            Step::Arrive { n, age, .. } => {
                let n = usize::from(n).min(self.under_way.len());
                let batch = self.under_way.drain(..n).collect();
                self.receive(age, batch);
            }
            Step::Overtake { pick, from, .. } => {
                let datagram = picked(pick).and_then(|i| self.under_way.remove(i));
                let Some(Datagram { from: right, bytes }) = datagram else { return };
                let from = if from == 0 { right } else { elsewhere(from) };
                self.receive(0, vec![Datagram { from, bytes }]);
            }
            Step::Copy { pick, .. } => {
                let Some(i) = picked(pick) else { return };
                let Datagram { from, bytes } = &self.under_way[i];
                self.receive(0, vec![Datagram { from: *from, bytes: bytes.clone() }]);
            }
            Step::Alter { pick, at, xor, .. } => {
                let Some(i) = picked(pick) else { return };
                let bytes = &mut self.under_way[i].bytes;
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= xor;
            }
            Step::Lose { pick, .. } => {
                picked(pick).and_then(|i| self.under_way.remove(i));
            }
            _ => {}
        }
    }

    fn receive(&mut self, age_ms: u8, datagrams: Vec<Datagram>) {
        let at = self.now - Duration::from_millis(age_ms.into());
        self.bounds.datagrams(datagrams.iter().map(|d| &d.bytes[..]));
        let before = self.envelopes_received();
        for twin in [false, true] {
            let (node, sink) = match twin {
                false => (&mut self.node, &mut self.applications),
                true => (&mut self.twin, &mut self.twin_applications),
            };
            let mut bytes: Vec<_> = datagrams.iter().map(|d| (d.from, d.bytes.clone())).collect();
            let mut batch: Vec<_> = bytes
                .iter_mut()
                .map(|(from, bytes)| RxDatagram { at, from: *from, local: None, bytes })
                .collect();
            node.recv(self.now, &mut batch, sink);
        }
        let accepted = self.envelopes_received() - before;
        self.bounds.accepted(accepted, datagrams.iter().map(|d| &d.bytes[..]));
        self.look_at_messages();
    }

    fn envelopes_received(&self) -> u64 {
        self.node.links().map(|(_, l)| l.stats().received.envelopes).sum()
    }

    fn open_session(&mut self) {
        let id = self.node.session_open();
        assert_eq!(id, self.twin.session_open());
        assert_eq!(id.is_some(), self.open.len() < MAX_SESSIONS);
        if let Some(id) = id {
            assert!(!self.open.contains(&id), "{id:?} is open twice");
            self.open.push(id);
        }
    }

    fn close_session(&mut self, session: u8) {
        let id = SessionId(session.into());
        self.node.session_close(self.now, id);
        self.twin.session_close(self.now, id);
        self.open.retain(|&open| open != id);
        self.ports.remove(&id);
        self.once.forget(id);
    }

    /// Passes a message of a session, which may be closed: its end and its last message cross.
    fn say(&mut self, session: u8, message: &[u8]) {
        let id = SessionId(u32::from(session) % (MAX_SESSIONS as u32 + 1));
        self.bounds.message(message);
        self.node.session_recv(self.now, id, message, &mut self.applications);
        self.twin.session_recv(self.now, id, message, &mut self.twin_applications);
        self.look_at_messages();
    }

    fn look_at_messages(&mut self) {
        assert_eq!(self.applications.messages, self.twin_applications.messages);
        self.twin_applications.messages.clear();
        for message in self.applications.messages.drain(..) {
            self.bounds.delivered(&message, self.applications.full);
            let bytes = [&message.head[..], &message.payload].concat();
            let parsed = ToClient::parse(&bytes).expect("a client understands its node");
            let held = |port| self.ports.values().any(|&held| held == port);
            match parsed {
                ToClient::Bound { port, .. } => {
                    assert!(self.open.contains(&message.to) && !held(port) && port != 0);
                    assert_eq!(self.ports.insert(message.to, port), None, "bound twice");
                }
                ToClient::Received { from, port, flow_seq, payload, .. } => {
                    assert!(self.ports.contains_key(&message.to), "a packet without a port");
                    assert_eq!(payload, message.payload);
                    self.once.check(self.now, (message.to.0, from.0, port), flow_seq);
                }
                ToClient::Error { refusal: RefusalReason::PortInUse, port, .. } => {
                    assert!(held(port))
                }
                ToClient::Error { .. } => {}
                ToClient::Reachable { .. } | ToClient::Unreachable { .. } => {
                    assert!(self.ports.contains_key(&message.to), "of whose packets?");
                }
                ToClient::Stream(_) => assert!(self.open.contains(&message.to)),
            }
        }
    }

    fn settle(&mut self, arena: u8) {
        let sizes = [(LARGEST, 64), (2_000, 1), (16 << 10, 2), (16 << 10, 64)];
        let (bytes, runs) = sizes[usize::from(arena % 4)];
        let arena = &mut TxArena::new(bytes, runs);
        set_rooms(&self.rooms, arena);
        let out = settle(&mut self.node, self.now, arena, &mut self.applications);
        set_rooms(&self.rooms, arena);
        let twin = settle(&mut self.twin, self.now, arena, &mut self.twin_applications);
        assert_eq!(out, twin, "the twin says something else");
        self.look_at_messages();
        assert_eq!(self.node.next_timeout(self.now), self.twin.next_timeout(self.now));
        self.look_at_envelopes(out);
    }

    fn transmit_once(&mut self, bytes: u8, runs: u8) {
        let bytes = 8 * usize::from(bytes);
        let runs = usize::from(runs % 4) + 1;
        let call = |node: &mut Node| {
            let arena = &mut TxArena::new(bytes, runs);
            set_rooms(&self.rooms, arena);
            let drained = node.transmit(self.now, arena);
            assert!(
                drained == Drained::All || !arena.is_empty() || bytes < LARGEST,
                "a roomy arena stayed empty"
            );
            let mut out = Vec::new();
            take(arena, &mut out);
            (drained, out)
        };
        let out = call(&mut self.node);
        assert_eq!(out, call(&mut self.twin), "the twin says something else");
        self.look_at_envelopes(out.1);
    }

    fn look_at_envelopes(&mut self, out: Vec<Envelope>) {
        for envelope in out {
            let link = self.emitted.check(self.now, &self.node, &envelope);
            if self.said.len() == UNDER_WAY {
                self.said.pop_front();
            }
            self.said.push_back((link, envelope.bytes));
        }
    }

    fn peers_hear(&mut self) {
        let here = (Ipv4Addr::new(192, 0, 2, 1), 7_000).into();
        for (link, mut bytes) in core::mem::take(&mut self.said) {
            let mut batch =
                [RxDatagram { at: self.now, from: here, local: None, bytes: &mut bytes }];
            self.peers[link].node.recv(self.now, &mut batch, &mut Applications::default());
        }
        (0..LINKS).for_each(|link| self.settle_peer(link));
    }

    fn settle_peer(&mut self, link: usize) {
        let arena = &mut TxArena::new(16 << 10, 64);
        let nobody = &mut Applications::default();
        for envelope in settle(&mut self.peers[link].node, self.now, arena, nobody) {
            if self.under_way.len() == UNDER_WAY {
                self.under_way.pop_front();
            }
            self.under_way.push_back(Datagram { from: address(link), bytes: envelope.bytes });
        }
    }
}

fn packet(s: u8, deadline: u8, to: NodeId, port: u8, len: u16) -> Vec<u8> {
    let payload = &[s; 1_500][..usize::from(len % 1_500)];
    let port = u16::from(port % PORTS);
    let deadline_ms = deadline.max(1);
    message(&ToNode::Send { service: service(s), deadline_ms, to, port, payload })
}
