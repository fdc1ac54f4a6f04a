//! Sequential tests on the two-state chain of losses (Page's CUSUM, 1954).
//!
//! A window of losses cannot be both fast and calm: bursts of four at 5 % fill a window of 50 with
//! 30 % several times an hour. The likelihood of a sequence of losses takes into account that they
//! were one burst. At each burst, therefore, one sum for each pair of a hypothesis "as now" and a
//! hypothesis "worse" grows by the logarithm of their likelihood ratio, and never falls below zero.
//! The burstiness of a link is unknown (with the same outages, more traffic makes longer bursts),
//! so a worsening is believed when *every* burstiness at the present loss has become e^[`CERTAIN`]
//! times less likely than *some* burstiness at a higher one.

use super::LossEstimate;
use std::collections::VecDeque;

/// Log-likelihood ratios at which a worsening is believed. A test of exact hypotheses then runs for
/// e^16 bursts or more before it errs; `examples/loss_detection.rs` prints the figure for estimated
/// ones.
const CERTAIN: [f64; WORSE] = [26.0, 16.0];
/// The same for an improvement, which is not urgent.
const CERTAIN_BETTER: f64 = 20.0;
/// From here on, more traffic would give a decision sooner.
const SUSPECT: f64 = 2.0;

/// Hypothetical P(lost | previous lost). A value below the loss itself, such as the first, means
/// independent losses.
const BURSTS: [f64; N] = [0.0, 0.5, 0.75, 0.9, 0.97, 0.99];
const N: usize = 6;
/// Levels of worsening: a tripling of the odds, which may take a while to be noticed, and one that
/// has to be noticed at once.
const WORSE: usize = 2;
/// Two more hypotheses for "as now": the measured burstiness, and that of the same outages in twice
/// the traffic, which is the effect of probing.
const NOW: usize = N + 2;

/// The tests do not distinguish a loss below this from none.
const MIN_LOSS: f64 = 0.005;
/// Loss that counts as bad in any case: a worsening to this is found within 50 packets.
const BAD: f64 = 0.3;

/// The mean forgets half at this many bursts or packets: enough bursts for an error of 6 %.
const MANY_EVENTS: f64 = 1_000.0;
const MANY_PACKETS: f64 = 200_000.0;

/// A mean that is off by half is corrected (as a logarithm).
const FAR: f64 = 0.405;
/// Packets needed for an estimate.
const ENOUGH: f64 = 32.0;
/// Bursts from which on a mean is corrected only when the deviation is certain.
const SETTLED: f64 = 100.0;

/// Bursts remembered to find out where a change began.
const HISTORY: usize = 64;

/// A burst: the number of packets received since the burst before it, and its length.
#[derive(Clone, Copy, Debug)]
struct Burst {
    before: u64,
    lost: u64,
}

/// A two-state Markov chain of losses.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// Probability P(lost | previous received).
    enter: f64,
    /// Probability P(lost | previous lost).
    stay: f64,
}

impl Chain {
    fn new(p: f64, burst: f64) -> Chain {
        let stay = burst.max(p);
        Chain { enter: p * (1.0 - stay) / (1.0 - p), stay }
    }
}

/// Log-likelihood ratio of one chain to another, per event.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    /// Per packet received after a received one.
    received: f64,
    /// Per burst, including its first loss and its end.
    burst: f64,
    /// Per further loss in the burst.
    further: f64,
}

impl Ratio {
    fn of(a: Chain, b: Chain) -> Ratio {
        Ratio {
            received: libm::log((1.0 - a.enter) / (1.0 - b.enter)),
            burst: libm::log(a.enter / b.enter) + libm::log((1.0 - a.stay) / (1.0 - b.stay)),
            further: libm::log(a.stay / b.stay),
        }
    }

    fn run(&self, received: u64) -> f64 {
        // The packet that ends a burst counts with the burst.
        self.received * received.saturating_sub(1) as f64
    }

    fn gap(&self, lost: u64) -> f64 {
        self.burst + self.further * lost.saturating_sub(1) as f64
    }
}

/// Counts since the last change.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    packets: f64,
    lost: f64,
    events: f64,
}

impl Mean {
    fn add(&mut self, burst: Burst) {
        self.packets += (burst.before + burst.lost) as f64;
        self.lost += burst.lost as f64;
        self.events += 1.0;
        if self.events > MANY_EVENTS || self.packets > MANY_PACKETS {
            *self = Mean {
                packets: self.packets / 2.0,
                lost: self.lost / 2.0,
                events: self.events / 2.0,
            };
        }
    }

    /// Loss, with `open` more packets received since the last burst.
    fn loss(&self, open: u64) -> f64 {
        self.lost / (self.packets + open as f64).max(1.0)
    }

    fn burst(&self) -> f64 {
        if self.lost > 0.0 { 1.0 - self.events / self.lost } else { 0.0 }
    }

