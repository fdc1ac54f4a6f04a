//! Files that a run writes for each figure: `data.csv`, `figure.svg`, `figure.png` and
//! `claims.json`, in `OUT/paper/figure/`.

use crate::claim::{Basis, Claim, Measured, Verdict, runs_in_words};
use crate::error::Error;
use crate::experiment::{Experiment, Figure, Sabotage, Size};
use crate::plot;
use crate::store::{Manifest, Store, write_file, write_json};
use crate::table::{Row, Table};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A judged claim, as in `claims.json`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The claim's name, unique within the figure.
    pub id: String,
    /// The statement that is judged, in this project's words.
    pub claim: String,
    /// The paper's statement with its number; `None` for a claim that no paper makes.
    pub published: Option<String>,
    /// Name of the set-up in which the paper's statement is judged; empty for the declared one.
    pub reading: String,
    /// The values that the claim allows, in words.
    pub bound: String,
    /// Reason for the bound: the arithmetic that leads to it, or whose target it is.
    pub bound_why: String,
    /// The measured value at the claim's precision, or [`NOTHING`].
    pub measured: String,
    /// The 95 % interval of the measured value; `None` for a value of a single run, and for one
    /// that is exact: a count, an extreme of all runs, or a result without chance.
    pub interval: Option<[String; 2]>,
    /// Whether the value is of a single run.
    pub one_run: bool,
    /// The unit of the bound and the measured value.
    pub unit: String,
    /// The bound, value and interval as numbers, for programs.
    pub numbers: Numbers,
    /// Verdict from the bound and the interval.
    pub verdict: Verdict,
    /// The verdict published with this version, at full size.
    pub expected: Verdict,
    /// Why the claim does not hold, or other context for the reader.
    pub note: String,
}

/// A judgement's numbers, at the claim's precision; `null` in place of infinity and of unmeasured
/// values.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The measured value, in the claim's unit.
    pub measured: Option<f64>,
    /// The lower end of its 95 % interval, if it has one.
    pub low: Option<f64>,
    /// The upper end of its 95 % interval, if it has one.
    pub high: Option<f64>,
    /// The smallest value that the claim allows, or the one that it must exceed.
    pub bound_low: Option<f64>,
    /// The largest value that the claim allows, or the one that it must stay below.
    pub bound_high: Option<f64>,
    /// The better end of what the paper says, if it says one.
    pub better_end: Option<f64>,
}

impl Numbers {
    fn of(claim: &Claim, measured: &Measured) -> Numbers {
        let decimals = decimals(claim, measured);
        let number = |n: f64| Some(rounded(n, decimals)).filter(|n| n.is_finite());
        let (low, high) = measured.known_interval().unwrap_or((f64::NAN, f64::NAN));
        let [(low, high), (bound_low, bound_high)] =
            [(low, high), claim.bound.ends()].map(|(a, b)| (number(a), number(b)));
        let better_end = claim.bound.better_end().and_then(number);
        let measured = number(measured.estimate);
        Numbers { measured, low, high, bound_low, bound_high, better_end }
    }
}

/// The measured value where points that a claim needs are missing.
pub const NOTHING: &str = "nothing";

/// Numbers from this size on are printed with two digits: an interval that long is as good as
/// unbounded.
const LONG: f64 = 1e9;

