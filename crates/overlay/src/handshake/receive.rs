//! Handling of received messages, cheapest check first.

use super::cookie::COOKIE_SECRET;
use super::freshness::{Freshness, Latest};
use super::machine::{
    CONFIRM_WITHIN, Destination, Established, Event, Handshakes, Peer, REKEY_AFTER,
    UnconfiguredPeerId,
};
use super::message::{Answer, COOKIE, Initiation, Payload, Query, Response, echo_of};
use super::neighbour::{FACTOR, FIRST_RETRY, Neighbour};
use super::stats::RefusedHandshake;
use crate::arena::Ends;
use crate::identity::noise::Handshake;
use crate::identity::{Certificate, CertificateError, DhKey, MacKey, PublicKey};
use crate::link::LinkId;
use crate::wire::version::{VersionMismatch, VersionRange};
use crate::wire::{Kind, NodeId, ReceiverIndex, Role, SessionKeys};
use core::net::SocketAddr;
use core::time::Duration;
use rand::RngExt;
use trunkline_base::Time;

/// Time that an unconfigured peer may wait for admission.
const PENDING_FOR: Duration = Duration::from_secs(5);
/// Time for which the end with the lower key doesn't answer the other end's handshake while its own
/// awaits an answer.
const PRECEDENCE: Duration = Duration::from_secs(1);

/// An unconfigured peer that waits for admission after its initiation has been read.
#[derive(Debug)]
pub(super) struct Pending {
    id: UnconfiguredPeerId,
    key: DhKey,
    certificate: Certificate,
    handshake: Handshake,
    payload: Payload,
    ends: Ends,
    len: usize,
    pub until: Time,
}

/// The parts of an initiation that are needed to answer it.
pub(super) struct Opened {
    pub handshake: Handshake,
    pub key: DhKey,
    pub payload: Payload,
    pub ends: Ends,
    /// Length of the datagram, in bytes.
    pub len: usize,
}

/// Minimum interval between two events about a wrong MAC.
const BAD_MAC_AGAIN: Duration = Duration::from_secs(1);

impl Handshakes {
    /// Takes a datagram for which [`Kind::is_handshake`] is true. `unix_secs` (seconds since 1970)
    /// is for the expiry of certificates.
    pub fn recv(&mut self, now: Time, unix_secs: u64, ends: impl Into<Ends>, bytes: &[u8]) {
        self.stats.received += 1;
        let ends = ends.into();
        let from = ends.remote;
        let done = match Kind::of(bytes) {
            Ok(Kind::Query) => self.on_query(now, ends, bytes),
            Ok(Kind::Answer) => self.on_answer(now, unix_secs, from, bytes),
            Ok(Kind::Initiation) => self.on_initiation(now, unix_secs, ends, bytes),
            Ok(Kind::Response) => self.on_response(now, unix_secs, from, bytes),
            Ok(Kind::Challenge) => self.on_challenge(now, from, bytes),
            Ok(Kind::Null | Kind::Aead) | Err(_) => Err(RefusedHandshake::Malformed),
        };
        if let Err(why) = done {
            self.stats.refuse(why);
            // Anyone can send any number of these, so the log gets only an occasional line.
            if why == RefusedHandshake::BadMac && now >= self.tell_bad_mac {
                self.tell_bad_mac = now + BAD_MAC_AGAIN;
                self.report_refusal(from, None, why, None);
            }
        }
    }

    /// Reports a refusal for the log; `other` are the versions that the sender supports, if known.
    fn report_refusal(
        &mut self,
        from: SocketAddr,
        node: Option<NodeId>,
        why: RefusedHandshake,
        other: Option<VersionRange>,
    ) {
        let own = self.offer.versions;
        let versions = other.filter(|_| why == RefusedHandshake::Version);
        let versions = versions.map(|other| VersionMismatch { own, other });
        self.push(Event::Refused { from, node, why, versions });
    }

