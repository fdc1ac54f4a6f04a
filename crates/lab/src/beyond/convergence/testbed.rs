//! The same events with four sealed `trunkline node` daemons and `trunkline
//! impair` between them, on the loopback interface.

use super::control::Control;
use super::script::{
    self, B, CALM, Event, FAILING, LINKS, NODES, Overlay, PATIENCE, SCRIPT, Settled, Step, Table,
    is_right,
};
use super::{COLUMNS, PLACES, rows};
use crate::experiment::Size;
use crate::scenario::testbed::config::{self, Addresses};
use crate::scenario::testbed::process::{self, Process};
use crate::scenario::testbed::{Cpu, Error, MAX_LATENESS_US, cannot};
use crate::scenario::{Host, Link, Scenario};
use crate::table::{Row, print};
use serde::Serialize;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::rng;
use trunkline_base::stats::quantile;

/// Between two looks at a daemon's table: its control socket answers no more
/// often.
const LOOK: Duration = Duration::from_millis(5);
/// Overlays of four at the same time, each by itself: most of a run is waiting.
const AT_ONCE: usize = 2;

/// The beginning of [`SCRIPT`], without what needs ten seconds of quiet before.
const SHORTEST: [Step; 2] = [SCRIPT[0], Step { after: Duration::ZERO, ..SCRIPT[1] }];

/// What a run was like for the machine.
#[derive(Serialize, Debug)]
pub struct Effort {
    /// Whether impair kept up: its p99.9 lateness is at most
    /// [`MAX_LATENESS_US`].
    pub valid: bool,
    /// How late impair sent packets on, microseconds.
    pub lateness_us: serde_json::Value,
    /// How long nobody had looked when a table was first seen right, in
    /// milliseconds: what a time may be too long by.
    pub look_ms: Looks,
    /// Overlays of four daemons at the same time.
    pub at_once: usize,
    /// Processor time: of impair, and of all daemons together.
    pub cpu: Vec<Cpu>,
    /// The run's length, seconds.
    pub seconds: f64,
}

/// A distribution.
#[derive(Serialize, Debug)]
pub struct Looks {
    p50: f64,
    p90: f64,
    max: f64,
}

impl Effort {
    /// The p99.9 of `lateness_us`.
    pub fn lateness_p999_us(&self) -> f64 {
        self.lateness_us["p99.9"].as_f64().unwrap_or(f64::NAN)
    }
}

/// How often everything happens to daemons, and the program for them.
#[derive(Debug)]
pub struct Testbed {
    trunkline: PathBuf,
    at_once: usize,
    /// Of the script, one after the other in each overlay.
    runs: usize,
    script: &'static [Step],
}

impl Testbed {
    /// Starts nothing yet. `trunkline` is the program; `None` looks for it
    /// beside this one, then in PATH.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`].
    pub fn new(trunkline: Option<&Path>, size: Size) -> Result<Testbed, Error> {
        Ok(Testbed {
            trunkline: process::find_default(trunkline)?,
            at_once: size.pick(1, AT_ONCE, AT_ONCE),
            runs: size.pick(1, 2, 7),
            script: size.pick(&SHORTEST, &SCRIPT, &SCRIPT),
        })
    }

    /// How many events there will be, and about how many seconds they take, if
    /// they took place one after the other.
    pub fn extent(&self) -> (usize, f64) {
        let runs = self.at_once * self.runs;
        let one: f64 = self.script.iter().map(weight).sum();
        (runs * self.script.len(), runs as f64 * one)
    }

