//! Messages between two nodes about a trunk, from port 0 to port 0.
//!
//! Numbers are big endian; after the kind, which no echo has:
//!
//! ```text
//! ask      5 | version 8 | generation 16 | report every 16 (ms) | round trip 32 (µs, 0: unknown)
//! answer   6 | version 8 | generation 16 | answer 8 | latest version 8
//! packets  7 | entries 8 | generation 16 | number 24 | remaining 8, then the entries
//! report   8 | version 8 | generation 16 | number 32 | elapsed 32 (µs) | loss 32
//! ```
//!
//! An entry begins with its context (12 bits), whether its RTP header is compressed (1 bit), and
//! its length (11 bits). An entry with context 0 defines another context: context 16, source port
//! 16, destination port 16, time to live 8 (ms). Every other entry has the packet's number in its
//! flow (16 bits), and `length` bytes of packet, or, if it is compressed, one of
//!
//! ```text
//! template 4 | 1000 | step 16, then the whole packet, which announces the template
//! template 4 | 0, marker, has timestamp, has number | [timestamp 32] | [number 16],
//!     then the packet without its RTP header
//! ```
//!
//! An answer contains the latest version that its node supports, for senders that support more than
//! one.

use super::rtp::{Rtp, SAYING};
use core::time::Duration;
use trunkline_base::wire::{Reader, Short, Writer};
use trunkline_rate::tfmc::{FEEDBACK_BYTES, Feedback};

/// Version of these messages, which precedes their other fields: a node with another version
/// ignores them.
pub const TRUNK_VERSION: u8 = 1;

/// Bytes before the entries of a trunk packet.
pub const HEAD: usize = 8;

/// Bytes before the packet in an entry.
pub const ENTRY: usize = 5;

/// Length of an entry that defines a context, in bytes.
pub const DEFINITION: usize = ENTRY - 2 + DEFINITION_BODY;

/// Maximum number of flows in a trunk; their contexts are 1 to this.
pub const MAX_CONTEXTS: u16 = 0xfff;

/// Maximum length of a packet in an entry, in bytes, whether it announces a template or not.
pub const MAX_PACKET: usize = MAX_LENGTH - SAYING;

/// Maximum number of entries in one trunk packet.
pub const MAX_ENTRIES: usize = 255;

const ASK: u8 = 5;
const ANSWER: u8 = 6;
const PACKETS: u8 = 7;
const REPORT: u8 = 8;
const DEFINITION_BODY: usize = 7;
const MAX_LENGTH: usize = 0x7ff;
/// Flag before the length: the entry's RTP header is compressed.
const COMPRESSED: u32 = 0x800;

/// A message about a trunk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Message<'a> {
    /// Asks whether the other end accepts trunk packets of this generation.
    Ask {
        /// The sender's [`TRUNK_VERSION`] of messages.
        version: u8,
        /// A random number from the setup of the trunk at the sender: contexts of another
        /// generation have other meanings.
        generation: u16,
        /// Interval of loss reports, in milliseconds.
        report_ms: u16,
        /// Round trip of the trunk, if known: at most 71 minutes, in whole microseconds. Losses
        /// within it are one loss event.
        rtt: Option<Duration>,
    },
    /// A node's answer to [`Message::Ask`], or to packets of an unknown generation.
    Answer {
        /// The sender's [`TRUNK_VERSION`] of messages.
        version: u8,
        /// The generation of the question or the packets.
        generation: u16,
        /// Whether the node accepts trunk packets of that generation.
        answer: Answer,
        /// The latest version that the node supports, its [`TRUNK_VERSION`].
        latest: u8,
    },
    /// Packets of flows, in [`Entries`].
    Packets(Head, &'a [u8]),
    /// Losses of a generation's trunk packets, as measured by the receiving end.
    Report {
        /// The sender's [`TRUNK_VERSION`] of messages.
        version: u8,
        /// The generation of the reported packets.
        generation: u16,
        /// Loss and round trip. Only the lower 24 bits of its number count.
        report: Feedback,
    },
}

