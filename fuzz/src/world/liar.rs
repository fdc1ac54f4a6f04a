//! A neighbour that lies about streams. It sends segments with arbitrary fields, also in the names
//! of other nodes, to a node with applications that behave arbitrarily.
//!
//! Invariants: an incoming segment causes few outgoing ones; streams, those of one peer and their
//! buffered bytes stay within the configured limits; and when the liar is silent and the
//! applications have gone, no stream remains and a stream between honest ends works as before.

use super::driver::{Applications, check_no_streams, check_streams, message, settle};
use super::{Scene, Step};
use crate::script::micros;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_base::wire::{Short, Writer};
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Node, Start, StreamPhase};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::stream;
use trunkline_overlay::session::wire::stream::{MAX_DATA, Notice, Request};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::{
    AckHead, DataHeader, ENVELOPE_OVERHEAD, FlowHeader, Frame, Frames, Hello, HopHeader,
    Incarnation, Metric, NodeId, Null, ReceiverIndex, Seal, SelectiveAck, Service,
};

const OWN: NodeId = NodeId(1);
const LIAR: NodeId = NodeId(2);
/// Flags of a packet and of a segment, as encoded on the wire.
const STREAM: u8 = 0x10;
const EPOCH: u8 = 0x0f;
const OPEN: u8 = 0x01;
const RESET: u8 = 0x04;
const ACK: u8 = 0x08;
const DATA: u8 = 0x40;
const INSTANCE: u8 = 0x80;

const LISTEN: u16 = 5;
const MAX_SESSIONS: usize = 16;
const BUFFER: usize = 64 << 10;

fn streams() -> stream::Config {
    let memory = 8 * BUFFER;
    stream::Config { max: 10, backlog: 4, buffer: BUFFER, memory, ..stream::Config::default() }
}

fn address() -> SocketAddr {
    ([192, 0, 2, 2], 7_000).into()
}

/// An application's session and its stream credit.
struct App {
    session: SessionId,
    credit: u32,
}

pub(super) struct World {
    now: Time,
    node: Node,
    applications: Applications,
    apps: Vec<App>,
    listener: Option<SessionId>,
    tokens: VecDeque<u64>,
    next_port: u16,
    arena: TxArena,
    seal: Seal,
    hellos: u16,
    /// Number of packets that the liar has sent over the link, and the last one received from it.
    sent: u16,
    came: Option<(u8, u16)>,
    /// Tag of the last stream that the node has opened to the liar.
    tag: u16,
    /// Number of segments without data that were sent, and the number allowed.
    controls: usize,
    allowed: usize,
}

impl Scene for World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep { unit, n } => self.sleep(Duration::from_micros(micros(unit, n))),
            Step::Segment { from, ports, tag, .. } => {
                let payload = segment(step);
                self.throw(from, ports, tag.into(), &payload);
            }
            Step::RawSegment { from, ports, tag, ref bytes } => {
                self.throw(from, ports, tag.into(), &bytes[..bytes.len().min(1_000)]);
            }
            Step::Reset { from, ports, tag, why } => {
                self.throw(from, ports, tag.into(), &[RESET, why]);
            }
            Step::Requests { from, ports, n, tags } => {
                for k in 0..n {
                    let (ports, tag) = match tags % 2 {
                        0 => (ports, u16::from(k)),
                        _ => (ports.wrapping_add(k << 2), 3),
                    };
                    self.throw(from, ports, tag, &[OPEN]);
                }
            }
            Step::Full { yes, .. } => self.applications.full = yes % 2 == 1,
            _ => self.application_step(step),
        }
        self.settle();
        self.check();
    }

    fn finish(&mut self) {
        self.applications.full = false;
        self.settle();
        for App { session, .. } in core::mem::take(&mut self.apps) {
            self.node.session_close(self.now, session);
        }
        if let Some(session) = self.listener.take() {
            self.node.session_close(self.now, session);
        }
        // A minute of silence is enough, and each of its probes falls due in time.
        for _ in 0..10 {
            self.sleep(Duration::from_secs(15));
        }
        check_no_streams(&self.node);
        self.exchange();
    }
}

