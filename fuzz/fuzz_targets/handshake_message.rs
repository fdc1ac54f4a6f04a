//! No datagram makes the parsers of the handshake, of its payload or of
//! certificates panic, and what they accept is what the emitters write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::handshake::message(bytes));
