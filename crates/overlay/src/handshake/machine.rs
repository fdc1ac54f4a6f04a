//! The state machine: which neighbours to greet, and when. Received messages are handled in
//! `receive`.

use super::cookie::Cookies;
use super::freshness::{Latest, NONCE};
use super::message::{Initiation, MAX_PATH, Payload, Query, echo_of};
use super::neighbour::{Attempt, Live, Neighbour};
use super::receive::Pending;
use super::stats::{HandshakeStats, RefusedHandshake};
use crate::arena::{Ends, OwnAddresses};
use crate::identity::noise::{NEIGHBOURS, Static};
use crate::identity::{Certificate, DhKey, Identity, MacKey, PublicKey, Trust};
use crate::link::LinkId;
use crate::wire::version::{VersionMismatch, VersionRange};
use crate::wire::{Incarnation, NodeId, ReceiverIndex, SessionKeys};
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{Rng as _, RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use trunkline_base::{Pacer, PerSource, Rate, Time};

/// Age at which a session's initiator replaces it.
pub(super) const REKEY_AFTER: Duration = Duration::from_secs(120);
/// Additional time after which the responder replaces the session, if the initiator hasn't.
pub(super) const RESPONDER_WAITS: Duration = Duration::from_secs(20);
/// Time that a responder waits for the initiator to use the keys before it begins a handshake
/// itself.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// Maximum number of events kept for a driver that doesn't fetch them.
const MAX_EVENTS: usize = 1 << 12;
/// Maximum number of unconfigured peers that have their last initiation remembered.
pub(super) const MAX_SEEN: usize = 1 << 12;

/// Protocol features that a node offers its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offer {
    /// The protocol versions that the node supports.
    pub versions: VersionRange,
    /// Capabilities beyond the version, as bits.
    pub capabilities: u32,
}

/// Limits on the work that others can cause. One handshake takes about 0.3 ms to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Handshakes computed for all addresses together that have shown no cookie.
    pub unknown_peers: Rate,
    /// Handshakes computed for one source network that has shown a cookie.
    pub source: Rate,
    /// Handshakes computed for all networks together that have shown a cookie.
    pub sources: Rate,
    /// Handshakes computed for each neighbour's address, counted separately with and without a
    /// cookie.
    pub neighbour: Rate,
    /// Answers sent in total; none is larger than the message it answers.
    pub answers: Rate,
    /// Maximum number of source networks that are remembered.
    pub table: usize,
    /// Maximum number of certified nodes without a configured link that may wait for admission at
    /// once; 0 admits none.
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

/// Initial configuration of a node's handshakes.
#[derive(Debug)]
pub struct Config {
    /// Id of this node.
    pub node: NodeId,
    /// Key pair of this node.
    pub identity: Identity,
    /// Certificate shown to nodes that don't have this node's key.
    pub certificate: Option<Certificate>,
    /// Trusted operators' keys, and revoked keys.
    pub trust: Trust,
    /// Number of this start of the node; greater than any before.
    pub incarnation: Incarnation,
    /// Protocol features offered to neighbours.
    pub offer: Offer,
    /// Limits on the work that others can cause.
    pub limits: Limits,
}

/// A neighbour over one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Id of the neighbour.
    pub node: NodeId,
    /// Label of the path, the same at both ends, at most 63 bytes.
    pub path: String,
    /// Key of the neighbour; if absent, it must show a certificate.
    pub key: Option<PublicKey>,
    /// Address that the neighbour listens on; if absent, the neighbour has to begin.
    pub address: Option<SocketAddr>,
    /// Largest IP packet on this end of the link, in bytes.
    pub mtu: u16,
}

/// Identifies an unconfigured peer that waits for admission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnconfiguredPeerId(pub(super) u64);

/// A session that a handshake agreed on.
#[derive(Debug)]
pub struct Established {
    /// The link that the session belongs to.
    pub link: LinkId,
    /// Destination of this end's message. The other end is known to be there if it has answered
    /// (this end began), or else once it uses the session.
    pub address: SocketAddr,
    /// Keys for [`Sealed::install`](crate::wire::Sealed::install), with the peer's start and this
    /// end's role.
    pub keys: SessionKeys,
    /// The protocol version to use.
    pub version: u8,
    /// Capabilities that both ends have.
    pub capabilities: u32,
    /// Largest IP packet that the other end accepts, in bytes.
    pub mtu: u16,
    /// Public key of the other end.
    pub key: PublicKey,
    /// Certificate of the other end, if its key is not configured.
    pub certificate: Option<Certificate>,
}

/// Where a handshake message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To the neighbour of a link, which it is to bring up, at this address.
    Link(LinkId, SocketAddr),
    /// Back to the sender of a message between these ends.
    Answer(Ends),
}

