//! A sender and a receiver of TFRC that hear anything, on a clock that jumps; see
//! `trunkline_fuzz::tfrc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::tfrc::run(script));
