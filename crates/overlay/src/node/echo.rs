//! Echoes between nodes, like ICMP echoes between hosts (RFC 792): the basis of `ping` and `trace`.
//!
//! Virtual port 0 at every node is the node itself. A request from (node A, port 0) to (node B,
//! port 0) is answered by B; where its hop limit runs out, the relay answers instead of B, with its
//! own id as the source. Applications never hold port 0, so they can neither send a request nor see
//! an answer.
//!
//! Since a packet from any source can make a node answer:
//! - only a request is answered, never an answer (RFC 1122, 3.2.2);
//! - an answer is no larger than its request;
//! - [`ANSWERS_PER_SECOND`] bounds the cost of answers (RFC 4443, 2.4 f);
//! - an answer counts only if it contains the random number of a request that is still open, and
//!   comes from the destination of that request (or, if a hop limit ran out, from any node). A node
//!   off the path cannot know the number.

use super::Forwarder;
use crate::counters::DropReason;
use crate::link::{LinkId, Packet};
use crate::session::Cause;
use crate::wire::{FlowHeader, MAX_HOPS, Metric, NodeId, Service};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::wire::{Reader, Short, Writer};
use trunkline_base::{Pacer, Rate, Time};

/// The virtual port of the node itself.
pub const NODE_PORT: u16 = 0;

/// Size of the smallest echo, in bytes.
pub const MIN_SIZE: usize = 10;

/// Size of the largest echo, in bytes. A larger request gets an answer of this size.
pub const MAX_SIZE: usize = 1_400;

/// Echoes that a node answers per second in the long run; the burst is as large.
pub const ANSWERS_PER_SECOND: u32 = 100;

/// Maximum number of open requests of this node, and of answers waiting to be read. The oldest are
/// removed first.
pub const MAX_OPEN: usize = 64;

/// Time to live of an echo and of its answer: the longest that a packet's header can express. Only
/// real-time packets are dropped when it has passed.
const USEFUL: Duration = Duration::from_millis(255);

/// The kinds of echo message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EchoKind {
    /// A request to answer.
    Request = 1,
    /// The answer of the destination.
    Reply = 2,
    /// The answer of a relay where the hop limit ran out.
    HopLimit = 3,
}

/// The head of an echo's payload, followed by padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EchoMessage {
    /// Kind of the message.
    pub kind: EchoKind,
    /// In a reply: the hop limit with which its request arrived.
    pub left: u8,
    /// Random number that identifies the request.
    pub nonce: u64,
}

impl EchoMessage {
    /// Writes the head, which has [`MIN_SIZE`] bytes.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        w.u8(self.kind as u8)?;
        w.u8(self.left)?;
        w.u64(self.nonce)
    }

    /// Reads a payload; `None` if it is not an echo.
    pub fn parse(payload: &[u8]) -> Option<EchoMessage> {
        let mut r = Reader::new(payload);
        let kind = match r.u8().ok()? {
            1 => EchoKind::Request,
            2 => EchoKind::Reply,
            3 => EchoKind::HopLimit,
            _ => return None,
        };
        Some(EchoMessage { kind, left: r.u8().ok()?, nonce: r.u64().ok()? })
    }
}

/// An echo request to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// Node that the request is sent to.
    pub to: NodeId,
    /// Service that carries both the request and its answer.
    pub service: Service,
    /// Size of the packet in bytes, [`MIN_SIZE`] to [`MAX_SIZE`].
    pub size: usize,
    /// Links that the request may cross, 1 to [`MAX_HOPS`].
    pub hops: u8,
    /// Random number from an unpredictable source; a different one for each request.
    pub nonce: u64,
}

/// The answer to an echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EchoAnswer {
    /// Number of the request that it answers.
    pub nonce: u64,
    /// Node that sent the answer.
    pub from: NodeId,
    /// Whether the request reached its destination; otherwise its hop limit
    /// ran out at `from`.
    pub reached: bool,
    /// Links that the request crossed.
    pub hops: u8,
    /// Time from [`Node::echo`](super::Node::echo) to the answer.
    pub rtt: Duration,
}

