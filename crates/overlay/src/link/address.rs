//! Where a neighbour is. A datagram's source address is a claim: a member can write any address,
//! and an observer can send a copy of a genuine envelope from anywhere, so that it arrives before
//! the original. An address is therefore unvalidated until the neighbour has responded from it (RFC
//! 9000, 8.2 and 9.3):
//!
//! - An envelope that is newer than all before it, from an address other than the neighbour's,
//!   makes that address a *candidate*. Traffic continues to the present address. The candidate is
//!   sent a challenge of eight bytes from a cryptographic generator, and copies of the traffic, up
//!   to three times the bytes received from it: if the neighbour is there, its calls miss nothing
//!   during validation.
//! - The present address is challenged, too. Otherwise an attacker that overtakes genuine envelopes
//!   with copies, and forwards challenges, could attract traffic that gets through without it (RFC
//!   9000, 9.3.3). If the present address responds, or a newer envelope comes from it, the
//!   candidate is dismissed.
//! - If the present address does not respond to several challenges, the neighbour has moved. Until
//!   that is known, all traffic goes to both addresses.
//!
//! There is one candidate at a time. Until it has responded, another may replace it after
//! [`SPACING`], or after two round trips if that is sooner. The last [`REMEMBERED`] failed
//! candidates are retried at growing intervals, each at its own: so an attacker that sends copies
//! from one address gains little, one that sends from ten thousand gains no more than three bytes
//! for each byte it sends, and a neighbour that moves right afterwards is followed without further
//! delay.
//!
//! On a sealed link an address is validated by a [`PathFrame`]. On an unsealed link a hello is sent
//! to that address only, and its timestamp must come back: that can be guessed, but on such a link
//! anyone can forge anything. The old address is not challenged there.
//!
//! A first address needs no validation on a sealed link: the neighbour has proven it by using the
//! session after the response was sent there, or by answering the handshake that was started there.
//! The same is true of a neighbour that restarts at another address.
//!
//! The end at this node is where the neighbour first used a session that it began: it chose that
//! destination, and a firewall in front of it may let nothing through from another. This end keeps
//! it until the link goes down, and leaves the choice to the routes of its host otherwise.
//!
//! A link may be bound to own addresses. What arrives elsewhere is the neighbour's and is taken, but
//! makes no path: its source is no candidate, and a challenge is not answered there, so that a
//! neighbour that still sends there follows this end to the address that it sends from.

use super::{ASK_FACTOR, Link, SMALLEST_HEADERS};
use crate::arena::{Ends, OwnAddresses, TxArena};
use crate::counters::DropReason;
use crate::wire::{ENVELOPE_OVERHEAD, HELLO_LEN, PATH_FRAME_LEN, PathFrame, Seal};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use rand::RngExt;
use rand::rngs::ChaCha20Rng;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// Time between two candidates where no round trip is known, and before a failed address may be a
/// candidate again. Most round trips are shorter, so a live candidate has the time to respond.
const SPACING: Duration = Duration::from_millis(250);
/// Time that a response may take in addition to the round trip, where that is known.
const ANSWER: Duration = Duration::from_millis(50);
/// Maximum number of times that the interval doubles for an address that did not respond.
const MAX_DOUBLINGS: u32 = 4;
/// Time without another attempt after which a failed address is forgotten.
const FORGET: Duration = Duration::from_secs(30);
/// Number of failed addresses remembered. With more, each is retried more often; the traffic sent
/// to it stays bounded by the bytes received from it.
const REMEMBERED: usize = 8;
/// Interval between two challenges of one candidate.
const CHALLENGE_AGAIN: Duration = Duration::from_millis(100);
/// Time in which an uplink without room gets two responses at most: an end sends one challenge to each
/// of two addresses every [`CHALLENGE_AGAIN`], and both may lead here.
const RESPOND_AGAIN: Duration = Duration::from_millis(50);
/// Interval between two hellos to a candidate on an unsealed link; only the last can be echoed.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Time for which a silent candidate is remembered.
const SILENCE: Duration = Duration::from_secs(1);
/// Extra time for the present address's response, compared with the candidate's: three more
/// challenges, so that one lost datagram does not decide.
const WAIT: Duration = Duration::from_millis(300);
/// Time without an envelope by a path that is not the link's after which there are none.
const ASTRAY: Duration = Duration::from_secs(2);
/// Longest round trip that is added to that time.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(200);

/// Candidates for a neighbour's address, and pending challenges and responses.
#[derive(Debug, Default)]
pub(super) struct State {
    candidate: Option<Candidate>,
    /// No other candidate is admitted before this time.
    closed_until: Time,
    /// Candidates that did not respond.
    failed: [Option<Failed>; REMEMBERED],
    /// Destination of the response for a session that is not in use yet.
    answered: Option<SocketAddr>,
    /// A challenge from the neighbour that this end still has to answer, and its source.
    owed: Option<(SocketAddr, [u8; 8])>,
    /// Times of the last two such answers, the later one first.
    responded: [Time; 2],
    /// Source address of the last envelope, if that came by a path that the link may use.
    last: Option<SocketAddr>,
    astray: Option<Astray>,
    /// Whether control still has to be notified of the present address.
    moved: bool,
}