/// Content of a node's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Answer {
    /// It accepts them, and has the contexts defined so far.
    Known = 0,
    /// It accepts them, and has no contexts yet.
    Fresh = 1,
    /// It accepts none: it has its maximum number of trunks, or its rules exclude the sender.
    Refused = 2,
    /// Packets arrived of a generation that it has not been asked about since its start.
    Unknown = 3,
}

/// Fields before the entries of a trunk packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Number of entries that follow, including definitions; 1 to 255.
    pub entries: u8,
    /// The generation of their contexts.
    pub generation: u16,
    /// Number of the trunk packet, which increases by one with each; 24 bits.
    pub number: u32,
    /// Milliseconds left of the earliest deadline in the trunk packet when it was sent.
    pub remaining_ms: u8,
}

impl Message<'_> {
    /// Writes all fields except the entries.
    ///
    /// # Errors
    ///
    /// [`Short`] if there is not enough room.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        match *self {
            Message::Ask { version, generation, report_ms, rtt } => {
                w.u8(ASK)?;
                w.u8(version)?;
                w.u16(generation)?;
                w.u16(report_ms)?;
                let micros = |rtt: Duration| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
                w.u32(rtt.map_or(0, |rtt| micros(rtt).max(1)))
            }
            Message::Answer { version, generation, answer, latest } => {
                w.u8(ANSWER)?;
                w.u8(version)?;
                w.u16(generation)?;
                w.u8(answer as u8)?;
                w.u8(latest)
            }
            Message::Packets(head, _) => w.bytes(&head.bytes()),
            Message::Report { version, generation, report } => {
                w.u8(REPORT)?;
                w.u8(version)?;
                w.u16(generation)?;
                w.bytes(&report.emit())
            }
        }
    }

    /// Reads a payload; `None` if it is another message. Bytes after an ask or an answer are
    /// ignored: a later version may have more fields.
    pub fn parse(payload: &[u8]) -> Option<Message<'_>> {
        let mut r = Reader::new(payload);
        let kind = r.u8().ok()?;
        let second = r.u8().ok()?;
        let generation = r.u16().ok()?;
        Some(match kind {
            ASK => {
                let (report_ms, micros) = (r.u16().ok()?, r.u32().ok()?);
                let rtt = (micros > 0).then(|| Duration::from_micros(micros.into()));
                Message::Ask { version: second, generation, report_ms, rtt }
            }
            ANSWER => {
                let answer = match r.u8().ok()? {
                    0 => Answer::Known,
                    1 => Answer::Fresh,
                    2 => Answer::Refused,
                    3 => Answer::Unknown,
                    _ => return None,
                };
                let latest = r.u8().ok()?;
                Message::Answer { version: second, generation, answer, latest }
            }
            PACKETS => {
                let (number, remaining_ms) = (r.u24().ok()?, r.u8().ok()?);
                let head = Head { entries: second, generation, number, remaining_ms };
                Message::Packets(head, payload.get(HEAD..)?)
            }
            REPORT => {
                let report: [u8; FEEDBACK_BYTES] = r.array().ok()?;
                let report = Feedback::parse(&report).ok()?;
                Message::Report { version: second, generation, report }
            }
            _ => return None,
        })
    }
}

impl Head {
    /// Encodes the head of a packet.
    pub fn bytes(&self) -> [u8; HEAD] {
        let ([g, h], [_, n, o, p]) = (self.generation.to_be_bytes(), self.number.to_be_bytes());
        [PACKETS, self.entries, g, h, n, o, p, self.remaining_ms]
    }
}

/// The meaning of a context: a flow from the trunk's source to its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Virtual port at the source; not 0.
    pub source_port: u16,
    /// Virtual port at the destination; not 0.
    pub destination_port: u16,
    /// Time to live of its packets, in milliseconds.
    pub deadline_ms: u8,
}

impl Context {
    /// The ports that identify the flow.
    pub(super) fn ports(&self) -> (u16, u16) {
        (self.source_port, self.destination_port)
    }
}

