//! The receiver of a flow (RFC 3448, section 6; RFC 4342, sections 8.3 and 10.3).

use super::{Config, Data, Feedback, FirstInterval, Measure};
use crate::equation::MIN_RTT;
use crate::loss_events::{History, News};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{SeqWindow, Time, extend, first};

/// Number of packets whose arrival is remembered for the receive rate. If more arrive in a round
/// trip, the rate is that of this many.
const ARRIVALS: usize = 1_024;

/// Longest accepted round trip of a sender: as long as the maximum time between two packets.
const MAX_RTT: Duration = super::MAX_BACKOFF;

/// Minimum gap between two packets of a quiet sender (RFC 4342, section 6.4).
const QUIET: Duration = Duration::from_millis(200);

/// Reasons for rejecting a packet; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DataError {
    /// The packet belongs to another flow.
    #[error("the packet belongs to flow {got}, but this is the receiver of flow {expected}")]
    Flow {
        /// The number of the flow that the packet belongs to.
        got: u32,
        /// The number of this receiver's flow.
        expected: u32,
    },
    /// A packet with this number has already arrived, or the number lies more than 1,024 behind the
    /// highest.
    #[error("packet {0} has already arrived, or is too late to tell")]
    Known(u16),
}

/// The receiving end of a flow. It is given each packet's header on arrival, and decides when a
/// report is due.
///
/// A report is due with the first packet, with one that shows a new loss event if that raises the
/// loss event rate, and with one that arrives a round trip or more after the last report. No timer
/// makes a report due: a window counter would give the same result (RFC 4342, section 10.3). So the
/// last packets before a pause go unreported until the first after it.
///
/// Each report acknowledges a packet that no earlier report has, or the sender would take it for a
/// duplicate: a report that a late packet makes due is sent with the next packet that is not late.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: Config,
    flow: u32,
    numbers: Option<SeqWindow<[u64; 16]>>,
    history: History,
    /// The sender's round-trip time, from the last packet.
    rtt: Option<Duration>,
    /// Arrival time of the packet with the highest number.
    highest_at: Time,
    /// p, as last computed.
    loss: f64,
    due: bool,
    /// The number acknowledged by the last report.
    acknowledged: Option<u64>,
    arrivals: Arrivals,
    /// The highest receive rate reported.
    highest_rate: f64,
    /// Time of the last report.
    reported: Option<Time>,
}

impl Receiver {
    /// Creates a receiver for flow `flow`. `config` is the sender's.
    pub fn new(config: Config, flow: u32) -> Receiver {
        Receiver {
            config,
            flow,
            numbers: None,
            history: History::new(config.loss),
            rtt: None,
            highest_at: Time::ZERO,
            loss: 0.0,
            due: false,
            acknowledged: None,
            arrivals: Arrivals::new(),
            highest_rate: 0.0,
            reported: None,
        }
    }

    /// Records the arrival of a packet with `bytes` of payload. Returns whether a report is due
    /// now, to be fetched from [`report`](Receiver::report) and sent at once.
    ///
    /// # Errors
    ///
    /// Returns [`DataError`] for a packet of another flow, or one that has arrived before.
    pub fn receive(&mut self, now: Time, data: &Data, bytes: usize) -> Result<bool, DataError> {
        let (got, expected) = (data.flow, self.flow);
        if got != expected {
            return Err(DataError::Flow { got, expected });
        }
        let (number, highest) = match &mut self.numbers {
            None => {
                let number = first(data.number);
                self.numbers = Some(SeqWindow::starting_at(number, [0; 16]));
                (number, true)
            }
            Some(numbers) => {
                let before = numbers.highest();
                // After this long no older packet is still in flight, so the number is a later one,
                // even if half of the number space or more was lost.
                let late = now.since(self.highest_at) <= MAX_RTT;
                let near = if late { before } else { before + (1 << 15) };
                let number = extend(near, data.number);
                if !numbers.insert(number) {
                    return Err(DataError::Known(data.number));
                }
                (number, number > before)
            }
        };
        if highest {
            self.highest_at = now;
            self.rtt = data.rtt.map(|rtt| rtt.clamp(MIN_RTT, MAX_RTT)).or(self.rtt);
        }
        let rtt = self.round_trip();
        let quiet = match self.config.measure {
            Measure::WithoutIdle => rtt.saturating_mul(2).max(QUIET),
            Measure::SinceReport | Measure::RoundTrip => Duration::MAX,
        };
        self.arrivals.add(now, bytes, quiet);
        let news = self.history.arrive(number, now, rtt);
        if news == News::First {
            self.history.seed(1.0 / self.first_loss(rtt));
        }
        // p falls with every packet, and rises only with loss events.
        if news != News::None {
            let loss = self.history.rate(now, rtt);
            self.due |= loss > self.loss;
            self.loss = loss;
        }
        self.due |= self.reported.is_none_or(|at| now.since(at) >= rtt);
        Ok(self.to_acknowledge().is_some())
    }

