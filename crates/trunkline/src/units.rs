//! Quantities in human-readable form: `"10 ms"`, `"5%"`, `"64 kB"`.
//!
//! Command lines (`FromStr`) and configuration files (`Deserialize`, from a string) parse each type
//! alike. Rates are [`trunkline_base::Bitrate`]; [`Rate`] adds the support for files.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Unexpected, Visitor};
use trunkline_base::Bitrate;

/// Text that is not the expected quantity, with a description of the expectation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is {flaw} {expected}")]
pub struct ParseError {
    text: String,
    /// The mistake, in words before the expectation: "not", "negative, not".
    flaw: &'static str,
    expected: &'static str,
}

/// A duration: `"200us"`, `"10ms"`, `"1.5 s"`, `"2 min"`, `"1 h"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span(pub Duration);

/// A share or probability from 0 to 1: `"5%"`, `"0.05"`, in a file also `0.05`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fraction(pub f64);

/// A number of bytes: `"1500 B"`, `"64 kB"`, `"1.5 MB"` (decimal), `"64 KiB"`,
/// `"1 MiB"` (binary).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size(pub u64);

/// A [`Bitrate`] in a configuration file: `"10 Mbit/s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub Bitrate);

const SPAN: &str = "a length of time: write a number and a unit, as in \"10ms\" or \"1.5 s\"";
const FRACTION: &str = "a share from 0 to 1: write it as \"5%\" or \"0.05\"";
const SIZE: &str = "a number of bytes: write a number and a unit, as in \"1500 B\" or \"64 kB\"";
const RATE: &str = "a rate: write a number above 0 and a unit, as in \"10 Mbit/s\"";

/// Names the mistake in `text`: whether `parses` accepts it without its minus sign, or with a
/// number other than 0, or not at all.
fn flaw(text: &str, parses: impl Fn(&str) -> bool) -> &'static str {
    let text = text.trim();
    match split(text) {
        None if text.strip_prefix('-').is_some_and(&parses) => "negative, not",
        Some((0.0, unit)) if parses(&format!("1 {unit}")) => "zero, not",
        _ => "not",
    }
}

/// Splits `text` into an unsigned decimal number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

fn span(text: &str) -> Option<Span> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    // At most a century, so that sums of a few spans fit 64 bits of nanoseconds.
    let nanos = number * nanos;
    (nanos < 3.2e18).then(|| Span(Duration::from_nanos(nanos.round() as u64)))
}

fn fraction(text: &str) -> Option<Fraction> {
    let (number, unit) = split(text)?;
    let value = match unit {
        "" => number,
        // Divide instead of multiplying by 0.01, so that "5%" and "0.05" are equal.
        "%" => number / 100.0,
        _ => return None,
    };
    (value <= 1.0).then_some(Fraction(value))
}

fn size(text: &str) -> Option<Size> {
    let (number, unit) = split(text)?;
    let bytes = match unit {
        "B" | "byte" | "bytes" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    // A float represents every number of bytes exactly up to here.
    let bytes = number * bytes;
    (bytes < 9e15).then(|| Size(bytes.round() as u64))
}

fn rate(text: &str) -> Option<Rate> {
    text.parse().ok().map(Rate)
}

macro_rules! quantity {
    ($type:ty, $parse:path, $expected:expr $(, $number:ident)?) => {
        impl FromStr for $type {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                $parse(text).ok_or_else(|| {
                    let flaw = flaw(text, |text| $parse(text).is_some());
                    ParseError { text: text.to_owned(), flaw, expected: $expected }
                })
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    $(fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<$type, E> {
                        $number(value)
                            .ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
                    }

                    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<$type, E> {
                        self.visit_f64(value as f64)
                    })?
                }
                deserializer.deserialize_any(Text)
            }
        }
    };
}

fn fraction_number(value: f64) -> Option<Fraction> {
    (0.0..=1.0).contains(&value).then_some(Fraction(value))
}

quantity!(Span, span, SPAN);
quantity!(Fraction, fraction, FRACTION, fraction_number);
quantity!(Size, size, SIZE);
quantity!(Rate, rate, RATE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, nanos) in [
            ("10ms", 10_000_000),
            ("1.5 s", 1_500_000_000),
            (" 200us ", 200_000),
            ("200 µs", 200_000),
            ("0ms", 0),
            ("7ns", 7),
            ("2 min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_nanos(nanos))), "{text}");
        }
        for bad in ["", "10", "ms", "-1ms", "1.2.3 s", "10 m", "1e3 s", "1 s 2 ms", "9999999 h"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        for (bad, says) in [
            ("-1ms", "\"-1ms\" is negative, not a length of time: write a number and a unit"),
            ("--1ms", "\"--1ms\" is not a length of time"),
            ("0", "\"0\" is not a length of time"),
        ] {
            let said = bad.parse::<Span>().unwrap_err().to_string();
            assert!(said.starts_with(says), "{said}");
        }
        assert_eq!(
            "10".parse::<Span>().unwrap_err().to_string(),
            "\"10\" is not a length of time: write a number and a unit, as in \"10ms\" or \"1.5 s\""
        );
    }

    #[test]
    fn fractions() {
        for (text, value) in
            [("5%", 0.05), ("0.05", 0.05), ("2.5 %", 0.025), ("100%", 1.0), ("0", 0.0)]
        {
            assert_eq!(text.parse(), Ok(Fraction(value)), "{text}");
        }
        for bad in ["", "5", "101%", "-5%", "5 percent", "NaN", "inf"] {
            assert!(bad.parse::<Fraction>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("1500 B", 1500), ("64kB", 64_000), ("1.5 MB", 1_500_000), ("64 KiB", 65_536)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "64", "64 kb", "64 kbit", "-1 B", "99999999 GB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        for (bad, says) in [
            ("0 Mbit/s", "\"0 Mbit/s\" is zero, not a rate: write a number above 0 and a unit"),
            ("-5 Mbit/s", "\"-5 Mbit/s\" is negative, not a rate"),
            ("5", "\"5\" is not a rate"),
            ("0", "\"0\" is not a rate"),
            ("0 parsecs", "\"0 parsecs\" is not a rate"),
        ] {
            let said = bad.parse::<Rate>().unwrap_err().to_string();
            assert!(said.starts_with(says), "{said}");
        }
    }

    #[test]
    fn files_give_the_place_of_a_mistake() {
        #[derive(serde::Deserialize, Debug, PartialEq)]
        struct File {
            delay: Span,
            loss: Fraction,
            buffer: Option<Size>,
            rate: Option<Rate>,
        }
        let good: File =
            toml::from_str("delay = \"10ms\"\nloss = 0.05\nrate = \"10 Mbit/s\"").unwrap();
        assert_eq!(good.delay, Span(Duration::from_millis(10)));
        assert_eq!(good.loss, Fraction(0.05));
        assert_eq!(good.rate, Some(Rate(Bitrate::from_bps(10_000_000))));
        for (text, says) in [
            ("delay = 10\nloss = 0.05", "expected a length of time"),
            ("delay = \"1 s\"\nloss = 5", "expected a share from 0 to 1"),
            ("delay = \"1 s\"\nloss = 0.0\nrate = \"10\"", "\"10\" is not a rate"),
        ] {
            let error = toml::from_str::<File>(text).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.span().is_some(), "{error}");
        }
    }
}
