//! The sending end of a trunk (Trad and Afifi, section 5.1.1).

use super::multiplex::Choice;
use super::{Config, Feedback, Packing, Segment, begin, extend};
use crate::equation::MIN_RTT;
use crate::seconds;
use crate::tfrc::MAX_BACKOFF;
use core::time::Duration;
use trunkline_base::Time;

/// Time that the sender waits for the first report (RFC 3448, section 4.2).
const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

/// Time over which K is counted: five packets of each call with one every 20 ms, however they are
/// spread. The paper counts between two reports, an interval in which calls that start together
/// have all their packets or none.
const SPAN: Duration = Duration::from_millis(100);

/// Reasons for rejecting a report; nothing has changed.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum FeedbackError {
    /// The report acknowledges a datagram that has not been sent.
    #[error("datagram {0} is acknowledged, but has not been sent")]
    Future(u32),
    /// The report acknowledges nothing beyond an earlier acknowledgement: a duplicate, or
    /// overtaken.
    #[error("datagram {0} is acknowledged again, or after a later one")]
    Stale(u32),
    /// The report acknowledges a datagram whose send time is forgotten.
    #[error("datagram {0} is acknowledged, but was sent too long ago to be remembered")]
    Forgotten(u32),
    /// The loss event rate is not within 0 to 1.
    #[error("the loss event rate is {0}, and must be a number from 0 to 1")]
    Loss(f64),
    /// The receiver claims to have held the datagram for longer than since it was sent, or for so
    /// long that less than 1 µs or more than 64 s is left for the path.
    #[error(
        "the report arrives {since:?} after the datagram was sent, and the receiver claims to have held it for {elapsed:?}"
    )]
    RoundTrip {
        /// Time since the datagram was sent.
        since: Duration,
        /// Holding time that the receiver claims.
        elapsed: Duration,
    },
}

/// The sending end of a trunk: it decides how many packets share a datagram.
///
/// A driver collects [`multiplex`](Sender::multiplex) packets, reports each datagram with
/// [`sent`](Sender::sent), passes in each report, and calls [`expire`](Sender::expire) at
/// [`next_timeout`](Sender::next_timeout). Time must not go back; if it does, the number of packets
/// stays within its bounds.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    /// The number of the next datagram, unwrapped.
    next: u64,
    /// Send times of the last datagrams, indexed by number.
    sent: Box<[Time]>,
    /// The highest number acknowledged.
    acknowledged: Option<u64>,
    /// R, in seconds; `None` before the first report.
    rtt: Option<f64>,
    /// p, the loss event rate of the last report, 0 to 1.
    loss: f64,
    /// T₂, in bytes per second; `None` while there is no limit.
    share: Option<f64>,
    choice: Choice,
    packets: PacketRate,
    payload: MeanPayload,
    /// Datagrams since the last report or timeout, and, once there are enough for a report, the
    /// time at which it is overdue.
    unreported: u32,
    timer: Time,
}

impl Sender {
    /// Starts a trunk at `now`, with one packet in each datagram.
    pub fn new(config: Config, now: Time) -> Sender {
        Sender {
            config,
            next: begin(0),
            sent: vec![now; usize::from(config.remembered.max(1))].into(),
            acknowledged: None,
            rtt: None,
            loss: 0.0,
            share: None,
            choice: Choice::SINGLY,
            packets: PacketRate { since: now, count: 0, before: 0.0 },
            payload: MeanPayload::default(),
            unreported: 0,
            timer: Time::NEVER,
        }
    }

    /// The parameters that the sender was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// m, the number of packets that share a datagram, from 1 to what the MTU allows.
    pub fn multiplex(&self) -> usize {
        self.choice.packets
    }

    /// Whether the trunk exceeds its share at any allowed number of packets.
    pub fn over_share(&self) -> bool {
        self.choice.over_share
    }

    /// Whether the trunk exceeds its share at `now`: one that has sent nothing for a while does
    /// not.
    pub fn over_share_at(&self, now: Time) -> bool {
        self.choice.over_share && self.packets.per_s(now) > 0.0
    }

    /// Sets the interval at which reports arrive from now on.
    pub fn set_feedback_interval(&mut self, interval: Duration) {
        self.config.feedback_interval = interval;
    }

    /// T₂, the bytes per second that a TCP would send on this path; `None` before the first loss
    /// event, when there is no limit.
    pub fn share(&self) -> Option<f64> {
        self.share
    }

