//! Quantities as they are written in a scenario.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::time::Duration;
use trunkline_base::Bitrate;
use trunkline_base::link_model::Queue;
use trunkline_net::IpVersion;

/// Splits text into a number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

fn span(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    // At most a day: no wire is that long, and no call has to be.
    let seconds = number * scale;
    (seconds <= 86_400.0).then(|| Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// A share from 0 to 1, written as `5%` or `0.05`.
pub fn share(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let value = match unit {
        "" => number,
        "%" => number / 100.0,
        _ => return None,
    };
    (value <= 1.0).then_some(value)
}

fn whole(number: f64) -> Option<usize> {
    (number < 1e12).then_some(number.round() as usize)
}

fn size(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    whole(number * scale)
}

fn queue(text: &str) -> Option<Queue> {
    match split(text)? {
        (number, "packets" | "packet") => whole(number).map(Queue::Packets),
        _ => size(text).map(Queue::Bytes),
    }
}

/// Reads a string with `parse`; a bare number too, if `number` is set.
fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Option<T>,
    expected: &'static str,
    number: bool,
) -> Result<T, D::Error> {
    struct Text<T>(fn(&str) -> Option<T>, &'static str, bool);
    impl<T> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.1)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
            let parsed = if self.2 { (self.0)(&value.to_string()) } else { None };
            parsed.ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
            self.visit_f64(value as f64)
        }
    }
    deserializer.deserialize_any(Text(parse, expected, number))
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($type:ty) => $into:ty, $parse:expr, $expected:expr, $number:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name(pub $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                text(deserializer, $parse, $expected, $number).map($name)
            }
        }

        impl From<$name> for $into {
            fn from(quantity: $name) -> $into {
                quantity.0.into()
            }
        }
    };
}

quantity!(
    /// A length of time, such as `"10ms"` or `"1.5 s"`.
    Span(Duration) => Duration, span, "a length of time up to a day, such as \"10ms\" or \"1.5 s\"", false
);
quantity!(
    /// A share, such as `"5%"` or `0.05`.
    Share(f64) => f64, share, "a share from 0 to 1, such as \"5%\" or 0.05", true
);
quantity!(
    /// A rate, such as `"10 Mbit/s"`.
    Rate(Bitrate) => Option<Bitrate>, |text| text.parse().ok(), "a rate, such as \"10 Mbit/s\"", false
);
quantity!(
    /// Room in a queue, such as `"100 packets"` or `"64 kB"`.
    Room(Queue) => Queue, queue, "room for packets or bytes, such as \"100 packets\" or \"64 kB\"", false
);
quantity!(
    /// A number of bytes, such as `"1500 B"`, `"64 kB"` or `"4 MiB"`.
    Size(usize) => usize, size, "a number of bytes, such as \"1500 B\" or \"64 kB\"", false
);

/// The IP version of all packets, as the number 4 or 6.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ip(pub IpVersion);

impl<'de> Deserialize<'de> for Ip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ip, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Ip;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("4 or 6 (the default), one number for all packets")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Ip, E> {
                match number {
                    4 => Ok(Ip(IpVersion::V4)),
                    6 => Ok(Ip(IpVersion::V6)),
                    other => Err(E::invalid_value(Unexpected::Signed(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        assert_eq!(span("1.5 s"), Some(Duration::from_millis(1_500)));
        assert_eq!(share("2.5%"), Some(0.025));
        assert_eq!(queue("64 kB"), Some(Queue::Bytes(64_000)));
        assert_eq!(queue("100 packets"), Some(Queue::Packets(100)));
        assert_eq!((size("1500 B"), size("4 MiB")), (Some(1_500), Some(4 << 20)));
        for bad in ["", "10", "-1ms", "ms", "1e9 s", "99999999 min"] {
            assert_eq!(span(bad), None, "{bad}");
        }
        assert_eq!((share("101%"), share("-1"), share("NaN")), (None, None, None));
        for bad in ["100", "1e30 B", "99999999999 MB", "-1 B", "NaN B", "1 Mbit"] {
            assert_eq!((size(bad), queue(bad)), (None, None), "{bad}");
        }
    }
}
