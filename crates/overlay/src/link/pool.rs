//! The storage of packets that leave in any order. Each is in a cell of its own, so that one that
//! waits for long holds no room of others. Cells of one size share a page, and a page without a
//! packet serves for cells of any size. When no page is free, the packets of one with few are moved
//! to others of their size. Bounded in bytes and in packets from the start; never allocates
//! afterwards.

use super::packet::Packet;
use super::ring::{Entry, Slot};
use crate::counters::DropReason;
use trunkline_base::Time;

/// Sizes of cells are powers of two, from this one on.
const MIN_CELL: usize = 128;
/// Number of sizes of cells.
const SIZES: usize = 8;
/// Size of a page in bytes, which is that of the largest cell, and the most cells in it.
const PAGE: usize = MIN_CELL << (SIZES - 1);
const MOST_CELLS: usize = PAGE / MIN_CELL;

/// The index where there is no page or cell.
const NONE: u16 = u16::MAX;

/// A piece of the storage that is cut into cells of one size.
#[derive(Clone, Copy, Debug)]
struct Page {
    size: usize,
    /// Number of cells with a packet, and of those that have ever had one.
    used: u16,
    carved: u16,
    /// The first free cell among the carved ones; each has the index of the next one in its bytes.
    free: u16,
    /// Neighbours in the list of pages of this size with a free cell, or of pages without packets.
    before: u16,
    behind: u16,
}

impl Page {
    const EMPTY: Page =
        Page { size: 0, used: 0, carved: 0, free: NONE, before: NONE, behind: NONE };

    fn cells(&self) -> u16 {
        (PAGE / (MIN_CELL << self.size)) as u16
    }

    fn is_full(&self) -> bool {
        self.used == self.cells()
    }
}

/// Packets of one service of a link, each in a cell of its own.
#[derive(Debug)]
pub struct PacketPool {
    bytes: Box<[u8]>,
    pages: Box<[Page]>,
    /// The slot of the packet in each cell of each page.
    owners: Box<[[u32; MOST_CELLS]]>,
    /// The first page of each size with a free cell, and the first one without packets.
    roomy: [u16; SIZES],
    empty: u16,
    /// Records by slot, and slots without a packet.
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Bytes of packets, and how many there may be.
    used: usize,
    most_bytes: usize,
    most_packets: usize,
}

impl PacketPool {
    /// A pool for `bytes` bytes of `packets` packets, which are rounded up to a power of two.
    ///
    /// Its storage is larger: a cell may be twice as long as its packet, or have the minimum length
    /// for a shorter one, and less than a page of each size is free when packets have been moved.
    pub fn new(bytes: usize, packets: usize) -> PacketPool {
        let most_packets = packets.max(1).next_power_of_two();
        let reserved = 2 * bytes + most_packets * MIN_CELL;
        let count = (reserved.div_ceil(PAGE) + SIZES).min(usize::from(NONE));
        let pages = (0..count as u16).map(|n| Page {
            before: n.checked_sub(1).unwrap_or(NONE),
            behind: if usize::from(n) + 1 < count { n + 1 } else { NONE },
            ..Page::EMPTY
        });
        PacketPool {
            bytes: vec![0; count * PAGE].into(),
            pages: pages.collect(),
            owners: vec![[0; MOST_CELLS]; count].into(),
            roomy: [NONE; SIZES],
            empty: 0,
            entries: Vec::with_capacity(most_packets),
            free: Vec::with_capacity(most_packets),
            used: 0,
            most_bytes: bytes,
            most_packets,
        }
    }

    /// Capacity, in bytes of packets.
    pub fn size(&self) -> usize {
        self.most_bytes
    }

    /// Whether a packet of `len` bytes fits.
    pub fn has_room(&self, len: usize) -> bool {
        let has_slot = !self.free.is_empty() || self.entries.len() < self.most_packets;
        has_slot && self.used + len <= self.most_bytes
    }

    /// Stores `packet` from `since` on, useful to the next node until `latest`.
    pub fn keep(
        &mut self,
        since: Time,
        packet: &Packet<'_>,
        latest: Time,
    ) -> Result<Slot, DropReason> {
        let len = packet.frame_len();
        if len > PAGE {
            return Err(DropReason::TooLarge);
        }
        if !self.has_room(len) {
            return Err(DropReason::QueueFull);
        }
        let mut entry = Entry::of(packet, since, latest).ok_or(DropReason::TooLarge)?;
        let offset = self.take_cell(size_of(len)).ok_or(DropReason::QueueFull)?;
        entry.offset = offset as u32;
        if let Err(why) = packet.keep(&mut self.bytes[offset..offset + len]) {
            self.free_cell(offset);
            return Err(why);
        }
        self.used += len;
        let slot = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(slot as usize) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        *self.owner(offset) = slot;
        Ok(slot.into())
    }

