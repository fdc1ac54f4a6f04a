/// The 64-bit count that `wire` (its low 16 bits) stands for: the candidate nearest to `near`.
/// Serial number arithmetic as in RFC 1982, unwrapped.
///
/// Before the first wrap, a number that would lie below zero is read as the next one above instead,
/// so the result is never negative.
pub fn extend(near: u64, wire: u16) -> u64 {
    let delta = wire.wrapping_sub(near as u16) as i16;
    match near.checked_add_signed(i64::from(delta)) {
        Some(n) => n,
        None => near + u64::from(wire.wrapping_sub(near as u16)),
    }
}

/// The 64-bit count that the low 48 bits of `wire` stand for: the candidate nearest to `near`, as
/// [`extend`] does for 16 bits.
pub fn extend48(near: u64, wire: u64) -> u64 {
    let delta = wire.wrapping_sub(near) << 16;
    match near.checked_add_signed(delta as i64 >> 16) {
        Some(n) => n,
        None => near + (delta >> 16),
    }
}

/// The count to start from when the first number seen is `wire`: one full turn up, so that earlier
/// numbers have room below it.
pub fn first(wire: u16) -> u64 {
    (1 << 16) + u64::from(wire)
}

/// The numbers seen in a stream: the highest one, and a bitmap of the [`size`](SeqWindow::size)
/// numbers up to it. `S` holds the bitmap in 64-bit words, whose number is a power of two.
#[derive(Clone, Debug)]
pub struct SeqWindow<S> {
    highest: u64,
    seen: S,
}

impl<S: AsRef<[u64]> + AsMut<[u64]>> SeqWindow<S> {
    /// Creates a window in `memory` whose first number is `first`, already seen.
    pub fn starting_at(first: u64, mut memory: S) -> Self {
        debug_assert!(memory.as_ref().len().is_power_of_two());
        memory.as_mut().fill(0);
        let mut w = SeqWindow { highest: first, seen: memory };
        w.set(first);
        w
    }

    /// Number of positions, the highest included, at which a late arrival can still be told from
    /// a duplicate.
    pub fn size(&self) -> u64 {
        self.seen.as_ref().len() as u64 * 64
    }

    /// Copies the window into other memory; numbers that don't fit are forgotten.
    pub fn moved<T: AsRef<[u64]> + AsMut<[u64]>>(&self, memory: T) -> SeqWindow<T> {
        let mut w = SeqWindow::starting_at(self.highest, memory);
        let back = self.size().min(w.size()).min(self.highest + 1);
        for n in self.highest + 1 - back..self.highest {
            if self.contains(n) {
                w.set(n);
            }
        }
        w
    }

    /// Releases the memory, for another window.
    pub fn into_memory(self) -> S {
        self.seen
    }

    /// The highest number seen.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Marks `n`. False if it was already marked, or is too old to tell.
    pub fn insert(&mut self, n: u64) -> bool {
        if n > self.highest {
            self.pass(n);
        } else if self.highest - n >= self.size() || self.contains(n) {
            return false;
        }
        self.set(n);
        true
    }

    /// Advances the window to `n`, if that is above the highest, without marking it.
    pub fn pass(&mut self, n: u64) {
        if n > self.highest {
            self.forget(self.highest + 1, n);
            self.highest = n;
        }
    }

    /// Whether `n` lies in the window and is marked.
    pub fn contains(&self, n: u64) -> bool {
        n <= self.highest
            && self.highest - n < self.size()
            && self.seen.as_ref()[self.word(n)] & (1 << (n % 64)) != 0
    }

    fn set(&mut self, n: u64) {
        let word = self.word(n);
        self.seen.as_mut()[word] |= 1 << (n % 64);
    }

    /// Clears `from..=to` a word at a time, so that a jump is cheap at any distance.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= self.size() - 1 {
            self.seen.as_mut().fill(0);
            return;
        }
        let mut at = from;
        while at <= to {
            let end = (at | 63).min(to);
            let mask = (u64::MAX << (at % 64)) & (u64::MAX >> (63 - end % 64));
            let word = self.word(at);
            self.seen.as_mut()[word] &= !mask;
            at = end + 1;
        }
    }

    fn word(&self, n: u64) -> usize {
        (n / 64) as usize & (self.seen.as_ref().len() - 1)
    }
}

