//! The lab's command line: its arguments and commands.

mod carry;
mod load;
mod messages;
mod phones;
mod plain_flows;
mod report;
mod scenario;
mod shell;

use crate::out;
use crate::progress::{Bar, Weighed};
use clap::{Parser, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use trunkline_lab::check::{Against, ClaimSite};
use trunkline_lab::claim::{Claim, Verdict};
use trunkline_lab::experiment::{self, Experiment, Figure, Size};
use trunkline_lab::output::{self, Judged, Score, counted};
use trunkline_lab::plan::{Drawn, Plan, whole};
use trunkline_lab::run::{Progress as _, Settings};
use trunkline_lab::scenario::testbed::{Cpu, find_default};
use trunkline_lab::speech::{self, Filter, Speech, Variant, Voices};
use trunkline_lab::store::write_json;
use trunkline_lab::table::print;
use trunkline_lab::testbed::{RoundStore, RunProgress, Testbed};
use trunkline_lab::{Error, Papers, check, papers};
use trunkline_overlay::link::realtime::Recovery;

/// Reproduce the papers' figures, with the daemon's own code in a simulated network
#[derive(Parser, Debug)]
#[command(
    name = "trunkline-lab",
    version,
    after_help = "\
Examples:
  trunkline-lab list
  trunkline-lab run voip-overlay/fig4 --quick
  trunkline-lab run all --out results && trunkline-lab report --out results
  trunkline-lab check --quick

Exit status: 0, all is well; 1, a claim does not do what was published, or a
testbed was too late or disagrees with the simulator; 2, bad input, a file that
can't be read or written, or a program that is missing or failed."
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List every figure and its claims
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    Run(Run),
    Merge(Merge),
    Report(report::Report),
    Check(Check),
    Phones(phones::Phones),
    Load(load::Load),
    Shell(shell::Shell),
    PlainFlows(plain_flows::PlainFlows),
    Carry(carry::Carry),
    Messages(messages::Messages),
}

/// Measure a figure, draw it and judge its claims
#[derive(clap::Args, Debug)]
#[command(after_help = run_help())]
struct Run {
    /// PAPER/FIGURE, PAPER, `papers` (all five), `all`, or a scenario file of your own (.toml)
    what: String,
    #[command(flatten)]
    how: How,
    /// Folder for the results
    #[arg(long, default_value = "lab-out")]
    out: PathBuf,
    /// Measure only the i-th of n parts, for `merge` to combine
    #[arg(long, value_name = "I/N")]
    shard: Option<Part>,
    /// Also run a scenario, or a figure that has a testbed, with real daemons
    #[arg(long, conflicts_with = "shard")]
    testbed: bool,
    /// Print the results of a scenario as JSON
    #[arg(long, conflicts_with = "shard")]
    json: bool,
    /// The program for --testbed [default: next to this one, or in PATH]
    #[arg(long, value_name = "PATH", requires = "testbed")]
    trunkline: Option<PathBuf>,
}

const RUN_HELP: &str = "\
Writes data.csv, figure.svg, figure.png and claims.json to OUT/PAPER/FIGURE.
Points that are there from an interrupted run are kept.

Examples:
  trunkline-lab run voip-overlay/fig4 --quick
  trunkline-lab run all --seed 7 --out results
  trunkline-lab run all --shard 2/8 --out shard-2     (then: merge)
  trunkline-lab run my-network.toml
  trunkline-lab run my-network.toml --testbed
  trunkline-lab run beyond/agreement --testbed

A scenario writes to OUT/scenario/NAME what became of its calls (data.csv) and
streams (streams.csv, transfers.csv), a ledger of each link, way and class of packets
(links.csv), and of each link with a name a figure for each way. With --testbed it runs
a second time, with a `trunkline node` process for each host, in network namespaces with
`trunkline impair --hosts` between them: the same link models and seed in real time,
the calls' length and 8 s more; [[stream]] by TCP are the kernel's own (iperf3). data.csv
then has both; testbed.json tells how late the machine was, and the processor time of
impair, of each daemon, and of what sends and hears plain calls and streams. Status 1 if
the machine was too busy twice, which makes the run invalid (impair's p99.9 over 1 ms, or
other programs late by more than 1 ms more than 1 % of the time), or if the 95 %
intervals of what is missed do not overlap; 2 if namespaces are not permitted.

