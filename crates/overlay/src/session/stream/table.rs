//! The streams of a node, who listens for them, and which of them have something to do.

use super::Config;
use super::buffer::{Budget, LEAST, Memory};
use super::end::{End, Key, Owner};
use crate::session::SessionId;
use crate::wire::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use trunkline_base::Time;

/// Which stream of a node: a small index that is used again after its end.
pub type StreamId = u32;

/// What a session has to do with streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It is one end of this one.
    End(StreamId),
    /// It listens at this port.
    Listener(u16),
    /// Its stream has come to its end, or broken off.
    Ended,
}

/// Who listens at a port.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    pub session: SessionId,
    /// How many streams may wait to be accepted, and how many do.
    pub backlog: u16,
    pub waiting: u16,
}

/// What there is of streams with one other node.
#[derive(Clone, Copy, Debug)]
struct Peer {
    streams: usize,
    memory: Budget,
}

#[derive(Debug)]
struct Slot {
    end: Box<End>,
    /// Whether it is in the queue of those that may have something to send, and in that
    /// of those whose application is to be told something.
    to_send: bool,
    to_tell: bool,
    /// When it is to be looked after, which is its one entry among the timers.
    armed: Time,
}

/// See the module.
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
    sending: VecDeque<StreamId>,
    telling: VecDeque<StreamId>,
    timers: BTreeSet<(Time, StreamId)>,
}

impl Streams {
    /// None yet.
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
            sending: VecDeque::new(),
            telling: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether another one with `peer` finds room, and memory to receive anything; a node
    /// may have half of those that are to be had, lest it leave none to others.
    pub fn has_room(&self, peer: NodeId) -> bool {
        let of_peer = self.peers.get(&peer).map_or((0, LEAST), |p| (p.streams, p.memory.left()));
        let finds_memory = of_peer.1.min(self.memory.left()) >= LEAST;
        self.len() < self.config.max && of_peer.0 < self.config.max.div_ceil(2) && finds_memory
    }

