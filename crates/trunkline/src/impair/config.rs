//! What the user writes, and the links it means.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IntoDeserializer, MapAccess, Visitor};
use trunkline_base::link_model::{Chain, InvalidModel, LinkModel, Loss, Queue};

use crate::units::{Fraction, Rate, Size, Span};

/// A configuration that cannot be run; each says what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or a key or value in it is not one of ours.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Neither a file nor a pair of ends.
    #[error("no link: give a configuration file, or --a and --b, or a [[link]] in the file")]
    NoLinks,
    /// A link's values do not go together.
    #[error("link {link}: {problem}")]
    Link {
        /// The link's name.
        link: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with a link.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Two links with one name would be one line in the ledger.
    #[error("the name is taken by an earlier link; choose another")]
    DuplicateName,
    /// Nobody to begin with.
    #[error("neither a nor b has a peer; give at least one, the other can be learned")]
    NoPeer,
    /// Burstiness of nothing.
    #[error("{direction}: burst needs loss; add loss, or remove burst")]
    BurstAlone {
        /// forward or reverse.
        direction: &'static str,
    },
    /// A chain that would not be used.
    #[error("{direction}: {key} needs burst; add burst, or remove {key}")]
    ChainAlone {
        /// forward or reverse.
        direction: &'static str,
        /// chain or spacing.
        key: &'static str,
    },
    /// Values out of range.
    #[error("{direction}: {source}")]
    Model {
        /// forward or reverse.
        direction: &'static str,
        /// The field, its value and its range.
        source: InvalidModel,
    },
}

/// A configuration that can be run.
#[derive(Debug)]
pub struct Config {
    /// Feeds every link's randomness.
    pub seed: u64,
    /// Most bytes of memory for packets under way, over all links.
    pub buffer: u64,
    /// In the order of the file.
    pub links: Vec<Link>,
}

/// One link: two ends, two directions.
#[derive(Debug)]
pub struct Link {
    /// As in the ledger.
    pub name: String,
    /// The two ends, a then b.
    pub ends: [End; 2],
    /// From a to b, then from b to a.
    pub directions: [Direction; 2],
}

/// The socket that faces a node, and where that node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The address to listen on, and to send to the node from.
    #[serde(deserialize_with = "address_text")]
    pub listen: SocketAddr,
    /// The node's own address; without one, the first sender is the node.
    #[serde(default, deserialize_with = "some_address_text")]
    pub peer: Option<SocketAddr>,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Direction {
    /// What happens to its packets.
    pub model: LinkModel,
    /// The stream of its random numbers.
    pub stream: u64,
}

/// The ends of a link and their names in messages and in the ledger.
pub const SIDES: [&str; 2] = ["a", "b"];
/// The directions, likewise.
pub const DIRECTIONS: [&str; 2] = ["forward", "reverse"];
/// Room for 32,768 packets.
const DEFAULT_BUFFER: Size = Size(64 << 20);
/// The usual distance between voice packets.
const DEFAULT_SPACING: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    buffer: Option<Size>,
    #[serde(default)]
    link: Vec<LinkText>,
}

