//! The streams of a node, the sessions that listen for them, and the queues of streams with work to
//! do.

use super::Config;
use super::buffer::{Budget, MIN_MEMORY, Memory};
use super::end::{End, Key, Owner};
use crate::session::SessionId;
use crate::wire::NodeId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use trunkline_base::Time;

/// The index of a stream in its node's table; it is reused after the end of the stream.
pub type StreamId = u32;

/// The caller's number for one of the exits of the node that streams may have to wait for.
pub type Outlet = u16;

/// Role of a session with respect to streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It is one end of this stream.
    End(StreamId),
    /// It listens at this port.
    Listener(u16),
    /// Its stream has ended or was reset.
    Ended,
}

/// A session that listens for streams at a port.
#[derive(Debug)]
pub struct Listener {
    pub session: SessionId,
    /// Maximum number of streams that wait at this port to be accepted.
    backlog: u16,
    /// The present number, and that of each other node with any.
    waiting: u16,
    of_peers: BTreeMap<NodeId, u16>,
}

impl Listener {
    /// Whether one more stream with `peer` may wait to be accepted: streams with one node take half
    /// of the backlog at most.
    pub fn may_wait(&self, peer: NodeId) -> bool {
        let of_peer = self.of_peers.get(&peer).copied().unwrap_or_default();
        self.waiting < self.backlog && of_peer < self.backlog.div_ceil(2)
    }

    fn add(&mut self, peer: NodeId) {
        self.waiting += 1;
        *self.of_peers.entry(peer).or_default() += 1;
    }

    fn remove(&mut self, peer: NodeId) {
        self.waiting = self.waiting.saturating_sub(1);
        if let Entry::Occupied(mut of_peer) = self.of_peers.entry(peer) {
            *of_peer.get_mut() -= 1;
            if *of_peer.get() == 0 {
                of_peer.remove();
            }
        }
    }
}

/// Streams that are only remembered, in the order in which they reached that state.
type Remembered = BTreeSet<(u64, StreamId)>;

/// Number of streams with one other node, those that are only remembered, and the memory left to
/// them.
#[derive(Debug)]
struct Peer {
    streams: usize,
    remembered: Remembered,
    memory: Budget,
}

#[derive(Debug)]
struct Slot {
    end: Box<End>,
    /// Whether it is in the queue of streams that may have something to send, and in that of
    /// streams with a notification for their application.
    to_send: bool,
    to_tell: bool,
    /// The outlet that it waits for, if any, and its position among all that wait.
    held: Option<(Outlet, u64)>,
    /// The time of its one entry among the timers; [`Time::NEVER`] if it has none.
    armed: Time,
    /// Its position among the streams that are only remembered, if it is one of them.
    remembered: Option<u64>,
}

/// The streams of a node, by index, by key and by session, with the queues and timers of those with
/// work to do.
#[derive(Debug)]
pub struct Streams {
    pub config: Config,
    slots: Vec<Option<Slot>>,
    free: Vec<StreamId>,
    by_key: BTreeMap<Key, StreamId>,
    by_token: BTreeMap<u64, StreamId>,
    by_session: Vec<Option<Role>>,
    listeners: BTreeMap<u16, Listener>,
    peers: BTreeMap<NodeId, Peer>,
    memory: Budget,
    remembered: Remembered,
    /// Number of streams that have ever become only remembered.
    forgettable: u64,
    sending: VecDeque<StreamId>,
    /// Streams that wait for room in an outlet: by outlet, in the order in which they began to
    /// wait.
    held: BTreeSet<(Outlet, u64, StreamId)>,
    /// Number of times that a stream has begun to wait.
    turns: u64,
    telling: VecDeque<StreamId>,
    timers: BTreeSet<(Time, StreamId)>,
}

