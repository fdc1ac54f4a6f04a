/// Budget for recovery beyond one request and one retransmission per lost packet. Losses earn it;
/// the caller chooses the unit.
///
/// The more a link loses, the more requests fail and the more each loss needs. The share therefore
/// grows with the measured loss: half of it at low loss, all of it at 10 %, one and a half at 20 %.
#[derive(Debug)]
pub(super) struct RecoveryBudget {
    share: f64,
    most: f64,
    left: f64,
    packets: u32,
    losses: u32,
    loss: f64,
}

/// Packets per window of the loss average; each new window weighs one half.
const WINDOW: u32 = 256;

impl RecoveryBudget {
    /// Creates a budget that earns `share` of each loss and keeps at most `most` units.
    pub fn new(share: f64, most: f64) -> RecoveryBudget {
        let share = share.clamp(0.0, 1.0);
        RecoveryBudget { share, most, left: 0.0, packets: 0, losses: 0, loss: 0.0 }
    }

    /// Counts a packet sent or received, without retransmissions.
    pub fn packet(&mut self) {
        self.packets += 1;
        if self.packets >= WINDOW {
            let loss = (f64::from(self.losses) / f64::from(self.packets)).min(1.0);
            self.loss = (self.loss + loss) / 2.0;
            (self.packets, self.losses) = (0, 0);
        }
    }

    /// Counts `packets` lost packets, which together make `units`.
    pub fn lost(&mut self, packets: u32, units: f64) {
        self.losses = self.losses.saturating_add(packets);
        self.give(self.share * (0.5 + 5.0 * self.loss) * units);
    }

    /// Adds `units` to the budget.
    pub fn give(&mut self, units: f64) {
        self.left = (self.left + units).min(self.most);
    }

    /// Spends `units` if the budget has them.
    pub fn spend(&mut self, units: f64) -> bool {
        let enough = self.left >= units;
        if enough {
            self.left -= units;
        }
        enough
    }

    /// Units left in the budget.
    pub fn left(&self) -> f64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units per loss that the last of `windows` windows leaves in the budget, at one loss in `n`
    /// packets; the budget is emptied before that window.
    fn earned(n: u32, windows: u32) -> f64 {
        let mut budget = RecoveryBudget::new(0.3, 1e9);
        for k in 0..windows * WINDOW {
            if k == (windows - 1) * WINDOW {
                let left = budget.left();
                assert!(budget.spend(left));
            }
            budget.packet();
            if k % n == 0 {
                budget.lost(1, 1.0);
            }
        }
        budget.left() / f64::from(WINDOW.div_ceil(n))
    }

    #[test]
    fn the_share_grows_with_the_loss() {
        assert_eq!(RecoveryBudget::new(0.3, 10.0).left(), 0.0);
        for (n, share) in [(256, 0.156), (10, 0.3), (5, 0.45)] {
            let got = earned(n, 20);
            assert!((got - share).abs() < 0.02, "one in {n}: {got}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut budget = RecoveryBudget::new(1.0, 10.0);
        budget.lost(1_000, 1e6);
        assert_eq!(budget.left(), 10.0);
        assert!(!budget.spend(10.5) && budget.spend(10.0) && !budget.spend(0.1));
    }
}
