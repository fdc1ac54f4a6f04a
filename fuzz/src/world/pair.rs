//! Two nodes joined by two links through a network that the script controls. The network drops,
//! copies, delays, reorders and, if the first setting says so, alters envelopes. The links are
//! sealed or not.
//!
//! Invariants: no packet reaches an application twice. As long as nothing is altered, or everything
//! is sealed: each arriving packet was sent, to that port and with that deadline; and once the
//! network behaves, links come up and packets get through, so no earlier event has left a node in a
//! bad state. For streams: the bytes read equal the bytes written, and both ends learn of each
//! stream's end.

use super::driver::{Applications, Message, Once, message, settle};
use super::sealed::{WALL, sealing};
use super::streams::{self, Streams};
use super::{Scene, Step};
use crate::script::micros;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{Bitrate, Time};
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Node, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode, Unreachable};
use trunkline_overlay::wire::{Incarnation, NodeId, Service};

const PORTS: [u16; 2] = [5, 6];
const PATHS: [&str; 2] = ["a", "b"];
/// Maximum number of envelopes in flight in one direction; more push out the oldest.
const UNDER_WAY: usize = 256;
/// Length of the packet's number at the start of every payload.
const STAMP: usize = 4;

fn address(side: usize, path: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, side as u8 + 1), 7_000 + path as u16).into()
}

pub(super) fn id(side: usize) -> NodeId {
    NodeId(side as u32 + 1)
}

fn is_sealed(settings: &[u8]) -> bool {
    settings[3] % 2 == 1
}

/// Link "a" has a rate at node 1; link "b" waits at node 2 for its neighbour to send first.
fn config(side: usize, settings: &[u8]) -> Config {
    let mut config = Config::new(id(side));
    config.sealing = is_sealed(settings).then(|| sealing(side + 1));
    config.streams = streams::config(settings[0] / 2);
    for (i, path) in PATHS.into_iter().enumerate() {
        let mut link = link::Config::new(id(1 - side));
        link.path = path.into();
        link.address = (side == 0 || i == 0).then(|| address(1 - side, i));
        link.realtime.bytes = 16 << 10;
        link.realtime.packets = 64;
        link.realtime.retransmit_burst = 32;
        link.realtime.reorder = u16::from(settings[1] % 4);
        link.best_effort.bytes = 16 << 10;
        link.best_effort.packets = 64;
        if side == 0 && i == 0 {
            let kbits = [None, Some(256), Some(2_000)][usize::from(settings[2] % 3)];
            link.rate = kbits.map(|k| Bitrate::from_bps(k * 1_000));
        }
        config.links.push(link);
    }
    config
}

struct Datagram {
    path: usize,
    bytes: Vec<u8>,
    /// Arrival time, for the calm at the end.
    at: Time,
}

pub(super) struct Side {
    pub(super) node: Node,
    incarnation: u64,
    sessions: Vec<SessionId>,
    applications: Applications,
    once: Once,
    /// Envelopes in flight to this side.
    under_way: VecDeque<Datagram>,
}

impl Side {
    fn new(side: usize, settings: &[u8], incarnation: u64, now: Time) -> Side {
        let config = config(side, settings);
        // On sealed links, the ends must not create the same keys.
        let seed = if is_sealed(settings) { side as u64 } else { 7 };
        let start = Start::simulated(now, Incarnation(incarnation), seed);
        let start = Start { unix_nanos: WALL, ..start };
        let mut node = Node::new(config, start).expect("valid");
        let mut applications = Applications::default();
        let bind = |port| {
            let session = node.session_open().expect("there is room");
            let bind = ToNode::Bind { version: SESSION_VERSION, port };
            node.session_recv(now, session, &message(&bind), &mut applications);
            session
        };
        let sessions = PORTS.map(bind).to_vec();
        applications.messages.clear();
        let (once, under_way) = (Once::default(), VecDeque::new());
        Side { node, incarnation, sessions, applications, once, under_way }
    }
}

/// A packet that an application has sent.
struct Sent {
    from: (NodeId, u16),
    to: (NodeId, u16),
    service: Service,
    deadline_ms: u8,
    payload: Vec<u8>,
    arrived: u32,
}

pub(super) struct World {
    pub(super) settings: Vec<u8>,
    pub(super) now: Time,
    pub(super) sides: [Side; 2],
    sent: Vec<Sent>,
    pub(super) streams: Streams,
    arena: TxArena,
}

impl World {
    pub(super) fn new(settings: &[u8]) -> World {
        let now = Time::from_millis(1_000);
        World {
            settings: settings.to_vec(),
            now,
            sides: [0, 1].map(|side| Side::new(side, settings, 1, now)),
            sent: Vec::new(),
            streams: Streams::default(),
            arena: TxArena::new(16 << 10, 16),
        }
    }
}

impl Scene for World {
    fn step(&mut self, step: &Step) {
        self.act(step);
        self.check_streams();
    }

    fn finish(&mut self) {
        if !self.network_alters() {
            self.check_drops();
        }
        if !self.alters() {
            self.calm_down();
        }
    }
}

