//! What the packet thread does for applications on other hosts.

use super::super::remote::{Session, Verdict};
use super::super::sessions::Carrier;
use super::{ADMITTED_PER_TURN, PacketThread, token};
use crate::clock::{self, Stamps};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use trunkline_base::Time;
use trunkline_overlay::node::Handover;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::remote::Token;

impl PacketThread {
    pub(super) fn on_remote(&mut self, index: usize) {
        for _ in 0..ADMITTED_PER_TURN {
            let Some(remote) = self.remotes.get_mut(index) else { return };
            let (session, from) = match remote.accept() {
                Ok(Some(guest)) => guest,
                Ok(None) => return,
                Err(error) => {
                    if remote.door.is_stuck() {
                        self.leave_doors();
                    }
                    return self.complain_of(&error);
                }
            };
            let (slot, evicted) = self.lobby.enter(clock::now(), session, from);
            if let Some(evicted) = evicted {
                self.forget_guest(&evicted);
            }
            let Some(descriptor) = self.lobby.descriptor(slot) else { continue };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token::GUEST | u64::from(slot));
            if let Err(error) = self.epoll.add(descriptor, event) {
                self.complain_of(&error.into());
            }
        }
    }

    fn complain_of(&mut self, error: &std::io::Error) {
        let what = format!("a remote application could not attach: {error}");
        self.complaints.warn(clock::now(), &what);
    }

    pub(super) fn on_guest(&mut self, slot: u32) {
        let verdict = self.lobby.hear(clock::now(), slot);
        self.judge(slot, verdict);
    }

    /// Answers handshakes, and ends those that took too long.
    fn look_after_guests(&mut self, now: Time) {
        let mut told = arrayvec::ArrayVec::<_, 4>::new();
        self.lobby.answer(now, |slot, verdict| drop(told.try_push((slot, verdict))));
        for (slot, verdict) in told {
            self.judge(slot, verdict);
        }
        while let Some(late) = self.lobby.overdue(now) {
            self.forget_guest(&late);
        }
    }

    fn forget_guest(&mut self, session: &Session) {
        self.carriers.remotes.stats.handshakes += 1;
        let _ = self.epoll.delete(session);
    }

    fn judge(&mut self, slot: u32, verdict: Verdict) {
        match verdict {
            Verdict::Stays => self.watch_guest(slot, EpollFlags::EPOLLIN),
            // Else what it sends meanwhile would wake the thread for nothing.
            Verdict::Waits => self.watch_guest(slot, EpollFlags::empty()),
            Verdict::In(session) => {
                let _ = self.epoll.delete(&session);
                self.let_in(session);
            }
            Verdict::Out(session, why) => {
                let _ = self.epoll.delete(&session);
                self.carriers.remotes.stats.count(why);
                self.turn_away(Carrier::Remote(Box::new(session)), why);
            }
            Verdict::Broken(session) => {
                let _ = self.epoll.delete(&session);
                self.carriers.remotes.stats.streams += 1;
            }
            Verdict::Gone(session) => drop(self.epoll.delete(&session)),
        }
    }

    fn watch_guest(&mut self, slot: u32, flags: EpollFlags) {
        if let Some(descriptor) = self.lobby.descriptor(slot) {
            let mut event = EpollEvent::new(flags, token::GUEST | u64::from(slot));
            let _ = self.epoll.modify(descriptor, &mut event);
        }
    }

    fn let_in(&mut self, session: Session) {
        let (token, client) = (session.token(), session.client());
        let Some(id) = self.admit(Carrier::Remote(Box::new(session)), client) else { return };
        // Its first message has been read.
        self.on_session(id, EpollFlags::EPOLLIN, &Stamps::sample());
        let waits = self.carriers.remotes.await_bind(clock::now(), id, token);
        if let Some((late, token)) = waits {
            self.end_handshake(late, token);
        }
    }

    pub(super) fn on_remote_udp(&mut self, index: usize, stamps: &Stamps) {
        let now = clock::now();
        let (node, carriers) = (&mut self.node, &mut self.carriers);
        if let Some(remote) = self.remotes.get_mut(index) {
            remote.udp.recv(stamps, now, |batch| {
                for d in batch.iter_mut() {
                    let at = d.at;
                    if let Some((id, message)) = carriers.datagram(index, d.from, d.bytes) {
                        // A socket that all share can hold nothing back. The client
                        // library sends by TCP what is to wait.
                        let handover = node.session_recv(at, id, message, carriers);
                        carriers.remotes.stats.held_back += u64::from(handover == Handover::Full);
                    }
                }
            });
        }
    }

    /// Closes connections that have not been bound in time.
    pub(super) fn end_handshakes(&mut self, now: Time) {
        self.look_after_guests(now);
        while let Some((id, token)) = self.carriers.remotes.overdue(now) {
            self.end_handshake(id, token);
        }
    }

    fn end_handshake(&mut self, id: SessionId, token: Token) {
        let same = self.carriers.remote_mut(id).is_some_and(|session| session.token() == token);
        if same && !self.node.node().session_is_bound(id) {
            self.carriers.remotes.stats.handshakes += 1;
            self.close(id);
        }
    }

    /// Sends what has gathered for clients, and waits for the connections that
    /// did not take all.
    pub(super) fn flush_remotes(&mut self) {
        self.carriers.remotes.flush();
        while let Some(id) = self.carriers.remotes.next_stuck() {
            self.watch_session(id);
        }
    }

    pub(super) fn on_unstuck(&mut self, id: SessionId) {
        if self.carriers.remote_mut(id).is_none_or(Session::resume) {
            self.watch_session(id);
        }
    }
}
