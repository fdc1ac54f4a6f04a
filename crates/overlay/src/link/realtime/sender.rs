use super::budget::RecoveryBudget;
use super::policy::{Answer, Policy, Request};
use super::send_queue::{Job, SendQueue};
use super::{Config, MAX_GUESS};
use crate::counters::{DropReason, Drops};
use crate::link::fair_order::{FairOrder, Origin, Place};
use crate::link::ring::{Entry, PacketRing, Slot};
use crate::link::turns::{Assignment, SOURCES};
use crate::link::{OVERHEAD, Packet, is_stale, remaining_ms};
use crate::wire::{FlowHeader, NackRange};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;
use trunkline_base::{SeqTracker, Time, extend};

/// The sending half: keeps packets while they are useful, and sends originals and retransmissions
/// by deadline, as long as all of them can be in time. Where packets wait for too long, they go in an
/// order that is fair to their sources, whatever lifetimes they have.
#[derive(Debug)]
pub struct Sender {
    ring: PacketRing,
    /// Originals and retransmissions waiting to be sent.
    queue: SendQueue,
    fair: Fairness,
    /// The source whose turn each packet takes, indexed by the low bits of its slot.
    turns: Box<[u32]>,
    /// Where the bytes of its flow before each packet end, in the fair order, and its source's
    /// record there.
    starts: Box<[u64]>,
    sources: Box<[u16]>,
    /// Whether a copy whose time has come waits in the queue, indexed by the low bits of its slot.
    waits: Box<[bool]>,
    assignment: Assignment,
    /// Slot of each numbered packet, indexed by the low bits of its number.
    slots: Box<[Slot]>,
    next_seq: u64,
    budget: Budget,
    /// Further copies of retransmissions, and when each is due.
    copies: BinaryHeap<Reverse<(Time, Slot)>>,
    /// Budget that limits these copies.
    copy_budget: RecoveryBudget,
    max_wait: Duration,
    policy: Box<dyn Policy>,
}

/// Wait from which the queue is too long: that of a packet behind one of another service on a link
/// of 0.5 Mbit/s.
const CROWDED: Duration = Duration::from_millis(20);
/// Time without a long wait after which packets go by deadline again.
const CALM: Duration = Duration::from_millis(500);
/// Interval between searches for a second source while one alone has a long queue.
const SEARCH: Duration = Duration::from_millis(50);

/// The order in which packets leave: by deadline, or by the numbers of the fair order.
#[derive(Debug)]
struct Fairness {
    order: FairOrder,
    /// Whether the fair order is in use, and until when it is, if no packet waits for long.
    is_used: bool,
    until: Time,
    /// Since when there have been packets in the queue.
    busy_since: Time,
    /// Whether a packet has waited for too long and was dropped.
    has_expired: bool,
    next_search: Time,
}

/// Time of the last retransmission of a packet whose retransmission waits in the queue.
const WAITING: Time = Time::NEVER;
/// Maximum number of copies that wait for their time.
const MAX_COPIES: usize = 1_024;
/// Maximum number of copies that earlier losses can pay for.
const COPY_BURST: f64 = 32.0;
/// Maximum number of copies in addition to a retransmission.
const MAX_COPIES_EACH: u32 = 3;

