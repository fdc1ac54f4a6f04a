//! The sending end of a trunk: it gathers packets, and says when they are to leave.

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

/// How often the other end is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// For how long an answer counts: two may be lost in a row.
const ANSWER_COUNTS: Duration = Duration::from_millis(3_500);

/// A flow that was the only one for so long doesn't wait for others: three packets of
/// 60 ms, the longest that telephones send.
const ALONE: Duration = Duration::from_millis(180);

/// What a context means is said with so many packets of its flow at first, and with one
/// in each of these spans from then on.
const DEFINED_FIRST: u8 = 3;
const DEFINED_EVERY: Duration = Duration::from_secs(1);

/// How much sooner than its deadline allows a packet leaves.
const MARGIN: Duration = Duration::from_millis(1);

/// Packets whose deadlines are further apart than this don't share a trunk packet, which
/// is of use, and so is recovered, only until the earliest. Those that are of use for as
/// long differ by the wait.
const DEADLINES_DIFFER: Duration = Config::MAX_WAIT;

/// What the sender knows of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It hasn't answered, or not for a while: packets leave one by one.
    Silent,
    /// It takes trunk packets.
    Open,
    /// It said that it takes none.
    Refused,
}

/// What a trunk has carried, and what it hasn't.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Applications' packets that left in trunk packets.
    pub packets: u64,
    /// Their bytes, without any header.
    pub bytes: u64,
    /// Trunk packets that were sent.
    pub trunk_packets: u64,
    /// Their bytes, with the trunk's own headers.
    pub trunk_bytes: u64,
    /// Packets whose RTP headers were compressed.
    pub compressed: u64,
    /// By how many bytes those headers became shorter. What says how to restore them costs
    /// three bytes with one packet a second of each flow.
    pub header_bytes_saved: u64,
    /// Packets that left by themselves: of the only flow, or too large to share a trunk
    /// packet, or to the node itself, or more flows than there are contexts.
    pub alone: u64,
    /// Packets that left by themselves because the other end had not answered.
    pub unanswered: u64,
    /// Trunk packets that no link took, with all that they held.
    pub dropped: u64,
}

/// A flow that is being sent.
#[derive(Debug)]
struct Sending {
    context: u16,
    flow: Context,
    /// How often its meaning has been said to a receiver that may know it, and when last.
    said: u8,
    said_at: Time,
    last: Time,
    compressor: Compressor,
}

impl Sending {
    /// The receiver knows nothing any more.
    fn restart(&mut self) {
        self.said = 0;
        self.compressor.restart();
    }
}

/// How a packet is to be put to the others.
#[derive(Debug)]
struct Plan {
    context: u16,
    /// What the context means, if that is to be said with this packet.
    definition: Option<Context>,
    /// What the packet has of its RTP header, if that isn't sent as it is, and what the
    /// sender knows then.
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

/// What is gathered.
#[derive(Debug)]
struct Batch {
    /// Head and entries.
    bytes: Vec<u8>,
    entries: u8,
    packets: u8,
    payload: usize,
    metric: Metric,
    /// The deadline of the first packet.
    first: Time,
    /// The earliest deadline, and when it must leave.
    deadline: Time,
    leave_at: Time,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Enqueued {
    /// It waits for others, until [`Sender::is_due`].
    Gathered,
    /// It is to be sent by itself, after what is gathered.
    Alone,
    /// What is gathered must leave first: then try again.
    Full,
}

/// A trunk packet that leaves.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Its payload.
    pub bytes: Vec<u8>,
    pub number: u32,
    pub metric: Metric,
    /// The earliest of what it holds.
    pub deadline: Time,
}

/// A packet to put together with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub source_port: u16,
    pub destination_port: u16,
    pub flow_seq: u16,
    pub metric: Metric,
    pub deadline: Time,
    /// How long the way takes from here on.
    pub way: Duration,
    pub payload: &'a [u8],
}

fn key(source_port: u16, destination_port: u16) -> u64 {
    u64::from(source_port) << 16 | u64::from(destination_port)
}

/// The sending end of a trunk.
#[derive(Debug)]
pub(crate) struct Sender {
    config: Config,
    generation: u16,
    rate: tfmc::Sender,
    /// Of the last trunk packet.
    number: u32,
    flows: Lru<Sending>,
    /// By context.
    meanings: Vec<Context>,
    batch: Batch,
    /// The context of the last packet, when that came, and when one of another did.
    last: Option<(u16, Time)>,
    other: Option<Time>,
    answered: Option<(Answer, Time)>,
    ask_at: Time,
    stats: Stats,
}

