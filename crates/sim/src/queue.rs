//! What happens next beside the network: a heap keyed by moments that the
//! network gives out, so that both together have one order.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use trunkline_net::Moment;

/// Something that happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An agent asked to be woken, with this token.
    Wake { agent: u32, token: u64 },
    /// A datagram that a stalled host could not take is there for it.
    Held(u32),
}

#[derive(Clone, Copy)]
struct Entry {
    moment: Moment,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.moment.cmp(&other.moment)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.moment == other.moment
    }
}

impl Eq for Entry {}

#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
}

impl Timers {
    pub fn push(&mut self, moment: Moment, event: Event) {
        self.heap.push(Reverse(Entry { moment, event }));
    }

    /// When the next event happens.
    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |Reverse(e)| e.moment)
    }

    pub fn pop(&mut self) -> Option<(Moment, Event)> {
        self.heap.pop().map(|Reverse(e)| (e.moment, e.event))
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}
