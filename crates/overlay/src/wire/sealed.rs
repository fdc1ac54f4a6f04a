//! Envelopes sealed with AES-256-GCM under the keys of a handshake.
//!
//! A link has up to three sessions. It seals with the *current* one. It also opens with the
//! *previous* one, for envelopes still in transit when that was replaced. Where it answered the
//! handshake, it keeps the *next* one until the initiator has used it: only then is it certain that
//! the other end has the keys (as in WireGuard; Donenfeld, *WireGuard: Next Generation Kernel
//! Network Tunnel*, 2017, 5.4).

use super::WireError;
use super::envelope::{EnvelopeHeader, HEADER, Kind, ReceiverIndex, TAG, open_header};
use super::seal::{OpenError, Opened, unwrapped};
use crate::wire::Incarnation;
use core::fmt;
use core::time::Duration;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use trunkline_base::{SeqWindow, Time};
use zeroize::Zeroizing;

/// How late an envelope may arrive, counted in envelopes: the number sent in 0.1 s at 20,000/s. The
/// bitmap is that of RFC 6479, a ring of words.
const WINDOW_WORDS: usize = 32;
/// Number of envelopes after which a session should be replaced…
const REKEY_AFTER: u64 = 1 << 30;
/// …and number after which it must not be used: far below the limit of AES-GCM (2³² by NIST SP
/// 800-38D, 8.3), and half a cycle of the counter on the wire.
const REJECT_AFTER: u64 = 1 << 31;
/// Maximum age of a session.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(180);
/// Time for which a replaced session still opens envelopes in transit, since the last that arrived.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// The two ends of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Began the handshake: has the other end's answer, so it may use the keys at once.
    Initiator,
    /// Answered the handshake: is certain that the other end has the keys only when that uses them.
    Responder,
}

/// Result of a handshake for one link.
///
/// Not `Clone`: a key with a counter that began again would use a nonce twice.
pub struct SessionKeys {
    /// Index in the envelopes of the peer.
    pub local: ReceiverIndex,
    /// Index in this end's envelopes.
    pub remote: ReceiverIndex,
    /// Key that seals this end's envelopes.
    pub send: Zeroizing<[u8; 32]>,
    /// Key that opens the peer's envelopes.
    pub recv: Zeroizing<[u8; 32]>,
    /// This end's role in the handshake.
    pub role: Role,
    /// Start of the peer that made the handshake.
    pub peer: Incarnation,
}

impl fmt::Debug for SessionKeys {
    /// Leaves out the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionKeys { local, remote, role, peer, .. } = self;
        write!(f, "SessionKeys({local:?}, {remote:?}, {role:?}, {peer:?})")
    }
}

#[derive(Debug)]
struct Session {
    /// Number of this session among the link's sessions.
    serial: u64,
    local: ReceiverIndex,
    remote: ReceiverIndex,
    send: LessSafeKey,
    recv: LessSafeKey,
    peer: Incarnation,
    seen: Option<SeqWindow<[u64; WINDOW_WORDS]>>,
    /// Counter of the first envelope sealed with it.
    first_sent: Option<u64>,
    /// When the session ends.
    ends: Time,
    /// When it ends if it is never replaced.
    expires: Time,
    /// Whether it has been replaced, and `ends` was brought forward for that.
    replaced: bool,
    /// Whether an envelope was opened with it since `ends` was set.
    used: bool,
}

/// The sessions of one link.
#[derive(Debug)]
pub struct Sealed {
    previous: Option<Session>,
    current: Option<Session>,
    next: Option<Session>,
    installed: u64,
    /// The last start of the peer that was received, and the session that showed it.
    peer: Option<(Incarnation, u64)>,
    /// Counts this end's envelopes to one start of the peer, over all its sessions.
    sent: u64,
    /// The start of the peer that `sent` counts for.
    sent_to: Option<Incarnation>,
    /// The highest counter of the peer's present start.
    heard: u64,
    confirmed: bool,
}

impl Default for Sealed {
    fn default() -> Sealed {
        Sealed::new()
    }
}

impl Sealed {
    /// Creates the state of a link without a session.
    pub fn new() -> Sealed {
        Sealed {
            previous: None,
            current: None,
            next: None,
            installed: 0,
            peer: None,
            sent: 0,
            sent_to: None,
            heard: 0,
            confirmed: false,
        }
    }

