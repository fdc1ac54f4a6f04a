//! The receiving end of a trunk: it knows what contexts mean.

use super::rtp::{Rtp, Templates};
use super::wire::{Answer, Context, Entry, Head};
use super::{ASK_AGAIN, UNSAID_AFTER, rate_config};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_rate::tfmc::{self, Feedback};

/// A trunk that was silent for so long makes room for another: its sender asks once a
/// second.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// A trunk is in use for so long after a packet: more than a lone call's spacing, and less
/// than a node needs to start again.
const IN_USE: Duration = Duration::from_millis(300);

/// Trunk packets by which one may be late without being taken for one to come: of their
/// numbers only 24 bits are known.
const REMEMBERED: i32 = 1 << 20;

/// The receiving end of a trunk.
#[derive(Default, Debug)]
pub(crate) struct Receiver {
    /// `None` before the first question.
    generation: Option<u16>,
    /// By number; grows to the highest that was defined.
    contexts: Vec<Option<ContextState>>,
    heard: Time,
    /// When the last trunk packet of the present generation came.
    carried: Option<Time>,
    /// When it was owed an answer last.
    owed: Option<Time>,
    /// What is lost, and how often it is reported; `None` before the first question.
    rate: Option<(tfmc::Receiver, u16)>,
    /// The highest number that has come, with the bits that it has not on the wire.
    number: Option<u32>,
    /// The number of a packet that was too far from all others.
    astray: Option<u32>,
    /// The packet whose header was restored last.
    restored: Vec<u8>,
    stats: ReceiverStats,
}

/// What a context means.
#[derive(Clone, Copy, Debug)]
struct ContextState {
    context: Context,
    /// The number of the first trunk packet that said so: those before meant another.
    since: u32,
    /// When it was heard last.
    heard: Time,
    templates: Templates,
}

impl ContextState {
    /// Whether the sender can't have given the context another meaning unheard.
    fn is_fresh(&self, at: Time) -> bool {
        at.since(self.heard) < UNSAID_AFTER
    }

    /// It is heard again with this number.
    fn again(&mut self, at: Time, number: u32) {
        if ahead(number, self.since) > REMEMBERED {
            self.since = number.wrapping_sub(REMEMBERED as u32);
        }
        self.heard = self.heard.max(at);
    }
}

/// By how many trunk packets number `n` comes after `other`: the nearest with these 24
/// bits.
fn ahead(n: u32, other: u32) -> i32 {
    (n.wrapping_sub(other) << 8) as i32 >> 8
}

/// Trunk packets that may be missing between two that come one after the other: what a trunk
/// sends in some seconds. Numbers farther apart than that are believed when the next one goes
/// on from there (RFC 3550, A.1), so that a single forged one changes nothing.
const MAX_JUMP: u32 = 1 << 12;

/// What a node has received by the trunk of another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiverStats {
    /// Trunk packets that came.
    pub trunk_packets: u64,
    /// Applications' packets in them.
    pub packets: u64,
    /// Packets of flows that were unknown, since what would have said what their context
    /// means was lost.
    pub unknown: u64,
    /// Packets that were dropped, since what would have said how to restore their RTP
    /// headers was lost.
    pub no_template: u64,
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard<'a> {
    /// A packet of this flow.
    Packet { context: Context, flow_seq: u16, payload: &'a [u8] },
    /// It says what a context means.
    Definition,
    /// A packet of a flow, or with an RTP header, that is unknown: what would have said so
    /// was lost, or it was overtaken by what its context means now.
    Unknown,
}

impl Receiver {
    pub fn new(now: Time) -> Receiver {
        Receiver { heard: now, ..Receiver::default() }
    }

    /// The sender asks.
    pub fn on_ask(
        &mut self,
        now: Time,
        generation: u16,
        report_ms: u16,
        rtt: Option<Duration>,
    ) -> Answer {
        self.heard = now;
        let is_known = self.knows(generation);
        // Who changes how often wants a history of its own as well.
        if !is_known || self.rate.as_ref().is_none_or(|(_, every)| *every != report_ms) {
            self.begin_reports(report_ms);
        }
        if let (Some((rate, _)), Some(rtt)) = (&mut self.rate, rtt) {
            rate.set_rtt(rtt);
        }
        if is_known {
            return Answer::Known;
        }
        (self.generation, self.carried) = (Some(generation), None);
        self.contexts.clear();
        Answer::Fresh
    }

    /// Nothing is known of what was lost before.
    fn begin_reports(&mut self, report_ms: u16) {
        let every = Duration::from_millis(report_ms.max(1).into());
        self.rate = Some((tfmc::Receiver::new(rate_config(0, every)), report_ms));
        (self.number, self.astray) = (None, None);
    }

    /// Whether contexts of `generation` mean what this end believes.
    pub fn knows(&self, generation: u16) -> bool {
        self.generation == Some(generation)
    }

    /// Whether a question is answered; `None` if others' decide. One of the present
    /// generation is, unless there was another just now. While packets of that come, one
    /// of another generation isn't: it may be another node's, and a sender that has
    /// started again asks again.
    pub fn answers(&mut self, now: Time, generation: u16) -> Option<bool> {
        if !self.knows(generation) {
            let in_use = self.carried.is_some_and(|at| now.since(at) < IN_USE);
            return in_use.then_some(false);
        }
        if self.owed.is_some_and(|at| now.since(at) < ASK_AGAIN) {
            return None;
        }
        self.owed = Some(now);
        Some(true)
    }

    /// Whether it has been silent for long.
    pub fn is_forgotten(&self, now: Time) -> bool {
        now.since(self.heard) > FORGOTTEN_AFTER
    }

    /// A trunk packet has come; the report that is due now, if one is. One that a link
    /// has lost and got again counts as lost: the path dropped it.
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

    /// Takes one entry of the trunk packet with this number, which came at `at`.
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

    /// Trunk packet `number` says what context `index` means.
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
                // A flow keeps its templates, whatever deadline its packets have, and what was
                // overtaken is still its own.
                let same = known.filter(|known| known.context.ports() == context.ports());
                let (since, templates) =
                    same.map_or_else(|| (number, Templates::default()), |m| (m.since, m.templates));
                let mut meaning = ContextState { context, since, heard: at, templates };
                meaning.again(at, number);
                *place = Some(meaning);
            }
        }
    }

    /// What context `index` means in trunk packet `number`, if that is known; else the
    /// packet counts as unknown.
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
