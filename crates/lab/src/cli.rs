//! The lab's command line: its arguments and commands.

mod carry;
mod check;
mod list;
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
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use trunkline_lab::claim::{Claim, Verdict};
use trunkline_lab::experiment::{Experiment, Size};
use trunkline_lab::output::{self, Judged, counted};
use trunkline_lab::plan::{Drawn, Plan, whole};
use trunkline_lab::run::{Progress as _, Settings};
use trunkline_lab::scenario::testbed::{Cpu, find_default};
use trunkline_lab::score::Score;
use trunkline_lab::speech::{self, Filter, Speech, Variant, Voices};
use trunkline_lab::store::write_json;
use trunkline_lab::table::print;
use trunkline_lab::testbed::{RoundStore, RunProgress, Testbed};
use trunkline_lab::{Error, Paper, Papers, papers};
use trunkline_overlay::link::realtime::Recovery;

/// Reproduce the papers' figures, with the daemon's own code in a simulated network
#[derive(Parser, Debug)]
#[command(
    name = "trunkline-lab",
    version,
    after_help = "\
Examples:
  trunkline-lab list
  trunkline-lab list voip-overlay/fig4/overhead
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
    List(list::List),
    Run(Run),
    Merge(Merge),
    Report(report::Report),
    Check(check::Check),
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
Writes data.csv, figure.svg, figure.png and claims.json to OUT/PAPER/FIGURE: OUT is the folder
of --out, and PAPER/FIGURE the figure's name, as `trunkline-lab list` has it. A figure is drawn
from points, its independent measurements, which are kept in OUT/PAPER/EXPERIMENT/points.
Figures of the same points share an experiment, such as voip-overlay/loss behind fig4 and fig5
(`list --json` names it). Points that are there, also from an interrupted run, are not measured
again; without them, all of them are.

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
    /// Measure for about a minute instead of as long as the paper. Nothing changes for a figure
    /// that takes no longer at full size; then the output says so
    #[arg(long)]
    quick: bool,
    /// Measure hardly anything: for tests of this program
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Seed of all random numbers, from 0 to 18446744073709551615
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
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

/// Parses a seed, a whole number of 64 bits without a sign.
fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
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

/// Whether `what` names a scenario's file.
fn is_scenario(what: &str) -> bool {
    Path::new(what).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
}

/// Runs the command line and returns the exit status.
pub fn run(args: &Args) -> ExitCode {
    let papers = papers();
    let done = match &args.command {
        Command::List(args) => list::run(&papers, args),
        Command::Run(args) if is_scenario(&args.what) => scenario::run(args),
        Command::Run(args) if args.json => Err(Error::NoJson(args.what.clone())),
        Command::Run(args) if args.testbed => beside(&papers, args),
        Command::Run(args) => measure(&papers, args),
        Command::Merge(args) => merge(&papers, args),
        Command::Report(args) => report::run(&papers, args),
        Command::Check(args) => check::run(&papers, args),
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
    if how.quick {
        let whole = drawn.iter().filter(|d| d.experiment.is_always_whole(d.figure));
        let whole: Vec<String> = whole.map(|d| d.experiment.figure_id(d.figure)).collect();
        if !whole.is_empty() {
            outln!("--quick changes nothing: {}, as long as at full size", whole.join(", "));
        }
    }
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

/// The claim's name, its verdict here and the published one, and in which reading.
fn status(experiment: &Experiment, claim: &Claim, judged: &Judged) -> String {
    let reading = Paper::of(experiment.paper).reading_of(claim);
    let reading = reading.map_or(String::new(), |name| format!("; reading: {name}"));
    let [here, published] = [judged.verdict, claim.expected].map(Verdict::name);
    format!("{}: {here} (published: {published}{reading})", claim.id)
}

fn show(drawn: &[Drawn<'_>], out: &Path) {
    let mut score = Score::default();
    for Drawn { experiment, figure, judged, .. } in drawn {
        let folder = out.join(experiment.paper).join(figure.name);
        outln!("{}/{}: {}", experiment.paper, figure.name, folder.display());
        for (claim, j) in figure.claims.iter().zip(judged) {
            score.add(experiment.paper, claim, j.verdict);
            outln!("    {}: {}", status(experiment, claim, j), j.numbers());
            outln!("        {}", j.claim);
            if let Some(published) = &j.published {
                outln!("        paper: {published}");
            }
            if j.verdict != Verdict::Holds && !j.note.is_empty() {
                outln!("        note: {}", j.note);
            }
        }
    }
    if drawn.len() > 1 {
        outln!("{}", score.text());
    }
}