    /// Installs the result of a handshake at `now`. The initiator uses it at once, the responder
    /// once the initiator has used it.
    pub fn install(&mut self, keys: SessionKeys, now: Time) {
        let key = |bytes: &[u8; 32]| {
            // 32 bytes are always a valid AES-256 key, so this is never `None`.
            UnboundKey::new(&AES_256_GCM, bytes).ok().map(LessSafeKey::new)
        };
        let (Some(send), Some(recv)) = (key(&keys.send), key(&keys.recv)) else { return };
        self.installed += 1;
        let session = Session {
            serial: self.installed,
            local: keys.local,
            remote: keys.remote,
            send,
            recv,
            peer: keys.peer,
            seen: None,
            first_sent: None,
            ends: now + MAX_AGE,
            expires: now + MAX_AGE,
            replaced: false,
            used: false,
        };
        match keys.role {
            Role::Initiator => self.switch_to(session),
            Role::Responder => self.next = Some(session),
        }
    }

    /// The start of the peer that was received last, if any.
    pub(super) fn peer(&self) -> Option<Incarnation> {
        self.peer.map(|(peer, _)| peer)
    }

    /// Ends every session: for a peer that is no longer trusted.
    pub fn clear(&mut self) {
        (self.previous, self.current, self.next) = (None, None, None);
    }

    /// Ends expired sessions; call with the link's other timers, and after envelopes were opened.
    pub fn handle_timeout(&mut self, now: Time) {
        // If two handshakes crossed, the peer may still use the session that was replaced here.
        let due = |s: &&mut Session| !s.replaced || (s.used && s.ends <= now);
        if let Some(previous) = self.previous.as_mut().filter(due) {
            (previous.replaced, previous.used) = (true, false);
            previous.ends = previous.expires.min(now + STRAGGLERS);
        }
        for slot in [&mut self.previous, &mut self.current, &mut self.next] {
            if slot.as_ref().is_some_and(|s| s.ends <= now) {
                *slot = None;
            }
        }
    }

    /// When [`Sealed::handle_timeout`] must be called next.
    pub fn next_timeout(&self) -> Time {
        let sessions = [&self.previous, &self.current, &self.next];
        sessions.iter().filter_map(|s| s.as_ref()).map(|s| s.ends).min().unwrap_or(Time::NEVER)
    }

    /// Whether there is a session to seal with.
    pub fn ready(&self) -> bool {
        self.current.as_ref().is_some_and(|s| self.sent_with(s) < REJECT_AFTER)
    }

    /// Whether so much was sealed that a new handshake is due.
    pub fn wants_rekey(&self) -> bool {
        self.current.as_ref().is_some_and(|s| self.sent_with(s) >= REKEY_AFTER)
    }

    /// Whether a session that this end answered for has been confirmed since the last call; pass
    /// that on to [`Handshakes::confirmed`](crate::handshake::Handshakes::confirmed).
    pub fn take_confirmed(&mut self) -> bool {
        core::mem::take(&mut self.confirmed)
    }

    /// Whether [`Sealed::take_confirmed`] will return true.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Receiver indices of the envelopes that belong to this link.
    pub fn indices(&self) -> impl Iterator<Item = ReceiverIndex> {
        [&self.previous, &self.current, &self.next].into_iter().flatten().map(|s| s.local)
    }

    /// Number of the next envelope.
    pub(super) fn count(&self) -> u64 {
        self.sent
    }

    /// Counts on from `counter`, in both directions.
    #[cfg(test)]
    pub(crate) fn continue_at(&mut self, counter: u64) {
        (self.sent, self.heard) = (counter, counter);
        self.peer = self.current.as_ref().map(|session| (session.peer, session.serial));
    }

    fn sent_with(&self, session: &Session) -> u64 {
        session.first_sent.map_or(0, |first| self.sent.saturating_sub(first))
    }

    fn switch_to(&mut self, session: Session) {
        // A peer that has just started cannot know the count so far, so it begins again.
        if self.sent_to != Some(session.peer) {
            (self.sent, self.sent_to) = (0, Some(session.peer));
        }
        if let Some(old) = self.current.replace(session) {
            self.previous = Some(old);
        }
    }

    pub(super) fn seal(&mut self, envelope: &mut [u8]) -> bool {
        let sealed = self.ready() && self.encrypt(envelope).is_some();
        if !sealed {
            // No unsealed frames must be left to be sent accidentally.
            envelope.fill(0);
        }
        sealed
    }

