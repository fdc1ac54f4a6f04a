//! The model of a scenario, as read from a file and checked.

use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Routing};
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::tcp::Profile;

/// A scenario file, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its extension.
    pub name: String,
    /// Length of the calls.
    pub length: Duration,
    /// IP version of everything outside and below the overlay.
    pub ip: IpVersion,
    /// Whether PESQ is computed.
    pub pesq: bool,
    /// Whether overlay links are sealed.
    pub sealed: bool,
    /// Hosts with nodes, in the order of the file.
    pub hosts: Vec<Host>,
    /// Names of routers, in the order of the file.
    pub routers: Vec<String>,
    /// Links, in the order of the file.
    pub links: Vec<Link>,
    /// Calls, in the order of the file.
    pub calls: Vec<Call>,
    /// Plain streams, in the order of the file.
    pub streams: Vec<Stream>,
    /// Transfers over TCP, in the order of the file.
    pub transfers: Vec<Transfer>,
    /// Programs on hosts, in the order of the file; only for the testbed.
    pub programs: Vec<Program>,
    /// Faults, in the order of the file.
    pub faults: Vec<Fault>,
}

/// A host with a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The host's name, by which links and calls refer to it.
    pub name: String,
    /// Number of applications that may be attached to its node at once.
    pub max_sessions: usize,
    /// Link-state routing; without it, static routes with the fewest links.
    pub routing: Option<Routing>,
    /// Trunks of its node to those of other hosts.
    pub trunks: Vec<trunk::Config>,
    /// Kernel settings of its network, for the testbed: name and value.
    pub sysctl: BTreeMap<String, String>,
}

impl Host {
    /// A host with a node that has all defaults.
    pub fn new(name: impl Into<String>) -> Host {
        Host {
            name: name.into(),
            max_sessions: Config::MAX_SESSIONS,
            routing: None,
            trunks: Vec::new(),
            sysctl: BTreeMap::new(),
        }
    }
}

/// A place at which a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vertex {
    /// Index of a host.
    Host(usize),
    /// Index of a router.
    Router(usize),
}

/// A link: a wire, an overlay link, or an overlay link over a private wire.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name in tables and faults; its number in the file if that gives none.
    pub name: String,
    /// Whether the file gives this name.
    pub named: bool,
    /// The hosts or routers at its first and second end.
    pub ends: (Vertex, Vertex),
    /// Models of the wire from the first to the second end, and back; `None` for an overlay link
    /// over the wires of others.
    pub wire: Option<[LinkModel; 2]>,
    /// The settings of the overlay link at either end, without neighbour and address; `None` for a
    /// wire.
    pub overlay: Option<Box<[link::Config; 2]>>,
    /// Delay of the path over other wires from end to end, there and back, if it has no wire.
    pub routed: Option<[Duration; 2]>,
}

impl Link {
    /// An overlay link with all defaults between two hosts, over a wire with the same model in both
    /// directions.
    pub fn between((a, b): (usize, usize), model: LinkModel) -> Link {
        Link {
            name: format!("{a}-{b}"),
            named: false,
            ends: (Vertex::Host(a), Vertex::Host(b)),
            wire: Some([model.clone(), model]),
            overlay: Some(Box::new([NOBODY, NOBODY].map(link::Config::new))),
            routed: None,
        }
    }

    /// The hosts of an overlay link; `None` for a wire.
    pub fn hosts(&self) -> Option<(usize, usize)> {
        match (&self.overlay, self.ends) {
            (Some(_), (Vertex::Host(a), Vertex::Host(b))) => Some((a, b)),
            _ => None,
        }
    }
}

/// How a call's packets are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Over the overlay, with this service.
    Overlay(Service),
    /// As plain UDP over routers.
    Plain,
}

/// Calls of one kind.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name of these calls in tables.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// Number of calls at once.
    pub count: u32,
    /// How its packets are carried.
    pub carrier: Carrier,
    /// Bytes of a packet with its RTP header, 28 to 1,400.
    pub bytes: usize,
    /// Largest useful one-way latency.
    pub threshold: Duration,
}

/// A stream with a constant bit rate outside of the overlay.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Name of the stream in tables.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// Protocol, which determines the headers.
    pub protocol: Protocol,
    /// Payload in bytes, 8 to 1,460.
    pub payload: usize,
    /// Interval between two packets, at least 1 µs.
    pub interval: Duration,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Whether a queue may mark its packets (ECT(0), RFC 3168).
    pub ecn: bool,
    /// Send time of the first packet, from the beginning of the calls.
    pub start: Duration,
    /// Number of packets that are sent.
    pub count: u64,
}

/// A TCP connection from one host to another that always has data, outside of the overlay.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Name of the transfer in tables.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// Time at which it begins, from the beginning of the calls.
    pub from: Duration,
    /// Time at which it ends, from the beginning of the calls.
    pub until: Duration,
    /// The kernel's name of its congestion control, for the testbed, such as `reno`.
    pub congestion: &'static str,
    /// Profile of the simulated TCP.
    pub profile: Profile,
}

/// A program that runs on a host.
#[derive(Clone, Debug)]
pub struct Program {
    /// Index of its host.
    pub host: usize,
    /// The program and its arguments; `{NAME}` is replaced by the address of host NAME.
    pub command: Vec<String>,
    /// Time at which it is started, from the beginning of the calls.
    pub start: Duration,
}

/// A failure or change of the network while calls last.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Time at which it begins, from the beginning of the calls.
    pub at: Duration,
    /// Time at which it ends, from the beginning of the calls; `None` if it doesn't end.
    pub until: Option<Duration>,
    /// Kind of fault, and the link or host that it affects.
    pub what: FaultKind,
}

/// A fault of a link, by its wire, or of a host.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// The wire of the link with this index gets other models, in one direction or both; then it
    /// returns to those of the file.
    Link(usize, Box<[Option<LinkModel>; 2]>),
    /// The link with this index returns to the models of the file.
    Mend(usize),
    /// The host with this index ends without a goodbye; then it starts again.
    Crash(usize),
    /// The node of this host says goodbye and ends; then it starts again.
    Stop(usize),
    /// The host with this index, which has ended, starts again.
    Restart(usize),
    /// The host with this index gets no processor time.
    Stall(usize),
}

/// Placeholder for the neighbour in settings that have none yet.
pub const NOBODY: NodeId = NodeId::NONE;
