//! The sender of a flow (RFC 3448, section 4).

use super::basic::{avoidance, slow_start, without_feedback};
use super::fr::Active;
use super::md::PostIdle;
use super::rfc5348::{NotLimited, ReceiveSet};
use super::{Charge, Config, Data, Feedback, Least, MAX_BACKOFF, Rules};
use crate::equation::MIN_RTT;
use crate::seconds;
use core::time::Duration;
use libm::sqrt;
use trunkline_base::{Time, extend, first};

/// Time that the sender waits for the first report (RFC 3448, section 4.2).
const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

/// q2, the weight that R_sqmean keeps at each sample (section 4.5).
const SQMEAN_KEEPS: f64 = 0.9;

/// A packet was sent before [`Sender::next_send`]; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the next packet may be sent at {at:?}, not before")]
pub struct TooEarly {
    /// The earliest time for the packet.
    pub at: Time,
}

/// Reasons for rejecting a report; nothing has changed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum FeedbackError {
    /// The report is about another flow.
    #[error("the report is about flow {got}, but this is the sender of flow {expected}")]
    Flow {
        /// The number of the flow that the report is about.
        got: u32,
        /// The number of this sender's flow.
        expected: u32,
    },
    /// The report acknowledges a packet that has not been sent.
    #[error("packet {0} is acknowledged, but has not been sent")]
    Future(u16),
    /// The report acknowledges nothing beyond an earlier acknowledgement: a duplicate, or
    /// overtaken.
    #[error("packet {0} is acknowledged again, or after a later one")]
    Stale(u16),
    /// The report acknowledges a packet whose send time is forgotten.
    #[error("packet {0} is acknowledged, but was sent too long ago to be remembered")]
    Forgotten(u16),
    /// The receive rate is negative or NaN.
    #[error("the receive rate is {0}, and must be a number of bytes per second, 0 or more")]
    ReceiveRate(f64),
    /// The loss event rate is not within 0 to 1.
    #[error("the loss event rate is {0}, and must be a number from 0 to 1")]
    Loss(f64),
    /// The receiver claims to have held the packet for longer than since it was sent, or for so
    /// long that less than 1 µs or more than 64 s is left for the path.
    #[error(
        "the report arrives {since:?} after the packet was sent, and the receiver claims to have held it for {elapsed:?}"
    )]
    RoundTrip {
        /// Time since the packet was sent.
        since: Duration,
        /// Holding time that the receiver claims.
        elapsed: Duration,
    },
}

/// The sending end of a flow: it decides when the next packet may be sent.
///
/// A driver with a packet to send reads [`next_send`](Sender::next_send), sends it then with the
/// header that [`send`](Sender::send) returns, passes in each report, and calls
/// [`expire`](Sender::expire) at [`next_timeout`](Sender::next_timeout). Time must not go back; if
/// it does, the rate stays within its bounds.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    flow: u32,
    /// The number of the next packet, unwrapped.
    next: u64,
    /// Send times of the last packets, indexed by number.
    sent: Box<[Time]>,
    /// The highest number acknowledged.
    acknowledged: Option<u64>,
    /// R, in seconds; `None` before the first report.
    rtt: Option<f64>,
    /// R_sqmean, and its ratio to the square root of the last sample, by which the rate is
    /// multiplied (section 4.5).
    sqmean: f64,
    damping: f64,
    /// X, X_recv and X_calc, in bytes per second; X_calc is infinite before a loss event.
    rate: f64,
    received: f64,
    calculated: f64,
    /// p, the loss event rate of the last report, 0 to 1.
    loss: f64,
    /// tld, the time at which X was last doubled.
    doubled: Option<Time>,
    /// The nofeedback timer, and whether any packet was sent since it was set.
    timer: Time,
    sent_since: bool,
    /// The last packet: when it was due, when it was sent, and its charge.
    last: Option<Last>,
    /// The last time at which a report or the timer found that no packet was allowed.
    held: Time,
    start: Time,
    active: Active,
    post_idle: PostIdle,
    received_set: ReceiveSet,
    not_limited: NotLimited,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    nominal: Time,
    at: Time,
    charge: f64,
}

