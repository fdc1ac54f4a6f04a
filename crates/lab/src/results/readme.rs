//! The generated parts of README.md, between markers.

use super::pages::{self, Summary};
use super::{FOLDER, Results};
use crate::error::Error;
use crate::papers::{PAPERS, Papers};
use std::fmt::Write as _;

/// A row of the table on what trunkline gains.
struct Gain {
    what: &'static str,
    /// Value of the alternative to trunkline.
    without: Cell,
    with: Cell,
    /// Id of the row's figure.
    figure: &'static str,
}

/// The measured value of a claim, if any, followed by words.
#[derive(Clone, Copy)]
struct Cell {
    /// Ids of a figure and its claim.
    claim: Option<(&'static str, &'static str)>,
    words: &'static str,
}

const fn words(words: &'static str) -> Cell {
    Cell { claim: None, words }
}

const fn measured(figure: &'static str, claim: &'static str, words: &'static str) -> Cell {
    Cell { claim: Some((figure, claim)), words }
}

const GAINS: [Gain; 5] = [
    Gain {
        what: "Packets missed when a link loses 5 % in bursts (of the packets after a lost one up to 50 %)",
        without: words("5 %"),
        with: measured("voip-overlay/fig4b", "up-to-50", ""),
        figure: "voip-overlay/fig4b",
    },
    Gain {
        what: "Mean speech quality (telephone network: 4.0)",
        without: measured("voip-overlay/fig1", "one-percent", " at only 1 % loss"),
        with: measured(
            "voip-overlay/fig9b",
            "above-four",
            " even at 20 % loss, burstiness to 25 %",
        ),
        figure: "voip-overlay/fig9b",
    },
    Gain {
        what: "Silence in a call after its path is cut or a relay crashes, worst of all runs",
        without: words("as long as the path is down"),
        with: measured("beyond/failover", "whole", ""),
        figure: "beyond/failover",
    },
    Gain {
        what: "Datagrams that carry 500 calls over a link",
        without: words("at least one per packet"),
        with: measured("beyond/trunk-live", "fewer-packets", ", in a trunk"),
        figure: "beyond/trunk-live",
    },
    Gain {
        what: "Speed of a file over three links, 1 % loss",
        without: words("Linux's TCP (Reno)"),
        with: measured("reliable-overlay/transfer", "lossy", ""),
        figure: "reliable-overlay/transfer",
    },
];

/// The text of README.md with its generated parts updated from the results.
///
/// # Errors
///
/// If a marker is missing, is there twice, or belongs to no generated part.
pub(super) fn fill(text: &str, papers: &Papers, results: &Results) -> Result<String, Error> {
    only_known(text)?;
    let text = between(text, "gains", &gains(results))?;
    between(&text, "papers", &rows(papers, results))
}

/// Checks that no marker is there that [`fill`] would leave as it is.
fn only_known(text: &str) -> Result<(), Error> {
    let mut known: Vec<String> = ["gains", "papers"]
        .iter()
        .flat_map(|name| [format!("<!-- generated: {name} -->"), format!("<!-- end: {name} -->")])
        .collect();
    let is_marker = |line: &&str| line.contains("<!-- generated:") || line.contains("<!-- end:");
    for line in text.lines().filter(is_marker) {
        match known.iter().position(|marker| marker == line) {
            Some(n) => drop(known.remove(n)),
            None => return Err(Error::ExtraMarker(line.to_owned())),
        }
    }
    Ok(())
}

/// Replaces the text between `<!-- generated: NAME -->` and `<!-- end: NAME -->`.
fn between(text: &str, name: &str, part: &str) -> Result<String, Error> {
    let [begin, end] = ["generated", "end"].map(|word| format!("<!-- {word}: {name} -->\n"));
    let missing = |marker: &str| Error::Marker(marker.trim_end().to_owned());
    let (before, rest) = text.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    Ok([before, &begin, part, &end, after].concat())
}

fn gains(results: &Results) -> String {
    let mut text = "| | without | with trunkline | figure |\n|---|---|---|---|\n".to_owned();
    let cell = |Cell { claim, words }: Cell| {
        let Some((figure, claim)) = claim else { return words.to_owned() };
        let stored = results.figures.get(figure).and_then(|f| f.claims.get(claim));
        stored.map_or("not measured".to_owned(), |stored| pages::cell(&stored.value())) + words
    };
    for Gain { what, without, with, figure } in GAINS {
        let [without, with] = [without, with].map(cell);
        let (paper, name) = figure.split_once('/').unwrap_or((figure, ""));
        let _ = writeln!(
            text,
            "| {what} | {without} | **{with}** | [{name}]({FOLDER}/{paper}.md#{name}) |"
        );
    }
    text
}

fn rows(papers: &Papers, results: &Results) -> String {
    let mut text =
        "| figures of | the paper's sentences | our own claims |\n|---|---|---|\n".to_owned();
    for paper in &PAPERS {
        let Summary { score, smaller, .. } = Summary::of(paper, papers, results);
        let quick = match smaller {
            0 => String::new(),
            _ => " (quick run)".to_owned(),
        };
        let [published, own] = [score.published(), score.own].map(|count| match count.all() {
            0 => "–".to_owned(),
            _ => count.text(),
        });
        let _ = writeln!(
            text,
            "| [{}]({FOLDER}/{}.md){quick} | {published} | {own} |",
            paper.short, paper.folder
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::papers;

    /// A claim that was renamed or removed is noticed here, too.
    #[test]
    fn every_gain_is_a_claim() {
        let papers = papers();
        for Gain { without, with, figure, .. } in GAINS {
            papers.find(figure).unwrap();
            for (id, claim) in [without, with].into_iter().filter_map(|cell| cell.claim) {
                let (_, figure) = papers.find(id).unwrap();
                assert!(figure.claims.iter().any(|c| c.id == claim), "{id} {claim}");
            }
        }
    }

    #[test]
    fn only_what_stands_between_markers_changes() {
        let text = "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n";
        let wanted = "a\n<!-- generated: x -->\nnew\n<!-- end: x -->\nb\n";
        assert_eq!(between(text, "x", "new\n").unwrap(), wanted);
        let error = between(text, "y", "new\n").unwrap_err().to_string();
        assert!(error.contains("<!-- generated: y -->"), "{error}");
    }

    #[test]
    fn every_marker_is_there_once() {
        let text = "<!-- generated: gains -->\n<!-- end: gains -->\n\
                    <!-- generated: papers -->\n<!-- end: papers -->\n";
        only_known(text).unwrap();
        for extra in
            ["<!-- generated: gains -->", "  <!-- end: papers -->", "<!-- generated: x -->"]
        {
            let error = only_known(&format!("{text}{extra}\n")).unwrap_err().to_string();
            assert!(error.contains(extra), "{error}");
        }
    }
}
