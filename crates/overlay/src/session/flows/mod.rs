//! Statistics of each flow that begins or ends at this node, from its packets' headers alone: no
//! report of the other end is needed.
//!
//! A destination measures:
//!
//! - **Missing** packets, from the flow's numbers. Losses after the last packet received cannot be
//!   seen here. The numbers have 16 bits; after an outage they are extended with the clock and the
//!   most that the flow has sent in a second, except for a packet at most 64 ahead, which is taken
//!   for the end of a pause (wrong after one outage in a thousand of a flow that wrapped
//!   meanwhile). A jump further than one and a half times the packets that the flow sends in the
//!   silence plus a second means that the sender has restarted its numbers; nothing counts as
//!   missing then. A flow with a rate that varies by more than 65,536 packets in one outage is
//!   counted wrong by multiples of that.
//! - **Late** packets: they arrived with no time left until their deadline, as estimated by the
//!   nodes on the path (see the delay, next).
//! - The **delay**: the deadline less the time left of it. The deadline is not transmitted; it is
//!   taken to be the most time that any packet had left, plus the delay of the return path by the
//!   routing table at that moment (links count with half their round trip). So the delay contains
//!   the queues and the recovery of the nodes exactly, and the links on average, but not the
//!   network's own jitter. Milliseconds are rounded at each hop, by 0.5 ms at most. An asymmetric
//!   path shifts the delay by half of the difference. It is unknown without a return path, or by an
//!   operator's route without `onward`; for late packets it is only known to be no less than the
//!   deadline. If an application shortens its deadline within a call, its packets seem slower.
//! - The **jitter** of RFC 3550 (6.4.1), as the mean of the values that are averaged there. The
//!   sender's timestamps are not transmitted: it is assumed to send evenly, at the mean spacing of
//!   about the last 64 packets. For a sender that doesn't, the jitter includes the unevenness of
//!   sending. A difference of 255 ms or more is a pause, and left out.

mod counts;
mod numbers;

pub use counts::Counts;

use super::lru::Lru;
use crate::wire::{NodeId, Service};
use core::ops::AddAssign;
use core::time::Duration;
use counts::{History, Volume};
use numbers::Numbers;
use trunkline_base::Time;

/// Flows that a node keeps in each direction: more than the 10,000 of 5,000 calls. Beyond that, the
/// one that has been silent longest is displaced. One takes about 1.2 kB at its destination.
pub const MAX_FLOWS: usize = 16_384;

/// A flow ends after this silence; packets that arrive later belong to another call.
pub const OVER_AFTER: Duration = Duration::from_secs(30);

/// Time after its last packet for which an ended flow is still listed.
pub const SHOWN_FOR: Duration = Duration::from_secs(120);

/// Upper bound of all deadlines.
const LONGEST: Duration = Duration::from_millis(255);

/// The ends of a flow, as seen from this node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ends {
    /// The virtual port at this node.
    pub port: u16,
    /// Node at the other end.
    pub peer: NodeId,
    /// The virtual port at the remote node.
    pub peer_port: u16,
}

impl Ends {
    fn key(self) -> u64 {
        u64::from(self.port) << 48 | u64::from(self.peer.0) << 16 | u64::from(self.peer_port)
    }

    fn of(key: u64) -> Ends {
        Ends { port: (key >> 48) as u16, peer: NodeId((key >> 16) as u32), peer_port: key as u16 }
    }
}

/// A packet that has reached its destination and is not a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub service: Service,
    pub number: u16,
    pub recovered: bool,
    /// Time left until its deadline.
    pub remaining: Duration,
    pub bytes: usize,
}

/// State of a flow that both ends keep.
#[derive(Debug)]
struct Common<C> {
    service: Service,
    since: Time,
    last: Time,
    refused: u64,
    history: History<C>,
}

impl<C: Copy + Default + AddAssign + Into<Counts>> Common<C> {
    fn new(now: Time, service: Service) -> Common<C> {
        Common { service, since: now, last: now, refused: 0, history: History::new(now) }
    }

    fn is_over(&self, now: Time) -> bool {
        now.since(self.last) >= OVER_AFTER
    }

    fn show(&self, now: Time, ends: Ends, received: Option<Received>) -> Option<Flow> {
        let &Common { service, since, last, refused, ref history } = self;
        let (recent, span) = history.recent(now, since);
        let over = self.is_over(now);
        let call = history.call();
        let shown = now.since(last) < SHOWN_FOR;
        shown.then_some(Flow {
            ends,
            service,
            since,
            last,
            over,
            refused,
            call,
            recent,
            span,
            received,
        })
    }
}

