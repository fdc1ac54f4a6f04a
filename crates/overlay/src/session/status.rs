//! Notifications to sessions about destinations that their packets don't reach: each change once,
//! and its end. Only unreachable destinations are stored.

use super::flow::Peer;
use super::table::SessionId;
use super::wire::{ToClient, Unreachable};
use crate::wire::{Metric, NodeId};
use core::mem::discriminant;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_base::Time;

/// Maximum number of unreachable destinations per session. It is not notified of more.
const MAX_TROUBLES: usize = 256;

/// Interval after which a further packet counts as a new query whether the port is bound. A node
/// reports an unbound port to one flow at a limited rate.
const ASK_EVERY: Duration = Duration::from_millis(1_500);
/// Number of unanswered queries after which the port is taken to be bound: otherwise all of the
/// reports would have to be lost.
const ASKS: u8 = 3;
/// Time within which a report would have arrived: the maximum deadline in each direction.
const ANSWERED: Duration = Duration::from_millis(512);

/// Reason why packets don't reach a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// There is no route.
    NoRoute,
    /// The route was lost at this time.
    Lost(Time),
    /// No application has that port there.
    NoPort,
}

impl Cause {
    fn at(self, now: Time) -> Unreachable {
        match self {
            Cause::NoRoute => Unreachable::NoRoute,
            Cause::Lost(at) => Unreachable::Since(now.since(at).min(Unreachable::LONGEST)),
            Cause::NoPort => Unreachable::NoPort,
        }
    }
}

/// A flow that starts here: a session and its destination.
pub(crate) type Flow = (SessionId, Peer);

#[derive(Clone, Copy, Debug)]
struct Unreachability {
    /// Metric that its route is chosen by.
    metric: Metric,
    /// `None` once the problem has ended.
    cause: Option<Cause>,
    /// The last cause that the application was notified of.
    told: Option<Cause>,
    /// Time of the last report of an unbound port, or of the last query; and the number of queries
    /// since the report.
    asked_at: Time,
    asked: u8,
}

impl Unreachability {
    fn is_news(&self) -> bool {
        self.cause.map(|c| discriminant(&c)) != self.told.map(|c| discriminant(&c))
    }
}

/// Flows to unreachable destinations, with the cause.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    troubles: BTreeMap<Flow, Unreachability>,
}

impl Statuses {
    /// Whether no flow is affected.
    pub fn is_empty(&self) -> bool {
        self.troubles.is_empty()
    }

    /// Records that packets of `flow`, which is routed by `metric`, don't reach their destination.
    pub fn set(&mut self, now: Time, flow: Flow, metric: Metric, cause: Cause) {
        if !self.troubles.contains_key(&flow)
            && self.troubles.range(of_session(flow.0)).count() >= MAX_TROUBLES
        {
            return;
        }
        let fresh = Unreachability { metric, cause: None, told: None, asked_at: now, asked: 0 };
        let trouble = self.troubles.entry(flow).or_insert(fresh);
        (trouble.metric, trouble.cause) = (metric, Some(cause));
        (trouble.asked_at, trouble.asked) = (now, 0);
    }

    /// Records that packets of `flow` reach their destination.
    pub fn clear(&mut self, flow: Flow) {
        let Some(trouble) = self.troubles.get_mut(&flow) else { return };
        trouble.cause = None;
        if trouble.told.is_none() {
            self.troubles.remove(&flow);
        }
    }

    /// Records that a packet of `flow` had a route. If no report of an unbound port arrives for a
    /// while, the port counts as bound.
    pub fn sent(&mut self, now: Time, flow: Flow) {
        let Some(trouble) = self.troubles.get_mut(&flow) else { return };
        if trouble.cause == Some(Cause::NoPort) {
            let silence = now.since(trouble.asked_at);
            if trouble.asked < ASKS && silence >= ASK_EVERY {
                (trouble.asked_at, trouble.asked) = (now, trouble.asked + 1);
            }
            if trouble.asked < ASKS || silence < ANSWERED {
                return;
            }
        }
        self.clear(flow);
    }

    /// Records a packet from the destination of `flow`: its port is bound.
    pub fn heard(&mut self, flow: Flow) {
        if self.cause(flow) == Some(Cause::NoPort) {
            self.clear(flow);
        }
    }

    fn cause(&self, flow: Flow) -> Option<Cause> {
        self.troubles.get(&flow)?.cause
    }

