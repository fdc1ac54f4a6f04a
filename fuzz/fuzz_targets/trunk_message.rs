//! Nothing that a node says of a trunk makes its parser panic, and what it accepts is
//! what the emitter writes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::wire::trunk_message(bytes));
