use super::extra::Extra;
use super::rhythm::Rhythm;
use super::wanted::Wanted;
use super::{Config, MAX_GAP, MAX_RUNS, Recovery};
use crate::counters::{Drop, Drops, ReceiverStats};
use crate::link::{Incoming, SMALLEST_HEADERS};
use crate::wire::{DATA_OVERHEAD, ENVELOPE_OVERHEAD, MAX_NACK_RANGES, NACK_RANGE_LEN, NackRange};
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::{Place, SeqTracker, Time};

/// The receiving half: tells new packets from duplicates, and finds what to ask
/// for and when.
#[derive(Debug)]
pub struct Receiver {
    numbers: SeqTracker,
    /// The latest moment at which any packet seen is still of use.
    useful_until: Time,
    gaps: VecDeque<Gap>,
    asks: VecDeque<NackRange>,
    wanted: Wanted,
    rhythm: Rhythm,
    /// When to ask again for everything that is wanted.
    again: Time,
    /// When to ask for a packet that nothing has shown to be missing.
    unheard: Time,
    /// The highest number asked for in that way.
    guessed: u64,
    /// Whether the link has been down since the last new packet.
    outage: bool,
    /// Bytes that requests may take beyond one per strike.
    extra: Extra,
    config: Config,
    stats: ReceiverStats,
}

/// What an arriving packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// To be forwarded.
    New,
    /// Seen before, or too old to tell.
    Duplicate,
}

/// Missing numbers `first..end`, and how many packets came after them.
#[derive(Debug, Clone, Copy)]
struct Gap {
    first: u64,
    end: u64,
    later: u16,
}

/// Bytes of a request for one run, with IPv4 and UDP headers.
const REQUEST: usize = SMALLEST_HEADERS + ENVELOPE_OVERHEAD + 2 + NACK_RANGE_LEN;
/// What an answer may come later than the round trip says, beside a part of it.
const GRACE: Duration = Duration::from_millis(1);
/// The most that is kept for requests: 32 of them.
const MOST_SPARE: f64 = 32.0 * REQUEST as f64;

impl Receiver {
    pub(crate) fn new(config: &Config) -> Receiver {
        Receiver {
            numbers: SeqTracker::default(),
            useful_until: Time::ZERO,
            gaps: VecDeque::with_capacity(MAX_RUNS),
            asks: VecDeque::with_capacity(MAX_RUNS),
            wanted: Wanted::new(),
            rhythm: Rhythm::default(),
            again: Time::NEVER,
            unheard: Time::NEVER,
            guessed: 0,
            outage: false,
            extra: Extra::new(config.extra_share, MOST_SPARE),
            config: config.clone(),
            stats: ReceiverStats::default(),
        }
    }

    /// Forgets the numbers: the sender has started anew.
    pub(crate) fn restart(&mut self) {
        self.numbers = SeqTracker::default();
        self.rhythm = Rhythm::default();
        self.renumber();
    }

    /// The link has gone down: what is missing, and what will turn out to be when
    /// it is back, was lost to the outage, and is neither asked for nor late.
    pub(crate) fn outage(&mut self) {
        self.renumber();
        self.outage = true;
    }

    /// Forgets what was noted by numbers that count no more.
    fn renumber(&mut self) {
        self.gaps.clear();
        self.asks.clear();
        self.wanted.clear();
        self.guessed = 0;
        (self.again, self.unheard) = (Time::NEVER, Time::NEVER);
    }