    /// Makes an unconfigured peer the neighbour of `link`, which is new. Returns false if the peer
    /// has waited too long; it will try again.
    pub fn admit(
        &mut self,
        unconfigured_peer: UnconfiguredPeerId,
        link: LinkId,
        mtu: u16,
        now: Time,
    ) -> bool {
        let Some(at) = self.pending.iter().position(|p| p.id == unconfigured_peer && p.until > now)
        else {
            return false;
        };
        let Pending { key, certificate, handshake, payload, ends, len, .. } =
            self.pending.remove(at);
        let (node, path, versions) = (payload.node, payload.path.clone(), payload.versions);
        // Adding it twice would be a restart that the link itself doesn't notice.
        if !self.neighbours.contains_key(&link) {
            self.add(link, Peer { node, path, key: None, address: None, mtu }, now);
        }
        if let Some(neighbour) = self.neighbours.get_mut(&link) {
            // Forgotten only if very many others have arrived since.
            let latest = self.seen.get(&(key, payload.path.clone())).copied();
            neighbour.latest = latest.or_else(|| Some(Latest::new(key, &payload)));
            neighbour.learn(certificate);
        }
        let answered = self.answer(now, link, Opened { handshake, key, payload, ends, len });
        if let Err(why) = answered {
            self.stats.refuse(why);
            self.report_refusal(ends.remote, Some(node), why, Some(versions));
        }
        answered.is_ok()
    }

    /// Refuses an unconfigured peer that waits for admission.
    pub fn turn_away(&mut self, unconfigured_peer: UnconfiguredPeerId) {
        let waiting = self.pending.len();
        self.pending.retain(|p| p.id != unconfigured_peer);
        if self.pending.len() < waiting {
            self.stats.refuse(RefusedHandshake::UnconfiguredPeersFull);
        }
    }

    fn on_query(&mut self, now: Time, ends: Ends, bytes: &[u8]) -> Result<(), RefusedHandshake> {
        let query = Query::parse(bytes).map_err(|_| RefusedHandshake::Malformed)?;
        let mac =
            self.query_macs.iter().find(|mac| mac.check(bytes)).ok_or(RefusedHandshake::BadMac)?;
        let certificate = self.certificate.as_ref().ok_or(RefusedHandshake::NoCertificate)?;
        if !self.answers.admit(now, 1) {
            return Err(RefusedHandshake::RateLimited);
        }
        let entropy = &mut self.entropy;
        self.cookies.rotate(now, || entropy.random());
        let certificate = certificate.to_bytes();
        let cookie = self.cookies.make(ends.remote);
        let answer = Answer { echo: query.nonce, cookie, certificate: &certificate };
        let bytes = answer.emit(mac);
        self.stats.answers += 1;
        self.push(Event::Send { to: Destination::Answer(ends), bytes });
        Ok(())
    }

    fn on_answer(
        &mut self,
        now: Time,
        unix_secs: u64,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), RefusedHandshake> {
        let answer = Answer::parse(bytes).map_err(|_| RefusedHandshake::Malformed)?;
        let asked = |n: &Neighbour| n.query == Some(answer.echo);
        let tried = |n: &Neighbour| n.attempt.as_ref().is_some_and(|a| a.echo == Some(answer.echo));
        let mut links = self.neighbours.iter_mut();
        let found = links.find(|(_, n)| asked(n) || tried(n));
        let (_, neighbour) = found.ok_or(RefusedHandshake::Unexpected)?;
        if tried(neighbour) {
            if !neighbour.mac.as_ref().is_some_and(|mac| mac.check(bytes)) {
                return Err(RefusedHandshake::BadMac);
            }
            if let Some(attempt) = &mut neighbour.attempt {
                attempt.echo = None;
            }
        } else {
            if !self.query_macs.iter().any(|mac| mac.check(bytes)) {
                return Err(RefusedHandshake::BadMac);
            }
            let certificate = Certificate::parse(answer.certificate);
            let certificate = certificate.map_err(|_| RefusedHandshake::WrongCertificate)?;
            let key = certificate.dh().ok_or(RefusedHandshake::WrongCertificate)?;
            let expected = neighbour.peer.node;
            let believed = match self.revoked.contains(&key) {
                true => Err(RefusedHandshake::Revoked),
                false => certificate.check(expected, key, &self.trust.overlay_keys, unix_secs),
            };
            if let Err(why) = believed {
                // If a configuration file names the wrong neighbour, only this event shows it.
                self.report_refusal(from, Some(certificate.node()), why, None);
                return Err(why);
            }
            neighbour.query = None;
            neighbour.hear(certificate);
            // The neighbour is there, so the next message does not count as another failed try.
            if neighbour.next.is_none() {
                neighbour.rest_until(now);
            }
        }
        // With the cookie, the next try may succeed.
        neighbour.set_cookie(answer.cookie, now + COOKIE_SECRET);
        if neighbour.next.is_none() {
            neighbour.try_at = now;
        }
        Ok(())
    }

