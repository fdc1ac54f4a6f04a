//! The best-effort service: each packet is sent once, first in, first out.

use super::ring::PacketRing;
use super::service::{Class, LinkContext, LinkService, Sent};
use super::{Packet, remaining_ms};
use crate::counters::{DropReason, Drops};
use core::time::Duration;
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

/// Packets of one link that wait to be sent.
#[derive(Debug)]
pub struct Queue {
    ring: PacketRing,
    max_wait: Duration,
    next_seq: u16,
    /// Bytes of flow-controlled packets: their senders wait for room rather than lose any, so these
    /// packets may wait without limit.
    flow_controlled: usize,
}

impl Queue {
    pub(super) fn new(config: &super::Config) -> Queue {
        let config = &config.best_effort;
        Queue {
            ring: PacketRing::new(config.bytes, config.packets),
            max_wait: config.max_wait,
            next_seq: 0,
            flow_controlled: 0,
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
        let len = packet.frame_len();
        if !self.ring.has_room(len) {
            return Err(DropReason::QueueFull);
        }
        self.ring.keep(since, packet, latest)?;
        self.flow_controlled += if since == Time::NEVER { len } else { 0 };
        Ok(())
    }

    fn flow_controlled(&self, len: usize) -> Option<usize> {
        self.ring.has_room(len).then_some(self.flow_controlled)
    }

    fn waiting(&self) -> usize {
        self.ring.len()
    }

    /// Bytes of the next frame, after dropping packets that have waited too long.
    #[inline]
    fn head(&mut self, moment: &LinkContext, drops: &mut Drops) -> Option<usize> {
        loop {
            let slot = self.ring.oldest()?;
            let (entry, frame) = self.ring.get(slot)?;
            if moment.now.since(entry.since) <= self.max_wait {
                return Some(frame.len());
            }
            drops.count(DropReason::QueueDelay);
            self.ring.release(slot);
        }
    }

    #[inline]
    fn pop(&mut self, moment: &LinkContext, out: &mut [u8]) -> Sent {
        if let Some(slot) = self.ring.oldest()
            && let Some((entry, frame)) = self.ring.get(slot)
        {
            let remaining = remaining_ms(moment.now, entry.deadline);
            entry.write(frame, out, self.next_seq, remaining, false);
            if entry.since == Time::NEVER {
                self.flow_controlled = self.flow_controlled.saturating_sub(frame.len());
            }
            self.next_seq = self.next_seq.wrapping_add(1);
            self.ring.release(slot);
        }
        Sent::Original
    }
}
