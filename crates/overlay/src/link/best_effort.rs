//! The best-effort service: each packet is sent once, in the turn of its source and flow.

use super::pool::PacketPool;
use super::ring::Slot;
use super::service::{Class, LinkContext, LinkService, Sent};
use super::turns::Turns;
use super::{OVERHEAD, Packet, remaining_ms};
use crate::counters::{DropReason, Drops};
use crate::wire::FlowHeader;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;

/// Bounds of the best-effort queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of packets that may wait.
    pub bytes: usize,
    /// Packets that may wait.
    pub packets: usize,
    /// Time that a packet may wait before it is dropped.
    pub max_wait: Duration,
}

impl Default for Config {
    /// 1 MiB and 4,096 packets absorb a burst of a thousand calls. Beyond 200 ms of waiting a queue
    /// only adds delay.
    fn default() -> Config {
        Config { bytes: 1 << 20, packets: 4_096, max_wait: Duration::from_millis(200) }
    }
}

/// Packets wait without turns for this long, and as many as this: turns make no difference to what
/// leaves in the batch in which it came.
const BRIEF: Duration = Duration::from_millis(1);
const BRIEF_PACKETS: usize = 128;

/// A packet that waits briefly: its source's number, flow, slot and length.
type Brief = (u32, FlowHeader, Slot, usize);

/// Packets of one link that wait to be sent.
#[derive(Debug)]
pub struct Queue {
    pool: PacketPool,
    turns: Turns,
    /// Packets in the order of their arrival, as long as none has turns.
    brief: VecDeque<Brief>,
    max_wait: Duration,
    next_seq: u16,
    /// Bytes of flow-controlled packets: their senders wait for room rather than lose any, so these
    /// packets may wait without limit.
    flow_controlled: usize,
}

impl Queue {
    pub(super) fn new(config: &super::Config, secret: u64) -> Queue {
        let config = &config.best_effort;
        Queue {
            pool: PacketPool::new(config.bytes, config.packets),
            turns: Turns::new(config.bytes, config.packets, secret),
            brief: VecDeque::with_capacity(BRIEF_PACKETS),
            max_wait: config.max_wait,
            next_seq: 0,
            flow_controlled: 0,
        }
    }

    /// Whether a packet that arrives at `since` needs no turn.
    fn is_brief(&self, since: Time) -> bool {
        let first = self.brief.front().and_then(|&(_, _, slot, _)| self.pool.get(slot));
        let waited = first.map_or(Duration::ZERO, |(entry, _)| since.since(entry.since));
        since < Time::NEVER
            && self.turns.len() == 0
            && self.brief.len() < BRIEF_PACKETS
            && waited < BRIEF
    }

    /// Gives all packets their turns if the first one has waited for longer than briefly.
    #[inline]
    fn settle(&mut self, now: Time) {
        let Some(&(_, _, slot, _)) = self.brief.front() else { return };
        if self.pool.get(slot).is_none_or(|(entry, _)| now.since(entry.since) >= BRIEF) {
            self.give_turns();
        }
    }

    fn give_turns(&mut self) {
        for (turn, flow, slot, len) in self.brief.drain(..) {
            let place = self.turns.find(turn, &flow);
            self.turns.push(place, slot, len + OVERHEAD, false);
        }
    }

    /// The slot of the next packet. Calling it again changes nothing.
    #[inline]
    fn next(&mut self) -> Option<Slot> {
        match self.brief.front() {
            Some(&(_, _, slot, _)) => Some(slot),
            None => self.turns.next(),
        }
    }

    /// Takes the next packet out of the order.
    #[inline]
    fn take(&mut self) -> Option<Slot> {
        match self.brief.pop_front() {
            Some((_, _, slot, _)) => Some(slot),
            None => self.turns.pop(),
        }
    }
}

impl LinkService for Queue {
    fn class(&self) -> Class {
        Class::Shared
    }

    fn enqueue(
        &mut self,
        since: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<(), DropReason> {
        let (len, blocks) = (packet.frame_len(), since == Time::NEVER);
        // Flow-controlled packets have a bound of their own.
        if self.is_brief(since) {
            let slot = self.pool.keep(since, packet, latest)?;
            self.brief.push_back((packet.turn, packet.flow, slot, len));
            return Ok(());
        }
        self.give_turns();
        let place = self.turns.find(packet.turn, &packet.flow);
        let is_admitted = blocks || self.turns.admits(&place, len + OVERHEAD);
        if !is_admitted || !self.pool.has_room(len) {
            return Err(DropReason::QueueFull);
        }
        let slot = self.pool.keep(since, packet, latest)?;
        self.turns.push(place, slot, len + OVERHEAD, false);
        self.flow_controlled += if blocks { len } else { 0 };
        Ok(())
    }

    fn flow_controlled(&self, len: usize) -> Option<usize> {
        self.pool.has_room(len).then_some(self.flow_controlled)
    }

    fn waiting(&self) -> usize {
        self.turns.len() + self.brief.len()
    }

    /// Bytes of the next frame, after dropping packets that have waited too long.
    #[inline]
    fn head(&mut self, moment: &LinkContext, drops: &mut Drops) -> Option<usize> {
        self.settle(moment.now);
        loop {
            let slot = self.next()?;
            let (entry, frame) = self.pool.get(slot)?;
            if moment.now.since(entry.since) <= self.max_wait {
                return Some(frame.len());
            }
            drops.count(DropReason::QueueDelay);
            self.take();
            self.pool.remove(slot);
        }
    }

    #[inline]
    fn pop(&mut self, moment: &LinkContext, out: &mut [u8]) -> Sent {
        if let Some(slot) = self.take()
            && let Some((entry, frame)) = self.pool.get(slot)
        {
            let remaining = remaining_ms(moment.now, entry.deadline);
            entry.write(frame, out, self.next_seq, remaining, false);
            if entry.since == Time::NEVER {
                self.flow_controlled = self.flow_controlled.saturating_sub(frame.len());
            }
            self.next_seq = self.next_seq.wrapping_add(1);
            self.pool.remove(slot);
        }
        Sent::Original
    }
}