/// Judges a claim by a table.
pub fn judge(claim: &Claim, table: &Table) -> Judged {
    let measured = (claim.measure)(table);
    let there = measured.estimate.is_finite();
    // Results of a machine that did not keep up decide nothing about a claim.
    let void = table.has_invalid();
    let verdict = match there {
        true if void => Verdict::Undecided,
        true => claim.bound.judge(measured.interval),
        false => Verdict::Fails,
    };
    let decimals = decimals(claim, &measured);
    let print = |n: f64| printed(n, decimals);
    let missing = "The points that it needs have not been measured.";
    let note = if there { measured.note.as_str() } else { missing };
    // Only if the claim does what it was published as doing.
    let why = if verdict == claim.expected && there { claim.why } else { "" };
    let late = if void { "Rows are not valid: the machine was too late." } else { "" };
    let more = if void { String::new() } else { runs_to_decide(claim, &measured) };
    let note: Vec<&str> = [late, &more, why, note].into_iter().filter(|n| !n.is_empty()).collect();
    let interval = measured.known_interval().filter(|_| there);
    Judged {
        id: claim.id.to_owned(),
        claim: claim.statement.to_owned(),
        published: claim.published.map(str::to_owned),
        reading: claim.reading.to_owned(),
        bound: claim.bound.text(claim.decimals),
        bound_why: claim.bound.why.to_owned(),
        measured: if there { print(measured.estimate) } else { NOTHING.into() },
        interval: interval.map(|(low, high)| [print(low), print(high)]),
        one_run: there && measured.basis == Basis::OneRun,
        unit: claim.unit.to_owned(),
        numbers: Numbers::of(claim, &measured),
        verdict,
        expected: claim.expected,
        note: note.join(" "),
    }
}

/// How many runs would decide, in words; empty if the interval decides.
fn runs_to_decide(claim: &Claim, measured: &Measured) -> String {
    let (low, high) = measured.interval;
    if measured.estimate.is_finite() && (low.is_nan() || high.is_nan()) {
        return "A single run has no interval, and can't decide: two or more have one.".into();
    }
    let words = claim.bound.runs_to_decide(measured).map(runs_in_words);
    words.map_or(String::new(), |words| format!("Undecided: {words}."))
}

/// How many more decimals than its claim has a judgement may have.
pub(crate) const MORE_DECIMALS: usize = 3;

/// Number of decimals of a judgement: the claim's, or more where an end of the interval would be
/// rounded onto the other side of the bound, so that readers would expect another verdict.
fn decimals(claim: &Claim, measured: &Measured) -> usize {
    let (low, high) = measured.interval;
    let verdict = claim.bound.judge(measured.interval);
    let is_enough = |&n: &usize| claim.bound.judge((rounded(low, n), rounded(high, n))) == verdict;
    (claim.decimals..=claim.decimals + MORE_DECIMALS).find(is_enough).unwrap_or(claim.decimals)
}

fn rounded(n: f64, decimals: usize) -> f64 {
    format!("{n:.decimals$}").parse().unwrap_or(n)
}

/// A number of a judgement in words.
fn printed(n: f64, decimals: usize) -> String {
    match n {
        n if n.is_finite() && n.abs() >= LONG => format!("{n:.1e}"),
        n if n.is_finite() => format!("{n:.decimals$}"),
        f64::INFINITY => "∞".into(),
        f64::NEG_INFINITY => "−∞".into(),
        _ => NOTHING.into(),
    }
}

/// The number that a judgement prints as `text` with this many decimals; `None` if it prints none
/// so.
pub(crate) fn number(text: &str, decimals: usize) -> Option<f64> {
    let n = match text {
        "∞" => f64::INFINITY,
        "−∞" => f64::NEG_INFINITY,
        text => text.parse().ok()?,
    };
    (!n.is_nan() && printed(n, decimals) == text).then_some(n)
}

/// A number of things, such as `1 figure` or `2 figures`.
pub fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// The interval of a value in parentheses, with this word between its ends, or the words that there
/// is none; nothing for an exact value, and where both ends are the same to the last decimal.
pub(crate) fn sure(interval: Option<&[String; 2]>, one_run: bool, to: &str) -> String {
    match interval {
        Some([low, high]) if low != high => format!(" ({low}{to}{high})"),
        None if one_run => " (one run: no interval)".to_owned(),
        _ => String::new(),
    }
}

impl Judged {
    /// Value and interval, such as `0.49 (0.48 to 0.50) %`.
    pub fn value(&self) -> String {
        let Judged { measured, unit, .. } = self;
        format!("{measured}{} {unit}", sure(self.interval.as_ref(), self.one_run, " to "))
            .trim_end()
            .to_owned()
    }

    /// Value, interval and bound, such as `0.49 (0.48 to 0.50) %, bound: 0.45 to 0.55`.
    pub fn numbers(&self) -> String {
        format!("{}, bound: {}", self.value(), self.bound)
    }
}

