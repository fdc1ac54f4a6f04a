//! Segments: the messages between the two ends of a stream, each in one reliable packet with a flag
//! that marks it as part of a stream. The packet's ports identify the stream. Instead of a number
//! in its flow, it has the stream's tag, a random number from the opener, so that no late packet of
//! an earlier stream between the same ports is mistaken for one of this.
//!
//! Two more numbers keep everyone out who isn't on the path: the opener's, which each answer to its
//! request repeats, and the stream's, from the accepting end, which every segment after the request
//! carries in both directions.

use crate::session::wire::stream::Reset;
use crate::wire::WireError;
use trunkline_base::wire::{Reader, Short, Writer};

/// The opener's number is present: in its request to open, in the answer to that, and in the
/// opener's segments until it knows that the accepting end has the stream.
const OPEN: u8 = 0x01;
/// The stream ends after the data.
const END: u8 = 0x02;
/// Without data: the stream was reset; a reason, a number and a position follow, and nothing else.
const RESET: u8 = 0x04;
/// With data: it is a retransmission.
const RETRANSMITTED: u8 = 0x04;
/// An acknowledgement precedes the data.
const ACK: u8 = 0x08;
/// The sender requests an acknowledgement at once. In a reset: the position is one of its
/// recipient's data.
const ASK: u8 = 0x10;
/// With a request to open: both ends preserve message boundaries.
const MESSAGES: u8 = 0x20;
/// Data, or the stream's end, preceded by a position.
const DATA: u8 = 0x40;
/// The stream's number, which the accepting end has chosen, precedes everything else.
const INSTANCE: u8 = 0x80;

/// Bytes before the data of a segment with the stream's number and data, but no acknowledgement.
pub const HEAD: usize = 7 + NUMBER_LEN;
/// Bytes of the stream's number, and of the opener's.
pub const NUMBER_LEN: usize = 4;
/// Length of an acknowledgement without ranges, in bytes.
pub const ACK_HEAD: usize = 11;
/// Maximum number of ranges in one acknowledgement.
pub const MAX_RANGES: usize = 16;
/// Maximum length of a segment without data, in bytes: flags, numbers, an acknowledgement and its
/// ranges.
pub const MAX_CONTROL: usize = 1 + 2 * NUMBER_LEN + ACK_HEAD + 8 * MAX_RANGES;

/// Whether a packet of a stream holds no data: a request to open it, an acknowledgement or a reset.
/// It may overtake data, whereas data that overtook other data would count as reordered.
pub fn is_control(payload: &[u8]) -> bool {
    payload.len() <= MAX_CONTROL && payload.first().is_some_and(|flags| flags & DATA == 0)
}

/// Unit of the announced window in bytes, so that 16 bits hold 16 MiB.
pub const WINDOW_UNIT: u64 = 256;

/// An acknowledgement: the bytes that one end has received from the other. Positions count a
/// stream's bytes from 0, modulo 2^48, so that no two are confused, however late a link delivers
/// their packets; the end of the stream counts as one more byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ack {
    /// All bytes before this position have been received.
    pub next: u64,
    /// Room for bytes from `next` on, in units of [`WINDOW_UNIT`] bytes.
    pub window: u16,
    /// Number of packets received with a congestion mark, modulo 256.
    pub marks: u8,
    /// Number of retransmissions received, modulo 256.
    pub retransmissions: u8,
    ranges: [(u32, u32); MAX_RANGES],
    count: u8,
}

impl Ack {
    /// Creates an acknowledgement without ranges; the arguments are its fields.
    pub fn new(next: u64, window: u16, marks: u8, retransmissions: u8) -> Ack {
        Ack { next, window, marks, retransmissions, ..Ack::default() }
    }

    /// Data received beyond `next`: for each range, its distance from `next` and its length;
    /// ascending, with gaps between them.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Adds a range in the form of [`Ack::ranges`], unless there are [`MAX_RANGES`] already.
    pub fn push(&mut self, range: (u32, u32)) {
        if let Some(place) = self.ranges.get_mut(usize::from(self.count)) {
            *place = range;
            self.count += 1;
        }
    }
}

