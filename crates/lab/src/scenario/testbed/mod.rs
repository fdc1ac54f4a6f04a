//! Runs a scenario with real `trunkline node` daemons on this machine, one for each host, in
//! network namespaces connected by `trunkline impair --hosts`: the simulator's routers and
//! link models, in real time, also for the kernel's own TCP and for any program.

mod calls;
pub(crate) mod certified;
pub(crate) mod config;
pub(crate) mod emulator;
mod events;
pub(crate) mod folder;
mod plain;
pub(crate) mod process;
mod programs;
pub(super) mod settings;
mod shell;
pub(crate) mod transfers;
pub(crate) mod wakes;
pub(crate) mod watch;
mod wire;

use super::build::node;
use super::ledger;
use super::model::Scenario;
use super::rows::{COLUMNS, STREAM_COLUMNS, TRANSFER_COLUMNS, row};
use super::{Carrier, DRAIN, WARM_UP};
use crate::speech::Speech;
use crate::table::Table;
use calls::{Calls, Heard};
use certified::certify;
use config::NodeFiles;
use emulator::Emulator;
use folder::Folder;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
pub(crate) use plain::clock_ns;
use plain::{Agents, Outcome};
pub use plain::{Report, agent};
use process::Process;
pub use process::find_default;
use programs::Running;
use serde::{Deserialize, Serialize};
pub use shell::shell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use transfers::{Carried, Prepared};
use trunkline_media::quality::pesq::PesqError;
use wakes::Sleeper;
use watch::Watch;

/// Error that kept a scenario from running in the testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenario needs something that only the simulator can do.
    #[error("the testbed can't: {0}")]
    Unsupported(String),
    /// The daemon's program was not found.
    #[error(
        "{}: there is no such program: build it (cargo build --release -p trunkline), or say where \
         it is (--trunkline PATH)",
        given.as_deref().unwrap_or(Path::new("trunkline, next to this program or in PATH")).display()
    )]
    Missing {
        /// The path that was given; `None` if the program was searched for.
        given: Option<PathBuf>,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error that the system reported.
        source: io::Error,
    },
    /// A daemon or another process failed, or printed something unexpected.
    #[error("{0}")]
    Process(String),
    /// An application could not attach to its daemon.
    #[error("a call could not attach to its daemon: {0}")]
    Attach(#[from] trunkline_client::Error),
    /// The speech of a call can't be compared with the original.
    #[error(transparent)]
    Pesq(#[from] PesqError),
    /// A failure in the middle of a run, which ended the run.
    #[error("{when}: {why}")]
    During {
        /// How long before or after the calls began.
        when: String,
        /// The failure that ended the run.
        why: Box<Error>,
    },
    /// A part of a run was ended because another part had failed; that part's error says why.
    #[error("something else has failed")]
    Halted,
}

pub(crate) fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Highest p99.9 of impair's lateness, in microseconds, in a valid run: beyond it, results
/// say more about the machine than about the scenario.
pub const MAX_LATENESS_US: f64 = 1_000.0;

/// Programs of ordinary priority are late from here on: with a free processor they wake
/// sooner.
pub const LATE: Duration = Duration::from_millis(1);

/// Highest share (0 to 1) of wake-ups or packets that may be late by more than [`LATE`] in a valid
/// run: even on an idle machine a few are.
pub const MAX_LATE: f64 = 0.01;

/// Whether the machine kept up with a run, and the processor time that the run took.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Effort {
    /// Whether the machine kept up: impair's p99.9 lateness is at most [`MAX_LATENESS_US`], and
    /// neither `wakes_late_pct` nor `callers_late_pct` is more than [`MAX_LATE`].
    pub valid: bool,
    /// How late impair forwarded packets: statistics from its ledger, in microseconds.
    pub lateness_us: serde_json::Value,
    /// How often a sleeping thread of ordinary priority woke more than 1 ms late, in percent:
    /// daemons, iperf3 and listeners had to wait for a processor just as long.
    #[serde(default)]
    pub wakes_late_pct: f64,
    /// Share of packets that were sent more than 1 ms late, in percent, for the worst call or
    /// constant-rate stream. Two late packets of each don't count.
    pub callers_late_pct: f64,
    /// Number of packets that a daemon (or outside the overlay, the kernel) did not accept; they
    /// count as lost.
    pub refused: u64,
    /// Processor time of each process of the run.
    pub cpu: Vec<Cpu>,
    /// Version of the kernel, whose TCP the hosts use.
    pub kernel: String,
}

