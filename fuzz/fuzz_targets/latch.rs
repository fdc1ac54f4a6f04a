//! The target of this name in `trunkline_fuzz::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| trunkline_fuzz::run(env!("CARGO_BIN_NAME"), input));
