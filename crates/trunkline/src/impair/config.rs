//! The configuration file, and the links that it describes.

mod model;
mod traces;
mod values;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use toml::Spanned;
use trunkline_base::link_model::{BadTrace, InvalidModel, LinkModel};

use super::setup::Setup;
use crate::node::config::{described, excerpt, suggestion};
use crate::units::{Fraction, Rate, Size, Span};
pub use model::ModelText;
pub(super) use model::modelled;
use traces::MAX_TRACES;
pub use traces::Traces;
pub use values::{ChainKind, Limit, PerDirection, RedText};

/// Error in a configuration, with a message that states what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file that could not be read.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value that is out of range.
    #[error("{}:{line}:{column}: {message}{excerpt}", path.display())]
    Syntax {
        /// The file with the mistake.
        path: PathBuf,
        /// The line of the mistake, from 1.
        line: usize,
        /// The column of the mistake, from 1.
        column: usize,
        /// Description of the mistake.
        message: String,
        /// The line of the file, with a marker below it.
        excerpt: String,
    },
    /// There is neither a file nor a pair of ends.
    #[error("no link: give a configuration file, or --a and --b")]
    NoLinks,
    /// The values of a link contradict each other.
    #[error("link {link}: {problem}")]
    Link {
        /// The name of the link.
        link: String,
        /// Description of the mistake.
        problem: Problem,
    },
    /// The file describes different links from those that are running.
    #[error(
        "{what} differs from what runs: change only what links do (delay, jitter, rate, queue, red, \
         loss, burst, chain, spacing, trace), or start impair again"
    )]
    OtherLinks {
        /// The first difference: `seed`, `buffer`, the number of links, or a link and its key.
        what: String,
    },
}

impl ConfigError {
    /// An error at the byte `at` of a file with this text.
    pub fn at(path: &Path, text: &str, at: usize, message: String) -> ConfigError {
        let before = &text.as_bytes()[..at.min(text.len())];
        let start_of_line = before.iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        let column = 1 + String::from_utf8_lossy(&before[start_of_line..]).chars().count();
        let excerpt = excerpt(text, (line, column));
        ConfigError::Syntax { path: path.to_owned(), line, column, message, excerpt }
    }
}

/// Mistake in the values of a link.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Two links have the same name, and would share an entry in the ledger.
    #[error("the name is taken by an earlier link; choose another")]
    DuplicateName,
    /// Neither end has a peer, so that neither node could send first.
    #[error("neither a nor b has a peer; give at least one, the other can be learned")]
    NoPeer,
    /// A burstiness is given without a loss that it could apply to.
    #[error("{direction}: burst needs loss; add loss, or remove burst")]
    BurstAlone {
        /// The direction, forward or reverse.
        direction: &'static str,
    },
    /// A key of the chain is given without a bursty loss that uses it.
    #[error("{direction}: {key} needs burst; add burst, or remove {key}")]
    ChainAlone {
        /// The direction, forward or reverse.
        direction: &'static str,
        /// The key, chain or spacing.
        key: &'static str,
    },
    /// Both a trace and a loss are given.
    #[error("{direction}: trace and loss both define the losses; remove one of them")]
    TraceAndLoss {
        /// The direction, forward or reverse.
        direction: &'static str,
    },
    /// A trace cannot be read.
    #[error("{direction}: cannot read the loss trace {}: {source}", path.display())]
    Trace {
        /// The direction, forward or reverse.
        direction: &'static str,
        /// The file of the trace.
        path: PathBuf,
        /// The reason why it cannot be read.
        source: TraceError,
    },
    /// RED is given without a rate: no packet would wait in its queue.
    #[error("{}", red_alone(direction))]
    RedAlone {
        /// The direction, if RED is given for forward and reverse by name.
        direction: Option<&'static str>,
    },
    /// The thresholds cannot be compared with the queue.
    #[error(
        "{direction}: queue, red.min and red.max must all count packets or all be sizes; \
         without queue it is 100 packets"
    )]
    RedUnits {
        /// The direction, forward or reverse.
        direction: &'static str,
    },
    /// A value is out of range.
    #[error("{direction}: {source}")]
    Model {
        /// The direction, forward or reverse.
        direction: &'static str,
        /// The field, its value and its range.
        source: InvalidModel,
    },
}

