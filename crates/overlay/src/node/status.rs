//! Notifications to applications about their packets: there is no route to the destination, the
//! route was lost, or no application has the port there; and when that has ended.
//!
//! A node knows its own routes. An unbound port is reported by the remote node, in a message from
//! port 0 to port 0 like an echo, with the flow sequence number of the packet it is about. Since a
//! packet from any source can make a node answer, and sources can be forged:
//! - a packet from or to port 0 is never answered;
//! - an answer is no larger than the packet;
//! - one flow is answered at most once a second, and all together at most [`ANSWERS_PER_SECOND`]
//!   times, separately from the echoes, so that neither prevents the other from being answered;
//! - an answer counts only for a flow that an application has, and if it contains the number of one
//!   of the last packets of that flow (RFC 5927, 4.1). A node off the path has to guess that
//!   number.

use super::echo::{ANSWERS_PER_SECOND, NODE_PORT};
use super::forwarder::Forwarder;
use super::local::say;
use super::local::{SendOutcome, Sink};
use crate::counters::DropReason;
use crate::link::Packet;
use crate::route::ForwardingTable;
use crate::session::{Cause, Flow};
use crate::wire::{FlowHeader, MAX_HOPS, Metric, NodeId};
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_base::wire::{Reader, Short, Writer};
use trunkline_base::{Pacer, Rate, Time};

/// Kind of this message, next to those of echoes.
const PORT_UNBOUND: u8 = 4;

/// Minimum interval between two reports to one flow that its port is not bound.
const EACH: Duration = Duration::from_secs(1);

/// Number of flows that are distinguished for that.
const FLOWS: usize = 256;

const LIMIT: Rate = Rate::new(ANSWERS_PER_SECOND, ANSWERS_PER_SECOND);

/// Interval at which unreachable destinations are checked again, and number of flows checked each
/// time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: usize = 1_024;

/// Maximum number of nodes for which the time of their route's loss is kept.
const MAX_LOST: usize = 4_096;

/// Reports that the destination port of a packet is not bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortUnbound {
    /// Source port of the packet.
    pub from: u16,
    /// Destination port of the packet.
    pub to: u16,
}

impl PortUnbound {
    /// Length of the message, in bytes.
    pub const SIZE: usize = 5;

    /// Writes the message to `w`.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        w.u8(PORT_UNBOUND)?;
        w.u16(self.from)?;
        w.u16(self.to)
    }

    /// Reads a payload, ignoring anything after the message; `None` if it is another message.
    pub fn parse(payload: &[u8]) -> Option<PortUnbound> {
        let mut r = Reader::new(payload);
        let kind = r.u8().ok()?;
        let message = PortUnbound { from: r.u16().ok()?, to: r.u16().ok()? };
        (kind == PORT_UNBOUND && message.from != NODE_PORT && message.to != NODE_PORT)
            .then_some(message)
    }
}

/// Sources that were recently notified of an unbound port.
#[derive(Debug)]
pub(super) struct PortUnreachableLimiter {
    /// Indexed by a hash of the flow: its ends, and the time of the report.
    told: Box<[Option<(u64, Time)>; FLOWS]>,
    pacer: Pacer,
}

impl Default for PortUnreachableLimiter {
    fn default() -> PortUnreachableLimiter {
        PortUnreachableLimiter { told: Box::new([None; FLOWS]), pacer: Pacer::of(LIMIT) }
    }
}

impl PortUnreachableLimiter {
    /// Whether the source of a packet may be notified now.
    fn may_tell(&mut self, now: Time, h: &FlowHeader) -> bool {
        let ports = u32::from(h.source_port) << 16 | u32::from(h.destination_port);
        let flow = u64::from(h.source.0) << 32 | u64::from(ports);
        // Fibonacci hashing (Knuth 3, 6.4). Flows that share a slot are notified in turns, and more
        // often.
        let place = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let Some(told) = self.told.get_mut(place as usize) else { return false };
        if told.is_some_and(|(other, at)| other == flow && now.since(at) < EACH)
            || !self.pacer.admit(now, 1)
        {
            return false;
        }
        *told = Some((flow, now));
        true
    }
}

