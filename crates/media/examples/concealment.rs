//! The benefit of concealment: PESQ of the speech that ships with trunkline, over G.711 in 20 ms
//! packets with losses, which are replaced by silence or concealed by G.711 Appendix I.
//!
//! Run `cargo run --release -p trunkline-media --example concealment`; it takes a minute or two.
//! Scores compare with the speech before coding, in segments of 12 s.

use std::error::Error;
use std::time::Duration;

use trunkline_base::Time;
use trunkline_base::link_model::{Impairment, LinkModel, Loss, PacketFate};
use trunkline_media::audio::read_wav;
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::playout::{Config, Decoder, Playout};
use trunkline_media::quality::emodel::{self, Codec, Parameters};
use trunkline_media::quality::pesq::{self, SEGMENT, Score, Summary, summarize};

const SPEECH: [(&str, &[u8]); 5] = [
    ("en-allison", include_bytes!("../../../speech/en-allison.wav")),
    ("es-allison", include_bytes!("../../../speech/es-allison.wav")),
    ("fr-june", include_bytes!("../../../speech/fr-june.wav")),
    ("it-carlo", include_bytes!("../../../speech/it-carlo.wav")),
    ("ru-ivrvoice", include_bytes!("../../../speech/ru-ivrvoice.wav")),
];
/// Number of loss patterns per recording.
const SEEDS: u64 = 4;
const PACKET: usize = 160;

type Scores = Vec<Option<Score>>;

/// The losses among `packets` packets at a loss rate of `share`.
fn lost(share: f64, seed: u64, packets: usize) -> Result<Vec<bool>, Box<dyn Error>> {
    let model = LinkModel { loss: Loss::Bernoulli { p: share }, ..LinkModel::default() };
    let mut path = Impairment::new(model, seed, 0)?;
    let mut offer = |i| matches!(path.offer(Time::from_millis(20 * i), 200), PacketFate::Drop(_));
    Ok((0..packets as u64).map(&mut offer).collect())
}

fn heard(pcm: &[i16], lost: &[bool], decoder: &mut impl Decoder) -> Result<Scores, Box<dyn Error>> {
    let mut playout = Playout::new(Config { first_sequence: Some(0), ..Config::default() });
    let mut payload = Vec::new();
    for (k, packet) in pcm.chunks_exact(PACKET).enumerate().filter(|(k, _)| !lost[*k]) {
        payload.clear();
        Law::Mu.encode_to(packet, &mut payload);
        playout.receive(k as u16, Duration::ZERO, false, &payload)?;
    }
    let played = playout.finish(Some(lost.len()), decoder);
    Ok(pesq::segments(&pcm[..played.pcm.len()], &played.pcm, SEGMENT)?)
}

fn show(sum: Option<Summary>) -> String {
    sum.map_or("no speech".to_owned(), |s| {
        format!("{:>6.3} {:>6.3} {:>8.3}", s.mean.raw, s.p5.raw, s.mean.mos_lqo)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let voices: Vec<Vec<i16>> =
        SPEECH.iter().map(|(_, wav)| read_wav(*wav)).collect::<Result<_, _>>()?;
    println!("G.711, µ-law, nothing lost   raw: mean     p5  MOS-LQO");
    let mut all = Vec::new();
    for ((name, _), pcm) in SPEECH.iter().zip(&voices) {
        let scores = heard(pcm, &vec![false; pcm.len() / PACKET], &mut { Law::Mu })?;
        println!("{name:<34} {}", show(summarize(scores.iter().copied())));
        all.extend(scores);
    }
    println!("{:<34} {}\n", "all", show(summarize(all)));

    println!("               silence:                Appendix I:            E-model's MOS");
    println!("lost %  segs     mean     p5  MOS-LQO    mean     p5  MOS-LQO   silence  App. I");
    for percent in [1, 3, 5, 10] {
        let (mut silence, mut concealed) = (Vec::new(), Vec::new());
        for seed in 0..SEEDS {
            for (voice, pcm) in voices.iter().enumerate() {
                let seed = 100 * voice as u64 + seed;
                let lost = lost(f64::from(percent) / 100.0, seed, pcm.len() / PACKET)?;
                silence.extend(heard(pcm, &lost, &mut { Law::Mu })?);
                concealed.extend(heard(pcm, &lost, &mut Concealing::new(Law::Mu))?);
            }
        }
        let mos = |codec| {
            let p = Parameters::default().with_codec(codec);
            emodel::rate(&p.with_loss(f64::from(percent) / 100.0, 1.0)).mos()
        };
        println!(
            "{percent:>6}  {:>4}   {}  {}      {:.2}    {:.2}",
            silence.iter().flatten().count(),
            show(summarize(silence)),
            show(summarize(concealed)),
            mos(Codec::G711),
            mos(Codec::G711_PLC)
        );
    }
    Ok(())
}
