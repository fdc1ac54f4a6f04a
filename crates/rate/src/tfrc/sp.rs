//! Small packets (RFC 4828): a flow of short packets may send as many bytes,
//! headers included, as TCP with full segments.

use super::Config;
use crate::equation::Throughput;
use core::time::Duration;

/// The segments that the equation uses in place of the flow's own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Nominal {
    /// Nominal segment size, in bytes: 1,460, or the path's if that is smaller.
    pub segment: f64,
    /// H, the headers of a packet, in bytes: 40.
    pub headers: f64,
}

impl Nominal {
    /// The recommendation of RFC 4828 (section 3).
    pub const RFC: Nominal = Nominal { segment: 1_460.0, headers: 40.0 };

    /// The share of a packet of `segment` bytes of payload that is not headers.
    fn share(&self, segment: f64) -> f64 {
        segment / (segment + self.headers)
    }

    /// X_calc: the equation with the nominal segment, less the headers' share.
    ///
    /// RFC 4828 scales "the allowed transmit rate". Here only the calculated rate is scaled: in
    /// slow start the rate follows the receive rate, and scaling that would lower it with every
    /// report.
    pub(super) fn calculated(
        &self,
        equation: &Throughput,
        segment: f64,
        rtt: Duration,
        loss: f64,
    ) -> f64 {
        equation.rate(self.segment, rtt, loss) * self.share(segment)
    }

    /// The loss event rate at which [`calculated`](Nominal::calculated) is `rate`: its inverse is
    /// the first interval.
    ///
    /// RFC 4828 (section 1) states only that the equation uses the nominal segment here as well. If
    /// the headers' share were left in, the rate after the first loss would be only that share of
    /// the receive rate, a third of it for packets of 20 bytes. RFC 3448 (section 6.3.1) requires
    /// the two to be equal, so the share is applied in both directions.
    pub(super) fn loss(
        &self,
        equation: &Throughput,
        segment: f64,
        rtt: Duration,
        rate: f64,
    ) -> f64 {
        equation.loss(self.segment, rtt, rate / self.share(segment))
    }
}

impl Config {
    /// TFRC-SP for packets with `segment` bytes of payload: the equation for nominal segments of
    /// 1,460 bytes, at least 10 ms between two packets, and short loss intervals that count every
    /// loss.
    pub const fn small_packets(segment: u16) -> Config {
        let mut config = Config::basic(segment);
        config.small = Some(Nominal::RFC);
        config.min_interval = Duration::from_millis(10);
        config.loss.short_intervals = true;
        config
    }
}
