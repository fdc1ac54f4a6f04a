//! Packet loss concealment for G.711, ITU-T G.711 Appendix I (09/1999).
//!
//! A gap is filled with the speech before it: the last pitch period, repeated, is the most likely
//! continuation of a voiced sound. Longer gaps use two and then three periods, so that the
//! repetition is not audible as a buzz, and fade to silence within 60 ms. All seams are
//! cross-faded. The one before the gap changes up to a quarter of a pitch period that would already
//! have been played, which is why the output lags by [`DELAY`] samples.

/// Sample rate for which the constants of the Recommendation are meant.
const RATE: usize = crate::audio::RATE as usize;
/// Samples in 10 ms: the step in which the Recommendation's algorithm changes its behaviour within
/// a gap.
const STEP: usize = RATE / 100;
/// Lags of the pitch search, in samples: 5 to 15 ms, 200 to 66 Hz.
const MIN_LAG: usize = RATE / 200;
const MAX_LAG: usize = 3 * RATE / 200;
/// Longest cross-fade, a quarter of the longest pitch period, in samples.
const MAX_FADE: usize = MAX_LAG / 4;
/// Length of the history: three of the longest pitch periods and the fade before them, 48.75 ms.
const HISTORY: usize = 3 * MAX_LAG + MAX_FADE;
/// Length of the pitch correlation: the newest 20 ms.
const WINDOW: usize = RATE / 50;
/// Decimation of the coarse pitch search.
const COARSE: usize = 2;
/// Energy of the decimated window below which the normalization stays constant, so that a nearly
/// silent lag cannot win by its rounding errors.
const MIN_ENERGY: i64 = 250;
/// Growth of the fade back into received speech: 4 ms per erased 10 ms …
const FADE_GROWTH: usize = RATE / 250;
/// … up to 10 ms.
const MAX_RETURN: usize = STEP;
/// Number of erased samples after which there is silence: 60 ms.
const SILENT: usize = 6 * STEP;
/// Length of the linear decay, by a fifth every 10 ms, which starts after the first 10 ms.
const DECAY: usize = SILENT - STEP;

/// Number of samples by which the output lags behind the input: 3.75 ms.
pub const DELAY: usize = MAX_FADE;

/// Conceals the gaps of one stream of 8 kHz speech.
///
/// Pass in every frame of the stream in order, received or not; each is replaced by the samples to
/// play, [`DELAY`] samples late. A frame may have any length; the Recommendation describes 10 ms
/// (80 samples), and multiples of it give the same result. The fade back into received speech ends
/// with its frame, so frames shorter than 10 ms make it more abrupt. Nothing allocates.
///
/// ```
/// use trunkline_media::conceal::{Concealer, DELAY};
///
/// let mut concealer = Concealer::new();
/// let tone = |n: usize| (8_000.0 * (n as f64 * 0.2).sin()) as i16;
/// for packet in 0..10 {
///     let mut frame: [i16; 160] = std::array::from_fn(|i| tone(packet * 160 + i));
///     if packet == 5 {
///         concealer.lost(&mut frame);
///     } else {
///         concealer.received(&mut frame);
///     }
///     // Play `frame`.
/// }
/// let mut tail = [0; DELAY];
/// concealer.flush(&mut tail); // at the end of the call
/// ```
#[derive(Debug, Clone)]
pub struct Concealer {
    /// Received or synthesized samples, newest last; the last `DELAY` of them have not been played.
    history: [i16; HISTORY],
    /// The history at the beginning of the gap, its end cross-faded so that the last `repeated`
    /// samples can follow themselves.
    template: [i16; HISTORY],
    /// The last samples before the gap, as received.
    last: [i16; MAX_FADE],
    /// The samples that would have followed when `repeated` grew.
    before_growth: [i16; MAX_FADE],
    /// The pitch period, in samples.
    lag: usize,
    /// Number of samples of the template's end that are repeated: one to three lags.
    repeated: usize,
    /// Position of the next sample within the repeated part.
    at: usize,
    /// Number of samples erased so far; 0 outside a gap.
    erased: usize,
}

impl Default for Concealer {
    fn default() -> Concealer {
        Concealer::new()
    }
}

impl Concealer {
    /// Creates a concealer for the start of a stream, with silence before it.
    pub fn new() -> Concealer {
        Concealer {
            history: [0; HISTORY],
            template: [0; HISTORY],
            last: [0; MAX_FADE],
            before_growth: [0; MAX_FADE],
            lag: MAX_LAG,
            repeated: MAX_LAG,
            at: 0,
            erased: 0,
        }
    }

