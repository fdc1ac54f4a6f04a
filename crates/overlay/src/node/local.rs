//! The node's interface to its applications.

use super::Forwarder;
use super::access::Rights;
use crate::counters::DropReason;
use crate::link::Packet;
use crate::session::flows::Ends;
use crate::session::wire::{MAX_HEAD, RefusalReason, ToClient, ToNode};
use crate::session::{Cause, Client, SessionId};
use crate::wire::{FlowHeader, NodeId, Service};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// Result of handing over a message between a node and an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// The recipient has the message.
    Accepted,
    /// There was no room for it, so the caller still has it.
    Backpressure,
}

/// Takes session messages from a node and passes them to applications.
pub trait Sink {
    /// Hands over one message, `head` followed by `payload`; never blocks.
    ///
    /// Returns `Backpressure` if the application does not keep up: the memory for unread messages must be
    /// bounded for each session separately. The node keeps no packet for later: a packet is dropped
    /// and counted, in total ([`DropReason::SessionFull`]) and in its flow. Notifications about
    /// destinations ([`ToClient::Unreachable`] and [`ToClient::Reachable`]) are sent again later.
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome;
}

/// Sends `message`, which has the payload `payload`, to a session.
pub(super) fn say(
    sink: &mut impl Sink,
    to: SessionId,
    message: &ToClient<'_>,
    payload: &[u8],
) -> SendOutcome {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    // Every head fits in MAX_HEAD; the round-trip tests check that.
    match message.emit_head(&mut w) {
        Ok(()) => sink.deliver(to, w.written(), payload),
        Err(_) => SendOutcome::Backpressure,
    }
}