    /// Runs it; its rows and what it cost. `done` is told the weight of each
    /// event. The processes end with this one, however that ends.
    ///
    /// # Errors
    ///
    /// A process failed.
    pub fn run(&self, seed: u64, done: &(dyn Fn(f64) + Sync)) -> Result<(Vec<Row>, Effort), Error> {
        let dir = tempfile::Builder::new().prefix("trunkline-lab-").tempdir();
        let dir = dir.map_err(cannot("make a temporary folder"))?;
        let overlay_key = self.keys(dir.path())?;
        let network = Network::start(self, dir.path(), seed, overlay_key)?;
        let (begun, before) = (Instant::now(), process::children()?);
        let failed = AtomicBool::new(false);
        let live = |lane: usize| {
            let mut overlay = Daemons::new(&network, lane, done);
            let mut luck = rng(seed, 1 + lane as u64);
            let mut settled = Vec::new();
            for _ in 0..self.runs {
                let run = script::live(&mut overlay, self.script, &mut luck);
                failed.fetch_or(run.is_err(), Ordering::Relaxed);
                settled.extend(run?);
                if failed.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok(settled)
        };
        let settled: Vec<Settled> = std::thread::scope(|scope| {
            let live = &live;
            let lanes: Vec<_> = (0..self.at_once).map(|n| scope.spawn(move || live(n))).collect();
            let joined = lanes.into_iter().map(|l| l.join().expect("no lane panics"));
            joined.collect::<Result<Vec<_>, Error>>()
        })?
        .concat();
        let effort = self.effort(network, &settled, begun, before)?;
        let cells = rows(PLACES[1], &settled, effort.valid);
        Ok((cells.into_iter().map(|row| print(COLUMNS, row)).collect(), effort))
    }

    /// A key and a certificate for each node; the overlay's public key.
    fn keys(&self, dir: &Path) -> Result<String, Error> {
        let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let overlay = self.tool(&["keygen", &at("overlay.key")])?;
        for node in 1..=NODES {
            let key = self.tool(&["keygen", &at(&format!("{node}.key"))])?;
            let (id, name) = (node.to_string(), format!("node-{node}"));
            let (signer, file) = (at("overlay.key"), at(&format!("{node}.cert")));
            let says = ["--node", &id, "--name", &name, "--key", &key, &file];
            self.tool(&[&["certify", "--overlay-key", &signer][..], &says].concat())?;
        }
        Ok(overlay)
    }

    /// What a command of the program prints.
    fn tool(&self, args: &[&str]) -> Result<String, Error> {
        let out = Command::new(&self.trunkline).args(args).output();
        let out = out.map_err(cannot(format!("start {}", self.trunkline.display())))?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.lines().last().unwrap_or("nothing");
            return Err(Error::Process(format!("trunkline {} failed: {said}", args[0])));
        }
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    fn effort(
        &self,
        network: Network,
        settled: &[Settled],
        begun: Instant,
        before: Duration,
    ) -> Result<Effort, Error> {
        let seconds = begun.elapsed().as_secs_f64();
        let daemons = process::children()?.saturating_sub(before).as_secs_f64();
        let (ledger, impair) = network.impair.finish()?;
        let ledger: serde_json::Value = serde_json::from_str(&ledger)
            .map_err(|e| Error::Process(format!("impair's ledger is no JSON: {e}")))?;
        let mut looks: Vec<f64> = settled.iter().map(|s| 1e3 * s.look.as_secs_f64()).collect();
        looks.sort_unstable_by(f64::total_cmp);
        let look = |share| quantile(&looks, share).unwrap_or(f64::NAN);
        let mut effort = Effort {
            valid: false,
            lateness_us: ledger["lateness_us"].clone(),
            look_ms: Looks { p50: look(0.5), p90: look(0.9), max: look(1.0) },
            at_once: self.at_once,
            cpu: vec![
                Cpu { process: "impair".into(), seconds: impair.as_secs_f64() },
                Cpu { process: "daemons".into(), seconds: daemons },
            ],
            seconds,
        };
        effort.valid = effort.lateness_p999_us() <= MAX_LATENESS_US;
        Ok(effort)
    }
}

/// About how long an event takes, seconds.
fn weight(step: &Step) -> f64 {
    (step.after + CALM).as_secs_f64() + 1.2
}

/// The links of all overlays, and the files of their daemons.
struct Network {
    trunkline: PathBuf,
    dir: PathBuf,
    impair: Process,
    impair_file: PathBuf,
    addresses: Addresses,
    overlay_key: String,
    seed: u64,
    /// What links do now.
    links: Mutex<Scenario>,
}

impl Network {
    fn start(
        testbed: &Testbed,
        dir: &Path,
        seed: u64,
        overlay_key: String,
    ) -> Result<Network, Error> {
        let scenario = scenario(testbed.at_once);
        let addresses = Addresses::free(&scenario)?;
        let (trunkline, file) = (&testbed.trunkline, dir.join("impair.toml"));
        write(&file, &config::impair(&scenario, &addresses, seed))?;
        Ok(Network {
            impair: Process::start(command(trunkline), "impair".into(), &["impair"], &file)?.0,
            trunkline: trunkline.clone(),
            dir: dir.to_owned(),
            impair_file: file,
            addresses,
            overlay_key,
            seed,
            links: Mutex::new(scenario),
        })
    }

