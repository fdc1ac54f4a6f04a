//! The storage of a link's packets: a circular buffer of bytes with a circular index over it (Amir
//! et al. 2005, IV-A's circular packet buffer). Bounded in bytes and in packets from the start;
//! never allocates afterwards.

use super::packet::Packet;
use super::pool::PacketPool;
use crate::counters::DropReason;
use crate::wire::HopHeader;
use trunkline_base::Time;

/// Number of a packet in the ring, counted from 0 without end.
pub type Slot = u64;

/// The ring's record of a packet, without its bytes: one cache line, so that a single fetch
/// suffices.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Entry {
    /// Place of the frame in the storage.
    pub(super) offset: u32,
    len: u16,
    recovered: bool,
    hop_limit: u8,
    /// When it was put into the ring.
    pub since: Time,
    /// Time after which it is no longer useful at its destination.
    pub deadline: Time,
    /// Time after which it is no longer useful to the next node, which still has to forward it.
    pub latest: Time,
    /// When it was last retransmitted; [`Time::ZERO`] if never.
    pub retransmitted: Time,
    /// Its link sequence number and the number of its envelope, once it has been sent.
    pub sent: Option<(u64, u64)>,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// The record of a slot without a packet.
    pub const EMPTY: Entry = Entry {
        offset: 0,
        len: 0,
        recovered: false,
        hop_limit: 0,
        since: Time::ZERO,
        deadline: Time::ZERO,
        latest: Time::ZERO,
        retransmitted: Time::ZERO,
        sent: None,
    };

    /// The record of `packet`, which is stored from `since` on, and useful to the next node until
    /// `latest`; `None` if it is longer than any packet.
    pub fn of(packet: &Packet<'_>, since: Time, latest: Time) -> Option<Entry> {
        let len = u16::try_from(packet.frame_len()).ok()?;
        let &Packet { recovered, hop_limit, deadline, .. } = packet;
        Some(Entry { len, recovered, hop_limit, since, deadline, latest, ..Entry::EMPTY })
    }

    /// Length of the packet's frame in bytes.
    pub fn frame_len(&self) -> usize {
        self.len.into()
    }

    /// Writes its `frame` into `out`, which has exactly its length, as it leaves under number
    /// `link_seq`; `remaining_ms` is its remaining time on this link.
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

/// Packets kept by one service of a link, in a bounded ring.
#[derive(Debug)]
pub struct PacketRing {
    bytes: Box<[u8]>,
    entries: Box<[Entry]>,
    first: Slot,
    next: Slot,
    head: usize,
}

impl PacketRing {
    /// Allocates a ring of `bytes` bytes and `packets` packets, rounded up to a power of two.
    pub fn new(bytes: usize, packets: usize) -> PacketRing {
        PacketRing {
            bytes: vec![0; bytes.min(u32::MAX as usize)].into(),
            entries: vec![Entry::EMPTY; packets.max(1).next_power_of_two()].into(),
            first: 0,
            next: 0,
            head: 0,
        }
    }

    /// Number of packets in the ring.
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// Stores `packet` from `now` on, useful to the next node until `latest`, displacing the oldest
    /// packets where there is no room.
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

    /// Moves the packet in `slot` of a pool to the end of this ring, which has room for it.
    pub fn take(&mut self, pool: &mut PacketPool, slot: Slot) -> Option<Slot> {
        let (&from, frame) = pool.get(slot)?;
        let (new, room) = self.push(frame.len(), from.since, from.deadline, from.latest)?;
        room.copy_from_slice(frame);
        let entry = self.entry_mut(new);
        (entry.recovered, entry.hop_limit) = (from.recovered, from.hop_limit);
        pool.remove(slot);
        Some(new)
    }

    /// Reserves room for a packet of `len` bytes, displacing the oldest ones if needed; `None` if
    /// it is larger than the whole ring.
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
        *self.entry_mut(slot) =
            Entry { offset: offset as u32, len: len16, since, deadline, latest, ..Entry::EMPTY };
        self.next += 1;
        self.head = offset + len;
        Some((slot, &mut self.bytes[offset..offset + len]))
    }

    /// Whether a packet of `len` bytes fits without displacing another.
    pub fn has_room(&self, len: usize) -> bool {
        self.len() < self.entries.len() && self.room_for(len).is_some()
    }

    /// Offset of `len` contiguous free bytes.
    fn room_for(&self, len: usize) -> Option<usize> {
        if self.first == self.next {
            return (len <= self.bytes.len()).then_some(0);
        }
        let tail = self.entries[self.index(self.first)].offset as usize;
        if self.head > tail {
            // Used: tail..head. A packet that wraps must not reach the tail, or a full ring would
            // look like an empty one.
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

    /// Records that the packet in `slot` was sent with number `seq` in envelope `count`.
    pub fn mark_sent(&mut self, slot: Slot, seq: u64, count: u64) {
        if (self.first..self.next).contains(&slot) {
            self.entry_mut(slot).sent = Some((seq, count));
        }
    }

    /// Records that the packet in `slot` is retransmitted at `now`.
    pub fn mark_retransmitted(&mut self, slot: Slot, now: Time) {
        if (self.first..self.next).contains(&slot) {
            self.entry_mut(slot).retransmitted = now;
        }
    }

    /// Frees every packet up to and including `slot`.
    pub fn release(&mut self, slot: Slot) {
        self.first = self.first.max((slot + 1).min(self.next));
    }

    /// Whether every packet in the ring is newer than `since`, and older ones were displaced.
    pub fn turned_over(&self, since: Time) -> bool {
        self.first > 0
            && self.oldest().and_then(|slot| self.get(slot)).is_some_and(|(e, _)| e.since > since)
    }

    /// Slot of the next packet to be stored.
    pub fn end(&self) -> Slot {
        self.next
    }

    /// Slot of the oldest packet.
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
        /// Compared with a queue of vectors: packets still in the ring are intact, and only the
        /// oldest are ever displaced.
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
