//! Runs `trunkline impair --hosts`: a network namespace for each host, with the scenario's
//! routers and links between them.

use super::super::build::node;
use super::super::model::{Link, Scenario, Vertex};
use super::process::{HOST, Process};
use super::wire::{Traces, wire};
use super::{Error, cannot};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_net::IpVersion;

/// The models of each link, there and back; `None` for a link without a wire.
pub type Models = Vec<Option<[LinkModel; 2]>>;

/// A running impair and its hosts, which exist until this is dropped.
pub struct Emulator {
    process: Mutex<Process>,
    file: PathBuf,
    traces: Traces,
    ip: IpVersion,
    entrances: Vec<Entrance>,
}

/// How to enter a host, and the host's addresses.
#[derive(Debug, PartialEq, Eq)]
struct Entrance {
    /// The arguments with which `nsenter` enters the host.
    enter: Vec<String>,
    /// The host's main addresses, then those of its overlay links that have a wire, in order.
    addresses: Vec<(Ipv4Addr, Ipv6Addr)>,
}

impl Entrance {
    /// Parses a line such as `NAME: nsenter … 10.64.0.1 fd74:6c::1 … tcp reno/1/1`.
    fn parse(line: &str) -> Option<Entrance> {
        let (_, said) = line.split_once(": nsenter ")?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let enter = words.iter().take_while(|word| word.starts_with("--"));
        let enter: Vec<String> = enter.map(|word| (*word).to_owned()).collect();
        let addresses = words[enter.len()..].chunks_exact(2);
        let addresses =
            addresses.map_while(|pair| Some((pair[0].parse().ok()?, pair[1].parse().ok()?)));
        let addresses: Vec<_> = addresses.collect();
        (!addresses.is_empty()).then_some(Entrance { enter, addresses })
    }
}

impl Emulator {
    /// Starts impair, which creates the scenario's hosts; its files go into `dir`.
    ///
    /// # Errors
    ///
    /// If a file can't be written, or impair fails, for example because it may not create
    /// namespaces.
    pub fn start(
        trunkline: &Path,
        scenario: &Scenario,
        seed: u64,
        dir: &Path,
    ) -> Result<Emulator, Error> {
        let file = dir.join("net.toml");
        let traces = Traces::of(scenario);
        traces.write(dir)?;
        write(&file, &network((scenario, &models(scenario)), &traces, seed))?;
        let args = ["impair", "--punctual", "--hosts"];
        let (process, said) =
            Process::start(Command::new(trunkline), "impair".into(), &args, &file)?;
        let entrance = |line: &String| {
            let said = line.strip_prefix(HOST).unwrap_or(line);
            Entrance::parse(said).ok_or_else(|| {
                Error::Process(format!(
                    "unexpected line from \
                                                                        impair: {line}"
                ))
            })
        };
        let entrances = said.iter().map(entrance).collect::<Result<Vec<_>, _>>()?;
        if entrances.len() != scenario.hosts.len() {
            let what =
                "impair lists other hosts than it was given: is --trunkline of another version?";
            return Err(Error::Process(what.into()));
        }
        let ip = scenario.ip;
        Ok(Emulator { process: Mutex::new(process), file, traces, ip, entrances })
    }

    /// Gives the links new models from now on.
    ///
    /// # Errors
    ///
    /// If impair's file can't be written, or impair has ended.
    pub fn change(&self, scenario: &Scenario, models: &Models, seed: u64) -> Result<(), Error> {
        write(&self.file, &network((scenario, models), &self.traces, seed))?;
        self.process().hang_up()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().expect("nobody panics")
    }

    /// Checks that impair still runs.
    ///
    /// # Errors
    ///
    /// If impair has ended; the error says how, as in [`Process::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.process().check()
    }

    /// A command that runs `program` on a host. The program is killed when the thread that
    /// started it ends, however that thread ends.
    pub fn bound(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(&self.entrances[host].enter).args(["--", "setpriv", "--pdeathsig", "KILL"]);
        command.arg("--").arg(program);
        command
    }

    /// The arguments of `nsenter` to enter a host.
    pub fn entrance(&self, host: usize) -> &[String] {
        &self.entrances[host].enter
    }

    /// The IPv4 and IPv6 addresses of a host itself, not of its overlay links.
    pub fn addresses(&self, host: usize) -> (Ipv4Addr, Ipv6Addr) {
        self.entrances[host].addresses[0]
    }

    /// The address of a host itself, of the scenario's IP version.
    pub fn address(&self, host: usize) -> IpAddr {
        self.of_version(self.addresses(host))
    }

    fn of_version(&self, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> IpAddr {
        match self.ip {
            IpVersion::V4 => v4.into(),
            IpVersion::V6 => v6.into(),
        }
    }

    /// Where the daemon of a host listens: at any address of the scenario's IP version.
    pub fn any(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.of_version((Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED)), port)
    }

    /// Address of the overlay link `link` at `host`.
    pub fn end(&self, scenario: &Scenario, link: usize, host: usize) -> IpAddr {
        let is_at = |link: &Link| link.hosts().is_some_and(|(a, b)| a == host || b == host);
        let private = |link: &&Link| is_private(link) && is_at(link);
        let nth = match is_private(&scenario.links[link]) {
            true => 1 + scenario.links[..link].iter().filter(private).count(),
            false => 0,
        };
        self.of_version(self.entrances[host].addresses[nth])
    }

    /// Ends impair; returns its ledger and its processor time.
    ///
    /// # Errors
    ///
    /// If impair has failed or does not end in time, or its ledger is not JSON.
    pub fn finish(self) -> Result<(serde_json::Value, Duration), Error> {
        let (ledger, time) = self.process.into_inner().expect("nobody panics").finish()?;
        let ledger = serde_json::from_str(&ledger)
            .map_err(|e| Error::Process(format!("impair's ledger is not JSON: {e}")))?;
        Ok((ledger, time))
    }
}

