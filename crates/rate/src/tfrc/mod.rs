//! TCP Friendly Rate Control: a sender that is allowed about what a TCP would reach, and a receiver
//! that reports to it about once per round trip.
//!
//! The base is DCCP's CCID 3 (RFC 4342), which builds on RFC 3448 and not on its successor:
//! [`Config::basic`]. Each variant is a [`Config`] that differs from it, in a file that contains
//! only the difference:
//!
//! | | where it differs | source |
//! |---|---|---|
//! | [`Config::small_packets`] | the equation, the spacing, short loss intervals | RFC 4828 |
//! | [`Config::faster_restart`] | how fast the rate returns after a pause | draft-ietf-dccp-tfrc-faster-restart-00 |
//! | [`Config::minimum_delay`] | a minimum rate, and the first report after a pause | Balan et al. 2007, section V |
//! | [`Config::rfc5348`] | limits by the receive rate, the start, pauses | RFC 5348 |
//!
//! Balan et al.: *An Experimental Evaluation of Voice Quality over the Datagram Congestion Control
//! Protocol*, INFOCOM 2007. They used draft-ietf-dccp-tfrc-voip-02 for small packets, which became
//! RFC 4828.
//!
//! A rate is in bytes per second of payload, without any header.

mod basic;
pub mod fr;
pub mod md;
mod message;
mod receiver;
mod rfc5348;
mod sender;
pub mod sp;
#[cfg(test)]
mod tests;

pub use message::{DATA_BYTES, Data, FEEDBACK_BYTES, Feedback, Malformed};
pub use receiver::{DataError, Receiver};
pub use sender::{FeedbackError, Sender, TooEarly};

use crate::equation::{MIN_RTT, Throughput};
use crate::loss_events;
use core::time::Duration;

/// t_mbi, the maximum time between two packets (RFC 3448, section 4.3).
pub const MAX_BACKOFF: Duration = Duration::from_secs(64);

/// A lower bound of the allowed rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Least {
    /// One segment in 64 s: s/t_mbi.
    Backoff,
    /// A number of segments of s bytes per round trip; 0 or more.
    Segments(f64),
    /// A number of bytes per round trip, independent of s; 0 or more.
    Bytes(f64),
    /// TCP's initial window per round trip: min(4 s, max(2 s, 4,380 bytes)) (RFC 3390). Four
    /// segments for voice.
    Rfc3390,
}

impl Least {
    /// The rate in bytes per second, for segments of `segment` bytes.
    pub fn rate(self, segment: f64, rtt: Duration) -> f64 {
        let window = match self {
            Least::Backoff => return segment / MAX_BACKOFF.as_secs_f64(),
            Least::Segments(count) => count * segment,
            Least::Bytes(bytes) => bytes,
            Least::Rfc3390 => (4.0 * segment).min((2.0 * segment).max(4_380.0)),
        };
        window / rtt.max(MIN_RTT).as_secs_f64()
    }
}

/// The period over which a report's receive rate is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The time since the last report, but at least a round trip (RFC 4342, section 8.3). It
    /// includes any pause, so the first rate reported after one is far too low.
    SinceReport,
    /// The time since the last report without pauses: a gap between two packets of more than two
    /// round trips and 0.2 s (RFC 4342, section 6.4) counts as long as the gap before it.
    WithoutIdle,
    /// The last round trip (RFC 5348, section 6.2).
    RoundTrip,
}

/// The receive rate from which the interval before the first loss event is derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstInterval {
    /// The rate of the last round trip (RFC 3448, section 6.3.1).
    RoundTrip,
    /// The highest rate reported (RFC 5348, section 6.3.1).
    Highest,
}

/// The rules by which reports limit the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// RFC 3448, sections 4.2 to 4.4, with RFC 4342, section 5.1.
    Rfc3448,
    /// RFC 5348, sections 4.2 to 4.4.
    Rfc5348,
}

/// The charge of a packet against the allowed rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// The bytes of the packet's payload.
    Bytes,
    /// One segment, whatever the packet's size.
    Segment,
}

/// The parameters of a sender and its receiver. The constructors give known variants, and every
/// field may be changed; both ends need the same values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// s, the mean payload of a packet in bytes; 0 counts as 1.
    pub segment: u16,
    /// Parameters of the throughput equation.
    pub equation: Throughput,
    /// Lower bound of the allowed rate before the first loss event: one segment per round trip with
    /// RFC 3448's rules.
    pub slow_start: Least,
    /// Lower bound after the first loss event: one segment in 64 s (RFC 3448, section 4.3).
    pub avoidance: Least,
    /// Rate that a pause leaves: TCP's initial window (RFC 4342, section 5.1; two segments in RFC
    /// 3448).
    pub recover: Least,
    /// Rules for counting loss events.
    pub loss: loss_events::Config,
    /// Period over which the receive rate is measured.
    pub measure: Measure,
    /// Rule for the interval before the first loss event.
    pub first_interval: FirstInterval,
    /// Rules that limit the sender.
    pub rules: Rules,
    /// Charge of a packet against the allowed rate.
    pub charge: Charge,
    /// The small-packet variant's equation; `None` for that of RFC 3448.
    pub small: Option<sp::Nominal>,
    /// Minimum time between two packets: zero except for small packets.
    pub min_interval: Duration,
    /// Faster restart, if enabled.
    pub restart: Option<fr::Restart>,
    /// Minimum delay, if enabled.
    pub minimum: Option<md::Minimum>,
    /// q, the weight that the round-trip estimate keeps at each sample, 0 to 1.
    pub rtt_keeps: f64,
    /// Whether the packet spacing follows each round-trip sample at once (RFC 3448, section 4.5),
    /// so that a growing queue slows the sender down.
    pub damped: bool,
    /// t_gran, the timer granularity of the driver. A packet may be sent up to half of it too
    /// early, and one that is late by no more than this does not delay those behind it. Zero where
    /// timers are exact, as in a simulator.
    pub granularity: Duration,
    /// Upper bound of the allowed rate, in bytes per second.
    pub max_rate: f64,
    /// Number of packets whose send time is remembered, at most 32,768: more than are in flight at
    /// once.
    pub remembered: u16,
}

impl Config {
    /// s, the segment size in bytes, at least 1.
    fn segment(&self) -> f64 {
        f64::from(self.segment.max(1))
    }

    /// X_calc, the calculated rate in bytes per second.
    fn calculated(&self, rtt: Duration, loss: f64) -> f64 {
        match self.small {
            None => self.equation.rate(self.segment(), rtt, loss),
            Some(nominal) => nominal.calculated(&self.equation, self.segment(), rtt, loss),
        }
    }

    /// p, the loss event rate at which X_calc is `rate`.
    fn loss_at(&self, rtt: Duration, rate: f64) -> f64 {
        match self.small {
            None => self.equation.loss(self.segment(), rtt, rate),
            Some(nominal) => nominal.loss(&self.equation, self.segment(), rtt, rate),
        }
    }
}
