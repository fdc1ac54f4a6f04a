//! `trunkline node`, `check` and `replay`.

pub mod config;
pub mod expiry;
mod flows;
mod http;
mod manager;
pub mod memory;
mod metrics;
mod operator;
mod reload;
pub mod replay;
mod unsealed;
mod versions;
mod watchdog;

use crate::datapath::record::{self, RecordedNode, Recorder};
use crate::datapath::remote::{PendingConnections, Remote};
use crate::datapath::sessions::Listener;
use crate::datapath::udp::Udp;
use crate::datapath::{self, Handle, Parts};
use crate::operate::server::{self, Bound};
use crate::{clock, log, sip, stop};
use config::{Config, Mistake, Sip};
use expiry::{ExpiryMonitor, Owner};
use manager::State;
use memory::HeapTrimmer;
use operator::Operator;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trunkline_client::in_process::{self, Connector};
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::node::{ConfigError, Node, Start};
use trunkline_overlay::session::remote::{Limits, Responder};
use trunkline_overlay::wire::Incarnation;
use unsealed::Reminder;
use watchdog::Watchdog;

/// Run an overlay node until SIGTERM or SIGINT
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline check site-a.toml          # is the file right?
  trunkline node --config site-a.toml
  curl http://127.0.0.1:9101/metrics   # with `http` in [node]