/// Position of an arriving number relative to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeqClass {
    /// The first number of the stream.
    Start,
    /// A new highest number.
    Ahead {
        /// The unwrapped 64-bit number.
        seq: u64,
        /// Number of skipped numbers that have not arrived.
        missing: u64,
    },
    /// Below the highest number, and new.
    Behind {
        /// The unwrapped 64-bit number.
        seq: u64,
    },
    /// A duplicate, or in an envelope too far behind to tell.
    Known,
}

/// Follows a stream of packets by their 16-bit numbers and by the count of the envelopes that carry
/// them. It tells new packets from copies, whatever was lost before.
///
/// The sender counts its envelopes; each count is unique, and an envelope holds at most one packet.
/// A new packet gets the next number; a retransmission keeps its number. With c(n) for the envelope
/// that first carried number n, the numbers obey
///
/// 1. c(n + 1) ≥ c(n) + 1, as each has an envelope of its own;
/// 2. c(n) ≤ C ≤ c(n) + [`REACH`](Self::REACH) for every envelope C with number n, as that is how
///    long a sender retransmits.
///
/// Let a be the number in envelope A, the latest with a number so far, and n the one in envelope C.
///
/// - If C − A ≤ REACH, then n lies within REACH of a + (C − A): for n ≥ a, since n − a ≤ c(n) −
///   c(a) ≤ C − (A − REACH) and n ≥ a ≥ a + (C − A) − REACH; for n < a, since a − n ≤ c(a) − c(n) ≤
///   A − (C − REACH), and the same count from the other side if C < A. REACH is less than half a
///   turn, so the nearest number with these 16 bits is n.
/// - If C − A > REACH, then by 2. no packet of envelope A or before is retransmitted in C or later:
///   n is new, and so are all that follow, whatever number they are given. n gets the next number
///   that fits. An envelope that C has overtaken may still repeat a number, so only if C − A > REACH
///   + LATE is everything seen before forgotten.
///
/// So no packet is mistaken for another. The required memory follows, too: if n was seen, then h −
/// n ≤ c(h) − c(n) ≤ A − C + REACH for the highest number h, and envelopes that are
/// [`LATE`](Self::LATE) behind are not considered; the window has room for the sum. A packet is
/// `Known` if it has arrived before, or is in an envelope that late.
#[derive(Clone, Debug, Default)]
pub struct SeqTracker(Option<Heard>);

#[derive(Clone, Debug)]
struct Heard {
    /// The highest count of an envelope with a number, and that number.
    last: (u64, u64),
    window: SeqWindow<[u64; SeqTracker::WORDS]>,
}

impl SeqTracker {
    /// Half of the 16-bit number space.
    const SIZE: u64 = 1 << 15;
    const WORDS: usize = Self::SIZE as usize / 64;

    /// An envelope with this many later ones ahead of it is too late to tell: if sealed, it would
    /// be rejected as a replay.
    pub const LATE: u64 = 1 << 11;

    /// Maximum distance, in envelopes, from an original to its retransmission.
    pub const REACH: u64 = Self::SIZE - Self::LATE;

    /// Records number `wire`, received in envelope `count`.
    pub fn note(&mut self, count: u64, wire: u16) -> SeqClass {
        let Some(heard) = &mut self.0 else {
            let window = SeqWindow::starting_at(first(wire), [0; Self::WORDS]);
            self.0 = Some(Heard { last: (count, first(wire)), window });
            return SeqClass::Start;
        };
        let highest = heard.window.highest();
        let (last, near) = heard.last;
        let seq = match count.checked_sub(last) {
            None if last - count >= Self::LATE => return SeqClass::Known,
            None => extend(near.saturating_sub(last - count), wire),
            Some(ahead) if ahead <= Self::REACH => extend(near + ahead, wire),
            Some(ahead) => {
                let seq = highest + 1 + u64::from(wire.wrapping_sub((highest + 1) as u16));
                heard.last = (count, seq);
                if ahead <= Self::SIZE {
                    // An envelope that this one has overtaken may repeat a number seen before.
                    heard.window.insert(seq);
                } else {
                    heard.window = SeqWindow::starting_at(seq, [0; Self::WORDS]);
                }
                return SeqClass::Ahead { seq, missing: seq - highest - 1 };
            }
        };
        if count > last {
            heard.last = (count, seq);
        }
        match heard.window.insert(seq) {
            false => SeqClass::Known,
            true if seq > highest => SeqClass::Ahead { seq, missing: seq - highest - 1 },
            true => SeqClass::Behind { seq },
        }
    }