/// One entry of a trunk packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// Defines context `number` as this flow from here on.
    Definition {
        /// Number of the context, 1 to [`MAX_CONTEXTS`].
        number: u16,
        /// The flow that it is defined as.
        context: Context,
    },
    /// A packet of a flow.
    Packet {
        /// Number of its context, 1 to [`MAX_CONTEXTS`].
        context: u16,
        /// Number of the packet in its flow.
        flow_seq: u16,
        /// The packet from the application.
        payload: &'a [u8],
    },
    /// A packet of a flow of RTP with an encoded header.
    Rtp {
        /// Number of its context, 1 to [`MAX_CONTEXTS`].
        context: u16,
        /// Number of the packet in its flow.
        flow_seq: u16,
        /// Encoding of its RTP header.
        rtp: Rtp,
        /// The packet from the application, without its header or with it ([`Rtp::Says`]).
        payload: &'a [u8],
    },
}

impl Entry<'_> {
    /// Encoded length of the entry in bytes.
    pub fn size(&self) -> usize {
        match self {
            Entry::Definition { .. } => DEFINITION,
            Entry::Packet { payload, .. } => ENTRY + payload.len(),
            Entry::Rtp { rtp, payload, .. } => ENTRY + rtp.size() + payload.len(),
        }
    }

    /// Appends the encoded entry; context and length must fit in their fields.
    pub fn push(&self, out: &mut Vec<u8>) {
        let head = |context: u16, compressed: u32, len: usize| {
            let all =
                u32::from(context & MAX_CONTEXTS) << 12 | compressed | (len & MAX_LENGTH) as u32;
            let [_, bytes @ ..] = all.to_be_bytes();
            bytes
        };
        match *self {
            Entry::Definition { number, context } => {
                out.extend_from_slice(&head(0, 0, DEFINITION_BODY));
                let Context { source_port, destination_port, deadline_ms } = context;
                for field in [number, source_port, destination_port] {
                    out.extend_from_slice(&field.to_be_bytes());
                }
                out.push(deadline_ms);
            }
            Entry::Packet { context, flow_seq, payload } => {
                out.extend_from_slice(&head(context, 0, payload.len()));
                out.extend_from_slice(&flow_seq.to_be_bytes());
                out.extend_from_slice(payload);
            }
            Entry::Rtp { context, flow_seq, rtp, payload } => {
                out.extend_from_slice(&head(context, COMPRESSED, rtp.size() + payload.len()));
                out.extend_from_slice(&flow_seq.to_be_bytes());
                rtp.push(out);
                out.extend_from_slice(payload);
            }
        }
    }
}

/// An entry that is cut short or has invalid fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an entry of a trunk packet is malformed")]
pub struct MalformedEntry;

/// The entries of a trunk packet, in order. Iteration ends with the first malformed one, or after
/// the number in the head.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: Reader<'a>,
    left: u8,
}

