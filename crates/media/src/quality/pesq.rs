//! PESQ, ITU-T P.862 (02/2001): how much worse a recording sounds than its original, and P.862.1
//! (11/2003), which maps that to the scale of a mean opinion score.
//!
//! The model itself is crate `pesq`, at 8 kHz. Input that it is not made for is rejected here: for
//! silence, it would find nothing wrong (4.5). Level and delay have no influence, as the model
//! evens them out. It was validated on 8 to 20 seconds of speech with pauses; use [`segments`] for
//! longer recordings.
//!
//! The last digits may differ between machines, since its Fourier transform uses the available
//! instructions.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use trunkline_base::stats::quantile;

use crate::audio::RATE;

/// Segment length of Amir et al. 2005, §II-C: about a sentence.
pub const SEGMENT: Duration = Duration::from_secs(12);
/// Minimum length that the model needs, in samples: 250 ms.
pub const MIN_SAMPLES: usize = RATE as usize / 4;

/// PESQ scores of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The raw score of P.862: −0.5 (worst) to 4.5 (no difference). This is the scale of Amir et
    /// al. 2005; 4.0 is the quality of a telephone network.
    pub raw: f64,
    /// MOS-LQO, the listening quality that P.862.1 maps it to: 1.0 to 4.55.
    pub mos_lqo: f64,
}

impl Score {
    /// The score for speech that is lost completely, for which the model has no result.
    pub const LOWEST: Score = Score { raw: -0.5, mos_lqo: 1.016_844 };

    fn new(raw: f64) -> Score {
        Score { raw, mos_lqo: mos_lqo(raw) }
    }
}

/// Maps a raw score by P.862.1, equation 1, which is fitted to raw scores of −0.5 to 4.5.
pub fn mos_lqo(raw: f64) -> f64 {
    0.999 + (4.999 - 0.999) / (1.0 + libm::exp(-1.4945 * raw + 4.6607))
}

/// The two recordings of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The recording before transmission.
    Reference,
    /// The recording as heard.
    Degraded,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Reference => "reference",
            Signal::Degraded => "degraded",
        })
    }
}

/// Reasons why PESQ cannot compare two recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PesqError {
    /// The lengths differ, so the recordings cannot be aligned.
    #[error(
        "the reference has {reference} samples and the degraded recording {degraded}: cut both to the same length, beginning with the same word"
    )]
    Length {
        /// Length of the reference, in samples.
        reference: usize,
        /// Length of the degraded recording, in samples.
        degraded: usize,
    },
    /// The recordings are shorter than 250 ms.
    #[error(
        "{samples} samples are too short for PESQ, which needs at least {MIN_SAMPLES}, and 8 s for a reliable score: use a longer recording"
    )]
    TooShort {
        /// Length of the recordings, in samples.
        samples: usize,
    },
    /// All samples of this recording are 0.
    #[error("the {0} recording is silent: PESQ can only compare speech; is it the right file?")]
    Silent(Signal),
    /// Too little speech was found: less than about 300 ms.
    #[error(
        "no speech was found in the recordings: use a part in which someone speaks for a second or more"
    )]
    NoSpeech,
}

/// Compares two 8 kHz recordings of the same length.
pub fn score(reference: &[i16], degraded: &[i16]) -> Result<Score, PesqError> {
    check(reference, degraded)?;
    for (signal, pcm) in [(Signal::Reference, reference), (Signal::Degraded, degraded)] {
        if pcm.iter().all(|&s| s == 0) {
            return Err(PesqError::Silent(signal));
        }
    }
    match pesq::pesq_8k(reference, degraded) {
        Ok(raw) => Ok(Score::new(f64::from(raw))),
        Err(pesq::PesqError::SignalTooShort { samples }) => Err(PesqError::TooShort { samples }),
        Err(pesq::PesqError::NoUtterancesFound) => Err(PesqError::NoSpeech),
    }
}

fn check(reference: &[i16], degraded: &[i16]) -> Result<(), PesqError> {
    let (samples, other) = (reference.len(), degraded.len());
    if samples != other {
        return Err(PesqError::Length { reference: samples, degraded: other });
    }
    if samples < MIN_SAMPLES { Err(PesqError::TooShort { samples }) } else { Ok(()) }
}