/// Times at which nodes were found to have no route any more.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeMap<NodeId, Time>);

impl Lost {
    /// Records the routes that a new table has lost and regained.
    pub(super) fn note(&mut self, now: Time, old: &ForwardingTable, new: &ForwardingTable) {
        if old.destinations() == new.destinations() {
            return;
        }
        let gone = |node: &NodeId| new.next_hop(*node, Metric::default()).is_none();
        self.0.retain(|node, _| gone(node));
        for node in old.destinations().iter().filter(|node| gone(node)) {
            if self.0.len() < MAX_LOST {
                self.0.entry(*node).or_insert(now);
            }
        }
    }
}

impl Forwarder {
    /// Whether `node` has a route, as far as this node can tell.
    pub(super) fn reach(&self, now: Time, node: NodeId, metric: Metric) -> Result<(), Cause> {
        let Some(hop) = self.next_hop(node, metric) else {
            return Err(self.lost.0.get(&node).map_or(Cause::NoRoute, |at| Cause::Lost(*at)));
        };
        let link = self.links().get(hop.link).ok_or(Cause::NoRoute)?;
        match link.monitor().down_since() {
            None => Ok(()),
            Some((since, true)) => Err(Cause::Lost(since)),
            // The link may still come up: it hasn't had the time to prove dead.
            Some((begun, false)) if now.since(begun) < link.config().liveness.dead_after => Ok(()),
            Some(_) => Err(Cause::NoRoute),
        }
    }

    /// Records whether a packet of `flow`, just sent, had a route, and notifies its application of
    /// a change.
    pub(super) fn note(
        &mut self,
        now: Time,
        flow: Flow,
        metric: Metric,
        found: Result<(), Cause>,
        sink: &mut impl Sink,
    ) {
        match found {
            Ok(()) if self.statuses.is_empty() => return,
            Ok(()) if flow.1.0 == self.id => self.statuses.clear(flow),
            Ok(()) => self.statuses.sent(now, flow),
            Err(cause) => self.statuses.set(now, flow, metric, cause),
        }
        self.tell(now, flow, sink);
    }

    /// Records that an application received a packet from the destination of its `flow`.
    pub(super) fn note_heard(&mut self, now: Time, flow: Flow, sink: &mut impl Sink) {
        if !self.statuses.is_empty() {
            self.statuses.heard(flow);
            self.tell(now, flow, sink);
        }
    }

    /// Notifies the application of `flow` of a change, now or, if there are too many notifications
    /// or it doesn't keep up, later.
    fn tell(&mut self, now: Time, flow: Flow, sink: &mut impl Sink) {
        let Some(news) = self.statuses.news(now, flow) else { return };
        if self.sessions.may_tell(now, flow.0)
            && say(sink, flow.0, &news, &[]) == SendOutcome::Accepted
        {
            self.statuses.told(flow);
        }
    }

    /// Notifies applications of destinations that are reachable again, even those that have stopped
    /// sending.
    pub(super) fn poll_statuses(&mut self, now: Time, sink: &mut impl Sink) {
        if self.statuses.is_empty() || now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        for _ in 0..LOOKS {
            let Some((flow, cause, metric)) = self.statuses.after(self.looked_at) else {
                self.looked_at = None;
                return;
            };
            self.looked_at = Some(flow);
            let (node, port) = flow.1;
            let over = match cause {
                Some(Cause::NoPort) => node == self.id && self.sessions.holder(port).is_some(),
                Some(_) => self.reach(now, node, metric).is_ok(),
                None => false,
            };
            if over {
                self.statuses.clear(flow);
            }
            self.tell(now, flow, sink);
        }
    }