    /// Lets the link that fails lose everything or nothing, there and back;
    /// when that began.
    fn change(&self, lane: usize, there: bool, back: bool) -> Result<Instant, Error> {
        let mut scenario = self.links.lock().expect("no lane panics");
        let link = &mut scenario.links[links_of(lane)][FAILING];
        let loss = |all| if all { Loss::EVERYTHING } else { Loss::None };
        if let Some(models) = &mut link.wire {
            (models[0].loss, models[1].loss) = (loss(there), loss(back));
        }
        write(&self.impair_file, &config::impair(&scenario, &self.addresses, self.seed))?;
        // With the lock, since impair must read this file and not the next.
        let begun = Instant::now();
        self.impair.hang_up()?;
        std::thread::sleep(LOOK);
        Ok(begun)
    }

    /// The configuration of a daemon.
    fn config(&self, lane: usize, node: usize) -> String {
        let id = node + 1;
        let quoted = |p: PathBuf| toml::Value::String(p.to_string_lossy().into_owned()).to_string();
        let mut text = format!(
            "[node]\nid = {id}\nname = \"node-{id}\"\nkey = {}\ncertificate = {}\nlisten = [\"{}\"]\n\
             control = {}\n[log]\nfilter = \"error,trunkline::node=info\"\n[overlay]\nkeys = [\"{}\"]\n",
            quoted(self.dir.join(format!("{id}.key"))),
            quoted(self.dir.join(format!("{id}.cert"))),
            self.addresses.nodes[lane * NODES + node],
            quoted(self.control(lane, node)),
            self.overlay_key,
        );
        for ((a, b, _), (at_a, at_b)) in LINKS.iter().zip(&self.addresses.links[links_of(lane)]) {
            let (neighbour, address) = match (a, b) {
                (&here, &there) if here == node => (there, at_a),
                (&there, &here) if here == node => (there, at_b),
                _ => continue,
            };
            let neighbour = neighbour + 1;
            let _ = write!(text, "[[link]]\nneighbour = {neighbour}\naddress = \"{address}\"\n");
        }
        text
    }

    fn control(&self, lane: usize, node: usize) -> PathBuf {
        self.dir.join(format!("{lane}-{}.ctl", node + 1))
    }
}

fn command(trunkline: &Path) -> Command {
    Command::new(trunkline)
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text).map_err(cannot(format!("write {}", file.display())))
}

fn links_of(lane: usize) -> Range<usize> {
    lane * LINKS.len()..(lane + 1) * LINKS.len()
}

