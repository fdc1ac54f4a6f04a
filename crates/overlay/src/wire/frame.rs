//! Frames. The first byte is `service 2 | recovered 1 | hop limit 5` for data
//! and `0 2 | flag 1 | kind 5` for control.

use super::{DataHeader, SelectiveAck, Service, WireError};
use trunkline_base::wire::{Reader, Short, Writer};

/// The most ranges in one [`Nack`].
pub const MAX_NACK_RANGES: usize = 64;

/// Of a hello: it asks for one in return. Of a request: it says its service.
const FLAG: u8 = 0x20;

/// The kinds of control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ControlKind {
    /// [`Hello`].
    Hello = 1,
    /// [`Nack`].
    Nack = 2,
    /// Records of link-state routing; `route::update` reads them.
    LinkState = 3,
    /// Their acknowledgement.
    Ack = 4,
    /// [`Goodbye`].
    Goodbye = 5,
    /// [`PathFrame::Challenge`].
    PathChallenge = 6,
    /// [`PathFrame::Response`].
    PathResponse = 7,
    /// [`SelectiveAck`].
    SelectiveAck = 8,
}

/// "I am here, and this is how I hear you": keeps a link alive, measures its
/// round trip on exchanged timestamps (microseconds of each end's own clock
/// modulo 2³²), and tells the other end what it cannot see itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// Whether the sender has missed something and wants a hello at once.
    pub probe: bool,
    /// Counts the hellos of this end.
    pub seq: u16,
    /// When this hello left.
    pub sent_us: u32,
    /// `sent_us` of the last hello heard from the other end, and how many
    /// microseconds ago it was heard, less than 2²⁴ - 1; `None` before the
    /// first, and when it is longer ago.
    pub echo: Option<(u32, u32)>,
    /// How many milliseconds ago any envelope of the other end was heard, at
    /// most [`Hello::LONG_AGO`]; `None` before the first.
    pub heard_ms: Option<u16>,
    /// The share of the other end's envelopes that are lost on the way here,
    /// in 65,535ths, and P(lost | previous lost) in 255ths; `None` while too
    /// little has come.
    pub loss: Option<(u16, u8)>,
    /// The share of the other end's real-time packets that are missed here in
    /// spite of recovery, in 65,535ths; `None` without enough traffic.
    pub residual: Option<u16>,
}

const NOTHING_HEARD: u32 = 0xff_ffff;
const NEVER_HEARD: u16 = u16::MAX;
/// Flags of a hello: which of its numbers mean something. A receiver ignores
/// those it does not know.
const HAS_LOSS: u8 = 1;
const HAS_RESIDUAL: u8 = 2;

/// Bytes of an emitted [`Hello`].
pub(crate) const HELLO_LEN: usize = 22;

impl Hello {
    /// The longest silence that can be told.
    pub const LONG_AGO: u16 = NEVER_HEARD - 1;

    /// Writes the frame.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), Short> {
        let in_reach = self.echo.filter(|&(_, held)| held < NOTHING_HEARD);
        let (echo, held) = in_reach.unwrap_or((0, NOTHING_HEARD));
        let (loss, burst) = self.loss.unwrap_or_default();
        let flag = |bit, is_set: bool| if is_set { bit } else { 0 };
        w.u8(ControlKind::Hello as u8 | flag(FLAG, self.probe))?;
        w.u8(flag(HAS_LOSS, self.loss.is_some()) | flag(HAS_RESIDUAL, self.residual.is_some()))?;
        w.u16(self.seq)?;
        w.u32(self.sent_us)?;
        w.u32(echo)?;
        w.u24(held)?;
        w.u16(self.heard_ms.unwrap_or(NEVER_HEARD))?;
        w.u16(loss)?;
        w.u8(burst)?;
        w.u16(self.residual.unwrap_or_default())
    }

    fn parse(probe: bool, r: &mut Reader<'_>) -> Result<Hello, WireError> {
        let (flags, seq, sent_us) = (r.u8()?, r.u16()?, r.u32()?);
        let (echo, held, heard) = (r.u32()?, r.u24()?, r.u16()?);
        let (loss, burst, residual) = (r.u16()?, r.u8()?, r.u16()?);
        Ok(Hello {
            probe,
            seq,
            sent_us,
            echo: (held != NOTHING_HEARD).then_some((echo, held)),
            heard_ms: (heard != NEVER_HEARD).then_some(heard),
            loss: (flags & HAS_LOSS != 0).then_some((loss, burst)),
            residual: (flags & HAS_RESIDUAL != 0).then_some(residual),
        })
    }
}

/// Consecutive link sequence numbers that are missing: `count` (1 to 256) from
/// `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NackRange {
    /// The first missing number.
    pub first: u16,
    /// How many.
    pub count: u16,
}

/// A view of a retransmission request: a service, and 1 to [`MAX_NACK_RANGES`]
/// ranges of its numbers on this link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nack<'a> {
    /// Whose numbers they are.
    pub service: Service,
    ranges: &'a [u8],
}

/// Bytes of one range on the wire.
pub(crate) const NACK_RANGE_LEN: usize = 3;