/// Compares long 8 kHz recordings in pieces: equal pieces whose length is as near to `length` as a
/// whole number of them allows; a single one for shorter recordings.
///
/// A piece with a silent reference has no score. One whose speech is lost completely has the
/// lowest, [`Score::LOWEST`]: an outage must not raise the average. Pauses within a piece hardly
/// matter, as PESQ weights frames by their loudness, but the score of a piece with little speech in
/// much silence depends on a few packets.
pub fn segments(
    reference: &[i16],
    degraded: &[i16],
    length: Duration,
) -> Result<Vec<Option<Score>>, PesqError> {
    check(reference, degraded)?;
    pieces(reference.len(), length)
        .map(|piece| segment(&reference[piece.clone()], &degraded[piece]))
        .collect()
}

/// Ranges of samples, each about `length` long and at least [`MIN_SAMPLES`].
fn pieces(samples: usize, length: Duration) -> impl Iterator<Item = Range<usize>> {
    let length = (length.as_secs_f64() * f64::from(RATE)).max(MIN_SAMPLES as f64);
    let most = (samples / MIN_SAMPLES).max(1);
    let n = (libm::round(samples as f64 / length) as usize).clamp(1, most);
    (0..n).map(move |i| i * samples / n..(i + 1) * samples / n)
}

fn segment(reference: &[i16], degraded: &[i16]) -> Result<Option<Score>, PesqError> {
    match score(reference, degraded) {
        Ok(score) => Ok(Some(score)),
        Err(PesqError::Silent(Signal::Reference)) => Ok(None),
        // A reference with speech resembles itself; if it doesn't, the reference is at fault.
        Err(PesqError::Silent(Signal::Degraded) | PesqError::NoSpeech) => {
            match score(reference, reference) {
                Err(PesqError::NoSpeech) => Ok(None),
                other => other.map(|_| Some(Score::LOWEST)),
            }
        }
        Err(other) => Err(other),
    }
}

/// Statistics over the pieces of one or more calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of pieces with a score.
    pub segments: usize,
    /// Their mean, on each scale separately.
    pub mean: Score,
    /// Their 5th percentile: the smallest score that at least one in twenty does not exceed.
    pub p5: Score,
}

