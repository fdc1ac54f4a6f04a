use super::{Answer, ArrivalKind, Gap, Policy, Request, Requests};
use crate::link::realtime::inter_arrival::InterArrival;
use core::time::Duration;
use trunkline_base::Time;

/// Uses the time left until the deadline:
///
/// - Each request names every missing packet. It is sent again when the answer is overdue, and more
///   often when there is time for only one more request.
/// - A packet that is overdue, judged by earlier intervals, is requested, too, so that the end of a
///   talkspurt, or a lone call, does not have to wait for a later packet to reveal the gap.
/// - An answer that leaves no time for another is sent in several copies, spread over the remaining
///   time, since a burst that loses one packet tends to lose its neighbours as well.
/// - The cost beyond one request and one retransmission is earned by losses: a lossless link never
///   pays.
#[derive(Debug)]
pub(super) struct UntilDeadline {
    inter_arrival: InterArrival,
    /// When to request everything that is missing again.
    again: Time,
    /// When to request a packet that is overdue, though no gap shows it to be missing.
    unheard: Time,
}

/// Maximum number of copies in addition to a retransmission.
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
        // Either the budget had room when this was planned, or it was for an answer that would be
        // overdue now, of a packet that has since expired.
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
        // Whether this request is the last that there is time for.
        let &Request { now, rtt, send_by } = request;
        let is_last = now + rtt + rtt / 16 > send_by;
        let copies = if is_last { COPIES } else { 0 };
        Some(Answer { copies, within: send_by.since(now) })
    }
}

impl UntilDeadline {
    /// Schedules the next request: when an answer is overdue, or earlier if the last request may
    /// have been lost and the budget has room for another.
    fn plan(&mut self, requests: &mut Requests) {
        self.again = match requests.overdue_at() {
            None => Time::NEVER,
            Some(overdue) if requests.can_pay() && requests.is_last_chance() => {
                // The more budget is left, the shorter the pause.
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

/// Interval between two requests for the same packet: a quarter of the round trip, so that a burst
/// that takes one spares the next.
fn pause(rtt: Duration) -> Duration {
    (rtt / 4).clamp(Duration::from_millis(2), Duration::from_millis(10))
}