impl World {
    /// Whether arriving packets may differ from those sent.
    pub(super) fn alters(&self) -> bool {
        self.network_alters() && !is_sealed(&self.settings)
    }

    fn network_alters(&self) -> bool {
        self.settings[0] % 2 == 1
    }

    fn act(&mut self, step: &Step) {
        let side = |node: u8| usize::from(node % 2);
        match *step {
            Step::Sleep { unit, n } => self.now += Duration::from_micros(micros(unit, n)),
            Step::Wake { node, .. } => {
                let at = self.sides[side(node)].node.next_timeout(self.now);
                if at != Time::NEVER {
                    self.now = self.now.max(at);
                }
                self.settle(side(node));
            }
            Step::Settle { node, .. } => self.settle(side(node)),
            Step::Send { node, session: port, service, deadline, len, count, .. } => {
                for _ in 0..count % 64 {
                    self.send(node.into(), port.into(), service, deadline, len.into());
                }
            }
            Step::Restart { node } => self.restart(side(node)),
            Step::Calm { n } => {
                for _ in 0..n {
                    self.settle(0);
                    self.settle(1);
                    if self.sides.iter().all(|s| s.under_way.is_empty()) {
                        break;
                    }
                    self.now += Duration::from_millis(1);
                    self.arrive(0, usize::MAX);
                    self.arrive(1, usize::MAX);
                }
            }
            Step::Full { node, yes } => self.sides[side(node)].applications.full = yes % 2 == 1,
            Step::Arrive { node, n, .. } => self.arrive(side(node), n.into()),
            Step::Overtake { node, pick, .. }
            | Step::Copy { node, pick, .. }
            | Step::Lose { node, pick }
            | Step::Alter { node, pick, .. } => {
                let under_way = &mut self.sides[side(node)].under_way;
                if !under_way.is_empty() {
                    let pick = usize::from(pick) % under_way.len();
                    self.one_envelope(step, side(node), pick);
                }
            }
            _ => self.stream_step(step),
        }
    }

    fn restart(&mut self, side: usize) {
        let incarnation = self.sides[side].incarnation + 1;
        let under_way = core::mem::take(&mut self.sides[side].under_way);
        self.sides[side] = Side::new(side, &self.settings, incarnation, self.now);
        self.sides[side].under_way = under_way;
        self.streams_failed(side);
    }

    fn one_envelope(&mut self, step: &Step, side: usize, pick: usize) {
        let alters = self.network_alters();
        let under_way = &mut self.sides[side].under_way;
        match *step {
            Step::Overtake { .. } => {
                let datagram = under_way.remove(pick);
                self.receive(side, datagram.into_iter().collect());
            }
            Step::Copy { .. } => {
                let Datagram { path, ref bytes, at } = under_way[pick];
                let copy = Datagram { path, bytes: bytes.clone(), at };
                self.receive(side, vec![copy]);
            }
            Step::Lose { .. } => drop(under_way.remove(pick)),
            Step::Alter { at, xor, .. } if alters => {
                let bytes = &mut under_way[pick].bytes;
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= xor;
            }
            _ => {}
        }
    }

    fn send(&mut self, side: usize, port: usize, s: u8, deadline: u8, len: usize) {
        let (side, port) = (side % 2, port % 2);
        let all = [Service::RealTime, Service::BestEffort, Service::Reliable];
        let service = all[usize::from(s) % all.len()];
        let deadline_ms = deadline.max(1);
        let number = self.sent.len() as u32;
        let mut payload = vec![s; STAMP + len % 1_000];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let to = (id(1 - side), PORTS[port]);
        let from = (id(side), PORTS[port]);
        let session = self.sides[side].sessions[port];
        let sent = Sent { from, to, service, deadline_ms, payload: payload.clone(), arrived: 0 };
        self.sent.push(sent);
        let (to, port, payload) = (to.0, to.1, &payload[..]);
        self.say(side, session, &ToNode::Send { service, deadline_ms, to, port, payload });
    }

    /// Passes a message of an application to its node.
    pub(super) fn say(&mut self, side: usize, session: SessionId, message: &ToNode<'_>) {
        let Side { node, applications, .. } = &mut self.sides[side];
        node.session_recv(self.now, session, &self::message(message), applications);
        self.look_at_messages(side);
    }

    fn arrive(&mut self, side: usize, n: usize) {
        let under_way = &mut self.sides[side].under_way;
        let batch = under_way.drain(..n.min(under_way.len())).collect();
        self.receive(side, batch);
    }

    fn receive(&mut self, side: usize, mut datagrams: Vec<Datagram>) {
        let at = self.now;
        let from = |path| address(1 - side, path);
        let mut batch: Vec<_> = datagrams
            .iter_mut()
            .map(|d| RxDatagram { at, from: from(d.path), local: None, bytes: &mut d.bytes })
            .collect();
        let Side { node, applications, .. } = &mut self.sides[side];
        node.recv(self.now, &mut batch, applications);
        self.look_at_messages(side);
    }