    /// Replaces a received frame with the samples to play.
    pub fn received(&mut self, frame: &mut [i16]) {
        if self.erased > 0 {
            self.fade_back(frame);
            self.erased = 0;
        }
        self.delay(frame);
    }

    /// Fills a lost frame with the samples to play instead.
    pub fn lost(&mut self, frame: &mut [i16]) {
        if frame.is_empty() {
            return;
        }
        if self.erased == 0 {
            self.begin();
        }
        for sample in frame.iter_mut() {
            *sample = self.concealed();
        }
        self.delay(frame);
    }

    /// Writes the samples of the stream that remain to be played. `tail` should be [`DELAY`] long;
    /// with a shorter one the rest is dropped, and a longer one ends in silence.
    pub fn flush(&self, tail: &mut [i16]) {
        tail.fill(0);
        for (sample, &left) in tail.iter_mut().zip(&self.history[HISTORY - DELAY..]) {
            *sample = left;
        }
    }

    /// Appends `frame` to the history and replaces it with samples that are `DELAY` older.
    fn delay(&mut self, frame: &mut [i16]) {
        for chunk in frame.chunks_mut(STEP) {
            let n = chunk.len();
            self.history.copy_within(n.., 0);
            self.history[HISTORY - n..].copy_from_slice(chunk);
            chunk.copy_from_slice(&self.history[HISTORY - DELAY - n..HISTORY - DELAY]);
        }
    }

    fn fade_len(&self) -> usize {
        self.lag / 4
    }

    /// Prepares for a gap at the end of the history.
    fn begin(&mut self) {
        self.lag = pitch(&self.history);
        self.template = self.history;
        self.last.copy_from_slice(&self.history[HISTORY - MAX_FADE..]);
        self.at = 0;
        self.repeat(self.lag);
        // The first side of the seam is in samples that have not been played yet.
        let fade = HISTORY - self.fade_len()..;
        self.history[fade.clone()].copy_from_slice(&self.template[fade]);
    }

    /// Sets the repeated part to the last `samples` of the template, and cross-fades its end into
    /// the samples before them.
    fn repeat(&mut self, samples: usize) {
        self.repeated = samples;
        let fade = self.fade_len();
        for i in 0..fade {
            let old = self.last[MAX_FADE - fade + i];
            let new = self.template[HISTORY - samples - fade + i];
            self.template[HISTORY - fade + i] = blend(old, new, i, fade);
        }
    }

    /// The next sample of the repeated part.
    fn next(&mut self) -> i16 {
        let sample = self.template[HISTORY - self.repeated + self.at];
        self.at = (self.at + 1) % self.repeated;
        sample
    }

    /// Repeats one more period, continuing at the same phase.
    fn grow(&mut self) {
        let at = self.at;
        let fade = self.fade_len();
        for i in 0..fade {
            self.before_growth[i] = self.next();
        }
        // A whole period is kept: at 0 the oldest one would come next.
        self.at = if at > self.lag { (at - 1) % self.lag + 1 } else { at };
        self.repeat(self.repeated + self.lag);
    }

    /// Synthesizes the next sample of a gap.
    fn concealed(&mut self) -> i16 {
        let (step, at) = (self.erased / STEP, self.erased % STEP);
        let level = level(self.erased);
        // Saturates, as a gap may last for ever.
        self.erased = (self.erased + 1).min(SILENT + STEP * MAX_RETURN);
        if level == 0 {
            return 0;
        }
        let grows = matches!(step, 1 | 2);
        if grows && at == 0 {
            self.grow();
        }
        let mut sample = self.next();
        if grows && at < self.fade_len() {
            sample = blend(self.before_growth[at], sample, at, self.fade_len());
        }
        fade(sample, level, 0, 0, 1)
    }

    /// Cross-fades from the concealed speech into `frame`.
    fn fade_back(&mut self, frame: &mut [i16]) {
        let steps = self.erased.div_ceil(STEP);
        let len = (self.fade_len() + (steps - 1) * FADE_GROWTH).min(MAX_RETURN).min(frame.len());
        let level = level(self.erased);
        for (i, sample) in frame[..len].iter_mut().enumerate() {
            *sample = fade(self.next(), level, *sample, i + 1, len);
        }
    }
}

/// The level after `erased` samples, in units of 1/`DECAY`.
fn level(erased: usize) -> usize {
    SILENT.saturating_sub(erased).min(DECAY)
}

