//! Link costs by the metrics of Amir et al. 2005, IV-B.
//!
//! Every node of an overlay must compute the same costs from the same updates, or packets loop: so
//! costs are computed with integers where possible, and with `libm` for the logarithm.

use crate::link::LinkCost;
use crate::link::cost::{WHOLE, tenths};
use crate::wire::Metric;
use core::time::Duration;
use ring::digest::{SHA256, digest};

/// Formula of the expected latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Formula {
    /// (1−p)·T + (p−r)·(3T+Δ) + r·max(Tmax, 3T+Δ), with r as advertised: grows with each of T, p
    /// and r.
    #[default]
    Measured,
    /// The paper's formula, for comparison: (1−p)·T + (p−2p²+3p³)·(3T+Δ) + (2p²−3p³)·Tmax, but no
    /// less than the smallest cost. It falls again above p ≈ 0.5 and is negative at p = 1, so that
    /// a dead link attracts traffic.
    Paper,
}

impl Formula {
    /// Every formula, in the order of declaration.
    pub const ALL: [Formula; 2] = [Formula::Measured, Formula::Paper];

    /// Name of the formula in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Formula::Measured => "measured",
            Formula::Paper => "paper",
        }
    }

    /// Number of the formula in the [digest](CostModel::digest).
    fn number(self) -> u8 {
        match self {
            Formula::Measured => 0,
            Formula::Paper => 1,
        }
    }
}

/// How costs are computed; must be the same at every node of an overlay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostModel {
    /// Formula used for [`Metric::ExpectedLatency`].
    pub formula: Formula,
    /// Δ: time from a loss to its detection; up to 10 s, in steps of 0.1 ms, rounded down.
    pub detection: Duration,
    /// Tmax: delay that is assumed for a packet that stays missing; 1 ms to 10 s, in steps of 0.1
    /// ms, rounded down.
    pub deadline: Duration,
}

impl Default for CostModel {
    /// Returns the paper's parameters (IV-B): Δ = 2 ms, Tmax = 100 ms.
    fn default() -> CostModel {
        CostModel {
            formula: Formula::default(),
            detection: Duration::from_millis(2),
            deadline: Duration::from_millis(100),
        }
    }
}

/// The cost of a link that nothing crosses: used only where there is no other path.
pub const UNUSABLE: u32 = u32::MAX;
/// Maximum detection time and maximum deadline.
const LONGEST: Duration = Duration::from_secs(10);
/// Minimum deadline of a model.
const SHORTEST: Duration = Duration::from_millis(1);
/// Precedes the settings in the [digest](CostModel::digest). It changes whenever the computation of
/// costs from them changes.
const CONTEXT: &[u8] = b"trunkline routing 1\0";
/// Scale of [`Metric::Loss`]: its cost is −ln(1 − p) times this, so one unit is a loss of about
/// 10⁻⁶.
const LOSS_SCALE: f64 = 1_048_576.0;

