//! Where a neighbour is. A datagram's source address is a claim: a member can
//! write anybody's, and somebody who reads along can send a copy of a genuine
//! envelope from anywhere, before it arrives itself. So nothing is believed of an
//! address until the neighbour has answered from there (RFC 9000, 8.2 and 9.3):
//!
//! - An envelope that is newer than all before, from another address than the
//!   neighbour's, makes that a *candidate*. Traffic goes on to where it went. The
//!   candidate is sent eight bytes from a cryptographic source, and copies of the
//!   traffic as far as three times what came from there pays for it: if the
//!   neighbour is there, its calls miss nothing while it is asked.
//! - The present address is asked, too. Whoever overtakes genuine envelopes by
//!   copies, and passes on challenges, could else draw traffic to himself that
//!   gets through without him (RFC 9000, 9.3.3). If it answers, or a newer
//!   envelope comes from there, the candidate is none.
//! - If it doesn't, asked several times, the neighbour has moved. Until that is
//!   known, all that is sent goes to both.
//!
//! There is one candidate; until it has answered, another takes its place after
//! [`SPACING`], or two round trips if that is sooner. The last [`REMEMBERED`] that
//! came to nothing are candidates again later and later, each for itself: so who
//! sends copies from one address gets little by it, who sends from ten thousand no
//! more than three bytes for each of his, and a neighbour that moves right after is
//! followed as soon as ever.
//!
//! On a sealed link an address is asked by a [`PathFrame`]. On one that is not, a
//! hello is sent there and nowhere else, and its time must come back: that can be
//! guessed, but on such a link anybody can say anything. Nothing asks its old
//! address.
//!
//! A first address needs no such thing on a sealed link: the neighbour has shown
//! it by using the session whose response was sent there, or by answering the
//! handshake that began there. So does a neighbour that starts anew elsewhere.

use super::{ASK_FACTOR, Link, SMALLEST_HEADERS};
use crate::arena::TxArena;
use crate::counters::DropReason;
use crate::wire::{ENVELOPE_OVERHEAD, HELLO_LEN, PATH_FRAME_LEN, PathFrame, Seal};
use core::net::SocketAddr;
use core::time::Duration;
use rand::RngExt;
use rand::rngs::ChaCha20Rng;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// Between two candidates, where no round trip is known, and until the same may be
/// one again that did not answer: most round trips are shorter, so that one that
/// answers has the time to.
const SPACING: Duration = Duration::from_millis(250);
/// What an answer may take beside its round trip, where that is known.
const ANSWER: Duration = Duration::from_millis(50);
/// For an address that did not answer it doubles so often.
const MAX_DOUBLINGS: u32 = 4;
/// After so long without another try it is forgotten.
const FORGET: Duration = Duration::from_secs(30);
/// So many of them are remembered. With more, each is tried more often: what it
/// gets is still bounded by what came from there.
const REMEMBERED: usize = 8;
/// Between two challenges of one candidate…
const CHALLENGE_AGAIN: Duration = Duration::from_millis(100);
/// …and between two hellos, of which the last alone can come back.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// For how long a candidate is remembered that is silent.
const SILENCE: Duration = Duration::from_secs(1);
/// How much longer than a candidate's the present address's answer may take: three
/// more questions, lest one lost datagram decide,…
const WAIT: Duration = Duration::from_millis(300);
/// …and the round trip, up to this.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(200);

/// What is known of a neighbour's addresses but the present one.
#[derive(Debug, Default)]
pub(super) struct State {
    candidate: Option<Candidate>,
    /// No other candidate before this.
    closed_until: Time,
    /// Those that came to nothing.
    failed: [Option<Failed>; REMEMBERED],
    /// Where the response went of the session that waits to be used.
    answered: Option<SocketAddr>,
    /// A challenge of the neighbour's that waits for this end's answer.
    owed: Option<(SocketAddr, [u8; 8])>,
    /// Where the last envelope came from.
    last: Option<SocketAddr>,
    /// Whether control has not been told yet of the present address.
    moved: bool,
}

/// A candidate that came to nothing.
#[derive(Clone, Copy, Debug)]
struct Failed {
    address: SocketAddr,
    /// Not again before this.
    until: Time,
    times: u32,
    /// What it was to say.
    nonce: Option<[u8; 8]>,
}

#[derive(Debug)]
struct Candidate {
    address: SocketAddr,
    since: Time,
    heard: Time,
    /// Bytes from and to there, headers included.
    came: usize,
    went: usize,
    /// What it is to say, and the present address.
    nonces: Option<[[u8; 8]; 2]>,
    /// The time in the hello that was sent there alone.
    hello: Option<u32>,
    asked: Option<Time>,
    /// Whether a question is to be sent.
    due: bool,
    /// Since when it has answered.
    proven: Option<Time>,
}

impl Candidate {
    fn pay(&mut self, bytes: usize) -> bool {
        let all = self.went + bytes + SMALLEST_HEADERS;
        let affords = self.proven.is_some() || all <= ASK_FACTOR * self.came;
        if affords {
            self.went = all;
        }
        affords
    }
}