/// Advice for RED without a rate.
fn red_alone(direction: &Option<&'static str>) -> String {
    match direction {
        None => "red needs rate; add rate, or remove red".into(),
        Some(direction) => format!(
            "{direction}: red needs rate in the same direction; add rate for {direction}, or \
             remove {direction} from red"
        ),
    }
}

/// Reason why a loss trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The text of the file is not a trace.
    #[error(transparent)]
    Content(#[from] BadTrace),
    /// With this trace, the configuration's traces exceed their total limit.
    #[error("with it the traces have more than {MAX_TRACES} packets together: shorten one")]
    TooManyTogether,
}

/// A configuration that can be run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seed of all links' randomness.
    pub seed: u64,
    /// Maximum memory for packets in flight over all links, in bytes.
    pub buffer: u64,
    /// The links in the order of the file.
    pub links: Vec<Link>,
}

/// A link with two ends and two directions.
#[derive(Debug, Clone)]
pub struct Link {
    /// Name of the link in the ledger.
    pub name: String,
    /// The two ends, a then b.
    pub ends: [End; 2],
    /// The direction from a to b, then from b to a.
    pub directions: [Direction; 2],
}

/// A socket that faces a node, and the address of that node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Address on which the end listens, and from which it sends to the node.
    #[serde(deserialize_with = "address_text")]
    pub listen: SocketAddr,
    /// Address of the node; if `None`, the first sender is the node.
    #[serde(default, deserialize_with = "some_address_text")]
    pub peer: Option<SocketAddr>,
}

/// One direction of a link.
#[derive(Debug, Clone)]
pub struct Direction {
    /// Treatment of the direction's packets.
    pub model: LinkModel,
    /// Number of its random stream.
    pub stream: u64,
}

/// Names of a link's ends in messages and in the ledger.
pub const SIDES: [&str; 2] = ["a", "b"];
/// Names of a link's directions in messages and in the ledger.
pub const DIRECTIONS: [&str; 2] = ["forward", "reverse"];
/// The default of `buffer`: room for 32,768 packets.
pub const DEFAULT_BUFFER: Size = Size(64 << 20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    buffer: Option<Size>,
    #[serde(default)]
    link: Vec<Spanned<LinkText>>,
}

modelled! {
    /// A link as written in the file.
    pub struct LinkText {
        pub name: Option<Spanned<String>>,
        pub stream: Option<u64>,
        pub a: End,
        pub b: End,
    }
}

impl Config {
    /// Reads a file. Relative paths in it are resolved against its folder.
    ///
    /// # Errors
    ///
    /// The first mistake in the file, with its position.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let (text, mut file): (String, File) = read_toml(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        file.link.iter_mut().for_each(|link| link.get_mut().find_traces(folder));
        if file.link.is_empty() {
            return Err(ConfigError::at(path, &text, 0, "no link: add a [[link]]".into()));
        }
        Config::new(file.seed, file.buffer, file.link)
            .map_err(|(at, what)| ConfigError::at(path, &text, at, what.to_string()))
    }

    /// Checks links as written in a file.
    ///
    /// # Errors
    ///
    /// The first link with values that contradict each other, and the position of one of them.
    pub fn new(
        seed: u64,
        buffer: Option<Size>,
        links: Vec<Spanned<LinkText>>,
    ) -> Result<Config, (usize, ConfigError)> {
        if links.is_empty() {
            return Err((0, ConfigError::NoLinks));
        }
        let (mut names, mut traces) = (BTreeSet::new(), Traces::default());
        let links = links
            .into_iter()
            .zip(0u64..)
            .map(|(text, index)| {
                let start = text.span().start;
                let text = text.into_inner();
                let (name, at) = name(text.name.as_ref(), (start, index));
                let checked = if names.insert(name.clone()) {
                    text.check(name.clone(), (start, index), &mut traces)
                } else {
                    Err((at, Problem::DuplicateName))
                };
                checked.map_err(|(at, problem)| (at, ConfigError::Link { link: name, problem }))
            })
            .collect::<Result<_, _>>()?;
        Ok(Config { seed, buffer: buffer.unwrap_or(DEFAULT_BUFFER).0, links })
    }
}