    fn encrypt(&mut self, envelope: &mut [u8]) -> Option<()> {
        let session = self.current.as_mut()?;
        let counter = self.sent;
        self.sent = counter.checked_add(1)?;
        session.first_sent.get_or_insert(counter);
        let (front, rest) = envelope.split_first_chunk_mut::<HEADER>()?;
        let (frames, tag) = rest.split_last_chunk_mut::<TAG>()?;
        let (receiver, low) = (session.remote, counter as u32);
        EnvelopeHeader { kind: Kind::Aead, receiver, counter: low }.emit(front);
        let aad = Aad::from(&front[..]);
        let made = session.send.seal_in_place_separate_tag(nonce(counter), aad, frames).ok()?;
        tag.copy_from_slice(made.as_ref());
        Some(())
    }

    pub(super) fn open(&mut self, envelope: &mut [u8]) -> Result<(Opened, u64), OpenError> {
        let header = open_header(envelope)?;
        if header.kind != Kind::Aead {
            return Err(WireError::UnknownType(header.kind as u8).into());
        }
        let is_it = |s: &&mut Session| s.local == header.receiver;
        let slots = [&mut self.current, &mut self.next, &mut self.previous];
        let session = slots.into_iter().filter_map(Option::as_mut).find(is_it);
        let session = session.ok_or(OpenError::NoSession)?;
        let (serial, peer) = (session.serial, session.peer);
        let opened = match self.peer {
            Some((known, _)) if known == peer => Opened::Same,
            // Envelopes still arriving in a session from before the restart.
            Some((_, heard)) if serial < heard => Opened::Stale,
            known => Opened::Fresh { first: known.is_none() },
        };
        // A restarted peer counts from zero.
        let near = if opened == Opened::Same { self.heard } else { 0 };
        let counter = unwrapped(near, header.counter);
        session.decrypt(counter, envelope)?;
        if opened == Opened::Stale {
            return Ok((opened, counter));
        }
        if opened != Opened::Same {
            self.peer = Some((peer, serial));
        }
        self.heard = near.max(counter);
        if let Some(next) = self.next.take_if(|next| next.serial == serial) {
            self.confirmed = true;
            // If two handshakes crossed, both ends must use the later one.
            if self.current.as_ref().is_some_and(|current| current.serial > serial) {
                self.previous = Some(next);
            } else {
                self.switch_to(next);
            }
        }
        Ok((opened, counter))
    }
}

