//! The sending end of a trunk: gathers packets, and decides when they leave.

use super::rtp::{Compressor, RTP_HEADER, Rtp, SAYING};
use super::wire::{
    Answer, Context, DEFINITION, ENTRY, Entries, Entry, HEAD, Head, MAX_CONTEXTS, MAX_ENTRIES,
    MAX_PACKET, Message, TRUNK_VERSION,
};
use super::{ASK_AGAIN, Config, Multiplex, REUSED_AFTER, UNSAID_AFTER, rate_config};
use crate::link::remaining_ms;
use crate::session::Lru;
use crate::wire::Metric;
use core::time::Duration;
use trunkline_base::Time;
use trunkline_rate::tfmc::{self, Feedback};

/// Interval between questions to the other end.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Time for which an answer counts: two may be lost in a row.
const ANSWER_COUNTS: Duration = Duration::from_millis(3_500);

/// A flow that has been the only one for this long doesn't wait for others: three packets of 60 ms,
/// the longest that telephones send.
const ALONE: Duration = Duration::from_millis(180);

/// Number of first packets of a flow that carry the definition of its context, and interval between
/// later ones that do.
const DEFINED_FIRST: u8 = 3;
const DEFINED_EVERY: Duration = Duration::from_secs(1);

/// Time by which a packet leaves earlier than its deadline requires.
const MARGIN: Duration = Duration::from_millis(1);

/// Packets with deadlines that differ by more than this don't share a trunk packet, which is
/// useful, and so is recovered, only until the earliest. Packets with equal times to live differ by
/// the wait.
const DEADLINES_DIFFER: Duration = Config::MAX_WAIT;

/// State of the other end, as far as the sender can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It hasn't answered, or not for a while: packets leave one by one.
    Silent,
    /// It accepts trunk packets.
    Open,
    /// It answered that it accepts none.
    Refused,
}

/// Counters of a trunk's packets, in trunk packets and outside.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Application packets that left in trunk packets.
    pub packets: u64,
    /// Bytes of those packets, without any header.
    pub bytes: u64,
    /// Number of trunk packets sent.
    pub trunk_packets: u64,
    /// Bytes of those trunk packets, with the trunk's headers.
    pub trunk_bytes: u64,
    /// Packets with compressed RTP headers.
    pub compressed: u64,
    /// Bytes saved by that compression. Announcing templates costs three bytes in one packet a
    /// second of each flow.
    pub header_bytes_saved: u64,
    /// Packets that left separately: of the only flow, too large to share a trunk packet, to the
    /// node itself, or of more flows than there are contexts.
    pub alone: u64,
    /// Packets that left separately because the other end had not answered.
    pub unanswered: u64,
    /// Trunk packets that no link accepted, lost with all their contents.
    pub dropped: u64,
}

/// Sending state of a flow.
#[derive(Debug)]
struct Sending {
    context: u16,
    flow: Context,
    /// Number of definitions sent to a receiver that may have kept them, and time of the last.
    said: u8,
    said_at: Time,
    last: Time,
    compressor: Compressor,
}

impl Sending {
    /// Handles a restart of the receiver, which has lost all contexts.
    fn restart(&mut self) {
        self.said = 0;
        self.compressor.restart();
    }
}

/// How to add a packet to the others.
#[derive(Debug)]
struct Plan {
    context: u16,
    /// Definition of the context, if this packet must carry it.
    definition: Option<Context>,
    /// Encoding of the packet's RTP header, unless that is sent unchanged, and the compressor's
    /// state after it.
    rtp: Option<Rtp>,
    compressor: Compressor,
}

impl Plan {
    fn entry<'a>(&self, packet: &Outgoing<'a>) -> Entry<'a> {
        let &Outgoing { flow_seq, payload, .. } = packet;
        let context = self.context;
        match self.rtp {
            None => Entry::Packet { context, flow_seq, payload },
            Some(rtp @ Rtp::Says { .. }) => Entry::Rtp { context, flow_seq, rtp, payload },
            Some(rtp @ Rtp::By { .. }) => {
                let payload = payload.get(RTP_HEADER..).unwrap_or(&[]);
                Entry::Rtp { context, flow_seq, rtp, payload }
            }
        }
    }
}

/// Packets gathered for the next trunk packet.
#[derive(Debug)]
struct Batch {
    /// Bytes of head and entries.
    bytes: Vec<u8>,
    entries: u8,
    packets: u8,
    payload: usize,
    metric: Metric,
    /// The deadline of the first packet.
    first: Time,
    /// The earliest deadline, and the time by which it must leave.
    deadline: Time,
    leave_at: Time,
}

