//! The goodbye of a node that stops: its neighbour takes the link down at once, where a crash is
//! only noticed after [`dead_after`](crate::monitor::Liveness::dead_after). A goodbye is sealed, so
//! no third party can forge it, and in a session that has ended it has no effect. Unsealed links
//! have none, since anyone could forge it.

use super::Link;
use crate::arena::TxArena;
use crate::counters::DropReason;
use crate::wire::{ENVELOPE_OVERHEAD, GOODBYE_LEN, Goodbye, Seal};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::wire::Writer;
use trunkline_base::{Pacer, Time};

/// Interval between two copies, so that one burst of losses does not take them all.
const SPACING: Duration = Duration::from_millis(10);
/// Shortest time for which copies are sent: enough for three.
const SHORTEST: Duration = Duration::from_millis(20);
/// Longest round trip that a stopping node waits for; slower links get no more time.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(200);
/// One goodbye counts per this interval: a flapping link costs both ends handshakes, and all nodes
/// path computations.
const PATIENCE: Duration = Duration::from_secs(10);
/// Goodbyes that may count in a burst: a node that is restarted a few times in a row loses nothing
/// at any of its stops. Stops beyond that are detected by silence.
const AT_ONCE: u32 = 4;

/// Goodbyes sent and received on a link.
#[derive(Debug)]
pub(super) struct State {
    /// When this end's next copy is due, and when the copies end.
    own: Option<(Time, Time)>,
    /// Limits how many of the neighbour's goodbyes count.
    pacer: Pacer,
    /// Number of the neighbour's goodbye envelope, if its present start sent one.
    counter: Option<u64>,
}

impl Default for State {
    fn default() -> State {
        State { own: None, pacer: Pacer::new(PATIENCE, AT_ONCE), counter: None }
    }
}

impl State {
    /// Forgets the neighbour's goodbye: the neighbour has restarted, and so has its numbering.
    pub fn forget(&mut self) {
        self.counter = None;
    }
}

impl Link {
    /// Sends goodbyes from `now` on, in place of hellos, if the link has a session. Until the
    /// returned time, copies are sent, and packets arrive that the neighbour sent before it was
    /// notified.
    pub(crate) fn leave(&mut self, now: Time) -> Option<Time> {
        if !self.is_sealed() || !self.seal.ready() || self.address.is_none() {
            return None;
        }
        let round_trip = self.monitor.rtt().get().unwrap_or_default();
        let until = now + SHORTEST + round_trip.min(LONGEST_ROUND_TRIP);
        self.goodbye.own = Some((now, until));
        Some(until)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.goodbye.own.is_some()
    }

    /// When the next goodbye can be sent.
    pub(crate) fn goodbye_at(&self) -> Option<Time> {
        let (due, until) = self.goodbye.own?;
        (due <= until && self.seal.ready()).then_some(due)
    }

    pub(super) fn goodbye_is_due(&self, now: Time) -> bool {
        self.goodbye_at().is_some_and(|due| due <= now)
    }

    /// Writes one envelope with a goodbye; false if the arena is full.
    pub(super) fn send_goodbye(&mut self, now: Time, to: SocketAddr, arena: &mut TxArena) -> bool {
        const LEN: usize = ENVELOPE_OVERHEAD + GOODBYE_LEN;
        let Some(envelope) = arena.envelope(self.uplink, to, self.config.dscp, LEN) else {
            return false;
        };
        let written = Goodbye.emit(&mut Writer::new(Seal::frames_mut(envelope)));
        debug_assert!(written.is_ok(), "room was made for it");
        self.seal.seal(envelope);
        self.tally.hello(LEN);
        self.sent(now, LEN, arena);
        if let Some((due, _)) = &mut self.goodbye.own {
            *due = now + SPACING;
        }
        true
    }

    /// Handles the neighbour's goodbye from the envelope that was opened last; true if it took the
    /// link down. On an unsealed link it is malformed.
    pub(crate) fn on_goodbye(&mut self, at: Time) -> Result<bool, DropReason> {
        if !self.is_sealed() {
            return Err(DropReason::Malformed);
        }
        if !self.monitor.is_up() || !self.goodbye.pacer.admit(at, 1) {
            return Ok(false);
        }
        self.goodbye.counter = Some(self.opened);
        self.stop(at);
        self.tally.goodbye();
        Ok(true)
    }