These figures have a testbed, too, and are compared with the simulator in
OUT/PAPER/FIGURE-testbed: beyond/agreement takes ten minutes (--quick: two), convergence
five (one and a half), tcp-model half an hour (about eight; it needs iperf3), trunk-live eight
(one and a half), trunk-tcp 23 (two and a half; iperf3), reliable-overlay/fig11 to fig14
together 23 (three), transfer 25 (three; SRT's part needs srt-file-transmit). Status 1 as
above, or if a claim does not do what was published. What was invalid is measured once more, then in smaller
parts; rounds that are there from an interrupted run are kept.";

fn run_help() -> String {
    let mut text = format!(
        "{RUN_HELP}\n\nA scenario's link may name what is done about lost packets, `recovery`:"
    );
    for policy in Recovery::all() {
        let _ = write!(text, "\n  {:<16}{}", policy.name(), policy.about());
    }
    text
}

/// How points are measured.
#[derive(clap::Args, Debug)]
struct How {
    /// Measure for about a minute instead of as long as the paper
    #[arg(long)]
    quick: bool,
    /// Measure hardly anything: for tests of this program
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of points to measure at once [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    #[command(flatten)]
    speech: SpeechArgs,
}

impl How {
    fn size(&self) -> Size {
        match (self.tiny, self.quick) {
            (true, _) => Size::Tiny,
            (_, true) => Size::Quick,
            _ => Size::Full,
        }
    }

    fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.jobs.map_or_else(all, usize::from)
    }
}

/// Speech that the callers send.
#[derive(clap::Args, Debug)]
struct SpeechArgs {
    /// Folder of the project's recordings [default: where they were installed, or ./speech]
    #[arg(long, value_name = "DIR")]
    speech: Option<PathBuf>,
    /// Voices of the speech that is played
    #[arg(long, default_value = "librispeech")]
    voices: Voices,
    /// Filter to apply to the recordings before they are coded
    #[arg(long, default_value = "irs")]
    filter: Filter,
}

impl SpeechArgs {
    /// Loads the recordings, if they are needed.
    fn load(&self, needed: bool) -> Result<Option<Speech>, Error> {
        if !needed {
            return Ok(None);
        }
        let folder = self.speech.clone().map_or_else(speech::installed, Ok)?;
        let SpeechArgs { voices, filter, .. } = *self;
        Speech::load(&folder, Variant { voices, filter }).map(Some)
    }
}

/// Combine the shards of a run
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The result is the same, byte for byte, as that of the run in one piece.

Example:
  trunkline-lab merge shard-1 shard-2 shard-3 --out results")]
struct Merge {
    /// Folders that `run --shard` wrote
    #[arg(required = true)]
    shards: Vec<PathBuf>,
    /// Folder for the combined results
    #[arg(long, default_value = "lab-out")]
    out: PathBuf,
    #[command(flatten)]
    speech: SpeechArgs,
}

/// Check that every claim still does what was published
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exits with 1 if a claim that was published as holding fails (at full size: or is
undecided); with --sabotage, if a claim survives what should make it fail. Stores
nothing.

Examples:
  trunkline-lab check --quick
  trunkline-lab check --quick --sabotage voip-overlay/fig4")]
struct Check {
    /// PAPER/FIGURE, PAPER, `papers` (all five), or `all` for every figure
    #[arg(default_value = "all")]
    what: String,
    #[command(flatten)]
    how: How,
    /// Apply the sabotage of each claim, or with =N of every Nth, and check that the claim fails
    #[arg(
        long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u16).range(1..)
    )]
    sabotage: Option<u16>,
    /// Judge this many runs, with consecutive seeds, by the majority of their verdicts [default: 3
    /// with --quick, else 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=99))]
    seeds: Option<u8>,
}

/// A shard and the number of shards, written as `2/8`.
#[derive(Clone, Copy, Debug)]
struct Part(usize, usize);

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let parts =
            text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((i, n)) if (1..=n).contains(&i) && n <= 10_000 => Ok(Part(i, n)),
            _ => Err("write a part as 2/8: from 1/8 to 8/8".into()),
        }
    }
}

