//! Writes pairs of recordings with the scores of this project's PESQ, to compare with another
//! implementation; scripts/pesq-check.sh does so.
//!
//! `cargo run --release -p trunkline-lab --example pesq OUT FILE.wav...` takes the first 12 s of
//! each file, as recorded and as a telephone sends them, and loses 0, 1, 5 and 10 % of the packets.
//! For each it writes NAME.ref.wav, NAME.deg.wav and a line in scores.csv.

use std::error::Error;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use trunkline_base::Time;
use trunkline_base::link_model::{Impairment, LinkModel, Loss, Verdict};
use trunkline_media::audio::{read_wav, write_wav};
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::playout::{Config, Playout};
use trunkline_media::quality::pesq;
use trunkline_media::telephone;

/// Samples in a packet, and in 12 s.
const FRAME: usize = 160;
const SAMPLES: usize = 96_000;
const LOSSES: [f64; 4] = [0.0, 0.01, 0.05, 0.10];

#[expect(clippy::disallowed_methods, reason = "a program has arguments")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().ok_or("give a folder to write to, and WAV files")?;
    let out = Path::new(&out);
    fs::create_dir_all(out)?;
    let mut scores = "name,raw\n".to_owned();
    for (n, file) in arguments.enumerate() {
        let recorded = read_wav(fs::read(&file)?.as_slice())?;
        let sent = telephone::sent(&recorded).ok_or("nobody speaks")?.pcm;
        let stem = Path::new(&file).file_stem().ok_or("no file")?.to_string_lossy();
        for (filter, pcm) in [("none", &recorded), ("irs", &sent)] {
            let said = pcm.get(..SAMPLES).ok_or("12 s are needed")?;
            for loss in LOSSES {
                let heard = hear(said, loss, n as u64)?;
                let name = format!("{stem}-{filter}-{}", 100.0 * loss);
                let write = |kind: &str, pcm: &[i16]| -> Result<(), Box<dyn Error>> {
                    let mut wav = Cursor::new(Vec::new());
                    write_wav(&mut wav, pcm)?;
                    Ok(fs::write(out.join(format!("{name}.{kind}.wav")), wav.into_inner())?)
                };
                write("ref", said)?;
                write("deg", &heard)?;
                scores += &format!("{name},{:.4}\n", pesq::score(said, &heard)?.raw);
            }
        }
    }
    Ok(fs::write(out.join("scores.csv"), scores)?)
}

/// Codes `said` as µ-law and returns it as heard when a share `p` of the packets is lost and
/// concealed.
fn hear(said: &[i16], p: f64, seed: u64) -> Result<Vec<i16>, Box<dyn Error>> {
    let loss = if p > 0.0 { Loss::Bernoulli { p } } else { Loss::None };
    let mut network = Impairment::new(LinkModel { loss, ..LinkModel::default() }, seed, 0)?;
    let mut playout = Playout::new(Config { first_sequence: Some(0), ..Config::default() });
    for (k, frame) in said.chunks_exact(FRAME).enumerate() {
        let now = Time::from_millis(20 * k as u64);
        if matches!(network.offer(now, FRAME), Verdict::Deliver(_)) {
            let codes: Vec<u8> = frame.iter().map(|&s| Law::Mu.encode(s)).collect();
            playout.receive(k as u16, Duration::ZERO, false, &codes)?;
        }
    }
    Ok(playout.finish(Some(said.len() / FRAME), &mut Concealing::new(Law::Mu)).pcm)
}
