//! The differences between the four rates: the number of bits per code, the values of its
//! magnitudes, and their effect on the scale.

use super::Rate;

/// The tables of one rate. Tables by magnitude are indexed by |I|, the code without its sign.
#[derive(Debug)]
pub(super) struct Quantizer {
    /// Number of bits per code, sign and magnitude.
    pub bits: u32,
    /// Boundaries between magnitudes: the logarithm of the difference minus the scale, in 1/128
    /// (Tables 7 to 10 of G.726).
    decisions: &'static [i32],
    /// Decoded value of each magnitude, in the same units.
    levels: &'static [i32],
    /// W(I), the value towards which this magnitude moves the scale, in 1/16.
    multipliers: &'static [i32],
    /// F(I), the weight of this magnitude in the two averages that distinguish a steady signal from
    /// a varying one.
    weights: &'static [i32],
    /// Number of bits by which the zero predictor's coefficients are shifted to leak.
    pub leak: u32,
}

/// A level below everything that can be quantized: it decodes to a difference of zero.
const NOTHING: i32 = -2048;

const BITS_5: Quantizer = Quantizer {
    bits: 5,
    decisions: &[-122, -16, 68, 139, 198, 250, 298, 339, 378, 413, 445, 475, 502, 528, 553],
    levels: &[NOTHING, -66, 28, 104, 169, 224, 274, 318, 358, 395, 429, 459, 488, 514, 539, 566],
    multipliers: &[14, 14, 24, 39, 40, 41, 58, 100, 141, 179, 219, 280, 358, 440, 529, 696],
    weights: &[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 6],
    leak: 9,
};

const BITS_4: Quantizer = Quantizer {
    bits: 4,
    decisions: &[-124, 80, 178, 246, 300, 349, 400],
    levels: &[NOTHING, 4, 135, 213, 273, 323, 373, 425],
    multipliers: &[-12, 18, 41, 64, 112, 198, 355, 1122],
    weights: &[0, 0, 0, 1, 1, 1, 3, 7],
    leak: 8,
};

const BITS_3: Quantizer = Quantizer {
    bits: 3,
    decisions: &[8, 218, 331],
    levels: &[NOTHING, 135, 273, 373],
    multipliers: &[-4, 30, 137, 582],
    weights: &[0, 1, 2, 7],
    leak: 8,
};

/// Has no level for zero: none of the four codes can be spared for it.
const BITS_2: Quantizer = Quantizer {
    bits: 2,
    decisions: &[261],
    levels: &[116, 365],
    multipliers: &[-22, 439],
    weights: &[0, 7],
    leak: 8,
};

impl Quantizer {
    pub fn of(rate: Rate) -> &'static Quantizer {
        match rate {
            Rate::Kbps16 => &BITS_2,
            Rate::Kbps24 => &BITS_3,
            Rate::Kbps32 => &BITS_4,
            Rate::Kbps40 => &BITS_5,
        }
    }

    fn mask(&self) -> u8 {
        (1 << self.bits) - 1
    }

    /// Whether a code stands for a negative difference.
    pub fn is_negative(&self, code: u8) -> bool {
        code >> (self.bits - 1) & 1 == 1
    }

    fn magnitude(&self, code: u8) -> usize {
        let code = if self.is_negative(code) { !code } else { code };
        usize::from(code & (self.mask() >> 1))
    }

    /// Quantizes a difference at scale `y` (LOG, SUBTB and QUAN).
    pub fn quantize(&self, difference: i32, y: i32) -> u8 {
        let log = logarithm(difference.unsigned_abs()) - (y >> 2);
        let magnitude = self.decisions.iter().take_while(|&&d| log >= d).count() as u8;
        // All bits zero would be a positive zero, which is never sent: a line needs ones to keep
        // its clock. The 16 kbit/s codes have no zero.
        let nothing = magnitude == 0 && self.levels[0] == NOTHING;
        if difference < 0 || nothing { !magnitude & self.mask() } else { magnitude }
    }

    /// The magnitude of the difference that a code stands for, at scale `y` (RECONST, ADDA and
    /// ANTILOG): at most 32,640.
    pub fn reconstruct(&self, code: u8, y: i32) -> i32 {
        let log = self.levels[self.magnitude(code)] + (y >> 2);
        if log < 0 {
            return 0;
        }
        ((log & 127) + 128) << 7 >> (14 - (log >> 7))
    }

    /// The scale factor's multiplier W(I) of a code.
    pub fn multiplier(&self, code: u8) -> i32 {
        self.multipliers[self.magnitude(code)]
    }

    /// The weight F(I) of a code in the control of adaptation speed.
    pub fn weight(&self, code: u8) -> i32 {
        self.weights[self.magnitude(code)]
    }

    /// Rank of a code among all codes of its rate, from the most negative difference to the most
    /// positive.
    pub fn rank(&self, code: u8) -> u8 {
        code ^ (1 << (self.bits - 1))
    }
}

/// The logarithm to base 2 in 1/128, linear between powers of two (LOG).
fn logarithm(magnitude: u32) -> i32 {
    let exponent = magnitude.checked_ilog2().unwrap_or(0);
    let mantissa = (magnitude << 7 >> exponent) & 127;
    (exponent << 7 | mantissa) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code decodes to a difference that quantizes to the same code, at every scale fine enough
    /// to distinguish its neighbours.
    #[test]
    fn a_reconstructed_difference_is_its_own_code() {
        for rate in Rate::ALL {
            let quantizer = Quantizer::of(rate);
            for y in 2_560..=5_120 {
                for code in 0..1 << quantizer.bits {
                    let size = quantizer.reconstruct(code, y);
                    let difference = if quantizer.is_negative(code) { -size } else { size };
                    let again = quantizer.quantize(difference, y);
                    let sent = if code == 0 && rate != Rate::Kbps16 { !0 } else { code };
                    assert_eq!(again, sent & quantizer.mask(), "{rate:?} {y} {code}");
                }
            }
        }
    }

    #[test]
    fn only_16_kbit_s_sends_a_code_of_zeros() {
        for rate in Rate::ALL {
            let quantizer = Quantizer::of(rate);
            let zeros = (-33_000..33_000).filter(|&d| quantizer.quantize(d, 544) == 0).count();
            assert_eq!(zeros > 0, rate == Rate::Kbps16, "{rate:?}");
        }
    }

    #[test]
    fn ranks_rise_with_the_difference() {
        for rate in Rate::ALL {
            let quantizer = Quantizer::of(rate);
            let ranks: Vec<u8> =
                (-33_000..=33_000).map(|d| quantizer.rank(quantizer.quantize(d, 2_000))).collect();
            assert!(ranks.is_sorted(), "{rate:?}");
            let highest = quantizer.mask();
            assert_eq!((ranks[0], ranks[ranks.len() - 1]), (0, highest), "{rate:?}");
        }
    }
}