    fn on_initiation(
        &mut self,
        now: Time,
        unix_secs: u64,
        ends: Ends,
        bytes: &[u8],
    ) -> Result<(), RefusedHandshake> {
        let initiation = Initiation::parse(bytes).map_err(|_| RefusedHandshake::Malformed)?;
        if !self.own_mac.check(bytes) {
            return Err(RefusedHandshake::BadMac);
        }
        self.afford(now, ends, &initiation.cookie, bytes)?;
        self.stats.computed += 1;
        let mut handshake =
            self.own.respond(&mut self.entropy).map_err(|_| RefusedHandshake::Forged)?;
        let payload = handshake.read(initiation.noise).map_err(|_| RefusedHandshake::Forged)?;
        let key = handshake.peer().ok_or(RefusedHandshake::Forged)?;
        let payload = Payload::parse(&payload).map_err(|_| RefusedHandshake::Malformed)?;
        let (node, versions) = (payload.node, payload.versions);
        let opened = Opened { handshake, key, payload, ends, len: bytes.len() };
        self.identified(now, unix_secs, opened).inspect_err(|why| {
            // A copy or a race is not worth a log line.
            if !matches!(why, RefusedHandshake::Replayed | RefusedHandshake::Simultaneous) {
                self.report_refusal(ends.remote, Some(node), *why, Some(versions));
            }
        })
    }

    /// Whether the curve may be computed for `from`. Unknown peers share one budget, and need a
    /// cookie beyond it.
    fn afford(
        &mut self,
        now: Time,
        ends: Ends,
        cookie: &[u8; COOKIE],
        bytes: &[u8],
    ) -> Result<(), RefusedHandshake> {
        let from = ends.remote;
        let entropy = &mut self.entropy;
        self.cookies.rotate(now, || entropy.random());
        let link = self.by_address.get(&from);
        let neighbour = link.and_then(|link| self.neighbours.get_mut(link));
        if self.cookies.check(from, cookie) {
            let affordable = match neighbour {
                Some(neighbour) => neighbour.proven.admit(now, 1),
                None => self.sources.admit(now, from) && self.proven.admit(now, 1),
            };
            return if affordable { Ok(()) } else { Err(RefusedHandshake::RateLimited) };
        }
        if neighbour.is_some_and(|n| n.unproven.admit(now, 1)) || self.unknown_peers.admit(now, 1) {
            return Ok(());
        }
        if self.answers.admit(now, 1) {
            let (echo, cookie) = (echo_of(bytes), self.cookies.make(from));
            let bytes = Answer { echo, cookie, certificate: &[] }.emit(&self.own_mac);
            self.stats.answers += 1;
            self.push(Event::Send { to: Destination::Answer(ends), bytes });
        }
        Err(RefusedHandshake::NoCookie)
    }

