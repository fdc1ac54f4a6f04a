//! No file makes the WAV reader panic, or return more sound than the file has
//! bytes for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_media::audio;

fuzz_target!(|file: &[u8]| {
    if let Ok(pcm) = audio::read_wav(file) {
        // The lowest rate it takes is 1 kHz: one byte becomes eight samples.
        assert!(pcm.len() <= 8 * file.len());
    }
});
