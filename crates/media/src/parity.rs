//! Parity of RTP packets (RFC 8627, FlexFEC): a packet that is the exclusive or of others of its
//! stream, so that a lost one can be recovered from the rest. It is the payload of a separate
//! stream with its own sequence numbers, whose RTP header names the protected stream's SSRC as its
//! only contributing source (CSRC, 4 bytes). [`rtp`](crate::rtp) does not write such a header; the
//! caller has to.
//!
//! Of the RFC's forms, this is the one with a fixed block (F = 1, R = 0): adjacent packets, called
//! a row, or packets at equal distances, called a column. One stream is protected.
//!
//! ```
//! use trunkline_media::parity::{self, Group};
//! use trunkline_media::rtp::{self, RtpView};
//!
//! let speech = |sequence, payload| RtpView {
//!     payload_type: 0, marker: false, sequence, timestamp: 0, ssrc: 7, payload,
//! };
//! let (mut a, mut b, mut repair, mut lost) = ([0; 16], [0; 14], [0; 100], [0; 100]);
//! speech(1, &[1, 2, 3, 4]).emit(&mut a)?;
//! speech(2, &[5, 6]).emit(&mut b)?;
//! let len = parity::emit(&Group::new(1, 2, 1)?, &[&a, &b], &mut repair)?;
//! assert_eq!(len, parity::HEADER + 4);
//!
//! let len = parity::parse(&repair[..len])?.recover(7, &[&a], &mut lost)?;
//! assert_eq!(rtp::parse(&lost[..len])?.payload, [5, 6]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::rtp::HEADER_LEN;

/// Bytes before the repair payload (section 4.2.2.2): the recovery fields, the first sequence
/// number, L and D.
pub const HEADER: usize = FIELDS + 4;
/// Maximum product of a group's size and its distance: 0.64 s for packets of 20 ms, since speech
/// that arrives later is useless to a call. The RFC has no such bound.
pub const MAX_SPAN: u8 = 32;
/// Longest packet, in bytes, whose length fits into 16 bits.
const MAX_PACKET: usize = HEADER_LEN + u16::MAX as usize;
/// Bytes of the recovery fields: the first two of a packet, its length, its timestamp.
const FIELDS: usize = 8;
/// The two bits at the position of an RTP packet's version: R, which is 0, and F, which is 1.
const FIXED: u8 = 0b01;

/// The packets of a stream that a parity packet protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    first: u16,
    count: u8,
    step: u8,
}

impl Group {
    /// Creates a group of `count` packets, from sequence number `first` in steps of `step`.
    ///
    /// # Errors
    ///
    /// Returns [`ParityError::Group`] without packets or without a step, and if `count` · `step` is
    /// above [`MAX_SPAN`].
    pub fn new(first: u16, count: u8, step: u8) -> Result<Group, ParityError> {
        let span = u16::from(count) * u16::from(step);
        if span == 0 || span > u16::from(MAX_SPAN) {
            return Err(ParityError::Group { count, step });
        }
        // The distance of a single packet is meaningless.
        let step = if count == 1 { 1 } else { step };
        Ok(Group { first, count, step })
    }

    /// The sequence numbers of the group's packets, in order.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = u16> {
        let Group { first, count, step } = *self;
        (0..count).map(move |n| first.wrapping_add(u16::from(n) * u16::from(step)))
    }

    /// The sequence number of the group that is missing in `packets`.
    ///
    /// # Errors
    ///
    /// Returns [`ParityError::Source`] for a packet that is not of the group, or a duplicate;
    /// [`ParityError::Missing`] unless exactly one is missing.
    fn missing(&self, ssrc: u32, packets: &[&[u8]]) -> Result<u16, ParityError> {
        let seen = self.seen(ssrc, packets)?;
        let mut missing = self.sequences().enumerate().filter(|(n, _)| seen & (1 << n) == 0);
        match (missing.next(), missing.count()) {
            (Some((_, sequence)), 0) => Ok(sequence),
            _ => Err(ParityError::Missing { have: packets.len(), of: self.count }),
        }
    }

    /// A bit mask of the group's packets that are present.
    fn seen(&self, ssrc: u32, packets: &[&[u8]]) -> Result<u32, ParityError> {
        let mut seen = 0u32;
        for (index, packet) in packets.iter().enumerate() {
            let place = self.place(ssrc, packet).filter(|place| seen & (1 << place) == 0);
            seen |= 1 << place.ok_or(ParityError::Source { index })?;
        }
        Ok(seen)
    }

    /// Position of the packet in the group; `None` if it is not of the group.
    fn place(&self, ssrc: u32, packet: &[u8]) -> Option<u32> {
        let header = packet.first_chunk::<HEADER_LEN>()?;
        let fits = header[0] >> 6 == 2 && header[8..] == ssrc.to_be_bytes();
        let sequence = u16::from_be_bytes([header[2], header[3]]);
        let behind = sequence.wrapping_sub(self.first);
        let (place, rest) = (behind / u16::from(self.step), behind % u16::from(self.step));
        let is = fits && rest == 0 && place < self.count.into() && packet.len() <= MAX_PACKET;
        is.then_some(place.into())
    }
}

