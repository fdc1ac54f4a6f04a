//! By what the way of a packet is chosen.

use core::fmt;
use core::str::FromStr;

/// By what a path is chosen. The packet's origin decides and every relay
/// follows, so that two metrics never mix on one way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Metric {
    /// Expected delay, where a lost packet counts as one that comes after its
    /// deadline.
    #[default]
    ExpectedLatency = 0,
    /// One-way delay.
    Latency = 1,
    /// −ln(1 − p), which adds up to the loss of the path.
    Loss = 2,
    /// The number of links.
    Hops = 3,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All, by their number on the wire.
    pub const ALL: [Metric; Metric::COUNT] =
        [Metric::ExpectedLatency, Metric::Latency, Metric::Loss, Metric::Hops];

    /// The names of all metrics, in the order of their numbers.
    pub const NAMES: [&'static str; Metric::COUNT] = [
        Metric::ExpectedLatency.name(),
        Metric::Latency.name(),
        Metric::Loss.name(),
        Metric::Hops.name(),
    ];

    /// The two bits that stand for it.
    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// The metric that the low two bits stand for.
    pub const fn from_wire(bits: u8) -> Metric {
        Metric::ALL[(bits & 3) as usize]
    }

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::ExpectedLatency => "expected-latency",
            Metric::Latency => "latency",
            Metric::Loss => "loss",
            Metric::Hops => "hops",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no [`Metric`] has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such metric: use expected-latency, latency, loss or hops")]
pub struct UnknownMetric;

impl FromStr for Metric {
    type Err = UnknownMetric;
    fn from_str(s: &str) -> Result<Metric, UnknownMetric> {
        Metric::ALL.into_iter().find(|m| m.name() == s).ok_or(UnknownMetric)
    }
}
