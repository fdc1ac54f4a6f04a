//! A host: one node, its timers and the sessions of its applications.

use crate::app::{Application, Io, Outbox};
use crate::queue::{Event, EventQueue};
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::node::{Config, Node, Sink};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{
    FIRST_SESSION_VERSION, MAX_HEAD, Refusal, ToClient, ToNode,
};

/// More wake-ups than this without the clock moving: the node asks to be woken
/// and then does nothing about it.
const SPIN_LIMIT: u32 = 10_000;

/// Datagrams that wait for a process without processor time: Linux gives a
/// socket 212,992 bytes, of which a small datagram takes 768.
pub const SOCKET_BUFFER: u32 = 277;

/// Until when a host does nothing, and what that does to it.
#[derive(Clone, Copy, Default)]
pub struct Stall {
    pub until: Time,
    pub waiting: u32,
    pub overflowed: u64,
}

pub struct Host {
    pub config: Config,
    pub node: Node,
    pub incarnation: u64,
    /// Whether the node has crashed and was not started again.
    pub down: bool,
    /// When the node, which has said goodbye, ends.
    pub ends: Option<Time>,
    pub stall: Stall,
    /// For each link of the configuration, the direction that ends there.
    pub incoming: Vec<Option<u32>>,
    /// The application of each session.
    sessions: Vec<u32>,
    /// Wake-ups in the queue, each earlier than the one before. A node that
    /// wants to be woken later than the earliest is woken early, which it must
    /// bear; so no wake-up is ever void, and they can't pile up.
    wakes: Vec<Time>,
    spins: (Time, u32),
}

impl Host {
    pub fn new(config: Config, node: Node) -> Host {
        Host {
            incoming: vec![None; config.links.len()],
            config,
            node,
            incarnation: 1,
            down: false,
            ends: None,
            stall: Stall::default(),
            sessions: Vec::new(),
            wakes: Vec::new(),
            spins: (Time::ZERO, 0),
        }
    }

    /// Takes over the node of a new start.
    pub fn replace(&mut self, node: Node, incarnation: u64) {
        (self.node, self.incarnation, self.down) = (node, incarnation, false);
        self.ends = None;
        self.sessions.clear();
    }

    /// Sees to it that the node is woken when it wants to be.
    pub fn arm(&mut self, now: Time, index: u32, queue: &mut EventQueue) {
        let at = self.node.next_timeout(now).0.max(now);
        if at < Time::NEVER && self.wakes.last().is_none_or(|&earliest| at < earliest) {
            self.wakes.push(at);
            queue.push(at, Event::Host(index));
        }
    }

    /// A wake-up has come.
    pub fn woken(&mut self, now: Time) {
        self.wakes.pop();
        if self.down {
            return;
        }
        self.spins = if self.spins.0 == now { (now, self.spins.1 + 1) } else { (now, 0) };
        assert!(
            self.spins.1 < SPIN_LIMIT,
            "node {} asks again and again to be woken at {now:?}: {:?}",
            self.config.id,
            self.node.next_timeout(now)
        );
        self.node.handle_timeout(now);
    }

    /// The end of a node that has said goodbye has come.
    pub fn end(&mut self, now: Time) {
        self.down |= self.ends.is_some_and(|at| at <= now);
    }

    /// Opens a session for application `app` and binds `port`; the session and
    /// the port that the node gave.
    pub fn open(
        &mut self,
        now: Time,
        app: u32,
        port: u16,
    ) -> Result<(SessionId, u16), Option<Refusal>> {
        let session = self.node.session_open().ok_or(None)?;
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        // Sources count what is refused, packet by packet.
        let bind = ToNode::Bind { version: FIRST_SESSION_VERSION, port };
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
                self.node.session_close(session);
                Err(Some(refusal))
            }
        }
    }

    /// The node, and what brings its messages to applications.
    pub fn split<'a>(
        &'a mut self,
        now: Time,
        apps: &'a mut Apps,
        outbox: &'a mut Outbox,
        queue: &'a mut EventQueue,
    ) -> (&'a mut Node, Delivery<'a>) {
        (&mut self.node, Delivery { now, sessions: &self.sessions, apps, outbox, queue })
    }
}

/// Catches a node's answer to a bind.
struct Reply(Option<Result<u16, Refusal>>);

impl Sink for Reply {
    fn deliver(&mut self, _to: SessionId, head: &[u8], _payload: &[u8]) -> bool {
        self.0 = match ToClient::parse(head) {
            Ok(ToClient::Bound { port, .. }) => Some(Ok(port)),
            Ok(ToClient::Error { refusal, .. }) => Some(Err(refusal)),
            _ => None,
        };
        true
    }
}

/// The applications of a world.
#[derive(Default)]
pub struct Apps(pub Vec<AppSlot>);

pub struct AppSlot {
    pub app: Box<dyn Application>,
    pub place: Place,
    pub port: u16,
    /// Counts its requests to be woken; only the last one is valid.
    generation: u32,
}

impl AppSlot {
    pub fn new(app: Box<dyn Application>, place: Place, port: u16) -> AppSlot {
        AppSlot { app, place, port, generation: 0 }
    }
}

/// Where an application sends.
#[derive(Clone, Copy)]
pub enum Place {
    /// Through a session with a host's node.
    Session { host: u32, session: SessionId },
    /// Into this direction of a plain path.
    Plain { direction: u32 },
}

impl Apps {
    /// Runs one call of application `index`.
    pub fn call(
        &mut self,
        now: Time,
        index: u32,
        outbox: &mut Outbox,
        queue: &mut EventQueue,
        call: impl FnOnce(&mut dyn Application, &mut Io<'_>),
    ) {
        let slot = &mut self.0[index as usize];
        let mut io = Io::new(now, index, outbox);
        call(&mut *slot.app, &mut io);
        if let Some(at) = io.wanted() {
            slot.generation = slot.generation.wrapping_add(1);
            queue.push(at, Event::App { app: index, generation: slot.generation });
        }
    }

    /// Whether a wake-up is the last that application `index` asked for.
    pub fn expects(&self, index: u32, generation: u32) -> bool {
        self.0[index as usize].generation == generation
    }
}

/// Brings a node's messages to the applications at its host.
pub struct Delivery<'a> {
    now: Time,
    sessions: &'a [u32],
    apps: &'a mut Apps,
    outbox: &'a mut Outbox,
    queue: &'a mut EventQueue,
}

impl Sink for Delivery<'_> {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> bool {
        let app = self.sessions[to.0 as usize];
        let mut message = ToClient::parse(head).expect("a node's messages parse");
        if let ToClient::Received { payload: place, .. } = &mut message {
            *place = payload;
        }
        self.apps.call(self.now, app, self.outbox, self.queue, |a, io| a.receive(&message, io));
        true
    }
}
