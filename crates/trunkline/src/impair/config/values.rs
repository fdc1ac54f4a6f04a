//! Values of a link, as written in the file.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IntoDeserializer, MapAccess, Visitor};
use toml::Spanned;
use trunkline_base::link_model::{Queue, Red, Unit};

use crate::units::{Fraction, Size};

/// A value for both directions, or `{ forward = …, reverse = … }`, where either may be omitted.
/// Forward is from a to b.
#[derive(Debug, Clone, PartialEq)]
pub struct PerDirection<T> {
    /// The value for each direction, if it has one.
    pub of: [Option<T>; 2],
    /// Position of each value, in bytes from the start of the file.
    pub at: [usize; 2],
    /// Whether the directions are named, instead of one value for both.
    pub is_named: bool,
}

impl<T> Default for PerDirection<T> {
    fn default() -> Self {
        PerDirection { of: [None, None], at: [0, 0], is_named: false }
    }
}

impl<T: Clone> PerDirection<T> {
    /// The same value for both directions.
    pub fn both(value: Option<T>) -> Self {
        PerDirection { of: [value.clone(), value], ..PerDirection::default() }
    }
}

impl<T> PerDirection<T> {
    /// A value for each direction that has one, in a table that begins at byte `start`.
    fn named(start: usize, values: [Option<Spanned<T>>; 2]) -> Self {
        let at = values.each_ref().map(|v| v.as_ref().map_or(start, |v| v.span().start));
        PerDirection { of: values.map(|v| v.map(Spanned::into_inner)), at, is_named: true }
    }
}

impl<'de, T: Deserialize<'de> + Clone> Deserialize<'de> for PerDirection<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Spanned::<Either<T>>::deserialize(deserializer)?;
        let start = written.span().start;
        Ok(match written.into_inner() {
            Either::Same(value) => {
                PerDirection { at: [start; 2], ..PerDirection::both(Some(value)) }
            }
            Either::Named(pair) => PerDirection::named(start, [pair.forward, pair.reverse]),
        })
    }
}

/// Syntax of a [`PerDirection`] in the file.
enum Either<T> {
    Same(T),
    Named(Pair<T>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Deserialize<'de>")]
struct Pair<T> {
    forward: Option<Spanned<T>>,
    reverse: Option<Spanned<T>>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Either<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Any<T> {
            type Value = Either<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or { forward = value, reverse = value }")
            }

            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(Either::Same)
            }

            fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(Either::Same)
            }

            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(Either::Same)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Pair::deserialize(MapAccessDeserializer::new(map)).map(Either::Named)
            }
        }

        deserializer.deserialize_any(Any(std::marker::PhantomData))
    }
}

/// The limit of a queue, or a threshold in it: `"100 packets"`, or a size such as `"64 kB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit {
    most: usize,
    unit: Unit,
}

impl Limit {
    fn drop_tail(self) -> Queue {
        match self.unit {
            Unit::Packets => Queue::Packets(self.most),
            Unit::Bytes => Queue::Bytes(self.most),
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let bad = || LimitError(text.to_owned());
        let (most, unit) = match text.trim().trim_end_matches('s').strip_suffix("packet") {
            Some(number) => (number.trim().parse().map_err(|_| bad())?, Unit::Packets),
            None => {
                let size: Size = text.parse().map_err(|_| bad())?;
                (usize::try_from(size.0).map_err(|_| bad())?, Unit::Bytes)
            }
        };
        Ok(Limit { most, unit })
    }
}

impl TryFrom<String> for Limit {
    type Error = LimitError;

    fn try_from(text: String) -> Result<Limit, LimitError> {
        text.parse()
    }
}

/// Text that is not the limit of a queue.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is not a queue limit: write \"100 packets\" or a size, as in \"64 kB\"")]
pub struct LimitError(String);

/// Trigger of a state change in the chain of bursty loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ChainKind {
    /// Each packet is one step
    PerPacket,
    /// Time passes: outages are independent of the packets
    Continuous,
}

