//! The published results: one file with the measured value of every claim,
//! `docs/results/verdicts.json`, and the Markdown that is generated from it.
//!
//! [`take`] judges the data that `run` wrote and puts the outcome into the file, [`write()`]
//! generates the pages and the marked parts of README.md, and [`check`](check::check) compares
//! file, pages and README with the claims in the code. Wording comes from the code and numbers
//! from the file, so that a sentence can change without a new run.

pub mod check;
mod pages;
mod readme;
#[cfg(test)]
mod tests;

use crate::claim::Verdict;
use crate::error::Error;
use crate::experiment::{Experiment, Figure, Size};
use crate::output::judge;
use crate::papers::Papers;
use crate::store::{Manifest, Store, read_json, write_file, write_json};
use crate::table::{Column, Row, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the generated pages, in the source tree.
pub const FOLDER: &str = "docs/results";

/// The stored results, in the source tree.
pub const FILE: &str = "docs/results/verdicts.json";

/// Raised when the file's fields change their meaning.
const SCHEMA: u32 = 1;

/// Maximum number of rows of a table that the page shows; otherwise it names the file with the
/// data.
const MAX_ROWS: usize = 20;

/// Maximum number of values of a column that is listed among a figure's parameters.
const MAX_VALUES: usize = 16;

/// Stored results by figure id, such as `voip-overlay/fig4`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Results {
    schema: u32,
    /// Results in the order of their ids, so that the same results are the same bytes.
    pub figures: BTreeMap<String, FigureResult>,
}

/// Stored result of one figure.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FigureResult {
    /// Size of the run: `full` or `quick`.
    pub size: String,
    /// The seed of the run.
    pub seed: u64,
    /// The experiment's revision that was measured.
    pub revision: u32,
    /// The recordings and their digest, where they matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speech: Option<String>,
    /// Result of each claim, by the claim's id.
    pub claims: BTreeMap<String, ClaimResult>,
    /// Number of rows of the figure's table.
    pub rows: usize,
    /// The figure's parameters and their values.
    pub parameters: Vec<Parameter>,
    /// The table without constant columns, if it is small enough for a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<SmallTable>,
}

/// A column that describes what was measured, and the values that it takes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The column's name, with its unit as a suffix.
    pub column: String,
    /// The values, in the order of the rows, with commas between them.
    pub values: String,
}

/// A table of at most `MAX_ROWS` rows; in the file a list of lines, as in `data.csv`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct SmallTable {
    /// Names of the columns, from left to right.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Row>,
}

impl From<Vec<String>> for SmallTable {
    fn from(lines: Vec<String>) -> SmallTable {
        let mut lines =
            lines.iter().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let columns = lines.next().unwrap_or_default();
        // A line that was cut short by hand has empty cells.
        let fitted = |mut row: Row| {
            row.resize(columns.len(), String::new());
            row
        };
        let rows = lines.map(fitted).collect();
        SmallTable { columns, rows }
    }
}

impl From<SmallTable> for Vec<String> {
    fn from(table: SmallTable) -> Vec<String> {
        [&table.columns].into_iter().chain(&table.rows).map(|cells| cells.join(",")).collect()
    }
}

/// Measured value and verdict of a claim.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ClaimResult {
    /// The paper's statement; `None` for a claim of this project.
    pub published: Option<String>,
    /// The values that the claim allows.
    pub bound: String,
    /// The unit of the bound and of the measured value.
    pub unit: String,
    /// The measured value, at the claim's precision.
    pub measured: String,
    /// 95 % confidence interval of the measured value.
    pub interval: [String; 2],
    /// Verdict that follows from the bound and the interval.
    pub verdict: Verdict,
    /// Further findings in the data; may be empty.
    pub note: String,
}

impl ClaimResult {
    /// `0.49 (0.48 – 0.50) %`, without the interval where nothing was sampled.
    pub(crate) fn value(&self) -> String {
        let ClaimResult { measured, interval: [low, high], unit, .. } = self;
        let sure = if low == high { String::new() } else { format!(" ({low} – {high})") };
        format!("{measured}{sure} {unit}").replace('-', "−").trim_end().to_owned()
    }
}

