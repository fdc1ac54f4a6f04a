//! The minimum round-trip time of a recent window; RACK's reordering window is a quarter of it (RFC
//! 8985, section 6.2, step 1).

use core::time::Duration;
use trunkline_base::Time;

/// Age at which a measurement is forgotten: Linux's `net.ipv4.tcp_min_rtt_wlen`.
const WINDOW: Duration = Duration::from_secs(300);

/// The minimum over a window in constant memory, as in Linux: the minimum, and two later
/// measurements that replace it when it expires. No measurement after the current minimum is
/// smaller; an earlier one that is still in the window may be.
#[derive(Clone, Copy, Default, Debug)]
pub struct MinRtt {
    /// Each was measured no earlier than the one before it, and is no smaller.
    kept: Option<[Measured; 3]>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    at: Time,
    rtt: Duration,
}

impl MinRtt {
    /// The minimum; zero before the first measurement.
    pub fn get(&self) -> Duration {
        self.kept.map_or(Duration::ZERO, |[least, ..]| least.rtt)
    }

    /// Adds a round-trip time measured at `at`.
    pub fn sample(&mut self, at: Time, rtt: Duration) {
        let new = Measured { at, rtt };
        let kept = self.kept.get_or_insert([new; 3]);
        if let Some(k) = kept.iter().position(|old| rtt <= old.rtt) {
            kept[k..].fill(new);
        }
        let age = at.since(kept[0].at);
        if age > WINDOW {
            while at.since(kept[0].at) > WINDOW {
                *kept = [kept[1], kept[2], new];
            }
        } else if kept[1].at == kept[0].at && age > WINDOW / 4 {
            kept[1..].fill(new);
        } else if kept[2].at == kept[1].at && age > WINDOW / 2 {
            kept[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(n: u64) -> Time {
        Time::from_millis(1_000 * n)
    }

    #[test]
    fn a_shorter_way_is_forgotten_when_it_is_gone() {
        let mut min = MinRtt::default();
        assert_eq!(min.get(), Duration::ZERO);
        // In ten minutes, the first two take a path of 20 ms, the others one of 100 ms.
        let changes = 120;
        for second in 0..600 {
            let rtt = Duration::from_millis(if second < changes { 20 } else { 100 + second % 7 });
            min.sample(secs(second), rtt);
            let expected = if second < changes + 300 { 20 } else { 100 };
            assert_eq!(min.get(), Duration::from_millis(expected), "after {second} s");
        }
        min.sample(secs(600), Duration::from_millis(7));
        assert_eq!(min.get(), Duration::from_millis(7), "a shorter one counts at once");
    }

    proptest! {
        #[test]
        fn it_is_one_of_the_windows_and_the_least_since(
            steps in proptest::collection::vec((0u64..90, 1u64..200), 1..200),
        ) {
            let (mut min, mut all, mut now) = (MinRtt::default(), Vec::new(), 0);
            for (step, rtt) in steps {
                now += step;
                all.push((now, Duration::from_millis(rtt)));
                min.sample(secs(now), Duration::from_millis(rtt));
                let least = all.iter().rposition(|(_, rtt)| *rtt == min.get());
                let (measured, _) = all[least.expect("one that was measured")];
                prop_assert!(now - measured <= 300);
                prop_assert!(all[least.unwrap()..].iter().all(|(_, rtt)| *rtt >= min.get()));
                if now <= 300 {
                    prop_assert_eq!(all.iter().map(|(_, rtt)| *rtt).min(), Some(min.get()));
                }
            }
        }
    }
}
