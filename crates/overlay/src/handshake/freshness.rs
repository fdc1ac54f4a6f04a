//! Which initiations count: those that are newer than any before, and those
//! that answer a challenge.
//!
//! An initiation's start and time make its stamp. One that is above every stamp
//! believed of its sender so far is no copy of those. The stamp follows the
//! sender's clock, which may have gone back, and where a node was given another
//! key, the key before may have said any number. So what is not above is
//! answered with a [challenge](super::message::Challenge): Noise's second
//! message around a nonce, which only who holds the key *and* made this very
//! initiation can read. The initiation that brings the nonce back was made after
//! it: it counts, whatever its stamp.
//!
//! A nonce counts once, within [`CHALLENGE_FOR`], and only until another
//! initiation has counted. A party that recorded or delayed an initiation with
//! it has nothing, once the sender's next one, with the same nonce, has arrived.
//! Copies of old initiations are challenged with the same nonce as long as it
//! stands, so that they cannot take it from the node being asked; they cannot read it.
//!
//! What is remembered never falls by that. Were it the stamp of the last
//! initiation that counted, then, after the clock has gone back, every one that
//! was recorded before would be above it, and a copy would take the place of a
//! session that waits to be used and put off this end's own handshakes. So a
//! node whose clock went back is challenged at each handshake until the clock is
//! where it was: one round trip every two minutes, beside a session that lives.
//! The same goes for another key of the same node, until the key before is
//! revoked; then nothing that was made with it counts any more, and its stamps
//! are forgotten.
//!
//! The memory is one nonce and two stamps for each link, and for as many
//! senders without a link as are remembered anyway. A challenge costs what a
//! response does, is smaller than the initiation, and is within the limits of
//! both initiations and answers.

use super::machine::{Event, Handshakes};
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

/// Bytes of a nonce.
pub const NONCE: usize = 16;
/// For how long an answer to a challenge is waited for: round trips of any path,
/// and an initiation that is repeated.
pub(super) const CHALLENGE_FOR: Duration = Duration::from_secs(5);

/// What is to be done with an initiation.
#[derive(Debug)]
pub(super) enum Freshness {
    /// It counts.
    Counts {
        /// Although its stamp is not above all before.
        behind: bool,
    },
    /// Its sender is to show this.
    Challenge([u8; NONCE]),
}

/// When an initiation was made, on its sender's clock.
type Stamp = (Incarnation, u64);

/// What is remembered of who has initiated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    /// The highest stamp that counted, and whose.
    highest: (DhKey, Stamp),
    /// The highest of the key that counted last.
    last: (DhKey, Stamp),
    challenge: Option<([u8; NONCE], Time)>,
}

fn stamp(payload: &Payload) -> Stamp {
    (payload.incarnation, payload.sent)
}

impl Latest {
    /// After a first initiation.
    pub fn new(key: DhKey, payload: &Payload) -> Latest {
        let first = (key, stamp(payload));
        Latest { highest: first, last: first, challenge: None }
    }

    /// Whether an initiation counts; then it is remembered.
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

    /// What is left once nothing counts that was made with a key of which
    /// `revoked` is true.
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
    /// Asks who sent an initiation for `nonce`.
    pub(super) fn challenge(
        &mut self,
        now: Time,
        opened: Opened,
        nonce: &[u8; NONCE],
    ) -> Result<(), RefusedHandshake> {
        let Opened { mut handshake, key, payload, from, .. } = opened;
        if self.answers.admit(now, 1) {
            let noise = handshake
                .write(&Challenge::payload(nonce))
                .map_err(|_| RefusedHandshake::Forged)?;
            let challenge = Challenge { receiver: payload.index, noise: &noise };
            let bytes = challenge.emit(&MacKey::for_dh(&key));
            self.stats.challenges += 1;
            self.push(Event::Send { to: from, bytes });
        }
        Err(RefusedHandshake::Replayed)
    }

    /// The neighbour takes what this end has begun for a copy.
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
        // Only who it is for can have said that, and this handshake is over.
        let again = attempt.challenged;
        neighbour.attempt = None;
        self.by_index.remove(&challenge.receiver);
        neighbour.nonce =
            Some(Challenge::nonce(&payload).map_err(|_| RefusedHandshake::Malformed)?);
        // One that had a nonce and was challenged all the same waits its turn.
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