/// Runs the command line and returns the exit status.
pub fn run(args: &Args) -> ExitCode {
    let papers = papers();
    let done = match &args.command {
        Command::List { json } => {
            list(&papers, *json);
            Ok(true)
        }
        Command::Run(args) if args.what.ends_with(".toml") => scenario::run(args),
        Command::Run(args) if args.json => Err(Error::NoJson(args.what.clone())),
        Command::Run(args) if args.testbed => beside(&papers, args),
        Command::Run(args) => measure(&papers, args),
        Command::Merge(args) => merge(&papers, args),
        Command::Report(args) => report::run(&papers, args),
        Command::Check(args) => check(&papers, args),
        Command::Phones(args) => phones::run(args),
        Command::Load(args) => load::run(args),
        Command::Shell(args) => shell::run(args),
        Command::PlainFlows(args) => plain_flows::run(args),
        Command::Carry(args) => carry::run(args),
        Command::Messages(args) => messages::run(args),
    };
    let broken = |why: &dyn Display| {
        errln!("error: {why}");
        ExitCode::from(2)
    };
    match (done, out::failure()) {
        (Err(why), _) => broken(&why),
        (_, Some(why)) => broken(&format_args!("cannot write to standard output: {why}")),
        (Ok(true), None) => ExitCode::SUCCESS,
        (Ok(false), None) => ExitCode::from(1),
    }
}

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
    bound: String,
    bound_why: &'static str,
    unit: &'static str,
    expected: Verdict,
    sabotage: &'static str,
}

fn list(papers: &Papers, json: bool) {
    let claim = |c: &Claim| ListedClaim {
        id: c.id,
        claim: c.statement,
        published: c.published,
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
        outln!("{}", serde_json::to_string_pretty(&listed).expect("plain values are JSON"));
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

fn measure(papers: &Papers, args: &Run) -> Result<bool, Error> {
    let plan = Plan::new(&papers.select(&args.what)?, args.how.size());
    let speech = args.how.speech.load(plan.needs_speech())?;
    let how = &args.how;
    let settings = Settings { seed: how.seed, speech: speech.as_ref(), threads: how.threads() };
    let part = args.shard.map_or((1, 1), |Part(i, n)| (i, n));
    let (points, seconds) = plan.extent(part);
    let bar = Bar::new(points, "point");
    let progress = Weighed(&bar, seconds);
    if let Some(Part(i, n)) = args.shard {
        plan.run_shard(part, &args.out, &settings, &progress)?;
        bar.finish();
        let (all, out) = (plan.extent((1, 1)).0, args.out.display());
        let points = counted(points, "point");
        outln!("shard {i}/{n}: {points} of {all} in {out}");
        return Ok(true);
    }
    let drawn = plan.run(&args.out, &settings, &progress)?;
    bar.finish();
    show(&drawn, &args.out);
    Ok(true)
}

/// Reports the progress of a testbed's rounds.
struct Rounds<'a>(Weighed<'a>);

impl RunProgress for Rounds<'_> {
    fn second(&self) {
        self.0.done(1.0);
    }

    fn say(&self, line: &str) {
        errln!("{line}");
    }
}

/// Measures figures in the simulator, and then with real daemons.
fn beside(papers: &Papers, args: &Run) -> Result<bool, Error> {
    let how = &args.how;
    let selected = papers.select(&args.what)?;
    let has = |e: &Experiment| selected.iter().any(|(s, _)| std::ptr::eq(*s, e));
    let chosen: Vec<_> = papers.testbeds().filter(|(e, _)| has(e)).collect();
    if chosen.is_empty() {
        let known =
            papers.testbeds().flat_map(|(e, _)| e.figures.iter().map(|f| (e.paper, f.name)));
        let known: Vec<String> = known.map(|(paper, figure)| format!("{paper}/{figure}")).collect();
        return Err(Error::NoTestbed { figure: args.what.clone(), known: known.join(", ") });
    }
    let trunkline = find_default(args.trunkline.as_deref())
        .map_err(|why| Error::Testbed { what: args.what.clone(), why })?;
    let mut good = true;
    for (experiment, testbed) in chosen {
        let figures: Vec<_> = experiment.figures.iter().map(|f| (experiment, f)).collect();
        let plan = Plan::new(&figures, how.size());
        let settings = Settings { seed: how.seed, speech: None, threads: how.threads() };
        let (points, seconds) = plan.extent((1, 1));
        let bar = Bar::new(points, "point");
        let drawn = plan.run(&args.out, &settings, &Weighed(&bar, seconds))?;
        bar.clear();
        show(&drawn, &args.out);
        good &= live(args, &trunkline, (experiment, testbed), drawn)?;
    }
    Ok(good)
}

