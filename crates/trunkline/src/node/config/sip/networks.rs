//! `[[sip.network]]`: rules for the peers of some networks.

use super::{Network, Wrong};
use crate::node::config::places::no_id;
use crate::units::Span;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;
use trunkline_gateway as gateway;
use trunkline_overlay::wire::NodeId;

/// An entry of `trust`: a network, or a gateway at an address with its node.
pub(super) struct Trusted {
    pub network: Network,
    node: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustedGateway {
    at: Network,
    node: u32,
}

impl Trusted {
    /// The network and its node, if the file gives one.
    pub fn known(&self) -> Option<(IpNet, NodeId)> {
        Some((self.network.0, NodeId(self.node?)))
    }
}

impl<'de> Deserialize<'de> for Trusted {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Trusted, D::Error> {
        struct Entry;
        impl<'de> de::Visitor<'de> for Entry {
            type Value = Trusted;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a network in quotes, or { at = \"192.0.2.2\", node = 2 }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Trusted, E> {
                let network = text.parse().map_err(E::custom)?;
                Ok(Trusted { network, node: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Trusted, A::Error> {
                let TrustedGateway { at: network, node } =
                    Deserialize::deserialize(de::value::MapAccessDeserializer::new(map))?;
                match no_id(node) {
                    Some(why) => Err(de::Error::custom(format!("{node} is not a node id: {why}"))),
                    None => Ok(Trusted { network, node: Some(node) }),
                }
            }
        }
        from.deserialize_any(Entry)
    }
}

/// Longest time in which sources may be learned: a peer has sent by then.
const MAX_LEARN: Duration = Duration::from_secs(60);

/// A `[[sip.network]]` section, before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkSection {
    name: String,
    networks: Vec<Network>,
    #[serde(default = "symmetric")]
    symmetric: bool,
    #[serde(default)]
    sources: Vec<Network>,
    #[serde(default)]
    relearn: Relearn,
    learn: Option<Spanned<Span>>,
}

fn symmetric() -> bool {
    true
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Relearn {
    #[default]
    Silent,
    Always,
    Never,
}

/// Time of learning in a `learn`, if it is within its bounds.
pub(super) fn learn(span: Option<&Spanned<Span>>) -> Result<Option<Duration>, Wrong> {
    let Some(span) = span else { return Ok(None) };
    let time = span.get_ref().0;
    match time > Duration::ZERO && time <= MAX_LEARN {
        true => Ok(Some(time)),
        false => Err((Some(span.span()), "`learn` is more than 0 and at most 60 s".to_owned())),
    }
}

/// Rules for all peers that are in no network with rules of its own.
pub(super) fn elsewhere(learn: Option<Duration>) -> gateway::Network {
    let usual = gateway::Network::default();
    gateway::Network { learn: learn.unwrap_or(usual.learn), ..usual }
}

/// Checks all sections, where `usual` has the rules of `[sip]`.
pub(super) fn checked(
    sections: Vec<Spanned<NetworkSection>>,
    usual: &gateway::Network,
) -> Result<Vec<Arc<gateway::Network>>, Wrong> {
    let mut all: Vec<Arc<gateway::Network>> = Vec::new();
    for section in sections {
        let span = Some(section.span());
        let section = section.into_inner();
        let plain =
            |networks: Vec<Network>| networks.into_iter().map(|network| network.0).collect();
        let rules = gateway::Network {
            learn: learn(section.learn.as_ref())?.unwrap_or(usual.learn),
            name: section.name,
            networks: plain(section.networks),
            symmetric: section.symmetric,
            sources: plain(section.sources),
            relearn: match section.relearn {
                Relearn::Silent => gateway::Relearn::Silent,
                Relearn::Always => gateway::Relearn::Always,
                Relearn::Never => gateway::Relearn::Never,
            },
        };
        if rules.networks.is_empty() {
            return Err((
                span,
                "`networks` is empty: name the peers that the rules are for".into(),
            ));
        }
        for other in &all {
            if other.name == rules.name {
                return Err((span, format!("there are two networks named \"{}\"", rules.name)));
            }
            if let Some(both) = rules.networks.iter().find(|n| other.networks.contains(n)) {
                return Err((span, format!("{both} is in the network \"{}\" already", other.name)));
            }
        }
        all.push(Arc::new(rules));
    }
    Ok(all)
}
