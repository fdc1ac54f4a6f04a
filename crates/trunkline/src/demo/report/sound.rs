//! Recordings embedded in the page.

use super::super::score::Heard;
use super::super::traffic::Kind;
use super::{count, title};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trunkline_media::audio::{RATE, write_wav};
use trunkline_media::playout::Fate;

/// Seconds of a call that are embedded, at most.
pub const LONGEST: u32 = 60;

/// Seconds of a service that are embedded, at most: two calls of a minute. All five services then
/// take 12.9 MB, which a phone can still open.
const TOTAL: u32 = 120;

/// Recording of one call over one service.
pub struct Clip {
    /// Number of the call, from 1.
    pub call: usize,
    pub speaker: String,
    pub service: &'static str,
    pub name: &'static str,
    /// Description of the call's losses.
    pub caption: String,
    /// The WAV file, in base64.
    pub wav: String,
    /// One letter for each packet's fate; report.js uses the same letters.
    pub fates: String,
}

/// Selects the calls to embed, by number, and renders their clips, by service.
pub fn clips(heard: &[Heard], speakers: &[String]) -> (Vec<usize>, Vec<Clip>) {
    let samples = heard.iter().map(|h| h.pcm.len()).max().unwrap_or(0);
    let seconds = samples.div_ceil(RATE as usize).clamp(1, LONGEST as usize);
    let calls = heard.iter().map(|h| h.call + 1).max().unwrap_or(0);
    let calls: Vec<usize> = (1..=calls.min(TOTAL as usize / seconds)).collect();
    let last = calls.len();
    let of = |kind| heard.iter().filter(move |h| h.kind == kind && h.call < last);
    // The overlay's real-time service comes first.
    let order = [Kind::RealTime, Kind::Trunk, Kind::Once, Kind::BestEffort, Kind::Udp];
    let clips = order.into_iter().flat_map(of).map(|h| clip(h, &speakers[h.call])).collect();
    (calls, clips)
}

fn clip(heard: &Heard, speaker: &str) -> Clip {
    let seconds = LONGEST as usize;
    let pcm = &heard.pcm[..heard.pcm.len().min(seconds * RATE as usize)];
    let fates = &heard.fates[..heard.fates.len().min(seconds * 50)];
    let mut wav = std::io::Cursor::new(Vec::new());
    // Writing to memory fails only for four hours or more.
    let _ = write_wav(&mut wav, pcm);
    Clip {
        call: heard.call + 1,
        speaker: speaker.to_owned(),
        service: heard.kind.name(),
        name: title(heard.kind),
        caption: caption(heard),
        wav: STANDARD.encode(wav.into_inner()),
        fates: fates.iter().map(|f| letter(*f)).collect(),
    }
}

fn letter(fate: Fate) -> char {
    match fate {
        Fate::Played => '.',
        Fate::Recovered => 'r',
        Fate::Late => 'l',
        Fate::Lost => 'x',
    }
}

fn caption(heard: &Heard) -> String {
    let number = |fate| heard.fates.iter().filter(|f| **f == fate).count() as u64;
    let mut parts = vec![format!(
        "{} of {} packets lost",
        count(number(Fate::Lost)),
        count(heard.fates.len() as u64)
    )];
    for (fate, what) in [(Fate::Late, "late"), (Fate::Recovered, "recovered")] {
        if number(fate) > 0 {
            parts.push(format!("{} {what}", count(number(fate))));
        }
    }
    let scores: Vec<f64> = heard.scores.iter().flatten().map(|s| s.raw).collect();
    if !scores.is_empty() {
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        parts.push(format!("PESQ {mean:.2}"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(kind: Kind, call: usize, seconds: usize) -> Heard {
        let pcm = vec![0; seconds * 8_000];
        Heard { kind, call, pcm, fates: vec![Fate::Recovered; seconds * 50], scores: vec![] }
    }

    #[test]
    fn a_page_of_long_calls_stays_small() {
        let many = |calls, seconds| {
            let of = |kind| (0..calls).map(move |call| heard(kind, call, seconds));
            let (numbers, clips) = clips(
                &Kind::ALL.into_iter().flat_map(of).collect::<Vec<_>>(),
                &vec![String::new(); calls],
            );
            let size: usize = clips.iter().map(|c| c.wav.len() + c.fates.len()).sum();
            assert!(size < 13_000_000, "{calls} calls of {seconds} s: {size} bytes");
            (numbers.len(), clips.len(), clips[0].fates.len())
        };
        assert_eq!(many(3, 3), (3, 15, 150));
        assert_eq!(many(4, 60), (2, 10, 3_000));
        assert_eq!(many(3, 300), (2, 10, 3_000));
        assert_eq!(many(1, 1), (1, 5, 50));
    }

    #[test]
    fn a_caption_counts() {
        let mut one = heard(Kind::RealTime, 0, 1);
        one.fates[..3].copy_from_slice(&[Fate::Lost, Fate::Late, Fate::Lost]);
        assert_eq!(caption(&one), "2 of 50 packets lost, 1 late, 47 recovered");
    }
}
