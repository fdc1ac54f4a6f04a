//! What the packet thread does for applications on other hosts.

use super::super::remote::Session;
use super::super::sessions::Carrier;
use super::{PacketThread, token};
use crate::clock::{self, Stamps};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use trunkline_base::Time;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::remote::Token;

impl PacketThread {
    pub(super) fn on_remote(&mut self, index: usize) {
        while let Some(remote) = self.remotes.get_mut(index) {
            let session = match remote.accept() {
                Ok(Some(session)) => session,
                Ok(None) => return,
                Err(error) => {
                    let what = format!("a remote application could not attach: {error}");
                    return self.complaints.warn(clock::now(), &what);
                }
            };
            let token = session.token();
            if let Some(id) = self.admit(Carrier::Remote(Box::new(session)))
                && let Some((late, token)) =
                    self.carriers.remotes.await_bind(clock::now(), id, token)
            {
                self.end_handshake(late, token);
            }
        }
    }

    pub(super) fn on_remote_udp(&mut self, index: usize, stamps: &Stamps) {
        let now = clock::now();
        let (node, carriers) = (&mut self.node, &mut self.carriers);
        if let Some(remote) = self.remotes.get_mut(index) {
            remote.udp.recv(stamps, now, |batch| {
                for d in batch {
                    if let Some((id, message)) = carriers.datagram(index, d.from, d.bytes) {
                        node.session_recv(now, id, message, carriers);
                    }
                }
            });
        }
    }

    /// Closes connections that have not been bound in time.
    pub(super) fn end_handshakes(&mut self, now: Time) {
        while let Some((id, token)) = self.carriers.remotes.overdue(now) {
            self.end_handshake(id, token);
        }
    }

    fn end_handshake(&mut self, id: SessionId, token: Token) {
        let same = self.carriers.remote_mut(id).is_some_and(|session| session.token() == token);
        if same && self.node.node().session_port(id).is_none() {
            self.carriers.remotes.stats.handshakes += 1;
            self.close(id);
        }
    }

    /// Sends what has gathered for clients, and waits for the connections that
    /// did not take all.
    pub(super) fn flush_remotes(&mut self) {
        self.carriers.remotes.flush();
        while let Some(id) = self.carriers.remotes.next_stuck() {
            self.watch_session(id, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
        }
    }

    pub(super) fn on_unstuck(&mut self, id: SessionId) {
        if self.carriers.remote_mut(id).is_none_or(Session::resume) {
            self.watch_session(id, EpollFlags::EPOLLIN);
        }
    }

    fn watch_session(&mut self, id: SessionId, flags: EpollFlags) {
        if let Some(carrier) = self.carriers.get_mut(id) {
            let mut event = EpollEvent::new(flags, token::SESSION | u64::from(id.0));
            let _ = self.epoll.modify(carrier.as_fd(), &mut event);
        }
    }
}
