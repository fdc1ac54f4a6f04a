//! Protection of envelopes on the wire.

use super::WireError;
use super::envelope::{EnvelopeHeader, HEADER, Kind, ReceiverIndex, TAG, open_header};
use super::id::Incarnation;
use super::sealed::Sealed;

/// Protection of one link's envelopes. Every variant adds the same number of bytes to the frames,
/// so measurements without keys are valid for links with them.
#[derive(Debug)]
pub enum Seal {
    /// Unsealed, without any protection.
    Null(Null),
    /// Encrypted and authenticated with the keys of a handshake.
    Aead(Box<Sealed>),
}

/// The unsealed form: in place of the tag it carries the sender's incarnation and eight zero bytes.
#[derive(Debug)]
pub struct Null {
    own: Incarnation,
    peer: Option<Incarnation>,
    /// Whether the peer has been silent for so long that any other start of it is accepted.
    doubted: bool,
    index: ReceiverIndex,
    counter: u64,
    /// Highest counter of the peer, extended to 64 bits.
    heard: u64,
}

/// Reason why an envelope was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not an envelope of this link's kind.
    #[error(transparent)]
    Malformed(#[from] WireError),
    /// No session of this link has this receiver index, or none does any more.
    #[error("no session has this receiver index")]
    NoSession,
    /// Opened before, or too old to be told apart.
    #[error("an envelope with this counter was opened before")]
    Replayed,
    /// Sealed with other keys, or altered in transit.
    #[error("the authentication tag is wrong")]
    Forged,
}

/// Sender of an envelope that was opened.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// The same start of the peer as before.
    Same,
    /// A new start of the peer: all state about its sequence numbers is void.
    Fresh {
        /// Whether no start of the peer was known before.
        first: bool,
    },
    /// An earlier start of the peer; its envelope was still in transit and must be dropped.
    Stale,
}

impl Null {
    /// Creates a seal that writes `index` (the peer's index for this link) and `incarnation` (this
    /// node's) into every envelope.
    pub fn new(index: ReceiverIndex, incarnation: Incarnation) -> Null {
        Null { own: incarnation, peer: None, doubted: false, index, counter: 0, heard: 0 }
    }
}

impl Null {
    fn seal(&mut self, envelope: &mut [u8]) -> bool {
        let header =
            EnvelopeHeader { kind: Kind::Null, receiver: self.index, counter: self.counter as u32 };
        self.counter += 1;
        let Some(front) = envelope.first_chunk_mut() else { return false };
        header.emit(front);
        let Some(tag) = envelope.last_chunk_mut::<TAG>() else { return false };
        tag[..8].copy_from_slice(&self.own.0.to_be_bytes());
        tag[8..].fill(0);
        true
    }

    fn open(&mut self, envelope: &[u8]) -> Result<(Opened, u64), OpenError> {
        let header = open_header(envelope)?;
        if header.kind != Kind::Null {
            return Err(WireError::UnknownType(header.kind as u8).into());
        }
        let tag = envelope.last_chunk::<TAG>().ok_or(WireError::Truncated)?;
        let (incarnation, zeros) = tag.split_at(8);
        if zeros != [0; 8] {
            return Err(WireError::OutOfRange("the tag of an unsealed envelope").into());
        }
        let incarnation = Incarnation(
            incarnation.try_into().map(u64::from_be_bytes).map_err(|_| WireError::Truncated)?,
        );
        let opened = match self.peer {
            Some(known) if known == incarnation => Opened::Same,
            Some(known) if known > incarnation && !self.doubted => return Ok((Opened::Stale, 0)),
            known => Opened::Fresh { first: known.is_none() },
        };
        if opened != Opened::Same {
            self.heard = u64::from(header.counter);
        }
        (self.peer, self.doubted) = (Some(incarnation), false);
        let counter = unwrapped(self.heard, header.counter);
        self.heard = self.heard.max(counter);
        Ok((opened, counter))
    }
}

/// The count nearest to `near` that has `low` as its low 32 bits (RFC 1982, extended); never
/// negative.
pub(super) fn unwrapped(near: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(near as u32);
    let behind = near.checked_sub(u64::from(ahead.wrapping_neg()));
    match behind.filter(|_| ahead > 1 << 31) {
        Some(n) => n,
        None => near.saturating_add(u64::from(ahead)),
    }
}

impl Seal {
    /// Completes `envelope`, with its frames already written between the space for the header and
    /// that for the tag. False if there is no session to seal it with (see [`Seal::ready`]); the
    /// envelope is then all zeros and must not be sent.
    pub fn seal(&mut self, envelope: &mut [u8]) -> bool {
        match self {
            Seal::Null(null) => null.seal(envelope),
            Seal::Aead(sealed) => sealed.seal(envelope),
        }
    }

