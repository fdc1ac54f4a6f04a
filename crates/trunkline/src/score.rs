//! `trunkline score`, and PESQ for other commands.

use crate::call::{self, read_wav};
use serde::Serialize;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use trunkline_media::audio::RATE;
use trunkline_media::quality::pesq::{self, PesqError, SEGMENT, Score, Summary, summarize};

/// Compare a recording with its original by PESQ (P.862, P.862.1)
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Both files must be of the same length and begin at the same moment, as those of
`trunkline demo` do, and those of a `trunkline call` that plays the whole file once.
Of a call with --duration, use `trunkline call recv --score said.wav`. They are compared at 8 kHz, in pieces
of about 12 s, and as a whole up to 30 s.

The raw score goes from -0.5 to 4.5, where 4.0 is the quality of a telephone
network; MOS-LQO goes from 1 to 4.5.

Example:
  trunkline score said.wav heard.wav")]
pub struct Args {
    /// The original: a WAV file
    reference: PathBuf,
    /// The recording to be scored: a WAV file
    degraded: PathBuf,
    /// Print the scores as JSON
    #[arg(long)]
    json: bool,
}

/// Reason why there is no score.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] call::Error),
    /// The files cannot be compared.
    #[error("{reference} and {degraded}: {why}")]
    Pesq {
        /// Path of the original.
        reference: PathBuf,
        /// Path of the recording.
        degraded: PathBuf,
        /// Reason why they cannot be compared.
        why: PesqError,
    },
}

impl Error {
    /// Exit status: 2 for a mistake in the user's input.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::File(error) => error.exit_code(),
            Error::Pesq { .. } => 1,
        }
    }
}

/// PESQ by segment, for results: raw scores, and their MOS-LQO.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Pesq {
    pub mean: f64,
    pub p5: f64,
    pub segments: usize,
    pub mos_lqo_mean: f64,
    pub mos_lqo_p5: f64,
}

impl From<Summary> for Pesq {
    fn from(s: Summary) -> Pesq {
        Pesq {
            mean: s.mean.raw,
            p5: s.p5.raw,
            segments: s.segments,
            mos_lqo_mean: s.mean.mos_lqo,
            mos_lqo_p5: s.p5.mos_lqo,
        }
    }
}

/// Scores of a whole recording.
#[derive(Serialize)]
struct Whole {
    raw: f64,
    mos_lqo: f64,
}

#[derive(Serialize)]
struct Report {
    seconds: f64,
    /// `None` if the recording is longer than PESQ has been validated for.
    whole: Option<Whole>,
    /// `None` if the reference has no speech.
    pesq: Option<Pesq>,
    /// Raw score of each segment in turn; `None` where the reference is silent.
    scores: Vec<Option<f64>>,
}

/// Maximum length of a recording that is scored as a whole.
const WHOLE: Duration = Duration::from_secs(30);

/// Runs `trunkline score` and prints the result.
pub fn run(args: &Args) -> Result<(), Error> {
    let (reference, degraded) = (read_wav(&args.reference)?, read_wav(&args.degraded)?);
    let report = report(&reference, &degraded).map_err(|why| Error::Pesq {
        reference: args.reference.clone(),
        degraded: args.degraded.clone(),
        why,
    })?;
    if args.json {
        // Numbers and fixed names always serialise.
        outln!("{}", serde_json::to_string(&report).unwrap_or_default());
        return Ok(());
    }
    if let Some(whole) = &report.whole {
        outln!(
            "the whole {:.1} s: PESQ {:.2}, MOS-LQO {:.2}",
            report.seconds,
            whole.raw,
            whole.mos_lqo
        );
    }
    outln!("{}", line(report.pesq));
    Ok(())
}

fn report(reference: &[i16], degraded: &[i16]) -> Result<Report, PesqError> {
    let scores = pesq::segments(reference, degraded, SEGMENT)?;
    let seconds = reference.len() as f64 / f64::from(RATE);
    let whole = (seconds <= WHOLE.as_secs_f64()).then(|| pesq::score(reference, degraded));
    Ok(Report {
        seconds,
        whole: whole.transpose()?.map(|s| Whole { raw: s.raw, mos_lqo: s.mos_lqo }),
        scores: scores.iter().map(|s| s.map(|s| s.raw)).collect(),
        pesq: summarize(scores).map(Pesq::from),
    })
}

/// The result as a sentence for people.
pub fn line(pesq: Option<Pesq>) -> String {
    pesq.map_or("no PESQ: the reference contains no speech".to_owned(), |p| {
        format!(
            "{} segment{}: PESQ mean {:.2}, 5th percentile {:.2}; MOS-LQO mean {:.2}, 5th \
             percentile {:.2}",
            p.segments,
            if p.segments == 1 { "" } else { "s" },
            p.mean,
            p.p5,
            p.mos_lqo_mean,
            p.mos_lqo_p5
        )
    })
}

/// Scores the segments of many pairs of reference and degraded recording, in order. A segment takes
/// 30 ms or more, so all processors share the work.
pub fn all(pairs: &[(&[i16], &[i16])]) -> Result<Vec<Vec<Option<Score>>>, PesqError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some((reference, degraded)) = pairs.get(i) else { return done };
            done.push((i, pesq::segments(reference, degraded, SEGMENT)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut scores = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut scores = work();
        // A panic in a worker is propagated.
        scores.extend(others.into_iter().flat_map(|t| t.join().expect("it does not panic")));
        scores
    });
    scores.sort_unstable_by_key(|(i, _)| *i);
    scores.into_iter().map(|(_, scores)| scores).collect()
}
