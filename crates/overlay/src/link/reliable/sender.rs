//! The sending half: keeps packets until they are acknowledged, and retransmits lost ones.

use super::red::{HIGH, NEAR, Red};
use super::{ACK_DELAY, Config, EPOCH, MAX_AHEAD};
use crate::counters::DropReason;
use crate::link::packet::MARKED;
use crate::link::pool::PacketPool;
use crate::link::ring::{PacketRing, Slot};
use crate::link::turns::{Backlog, Turns};
use crate::link::{OVERHEAD, Packet};
use crate::wire::{DATA_HEADER, MAX_ACK_DELAY, MAX_HOPS, SelectiveAck};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};
use trunkline_base::{Pacer, Time, extend};
use trunkline_rate::window::{self, Control, Extent};

/// How far sending may run ahead of the pace, so that the timer's granularity does not cost
/// throughput.
const PACING_BURST: Duration = Duration::from_millis(1);

/// Longest time before a sender tries again, on a link that is down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of this node's streams that may wait here, as the time in which the window carries them:
/// longer than the wait at which packets are marked, and longer in proportion on a link with a
/// longer round trip.
const LOCAL_QUEUE: Duration = HIGH.saturating_add(NEAR);

/// Once a packet of a flow has waited for this long, no more of its packets are accepted if a new
/// one would wait for [`LONGEST_WAIT`], at the rate at which its packets left meanwhile. Those of
/// streams are retransmitted end to end after 5 s, which must suffice for other queues and the
/// return path too: otherwise copies fill the queue.
const WAITED: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Bytes of a flow from other nodes that may wait in any case.
const MIN_FLOW: usize = 4 << 10;

/// Bytes of this node's streams that may wait in any case.
const MIN_QUEUE: usize = 32 << 10;

/// Lower bound of the round trip in calculations.
const SHORTEST_RTT: Duration = Duration::from_millis(1);

/// Number of later packets that must have arrived before one is taken for lost at once, without
/// allowing time for reordering (RFC 8985, section 6.2).
const REORDER: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Unsent,
    InFlight,
    Lost,
    Acknowledged,
}

/// Kinds of packet, by the bound on how many of them may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    /// Bounded only by the size of the ring.
    #[default]
    Other,
    /// Bounded by [`Sender::has_room_for_own`]: the packet belongs to a stream of this node.
    OwnStream,
    /// Bounded by [`Sender::flow_controlled`]: the application waits for room.
    FlowControlled,
}

/// State of a packet that waits for its first transmission.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    kind: Kind,
    /// Number of its flow, of those that are distinguished.
    flow: u8,
    /// Bytes of its flow that had left when it was queued.
    left_before: u64,
}

/// State of the packet in a slot of the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    state: State,
    retransmitted: bool,
    kind: Kind,
    /// Number of its flow, of those that are distinguished.
    flow: u8,
    /// Bytes that it occupies in the window.
    cost: u32,
    /// Number of its last transmission among all of them, and the time of that.
    transmission: u64,
    sent_at: Time,
    /// If acknowledged: every slot from this packet up to this one, exclusive, is too.
    acknowledged_to: Slot,
}

/// Packets of one link that wait to be sent or to be acknowledged.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Packets that were never sent, in the turns of their sources.
    queue: PacketPool,
    turns: Turns,
    /// Indexed by slot of the queue.
    waiting: Box<[Waiting]>,
    /// Packets that have numbers.
    ring: PacketRing,
    /// Indexed by slot. Numbers are slots, counted from `base`.
    flights: Box<[Flight]>,
    base: Slot,
    epoch: u8,
    /// The present start of this node.
    own: u16,
    /// The start of the neighbour that acknowledges this epoch.
    instance: Option<u16>,
    /// The first slot that is not acknowledged, and the first that was never sent.
    first: Slot,
    next: Slot,
    /// Bytes that were never sent, per [`Kind`].
    unsent: [usize; 3],
    /// Packets to be retransmitted, lowest slot first, because streams wait for that one. Some may
    /// have been acknowledged since.
    lost: BinaryHeap<Reverse<Slot>>,
    /// Transmissions in their order. An entry is void if its packet was retransmitted since, or has
    /// arrived.
    order: VecDeque<(Slot, u64)>,
    transmissions: u64,
    /// By number of a flow: one that fills its share of the link marks no packets of others.
    reds: Box<[Red; 256]>,
    control: Control,
    pacer: Pacer,
    in_flight: u64,
    /// The latest transmission known to have arrived (its number, and when it was sent), and the
    /// highest slot that arrived without a retransmission.
    newest: (u64, Time),
    highest: Slot,
    /// When missing packets count as lost even if nothing else arrives.
    loss_at: Time,
    /// When something was last sent or received, or the timer last expired.
    active: Time,
    last_sent: Time,
    /// Whether the timer, which has backed off, is to expire at once.
    is_hastened: bool,
    /// Allows one packet to be sent regardless of the window.
    probe: bool,
    /// Until when the pace delays the head, as of the last query.
    paced_until: Time,
    /// Whether calls share the path, so that the window yields to its delay.
    pub yields: bool,
}

