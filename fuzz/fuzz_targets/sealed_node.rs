//! A whole sealed node between an honest neighbour, a lying one and strangers;
//! see `trunkline_fuzz::sealed_node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| trunkline_fuzz::sealed_node::run(script));