/// Measures one experiment with real daemons. Returns whether the machine kept up and its claims do
/// what was published.
fn live(
    args: &Run,
    trunkline: &Path,
    (experiment, testbed): (&Experiment, &Testbed),
    drawn: Vec<Drawn<'_>>,
) -> Result<bool, Error> {
    let (size, figure) = (args.how.size(), &testbed.figure);
    let rounds_store = RoundStore::new(&args.out, experiment, size, args.how.seed);
    let seconds: usize = (testbed.rounds)(size).iter().map(|round| round.seconds).sum();
    let bar = Bar::new(seconds, "second");
    let rounds = Rounds(Weighed(&bar, seconds as f64));
    let outcome = testbed.run((&rounds_store, size), trunkline, &rounds);
    bar.clear();
    let outcome = outcome?;
    let rows = (testbed.rows)(&outcome.samples);
    // Figures of one experiment show the same points here.
    let Some(Drawn { mut table, .. }) = drawn.into_iter().next() else { return Ok(true) };
    table.rows.extend(rows.into_iter().map(|row| print(experiment.columns, row)));
    let judged = output::write(&args.out, experiment, figure, &table)?;
    let folder = args.out.join(experiment.paper).join(figure.name);
    write_json(&folder.join("testbed.json"), &outcome.attempts)?;
    let does = |(claim, judged): (&Claim, &Judged)| {
        claim.expected == Verdict::Fails || judged.verdict != Verdict::Fails
    };
    let good = figure.claims.iter().zip(&judged).all(does);
    show(&[Drawn { experiment, figure, table, judged }], &args.out);
    cpu(&outcome.cpu());
    if let Some(attempt) = outcome.attempts.first() {
        outln!("kernel: {}", attempt.effort.kernel);
    }
    in_time(&outcome.worst(), outcome.is_valid());
    Ok(outcome.is_valid() && good)
}

fn cpu(cpu: &[Cpu]) {
    // With many, the total is enough: testbed.json lists each.
    const MAX_SHOWN: usize = 10;
    let mut all: Vec<String> =
        cpu.iter().map(|c| format!("{} {:.2} s", c.process, c.seconds)).collect();
    if all.len() > MAX_SHOWN {
        let sum: f64 = cpu[1..].iter().map(|c| c.seconds).sum();
        all.truncate(1);
        all.push(format!("{} others {sum:.2} s", cpu.len() - 1));
    }
    outln!("processor time: {}", all.join(", "));
}

/// Prints this line about a testbed, with a warning if the machine did not keep up.
fn in_time(line: &str, valid: bool) {
    outln!("{line}");
    if !valid {
        outln!(
            "INVALID: this machine was too busy for a testbed, so that rows with `valid` = no tell \
             about it and not of the network: stop what else runs, and run this again"
        );
    }
}