A file for a site with one neighbour:
  [node]
  id = 1
  key = \"/etc/trunkline/a.key\"       # made by `trunkline keygen`
  listen = [\"0.0.0.0:7000\"]
  socket = \"/run/trunkline/a.sock\"    # where applications attach
  http = \"127.0.0.1:9101\"             # metrics and health
  control = \"/run/trunkline/a.ctl\"   # for `trunkline status` and the like

  [[link]]
  neighbour = 2
  key = \"O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=\"   # `trunkline pubkey` there
  address = \"192.0.2.2:7000\"

Or certify nodes, so that they admit each other without each other's keys:
`trunkline certify --help`.")]
pub struct Args {
    /// Path of the configuration file
    #[arg(long, short)]
    config: PathBuf,
    /// Record every input and output of the node to this file, for `replay`; slows the node down.
    /// The file contains the node's secret key, and only its owner can read it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Stop also when standard input ends, so that the node does not outlive its parent
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Reason why a node could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A mistake in the configuration.
    #[error("{0}")]
    Config(#[from] Mistake),
    /// The gateway could not be started.
    #[error("{0}")]
    Sip(#[from] sip::Error),
    /// The versions requested for a test are invalid.
    #[error(transparent)]
    Versions(#[from] versions::NotAVersion),
    /// The node rejects this combination of settings.
    #[error("{0}")]
    Node(#[from] ConfigError),
    /// An operating system call failed.
    #[error("cannot {what}: {source}{advice}")]
    Io {
        /// Operation that was attempted.
        what: String,
        /// Error from the operating system.
        source: io::Error,
        /// Advice to append after a semicolon; may be empty.
        advice: String,
    },
}

impl Error {
    /// Exit status: 2 for a mistake in the user's input, 1 for any other error.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Error::Io { .. }) { 1 } else { 2 }
    }
}

fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source, advice: String::new() }
}

/// Builds the error for `what`, an address or path set by `key` in `[node]`.
fn cannot_have(what: String, key: &'static str) -> impl FnOnce(io::Error) -> Error {
    use io::ErrorKind::{
        AddrInUse, AddrNotAvailable, AlreadyExists, InvalidInput, NotFound, PermissionDenied,
    };
    move |source| {
        let remedy = match source.kind() {
            AddrInUse => "stop what uses it, or ",
            AddrNotAvailable => "give this machine that address, or ",
            NotFound => "make its directory, or ",
            PermissionDenied => "let this user have it, or ",
            AlreadyExists => "move that away, or ",
            // sockaddr_un has 108 bytes (unix(7)).
            InvalidInput if key == "socket" || key == "control" => "a path has at most 107 bytes: ",
            _ => "",
        };
        Error::Io { what, source, advice: format!("; {remedy}change `{key}` in [node]") }
    }
}

/// Runs the `trunkline node` command.
pub fn run(args: &Args) -> Result<(), Error> {
    stop::ignore_others().map_err(cannot("ignore other signals"))?;
    raise_descriptor_limit();
    let stop = stop::Signals::block().map_err(cannot("take over SIGTERM and SIGINT"))?;
    let hangup = stop::Hangup::block().map_err(cannot("take over SIGHUP"))?;
    let _log = log::detach().map_err(cannot("start writing the log"))?;
    let (mut config, text) = read(&args.config)?;
    log::set(config.log_filter.as_deref());
    if let Some(versions) = versions::for_tests()? {
        versions::speak(&mut config.overlay, versions);
    }
    for warning in config::unusable_here(&config, &text) {
        tracing::warn!("{warning}");
    }
    let (name, unsealed) = (config.name.clone(), config.overlay.sealing.is_none());
    let control = config.control.as_deref().map(bind_control).transpose()?;
    let Started { handle, sip, .. } = start(config.clone(), &text, args.record.as_deref())?;
    let operator = Arc::new(Operator::new(handle.node_handle(), sip, &args.config, config));
    let _control = control
        .map(|control| control.serve(Arc::clone(&operator)))
        .transpose()
        .map_err(cannot("start serving the control socket"))?;
    let orphaned = Arc::new(AtomicBool::new(false));
    if args.until_stdin_closes {
        let orphaned = Arc::clone(&orphaned);
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            orphaned.store(true, Ordering::Relaxed);
        });
    }
    tracing::info!(%name, "ready");
    manager::tell(State::Ready);
    let mut watchdog = Watchdog::new(manager::patience(), clock::now());
    let mut trimmer = HeapTrimmer::new(clock::now());
    let mut reminder = unsealed.then(|| Reminder::new(clock::now(), unsealed::AGAIN));
    while !stop.wait(watchdog.patience().min(Duration::from_millis(200))) {
        if watchdog.look(clock::now(), || handle.beat()) {
            manager::tell(State::Alive);
        }
        if handle.is_finished() || orphaned.load(Ordering::Relaxed) || operator.wants_stop() {
            break;
        }
        if hangup.came() {
            // The log has the result.
            let _ = operator.reload();
        }
        operator.watch_certificates();
        operator.watch_addresses();
        trimmer.look(clock::now());
        if reminder.as_mut().is_some_and(|reminder| reminder.is_due(clock::now())) {
            tracing::warn!("{}", unsealed::WARNING);
        }
    }
    tracing::info!(%name, "stopping");
    manager::tell(State::Stopping);
    operator.end_calls();
    handle.stop().map_err(cannot("continue"))
}

fn bind_control(path: &Path) -> Result<Bound, Error> {
    server::bind(path)
        .map_err(cannot_have(format!("listen for operators at {}", path.display()), "control"))
}

/// Raises the limit on descriptors. Every application needs one; the soft limit is often too low
/// for the paper's thousand, and raising it to the hard one needs no privilege.
pub fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "could not raise the limit on open files");
    }
}

fn read(path: &Path) -> Result<(Config, String), Error> {
    let (mut config, text) = config::load(path)?;
    config.unlock().map_err(|error| config::key_mistake(&error, &config, path, &text))?;
    config::check_keys(&config, path, &text)?;
    Ok((config, text))
}

/// A running node in this process.
pub struct Started {
    /// The node's packet thread.
    pub handle: Handle,
    /// Connector with which applications of this process attach.
    pub connector: Connector,
    /// Handle of its SIP gateway, if it is one.
    pub sip: Option<sip::GatewayHandle>,
}

