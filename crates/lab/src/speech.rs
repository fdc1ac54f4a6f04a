//! What is said and what is heard of it: five minutes of recordings in
//! segments of 12 s, played over and over, coded as G.711, concealed by its
//! Appendix I and scored by PESQ against the recording itself (Amir et al.
//! 2005, §II-C).

use crate::error::Error;
use crate::experiment::fnv1a;
use std::fmt;
use std::io::Cursor;
use std::path::Path;
use std::sync::OnceLock;
use trunkline_media::audio::read_wav;
use trunkline_media::codec::g711::Law;
use trunkline_media::playout::Decoder;
use trunkline_media::quality::pesq::{self, PesqError, SEGMENT, Score};

/// Samples of a packet: 20 ms.
const FRAME: usize = 160;
/// Samples of a segment.
const SAMPLES: usize = 8_000 * SEGMENT.as_secs() as usize;
/// Packets of a segment.
pub const PACKETS: usize = SAMPLES / FRAME;
/// The recordings, and the segments that each gives.
const FILES: [&str; 5] =
    ["en-allison.wav", "es-allison.wav", "fr-june.wav", "it-carlo.wav", "ru-ivrvoice.wav"];
const OF_EACH: usize = 5;

/// The five-minute sequence, and its scores without loss.
pub struct Speech {
    segments: Vec<Segment>,
    digest: u64,
}

struct Segment {
    /// As recorded.
    original: Vec<i16>,
    /// As it comes out of the decoder if nothing is missed.
    coded: Vec<i16>,
    /// The score of that.
    clean: OnceLock<Result<Option<Score>, PesqError>>,
}

impl fmt::Debug for Speech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Speech({} segments, {:016x})", self.segments.len(), self.digest)
    }
}

impl Speech {
    /// Reads the five recordings in `folder`, at least a minute each.
    ///
    /// # Errors
    ///
    /// [`Error::Speech`] names the file that is missing, no speech, or short.
    pub fn load(folder: &Path) -> Result<Speech, Error> {
        let mut segments = Vec::new();
        for name in FILES {
            let path = folder.join(name);
            let bad = |why: String| Error::Speech { path: path.clone(), why };
            let bytes = std::fs::read(&path).map_err(|e| {
                bad(format!(
                    "{e}: --speech must name the folder with the project's five recordings"
                ))
            })?;
            let pcm = read_wav(Cursor::new(bytes)).map_err(|e| bad(e.to_string()))?;
            if pcm.len() < OF_EACH * SAMPLES {
                let seconds = pcm.len() / 8_000;
                return Err(bad(format!("{seconds} s of speech are too short: 60 s are needed")));
            }
            segments.extend(pcm.chunks_exact(SAMPLES).take(OF_EACH).map(Segment::new));
        }
        Ok(Speech::of(segments))
    }

    fn of(segments: Vec<Segment>) -> Speech {
        let samples = segments.iter().flat_map(|s| &s.original);
        let digest = fnv1a(samples.flat_map(|s| s.to_le_bytes()));
        Speech { segments, digest }
    }

    /// Stands for the samples of all recordings.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many segments there are.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The scores of one listener: packet `k` is missed if `missed[k]`, and the
    /// first is the first of segment `start`. Whole segments only; `None` where
    /// nobody speaks. `decoder` is new, for µ-law, and says what is heard instead
    /// of a packet that is missed.
    ///
    /// # Errors
    ///
    /// If PESQ can't compare a segment.
    pub fn listen(
        &self,
        missed: &[bool],
        start: usize,
        decoder: &mut dyn Decoder,
    ) -> Result<Vec<Option<Score>>, PesqError> {
        let lag = decoder.delay();
        let count = missed.len() / PACKETS;
        let segment = |n: usize| &self.segments[(start + n) % self.segments.len()];
        // What the decoder has put out and nobody has scored yet. It lags, so
        // that a segment is whole when the next one's first frame is.
        let mut pcm: Vec<i16> = Vec::with_capacity(SAMPLES + FRAME + lag);
        let mut scores = Vec::with_capacity(count);
        for n in 0..count {
            let codes = &segment(n).coded;
            for (k, coded) in codes.chunks_exact(FRAME).enumerate() {
                let mut frame = [0; FRAME];
                if missed[n * PACKETS + k] {
                    decoder.conceal(&mut frame);
                } else {
                    // A decoded sample is its own code, so this equals coding
                    // the original again, and is faster.
                    decoder.decode(&encode(coded), &mut frame);
                }
                pcm.extend_from_slice(&frame);
                if n > 0 && k == 0 {
                    scores.push(segment(n - 1).score(&pcm[lag..lag + SAMPLES])?);
                    pcm.drain(..SAMPLES);
                }
            }
        }
        if count > 0 {
            let mut tail = vec![0; lag];
            decoder.flush(&mut tail);
            pcm.extend_from_slice(&tail);
            scores.push(segment(count - 1).score(&pcm[lag..lag + SAMPLES])?);
        }
        Ok(scores)
    }
}

