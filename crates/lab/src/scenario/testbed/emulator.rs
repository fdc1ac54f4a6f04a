//! `trunkline impair --hosts`: a network namespace for each host, and a scenario's routers
//! and links between them.

use super::super::build::node;
use super::super::model::{Link, Scenario, Spot};
use super::process::{HOST, Process};
use super::wire::{Traces, wire};
use super::{Error, cannot};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use trunkline_base::link_model::LinkModel;

/// What each link does, there and back; nothing for one without a wire.
pub type Models = Vec<Option<[LinkModel; 2]>>;

/// The hosts, as long as this is there.
pub struct Emulator {
    process: Mutex<Process>,
    file: PathBuf,
    traces: Traces,
    entrances: Vec<Entrance>,
}

/// How a host is entered, and its addresses.
#[derive(Debug, PartialEq, Eq)]
struct Entrance {
    /// Words of `nsenter`.
    enter: Vec<String>,
    /// Its own, then those of its links of the overlay that have a wire, in their order.
    addresses: Vec<(Ipv4Addr, Ipv6Addr)>,
}

impl Entrance {
    /// `NAME: nsenter … 10.64.0.1 fd74:6c::1 … tcp reno/1/1`.
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
    /// Makes the hosts of a scenario; its files go into `dir`.
    ///
    /// # Errors
    ///
    /// There can be no namespaces here, or a process failed.
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
            Entrance::parse(said).ok_or_else(|| Error::Process(format!("impair said: {line}")))
        };
        let entrances = said.iter().map(entrance).collect::<Result<Vec<_>, _>>()?;
        if entrances.len() != scenario.hosts.len() {
            let what =
                "impair names other hosts than it was given: is --trunkline of another version?";
            return Err(Error::Process(what.into()));
        }
        Ok(Emulator { process: Mutex::new(process), file, traces, entrances })
    }

    /// Lets links do something else from now on.
    ///
    /// # Errors
    ///
    /// Its file can't be written, or it has ended.
    pub fn change(&self, scenario: &Scenario, models: &Models, seed: u64) -> Result<(), Error> {
        write(&self.file, &network((scenario, models), &self.traces, seed))?;
        self.process().hang_up()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().expect("nobody panics")
    }

    /// As [`Process::check`].
    ///
    /// # Errors
    ///
    /// Likewise.
    pub fn check(&self) -> Result<(), Error> {
        self.process().check()
    }

    /// A program that is to be run at a host. It is killed when the thread that has started
    /// it ends, however that ends.
    pub fn bound(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(&self.entrances[host].enter).args(["--", "setpriv", "--pdeathsig", "KILL"]);
        command.arg("--").arg(program);
        command
    }

    /// The words of `nsenter` that enter a host.
    pub fn entrance(&self, host: usize) -> &[String] {
        &self.entrances[host].enter
    }

    /// A host's own addresses.
    pub fn addresses(&self, host: usize) -> (Ipv4Addr, Ipv6Addr) {
        self.entrances[host].addresses[0]
    }

    /// Where `link`, which is one of the overlay, ends at `host`.
    pub fn end(&self, scenario: &Scenario, link: usize, host: usize) -> Ipv6Addr {
        let is_at = |link: &Link| link.hosts().is_some_and(|(a, b)| a == host || b == host);
        let private = |link: &&Link| is_private(link) && is_at(link);
        let nth = match is_private(&scenario.links[link]) {
            true => 1 + scenario.links[..link].iter().filter(private).count(),
            false => 0,
        };
        self.entrances[host].addresses[nth].1
    }

    /// Ends it: its ledger, and its processor time.
    ///
    /// # Errors
    ///
    /// It has failed before.
    pub fn finish(self) -> Result<(serde_json::Value, Duration), Error> {
        let (ledger, time) = self.process.into_inner().expect("nobody panics").finish()?;
        let ledger = serde_json::from_str(&ledger)
            .map_err(|e| Error::Process(format!("impair's ledger is no JSON: {e}")))?;
        Ok((ledger, time))
    }
}

/// What links do as the file says.
pub fn models(scenario: &Scenario) -> Models {
    scenario.links.iter().map(|link| link.wire.clone()).collect()
}

/// Whether a link has addresses of its own at its hosts: one of the overlay over its own
/// wire, as in the simulator.
fn is_private(link: &Link) -> bool {
    link.overlay.is_some() && link.wire.is_some()
}

/// The network's file: the same models, seed and streams as in the simulator.
fn network((scenario, models): (&Scenario, &Models), traces: &Traces, seed: u64) -> String {
    let mut text = format!("seed = {seed}\n");
    for (n, host) in scenario.hosts.iter().enumerate() {
        let _ = write!(text, "[[host]]\nname = \"{}\"\n", name(Spot::Host(n)));
        for (key, value) in &host.sysctl {
            let value = toml::Value::String(value.clone());
            let _ = writeln!(text, "sysctl.\"{key}\" = {value}");
        }
    }
    for n in 0..scenario.routers.len() {
        let _ = write!(text, "[[router]]\nname = \"{}\"\n", name(Spot::Router(n)));
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

/// The simulator makes the wires of the overlay's links first.
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

/// Whatever a scenario calls them: names there are one word.
fn name(spot: Spot) -> String {
    match spot {
        Spot::Host(n) => format!("host-{}", node(n).0),
        Spot::Router(n) => format!("router-{}", n + 1),
    }
}

/// All at once: impair may be about to read it.
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
