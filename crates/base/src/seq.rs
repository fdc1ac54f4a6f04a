/// The 64-bit count that `wire` (its low 16 bits) stands for, taken as the one
/// nearest to `near`. Serial number arithmetic as in RFC 1982, unwrapped.
///
/// Before the first wrap a number that would lie below zero is read as the
/// one above instead, so the result is never negative.
pub fn extend(near: u64, wire: u16) -> u64 {
    let delta = wire.wrapping_sub(near as u16) as i16;
    match near.checked_add_signed(i64::from(delta)) {
        Some(n) => n,
        None => near + u64::from(wire.wrapping_sub(near as u16)),
    }
}

/// The count to start from when the first number seen is `wire`: a whole turn
/// up, so that numbers before it lie below it.
pub fn first(wire: u16) -> u64 {
    (1 << 16) + u64::from(wire)
}

/// What has been seen of a numbered stream: the highest number and a bitmap of
/// the [`SeqWindow::SIZE`] numbers up to it, `WORDS` times 64.
#[derive(Clone, Debug)]
pub struct SeqWindow<const WORDS: usize> {
    highest: u64,
    seen: [u64; WORDS],
}

impl<const WORDS: usize> SeqWindow<WORDS> {
    /// How many numbers back a late arrival can still be told from a duplicate.
    pub const SIZE: u64 = (WORDS * 64) as u64;

    /// A window whose first number is `first`, already seen.
    pub fn starting_at(first: u64) -> Self {
        let mut w = SeqWindow { highest: first, seen: [0; WORDS] };
        w.set(first);
        w
    }

    /// The highest number seen.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Marks `n`. False if it was marked before, or is too old to tell.
    pub fn insert(&mut self, n: u64) -> bool {
        if n > self.highest {
            self.pass(n);
        } else if self.highest - n >= Self::SIZE || self.contains(n) {
            return false;
        }
        self.set(n);
        true
    }

    /// Moves the window up to `n`, if that is above, without marking it.
    pub fn pass(&mut self, n: u64) {
        if n > self.highest {
            self.forget(self.highest + 1, n);
            self.highest = n;
        }
    }

    /// Whether `n` lies in the window and is marked.
    pub fn contains(&self, n: u64) -> bool {
        n <= self.highest
            && self.highest - n < Self::SIZE
            && self.seen[Self::word(n)] & (1 << (n % 64)) != 0
    }

    fn set(&mut self, n: u64) {
        self.seen[Self::word(n)] |= 1 << (n % 64);
    }

    /// Clears `from..=to`, a word at a time: a jump is cheap however far.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= Self::SIZE - 1 {
            self.seen.fill(0);
            return;
        }
        let mut at = from;
        while at <= to {
            let end = (at | 63).min(to);
            let mask = (u64::MAX << (at % 64)) & (u64::MAX >> (63 - end % 64));
            self.seen[Self::word(at)] &= !mask;
            at = end + 1;
        }
    }

    fn word(n: u64) -> usize {
        (n / 64) as usize % WORDS
    }
}

/// Where an arriving number stands among those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The first, or the first after the sender began anew.
    Start,
    /// After all others, and so many between them have not come.
    Ahead {
        /// The number, unwrapped.
        seq: u64,
        /// How many were passed over.
        missing: u64,
    },
    /// Behind another, for the first time.
    Behind {
        /// The number, unwrapped.
        seq: u64,
    },
    /// Here before, or too far behind to tell.
    Known,
}

/// Follows a stream of packets by their 16-bit numbers: tells new ones from
/// copies, and a sender that numbers anew from stray copies.
#[derive(Clone, Debug, Default)]
pub struct SeqTracker<const WORDS: usize> {
    window: Option<SeqWindow<WORDS>>,
    /// The number after the last one too far behind.
    expected: Option<u16>,
}

impl<const WORDS: usize> SeqTracker<WORDS> {
    /// Takes note of `wire`.
    pub fn note(&mut self, wire: u16) -> Place {
        let Some(window) = &mut self.window else {
            return self.start(wire);
        };
        let highest = window.highest();
        let seq = extend(highest, wire);
        if seq + SeqWindow::<WORDS>::SIZE <= highest {
            // A stray copy, or a sender that restarted or went on during a long
            // outage. Two in a row are the latter (RFC 3550, A.1).
            if self.expected == Some(wire) {
                return self.start(wire);
            }
            self.expected = Some(wire.wrapping_add(1));
            return Place::Known;
        }
        match window.insert(seq) {
            false => Place::Known,
            true if seq > highest => Place::Ahead { seq, missing: seq - highest - 1 },
            true => Place::Behind { seq },
        }
    }

    fn start(&mut self, wire: u16) -> Place {
        *self = SeqTracker { window: Some(SeqWindow::starting_at(first(wire))), expected: None };
        Place::Start
    }

    /// The highest unwrapped number, once there is one.
    pub fn highest(&self) -> Option<u64> {
        self.window.as_ref().map(SeqWindow::highest)
    }

    /// Whether the unwrapped number `seq` has come.
    pub fn has(&self, seq: u64) -> bool {
        self.window.as_ref().is_some_and(|w| w.contains(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn extension_inverts_truncation(near in any::<u64>(), delta in -32_000i64..32_000) {
            if let Some(n) = near.checked_add_signed(delta) {
                prop_assert_eq!(extend(near, n as u16), n);
            }
        }

        #[test]
        fn window_agrees_with_a_set(start in 0u64..100_000, steps in prop::collection::vec(-1100i64..1500, 1..300)) {
            let mut w = SeqWindow::<16>::starting_at(start);
            let mut set = BTreeSet::from([start]);
            for s in steps {
                let Some(n) = w.highest().checked_add_signed(s) else { continue };
                let in_reach = n > w.highest() || w.highest() - n < SeqWindow::<16>::SIZE;
                prop_assert_eq!(w.insert(n), in_reach && set.insert(n), "{}", n);
            }
        }
    }

    #[test]
    fn a_stray_copy_is_doubted_and_a_second_number_in_a_row_believed() {
        let mut t = SeqTracker::<4>::default();
        let ahead = |wire, missing| Place::Ahead { seq: first(wire), missing };
        assert_eq!([10, 11, 14].map(|n| t.note(n)), [Place::Start, ahead(11, 0), ahead(14, 2)]);
        assert_eq!(t.note(12), Place::Behind { seq: first(12) });
        assert_eq!(t.note(12), Place::Known);
        // Ahead it is believed at once, behind at the second number.
        assert_eq!(t.note(30_000), ahead(30_000, 29_985));
        assert_eq!([500, 501, 501].map(|n| t.note(n)), [Place::Known, Place::Start, Place::Known]);
        assert_eq!([60_000, 502].map(|n| t.note(n)), [Place::Known, ahead(502, 0)]);
        assert!(t.has(first(502)) && !t.has(first(503)));
    }

    #[test]
    fn no_number_below_zero() {
        assert_eq!(extend(3, 0xffff), 0xffff);
        assert_eq!(extend(0x1_0003, 0xffff), 0xffff);
        assert_eq!(extend(first(3), 0xffff), first(3) - 4);
    }
}
