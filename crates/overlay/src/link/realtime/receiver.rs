mod missing;
mod requests;

pub(super) use requests::{Gap, Requests};

use super::policy::{ArrivalKind, Policy};
use super::{Config, MAX_GAP, MAX_RUNS};
use crate::counters::{DropReason, Drops, ReceiverStats};
use crate::link::RxPacketInfo;
use crate::wire::{MAX_NACK_RANGES, NackRange};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{SeqClass, Time};

/// The receiving half: tells new packets from duplicates, finds gaps, and lets its policy request
/// the missing packets.
#[derive(Debug)]
pub struct Receiver {
    gaps: VecDeque<OpenGap>,
    requests: Requests,
    policy: Box<dyn Policy>,
    /// Whether the policy wants to be notified of gaps.
    asks: bool,
    /// Whether the link has been down since the last new packet.
    outage: bool,
    config: Config,
}

/// Classification of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// A new packet, to be forwarded.
    New,
    /// Seen before, or too old to be told apart.
    Duplicate,
}

/// Missing numbers `first..end`, and the number of packets that arrived after them.
#[derive(Debug, Clone, Copy)]
struct OpenGap {
    first: u64,
    end: u64,
    later: u16,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Receiver {
        let policy = config.recovery.policy();
        Receiver {
            gaps: VecDeque::with_capacity(MAX_RUNS),
            requests: Requests::new(config.recovery_budget),
            asks: policy.asks(),
            policy,
            outage: false,
            config: config.clone(),
        }
    }

    /// Discards the numbering: the sender has restarted.
    pub(crate) fn restart(&mut self) {
        self.requests.numbers = Default::default();
        self.renumber();
        self.policy.restart();
    }

    /// The link has gone down. Packets that are missing now, or are found missing when it is back,
    /// were lost in the outage: they are not requested and don't count as late.
    pub(crate) fn outage(&mut self) {
        self.renumber();
        self.outage = true;
    }

    /// Discards all state that refers to the old numbering.
    fn renumber(&mut self) {
        self.gaps.clear();
        self.requests.renumber();
        self.policy.forget();
    }

    /// Records an arriving packet and classifies it.
    pub(crate) fn accept(&mut self, packet: &RxPacketInfo, drops: &mut Drops) -> Arrival {
        let requests = &mut self.requests;
        (requests.now, requests.rtt) = (packet.at, packet.rtt);
        // The flow of the missing packet is unknown. It is requested if any flow of this link could
        // still use it; the sender knows its deadline.
        requests.useful_until = requests.useful_until.max(packet.useful_until);
        let mut regular = true;
        let seq = match requests.numbers.note(packet.envelope, packet.wire_seq) {
            SeqClass::Known => return Arrival::Duplicate,
            SeqClass::Start => {
                self.renumber();
                self.requests.stats.received += 1;
                return Arrival::New;
            }
            SeqClass::Behind { seq } => {
                requests.filled(seq);
                seq
            }
            SeqClass::Ahead { seq, missing } => {
                regular = missing == 0;
                if regular && packet.recovered {
                    requests.came_unseen(seq, packet.len);
                }
                if core::mem::take(&mut self.outage) || missing > MAX_GAP {
                    self.gaps.clear();
                } else if missing > 0 {
                    requests.stats.missing += missing;
                    if self.asks && self.gaps.len() < MAX_RUNS {
                        self.gaps.push_back(OpenGap { first: seq - missing, end: seq, later: 0 });
                    }
                }
                seq
            }
        };
        requests.stats.received += 1;
        if !self.gaps.is_empty() {
            self.promote_gaps(seq, packet, drops);
        }
        if !packet.recovered {
            self.requests.budget.packet();
        }
        let kind = match (packet.recovered, regular) {
            (true, _) => ArrivalKind::Retransmitted,
            (false, true) => ArrivalKind::InOrder,
            (false, false) => ArrivalKind::AfterGap,
        };
        self.policy.arrived(kind, &mut self.requests);
        Arrival::New
    }

    /// Passes gaps that enough later packets have followed to the policy, while an answer can still
    /// be in time.
    fn promote_gaps(&mut self, arrived: u64, packet: &RxPacketInfo, drops: &mut Drops) {
        for gap in &mut self.gaps {
            if arrived >= gap.end {
                gap.later += 1;
            }
        }
        let reorder = self.config.reorder.max(1);
        while let Some(&OpenGap { first, end, .. }) =
            self.gaps.front().filter(|g| g.later >= reorder)
        {
            self.gaps.pop_front();
            if self.requests.is_in_time(packet.at) {
                let until = self.requests.useful_until - packet.rtt;
                let gap = Gap { first, end, until, len: packet.len };
                self.policy.missing(gap, &mut self.requests);
            } else {
                drops.add(DropReason::RetransmitLate, end - first);
            }
        }
    }

