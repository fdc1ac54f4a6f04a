//! TCP Friendly Rate Control: a sender that is allowed about what a TCP would
//! reach, and a receiver that reports to it about once a round trip.
//!
//! The base is DCCP's CCID 3 (RFC 4342), which stands on RFC 3448 and not on its
//! successor: [`Config::basic`]. Each variant is a [`Config`] that differs from
//! it, in a file that has the difference and nothing else:
//!
//! | | where it differs | source |
//! |---|---|---|
//! | [`Config::small_packets`] | the equation, the spacing, short loss intervals | RFC 4828 |
//! | [`Config::faster_restart`] | how fast the rate returns after a pause | draft-ietf-dccp-tfrc-faster-restart-00 |
//! | [`Config::minimum_delay`] | a least rate, and the first report after a pause | Balan et al. 2007, section V |
//! | [`Config::rfc5348`] | limits by the receive rate, the start, pauses | RFC 5348 |
//!
//! Balan et al.: *An Experimental Evaluation of Voice Quality over the Datagram
//! Congestion Control Protocol*, INFOCOM 2007. They had
//! draft-ietf-dccp-tfrc-voip-02 for small packets, whose later text is RFC 4828.
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

/// t_mbi, the most between two packets (RFC 3448, section 4.3).
pub const MAX_BACKOFF: Duration = Duration::from_secs(64);

/// A rate that the allowed rate does not go below.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Least {
    /// One segment in 64 s: s/t_mbi.
    Backoff,
    /// So many segments of s bytes per round trip; 0 or more.
    Segments(f64),
    /// So many bytes per round trip, whatever s is; 0 or more.
    Bytes(f64),
    /// TCP's initial window per round trip: min(4 s, max(2 s, 4,380 bytes)) (RFC
    /// 3390). Four segments of voice.
    Rfc3390,
}

impl Least {
    /// In bytes per second, for segments of `segment` bytes.
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

/// What the receive rate of a report is measured over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// What came since the last report, over the time since then, but at least a
    /// round trip (RFC 4342, section 8.3). That includes any pause, so that the
    /// first report after one says far too little.
    SinceReport,
    /// The same without pauses: a gap between two packets of more than two round
    /// trips and 0.2 s (RFC 4342, section 6.4) counts as long as the gap before
    /// it.
    WithoutIdle,
    /// The last round trip (RFC 5348, section 6.2).
    RoundTrip,
}

/// Which receive rate the interval before the first loss event is reckoned from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstInterval {
    /// That of the last round trip (RFC 3448, section 6.3.1).
    RoundTrip,
    /// The highest that was reported (RFC 5348, section 6.3.1).
    Highest,
}

/// Which rules limit the sender by what the receiver reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// RFC 3448, sections 4.2 to 4.4, with RFC 4342, section 5.1.
    Rfc3448,
    /// RFC 5348, sections 4.2 to 4.4.
    Rfc5348,
}

/// What a packet uses up of the allowed rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// The bytes of its payload.
    Bytes,
    /// A segment, whatever its size.
    Segment,
}

/// The parameters of a sender and its receiver. The functions give those of known
/// variants, and every field may be changed; both ends need the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// s, the mean payload of a packet in bytes; 0 is taken as 1.
    pub segment: u16,
    /// The throughput equation's parameters.
    pub equation: Throughput,
    /// Below which the allowed rate doesn't fall before the first loss event:
    /// with RFC 3448's rules one segment per round trip.
    pub slow_start: Least,
    /// Below which it doesn't fall after that: one segment in 64 s (RFC 3448,
    /// section 4.3).
    pub avoidance: Least,
    /// Below which a pause doesn't take it: TCP's initial window (RFC 4342, section
    /// 5.1; two segments in RFC 3448).
    pub recover: Least,
    /// How loss events are counted.
    pub loss: loss_events::Config,
    /// What the receive rate is measured over.
    pub measure: Measure,
    /// How the interval before the first loss event is found.
    pub first_interval: FirstInterval,
    /// Which rules limit the sender.
    pub rules: Rules,
    /// What a packet uses up.
    pub charge: Charge,
    /// The small-packet variant's equation; `None` for that of RFC 3448.
    pub small: Option<sp::Nominal>,
    /// The least time between two packets: zero but for small packets.
    pub min_interval: Duration,
    /// Faster restart; `None` without.
    pub restart: Option<fr::Restart>,
    /// Minimum delay; `None` without.
    pub minimum: Option<md::Minimum>,
    /// q, how much of the round-trip time's estimate each sample leaves, 0 to 1.
    pub rtt_keeps: f64,
    /// Whether the packets' distance follows each round-trip sample at once (RFC
    /// 3448, section 4.5), so that a queue that grows slows the sender down.
    pub damped: bool,
    /// t_gran, how late a driver may be. A packet may go half of it too early, and one
    /// that is late by no more than it does not delay those behind it. Zero where timers
    /// are exact, as in a simulator.
    pub granularity: Duration,
    /// The most that is ever allowed, in bytes per second.
    pub max_rate: f64,
    /// Of how many packets the sender keeps the time of sending, at most 32,768:
    /// more than are under way at once.
    pub remembered: u16,
}

impl Config {
    /// s, the segment size in bytes, at least 1.
    fn segment(&self) -> f64 {
        f64::from(self.segment.max(1))
    }

    /// X_calc, in bytes per second.
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