/// Result of adding a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Enqueued {
    /// It waits for others, until [`Sender::is_due`].
    Gathered,
    /// It must be sent separately, after the gathered packets.
    Alone,
    /// The gathered packets must leave first: then try again.
    Full,
}

/// A trunk packet to send.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Payload of the packet.
    pub bytes: Vec<u8>,
    pub number: u32,
    pub metric: Metric,
    /// The earliest deadline of its contents.
    pub deadline: Time,
}

/// A packet to combine with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub source_port: u16,
    pub destination_port: u16,
    pub flow_seq: u16,
    pub metric: Metric,
    pub deadline: Time,
    /// Delay of the path from here on.
    pub way: Duration,
    pub payload: &'a [u8],
}

fn key(source_port: u16, destination_port: u16) -> u64 {
    u64::from(source_port) << 16 | u64::from(destination_port)
}

/// State of the sending end of a trunk.
#[derive(Debug)]
pub(crate) struct Sender {
    config: Config,
    generation: u16,
    rate: tfmc::Sender,
    /// Number of the last trunk packet.
    number: u32,
    flows: Lru<Sending>,
    /// Definitions by context number.
    meanings: Vec<Context>,
    batch: Batch,
    /// The context of the last packet and its time, and the time of the last packet of another
    /// context.
    last: Option<(u16, Time)>,
    other: Option<Time>,
    answered: Option<(Answer, Time)>,
    ask_at: Time,
    stats: Stats,
}

