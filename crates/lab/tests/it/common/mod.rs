#[allow(clippy::disallowed_methods, reason = "it measures the machine")]
#[path = "../../../../trunkline/tests/it/common/on_time.rs"]
pub mod on_time;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder of the project's recordings.
pub fn speech() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../speech")
}

/// A command that runs `trunkline-lab` with these arguments.
pub fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline-lab"));
    command.args(args);
    command
}

/// Runs `trunkline-lab` and returns its output.
pub fn run(args: &[&str]) -> Output {
    lab(args).output().unwrap()
}

/// Runs `trunkline-lab`, which must succeed, and returns its standard output.
#[track_caller]
pub fn good(args: &[&str]) -> String {
    let out = run(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Runs `trunkline-lab`, which must exit with status 2 and print one line that contains all of
/// `says`.
#[track_caller]
pub fn bad(args: &[&str], says: &[&str]) {
    let out = run(args);
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{args:?}: {error}");
    for what in says {
        assert!(error.contains(what), "{args:?}: {error}");
    }
}

/// Every file below `folder`, by path.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        for entry in fs::read_dir(&here).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Asserts that two folders hold the same files, byte for byte.
#[track_caller]
pub fn same(a: &Path, b: &Path) {
    let (a, b) = (tree(a), tree(b));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(*bytes == b[name], "{} differs", name.display());
    }
}
