//! Routes to all nodes: link-state routing (Amir et al. 2005, III-A and IV-B), and an operator's
//! routes, which take precedence.
//!
//! Every node advertises its links to all others in signed [`update`]s, which [flooding](Router)
//! distributes reliably. Every node stores the newest record per origin and computes shortest paths
//! over the links that both ends advertise.

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

/// Configuration of a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Id of this node.
    pub id: NodeId,
    /// How costs are computed; must be the same at every node.
    pub cost: CostModel,
    /// Certificate that introduces this node to nodes that don't have its key; at most
    /// [`update::MAX_CERTIFICATE`] bytes.
    pub certificate: Option<Vec<u8>>,
    /// The operator's routes: one with a link that is up takes precedence over the computed route
    /// to its destination.
    pub routes: Vec<StaticRoute>,
    /// Bounds on memory, bytes and processor time.
    pub limits: Limits,
}

impl Config {
    /// A configuration with defaults, no certificate and no routes.
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
    /// Maximum number of nodes with stored records, including this one.
    pub max_nodes: usize,
    /// Interval at which a node signs its records again if nothing changes.
    pub refresh: Duration,
    /// Age at which a record that was not refreshed is dropped.
    pub max_age: Duration,
    /// Minimum interval between two updates of this node.
    pub own_interval: Duration,
    /// Updates per second accepted from another node, per record.
    pub origin_rate: u32,
    /// Bytes per second of updates sent on one link.
    pub flood_rate: u32,
    /// New records per second accepted from one neighbour.
    pub neighbour_rate: u32,
    /// Records of one neighbour that may be queued for signature checks.
    pub max_queue: usize,
    /// Signatures checked in one round; the next round follows 1 ms later.
    pub checks: u32,
    /// Minimum interval between two computations of paths, on average.
    pub spf_interval: Duration,
    /// Computations at once after a pause, as in RFC 8405: while a change spreads, nodes with old
    /// routes return packets.
    pub spf_burst: u32,
}

impl Default for Limits {
    /// Returns limits for up to a thousand nodes ("tens to hundreds", III). At 50 µs per signature,
    /// a malicious neighbour costs about a twentieth of a processor.
    fn default() -> Limits {
        Limits {
            max_nodes: 1_024,
            refresh: Duration::from_secs(10 * 60),
            max_age: Duration::from_secs(30 * 60),
            own_interval: Duration::from_millis(50),
            // Twice the rate of an honest node.
            origin_rate: 40,
            // The database of 500 nodes takes 3 s to transfer, at the bit rate of six calls.
            flood_rate: 64_000,
            neighbour_rate: 1_000,
            max_queue: 512,
            checks: 16,
            spf_interval: Duration::from_millis(20),
            spf_burst: 8,
        }
    }
}

/// Burst of records accepted from one neighbour: many times the records of a frame.
const NEIGHBOUR_BURST: u32 = 2_001;
/// Burst of updates accepted from one origin.
const ORIGIN_BURST: u32 = 11;
/// Burst of bytes on a link: ten packets, and the start of another.
const FLOOD_BURST: u32 = 12_001;

impl Limits {
    fn origin_pacer(&self) -> Pacer {
        Pacer::of(Rate::new(self.origin_rate, ORIGIN_BURST))
    }

    fn neighbour_pacer(&self) -> Pacer {
        Pacer::of(Rate::new(self.neighbour_rate, NEIGHBOUR_BURST))
    }

    fn spf_pacer(&self) -> Pacer {
        Pacer::new(self.spf_interval, self.spf_burst)
    }

    fn flood_pacer(&self) -> Pacer {
        Pacer::of(Rate::new(self.flood_rate, FLOOD_BURST))
    }
}
