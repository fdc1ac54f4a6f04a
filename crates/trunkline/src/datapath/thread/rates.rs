//! The operator's cap on what each user sends (`[access] rate`), whatever number of sessions that
//! is spread over.
//!
//! While a user exceeds the rate, its streams, and its applications that wait for room
//! (`TL_BLOCKING`), are not read. Other packets are refused, and the application is told. Real-time
//! packets are accepted a little longer than others, so that bulk data leave room for a call of the
//! same user.

use crate::datapath::sessions::User;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use trunkline_base::{Bitrate, Pacer, Time};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::stream::Request;
use trunkline_overlay::session::wire::{MAX_MESSAGE, ToNode};
use trunkline_overlay::wire::{DATA_OVERHEAD, NodeId, Service};

/// How much a user may send at once after a pause, as time at the rate.
const BURST: Duration = Duration::from_millis(50);
/// How much more if it is real time, besides one message of any other kind.
const REAL_TIME: Duration = Duration::from_millis(50);
/// Headers of IPv4 and UDP, and of the overlay, with each packet.
const HEADERS: usize = 20 + 8 + DATA_OVERHEAD;
/// Largest payload that a link carries in one packet before it has probed for more: larger ones
/// count as several packets.
const PAYLOAD: usize = 1_280 - 40 - 8 - DATA_OVERHEAD;

/// Decision about an application's message, by the rate of its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateCheck {
    /// The node gets it.
    Accepted,
    /// It is a packet to this address, and is dropped.
    Refused(NodeId, u16),
    /// It waits until [`RateLimits::next_ready`] returns its session.
    Waits,
}

/// The rate, and how much of it each user has used.
#[derive(Default)]
pub struct RateLimits {
    rate: Option<Bitrate>,
    /// User of each session.
    users: Vec<Option<User>>,
    budgets: BTreeMap<User, Budget>,
    /// Number of packets refused.
    pub refused: u64,
    /// Number of messages that had to wait.
    pub waited: u64,
}

struct Budget {
    pacer: Pacer,
    /// Sessions with a waiting message, and its bytes: one after another has a turn.
    line: VecDeque<(SessionId, usize)>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { pacer: Pacer::of_time(BURST), line: VecDeque::new() }
    }
}

impl RateLimits {
    /// Creates limits of `rate` for each user; none without it.
    pub fn new(rate: Option<Bitrate>) -> RateLimits {
        RateLimits { rate, ..RateLimits::default() }
    }

    /// Changes the rate. Sessions that wait have their turn by the new one.
    pub fn set_rate(&mut self, rate: Option<Bitrate>) {
        self.rate = rate;
    }

    /// Records that `user` has opened session `id`.
    pub fn open(&mut self, now: Time, id: SessionId, user: User) {
        let i = id.0 as usize;
        if self.users.len() <= i {
            self.users.resize(i + 1, None);
        }
        self.users[i] = Some(user);
        // A user cannot reset its budget by ending its sessions.
        self.budgets.retain(|_, b| !b.line.is_empty() || !b.pacer.is_idle(now));
    }

    /// Removes session `id` after its end.
    pub fn close(&mut self, id: SessionId) {
        let Some(user) = self.user(id) else { return };
        self.users[id.0 as usize] = None;
        if let Some(budget) = self.budgets.get_mut(&user) {
            budget.line.retain(|(other, _)| *other != id);
        }
    }

    /// User of session `id`.
    pub fn user(&self, id: SessionId) -> Option<User> {
        self.users.get(id.0 as usize).copied().flatten()
    }

    /// Decides on a message of session `id`, and charges it if it is accepted. `can_wait` says
    /// whether a packet of a service may wait, or (`None`) the data of a stream.
    pub fn admit(
        &mut self,
        now: Time,
        id: SessionId,
        message: &[u8],
        can_wait: impl Fn(Option<Service>) -> bool,
    ) -> RateCheck {
        let Some(rate) = self.rate else { return RateCheck::Accepted };
        let Some(user) = self.user(id) else { return RateCheck::Accepted };
        let (bytes, service, to) = match ToNode::parse(message) {
            Ok(ToNode::Send { service, to, port, payload, .. }) => {
                (payload.len(), Some(service), (to, port))
            }
            Ok(ToNode::Stream(Request::Data(bytes))) => (bytes.len(), None, (NodeId::NONE, 0)),
            Ok(ToNode::Stream(Request::Connect { to, port, .. })) => (0, None, (to, port)),
            _ => return RateCheck::Accepted,
        };
        let Budget { pacer, line } = self.budgets.entry(user).or_default();
        let more = match service {
            Some(Service::RealTime) => REAL_TIME + rate.time_for(cost(MAX_MESSAGE)),
            _ => Duration::ZERO,
        };
        let is_ready = pacer.is_ready(now + more);
        let can_wait = can_wait(service);
        if is_ready && (!can_wait || line.is_empty()) {
            pacer.spend_time(now, rate.time_for(cost(bytes)));
            RateCheck::Accepted
        } else if can_wait {
            line.push_back((id, bytes));
            self.waited += 1;
            RateCheck::Waits
        } else {
            self.refused += 1;
            RateCheck::Refused(to.0, to.1)
        }
    }

