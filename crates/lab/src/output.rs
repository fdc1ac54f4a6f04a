//! What a run leaves behind for each figure: `data.csv`, `figure.svg`,
//! `figure.png` and `claims.json`, in `OUT/paper/figure/`.

use crate::claim::{Claim, Measured, Verdict};
use crate::error::Error;
use crate::experiment::{Experiment, Figure};
use crate::plot;
use crate::store::{write_file, write_json};
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A claim and what came of it, as in `claims.json`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The claim's name, unique within the figure.
    pub id: String,
    /// What is judged, in our words.
    pub claim: String,
    /// What the paper says, with its number; nothing for a claim of this
    /// project's own.
    pub published: Option<String>,
    /// The values that the claim allows, in words.
    pub bound: String,
    /// The arithmetic that leads to the bound, or whose target it is.
    pub bound_why: String,
    /// The measured value at the claim's precision, or [`NOTHING`].
    pub measured: String,
    /// The 95 % interval of that.
    pub interval: [String; 2],
    /// The unit of the bound and the measured value.
    pub unit: String,
    /// The same as numbers, for programs.
    pub numbers: Numbers,
    /// What follows from bound and interval.
    pub verdict: Verdict,
    /// The verdict published with this version, at full size.
    pub expected: Verdict,
    /// Why the claim does not hold, or what else a reader should know.
    pub note: String,
}

/// A judgement's numbers, at the claim's precision; `null` in place of infinity
/// and of what was not measured.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The measured value.
    pub measured: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end of it.
    pub high: Option<f64>,
    /// The least value that the claim allows, or what it must be above.
    pub bound_low: Option<f64>,
    /// The largest value that the claim allows, or what it must be below.
    pub bound_high: Option<f64>,
}

impl Numbers {
    fn of(claim: &Claim, measured: &Measured) -> Numbers {
        let decimals = claim.decimals;
        let number =
            |n: f64| format!("{n:.decimals$}").parse().ok().filter(|n: &f64| n.is_finite());
        let [(low, high), (bound_low, bound_high)] =
            [measured.interval, claim.bound.ends()].map(|(a, b)| (number(a), number(b)));
        Numbers { measured: number(measured.estimate), low, high, bound_low, bound_high }
    }
}

/// What is measured where the points that a claim needs are missing.
pub const NOTHING: &str = "nothing";

/// From here on nobody reads a number digit by digit: an interval that has no end is as long.
const LONG: f64 = 1e9;

/// Judges a claim.
pub fn judge(claim: &Claim, table: &Table) -> Judged {
    let measured = (claim.measure)(table);
    let there = measured.estimate.is_finite();
    // What a machine was too late for says nothing of the claim.
    let void = table.has_invalid();
    let verdict = match there {
        true if void => Verdict::Undecided,
        true => claim.bound.judge(measured.interval),
        false => Verdict::Fails,
    };
    let print = |n: f64| match n {
        n if n.is_finite() && n.abs() >= LONG => format!("{n:.1e}"),
        n if n.is_finite() => format!("{n:.*}", claim.decimals),
        f64::INFINITY => "∞".into(),
        f64::NEG_INFINITY => "−∞".into(),
        _ => NOTHING.into(),
    };
    let missing = "The points that it needs have not been measured.";
    let note = if there { measured.note.as_str() } else { missing };
    // Said where the claim does what it was published as doing.
    let why = if verdict == claim.expected && there { claim.why } else { "" };
    let late = if void { "Rows are not valid: the machine was too late." } else { "" };
    let note: Vec<&str> = [late, why, note].into_iter().filter(|n| !n.is_empty()).collect();
    let (low, high) = measured.interval;
    Judged {
        id: claim.id.to_owned(),
        claim: claim.says.to_owned(),
        published: claim.published.map(str::to_owned),
        bound: claim.bound.text(claim.decimals),
        bound_why: claim.bound.why.to_owned(),
        measured: if there { print(measured.estimate) } else { NOTHING.into() },
        interval: [print(low), print(high)],
        unit: claim.unit.to_owned(),
        numbers: Numbers::of(claim, &measured),
        verdict,
        expected: claim.expected,
        note: note.join(" "),
    }
}

impl Judged {
    /// `0.49 % (0.48 to 0.50), bound: 0.45 to 0.55`.
    pub fn numbers(&self) -> String {
        let Judged { measured, interval: [low, high], unit, bound, .. } = self;
        let sure = if low == high { String::new() } else { format!(" ({low} to {high})") };
        format!("{measured}{sure} {unit}, bound: {bound}")
    }
}

/// How many claims there are, and how many of them hold, fail and are
/// undecided: a paper's and this project's own are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Claims of a paper.
    pub published: Count,
    /// Claims of this project.
    pub own: Count,
}

/// Claims by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Claims that hold.
    pub holds: usize,
    /// Claims that fail.
    pub fails: usize,
    /// Claims that are undecided.
    pub undecided: usize,
}

impl Score {
    /// Counts one more claim.
    pub fn add(&mut self, judged: &Judged) {
        let count = if judged.published.is_some() { &mut self.published } else { &mut self.own };
        count.add(judged.verdict);
    }
}

impl Count {
    /// Counts one more claim.
    pub fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Holds => self.holds += 1,
            Verdict::Fails => self.fails += 1,
            Verdict::Undecided => self.undecided += 1,
        }
    }

    /// How many claims there are.
    pub fn all(&self) -> usize {
        self.holds + self.fails + self.undecided
    }

    /// `18 of 23 hold, 3 fail, 2 undecided`.
    pub fn text(&self) -> String {
        let Count { holds, fails, undecided } = *self;
        let mut text = format!("{holds} of {} hold", self.all());
        for (n, word) in [(fails, "fail"), (undecided, "undecided")] {
            if n > 0 {
                text += &format!(", {n} {word}");
            }
        }
        text
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
    let svg = plot::panels_svg(&(figure.chart)(table));
    write_table(&folder.join("data.csv"), table)?;
    write_file(&folder.join("figure.png"), &plot::png(&svg))?;
    write_file(&folder.join("figure.svg"), svg.as_bytes())?;
    write_json(&folder.join("claims.json"), &judged)?;
    Ok(judged)
}

/// Writes a figure as `name`.svg and `name`.png; the former.
///
/// # Errors
///
/// If a file can't be written.
pub fn write_figure(folder: &Path, name: &str, panels: &plot::Panels) -> Result<PathBuf, Error> {
    let (svg, path) = (plot::panels_svg(panels), folder.join(format!("{name}.svg")));
    write_file(&path, svg.as_bytes())?;
    write_file(&path.with_file_name(format!("{name}.png")), &plot::png(&svg))?;
    Ok(path)
}

/// Writes a table as comma-separated values.
///
/// # Errors
///
/// If the file can't be written.
pub fn write_table(path: &Path, table: &Table) -> Result<(), Error> {
    write_file(path, table.csv().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Measured;

    #[test]
    fn no_number_is_longer_than_a_line() {
        let measure = Box::new(|_: &Table| Measured::new(0.02, (0.01, 3e302)));
        let claim = Claim { measure, ..Claim::default() };
        let table = Table { columns: &[], rows: Vec::new() };
        assert_eq!(judge(&claim, &table).interval, ["0.01", "3.0e302"]);
    }
}
