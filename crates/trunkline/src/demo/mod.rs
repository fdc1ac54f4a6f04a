//! `trunkline demo`: real calls through real daemons over impaired links, next
//! to the same calls without them.

mod chain;
mod keys;
mod report;
mod score;
mod table;
mod traffic;
mod voices;

use crate::call;
use crate::stop::Signals;
use crate::units::{Fraction, Span};
use chain::Chain;
use std::path::{Path, PathBuf};
use std::time::Duration;
use traffic::Plan;

/// Play calls through a chain of nodes with a lossy link, and compare
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Starts six `trunkline node` processes A to F on the loopback interface, chained
by five links, six more that recover as the paper does, six more whose ends have
a [[trunk]] to each other, and a `trunkline impair` process that gives each link
its delay and the middle ones their loss, in both directions. Then plays recorded
speech from A to F in five ways at once: plain UDP over one path of the summed
delay with the same loss process, best effort, real time that asks for each lost
packet once (the paper), real time, and real time through the trunk, where packets
of several calls leave together. What is missing is concealed (G.711 Appendix I)
and the sound scored by PESQ, in segments of 12 s against the recordings, on the
raw scale of -0.5 to 4.5. What the trunk saves is in the last two columns: packets
per second on the first link, and their bytes for each packet of a call.

Examples:
  trunkline demo
  trunkline demo --loss 10% --burst 75% --seed 7
  trunkline demo --voices languages
  trunkline demo --restart C --json")]
pub struct Args {
    /// Packets lost on the middle link, each way
    #[arg(long, default_value = "5%")]
    loss: Fraction,
    /// How likely a loss follows a loss
    #[arg(long, default_value = "25%")]
    burst: Fraction,
    /// One way, of each link
    #[arg(long, default_value = "10ms")]
    delay: Span,
    /// Links in the chain, 1 to 25
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=25))]
    hops: u32,
    /// Calls at the same time, 1 to 100
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    calls: u32,
    /// How long each call is, 1 to 1200
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1200))]
    seconds: u32,
    /// Whose recordings are played, through a telephone's filter
    #[arg(long, default_value = "librispeech")]
    voices: voices::Set,
    /// A WAV file or a folder of them, as they are, instead of those
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "voices")]
    speech: Option<PathBuf>,
    /// Seed of the losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Where index.html (a report with sound), result.json and what the
    /// listeners heard go
    #[arg(long, default_value = "demo-out")]
    out: PathBuf,
    /// Kill this node (by its letter) in the middle of the calls, without
    /// warning, and start it again
    #[arg(long, value_name = "NODE")]
    restart: Option<char>,
}

/// Network delay after which a packet is of no use (Amir et al. 2005, IV-A).
const DEADLINE: Duration = Duration::from_millis(100);

/// The page to look at, in the folder of results.
const REPORT: &str = "index.html";

/// Why a demo failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's options.
    #[error("{0}")]
    Usage(String),
    /// Speech or result files.
    #[error(transparent)]
    Call(#[from] call::Error),
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The nodes' keys.
    #[error("cannot make the nodes' keys: {0}")]
    Key(#[from] crate::keys::KeyFileError),
    /// The user's wish.
    #[error("stopped before the calls were over")]
    Interrupted,
    /// One of the started processes.
    #[error("{0}")]
    Process(String),
}

impl Error {
    /// 2 where the user's input is to blame.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Error::Usage(_)) { 2 } else { 1 }
    }
}

pub(crate) fn cannot(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Runs `trunkline demo`.
pub fn run(args: &Args) -> Result<(), Error> {
    let stop = Signals::block().map_err(cannot("take over SIGTERM and SIGINT"))?;
    let restart = args.restart.map(|letter| chain::index_of(letter, args.hops)).transpose()?;
    std::fs::create_dir_all(&args.out)
        .map_err(cannot(format!("make the folder {}", args.out.display())))?;
    // Known now, an unwritable folder costs a second instead of a minute.
    write_result(&args.out, "{}")?;
    let plan = Plan::new(&voices::voices(args)?, args.calls as usize, args.seconds as usize);

    let mut chain = Chain::start(&chain::Setup {
        hops: args.hops,
        delay: args.delay.0,
        loss: args.loss.0,
        burst: args.burst.0,
        seed: args.seed,
    })?;
    let traffic = traffic::run(&plan, &mut chain, restart, &stop)?;
    let ledger = chain.finish()?;

    let heard = score::heard(&plan, &traffic);
    let result = score::score(args.seed, &plan, &traffic, &ledger, args.hops, &heard);
    let json = serde_json::to_string_pretty(&result)
        .map_err(|e| Error::Io { what: "write the result as JSON".into(), source: e.into() })?;
    write_result(&args.out, &json)?;
    for listener in &heard {
        call::write_wav(&args.out.join(listener.file_name()), &listener.pcm)?;
    }
    let page = report::page(args, &plan, &traffic, &heard, &result, &json)?;
    let path = args.out.join(REPORT);
    std::fs::write(&path, page).map_err(cannot(format!("write {}", path.display())))?;
    if args.json {
        outln!("{json}");
    } else {
        table::print(args, &result);
    }
    match result.ledger.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Error::Process(format!("the ledger does not add up: {problem}"))),
    }
}

fn write_result(out: &Path, json: &str) -> Result<(), Error> {
    let path = out.join("result.json");
    std::fs::write(&path, json).map_err(cannot(format!("write {}", path.display())))
}