/// Starts the node that `config` describes, in this process; `text` is the configuration kept in a
/// recording.
pub fn start(config: Config, text: &str, record: Option<&Path>) -> Result<Started, Error> {
    let (at, unix_nanos) = (clock::now(), clock::since_epoch());
    let seed = config.runtime.seed;
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(|e| cannot("draw a secret")(e.into()))?;
    let start = Start { at, unix_nanos, incarnation: Incarnation(unix_nanos), seed, entropy };
    let (secrets, not_after) = (config.secrets(), config.not_after());
    let lasting = lasting_secret(&config, &entropy);
    let pending = pending_limits(&config)?;
    let node = Node::new(config.overlay.clone(), start)?;
    let mut udp = Vec::new();
    for address in config.listen {
        let bound = Udp::bind(address, config.runtime.offload);
        udp.push(bound.map_err(cannot_have(format!("listen on UDP {address}"), "listen"))?);
    }
    let http = match config.http {
        Some(address) => {
            let bound = http::bind(address);
            Some(bound.map_err(cannot_have(format!("serve metrics on {address}"), "http"))?)
        }
        None => None,
    };
    let listener = match &config.socket {
        Some(path) => {
            let what = format!("listen for applications at {}", path.display());
            Some(Listener::bind(path).map_err(cannot_have(what, "socket"))?)
        }
        None => None,
    };
    let mut remotes = Vec::new();
    for address in config.remote {
        let what = format!("listen for remote applications on TCP and UDP {address}");
        let bound = Remote::bind(address, config.runtime.offload);
        remotes.push(bound.map_err(cannot_have(what, "remote"))?);
    }
    let recorder = match record {
        Some(path) => {
            let what = format!("record to {}", path.display());
            let start = record::started(&start, text, secrets.as_ref());
            Some(Recorder::create(path, &start).map_err(cannot(what))?)
        }
        None => None,
    };
    let (connector, acceptor) = in_process::listen(IN_PROCESS_BYTES, IN_PROCESS_BACKLOG)
        .map_err(cannot("prepare for applications of this process"))?;
    let parts = Parts {
        node: RecordedNode::new(node, recorder),
        udp,
        paths: config.paths,
        listener,
        remotes,
        pending,
        acceptor: Some(acceptor),
        rate: config.rate,
        media_deadline_ms: config.sip.as_ref().map(|sip| sip.deadline_ms),
        priority: config.runtime.realtime_priority,
        cpu: config.runtime.cpu,
    };
    let handle = datapath::start(parts).map_err(cannot("start the packet thread"))?;
    warn_of_protection(config.overlay.sealing.is_some(), not_after, config.sip.as_ref());
    let sip = match (&config.sip, handle.media()) {
        (Some(sip), Some(media)) => Some(sip::start(sip, media, &lasting)?),
        _ => None,
    };
    if let Some(listener) = http {
        http::serve(listener, handle.node_handle(), sip.clone())
            .map_err(cannot("start serving metrics"))?;
    }
    Ok(Started { handle, connector, sip })
}

/// Secret that lets registered phones find this gateway after a restart. For a sealed node it is
/// derived from its key, so only that key yields it; for an unsealed one it changes at each start.
fn lasting_secret(config: &Config, entropy: &[u8; 32]) -> [u8; 32] {
    let sealing = config.overlay.sealing.as_ref();
    let signed = sealing.map(|sealing| sealing.identity.sign(b"trunkline: flows of phones"));
    signed.and_then(|s| s.first_chunk().copied()).unwrap_or(*entropy)
}

/// Pending connections with the clients that the node admits from other hosts.
fn pending_limits(config: &Config) -> Result<PendingConnections, Error> {
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(|e| cannot("draw a secret")(e.into()))?;
    let responder = config.overlay.sealing.as_ref().map(|sealing| {
        let keys: Vec<_> = config.clients.iter().map(|client| client.key).collect();
        Responder::new(&sealing.identity, &keys, Limits::default(), entropy)
    });
    Ok(PendingConnections::new(responder))
}

fn unix_secs() -> u64 {
    clock::since_epoch() / 1_000_000_000
}

