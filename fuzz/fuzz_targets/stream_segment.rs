//! A node and a neighbour that lies about streams; see `trunkline_fuzz::stream_segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::stream_segment::run(script));
