//! A node of the overlay as an agent: the node, its timers, and the applications that have sessions
//! with it.

use super::classes::carries_packet;
use super::{Agent, AgentIo, Received};
use crate::app::{Application, Io, Outbox};
use core::net::SocketAddr;
use core::time::Duration;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_net::{Class, Protocol};
use trunkline_overlay::arena::{RxDatagram, TxArena, UplinkId};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::node::{Config, Drained, Node, SendOutcome, Sink};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::stream::Request;
use trunkline_overlay::session::wire::{
    MAX_HEAD, RefusalReason, SESSION_VERSION, ToClient, ToNode,
};

/// Maximum number of wake-ups at one moment. More of them mean that the node requests wake-ups
/// without doing anything.
const SPIN_LIMIT: u32 = 10_000;

/// Reasons for waking a node's agent.
#[derive(Clone, Copy)]
enum Token {
    /// The node requested the wake-up.
    Node,
    /// A node that said goodbye ends; void if it has been restarted since.
    End,
    /// An application requested the wake-up; void if it has made another request since.
    App { app: u32, generation: u32 },
}

impl Token {
    fn pack(self) -> u64 {
        match self {
            Token::Node => 0,
            Token::End => 1,
            Token::App { app, generation } => (u64::from(app) + 1) << 32 | u64::from(generation),
        }
    }

    fn unpack(packed: u64) -> Token {
        match (packed >> 32, packed as u32) {
            (0, 0) => Token::Node,
            (0, _) => Token::End,
            (app, generation) => Token::App { app: app as u32 - 1, generation },
        }
    }
}

pub struct OverlayNode {
    pub config: Config,
    pub node: Node,
    pub incarnation: u64,
    /// Number of datagrams sent to an address that no link leads to.
    pub misdirected: u64,
    /// Class of envelopes without a packet, if they are counted separately.
    pub control: Option<Class>,
    /// Links whose uplinks have no room.
    hung: Vec<LinkId>,
    /// Whether the node said goodbye and has ended.
    ended: bool,
    /// Time at which the node ends after its goodbye.
    ends: Option<Time>,
    apps: Apps,
    /// The application of each session, by session number.
    sessions: Vec<u32>,
    outbox: Outbox,
    /// An empty outbox, swapped with `outbox` while that is processed.
    spare: Outbox,
    /// Transmit arena shared by all nodes of a world; it is empty between two events.
    arena: Rc<RefCell<TxArena>>,
    /// Scheduled wake-ups, each earlier than the one before. A node that needs a later wake-up than
    /// the earliest is woken early, which it must tolerate. So no wake-up is ever void, and they
    /// can't pile up.
    wakes: Vec<Time>,
    spins: (Time, u32),
}

/// The uplink of a link that has one for itself.
fn uplink(LinkId(link): LinkId) -> UplinkId {
    UplinkId(link + 1)
}

impl OverlayNode {
    pub fn new(config: Config, node: Node, arena: Rc<RefCell<TxArena>>) -> OverlayNode {
        OverlayNode {
            config,
            node,
            incarnation: 1,
            misdirected: 0,
            control: None,
            hung: Vec::new(),
            ended: false,
            ends: None,
            apps: Apps::default(),
            sessions: Vec::new(),
            outbox: Outbox::default(),
            spare: Outbox::default(),
            arena,
            wakes: Vec::new(),
            spins: (Time::ZERO, 0),
        }
    }

