//! Measures a link's loss in the direction from the neighbour, by the envelopes' counters: whatever
//! an envelope carries, a gap is a loss.

mod change;
mod intervals;

use change::ChangeMeter;
use core::time::Duration;
use intervals::Intervals;
use trunkline_base::Time;

/// Method of estimating the loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LossMode {
    /// The mean of the last 50 loss-free intervals (Amir et al. 2005, III-A).
    /// It counts events, not packets: 5 % in bursts of four reads as 1.3 %.
    Paper,
    /// Sequential tests for a change, and the mean since the last one: fast to detect a worsening,
    /// steady while nothing changes.
    #[default]
    Changes,
}

/// Loss of a link in one direction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LossEstimate {
    /// Share of envelopes lost, 0 to 1.
    pub loss: f64,
    /// P(lost | previous lost), 0 to 1; the mean length of a burst is 1 / (1 - burst).
    pub burst: f64,
}

/// An envelope is lost once this many later ones have arrived (III-A).
const REORDER: u32 = 3;

/// A longer silence is an outage, which the hello protocol handles: losses in it count as if it had
/// lasted only this long. A burst of ten packets of a call is 200 ms long.
const OUTAGE: Duration = Duration::from_millis(500);

/// This many losses in a row count in full, however slow the traffic.
const SHORT_BURST: u64 = 8;

/// Counts the losses of one direction of a link.
///
/// Envelopes may arrive out of order, but none arrives twice: the seal rejects replays.
#[derive(Debug)]
pub struct LossMeter {
    /// All numbers before this are decided; this one has not arrived, unless `ahead` has its bit.
    next: Option<u64>,
    /// Bit `k`: number `next + k` has arrived.
    ahead: u64,
    /// When the last envelope arrived, and the longest silence since all earlier numbers were
    /// decided.
    last: Time,
    silence: Duration,
    /// Number of consecutive losses up to `next`.
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
    /// Creates a meter without observations.
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

    /// The neighbour has restarted its numbering; the losses so far still count.
    pub fn restart(&mut self) {
        (self.next, self.ahead, self.gap) = (None, 0, 0);
    }

    /// Records the envelope with this counter, which arrived at `at`.
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
            // The usual case: in order.
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

    /// Decides every number that enough later ones have followed.
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

    /// Handles a counter far ahead: all numbers more than 63 before it are decided at once.
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

    /// The next number in order was received.
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

    /// The present estimate; `None` while there are too few observations.
    ///
    /// It is a step function of time: it changes when a test decides that the link has changed, or
    /// when the mean since then certainly differs from the estimate, and not with every loss.
    pub fn estimate(&self) -> Option<LossEstimate> {
        match &self.estimator {
            Estimator::Paper(intervals) => intervals.estimate(),
            Estimator::Changes(meter) => meter.estimate(),
        }
    }

    /// Evidence for a worsening that must be noticed at once, while more traffic would give a
    /// decision sooner: a log-likelihood ratio from 2 to 16, at which the worsening is believed.
    /// `None` if there is little evidence.
    pub fn suspicion(&self) -> Option<f64> {
        match &self.estimator {
            Estimator::Paper(_) => None,
            Estimator::Changes(meter) => meter.suspicion(),
        }
    }

    /// Number of changes of the estimate. The paper's estimate changes all the time, and none is
    /// counted.
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

/// Number of losses that a gap counts as.
fn weight(gap: u64, silence: Duration) -> u64 {
    if gap <= SHORT_BURST || silence <= OUTAGE {
        return gap;
    }
    let part = gap as f64 * (OUTAGE.as_secs_f64() / silence.as_secs_f64());
    (part as u64).max(SHORT_BURST)
}

#[cfg(test)]
mod tests;