/// A link as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkText {
    pub name: Option<String>,
    pub stream: Option<u64>,
    pub a: End,
    pub b: End,
    #[serde(default)]
    pub delay: PerDirection<Span>,
    #[serde(default)]
    pub jitter: PerDirection<Span>,
    #[serde(default)]
    pub rate: PerDirection<Rate>,
    #[serde(default)]
    pub queue: PerDirection<Limit>,
    #[serde(default)]
    pub loss: PerDirection<Fraction>,
    #[serde(default)]
    pub burst: PerDirection<Fraction>,
    #[serde(default)]
    pub chain: PerDirection<ChainKind>,
    #[serde(default)]
    pub spacing: PerDirection<Span>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The first mistake in it, with its place.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let file: File = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |s| s.start).min(text.len());
            let before = &text.as_bytes()[..at];
            let start_of_line = before.iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
            ConfigError::Syntax {
                path: path.to_owned(),
                line: 1 + before.iter().filter(|&&b| b == b'\n').count(),
                column: 1 + at - start_of_line,
                // Some parser messages have several lines; ours have one.
                message: error.message().replace('\n', ", "),
            }
        })?;
        Config::new(file.seed, file.buffer, file.link)
    }

    /// Checks links as they are written.
    ///
    /// # Errors
    ///
    /// The first link whose values do not go together.
    pub fn new(
        seed: u64,
        buffer: Option<Size>,
        links: Vec<LinkText>,
    ) -> Result<Config, ConfigError> {
        if links.is_empty() {
            return Err(ConfigError::NoLinks);
        }
        let mut names = BTreeSet::new();
        let links = links
            .into_iter()
            .zip(0u64..)
            .map(|(text, index)| {
                let name = text.name.clone().unwrap_or_else(|| (index + 1).to_string());
                let checked = if names.insert(name.clone()) {
                    text.check(index)
                } else {
                    Err(Problem::DuplicateName)
                };
                match checked {
                    Ok(directions) => Ok(Link { name, ends: [text.a, text.b], directions }),
                    Err(problem) => Err(ConfigError::Link { link: name, problem }),
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(Config { seed, buffer: buffer.unwrap_or(DEFAULT_BUFFER).0, links })
    }
}

impl LinkText {
    fn check(&self, index: u64) -> Result<[Direction; 2], Problem> {
        if self.a.peer.is_none() && self.b.peer.is_none() {
            return Err(Problem::NoPeer);
        }
        // Directions of one link must not lose in step, links with one stream must.
        let stream = self.stream.unwrap_or(index).wrapping_mul(2);
        Ok([
            Direction { model: self.model(0)?, stream },
            Direction { model: self.model(1)?, stream: stream | 1 },
        ])
    }

    /// The model of direction `d`.
    fn model(&self, d: usize) -> Result<LinkModel, Problem> {
        let direction = DIRECTIONS[d];
        let (chain, spacing) = (self.chain.0[d], self.spacing.0[d]);
        let loss = match (self.loss.0[d], self.burst.0[d]) {
            (None, Some(_)) => return Err(Problem::BurstAlone { direction }),
            (_, None) if chain.is_some() => {
                return Err(Problem::ChainAlone { direction, key: "chain" });
            }
            (_, None) if spacing.is_some() => {
                return Err(Problem::ChainAlone { direction, key: "spacing" });
            }
            (None, None) => Loss::None,
            (Some(p), None) => Loss::Bernoulli { p: p.0 },
            (Some(p), Some(b)) => Loss::Burst {
                p: p.0,
                b: b.0,
                chain: match chain.unwrap_or(ChainKind::PerPacket) {
                    ChainKind::PerPacket => Chain::PerPacket,
                    ChainKind::Continuous => {
                        Chain::Continuous { spacing: spacing.map_or(DEFAULT_SPACING, |s| s.0) }
                    }
                },
            },
        };
        let model = LinkModel {
            delay: self.delay.0[d].unwrap_or_default().0,
            jitter: self.jitter.0[d].unwrap_or_default().0,
            loss,
            rate: self.rate.0[d].map(|r| r.0),
            queue: self.queue.0[d].map_or(Queue::default(), |l| l.0),
        };
        match model.validate() {
            Ok(()) => Ok(model),
            Err(source) => Err(Problem::Model { direction, source }),
        }
    }
}

/// A value for both directions, or `{ forward = …, reverse = … }`, of which
/// either may be left out. Forward is from a to b.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerDirection<T>(pub [Option<T>; 2]);

impl<T> Default for PerDirection<T> {
    fn default() -> Self {
        PerDirection([None, None])
    }
}

impl<T: Copy> PerDirection<T> {
    /// `value` for both directions.
    pub fn both(value: Option<T>) -> Self {
        PerDirection([value, value])
    }
}

impl<'de, T: Deserialize<'de> + Copy> Deserialize<'de> for PerDirection<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, bound = "T: Deserialize<'de>")]
        struct Pair<T> {
            forward: Option<T>,
            reverse: Option<T>,
        }

        struct Either<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Copy> Visitor<'de> for Either<T> {
            type Value = PerDirection<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or { forward = value, reverse = value }")
            }

            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(|t| PerDirection::both(Some(t)))
            }

            fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(|t| PerDirection::both(Some(t)))
            }

            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(|t| PerDirection::both(Some(t)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let pair = Pair::<T>::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PerDirection([pair.forward, pair.reverse]))
            }
        }

        deserializer.deserialize_any(Either(std::marker::PhantomData))
    }
}

/// A queue's limit: `"100 packets"` or a size such as `"64 kB"`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit(pub Queue);

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let limit = match text.trim().trim_end_matches('s').strip_suffix("packet") {
            Some(number) => number.trim().parse().ok().map(Queue::Packets),
            None => (text.parse::<Size>().ok())
                .and_then(|size| usize::try_from(size.0).ok())
                .map(Queue::Bytes),
        };
        limit.map(Limit).ok_or_else(|| LimitError(text.to_owned()))
    }
}

impl TryFrom<String> for Limit {
    type Error = LimitError;

    fn try_from(text: String) -> Result<Limit, LimitError> {
        text.parse()
    }
}

/// Text that is not a queue's limit.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is not a queue limit: write \"100 packets\" or a size, as in \"64 kB\"")]
pub struct LimitError(String);

