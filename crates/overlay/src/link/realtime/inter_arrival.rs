use core::time::Duration;
use trunkline_base::Time;

/// Estimates how regularly packets arrive, to tell when one is overdue: mean interval and mean
/// deviation, with the weights of RFC 6298. In nanoseconds, since every packet passes here.
#[derive(Debug, Default)]
pub(in crate::link::realtime) struct InterArrival {
    last: u64,
    mean: u64,
    deviation: u64,
}

/// A longer silence is a pause in the conversation and does not count as an interval.
const PAUSE: u64 = 100_000_000;
/// Below this, delays by the host's scheduler look like overdue packets.
const GRAIN: Duration = Duration::from_millis(1);

impl InterArrival {
    /// Records the arrival of an original packet; `regular` if none is missing before it.
    pub fn note(&mut self, at: Time, regular: bool) {
        let distance = at.as_nanos().saturating_sub(self.last);
        self.last = at.as_nanos();
        if !regular || distance > PAUSE {
            return;
        }
        if self.mean == 0 {
            (self.mean, self.deviation) = (distance, distance / 2);
            return;
        }
        let error = distance.abs_diff(self.mean);
        self.deviation = (self.deviation * 3 + error) / 4;
        self.mean = (self.mean * 7 + distance) / 8;
    }

    /// When the next packet is overdue, including a wait of a quarter of the round trip before a
    /// request is worth its cost; `None` until a rhythm is known.
    pub fn overdue_at(&self, rtt: Duration) -> Option<Time> {
        let usual = self.last + self.mean + self.deviation * 4;
        (self.mean > 0).then(|| Time::from_nanos(usual) + GRAIN.max(rtt / 4))
    }

    /// Number of packets, 1 to 16, that should have arrived by `now` but did not.
    pub fn missing(&self, now: Time) -> u16 {
        let silence = now.as_nanos().saturating_sub(self.last);
        (silence / self.mean.max(1)).clamp(1, 16) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_steady_flow_is_missed_soon_and_an_unsteady_one_later() {
        let mut steady = InterArrival::default();
        assert_eq!(steady.overdue_at(ms(8)), None);
        for k in 0..50 {
            steady.note(Time::from_millis(20 * k), true);
        }
        let last = Time::from_millis(980);
        let due = steady.overdue_at(ms(8)).unwrap();
        assert!((ms(22)..ms(23)).contains(&due.since(last)), "{due:?}");
        assert_eq!(steady.overdue_at(ms(40)).unwrap().since(due), ms(8), "a quarter of the rest");
        assert_eq!([990, 1_025, 5_000].map(|t| steady.missing(Time::from_millis(t))), [1, 2, 16]);

        let mut jumpy = InterArrival::default();
        for k in 0..50 {
            jumpy.note(Time::from_millis(20 * k + 7 * (k % 2)), true);
        }
        assert!(jumpy.overdue_at(ms(8)).unwrap().since(Time::from_millis(987)) > ms(40));
    }

    #[test]
    fn pauses_and_gaps_are_no_distances() {
        let mut r = InterArrival::default();
        for k in 0..50 {
            r.note(Time::from_millis(20 * k), true);
        }
        r.note(Time::from_millis(1_020), false);
        r.note(Time::from_millis(3_000), true);
        let due = r.overdue_at(ms(0)).unwrap().since(Time::from_millis(3_000));
        assert!(due < ms(22), "{due:?}");
    }
}