impl CostModel {
    /// Checks that all settings are within their ranges.
    ///
    /// # Errors
    ///
    /// The configuration key that is out of its range, and the range.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(SHORTEST..=LONGEST).contains(&self.deadline) {
            return Err("[routing] deadline: 1 ms to 10 s");
        }
        if self.detection > LONGEST {
            return Err("[routing] detection: 0 ms to 10 s");
        }
        Ok(())
    }

    /// Identifies all settings that nodes must share: two models with the same digest compute the
    /// same costs. Nodes advertise it, so that a node with different settings is noticed.
    ///
    /// The first four bytes, as a big-endian number, of the SHA-256 of
    /// `"trunkline routing 1\0"`, the formula (one byte: 0 for [`Formula::Measured`], 1 for
    /// [`Formula::Paper`]), the deadline and the detection time (each 32 bits, big endian, in 0.1
    /// ms, rounded down). The digest of the defaults is 0x459c015f.
    pub fn digest(&self) -> u32 {
        let (detection, deadline) = (in_tenths(self.detection), in_tenths(self.deadline));
        let formula = [self.formula.number()];
        let (deadline, detection) = (deadline.to_be_bytes(), detection.to_be_bytes());
        let settings = [CONTEXT, &formula, &deadline, &detection].concat();
        let hash = digest(&SHA256, &settings);
        hash.as_ref().first_chunk().copied().map_or(0, u32::from_be_bytes)
    }

    /// Cost of a link: at least 1, so that every further link makes a path longer and no two nodes
    /// can each consider the other to be closer. [`UNUSABLE`] if all packets are lost (except with
    /// [`Formula::Paper`]).
    pub fn cost(&self, metric: Metric, link: &LinkCost) -> u32 {
        let paper = metric == Metric::ExpectedLatency && self.formula == Formula::Paper;
        if link.loss == u16::MAX && !paper {
            return UNUSABLE;
        }
        let added = u32::from(link.penalty);
        // In the same unit as `measured`, and below 2²⁴.
        let weighed = ((u64::from(added) * WHOLE) >> 8) as u32;
        let cost = match metric {
            Metric::ExpectedLatency if paper => self.paper(link).saturating_add(weighed),
            Metric::ExpectedLatency => self.measured(link).saturating_add(weighed),
            Metric::Latency => u32::from(link.latency) + added,
            Metric::Loss => {
                let p = f64::from(link.loss) / 65_535.0;
                1 + (-libm::log1p(-p) * LOSS_SCALE) as u32
            }
            Metric::Hops => 1,
        };
        cost.max(1)
    }

    fn times(&self, link: &LinkCost) -> (u64, u64, u64) {
        let t = u64::from(link.latency);
        let recovered = 3 * t + u64::from(in_tenths(self.detection));
        (t, recovered, u64::from(in_tenths(self.deadline)))
    }

    /// Expected latency in units of 0.1 ms · 256 / 65,535, about 0.4 µs.
    fn measured(&self, link: &LinkCost) -> u32 {
        let (t, recovered, missed) = self.times(link);
        let p = u64::from(link.loss);
        let r = u64::from(link.residual).min(p);
        // On a long link, a recovered packet arrives later than Tmax; if a missed one cost less
        // than that, loss would be rewarded.
        let missed = missed.max(recovered);
        let sum = (WHOLE - p) * t + (p - r) * recovered + r * missed;
        u32::try_from(sum >> 8).unwrap_or(UNUSABLE)
    }

    fn paper(&self, link: &LinkCost) -> u32 {
        let (t, recovered, missed) = self.times(link);
        let (t, recovered, missed) = (t as f64, recovered as f64, missed as f64);
        let p = f64::from(link.loss) / 65_535.0;
        let lost = 2.0 * p * p - 3.0 * p * p * p;
        let sum = (1.0 - p) * t + (p - lost) * recovered + lost * missed;
        (sum * 65_535.0 / 256.0) as u32
    }
}

/// Converts to units of 0.1 ms, in which costs are computed; at most 100,000.
fn in_tenths(setting: Duration) -> u32 {
    tenths(setting.min(LONGEST)) as u32
}

