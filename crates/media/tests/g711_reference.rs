//! G.711 against the test sequences of the ITU-T Software Tool Library (G.191): a sweep of all
//! 16-bit values, its codes, and those decoded.
//!
//! The sequences are not part of this project. They are read from `$TRUNKLINE_DATA`, or else from
//! `shared/data` next to the workspace.

use std::path::{Path, PathBuf};

use trunkline_media::codec::g711::Law;

#[expect(clippy::disallowed_methods, reason = "a test has to find its data")]
fn reference() -> Option<PathBuf> {
    let root = std::env::var("TRUNKLINE_DATA").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = root.join("codec/g711");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no reference data");
    None
}

fn words(path: PathBuf) -> Vec<i16> {
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(2).map(|w| i16::from_le_bytes([w[0], w[1]])).collect()
}

#[test]
fn all_samples_and_codes_are_the_itus() {
    let Some(folder) = reference() else { return };
    let linear = words(folder.join("sweep.src"));
    assert_eq!(linear.len(), 65_536);
    for (law, codes, there_and_back, decoded) in [
        (Law::A, "sweep-r.a", "sweep-r.a-a", "sweep-r.rea"),
        (Law::Mu, "sweep-r.u", "sweep-r.u-u", "sweep-r.reu"),
    ] {
        let want: Vec<u8> = words(folder.join(codes)).iter().map(|&w| w as u8).collect();
        let mut got = Vec::new();
        law.encode_to(&linear, &mut got);
        let wrong = got.iter().zip(&want).position(|(g, w)| g != w);
        assert_eq!(wrong.map(|i| (linear[i], got[i], want[i])), None, "{law:?} codes");

        for file in [there_and_back, decoded] {
            let mut back = Vec::new();
            law.decode_to(&want, &mut back);
            assert!(back == words(folder.join(file)), "{law:?} decoding differs from {file}");
        }
    }
}