/// Envelopes of the neighbour that arrive at an own address to which the link is not bound.
#[derive(Clone, Copy, Debug)]
struct Astray {
    own: IpAddr,
    /// Time since when none has arrived by a path that the link may use.
    since: Time,
    last: Time,
}

/// A candidate that did not respond.
#[derive(Clone, Copy, Debug)]
struct Failed {
    address: SocketAddr,
    /// Not admitted again before this time.
    until: Time,
    times: u32,
    /// The challenge sent to it, if any.
    nonce: Option<[u8; 8]>,
}

#[derive(Debug)]
struct Candidate {
    address: SocketAddr,
    since: Time,
    heard: Time,
    /// Bytes received from and sent to the candidate, headers included.
    came: usize,
    went: usize,
    /// The challenges for the candidate and for the present address.
    nonces: Option<[[u8; 8]; 2]>,
    /// Timestamp of the hello that was sent to the candidate only.
    hello: Option<u32>,
    asked: Option<Time>,
    /// Whether a challenge is to be sent.
    due: bool,
    /// When the candidate was validated, if it was.
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
    /// Dismisses the candidate and remembers it as failed.
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
        // Reuses the address's own entry, or else the one that may be retried soonest.
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

    /// Whether `address` may become the candidate.
    fn admits(&mut self, at: Time, address: SocketAddr) -> bool {
        // A validated candidate is about to become the present address, or to be dismissed.
        let open = self.candidate.as_ref().is_none_or(|c| c.proven.is_none());
        self.forget(|f| at >= f.until + FORGET);
        open && at >= self.closed_until && self.failure(address).is_none_or(|f| at >= f.until)
    }
}

