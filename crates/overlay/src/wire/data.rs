//! Data frames. The origin's header fields never change on the path; each link writes its own
//! fields when the frame leaves on that link.

use super::{Frame, Metric, NodeId, Service, WireError};
use trunkline_base::wire::{Reader, Short, Writer};

/// Maximum number of links that a packet can cross: one more than five bits can count.
pub const MAX_HOPS: u8 = 32;

/// Bytes of a data frame before the packet.
pub const DATA_HEADER: usize = 20;

/// A packet has less than 2¹⁴ bytes; the two bits above hold its metric.
const LENGTH: u16 = 0x3fff;
const METRIC_SHIFT: u32 = 14;

const SERVICE_SHIFT: u32 = 6;
const RECOVERED: u8 = 0x20;
const HOP_LIMIT: u8 = 0x1f;

/// End-to-end header fields, written by the packet's origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowHeader {
    /// Service that carries the packet.
    pub service: Service,
    /// Metric used to route it, at every node on its path.
    pub metric: Metric,
    /// The node that the sending application is attached to.
    pub source: NodeId,
    /// The node that the packet is for.
    pub destination: NodeId,
    /// Virtual port of the sender at the source.
    pub source_port: u16,
    /// Virtual port of the receiver at the destination.
    pub destination_port: u16,
    /// Number of the packet in its flow.
    pub flow_seq: u16,
}

/// Header fields that each link writes for a packet that it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopHeader {
    /// Whether some link on its path lost and recovered it.
    pub recovered: bool,
    /// Number of links that it may cross after this one, 0 to 31.
    pub hop_limit: u8,
    /// The packet's number on this link and service.
    pub link_seq: u16,
    /// Milliseconds for which it stays useful on its path. A reliable packet has no deadline, and
    /// has its link's epoch here, 0 to 15.
    pub remaining_ms: u8,
}

/// The complete header of a data frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// Fields written by the packet's origin.
    pub flow: FlowHeader,
    /// Fields written by the link.
    pub hop: HopHeader,
}

impl FlowHeader {
    /// Writes the start of the frame of a packet of `len` bytes, without the fields that
    /// [`HopHeader::write`] adds; `len` was checked against the MTU before.
    #[inline]
    pub(crate) fn emit(&self, len: u16, w: &mut Writer<'_>) -> Result<(), Short> {
        // Built as a whole and checked once: every packet passes here.
        w.bytes(&self.bytes(len))
    }

    /// Source and destination, and both ports: what distinguishes flows.
    pub(crate) fn ends(&self) -> (u64, u32) {
        let nodes = u64::from(self.source.0) << 32 | u64::from(self.destination.0);
        (nodes, u32::from(self.source_port) << 16 | u32::from(self.destination_port))
    }

    /// The same as [`FlowHeader::ends`], read from a frame.
    pub(crate) fn ends_in(frame: &[u8]) -> (u64, u32) {
        let Some(b) = frame.first_chunk::<DATA_HEADER>() else { return (0, 0) };
        let nodes = [b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12]];
        (u64::from_be_bytes(nodes), u32::from_be_bytes([b[13], b[14], b[15], b[16]]))
    }

    fn bytes(&self, len: u16) -> [u8; DATA_HEADER] {
        let mut b = [0; DATA_HEADER];
        b[0] = (self.service as u8) << SERVICE_SHIFT;
        let metric = u16::from(self.metric.to_wire()) << METRIC_SHIFT;
        b[1..3].copy_from_slice(&(len & LENGTH | metric).to_be_bytes());
        b[5..9].copy_from_slice(&self.source.0.to_be_bytes());
        b[9..13].copy_from_slice(&self.destination.0.to_be_bytes());
        b[13..15].copy_from_slice(&self.source_port.to_be_bytes());
        b[15..17].copy_from_slice(&self.destination_port.to_be_bytes());
        b[17..19].copy_from_slice(&self.flow_seq.to_be_bytes());
        b
    }
}

