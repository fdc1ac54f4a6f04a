use super::*;
use proptest::prelude::*;
use trunkline_base::link_model::{Chain, Impairment, LinkModel, Loss, PacketFate};

const SPACING: Duration = Duration::from_millis(20);

/// Feeds packets at one call's rate, numbered from `from`; returns how many it takes until the
/// estimate exceeds `bound`.
fn feed(m: &mut LossMeter, from: u64, packets: u64, loss: &Loss, bound: f64) -> Option<u64> {
    let model = LinkModel { loss: loss.clone(), ..LinkModel::default() };
    let mut wire = Impairment::new(model, from, 0).unwrap();
    (from..from + packets)
        .find(|&k| {
            let now = Time::ZERO + SPACING * u32::try_from(k).unwrap();
            if let PacketFate::Deliver(at) = wire.offer(now, 100) {
                m.on_envelope(at, k);
            }
            m.estimate().is_some_and(|e| e.loss > bound)
        })
        .map(|k| k - from)
}

fn bursts(p: f64, b: f64) -> Loss {
    Loss::Burst { p, b, chain: Chain::PerPacket }
}

const NEVER: f64 = 2.0;

proptest! {
    /// Every envelope counts once, as received or lost, in any order within the window.
    #[test]
    fn all_are_counted(keys in prop::collection::vec((any::<bool>(), 0u64..3), 10..400)) {
        let mut order: Vec<(u64, u64)> = keys
            .iter()
            .zip(0..)
            .filter(|((lost, _), _)| !lost)
            .map(|((_, shift), n)| (n + shift, n))
            .collect();
        order.sort();
        let mut m = LossMeter::new(LossMode::Changes);
        let (mut seen, mut late) = (std::collections::BTreeSet::new(), 0);
        let first = order.first().map_or(0, |o| o.1);
        for (_, n) in order {
            // A number before the first was never expected.
            late += u64::from(n < first);
            m.on_envelope(Time::from_millis(n), 1_000 + n);
            seen.insert(n);
        }
        let (received, lost) = m.totals();
        let span = seen.last().map_or(0, |last| last + 1 - first);
        prop_assert!(received <= seen.len() as u64 - late);
        // Undecided numbers still need later ones.
        prop_assert!(received + lost <= span);
        prop_assert!(received + 3 > seen.len() as u64 - late, "shifts of 2 are no loss");
    }

    #[test]
    fn any_numbers_end(counters in prop::collection::vec(any::<u64>(), 1..200), paper in any::<bool>()) {
        let mode = if paper { LossMode::Paper } else { LossMode::Changes };
        let mut m = LossMeter::new(mode);
        for (n, ms) in counters.into_iter().zip(0..) {
            m.on_envelope(Time::from_millis(ms), n);
            let e = m.estimate().unwrap_or_default();
            prop_assert!((0.0..=1.0).contains(&e.loss) && (0.0..=1.0).contains(&e.burst), "{e:?}");
        }
    }
}

#[test]
fn lost_after_three_later_ones() {
    let mut m = LossMeter::new(LossMode::Changes);
    let mut come = |n| {
        m.on_envelope(Time::from_millis(n), n);
        m.totals()
    };
    assert_eq!([5, 6, 8, 9].map(&mut come)[3], (2, 0));
    assert_eq!(come(7), (5, 0), "only late");
    assert_eq!([11, 12, 13].map(&mut come)[2], (8, 1));
    assert_eq!(come(10), (8, 1), "too late");
    // Far beyond the window.
    assert_eq!([2_000, 2_001, 2_002].map(&mut come)[2], (11, 1 + 2_000 - 14));
}

#[test]
fn the_papers_meter_counts_events() {
    let mut m = LossMeter::new(LossMode::Paper);
    feed(&mut m, 0, 40_000, &bursts(0.05, 0.75), NEVER);
    let loss = m.estimate().unwrap().loss;
    assert!((0.008..0.019).contains(&loss), "1.3 % in the mean: {loss}");
    let mut m = LossMeter::new(LossMode::Paper);
    feed(&mut m, 0, 40_000, &Loss::Bernoulli { p: 0.05 }, NEVER);
    let loss = m.estimate().unwrap().loss;
    assert!((0.03..0.08).contains(&loss), "{loss}");
}

#[test]
fn the_estimate_is_right_and_calm() {
    for (p, b) in [(0.01, 0.0), (0.05, 0.75), (0.3, 0.3), (0.1, 0.9)] {
        let mut m = LossMeter::new(LossMode::Changes);
        feed(&mut m, 0, 100_000, &bursts(p, b), NEVER);
        let (before, e) = (m.changes(), m.estimate().unwrap());
        assert!((e.loss / p - 1.0).abs() < 0.5 && (e.burst - b).abs() < 0.05, "{p} {b}: {e:?}");
        feed(&mut m, 100_000, 400_000, &bursts(p, b), NEVER);
        assert!(m.changes() - before <= 1, "{p} {b}");
    }
}