impl Link {
    /// Handles the ends of an opened envelope of `len` bytes. `newest`: its number is the
    /// highest so far; `first`: it is the first to use its session.
    pub(super) fn locate(&mut self, at: Time, ends: Ends, len: usize, newest: bool, first: bool) {
        let from = ends.remote;
        if !self.is_bound_to(&ends) {
            return self.went_astray(at, &ends);
        }
        if let Some(astray) = self.place.astray.as_mut().filter(|_| newest) {
            astray.since = at;
        }
        let round_trip = self.monitor.rtt().get();
        let spacing = round_trip.map_or(SPACING, |rtt| SPACING.min(2 * rtt + ANSWER));
        let answered = self.place.answered.take_if(|_| first);
        let agreed = answered == Some(from);
        if answered.is_some() {
            self.set_local(ends.local);
        }
        let place = &mut self.place;
        place.last = Some(from);
        if self.address == Some(from) {
            // An older one was only delayed on the path.
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

    /// Binds the link to own addresses, or to none.
    pub(crate) fn bind(&mut self, own: Option<OwnAddresses>) {
        self.own = own;
        self.forget_astray();
        let is_mine = |ip| self.own.as_ref().is_none_or(|own| own.iter().any(|own| own == ip));
        if self.local.and_then(|local| local.ip).is_some_and(|ip| !is_mine(ip)) {
            self.set_local(None);
        }
    }

    /// Whether a path with these ends may be the link's.
    pub(super) fn is_bound_to(&self, ends: &Ends) -> bool {
        self.own.as_ref().is_none_or(|own| own.include(ends))
    }

    /// Handles an envelope by a path that is not the link's.
    fn went_astray(&mut self, at: Time, ends: &Ends) {
        let any: IpAddr = match ends.remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let own = ends.local.and_then(|local| local.ip).unwrap_or(any);
        let place = &mut self.place;
        place.last = None;
        let before = place.astray.filter(|before| at < before.last + ASTRAY);
        self.has_moved |= before.is_none();
        let since = before.map_or(at, |before| before.since);
        place.astray = Some(Astray { own, since, last: at });
    }

    /// Own address that the neighbour's envelopes arrive at, and since when no other, if the link is
    /// not bound to that: the neighbour takes another path to this node than this node to it.
    /// [`Node::next_moved`](crate::node::Node::next_moved) tells when that begins.
    pub fn astray(&self, now: Time) -> Option<(IpAddr, Time)> {
        let astray = self.place.astray.filter(|astray| now < astray.last + ASTRAY)?;
        Some((astray.own, astray.since))
    }

    /// Forgets where the neighbour's envelopes arrived.
    pub(super) fn forget_astray(&mut self) {
        self.place.astray = None;
    }

    /// The own addresses that the link is bound to, if it is bound.
    pub fn own(&self) -> Option<&OwnAddresses> {
        self.own.as_ref()
    }

    /// Sets another address to find the neighbour at; false if the link has that address.
    pub(crate) fn set_address(&mut self, address: SocketAddr) -> bool {
        let is_other = self.address != Some(address);
        if is_other {
            self.config.address = Some(address);
            self.move_to(address);
        }
        is_other
    }

    fn move_to(&mut self, to: SocketAddr) {
        (self.address, self.has_moved) = (Some(to), true);
        (self.place.candidate, self.place.failed) = (None, Default::default());
        self.place.moved = true;
    }

    /// Records that a handshake started at `address` was answered.
    pub(super) fn proved(&mut self, now: Time, address: SocketAddr) {
        match (self.address, &mut self.place.candidate) {
            (None, _) => (self.address, self.has_moved) = (Some(address), true),
            // Nothing has been heard from the present address for long.
            (Some(present), _) if present != address && !self.monitor.is_up() => {
                self.move_to(address);
            }
            (_, Some(candidate)) if candidate.address == address => candidate.proven = Some(now),
            _ => {}
        }
    }

    /// Records that the response for a session that the neighbour may use went to `address`.
    pub(super) fn answered_to(&mut self, address: SocketAddr) {
        if self.address.is_none() {
            (self.address, self.has_moved) = (Some(address), true);
        }
        self.place.answered = Some(address);
    }

    /// Advances the validation of the candidate, if there is one; call after opening envelopes and
    /// on the timer. Returns the neighbour's new address, once, when it has moved.
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
        // After validation, challenges continue only for the sake of the old address.
        let open = candidate.proven.is_none() || frames;
        let news = open && candidate.asked.is_none_or(|asked| now >= asked + again);
        if !candidate.due && news {
            (candidate.due, candidate.asked) = (true, Some(now));
            if frames {
                candidate.nonces.get_or_insert_with(|| [entropy.random(), entropy.random()]);
            }
        }
    }

    /// Handles a path frame from the envelope that was opened last.
    pub(crate) fn on_path(&mut self, now: Time, frame: PathFrame) -> Result<(), DropReason> {
        if !self.is_sealed() {
            return Err(DropReason::Malformed);
        }
        match frame {
            PathFrame::Challenge(data) => {
                // One by a path that is not the link's must not replace another one.
                if let Some(from) = self.place.last {
                    self.place.owed = Some((from, data));
                }
            }
            // Accepted from any source: it shows that the neighbour received the challenge.
            PathFrame::Response(data) => {
                // The neighbour was at that address after all.
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

    /// Handles the timestamp that a hello echoes, on an unsealed link.
    pub(super) fn on_echo_of(&mut self, at: Time, sent_us: u32) {
        let Some(candidate) = &mut self.place.candidate else { return };
        if candidate.hello == Some(sent_us) && self.place.last == Some(candidate.address) {
            candidate.proven.get_or_insert(at);
        }
    }

    /// Another address that the neighbour may have moved to, while it is being validated.
    pub fn candidate(&self) -> Option<SocketAddr> {
        self.place.candidate.as_ref().map(|c| c.address)
    }

    /// Whether a challenge is due for the candidate.
    pub(super) fn is_asking(&self) -> bool {
        self.place.candidate.as_ref().is_some_and(|c| c.due)
    }

    /// Sends this end's challenges and responses; false if the arena is full. They don't wait for
    /// room: where the present address can't be reached, the neighbour may have another one.
    pub(super) fn send_path(&mut self, now: Time, arena: &mut TxArena) -> bool {
        // The neighbour decides how many responses there are.
        let [last, before] = self.place.responded;
        let may = now.since(before) >= RESPOND_AGAIN || arena.has_room(self.uplink);
        if let Some((to, data)) = self.place.owed.filter(|_| may) {
            if !self.send_path_frame(now, to, PathFrame::Response(data), arena) {
                return false;
            }
            (self.place.owed, self.place.responded) = (None, [now, last]);
        }
        let Some(candidate) = self.place.candidate.as_mut().filter(|c| c.due) else { return true };
        if candidate.nonces.is_none() {
            // As soon as the spacing of hellos allows.
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
        // Otherwise it is challenged once it has paid for more.
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
        let Some(envelope) = arena.envelope(self.uplink, to, self.config.dscp, LEN) else {
            return false;
        };
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
        let Some(envelope) = arena.envelope(self.uplink, to, self.config.dscp, LEN) else {
            return false;
        };
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

    /// Copies the last envelope in `arena`, of `len` bytes and sealed for the present address, to
    /// the candidate, as far as the bytes received from there allow.
    pub(super) fn sent(&mut self, now: Time, len: usize, arena: &mut TxArena) {
        if let Some(to) = self.address {
            self.charge(now, to, len);
        }
        let Some(candidate) = &mut self.place.candidate else { return };
        // The challenge goes first.
        if candidate.asked.is_some() && !candidate.due && candidate.pay(len) {
            let to = candidate.address;
            // Without room there is no copy; the original is already in the arena.
            if arena.copy_last(to, len) {
                self.tally.path(len);
                self.charge(now, to, len);
            }
        }
    }
}
