//! A node: [`Control`] decides, [`Forwarder`] moves packets. They exchange
//! bounded messages and could run on two threads; here one [`Node`] steps both.

mod config;
mod control;
mod forwarder;
mod local;

pub use config::{Config, ConfigError};
pub use control::{Command, Control, Report};
pub use forwarder::{Forwarder, ForwarderStats};
pub use local::Sink;

use crate::arena::{RxDatagram, TxArena};
use crate::link::{Link, LinkId};
use crate::session::SessionId;
use crate::wire::Incarnation;
use trunkline_base::Time;

/// Why a node wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// A hello is due on this link.
    Hello(LinkId),
    /// This link is dead unless its neighbour speaks before.
    Silence(LinkId),
    /// This link's rate lets the next packet go.
    Pace(LinkId),
    /// Nothing: sleep until there is input.
    Nothing,
}

/// Whether [`Node::transmit`] has handed out everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// Nothing more to send now.
    All,
    /// The arena is full: flush it and call again.
    More,
}

/// A node without input and output; see the crate's documentation for the loop
/// that drives it.
#[derive(Debug)]
pub struct Node {
    control: Control,
    forwarder: Forwarder,
}

impl Node {
    /// A node that has just started. `incarnation` must be greater than at any
    /// earlier start of this node. `seed` drives behaviour, never keys.
    pub fn new(
        config: Config,
        incarnation: Incarnation,
        seed: u64,
        now: Time,
    ) -> Result<Node, ConfigError> {
        config.validate()?;
        let (control, first) = Control::new(&config);
        let mut forwarder = Forwarder::new(config, incarnation, seed, now);
        forwarder.command(first);
        Ok(Node { control, forwarder })
    }

    /// Takes a batch of received datagrams. Packets for applications at this
    /// node go to `sink` at once; everything else waits for
    /// [`Node::transmit`].
    pub fn recv(&mut self, now: Time, batch: &mut [RxDatagram<'_>], sink: &mut impl Sink) {
        self.forwarder.recv(now, batch, sink);
        self.settle();
    }

    /// Begins a session; `None` if there are as many as the node allows.
    pub fn session_open(&mut self) -> Option<SessionId> {
        self.forwarder.sessions_mut().open()
    }

    /// Takes a message that session `id`'s application sent.
    pub fn session_recv(&mut self, now: Time, id: SessionId, message: &[u8], sink: &mut impl Sink) {
        self.forwarder.session_recv(now, id, message, sink);
    }

    /// Ends a session and frees its port.
    pub fn session_close(&mut self, id: SessionId) {
        self.forwarder.sessions_mut().close(id);
    }

    /// Does what is due at `now`. Calling early or late is harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.forwarder.handle_timeout(now);
        self.settle();
    }

    /// Seals what is to be sent into `arena`.
    pub fn transmit(&mut self, now: Time, arena: &mut TxArena) -> Drained {
        self.forwarder.transmit(now, arena)
    }

    /// When to call [`Node::handle_timeout`] and [`Node::transmit`] next if
    /// nothing arrives before, and why.
    pub fn next_timeout(&self, now: Time) -> (Time, Why) {
        self.forwarder.next_timeout(now)
    }

    /// Counters of the node.
    pub fn stats(&self) -> ForwarderStats {
        self.forwarder.stats()
    }

    /// The links, in the order of the configuration.
    pub fn links(&self) -> &[Link] {
        self.forwarder.links()
    }

    fn settle(&mut self) {
        while let Some(report) = self.forwarder.next_report() {
            if let Some(command) = self.control.report(report) {
                self.forwarder.command(command);
            }
        }
    }
}
