//! A router among neighbours that say anything; see `trunkline_fuzz::route`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::route::run(script));
