use super::{Access, Routing};
use crate::handshake::message::MAX_PATH;
use crate::handshake::{self, Offer};
use crate::identity::{Certificate, Identity, PublicKey, Trust};
use crate::link::{self, realtime};
use crate::route::StaticRoute;
use crate::route::update::path_number;
use crate::session::stream;
use crate::session::wire::SESSION_VERSIONS;
use crate::trunk;
use crate::wire::version::VersionRange;
use crate::wire::{NodeId, ReceiverIndex};
use core::time::Duration;
use std::collections::BTreeMap;

/// Complete configuration of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address of the node in the overlay.
    pub id: NodeId,
    /// Links with configured neighbours.
    pub links: Vec<link::Config>,
    /// Routes set by the operator.
    pub routes: Vec<StaticRoute>,
    /// Maximum number of applications attached at once.
    pub max_sessions: usize,
    /// Versions of the session protocol that the node supports.
    pub session_versions: VersionRange,
    /// Access rules of the node.
    pub access: Access,
    /// Link-state routing; if absent, only the operator's routes are used.
    pub routing: Option<Routing>,
    /// Sealing of all links; if absent, nothing is protected.
    pub sealing: Option<Sealing>,
    /// Trunks of this node, at most one for each destination node.
    pub trunks: Vec<trunk::Config>,
    /// Limits of the streams that end here.
    pub streams: stream::Config,
}

/// Settings that a node needs to seal its links.
#[derive(Clone, PartialEq, Debug)]
pub struct Sealing {
    /// Key pair of the node.
    pub identity: Identity,
    /// Certificate of the node, issued by the operator.
    pub certificate: Option<Certificate>,
    /// Trusted operators' keys, and revoked keys.
    pub trust: Trust,
    /// Keys of nodes that are not neighbours and have no certificate; their link-state updates are
    /// accepted.
    pub known: Vec<(NodeId, PublicKey)>,
    /// Maximum number of links with certified nodes that have no configured link.
    pub unconfigured_peers: u16,
    /// Settings of the links with those nodes.
    pub unconfigured_peer: link::Config,
    /// Protocol features offered to neighbours.
    pub offer: Offer,
    /// Limits on the work that unknown peers can cause.
    pub limits: handshake::Limits,
}

impl Sealing {
    /// Settings of a node that admits only nodes with a configured key.
    pub fn new(identity: Identity) -> Sealing {
        Sealing {
            identity,
            certificate: None,
            trust: Trust::default(),
            known: Vec::new(),
            unconfigured_peers: 0,
            unconfigured_peer: link::Config::new(NodeId::NONE),
            offer: Offer::default(),
            limits: handshake::Limits::default(),
        }
    }
}

impl Config {
    /// Twice the thousand clients that the paper's nodes serve (III-A).
    pub const MAX_SESSIONS: usize = 2_048;

    /// Creates the configuration of a node without links.
    pub fn new(id: NodeId) -> Config {
        Config {
            id,
            links: Vec::new(),
            routes: Vec::new(),
            max_sessions: Self::MAX_SESSIONS,
            session_versions: SESSION_VERSIONS,
            access: Access::default(),
            routing: None,
            sealing: None,
            trunks: Vec::new(),
            streams: stream::Config::default(),
        }
    }

    /// The largest application packet that every link of this node carries, in bytes; for a node
    /// without links, that of a default link.
    pub fn max_payload(&self) -> usize {
        let least = self.links.iter().map(link::Config::max_payload).min();
        least.unwrap_or_else(|| link::Config::new(self.id).max_payload())
    }

    /// Nodes with a configured key, including this one.
    pub fn known_keys(&self) -> Vec<(NodeId, PublicKey)> {
        let Some(sealing) = &self.sealing else { return Vec::new() };
        let own = (self.id, sealing.identity.public());
        let neighbours = self.links.iter().filter_map(|l| Some((l.neighbour, l.key?)));
        sealing.known.iter().copied().chain(neighbours).chain([own]).collect()
    }

