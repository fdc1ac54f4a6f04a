//! Packet counts by direction, vertex and class.

use crate::packet::{Class, DropReason};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Count;

/// Maximum number of bins of a record: a week of seconds.
pub const MAX_BINS: usize = 604_800;

/// Totals of one direction of an edge, over all packets or those of one class: `offered = arrived +
/// lost + queue_dropped + no_room + under way`, in packets and in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EdgeLedger {
    /// All packets routed to this direction.
    pub offered: Count,
    /// Packets that came out at the far end.
    pub arrived: Count,
    /// Packets lost on the wire.
    pub lost: Count,
    /// Packets rejected by the queue.
    pub queue_dropped: Count,
    /// Packets dropped because the network had reached its packet limit.
    pub no_room: Count,
    /// Packets marked by the queue (RFC 3168) and not dropped by it.
    pub marked: Count,
}

impl EdgeLedger {
    /// Returns the packets that have neither come out nor been dropped.
    pub fn under_way(&self) -> Count {
        let gone = [self.arrived, self.lost, self.queue_dropped, self.no_room];
        Count {
            packets: self.offered.packets - gone.iter().map(|c| c.packets).sum::<u64>(),
            bytes: self.offered.bytes - gone.iter().map(|c| c.bytes).sum::<u64>(),
        }
    }

    /// Returns the sum of both ledgers.
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

/// Packets dropped by a host or router itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VertexLedger {
    /// Packets without a route.
    pub no_route: Count,
    /// Packets forwarded too often.
    pub hop_limit: Count,
    /// Packets that arrived at a host other than their destination.
    pub stray: Count,
}

/// End-to-end totals of a class: `sent = delivered + dropped for each reason + under way`, in
/// packets and in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// Packets passed to [`Network::send`](crate::Network::send).
    pub sent: Count,
    /// Packets returned by [`Network::poll`](crate::Network::poll).
    pub delivered: Count,
    dropped: [Count; DropReason::ALL.len()],
}

impl Flow {
    /// Returns the packets dropped for this reason, anywhere.
    pub fn dropped(&self, why: DropReason) -> Count {
        self.dropped[why as usize]
    }

    pub(crate) fn drop(&mut self, why: DropReason, bytes: usize) {
        self.dropped[why as usize].add(bytes);
    }

    /// Returns the packets dropped for any reason.
    pub fn all_dropped(&self) -> Count {
        self.dropped.iter().fold(Count::default(), |a, b| sum(a, *b))
    }
}

/// The time bins to record: `count` of `width` each, starting at `from`. Events before or after
/// them are counted in the ledgers only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bins {
    /// Start of the first bin.
    pub from: Time,
    /// Width of each bin; at least 1 ns.
    pub width: Duration,
    /// Number of bins, at most [`MAX_BINS`].
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

/// Packets of a class in one time bin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bin {
    /// Packets that entered the direction in this bin.
    pub offered: Count,
    /// Packets that came out in this bin.
    pub arrived: Count,
    /// Packets whose drop was decided in this bin.
    pub dropped: Count,
}

/// Ledgers and bins of a direction, by class number.
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
    /// Starts a new record.
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

    /// Counts in the bin that contains `now`, if there is one.
    #[cold]
    fn bin(&mut self, now: Time, class: Class, count: impl FnOnce(&mut Bin)) {
        let Some((bin, all)) = self.record.and_then(|r| Some((r.at(now)?, r.count.min(MAX_BINS))))
        else {
            return;
        };
        let bins = &mut self.class(class).bins;
        if bins.is_empty() {
            // Reserved once per class, so that no packet allocates later.
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

    /// Counts a drop on an edge: lost, rejected by the queue, or over the packet limit.
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
