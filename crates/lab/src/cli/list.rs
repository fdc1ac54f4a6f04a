//! `trunkline-lab list`: every figure, and what is claimed of it.

use serde::Serialize;
use serde_json::json;
use trunkline_lab::claim::{Claim, Verdict};
use trunkline_lab::experiment::{self, Experiment, Figure, Size};
use trunkline_lab::plan::Plan;
use trunkline_lab::score::{Count, Score, Sentence};
use trunkline_lab::{PAPERS, Paper, Papers, Reading};

/// A figure in `list --json`.
#[derive(Serialize)]
struct Listed {
    figure: String,
    title: &'static str,
    section: &'static str,
    paper_says: &'static str,
    experiment: &'static str,
    /// Number of points, quick and full; for a figure with real daemons, of rounds.
    points: [usize; 2],
    /// Whether the figure can also be measured with real daemons.
    testbed: bool,
    claims: Vec<ListedClaim>,
}

#[derive(Serialize)]
struct ListedClaim {
    id: &'static str,
    claim: &'static str,
    published: Option<&'static str>,
    reading: &'static str,
    bound: String,
    bound_why: &'static str,
    unit: &'static str,
    expected: Verdict,
    sabotage: &'static str,
}

/// A paper in `list --json`, with the verdicts that are expected of a full-size run in the simulator.
/// A smaller run, and a testbed, may give others.
#[derive(Serialize)]
struct ListedPaper {
    paper: &'static str,
    title: &'static str,
    /// Number of the paper's sentences by expected verdict.
    sentences: Count,
    /// Number of this project's claims by expected verdict.
    own: Count,
    /// The declared reading, where there are others.
    declared: &'static str,
    readings: Vec<ListedReading>,
    /// Each sentence and its expected verdict in each reading.
    matrix: Vec<Sentence>,
}

#[derive(Serialize)]
struct ListedReading {
    name: &'static str,
    differs: &'static str,
}

fn paper(paper: &Paper, papers: &Papers) -> ListedPaper {
    let mut score = Score::default();
    for (experiment, figure) in papers.figures() {
        for claim in figure.claims.iter().filter(|_| experiment.paper == paper.folder) {
            score.add(paper.folder, claim, claim.expected);
        }
    }
    let reading = |r: &Reading| ListedReading { name: r.name, differs: r.differs };
    ListedPaper {
        paper: paper.folder,
        title: paper.title,
        sentences: score.published(),
        own: score.own,
        declared: paper.declared,
        readings: paper.readings.iter().map(reading).collect(),
        matrix: score.sentences,
    }
}

/// Prints every figure and its claims, and with `json` each paper's sentences too.
pub fn list(papers: &Papers, json: bool) {
    let claim = |c: &Claim| ListedClaim {
        id: c.id,
        claim: c.statement,
        published: c.published,
        reading: c.reading,
        bound: c.bound.text(c.decimals),
        bound_why: c.bound.why,
        unit: c.unit,
        expected: c.expected,
        sabotage: c.sabotage,
    };
    let figure = |e: &Experiment, f: &Figure, testbed, points: &dyn Fn(Size) -> usize| Listed {
        figure: format!("{}/{}", e.paper, f.name),
        title: f.title,
        section: f.section,
        paper_says: f.caption,
        experiment: e.name,
        points: [Size::Quick, Size::Full].map(points),
        testbed,
        claims: f.claims.iter().map(claim).collect(),
    };
    let simulated = papers.figures().map(|(e, f)| {
        let points = |size| Plan::new(&[(e, f)], size).extent((1, 1)).0;
        figure(e, f, false, &points)
    });
    let beside = papers
        .testbeds()
        .map(|(e, testbed)| figure(e, &testbed.figure, true, &|size| (testbed.rounds)(size).len()));
    let listed: Vec<Listed> = simulated.chain(beside).collect();
    if json {
        let all: Vec<ListedPaper> = PAPERS.iter().map(|p| paper(p, papers)).collect();
        let all = json!({ "verdicts": "expected at full size", "papers": all, "figures": listed });
        outln!("{}", serde_json::to_string_pretty(&all).expect("plain values are JSON"));
        return;
    }
    for f in &listed {
        let how = if f.testbed { ", by run --testbed" } else { "" };
        outln!("{}  {} ({}{how})", f.figure, f.title, experiment::place(f.section));
        for c in &f.claims {
            let whose = if c.published.is_some() { "the paper's" } else { "our own" };
            outln!("    {} ({whose}, expected: {}): {}", c.id, c.expected.name(), c.claim);
        }
    }
}
