//! Messages on a byte stream.

use super::keys::Keys;
use super::wire::{MAX_FRAME, PREFIX};
use crate::wire::WireError;

/// Assembles messages from a stream. It never takes a byte beyond the end of the present message:
/// the following bytes wait in the kernel, where they keep the descriptor readable and cost no
/// memory here.
#[derive(Debug)]
pub struct FrameReader {
    buf: Box<[u8]>,
    have: usize,
    /// Bytes at the end of the complete message that are not part of its content.
    tail: usize,
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        FrameReader { buf: vec![0; PREFIX + MAX_FRAME].into(), have: 0, tail: 0 }
    }
}

impl FrameReader {
    /// Buffer for the next bytes of the stream; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        if self.have == self.need() {
            (self.have, self.tail) = (0, 0);
        }
        let need = self.need();
        &mut self.buf[self.have..need]
    }

    /// Processes `n` bytes that were written to [`FrameReader::room`]. Returns the message that
    /// they completed, if any.
    ///
    /// # Errors
    ///
    /// A length of zero or more than [`MAX_FRAME`], which makes the stream useless.
    pub fn filled(&mut self, n: usize) -> Result<Option<&[u8]>, WireError> {
        self.have = (self.have + n).min(self.need());
        if self.have < PREFIX {
            return Ok(None);
        }
        match self.len() {
            0 => Err(WireError::OutOfRange("the length of a message (0)")),
            len if len > MAX_FRAME => Err(WireError::OutOfRange("the length of a message")),
            _ => Ok(self.whole()),
        }
    }

    /// The last complete message, until [`FrameReader::room`] is called.
    pub fn whole(&self) -> Option<&[u8]> {
        let whole = self.have > PREFIX && self.have == self.need();
        whole.then(|| &self.buf[PREFIX..self.have - self.tail])
    }

    /// Opens the last complete message in place; false if it was altered, or the keys are used up.
    /// Call this once per message.
    pub fn open(&mut self, keys: &mut Keys) -> bool {
        if self.tail > 0 || self.whole().is_none() {
            return false;
        }
        let (prefix, sealed) = self.buf[..self.have].split_at_mut(PREFIX);
        let opened = keys.open_frame([prefix[0], prefix[1]], sealed);
        self.tail = opened.map_or(0, |len| sealed.len() - len);
        opened.is_some()
    }

    fn len(&self) -> usize {
        usize::from(u16::from_be_bytes([self.buf[0], self.buf[1]]))
    }

    fn need(&self) -> usize {
        match self.have {
            0..PREFIX => PREFIX,
            _ => PREFIX + self.len().clamp(1, MAX_FRAME),
        }
    }
}

/// The end of a message that the kernel has accepted only in part. No other message may go onto the
/// stream before it.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    gone: usize,
}

impl Backlog {
    /// Whether the stream is free for the next message.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Stores the rest of `parts`, in order, after their first `taken` bytes.
    pub fn keep(&mut self, parts: &[&[u8]], mut taken: usize) {
        for part in parts {
            let skip = taken.min(part.len());
            self.bytes.extend_from_slice(&part[skip..]);
            taken -= skip;
        }
    }

    /// Adds the message made of `parts`, sealed; false if `keys` are used up.
    pub fn seal(&mut self, keys: &mut Keys, parts: [&[u8]; 2]) -> bool {
        keys.seal_frame(parts, &mut self.bytes)
    }

    /// The bytes to send next.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }

    /// Removes the first `n` bytes of [`Backlog::rest`], which were sent.
    pub fn advance(&mut self, n: usize) {
        self.gone += n;
        if self.gone >= self.bytes.len() {
            self.bytes.clear();
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::prefix;
    use super::*;
    use proptest::prelude::*;

    /// Reads `stream` in pieces of the given sizes; returns the messages, and whether the stream
    /// was invalid.
    fn read(stream: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, bool) {
        let (mut reader, mut got) = (FrameReader::default(), Vec::new());
        let (mut rest, mut sizes) = (stream, pieces.iter().cycle());
        while !rest.is_empty() {
            let room = reader.room();
            assert!(!room.is_empty());
            let n = room.len().min(rest.len()).min(*sizes.next().unwrap());
            room[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            match reader.filled(n) {
                Ok(Some(message)) => got.push(message.to_vec()),
                Ok(None) => {}
                Err(_) => return (got, true),
            }
        }
        (got, false)
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..400), 0..20),
            pieces in prop::collection::vec(1usize..500, 1..20),
        ) {
            let stream: Vec<u8> = messages
                .iter()
                .flat_map(|m| [&prefix(m.len())[..], m].concat())
                .collect();
            prop_assert_eq!(read(&stream, &pieces), (messages, false));
        }

        #[test]
        fn any_stream_is_messages_or_an_error(
            stream in prop::collection::vec(any::<u8>(), 0..2_000),
            pieces in prop::collection::vec(1usize..500, 1..20),
        ) {
            for message in read(&stream, &pieces).0 {
                prop_assert!((1..=MAX_FRAME).contains(&message.len()));
            }
        }

        #[test]
        fn what_was_not_taken_goes_later(
            a in prop::collection::vec(any::<u8>(), 0..50),
            b in prop::collection::vec(any::<u8>(), 0..50),
            taken in 0usize..100,
            steps in prop::collection::vec(1usize..9, 100),
        ) {
            let all = [&a[..], &b].concat();
            let taken = taken.min(all.len());
            let mut backlog = Backlog::default();
            backlog.keep(&[&a, &b], taken);
            let mut sent = all[..taken].to_vec();
            for step in steps {
                let n = step.min(backlog.rest().len());
                sent.extend_from_slice(&backlog.rest()[..n]);
                backlog.advance(n);
            }
            prop_assert!(backlog.is_empty());
            prop_assert_eq!(sent, all);
        }
    }

    #[test]
    fn impossible_lengths_break_the_stream() {
        assert_eq!(read(&[0, 0, 1], &[9]), (vec![], true));
        assert_eq!(read(&[0xff, 0xff, 1], &[1]), (vec![], true));
        let longest = [&prefix(MAX_FRAME)[..], &vec![7; MAX_FRAME]].concat();
        assert_eq!(read(&longest, &[1_000]), (vec![vec![7; MAX_FRAME]], false));
        let longer = u16::try_from(MAX_FRAME + 1).unwrap().to_be_bytes();
        assert_eq!(read(&longer, &[2]), (vec![], true));
    }
}
