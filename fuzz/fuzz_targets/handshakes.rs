//! Two nodes that agree on keys over a network that a script controls, and
//! that forges, too.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::handshake::run(bytes));
