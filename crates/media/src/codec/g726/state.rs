//! The state that encoder and decoder share: the predictor, the quantizer's scale, and the speed at
//! which that follows the signal. Names and fixed-point formats are those of G.726, section 4; all
//! arithmetic is on integers.

use super::quantizer::Quantizer;

/// The state of one direction of a call, with 14-bit samples in two's complement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// The fast scale (YU), a logarithm in 1/512.
    yu: i32,
    /// The slow scale (YL), a logarithm in 1/32,768.
    yl: i32,
    /// Short-term and long-term average of the codes' weights (DMS, DML).
    dms: i32,
    dml: i32,
    /// Weight of the fast scale over the slow one (AP).
    ap: i32,
    /// Whether the signal is narrow-band, such as a modem's tones (TD).
    td: bool,
    /// Coefficients of the predictor's two poles, in 1/16,384.
    a: [i16; 2],
    /// Coefficients of the predictor's six zeros, in 1/16,384.
    b: [i16; 6],
    /// The last two reconstructed samples, newest first.
    sr: [Float; 2],
    /// The last six quantized differences, newest first.
    dq: [Float; 6],
    /// Whether the last two sums of difference and zero predictor were negative.
    pk: [bool; 2],
}

/// The prediction of a sample before its code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    /// The predicted sample (SE).
    pub se: i32,
    /// The part of the prediction due to the zeros (SEZ).
    sez: i32,
    /// The scale (Y), a logarithm in 1/512.
    pub y: i32,
}

/// Sign, exponent and six bits of mantissa with the highest one set: the form in which samples are
/// multiplied by coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Float {
    negative: bool,
    exponent: u8,
    mantissa: u8,
}

impl Float {
    const ZERO: Float = Float { negative: false, exponent: 0, mantissa: 32 };

    /// Converts a magnitude of at most 15 bits (FLOATA).
    fn new(negative: bool, magnitude: u32) -> Float {
        let exponent = u32::BITS - magnitude.leading_zeros();
        let mantissa = if magnitude == 0 { 32 } else { magnitude << 6 >> exponent };
        Float { negative, exponent: exponent as u8, mantissa: mantissa as u8 }
    }

    /// Converts a sample in two's complement (FLOATB).
    fn of(sample: i16) -> Float {
        Float::new(sample < 0, u32::from(sample.unsigned_abs()) & 0x7fff)
    }

    /// Multiplies by a coefficient in 1/16,384 (FMULT); the result is twice the product.
    fn times(self, coefficient: i16) -> i32 {
        let quarter = i32::from(coefficient) >> 2;
        let other = Float::new(coefficient < 0, quarter.unsigned_abs() & 0x1fff);
        let mantissa = (u32::from(self.mantissa) * u32::from(other.mantissa) + 48) >> 4 << 7;
        let exponent = u32::from(self.exponent) + u32::from(other.exponent);
        let magnitude = match exponent {
            0..=26 => mantissa >> (26 - exponent),
            _ => mantissa << (exponent - 26) & 0x7fff,
        };
        let magnitude = magnitude as i32;
        if self.negative == other.negative { magnitude } else { -magnitude }
    }
}

/// Minimum and maximum of the scale, in 1/512 (LIMB): 1.06 and 10.
const SCALE: (i32, i32) = (544, 5_120);

impl State {
    /// The state after a reset (the values in brackets in G.726, section 4).
    pub const RESET: State = State {
        yu: SCALE.0,
        yl: SCALE.0 << 6,
        dms: 0,
        dml: 0,
        ap: 0,
        td: false,
        a: [0; 2],
        b: [0; 6],
        sr: [Float::ZERO; 2],
        dq: [Float::ZERO; 6],
        pk: [false; 2],
    };

    /// Predicts the next sample and its scale (FMULT, ACCUM, LIMA and MIX).
    pub fn estimate(&self) -> Estimate {
        let zeros: i32 = self.dq.iter().zip(self.b).map(|(dq, b)| dq.times(b)).sum();
        let poles: i32 = self.sr.iter().zip(self.a).map(|(sr, a)| sr.times(a)).sum();
        // Sums wrap at 16 bits, in the encoder and in the decoder alike.
        let halved = |sum: i32| i32::from(sum as i16 >> 1);

        let slow = self.yl >> 6;
        let al = (self.ap >> 2).min(64);
        let apart = self.yu - slow;
        let y = slow + ((apart.abs() * al) >> 6) * apart.signum();
        Estimate { se: halved(zeros + poles), sez: halved(zeros), y }
    }