/// What moves the chain of bursty loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ChainKind {
    /// One step per packet
    PerPacket,
    /// Time: outages that do not depend on the packets
    Continuous,
}

impl FromStr for End {
    type Err = String;

    /// `LISTEN=PEER`, or `LISTEN` alone.
    fn from_str(text: &str) -> Result<End, String> {
        match text.split_once('=') {
            Some((listen, peer)) => {
                Ok(End { listen: address(listen)?, peer: Some(address(peer)?) })
            }
            None => Ok(End { listen: address(text)?, peer: None }),
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| {
        format!(
            "\"{text}\" is not an address: write an IP address and a port, \
             as in \"127.0.0.1:5001\" or \"[::1]:5001\""
        )
    })
}

fn address_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    address(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn some_address_text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<SocketAddr>, D::Error> {
    address_text(d).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: &str = "a = { listen = \"127.0.0.1:5001\", peer = \"127.0.0.1:7003\" }\n\
                        b = { listen = \"[::1]:5002\" }\n";

    fn parse(text: &str) -> Result<Config, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        Config::new(file.seed, file.buffer, file.link).map_err(|e| e.to_string())
    }

    fn link(keys: &str) -> Result<Config, String> {
        parse(&format!("[[link]]\nname = \"C-D\"\n{ENDS}{keys}"))
    }

    #[test]
    fn keys_hold_for_both_directions_or_for_one() {
        let config = link(
            "delay = \"10ms\"\nloss = { forward = \"5%\" }\nburst = { forward = 0.25 }\n\
             rate = { reverse = \"1 Mbit/s\" }\nqueue = \"64 kB\"\nstream = 7",
        )
        .unwrap();
        let [forward, reverse] = &config.links[0].directions;
        let ms = Duration::from_millis;
        assert_eq!((forward.model.delay, reverse.model.delay), (ms(10), ms(10)));
        let burst = Loss::Burst { p: 0.05, b: 0.25, chain: Chain::PerPacket };
        assert_eq!((&forward.model.loss, &reverse.model.loss), (&burst, &Loss::None));
        assert_eq!(forward.model.rate, None);
        assert_eq!(reverse.model.rate.map(|r| r.as_bps()), Some(1_000_000));
        assert_eq!(forward.model.queue, Queue::Bytes(64_000));
        assert_eq!((forward.stream, reverse.stream), (14, 15));
        assert_eq!(config.links[0].ends[1].peer, None);

        let config = link("loss = 0.1\nburst = 0.5\nchain = \"continuous\"\nqueue = \"1 packet\"");
        let [forward, _] = &config.unwrap().links[0].directions;
        let chain = Chain::Continuous { spacing: ms(20) };
        assert_eq!(forward.model.loss, Loss::Burst { p: 0.1, b: 0.5, chain });
        assert_eq!(forward.model.queue, Queue::Packets(1));
    }

    #[test]
    fn every_mistake_is_named() {
        for (keys, says) in [
            ("los = 0.1", "unknown field `los`"),
            ("loss = 1.1", "expected a share from 0 to 1"),
            ("loss = { forwards = 0.1 }", "unknown field `forwards`"),
            ("delay = { forward = 10 }", "expected a length of time"),
            ("delay = \"10\"", "\"10\" is not a length of time"),
            ("queue = \"100\"", "\"100\" is not a queue limit"),
            ("burst = 0.5", "link C-D: forward: burst needs loss"),
            ("loss = 0.1\nchain = \"continuous\"", "link C-D: forward: chain needs burst"),
            ("loss = 0.1\nspacing = \"20ms\"", "link C-D: forward: spacing needs burst"),
            (
                "loss = { reverse = 0.9 }\nburst = 0.1",
                "link C-D: forward: burst needs loss; add loss, or remove burst",
            ),
            (
                "loss = 0.9\nburst = 0.1",
                "link C-D: forward: loss 0.9 is more than burst 0.1 allows",
            ),
            ("chain = \"both\"", "unknown variant `both`"),
            (&format!("[[link]]\nname = \"C-D\"\n{ENDS}"), "link C-D: the name is taken"),
        ] {
            let error = link(keys).unwrap_err();
            assert!(error.contains(says), "{keys}: {error}");
        }
        let name = "[[link]]\na = { listen = \"localhost:5\" }";
        assert!(parse(name).unwrap_err().contains("\"localhost:5\" is not an address: write"));
        assert!(parse("seed = 1").unwrap_err().starts_with("no link"));
        let nobody = "[[link]]\na = { listen = \"[::1]:1\" }\nb = { listen = \"[::1]:2\" }";
        assert!(parse(nobody).unwrap_err().starts_with("link 1: neither a nor b has a peer"));
    }
}