/// Summarizes scores; `None` if there are none.
pub fn summarize(scores: impl IntoIterator<Item = Option<Score>>) -> Option<Summary> {
    let mut scores: Vec<Score> = scores.into_iter().flatten().collect();
    scores.sort_by(|a, b| a.raw.total_cmp(&b.raw));
    let mean = |of: fn(&Score) -> f64| scores.iter().map(of).sum::<f64>() / scores.len() as f64;
    Some(Summary {
        segments: scores.len(),
        // Both scales have the same order.
        p5: quantile(&scores, 0.05)?,
        mean: Score { raw: mean(|s| s.raw), mos_lqo: mean(|s| s.mos_lqo) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds of synthetic speech: syllables of a buzzing voice, with pauses between them.
    fn speech() -> Vec<i16> {
        let voice = |n: usize| {
            let harmonics =
                (1..12).map(|k| libm::sin((n * k) as f64 * 0.1 + k as f64)).sum::<f64>();
            let syllable = libm::sin(n as f64 / 1_300.0).max(0.0);
            (900.0 * harmonics * syllable) as i16
        };
        (0..16_000).map(voice).collect()
    }

    fn every(nth: usize, pcm: &[i16]) -> Vec<i16> {
        let mut out = pcm.to_vec();
        out.chunks_mut(160).skip(3).step_by(nth).for_each(|packet| packet.fill(0));
        out
    }

    #[test]
    fn worse_sounds_worse() {
        let original = speech();
        let raw = |pcm: &[i16]| score(&original, pcm).unwrap().raw;
        assert_eq!(raw(&original), 4.5);
        let scores = [raw(&original), raw(&every(20, &original)), raw(&every(5, &original))];
        assert!(scores[0] > scores[1] + 0.3 && scores[1] > scores[2] + 0.3, "{scores:?}");
        let quieter: Vec<i16> = original.iter().map(|s| s / 2).collect();
        assert!(raw(&quieter) > 4.3, "the level does not count: {}", raw(&quieter));
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let (speech, silence) = (speech(), vec![0; 16_000]);
        assert_eq!(score(&silence, &speech), Err(PesqError::Silent(Signal::Reference)));
        assert_eq!(score(&speech, &silence), Err(PesqError::Silent(Signal::Degraded)));
        assert_eq!(score(&silence, &silence), Err(PesqError::Silent(Signal::Reference)));
        assert_eq!(
            score(&speech, &speech[1..]),
            Err(PesqError::Length { reference: 16_000, degraded: 15_999 })
        );
        assert_eq!(
            segments(&speech[1..], &speech, SEGMENT),
            Err(PesqError::Length { reference: 15_999, degraded: 16_000 })
        );
        for pcm in [&speech[..0], &speech[..1_999]] {
            let short = PesqError::TooShort { samples: pcm.len() };
            assert_eq!(score(pcm, pcm), Err(short));
            assert_eq!(segments(pcm, pcm, SEGMENT), Err(short));
        }
        assert!(score(&speech[..2_000], &speech[..2_000]).is_ok());
        let mut hardly = silence;
        hardly[8_000..8_400].copy_from_slice(&speech[1_000..1_400]);
        assert_eq!(score(&hardly, &hardly), Err(PesqError::NoSpeech));
    }

    #[test]
    fn nothing_panics_at_the_edges_of_the_scale() {
        let noise = |seed: u32| -> Vec<i16> {
            let sample = |n: u32| (n ^ seed).wrapping_mul(2_654_435_761).rotate_left(n % 31) as i16;
            (0..8_000).map(sample).collect()
        };
        let mut click = vec![0; 8_000];
        click[5_000] = i16::MAX;
        let wild = [noise(1), noise(2), vec![i16::MIN; 8_000], vec![1; 8_000], click];
        for a in &wild {
            for b in &wild {
                if let Ok(s) = score(a, b) {
                    assert!((-2.0..=4.5).contains(&s.raw) && s.mos_lqo > 0.9, "{s:?}");
                }
            }
        }
    }

    #[test]
    fn silent_pieces_have_no_score_and_outages_the_lowest() {
        let (speech, silence) = (speech(), vec![0; 16_000]);
        let second = Duration::from_secs(2);
        let reference = [&speech[..], &silence, &speech].concat();
        let heard = [&speech[..], &speech, &silence].concat();
        let scores = segments(&reference, &heard, second).unwrap();
        assert_eq!(scores, [Some(Score::new(4.5)), None, Some(Score::LOWEST)]);
        let sum = summarize(scores).unwrap();
        assert_eq!((sum.segments, sum.mean.raw, sum.p5), (2, 2.0, Score::LOWEST));
        assert_eq!(segments(&silence, &speech, second), Ok(vec![None]));
        assert_eq!(summarize([None]), None);
        assert!((mos_lqo(Score::LOWEST.raw) - Score::LOWEST.mos_lqo).abs() < 1e-4);
    }

    #[test]
    fn pieces_are_of_about_the_length_asked_for() {
        let seconds = |seconds: u64| -> Vec<usize> {
            pieces(100_000, Duration::from_secs(seconds)).map(|piece| piece.len()).collect()
        };
        assert_eq!(seconds(100), [100_000]);
        assert_eq!(seconds(9), [100_000]);
        assert_eq!(seconds(6), [50_000, 50_000]);
        assert_eq!(seconds(5), [33_333, 33_333, 33_334]);
        assert_eq!(seconds(0), [2_000; 50]);
        assert_eq!(pieces(3_999, Duration::ZERO).map(|piece| piece.len()).max(), Some(3_999));
    }

    #[test]
    fn the_mapping_is_p_862_1s() {
        // Worked out by hand: e^4.6607 = 105.71; e^−2.06455 = 0.12687; e^0.1772 = 1.1939.
        for (raw, mos) in [(0.0, 1.036), (4.5, 4.549), (3.0, 2.822)] {
            assert!((mos_lqo(raw) - mos).abs() < 1e-3, "{raw}: {}", mos_lqo(raw));
        }
    }
}
