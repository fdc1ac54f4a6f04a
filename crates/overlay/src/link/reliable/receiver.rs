//! The receiving half: tells new packets from copies, and says what has come.

use super::{ACK_DELAY, EPOCH, MAX_AHEAD};
use crate::counters::{DropReason, ReceiverStats};
use crate::link::RxPacketInfo;
use crate::wire::{ACK_HEAD, ACK_RANGE, AckHead, AckRange, MAX_ACK_RANGES, SelectiveAck};
use trunkline_base::wire::{Short, Writer};
use trunkline_base::{Time, extend};

const WORDS: usize = MAX_AHEAD as usize / 64;

/// An acknowledgement leaves with every second packet (RFC 5681, section 4.2).
const ACK_EVERY: u32 = 2;

/// What has come of the neighbour's packets.
#[derive(Debug)]
pub(crate) struct Receiver {
    instance: u16,
    /// Which start of the neighbour its packets are of.
    sender: u16,
    /// The sender's numbering, once one of its packets has come.
    epoch: Option<u8>,
    /// All numbers before it have come.
    next: u64,
    /// One more than the highest that has come.
    end: u64,
    /// By number: which of those from `next` on have come.
    seen: [u64; WORDS],
    latest: u64,
    latest_at: Time,
    /// Packets since the last acknowledgement, and when the next is due at the latest.
    unacknowledged: u32,
    due: Time,
    /// Whether it is due at once.
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
    /// This node has started, and this tells the start from others.
    pub fn begin(&mut self, instance: u16) {
        self.instance = instance;
    }

    /// The neighbour has started anew, and numbers its packets anew.
    pub fn restart(&mut self, sender: u16) {
        let (instance, stats) = (self.instance, self.stats);
        *self = Receiver { instance, sender, stats, ..Receiver::default() };
    }

    /// Takes note of a packet; an error if it has come before, or can't be told from one
    /// that has.
    pub fn accept(&mut self, packet: &RxPacketInfo) -> Result<(), DropReason> {
        let epoch = packet.remaining & EPOCH;
        match self.epoch {
            Some(known) if known == epoch => {}
            // Under way since before the sender began the present one.
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
        // Nothing new, so what was said before is lost: say it again.
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
        // A gap, and what fills one, is news for the sender.
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

    /// What has come beyond `next`, in ascending order.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut at = self.next;
        core::iter::from_fn(move || {
            let first = self.find(at, true)?;
            let end = self.find(first, false).unwrap_or(self.end);
            at = end;
            Some((first, end))
        })
    }

    /// The first number from `from` on, below `end`, that has come, or that hasn't.
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

    /// Bytes of the acknowledgement that is due, of at most `room`; 0 if none is, or it
    /// doesn't fit.
    pub fn ack_len(&self, room: usize) -> usize {
        if self.is_due { self.fitting_len(room) } else { 0 }
    }

    /// Bytes of an acknowledgement, of at most `room`, that goes behind a packet before it is due;
    /// 0 if nothing has come since the last, or it doesn't fit.
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

    /// Writes it, in `len` bytes. Where not all ranges fit, the one with the latest packet
    /// stands for all but the first ones.
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

/// Where the mark of a number is.
fn place(seq: u64) -> (usize, u64) {
    ((seq / 64) as usize % WORDS, 1 << (seq % 64))
}
