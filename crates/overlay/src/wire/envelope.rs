//! The envelope: `type 1, receiver index 3, counter 4 | frames | tag 16`.
//!
//! The receiver chose the index, so one look-up finds the neighbour, its keys
//! and its counters, whatever address the datagram came from.

use super::WireError;
use super::frame::DATA_HEADER;
use trunkline_base::wire::{Reader, Writer};

/// Bytes an envelope adds around its frames: 8 in front, a 16-byte tag behind.
pub const ENVELOPE_OVERHEAD: usize = HEADER + TAG;

/// Bytes that an envelope with one data frame adds to the application's packet.
pub const DATA_OVERHEAD: usize = ENVELOPE_OVERHEAD + DATA_HEADER;

pub(super) const HEADER: usize = 8;
pub(super) const TAG: usize = 16;

/// Which of the receiver's neighbours an envelope is from: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReceiverIndex(u32);

impl ReceiverIndex {
    /// The index with these low 24 bits.
    pub const fn new(bits: u32) -> ReceiverIndex {
        ReceiverIndex(bits & 0xff_ffff)
    }

    /// The 24 bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The index of the direction `from` → `to` over `path` where no handshake
    /// assigns one (unsealed links): both ends compute it from their
    /// configuration. FNV-1a, folded to 24 bits; a node refuses a
    /// configuration in which two of its links collide.
    pub fn derived(from: super::NodeId, to: super::NodeId, path: &str) -> ReceiverIndex {
        let mut h = 0x811c_9dc5_u32;
        for b in from.0.to_be_bytes().into_iter().chain(to.0.to_be_bytes()).chain(path.bytes()) {
            h = (h ^ u32::from(b)).wrapping_mul(0x0100_0193);
        }
        ReceiverIndex::new(h ^ (h >> 24))
    }
}

/// The eight bytes in front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnvelopeHeader {
    /// How the envelope is sealed.
    pub kind: Kind,
    /// Which neighbour of the receiver it is from.
    pub receiver: ReceiverIndex,
    /// The low 32 bits of the sender's envelope counter.
    pub counter: u32,
}

/// How an envelope is sealed; the high nibble of the type byte is the wire
/// version, 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Not sealed: for measuring, and for networks that are sealed below.
    Null = 0x11,
}

/// Reads the header off a datagram; what is behind it is for the link's seal.
pub fn open_header(datagram: &[u8]) -> Result<EnvelopeHeader, WireError> {
    if datagram.len() < ENVELOPE_OVERHEAD {
        return Err(WireError::Truncated);
    }
    let mut r = Reader::new(datagram);
    let kind = match r.u8()? {
        0x11 => Kind::Null,
        other => return Err(WireError::UnknownType(other)),
    };
    Ok(EnvelopeHeader { kind, receiver: ReceiverIndex(r.u24()?), counter: r.u32()? })
}

impl EnvelopeHeader {
    pub(super) fn emit(&self, out: &mut [u8; HEADER]) {
        let mut w = Writer::new(out);
        let fits = w
            .u8(self.kind as u8)
            .and_then(|()| w.u24(self.receiver.get()))
            .and_then(|()| w.u32(self.counter));
        debug_assert!(fits.is_ok(), "eight bytes hold the header");
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeId;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_round_trip(index in any::<u32>(), counter in any::<u32>()) {
            let header = EnvelopeHeader { kind: Kind::Null, receiver: ReceiverIndex::new(index), counter };
            let mut bytes = [0; ENVELOPE_OVERHEAD];
            header.emit(bytes.first_chunk_mut().unwrap());
            prop_assert_eq!(open_header(&bytes), Ok(header));
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = open_header(&bytes);
        }
    }

    #[test]
    fn derived_indices_tell_directions_and_paths_apart() {
        let (a, b) = (NodeId(1), NodeId(2));
        let there = ReceiverIndex::derived(a, b, "main");
        assert_ne!(there, ReceiverIndex::derived(b, a, "main"));
        assert_ne!(there, ReceiverIndex::derived(a, b, "backup"));
    }
}
