//! The state machine: whom to greet and when. What comes in is in `receive`.

use super::cookie::Cookies;
use super::freshness::{Latest, NONCE};
use super::message::{Initiation, MAX_PATH, Payload, Query, echo_of};
use super::neighbour::{Attempt, Live, Neighbour};
use super::receive::Pending;
use super::stats::{HandshakeStats, RefusedHandshake};
use crate::identity::noise::{NEIGHBOURS, Static};
use crate::identity::{Certificate, DhKey, Identity, MacKey, PublicKey, Trust};
use crate::link::LinkId;
use crate::wire::version::VersionRange;
use crate::wire::{Incarnation, NodeId, ReceiverIndex, SessionKeys};
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{Rng as _, RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use trunkline_base::{Pacer, PerSource, Rate, Time};

/// How old a session is when its initiator replaces it…
pub(super) const REKEY_AFTER: Duration = Duration::from_secs(120);
/// …and how much later the responder does, if the initiator hasn't.
pub(super) const RESPONDER_WAITS: Duration = Duration::from_secs(20);
/// How long a responder waits to hear the initiator use the keys before it
/// begins a handshake of its own.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// The most events kept for a driver that doesn't fetch them.
const MAX_EVENTS: usize = 1 << 12;
/// The most newcomers of which the last initiation is remembered.
pub(super) const MAX_SEEN: usize = 1 << 12;

/// What a node offers its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offer {
    /// The protocol versions it speaks.
    pub versions: VersionRange,
    /// What it can do beyond that, as bits.
    pub capabilities: u32,
}

/// What others may make a node do. A handshake computes for about 0.3 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Handshakes computed for addresses that have shown no cookie, in all.
    pub unknown_peers: Rate,
    /// For one source network that has shown a cookie.
    pub source: Rate,
    /// For all of those together.
    pub sources: Rate,
    /// For the address of each neighbour, with and without cookie.
    pub neighbour: Rate,
    /// Answers sent in all; none is larger than what it answers.
    pub answers: Rate,
    /// Source networks that are remembered.
    pub table: usize,
    /// Certified nodes without a configured link that may wait to be admitted
    /// at once; 0 admits none.
    pub unconfigured_peers: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            unknown_peers: Rate::new(50, 50),
            source: Rate::new(2, 5),
            sources: Rate::new(100, 100),
            neighbour: Rate::new(2, 8),
            answers: Rate::new(5_000, 500),
            table: 4_096,
            unconfigured_peers: 0,
        }
    }
}

/// What a node's handshakes are told to begin with.
#[derive(Debug)]
pub struct Config {
    /// The node.
    pub node: NodeId,
    /// Its key.
    pub identity: Identity,
    /// What it shows those who don't know its key.
    pub certificate: Option<Certificate>,
    /// Whom it believes.
    pub trust: Trust,
    /// Which start of the node this is; greater than any before.
    pub incarnation: Incarnation,
    /// What it speaks.
    pub offer: Offer,
    /// What others may make it do.
    pub limits: Limits,
}

/// A neighbour over one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its id.
    pub node: NodeId,
    /// The path's label, the same at both ends, at most 63 bytes.
    pub path: String,
    /// Its key; without one it must show a certificate.
    pub key: Option<PublicKey>,
    /// Where it listens; without one it has to begin.
    pub address: Option<SocketAddr>,
    /// The largest IP packet on this end of the link, in bytes.
    pub mtu: u16,
}

/// Names a node that waits to be admitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnconfiguredPeerId(pub(super) u64);

/// A session was agreed on.
#[derive(Debug)]
pub struct Established {
    /// For which link.
    pub link: LinkId,
    /// Where this end's message went. The other end is there if it has answered
    /// (this one began), or else once it uses the session.
    pub address: SocketAddr,
    /// For [`Sealed::install`](crate::wire::Sealed::install), with the peer's
    /// start and this end's role.
    pub keys: SessionKeys,
    /// The version to speak.
    pub version: u8,
    /// What both ends can do.
    pub capabilities: u32,
    /// The largest IP packet that the other end takes.
    pub mtu: u16,
    /// The other end's key.
    pub key: PublicKey,
    /// What it showed, if its key is not configured.
    pub certificate: Option<Certificate>,
}

