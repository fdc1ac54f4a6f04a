//! The trunks of a node: packets of several applications to one node leave together, and trunk
//! packets of other nodes are split up.

use super::echo::NODE_PORT;
use super::{Forwarder, Node, Sink, Timer};
use crate::counters::DropReason;
use crate::link::{LinkId, Packet, remaining_ms};
use crate::route::Hop;
use crate::session::flows::Ends;
use crate::trunk::{
    Answer, Config, Context, Enqueued, Entries, Head, Heard, MAX_ROOM, Message, Outgoing, Receiver,
    ReceiverStats, Sender, State, Stats, TRUNK_VERSION,
};
use crate::wire::{FlowHeader, MAX_HOPS, NodeId, Service};
use core::time::Duration;
use rand::RngExt;
use trunkline_base::wire::Writer;
use trunkline_base::{Pacer, Rate, Time};

/// Maximum number of trunks from other nodes that end here at once.
pub const MAX_RECEIVING: usize = 64;

/// Rate of answers to trunk messages, not counting those to existing trunks.
const ANSWERS: Rate = Rate::new(2 * MAX_RECEIVING as u32, MAX_RECEIVING as u32);

/// Maximum length of a message other than a trunk packet, in bytes.
const MAX_MESSAGE: usize = 16;

/// State of one trunk of this node.
#[derive(Clone, Copy, Debug)]
pub struct Trunk {
    /// Configuration of the trunk.
    pub config: Config,
    /// State of its other end, as far as known.
    pub state: State,
    /// Number of flows that it distinguishes.
    pub flows: usize,
    /// Counters of the sending end.
    pub stats: Stats,
    /// The loss event rate in the other end's last report, 0 to 1.
    pub loss: f64,
    /// Round-trip time, once a report has arrived.
    pub rtt: Option<Duration>,
    /// The rate at which a TCP would send on its path, in bytes per second with all headers; `None`
    /// while there is no loss.
    pub share: Option<f64>,
    /// Whether its rate exceeds that share at any permitted number of packets per datagram.
    pub is_over_share: bool,
}

/// State of another node's trunk that ends here.
#[derive(Clone, Copy, Debug)]
pub struct Receiving {
    /// The node that sends the trunk's packets.
    pub from: NodeId,
    /// Counters of the receiving end.
    pub stats: ReceiverStats,
    /// The loss event rate of its trunk packets, 0 to 1.
    pub loss: f64,
}

#[derive(Debug)]
pub(super) struct Trunks {
    sending: Vec<Sender>,
    receiving: Vec<(NodeId, Receiver)>,
    answers: Pacer,
}

impl Default for Trunks {
    fn default() -> Trunks {
        let (sending, receiving) = (Vec::new(), Vec::new());
        Trunks { sending, receiving, answers: Pacer::of(ANSWERS) }
    }
}

impl Trunks {
    /// Calls `each` with the time of every trunk's next action.
    #[inline]
    pub(super) fn timeouts(&self, mut each: impl FnMut(Time, Timer)) {
        for sender in &self.sending {
            each(sender.next_timeout(), Timer::Trunk(sender.config().to));
        }
    }

    fn sender(&mut self, to: NodeId) -> Option<&mut Sender> {
        self.sending.iter_mut().find(|sender| sender.config().to == to)
    }

    /// The receiver of `source`'s trunk, which is created if there is room for it.
    fn receiver(&mut self, now: Time, source: NodeId) -> Option<&mut Receiver> {
        let at = self.receiving.iter().position(|(node, _)| *node == source);
        let at = match at {
            Some(at) => at,
            None => {
                let receiver = (source, Receiver::new(now));
                let forgotten = |(_, r): &(NodeId, Receiver)| r.is_forgotten(now);
                if self.receiving.len() < MAX_RECEIVING {
                    self.receiving.push(receiver);
                    self.receiving.len() - 1
                } else {
                    let at = self.receiving.iter().position(forgotten)?;
                    self.receiving[at] = receiver;
                    at
                }
            }
        };
        Some(&mut self.receiving[at].1)
    }
}