/// Processor time of one process.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Cpu {
    /// Name of the process: `impair`, or that of a host.
    pub process: String,
    /// User and system time, in seconds.
    pub seconds: f64,
}

impl Effort {
    /// Judges a run without calls by impair's ledger and by `wakes_late`, the share (0 to 1) of a
    /// sleeper's wake-ups that were late.
    pub fn new(ledger: &serde_json::Value, wakes_late: f64, cpu: Vec<Cpu>) -> Effort {
        let mut effort = Effort {
            valid: false,
            lateness_us: ledger["lateness_us"].clone(),
            wakes_late_pct: 100.0 * wakes_late,
            callers_late_pct: 0.0,
            refused: 0,
            cpu,
            kernel: ledger["kernel"].as_str().unwrap_or_default().to_owned(),
        };
        effort.valid = effort.lateness_p999_us() <= MAX_LATENESS_US && wakes_late <= MAX_LATE;
        effort
    }

    /// Adds calls and streams, each given by its number of late packets and of all packets.
    fn calling(self, flows: impl Iterator<Item = (u64, u64)>, refused: u64) -> Effort {
        // In a short flow, a single packet may be more than the allowed share.
        let share = |(late, all): (u64, u64)| late.saturating_sub(2) as f64 / all.max(1) as f64;
        let worst = flows.map(share).fold(0.0, f64::max);
        let valid = self.valid && worst <= MAX_LATE;
        Effort { valid, callers_late_pct: 100.0 * worst, refused, ..self }
    }

    /// Combines the worse lateness values of both runs; everything else is from `self`.
    pub fn worse(self, other: &Effort) -> Effort {
        let later = self.lateness_p999_us() >= other.lateness_p999_us();
        let lateness_us = if later { self.lateness_us } else { other.lateness_us.clone() };
        let wakes_late_pct = self.wakes_late_pct.max(other.wakes_late_pct);
        let callers_late_pct = self.callers_late_pct.max(other.callers_late_pct);
        Effort { lateness_us, wakes_late_pct, callers_late_pct, ..self }
    }

    /// One line on how late the machine was.
    pub fn line(&self) -> String {
        let Effort { wakes_late_pct: wakes, callers_late_pct: callers, .. } = self;
        format!(
            "impair late by {:.0} µs (p99.9; {MAX_LATENESS_US} are allowed); more than 1 ms late \
             (1 % is allowed): {wakes:.2} % of a sleeping program's wake-ups, {callers:.2} % of \
             the packets of the latest call or stream",
            self.lateness_p999_us()
        )
    }

    /// Why a void run says nothing about the network, in one line.
    pub fn why_void(&self) -> String {
        format!("this machine did not keep up: {}", self.line())
    }

    /// The p99.9 of impair's lateness, in microseconds; NaN if it is not in the ledger.
    pub fn lateness_p999_us(&self) -> f64 {
        self.lateness_us["p99.9"].as_f64().unwrap_or(f64::NAN)
    }
}

/// A scenario that can be run with daemons, and the daemon's program.
#[derive(Debug)]
pub struct Testbed<'a> {
    scenario: &'a Scenario,
    trunkline: PathBuf,
}