impl Metric {
    /// A path's cost in readable units: milliseconds for the two latencies, the share of packets
    /// lost for loss, and the number of links.
    pub fn readable(self, cost: u64) -> f64 {
        match self {
            Metric::ExpectedLatency => cost as f64 * 256.0 / WHOLE as f64 / 10.0,
            Metric::Latency => cost as f64 / 10.0,
            Metric::Loss => 1.0 - libm::exp(-(cost as f64) / LOSS_SCALE),
            Metric::Hops => cost as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::cost::UNIT;
    use crate::wire::UnknownMetric;
    use proptest::prelude::*;

    fn link() -> impl Strategy<Value = LinkCost> {
        any::<[u16; 4]>().prop_map(|[latency, loss, residual, penalty]| LinkCost {
            latency,
            loss,
            residual,
            penalty,
        })
    }

    proptest! {
        #[test]
        fn worse_is_never_cheaper(
            a in link(), dt: u16, dp: u16, dr: u16, da: u16, deadline in 1u64..=10_000, detection in 0u64..=10_000,
        ) {
            let [deadline, detection] = [deadline, detection].map(Duration::from_millis);
            let model = CostModel { deadline, detection, ..CostModel::default() };
            let worse = LinkCost {
                latency: a.latency.saturating_add(dt),
                loss: a.loss.saturating_add(dp),
                residual: a.residual.saturating_add(dr),
                penalty: a.penalty.saturating_add(da),
            };
            for metric in Metric::ALL {
                let (low, high) = (model.cost(metric, &a), model.cost(metric, &worse));
                prop_assert!(1 <= low && low <= high, "{metric}: {low} {high}");
            }
        }

        #[test]
        fn a_link_that_loses_everything_attracts_nothing(a in link(), b in link()) {
            let dead = LinkCost { loss: u16::MAX, ..a };
            for metric in Metric::ALL {
                let model = CostModel::default();
                prop_assert!(model.cost(metric, &dead) >= model.cost(metric, &b));
            }
        }

        #[test]
        fn an_update_carries_what_was_rounded_for_it(a in link()) {
            let sent = a.as_sent();
            prop_assert_eq!(sent.as_sent(), sent);
            prop_assert_eq!((sent.latency, sent.loss), (a.latency, a.loss));
            prop_assert_eq!(sent.penalty, a.penalty);
            let off = i32::from(sent.residual) - i32::from(a.residual.min(a.loss));
            prop_assert!(off.unsigned_abs() <= u32::from(a.loss) / 510 + 1);
        }
    }

    #[test]
    fn expected_latency_is_the_formula() {
        let model = CostModel::default();
        let ms = |cost: u32| f64::from(cost) * 256.0 / 65_535.0 / 10.0;
        let link = LinkCost::measured(Duration::from_millis(10), 0.05, None);
        let (p, t): (f64, f64) = (0.05, 10.0);
        let r = 2.0 * p * p - p * p * p;
        let want = (1.0 - p) * t + (p - r) * (3.0 * t + 2.0) + r * 100.0;
        assert!((ms(model.cost(Metric::ExpectedLatency, &link)) - want).abs() < 0.02);
        let r = 2.0 * p * p - 3.0 * p * p * p;
        let want = (1.0 - p) * t + (p - r) * (3.0 * t + 2.0) + r * 100.0;
        let paper = CostModel { formula: Formula::Paper, ..model };
        assert!((ms(paper.cost(Metric::ExpectedLatency, &link)) - want).abs() < 0.02);
        // The paper's formula prefers a dead link; ours does not.
        let dead = LinkCost { loss: u16::MAX, ..link };
        assert_eq!(paper.cost(Metric::ExpectedLatency, &dead), 1);
        assert_eq!(model.cost(Metric::ExpectedLatency, &dead), UNUSABLE);
    }

    /// The test vectors of docs/protocol.md.
    #[test]
    fn the_digest_is_of_all_settings_as_they_are_computed_with() {
        let digest = |formula, deadline, detection| {
            let [deadline, detection] = [deadline, detection].map(Duration::from_micros);
            CostModel { formula, deadline, detection }.digest()
        };
        assert_eq!(CostModel::default().digest(), 0x459c_015f);
        for (formula, deadline, detection, expected) in [
            (Formula::Measured, 100_000, 2_000, 0x459c_015f),
            (Formula::Paper, 100_000, 2_000, 0x588f_9fd3),
            (Formula::Measured, 120_000, 2_000, 0x35da_aa10),
            (Formula::Measured, 100_000, 2_100, 0x88e6_acf0),
            (Formula::Measured, 10_000_000, 0, 0xf535_565a),
        ] {
            assert_eq!(digest(formula, deadline, detection), expected);
        }
        // Differences below the precision of costs don't change the digest.
        assert_eq!(digest(Formula::Measured, 100_099, 2_050), 0x459c_015f);
    }

    #[test]
    fn a_deadline_moves_the_cost_of_what_stays_missing() {
        let link = LinkCost::measured(Duration::from_millis(10), 0.1, Some(0.02));
        let ms = |deadline| {
            let deadline = Duration::from_millis(deadline);
            let model = CostModel { deadline, ..CostModel::default() };
            assert_eq!(model.check(), Ok(()));
            let cost = model.cost(Metric::ExpectedLatency, &link);
            Metric::ExpectedLatency.readable(cost.into())
        };
        // 2 % of the packets take 20 ms more.
        assert!((ms(120) - ms(100) - 0.4).abs() < 0.01, "{} {}", ms(120), ms(100));
        let wrong = |deadline, detection| {
            let [deadline, detection] = [deadline, detection].map(Duration::from_micros);
            CostModel { deadline, detection, ..CostModel::default() }.check().unwrap_err()
        };
        assert_eq!(wrong(999, 2_000), "[routing] deadline: 1 ms to 10 s");
        assert_eq!(wrong(10_000_001, 2_000), "[routing] deadline: 1 ms to 10 s");
        assert_eq!(wrong(100_000, 10_000_001), "[routing] detection: 0 ms to 10 s");
    }

    #[test]
    fn a_penalty_counts_in_full_by_both_latencies_and_not_by_loss_or_hops() {
        let bare = LinkCost::measured(Duration::from_millis(10), 0.05, None);
        let with = bare.with_penalty(Duration::from_millis(20));
        let models = [Formula::Measured, Formula::Paper];
        for model in models.map(|formula| CostModel { formula, ..CostModel::default() }) {
            let more = |m: Metric| model.cost(m, &with) - model.cost(m, &bare);
            assert_eq!(more(Metric::Latency), 200);
            assert!(
                (Metric::ExpectedLatency.readable(more(Metric::ExpectedLatency).into()) - 20.0)
                    .abs()
                    < 0.01
            );
            assert_eq!([Metric::Loss, Metric::Hops].map(more), [0, 0]);
        }
        assert_eq!(bare.with_penalty(Duration::from_secs(60)).penalty, u16::MAX);
        let dead = LinkCost { loss: u16::MAX, ..with };
        assert_eq!(CostModel::default().cost(Metric::ExpectedLatency, &dead), UNUSABLE);
    }

    proptest! {
        #[test]
        fn what_is_expected_to_fail_is_dearer_and_stays_a_way(a in link(), x in 0f64..0.9, y in 0f64..0.9) {
            let model = CostModel::default();
            let (less, more) = (a.expected_to_lose(x.min(y)), a.expected_to_lose(x.max(y)));
            prop_assert_eq!(a.expected_to_lose(0.0).as_sent(), a.as_sent());
            prop_assert_eq!((more.latency, more.penalty), (a.latency, a.penalty));
            for metric in Metric::ALL {
                let cost = model.cost(metric, &more.as_sent());
                // The residual loss is rounded for the wire.
                prop_assert!(cost >= model.cost(metric, &less.as_sent()) / 256 * 255, "{}", metric);
                let usable = a.loss < u16::MAX - 5 && model.cost(metric, &a) < UNUSABLE;
                prop_assert!(!usable || cost < UNUSABLE, "{}: never absent", metric);
            }
        }
    }

    #[test]
    fn half_of_a_link_that_keeps_failing_counts_as_missed() {
        let model = CostModel::default();
        let good = LinkCost::measured(Duration::from_millis(10), 0.0, None);
        let ms = |c: &LinkCost| {
            let cost = model.cost(Metric::ExpectedLatency, c);
            Metric::ExpectedLatency.readable(cost.into())
        };
        let with = |share| ms(&good.expected_to_lose(share).as_sent());
        // The expected value is (1 − q)·10 ms + q·100 ms.
        assert!((with(0.5) - 55.0).abs() < 0.1 && (with(0.75) - 77.5).abs() < 0.1);
        let loss = |c| model.cost(Metric::Loss, &c);
        assert!(loss(good.expected_to_lose(0.5)) > loss(LinkCost { loss: 20_000, ..good }));
    }

    #[test]
    fn losses_add_up_and_names_come_back() {
        let model = CostModel::default();
        let loss = |p| model.cost(Metric::Loss, &LinkCost::measured(UNIT, p, None));
        let (one, two) = (loss(0.1), loss(0.19));
        assert!(two.abs_diff(2 * one) < 40, "{one} {two}");
        assert_eq!(loss(f64::NAN), UNUSABLE);
        for metric in Metric::ALL {
            assert_eq!(metric.name().parse(), Ok(metric));
            assert_eq!(Metric::from_wire(metric.to_wire()), metric);
        }
        assert_eq!("delay".parse::<Metric>(), Err(UnknownMetric));
    }
}