/// Reason for not sending an echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EchoError {
    /// The size is out of range.
    #[error("an echo has {MIN_SIZE} to {MAX_SIZE} bytes: {0} is out of range")]
    Size(usize),
    /// The hop limit is out of range.
    #[error("an echo crosses 1 to {MAX_HOPS} links: {0} is out of range")]
    Hops(u8),
    /// There is no route to the node.
    #[error("this node has no route to node {0}: look at `trunkline routes`")]
    NoRoute(NodeId),
    /// There has been no route to the node for this long.
    #[error(
        "this node has had no route to node {0} for {secs:.1} s: look at `trunkline routes` and \
         `trunkline links`", secs = .1.as_secs_f64()
    )]
    Lost(NodeId, Duration),
    /// The echo is larger than the next link's MTU allows.
    #[error("an echo on the next link has at most {max} bytes: {size} is too large")]
    TooLarge {
        /// Requested size, in bytes.
        size: usize,
        /// Largest size that the next link carries, in bytes.
        max: usize,
    },
    /// The link to the next node has no address yet.
    #[error("the next node's address is unknown, and nothing has been received from it")]
    NoAddress,
    /// The link's queue is full.
    #[error("the next link's queue is full")]
    QueueFull,
}

/// A request that awaits its answer.
#[derive(Clone, Copy, Debug)]
struct Open {
    nonce: u64,
    to: NodeId,
    hops: u8,
    sent: Time,
}

/// Echo requests of this node, and their answers.
#[derive(Debug)]
pub(super) struct Echoes {
    open: VecDeque<Open>,
    answers: VecDeque<EchoAnswer>,
    pacer: Pacer,
}

impl Echoes {
    pub(super) fn new() -> Echoes {
        Echoes {
            open: VecDeque::with_capacity(MAX_OPEN),
            answers: VecDeque::with_capacity(MAX_OPEN),
            pacer: Pacer::of(Rate::new(ANSWERS_PER_SECOND, ANSWERS_PER_SECOND)),
        }
    }

    fn push_open(&mut self, open: Open) {
        if self.open.len() == MAX_OPEN {
            self.open.pop_front();
        }
        self.open.push_back(open);
    }

    fn push_answer(&mut self, answer: EchoAnswer) {
        if self.answers.len() == MAX_OPEN {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
    }

    pub(super) fn next_answer(&mut self) -> Option<EchoAnswer> {
        self.answers.pop_front()
    }

    /// Accepts an answer if it belongs to an open request.
    fn accept(&mut self, now: Time, from: NodeId, message: &EchoMessage) -> Result<(), DropReason> {
        let reached = message.kind == EchoKind::Reply;
        let fits = |o: &Open| o.nonce == message.nonce && (o.to == from) == reached;
        let at = self.open.iter().position(fits).ok_or(DropReason::EchoUnexpected)?;
        let Some(open) = self.open.remove(at) else { return Err(DropReason::EchoUnexpected) };
        // The limit that arrives was `hops - 1` on the first link, and counts down from there.
        let hops = if reached { open.hops.saturating_sub(message.left) } else { open.hops };
        let rtt = now.since(open.sent);
        self.push_answer(EchoAnswer { nonce: open.nonce, from, reached, hops, rtt });
        Ok(())
    }
}

impl Forwarder {
    /// Sends an echo request.
    pub(super) fn echo(&mut self, now: Time, echo: &Echo) -> Result<(), EchoError> {
        if !(MIN_SIZE..=MAX_SIZE).contains(&echo.size) {
            return Err(EchoError::Size(echo.size));
        }
        if !(1..=MAX_HOPS).contains(&echo.hops) {
            return Err(EchoError::Hops(echo.hops));
        }
        let &Echo { to, hops, nonce, .. } = echo;
        if to == self.id {
            let rtt = Duration::ZERO;
            self.echoes.push_answer(EchoAnswer { nonce, from: to, reached: true, hops: 0, rtt });
            return Ok(());
        }
        self.reach(now, to, Metric::default()).map_err(|cause| match cause {
            Cause::Lost(at) => EchoError::Lost(to, now.since(at)),
            Cause::NoRoute | Cause::NoPort => EchoError::NoRoute(to),
        })?;
        let message = EchoMessage { kind: EchoKind::Request, left: 0, nonce };
        self.send_echo(now, to, echo.service, hops - 1, &message, echo.size).map_err(|why| {
            match why {
                DropReason::NoRoute => EchoError::NoRoute(to),
                DropReason::TooLarge => {
                    EchoError::TooLarge { size: echo.size, max: self.largest_echo(to) }
                }
                DropReason::NoAddress => EchoError::NoAddress,
                _ => EchoError::QueueFull,
            }
        })?;
        self.echoes.push_open(Open { nonce, to, hops, sent: now });
        Ok(())
    }

