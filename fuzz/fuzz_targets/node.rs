//! A whole node among hostile neighbours and applications; see
//! `trunkline_fuzz::node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::node::run(script));
