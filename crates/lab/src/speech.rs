//! Speech as spoken and as heard: five minutes of recordings in segments of 12 s, played in a loop,
//! coded as G.711, concealed by its Appendix I and scored by PESQ against the recording itself
//! (Amir et al. 2005, §II-C).

use crate::error::Error;
use crate::experiment::fnv1a;
use clap::ValueEnum;
use std::env;
use std::fmt;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use trunkline_media::audio::read_wav;
use trunkline_media::codec::g711::Law;
use trunkline_media::playout::Decoder;
use trunkline_media::quality::pesq::{self, PesqError, SEGMENT, Score};
use trunkline_media::telephone;

/// Samples in a packet: 20 ms.
const FRAME: usize = 160;
/// Samples in a segment.
const SAMPLES: usize = 8_000 * SEGMENT.as_secs() as usize;
/// Packets in a segment.
pub const PACKETS: usize = SAMPLES / FRAME;
/// Segments in the whole sequence: five minutes.
const SEGMENTS: usize = 25;
/// Samples of silence after each voice, where there are many: 0.5 s.
const GAP: usize = 4_000;

/// The set of voices that is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum Voices {
    /// 22 readers of LibriSpeech, each for the same time
    #[default]
    Librispeech,
    /// Five languages, for a minute each
    Languages,
}

/// Filter that is applied to the recordings before they are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum Filter {
    /// Modified IRS of ITU-T P.830, then -26 dBov by P.56, as a telephone sends it
    #[default]
    Irs,
    /// Recordings as they are, without a filter
    None,
}

/// Variant of the speech that is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Variant {
    /// The set of voices.
    pub voices: Voices,
    /// Filter that is applied to them.
    pub filter: Filter,
}

impl Variant {
    /// Every variant of the speech; the figures use the first.
    pub const ALL: [Variant; 4] = {
        const fn of(voices: Voices, filter: Filter) -> Variant {
            Variant { voices, filter }
        }
        [
            of(Voices::Librispeech, Filter::Irs),
            of(Voices::Librispeech, Filter::None),
            of(Voices::Languages, Filter::Irs),
            of(Voices::Languages, Filter::None),
        ]
    };
}

impl Voices {
    /// Name of the voices on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Voices::Librispeech => "librispeech",
            Voices::Languages => "languages",
        }
    }

    /// Paths of the recordings, relative to the folder of all recordings.
    fn files(self) -> &'static [&'static str] {
        match self {
            // In the order of speech/README.md.
            Voices::Librispeech => &[
                "librispeech/87-121553-0000.wav",
                "librispeech/3374-298025-0000.wav",
                "librispeech/302-123504-0000.wav",
                "librispeech/5750-100289-0000.wav",
                "librispeech/1116-132847-0000.wav",
                "librispeech/5808-48608-0000.wav",
                "librispeech/2836-5354-0000.wav",
                "librispeech/6367-65536-0000.wav",
                "librispeech/3235-11599-0000.wav",
                "librispeech/7264-92310-0000.wav",
                "librispeech/4195-17507-0000.wav",
                "librispeech/7505-258958-0000.wav",
                "librispeech/4680-16026-0000.wav",
                "librispeech/8108-274318-0000.wav",
                "librispeech/5652-19215-0000.wav",
                "librispeech/8419-286667-0000.wav",
                "librispeech/7113-86041-0000.wav",
                "librispeech/8580-287363-0000.wav",
                "librispeech/8051-118101-0000.wav",
                "librispeech/8630-305212-0000.wav",
                "librispeech/8468-286673-0000.wav",
                "librispeech/8838-298545-0000.wav",
            ],
            Voices::Languages => &[
                "en-allison.wav",
                "es-allison.wav",
                "fr-june.wav",
                "it-carlo.wav",
                "ru-ivrvoice.wav",
            ],
        }
    }

    /// Number of samples of a recording that are played, from its first, and of silence after them:
    /// each voice is heard for the same time.
    fn share(self) -> (usize, usize) {
        let each = SEGMENTS * SAMPLES / self.files().len();
        match self {
            Voices::Librispeech => (each - GAP, GAP),
            // Each recording has pauses, and ends where a segment does.
            Voices::Languages => (each, 0),
        }
    }
}

impl Filter {
    /// Name of the filter on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Filter::Irs => "irs",
            Filter::None => "none",
        }
    }

    fn apply(self, pcm: &[i16]) -> Result<Vec<i16>, PesqError> {
        match self {
            Filter::Irs => Ok(telephone::sent(pcm).ok_or(PesqError::NoSpeech)?.pcm),
            Filter::None => Ok(pcm.to_vec()),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.voices.name(), self.filter.name())
    }
}

