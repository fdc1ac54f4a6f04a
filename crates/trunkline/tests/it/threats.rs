//! The threat model names a test or a case for what it says.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a test `file::name` exists: an integration test of a crate, or one beside its code.
fn is_test(file: &str, name: &str) -> bool {
    let folders =
        ["sim/tests/it", "trunkline/tests/it", "gateway/src", "overlay/src/link/realtime/sender"];
    folders.into_iter().any(|folder| {
        let path = root().join(format!("crates/{folder}/{file}.rs"));
        fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("fn {name}()")))
    })
}

#[test]
fn each_line_of_the_threat_model_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let (_, section) = text.split_once("## Attackers and traffic").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let named = section.lines().filter(|line| line.starts_with('|'));
    let named: Vec<_> = named.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let cases = ["net/", "security/"];
    let mut count = 0;
    for name in named {
        let found = match name.split_once("::") {
            Some((file, test)) => is_test(file, test),
            None if cases.iter().any(|family| name.starts_with(family)) => {
                root().join("tests/cases").join(name).join("run.sh").exists()
            }
            None => continue,
        };
        assert!(found, "docs/threat-model.md names {name}, which does not exist");
        count += 1;
    }
    assert!(count > 25, "{count} tests named");
}