impl<'a> Entries<'a> {
    /// The entries in `bytes`, which followed `head` in a trunk packet.
    pub fn new(head: &Head, bytes: &'a [u8]) -> Entries<'a> {
        Entries { rest: Reader::new(bytes), left: head.entries }
    }

    fn read(&mut self) -> Option<Entry<'a>> {
        let [a, b, c] = self.rest.array().ok()?;
        let all = u32::from_be_bytes([0, a, b, c]);
        let (context, len) = ((all >> 12) as u16, all as usize & MAX_LENGTH);
        let is_compressed = all & COMPRESSED != 0;
        if context != 0 {
            let flow_seq = self.rest.u16().ok()?;
            let payload = self.rest.bytes(len).ok()?;
            if !is_compressed {
                return Some(Entry::Packet { context, flow_seq, payload });
            }
            let (rtp, payload) = Rtp::read(payload)?;
            return Some(Entry::Rtp { context, flow_seq, rtp, payload });
        }
        let mut body = Reader::new(self.rest.bytes(len).ok()?);
        let number = body.u16().ok()?;
        let (source_port, destination_port) = (body.u16().ok()?, body.u16().ok()?);
        let context = Context { source_port, destination_port, deadline_ms: body.u8().ok()? };
        let ports = source_port != 0 && destination_port != 0;
        (ports && !is_compressed && (1..=MAX_CONTEXTS).contains(&number))
            .then_some(Entry::Definition { number, context })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, MalformedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.read().ok_or(MalformedEntry);
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn rtp() -> impl Strategy<Value = Rtp> {
        let by = |(template, marker, timestamp, seq)| Rtp::By { template, marker, timestamp, seq };
        prop_oneof![
            (0u8..16, any::<u16>()).prop_map(|(template, step)| Rtp::Says { template, step }),
            (0u8..16, any::<bool>(), any::<Option<u32>>(), any::<Option<u16>>()).prop_map(by),
        ]
    }

    fn entry() -> impl Strategy<Value = (u16, u16, Vec<u8>, Context, Option<Option<Rtp>>)> {
        let context = (1u16.., 1u16.., any::<u8>()).prop_map(|(s, d, deadline_ms)| Context {
            source_port: s,
            destination_port: d,
            deadline_ms,
        });
        // A packet that announces a template must have a whole header.
        let payload = vec(any::<u8>(), 12..200).prop_map(|bytes| [&[0x80], &bytes[1..]].concat());
        let kind = proptest::option::of(proptest::option::of(rtp()));
        (1..=MAX_CONTEXTS, any::<u16>(), payload, context, kind)
    }

    proptest! {
        #[test]
        fn round_trip(
            entries in vec(entry(), 1..20), generation: u16, number in 0u32..1 << 24, remaining_ms: u8,
        ) {
            let head = Head { entries: entries.len() as u8, generation, number, remaining_ms };
            let mut bytes = head.bytes().to_vec();
            let want: Vec<Entry<'_>> = entries
                .iter()
                .map(|&(context, flow_seq, ref payload, meaning, kind)| match kind {
                    None => Entry::Definition { number: context, context: meaning },
                    Some(None) => Entry::Packet { context, flow_seq, payload },
                    Some(Some(rtp)) => Entry::Rtp { context, flow_seq, rtp, payload },
                })
                .collect();
            let len: usize = want.iter().map(Entry::size).sum();
            want.iter().for_each(|entry| entry.push(&mut bytes));
            prop_assert_eq!(bytes.len(), HEAD + len);
            let Some(Message::Packets(read, rest)) = Message::parse(&bytes) else {
                panic!("no packets");
            };
            prop_assert_eq!(read, head);
            let read: Result<Vec<_>, _> = Entries::new(&head, rest).collect();
            prop_assert_eq!(read, Ok(want));
        }

        #[test]
        fn questions_answers_and_reports(
            version: u8, generation: u16, report_ms: u16, answer in 0usize..4, micros: u32, latest: u8,
        ) {
            let answer = [Answer::Known, Answer::Fresh, Answer::Refused, Answer::Unknown][answer];
            let rtt = (micros > 0).then(|| Duration::from_micros(micros.into()));
            let elapsed = Duration::from_micros(micros.into());
            let report = Feedback { number: micros, elapsed, loss: 1.0 };
            for message in [
                Message::Ask { version, generation, report_ms, rtt },
                Message::Report { version, generation, report },
                Message::Answer { version, generation, answer, latest },
            ] {
                let mut bytes = [0; 16];
                let mut w = Writer::new(&mut bytes);
                message.emit(&mut w).unwrap();
                prop_assert_eq!(Message::parse(w.written()), Some(message));
            }
        }

        #[test]
        fn a_question_and_an_answer_as_written_by_hand(generation: u16) {
            let written = |message: &Message<'_>| {
                let mut bytes = [0; 16];
                let mut w = Writer::new(&mut bytes);
                message.emit(&mut w).unwrap();
                w.written().to_vec()
            };
            let [g, h] = generation.to_be_bytes();
            let (version, answer) = (TRUNK_VERSION, Answer::Fresh);
            let ask = Message::Ask { version, generation, report_ms: 5, rtt: None };
            prop_assert_eq!(written(&ask), [5, 1, g, h, 0, 5, 0, 0, 0, 0]);
            let answer = Message::Answer { version, generation, answer, latest: 2 };
            prop_assert_eq!(written(&answer), [6, 1, g, h, 1, 2]);
            let short = [6, 1, g, h, 1];
            prop_assert_eq!(Message::parse(&short), None, "it ends too soon");
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..2_000)) {
            if let Some(Message::Packets(head, rest)) = Message::parse(&bytes) {
                let entries: Vec<_> = Entries::new(&head, rest).collect();
                prop_assert!(entries.len() <= usize::from(head.entries));
            }
        }
    }
}