/// Errors in reading, writing or using a parity packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParityError {
    /// The payload ends within its header.
    #[error("not a parity packet: it has {have} bytes, but its header alone needs {HEADER}")]
    TooShort {
        /// Size of the payload, in bytes.
        have: usize,
    },
    /// The first two bits announce a bit mask or a retransmitted packet.
    #[error("unsupported form of parity: R is {}, F is {}", .0 >> 1, .0 & 1)]
    Form(u8),
    /// The group is empty, or its packets are too far apart.
    #[error(
        "{count} packets at distance {step} can't be protected: count times distance must be 1 to {MAX_SPAN}"
    )]
    Group {
        /// Number of packets in the group.
        count: u8,
        /// Distance between the sequence numbers of successive packets.
        step: u8,
    },
    /// A packet isn't of the group: it is not RTP, of another stream, has another sequence number,
    /// is too long, or is a duplicate.
    #[error("packet {index} of those given is not of the group, or a duplicate")]
    Source {
        /// Index of the packet among those given, from 0.
        index: usize,
    },
    /// Writing parity needs all packets, and recovery needs all but one.
    #[error("{have} of {of} packets: writing parity needs all, recovery all but one")]
    Missing {
        /// Number of packets given.
        have: usize,
        /// Number of packets in the group.
        of: u8,
    },
    /// The repair payload is too short for these packets.
    #[error("a packet has {need} bytes after its header, but the repair payload only {have}")]
    Length {
        /// Bytes of the longest packet, given or lost, after its header of 12.
        need: usize,
        /// Length of the repair payload, in bytes.
        have: usize,
    },
    /// The caller's buffer is too small.
    #[error("cannot write {need} bytes into a buffer of {have}: give a larger one")]
    NoRoom {
        /// Number of bytes to be written.
        need: usize,
        /// Size of the caller's buffer, in bytes.
        have: usize,
    },
}

/// Writes the parity of a group's packets, in any order, to the front of `out` and returns its
/// length: [`HEADER`] plus the longest packet's bytes after the first [`HEADER_LEN`]. It is the
/// payload of a packet of the repair stream. Does not allocate.
///
/// # Errors
///
/// Returns [`ParityError::Source`] for a packet that is not RTP, not of the group, of another
/// stream than the first, or a duplicate; [`ParityError::Missing`]; or [`ParityError::NoRoom`].
/// Nothing is written then.
pub fn emit(group: &Group, packets: &[&[u8]], out: &mut [u8]) -> Result<usize, ParityError> {
    let ssrc = packets.first().and_then(|p| p[..].get(8..)?.first_chunk());
    group.seen(ssrc.map_or(0, |b| u32::from_be_bytes(*b)), packets)?;
    if packets.len() != usize::from(group.count) {
        return Err(ParityError::Missing { have: packets.len(), of: group.count });
    }
    let longest = packets.iter().map(|p| p.len() - HEADER_LEN).max().unwrap_or(0);
    let (need, have) = (HEADER + longest, out.len());
    let out = out.get_mut(..need).ok_or(ParityError::NoRoom { need, have })?;
    out.fill(0);
    let (header, body) = out.split_at_mut(HEADER);
    let (fields, block) = header.split_at_mut(FIELDS);
    packets.iter().for_each(|packet| add(packet, fields, body));
    fields[0] = FIXED << 6 | fields[0] & 0x3f;
    block[..2].copy_from_slice(&group.first.to_be_bytes());
    let row = group.step == 1;
    block[2..].copy_from_slice(&if row { [group.count, 0] } else { [group.step, group.count] });
    Ok(need)
}

