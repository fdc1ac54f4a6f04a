//! The storage of packets that leave in any order. Each has a buffer of its own, so that one that
//! waits for long holds no room of others. Bounded in bytes and in packets; buffers are kept for
//! later packets of their size, so that steady traffic allocates nothing.

use super::packet::Packet;
use super::ring::{Entry, Slot};
use crate::counters::DropReason;
use trunkline_base::Time;

/// Sizes of buffers are powers of two, from this one on.
const SMALLEST: usize = 128;
/// Number of sizes: up to 64 KiB.
const SIZES: usize = 10;

/// Bytes of buffers that an empty pool keeps.
const KEPT: usize = 256 << 10;

/// Packets of one service of a link, each in a buffer of its own.
#[derive(Debug)]
pub struct PacketPool {
    /// Record and buffer of each slot.
    entries: Vec<(Entry, Box<[u8]>)>,
    /// Slots without a packet, by the size of their buffer.
    free: [Vec<u32>; SIZES],
    /// Bytes of all buffers, with and without a packet.
    allocated: usize,
    /// Bytes of packets, their number, and how many of both there may be.
    used: usize,
    packets: usize,
    most_bytes: usize,
    most_packets: usize,
}

impl PacketPool {
    /// A pool for `bytes` bytes of `packets` packets, which are rounded up to a power of two. It
    /// takes up to twice as many bytes of memory.
    pub fn new(bytes: usize, packets: usize) -> PacketPool {
        PacketPool {
            entries: Vec::new(),
            free: [const { Vec::new() }; SIZES],
            allocated: 0,
            used: 0,
            packets: 0,
            most_bytes: bytes,
            most_packets: packets.max(1).next_power_of_two(),
        }
    }

    /// Capacity, in bytes of packets.
    pub fn size(&self) -> usize {
        self.most_bytes
    }

    /// Whether a packet of `len` bytes fits.
    pub fn has_room(&self, len: usize) -> bool {
        self.packets < self.most_packets && self.used + len <= self.most_bytes
    }

    /// Stores `packet` from `since` on, useful to the next node until `latest`.
    pub fn keep(
        &mut self,
        since: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<Slot, DropReason> {
        let len = packet.frame_len();
        if !self.has_room(len) {
            return Err(DropReason::QueueFull);
        }
        let slot = self.slot_for(len).ok_or(DropReason::TooLarge)?;
        let (entry, buffer) = &mut self.entries[slot as usize];
        *entry = Entry::of(packet, since, latest).ok_or(DropReason::TooLarge)?;
        if let Err(why) = packet.keep(&mut buffer[..len]) {
            self.free[size_of(buffer.len())].push(slot);
            return Err(why);
        }
        self.used += len;
        self.packets += 1;
        Ok(slot.into())
    }

    /// The packet in `slot`, which must not have been removed.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<(&Entry, &[u8])> {
        let (entry, buffer) = self.entries.get(slot as usize)?;
        Some((entry, buffer.get(..entry.frame_len())?))
    }

    /// Frees the packet in `slot`, which must not have been removed.
    pub fn remove(&mut self, slot: Slot) {
        let Some((entry, buffer)) = self.entries.get(slot as usize) else { return };
        self.used = self.used.saturating_sub(entry.frame_len());
        self.packets = self.packets.saturating_sub(1);
        self.free[size_of(buffer.len())].push(slot as u32);
        if self.packets == 0 && self.allocated > KEPT {
            let (most_bytes, most_packets) = (self.most_bytes, self.most_packets);
            *self = PacketPool::new(most_bytes, most_packets);
        }
    }

    /// A free slot with a buffer for `len` bytes; `None` if that is larger than any buffer.
    fn slot_for(&mut self, len: usize) -> Option<u32> {
        let size = size_of(len);
        if let Some(slot) = self.free.get_mut(size)?.pop() {
            return Some(slot);
        }
        let bytes = SMALLEST << size;
        let is_spent =
            self.entries.len() >= self.most_packets || self.allocated + bytes > 2 * self.most_bytes;
        // A buffer of another size makes room.
        let unused = match is_spent {
            true => self.free.iter_mut().rev().find_map(Vec::pop),
            false => None,
        };
        self.allocated += bytes;
        let buffer = vec![0; bytes].into();
        match unused {
            Some(slot) => {
                let (_, old) = &mut self.entries[slot as usize];
                self.allocated -= old.len();
                *old = buffer;
                Some(slot)
            }
            None => {
                self.entries.push((Entry::EMPTY, buffer));
                Some((self.entries.len() - 1) as u32)
            }
        }
    }
}

/// Number of the size of buffers for `len` bytes.
fn size_of(len: usize) -> usize {
    len.max(SMALLEST).next_power_of_two().ilog2() as usize - SMALLEST.ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DATA_HEADER, FlowHeader, Metric, NodeId, Service};
    use proptest::prelude::*;

    fn keep(pool: &mut PacketPool, payload: &[u8]) -> Result<Slot, DropReason> {
        let flow = FlowHeader {
            service: Service::Reliable,
            metric: Metric::default(),
            source: NodeId(1),
            destination: NodeId(2),
            source_port: 3,
            destination_port: 4,
            flow_seq: 0,
        };
        let deadline = Time::from_millis(payload.len() as u64);
        let packet = Packet { flow, recovered: false, hop_limit: 5, flags: 0, payload, deadline };
        pool.keep(Time::ZERO, &packet, deadline)
    }

    #[test]
    fn one_that_stays_holds_no_room_of_others() {
        let mut pool = PacketPool::new(100_000, 64);
        let old = keep(&mut pool, &[1; 1_000]).unwrap();
        for n in 0..10_000u32 {
            let slot = keep(&mut pool, &[n as u8; 1_200]).unwrap();
            pool.remove(slot);
        }
        assert_eq!(pool.get(old).unwrap().1[DATA_HEADER..], [1; 1_000]);
        assert_eq!((pool.entries.len(), pool.allocated), (2, 3_072));
    }

    #[test]
    fn a_peak_is_given_back() {
        let mut pool = PacketPool::new(1 << 20, 4_096);
        let slots: Vec<_> = (0..600).map_while(|_| keep(&mut pool, &[0; 1_100]).ok()).collect();
        assert!(pool.allocated > 1 << 20);
        slots.into_iter().for_each(|slot| pool.remove(slot));
        assert_eq!((pool.allocated, pool.used, pool.packets), (0, 0, 0));
    }

    proptest! {
        /// Packets that stay are intact, whatever comes and goes; the memory is bounded, and enough
        /// for what is promised.
        #[test]
        fn what_stays_is_intact(
            steps in prop::collection::vec((0usize..3_000, any::<u8>(), 0usize..40), 1..600),
        ) {
            let mut pool = PacketPool::new(20_000, 16);
            let mut model: Vec<(Slot, Vec<u8>)> = Vec::new();
            for (len, fill, gone) in steps {
                let roomy = pool.has_room(DATA_HEADER + len);
                let payload = vec![fill; len];
                let kept = keep(&mut pool, &payload);
                prop_assert_eq!(kept.is_ok(), roomy);
                model.extend(kept.ok().map(|slot| (slot, payload)));
                if gone < model.len() {
                    pool.remove(model.swap_remove(gone).0);
                }
                for (slot, payload) in &model {
                    prop_assert_eq!(&pool.get(*slot).unwrap().1[DATA_HEADER..], &payload[..]);
                }
                prop_assert!(pool.entries.len() <= 16);
                // Twice the bytes, and small packets in buffers of the smallest size.
                prop_assert!(pool.allocated <= 2 * 20_000 + 16 * 4_096);
            }
        }
    }
}
