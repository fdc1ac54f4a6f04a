//! Names of the overlay's services, metrics, recovery policies and congestion controls: on the
//! command line, in files (`#[serde(with = "crate::names")]`) and over the control socket.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::Serializer;
use std::str::FromStr;
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::link::reliable::Algorithm;
use trunkline_overlay::wire::{Metric, Service};

/// A type with a few named values.
pub trait Named: FromStr + Copy + Send + Sync + 'static {
    /// The names of all values, in the order of their numbers.
    const NAMES: &'static [&'static str];

    /// The name of this value.
    fn name(self) -> &'static str;

    /// Description of this value in an option's help.
    fn help(self) -> &'static str;
}

impl Named for Service {
    const NAMES: &'static [&'static str] = &Service::NAMES;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        self.help()
    }
}

impl Named for Metric {
    const NAMES: &'static [&'static str] = &Metric::NAMES;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            Metric::ExpectedLatency => "Expected delay, lost packets included (milliseconds)",
            Metric::Latency => "One-way delay (milliseconds)",
            Metric::Loss => "Share of packets lost",
            Metric::Hops => "Number of links",
        }
    }
}

impl Named for Algorithm {
    const NAMES: &'static [&'static str] = &Algorithm::NAMES;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            Algorithm::Reno => "One segment more in each round trip, half at a loss (RFC 5681)",
            Algorithm::Cubic => "A cubic function of the time since the last loss (RFC 9438)",
        }
    }
}

impl Named for Recovery {
    const NAMES: &'static [&'static str] = &Recovery::NAMES;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        self.about()
    }
}

/// Parser for the values of an option.
pub fn parser<T>() -> impl TypedValueParser<Value = T>
where
    T: Named<Err: std::error::Error + Send + Sync>,
{
    let value = |name: &&'static str| {
        let help = name.parse().map(T::help).unwrap_or_default();
        PossibleValue::new(*name).help(help)
    };
    PossibleValuesParser::new(T::NAMES.iter().map(value)).try_map(|name| name.parse::<T>())
}

/// Writes a value as its name.
pub fn serialize<T: Named, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(value.name())
}

/// Reads a value by its name.
pub fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map_err(|_| D::Error::unknown_variant(&name, T::NAMES))
}
