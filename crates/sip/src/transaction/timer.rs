//! When a transaction does something by itself (RFC 3261, table 4).

use super::{T1, T2, TIMER_C};
use core::time::Duration;
use trunkline_base::Time;

/// How long each side tries: timers B, F, H, J, L and M.
const TRY: Duration = Duration::from_secs(32);

/// Something that is sent again and again, ever more slowly.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    at: Time,
    interval: Duration,
}

impl Repeat {
    fn from(now: Time) -> Repeat {
        Repeat { at: now + T1, interval: T1 }
    }

    /// Whether it is due; then the next is at twice the interval, but of `most`.
    fn fires(this: &mut Option<Repeat>, now: Time, most: Duration) -> bool {
        let Some(repeat) = this.as_mut().filter(|repeat| repeat.at <= now) else { return false };
        repeat.interval = (2 * repeat.interval).min(most);
        repeat.at = now + repeat.interval;
        true
    }
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// A, E: the request is sent again.
    ask: Option<Repeat>,
    /// The same of its CANCEL.
    cancel: Option<Repeat>,
    /// G: the response is sent again.
    answer: Option<Repeat>,
    /// B, C, F: nobody answers.
    give_up: Option<Time>,
    /// D, H, I, J, K, L, M: the transaction is forgotten.
    end: Option<Time>,
    /// Whether an INVITE has had a provisional response.
    rings: bool,
    /// Whether it has been cancelled, after which nothing gives it more time.
    is_cancelled: bool,
    /// When it is known to have something to do.
    pub armed: Option<Time>,
}

impl Timers {
    /// A request came, and the caller knows what to do with it, or has this long to find
    /// out.
    pub fn new(now: Time) -> Timers {
        Timers { give_up: Some(now + TRY), ..Timers::default() }
    }

    /// A request has been forwarded, by a transport that may lose it or not.
    pub fn calling(now: Time, repeats: bool) -> Timers {
        Timers { ask: repeats.then(|| Repeat::from(now)), ..Timers::new(now) }
    }

    /// A provisional response came.
    pub fn provisional(&mut self, now: Time, is_invite: bool, code: u16) {
        if !is_invite {
            // It may have been the last that is heard: less often, but on.
            self.ask.iter_mut().for_each(|ask| ask.interval = T2);
            return;
        }
        self.ask = None;
        let is_first = !core::mem::replace(&mut self.rings, true);
        if (is_first || code > 100) && !self.is_cancelled {
            self.give_up = Some(now + TIMER_C);
        }
    }

    /// A final response came, and the caller passes it on, or has this long to.
    pub fn answered(&mut self, now: Time) {
        (self.ask, self.cancel, self.give_up) = (None, None, Some(now + TRY));
    }

    /// A 2xx of an INVITE is passed on, the first or another.
    pub fn accepted(&mut self, now: Time, is_first: bool) {
        self.stop();
        if is_first {
            self.end = Some(now + TRY);
        }
    }

    /// Another final response is sent, by a transport that may lose it or not.
    pub fn completed(&mut self, now: Time, is_invite: bool, repeats: bool) {
        self.stop();
        self.answer = (is_invite && repeats).then(|| Repeat::from(now));
        let at_once = !is_invite && !repeats;
        self.end = Some(if at_once { now } else { now + TRY });
    }

    /// It has been acknowledged.
    pub fn confirmed(&mut self, end: Time) {
        (self.answer, self.end) = (None, Some(end));
    }

    fn stop(&mut self) {
        (self.ask, self.cancel, self.give_up) = (None, None, None);
    }

    /// The request has been cancelled: whoever it is for has this long to say so.
    pub fn cancelling(&mut self, now: Time, repeats: bool) {
        self.cancel = repeats.then(|| Repeat::from(now));
        (self.give_up, self.is_cancelled) = (Some(now + TRY), true);
    }

    /// The CANCEL has been answered.
    pub fn cancel_heard(&mut self) {
        self.cancel = None;
    }

    pub fn ask_again(&mut self, now: Time, is_invite: bool) -> bool {
        Repeat::fires(&mut self.ask, now, if is_invite { TRY } else { T2 })
    }

    pub fn cancel_again(&mut self, now: Time) -> bool {
        Repeat::fires(&mut self.cancel, now, T2)
    }

    pub fn answer_again(&mut self, now: Time) -> bool {
        Repeat::fires(&mut self.answer, now, T2)
    }

    pub fn has_ended(&self, now: Time) -> bool {
        self.end.is_some_and(|at| at <= now)
    }

    pub fn gives_up(&self, now: Time) -> bool {
        self.give_up.is_some_and(|at| at <= now)
    }

    pub fn next(&self) -> Option<Time> {
        let repeats = [&self.ask, &self.cancel, &self.answer].map(|r| r.map(|r| r.at));
        repeats.into_iter().chain([self.give_up, self.end]).flatten().min()
    }
}
