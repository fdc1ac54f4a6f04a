//! The round-trip time and what it varies by.

use core::time::Duration;

/// The estimate of a round trip (RFC 6298), and the shortest that was seen.
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

/// What a timeout is before anything was measured (RFC 6298, 2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// The finest variation that counts: less than a scheduler's delay is chance.
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

    /// The round trip that was measured last.
    pub fn latest(&self) -> Option<Duration> {
        self.estimate.map(|e| e.latest)
    }

    /// The shortest round trip that was measured.
    pub fn shortest(&self) -> Option<Duration> {
        self.estimate.map(|e| e.shortest)
    }

    /// After how long nothing will come any more (RFC 6298, 2.3), without the minimum of
    /// a second there: that suits delayed acknowledgements which nobody has promised.
    pub fn timeout(&self) -> Duration {
        self.estimate.map_or(FIRST_TIMEOUT, |e| e.smoothed + (4 * e.variation).max(GRANULARITY))
    }
}
