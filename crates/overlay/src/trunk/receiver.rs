//! The receiving end of a trunk: it knows what contexts mean.

use super::wire::{Answer, Context, Entry};
use core::time::Duration;
use trunkline_base::Time;

/// A trunk that was silent for so long makes room for another: its sender asks once a
/// second.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// The receiving end of a trunk.
#[derive(Default, Debug)]
pub(crate) struct Receiver {
    /// `None` before the first question.
    generation: Option<u16>,
    /// By number; grows to the highest that was defined.
    contexts: Vec<Option<Context>>,
    heard: Time,
    stats: ReceiverStats,
}

/// What a node has received by the trunk of another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiverStats {
    /// Trunk packets.
    pub trunk_packets: u64,
    /// Applications' packets in them.
    pub packets: u64,
    /// Packets of flows that were unknown, since what would have said what their context
    /// means was lost.
    pub unknown: u64,
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard<'a> {
    /// A packet of this flow.
    Packet { context: Context, flow_seq: u16, payload: &'a [u8] },
    /// It says what a context means.
    Definition,
    /// A packet of a flow that is unknown: what would have said so was lost.
    Unknown,
}

impl Receiver {
    pub fn new(now: Time) -> Receiver {
        Receiver { heard: now, ..Receiver::default() }
    }

    /// The sender asks.
    pub fn on_ask(&mut self, now: Time, generation: u16) -> Answer {
        self.heard = now;
        if self.knows(generation) {
            return Answer::Known;
        }
        self.generation = Some(generation);
        self.contexts.clear();
        Answer::Fresh
    }

    /// Whether contexts of `generation` mean what this end believes.
    pub fn knows(&self, generation: u16) -> bool {
        self.generation == Some(generation)
    }

    /// Whether it has been silent for long.
    pub fn is_forgotten(&self, now: Time) -> bool {
        now.since(self.heard) > FORGOTTEN_AFTER
    }

    /// A trunk packet has come.
    pub fn note_packet(&mut self, now: Time) {
        self.heard = now;
        self.stats.trunk_packets += 1;
    }

    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Takes one entry.
    pub fn hear<'a>(&mut self, entry: Entry<'a>) -> Heard<'a> {
        match entry {
            Entry::Definition { number, context } => {
                let index = usize::from(number);
                if self.contexts.len() <= index {
                    self.contexts.resize(index + 1, None);
                }
                self.contexts[index] = Some(context);
                Heard::Definition
            }
            Entry::Packet { context, flow_seq, payload } => {
                match self.contexts.get(usize::from(context)) {
                    Some(&Some(context)) => {
                        self.stats.packets += 1;
                        Heard::Packet { context, flow_seq, payload }
                    }
                    _ => {
                        self.stats.unknown += 1;
                        Heard::Unknown
                    }
                }
            }
        }
    }
}