/// Writes a figure's files and returns its judged claims.
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

/// Reads what [`write()`] made of a figure's table, with the manifest of the run. `None` if the
/// figure has not been measured.
///
/// # Errors
///
/// If a file can't be read, the table is damaged or no result of a run, or the run is of something
/// else than the code's experiment.
pub fn read(
    out: &Path,
    experiment: &Experiment,
    figure: &Figure,
) -> Result<Option<(Manifest, Table)>, Error> {
    let folder = out.join(experiment.paper).join(figure.name);
    let path = folder.join("data.csv");
    let is_judged = folder.join("claims.json").exists();
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        // The figure would vanish from a report without a word.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !is_judged => return Ok(None),
        Err(e) => return Err(Error::file(&path)(e)),
    };
    let run = out.join(experiment.paper).join(experiment.name);
    let other = |why| Error::Damaged { path: run.clone(), why };
    let manifest = Store::manifest(out, experiment)?;
    let manifest =
        manifest.ok_or_else(|| other("no manifest.json says which run it is".to_owned()))?;
    manifest.belongs_to(experiment).map_err(other)?;
    let table = String::from_utf8(bytes)
        .map_err(|_| "it is not UTF-8".to_owned())
        .and_then(|text| Table::parse(experiment.columns, &text))
        .and_then(|table| match table.rows.is_empty() && manifest.size() != Size::Tiny {
            // A tiny run leaves out whole figures.
            true => Err("it has no rows".to_owned()),
            false => table.validate().map(|()| table),
        })
        .and_then(|table| {
            let there = stored(out, experiment, figure, manifest.size());
            match there.map_err(|e| e.to_string())? {
                Some(rows) if rows != table.rows => Err(NOT_POINTS.to_owned()),
                _ => Ok(table),
            }
        })
        .map_err(|why| {
            let kept = has_points(out, experiment, figure, manifest.size());
            Error::NotFromPoints { path, why, kept }
        })?;
    Ok(Some((manifest, table)))
}

/// Whether all points that a figure shows have been measured and are kept.
pub(crate) fn has_points(out: &Path, e: &Experiment, figure: &Figure, size: Size) -> bool {
    let store = Store::at(out, e);
    let points = (e.points)(size, Sabotage::NONE).into_iter();
    let mut shown = points.filter(|point| point.figures.contains(&figure.name));
    shown.all(|point| store.load(&point).is_ok_and(|rows| rows.is_some()))
}

const NOT_POINTS: &str = "it differs from the points in the folder beside it";

/// The rows of a figure's points, if they are still there.
fn stored(
    out: &Path,
    experiment: &Experiment,
    figure: &Figure,
    size: Size,
) -> Result<Option<Vec<Row>>, Error> {
    let store = Store::at(out, experiment);
    let mut points = (experiment.points)(size, Sabotage::NONE);
    points.retain(|point| point.figures.contains(&figure.name));
    let rows = points.iter().map(|point| store.load(point));
    let rows = rows.collect::<Result<Vec<Option<Vec<Row>>>, Error>>()?;
    // Results may be kept without points, but not with a part of them.
    let is_kept = rows.iter().any(Option::is_some);
    Ok(is_kept.then(|| rows.into_iter().flatten().flatten().collect()))
}