    pub(super) fn settle(&mut self, side: usize) {
        let Side { node, applications, .. } = &mut self.sides[side];
        for envelope in settle(node, self.now, &mut self.arena, applications) {
            let is_path = |path: &usize| envelope.to == address(1 - side, *path);
            let path = (0..PATHS.len()).find(is_path).expect("an address of the other node");
            let at = self.now + Duration::from_millis(10);
            let under_way = &mut self.sides[1 - side].under_way;
            if under_way.len() == UNDER_WAY {
                under_way.pop_front();
            }
            under_way.push_back(Datagram { path, bytes: envelope.bytes, at });
        }
        self.look_at_messages(side);
    }

    fn look_at_messages(&mut self, side: usize) {
        let applications = &mut self.sides[side].applications;
        let messages = core::mem::take(&mut applications.messages);
        if applications.full {
            return;
        }
        for message in &messages {
            let bytes = [&message.head[..], &message.payload].concat();
            let parsed = ToClient::parse(&bytes).expect("a client understands its node");
            match parsed {
                ToClient::Received { .. } => self.look_at_packet(side, message, &parsed),
                ToClient::Stream(notice) => self.look_at_notice(side, message, notice),
                // The link may be down, but both ports are always bound.
                ToClient::Reachable { node, .. } => assert_eq!(node, id(1 - side)),
                ToClient::Unreachable { node, why, .. } => {
                    assert_eq!(node, id(1 - side));
                    assert!(self.alters() || why != Unreachable::NoPort);
                }
                other => assert!(streams::is_bound(&other), "nobody did anything wrong: {other:?}"),
            }
        }
    }

    fn look_at_packet(&mut self, side: usize, message: &Message, packet: &ToClient<'_>) {
        let ToClient::Received { service, remaining_ms, flow_seq, from, port, .. } = *packet else {
            return;
        };
        let alters = self.alters();
        let Side { once, sessions, .. } = &mut self.sides[side];
        once.check(self.now, (message.to.0, from.0, port), flow_seq);
        if alters {
            return;
        }
        let number = message.payload.first_chunk().map(|b| u32::from_be_bytes(*b));
        let number = number.expect("every payload begins with its number");
        let sent = &mut self.sent[number as usize];
        assert_eq!((sent.from, sent.service), ((from, port), service));
        let holds = sessions.iter().position(|&s| s == message.to);
        assert_eq!(sent.to, (id(side), PORTS[holds.expect("a session of ours")]));
        assert_eq!(sent.payload, message.payload);
        let has_deadline = service != Service::Reliable;
        assert!(!has_deadline || remaining_ms <= sent.deadline_ms, "time ran backwards");
        sent.arrived += 1;
    }

    /// Checks that a network that alters nothing causes no drops of malformed input.
    fn check_drops(&self) {
        for Side { node, .. } in &self.sides {
            let mut never = vec![DropReason::Malformed, DropReason::WrongSource];
            if !is_sealed(&self.settings) {
                // A restart ends sessions, and envelopes sealed within them have no receiver.
                never.push(DropReason::UnknownReceiver);
            }
            let all = node.links().map(|(_, l)| l.stats().drops);
            for drops in all.chain([node.stats().drops]) {
                assert!(never.iter().all(|&why| drops.get(why) == 0), "{drops:?}");
            }
        }
    }

    /// Makes every envelope arrive after 10 ms from now on.
    fn calm_down(&mut self) {
        for side in &mut self.sides {
            side.under_way.clear();
            side.applications.full = false;
        }
        // A handshake is retried only after some seconds.
        let links_up = if is_sealed(&self.settings) { 20 } else { 3 };
        self.run_calmly(Duration::from_secs(links_up));
        for Side { node, .. } in &self.sides {
            assert!(node.links().all(|(_, l)| l.monitor().is_up()), "a link stays down");
        }
        self.finish_streams();
        let first = self.sent.len();
        for (side, service) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            self.send(side, 0, service, 100, 160);
        }
        self.run_calmly(Duration::from_millis(100));
        let of_all = self.sent.len();
        let check = |sent: &[Sent], all: bool| {
            for Sent { from, service, arrived, .. } in sent {
                // Reliable packets wait for earlier ones, which wait for a timeout.
                let may_wait = *service == Service::Reliable && !all;
                let came = *arrived == 1 || may_wait;
                assert!(came, "from {from:?}, {service:?}: the first packet of a calm");
            }
        };
        check(&self.sent[first..of_all], false);
        self.run_calmly(Duration::from_secs(10));
        check(&self.sent[first..of_all], true);
        self.end_streams();
    }

    pub(super) fn run_calmly(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle(0);
            self.settle(1);
            let arrival = |s: &Side| s.under_way.front().map_or(Time::NEVER, |d| d.at);
            let next = |s: &Side| arrival(s).min(s.node.next_timeout(self.now));
            let next = next(&self.sides[0]).min(next(&self.sides[1]));
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            for side in [0, 1] {
                let due = |d: &Datagram| d.at <= self.now;
                let n = self.sides[side].under_way.iter().take_while(|d| due(d)).count();
                self.arrive(side, n);
            }
        }
    }
}
