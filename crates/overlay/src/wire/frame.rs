//! Frames. The first byte is `service 2 | recovered 1 | hop limit 5` for data
//! and `0 2 | flag 1 | kind 5` for control.

use super::{DataHeader, SelectiveAck, Service, WireError};
use trunkline_base::wire::{Reader, Short, Writer};

/// Maximum number of ranges in one [`Nack`].
pub const MAX_NACK_RANGES: usize = 64;

/// In a hello: requests one in return. In a request: a service number follows.
const FLAG: u8 = 0x20;

/// The kinds of control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ControlKind {
    /// A [`Hello`] frame follows.
    Hello = 1,
    /// A [`Nack`] frame follows.
    Nack = 2,
    /// Records of link-state routing; `route::update` parses them.
    LinkState = 3,
    /// Acknowledgement of link-state records.
    Ack = 4,
    /// A [`Goodbye`] frame follows.
    Goodbye = 5,
    /// A frame of [`PathFrame::Challenge`].
    PathChallenge = 6,
    /// A frame of [`PathFrame::Response`].
    PathResponse = 7,
    /// A [`SelectiveAck`] frame follows.
    SelectiveAck = 8,
}

/// "I am here, and this is how I receive you": keeps a link alive, measures its round trip by
/// exchanged timestamps (microseconds of each end's own clock modulo 2³²), and reports to the other
/// end what only the receiver can measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// Whether the sender has missed something and wants a hello at once.
    pub probe: bool,
    /// Sequence number of this end's hellos.
    pub seq: u16,
    /// When this hello was sent, in microseconds of the sender's clock.
    pub sent_us: u32,
    /// `sent_us` of the last hello received from the other end, and how many microseconds ago it
    /// arrived, less than 2²⁴ - 1; `None` before the first, and if it was longer ago.
    pub echo: Option<(u32, u32)>,
    /// Milliseconds since any envelope of the other end arrived, at most [`Hello::LONG_AGO`];
    /// `None` before the first.
    pub heard_ms: Option<u16>,
    /// Share of the other end's envelopes that are lost on the path here, in 65,535ths, and P(lost
    /// | previous lost) in 255ths; `None` while there are too few.
    pub loss: Option<(u16, u8)>,
    /// Share of the other end's real-time packets that do not arrive here in spite of recovery, in
    /// 65,535ths; `None` without enough traffic.
    pub residual: Option<u16>,
}

const NOTHING_HEARD: u32 = 0xff_ffff;
const NEVER_HEARD: u16 = u16::MAX;
/// Flags of a hello: which of its numbers are present. A receiver ignores unknown flags.
const HAS_LOSS: u8 = 1;
const HAS_RESIDUAL: u8 = 2;

/// Bytes of an emitted [`Hello`].
pub(crate) const HELLO_LEN: usize = 22;

impl Hello {
    /// The longest silence that can be reported, in milliseconds.
    pub const LONG_AGO: u16 = NEVER_HEARD - 1;

    /// Writes the frame; an error if `w` has too little room.
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

/// A range of missing link sequence numbers: `count` (1 to 256) from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NackRange {
    /// The first missing number.
    pub first: u16,
    /// Number of missing packets, 1 to 256.
    pub count: u16,
}

/// A view of a retransmission request: a service, and 1 to [`MAX_NACK_RANGES`] ranges of its
/// numbers on this link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nack<'a> {
    /// The service that the numbers belong to.
    pub service: Service,
    ranges: &'a [u8],
}

/// Bytes of one range on the wire.
pub(crate) const NACK_RANGE_LEN: usize = 3;

impl<'a> Nack<'a> {
    /// Bytes of the frame before the ranges.
    pub(crate) const fn head_len(service: Service) -> usize {
        // Nearly all requests are for real time, so those omit the service.
        if matches!(service, Service::RealTime) { 2 } else { 3 }
    }

    /// Writes a request; too many `ranges`, or a count out of range, are an error.
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

    /// The ranges of packets requested.
    pub fn ranges(self) -> impl Iterator<Item = NackRange> + 'a {
        self.ranges.chunks_exact(NACK_RANGE_LEN).map(|c| NackRange {
            first: u16::from_be_bytes([c[0], c[1]]),
            count: u16::from(c[2]) + 1,
        })
    }
}

/// "This node stops": its neighbour does not have to detect that by silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goodbye;

/// Bytes of an emitted [`Goodbye`].
pub(crate) const GOODBYE_LEN: usize = 1;

impl Goodbye {
    /// Writes the frame; an error if `w` has too little room.
    pub fn emit(self, w: &mut Writer<'_>) -> Result<(), Short> {
        w.u8(ControlKind::Goodbye as u8)
    }
}

/// Address validation: "return these bytes if you are at the address to which I send this" (RFC
/// 9000, 8.2), and the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathFrame {
    /// Eight bytes that no third party can guess.
    Challenge([u8; 8]),
    /// The same eight bytes, returned.
    Response([u8; 8]),
}

/// Bytes of an emitted [`PathFrame`].
pub(crate) const PATH_FRAME_LEN: usize = 9;

impl PathFrame {
    /// Writes the frame; an error if `w` has too little room.
    pub fn emit(self, w: &mut Writer<'_>) -> Result<(), Short> {
        let (kind, data) = match self {
            PathFrame::Challenge(data) => (ControlKind::PathChallenge, data),
            PathFrame::Response(data) => (ControlKind::PathResponse, data),
        };
        w.u8(kind as u8)?;
        w.bytes(&data)
    }
}

/// One frame of an envelope, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// A packet of an application.
    Data(DataHeader, &'a [u8]),
    /// A sign of life, with measurements.
    Hello(Hello),
    /// A request for retransmissions of packets.
    Nack(Nack<'a>),
    /// A whole frame of link-state routing: its kind, two bytes of length, and as many bytes as
    /// they state. `route::update` parses it.
    Routing(&'a [u8]),
    /// The last frame before the sender stops.
    Goodbye(Goodbye),
    /// Validation of an address of the receiver or the sender.
    Path(PathFrame),
    /// Acknowledgement of reliable packets.
    Ack(SelectiveAck<'a>),
}

/// Iterator over the frames of an opened envelope, in order; ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    /// Iterates over the frames in `plaintext`.
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

    /// Separate from data frames, so that the code for those is short enough to be inlined.
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

    /// Requests for real time have only the short form.
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
