//! Event times, and the order of events at the same time.

use core::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use trunkline_base::Time;

/// A time, and an order within it: events at the same time happen in the order in which they were
/// caused.
///
/// The order is that in which [`Network::moment`](crate::Network::moment) and the network itself
/// drew from one counter. A driver with a timer queue of its own that uses these moments thus has
/// one total order over its events and the network's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment {
    /// The time, on the clock that drives the network.
    pub at: Time,
    order: u64,
}

impl Moment {
    /// The moment after everything.
    pub const NEVER: Moment = Moment::end_of(Time::NEVER);

    /// The moment after everything at `at`, and before everything later.
    pub const fn end_of(at: Time) -> Moment {
        Moment { at, order: u64::MAX }
    }

    /// The `order`-th moment given out, at `at`.
    pub(crate) const fn numbered(at: Time, order: u64) -> Moment {
        Moment { at, order }
    }

    /// Packs the moment into one number, which compares without a branch.
    #[inline]
    fn key(self) -> u128 {
        u128::from(self.at.as_nanos()) << 64 | u128::from(self.order)
    }
}

/// A queue of planned events, ordered by moment.
///
/// A driver with events of its own besides the network's keeps them in a schedule, with moments
/// from [`Network::moment`](crate::Network::moment).
pub struct Schedule<E> {
    heap: BinaryHeap<Planned<E>>,
}

/// A planned event. The earliest is the greatest, since a heap has the greatest on top. No two
/// moments are equal, so the event never takes part in comparisons.
struct Planned<E> {
    moment: Moment,
    event: E,
}

impl<E> Ord for Planned<E> {
    #[inline]
    fn cmp(&self, other: &Planned<E>) -> Ordering {
        other.moment.key().cmp(&self.moment.key())
    }
}

impl<E> PartialOrd for Planned<E> {
    #[inline]
    fn partial_cmp(&self, other: &Planned<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Planned<E>) -> bool {
        self.moment == other.moment
    }
}

impl<E> Eq for Planned<E> {}

impl<E> Default for Schedule<E> {
    fn default() -> Schedule<E> {
        Schedule { heap: BinaryHeap::new() }
    }
}

impl<E: Copy> Schedule<E> {
    /// Plans `event` for `moment`.
    #[inline]
    pub fn push(&mut self, moment: Moment, event: E) {
        self.heap.push(Planned { moment, event });
    }

    /// The moment of the next event; [`Moment::NEVER`] if there is none.
    #[inline]
    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |next| next.moment)
    }

    /// Removes and returns the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Moment, E)> {
        self.heap.pop().map(|next| (next.moment, next.event))
    }

    /// The next event, if it happens before `end`; the event stays in the schedule.
    #[inline]
    pub(crate) fn peek_before(&self, end: Moment) -> Option<(Time, E)> {
        let next = self.heap.peek()?;
        (next.moment.key() < end.key()).then_some((next.moment.at, next.event))
    }

    /// Postpones the next event, or removes it.
    #[inline]
    pub(crate) fn put_off(&mut self, until: Option<Moment>) {
        match (until, self.heap.peek_mut()) {
            (Some(moment), Some(mut first)) => first.moment = moment,
            (None, Some(first)) => drop(PeekMut::pop(first)),
            (_, None) => {}
        }
    }

    /// Number of planned events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event is planned.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_asking() {
        let mut schedule = Schedule::default();
        let at = |ms, order| Moment::numbered(Time::from_millis(ms), order);
        let ms = Time::from_millis;
        schedule.push(at(3, 1), 0);
        schedule.push(at(1, 2), 1);
        let between = at(3, 3);
        schedule.push(at(3, 4), 2);
        let later = at(4, 5);
        let mut popped = |end, until| {
            let next = schedule.peek_before(end).map(|(_, event)| event);
            if next.is_some() {
                schedule.put_off(until);
            }
            next
        };
        assert_eq!(popped(between, Some(later)), Some(1));
        assert_eq!(popped(between, None), Some(0));
        assert_eq!(popped(between, None), None, "asked for before the third");
        assert_eq!(popped(Moment::end_of(ms(2)), None), None);
        assert_eq!(popped(Moment::end_of(ms(3)), None), Some(2));
        assert_eq!(popped(Moment::end_of(ms(3)), None), None);
        assert_eq!(popped(Moment::NEVER, None), Some(1), "put off");
        assert_eq!(schedule.len(), 0);
        assert!(between < Moment::end_of(ms(3)) && Moment::end_of(ms(3)) < later);
    }
}