impl Sender {
    /// Creates the sender of a link with IP packets of up to `mtu` bytes.
    pub fn new(config: &Config, mtu: usize, secret: u64) -> Sender {
        let packets = config.packets.clamp(1, MAX_AHEAD as usize).next_power_of_two();
        let mut window = window::Config::new(mtu);
        window.algorithm = config.algorithm;
        Sender {
            queue: PacketPool::new(config.bytes, packets),
            turns: Turns::new(config.bytes, packets, secret),
            waiting: vec![Waiting::default(); packets].into(),
            ring: PacketRing::new(config.bytes, packets),
            flights: vec![Flight::default(); packets].into(),
            base: 0,
            epoch: 0,
            own: 0,
            instance: None,
            first: 0,
            next: 0,
            unsent: [0; 3],
            lost: BinaryHeap::with_capacity(packets),
            order: VecDeque::with_capacity(2 * packets),
            transmissions: 0,
            reds: Box::new([const { Red::NEW }; 256]),
            control: Control::new(window),
            pacer: Pacer::of_time(PACING_BURST),
            in_flight: 0,
            newest: (0, Time::ZERO),
            highest: 0,
            loss_at: Time::NEVER,
            active: Time::ZERO,
            last_sent: Time::ZERO,
            is_hastened: false,
            probe: false,
            paced_until: Time::NEVER,
            yields: false,
        }
    }

    /// This node has started; `own` distinguishes this start from others.
    pub fn begin(&mut self, own: u16) {
        self.own = own;
    }

    /// Queues a packet if there is room; stored packets are never displaced.
    pub fn enqueue(&mut self, since: Time, packet: &Packet<'_>) -> Result<(), DropReason> {
        let len = packet.frame_len();
        let kind = match (packet.is_of_stream(), packet.hop_limit == MAX_HOPS - 1) {
            (true, true) => Kind::OwnStream,
            (false, _) if since == Time::NEVER => Kind::FlowControlled,
            _ => Kind::Other,
        };
        let place = self.turns.find(packet.turn, &packet.flow);
        let backlog = self.turns.backlog(&place);
        // The other kinds have bounds of their own.
        let is_refused = kind == Kind::Other
            && (!self.turns.admits(&place, len + OVERHEAD)
                || backlog.is_some_and(|backlog| self.is_behind(since, backlog)));
        if is_refused || !self.queue.has_room(len) {
            return Err(DropReason::QueueFull);
        }
        let slot = self.queue.keep(since, packet, packet.deadline)?;
        let left_before = backlog.map_or(0, |backlog| backlog.left);
        let flow = place.number();
        *self.record(slot) = Waiting { kind, flow, left_before };
        self.turns.push(place, slot, len + OVERHEAD, packet.is_control());
        self.unsent[kind as usize] += len;
        Ok(())
    }

    pub fn has_room(&self, len: usize) -> bool {
        self.queue.has_room(len)
    }

