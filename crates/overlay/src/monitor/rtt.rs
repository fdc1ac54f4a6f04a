use core::time::Duration;

/// A round-trip time, smoothed by an exponentially weighted average with the
/// weight of RFC 6298, 1/8 (Amir et al. 2005, III-A, leaves it open).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    smoothed: Option<Duration>,
    /// Half of it, which every packet wants to know.
    one_way: Duration,
}

/// A sample above this is a mistake or a lie: no link is a minute long.
const ABSURD: Duration = Duration::from_secs(60);

impl Rtt {
    /// Takes a sample; absurd ones are ignored.
    pub fn sample(&mut self, rtt: Duration) {
        if rtt > ABSURD {
            return;
        }
        let smoothed = self.smoothed.map_or(rtt, |s| (s * 7 + rtt) / 8);
        *self = Rtt { smoothed: Some(smoothed), one_way: smoothed / 2 };
    }

    /// The average; `None` before the first sample.
    pub fn get(self) -> Option<Duration> {
        self.smoothed
    }

    /// Half of the average, zero while nothing is known: the estimate of the
    /// one-way delay, for want of synchronised clocks.
    pub fn one_way(self) -> Duration {
        self.one_way
    }
}