    /// A session whose turn has come; its waiting message is charged.
    pub fn next_ready(&mut self, now: Time) -> Option<SessionId> {
        let rate = self.rate;
        let is_ready =
            |b: &&mut Budget| !b.line.is_empty() && (rate.is_none() || b.pacer.is_ready(now));
        let Budget { pacer, line } = self.budgets.values_mut().find(is_ready)?;
        let (id, bytes) = line.pop_front()?;
        if let Some(rate) = rate {
            pacer.spend_time(now, rate.time_for(cost(bytes)));
        }
        Some(id)
    }

    /// Time at which [`RateLimits::next_ready`] returns a session.
    pub fn next_timeout(&self) -> Time {
        let lines = self.budgets.values().filter(|b| !b.line.is_empty());
        let at = |b: &Budget| if self.rate.is_some() { b.pacer.next() } else { Time::ZERO };
        lines.map(at).min().unwrap_or(Time::NEVER)
    }
}

/// Bytes on a link for a payload of `bytes`.
fn cost(bytes: usize) -> usize {
    bytes + bytes.div_ceil(PAYLOAD).max(1) * HEADERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_base::wire::Writer;

    /// Rate of one packet of 100 bytes in a millisecond.
    fn limits() -> RateLimits {
        RateLimits::new(Some(Bitrate::from_bps(8_000 * cost(100) as u64)))
    }

    fn message(to_node: ToNode<'_>) -> Vec<u8> {
        let mut head = [0; 30];
        let mut w = Writer::new(&mut head);
        to_node.emit_head(&mut w).unwrap();
        [w.written(), to_node.payload()].concat()
    }

    fn packet(service: Service) -> Vec<u8> {
        let (deadline_ms, to, port) = (100, NodeId(7), 70);
        message(ToNode::Send { service, deadline_ms, to, port, payload: &[0; 100] })
    }

    const REFUSED: RateCheck = RateCheck::Refused(NodeId(7), 70);

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    /// Number of packets accepted of `tries` in each millisecond of a second.
    fn accepted(
        limits: &mut RateLimits,
        sessions: &[u32],
        service: Service,
        tries: usize,
    ) -> usize {
        let packet = packet(service);
        let mut n = 0;
        for at in 1_000..2_000 {
            for i in 0..tries {
                let id = SessionId(sessions[i % sessions.len()]);
                n += usize::from(
                    limits.admit(ms(at), id, &packet, |_| false) == RateCheck::Accepted,
                );
            }
        }
        n
    }

    #[test]
    fn many_sessions_of_a_user_send_no_more_than_one_and_others_are_unaffected() {
        let mut one = limits();
        one.open(ms(0), SessionId(0), User::Local(1_000));
        let alone = accepted(&mut one, &[0], Service::BestEffort, 40);
        assert!((1_045..=1_055).contains(&alone), "{alone}");

        let mut many = limits();
        for id in 0..200 {
            many.open(ms(0), SessionId(id), User::Local(1_000));
        }
        let all: Vec<u32> = (0..200).collect();
        assert_eq!(accepted(&mut many, &all, Service::BestEffort, 40), alone);
        assert_eq!(many.refused, 40_000 - alone as u64);
        for (id, user) in [(200, User::Local(0)), (201, User::Client(0)), (202, User::Client(1))] {
            many.open(ms(2_000), SessionId(id), user);
            let packet = packet(Service::BestEffort);
            let said = many.admit(ms(2_000), SessionId(id), &packet, |_| false);
            assert_eq!(said, RateCheck::Accepted, "{user:?}");
        }
        // A new session doesn't begin with a new burst.
        for id in 0..200 {
            many.close(SessionId(id));
        }
        many.open(ms(2_000), SessionId(0), User::Local(1_000));
        let packet = packet(Service::BestEffort);
        let mut admit = || many.admit(ms(2_000), SessionId(0), &packet, |_| false);
        assert_eq!([admit(), admit()], [RateCheck::Accepted, REFUSED]);
    }

    #[test]
    fn nothing_is_limited_without_a_rate() {
        let mut none = RateLimits::default();
        none.open(ms(0), SessionId(0), User::Local(1_000));
        assert_eq!(accepted(&mut none, &[0], Service::BestEffort, 40), 40_000);
        assert_eq!((none.refused, none.next_timeout()), (0, Time::NEVER));
        assert!(none.budgets.is_empty());
    }

    /// A call of half the rate, beside best effort at forty times the rate.
    #[test]
    fn a_call_passes_beside_bulk_of_the_same_user() {
        let mut limits = limits();
        limits.open(ms(0), SessionId(0), User::Local(1_000));
        limits.open(ms(0), SessionId(1), User::Local(1_000));
        for at in 1_000..3_000 {
            accepted_at(&mut limits, at, Service::BestEffort, 40);
            if at % 2 == 0 {
                assert_eq!(accepted_at(&mut limits, at, Service::RealTime, 1), 1, "at {at}");
            }
        }
    }

    fn accepted_at(limits: &mut RateLimits, at: u64, service: Service, tries: usize) -> usize {
        let packet = packet(service);
        let admitted = |_: &usize| {
            limits.admit(ms(at), SessionId(0), &packet, |_| false) == RateCheck::Accepted
        };
        (0..tries).filter(admitted).count()
    }

    #[test]
    fn streams_wait_and_have_turns() {
        let mut limits = limits();
        let data = message(ToNode::Stream(Request::Data(&[0; 100])));
        let credit = message(ToNode::Stream(Request::Credit(9)));
        for id in 0..3 {
            limits.open(ms(0), SessionId(id), User::Local(1_000));
        }
        let mut passed = [0; 3];
        let mut waits = [false; 3];
        for at in 1_000..2_000 {
            while let Some(id) = limits.next_ready(ms(at)) {
                (passed[id.0 as usize], waits[id.0 as usize]) = (passed[id.0 as usize] + 1, false);
            }
            for id in [0, 0, 0, 0, 1, 2] {
                if waits[id] {
                    continue;
                }
                let session = SessionId(id as u32);
                match limits.admit(ms(at), session, &data, |_| true) {
                    RateCheck::Accepted => passed[id] += 1,
                    RateCheck::Waits => waits[id] = true,
                    other => panic!("{other:?}"),
                }
                let said = limits.admit(ms(at), session, &credit, |_| true);
                assert_eq!(said, RateCheck::Accepted, "it sends nothing");
            }
            assert!(at < 1_050 || limits.next_timeout() <= ms(at + 1), "at {at}");
        }
        let all = passed.iter().sum::<usize>();
        assert!((1_040..=1_055).contains(&all), "{passed:?}");
        assert!(passed[1] >= 330 && passed[2] >= 330, "{passed:?}");
        // A packet that may wait does; one of a session that is gone has no turn.
        let packet = packet(Service::BestEffort);
        let said = limits.admit(ms(2_000), SessionId(1), &packet, |_| true);
        assert_eq!(said, RateCheck::Waits);
        (0..3).for_each(|id| limits.close(SessionId(id)));
        assert_eq!(limits.next_ready(ms(9_000)), None);
        assert_eq!(limits.next_timeout(), Time::NEVER);
    }

    #[test]
    fn without_the_limit_all_that_wait_have_their_turn() {
        let mut limits = RateLimits::new(Some(Bitrate::from_bps(1_000)));
        let data = message(ToNode::Stream(Request::Data(&[0; 8_000])));
        for id in 0..3 {
            limits.open(ms(0), SessionId(id), User::Local(1_000));
        }
        let said = (0..3).map(|id| limits.admit(ms(0), SessionId(id), &data, |_| true));
        assert_eq!(said.last(), Some(RateCheck::Waits));
        assert_eq!(limits.next_ready(ms(1_000)), None);
        limits.set_rate(None);
        assert_eq!(limits.next_timeout(), Time::ZERO);
        assert_eq!(limits.next_ready(ms(1_000)), Some(SessionId(1)));
        assert_eq!(limits.next_ready(ms(1_000)), Some(SessionId(2)));
        assert_eq!(limits.next_ready(ms(1_000)), None);
    }
}
