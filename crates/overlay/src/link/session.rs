//! The sealed sessions of a link, as control hands them over.

use super::Link;
use crate::wire::{Role, Seal, Sealed, SessionKeys};
use core::net::SocketAddr;
use trunkline_base::Time;

/// What a handshake has agreed on for a link.
#[derive(Debug)]
pub struct Session {
    /// The keys.
    pub keys: SessionKeys,
    /// Where the handshake's message of this end went.
    pub address: SocketAddr,
    /// The largest IP packet that it takes.
    pub mtu: u16,
    /// The protocol version to speak.
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
            // Who answered waits to hear the keys used.
            self.monitor.expedite(now);
        }
    }

    /// Ends all sessions: the neighbour is no longer trusted.
    pub(crate) fn close_sessions(&mut self) {
        if let Some(sealed) = self.sealed() {
            sealed.clear();
        }
    }

    /// Whether the neighbour has used the session that it began, which control
    /// waits for.
    pub(crate) fn take_confirmed(&mut self) -> bool {
        self.sealed().is_some_and(Sealed::take_confirmed)
    }

    pub(super) fn check_sessions(&mut self, now: Time) {
        if let Some(sealed) = self.sealed() {
            sealed.handle_timeout(now);
        }
    }

    /// Whether so much was sealed that other keys are wanted.
    pub(crate) fn wants_rekey(&self) -> bool {
        matches!(&self.seal, Seal::Aead(sealed) if sealed.wants_rekey())
    }

    /// When a session ends.
    pub(crate) fn session_at(&self) -> Option<Time> {
        match &self.seal {
            Seal::Aead(sealed) => Some(sealed.next_timeout()),
            Seal::Null(_) => None,
        }
    }

    /// Whether packets can be sent, as far as keys go.
    pub fn is_ready(&self) -> bool {
        self.seal.ready()
    }

    /// Whether its envelopes are sealed.
    pub fn is_sealed(&self) -> bool {
        matches!(self.seal, Seal::Aead(_))
    }

    /// The protocol version that both ends speak; 0 before a handshake.
    pub fn version(&self) -> u8 {
        self.version
    }
}
