//! See [`trunkline_fuzz::calls`].
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| trunkline_fuzz::calls::run(bytes));