impl Forwarder {
    /// Delivers `packet` to the application that holds its destination port.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let h = &packet.flow;
        if h.source != self.id {
            self.access.check_from(h.source)?;
        }
        let session = self.sessions.holder(h.destination_port).ok_or(DropReason::NoPort)?;
        if self.streams.table.role(session).is_some() {
            return Err(DropReason::NoPort);
        }
        let peer = (h.source, h.source_port);
        if !self.sessions.is_new(now, packet.deadline, session, peer, (h.service, h.flow_seq)) {
            return Err(DropReason::FlowDuplicate);
        }
        self.flow_received(now, packet);
        let message = ToClient::Received {
            service: h.service,
            recovered: packet.recovered,
            remaining_ms: crate::link::remaining_ms(now, packet.deadline),
            flow_seq: h.flow_seq,
            from: h.source,
            port: h.source_port,
            payload: packet.payload,
        };
        if say(sink, session, &message, packet.payload) == SendOutcome::Backpressure {
            self.flow_not_taken(packet);
            return Err(DropReason::SessionFull);
        }
        self.stats.to_sessions += 1;
        self.note_heard(now, (session, (h.source, h.source_port)), sink);
        Ok(())
    }

    /// Processes a message from an application.
    pub(super) fn session_recv(
        &mut self,
        now: Time,
        id: SessionId,
        message: &[u8],
        sink: &mut impl Sink,
    ) -> SendOutcome {
        let about = |refusal, node, port| ToClient::Error { refusal, node, port };
        let none = NodeId::NONE;
        let reply = match ToNode::parse(message) {
            Err(_) => {
                self.stats.drops.count(DropReason::Malformed);
                Some(about(RefusalReason::Malformed, none, 0))
            }
            Ok(ToNode::Bind { version, port }) => Some(match self.bind(id, version, port) {
                Ok(port) => {
                    // A payload never exceeds 9,000 bytes.
                    let max_payload = u16::try_from(self.max_payload).unwrap_or(u16::MAX);
                    ToClient::Bound { node: self.id, port, max_payload }
                }
                Err(refusal) => about(refusal, none, port),
            }),
            Ok(ToNode::Metric(metric)) => {
                self.sessions.set_metric(id, metric);
                None
            }
            Ok(ToNode::Late(on)) => {
                self.sessions.set_late(id, on);
                None
            }
            Ok(ToNode::Blocking(on)) => {
                self.sessions.set_blocking(id, on);
                None
            }
            Ok(ToNode::Send { service, deadline_ms, to, port, payload }) => {
                if self.holds_back(id, service, to) {
                    return SendOutcome::Backpressure;
                }
                let done = self.begin(now, id, service, (to, port)).and_then(|flow| {
                    let deadline = now + Duration::from_millis(u64::from(deadline_ms));
                    let packet = Packet::new(flow, payload, deadline);
                    self.originate(now, id, &packet, sink)
                });
                done.err().map(|why| about(why, to, port))
            }
            Ok(ToNode::Stream(request)) => {
                self.stream_request(now, id, request);
                self.tell_streams(now, sink);
                None
            }
        };
        if let Some(reply) = reply
            && say(sink, id, &reply, &[]) == SendOutcome::Backpressure
        {
            self.stats.drops.count(DropReason::SessionFull);
        }
        SendOutcome::Accepted
    }

    /// The rights of session `id`, if it may bind `port`.
    fn may_bind(&self, id: SessionId, version: u8, port: u16) -> Result<&Rights, RefusalReason> {
        if !self.session_versions.contains(version) {
            return Err(RefusalReason::Version);
        }
        let rights = self.sessions.client_of(id).and_then(|client| self.access.rights(client));
        let rights = rights.ok_or(RefusalReason::Forbidden)?;
        rights.check_bind(port)?;
        Ok(rights)
    }

    /// The session that holds the port requested by `message` of session `id`, if that is the only
    /// reason for refusing it.
    pub(super) fn port_conflict(&self, id: SessionId, message: &[u8]) -> Option<SessionId> {
        let Ok(ToNode::Bind { version, port: port @ 1.. }) = ToNode::parse(message) else {
            return None;
        };
        let may = self.sessions.port_of(id).is_none() && self.may_bind(id, version, port).is_ok();
        self.sessions.holder(port).filter(|_| may)
    }

    fn bind(&mut self, id: SessionId, version: u8, port: u16) -> Result<u16, RefusalReason> {
        let rights = self.may_bind(id, version, port)?;
        let port = match rights.any_port(|p| self.sessions.holder(p).is_none()) {
            Some(free) if port == 0 => free.ok_or(RefusalReason::NoFreePort)?,
            _ => port,
        };
        self.sessions.bind(id, port)
    }

    /// The header of an application's next packet to `peer`, if it may send one.
    fn begin(
        &mut self,
        now: Time,
        id: SessionId,
        service: Service,
        peer: (NodeId, u16),
    ) -> Result<FlowHeader, RefusalReason> {
        let source_port = self.sessions.port_of(id).ok_or(RefusalReason::OutOfOrder)?;
        let client = self.sessions.client_of(id);
        let rights = client.and_then(|client| self.access.rights(client));
        if !rights.is_some_and(|rights| rights.to.has(peer.0)) {
            self.stats.drops.count(DropReason::Forbidden);
            return Err(RefusalReason::Forbidden);
        }
        let ends = Ends { port: source_port, peer: peer.0, peer_port: peer.1 };
        let was_asked = client == Some(Client::Gateway);
        if service == Service::RealTime && !was_asked && !self.admits(now, ends) {
            self.stats.drops.count(DropReason::OverShare);
            return Err(RefusalReason::OverShare);
        }
        Ok(FlowHeader {
            service,
            metric: self.sessions.metric_of(id).unwrap_or(self.metric),
            source: self.id,
            destination: peer.0,
            source_port,
            destination_port: peer.1,
            flow_seq: self.sessions.next_flow_seq(id, peer),
        })
    }

    /// Sends an application's packet. An error that the sender cannot correct (a full queue) is
    /// only counted; others are also reported to it.
    fn originate(
        &mut self,
        now: Time,
        id: SessionId,
        packet: &Packet<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), RefusalReason> {
        let FlowHeader { metric, destination, destination_port, .. } = packet.flow;
        let peer = (destination, destination_port);
        self.stats.from_sessions += 1;
        self.flow_sent(now, packet);
        // An application knows the size that each link of this node carries. A phone doesn't: its
        // packets go as far as the links on the way have room.
        let is_media = || self.sessions.client_of(id) == Some(Client::Gateway);
        let done = if packet.payload.len() > self.max_payload && !is_media() {
            Err((None, DropReason::TooLarge))
        } else if destination == self.id {
            self.deliver(now, packet, sink).map_err(|why| (None, why))
        } else {
            let hop = self.next_hop(destination, metric);
            let controlled = self.is_flow_controlled(id, packet.flow.service);
            match packet.flow.service {
                Service::RealTime => self.multiplex(now, hop, packet),
                _ => self.forward(if controlled { Time::NEVER } else { now }, hop, packet),
            }
        };
        // An oversized packet says nothing about its destination.
        if !matches!(done, Err((_, DropReason::TooLarge))) {
            let found = match done {
                Err((None, DropReason::NoPort)) => Err(Cause::NoPort),
                _ if peer.0 == self.id => Ok(()),
                _ => self.reach(now, peer.0, metric),
            };
            self.note(now, (id, peer), metric, found, sink);
        }
        let Err((link, why)) = done else { return Ok(()) };
        self.flow_not_sent(packet);
        self.drop_counted(link, why);
        if why == DropReason::TooLarge { Err(RefusalReason::TooLarge) } else { Ok(()) }
    }
}
