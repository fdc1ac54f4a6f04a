//! The receiving end of a trunk, which keeps the contexts.

use super::rtp::{Rtp, Templates};
use super::wire::{Answer, Context, Entry, Head};
use super::{ASK_AGAIN, UNSAID_AFTER, rate_config};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_rate::tfmc::{self, Feedback};

/// Silence after which a trunk may be replaced by another: its sender asks once a second.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Time for which a trunk is in use after a packet: more than the spacing of a single call, and
/// less than a node needs to restart.
const IN_USE: Duration = Duration::from_millis(300);

/// Maximum lateness of a trunk packet, in packets, before it would be taken for a future one: only
/// 24 bits of the numbers are transmitted.
const REMEMBERED: i32 = 1 << 20;

/// State of the receiving end of a trunk.
#[derive(Default, Debug)]
pub(crate) struct Receiver {
    /// Generation of the contexts; `None` before the first question.
    generation: Option<u16>,
    /// Contexts by number; grows to the highest that was defined.
    contexts: Vec<Option<ContextState>>,
    heard: Time,
    /// Time at which the last trunk packet of the present generation arrived.
    carried: Option<Time>,
    /// Time at which a question of the present generation was last answered.
    owed: Option<Time>,
    /// Loss measurement and the interval of its reports in ms; `None` before the first question.
    rate: Option<(tfmc::Receiver, u16)>,
    /// The highest number received, extended by the bits that are not transmitted.
    number: Option<u32>,
    /// The number of a packet that was too far from all others.
    astray: Option<u32>,
    /// The last packet with a restored header.
    restored: Vec<u8>,
    stats: ReceiverStats,
}

/// A context and what its definition applies to.
#[derive(Clone, Copy, Debug)]
struct ContextState {
    context: Context,
    /// Number of the first trunk packet with this definition: earlier ones used another.
    since: u32,
    /// Time at which it was last received.
    heard: Time,
    templates: Templates,
}

impl ContextState {
    /// Whether the sender cannot have redefined the context unnoticed.
    fn is_fresh(&self, at: Time) -> bool {
        at.since(self.heard) < UNSAID_AFTER
    }

    /// Records that it was received again, with this number.
    fn again(&mut self, at: Time, number: u32) {
        if ahead(number, self.since) > REMEMBERED {
            self.since = number.wrapping_sub(REMEMBERED as u32);
        }
        self.heard = self.heard.max(at);
    }
}

/// Distance in trunk packets from number `other` to `n`: the nearest with these 24 bits.
fn ahead(n: u32, other: u32) -> i32 {
    (n.wrapping_sub(other) << 8) as i32 >> 8
}

/// Maximum number of trunk packets missing between two consecutive ones: those that a trunk sends
/// in some seconds. Numbers farther apart are accepted only if the next one continues from there
/// (RFC 3550, A.1), so a single forged one has no effect.
const MAX_JUMP: u32 = 1 << 12;

/// Counters of the packets that a node has received over another node's trunk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiverStats {
    /// Number of trunk packets received.
    pub trunk_packets: u64,
    /// Application packets in those trunk packets.
    pub packets: u64,
    /// Packets of unknown flows, because the definition of their context was lost.
    pub unknown: u64,
    /// Packets that were dropped because the template for restoring their RTP headers was lost.
    pub no_template: u64,
}

/// Result of reading an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard<'a> {
    /// A packet of this flow.
    Packet { context: Context, flow_seq: u16, payload: &'a [u8] },
    /// The definition of a context.
    Definition,
    /// A packet of an unknown flow, or with an unknown RTP header: the definition was lost, or a
    /// newer definition of the context overtook the packet.
    Unknown,
}

impl Receiver {
    pub fn new(now: Time) -> Receiver {
        Receiver { heard: now, ..Receiver::default() }
    }

    /// Handles a question from the sender.
    pub fn on_ask(
        &mut self,
        now: Time,
        generation: u16,
        report_ms: u16,
        rtt: Option<Duration>,
    ) -> Answer {
        self.heard = now;
        let is_known = self.knows(generation);
        // A sender that changes the interval also needs a new history.
        if !is_known || self.rate.as_ref().is_none_or(|(_, every)| *every != report_ms) {
            self.begin_reports(report_ms);
        }
        if let (Some((rate, _)), Some(rtt)) = (&mut self.rate, rtt) {
            rate.set_rtt(rtt);
        }
        if is_known {
            return Answer::Known;
        }
        (self.generation, self.carried, self.owed) = (Some(generation), None, Some(now));
        self.contexts.clear();
        Answer::Fresh
    }

    /// Restarts loss measurement without a history.
    fn begin_reports(&mut self, report_ms: u16) {
        let every = Duration::from_millis(report_ms.max(1).into());
        self.rate = Some((tfmc::Receiver::new(rate_config(0, every)), report_ms));
        (self.number, self.astray) = (None, None);
    }

    /// Whether the contexts kept here are those of `generation`.
    pub fn knows(&self, generation: u16) -> bool {
        self.generation == Some(generation)
    }