    /// Notifies the source of `packet` that its destination port is not bound.
    pub(super) fn send_port_unreachable(&mut self, now: Time, packet: &Packet<'_>) {
        let h = &packet.flow;
        let nodes = h.source_port == NODE_PORT || h.destination_port == NODE_PORT;
        if nodes || packet.payload.len() < PortUnbound::SIZE || !self.denials.may_tell(now, h) {
            return;
        }
        let mut payload = [0; PortUnbound::SIZE];
        let message = PortUnbound { from: h.source_port, to: h.destination_port };
        if message.emit(&mut Writer::new(&mut payload)).is_err() {
            return;
        }
        let &FlowHeader { source, service, flow_seq, .. } = h;
        let said = self.send_own(now, source, service, (MAX_HOPS - 1, flow_seq), &payload);
        // A report that cannot be sent is not a drop: no application sent it, and the packet itself
        // is counted.
        self.stats.port_unreachable_sent += u64::from(said.is_ok());
    }

    /// Handles a packet to port 0 of this node, if it reports an unbound port.
    pub(super) fn on_port_unbound(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        sink: &mut impl Sink,
    ) -> Option<Result<(), DropReason>> {
        let h = &packet.flow;
        let message = PortUnbound::parse(packet.payload).filter(|_| h.source_port == NODE_PORT)?;
        let peer = (h.source, message.to);
        let id = self.sessions.holder(message.from);
        let Some(id) = id.filter(|id| self.sessions.has_sent(*id, peer, h.flow_seq)) else {
            return Some(Err(DropReason::EchoUnexpected));
        };
        self.stats.port_unreachable_accepted += 1;
        let metric = self.sessions.metric_of(id).unwrap_or(self.metric);
        self.note(now, (id, peer), metric, Err(Cause::NoPort), sink);
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::TxArena;
    use crate::link;
    use crate::node::{Config, Node, Start};
    use crate::session::SessionId;
    use crate::session::wire::{
        MAX_HEAD, RefusalReason, SESSION_VERSION, ToClient, ToNode, Unreachable,
    };
    use crate::wire::version::VersionRange;
    use crate::wire::{Incarnation, Service};
    use proptest::prelude::*;

    const HERE: NodeId = NodeId(1);
    const NEAR: NodeId = NodeId(2);
    const FAR: NodeId = NodeId(9);

    /// Messages to applications other than packets.
    #[derive(Default)]
    struct Received(Vec<(SessionId, ToClient<'static>)>);
    impl Sink for Received {
        fn deliver(&mut self, to: SessionId, head: &[u8], _: &[u8]) -> SendOutcome {
            let message = match ToClient::parse(head).unwrap() {
                ToClient::Reachable { node, port } => ToClient::Reachable { node, port },
                ToClient::Unreachable { node, port, why } => {
                    ToClient::Unreachable { node, port, why }
                }
                ToClient::Error { refusal, node, port } => ToClient::Error { refusal, node, port },
                ToClient::Bound { .. } | ToClient::Received { .. } | ToClient::Stream(_) => {
                    return SendOutcome::Accepted;
                }
            };
            self.0.push((to, message));
            SendOutcome::Accepted
        }
    }

    fn node() -> Node {
        let mut config = Config::new(HERE);
        let mut link = link::Config::new(NEAR);
        link.address = Some(([192, 0, 2, 2], 7_000).into());
        config.links.push(link);
        Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 1)).unwrap()
    }

    fn say(
        node: &mut Node,
        at: Time,
        id: SessionId,
        message: ToNode<'_>,
    ) -> Vec<ToClient<'static>> {
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        message.emit_head(&mut w).unwrap();
        let mut told = Received::default();
        node.session_recv(at, id, w.written(), &mut told);
        told.0.into_iter().map(|(to, message)| (to == id).then_some(message).unwrap()).collect()
    }

    fn bind(node: &mut Node, port: u16) -> SessionId {
        let (id, version) = (node.session_open().unwrap(), SESSION_VERSION);
        assert_eq!(say(node, Time::ZERO, id, ToNode::Bind { version, port }), []);
        id
    }