    /// R, the round-trip time; `None` before the first report.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.map(seconds)
    }

    /// p, the loss event rate of the last report, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Records a datagram sent at `now`, with `packets` packets and `payload_bytes` bytes of
    /// payload in total, without the bytes in front of each. Returns its number.
    pub fn sent(&mut self, now: Time, packets: usize, payload_bytes: usize) -> u32 {
        let number = self.next;
        let place = (number % self.sent.len() as u64) as usize;
        self.sent[place] = now;
        self.next += 1;
        // Traffic that starts after a pause is judged by the next report.
        self.choice.over_share &= self.packets.per_s(now) > 0.0;
        self.packets.add(now, packets);
        self.payload.add(packets, payload_bytes);
        self.unreported = self.unreported.saturating_add(1);
        if self.unreported == self.reportable() {
            self.timer = now + self.feedback_timeout();
        }
        number as u32
    }

    /// Processes a report, which updates the round-trip time, the share and the number of packets.
    ///
    /// # Errors
    ///
    /// Returns [`FeedbackError`] for a report that an honest receiver of this trunk can't have
    /// sent, or that was overtaken.
    pub fn feedback(&mut self, now: Time, report: &Feedback) -> Result<(), FeedbackError> {
        let (number, sample) = self.check(now, report)?;
        self.acknowledged = Some(number);
        let q = self.config.rtt_keeps.clamp(0.0, 1.0);
        let sample = sample.as_secs_f64();
        let rtt = self.rtt.map_or(sample, |before| q * before + (1.0 - q) * sample);
        self.rtt = Some(rtt);
        self.loss = report.loss;
        self.adapt(now, seconds(rtt));
        self.payload.restart();
        self.unreported = 0;
        Ok(())
    }

    /// Returns the unwrapped number that is acknowledged, and the round-trip sample.
    fn check(&self, now: Time, report: &Feedback) -> Result<(u64, Duration), FeedbackError> {
        if !(0.0..=1.0).contains(&report.loss) {
            return Err(FeedbackError::Loss(report.loss));
        }
        let wire = report.number;
        let number = extend(self.next - 1, wire);
        if number >= self.next || number < begin(0) {
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

    /// Computes T₂ by equation 2, and m₂ by equation 4.
    fn adapt(&mut self, now: Time, rtt: Duration) {
        if self.loss <= 0.0 {
            (self.share, self.choice) = (None, Choice::SINGLY);
            return;
        }
        let packing = self.packing();
        // TCP's rate with a segment of one byte is its segments per second, of any size.
        let segments = self.config.equation.rate(1.0, rtt, self.loss);
        let segment = match self.config.segment {
            Segment::Datagram => packing.size(self.choice.packets),
            Segment::Nominal(bytes) => bytes.max(1.0),
            Segment::Chosen => {
                let most = packing.most(self.config.mtu);
                let rate = self.packets.per_s(now);
                self.choice = packing.choose_datagrams(rate, segments, most);
                self.share = Some(segments * packing.size(self.choice.packets));
                return;
            }
        };
        self.share = Some(segments * segment);
        self.choose(now, segments * segment);
    }

    fn packing(&self) -> Packing {
        self.config.packing(self.payload.mean())
    }

    /// Chooses m₂ by equation 4 for a share in bytes per second.
    fn choose(&mut self, now: Time, share: f64) {
        let packing = self.packing();
        let most = packing.most(self.config.mtu);
        self.choice = packing.choose(self.packets.per_s(now), share, most);
    }

    /// The time for [`expire`](Sender::expire); never while too little was sent for a report.
    pub fn next_timeout(&self) -> Time {
        if self.unreported >= self.reportable() { self.timer } else { Time::NEVER }
    }

    /// Handles a report that is overdue at [`next_timeout`](Sender::next_timeout): the path is
    /// assumed to have become worse, and the share is halved, as in RFC 3448 (section 4.4). Does
    /// nothing before that time.
    pub fn expire(&mut self, now: Time) {
        if now < self.next_timeout() {
            return;
        }
        let present = self.packing().bytes_per_s(self.packets.per_s(now), self.choice.packets);
        let share = self.share.unwrap_or(present).min(present) / 2.0;
        self.share = Some(share);
        self.choose(now, share);
        self.unreported = 0;
    }

    /// Number of datagrams that are certain to cause a report if all is well: as many as two
    /// reports need.
    fn reportable(&self) -> u32 {
        self.config.per_feedback().saturating_mul(2)
    }

    /// Time for which a report may be missing: four round trips, as for TCP's t_RTO, or four report
    /// intervals if those are longer.
    fn feedback_timeout(&self) -> Duration {
        let Some(rtt) = self.rtt() else { return FIRST_TIMEOUT };
        let four = rtt.max(self.config.feedback_interval).saturating_mul(4);
        four.min(MAX_BACKOFF)
    }
}

/// K, packet rate in packets per second.
#[derive(Clone, Copy, Debug)]
struct PacketRate {
    /// Start of the current span, and the packets since then.
    since: Time,
    count: u64,
    /// Packets per second in the previous span.
    before: f64,
}

impl PacketRate {
    fn add(&mut self, now: Time, packets: usize) {
        let passed = now.since(self.since);
        if passed >= SPAN {
            // After a pause of a full span, there is no previous span.
            let is_next = passed < 2 * SPAN;
            self.before = if is_next { self.count as f64 / passed.as_secs_f64() } else { 0.0 };
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(packets as u64);
    }

    /// The rate of the current span, as if no further packets arrived in it.
    fn rate(&self) -> f64 {
        self.count as f64 / SPAN.as_secs_f64()
    }

    fn per_s(&self, now: Time) -> f64 {
        let passed = now.since(self.since);
        match () {
            () if passed < SPAN => self.before.max(self.rate()),
            () if passed < 2 * SPAN => self.rate(),
            () => 0.0,
        }
    }
}

/// The mean payload of the packets since the last report, or of those before it if there were none
/// since.
#[derive(Clone, Copy, Default, Debug)]
struct MeanPayload {
    packets: u64,
    bytes: u64,
    before: f64,
}

impl MeanPayload {
    fn add(&mut self, packets: usize, bytes: usize) {
        self.packets = self.packets.saturating_add(packets as u64);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    fn mean(&self) -> f64 {
        if self.packets > 0 { self.bytes as f64 / self.packets as f64 } else { self.before }
    }

    fn restart(&mut self) {
        *self = MeanPayload { packets: 0, bytes: 0, before: self.mean() };
    }
}