impl Setup for Config {
    fn read(path: &Path) -> Result<Config, ConfigError> {
        Config::read(path)
    }

    fn models(&self) -> impl Iterator<Item = &LinkModel> {
        self.links.iter().flat_map(|link| &link.directions).map(|direction| &direction.model)
    }

    fn check_same(&self, new: &Config) -> Result<(), ConfigError> {
        let other = |what: &str| Err(ConfigError::OtherLinks { what: what.to_owned() });
        if self.seed != new.seed {
            return other("seed");
        }
        if self.buffer != new.buffer {
            return other("buffer");
        }
        if self.links.len() != new.links.len() {
            return other("the number of links");
        }
        for (old, new) in self.links.iter().zip(&new.links) {
            let streams = |link: &Link| link.directions.each_ref().map(|d| d.stream);
            if (&old.name, old.ends) != (&new.name, new.ends) || streams(old) != streams(new) {
                return other(&format!("link {}: its name, a, b or stream", old.name));
            }
        }
        Ok(())
    }
}

impl LinkText {
    fn check(
        self,
        name: String,
        (start, index): (usize, u64),
        traces: &mut Traces,
    ) -> Result<Link, (usize, Problem)> {
        if self.a.peer.is_none() && self.b.peer.is_none() {
            return Err((start, Problem::NoPeer));
        }
        let ends = [self.a, self.b];
        let stream = stream(self.stream, index);
        let directions = self.into_model().directions(stream, traces)?;
        Ok(Link { name, ends, directions })
    }
}

/// Name and position of a link: the given ones, or its number from 1 and its start.
pub fn name(given: Option<&Spanned<String>>, (start, index): (usize, u64)) -> (String, usize) {
    match given {
        Some(name) => (name.get_ref().clone(), name.span().start),
        None => ((index + 1).to_string(), start),
    }
}

/// Stream of a link's forward direction. The directions of one link must lose independently; links
/// with the same stream must lose the same packets.
pub fn stream(given: Option<u64>, index: u64) -> u64 {
    given.unwrap_or(index).wrapping_mul(2)
}

/// Reads a TOML file, and returns its text and the parsed value.
///
/// # Errors
///
/// The file cannot be read, or its text is not TOML of this kind.
pub fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<(String, T), ConfigError> {
    let text =
        read_text(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    match toml::from_str(&text) {
        Ok(file) => Ok((text, file)),
        Err(error) => {
            let at = error.span().map_or(0, |s| s.start);
            let what = described(&text, &error);
            let hint = suggestion(&what).map(|name| format!("; did you mean `{name}`?"));
            Err(ConfigError::at(path, &text, at, what + &hint.unwrap_or_default()))
        }
    }
}

/// Reads a file of at most `limit` bytes; `None` if it is longer.
fn read_file(file: std::fs::File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Reads a text file of up to 16 MiB, which is enough for half a million links.
fn read_text(path: &Path) -> io::Result<String> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let bytes = read_file(std::fs::File::open(path)?, 16 << 20)?
        .ok_or_else(|| wrong("it has more than 16 MiB"))?;
    String::from_utf8(bytes).map_err(|_| wrong("it is no UTF-8 text"))
}

impl FromStr for End {
    type Err = String;

    /// Parses `LISTEN=PEER`, or `LISTEN` alone.
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
mod tests;
