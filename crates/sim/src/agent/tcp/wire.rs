//! The wire format of segments: the header of RFC 9293, section 3.1, and the options of RFC 7323
//! and RFC 2018.

/// Length of the header without options, in bytes.
pub const HEADER: usize = 20;
/// Maximum bytes of options: the data offset has four bits.
const MAX_OPTIONS: usize = 40;
/// Length of the timestamps option in every segment, in bytes, with padding.
pub const TIMESTAMPS: usize = 12;
/// Maximum number of SACK blocks, if there are no other options.
pub const MAX_SACK: usize = 4;

/// Control bits supported by this TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronizes sequence numbers at the start.
    pub const SYN: Flags = Flags(0x02);
    /// Resets the connection at once.
    pub const RST: Flags = Flags(0x04);
    /// The acknowledgment number is valid.
    pub const ACK: Flags = Flags(0x10);
    const KNOWN: u8 = 0x17;

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other` as well.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Blocks of a SACK option, each as (left edge, right edge).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); MAX_SACK],
    len: u8,
}

impl SackBlocks {
    /// Adds a block, unless there are four already.
    pub fn push(&mut self, block: (u32, u32)) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// The blocks in order of insertion.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// Options of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Largest segment that the sender accepts, in bytes (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// Number of bits that windows are shifted by (RFC 7323, section 2).
    pub window_scale: Option<u8>,
    /// Whether SACK may be used (RFC 2018, section 2).
    pub sack_permitted: bool,
    /// TSval and TSecr (RFC 7323, section 3).
    pub timestamps: Option<(u32, u32)>,
    /// Ranges received out of order (RFC 2018, section 3).
    pub sack: SackBlocks,
}

/// A TCP segment: header fields, options and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment<'a> {
    /// Port of the sender.
    pub from: u16,
    /// Port of the receiver.
    pub to: u16,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Next byte that the sender of the segment expects.
    pub ack: u32,
    /// Control bits of the segment.
    pub flags: Flags,
    /// Receive window of the sender, before scaling.
    pub window: u16,
    /// TCP options of the segment.
    pub options: Options,
    /// Data that the segment carries.
    pub data: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Appends the segment without its data to `out`: header and options, padded to a multiple of
    /// four bytes. SACK blocks that don't fit are left out. The checksum is 0, because wires lose
    /// packets but don't damage them.
    pub fn emit_header(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.from.to_be_bytes());
        out.extend_from_slice(&self.to.to_be_bytes());
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.ack.to_be_bytes());
        out.extend_from_slice(&[0, self.flags.0 & Flags::KNOWN]);
        out.extend_from_slice(&self.window.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        self.options.emit(out);
        let words = (out.len() - start) / 4;
        out[start + 12] = (words as u8) << 4;
    }

    /// Appends the segment with its data to `out`; see [`Segment::emit_header`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_header(out);
        out.extend_from_slice(self.data);
    }

    /// Parses a segment; `None` if the header is cut off or the options are malformed. Unknown
    /// options and control bits are ignored.
    pub fn parse(bytes: &'a [u8]) -> Option<Segment<'a>> {
        let header = bytes.first_chunk::<HEADER>()?;
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        let offset = usize::from(header[12] >> 4) * 4;
        let options = Options::parse(bytes.get(HEADER..offset)?)?;
        Some(Segment {
            from: short(0),
            to: short(2),
            seq: long(4),
            ack: long(8),
            flags: Flags(header[13] & Flags::KNOWN),
            window: short(14),
            options,
            data: &bytes[offset..],
        })
    }
}

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

impl Options {
    fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        if let Some(mss) = self.mss {
            out.extend_from_slice(&[MSS, 4]);
            out.extend_from_slice(&mss.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            out.extend_from_slice(&[NOP, WINDOW_SCALE, 3, scale]);
        }
        if self.sack_permitted {
            out.extend_from_slice(&[NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            out.extend_from_slice(&[NOP, NOP, TIMESTAMP, 10]);
            out.extend_from_slice(&value.to_be_bytes());
            out.extend_from_slice(&echo.to_be_bytes());
        }
        let room = (MAX_OPTIONS - (out.len() - start)).saturating_sub(4) / 8;
        let blocks = self.sack.as_slice();
        let blocks = &blocks[..blocks.len().min(room)];
        if !blocks.is_empty() {
            out.extend_from_slice(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                out.extend_from_slice(&left.to_be_bytes());
                out.extend_from_slice(&right.to_be_bytes());
            }
        }
    }

    fn parse(mut bytes: &[u8]) -> Option<Options> {
        let mut options = Options::default();
        loop {
            bytes = match bytes {
                [] | [END, ..] => return Some(options),
                [NOP, rest @ ..] => rest,
                [kind, len, ..] => {
                    let (option, rest) = bytes.split_at_checked(usize::from(*len))?;
                    options.note(*kind, option.get(2..)?);
                    rest
                }
                [_] => return None,
            };
        }
    }

    /// Stores an option, unless its length doesn't match its kind.
    fn note(&mut self, kind: u8, body: &[u8]) {
        let word = |b: &[u8; 4]| u32::from_be_bytes(*b);
        match (kind, body) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[scale]) => self.window_scale = Some(scale),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMP, body) if body.len() == 8 => {
                let (words, _) = body.as_chunks::<4>();
                self.timestamps = Some((word(&words[0]), word(&words[1])));
            }
            (SACK, body) => {
                let (words, _) = body.as_chunks::<4>();
                let (pairs, _) = words.as_chunks::<2>();
                self.sack = SackBlocks::default();
                for [left, right] in pairs {
                    self.sack.push((word(left), word(right)));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn options() -> impl Strategy<Value = Options> {
        let syn =
            (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<Option<(u32, u32)>>());
        let syn = syn.prop_map(|(mss, window_scale, sack_permitted, timestamps)| Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            ..Options::default()
        });
        let later = (any::<Option<(u32, u32)>>(), vec(any::<(u32, u32)>(), 0..=4));
        let later = later.prop_map(|(timestamps, blocks)| {
            let mut sack = SackBlocks::default();
            let most = if timestamps.is_some() { 3 } else { 4 };
            blocks.into_iter().take(most).for_each(|b| sack.push(b));
            Options { timestamps, sack, ..Options::default() }
        });
        prop_oneof![syn, later]
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            (from, to, seq, ack) in any::<(u16, u16, u32, u32)>(),
            (flags, window) in any::<(u8, u16)>(),
            options in options(),
            data in vec(any::<u8>(), 0..50),
        ) {
            let flags = Flags(flags & Flags::KNOWN);
            let segment = Segment { from, to, seq, ack, flags, window, options, data: &data };
            let mut bytes = Vec::new();
            segment.emit(&mut bytes);
            prop_assert_eq!(Segment::parse(&bytes), Some(segment));
            for cut in 0..bytes.len() - data.len() {
                prop_assert_eq!(Segment::parse(&bytes[..cut]), None);
            }
        }

        #[test]
        fn no_bytes_break_the_parser(mut bytes in vec(any::<u8>(), 0..100), offset in 5u8..16) {
            let _ = Segment::parse(&bytes);
            if let Some(byte) = bytes.get_mut(12) {
                *byte = offset << 4;
            }
            if let Some(segment) = Segment::parse(&bytes) {
                let mut again = Vec::new();
                segment.emit(&mut again);
                prop_assert!(again.len() <= HEADER + MAX_OPTIONS + segment.data.len());
            }
        }
    }

    #[test]
    fn a_full_segment_leaves_1428_bytes_of_data() {
        let options = Options { timestamps: Some((1, 2)), ..Options::default() };
        let mut bytes = Vec::new();
        Segment { options, ..Segment::default() }.emit(&mut bytes);
        assert_eq!(bytes.len(), HEADER + TIMESTAMPS);
        assert_eq!(1_500 - 40 - bytes.len(), 1_428);
    }
}
