//! Three nodes in a row (origin, relay, destination), one of them under test. The other two are its
//! real neighbours, so its input is always fresh (numbers advance, hellos and requests are
//! answered) and is produced outside the measurement.
#![allow(dead_code, reason = "no bench or test uses all of it")]

use core::net::SocketAddr;
use core::time::Duration;
use rand::RngExt;
use trunkline_base::wire::Writer;
use trunkline_base::{Bitrate, Rng, Time, rng};
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::identity::Identity;
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Drained, Node, Sealing, SendOutcome, Sink, Start};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{Frame, Frames, Incarnation, NodeId, Seal, Service};

/// Datagrams in one receive call of the daemon; here, packets in one step.
pub const BATCH: usize = 64;

/// Bytes of one packet: RTP with 20 ms of G.711.
pub const PACKET: usize = 172;
const RTP_HEADER: usize = 12;

/// Packet rate of a thousand calls.
const PACKETS_PER_SECOND: u32 = 50_000;

/// Rate of a busy link: less than that of the packets that come.
const BUSY: u64 = 80_000_000;

/// Twice the number of packets that a link keeps for retransmission, and long enough for hellos to
/// have measured the round trip.
const WARM_UP: usize = 2 * 16_384;

/// Bytes that hold any datagram of these nodes.
const DATAGRAM: usize = 1_280;

/// Maximum number of datagrams queued for a node.
const INBOX: usize = 4 * BATCH;

/// Position in the chain of the node under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes packets from its sessions and sends them.
    Origin = 0,
    /// Forwards packets from one link to the other.
    Relay = 1,
    /// Hands packets to its sessions.
    Destination = 2,
}

/// One case to measure.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The node under test.
    pub role: Role,
    /// How the packets are carried.
    pub service: Service,
    /// Number of flows that the packets belong to. Up to a thousand, each has its own session.
    pub flows: u16,
    /// Number of nodes that the relay's packets come from, up to a thousand. One is the origin. If
    /// there are more, each flow has one of them as its source, and the links must be unsealed.
    pub sources: u16,
    /// Whether the flows send in random order, instead of in turns.
    pub shuffled: bool,
    /// Whether the relay's link to the destination is too slow for the packets, so that a queue
    /// stands in it.
    pub busy: bool,
    /// Share of datagrams that each link loses in each direction, 0 to 1.
    pub loss: f64,
    /// Whether the links are sealed.
    pub sealed: bool,
    /// Whether the origin has a trunk to the destination.
    pub trunk: bool,
}

impl Case {
    /// A thousand real-time flows of one source pass a relay.
    pub const RELAY: Case = Case {
        role: Role::Relay,
        service: Service::RealTime,
        flows: 1_000,
        sources: 1,
        shuffled: false,
        busy: false,
        loss: 0.0,
        sealed: false,
        trunk: false,
    };
}

/// Applications that accept every message and count them.
#[derive(Default)]
struct Applications {
    packets: u64,
}

impl Sink for Applications {
    fn deliver(&mut self, _: SessionId, _: &[u8], payload: &[u8]) -> SendOutcome {
        self.packets += u64::from(payload.len() == PACKET);
        SendOutcome::Accepted
    }
}

/// Datagrams waiting to be received by a node.
struct Inbox {
    bytes: Vec<[u8; DATAGRAM]>,
    heads: Vec<(usize, SocketAddr)>,
}

impl Inbox {
    fn new() -> Inbox {
        Inbox { bytes: vec![[0; DATAGRAM]; INBOX], heads: Vec::with_capacity(INBOX) }
    }

    fn push(&mut self, from: SocketAddr, datagram: &[u8]) -> &mut [u8] {
        let place = &mut self.bytes[self.heads.len()][..datagram.len()];
        place.copy_from_slice(datagram);
        self.heads.push((datagram.len(), from));
        place
    }
}

/// One node with the state that its driver would own.
struct Stage {
    node: Node,
    arena: TxArena,
    inbox: Inbox,
    applications: Applications,
    service: Service,
}

/// The chain of three nodes that the module describes.
pub struct Chain {
    case: Case,
    now: Time,
    stages: [Stage; 3],
    rng: Rng,
    /// For every flow, the session that sends it and the message it sends.
    flows: Vec<(SessionId, Vec<u8>)>,
    next_flow: usize,
    /// Packets that the origin sends in this step.
    packets: usize,
}

fn id(place: usize) -> NodeId {
    NodeId(place as u32 + 1)
}