    /// The slot of the packet in the cell at `offset`.
    fn owner(&mut self, offset: usize) -> &mut u32 {
        let (at, within) = (offset / PAGE, offset % PAGE);
        &mut self.owners[at][within >> (MIN_CELL.ilog2() as usize + self.pages[at].size)]
    }

    /// Empties a page whose packets fit in others of its size. If there is none, fewer cells of each
    /// size are free than a page has.
    fn empty_a_page(&mut self) -> Option<()> {
        let at = (0..SIZES).find_map(|size| self.emptiest(size))?;
        let page = self.pages[usize::from(at)];
        let cell_size = MIN_CELL << page.size;
        // No packet is moved within the page.
        self.unlink(at);
        let mut is_free = [false; MOST_CELLS];
        let mut free = page.free;
        while free != NONE {
            is_free[usize::from(free)] = true;
            let next = usize::from(at) * PAGE + usize::from(free) * cell_size;
            free = u16::from_ne_bytes([self.bytes[next], self.bytes[next + 1]]);
        }
        for cell in (0..usize::from(page.carved)).filter(|cell| !is_free[*cell]) {
            let from = usize::from(at) * PAGE + cell * cell_size;
            let slot = *self.owner(from);
            let to = self.take_cell(page.size)?;
            self.bytes.copy_within(from..from + cell_size, to);
            *self.owner(to) = slot;
            self.entries[slot as usize].offset = to as u32;
        }
        self.pages[usize::from(at)] = Page::EMPTY;
        self.link(at);
        Some(())
    }

    /// The page of a size with the fewest packets, if the other ones of its size have room for them.
    fn emptiest(&self, size: usize) -> Option<u16> {
        let (mut least, mut free) = (None, 0);
        let mut at = self.roomy[size];
        while let Some(page) = self.pages.get(usize::from(at)) {
            free += usize::from(page.cells() - page.used);
            if least.is_none_or(|(_, used): (u16, u16)| page.used < used) {
                least = Some((at, page.used));
            }
            at = page.behind;
        }
        let cells = PAGE / (MIN_CELL << size);
        least.filter(|_| free >= cells).map(|(at, _)| at)
    }

    /// The packet in `slot`, which must not have been removed.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<(&Entry, &[u8])> {
        let entry = self.entries.get(slot as usize)?;
        let start = entry.offset as usize;
        Some((entry, self.bytes.get(start..start + entry.frame_len())?))
    }

    /// Frees the packet in `slot`, which must not have been removed.
    pub fn remove(&mut self, slot: Slot) {
        let Some(&entry) = self.entries.get(slot as usize) else { return };
        self.used = self.used.saturating_sub(entry.frame_len());
        self.free_cell(entry.offset as usize);
        self.free.push(slot as u32);
    }

    /// Offset of a cell of this size, which now has a packet.
    fn take_cell(&mut self, size: usize) -> Option<usize> {
        let mut at = *self.roomy.get(size)?;
        if at == NONE {
            if self.empty == NONE {
                self.empty_a_page()?;
            }
            at = self.empty;
            self.unlink(at);
            // Its first cell is free.
            self.pages[usize::from(at)] = Page { size, carved: 1, free: 0, ..Page::EMPTY };
            self.bytes[usize::from(at) * PAGE..][..2].copy_from_slice(&NONE.to_ne_bytes());
            self.link(at);
        }
        let page = &mut self.pages[usize::from(at)];
        page.used += 1;
        let is_carved = page.free != NONE;
        let cell = if is_carved { page.free } else { page.carved };
        let offset = usize::from(at) * PAGE + usize::from(cell) * (MIN_CELL << size);
        match is_carved {
            true => page.free = u16::from_ne_bytes([self.bytes[offset], self.bytes[offset + 1]]),
            false => page.carved += 1,
        }
        if page.is_full() {
            self.unlink(at);
        }
        Some(offset)
    }

    fn free_cell(&mut self, offset: usize) {
        let at = (offset / PAGE) as u16;
        let page = &mut self.pages[usize::from(at)];
        let was_full = page.is_full();
        let cell = (offset % PAGE / (MIN_CELL << page.size)) as u16;
        self.bytes[offset..offset + 2].copy_from_slice(&page.free.to_ne_bytes());
        page.free = cell;
        page.used -= 1;
        if was_full {
            self.link(at);
        }
        if self.pages[usize::from(at)].used == 0 {
            self.unlink(at);
            let page = &mut self.pages[usize::from(at)];
            (page.carved, page.free) = (0, NONE);
            self.link(at);
        }
    }

    /// The head of the list that the page belongs to.
    fn head(&mut self, at: u16) -> &mut u16 {
        let Page { size, carved, .. } = self.pages[usize::from(at)];
        match carved {
            0 => &mut self.empty,
            _ => &mut self.roomy[size],
        }
    }

    /// Puts the page in front of its list.
    fn link(&mut self, at: u16) {
        let behind = core::mem::replace(self.head(at), at);
        if let Some(page) = self.pages.get_mut(usize::from(behind)) {
            page.before = at;
        }
        let page = &mut self.pages[usize::from(at)];
        (page.before, page.behind) = (NONE, behind);
    }

    /// Takes the page out of its list.
    fn unlink(&mut self, at: u16) {
        let Page { before, behind, .. } = self.pages[usize::from(at)];
        match self.pages.get_mut(usize::from(before)) {
            Some(page) => page.behind = behind,
            None => *self.head(at) = behind,
        }
        if let Some(page) = self.pages.get_mut(usize::from(behind)) {
            page.before = before;
        }
    }
}

