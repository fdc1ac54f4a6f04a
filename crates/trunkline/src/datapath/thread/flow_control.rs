//! Applications that the node holds back: of each one message is kept here, what
//! comes behind it stays in the carrier, and nobody reads there. One that goes
//! meanwhile leaves that behind. On this host it still goes out, until another
//! application needs the place or the port; from another host it is lost.

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

/// What the node has not taken.
pub struct Held {
    /// By session.
    entries: Vec<Entry>,
    /// Sessions whose applications are gone, in the order in which those went.
    gone: VecDeque<SessionId>,
    /// When to tell those on other hosts that the node lives.
    assure_at: Time,
}

/// What a session has to wait for.
#[derive(Default)]
struct Entry {
    /// Empty if nothing waits. Its memory stays until the session ends: at most one
    /// message.
    message: Vec<u8>,
    /// Whether the application is gone.
    is_gone: bool,
}

impl Default for Held {
    fn default() -> Held {
        Held { entries: Vec::new(), gone: VecDeque::new(), assure_at: Time::NEVER }
    }
}

impl Held {
    /// When [`PacketThread::assure_held`] has something to do.
    pub fn next_timeout(&self) -> Time {
        self.assure_at
    }

    /// Whether session `id` is held back.
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

    /// Session `id` is over.
    pub fn forget(&mut self, id: SessionId) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else { return };
        if std::mem::take(entry).is_gone {
            self.gone.retain(|other| *other != id);
        }
    }

    /// The application of session `id`, which is held back, is gone.
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
    /// The node has not taken the message of `len` bytes that session `id` sent
    /// last.
    pub(super) fn hold(&mut self, now: Time, id: SessionId, len: usize) {
        self.held.keep(id, &self.message[..len]);
        self.assure(now, id);
        self.watch_session(id);
    }

    /// Hands over what has been kept and now has room. Whether there was any: then
    /// the node has more to send.
    pub(super) fn resume_held(&mut self) -> bool {
        let mut some = false;
        while let Some(id) = self.node.next_ready() {
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

    /// Something has happened to session `id` while it is held back: its application
    /// may be gone.
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

    /// Ends the session whose application has been gone longest, if there is one that
    /// only goes on because something of it waits.
    pub(super) fn make_room(&mut self) -> bool {
        let oldest = self.held.gone.front().copied();
        oldest.inspect(|&id| self.close(id)).is_some()
    }

    /// If session `id` asks for a port by `self.message` of `len` bytes, ends one that
    /// has it and whose application is gone.
    pub(super) fn make_way(&mut self, id: SessionId, len: usize) {
        if !self.held.gone.is_empty()
            && let Some(holder) = self.node.node().port_conflict(id, &self.message[..len])
            && self.held.is_gone(holder)
        {
            self.close(holder);
        }
    }

    /// Tells clients on other hosts that are held back that the node lives: they may
    /// wait for longer than they would wait for it. One that is gone answers that with
    /// a reset, though what it sent before its end has not all been read; but not if the
    /// kernel had no memory for all of that, since Linux then discards what comes after
    /// it, acknowledgements, too. Such a one is noticed when it has been read.
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

    /// Has epoll say what of session `id` there is to do: to read, unless it is held
    /// back, and to write, where TCP has not taken all. Of one that is held back also
    /// that it is gone.
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
        // It would say that the application is gone even if nothing were asked, again
        // and again.
        let _ = match flags.is_empty() {
            true => self.epoll.delete(fd),
            false => match self.epoll.modify(fd, &mut event) {
                Err(Errno::ENOENT) => self.epoll.add(fd, event),
                done => done,
            },
        };
    }
}