    /// Whether the node said goodbye and has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn is_down(&self, io: &AgentIo<'_>) -> bool {
        self.ended || io.is_down()
    }

    /// Replaces the node by its next start, and reattaches all applications.
    pub fn replace(
        &mut self,
        node: Node,
        incarnation: u64,
        io: &mut AgentIo<'_>,
    ) -> Result<(), (u16, Option<RefusalReason>)> {
        (self.node, self.incarnation, self.ended) = (node, incarnation, false);
        self.hung.iter().for_each(|&link| self.node.set_uplink(link, uplink(link), None));
        self.ends = None;
        self.sessions.clear();
        for app in 0..self.apps.0.len() {
            let port = self.apps.0[app].port;
            let (session, _) = self.open(io.now(), app as u32, port).map_err(|why| (port, why))?;
            self.apps.0[app].session = session;
            if !std::mem::take(&mut self.apps.0[app].held).is_empty() {
                let app = app as u32;
                self.apps.call(app, &mut self.outbox, io, |a, io| a.on_flow_control(false, io));
            }
            self.apps.call(app as u32, &mut self.outbox, io, |a, io| a.reattached(io));
        }
        self.settle(io);
        Ok(())
    }

    /// Makes the uplink of `link`, on which no other link is, take nothing from now on, or
    /// everything again.
    pub fn hang(&mut self, link: LinkId, hangs: bool, io: &mut AgentIo<'_>) {
        self.hung.retain(|&other| other != link);
        if hangs {
            self.hung.push(link);
        }
        self.node.set_uplink(link, uplink(link), None);
        self.drain(io);
    }

    /// Makes the node say goodbye and then end.
    pub fn stop(&mut self, io: &mut AgentIo<'_>) {
        let until = self.operate(io, |now, node| node.leave(now));
        self.ends = Some(until);
        io.wake_at(until, Token::End.pack());
    }

    /// Performs an operator's action on the node.
    pub fn operate<R>(
        &mut self,
        io: &mut AgentIo<'_>,
        act: impl FnOnce(Time, &mut Node) -> R,
    ) -> R {
        let done = act(io.now(), &mut self.node);
        self.drain(io);
        done
    }

    /// Opens a session bound to `port` for an application and starts it. Returns the application's
    /// index.
    pub fn attach(
        &mut self,
        app: Box<dyn Application>,
        port: u16,
        io: &mut AgentIo<'_>,
    ) -> Result<u32, Option<RefusalReason>> {
        let index = self.apps.0.len() as u32;
        let (session, port) = self.open(io.now(), index, port)?;
        self.apps.0.push(AppSlot { app, session, port, generation: 0, held: VecDeque::new() });
        self.apps.call(index, &mut self.outbox, io, |a, io| a.start(io));
        self.settle(io);
        Ok(index)
    }

    /// Receives a datagram that did not arrive over a wire.
    pub fn inject(&mut self, from: SocketAddr, bytes: &mut [u8], io: &mut AgentIo<'_>) {
        self.take(RxDatagram { at: io.now(), from, local: None, bytes }, io);
    }

    fn take(&mut self, datagram: RxDatagram<'_>, io: &mut AgentIo<'_>) {
        if self.is_down(io) {
            return;
        }
        let now = io.now();
        let (sessions, apps, outbox) = (&self.sessions, &mut self.apps, &mut self.outbox);
        self.node.recv(now, &mut [datagram], &mut ToApps { sessions, apps, outbox, io });
        self.settle(io);
    }

    /// An application and its port.
    pub fn app(&self, index: u32) -> (&dyn Application, u16) {
        let slot = &self.apps.0[index as usize];
        (&*slot.app, slot.port)
    }

    /// Opens a session for application `app` and binds `port`. Returns the session and the port
    /// that the node assigned.
    fn open(
        &mut self,
        now: Time,
        app: u32,
        port: u16,
    ) -> Result<(SessionId, u16), Option<RefusalReason>> {
        let session = self.node.session_open().ok_or(None)?;
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        let bind = ToNode::Bind { version: SESSION_VERSION, port };
        bind.emit_head(&mut w).expect("every head fits in MAX_HEAD");
        let mut reply = Reply(None);
        self.node.session_recv(now, session, w.written(), &mut reply);
        match reply.0.expect("a node answers a bind") {
            Ok(port) => {
                let at = session.0 as usize;
                self.sessions.resize(self.sessions.len().max(at + 1), u32::MAX);
                self.sessions[at] = app;
                Ok((session, port))
            }
            Err(refusal) => {
                self.node.session_close(now, session);
                Err(Some(refusal))
            }
        }
    }

    /// Carries out the requests that an application has just made.
    fn settle(&mut self, io: &mut AgentIo<'_>) {
        self.flush(io);
        self.drain(io);
    }

    /// Hands the applications' messages to the node, including those sent in reply.
    fn flush(&mut self, io: &mut AgentIo<'_>) {
        if self.outbox.is_empty() {
            return;
        }
        let down = self.is_down(io);
        while !self.outbox.is_empty() {
            std::mem::swap(&mut self.outbox, &mut self.spare);
            for (app, message) in self.spare.messages().filter(|_| !down) {
                if let Ok(ToNode::Stream(Request::Accept { .. })) = ToNode::parse(message) {
                    // An accepted stream gets a new session, which the application uses from now
                    // on.
                    let Some(session) = self.node.session_open() else { continue };
                    let at = session.0 as usize;
                    self.sessions.resize(self.sessions.len().max(at + 1), u32::MAX);
                    self.sessions[at] = app;
                    self.apps.0[app as usize].session = session;
                }
                let AppSlot { session, held, .. } = &mut self.apps.0[app as usize];
                if !held.is_empty() {
                    held.push_back(message.into());
                    continue;
                }
                let session = *session;
                let (sessions, apps, outbox) = (&self.sessions, &mut self.apps, &mut self.outbox);
                let mut sink = ToApps { sessions, apps, outbox, io };
                let now = sink.io.now();
                if self.node.session_recv(now, session, message, &mut sink)
                    == SendOutcome::Backpressure
                {
                    self.apps.0[app as usize].held.push_back(message.into());
                    self.apps.call(app, &mut self.outbox, io, |a, io| a.on_flow_control(true, io));
                }
            }
            self.spare.clear();
        }
    }

    /// Hands over queued messages that the node now has room for. Returns whether there were any.
    fn resume(&mut self, io: &mut AgentIo<'_>) -> bool {
        let (mut named, mut some) = (false, false);
        while let Some(session) = self.node.next_ready() {
            named = true;
            let app = self.sessions[session.0 as usize];
            while let Some(message) = self.apps.0[app as usize].held.pop_front() {
                let (sessions, apps, outbox) = (&self.sessions, &mut self.apps, &mut self.outbox);
                let mut sink = ToApps { sessions, apps, outbox, io };
                let now = sink.io.now();
                if self.node.session_recv(now, session, &message, &mut sink)
                    == SendOutcome::Backpressure
                {
                    self.apps.0[app as usize].held.push_front(message);
                    break;
                }
                some = true;
            }
            if self.apps.0[app as usize].held.is_empty() {
                self.apps.call(app, &mut self.outbox, io, |a, io| a.on_flow_control(false, io));
            }
        }
        if named {
            self.flush(io);
        }
        some
    }

    /// Puts the node's output on the wires, and schedules its next wake-up.
    pub fn drain(&mut self, io: &mut AgentIo<'_>) {
        if self.is_down(io) {
            return;
        }
        let shared = Rc::clone(&self.arena);
        let mut arena = shared.borrow_mut();
        self.hung.iter().for_each(|&link| arena.set_room(uplink(link), 0));
        loop {
            let drained = self.node.transmit(io.now(), &mut arena);
            for run in arena.runs() {
                let Some((from, to)) = io.places.towards(io.host, run.to) else {
                    self.misdirected += run.count as u64;
                    continue;
                };
                let (tos, class) = (io.tos(from, run.dscp << 2), io.class);
                for envelope in arena.envelopes(run) {
                    io.class = self.control.filter(|_| !carries_packet(envelope)).unwrap_or(class);
                    io.put(from, to, Protocol::UDP, tos, envelope);
                }
                io.class = class;
            }
            arena.clear();
            if drained == Drained::All && !self.resume(io) {
                break;
            }
        }
        self.hung.iter().for_each(|&link| arena.set_room(uplink(link), usize::MAX));
        let now = io.now();
        let at = self.node.next_timeout(now).max(now);
        if at < Time::NEVER && self.wakes.last().is_none_or(|&earliest| at < earliest) {
            self.wakes.push(at);
            io.wake_at(at, Token::Node.pack());
        }
    }

    /// Handles a wake-up that the node requested.
    fn woken(&mut self, io: &mut AgentIo<'_>) {
        let now = io.now();
        self.wakes.pop();
        if self.is_down(io) {
            return;
        }
        self.spins = if self.spins.0 == now { (now, self.spins.1 + 1) } else { (now, 0) };
        assert!(
            self.spins.1 < SPIN_LIMIT,
            "node {} keeps requesting a wake-up at {now:?}: {:?}",
            self.config.id,
            self.node.timer(now)
        );
        let (sessions, outbox) = (&self.sessions, &mut self.outbox);
        let mut sink = ToApps { sessions, apps: &mut self.apps, outbox, io };
        self.node.handle_timeout(now, &mut sink);
        self.settle(io);
    }
}