    /// Finds the node that has `key`, which Noise has shown the sender to have.
    fn identified(
        &mut self,
        now: Time,
        unix_secs: u64,
        opened: Opened,
    ) -> Result<(), RefusedHandshake> {
        let Opened { key, ref payload, .. } = opened;
        if self.revoked.contains(&key) {
            return Err(RefusedHandshake::Revoked);
        }
        let is_it = |n: &Neighbour| n.peer.node == payload.node && n.peer.path == payload.path;
        let Some((&link, neighbour)) = self.neighbours.iter_mut().find(|(_, n)| is_it(n)) else {
            return self.unconfigured_peer(now, unix_secs, opened);
        };
        let shown = match neighbour.peer.key {
            Some(_) if neighbour.key == Some(key) => None,
            Some(_) => return Err(RefusedHandshake::UnknownKey),
            None => {
                let certificate =
                    payload.certificate.clone().ok_or(RefusedHandshake::UnknownKey)?;
                let keys = &self.trust.overlay_keys;
                certificate.check(payload.node, key, keys, unix_secs)?;
                Some(certificate)
            }
        };
        let mut latest = neighbour.latest;
        let behind = match &mut latest {
            Some(latest) => match latest.judge(now, key, payload, &mut self.entropy) {
                Freshness::Challenge(nonce) => {
                    neighbour.latest = Some(*latest);
                    return self.challenge(now, opened, &nonce);
                }
                Freshness::Counts { behind } => behind,
            },
            none => {
                *none = Some(Latest::new(key, payload));
                false
            }
        };
        // Not earlier: only the neighbour itself is told. A copy says nothing about its path.
        if neighbour.own.as_ref().is_some_and(|own| !own.include(&opened.ends)) {
            return Err(RefusedHandshake::OtherPath);
        }
        neighbour.latest = latest;
        let is_news =
            behind && neighbour.told.replace(payload.incarnation) != Some(payload.incarnation);
        let mut other = None;
        // Not earlier: a copy would show an old certificate, and perhaps an old key.
        if let Some(certificate) = shown {
            if neighbour.key.is_some_and(|before| before != key) {
                // The handshake in progress uses the neighbour's old key.
                neighbour.query = None;
                other = Some(certificate.name().to_owned());
            }
            neighbour.learn(certificate);
        }
        let waiting = neighbour.attempt.is_some() && neighbour.trying_for(now) < PRECEDENCE;
        if let Some(name) = other {
            let (node, from) = (opened.payload.node, opened.ends.remote);
            self.push(Event::OtherKey { node, name, from });
        }
        if is_news {
            let (node, from) = (opened.payload.node, opened.ends.remote);
            self.push(Event::ClockBehind { node, from, own: false });
        }
        if waiting && self.own.public() < key {
            return Err(RefusedHandshake::Simultaneous);
        }
        self.answer(now, link, opened)
    }

    fn unconfigured_peer(
        &mut self,
        now: Time,
        unix_secs: u64,
        opened: Opened,
    ) -> Result<(), RefusedHandshake> {
        let Opened { key, ref payload, ends, .. } = opened;
        let from = ends.remote;
        let certificate = payload.certificate.clone().ok_or(RefusedHandshake::UnknownKey)?;
        certificate.check(payload.node, key, &self.trust.overlay_keys, unix_secs)?;
        if payload.node == self.node || !payload.node.is_nodes() {
            return Err(RefusedHandshake::WrongCertificate);
        }
        let (node, path) = (payload.node, payload.path.clone());
        let mut latest = self.seen.get(&(key, path.clone())).copied();
        if let Some(latest) = &mut latest {
            let verdict = latest.judge(now, key, payload, &mut self.entropy);
            self.seen.insert((key, path.clone()), *latest);
            match verdict {
                Freshness::Challenge(nonce) => return self.challenge(now, opened, &nonce),
                Freshness::Counts { behind: false } => {}
                Freshness::Counts { .. } => {
                    self.push(Event::ClockBehind { node, from, own: false })
                }
            }
        }
        let Opened { handshake, payload, len, .. } = opened;
        self.pending.retain(|p| (p.key != key || p.payload.path != path) && p.until > now);
        if self.pending.len() >= self.limits.unconfigured_peers {
            return Err(RefusedHandshake::UnconfiguredPeersFull);
        }
        self.remember(key, path.clone(), latest.unwrap_or_else(|| Latest::new(key, &payload)));
        let id = UnconfiguredPeerId(self.next_unconfigured_peer);
        self.next_unconfigured_peer += 1;
        let name = certificate.name().to_owned();
        let public = certificate.key();
        let until = now + PENDING_FOR;
        self.pending.push(Pending { id, key, certificate, handshake, payload, ends, len, until });
        self.push(Event::UnconfiguredPeer { id, node, name, path, key: public, address: from });
        Ok(())
    }