impl World {
    pub(super) fn new() -> World {
        let now = Time::from_millis(1_000);
        let mut config = Config::new(OWN);
        let mut to_liar = link::Config::new(LIAR);
        to_liar.address = Some(address());
        config.links.push(to_liar);
        config.routes.push(StaticRoute { to: None, via: LIAR, onward: Duration::ZERO });
        config.max_sessions = MAX_SESSIONS + 4;
        config.streams = streams();
        let start = Start::simulated(now, Incarnation(5), 7);
        let mut world = World {
            now,
            node: Node::new(config, start).expect("valid"),
            applications: Applications::default(),
            apps: Vec::new(),
            listener: None,
            tokens: VecDeque::new(),
            next_port: 1_000,
            arena: TxArena::new(16 << 10, 64),
            seal: Seal::Null(Null::new(ReceiverIndex::derived(LIAR, OWN, ""), Incarnation(9))),
            hellos: 0,
            sent: 0,
            came: None,
            tag: 0,
            controls: 0,
            allowed: 0,
        };
        for _ in 0..4 {
            world.sleep(Duration::from_millis(50));
        }
        world
    }

    fn application_step(&mut self, step: &Step) {
        match *step {
            Step::Connect { to: port, credit, .. } => {
                let own = self.next_port;
                let Some(session) = self.open(Some(own)) else { return };
                self.next_port += 1;
                let (port, credit) = (u16::from(port % 4), credit.into());
                self.request(session, Request::Connect { to: LIAR, port, messages: false, credit });
            }
            Step::Listen { backlog, .. } => {
                self.tokens.clear();
                match self.listener.take() {
                    Some(session) => self.node.session_close(self.now, session),
                    None => {
                        self.listener = self.open(Some(LISTEN));
                        self.apps.retain(|app| Some(app.session) != self.listener);
                        if let Some(session) = self.listener {
                            self.request(session, Request::Listen { backlog });
                        }
                    }
                }
            }
            Step::Accept { wrong, credit, .. } => {
                let waits = self.tokens.pop_front().filter(|_| wrong % 8 > 0);
                let Some(session) = self.open(None) else { return };
                let (version, credit) = (SESSION_VERSION, credit.into());
                let token = waits.unwrap_or(wrong.into());
                self.request(session, Request::Accept { version, token, credit });
            }
            Step::Write { pick, len, .. } => {
                let Some(app) = self.pick(pick) else { return };
                let len = u32::from(len).min(app.credit).min(MAX_DATA as u32);
                app.credit -= len;
                let session = app.session;
                self.request(session, Request::Data(&vec![len as u8; len as usize]));
            }
            Step::Credit { pick, bytes, shift, .. } => {
                let Some(&mut App { session, .. }) = self.pick(pick) else { return };
                let bytes = u32::from(bytes).rotate_left(u32::from(shift % 32));
                self.request(session, Request::Credit(bytes));
            }
            Step::End { pick, how, .. } => {
                let Some(&mut App { session, .. }) = self.pick(pick) else { return };
                match how % 4 {
                    0 => self.request(session, Request::Shut),
                    1 => self.request(session, Request::Reset),
                    _ => self.close(session),
                }
            }
            Step::Say { pick, ref bytes } => {
                let Some(&mut App { session, .. }) = self.pick(pick) else { return };
                self.node.session_recv(self.now, session, bytes, &mut self.applications);
                self.look_at_messages();
            }
            _ => {}
        }
    }

    fn pick(&mut self, pick: u8) -> Option<&mut App> {
        let nth = usize::from(pick).checked_rem(self.apps.len())?;
        self.apps.get_mut(nth)
    }

    /// Opens a session of another application, with this port.
    fn open(&mut self, port: Option<u16>) -> Option<SessionId> {
        if self.apps.len() == MAX_SESSIONS {
            return None;
        }
        let session = self.node.session_open().expect("there is room");
        self.apps.push(App { session, credit: 0 });
        if let Some(port) = port {
            self.say(session, &ToNode::Bind { version: SESSION_VERSION, port });
        }
        Some(session)
    }

    fn close(&mut self, session: SessionId) {
        self.apps.retain(|app| app.session != session);
        self.node.session_close(self.now, session);
    }

