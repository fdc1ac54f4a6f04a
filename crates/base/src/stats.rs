//! Statistics with confidence intervals.

/// The 97.5 % quantile of the normal distribution: half the width of a 95 % interval, in standard
/// errors.
pub const Z: f64 = 1.959_963_984_540_054;

/// Number of events in the burst that stands for those of an unknown network: the mean at a
/// burstiness of 90 %.
const UNSEEN_BURST: f64 = 10.0;

/// A share of events, measured in clusters whose members may depend on each other: losses come in
/// bursts, but one second has little influence on the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Number of events that happened.
    pub events: u64,
    /// Number of cases in which an event could have happened.
    pub cases: u64,
    /// `events / cases`; 0 without cases.
    pub estimate: f64,
    /// Standard error of the estimate, from the differences between clusters; 0 with fewer than
    /// two.
    pub standard_error: f64,
    /// The variance of the estimate divided by that of as many independent cases (Kish, *Survey
    /// Sampling*, 1965): about the number of events in a burst, and 1 or more.
    pub design_effect: f64,
    /// 95 % interval of the estimate, within 0 to 1: Wilson's (1927) with the cases and events
    /// divided by the design effect (Franco, Little, Louis, Slud, *Comparative study of confidence
    /// intervals for proportions in complex sample surveys*, 2019). Unlike one by Student's t, it
    /// is not symmetric, and not narrow by chance when few bursts have been seen.
    pub interval: (f64, f64),
}

impl Ratio {
    /// Estimates the share from `(events, cases)` of each cluster, with the variance of the ratio
    /// estimator of cluster sampling (Cochran, *Sampling Techniques*, 1977, chapter 6). Without
    /// differences between clusters, as in a single one, cases count as independent.
    pub fn of_clusters(clusters: &[(u64, u64)]) -> Ratio {
        Ratio::with_burst(clusters, 0.0)
    }

    /// As [`Ratio::of_clusters`], for losses of a network that may come in bursts of which few or
    /// none have been seen: where the design effect is estimated, a burst of ten is added to them.
    /// The losses of a single cluster count as one burst.
    pub fn of_losses(clusters: &[(u64, u64)]) -> Ratio {
        Ratio::with_burst(clusters, UNSEEN_BURST)
    }

    /// As [`Ratio::of_losses`], for those of the losses `all` that remain after recovery: the burst
    /// that is added gives them the design effect of all losses while few have been seen. However
    /// much of a burst recovery hides, the rest is as long on average, if bursts end at any time
    /// with the same probability.
    pub fn of_remaining(clusters: &[(u64, u64)], all: &Ratio) -> Ratio {
        Ratio::with_burst(clusters, all.design_effect)
    }

    fn with_burst(clusters: &[(u64, u64)], burst: f64) -> Ratio {
        let events: u64 = clusters.iter().map(|c| c.0).sum();
        let cases: u64 = clusters.iter().map(|c| c.1).sum();
        let estimate = if cases == 0 { 0.0 } else { events as f64 / cases as f64 };
        let n = clusters.iter().filter(|c| c.1 > 0).count() as f64;
        // Few clusters make the variance itself uncertain (Korn, Graubard, *Confidence intervals
        // for proportions with small expected number of positive counts*, 1998).
        let (mut variance, mut uncertain) = (0.0, 1.0);
        if n >= 2.0 {
            let residuals = clusters.iter().map(|&(e, c)| e as f64 - estimate * c as f64);
            variance = n / (n - 1.0) * residuals.map(|r| r * r).sum::<f64>();
            uncertain = t_quantile(n - 1.0) / Z;
        }
        let standard_error = if cases == 0 { 0.0 } else { libm::sqrt(variance) / cases as f64 };
        let independent = events as f64 * (1.0 - estimate);
        // All losses of one cluster may be a single burst.
        let spread = if n < 2.0 && burst > 0.0 { independent * independent } else { variance };
        let effect = (spread * uncertain * uncertain + burst * burst) / (independent + burst);
        // Less than 1 is by chance, or of events that avoid each other.
        let design_effect = if effect.is_finite() { effect.max(1.0) } else { 1.0 };
        let interval = wilson(events as f64 / design_effect, cases as f64 / design_effect);
        Ratio { events, cases, estimate, standard_error, design_effect, interval }
    }
}