    /// Takes note of a packet.
    pub(crate) fn accept(&mut self, packet: &Incoming, drops: &mut Drops) -> Arrival {
        // Whose the missing packet is nobody knows. Ask if any flow of this
        // link would be glad of it; the sender knows its deadline.
        self.useful_until = self.useful_until.max(packet.useful_until);
        let mut regular = true;
        let seq = match self.numbers.note(packet.envelope, packet.wire_seq) {
            Place::Known => return Arrival::Duplicate,
            Place::Start => {
                self.renumber();
                self.stats.received += 1;
                return Arrival::New;
            }
            Place::Behind { seq } => {
                self.stats.filled += 1;
                self.wanted.filled(seq, &self.numbers);
                seq
            }
            Place::Ahead { seq, missing } => {
                regular = missing == 0;
                if regular && packet.recovered && seq <= self.guessed {
                    self.earn(seq, 1, packet.len);
                    self.stats.missing += 1;
                    self.stats.asked += 1;
                    self.stats.filled += 1;
                }
                if core::mem::take(&mut self.outage) || missing > MAX_GAP {
                    self.gaps.clear();
                } else if missing > 0 {
                    self.stats.missing += missing;
                    if self.config.recovery != Recovery::Off && self.gaps.len() < MAX_RUNS {
                        self.gaps.push_back(Gap { first: seq - missing, end: seq, later: 0 });
                    }
                }
                seq
            }
        };
        self.stats.received += 1;
        if !self.gaps.is_empty() {
            self.ripen(seq, packet, drops);
        }
        if self.config.recovery == Recovery::UntilDeadline {
            if !packet.recovered {
                self.extra.packet();
                self.rhythm.note(packet.at, regular);
            }
            self.listen(packet.at, packet.rtt);
        }
        Arrival::New
    }

    /// Turns gaps that enough later packets have followed into requests.
    fn ripen(&mut self, arrived: u64, packet: &Incoming, drops: &mut Drops) {
        for gap in &mut self.gaps {
            if arrived >= gap.end {
                gap.later += 1;
            }
        }
        let reorder = self.config.reorder.max(1);
        while let Some(&Gap { first, end, .. }) = self.gaps.front().filter(|g| g.later >= reorder) {
            self.gaps.pop_front();
            if packet.at + packet.rtt >= self.useful_until {
                drops.add(Drop::RepeatLate, end - first);
            } else if self.config.recovery == Recovery::OneStrike {
                self.stats.asked += queue(&mut self.asks, &self.numbers, first, end);
            } else {
                self.want(first, end, packet);
            }
        }
    }

    /// Asks for `first..end`, until it comes or is of no use.
    fn want(&mut self, first: u64, end: u64, packet: &Incoming) {
        let until = self.useful_until - packet.rtt;
        if !self.wanted.push(packet.at, first, end, until) {
            return;
        }
        self.stats.asked += end - first;
        self.earn(first, end - first, packet.len);
        self.ask_for_all(packet.at, packet.rtt);
    }

    /// One request for everything that is wanted.
    fn ask_for_all(&mut self, now: Time, rtt: Duration) {
        self.asks.clear();
        for run in self.wanted.iter() {
            queue(&mut self.asks, &self.numbers, run.first, run.end);
        }
        self.wanted.asked(now, patience(rtt));
        self.plan(now, rtt);
    }

    /// So many packets of `len` bytes from `first` on were lost.
    fn earn(&mut self, first: u64, packets: u64, len: usize) {
        let bytes = packets as f64 * (len + DATA_OVERHEAD + SMALLEST_HEADERS) as f64;
        self.extra.lost(u32::try_from(packets).unwrap_or(u32::MAX), bytes);
        // A guess that was right was a strike.
        if first <= self.guessed {
            self.extra.give(REQUEST as f64);
        }
    }

    /// Whether the budget has room for another request.
    fn is_rich(&self) -> bool {
        self.extra.left() >= REQUEST as f64
    }

    /// When to ask again: when an answer is overdue, or before, as a request
    /// may have been lost and the budget has room for another.
    fn plan(&mut self, now: Time, rtt: Duration) {
        self.again = match self.wanted.overdue_at() {
            None => Time::NEVER,
            Some(overdue) if self.is_rich() => {
                // The more there is to spend, the faster.
                let wealthy = self.extra.left() * 2.0 > MOST_SPARE;
                let urgent = self.wanted.is_urgent(now, patience(rtt));
                let pause = if wealthy { pause(rtt) / 2 } else { pause(rtt) };
                if urgent { overdue.min(now + pause) } else { overdue }
            }
            Some(overdue) => overdue,
        };
    }