    /// Updates the state with the code sent for the sample, and returns the sample as decoded (SR),
    /// 16 bits on a 14-bit scale.
    pub fn update(&mut self, quantizer: &Quantizer, estimate: Estimate, code: u8) -> i16 {
        let magnitude = quantizer.reconstruct(code, estimate.y);
        let negative = quantizer.is_negative(code);
        let dq = if negative { -magnitude } else { magnitude };
        let transition = self.is_transition(magnitude);

        self.follow_scale(quantizer.multiplier(code), estimate.y);
        self.average(quantizer.weight(code));
        let p = (estimate.sez + dq) as i16;
        if transition {
            (self.a, self.b, self.td) = ([0; 2], [0; 6], false);
        } else {
            self.follow_zeros(negative, magnitude, quantizer.leak);
            self.follow_poles(p);
            self.td = self.a[1] < -11_776; // −0.71875
        }
        self.follow_speed(estimate.y, transition);

        let sr = (estimate.se + dq) as i16;
        self.sr = [Float::of(sr), self.sr[0]];
        self.dq.copy_within(..5, 1);
        self.dq[0] = Float::new(negative, magnitude as u32);
        self.pk = [p < 0, self.pk[0]];
        sr
    }

    /// Whether a narrow-band signal gave way to another (TRANS): the difference is more than 3/4 of
    /// the magnitude that the slow scale represents.
    fn is_transition(&self, magnitude: i32) -> bool {
        let (whole, fraction) = (self.yl >> 15, self.yl >> 10 & 31);
        let threshold = if whole > 9 { 31 << 10 } else { (32 + fraction) << whole };
        self.td && magnitude > (threshold + (threshold >> 1)) >> 1
    }

    /// Updates both scales (FILTD, LIMB and FILTE).
    fn follow_scale(&mut self, multiplier: i32, y: i32) {
        self.yu = (y + (((multiplier << 5) - y) >> 5)).clamp(SCALE.0, SCALE.1);
        self.yl += self.yu + (-self.yl >> 6);
    }

    /// Updates both averages of weights (FILTA and FILTB).
    fn average(&mut self, weight: i32) {
        self.dms += ((weight << 9) - self.dms) >> 5;
        self.dml += ((weight << 11) - self.dml) >> 7;
    }

    /// Updates the balance of the scales: the fast one for speech, the slow one for modems (SUBTC,
    /// FILTC and TRIGA).
    fn follow_speed(&mut self, y: i32, transition: bool) {
        let apart = ((self.dms << 2) - self.dml).abs();
        let steady = y >= 1_536 && apart < self.dml >> 3 && !self.td;
        let target = if steady { 0 } else { 1 << 9 };
        self.ap = if transition { 256 } else { self.ap + ((target - self.ap) >> 4) };
    }

    /// Adapts the zeros to the correlation of the difference with those before it (XOR and UPB).
    fn follow_zeros(&mut self, negative: bool, magnitude: i32, leak: u32) {
        for (b, dq) in self.b.iter_mut().zip(&self.dq) {
            let step = match magnitude {
                0 => 0,
                _ if negative == dq.negative => 128,
                _ => -128,
            };
            *b = b.wrapping_add(step).wrapping_sub(*b >> leak);
        }
    }

    /// Adapts the poles, and keeps them where the predictor is stable (UPA1, UPA2, LIMC and LIMD).
    fn follow_poles(&mut self, p: i16) {
        let (a1, a2) = (i32::from(self.a[0]), i32::from(self.a[1]));
        let sign = |same: bool| if same { 1 } else { -1 };
        let (same1, same2) = (sign((p < 0) == self.pk[0]), sign((p < 0) == self.pk[1]));
        let (mut step1, mut step2) = (0, 0);
        if p != 0 {
            step1 = 192 * same1;
            step2 = (16_384 * same2 - same1 * (a1.clamp(-8_191, 8_191) << 2)) >> 7;
        }
        let a2 = (a2 + step2 - (a2 >> 7)).clamp(-12_288, 12_288);
        let most = 15_360 - a2;
        let a1 = (a1 + step1 - (a1 >> 8)).clamp(-most, most);
        self.a = [a1 as i16, a2 as i16];
    }
}