    /// Size of the largest echo that the next link towards `to` carries, in bytes.
    fn largest_echo(&self, to: NodeId) -> usize {
        let hop = self.next_hop(to, Metric::default());
        let link = hop.and_then(|hop| self.links().get(hop.link));
        link.map_or(MAX_SIZE, |link| link.room().min(MAX_SIZE))
    }

    /// Handles a packet to port 0 of this node.
    pub(super) fn on_echo(&mut self, now: Time, packet: &Packet<'_>) -> Result<(), DropReason> {
        let h = &packet.flow;
        let message = echo_in(packet).ok_or(DropReason::NoPort)?;
        if message.kind != EchoKind::Request {
            return self.echoes.accept(now, h.source, &message);
        }
        let reply = EchoMessage { kind: EchoKind::Reply, left: packet.hop_limit, ..message };
        self.answer(now, packet, &reply, packet.payload.len().min(MAX_SIZE))
    }

    /// Handles a packet that has reached its hop limit here: if `packet` is an echo, its source
    /// gets an answer.
    pub(super) fn on_hop_limit(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let request = echo_in(packet).filter(|m| m.kind == EchoKind::Request);
        let message = request.ok_or(DropReason::HopLimit)?;
        let answer = EchoMessage { kind: EchoKind::HopLimit, ..message };
        self.answer(now, packet, &answer, MIN_SIZE)
    }

    fn answer(
        &mut self,
        now: Time,
        request: &Packet<'_>,
        message: &EchoMessage,
        size: usize,
    ) -> Result<(), DropReason> {
        let FlowHeader { source, service, .. } = request.flow;
        // A packet with this node's own id as the source is forged or came back.
        if source == self.id {
            return Err(DropReason::Bounced);
        }
        if !self.echoes.pacer.admit(now, 1) {
            return Err(DropReason::EchoLimit);
        }
        self.send_echo(now, source, service, MAX_HOPS - 1, message, size)?;
        self.stats.echoes_answered += 1;
        Ok(())
    }

    fn send_echo(
        &mut self,
        now: Time,
        to: NodeId,
        service: Service,
        hop_limit: u8,
        message: &EchoMessage,
        size: usize,
    ) -> Result<(), DropReason> {
        let mut payload = [0; MAX_SIZE];
        let payload = &mut payload[..size];
        message.emit(&mut Writer::new(payload)).map_err(|_| DropReason::Malformed)?;
        let marks = (hop_limit, message.nonce as u16);
        self.send_own(now, to, service, marks, payload).map_err(|(_, why)| why)
    }