/// Logs a warning if nothing is protected, or if the protection expires soon.
fn warn_of_protection(sealed: bool, not_after: u64, sip: Option<&Sip>) {
    if !sealed {
        tracing::warn!("{}", unsealed::WARNING);
    }
    if let Some(validity) = ExpiryMonitor::default().look(not_after, unix_secs()) {
        tracing::warn!("{}", Owner::Node.told(validity));
    }
    if let Some(warning) = sip_warning(sip) {
        tracing::warn!("{warning}");
    }
}

/// Warning about the gateway's certificate, if it has expired or does soon.
fn sip_warning(sip: Option<&Sip>) -> Option<String> {
    let not_after = sip.map_or(0, sip::not_after);
    let validity = ExpiryMonitor::default().look(not_after, unix_secs());
    validity.map(|validity| Owner::Sip.told(validity))
}

/// Bytes buffered in each direction of an in-process session: a second of a call, many times over.
const IN_PROCESS_BYTES: usize = 256 << 10;
const IN_PROCESS_BACKLOG: usize = 64;

/// A node in this process, for applications in the same process.
pub struct Running {
    handle: Option<Handle>,
    connector: Connector,
}

impl Running {
    /// Starts the node that the file at `path` describes.
    pub fn start(path: &Path) -> Result<Running, Error> {
        let (config, text) = read(path)?;
        if config.control.is_some() {
            tracing::warn!("`control` in [node] is for `trunkline node`: nothing listens there");
        }
        let Started { handle, connector, .. } = start(config, &text, None)?;
        Ok(Running { handle: Some(handle), connector })
    }

    /// Connector with which an application attaches.
    pub fn connector(&self) -> Connector {
        self.connector.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.handle.take().map(Handle::stop) {
            tracing::error!(%error, "the embedded node failed");
        }
    }
}

/// Check a configuration file without starting anything
#[derive(clap::Args, Debug)]
#[command(after_help = check_help())]
pub struct CheckArgs {
    /// Path of the configuration file
    file: PathBuf,
    /// Print JSON, even for a mistake
    #[arg(long)]
    json: bool,
}

fn check_help() -> String {
    let mut text = "\
Example:
  trunkline check site-a.toml
  trunkline check --json site-a.toml | jq .mistake

Exit code 2: the file is wrong; the message has the line. Warnings don't change the
exit code.

What is done about lost packets, `recovery` in [realtime]:"
        .to_owned();
    for policy in Recovery::all() {
        text += &format!("\n  {:<16}{}", policy.name(), policy.about());
    }
    text
}

/// Output of `check --json`: for a valid file everything but `mistake`, for an invalid one only
/// that.
#[derive(serde::Serialize, Default)]
struct Checked<'a> {
    ok: bool,
    node: Option<u32>,
    name: Option<&'a str>,
    sealed: Option<bool>,
    links: Option<usize>,
    routes: Option<usize>,
    trunks: Option<usize>,
    /// Number of routes of its SIP gateway, if it is one.
    sip_routes: Option<usize>,
    /// Largest packet of an application, in bytes.
    max_payload: Option<usize>,
    /// Settings that are allowed, but hardly intended.
    warnings: Vec<String>,
    mistake: Option<Wrong>,
}

#[derive(serde::Serialize)]
struct Wrong {
    line: Option<usize>,
    column: Option<usize>,
    what: String,
    suggestion: Option<String>,
}

