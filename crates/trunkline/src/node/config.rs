//! The configuration file of `trunkline node`.

mod access;
mod egress;
mod host;
mod listen;
mod mistake;
mod number;
mod own;
mod places;
mod sealing;
mod sip;
mod streams;
mod trunk;
mod unlocked;

pub use access::KnownClient;
pub use host::{Host, Whose, nobodys};
#[cfg(test)]
pub use mistake::plain;
pub use mistake::{Mistake, described, excerpt, suggestion};
pub use own::unusable_here;
pub use sealing::{KeyFiles, Secrets};
pub use sip::{Sip, Tls};
pub use unlocked::{check_keys, key_mistake};

use crate::datapath::{WantedPath, WantedPaths};
use crate::keys::KeyFileError;
use crate::units::{Fraction, Rate, Size, Span};
use host::Address;
use mistake::{Place, mistake, syntax_mistake};
use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_overlay::identity::Certificate;
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::link::reliable::Algorithm;
use trunkline_overlay::link::{self, DSCP_EF};
use trunkline_overlay::monitor::{Liveness, LossMode};
use trunkline_overlay::node::{self as overlay, ConfigError};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::wire::NodeId;

/// Position of a mistake, and its description.
type Wrong = (Place, String);

/// Content of a configuration file, parsed and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the node in messages and metrics.
    pub name: String,
    /// Addresses at which the node listens for its neighbours.
    pub listen: Vec<SocketAddr>,
    /// Unix socket at which local applications attach.
    pub socket: Option<PathBuf>,
    /// Addresses at which applications on other hosts attach.
    pub remote: Vec<SocketAddr>,
    /// Clients that may attach from other hosts.
    pub clients: Vec<KnownClient>,
    /// Address at which metrics and health are served.
    pub http: Option<SocketAddr>,
    /// Control socket for the operator's commands.
    pub control: Option<PathBuf>,
    /// Settings of the SIP gateway, if the node is one.
    pub sip: Option<Sip>,
    /// Log filter, unless the environment overrides it.
    pub log_filter: Option<String>,
    /// Settings of the overlay node.
    pub overlay: overlay::Config,
    /// Process settings of the daemon.
    pub runtime: Runtime,
    /// Settings of links without a `[[link]]` section.
    pub template: link::Config,
    /// The links whose sections say more about the path than an address.
    pub paths: WantedPaths,
    /// Rate at which the applications of each user may send, if it is limited.
    pub rate: Option<Bitrate>,
    /// Files with its keys; `None` for a node that is not sealed.
    pub key_files: Option<KeyFiles>,
}

impl Config {
    /// The addresses that the daemon listens at.
    pub fn own_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let of_sip = self.sip.iter().flat_map(|sip| sip.bind.iter().copied());
        let of_node = self.listen.iter().chain(&self.remote).chain(&self.http).copied();
        of_node.chain(of_sip)
    }

    /// Reads the key files, if the node is sealed.
    pub fn unlock(&mut self) -> Result<(), KeyFileError> {
        let Some(files) = &self.key_files else { return Ok(()) };
        let secrets = files.read(self.overlay.id)?;
        self.unlock_with(&secrets);
        Ok(())
    }

    /// Applies secrets that were read earlier.
    pub fn unlock_with(&mut self, secrets: &Secrets) {
        if let Some(files) = &self.key_files {
            self.overlay.sealing = Some(files.sealing(secrets, self.template.clone()));
        }
    }

    /// Certificate that the node presents, once the key files are read.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.overlay.sealing.as_ref()?.certificate.as_ref()
    }

    /// Expiry of the certificate, in seconds since 1970; 0 if it never expires.
    pub fn not_after(&self) -> u64 {
        self.certificate().map_or(0, Certificate::not_after)
    }

    /// Secrets of a sealed node that a recording has to keep.
    pub fn secrets(&self) -> Option<Secrets> {
        let sealing = self.overlay.sealing.as_ref()?;
        let certificate = sealing.certificate.clone();
        Some(Secrets { identity: sealing.identity.clone(), certificate })
    }
}

/// The `[runtime]` section: process settings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runtime {
    /// SCHED_FIFO priority of the packet thread, if any.
    #[serde(deserialize_with = "number::priority")]
    pub realtime_priority: Option<u8>,
    /// Processor that the packet thread is pinned to, if any.
    pub cpu: Option<usize>,
    /// Whether to use segmentation offload.
    pub offload: bool,
    /// Seed for all randomness except that of keys.
    pub seed: u64,
}

