//! Hosts between the phones: the gateways, and Kamailio where it is used.

use super::{Error, Network, PhoneHost, SITE_A, SITE_B, cannot, run};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for a program to start.
const READY: Duration = Duration::from_secs(10);

/// Settings of the gateways besides their addresses.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Hosts that both trust besides each other.
    pub trust: Vec<String>,
    /// Networks, and the target of requests for them, such as `udp:10.77.8.1:5060`.
    pub routes: Vec<(String, String)>,
    /// Whether requests for the other site go to its gateway, without a proxy.
    pub direct: bool,
    /// A certificate and its key, for TLS on port 5061.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether a third node, in the Internet, provides a second path between the two.
    pub detour: bool,
    /// Whether the second site has a plain router in place of a gateway.
    pub only_first: bool,
    /// Whether each gateway has a trunk to the other.
    pub trunk: bool,
}

/// A gateway at each site, which are stopped when dropped.
pub struct Gateways {
    children: Vec<Child>,
    folder: PathBuf,
    trunkline: PathBuf,
}

impl Drop for Gateways {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a program with its output in the file `log`, and waits until that contains `ready`.
pub(super) fn start(command: &mut Command, log: &Path, ready: &str) -> Result<Child, Error> {
    let file = File::create(log).map_err(cannot("make a log"))?;
    let errors = file.try_clone().map_err(cannot("make a log"))?;
    let command = command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let mut child = command.spawn().map_err(cannot("start a program"))?;
    let until = Instant::now() + READY;
    while !fs::read_to_string(log).unwrap_or_default().contains(ready) {
        if Instant::now() > until || child.try_wait().is_ok_and(|ended| ended.is_some()) {
            let _ = child.kill();
            let _ = child.wait();
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(Error::Program(format!("{} did not start: {said}", log.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child)
}

impl Gateways {
    /// Starts the program at `trunkline` at both sites, with files in `folder`, and waits until the
    /// gateways have a route to each other.
    pub fn start(
        network: &Network,
        trunkline: &Path,
        folder: &Path,
        options: &Options,
    ) -> Result<Gateways, Error> {
        let sites = [(PhoneHost::GatewayA, SITE_A), (PhoneHost::GatewayB, SITE_B)];
        let mut keys = Vec::new();
        for n in 1..=3 {
            let path = folder.join(format!("{n}.key"));
            run(Command::new(trunkline).arg("keygen").arg(&path))?;
            let key = run(Command::new(trunkline).arg("pubkey").arg(&path))?;
            keys.push(key.trim().to_owned());
        }
        let mut gateways =
            Gateways { children: Vec::new(), folder: folder.into(), trunkline: trunkline.into() };
        for (n, (place, site)) in sites.iter().enumerate() {
            if n == 1 && options.only_first {
                continue;
            }
            let own = n + 1;
            let there = sites[1 - n].1;
            let path = folder.join(format!("{own}.toml"));
            let text = config(own, site, there, &keys, folder, options);
            fs::write(&path, text).map_err(cannot("write a node's file"))?;
            let log = folder.join(format!("{own}.log"));
            let mut command = network.command(*place, trunkline);
            command.arg("node").arg("--config").arg(&path);
            gateways.children.push(start(&mut command, &log, "ready")?);
        }
        if options.detour {
            let path = folder.join("3.toml");
            let links = [(1, SITE_A[2]), (2, SITE_B[2])];
            let links = links.map(|(n, at)| link(n, &keys, at) + DEARER);
            let head = node(3, "0.0.0.0", folder);
            fs::write(&path, head + &links.concat()).map_err(cannot("write a node's file"))?;
            let mut command = network.command(PhoneHost::Internet, trunkline);
            command.arg("node").arg("--config").arg(&path);
            gateways.children.push(start(&mut command, &folder.join("3.log"), "ready")?);
        }
        // The gateways poll the routes once a second.
        std::thread::sleep(Duration::from_millis(2_200));
        Ok(gateways)
    }

    /// JSON output of `trunkline ARGS --json` about the node of site 1 or 2.
    pub fn ask(&self, site: usize, args: &[&str]) -> Result<serde_json::Value, Error> {
        let control = self.folder.join(format!("{site}.ctl"));
        let mut command = Command::new(&self.trunkline);
        command.args(args).arg("--json").arg("--control").arg(control);
        serde_json::from_str(&run(&mut command)?).map_err(|error| {
            Error::Program(format!("`trunkline {args:?}` printed no JSON: {error}"))
        })
    }

    /// Runs `trunkline ARGS` on the node of site 1 or 2.
    pub fn tell(&self, site: usize, args: &[&str]) -> Result<String, Error> {
        let control = self.folder.join(format!("{site}.ctl"));
        run(Command::new(&self.trunkline).args(args).arg("--control").arg(control))
    }

    /// Log of the node of site 1 or 2.
    pub fn log(&self, site: usize) -> String {
        fs::read_to_string(self.folder.join(format!("{site}.log"))).unwrap_or_default()
    }

    /// The processes by their role: the gateways first, in the order of their sites.
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        let names = ["gateway A", "gateway B", "the third node"];
        names.into_iter().zip(self.children.iter().map(Child::id)).collect()
    }

    /// Call records of site 1 or 2.
    pub fn records(&self, site: usize) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.folder.join(format!("{site}.jsonl")));
        let text = text.unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// The beginning of a node's configuration file.
fn node(own: usize, listen: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "[node]\nid = {own}\nkey = \"{folder}/{own}.key\"\nlisten = [\"{listen}:7000\"]\n\
         control = \"{folder}/{own}.ctl\"\n"
    )
}

/// The third node's links lose nothing, and would otherwise be preferred.
const DEARER: &str = "penalty = \"50 ms\"\n";

/// The section of the configuration file about a neighbour.
fn link(to: usize, keys: &[String], address: &str) -> String {
    let key = &keys[to - 1];
    format!("\n[[link]]\nneighbour = {to}\nkey = \"{key}\"\naddress = \"{address}:7000\"\n")
}

fn config(
    own: usize,
    site: &[&str; 3],
    there: [&str; 3],
    keys: &[String],
    folder: &Path,
    options: &Options,
) -> String {
    let [_, near, far] = site;
    let mut text = node(own, far, folder) + &link(3 - own, keys, there[2]);
    if options.detour {
        let third = if own == 1 { "10.77.8.1" } else { "10.77.9.1" };
        text += &(link(3, keys, third) + DEARER);
    }
    for (n, key) in keys.iter().enumerate().filter(|_| options.detour) {
        if n + 1 != own {
            let _ = write!(text, "\n[[known]]\nnode = {}\nkey = \"{key}\"\n", n + 1);
        }
    }
    if options.trunk {
        let _ = write!(text, "\n[[trunk]]\nto = {}\n", 3 - own);
    }
    let folder = folder.display();
    let trust: Vec<String> = [there[1].to_owned(), there[2].to_owned()]
        .iter()
        .chain(&options.trust)
        .map(|t| format!("\"{t}\""))
        .collect();
    let trust = trust.join(", ");
    let tls = match &options.certificate {
        Some(_) => format!(", \"tls:{near}:5061\""),
        None => String::new(),
    };
    let _ = write!(
        text,
        "\n[sip]\nlisten = [\"udp:{near}:5060\", \"tcp:{near}:5060\"{tls}]\n\
         allow = [\"10.77.0.0/16\"]\ntrust = [{trust}]\nrecords = \"{folder}/{own}.jsonl\"\n"
    );
    if let Some((certificate, key)) = &options.certificate {
        let (certificate, key) = (certificate.display(), key.display());
        let _ = write!(text, "certificate = \"{certificate}\"\ncertificate_key = \"{key}\"\n");
    }
    let mut routes = options.routes.clone();
    if options.direct {
        let network = there[0].rsplit_once('.').map_or("", |(network, _)| network);
        routes.push((format!("{network}.0/24"), format!("udp:{}:5060", there[1])));
    }
    for (to, via) in routes {
        let _ = write!(text, "\n[[sip.route]]\nto = \"{to}\"\nvia = \"{via}\"\n");
    }
    text
}

/// A `sipp` that runs a scenario file; stopped when dropped.
pub struct Sipp(Child);

impl Drop for Sipp {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sipp {
    /// Starts sipp at `place`, which has the address `address`, with SIP port `port`, 5080 or
    /// above, and 2,500 media ports that no other instance there has: from 20000 on for 5080. It
    /// also gets `args`.
    pub fn start(
        network: &Network,
        (place, address, port): (PhoneHost, &str, u16),
        folder: &Path,
        scenario: &Path,
        args: &[&str],
    ) -> Result<Sipp, Error> {
        let mut command = network.command(place, "sipp");
        command.args(args).arg("-sf").arg(scenario);
        let (sip, media) = (port.to_string(), (20_000 + (port - 5_080) * 2_500).to_string());
        command.args(["-i", address, "-p", &sip, "-mp", &media, "-nostdin"]);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).env("TERM", "dumb");
        Ok(Sipp(command.spawn().map_err(cannot("start sipp"))?))
    }

    /// Waits until sipp has ended. Returns whether all its calls succeeded.
    pub fn ended(mut self) -> Result<bool, Error> {
        let status = self.0.wait().map_err(cannot("wait for sipp"))?;
        Ok(status.success())
    }
}

/// A registrar and proxy, which is stopped when dropped.
pub struct Kamailio(Child);

impl Drop for Kamailio {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Ends a program in a way that lets it end its children.
pub(super) fn end(child: &mut Child) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    let _ = child.wait();
}

/// Hosts that the registrar listens at, and what a test needs of it.
const SETTINGS: &str = r#"
debug=1
log_stderror=yes
children=2
tcp_children=2
mhomed=1
auto_aliases=no
listen=udp:10.77.8.1:5060
listen=udp:10.77.9.1:5060
listen=tcp:10.77.8.1:5060
listen=tcp:10.77.9.1:5060
loadmodule "corex.so"
"#;

/// The configuration that docs/gateway.md recommends.
const REGISTRAR: &str = include_str!("../../../../examples/kamailio.cfg");

/// A number that rings at two phones behind the second gateway: one is busy, the other answers. Its
/// place is before the lookup of a phone.
const FORK: &str = r#"
  if ($rU == "fork") {
    $ru = "sip:busy@10.77.2.2:5080";
    $du = "sip:10.77.2.1:5060";
    append_branch();
    $ru = "sip:bob@10.77.2.2:5060";
    $du = "sip:10.77.2.1:5060";
    t_relay();
    exit;
  }
"#;

impl Kamailio {
    /// Starts the registrar, with its files in `folder`.
    pub fn start(network: &Network, folder: &Path) -> Result<Kamailio, Error> {
        let (before, after) = REGISTRAR
            .split_once("  if (!lookup(")
            .ok_or_else(|| Error::Program("examples/kamailio.cfg looks no phone up".into()))?;
        let text = format!("{SETTINGS}{before}{FORK}  if (!lookup({after}");
        Kamailio::of(network, PhoneHost::Internet, folder, &text)
    }

    /// Starts a Kamailio at `place` with the configuration `text`.
    pub(super) fn of(
        network: &Network,
        place: PhoneHost,
        folder: &Path,
        text: &str,
    ) -> Result<Kamailio, Error> {
        let path = folder.join("kamailio.cfg");
        fs::write(&path, text).map_err(cannot("write kamailio.cfg"))?;
        let mut command = network.command(place, "kamailio");
        command.arg("-f").arg(&path).args(["-DD", "-E", "-w"]).arg(folder);
        command.arg("-Y").arg(folder).arg("-P").arg(folder.join("kamailio.pid"));
        let log = folder.join("kamailio.log");
        let mut started = Kamailio(start(&mut command, &log, "Listening on")?);
        std::thread::sleep(Duration::from_millis(700));
        match started.0.try_wait() {
            Ok(None) => Ok(started),
            _ => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                Err(Error::Program(format!("kamailio ended: {said}")))
            }
        }
    }

    /// Process id of its main process.
    pub(super) fn process(&self) -> u32 {
        self.0.id()
    }
}
