//! Two nodes joined by a hostile network; see `trunkline_fuzz::two_nodes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::two_nodes::run(script));
