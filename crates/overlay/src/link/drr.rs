//! Deficit round robin (Shreedhar & Varghese 1995): backlogged queues share a link equally, in
//! bytes, whatever the sizes of their packets.

/// Bytes that a queue may send in each round: about one Ethernet packet, so that turns are short.
/// The largest packets (9,000 bytes) have to wait for seven rounds.
const QUANTUM: usize = 1_500;

/// Scheduler that decides which of `N` queues sends next.
#[derive(Debug)]
pub(super) struct DeficitRoundRobin<const N: usize> {
    /// Bytes that each queue may still send in this round.
    deficit: [usize; N],
    turn: usize,
    /// Whether the queue at `turn` has received its quantum for this round.
    paid: bool,
}

impl<const N: usize> DeficitRoundRobin<N> {
    pub fn new() -> DeficitRoundRobin<N> {
        DeficitRoundRobin { deficit: [0; N], turn: 0, paid: false }
    }

    /// The queue that sends next. `heads` holds the cost of each queue's first packet, `None` for
    /// an empty queue. Calling it again changes nothing.
    #[inline]
    pub fn next(&mut self, heads: &[Option<usize>; N]) -> Option<usize> {
        let (mut busy, mut last) = (0, None);
        for (place, head) in heads.iter().enumerate() {
            match head {
                Some(_) => (busy, last) = (busy + 1, Some(place)),
                None => self.deficit[place] = 0,
            }
        }
        // A single backlogged queue needs no turns.
        if busy < 2 { last } else { self.next_of_many(heads) }
    }

    fn next_of_many(&mut self, heads: &[Option<usize>; N]) -> Option<usize> {
        // Terminates, because each round adds a quantum for at least one backlogged queue.
        loop {
            if let Some(cost) = heads[self.turn] {
                if !core::mem::replace(&mut self.paid, true) {
                    self.deficit[self.turn] += QUANTUM;
                }
                if self.deficit[self.turn] >= cost {
                    return Some(self.turn);
                }
            }
            self.turn = (self.turn + 1) % N;
            self.paid = false;
        }
    }

    /// Records that queue `place` has sent a packet of this cost; `goes_on` if the queue has more.
    /// An empty queue keeps no credit for later.
    pub fn sent(&mut self, place: usize, cost: usize, goes_on: bool) {
        let left = self.deficit[place].saturating_sub(cost);
        self.deficit[place] = if goes_on { left } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Theorem 2 of the paper: the bytes that two backlogged queues have sent differ by less
        /// than a quantum plus the largest packet of each.
        #[test]
        fn backlogged_queues_share_equally(
            sizes in prop::collection::vec((1usize..=9_048, 1usize..=9_048, 1usize..=200), 1..400),
        ) {
            let mut drr = DeficitRoundRobin::<3>::new();
            let mut sent = [0usize; 3];
            let mut head = [0; 3];
            let size = |queue: usize, k: usize| {
                let (a, b, c) = sizes[k % sizes.len()];
                [a, b, c][queue]
            };
            for _ in 0..1_000 {
                let heads = [0, 1, 2].map(|q| Some(size(q, head[q])));
                let q = drr.next(&heads).unwrap();
                prop_assert_eq!(drr.next(&heads), Some(q));
                drr.sent(q, size(q, head[q]), true);
                sent[q] += size(q, head[q]);
                head[q] += 1;
                let (most, least) = (sent.iter().max().unwrap(), sent.iter().min().unwrap());
                prop_assert!(most - least < QUANTUM + 2 * 9_048, "{:?}", sent);
            }
        }
    }

    #[test]
    fn who_has_nothing_to_send_saves_nothing() {
        let mut drr = DeficitRoundRobin::<2>::new();
        // In a thousand rounds only the first queue has packets.
        for _ in 0..1_000 {
            assert_eq!(drr.next(&[Some(1_000), None]), Some(0));
            drr.sent(0, 1_000, true);
        }
        let mut sent = [0; 2];
        for _ in 0..40 {
            let q = drr.next(&[Some(1_000), Some(1_000)]).unwrap();
            drr.sent(q, 1_000, true);
            sent[q] += 1;
        }
        assert!((19..=21).contains(&sent[1]), "{sent:?}");
        assert_eq!(drr.next(&[None, None]), None);
        assert_eq!(drr.deficit, [0, 0]);
    }
}