/// Every figure, those with real daemons last, and whether a run on any machine measures it.
pub(crate) fn figures(papers: &Papers) -> Vec<(&Experiment, &Figure, bool)> {
    let simulated = papers.figures().map(|(e, f)| (e, f, true));
    let testbeds = papers.testbeds().map(|(e, testbed)| (e, &testbed.figure, false));
    simulated.chain(testbeds).collect()
}

/// Id of a figure in [`Results`], such as `voip-overlay/fig4`.
pub(crate) fn id(experiment: &Experiment, figure: &Figure) -> String {
    format!("{}/{}", experiment.paper, figure.name)
}

impl Results {
    /// Results without any figure.
    pub fn empty() -> Results {
        Results { schema: SCHEMA, figures: BTreeMap::new() }
    }

    /// The results that are stored in the source tree `root`; without a file, no results.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or is of another schema.
    pub fn load(root: &Path) -> Result<Results, Error> {
        let path = root.join(FILE);
        let results: Results = read_json(&path)?.unwrap_or_else(Results::empty);
        if results.schema != SCHEMA {
            let why = format!("schema {} is not {SCHEMA}", results.schema);
            return Err(Error::Damaged { path, why });
        }
        Ok(results)
    }

    /// Drops figures and claims that the code no longer has, and updates the papers' words from
    /// the code.
    pub fn follow(&mut self, papers: &Papers) {
        let known = figures(papers);
        self.figures.retain(|name, stored| {
            let Some((_, figure, _)) = known.iter().find(|(e, f, _)| id(e, f) == *name) else {
                return false;
            };
            stored.claims.retain(|name, stored| {
                let claim = figure.claims.iter().find(|claim| claim.id == name);
                if let Some(claim) = claim {
                    stored.published = claim.published.map(str::to_owned);
                }
                claim.is_some()
            });
            true
        });
    }
}

/// Outcome of [`take`] for the figures in an output folder.
#[derive(Debug, Default)]
pub struct Taken {
    /// Number of figures that were taken over.
    pub figures: usize,
    /// Figures that were left as they were, and why.
    pub left: Vec<String>,
}

/// Judges the figures that `run` wrote to `out`, and puts them into `results`. A smaller run
/// doesn't replace a larger one, and a testbed's invalid run replaces nothing.
///
/// # Errors
///
/// If there is no figure in `out`, or a result there is damaged or of another revision.
pub fn take(papers: &Papers, out: &Path, results: &mut Results) -> Result<Taken, Error> {
    let mut taken = Taken::default();
    for (experiment, figure, _) in figures(papers) {
        let path = out.join(experiment.paper).join(figure.name).join("data.csv");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::file(&path)(e)),
        };
        let damaged = |why: &str| Error::Damaged { path: path.clone(), why: why.to_owned() };
        let Some(manifest) = Store::manifest(out, experiment)? else {
            return Err(damaged("no manifest.json says of which run it is"));
        };
        if manifest.revision() != experiment.revision {
            let (there, here) = (manifest.revision(), experiment.revision);
            return Err(damaged(&format!("it is of revision {there}, and the code's is {here}")));
        }
        let table = Table::parse(experiment.columns, &text).map_err(|why| damaged(&why))?;
        let name = id(experiment, figure);
        if table.has_invalid() {
            taken.left.push(format!("{name}: the machine was too late, its rows are not valid"));
            continue;
        }
        if manifest.size() == Size::Tiny.name() {
            taken.left.push(format!("{name}: a tiny run measures nothing"));
            continue;
        }
        let rank = |size: &str| Size::ALL.iter().position(|s| s.name() == size);
        match results.figures.get(&name) {
            Some(stored) if rank(&stored.size) > rank(manifest.size()) => {
                taken.left.push(format!("{name}: the stored run is larger ({})", stored.size));
            }
            _ => {
                results.figures.insert(name, figure_result(figure, &manifest, &table));
                taken.figures += 1;
            }
        }
    }
    if taken.figures == 0 && taken.left.is_empty() {
        return Err(Error::NothingToReport(out.to_owned()));
    }
    Ok(taken)
}

