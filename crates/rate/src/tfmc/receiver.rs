//! The receiving end of a trunk (Trad and Afifi, section 5.1.2).

use super::{Config, Feedback, Numbers, Reports, begin, extend};
use crate::equation::MIN_RTT;
use crate::loss_events::{History, News};
use crate::tfrc::MAX_BACKOFF;
use core::time::Duration;
use trunkline_base::{SeqWindow, Time};

/// Reasons for rejecting a datagram; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DataError {
    /// A datagram with this number has already arrived, or the number lies more than 1,024 behind
    /// the highest.
    #[error("datagram {0} has already arrived, or is too late to tell")]
    Known(u32),
}

/// The receiving end of a trunk: it is given each datagram's number on arrival, and decides when a
/// report is due.
///
/// With [`Reports::OnArrival`] a report is due with the first datagram that arrives at least an
/// interval after the last report, and no timer makes it due, so that the last datagrams before a
/// pause go unreported until others follow. With [`Reports::Periodic`] it is due at
/// [`next_report`](Receiver::next_report). It is never due for fewer datagrams than
/// [`Config::datagrams_per_feedback`].
///
/// If the sender restarts with another number, it needs a new receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: Config,
    numbers: Option<SeqWindow<[u64; 16]>>,
    history: History,
    /// The first and the highest number in the history.
    seen: Option<(u64, u64)>,
    /// The sender's round-trip time; zero until it is known.
    rtt: Duration,
    /// Arrival time of the datagram with the highest number.
    highest_at: Time,
    /// Datagrams received since the last report, and the time of that report.
    since_report: u32,
    reported: Option<Time>,
    /// The next of the fixed times for reports; `NEVER` before the first datagram.
    tick: Time,
}

impl Receiver {
    /// Creates a receiver to which nothing has arrived. `config` is the sender's.
    pub fn new(config: Config) -> Receiver {
        Receiver {
            config,
            numbers: None,
            history: History::new(config.loss),
            seen: None,
            rtt: Duration::ZERO,
            highest_at: Time::ZERO,
            since_report: 0,
            reported: None,
            tick: Time::NEVER,
        }
    }

    /// Sets the sender's round-trip time, which is the longest time between losses of one event.
    /// Until then, each lost datagram is an event of its own. It is clamped to 1 µs to 64 s.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt.clamp(MIN_RTT, MAX_BACKOFF);
    }

    /// Records the arrival of a datagram. Returns whether a report is due now, to be fetched from
    /// [`report`](Receiver::report).
    ///
    /// # Errors
    ///
    /// Returns [`DataError`] for a datagram that has arrived before.
    pub fn receive(&mut self, now: Time, number: u32) -> Result<bool, DataError> {
        let (number, is_highest) = match &mut self.numbers {
            None => {
                let number = begin(number);
                self.numbers = Some(SeqWindow::starting_at(number, [0; 16]));
                (number, true)
            }
            Some(numbers) => {
                let before = numbers.highest();
                let extended = extend(before, number);
                if !numbers.insert(extended) {
                    return Err(DataError::Known(number));
                }
                (extended, extended > before)
            }
        };
        if is_highest {
            self.highest_at = now;
        }
        if self.config.numbers == Numbers::Trunk {
            self.note(now, number);
        }
        if !self.has_enough() {
            self.skip_ticks(now);
        }
        self.since_report = self.since_report.saturating_add(1);
        Ok(self.is_due(now))
    }

    /// Records a packet of the one call whose RTP sequence numbers reveal losses; only used with
    /// [`Numbers::OneFlow`]. A duplicate counts twice, as the paper does not consider duplicates.
    pub fn receive_of_flow(&mut self, now: Time, sequence: u16) {
        if self.config.numbers == Numbers::OneFlow {
            let number = match self.seen {
                None => trunkline_base::first(sequence),
                Some((_, highest)) => trunkline_base::extend(highest, sequence),
            };
            self.note(now, number);
        }
    }

    fn note(&mut self, now: Time, number: u64) {
        let (first, highest) = self.seen.unwrap_or((number, number));
        self.seen = Some((first, highest.max(number)));
        if self.history.arrive(number, now, self.rtt) == News::First {
            // A trunk sends at the calls' rate from the start, so the packets before the first loss
            // are an interval like any other.
            self.history.seed(highest.saturating_sub(first) as f64);
        }
    }

    fn has_enough(&self) -> bool {
        self.since_report >= self.config.per_feedback()
    }

    fn is_due(&self, now: Time) -> bool {
        let interval = self.config.feedback_interval;
        self.has_enough()
            && match self.config.reports {
                Reports::OnArrival => self.reported.is_none_or(|at| now.since(at) >= interval),
                Reports::Periodic => now >= self.tick,
            }
    }

    /// Moves the next fixed time for a report beyond `now`; the first is an interval from `now`.
    fn skip_ticks(&mut self, now: Time) {
        let interval = self.config.feedback_interval.max(Duration::from_micros(1));
        if self.tick == Time::NEVER {
            self.tick = now + interval;
        } else if self.tick <= now {
            let passed = now.since(self.tick).as_nanos() / interval.as_nanos();
            self.tick += interval.saturating_mul(u32::try_from(passed + 1).unwrap_or(u32::MAX));
        }
    }

    /// The time at which [`report`](Receiver::report) returns a report of what has arrived so far;
    /// never while too little has arrived, or if arrivals cause reports.
    pub fn next_report(&self) -> Time {
        let is_periodic = self.config.reports == Reports::Periodic;
        if is_periodic && self.has_enough() { self.tick } else { Time::NEVER }
    }

    /// Returns the report if one is due.
    pub fn report(&mut self, now: Time) -> Option<Feedback> {
        let numbers = self.numbers.as_ref().filter(|_| self.is_due(now))?;
        let number = numbers.highest() as u32;
        (self.since_report, self.reported) = (0, Some(now));
        self.skip_ticks(now);
        Some(Feedback { number, elapsed: now.since(self.highest_at), loss: self.loss(now) })
    }

    /// p, the loss event rate at `now`, 0 to 1.
    pub fn loss(&self, now: Time) -> f64 {
        self.history.rate(now, self.rtt)
    }
}
