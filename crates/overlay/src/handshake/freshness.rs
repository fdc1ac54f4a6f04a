//! Freshness of initiations: one counts if it is newer than any before, or if it answers a
//! challenge.
//!
//! The start and time of an initiation form its stamp. An initiation with a stamp above every stamp
//! accepted from its sender so far cannot be a copy of those. The stamp follows the sender's clock,
//! which may have gone back, and a node that was given another key may have used any stamp with the
//! previous key. An initiation with a stamp that is not above the highest is therefore answered
//! with a [challenge](super::message::Challenge): Noise's second message around a nonce, readable
//! only by a sender that holds the key *and* made this very initiation. The initiation that returns
//! the nonce was made after it, so it counts, whatever its stamp.
//!
//! A nonce counts once, within [`CHALLENGE_FOR`], and only until another initiation has counted. An
//! attacker that recorded or delayed an initiation with a nonce gains nothing once the sender's
//! next one, with the same nonce, has arrived. Copies of old initiations are challenged with the
//! same nonce while it stands, so they cannot displace it for the node being challenged; and they
//! cannot read it.
//!
//! The remembered stamp never decreases. If it were the stamp of the last initiation that counted,
//! then, after the clock has gone back, every initiation recorded earlier would be above it; a copy
//! could displace a session that waits for its first use and delay this end's handshakes. A node
//! with a clock that went back is therefore challenged at each handshake until the clock has caught
//! up, at the cost of one round trip every two minutes, during which the session stays up. The same
//! holds for another key of the same node until the previous key is revoked; then nothing made with
//! it counts any more, and its stamps are forgotten.
//!
//! The memory is one nonce and two stamps for each link, and for as many senders without a link as
//! are remembered anyway. A challenge costs as much as a response, is smaller than the initiation,
//! and counts against the limits of both initiations and answers.

use super::machine::{Destination, Event, Handshakes};
use super::message::{Challenge, Payload};
use super::receive::Opened;
use super::stats::RefusedHandshake;
use crate::identity::{DhKey, MacKey};
use crate::wire::Incarnation;
use core::net::SocketAddr;
use core::time::Duration;
use rand::RngExt;
use rand::rngs::ChaCha20Rng;
use subtle::ConstantTimeEq;
use trunkline_base::Time;

/// Length of a nonce, in bytes.
pub const NONCE: usize = 16;
/// Time for which the answer to a challenge is accepted: round trips of any path, plus a
/// retransmitted initiation.
pub(super) const CHALLENGE_FOR: Duration = Duration::from_secs(5);

/// Decision about an initiation.
#[derive(Debug)]
pub(super) enum Freshness {
    /// The initiation counts as fresh.
    Counts {
        /// Whether its stamp is not above all earlier ones.
        behind: bool,
    },
    /// Its sender must return this nonce.
    Challenge([u8; NONCE]),
}

/// When an initiation was made, on its sender's clock.
type Stamp = (Incarnation, u64);

/// Stamps and challenge remembered for one initiator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    /// The highest stamp that counted, and the key that it was made with.
    highest: (DhKey, Stamp),
    /// The highest stamp of the key that counted last.
    last: (DhKey, Stamp),
    challenge: Option<([u8; NONCE], Time)>,
}

fn stamp(payload: &Payload) -> Stamp {
    (payload.incarnation, payload.sent)
}

impl Latest {
    /// State after a first initiation.
    pub fn new(key: DhKey, payload: &Payload) -> Latest {
        let first = (key, stamp(payload));
        Latest { highest: first, last: first, challenge: None }
    }

    /// Decides whether an initiation counts, and remembers it if it does.
    pub fn judge(
        &mut self,
        now: Time,
        key: DhKey,
        payload: &Payload,
        entropy: &mut ChaCha20Rng,
    ) -> Freshness {
        let this = (key, stamp(payload));
        let behind = this.1 <= self.highest.1;
        let stands = self.challenge.filter(|(_, until)| now < *until).map(|(nonce, _)| nonce);
        let shown = stands.zip(payload.nonce);
        if behind && !shown.is_some_and(|(nonce, shown)| nonce.ct_eq(&shown).into()) {
            let nonce = stands.unwrap_or_else(|| {
                let nonce = entropy.random();
                self.challenge = Some((nonce, now + CHALLENGE_FOR));
                nonce
            });
            return Freshness::Challenge(nonce);
        }
        self.last = if self.last.0 == key { (key, self.last.1.max(this.1)) } else { this };
        if !behind {
            self.highest = this;
        }
        self.challenge = None;
        Freshness::Counts { behind }
    }

    /// The state that remains once nothing counts that was made with a key for which `revoked` is
    /// true.
    pub fn without(mut self, revoked: impl Fn(&DhKey) -> bool) -> Option<Latest> {
        if revoked(&self.last.0) {
            self.last = self.highest;
        }
        if revoked(&self.highest.0) {
            self.highest = self.last;
        }
        (!revoked(&self.highest.0)).then_some(self)
    }
}

impl Handshakes {
    /// Challenges the sender of an initiation to return `nonce`.
    pub(super) fn challenge(
        &mut self,
        now: Time,
        opened: Opened,
        nonce: &[u8; NONCE],
    ) -> Result<(), RefusedHandshake> {
        let Opened { mut handshake, key, payload, ends, .. } = opened;
        if self.answers.admit(now, 1) {
            let noise = handshake
                .write(&Challenge::payload(nonce))
                .map_err(|_| RefusedHandshake::Forged)?;
            let challenge = Challenge { receiver: payload.index, noise: &noise };
            let bytes = challenge.emit(&MacKey::for_dh(&key));
            self.stats.challenges += 1;
            self.push(Event::Send { to: Destination::Answer(ends), bytes });
        }
        Err(RefusedHandshake::Replayed)
    }

    /// Handles a challenge: the neighbour suspects that this end's initiation is a copy.
    pub(super) fn on_challenge(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), RefusedHandshake> {
        let challenge = Challenge::parse(bytes).map_err(|_| RefusedHandshake::Malformed)?;
        if !self.own_mac.check(bytes) {
            return Err(RefusedHandshake::BadMac);
        }
        let link = *self.by_index.get(&challenge.receiver).ok_or(RefusedHandshake::Unexpected)?;
        let neighbour = self.neighbours.get_mut(&link).ok_or(RefusedHandshake::Unexpected)?;
        let attempt = neighbour.attempt.as_mut().filter(|a| a.index == challenge.receiver);
        let attempt = attempt.ok_or(RefusedHandshake::Unexpected)?;
        self.stats.computed += 1;
        let payload =
            attempt.handshake.read(challenge.noise).map_err(|_| RefusedHandshake::Forged)?;
        // Only the addressee can have sent this, so the handshake has ended.
        let again = attempt.challenged;
        neighbour.attempt = None;
        self.by_index.remove(&challenge.receiver);
        neighbour.nonce =
            Some(Challenge::nonce(&payload).map_err(|_| RefusedHandshake::Malformed)?);
        // An initiation that had a nonce and was challenged all the same waits for its next turn.
        if !again && neighbour.next.is_none() {
            neighbour.try_at = now;
        }
        if !core::mem::replace(&mut neighbour.told_own, true) {
            let node = neighbour.peer.node;
            self.push(Event::ClockBehind { node, from, own: true });
        }
        Ok(())
    }
}
