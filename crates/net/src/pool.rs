//! Packets under way, in memory that is reused.

use crate::packet::Header;

/// A packet under way, or a free slot for one. Its size and alignment are those of a cache line on
/// most processors.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub header: Header,
    pub payload: Vec<u8>,
    /// Whether the packet is in a medium.
    pub in_medium: bool,
    used: bool,
}

#[derive(Default)]
pub(crate) struct Pool {
    pub slots: Vec<Slot>,
    free: Vec<u32>,
    /// Bytes of payload memory allocated with each new slot.
    pub payload: usize,
}

impl Pool {
    #[inline]
    pub fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All packets under way, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.used)
    }

    /// The slot that the next packet would get; this does not take it.
    #[inline]
    pub fn vacant(&mut self) -> u32 {
        match self.free.last() {
            Some(&index) => index,
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let index = self.slots.len() as u32;
        self.slots.push(Slot { payload: Vec::with_capacity(self.payload), ..Slot::default() });
        self.free.push(index);
        index
    }

    /// Takes the vacant slot, whose header is set, for a packet.
    #[inline]
    pub fn take(&mut self, vacant: u32, payload: &[u8]) {
        let taken = self.free.pop();
        debug_assert_eq!(taken, Some(vacant));
        let slot = &mut self.slots[vacant as usize];
        slot.used = true;
        slot.payload.clear();
        slot.payload.extend_from_slice(payload);
    }

    /// Frees a slot, which keeps its memory.
    #[inline]
    pub fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        (slot.used, slot.in_medium) = (false, false);
        self.free.push(index);
    }
}
