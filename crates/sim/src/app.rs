//! Applications: what sends and receives packets in a world.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use std::ops::Range;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::session::wire::{MAX_HEAD, ToClient, ToNode};

/// Something that talks through one session with a node, or over a plain path
/// without any node. The world binds its port; then it may send.
pub trait Application: Any {
    /// The application has been attached to its node, and its port is bound.
    fn start(&mut self, _io: &mut Io<'_>) {}

    /// The node of this application has restarted, and the application has a session with its port
    /// there. The node has forgotten everything from before.
    fn reattached(&mut self, _io: &mut Io<'_>) {}

    /// The time asked for by [`Io::wake_at`] has come.
    fn wake(&mut self, _io: &mut Io<'_>) {}

    /// A message of the node: a packet, a refusal, or what becomes of packets.
    fn receive(&mut self, message: &ToClient<'_>, io: &mut Io<'_>);

    /// Whether it takes another message now; otherwise the node is told that it
    /// doesn't keep up.
    fn reads(&self) -> bool {
        true
    }

    /// A message that it has sent waits for room from now on (it has said
    /// [`ToNode::Wait`]), and what it sends further behind that; or none does any more.
    fn held_back(&mut self, _on: bool, _io: &mut Io<'_>) {}
}

/// What an application can do while it runs.
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

    /// The world's present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Asks for [`Application::wake`] at `at`, instead of any time asked for
    /// before. A time that has passed means now.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(at.max(self.now));
    }

    /// Sends a message to the node, in this moment but after the application
    /// has returned. On a plain path only [`ToNode::Send`] has a meaning, and
    /// of it only the port and the payload.
    pub fn send(&mut self, message: &ToNode<'_>) {
        self.outbox.push(self.app, message);
    }

    pub(crate) fn wanted(&self) -> Option<Time> {
        self.wake
    }
}

/// Which application of a world, and its type.
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

/// Messages of applications to their nodes, kept until they have returned.
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
