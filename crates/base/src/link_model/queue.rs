//! The buffer before the transmitter: which packets may wait in it.
//!
//! A discipline sees each packet once, when it comes; it never takes back one
//! that it let in, so that the time of its transmission is known at once.

mod drop_tail;
mod red;

use std::collections::VecDeque;

use super::{Ecn, InvalidModel};
use crate::{Bitrate, Rng, Time};
pub use red::Red;
use red::RedState;

/// The buffer before the transmitter: how much may wait, and what happens
/// before it is full. The packet in transmission does not count, so a limit of
/// 0 is a link without a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// Drop tail: at most this many packets.
    Packets(usize),
    /// Drop tail: at most this many bytes.
    Bytes(usize),
    /// Random early detection: turns packets away, or marks them, before the
    /// buffer is full.
    Red(Red),
}

impl Default for Queue {
    /// 100 packets.
    fn default() -> Queue {
        Queue::Packets(100)
    }
}

/// What a limit or a threshold of a queue counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    /// Packets.
    #[default]
    Packets,
    /// Bytes, as they were offered.
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

/// Why a packet may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Chosen by chance, while there was room.
    Early,
    /// No room, or an average above what the discipline bears.
    Forced,
}

/// What a discipline knows when a packet comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    pub now: Time,
    pub packets: usize,
    pub bytes: usize,
    /// Since when nothing waits and nothing is sent, if that is so.
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
    /// Whether a packet of `bytes` may wait, or be sent at once if nothing is
    /// being sent; may mark it.
    fn admit(&mut self, bytes: usize, backlog: &Backlog, ecn: &mut Ecn) -> Result<(), Refusal> {
        match self {
            Discipline::DropTail { limit, unit } => {
                drop_tail::admit(*limit, *unit, bytes, backlog).then_some(()).ok_or(Refusal::Forced)
            }
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
    /// When transmission begins, and bytes, of each packet that waits.
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

    /// This one, behind what `old` has let in.
    pub fn after(self, old: Transmitter) -> Transmitter {
        let Transmitter { free_at, waiting, waiting_bytes, .. } = old;
        Transmitter { free_at, waiting, waiting_bytes, ..self }
    }

    /// When the last bit leaves.
    pub fn send(&mut self, now: Time, bytes: usize, ecn: &mut Ecn) -> Result<Time, Refusal> {
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
