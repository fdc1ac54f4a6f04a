//! What became of whose packets.

use crate::packet::{Class, DropReason};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Count;

/// The most bins of a record: a week of seconds.
pub const MAX_BINS: usize = 604_800;

/// What one direction of an edge did, to all packets or to those of one class:
/// `offered = arrived + lost + queue_dropped + no_room + under way`, in packets
/// and in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EdgeLedger {
    /// Everything that was to go this way.
    pub offered: Count,
    /// Has come out at the far end.
    pub arrived: Count,
    /// Lost on the wire.
    pub lost: Count,
    /// Turned away by the queue.
    pub queue_dropped: Count,
    /// Dropped because the network holds no more packets.
    pub no_room: Count,
    /// Marked by the queue (RFC 3168) and not dropped by it.
    pub marked: Count,
}

impl EdgeLedger {
    /// Neither out nor dropped yet.
    pub fn under_way(&self) -> Count {
        let gone = [self.arrived, self.lost, self.queue_dropped, self.no_room];
        Count {
            packets: self.offered.packets - gone.iter().map(|c| c.packets).sum::<u64>(),
            bytes: self.offered.bytes - gone.iter().map(|c| c.bytes).sum::<u64>(),
        }
    }

    /// Both together.
    pub fn plus(&self, other: &EdgeLedger) -> EdgeLedger {
        EdgeLedger {
            offered: sum(self.offered, other.offered),
            arrived: sum(self.arrived, other.arrived),
            lost: sum(self.lost, other.lost),
            queue_dropped: sum(self.queue_dropped, other.queue_dropped),
            no_room: sum(self.no_room, other.no_room),
            marked: sum(self.marked, other.marked),
        }
    }
}

fn sum(a: Count, b: Count) -> Count {
    Count { packets: a.packets + b.packets, bytes: a.bytes + b.bytes }
}

/// What a host or router dropped itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VertexLedger {
    /// For want of a route.
    pub no_route: Count,
    /// Passed on too often.
    pub hop_limit: Count,
    /// Came to a host that they were not for.
    pub stray: Count,
}

/// What became of the packets of a class, from end to end: `sent = delivered +
/// dropped for each reason + under way`, in packets and in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// Handed to [`Network::send`](crate::Network::send).
    pub sent: Count,
    /// Handed out by [`Network::poll`](crate::Network::poll).
    pub delivered: Count,
    dropped: [Count; DropReason::ALL.len()],
}

impl Flow {
    /// Dropped for this reason, wherever.
    pub fn dropped(&self, why: DropReason) -> Count {
        self.dropped[why as usize]
    }

    pub(crate) fn drop(&mut self, why: DropReason, bytes: usize) {
        self.dropped[why as usize].add(bytes);
    }

    /// Dropped for any reason.
    pub fn all_dropped(&self) -> Count {
        self.dropped.iter().fold(Count::default(), |a, b| sum(a, *b))
    }
}

/// Which bins of time to keep: `count` of `width` each, the first from `from`
/// on. What happens before or after them is in the ledgers alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bins {
    /// Where the first begins.
    pub from: Time,
    /// How long each is; at least 1 ns.
    pub width: Duration,
    /// How many there are, at most [`MAX_BINS`].
    pub count: usize,
}

impl Bins {
    fn at(&self, now: Time) -> Option<usize> {
        if now < self.from {
            return None;
        }
        let bin = now.since(self.from).as_nanos() / self.width.as_nanos().max(1);
        usize::try_from(bin).ok().filter(|&bin| bin < self.count.min(MAX_BINS))
    }
}

/// What happened to a class in one bin of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bin {
    /// Entered the direction in this time.
    pub offered: Count,
    /// Came out in this time.
    pub arrived: Count,
    /// Dropped, as was decided in this time.
    pub dropped: Count,
}

/// What a direction keeps for each class, by its number.
#[derive(Default)]
pub(crate) struct Ledgers {
    classes: Vec<PerClass>,
    record: Option<Bins>,
}

#[derive(Default)]
struct PerClass {
    ledger: EdgeLedger,
    bins: Vec<Bin>,
}

impl Ledgers {
    /// Starts a record anew.
    pub fn record(&mut self, bins: Bins) {
        self.record = Some(bins);
        self.classes.iter_mut().for_each(|c| c.bins.clear());
    }

    pub fn bins(&self, class: Class) -> &[Bin] {
        self.classes.get(usize::from(class.0)).map_or(&[], |c| &c.bins)
    }

    pub fn of(&self, class: Class) -> EdgeLedger {
        self.classes.get(usize::from(class.0)).map_or(EdgeLedger::default(), |c| c.ledger)
    }

    pub fn total(&self) -> EdgeLedger {
        self.classes.iter().fold(EdgeLedger::default(), |sum, c| sum.plus(&c.ledger))
    }

    #[inline]
    fn class(&mut self, class: Class) -> &mut PerClass {
        let at = usize::from(class.0);
        if at >= self.classes.len() {
            self.grow(at);
        }
        &mut self.classes[at]
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        self.classes.resize_with(at + 1, PerClass::default);
    }

    /// Counts in the bin of `now`, if one is kept.
    #[cold]
    fn bin(&mut self, now: Time, class: Class, count: impl FnOnce(&mut Bin)) {
        let Some((bin, all)) = self.record.and_then(|r| Some((r.at(now)?, r.count.min(MAX_BINS))))
        else {
            return;
        };
        let bins = &mut self.class(class).bins;
        if bins.is_empty() {
            // Once for each class, so that no packet later allocates.
            bins.reserve_exact(all);
        }
        if bin >= bins.len() {
            bins.resize(bin + 1, Bin::default());
        }
        count(&mut bins[bin]);
    }

    #[inline]
    pub fn offered(&mut self, now: Time, class: Class, bytes: usize) {
        self.class(class).ledger.offered.add(bytes);
        if self.record.is_some() {
            self.bin(now, class, |b| b.offered.add(bytes));
        }
    }

    pub fn marked(&mut self, class: Class, bytes: usize) {
        self.class(class).ledger.marked.add(bytes);
    }

    #[inline]
    pub fn arrived(&mut self, now: Time, class: Class, bytes: usize) {
        self.class(class).ledger.arrived.add(bytes);
        if self.record.is_some() {
            self.bin(now, class, |b| b.arrived.add(bytes));
        }
    }

    /// Counts what an edge drops: a loss, its queue's, or for want of room.
    pub fn dropped(&mut self, now: Time, class: Class, why: DropReason, bytes: usize) {
        let ledger = &mut self.class(class).ledger;
        match why {
            DropReason::Loss => ledger.lost.add(bytes),
            DropReason::Queue => ledger.queue_dropped.add(bytes),
            _ => ledger.no_room.add(bytes),
        }
        if self.record.is_some() {
            self.bin(now, class, |b| b.dropped.add(bytes));
        }
    }
}