    /// Checks constraints that involve more than a single value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if u16::try_from(self.links.len()).is_err() {
            return Err(ConfigError::TooManyLinks(self.links.len()));
        }
        let ids = self.links.iter().map(|l| l.neighbour).chain([self.id]);
        if let Some(id) = ids.into_iter().find(|id| !id.is_nodes()) {
            return Err(ConfigError::ReservedId(id));
        }
        for (i, link) in self.links.iter().enumerate() {
            let earlier = &self.links[..i];
            let same = |l: &&link::Config| l.neighbour == link.neighbour && l.path == link.path;
            if link.neighbour == self.id {
                return Err(ConfigError::LinkToSelf(self.id));
            }
            if earlier.iter().any(|l| same(&l)) {
                return Err(ConfigError::SameLink(link.neighbour, link.path.clone()));
            }
            let index = |l: &link::Config| ReceiverIndex::derived(l.neighbour, self.id, &l.path);
            if let Some(l) = earlier.iter().find(|l| index(l) == index(link)) {
                let (a, b) = (l.neighbour, link.neighbour);
                return Err(ConfigError::IndexCollision(a, b, link.path.clone()));
            }
            let alike = |l: &&link::Config| {
                l.neighbour == link.neighbour && path_number(&l.path) == path_number(&link.path)
            };
            if earlier.iter().any(|l| alike(&l)) {
                let (a, path) = (link.neighbour, link.path.clone());
                return Err(ConfigError::IndexCollision(a, a, path));
            }
            if link.path.len() > MAX_PATH {
                return Err(ConfigError::LongPath(link.neighbour, link.path.clone()));
            }
            link.check().map_err(|what| ConfigError::OutOfRange(link.neighbour, what))?;
        }
        if let Some(sealing) = &self.sealing {
            sealing.unconfigured_peer.check().map_err(ConfigError::UnconfiguredPeerOutOfRange)?;
        }
        self.check_keys()?;
        trunk::check(self.id, &self.trunks)?;
        self.streams.check().map_err(ConfigError::Streams)?;
        let known = |via| self.links.iter().any(|l| l.neighbour == via);
        match self.routes.iter().find(|r| !known(r.via)) {
            Some(route) => Err(ConfigError::NoSuchNeighbour(route.via)),
            None => Ok(()),
        }
    }
}