impl Destination {
    /// Address that the message goes to.
    pub fn address(self) -> SocketAddr {
        match self {
            Destination::Link(_, address) => address,
            Destination::Answer(ends) => ends.remote,
        }
    }
}

/// Outcome of the handshakes, for the driver.
#[derive(Debug)]
pub enum Event {
    /// A datagram to send.
    Send {
        /// Destination of the datagram.
        to: Destination,
        /// Contents of the datagram.
        bytes: Vec<u8>,
    },
    /// A link has a new session: install it in the link's seal, and map `keys.local` to the link.
    Established(Box<Established>),
    /// No envelope with this index will arrive for the link any more.
    Retired {
        /// The link that had the index.
        link: LinkId,
        /// The index, which others may use now.
        index: ReceiverIndex,
    },
    /// A certified node without a configured link wants to become a neighbour;
    /// [`Handshakes::admit`] accepts it, within 5 s.
    UnconfiguredPeer {
        /// Id to pass to [`Handshakes::admit`].
        id: UnconfiguredPeerId,
        /// Id of the node.
        node: NodeId,
        /// Name of the node in its certificate.
        name: String,
        /// Label of the path.
        path: String,
        /// Key of the node.
        key: PublicKey,
        /// Address of the node.
        address: SocketAddr,
    },
    /// All sessions of a link are void at once because its neighbour is no longer trusted.
    Closed {
        /// The link that has lost its sessions.
        link: LinkId,
        /// Reason for the loss of trust.
        why: RefusedHandshake,
    },
    /// A neighbour shows a different key than before, also certified: for the log. Either it was
    /// given a new one, or two nodes have the same id.
    OtherKey {
        /// Id of the node.
        node: NodeId,
        /// Name of the node in its certificate.
        name: String,
        /// Source of the message.
        from: SocketAddr,
    },
    /// An initiation has an earlier stamp than others of its sender, but is no copy: for the log,
    /// once for each start. Either the sender's clock went back, or the sender had another key
    /// then.
    ClockBehind {
        /// Id of the other node.
        node: NodeId,
        /// Address of the other node.
        from: SocketAddr,
        /// Whether the other node has challenged an initiation of this node.
        own: bool,
    },
    /// A message was refused: for the log.
    Refused {
        /// Source of the refused message.
        from: SocketAddr,
        /// Id that the sender claims. `None` for a message that is not for this node's key, and so
        /// can't be read; that is reported at most once a second.
        node: Option<NodeId>,
        /// Reason for the refusal.
        why: RefusedHandshake,
        /// The versions of both nodes, if the reason is [`RefusedHandshake::Version`].
        versions: Option<VersionMismatch>,
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
    /// One MAC key for each overlay key.
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
    /// Time at which a wrong MAC is reported again.
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
    /// Creates a node without neighbours. `entropy` must come from a cryptographic source and never
    /// be reused: all keys, cookies and indices are derived from it.
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

    /// Adds a link, or replaces its settings. Its handshake begins at once if possible.
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

    /// Removes a link; its sessions end.
    pub fn remove(&mut self, link: LinkId) {
        let Some(neighbour) = self.neighbours.remove(&link) else { return };
        // A new link with this number restarts its packet numbers. The neighbour, which may still
        // have the old link, treats that as a restart.
        self.incarnation.0 += 1;
        self.by_address.retain(|_, l| *l != link);
        if let (Some(key), Some(latest)) = (neighbour.key, neighbour.latest) {
            self.remember(key, neighbour.peer.path.clone(), latest);
        }
        for index in neighbour.indices() {
            self.retire(link, index);
        }
    }

    /// Replaces the trusted operators and revoked keys. Neighbours that are no longer trusted lose
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
            // A neighbour that was revoked, or that could not be queried, may be trusted now.
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

    /// Shows `certificate`, which must be for this node and its key, in every handshake from now
    /// on. Sessions continue; neighbours see it when they replace keys, and those without a session
    /// at once.
    pub fn set_certificate(&mut self, certificate: Certificate, now: Time) {
        self.certificate = Some(certificate);
        for neighbour in self.neighbours.values_mut() {
            // The previous handshake may have ended.
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

    /// Records the validated address of the neighbour.
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

    /// Binds a link to own addresses, or to none: the neighbour's initiations to others are refused.
    pub fn bind(&mut self, link: LinkId, own: Option<OwnAddresses>) {
        if let Some(neighbour) = self.neighbours.get_mut(&link) {
            neighbour.own = own;
        }
    }

    /// Begins a handshake with a neighbour that may be at `address` instead of where it was.
    pub fn try_address(&mut self, now: Time, link: LinkId, address: SocketAddr) {
        self.set_address(link, address);
        if let Some(neighbour) = self.neighbours.get_mut(&link) {
            neighbour.peer.address = Some(address);
            neighbour.try_at = now;
        }
    }

    /// Handles the first use of a session's keys by the initiator of the link's last handshake.
    pub fn confirmed(&mut self, link: LinkId) {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        let Some((live, out)) = neighbour.confirm() else { return };
        neighbour.rest_until(live.since + REKEY_AFTER + RESPONDER_WAITS);
        // The initiator has received the response.
        neighbour.credit = None;
        // This attempt is useless now. If it stayed open, an attacker that recorded it could have
        // it answered much later.
        let moot = neighbour.attempt.take();
        if let Some(out) = out {
            self.retire(link, out.index);
        }
        if let Some(moot) = moot {
            self.by_index.remove(&moot.index);
        }
    }

    /// Notes that the neighbour has answered on the link: it knows the session.
    pub fn up(&mut self, link: LinkId, now: Time) {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        neighbour.is_up = true;
        if let Some(live) = neighbour.current
            && neighbour.attempt.is_none()
            && neighbour.try_at > now
        {
            neighbour.try_at = neighbour.try_at.max(live.since + REKEY_AFTER);
        }
    }

    /// Begins a handshake, unless one is in progress, because the link has died.
    pub fn down(&mut self, link: LinkId, now: Time) {
        if let Some(neighbour) = self.neighbours.get_mut(&link) {
            neighbour.is_up = false;
        }
        self.restart(link, now);
    }

    /// Begins a handshake, unless one is in progress, because the link has died or wants new keys.
    pub fn restart(&mut self, link: LinkId, now: Time) {
        if let Some(neighbour) = self.neighbours.get_mut(&link) {
            neighbour.try_at = neighbour.try_at.min(now);
        }
    }

    /// The certificate that this node shows.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Counters of these handshakes.
    pub fn stats(&self) -> &HandshakeStats {
        &self.stats
    }

    /// The next event that the input so far has caused.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time of the next call of [`Handshakes::handle_timeout`].
    pub fn next_timeout(&self) -> Time {
        let links = self.neighbours.values().map(Neighbour::next_timeout);
        let pending = self.pending.iter().map(|p| p.until);
        links.chain(pending).min().unwrap_or(Time::NEVER)
    }

    /// Sends the messages that are due, and ends handshakes and sessions that have expired.
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

    /// Sends the message that is due: a query to a neighbour with an unknown key, otherwise an
    /// initiation.
    fn greet(&mut self, link: LinkId, to: SocketAddr, now: Time) {
        let jitter = self.entropy.random::<f64>();
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        let known = neighbour.key.zip(neighbour.mac.clone());
        // Sets the time of the next try, and may forget a key that got no response.
        neighbour.tried(now, jitter);
        let Some((key, mac)) = known else {
            let Some(mac) = self.query_macs.first() else {
                // No trusted operator could certify it, so the neighbour has to be configured.
                neighbour.try_at = Time::NEVER;
                return;
            };
            let mut nonce = [0; 8];
            self.entropy.fill_bytes(&mut nonce);
            neighbour.query = Some(nonce);
            let bytes = Query { nonce }.emit(mac);
            self.stats.queries += 1;
            return self.push(Event::Send { to: Destination::Link(link, to), bytes });
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
            // Nothing more may be sent there until something arrives from there.
            neighbour.try_at = Time::NEVER;
            self.by_index.remove(&index);
            return;
        }
        let echo = Some(echo_of(&bytes));
        let challenged = nonce.is_some();
        neighbour.attempt = Some(Attempt { handshake, index, to, sent, echo, challenged });
        self.stats.initiations += 1;
        self.push(Event::Send { to: Destination::Link(link, to), bytes });
    }

    /// This end's payload for the other end of the link.
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

    /// A receiver index that is unused in this node.
    pub(super) fn new_index(&mut self, link: LinkId) -> ReceiverIndex {
        // A node uses a few indices for each of at most 2¹⁶ links, out of 2²⁴.
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

    /// A session that begins at `now` and ends after the maximum age.
    pub(super) fn live(index: ReceiverIndex, now: Time) -> Live {
        Live { index, since: now, until: now + crate::wire::MAX_AGE, overtaken: false }
    }

    /// Remembers the last initiation of a peer without a link.
    pub(super) fn remember(&mut self, key: DhKey, path: String, latest: Latest) {
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_first();
        }
        self.seen.insert((key, path), latest);
    }

    pub(super) fn push(&mut self, event: Event) {
        // Only events for the log may be lost; links and rates bound the number of all others.
        let for_log = matches!(
            event,
            Event::Refused { .. } | Event::OtherKey { .. } | Event::ClockBehind { .. }
        );
        if self.events.len() < MAX_EVENTS || !for_log {
            self.events.push_back(event);
        }
    }
}
