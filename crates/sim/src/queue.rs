//! What happens next: a heap keyed by (time, order of scheduling), so that
//! events of one moment happen in the order in which they were caused.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use trunkline_base::Time;

/// Something that happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A datagram has reached the far end of this direction.
    Arrival { at: Time, direction: u32, buffer: u32 },
    /// A host's node asked to be woken.
    Host(u32),
    /// A host's node that has said goodbye ends; void if it was started anew
    /// since.
    End(u32),
    /// An application asked to be woken; void if it has since asked anew.
    App { app: u32, generation: u32 },
}

#[derive(Clone, Copy)]
struct Entry {
    at: Time,
    order: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

#[derive(Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl EventQueue {
    pub fn push(&mut self, at: Time, event: Event) {
        // Nothing happens at the end of time.
        if at < Time::NEVER {
            self.order += 1;
            self.heap.push(Reverse(Entry { at, order: self.order, event }));
        }
    }

    /// The next event, if it happens at `end` or before.
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, Event)> {
        self.heap.peek().filter(|Reverse(e)| e.at <= end)?;
        self.heap.pop().map(|Reverse(e)| (e.at, e.event))
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_scheduling() {
        let mut q = EventQueue::default();
        for (ms, host) in [(3, 0), (1, 1), (3, 2), (1, 3), (2, 4)] {
            q.push(Time::from_millis(ms), Event::Host(host));
        }
        q.push(Time::NEVER, Event::Host(9));
        let popped: Vec<_> =
            std::iter::from_fn(|| q.pop_until(Time::from_millis(3)).map(|(_, e)| e)).collect();
        assert_eq!(popped, [1, 3, 4, 0, 2].map(Event::Host));
        q.push(Time::from_millis(5), Event::Host(5));
        assert_eq!(q.pop_until(Time::from_millis(4)), None);
        assert_eq!(q.len(), 1);
    }
}