    /// The change that the application of `flow` has not been notified of yet.
    pub fn news(&self, now: Time, flow: Flow) -> Option<ToClient<'static>> {
        let trouble = self.troubles.get(&flow).filter(|t| t.is_news())?;
        let (node, port) = flow.1;
        Some(match trouble.cause {
            None => ToClient::Reachable { node, port },
            Some(cause) => ToClient::Unreachable { node, port, why: cause.at(now) },
        })
    }

    /// Records that the application was notified.
    pub fn told(&mut self, flow: Flow) {
        let Some(trouble) = self.troubles.get_mut(&flow) else { return };
        trouble.told = trouble.cause;
        if trouble.told.is_none() {
            self.troubles.remove(&flow);
        }
    }

    /// The next affected flow after `last`, with the cause and the metric of its route.
    pub fn after(&self, last: Option<Flow>) -> Option<(Flow, Option<Cause>, Metric)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let from = last.map_or(Unbounded, Excluded);
        let (flow, trouble) = self.troubles.range((from, Unbounded)).next()?;
        Some((*flow, trouble.cause, trouble.metric))
    }

    /// Forgets a session that has ended.
    pub fn forget(&mut self, id: SessionId) {
        while let Some((flow, _)) = self.troubles.range(of_session(id)).next() {
            let flow = *flow;
            self.troubles.remove(&flow);
        }
    }
}

fn of_session(id: SessionId) -> RangeInclusive<Flow> {
    (id, (NodeId(0), 0))..=(id, (NodeId(u32::MAX), u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow = (SessionId(3), (NodeId(7), 70));
    const M: Metric = Metric::Latency;

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    fn tell(s: &mut Statuses, at: u64) -> Option<ToClient<'static>> {
        let news = s.news(ms(at), FLOW);
        s.told(FLOW);
        news
    }

    fn unreachable(why: Unreachable) -> Option<ToClient<'static>> {
        Some(ToClient::Unreachable { node: FLOW.1.0, port: 70, why })
    }

    const REACHABLE: Option<ToClient<'static>> =
        Some(ToClient::Reachable { node: FLOW.1.0, port: 70 });

    #[test]
    fn each_change_is_told_once_and_so_is_the_end() {
        let mut s = Statuses::default();
        s.sent(ms(0), FLOW);
        assert!(s.is_empty());
        s.set(ms(0), FLOW, M, Cause::NoRoute);
        assert_eq!(tell(&mut s, 0), unreachable(Unreachable::NoRoute));
        s.set(ms(20), FLOW, M, Cause::NoRoute);
        assert_eq!(tell(&mut s, 20), None);
        s.set(ms(40), FLOW, M, Cause::Lost(ms(30)));
        let ago = Unreachable::Since(Duration::from_millis(70));
        assert_eq!(tell(&mut s, 100), unreachable(ago));
        s.set(ms(100), FLOW, M, Cause::Lost(ms(90)));
        assert_eq!(tell(&mut s, 100), None, "another time is no change");
        s.sent(ms(120), FLOW);
        assert_eq!(tell(&mut s, 120), REACHABLE);
        assert!(s.is_empty());
        // A change that was never reported needs no report of its end.
        s.set(ms(140), FLOW, M, Cause::NoRoute);
        s.sent(ms(160), FLOW);
        assert!(s.is_empty());
    }

    #[test]
    fn a_port_is_bound_when_that_is_not_denied_any_more() {
        let mut s = Statuses::default();
        s.set(ms(0), FLOW, M, Cause::NoPort);
        assert_eq!(tell(&mut s, 0), unreachable(Unreachable::NoPort));
        // Reported once a second for six seconds, then no more.
        let mut end = None;
        for at in (0..20_000).step_by(20) {
            if at <= 6_000 && at % 1_000 == 0 {
                s.set(ms(at), FLOW, M, Cause::NoPort);
            }
            s.sent(ms(at), FLOW);
            match tell(&mut s, at) {
                Some(news) if end.is_none() => {
                    assert_eq!(Some(news), REACHABLE);
                    end = Some(at);
                }
                news => assert_eq!(news, None, "at {at}"),
            }
        }
        let end = end.expect("it ends");
        assert!((10_500..11_200).contains(&end), "{end} ms");
        // A packet from there clears the status at once.
        s.set(ms(0), FLOW, M, Cause::NoPort);
        tell(&mut s, 0);
        s.heard(FLOW);
        assert_eq!(tell(&mut s, 0), REACHABLE);
        // But it doesn't prove that there is a route to it.
        s.set(ms(0), FLOW, M, Cause::NoRoute);
        tell(&mut s, 0);
        s.heard(FLOW);
        assert_eq!(tell(&mut s, 0), None);
    }

    #[test]
    fn it_is_bounded_and_forgotten() {
        let mut s = Statuses::default();
        for n in 0..1_000 {
            for id in [1, 2] {
                s.set(ms(0), (SessionId(id), (NodeId(n), 1)), M, Cause::NoRoute);
            }
        }
        assert_eq!(s.troubles.len(), 2 * MAX_TROUBLES);
        s.forget(SessionId(1));
        let (mut last, mut seen) = (None, 0);
        while let Some((flow, cause, _)) = s.after(last) {
            assert_eq!((flow.0, cause), (SessionId(2), Some(Cause::NoRoute)));
            (last, seen) = (Some(flow), seen + 1);
        }
        assert_eq!(seen, MAX_TROUBLES);
    }
}