impl Session {
    fn decrypt(&mut self, counter: u64, envelope: &mut [u8]) -> Result<(), OpenError> {
        // Checked before the tag is computed, so that a replayed envelope costs little.
        if let Some(seen) = &self.seen
            && (counter.saturating_add(seen.size()) <= seen.highest() || seen.contains(counter))
        {
            return Err(OpenError::Replayed);
        }
        let short = OpenError::Malformed(WireError::Truncated);
        let (front, rest) = envelope.split_first_chunk_mut::<HEADER>().ok_or(short)?;
        let (frames, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(short)?;
        let opened = self.recv.open_in_place_separate_tag(
            nonce(counter),
            Aad::from(&front[..]),
            (*tag).into(),
            frames,
            0..,
        );
        opened.map_err(|_| OpenError::Forged)?;
        self.used = true;
        match &mut self.seen {
            Some(seen) => {
                seen.insert(counter);
            }
            none => *none = Some(SeqWindow::starting_at(counter, [0; WINDOW_WORDS])),
        }
        Ok(())
    }
}

/// Four zero bytes and the count: no count is used twice with one key.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    // Written in the same pieces in which it is read: any others would have to be combined first.
    bytes[..8].copy_from_slice(&(counter >> 32).to_be_bytes());
    bytes[8..].copy_from_slice(&(counter as u32).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::Seal;
    use super::super::envelope::ENVELOPE_OVERHEAD;
    use super::*;

    const NOW: Time = Time::from_millis(1_000);

    fn keys(role: Role, n: u8) -> SessionKeys {
        let (a, b) = (Zeroizing::new([n; 32]), Zeroizing::new([n ^ 0xff; 32]));
        let (send, recv) = if role == Role::Initiator { (a, b) } else { (b, a) };
        let (local, remote) = (ReceiverIndex::new(n.into()), ReceiverIndex::new(n.into()));
        SessionKeys { local, remote, send, recv, role, peer: Incarnation(1) }
    }

    fn pair() -> (Sealed, Sealed) {
        let (mut a, mut b) = (Sealed::new(), Sealed::new());
        a.install(keys(Role::Initiator, 1), NOW);
        b.install(keys(Role::Responder, 1), NOW);
        (a, b)
    }

    fn say(from: &mut Sealed) -> Option<[u8; ENVELOPE_OVERHEAD + 4]> {
        let mut envelope = [0; ENVELOPE_OVERHEAD + 4];
        Seal::frames_mut(&mut envelope).copy_from_slice(b"word");
        from.seal(&mut envelope).then_some(envelope)
    }

    #[test]
    fn counters_pass_the_turn_of_what_is_on_the_wire() {
        let (mut a, mut b) = pair();
        let start = (1 << 32) - 3;
        // As after many sessions with the same start of the peer.
        (a.sent, b.heard) = (start, start);
        b.peer = Some((Incarnation(1), 0));
        let said: Vec<_> = (0..6).map(|_| say(&mut a).unwrap()).collect();
        let order = [0, 4, 1, 5, 3, 2];
        for i in order {
            let opened = b.open(&mut said[i].clone());
            assert_eq!(opened, Ok((Opened::Same, start + i as u64)));
            assert_eq!(b.open(&mut said[i].clone()), Err(OpenError::Replayed));
        }
    }

    #[test]
    fn a_session_bears_so_many_envelopes() {
        let (mut a, _) = pair();
        say(&mut a).unwrap();
        a.sent = REKEY_AFTER - 1;
        assert!(!a.wants_rekey());
        say(&mut a).unwrap();
        assert!(a.wants_rekey());
        a.sent = REJECT_AFTER - 1;
        say(&mut a).unwrap();
        assert!(!a.ready());
        let mut envelope = *b"header..some words, and room for a tag";
        assert!(!a.seal(&mut envelope));
        assert_eq!(envelope, [0; 38], "nothing in the clear");
        a.install(keys(Role::Initiator, 2), NOW);
        assert!(say(&mut a).is_some());
        assert_eq!(a.sent, REJECT_AFTER + 1, "the count goes on");
    }

    #[test]
    fn stragglers_have_ten_seconds() {
        let (mut a, mut b) = pair();
        b.open(&mut say(&mut a).unwrap()).unwrap();
        let late = [(); 2].map(|()| say(&mut a).unwrap());
        a.install(keys(Role::Initiator, 2), NOW);
        b.install(keys(Role::Responder, 2), NOW);
        assert!(b.take_confirmed(), "of the first session");
        assert!(!b.take_confirmed());
        b.open(&mut say(&mut a).unwrap()).unwrap();
        assert!(b.take_confirmed());
        b.handle_timeout(NOW);
        assert_eq!(b.indices().count(), 2);
        b.handle_timeout(NOW + STRAGGLERS - Duration::from_nanos(1));
        assert_eq!(b.open(&mut late[0].clone()), Ok((Opened::Same, 1)));
        // And ten seconds more after each envelope that arrives.
        b.handle_timeout(NOW + STRAGGLERS);
        assert_eq!(b.indices().count(), 2);
        b.handle_timeout(NOW + 2 * STRAGGLERS);
        assert_eq!(b.open(&mut late[1].clone()), Err(OpenError::NoSession));
        assert_eq!(b.next_timeout(), NOW + MAX_AGE);
        b.clear();
        assert_eq!((b.ready(), b.next_timeout()), (false, Time::NEVER));
    }

    /// Both ends begin, and both are answered, in any order: each opens whatever the other then
    /// uses, for a long time.
    #[test]
    fn handshakes_that_cross_end_in_a_link_that_lasts() {
        let (alpha, beta) = (Role::Initiator, Role::Responder);
        // The session that each end gets first.
        for (a_first, b_first) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let (mut a, mut b) = (Sealed::new(), Sealed::new());
            for (end, first, of_1, of_2) in
                [(&mut a, a_first, alpha, beta), (&mut b, b_first, beta, alpha)]
            {
                for n in [first, 3 - first] {
                    end.install(keys(if n == 1 { of_1 } else { of_2 }, n), NOW);
                }
            }
            // In transit at the same time, as both ends may send.
            for second in 0..60 {
                let now = NOW + Duration::from_secs(second);
                let (to_b, to_a) = (say(&mut a), say(&mut b));
                let heard = to_b.is_none_or(|mut e| b.open(&mut e).is_ok());
                assert!(heard, "{a_first} {b_first}: {second} s");
                let heard = to_a.is_none_or(|mut e| a.open(&mut e).is_ok());
                assert!(heard, "{a_first} {b_first}: {second} s");
                a.handle_timeout(now);
                b.handle_timeout(now);
            }
            assert!(a.ready() && b.ready());
        }
    }

    #[test]
    fn a_jump_far_ahead_costs_no_more() {
        let (mut a, mut b) = pair();
        let first = say(&mut a).unwrap();
        a.sent = REJECT_AFTER - 2;
        assert!(b.open(&mut say(&mut a).unwrap()).is_ok());
        assert_eq!(b.open(&mut first.clone()), Err(OpenError::Replayed), "too old to tell");
    }
}