impl<'a> Testbed<'a> {
    /// Prepares a run, without starting anything. `trunkline` is the daemon's program; `None`
    /// searches for it next to this program, then in PATH.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if only the simulator can run the scenario; [`Error::Missing`] if
    /// there is no such program.
    pub fn new(scenario: &'a Scenario, trunkline: Option<&Path>) -> Result<Testbed<'a>, Error> {
        config::check(scenario)?;
        Ok(Testbed { scenario, trunkline: process::find_default(trunkline)? })
    }

    /// How often [`Testbed::run`] calls `second`.
    pub fn seconds(&self) -> usize {
        (WARM_UP + self.scenario.length).as_secs_f64().ceil() as usize
    }

    /// Runs the scenario. Takes 8 s longer than the calls, for the same warm-up and drain as in
    /// the simulator. `second` is called once per second; programs print to files in `folder`.
    /// All processes end when this one does, however it ends.
    ///
    /// # Errors
    ///
    /// If a process or a system call fails, or speech can't be compared.
    pub fn run(
        &self,
        speech: Option<&Speech>,
        seed: u64,
        folder: &Path,
        second: &(dyn Fn() + Sync),
    ) -> Result<(Live, Effort), Error> {
        let scenario = self.scenario;
        let dir = Folder::new()?;
        let bed = Bed::start(self, seed, dir.path())?;
        let calls = Calls::attach(scenario, &bed.sockets())?;
        let prepared = scenario.transfers.iter().zip(0..);
        let prepared: Vec<Prepared<'_>> = prepared
            .map(|(transfer, n)| Prepared::new(transfer, n, &bed.emulator))
            .collect::<Result<_, _>>()?;
        let watch = Watch::new(Instant::now() + WARM_UP);
        let sleeper = Sleeper::start();
        let (heard, carried) = bed.hold(&calls, prepared, (&watch, seed), (folder, second));
        let wakes_late = sleeper.finish();
        watch.end()?;
        let heard = heard.expect("nothing has failed");
        drop(calls);

        let (effort, plain, links) = bed.finish(&heard, wakes_late)?;
        let mut rows = Vec::new();
        let mut overlay = heard.packets.into_iter();
        let mut outside = plain.calls(scenario).into_iter();
        for call in &scenario.calls {
            let packets = match call.carrier {
                Carrier::Overlay(_) => &mut overlay,
                Carrier::Plain => &mut outside,
            };
            let group: Vec<_> = packets.take(call.count as usize).collect();
            let speech = speech.filter(|_| scenario.pesq);
            rows.push(row("testbed", call, &group, speech, effort.valid)?);
        }
        let calls = Table { columns: COLUMNS, rows };
        let rows = transfers::rows(&scenario.transfers, &carried, effort.valid);
        let transfers = Table { columns: TRANSFER_COLUMNS, rows };
        let rows = plain.streams(scenario, effort.valid);
        let streams = Table { columns: STREAM_COLUMNS, rows };
        Ok((Live { calls, streams, transfers, links }, effort))
    }
}

/// The results of a run.
pub struct Live {
    /// Table with a row for each `[[call]]`.
    pub calls: Table,
    /// Table with a row for each constant-rate `[[stream]]`.
    pub streams: Table,
    /// Table with a row for each `[[stream]]` over TCP.
    pub transfers: Table,
    /// Ledgers of the links that have a wire: see [`LINK_COLUMNS`](super::LINK_COLUMNS).
    pub links: Table,
}

/// All processes of a run.
struct Bed<'a> {
    testbed: &'a Testbed<'a>,
    emulator: Emulator,
    /// Public key of the overlay, if it is sealed.
    overlay_key: Option<String>,
    dir: PathBuf,
    /// The daemon of each host; `None` while none runs.
    nodes: Vec<Mutex<Option<Process>>>,
    /// The processes that send and listen outside the overlay.
    agents: Agents,
}