    /// Relative standard error: bursts are random in number (1) and in length (another 1, if
    /// geometric).
    fn error(&self) -> f64 {
        libm::sqrt(2.0 / self.events.max(1.0))
    }
}

/// Detects changes of a link's loss, and measures the loss in between.
#[derive(Debug)]
pub(super) struct ChangeMeter {
    /// Packets received since the last burst.
    open: u64,
    since: Mean,
    history: VecDeque<Burst>,
    worse: [[[f64; NOW]; N]; WORSE],
    worse_by: [[[Ratio; NOW]; N]; WORSE],
    better: [f64; N],
    better_by: [Ratio; N],
    /// The losses that `worse_by` and `better_by` assume for the present, and the burstiness.
    assumed: (f64, f64, f64),
    published: Option<LossEstimate>,
    settled: bool,
    /// Evidence for a bad link, while it exceeds [`SUSPECT`].
    doubt: Option<f64>,
    changes: u64,
}

impl Default for ChangeMeter {
    fn default() -> ChangeMeter {
        ChangeMeter {
            open: 0,
            since: Mean::default(),
            history: VecDeque::with_capacity(HISTORY),
            worse: Default::default(),
            worse_by: Default::default(),
            better: Default::default(),
            better_by: Default::default(),
            assumed: (0.0, 0.0, 0.0),
            published: None,
            settled: false,
            doubt: None,
            changes: 0,
        }
    }
}