/// Default folder of the recordings: where `make install` puts them next to this program, or in the
/// current folder.
///
/// # Errors
///
/// [`Error::NoSpeech`], which names these folders.
pub fn installed() -> Result<PathBuf, Error> {
    let program = env::current_exe().ok();
    let prefix = program.as_deref().and_then(|p| p.parent()?.parent());
    let installed = prefix.map(|p| p.join("share/trunkline/speech"));
    let mut places: Vec<PathBuf> = installed.into_iter().collect();
    places.push(PathBuf::from("speech"));
    match places.iter().find(|place| place.is_dir()) {
        Some(place) => Ok(place.clone()),
        None => Err(Error::NoSpeech(places)),
    }
}

/// The five-minute sequence, and its scores without loss.
pub struct Speech {
    variant: Variant,
    segments: Vec<Segment>,
    digest: u64,
    /// All recordings, for other variants.
    recordings: Arc<Recordings>,
}

/// Recordings as read, in the order of [`Voices::files`].
#[derive(Default)]
struct Recordings {
    librispeech: Vec<Vec<i16>>,
    languages: Vec<Vec<i16>>,
}

impl Recordings {
    fn of(&self, voices: Voices) -> &[Vec<i16>] {
        match voices {
            Voices::Librispeech => &self.librispeech,
            Voices::Languages => &self.languages,
        }
    }
}

struct Segment {
    /// The speech before coding.
    original: Vec<i16>,
    /// The decoder's output if no packet is missed.
    coded: Vec<i16>,
    /// Score of the coded segment without any loss.
    clean: OnceLock<Result<Option<Score>, PesqError>>,
}

impl fmt::Debug for Speech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Speech({}, {:016x})", self.variant, self.digest)
    }
}

impl Speech {
    /// Reads the project's recordings in `folder`.
    ///
    /// # Errors
    ///
    /// [`Error::Speech`] names the file that is missing, too short, or no speech.
    pub fn load(folder: &Path, variant: Variant) -> Result<Speech, Error> {
        let read = |voices: Voices| -> Result<Vec<_>, Error> {
            voices.files().iter().map(|name| read(folder.join(name), voices)).collect()
        };
        let recordings = Recordings {
            librispeech: read(Voices::Librispeech)?,
            languages: read(Voices::Languages)?,
        };
        Speech::of(variant, Arc::new(recordings))
            .map_err(|why| Error::Speech { path: folder.to_owned(), why: why.to_string() })
    }

    /// Another variant from the recordings of the same folder.
    ///
    /// # Errors
    ///
    /// If a recording contains no speech.
    pub fn variant(&self, variant: Variant) -> Result<Speech, PesqError> {
        Speech::of(variant, Arc::clone(&self.recordings))
    }

    fn of(variant: Variant, recordings: Arc<Recordings>) -> Result<Speech, PesqError> {
        let (samples, gap) = variant.voices.share();
        let mut pcm = Vec::with_capacity(SEGMENTS * SAMPLES);
        for recording in recordings.of(variant.voices) {
            pcm.extend_from_slice(&variant.filter.apply(recording)?[..samples]);
            pcm.resize(pcm.len() + gap, 0);
        }
        // Fills up the remainder of the division into shares.
        pcm.resize(SEGMENTS * SAMPLES, 0);
        // Includes the recordings, since an experiment may play other variants.
        let all = recordings.librispeech.iter().chain(&recordings.languages).flatten();
        let digest = fnv1a(pcm.iter().chain(all).flat_map(|s| s.to_le_bytes()));
        let segments = pcm.chunks_exact(SAMPLES).map(Segment::new).collect();
        Ok(Speech { variant, segments, digest, recordings })
    }

    /// The voices and filter that this speech was made with.
    pub fn which(&self) -> Variant {
        self.variant
    }

    /// Digest of the samples that are played, and of all recordings.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Number of segments in the sequence.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Score of segment `n` if no packet is missed; segments repeat from the first.
    ///
    /// # Errors
    ///
    /// If PESQ can't compare it.
    pub fn lossless(&self, n: usize) -> Result<Option<Score>, PesqError> {
        let segment = &self.segments[n % self.segments.len()];
        segment.score(&segment.coded)
    }