    fn request(&mut self, session: SessionId, request: Request<'_>) {
        self.say(session, &ToNode::Stream(request));
    }

    fn say(&mut self, session: SessionId, message: &ToNode<'_>) {
        let message = self::message(message);
        self.node.session_recv(self.now, session, &message, &mut self.applications);
        self.look_at_messages();
    }

    fn look_at_messages(&mut self) {
        let full = self.applications.full;
        for message in self.applications.messages.drain(..).filter(|_| !full) {
            let bytes = [&message.head[..], &message.payload].concat();
            let parsed = ToClient::parse(&bytes).expect("a client understands its node");
            let app = self.apps.iter_mut().find(|app| app.session == message.to);
            match (parsed, app) {
                (ToClient::Stream(Notice::Incoming { token, .. }), _) => {
                    self.tokens.push_back(token);
                }
                (ToClient::Stream(Notice::Connected { credit, .. }), Some(app)) => {
                    app.credit = credit;
                }
                (ToClient::Stream(Notice::Credit(more)), Some(app)) => app.credit += more,
                _ => {}
            }
        }
    }

    /// Sends a packet of a stream from the liar, real or forged.
    fn throw(&mut self, from: u8, ports: u8, tag: u16, payload: &[u8]) {
        let source = [LIAR, LIAR, LIAR, OWN, NodeId(3), NodeId(77)][usize::from(from % 6)];
        // The destination is a listening application, or one that has opened a stream.
        let connected = 1_000 + u16::from(ports >> 2) % 8;
        let destination_port = if ports % 4 == 3 { connected } else { LISTEN };
        let source_port = if ports % 4 == 3 { 0 } else { u16::from(ports >> 2) };
        let flow = FlowHeader {
            service: Service::Reliable,
            metric: Metric::default(),
            source,
            destination: OWN,
            source_port,
            destination_port,
            flow_seq: if tag == 0 { self.tag } else { tag },
        };
        let link_seq = self.sent;
        self.sent = self.sent.wrapping_add(1);
        let hop = HopHeader { recovered: false, hop_limit: 9, link_seq, remaining_ms: STREAM };
        let len = payload.len() as u16;
        let frame = written(1_200, |w| {
            DataHeader { flow, hop }.emit(len, w).and_then(|()| w.bytes(payload))
        });
        // Allow for an answer, and for another segment that it may trigger.
        self.allowed += 2;
        self.receive(&frame);
    }

    fn receive(&mut self, frames: &[u8]) {
        let mut bytes = vec![0; ENVELOPE_OVERHEAD + frames.len()];
        Seal::frames_mut(&mut bytes).copy_from_slice(frames);
        self.seal.seal(&mut bytes);
        let mut batch =
            [RxDatagram { at: self.now, from: address(), local: None, bytes: &mut bytes }];
        self.node.recv(self.now, &mut batch, &mut self.applications);
        self.look_at_messages();
    }

    /// Advances the clock, with the link kept up.
    fn sleep(&mut self, time: Duration) {
        self.now += time;
        self.settle();
        let now = self.now.as_micros() as u32;
        self.hellos = self.hellos.wrapping_add(1);
        let (seq, echo) = (self.hellos, Some((now.wrapping_sub(2_000), 0)));
        let hello = Hello { seq, sent_us: now, echo, heard_ms: Some(0), ..Hello::default() };
        self.receive(&written(64, |w| hello.emit(w)));
        if let Some((epoch, latest)) = self.came {
            let (next, delay) = (latest.wrapping_add(1), Duration::ZERO);
            let head = AckHead { instance: 9, sender: 5, epoch, next, latest, delay };
            self.receive(&written(64, |w| SelectiveAck::emit(&head, &[], w)));
        }
        self.settle();
    }