/// A node behind the origin, from which the packets of some flows seem to come.
fn source(number: u16) -> NodeId {
    NodeId(1_001 + u32::from(number))
}

/// Gives the packet in `envelope` the source of its flow.
fn set_source(envelope: &mut [u8], sources: u16) {
    let frames = Seal::frames_mut(envelope);
    let Some(Ok(Frame::Data(mut header, packet))) = Frames::new(frames).next() else { return };
    let len = packet.len() as u16;
    header.flow.source = source(header.flow.source_port % sources);
    header.emit(len, &mut Writer::new(frames)).expect("a header was there before");
}

fn identity(place: usize) -> Identity {
    Identity::from_secret(&[place as u8 + 1; 32])
}

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_001 + place as u16))
}

fn place(address: SocketAddr) -> usize {
    usize::from(address.port() - 7_001)
}

fn message(what: &ToNode<'_>, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    what.emit_head(&mut w).expect("MAX_HEAD is enough");
    [w.written(), payload].concat()
}

/// Turns the packet at the end of `message` into the next of its stream.
fn next_rtp(message: &mut [u8]) {
    let at = message.len() - PACKET;
    let [_, _, seq @ .., a, b, c, d] = &mut message[at..at + 8] else { return };
    let next = u16::from_be_bytes([seq[0], seq[1]]).wrapping_add(1);
    seq.copy_from_slice(&next.to_be_bytes());
    [*a, *b, *c, *d] = (160 * u32::from(next)).to_be_bytes();
}

impl Stage {
    fn new(at: usize, case: &Case) -> Stage {
        let sealed = case.sealed;
        let mut config = Config::new(id(at));
        for neighbour in [at.wrapping_sub(1), at + 1].into_iter().filter(|&n| n < 3) {
            let mut link = link::Config::new(id(neighbour));
            link.address = Some(address(neighbour));
            link.key = sealed.then(|| identity(neighbour).public());
            let is_busy = case.busy && neighbour == Role::Destination as usize;
            link.rate = is_busy.then(|| Bitrate::from_bps(BUSY));
            config.links.push(link);
        }
        config.sealing = sealed.then(|| Sealing::new(identity(at)));
        // The origin's end; the destination answers it.
        if at != Role::Relay as usize {
            config.routes.push(StaticRoute { to: None, via: id(1), onward: Duration::ZERO });
        }
        // Only known nodes have turns of their own.
        if at == Role::Relay as usize && case.sources > 1 {
            let to = (0..case.sources).map(|k| Some(source(k)));
            let onward = Duration::ZERO;
            config.routes.extend(to.map(|to| StaticRoute { to, via: id(0), onward }));
        }
        if at == Role::Origin as usize {
            config.trunks.extend(case.trunk.then(|| trunk::Config::new(id(2))));
        }
        let node = Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 1))
            .expect("a valid configuration");
        let arena = TxArena::new(256 << 10, 256); // as the daemon's
        let (inbox, applications) = (Inbox::new(), Applications::default());
        Stage { node, arena, inbox, applications, service: case.service }
    }

    /// Opens a session bound to `port`.
    fn open(&mut self, port: u16) -> SessionId {
        let session = self.node.session_open().expect("a free session");
        let bind = message(&ToNode::Bind { version: SESSION_VERSION, port }, &[]);
        self.node.session_recv(Time::ZERO, session, &bind, &mut self.applications);
        session
    }

    /// Passes the inbox to the node in batches, as a daemon does.
    fn recv(&mut self, now: Time) {
        let waiting = self.inbox.heads.len();
        let datagrams = self.inbox.bytes[..waiting].chunks_mut(BATCH);
        for (bytes, heads) in datagrams.zip(self.inbox.heads.chunks(BATCH)) {
            let mut each = bytes.iter_mut().zip(heads);
            let mut batch: [RxDatagram<'_>; BATCH] = core::array::from_fn(|_| match each.next() {
                Some((b, &(len, from))) => {
                    RxDatagram { at: now, from, local: None, bytes: &mut b[..len] }
                }
                None => RxDatagram { at: now, from: address(0), local: None, bytes: &mut [] },
            });
            self.node.recv(now, &mut batch[..heads.len()], &mut self.applications);
        }
        self.inbox.heads.clear();
    }

    fn transmit(&mut self, now: Time) {
        self.node.handle_timeout(now, &mut self.applications);
        self.arena.clear();
        let drained = self.node.transmit(now, &mut self.arena);
        // A window may release more at once than its share of an arena.
        let all = drained == Drained::All || self.service == Service::Reliable;
        assert!(all, "the arena holds all that one step gives");
    }
}

