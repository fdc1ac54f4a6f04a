//! Writes the configuration files of a scenario's daemons.

use super::super::build::{host, node, topology};
use super::super::model::Scenario;
use super::emulator::Emulator;
use super::{Error, certified, settings, transfers};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use trunkline_overlay::link;
use trunkline_overlay::node::Config;

/// Most hosts in a scenario: each has a daemon, and another process if a plain call or stream
/// starts or ends there.
const MAX_HOSTS: usize = 64;

/// Checks that daemons can run the scenario; [`Error::Unsupported`] if not.
pub fn check(scenario: &Scenario) -> Result<(), Error> {
    let unsupported = |what: String| Err(Error::Unsupported(what));
    check_network(scenario)?;
    if let Some(transfer) = scenario.transfers.iter().find(|t| !transfers::has(t.congestion)) {
        let (name, congestion) = (&transfer.name, transfer.congestion);
        return unsupported(format!(
            "[[stream]] congestion: \"{name}\" needs \"{congestion}\", which this kernel lacks: \
             load tcp_{congestion}, or use one listed in \
             /proc/sys/net/ipv4/tcp_available_congestion_control"
        ));
    }
    for (n, host) in scenario.hosts.iter().enumerate() {
        let mut links = links_of(scenario, n).map(|(_, _, settings)| settings.realtime.recovery);
        let first = links.next();
        if links.any(|recovery| Some(recovery) != first) {
            return unsupported(format!(
                "[[link]] recovery: host \"{}\" has different policies on its links, but a daemon \
                 has one for all: make them equal",
                host.name
            ));
        }
    }
    Ok(())
}

/// Checks that the scenario's network fits into the testbed; [`Error::Unsupported`] if not.
pub fn check_network(scenario: &Scenario) -> Result<(), Error> {
    let n = scenario.hosts.len();
    if n > MAX_HOSTS {
        let what = format!(
            "[[host]]: there are {n}, but the testbed, which runs a process for \
                            each, supports at most"
        );
        return Err(Error::Unsupported(format!("{what} {MAX_HOSTS}")));
    }
    Ok(())
}

/// The overlay's links at `host`: each link's index, the host at its other end, and the
/// settings at this end.
fn links_of(
    scenario: &Scenario,
    host: usize,
) -> impl Iterator<Item = (usize, usize, &link::Config)> {
    scenario.links.iter().enumerate().filter_map(move |(n, link)| {
        let ((a, b), [first, second]) = (link.hosts()?, &**link.overlay.as_ref()?);
        match (a == host, b == host) {
            (true, _) => Some((n, b, first)),
            (_, true) => Some((n, a, second)),
            _ => None,
        }
    })
}

/// UDP port of each host's daemon.
pub const PORT: u16 = 7_000;

/// The files of a host's daemon: its configuration, its Unix socket for applications, and, in
/// a sealed overlay, its key and certificate.
pub struct NodeFiles {
    pub config: PathBuf,
    pub socket: PathBuf,
    key: PathBuf,
    certificate: PathBuf,
}

impl NodeFiles {
    /// Paths of the files of host `n`, in `dir`.
    pub fn of(n: usize, dir: &Path) -> NodeFiles {
        let [config, socket] =
            ["toml", "sock"].map(|ending| dir.join(format!("{}.{ending}", node(n))));
        let [key, certificate] = certified::files(dir, node(n));
        NodeFiles { config, socket, key, certificate }
    }
}

/// Configuration of the daemon of host `n`: the scenario's settings where they are not the
/// defaults, and the simulator's routes. `overlay_key` is the public key of a sealed overlay.
pub fn node_text(
    scenario: &Scenario,
    (emulator, overlay_key): (&Emulator, Option<&str>),
    n: usize,
    files: &NodeFiles,
) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let file = |path: &Path| quoted(&path.to_string_lossy());
    let (seal, overlay) = match overlay_key {
        Some(public) => (
            format!("key = {}\ncertificate = {}", file(&files.key), file(&files.certificate)),
            format!("[overlay]\nkeys = [\"{public}\"]\n"),
        ),
        None => ("unsealed_for_measurements = true".to_owned(), String::new()),
    };
    let mut text = format!(
        "[node]\nid = {}\nname = {}\n{seal}\nlisten = [\"{}\"]\nsocket = {}\ncontrol = {}\n",
        node(n),
        quoted(&scenario.hosts[n].name),
        emulator.any(PORT),
        file(&files.socket),
        file(&files.socket.with_extension("ctl")),
    );
    if scenario.hosts[n].max_sessions != Config::MAX_SESSIONS {
        let _ = writeln!(text, "max_sessions = {}", scenario.hosts[n].max_sessions);
    }
    // No warnings, since links are expected to go down; `info` for the `ready` that is waited
    // for.
    text += "[log]\nfilter = \"error,trunkline::node=info\"\n";
    text += &overlay;
    for (link, neighbour, settings) in links_of(scenario, n) {
        let end = SocketAddr::new(emulator.end(scenario, link, neighbour), PORT);
        let _ = write!(text, "[[link]]\nneighbour = {}\naddress = \"{end}\"\n", node(neighbour));
        text += &settings::of_link(settings);
    }
    text.extend(scenario.hosts[n].trunks.iter().map(settings::of_trunk));
    // The simulator's keys are not needed, and routes are the same without them.
    let open = Scenario { sealed: false, ..scenario.clone() };
    for route in &topology(&open).config_mut(host(n)).routes {
        let to = route.to.map_or("\"*\"".to_owned(), |to| format!("[{to}]"));
        let (via, onward) = (route.via, route.onward.as_nanos());
        let _ = write!(text, "[[route]]\nto = {to}\nvia = {via}\nonward = \"{onward}ns\"\n");
    }
    if let Some((.., settings)) = links_of(scenario, n).next() {
        text += &settings::of_node(settings, scenario.hosts[n].routing.as_ref());
    }
    text
}