/// Random early detection in the queue of a link. Keys that are omitted take their values from
/// [`Red::default`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedText {
    min: Option<Limit>,
    max: Option<Limit>,
    max_p: Option<Fraction>,
    weight: Option<Fraction>,
    packet: Option<Size>,
    gentle: bool,
    ecn: bool,
}

/// The table as written, for one direction or for both. `PerDirection` cannot read it, since its
/// value is a table itself; here the keys distinguish the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedKeys {
    min: Option<Limit>,
    max: Option<Limit>,
    max_p: Option<Fraction>,
    weight: Option<Fraction>,
    packet: Option<Size>,
    gentle: Option<bool>,
    ecn: Option<bool>,
    forward: Option<Spanned<Box<RedKeys>>>,
    reverse: Option<Spanned<Box<RedKeys>>>,
}

impl RedKeys {
    /// Whether no direction has a table of its own.
    fn is_plain(&self) -> bool {
        self.forward.is_none() && self.reverse.is_none()
    }

    /// Whether only the directions' tables are present.
    fn is_pair(&self) -> bool {
        let &RedKeys { min, max, max_p, weight, packet, gentle, ecn, .. } = self;
        (min, max, gentle, ecn) == (None, None, None, None)
            && (max_p, weight, packet) == (None, None, None)
            && !self.is_plain()
    }

    fn text(&self) -> RedText {
        let &RedKeys { min, max, max_p, weight, packet, gentle, ecn, .. } = self;
        let (gentle, ecn) = (gentle.unwrap_or(false), ecn.unwrap_or(false));
        RedText { min, max, max_p, weight, packet, gentle, ecn }
    }
}

impl<'de> Deserialize<'de> for PerDirection<RedText> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Spanned::<RedKeys>::deserialize(deserializer)?;
        let start = keys.span().start;
        let keys = keys.into_inner();
        if keys.is_plain() {
            return Ok(PerDirection { at: [start; 2], ..PerDirection::both(Some(keys.text())) });
        }
        let is_pair = keys.is_pair();
        let ways = [keys.forward, keys.reverse];
        if is_pair && ways.iter().flatten().all(|way| way.get_ref().is_plain()) {
            let text = |way: Spanned<Box<RedKeys>>| Spanned::new(way.span(), way.get_ref().text());
            return Ok(PerDirection::named(start, ways.map(|way| way.map(text))));
        }
        Err(serde::de::Error::custom(
            "red says min, max and so on, of both directions, or { forward = { … }, reverse = \
             { … } }: not both",
        ))
    }
}

/// The limit of a queue and its thresholds have different units.
#[derive(Debug)]
pub struct DifferentUnits;

/// Builds the queue that `limit` and `red` describe.
pub fn queue(limit: Option<Limit>, red: Option<&RedText>) -> Result<Queue, DifferentUnits> {
    let Some(red) = red else { return Ok(limit.map_or(Queue::default(), Limit::drop_tail)) };
    let default = Red::default();
    let unit = limit.map_or(default.unit, |l| l.unit);
    let threshold = |written: Option<Limit>, otherwise: f64| match written {
        None if unit == default.unit => Ok(otherwise),
        Some(l) if l.unit == unit => Ok(l.most as f64),
        _ => Err(DifferentUnits),
    };
    Ok(Queue::Red(Red {
        unit,
        limit: limit.map_or(default.limit, |l| l.most),
        min: threshold(red.min, default.min)?,
        max: threshold(red.max, default.max)?,
        max_p: red.max_p.map_or(default.max_p, |p| p.0),
        weight: red.weight.map_or(default.weight, |w| w.0),
        packet: red.packet.map_or(default.packet, |p| usize::try_from(p.0).unwrap_or(usize::MAX)),
        gentle: red.gentle,
        ecn: red.ecn,
    }))
}