/// All overlays side by side, as far as impair needs to know.
fn scenario(lanes: usize) -> Scenario {
    let host = |n: usize| Host::new(n.to_string());
    let link = |lane: usize, &(a, b, ms): &(usize, usize, u64)| {
        let model = LinkModel { delay: Duration::from_millis(ms), ..LinkModel::default() };
        Link::between((lane * NODES + a, lane * NODES + b), model)
    };
    Scenario {
        name: super::FIGURE.into(),
        length: Duration::ZERO,
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

/// One overlay of daemons.
struct Daemons<'a> {
    network: &'a Network,
    lane: usize,
    /// The daemons by number; `None` where one does not run.
    nodes: [Option<Process>; NODES],
    done: &'a (dyn Fn(f64) + Sync),
}

/// Since when a table is right.
#[derive(Clone, Copy)]
struct Right {
    /// When it was last asked for and was not.
    after: Instant,
    /// When it came and was.
    by: Instant,
}

impl<'a> Daemons<'a> {
    fn new(network: &'a Network, lane: usize, done: &'a (dyn Fn(f64) + Sync)) -> Daemons<'a> {
        Daemons { network, lane, nodes: [const { None }; NODES], done }
    }

    fn spawn(&mut self, node: usize) -> Result<(), Error> {
        let (network, id) = (self.network, node + 1);
        let file = network.dir.join(format!("{}-{id}.toml", self.lane));
        write(&file, &network.config(self.lane, node))?;
        let args = ["node", "--config"];
        let process =
            Process::spawn(command(&network.trunkline), format!("node {id}"), &args, &file)?;
        self.nodes[node] = Some(process);
        Ok(())
    }

    /// Makes it happen; when it did.
    fn begin(&mut self, event: Event) -> Result<Instant, Error> {
        let begun = Instant::now();
        match event {
            Event::Start => {
                // SIGKILL for those of the last run.
                self.nodes = [const { None }; NODES];
                self.network.change(self.lane, false, false)?;
                let begun = Instant::now();
                (0..NODES).try_for_each(|node| self.spawn(node))?;
                return Ok(begun);
            }
            Event::Cut => return self.network.change(self.lane, true, true),
            Event::Mend => return self.network.change(self.lane, false, false),
            Event::Blackhole => return self.network.change(self.lane, true, false),
            // SIGKILL.
            Event::Crash => drop(self.nodes[B].take()),
            Event::Restart => self.spawn(B)?,
        }
        Ok(begun)
    }

    /// Waits until the tables of all daemons that run are right.
    fn settle(&self, event: Event, begun: Instant) -> Settled {
        let running: Vec<usize> = (0..NODES).filter(|&n| self.nodes[n].is_some()).collect();
        let rights: Vec<Mutex<Option<Right>>> = running.iter().map(|_| Mutex::default()).collect();
        let (over, wanted) = (AtomicBool::new(false), event.wanted());
        std::thread::scope(|scope| {
            for (&node, right) in running.iter().zip(&rights) {
                let (socket, over) = (self.network.control(self.lane, node), &over);
                scope.spawn(move || watch(&socket, wanted[node], begun, right, over));
            }
            let settled = loop {
                std::thread::sleep(LOOK);
                let all = rights.iter().map(|r| *r.lock().expect("nobody panics"));
                let last = all
                    .collect::<Option<Vec<_>>>()
                    .and_then(|all| all.into_iter().max_by_key(|r| r.by));
                match last {
                    Some(Right { after, by }) if by.elapsed() >= CALM => {
                        let (took, look) = (by - begun, by - after);
                        break Settled { event, took, for_good: true, look };
                    }
                    _ if begun.elapsed() >= PATIENCE => {
                        break Settled { event, took: PATIENCE, for_good: false, look: LOOK };
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
        std::thread::sleep(how_long);
        Ok(())
    }

    fn strike(&mut self, event: Event) -> Result<Settled, Error> {
        let begun = self.begin(event)?;
        let settled = self.settle(event, begun);
        self.nodes.iter_mut().flatten().try_for_each(|node| node.ready().map(drop))?;
        let step = SCRIPT.iter().find(|s| s.event == event);
        (self.done)(step.map_or(0.0, weight));
        Ok(settled)
    }
}

/// Looks at a daemon's table until `over`, and notes since when it is right.
/// One that does not answer, since it has only been started, has none.
fn watch(
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
        // From the answer: who asks sooner than the socket answers always waits
        // for it, and knows less precisely when the daemon looked.
        std::thread::sleep(LOOK);
    }
}
