//! Compares the published results with the stored measurements and with the claims in the code.

use super::judgement::wrong;
use super::take::MAX_ROWS;
use super::{FILE, FOLDER, FigureResult, Parameter, Results, SmallTable, figures, generated, id};
use crate::error::Error;
use crate::experiment::{Experiment, Size};
use crate::papers::Papers;
use crate::store::json;
use crate::table::{Column, plausible};
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Cure for differences that the stored numbers resolve.
pub(super) const GENERATE: &str = "`trunkline-lab report --markdown` generates it";

/// Cure for results of what the code no longer has.
const DROP: &str = "`trunkline-lab report --markdown` drops it";

/// Cure for differences that need a new measurement.
pub(super) const MEASURE: &str = "measure the figure (`trunkline-lab run`), then take it over (`trunkline-lab report --markdown \
     --out DIR`)";

/// Pages in the folder of the generated ones that the lab does not generate.
const NOT_OURS: [&str; 2] = ["notes.md", "daemon.md"];

/// A published text that differs from the stored results or the code. Displayed as file, line,
/// difference and cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the file, relative to the source tree.
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the difference.
    pub what: String,
    /// Command or edit that resolves the difference.
    pub cure: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { path, line, what, cure } = self;
        write!(f, "{}:{line}: {what}: {cure}", path.display())
    }
}

/// Compares the stored results in the source tree `root` with the claims in the code, and the
/// generated pages with both. Returns every difference.
///
/// # Errors
///
/// If `root` is no source tree, the stored results or README.md can't be read, or README.md lacks a
/// marker or has one too many.
pub fn check(papers: &Papers, root: &Path) -> Result<Vec<Problem>, Error> {
    let results = Results::load(root)?;
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
    let mut found = stored(papers, &results, &text);
    found.extend(differs(FILE.into(), &text, &json(&results), "the lab writes it otherwise"));
    let generated = generated(papers, root, &results)?;
    found.extend(others(root, &generated)?);
    for (path, wanted) in generated {
        found.extend(page(root, path, &wanted));
    }
    Ok(found)
}