impl Default for Runtime {
    /// No priority, since most systems refuse it without configuration; offload, since the kernel
    /// does the work for a tenth of the cost; a fixed seed, so that recordings can be compared.
    fn default() -> Runtime {
        Runtime { realtime_priority: None, cpu: None, offload: true, seed: 0 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    node: NodeSection,
    #[serde(default)]
    link: Vec<LinkSection>,
    #[serde(default)]
    route: Vec<RouteSection>,
    #[serde(default)]
    realtime: RealtimeSection,
    #[serde(default)]
    best_effort: BestEffortSection,
    #[serde(default)]
    reliable: ReliableSection,
    #[serde(default)]
    hello: HelloSection,
    #[serde(default)]
    overlay: sealing::OverlaySection,
    #[serde(default)]
    known: Vec<sealing::KnownSection>,
    #[serde(default)]
    routing: sealing::RoutingSection,
    #[serde(default)]
    access: access::AccessSection,
    #[serde(default)]
    client: Vec<access::ClientSection>,
    #[serde(default)]
    trunk: Vec<trunk::TrunkSection>,
    #[serde(default)]
    streams: streams::StreamsSection,
    sip: Option<sip::SipSection>,
    #[serde(default)]
    log: LogSection,
    #[serde(default)]
    runtime: Runtime,
    /// Where each link leads, once the file is read.
    #[serde(skip)]
    targets: Vec<egress::Target>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LogSection {
    filter: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSection {
    #[serde(deserialize_with = "number::id")]
    id: u32,
    name: Option<String>,
    key: Option<PathBuf>,
    certificate: Option<PathBuf>,
    #[serde(default)]
    unsealed_for_measurements: bool,
    #[serde(deserialize_with = "listen::addresses")]
    listen: Vec<SocketAddr>,
    socket: Option<PathBuf>,
    #[serde(default, deserialize_with = "listen::addresses")]
    remote: Vec<SocketAddr>,
    #[serde(default, deserialize_with = "listen::address")]
    http: Option<SocketAddr>,
    control: Option<PathBuf>,
    max_sessions: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkSection {
    #[serde(deserialize_with = "number::id")]
    neighbour: u32,
    #[serde(default)]
    path: String,
    key: Option<sealing::Key>,
    address: Option<Address>,
    #[serde(default, deserialize_with = "host::source")]
    source: Option<IpAddr>,
    interface: Option<String>,
    mtu: Option<usize>,
    #[serde(default, deserialize_with = "number::dscp")]
    dscp: Option<u8>,
    rate: Option<Rate>,
    penalty: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteSection {
    to: Destinations,
    #[serde(deserialize_with = "number::id")]
    via: u32,
    #[serde(default)]
    onward: Option<Span>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of node ids, or \"*\" for all others")]
enum Destinations {
    Some(Vec<u32>),
    Others(Star),
}

#[derive(Deserialize)]
enum Star {
    #[serde(rename = "*")]
    Star,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RealtimeSection {
    #[serde(deserialize_with = "recovery")]
    recovery: Option<Recovery>,
    reorder: Option<u16>,
    retransmit_ratio: Option<Fraction>,
    retransmit_burst: Option<u32>,
    recovery_budget: Option<Fraction>,
    max_wait: Option<Span>,
    memory: Option<Size>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct BestEffortSection {
    max_wait: Option<Span>,
    memory: Option<Size>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ReliableSection {
    #[serde(deserialize_with = "congestion")]
    congestion: Option<Algorithm>,
    memory: Option<Size>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct HelloSection {
    interval: Option<Span>,
    dead_after: Option<Span>,
    probes: Option<bool>,
    piggyback: Option<bool>,
    loss: Option<LossName>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum LossName {
    Changes,
    Intervals,
}

impl From<LossName> for LossMode {
    fn from(name: LossName) -> LossMode {
        match name {
            LossName::Changes => LossMode::Changes,
            LossName::Intervals => LossMode::Paper,
        }
    }
}

fn recovery<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Recovery>, D::Error> {
    crate::names::deserialize(from).map(Some)
}

fn congestion<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Algorithm>, D::Error> {
    crate::names::deserialize(from).map(Some)
}

/// Reads and checks the file at `path`, and returns its text too.
pub fn load(path: &Path) -> Result<(Config, String), Mistake> {
    let text = std::fs::read_to_string(path).map_err(|e| Mistake {
        path: path.to_owned(),
        place: None,
        what: format!("cannot be read: {e}"),
        excerpt: String::new(),
        suggestion: None,
    })?;
    let config = parse(path, &text)?;
    // A recording may be replayed where there is no such interface.
    listen::check_interfaces(&config).map_err(|what| mistake(path, &text, Place::Named, what))?;
    Ok((config, text))
}

/// Checks that the folders named in `config`, the file at `path` with this `text`, exist. Not meant
/// for another machine's file.
pub fn check_folders(config: &Config, path: &Path, text: &str) -> Result<(), Mistake> {
    places::check_folders(config.socket.as_deref(), config.control.as_deref())
        .map_err(|what| mistake(path, text, Place::Named, what))
}

/// The excerpt shown with a mistake must not contain a secret.
fn check_no_key(path: &Path, text: &str) -> Result<(), Mistake> {
    let is_key = trunkline_overlay::identity::Identity::from_text(text).is_ok();
    let what = "is a key, not a configuration: give the file whose `[node] key` names it";
    let mistake = || Mistake {
        path: path.to_owned(),
        place: None,
        what: what.to_owned(),
        excerpt: String::new(),
        suggestion: None,
    };
    if is_key { Err(mistake()) } else { Ok(()) }
}

/// Reads and checks `text`, the content of `path`.
pub fn parse(path: &Path, text: &str) -> Result<Config, Mistake> {
    check_no_key(path, text)?;
    let mut file: File = toml::from_str(text).map_err(|e| syntax_mistake(path, text, &e))?;
    let at = |(place, what): Wrong| mistake(path, text, place, what);
    let named = |what: &str| at((Place::Named, what.to_owned()));
    file.targets = egress::targets(&file, text);
    listen::check(&file.node.listen).map_err(at)?;
    check_runtime(&file.runtime).map_err(named)?;
    places::check(&file).map_err(at)?;
    let mut config = overlay::Config::new(NodeId(file.node.id));
    config.max_sessions = file.node.max_sessions.unwrap_or(config.max_sessions);
    config.access = file.access.rules();
    config.routing = file.routing.settings().map_err(named)?;
    let key_files = key_files(&file).map_err(named)?;
    let clients = known_clients(&file, &mut config.access).map_err(at)?;
    check_remote(&file).map_err(named)?;
    let template = defaults(&file, config.id);
    // Checks the settings of all links first, so that the first link isn't blamed for them.
    template.check().map_err(|what| named(&format!("out of range ({what})")))?;
    add_sections(&mut config, &file, key_files.is_some()).map_err(at)?;
    config.streams = file.streams.config();
    if let Some(filter) = &file.log.filter {
        crate::log::parse(filter).map_err(|why| named(&format!("[log] filter {why}")))?;
    }
    let sip = gateway(&mut file).map_err(at)?;
    config.max_sessions += sip.as_ref().map_or(0, Sip::sessions);
    // A file may have no links.
    config.validate().map_err(|e| named(&e.to_string()))?;
    let paths = (0..file.link.len()).filter_map(|index| path_of(&file, index)).collect();
    let name = file.node.name.unwrap_or_else(|| format!("node {}", file.node.id));
    Ok(Config {
        name,
        listen: file.node.listen,
        socket: file.node.socket,
        remote: file.node.remote,
        clients,
        http: file.node.http,
        control: file.node.control,
        sip,
        log_filter: file.log.filter,
        overlay: config,
        runtime: file.runtime,
        template,
        paths,
        rate: file.access.rate(),
        key_files,
    })
}

/// Adds links, routes and trunks one at a time, so that a mistake can be traced to a line.
fn add_sections(config: &mut overlay::Config, file: &File, sealed: bool) -> Result<(), Wrong> {
    let check = |config: &overlay::Config, section, index| {
        config.validate().map_err(|e| (Place::Of { section, index, key: key(&e) }, e.to_string()))
    };
    for (index, section) in file.link.iter().enumerate() {
        config.links.push(link_config(section, file));
        check(config, "link", index)?;
        let at = |key| Place::Of { section: "link", index, key };
        if let Some(link) = config.links.last() {
            sealing::check_link(link, &file.overlay, sealed).map_err(|what| (at("key"), what))?;
        }
        let number = section.address.as_ref().and_then(Address::number);
        let why = |a: SocketAddr| nobodys(a, Whose::Neighbour);
        if let Some((address, why)) = number.and_then(|a| Some((a, why(a)?))) {
            return Err((at("address"), format!("address {address} {why}")));
        }
        if let Some(address) = &section.address
            && let Some(is_ipv6) = address.is_ipv6()
            && !file.node.listen.iter().any(|l| l.is_ipv6() == is_ipv6)
        {
            let any = if is_ipv6 { "[::]:7000" } else { "0.0.0.0:7000" };
            let what = format!(
                "{address} cannot be reached: [node] listen has no address of its family: add one, \
                 such as \"{any}\""
            );
            return Err((at("address"), what));
        }
        egress::check(file, index).map_err(|(key, what)| (at(key), what))?;
    }
    for (index, section) in file.route.iter().enumerate() {
        config.routes.extend(static_routes(section));
        check(config, "route", index)?;
    }
    for (index, section) in file.trunk.iter().enumerate() {
        config.trunks.push(section.config());
        check(config, "trunk", index)?;
    }
    Ok(())
}

/// Key that an error about one link, route or trunk is about.
fn key(error: &ConfigError) -> &'static str {
    use trunkline_overlay::trunk::ConfigError as Trunk;
    match error {
        ConfigError::OutOfRange(_, what) => {
            // The settings of all links have been checked before.
            let keys = ["mtu", "dscp", "penalty", "rate"];
            keys.into_iter().find(|key| what.starts_with(key)).unwrap_or("neighbour")
        }
        ConfigError::SameLink(..) | ConfigError::LongPath(..) | ConfigError::IndexCollision(..) => {
            "path"
        }
        ConfigError::TwoKeys(_) | ConfigError::OneKey(..) => "key",
        ConfigError::NoSuchNeighbour(_) => "via",
        ConfigError::Trunk(Trunk::Wait(_)) => "wait",
        ConfigError::Trunk(_) => "to",
        ConfigError::TooManyLinks(_)
        | ConfigError::ReservedId(_)
        | ConfigError::LinkToSelf(_)
        | ConfigError::UnconfiguredPeerOutOfRange(_)
        | ConfigError::Streams(_) => "neighbour",
    }
}

/// Settings of the SIP gateway, if the node is one.
fn gateway(file: &mut File) -> Result<Option<Sip>, Wrong> {
    let taken = [&file.node.listen[..], &file.node.remote].concat();
    let section = file.sip.take();
    let checked = section.map(|section| section.checked(NodeId(file.node.id), &taken));
    checked.transpose().map_err(|(span, what)| (span.map_or(Place::Named, Place::Bytes), what))
}

fn link_config(section: &LinkSection, file: &File) -> link::Config {
    let mut c = defaults(file, NodeId(section.neighbour));
    c.path.clone_from(&section.path);
    c.address = section.address.as_ref().and_then(Address::number);
    c.key = section.key.map(|key| key.0);
    c.mtu = section.mtu.unwrap_or(c.mtu);
    c.dscp = section.dscp.unwrap_or(DSCP_EF);
    c.rate = section.rate.map(|r| r.0);
    c.penalty = section.penalty.map_or(c.penalty, |s| s.0);
    c
}

/// The path of the link of section `index`, if it says more than an address.
fn path_of(file: &File, index: usize) -> Option<((NodeId, String), WantedPath)> {
    let section = &file.link[index];
    let interface = section.interface.clone();
    let source = section.source.or_else(|| egress::own_source(file, index));
    let link = (NodeId(section.neighbour), section.path.clone());
    let host = match &section.address {
        Some(Address::Name(host)) => Some(host.clone()),
        _ => None,
    };
    let path = WantedPath { source, interface, host };
    (path != WantedPath::default()).then_some((link, path))
}

/// A link with the settings for all links.
fn defaults(file: &File, neighbour: NodeId) -> link::Config {
    let mut c = link::Config::new(neighbour);
    c.damping = file.routing.damping.0;
    let Liveness { interval, dead_after, probes, loss, piggyback } = c.liveness;
    c.liveness = Liveness {
        interval: file.hello.interval.map_or(interval, |s| s.0),
        dead_after: file.hello.dead_after.map_or(dead_after, |s| s.0),
        probes: file.hello.probes.unwrap_or(probes),
        piggyback: file.hello.piggyback.unwrap_or(piggyback),
        loss: file.hello.loss.map_or(loss, LossMode::from),
    };
    let size = |s: Size| usize::try_from(s.0).unwrap_or(usize::MAX);
    let (rt, from) = (&mut c.realtime, &file.realtime);
    rt.recovery = from.recovery.unwrap_or(rt.recovery);
    rt.reorder = from.reorder.unwrap_or(rt.reorder);
    rt.retransmit_ratio = from.retransmit_ratio.map_or(rt.retransmit_ratio, |f| f.0);
    rt.recovery_budget = from.recovery_budget.map_or(rt.recovery_budget, |f| f.0);
    rt.retransmit_burst = from.retransmit_burst.unwrap_or(rt.retransmit_burst);
    rt.max_wait = from.max_wait.map_or(rt.max_wait, |s| s.0);
    rt.bytes = from.memory.map_or(rt.bytes, size);
    let (be, from) = (&mut c.best_effort, &file.best_effort);
    be.max_wait = from.max_wait.map_or(be.max_wait, |s| s.0);
    be.bytes = from.memory.map_or(be.bytes, size);
    let (re, from) = (&mut c.reliable, &file.reliable);
    re.bytes = from.memory.map_or(re.bytes, size);
    re.algorithm = from.congestion.unwrap_or(re.algorithm);
    c
}

/// Files with the node's keys; `None` if the node is deliberately unsealed.
fn key_files(file: &File) -> Result<Option<KeyFiles>, &'static str> {
    let NodeSection { key, certificate, unsealed_for_measurements, .. } = &file.node;
    match (key, unsealed_for_measurements) {
        (Some(key), _) if sealing::is_key_itself(key) => {
            Err("[node] key is a key itself: give the name of a file with the secret one, which \
                 `trunkline keygen FILE` makes; this node's public key is for its neighbours")
        }
        (Some(_), true) => Err("[node] unsealed_for_measurements is for a node without a key, \
                                and this one has a `key`: take one of the two away"),
        (None, false) => Err("[node] has no key: make one with `trunkline keygen FILE` and give \
                              key = \"FILE\""),
        (None, true) if file.sip.is_some() => {
            Err("[node] unsealed_for_measurements and [sip] don't go together, since everybody on \
                 the way could listen to the gateway's calls: give [node] a `key`, which \
                 `trunkline keygen FILE` makes, or take [sip] away")
        }
        (None, true) if certificate.is_some() => {
            Err("[node] has a certificate but no key: give the key that it is for")
        }
        (None, true) if !file.overlay.is_empty() || !file.known.is_empty() => Err(
            "[overlay] and [[known]] don't apply to an unsealed node, which knows no peer by a \
                 key: take them away, or give [node] a `key` instead of \
                 unsealed_for_measurements",
        ),
        (None, true) => Ok(None),
        (Some(key), false) => Ok(Some(KeyFiles {
            key: key.clone(),
            certificate: certificate.clone(),
            believed: file.overlay.believed(&file.known),
        })),
    }
}

/// The static routes of one section.
fn static_routes(route: &RouteSection) -> Vec<StaticRoute> {
    let via = NodeId(route.via);
    let onward = route.onward.map_or(Duration::ZERO, |s| s.0);
    let to = |to| StaticRoute { to, via, onward };
    match &route.to {
        Destinations::Others(Star::Star) => vec![to(None)],
        Destinations::Some(nodes) => nodes.iter().map(|&n| to(Some(NodeId(n)))).collect(),
    }
}

/// The clients and their rights; or the invalid section and the reason.
fn known_clients(file: &File, access: &mut overlay::Access) -> Result<Vec<KnownClient>, Wrong> {
    let mut clients = Vec::new();
    for (index, section) in file.client.iter().enumerate() {
        let at = Place::Of { section: "client", index, key: "name" };
        clients.push(section.known(&clients).map_err(|what| (at, what))?);
        access.clients.push(section.rights());
    }
    Ok(clients)
}

/// Checks that access from other hosts is fully configured.
fn check_remote(file: &File) -> Result<(), &'static str> {
    let NodeSection { remote, key, .. } = &file.node;
    match (remote.is_empty(), file.client.is_empty()) {
        (false, true) => Err("[node] has a `remote` address but no client may use it: add a \
                              [[client]] with its name and key (`trunkline keygen`), or take \
                              `remote` away"),
        (true, false) => Err("there is a [[client]], but no `remote` address in [node] where it \
                              could attach: add one"),
        (false, false) if key.is_none() => Err("a [[client]] authenticates to the node's key, \
                                                and [node] has none: give `key`, or take \
                                                `remote` and the clients away"),
        _ => Ok(()),
    }
}

fn check_runtime(runtime: &Runtime) -> Result<(), &'static str> {
    if runtime.cpu.is_some_and(|cpu| cpu >= 1_024) {
        return Err("[runtime] cpu is out of range (0 to 1023)");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
