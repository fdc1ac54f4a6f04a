//! Redundant audio data (RFC 2198): an RTP payload that carries the speech of earlier packets as
//! well as its own, so that a lost packet is recovered from a later one.
//!
//! ```
//! use trunkline_media::red::{self, Block};
//!
//! let before = Block { payload_type: 0, offset: 160, data: &[7; 160] };
//! let now = Block { payload_type: 0, offset: 0, data: &[8; 160] };
//! let mut payload = [0; 400];
//! let len = red::emit(&[before], &now, &mut payload)?;
//! assert_eq!(len, 4 + 1 + 160 + 160);
//! assert_eq!(red::parse(&payload[..len])?.collect::<Vec<_>>(), [before, now]);
//! # Ok::<(), red::RedError>(())
//! ```

/// Size of the header of a block of earlier speech, in bytes (section 3).
pub const BLOCK_HEADER: usize = 4;
/// Size of the header of a packet's own speech, in bytes (section 3).
pub const PRIMARY_HEADER: usize = 1;
/// Maximum age of a block relative to its packet, in ticks: 2 s at 8 kHz.
pub const MAX_OFFSET: u16 = (1 << 14) - 1;
/// Maximum size of a block of earlier speech, in bytes.
pub const MAX_BLOCK: usize = (1 << 10) - 1;

/// The speech of one packet in one coding, the packet's own or an earlier one's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// RTP payload type of the speech, 0 to 127.
    pub payload_type: u8,
    /// Age of the speech relative to its packet, in timestamp ticks; 0 for the packet's own speech,
    /// at most [`MAX_OFFSET`].
    pub offset: u16,
    /// The coded speech; at most [`MAX_BLOCK`] bytes for earlier packets.
    pub data: &'a [u8],
}

/// Errors in reading or writing a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RedError {
    /// The payload ends within a header, or has less speech than its headers announce.
    #[error("not redundant audio: it has {have} bytes, but its headers require {need}")]
    TooShort {
        /// Minimum size according to the headers, in bytes.
        need: usize,
        /// Size of the payload, in bytes.
        have: usize,
    },
    /// A block does not fit into a header.
    #[error("no header can describe {bytes} bytes of type {payload_type}, {offset} ticks old")]
    Block {
        /// RTP payload type of the block.
        payload_type: u8,
        /// Age of the block in ticks.
        offset: u16,
        /// Size of the block's speech, in bytes.
        bytes: usize,
    },
    /// The caller's buffer is too small.
    #[error("cannot write {need} bytes into a buffer of {have}: give a larger one")]
    NoRoom {
        /// Size of the whole payload, in bytes.
        need: usize,
        /// Size of the caller's buffer, in bytes.
        have: usize,
    },
}

/// Writes a payload with `earlier` speech, oldest first, followed by a packet's own, to the front
/// of `out`, and returns its length. Does not allocate.
///
/// # Errors
///
/// Returns [`RedError::Block`] for earlier speech that has no age, is too old or too long, for a
/// type above 127, and for a packet's own speech with an age; or [`RedError::NoRoom`]. Nothing is
/// written then.
pub fn emit(earlier: &[Block<'_>], own: &Block<'_>, out: &mut [u8]) -> Result<usize, RedError> {
    let bad = |b: &Block<'_>| {
        let &Block { payload_type, offset, data } = b;
        RedError::Block { payload_type, offset, bytes: data.len() }
    };
    let fits = |b: &&Block<'_>| {
        b.payload_type < 128 && (1..=MAX_OFFSET).contains(&b.offset) && b.data.len() <= MAX_BLOCK
    };
    if let Some(block) = earlier.iter().find(|b| !fits(b)) {
        return Err(bad(block));
    }
    if own.payload_type > 127 || own.offset != 0 {
        return Err(bad(own));
    }
    let blocks = || earlier.iter().chain([own]);
    let headers = BLOCK_HEADER * earlier.len() + PRIMARY_HEADER;
    let need = headers + blocks().map(|b| b.data.len()).sum::<usize>();
    let have = out.len();
    let (head, mut body) =
        out.get_mut(..need).ok_or(RedError::NoRoom { need, have })?.split_at_mut(headers);
    for (block, header) in earlier.iter().zip(head.chunks_exact_mut(BLOCK_HEADER)) {
        let fields = u32::from(block.offset) << 10 | block.data.len() as u32;
        let kind = u32::from(0x80 | block.payload_type) << 24;
        header.copy_from_slice(&(kind | fields).to_be_bytes());
    }
    head[headers - 1] = own.payload_type;
    for block in blocks() {
        let (data, rest) = body.split_at_mut(block.data.len());
        data.copy_from_slice(block.data);
        body = rest;
    }
    Ok(need)
}

