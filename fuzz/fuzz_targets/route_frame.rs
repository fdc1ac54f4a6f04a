//! No frame makes the parsers of link-state routing panic, and what they accept
//! is what the emitters write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::route::frame(bytes));
