//! Packets under way: a bounded pool of fixed-size slots and a heap of due
//! times. Allocates once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use trunkline_base::Time;

/// The longest datagram that is relayed: more than an Ethernet frame carries.
pub const SLOT: usize = 2048;

/// A packet under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// When it leaves.
    pub due: Time,
    /// Order of entry, for packets due at one time.
    order: u64,
    /// Which direction it travels.
    pub direction: usize,
    slot: usize,
    /// Its length in bytes.
    pub len: usize,
    /// DSCP and ECN.
    pub tos: u8,
}

/// All packets under way.
#[derive(Debug)]
pub struct Flight {
    storage: Vec<u8>,
    /// Used last, taken first: a busy slot is a cached slot.
    free: Vec<usize>,
    heap: BinaryHeap<Reverse<Packet>>,
    order: u64,
}

impl Flight {
    /// Room for `bytes / SLOT` packets, and at least one.
    pub fn new(bytes: usize) -> Flight {
        let slots = (bytes / SLOT).max(1);
        Flight {
            storage: vec![0; slots * SLOT],
            free: (0..slots).rev().collect(),
            heap: BinaryHeap::with_capacity(slots),
            order: 0,
        }
    }

    /// Takes a copy of `bytes`; false if the pool is full, or if they are more
    /// than [`SLOT`].
    pub fn push(&mut self, due: Time, direction: usize, tos: u8, bytes: &[u8]) -> bool {
        if bytes.len() > SLOT {
            return false;
        }
        let Some(slot) = self.free.pop() else { return false };
        self.storage[slot * SLOT..][..bytes.len()].copy_from_slice(bytes);
        let packet = Packet { due, order: self.order, direction, slot, len: bytes.len(), tos };
        self.order += 1;
        self.heap.push(Reverse(packet));
        true
    }

    /// When the next packet leaves.
    pub fn next_due(&self) -> Option<Time> {
        self.heap.peek().map(|p| p.0.due)
    }

    /// The next packet, if it is due at `now`, with its bytes. Its slot is free
    /// again, so they must be used before the next [`Flight::push`].
    pub fn pop_due(&mut self, now: Time) -> Option<(Packet, &[u8])> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(packet) = self.heap.pop()?;
        self.free.push(packet.slot);
        Some((packet, &self.storage[packet.slot * SLOT..][..packet.len]))
    }

    /// Everything still under way, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.heap.iter().map(|p| &p.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_by_time_then_by_order_and_never_more_than_the_pool() {
        let mut flight = Flight::new(3 * SLOT);
        let ms = Time::from_millis;
        assert!(!flight.push(ms(1), 0, 0, &[0; SLOT + 1]));
        assert!(flight.push(ms(5), 0, 0, b"second"));
        assert!(flight.push(ms(5), 1, 0, b"third"));
        assert!(flight.push(ms(1), 2, 0, b"first"));
        assert!(!flight.push(ms(0), 3, 0, b"no room"));
        assert_eq!(flight.pop_due(ms(0)), None);
        let mut out = Vec::new();
        while let Some((packet, bytes)) = flight.pop_due(ms(9)) {
            out.push((packet.direction, bytes.to_vec()));
        }
        assert_eq!(out, [(2, b"first".to_vec()), (0, b"second".to_vec()), (1, b"third".to_vec())]);
        assert!(flight.push(ms(0), 3, 0, b"room again"));
        assert_eq!(flight.iter().count(), 1);
    }
}
