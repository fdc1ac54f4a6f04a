//! What stands between frames and the wire.

use super::WireError;
use super::envelope::{ENVELOPE_OVERHEAD, EnvelopeHeader, HEADER, Kind, ReceiverIndex, TAG};

/// Which start of a node an envelope comes from: grows with every start, so
/// that a neighbour can tell a restarted node's fresh counters from old ones.
/// A driver passes wall-clock nanoseconds, a simulator counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Incarnation(pub u64);

/// How the envelopes of one link are protected. Every variant writes the same
/// number of bytes around the frames, so measurements without keys hold for
/// links with them.
#[derive(Debug)]
pub enum Seal {
    /// No protection.
    Null(Null),
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
    counter: u32,
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
        Null { own: incarnation, peer: None, doubted: false, index, counter: 0 }
    }
}

impl Seal {
    /// Completes `envelope`, whose frames are written between the header's
    /// room and the tag's.
    pub fn seal(&mut self, envelope: &mut [u8]) {
        let Seal::Null(null) = self;
        let header =
            EnvelopeHeader { kind: Kind::Null, receiver: null.index, counter: null.counter };
        null.counter = null.counter.wrapping_add(1);
        let Some(front) = envelope.first_chunk_mut() else { return };
        header.emit(front);
        let Some(tag) = envelope.last_chunk_mut::<TAG>() else { return };
        tag[..8].copy_from_slice(&null.own.0.to_be_bytes());
        tag[8..].fill(0);
    }

    /// Checks `envelope` in place and says whose it is. The frames are at
    /// [`Seal::frames`].
    pub fn open(&mut self, envelope: &mut [u8]) -> Result<Opened, WireError> {
        let Seal::Null(null) = self;
        if envelope.len() < ENVELOPE_OVERHEAD {
            return Err(WireError::Truncated);
        }
        let tag = envelope.last_chunk::<TAG>().ok_or(WireError::Truncated)?;
        let (incarnation, zeros) = tag.split_at(8);
        if zeros != [0; 8] {
            return Err(WireError::OutOfRange("the tag of an unsealed envelope"));
        }
        let incarnation = Incarnation(
            incarnation.try_into().map(u64::from_be_bytes).map_err(|_| WireError::Truncated)?,
        );
        let opened = match null.peer {
            Some(known) if known == incarnation => Opened::Same,
            Some(known) if known > incarnation && !null.doubted => return Ok(Opened::Stale),
            known => Opened::Fresh { first: known.is_none() },
        };
        (null.peer, null.doubted) = (Some(incarnation), false);
        Ok(opened)
    }

    /// Believes whatever start of the peer speaks next: for a link that is
    /// dead, lest a peer whose clock went back stay shut out.
    pub fn doubt_peer(&mut self) {
        let Seal::Null(null) = self;
        null.doubted = true;
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
    use super::super::envelope::open_header;
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
        assert_eq!(other.open(&mut old), Ok(Opened::Fresh { first: true }));
        assert_eq!(other.open(&mut old), Ok(Opened::Same));
        assert_eq!(Seal::frames(&old), b"hello");
        assert_eq!(other.open(&mut new), Ok(Opened::Fresh { first: false }));
        assert_eq!(other.open(&mut old), Ok(Opened::Stale));
        other.doubt_peer();
        assert_eq!(other.open(&mut new), Ok(Opened::Same), "it was only silent");
        assert_eq!(other.open(&mut old), Ok(Opened::Stale));
        other.doubt_peer();
        assert_eq!(other.open(&mut old), Ok(Opened::Fresh { first: false }));
    }

    #[test]
    fn a_tag_with_other_bytes_is_refused() {
        let mut e = [0; ENVELOPE_OVERHEAD];
        pair(1).seal(&mut e);
        *e.last_mut().unwrap() = 1;
        assert!(pair(9).open(&mut e).is_err());
        assert_eq!(pair(9).open(&mut e[..10]), Err(WireError::Truncated));
    }
}
