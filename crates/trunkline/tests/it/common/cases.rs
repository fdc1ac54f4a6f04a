//! The cases of tests/cases, as tests.

use super::emulator::skip;
use std::path::Path;
use std::process::Command;

/// Runs a case; it must pass. Skips where the machine can't run it, except in CI for a missing
/// tool.
pub fn passes(case: &str) {
    let program = env!("CARGO_BIN_EXE_trunkline");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/run");
    let ran = Command::new(cases)
        .args(["--trunkline", program, "--lab", program, case])
        .output()
        .expect("the cases run");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    match ran.status.code() {
        Some(0) => println!("{said}"),
        Some(78) => skip(&said),
        Some(77) if std::env::var_os("CI").is_none() => skip(&said),
        code => panic!("{case} ended with {code:?}:\n{said}"),
    }
}