impl ChangeMeter {
    pub fn estimate(&self) -> Option<LossEstimate> {
        self.published
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn on_received(&mut self) {
        self.open += 1;
        if self.doubt.is_some() {
            self.doubt = self.how_bad();
        }
        // An improvement shows in the absence of losses: check at regular intervals.
        if self.open.is_multiple_of(32) {
            if self.published.is_none() {
                self.publish();
            }
            self.look_for_better();
        }
    }

    pub fn on_gap(&mut self, lost: u64) {
        let burst = Burst { before: core::mem::take(&mut self.open), lost };
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(burst);
        self.assume(self.most_likely().is_some_and(|(.., sum)| sum > 0.0));
        self.since.add(burst);
        for (sums, ratios) in
            self.worse.as_flattened_mut().iter_mut().zip(self.worse_by.as_flattened())
        {
            for (sum, ratio) in sums.iter_mut().zip(ratios) {
                *sum = (*sum + ratio.run(burst.before)).max(0.0);
                *sum = (*sum + ratio.gap(lost)).max(0.0);
            }
        }
        for (sum, ratio) in self.better.iter_mut().zip(&self.better_by) {
            *sum = (*sum + ratio.run(burst.before) + ratio.gap(lost)).max(0.0);
        }
        self.doubt = self.how_bad();
        match self.most_likely() {
            Some((level, b, sum)) if sum >= CERTAIN[WORSE - 1] => self.worsened(level, b),
            _ => self.drifted(),
        }
    }

    /// Evidence for this worsening, against the present state that explains the observations best.
    fn evidence(&self, level: usize, b: usize) -> f64 {
        let sums = self.worse[level][b].iter().zip(&self.worse_by[level][b]);
        sums.map(|(sum, ratio)| sum + ratio.run(self.open)).fold(f64::MAX, f64::min)
    }

    /// The "worse" hypothesis with the most evidence, and that evidence.
    fn most_likely(&self) -> Option<(usize, usize, f64)> {
        let mut best: Option<(usize, usize, f64)> = None;
        for (level, certain) in CERTAIN.into_iter().enumerate() {
            for b in 0..N {
                let least = self.evidence(level, b) + CERTAIN[WORSE - 1] - certain;
                if best.is_none_or(|(.., most)| least > most) {
                    best = Some((level, b, least));
                }
            }
        }
        best
    }

    /// Evidence for the worsening that has to be noticed at once, if it is considerable. The other
    /// one is not urgent, and not worth a probe.
    fn how_bad(&self) -> Option<f64> {
        let most = (0..N).map(|b| self.evidence(WORSE - 1, b)).fold(f64::MIN, f64::max);
        (most > SUSPECT).then_some(most)
    }

    pub fn suspicion(&self) -> Option<f64> {
        self.doubt
    }

    /// Sets the hypotheses: the present loss is assumed as high (or, in the search for an
    /// improvement, as low) as the mean's error allows. A possible change must not enter the value
    /// that it is compared with: while one is `in_question`, the assumed loss does not rise.
    fn assume(&mut self, in_question: bool) {
        let p = self.since.loss(0);
        let margin = 1.0 + 2.0 * self.since.error();
        let high = (p * margin).clamp(MIN_LOSS, 0.6);
        let low = (p / margin).clamp(MIN_LOSS, 0.9);
        let burst = self.since.burst().clamp(0.0, 0.99);
        let old = self.assumed;
        if in_question && high >= old.0 {
            return;
        }
        let near = |new: f64, old: f64| (new - old).abs() < 0.02 * new;
        if near(high, old.0) && near(low, old.1) && near(1.0 - burst, 1.0 - old.2) {
            return;
        }
        self.assumed = (high, low, burst);
        let tripled = scale_odds(high, 3.0);
        let bad = scale_odds(high, 8.0).max(BAD);
        for (level, worse) in [tripled, bad].into_iter().enumerate() {
            for (b, row) in self.worse_by[level].iter_mut().enumerate() {
                for (null, ratio) in row.iter_mut().enumerate() {
                    let stay = match null {
                        N => burst,
                        null if null > N => libm::sqrt(burst),
                        null => BURSTS[null],
                    };
                    let now = Chain::new(high, stay);
                    *ratio = Ratio::of(Chain::new(worse, BURSTS[b]), now);
                }
            }
        }
        let third = scale_odds(low, 1.0 / 3.0);
        for (ratio, b) in self.better_by.iter_mut().zip(BURSTS) {
            *ratio = Ratio::of(Chain::new(third, b), Chain::new(low, b));
        }
    }

    /// The tests have decided: finds where the change began, and counts again from there.
    fn worsened(&mut self, level: usize, b: usize) {
        let ratios = self.worse_by[level][b];
        // The present state that explains the observations best.
        let null = (0..NOW).fold(0, |least, k| {
            if self.worse[level][b][k] < self.worse[level][b][least] { k } else { least }
        });
        let (mut sum, mut most, mut begin) = (0.0, f64::MIN, 0);
        for (i, burst) in self.history.iter().enumerate().rev() {
            sum += ratios[null].gap(burst.lost);
            if sum > most {
                (most, begin) = (sum, i);
            }
            sum += ratios[null].run(burst.before);
        }
        // The first burst revealed the change; counted together with the following ones, it would
        // have too much weight.
        self.count_from(begin + 1);
        if self.since.events == 0.0 {
            self.since = Mean { packets: 4.0, lost: 1.0, events: 1.0 };
        }
        self.anew();
    }

    fn look_for_better(&mut self) {
        if self.since.events == 0.0 || self.assumed.1 <= MIN_LOSS {
            return;
        }
        // A burstier link takes longer until its next burst.
        let known = self.since.burst();
        let certain = (0..N)
            .filter(|&k| k == 0 || BURSTS[k - 1] < known)
            .all(|k| self.better[k] + self.better_by[k].run(self.open) >= CERTAIN_BETTER);
        if !certain {
            return;
        }
        let k = (1..N).rev().find(|&k| BURSTS[k - 1] < known).unwrap_or(0);
        let (mut sum, mut most, mut begin) = (self.better_by[k].run(self.open), 0.0, 0);
        for (i, burst) in self.history.iter().enumerate().rev() {
            if sum > most {
                (most, begin) = (sum, i + 1);
            }
            sum += self.better_by[k].gap(burst.lost) + self.better_by[k].run(burst.before);
        }
        self.count_from(begin);
        self.anew();
    }

    /// Counts again, without the first `begin` of the remembered bursts.
    fn count_from(&mut self, begin: usize) {
        self.since = Mean::default();
        self.history.drain(..begin.min(self.history.len()));
        self.history.iter().for_each(|&burst| self.since.add(burst));
    }

    fn anew(&mut self) {
        self.doubt = None;
        self.worse = Default::default();
        self.better = Default::default();
        self.assumed = (0.0, 0.0, 0.0);
        self.settled = false;
        self.assume(false);
        self.publish();
    }

    /// Corrects the published estimate: once when there are enough data since the last change;
    /// before that, if it was far too good; after that, if the mean certainly differs.
    fn drifted(&mut self) {
        let Some(LossEstimate { loss: known, .. }) = self.published else {
            if self.since.packets >= ENOUGH {
                self.publish();
            }
            return;
        };
        let (mean, error) = (self.since.loss(self.open), self.since.error());
        let distance = libm::log(mean.max(1e-6) / known.max(1e-6));
        let far = (mean - known).abs() > 0.002 && distance.abs() > FAR;
        let settles = !self.settled && self.since.events >= SETTLED;
        let certain = if self.settled { distance.abs() > 5.0 * error } else { distance > error };
        if settles || far && certain {
            self.settled |= settles;
            self.publish();
        } else if let Some(published) = &mut self.published {
            published.burst = self.since.burst();
        }
    }

    fn publish(&mut self) {
        let loss = self.since.loss(self.open);
        self.changes += u64::from(self.published.is_some_and(|old| old.loss != loss));
        self.published = Some(LossEstimate { loss, burst: self.since.burst() });
    }
}

/// The probability with `factor` times the odds of `p`.
fn scale_odds(p: f64, factor: f64) -> f64 {
    let odds = factor * p / (1.0 - p);
    odds / (1.0 + odds)
}