    /// Runs the policy's timer if it is due.
    pub(crate) fn handle_timeout(&mut self, now: Time, rtt: Duration, drops: &mut Drops) {
        if now < self.requests.wake {
            return;
        }
        let requests = &mut self.requests;
        (requests.now, requests.rtt, requests.wake) = (now, rtt, Time::NEVER);
        drops.add(DropReason::RetransmitLate, requests.expire());
        self.policy.handle_timeout(requests);
    }

    /// When [`Receiver::handle_timeout`] must be called next.
    pub(crate) fn next_timeout(&self) -> Time {
        self.requests.wake
    }

    /// Number of ranges that wait to be requested, up to the number that fits in one frame.
    pub(crate) fn pending_requests(&self) -> usize {
        self.requests.pending()
    }

    /// Takes the next `n` ranges, to be written into a request.
    pub(crate) fn take_requests(&mut self, n: usize) -> ([NackRange; MAX_NACK_RANGES], usize) {
        let mut out = [NackRange { first: 0, count: 1 }; MAX_NACK_RANGES];
        // No more than are waiting, since a range that goes in further envelopes reappears at the
        // end of the queue.
        let n = n.min(self.requests.pending());
        for place in &mut out[..n] {
            *place = self.requests.take().unwrap_or(*place);
        }
        (out, n)
    }

