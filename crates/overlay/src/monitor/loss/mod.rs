//! How much a link loses of what the neighbour sends, from the envelopes'
//! counters: whatever an envelope carries, a gap is a loss.

mod change;
mod intervals;

use change::ChangeMeter;
use core::time::Duration;
use intervals::Intervals;
use trunkline_base::Time;

/// How losses become an estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LossMode {
    /// The mean of the last 50 loss-free intervals (Amir et al. 2005, III-A).
    /// It counts events, not packets: 5 % in bursts of four reads as 1.3 %.
    Paper,
    /// Sequential tests for a change, and the mean since the last one: fast
    /// where it worsens, steady where it stays.
    #[default]
    Changes,
}

/// What a link loses, in one direction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LossEstimate {
    /// Share of envelopes lost, 0 to 1.
    pub loss: f64,
    /// P(lost | previous lost), 0 to 1; 1 / (1 - burst) is the mean burst.
    pub burst: f64,
}

/// An envelope is lost once this many later ones have come (III-A).
const REORDER: u32 = 3;

/// A silence beyond this is an outage, which liveness judges: what was lost in
/// it counts as if it had lasted no longer. A burst of
/// ten packets of a call is 200 ms long.
const OUTAGE: Duration = Duration::from_millis(500);

/// So many losses in a row count in full, however slow the traffic.
const SHORT_BURST: u64 = 8;

/// Counts the losses of one direction of a link.
///
/// Envelopes may come out of order, but none twice: the seal sees to that.
#[derive(Debug)]
pub struct LossMeter {
    /// All before this are decided; it has not come, unless `ahead` says so.
    next: Option<u64>,
    /// Bit `k`: `next + k` has come.
    ahead: u64,
    /// When the last one came, and the longest wait for one since all before
    /// it was decided.
    last: Time,
    silence: Duration,
    /// Lost in a row up to `next`.
    gap: u64,
    received: u64,
    lost: u64,
    estimator: Estimator,
}

#[derive(Debug)]
enum Estimator {
    Paper(Intervals),
    Changes(Box<ChangeMeter>),
}

impl LossMeter {
    /// A meter that has seen nothing.
    pub fn new(mode: LossMode) -> LossMeter {
        LossMeter {
            next: None,
            ahead: 0,
            last: Time::ZERO,
            silence: Duration::ZERO,
            gap: 0,
            received: 0,
            lost: 0,
            estimator: match mode {
                LossMode::Paper => Estimator::Paper(Intervals::default()),
                LossMode::Changes => Estimator::Changes(Box::default()),
            },
        }
    }

    /// The neighbour numbers anew; what it lost so far still counts.
    pub fn restart(&mut self) {
        (self.next, self.ahead, self.gap) = (None, 0, 0);
    }

    /// The envelope with this counter came at `at`.
    pub fn on_envelope(&mut self, at: Time, counter: u64) {
        let next = *self.next.get_or_insert_with(|| {
            self.last = at;
            counter
        });
        let Some(distance) = counter.checked_sub(next) else { return };
        if self.gap == 0 && self.ahead == 0 {
            self.silence = Duration::ZERO;
        }
        self.silence = self.silence.max(at.since(self.last));
        self.last = self.last.max(at);
        if distance == 0 && self.ahead == 0 {
            // Nearly always.
            self.next = Some(next + 1);
            return self.came();
        }
        if distance >= 64 {
            self.jump(counter);
        } else {
            self.ahead |= 1 << distance;
        }
        self.decide();
    }

    /// Decides about whatever is followed by enough others.
    fn decide(&mut self) {
        while self.ahead != 0 {
            let came = self.ahead & 1 != 0;
            if came {
                self.came();
            } else if self.ahead.count_ones() >= REORDER {
                self.gap += 1;
            } else {
                break;
            }
            self.shift(1);
        }
    }

    /// Far ahead: all that is more than 63 before it is decided at once.
    fn jump(&mut self, counter: u64) {
        let Some(next) = self.next else { return };
        let base = counter - 63;
        while self.ahead != 0 && self.next.is_some_and(|n| n < base) {
            if self.ahead & 1 != 0 {
                self.came();
            } else {
                self.gap += 1;
            }
            self.shift(1);
        }
        let next = self.next.unwrap_or(next);
        self.gap += base.saturating_sub(next);
        let base = base.max(next);
        self.next = Some(base);
        self.ahead |= 1 << (counter - base);
    }

    fn shift(&mut self, n: u64) {
        self.ahead >>= n;
        self.next = self.next.map(|next| next + n);
    }

    /// The next in order was received.
    fn came(&mut self) {
        self.received += 1;
        if self.gap > 0 {
            let gap = core::mem::take(&mut self.gap);
            self.lost += gap;
            let counted = weight(gap, self.silence);
            match &mut self.estimator {
                Estimator::Paper(intervals) => intervals.on_event(),
                Estimator::Changes(meter) => meter.on_gap(counted),
            }
        }
        match &mut self.estimator {
            Estimator::Paper(intervals) => intervals.on_received(),
            Estimator::Changes(meter) => meter.on_received(),
        }
    }

    /// The present estimate; `None` while too little has come.
    ///
    /// It is a step function of time: it changes when a test says that the
    /// link has changed, or when the mean since then is certain to be another
    /// than was thought, and not with every loss.
    pub fn estimate(&self) -> Option<LossEstimate> {
        match &self.estimator {
            Estimator::Paper(intervals) => intervals.estimate(),
            Estimator::Changes(meter) => meter.estimate(),
        }
    }

    /// What speaks for a worsening that must be noticed at once, while more
    /// traffic would tell sooner: the logarithm of a likelihood ratio, from 2 to
    /// 16, at which the worsening is believed. `None` where nothing much does.
    pub fn suspicion(&self) -> Option<f64> {
        match &self.estimator {
            Estimator::Paper(_) => None,
            Estimator::Changes(meter) => meter.suspicion(),
        }
    }

    /// Counts the changes of the estimate; the paper's moves all the time, and
    /// none is counted.
    pub fn changes(&self) -> u64 {
        match &self.estimator {
            Estimator::Paper(_) => 0,
            Estimator::Changes(meter) => meter.changes(),
        }
    }

    /// Envelopes received and lost since the start.
    pub fn totals(&self) -> (u64, u64) {
        (self.received, self.lost)
    }
}

/// How many losses a gap counts as.
fn weight(gap: u64, silence: Duration) -> u64 {
    if gap <= SHORT_BURST || silence <= OUTAGE {
        return gap;
    }
    let part = gap as f64 * (OUTAGE.as_secs_f64() / silence.as_secs_f64());
    (part as u64).max(SHORT_BURST)
}

#[cfg(test)]
mod tests;
