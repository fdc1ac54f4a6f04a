//! The file of `--hosts`: hosts, routers, and the edges between them.

use super::super::config::{
    self, ChainKind, ConfigError, Direction, Limit, ModelText, PerDirection, RedText, Traces,
    modelled,
};
use super::super::setup::Setup;
use super::cell::{self, Cell, CellText};
use crate::units::{Fraction, Rate, Size, Span};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Spanned;
use trunkline_base::link_model::LinkModel;

/// Maximum number of hosts. Each is a network namespace with a device in it.
pub const MAX_HOSTS: usize = 256;
/// Maximum number of edge ends at hosts. Each may have addresses.
pub const MAX_INTERFACES: usize = 4_096;

/// The minimum MTU of an IPv6 link, in bytes (RFC 8200, section 5).
const MIN_MTU: u16 = 1_280;
/// Default of `mtu`: the MTU of Ethernet, in bytes.
const MTU: u16 = 1_500;

/// A network of hosts that can be run.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Seed of the randomness of all edges.
    pub seed: u64,
    /// Maximum memory for packets in flight, in bytes.
    pub buffer: u64,
    /// The hosts in the order of the file.
    pub hosts: Vec<Host>,
    /// The names of the routers in the order of the file.
    pub routers: Vec<String>,
    /// The edges in the order of the file.
    pub edges: Vec<Edge>,
    /// The cells of 802.11e in the order of the file.
    pub cells: Vec<Cell>,
}

/// A network namespace with one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the host in the ledger.
    pub name: String,
    /// Kernel settings of the host below `/proc/sys`, written with dots: `net.ipv4.tcp_sack`.
    pub sysctl: BTreeMap<String, Spanned<String>>,
}

/// One end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeEnd {
    /// The host with this number.
    Host(usize),
    /// The router with this number.
    Router(usize),
}

