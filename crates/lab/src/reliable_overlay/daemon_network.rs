//! Daemons in a testbed: rows of hosts with nodes on all of them, or with routers between the outer
//! two, for programs that don't use the overlay.

#![expect(
    clippy::disallowed_methods,
    reason = "the programs on a testbed's hosts use sockets and time"
)]

use crate::scenario::testbed::certified::certify;
use crate::scenario::testbed::config::{NodeFiles, node_text};
use crate::scenario::testbed::emulator::Emulator;
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::process::{Process, children};
use crate::scenario::testbed::wakes::Sleeper;
use crate::scenario::testbed::{Cpu, Effort, Error, cannot};
use crate::scenario::{Host, Link, Scenario, Vertex};
use crate::testbed::{Sample, Stage};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_net::IpVersion;
use trunkline_overlay::wire::NodeId;

/// A network without hosts; if it is sealed, its hosts get keys and certificates.
pub fn network(sealed: bool) -> Scenario {
    Scenario {
        name: "network".into(),
        length: Duration::ZERO,
        ip: IpVersion::V4,
        pesq: false,
        sealed,
        hosts: Vec::new(),
        routers: Vec::new(),
        links: Vec::new(),
        calls: Vec::new(),
        streams: Vec::new(),
        transfers: Vec::new(),
        programs: Vec::new(),
        faults: Vec::new(),
    }
}

/// Adds another host to a network and returns its number.
pub fn add_host(network: &mut Scenario) -> usize {
    network.hosts.push(Host::new(network.hosts.len().to_string()));
    network.hosts.len() - 1
}

/// Adds a row of hosts that are neighbours in the overlay, with these links between them; returns
/// the numbers of the first and the last.
pub fn add_nodes(network: &mut Scenario, links: &[LinkModel]) -> (usize, usize) {
    let first = add_host(network);
    for link in links {
        let next = add_host(network);
        network.links.push(Link::between((next - 1, next), link.clone()));
    }
    (first, network.hosts.len() - 1)
}

/// Adds two hosts outside of the overlay, with these links and routers between them; returns their
/// numbers.
pub fn add_routers(network: &mut Scenario, links: &[LinkModel]) -> (usize, usize) {
    let (first, last) = (add_host(network), add_host(network));
    let mut here = Vertex::Host(first);
    for (n, link) in links.iter().enumerate() {
        let next = match n + 1 == links.len() {
            true => Vertex::Host(last),
            false => {
                network.routers.push(network.routers.len().to_string());
                Vertex::Router(network.routers.len() - 1)
            }
        };
        network.links.push(Link {
            name: network.links.len().to_string(),
            named: false,
            ends: (here, next),
            wire: Some([link.clone(), link.clone()]),
            overlay: None,
            routed: None,
        });
        here = next;
    }
    (first, last)
}

/// Node id of a host.
pub fn node(host: usize) -> NodeId {
    NodeId(host as u32 + 1)
}

/// A network with its daemons running.
pub struct DaemonNetwork {
    scenario: Scenario,
    trunkline: PathBuf,
    dir: Folder,
    key: Option<String>,
    /// The emulated network, for starting programs on its hosts.
    pub emulator: Emulator,
    daemons: Vec<Option<Process>>,
    sleeper: Sleeper,
}

impl DaemonNetwork {
    /// Starts the network, and a daemon on each host that has an overlay link.
    pub fn start(trunkline: &Path, seed: u64, scenario: Scenario) -> Result<DaemonNetwork, Error> {
        let dir = Folder::new()?;
        let named = scenario.hosts.iter().enumerate().map(|(n, h)| (node(n), h.name.as_str()));
        let key = scenario.sealed.then(|| certify(trunkline, dir.path(), named)).transpose()?;
        let emulator = Emulator::start(trunkline, &scenario, seed, dir.path())?;
        let daemons = scenario.hosts.iter().map(|_| None).collect();
        let (trunkline, sleeper) = (trunkline.to_owned(), Sleeper::start());
        let mut testbed =
            DaemonNetwork { scenario, trunkline, dir, key, emulator, daemons, sleeper };
        for host in 0..testbed.scenario.hosts.len() {
            let is_at = |link: &Link| link.hosts().is_some_and(|(a, b)| a == host || b == host);
            if testbed.scenario.links.iter().any(is_at) {
                testbed.start_daemon(host)?;
            }
        }
        Ok(testbed)
    }

