//! No datagram makes the envelope and frame parsers panic, and what they accept
//! is what the emitters write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::wire::envelope(bytes));
