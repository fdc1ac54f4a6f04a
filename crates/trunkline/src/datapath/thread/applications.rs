//! The packet thread's work for applications on this host: it accepts them, reads their messages,
//! and hangs up.

use super::super::sessions::{Carrier, Read, User};
use super::super::unix::Unix;
use super::rates::RateCheck;
use super::{ADMITTED_PER_TURN, PacketThread, token};
use crate::clock::{self, Stamps};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use trunkline_base::Time;
use trunkline_client::in_process::Acceptor;
use trunkline_overlay::node::SendOutcome;
use trunkline_overlay::session::wire::RefusalReason;
use trunkline_overlay::session::{Client, SessionId};
use trunkline_overlay::wire::NodeId;

/// Messages from one application before the others have a turn.
const MESSAGES_PER_TURN: usize = 32;

/// Connections kept open for rejected applications.
pub(super) const REJECTED: usize = 16;

impl PacketThread {
    pub(super) fn on_session(&mut self, id: SessionId, events: EpollFlags, stamps: &Stamps) {
        if events.contains(EpollFlags::EPOLLOUT) {
            self.on_unstuck(id);
        }
        if self.held.has(id) {
            return self.on_held(id, events);
        }
        let now = clock::now();
        for _ in 0..MESSAGES_PER_TURN {
            let Some(carrier) = self.carriers.get_mut(id) else { return };
            match carrier.recv(&mut self.message, now) {
                Read::Message(n) => {
                    // The node drops packets that are too old for its queues.
                    let at = carrier.sent_at(stamps, now);
                    self.make_way(id, n);
                    match self.check_rate(now, id, n) {
                        RateCheck::Accepted => {}
                        RateCheck::Refused(..) => continue,
                        RateCheck::Waits => return self.hold(now, id, n),
                    }
                    let message = &self.message[..n];
                    match self.node.session_recv(at, id, message, &mut self.carriers) {
                        SendOutcome::Accepted => {}
                        SendOutcome::Backpressure => return self.hold(now, id, n),
                    }
                }
                Read::Handled => self.carriers.note_stuck(id),
                Read::Hello(hello) => {
                    let client = self.carriers.client(id);
                    if let Some(earlier) = self.carriers.remotes.identify(id, client, hello) {
                        self.close(earlier);
                    }
                }
                Read::Empty => return,
                Read::Broken => {
                    self.carriers.remotes.stats.streams += 1;
                    return self.close(id);
                }
                Read::Closed => return self.close(id),
            }
        }
    }

    /// Applies the rate of its user to the message of session `id`, the first `len` bytes of
    /// `self.message`; if it is refused, the application is told.
    fn check_rate(&mut self, now: Time, id: SessionId, len: usize) -> RateCheck {
        let (message, node) = (&self.message[..len], self.node.node());
        let can_wait = |service: Option<_>| service.is_none_or(|s| node.is_flow_controlled(id, s));
        let admission = self.rates.admit(now, id, message, can_wait);
        if let RateCheck::Refused(to, port) = admission {
            self.refuse_over_rate(now, id, (to, port));
        }
        admission
    }

    /// Tells the application of session `id` that its packet to this address was refused.
    pub(super) fn refuse_over_rate(&mut self, now: Time, id: SessionId, to: (NodeId, u16)) {
        if let Some(carrier) = self.carriers.get_mut(id) {
            carrier.refuse(now, RefusalReason::OverRate, to);
            self.carriers.note_stuck(id);
        }
        let user = match self.rates.user(id) {
            Some(User::Client(_)) => "a [[client]]".to_owned(),
            Some(User::Local(uid)) => format!("applications of user {uid}"),
            None => "an application".to_owned(),
        };
        let what = format!(
            "packets are refused: {user} would exceed [access] rate; it was told, and they are \
             counted (over_rate)"
        );
        self.limited.rates.warn(now, &what);
    }

    pub(super) fn close(&mut self, id: SessionId) {
        if let Some(carrier) = self.carriers.remove(id) {
            let _ = self.epoll.delete(carrier.as_fd());
        }
        self.held.forget(id);
        self.rates.close(id);
        self.node.session_close(clock::now(), id);
    }

    pub(super) fn on_listener(&mut self) {
        for _ in 0..ADMITTED_PER_TURN {
            let Some(listener) = &mut self.listener else { return };
            match listener.accept() {
                Ok(Some(socket)) => {
                    self.admit(Carrier::Unix(Unix::new(socket)), Client::Local);
                }
                Ok(None) => return,
                Err(error) => {
                    if listener.is_stuck() {
                        self.pause_accept();
                    }
                    let what = format!("an application could not attach: {error}");
                    self.limited.applications.warn(clock::now(), &what);
                    return;
                }
            }
        }
    }

    pub(super) fn on_acceptor(&mut self) {
        while let Some(end) = self.acceptor.as_mut().and_then(Acceptor::accept) {
            self.admit(Carrier::InProcess(end), Client::Local);
        }
    }

    pub(super) fn turn_away(&mut self, mut carrier: Carrier, why: RefusalReason) {
        carrier.turn_away(self.carriers.now, why);
        // Closing now, with messages unread, could overtake the answer, so the connection stays
        // open until others have been rejected.
        if self.rejected.len() == REJECTED {
            self.rejected.pop_front();
        }
        self.rejected.push_back(carrier);
    }

    pub(super) fn admit(&mut self, carrier: Carrier, client: Client) -> Option<SessionId> {
        let mut place = self.node.session_open_for(client);
        if place.is_none() && !self.node.node().is_draining() && self.make_room() {
            place = self.node.session_open_for(client);
        }
        let Some(id) = place else {
            self.turn_away(carrier, RefusalReason::Full);
            let what = match self.node.node().is_draining() {
                true => "an application was rejected: this node is draining",
                false => {
                    "an application was rejected: as many are attached as [node] max_sessions \
                     allows"
                }
            };
            self.limited.applications.warn(clock::now(), what);
            return None;
        };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token::SESSION | u64::from(id.0));
        match self.epoll.add(carrier.as_fd(), event) {
            Ok(()) => {
                self.rates.open(clock::now(), id, carrier.user());
                self.carriers.insert(id, carrier);
                Some(id)
            }
            Err(error) => {
                let what = format!("an application could not attach: {error}");
                self.limited.applications.warn(clock::now(), &what);
                self.node.session_close(clock::now(), id);
                None
            }
        }
    }
}