impl Agent for OverlayNode {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        self.drain(io);
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        let from = io.places.address(datagram.header.from);
        self.take(RxDatagram { at: datagram.at, from, local: None, bytes: datagram.payload }, io);
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        match Token::unpack(token) {
            Token::Node => self.woken(io),
            Token::End => self.ended |= self.ends.is_some_and(|at| at <= io.now()),
            Token::App { app, generation } => {
                if self.apps.0[app as usize].generation == generation {
                    self.apps.call(app, &mut self.outbox, io, |a, io| a.wake(io));
                    self.settle(io);
                }
            }
        }
    }
}

/// Captures a node's answer to a bind.
struct Reply(Option<Result<u16, RefusalReason>>);

impl Sink for Reply {
    fn deliver(&mut self, _to: SessionId, head: &[u8], _payload: &[u8]) -> SendOutcome {
        self.0 = match ToClient::parse(head) {
            Ok(ToClient::Bound { port, .. }) => Some(Ok(port)),
            Ok(ToClient::Error { refusal, .. }) => Some(Err(refusal)),
            _ => None,
        };
        SendOutcome::Accepted
    }
}

/// The applications attached to a node.
#[derive(Default)]
struct Apps(Vec<AppSlot>);

struct AppSlot {
    app: Box<dyn Application>,
    session: SessionId,
    port: u16,
    /// Counts wake-up requests; only the last one is valid.
    generation: u32,
    /// Messages that the node has not accepted: those sent before the application reacts to
    /// [`Application::on_flow_control`].
    held: VecDeque<Box<[u8]>>,
}