impl Config {
    /// Checks that each node has one key, and each key one node.
    fn check_keys(&self) -> Result<(), ConfigError> {
        let (mut keys, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        for (node, key) in self.known_keys() {
            if keys.insert(node, key).is_some_and(|other| other != key) {
                return Err(ConfigError::TwoKeys(node));
            }
            match nodes.insert(key, node) {
                Some(other) if other != node => return Err(ConfigError::OneKey(other, node)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl link::Config {
    /// Checks that each setting is within its range; the error names the one that is not.
    pub fn check(&self) -> Result<(), &'static str> {
        let range = |what, ok: bool| if ok { Ok(()) } else { Err(what) };
        let realtime::Config { retransmit_ratio, recovery_budget, bytes, packets, .. } =
            self.realtime;
        range("mtu: 576 to 9000 bytes", link::Config::MTUS.contains(&self.mtu))?;
        range("dscp: 0 to 63", self.dscp <= 63)?;
        range("penalty: 0 to 5 s", self.penalty <= link::Config::MAX_PENALTY)?;
        let half_life = Duration::from_secs(1)..=Duration::from_secs(3_600);
        let damped = self.damping.is_zero() || half_life.contains(&self.damping);
        range("[routing] damping: 1 s to 1 h, or 0 s for none", damped)?;
        range("rate: more than 0", self.rate.is_none_or(|r| r.as_bps() > 0))?;
        range("[realtime] retransmit_ratio: 0 to 1", (0.0..=1.0).contains(&retransmit_ratio))?;
        range("[realtime] recovery_budget: 0 to 1", (0.0..=1.0).contains(&recovery_budget))?;
        // A queue smaller than a packet would never have room for a waiting one.
        let memory = self.mtu.max(4 << 10)..=1 << 30;
        range("[realtime] memory: 4 KiB, or `mtu` if that is more, to 1 GiB", {
            memory.contains(&bytes)
        })?;
        range("[realtime] packets: 16 to 32768", (16..=1 << 15).contains(&packets))?;
        range("[best_effort] memory: 4 KiB, or `mtu` if that is more, to 1 GiB", {
            memory.contains(&self.best_effort.bytes)
        })?;
        range("[reliable] memory: 4 KiB, or `mtu` if that is more, to 1 GiB", {
            memory.contains(&self.reliable.bytes)
        })?;
        let wait = |wait: Duration| (1..=10_000).contains(&wait.as_millis());
        range("[realtime] max_wait: 1 ms to 10 s", wait(self.realtime.max_wait))?;
        range("[best_effort] max_wait: 1 ms to 10 s", wait(self.best_effort.max_wait))?;
        range("[hello] interval: 20 ms or more", self.liveness.interval.as_millis() >= 20)?;
        range("[hello] dead_after: three times `interval` or more, and 1 s unless given", {
            self.liveness.dead_after >= 3 * self.liveness.interval
        })
    }
}

/// Reason for rejecting a [`Config`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There are more links than link numbers.
    #[error("{0} links are too many: a node has at most 65535")]
    TooManyLinks(usize),
    /// The id is reserved, so no node may have it.
    #[error("{0} is not a node id: ids are 1 to 4294967295")]
    ReservedId(NodeId),
    /// The neighbour of a link is the node itself.
    #[error("node {0} has a link to itself: give the neighbour's id, not its own")]
    LinkToSelf(NodeId),
    /// Two links have the same neighbour and path.
    #[error("two links to neighbour {0} have the same path \"{1}\": name their paths differently")]
    SameLink(NodeId, String),
    /// Two links have the same receiver index by chance.
    #[error(
        "the links to neighbours {0} and {1} cannot be told apart on the wire: rename path \"{2}\""
    )]
    IndexCollision(NodeId, NodeId, String),
    /// A setting of the link to this neighbour is out of range.
    #[error("link to neighbour {0}: out of range ({1})")]
    OutOfRange(NodeId, &'static str),
    /// A setting of the links to unconfigured peers is out of range.
    #[error("out of range for links without a [[link]] ({0})")]
    UnconfiguredPeerOutOfRange(&'static str),
    /// A path label is longer than a handshake carries.
    #[error("the path \"{1}\" to neighbour {0} is too long: a path has at most {MAX_PATH} bytes")]
    LongPath(NodeId, String),
    /// A node is given two different keys.
    #[error("node {0} is given two different keys: keep what `trunkline pubkey` prints there")]
    TwoKeys(NodeId),
    /// Two nodes have the same key.
    #[error(
        "nodes {0} and {1} are given the same key: give each what `trunkline pubkey` prints there"
    )]
    OneKey(NodeId, NodeId),
    /// A route leads through a node that is not a neighbour.
    #[error("a route goes via node {0}, which no link leads to: add the link or correct the route")]
    NoSuchNeighbour(NodeId),
    /// The settings of a trunk are invalid.
    #[error(transparent)]
    Trunk(#[from] trunk::ConfigError),
    /// The settings of streams are invalid.
    #[error("{0}")]
    Streams(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_its_error() {
        let link = |n| link::Config::new(NodeId(n));
        let with = |links: Vec<link::Config>| Config { links, ..Config::new(NodeId(1)) };
        assert_eq!(with(vec![link(2), link(3)]).validate(), Ok(()));
        assert_eq!(with(vec![link(1)]).validate(), Err(ConfigError::LinkToSelf(NodeId(1))));
        let reserved = Err(ConfigError::ReservedId(NodeId::NONE));
        assert_eq!(with(vec![link(0)]).validate(), reserved);
        assert_eq!(Config::new(NodeId::NONE).validate(), reserved);
        assert_eq!(with(vec![link(u32::MAX)]).validate(), Ok(()));
        let twice = with(vec![link(2), link(2)]);
        assert!(matches!(twice.validate(), Err(ConfigError::SameLink(..))));
        let mut paths = twice;
        paths.links[1].path = "backup".into();
        assert_eq!(paths.validate(), Ok(()));
        paths.links[1].mtu = 100;
        assert!(
            matches!(paths.validate(), Err(ConfigError::OutOfRange(_, why)) if why.contains("mtu"))
        );
        paths.links[1].mtu = 4_500;
        paths.links[1].best_effort.bytes = 4_500;
        assert_eq!(paths.validate(), Ok(()));
        paths.links[1].best_effort.bytes = 4_499;
        assert!(matches!(
            paths.validate(),
            Err(ConfigError::OutOfRange(_, why)) if why.starts_with("[best_effort] memory: 4 KiB, or")
        ));
        paths.links[1].mtu = 1_280;
        paths.links[1].path = "p".repeat(63);
        assert_eq!(paths.validate(), Ok(()));
        paths.links[1].path += "p";
        assert!(matches!(paths.validate(), Err(ConfigError::LongPath(NodeId(2), _))));
        let mut alone = with(vec![]);
        let mut sealing = Sealing::new(crate::identity::Identity::from_secret(&[1; 32]));
        sealing.unconfigured_peer.liveness.interval = Duration::ZERO;
        alone.sealing = Some(sealing);
        assert!(matches!(alone.validate(), Err(ConfigError::UnconfiguredPeerOutOfRange(_))));
        let key = |n| crate::identity::Identity::from_secret(&[n; 32]).public();
        let mut sealed = with(vec![link(2), link(3)]);
        sealed.sealing = Some(Sealing::new(crate::identity::Identity::from_secret(&[1; 32])));
        sealed.links[0].key = Some(key(2));
        assert_eq!(sealed.validate(), Ok(()));
        sealed.links[1].key = Some(key(1));
        assert_eq!(sealed.validate(), Err(ConfigError::OneKey(NodeId(3), NodeId(1))));
        sealed.links[1].key = Some(key(3));
        let known = |node, n| vec![(NodeId(node), key(n))];
        for (node, n, result) in [(2, 2, Ok(())), (2, 9, Err(ConfigError::TwoKeys(NodeId(2))))] {
            sealed.sealing.as_mut().unwrap().known = known(node, n);
            assert_eq!(sealed.validate(), result);
        }
        let lost = Config {
            routes: vec![StaticRoute { to: None, via: NodeId(9), onward: Duration::ZERO }],
            ..with(vec![link(2)])
        };
        assert_eq!(lost.validate(), Err(ConfigError::NoSuchNeighbour(NodeId(9))));
    }
}
