//! Speech as a telephone sends it: through the send side of the modified IRS, ITU-T P.830 (02/96)
//! annex D, and at the level at which networks are tested.
//!
//! PESQ (P.862) was made for recordings with this filter: a handset's microphone hardly picks up
//! frequencies below 200 Hz and boosts those above 1 kHz.

use core::f64::consts::TAU;

use crate::audio::RATE;
use crate::level::{self, Levelled};

/// Target level of speech, in dB relative to overload: the middle one of the levels at which P.830
/// tests a codec.
pub const LEVEL: f64 = -26.0;

/// The response by frequency in Hz, in dB relative to that at 1 kHz: our measurement of the
/// Recommendation's filter for 16 kHz.
pub const RESPONSE: [(f64, f64); 25] = [
    (50.0, -45.60),
    (80.0, -34.84),
    (100.0, -28.07),
    (125.0, -21.00),
    (160.0, -13.53),
    (200.0, -9.57),
    (250.0, -6.60),
    (300.0, -4.81),
    (315.0, -4.59),
    (400.0, -3.31),
    (500.0, -2.58),
    (630.0, -2.19),
    (800.0, -1.20),
    (1_000.0, 0.0),
    (1_250.0, 1.40),
    (1_600.0, 3.20),
    (2_000.0, 3.60),
    (2_500.0, 5.00),
    (3_000.0, 5.70),
    (3_150.0, 5.80),
    (3_400.0, 4.27),
    (3_500.0, 3.40),
    (3_600.0, 2.62),
    (3_800.0, 1.32),
    (4_000.0, 0.20),
];

/// [`RESPONSE`] at `hz`, 50 Hz to 4 kHz: linear between its points in dB over the logarithm of the
/// frequency. Below 50 Hz it is −∞.
pub fn response(hz: f64) -> f64 {
    let Some(n) = RESPONSE.iter().rposition(|&(f, _)| f <= hz) else { return f64::NEG_INFINITY };
    let (low, from) = RESPONSE[n];
    let Some(&(high, to)) = RESPONSE.get(n + 1) else { return from };
    from + (to - from) * libm::log(hz / low) / libm::log(high / low)
}

/// Number of coefficients on either side of the middle one: 16 ms.
const HALF: usize = 127;
/// Number of steps of the sampled response from 0 Hz to half of [`RATE`].
const STEPS: usize = 1_000;

/// The modified IRS send filter at 8 kHz, with 0 dB at 1 kHz.
///
/// An FIR filter of 255 coefficients with linear phase: the inverse Fourier transform of
/// [`response`] in a Hann window. Its delay of 16 ms is removed, so the output is aligned with the
/// input.
#[derive(Debug, Clone)]
pub struct SendFilter {
    /// The middle coefficient, and those after it; those before are the same.
    half: [f64; HALF + 1],
}

impl Default for SendFilter {
    fn default() -> SendFilter {
        SendFilter::new()
    }
}

impl SendFilter {
    /// Designs the filter, which takes 128,000 cosines.
    pub fn new() -> SendFilter {
        let amplitude = |step: usize| {
            let hz = step as f64 * f64::from(RATE / 2) / STEPS as f64;
            // Half of the spectrum; its two ends have no counterpart in the other half.
            let twin = if step == 0 || step == STEPS { 1.0 } else { 2.0 };
            twin * libm::exp10(response(hz) / 20.0)
        };
        let amplitudes: [f64; STEPS + 1] = core::array::from_fn(amplitude);
        let period = 2 * STEPS;
        let cosines: Vec<f64> =
            (0..period).map(|k| libm::cos(TAU * k as f64 / period as f64)).collect();
        let coefficient = |n: usize| {
            let wave = |(step, a): (usize, &f64)| a * cosines[step * n % period];
            let sum: f64 = amplitudes.iter().enumerate().map(wave).sum();
            let hann = 0.5 + 0.5 * libm::cos(TAU / 2.0 * n as f64 / (HALF + 1) as f64);
            sum / period as f64 * hann
        };
        SendFilter { half: core::array::from_fn(coefficient) }
    }

