//! `[overlay]`, `[routing]` and the keys of `[node]`: the node's identity, its trust, and its
//! routing.

use crate::keys::{self, KeyFileError};
use crate::units::Span;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::path::{Path, PathBuf};
use trunkline_overlay::identity::{Certificate, Identity, KeyError, PublicKey, Trust};
use trunkline_overlay::link;
use trunkline_overlay::monitor::HALF_LIFE;
use trunkline_overlay::node::{self as overlay, Routing, Sealing};
use trunkline_overlay::route::{CostModel, Formula, Limits};
use trunkline_overlay::wire::{Metric, NodeId};

/// Default number of links with certified nodes that have no `[[link]]` section: an overlay of the
/// paper's size, and a bound on the memory of their queues.
const UNCONFIGURED_PEERS: u16 = 32;

/// The `[overlay]` section: trusted keys, revocations and unconfigured peers.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct OverlaySection {
    keys: Vec<Key>,
    revoked: Vec<Key>,
    unconfigured_peers: Option<u16>,
}

/// A `[[known]]` section: another node and its public key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSection {
    #[serde(deserialize_with = "super::number::id")]
    node: u32,
    key: Key,
}

impl KnownSection {
    /// Node that the key belongs to.
    pub fn node(&self) -> u32 {
        self.node
    }
}

/// The `[routing]` section: settings of link-state routing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingSection {
    enabled: bool,
    #[serde(with = "crate::names")]
    metric: Metric,
    formula: FormulaName,
    deadline: Span,
    detection: Span,
    max_nodes: usize,
    /// Half-life of the penalty of a link that failed.
    pub damping: Span,
}

impl Default for RoutingSection {
    fn default() -> RoutingSection {
        let cost = CostModel::default();
        RoutingSection {
            enabled: true,
            metric: Metric::ExpectedLatency,
            formula: FormulaName::Measured,
            deadline: Span(cost.deadline),
            detection: Span(cost.detection),
            max_nodes: Limits::default().max_nodes,
            damping: Span(HALF_LIFE),
        }
    }
}

/// A tenth of a millisecond, in nanoseconds.
const TENTH: u32 = 100_000;

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum FormulaName {
    Measured,
    Paper,
}

impl RoutingSection {
    /// Settings of link-state routing, or `None` if it is off.
    ///
    /// # Errors
    ///
    /// The key that is out of its range, and the range.
    pub fn settings(&self) -> Result<Option<Routing>, &'static str> {
        if !(2..=10_000).contains(&self.max_nodes) {
            return Err("[routing] max_nodes is out of range (2 to 10000)");
        }
        let formula = match self.formula {
            FormulaName::Measured => Formula::Measured,
            FormulaName::Paper => Formula::Paper,
        };
        let (deadline, detection) = (self.deadline.0, self.detection.0);
        let cost = CostModel { formula, detection, deadline };
        cost.check()?;
        // Costs are in tenths of a millisecond: the rest would be dropped.
        if deadline.subsec_nanos() % TENTH != 0 {
            return Err("[routing] deadline must be a multiple of 0.1 ms");
        }
        if detection.subsec_nanos() % TENTH != 0 {
            return Err("[routing] detection must be a multiple of 0.1 ms");
        }
        let limits = Limits { max_nodes: self.max_nodes, ..Limits::default() };
        Ok(self.enabled.then_some(Routing { metric: self.metric, cost, limits }))
    }
}

/// A public key as written in a file.
#[derive(Clone, Copy)]
pub struct Key(pub PublicKey);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Key, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map(Key).map_err(|why| match why {
            // Base64 contains no dot.
            KeyError::NotBase64 if text.starts_with('/') || text.contains('.') => {
                de::Error::custom(format!(
                    "a public key belongs here, not the name of a file: write what `trunkline \
                     pubkey {text}` prints"
                ))
            }
            why => de::Error::custom(why),
        })
    }
}

/// The files that a sealed node reads at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFiles {
    /// File with the node's identity (secret key).
    pub key: PathBuf,
    /// File with the certificate that the operator issued for it.
    pub certificate: Option<PathBuf>,
    /// Trust settings from the configuration file itself.
    pub believed: Believed,
}

/// Keys and certificates that a node trusts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Believed {
    trust: Trust,
    known: Vec<(NodeId, PublicKey)>,
    unconfigured_peers: u16,
}

/// Secrets of a node. A recording keeps them, so that it can be replayed.
#[derive(Clone)]
pub struct Secrets {
    /// Identity with the secret key.
    pub identity: Identity,
    /// Certificate that the node presents.
    pub certificate: Option<Certificate>,
}