fn figure_result(figure: &Figure, manifest: &Manifest, table: &Table) -> FigureResult {
    let claim = |claim: &crate::claim::Claim| {
        let judged = judge(claim, table);
        let note = match judged.numbers.measured {
            Some(_) => (claim.measure)(table).note,
            None => judged.note,
        };
        let result = ClaimResult {
            published: judged.published,
            bound: judged.bound,
            unit: judged.unit,
            measured: judged.measured,
            interval: judged.interval,
            verdict: judged.verdict,
            note,
        };
        (claim.id.to_owned(), result)
    };
    FigureResult {
        size: manifest.size().to_owned(),
        seed: manifest.seed(),
        revision: manifest.revision(),
        speech: manifest.speech().map(str::to_owned),
        rows: table.rows.len(),
        parameters: parameters(table),
        table: small(table),
        claims: figure.claims.iter().map(claim).collect(),
    }
}

/// The values of a column, each once, in the order of the rows.
fn values(table: &Table, column: usize) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for row in &table.rows {
        if !values.contains(&row[column]) {
            values.push(row[column].clone());
        }
    }
    values
}

/// Whether the table is shown as it is.
fn is_small(table: &Table) -> bool {
    (1..=MAX_ROWS).contains(&table.rows.len())
}

/// The columns that describe the measured points. Experiments name them first: they are the first
/// columns, up to one whose values rarely recur. If the table is shown, only the columns with a
/// single value are parameters.
fn parameters(table: &Table) -> Vec<Parameter> {
    let rows = table.rows.len();
    let all = table.columns.iter().enumerate().map(|(n, column)| (column, values(table, n)));
    let kept: Vec<_> = match is_small(table) {
        true => all.filter(|(_, v)| rows > 1 && v.len() == 1 && !v[0].is_empty()).collect(),
        false => all.take_while(|(_, v)| v.len() <= MAX_VALUES && 2 * v.len() <= rows).collect(),
    };
    let parameter = |(column, values): (&Column, Vec<String>)| Parameter {
        column: column.name.to_owned(),
        values: values.join(", "),
    };
    kept.into_iter().map(parameter).collect()
}

fn small(table: &Table) -> Option<SmallTable> {
    if !is_small(table) {
        return None;
    }
    let shown: Vec<usize> = (0..table.columns.len())
        .filter(|n| table.rows.len() == 1 || values(table, *n).len() > 1)
        .collect();
    let columns = shown.iter().map(|n| table.columns[*n].name.to_owned()).collect();
    let rows = table.rows.iter().map(|row| shown.iter().map(|n| row[*n].clone()).collect());
    Some(SmallTable { columns, rows: rows.collect() })
}

/// Writes the stored results, every page and the generated parts of README.md to the source
/// tree `root`. Returns the files that changed.
///
/// # Errors
///
/// If README.md has no markers for its generated parts, or a file can't be read or written.
pub fn write(papers: &Papers, root: &Path, results: &Results) -> Result<Vec<PathBuf>, Error> {
    let stored = root.join(FILE);
    let before = fs::read_to_string(&stored).unwrap_or_default();
    write_json(&stored, results)?;
    let mut changed = Vec::new();
    if fs::read_to_string(&stored).map_err(Error::file(&stored))? != before {
        changed.push(stored);
    }
    for (path, text) in generated(papers, root, results)? {
        let path = root.join(path);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            write_file(&path, text.as_bytes())?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// Every generated file of the source tree `root`, and its expected text.
fn generated(
    papers: &Papers,
    root: &Path,
    results: &Results,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let mut files = pages::pages(papers, results);
    let path = Path::new("README.md");
    let text = fs::read_to_string(root.join(path)).map_err(Error::file(path))?;
    files.push((path.to_owned(), readme::fill(&text, papers, results)?));
    Ok(files)
}