impl<'a> Bed<'a> {
    /// Creates the hosts and starts their daemons; all files go into `dir`.
    fn start(testbed: &'a Testbed<'a>, seed: u64, dir: &Path) -> Result<Bed<'a>, Error> {
        let scenario = testbed.scenario;
        // Each call needs several descriptors, and the soft limit may be 1,024. If raising it
        // fails, opening the first one too many reports the error.
        let _ = getrlimit(Resource::RLIMIT_NOFILE)
            .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
        let hosts = 0..scenario.hosts.len();
        let nodes = || scenario.hosts.iter().enumerate().map(|(n, h)| (node(n), h.name.as_str()));
        let certify = || certify(&testbed.trunkline, dir, nodes());
        let overlay_key = scenario.sealed.then(certify).transpose()?;
        let emulator = Emulator::start(&testbed.trunkline, scenario, seed, dir)?;
        let nodes = hosts.clone().map(|_| Mutex::new(None)).collect();
        // Nothing can start without impair; if it has ended, that is the reason.
        let agents = Agents::start(scenario, &emulator, dir)
            .map_err(|why| emulator.check().err().unwrap_or(why))?;
        let bed = Bed { testbed, emulator, overlay_key, dir: dir.to_owned(), nodes, agents };
        hosts
            .clone()
            .try_for_each(|n| bed.start_node(n))
            .map_err(|why| bed.emulator.check().err().unwrap_or(why))?;
        Ok(bed)
    }

    /// Starts the daemon of host `n`, and waits until the daemon is ready.
    fn start_node(&self, n: usize) -> Result<(), Error> {
        let scenario = self.testbed.scenario;
        let files = NodeFiles::of(n, &self.dir);
        let text =
            config::node_text(scenario, (&self.emulator, self.overlay_key.as_deref()), n, &files);
        let file = &files.config;
        std::fs::write(file, text).map_err(cannot(format!("write {}", file.display())))?;
        let name = format!("the node of {}", scenario.hosts[n].name);
        let program = self.emulator.bound(n, &self.testbed.trunkline);
        let (process, _) = Process::start(program, name, &["node", "--config"], file)?;
        *self.nodes[n].lock().expect("nobody panics") = Some(process);
        Ok(())
    }

    /// The Unix socket where each daemon accepts applications.
    fn sockets(&self) -> Vec<PathBuf> {
        (0..self.nodes.len()).map(|n| NodeFiles::of(n, &self.dir).socket).collect()
    }

    /// Runs the warm-up, then calls, transfers, programs and faults; returns the results of calls
    /// and transfers. The first failure is left in `watch`.
    fn hold(
        &self,
        calls: &Calls<'_>,
        prepared: Vec<Prepared<'_>>,
        (watch, seed): (&Watch, u64),
        (folder, second): (&Path, &(dyn Fn() + Sync)),
    ) -> (Option<Heard>, Vec<Carried>) {
        let warm = self.agents.begin(watch.begun()).and_then(|()| {
            (0..WARM_UP.as_secs()).rev().try_for_each(|left| {
                let at = watch.begun() - Duration::from_secs(left);
                watch.attend(at, &mut || self.check())?;
                second();
                Ok(())
            })
        });
        if watch.note(warm).is_none() {
            return (None, Vec::new());
        }
        std::thread::scope(|scope| {
            let transfers = prepared.into_iter();
            let transfers =
                transfers.map(|t| scope.spawn(|| watch.note(t.carry(watch, Duration::ZERO))));
            let transfers: Vec<_> = transfers.collect();
            let programs = scope.spawn(|| watch.note(self.run_programs(watch, folder)));
            let heard = scope.spawn(|| watch.note(calls.hold(DRAIN, watch, second)));
            // On this thread: a restarted node is killed when the thread that started it ends.
            let happened = self.happen(watch, seed).and_then(|()| {
                while !heard.is_finished() {
                    self.check()?;
                    watch.sleep_until(Instant::now() + watch::LOOK)?;
                }
                Ok(())
            });
            watch.note(happened);
            programs.join().expect("no program panics");
            let carried = transfers.into_iter().map(|t| t.join().expect("no transfer panics"));
            let carried = carried.collect::<Vec<_>>().into_iter().flatten().collect();
            (heard.join().expect("no call panics"), carried)
        })
    }

    /// Checks that all processes that should run still do.
    fn check(&self) -> Result<(), Error> {
        self.emulator.check()?;
        self.agents.check()?;
        self.nodes.iter().try_for_each(|node| {
            let mut node = node.lock().expect("nobody panics");
            node.as_mut().map_or(Ok(()), Process::check)
        })
    }

    /// Starts each program when it is due, and ends all of them when the calls end.
    fn run_programs(&self, watch: &Watch, folder: &Path) -> Result<(), Error> {
        let scenario = self.testbed.scenario;
        let mut order: Vec<usize> = (0..scenario.programs.len()).collect();
        order.sort_by_key(|&n| scenario.programs[n].start);
        let mut running: Vec<Running> = Vec::new();
        let wait = |running: &mut Vec<Running>, at: Duration| {
            let look = &mut || running.iter_mut().try_for_each(|r| r.has_ended().map(drop));
            watch.attend(watch.begun() + at, look)
        };
        for n in order {
            wait(&mut running, scenario.programs[n].start)?;
            running.push(programs::start(scenario, n, &self.emulator, folder)?);
        }
        if !running.is_empty() {
            wait(&mut running, scenario.length)?;
        }
        running.into_iter().try_for_each(Running::finish)
    }

    /// Ends all processes; returns the effort, the outcome of flows outside the overlay, and the
    /// ledgers of links.
    fn finish(self, heard: &Heard, wakes_late: f64) -> Result<(Effort, Outcome, Table), Error> {
        let (plain, agents) = self.agents.finish()?;
        let (ledger, time) = self.emulator.finish()?;
        let mut cpu = vec![Cpu { process: "impair".into(), seconds: time.as_secs_f64() }];
        let nodes = self.nodes.into_iter().map(|node| node.into_inner().expect("nobody panics"));
        let mut nodes: Vec<Option<Process>> = nodes.collect();
        // All are asked to end before the first is waited for, since each takes a moment.
        nodes.iter_mut().flatten().for_each(Process::close);
        for (node, host) in nodes.into_iter().zip(&self.testbed.scenario.hosts) {
            let Some(node) = node else { continue };
            let seconds = node.finish()?.1.as_secs_f64();
            cpu.push(Cpu { process: host.name.clone(), seconds });
        }
        cpu.extend(agents);
        let calls = heard.late.iter().zip(&heard.packets);
        let late = calls.map(|(&late, packets)| (late, packets.len() as u64)).chain(plain.late());
        let effort = Effort::new(&ledger, wakes_late, cpu);
        let links = ledger::of_impair(self.testbed.scenario, &ledger);
        Ok((effort.calling(late, heard.refused + plain.refused()), plain, links))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effort(p999: f64, wakes_late: f64) -> Effort {
        let ledger = serde_json::json!({ "kernel": "6.1", "lateness_us": { "p99.9": p999 } });
        Effort::new(&ledger, wakes_late, Vec::new())
    }

    #[test]
    fn a_run_counts_where_nobody_waited_for_a_processor() {
        for (p999, wakes_late, valid) in
            [(1_000.0, 0.01, true), (1_000.5, 0.0, false), (10.0, 0.011, false)]
        {
            assert_eq!(effort(p999, wakes_late).valid, valid);
        }
        assert!(!Effort::new(&serde_json::json!({}), 0.0, Vec::new()).valid, "it has no ledger");
        let calling = |flows: &[(u64, u64)]| {
            let effort = effort(10.0, 0.0).calling(flows.iter().copied(), 0);
            (effort.valid, effort.callers_late_pct)
        };
        assert_eq!(calling(&[]), (true, 0.0));
        // The punctual packets of one flow can't hide that another flow is late.
        assert_eq!(calling(&[(0, 100_000), (27, 1_000)]), (false, 2.5));
        assert_eq!(calling(&[(7, 1_000), (2, 10)]), (true, 0.5));
        let worse = effort(80.0, 0.002).worse(&effort(90.0, 0.001));
        assert_eq!((worse.lateness_p999_us(), worse.wakes_late_pct), (90.0, 0.2));
    }
}
