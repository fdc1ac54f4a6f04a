//! A scenario with real `trunkline node` daemons on this machine, one for each
//! host, and `trunkline impair` between them: the simulator's link models, in
//! real time.

mod calls;
pub(crate) mod config;
pub(crate) mod process;
pub(super) mod settings;

use super::model::Scenario;
use super::rows::{COLUMNS, row};
use super::{DRAIN, WARM_UP};
use crate::speech::Speech;
use crate::table::Table;
use calls::Calls;
use config::Addresses;
use process::Process;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trunkline_media::quality::pesq::PesqError;

/// Why a scenario could not be run with daemons.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that only the simulator can do.
    #[error("the testbed can't: {0}")]
    Unsupported(String),
    /// No program to run.
    #[error(
        "{}: there is no such program: build it (cargo build --release -p trunkline), or say where \
         it is (--trunkline PATH)",
        given.as_deref().unwrap_or(Path::new("trunkline, beside this program or in PATH")).display()
    )]
    Missing {
        /// What was asked for; nothing if it was looked for.
        given: Option<PathBuf>,
    },
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// One of the daemons.
    #[error("{0}")]
    Process(String),
    /// An application could not attach to its daemon.
    #[error("a call could not attach to its daemon: {0}")]
    Attach(#[from] trunkline_client::Error),
    /// Speech that can't be compared.
    #[error(transparent)]
    Pesq(#[from] PesqError),
}

pub(crate) fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// The p99.9 of impair's lateness, in microseconds, beyond which a run tells
/// about the machine rather than the scenario.
pub const MAX_LATENESS_US: f64 = 1_000.0;

/// What a run was like for the machine.
#[derive(Serialize, Debug)]
pub struct Effort {
    /// Whether impair kept up: its p99.9 lateness is at most [`MAX_LATENESS_US`].
    pub valid: bool,
    /// How late impair sent packets on, microseconds.
    pub lateness_us: serde_json::Value,
    /// Packets that a daemon did not take from an application: they count as
    /// lost.
    pub refused: u64,
    /// Processor time of each process.
    pub cpu: Vec<Cpu>,
}

/// Processor time of one process.
#[derive(Serialize, Debug)]
pub struct Cpu {
    /// `impair`, or a host's name.
    pub process: String,
    /// Of user and system, seconds.
    pub seconds: f64,
}

impl Effort {
    /// The p99.9 of `lateness_us`.
    pub fn lateness_p999_us(&self) -> f64 {
        self.lateness_us["p99.9"].as_f64().unwrap_or(f64::NAN)
    }
}

/// A scenario that daemons can do, and the program for them.
#[derive(Debug)]
pub struct Testbed<'a> {
    scenario: &'a Scenario,
    trunkline: PathBuf,
}

impl<'a> Testbed<'a> {
    /// Starts nothing yet. `trunkline` is the program; `None` looks for it
    /// beside this one, then in PATH.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`], [`Error::Missing`].
    pub fn new(scenario: &'a Scenario, trunkline: Option<&Path>) -> Result<Testbed<'a>, Error> {
        config::check(scenario)?;
        Ok(Testbed { scenario, trunkline: process::find_default(trunkline)? })
    }

    /// How often [`Testbed::run`] tells that a second is over.
    pub fn seconds(&self) -> usize {
        (WARM_UP + self.scenario.length).as_secs_f64().ceil() as usize
    }

    /// Runs it; a row for each `[[call]]`, and what it cost. Takes 8 s more
    /// than the calls, as much as the simulator gives them before and after.
    /// `second` is called as time goes by. The processes end with this one,
    /// however that ends.
    ///
    /// # Errors
    ///
    /// A process failed, or speech can't be compared.
    pub fn run(
        &self,
        speech: Option<&Speech>,
        seed: u64,
        second: &dyn Fn(),
    ) -> Result<(Table, Effort), Error> {
        let scenario = self.scenario;
        let dir = tempfile::Builder::new().prefix("trunkline-lab-").tempdir();
        let dir = dir.map_err(cannot("make a temporary folder"))?;
        let addresses = Addresses::free(scenario)?;
        let text = config::impair(scenario, &addresses, seed);
        let impair =
            self.start("impair".into(), &["impair"], &dir.path().join("impair.toml"), text)?;
        let (mut nodes, mut sockets) = (Vec::new(), Vec::new());
        let configs = config::nodes(scenario, &addresses, dir.path());
        for ((text, socket), host) in configs.into_iter().zip(&scenario.hosts) {
            let name = format!("the node of {}", host.name);
            let file = socket.with_extension("toml");
            nodes.push(self.start(name, &["node", "--config"], &file, text)?);
            sockets.push(socket);
        }
        let calls = Calls::attach(scenario, &sockets)?;
        // Nobody opens a file any more: whatever ends this run, none is left.
        drop(dir);
        for _ in 0..WARM_UP.as_secs() {
            std::thread::sleep(Duration::from_secs(1));
            second();
        }
        let heard = calls.hold(DRAIN, second)?;
        drop(calls);

        let effort = finish(scenario, impair, nodes, heard.refused)?;
        let (mut rows, mut packets) = (Vec::new(), heard.packets.into_iter());
        for call in &scenario.calls {
            let group: Vec<_> = packets.by_ref().take(call.count as usize).collect();
            let speech = speech.filter(|_| scenario.pesq);
            rows.push(row("testbed", call, &group, speech, effort.valid)?);
        }
        Ok((Table { columns: COLUMNS, rows }, effort))
    }

    fn start(
        &self,
        name: String,
        args: &[&str],
        file: &Path,
        text: String,
    ) -> Result<Process, Error> {
        std::fs::write(file, text).map_err(cannot(format!("write {}", file.display())))?;
        Ok(Process::start(Command::new(&self.trunkline), name, args, file)?.0)
    }
}

/// Ends the processes.
fn finish(
    scenario: &Scenario,
    impair: Process,
    mut nodes: Vec<Process>,
    refused: u64,
) -> Result<Effort, Error> {
    let (ledger, time) = impair.finish()?;
    let ledger: serde_json::Value = serde_json::from_str(&ledger)
        .map_err(|e| Error::Process(format!("impair's ledger is no JSON: {e}")))?;
    let mut cpu = vec![Cpu { process: "impair".into(), seconds: time.as_secs_f64() }];
    // All at once, since each takes a moment.
    nodes.iter_mut().for_each(Process::close);
    for (node, host) in nodes.into_iter().zip(&scenario.hosts) {
        let seconds = node.finish()?.1.as_secs_f64();
        cpu.push(Cpu { process: host.name.clone(), seconds });
    }
    let lateness_us = ledger["lateness_us"].clone();
    let mut effort = Effort { valid: false, lateness_us, refused, cpu };
    effort.valid = effort.lateness_p999_us() <= MAX_LATENESS_US;
    Ok(effort)
}