    /// The start of the peer that was received last, if any.
    pub fn peer(&self) -> Option<Incarnation> {
        match self {
            Seal::Null(null) => null.peer,
            Seal::Aead(sealed) => sealed.peer(),
        }
    }

    /// Whether envelopes can be sealed now.
    pub fn ready(&self) -> bool {
        match self {
            Seal::Null(_) => true,
            Seal::Aead(sealed) => sealed.ready(),
        }
    }

    /// Number of envelopes sealed for the peer's present start, which is also the number of the
    /// next.
    pub fn count(&self) -> u64 {
        match self {
            Seal::Null(null) => null.counter,
            Seal::Aead(sealed) => sealed.count(),
        }
    }

    /// Opens `envelope` in place: authenticates it, and returns its sender and its number among all
    /// envelopes from the peer's present start, over all its sessions. The frames are then at
    /// [`Seal::frames`].
    pub fn open(&mut self, envelope: &mut [u8]) -> Result<(Opened, u64), OpenError> {
        match self {
            Seal::Null(null) => null.open(envelope),
            Seal::Aead(sealed) => sealed.open(envelope),
        }
    }

    /// Accepts any start of the peer that is received next: for a dead link, so that a peer with a
    /// clock that went back is not shut out. With sessions this has no effect.
    pub fn doubt_peer(&mut self) {
        if let Seal::Null(null) = self {
            null.doubted = true;
        }
    }

    /// The frames in an envelope that was opened.
    pub fn frames(envelope: &[u8]) -> &[u8] {
        envelope.get(HEADER..envelope.len().saturating_sub(TAG)).unwrap_or(&[])
    }

    /// Space for the frames in an envelope that is to be sealed.
    pub fn frames_mut(envelope: &mut [u8]) -> &mut [u8] {
        let end = envelope.len().saturating_sub(TAG);
        envelope.get_mut(HEADER..end).unwrap_or(&mut [])
    }
}

#[cfg(test)]
mod tests {
    use super::super::envelope::ENVELOPE_OVERHEAD;
    use super::*;

    fn pair(own: u64) -> Seal {
        Seal::Null(Null::new(ReceiverIndex::new(7), Incarnation(own)))
    }

    #[test]
    fn a_restart_is_noticed_and_its_stragglers_are_not_believed() {
        let (mut first, mut second, mut other) = (pair(1), pair(2), pair(9));
        let mut old = [0; ENVELOPE_OVERHEAD + 5];
        Seal::frames_mut(&mut old).copy_from_slice(b"hello");
        first.seal(&mut old);
        let mut new = [0; ENVELOPE_OVERHEAD];
        second.seal(&mut new);

        assert_eq!(open_header(&old).unwrap().receiver, ReceiverIndex::new(7));
        assert_eq!(other.open(&mut old).map(|o| o.0), Ok(Opened::Fresh { first: true }));
        assert_eq!(other.open(&mut old).map(|o| o.0), Ok(Opened::Same));
        assert_eq!(Seal::frames(&old), b"hello");
        assert_eq!(other.open(&mut new).map(|o| o.0), Ok(Opened::Fresh { first: false }));
        assert_eq!(other.open(&mut old).map(|o| o.0), Ok(Opened::Stale));
        other.doubt_peer();
        assert_eq!(other.open(&mut new).map(|o| o.0), Ok(Opened::Same), "it was only silent");
        assert_eq!(other.open(&mut old).map(|o| o.0), Ok(Opened::Stale));
        other.doubt_peer();
        assert_eq!(other.open(&mut old).map(|o| o.0), Ok(Opened::Fresh { first: false }));
    }

    #[test]
    fn a_tag_with_other_bytes_is_refused() {
        let mut e = [0; ENVELOPE_OVERHEAD];
        pair(1).seal(&mut e);
        *e.last_mut().unwrap() = 1;
        assert!(pair(9).open(&mut e).is_err());
        assert_eq!(pair(9).open(&mut e[..10]), Err(WireError::Truncated.into()));
    }

    #[test]
    fn counters_are_unwrapped_to_the_nearest() {
        let turn = 1 << 32;
        assert_eq!(unwrapped(0, 5), 5);
        assert_eq!(unwrapped(3, u32::MAX), u64::from(u32::MAX), "never below zero");
        assert_eq!(unwrapped(turn - 2, 1), turn + 1);
        assert_eq!(unwrapped(turn + 1, u32::MAX), turn - 1);
        assert_eq!(unwrapped(7 * turn + 9, 9), 7 * turn + 9);
        assert_eq!(unwrapped(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn a_sealed_envelope_is_not_for_an_unsealed_link() {
        let mut e = [0; ENVELOPE_OVERHEAD];
        pair(1).seal(&mut e);
        e[0] = Kind::Aead as u8;
        assert_eq!(pair(9).open(&mut e), Err(WireError::UnknownType(0x12).into()));
    }
}