impl Forwarder {
    /// Replaces the trunks. Packets that an ending trunk has gathered are sent.
    pub(super) fn set_trunks(&mut self, now: Time, trunks: &[Config]) {
        for at in 0..self.trunks.sending.len() {
            self.send_trunk(now, at);
        }
        self.trunks.sending.retain(|s| trunks.iter().any(|t| t.to == s.config().to));
        for config in trunks {
            if let Some(sender) = self.trunks.sender(config.to) {
                if sender.config() != config {
                    sender.set_config(now, *config);
                }
                continue;
            }
            let (generation, secret) = (self.entropy.random(), self.entropy.random());
            let sender = Sender::new(*config, self.trunk_room(), generation, secret, now);
            self.trunks.sending.push(sender);
        }
    }

    /// Maximum length of a trunk packet, in bytes.
    fn trunk_room(&self) -> usize {
        self.max_payload.min(MAX_ROOM)
    }

    /// Whether a packet of this flow may be sent. A packet of a new flow may not while its trunk
    /// exceeds its share and refuses new flows.
    pub(super) fn admits(&self, now: Time, ends: Ends) -> bool {
        let mut to = self.trunks.sending.iter().filter(|s| s.config().to == ends.peer);
        to.all(|sender| sender.admits_new(now)) || self.flows.is_sending(now, ends)
    }

    /// Sends an application's real-time packet, together with others if there is a trunk to its
    /// destination.
    pub(super) fn multiplex(
        &mut self,
        now: Time,
        hop: Option<Hop>,
        packet: &Packet<'_>,
    ) -> Result<(), (Option<LinkId>, DropReason)> {
        let FlowHeader { destination, source_port, destination_port, flow_seq, metric, .. } =
            packet.flow;
        let place = self.trunks.sending.iter().position(|s| s.config().to == destination);
        let (Some(at), Some(_)) = (place, hop) else { return self.forward(now, hop, packet) };
        let (deadline, payload) = (packet.deadline, packet.payload);
        let way = self.onward(hop);
        let outgoing =
            Outgoing { source_port, destination_port, flow_seq, metric, deadline, way, payload };
        let room = self.trunk_room();
        let mut put = self.trunks.sending[at].put(now, &outgoing, room);
        if put == Enqueued::Full {
            self.send_trunk(now, at);
            put = self.trunks.sending[at].put(now, &outgoing, room);
        }
        if put == Enqueued::Gathered {
            return Ok(());
        }
        // Earlier packets of its flow must leave before it.
        self.send_trunk(now, at);
        self.forward(now, hop, packet)
    }

    /// Asks the other ends of trunks to accept them.
    pub(super) fn ask_trunks(&mut self, now: Time) {
        for at in 0..self.trunks.sending.len() {
            let sender = &mut self.trunks.sending[at];
            let to = sender.config().to;
            sender.expire(now);
            if let Some(question) = sender.ask(now) {
                self.say_of_trunk(now, to, &question);
            }
        }
    }

    /// Sends the trunk packets that have waited long enough for more packets.
    pub(super) fn send_due_trunks(&mut self, now: Time) {
        for at in 0..self.trunks.sending.len() {
            if self.trunks.sending[at].is_due(now) {
                self.send_trunk(now, at);
            }
        }
    }