impl State {
    /// The candidate is none.
    fn dismiss(&mut self) {
        let Some(candidate) = self.candidate.take() else { return };
        if candidate.proven.is_some() {
            return;
        }
        let Candidate { address, since, nonces, .. } = candidate;
        let times = self.failure(address).map_or(0, |f| f.times);
        let until = since + SPACING * (1 << times.min(MAX_DOUBLINGS));
        let nonce = nonces.map(|[there, _]| there);
        let failed = Failed { address, until, times: times.saturating_add(1), nonce };
        // In its own place, or that of the one which may be tried soonest.
        let of = |f: &Option<Failed>| f.map(|f| (f.address != address, f.until));
        if let Some(place) = self.failed.iter_mut().min_by_key(|f| of(f)) {
            *place = Some(failed);
        }
    }

    fn failure(&self, address: SocketAddr) -> Option<&Failed> {
        self.failed.iter().flatten().find(|f| f.address == address)
    }

    fn forget(&mut self, which: impl Fn(&Failed) -> bool) {
        for place in &mut self.failed {
            place.take_if(|f| which(f));
        }
    }

    /// Whether `address` may be the candidate.
    fn admits(&mut self, at: Time, address: SocketAddr) -> bool {
        // One that has answered is about to be where the neighbour is, or none.
        let open = self.candidate.as_ref().is_none_or(|c| c.proven.is_none());
        self.forget(|f| at >= f.until + FORGET);
        open && at >= self.closed_until && self.failure(address).is_none_or(|f| at >= f.until)
    }
}

impl Link {
    /// An envelope of `len` bytes was opened that came from `from`. It was the
    /// `newest` so far, and used a session for the `first` time, or not.
    pub(super) fn locate(
        &mut self,
        at: Time,
        from: SocketAddr,
        len: usize,
        newest: bool,
        first: bool,
    ) {
        let round_trip = self.monitor.rtt().get();
        let spacing = round_trip.map_or(SPACING, |rtt| SPACING.min(2 * rtt + ANSWER));
        let place = &mut self.place;
        place.last = Some(from);
        let agreed = place.answered.take_if(|_| first) == Some(from);
        if self.address == Some(from) {
            // An older one was only held up on the way.
            if newest {
                place.dismiss();
            }
            return;
        }
        if agreed {
            return self.move_to(from);
        }
        let other = place.candidate.as_ref().is_none_or(|c| c.address != from);
        if other && newest && place.admits(at, from) {
            place.dismiss();
            place.closed_until = at + spacing;
            place.candidate = Some(Candidate {
                address: from,
                since: at,
                heard: at,
                came: 0,
                went: 0,
                nonces: None,
                hello: None,
                asked: None,
                due: false,
                proven: None,
            });
        }
        if let Some(candidate) = place.candidate.as_mut().filter(|c| c.address == from) {
            candidate.came += len + SMALLEST_HEADERS;
            candidate.heard = at;
        }
    }

    fn move_to(&mut self, to: SocketAddr) {
        self.address = Some(to);
        (self.place.candidate, self.place.failed) = (None, Default::default());
        self.place.moved = true;
    }

    /// A handshake that began at `address` was answered.
    pub(super) fn proved(&mut self, now: Time, address: SocketAddr) {
        match (self.address, &mut self.place.candidate) {
            (None, _) => self.address = Some(address),
            (_, Some(candidate)) if candidate.address == address => candidate.proven = Some(now),
            _ => {}
        }
    }

    /// The response of a session that the neighbour may use went to `address`.
    pub(super) fn answered_to(&mut self, address: SocketAddr) {
        self.address.get_or_insert(address);
        self.place.answered = Some(address);
    }

    /// Takes the next step with a candidate, if there is one; call after
    /// envelopes and in time. The neighbour's new address, once, when it has moved.
    pub(crate) fn validate_path(
        &mut self,
        now: Time,
        entropy: &mut ChaCha20Rng,
    ) -> Option<SocketAddr> {
        if self.place.candidate.is_some() {
            self.ask_candidate(now, entropy);
        }
        self.address.filter(|_| core::mem::take(&mut self.place.moved))
    }

    fn ask_candidate(&mut self, now: Time, entropy: &mut ChaCha20Rng) {
        let frames = self.is_sealed();
        let round_trip = self.monitor.rtt().get().unwrap_or_default();
        let wait = match self.address {
            Some(_) => WAIT + round_trip.min(LONGEST_ROUND_TRIP),
            None => Duration::ZERO,
        };
        let Some(candidate) = &mut self.place.candidate else { return };
        if candidate.proven.is_some_and(|proven| now >= proven + wait) {
            let to = candidate.address;
            return self.move_to(to);
        }
        if now >= candidate.heard + SILENCE {
            return self.place.dismiss();
        }
        let again = if frames { CHALLENGE_AGAIN } else { ASK_AGAIN };
        // Who has answered is asked no more, but for the sake of the old address.
        let open = candidate.proven.is_none() || frames;
        let news = open && candidate.asked.is_none_or(|asked| now >= asked + again);
        if !candidate.due && news {
            (candidate.due, candidate.asked) = (true, Some(now));
            if frames {
                candidate.nonces.get_or_insert_with(|| [entropy.random(), entropy.random()]);
            }
        }
    }