/// A mean of independent values, with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean; 0 without values.
    pub estimate: f64,
    /// 95 % interval by Student's t; NaN with fewer than two values, which say nothing about their
    /// spread.
    pub interval: (f64, f64),
}

impl Mean {
    /// Estimates the mean of `values`.
    pub fn of(values: &[f64]) -> Mean {
        let n = values.len() as f64;
        let estimate = if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / n };
        let squares: f64 = values.iter().map(|v| (v - estimate) * (v - estimate)).sum();
        let half = match values.len() {
            0 | 1 => f64::NAN,
            _ => t_quantile(n - 1.0) * libm::sqrt(squares / (n - 1.0) / n),
        };
        Mean { estimate, interval: (estimate - half, estimate + half) }
    }
}

/// The 95 % interval of the mean number of events, given a count of independent ones (Garwood,
/// *Fiducial limits for the Poisson distribution*, 1936). For a count of 0 it ends at 3.69. It is
/// exact for up to 100,000 events; beyond, it is Wilson and Hilferty's (*The distribution of
/// chi-square*, 1931), which differs by less than 0.001 events there.
pub fn poisson(events: u64) -> (f64, f64) {
    const MAX_EXACT: u64 = 100_000;
    if events > MAX_EXACT {
        return (wilson_hilferty(events as f64, -Z), wilson_hilferty(events as f64 + 1.0, Z));
    }
    let low = if events == 0 { 0.0 } else { poisson_mean(events - 1, 0.975) };
    (low, poisson_mean(events, 0.025))
}

/// The quantile of the gamma distribution of this `shape` and scale 1 that is `z` standard
/// deviations from the middle of the normal distribution.
fn wilson_hilferty(shape: f64, z: f64) -> f64 {
    let root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * libm::sqrt(shape));
    shape * root * root * root
}

/// The mean at which P(at most `events` events) is `probability`.
fn poisson_mean(events: u64, probability: f64) -> f64 {
    let at_most = |mean: f64| {
        let (mut log, mut sum) = (-mean, libm::exp(-mean));
        for k in 1..=events {
            log += libm::log(mean / k as f64);
            sum += libm::exp(log);
        }
        sum
    };
    let (mut low, mut high) = (0.0, 10.0 + 2.0 * events as f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let bound = if at_most(middle) > probability { &mut low } else { &mut high };
        *bound = middle;
    }
    (low + high) / 2.0
}

/// The 95 % interval of [`quantile`] for any distribution: the values whose ranks are 1.96 standard
/// deviations of the binomial distribution away (Conover, *Practical Nonparametric Statistics*,
/// 1999, section 3.2). With few values it ends at the smallest or largest value, and covers less
/// than 95 %. `None` with fewer than two values, which say nothing about their spread.
pub fn quantile_interval<T: Copy>(sorted: &[T], share: f64) -> Option<(T, T)> {
    if sorted.len() < 2 {
        return None;
    }
    let n = sorted.len() as f64;
    let half = Z * libm::sqrt(n * share * (1.0 - share));
    let rank = |r: f64| libm::ceil(r).clamp(1.0, n.max(1.0)) as usize - 1;
    let at = |r: f64| sorted.get(rank(r)).copied();
    Some((at(n * share - half)?, at(n * share + half + 1.0)?))
}

/// Student's 97.5 % quantile for `v` degrees of freedom. From four on, the series of Abramowitz and
/// Stegun (26.7.5) is within 0.3 %; below, it is too low, so those are tabulated.
fn t_quantile(v: f64) -> f64 {
    const OF_FEW: [f64; 3] = [12.706, 4.303, 3.182];
    if let Some(quantile) = OF_FEW.get((v as usize).saturating_sub(1)) {
        return *quantile;
    }
    let z2 = Z * Z;
    let g1 = Z * (z2 + 1.0) / 4.0;
    let g2 = Z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let g3 = Z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    Z + (g1 + (g2 + g3 / v) / v) / v
}