    /// Whether the envelope that was opened last was sent before the neighbour's goodbye. A hello
    /// in it was overtaken and means nothing.
    pub(super) fn is_before_goodbye(&self) -> bool {
        self.goodbye.counter.is_some_and(|goodbye| self.opened < goodbye)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, LinkStats, Session};
    use super::*;
    use crate::wire::version::CURRENT;
    use crate::wire::{Frame, Frames, Incarnation, NodeId, ReceiverIndex, Role, SessionKeys};
    use zeroize::Zeroizing;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn address(n: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n], 7_000))
    }

    fn end(own: u8, start: u64) -> Link {
        let seal = Seal::Aead(Box::default());
        let mut link = Link::new(seal, Config::new(NodeId(u32::from(3 - own))), Time::ZERO, 1);
        install(&mut link, own, start);
        link
    }

    /// Installs a session with the other end's `start`, with keys that depend on that start.
    fn install(link: &mut Link, own: u8, start: u64) {
        let key = |n: u8| Zeroizing::new([n + 10 * start as u8; 32]);
        let index = |n: u8| ReceiverIndex::new(u32::from(n) + 10 * start as u32);
        let keys = SessionKeys {
            local: index(own),
            remote: index(3 - own),
            send: key(own),
            recv: key(3 - own),
            role: Role::Initiator,
            peer: Incarnation(start),
        };
        let session = Session { keys, address: address(3 - own), mtu: 1_280, version: CURRENT };
        link.install(Time::ZERO, session);
    }

    /// Envelopes that a link sends at `now`.
    fn sent(now: Time, link: &mut Link) -> Vec<Vec<u8>> {
        let mut arena = TxArena::new(64 << 10, 64);
        link.transmit(now, &mut arena);
        let runs = arena.runs().iter().flat_map(|run| arena.envelopes(run));
        runs.map(<[u8]>::to_vec).collect()
    }

    /// Handles an envelope as the forwarder does; returns the result of a goodbye in it.
    fn take(
        now: Time,
        own: u8,
        link: &mut Link,
        mut bytes: Vec<u8>,
    ) -> Option<Result<bool, DropReason>> {
        link.open(now, address(3 - own), &mut bytes).unwrap();
        let mut said = None;
        for frame in Frames::new(Seal::frames(&bytes)) {
            match frame.unwrap() {
                Frame::Hello(hello) => {
                    link.on_hello(now, &hello);
                }
                Frame::Goodbye(_) => said = Some(link.on_goodbye(now)),
                _ => {}
            }
        }
        said
    }

    /// Lets both ends send everything that is due for half a second.
    fn greet(from: u64, a: &mut Link, b: &mut Link) {
        for now in (from..from + 500).map(ms) {
            sent(now, a).into_iter().for_each(|bytes| assert_eq!(take(now, 2, b, bytes), None));
            sent(now, b).into_iter().for_each(|bytes| assert_eq!(take(now, 1, a, bytes), None));
        }
    }

    fn pair() -> (Link, Link) {
        let (mut a, mut b) = (end(1, 1), end(2, 1));
        greet(0, &mut a, &mut b);
        assert!(a.monitor.is_up() && b.monitor.is_up());
        (a, b)
    }

    fn counts(LinkStats { downs, goodbyes, .. }: LinkStats) -> (u64, u64) {
        (downs, goodbyes)
    }

    #[test]
    fn one_goodbye_of_many_takes_the_link_down_and_no_hello_follows() {
        let (mut a, mut b) = pair();
        let until = a.leave(ms(1_000)).unwrap();
        assert_eq!(until, ms(1_020), "a round trip of nothing");
        let mut said = Vec::new();
        for t in 1_000..3_000 {
            assert!(a.goodbye_at().is_none() || a.goodbye_at() >= Some(ms(t)));
            let envelopes = sent(ms(t), &mut a);
            assert!(envelopes.iter().all(|e| e.len() == ENVELOPE_OVERHEAD + GOODBYE_LEN));
            said.extend(envelopes.into_iter().map(|bytes| (t, bytes)));
        }
        assert_eq!(said.iter().map(|(t, _)| *t).collect::<Vec<_>>(), [1_000, 1_010, 1_020]);
        // The first copy was lost.
        let outcomes: Vec<_> =
            said.into_iter().skip(1).map(|(t, e)| take(ms(t), 2, &mut b, e)).collect();
        assert_eq!(outcomes, [Some(Ok(true)), Some(Ok(false))]);
        assert!(!b.monitor.is_up() && !b.handle_timeout(ms(5_000)), "the link is down already");
        assert_eq!(counts(b.stats()), (1, 1));
    }

    #[test]
    fn a_hello_that_a_goodbye_overtook_brings_nothing_back() {
        let (mut a, mut b) = pair();
        let late: Vec<_> = (500..1_000).flat_map(|t| sent(ms(t), &mut a)).collect();
        assert!(late.len() >= 2);
        a.leave(ms(1_000)).unwrap();
        let goodbye = sent(ms(1_000), &mut a).pop().unwrap();
        assert_eq!(take(ms(1_000), 2, &mut b, goodbye), Some(Ok(true)));
        late.into_iter().for_each(|e| assert_eq!(take(ms(1_001), 2, &mut b, e), None));
        assert!(!b.monitor.is_up());
    }

    /// The neighbour continues to send, or is back at once: the link comes up by hellos as usual,
    /// and the next goodbye has no effect until it would be a rare one.
    #[test]
    fn a_link_flaps_no_faster_than_goodbyes_count() {
        let (mut a, mut b) = pair();
        let mut taken = Vec::new();
        for t in (1_000..32_000).step_by(500) {
            a.leave(ms(t)).unwrap();
            let goodbye = sent(ms(t), &mut a).pop().unwrap();
            if take(ms(t), 2, &mut b, goodbye) == Some(Ok(true)) {
                assert!(!b.monitor.is_up());
                taken.push(t);
            }
            a.goodbye.own = None;
            greet(t + 20, &mut a, &mut b);
            assert!(b.monitor.is_up(), "{t}");
        }
        assert_eq!(taken, [1_000, 1_500, 2_000, 2_500, 11_000, 21_000, 31_000]);
        assert_eq!(counts(b.stats()), (7, 7));
    }

    #[test]
    fn who_has_started_anew_is_greeted_whatever_it_counted_before() {
        let (mut a, mut b) = pair();
        a.leave(ms(1_000)).unwrap();
        let goodbye = sent(ms(1_000), &mut a).pop().unwrap();
        take(ms(1_000), 2, &mut b, goodbye);
        let mut a = end(1, 2);
        install(&mut b, 2, 2);
        greet(1_100, &mut a, &mut b);
        assert!(a.monitor.is_up() && b.monitor.is_up());
    }

    #[test]
    fn a_link_whose_neighbour_is_no_longer_trusted_goes_down_at_once_without_a_penalty() {
        let (_, mut b) = pair();
        for round in 1..=5 {
            let now = ms(1_000 * round);
            assert!(b.close_sessions(now), "it was up");
            assert!(!b.monitor.is_up() && !b.is_ready());
            assert_eq!((b.monitor.ease(now), b.monitor.damping().share), (None, 0.0));
            assert!(!b.close_sessions(now), "it is down already");
            assert_eq!(counts(b.stats()), (round, 0));
            // It is trusted again.
            let mut a = end(1, 1 + round);
            install(&mut b, 2, 1 + round);
            greet(1_000 * round + 1, &mut a, &mut b);
            assert!(a.monitor.is_up() && b.monitor.is_up());
        }
    }

    #[test]
    fn a_link_that_is_not_sealed_neither_says_nor_takes_it() {
        let (seal, _) = Link::unsealed(NodeId(1), Incarnation(1), &Config::new(NodeId(2)));
        let mut open = Link::new(seal, Config::new(NodeId(2)), Time::ZERO, 1);
        open.address = Some(address(2));
        assert_eq!((open.leave(ms(0)), open.on_goodbye(ms(0))), (None, Err(DropReason::Malformed)));
    }
}
