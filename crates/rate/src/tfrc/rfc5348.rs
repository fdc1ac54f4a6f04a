//! RFC 5348, which obsoletes RFC 3448: better treatment of senders that don't use all of their
//! allowed rate.

use super::{Config, FirstInterval, Least, Measure, Rules};
use core::time::Duration;
use trunkline_base::Time;

impl Config {
    /// TFRC as in RFC 5348 for packets with `segment` bytes of payload. Receive rates from before a
    /// pause still count, slow start begins with TCP's initial window, and a report's receive rate
    /// is that of a round trip.
    pub const fn rfc5348(segment: u16) -> Config {
        let mut config = Config::basic(segment);
        config.rules = Rules::Rfc5348;
        config.slow_start = Least::Rfc3390;
        config.measure = Measure::RoundTrip;
        config.first_interval = FirstInterval::Highest;
        config
    }
}

/// X_recv_set: receive rates of the last two round trips, three at most (section 8.2.2). The empty
/// set bounds nothing, like the infinity it starts with in the RFC.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ReceiveSet([Option<(Time, f64)>; 3]);

impl ReceiveSet {
    /// The highest rate in the set; infinite if it is empty.
    pub fn max(&self) -> f64 {
        self.0.iter().flatten().map(|r| r.1).reduce(f64::max).unwrap_or(f64::INFINITY)
    }

    /// Adds a receive rate and drops those older than two round trips (Update_X_recv_set, section
    /// 4.3).
    pub fn update(&mut self, now: Time, received: f64, rtt: Duration) {
        for entry in &mut self.0 {
            *entry = entry.filter(|(at, _)| now.since(*at) <= rtt.saturating_mul(2));
        }
        // `None` is less than any time: a free slot is taken, or else the oldest.
        if let Some(place) = self.0.iter_mut().min_by_key(|entry| entry.map(|e| e.0)) {
            *place = Some((now, received));
        }
    }

    /// Keeps only the highest receive rate, including the new one (Maximize_X_recv_set, section
    /// 4.3).
    pub fn maximize(&mut self, now: Time, received: f64) {
        let before = Some(self.max()).filter(|max| max.is_finite());
        self.replace(now, before.map_or(received, |max| max.max(received)));
    }

    /// Halves every receive rate in the set.
    pub fn halve(&mut self) {
        for entry in self.0.iter_mut().flatten() {
            entry.1 /= 2.0;
        }
    }

    /// Replaces the set with a single rate.
    pub fn replace(&mut self, now: Time, received: f64) {
        self.0 = [Some((now, received)), None, None];
    }
}

/// Times at which the sender has lately used its full allowance (section 8.2.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct NotLimited {
    first: Option<Time>,
    second: Option<Time>,
    /// Send time of the packet that the last report acknowledges, and arrival time of that report:
    /// t_new and t_next.
    acknowledged: Time,
    heard: Time,
}

impl NotLimited {
    pub fn new(now: Time) -> NotLimited {
        NotLimited { first: None, second: None, acknowledged: now, heard: now }
    }

    /// Records that a packet was sent as soon as it was allowed.
    pub fn note(&mut self, now: Time) {
        if self.first.is_none_or(|t| t <= self.acknowledged) {
            self.first = Some(now);
        } else if self.second.is_none_or(|t| t <= self.heard) {
            self.second = Some(now);
        }
    }

    /// Processes a report whose last packet was sent at `sent`; returns whether the sender was
    /// limited only by its data in the round trip that the report covers.
    pub fn data_limited(&mut self, now: Time, sent: Time, rtt: Duration) -> bool {
        (self.acknowledged, self.heard) = (sent, now);
        let within = |t: Time| sent.since(t) < rtt && t <= sent;
        let limited = !self.first.is_some_and(within) && !self.second.is_some_and(within);
        if self.first.is_none_or(|t| t <= sent) && self.second.is_some_and(|t| t > sent) {
            self.first = self.second;
        }
        limited
    }
}
