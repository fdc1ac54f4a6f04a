//! No message makes either end of a session panic, and what an end accepts is
//! what the other writes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::wire::session_message(bytes));