/// Reads a payload: earlier speech in the order of the packet, followed by the packet's own. Never
/// panics on any input; there is at most one block per four bytes.
///
/// # Errors
///
/// Returns [`RedError::TooShort`].
pub fn parse(payload: &[u8]) -> Result<Blocks<'_>, RedError> {
    let have = payload.len();
    let (mut headers, mut speech) = (0, 0);
    while let Some(first) = payload.get(headers) {
        if first & 0x80 == 0 {
            let (head, data) = payload.split_at(headers + PRIMARY_HEADER);
            let need = head.len() + speech;
            let short = RedError::TooShort { need, have };
            return if data.len() < speech { Err(short) } else { Ok(Blocks { head, data }) };
        }
        let Some(header) = payload[headers..].first_chunk() else {
            headers += BLOCK_HEADER;
            break;
        };
        speech += length(header);
        headers += BLOCK_HEADER;
    }
    Err(RedError::TooShort { need: headers + PRIMARY_HEADER + speech, have })
}

/// Length of earlier speech according to its header, in bytes.
fn length(header: &[u8; BLOCK_HEADER]) -> usize {
    u32::from_be_bytes(*header) as usize & MAX_BLOCK
}

/// Iterator over the blocks of a payload.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    /// Headers of the remaining blocks.
    head: &'a [u8],
    /// At least as many bytes as the headers announce.
    data: &'a [u8],
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        let payload_type = self.head.first()? & 0x7f;
        let Some((header, rest)) = self.head.split_first_chunk::<BLOCK_HEADER>() else {
            self.head = &[];
            return Some(Block { payload_type, offset: 0, data: self.data });
        };
        let (data, behind) = self.data.split_at_checked(length(header))?;
        (self.head, self.data) = (rest, behind);
        let offset = (u32::from_be_bytes(*header) >> 10) as u16 & MAX_OFFSET;
        Some(Block { payload_type, offset, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The figure of section 3, by hand: type 5 is 160 ticks old and 3 bytes long.
    #[test]
    fn headers_are_those_of_the_specification() {
        let before = Block { payload_type: 5, offset: 160, data: &[1, 2, 3] };
        let own = Block { payload_type: 0, offset: 0, data: &[4] };
        let mut out = [0xee; 10];
        assert_eq!(emit(&[before], &own, &mut out), Ok(9));
        assert_eq!(out, [0x85, 0x02, 0x80, 0x03, 0x00, 1, 2, 3, 4, 0xee]);
        assert_eq!(parse(&out[..9]).unwrap().collect::<Vec<_>>(), [before, own]);
        assert_eq!(emit(&[], &own, &mut out), Ok(2));
    }

    #[test]
    fn what_ends_early_is_refused() {
        let whole = [0x85, 0x02, 0x80, 0x03, 0x00, 1, 2, 3];
        assert!(parse(&whole).is_ok());
        for (len, need) in [(0, 1), (1, 5), (3, 5), (4, 8), (5, 8), (7, 8)] {
            let short = RedError::TooShort { need, have: len };
            assert_eq!(parse(&whole[..len]).unwrap_err(), short, "{len}");
        }
    }

    #[test]
    fn what_no_header_can_say_is_not_written() {
        let own = Block { payload_type: 0, offset: 0, data: &[1] };
        let fine = Block { offset: 160, ..own };
        let mut out = [0; 2_000];
        for (earlier, own) in [
            (Block { offset: 0, ..fine }, own),
            (Block { offset: MAX_OFFSET + 1, ..fine }, own),
            (Block { payload_type: 128, ..fine }, own),
            (Block { data: &[0; MAX_BLOCK + 1], ..fine }, own),
            (fine, Block { offset: 1, ..own }),
            (fine, Block { payload_type: 200, ..own }),
        ] {
            assert!(matches!(emit(&[earlier], &own, &mut out), Err(RedError::Block { .. })));
        }
        let small = RedError::NoRoom { need: 7, have: 6 };
        assert_eq!(emit(&[fine], &own, &mut out[..6]), Err(small));
    }

    fn any_block() -> impl Strategy<Value = (u8, u16, Vec<u8>)> {
        (0u8..128, 1..=MAX_OFFSET, proptest::collection::vec(any::<u8>(), 0..50))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            earlier in proptest::collection::vec(any_block(), 0..8),
            own in any_block(),
        ) {
            let block = |(payload_type, offset, data)| Block { payload_type, offset, data };
            let earlier = earlier.iter().map(|(kind, offset, data)| block((*kind, *offset, &data[..])));
            let earlier: Vec<Block<'_>> = earlier.collect();
            let own = Block { payload_type: own.0, offset: 0, data: &own.2 };
            let mut out = [0; 1_000];
            let len = emit(&earlier, &own, &mut out).unwrap();
            let mut all = earlier;
            all.push(own);
            prop_assert_eq!(parse(&out[..len]).unwrap().collect::<Vec<_>>(), all);
        }

        /// Arbitrary bytes give an error, or blocks that add up to the whole payload.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(blocks) = parse(&bytes) {
                let all: Vec<_> = blocks.collect();
                let speech: usize = all.iter().map(|b| b.data.len()).sum();
                let headers = BLOCK_HEADER * (all.len() - 1) + PRIMARY_HEADER;
                prop_assert_eq!(headers + speech, bytes.len());
            }
        }
    }
}
