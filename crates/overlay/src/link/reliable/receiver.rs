//! The receiving half: tells new packets from copies, and acknowledges them.

use super::{ACK_DELAY, EPOCH, MAX_AHEAD};
use crate::counters::{DropReason, ReceiverStats};
use crate::link::RxPacketInfo;
use crate::wire::{ACK_HEAD, ACK_RANGE, AckHead, AckRange, MAX_ACK_RANGES, SelectiveAck};
use trunkline_base::wire::{Short, Writer};
use trunkline_base::{Time, extend};

const WORDS: usize = MAX_AHEAD as usize / 64;

/// An acknowledgement is sent for every second packet (RFC 5681, section 4.2).
const ACK_EVERY: u32 = 2;

/// Tracks the neighbour's packets that have arrived.
#[derive(Debug)]
pub(crate) struct Receiver {
    instance: u16,
    /// The start of the neighbour that its packets come from.
    sender: u16,
    /// The sender's epoch, once one of its packets has arrived.
    epoch: Option<u8>,
    /// All numbers before it have arrived.
    next: u64,
    /// One more than the highest number that has arrived.
    end: u64,
    /// One bit per number: whether it has arrived, from `next` on.
    seen: [u64; WORDS],
    latest: u64,
    latest_at: Time,
    /// Packets since the last acknowledgement, and the latest time for the next one.
    unacknowledged: u32,
    due: Time,
    /// Whether an acknowledgement is due at once.
    is_due: bool,
    stats: ReceiverStats,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            instance: 0,
            sender: 0,
            epoch: None,
            next: 0,
            end: 0,
            seen: [0; WORDS],
            latest: 0,
            latest_at: Time::ZERO,
            unacknowledged: 0,
            due: Time::NEVER,
            is_due: false,
            stats: ReceiverStats::default(),
        }
    }
}

impl Receiver {
    /// This node has started; `instance` distinguishes this start from others.
    pub fn begin(&mut self, instance: u16) {
        self.instance = instance;
    }

    /// The neighbour has restarted, and so has its numbering.
    pub fn restart(&mut self, sender: u16) {
        let (instance, stats) = (self.instance, self.stats);
        *self = Receiver { instance, sender, stats, ..Receiver::default() };
    }

    /// Records an arriving packet; an error if it is a duplicate, or cannot be told from one.
    pub fn accept(&mut self, packet: &RxPacketInfo) -> Result<(), DropReason> {
        let epoch = packet.remaining & EPOCH;
        match self.epoch {
            Some(known) if known == epoch => {}
            // Under way since before the sender began the present epoch.
            Some(known) if epoch.wrapping_sub(known) & EPOCH > EPOCH / 2 => {
                return Err(DropReason::Stale);
            }
            _ => {
                self.restart(self.sender);
                self.epoch = Some(epoch);
            }
        }
        let seq = extend(self.next, packet.wire_seq);
        if seq >= self.next + MAX_AHEAD {
            self.is_due = true;
            return Err(DropReason::BeyondWindow);
        }
        // Nothing new, so the last acknowledgement was lost: send another.
        if seq < self.next || self.has(seq) {
            self.is_due = true;
            return Err(DropReason::Duplicate);
        }
        let (word, bit) = place(seq);
        self.seen[word] |= bit;
        self.stats.received += 1;
        self.stats.missing += seq.saturating_sub(self.end);
        self.stats.filled += u64::from(seq < self.end);
        self.unacknowledged += 1;
        (self.latest, self.latest_at) = (seq, packet.at);
        // The sender needs to learn of a gap, and of a packet that fills one.
        let in_order = seq == self.next && seq == self.end;
        self.is_due |= !in_order || self.unacknowledged >= ACK_EVERY;
        self.due = self.due.min(packet.at + ACK_DELAY);
        self.end = self.end.max(seq + 1);
        while self.has(self.next) {
            let (word, bit) = place(self.next);
            self.seen[word] &= !bit;
            self.next += 1;
        }
        Ok(())
    }

    fn has(&self, seq: u64) -> bool {
        let (word, bit) = place(seq);
        self.seen[word] & bit != 0
    }

    /// Ranges that have arrived beyond `next`, in ascending order.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut at = self.next;
        core::iter::from_fn(move || {
            let first = self.find(at, true)?;
            let end = self.find(first, false).unwrap_or(self.end);
            at = end;
            Some((first, end))
        })
    }

    /// The first number from `from` on, below `end`, that has arrived (`come`) or has not.
    fn find(&self, from: u64, come: bool) -> Option<u64> {
        let mut at = from;
        while at < self.end {
            let bits = self.seen[place(at).0] >> (at % 64);
            let skip = if come { bits.trailing_zeros() } else { bits.trailing_ones() };
            let rest = 64 - at % 64;
            if u64::from(skip) < rest {
                let found = at + u64::from(skip);
                return (found < self.end).then_some(found);
            }
            at += rest;
        }
        None
    }

    /// Bytes of the acknowledgement that is due, at most `room`; 0 if none is due, or if it does
    /// not fit.
    pub fn ack_len(&self, room: usize) -> usize {
        if self.is_due { self.fitting_len(room) } else { 0 }
    }

    /// Bytes of an acknowledgement, at most `room`, that follows a packet before it is due; 0 if
    /// nothing has arrived since the last one, or if it does not fit.
    pub fn rider_len(&self, room: usize) -> usize {
        if self.is_due || self.unacknowledged > 0 { self.fitting_len(room) } else { 0 }
    }

    fn fitting_len(&self, room: usize) -> usize {
        if self.epoch.is_none() || room < ACK_HEAD {
            return 0;
        }
        let fit = ((room - ACK_HEAD) / ACK_RANGE).min(MAX_ACK_RANGES);
        ACK_HEAD + ACK_RANGE * self.ranges().take(fit).count()
    }

    /// Writes the acknowledgement in `len` bytes. If not all ranges fit, the first ones are
    /// written, and then the one with the latest packet.
    pub fn write_ack(&mut self, now: Time, len: usize, w: &mut Writer<'_>) -> Result<(), Short> {
        let n = (len.saturating_sub(ACK_HEAD) / ACK_RANGE).min(MAX_ACK_RANGES);
        let mut ranges = [AckRange::default(); MAX_ACK_RANGES];
        let range = |(first, end): (u64, u64)| AckRange {
            first: first as u16,
            count: (end - first) as u16,
        };
        for (k, (first, end)) in self.ranges().enumerate() {
            match ranges[..n].get_mut(k) {
                Some(place) => *place = range((first, end)),
                None if n > 0 && (first..end).contains(&self.latest) => {
                    ranges[n - 1] = range((first, end));
                }
                None => {}
            }
        }
        let head = AckHead {
            instance: self.instance,
            sender: self.sender,
            epoch: self.epoch.unwrap_or_default(),
            next: self.next as u16,
            latest: self.latest as u16,
            delay: now.since(self.latest_at),
        };
        (self.is_due, self.due, self.unacknowledged) = (false, Time::NEVER, 0);
        SelectiveAck::emit(&head, &ranges[..n], w)
    }

    pub fn next_timeout(&self) -> Time {
        self.due
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if self.due <= now {
            (self.is_due, self.due) = (true, Time::NEVER);
        }
    }

    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }
}

/// Word and bit that stand for a number.
fn place(seq: u64) -> (usize, u64) {
    ((seq / 64) as usize % WORDS, 1 << (seq % 64))
}
