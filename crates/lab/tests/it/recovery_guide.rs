//! Checks that docs/recovery.md quotes existing files, and that its examples give the output shown.

use crate::common::good;
use std::path::{Path, PathBuf};
use trunkline_lab::scenario;
use trunkline_overlay::link::realtime::Recovery;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// The guide's code blocks of this kind, in order.
fn blocks<'a>(guide: &'a str, kind: &str) -> Vec<&'a str> {
    let blocks = guide.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n')).collect()
}

#[test]
fn the_list_and_the_example_are_those_of_the_program() {
    let guide = read("docs/recovery.md");
    let row = |policy: Recovery| format!("| `{}` | {} |", policy.name(), policy.about());
    let listed: Vec<_> = guide.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(listed, Recovery::all().map(row).collect::<Vec<_>>());

    let here = "crates/overlay/src/link/realtime/policy";
    let [file, line] = blocks(&guide, "rust")[..] else { panic!("a file and a line") };
    assert_eq!(file, read(&format!("{here}/twice.rs")));
    assert!(file.lines().count() <= 60, "it is to be short");
    let table = read(&format!("{here}/mod.rs"));
    assert!(table.lines().any(|l| l.trim() == line.trim()), "{line}");

    let [scenario, node] = blocks(&guide, "toml")[..] else { panic!("a scenario and a node") };
    assert_eq!(scenario, read("crates/lab/scenarios/twice.toml"));
    // The parser of node files has its own test that it accepts this.
    assert_eq!(node, "[realtime]\nrecovery = \"twice\"\n");
}

#[test]
fn the_scenario_prints_what_the_guide_shows() {
    let guide = read("docs/recovery.md");
    let dir = tempfile::tempdir().unwrap();
    let scenario = root().join("crates/lab/scenarios/twice.toml");
    let said = good(&["run", scenario.to_str().unwrap(), "--out", dir.path().to_str().unwrap()]);
    let [shown] = blocks(&guide, "text")[..] else { panic!("what comes out") };
    for line in shown.lines() {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

/// By the policy's name in a scenario: p² + p³ − p⁴ of 10 %, where one request leaves 2p² − p³.
#[test]
fn a_scenario_names_its_policy() {
    let text = read("crates/lab/scenarios/twice.toml");
    let missed = |name: &str| {
        let text = text.replace("twice\"", &format!("{name}\"")).replace("2 min", "30 s");
        let scenario = scenario::parse(Path::new("x.toml"), &text).unwrap();
        let table = scenario::simulate(&scenario, None, 1).unwrap();
        let row = table.calls.iter().next().unwrap();
        ["missed_low_pct", "missed_high_pct"].map(|column| row.number(column))
    };
    for (name, expected) in [("off", 10.0), ("once", 1.9), ("twice", 1.09)] {
        let [low, high] = missed(name);
        assert!((low..=high).contains(&expected), "{name}: {low} to {high}");
    }
    assert!(missed("until-deadline")[1] < 0.05);
}