    /// Sends the response, and passes the session to the link.
    fn answer(&mut self, now: Time, link: LinkId, opened: Opened) -> Result<(), RefusedHandshake> {
        let Opened { mut handshake, key, payload, ends, len } = opened;
        let from = ends.remote;
        let index = self.new_index(link);
        let own =
            self.payload(link, index, payload.sent, None).ok_or(RefusedHandshake::UnknownKey)?;
        let written = handshake.write(&own).and_then(|noise| Ok((noise, handshake.split()?)));
        let Ok((noise, [forth, back])) = written else {
            self.by_index.remove(&index);
            return Err(RefusedHandshake::Forged);
        };
        let response = Response { receiver: payload.index, noise: &noise };
        let bytes = response.emit(&MacKey::for_dh(&key));
        let response = bytes.len();
        self.stats.responses += 1;
        self.push(Event::Send { to: Destination::Answer(ends), bytes });
        // Checked only now, so that the other end learns the reason, too.
        let Some(version) = self.offer.versions.common(payload.versions) else {
            self.by_index.remove(&index);
            return Err(RefusedHandshake::Version);
        };
        let spread = CONFIRM_WITHIN.mul_f64(self.entropy.random::<f64>() / 4.0);
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return Ok(()) };
        if neighbour.address.is_none() {
            (neighbour.address, neighbour.credit) = (Some(from), Some(0));
            self.by_address.insert(from, link);
        }
        if let Some(credit) = neighbour.credit.as_mut().filter(|_| neighbour.address == Some(from))
        {
            *credit = (*credit + FACTOR * len).saturating_sub(response);
        }
        // Until the other end has used the keys, this may be a copy of a message to an earlier
        // start of this node. A copy must not keep a link down.
        match (neighbour.current, neighbour.next) {
            (Some(_), _) => neighbour.rest_until(now + CONFIRM_WITHIN + spread),
            (None, None) => neighbour.rest_until(now + FIRST_RETRY + spread / 8),
            (None, Some(_)) => {}
        }
        let unused = neighbour.next.replace(Handshakes::live(index, now));
        if let Some(unused) = unused {
            self.retire(link, unused.index);
        }
        let keys = SessionKeys {
            local: index,
            remote: payload.index,
            send: back,
            recv: forth,
            role: Role::Responder,
            peer: payload.incarnation,
        };
        self.established(link, from, keys, version, &payload);
        Ok(())
    }

    fn on_response(
        &mut self,
        now: Time,
        unix_secs: u64,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), RefusedHandshake> {
        let response = Response::parse(bytes).map_err(|_| RefusedHandshake::Malformed)?;
        if !self.own_mac.check(bytes) {
            return Err(RefusedHandshake::BadMac);
        }
        let link = *self.by_index.get(&response.receiver).ok_or(RefusedHandshake::Unexpected)?;
        let neighbour = self.neighbours.get_mut(&link).ok_or(RefusedHandshake::Unexpected)?;
        let is_it = |a: &&mut super::neighbour::Attempt| a.index == response.receiver;
        let attempt =
            neighbour.attempt.as_mut().filter(is_it).ok_or(RefusedHandshake::Unexpected)?;
        self.stats.computed += 1;
        let payload =
            attempt.handshake.read(response.noise).map_err(|_| RefusedHandshake::Forged)?;
        // This handshake ends, whatever the response contains.
        let key = attempt.handshake.peer().ok_or(RefusedHandshake::Forged)?;
        let sent = attempt.sent;
        let Some(attempt) = neighbour.attempt.take() else {
            return Err(RefusedHandshake::Unexpected);
        };
        let payload = Payload::parse(&payload).map_err(|_| RefusedHandshake::Malformed);
        let versions = payload.as_ref().ok().map(|payload| payload.versions);
        let taken = payload.and_then(|payload| {
            let version = self.concluded(unix_secs, link, key, sent, &payload)?;
            Ok((payload, version))
        });
        let (payload, version) = taken.inspect_err(|why| {
            self.by_index.remove(&response.receiver);
            let node = self.neighbours.get(&link).map(|n| n.peer.node);
            self.report_refusal(from, node, *why, versions);
        })?;
        let [forth, back] = attempt.handshake.split().map_err(|_| RefusedHandshake::Forged)?;
        // The sender of this response has received the initiation at that address, whatever the
        // response's source.
        self.set_address(link, attempt.to);
        self.initiator_live(now, link, attempt.index);
        let keys = SessionKeys {
            local: attempt.index,
            remote: payload.index,
            send: forth,
            recv: back,
            role: Role::Initiator,
            peer: payload.incarnation,
        };
        self.established(link, attempt.to, keys, version, &payload);
        Ok(())
    }

    /// Checks that the responder is the expected one, and returns the agreed version.
    fn concluded(
        &mut self,
        unix_secs: u64,
        link: LinkId,
        key: DhKey,
        sent: u64,
        payload: &Payload,
    ) -> Result<u8, RefusedHandshake> {
        let neighbour = self.neighbours.get_mut(&link).ok_or(RefusedHandshake::Unexpected)?;
        if payload.sent != sent || payload.path != neighbour.peer.path {
            return Err(RefusedHandshake::Malformed);
        }
        if self.revoked.contains(&key) {
            return Err(RefusedHandshake::Revoked);
        }
        if payload.node != neighbour.peer.node {
            return Err(RefusedHandshake::WrongCertificate);
        }
        if neighbour.peer.key.is_none() {
            let certificate =
                payload.certificate.clone().ok_or(RefusedHandshake::WrongCertificate)?;
            certificate.check(payload.node, key, &self.trust.overlay_keys, unix_secs)?;
            neighbour.learn(certificate);
        }
        self.offer.versions.common(payload.versions).ok_or(RefusedHandshake::Version)
    }

    fn initiator_live(&mut self, now: Time, link: LinkId, index: ReceiverIndex) {
        let Some(neighbour) = self.neighbours.get_mut(&link) else { return };
        let rest = if neighbour.is_up { REKEY_AFTER } else { CONFIRM_WITHIN };
        neighbour.rest_until(now + rest);
        if let Some(out) = neighbour.begin(Handshakes::live(index, now)) {
            self.retire(link, out.index);
        }
    }

    fn established(
        &mut self,
        link: LinkId,
        address: SocketAddr,
        keys: SessionKeys,
        version: u8,
        payload: &Payload,
    ) {
        let Some(neighbour) = self.neighbours.get(&link) else { return };
        let certificate = neighbour.certificate.clone();
        let key = neighbour.peer.key.or(certificate.as_ref().map(Certificate::key));
        let Some(key) = key else { return };
        self.stats.established += 1;
        let before = match keys.role {
            Role::Initiator => neighbour.previous,
            Role::Responder => neighbour.current,
        };
        self.stats.rekeyed += u64::from(before.is_some());
        let capabilities = self.offer.capabilities & payload.capabilities;
        let mtu = payload.mtu;
        let established =
            Established { link, address, keys, version, capabilities, mtu, key, certificate };
        self.push(Event::Established(Box::new(established)));
    }
}

impl Certificate {
    /// Checks that this certificate is valid and binds `key` to `node`.
    fn check(
        &self,
        node: NodeId,
        key: DhKey,
        overlay_keys: &[PublicKey],
        unix_secs: u64,
    ) -> Result<(), RefusedHandshake> {
        if self.node() != node || self.dh() != Some(key) {
            return Err(RefusedHandshake::WrongCertificate);
        }
        self.verify(overlay_keys, unix_secs).map_err(|why| match why {
            CertificateError::Expired(..) => RefusedHandshake::Expired,
            _ => RefusedHandshake::WrongCertificate,
        })
    }
}
