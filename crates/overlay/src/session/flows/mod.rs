//! What is known of each flow that begins or ends at this node, from its
//! packets' headers alone: no report of the other end is needed.
//!
//! A destination knows:
//!
//! - What is **missing**, from the flow's numbers. What was lost behind the last
//!   packet that came, nobody knows here. The numbers have 16 bits; after an
//!   outage they are extended by the clock and the most that the flow has sent
//!   in a second, but for a packet at most 64 ahead, which is taken for the end
//!   of a pause (wrong after one outage in a thousand of a flow that wrapped
//!   meanwhile). A jump further than one and a half times what the flow sends in
//!   the silence and a second is a sender that numbers anew; nothing counts as
//!   missing then. A flow whose rate varies by more than 65,536 packets in one
//!   outage is counted wrong by multiples of that.
//! - What was **late**: it came with nothing left until its deadline, as the
//!   nodes reckon on its way (see the delay, next).
//! - The **delay**, as the deadline less what was left of it. The deadline
//!   doesn't travel; it is taken to be the most that was left of any packet,
//!   plus what the way back takes by the routing table at that moment (links
//!   count with half their round trip). So the delay is that of the nodes'
//!   queues and recovery, exactly, and of the links on average; the network's
//!   own jitter is not in it. Milliseconds are rounded at each hop, by 0.5 ms
//!   at most. An asymmetric way shifts it by half of the difference. It is unknown
//!   without a way back, or by an operator's route without `onward`; of packets
//!   that were late it is only known that it was no less than the deadline. An
//!   application that shortens its deadline within a call seems slower.
//! - The **jitter** of RFC 3550 (6.4.1), as the mean of what that averages. The
//!   sender's timestamps don't travel: it is taken to send evenly, at the mean
//!   spacing of the last 64 packets or so. For a sender that doesn't, it is how
//!   unevenly it sends. A difference of 255 ms or more is a pause, and left out.

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

/// Flows that a node keeps each way: more than the 10,000 of 5,000 calls. With
/// more, the one that was silent longest makes room. One takes about 1.2 kB at
/// its destination.
pub const MAX_FLOWS: usize = 16_384;

/// A flow is over after this silence; what comes then is another call.
pub const OVER_AFTER: Duration = Duration::from_secs(30);

/// What is over is still shown until this long after its last packet.
pub const SHOWN_FOR: Duration = Duration::from_secs(120);

/// No deadline is longer.
const LONGEST: Duration = Duration::from_millis(255);

/// The ends of a flow, as this node sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ends {
    /// The virtual port here.
    pub port: u16,
    /// The other node.
    pub peer: NodeId,
    /// The virtual port there.
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

/// A packet that has come to its destination, and is no copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub service: Service,
    pub number: u16,
    pub recovered: bool,
    /// What is left until its deadline.
    pub remaining: Duration,
    pub bytes: usize,
}

/// A flow as both ends keep it.
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

/// A flow at its destination.
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
    /// Of how many packets, 64 at most.
    of: u64,
    /// When the last packet came, whatever its number.
    last: Time,
}

impl Spacing {
    /// Takes a packet that is `ahead` of the one before it, or behind it; by how
    /// much it came earlier or later than it should after that, in nanoseconds.
    fn note(&mut self, now: Time, ahead: i64) -> Option<u64> {
        let gap = now.since(self.last).as_nanos() as u64;
        self.last = now;
        // Far from each other a small error of the mean is a large one.
        if ahead.unsigned_abs() > 16 {
            return None;
        }
        if ahead > 0 {
            let spacing = gap / ahead as u64;
            // The first, or those before were of a time with pauses.
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

/// What a destination knows beside [`Counts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The most that was left until the deadline of any packet.
    pub most_left: Duration,
    /// How long the way took then, as far as known.
    pub way: Option<Duration>,
    /// How often the sender has numbered anew.
    pub restarts: u64,
}

impl Received {
    /// What the origin has set as deadline, as far as can be known.
    pub fn deadline(&self) -> Option<Duration> {
        Some(self.most_left + self.way?)
    }

    /// The mean delay of what `counts` counts.
    pub fn delay(&self, counts: &Counts) -> Option<Duration> {
        Some(self.deadline()?.saturating_sub(counts.mean_remaining()?))
    }
}

/// A flow as one moment saw it.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Where it begins and ends.
    pub ends: Ends,
    /// What carried its last packet.
    pub service: Service,
    /// When its first packet came or was sent.
    pub since: Time,
    /// When its last was.
    pub last: Time,
    /// Whether it has ended: nobody holds its port here, or it has been silent
    /// for [`OVER_AFTER`].
    pub over: bool,
    /// Packets that did not get into the application, or at the origin into the
    /// overlay: a full queue, no route.
    pub refused: u64,
    /// The whole call.
    pub call: Counts,
    /// The last ten to eleven seconds.
    pub recent: Counts,
    /// How long these were: less for a flow that is younger.
    pub span: Duration,
    /// If it ends here: what a destination knows.
    pub received: Option<Received>,
}

/// All flows that begin or end at a node.
#[derive(Debug)]
pub(crate) struct Flows {
    received: Lru<Receiving>,
    sent: Lru<Common<Volume>>,
    displaced: u64,
}

/// Cursors of flows that begin here.
const SENT: u64 = 1 << 32;

impl Flows {
    /// At most `max` each way.
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

    /// Whether a flow that begins here has sent something and is not over.
    pub(crate) fn is_sending(&self, now: Time, ends: Ends) -> bool {
        self.sent.get(ends.key()).is_some_and(|flow| !flow.is_over(now))
    }

    /// Counts a packet for an application here. True if more was left of its
    /// time than ever before in this call: [`Flows::set_way`] wants to know how
    /// long its way takes.
    pub(crate) fn received(&mut self, now: Time, ends: Ends, packet: &Arrival) -> bool {
        let fresh = || Receiving::new(now, packet.service);
        let (flow, displaced) = self.received.entry(ends.key(), fresh);
        self.displaced += u64::from(displaced.is_some_and(|flow| !flow.common.is_over(now)));
        if flow.common.is_over(now) {
            *flow = Receiving::new(now, packet.service);
        }
        flow.note(now, packet)
    }

    /// The way between the ends of a flow takes so long.
    pub(crate) fn set_way(&mut self, ends: Ends, way: Option<Duration>) {
        if let Some(flow) = self.received.get_mut(ends.key()) {
            flow.way = way;
        }
    }

    /// The application did not take the last packet for it.
    pub(crate) fn not_taken(&mut self, ends: Ends) {
        if let Some(flow) = self.received.get_mut(ends.key()) {
            flow.common.refused += 1;
        }
    }

    /// The last packet of an application went nowhere.
    pub(crate) fn not_sent(&mut self, ends: Ends) {
        if let Some(flow) = self.sent.get_mut(ends.key()) {
            flow.refused += 1;
        }
    }

    /// Flows that made room for others before they had ended.
    pub(crate) fn displaced(&self) -> u64 {
        self.displaced
    }

    /// What there is to show in `places` places from `from` on (0 at first), and
    /// where it goes on. A flow that there is all the while is shown just once.
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
