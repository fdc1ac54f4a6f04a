use super::{Answer, ArrivalKind, Gap, Policy, Request, Requests};
use crate::link::realtime::inter_arrival::InterArrival;
use core::time::Duration;
use trunkline_base::Time;

/// Spends the time that is left until the deadline:
///
/// - What is missing is asked for in each request. It is asked for again when the
///   answer is overdue, and more often when there is time for one more request at
///   most.
/// - A packet that is overdue by the distances of those before is asked for, too,
///   so that the end of a talkspurt, or a call alone, need not wait for a later
///   packet to show the gap.
/// - An answer after which there is no time for another goes out in several copies,
///   spread over the time that is left, since what takes one takes its neighbours
///   too.
/// - What this costs beyond a request and a repetition is earned by losses: a
///   lossless link never pays.
#[derive(Debug)]
pub(super) struct UntilDeadline {
    inter_arrival: InterArrival,
    /// When to ask again for everything that is missing.
    again: Time,
    /// When to ask for a packet that nothing has shown to be missing.
    unheard: Time,
}

/// The most copies beside a repetition.
const COPIES: u32 = 3;

impl Default for UntilDeadline {
    fn default() -> UntilDeadline {
        let inter_arrival = InterArrival::default();
        UntilDeadline { inter_arrival, again: Time::NEVER, unheard: Time::NEVER }
    }
}

impl Policy for UntilDeadline {
    fn missing(&mut self, gap: Gap, requests: &mut Requests) {
        if requests.follow(gap) {
            requests.ask_for_all(0);
            self.plan(requests);
        }
    }

    fn arrived(&mut self, came: ArrivalKind, requests: &mut Requests) {
        if came != ArrivalKind::Retransmitted {
            self.inter_arrival.note(requests.now(), came == ArrivalKind::InOrder);
        }
        self.unheard = Time::NEVER;
        if requests.can_pay()
            && let Some(at) = self.inter_arrival.overdue_at(requests.rtt())
            && requests.is_in_time(at)
        {
            self.unheard = at.max(requests.now());
        }
        self.wake(requests);
    }

    fn handle_timeout(&mut self, requests: &mut Requests) {
        let now = requests.now();
        let unheard = now >= self.unheard;
        let guess = if unheard { self.inter_arrival.missing(now) } else { 0 };
        // It could be paid for when it was planned, or was an answer that would be
        // overdue now, of a packet that has expired.
        let asked = requests.ask_for_all(guess);
        self.plan(requests);
        if unheard {
            let next = now + 2 * pause(requests.rtt());
            let goes_on = asked && requests.can_pay() && requests.is_in_time(next);
            self.unheard = if goes_on { next } else { Time::NEVER };
            self.wake(requests);
        }
    }

    fn forget(&mut self) {
        (self.again, self.unheard) = (Time::NEVER, Time::NEVER);
    }

    fn restart(&mut self) {
        self.inter_arrival = InterArrival::default();
    }

    fn answer(&mut self, request: &Request) -> Option<Answer> {
        // Whether there is time for another request after this one.
        let &Request { now, rtt, send_by } = request;
        let is_last = now + rtt + rtt / 16 > send_by;
        let copies = if is_last { COPIES } else { 0 };
        Some(Answer { copies, within: send_by.since(now) })
    }
}

impl UntilDeadline {
    /// When to ask again: when an answer is overdue, or before, as a request
    /// may have been lost and the budget has room for another.
    fn plan(&mut self, requests: &mut Requests) {
        self.again = match requests.overdue_at() {
            None => Time::NEVER,
            Some(overdue) if requests.can_pay() && requests.is_last_chance() => {
                // The more there is to spend, the faster.
                let pause = pause(requests.rtt());
                let pause = if requests.is_rich() { pause / 2 } else { pause };
                overdue.min(requests.now() + pause)
            }
            Some(overdue) => overdue,
        };
        self.wake(requests);
    }

    fn wake(&self, requests: &mut Requests) {
        requests.wake_at(self.again.min(self.unheard));
    }
}

/// Between two requests for the same packet: a quarter of the round trip, so
/// that a burst that takes one spares the next.
fn pause(rtt: Duration) -> Duration {
    (rtt / 4).clamp(Duration::from_millis(2), Duration::from_millis(10))
}
