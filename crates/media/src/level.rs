//! Active speech level by ITU-T P.56 (12/2011), method B: the level of the speech in a recording,
//! independent of its pauses.
//!
//! An envelope detects speech: it is above a threshold, or was so in the last 200 ms. The level is
//! that of all energy over this time only, and the threshold is 15.9 dB below the level. Of 15
//! thresholds 6 dB apart, the two nearest give both by interpolation.

use crate::audio::RATE;

/// Time constant of the envelope, in seconds.
const TIME_CONSTANT: f64 = 0.03;
/// Number of samples for which speech continues after the envelope has fallen: 200 ms.
const HANGOVER: usize = RATE as usize / 5;
/// Distance from the threshold to the level, in dB.
const MARGIN: f64 = 15.9;
/// Number of thresholds: one per bit of a sample except the sign, from one step of 16 bits to half
/// of overload.
const THRESHOLDS: usize = 15;

/// Levels of a recording by P.56.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Level of the speech, in dB relative to overload (a full-scale square wave).
    pub active: f64,
    /// Level of the whole recording including pauses, in dB relative to overload.
    pub rms: f64,
}

impl Level {
    /// The share of the time with speech, up to 1.
    pub fn activity(&self) -> f64 {
        libm::exp10((self.rms - self.active) / 10.0)
    }
}

/// A recording after a change of level.
#[derive(Debug, Clone, PartialEq)]
pub struct Levelled {
    /// The samples at the new level.
    pub pcm: Vec<i16>,
    /// Number of samples that exceeded the range and were clipped.
    pub clipped: usize,
}

/// Converts a sample to full scale ±1.
pub(crate) fn full_scale(sample: i16) -> f64 {
    f64::from(sample) / 32_768.0
}

/// Measures the level of 16-bit samples at 8 kHz; `None` without speech.
pub fn of(pcm: &[i16]) -> Option<Level> {
    measure(pcm.iter().map(|&s| full_scale(s)))
}

/// Brings `samples` at 8 kHz, full scale ±1, to an active level of `dbov` by their measured level.
/// Measured again, the result may deviate by up to 0.1 dB, as it lies elsewhere between two
/// thresholds. `None` without speech.
pub fn to(samples: &[f64], dbov: f64) -> Option<Levelled> {
    let gain = libm::exp10((dbov - measure(samples.iter().copied())?.active) / 20.0);
    let mut clipped = 0;
    let scale = |&s: &f64| {
        let sample = libm::round(s * gain * 32_768.0);
        clipped += usize::from(!(-32_768.0..=32_767.0).contains(&sample));
        sample as i16
    };
    let pcm = samples.iter().map(scale).collect();
    Some(Levelled { pcm, clipped })
}

/// Measures by method B. `None` if the envelope never reaches the lowest threshold, or no threshold
/// is far enough below the level.
fn measure(samples: impl Iterator<Item = f64>) -> Option<Level> {
    let keep = libm::exp(-1.0 / (f64::from(RATE) * TIME_CONSTANT));
    let threshold = |n: usize| libm::exp2(n as f64 - THRESHOLDS as f64);
    let thresholds: [f64; THRESHOLDS] = core::array::from_fn(threshold);
    let mut active = [0u64; THRESHOLDS];
    let mut since = [HANGOVER; THRESHOLDS];
    let (mut once, mut envelope) = (0.0, 0.0);
    let (mut energy, mut count) = (0.0, 0u64);
    for sample in samples {
        energy += sample * sample;
        count += 1;
        once = keep * once + (1.0 - keep) * sample.abs();
        envelope = keep * envelope + (1.0 - keep) * once;
        for ((active, since), threshold) in active.iter_mut().zip(&mut since).zip(thresholds) {
            if envelope >= threshold {
                *since = 0;
            } else if *since < HANGOVER {
                *since += 1;
            } else {
                break; // nor is it above any higher one, nor was
            }
            *active += 1;
        }
    }
    let db = |time: u64| 10.0 * libm::log10(energy / time as f64);
    // The level and its distance to the threshold, which shrinks with each threshold.
    let mut below: Option<(f64, f64)> = None;
    for (time, threshold) in active.into_iter().zip(thresholds).filter(|(time, _)| *time > 0) {
        let level = db(time);
        let margin = level - 20.0 * libm::log10(threshold);
        if margin <= MARGIN {
            let (lower, wider) = below?;
            let active = lower + (level - lower) * (wider - MARGIN) / (wider - margin);
            return Some(Level { active, rms: db(count) });
        }
        below = Some((level, margin));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::f64::consts::TAU;
    use proptest::prelude::*;

    const SECOND: usize = RATE as usize;

    /// A second of a 1 kHz tone; a `peak` of 1 is full scale.
    fn tone(peak: f64) -> Vec<i16> {
        let sample = |n: usize| libm::round(peak * 32_767.0 * libm::sin(TAU * n as f64 / 8.0));
        (0..SECOND).map(|n| sample(n) as i16).collect()
    }

    /// A sine is 3.01 dB below the square wave with the same peak.
    #[test]
    fn a_sine_has_the_level_that_it_has() {
        for db in [-40.0, -26.0, -10.0] {
            let level = of(&tone(libm::exp10(db / 20.0)).repeat(10)).unwrap();
            assert!((level.rms - (db - 3.01)).abs() < 0.01, "{db}: {level:?}");
            // The envelope takes some 50 ms to rise.
            assert!((level.active - level.rms).abs() < 0.05, "{db}: {level:?}");
        }
    }

    #[test]
    fn pauses_do_not_count_but_200_ms_of_them() {
        let said = tone(0.1);
        let level = of(&[&said[..], &vec![0; 3 * SECOND]].concat().repeat(5)).unwrap();
        // 1.2 s of 4 s, plus the time in which the envelope falls to the threshold: by a factor of
        // e in 30 ms.
        assert!((0.30..0.35).contains(&level.activity()), "{level:?}");
        assert!((level.rms - (-23.01 - 6.02)).abs() < 0.01, "{level:?}");
    }

    #[test]
    fn where_nobody_speaks_there_is_no_level() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&vec![0; SECOND]), None);
        assert_eq!(to(&vec![0.0; SECOND], -26.0), None);
    }

    #[test]
    fn what_is_levelled_has_that_level_and_says_what_was_cut() {
        let quiet: Vec<f64> = tone(0.01).repeat(3).iter().map(|&s| full_scale(s)).collect();
        let levelled = to(&quiet, -26.0).unwrap();
        let level = of(&levelled.pcm).unwrap();
        assert!((level.active + 26.0).abs() < 0.01 && levelled.clipped == 0, "{level:?}");
        // At 6 dB too loud, six of eight samples are clipped, those at 0.7 and 1 of the peak.
        let loud = to(&quiet, 3.0).unwrap();
        assert_eq!(loud.clipped, 3 * SECOND * 6 / 8);
        assert_eq!((loud.pcm.iter().max(), loud.pcm.iter().min()), (Some(&32_767), Some(&-32_768)));
    }

    proptest! {
        #[test]
        fn no_samples_panic(pcm in prop::collection::vec(any::<i16>(), 0..4_000)) {
            if let Some(level) = of(&pcm) {
                prop_assert!(level.rms <= 0.0 && level.active.is_finite());
                prop_assert!((0.0..=1.0).contains(&level.activity()), "{level:?}");
            }
        }
    }
}