impl Apps {
    /// Runs one call of application `index`.
    fn call(
        &mut self,
        index: u32,
        outbox: &mut Outbox,
        io: &mut AgentIo<'_>,
        call: impl FnOnce(&mut dyn Application, &mut Io<'_>),
    ) {
        let slot = &mut self.0[index as usize];
        let mut app_io = Io::new(io.now(), index, outbox);
        call(&mut *slot.app, &mut app_io);
        if let Some(at) = app_io.wanted() {
            slot.generation = slot.generation.wrapping_add(1);
            io.wake_at(at, Token::App { app: index, generation: slot.generation }.pack());
        }
    }
}

/// Delivers a node's messages to its applications.
struct ToApps<'a, 'b> {
    sessions: &'a [u32],
    apps: &'a mut Apps,
    outbox: &'a mut Outbox,
    io: &'a mut AgentIo<'b>,
}

impl Sink for ToApps<'_, '_> {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome {
        let app = self.sessions[to.0 as usize];
        if !self.apps.0[app as usize].app.reads() {
            return SendOutcome::Backpressure;
        }
        let message = ToClient::parse(head).expect("a node's messages parse").with_payload(payload);
        self.apps.call(app, self.outbox, self.io, |a, io| a.receive(&message, io));
        SendOutcome::Accepted
    }
}

/// The transmit arena shared by the nodes of a world.
pub fn arena() -> Rc<RefCell<TxArena>> {
    Rc::new(RefCell::new(TxArena::new(64 << 10, 64)))
}

/// As in the daemon, all datagrams that have arrived are processed before any timer.
pub const AFTER_DATAGRAMS: Duration = Duration::from_nanos(1);