impl<'a> Nack<'a> {
    /// Bytes of the frame in front of the ranges.
    pub(crate) const fn head_len(service: Service) -> usize {
        // Nearly all requests are real time's, so theirs say no service.
        if matches!(service, Service::RealTime) { 2 } else { 3 }
    }

    /// Writes a request; `ranges` beyond the maximum, or a count out of range,
    /// is an error.
    pub fn emit(service: Service, ranges: &[NackRange], w: &mut Writer<'_>) -> Result<(), Short> {
        let n = u8::try_from(ranges.len()).map_err(|_| Short)?;
        match service {
            Service::RealTime => w.u8(ControlKind::Nack as u8)?,
            other => w.bytes(&[ControlKind::Nack as u8 | FLAG, other as u8])?,
        }
        w.u8(n)?;
        for range in ranges {
            w.u16(range.first)?;
            w.u8(u8::try_from(range.count.wrapping_sub(1)).map_err(|_| Short)?)?;
        }
        Ok(())
    }

    fn parse(says_service: bool, r: &mut Reader<'a>) -> Result<Nack<'a>, WireError> {
        let service = if says_service {
            let said = Service::from_wire(r.u8()?).filter(|said| *said != Service::RealTime);
            said.ok_or(WireError::OutOfRange("the service of a request"))?
        } else {
            Service::RealTime
        };
        let n = usize::from(r.u8()?);
        if n == 0 || n > MAX_NACK_RANGES {
            return Err(WireError::OutOfRange("the number of ranges in a request"));
        }
        Ok(Nack { service, ranges: r.bytes(n * NACK_RANGE_LEN)? })
    }

    /// The ranges asked for.
    pub fn ranges(self) -> impl Iterator<Item = NackRange> + 'a {
        self.ranges.chunks_exact(NACK_RANGE_LEN).map(|c| NackRange {
            first: u16::from_be_bytes([c[0], c[1]]),
            count: u16::from(c[2]) + 1,
        })
    }
}

/// "This node stops": its neighbour need not wait for silence to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goodbye;

/// Bytes of an emitted [`Goodbye`].
pub(crate) const GOODBYE_LEN: usize = 1;

impl Goodbye {
    /// Writes the frame.
    pub fn emit(self, w: &mut Writer<'_>) -> Result<(), Short> {
        w.u8(ControlKind::Goodbye as u8)
    }
}

/// "Say this, if you are at the address where I send it" (RFC 9000, 8.2), and
/// that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathFrame {
    /// Eight bytes that nobody can guess.
    Challenge([u8; 8]),
    /// The same eight bytes.
    Response([u8; 8]),
}

/// Bytes of an emitted [`PathFrame`].
pub(crate) const PATH_FRAME_LEN: usize = 9;

impl PathFrame {
    /// Writes the frame.
    pub fn emit(self, w: &mut Writer<'_>) -> Result<(), Short> {
        let (kind, data) = match self {
            PathFrame::Challenge(data) => (ControlKind::PathChallenge, data),
            PathFrame::Response(data) => (ControlKind::PathResponse, data),
        };
        w.u8(kind as u8)?;
        w.bytes(&data)
    }
}