/// Runs the `trunkline check` command.
pub fn check(args: &CheckArgs) -> Result<(), Error> {
    let read = read(&args.file).and_then(|(config, text)| {
        config::check_folders(&config, &args.file, &text)?;
        config.sip.as_ref().map(sip::check).transpose()?;
        Ok((config, text))
    });
    let (config, text) = match read {
        Ok(read) => read,
        Err(error) if args.json => {
            let mistake = Some(wrong(&error));
            print_json(&Checked { mistake, ..Checked::default() });
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    let mut warnings = warnings(&config);
    warnings.extend(config::unusable_here(&config, &text));
    for warning in &warnings {
        errln!("trunkline: warning: {warning}");
    }
    let overlay = &config.overlay;
    let (links, routes) = (overlay.links.len(), overlay.routes.len());
    let trunks = overlay.trunks.len();
    let sip_routes = config.sip.as_ref().map(|sip| sip.gateway.routes.len());
    if args.json {
        print_json(&Checked {
            ok: true,
            node: Some(overlay.id.0),
            name: Some(&config.name),
            sealed: Some(overlay.sealing.is_some()),
            links: Some(links),
            routes: Some(routes),
            trunks: Some(trunks),
            sip_routes,
            max_payload: Some(overlay.max_payload()),
            warnings,
            mistake: None,
        });
        return Ok(());
    }
    outln!(
        "{}: {} is node {}, {}, with {} and {}{}{}; packets up to {} bytes",
        args.file.display(),
        config.name,
        overlay.id,
        if overlay.sealing.is_some() { "sealed" } else { "UNSEALED" },
        count(links, "link"),
        count(routes, "route"),
        if trunks > 0 { format!(", {}", count(trunks, "trunk")) } else { String::new() },
        sip_routes
            .map(|n| format!(", a gateway with {} of SIP", count(n, "route")))
            .unwrap_or_default(),
        overlay.max_payload()
    );
    Ok(())
}

/// Settings of a valid file that are hardly intended.
fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let Config { name, overlay, runtime, .. } = config;
    let Some(sealing) = &overlay.sealing else {
        warnings.push(unsealed::WARNING.into());
        warnings.extend(cpu_warning(runtime.cpu));
        return warnings;
    };
    // An expired certificate is not a mistake in the file: the systemd unit runs this check before
    // it starts a node, and a clock may be wrong.
    let validity = ExpiryMonitor::default().look(config.not_after(), unix_secs());
    warnings.extend(validity.map(|validity| Owner::Node.told(validity)));
    warnings.extend(sip_warning(config.sip.as_ref()));
    match &sealing.certificate {
        Some(certificate) => {
            let certified = certificate.name();
            if *name != format!("node {}", overlay.id) && name != certified {
                warnings.push(format!(
                    "[node] name is \"{name}\", and the node's certificate has \"{certified}\", \
                     by which other nodes know it: make them the same"
                ));
            }
        }
        None if !sealing.trust.overlay_keys.is_empty() && overlay.links.is_empty() => {
            warnings.push(
                "[overlay] keys admit certified nodes, but this node has neither a certificate nor \
                 a [[link]]: only nodes that have its key can become its neighbours; `trunkline \
                 certify` it and give [node] certificate, or add a [[link]]"
                    .into(),
            );
        }
        None => {}
    }
    warnings.extend(cpu_warning(runtime.cpu));
    warnings
}

/// Warning about a processor that this machine does not have.
fn cpu_warning(cpu: Option<usize>) -> Option<String> {
    use nix::unistd::{SysconfVar, sysconf};
    let all = usize::try_from(sysconf(SysconfVar::_NPROCESSORS_CONF).ok()??).ok()?;
    let cpu = cpu.filter(|cpu| *cpu >= all)?;
    Some(format!(
        "[runtime] cpu is {cpu}, and this machine's processors are 0 to {}: the packet thread will \
         run on any",
        all - 1
    ))
}

fn wrong(error: &Error) -> Wrong {
    let none = Wrong { line: None, column: None, what: error.to_string(), suggestion: None };
    let Error::Config(Mistake { place, what, suggestion, .. }) = error else { return none };
    let (line, column) = (*place).unzip();
    Wrong { line, column, what: what.clone(), suggestion: suggestion.clone() }
}

fn print_json(checked: &Checked<'_>) {
    // The structure holds only numbers and text, so this cannot fail.
    outln!("{}", serde_json::to_string(checked).unwrap_or_default());
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
