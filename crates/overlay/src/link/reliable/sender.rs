//! The sending half: keeps packets until they are acknowledged, and repeats what is lost.

use super::red::{HIGH, NEAR, Red};
use super::{ACK_DELAY, Config, EPOCH, MAX_AHEAD};
use crate::counters::DropReason;
use crate::link::Packet;
use crate::link::packet::MARKED;
use crate::link::ring::{PacketRing, Slot};
use crate::wire::{DATA_HEADER, ENVELOPE_OVERHEAD, MAX_ACK_DELAY, MAX_HOPS, SelectiveAck};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};
use trunkline_base::{Pacer, Time, extend};
use trunkline_rate::window::{self, Control, Extent};

/// IPv4's and UDP's headers, and the envelope's: they count in the window.
const OVERHEAD: usize = 28 + ENVELOPE_OVERHEAD;

/// How far the pace may be run ahead of, so that the timer's grain doesn't cost
/// throughput.
const PACING_BURST: Duration = Duration::from_millis(1);

/// The longest that a sender waits before it tries again, on a link that is down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);

/// How much of this node's streams may wait here: what the window carries in this time, which is
/// longer than a queue that is marked, and as much longer on a link of a longer round trip.
const LOCAL_QUEUE: Duration = HIGH.saturating_add(NEAR);

/// No more packets of other nodes' streams are added to those that wait, once one has waited for
/// so long and a new one would wait for this long, by the rate at which packets left meanwhile.
/// They are repeated from end to end after 5 s, which has to be enough for other queues and the
/// way back too: otherwise copies fill the queue.
const WAITED: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Bytes that may wait in any case.
const MIN_QUEUE: usize = 32 << 10;

/// A round trip below which a shorter one makes no difference.
const SHORTEST_RTT: Duration = Duration::from_millis(1);

/// Later packets that must have come before one is taken for lost at once, without
/// waiting for what reordering may explain (RFC 8985, section 6.2).
const REORDER: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Unsent,
    InFlight,
    Lost,
    Acknowledged,
}

/// What bounds how many such packets wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    /// Nothing but the size of the ring does.
    #[default]
    Other,
    /// [`Sender::has_room_for_own`] does: it belongs to a stream that ends at this node.
    OwnStream,
    /// [`Sender::flow_controlled`] does: its application waits for room.
    FlowControlled,
}

/// What is known of the packet in a slot of the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    state: State,
    retransmitted: bool,
    kind: Kind,
    /// How many bytes had been sent for the first time when it came.
    sent_before: u64,
    /// Bytes that it has in the window.
    cost: u32,
    /// Which of all transmissions was its last, and when that was.
    transmission: u64,
    sent_at: Time,
    /// Of an acknowledged one: all up to this one, exclusive, are too.
    acknowledged_to: Slot,
}

/// Packets of one link that wait to be sent, or to be acknowledged.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: PacketRing,
    /// By slot. Numbers are slots, counted from `base`.
    flights: Box<[Flight]>,
    base: Slot,
    epoch: u8,
    /// Which start of this node it is.
    own: u16,
    /// Which start of the neighbour acknowledges this epoch.
    instance: Option<u16>,
    /// The first that is not acknowledged, and the first that was never sent.
    first: Slot,
    next: Slot,
    /// Bytes that were never sent, by their [`Kind`].
    unsent: [usize; 3],
    /// Bytes that were sent for the first time.
    sent: u64,
    /// What is to be repeated, the first of it next: streams wait for that. Some may have been
    /// acknowledged since.
    lost: BinaryHeap<Reverse<Slot>>,
    /// Transmissions in their order; of a packet that was repeated since, or has come,
    /// they mean nothing any more.
    order: VecDeque<(Slot, u64)>,
    transmissions: u64,
    red: Red,
    control: Control,
    pacer: Pacer,
    in_flight: u64,
    /// The latest transmission that has come: its number, when it was sent, and how many
    /// came that were sent for the first time and later than what is missing.
    newest: (u64, Time),
    highest: Slot,
    /// When what is missing counts as lost though nothing else comes.
    loss_at: Time,
    /// When something was sent or came last, or the timer expired.
    active: Time,
    last_sent: Time,
    /// Whether the timer, which has backed off, is to expire at once.
    is_hastened: bool,
    /// One packet may leave whatever the window says.
    probe: bool,
    /// Until when the pace held back the head, when it was asked last.
    paced_until: Time,
}

impl Sender {
    /// For a link whose largest IP packets have `mtu` bytes.
    pub fn new(config: &Config, mtu: usize) -> Sender {
        let packets = config.packets.clamp(1, MAX_AHEAD as usize).next_power_of_two();
        let mut window = window::Config::new(mtu);
        window.algorithm = config.algorithm;
        Sender {
            ring: PacketRing::new(config.bytes, packets),
            flights: vec![Flight::default(); packets].into(),
            base: 0,
            epoch: 0,
            own: 0,
            instance: None,
            first: 0,
            next: 0,
            unsent: [0; 3],
            sent: 0,
            lost: BinaryHeap::with_capacity(packets),
            order: VecDeque::with_capacity(2 * packets),
            transmissions: 0,
            red: Red::default(),
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
        }
    }