/// A modelled link between two hosts or routers.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Name of the edge in the ledger.
    pub name: String,
    /// The host or router at either end.
    pub ends: [EdgeEnd; 2],
    /// Whether its ends at hosts have separate addresses.
    pub is_private: bool,
    /// Size of the largest IP packet, in bytes.
    pub mtu: u16,
    /// The direction from the first end to the second, then the opposite one.
    pub directions: [Direction; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    buffer: Option<Size>,
    #[serde(default)]
    host: Vec<HostText>,
    #[serde(default)]
    router: Vec<RouterText>,
    #[serde(default)]
    edge: Vec<Spanned<EdgeText>>,
    #[serde(default)]
    cell: Vec<Spanned<CellText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    name: Spanned<String>,
    /// Congestion control of its TCP connections: `reno`, `cubic` or `bbr`.
    tcp: Option<Spanned<String>>,
    #[serde(default)]
    sysctl: BTreeMap<Spanned<String>, Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterText {
    name: Spanned<String>,
}

modelled! {
    /// An edge as written in the file.
    pub struct EdgeText {
        pub name: Option<Spanned<String>>,
        pub stream: Option<u64>,
        pub between: [Spanned<String>; 2],
        #[serde(default)]
        pub private: bool,
        pub mtu: Option<Spanned<u16>>,
    }
}

/// A mistake: its position in bytes from the start of the file, and its description.
pub type Wrong = (usize, String);

/// Hosts and routers by name.
pub type Spots = BTreeMap<String, EdgeEnd>;

impl Setup for Hosts {
    fn read(path: &Path) -> Result<Hosts, ConfigError> {
        Ok(Hosts::read_with_text(path)?.0)
    }

    fn models(&self) -> impl Iterator<Item = &LinkModel> {
        self.edges.iter().flat_map(|edge| &edge.directions).map(|direction| &direction.model)
    }

    fn check_same(&self, new: &Hosts) -> Result<(), ConfigError> {
        let shape = |hosts: &Hosts| {
            let edge =
                |e: &Edge| (e.name.clone(), e.ends, e.is_private, e.mtu, e.directions[0].stream);
            let edges: Vec<_> = hosts.edges.iter().map(edge).collect();
            (hosts.seed, hosts.buffer, edges, hosts.cells.clone())
        };
        match (&self.hosts, &self.routers, shape(self)) == (&new.hosts, &new.routers, shape(new)) {
            true => Ok(()),
            false => {
                let what = "seed, buffer, a [[host]], a [[router]], a [[cell]], or between, \
                            private, mtu or stream of an [[edge]]";
                Err(ConfigError::OtherLinks { what: what.into() })
            }
        }
    }
}

impl Hosts {
    /// Reads a file like [`Setup::read`], and also returns its text.
    ///
    /// # Errors
    ///
    /// Those of [`Setup::read`].
    pub fn read_with_text(path: &Path) -> Result<(Hosts, String), ConfigError> {
        let (text, mut file): (String, File) = config::read_toml(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        file.edge.iter_mut().for_each(|edge| edge.get_mut().find_traces(folder));
        match Hosts::new(file) {
            Ok(hosts) => Ok((hosts, text)),
            Err((at, what)) => Err(ConfigError::at(path, &text, at, what)),
        }
    }

    fn new(file: File) -> Result<Hosts, Wrong> {
        let mut spots = Spots::new();
        let hosts = file.host.iter().enumerate().map(|(n, h)| (&h.name, EdgeEnd::Host(n)));
        let routers = file.router.iter().enumerate().map(|(n, r)| (&r.name, EdgeEnd::Router(n)));
        for (name, spot) in hosts.chain(routers) {
            if name.get_ref().is_empty() || name.get_ref().chars().any(char::is_whitespace) {
                return Err((name.span().start, "a name is one word".into()));
            }
            if spots.insert(name.get_ref().clone(), spot).is_some() {
                let what =
                    format!("\"{}\" is the name of an earlier host or router", name.get_ref());
                return Err((name.span().start, what));
            }
        }
        let too_many = file.host.get(MAX_HOSTS).map(|host| host.name.span().start);
        if file.host.is_empty() || too_many.is_some() {
            let what = format!("there are {} [[host]]: 1 to {MAX_HOSTS}", file.host.len());
            return Err((too_many.unwrap_or(0), what));
        }
        no_cell_at_an_end(&file, &spots)?;
        let (mut names, mut traces) = (BTreeSet::new(), Traces::default());
        let edges = file.edge.into_iter().zip(0..).map(|(edge, n)| {
            let start = edge.span().start;
            let edge = edge.into_inner();
            let (name, at) = config::name(edge.name.as_ref(), (start, n));
            match names.insert(name.clone()) {
                true => Edge::new(edge, (name, n), &spots, &mut traces),
                false => Err((at, format!("\"{name}\" is the name of an earlier edge"))),
            }
        });
        let edges = edges.collect::<Result<Vec<Edge>, Wrong>>()?;
        let mut cell_names = BTreeSet::new();
        let cells = file.cell.into_iter().zip(0..).map(|(cell, n)| {
            let start = cell.span().start;
            let cell = cell.into_inner();
            let (name, at) = config::name(cell.name.as_ref(), (start, n));
            if !cell_names.insert(name.clone()) {
                return Err((at, format!("\"{name}\" is the name of an earlier cell")));
            }
            let cell = Cell::new(cell, (name, start), &spots)?;
            let twice = cell.edges().find(|(_, name)| !names.insert(name.clone()));
            match twice {
                None => Ok(cell),
                Some((_, name)) => Err((at, format!("\"{name}\" is the name of an earlier edge"))),
            }
        });
        let cells = cells.collect::<Result<Vec<Cell>, Wrong>>()?;
        let places: Vec<usize> = file.host.iter().map(|host| host.name.span().start).collect();
        let hosts = file.host.into_iter().map(HostText::check).collect::<Result<_, Wrong>>()?;
        let routers = file.router.into_iter().map(|r| r.name.into_inner()).collect();
        let buffer = file.buffer.unwrap_or(config::DEFAULT_BUFFER).0;
        let hosts = Hosts { seed: file.seed, buffer, hosts, routers, edges, cells };
        hosts.check_joined(&places)?;
        Ok(hosts)
    }

    /// Ends and MTU (in bytes) of each edge of the network: first the edges of the file, then those
    /// of its cells, station by station.
    pub fn all_edges(&self) -> impl Iterator<Item = ([EdgeEnd; 2], u16)> {
        let of_cells = self.cells.iter().flat_map(Cell::edges).map(|(ends, _)| (ends, cell::MTU));
        self.edges.iter().map(|edge| (edge.ends, edge.mtu)).chain(of_cells)
    }

    /// Checks that each host has an edge or belongs to a cell; `places` are the hosts' positions in
    /// the file. Hosts need not all reach each other: a file may describe several networks.
    fn check_joined(&self, places: &[usize]) -> Result<(), Wrong> {
        let ends = self.all_edges().flat_map(|(ends, _)| ends);
        if ends.filter(|end| matches!(end, EdgeEnd::Host(_))).count() > MAX_INTERFACES {
            return Err((0, format!("more than {MAX_INTERFACES} ends of edges at hosts")));
        }
        for ((n, host), place) in self.hosts.iter().enumerate().zip(places) {
            if !self.all_edges().any(|(ends, _)| ends.contains(&EdgeEnd::Host(n))) {
                let what =
                    format!("no [[edge]] or [[cell]] leads to host \"{}\": add one", host.name);
                return Err((*place, what));
            }
        }
        Ok(())
    }
}

impl HostText {
    fn check(self) -> Result<Host, Wrong> {
        let mut sysctl = BTreeMap::new();
        for (key, value) in self.sysctl {
            let is_word = |word: &str| {
                !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            let is_key = key.get_ref().starts_with("net.") && key.get_ref().split('.').all(is_word);
            if !is_key {
                let what = format!(
                    "\"{}\" is no setting of a namespace: they begin with \"net.\"",
                    key.get_ref()
                );
                return Err((key.span().start, what));
            }
            if self.tcp.is_some() && key.get_ref() == CONGESTION_CONTROL {
                let what = format!("{CONGESTION_CONTROL} is also set by tcp: remove one of them");
                return Err((key.span().start, what));
            }
            sysctl.insert(key.into_inner(), value);
        }
        if let Some(tcp) = self.tcp {
            sysctl.insert(CONGESTION_CONTROL.into(), tcp);
        }
        Ok(Host { name: self.name.into_inner(), sysctl })
    }
}

/// The setting that chooses the congestion control of new TCP connections.
pub const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

impl Edge {
    fn new(
        text: EdgeText,
        (name, n): (String, u64),
        spots: &Spots,
        traces: &mut Traces,
    ) -> Result<Edge, Wrong> {
        let ends = [find(spots, &text.between[0])?, find(spots, &text.between[1])?];
        if ends[0] == ends[1] {
            let what = format!("\"{}\" is at both ends", text.between[0].get_ref());
            return Err((text.between[1].span().start, what));
        }
        if let Some(mtu) = text.mtu.as_ref().filter(|mtu| *mtu.get_ref() < MIN_MTU) {
            let what = format!("mtu is {MIN_MTU} or more, as IPv6 needs it (RFC 8200, 5)");
            return Err((mtu.span().start, what));
        }
        let mtu = text.mtu.as_ref().map_or(MTU, |mtu| *mtu.get_ref());
        let stream = config::stream(text.stream, n);
        let is_private = text.private;
        let model: ModelText = text.into_model();
        match model.directions(stream, traces) {
            Ok(directions) => Ok(Edge { name, ends, is_private, mtu, directions }),
            Err((at, problem)) => Err((at, format!("edge {name}: {problem}"))),
        }
    }
}

/// Checks that no end of an edge names a cell.
fn no_cell_at_an_end(file: &File, spots: &Spots) -> Result<(), Wrong> {
    let cells = file.cell.iter().filter_map(|cell| cell.get_ref().name.as_ref());
    let cells: BTreeSet<&String> = cells.map(Spanned::get_ref).collect();
    let mut ends = file.edge.iter().flat_map(|edge| &edge.get_ref().between);
    let is_cell = |end: &&Spanned<String>| {
        !spots.contains_key(end.get_ref()) && cells.contains(end.get_ref())
    };
    ends.find(is_cell).map_or(Ok(()), |end| {
        let name = end.get_ref();
        let what = format!(
            "\"{name}\" is a [[cell]], and an edge joins hosts and routers: name its access point or \
             a station"
        );
        Err((end.span().start, what))
    })
}

/// The host or router of this name.
pub fn find(spots: &Spots, end: &Spanned<String>) -> Result<EdgeEnd, Wrong> {
    if let Some(spot) = spots.get(end.get_ref()) {
        return Ok(*spot);
    }
    let likely = spots.keys().map(String::as_str).max_by(|a, b| {
        let like = |name| strsim::jaro_winkler(end.get_ref(), name);
        like(a).total_cmp(&like(b))
    });
    let hint = likely.map(|name| format!("; did you mean \"{name}\"?"));
    let what = format!("no [[host]] or [[router]] is \"{}\"", end.get_ref());
    Err((end.span().start, what + &hint.unwrap_or_default()))
}

#[cfg(test)]
pub(super) mod tests;
