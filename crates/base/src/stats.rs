//! The interval that goes beside a measured share.

/// The 95 % confidence interval of a share, from events and trials counted in
/// blocks that are independent while what happens inside one is not: losses
/// come in bursts, so packets are not independent, but seconds nearly are.
///
/// The ratio estimator for clusters (Cochran, *Sampling Techniques*, §3.12)
/// under the normal approximation; with no event or nothing but events, where
/// that gives no width, Wilson's interval. Both ends lie in 0 to 1; with no
/// trial, all of it.
pub fn share_interval(blocks: &[(u64, u64)]) -> (f64, f64) {
    let events: u64 = blocks.iter().map(|b| b.0).sum();
    let trials: u64 = blocks.iter().map(|b| b.1).sum();
    if trials == 0 {
        return (0.0, 1.0);
    }
    let n = trials as f64;
    let p = events as f64 / n;
    let used = blocks.iter().filter(|b| b.1 > 0).count() as f64;
    if events == 0 || events == trials || used < 2.0 {
        return wilson(p, n);
    }
    let square = |&(e, t): &(u64, u64)| {
        let d = e as f64 - p * t as f64;
        d * d
    };
    let sum: f64 = blocks.iter().map(square).sum();
    let half = Z * libm::sqrt(sum * used / (used - 1.0)) / n;
    ((p - half).max(0.0), (p + half).min(1.0))
}

/// The normal distribution's 97.5 % point.
const Z: f64 = 1.959_963_984_540_054;

fn wilson(p: f64, n: f64) -> (f64, f64) {
    let z2 = Z * Z;
    let middle = p + z2 / (2.0 * n);
    let half = Z * libm::sqrt(p * (1.0 - p) / n + z2 / (4.0 * n * n));
    let scale = 1.0 + z2 / n;
    (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_trials_give_the_binomial_interval() {
        // One trial a block: the clustered variance is the binomial one.
        let blocks: Vec<_> = (0..10_000).map(|i| (u64::from(i % 20 == 0), 1)).collect();
        let (low, high) = share_interval(&blocks);
        let half = 1.96 * libm::sqrt(0.05 * 0.95 / 10_000.0);
        assert!((low - (0.05 - half)).abs() < 1e-5 && (high - (0.05 + half)).abs() < 1e-5);
    }

    #[test]
    fn bursts_widen_it() {
        let even: Vec<_> = (0..100).map(|_| (5, 100)).collect();
        let bursty: Vec<_> = (0..100).map(|i| (if i % 10 == 0 { 50 } else { 0 }, 100)).collect();
        let width = |b: &[(u64, u64)]| {
            let (low, high) = share_interval(b);
            high - low
        };
        assert!(width(&even) < 1e-9 && width(&bursty) > 0.05);
    }

    #[test]
    fn nothing_seen_is_not_nothing_there() {
        let (low, high) = share_interval(&[(0, 500), (0, 500)]);
        assert!(low == 0.0 && (0.003..0.005).contains(&high), "about 3.8 in 1000: {high}");
        assert_eq!(share_interval(&[]), (0.0, 1.0));
    }
}