    /// Takes a frame about addresses, of the envelope that was opened last.
    pub(crate) fn on_path(&mut self, now: Time, frame: PathFrame) -> Result<(), DropReason> {
        if !self.is_sealed() {
            return Err(DropReason::Malformed);
        }
        match frame {
            PathFrame::Challenge(data) => {
                self.place.owed = self.place.last.map(|from| (from, data));
            }
            // From wherever it comes: who says it has received it.
            PathFrame::Response(data) => {
                // It was there after all.
                self.place.forget(|f| f.nonce == Some(data));
                let Some(candidate) = &mut self.place.candidate else { return Ok(()) };
                match candidate.nonces {
                    Some([there, _]) if there == data => drop(candidate.proven.get_or_insert(now)),
                    Some([_, here]) if here == data => self.place.dismiss(),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Takes the time that a hello brings back, on a link that is not sealed.
    pub(super) fn on_echo_of(&mut self, at: Time, sent_us: u32) {
        let Some(candidate) = &mut self.place.candidate else { return };
        if candidate.hello == Some(sent_us) && self.place.last == Some(candidate.address) {
            candidate.proven.get_or_insert(at);
        }
    }

    /// Another address that the neighbour may be at, while it is asked there.
    pub fn candidate(&self) -> Option<SocketAddr> {
        self.place.candidate.as_ref().map(|c| c.address)
    }

    /// Whether something is to be sent to that address.
    pub(super) fn is_asking(&self) -> bool {
        self.place.candidate.as_ref().is_some_and(|c| c.due)
    }

    /// Sends what this end asks and answers about addresses; false if the arena
    /// is full.
    pub(super) fn send_path(&mut self, now: Time, arena: &mut TxArena) -> bool {
        if let Some((to, data)) = self.place.owed {
            if !self.send_path_frame(now, to, PathFrame::Response(data), arena) {
                return false;
            }
            self.place.owed = None;
        }
        let Some(candidate) = self.place.candidate.as_mut().filter(|c| c.due) else { return true };
        if candidate.nonces.is_none() {
            // As soon as hellos' distance allows.
            self.monitor.expedite(now);
            if !self.monitor.is_due(now) {
                return true;
            }
        }
        candidate.due = false;
        let to = candidate.address;
        let len = match candidate.nonces {
            Some(_) => ENVELOPE_OVERHEAD + PATH_FRAME_LEN,
            None => ENVELOPE_OVERHEAD + HELLO_LEN,
        };
        // Else it is asked when it has paid for more.
        if !candidate.pay(len) {
            return true;
        }
        match candidate.nonces {
            Some([there, here]) => {
                self.send_path_frame(now, to, PathFrame::Challenge(there), arena)
                    && self.address.is_none_or(|address| {
                        self.send_path_frame(now, address, PathFrame::Challenge(here), arena)
                    })
            }
            None => self.send_hello_alone(now, to, arena),
        }
    }

    fn send_path_frame(
        &mut self,
        now: Time,
        to: SocketAddr,
        frame: PathFrame,
        arena: &mut TxArena,
    ) -> bool {
        const LEN: usize = ENVELOPE_OVERHEAD + PATH_FRAME_LEN;
        let Some(envelope) = arena.envelope(to, self.config.dscp, LEN) else { return false };
        let written = frame.emit(&mut Writer::new(Seal::frames_mut(envelope)));
        debug_assert!(written.is_ok(), "room was made for it");
        self.seal.seal(envelope);
        self.tally.path(LEN);
        self.charge(now, to, LEN);
        true
    }

    fn send_hello_alone(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> bool {
        const LEN: usize = ENVELOPE_OVERHEAD + HELLO_LEN;
        let carried = self.carried();
        let Some(envelope) = arena.envelope(to, self.config.dscp, LEN) else { return false };
        let hello = self.monitor.next_hello(now, &carried);
        let written = hello.emit(&mut Writer::new(Seal::frames_mut(envelope)));
        debug_assert!(written.is_ok(), "room was made for it");
        self.seal.seal(envelope);
        self.tally.hello(LEN);
        self.charge(now, to, LEN);
        if let Some(candidate) = &mut self.place.candidate {
            candidate.hello = Some(hello.sent_us);
        }
        true
    }

    /// The last envelope in `arena`, of `len` bytes, has been sealed for the
    /// present address: it goes to the candidate as well, as far as that has paid.
    pub(super) fn sent(&mut self, now: Time, len: usize, arena: &mut TxArena) {
        if let Some(to) = self.address {
            self.charge(now, to, len);
        }
        let Some(candidate) = &mut self.place.candidate else { return };
        // First it is asked.
        if candidate.asked.is_some() && !candidate.due && candidate.pay(len) {
            let to = candidate.address;
            // Without room there is no copy: the original has gone.
            if arena.copy_last(to, len) {
                self.tally.path(len);
                self.charge(now, to, len);
            }
        }
    }
}
