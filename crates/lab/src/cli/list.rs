//! `trunkline-lab list`: figures, and what is claimed of them.

use serde::Serialize;
use serde_json::json;
use trunkline_lab::check::{self, ClaimSite};
use trunkline_lab::claim::{Claim, Verdict};
use trunkline_lab::experiment::{self, Experiment, Figure, Size};
use trunkline_lab::plan::Plan;
use trunkline_lab::score::{Count, Score, Sentence};
use trunkline_lab::testbed::Testbed;
use trunkline_lab::{Error, PAPERS, Paper, Papers, Reading, sabotages};

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
    /// The change that the sabotage makes, in words.
    sabotage_changes: Option<&'static str>,
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

/// List figures and their claims
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A claim is a sentence of a paper or of this project that the data can contradict. A reading is a
set-up that a paper's text allows: its sentences are judged in the declared one, which the text
asks for most, and those that depend on it also in others. A sabotage breaks one thing on purpose,
so that the claim must fail: `check --sabotage` applies it.

Examples:
  trunkline-lab list
  trunkline-lab list dccp-voice --reading one-segment
  trunkline-lab list voip-overlay/fig4/overhead    (with its bound, reading and sabotage)")]
pub struct List {
    /// PAPER/FIGURE/CLAIM, PAPER/FIGURE, PAPER, `papers` (all five), or `all` for every figure
    #[arg(default_value = "all")]
    what: String,
    /// Only claims that judge a paper's sentence in this reading: its name, or `declared`
    #[arg(long, value_name = "NAME")]
    reading: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Prints figures and their claims, and as JSON each paper's sentences too.
pub fn run(papers: &Papers, args: &List) -> Result<bool, Error> {
    let (figures, claim) = papers.select_claims(&args.what, true)?;
    let sites = check::select(papers, (&args.what, args.reading.as_deref()), true)?;
    if args.json {
        let listed: Vec<Listed> = figures.iter().map(|(e, f)| listed(e, f, &sites)).collect();
        let all: Vec<ListedPaper> = PAPERS.iter().map(|p| paper(p, papers)).collect();
        let all = json!({ "verdicts": "expected at full size", "papers": all, "figures": listed });
        outln!("{}", serde_json::to_string_pretty(&all).expect("plain values are JSON"));
        return Ok(true);
    }
    if claim.is_some() {
        sites.iter().for_each(describe);
        return Ok(true);
    }
    for (experiment, figure) in figures {
        let its: Vec<&ClaimSite<'_>> = of(figure, &sites).collect();
        if its.is_empty() && args.reading.is_some() {
            continue;
        }
        let how = if testbed(experiment, figure).is_some() { ", by run --testbed" } else { "" };
        let place = experiment::place(figure.section);
        outln!("{}  {} ({place}{how})", experiment.figure_id(figure), figure.title);
        for site in its {
            let reading = site.reading().map_or(String::new(), |name| format!("reading {name}, "));
            let (claim, whose) = (site.claim, whose(site.claim));
            let expected = claim.expected.name();
            outln!(
                "    {} ({whose}, {reading}expected: {expected}): {}",
                claim.id,
                claim.statement
            );
        }
    }
    Ok(true)
}

/// The claims of one figure.
fn of<'a, 'b>(
    figure: &'b Figure,
    sites: &'b [ClaimSite<'a>],
) -> impl Iterator<Item = &'b ClaimSite<'a>> {
    sites.iter().filter(move |site| std::ptr::eq(site.figure, figure))
}

/// The testbed that measures a figure, if it is one with real daemons.
fn testbed<'a>(experiment: &'a Experiment, figure: &Figure) -> Option<&'a Testbed> {
    experiment.testbed.as_ref().filter(|testbed| std::ptr::eq(&testbed.figure, figure))
}

fn whose(claim: &Claim) -> &'static str {
    if claim.published.is_some() { "the paper's" } else { "our own" }
}

fn listed(e: &Experiment, f: &Figure, sites: &[ClaimSite<'_>]) -> Listed {
    let testbed = testbed(e, f);
    let claim = |site: &ClaimSite<'_>| {
        let c = site.claim;
        ListedClaim {
            id: c.id,
            claim: c.statement,
            published: c.published,
            reading: c.reading,
            bound: c.bound.text(c.decimals),
            bound_why: c.bound.why,
            unit: c.unit,
            expected: c.expected,
            sabotage: c.sabotage,
            sabotage_changes: sabotages::about(e.paper, c.sabotage),
        }
    };
    Listed {
        figure: e.figure_id(f),
        title: f.title,
        section: f.section,
        paper_says: f.caption,
        experiment: e.name,
        points: [Size::Quick, Size::Full].map(|size| match testbed {
            Some(testbed) => (testbed.rounds)(size).len(),
            None => Plan::new(&[(e, f)], size).extent((1, 1)).0,
        }),
        testbed: testbed.is_some(),
        claims: of(f, sites).map(claim).collect(),
    }
}

/// Prints all about one claim.
fn describe(site: &ClaimSite<'_>) {
    let (claim, paper) = (site.claim, Paper::of(site.experiment.paper));
    outln!("{} ({})", site.name(), whose(claim));
    outln!("    claim: {}", claim.statement);
    if let Some(published) = claim.published {
        outln!("    paper: {published}");
    }
    if let Some(name) = site.reading() {
        outln!("    reading: {name}: {}", paper.about_reading(name));
    }
    let bound = claim.bound.text(claim.decimals);
    outln!("    bound: {} ({})", format!("{bound} {}", claim.unit).trim_end(), claim.bound.why);
    outln!("    published verdict: {}", claim.expected.name());
    if !claim.why.is_empty() {
        outln!("    why: {}", claim.why);
    }
    match sabotages::about(paper.folder, claim.sabotage) {
        Some(does) => outln!("    sabotage: {}: {does}", claim.sabotage),
        None => outln!("    sabotage: none, since real daemons would have to be broken"),
    }
}