    /// Whether a frame of `len` bytes of a local stream finds room. Packets of local streams wait
    /// in their stream rather than here: those that this link cannot carry soon would only be
    /// retransmitted in vain. A frame with `data` leaves room for those without, which many streams
    /// should not delay.
    pub fn has_room_for_own(&self, len: usize, data: bool) -> bool {
        let nanos = |span: Duration| span.as_nanos() as u64;
        let rtt = self.control.rtt();
        let (shortest, smoothed) = (rtt.shortest(), rtt.smoothed().map(|r| r.max(SHORTEST_RTT)));
        let span = nanos(LOCAL_QUEUE) * nanos(shortest.unwrap_or(NEAR).max(NEAR)) / nanos(NEAR);
        let soon = smoothed.map_or(0, |r| self.control.size().saturating_mul(span) / nanos(r));
        // The other half is for packets from other nodes.
        let own = (soon as usize).max(MIN_QUEUE).min(self.queue.size() / 2);
        let own = if data { own } else { own + MIN_QUEUE };
        self.queue.has_room(len) && self.unsent[Kind::OwnStream as usize] < own
    }

    /// Whether a packet that arrives now would wait for too long behind what waits of its flow.
    fn is_behind(&mut self, now: Time, Backlog { oldest, bytes, left }: Backlog) -> bool {
        let since = self.queue.get(oldest).map_or(now, |(entry, _)| entry.since);
        let waited = now.since(since);
        if waited <= WAITED || bytes <= MIN_FLOW {
            return false;
        }
        let left = left.saturating_sub(self.record(oldest).left_before).max(1);
        bytes as u128 * waited.as_nanos() > u128::from(left) * LONGEST_WAIT.as_nanos()
    }

    /// Flow-controlled bytes that were never sent.
    pub fn flow_controlled(&self) -> usize {
        self.unsent[Kind::FlowControlled as usize]
    }

    /// Number of packets to be sent or retransmitted.
    pub fn waiting(&self) -> usize {
        self.lost.len() + (self.ring.end() - self.next) as usize + self.turns.len()
    }

    fn record(&mut self, slot: Slot) -> &mut Waiting {
        let mask = self.waiting.len() - 1;
        &mut self.waiting[slot as usize & mask]
    }

    fn flight(&mut self, slot: Slot) -> &mut Flight {
        let mask = self.flights.len() - 1;
        &mut self.flights[slot as usize & mask]
    }

    /// Slot of the next packet to send that has a number: lost packets come before those that a
    /// neighbour lost with its state.
    fn candidate(&mut self) -> Option<Slot> {
        while let Some(&Reverse(slot)) = self.lost.peek() {
            if slot >= self.first && self.flight(slot).state == State::Lost {
                return Some(slot);
            }
            self.lost.pop();
        }
        (self.next < self.ring.end()).then_some(self.next)
    }

    /// Bytes of the next frame, if window and pace permit it.
    pub fn head(&mut self, now: Time) -> Option<usize> {
        let Some((len, cost)) = self.next_packet() else {
            self.probe = false;
            return None;
        };
        let fits = self.in_flight == 0 || self.in_flight + cost <= self.control.size();
        self.paced_until = Time::NEVER;
        if !self.probe {
            if !fits {
                self.control.hold_back();
                return None;
            }
            if !self.pacer.is_ready(now) {
                self.control.hold_back();
                self.paced_until = self.pacer.next();
                return None;
            }
        }
        Some(len)
    }

    /// Bytes of the next packet's frame, and of the window that it takes.
    fn next_packet(&mut self) -> Option<(usize, u64)> {
        if let Some(slot) = self.candidate() {
            let (_, frame) = self.ring.get(slot)?;
            let len = frame.len();
            return Some((len, self.flight(slot).cost.into()));
        }
        let (_, frame) = self.queue.get(self.turns.next()?)?;
        let len = frame.len();
        self.ring.has_room(len).then_some((len, (len + OVERHEAD) as u64))
    }

    /// Gives the packet whose turn it is a number.
    fn number(&mut self) -> Option<Slot> {
        let queued = self.turns.pop()?;
        let &mut Waiting { kind, flow, .. } = self.record(queued);
        let slot = self.ring.take(&mut self.queue, queued)?;
        let cost = self.ring.get(slot).map_or(0, |(_, frame)| (frame.len() + OVERHEAD) as u32);
        *self.flight(slot) = Flight { kind, flow, cost, ..Flight::default() };
        Some(slot)
    }

