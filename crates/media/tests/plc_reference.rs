//! Concealment against the output of the ITU-T Software Tool Library's program for G.711 Appendix
//! I, on speech with three patterns of erased frames.
//!
//! The recordings are not part of this project. They are read from `$TRUNKLINE_DATA`, or else from
//! `shared/data` next to the workspace.

use std::path::{Path, PathBuf};

use trunkline_media::audio::read_wav;
use trunkline_media::conceal::{Concealer, DELAY};

/// Samples in 10 ms at 8 kHz.
const FRAME: usize = 80;

#[expect(clippy::disallowed_methods, reason = "a test has to find its data")]
fn reference() -> Option<PathBuf> {
    let root = std::env::var("TRUNKLINE_DATA").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = root.join("codec/plc");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no reference data");
    None
}

fn wav(folder: &Path, name: &str) -> Vec<i16> {
    let bytes = std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    read_wav(&bytes[..]).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The output for `speech`, without the delay.
fn conceal(speech: &[i16], lost: &[bool]) -> Vec<i16> {
    let mut concealer = Concealer::new();
    let mut out = speech.to_vec();
    for (frame, &lost) in out.chunks_mut(FRAME).zip(lost) {
        if lost {
            frame.fill(0);
            concealer.lost(frame);
        } else {
            concealer.received(frame);
        }
    }
    out.extend([0; DELAY]);
    let end = out.len() - DELAY;
    concealer.flush(&mut out[end..]);
    out.split_off(DELAY)
}

/// Largest difference of a sample. The reference seems to fade in floating point and to round when
/// it plays (a trial of that came closer still); this implementation rounds to 16 bits after each
/// fade, and its quotients are exact where the sum of binary fractions falls just short of a whole
/// number. Each can cost 1.
const WORST: f64 = 1.0;
/// RMS difference over the whole recording, in steps of 16-bit samples.
const RMS: f64 = 0.04;

#[test]
fn the_gaps_sound_as_the_itus() {
    let Some(folder) = reference() else { return };
    let speech = wav(&folder, "in.wav");
    for pattern in ["rand5", "burst10", "pkt20ms5"] {
        let path = folder.join(format!("{pattern}.txt"));
        let flags = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        let lost: Vec<bool> = flags.trim().chars().map(|c| c == '1').collect();
        let want = wav(&folder, &format!("{pattern}.plc.wav"));
        assert_eq!(lost.len() * FRAME, want.len());

        let got = conceal(&speech, &lost);
        let off: Vec<f64> =
            got.iter().zip(&want).map(|(&a, &b)| f64::from(a) - f64::from(b)).collect();
        let worst = off.iter().fold(0.0, |m: f64, d| m.max(d.abs()));
        let differ = off.iter().filter(|d| **d != 0.0).count();
        let rms = |d: &[f64]| (d.iter().map(|d| d * d).sum::<f64>() / d.len() as f64).sqrt();
        let changed: Vec<f64> = speech
            .iter()
            .zip(&want)
            .map(|(&a, &b)| f64::from(a) - f64::from(b))
            .filter(|d| *d != 0.0)
            .collect();
        println!(
            "{pattern:<9} {} of {} frames lost: worst {worst}, RMS {:.4}, {differ} samples differ \
             of {} that the reference changes by an RMS of {:.0}",
            lost.iter().filter(|l| **l).count(),
            lost.len(),
            rms(&off),
            changed.len(),
            rms(&changed),
        );
        assert!(worst <= WORST, "{pattern}: off by {worst}");
        assert!(rms(&off) <= RMS, "{pattern}: RMS {}", rms(&off));
    }
}