impl HopHeader {
    /// Writes the link's fields into a frame that [`FlowHeader::emit`] began.
    #[inline]
    pub(crate) fn write(&self, frame: &mut [u8]) {
        let Some(b) = frame.first_chunk_mut::<DATA_HEADER>() else { return };
        let recovered = if self.recovered { RECOVERED } else { 0 };
        b[0] = b[0] & !(RECOVERED | HOP_LIMIT) | recovered | (self.hop_limit & HOP_LIMIT);
        b[3..5].copy_from_slice(&self.link_seq.to_be_bytes());
        b[DATA_HEADER - 1] = self.remaining_ms;
    }
}

impl DataHeader {
    /// Writes the header for a packet of `len` bytes, which follows it.
    pub fn emit(&self, len: u16, w: &mut Writer<'_>) -> Result<(), Short> {
        let mut b = self.flow.bytes(len);
        self.hop.write(&mut b);
        w.bytes(&b)
    }

    /// Reads the part after the first byte, and the packet.
    #[inline]
    pub(super) fn parse<'a>(first: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, WireError> {
        let service = Service::from_wire(first >> SERVICE_SHIFT);
        let service = service.ok_or(WireError::OutOfRange("the service"))?;
        let b: [u8; DATA_HEADER - 1] = r.array()?;
        let u16_at = |i: usize| u16::from_be_bytes([b[i], b[i + 1]]);
        let u32_at = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let payload = r.bytes(usize::from(u16_at(0) & LENGTH))?;
        let flow = FlowHeader {
            service,
            metric: Metric::from_wire((u16_at(0) >> METRIC_SHIFT) as u8),
            source: NodeId(u32_at(4)),
            destination: NodeId(u32_at(8)),
            source_port: u16_at(12),
            destination_port: u16_at(14),
            flow_seq: u16_at(16),
        };
        let hop = HopHeader {
            recovered: first & RECOVERED != 0,
            hop_limit: first & HOP_LIMIT,
            link_seq: u16_at(2),
            remaining_ms: b[18],
        };
        Ok(Frame::Data(DataHeader { flow, hop }, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frames;
    use super::*;
    use proptest::prelude::*;

    fn hop() -> impl Strategy<Value = HopHeader> {
        (any::<bool>(), 0..MAX_HOPS, any::<u16>(), any::<u8>()).prop_map(
            |(recovered, hop_limit, link_seq, remaining_ms)| HopHeader {
                recovered,
                hop_limit,
                link_seq,
                remaining_ms,
            },
        )
    }

    fn flow() -> impl Strategy<Value = FlowHeader> {
        let kind = (prop::sample::select(&Service::ALL[..]), any::<u8>());
        let ends = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u16>());
        (kind, ends).prop_map(|((service, metric), ends)| FlowHeader {
            service,
            metric: Metric::from_wire(metric),
            source: NodeId(ends.0),
            destination: NodeId(ends.1),
            source_port: ends.2,
            destination_port: ends.3,
            flow_seq: ends.4,
        })
    }

    proptest! {
        #[test]
        fn round_trip(
            flow in flow(), hop in hop(), payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut buf = [0; 400];
            let mut w = Writer::new(&mut buf);
            let header = DataHeader { flow, hop };
            header.emit(payload.len() as u16, &mut w).unwrap();
            w.bytes(&payload).unwrap();
            let n = w.len();
            prop_assert_eq!(n, DATA_HEADER + payload.len());
            let frames: Vec<_> = Frames::new(&buf[..n]).collect();
            prop_assert_eq!(frames, vec![Ok(Frame::Data(header, &payload[..]))]);
        }

        /// A stored frame takes the fields of each link that it leaves on.
        #[test]
        fn each_hop_writes_all_that_is_its_own(flow in flow(), hops in [hop(), hop()]) {
            let mut buf = [0; DATA_HEADER];
            flow.emit(0, &mut Writer::new(&mut buf)).unwrap();
            for hop in hops {
                hop.write(&mut buf);
                let want = DataHeader { flow, hop };
                prop_assert_eq!(Frames::new(&buf).next(), Some(Ok(Frame::Data(want, &[][..]))));
            }
        }
    }
}
