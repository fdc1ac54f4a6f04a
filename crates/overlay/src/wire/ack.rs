//! Acknowledgements of the reliable service.

use super::WireError;
use trunkline_base::wire::{Reader, Short, Writer};

/// Maximum number of ranges in one [`SelectiveAck`].
pub const MAX_ACK_RANGES: usize = 32;

/// Bytes of a [`SelectiveAck`] before its ranges, including the kind.
pub(crate) const ACK_HEAD: usize = 13;

/// Bytes of one range on the wire.
pub(crate) const ACK_RANGE: usize = 4;

/// Unit of delays on the wire, in microseconds.
const DELAY_UNIT: u64 = 10;

/// The longest delay that an acknowledgement can express: this long, or longer.
pub const MAX_ACK_DELAY: core::time::Duration =
    core::time::Duration::from_micros(u16::MAX as u64 * DELAY_UNIT);

/// A range of consecutive numbers that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckRange {
    /// The first number of the range.
    pub first: u16,
    /// Number of packets in the range, including the first.
    pub count: u16,
}

/// State of a receiver of reliable packets, without the ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckHead {
    /// Differs after each start of the receiving node, which then has no record of earlier packets.
    pub instance: u16,
    /// Start of the sending node that this refers to, as in its envelopes: the lower 16 bits.
    pub sender: u16,
    /// Epoch of the sender's numbering that this refers to, 0 to 15.
    pub epoch: u8,
    /// All numbers before this one have arrived.
    pub next: u16,
    /// The number of the packet that arrived last.
    pub latest: u16,
    /// Time since that arrival, in steps of 10 µs; [`MAX_ACK_DELAY`] stands for any longer time.
    pub delay: core::time::Duration,
}

/// A view of the reliable packets that have arrived on a link: all numbers before one, and further
/// ranges in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectiveAck<'a> {
    /// Everything except the ranges.
    pub head: AckHead,
    ranges: &'a [u8],
}

impl<'a> SelectiveAck<'a> {
    /// Writes an acknowledgement; more than [`MAX_ACK_RANGES`] ranges are an error.
    pub fn emit(head: &AckHead, ranges: &[AckRange], w: &mut Writer<'_>) -> Result<(), Short> {
        if ranges.len() > MAX_ACK_RANGES {
            return Err(Short);
        }
        let delay = head.delay.as_micros() / u128::from(DELAY_UNIT);
        w.u8(super::ControlKind::SelectiveAck as u8)?;
        w.u16(head.instance)?;
        w.u16(head.sender)?;
        w.u8(head.epoch)?;
        w.u16(head.next)?;
        w.u16(head.latest)?;
        w.u16(u16::try_from(delay).unwrap_or(u16::MAX))?;
        w.u8(ranges.len() as u8)?;
        for range in ranges {
            w.u16(range.first)?;
            w.u16(range.count)?;
        }
        Ok(())
    }

    /// Reads the part after the kind.
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<SelectiveAck<'a>, WireError> {
        let (instance, sender) = (r.u16()?, r.u16()?);
        let (epoch, next, latest) = (r.u8()?, r.u16()?, r.u16()?);
        let delay = u64::from(r.u16()?) * DELAY_UNIT;
        let n = usize::from(r.u8()?);
        if n > MAX_ACK_RANGES {
            return Err(WireError::OutOfRange("the number of ranges in an acknowledgement"));
        }
        let delay = core::time::Duration::from_micros(delay);
        let head = AckHead { instance, sender, epoch, next, latest, delay };
        Ok(SelectiveAck { head, ranges: r.bytes(n * ACK_RANGE)? })
    }

    /// Iterates over the ranges beyond [`AckHead::next`].
    pub fn ranges(self) -> impl Iterator<Item = AckRange> + 'a {
        self.ranges.chunks_exact(ACK_RANGE).map(|c| AckRange {
            first: u16::from_be_bytes([c[0], c[1]]),
            count: u16::from_be_bytes([c[2], c[3]]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, Frames};
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            ids in any::<(u16, u16, u8)>(), numbers in any::<(u16, u16)>(), delay: u16,
            ranges in prop::collection::vec(any::<(u16, u16)>(), 0..=MAX_ACK_RANGES),
        ) {
            let delay = Duration::from_micros(10 * u64::from(delay));
            let ((instance, sender, epoch), (next, latest)) = (ids, numbers);
            let head = AckHead { instance, sender, epoch, next, latest, delay };
            let ranges: Vec<_> =
                ranges.into_iter().map(|(first, count)| AckRange { first, count }).collect();
            let mut bytes = [0; ACK_HEAD + MAX_ACK_RANGES * ACK_RANGE];
            let mut w = Writer::new(&mut bytes);
            SelectiveAck::emit(&head, &ranges, &mut w).unwrap();
            prop_assert_eq!(w.len(), ACK_HEAD + ranges.len() * ACK_RANGE);
            let Some(Ok(Frame::Ack(ack))) = Frames::new(w.written()).next() else {
                panic!("an acknowledgement")
            };
            prop_assert_eq!(ack.head, head);
            prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), ranges);
        }
    }

    #[test]
    fn too_many_ranges_are_refused_and_long_delays_cut() {
        let delay = Duration::from_secs(9);
        let head = AckHead { instance: 1, sender: 1, epoch: 0, next: 0, latest: 0, delay };
        let mut bytes = [0; 256];
        let many = [AckRange::default(); MAX_ACK_RANGES + 1];
        assert!(SelectiveAck::emit(&head, &many, &mut Writer::new(&mut bytes)).is_err());
        SelectiveAck::emit(&head, &[], &mut Writer::new(&mut bytes)).unwrap();
        let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes).next() else { panic!("one") };
        assert_eq!(ack.head.delay, MAX_ACK_DELAY);
        bytes[ACK_HEAD - 1] = MAX_ACK_RANGES as u8 + 1;
        assert!(Frames::new(&bytes).next().unwrap().is_err());
    }
}