/// State of a flow at its destination.
#[derive(Debug)]
struct Receiving {
    common: Common<Counts>,
    numbers: Option<Numbers>,
    spacing: Spacing,
    most_left: Duration,
    way: Option<Duration>,
}

/// The mean spacing of a flow's packets.
#[derive(Default, Debug)]
struct Spacing {
    nanos: u64,
    /// Number of packets averaged, at most 64.
    of: u64,
    /// Arrival time of the last packet, whatever its number.
    last: Time,
}

impl Spacing {
    /// Takes a packet that is `ahead` of the one before it, or behind if negative. Returns the
    /// deviation from its expected arrival, early or late, in nanoseconds.
    fn note(&mut self, now: Time, ahead: i64) -> Option<u64> {
        let gap = now.since(self.last).as_nanos() as u64;
        self.last = now;
        // Over a large distance, a small error of the mean becomes a large one.
        if ahead.unsigned_abs() > 16 {
            return None;
        }
        if ahead > 0 {
            let spacing = gap / ahead as u64;
            // Either this is the first spacing, or the mean is from a time with pauses.
            if self.of == 0 || self.nanos > spacing.saturating_add(LONGEST.as_nanos() as u64) {
                (self.nanos, self.of) = (spacing, 1);
                return None;
            }
        }
        let due = ahead * self.nanos as i64;
        let off = (gap as i64).abs_diff(due);
        if u128::from(off) >= LONGEST.as_nanos() {
            return None;
        }
        if ahead > 0 {
            self.of = (self.of + 1).min(64);
            let step = (gap as i64 / ahead - self.nanos as i64) / self.of as i64;
            self.nanos = self.nanos.saturating_add_signed(step);
        }
        Some(off)
    }
}

impl Receiving {
    fn new(now: Time, service: Service) -> Receiving {
        Receiving {
            common: Common::new(now, service),
            numbers: None,
            spacing: Spacing::default(),
            most_left: Duration::ZERO,
            way: None,
        }
    }

    fn note(&mut self, now: Time, packet: &Arrival) -> bool {
        let late = packet.remaining.is_zero();
        let step = match &mut self.numbers {
            Some(numbers) => numbers.note(now, packet.number, late),
            none => {
                let (numbers, step) = Numbers::begin(now, packet.number, late);
                *none = Some(numbers);
                step
            }
        };
        let wander = step.ahead.and_then(|ahead| self.spacing.note(now, ahead));
        self.spacing.last = now;
        let counts = Counts {
            packets: 1,
            bytes: packet.bytes as u64,
            late: late.into(),
            recovered: packet.recovered.into(),
            remaining_us: packet.remaining.as_micros() as u64,
            wander_ns: wander.unwrap_or(0),
            wandered: wander.is_some().into(),
            ..step.counts
        };
        (self.common.service, self.common.last) = (packet.service, now);
        self.common.history.add(now, counts);
        let more = packet.remaining > self.most_left;
        self.most_left = self.most_left.max(packet.remaining);
        more
    }
}

/// Measurements of a destination other than [`Counts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The most time left until its deadline that any packet had.
    pub most_left: Duration,
    /// Delay of the path at that time, if known.
    pub way: Option<Duration>,
    /// Number of times that the sender has restarted its numbers.
    pub restarts: u64,
}

impl Received {
    /// The deadline that the origin has set, as far as it can be inferred.
    pub fn deadline(&self) -> Option<Duration> {
        Some(self.most_left + self.way?)
    }

    /// The mean delay of the packets in `counts`.
    pub fn delay(&self, counts: &Counts) -> Option<Duration> {
        Some(self.deadline()?.saturating_sub(counts.mean_remaining()?))
    }
}

/// A snapshot of a flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Local and remote end of the flow.
    pub ends: Ends,
    /// Service that carried the last packet of the flow.
    pub service: Service,
    /// Time at which its first packet was received or sent.
    pub since: Time,
    /// Time at which the last packet of the flow was received or sent.
    pub last: Time,
    /// Whether it has ended: its port here is unbound, or it has been silent for [`OVER_AFTER`].
    pub over: bool,
    /// Packets that were not accepted by the application or, at the origin, by the overlay: a full
    /// queue, no route.
    pub refused: u64,
    /// Counts of the whole call.
    pub call: Counts,
    /// Counts of the last ten to eleven seconds.
    pub recent: Counts,
    /// Length of the interval of `recent`: less for a younger flow.
    pub span: Duration,
    /// Measurements of the destination, if the flow ends here.
    pub received: Option<Received>,
}