    /// Adds one, for which there is room.
    pub fn insert(&mut self, end: End) -> StreamId {
        let (key, owner) = (end.key, end.owner);
        let slot = Slot { end: Box::new(end), to_send: false, to_tell: false, armed: Time::NEVER };
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
        self.peers.entry(key.peer).or_insert(Peer { streams: 0, memory }).streams += 1;
        match owner {
            Owner::Session(session) => self.set_role(session, Some(Role::End(id))),
            Owner::Backlog { token } => {
                self.by_token.insert(token, id);
                if let Some(listener) = self.listeners.get_mut(&key.port) {
                    listener.waiting += 1;
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

    /// Forgets one.
    pub fn remove(&mut self, id: StreamId) -> Option<Box<End>> {
        let Slot { mut end, armed, .. } = self.slots.get_mut(id as usize)?.take()?;
        self.timers.remove(&(armed, id));
        self.free.push(id);
        self.by_key.remove(&end.key);
        self.disown(end.key.port, end.owner);
        if let Some(peer) = self.peers.get_mut(&end.key.peer) {
            let mut memory = Memory { all: &mut self.memory, peer: &mut peer.memory };
            end.tx.release(&mut memory);
            end.rx.release(&mut memory);
            peer.streams -= 1;
            if peer.streams == 0 {
                self.peers.remove(&end.key.peer);
            }
        }
        Some(end)
    }

    /// Its owner has it no more.
    fn disown(&mut self, port: u16, owner: Owner) {
        match owner {
            Owner::Session(session) => self.set_role(session, None),
            Owner::Backlog { token } => {
                self.by_token.remove(&token);
                if let Some(listener) = self.listeners.get_mut(&port) {
                    listener.waiting = listener.waiting.saturating_sub(1);
                }
            }
            Owner::Nobody => {}
        }
    }

    /// Stream `id`, and the memory that it may take.
    pub fn get_mut(&mut self, id: StreamId) -> Option<(&mut End, Memory<'_>)> {
        let slot = self.slots.get_mut(id as usize)?.as_mut()?;
        let peer = self.peers.get_mut(&slot.end.key.peer)?;
        let memory = Memory { all: &mut self.memory, peer: &mut peer.memory };
        Some((&mut slot.end, memory))
    }

    /// Stream `id`.
    pub fn get(&self, id: StreamId) -> Option<&End> {
        Some(&self.slots.get(id as usize)?.as_ref()?.end)
    }

    /// A stream with `peer`, or else any, that is only remembered.
    pub fn find_over(&self, peer: NodeId) -> Option<StreamId> {
        let over = || {
            let all = (0..).zip(&self.slots);
            all.filter_map(|(id, slot)| Some((id, &slot.as_ref()?.end)).filter(|s| s.1.is_left()))
        };
        let of_peer = over().find(|(_, end)| end.key.peer == peer);
        of_peer.or_else(|| over().next()).map(|(id, _)| id)
    }

    /// All streams.
    pub fn iter(&self) -> impl Iterator<Item = &End> {
        self.slots.iter().flatten().map(|slot| &*slot.end)
    }

    /// Some of them: those from `from` on, which is 0 at first, in at most `places` places;
    /// and where it goes on, if it does.
    pub fn page(&self, from: usize, places: usize) -> (impl Iterator<Item = &End>, Option<usize>) {
        let rest = self.slots.get(from..).unwrap_or_default();
        let next = (rest.len() > places).then(|| from + places);
        (rest.iter().take(places).flatten().map(|slot| &*slot.end), next)
    }

    /// The stream with this key.
    pub fn find(&self, key: &Key) -> Option<StreamId> {
        self.by_key.get(key).copied()
    }

    /// What session `id` has to do with streams.
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

    /// Session `id` has a stream no more.
    pub fn end_role(&mut self, id: SessionId) {
        self.set_role(id, Some(Role::Ended));
    }

    /// Session `id` is over.
    pub fn forget_role(&mut self, id: SessionId) {
        self.set_role(id, None);
    }

    /// Session `id` listens at `port`, which is its own.
    pub fn listen(&mut self, id: SessionId, port: u16, backlog: u16) {
        let backlog = backlog.clamp(1, self.config.backlog);
        self.listeners.insert(port, Listener { session: id, backlog, waiting: 0 });
        self.set_role(id, Some(Role::Listener(port)));
    }

    /// Who listens at `port`.
    pub fn listener(&self, port: u16) -> Option<&Listener> {
        self.listeners.get(&port)
    }

    /// Whoever listened at `port` does no more; a stream that waited there, if one does:
    /// call this until none does.
    pub fn unlisten(&mut self, port: u16) -> Option<StreamId> {
        if let Some(listener) = self.listeners.remove(&port) {
            self.set_role(listener.session, None);
        }
        let all = (0..).zip(&self.slots);
        let waits = |slot: &Slot| {
            slot.end.key.port == port && matches!(slot.end.owner, Owner::Backlog { .. })
        };
        all.filter_map(|(id, slot)| slot.as_ref().filter(|s| waits(s)).map(|_| id)).next()
    }

    /// The stream that waits under `token`, and for whom.
    pub fn waiting(&self, token: u64) -> Option<(StreamId, SessionId)> {
        let id = *self.by_token.get(&token)?;
        let end = &self.slots.get(id as usize)?.as_ref()?.end;
        Some((id, self.listener(end.key.port)?.session))
    }

    /// Gives stream `id` another owner.
    pub fn set_owner(&mut self, id: StreamId, owner: Owner) {
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else { return };
        let before = core::mem::replace(&mut slot.end.owner, owner);
        let port = slot.end.key.port;
        self.disown(port, before);
        if let Owner::Session(session) = owner {
            self.set_role(session, Some(Role::End(id)));
        }
    }

    /// Stream `id` may have something to send and to tell, and its timer may be another.
    pub fn touch(&mut self, id: StreamId) {
        self.will_send(id);
        self.will_tell(id);
        self.arm(id);
    }

    /// Stream `id` may have something to send.
    pub fn will_send(&mut self, id: StreamId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize)
            && !core::mem::replace(&mut slot.to_send, true)
        {
            self.sending.push_back(id);
        }
    }

    /// The application of stream `id` may have to be told something.
    pub fn will_tell(&mut self, id: StreamId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize)
            && !core::mem::replace(&mut slot.to_tell, true)
        {
            self.telling.push_back(id);
        }
    }

    /// How many may have something to send.
    pub fn senders(&self) -> usize {
        self.sending.len()
    }

    /// The next that may have something to send.
    pub fn next_to_send(&mut self) -> Option<StreamId> {
        let id = self.sending.pop_front()?;
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.to_send = false;
        }
        Some(id)
    }

    /// How many applications may have to be told something.
    pub fn tellers(&self) -> usize {
        self.telling.len()
    }

    /// The next whose application may have to be told something.
    pub fn next_to_tell(&mut self) -> Option<StreamId> {
        let id = self.telling.pop_front()?;
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.to_tell = false;
        }
        Some(id)
    }

    /// Sets the timer of stream `id`, if it is to be looked after sooner than that says.
    pub fn arm(&mut self, id: StreamId) {
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            let at = slot.end.next_timeout();
            if at < slot.armed {
                self.timers.remove(&(slot.armed, id));
                self.timers.insert((at, id));
                slot.armed = at;
            }
        }
    }

    /// How many timers there are.
    #[cfg(test)]
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// When the next timer is.
    pub fn next_timeout(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// A stream whose time has come.
    pub fn next_due(&mut self, now: Time) -> Option<StreamId> {
        let &(at, id) = self.timers.first().filter(|&&(at, _)| at <= now)?;
        self.timers.remove(&(at, id));
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.armed = Time::NEVER;
        }
        Some(id)
    }
}