    /// The highest unwrapped number; `None` before the first.
    pub fn highest(&self) -> Option<u64> {
        self.0.as_ref().map(|heard| heard.window.highest())
    }

    /// Whether the unwrapped number `seq` has arrived.
    pub fn has(&self, seq: u64) -> bool {
        self.0.as_ref().is_some_and(|heard| heard.window.contains(seq))
    }

    /// Whether the sender may still retransmit `seq`, as far as this side can tell.
    pub fn in_reach(&self, seq: u64) -> bool {
        self.highest().is_none_or(|highest| seq.saturating_add(Self::REACH) > highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};

    proptest! {
        #[test]
        fn extension_inverts_truncation(near in any::<u64>(), delta in -32_000i64..32_000) {
            if let Some(n) = near.checked_add_signed(delta) {
                prop_assert_eq!(extend(near, n as u16), n);
            }
        }

        #[test]
        fn extension_of_48_bits_does_too(near in any::<u64>(), delta in -(1i64 << 47)..1 << 47) {
            if let Some(n) = near.checked_add_signed(delta) {
                prop_assert_eq!(extend48(near, n & 0xffff_ffff_ffff), n);
            }
        }

        #[test]
        fn window_agrees_with_a_set(start in 0u64..100_000, steps in prop::collection::vec(-1100i64..1500, 1..300)) {
            let mut w = SeqWindow::starting_at(start, [0; 16]);
            let mut set = BTreeSet::from([start]);
            for s in steps {
                let Some(n) = w.highest().checked_add_signed(s) else { continue };
                let in_reach = n > w.highest() || w.highest() - n < w.size();
                prop_assert_eq!(w.insert(n), in_reach && set.insert(n), "{}", n);
            }
            for (words, size) in [(8, 512), (32, 1_024)] {
                let moved = w.moved(vec![u64::MAX; words]);
                for back in 0..3_000.min(w.highest()) {
                    let n = w.highest() - back;
                    prop_assert_eq!(moved.contains(n), back < size && set.contains(&n));
                }
            }
        }
    }

    /// A sender and its network: counted envelopes, some with a packet.
    #[derive(Default)]
    struct Sender {
        count: u64,
        next: u64,
        /// Packets that can be retransmitted: number, and the envelope that first carried it.
        kept: VecDeque<(u64, u64)>,
        /// Envelopes in flight: the envelope count at which it arrives, its own count, and the
        /// packet's number.
        flying: BTreeSet<(u64, u64, u64)>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Envelopes without a number: hellos and best effort.
        Other(u64),
        /// A new packet: whether it is lost, and by how many envelopes it is late.
        Original(bool, u64),
        /// A run of new packets.
        Train(u64),
        /// A retransmission: the choice of packet, whether it is lost, and by how many envelopes it
        /// is late.
        Repeat(prop::sample::Index, bool, u64),
        /// Envelopes that are all lost, and how many in a thousand of them carry new packets.
        Outage(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = any::<prop::sample::Index>;
        let late = || prop_oneof![3 => Just(0), 1 => 0..SeqTracker::LATE];
        // Around each bound, and anywhere else.
        let length = prop_oneof![
            0u64..5_000_000,
            SeqTracker::REACH - 3..SeqTracker::REACH + 3,
            (1..80u64, 0..9u64).prop_map(|(turns, more)| (turns << 16) + more - 4),
        ];
        let share = prop_oneof![Just(1_000), Just(0), 0..=1_000u64];
        let step = prop_oneof![
            3 => (0u64..3_000).prop_map(Step::Other),
            6 => (any::<bool>(), late()).prop_map(|(lost, late)| Step::Original(lost, late)),
            3 => (1u64..2_000).prop_map(Step::Train),
            6 => (index(), any::<bool>(), late()).prop_map(|(i, l, d)| Step::Repeat(i, l, d)),
            1 => (length, share).prop_map(|(n, share)| Step::Outage(n, share)),
        ];
        prop::collection::vec(step, 1..200)
    }

    impl Sender {
        fn put(&mut self, number: Option<u64>, lost: bool, late: u64) {
            if let Some(n) = number.filter(|_| !lost) {
                self.flying.insert((self.count + late, self.count, n));
            }
            self.count += 1;
        }

        fn originals(&mut self, n: u64, spread: u64) {
            // Only the last can be retransmitted; the others need not be created.
            let end = self.count + spread;
            let begin = self.next + n;
            for k in (1..=n.min(SeqTracker::REACH)).rev() {
                // As late as they can have been sent, one per envelope.
                self.kept.push_back((begin - k, end - k));
            }
            (self.count, self.next) = (end, begin);
        }

        fn forget(&mut self) {
            while self.kept.front().is_some_and(|(_, c)| c + SeqTracker::REACH < self.count) {
                self.kept.pop_front();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(120))]
        /// Compares with a set of all arrivals: nothing is accepted twice, and nothing new is
        /// rejected.
        #[test]
        fn whatever_is_lost_a_packet_is_new_once(start in any::<u16>(), steps in steps()) {
            let mut sender = Sender { next: 1 << 20 | u64::from(start), ..Sender::default() };
            let (mut tracker, mut come) = (SeqTracker::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Other(n) => sender.count += n,
                    Step::Original(lost, late) => {
                        sender.kept.push_back((sender.next, sender.count));
                        sender.put(Some(sender.next), lost, late);
                        sender.next += 1;
                    }
                    Step::Train(n) => for _ in 0..n {
                        sender.kept.push_back((sender.next, sender.count));
                        sender.put(Some(sender.next), false, 0);
                        sender.next += 1;
                    },
                    Step::Repeat(which, lost, late) => {
                        sender.forget();
                        if !sender.kept.is_empty() {
                            let (n, _) = sender.kept[which.index(sender.kept.len())];
                            sender.put(Some(n), lost, late);
                        }
                    }
                    Step::Outage(n, share) => sender.originals(n * share / 1_000, n),
                }
                while let Some(&(due, count, n)) = sender.flying.first()
                    && due < sender.count
                {
                    sender.flying.pop_first();
                    // An envelope overtaken by a longer silence is dropped as too late.
                    if sender.count - count >= SeqTracker::LATE {
                        continue;
                    }
                    let place = tracker.note(count, n as u16);
                    prop_assert_eq!(place != SeqClass::Known, come.insert(n), "{} in {}: {:?}", n, count, place);
                }
            }
        }
    }

    #[test]
    fn numbers_are_placed_by_the_count_of_envelopes() {
        let mut t = SeqTracker::default();
        let ahead = |wire, missing| SeqClass::Ahead { seq: first(wire), missing };
        assert_eq!(
            [(5, 10), (6, 11), (9, 14)].map(|(c, n)| t.note(c, n)),
            [SeqClass::Start, ahead(11, 0), ahead(14, 2)]
        );
        assert_eq!(t.note(10, 12), SeqClass::Behind { seq: first(12) });
        assert_eq!(t.note(11, 12), SeqClass::Known);
        // 55,000 numbers are lost; the number after them has 16 bits that were seen before.
        for n in 15..20_000 {
            assert_eq!(t.note(u64::from(n), n), ahead(n, 0));
        }
        assert_eq!(
            t.note(20_000 + 55_000, 9_464),
            SeqClass::Ahead { seq: first(9_464) + (1 << 16), missing: 55_000 }
        );
        // Best effort alone uses up no numbers.
        let quiet = 1 << 40;
        assert_eq!(
            t.note(quiet, 9_465),
            SeqClass::Ahead { seq: first(9_465) + (1 << 16), missing: 0 }
        );
        assert_eq!(t.note(quiet - SeqTracker::LATE, 9_466), SeqClass::Known, "too late to tell");
        assert!(t.has(first(9_465) + (1 << 16)) && !t.has(first(9_464) + (1 << 16)));
    }

    /// The envelope that carries the copy is within the sender's reach; the one that overtakes it is
    /// beyond.
    #[test]
    fn a_copy_that_is_overtaken_at_the_end_of_a_silence_is_known() {
        let mut t = SeqTracker::default();
        t.note(0, 7);
        let end = SeqTracker::REACH;
        let seq = first(8);
        assert_eq!(t.note(end + 1, 8), SeqClass::Ahead { seq, missing: 0 });
        assert_eq!(t.note(end, 7), SeqClass::Known);
    }

    #[test]
    fn no_number_below_zero() {
        assert_eq!(extend(3, 0xffff), 0xffff);
        assert_eq!(extend(0x1_0003, 0xffff), 0xffff);
        assert_eq!(extend(first(3), 0xffff), first(3) - 4);
        assert_eq!(extend48(3, (1 << 48) - 1), (1 << 48) - 1);
    }
}