/// Compares a generated file with its expected text.
fn page(root: &Path, path: PathBuf, wanted: &str) -> Option<Problem> {
    let (what, cure) = match fs::read_to_string(root.join(&path)) {
        Ok(there) => {
            return differs(path, &there, wanted, &format!("it is not what {FILE} says"));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => ("it is missing".to_owned(), GENERATE),
        Err(e) if e.kind() == ErrorKind::InvalidData => ("it is not UTF-8".to_owned(), GENERATE),
        Err(e) => (
            format!("it can't be read ({e})"),
            "remove it, and `trunkline-lab report --markdown` generates it",
        ),
    };
    Some(Problem { path, line: 1, what, cure })
}

/// The files among the pages that neither the lab generates nor a person writes.
fn others(root: &Path, generated: &[(PathBuf, String)]) -> Result<Vec<Problem>, Error> {
    let folder = root.join(FOLDER);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
        let name = entry.map_err(Error::file(&folder))?.file_name();
        let path = Path::new(FOLDER).join(&name);
        let is_known = path == Path::new(FILE)
            || NOT_OURS.iter().any(|page| name == *page)
            || generated.iter().any(|(page, _)| *page == path);
        if !is_known {
            let what = "the lab does not generate this file".to_owned();
            found.push(Problem { path, line: 1, what, cure: "remove it" });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The first difference between a file and its expected text.
fn differs(path: PathBuf, there: &str, wanted: &str, why: &str) -> Option<Problem> {
    if there == wanted {
        return None;
    }
    let same = there.split('\n').zip(wanted.split('\n')).take_while(|(a, b)| a == b).count();
    let shown = |line: &str| format!("\"{}\"", line.replace('\r', "\\r"));
    let [is, should] = [there, wanted].map(|text| text.split('\n').nth(same));
    let what = match (is, should) {
        (None, Some("")) => "the final line feed is missing".to_owned(),
        (None, Some(should)) => format!("{} is missing, with what follows it", shown(should)),
        (Some(""), None) => "the last line is empty".to_owned(),
        (Some(is), None) => format!("{} is too much", shown(is)),
        (Some(is), Some(should)) if is.strip_suffix('\r') == Some(should) => {
            "the line ends in CRLF".to_owned()
        }
        (is, should) => {
            let [is, should] = [is, should].map(|line| shown(line.unwrap_or_default()));
            format!("{is} should be {should}")
        }
    };
    Some(Problem { path, line: same + 1, what: format!("{why}: {what}"), cure: GENERATE })
}

/// Number of the line of the last of `keys`, each nested in the one before, in pretty-printed
/// JSON. If a key is missing, that of the key before it.
fn line(text: &str, keys: &[&str]) -> usize {
    let mut at = 0;
    for key in keys {
        let wanted = format!("\"{key}\":");
        let rest = text.lines().enumerate().skip(at);
        let Some((n, _)) = rest.into_iter().find(|(_, l)| l.trim_start().starts_with(&wanted))
        else {
            break;
        };
        at = n;
    }
    at + 1
}

/// Compares the stored results, in the file with this `text`, with the code.
fn stored(papers: &Papers, results: &Results, text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let problem = |keys: &[&str], what: String, cure| Problem {
        path: FILE.into(),
        line: line(text, keys),
        what,
        cure,
    };
    let all = figures(papers);
    for name in results.figures.keys() {
        if !all.iter().any(|(e, f, _)| id(e, f) == *name) {
            found.push(problem(&[name], format!("the lab has no figure {name}"), DROP));
        }
    }
    for (experiment, figure, is_expected) in all {
        let name = id(experiment, figure);
        let Some(result) = results.figures.get(&name) else {
            if is_expected {
                found.push(problem(&[], format!("no result of {name} is stored"), MEASURE));
            }
            continue;
        };
        if let Some(what) = other_run(&name, experiment, result) {
            found.push(problem(&[&name, "revision"], what, MEASURE));
        }
        for id in result.claims.keys() {
            if !figure.claims.iter().any(|claim| claim.id == id) {
                let what = format!("{name} has no claim {id}: it was renamed or removed");
                found.push(problem(&[&name, "claims", id], what, DROP));
            }
        }
        for claim in &figure.claims {
            let wrong = wrong(&name, claim, result);
            found.extend(wrong.map(|(key, what, cure)| {
                let keys = [&name, "claims", claim.id, key];
                // A claim that isn't stored has no line of its own.
                problem(if key.is_empty() { &keys[..2] } else { &keys }, what, cure)
            }));
        }
    }
    found
}

/// Describes how the run of a stored result differs from one of the code's experiment, if it does.
fn other_run(name: &str, experiment: &Experiment, result: &FigureResult) -> Option<String> {
    let (stored, code) = (result.revision, experiment.revision);
    let what = if stored != code {
        format!("revision {stored} was measured, and the code's is {code}")
    } else if result.size == Size::Tiny {
        "a tiny run measures nothing".to_owned()
    } else if result.speech.is_some() != experiment.needs_speech {
        match experiment.needs_speech {
            true => "the recordings are not named".to_owned(),
            false => "recordings are named, and none were played".to_owned(),
        }
    } else {
        columns(experiment, result).or_else(|| table(experiment, result.table.as_ref()?))?
    };
    Some(format!("{name}: {what}"))
}

/// Describes the first column that the experiment has not, has in another role, or has with other
/// values.
fn columns(experiment: &Experiment, result: &FigureResult) -> Option<String> {
    let mut seen = HashSet::new();
    let mut column = |name: &String| {
        let Some(column) = experiment.columns.iter().find(|c| c.name == *name) else {
            return Err(format!("the table has no column {name}"));
        };
        match seen.insert(column.name) {
            true => Ok(column),
            false => Err(format!("the column {name} is there twice")),
        }
    };
    let value = |column: &Column, values: &str| {
        let wrong = values.split(", ").find(|value| !column.accepts(value))?;
        Some(format!("\"{wrong}\" in {} is not {}", column.name, column.kind))
    };
    for (parameters, role, is_parameter) in
        [(&result.parameters, "parameter", true), (&result.constants, "outcome", false)]
    {
        for Parameter { column: name, values } in parameters {
            let column = match column(name) {
                Ok(column) => column,
                Err(why) => return Some(why),
            };
            if column.is_parameter != is_parameter {
                return Some(format!("the column {name} is no {role}"));
            }
            if let Some(why) = value(column, values) {
                return Some(why);
            }
        }
    }
    result.table.iter().flat_map(|t| &t.columns).find_map(|name| column(name).err())
}

/// Describes what is wrong in a table whose columns are the experiment's.
fn table(experiment: &Experiment, table: &SmallTable) -> Option<String> {
    let rows = table.rows.len();
    if !(1..=MAX_ROWS).contains(&rows) {
        return Some(format!("the table has {rows} rows, and a shown one has 1 to {MAX_ROWS}"));
    }
    let column = |name: &String| experiment.columns.iter().find(|c| c.name == *name);
    for row in &table.rows {
        for (column, cell) in table.columns.iter().filter_map(column).zip(row) {
            if !column.accepts(cell) {
                return Some(format!("\"{cell}\" in {} is not {}", column.name, column.kind));
            }
        }
    }
    let names: Vec<&str> = table.columns.iter().map(String::as_str).collect();
    plausible(&names, &table.rows).err()
}
