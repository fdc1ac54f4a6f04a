//! What a scenario is, read and checked.

use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::link_model::LinkModel;
use trunkline_net::Protocol;
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Routing};
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{NodeId, Service};
use trunkline_sim::agent::tcp::Profile;

/// What a file says, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// How long calls are.
    pub length: Duration,
    /// Whether PESQ is reckoned.
    pub pesq: bool,
    /// Whether links of the overlay are sealed.
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
    /// What TCP carries, in the order of the file.
    pub transfers: Vec<Transfer>,
    /// Programs at hosts, in the order of the file; for the testbed alone.
    pub programs: Vec<Program>,
    /// Faults, in the order of the file.
    pub faults: Vec<Fault>,
}

/// A host with a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The host's name, which links and calls give.
    pub name: String,
    /// How many applications may be attached to its node at once.
    pub max_sessions: usize,
    /// Link-state routing; without it, static routes with the fewest links.
    pub routing: Option<Routing>,
    /// Its node's trunks to those of other hosts.
    pub trunks: Vec<trunk::Config>,
    /// Settings of its kernel's network, for the testbed: name and value.
    pub sysctl: BTreeMap<String, String>,
}

impl Host {
    /// A host whose node has every default.
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

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Index of a host.
    Host(usize),
    /// Index of a router.
    Router(usize),
}

/// A link: a wire, a link of the overlay, or one on the other.
#[derive(Clone, Debug)]
pub struct Link {
    /// What tables and faults call it; of one without a name its number in the file.
    pub name: String,
    /// Whether the file gives it that name.
    pub named: bool,
    /// The hosts or routers at its first and second end.
    pub ends: (Spot, Spot),
    /// What happens to packets from the first to the second end, and back; nothing
    /// for a link of the overlay that goes over the wires of others.
    pub wire: Option<[LinkModel; 2]>,
    /// The settings of the overlay's link at either end, neighbour and address
    /// left open; nothing for a wire that carries what is sent over it.
    pub overlay: Option<Box<[link::Config; 2]>>,
    /// How long the other way is from end to end, there and back, if it has no wire.
    pub routed: Option<[Duration; 2]>,
}

impl Link {
    /// The overlay's link with every default between two hosts, over a wire that does
    /// the same both ways.
    pub fn between((a, b): (usize, usize), model: LinkModel) -> Link {
        Link {
            name: format!("{a}-{b}"),
            named: false,
            ends: (Spot::Host(a), Spot::Host(b)),
            wire: Some([model.clone(), model]),
            overlay: Some(Box::new([NOBODY, NOBODY].map(link::Config::new))),
            routed: None,
        }
    }

    /// The hosts of a link of the overlay.
    pub fn hosts(&self) -> Option<(usize, usize)> {
        match (&self.overlay, self.ends) {
            (Some(_), (Spot::Host(a), Spot::Host(b))) => Some((a, b)),
            _ => None,
        }
    }
}

/// How a call's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// By the overlay, with this service.
    Overlay(Service),
    /// As plain UDP over routers.
    Plain,
}

/// Calls of one kind.
#[derive(Clone, Debug)]
pub struct Call {
    /// What tables call these calls.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// How many at once.
    pub count: u32,
    /// How its packets go.
    pub carrier: Carrier,
    /// Bytes of a packet, with its RTP header: 28 to 1,400.
    pub bytes: usize,
    /// The latest useful network latency.
    pub threshold: Duration,
}

/// A constant bit rate without an overlay.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What tables call the stream.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// It decides the headers.
    pub protocol: Protocol,
    /// Bytes behind the headers, 8 to 1,460.
    pub payload: usize,
    /// Between two packets, at least 1 µs.
    pub interval: Duration,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Whether its packets may be marked by a queue (ECT(0), RFC 3168).
    pub ecn: bool,
    /// When the first packet is sent, after the calls have begun.
    pub start: Duration,
    /// How many packets are sent.
    pub count: u64,
}

/// As much as TCP carries from one host to another, without an overlay.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// What tables call the transfer.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// When it begins and ends, after the calls have begun.
    pub from: Duration,
    /// See `from`.
    pub until: Duration,
    /// The kernel's congestion control, for the testbed, by its name there: `reno`.
    pub congestion: &'static str,
    /// The TCP that is simulated.
    pub profile: Profile,
}

/// A program at a host.
#[derive(Clone, Debug)]
pub struct Program {
    /// Index of its host.
    pub host: usize,
    /// It and its arguments; `{NAME}` is the IPv6 address of host NAME.
    pub command: Vec<String>,
    /// When it is started, after the calls have begun.
    pub start: Duration,
}

/// Something that happens while calls last.
#[derive(Clone, Debug)]
pub struct Fault {
    /// When it begins, after the calls have begun.
    pub at: Duration,
    /// When it is over, after the calls have begun.
    pub until: Option<Duration>,
    /// What happens, and to which link or host.
    pub what: FaultKind,
}

/// What can happen to a link, by its wire, or to a host.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// A link with a wire, by its index, does something else, there, back or both
    /// ways; then it does what the file says of it.
    Link(usize, Box<[Option<LinkModel>; 2]>),
    /// A link does again what the file says of it.
    Mend(usize),
    /// A host ends without a word; then it starts again.
    Crash(usize),
    /// A node says goodbye and ends; then it starts again.
    Stop(usize),
    /// A host that has ended starts again.
    Restart(usize),
    /// A host has no processor time.
    Stall(usize),
}

/// Stands for the neighbour in settings that don't know theirs.
pub const NOBODY: NodeId = NodeId::NONE;