/// One frame of an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// An application's packet.
    Data(DataHeader, &'a [u8]),
    /// A sign of life.
    Hello(Hello),
    /// A retransmission request.
    Nack(Nack<'a>),
    /// A frame of link-state routing, whole: its kind, two bytes of length and
    /// as many more. `route::update` reads it.
    Routing(&'a [u8]),
    /// The last that the sender says.
    Goodbye(Goodbye),
    /// About an address of the receiver's or the sender's.
    Path(PathFrame),
    /// What has come of reliable packets.
    Ack(SelectiveAck<'a>),
}

/// The frames of an opened envelope, in order; ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    /// The frames in `plaintext`.
    pub fn new(plaintext: &'a [u8]) -> Frames<'a> {
        Frames(Reader::new(plaintext))
    }

    #[inline]
    fn parse_one(&mut self) -> Result<Frame<'a>, WireError> {
        let whole = self.0.rest();
        let first = self.0.u8()?;
        if first >> 6 != 0 {
            DataHeader::parse(first, &mut self.0)
        } else {
            self.parse_control(first, whole)
        }
    }

    /// Apart from data, so that the way of those is short enough to be inlined.
    #[inline(never)]
    fn parse_control(&mut self, first: u8, whole: &'a [u8]) -> Result<Frame<'a>, WireError> {
        let r = &mut self.0;
        match first {
            k if k & !FLAG == ControlKind::Hello as u8 => {
                Ok(Frame::Hello(Hello::parse(k & FLAG != 0, r)?))
            }
            k if k & !FLAG == ControlKind::Nack as u8 => {
                Ok(Frame::Nack(Nack::parse(k & FLAG != 0, r)?))
            }
            k if k == ControlKind::LinkState as u8 || k == ControlKind::Ack as u8 => {
                let len = usize::from(r.u16()?);
                r.bytes(len)?;
                Ok(Frame::Routing(&whole[..3 + len]))
            }
            k if k == ControlKind::Goodbye as u8 => Ok(Frame::Goodbye(Goodbye)),
            k if k == ControlKind::PathChallenge as u8 => {
                Ok(Frame::Path(PathFrame::Challenge(r.array()?)))
            }
            k if k == ControlKind::PathResponse as u8 => {
                Ok(Frame::Path(PathFrame::Response(r.array()?)))
            }
            k if k == ControlKind::SelectiveAck as u8 => Ok(Frame::Ack(SelectiveAck::parse(r)?)),
            other => Err(WireError::UnknownType(other)),
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let frame = self.parse_one();
        if frame.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn control_round_trip(
            seq in any::<u16>(), sent_us in any::<u32>(),
            echo in prop::option::of((any::<u32>(), 0..NOTHING_HEARD)),
            heard_ms in prop::option::of(0..=Hello::LONG_AGO),
            loss in any::<Option<(u16, u8)>>(),
            residual in any::<Option<u16>>(),
            ranges in prop::collection::vec((any::<u16>(), 1u16..=256), 1..=MAX_NACK_RANGES),
            service in prop::sample::select(&Service::ALL[..]),
            data in any::<[u8; 8]>(),
        ) {
            let hello = Hello { probe: seq % 2 == 0, seq, sent_us, echo, heard_ms, loss, residual };
            let ranges: Vec<_> =
                ranges.into_iter().map(|(first, count)| NackRange { first, count }).collect();
            let mut buf = [0; 400];
            let mut w = Writer::new(&mut buf);
            hello.emit(&mut w).unwrap();
            prop_assert_eq!(w.len(), HELLO_LEN);
            let before = w.len();
            Nack::emit(service, &ranges, &mut w).unwrap();
            let len = Nack::head_len(service) + ranges.len() * NACK_RANGE_LEN;
            prop_assert_eq!(w.len(), before + len);
            Goodbye.emit(&mut w).unwrap();
            let paths = [PathFrame::Challenge(data), PathFrame::Response(data)];
            for path in paths {
                let before = w.len();
                path.emit(&mut w).unwrap();
                prop_assert_eq!(w.len(), before + PATH_FRAME_LEN);
            }
            let n = w.len();
            let mut frames = Frames::new(&buf[..n]);
            prop_assert_eq!(frames.next(), Some(Ok(Frame::Hello(hello))));
            let Some(Ok(Frame::Nack(nack))) = frames.next() else { panic!("a request") };
            prop_assert_eq!(nack.service, service);
            prop_assert_eq!(nack.ranges().collect::<Vec<_>>(), ranges);
            prop_assert_eq!(frames.next(), Some(Ok(Frame::Goodbye(Goodbye))));
            for path in paths {
                prop_assert_eq!(frames.next(), Some(Ok(Frame::Path(path))));
            }
            prop_assert_eq!(frames.next(), None);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Frames::new(&bytes).count() <= 200);
        }
    }

    #[test]
    fn a_newer_peers_flags_are_ignored_and_a_short_hello_is_refused() {
        let hello = Hello { seq: 3, residual: Some(9), ..Hello::default() };
        let mut buf = [0; HELLO_LEN];
        hello.emit(&mut Writer::new(&mut buf)).unwrap();
        buf[1] |= !(HAS_LOSS | HAS_RESIDUAL);
        assert_eq!(Frames::new(&buf).next(), Some(Ok(Frame::Hello(hello))));
        assert!(Frames::new(&buf[..HELLO_LEN - 1]).next().unwrap().is_err());
    }

    #[test]
    fn a_request_with_too_much_in_it_is_refused() {
        let mut buf = [0; 8];
        let mut w = Writer::new(&mut buf);
        let long = [NackRange { first: 0, count: 257 }];
        assert!(Nack::emit(Service::RealTime, &long, &mut w).is_err());
        let zero = [ControlKind::Nack as u8, 0];
        assert!(Frames::new(&zero).next().unwrap().is_err());
        let many = [ControlKind::Nack as u8, 65];
        assert!(Frames::new(&many).next().unwrap().is_err());
    }

    /// Real time has one form, the short one.
    #[test]
    fn a_request_says_a_service_that_there_is() {
        let mut buf = [0; 5];
        let range = [NackRange { first: 7, count: 3 }];
        Nack::emit(Service::RealTime, &range, &mut Writer::new(&mut buf)).unwrap();
        assert_eq!(buf, [0x02, 1, 0, 7, 2]);
        let mut buf = [0; 6];
        Nack::emit(Service::BestEffort, &range, &mut Writer::new(&mut buf)).unwrap();
        assert_eq!(buf, [0x22, 1, 1, 0, 7, 2]);
        for number in 0..=u8::MAX {
            buf[1] = number;
            let frame = Frames::new(&buf).next();
            let said = Service::from_wire(number).filter(|s| *s != Service::RealTime);
            assert_eq!(frame.unwrap().is_err(), said.is_none(), "{number}");
        }
        assert!(Frames::new(&buf[..2]).next().unwrap().is_err(), "it ends after the service");
    }
}