impl Sender {
    /// Creates a trunk with packets of at most `room` bytes; `generation` and `secret` are random.
    pub fn new(config: Config, room: usize, generation: u16, secret: u64, now: Time) -> Sender {
        Sender {
            config,
            generation,
            rate: tfmc::Sender::new(rate_config(room, config.report_every()), now),
            number: 0,
            flows: Lru::new(usize::from(MAX_CONTEXTS), secret),
            meanings: Vec::new(),
            batch: Batch {
                bytes: Vec::with_capacity(room),
                entries: 0,
                packets: 0,
                payload: 0,
                metric: Metric::default(),
                first: Time::NEVER,
                deadline: Time::NEVER,
                leave_at: Time::NEVER,
            },
            last: None,
            other: None,
            answered: None,
            ask_at: now,
            stats: Stats::default(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the configuration for all later packets.
    pub fn set_config(&mut self, now: Time, config: Config) {
        self.config = config;
        self.rate.set_feedback_interval(config.report_every());
        // Notify the other end of its report interval.
        self.ask_at = now;
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }

    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    pub fn state(&self, now: Time) -> State {
        match self.answered {
            Some((answer, at)) if now.since(at) <= ANSWER_COUNTS => match answer {
                Answer::Refused => State::Refused,
                Answer::Unknown => State::Silent,
                Answer::Known | Answer::Fresh => State::Open,
            },
            _ => State::Silent,
        }
    }

    /// Time of the next call of [`Sender::ask`], [`Sender::take`] or [`Sender::expire`].
    pub fn next_timeout(&self) -> Time {
        match self.config.multiplex {
            Multiplex::Off => self.batch.leave_at,
            _ => self.ask_at.min(self.batch.leave_at).min(self.rate.next_timeout()),
        }
    }

    /// Rate control: the rate measured, and the rate permitted.
    pub fn rate(&self) -> &tfmc::Sender {
        &self.rate
    }

    /// If no report has arrived for too long, reduces the estimate of the path.
    pub fn expire(&mut self, now: Time) {
        self.rate.expire(now);
    }

    /// Processes a report. Returns whether it was for this trunk, and plausible.
    pub fn on_report(&mut self, now: Time, generation: u16, report: Feedback) -> bool {
        // 24 bits of the number were transmitted, and no later one has been sent.
        let back = self.number.wrapping_sub(report.number) & 0xff_ffff;
        let number = self.number.wrapping_sub(back);
        generation == self.generation
            && self.rate.feedback(now, &Feedback { number, ..report }).is_ok()
    }

    /// Whether new flows may send over this trunk. If configured so, they may not while it exceeds
    /// its share.
    pub fn admits_new(&self, now: Time) -> bool {
        !self.config.admit_share || !self.rate.over_share_at(now)
    }

    /// Maximum number of packets that leave together.
    fn most(&self) -> usize {
        match self.config.multiplex {
            Multiplex::Tfmc => self.rate.multiplex(),
            Multiplex::Fill | Multiplex::Off => MAX_ENTRIES,
        }
    }

    /// The message that asks the other end to open or keep this trunk, if one is due.
    pub fn ask(&mut self, now: Time) -> Option<Message<'static>> {
        if self.config.multiplex == Multiplex::Off || now < self.ask_at {
            return None;
        }
        self.ask_at = now + ASK_EVERY;
        let (version, generation) = (TRUNK_VERSION, self.generation);
        let report_ms = self.config.report_every().as_millis() as u16;
        Some(Message::Ask { version, generation, report_ms, rtt: self.rate.rtt() })
    }

    /// Processes the answer of the other end. Returns whether it was to a question of this trunk.
    pub fn on_answer(&mut self, now: Time, generation: u16, answer: Answer) -> bool {
        if generation != self.generation {
            return false;
        }
        match answer {
            Answer::Fresh => self.flows.values_mut().for_each(Sending::restart),
            // The other end has lost all earlier definitions.
            Answer::Unknown if self.state(now) == State::Open => {
                self.ask_at = self.ask_at.min(now + ASK_AGAIN);
            }
            Answer::Unknown => return true,
            Answer::Known | Answer::Refused => {}
        }
        self.answered = Some((answer, now));
        true
    }

    /// Whether the gathered packets must leave now.
    pub fn is_due(&self, now: Time) -> bool {
        self.batch.leave_at <= now
    }

    /// Adds a packet to the others, with which it forms a trunk packet of at most `room` bytes, or
    /// returns what to do with it instead.
    pub fn put(&mut self, now: Time, packet: &Outgoing<'_>, room: usize) -> Enqueued {
        if self.config.multiplex == Multiplex::Off {
            return Enqueued::Alone;
        }
        if self.state(now) != State::Open {
            self.stats.unanswered += 1;
            return Enqueued::Alone;
        }
        let most = HEAD + DEFINITION + ENTRY + SAYING + packet.payload.len();
        let fits = packet.payload.len() <= MAX_PACKET && most <= room;
        // No context is possible for a flow to the node itself.
        let may = fits && packet.destination_port != 0;
        let Some(plan) = may.then(|| self.plan(now, packet)).flatten() else {
            self.stats.alone += 1;
            return Enqueued::Alone;
        };
        if self.is_alone(now, plan.context) {
            self.note(now, packet, &plan, false);
            self.stats.alone += 1;
            return Enqueued::Alone;
        }
        let entry = plan.entry(packet);
        let len = entry.size() + plan.definition.map_or(0, |_| DEFINITION);
        let batch = &self.batch;
        let differs = batch.entries > 0
            && (batch.metric != packet.metric
                || batch.first.since(packet.deadline).max(packet.deadline.since(batch.first))
                    > DEADLINES_DIFFER);
        if differs
            || batch.bytes.len().max(HEAD) + len > room
            || usize::from(batch.entries) + 2 > MAX_ENTRIES
            || usize::from(batch.packets) >= self.most()
        {
            return Enqueued::Full;
        }
        self.note(now, packet, &plan, true);
        self.append(now, packet, &plan, &entry);
        Enqueued::Gathered
    }

    /// How to add the packet to the others; `None` if there is no context for its flow.
    fn plan(&mut self, now: Time, packet: &Outgoing<'_>) -> Option<Plan> {
        let &Outgoing { source_port, destination_port, .. } = packet;
        let deadline_ms = remaining_ms(now, packet.deadline);
        let meant = Context { source_port, destination_port, deadline_ms };
        let key = key(source_port, destination_port);
        let full = self.flows.len() == usize::from(MAX_CONTEXTS) && self.flows.get(key).is_none();
        if full && self.flows.oldest().is_none_or(|flow| now.since(flow.last) < REUSED_AFTER) {
            return None;
        }
        let next = self.flows.len() as u16 + 1;
        let compressor = Compressor::default();
        let (said, said_at) = (0, now);
        let fresh = || Sending { context: 0, flow: meant, said, said_at, last: now, compressor };
        let (flow, displaced) = self.flows.entry(key, fresh);
        if flow.context == 0 {
            flow.context = displaced.map_or(next, |old| old.context);
        }
        // Templates survive a change of the flow's deadline, but its context doesn't.
        if flow.flow != meant {
            (flow.flow, flow.said) = (meant, 0);
        }
        // Packets that leave separately carry no definitions.
        if now.since(flow.said_at) >= UNSAID_AFTER {
            flow.restart();
        }
        let context = flow.context;
        let index = usize::from(context);
        if self.meanings.len() <= index {
            self.meanings.resize(index + 1, meant);
        }
        self.meanings[index] = meant;
        let is_due = flow.said < DEFINED_FIRST || now.since(flow.said_at) >= DEFINED_EVERY;
        let definition = is_due.then_some(meant);
        let (compressor, rtp) =
            flow.compressor.compress(now, packet.flow_seq, packet.payload, is_due);
        Some(Plan { context, definition, rtp, compressor })
    }

    /// Whether no other flow has sent for a while.
    fn is_alone(&self, now: Time, context: u16) -> bool {
        let recent = |at: Time| now.since(at) <= ALONE;
        let other = match self.last {
            Some((last, at)) if last != context => Some(at),
            _ => self.other,
        };
        !other.is_some_and(recent)
    }

    /// Records that a packet leaves, either with others (`together`) as planned, or separately.
    fn note(&mut self, now: Time, packet: &Outgoing<'_>, plan: &Plan, together: bool) {
        let context = plan.context;
        if let Some((last, at)) = self.last
            && last != context
        {
            self.other = Some(at);
        }
        self.last = Some((context, now));
        let key = key(packet.source_port, packet.destination_port);
        if let Some(flow) = self.flows.get_mut(key) {
            flow.last = now;
            if together {
                flow.compressor = plan.compressor;
            }
            if together && plan.definition.is_some() {
                (flow.said, flow.said_at) = (flow.said.saturating_add(1), now);
            }
        }
    }

    fn append(&mut self, now: Time, packet: &Outgoing<'_>, plan: &Plan, entry: &Entry<'_>) {
        let batch = &mut self.batch;
        if batch.entries == 0 {
            batch.bytes.resize(HEAD, 0);
            (batch.metric, batch.first) = (packet.metric, packet.deadline);
            (batch.deadline, batch.leave_at) = (Time::NEVER, now + self.config.wait);
        }
        if let Some(meant) = plan.definition {
            Entry::Definition { number: plan.context, context: meant }.push(&mut batch.bytes);
            batch.entries += 1;
        }
        entry.push(&mut batch.bytes);
        batch.entries += 1;
        batch.packets += 1;
        batch.payload += packet.payload.len();
        if let Some(rtp @ Rtp::By { .. }) = plan.rtp {
            self.stats.compressed += 1;
            self.stats.header_bytes_saved += (RTP_HEADER - rtp.size()) as u64;
        }
        batch.deadline = batch.deadline.min(packet.deadline);
        batch.leave_at = batch.leave_at.min(packet.deadline - packet.way - MARGIN);
        if usize::from(self.batch.packets) >= self.most() {
            self.batch.leave_at = now;
        }
    }

    /// Takes the gathered packets; return their memory with [`Sender::reclaim`].
    pub fn take(&mut self, now: Time) -> Option<Leaving> {
        if self.batch.entries == 0 {
            return None;
        }
        // Rate control counts as payload all bytes beyond the headers that it includes, so also
        // definitions and compressed headers.
        let packets = usize::from(self.batch.packets);
        let payload = self.batch.bytes.len() - HEAD - packets * ENTRY;
        self.number = self.rate.sent(now, packets, payload);
        let head = Head {
            entries: self.batch.entries,
            generation: self.generation,
            number: self.number & 0xff_ffff,
            remaining_ms: remaining_ms(now, self.batch.deadline),
        };
        let batch = &mut self.batch;
        batch.bytes[..HEAD].copy_from_slice(&head.bytes());
        self.stats.packets += u64::from(batch.packets);
        self.stats.bytes += batch.payload as u64;
        self.stats.trunk_packets += 1;
        self.stats.trunk_bytes += batch.bytes.len() as u64;
        (batch.entries, batch.packets, batch.payload) = (0, 0, 0);
        batch.leave_at = Time::NEVER;
        let &mut Batch { metric, deadline, .. } = batch;
        let bytes = core::mem::take(&mut batch.bytes);
        Some(Leaving { bytes, number: self.number, metric, deadline })
    }

    /// Takes back the memory from [`Sender::take`]; if its packet was dropped, `each` is called
    /// with the flow of each packet in it.
    pub fn reclaim(&mut self, mut bytes: Vec<u8>, dropped: bool, mut each: impl FnMut(Context)) {
        if dropped {
            self.stats.dropped += 1;
            if let Some(Message::Packets(head, rest)) = Message::parse(&bytes) {
                for entry in Entries::new(&head, rest).flatten() {
                    if let Entry::Packet { context, .. } | Entry::Rtp { context, .. } = entry
                        && let Some(&meant) = self.meanings.get(usize::from(context))
                    {
                        each(meant);
                    }
                }
            }
        }
        bytes.clear();
        self.batch.bytes = bytes;
    }
}