impl Streams {
    /// Creates a table without streams.
    pub fn new(config: Config) -> Streams {
        Streams {
            memory: Budget::new(config.memory),
            config,
            slots: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            by_token: BTreeMap::new(),
            by_session: Vec::new(),
            listeners: BTreeMap::new(),
            peers: BTreeMap::new(),
            remembered: Remembered::new(),
            forgettable: 0,
            sending: VecDeque::new(),
            held: BTreeSet::new(),
            turns: 0,
            telling: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Number of streams, including those that are only remembered.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there may be one more stream with `peer`, and there is memory for it to receive
    /// data.
    pub fn has_room(&self, peer: NodeId) -> bool {
        !self.is_full(peer) && self.has_memory(peer)
    }

    /// Whether `peer` has as many streams as there is room for more: however many nodes take all
    /// that they may, each other one finds half of the rest.
    fn is_full(&self, peer: NodeId) -> bool {
        let of_peer = self.peers.get(&peer).map_or(0, |p| p.streams);
        of_peer >= self.config.max.saturating_sub(self.len())
    }

    /// Whether there is memory for one more stream with `peer` to receive data.
    pub fn has_memory(&self, peer: NodeId) -> bool {
        let of_peer = self.peers.get(&peer).map_or(MIN_MEMORY, |p| p.memory.left());
        of_peer.min(self.memory.left()) >= MIN_MEMORY
    }

    /// Adds a stream, for which [`Streams::has_room`] has found room.
    pub fn insert(&mut self, end: End) -> StreamId {
        let (key, owner) = (end.key, end.owner);
        let slot = Slot {
            end: Box::new(end),
            to_send: false,
            to_tell: false,
            held: None,
            armed: Time::NEVER,
            remembered: None,
        };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.slots.push(None);
                self.slots.len() as StreamId - 1
            }
        };
        self.slots[id as usize] = Some(slot);
        self.by_key.insert(key, id);
        let memory = Budget::new(self.config.memory / 2);
        let new = Peer { streams: 0, remembered: Remembered::new(), memory };
        self.peers.entry(key.peer).or_insert(new).streams += 1;
        match owner {
            Owner::Session(session) => self.set_role(session, Some(Role::End(id))),
            Owner::Backlog { token } => {
                self.by_token.insert(token, id);
                if let Some(listener) = self.listeners.get_mut(&key.port) {
                    listener.add(key.peer);
                }
            }
            Owner::Nobody => {}
        }
        if let Some((end, mut memory)) = self.get_mut(id) {
            end.rx.begin(&mut memory);
        }
        self.touch(id);
        id
    }

    /// Removes a stream, and returns its memory to the budgets.
    pub fn remove(&mut self, id: StreamId) -> Option<Box<End>> {
        self.unhold(id);
        let Slot { mut end, armed, remembered, .. } = self.slots.get_mut(id as usize)?.take()?;
        self.timers.remove(&(armed, id));
        self.free.push(id);
        self.by_key.remove(&end.key);
        self.disown(&end.key, end.owner);
        if let Some(peer) = self.peers.get_mut(&end.key.peer) {
            let mut memory = Memory { all: &mut self.memory, peer: &mut peer.memory };
            end.tx.release(&mut memory);
            end.rx.release(&mut memory);
            peer.streams -= 1;
            if let Some(number) = remembered {
                peer.remembered.remove(&(number, id));
                self.remembered.remove(&(number, id));
            }
            if peer.streams == 0 {
                self.peers.remove(&end.key.peer);
            }
        }
        Some(end)
    }

    /// Removes the record that `owner` has the stream with this key.
    fn disown(&mut self, key: &Key, owner: Owner) {
        match owner {
            Owner::Session(session) => self.set_role(session, None),
            Owner::Backlog { token } => {
                self.by_token.remove(&token);
                if let Some(listener) = self.listeners.get_mut(&key.port) {
                    listener.remove(key.peer);
                }
            }
            Owner::Nobody => {}
        }
    }

    /// Stream `id`, if there is one, and the budgets that its memory comes from.
    pub fn get_mut(&mut self, id: StreamId) -> Option<(&mut End, Memory<'_>)> {
        let slot = self.slots.get_mut(id as usize)?.as_mut()?;
        let peer = self.peers.get_mut(&slot.end.key.peer)?;
        let memory = Memory { all: &mut self.memory, peer: &mut peer.memory };
        Some((&mut slot.end, memory))
    }

    /// Stream `id`, if there is one.
    pub fn get(&self, id: StreamId) -> Option<&End> {
        Some(&self.slots.get(id as usize)?.as_ref()?.end)
    }

