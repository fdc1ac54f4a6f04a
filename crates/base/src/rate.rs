use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// A rate in bits per second.
///
/// Parses `"64 kbit/s"`, `"10Mbit/s"`, `"1.5 Mbit/s"`, `"1 Gbit/s"` and
/// `"9600 bit/s"` (decimal multiples; the `/s` may be left out).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Bitrate(u64);

impl Bitrate {
    /// Creates a rate of `bits` bit/s.
    pub const fn from_bps(bits: u64) -> Bitrate {
        Bitrate(bits)
    }

    /// Returns the rate in bit/s.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Transmission time of `bytes` bytes at this rate, rounded up to a nanosecond;
    /// [`Duration::MAX`] at rate 0.
    pub const fn time_for(self, bytes: usize) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (bytes as u128 * 8 * 1_000_000_000).div_ceil(self.0 as u128);
        if nanos > u64::MAX as u128 { Duration::MAX } else { Duration::from_nanos(nanos as u64) }
    }
}

/// A rate that could not be parsed; the message states the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a rate: write a number and a unit, as in \"10 Mbit/s\"")]
pub struct ParseBitrateError(String);

impl FromStr for Bitrate {
    type Err = ParseBitrateError;

    fn from_str(text: &str) -> Result<Bitrate, ParseBitrateError> {
        let bad = || ParseBitrateError(text.to_owned());
        let t = text.trim();
        let split = t.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = t[..split].parse().map_err(|_| bad())?;
        let unit = t[split..].trim();
        let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
        let scale = match unit {
            "bit" | "b" => 1.0,
            "kbit" | "kb" => 1e3,
            "Mbit" | "Mb" => 1e6,
            "Gbit" | "Gb" => 1e9,
            _ => return Err(bad()),
        };
        let bps = libm::round(number * scale);
        // Above 2^53 a float no longer resolves single bits; no link is that fast.
        if (1.0..9e15).contains(&bps) { Ok(Bitrate(bps as u64)) } else { Err(bad()) }
    }
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b >= 1_000_000_000 => write!(f, "{} Gbit/s", b as f64 / 1e9),
            b if b >= 1_000_000 => write!(f, "{} Mbit/s", b as f64 / 1e6),
            b if b >= 1_000 => write!(f, "{} kbit/s", b as f64 / 1e3),
            b => write!(f, "{b} bit/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_agree() {
        for (text, bps) in [
            ("64 kbit/s", 64_000),
            ("10Mbit/s", 10_000_000),
            ("1.5 Mbit", 1_500_000),
            ("9600 bit/s", 9_600),
            ("1 Gbps", 1_000_000_000),
        ] {
            let rate: Bitrate = text.parse().unwrap();
            assert_eq!(rate.as_bps(), bps, "{text}");
            assert_eq!(rate.to_string().parse::<Bitrate>().unwrap(), rate);
        }
        for bad in ["", "10", "fast", "-1 Mbit/s", "0 bit/s", "1e99 Gbit/s", "10 MB/s"] {
            assert!(bad.parse::<Bitrate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_voice_packet_on_a_t1() {
        // 204 bytes at 1.544 Mbit/s: 1.057 ms.
        let t = Bitrate::from_bps(1_544_000).time_for(204);
        assert_eq!(t.as_micros(), 1_056);
        assert_eq!(Bitrate::from_bps(0).time_for(1), Duration::MAX);
    }
}
