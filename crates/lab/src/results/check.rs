//! Compares the published results with the stored measurements and with the claims in the code.

use super::{FILE, FigureResult, Results, figures, generated, id};
use crate::claim::{Claim, Verdict};
use crate::error::Error;
use crate::experiment::{Experiment, Size};
use crate::output::NOTHING;
use crate::papers::Papers;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Cure for differences that the stored numbers resolve.
const GENERATE: &str = "`trunkline-lab report --markdown` generates it";

/// Cure for differences that need a new measurement.
const MEASURE: &str = "measure the figure (`trunkline-lab run`), then take it over \
                       (`trunkline-lab report --markdown --out DIR`)";

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
/// If the stored results or README.md can't be read, or README.md has no markers.
pub fn check(papers: &Papers, root: &Path) -> Result<Vec<Problem>, Error> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
    let results = Results::load(root)?;
    let mut found = stored(papers, &results, &text);
    for (path, wanted) in generated(papers, root, &results)? {
        let there = fs::read_to_string(root.join(&path)).unwrap_or_default();
        found.extend(differs(path, &there, &wanted));
    }
    Ok(found)
}

/// The first difference between a generated file and its expected text.
fn differs(path: PathBuf, there: &str, wanted: &str) -> Option<Problem> {
    if there == wanted {
        return None;
    }
    let same = there.lines().zip(wanted.lines()).take_while(|(a, b)| a == b).count();
    let [is, should] = [there, wanted].map(|text| text.lines().nth(same).unwrap_or("nothing"));
    let what = format!("it is not what {FILE} says: \"{is}\" should be \"{should}\"");
    Some(Problem { path, line: same + 1, what, cure: GENERATE })
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
            found.push(problem(&[name], format!("the lab has no figure {name}"), GENERATE));
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
                found.push(problem(&[&name, "claims", id], what, GENERATE));
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

/// Describes how the run of a stored result differs from the code's experiment, if it does.
fn other_run(name: &str, experiment: &Experiment, result: &FigureResult) -> Option<String> {
    let (stored, code) = (result.revision, experiment.revision);
    if stored != code {
        return Some(format!("{name}: revision {stored} was measured, and the code's is {code}"));
    }
    let known = result.parameters.iter().map(|p| &p.column);
    let mut known = known.chain(result.table.iter().flat_map(|t| &t.columns));
    let is_unknown = |column: &&String| experiment.columns.iter().all(|c| c.name != **column);
    let unknown = known.find(is_unknown)?;
    Some(format!("{name}: the table has no column {unknown}"))
}

/// The first difference between a stored claim and the code: the key, a description, and the cure.
fn wrong(
    name: &str,
    claim: &Claim,
    result: &FigureResult,
) -> Option<(&'static str, String, &'static str)> {
    let place = format!("{name} {}", claim.id);
    let Some(stored) = result.claims.get(claim.id) else {
        return Some(("", format!("no result of the claim {place} is stored"), MEASURE));
    };
    if stored.published.as_deref() != claim.published {
        let [is, code] = [stored.published.as_deref(), claim.published];
        let [is, code] = [is, code].map(|text| text.unwrap_or("nothing"));
        let what = format!("{place}: \"{is}\" is stored as published, and the code has \"{code}\"");
        return Some(("published", what, GENERATE));
    }
    let bound = claim.bound.text(claim.decimals);
    if (stored.bound.as_str(), stored.unit.as_str()) != (&bound, claim.unit) {
        let [is, code] = [(&stored.bound, stored.unit.as_str()), (&bound, claim.unit)]
            .map(|(b, u)| format!("{b} {u}"));
        let what =
            format!("{place}: it was judged by \"{is}\", and the code's bound is \"{code}\"");
        return Some(("bound", what, MEASURE));
    }
    let verdict = stored.verdict.name();
    if stored.measured == NOTHING {
        let what = format!("{place}: the points that it needs have not been measured");
        return Some(("measured", what, MEASURE));
    }
    if !possible(claim, &stored.interval).contains(&stored.verdict) {
        let [low, high] = &stored.interval;
        let what = format!("{place}: \"{verdict}\" does not follow from {low} to {high}, {bound}");
        return Some(("verdict", what, MEASURE));
    }
    let is_full = result.size == Size::Full.name();
    let contradicts = match is_full {
        true => stored.verdict != claim.expected,
        // A smaller sample may leave open what a larger one decides.
        false => {
            let pair = [stored.verdict, claim.expected];
            !pair.contains(&Verdict::Undecided) && stored.verdict != claim.expected
        }
    };
    contradicts.then(|| {
        let what = format!(
            "{place}: \"{verdict}\" is stored, and the code expects \"{}\"",
            claim.expected.name()
        );
        ("verdict", what, "find out why, then change the claim's `expected`, or mend what broke it")
    })
}

/// The verdicts that an interval allows before it was rounded to the claim's precision.
fn possible(claim: &Claim, interval: &[String; 2]) -> Vec<Verdict> {
    let number = |text: &String| match text.as_str() {
        "∞" => f64::INFINITY,
        "−∞" => f64::NEG_INFINITY,
        text => text.parse().unwrap_or(f64::NAN),
    };
    let (low, high) = (number(&interval[0]), number(&interval[1]));
    let half = 0.5 * libm::pow(10.0, -(claim.decimals as f64));
    let near = [-half, 0.0, half];
    let all = near.iter().flat_map(|a| near.iter().map(move |b| (low + a, high + b)));
    all.map(|interval| claim.bound.judge(interval)).collect()
}