    /// The stream to forget in order to make room for one more with `peer`: the one that has been
    /// only remembered for longest. It is one of `peer`, if there is such a stream, or if that node
    /// has its maximum number.
    pub fn to_forget(&self, peer: NodeId) -> Option<StreamId> {
        let of_peer = self.peers.get(&peer);
        let first = |remembered: &Remembered| remembered.first().map(|&(_, id)| id);
        let own = of_peer.and_then(|p| first(&p.remembered));
        let is_full = of_peer.is_some_and(|p| p.streams >= self.config.max.div_ceil(2));
        own.or_else(|| if is_full { None } else { first(&self.remembered) })
    }

    /// All streams, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &End> {
        self.slots.iter().flatten().map(|slot| &*slot.end)
    }

    /// A page of the table: the streams in at most `places` slots from slot `from` on, and the slot
    /// at which the next page begins, if there is one.
    pub fn page(&self, from: usize, places: usize) -> (impl Iterator<Item = &End>, Option<usize>) {
        let rest = self.slots.get(from..).unwrap_or_default();
        let next = (rest.len() > places).then(|| from + places);
        (rest.iter().take(places).flatten().map(|slot| &*slot.end), next)
    }

    /// The stream with this key, if there is one.
    pub fn find(&self, key: &Key) -> Option<StreamId> {
        self.by_key.get(key).copied()
    }

    /// Role of session `id` with respect to streams.
    pub fn role(&self, id: SessionId) -> Option<Role> {
        self.by_session.get(id.0 as usize).copied().flatten()
    }

    fn set_role(&mut self, id: SessionId, role: Option<Role>) {
        let at = id.0 as usize;
        if self.by_session.len() <= at {
            self.by_session.resize(at + 1, None);
        }
        self.by_session[at] = role;
    }

    /// Records that the stream of session `id` has ended or was reset; further requests of the
    /// session about it are ignored.
    pub fn end_role(&mut self, id: SessionId) {
        self.set_role(id, Some(Role::Ended));
    }

    /// Handles the end of session `id`; its number may be reused.
    pub fn forget_role(&mut self, id: SessionId) {
        self.set_role(id, None);
    }

    /// Makes session `id` a listener at `port`, which it has bound. At most `backlog` streams may
    /// wait there: at least 1, and no more than is configured.
    pub fn listen(&mut self, id: SessionId, port: u16, backlog: u16) {
        let backlog = backlog.clamp(1, self.config.backlog);
        let of_peers = BTreeMap::new();
        self.listeners.insert(port, Listener { session: id, backlog, waiting: 0, of_peers });
        self.set_role(id, Some(Role::Listener(port)));
    }

    /// The listener at `port`, if there is one.
    pub fn listener(&self, port: u16) -> Option<&Listener> {
        self.listeners.get(&port)
    }

    /// Removes the listener at `port`, if there is one, and returns the streams that wait there to
    /// be accepted: remove them.
    pub fn unlisten(&mut self, port: u16) -> Vec<StreamId> {
        if let Some(listener) = self.listeners.remove(&port) {
            self.set_role(listener.session, None);
        }
        let all = (0..).zip(&self.slots);
        let waits = |slot: &Slot| {
            slot.end.key.port == port && matches!(slot.end.owner, Owner::Backlog { .. })
        };
        all.filter(|(_, slot)| slot.as_ref().is_some_and(waits)).map(|(id, _)| id).collect()
    }

    /// The stream that waits to be accepted under `token`, and the session that listens at its
    /// port.
    pub fn waiting(&self, token: u64) -> Option<(StreamId, SessionId)> {
        let id = *self.by_token.get(&token)?;
        let end = &self.slots.get(id as usize)?.as_ref()?.end;
        Some((id, self.listener(end.key.port)?.session))
    }

    /// Gives stream `id` another owner.
    pub fn set_owner(&mut self, id: StreamId, owner: Owner) {
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else { return };
        let before = core::mem::replace(&mut slot.end.owner, owner);
        let key = slot.end.key;
        self.disown(&key, before);
        if let Owner::Session(session) = owner {
            self.set_role(session, Some(Role::End(id)));
        }
    }

    /// Queues stream `id` to send and to notify its application, and sets its timer.
    pub fn touch(&mut self, id: StreamId) {
        self.will_send(id);
        self.will_tell(id);
        self.arm(id);
    }

    /// Queues stream `id` to send its due segments, unless it waits for an outlet.
    pub fn will_send(&mut self, id: StreamId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize)
            && slot.held.is_none()
            && !core::mem::replace(&mut slot.to_send, true)
        {
            self.sending.push_back(id);
        }
    }

    /// Queues stream `id` to notify its application.
    pub fn will_tell(&mut self, id: StreamId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize)
            && !core::mem::replace(&mut slot.to_tell, true)
        {
            self.telling.push_back(id);
        }
    }

    /// Lets stream `id` wait for its turn at `outlet`, instead of in the queue to send.
    pub fn hold(&mut self, id: StreamId, outlet: Outlet) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize)
            && slot.held.is_none()
        {
            self.turns += 1;
            slot.held = Some((outlet, self.turns));
            self.held.insert((outlet, self.turns, id));
        }
    }

    /// The outlet that stream `id` waits for, if any.
    pub fn held(&self, id: StreamId) -> Option<Outlet> {
        let slot = self.slots.get(id as usize)?.as_ref()?;
        slot.held.map(|(outlet, _)| outlet)
    }

    /// Records that stream `id` no longer waits for an outlet, the link that its packets leave by.
    pub fn unhold(&mut self, id: StreamId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize)
            && let Some((outlet, turn)) = slot.held.take()
        {
            self.held.remove(&(outlet, turn, id));
        }
    }

    /// Takes the stream that has waited longest for `outlet`.
    pub fn next_held(&mut self, outlet: Outlet) -> Option<StreamId> {
        let first = *self.held.range((outlet, 0, 0)..).next().filter(|h| h.0 == outlet)?;
        self.held.remove(&first);
        let (_, _, id) = first;
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.held = None;
        }
        Some(id)
    }

    /// The first outlet, from this one on, that any stream waits for.
    pub fn awaited(&self, from: Outlet) -> Option<Outlet> {
        self.held.range((from, 0, 0)..).next().map(|&(outlet, ..)| outlet)
    }

    /// Number of streams that are queued to send.
    pub fn senders(&self) -> usize {
        self.sending.len()
    }

    /// Takes the next stream off the queue of those that may have something to send.
    pub fn next_to_send(&mut self) -> Option<StreamId> {
        let id = self.sending.pop_front()?;
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.to_send = false;
        }
        Some(id)
    }

    /// Number of streams that are queued to notify their applications.
    pub fn tellers(&self) -> usize {
        self.telling.len()
    }

    /// Takes the next stream off the queue of those that may have to notify their applications.
    pub fn next_to_tell(&mut self) -> Option<StreamId> {
        let id = self.telling.pop_front()?;
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.to_tell = false;
        }
        Some(id)
    }

    /// Moves the timer of stream `id` forward, if the stream has something to do sooner, and
    /// records if it is only remembered from now on.
    pub fn arm(&mut self, id: StreamId) {
        let Some(Some(slot)) = self.slots.get_mut(id as usize) else { return };
        let at = slot.end.next_timeout();
        if at < slot.armed {
            self.timers.remove(&(slot.armed, id));
            self.timers.insert((at, id));
            slot.armed = at;
        }
        if slot.remembered.is_none()
            && slot.end.is_left()
            && let Some(peer) = self.peers.get_mut(&slot.end.key.peer)
        {
            let number = self.forgettable;
            self.forgettable += 1;
            slot.remembered = Some(number);
            peer.remembered.insert((number, id));
            self.remembered.insert((number, id));
        }
    }

    /// Number of timers that are set.
    #[cfg(test)]
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Time at which the next timer expires; [`Time::NEVER`] if none is set.
    pub fn next_timeout(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// Takes a stream with a timer that has expired at `now`, and clears the timer.
    pub fn next_due(&mut self, now: Time) -> Option<StreamId> {
        let &(at, id) = self.timers.first().filter(|&&(at, _)| at <= now)?;
        self.timers.remove(&(at, id));
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.armed = Time::NEVER;
        }
        Some(id)
    }
}