    fn send(to: NodeId, port: u16) -> ToNode<'static> {
        let service = Service::BestEffort;
        ToNode::Send { service, deadline_ms: 100, to, port, payload: &[] }
    }

    fn packet(source: (NodeId, u16), port: u16, flow_seq: u16, payload: &[u8]) -> Packet<'_> {
        let flow = FlowHeader {
            service: Service::BestEffort,
            metric: Metric::default(),
            source: source.0,
            destination: HERE,
            source_port: source.1,
            destination_port: port,
            flow_seq,
        };
        let deadline = Time::from_millis(200);
        Packet { hop_limit: 30, ..Packet::new(flow, payload, deadline) }
    }

    fn unreachable(node: NodeId, port: u16, why: Unreachable) -> ToClient<'static> {
        ToClient::Unreachable { node, port, why }
    }

    /// Number of bytes that the node sends now.
    fn sent(node: &mut Node) -> usize {
        let mut arena = TxArena::new(1 << 16, 256);
        node.transmit(Time::ZERO, &mut arena);
        arena.bytes().len()
    }

    proptest! {
        #[test]
        fn round_trip(from in 1u16.., to in 1u16.., filling in 0usize..20) {
            let message = PortUnbound { from, to };
            let mut bytes = vec![0; PortUnbound::SIZE + filling];
            message.emit(&mut Writer::new(&mut bytes)).unwrap();
            prop_assert_eq!(PortUnbound::parse(&bytes), Some(message));
            prop_assert_eq!(PortUnbound::parse(&bytes[..PortUnbound::SIZE - 1]), None);
        }

        /// In reply to any packet for any port, the node sends no more than it received.
        #[test]
        fn any_bytes(
            from in 0u32..4, ports in (0u16..3, 0u16..3),
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut node = node();
            bind(&mut node, 2);
            sent(&mut node);
            let packet = packet((NodeId(from), ports.0), ports.1, 7, &bytes);
            node.forwarder.send_port_unreachable(Time::ZERO, &packet);
            let mut told = Received::default();
            let _ = node.forwarder.on_port_unbound(Time::ZERO, &packet, &mut told);
            prop_assert!(told.0.is_empty(), "of a flow that there is not");
            let payload = sent(&mut node).saturating_sub(crate::wire::DATA_OVERHEAD);
            prop_assert!(payload <= bytes.len(), "{payload} for {}", bytes.len());
        }
    }

    #[test]
    fn an_application_hears_of_changes_once() {
        let mut node = node();
        let two = bind(&mut node, 2);
        for round in 0..3 {
            for (to, why) in [(FAR, Unreachable::NoRoute), (HERE, Unreachable::NoPort)] {
                let told = say(&mut node, Time::ZERO, two, send(to, 5));
                let news = [unreachable(to, 5, why)];
                assert_eq!(told, if round == 0 { &news[..] } else { &[] });
            }
        }
        let drops = node.stats().drops;
        assert_eq!(
            (drops.get(DropReason::NoRoute), drops.get(DropReason::NoPort)),
            (3, 3),
            "each counts"
        );
        // The port is bound: reported at the next poll, without a packet.
        let five = bind(&mut node, 5);
        let mut told = Received::default();
        node.forwarder.poll_statuses(Time::ZERO, &mut told);
        assert_eq!(told.0, [(two, ToClient::Reachable { node: HERE, port: 5 })]);
        node.session_close(Time::ZERO, five);
        node.session_close(Time::ZERO, two);
        assert!(node.forwarder.statuses.after(None).is_none(), "it ends with its session");
    }

    #[test]
    fn a_client_is_served_by_the_versions_that_the_node_is_told() {
        for (newest, served) in [(1, [true, false, false]), (3, [false, true, true])] {
            let versions = VersionRange::up_to(newest);
            let config = Config { session_versions: versions, ..Config::new(HERE) };
            let start = Start::simulated(Time::ZERO, Incarnation(1), 1);
            let mut node = Node::new(config, start).unwrap();
            for (version, served) in (1..).zip(served) {
                let id = node.session_open().unwrap();
                let told = say(&mut node, Time::ZERO, id, ToNode::Bind { version, port: 3 });
                let refusal = RefusalReason::Version;
                let refused = ToClient::Error { refusal, node: NodeId::NONE, port: 3 };
                assert_eq!(told, if served { vec![] } else { vec![refused] }, "{version}");
                node.session_close(Time::ZERO, id);
            }
        }
    }

    #[test]
    fn a_link_that_never_comes_up_is_no_way_once_it_had_its_time() {
        let mut node = node();
        let id = bind(&mut node, 2);
        assert_eq!(say(&mut node, Time::from_millis(100), id, send(NEAR, 5)), []);
        let told = say(&mut node, Time::from_millis(3_000), id, send(NEAR, 5));
        assert_eq!(told, [unreachable(NEAR, 5, Unreachable::NoRoute)]);
    }

    #[test]
    fn a_port_that_nobody_has_is_denied_within_bounds() {
        let mut node = node();
        let mut denied = |at: u64, source, port, payload: &[u8]| {
            let before = node.stats().port_unreachable_sent;
            let packet = packet(source, port, 1, payload);
            node.forwarder.send_port_unreachable(Time::from_millis(at), &packet);
            node.stats().port_unreachable_sent - before
        };
        let voice = &[0; 172];
        assert_eq!(denied(0, (NEAR, 0), 5, voice), 0, "a node is never answered");
        assert_eq!(denied(0, (NEAR, 5), 0, voice), 0);
        assert_eq!(denied(0, (NEAR, 5), 5, &voice[..4]), 0, "an answer would be larger");
        assert_eq!(denied(0, (NEAR, 5), 5, &voice[..5]), 1);
        assert_eq!(denied(999, (NEAR, 5), 5, voice), 0, "one flow hears it once a second");
        assert_eq!(denied(1_000, (NEAR, 5), 5, voice), 1);
        let all: u64 = (1..=1_000).map(|port| denied(9_000, (NEAR, port), 5, voice)).sum();
        assert_eq!(all, u64::from(ANSWERS_PER_SECOND), "all together");
    }

    #[test]
    fn a_denial_counts_for_a_flow_that_there_is() {
        let mut node = node();
        let two = bind(&mut node, 2);
        for _ in 0..2 {
            assert_eq!(say(&mut node, Time::ZERO, two, send(NEAR, 5)), []);
        }
        // Number of its first packet.
        let seq = (0..=u16::MAX)
            .find(|seq| node.forwarder.sessions.has_sent(two, (NEAR, 5), *seq))
            .map(|oldest| oldest.wrapping_add(1_022))
            .unwrap();
        let mut hear = |source: (NodeId, u16), seq, from, to| {
            let mut payload = [0; PortUnbound::SIZE];
            PortUnbound { from, to }.emit(&mut Writer::new(&mut payload)).unwrap();
            let mut told = Received::default();
            let packet = packet(source, 0, seq, &payload);
            let done = node.forwarder.on_port_unbound(Time::ZERO, &packet, &mut told);
            (done, told.0)
        };
        let unasked = (Some(Err(DropReason::EchoUnexpected)), vec![]);
        assert_eq!(hear((FAR, 0), seq, 2, 5), unasked, "another node");
        assert_eq!(hear((NEAR, 0), seq, 2, 6), unasked, "another port");
        assert_eq!(hear((NEAR, 0), seq, 3, 5), unasked, "no application");
        assert_eq!(hear((NEAR, 0), seq.wrapping_add(9_000), 2, 5), unasked, "no such packet");
        assert_eq!(hear((NEAR, 7), seq, 2, 5).0, None, "an application says so");
        let news = (two, unreachable(NEAR, 5, Unreachable::NoPort));
        assert_eq!(hear((NEAR, 0), seq, 2, 5), (Some(Ok(())), vec![news]));
        assert_eq!(hear((NEAR, 0), seq, 2, 5), (Some(Ok(())), vec![]), "told once");
    }
}
