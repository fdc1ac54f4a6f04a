//! The receiving end of a trunk (Trad and Afifi, section 5.1.2).

use super::{Config, Feedback, Numbers, begin, extend};
use crate::equation::MIN_RTT;
use crate::loss_events::{History, News};
use crate::tfrc::MAX_BACKOFF;
use core::time::Duration;
use trunkline_base::{SeqWindow, Time};

/// A datagram that was refused; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DataError {
    /// A datagram with this number has come, or the number lies more than 1,024 behind
    /// the highest.
    #[error("datagram {0} has come before, or comes too late to tell")]
    Known(u32),
}

/// The receiving end of a trunk: it is handed each datagram's number as it comes, and
/// says when a report is due.
///
/// A report is due with the first datagram that comes an interval after the last report
/// or later, and never for fewer than [`Config::datagrams_per_feedback`]. None comes by a
/// timer, so that the last datagrams before a pause go unreported until others follow.
///
/// A sender that begins again, with another number, needs a new receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: Config,
    numbers: Option<SeqWindow<[u64; 16]>>,
    history: History,
    /// The first number that the history has seen, and the highest.
    seen: Option<(u64, u64)>,
    /// The sender's round-trip time; zero until it is known.
    rtt: Duration,
    /// When the datagram with the highest number came.
    highest_at: Time,
    /// How many have come since the last report, and when that was made.
    since_report: u32,
    reported: Option<Time>,
}

impl Receiver {
    /// A receiver to which nothing has come. `config` is the sender's.
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
        }
    }

    /// Takes over the sender's round-trip time, which tells how far the losses of one
    /// event may be apart. Until then each lost datagram is an event of its own. It is
    /// bounded to 1 µs and 64 s.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt.clamp(MIN_RTT, MAX_BACKOFF);
    }

    /// The datagram with this number comes. Whether a report is due now, which
    /// [`report`](Receiver::report) gives.
    ///
    /// # Errors
    ///
    /// [`DataError`] for a datagram that has come before.
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
        self.since_report = self.since_report.saturating_add(1);
        Ok(self.is_due(now))
    }

    /// A packet of the one call whose RTP sequence numbers show losses comes: only with
    /// [`Numbers::OneFlow`] does it mean anything. One that comes twice counts twice, as
    /// the paper knows no duplicates.
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
            // A trunk has sent at the calls' rate from the beginning, so that what came
            // before the first loss is an interval like any other.
            self.history.seed(highest.saturating_sub(first) as f64);
        }
    }

    fn is_due(&self, now: Time) -> bool {
        let interval = self.config.feedback_interval;
        self.since_report >= self.config.per_feedback()
            && self.reported.is_none_or(|at| now.since(at) >= interval)
    }

    /// The report that is due; none if none is.
    pub fn report(&mut self, now: Time) -> Option<Feedback> {
        let numbers = self.numbers.as_ref().filter(|_| self.is_due(now))?;
        let number = numbers.highest() as u32;
        (self.since_report, self.reported) = (0, Some(now));
        Some(Feedback { number, elapsed: now.since(self.highest_at), loss: self.loss(now) })
    }

    /// p, the loss event rate at `now`, 0 to 1.
    pub fn loss(&self, now: Time) -> f64 {
        self.history.rate(now, self.rtt)
    }
}
