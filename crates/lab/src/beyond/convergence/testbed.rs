//! Measures convergence with four sealed `trunkline node` daemons, each in its own network
//! namespace, connected by `trunkline impair --hosts`.

use super::control::Control;
use super::rows;
use super::script::{
    self, B, CALM, Event, FAILING, LINKS, NODES, Overlay, PATIENCE, SCRIPT, Settled, Step, Table,
    is_right,
};
use crate::experiment::{Cells, Size};
use crate::scenario::testbed::certified::{certify, files};
use crate::scenario::testbed::emulator::{self, Emulator, Models};
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::process::{self, Process};
use crate::scenario::testbed::run_monitor::RunMonitor;
use crate::scenario::testbed::wakes::Sleeper;
use crate::scenario::testbed::{Cpu, Effort, Error, cannot, config};
use crate::scenario::{Host, Link, Scenario};
use crate::testbed::{PLACES, Round, Sample, Stage, Testbed};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::rng;
use trunkline_net::IpVersion;
use trunkline_overlay::wire::NodeId;

/// Interval between queries of a daemon's table; its control socket answers no more often.
const LOOK: Duration = Duration::from_millis(5);
/// Number of separate overlays of four nodes at the same time: most of a run is waiting.
const AT_ONCE: usize = 2;

/// The first two steps of [`SCRIPT`], without the ten seconds of quiet before the second.
const SHORTEST: [Step; 2] = [SCRIPT[0], Step { after: Duration::ZERO, ..SCRIPT[1] }];

/// How the convergence experiment is measured with daemons.
pub fn testbed() -> Testbed {
    Testbed {
        figure: super::figures::beside(),
        rounds: Box::new(|size| vec![round(size)]),
        rows: Box::new(settled_rows),
    }
}

/// The only round: all overlays at the same time, each through several runs of the script.
fn round(size: Size) -> Round {
    let lives = Lives {
        runs: size.pick(1, 2, 7),
        script: size.pick(&SHORTEST[..], &SCRIPT[..], &SCRIPT[..]),
    };
    let one: f64 = lives.script.iter().map(length).sum();
    Round {
        name: "lives".into(),
        seconds: (lives.runs as f64 * one).ceil() as usize,
        parts: size.pick(1, AT_ONCE, AT_ONCE),
        run: Box::new(move |stage, lanes| lives.run(stage, lanes)),
    }
}

/// Approximate duration of a step, in seconds.
fn length(step: &Step) -> f64 {
    (step.after + CALM).as_secs_f64() + 1.2
}

/// Stores the outcome of an event as a sample.
fn sample(settled: &Settled) -> Sample {
    let Settled { event, took, for_good, look } = settled;
    let numbers = vec![took.as_secs_f64(), f64::from(*for_good), look.as_secs_f64()];
    Sample::new(event.name(), numbers)
}

/// The table's rows for all events in the samples.
fn settled_rows(samples: &[Sample]) -> Cells {
    let settled = |sample: &Sample| {
        let event = Event::ALL.into_iter().find(|e| e.name() == sample.of)?;
        let [took, for_good, look] = sample.numbers[..] else { return None };
        let [took, look] = [took, look].map(|s| Duration::try_from_secs_f64(s).ok());
        let (took, look) = took.zip(look)?;
        Some(Settled { event, took, for_good: for_good > 0.0, look })
    };
    let all: Vec<Settled> = samples.iter().filter_map(settled).collect();
    rows(PLACES[1], &all, samples.iter().all(|s| s.valid))
}

/// The runs that each overlay goes through.
struct Lives {
    /// Number of consecutive runs of the script.
    runs: usize,
    script: &'static [Step],
}

impl Lives {
    /// Runs the script in these lanes, each of which is a separate overlay.
    fn run(&self, stage: &Stage<'_>, lanes: &[usize]) -> Result<(Vec<Sample>, Effort), Error> {
        let dir = Folder::new()?;
        let network = Network::start(stage, dir.path(), lanes.len())?;
        let (before, watch) = (process::children()?, RunMonitor::new(Instant::now()));
        let sleeper = Sleeper::start();
        let live = |lane: usize| {
            let mut overlay = Daemons::new(&network, lane, &watch);
            let mut rng = rng(stage.seed, 1 + lanes[lane] as u64);
            let mut settled = Vec::new();
            for _ in 0..self.runs {
                let run = script::live(&mut overlay, self.script, &mut rng)?;
                settled.extend(run.iter().map(sample));
            }
            Ok(settled)
        };
        let samples: Vec<_> = std::thread::scope(|scope| {
            let (live, watch) = (&live, &watch);
            let lanes = (0..lanes.len()).map(|n| scope.spawn(move || watch.note(live(n))));
            let lanes: Vec<_> = lanes.collect();
            watch.attend_threads(&lanes, &network.emulator, stage.second);
            lanes.into_iter().filter_map(|l| l.join().expect("no lane panics")).collect()
        });
        let wakes_late = sleeper.finish();
        watch.end()?;
        let daemons = process::children()?.saturating_sub(before).as_secs_f64();
        let (ledger, impair) = network.emulator.finish()?;
        let cpu = vec![
            Cpu { process: "impair".into(), seconds: impair.as_secs_f64() },
            Cpu { process: "daemons".into(), seconds: daemons },
        ];
        Ok((samples.concat(), Effort::new(&ledger, wakes_late, cpu)))
    }
}

