//! The command `trunkline-lab phones`.

use serde_json::json;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline_lab::phones::{self, Demo, Direction};
use trunkline_lab::speech;
use trunkline_lab::{Error, scenario};
use trunkline_media::audio::read_wav;

/// Programs that a call between phones needs.
const PROGRAMS: [&str; 2] = ["baresip", "sysctl"];

/// Have two real telephones call each other, with and without the overlay, and score the speech
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Two headless baresips at two sites, with a network namespace for each host; the path
between the sites loses packets. One call takes the path directly, one goes through a
`trunkline node` with [sip] at each site. The packets that reach each phone are played out
with a jitter buffer of 60 ms and concealment, and scored by PESQ (P.862; 4.5 is no
difference) against the recording that the other phone played.

Examples:
  sudo trunkline-lab phones
  sudo trunkline-lab phones --loss 10% --seconds 60 --json

Exit status: 0; 2 if a program is missing, failed, or lacks a permission: this
needs root, baresip, ip and nft (scripts/setup.sh).")]
pub struct Phones {
    /// Share of packets that the path loses in each direction
    #[arg(long, default_value = "5%", value_parser = share_of)]
    loss: f64,
    /// Length of the call, in seconds
    #[arg(long, value_name = "N", default_value_t = 25,
          value_parser = clap::value_parser!(u64).range(2..=60))]
    seconds: u64,
    /// Folder of the project's recordings [default: where they were installed, or ./speech]
    #[arg(long, value_name = "DIR")]
    speech: Option<PathBuf>,
    /// Path of the daemon [default: next to this program, or in PATH]
    #[arg(long, value_name = "PATH")]
    trunkline: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

fn share_of(text: &str) -> Result<f64, String> {
    scenario::share(text).ok_or_else(|| "write a share as 5% or 0.05".into())
}

/// Runs `trunkline-lab phones` and returns true, as it judges no claims.
pub fn run(args: &Phones) -> Result<bool, Error> {
    if let Some(what) = phones::missing(&PROGRAMS) {
        return Err(phones::Error::Missing(what).into());
    }
    let trunkline = phones::find(args.trunkline.as_deref())?;
    let folder = args.speech.clone().map_or_else(speech::installed, Ok)?;
    let path = |name: &str| folder.join(format!("{name}.wav"));
    let wavs = [path("en-allison"), path("it-carlo")];
    let pcm = [read(&wavs[0])?, read(&wavs[1])?];
    let demo = Demo {
        trunkline: &trunkline,
        speech: [(&wavs[0], &pcm[0]), (&wavs[1], &pcm[1])],
        loss: args.loss,
        talk: Duration::from_secs(args.seconds),
    };
    let scratch = tempfile::tempdir()
        .map_err(|source| phones::Error::Io { what: "make a folder".into(), source })?;
    if !args.json {
        errln!("two phones talk for {} s, twice …", args.seconds);
    }
    let heard = phones::play(&demo, scratch.path())?;
    match args.json {
        true => outln!("{}", serde_json::Value::from_iter(heard.iter().map(row))),
        false => table(args.loss, &heard),
    }
    Ok(true)
}

fn read(path: &Path) -> Result<Vec<i16>, Error> {
    let bad = |why: String| Error::Speech { path: path.into(), why };
    let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    read_wav(Cursor::new(bytes)).map_err(|error| bad(error.to_string()))
}

fn row(one: &Direction) -> serde_json::Value {
    json!({
        "overlay": one.over,
        "way": one.way,
        "sent": one.heard.sent,
        "lost": one.heard.lost,
        "late": one.heard.late,
        "missed_share": one.heard.missed(),
        "pesq": one.heard.score(),
        "pieces": one.heard.scores,
    })
}

fn table(loss: f64, heard: &[Direction]) {
    outln!("{:.1} % of packets are lost on the path in each direction", loss * 100.0);
    outln!("call           direction sent   lost   late  missed %   PESQ  worst 8 s");
    for one in heard {
        let call = if one.over { "over trunkline" } else { "straight" };
        let worst = one.heard.scores.iter().copied().reduce(f64::min);
        let number = |score: Option<f64>| score.map_or("–".into(), |s| format!("{s:.2}"));
        outln!(
            "{call:<14} {:<7} {:>6} {:>6} {:>6} {:>9.2} {:>6} {:>10}",
            one.way,
            one.heard.sent,
            one.heard.lost,
            one.heard.late,
            one.heard.missed() * 100.0,
            number(one.heard.score()),
            number(worst),
        );
    }
}
