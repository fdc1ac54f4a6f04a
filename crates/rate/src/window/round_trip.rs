//! Estimate of the round-trip time and its variation.

use core::time::Duration;

/// The round-trip estimate (RFC 6298), and the minimum.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    estimate: Option<Estimate>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    smoothed: Duration,
    variation: Duration,
    latest: Duration,
    shortest: Duration,
}

/// Timeout before anything was measured (RFC 6298, 2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// Smallest variation that counts: below a scheduler's delay it is noise.
const GRANULARITY: Duration = Duration::from_millis(1);

impl RoundTrip {
    /// Takes a measured round trip into account.
    pub fn sample(&mut self, rtt: Duration) {
        let Some(e) = &mut self.estimate else {
            let (smoothed, variation) = (rtt, rtt / 2);
            self.estimate = Some(Estimate { smoothed, variation, latest: rtt, shortest: rtt });
            return;
        };
        e.variation = (3 * e.variation + e.smoothed.abs_diff(rtt)) / 4;
        e.smoothed = (7 * e.smoothed + rtt) / 8;
        e.latest = rtt;
        e.shortest = e.shortest.min(rtt);
    }

    /// The smoothed round trip, if one was measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|e| e.smoothed)
    }

    /// The latest measured round trip.
    pub fn latest(&self) -> Option<Duration> {
        self.estimate.map(|e| e.latest)
    }

    /// The shortest measured round trip.
    pub fn shortest(&self) -> Option<Duration> {
        self.estimate.map(|e| e.shortest)
    }

    /// Time after which nothing more is expected (RFC 6298, 2.3). It lacks the minimum of one
    /// second there, which is meant for delayed acknowledgements.
    pub fn timeout(&self) -> Duration {
        self.estimate.map_or(FIRST_TIMEOUT, |e| e.smoothed + (4 * e.variation).max(GRANULARITY))
    }
}
