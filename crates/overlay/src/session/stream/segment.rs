//! Segments: what the two ends of a stream send each other, each in one reliable packet
//! that says by a flag that it belongs to a stream. The packet's ports name the stream;
//! in place of a number in its flow it has the stream's tag, which its opener has drawn,
//! so that no late packet of an earlier stream between the same ports is taken for one of
//! this. A late request to open, after the accepting node has restarted, does make a second
//! stream with the same tag: each accepting end has drawn a number of its own, by which the
//! opener tells them apart.

use crate::session::wire::stream::Reset;
use crate::wire::WireError;
use trunkline_base::wire::{Reader, Short, Writer};

/// A request to open. Any other segment with the stream's tag answers it, so that no
/// answer is ever taken for a request.
const OPEN: u8 = 0x01;
/// The stream ends behind the data.
const END: u8 = 0x02;
/// Without data: the stream has broken off; a reason follows, and nothing else.
const RESET: u8 = 0x04;
/// With data: they were sent before.
const RETRANSMITTED: u8 = 0x04;
/// An acknowledgement is in front of the data.
const ACK: u8 = 0x08;
/// The sender wants an acknowledgement at once.
const ASK: u8 = 0x10;
/// With a request to open: both ends keep the boundaries of messages.
const MESSAGES: u8 = 0x20;
/// Data, or the stream's end: a position is in front of them.
const DATA: u8 = 0x40;
/// The number that the accepting end has drawn is in front of everything else.
const INSTANCE: u8 = 0x80;

/// Bytes before the data of a segment that has any, without an acknowledgement.
pub const HEAD: usize = 7;
/// Bytes of the accepting end's number, in each of its segments.
pub const INSTANCE_LEN: usize = 2;
/// Bytes of an acknowledgement without ranges.
pub const ACK_HEAD: usize = 11;
/// The most ranges in one acknowledgement.
pub const MAX_RANGES: usize = 16;
/// Bytes of the longest segment without data: flags, number, an acknowledgement and its ranges.
pub const MAX_CONTROL: usize = 1 + INSTANCE_LEN + ACK_HEAD + 8 * MAX_RANGES;

/// The window travels in these units, so that 16 bits hold 16 MiB.
pub const WINDOW_UNIT: u64 = 256;

/// An acknowledgement: what one end has received of the other's bytes. Positions count a stream's
/// bytes from 0, modulo 2^48, so that none is taken for another, however late a link delivers its
/// packet; the end of the stream counts as one more byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ack {
    /// All before this position has been received.
    pub next: u64,
    /// How many bytes from `next` on find room, in units of [`WINDOW_UNIT`] bytes.
    pub window: u16,
    /// How many packets have been received with a congestion mark, modulo 256.
    pub marks: u8,
    /// How many retransmissions have been received, modulo 256.
    pub retransmissions: u8,
    ranges: [(u32, u32); MAX_RANGES],
    count: u8,
}

impl Ack {
    /// An acknowledgement without ranges; the arguments are its fields.
    pub fn new(next: u64, window: u16, marks: u8, retransmissions: u8) -> Ack {
        Ack { next, window, marks, retransmissions, ..Ack::default() }
    }

    /// What has been received beyond `next`: of each range, how far behind `next` it begins, and
    /// its length; ascending, with gaps between them.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Adds a range, as [`Ack::ranges`] has them, unless there are [`MAX_RANGES`] already.
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
    /// The stream has broken off, for this reason.
    Reset(Reset),
    /// Any other segment: data, an acknowledgement, a request to open, or several of these.
    Body(Body<'a>),
}

/// The parts of a segment that is no reset, each of which may be absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Body<'a> {
    /// Whether it asks the other end to open the stream.
    pub open: bool,
    /// Whether both ends keep the boundaries of messages.
    pub messages: bool,
    /// Whether its sender requests an acknowledgement at once.
    pub ask: bool,
    /// The number that the accepting end has drawn at random; none in a segment of the opener.
    pub instance: Option<u16>,
    pub ack: Option<Ack>,
    /// The data, or the end of the stream; none if the segment has neither.
    pub data: Option<Data<'a>>,
}

/// A piece of a stream: bytes, and where they belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// The position of the first byte, modulo 2^48.
    pub position: u64,
    /// Whether the stream ends behind these bytes, which may be none.
    pub end: bool,
    /// Whether this is a retransmission, so that the sender learns which of two has been received.
    pub retransmitted: bool,
    pub bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Writes everything but the bytes of data, which follow unchanged.
    pub fn emit_head(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        let body = match self {
            Segment::Reset(why) => {
                w.u8(RESET)?;
                return w.u8(*why as u8);
            }
            Segment::Body(body) => body,
        };
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let is_end = body.data.is_some_and(|data| data.end);
        let is_repeated = body.data.is_some_and(|data| data.retransmitted);
        w.u8(flag(body.open, OPEN)
            | flag(body.messages, MESSAGES)
            | flag(body.ask, ASK)
            | flag(body.ack.is_some(), ACK)
            | flag(body.data.is_some(), DATA)
            | flag(body.instance.is_some(), INSTANCE)
            | flag(is_repeated, RETRANSMITTED)
            | flag(is_end, END))?;
        if let Some(instance) = body.instance {
            w.u16(instance)?;
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
            return Ok(Segment::Reset(Reset::from_wire(r.u8()?)));
        }
        let instance = if has(INSTANCE) { Some(r.u16()?) } else { None };
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
            open: has(OPEN),
            messages: has(MESSAGES),
            ask: has(ASK),
            instance,
            ack,
            data,
        }))
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
            flags in any::<[bool; 7]>(), numbers in (0u64..1 << 48, any::<(u16, u8, u8)>(), 0u64..1 << 48),
            ranges in prop::collection::vec(any::<(u32, u32)>(), 0..=MAX_RANGES),
            bytes in prop::collection::vec(any::<u8>(), 0..100), code in 1u8..=13,
            instance in any::<Option<u16>>(),
        ) {
            let [open, messages, ask, has_ack, has_data, end, retransmitted] = flags;
            let (next, (window, marks, retransmissions), position) = numbers;
            let mut ack = Ack::new(next, window, marks, retransmissions);
            ranges.iter().for_each(|&range| ack.push(range));
            let data = has_data.then_some(Data { position, end, retransmitted, bytes: &bytes });
            let body =
                Body { open, messages, ask, instance, ack: has_ack.then_some(ack), data };
            for segment in [Segment::Body(body), Segment::Reset(Reset::from_wire(code))] {
                let mut buf = [0; 400];
                let mut w = Writer::new(&mut buf);
                segment.emit_head(&mut w).unwrap();
                if matches!(segment, Segment::Body(Body { data: Some(_), .. })) {
                    let head = HEAD
                        + instance.map_or(0, |_| INSTANCE_LEN)
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