    /// Whether to answer a question; `None` if the rate of all others decides. One of the present
    /// generation is answered, unless another was within [`ASK_AGAIN`]. While packets of that
    /// generation arrive, a question of another generation is not: it may be from another node, and
    /// a sender that has restarted asks again.
    pub fn answers(&mut self, now: Time, generation: u16) -> Option<bool> {
        if !self.knows(generation) {
            let in_use = self.carried.is_some_and(|at| now.since(at) < IN_USE);
            return in_use.then_some(false);
        }
        if self.owed.is_some_and(|at| now.since(at) < ASK_AGAIN) {
            return Some(false);
        }
        self.owed = Some(now);
        Some(true)
    }

    /// Whether the trunk has been silent long enough to be forgotten.
    pub fn is_forgotten(&self, now: Time) -> bool {
        now.since(self.heard) > FORGOTTEN_AFTER
    }

    /// Counts a trunk packet. Returns the report that is due now, if any. A packet that a link has
    /// lost and recovered counts as lost: the path dropped it.
    pub fn note_packet(&mut self, now: Time, head: &Head, recovered: bool) -> Option<Feedback> {
        (self.heard, self.carried) = (now, Some(now));
        self.stats.trunk_packets += 1;
        if recovered {
            return None;
        }
        if self.number.is_some_and(|n| ahead(head.number, n).unsigned_abs() > MAX_JUMP) {
            let before = self.astray.replace(head.number);
            if !before.is_some_and(|n| (1..64).contains(&ahead(head.number, n))) {
                return None;
            }
            self.begin_reports(self.rate.as_ref()?.1);
        }
        let (rate, _) = self.rate.as_mut()?;
        let highest = self.number.unwrap_or(head.number);
        let ahead = ahead(head.number, highest);
        let number = highest.wrapping_add_signed(ahead);
        if ahead >= 0 {
            self.number = Some(number);
        }
        let is_due = rate.receive(now, number).unwrap_or(false);
        is_due.then(|| rate.report(now)).flatten()
    }

    /// p, the loss event rate of its trunk packets, 0 to 1.
    pub fn loss(&self, now: Time) -> f64 {
        self.rate.as_ref().map_or(0.0, |(rate, _)| rate.loss(now))
    }

    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Processes one entry of the trunk packet with this number, which arrived at `at`.
    pub fn hear<'a>(&'a mut self, at: Time, number: u32, entry: Entry<'a>) -> Heard<'a> {
        match entry {
            Entry::Definition { number: index, context } => {
                self.define(at, number, index, context);
                Heard::Definition
            }
            Entry::Packet { context, flow_seq, payload } => match self.meaning(at, number, context)
            {
                Some(&mut ContextState { context, .. }) => self.packet(context, flow_seq, payload),
                None => Heard::Unknown,
            },
            Entry::Rtp { context, flow_seq, rtp, payload } => {
                let Some(meaning) = self.meaning(at, number, context) else {
                    return Heard::Unknown;
                };
                let context = meaning.context;
                if let Rtp::Says { template, step } = rtp {
                    meaning.templates.say(at, flow_seq, template, step, payload);
                    return self.packet(context, flow_seq, payload);
                }
                let Some(header) = meaning.templates.header(at, flow_seq, &rtp) else {
                    self.stats.no_template += 1;
                    return Heard::Unknown;
                };
                self.stats.packets += 1;
                self.restored.clear();
                self.restored.extend_from_slice(&header);
                self.restored.extend_from_slice(payload);
                Heard::Packet { context, flow_seq, payload: &self.restored }
            }
        }
    }

    fn packet<'a>(&mut self, context: Context, flow_seq: u16, payload: &'a [u8]) -> Heard<'a> {
        self.stats.packets += 1;
        Heard::Packet { context, flow_seq, payload }
    }

    /// Records the definition of context `index` in trunk packet `number`.
    fn define(&mut self, at: Time, number: u32, index: u16, context: Context) {
        let index = usize::from(index);
        if self.contexts.len() <= index {
            self.contexts.resize(index + 1, None);
        }
        let place = &mut self.contexts[index];
        match place.as_mut().filter(|known| known.is_fresh(at)) {
            Some(known) if ahead(number, known.since) < 0 => {}
            Some(known) if known.context == context => known.again(at, number),
            known => {
                // A flow keeps its templates, whatever the deadline of its packets, and packets
                // that were overtaken still belong to it.
                let same = known.filter(|known| known.context.ports() == context.ports());
                let (since, templates) =
                    same.map_or_else(|| (number, Templates::default()), |m| (m.since, m.templates));
                let mut meaning = ContextState { context, since, heard: at, templates };
                meaning.again(at, number);
                *place = Some(meaning);
            }
        }
    }

    /// The meaning of context `index` in trunk packet `number`, if known; otherwise the packet
    /// counts as unknown.
    fn meaning(&mut self, at: Time, number: u32, index: u16) -> Option<&mut ContextState> {
        let place = self.contexts.get_mut(usize::from(index)).and_then(Option::as_mut);
        let known = place.filter(|m| m.is_fresh(at) && ahead(number, m.since) >= 0);
        match known {
            Some(meaning) => {
                meaning.again(at, number);
                Some(meaning)
            }
            None => {
                self.stats.unknown += 1;
                None
            }
        }
    }
}
