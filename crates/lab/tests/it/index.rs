//! ARCHITECTURE.md's index from papers to figures.

use std::fs;
use trunkline_lab::papers;

/// Every name in the last column is one for `trunkline-lab run`.
#[test]
fn the_index_names_existing_figures() {
    let text = fs::read_to_string("../../ARCHITECTURE.md").unwrap();
    let (_, index) = text.split_once("## Where each paper's ideas live").unwrap();
    let (index, _) = index.split_once("\n## ").unwrap();
    let cells = index.lines().filter_map(|line| line.trim_end_matches(" |").rsplit_once(" | "));
    let names: Vec<&str> = cells
        .flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.contains("/") && !name.starts_with("overlay/tests/"))
        .collect();
    assert!(names.len() > 60, "{names:?}");
    let wrong: Vec<String> =
        names.iter().filter_map(|name| papers().find(name).err()).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
