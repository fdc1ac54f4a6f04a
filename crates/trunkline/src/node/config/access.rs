//! `[access]` and `[[client]]`: rights to bind and send, sources that are accepted, and transit.

use super::places::no_id;
use super::sealing::Key;
use crate::units::Rate;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::ops::RangeInclusive;
use trunkline_base::Bitrate;
use trunkline_overlay::identity::PublicKey;
use trunkline_overlay::node::{Access, Nodes, Rights};
use trunkline_overlay::wire::NodeId;

/// The `[access]` section: rules of the node.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSection {
    transit: NodeSet,
    from: NodeSet,
    bind: Ports,
    to: NodeSet,
    rate: Option<Rate>,
}

impl AccessSection {
    /// Rate at which the applications of each user may send.
    pub fn rate(&self) -> Option<Bitrate> {
        self.rate.map(|rate| rate.0)
    }

    /// Access rules of the section.
    pub fn rules(&self) -> Access {
        Access {
            transit: self.transit.0.clone(),
            from: self.from.0.clone(),
            local: Rights { bind: self.bind.0.clone(), to: self.to.0.clone() },
            clients: Vec::new(),
        }
    }
}

/// A `[[client]]` section: an application on another host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSection {
    name: String,
    key: Key,
    #[serde(default)]
    bind: Ports,
    #[serde(default)]
    to: NodeSet,
}

/// Identity of a client; its rights are at the same index in [`Access::clients`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownClient {
    /// Name of the client in messages.
    pub name: String,
    /// Public key that identifies the client.
    pub key: PublicKey,
}

impl ClientSection {
    /// Identity of the client; fails if it equals one of `earlier`.
    pub fn known(&self, earlier: &[KnownClient]) -> Result<KnownClient, String> {
        let ClientSection { name, key: Key(key), .. } = self;
        if let Some(other) = earlier.iter().find(|c| c.name == *name || c.key == *key) {
            return Err(format!(
                "[[client]] \"{name}\" has the name or the key of [[client]] \"{}\": give each \
                 its own (`trunkline keygen`)",
                other.name
            ));
        }
        if earlier.len() >= MAX_CLIENTS {
            return Err(format!("more than {MAX_CLIENTS} [[client]] sections"));
        }
        Ok(KnownClient { name: name.clone(), key: *key })
    }

    /// Rights of the client.
    pub fn rights(&self) -> Rights {
        Rights { bind: self.bind.0.clone(), to: self.to.0.clone() }
    }
}

/// Maximum number of clients: as many as there are client numbers.
const MAX_CLIENTS: usize = 1 << 16;

/// `"all"`, `"none"` or a list of node ids.
#[derive(Default)]
pub struct NodeSet(pub Nodes);

impl<'de> Deserialize<'de> for NodeSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<NodeSet, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "\"all\", \"none\" or a list of node ids")]
        enum Written {
            Some(Vec<u32>),
            Word(Word),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            All,
            None,
        }
        Ok(NodeSet(match Written::deserialize(d)? {
            Written::Word(Word::All) => Nodes::All,
            Written::Word(Word::None) => Nodes::only([]),
            Written::Some(ids) => {
                if let Some((id, why)) = ids.iter().find_map(|&id| Some((id, no_id(id)?))) {
                    return Err(de::Error::custom(format!("{id} is not a node id: {why}")));
                }
                Nodes::only(ids.into_iter().map(NodeId))
            }
        }))
    }
}

/// A list of virtual ports and ranges, `[5000, "6000-6099"]`.
pub struct Ports(pub Box<[RangeInclusive<u16>]>);

impl Default for Ports {
    fn default() -> Ports {
        Ports(Rights::default().bind)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Ports, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a port (1 to 65535) or a range such as \"6000-6099\"")]
        enum Written {
            One(u16),
            Range(String),
        }
        let no_range = |text| {
            de::Error::custom(format!(
                "`{text}` is not a range of ports: write it as \"6000-6099\""
            ))
        };
        let range = |written| {
            let range = match written {
                Written::One(port) => port..=port,
                Written::Range(text) => parse_range(&text).ok_or_else(|| no_range(text))?,
            };
            // If the range only begins with it, there is nothing wrong.
            match *range.end() {
                0 => Err(de::Error::custom(
                    "port 0 can't be bound: a request for it gets a free port of this list; name \
                     ports from 1 on, or leave the line out for all",
                )),
                _ => Ok(range),
            }
        };
        let ranges: Result<_, D::Error> =
            Vec::<Written>::deserialize(d)?.into_iter().map(range).collect();
        Ok(Ports(ranges?))
    }
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Access, String> {
        let section: AccessSection = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        Ok(section.rules())
    }

    #[test]
    fn rules_as_they_are_written() {
        assert_eq!(read(""), Ok(Access::default()));
        let rules = read("transit = \"none\"\nfrom = [3, 2]\nbind = [7, \"10 - 12\"]").unwrap();
        assert_eq!(rules.transit, Nodes::only([]));
        assert_eq!(rules.from, Nodes::only([NodeId(2), NodeId(3)]));
        assert_eq!(rules.local, Rights { bind: [7..=7, 10..=12].into(), to: Nodes::All });
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        let wrong = |text| read(text).unwrap_err();
        assert!(wrong("transit = \"some\"").contains("\"all\", \"none\" or a list of node ids"));
        assert!(wrong("bind = [\"12-10\"]").contains("`12-10` is not a range of ports"));
        assert!(wrong("bind = [70000]").contains("a port (1 to 65535)"));
        for zero in ["bind = [0]", "bind = [5, \"0-0\"]"] {
            assert!(wrong(zero).contains("port 0 can't be bound: a request for it gets"), "{zero}");
        }
        assert!(read("bind = [\"0-65535\"]").is_ok() && read("bind = []").is_ok());
        assert!(wrong("to = [3, 0]").contains("0 is not a node id: ids begin with 1"));
        assert!(
            wrong("rate = 5").contains("write a number above 0 and a unit"),
            "{}",
            wrong("rate = 5")
        );
        assert!(wrong("rate = \"0 Mbit/s\"").contains("zero, not a rate"));
        assert!(wrong("transt = \"all\"").contains("unknown field `transt`"));
    }
}