impl Sender {
    pub(crate) fn new(config: &Config, secret: u64) -> Sender {
        let packets = config.packets.clamp(1, 1 << 15).next_power_of_two();
        Sender {
            ring: PacketRing::new(config.bytes, packets),
            queue: SendQueue::new(2 * packets),
            fair: Fairness {
                order: FairOrder::new(secret),
                is_used: false,
                until: Time::ZERO,
                busy_since: Time::ZERO,
                has_expired: false,
                next_search: Time::ZERO,
            },
            turns: vec![0; packets].into(),
            starts: vec![0; packets].into(),
            sources: vec![0; packets].into(),
            waits: vec![false; packets].into(),
            assignment: Assignment(secret),
            slots: vec![0; packets].into(),
            next_seq: 0,
            budget: Budget::new(config.retransmit_ratio, config.retransmit_burst),
            copies: BinaryHeap::with_capacity(MAX_COPIES),
            copy_budget: RecoveryBudget::new(config.recovery_budget, COPY_BURST),
            max_wait: config.max_wait,
            policy: config.recovery.policy(),
        }
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<(), DropReason> {
        if self.queue.is_full() {
            return Err(DropReason::QueueFull);
        }
        self.choose_order(now, packet);
        if self.fair.is_used {
            return self.enqueue_fairly(now, packet, latest);
        }
        let slot = self.keep(now, packet, latest)?;
        self.queue.push(packet.deadline.as_nanos(), slot, false);
        Ok(())
    }

    fn enqueue_fairly(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<(), DropReason> {
        let origin = self.check_wait(now, packet)?;
        let slot = self.keep(now, packet, latest)?;
        let number = self.place_fairly(self.index(slot), origin, packet.frame_len());
        self.queue.push(number, slot, false);
        Ok(())
    }

    #[inline]
    fn keep(&mut self, now: Time, packet: &Packet<'_>, latest: Time) -> Result<Slot, DropReason> {
        // This displaces the oldest packets; if one of them was still waiting, `head` finds it gone
        // and counts it.
        let slot = self.ring.keep(now, packet, latest)?;
        let index = self.index(slot);
        self.turns[index] = packet.turn;
        self.waits[index] = false;
        Ok(slot)
    }

    /// The place of a packet in the present order.
    fn key(&mut self, slot: Slot) -> u64 {
        let Some((entry, frame)) = self.ring.get(slot) else { return 0 };
        if !self.fair.is_used {
            return entry.deadline.as_nanos();
        }
        let (index, len) = (self.index(slot), frame.len());
        let origin = self.fair.order.find(self.turns[index], FlowHeader::ends_in(frame));
        self.place_fairly(index, origin, len)
    }

    fn place_fairly(&mut self, index: usize, origin: Origin, len: usize) -> u64 {
        let place = self.fair.order.place(origin, len + OVERHEAD);
        (self.starts[index], self.sources[index]) = (place.start, place.source);
        place.number
    }

    /// Begins to use the fair order where packets have waited for long as `packet` comes, and ends
    /// it where they have not for some time.
    fn choose_order(&mut self, now: Time, packet: &Packet<'_>) {
        if self.queue.is_empty() {
            self.fair.busy_since = now;
            // Where nothing waits, no source is behind another, and the bytes that leave say nothing
            // about the pace of the link.
            self.fair.order.restart(now);
        }
        if self.fair.is_used {
            if now >= self.fair.until {
                (self.fair.is_used, self.fair.has_expired) = (false, false);
                self.reorder();
                self.fair.order.end();
            }
            return;
        }
        let is_brief = now.since(self.fair.busy_since) < CROWDED && !self.fair.has_expired;
        if is_brief || now < self.fair.next_search || !self.is_crowded(now) {
            return;
        }
        self.fair.has_expired = false;
        self.fair.next_search = now + SEARCH;
        if self.has_others(packet) {
            (self.fair.is_used, self.fair.until) = (true, now + CALM);
            self.fair.order.restart(now);
            self.reorder();
        }
    }

    /// Whether packets of other flows wait. Those of one alone stay in the order of their deadlines.
    fn has_others(&self, packet: &Packet<'_>) -> bool {
        let ends = packet.flow.ends();
        let is_other = |frame: &[u8]| FlowHeader::ends_in(frame) != ends;
        self.queue.iter().any(|job| self.ring.get(job.slot).is_some_and(|(_, f)| is_other(f)))
    }

    /// Whether a packet in the queue has waited for long, or was displaced.
    fn is_crowded(&self, now: Time) -> bool {
        let is_old = |slot: Slot| match self.ring.get(slot) {
            Some((entry, _)) => now.since(entry.since) > CROWDED,
            None => true,
        };
        let mut fronts = self.queue.fronts().filter(|job| !job.is_retransmission());
        self.fair.has_expired || fronts.any(|job| is_old(job.slot))
    }

    fn reorder(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.reorder(self.fair.is_used, |job| self.key(job.slot));
        self.queue = queue;
    }

    /// Refuses a packet that would wait behind others of its source, or of its flow, until it is too
    /// late.
    fn check_wait(&mut self, now: Time, packet: &Packet<'_>) -> Result<Origin, DropReason> {
        let origin = self.fair.order.find(packet.turn, packet.flow.ends());
        let wait = self.fair.order.wait(&origin);
        let is_hopeless = wait > self.max_wait.min(packet.deadline.since(now));
        if is_hopeless || wait > CROWDED {
            self.fair.until = now + CALM;
        }
        if is_hopeless { Err(DropReason::SourceShare) } else { Ok(origin) }
    }

    /// Queues the retransmissions that `ranges` request, as far as they can still be in time over a
    /// link with round trip `rtt`; looks up at most `allowance` of them.
    pub(crate) fn retransmit(
        &mut self,
        now: Time,
        ranges: impl Iterator<Item = NackRange>,
        rtt: Duration,
        allowance: &mut usize,
        drops: &mut Drops,
    ) {
        // At this packet rate a requested packet left the ring while the request was under way; its
        // 16-bit number may have been reused.
        if self.ring.turned_over(now - rtt) {
            return drops.count(DropReason::RetransmitUnknown);
        }
        let numbers = ranges.flat_map(|r| (0..r.count).map(move |k| r.first.wrapping_add(k)));
        for seq in numbers {
            let Some(rest) = allowance.checked_sub(1) else { return };
            *allowance = rest;
            match self.retransmit_one(now, seq, rtt) {
                Ok(()) => {}
                // Those that follow may be of a source that has not used up its budget.
                Err(why) => drops.count(why),
            }
        }
    }

    fn retransmit_one(
        &mut self,
        now: Time,
        wire_seq: u16,
        rtt: Duration,
    ) -> Result<(), DropReason> {
        let last = self.next_seq.checked_sub(1).ok_or(DropReason::RetransmitUnknown)?;
        let seq = extend(last, wire_seq);
        // The neighbour's guess at the packets that come next.
        if seq > last && seq - last <= u64::from(MAX_GUESS) {
            return Ok(());
        }
        let slot = self.slots[self.place(seq)];
        let (entry, _) = self.ring.get(slot).ok_or(DropReason::RetransmitUnknown)?;
        if entry.sent.map(|(seq, _)| seq) != Some(seq) {
            return Err(DropReason::RetransmitUnknown);
        }
        let retransmitted = entry.retransmitted;
        let send_by = entry.latest - rtt / 2;
        if now >= send_by {
            return Err(DropReason::RetransmitLate);
        }
        // It or a copy waits for its turn, or the request was sent before the last retransmission
        // could have arrived.
        if retransmitted > Time::ZERO && now < retransmitted + rtt || self.waits[self.index(slot)] {
            return Ok(());
        }
        let Some(answer) = self.policy.answer(&Request { now, rtt, send_by }) else {
            return Ok(());
        };
        if self.queue.is_full() || !self.budget.spend(self.source(slot)) {
            return Err(DropReason::RetransmitBudget);
        }
        let key = self.key(slot);
        self.queue.push(key, slot, true);
        self.ring.mark_retransmitted(slot, WAITING);
        if retransmitted == Time::ZERO {
            self.copy_budget.lost(1, 1.0);
        }
        let within = answer.within.min(send_by.since(now));
        self.copy(now, Answer { within, ..answer }, slot);
        Ok(())
    }

    /// Schedules further copies of the packet in `slot`, with at most a quarter of the budget. Those
    /// for now leave together with the retransmission, when its turn comes.
    fn copy(&mut self, now: Time, Answer { copies, within }: Answer, slot: Slot) {
        let affordable = (self.copy_budget.left() as u32).div_ceil(4).min(MAX_COPIES_EACH);
        let copies = copies.min(affordable);
        for k in 1..=copies {
            if self.copies.len() < MAX_COPIES && self.copy_budget.spend(1.0) {
                match within * k / (copies + 1) {
                    Duration::ZERO => _ = self.queue_copy(slot),
                    after => self.copies.push(Reverse((now + after, slot))),
                }
            }
        }
    }

    /// Queues a copy if there is room and budget, and says whether it did.
    fn queue_copy(&mut self, slot: Slot) -> bool {
        let may = !self.queue.is_full() && self.budget.spend(self.source(slot));
        if may {
            let key = self.key(slot);
            self.queue.push(key, slot, true);
        }
        may
    }

    /// Queues the copies that are due, unless an earlier one still waits.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some(&Reverse((at, slot))) = self.copies.peek()
            && at <= now
        {
            self.copies.pop();
            let index = self.index(slot);
            let waits = |entry: &Entry| entry.retransmitted == WAITING || self.waits[index];
            if self.ring.get(slot).is_some_and(|(entry, _)| !waits(entry)) {
                self.waits[index] = self.queue_copy(slot);
            }
        }
    }

    /// When [`Sender::handle_timeout`] must be called next.
    pub(crate) fn next_timeout(&self) -> Time {
        self.copies.peek().map_or(Time::NEVER, |&Reverse((at, _))| at)
    }

    /// Index of the packet in `slot`; the ring's size is a power of two.
    fn index(&self, slot: Slot) -> usize {
        slot as usize & (self.turns.len() - 1)
    }

    /// The hash of a packet's source.
    fn source(&self, slot: Slot) -> usize {
        self.assignment.source(self.turns[self.index(slot)])
    }

    /// Index of packet `seq` in `slots`; their number is a power of two.
    fn place(&self, seq: u64) -> usize {
        seq as usize & (self.slots.len() - 1)
    }

    /// Bytes of the next frame, in envelope `count`, after dropping packets that have waited too
    /// long, and those that the receiver could no longer tell from another packet
    /// ([`SeqTracker::REACH`]).
    pub(crate) fn head(
        &mut self,
        now: Time,
        count: u64,
        one_way: Duration,
        drops: &mut Drops,
    ) -> Option<usize> {
        loop {
            let job = self.queue.first()?;
            let verdict = match self.ring.get(job.slot) {
                None if job.is_retransmission() => Err(DropReason::RetransmitUnknown),
                None => Err(DropReason::QueueFull),
                Some((entry, _)) if job.is_retransmission() && now + one_way >= entry.latest => {
                    Err(DropReason::RetransmitLate)
                }
                Some((entry, _)) if entry.sent.is_some_and(|(_, c)| is_beyond(c, count)) => {
                    Err(DropReason::RetransmitUnknown)
                }
                Some((entry, _))
                    if !job.is_retransmission() && now.since(entry.since) > self.max_wait =>
                {
                    Err(DropReason::QueueDelay)
                }
                Some((entry, _))
                    if !job.is_retransmission() && is_stale(now, entry.since, entry.deadline) =>
                {
                    Err(DropReason::Late)
                }
                Some((_, frame)) => Ok(frame.len()),
            };
            match verdict {
                Ok(len) => return Some(len),
                Err(why) => {
                    drops.count(why);
                    self.fair.has_expired = true;
                    self.fair.until = now + CALM;
                    if let Some(job) = self.queue.pop() {
                        self.no_copy_waits(job);
                    }
                }
            }
        }
    }

    /// Writes the head into `out`, for envelope `count`; true if it is a retransmission.
    pub(crate) fn pop(&mut self, now: Time, count: u64, out: &mut [u8]) -> bool {
        let Some(job) = self.queue.pop() else { return false };
        self.no_copy_waits(job);
        let Some((entry, frame)) = self.ring.get(job.slot) else { return false };
        let seq = entry.sent.map_or(self.next_seq, |(seq, _)| seq);
        if self.fair.is_used {
            let index = self.index(job.slot);
            let (start, source) = (self.starts[index], self.sources[index]);
            let place = Place { number: job.key, start, source };
            self.fair.order.leaves(now, self.turns[index], place);
        }
        entry.write(
            frame,
            out,
            seq as u16,
            remaining_ms(now, entry.deadline),
            job.is_retransmission(),
        );
        if entry.retransmitted == WAITING {
            self.ring.mark_retransmitted(job.slot, now);
        }
        if !job.is_retransmission() {
            self.ring.mark_sent(job.slot, seq, count);
            let place = self.place(seq);
            self.slots[place] = job.slot;
            self.next_seq += 1;
            if !self.budget.is_full() {
                self.budget.earn(self.source(job.slot));
            }
            self.copy_budget.packet();
        }
        job.is_retransmission()
    }

    /// Notes that a job has left the queue. Its slot may belong to another packet by now, of which a
    /// copy more may be queued: no harm.
    fn no_copy_waits(&mut self, job: Job) {
        let index = self.index(job.slot);
        self.waits[index] &= !job.is_retransmission();
    }

    /// Deadline of the next packet to be sent; never if there is none.
    pub(crate) fn deadline(&self) -> Time {
        let Some(job) = self.queue.first() else { return Time::NEVER };
        match self.fair.is_used {
            true => self.ring.get(job.slot).map_or(Time::ZERO, |(entry, _)| entry.deadline),
            false => Time::from_nanos(job.key),
        }
    }

    /// Number of packets that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// Whether envelope `count` is too far after the original's envelope.
fn is_beyond(original: u64, count: u64) -> bool {
    count.saturating_sub(original) > SeqTracker::REACH
}

/// Token bucket that limits retransmissions to a share of originals, in millionths of a packet. Its
/// last fifth is for sources with fewer retransmissions than their own originals have earned.
#[derive(Debug)]
struct Budget {
    share: u64,
    tokens: u64,
    cap: u64,
    reserve: u64,
    /// Unused earnings of each source since the bucket was last full.
    earned: Box<[u32; SOURCES]>,
}

const WHOLE: u64 = 1_000_000;
/// Most that a source may have earned and not used: 32 packets.
const MOST_EARNED: u64 = 32 * WHOLE;

impl Budget {
    fn new(share: f64, burst: u32) -> Budget {
        let reserve = u64::from(burst / 4) * WHOLE;
        let cap = u64::from(burst) * WHOLE + reserve;
        let share = (share.clamp(0.0, 1.0) * WHOLE as f64) as u64;
        Budget { share, tokens: cap, cap, reserve, earned: Box::new([0; SOURCES]) }
    }

    /// Whether nothing is to be earned.
    fn is_full(&self) -> bool {
        self.tokens >= self.cap
    }

    /// Counts an original of a source.
    fn earn(&mut self, source: usize) {
        self.tokens = (self.tokens + self.share).min(self.cap);
        let earned = &mut self.earned[source];
        *earned = (u64::from(*earned) + self.share).min(MOST_EARNED) as u32;
    }

    /// Pays for a retransmission of a packet of a source.
    fn spend(&mut self, source: usize) -> bool {
        let earned = &mut self.earned[source];
        let kept = if u64::from(*earned) < WHOLE { self.reserve } else { 0 };
        let is_enough = self.tokens >= WHOLE + kept;
        if is_enough {
            self.tokens -= WHOLE;
            *earned = earned.saturating_sub(WHOLE as u32);
        }
        is_enough
    }
}

#[cfg(test)]
mod tests;