impl Chain {
    /// Creates a chain with full rings and links that have measured their round trips.
    pub fn new(case: Case) -> Chain {
        assert!(case.sources == 1 || !case.sealed, "a sealed header can't be changed on its way");
        let mut stages = [0, 1, 2].map(|at| Stage::new(at, &case));
        let sessions = case.flows.min(1_000);
        let origins: Vec<_> = (0..sessions).map(|k| stages[0].open(1_000 + k)).collect();
        for k in 0..sessions {
            stages[2].open(1_000 + k);
        }
        let flow = |k: u16| {
            let port = 1_000 + (k + k / sessions) % sessions;
            let (service, to) = (case.service, id(2));
            let send = ToNode::Send { service, deadline_ms: 100, to, port, payload: &[] };
            let rtp = [0x80, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
            let payload = [&rtp[..], &[0xd5; PACKET - RTP_HEADER]].concat();
            (origins[usize::from(k % sessions)], message(&send, &payload))
        };
        let flows = (0..case.flows).map(flow).collect();
        let (now, rng) = (Time::ZERO, rng(1, 0));
        let mut chain = Chain { case, now, stages, rng, flows, next_flow: 0, packets: 0 };
        // Not in `run`: profilers count everything inside `run`.
        for _ in 0..WARM_UP / BATCH {
            chain.prepare(BATCH);
            chain.step(case.role as usize);
        }
        chain
    }

    /// Does everything around the node under test: receives the packets it sent to its neighbours,
    /// and collects the packets that they send to it while the origin takes in `packets` (at most
    /// [`BATCH`]) packets.
    pub fn prepare(&mut self, packets: usize) {
        let tested = self.case.role as usize;
        self.packets = packets;
        self.carry(tested);
        self.now += Duration::from_secs(1) / PACKETS_PER_SECOND * packets as u32;
        for other in (0..3).filter(|&at| at != tested) {
            self.step(other);
            self.carry(other);
        }
    }

    /// The measured part: one turn of the driver's loop at the node under test.
    #[inline(never)]
    pub fn run(&mut self) {
        self.step(self.case.role as usize);
    }

    fn step(&mut self, at: usize) {
        self.stages[at].recv(self.now);
        if at == Role::Origin as usize {
            self.applications_send();
        }
        self.stages[at].transmit(self.now);
    }

    fn applications_send(&mut self) {
        let origin = &mut self.stages[0];
        for _ in 0..self.packets {
            let (session, message) = &mut self.flows[self.next_flow];
            next_rtp(message);
            origin.node.session_recv(self.now, *session, message, &mut origin.applications);
            self.next_flow = match self.case.shuffled {
                true => self.rng.random_range(0..self.flows.len()),
                false => (self.next_flow + 1) % self.flows.len(),
            };
        }
    }

    /// Moves datagrams from node `from` to its neighbours, except those that the links lose.
    fn carry(&mut self, from: usize) {
        let [origin, relay, destination] = &mut self.stages;
        let (sender, mut others) = match from {
            0 => (origin, [None, Some(relay), Some(destination)]),
            1 => (relay, [Some(origin), None, Some(destination)]),
            _ => (destination, [Some(origin), Some(relay), None]),
        };
        for run in sender.arena.runs() {
            let Some(receiver) = &mut others[place(run.to)] else { continue };
            for envelope in sender.arena.envelopes(run) {
                if self.case.loss == 0.0 || !self.rng.random_bool(self.case.loss) {
                    let received = receiver.inbox.push(address(from), envelope);
                    if from == Role::Origin as usize && self.case.sources > 1 {
                        set_source(received, self.case.sources);
                    }
                }
            }
        }
        sender.arena.clear();
    }

    /// Number of packets that reached an application.
    pub fn delivered(&self) -> u64 {
        self.stages[2].applications.packets
    }

    /// Trunks of the node under test.
    pub fn trunks(&self) -> impl Iterator<Item = trunkline_overlay::node::Trunk> {
        self.stages[self.case.role as usize].node.trunks(self.now)
    }

    /// Packets that the node under test retransmitted, and packets that it requested.
    pub fn repairs(&self) -> (u64, u64) {
        let links = self.stages[self.case.role as usize].node.links();
        let stats = || links.clone().map(|(_, l)| l.stats().of(Service::RealTime));
        let repeated = stats().map(|s| s.retransmissions.envelopes).sum();
        (repeated, stats().filter_map(|s| s.receiver).map(|r| r.asked).sum())
    }
}