/// Adds a packet to the recovery fields, and its bytes to the payload as far as they fit.
fn add(packet: &[u8], fields: &mut [u8], body: &mut [u8]) {
    let (header, rest) = packet.split_at(HEADER_LEN);
    let length = (rest.len() as u16).to_be_bytes();
    let own = header[..2].iter().chain(&length).chain(&header[4..8]).chain(rest);
    fields.iter_mut().chain(body).zip(own).for_each(|(sum, byte)| *sum ^= byte);
}

/// The payload of a packet of the repair stream, as read by [`parse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parity<'a> {
    /// The packets that it protects.
    pub group: Group,
    fields: &'a [u8; FIELDS],
    body: &'a [u8],
}

/// Reads the payload of a packet of the repair stream. Never panics on any input.
///
/// # Errors
///
/// Returns [`ParityError::TooShort`], [`ParityError::Form`] or [`ParityError::Group`].
pub fn parse(payload: &[u8]) -> Result<Parity<'_>, ParityError> {
    let short = ParityError::TooShort { have: payload.len() };
    let (fields, rest) = payload.split_first_chunk::<FIELDS>().ok_or(short)?;
    let (block, body) = rest.split_first_chunk::<4>().ok_or(short)?;
    if fields[0] >> 6 != FIXED {
        return Err(ParityError::Form(fields[0] >> 6));
    }
    let [a, b, columns, rows] = *block;
    // D = 1 is a row, too: one of a block whose columns have parity as well.
    let (count, step) = if rows > 1 { (rows, columns) } else { (columns, 1) };
    let group = Group::new(u16::from_be_bytes([a, b]), count, step)?;
    Ok(Parity { group, fields, body })
}