fn check(papers: &Papers, args: &Check) -> Result<bool, Error> {
    let places = check::claims(&papers.select(&args.what)?);
    let how = &args.how;
    let needs_speech = places.iter().any(|p| p.experiment.needs_speech);
    let speech = how.speech.load(needs_speech)?;
    let judge = |places: &[ClaimSite<'_>], sabotaged, seed| {
        let settings = Settings { seed, speech: speech.as_ref(), threads: how.threads() };
        let batches = check::batches(places, how.size(), sabotaged);
        let (points, weight) = check::extent(&batches);
        let bar = Bar::new(points, "point");
        let judged = check::judge_all(&batches, &settings, &Weighed(&bar, weight));
        bar.finish();
        judged
    };
    let seeds = args.seeds.map_or(if how.quick { 3 } else { 1 }, usize::from);
    let mut runs: Vec<Vec<Judged>> = vec![Vec::new(); places.len()];
    for seed in how.seed..how.seed + seeds as u64 {
        // Claims that a majority has decided need no more runs.
        let open: Vec<usize> =
            (0..places.len()).filter(|n| !check::is_settled(&runs[*n], seeds)).collect();
        if open.is_empty() {
            break;
        }
        let again: Vec<ClaimSite<'_>> = open.iter().map(|n| places[*n]).collect();
        for (n, judged) in open.into_iter().zip(judge(&again, false, seed)?) {
            runs[n].push(judged);
        }
    }
    let mut sabotaged: BTreeMap<usize, Judged> = BTreeMap::new();
    if let Some(every) = args.sabotage {
        let sample = (0..places.len()).step_by(every.into());
        let of: Vec<ClaimSite<'_>> = sample.clone().map(|n| places[n]).collect();
        sabotaged = sample.zip(judge(&of, true, how.seed)?).collect();
    }
    let (mut good, mut score) = (true, Score::default());
    for (n, (place, runs)) in places.iter().zip(&runs).enumerate() {
        let verdict = check::together(runs);
        score.add(&Judged { verdict, ..runs[0].clone() });
        let against = check::against(place.claim, runs);
        // A claim published as decided must be decided wherever as much is measured.
        let fickle = place.claim.expected == Verdict::Holds
            && verdict == Verdict::Undecided
            && how.size() == Size::Full;
        good &= against != Against::Broken && !fickle;
        let broken = sabotaged.get(&n);
        let survives = broken.is_some_and(|b| !check::can_fail(&place.claim.bound, &runs[0], b));
        good &= !survives;
        outln!("{}", told(place, runs, (verdict, against), broken.map(|b| (b, survives))));
    }
    outln!("the papers' claims: {}; our own: {}", score.published.text(), score.own.text());
    Ok(good)
}

/// One line of `check` about a claim.
fn told(
    place: &ClaimSite<'_>,
    runs: &[Judged],
    (verdict, against): (Verdict, Against),
    broken: Option<(&Judged, bool)>,
) -> String {
    let word = match against {
        _ if broken.is_some_and(|(_, survives)| survives) => "CAN'T FAIL".to_owned(),
        Against::AsPublished if verdict == Verdict::Holds => "holds".to_owned(),
        Against::AsPublished => format!("{}, as published", verdict.name()),
        Against::Better => "holds, and was published as failing".to_owned(),
        Against::Broken => "NO LONGER HOLDS".to_owned(),
        Against::Otherwise => {
            format!("{}, published as \"{}\"", verdict.name(), place.claim.expected.name())
        }
    };
    let mut line = format!("{word}: {}: {}", place.name(), runs[0].numbers());
    if let [_, others @ ..] = runs
        && !others.is_empty()
    {
        let others = others.iter().map(|j| j.measured.as_str()).collect::<Vec<_>>().join(", ");
        let _ = write!(line, "; other seeds: {others}");
    }
    if let Some(published) = &runs[0].published {
        let _ = write!(line, " (paper: {published})");
    }
    if let Some((broken, _)) = broken {
        let _ = write!(line, "; with {}: {}", place.claim.sabotage, broken.measured);
    }
    line
}

fn merge(papers: &Papers, args: &Merge) -> Result<bool, Error> {
    let shard = whole(&args.shards)?;
    let figures: Vec<_> =
        shard.figures.iter().map(|id| papers.find(id)).collect::<Result<_, _>>()?;
    let plan = Plan::new(&figures, shard.size);
    let speech = args.speech.load(plan.needs_speech())?;
    let settings = Settings { seed: shard.seed, speech: speech.as_ref(), threads: 1 };
    plan.gather(&args.shards, &args.out, &settings)?;
    show(&plan.run(&args.out, &settings, &())?, &args.out);
    Ok(true)
}

fn show(drawn: &[Drawn<'_>], out: &Path) {
    let mut score = Score::default();
    for Drawn { experiment, figure, judged, .. } in drawn {
        let folder = out.join(experiment.paper).join(figure.name);
        outln!("{}/{}: {}", experiment.paper, figure.name, folder.display());
        for j in judged {
            score.add(j);
            let paper = j.published.as_ref().map_or(String::new(), |p| format!(" (paper: {p})"));
            outln!("    {}: {}: {}{paper}", j.verdict.name(), j.claim, j.numbers());
            if j.verdict != Verdict::Holds && !j.note.is_empty() {
                outln!("        {}", j.note);
            }
        }
    }
    if drawn.len() > 1 {
        outln!("the papers' claims: {}; our own: {}", score.published.text(), score.own.text());
    }
}
