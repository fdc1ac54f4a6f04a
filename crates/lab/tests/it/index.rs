//! ARCHITECTURE.md's index from papers to modules and figures.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trunkline_lab::papers;

/// The index's rows as (module cell, figure cell).
fn rows() -> Vec<(String, String)> {
    let text = fs::read_to_string("../../ARCHITECTURE.md").unwrap();
    let (_, index) = text.split_once("## Where each paper's ideas live").unwrap();
    let (index, _) = index.split_once("\n## ").unwrap();
    let rows = index.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [.., module, figure] = cells[..] else { panic!("{line}") };
        (module != "module").then(|| (module.to_owned(), figure.to_owned()))
    });
    rows.collect()
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Figures of a row; `paper/fig4` to `paper/fig7` are four.
fn figures(cell: &str) -> Vec<String> {
    let is_figure = |name: &&str| name.contains('/') && !name.starts_with("overlay/tests/");
    let mut names: Vec<String> = in_backticks(cell).filter(is_figure).map(str::to_owned).collect();
    for (before, after) in cell.split("` to `").zip(cell.split("` to `").skip(1)) {
        let first = before.rsplit('`').next().unwrap();
        let last = after.split('`').next().unwrap();
        let split = |name: &str| {
            let digits = name.rfind("fig").unwrap() + 3;
            (name[..digits].to_owned(), name[digits..].parse::<u32>().unwrap())
        };
        let ((stem, from), (_, to)) = (split(first), split(last));
        names.extend((from + 1..to).map(|number| format!("{stem}{number}")));
    }
    names
}

/// Every figure in the last column is one for `trunkline-lab run`.
#[test]
fn the_index_names_existing_figures() {
    let names: Vec<String> = rows().iter().flat_map(|(_, cell)| figures(cell)).collect();
    assert!(names.len() > 80, "{names:?}");
    let wrong: Vec<String> =
        names.iter().filter_map(|name| papers().find(name).err()).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The index leads to every figure of the five papers.
#[test]
fn every_figure_of_a_paper_is_in_the_index() {
    let named: BTreeSet<String> = rows().iter().flat_map(|(_, cell)| figures(cell)).collect();
    let all = papers();
    let figures = all.figures().map(|(experiment, figure)| experiment.figure_id(figure));
    let missing: Vec<String> = figures
        .filter(|name| {
            !name.starts_with("beyond/") && !name.ends_with("-testbed") && !named.contains(name)
        })
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// `overlay::link::{ring, reliable::red}` is two modules.
fn expanded(path: &str) -> Vec<String> {
    let Some((stem, rest)) = path.split_once("::{") else { return vec![path.to_owned()] };
    rest.trim_end_matches('}').split(", ").map(|last| format!("{stem}::{last}")).collect()
}

/// Whether the file of a module exists, or its last name is an item of the file that does.
fn exists(path: &str) -> bool {
    let parts: Vec<&str> = path.split("::").collect();
    let source: PathBuf = Path::new("..").join(parts[0]).join("src");
    let file = |parts: &[&str]| {
        let stem = parts.iter().fold(source.clone(), |path, part| path.join(part));
        [stem.with_extension("rs"), stem.join("mod.rs"), stem.join("lib.rs")]
            .into_iter()
            .find(|f| f.exists())
    };
    let (item, module) = parts[1..].split_last().unwrap();
    file(&parts[1..]).is_some()
        || file(module).is_some_and(|f| {
            let text = fs::read_to_string(f).unwrap();
            ["fn", "struct", "enum", "trait"]
                .iter()
                .any(|kind| text.contains(&format!("{kind} {item}")))
        })
}

#[test]
fn the_index_names_existing_modules() {
    let rows = rows();
    let modules: Vec<String> = rows
        .iter()
        .flat_map(|(cell, _)| in_backticks(cell))
        // `LossMode::Paper` is an item of the module named before it.
        .filter(|name| name.contains("::") && !name.starts_with(char::is_uppercase))
        .flat_map(expanded)
        .collect();
    assert!(modules.len() > 80, "{modules:?}");
    let wrong: Vec<&String> = modules.iter().filter(|path| !exists(path)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
