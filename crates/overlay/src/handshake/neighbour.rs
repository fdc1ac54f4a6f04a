//! State of one neighbour over one path, and progress of its handshake.

use super::freshness::{Latest, NONCE};
use super::machine::Peer;
use super::message::{COOKIE, ECHO};
use crate::arena::OwnAddresses;
use crate::identity::noise::Handshake;
use crate::identity::{Certificate, DhKey, MacKey};
use crate::wire::{Incarnation, ReceiverIndex};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::{Pacer, Rate, Time};

/// Delay before the first retransmission.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(250);
/// Maximum delay between retransmissions; each delay is twice the previous one up to this. A
/// neighbour that returns and waits for a message should not be missed for longer because it was
/// away longer; the price is the traffic of a few hellos.
const LAST_RETRY: Duration = Duration::from_secs(1);
/// Anti-amplification factor of [`Neighbour::pay`] (RFC 9000, 8.1).
pub(super) const FACTOR: usize = 3;
/// After this many initiations to a key that was only learnt, the neighbour is queried again.
const ASK_AGAIN: u32 = 4;

/// A handshake begun here that awaits the second message.
#[derive(Debug)]
pub(super) struct Attempt {
    pub handshake: Handshake,
    pub index: ReceiverIndex,
    /// Address that the initiation was sent to.
    pub to: SocketAddr,
    /// The time in this end's initiation.
    pub sent: u64,
    /// Bytes with which one answer may identify this initiation.
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
    /// Whether it was waiting for its first use when this end began another one.
    pub overtaken: bool,
}

#[derive(Debug)]
pub(super) struct Neighbour {
    pub peer: Peer,
    /// The own addresses that it may call, if its link is bound to some.
    pub own: Option<OwnAddresses>,
    /// This end's start, from which it numbers its packets to the neighbour.
    pub incarnation: Incarnation,
    /// The neighbour's key, configured or from `certificate`.
    pub key: Option<DhKey>,
    /// Certificate of the neighbour, if its key is not configured.
    pub certificate: Option<Certificate>,
    /// Key of the cheap check at the neighbour's end.
    pub mac: Option<MacKey>,
    /// Address of the neighbour, configured or learnt from its messages.
    pub address: Option<SocketAddr>,
    /// Bytes that may still be sent to the address; unlimited once the neighbour has proved that it
    /// is there.
    pub credit: Option<usize>,
    /// Rate of handshakes that its address may request without a cookie.
    pub unproven: Pacer,
    /// Rate of handshakes that its address may request with a cookie.
    pub proven: Pacer,
    pub attempt: Option<Attempt>,
    /// The nonce of a query that awaits its answer.
    pub query: Option<[u8; ECHO]>,
    cookie: Option<([u8; COOKIE], Time)>,
    /// When the next query or initiation is due.
    pub try_at: Time,
    /// Whether the link is up. While it is not, a session that this end began may be unknown to the
    /// other end, which may have restarted since its response.
    pub is_up: bool,
    /// Number of queries and initiations since the last session.
    tries: u32,
    /// Time at which the first of these tries was sent.
    trying_since: Option<Time>,
    /// The nonce that the neighbour requires in the next initiation.
    pub nonce: Option<[u8; NONCE]>,
    /// Stamps of the initiations that counted.
    pub latest: Option<Latest>,
    /// Start of the neighbour that was last reported to the log for a clock that is behind.
    pub told: Option<Incarnation>,
    /// Whether this end's start was reported to the log for the same reason.
    pub told_own: bool,
    // The same slots as in `Sealed`.
    pub previous: Option<Live>,
    pub current: Option<Live>,
    pub next: Option<Live>,
}

impl Neighbour {
    /// Creates a neighbour; `rate` limits its initiations.
    pub fn new(peer: Peer, incarnation: Incarnation, rate: Rate, now: Time) -> Neighbour {
        let mut neighbour = Neighbour {
            own: None,
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
            is_up: false,
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

    /// Accepts a verified certificate, but only if no key is configured.
    pub fn learn(&mut self, certificate: Certificate) {
        if self.peer.key.is_none() {
            self.set_key(certificate.dh());
            self.certificate = Some(certificate);
        }
    }

    /// Accepts a verified certificate that arrived without its key's signature. Any attacker could
    /// replay one that has been renewed since.
    pub fn hear(&mut self, certificate: Certificate) {
        if !self.certificate.as_ref().is_some_and(|c| c.outlasts(&certificate)) {
            self.learn(certificate);
        }
    }

    /// Forgets a key that was only learnt from a certificate.
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

    /// Counts one more message and schedules the next. `jitter` (0 to 1) shortens the delay by up
    /// to a quarter.
    pub fn tried(&mut self, now: Time, jitter: f64) {
        self.trying_since.get_or_insert(now);
        let wait = (FIRST_RETRY * (1 << self.tries.min(5))).min(LAST_RETRY);
        self.tries = self.tries.saturating_add(1);
        if self.tries.is_multiple_of(ASK_AGAIN) {
            self.forget();
        }
        self.try_at = now + wait.mul_f64(1.0 - jitter / 4.0);
    }

    /// Whether `bytes` may be sent to the neighbour's address. An unvalidated address is sent at
    /// most [`FACTOR`] times the bytes received from it.
    pub fn pay(&mut self, bytes: usize) -> bool {
        let Some(credit) = &mut self.credit else { return true };
        let left = credit.checked_sub(bytes);
        *credit = left.unwrap_or(*credit);
        left.is_some()
    }

    /// Time for which messages have gone unanswered.
    pub fn trying_for(&self, now: Time) -> Duration {
        self.trying_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Suspends all tries until `at`.
    pub fn rest_until(&mut self, at: Time) {
        (self.tries, self.trying_since) = (0, None);
        self.try_at = at;
    }

    /// The receiver indices in use.
    pub fn indices(&self) -> impl Iterator<Item = ReceiverIndex> {
        let attempt = self.attempt.as_ref().map(|a| a.index);
        let live = [self.previous, self.current, self.next].into_iter().flatten();
        live.map(|live| live.index).chain(attempt)
    }

    /// Uses `live`, a session that this end began; returns the session that it displaces.
    pub fn begin(&mut self, live: Live) -> Option<Live> {
        if let Some(next) = &mut self.next {
            next.overtaken = true;
        }
        self.switch_to(live)
    }

    /// Handles the first use, by the other end, of the session that it began. Returns that session,
    /// and the one that it displaces.
    pub fn confirm(&mut self) -> Option<(Live, Option<Live>)> {
        let live = self.next.take()?;
        // If two handshakes crossed, both ends use the later one.
        let out = match self.current {
            Some(_) if live.overtaken => self.previous.replace(live),
            _ => self.switch_to(live),
        };
        Some((live, out))
    }

    fn switch_to(&mut self, live: Live) -> Option<Live> {
        self.current.replace(live).and_then(|out| self.previous.replace(out))
    }

    /// Time of the next action.
    pub fn next_timeout(&self) -> Time {
        let live = [self.previous, self.current, self.next].into_iter().flatten();
        let try_at = if self.address.is_some() { self.try_at } else { Time::NEVER };
        live.map(|live| live.until).fold(try_at, Time::min)
    }
}
