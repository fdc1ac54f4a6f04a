//! What is known of one neighbour over one path, and how far the handshake
//! with it has come.

use super::freshness::{Latest, NONCE};
use super::machine::Peer;
use super::message::{COOKIE, ECHO};
use crate::identity::noise::Handshake;
use crate::identity::{Certificate, DhKey, MacKey};
use crate::wire::{Incarnation, ReceiverIndex};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::{Pacer, Rate, Time};

/// The first repetition comes after this…
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(250);
/// …each later one after twice as long, and none after longer than this: a
/// neighbour that is back, and waits to be spoken to, is not to be missing for
/// longer the longer it was away. That is the price of a few hellos.
const LAST_RETRY: Duration = Duration::from_secs(1);
/// See [`Neighbour::pay`] (RFC 9000, 8.1).
pub(super) const FACTOR: usize = 3;
/// After so many initiations to a key that was only heard of, the neighbour is
/// asked again who it is.
const ASK_AGAIN: u32 = 4;

/// A handshake begun here, of which the second message is awaited.
#[derive(Debug)]
pub(super) struct Attempt {
    pub handshake: Handshake,
    pub index: ReceiverIndex,
    /// Where it began.
    pub to: SocketAddr,
    /// What we said in it.
    pub sent: u64,
    /// By what an answer may name it, once.
    pub echo: Option<[u8; ECHO]>,
    /// Whether it answers a challenge.
    pub challenged: bool,
}

/// A session that the link's [`Sealed`](crate::wire::Sealed) may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub index: ReceiverIndex,
    pub since: Time,
    pub until: Time,
    /// Whether it waited to be used when this end began another one.
    pub overtaken: bool,
}

#[derive(Debug)]
pub(super) struct Neighbour {
    pub peer: Peer,
    /// Since when this end numbers its packets to it.
    pub incarnation: Incarnation,
    /// Its key, configured or from `certificate`.
    pub key: Option<DhKey>,
    /// What it showed us, if its key is not configured.
    pub certificate: Option<Certificate>,
    /// For the cheap check at its end.
    pub mac: Option<MacKey>,
    /// Where it is, configured or heard from.
    pub address: Option<SocketAddr>,
    /// Bytes that may still go there; no limit once it has shown that it is.
    pub credit: Option<usize>,
    /// Handshakes that its address may ask for without a cookie.
    pub unproven: Pacer,
    /// Those with one.
    pub proven: Pacer,
    pub attempt: Option<Attempt>,
    /// The nonce of a query that awaits its answer.
    pub query: Option<[u8; ECHO]>,
    cookie: Option<([u8; COOKIE], Time)>,
    /// When the next query or initiation is due.
    pub try_at: Time,
    /// How many there have been since the last session.
    tries: u32,
    /// When the first of them was sent.
    trying_since: Option<Time>,
    /// The nonce that the neighbour wants in the next initiation.
    pub nonce: Option<[u8; NONCE]>,
    /// Of the initiations that counted.
    pub latest: Option<Latest>,
    /// Of which start of the neighbour the log has that its clock is behind.
    pub told: Option<Incarnation>,
    /// Whether it has that of this end's.
    pub told_own: bool,
    // As in `Sealed`.
    pub previous: Option<Live>,
    pub current: Option<Live>,
    pub next: Option<Live>,
}

impl Neighbour {
    /// `rate` is that of its initiations.
    pub fn new(peer: Peer, incarnation: Incarnation, rate: Rate, now: Time) -> Neighbour {
        let mut neighbour = Neighbour {
            incarnation,
            address: peer.address,
            key: None,
            certificate: None,
            mac: None,
            credit: None,
            unproven: Pacer::of(rate),
            proven: Pacer::of(rate),
            attempt: None,
            query: None,
            cookie: None,
            try_at: if peer.address.is_some() { now } else { Time::NEVER },
            tries: 0,
            trying_since: None,
            nonce: None,
            latest: None,
            told: None,
            told_own: false,
            previous: None,
            current: None,
            next: None,
            peer,
        };
        let key = neighbour.peer.key.and_then(|key| key.dh());
        neighbour.set_key(key);
        neighbour
    }