    /// Sends the packets that trunk `at` has gathered.
    fn send_trunk(&mut self, now: Time, at: usize) {
        let sender = &mut self.trunks.sending[at];
        let destination = sender.config().to;
        let Some(leaving) = sender.take(now) else { return };
        let flow = FlowHeader {
            service: Service::RealTime,
            metric: leaving.metric,
            source: self.id,
            destination,
            source_port: NODE_PORT,
            destination_port: NODE_PORT,
            flow_seq: leaving.number as u16,
        };
        let (payload, deadline) = (&leaving.bytes[..], leaving.deadline);
        let packet = Packet::new(flow, payload, deadline);
        let hop = self.next_hop(destination, flow.metric);
        let done = self.forward(now, hop, &packet);
        let Forwarder { trunks, flows, .. } = self;
        trunks.sending[at].reclaim(leaving.bytes, done.is_err(), |flow| {
            let Context { source_port: port, destination_port: peer_port, .. } = flow;
            flows.not_sent(Ends { port, peer: destination, peer_port });
        });
        if let Err((link, why)) = done {
            self.drop_counted(link, why);
        }
    }

    /// Sends a message about a trunk to another node; a lost one is sent again.
    fn say_of_trunk(&mut self, now: Time, to: NodeId, message: &Message<'_>) {
        let mut payload = [0; MAX_MESSAGE];
        let mut w = Writer::new(&mut payload);
        if message.emit(&mut w).is_ok() {
            let _ = self.send_own(now, to, Service::RealTime, (MAX_HOPS - 1, 0), w.written());
        }
    }

    /// Handles a packet to port 0 of this node that arrived at `at`, if it is about a trunk.
    pub(super) fn on_trunk(
        &mut self,
        (now, at): (Time, Time),
        packet: &Packet<'_>,
        sink: &mut impl Sink,
    ) -> Option<Result<(), DropReason>> {
        let h = &packet.flow;
        if h.source_port != NODE_PORT {
            return None;
        }
        Some(match Message::parse(packet.payload)? {
            question @ Message::Ask { .. } => self.answer_trunk(now, h.source, &question),
            Message::Answer { version, generation, answer, .. } => {
                let sender = self.trunks.sender(h.source);
                let heard = version == TRUNK_VERSION
                    && sender.is_some_and(|s| s.on_answer(now, generation, answer));
                if heard { Ok(()) } else { Err(DropReason::EchoUnexpected) }
            }
            Message::Report { version, generation, report } => {
                let sender = self.trunks.sender(h.source);
                let heard = version == TRUNK_VERSION
                    && sender.is_some_and(|s| s.on_report(now, generation, report));
                if heard { Ok(()) } else { Err(DropReason::EchoUnexpected) }
            }
            Message::Packets(head, entries) => {
                self.take_apart((now, at), packet, &head, entries, sink)
            }
        })
    }

    /// Answers the question whether a trunk of `source` may end here.
    fn answer_trunk(
        &mut self,
        now: Time,
        source: NodeId,
        question: &Message<'_>,
    ) -> Result<(), DropReason> {
        let &Message::Ask { version, generation, report_ms, rtt } = question else {
            return Err(DropReason::Malformed);
        };
        // A node that sends questions in the name of other nodes, or of invented ones, displaces no
        // trunk that is in use.
        let mut there = self.trunks.receiving.iter_mut();
        let there = there.find(|(node, _)| *node == source).map(|(_, receiver)| receiver);
        let known = there.and_then(|receiver| receiver.answers(now, generation));
        if !known.unwrap_or_else(|| self.trunks.answers.admit(now, 1)) {
            return Err(DropReason::EchoLimit);
        }
        let is_welcome = version == TRUNK_VERSION && self.access.check_from(source).is_ok();
        let receiver = if is_welcome { self.trunks.receiver(now, source) } else { None };
        let answer =
            receiver.map_or(Answer::Refused, |r| r.on_ask(now, generation, report_ms, rtt));
        self.answer_for_trunk(now, source, generation, answer);
        Ok(())
    }

    fn answer_for_trunk(&mut self, now: Time, to: NodeId, generation: u16, answer: Answer) {
        let (version, latest) = (TRUNK_VERSION, TRUNK_VERSION);
        let message = Message::Answer { version, generation, answer, latest };
        self.say_of_trunk(now, to, &message);
    }