    /// Notes when the silence that follows now would be suspicious.
    fn listen(&mut self, now: Time, rtt: Duration) {
        self.unheard = Time::NEVER;
        if self.is_rich()
            && let Some(at) = self.rhythm.overdue_at(rtt)
            && at + rtt < self.useful_until
        {
            self.unheard = at.max(now);
        }
    }

    /// Asks again for what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time, rtt: Duration, drops: &mut Drops) {
        let unheard = now >= self.unheard;
        if !unheard && now < self.again {
            return;
        }
        drops.add(Drop::RepeatLate, self.wanted.expire(now, &self.numbers));
        let due = self.wanted.overdue_at().is_some_and(|at| at <= now);
        let early = !due && (unheard || !self.wanted.is_empty());
        // It was affordable when it was planned, or a strike that has expired.
        if early && !self.extra.spend(REQUEST as f64) {
            self.unheard = if unheard { Time::NEVER } else { self.unheard };
            return self.plan(now, rtt);
        }
        self.ask_for_all(now, rtt);
        if unheard {
            if let Some(highest) = self.numbers.highest()
                && self.asks.len() < MAX_RUNS
            {
                let count = self.rhythm.missing(now);
                self.guessed = highest + u64::from(count);
                self.asks.push_back(NackRange { first: (highest + 1) as u16, count });
            }
            let next = now + 2 * pause(rtt);
            let goes_on = self.is_rich() && next + rtt < self.useful_until;
            self.unheard = if goes_on { next } else { Time::NEVER };
        }
    }

    /// When [`Receiver::handle_timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Time {
        self.again.min(self.unheard)
    }

    /// How many ranges wait to be asked for, at most what one frame holds.
    pub(crate) fn pending_asks(&self) -> usize {
        self.asks.len().min(MAX_NACK_RANGES)
    }

    /// The next `n` ranges, to be written into a request.
    pub(crate) fn take_asks(&mut self, n: usize) -> ([NackRange; MAX_NACK_RANGES], usize) {
        let mut out = [NackRange { first: 0, count: 1 }; MAX_NACK_RANGES];
        let mut taken = 0;
        for (place, range) in out.iter_mut().zip(self.asks.drain(..n.min(self.asks.len()))) {
            *place = range;
            taken += 1;
        }
        (out, taken)
    }

    /// What has been seen so far.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }
}

/// Queues requests for those of `first..end` that have not come meanwhile and
/// that the sender may still have; how many these are.
fn queue(asks: &mut VecDeque<NackRange>, numbers: &SeqTracker, first: u64, end: u64) -> u64 {
    let mut queued = 0;
    let mut run: Option<NackRange> = None;
    for seq in first..=end {
        if asks.len() == MAX_RUNS {
            break;
        }
        let wanted = seq < end && !numbers.has(seq) && numbers.in_reach(seq);
        match &mut run {
            Some(range) if wanted && range.count < 256 => range.count += 1,
            _ => {
                if let Some(range) = run.take() {
                    queued += u64::from(range.count);
                    asks.push_back(range);
                }
                run = wanted.then_some(NackRange { first: seq as u16, count: 1 });
            }
        }
    }
    queued
}

/// How long to wait for an answer.
fn patience(rtt: Duration) -> Duration {
    rtt + GRACE + rtt / 16
}

