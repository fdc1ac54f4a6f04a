//! The envelope: `type 1, receiver index 3, counter 4 | frames | tag 16`.
//!
//! The receiver chose the index, so one look-up finds the neighbour, its keys and its counters,
//! whatever address the datagram came from.

use super::WireError;
use super::data::DATA_HEADER;
use trunkline_base::wire::{Reader, Writer};

/// Bytes that an envelope adds to its frames: 8 before them, and a 16-byte tag after them.
pub const ENVELOPE_OVERHEAD: usize = HEADER + TAG;

/// Bytes that an envelope with one data frame adds to the application's packet.
pub const DATA_OVERHEAD: usize = ENVELOPE_OVERHEAD + DATA_HEADER;

/// Size of the longest handshake message that is read: newer versions may carry more than this one,
/// and still fit the smallest MTU.
pub const MAX_HANDSHAKE: usize = 576 - 48;

pub(super) const HEADER: usize = 8;
pub(super) const TAG: usize = 16;

/// Identifies the receiver's neighbour that an envelope is from: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReceiverIndex(u32);

impl ReceiverIndex {
    /// Builds an index from the low 24 bits.
    pub const fn new(bits: u32) -> ReceiverIndex {
        ReceiverIndex(bits & 0xff_ffff)
    }

    /// The index as a number of 24 bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Index of the direction `from` → `to` over `path` where no handshake assigns one (unsealed
    /// links): both ends compute it from their configuration. FNV-1a, folded to 24 bits; a node
    /// refuses a configuration in which two of its links collide.
    pub fn derived(from: super::NodeId, to: super::NodeId, path: &str) -> ReceiverIndex {
        let mut h = 0x811c_9dc5_u32;
        for b in from.0.to_be_bytes().into_iter().chain(to.0.to_be_bytes()).chain(path.bytes()) {
            h = (h ^ u32::from(b)).wrapping_mul(0x0100_0193);
        }
        ReceiverIndex::new(h ^ (h >> 24))
    }
}

/// The first eight bytes of an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnvelopeHeader {
    /// How the envelope is sealed.
    pub kind: Kind,
    /// Identifies the sending neighbour at the receiver.
    pub receiver: ReceiverIndex,
    /// The low 32 bits of the sender's envelope counter.
    pub counter: u32,
}

/// Type of a datagram: its first byte, with the wire version, 1, in the high nibble. The first two
/// types hold frames and begin with an [`EnvelopeHeader`]; the others belong to the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Unsealed: for measurements, and for networks that are protected at a lower layer.
    Null = 0x11,
    /// Sealed with the keys of a session.
    Aead = 0x12,
    /// Requests the identity of the node at an address.
    Query = 0x13,
    /// States the node's identity, and hands out a cookie.
    Answer = 0x14,
    /// The first message of a handshake.
    Initiation = 0x15,
    /// The second message of a handshake.
    Response = 0x16,
    /// Requests proof from the sender of an initiation that it is not a replay.
    Challenge = 0x17,
}

impl Kind {
    /// The type of this datagram, from its first byte.
    pub fn of(datagram: &[u8]) -> Result<Kind, WireError> {
        match *datagram.first().ok_or(WireError::Truncated)? {
            0x11 => Ok(Kind::Null),
            0x12 => Ok(Kind::Aead),
            0x13 => Ok(Kind::Query),
            0x14 => Ok(Kind::Answer),
            0x15 => Ok(Kind::Initiation),
            0x16 => Ok(Kind::Response),
            0x17 => Ok(Kind::Challenge),
            other => Err(WireError::UnknownType(other)),
        }
    }

    /// Whether it is for [`crate::handshake::Handshakes`].
    pub fn is_handshake(self) -> bool {
        !matches!(self, Kind::Null | Kind::Aead)
    }
}

/// Reads the header of an envelope with frames; the link's seal handles the rest. A handshake
/// message is an unknown type here.
pub fn open_header(datagram: &[u8]) -> Result<EnvelopeHeader, WireError> {
    if datagram.len() < ENVELOPE_OVERHEAD {
        return Err(WireError::Truncated);
    }
    let kind = Kind::of(datagram)?;
    if kind.is_handshake() {
        return Err(WireError::UnknownType(kind as u8));
    }
    let mut r = Reader::new(datagram);
    r.u8()?;
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
        fn header_round_trip(index in any::<u32>(), counter in any::<u32>(), aead in any::<bool>()) {
            let kind = if aead { Kind::Aead } else { Kind::Null };
            let header = EnvelopeHeader { kind, receiver: ReceiverIndex::new(index), counter };
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
    fn kinds_are_their_bytes() {
        use Kind::{Aead, Answer, Challenge, Initiation, Null, Query, Response};
        for kind in [Null, Aead, Query, Answer, Initiation, Response, Challenge] {
            let bytes = [kind as u8; ENVELOPE_OVERHEAD];
            assert_eq!(Kind::of(&bytes), Ok(kind));
            assert_eq!(open_header(&bytes).is_ok(), !kind.is_handshake());
        }
        assert_eq!(Kind::of(&[0x21]), Err(WireError::UnknownType(0x21)));
        assert_eq!(Kind::of(&[]), Err(WireError::Truncated));
    }

    #[test]
    fn derived_indices_tell_directions_and_paths_apart() {
        let (a, b) = (NodeId(1), NodeId(2));
        let there = ReceiverIndex::derived(a, b, "main");
        assert_ne!(there, ReceiverIndex::derived(b, a, "main"));
        assert_ne!(there, ReceiverIndex::derived(a, b, "backup"));
    }
}
