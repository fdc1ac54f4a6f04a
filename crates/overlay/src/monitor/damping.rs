//! Penalty of a link that keeps failing: damping after RFC 2439, except that a damped link costs
//! more where a damped route would be withdrawn. The penalty is a share that the link is expected
//! to lose, on top of its measured loss while it is up: the cost of a lost packet is defined
//! already, and an only route stays available.

use core::time::Duration;
use trunkline_base::Time;

/// RFC 2439's figure of merit, in failures, from which on a link is damped: the second failure
/// within a half-life of the first.
const SUPPRESS: f64 = 1.5;
/// Below this a damped link is no longer damped (RFC 2439, 4.2: less than the threshold to begin,
/// so that one failure does not both end and begin it): one half-life after it has just begun.
const REUSE: f64 = SUPPRESS / 2.0;
/// From here on a link is damped [heavily](HEAVY): at the third or fourth failure in a row, or with
/// one every half half-life in the long run.
const HEAVY_THRESHOLD: f64 = 2.0 * SUPPRESS;
/// Upper limit: after three half-lives without a failure all is forgiven, however many failures
/// there were (RFC 2439's maximum hold-down).
const MAX_PENALTY: f64 = 2.0 * HEAVY_THRESHOLD;

/// Share that a damped link is expected to lose. A route over it then costs about half, or three
/// quarters, of a lost packet: any other route that delivers voice in time and loses less is
/// better.
const LIGHT: f64 = 0.5;
const HEAVY: f64 = 0.75;

/// One minute, while the link is up (RFC 2439, 4.3, has a slower decay for a route that is down):
/// failures this far apart still disturb the same conversation, and a repaired link is trusted
/// again after one to three minutes.
pub const HALF_LIFE: Duration = Duration::from_secs(60);

/// Penalty of a link for its failures, and its duration.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Damping {
    /// Share of packets that the link is expected to lose on top of its measured loss, 0 to 1; 0
    /// for a link that is not damped.
    pub share: f64,
    /// When damping ends if the link does not fail again; for a link that is down, the earliest
    /// time.
    pub until: Option<Time>,
}

/// History of a link's failures.
#[derive(Debug)]
pub(super) struct Flaps {
    /// Half-life of the penalty; zero turns damping off.
    half_life: Duration,
    /// RFC 2439's figure of merit when the link last failed or came back, and when that was.
    merit: (f64, Time),
    down: bool,
    /// When heavy damping ends, and when all damping does.
    heavy_until: Time,
    until: Time,
}

impl Flaps {
    pub fn new(half_life: Duration) -> Flaps {
        let (merit, never) = ((0.0, Time::ZERO), Time::ZERO);
        Flaps { half_life, merit, down: false, heavy_until: never, until: never }
    }

    /// Changes the half-life. The present penalty stays, unless the half-life is zero: that clears
    /// it.
    pub fn set_half_life(&mut self, half_life: Duration) {
        if half_life.is_zero() {
            *self = Flaps::new(half_life);
        }
        self.half_life = half_life;
    }

    /// Records a failure of the link.
    pub fn failed(&mut self, now: Time) {
        if self.half_life.is_zero() {
            return;
        }
        self.came_back(now);
        let (merit, at) = self.merit;
        let half_lives = now.since(at).as_secs_f64() / self.half_life.as_secs_f64();
        let merit = (merit * libm::exp2(-half_lives) + 1.0).min(MAX_PENALTY);
        (self.merit, self.down) = ((merit, now), true);
        if merit >= SUPPRESS || now < self.until {
            let falls_to =
                |least: f64| now + self.half_life.mul_f64(libm::log2(merit / least).max(0.0));
            (self.heavy_until, self.until) = (falls_to(HEAVY_THRESHOLD), falls_to(REUSE));
        }
    }

    /// The link is up: its penalty did not decay while it was down.
    pub fn came_back(&mut self, now: Time) {
        if core::mem::take(&mut self.down) {
            let outage = now.since(core::mem::replace(&mut self.merit.1, now));
            self.heavy_until += outage;
            self.until += outage;
        }
    }

    /// Penalty of the link at `now`: it falls in two steps.
    pub fn damping(&self, now: Time) -> Damping {
        let at = if self.down { self.merit.1 } else { now };
        let share = match at {
            now if now < self.heavy_until => HEAVY,
            now if now < self.until => LIGHT,
            _ => return Damping::default(),
        };
        Damping { share, until: Some(self.until) }
    }