/// A segment as one end of a stream sends it to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment<'a> {
    /// The stream was reset.
    Broken(Broken),
    /// Any other segment: data, an acknowledgement, a request to open, or several of these.
    Body(Body<'a>),
}

/// The end of a stream that was reset. Its number and position show that it comes from the other
/// end, or from a node on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    pub why: Reset,
    pub number: Number,
    /// A position, modulo 2^48: the sender's next one, or that of a segment of the recipient.
    pub position: u64,
    /// Whether the position is one of the recipient's data.
    pub is_of_recipient: bool,
}

/// A random number that a segment of a stream shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// The opener's: the stream isn't open yet.
    Opener(u32),
    /// The number of a stream that is open, from its accepting end.
    Stream(u32),
}

/// The parts of a segment other than a reset; each may be absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Body<'a> {
    /// The opener's number. Without the stream's, it asks the other end to open the stream.
    pub opener: Option<u32>,
    /// Whether both ends preserve message boundaries.
    pub messages: bool,
    /// Whether its sender requests an acknowledgement at once.
    pub ask: bool,
    /// The stream's number; none in a request to open it.
    pub instance: Option<u32>,
    pub ack: Option<Ack>,
    /// The data, or the end of the stream; none if the segment has neither.
    pub data: Option<Data<'a>>,
}

/// A piece of a stream: bytes and their position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// The position of the first byte, modulo 2^48.
    pub position: u64,
    /// Whether the stream ends after these bytes, which may be none.
    pub end: bool,
    /// Whether this is a retransmission, so that the sender learns which transmission has been
    /// received.
    pub retransmitted: bool,
    pub bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Writes all parts except the bytes of data, which follow unchanged.
    pub fn emit_head(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        let body = match self {
            Segment::Broken(broken) => return broken.emit(w),
            Segment::Body(body) => body,
        };
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let is_end = body.data.is_some_and(|data| data.end);
        let is_repeated = body.data.is_some_and(|data| data.retransmitted);
        w.u8(flag(body.opener.is_some(), OPEN)
            | flag(body.messages, MESSAGES)
            | flag(body.ask, ASK)
            | flag(body.ack.is_some(), ACK)
            | flag(body.data.is_some(), DATA)
            | flag(body.instance.is_some(), INSTANCE)
            | flag(is_repeated, RETRANSMITTED)
            | flag(is_end, END))?;
        for number in [body.instance, body.opener].into_iter().flatten() {
            w.u32(number)?;
        }
        if let Some(ack) = &body.ack {
            w.u48(ack.next)?;
            w.u16(ack.window)?;
            w.u8(ack.marks)?;
            w.u8(ack.retransmissions)?;
            w.u8(ack.count)?;
            for &(first, len) in ack.ranges() {
                w.u32(first)?;
                w.u32(len)?;
            }
        }
        body.data.map_or(Ok(()), |data| w.u48(data.position))
    }

    /// Parses the payload of a packet. An error if it is cut short, or has more than [`MAX_RANGES`]
    /// ranges.
    pub fn parse(payload: &'a [u8]) -> Result<Segment<'a>, WireError> {
        let mut r = Reader::new(payload);
        let flags = r.u8()?;
        let has = |flag: u8| flags & flag != 0;
        if has(RESET) && !has(DATA) {
            return Broken::parse(flags, &mut r).map(Segment::Broken);
        }
        let instance = if has(INSTANCE) { Some(r.u32()?) } else { None };
        let opener = if has(OPEN) { Some(r.u32()?) } else { None };
        let ack = if has(ACK) { Some(parse_ack(&mut r)?) } else { None };
        let data = match has(DATA) {
            true => Some(Data {
                position: r.u48()?,
                end: has(END),
                retransmitted: has(RETRANSMITTED),
                bytes: r.rest(),
            }),
            false => None,
        };
        Ok(Segment::Body(Body {
            opener,
            messages: has(MESSAGES),
            ask: has(ASK),
            instance,
            ack,
            data,
        }))
    }
}

