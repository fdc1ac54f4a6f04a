//! `trunkline demo`: real calls through real daemons over impaired links, compared with the same
//! calls without the overlay.

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
by five links, six more that recover as the paper does, six more with
a [[trunk]] between their ends, and a `trunkline impair` process that gives each link
its delay and the middle ones their loss, in both directions. Then plays recorded
speech from A to F over five services at once: plain UDP over one path of the total
delay with the same loss process, best effort, real time that requests each lost
packet once (the paper), real time, and real time through the trunk, where packets
of several calls share a datagram. Missing packets are concealed (G.711 Appendix I)
and the sound scored by PESQ, in segments of 12 s against the recordings, on the
raw scale of -0.5 to 4.5. The last two columns show the trunk's savings: packets
per second on the first link, and their bytes for each packet of a call.

Examples:
  trunkline demo
  trunkline demo --loss 10% --burst 75% --seed 7
  trunkline demo --voices languages
  trunkline demo --restart C --json")]
pub struct Args {
    /// Packets lost on the middle link, in each direction
    #[arg(long, default_value = "5%")]
    loss: Fraction,
    /// Probability that a loss follows a loss
    #[arg(long, default_value = "25%")]
    burst: Fraction,
    /// One-way delay of each link
    #[arg(long, default_value = "10ms")]
    delay: Span,
    /// Number of links in the chain, 1 to 25
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=25))]
    hops: u32,
    /// Number of simultaneous calls, 1 to 100
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    calls: u32,
    /// Length of each call in seconds, 1 to 1200
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1200))]
    seconds: u32,
    /// Recordings to play, filtered as by a telephone
    #[arg(long, default_value = "librispeech")]
    voices: voices::Set,
    /// A WAV file or a folder of them to play unfiltered instead
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "voices")]
    speech: Option<PathBuf>,
    /// Seed of the loss process
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Folder for index.html (a report with sound), result.json and the recordings of the listeners
    #[arg(long, default_value = "demo-out")]
    out: PathBuf,
    /// Kill this node (by its letter) in the middle of the calls, without warning, and restart it
    #[arg(long, value_name = "NODE")]
    restart: Option<char>,
}

/// Network delay after which a packet is useless (Amir et al. 2005, IV-A).
const DEADLINE: Duration = Duration::from_millis(100);

/// Name of the HTML report in the folder of results.
const REPORT: &str = "index.html";

/// Reason why a demo failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's options are invalid.
    #[error("{0}")]
    Usage(String),
    /// Speech or result files could not be read or written.
    #[error(transparent)]
    Call(#[from] call::Error),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The nodes' keys could not be made.
    #[error("cannot make the nodes' keys: {0}")]
    Key(#[from] crate::keys::KeyFileError),
    /// The user interrupted the demo.
    #[error("stopped before the calls had ended")]
    Interrupted,
    /// One of the started processes failed.
    #[error("{0}")]
    Process(String),
}

impl Error {
    /// Exit status: 2 for a mistake in the user's input.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Call(error) => error.exit_code(),
            _ => 1,
        }
    }
}

pub(crate) fn cannot(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Runs `trunkline demo` and writes its results.
pub fn run(args: &Args) -> Result<(), Error> {
    let stop = Signals::block().map_err(cannot("take over SIGTERM and SIGINT"))?;
    let restart = args.restart.map(|letter| chain::index_of(letter, args.hops)).transpose()?;
    std::fs::create_dir_all(&args.out)
        .map_err(cannot(format!("make the folder {}", args.out.display())))?;
    // Checked now, an unwritable folder costs a second instead of a minute.
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