    /// When the penalty of a link damped by `share` falls next.
    pub fn eases_at(&self, share: f64) -> Option<Time> {
        match share {
            _ if self.down => None,
            HEAVY.. => Some(self.heavy_until),
            LIGHT.. => Some(self.until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(s)
    }

    fn after(failures: &[f64]) -> Flaps {
        let mut flaps = Flaps::new(HALF_LIFE);
        for &s in failures {
            flaps.failed(at(s));
            flaps.came_back(at(s));
        }
        flaps
    }

    /// Steps of the penalty after these failures: (until, share).
    fn steps(flaps: &Flaps, now: f64) -> Vec<(u64, f64)> {
        let mut steps = Vec::new();
        let mut share = flaps.damping(at(now)).share;
        while let Some(eases) = flaps.eases_at(share) {
            steps.push((eases.as_nanos().div_ceil(1_000_000_000), share));
            share = flaps.damping(eases).share;
        }
        steps
    }

    #[test]
    fn one_failure_is_an_accident_and_the_second_within_a_half_life_is_not() {
        assert_eq!(steps(&after(&[10.0]), 10.0), []);
        assert_eq!(steps(&after(&[10.0, 69.9]), 69.9), [(130, LIGHT)]);
        assert_eq!(steps(&after(&[10.0, 70.1]), 70.1), []);
        // A damped link stays damped as long as any failure counts.
        assert_eq!(steps(&after(&[10.0, 69.9, 129.0]), 129.0).len(), 1);
    }

    #[test]
    fn many_failures_weigh_more_and_all_are_forgiven_after_three_half_lives() {
        let many: Vec<f64> = (0..100).map(|k| 3.0 * f64::from(k)).collect();
        let flaps = after(&many);
        assert_eq!(steps(&flaps, 297.0), [(357, HEAVY), (477, LIGHT)]);
        assert_eq!(flaps.damping(at(477.5)), Damping::default());
    }

    #[test]
    fn an_outage_forgives_nothing() {
        let mut flaps = after(&[10.0]);
        flaps.failed(at(60.0));
        let damped = flaps.damping(at(60.0));
        assert_eq!((damped.share, flaps.damping(at(1_000.0))), (LIGHT, damped));
        assert_eq!(flaps.eases_at(LIGHT), None);
        flaps.came_back(at(1_000.0));
        let at_once = after(&[950.0, 1_000.0]);
        assert_eq!(steps(&flaps, 1_000.0), steps(&at_once, 1_000.0));
        flaps.failed(at(1_010.0));
        assert_eq!(flaps.merit.0, after(&[950.0, 1_000.0, 1_010.0]).merit.0);
    }

    #[test]
    fn without_a_half_life_nothing_is_held_against_a_link() {
        let mut flaps = after(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(flaps.damping(at(5.0)).share, HEAVY);
        flaps.set_half_life(Duration::ZERO);
        flaps.failed(at(6.0));
        assert_eq!(flaps.damping(at(6.0)), Damping::default());
    }

    proptest! {
        #[test]
        fn it_decays_is_bounded_and_grows_with_each_failure(
            pauses in prop::collection::vec(0.01f64..200.0, 1..40),
            extra in 0usize..40,
            later in prop::collection::vec(0.0f64..400.0, 1..20),
        ) {
            let times: Vec<f64> = pauses
                .iter()
                .scan(0.0, |t, pause| { *t += pause; Some(*t) })
                .collect();
            let last = times[times.len() - 1];
            let flaps = after(&times);
            // No additional failure ever reduces the penalty.
            let mut less = times.clone();
            less.remove(extra % times.len());
            let better = after(&less);
            let mut later = later;
            later.sort_unstable_by(f64::total_cmp);
            let mut before = HEAVY;
            for after in later {
                let now = at(last + after);
                let Damping { share, until } = flaps.damping(now);
                prop_assert!(share <= before, "it decays");
                prop_assert!(better.damping(now).share <= share, "monotone in failures");
                prop_assert_eq!(until.is_some(), share > 0.0);
                prop_assert!(after < 180.001 || share == 0.0, "three half-lives at most");
                before = share;
            }
            prop_assert!(steps(&flaps, last).len() <= 2, "two steps at most");
        }
    }
}
