//! Timers of a transaction (RFC 3261, table 4).

use super::{T1, T2, TIMER_C};
use core::time::Duration;
use trunkline_base::Time;

/// Time that each side tries: timers B, F, H, J, L and M.
const TRY: Duration = Duration::from_secs(32);

/// A retransmission with exponential back-off.
#[derive(Clone, Copy, Debug)]
struct Retransmit {
    at: Time,
    interval: Duration,
}

impl Retransmit {
    fn from(now: Time) -> Retransmit {
        Retransmit { at: now + T1, interval: T1 }
    }

    /// Whether it is due; if so, doubles the interval up to `most`.
    fn fires(this: &mut Option<Retransmit>, now: Time, most: Duration) -> bool {
        let Some(repeat) = this.as_mut().filter(|repeat| repeat.at <= now) else { return false };
        repeat.interval = (2 * repeat.interval).min(most);
        repeat.at = now + repeat.interval;
        true
    }
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Timers A and E: retransmit the request.
    ask: Option<Retransmit>,
    /// Retransmits the request's CANCEL.
    cancel: Option<Retransmit>,
    /// Timer G: retransmit the response.
    answer: Option<Retransmit>,
    /// Timers B, C and F: no answer.
    give_up: Option<Time>,
    /// Timers D, H, I, J, K, L and M: forget the transaction.
    end: Option<Time>,
    /// Whether an INVITE has had a provisional response.
    rings: bool,
    /// Whether it has been cancelled, after which nothing extends its time.
    is_cancelled: bool,
    /// Time until which a late answer to an abandoned INVITE is expected.
    late: Option<Time>,
    /// The time at which it is scheduled.
    pub armed: Option<Time>,
}

impl Timers {
    /// Timers for a new request, which the caller must handle within [`TRY`].
    pub fn new(now: Time) -> Timers {
        Timers { give_up: Some(now + TRY), ..Timers::default() }
    }

    /// Timers for a forwarded request; `repeats` is set if the transport is unreliable.
    pub fn calling(now: Time, retransmissions: bool) -> Timers {
        Timers { ask: retransmissions.then(|| Retransmit::from(now)), ..Timers::new(now) }
    }

    /// Handles a provisional response.
    pub fn provisional(&mut self, now: Time, is_invite: bool, code: u16) {
        if !is_invite {
            // It may be the last response to arrive, so retransmissions continue, at a lower rate.
            self.ask.iter_mut().for_each(|ask| ask.interval = T2);
            return;
        }
        self.ask = None;
        let is_first = !core::mem::replace(&mut self.rings, true);
        if (is_first || code > 100) && !self.is_cancelled {
            self.give_up = Some(now + TIMER_C);
        }
    }

    /// Handles a final response, which the caller must pass on within [`TRY`].
    pub fn answered(&mut self, now: Time) {
        (self.ask, self.cancel, self.give_up) = (None, None, Some(now + TRY));
    }

    /// Handles a 2xx of an INVITE that is passed on, the first or a further one.
    pub fn accepted(&mut self, now: Time, is_first: bool) {
        self.stop();
        if is_first {
            self.end = Some(now + TRY);
        }
    }

    /// Handles another final response that is sent; `repeats` is set if the transport is
    /// unreliable.
    pub fn completed(&mut self, now: Time, is_invite: bool, retransmissions: bool) {
        self.stop();
        self.answer = (is_invite && retransmissions).then(|| Retransmit::from(now));
        let at_once = !is_invite && !retransmissions;
        self.end = Some(if at_once { now } else { now + TRY });
    }

    /// Handles the acknowledgement of the final response.
    pub fn confirmed(&mut self, end: Time) {
        (self.answer, self.end) = (None, Some(self.late.map_or(end, |late| late.max(end))));
    }

    /// Handles a final response to the requester that is not downstream's own: it may still accept
    /// the request until the CANCEL arrives, which is retransmitted meanwhile.
    pub fn abandon(&mut self, now: Time) {
        self.late = Some(now + TRY);
    }

    fn stop(&mut self) {
        (self.ask, self.give_up) = (None, None);
        if self.late.is_none() {
            self.cancel = None;
        }
    }

    /// Handles the cancellation of the request, whose recipient must answer within [`TRY`].
    pub fn cancelling(&mut self, now: Time, retransmissions: bool) {
        self.cancel = retransmissions.then(|| Retransmit::from(now));
        self.is_cancelled = true;
        match &mut self.late {
            None => self.give_up = Some(now + TRY),
            Some(late) => {
                *late = now + TRY;
                self.end = Some(now + TRY);
            }
        }
    }

    /// Handles the response to the CANCEL.
    pub fn cancel_heard(&mut self) {
        self.cancel = None;
    }

    pub fn ask_again(&mut self, now: Time, is_invite: bool) -> bool {
        Retransmit::fires(&mut self.ask, now, if is_invite { TRY } else { T2 })
    }

    pub fn cancel_again(&mut self, now: Time) -> bool {
        Retransmit::fires(&mut self.cancel, now, T2)
    }

    pub fn answer_again(&mut self, now: Time) -> bool {
        Retransmit::fires(&mut self.answer, now, T2)
    }

    pub fn has_ended(&self, now: Time) -> bool {
        self.end.is_some_and(|at| at <= now)
    }

    pub fn gives_up(&self, now: Time) -> bool {
        self.give_up.is_some_and(|at| at <= now)
    }

    pub fn next(&self) -> Option<Time> {
        let retransmissions = [&self.ask, &self.cancel, &self.answer].map(|r| r.map(|r| r.at));
        retransmissions.into_iter().chain([self.give_up, self.end]).flatten().min()
    }
}
