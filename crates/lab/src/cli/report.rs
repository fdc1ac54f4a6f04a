//! `trunkline-lab report`: a page of a run's results, and what is published in the source tree.

use std::path::{Path, PathBuf};
use trunkline_lab::output::counted;
use trunkline_lab::results::{self, Results};
use trunkline_lab::{Error, Papers, report};

/// Make one page of all results: every figure beside what the paper says of it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
With --markdown, what is published in the source tree: docs/results/verdicts.json (what was
measured for each claim), docs/results/PAPER.md and the tables in README.md. Figures in the folder
of --out replace those stored before; without --out the pages are generated from what is stored.
With --check, nothing is written: each difference between the stored results, the pages and the
claims in the code is printed with its file, its line and its cure. Exit status 1 if there is one.

Examples:
  trunkline-lab report --out results                 (results/report.html)
  trunkline-lab report --markdown --out results
  trunkline-lab report --check")]
pub struct Report {
    /// Where results are; the page becomes OUT/report.html [default: lab-out]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Generate what is published in the source tree
    #[arg(long)]
    markdown: bool,
    /// Compare what is published in the source tree with the claims in the code
    #[arg(long, conflicts_with_all = ["markdown", "out"])]
    check: bool,
    /// Root of the source tree to compare or write
    #[arg(long, value_name = "DIR", default_value = ".")]
    tree: PathBuf,
}

/// Runs `report`; whether what is published is right.
pub fn run(papers: &Papers, args: &Report) -> Result<bool, Error> {
    if args.markdown {
        publish(papers, args)?;
    } else if !args.check {
        let out = args.out.as_deref().unwrap_or(Path::new("lab-out"));
        let (path, figures) = report::write(papers, out)?;
        outln!("{}: {}", path.display(), counted(figures, "figure"));
        return Ok(true);
    }
    let problems = results::check::check(papers, &args.tree)?;
    for problem in &problems {
        outln!("{problem}");
    }
    if problems.is_empty() {
        outln!("no published result contradicts the claims in the code");
    }
    Ok(problems.is_empty())
}

/// Writes what is published in the source tree.
fn publish(papers: &Papers, args: &Report) -> Result<(), Error> {
    let mut stored = Results::load(&args.tree)?;
    stored.follow(papers);
    if let Some(out) = &args.out {
        let taken = results::take(papers, out, &mut stored)?;
        outln!("{}: {} taken over", out.display(), counted(taken.figures, "figure"));
        for left in &taken.left {
            outln!("left as it was: {left}");
        }
    }
    let written = results::write(papers, &args.tree, &stored)?;
    for path in &written {
        outln!("wrote {}", path.display());
    }
    if written.is_empty() {
        outln!("nothing to write: the pages in {} are up to date", results::FOLDER);
    }
    Ok(())
}