/// All flows that begin or end at a node.
#[derive(Debug)]
pub(crate) struct Flows {
    received: Lru<Receiving>,
    sent: Lru<Common<Volume>>,
    displaced: u64,
}

/// Offset of the cursors of flows that begin here.
const SENT: u64 = 1 << 32;

impl Flows {
    /// Creates a table for at most `max` flows in each direction.
    pub(crate) fn new(max: usize, secret: u64) -> Flows {
        Flows { received: Lru::new(max, secret), sent: Lru::new(max, secret), displaced: 0 }
    }

    /// Counts a packet that an application here sends.
    pub(crate) fn sent(&mut self, now: Time, ends: Ends, service: Service, bytes: usize) {
        let (flow, displaced) = self.sent.entry(ends.key(), || Common::new(now, service));
        self.displaced += u64::from(displaced.is_some_and(|flow| !flow.is_over(now)));
        if flow.is_over(now) {
            *flow = Common::new(now, service);
        }
        (flow.service, flow.last) = (service, now);
        flow.history.add(now, Volume { packets: 1, bytes: bytes as u64 });
    }

    /// Whether a flow that begins here has sent a packet and has not ended.
    pub(crate) fn is_sending(&self, now: Time, ends: Ends) -> bool {
        self.sent.get(ends.key()).is_some_and(|flow| !flow.is_over(now))
    }

    /// Counts a packet for an application here. True if it had more time left than any before in
    /// this call: the caller should then call [`Flows::set_way`] with the delay of its path.
    pub(crate) fn received(&mut self, now: Time, ends: Ends, packet: &Arrival) -> bool {
        let fresh = || Receiving::new(now, packet.service);
        let (flow, displaced) = self.received.entry(ends.key(), fresh);
        self.displaced += u64::from(displaced.is_some_and(|flow| !flow.common.is_over(now)));
        if flow.common.is_over(now) {
            *flow = Receiving::new(now, packet.service);
        }
        flow.note(now, packet)
    }

    /// Sets the delay of the path between the ends of a flow.
    pub(crate) fn set_way(&mut self, ends: Ends, way: Option<Duration>) {
        if let Some(flow) = self.received.get_mut(ends.key()) {
            flow.way = way;
        }
    }

    /// Records that the application did not accept its last packet.
    pub(crate) fn not_taken(&mut self, ends: Ends) {
        if let Some(flow) = self.received.get_mut(ends.key()) {
            flow.common.refused += 1;
        }
    }

    /// Records that an application's last packet was not sent.
    pub(crate) fn not_sent(&mut self, ends: Ends) {
        if let Some(flow) = self.sent.get_mut(ends.key()) {
            flow.refused += 1;
        }
    }

    /// Flows displaced by others before they had ended.
    pub(crate) fn displaced(&self) -> u64 {
        self.displaced
    }

    /// The flows in `places` slots from `from` on (0 at first), and the start of the next page. A
    /// flow that exists throughout is listed exactly once.
    pub(crate) fn page(&self, now: Time, from: u64, places: usize) -> (Vec<Flow>, Option<u64>) {
        let start = usize::try_from(from % SENT).unwrap_or(usize::MAX);
        let on = start.saturating_add(places);
        if from < SENT {
            let flows = self.received.iter_from(start).take(places);
            let flows = flows.filter_map(|(key, flow)| {
                let restarts = flow.numbers.as_ref().map_or(0, |numbers| numbers.restarts);
                let received = Received { most_left: flow.most_left, way: flow.way, restarts };
                flow.common.show(now, Ends::of(key), Some(received))
            });
            let next = if on < self.received.len() { on as u64 } else { SENT };
            return (flows.collect(), Some(next));
        }
        let flows = self.sent.iter_from(start).take(places);
        let flows = flows.filter_map(|(key, flow)| flow.show(now, Ends::of(key), None));
        (flows.collect(), (on < self.sent.len()).then_some(SENT + on as u64))
    }
}

#[cfg(test)]
mod tests;
