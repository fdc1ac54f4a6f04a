//! CCID 3: RFC 3448 with the changes of RFC 4342.

use super::{Charge, Config, FirstInterval, Least, Measure, Rules};
use crate::equation::Throughput;
use crate::loss_events;
use core::time::Duration;

impl Config {
    /// DCCP's CCID 3 (RFC 4342, on RFC 3448) for packets with `segment` bytes of payload. Where the
    /// RFCs leave a choice: slow start begins with one segment per round trip (RFC 3448, section
    /// 4.3; RFC 4342 allows [`Least::Rfc3390`]), history is not discounted, timers are exact, and
    /// at most 10 Gbit/s are allowed.
    pub const fn basic(segment: u16) -> Config {
        Config {
            segment,
            equation: Throughput::RFC,
            slow_start: Least::Segments(1.0),
            avoidance: Least::Backoff,
            recover: Least::Rfc3390,
            loss: loss_events::Config { short_intervals: false, discount: None },
            measure: Measure::SinceReport,
            first_interval: FirstInterval::RoundTrip,
            rules: Rules::Rfc3448,
            charge: Charge::Bytes,
            small: None,
            min_interval: Duration::ZERO,
            restart: None,
            minimum: None,
            rtt_keeps: 0.9,
            damped: true,
            granularity: Duration::ZERO,
            max_rate: 1.25e9,
            remembered: 4_096,
        }
    }
}

/// X before the first loss event (RFC 3448, section 4.3, step 4): doubled, but at most `limit`,
/// which is twice the receive rate, and at least `least`.
pub(super) fn slow_start(x: f64, limit: f64, least: f64) -> f64 {
    (2.0 * x).min(limit).max(least)
}

/// X after a loss event: the calculated rate, but at most `limit` and at least `least`.
pub(super) fn avoidance(calculated: f64, limit: f64, least: f64) -> f64 {
    calculated.min(limit).max(least)
}

/// X_recv after a time without reports (section 4.4), such that twice this is half of the
/// previously allowed rate. `calculated` is infinite before the first loss event, a case that RFC
/// 3448 doesn't cover.
pub(super) fn without_feedback(received: f64, calculated: f64, segment: f64) -> f64 {
    let least = Least::Backoff.rate(segment, Duration::ZERO) / 2.0;
    if calculated > 2.0 * received { (received / 2.0).max(least) } else { calculated / 4.0 }
}