impl Sender {
    /// A trunk whose packets will have at most `room` bytes; `generation` and `secret`
    /// are random.
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

    /// Takes effect for what comes from now on.
    pub fn set_config(&mut self, now: Time, config: Config) {
        self.config = config;
        self.rate.set_feedback_interval(config.report_every());
        // The other end is to know how often to report.
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

    /// When [`Sender::ask`], [`Sender::take`] or [`Sender::expire`] is due.
    pub fn next_timeout(&self) -> Time {
        match self.config.multiplex {
            Multiplex::Off => self.batch.leave_at,
            _ => self.ask_at.min(self.batch.leave_at).min(self.rate.next_timeout()),
        }
    }

    /// The rate that it measures, and may have.
    pub fn rate(&self) -> &tfmc::Sender {
        &self.rate
    }

    /// If no report has come for too long, the path is taken for worse than it was.
    pub fn expire(&mut self, now: Time) {
        self.rate.expire(now);
    }

    /// Takes a report; whether it was of this trunk, and can be true.
    pub fn on_report(&mut self, now: Time, generation: u16, report: Feedback) -> bool {
        // Of the number 24 bits have been under way, and no later one has been sent.
        let back = self.number.wrapping_sub(report.number) & 0xff_ffff;
        let number = self.number.wrapping_sub(back);
        generation == self.generation
            && self.rate.feedback(now, &Feedback { number, ..report }).is_ok()
    }

    /// Whether flows that are new may send by this trunk, which they may not while it is
    /// over its share, if it is configured so.
    pub fn admits_new(&self, now: Time) -> bool {
        !self.config.admit_share || !self.rate.over_share_at(now)
    }

    /// How many packets leave together at most.
    fn most(&self) -> usize {
        match self.config.multiplex {
            Multiplex::Tfmc => self.rate.multiplex(),
            Multiplex::Fill | Multiplex::Off => MAX_ENTRIES,
        }
    }

    /// The question for the other end, if it is time for one.
    pub fn ask(&mut self, now: Time) -> Option<Message<'static>> {
        if self.config.multiplex == Multiplex::Off || now < self.ask_at {
            return None;
        }
        self.ask_at = now + ASK_EVERY;
        let (version, generation) = (TRUNK_VERSION, self.generation);
        let report_ms = self.config.report_every().as_millis() as u16;
        Some(Message::Ask { version, generation, report_ms, rtt: self.rate.rtt() })
    }

    /// Takes the answer of the other end; whether it was to a question of this trunk.
    pub fn on_answer(&mut self, now: Time, generation: u16, answer: Answer) -> bool {
        if generation != self.generation {
            return false;
        }
        match answer {
            Answer::Fresh => self.flows.values_mut().for_each(Sending::restart),
            // Of what was said before nothing is known there any more.
            Answer::Unknown if self.state(now) == State::Open => {
                self.ask_at = self.ask_at.min(now + ASK_AGAIN);
            }
            Answer::Unknown => return true,
            Answer::Known | Answer::Refused => {}
        }
        self.answered = Some((answer, now));
        true
    }

    /// Whether what is gathered is to leave now.
    pub fn is_due(&self, now: Time) -> bool {
        self.batch.leave_at <= now
    }

    /// Puts a packet to the others, of which at most `room` bytes leave together, or says
    /// what becomes of it instead.
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
        // No context stands for a flow to a node itself.
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

    /// How the packet is to be put to the others; `None` if there is no context for its
    /// flow.
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
        // Templates outlast the deadline of a flow, but not its context.
        if flow.flow != meant {
            (flow.flow, flow.said) = (meant, 0);
        }
        // What leaves alone tells the other end nothing.
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

    /// A packet goes, with others (`together`) as it was planned, or by itself.
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

    /// What is gathered; give its memory back by [`Sender::reclaim`].
    pub fn take(&mut self, now: Time) -> Option<Leaving> {
        if self.batch.entries == 0 {
            return None;
        }
        // What rate control takes for payload is what is sent beyond the headers that it
        // knows, definitions and compressed headers among it.
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

    /// Takes back the memory of [`Sender::take`]; if its packet was dropped, `each` is
    /// called with the flow of each packet that it held.
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