    /// Writes the head into `out`; true if it is a retransmission. `measured` is the link's round
    /// trip, zero while it is unknown.
    pub fn pop(&mut self, now: Time, measured: Duration, out: &mut [u8]) -> bool {
        let Some(slot) = self.candidate().or_else(|| self.number()) else { return false };
        let Some((entry, frame)) = self.ring.get(slot) else { return false };
        let retransmitted = slot < self.next;
        let mut flags = frame.get(DATA_HEADER - 1).copied().unwrap_or_default();
        // Flow-controlled packets are not counted: their senders have been slowed down already.
        // Nor are those that wait until the window has found its size again.
        let counts = !retransmitted && entry.since < Time::NEVER && !self.control.is_returning();
        let rtt = self.control.rtt().shortest().unwrap_or_default();
        let flow = self.flights[slot as usize & (self.flights.len() - 1)].flow;
        if counts && self.reds[usize::from(flow)].marks(now.since(entry.since), rtt) {
            flags |= MARKED;
        }
        entry.write(frame, out, (slot - self.base) as u16, self.epoch | flags, retransmitted);
        if retransmitted {
            self.lost.pop();
        } else {
            let len = frame.len();
            self.next += 1;
            let kind = self.flight(slot).kind;
            self.unsent[kind as usize] = self.unsent[kind as usize].saturating_sub(len);
        }
        self.control.presume_round_trip(measured);
        let timeout = self.control.rtt().timeout().max(ACK_DELAY * 40);
        if self.in_flight == 0 && now.since(self.active) > timeout {
            self.control.on_idle();
        }
        if self.in_flight == 0 {
            // Nothing is in flight in vain: this packet gets its full timeout.
            self.is_hastened = false;
        }
        self.transmissions += 1;
        let transmission = self.transmissions;
        let flight = self.flight(slot);
        flight.retransmitted = retransmitted;
        (flight.state, flight.transmission, flight.sent_at) = (State::InFlight, transmission, now);
        let cost = flight.cost as usize;
        self.in_flight += cost as u64;
        if self.order.len() == self.order.capacity() {
            self.forget_transmissions();
        }
        self.order.push_back((slot, transmission));
        self.pacer.spend_time(now, self.control.pace(cost));
        (self.active, self.last_sent, self.probe) = (now, now, false);
        retransmitted
    }

    /// Discards void transmissions; at most one per packet remains.
    fn forget_transmissions(&mut self) {
        let (first, flights) = (self.first, &self.flights);
        let mask = flights.len() - 1;
        self.order.retain(|&(slot, transmission)| {
            let flight = &flights[slot as usize & mask];
            slot >= first && flight.state == State::InFlight && flight.transmission == transmission
        });
    }

    /// Handles an acknowledgement that arrived at `at`, looking at no more than `allowance`
    /// packets; an error if it acknowledges packets that were never sent.
    pub fn on_ack(
        &mut self,
        at: Time,
        ack: SelectiveAck<'_>,
        allowance: &mut usize,
    ) -> Result<(), DropReason> {
        let head = ack.head;
        if head.sender != self.own {
            return Err(DropReason::Stale);
        }
        if *self.instance.get_or_insert(head.instance) != head.instance {
            // The neighbour has restarted and has lost its state.
            self.begin_anew();
            self.instance = Some(head.instance);
            return Ok(());
        }
        if head.epoch != self.epoch {
            return Err(DropReason::Stale);
        }
        let base = self.base;
        let near = |slot: Slot, wire: u16| base + extend(slot - base, wire);
        let upto = near(self.first, head.next);
        let latest = near(self.first, head.latest);
        if upto > self.next || latest >= self.next {
            return Err(DropReason::Malformed);
        }
        let before = self.in_flight;
        self.measure(at, latest, head.delay);
        let mut acknowledged = 0;
        for slot in self.first..upto {
            acknowledged += self.acknowledge(at, slot);
        }
        if upto > self.first {
            self.ring.release(upto - 1);
            self.first = upto;
        }
        let mut end = upto;
        for range in ack.ranges() {
            let first = near(end, range.first);
            let last = first + u64::from(range.count);
            if first < end || last > self.next {
                // A reordered acknowledgement of packets that have been released since.
                continue;
            }
            end = last;
            acknowledged += self.acknowledge_range(at, first, last, allowance);
        }
        if acknowledged > 0 {
            self.active = at;
            self.control.yield_to_calls(at, self.yields, self.in_flight);
            self.control.on_progress(at, self.first, acknowledged, before);
        }
        self.find_lost(at);
        // Packets that have arrived after all no longer wait.
        self.candidate();
        Ok(())
    }