impl OverlaySection {
    /// Trust settings of this section, with the keys of `known`.
    pub fn believed(&self, known: &[KnownSection]) -> Believed {
        let keys = |keys: &[Key]| keys.iter().map(|key| key.0).collect::<Vec<_>>();
        let trust = Trust { overlay_keys: keys(&self.keys), revoked: keys(&self.revoked) };
        let most = if self.keys.is_empty() { 0 } else { UNCONFIGURED_PEERS };
        Believed {
            unconfigured_peers: self.unconfigured_peers.unwrap_or(most),
            known: known.iter().map(|k| (NodeId(k.node), k.key.0)).collect(),
            trust,
        }
    }

    /// Whether the section is empty.
    pub fn is_empty(&self) -> bool {
        let OverlaySection { keys, revoked, unconfigured_peers } = self;
        keys.is_empty() && revoked.is_empty() && unconfigured_peers.is_none()
    }

    /// Whether any certificates are trusted.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }
}

impl KeyFiles {
    /// Reads the identity and the certificate of `node` from the files.
    pub fn read(&self, node: NodeId) -> Result<Secrets, KeyFileError> {
        let identity = keys::read_identity(&self.key)?;
        let Some(path) = &self.certificate else {
            return Ok(Secrets { identity, certificate: None });
        };
        let certificate = keys::read_certificate(path)?;
        let wrong = |what| Err(KeyFileError::Certificate { path: path.clone(), what });
        if certificate.key() != identity.public() {
            let key = self.key.display();
            if is_secret(&identity, &certificate.key()) {
                return wrong(format!(
                    "is for the key in {key}, but that is the public key: [node] key is to name \
                     the file with the secret one, which `trunkline keygen` made"
                ));
            }
            return wrong(format!("is for another key than that of {key}: certify this one"));
        }
        if certificate.node() != node {
            let other = certificate.node();
            return wrong(format!("is for node {other}, and [node] id is {node}"));
        }
        if certificate.verify(&self.believed.trust.overlay_keys, 0).is_err() {
            return wrong("is signed by none of [overlay] keys".into());
        }
        Ok(Secrets { identity, certificate: Some(certificate) })
    }

    /// Sealing configuration of the node; `template` has the settings of links without a `[[link]]`
    /// section.
    pub fn sealing(&self, secrets: &Secrets, template: link::Config) -> Sealing {
        let Believed { trust, known, unconfigured_peers } = self.believed.clone();
        let Secrets { identity, certificate } = secrets.clone();
        let unconfigured_peer = template;
        Sealing {
            certificate,
            trust,
            known,
            unconfigured_peers,
            unconfigured_peer,
            ..Sealing::new(identity)
        }
    }
}

/// Whether `key` is in fact the secret of `identity`: both are 32 bytes, so either may have been
/// mistaken for the other.
fn is_secret(identity: &Identity, key: &PublicKey) -> bool {
    *identity.secret_text() == key.to_string()
}

/// Whether `[node] key` is the text of a key instead of a file name.
pub fn is_key_itself(path: &Path) -> bool {
    let text = path.to_str().unwrap_or_default();
    !matches!(text.parse::<PublicKey>(), Err(KeyError::NotBase64))
}

/// Checks the keys configured for a sealed node, once its identity is known. An error is the
/// offending key, `None` if the message names it as `[section] key`, and the reason.
pub fn check_keys(config: &overlay::Config) -> Result<(), (Option<PublicKey>, &'static str)> {
    let Some(Sealing { identity, trust, known, .. }) = &config.sealing else { return Ok(()) };
    let own = identity.public();
    if trust.revoked.contains(&own) {
        let what = "[overlay] revoked has this node's own key, so no node with that list trusts \
                    it: give it another key (`trunkline keygen`), or take this one out";
        return Err((None, what));
    }
    let links = config.links.iter().filter_map(|link| link.key);
    let known = known.iter().map(|(_, key)| *key);
    let all = known.chain(links).chain(trust.overlay_keys.iter().chain(&trust.revoked).copied());
    match all.into_iter().find(|key| is_secret(identity, key)) {
        Some(secret) => Err((
            Some(secret),
            "a public key belongs here, and this is what the file that [node] key names holds: \
             write what `trunkline pubkey` prints where the other's key is; if that file holds \
             the secret key, it is none any more, so make another (`trunkline keygen`)",
        )),
        None => Ok(()),
    }
}

/// Checks that each link can authenticate its neighbour.
pub fn check_link(
    link: &link::Config,
    overlay: &OverlaySection,
    sealed: bool,
) -> Result<(), String> {
    let neighbour = link.neighbour;
    match (sealed, link.key) {
        (true, None) if !overlay.has_keys() => Err(format!(
            "the link to neighbour {neighbour} has no key: give `key` (what `trunkline pubkey` \
             prints there), or certify nodes and give [overlay] keys"
        )),
        (false, Some(_)) => Err(format!(
            "the link to neighbour {neighbour} has a key, but [node] is unsealed: a node is \
             sealed with all its neighbours or with none"
        )),
        _ => Ok(()),
    }
}
