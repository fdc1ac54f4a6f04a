//! The packet thread's work for applications on other hosts.

use super::super::remote::{Admission, Session};
use super::super::sessions::Carrier;
use super::rates::RateCheck;
use super::{ADMITTED_PER_TURN, PacketThread, token};
use crate::clock::{self, Stamps};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use trunkline_base::Time;
use trunkline_overlay::node::SendOutcome;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::remote::Token;

impl PacketThread {
    pub(super) fn on_remote(&mut self, index: usize) {
        for _ in 0..ADMITTED_PER_TURN {
            let Some(remote) = self.remotes.get_mut(index) else { return };
            let (session, from) = match remote.accept() {
                Ok(Some(connection)) => connection,
                Ok(None) => return,
                Err(error) => {
                    if remote.queue.is_stuck() {
                        self.pause_accept();
                    }
                    return self.log_rejected(&error);
                }
            };
            let (slot, evicted) = self.pending.enter(clock::now(), session, from);
            if let Some(evicted) = evicted {
                self.forget_pending(&evicted);
            }
            let Some(descriptor) = self.pending.descriptor(slot) else { continue };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token::PENDING | u64::from(slot));
            if let Err(error) = self.epoll.add(descriptor, event) {
                self.log_rejected(&error.into());
            }
        }
    }

    fn log_rejected(&mut self, error: &std::io::Error) {
        let what = format!("a remote application could not attach: {error}");
        self.limited.applications.warn(clock::now(), &what);
    }

    pub(super) fn on_pending(&mut self, slot: u32) {
        let verdict = self.pending.hear(clock::now(), slot);
        self.judge(slot, verdict);
    }

    /// Answers handshakes, and ends those that have timed out.
    fn poll_pending(&mut self, now: Time) {
        let mut told = arrayvec::ArrayVec::<_, 4>::new();
        self.pending.answer(now, |slot, verdict| drop(told.try_push((slot, verdict))));
        for (slot, verdict) in told {
            self.judge(slot, verdict);
        }
        while let Some(late) = self.pending.overdue(now) {
            self.forget_pending(&late);
        }
    }

    fn forget_pending(&mut self, session: &Session) {
        self.carriers.remotes.stats.handshakes += 1;
        let _ = self.epoll.delete(session);
    }

    fn judge(&mut self, slot: u32, verdict: Admission) {
        match verdict {
            Admission::Stays => self.watch_pending(slot, EpollFlags::EPOLLIN),
            // Otherwise data sent meanwhile would wake the thread to no purpose.
            Admission::Waits => self.watch_pending(slot, EpollFlags::empty()),
            Admission::In(session) => {
                let _ = self.epoll.delete(&session);
                self.let_in(session);
            }
            Admission::Out(session, why) => {
                let _ = self.epoll.delete(&session);
                self.carriers.remotes.stats.count(why);
                self.turn_away(Carrier::Remote(Box::new(session)), why);
            }
            Admission::Broken(session) => {
                let _ = self.epoll.delete(&session);
                self.carriers.remotes.stats.streams += 1;
            }
            Admission::Gone(session) => drop(self.epoll.delete(&session)),
        }
    }

    fn watch_pending(&mut self, slot: u32, flags: EpollFlags) {
        if let Some(descriptor) = self.pending.descriptor(slot) {
            let mut event = EpollEvent::new(flags, token::PENDING | u64::from(slot));
            let _ = self.epoll.modify(descriptor, &mut event);
        }
    }

    fn let_in(&mut self, session: Session) {
        let (token, client) = (session.token(), session.client());
        let Some(id) = self.admit(Carrier::Remote(Box::new(session)), client) else { return };
        // Its first message has already been read.
        self.on_session(id, EpollFlags::EPOLLIN, &Stamps::sample());
        let waits = self.carriers.remotes.await_bind(clock::now(), id, token);
        if let Some((late, token)) = waits {
            self.end_handshake(late, token);
        }
    }

    pub(super) fn on_remote_udp(&mut self, index: usize, stamps: &Stamps) {
        let now = clock::now();
        let (node, carriers, rates) = (&mut self.node, &mut self.carriers, &mut self.rates);
        let mut refused = None;
        if let Some(remote) = self.remotes.get_mut(index) {
            remote.udp.recv(stamps, now, |batch| {
                for d in batch.iter_mut() {
                    let at = d.at;
                    let Some((id, message)) = carriers.datagram(index, d.from, d.bytes) else {
                        continue;
                    };
                    // A socket shared by all can't flow-control any of them. The client library
                    // sends flow-controlled packets by TCP.
                    if let RateCheck::Refused(to, port) = rates.admit(now, id, message, |_| false) {
                        refused = Some((id, (to, port)));
                        continue;
                    }
                    let outcome = node.session_recv(at, id, message, carriers);
                    carriers.remotes.stats.flow_controlled +=
                        u64::from(outcome == SendOutcome::Backpressure);
                }
            });
        }
        // The last one of a batch: the client is told that it sends too much, not each time.
        if let Some((id, to)) = refused {
            self.refuse_over_rate(now, id, to);
        }
    }

    /// Closes connections that have not been bound in time.
    pub(super) fn end_handshakes(&mut self, now: Time) {
        self.poll_pending(now);
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

    /// Sends the datagrams collected for clients, and polls the connections that have a backlog.
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
