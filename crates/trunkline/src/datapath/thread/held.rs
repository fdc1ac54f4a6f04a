//! Applications that the node holds back: of each one message is kept here, what
//! comes behind it stays in the carrier, and nobody reads there.

use super::{PacketThread, token};
use crate::clock;
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use trunkline_base::Time;
use trunkline_overlay::node::Handover;
use trunkline_overlay::session::SessionId;

/// The messages that the node has not taken, by session; empty where none waits.
/// A session's memory stays until it ends: at most one message.
#[derive(Default)]
pub struct Held(Vec<Vec<u8>>);

impl Held {
    /// Whether session `id` is held back.
    pub fn has(&self, id: SessionId) -> bool {
        self.0.get(id.0 as usize).is_some_and(|message| !message.is_empty())
    }

    fn keep(&mut self, id: SessionId, message: &[u8]) {
        let i = id.0 as usize;
        if self.0.len() <= i {
            self.0.resize_with(i + 1, Vec::new);
        }
        self.0[i].clear();
        self.0[i].extend_from_slice(message);
    }

    /// Session `id` is over.
    pub fn forget(&mut self, id: SessionId) {
        if let Some(message) = self.0.get_mut(id.0 as usize) {
            *message = Vec::new();
        }
    }
}

impl PacketThread {
    /// The node has not taken the message of `len` bytes that session `id` sent
    /// last.
    pub(super) fn hold(&mut self, now: Time, id: SessionId, len: usize) {
        self.held.keep(id, &self.message[..len]);
        if let Some(session) = self.carriers.remote_mut(id) {
            session.assure(now);
            self.carriers.note_stuck(id);
        }
        self.watch_session(id);
    }

    /// Hands over what has been kept and now has room. Whether there was any: then
    /// the node has more to send.
    pub(super) fn resume_held(&mut self) -> bool {
        let mut some = false;
        while let Some(id) = self.node.next_ready() {
            let Some(message) = self.held.0.get_mut(id.0 as usize) else { continue };
            let (now, sink) = (clock::now(), &mut self.carriers);
            if message.is_empty()
                || self.node.session_recv(now, id, message, sink) == Handover::Full
            {
                continue;
            }
            message.clear();
            self.watch_session(id);
            some = true;
        }
        some
    }

    /// Has epoll say what of session `id` there is to do: to read, unless it is held
    /// back, and to write, where TCP has not taken all.
    pub(super) fn watch_session(&mut self, id: SessionId) {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, !self.held.has(id));
        let stuck = self.carriers.remote_mut(id).is_some_and(|session| session.is_noted());
        flags.set(EpollFlags::EPOLLOUT, stuck);
        let Some(carrier) = self.carriers.get_mut(id) else { return };
        let mut event = EpollEvent::new(flags, token::SESSION | u64::from(id.0));
        let fd = carrier.as_fd();
        // It would say that the application is gone even if nothing else were asked,
        // again and again; what that one sent before goes out first.
        let _ = match flags.is_empty() {
            true => self.epoll.delete(fd),
            false => match self.epoll.modify(fd, &mut event) {
                Err(Errno::ENOENT) => self.epoll.add(fd, event),
                done => done,
            },
        };
    }
}
