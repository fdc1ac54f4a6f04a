//! Flow-controlled applications: they wait for room in a queue, or for their user's rate. For each,
//! one message is kept here; later messages stay in the carrier, which is not read. An application
//! that leaves meanwhile leaves them behind. On this host they are still sent, until another
//! application needs the session or the port; from another host they are lost.

use super::super::remote::ASSURE;
use super::{PacketThread, token};
use crate::clock;
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use trunkline_base::Time;
use trunkline_overlay::node::SendOutcome;
use trunkline_overlay::session::SessionId;

/// Messages that the node has not accepted.
pub struct Held {
    /// Entries, indexed by session.
    entries: Vec<Entry>,
    /// Sessions of applications that have gone, in order of departure.
    gone: VecDeque<SessionId>,
    /// Time at which to reassure clients on other hosts that the node is alive.
    assure_at: Time,
}

/// Waiting message of one session.
#[derive(Default)]
struct Entry {
    /// Empty if no message waits. The memory, at most one message, is kept until the session ends.
    message: Vec<u8>,
    /// Whether the application has gone.
    is_gone: bool,
}

impl Default for Held {
    fn default() -> Held {
        Held { entries: Vec::new(), gone: VecDeque::new(), assure_at: Time::NEVER }
    }
}

impl Held {
    /// Time at which [`PacketThread::assure_held`] has something to do.
    pub fn next_timeout(&self) -> Time {
        self.assure_at
    }

    /// Whether session `id` is flow-controlled.
    pub fn has(&self, id: SessionId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|entry| !entry.message.is_empty())
    }

    fn keep(&mut self, id: SessionId, message: &[u8]) {
        let i = id.0 as usize;
        if self.entries.len() <= i {
            self.entries.resize_with(i + 1, Entry::default);
        }
        self.entries[i].message.clear();
        self.entries[i].message.extend_from_slice(message);
    }

    /// Clears the state of session `id`, which has ended.
    pub fn forget(&mut self, id: SessionId) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else { return };
        if std::mem::take(entry).is_gone {
            self.gone.retain(|other| *other != id);
        }
    }

    /// Marks the application of session `id`, which is flow-controlled, as gone.
    fn set_gone(&mut self, id: SessionId) {
        if !std::mem::replace(&mut self.entries[id.0 as usize].is_gone, true) {
            self.gone.push_back(id);
        }
    }

    fn is_gone(&self, id: SessionId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|entry| entry.is_gone)
    }
}

impl PacketThread {
    /// Keeps the last message of session `id`, of `len` bytes, which can't be accepted now.
    pub(super) fn hold(&mut self, now: Time, id: SessionId, len: usize) {
        self.held.keep(id, &self.message[..len]);
        self.assure(now, id);
        self.watch_session(id);
    }

    /// Hands over kept messages for which there is now room. Returns whether there were any: then
    /// the node has more to send.
    pub(super) fn resume_held(&mut self) -> bool {
        let mut some = false;
        while let Some(id) = self.next_ready() {
            let Some(entry) = self.held.entries.get_mut(id.0 as usize) else { continue };
            let message = &mut entry.message;
            let (now, sink) = (clock::now(), &mut self.carriers);
            if message.is_empty()
                || self.node.session_recv(now, id, message, sink) == SendOutcome::Backpressure
            {
                continue;
            }
            message.clear();
            self.watch_session(id);
            some = true;
        }
        some
    }

    /// A session whose waiting message can be handed over now, as far as is known.
    fn next_ready(&mut self) -> Option<SessionId> {
        self.node.next_ready().or_else(|| self.rates.next_ready(clock::now()))
    }

    /// Handles an event of session `id` while it is flow-controlled: its application may have gone.
    pub(super) fn on_held(&mut self, id: SessionId, events: EpollFlags) {
        let gone = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if !events.intersects(gone) {
            return;
        }
        if self.carriers.remote_mut(id).is_some() {
            return self.close(id);
        }
        self.held.set_gone(id);
        self.watch_session(id);
    }

    /// Ends the session of the application that left first, among the sessions kept open only for
    /// their waiting messages. Returns whether there was one.
    pub(super) fn make_room(&mut self) -> bool {
        let oldest = self.held.gone.front().copied();
        oldest.inspect(|&id| self.close(id)).is_some()
    }

    /// If session `id` requests a port with `self.message` of `len` bytes, ends a session that
    /// holds the port after its application has gone.
    pub(super) fn make_way(&mut self, id: SessionId, len: usize) {
        if !self.held.gone.is_empty()
            && let Some(holder) = self.node.node().port_conflict(id, &self.message[..len])
            && self.held.is_gone(holder)
        {
            self.close(holder);
        }
    }

    /// Reassures flow-controlled clients on other hosts that the node is alive, since they may wait
    /// for longer than their timeout for it. The host of a client that has gone answers with a
    /// reset, even if its earlier data have not all been read; but not if the kernel had no memory
    /// for all of them, since Linux then discards everything after them, acknowledgements included.
    /// Such a client's departure is noticed when its data have been read.
    pub(super) fn assure_held(&mut self, now: Time) {
        if now < self.held.assure_at {
            return;
        }
        self.held.assure_at = Time::NEVER;
        for id in (0..self.held.entries.len() as u32).map(SessionId) {
            if self.held.has(id) {
                self.assure(now, id);
            }
        }
    }

    fn assure(&mut self, now: Time, id: SessionId) {
        if let Some(session) = self.carriers.remote_mut(id) {
            session.assure(now);
            self.carriers.note_stuck(id);
            self.held.assure_at = self.held.assure_at.min(now + ASSURE);
        }
    }

    /// Sets the epoll events of session `id`: reading, unless it is flow-controlled, and writing,
    /// if TCP has a backlog. For a flow-controlled session, also the application's departure.
    pub(super) fn watch_session(&mut self, id: SessionId) {
        let mut flags = EpollFlags::empty();
        let held = self.held.has(id);
        flags.set(EpollFlags::EPOLLIN, !held);
        flags.set(EpollFlags::EPOLLRDHUP, held && !self.held.is_gone(id));
        let stuck = self.carriers.remote_mut(id).is_some_and(|session| session.is_noted());
        flags.set(EpollFlags::EPOLLOUT, stuck);
        let Some(carrier) = self.carriers.get_mut(id) else { return };
        let mut event = EpollEvent::new(flags, token::SESSION | u64::from(id.0));
        let fd = carrier.as_fd();
        // Even with no events requested, epoll would report the departure again and again.
        let _ = match flags.is_empty() {
            true => self.epoll.delete(fd),
            false => match self.epoll.modify(fd, &mut event) {
                Err(Errno::ENOENT) => self.epoll.add(fd, event),
                done => done,
            },
        };
    }
}