impl Sender {
    /// Starts flow `flow` at `now`. Until the first report, one segment per second is allowed
    /// (section 4.2).
    pub fn new(config: Config, flow: u32, now: Time) -> Sender {
        let segment = config.segment();
        Sender {
            config,
            flow,
            next: first(0),
            sent: vec![now; usize::from(config.remembered.clamp(1, 1 << 15))].into(),
            acknowledged: None,
            rtt: None,
            sqmean: 0.0,
            damping: 1.0,
            rate: segment,
            received: 0.0,
            calculated: f64::INFINITY,
            loss: 0.0,
            doubled: None,
            timer: now + FIRST_TIMEOUT,
            sent_since: false,
            last: None,
            held: now,
            start: now,
            active: Active::new(now),
            post_idle: PostIdle::default(),
            received_set: ReceiveSet::default(),
            not_limited: NotLimited::new(now),
        }
    }

    /// The parameters that the sender was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// X, the allowed rate in bytes of payload per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// X_calc, the rate that the throughput equation allows, in bytes of payload per second;
    /// infinite before the first loss event.
    pub fn calculated(&self) -> f64 {
        self.calculated
    }

    /// p, the loss event rate of the last report, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// R, the round-trip time; `None` before the first report.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.map(seconds)
    }

    /// The earliest time for the next packet; a past time means now.
    pub fn next_send(&self) -> Time {
        let Some(last) = self.last else { return self.start };
        let interval = self.interval(last.charge);
        let mut early = interval.min(self.config.granularity);
        if let (Rules::Rfc5348, Some(rtt)) = (self.config.rules, self.rtt) {
            early = early.min(seconds(rtt));
        }
        let due = last.nominal + interval - early / 2;
        due.max(last.at + self.config.min_interval)
    }

    /// t_ipi after a packet with this charge.
    fn interval(&self, charge: f64) -> Duration {
        let least = Least::Backoff.rate(self.config.segment(), MIN_RTT);
        let rate = (self.rate * self.damping).max(least).min(self.most());
        seconds(charge / rate)
    }

    /// Sends a packet with `bytes` of payload at `now`; returns its header.
    ///
    /// # Errors
    ///
    /// Returns [`TooEarly`] before [`next_send`](Sender::next_send).
    pub fn send(&mut self, now: Time, bytes: usize) -> Result<Data, TooEarly> {
        let at = self.next_send();
        if now < at {
            return Err(TooEarly { at });
        }
        let number = self.next;
        let mut nominal = now;
        if let Some(last) = self.last {
            // A sender that sends as soon as the rate allows makes no pause, however low the rate
            // is.
            let held = now.since(at.max(self.held)) <= self.config.granularity;
            if let (Some(minimum), Some(rtt), false) = (self.config.minimum, self.rtt(), held)
                && self.post_idle.send(number, last.at, now, rtt)
            {
                // "Send rate after the idle period is the minimal rate."
                let least = minimum.least.map_or(0.0, |least| self.least(least));
                self.set_rate(self.rate.min(least.max(self.floor())));
            }
            // A delay within the driver's timer granularity is made up for.
            let due = last.nominal + self.interval(last.charge);
            if due + self.config.granularity >= now {
                nominal = due;
                self.not_limited.note(now);
            }
        }
        let charge = match self.config.charge {
            Charge::Bytes => bytes.max(1) as f64,
            Charge::Segment => self.config.segment(),
        };
        self.last = Some(Last { nominal, at: now, charge });
        let place = (number % self.sent.len() as u64) as usize;
        self.sent[place] = now;
        self.next += 1;
        self.sent_since = true;
        Ok(Data { flow: self.flow, number: number as u16, rtt: self.rtt() })
    }

    /// Processes a report (section 4.3).
    ///
    /// # Errors
    ///
    /// Returns [`FeedbackError`] for a report that an honest receiver of this flow can't have sent,
    /// or that was overtaken.
    pub fn feedback(&mut self, now: Time, report: &Feedback) -> Result<(), FeedbackError> {
        let (number, sample) = self.check(now, report)?;
        self.note_held(now);
        let first = self.acknowledged.is_none();
        self.acknowledged = Some(number);
        self.note_sample(sample.as_secs_f64());
        let lost = report.loss > self.loss;
        self.loss = report.loss;
        self.calculated = match self.rtt() {
            Some(rtt) => self.config.calculated(rtt, self.loss),
            None => f64::INFINITY,
        };
        // An infinite receive rate passes the check, so it is capped here.
        let received = report.receive_rate.min(self.most());
        match self.config.minimum {
            Some(minimum) if self.post_idle.hear(number) && minimum.discards => {
                // No increase, but the report's losses count.
                let doubled = minimum.doubles && !lost;
                let rate = if doubled { 2.0 * self.rate } else { self.rate };
                self.set_rate(rate.min(self.calculated.max(self.floor())));
            }
            _ => self.believe(now, received, lost, number, first),
        }
        self.restart_timer(now);
        Ok(())
    }

    /// Returns the unwrapped number that is acknowledged, and the round-trip sample.
    fn check(&self, now: Time, report: &Feedback) -> Result<(u64, Duration), FeedbackError> {
        let (got, expected) = (report.flow, self.flow);
        if got != expected {
            return Err(FeedbackError::Flow { got, expected });
        }
        if report.receive_rate.is_nan() || report.receive_rate < 0.0 {
            return Err(FeedbackError::ReceiveRate(report.receive_rate));
        }
        if !(0.0..=1.0).contains(&report.loss) {
            return Err(FeedbackError::Loss(report.loss));
        }
        let wire = report.acknowledged;
        let number = extend(self.next - 1, wire);
        if number >= self.next || number < first(0) {
            return Err(FeedbackError::Future(wire));
        }
        if self.acknowledged.is_some_and(|highest| number <= highest) {
            return Err(FeedbackError::Stale(wire));
        }
        let places = self.sent.len() as u64;
        if self.next - number > places {
            return Err(FeedbackError::Forgotten(wire));
        }
        let since = now.since(self.sent[(number % places) as usize]);
        let elapsed = report.elapsed;
        match since.checked_sub(elapsed).filter(|r| (MIN_RTT..=MAX_BACKOFF).contains(r)) {
            Some(sample) => Ok((number, sample)),
            None => Err(FeedbackError::RoundTrip { since, elapsed }),
        }
    }

    /// Records, before the rate changes, whether it delays a packet at `now`.
    fn note_held(&mut self, now: Time) {
        if now < self.next_send() {
            self.held = now;
        }
    }

    /// Applies steps 1 and 2 of section 4.3, and section 4.5.
    fn note_sample(&mut self, sample: f64) {
        let root = sqrt(sample);
        match self.rtt {
            None => (self.rtt, self.sqmean) = (Some(sample), root),
            Some(before) => {
                let q = self.config.rtt_keeps.clamp(0.0, 1.0);
                self.rtt = Some(q * before + (1.0 - q) * sample);
                self.sqmean = SQMEAN_KEEPS * self.sqmean + (1.0 - SQMEAN_KEEPS) * root;
            }
        }
        self.damping = if self.config.damped { self.sqmean / root } else { 1.0 };
    }

    /// Step 4: applies the report's receive rate.
    fn believe(&mut self, now: Time, received: f64, lost: bool, number: u64, first: bool) {
        let limit = match self.config.rules {
            Rules::Rfc3448 => {
                self.received = received;
                match &self.config.restart {
                    None => 2.0 * received,
                    Some(restart) => {
                        self.active.hear(restart, now, received, lost);
                        if self.loss > 0.0 || restart.in_slow_start {
                            self.active.limit(received)
                        } else {
                            2.0 * received
                        }
                    }
                }
            }
            Rules::Rfc5348 => self.limit_of_set(now, received, lost, number, first),
        };
        let initial = first && self.config.rules == Rules::Rfc5348;
        if self.loss > 0.0 {
            self.set_rate(avoidance(self.calculated, limit, self.floor()));
        } else if initial {
            self.set_rate(self.floor());
            self.doubled = Some(now);
        } else if self.doubled.is_none_or(|at| now.since(at) >= self.rtt().unwrap_or_default()) {
            self.set_rate(slow_start(self.rate, limit, self.floor()));
            self.doubled = Some(now);
        }
    }

    /// Computes recv_limit of RFC 5348, section 4.3, step 4.
    fn limit_of_set(
        &mut self,
        now: Time,
        received: f64,
        lost: bool,
        number: u64,
        first: bool,
    ) -> f64 {
        let rtt = self.rtt().unwrap_or_default();
        let sent = self.sent[(number % self.sent.len() as u64) as usize];
        let limited = self.not_limited.data_limited(now, sent, rtt);
        let set = &mut self.received_set;
        if first {
            // The first report has no receive rate, and the set stays as it is.
            return f64::INFINITY;
        }
        match (limited, lost) {
            (true, true) => {
                set.halve();
                set.maximize(now, 0.85 * received);
                return set.max();
            }
            (true, false) => set.maximize(now, received),
            (false, _) => set.update(now, received, rtt),
        }
        2.0 * set.max()
    }

    /// The nofeedback timer: the time for [`expire`](Sender::expire).
    pub fn next_timeout(&self) -> Time {
        self.timer
    }

    /// Handles a missing report at [`next_timeout`](Sender::next_timeout): halves the rate, but not
    /// for a pause alone (section 4.4). Does nothing before that time.
    pub fn expire(&mut self, now: Time) {
        if now < self.timer {
            return;
        }
        self.note_held(now);
        let idle = !self.sent_since;
        match (self.rtt(), self.config.rules) {
            (None, Rules::Rfc5348) if idle => {}
            (None, _) => self.set_rate(self.rate / 2.0),
            (Some(rtt), Rules::Rfc3448) => self.halve(idle, rtt),
            (Some(rtt), Rules::Rfc5348) => self.halve_set(now, idle, rtt),
        }
        self.restart_timer(now);
    }

    fn halve(&mut self, idle: bool, rtt: Duration) {
        let segment = self.config.segment();
        let halved = without_feedback(self.received, self.calculated, segment);
        let recover = self.config.recover_least(self.loss > 0.0).rate(segment, rtt);
        // A pause leaves as much as a flow starts with, if there was as much before.
        let kept = if idle { self.received.min(recover / 2.0) } else { 0.0 };
        self.received = halved.max(kept);
        let limited = avoidance(self.calculated, 2.0 * self.received, self.floor());
        let least = if idle { recover } else { 0.0 };
        // Step 4 could also raise the rate, which a missing report doesn't justify.
        self.set_rate(self.rate.min(limited.max(least)));
    }

    /// Applies RFC 5348, section 4.4, to the receive rate set.
    fn halve_set(&mut self, now: Time, idle: bool, rtt: Duration) {
        let received = self.received_set.max();
        let recover = self.config.recover.rate(self.config.segment(), rtt);
        let slow_start = self.loss == 0.0;
        let kept = if slow_start { self.rate < 2.0 * recover } else { received < recover };
        if idle && kept {
            return;
        }
        if slow_start {
            return self.set_rate(self.rate / 2.0);
        }
        let limit = if self.calculated > 2.0 * received { received } else { self.calculated / 2.0 };
        let limit = limit.max(self.least(Least::Backoff));
        self.received_set.replace(now, limit / 2.0);
        self.set_rate(avoidance(self.calculated, limit, self.floor()));
    }

    /// Restarts the nofeedback timer (step 5 of section 4.3).
    fn restart_timer(&mut self, now: Time) {
        let rtt = self.rtt.unwrap_or(FIRST_TIMEOUT.as_secs_f64() / 4.0);
        let wait = (4.0 * rtt).max(2.0 * self.config.segment() / self.rate);
        self.timer = now + seconds(wait);
        self.sent_since = false;
    }

    fn least(&self, least: Least) -> f64 {
        match self.rtt() {
            Some(rtt) => least.rate(self.config.segment(), rtt),
            None => 0.0,
        }
    }

    /// The rate below which reports do not reduce the allowed rate.
    fn floor(&self) -> f64 {
        let lost = self.loss > 0.0;
        self.least(if lost { self.config.avoidance } else { self.config.slow_start })
    }

    fn most(&self) -> f64 {
        let most = self.config.max_rate;
        if most >= 1.0 { most.min(f64::MAX / 4.0) } else { 1.0 }
    }

    /// Sets the rate, clamped to its bounds; NaN becomes the lower bound.
    fn set_rate(&mut self, rate: f64) {
        let backoff = Least::Backoff.rate(self.config.segment(), MIN_RTT);
        let minimum = self.config.minimum.and_then(|minimum| minimum.least);
        let least = minimum.map_or(0.0, |least| self.least(least)).max(backoff);
        let rate = if rate.is_nan() { least } else { rate };
        self.rate = rate.max(least).min(self.most());
    }
}
