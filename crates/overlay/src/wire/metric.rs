//! Metrics used to route packets.

use core::fmt;
use core::str::FromStr;

/// Metric used to choose a path. The packet's origin decides and every relay follows, so that two
/// metrics never mix on one path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Metric {
    /// Expected delay, where a lost packet counts as one that arrives after its deadline.
    #[default]
    ExpectedLatency = 0,
    /// One-way delay of the path.
    Latency = 1,
    /// −ln(1 − p) per link, so that the sum stands for the loss of the path.
    Loss = 2,
    /// The number of links on the path.
    Hops = 3,
}

impl Metric {
    /// Number of metrics: all that two bits can express.
    pub const COUNT: usize = 4;
    /// All metrics, in the order of their wire numbers.
    pub const ALL: [Metric; Metric::COUNT] =
        [Metric::ExpectedLatency, Metric::Latency, Metric::Loss, Metric::Hops];

    /// Names of all metrics, in the order of their numbers.
    pub const NAMES: [&'static str; Metric::COUNT] = [
        Metric::ExpectedLatency.name(),
        Metric::Latency.name(),
        Metric::Loss.name(),
        Metric::Hops.name(),
    ];

    /// The metric's two-bit number on the wire.
    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// The metric with this number, in the low two bits.
    pub const fn from_wire(bits: u8) -> Metric {
        Metric::ALL[(bits & 3) as usize]
    }

    /// The metric's name in configuration.
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

/// The error for a name that no [`Metric`] has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such metric: use expected-latency, latency, loss or hops")]
pub struct UnknownMetric;

impl FromStr for Metric {
    type Err = UnknownMetric;
    fn from_str(s: &str) -> Result<Metric, UnknownMetric> {
        Metric::ALL.into_iter().find(|m| m.name() == s).ok_or(UnknownMetric)
    }
}