fn wilson(events: f64, cases: f64) -> (f64, f64) {
    if cases == 0.0 {
        return (0.0, 1.0);
    }
    let (p, z2) = (events / cases, Z * Z);
    let middle = p + z2 / (2.0 * cases);
    let half = Z * libm::sqrt(p * (1.0 - p) / cases + z2 / (4.0 * cases * cases));
    let scale = 1.0 + z2 / cases;
    // Rounding must not exclude 0 where no event happened, nor 1 where every case was an event.
    let low = if events == 0.0 { 0.0 } else { (middle - half) / scale };
    let high = if events == cases { 1.0 } else { (middle + half) / scale };
    (low, high)
}

/// The value at `share` (0 to 1) of sorted `values`: the smallest value that at least this share of
/// them do not exceed. `None` if there are none.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = libm::ceil(share * sorted.len() as f64) as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() < by, "{a} is not {b}");
    }

    #[test]
    fn known_values() {
        for (v, t) in [(4.0, 2.776_4), (9.0, 2.262_2), (59.0, 2.001_0)] {
            near(t_quantile(v), t, 0.003 * t);
        }
        // Wilson at 0 of 100 independent cases: z² / (100 + z²).
        let none = Ratio::of_clusters(&[(0, 50), (0, 50)]);
        assert_eq!((none.estimate, none.interval.0), (0.0, 0.0));
        near(none.interval.1, 0.036_993_5, 1e-7);
        // Clusters of equal size reduce to the standard error of a mean: 1, 2 and 3 events of 10
        // cases.
        let three = Ratio::of_clusters(&[(1, 10), (2, 10), (3, 10)]);
        near(three.estimate, 0.2, 1e-12);
        near(three.standard_error, 0.1 / 3f64.sqrt(), 1e-12);
    }

    /// No, one and 10⁶ events, in no, one or several clusters, also of different size.
    #[test]
    fn every_share_has_an_interval() {
        let all: [(&[(u64, u64)], f64); 12] = [
            (&[], 0.0),
            (&[(0, 0)], 0.0),
            (&[(0, 1)], 0.0),
            (&[(1, 1)], 1.0),
            (&[(0, 30_000)], 0.0),
            (&[(1, 30_000)], 1.0 / 3e4),
            (&[(1, 500), (0, 500), (0, 0)], 1e-3),
            (&[(1_000_000, 1_000_000)], 1.0),
            (&[(1_000_000, 2_000_000), (1_000_000, 2_000_000)], 0.5),
            (&[(1_000_000, 1_000_000), (0, 1_000_000)], 0.5),
            (&[(1_000_000, 1_000_000), (0, 1)], 1e6 / (1e6 + 1.0)),
            (&[(1, 500), (1_000_000, 4_000_000)], 1_000_001.0 / 4_000_500.0),
        ];
        for (clusters, share) in all {
            let losses = Ratio::of_losses(clusters);
            let remaining = Ratio::of_remaining(clusters, &losses);
            for ratio in [Ratio::of_clusters(clusters), losses, remaining] {
                let (low, high) = ratio.interval;
                near(ratio.estimate, share, 1e-12);
                assert!(0.0 <= low && low <= share && share <= high && high <= 1.0, "{ratio:?}");
                assert!(ratio.design_effect >= 1.0 && low < high, "{ratio:?}");
            }
        }
        // Equal clusters are as sure as independent cases, never surer.
        let equal = Ratio::of_clusters(&[(10, 100); 4]);
        assert_eq!((equal.design_effect, equal.interval), (1.0, wilson(40.0, 400.0)));
    }

    #[test]
    fn bursts_widen_intervals() {
        // Three bursts of ten losses in a minute of 500 packets a second are three events.
        let mut seconds = [(0, 500); 60];
        for burst in [3, 20, 41] {
            seconds[burst].0 = 10;
        }
        let bursts = Ratio::of_clusters(&seconds);
        near(bursts.design_effect, 10.0, 0.5);
        near(bursts.interval.1, wilson(3.0, 3_000.0).1, 1e-4);
        // Where none has been seen, one of ten counts, but not beside many losses.
        let none = [(0, 500); 60];
        near(Ratio::of_losses(&none).design_effect, 10.0, 1e-9);
        let singly: Vec<_> = (0..60).map(|n| (20 + n % 7, 500)).collect();
        let singly = Ratio::of_losses(&singly);
        near(singly.design_effect, 1.0, 0.1);
        near(Ratio::of_remaining(&none, &singly).design_effect, 1.0, 0.1);
        // A single cluster does not tell how they came.
        let (low, high) = Ratio::of_losses(&[(300, 30_000)]).interval;
        assert!(low < 0.002 && high > 0.05, "{low} {high}");
        // Losses that remain of some in bursts come in bursts, too.
        let bursts = Ratio::of_losses(&seconds);
        let left = Ratio::of_remaining(&none, &bursts);
        near(left.design_effect, bursts.design_effect, 1e-9);
        assert!(left.interval.1 > 9.0 * Ratio::of_clusters(&none).interval.1);
    }

    /// Limits of the Poisson distribution as tabulated in Garwood's paper.
    #[test]
    fn counts_of_rare_events() {
        for (events, (low, high)) in
            [(0, (0.0, 3.688_9)), (1, (0.025_3, 5.571_6)), (10, (4.795_4, 18.390_4))]
        {
            let interval = poisson(events);
            near(interval.0, low, 1e-4);
            near(interval.1, high, 1e-4);
        }
        // For large counts the interval approaches the normal one: ±1.96 √n.
        let (low, high) = poisson(10_000);
        near(low, 9_805.0, 2.0);
        near(high, 10_198.0, 2.0);
    }

    /// The interval of a large count takes no longer, and continues where the exact one ends.
    #[test]
    fn counts_of_frequent_events() {
        let (exact, beyond) = (poisson(100_000), poisson(100_001));
        near(beyond.0 - exact.0, 1.0, 0.01);
        near(beyond.1 - exact.1, 1.0, 0.01);
        for events in [1e6, 1e12, 1e18] {
            let (low, high) = poisson(events as u64);
            near((events - low) / libm::sqrt(events), Z, 2e-3);
            near((high - events) / libm::sqrt(events), Z, 3e-3);
        }
        let (low, high) = poisson(u64::MAX);
        assert!(low < high && high.is_finite());
    }

    #[test]
    fn clusters_of_twins_are_half_as_sure() {
        // Counting each event twice leaves the interval as wide as before.
        let once: Vec<_> = (0..100).map(|i| (u64::from(i % 7 == 0), 1)).collect();
        let twice: Vec<_> = once.iter().map(|&(e, c)| (2 * e, 2 * c)).collect();
        let (a, b) = (Ratio::of_clusters(&once), Ratio::of_clusters(&twice));
        near(a.standard_error, b.standard_error, 1e-12);
    }

    #[test]
    fn means_by_hand() {
        // 2, 4, 6, 8, 10: s² = 10, t = 2.776 for four degrees of freedom.
        let mean = Mean::of(&[2.0, 4.0, 6.0, 8.0, 10.0]);
        near(mean.interval.1 - mean.estimate, 2.776_4 * 2f64.sqrt(), 0.012);
        near(mean.estimate - 6.0, 0.0, 1e-12);
        for few in [&[][..], &[3.0]] {
            let (low, high) = Mean::of(few).interval;
            assert!(low.is_nan() && high.is_nan());
        }
        assert_eq!((Mean::of(&[3.0]).estimate, Mean::of(&[]).estimate), (3.0, 0.0));
        assert_eq!(Mean::of(&[3.0; 4]).interval, (3.0, 3.0));
    }

    #[test]
    fn intervals_of_quantiles_are_ranks() {
        // 500 values: 25 ± 1.96 √23.75 = 25 ± 9.55, so ranks 16 and 36.
        let sorted: Vec<u32> = (1..=500).collect();
        assert_eq!(quantile_interval(&sorted, 0.05), Some((16, 36)));
        assert_eq!(quantile_interval(&[7], 0.05), None);
        assert_eq!(quantile_interval::<u8>(&[], 0.05), None);
    }

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let sorted = [10, 20, 30, 40];
        let at = |share| quantile(&sorted, share).unwrap();
        assert_eq!([0.0, 0.25, 0.5, 0.51, 1.0].map(at), [10, 10, 20, 30, 40]);
        assert_eq!(quantile::<u8>(&[], 0.5), None);
    }
}