/// The models of a scenario's links before any fault.
pub fn models(scenario: &Scenario) -> Models {
    scenario.links.iter().map(|link| link.wire.clone()).collect()
}

/// Whether a link has separate addresses at its hosts, as an overlay link over a private wire has
/// in the simulator.
fn is_private(link: &Link) -> bool {
    link.overlay.is_some() && link.wire.is_some()
}

/// The text of impair's file: the same models, seed and random streams as in the simulator.
fn network((scenario, models): (&Scenario, &Models), traces: &Traces, seed: u64) -> String {
    let mut text = format!("seed = {seed}\n");
    for (n, host) in scenario.hosts.iter().enumerate() {
        let _ = write!(text, "[[host]]\nname = \"{}\"\n", name(Vertex::Host(n)));
        for (key, value) in &host.sysctl {
            let value = toml::Value::String(value.clone());
            let _ = writeln!(text, "sysctl.\"{key}\" = {value}");
        }
    }
    for n in 0..scenario.routers.len() {
        let _ = write!(text, "[[router]]\nname = \"{}\"\n", name(Vertex::Router(n)));
    }
    for (n, link) in scenario.links.iter().enumerate() {
        let Some([there, back]) = &models[n] else { continue };
        let (a, b) = link.ends;
        let _ = write!(
            text,
            "[[edge]]\nname = \"{n}\"\nbetween = [\"{}\", \"{}\"]\nprivate = {}\nstream = {}\n",
            name(a),
            name(b),
            is_private(link),
            stream(scenario, n),
        );
        text += &wire(there, back, traces);
    }
    text
}

/// The random stream of link `n`, as in the simulator, which makes the wires of the overlay's
/// links first.
fn stream(scenario: &Scenario, n: usize) -> usize {
    let is_wire = |link: &&Link| link.wire.is_some();
    let private = |link: &&Link| is_private(link);
    let before = &scenario.links[..n];
    match is_private(&scenario.links[n]) {
        true => before.iter().filter(private).count(),
        false => {
            let all = scenario.links.iter().filter(private).count();
            all + before.iter().filter(|link| is_wire(link) && !private(link)).count()
        }
    }
}

/// Name of a host or router in impair's file, where names are one word, unlike in scenarios.
fn name(spot: Vertex) -> String {
    match spot {
        Vertex::Host(n) => format!("host-{}", node(n).0),
        Vertex::Router(n) => format!("router-{}", n + 1),
    }
}

/// Replaces a file atomically, since impair may be about to read it.
fn write(file: &Path, text: &str) -> Result<(), Error> {
    let new = file.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
    written.map_err(cannot(format!("write {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn a_host_is_entered_as_it_is_said() {
        let said = "host-1: nsenter --net=/proc/7/fd/8 10.64.0.1 fd74:6c::1 10.64.0.2 fd74:6c::2 \
                    tcp reno/1/1";
        let entrance = Entrance::parse(said).unwrap();
        assert_eq!(entrance.enter, ["--net=/proc/7/fd/8"]);
        assert_eq!(entrance.addresses.len(), 2);
        assert_eq!(entrance.addresses[1].1.to_string(), "fd74:6c::2");
        let user = "host-1: nsenter --user=/proc/7/ns/user --preserve-credentials --net=/x 10.64.0.1 \
                    fd74:6c::1 tcp cubic/1/1";
        assert_eq!(Entrance::parse(user).unwrap().enter.len(), 3);
        assert_eq!(Entrance::parse("host-1: nsenter --net=/x tcp reno"), None);
    }

    #[test]
    fn the_network_has_the_simulators_wires_and_streams() {
        let text = "length = \"9 s\"\nhost = [{ name = \"a\" }, { name = \"b\" }]\n\
            router = [{ name = \"r\" }]\nlink = [\
            { between = [\"a\", \"r\"], delay = \"1ms\" }, { between = [\"r\", \"b\"], delay = \"1ms\" },\
            { between = [\"a\", \"b\"], delay = \"9ms\", rate = \"1 Mbit/s\", loss = 0.1, path = \"x\" },\
            { between = [\"a\", \"b\"] }]\ncall = [{ from = \"a\", to = \"b\" }]";
        let scenario = parse(Path::new("s.toml"), text).unwrap();
        let said = network((&scenario, &models(&scenario)), &Traces::default(), 7);
        let edges: Vec<&str> = said.split("[[edge]]\n").skip(1).collect();
        assert_eq!(edges.len(), 3, "{said}");
        for (edge, wanted) in edges.iter().zip([
            "between = [\"host-1\", \"router-1\"]\nprivate = false\nstream = 1\n",
            "between = [\"router-1\", \"host-2\"]\nprivate = false\nstream = 2\n",
            "between = [\"host-1\", \"host-2\"]\nprivate = true\nstream = 0\n",
        ]) {
            assert!(edge.contains(wanted), "{edge}");
        }
    }
}
