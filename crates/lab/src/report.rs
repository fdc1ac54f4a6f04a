//! One page with each paper's score, its statements and their verdicts, and its figures; then the
//! figures that no paper has.

use crate::claim::Verdict;
use crate::error::Error;
use crate::experiment::{Experiment, Figure, Size, place};
use crate::output::{self, Judged};
use crate::papers::{PAPERS, Paper, Papers};
use crate::plot;
use crate::score::Score;
use crate::store::{json, read_json, write_file};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}\
h2{margin-top:3rem;border-top:1px solid #ccc;padding-top:1rem}\
svg{max-width:100%;height:auto;border:1px solid #ddd}\
blockquote{margin:1rem 0;padding:.1rem 1rem;border-left:4px solid #999;color:#333}\
table{border-collapse:collapse;width:100%}\
th,td{border:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}\
.yes{color:#05603a;font-weight:600}.no{color:#a4120c;font-weight:600}\
.open{color:#7a4d00;font-weight:600}.n{white-space:nowrap}.small{color:#555;font-size:.85rem}";

/// Writes `OUT/report.html`, and returns its path and the number of figures on it.
///
/// # Errors
///
/// If there is no figure in `out`, a result is damaged, its claims don't follow from its table, or
/// the page can't be written. Figures that have not been measured are listed on the page.
pub fn write(papers: &Papers, out: &Path) -> Result<(PathBuf, usize), Error> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>trunkline-lab: the papers' figures again</title><style>{STYLE}</style>\n\
         <h1>The papers' figures again</h1>\n\
         <p>Measured by trunkline-lab {}, with the daemon's own nodes in a simulated network; \
         Figures 12 and 13 by closed form. Every number is in the figure's <code>data.csv</code>. A claim <em>holds</em> if all of \
         the 95 % interval is within its bound, <em>fails</em> if none of it is, and is \
         <em>undecided</em> otherwise; it <em>exceeds</em> if the interval is beyond the better end of \
         what the paper says. A value without an interval is exact for what was run, or that of one \
         run, where the claim is about it. A sentence of a paper counts once, by its declared reading; \
         what this project adds is counted apart.</p>\n",
        env!("CARGO_PKG_VERSION")
    );
    let beside: Vec<_> = papers.testbeds().map(|(e, testbed)| (e, &testbed.figure)).collect();
    let all: Vec<_> = papers.figures().chain(beside.iter().copied()).collect();
    // Testbeds don't run on every machine: where none has been run, nothing is missing.
    let is_beside = |figure| beside.iter().any(|(_, f)| std::ptr::eq(*f, figure));
    let (mut count, mut missing) = (0, Vec::new());
    let mut builds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for paper in PAPERS {
        let mut part = Part::default();
        for &(experiment, figure) in all.iter().filter(|(e, _)| e.paper == paper.folder) {
            let id = format!("{}/{}", experiment.paper, figure.name);
            match part.add(out, experiment, figure, &id)? {
                Some(built) => {
                    count += 1;
                    builds.entry(built).or_default().push(id);
                }
                None if is_beside(figure) => {}
                None => missing.push(id),
            }
        }
        part.write(&paper, &mut page);
    }
    if count == 0 {
        // A page without figures looks like a result, so an empty folder is an error.
        return Err(Error::NothingToReport(out.to_owned()));
    }
    if let Some(mixed) = mixed(&builds) {
        let _ = writeln!(page, "<p class=\"open\">{mixed}</p>");
    }
    if !missing.is_empty() {
        let _ = writeln!(page, "<p>Not measured yet: {}.</p>", missing.join(", "));
    }
    page.push_str("</html>\n");
    let path = out.join("report.html");
    write_file(&path, page.as_bytes())?;
    Ok((path, count))
}

/// A paper's part of the page.
#[derive(Default)]
struct Part {
    score: Score,
    /// A row for each claim on a statement of the paper.
    sentences: String,
    figures: String,
    /// Number of these figures that are not from a full run.
    smaller: usize,
    all: usize,
}

impl Part {
    fn write(&self, paper: &Paper, page: &mut String) {
        if self.figures.is_empty() {
            return;
        }
        let title = escape(paper.title);
        let _ = writeln!(page, "<h2 id=\"{}\">{title}</h2>", paper.folder);
        if self.smaller > 0 {
            let Part { smaller, all, .. } = self;
            let _ = writeln!(
                page,
                "<p>{smaller} of {all} figures here are of a smaller run (quick), which decides less \
                 than a full one.</p>"
            );
        }
        let (published, own) = (self.score.published(), self.score.own);
        if published.all() > 0 {
            let score = published.text();
            let _ = writeln!(
                page,
                "<p>Of the paper's sentences {score}, as the declared reading judges them.</p>\n{}\n<table><tr><th>the paper, in our words</th>\
                 <th>here</th><th></th><th>figure</th></tr>\n{}</table>",
                matrix(paper, &self.score),
                self.sentences
            );
        }
        if own.all() > 0 {
            let _ = writeln!(page, "<p>Of this project's own claims {}.</p>", own.text());
        }
        page.push_str(&self.figures);
    }

    /// Adds one figure. Returns from what the lab that measured it was built; `None` if it has not
    /// been measured.
    fn add(
        &mut self,
        out: &Path,
        experiment: &Experiment,
        figure: &Figure,
        id: &str,
    ) -> Result<Option<String>, Error> {
        let Some((manifest, table)) = output::read(out, experiment, figure)? else {
            return Ok(None);
        };
        let claims: Vec<Judged> = figure.claims.iter().map(|c| output::judge(c, &table)).collect();
        let folder = out.join(experiment.paper).join(figure.name);
        let kept = || output::has_points(out, experiment, figure, manifest.size());
        compare(&folder.join("claims.json"), &claims, kept)?;
        let svg = plot::panels_svg(&(figure.chart)(&table));
        self.smaller += usize::from(manifest.size() != Size::Full);
        self.all += 1;
        let source = match figure.section.starts_with("beyond") {
            true => place(figure.section),
            false => format!("{}, in our words", place(figure.section)),
        };
        let _ = write!(
            self.figures,
            "<h3 id=\"{id}\">{id}: {}</h3>\n<blockquote><p>{}</p><p class=\"small\">{}</p></blockquote>\n\
             <figure>{svg}<figcaption class=\"small\">{}</figcaption></figure>\n\
             <table><tr><th>claim</th><th>published</th><th>bound</th><th>here</th><th></th>\
             <th>note</th></tr>\n",
            escape(figure.title),
            escape(figure.caption),
            escape(&source),
            escape(&manifest.line()),
        );
        for (claim, c) in figure.claims.iter().zip(&claims) {
            self.score.add(experiment.paper, claim, c.verdict);
            self.claim(c, id);
        }
        self.figures.push_str("</table>\n");
        Ok(Some(manifest.built().to_owned()))
    }

    fn claim(&mut self, c: &Judged, id: &str) {
        let [claim, bound, why, unit, note] =
            [&c.claim, &c.bound, &c.bound_why, &c.unit, &c.note].map(|text| escape(text));
        let class = match c.verdict {
            Verdict::Holds | Verdict::Exceeds => "yes",
            Verdict::Fails => "no",
            Verdict::Undecided => "open",
        };
        let word = format!("<span class=\"{class}\">{}</span>", c.verdict.name());
        let sure = match &c.interval {
            Some([low, high]) if low != high => {
                format!("<br>{} to {}", escape(low), escape(high))
            }
            None if c.one_run => "<br>one run: no interval".to_owned(),
            _ => String::new(),
        };
        let measured = escape(&c.measured);
        let here = format!("{measured}{sure}<br><span class=\"small\">{unit}</span>");
        let published = c.published.as_deref().map(escape);
        let _ = writeln!(
            self.figures,
            "<tr><td>{claim}</td><td>{}</td><td><span class=\"n\">{bound}</span><br>\
             <span class=\"small\">{why}</span></td><td class=\"n\">{here}</td>\
             <td class=\"n\">{word}</td><td>{note}</td></tr>",
            published.as_deref().unwrap_or("<span class=\"small\">our own</span>"),
        );
        if let Some(published) = published {
            // One statement may be compared with several things, with several verdicts.
            let what = match claim == published {
                true => String::new(),
                false => format!("<br><span class=\"small\">{claim}</span>"),
            };
            let what = match c.reading.as_str() {
                "" => what,
                reading => {
                    let reading = escape(reading);
                    format!("{what}<br><span class=\"small\">reading: {reading}</span>")
                }
            };
            let _ = writeln!(
                self.sentences,
                "<tr><td>{published}{what}</td><td class=\"n\">{here}</td><td class=\"n\">{word}</td>\
                 <td class=\"n\"><a href=\"#{id}\">{id}</a></td></tr>"
            );
        }
    }
}

/// A warning that figures were measured by different builds of the lab, with those of all builds but
/// the most frequent one.
fn mixed(builds: &BTreeMap<String, Vec<String>>) -> Option<String> {
    let usual = builds.iter().max_by_key(|(_, figures)| figures.len())?.0;
    let others = builds.iter().filter(|(built, _)| *built != usual);
    let others: Vec<String> = others
        .map(|(built, figures)| format!("{} ({})", escape(&figures.join(", ")), escape(built)))
        .collect();
    let usual = escape(usual);
    let text = format!("Not of the same build as the others ({usual}): {}.", others.join("; "));
    (!others.is_empty()).then_some(text)
}

/// The sentences of a paper and their verdicts in each reading.
fn matrix(paper: &Paper, score: &Score) -> String {
    let mut text = String::new();
    let names: Vec<&str> = paper.readings.iter().map(|r| r.name).collect();
    if names.is_empty() {
        return text;
    }
    let _ = write!(text, "<p>Declared reading: {}</p>\n<ul>", escape(paper.declared));
    for reading in paper.readings {
        let _ = write!(text, "<li>{}: {}</li>", escape(reading.name), escape(reading.differs));
    }
    text += "</ul>\n<table><tr><th>sentence</th><th>holds in</th><th>declared</th>";
    for name in &names {
        let _ = write!(text, "<th>{}</th>", escape(name));
    }
    text += "</tr>\n";
    for sentence in &score.sentences {
        let (good, all) = sentence.holds_in();
        let _ = write!(text, "<tr><td>{}</td><td>{good} of {all}</td>", escape(&sentence.text));
        for name in [""].iter().chain(&names) {
            let word = sentence.verdict(name).map_or("–", Verdict::name);
            let _ = write!(text, "<td>{word}</td>");
        }
        text += "</tr>\n";
    }
    text + "</table>"
}

/// Compares the claims that `run` judged, if they are there, with those that the figure's table
/// gives.
///
/// `kept` tells whether the figure's points are there.
fn compare(path: &Path, claims: &[Judged], kept: impl Fn() -> bool) -> Result<(), Error> {
    let Some(stored) = read_json::<Value>(path)? else { return Ok(()) };
    let stored = stored.as_array().map_or(&[][..], Vec::as_slice);
    // Numbers are compared as they are read back.
    let wanted: Vec<Value> = serde_json::from_str(&json(&claims)).expect("it was written as JSON");
    let count = stored.len().max(claims.len());
    let Some(n) = (0..count).find(|n| stored.get(*n) != wanted.get(*n)) else { return Ok(()) };
    let id = match claims.get(n) {
        Some(claim) => claim.id.as_str(),
        None => stored[n]["id"].as_str().unwrap_or_default(),
    };
    let why =
        format!("\"{}\" is not what data.csv and the claims in the code give", id.escape_debug());
    Err(Error::NotFromPoints { path: path.to_owned(), why, kept: kept() })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Bound, Claim, Measured};
    use crate::table::Table;
    use std::fs;

    fn judged(id: &'static str) -> Judged {
        let claim = Claim {
            measure: Box::new(|_| Measured::new(0.02, (0.01, 3e302))),
            ..Claim::holding(id, "it holds", Some("<0.03"), Bound::at_most(0.03, ""), "")
        };
        output::judge(&claim, &Table { columns: &[], rows: Vec::new() })
    }

    #[test]
    fn claims_that_the_data_does_not_give_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claims.json");
        let claims = [judged("first"), judged("second")];
        compare(&path, &claims, || true).unwrap();
        let text = json(&claims);
        fs::write(&path, &text).unwrap();
        compare(&path, &claims, || true).unwrap();
        for (edit, id) in [
            (["undecided", "holds"], "first"),
            (["\"measured\": 0.02", "\"measured\": 0.01"], "first"),
            (["<0.03", "<0.04"], "first"),
            (["\"second\"", "\"first\""], "second"),
            (["\"id\"", "\"name\""], "first"),
        ] {
            assert!(text.contains(edit[0]), "{text}");
            fs::write(&path, text.replacen(edit[0], edit[1], 1)).unwrap();
            let said = compare(&path, &claims, || true).unwrap_err().to_string();
            let wanted = format!(
                "claims.json: \"{id}\" is not what data.csv and the claims in the code give: \
                 `trunkline-lab run`"
            );
            assert!(said.contains(&wanted), "{edit:?}: {said}");
        }
        for (stored, id) in [
            (vec![], "first"),
            (vec![judged("first")], "second"),
            (vec![judged("first"), judged("second"), judged("third")], "third"),
        ] {
            fs::write(&path, json(&stored)).unwrap();
            let said = compare(&path, &claims, || true).unwrap_err().to_string();
            assert!(said.contains(&format!("\"{id}\" is not")), "{said}");
        }
    }

    #[test]
    fn figures_of_another_build_are_named() {
        let figures = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let mut builds = BTreeMap::from([("commit a".to_owned(), figures(&["x/1", "x/2"]))]);
        assert_eq!(mixed(&builds), None);
        assert_eq!(mixed(&BTreeMap::new()), None);
        builds.insert("commit b, modified".to_owned(), figures(&["y/1"]));
        let wanted = "Not of the same build as the others (commit a): y/1 (commit b, modified).";
        assert_eq!(mixed(&builds).as_deref(), Some(wanted));
    }

    #[test]
    fn no_text_is_markup() {
        let mut part = Part::default();
        let claim = Judged {
            measured: "<script>".into(),
            interval: Some(["<b>".into(), "<i>".into()]),
            ..judged("first")
        };
        part.claim(&claim, "voip-overlay/fig4");
        for text in [part.figures, part.sentences] {
            for has in ["&lt;script&gt;", "&lt;b&gt; to &lt;i&gt;", "&lt;0.03"] {
                assert!(text.contains(has), "{has}: {text}");
            }
        }
    }
}