    /// The number that a report would acknowledge now, if one is due.
    fn to_acknowledge(&self) -> Option<u64> {
        let highest = self.numbers.as_ref()?.highest();
        let is_new = self.acknowledged.is_none_or(|last| highest > last);
        (self.due && is_new).then_some(highest)
    }

    /// Returns the report if one is due.
    pub fn report(&mut self, now: Time) -> Option<Feedback> {
        let number = self.to_acknowledge()?;
        self.acknowledged = Some(number);
        let acknowledged = number as u16;
        let rtt = self.round_trip();
        self.loss = self.history.rate(now, rtt);
        // The first report has no receive rate (RFC 3448, section 6.3).
        let receive_rate = match self.config.measure {
            _ if self.reported.is_none() => 0.0,
            Measure::SinceReport | Measure::WithoutIdle => {
                self.arrivals.rate(rtt.max(self.arrivals.since_report()))
            }
            Measure::RoundTrip => self.arrivals.rate(rtt),
        };
        self.highest_rate = self.highest_rate.max(receive_rate);
        self.arrivals.note_report();
        (self.due, self.reported) = (false, Some(now));
        let elapsed = now.since(self.highest_at);
        Some(Feedback { flow: self.flow, acknowledged, elapsed, receive_rate, loss: self.loss })
    }

    /// p, the loss event rate at `now`, 0 to 1.
    pub fn loss(&self, now: Time) -> f64 {
        self.history.rate(now, self.round_trip())
    }

    /// R, or zero before it is known: then each packet is reported, and each loss is an event.
    fn round_trip(&self) -> Duration {
        self.rtt.unwrap_or(Duration::ZERO)
    }

    /// The loss event rate at which the equation gives the receive rate: its inverse is the first
    /// interval (RFC 3448, section 6.3.1).
    fn first_loss(&self, rtt: Duration) -> f64 {
        let rtt = rtt.max(MIN_RTT);
        let received = self.arrivals.rate(rtt);
        let received = match self.config.first_interval {
            FirstInterval::RoundTrip => received,
            FirstInterval::Highest => received.max(self.highest_rate),
        };
        // At least half a packet per round trip (RFC 5348, section 6.3.1).
        let least = 0.5 * self.config.segment() / rtt.as_secs_f64();
        self.config.loss_at(rtt, received.max(least))
    }
}

/// Arrivals of packets, on a clock that may stop during pauses.
#[derive(Clone, Debug)]
struct Arrivals {
    /// Clock time and bytes of each packet.
    recent: VecDeque<(Duration, usize)>,
    /// Clock time of the last packet that was forgotten.
    forgotten: Option<Duration>,
    clock: Duration,
    /// Time of the last arrival, and the gap before it.
    last: Option<Time>,
    gap: Duration,
    /// Clock time of the last report, and the bytes since then.
    reported: Duration,
    bytes: u64,
}

impl Arrivals {
    fn new() -> Arrivals {
        Arrivals {
            recent: VecDeque::with_capacity(ARRIVALS),
            forgotten: None,
            // No span of a round trip reaches back before the start.
            clock: MAX_RTT,
            last: None,
            gap: Duration::ZERO,
            reported: MAX_RTT,
            bytes: 0,
        }
    }

    /// Records a packet. A gap longer than `quiet` is a pause.
    fn add(&mut self, now: Time, bytes: usize, quiet: Duration) {
        let gap = self.last.map_or(Duration::ZERO, |last| now.since(last));
        if gap <= quiet {
            self.gap = gap;
        }
        self.clock = self.clock.saturating_add(self.gap);
        self.last = Some(now);
        if self.recent.len() == ARRIVALS {
            self.forgotten = self.recent.pop_front().map(|(at, _)| at);
        }
        self.recent.push_back((self.clock, bytes));
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    fn since_report(&self) -> Duration {
        self.clock.saturating_sub(self.reported)
    }

    fn note_report(&mut self) {
        (self.reported, self.bytes) = (self.clock, 0);
    }

    /// Bytes per second over the last `span` up to the last packet; 0 over an empty span.
    fn rate(&self, span: Duration) -> f64 {
        let (bytes, span) = if span == self.since_report() {
            (self.bytes, span)
        } else {
            let from = self.clock.saturating_sub(span);
            let from = self.forgotten.map_or(from, |at| at.max(from));
            // The packet at the start of a span belongs to the previous one.
            let within = self.recent.iter().rev().take_while(|(at, _)| *at > from);
            (within.map(|(_, bytes)| *bytes as u64).sum(), self.clock - from)
        };
        if span.is_zero() { 0.0 } else { bytes as f64 / span.as_secs_f64() }
    }
}