/// The id of a node, the same in each overlay.
fn id(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

fn name(node: usize) -> String {
    format!("node-{}", id(node))
}

/// The hosts and links of all overlays, and the files of their daemons.
struct Network {
    trunkline: PathBuf,
    dir: PathBuf,
    emulator: Emulator,
    scenario: Scenario,
    overlay_key: String,
    seed: u64,
    /// The current models of all links.
    models: Mutex<Models>,
}

impl Network {
    fn start(stage: &Stage<'_>, dir: &Path, lanes: usize) -> Result<Network, Error> {
        let (trunkline, seed, scenario) = (stage.trunkline.to_owned(), stage.seed, scenario(lanes));
        // All overlays share these names, and thus keys and certificates.
        let names: Vec<String> = (0..NODES).map(name).collect();
        let nodes = names.iter().enumerate().map(|(n, name)| (id(n), name.as_str()));
        Ok(Network {
            overlay_key: certify(&trunkline, dir, nodes)?,
            emulator: Emulator::start(&trunkline, &scenario, seed, dir)?,
            models: Mutex::new(emulator::models(&scenario)),
            dir: dir.to_owned(),
            trunkline,
            scenario,
            seed,
        })
    }

    /// Makes the failing link lose everything (`true`) or nothing, for each direction; returns when
    /// that began.
    fn change(&self, lane: usize, there: bool, back: bool) -> Result<Instant, Error> {
        let mut models = self.models.lock().expect("no lane panics");
        let loss = |all| if all { Loss::EVERYTHING } else { Loss::None };
        if let Some(both) = &mut models[links_of(lane)][FAILING] {
            (both[0].loss, both[1].loss) = (loss(there), loss(back));
        }
        // Under the lock, so that impair reads this file before it is replaced.
        let begun = Instant::now();
        self.emulator.change(&self.scenario, &models, self.seed)?;
        std::thread::sleep(LOOK);
        Ok(begun)
    }

    /// The text of a daemon's configuration file.
    fn config(&self, lane: usize, node: usize) -> String {
        let quoted = |p: PathBuf| toml::Value::String(p.to_string_lossy().into_owned()).to_string();
        let [key, certificate] = files(&self.dir, id(node));
        let mut text = format!(
            "[node]\nid = {}\nname = \"{}\"\nkey = {}\ncertificate = {}\nlisten = [\"[::]:{}\"]\n\
             control = {}\n[log]\nfilter = \"error,trunkline::node=info\"\n[overlay]\nkeys = [\"{}\"]\n",
            id(node),
            name(node),
            quoted(key),
            quoted(certificate),
            config::PORT,
            quoted(self.control(lane, node)),
            self.overlay_key,
        );
        for (n, &(a, b, _)) in links_of(lane).zip(&LINKS) {
            let neighbour = match (a == node, b == node) {
                (true, _) => b,
                (_, true) => a,
                _ => continue,
            };
            let end = self.emulator.end(&self.scenario, n, lane * NODES + neighbour);
            let (id, address) = (neighbour + 1, SocketAddr::new(end, config::PORT));
            let _ = write!(text, "[[link]]\nneighbour = {id}\naddress = \"{address}\"\n");
        }
        text
    }

    fn control(&self, lane: usize, node: usize) -> PathBuf {
        self.dir.join(format!("{lane}-{}.ctl", node + 1))
    }
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text).map_err(cannot(format!("write {}", file.display())))
}

fn links_of(lane: usize) -> Range<usize> {
    lane * LINKS.len()..(lane + 1) * LINKS.len()
}

/// A scenario with all overlays in parallel, as far as the emulator needs it.
fn scenario(lanes: usize) -> Scenario {
    let host = |n: usize| Host::new(n.to_string());
    let link = |lane: usize, &(a, b, ms): &(usize, usize, u64)| {
        let model = LinkModel { delay: Duration::from_millis(ms), ..LinkModel::default() };
        Link::between((lane * NODES + a, lane * NODES + b), model)
    };
    Scenario {
        name: super::FIGURE.into(),
        length: Duration::ZERO,
        ip: IpVersion::V6,
        pesq: false,
        sealed: false,
        hosts: (0..lanes * NODES).map(host).collect(),
        routers: Vec::new(),
        links: (0..lanes).flat_map(|n| LINKS.iter().map(move |l| link(n, l))).collect(),
        calls: Vec::new(),
        streams: Vec::new(),
        transfers: Vec::new(),
        programs: Vec::new(),
        faults: Vec::new(),
    }
}

/// The daemons of one overlay.
struct Daemons<'a> {
    network: &'a Network,
    lane: usize,
    watch: &'a RunMonitor,
    /// The daemons by number; `None` while one is not running.
    nodes: [Option<Process>; NODES],
}