    /// Filters `pcm` to as many samples, full scale ±1, with silence assumed before and after.
    pub fn apply(&self, pcm: &[i16]) -> Vec<f64> {
        let mut padded = vec![0.0; pcm.len() + 2 * HALF];
        for (to, &from) in padded[HALF..].iter_mut().zip(pcm) {
            *to = level::full_scale(from);
        }
        let at = |around: &[f64]| {
            let pairs = around[..HALF].iter().rev().zip(&around[HALF + 1..]);
            let sides = self.half[1..].iter().zip(pairs).map(|(h, (a, b))| h * (a + b));
            self.half[0] * around[HALF] + sides.sum::<f64>()
        };
        padded.windows(2 * HALF + 1).map(at).collect()
    }

    /// The filter's gain at `hz`, in dB; −∞ where nothing passes.
    pub fn gain(&self, hz: f64) -> f64 {
        let wave = |n: usize| libm::cos(TAU * hz * n as f64 / f64::from(RATE));
        let sides: f64 = (1..=HALF).map(|n| 2.0 * self.half[n] * wave(n)).sum();
        20.0 * libm::log10((self.half[0] + sides).abs())
    }
}

/// Applies the [`SendFilter`] to `pcm` and sets its active speech level to [`LEVEL`]; `None`
/// without speech.
pub fn sent(pcm: &[i16]) -> Option<Levelled> {
    level::to(&SendFilter::new().apply(pcm), LEVEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Frequencies from 200 to 3,400 Hz in steps of 5 Hz, and every point of the table.
    fn band() -> impl Iterator<Item = f64> {
        let points = RESPONSE.iter().map(|&(hz, _)| hz);
        let steps = (40..=680).map(|n| f64::from(n * 5));
        points.filter(|hz| (200.0..=3_400.0).contains(hz)).chain(steps)
    }

    #[test]
    fn its_response_is_the_table_within_half_a_db() {
        let filter = SendFilter::new();
        let off = |hz: f64| (filter.gain(hz) - response(hz)).abs();
        let worst = band().map(off).fold(0.0, f64::max);
        assert!(worst < 0.2, "{worst} dB");
        // Above the telephone band likewise; below it, the slope matters.
        assert!(off(3_600.0) < 0.5 && off(4_000.0) < 0.5);
        assert!(filter.gain(100.0) < -25.0 && filter.gain(50.0) < -40.0);
    }

    #[test]
    fn the_table_is_read_between_its_points() {
        for (hz, db) in RESPONSE {
            assert!((response(hz) - db).abs() < 1e-9, "{hz} Hz");
        }
        // The geometric mean of two frequencies has the arithmetic mean of their dB.
        let middle = libm::sqrt(100.0 * 125.0);
        assert!((response(middle) - (-28.07 - 21.00) / 2.0).abs() < 1e-9);
        assert_eq!(response(49.9), f64::NEG_INFINITY);
    }

    /// Whole periods of 1 kHz, where the gain is 0 dB, pass unchanged.
    #[test]
    fn nothing_is_delayed() {
        let tone = |n: usize| libm::round(8_000.0 * libm::sin(TAU * n as f64 / 8.0)) as i16;
        let pcm: Vec<i16> = (0..1_600).map(tone).collect();
        let out = SendFilter::new().apply(&pcm);
        assert_eq!(out.len(), pcm.len());
        for n in HALF..pcm.len() - HALF {
            let off = out[n] - level::full_scale(pcm[n]);
            assert!(off.abs() < 0.001, "{n}: {off}");
        }
    }

    proptest! {
        // Each case designs a filter.
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn any_samples_are_filtered(pcm in prop::collection::vec(any::<i16>(), 0..600)) {
            let out = SendFilter::new().apply(&pcm);
            prop_assert_eq!(out.len(), pcm.len());
            // No sample exceeds the sum of the coefficients, which 6 dB of gain allow.
            prop_assert!(out.iter().all(|s| s.abs() < 8.0));
        }
    }
}