    /// Scores of one listener: packet `k` is missed if `missed[k]`, and the first packet is the
    /// first of segment `start`. Only whole segments are scored; a score is `None` where there is
    /// no speech. `decoder` is a fresh one for µ-law, and conceals missed packets.
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
        // Decoder output that has not been scored yet. It lags, so that a segment is complete when
        // the next one's first frame is.
        let mut pcm: Vec<i16> = Vec::with_capacity(SAMPLES + FRAME + lag);
        let mut scores = Vec::with_capacity(count);
        for n in 0..count {
            let codes = &segment(n).coded;
            for (k, coded) in codes.chunks_exact(FRAME).enumerate() {
                let mut frame = [0; FRAME];
                if missed[n * PACKETS + k] {
                    decoder.conceal(&mut frame);
                } else {
                    // A decoded sample codes to the same value, so this equals coding the original
                    // again, and is faster.
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

/// Reads a recording, which must be at least as long as its share.
fn read(path: PathBuf, voices: Voices) -> Result<Vec<i16>, Error> {
    let bad = |why: String| Error::Speech { path: path.clone(), why };
    let bytes = std::fs::read(&path).map_err(|e| {
        bad(format!("{e}: --speech must name the folder with the project's recordings"))
    })?;
    let pcm = read_wav(Cursor::new(bytes)).map_err(|e| bad(e.to_string()))?;
    let (needed, seconds) = (voices.share().0, |samples: usize| samples as f64 / 8_000.0);
    if pcm.len() < needed {
        let (there, needed) = (seconds(pcm.len()), seconds(needed));
        return Err(bad(format!("{there:.1} s of speech are too short: {needed:.1} s are needed")));
    }
    Ok(pcm)
}

fn encode(pcm: &[i16]) -> [u8; FRAME] {
    core::array::from_fn(|i| Law::Mu.encode(pcm[i]))
}

impl Segment {
    fn new(original: &[i16]) -> Segment {
        let coded = original.iter().map(|&s| Law::Mu.decode(Law::Mu.encode(s))).collect();
        Segment { original: original.to_vec(), coded, clean: OnceLock::new() }
    }

    /// Score of the speech as heard. Most segments of a call whose losses are recovered sound as if
    /// nothing had been lost: their score is computed once.
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

    /// Two segments of a buzz that starts and stops.
    fn buzz() -> Speech {
        let sample = |n: usize| {
            let tone: f64 = (1..10).map(|k| libm::sin((n * k) as f64 * 0.09)).sum();
            (900.0 * tone * libm::sin(n as f64 / 1_700.0).max(0.0)) as i16
        };
        let pcm: Vec<i16> = (0..2 * SAMPLES).map(sample).collect();
        let segments = pcm.chunks_exact(SAMPLES).map(Segment::new).collect();
        let (variant, recordings) = (Variant::default(), Arc::default());
        Speech { variant, segments, digest: 0, recordings }
    }

    type Scores = Result<Vec<Option<Score>>, PesqError>;

    fn heard(speech: &Speech, missed: &[bool], start: usize) -> Scores {
        speech.listen(missed, start, &mut Concealing::new(Law::Mu))
    }

    /// The same scores through the playout that the demonstration uses.
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
        // Losses within a segment, across a boundary, and at both ends.
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

    /// Each voice's samples are a distinct number: each is played for the same time, in order, and
    /// the rest is silence.
    #[test]
    fn everyone_is_heard_for_as_long() {
        let voice = |n: usize| vec![n as i16 + 1; 14 * 8_000];
        let recordings = Recordings {
            librispeech: (0..22).map(voice).collect(),
            languages: (0..5).map(|n| voice(n).repeat(5)).collect(),
        };
        let recordings = Arc::new(recordings);
        for voices in [Voices::Librispeech, Voices::Languages] {
            let variant = Variant { voices, filter: Filter::None };
            let speech = Speech::of(variant, Arc::clone(&recordings)).unwrap();
            assert_eq!(speech.len(), SEGMENTS);
            let pcm: Vec<i16> = speech.segments.iter().flat_map(|s| s.original.clone()).collect();
            let (samples, gap) = voices.share();
            for (n, share) in pcm.chunks_exact(samples + gap).enumerate() {
                assert!(share[..samples].iter().all(|&s| s == n as i16 + 1), "{n}");
                assert!(share[samples..].iter().all(|&s| s == 0), "{n}");
            }
        }
        assert_eq!(
            (Voices::Librispeech.share(), Voices::Languages.share()),
            ((105_090, 4_000), (480_000, 0))
        );
        // A constant is no speech, and can't be levelled.
        let filtered = Speech::of(Variant::default(), recordings);
        assert!(filtered.is_err_and(|e| e == PesqError::NoSpeech));
    }

    #[test]
    fn a_missing_recording_is_named() {
        let error = Speech::load(Path::new("/nowhere"), Variant::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("/nowhere/librispeech/87-") && error.contains("--speech"));
    }
}