    /// Sends a packet of the node itself to another node; `marks` are its hop limit and its number.
    pub(super) fn send_own(
        &mut self,
        now: Time,
        to: NodeId,
        service: Service,
        (hop_limit, flow_seq): (u8, u16),
        payload: &[u8],
    ) -> Result<(), (Option<LinkId>, DropReason)> {
        let flow = FlowHeader {
            service,
            metric: Metric::default(),
            source: self.id,
            destination: to,
            source_port: NODE_PORT,
            destination_port: NODE_PORT,
            flow_seq,
        };
        let deadline = now + USEFUL;
        let packet = Packet { hop_limit, ..Packet::new(flow, payload, deadline) };
        self.forward(now, self.next_hop(to, flow.metric), &packet)
    }
}

/// The echo in `packet`, if it goes from port 0 of one node to port 0 of another.
fn echo_in(packet: &Packet<'_>) -> Option<EchoMessage> {
    let h = &packet.flow;
    let nodes = (h.source_port, h.destination_port) == (NODE_PORT, NODE_PORT);
    nodes.then(|| EchoMessage::parse(packet.payload)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::TxArena;
    use crate::link;
    use crate::node::{Config, Node};
    use crate::wire::Incarnation;
    use proptest::prelude::*;

    const HERE: NodeId = NodeId(1);
    const NEAR: NodeId = NodeId(2);

    fn node() -> Node {
        let mut config = Config::new(HERE);
        let mut link = link::Config::new(NEAR);
        link.address = Some(([192, 0, 2, 2], 7_000).into());
        config.links.push(link);
        Node::new(config, super::super::Start::simulated(Time::ZERO, Incarnation(1), 1)).unwrap()
    }

    fn echo(to: NodeId, nonce: u64) -> Echo {
        Echo { to, service: Service::RealTime, size: 64, hops: MAX_HOPS, nonce }
    }

    /// Processes a packet between two nodes here.
    fn receive(
        node: &mut Node,
        from: NodeId,
        message: EchoMessage,
        size: usize,
    ) -> Result<(), DropReason> {
        let mut payload = vec![0; size];
        message.emit(&mut Writer::new(&mut payload)).unwrap();
        receive_bytes(node, from, (0, 0), &payload)
    }

    fn receive_bytes(
        node: &mut Node,
        from: NodeId,
        (source_port, destination_port): (u16, u16),
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let flow = FlowHeader { source_port, destination_port, ..flow(from, HERE) };
        let packet = packet(flow, 30, payload);
        node.forwarder.on_echo(Time::from_millis(20), &packet)
    }

    fn flow(source: NodeId, destination: NodeId) -> FlowHeader {
        FlowHeader {
            service: Service::RealTime,
            metric: Metric::default(),
            source,
            destination,
            source_port: NODE_PORT,
            destination_port: NODE_PORT,
            flow_seq: 0,
        }
    }

    fn packet(flow: FlowHeader, hop_limit: u8, payload: &[u8]) -> Packet<'_> {
        let deadline = Time::from_millis(200);
        Packet { hop_limit, ..Packet::new(flow, payload, deadline) }
    }

    /// Number of bytes that the node sends now.
    fn sent(node: &mut Node) -> usize {
        let mut arena = TxArena::new(1 << 16, 256);
        node.transmit(Time::ZERO, &mut arena);
        arena.bytes().len()
    }

    proptest! {
        #[test]
        fn round_trip(kind in 0..3, left: u8, nonce: u64, filling in 0usize..200) {
            let kinds = [EchoKind::Request, EchoKind::Reply, EchoKind::HopLimit];
            let message = EchoMessage { kind: kinds[kind as usize], left, nonce };
            let mut bytes = vec![0; MIN_SIZE + filling];
            message.emit(&mut Writer::new(&mut bytes)).unwrap();
            prop_assert_eq!(EchoMessage::parse(&bytes), Some(message));
        }

        /// In reply to any packet to its own port, the node sends no more than it received, and an
        /// answer that it did not request does not count.
        #[test]
        fn any_bytes(from in 0u32..4, ports in (0u16..2, 0u16..2), bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut node = node();
            node.echo(Time::ZERO, &echo(NEAR, 0x1234_5678_9abc_def0)).unwrap();
            sent(&mut node);
            let _ = receive_bytes(&mut node, NodeId(from), ports, &bytes);
            prop_assert_eq!(node.next_echo(), None);
            let payload = sent(&mut node).saturating_sub(crate::wire::DATA_OVERHEAD);
            prop_assert!(payload <= bytes.len(), "{payload} for {}", bytes.len());
        }
    }

    #[test]
    fn only_the_asked_answer_counts_and_once() {
        let mut node = node();
        let reply = |nonce| EchoMessage { kind: EchoKind::Reply, left: 30, nonce };
        let limit = |nonce| EchoMessage { kind: EchoKind::HopLimit, left: 0, nonce };
        node.echo(Time::ZERO, &echo(NEAR, 7)).unwrap();
        let unasked = Err(DropReason::EchoUnexpected);
        assert_eq!(receive(&mut node, NEAR, reply(8), 64), unasked, "another number");
        assert_eq!(receive(&mut node, NodeId(9), reply(7), 64), unasked, "another node");
        assert_eq!(receive(&mut node, NEAR, limit(7), 10), unasked, "it is where it went");
        assert_eq!(receive_bytes(&mut node, NEAR, (5, 0), &[2; 10]), Err(DropReason::NoPort));
        assert_eq!(receive(&mut node, NEAR, reply(7), 64), Ok(()));
        assert_eq!(receive(&mut node, NEAR, reply(7), 64), unasked, "twice");
        let answer = node.next_echo().unwrap();
        assert_eq!((answer.from, answer.reached, answer.hops), (NEAR, true, 2));
        assert_eq!((answer.rtt, node.next_echo()), (Duration::from_millis(20), None));
        assert_eq!(node.stats().echoes_answered, 0, "an answer is never answered");

        node.echo(Time::ZERO, &Echo { hops: 1, ..echo(NEAR, 9) }).unwrap();
        assert_eq!(receive(&mut node, NodeId(5), limit(9), 10), Ok(()));
        let answer = node.next_echo().unwrap();
        assert_eq!((answer.from, answer.reached, answer.hops), (NodeId(5), false, 1));
    }

    /// Otherwise two nodes with a loop between them would keep notifying each other.
    #[test]
    fn where_an_answer_ends_its_way_nobody_is_told() {
        for (kind, told) in [(EchoKind::Request, 1), (EchoKind::Reply, 0), (EchoKind::HopLimit, 0)]
        {
            let mut node = node();
            let mut payload = [0; MIN_SIZE];
            let message = EchoMessage { kind, left: 0, nonce: 1 };
            message.emit(&mut Writer::new(&mut payload)).unwrap();
            let packet = packet(flow(NEAR, NodeId(9)), 0, &payload);
            let done = node.forwarder.on_hop_limit(Time::ZERO, &packet);
            assert_eq!(
                done,
                if told == 1 { Ok(()) } else { Err(DropReason::HopLimit) },
                "{kind:?}"
            );
            assert_eq!(node.stats().echoes_answered, told, "{kind:?}");
        }
    }

    #[test]
    fn answers_are_bounded_in_rate_and_requests_in_number() {
        let mut node = node();
        let request = EchoMessage { kind: EchoKind::Request, left: 0, nonce: 1 };
        let done: Vec<_> = (0..150).map(|_| receive(&mut node, NEAR, request, 64)).collect();
        let limited = done.iter().filter(|d| **d == Err(DropReason::EchoLimit)).count();
        assert_eq!(limited, 50, "a second's worth at once");
        assert_eq!(node.stats().echoes_answered, 100);
        assert_eq!(receive(&mut node, HERE, request, 64), Err(DropReason::Bounced));

        for nonce in 0..=MAX_OPEN as u64 {
            node.echo(Time::ZERO, &echo(NEAR, nonce)).unwrap();
        }
        let reply = |nonce| EchoMessage { kind: EchoKind::Reply, left: 31, nonce };
        assert_eq!(
            receive(&mut node, NEAR, reply(0), 64),
            Err(DropReason::EchoUnexpected),
            "the oldest"
        );
        assert_eq!(receive(&mut node, NEAR, reply(1), 64), Ok(()));
    }

    #[test]
    fn each_mistake_has_its_error() {
        let mut node = node();
        let mut fails = |echo: Echo| node.echo(Time::ZERO, &echo).unwrap_err();
        assert_eq!(fails(Echo { size: 9, ..echo(NEAR, 1) }), EchoError::Size(9));
        let too_large = fails(Echo { size: MAX_SIZE, ..echo(NEAR, 1) });
        let EchoError::TooLarge { size: MAX_SIZE, max } = too_large else { panic!("{too_large}") };
        let named =
            format!("an echo on the next link has at most {max} bytes: {MAX_SIZE} is too large");
        assert_eq!(too_large.to_string(), named);
        assert_eq!(
            fails(Echo { size: max + 1, ..echo(NEAR, 1) }),
            EchoError::TooLarge { size: max + 1, max }
        );
        assert_eq!(fails(Echo { hops: 0, ..echo(NEAR, 1) }), EchoError::Hops(0));
        assert_eq!(fails(echo(NodeId(77), 1)), EchoError::NoRoute(NodeId(77)));
        node.echo(Time::ZERO, &Echo { size: max, ..echo(NEAR, 6) }).unwrap();
        node.echo(Time::ZERO, &echo(HERE, 5)).unwrap();
        let own = node.next_echo().unwrap();
        assert_eq!((own.from, own.hops, own.rtt), (HERE, 0, Duration::ZERO));
    }
}
