//! One page with every figure beside what the paper says of it.

use crate::error::Error;
use crate::experiment::{Experiment, Figure};
use crate::output::Judged;
use crate::own::{self, convergence};
use crate::papers::Papers;
use crate::store::{Store, read_json, write_file};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}\
h2{margin-top:3rem;border-top:1px solid #ccc;padding-top:1rem}\
svg{max-width:100%;height:auto;border:1px solid #ddd}\
blockquote{margin:1rem 0;padding:.1rem 1rem;border-left:4px solid #999;color:#333}\
table{border-collapse:collapse;width:100%}\
th,td{border:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}\
td.n{white-space:nowrap}\
.yes{color:#05603a;font-weight:600}.no{color:#a4120c;font-weight:600}.small{color:#555;font-size:.85rem}";

/// Writes `OUT/report.html`; its path and how many figures are on it.
///
/// # Errors
///
/// If a result is damaged, or the page can't be written. Figures that have not
/// been measured are named on the page.
pub fn write(papers: &Papers, out: &Path) -> Result<(PathBuf, usize), Error> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>trunkline-lab: the papers' figures again</title><style>{STYLE}</style>\n\
         <h1>The papers' figures again</h1>\n\
         <p>Measured by trunkline-lab {}, with the daemon's own code in a simulated network. \
         Every number is in the figure's <code>data.csv</code>.</p>\n",
        env!("CARGO_PKG_VERSION")
    );
    let (mut sections, mut summary) = (String::new(), String::new());
    let (mut count, mut missing) = (0, Vec::new());
    let beside = convergence::beside();
    let testbed = papers.find(&format!("{}/{}", own::PAPER, convergence::FIGURE));
    // Not for every machine: where it has not been run, nothing is missing.
    let testbed = testbed.ok().map(|(experiment, _)| (experiment, &beside));
    for (experiment, figure) in papers.figures().chain(testbed) {
        let id = format!("{}/{}", experiment.paper, figure.name);
        match section(out, experiment, figure, &id, &mut sections)? {
            Some((held, all)) => {
                count += 1;
                let title = escape(figure.title);
                let _ = writeln!(
                    summary,
                    "<tr><td><a href=\"#{id}\">{id}</a></td><td>{title}</td>\
                     <td class=\"n\">{held} of {all}</td></tr>"
                );
            }
            None if figure.name == beside.name => {}
            None => missing.push(id),
        }
    }
    let _ = writeln!(
        page,
        "<table><tr><th>figure</th><th></th><th>claims that hold</th></tr>\n{summary}</table>"
    );
    if !missing.is_empty() {
        let _ = writeln!(page, "<p>Not measured yet: {}.</p>", missing.join(", "));
    }
    page.push_str(&sections);
    page.push_str("</html>\n");
    let path = out.join("report.html");
    write_file(&path, page.as_bytes())?;
    Ok((path, count))
}

/// One figure; how many of its claims hold, if it has been measured.
fn section(
    out: &Path,
    experiment: &Experiment,
    figure: &Figure,
    id: &str,
    page: &mut String,
) -> Result<Option<(usize, usize)>, Error> {
    let folder = out.join(experiment.paper).join(figure.name);
    let Some(claims) = read_json::<Vec<Judged>>(&folder.join("claims.json"))? else {
        return Ok(None);
    };
    let svg = folder.join("figure.svg");
    let svg = fs::read_to_string(&svg).map_err(Error::file(&svg))?;
    let run = Store::manifest(out, experiment)?.map_or(String::new(), |m| m.line());
    let _ = write!(
        page,
        "<h2 id=\"{id}\">{id}: {}</h2>\n<blockquote><p>{}</p><p class=\"small\">the paper, §{}, in \
         our words</p></blockquote>\n<figure>{svg}<figcaption class=\"small\">{}</figcaption></figure>\n\
         <table><tr><th>claim</th><th>paper</th><th>here</th><th></th><th>note</th></tr>\n",
        escape(figure.title),
        escape(figure.says),
        figure.section,
        escape(&run),
    );
    for c in &claims {
        let word = if c.holds {
            "<span class=\"yes\">holds</span>"
        } else {
            "<span class=\"no\">does not hold</span>"
        };
        let [claim, published, measured, unit, note] =
            [&c.claim, &c.published, &c.measured, &c.unit, &c.note].map(|text| escape(text));
        let _ = writeln!(
            page,
            "<tr><td>{claim}</td><td class=\"n\">{published}</td><td class=\"n\">{measured}<br>\
             <span class=\"small\">{unit}</span></td><td class=\"n\">{word}</td><td>{note}</td></tr>"
        );
    }
    page.push_str("</table>\n");
    Ok(Some((claims.iter().filter(|c| c.holds).count(), claims.len())))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