    /// Starts the daemon of a host, and waits until it is ready.
    pub fn start_daemon(&mut self, host: usize) -> Result<(), Error> {
        let files = NodeFiles::of(host, self.dir.path());
        let text = node_text(&self.scenario, (&self.emulator, self.key.as_deref()), host, &files);
        std::fs::write(&files.config, text).map_err(cannot("write a daemon's file"))?;
        let (program, args) = (self.emulator.bound(host, &self.trunkline), ["node", "--config"]);
        let (process, _) = Process::start(program, format!("node {host}"), &args, &files.config)?;
        self.daemons[host] = Some(process);
        Ok(())
    }

    /// Kills the daemon of a host with SIGKILL.
    pub fn kill_daemon(&mut self, host: usize) {
        self.daemons[host] = None;
    }

    /// The Unix socket of a host's daemon, for applications.
    pub fn socket(&self, host: usize) -> PathBuf {
        NodeFiles::of(host, self.dir.path()).socket
    }

    /// A temporary folder that is deleted when this is dropped.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// A witness that can query the daemons of all hosts.
    pub fn witness(&self) -> Witness {
        let socket = |host| NodeFiles::of(host, self.dir.path()).socket.with_extension("ctl");
        let controls = (0..self.daemons.len()).filter(|&host| self.daemons[host].is_some());
        Witness { trunkline: self.trunkline.clone(), controls: controls.map(socket).collect() }
    }

    /// Ends everything; the effort says whether the machine kept up.
    pub fn finish(mut self) -> Result<Effort, Error> {
        let wakes_late = self.sleeper.finish();
        self.daemons.iter_mut().flatten().for_each(Process::close);
        for daemon in self.daemons.into_iter().flatten() {
            daemon.finish()?;
        }
        let (ledger, _) = self.emulator.finish()?;
        Ok(Effort::new(&ledger, wakes_late, Vec::new()))
    }
}

/// Queries daemons for their state after an error.
pub struct Witness {
    trunkline: PathBuf,
    controls: Vec<PathBuf>,
}

impl Witness {
    /// Writes to standard error the state of all daemons' streams, links and routes, as JSON.
    pub fn tell(&self) {
        for control in &self.controls {
            for about in ["streams", "links", "routes", "status"] {
                let mut ask = Command::new(&self.trunkline);
                let said = ask.args([about, "--json", "--control"]).arg(control).output();
                let said = said.map(|out| [out.stdout, out.stderr].concat());
                let said = said.unwrap_or_else(|why| why.to_string().into());
                let said = String::from_utf8_lossy(&said);
                eprintln!("{about} by {}: {}", control.display(), said.trim());
            }
        }
    }
}

/// Measures these parts of a round at the same time, each on its own thread. The effort is that of
/// the latest part, with the processor time of all programs together.
pub fn side_by_side(
    stage: &Stage<'_>,
    parts: &[usize],
    measure: impl Fn(usize) -> Result<(Vec<Sample>, Effort), Error> + Sync,
) -> Result<(Vec<Sample>, Effort), Error> {
    let before = children()?;
    let measured = std::thread::scope(|scope| {
        let (measure, parts) = (&measure, parts.iter());
        let threads: Vec<_> = parts.map(|&part| scope.spawn(move || measure(part))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_secs(1));
            (stage.second)();
        }
        let ended = threads.into_iter().map(|thread| thread.join().expect("no part panics"));
        ended.collect::<Result<Vec<_>, Error>>()
    })?;
    let seconds = children()?.saturating_sub(before).as_secs_f64();
    let (mut samples, mut latest) = (Vec::new(), None::<Effort>);
    for (more, effort) in measured {
        samples.extend(more);
        latest = Some(match latest {
            Some(latest) => Effort { valid: latest.valid && effort.valid, ..latest.worse(&effort) },
            None => effort,
        });
    }
    let nothing = || Error::Process("there is nothing to measure".into());
    let cpu = vec![Cpu { process: "all programs".into(), seconds }];
    Ok((samples, Effort { cpu, ..latest.ok_or_else(nothing)? }))
}
