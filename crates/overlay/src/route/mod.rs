//! Which link leads to which node: link-state routing (Amir et al. 2005, III-A
//! and IV-B), and an operator's routes above it.
//!
//! Every node tells all others of its own links in signed [`update`]s, which
//! [flooding](Router) carries reliably; everyone keeps the newest of each node
//! and computes shortest paths over the links that both ends advertise.

mod cost;
mod database;
mod differing;
mod flood;
mod keys;
mod router;
mod self_originated;
pub mod spf;
mod stats;
mod table;
pub mod update;

pub use cost::{CostModel, Formula, UNUSABLE};
pub use keys::{Keys, Signature, Signer, Unsigned};
pub use router::{Neighbour, Route, Router};
pub use stats::{Refusals, RefusedRecord, RouteStats};
pub use table::{ForwardingTable, Hop, StaticRoute};
pub use update::{Advert, Key, MIN_ROOM, Part};

use crate::wire::NodeId;
use core::time::Duration;
use trunkline_base::{Pacer, Rate};

/// What a router is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The node that it is of.
    pub id: NodeId,
    /// How costs are computed; alike at every node.
    pub cost: CostModel,
    /// What introduces this node to those who don't know its key; at most
    /// [`update::MAX_CERTIFICATE`] bytes.
    pub certificate: Option<Vec<u8>>,
    /// The operator's routes: whose link is up comes before what is computed
    /// for that destination.
    pub routes: Vec<StaticRoute>,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// With defaults, no certificate and no routes.
    pub fn new(id: NodeId) -> Config {
        Config {
            id,
            cost: CostModel::default(),
            certificate: None,
            routes: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Bounds on memory, bytes and processor time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Nodes of which records are kept, this one included.
    pub max_nodes: usize,
    /// How often a node's records are signed anew if nothing changes.
    pub refresh: Duration,
    /// When a record that was not is dropped.
    pub max_age: Duration,
    /// The least time between two of this node's updates.
    pub own_interval: Duration,
    /// Updates per second of another node that are believed, per record.
    pub origin_rate: u32,
    /// Bytes per second of updates sent on one link.
    pub flood_rate: u32,
    /// New records per second taken from one neighbour.
    pub neighbour_rate: u32,
    /// Records of one neighbour that may wait for the checking of signatures.
    pub max_queue: usize,
    /// Signatures checked at once; the rest 1 ms later.
    pub checks: u32,
    /// The least time between two computations of paths.
    pub spf_interval: Duration,
}

impl Default for Limits {
    /// For up to a thousand nodes ("tens to hundreds", III); about a twentieth
    /// of a processor, at 50 µs per signature, for a neighbour that lies.
    fn default() -> Limits {
        Limits {
            max_nodes: 1_024,
            refresh: Duration::from_secs(10 * 60),
            max_age: Duration::from_secs(30 * 60),
            own_interval: Duration::from_millis(50),
            // Twice what an honest node sends.
            origin_rate: 40,
            // A transfer of 500 nodes takes 3 s and the room of six calls.
            flood_rate: 64_000,
            neighbour_rate: 1_000,
            max_queue: 512,
            checks: 16,
            spf_interval: Duration::from_millis(20),
        }
    }
}

/// Records of one neighbour that may come at once: a frame's worth, many times.
const NEIGHBOUR_BURST: u32 = 2_001;
/// Updates of one origin that may come at once.
const ORIGIN_BURST: u32 = 11;
/// Bytes on a link that may go at once: ten packets, and one that begins.
const FLOOD_BURST: u32 = 12_001;

impl Limits {
    fn origin_pacer(&self) -> Pacer {
        Pacer::of(Rate::new(self.origin_rate, ORIGIN_BURST))
    }

    fn neighbour_pacer(&self) -> Pacer {
        Pacer::of(Rate::new(self.neighbour_rate, NEIGHBOUR_BURST))
    }

    fn flood_pacer(&self) -> Pacer {
        Pacer::of(Rate::new(self.flood_rate, FLOOD_BURST))
    }
}
