//! What happens next beside the network: a heap keyed by moments that the
//! network gives out, so that both together have one order.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use trunkline_net::Moment;

/// Something that happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// An agent asked to be woken, with this token.
    Wake { agent: u32, token: u64 },
    /// A datagram that a stalled host could not take is there for it.
    Held(u32),
}

#[derive(Default)]
pub struct Timers {
    /// No two moments are equal, so the order of events never counts.
    heap: BinaryHeap<Reverse<(Moment, Event)>>,
}

impl Timers {
    pub fn push(&mut self, moment: Moment, event: Event) {
        self.heap.push(Reverse((moment, event)));
    }

    /// When the next event happens.
    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |Reverse((moment, _))| *moment)
    }

    pub fn pop(&mut self) -> Option<(Moment, Event)> {
        self.heap.pop().map(|Reverse(first)| first)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}
