//! Decides when a link's quality has changed enough to notify the whole overlay.

use core::time::Duration;
use trunkline_base::Time;

/// Quality of one direction of a link, as advertised to the overlay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Quality {
    /// One-way delay towards the neighbour.
    pub latency: Duration,
    /// Share of envelopes lost, 0 to 1.
    pub loss: f64,
    /// Share of real-time packets lost in spite of recovery, 0 to 1, where there is enough traffic
    /// to measure it.
    pub residual: Option<f64>,
}

/// How long an [`Advertiser`] waits before it advertises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Minimum interval between two advertisements of a link.
    pub spacing: Duration,
    /// Time that an improvement must last.
    pub hold: Duration,
    /// Maximum of that time, which doubles while the link worsens again within the time for which
    /// it was held.
    pub longest_hold: Duration,
}

impl Default for Patience {
    /// 50 ms, 10 s, 2 min: a worsening hurts calls now, but an improvement that is believed too
    /// early makes them change routes twice.
    fn default() -> Patience {
        Patience {
            spacing: Duration::from_millis(50),
            hold: Duration::from_secs(10),
            longest_hold: Duration::from_secs(120),
        }
    }
}

/// Changes of latency below this, or below a tenth, are never advertised.
const LATENCY_GRAIN: Duration = Duration::from_millis(1);
/// The same for losses, in addition to a factor. The meter only reports steps that its tests have
/// decided; this suppresses the small ones.
const LOSS_GRAIN: f64 = 0.005;
const LOSS_FACTOR: f64 = 1.25;
/// Loss after recovery is rare, so it is measured only roughly.
const RESIDUAL_GRAIN: f64 = 0.01;
const RESIDUAL_FACTOR: f64 = 2.0;

/// Decides what to advertise for one direction of a link, and when: a worsening at once, an
/// improvement when it has lasted, a small change never.
#[derive(Debug)]
pub struct Advertiser {
    patience: Patience,
    now: Option<Quality>,
    /// Mean deviation of delays: changes within it are noise.
    jitter: Duration,
    said: Option<(Quality, Time)>,
    hold: Duration,
    /// Time since which the link has been better than advertised.
    better_since: Option<Time>,
    /// When an improvement was last advertised, or the link came up.
    improved_at: Option<Time>,
}

impl Advertiser {
    /// Creates the advertiser of a link that is down.
    pub fn new(patience: Patience) -> Advertiser {
        Advertiser {
            hold: patience.hold,
            patience,
            now: None,
            jitter: Duration::ZERO,
            said: None,
            better_since: None,
            improved_at: None,
        }
    }

    /// Takes the quality measured at `now`.
    pub fn update(&mut self, now: Time, quality: Quality, jitter: Duration) {
        (self.now, self.jitter) = (Some(quality), jitter);
        let better = match self.said {
            Some((said, _)) => self.changed(said, quality).1,
            None => false,
        };
        self.better_since = if better { self.better_since.or(Some(now)) } else { None };
    }

    /// The link has gone down, which is announced to the overlay separately. The first measurement
    /// after it is back is advertised at once: a delay would leave an only route unavailable.
    pub fn on_down(&mut self) {
        (self.said, self.now, self.better_since) = (None, None, None);
    }

    fn is_flapping(&self, now: Time) -> bool {
        self.improved_at.is_some_and(|at| now.since(at) < self.hold)
    }

    fn note_worsening(&mut self, now: Time) {
        self.hold = if self.is_flapping(now) {
            (self.hold * 2).min(self.patience.longest_hold)
        } else {
            self.patience.hold
        };
    }

    /// The quality to advertise now, if any.
    pub fn poll(&mut self, now: Time) -> Option<Quality> {
        if self.next_timeout()? > now {
            return None;
        }
        let quality = self.now?;
        let improves = match self.said {
            None => true,
            Some((said, _)) => !self.changed(said, quality).0,
        };
        let news = match self.said {
            Some((said, _)) if !improves => {
                self.note_worsening(now);
                worst(said, quality)
            }
            _ => quality,
        };
        if improves {
            self.improved_at = Some(now);
        }
        self.said = Some((news, now));
        // Values that improved while others worsened wait for their own time.
        self.better_since = self.changed(news, quality).1.then_some(now);
        Some(news)
    }

    /// The quality last advertised, while the link is up.
    pub fn advertised(&self) -> Option<Quality> {
        self.said.map(|(said, _)| said)
    }

    /// When [`Advertiser::poll`] returns a quality if nothing changes.
    pub fn next_timeout(&self) -> Option<Time> {
        let quality = self.now?;
        let Some((said, at)) = self.said else { return Some(Time::ZERO) };
        let soonest = at + self.patience.spacing;
        if self.changed(said, quality).0 {
            return Some(soonest);
        }
        self.better_since.map(|since| soonest.max(since + self.hold))
    }

    /// Whether `now` is worse than `said` in any respect, and whether it is better in any.
    fn changed(&self, said: Quality, now: Quality) -> (bool, bool) {
        let margin = (said.latency / 10).max(LATENCY_GRAIN).max(self.jitter);
        let exceeds = |a: f64, b: f64, factor: f64, grain: f64| a > b * factor && a - b > grain;
        let loss = |a, b| exceeds(a, b, LOSS_FACTOR, LOSS_GRAIN);
        let residual = |a: Option<f64>, b: Option<f64>| {
            a.zip(b).is_some_and(|(a, b)| exceeds(a, b, RESIDUAL_FACTOR, RESIDUAL_GRAIN))
        };
        let worse = |a: Quality, b: Quality| {
            a.latency > b.latency + margin
                || loss(a.loss, b.loss)
                || residual(a.residual, b.residual)
        };
        (worse(now, said), worse(said, now))
    }
}

