//! Bytes of a stream by their position, in memory that grows as it is needed.

/// Memory that may be allocated, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: usize,
}

impl Budget {
    /// A budget of `bytes` bytes, all of them available.
    pub fn new(bytes: usize) -> Budget {
        Budget { left: bytes }
    }

    /// Number of bytes still available.
    pub fn left(&self) -> usize {
        self.left
    }
}

/// Budgets that a buffer's memory is taken from: that of all streams of a node, and the part of it
/// for streams with one other node, so that no node can exhaust the memory of others.
#[derive(Debug)]
pub struct Memory<'a> {
    pub all: &'a mut Budget,
    pub peer: &'a mut Budget,
}

impl Memory<'_> {
    fn take(&mut self, bytes: usize) -> bool {
        let enough = bytes <= self.all.left && bytes <= self.peer.left;
        if enough {
            self.all.left -= bytes;
            self.peer.left -= bytes;
        }
        enough
    }

    fn give(&mut self, bytes: usize) {
        self.all.left += bytes;
        self.peer.left += bytes;
    }
}

/// The least memory of a buffer that is in use, in bytes: more than the largest packet has.
pub const MIN_MEMORY: usize = 16 << 10;

/// A circular buffer; its owner tracks the positions stored in it.
#[derive(Debug, Default)]
pub struct Buffer {
    /// The memory: its length is a power of two, or 0. Position `p` of the stream is at index `p`
    /// modulo that length.
    bytes: Box<[u8]>,
}

impl Buffer {
    /// Grows the buffer to hold positions `from` to `end` (exclusive), and keeps the data from
    /// `from` on. False if the budget has no memory for that; nothing changes then.
    pub fn reserve(&mut self, from: u64, end: u64, memory: &mut Memory<'_>) -> bool {
        let Ok(len) = usize::try_from(end.saturating_sub(from)) else { return false };
        let old = self.bytes.len();
        if len <= old {
            return true;
        }
        let Some(new) = len.max(MIN_MEMORY).checked_next_power_of_two() else { return false };
        if !memory.take(new - old) {
            return false;
        }
        let mut bytes = vec![0; new].into_boxed_slice();
        for position in [from, (from | (old as u64).wrapping_sub(1)).wrapping_add(1)] {
            // The old memory has two pieces: up to its end, and from its beginning on.
            if old == 0 {
                break;
            }
            let at = position as usize & (old - 1);
            let piece = if position == from { &self.bytes[at..] } else { &self.bytes[..old] };
            let kept = (from + old as u64).saturating_sub(position) as usize;
            let piece = &piece[..piece.len().min(kept)];
            put(&mut bytes, position, piece);
        }
        self.bytes = bytes;
        true
    }

    /// The size of the allocated memory, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Returns all memory to the budget; the contents are lost.
    pub fn release(&mut self, memory: &mut Memory<'_>) {
        memory.give(self.bytes.len());
        self.bytes = Box::default();
    }

    /// Returns all memory but [`MIN_MEMORY`] bytes to the budget; the contents are lost.
    pub fn shrink(&mut self, memory: &mut Memory<'_>) {
        if self.bytes.len() > MIN_MEMORY {
            self.release(memory);
            self.reserve(0, 1, memory);
        }
    }

    /// Writes `data` from `position` on; [`Buffer::reserve`] must have made room for it.
    pub fn write(&mut self, position: u64, data: &[u8]) {
        if !data.is_empty() && data.len() <= self.bytes.len() {
            put(&mut self.bytes, position, data);
        }
    }

    /// The bytes from `position` on, up to `len` of them: fewer where the circular memory wraps.
    pub fn piece(&self, position: u64, len: usize) -> &[u8] {
        let Some(mask) = self.bytes.len().checked_sub(1) else { return &[] };
        let at = position as usize & mask;
        &self.bytes[at..self.bytes.len().min(at + len)]
    }

    /// Fills `out` with the bytes from `position` on.
    pub fn copy(&self, position: u64, out: &mut [u8]) {
        let first = self.piece(position, out.len());
        let (a, b) = out.split_at_mut(first.len());
        a.copy_from_slice(first);
        let rest = self.piece(position + first.len() as u64, b.len());
        b[..rest.len()].copy_from_slice(rest);
    }
}

fn put(bytes: &mut [u8], position: u64, data: &[u8]) {
    let at = position as usize & (bytes.len() - 1);
    let (first, rest) = data.split_at(data.len().min(bytes.len() - at));
    bytes[at..at + first.len()].copy_from_slice(first);
    bytes[..rest.len()].copy_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    /// Compared with a plain list, through growth at any position.
    #[test]
    fn what_is_kept_is_what_was_written() {
        let mut rng = trunkline_base::rng(1, 2);
        for _ in 0..200 {
            let (mut all, mut peer) = (Budget::new(1 << 20), Budget::new(1 << 20));
            let mut memory = Memory { all: &mut all, peer: &mut peer };
            let (mut buffer, mut model) = (Buffer::default(), Vec::<u8>::new());
            let mut from = rng.random_range(0..1u64 << 40);
            for _ in 0..60 {
                let data: Vec<u8> = (0..rng.random_range(0..9_000)).map(|_| rng.random()).collect();
                let end = from + model.len() as u64;
                assert!(buffer.reserve(from, end + data.len() as u64, &mut memory));
                buffer.write(end, &data);
                model.extend_from_slice(&data);
                let gone = rng.random_range(0..=model.len().min(8_000));
                model.drain(..gone);
                from += gone as u64;
                let mut out = vec![0; model.len()];
                buffer.copy(from, &mut out);
                assert!(out == model);
            }
            buffer.release(&mut memory);
            assert_eq!((all.left(), peer.left()), (1 << 20, 1 << 20));
        }
    }

    #[test]
    fn nobody_has_more_than_there_is() {
        let (mut all, mut peer) = (Budget::new(64 << 10), Budget::new(48 << 10));
        let mut memory = Memory { all: &mut all, peer: &mut peer };
        let mut buffers = [Buffer::default(), Buffer::default(), Buffer::default()];
        assert!(buffers[0].reserve(5, 5 + 17_000, &mut memory));
        assert!(buffers[1].reserve(0, 1, &mut memory));
        assert!(!buffers[2].reserve(0, 1, &mut memory), "all that this peer may have");
        let mut other = Budget::new(48 << 10);
        let mut others = Memory { all: memory.all, peer: &mut other };
        assert!(buffers[2].reserve(0, 1, &mut others));
        assert!(!buffers[2].reserve(0, (16 << 10) + 1, &mut others), "all that there is");
        assert!(!buffers[1].reserve(0, u64::MAX, &mut others));
    }
}