    /// Takes a round-trip sample from `latest`, the packet that arrived last at the neighbour,
    /// `delay` ago, if it gives a valid one.
    fn measure(&mut self, at: Time, latest: Slot, delay: Duration) {
        if latest < self.first || delay >= MAX_ACK_DELAY {
            return;
        }
        let flight = *self.flight(latest);
        // A packet that was taken for lost but not retransmitted gives a sample, too: where all
        // packets take longer than the timer, there is no other.
        let is_new = matches!(flight.state, State::InFlight | State::Lost);
        let rtt = at.since(flight.sent_at).saturating_sub(delay);
        // A sample longer than any timeout is ignored, as this node must have been stalled: packets
        // paced by it would wait for minutes.
        let is_plausible = rtt <= LONGEST_TIMEOUT + ACK_DELAY;
        // Karn's algorithm: after a retransmission it is unknown which transmission arrived.
        if is_new && !flight.retransmitted && is_plausible {
            self.control.on_round_trip(rtt);
        }
    }

    /// Marks the packets of a range as acknowledged, skipping those that already are.
    fn acknowledge_range(
        &mut self,
        at: Time,
        first: Slot,
        end: Slot,
        allowance: &mut usize,
    ) -> u64 {
        let (mut acknowledged, mut slot) = (0, first.max(self.first));
        let begin = slot;
        while slot < end {
            let Some(rest) = allowance.checked_sub(1) else { break };
            *allowance = rest;
            acknowledged += self.acknowledge(at, slot);
            slot = self.flight(slot).acknowledged_to.clamp(slot + 1, end);
        }
        if begin < slot {
            self.flight(begin).acknowledged_to = slot;
        }
        acknowledged
    }

    /// Marks one packet, which was sent, as acknowledged; returns the bytes that have left the
    /// network.
    fn acknowledge(&mut self, at: Time, slot: Slot) -> u64 {
        let flight = self.flight(slot);
        let Flight { state, cost, transmission, sent_at, retransmitted, .. } = *flight;
        if state == State::Acknowledged {
            return 0;
        }
        (flight.state, flight.acknowledged_to) = (State::Acknowledged, slot + 1);
        if state == State::InFlight {
            self.in_flight = self.in_flight.saturating_sub(cost.into());
        }
        // A packet that was retransmitted only just now arrived by its earlier transmission, which
        // shows nothing about the later one.
        let shortest = self.control.rtt().shortest().unwrap_or_default();
        let is_repetition = !retransmitted || at.since(sent_at) >= shortest;
        if is_repetition && transmission > self.newest.0 {
            self.newest = (transmission, sent_at);
        }
        if !retransmitted {
            self.highest = self.highest.max(slot);
        }
        cost.into()
    }

    /// How late a packet may arrive because of reordering.
    fn reordering(&self) -> Duration {
        self.control.rtt().shortest().unwrap_or_default() / 4
    }

    /// Declares packets lost that were sent before one that has arrived, and that should have
    /// arrived too (RFC 8985, section 6.2).
    fn find_lost(&mut self, now: Time) {
        self.loss_at = Time::NEVER;
        let reordering = self.reordering();
        let rtt = self.control.rtt().latest().unwrap_or_default();
        let mut lost = None;
        while let Some(&(slot, transmission)) = self.order.front() {
            let highest = self.highest;
            let flight = *self.flight(slot);
            let current = slot >= self.first
                && flight.state == State::InFlight
                && flight.transmission == transmission;
            if current {
                if transmission >= self.newest.0 {
                    break;
                }
                let due = flight.sent_at + rtt + reordering;
                let overtaken = !flight.retransmitted && slot + REORDER <= highest;
                if !overtaken && now < due {
                    self.loss_at = due;
                    break;
                }
                self.lose(slot);
                lost = lost.max(Some(transmission));
            }
            self.order.pop_front();
        }
        if let Some(transmission) = lost {
            self.control.on_loss(transmission, self.extent());
        }
    }

