//! What stands between frames and the wire.

use super::WireError;
use super::envelope::{EnvelopeHeader, HEADER, Kind, ReceiverIndex, TAG, open_header};
use super::id::Incarnation;
use super::sealed::Sealed;

/// How the envelopes of one link are protected. Every variant writes the same
/// number of bytes around the frames, so measurements without keys hold for
/// links with them.
#[derive(Debug)]
pub enum Seal {
    /// No protection.
    Null(Null),
    /// Encrypted and authenticated with the keys of a handshake.
    Aead(Box<Sealed>),
}

/// The unsealed form: the tag's place carries the sender's incarnation, then
/// eight zero bytes.
#[derive(Debug)]
pub struct Null {
    own: Incarnation,
    peer: Option<Incarnation>,
    /// Whether the peer was last heard so long ago that any other start of it
    /// is believed.
    doubted: bool,
    index: ReceiverIndex,
    counter: u64,
    /// The peer's highest counter, unwrapped.
    heard: u64,
}

/// Why an envelope was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No envelope of this link's kind.
    #[error(transparent)]
    Malformed(#[from] WireError),
    /// No session of this link has its receiver index, or has it any more.
    #[error("no session has this receiver index")]
    NoSession,
    /// Opened before, or too old to tell.
    #[error("an envelope with this counter was opened before")]
    Replayed,
    /// Sealed with other keys, or altered on its way.
    #[error("the authentication tag is wrong")]
    Forged,
}

/// What opening an envelope found.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// The same peer as before.
    Same,
    /// Of a new start of the peer: everything that was known about its
    /// sequence numbers is void.
    Fresh {
        /// No start of it was known before.
        first: bool,
    },
    /// An envelope of an earlier start, still under way: drop it.
    Stale,
}

impl Null {
    /// A seal that writes `index` (the peer's name for this link) and
    /// `incarnation` (this node's) into every envelope.
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

/// The count whose low 32 bits are `low`, nearest to `near` (RFC 1982,
/// unwrapped); never negative.
pub(super) fn unwrapped(near: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(near as u32);
    let behind = near.checked_sub(u64::from(ahead.wrapping_neg()));
    match behind.filter(|_| ahead > 1 << 31) {
        Some(n) => n,
        None => near.saturating_add(u64::from(ahead)),
    }
}

impl Seal {
    /// Completes `envelope`, whose frames are written between the header's
    /// room and the tag's. False if there is no session to seal it with (see
    /// [`Seal::ready`]); the envelope is then all zeros and must not be sent.
    pub fn seal(&mut self, envelope: &mut [u8]) -> bool {
        match self {
            Seal::Null(null) => null.seal(envelope),
            Seal::Aead(sealed) => sealed.seal(envelope),
        }
    }

    /// Which start of the peer was heard last, if any was.
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

    /// How many envelopes were sealed for the peer's present start: the number
    /// of the next.
    pub fn count(&self) -> u64 {
        match self {
            Seal::Null(null) => null.counter,
            Seal::Aead(sealed) => sealed.count(),
        }
    }

    /// Opens `envelope` in place: checks it, and says whose it is and its
    /// number among all that the peer's present start has sent us, over all
    /// its sessions. The frames are then at [`Seal::frames`].
    pub fn open(&mut self, envelope: &mut [u8]) -> Result<(Opened, u64), OpenError> {
        match self {
            Seal::Null(null) => null.open(envelope),
            Seal::Aead(sealed) => sealed.open(envelope),
        }
    }

    /// Believes whatever start of the peer speaks next: for a link that is
    /// dead, lest a peer whose clock went back stay shut out. With sessions
    /// there is nothing to doubt.
    pub fn doubt_peer(&mut self) {
        if let Seal::Null(null) = self {
            null.doubted = true;
        }
    }

    /// Where the frames lie in an envelope that was opened.
    pub fn frames(envelope: &[u8]) -> &[u8] {
        envelope.get(HEADER..envelope.len().saturating_sub(TAG)).unwrap_or(&[])
    }

    /// Where the frames go in an envelope that is to be sealed.
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
