//! A sender and a receiver of a trunk under TFMC that hear anything, on a clock that jumps; see
//! `trunkline_fuzz::tfmc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::tfmc::run(script));