    fn settle(&mut self) {
        let (node, applications) = (&mut self.node, &mut self.applications);
        for envelope in settle(node, self.now, &mut self.arena, applications) {
            for frame in Frames::new(Seal::frames(&envelope.bytes)) {
                let Ok(Frame::Data(header, payload)) = frame else { continue };
                if header.flow.service == Service::Reliable {
                    let number = (header.hop.remaining_ms & EPOCH, header.hop.link_seq);
                    let newer = |(epoch, last): (u8, u16)| {
                        epoch != number.0 || number.1.wrapping_sub(last) < 1 << 15
                    };
                    // A link retransmits unacknowledged packets.
                    if self.came.is_none_or(newer) && self.came != Some(number) {
                        self.came = Some(number);
                        self.controls += usize::from(payload[0] & DATA == 0);
                    }
                    if payload[0] & OPEN != 0 {
                        self.tag = header.flow.flow_seq;
                    }
                }
            }
        }
        // Each stream may have a probe or an answer due.
        self.allowed += 2 * streams().max;
        assert!(self.controls <= self.allowed, "{} of {}", self.controls, self.allowed);
        self.look_at_messages();
    }

    fn check(&self) {
        let config = streams();
        check_streams(&self.node, &config, &[OWN, LIAR, NodeId(3), NodeId(77)]);
        let mut all = self.node.streams();
        assert!(all.all(|s| s.unread <= BUFFER as u64 && s.window <= 2 * BUFFER as u64));
    }

    /// Transfers data between two honest ends.
    fn exchange(&mut self) {
        self.tokens.clear();
        let listener = self.open(Some(LISTEN)).expect("there is room");
        self.request(listener, Request::Listen { backlog: 1 });
        let from = self.open(Some(999)).expect("there is room");
        let (port, messages, credit) = (LISTEN, true, 1);
        self.request(from, Request::Connect { to: OWN, port, messages, credit });
        self.settle();
        let to = self.open(None).expect("there is room");
        let (version, token) = (SESSION_VERSION, self.tokens.pop_front().expect("one comes in"));
        self.request(to, Request::Accept { version, token, credit: 3_000 });
        self.settle();
        self.request(from, Request::Data(&[7; 3_000]));
        self.request(from, Request::Shut);
        self.request(to, Request::Shut);
        self.sleep(Duration::from_millis(100));
        let came = self.node.streams().map(|s| s.received).max();
        assert_eq!(came, Some(3_000));
        let over = self.node.streams().filter(|s| s.state == StreamPhase::Over).count();
        assert_eq!(over, 2);
    }
}

fn written(room: usize, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Short>) -> Vec<u8> {
    let mut out = vec![0; room];
    let mut w = Writer::new(&mut out);
    write(&mut w).expect("it fits");
    w.written().to_vec()
}

/// A position near the start, near the end of a window, just below zero, or far away.
fn near(kind: u8, n: u16) -> u64 {
    let n = u64::from(n);
    match kind % 4 {
        0 => n,
        1 => BUFFER as u64 - 1_000 + n,
        2 => n.wrapping_neg(),
        _ => (1 << 47) + n,
    }
}

fn segment(step: &Step) -> Vec<u8> {
    let Step::Segment { flags, kinds, position, len, next, window, counts, .. } = *step else {
        return Vec::new();
    };
    let Step::Segment { ranges, first, width, .. } = *step else { return Vec::new() };
    written(1_200, |w| {
        w.u8(flags)?;
        if flags & RESET != 0 {
            return w.u8(counts as u8);
        }
        if flags & INSTANCE != 0 {
            // Nearly always the same instance.
            w.u16(u16::from(window == 0))?;
        }
        if flags & ACK != 0 {
            w.u48(near(kinds, next))?;
            w.u16(window)?;
            w.u16(counts)?;
            w.u8(ranges % 18)?;
            // Disjoint ranges, as an honest end has them, or overlapping ones.
            let spacing = if kinds >> 6 == 0 { 2 * u32::from(width) } else { u32::from(width / 2) };
            for k in 0..u32::from(ranges % 18) {
                let at = (near(kinds >> 2, first) as u32).wrapping_add(k * spacing);
                w.u32(at)?;
                w.u32(u32::from(width).rotate_left(u32::from(kinds >> 6)))?;
            }
        }
        if flags & DATA != 0 {
            w.u48(near(kinds >> 4, position))?;
            w.bytes(&vec![flags; usize::from(len % 900)])?;
        }
        Ok(())
    })
}
