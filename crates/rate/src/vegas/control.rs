//! Rate control of one flow, report by report.

use super::base_rtt::{BaseRtt, HopBaseRtt};
use super::fec::Losses;
use super::{BaseRttScope, CodecRate, Config, Fec, ReceiverReport, ReportError};
use core::time::Duration;
use trunkline_base::Time;

/// The cause to which a loss is attributed (section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossCause {
    /// Queues overflow: the rate falls, and no redundancy is added.
    Congestion,
    /// The channel has errors: the rate stays, and [`Fec`] is added.
    Wireless,
}

/// The outcome of a report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// Codec rate from now on.
    pub rate: CodecRate,
    /// Redundancy to add from now on.
    pub fec: Fec,
    /// Cause of the report's losses; `None` without losses.
    pub verdict: Option<LossCause>,
    /// Measurements at the rate before the decision; `None` if the report has no round trip.
    pub measure: Option<Measure>,
}

/// The quantities of the paper's section 4.2, for one report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// BaseRTT, including the floor.
    pub base_rtt: Duration,
    /// Diff, in bytes; 0 or more.
    pub diff: f64,
    /// α for this round trip, in bytes.
    pub alpha: f64,
    /// β for this round trip, in bytes.
    pub beta: f64,
    /// LP, in bytes per second; 0 or more.
    pub predictor: f64,
}

/// The step that Diff suggests, before losses are considered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advice {
    Lower,
    Keep,
    Raise,
}

/// The control of one flow. It runs at each report, and when time has passed without one.
#[derive(Clone, Debug)]
pub struct Control {
    config: Config,
    rate: CodecRate,
    pub(super) base: BaseRtt,
    losses: Losses,
    /// The rate up to which a report with losses may raise: the one before a probe of BaseRTT,
    /// which lowers the rate for no fault of the path.
    ceiling: CodecRate,
    /// Time of the last report, or of the last decrease for lack of one.
    heard: Time,
}

impl Control {
    /// Starts a flow at `rate`. Parameters out of range are clamped.
    pub fn new(config: Config, rate: CodecRate, now: Time) -> Control {
        let config = config.bounded();
        let base = BaseRtt::new(config.window, config.floor, now);
        let losses = Losses::new(config.fec);
        Control { config, rate, base, losses, ceiling: rate, heard: now }
    }

    /// The current codec rate.
    pub fn rate(&self) -> CodecRate {
        self.rate
    }

    /// The redundancy to add to the flow against channel losses.
    pub fn fec(&self) -> Fec {
        self.losses.fec()
    }

    /// Processes a report. The rate changes by at most one step. If the report has losses, the rate
    /// rises at most to what it was before a probe of BaseRTT. Losses without a round trip count as
    /// congestion, as there is no evidence against it. A report at [`Time::NEVER`] counts as one at
    /// the time of the last.
    ///
    /// `hop` is the record that all calls of the gateway share. It takes in the report's round trip
    /// whatever [`Config::scope`] is, so that calls with different scopes can share it.
    ///
    /// # Errors
    ///
    /// Returns [`ReportError`] for impossible values, and then changes nothing.
    pub fn report(
        &mut self,
        now: Time,
        report: &ReceiverReport,
        hop: &mut HopBaseRtt,
    ) -> Result<Decision, ReportError> {
        report.check()?;
        // After the end of time, no silence could ever be detected.
        let now = if now == Time::NEVER { self.heard } else { now };
        self.heard = now;
        let weighed = report.rtt.map(|rtt| self.weigh(now, rtt, hop.sample(rtt)));
        let lost = report.loss.lost > 0;
        let verdict = lost.then(|| match weighed {
            Some((_, advice)) if !self.is_congestion(advice) => LossCause::Wireless,
            _ => LossCause::Congestion,
        });
        if verdict == Some(LossCause::Congestion) {
            self.losses.forget();
        } else {
            self.losses.add(now, report.loss);
        }
        self.step(match (verdict, weighed) {
            (Some(LossCause::Congestion), _) => Advice::Lower,
            (_, Some(_)) if self.base.is_probing() => Advice::Lower,
            (Some(LossCause::Wireless), _) if self.rate >= self.ceiling => Advice::Keep,
            (_, Some((_, advice))) => advice,
            (_, None) => Advice::Keep,
        });
        let measure = weighed.map(|(measure, _)| measure);
        Ok(Decision { rate: self.rate, fec: self.fec(), verdict, measure })
    }

    /// The time for [`expire`](Control::expire) if no report arrives.
    pub fn next_timeout(&self) -> Time {
        match self.rate.lower() {
            Some(_) => self.heard + self.config.silence,
            None => Time::NEVER,
        }
    }

    /// Lowers the rate by one step for each [`Config::silence`] without a report. If `now` is
    /// before the last report, silence is counted from `now` on.
    pub fn expire(&mut self, now: Time) {
        if self.config.silence == Duration::MAX {
            return;
        }
        self.heard = self.heard.min(now);
        while self.rate.lower().is_some() && now.since(self.heard) >= self.config.silence {
            self.heard += self.config.silence;
            self.step(Advice::Lower);
        }
    }

    /// Compares a round trip with BaseRTT; `least` is the shortest one of the hop.
    fn weigh(&mut self, now: Time, rtt: Duration, least: Duration) -> (Measure, Advice) {
        let lowest = self.rate.lower().is_none();
        let base = match self.config.scope {
            BaseRttScope::Gateway => least.max(self.config.floor),
            BaseRttScope::Call => self.base.sample(now, rtt, lowest),
        };
        let rate = self.rate.bytes_per_second();
        let extra = rtt.saturating_sub(base);

        // In bytes times seconds squared, so that nothing is rounded: all factors are bounded, the
        // product of both times by 10^20 square nanoseconds.
        let diff = u128::from(rate) * extra.as_nanos() * self.config.packet.as_nanos();
        let bytes = |threshold: u32| u128::from(threshold) * rtt.as_nanos() * 1_000_000_000;
        let advice = if diff > bytes(self.config.beta) {
            Advice::Lower
        } else if diff < bytes(self.config.alpha) {
            Advice::Raise
        } else {
            Advice::Keep
        };

        let packets = rtt.as_secs_f64() / self.config.packet.as_secs_f64();
        let diff = rate as f64 * extra.as_secs_f64();
        let measure = Measure {
            base_rtt: base,
            diff,
            alpha: f64::from(self.config.alpha) * packets,
            beta: f64::from(self.config.beta) * packets,
            predictor: diff / base.as_secs_f64(),
        };
        (measure, advice)
    }

    /// Whether the predictor attributes a loss to congestion.
    fn is_congestion(&self, advice: Advice) -> bool {
        let lowest = self.rate.lower().is_none();
        advice == Advice::Lower || (lowest && self.config.alpha_at_lowest && advice == Advice::Keep)
    }

    fn step(&mut self, advice: Advice) {
        let next = match advice {
            Advice::Lower => self.rate.lower(),
            Advice::Keep => None,
            Advice::Raise => self.rate.higher(),
        };
        self.rate = next.unwrap_or(self.rate);
        self.ceiling = match advice {
            Advice::Lower if !self.base.is_probing() => self.rate,
            _ => self.ceiling.max(self.rate),
        };
    }
}
