//! Packing codes of two to five bits into bytes.

/// The order in which a byte holds the codes of G.726. The two look alike in session descriptions,
/// and each decoded as the other is noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Packing {
    /// Least significant bit first: the `G726-16` … `G726-40` of RFC 3551, section 4.5.4.
    #[default]
    Rtp,
    /// Most significant bit first, as in ITU-T I.366.2, Annex E: the `AAL2-G726-16` …
    /// `AAL2-G726-40` of RFC 3551, section 4.5.4.
    Aal2,
}

impl Packing {
    /// Appends codes of `bits` bits each to `out`. If the last byte isn't filled, its
    /// remaining bits are zero.
    pub(super) fn pack(self, bits: u32, codes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
        let (mut held, mut n) = (0u32, 0);
        for code in codes {
            match self {
                Packing::Rtp => held |= u32::from(code) << n,
                Packing::Aal2 => held = held << bits | u32::from(code),
            }
            n += bits;
            if n >= 8 {
                n -= 8;
                match self {
                    Packing::Rtp => {
                        out.push(held as u8);
                        held >>= 8;
                    }
                    Packing::Aal2 => out.push((held >> n) as u8),
                }
            }
        }
        if n > 0 {
            out.push(match self {
                Packing::Rtp => held as u8,
                Packing::Aal2 => (held << (8 - n)) as u8,
            });
        }
    }

    /// Unpacks the whole codes of `bits` bits in `bytes`; remaining bits are ignored.
    pub(super) fn unpack(self, bits: u32, bytes: &[u8]) -> impl Iterator<Item = u8> {
        let (mut bytes, mut held, mut n) = (bytes.iter(), 0u32, 0);
        core::iter::from_fn(move || {
            if n < bits {
                let byte = u32::from(*bytes.next()?);
                match self {
                    Packing::Rtp => held |= byte << n,
                    Packing::Aal2 => held = held << 8 | byte,
                }
                n += 8;
            }
            n -= bits;
            let code = match self {
                Packing::Rtp => {
                    let code = held;
                    held >>= bits;
                    code
                }
                Packing::Aal2 => held >> n,
            };
            Some(code as u8 & ((1 << bits) - 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Worked out by hand: the first code is in the low bits of the first byte, or in its high
    /// ones.
    #[test]
    fn codes_lie_where_rfc_3551_has_them() {
        for (bits, codes, rtp, aal2) in [
            (4, &[1, 2, 3, 4][..], &[0x21, 0x43][..], &[0x12, 0x34][..]),
            (
                3,
                &[1, 2, 3, 4, 5, 6, 7, 0],
                &[0b1101_0001, 0b0101_1000, 0b0001_1111],
                &[0b0010_1001, 0b1100_1011, 0b1011_1000],
            ),
            (2, &[1, 2, 3, 0], &[0b0011_1001], &[0b0110_1100]),
            (
                5,
                &[1, 2, 3, 4, 5, 6, 7, 8],
                &[0b0100_0001, 0b0000_1100, 0b0101_0010, 0b1100_1100, 0b0100_0001],
                &[0b0000_1000, 0b1000_0110, 0b0100_0010, 0b1001_1000, 0b1110_1000],
            ),
        ] {
            for (packing, want) in [(Packing::Rtp, rtp), (Packing::Aal2, aal2)] {
                let mut bytes = Vec::new();
                packing.pack(bits, codes.iter().copied(), &mut bytes);
                assert_eq!(bytes, want, "{packing:?} {bits}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            bits in 2u32..=5,
            aal2: bool,
            codes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let packing = if aal2 { Packing::Aal2 } else { Packing::Rtp };
            let codes: Vec<u8> = codes.into_iter().map(|c| c & ((1 << bits) - 1)).collect();
            let mut bytes = Vec::new();
            packing.pack(bits, codes.iter().copied(), &mut bytes);
            prop_assert_eq!(bytes.len(), (codes.len() * bits as usize).div_ceil(8));
            let back: Vec<u8> = packing.unpack(bits, &bytes).collect();
            prop_assert_eq!(back.len(), bytes.len() * 8 / bits as usize);
            prop_assert_eq!(&back[..codes.len()], &codes[..]);
            prop_assert!(back[codes.len()..].iter().all(|&c| c == 0));
        }

        #[test]
        fn bytes_of_whole_groups_are_packed_again_as_they_were(
            bits in 2u32..=5,
            aal2: bool,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let packing = if aal2 { Packing::Aal2 } else { Packing::Rtp };
            bytes.truncate(bytes.len() / bits as usize * bits as usize);
            let mut again = Vec::new();
            packing.pack(bits, packing.unpack(bits, &bytes), &mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
