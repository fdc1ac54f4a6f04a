//! What two nodes say to each other about a trunk, from port 0 to port 0.
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
//! An entry begins with its context (12 bits), whether its RTP header is compressed
//! (1 bit), and its length (11 bits). That of context 0 says what another context means:
//! context 16, source port 16, destination port 16, time to live 8 (ms). Every other one
//! has the packet's number in its flow (16 bits), and `length` bytes of packet, or, if it
//! is compressed, one of
//!
//! ```text
//! template 4 | 1000 | step 16, then the whole packet, which says the template
//! template 4 | 0, marker, has timestamp, has number | [timestamp 32] | [number 16],
//!     then the packet without its RTP header
//! ```
//!
//! An answer says the latest version that its node knows, for senders that know more than
//! one.

use super::rtp::{Rtp, SAYING};
use core::time::Duration;
use trunkline_base::wire::{Reader, Short, Writer};
use trunkline_rate::tfmc::{FEEDBACK_BYTES, Feedback};

/// The version of what is said here, which messages have in front: a node that hears
/// another understands nothing.
pub const TRUNK_VERSION: u8 = 1;

/// Bytes in front of the entries.
pub const HEAD: usize = 8;

/// Bytes of an entry in front of its packet.
pub const ENTRY: usize = 5;

/// Bytes of an entry that says what a context means.
pub const DEFINITION: usize = ENTRY - 2 + DEFINITION_BODY;

/// Flows that a trunk tells apart; their contexts are 1 to this.
pub const MAX_CONTEXTS: u16 = 0xfff;

/// The longest packet that an entry holds, in bytes, whether it says a template or not.
pub const MAX_PACKET: usize = MAX_LENGTH - SAYING;

/// The most entries of one trunk packet.
pub const MAX_ENTRIES: usize = 255;

const ASK: u8 = 5;
const ANSWER: u8 = 6;
const PACKETS: u8 = 7;
const REPORT: u8 = 8;
const DEFINITION_BODY: usize = 7;
const MAX_LENGTH: usize = 0x7ff;
/// In front of the length: the entry's RTP header is compressed.
const COMPRESSED: u32 = 0x800;

/// A message about a trunk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Message<'a> {
    /// "Do you take trunk packets of this generation?"
    Ask {
        /// [`TRUNK_VERSION`].
        version: u8,
        /// A random number that the sender drew when it set up the trunk: contexts of
        /// another generation mean something else.
        generation: u16,
        /// How often to report loss, in milliseconds.
        report_ms: u16,
        /// The trunk's round trip, as far as it is known: at most 71 minutes, in whole
        /// microseconds. Losses within it are one loss event.
        rtt: Option<Duration>,
    },
    /// A node's answer to [`Message::Ask`], or to packets of a generation that it doesn't know.
    Answer {
        /// [`TRUNK_VERSION`].
        version: u8,
        /// The generation that was asked for, or that packets came with.
        generation: u16,
        /// Whether the node takes trunk packets of that generation.
        answer: Answer,
        /// The latest version that the node knows, its [`TRUNK_VERSION`].
        latest: u8,
    },
    /// Packets of flows, in [`Entries`].
    Packets(Head, &'a [u8]),
    /// What the other end has lost of a generation's trunk packets.
    Report {
        /// [`TRUNK_VERSION`].
        version: u8,
        /// The generation of the packets that are reported on.
        generation: u16,
        /// Loss and round trip. Of its number the lower 24 bits count.
        report: Feedback,
    },
}

/// What a node that was asked answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Answer {
    /// It takes them, and knows the contexts that it was told.
    Known = 0,
    /// It takes them, and knows no context yet.
    Fresh = 1,
    /// It takes none: as many trunks as it keeps end there, or the sender is kept out
    /// by its rules.
    Refused = 2,
    /// Packets came of a generation that it has not been asked about since its start.
    Unknown = 3,
}

/// What is in front of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// How many entries follow, definitions among them; 1 to 255.
    pub entries: u8,
    /// The generation of their contexts.
    pub generation: u16,
    /// The number of the trunk packet, one more for each; 24 bits.
    pub number: u32,
    /// How many milliseconds the packet with the shortest deadline had left when the
    /// trunk packet was sent.
    pub remaining_ms: u8,
}

impl Message<'_> {
    /// Writes all of it but the entries.
    ///
    /// # Errors
    ///
    /// [`Short`] if there is no room for it.
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

    /// Reads a payload; `None` if it is no such message. What follows an ask or an
    /// answer is passed over: a later version may say more.
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
    /// As it is on the wire.
    pub fn bytes(&self) -> [u8; HEAD] {
        let ([g, h], [_, n, o, p]) = (self.generation.to_be_bytes(), self.number.to_be_bytes());
        [PACKETS, self.entries, g, h, n, o, p, self.remaining_ms]
    }
}

/// What a context stands for: a flow from the trunk's source to its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Virtual port at the source; not 0.
    pub source_port: u16,
    /// Virtual port at the destination; not 0.
    pub destination_port: u16,
    /// How long its packets are of use after they were sent, in milliseconds.
    pub deadline_ms: u8,
}

impl Context {
    /// Which flow it is.
    pub(super) fn ports(&self) -> (u16, u16) {
        (self.source_port, self.destination_port)
    }
}

/// One entry of a trunk packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// From here on context `number` stands for this flow.
    Definition {
        /// The context's number, 1 to [`MAX_CONTEXTS`].
        number: u16,
        /// The flow that it stands for.
        context: Context,
    },
    /// A packet of a flow.
    Packet {
        /// Its context, 1 to [`MAX_CONTEXTS`].
        context: u16,
        /// Its number in its flow.
        flow_seq: u16,
        /// What the application sent.
        payload: &'a [u8],
    },
    /// A packet of a flow of RTP, of whose header only this is there.
    Rtp {
        /// Its context, 1 to [`MAX_CONTEXTS`].
        context: u16,
        /// Its number in its flow.
        flow_seq: u16,
        /// What it has of its header.
        rtp: Rtp,
        /// What the application sent: without the header, or with it ([`Rtp::Says`]).
        payload: &'a [u8],
    },
}

impl Entry<'_> {
    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        match self {
            Entry::Definition { .. } => DEFINITION,
            Entry::Packet { payload, .. } => ENTRY + payload.len(),
            Entry::Rtp { rtp, payload, .. } => ENTRY + rtp.size() + payload.len(),
        }
    }

    /// Appends it; only what fits in its fields of a context and a length.
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

/// An entry that is cut short, or says what can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an entry of a trunk packet is malformed")]
pub struct MalformedEntry;

/// The entries of a trunk packet, in their order. It ends with the first that is
/// malformed, and with as many as the head says.
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
        // A whole header is what a packet that says a template must have.
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