/// The time since which a daemon's table has been right: between `after` and `by`.
#[derive(Clone, Copy)]
struct Right {
    /// When the last query that found the table wrong was sent.
    after: Instant,
    /// When the first answer with the right table arrived.
    by: Instant,
}

impl<'a> Daemons<'a> {
    fn new(network: &'a Network, lane: usize, watch: &'a RunMonitor) -> Daemons<'a> {
        Daemons { network, lane, watch, nodes: [const { None }; NODES] }
    }

    fn spawn(&mut self, node: usize) -> Result<(), Error> {
        let (network, id) = (self.network, node + 1);
        let file = network.dir.join(format!("{}-{id}.toml", self.lane));
        write(&file, &network.config(self.lane, node))?;
        let args = ["node", "--config"];
        let host = self.lane * NODES + node;
        let program = network.emulator.bound(host, &network.trunkline);
        let process = Process::spawn(program, format!("node {id}"), &args, &file)?;
        self.nodes[node] = Some(process);
        Ok(())
    }

    /// Makes an event happen and returns the time at which it did.
    fn begin(&mut self, event: Event) -> Result<Instant, Error> {
        let begun = Instant::now();
        match event {
            Event::Start => {
                // Dropping the daemons of the last run kills them with SIGKILL.
                self.nodes = [const { None }; NODES];
                self.network.change(self.lane, false, false)?;
                let begun = Instant::now();
                (0..NODES).try_for_each(|node| self.spawn(node))?;
                return Ok(begun);
            }
            Event::Cut => return self.network.change(self.lane, true, true),
            Event::Mend => return self.network.change(self.lane, false, false),
            Event::Blackhole => return self.network.change(self.lane, true, false),
            // Dropping the daemon kills it with SIGKILL.
            Event::Crash => drop(self.nodes[B].take()),
            Event::Restart => self.spawn(B)?,
        }
        Ok(begun)
    }

    /// Waits until the tables of all running daemons are right, for at most [`PATIENCE`].
    fn settle(&self, event: Event, begun: Instant) -> Result<Settled, Error> {
        let running: Vec<usize> = (0..NODES).filter(|&n| self.nodes[n].is_some()).collect();
        let rights: Vec<Mutex<Option<Right>>> = running.iter().map(|_| Mutex::default()).collect();
        let (over, wanted) = (AtomicBool::new(false), event.wanted());
        std::thread::scope(|scope| {
            for (&node, right) in running.iter().zip(&rights) {
                let (socket, over) = (self.network.control(self.lane, node), &over);
                scope.spawn(move || look_on(&socket, wanted[node], begun, right, over));
            }
            let settled = loop {
                if let Err(halted) = self.watch.sleep_until(Instant::now() + LOOK) {
                    break Err(halted);
                }
                let all = rights.iter().map(|r| *r.lock().expect("nobody panics"));
                let last = all
                    .collect::<Option<Vec<_>>>()
                    .and_then(|all| all.into_iter().max_by_key(|r| r.by));
                match last {
                    Some(Right { after, by }) if by.elapsed() >= CALM => {
                        let (took, look) = (by - begun, by - after);
                        break Ok(Settled { event, took, for_good: true, look });
                    }
                    _ if begun.elapsed() >= PATIENCE => {
                        break Ok(Settled { event, took: PATIENCE, for_good: false, look: LOOK });
                    }
                    _ => {}
                }
            };
            over.store(true, Ordering::Relaxed);
            settled
        })
    }
}

impl Overlay for Daemons<'_> {
    type Error = Error;

    fn rest(&mut self, how_long: Duration) -> Result<(), Error> {
        self.watch.sleep_until(Instant::now() + how_long)
    }

    fn inject(&mut self, event: Event) -> Result<Settled, Error> {
        let begun = self.begin(event)?;
        let settled = self.settle(event, begun)?;
        self.nodes.iter_mut().flatten().try_for_each(|node| {
            node.ready()?;
            node.check()
        })?;
        Ok(settled)
    }
}

/// Queries a daemon's table until `over` is set, and records since when it has been right. A daemon
/// that does not answer yet counts as having a wrong table.
fn look_on(
    socket: &Path,
    wanted: Table,
    begun: Instant,
    right: &Mutex<Option<Right>>,
    over: &AtomicBool,
) {
    let (mut control, mut after) = (None, begun);
    while !over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let mut look = || {
            let control = match &mut control {
                Some(control) => control,
                none => none.insert(Control::connect(socket)?),
            };
            control.table()
        };
        let seen = look();
        if seen.is_err() {
            control = None;
        }
        let mut right = right.lock().expect("nobody panics");
        if seen.is_ok_and(|table| is_right(table, wanted)) {
            right.get_or_insert_with(|| Right { after, by: Instant::now() });
        } else {
            (*right, after) = (None, asked);
        }
        drop(right);
        // Counted from the answer: a query that the socket can't answer yet has to wait, which
        // makes it less certain when the daemon read its table.
        std::thread::sleep(LOOK);
    }
}