/// Between two requests for the same packet: a quarter of the round trip, so
/// that a burst that takes one spares the next.
fn pause(rtt: Duration) -> Duration {
    (rtt / 4).clamp(Duration::from_millis(2), Duration::from_millis(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Time = Time::from_millis(1);

    std::thread_local! {
        /// Counts the envelopes.
        static ENVELOPE: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
    }

    /// In the envelope after the last, and after so many that were lost.
    fn packet_after(lost: u64, wire_seq: u16, useful_until: Time, at: Time) -> Incoming {
        let envelope = ENVELOPE.get() + lost;
        ENVELOPE.set(envelope + 1);
        let (len, recovered, rtt) = (160, false, Duration::ZERO);
        Incoming { wire_seq, envelope, len, recovered, at, useful_until, rtt }
    }

    fn packet(wire_seq: u16, useful_until: Time, at: Time) -> Incoming {
        packet_after(0, wire_seq, useful_until, at)
    }

    fn feed(r: &mut Receiver, seqs: &[u16]) -> Vec<(u16, u16)> {
        let mut drops = Drops::default();
        for &s in seqs {
            r.accept(&packet(s, SOON, Time::ZERO), &mut drops);
        }
        let n = r.pending_asks();
        let (ranges, n) = r.take_asks(n);
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
        // Of a gap of three, the one that came late is left out.
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
            // 100 and 101 are lost and asked for; then the link goes down.
            r.accept(&packet(102, at(202), at(102)), &mut drops);
            let before = r.stats();
            assert_eq!(before.missing, 2);
            r.outage();
            for now in 1_000..2_000 {
                assert_eq!(r.next_timeout(), Time::NEVER, "nothing is to be asked for");
                r.handle_timeout(at(now), Duration::from_millis(20), &mut drops);
            }
            // What was sent before the sender knew shows when the link is back.
            for k in 790..800 {
                let now = at(u64::from(k) + 2_000);
                r.accept(&packet(k, now + Duration::from_millis(100), now), &mut drops);
            }
            assert_eq!((drops.get(Drop::RepeatLate), r.pending_asks()), (0, 0));
            assert_eq!(r.stats().missing, before.missing);
            // A loss after that is one again.
            let now = at(2_801);
            r.accept(&packet(801, now + Duration::from_millis(100), now), &mut drops);
            assert_eq!((r.stats().missing, r.pending_asks()), (before.missing + 1, 1));
        }
    }

    #[test]
    fn an_outage_is_not_repaired_and_late_repairs_are_not_asked_for() {
        let mut r = Receiver::new(&Config::paper());
        assert_eq!(feed(&mut r, &[0, 5_000]), []);
        let mut drops = Drops::default();
        r.accept(&packet(5_002, SOON, SOON), &mut drops);
        assert_eq!((r.pending_asks(), drops.get(Drop::RepeatLate)), (0, 1));
        // Of a flow that has time left, whatever shows the gap.
        let later = Time::from_millis(100);
        r.accept(&packet(5_003, later, SOON), &mut drops);
        r.accept(&packet(5_005, SOON, SOON), &mut drops);
        assert_eq!(r.pending_asks(), 1);
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
        let packet = Incoming { rtt: RTT, ..packet(wire_seq, useful_until, at) };
        r.accept(&packet, &mut Drops::default());
        asked(r)
    }

    fn asked(r: &mut Receiver) -> Vec<(u16, u16)> {
        let (ranges, n) = r.take_asks(r.pending_asks());
        ranges[..n].iter().map(|x| (x.first, x.count)).collect()
    }

    fn wakes(r: &mut Receiver, ms: u64, drops: &mut Drops) -> Vec<(u16, u16)> {
        r.handle_timeout(Time::from_millis(ms), RTT, drops);
        asked(r)
    }

    /// A neighbour that speaks every 2 ms and loses numbers 5 and 6.
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
        let mut r = gap(Config { extra_share: 0.0, ..Config::default() });
        // A round trip, a sixteenth of it, and a millisecond.
        let overdue = Time::from_nanos(14_000_000 + 22_250_000);
        assert_eq!(r.next_timeout(), overdue);
        assert_eq!(wakes(&mut r, 30, &mut drops), [], "early is harmless");
        assert_eq!(arrives(&mut r, 5, 35), []);
        assert_eq!(wakes(&mut r, 37, &mut drops), [(6, 1)], "5 has come");
        assert_eq!(wakes(&mut r, 60, &mut drops), [(6, 1)]);
        // Of use until 104: what is asked for at 84 comes too late.
        assert_eq!(wakes(&mut r, 83, &mut drops), [(6, 1)]);
        assert_eq!(drops.get(Drop::RepeatLate), 0);
        assert_eq!(wakes(&mut r, 106, &mut drops), []);
        assert_eq!((drops.get(Drop::RepeatLate), r.next_timeout()), (1, Time::NEVER));
        assert_eq!(r.stats().asked, 2, "each counts once");
    }

    #[test]
    fn what_the_losses_earned_is_spent_when_time_runs_out() {
        let mut drops = Drops::default();
        let mut r = gap(Config { extra_share: 1.0, ..Config::default() });
        // The neighbour goes on speaking, so that nothing is guessed.
        let mut asked_at = Vec::new();
        for ms in 16..110 {
            if ms % 2 == 0 {
                assert_eq!(arrives(&mut r, ms as u16 / 2, ms), []);
            }
            if !wakes(&mut r, ms, &mut drops).is_empty() {
                asked_at.push(ms);
            }
        }
        // Strikes a round trip apart; from 60 on there is time for one more at
        // most. Two packets earn 464 bytes, a request takes 57.
        assert_eq!(asked_at, [37, 60, 65, 70, 75, 80, 83]);
    }

    #[test]
    fn a_neighbour_that_starts_anew_has_no_guesses_to_its_credit() {
        let mut drops = Drops::default();
        let restart: fn(&mut Receiver) = Receiver::restart;
        // As if it had gone on for long where nobody heard it.
        let jump: fn(&mut Receiver) = |r| {
            ENVELOPE.set(ENVELOPE.get() + 40_000);
            arrives(r, 15_000, 800);
            arrives(r, 15_001, 800);
        };
        for anew in [restart, jump] {
            let mut r = Receiver::new(&Config { extra_share: 1.0, ..Config::default() });
            for k in 0..200 {
                arrives(&mut r, 40_000 + k + k / 10, 2 * u64::from(k));
            }
            r.handle_timeout(r.unheard, RTT, &mut drops);
            assert!(r.guessed > 0, "nothing to forget");
            anew(&mut r);
            let before = r.stats();
            for k in 0..50 {
                let at = Time::from_millis(802 + 2 * u64::from(k));
                // Repeated, but on a link before this one.
                let recovered = true;
                let packet = Incoming { recovered, ..packet(15_002 + k, at + 2 * RTT, at) };
                assert_eq!(r.accept(&packet, &mut drops), Arrival::New);
            }
            assert_eq!(r.stats(), ReceiverStats { received: before.received + 50, ..before });
        }
    }

    #[test]
    fn what_is_not_due_is_not_asked_for_unless_paid_for() {
        let mut drops = Drops::default();
        let mut r = Receiver::new(&Config { extra_share: 0.0, ..Config::default() });
        let mut takes = |wire_seq, ms, left| {
            let at = Time::from_millis(ms);
            let useful_until = at + Duration::from_millis(left);
            let packet = Incoming { rtt: RTT, ..packet(wire_seq, useful_until, at) };
            r.accept(&packet, &mut Drops::default());
            asked(&mut r)
        };
        assert_eq!(takes(0, 0, 40), []);
        // 1 is asked for until 22, and due again at 24.25.
        assert_eq!(takes(2, 2, 40), [(1, 1)]);
        assert_eq!(takes(4, 20, 90), [(1, 1), (3, 1)]);
        assert_eq!(wakes(&mut r, 25, &mut drops), []);
        assert_eq!(drops.get(Drop::RepeatLate), 1);
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
        // On a link without losses nobody guesses.
        let mut calm = Receiver::new(&Config::default());
        (0..50).for_each(|k| drop(arrives(&mut calm, k, 2 * u64::from(k))));
        assert_eq!(calm.next_timeout(), Time::NEVER);
    }
}