/// A steady loss of any size is known after a hundred bursts, and seldom in doubt afterwards; the
/// cost of doubts is bounded elsewhere.
#[test]
fn a_steady_loss_is_known_and_seldom_in_doubt() {
    for p in [0.001, 0.002, 0.005, 0.008, 0.01, 0.012, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2] {
        for b in [0.0, 0.25, 0.5, 0.75] {
            let loss = if b == 0.0 { Loss::Bernoulli { p } } else { bursts(p, b) };
            let mut m = LossMeter::new(LossMode::Changes);
            let known_after = (110.0 / p / (1.0 - b)) as u64;
            feed(&mut m, 0, known_after, &loss, NEVER);
            let (mut doubtful, packets) = (0, 20_000);
            let model = LinkModel { loss, ..LinkModel::default() };
            let mut wire = Impairment::new(model, 4, 0).unwrap();
            for k in known_after..known_after + packets {
                if let PacketFate::Deliver(at) = wire.offer(Time::from_millis(20 * k), 100) {
                    m.on_envelope(at, k);
                }
                doubtful += u64::from(m.suspicion().is_some());
            }
            let share = doubtful as f64 / packets as f64;
            assert!(share < 0.15, "{p} {b}: {share}");
            let e = m.estimate().unwrap();
            // A loss below half a percent hardly matters.
            assert!((e.loss - p).abs() < (0.5 * p).max(0.003), "{p} {b}: {e:?}");
        }
    }
}

#[test]
fn a_worsening_is_found_and_an_improvement_later() {
    for before in [Loss::None, Loss::Bernoulli { p: 0.05 }, bursts(0.05, 0.75)] {
        let mut m = LossMeter::new(LossMode::Changes);
        feed(&mut m, 0, 50_000, &before, NEVER);
        let found = feed(&mut m, 50_000, 1_000, &Loss::Bernoulli { p: 0.3 }, 0.1);
        assert!(found.is_some_and(|n| (5..110).contains(&n)), "{found:?} after {before:?}");
        feed(&mut m, 60_000, 5_000, &Loss::Bernoulli { p: 0.3 }, NEVER);
        let loss = m.estimate().unwrap().loss;
        assert!((0.25..0.35).contains(&loss), "{loss}");
        feed(&mut m, 65_000, 3_000, &Loss::None, NEVER);
        assert!(m.estimate().unwrap().loss < 0.02, "{:?}", m.estimate());
    }
}

/// The loss of a young link must not be taken for its usual loss.
#[test]
fn a_worsening_is_found_as_soon_on_a_young_link() {
    let found = |calm: u64| {
        let mut found: Vec<u64> = (0..40)
            .map(|k| {
                let mut m = LossMeter::new(LossMode::Changes);
                feed(&mut m, 0, calm + k, &Loss::None, NEVER);
                let after = feed(&mut m, calm + k, 2_000, &bursts(0.3, 0.75), 0.11);
                after.unwrap_or(2_000)
            })
            .collect();
        found.sort_unstable();
        (found[20], found[38])
    };
    let (young, old) = (found(400), found(40_000));
    assert!(young.0 <= 80 && young.1 <= 160, "median and 95 %: {young:?}");
    assert!(old.0 <= 80 && old.1 <= 160, "median and 95 %: {old:?}");
}

#[test]
fn one_outage_is_no_lossy_link() {
    for mode in [LossMode::Changes, LossMode::Paper] {
        let mut m = LossMeter::new(mode);
        feed(&mut m, 0, 5_000, &Loss::None, NEVER);
        // Nine tenths of a second, then no more losses.
        feed(&mut m, 5_045, 3_000, &Loss::None, 0.01);
        assert!(m.estimate().unwrap().loss <= 0.01, "{:?}", m.estimate());
        assert_eq!(m.totals().1, 45, "it is counted, but not believed");
    }
}

#[test]
fn a_link_that_is_bad_from_the_start_is_known_to_be() {
    for loss in [Loss::Bernoulli { p: 0.3 }, bursts(0.3, 0.75), Loss::Bernoulli { p: 0.6 }] {
        let mut m = LossMeter::new(LossMode::Changes);
        feed(&mut m, 0, 250, &loss, NEVER);
        assert!(m.estimate().is_some_and(|e| e.loss > 0.1), "{:?} of {loss:?}", m.estimate());
    }
}
