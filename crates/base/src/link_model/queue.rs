//! The buffer before the transmitter, and the disciplines that admit packets to it.
//!
//! A discipline sees each packet once, on arrival; it never evicts an admitted packet, so the
//! transmission time is known at once.

mod drop_tail;
mod red;

use std::collections::VecDeque;

use super::{Ecn, InvalidModel};
use crate::{Bitrate, Rng, Time};
pub use red::Red;
use red::RedState;

/// The buffer before the transmitter: how much may wait, and what happens before it is full. The
/// packet in transmission does not count, so a limit of 0 is a link without a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// Drop tail: at most this many packets.
    Packets(usize),
    /// Drop tail: at most this many bytes.
    Bytes(usize),
    /// Random early detection: rejects or marks packets before the buffer is full.
    Red(Red),
}

impl Default for Queue {
    /// Drop tail at 100 packets.
    fn default() -> Queue {
        Queue::Packets(100)
    }
}

/// Unit of a queue's limits and thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    /// Counts packets, regardless of their size.
    #[default]
    Packets,
    /// Counts bytes, as offered.
    Bytes,
}

impl Queue {
    pub(super) fn validate(&self) -> Result<(), InvalidModel> {
        match self {
            Queue::Packets(_) | Queue::Bytes(_) => Ok(()),
            Queue::Red(red) => red.validate(),
        }
    }
}

/// Reasons for rejecting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Chosen at random, while there was room.
    Early,
    /// No room, or an average above what the discipline tolerates.
    Forced,
}

/// State of the queue when a packet arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    pub now: Time,
    pub packets: usize,
    pub bytes: usize,
    /// Time since which the queue and the transmitter have been idle; `None` while busy.
    pub idle_since: Option<Time>,
}

impl Backlog {
    fn in_unit(&self, unit: Unit) -> usize {
        match unit {
            Unit::Packets => self.packets,
            Unit::Bytes => self.bytes,
        }
    }
}

#[derive(Clone, Debug)]
enum Discipline {
    DropTail { limit: usize, unit: Unit },
    Red(RedState),
}

impl Discipline {
    /// Decides whether a packet of `bytes` bytes may wait, or be sent at once on an idle
    /// transmitter; may mark it.
    fn admit(&mut self, bytes: usize, backlog: &Backlog, ecn: &mut Ecn) -> Result<(), Rejection> {
        match self {
            Discipline::DropTail { limit, unit } => drop_tail::admit(*limit, *unit, bytes, backlog)
                .then_some(())
                .ok_or(Rejection::Forced),
            Discipline::Red(red) => red.admit(bytes, backlog, ecn),
        }
    }
}

/// The transmitter and the packets that wait for it.
#[derive(Clone, Debug)]
pub(super) struct Transmitter {
    rate: Bitrate,
    discipline: Discipline,
    free_at: Time,
    /// Start of transmission and size in bytes of each waiting packet.
    waiting: VecDeque<(Time, usize)>,
    waiting_bytes: usize,
}

impl Transmitter {
    pub fn new(rate: Bitrate, queue: Queue, rng: Rng) -> Transmitter {
        let discipline = match queue {
            Queue::Packets(limit) => Discipline::DropTail { limit, unit: Unit::Packets },
            Queue::Bytes(limit) => Discipline::DropTail { limit, unit: Unit::Bytes },
            Queue::Red(red) => Discipline::Red(RedState::new(red, rate, rng)),
        };
        Transmitter {
            rate,
            discipline,
            free_at: Time::ZERO,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// This transmitter, with the packets that `old` has admitted queued ahead.
    pub fn after(self, old: Transmitter) -> Transmitter {
        let Transmitter { free_at, waiting, waiting_bytes, .. } = old;
        Transmitter { free_at, waiting, waiting_bytes, ..self }
    }

    /// Admits a packet; returns the time at which its last bit leaves.
    pub fn send(&mut self, now: Time, bytes: usize, ecn: &mut Ecn) -> Result<Time, Rejection> {
        while let Some(&(begins, size)) = self.waiting.front()
            && begins <= now
        {
            self.waiting.pop_front();
            self.waiting_bytes -= size;
        }
        let backlog = Backlog {
            now,
            packets: self.waiting.len(),
            bytes: self.waiting_bytes,
            idle_since: (self.free_at <= now).then_some(self.free_at),
        };
        self.discipline.admit(bytes, &backlog, ecn)?;
        if self.free_at > now {
            self.waiting.push_back((self.free_at, bytes));
            self.waiting_bytes += bytes;
        }
        self.free_at = self.free_at.max(now) + self.rate.time_for(bytes);
        Ok(self.free_at)
    }
}
