//! The published results: one file with the measured value of every claim,
//! `docs/results/verdicts.json`, and the Markdown that is generated from it.
//!
//! [`take()`] judges the data that `run` wrote and puts the outcome into the file, [`write()`]
//! generates the pages and the marked parts of README.md, and [`check`](check::check) compares
//! file, pages and README with the claims in the code. Wording comes from the code and numbers
//! from the file, so that a sentence can change without a new run.

pub mod check;
#[cfg(test)]
mod damage;
mod judgement;
mod pages;
mod readme;
mod take;
#[cfg(test)]
mod tests;

pub use take::{Taken, take};

use crate::claim::Verdict;
use crate::error::Error;
use crate::experiment::{Experiment, Figure, Size};
use crate::output;
use crate::papers::Papers;
use crate::store::{json, read_json, write_file};
use crate::table::Row;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the generated pages, in the source tree.
pub const FOLDER: &str = "docs/results";

/// The stored results, in the source tree.
pub const FILE: &str = "docs/results/verdicts.json";

/// Raised when the file's fields change their meaning.
const SCHEMA: u32 = 1;

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
    /// Size of the run.
    pub size: Size,
    /// The seed of the run.
    pub seed: u64,
    /// The experiment's revision that was measured.
    pub revision: u32,
    /// Commit, compiler and target of the lab that measured.
    pub built: String,
    /// The recordings and their digest, where they matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speech: Option<String>,
    /// Result of each claim, by the claim's id.
    pub claims: BTreeMap<String, ClaimResult>,
    /// The figure's parameters and their values.
    pub parameters: Vec<Parameter>,
    /// Outcomes that are the same in every row of `table`, which leaves them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<Parameter>,
    /// The table without constant columns, if it is small enough for a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<SmallTable>,
}

/// A column of the table, and the values that it takes.
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
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct SmallTable {
    /// Names of the columns, from left to right.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Row>,
}

impl TryFrom<Vec<String>> for SmallTable {
    type Error = String;

    fn try_from(lines: Vec<String>) -> Result<SmallTable, String> {
        let mut lines =
            lines.iter().map(|line| line.split(',').map(str::to_owned).collect::<Row>());
        let columns = lines.next().unwrap_or_default();
        let rows: Vec<Row> = lines.collect();
        match rows.iter().find(|row| row.len() != columns.len()) {
            Some(row) => {
                let (cells, row) = (columns.len(), row.join(","));
                Err(format!("the row \"{row}\" should have {cells} cells"))
            }
            None => Ok(SmallTable { columns, rows }),
        }
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
    /// 95 % confidence interval of the measured value, if it has one.
    pub interval: Option<[String; 2]>,
    /// Whether the value is of a single run, which has no interval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_run: bool,
    /// Verdict that follows from the bound and the interval.
    pub verdict: Verdict,
    /// Further findings in the data; may be empty.
    pub note: String,
}

impl ClaimResult {
    /// `0.49 (0.48 – 0.50) %`, without the interval where nothing was sampled.
    pub(crate) fn value(&self) -> String {
        let ClaimResult { measured, interval, one_run, unit, .. } = self;
        let sure = output::sure(interval.as_ref(), *one_run, " – ");
        format!("{measured}{sure} {unit}").replace('-', "−").trim_end().to_owned()
    }
}

/// A text in `value` that has a control character.
fn control(value: &Value) -> Option<&str> {
    let has_one = |text: &&str| text.contains(char::is_control);
    match value {
        Value::String(text) => Some(text.as_str()).filter(has_one),
        Value::Array(all) => all.iter().find_map(control),
        Value::Object(all) => {
            let keys = all.keys().map(String::as_str);
            keys.into_iter().find(has_one).or_else(|| all.values().find_map(control))
        }
        _ => None,
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
    experiment.figure_id(figure)
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
    /// If `root` is no source tree, or the file can't be read, is of another schema, or has
    /// characters that [`write()`] doesn't write.
    pub fn load(root: &Path) -> Result<Results, Error> {
        if !root.join("README.md").is_file() {
            return Err(Error::NoTree(root.to_owned()));
        }
        let path = root.join(FILE);
        let stored = |why| Error::Stored { path: path.clone(), why };
        let results = read_json(&path).map_err(|error| match error {
            Error::Damaged { why, .. } => stored(why),
            other => other,
        })?;
        let results: Results = results.unwrap_or_else(Results::empty);
        if results.schema != SCHEMA {
            return Err(stored(format!("schema {} is not {SCHEMA}", results.schema)));
        }
        // A line break in a text would add lines of its own to a page.
        let texts = serde_json::to_value(&results).expect("plain values are JSON");
        match control(&texts) {
            Some(text) => {
                Err(stored(format!("\"{}\" has a control character", text.escape_debug())))
            }
            None => Ok(results),
        }
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

/// Writes the stored results, every page and the generated parts of README.md to the source
/// tree `root`. Returns the files that changed.
///
/// # Errors
///
/// If README.md has no markers for its generated parts, or a file can't be read or written.
pub fn write(papers: &Papers, root: &Path, results: &Results) -> Result<Vec<PathBuf>, Error> {
    let mut files = generated(papers, root, results)?;
    files.insert(0, (FILE.into(), json(results)));
    let mut changed = Vec::new();
    for (path, text) in files {
        let path = root.join(path);
        if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            write_file(&path, text.as_bytes())?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// Every generated file of the source tree `root`, apart from [`FILE`], and its expected text.
fn generated(
    papers: &Papers,
    root: &Path,
    results: &Results,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let mut files = pages::pages(papers, results);
    let path = root.join("README.md");
    let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
    files.push(("README.md".into(), readme::fill(&text, papers, results)?));
    Ok(files)
}
