//! Envelopes sealed with AES-256-GCM under the keys of a handshake.
//!
//! A link has up to three sessions. It seals with the *current* one; opens with
//! the *previous* one too, for envelopes still under way when it was replaced;
//! and, where it answered the handshake, waits with the *next* one until it has
//! heard the initiator use it: only then is it sure that the other end has the
//! keys (as WireGuard does; Donenfeld, *WireGuard: Next Generation Kernel
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

/// How many envelopes late one may come: as many as fit 0.1 s at 20,000/s. The
/// bitmap is that of RFC 6479, a ring of words.
const WINDOW_WORDS: usize = 32;
/// After so many envelopes a session wants to be replaced…
const REKEY_AFTER: u64 = 1 << 30;
/// …and after so many it is of no use: far below what AES-GCM bears (2³² by
/// NIST SP 800-38D, 8.3), and half a turn of the counter on the wire.
const REJECT_AFTER: u64 = 1 << 31;
/// How old a session may get.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(180);
/// How long a replaced session still opens what is under way, from the last that came.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// Which end of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Began it: has the other's answer, so may use the keys at once.
    Initiator,
    /// Answered it: knows that the other has the keys when it uses them.
    Responder,
}

/// What a handshake yields for one link.
///
/// Not `Clone`: a key whose counter began anew would use a nonce twice.
pub struct SessionKeys {
    /// What the peer's envelopes carry.
    pub local: ReceiverIndex,
    /// What ours carry.
    pub remote: ReceiverIndex,
    /// Seals ours.
    pub send: Zeroizing<[u8; 32]>,
    /// Opens the peer's.
    pub recv: Zeroizing<[u8; 32]>,
    /// Which end this is.
    pub role: Role,
    /// Which start of the peer this is with.
    pub peer: Incarnation,
}

impl fmt::Debug for SessionKeys {
    /// Never the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionKeys { local, remote, role, peer, .. } = self;
        write!(f, "SessionKeys({local:?}, {remote:?}, {role:?}, {peer:?})")
    }
}

#[derive(Debug)]
struct Session {
    /// Counts the link's sessions.
    serial: u64,
    local: ReceiverIndex,
    remote: ReceiverIndex,
    send: LessSafeKey,
    recv: LessSafeKey,
    peer: Incarnation,
    seen: Option<SeqWindow<[u64; WINDOW_WORDS]>>,
    /// The first counter that was sealed with it.
    first_sent: Option<u64>,
    /// When it is of no use any more.
    ends: Time,
    /// The same if it is never replaced.
    expires: Time,
    /// Whether it has been replaced, and `ends` was drawn near for it.
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
    /// The start of the peer that was last heard, and the session that told
    /// of it.
    peer: Option<(Incarnation, u64)>,
    /// Counts our envelopes to one start of the peer, over all its sessions.
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
    /// A link without a session yet.
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

    /// Takes what a handshake yielded at `now`. The initiator uses it at once,
    /// the responder once it has heard the initiator do so.
    pub fn install(&mut self, keys: SessionKeys, now: Time) {
        let key = |bytes: &[u8; 32]| {
            // 32 bytes are a key of AES-256, so this is never `None`.
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

    /// Which start of the peer was heard last, if any was.
    pub(super) fn peer(&self) -> Option<Incarnation> {
        self.peer.map(|(peer, _)| peer)
    }

    /// Ends every session: for a peer that is not trusted any more.
    pub fn clear(&mut self) {
        (self.previous, self.current, self.next) = (None, None, None);
    }

    /// Ends sessions whose time is over; call with the link's other timers, and
    /// after envelopes were opened.
    pub fn handle_timeout(&mut self, now: Time) {
        // If two handshakes have crossed, the peer may go on with what was replaced.
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

    /// When [`Sealed::handle_timeout`] has something to do.
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

    /// Whether a session that this end answered for has been confirmed since
    /// the last call: pass that on to
    /// [`Handshakes::confirmed`](crate::handshake::Handshakes::confirmed).
    pub fn take_confirmed(&mut self) -> bool {
        core::mem::take(&mut self.confirmed)
    }

    /// Whether [`Sealed::take_confirmed`] will say so.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// The receiver indices by which this link knows envelopes as its own.
    pub fn indices(&self) -> impl Iterator<Item = ReceiverIndex> {
        [&self.previous, &self.current, &self.next].into_iter().flatten().map(|s| s.local)
    }

    /// The number of the next envelope.
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
        // To a peer that has just started we begin to count anew: it can't know
        // how far we were.
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
            // Nothing unsealed is left to be sent by mistake.
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
            // What a session from before the restart still brings.
            Some((_, heard)) if serial < heard => Opened::Stale,
            known => Opened::Fresh { first: known.is_none() },
        };
        // A peer that started anew has counted from zero since.
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
            // Of two handshakes that crossed, both ends shall use the later one.
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
        // Before the tag is computed: a replayed envelope shall cost little.
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

/// Four zeros and the count: no count is used twice with one key.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    // In the pieces in which it is read: others would have to be put together first.
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
        // And ten more after each that comes.
        b.handle_timeout(NOW + STRAGGLERS);
        assert_eq!(b.indices().count(), 2);
        b.handle_timeout(NOW + 2 * STRAGGLERS);
        assert_eq!(b.open(&mut late[1].clone()), Err(OpenError::NoSession));
        assert_eq!(b.next_timeout(), NOW + MAX_AGE);
        b.clear();
        assert_eq!((b.ready(), b.next_timeout()), (false, Time::NEVER));
    }

    /// Both ends begin, and both are answered, in any order: whatever each then uses,
    /// the other opens, long after.
    #[test]
    fn handshakes_that_cross_end_in_a_link_that_lasts() {
        let (alpha, beta) = (Role::Initiator, Role::Responder);
        // Which of the two sessions each end has first.
        for (a_first, b_first) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let (mut a, mut b) = (Sealed::new(), Sealed::new());
            for (end, first, of_1, of_2) in
                [(&mut a, a_first, alpha, beta), (&mut b, b_first, beta, alpha)]
            {
                for n in [first, 3 - first] {
                    end.install(keys(if n == 1 { of_1 } else { of_2 }, n), NOW);
                }
            }
            // Under way at once, as both may send.
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
