//! When something happens, and what of one time happens first.

use core::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use trunkline_base::Time;

/// A time, and the order within it: of what happens at one time, what was
/// caused first happens first.
///
/// The order is that in which [`Network::moment`](crate::Network::moment) and
/// the network itself drew from one counter. So a driver that keeps a queue of
/// timers of its own beside the network's, with moments that it drew here, has
/// one total order over both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment {
    /// The time, by the clock of whoever drives the network.
    pub at: Time,
    order: u64,
}

impl Moment {
    /// After everything.
    pub const NEVER: Moment = Moment::end_of(Time::NEVER);

    /// After everything that happens at `at`, and before what is later.
    pub const fn end_of(at: Time) -> Moment {
        Moment { at, order: u64::MAX }
    }

    /// The `order`-th moment that is given out, at `at`.
    pub(crate) const fn numbered(at: Time, order: u64) -> Moment {
        Moment { at, order }
    }

    /// As one number, which takes one comparison and no branch.
    #[inline]
    fn key(self) -> u128 {
        u128::from(self.at.as_nanos()) << 64 | u128::from(self.order)
    }
}

/// What is planned, by moment.
///
/// A driver that has events of its own beside the network's keeps them in one of
/// these, with moments from [`Network::moment`](crate::Network::moment).
pub struct Schedule<E> {
    heap: BinaryHeap<Planned<E>>,
}

/// The one of the earliest moment is the greatest, as a heap has it on top. No two
/// moments are equal, so what is planned never counts.
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
    /// Plans that `event` happens at `moment`.
    #[inline]
    pub fn push(&mut self, moment: Moment, event: E) {
        self.heap.push(Planned { moment, event });
    }

    /// When the next event happens; [`Moment::NEVER`] if there is none.
    #[inline]
    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |next| next.moment)
    }

    /// Takes out the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Moment, E)> {
        self.heap.pop().map(|next| (next.moment, next.event))
    }

    /// The next event, if it happens before `end`; it stays the next.
    #[inline]
    pub(crate) fn peek_before(&self, end: Moment) -> Option<(Time, E)> {
        let next = self.heap.peek()?;
        (next.moment.key() < end.key()).then_some((next.moment.at, next.event))
    }

    /// Puts off the next event, or removes it.
    #[inline]
    pub(crate) fn put_off(&mut self, until: Option<Moment>) {
        match (until, self.heap.peek_mut()) {
            (Some(moment), Some(mut first)) => first.moment = moment,
            (None, Some(first)) => drop(PeekMut::pop(first)),
            (_, None) => {}
        }
    }

    /// How many events are planned.
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
