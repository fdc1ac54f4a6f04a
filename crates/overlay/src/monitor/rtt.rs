use core::time::Duration;
use trunkline_base::Time;

/// A round-trip time, smoothed by an exponentially weighted average with the
/// weight of RFC 6298, 1/8 (Amir et al. 2005, III-A, leaves it open).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    smoothed: Option<Duration>,
    /// Half of the average, stored because it is needed for every packet.
    one_way: Duration,
    /// The latest sample, if it was less than half of the average.
    low: Option<Duration>,
    /// The shortest sample of the last minutes, once there is a sample.
    least: Option<Least>,
}

/// The shortest sample of the last five to ten minutes: a minimum that never expired would mistake
/// a longer route for a queue (RFC 6817 keeps the minimum of ten minutes, too).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Least {
    since: Time,
    of_this_period: Duration,
    of_the_last: Duration,
}

impl Least {
    const PERIOD: Duration = Duration::from_secs(300);

    fn first(at: Time, rtt: Duration) -> Least {
        Least { since: at, of_this_period: rtt, of_the_last: rtt }
    }

    fn with(self, at: Time, rtt: Duration) -> Least {
        if at >= self.since + Least::PERIOD {
            Least { since: at, of_this_period: rtt, of_the_last: self.of_this_period }
        } else {
            Least { of_this_period: self.of_this_period.min(rtt), ..self }
        }
    }

    fn get(self) -> Duration {
        self.of_this_period.min(self.of_the_last)
    }
}

/// Longest sample that is accepted. No link takes a minute, so a longer sample is an error or a
/// forgery.
const ABSURD: Duration = Duration::from_secs(60);

/// A sample counts as low only if it is below half of the average by more than this: smaller
/// differences are random.
const CHANCE: Duration = Duration::from_millis(1);

impl Rtt {
    /// Takes a sample that arrived at `at`; implausible ones are ignored.
    ///
    /// A packet that was delayed somewhere, by a kernel that resolves its neighbour's address or by
    /// a radio in a handover, arrives a second late, and so do the packets behind it. An average
    /// takes several seconds to forget that, and meanwhile no packet seems to have time left for
    /// recovery. But no packet is faster than its path: two samples in a row below half of the
    /// average show that the average is outdated.
    pub fn sample(&mut self, at: Time, rtt: Duration) {
        if rtt > ABSURD {
            return;
        }
        let is_low = self.smoothed.is_some_and(|s| rtt + CHANCE < s / 2);
        let smoothed = match (self.smoothed, self.low) {
            (Some(_), Some(before)) if is_low => rtt.max(before),
            (Some(s), _) => (s * 7 + rtt) / 8,
            (None, _) => rtt,
        };
        let low = is_low.then_some(rtt);
        let least = self.least.map_or(Least::first(at, rtt), |least| least.with(at, rtt));
        *self = Rtt { smoothed: Some(smoothed), one_way: smoothed / 2, low, least: Some(least) };
    }

    /// The smoothed average; `None` before the first sample.
    pub fn get(self) -> Option<Duration> {
        self.smoothed
    }

    /// How far the average exceeds the shortest sample of the last minutes, as a queue on the path
    /// makes it; zero before the first sample.
    pub fn excess(self) -> Duration {
        let least = self.least.map_or(Duration::ZERO, Least::get);
        self.smoothed.unwrap_or_default().saturating_sub(least)
    }

    /// Half of the average: the estimate of the one-way delay, since clocks are not synchronised.
    /// Zero before the first sample.
    pub fn one_way(self) -> Duration {
        self.one_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(samples: &[u64]) -> Rtt {
        let mut rtt = Rtt::default();
        for (second, &sample) in samples.iter().enumerate() {
            rtt.sample(Time::from_millis(second as u64 * 1_000), ms(sample));
        }
        rtt
    }

    #[test]
    fn what_was_held_back_for_a_second_is_forgotten_at_once() {
        let held = [20, 20, 1_020, 820, 620, 420, 220];
        assert!(after(&held).get() > Some(ms(250)));
        let whole = [&held[..], &[20, 22]].concat();
        assert_eq!(after(&whole).get(), Some(ms(22)), "by two that were not");
        assert_eq!(after(&whole).one_way(), ms(11));
        assert_eq!(after(&[1_020, 20, 22]).get(), Some(ms(22)), "also at the start");
    }

    #[test]
    fn one_that_is_faster_than_the_others_counts_an_eighth() {
        assert_eq!(after(&[80, 8]).get(), Some(ms(71)));
        assert!(after(&[80, 8, 80, 8]).get() > Some(ms(60)));
        assert_eq!(after(&[80, 48, 48]).get().map(|d| d.as_millis()), Some(72));
    }

    #[test]
    fn the_excess_is_above_the_shortest() {
        assert_eq!(Rtt::default().excess(), ms(0));
        assert_eq!(after(&[80]).excess(), ms(0));
        assert_eq!(after(&[80, 88]).excess(), ms(1));
        assert_eq!(after(&[80, 88, 72]).excess(), (ms(81) * 7 + ms(72)) / 8 - ms(72));
    }

    #[test]
    fn a_longer_way_is_a_queue_for_ten_minutes_at_most() {
        let longer = |seconds: usize| after(&[&[20; 300][..], &vec![50; seconds]].concat());
        assert_eq!(longer(299).excess().as_millis(), 29);
        assert_eq!(longer(301).excess(), ms(0));
        let late = [&[20; 301][..], &[50; 598]].concat();
        assert_eq!(after(&late).excess().as_millis(), 29, "20 ms was in this period");
        assert_eq!(after(&[&late[..], &[50; 2]].concat()).excess().as_millis(), 0);
    }
}
