//! When something happens, and what of one time happens first.

use std::cmp::Reverse;
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
}

/// Something that happens in the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// The first of the packets in this direction comes out of it.
    Arrival(u32),
    /// This medium asked to be polled.
    Medium(u32),
}

/// What will happen, and the counter behind every [`Moment`].
#[derive(Default)]
pub(crate) struct Agenda {
    /// No two moments are equal, so the order of events never counts.
    heap: BinaryHeap<Reverse<(Moment, Event)>>,
    order: u64,
}

impl Agenda {
    #[inline]
    pub fn moment(&mut self, at: Time) -> Moment {
        self.order += 1;
        Moment { at, order: self.order }
    }

    #[inline]
    pub fn push(&mut self, moment: Moment, event: Event) {
        self.heap.push(Reverse((moment, event)));
    }

    pub fn next(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((moment, _))| *moment)
    }

    /// The next event, if it happens before `end`; it stays the next.
    #[inline]
    pub fn peek_before(&self, end: Moment) -> Option<(Time, Event)> {
        let &Reverse((moment, event)) = self.heap.peek()?;
        (moment < end).then_some((moment.at, event))
    }

    /// Puts off the next event, or removes it.
    #[inline]
    pub fn put_off(&mut self, until: Option<Moment>) {
        match (until, self.heap.peek_mut()) {
            (Some(moment), Some(mut first)) => first.0.0 = moment,
            (None, Some(first)) => drop(PeekMut::pop(first)),
            (_, None) => {}
        }
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_asking() {
        let mut agenda = Agenda::default();
        let ms = Time::from_millis;
        let push = |agenda: &mut Agenda, at, number| {
            let moment = agenda.moment(ms(at));
            agenda.push(moment, Event::Arrival(number));
        };
        push(&mut agenda, 3, 0);
        push(&mut agenda, 1, 1);
        let between = agenda.moment(ms(3));
        push(&mut agenda, 3, 2);
        let later = agenda.moment(ms(4));
        let mut popped = |end, until| {
            let next = agenda.peek_before(end).map(|(_, event)| event);
            if next.is_some() {
                agenda.put_off(until);
            }
            next
        };
        assert_eq!(popped(between, Some(later)), Some(Event::Arrival(1)));
        assert_eq!(popped(between, None), Some(Event::Arrival(0)));
        assert_eq!(popped(between, None), None, "asked for before the third");
        assert_eq!(popped(Moment::end_of(ms(2)), None), None);
        assert_eq!(popped(Moment::end_of(ms(3)), None), Some(Event::Arrival(2)));
        assert_eq!(popped(Moment::end_of(ms(3)), None), None);
        assert_eq!(popped(Moment::NEVER, None), Some(Event::Arrival(1)), "put off");
        assert_eq!(agenda.len(), 0);
        assert!(between < Moment::end_of(ms(3)) && Moment::end_of(ms(3)) < later);
    }
}
