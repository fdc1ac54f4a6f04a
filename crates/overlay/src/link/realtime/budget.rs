/// What may be spent on recovery beyond a request and a repetition for each
/// lost packet: earned by losses, in whatever unit is spent.
///
/// The more a link loses, the more requests fail and the more each loss needs.
/// So the share grows with the loss that is measured: half of it where little
/// is lost, all of it at 10 %, one and a half at 20 %.
#[derive(Debug)]
pub(super) struct RecoveryBudget {
    share: f64,
    most: f64,
    left: f64,
    packets: u32,
    losses: u32,
    loss: f64,
}

/// Packets over which the loss is averaged, one half from each such window.
const WINDOW: u32 = 256;

impl RecoveryBudget {
    /// A share of what is lost, kept up to `most` units.
    pub fn new(share: f64, most: f64) -> RecoveryBudget {
        let share = share.clamp(0.0, 1.0);
        RecoveryBudget { share, most, left: 0.0, packets: 0, losses: 0, loss: 0.0 }
    }

    /// A packet was sent or received, not a repetition.
    pub fn packet(&mut self) {
        self.packets += 1;
        if self.packets >= WINDOW {
            let loss = (f64::from(self.losses) / f64::from(self.packets)).min(1.0);
            self.loss = (self.loss + loss) / 2.0;
            (self.packets, self.losses) = (0, 0);
        }
    }

    /// So many packets were lost, of so many units together.
    pub fn lost(&mut self, packets: u32, units: f64) {
        self.losses = self.losses.saturating_add(packets);
        self.give(self.share * (0.5 + 5.0 * self.loss) * units);
    }

    /// Adds to what may be spent.
    pub fn give(&mut self, units: f64) {
        self.left = (self.left + units).min(self.most);
    }

    /// Spends, if there is so much.
    pub fn spend(&mut self, units: f64) -> bool {
        let enough = self.left >= units;
        if enough {
            self.left -= units;
        }
        enough
    }

    /// What may be spent.
    pub fn left(&self) -> f64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `windows` windows at one loss in `n` leave in a bucket that is
    /// emptied before the last, per lost unit.
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