/// Sample `i` of `len` of a linear cross-fade, which ends entirely in `new`.
fn blend(old: i16, new: i16, i: usize, len: usize) -> i16 {
    fade(old, DECAY, new, i + 1, len)
}

/// Mixes `old` at `level` with `new` at full level, in proportion (len − share) : share.
fn fade(old: i16, level: usize, new: i16, share: usize, len: usize) -> i16 {
    let old = i32::from(old) * (level * (len - share)) as i32;
    let new = i32::from(new) * (DECAY * share) as i32;
    // At most 2^15 · 400 · 80: a sum of 31 bits.
    ((old + new) / (DECAY * len) as i32) as i16
}

/// The lag at which the newest 20 ms are most similar to the past. Among equal lags, the
/// Recommendation's code takes the shortest in its coarse search, and the longest in its fine
/// search.
fn pitch(history: &[i16; HISTORY]) -> usize {
    let coarse = (MIN_LAG..=MAX_LAG).rev().step_by(COARSE);
    let coarse = best(history, coarse, COARSE, |new, best| new >= best);
    let near = coarse.saturating_sub(COARSE - 1).max(MIN_LAG)..=(coarse + COARSE - 1).min(MAX_LAG);
    best(history, near.rev(), 1, |new, best| new > best)
}

/// The lag with the highest normalized cross-correlation, using every `stride`th sample: the last
/// of `lags` that `beats` the best before it.
fn best(
    history: &[i16; HISTORY],
    lags: impl Iterator<Item = usize>,
    stride: usize,
    beats: impl Fn(f64, f64) -> bool,
) -> usize {
    let newest = &history[HISTORY - WINDOW..];
    let mut best = (MAX_LAG, f64::NEG_INFINITY);
    for lag in lags {
        let before = &history[HISTORY - WINDOW - lag..HISTORY - lag];
        let (mut energy, mut product) = (0i64, 0i64);
        for (&a, &b) in newest.iter().zip(before).step_by(stride) {
            energy += i64::from(b) * i64::from(b);
            product += i64::from(a) * i64::from(b);
        }
        let likeness = product as f64 / libm::sqrt(energy.max(MIN_ENERGY) as f64);
        if beats(likeness, best.1) {
            best = (lag, likeness);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const AMPLITUDE: f64 = 8_000.0;

    fn tone(hertz: f64, samples: usize) -> Vec<i16> {
        let step = core::f64::consts::TAU * hertz / RATE as f64;
        (0..samples).map(|n| (AMPLITUDE * libm::sin(step * n as f64)) as i16).collect()
    }

    /// The output for `speech` if the samples of `gap` are lost, in packets of 20 ms, aligned with
    /// it.
    fn played(speech: &[i16], gap: core::ops::Range<usize>) -> Vec<i16> {
        let mut concealer = Concealer::new();
        let mut out = speech.to_vec();
        for (i, packet) in out.chunks_mut(STEP).enumerate() {
            if gap.contains(&(i * STEP)) {
                packet.fill(i16::MIN); // must not be looked at
                concealer.lost(packet);
            } else {
                concealer.received(packet);
            }
        }
        let mut tail = [0; DELAY];
        concealer.flush(&mut tail);
        out.extend(tail);
        out.split_off(DELAY)
    }

    #[test]
    fn of_two_lags_that_are_equally_like_the_longer_is_repeated() {
        // A full-scale square wave of 80.5 samples resembles itself equally well at lags of 80 and
        // 81 samples.
        let wave: Vec<i16> =
            (0..3_200).map(|n| if n * 4 / 161 % 2 == 0 { i16::MAX } else { -i16::MAX }).collect();
        let (gap, fade) = (2_400, 81 / 4);
        let out = played(&wave, gap..gap + STEP);
        let repeated = |lag: usize| &wave[gap - lag..gap - fade];
        assert_eq!(out[gap..gap + 81 - fade], *repeated(81));
        // The other lag gives another sound, as different as samples can be.
        let apart = repeated(81).iter().zip(repeated(80)).map(|(&a, &b)| a.abs_diff(b)).max();
        assert_eq!(apart, Some(65_534));
    }

    /// The largest change of slope between samples: a click is a spike in it.
    fn roughness(pcm: &[i16]) -> f64 {
        let bend = |w: &[i16]| f64::from(w[0]) - 2.0 * f64::from(w[1]) + f64::from(w[2]);
        pcm.windows(3).map(|w| bend(w).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn gaps_of_any_length_have_no_clicks() {
        let chord = |hertz: f64| -> Vec<i16> {
            // Without a common period, so that no repetition fits.
            let parts = [hertz, 1.618 * hertz, 2.29 * hertz].map(|hertz| tone(hertz, 8_000));
            (0..8_000).map(|n| parts.iter().map(|part| part[n] / 3).sum()).collect()
        };
        for hertz in [110.0, 200.0, 230.0, 317.0] {
            for speech in [tone(hertz, 8_000), chord(hertz)] {
                for gap_ms in [10, 20, 30, 40, 50, 60, 70, 100, 200] {
                    let out = played(&speech, 2_400..2_400 + gap_ms * 8);
                    let (own, got) = (roughness(&speech), roughness(&out));
                    // A cut without a fade gives 0.3 and more.
                    let more = (got - own) / AMPLITUDE;
                    assert!(more < 0.03, "{hertz} Hz, {gap_ms} ms: a step of {more}");
                    assert_eq!(out[..2_370], speech[..2_370], "nothing changes before the gap");
                    let again = 2_400 + gap_ms * 8 + MAX_RETURN;
                    assert_eq!(out[again..], speech[again..], "or after the fade");
                }
            }
        }
    }

    #[test]
    fn a_steady_tone_goes_on_through_a_short_gap() {
        // 40 samples per period: the repetition is exact.
        let speech = tone(200.0, 8_000);
        let out = played(&speech, 2_400..2_480);
        let worst = out.iter().zip(&speech).map(|(a, b)| (a - b).abs()).max();
        assert!(worst < Some(3), "{worst:?}");
    }

    #[test]
    fn a_long_gap_fades_and_then_is_silent() {
        let out = played(&tone(230.0, 8_000), 2_400..4_000);
        let energy = |pcm: &[i16]| pcm.iter().map(|&s| f64::from(s) * f64::from(s)).sum::<f64>();
        // Longer than 10 ms, so that each chunk holds whole periods.
        let energies: Vec<f64> = out[2_400..4_000].chunks(160).map(energy).collect();
        assert!(energies[0] > 0.7 * energy(&out[2_240..2_400]), "{energies:?}");
        assert!(energies.windows(2).all(|w| w[1] < w[0] || w[0] == 0.0), "{energies:?}");
        assert!(out[2_400 + SILENT..4_000].iter().all(|&s| s == 0));
        assert!(out[2_400 + SILENT - 40..2_400 + SILENT].iter().any(|&s| s != 0));
    }

    #[test]
    fn before_the_first_packet_there_is_silence() {
        let out = played(&tone(200.0, 800), 0..160);
        assert!(out[..160].iter().all(|&s| s == 0));
        assert_eq!(out[160 + MAX_RETURN..], tone(200.0, 800)[160 + MAX_RETURN..]);
    }

    #[test]
    fn the_pitch_is_found() {
        for lag in MIN_LAG..=MAX_LAG {
            let pulse = |n: usize| 10_000 / (1 + (n % lag) as i16);
            let history = core::array::from_fn(pulse);
            assert_eq!(pitch(&history) % lag, 0, "{lag}: {}", pitch(&history));
        }
    }

    proptest! {
        #[test]
        fn what_is_received_is_only_delayed(frames in vec(vec(any::<i16>(), 0..200), 0..20)) {
            let mut concealer = Concealer::new();
            let mut out = vec![];
            for mut frame in frames.clone() {
                concealer.received(&mut frame);
                out.extend(frame);
            }
            let mut tail = [0; DELAY];
            concealer.flush(&mut tail);
            out.extend(tail);
            prop_assert_eq!(&out[..DELAY], &[0; DELAY]);
            prop_assert_eq!(out.split_off(DELAY), frames.concat());
        }

        /// For any samples, and any division of a gap into frames.
        #[test]
        fn a_gap_is_the_same_in_pieces(
            before in vec(any::<i16>(), 0..600), pieces in vec(0usize..200, 1..20), after in vec(any::<i16>(), 80),
        ) {
            let (mut whole, mut cut) = (Concealer::new(), Concealer::new());
            whole.received(&mut before.clone());
            cut.received(&mut before.clone());
            let mut at_once = vec![0; pieces.iter().sum()];
            whole.lost(&mut at_once);
            let mut in_pieces = vec![];
            for len in pieces {
                let mut piece = vec![0; len];
                cut.lost(&mut piece);
                in_pieces.extend(piece);
            }
            prop_assert_eq!(at_once, in_pieces);
            let (mut a, mut b) = (after.clone(), after);
            whole.received(&mut a);
            cut.received(&mut b);
            prop_assert_eq!(a, b);
        }
    }
}