/// Number of the size of cells for `len` bytes.
fn size_of(len: usize) -> usize {
    len.max(MIN_CELL).next_power_of_two().ilog2() as usize - MIN_CELL.ilog2() as usize
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
        let packet = Packet { hop_limit: 5, ..Packet::new(flow, payload, deadline) };
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
        assert_eq!((pool.entries.len(), pool.pages.iter().filter(|p| p.used > 0).count()), (2, 1));
    }

    /// Of many short packets a few stay, in pages of their sizes.
    #[test]
    fn few_that_stay_hold_no_room_of_others() {
        let mut pool = PacketPool::new(1 << 20, 4_096);
        let mut stay = Vec::new();
        for (len, each) in [(257, 32), (513, 16), (129, 64)] {
            let all = (0..2_500).map_while(|_| keep(&mut pool, &vec![len as u8; len]).ok());
            for (n, slot) in all.collect::<Vec<_>>().into_iter().enumerate() {
                if n % each == 0 {
                    stay.push((slot, len));
                } else {
                    pool.remove(slot);
                }
            }
        }
        let used = pool.used;
        let more: Vec<_> = core::iter::from_fn(|| keep(&mut pool, &[7; 1_160]).ok()).collect();
        assert!(more.len() * (DATA_HEADER + 1_160) + used > (1 << 20) - 2_000, "{}", more.len());
        for (slot, len) in stay {
            assert_eq!(pool.get(slot).unwrap().1[DATA_HEADER..], vec![len as u8; len]);
        }
    }

    /// Small packets have taken every page, and are gone.
    #[test]
    fn a_page_serves_for_cells_of_any_size() {
        let mut pool = PacketPool::new(1 << 20, 1 << 15);
        for len in [60, 1_100, 60, 5_000, 200] {
            let slots: Vec<_> =
                core::iter::from_fn(|| keep(&mut pool, &vec![7; len]).ok()).collect();
            let bytes = slots.len() * (DATA_HEADER + len);
            assert!(bytes > (1 << 20) - 6_000, "{bytes} bytes of packets of {len}");
            slots.into_iter().for_each(|slot| pool.remove(slot));
            assert!(pool.pages.iter().all(|page| page.used == 0));
            assert_eq!((pool.used, pool.roomy), (0, [NONE; SIZES]));
        }
    }

    proptest! {
        /// Packets that stay are intact, whatever comes and goes, and there is as much room as
        /// promised.
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
                let used: usize = model.iter().map(|(_, payload)| DATA_HEADER + payload.len()).sum();
                prop_assert!(roomy || used + DATA_HEADER + len > 20_000 || model.len() == 16);
                model.extend(kept.ok().map(|slot| (slot, payload)));
                if gone < model.len() {
                    pool.remove(model.swap_remove(gone).0);
                }
                for (slot, payload) in &model {
                    prop_assert_eq!(&pool.get(*slot).unwrap().1[DATA_HEADER..], &payload[..]);
                }
                prop_assert!(pool.entries.len() <= 16);
            }
        }
    }
}