fn worst(a: Quality, b: Quality) -> Quality {
    Quality {
        latency: a.latency.max(b.latency),
        loss: a.loss.max(b.loss),
        residual: match (a.residual, b.residual) {
            (Some(a), Some(b)) => Some(a.max(b)),
            // The older value was measured at another loss.
            (_, b) => b,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quality(ms: u64, loss: f64) -> Quality {
        Quality { latency: Duration::from_millis(ms), loss, residual: None }
    }

    fn advertiser() -> Advertiser {
        Advertiser::new(Patience::default())
    }

    /// Measures `q` every 200 ms from `from` until `to`; returns the advertisements and their
    /// times.
    fn steady(a: &mut Advertiser, q: Quality, from: u64, to: u64) -> Vec<(u64, Quality)> {
        let mut said = Vec::new();
        for ms in (from..to).step_by(200) {
            a.update(Time::from_millis(ms), q, Duration::ZERO);
            said.extend(a.poll(Time::from_millis(ms)).map(|q| (ms, q)));
        }
        said
    }

    #[test]
    fn worse_at_once_better_after_the_hold_down_and_longer_when_it_flaps() {
        let mut a = advertiser();
        let (good, bad) = (quality(20, 0.0), quality(20, 0.3));
        assert_eq!(steady(&mut a, good, 0, 60_000), [(0, good)]);
        assert_eq!(steady(&mut a, bad, 60_000, 61_000), [(60_000, bad)]);
        assert_eq!(steady(&mut a, good, 61_000, 72_000), [(71_000, good)]);
        assert_eq!(steady(&mut a, bad, 72_000, 73_000), [(72_000, bad)]);
        assert_eq!(steady(&mut a, good, 73_000, 94_000), [(93_000, good)], "twice as long");
        // An interruption restarts the time that an improvement must last.
        assert_eq!(steady(&mut a, bad, 120_000, 121_000), [(120_000, bad)]);
        assert_eq!(steady(&mut a, good, 121_000, 130_000), []);
        assert_eq!(steady(&mut a, bad, 130_000, 131_000), []);
        assert_eq!(steady(&mut a, good, 131_000, 141_400), [(141_000, good)], "calm for long");
    }

    #[test]
    fn small_changes_are_never_news() {
        let mut a = advertiser();
        let first = quality(50, 0.05);
        assert_eq!(steady(&mut a, first, 0, 1_000), [(0, first)]);
        assert_eq!(steady(&mut a, quality(54, 0.06), 1_000, 100_000), []);
        assert_eq!(steady(&mut a, quality(46, 0.045), 100_000, 300_000), []);
        assert_eq!(steady(&mut a, quality(56, 0.05), 300_000, 301_000).len(), 1);
        // With jitter of 10 ms, a change of 8 ms is noise.
        a.update(Time::from_millis(310_000), quality(64, 0.05), Duration::from_millis(10));
        assert_eq!(a.poll(Time::from_millis(310_000)), None);
    }

    #[test]
    fn what_got_better_beside_what_got_worse_waits() {
        let mut a = advertiser();
        steady(&mut a, quality(50, 0.0), 0, 30_000);
        let mixed = quality(20, 0.3);
        let said = steady(&mut a, mixed, 30_000, 41_000);
        assert_eq!(said, [(30_000, quality(50, 0.3)), (40_000, mixed)]);
    }

    #[test]
    fn a_link_that_comes_back_is_news_at_once_every_time() {
        let mut a = advertiser();
        let q = quality(20, 0.0);
        for failure in 0..20 {
            let back = 3_000 * failure;
            assert_eq!(steady(&mut a, q, back, back + 1_000), [(back, q)]);
            a.on_down();
        }
    }

    /// Losses that come and go delay an improvement by up to two minutes; an outage does not wait
    /// for that.
    #[test]
    fn loss_swings_hold_an_improvement_and_no_outage() {
        let mut a = advertiser();
        let (good, bad) = (quality(20, 0.0), quality(20, 0.05));
        steady(&mut a, good, 0, 30_000);
        let mut now = 30_000;
        for _ in 0..6 {
            // The link worsens as soon as it is believed to be good.
            assert_eq!(steady(&mut a, bad, now, now + 200).len(), 1);
            while steady(&mut a, good, now + 200, now + 400).is_empty() {
                now += 200;
            }
            now += 400;
        }
        assert!(now > 200_000, "{now}: held longer each time");
        steady(&mut a, bad, now, now + 200);
        assert_eq!(steady(&mut a, good, now, now + 9_000), []);
        a.on_down();
        assert_eq!(steady(&mut a, good, now + 11_000, now + 12_000), [(now + 11_000, good)]);
    }

    proptest! {
        #[test]
        fn spaced_and_never_a_small_step(
            steps in prop::collection::vec((1u64..3_000, 1u64..200, 0u32..60), 1..200),
        ) {
            let mut a = advertiser();
            let (mut now, mut last) = (0, None::<(u64, Quality)>);
            for (pause, latency, loss) in steps {
                now += pause;
                let at = Time::from_millis(now);
                let q = quality(latency, f64::from(loss) / 100.0);
                a.update(at, q, Duration::ZERO);
                if let Some(said) = a.poll(at) {
                    if let Some((then, before)) = last {
                        prop_assert!(now - then >= 50);
                        prop_assert!(said != before);
                    }
                    prop_assert!(said.loss >= q.loss && said.latency >= q.latency);
                    last = Some((now, said));
                } else if let Some((then, said)) = last {
                    // Suppressed only while it is no worse, or too early.
                    prop_assert!(now - then < 50 || q.loss <= said.loss * 1.25 + 0.005);
                }
                prop_assert!(a.next_timeout().is_none_or(|t| t > at));
            }
        }
    }
}
