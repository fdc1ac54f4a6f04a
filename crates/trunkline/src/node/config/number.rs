//! Numbers with their range in error messages.

use serde::de::{self, Deserializer, Unexpected, Visitor};
use std::fmt;
use std::ops::RangeInclusive;

struct Within {
    range: RangeInclusive<u8>,
    /// Hint given in addition to the range; may be empty.
    hint: &'static str,
}

impl Visitor<'_> for Within {
    type Value = u8;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {} to {}{}", self.range.start(), self.range.end(), self.hint)
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<u8, E> {
        let within = u8::try_from(n).ok().filter(|n| self.range.contains(n));
        within.ok_or_else(|| E::invalid_value(Unexpected::Signed(n), &self))
    }
}

/// A node id; 0 is left to the check of the whole file, which knows its key.
struct Id;

impl Visitor<'_> for Id {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node id, a number from 1 to 4294901759")
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<u32, E> {
        u32::try_from(n).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
    }
}

/// Deserialises a node id.
pub fn id<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    d.deserialize_i64(Id)
}

/// Deserialises a differentiated services code point (RFC 2474).
pub fn dscp<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    let hint = ", without quotes: names are not understood, EF is 46, AF41 is 34, CS5 is 40";
    d.deserialize_i64(Within { range: 0..=63, hint }).map(Some)
}

/// Deserialises a SCHED_FIFO priority (sched(7)).
pub fn priority<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    d.deserialize_i64(Within { range: 1..=99, hint: "" }).map(Some)
}