    /// Counters of the packets seen so far.
    pub fn stats(&self) -> ReceiverStats {
        self.requests.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Time = Time::from_millis(1);

    std::thread_local! {
        /// Number of the next envelope.
        static ENVELOPE: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
    }

    /// A packet in the envelope that follows the last one and `lost` lost ones.
    fn packet_after(lost: u64, wire_seq: u16, useful_until: Time, at: Time) -> RxPacketInfo {
        let envelope = ENVELOPE.get() + lost;
        ENVELOPE.set(envelope + 1);
        let (len, recovered, rtt) = (160, false, Duration::ZERO);
        RxPacketInfo { wire_seq, envelope, remaining: 0, len, recovered, at, useful_until, rtt }
    }

    fn packet(wire_seq: u16, useful_until: Time, at: Time) -> RxPacketInfo {
        packet_after(0, wire_seq, useful_until, at)
    }

    fn feed(r: &mut Receiver, seqs: &[u16]) -> Vec<(u16, u16)> {
        let mut drops = Drops::default();
        for &s in seqs {
            r.accept(&packet(s, SOON, Time::ZERO), &mut drops);
        }
        let n = r.pending_requests();
        let (ranges, n) = r.take_requests(n);
        ranges[..n].iter().map(|x| (x.first, x.count)).collect()
    }

    #[test]
    fn the_first_gap_is_asked_for_once() {
        let mut r = Receiver::new(&Config::paper());
        assert_eq!(feed(&mut r, &[10, 11, 14]), [(12, 2)]);
        assert_eq!(feed(&mut r, &[15, 16, 12]), []);
        let mut drops = Drops::default();
        assert_eq!(r.accept(&packet(12, SOON, Time::ZERO), &mut drops), Arrival::Duplicate);
        assert_eq!(r.accept(&packet(13, SOON, Time::ZERO), &mut drops), Arrival::New);
        assert_eq!(r.stats(), ReceiverStats { received: 7, missing: 2, asked: 2, filled: 2 });
    }

    #[test]
    fn with_tolerance_a_swap_costs_nothing() {
        let mut r = Receiver::new(&Config { reorder: 3, ..Config::paper() });
        assert_eq!(feed(&mut r, &[1, 3, 2, 4, 5, 6, 7]), []);
        assert_eq!(feed(&mut r, &[9, 10]), []);
        assert_eq!(feed(&mut r, &[11]), [(8, 1)]);
        // In a gap of three, the one that arrived late is left out.
        assert_eq!(feed(&mut r, &[15, 13, 16, 17]), [(12, 1), (14, 1)]);
    }

    #[test]
    fn numbers_wrap() {
        let mut r = Receiver::new(&Config::paper());
        assert_eq!(feed(&mut r, &[65_534, 1]), [(65_535, 2)]);
    }

    #[test]
    fn what_a_dead_link_took_is_neither_missing_nor_late() {
        for config in [Config::paper(), Config::default()] {
            let mut r = Receiver::new(&config);
            let mut drops = Drops::default();
            let at = Time::from_millis;
            for k in 0..100 {
                r.accept(&packet(k, at(u64::from(k) + 100), at(u64::from(k))), &mut drops);
            }
            // 100 and 101 are lost and requested; then the link goes down.
            r.accept(&packet(102, at(202), at(102)), &mut drops);
            let before = r.stats();
            assert_eq!(before.missing, 2);
            r.outage();
            for now in 1_000..2_000 {
                assert_eq!(r.next_timeout(), Time::NEVER, "nothing is to be requested");
                r.handle_timeout(at(now), Duration::from_millis(20), &mut drops);
            }
            // Packets that the sender sent before it noticed reveal a gap when the link is back.
            for k in 790..800 {
                let now = at(u64::from(k) + 2_000);
                r.accept(&packet(k, now + Duration::from_millis(100), now), &mut drops);
            }
            assert_eq!((drops.get(DropReason::RetransmitLate), r.pending_requests()), (0, 0));
            assert_eq!(r.stats().missing, before.missing);
            // A later loss counts as a loss again.
            let now = at(2_801);
            r.accept(&packet(801, now + Duration::from_millis(100), now), &mut drops);
            assert_eq!((r.stats().missing, r.pending_requests()), (before.missing + 1, 1));
        }
    }

    #[test]
    fn an_outage_is_not_repaired_and_late_repairs_are_not_asked_for() {
        let mut r = Receiver::new(&Config::paper());
        assert_eq!(feed(&mut r, &[0, 5_000]), []);
        let mut drops = Drops::default();
        r.accept(&packet(5_002, SOON, SOON), &mut drops);
        assert_eq!((r.pending_requests(), drops.get(DropReason::RetransmitLate)), (0, 1));
        // Any flow of the link with time left counts, whichever packet shows the gap.
        let later = Time::from_millis(100);
        r.accept(&packet(5_003, later, SOON), &mut drops);
        r.accept(&packet(5_005, SOON, SOON), &mut drops);
        assert_eq!(r.pending_requests(), 1);
    }

    #[test]
    fn a_sender_that_went_on_during_a_long_outage_is_heard_again() {
        let mut r = Receiver::new(&Config::paper());
        feed(&mut r, &[0, 1, 2]);
        let mut drops = Drops::default();
        let mut heard = vec![r.accept(&packet_after(40_000, 40_000, SOON, SOON), &mut drops)];
        heard.extend((40_001..40_010).map(|s| r.accept(&packet(s, SOON, SOON), &mut drops)));
        assert!(heard.iter().all(|a| *a == Arrival::New), "{heard:?}");
    }

    #[test]
    fn long_gaps_are_split_into_what_the_wire_holds() {
        let mut r = Receiver::new(&Config::paper());
        assert_eq!(feed(&mut r, &[0, 601]), [(1, 256), (257, 256), (513, 88)]);
    }

    const RTT: Duration = Duration::from_millis(20);

    fn arrives(r: &mut Receiver, wire_seq: u16, ms: u64) -> Vec<(u16, u16)> {
        let at = Time::from_millis(ms);
        let useful_until = at + Duration::from_millis(90);
        let packet = RxPacketInfo { rtt: RTT, ..packet(wire_seq, useful_until, at) };
        r.accept(&packet, &mut Drops::default());
        asked(r)
    }

    fn asked(r: &mut Receiver) -> Vec<(u16, u16)> {
        let (ranges, n) = r.take_requests(r.pending_requests());
        ranges[..n].iter().map(|x| (x.first, x.count)).collect()
    }

    fn wakes(r: &mut Receiver, ms: u64, drops: &mut Drops) -> Vec<(u16, u16)> {
        r.handle_timeout(Time::from_millis(ms), RTT, drops);
        asked(r)
    }

    /// A neighbour that sends every 2 ms; numbers 5 and 6 are lost.
    fn gap(config: Config) -> Receiver {
        let mut r = Receiver::new(&config);
        for k in 0..5 {
            assert_eq!(arrives(&mut r, k, 2 * u64::from(k)), []);
        }
        assert_eq!(arrives(&mut r, 7, 14), [(5, 2)]);
        r
    }

    #[test]
    fn what_does_not_come_is_asked_for_again_until_it_is_too_late() {
        let mut drops = Drops::default();
        let mut r = gap(Config { recovery_budget: 0.0, ..Config::default() });
        // A round trip, one sixteenth of it, and a millisecond.
        let overdue = Time::from_nanos(14_000_000 + 22_250_000);
        assert_eq!(r.next_timeout(), overdue);
        assert_eq!(wakes(&mut r, 30, &mut drops), [], "early is harmless");
        assert_eq!(arrives(&mut r, 5, 35), []);
        assert_eq!(wakes(&mut r, 37, &mut drops), [(6, 1)], "5 has come");
        assert_eq!(wakes(&mut r, 60, &mut drops), [(6, 1)]);
        // Useful until 104 ms: a request at 84 ms would be too late.
        assert_eq!(wakes(&mut r, 83, &mut drops), [(6, 1)]);
        assert_eq!(drops.get(DropReason::RetransmitLate), 0);
        assert_eq!(wakes(&mut r, 106, &mut drops), []);
        assert_eq!((drops.get(DropReason::RetransmitLate), r.next_timeout()), (1, Time::NEVER));
        assert_eq!(r.stats().asked, 2, "each counts once");
    }

    #[test]
    fn what_the_losses_earned_is_spent_when_time_runs_out() {
        let mut drops = Drops::default();
        let mut r = gap(Config { recovery_budget: 1.0, ..Config::default() });
        // The neighbour keeps sending, so that no guess is made.
        let mut asked_at = Vec::new();
        for ms in 16..110 {
            if ms % 2 == 0 {
                assert_eq!(arrives(&mut r, ms as u16 / 2, ms), []);
            }
            if !wakes(&mut r, ms, &mut drops).is_empty() {
                asked_at.push(ms);
            }
        }
        // One round trip apart; from 60 ms on there is time for at most one more. Two packets earn
        // 464 bytes, a request takes 57.
        assert_eq!(asked_at, [37, 60, 65, 70, 75, 80, 83]);
    }

    #[test]
    fn a_neighbour_that_starts_anew_has_no_guesses_to_its_credit() {
        let mut drops = Drops::default();
        let restart: fn(&mut Receiver) = Receiver::restart;
        // As if it had kept sending for a long time without being received.
        let jump: fn(&mut Receiver) = |r| {
            ENVELOPE.set(ENVELOPE.get() + 40_000);
            arrives(r, 15_000, 800);
            arrives(r, 15_001, 800);
        };
        for anew in [restart, jump] {
            let mut r = Receiver::new(&Config { recovery_budget: 1.0, ..Config::default() });
            for k in 0..200 {
                arrives(&mut r, 40_000 + k + k / 10, 2 * u64::from(k));
            }
            // Until it requests the packets after the last one.
            let guess = (0..20).find_map(|_| {
                r.handle_timeout(r.next_timeout(), RTT, &mut drops);
                asked(&mut r).into_iter().find(|range| range.0 == 40_219)
            });
            assert!(guess.is_some(), "nothing to forget");
            anew(&mut r);
            let before = r.stats();
            for k in 0..50 {
                let at = Time::from_millis(802 + 2 * u64::from(k));
                // Retransmitted, but on an earlier link.
                let recovered = true;
                let packet = RxPacketInfo { recovered, ..packet(15_002 + k, at + 2 * RTT, at) };
                assert_eq!(r.accept(&packet, &mut drops), Arrival::New);
            }
            assert_eq!(r.stats(), ReceiverStats { received: before.received + 50, ..before });
        }
    }

    #[test]
    fn what_is_not_due_is_not_asked_for_unless_paid_for() {
        let mut drops = Drops::default();
        let mut r = Receiver::new(&Config { recovery_budget: 0.0, ..Config::default() });
        let mut takes = |wire_seq, ms, left| {
            let at = Time::from_millis(ms);
            let useful_until = at + Duration::from_millis(left);
            let packet = RxPacketInfo { rtt: RTT, ..packet(wire_seq, useful_until, at) };
            r.accept(&packet, &mut Drops::default());
            asked(&mut r)
        };
        assert_eq!(takes(0, 0, 40), []);
        // 1 is requested until 22 ms, and due again at 24.25 ms.
        assert_eq!(takes(2, 2, 40), [(1, 1)]);
        assert_eq!(takes(4, 20, 90), [(1, 1), (3, 1)]);
        assert_eq!(wakes(&mut r, 25, &mut drops), []);
        assert_eq!(drops.get(DropReason::RetransmitLate), 1);
        assert_eq!(r.next_timeout(), Time::from_nanos(42_250_000), "when 3 is overdue");
    }

    #[test]
    fn silence_is_answered_by_a_guess_once_losses_have_paid_for_it() {
        let mut drops = Drops::default();
        let mut r = gap(Config::default());
        assert_eq!(arrives(&mut r, 8, 16), []);
        let quiet = r.next_timeout();
        assert!(quiet > Time::from_millis(18 + 5) && quiet < Time::from_millis(36), "{quiet:?}");
        r.handle_timeout(quiet, RTT, &mut drops);
        let guess = asked(&mut r);
        assert_eq!(guess[0], (5, 2), "with all that is missing");
        assert_eq!(guess[1].0, 9);
        // On a link without losses no guess is made.
        let mut calm = Receiver::new(&Config::default());
        (0..50).for_each(|k| drop(arrives(&mut calm, k, 2 * u64::from(k))));
        assert_eq!(calm.next_timeout(), Time::NEVER);
    }

    #[test]
    fn twice_asks_in_two_envelopes_and_no_more() {
        let mut r =
            Receiver::new(&Config { recovery: "twice".parse().unwrap(), ..Config::paper() });
        assert_eq!(arrives(&mut r, 0, 0), []);
        assert_eq!(arrives(&mut r, 3, 6), [(1, 2)]);
        assert_eq!((asked(&mut r), asked(&mut r)), (vec![(1, 2)], vec![]));
        // A range appears once per envelope, whatever else is waiting.
        assert_eq!(arrives(&mut r, 5, 10), [(4, 1)]);
        assert_eq!(arrives(&mut r, 7, 14), [(4, 1), (6, 1)]);
        assert_eq!((asked(&mut r), asked(&mut r)), (vec![(6, 1)], vec![]));
        assert_eq!((r.next_timeout(), r.stats().asked), (Time::NEVER, 4));
    }

    /// Makes requests whenever it is called, beyond every bound.
    #[derive(Debug, Default)]
    struct Greedy {
        late: bool,
        follows: bool,
        held: Vec<Gap>,
    }

    impl Policy for Greedy {
        fn missing(&mut self, gap: Gap, requests: &mut Requests) {
            match (self.late, self.follows) {
                (true, _) => self.held.push(gap),
                (_, true) => assert!(requests.follow(gap)),
                _ => requests.request(gap, u8::MAX),
            }
        }

        fn arrived(&mut self, _: ArrivalKind, requests: &mut Requests) {
            requests.ask_for_all(if self.late { u16::MAX } else { 0 });
            requests.wake_at(requests.now());
        }

        fn handle_timeout(&mut self, requests: &mut Requests) {
            self.held.drain(..).for_each(|gap| requests.request(gap, 1));
            requests.ask_for_all(if self.late { u16::MAX } else { 0 });
        }
    }

    /// How often number 5 is requested by a policy that is called every millisecond, and the
    /// highest number requested.
    fn greed(policy: Greedy, recovery_budget: f64, from: u64) -> (usize, u16) {
        let mut r = Receiver::new(&Config { recovery_budget, ..Config::paper() });
        r.policy = Box::new(policy);
        let mut drops = Drops::default();
        for k in (0..5).chain([6]) {
            arrives(&mut r, k, 2 * u64::from(k));
        }
        let mut got = asked(&mut r);
        for ms in from..200 {
            got.extend(wakes(&mut r, ms, &mut drops));
            got.extend(asked(&mut r));
            got.extend(asked(&mut r));
            r.requests.wake_at(Time::ZERO);
        }
        let farthest = got.iter().map(|(first, count)| first + count - 1).max();
        (got.iter().filter(|range| range.0 == 5).count(), farthest.unwrap_or(0))
    }

    #[test]
    fn no_policy_breaks_a_bound() {
        let greedy = Greedy::default;
        // One envelope was sent before the count begins.
        assert_eq!(greed(greedy(), 0.0, 13), (2, 5), "3 envelopes");
        // Useful until 102 ms; in the last 20 ms before that no answer would be in time.
        assert_eq!(greed(Greedy { late: true, ..greedy() }, 0.0, 81), (1, 5));
        assert_eq!(greed(Greedy { late: true, ..greedy() }, 1.0, 82), (0, 0));
        let follows = || Greedy { follows: true, ..greedy() };
        let (free, _) = greed(follows(), 0.0, 13);
        assert!((2..=4).contains(&free), "as its answers are overdue: {free}");
        let (paid, _) = greed(follows(), 1.0, 13);
        assert!(paid > free && paid <= free + 3, "what the loss has earned: {paid}");
    }
}
