//! Nothing that comes from another host makes either end of a remote session
//! panic, and what an end accepts is what the other writes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trunkline_fuzz::wire::remote_message(bytes));
