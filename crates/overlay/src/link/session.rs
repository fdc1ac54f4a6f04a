//! Sealed sessions of a link, as control passes them on.

use super::Link;
use super::service::LinkService;
use crate::wire::{Role, Seal, Sealed, SessionKeys};
use core::net::SocketAddr;
use trunkline_base::Time;

/// The result of a handshake for a link.
#[derive(Debug)]
pub struct Session {
    /// Keys of the session.
    pub keys: SessionKeys,
    /// Address to which this end sent its handshake message.
    pub address: SocketAddr,
    /// Size of the largest IP packet that the neighbour accepts.
    pub mtu: u16,
    /// Protocol version of the session.
    pub version: u8,
}

impl Link {
    fn sealed(&mut self) -> Option<&mut Sealed> {
        match &mut self.seal {
            Seal::Aead(sealed) => Some(sealed),
            Seal::Null(_) => None,
        }
    }

    /// Seals with `session` from now on, or once the neighbour has used it.
    pub(crate) fn install(&mut self, now: Time, session: Session) {
        let Session { keys, address, mtu, version } = session;
        match keys.role {
            Role::Initiator => self.proved(now, address),
            Role::Responder => self.answered_to(address),
        }
        self.config.mtu = self.own_mtu.min(usize::from(mtu));
        self.version = version;
        if let Some(sealed) = self.sealed() {
            sealed.install(keys, now);
            // The responder waits for the first envelope under the new keys.
            self.monitor.expedite(now);
        }
    }

    /// Ends all sessions, because the neighbour is no longer trusted; true if that took the link
    /// down.
    pub(crate) fn close_sessions(&mut self, now: Time) -> bool {
        if let Some(sealed) = self.sealed() {
            sealed.clear();
        }
        let was_up = self.monitor.is_up();
        if was_up {
            self.stop(now);
        }
        was_up
    }

    /// Takes a link down that is up. It has not failed, so it gets no penalty.
    pub(super) fn stop(&mut self, now: Time) {
        self.monitor.stop(now);
        self.set_local(None);
        self.forget_astray();
        self.services.iter_mut().for_each(LinkService::outage);
        self.tally.down();
    }

    /// Whether the neighbour has used the session that it initiated since the last call; control
    /// waits for that.
    pub(crate) fn take_confirmed(&mut self) -> bool {
        self.sealed().is_some_and(Sealed::take_confirmed)
    }

    pub(super) fn check_sessions(&mut self, now: Time) {
        if let Some(sealed) = self.sealed() {
            sealed.handle_timeout(now);
        }
    }

    /// Whether so much was sealed that new keys are needed.
    pub(crate) fn wants_rekey(&self) -> bool {
        matches!(&self.seal, Seal::Aead(sealed) if sealed.wants_rekey())
    }

    /// When the next session ends.
    pub(crate) fn session_at(&self) -> Option<Time> {
        match &self.seal {
            Seal::Aead(sealed) => Some(sealed.next_timeout()),
            Seal::Null(_) => None,
        }
    }

    /// Whether there is a session to seal packets with.
    pub fn is_ready(&self) -> bool {
        self.seal.ready()
    }

    /// Whether the link's envelopes are sealed.
    pub fn is_sealed(&self) -> bool {
        matches!(self.seal, Seal::Aead(_))
    }

    /// Protocol version in use on the link; 0 before a handshake.
    pub fn version(&self) -> u8 {
        self.version
    }
}
