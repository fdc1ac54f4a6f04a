//! `[overlay]`, `[routing]` and the keys of `[node]`: who the node is, whom it
//! believes, and where packets go.

use crate::keys::{self, KeyFileError};
use crate::units::Span;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::path::{Path, PathBuf};
use toml::Spanned;
use trunkline_overlay::identity::{Certificate, Identity, KeyError, PublicKey, Trust};
use trunkline_overlay::link;
use trunkline_overlay::monitor::HALF_LIFE;
use trunkline_overlay::node::{self as overlay, Routing, Sealing};
use trunkline_overlay::route::{CostModel, Formula, Limits};
use trunkline_overlay::wire::{Metric, NodeId};

/// Links with certified nodes that no `[[link]]` names, unless the file says:
/// an overlay of the paper's size, and a bound on what their queues may hold.
const NEWCOMERS: u16 = 32;

/// `[overlay]`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct OverlaySection {
    keys: Vec<Key>,
    revoked: Vec<Key>,
    unconfigured_peers: Option<u16>,
}

/// `[[known]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSection {
    node: u32,
    key: Key,
}

impl KnownSection {
    /// Whose key it is.
    pub fn node(&self) -> u32 {
        self.node
    }
}

/// `[routing]`.
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
    /// Half-life of what is held against a link that fails.
    pub damping: Span,
}

impl Default for RoutingSection {
    fn default() -> RoutingSection {
        let cost = CostModel::default();
        RoutingSection {
            enabled: true,
            metric: Metric::ExpectedLatency,
            formula: FormulaName::Daemon,
            deadline: Span(cost.deadline),
            detection: Span(cost.detection),
            max_nodes: Limits::default().max_nodes,
            damping: Span(HALF_LIFE),
        }
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum FormulaName {
    Daemon,
    Paper,
}

impl RoutingSection {
    /// The settings, if packets are routed by link state.
    ///
    /// # Errors
    ///
    /// The key that is out of its range, and the range.
    pub fn settings(&self) -> Result<Option<Routing>, &'static str> {
        if !(2..=10_000).contains(&self.max_nodes) {
            return Err("[routing] max_nodes is out of range (2 to 10000)");
        }
        let formula = match self.formula {
            FormulaName::Daemon => Formula::Measured,
            FormulaName::Paper => Formula::Paper,
        };
        let (deadline, detection) = (self.deadline.0, self.detection.0);
        let cost = CostModel { formula, detection, deadline };
        cost.check()?;
        let limits = Limits { max_nodes: self.max_nodes, ..Limits::default() };
        Ok(self.enabled.then_some(Routing { metric: self.metric, cost, limits }))
    }
}

/// A public key as it is written.
#[derive(Clone, Copy)]
pub struct Key(pub PublicKey);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Key, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map(Key).map_err(|why| match why {
            // Base64 has no dot.
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
    /// Its identity.
    pub key: PathBuf,
    /// The operator's word for it.
    pub certificate: Option<PathBuf>,
    /// What of the sealing the configuration itself says.
    pub believed: Believed,
}

/// Whom a node believes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Believed {
    trust: Trust,
    known: Vec<(NodeId, PublicKey)>,
    unconfigured_peers: u16,
}

/// What is secret about a node: a recording keeps it, so that it can be
/// replayed.
#[derive(Clone)]
pub struct Secrets {
    /// Its key.
    pub identity: Identity,
    /// What it shows.
    pub certificate: Option<Certificate>,
}

impl OverlaySection {
    /// Whom the node believes.
    pub fn believed(&self, known: &[Spanned<KnownSection>]) -> Believed {
        let keys = |keys: &[Key]| keys.iter().map(|key| key.0).collect::<Vec<_>>();
        let trust = Trust { overlay_keys: keys(&self.keys), revoked: keys(&self.revoked) };
        let most = if self.keys.is_empty() { 0 } else { NEWCOMERS };
        Believed {
            unconfigured_peers: self.unconfigured_peers.unwrap_or(most),
            known: known.iter().map(Spanned::get_ref).map(|k| (NodeId(k.node), k.key.0)).collect(),
            trust,
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        let OverlaySection { keys, revoked, unconfigured_peers } = self;
        keys.is_empty() && revoked.is_empty() && unconfigured_peers.is_none()
    }

    /// Whether certificates are believed at all.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }
}

impl KeyFiles {
    /// Reads them.
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

    /// What the node is told; `template` has the settings of links that no
    /// `[[link]]` names.
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

/// Whether `key` is what is to be secret of `identity`: each is 32 bytes, and so
/// either may have been taken for the other.
fn is_secret(identity: &Identity, key: &PublicKey) -> bool {
    *identity.secret_text() == key.to_string()
}

/// Whether `[node] key` is the text of a key where a file's name belongs.
pub fn is_key_itself(path: &Path) -> bool {
    let text = path.to_str().unwrap_or_default();
    !matches!(text.parse::<PublicKey>(), Err(KeyError::NotBase64))
}

/// What is wrong with the keys that a sealed node is given, now that its own is
/// known: the key that is meant, unless the message names it as `[section] key`; and why.
pub fn check_keys(config: &overlay::Config) -> Result<(), (Option<PublicKey>, &'static str)> {
    let Some(Sealing { identity, trust, known, .. }) = &config.sealing else { return Ok(()) };
    let own = identity.public();
    if trust.revoked.contains(&own) {
        let what = "[overlay] revoked has this node's own key, so none that is told so believes \
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

/// Checks that each link has a way to know its neighbour.
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
