//! The send filter and the level meter against independent measurements: the response of the
//! Recommendation's own filter, and the results of the ITU-T Software Tool Library's meter for 22
//! recordings.
//!
//! Neither is part of this project. They are read from `$TRUNKLINE_DATA`, or else from
//! `shared/data` next to the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use trunkline_media::audio::read_wav;
use trunkline_media::level;
use trunkline_media::telephone::{self, SendFilter, response};

#[expect(clippy::disallowed_methods, reason = "a test has to find its data")]
fn reference() -> Option<PathBuf> {
    let root = std::env::var("TRUNKLINE_DATA").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = root.join("speech");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no reference data");
    None
}

/// Reads the lines of a table except the first, by field.
fn table(folder: &Path, name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    text.lines().skip(1).map(|line| line.split(',').map(String::from).collect()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn the_filter_is_within_half_a_db_of_the_recommendations() {
    let Some(folder) = reference() else { return };
    let filter = SendFilter::new();
    let rows = table(&folder, "modified_irs_send.csv");
    assert_eq!(rows.len(), 25);
    let (mut worst, mut at) = (0.0, 0.0);
    for row in rows {
        let (hz, db) = (number(&row[0]), number(&row[1]));
        assert_eq!(response(hz), db, "{hz} Hz: the table in the code is another");
        let off = filter.gain(hz) - filter.gain(1_000.0) - db;
        if (200.0..=3_400.0).contains(&hz) && off.abs() > f64::abs(worst) {
            (worst, at) = (off, hz);
        }
    }
    println!("furthest off: {worst:.3} dB at {at} Hz");
    assert!(worst.abs() < 0.5, "{worst} dB at {at} Hz");
}

#[test]
fn the_meter_says_what_the_itus_says() {
    let Some(folder) = reference() else { return };
    let wav = fs::read(folder.join("dev_8k.wav")).unwrap_or_else(|e| panic!("dev_8k.wav: {e}"));
    let pcm = read_wav(&wav[..]).unwrap_or_else(|e| panic!("dev_8k.wav: {e}"));
    let rows = table(&folder, "dev_manifest.csv");
    assert_eq!(rows.len(), 22);
    for row in rows {
        let [samples, offset] = [4, 5].map(|field| number(&row[field]) as usize);
        let level = level::of(&pcm[offset..offset + samples]).expect("speech");
        let off = [
            (level.rms - number(&row[8]), 0.01),
            // The ITU's meter stops interpolating within half a dB of the margin.
            (level.active - number(&row[9]), 0.05),
            (100.0 * level.activity() - number(&row[10]), 0.5),
        ];
        println!("{}: {off:.3?}", row[0]);
        assert!(off.iter().all(|(off, most)| off.abs() < *most), "{}: {off:?}", row[0]);
    }
}

/// Four samples of one recording are clipped, as speech/README.md states.
#[test]
fn of_the_recordings_only_one_is_clipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../speech/librispeech");
    let mut clipped = Vec::new();
    for entry in fs::read_dir(folder).expect("the project's recordings") {
        let path = entry.expect("a file").path();
        let wav = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let pcm = read_wav(&wav[..]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let sent = telephone::sent(&pcm).expect("speech");
        if sent.clipped > 0 {
            clipped.push((path.file_stem().expect("a name").to_owned(), sent.clipped));
        }
    }
    assert_eq!(clipped, [("4195-17507-0000".into(), 4)]);
}