/// What came of all that.
#[derive(Debug)]
pub enum Event {
    /// A datagram is to be sent.
    Send {
        /// Where to.
        to: SocketAddr,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// A link has a new session: let its seal have it, and let
    /// `keys.local` lead to the link.
    Established(Box<Established>),
    /// No envelope with this index will come for the link any more.
    Retired {
        /// The link.
        link: LinkId,
        /// The index, free for others.
        index: ReceiverIndex,
    },
    /// A certified node without a configured link wants to be a neighbour;
    /// [`Handshakes::admit`] lets it, within 5 s.
    Newcomer {
        /// For `admit`.
        id: UnconfiguredPeerId,
        /// The node.
        node: NodeId,
        /// What its certificate calls it.
        name: String,
        /// The path's label.
        path: String,
        /// Its key.
        key: PublicKey,
        /// Where it is.
        address: SocketAddr,
    },
    /// All sessions of a link are void at once: its neighbour is no longer
    /// trusted.
    Closed {
        /// The link.
        link: LinkId,
        /// What is wrong.
        why: RefusedHandshake,
    },
    /// A neighbour shows another key than before, certified too: for the log.
    /// Was it given a new one, or have two nodes one number?
    OtherKey {
        /// The node.
        node: NodeId,
        /// What its certificate calls it.
        name: String,
        /// From where.
        from: SocketAddr,
    },
    /// An initiation was made before others of its sender, by their stamps, and
    /// yet is no copy: for the log, once for each start. The sender's clock went
    /// back; or it has another key than then.
    ClockBehind {
        /// The other node.
        node: NodeId,
        /// Where it is.
        from: SocketAddr,
        /// Whether it is this node's initiation that the other has challenged.
        own: bool,
    },
    /// Someone was refused: for the log.
    Refused {
        /// From where.
        from: SocketAddr,
        /// Which node it says it is; `None` of what is not for this node's key,
        /// and can't be read, which is told once a second at most.
        node: Option<NodeId>,
        /// What is wrong.
        why: RefusedHandshake,
    },
}

/// The handshakes of a node with all its neighbours.
pub struct Handshakes {
    pub(super) node: NodeId,
    pub(super) own: Static,
    pub(super) own_mac: MacKey,
    pub(super) certificate: Option<Certificate>,
    pub(super) trust: Trust,
    pub(super) revoked: BTreeSet<DhKey>,
    /// One for each overlay key.
    pub(super) query_macs: Vec<MacKey>,
    incarnation: Incarnation,
    pub(super) offer: Offer,
    pub(super) limits: Limits,
    pub(super) entropy: ChaCha20Rng,
    pub(super) neighbours: BTreeMap<LinkId, Neighbour>,
    pub(super) by_address: BTreeMap<SocketAddr, LinkId>,
    pub(super) by_index: BTreeMap<ReceiverIndex, LinkId>,
    pub(super) pending: Vec<Pending>,
    pub(super) next_unconfigured_peer: u64,
    pub(super) seen: BTreeMap<(DhKey, String), Latest>,
    /// The time in the last initiation sent.
    sent: u64,
    pub(super) cookies: Cookies,
    pub(super) unknown_peers: Pacer,
    /// When a wrong mac is told of again.
    pub(super) tell_bad_mac: Time,
    pub(super) proven: Pacer,
    pub(super) answers: Pacer,
    pub(super) sources: PerSource,
    events: VecDeque<Event>,
    pub(super) stats: HandshakeStats,
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes")
            .field("node", &self.node)
            .field("neighbours", &self.neighbours)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Handshakes {
    /// A node without neighbours. `entropy` must come from a cryptographic
    /// source, and never twice: all keys, cookies and indices follow from it.
    pub fn new(config: Config, entropy: [u8; 32]) -> Handshakes {
        let mut entropy = ChaCha20Rng::from_seed(entropy);
        let own = Static::new(&config.identity, NEIGHBOURS);
        let mut handshakes = Handshakes {
            node: config.node,
            own_mac: MacKey::for_dh(&own.public()),
            own,
            certificate: config.certificate,
            trust: Trust::default(),
            revoked: BTreeSet::new(),
            query_macs: Vec::new(),
            incarnation: config.incarnation,
            offer: config.offer,
            limits: config.limits,
            neighbours: BTreeMap::new(),
            by_address: BTreeMap::new(),
            by_index: BTreeMap::new(),
            pending: Vec::new(),
            next_unconfigured_peer: 0,
            seen: BTreeMap::new(),
            sent: 0,
            cookies: Cookies::new([entropy.random(), entropy.random()]),
            unknown_peers: Pacer::of(config.limits.unknown_peers),
            tell_bad_mac: Time::ZERO,
            proven: Pacer::of(config.limits.sources),
            answers: Pacer::of(config.limits.answers),
            sources: PerSource::new(config.limits.table, config.limits.source),
            events: VecDeque::new(),
            stats: HandshakeStats::default(),
            entropy,
        };
        handshakes.take_trust(config.trust);
        handshakes
    }

    /// A link, new or with other settings; it begins at once if it can.
    pub fn add(&mut self, link: LinkId, mut peer: Peer, now: Time) {
        self.remove(link);
        let end =
            (0..=MAX_PATH.min(peer.path.len())).rev().find(|&i| peer.path.is_char_boundary(i));
        peer.path.truncate(end.unwrap_or(0));
        if let Some(address) = peer.address {
            self.by_address.insert(address, link);
        }
        self.neighbours
            .insert(link, Neighbour::new(peer, self.incarnation, self.limits.neighbour, now));
    }

    /// The link is no more; its sessions end.
    pub fn remove(&mut self, link: LinkId) {
        let Some(neighbour) = self.neighbours.remove(&link) else { return };
        // A link in its place numbers its packets anew. The neighbour, which may
        // still have the old one, learns that as from a restart.
        self.incarnation.0 += 1;
        self.by_address.retain(|_, l| *l != link);
        if let (Some(key), Some(latest)) = (neighbour.key, neighbour.latest) {
            self.remember(key, neighbour.peer.path.clone(), latest);
        }
        for index in neighbour.indices() {
            self.retire(link, index);
        }
    }

    /// Believes others from now on: neighbours that are no longer trusted lose
    /// their sessions.
    pub fn set_trust(&mut self, trust: Trust, unix_secs: u64) {
        self.take_trust(trust);
        let revoked = |key: &DhKey| self.revoked.contains(key);
        self.seen.retain(|(key, _), _| !revoked(key));
        for neighbour in self.neighbours.values_mut() {
            neighbour.latest = neighbour.latest.take().and_then(|l| l.without(revoked));
        }
        let links: Vec<LinkId> = self.neighbours.keys().copied().collect();
        for link in links {
            let Some(neighbour) = self.neighbours.get_mut(&link) else { continue };
            // Who was revoked, or could not be asked, may be believed now.
            if neighbour.try_at == Time::NEVER && neighbour.address.is_some() {
                neighbour.rest_until(Time::ZERO);
            }
            let Some(key) = neighbour.key else { continue };
            let why = match &neighbour.certificate {
                _ if self.revoked.contains(&key) => RefusedHandshake::Revoked,
                Some(c) if c.verify(&self.trust.overlay_keys, unix_secs).is_err() => {
                    RefusedHandshake::WrongCertificate
                }
                _ => continue,
            };
            let indices: Vec<_> = neighbour.indices().collect();
            (neighbour.previous, neighbour.current, neighbour.next) = (None, None, None);
            neighbour.attempt = None;
            neighbour.forget();
            indices.into_iter().for_each(|index| self.retire(link, index));
            self.push(Event::Closed { link, why });
        }
    }

    /// Shows `certificate`, which must be for this node and its key, in every
    /// handshake from now on. Sessions go on; neighbours see it when they
    /// replace keys, and those without a session at once.
    pub fn set_certificate(&mut self, certificate: Certificate, now: Time) {
        self.certificate = Some(certificate);
        for neighbour in self.neighbours.values_mut() {
            // Perhaps the one before was over.
            if neighbour.current.is_none() && neighbour.next.is_none() {
                neighbour.try_at = neighbour.try_at.min(now);
            }
        }
    }

    fn take_trust(&mut self, trust: Trust) {
        self.revoked = trust.revoked.iter().filter_map(PublicKey::dh).collect();
        self.query_macs = trust.overlay_keys.iter().map(MacKey::for_overlay).collect();
        self.trust = trust;
    }

    /// The neighbour is there now, and has shown it.
    pub fn set_address(&mut self, link: LinkId, address: SocketAddr) {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        neighbour.credit = None;
        if neighbour.address == Some(address) {
            return;
        }
        neighbour.address = Some(address);
        let configured = neighbour.peer.address;
        self.by_address.retain(|a, l| *l != link || Some(*a) == configured);
        self.by_address.insert(address, link);
    }

    /// The initiator of the link's last handshake has used its keys.
    pub fn confirmed(&mut self, link: LinkId) {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        let Some((live, out)) = neighbour.confirm() else { return };
        neighbour.rest_until(live.since + REKEY_AFTER + RESPONDER_WAITS);
        // It has had the response.
        neighbour.credit = None;
        // Of no use any more; left open, whoever has recorded it could have it
        // answered much later.
        let moot = neighbour.attempt.take();
        if let Some(out) = out {
            self.retire(link, out.index);
        }
        if let Some(moot) = moot {
            self.by_index.remove(&moot.index);
        }
    }

    /// The link has died, or wants new keys: begins a handshake, unless one is
    /// under way.
    pub fn restart(&mut self, link: LinkId, now: Time) {
        if let Some(neighbour) = self.neighbours.get_mut(&link) {
            neighbour.try_at = neighbour.try_at.min(now);
        }
    }

    /// What it shows.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// What has been done.
    pub fn stats(&self) -> &HandshakeStats {
        &self.stats
    }

    /// The next thing that came of what was fed in.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Handshakes::handle_timeout`] has something to do.
    pub fn next_timeout(&self) -> Time {
        let links = self.neighbours.values().map(Neighbour::next_timeout);
        let pending = self.pending.iter().map(|p| p.until);
        links.chain(pending).min().unwrap_or(Time::NEVER)
    }

    /// Sends what is due, and ends what is over.
    pub fn handle_timeout(&mut self, now: Time) {
        self.pending.retain(|p| p.until > now);
        let due = self.neighbours.iter().filter(|(_, n)| n.next_timeout() <= now);
        let due: Vec<LinkId> = due.map(|(link, _)| *link).collect();
        for link in due {
            self.end_sessions(link, now);
            let Some(neighbour) = self.neighbours.get(&link) else { continue };
            if neighbour.try_at <= now
                && let Some(to) = neighbour.address
            {
                self.greet(link, to, now);
            }
        }
    }

    fn end_sessions(&mut self, link: LinkId, now: Time) {
        let Some(n) = self.neighbours.get_mut(&link) else { return };
        let mut over = Vec::new();
        for slot in [&mut n.previous, &mut n.current, &mut n.next] {
            over.extend(slot.take_if(|live| live.until <= now));
        }
        over.into_iter().for_each(|live| self.retire(link, live.index));
    }

    /// Sends the message that is due: a query to who isn't known, else an
    /// initiation.
    fn greet(&mut self, link: LinkId, to: SocketAddr, now: Time) {
        let jitter = self.entropy.random::<f64>();
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        let known = neighbour.key.zip(neighbour.mac.clone());
        // Sets the time of the next try, and may forget a key in vain.
        neighbour.tried(now, jitter);
        let Some((key, mac)) = known else {
            let Some(mac) = self.query_macs.first() else {
                // Nobody could vouch for it: it has to be configured.
                neighbour.try_at = Time::NEVER;
                return;
            };
            let mut nonce = [0; 8];
            self.entropy.fill_bytes(&mut nonce);
            neighbour.query = Some(nonce);
            let bytes = Query { nonce }.emit(mac);
            self.stats.queries += 1;
            return self.push(Event::Send { to, bytes });
        };
        if self.revoked.contains(&key) {
            neighbour.try_at = Time::NEVER;
            return;
        }
        self.initiate(link, to, now, &key, &mac);
    }

    fn initiate(&mut self, link: LinkId, to: SocketAddr, now: Time, key: &DhKey, mac: &MacKey) {
        let old = self.neighbours.get_mut(&link).and_then(|n| n.attempt.take());
        if let Some(old) = old {
            self.by_index.remove(&old.index);
        }
        self.sent = now.as_nanos().max(self.sent + 1);
        let (sent, index) = (self.sent, self.new_index(link));
        let nonce = self.neighbours.get_mut(&link).and_then(|n| n.nonce.take());
        let Some(payload) = self.payload(link, index, sent, nonce) else { return };
        let written = self.own.initiate(key, &mut self.entropy).and_then(|mut handshake| {
            let noise = handshake.write(&payload)?;
            Ok((handshake, noise))
        });
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        let Ok((handshake, noise)) = written else {
            self.by_index.remove(&index);
            return;
        };
        let bytes = Initiation { cookie: neighbour.cookie(now), noise: &noise }.emit(mac);
        if !neighbour.pay(bytes.len()) {
            // Nothing more may go there unless something comes from there first.
            neighbour.try_at = Time::NEVER;
            self.by_index.remove(&index);
            return;
        }
        let echo = Some(echo_of(&bytes));
        let challenged = nonce.is_some();
        neighbour.attempt = Some(Attempt { handshake, index, to, sent, echo, challenged });
        self.stats.initiations += 1;
        self.push(Event::Send { to, bytes });
    }

    /// What this end says of itself to the link's other.
    pub(super) fn payload(
        &self,
        link: LinkId,
        index: ReceiverIndex,
        sent: u64,
        nonce: Option<[u8; NONCE]>,
    ) -> Option<Vec<u8>> {
        let Neighbour { peer, incarnation, .. } = self.neighbours.get(&link)?;
        let Offer { versions, capabilities } = self.offer;
        let payload = Payload {
            versions,
            index,
            node: self.node,
            incarnation: *incarnation,
            sent,
            capabilities,
            mtu: peer.mtu,
            path: peer.path.clone(),
            certificate: self.certificate.clone(),
            nonce,
        };
        Some(payload.to_bytes())
    }

    /// An index that nothing in this node has.
    pub(super) fn new_index(&mut self, link: LinkId) -> ReceiverIndex {
        // A node has a few indices for each of at most 2¹⁶ links, of 2²⁴.
        loop {
            let index = ReceiverIndex::new(self.entropy.random());
            if let std::collections::btree_map::Entry::Vacant(free) = self.by_index.entry(index) {
                free.insert(link);
                return index;
            }
        }
    }

    pub(super) fn retire(&mut self, link: LinkId, index: ReceiverIndex) {
        self.by_index.remove(&index);
        self.push(Event::Retired { link, index });
    }

    /// Takes note of a session that begins `now`; `live` in the slot that its
    /// role says.
    pub(super) fn live(index: ReceiverIndex, now: Time) -> Live {
        Live { index, since: now, until: now + crate::wire::MAX_AGE, overtaken: false }
    }

    /// Remembers the last initiation of who has no link.
    pub(super) fn remember(&mut self, key: DhKey, path: String, latest: Latest) {
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_first();
        }
        self.seen.insert((key, path), latest);
    }

    pub(super) fn push(&mut self, event: Event) {
        // Only what is for the log may be lost; what else there is, is bounded
        // by links and rates.
        let for_log = matches!(
            event,
            Event::Refused { .. } | Event::OtherKey { .. } | Event::ClockBehind { .. }
        );
        if self.events.len() < MAX_EVENTS || !for_log {
            self.events.push_back(event);
        }
    }
}