    fn extent(&self) -> Extent {
        Extent { next: self.next, transmissions: self.transmissions }
    }

    fn lose(&mut self, slot: Slot) {
        let flight = self.flight(slot);
        flight.state = State::Lost;
        let cost = u64::from(flight.cost);
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.lost.push(Reverse(slot));
    }

    /// When a probe is sent, or all missing packets count as lost.
    fn timeout_at(&self) -> Time {
        if self.in_flight == 0 && self.lost.is_empty() {
            return Time::NEVER;
        }
        if self.is_hastened && self.control.timeouts() > 1 {
            return self.active;
        }
        let smoothed = self.control.rtt().smoothed();
        let timeout = self.control.rtt().timeout();
        let (since, wait) = match (self.control.timeouts(), smoothed) {
            // A probe after two round trips detects a lost tail (RFC 8985, section 7.2). The last
            // arrival confirms everything sent up to a round trip before it.
            (0, Some(rtt)) => (self.last_sent.max(self.active - rtt), timeout.max(2 * rtt)),
            (n, _) => (self.active, timeout * (1 << n.saturating_sub(1).min(10))),
        };
        since + wait.min(LONGEST_TIMEOUT) + ACK_DELAY
    }

    pub fn next_timeout(&self) -> Time {
        self.timeout_at().min(self.loss_at).min(self.paced_until)
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if self.paced_until <= now {
            self.paced_until = Time::NEVER;
        }
        if self.loss_at <= now {
            self.find_lost(now);
        }
        if self.timeout_at() <= now {
            self.expire(now);
        }
    }

    /// The link is up again: if the timer has backed off, packets that were sent in vain are
    /// retransmitted at once.
    pub fn expedite(&mut self) {
        self.is_hastened = self.control.timeouts() > 1;
        // It backs off again, but the window is not reduced a second time.
        self.control.ease_backoff(2);
    }

    fn expire(&mut self, now: Time) {
        let waits = self.candidate().is_some() || self.turns.len() > 0;
        if self.in_flight == 0 && !waits {
            return;
        }
        let timeouts = self.control.expire();
        (self.active, self.probe, self.is_hastened) = (now, true, false);
        let in_flight = |s: &mut Sender, slot: Slot| s.flight(slot).state == State::InFlight;
        if timeouts == 1 {
            // The tail: retransmitting its last packet reveals any gap before it, unless a
            // retransmission that is already queued does.
            let last = (self.first..self.next).rev().find(|&slot| in_flight(self, slot));
            if let Some(slot) = last.filter(|_| self.lost.is_empty()) {
                self.lose(slot);
            }
            return;
        }
        for slot in self.first..self.next {
            if in_flight(self, slot) {
                self.lose(slot);
            }
        }
        self.order.clear();
        self.loss_at = Time::NEVER;
        self.control.on_timeout(self.extent());
    }

    /// The neighbour has no record of any packet sent: all of them are sent again, numbered in a
    /// new epoch.
    pub fn begin_anew(&mut self) {
        self.instance = None;
        if self.next == self.base {
            return;
        }
        self.epoch = self.epoch.wrapping_add(1) & EPOCH;
        for slot in self.first..self.next {
            let Flight { kind, flow, cost, .. } = *self.flight(slot);
            *self.flight(slot) = Flight { kind, flow, cost, ..Flight::default() };
            self.unsent[kind as usize] += (cost as usize).saturating_sub(OVERHEAD);
        }
        (self.base, self.next, self.highest) = (self.first, self.first, self.first);
        self.in_flight = 0;
        (self.loss_at, self.paced_until) = (Time::NEVER, Time::NEVER);
        self.lost.clear();
        self.order.clear();
        self.control.begin_anew();
    }

    /// Bytes that may be in flight, and bytes that are.
    #[cfg(test)]
    pub fn flight_size(&self) -> (u64, u64) {
        (self.control.size(), self.in_flight)
    }
}