impl Broken {
    fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        let (flag, number) = match self.number {
            Number::Opener(number) => (0, number),
            Number::Stream(number) => (INSTANCE, number),
        };
        w.u8(RESET | flag | if self.is_of_recipient { ASK } else { 0 })?;
        w.u8(self.why as u8)?;
        w.u32(number)?;
        w.u48(self.position)
    }

    fn parse(flags: u8, r: &mut Reader<'_>) -> Result<Broken, WireError> {
        let (why, number) = (Reset::from_wire(r.u8()?), r.u32()?);
        let number = match flags & INSTANCE {
            0 => Number::Opener(number),
            _ => Number::Stream(number),
        };
        Ok(Broken { why, number, position: r.u48()?, is_of_recipient: flags & ASK != 0 })
    }
}

impl Body<'_> {
    /// Whether it is a request to open a stream.
    pub fn is_request(&self) -> bool {
        self.opener.is_some() && self.instance.is_none()
    }

    /// The reset that answers this segment, if it shows a number.
    pub fn refusal(&self, why: Reset) -> Option<Broken> {
        let stream = self.instance.map(Number::Stream);
        let number = stream.or(self.opener.map(Number::Opener))?;
        let (position, is_of_recipient) = match (&self.ack, &self.data) {
            (Some(ack), _) => (ack.next, false),
            (None, Some(data)) => (data.position, true),
            (None, None) => (0, false),
        };
        Some(Broken { why, number, position, is_of_recipient })
    }
}

fn parse_ack(r: &mut Reader<'_>) -> Result<Ack, WireError> {
    let mut ack = Ack::new(r.u48()?, r.u16()?, r.u8()?, r.u8()?);
    let count = r.u8()?;
    if usize::from(count) > MAX_RANGES {
        return Err(WireError::OutOfRange("the number of ranges"));
    }
    for _ in 0..count {
        ack.push((r.u32()?, r.u32()?));
    }
    Ok(ack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            flags in any::<[bool; 6]>(), numbers in (0u64..1 << 48, any::<(u16, u8, u8)>(), 0u64..1 << 48),
            ranges in prop::collection::vec(any::<(u32, u32)>(), 0..=MAX_RANGES),
            bytes in prop::collection::vec(any::<u8>(), 0..100), code in 1u8..=13,
            (instance, opener) in any::<(Option<u32>, Option<u32>)>(),
        ) {
            let [messages, ask, has_ack, has_data, end, retransmitted] = flags;
            let (next, (window, marks, retransmissions), position) = numbers;
            let mut ack = Ack::new(next, window, marks, retransmissions);
            ranges.iter().for_each(|&range| ack.push(range));
            let data = has_data.then_some(Data { position, end, retransmitted, bytes: &bytes });
            let body =
                Body { opener, messages, ask, instance, ack: has_ack.then_some(ack), data };
            let number = instance.map_or(Number::Opener(7), Number::Stream);
            let why = Reset::from_wire(code);
            let broken = Broken { why, number, position, is_of_recipient: ask };
            for segment in [Segment::Body(body), Segment::Broken(broken)] {
                let mut buf = [0; 400];
                let mut w = Writer::new(&mut buf);
                segment.emit_head(&mut w).unwrap();
                if matches!(segment, Segment::Body(Body { data: Some(_), .. })) {
                    let numbers = [instance, opener].into_iter().flatten().count();
                    let head = HEAD - NUMBER_LEN
                        + NUMBER_LEN * numbers
                        + if has_ack { ACK_HEAD + 8 * ranges.len() } else { 0 };
                    prop_assert_eq!(w.len(), head);
                    w.bytes(&bytes).unwrap();
                }
                prop_assert_eq!(Segment::parse(w.written()), Ok(segment));
            }
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Segment::parse(&bytes);
        }
    }
}
