//! Applications: senders and receivers of packets in a world.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use std::ops::Range;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::session::wire::{MAX_HEAD, ToClient, ToNode};

/// A program that communicates through one session with a node, or over a plain path without a
/// node. It may send once the world has bound its port.
pub trait Application: Any {
    /// Called once the application is attached to its node and its port is bound.
    fn start(&mut self, _io: &mut Io<'_>) {}

    /// Called after the application's node has restarted: the application has a new session with
    /// its port, and the node has lost all earlier state.
    fn reattached(&mut self, _io: &mut Io<'_>) {}

    /// Called at the time scheduled by [`Io::wake_at`].
    fn wake(&mut self, _io: &mut Io<'_>) {}

    /// Handles a message from the node: a packet, a refusal, or a status.
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>);

    /// Whether the application accepts another message now. If not, the node learns that it doesn't
    /// keep up.
    fn reads(&self) -> bool {
        true
    }

    /// Reports a change of flow control, for applications that enabled it with [`ToNode::Blocking`].
    /// While `on`, a sent message waits for room, and later ones wait behind it.
    fn on_flow_control(&mut self, _on: bool, _io: &mut Io<'_>) {}
}

/// The operations available to an application while it runs.
pub struct Io<'a> {
    now: Time,
    app: u32,
    outbox: &'a mut Outbox,
    wake: Option<Time>,
}

impl<'a> Io<'a> {
    pub(crate) fn new(now: Time, app: u32, outbox: &'a mut Outbox) -> Io<'a> {
        Io { now, app, outbox, wake: None }
    }

    /// Current time of the world.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules [`Application::wake`] at `at`, in place of any earlier schedule. A time in the
    /// past means now.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(at.max(self.now));
    }

    /// Sends a message to the node at the current time, but after the application has returned. On
    /// a plain path, only [`ToNode::Send`] has an effect, and only its port and payload are used.
    pub fn send(&mut self, message: &ToNode<'_>) {
        self.outbox.push(self.app, message);
    }

    pub(crate) fn wanted(&self) -> Option<Time> {
        self.wake
    }
}

/// Handle of an application in a world, with the application's type.
pub struct AppId<A> {
    pub(crate) index: u32,
    _type: PhantomData<fn() -> A>,
}

impl<A> AppId<A> {
    pub(crate) fn new(index: u32) -> AppId<A> {
        AppId { index, _type: PhantomData }
    }
}

impl<A> Clone for AppId<A> {
    fn clone(&self) -> AppId<A> {
        *self
    }
}

impl<A> Copy for AppId<A> {}

impl<A> fmt::Debug for AppId<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppId({})", self.index)
    }
}

/// Messages from applications to their nodes, queued until the application has returned.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    messages: Vec<(u32, Range<usize>)>,
}

impl Outbox {
    fn push(&mut self, app: u32, message: &ToNode<'_>) {
        let start = self.bytes.len();
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        message.emit_head(&mut w).expect("every head fits in MAX_HEAD");
        self.bytes.extend_from_slice(w.written());
        self.bytes.extend_from_slice(message.payload());
        self.messages.push((app, start..self.bytes.len()));
    }

    pub fn messages(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.messages.iter().map(|(app, range)| (*app, &self.bytes[range.clone()]))
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }
}