    /// This node has started, and this tells the start from others.
    pub fn begin(&mut self, own: u16) {
        self.own = own;
    }

    /// Takes a packet, unless there is no room: what is kept displaces nothing.
    pub fn enqueue(&mut self, since: Time, packet: &Packet<'_>) -> Result<(), DropReason> {
        let len = packet.frame_len();
        if !self.ring.has_room(len) {
            return Err(DropReason::QueueFull);
        }
        let kind = match (packet.is_of_stream(), packet.hop_limit == MAX_HOPS - 1) {
            (true, true) => Kind::OwnStream,
            (true, false) if self.is_behind(since) => return Err(DropReason::QueueFull),
            (false, _) if since == Time::NEVER => Kind::FlowControlled,
            _ => Kind::Other,
        };
        let slot = self.ring.keep(since, packet, packet.deadline)?;
        let (cost, sent_before) = ((len + OVERHEAD) as u32, self.sent);
        *self.flight(slot) = Flight { kind, cost, sent_before, ..Flight::default() };
        self.unsent[kind as usize] += len;
        Ok(())
    }

    pub fn has_room(&self, len: usize) -> bool {
        self.ring.has_room(len)
    }

    /// Whether a frame of `len` bytes of a stream of this node finds room. Those wait in their
    /// stream rather than here: what this link cannot carry soon would only be repeated in vain.
    /// One with `data` leaves room for those without, which many streams shouldn't hold up.
    pub fn has_room_for_own(&self, len: usize, data: bool) -> bool {
        let nanos = |span: Duration| span.as_nanos() as u64;
        let rtt = self.control.rtt();
        let (shortest, smoothed) = (rtt.shortest(), rtt.smoothed().map(|r| r.max(SHORTEST_RTT)));
        let span = nanos(LOCAL_QUEUE) * nanos(shortest.unwrap_or(NEAR).max(NEAR)) / nanos(NEAR);
        let soon = smoothed.map_or(0, |r| self.control.size().saturating_mul(span) / nanos(r));
        // The other half is for what comes from elsewhere.
        let own = (soon as usize).max(MIN_QUEUE).min(self.ring.size() / 2);
        let own = if data { own } else { own + MIN_QUEUE };
        self.ring.has_room(len) && self.unsent[Kind::OwnStream as usize] < own
    }

    /// Whether a packet that comes now would wait for too long.
    fn is_behind(&mut self, now: Time) -> bool {
        let first = self.ring.get(self.next).map_or(now, |(entry, _)| entry.since);
        let (waited, unsent) = (now.since(first), self.unsent.iter().sum::<usize>());
        if waited <= WAITED || unsent <= MIN_QUEUE {
            return false;
        }
        let left = (self.sent - self.flight(self.next).sent_before).max(1);
        unsent as u128 * waited.as_nanos() > u128::from(left) * LONGEST_WAIT.as_nanos()
    }

    /// Bytes that were never sent, of applications that wait for room.
    pub fn flow_controlled(&self) -> usize {
        self.unsent[Kind::FlowControlled as usize]
    }

    /// How many packets are to be sent, or sent again.
    pub fn waiting(&self) -> usize {
        self.lost.len() + (self.ring.end() - self.next) as usize
    }

    fn flight(&mut self, slot: Slot) -> &mut Flight {
        let mask = self.flights.len() - 1;
        &mut self.flights[slot as usize & mask]
    }

    /// What goes next: what is lost before what is new.
    fn candidate(&mut self) -> Option<Slot> {
        while let Some(&Reverse(slot)) = self.lost.peek() {
            if slot >= self.first && self.flight(slot).state == State::Lost {
                return Some(slot);
            }
            self.lost.pop();
        }
        (self.next < self.ring.end()).then_some(self.next)
    }

    /// Bytes of the frame that goes next, if window and pace let it.
    pub fn head(&mut self, now: Time) -> Option<usize> {
        let Some(slot) = self.candidate() else {
            self.probe = false;
            return None;
        };
        let cost = u64::from(self.flight(slot).cost);
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
        self.ring.get(slot).map(|(_, frame)| frame.len())
    }