/// Writes a figure as `name`.svg and `name`.png, and returns the path of the former.
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
    use crate::claim::Bound;

    #[test]
    fn no_number_is_longer_than_a_line() {
        let measure = Box::new(|_: &Table| Measured::new(0.02, (0.01, 3e302)));
        let claim = Claim { measure, ..Claim::default() };
        let table = Table { columns: &[], rows: Vec::new() };
        assert_eq!(judge(&claim, &table).interval.unwrap(), ["0.01", "3.0e302"]);
    }

    /// An interval of zero width would promise that other runs give the same.
    #[test]
    fn a_single_run_has_no_interval() {
        let judged = |measured: Measured| {
            let measure = Box::new(move |_: &Table| measured.clone());
            let claim = Claim { measure, bound: Bound::at_most(0.5, ""), ..Claim::default() };
            judge(&Claim { unit: "%", ..claim }, &Table { columns: &[], rows: Vec::new() })
        };
        let two_runs = Measured::new(0.25, (0.125, 0.375));
        let one_run = Measured::of_one_run(0.25);
        let alone = Measured::new(0.25, (f64::NAN, f64::NAN));
        for (measured, interval, text) in [
            (two_runs.clone(), Some(["0.12", "0.38"]), "0.25 (0.12 to 0.38) %"),
            (one_run.clone(), None, "0.25 (one run: no interval) %"),
            (one_run.times(-1.0).abs(), None, "0.25 (one run: no interval) %"),
            (Measured::maximum([one_run.clone()]), None, "0.25 (one run: no interval) %"),
            (one_run.minus(&Measured::census(0.0)), None, "0.25 (one run: no interval) %"),
            (alone, None, "0.25 (one run: no interval) %"),
            (Measured::census(0.25), None, "0.25 %"),
        ] {
            let judged = judged(measured);
            assert_eq!(judged.interval, interval.map(|ends| ends.map(str::to_owned)));
            assert_eq!(judged.value(), text);
            let numbers = [judged.numbers.low, judged.numbers.high];
            assert_eq!(numbers.map(|end| end.is_some()), [interval.is_some(); 2]);
        }
        let both = judged(Measured::mean(&[two_runs, one_run]));
        assert!(both.interval.is_some() && !both.one_run, "{both:?}");
    }

    #[test]
    fn an_undecided_claim_says_how_many_runs_would_decide() {
        let note = |interval| {
            let measure = Box::new(move |_: &Table| Measured::new(0.25, interval).noting("Here."));
            let bound = Bound::at_most(0.5, "");
            let table = Table { columns: &[], rows: Vec::new() };
            let judged = judge(&Claim { measure, bound, ..Claim::default() }, &table);
            (judged.verdict, judged.note)
        };
        let more = "Undecided: about 4 times as many runs would decide. Here.";
        assert_eq!(note((0.125, 0.75)), (Verdict::Undecided, more.into()));
        let one = "A single run has no interval, and can't decide: two or more have one. Here.";
        assert_eq!(note((f64::NAN, f64::NAN)), (Verdict::Undecided, one.into()));
        assert_eq!(note((0.125, 0.5)), (Verdict::Holds, "Here.".into()));
    }

    #[test]
    fn an_end_beside_the_bound_is_printed_beside_it() {
        let printed = |interval: (f64, f64)| {
            let measure = Box::new(move |_: &Table| Measured::new(0.25, interval));
            let claim = Claim { measure, bound: Bound::at_most(0.5, ""), ..Claim::default() };
            let judged = judge(&claim, &Table { columns: &[], rows: Vec::new() });
            (judged.interval.unwrap(), judged.verdict, judged.numbers.high)
        };
        for (high, text, verdict) in [
            (0.496, "0.50", Verdict::Holds),
            (0.504, "0.504", Verdict::Undecided),
            (0.50004, "0.50004", Verdict::Undecided),
            // No reader would see the difference.
            (0.500_000_4, "0.50", Verdict::Undecided),
        ] {
            let (interval, was, number) = printed((0.126, high));
            assert_eq!((interval[1].as_str(), was), (text, verdict));
            assert_eq!(number, text.parse().ok());
            assert_eq!(interval[0].len(), text.len(), "alike: {interval:?}");
        }
    }

    #[test]
    fn a_number_is_read_as_it_is_printed() {
        for (text, wanted) in
            [("0.50", Some(0.5)), ("∞", Some(f64::INFINITY)), ("3.0e302", Some(3e302))]
        {
            assert_eq!(number(text, 2), wanted);
        }
        for other in ["0.5", "0.500", "great", "", "NaN", "inf", NOTHING, " 0.50", "+0.50"] {
            assert_eq!(number(other, 2), None, "{other}");
        }
        assert_eq!([1, 2, 0].map(|n| counted(n, "figure")), ["1 figure", "2 figures", "0 figures"]);
    }
}
