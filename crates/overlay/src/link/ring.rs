//! The one place where a link keeps packets: a circular buffer of bytes and a
//! circular index over it (Amir et al. 2005, IV-A's circular packet buffer).
//! Bounded in bytes and in packets from the start; never allocates after.

use super::packet::Packet;
use crate::counters::DropReason;
use crate::wire::HopHeader;
use trunkline_base::Time;

/// A packet in the ring: its number there, counted from 0 for ever.
pub type Slot = u64;

/// What the ring keeps about a packet beside its bytes: a cache line, and no more than
/// one has to be fetched for it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Entry {
    offset: u32,
    len: u16,
    recovered: bool,
    hop_limit: u8,
    /// When it was put in.
    pub since: Time,
    /// When it stops being of use to whom it is for.
    pub deadline: Time,
    /// When it stops being of use to the next node: that has a way to go.
    pub latest: Time,
    /// When it was last repeated; [`Time::ZERO`] if never.
    pub retransmitted: Time,
    /// Its link sequence number and the count of its envelope, once it has been
    /// sent.
    pub sent: Option<(u64, u64)>,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Writes its `frame` into `out`, which has just its bytes, as it leaves under number
    /// `link_seq`; `remaining_ms` is what the link says of its deadline.
    #[inline]
    pub fn write(
        &self,
        frame: &[u8],
        out: &mut [u8],
        link_seq: u16,
        remaining_ms: u8,
        retransmitted: bool,
    ) {
        if out.len() == frame.len() {
            let hop = HopHeader {
                recovered: self.recovered || retransmitted,
                hop_limit: self.hop_limit,
                link_seq,
                remaining_ms,
            };
            out.copy_from_slice(frame);
            hop.write(out);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct PacketRing {
    bytes: Box<[u8]>,
    entries: Box<[Entry]>,
    first: Slot,
    next: Slot,
    head: usize,
}

impl PacketRing {
    /// A ring of `bytes` bytes and `packets` packets, rounded up to a power of
    /// two.
    pub fn new(bytes: usize, packets: usize) -> PacketRing {
        const NEVER: Time = Time::ZERO;
        let empty = Entry {
            offset: 0,
            len: 0,
            recovered: false,
            hop_limit: 0,
            since: NEVER,
            deadline: NEVER,
            latest: NEVER,
            retransmitted: NEVER,
            sent: None,
        };
        PacketRing {
            bytes: vec![0; bytes.min(u32::MAX as usize)].into(),
            entries: vec![empty; packets.max(1).next_power_of_two()].into(),
            first: 0,
            next: 0,
            head: 0,
        }
    }

    /// How many packets are in it.
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// Keeps `packet` from `now` on, which is of use to the next node until
    /// `latest`, displacing the oldest ones where there is no room.
    pub fn keep(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<Slot, DropReason> {
        let room = self.push(packet.frame_len(), now, packet.deadline, latest);
        let (slot, frame) = room.ok_or(DropReason::QueueFull)?;
        packet.keep(frame)?;
        let entry = self.entry_mut(slot);
        (entry.recovered, entry.hop_limit) = (packet.recovered, packet.hop_limit);
        Ok(slot)
    }

    /// Room for a packet of `len` bytes, displacing the oldest ones where
    /// there is none; `None` if it is larger than the whole ring.
    fn push(
        &mut self,
        len: usize,
        since: Time,
        deadline: Time,
        latest: Time,
    ) -> Option<(Slot, &mut [u8])> {
        if len > self.bytes.len() {
            return None;
        }
        let len16 = u16::try_from(len).ok()?;
        if self.len() == self.entries.len() {
            self.first += 1;
        }
        let offset = loop {
            match self.room_for(len) {
                Some(offset) => break offset,
                None => self.first += 1,
            }
        };
        let slot = self.next;
        *self.entry_mut(slot) = Entry {
            offset: offset as u32,
            len: len16,
            recovered: false,
            hop_limit: 0,
            since,
            deadline,
            latest,
            retransmitted: Time::ZERO,
            sent: None,
        };
        self.next += 1;
        self.head = offset + len;
        Some((slot, &mut self.bytes[offset..offset + len]))
    }

    /// How many bytes of packets it holds at most.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a packet of `len` bytes fits without displacing another.
    pub fn has_room(&self, len: usize) -> bool {
        self.len() < self.entries.len() && self.room_for(len).is_some()
    }

    /// Where `len` contiguous free bytes start.
    fn room_for(&self, len: usize) -> Option<usize> {
        if self.first == self.next {
            return (len <= self.bytes.len()).then_some(0);
        }
        let tail = self.entries[self.index(self.first)].offset as usize;
        if self.head > tail {
            // Used: tail..head. A packet that wraps must not meet the tail, or
            // a full ring would look like an empty one.
            if self.bytes.len() - self.head >= len {
                Some(self.head)
            } else {
                (len <= tail).then_some(0)
            }
        } else {
            (tail - self.head >= len).then_some(self.head)
        }
    }

    /// The packet in `slot`, unless it has been displaced or released.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<(&Entry, &[u8])> {
        if !(self.first..self.next).contains(&slot) {
            return None;
        }
        let entry = &self.entries[self.index(slot)];
        let start = entry.offset as usize;
        Some((entry, &self.bytes[start..start + usize::from(entry.len)]))
    }

    /// Notes that the packet in `slot` was sent as number `seq` in envelope
    /// `count`.
    pub fn mark_sent(&mut self, slot: Slot, seq: u64, count: u64) {
        if (self.first..self.next).contains(&slot) {
            self.entry_mut(slot).sent = Some((seq, count));
        }
    }

    /// Notes that the packet in `slot` is repeated at `now`.
    pub fn mark_retransmitted(&mut self, slot: Slot, now: Time) {
        if (self.first..self.next).contains(&slot) {
            self.entry_mut(slot).retransmitted = now;
        }
    }

    /// Frees every packet up to and with `slot`.
    pub fn release(&mut self, slot: Slot) {
        self.first = self.first.max((slot + 1).min(self.next));
    }

    /// Whether every packet in it is from after `since`, and others had to make
    /// room for them.
    pub fn turned_over(&self, since: Time) -> bool {
        self.first > 0
            && self.oldest().and_then(|slot| self.get(slot)).is_some_and(|(e, _)| e.since > since)
    }

    /// The slot of the next packet that is put in.
    pub fn end(&self) -> Slot {
        self.next
    }

    /// The oldest packet's slot.
    pub fn oldest(&self) -> Option<Slot> {
        (self.first < self.next).then_some(self.first)
    }

    fn index(&self, slot: Slot) -> usize {
        slot as usize & (self.entries.len() - 1)
    }

    fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        let index = self.index(slot);
        &mut self.entries[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a queue of vectors: what is still in the ring is intact,
        /// and only the oldest are ever displaced.
        #[test]
        fn agrees_with_a_queue(
            steps in prop::collection::vec((0usize..70, any::<u8>(), any::<bool>()), 1..400),
        ) {
            let mut ring = PacketRing::new(200, 8);
            let mut model: VecDeque<(Slot, Vec<u8>)> = VecDeque::new();
            for (len, fill, release) in steps {
                let roomy = ring.has_room(len);
                let before = ring.len();
                let (slot, bytes) = ring.push(len, Time::ZERO, Time::ZERO, Time::ZERO).unwrap();
                bytes.fill(fill);
                model.push_back((slot, vec![fill; len]));
                prop_assert!(!roomy || ring.len() == before + 1);
                while model.len() > ring.len() {
                    model.pop_front();
                }
                if release && let Some((slot, _)) = model.pop_front() {
                    ring.release(slot);
                }
                prop_assert_eq!(ring.len(), model.len());
                prop_assert_eq!(ring.oldest(), model.front().map(|(s, _)| *s));
                for (slot, bytes) in &model {
                    prop_assert_eq!(ring.get(*slot).unwrap().1, &bytes[..]);
                }
            }
        }
    }

    #[test]
    fn larger_than_the_ring_is_refused() {
        let mut ring = PacketRing::new(100, 4);
        assert!(ring.push(101, Time::ZERO, Time::ZERO, Time::ZERO).is_none());
        assert!(ring.push(100, Time::ZERO, Time::ZERO, Time::ZERO).is_some());
        assert!(!ring.has_room(1));
    }
}