    /// Writes the head into `out`; true if it was sent before. `measured` is the link's
    /// round trip, zero while it is unknown.
    pub fn pop(&mut self, now: Time, measured: Duration, out: &mut [u8]) -> bool {
        let Some(slot) = self.candidate() else { return false };
        let Some((entry, frame)) = self.ring.get(slot) else { return false };
        let retransmitted = slot < self.next;
        let mut flags = frame.get(DATA_HEADER - 1).copied().unwrap_or_default();
        // What waited for room was held back already.
        let counts = !retransmitted && entry.since < Time::NEVER;
        let rtt = self.control.rtt().shortest().unwrap_or_default();
        if counts && self.red.marks(now.since(entry.since), rtt) {
            flags |= MARKED;
        }
        entry.write(frame, out, (slot - self.base) as u16, self.epoch | flags, retransmitted);
        if retransmitted {
            self.lost.pop();
        } else {
            let len = frame.len();
            self.next += 1;
            self.sent += len as u64;
            let kind = self.flight(slot).kind;
            self.unsent[kind as usize] = self.unsent[kind as usize].saturating_sub(len);
        }
        self.control.presume_round_trip(measured);
        let timeout = self.control.rtt().timeout().max(ACK_DELAY * 40);
        if self.in_flight == 0 && now.since(self.active) > timeout {
            self.control.on_idle();
        }
        if self.in_flight == 0 {
            // Nothing is under way in vain: this one has its time.
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

    /// Keeps those transmissions that still mean something: one for each packet at most.
    fn forget_transmissions(&mut self) {
        let (first, flights) = (self.first, &self.flights);
        let mask = flights.len() - 1;
        self.order.retain(|&(slot, transmission)| {
            let flight = &flights[slot as usize & mask];
            slot >= first && flight.state == State::InFlight && flight.transmission == transmission
        });
    }

    /// Takes an acknowledgement that came at `at`, looking at `allowance` packets at most;
    /// an error if it acknowledges what was never sent.
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
            // It has started anew, and knows of nothing.
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
                // A reordered acknowledgement of what has been released since.
                continue;
            }
            end = last;
            acknowledged += self.acknowledge_range(at, first, last, allowance);
        }
        if acknowledged > 0 {
            self.active = at;
            self.control.on_progress(at, self.first, acknowledged, before);
        }
        self.find_lost(at);
        // What has come after all waits no more.
        self.candidate();
        Ok(())
    }

    /// Takes a round trip from the packet that came last at the neighbour, `delay` ago, if that
    /// says how long one takes.
    fn measure(&mut self, at: Time, latest: Slot, delay: Duration) {
        if latest < self.first || delay >= MAX_ACK_DELAY {
            return;
        }
        let flight = *self.flight(latest);
        // One that was given up and not repeated has come, too: where all take longer than the
        // timer waits, no other says how long.
        let is_new = matches!(flight.state, State::InFlight | State::Lost);
        let rtt = at.since(flight.sent_at).saturating_sub(delay);
        // Nor is it one if it took longer than any timeout, as this node must have stood still:
        // packets paced by that would wait for minutes.
        let is_plausible = rtt <= LONGEST_TIMEOUT + ACK_DELAY;
        // Karn: of a repeated one nobody knows which transmission came.
        if is_new && !flight.retransmitted && is_plausible {
            self.control.on_round_trip(rtt);
        }
    }

    /// Marks the packets of a range, passing over those that are marked.
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

    /// Marks one packet, which was sent; the bytes that have left the network.
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
        // What was repeated just now came before: of the repetition nothing is known.
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

    /// How much later than in order something may come.
    fn reordering(&self) -> Duration {
        self.control.rtt().shortest().unwrap_or_default() / 4
    }

    /// Takes for lost what was sent before something that has come, and should have too
    /// (RFC 8985, section 6.2).
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

    /// When a probe leaves, or all that is missing counts as lost.
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
            // Twice the round trip finds out about the tail (RFC 8985, section 7.2). What
            // came last says that all is well with what was sent a round trip before.
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

    /// The link is up again: if the timer has backed off, what was sent in vain goes at once.
    pub fn expedite(&mut self) {
        self.is_hastened = self.control.timeouts() > 1;
        // It backs off anew, but the window isn't reduced again.
        self.control.ease_backoff(2);
    }

    fn expire(&mut self, now: Time) {
        let waits = self.candidate().is_some();
        if self.in_flight == 0 && !waits {
            return;
        }
        let timeouts = self.control.expire();
        (self.active, self.probe, self.is_hastened) = (now, true, false);
        let in_flight = |s: &mut Sender, slot: Slot| s.flight(slot).state == State::InFlight;
        if timeouts == 1 {
            // The tail: the last one shows what is missing before it, unless something that is
            // to be repeated does.
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

    /// The neighbour knows of nothing that was sent: all of it goes again, by numbers of a
    /// new epoch.
    pub fn begin_anew(&mut self) {
        self.instance = None;
        if self.next == self.base {
            return;
        }
        self.epoch = self.epoch.wrapping_add(1) & EPOCH;
        for slot in self.first..self.next {
            let Flight { kind, cost, sent_before, .. } = *self.flight(slot);
            *self.flight(slot) = Flight { kind, cost, sent_before, ..Flight::default() };
            self.unsent[kind as usize] += (cost as usize).saturating_sub(OVERHEAD);
        }
        (self.base, self.next, self.highest) = (self.first, self.first, self.first);
        self.in_flight = 0;
        (self.loss_at, self.paced_until) = (Time::NEVER, Time::NEVER);
        self.lost.clear();
        self.order.clear();
        self.control.begin_anew();
    }

    /// Bytes that may be under way, and that are.
    #[cfg(test)]
    pub fn flight_size(&self) -> (u64, u64) {
        (self.control.size(), self.in_flight)
    }
}