impl Parity<'_> {
    /// Writes the one packet of the group that isn't among `packets`, which may be in any order, to
    /// the front of `out` and returns its length. `ssrc` is the stream's, which the parity packet's
    /// header names as its CSRC. The contents are only as trustworthy as the parity packet: parse
    /// them like a packet from the network ([`rtp::parse`](crate::rtp::parse)). Does not allocate.
    ///
    /// # Errors
    ///
    /// Returns [`ParityError::Source`]; [`ParityError::Missing`] unless exactly one is missing;
    /// [`ParityError::Length`] if a packet is longer than the parity; or [`ParityError::NoRoom`].
    /// Nothing is written then.
    pub fn recover(
        &self,
        ssrc: u32,
        packets: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize, ParityError> {
        let sequence = self.group.missing(ssrc, packets)?;
        let mut fields = *self.fields;
        packets.iter().for_each(|packet| add(packet, &mut fields, &mut []));
        let [first, second, a, b, timestamp @ ..] = fields;
        let length = usize::from(u16::from_be_bytes([a, b]));
        let given = packets.iter().map(|p| p.len() - HEADER_LEN).max().unwrap_or(0);
        let (need, have) = (length.max(given), self.body.len());
        let body = self.body.get(..need).ok_or(ParityError::Length { need, have })?;
        let (need, have) = (HEADER_LEN + length, out.len());
        let out = out.get_mut(..need).ok_or(ParityError::NoRoom { need, have })?;
        let (header, rest) = out.split_at_mut(HEADER_LEN);
        rest.copy_from_slice(&body[..length]);
        packets.iter().for_each(|packet| add(packet, &mut [0; FIELDS], rest));
        header[..2].copy_from_slice(&[2 << 6 | first & 0x3f, second]);
        header[2..4].copy_from_slice(&sequence.to_be_bytes());
        header[4..8].copy_from_slice(&timestamp);
        header[8..].copy_from_slice(&ssrc.to_be_bytes());
        Ok(need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtp::{self, RtpView};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SSRC: u32 = 0x0102_0304;

    fn packet(sequence: u16, timestamp: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN + payload.len()];
        let (payload_type, marker, ssrc) = (96, false, SSRC);
        let view = RtpView { payload_type, marker, sequence, timestamp, ssrc, payload };
        view.emit(&mut out).unwrap();
        out
    }

    fn written(group: &Group, packets: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0xee; 2_000];
        let len = emit(group, packets, &mut out).unwrap();
        out.truncate(len);
        out
    }

    /// 0xe0 is the marker and type 96, which only one of the three has, while the others have 0 and
    /// 8; lengths are 3, 1 and 2, and their exclusive or is 0; timestamps are 160, 320 and 480.
    #[test]
    fn a_column_by_hand() {
        let header = |second: u8, sequence: [u8; 2], ticks: u16| {
            let [t, u] = ticks.to_be_bytes();
            [0x80, second, sequence[0], sequence[1], 0, 0, t, u, 1, 2, 3, 4]
        };
        let a = [&header(0xe0, [0xff, 0xfe], 160)[..], &[0x11, 0x22, 0x33]].concat();
        let b = [&header(0x00, [0x00, 0x02], 320)[..], &[0x44]].concat();
        let c = [&header(0x08, [0x00, 0x06], 480)[..], &[0x01, 0x02]].concat();
        let group = Group::new(0xfffe, 3, 4).unwrap();
        assert_eq!(group.sequences().collect::<Vec<_>>(), [0xfffe, 2, 6]);
        let bytes = written(&group, &[&c, &a, &b]);
        let fields = [0x40, 0xe8, 0, 0, 0, 0, 0x00, 0xa0 ^ 0x40 ^ 0xe0];
        assert_eq!(bytes[..8], fields, "160 ^ 320 ^ 480 has a high byte of 1 ^ 1");
        assert_eq!(bytes[8..12], [0xff, 0xfe, 4, 3], "its first number, L = 4, D = 3");
        assert_eq!(bytes[12..], [0x11 ^ 0x44 ^ 0x01, 0x22 ^ 0x02, 0x33]);

        let parity = parse(&bytes).unwrap();
        assert_eq!(parity.group, group);
        let mut out = [0xee; 20];
        assert_eq!(parity.recover(SSRC, &[&a, &c], &mut out), Ok(13));
        assert_eq!(out[..13], b);
    }

    #[test]
    fn rows_have_no_depth_and_one_packet_is_a_row() {
        let [a, b] = [7, 8].map(|n| packet(n, 0, &[n as u8]));
        let row = written(&Group::new(7, 2, 1).unwrap(), &[&a, &b]);
        assert_eq!(row[8..], [0, 7, 2, 0, 7 ^ 8]);
        // L = 1, D = 1 would be a row as well, but one whose columns have parity.
        let one = written(&Group::new(7, 1, 6).unwrap(), &[&a]);
        assert_eq!(one[8..], [0, 7, 1, 0, 7]);
        let mut out = [0; 13];
        assert_eq!(parse(&one).unwrap().recover(SSRC, &[], &mut out), Ok(13));
        assert_eq!(out[..], a);
        // D = 1 is the same row.
        let with_columns = [&row[..11], &[1], &row[12..]].concat();
        assert_eq!(parse(&with_columns).unwrap().group, parse(&row).unwrap().group);
    }

    /// Padding, an extension and contributing sources are recovered unchanged.
    #[test]
    fn what_a_header_announces_comes_back() {
        let plain = packet(1, 3, &[1; 9]);
        let mut full = [packet(2, 4, &[]), vec![0xee; 40]].concat();
        full[..2].copy_from_slice(&[0x80 | 0x20 | 0x10 | 3, 0x80]);
        let bytes = written(&Group::new(1, 2, 1).unwrap(), &[&plain, &full]);
        let mut out = [0; 60];
        let len = parse(&bytes).unwrap().recover(SSRC, &[&plain], &mut out).unwrap();
        assert_eq!(out[..len], full);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (count, step) in [(0, 1), (1, 0), (33, 1), (2, 17), (255, 255), (1, 33)] {
            assert_eq!(Group::new(0, count, step), Err(ParityError::Group { count, step }));
        }
        let group = Group::new(7, 2, 1).unwrap();
        let [a, b, c] = [(7, 5), (8, 2), (9, 1)].map(|(n, len)| packet(n, 0, &vec![1; len]));
        let mut out = [0xee; 40];
        let mut other = b.clone();
        other[11] += 1;
        for odd in [&c[..], &a, &other, &b[..11], &[0x40; 14]] {
            let refused = emit(&group, &[&a, odd], &mut out);
            assert_eq!(refused, Err(ParityError::Source { index: 1 }));
        }
        let short = Err(ParityError::Missing { have: 1, of: 2 });
        assert_eq!(emit(&group, &[&b], &mut out), short);
        let small = Err(ParityError::NoRoom { need: 17, have: 16 });
        assert_eq!(emit(&group, &[&b, &a], &mut out[..16]), small);
        assert_eq!(out, [0xee; 40]);

        let bytes = written(&group, &[&a, &b]);
        assert_eq!(parse(&bytes[..11]), Err(ParityError::TooShort { have: 11 }));
        for (first, form) in [(0x00, 0b00), (0x80, 0b10), (0xc0, 0b11)] {
            let other = [&[first], &bytes[1..]].concat();
            assert_eq!(parse(&other), Err(ParityError::Form(form)));
        }
        let parity = parse(&bytes).unwrap();
        let whole = Err(ParityError::Missing { have: 2, of: 2 });
        assert_eq!(parity.recover(SSRC, &[&a, &b], &mut out), whole);
        let foreign = Err(ParityError::Source { index: 0 });
        assert_eq!(parity.recover(SSRC, &[&c], &mut out), foreign);
        assert_eq!(parity.recover(SSRC + 1, &[&a], &mut out), foreign);
        let small = Err(ParityError::NoRoom { need: 14, have: 13 });
        assert_eq!(parity.recover(SSRC, &[&a], &mut out[..13]), small);
        // The lost packet would be longer than its repair payload, or the other one is.
        let cut = parse(&bytes[..bytes.len() - 1]).unwrap();
        let length = Err(ParityError::Length { need: 5, have: 4 });
        assert_eq!(cut.recover(SSRC, &[&b], &mut out), length);
        assert_eq!(cut.recover(SSRC, &[&a], &mut out), length);
        assert_eq!(out, [0xee; 40]);
    }

    /// Valid groups, starting anywhere in the sequence number space.
    fn any_group() -> impl Strategy<Value = Group> {
        let step = (1..=MAX_SPAN).prop_flat_map(|count| (Just(count), 1..=MAX_SPAN / count));
        (any::<u16>(), step).prop_map(|(first, (count, step))| {
            Group::new(first, count, step).expect("count · step is in bounds")
        })
    }

    proptest! {
        #[test]
        fn one_of_a_group_comes_back(
            group in any_group(),
            payloads in vec((any::<u32>(), vec(any::<u8>(), 0..200)), usize::from(MAX_SPAN)),
            lost: proptest::sample::Index,
            turn: proptest::sample::Index,
        ) {
            let make = |(n, (ticks, payload)): (u16, &(u32, Vec<u8>))| packet(n, *ticks, payload);
            let all: Vec<Vec<u8>> = group.sequences().zip(&payloads).map(make).collect();
            let mut all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let turned = turn.index(all.len());
            all.rotate_left(turned);
            let bytes = written(&group, &all);
            let longest = all.iter().map(|p| p.len() - HEADER_LEN).max().unwrap();
            prop_assert_eq!(bytes.len(), HEADER + longest);
            let parity = parse(&bytes).unwrap();
            prop_assert_eq!(parity.group, group);
            let lost = all.remove(lost.index(all.len()));
            let mut out = [0xee; 300];
            let len = parity.recover(SSRC, &all, &mut out).unwrap();
            prop_assert_eq!(&out[..len], lost);
            prop_assert!(rtp::parse(&out[..len]).is_ok());
            if !all.is_empty() {
                let refused = Err(ParityError::Missing { have: all.len() - 1, of: group.count });
                prop_assert_eq!(parity.recover(SSRC, &all[1..], &mut out), refused);
            }
        }

        /// Arbitrary bytes, as parity and as packets: an error, or a packet with the announced
        /// length and the missing number.
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in vec(any::<u8>(), 0..80), group in any_group(), fitting: bool,
            odd in vec(any::<u8>(), 0..40), lengths in vec(0usize..60, usize::from(MAX_SPAN)),
        ) {
            let mut bytes = bytes;
            if let (true, Some(header)) = (fitting, bytes.first_chunk_mut::<HEADER>()) {
                // A length of at most 63 and a valid group, to get further.
                let Group { first, count, step } = group;
                header[0] = 0x40 | header[0] & 0x3f;
                (header[2], header[3]) = (0, header[3] & 0x3f);
                header[8..10].copy_from_slice(&first.to_be_bytes());
                header[10..].copy_from_slice(&if count > 1 { [step, count] } else { [1, 0] });
            }
            let Ok(parity) = parse(&bytes) else { return Ok(()) };
            let mut out = [0; 100];
            let _ = parity.recover(SSRC, &[&odd], &mut out);
            let others = parity.group.sequences().zip(&lengths).skip(1);
            let others: Vec<_> = others.map(|(n, len)| packet(n, 0, &vec![7; *len])).collect();
            let others: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
            if let Ok(len) = parity.recover(SSRC, &others, &mut out) {
                prop_assert!(len <= HEADER_LEN + bytes.len() - HEADER);
                prop_assert_eq!(&out[2..4], &parity.group.first.to_be_bytes());
            }
        }
    }
}
