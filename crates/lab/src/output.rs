//! What a run leaves behind for each figure: `data.csv`, `figure.svg`,
//! `figure.png` and `claims.json`, in `OUT/paper/figure/`.

use crate::error::Error;
use crate::experiment::{Claim, Experiment, Figure, Verdict};
use crate::plot;
use crate::store::{write_file, write_json};
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A claim and what came of it, as in `claims.json`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// What the paper says, in our words.
    pub claim: String,
    /// Its number, or the bound that its words amount to.
    pub published: String,
    /// Ours.
    pub measured: String,
    /// Of both.
    pub unit: String,
    /// Whether it holds.
    pub holds: bool,
    /// Why not, or what else to know.
    pub note: String,
}

/// What is measured where the points that a claim needs are missing.
pub const NOTHING: &str = "nothing";

/// Judges a claim.
pub fn judge(claim: &Claim, table: &Table) -> Judged {
    let mut verdict = (claim.judge)(table);
    if !verdict.measured.is_finite() {
        verdict = Verdict {
            holds: false,
            note: "The points that it needs have not been measured.".into(),
            ..verdict
        };
    }
    let known = |n: f64| format!("{n:.*}", claim.decimals);
    let print = |n: f64| if n.is_finite() { known(n) } else { NOTHING.into() };
    // Said where the claim does what it was published as doing.
    let why = if verdict.holds == claim.expected && verdict.measured.is_finite() {
        claim.why
    } else {
        ""
    };
    let note: Vec<&str> = [why, &verdict.note].into_iter().filter(|n| !n.is_empty()).collect();
    Judged {
        claim: claim.says.to_owned(),
        published: print(claim.published),
        measured: print(verdict.measured),
        unit: claim.unit.to_owned(),
        holds: verdict.holds,
        note: note.join(" "),
    }
}

/// Writes a figure's files; what its claims came to.
///
/// # Errors
///
/// If a file can't be written.
pub fn write(
    out: &Path,
    experiment: &Experiment,
    figure: &Figure,
    table: &Table,
) -> Result<Vec<Judged>, Error> {
    let folder = out.join(experiment.paper).join(figure.name);
    let judged: Vec<Judged> = figure.claims.iter().map(|c| judge(c, table)).collect();
    let svg = plot::svg(&(figure.chart)(table));
    write_table(&folder.join("data.csv"), table)?;
    write_file(&folder.join("figure.png"), &plot::png(&svg))?;
    write_file(&folder.join("figure.svg"), svg.as_bytes())?;
    write_json(&folder.join("claims.json"), &judged)?;
    Ok(judged)
}

/// Writes a table as comma-separated values.
///
/// # Errors
///
/// If the file can't be written.
pub fn write_table(path: &Path, table: &Table) -> Result<(), Error> {
    write_file(path, table.csv().as_bytes())
}
