//! G.726 against the test sequences of the ITU-T Software Tool Library (G.191): an input of normal
//! level in each law, its codes at each rate, and those decoded; and the effect of rate changes on
//! speech.
//!
//! Neither the sequences nor the speech are part of this project. They are read from
//! `$TRUNKLINE_DATA`, or else from `shared/data` next to the workspace.

use std::path::{Path, PathBuf};

use trunkline_media::audio::read_wav;
use trunkline_media::codec::g711::Law;
use trunkline_media::codec::g726::{Decoder, Encoder, Packing, Rate};

#[expect(clippy::disallowed_methods, reason = "a test has to find its data")]
fn reference() -> Option<PathBuf> {
    let root = std::env::var("TRUNKLINE_DATA").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = root.join("codec/g726");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no reference data");
    None
}

/// Reads one code from the low byte of each word.
fn codes(path: PathBuf) -> Vec<u8> {
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(2).map(|word| word[0]).collect()
}

const LAWS: [(Law, &str); 2] = [(Law::A, "a"), (Law::Mu, "m")];

#[track_caller]
fn assert_same(got: &[u8], want: &[u8], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let wrong = got.iter().zip(want).position(|(g, w)| g != w);
    assert_eq!(wrong.map(|i| (i, got[i], want[i])), None, "{what}");
}

#[test]
fn all_codes_are_the_itus() {
    let Some(folder) = reference() else { return };
    for (law, letter) in LAWS {
        let pcm = codes(folder.join(format!("nrm.{letter}")));
        assert_eq!(pcm.len(), 16_384);
        for rate in Rate::ALL {
            let name = format!("rn{}f{letter}", rate.bits() * 8);
            let want = codes(folder.join(format!("{name}.i")));
            let mut encoder = Encoder::new(law, rate, Packing::Rtp);
            let got: Vec<u8> = pcm.iter().map(|&code| encoder.encode(code)).collect();
            assert_same(&got, &want, &format!("{name}: codes"));

            let heard = codes(folder.join(format!("{name}.o")));
            let mut decoder = Decoder::new(law, rate, Packing::Rtp);
            let got: Vec<u8> = want.iter().map(|&code| decoder.decode(code)).collect();
            assert_same(&got, &heard, &format!("{name}: decoded"));
        }
    }
}
/// Samples in 2.5 ms at 8 kHz.
const BLOCK: usize = 20;
/// Number of blocks in 20 ms.
const BLOCKS: usize = 8;
/// Maximum excess noise, in dB, of a block after a rate change over the same block at the lower of
/// both rates throughout. It is segmental, as codecs are compared: the mean of each block's own
/// noise in dB, so that no loud block hides the others.
const WORSE: f64 = 0.5;
/// Lower limit of a block's noise, the smallest step of A-law, so that nearly exact blocks don't
/// dominate.
const FLOOR: f64 = 8.0 * 8.0 * BLOCK as f64;
/// Blocks below this RMS are pauses.
const PAUSE: f64 = 250.0;

fn energy(samples: &[f64]) -> f64 {
    samples.iter().map(|s| s * s).sum()
}

/// The decoding errors; `rate_at` gives the rate of each sample.
fn errors(pcm: &[u8], rate_at: impl Fn(usize) -> Rate) -> Vec<f64> {
    let law = Law::A;
    let mut encoder = Encoder::new(law, rate_at(0), Packing::Rtp);
    let mut decoder = Decoder::new(law, rate_at(0), Packing::Rtp);
    let error = |(n, &code): (usize, &u8)| {
        encoder.set_rate(rate_at(n));
        decoder.set_rate(rate_at(n));
        let heard = decoder.decode(encoder.encode(code));
        f64::from(law.decode(heard)) - f64::from(law.decode(code))
    };
    pcm.iter().enumerate().map(error).collect()
}

/// 40 s of speech, in which the rate changes by one step for 20 ms of every 100.
#[test]
fn speech_is_no_worse_after_a_change_of_rate() {
    let Some(folder) = reference() else { return };
    let path = folder.join("../../speech/dev_8k.wav");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let speech = read_wav(&bytes[..]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut pcm = Vec::new();
    Law::A.encode_to(&speech[..40 * 8_000], &mut pcm);
    let said: Vec<f64> = pcm.iter().map(|&c| f64::from(Law::A.decode(c))).collect();
    let steady = Rate::ALL.map(|rate| errors(&pcm, |_| rate));

    for (low, high) in [(0, 1), (1, 2), (2, 3)] {
        for (from, to) in [(low, high), (high, low)] {
            let changed = |n: usize| n / (BLOCK * BLOCKS) % 5 == 2;
            let got = errors(&pcm, |n| Rate::ALL[if changed(n) { to } else { from }]);
            let (mut decibels, mut count) = ([0.0; BLOCKS], 0);
            let (mut after, mut before) = ([0.0; BLOCKS], [0.0; BLOCKS]);
            for start in (0..pcm.len()).step_by(BLOCK).filter(|&n| changed(n)) {
                let range = start..start + BLOCK;
                if energy(&said[range.clone()]) < PAUSE * PAUSE * BLOCK as f64 {
                    continue;
                }
                let block = start / BLOCK % BLOCKS;
                let noise = energy(&got[range.clone()]) + FLOOR;
                let usual = energy(&steady[low][range]) + FLOOR;
                decibels[block] += 10.0 * (noise / usual).log10();
                (after[block], before[block]) = (after[block] + noise, before[block] + usual);
                count += usize::from(block == 0);
            }
            let worse = decibels.map(|sum| sum / count as f64);
            let sums: Vec<f64> =
                after.iter().zip(&before).map(|(a, b)| 10.0 * (a / b).log10()).collect();
            let (from, to) = (Rate::ALL[from], Rate::ALL[to]);
            println!("{from:?} to {to:?}, {count} times: {worse:.2?} dB; of all noise {sums:.1?}");
            assert!(count > 100, "too little speech");
            assert!(worse.iter().all(|&w| w <= WORSE), "{from:?} to {to:?}: {worse:.2?} dB");
        }
    }
}