fn encode(pcm: &[i16]) -> [u8; FRAME] {
    core::array::from_fn(|i| Law::Mu.encode(pcm[i]))
}

impl Segment {
    fn new(original: &[i16]) -> Segment {
        let coded = original.iter().map(|&s| Law::Mu.decode(Law::Mu.encode(s))).collect();
        Segment { original: original.to_vec(), coded, clean: OnceLock::new() }
    }

    /// The score of what was heard. Most segments of a call that is repaired
    /// sound as if nothing had been lost: theirs is reckoned once.
    fn score(&self, heard: &[i16]) -> Result<Option<Score>, PesqError> {
        let fresh = || Ok(pesq::segments(&self.original, heard, SEGMENT)?[0]);
        if heard == self.coded { *self.clean.get_or_init(fresh) } else { fresh() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_media::codec::g711::Concealing;
    use trunkline_media::playout::{Config, Playout};

    /// Two segments of a buzz that comes and goes.
    fn buzz() -> Speech {
        let sample = |n: usize| {
            let tone: f64 = (1..10).map(|k| libm::sin((n * k) as f64 * 0.09)).sum();
            (900.0 * tone * libm::sin(n as f64 / 1_700.0).max(0.0)) as i16
        };
        let pcm: Vec<i16> = (0..2 * SAMPLES).map(sample).collect();
        Speech::of(pcm.chunks_exact(SAMPLES).map(Segment::new).collect())
    }

    type Scores = Result<Vec<Option<Score>>, PesqError>;

    fn heard(speech: &Speech, missed: &[bool], start: usize) -> Scores {
        speech.listen(missed, start, &mut Concealing::new(Law::Mu))
    }

    /// The same through the playout that the demonstration uses.
    fn by_playout(speech: &Speech, missed: &[bool], start: usize) -> Vec<Option<Score>> {
        let mut playout = Playout::new(Config { first_sequence: Some(0), ..Config::default() });
        let n = speech.len();
        let original = |i: usize| speech.segments[(start + i) % n].original.clone();
        let said: Vec<i16> = (0..missed.len() / PACKETS).flat_map(original).collect();
        for (k, frame) in said.chunks_exact(FRAME).enumerate().filter(|(k, _)| !missed[*k]) {
            playout.receive(k as u16, std::time::Duration::ZERO, false, &encode(frame)).unwrap();
        }
        let heard = playout.finish(Some(missed.len()), &mut Concealing::new(Law::Mu)).pcm;
        pesq::segments(&said, &heard, SEGMENT).unwrap()
    }

    #[test]
    fn a_listener_hears_what_playout_plays() {
        let speech = buzz();
        let mut missed = vec![false; 3 * PACKETS];
        assert_eq!(heard(&speech, &missed, 0).unwrap(), by_playout(&speech, &missed, 0));
        // Within a segment, across a seam, and at both ends.
        for lost in [0..2, 100..103, PACKETS - 1..PACKETS + 2, 3 * PACKETS - 1..3 * PACKETS] {
            missed[lost].fill(true);
        }
        let scores = heard(&speech, &missed, 1).unwrap();
        assert_eq!(scores, by_playout(&speech, &missed, 1));
        assert_eq!(scores.len(), 3);
        assert!(
            scores[0].unwrap().raw < heard(&speech, &[false; PACKETS], 1).unwrap()[0].unwrap().raw
        );
    }

    #[test]
    fn only_whole_segments_are_scored() {
        assert_eq!(heard(&buzz(), &[false; PACKETS - 1], 0), Ok(vec![]));
    }

    #[test]
    fn a_missing_recording_is_named() {
        let error = Speech::load(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/en-allison.wav: ") && error.contains("--speech"));
    }
}