    /// Delivers the packets of a trunk packet to their applications.
    fn take_apart(
        &mut self,
        (now, at): (Time, Time),
        packet: &Packet<'_>,
        head: &Head,
        entries: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let source = packet.flow.source;
        let place = self.trunks.receiving.iter().position(|(node, _)| *node == source);
        let known = place.filter(|&at| self.trunks.receiving[at].1.knows(head.generation));
        let Some(place) = known else {
            if self.trunks.answers.admit(now, 1) {
                self.answer_for_trunk(now, source, head.generation, Answer::Unknown);
            }
            return Err(DropReason::TrunkUnknown);
        };
        // Moved out while its packets are delivered, which borrows the node and doesn't touch the
        // receiver.
        let (_, receiver) = &mut self.trunks.receiving[place];
        let mut receiver = core::mem::take(receiver);
        if let Some(report) = receiver.note_packet(now, head, packet.recovered) {
            let (version, generation) = (TRUNK_VERSION, head.generation);
            self.say_of_trunk(now, source, &Message::Report { version, generation, report });
        }
        let on_the_way = head.remaining_ms.saturating_sub(remaining_ms(now, packet.deadline));
        let mut done = Ok(());
        for entry in Entries::new(head, entries) {
            let Ok(entry) = entry else {
                done = Err(DropReason::Malformed);
                break;
            };
            self.take_entry(
                (now, at),
                packet,
                receiver.hear(at, head.number, entry),
                on_the_way,
                sink,
            );
        }
        self.trunks.receiving[place].1 = receiver;
        done
    }

    /// Delivers one packet of trunk packet `by`, which has been in flight for `on_the_way`
    /// milliseconds.
    fn take_entry(
        &mut self,
        (now, at): (Time, Time),
        by: &Packet<'_>,
        heard: Heard<'_>,
        on_the_way: u8,
        sink: &mut impl Sink,
    ) {
        let (context, flow_seq, payload) = match heard {
            Heard::Definition => return,
            Heard::Unknown => return self.stats.drops.count(DropReason::TrunkUnknown),
            Heard::Packet { context, flow_seq, payload } => (context, flow_seq, payload),
        };
        let (source_port, destination_port) = (context.source_port, context.destination_port);
        let flow = FlowHeader { source_port, destination_port, flow_seq, ..by.flow };
        let left = u64::from(context.deadline_ms.saturating_sub(on_the_way));
        let deadline = (now + Duration::from_millis(left)).max(by.deadline);
        let packet = Packet { flow, payload, deadline, ..*by };
        if self.is_stale(now, at, &packet) {
            return self.stats.drops.count(DropReason::Late);
        }
        if let Err(why) = self.deliver(now, &packet, sink) {
            if why == DropReason::NoPort {
                self.send_port_unreachable(now, &packet);
            }
            self.stats.drops.count(why);
        }
    }
}

impl Node {
    /// Trunks of this node, in the order of the configuration.
    pub fn trunks(&self, now: Time) -> impl Iterator<Item = Trunk> {
        self.forwarder.trunks.sending.iter().map(move |s| Trunk {
            config: *s.config(),
            state: s.state(now),
            flows: s.flows(),
            stats: s.stats(),
            loss: s.rate().loss(),
            rtt: s.rate().rtt(),
            share: s.rate().share(),
            is_over_share: s.rate().over_share_at(now),
        })
    }

    /// Destinations of trunks that take no new flows now.
    pub fn full_trunks(&self, now: Time) -> impl Iterator<Item = NodeId> {
        let full = self.forwarder.trunks.sending.iter().filter(move |s| !s.admits_new(now));
        full.map(|s| s.config().to)
    }

    /// Other nodes' trunks that end here.
    pub fn receiving(&self, now: Time) -> impl Iterator<Item = Receiving> {
        let all = self.forwarder.trunks.receiving.iter();
        all.map(move |(from, r)| Receiving { from: *from, stats: r.stats(), loss: r.loss(now) })
    }
}