    fn set_key(&mut self, key: Option<DhKey>) {
        self.key = key;
        self.mac = key.as_ref().map(MacKey::for_dh);
    }

    /// Believes a certificate that was verified; only where no key is
    /// configured.
    pub fn learn(&mut self, certificate: Certificate) {
        if self.peer.key.is_none() {
            self.set_key(certificate.dh());
            self.certificate = Some(certificate);
        }
    }

    /// The same of one that came without its key's signature: anybody may bring
    /// back one that has been renewed since.
    pub fn hear(&mut self, certificate: Certificate) {
        if !self.certificate.as_ref().is_some_and(|c| c.outlasts(&certificate)) {
            self.learn(certificate);
        }
    }

    /// Forgets a key that was only learnt.
    pub fn forget(&mut self) {
        if self.peer.key.is_none() {
            self.set_key(None);
            self.certificate = None;
        }
    }

    pub fn set_cookie(&mut self, cookie: [u8; COOKIE], until: Time) {
        self.cookie = Some((cookie, until));
    }

    pub fn cookie(&self, now: Time) -> [u8; COOKIE] {
        self.cookie.filter(|(_, until)| now < *until).map(|(c, _)| c).unwrap_or_default()
    }

    /// Counts one more message, and says after how long the next is due, of
    /// which `jitter` (0 to 1) shall take up to a quarter.
    pub fn tried(&mut self, now: Time, jitter: f64) {
        self.trying_since.get_or_insert(now);
        let wait = (FIRST_RETRY * (1 << self.tries.min(5))).min(LAST_RETRY);
        self.tries = self.tries.saturating_add(1);
        if self.tries.is_multiple_of(ASK_AGAIN) {
            self.forget();
        }
        self.try_at = now + wait.mul_f64(1.0 - jitter / 4.0);
    }

    /// Whether `bytes` may go to the neighbour's address. One that was only heard of
    /// is sent at most [`FACTOR`] times what came from there.
    pub fn pay(&mut self, bytes: usize) -> bool {
        let Some(credit) = &mut self.credit else { return true };
        let left = credit.checked_sub(bytes);
        *credit = left.unwrap_or(*credit);
        left.is_some()
    }

    /// For how long messages have gone unanswered.
    pub fn trying_for(&self, now: Time) -> Duration {
        self.trying_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Nothing is being tried until `at`.
    pub fn rest_until(&mut self, at: Time) {
        (self.tries, self.trying_since) = (0, None);
        self.try_at = at;
    }

    /// The indices in use.
    pub fn indices(&self) -> impl Iterator<Item = ReceiverIndex> {
        let attempt = self.attempt.as_ref().map(|a| a.index);
        let live = [self.previous, self.current, self.next].into_iter().flatten();
        live.map(|live| live.index).chain(attempt)
    }

    /// Uses `live`, which this end began; returns the session that it pushes out.
    pub fn begin(&mut self, live: Live) -> Option<Live> {
        if let Some(next) = &mut self.next {
            next.overtaken = true;
        }
        self.switch_to(live)
    }

    /// The other end has used the session that it began: that one, and the one that
    /// it pushes out.
    pub fn confirm(&mut self) -> Option<(Live, Option<Live>)> {
        let live = self.next.take()?;
        // Of two handshakes that crossed, both ends use the later one.
        let out = match self.current {
            Some(_) if live.overtaken => self.previous.replace(live),
            _ => self.switch_to(live),
        };
        Some((live, out))
    }

    fn switch_to(&mut self, live: Live) -> Option<Live> {
        self.current.replace(live).and_then(|out| self.previous.replace(out))
    }

    /// When there is something to do.
    pub fn next_timeout(&self) -> Time {
        let live = [self.previous, self.current, self.next].into_iter().flatten();
        let try_at = if self.address.is_some() { self.try_at } else { Time::NEVER };
        live.map(|live| live.until).fold(try_at, Time::min)
    }
}
