//! Table of flows: bounded, with entries that expire as a NAT's do.

use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;

/// Entries by key and by slot, a small number that is reused. Each entry has an origin: one origin
/// with many entries displaces its own rather than those of others.
#[derive(Debug)]
pub struct Table<K, O, V> {
    by_key: BTreeMap<K, usize>,
    slots: Vec<Option<Entry<K, O, V>>>,
    free: Vec<usize>,
    /// Number of entries of each origin that has any.
    counts: BTreeMap<O, usize>,
    max: usize,
    max_each: usize,
}

#[derive(Debug)]
struct Entry<K, O, V> {
    key: K,
    origin: O,
    last_used: Time,
    value: V,
}

/// Number of entries that any origin may have: RTP and RTCP of two calls.
const FEW: usize = 4;

impl<K: Ord + Copy, O: Ord + Copy, V> Table<K, O, V> {
    /// Creates an empty table for `max` entries, and `max_each` of each origin, at least one.
    pub fn new(max: usize, max_each: usize) -> Table<K, O, V> {
        Table {
            by_key: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            counts: BTreeMap::new(),
            max: max.max(1),
            max_each: max_each.max(1),
        }
    }

    /// Finds the slot of `key`.
    pub fn find(&self, key: &K) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// Returns the entry in `slot`, and marks it as used at `now`.
    pub fn touch(&mut self, slot: usize, now: Time) -> Option<(K, &mut V)> {
        let entry = self.slots.get_mut(slot)?.as_mut()?;
        entry.last_used = now;
        Some((entry.key, &mut entry.value))
    }

    /// Returns the entry in `slot`, without marking it as used.
    pub fn at(&mut self, slot: usize) -> Option<(K, &mut V)> {
        let entry = self.slots.get_mut(slot)?.as_mut()?;
        Some((entry.key, &mut entry.value))
    }

    /// Finds the first slot with a value that satisfies `such`.
    pub fn position(&self, such: impl Fn(&V) -> bool) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|e| such(&e.value)))
    }

    /// Adds an entry. It replaces one with the same key, or displaces one, which is returned: the
    /// least recently used one of the same `origin`, if that has its maximum already or would then
    /// have the most; if the table is full, that of the origins with the most entries. Origins with
    /// up to [`FEW`] entries count as equal, or many with one each would displace those of one with
    /// two.
    pub fn insert(&mut self, key: K, origin: O, value: V, now: Time) -> (usize, Option<V>) {
        let mut displaced = self.find(&key).and_then(|slot| self.remove(slot));
        let of_same = self.counts.get(&origin).copied().unwrap_or(0);
        let most = self.counts.values().copied().max().unwrap_or(0);
        let is_full = self.by_key.len() >= self.max;
        // Searches take time in proportion to the table, once per new flow and not per packet.
        if of_same >= self.max_each || (is_full && of_same >= FEW && of_same + 1 >= most) {
            displaced = self.displace(|other, _| *other == origin);
        } else if is_full {
            let most = most.max(FEW);
            displaced = self.displace(|_, count| count.max(FEW) == most);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Entry { key, origin, last_used: now, value });
        self.by_key.insert(key, slot);
        *self.counts.entry(origin).or_insert(0) += 1;
        (slot, displaced)
    }

    /// Removes the least recently used entry of the origins that satisfy `such`, a function of the
    /// origin and its number of entries.
    fn displace(&mut self, such: impl Fn(&O, usize) -> bool) -> Option<V> {
        let entries = self.slots.iter().enumerate().filter_map(|(i, e)| Some((i, e.as_ref()?)));
        let count = |origin| self.counts.get(origin).copied().unwrap_or(0);
        let its = entries.filter(|(_, e)| such(&e.origin, count(&e.origin)));
        let (slot, _) = its.min_by_key(|(_, e)| e.last_used)?;
        self.remove(slot)
    }

    /// Removes and returns the entry in `slot`.
    pub fn remove(&mut self, slot: usize) -> Option<V> {
        let entry = self.slots.get_mut(slot)?.take()?;
        self.by_key.remove(&entry.key);
        self.free.push(slot);
        if let Some(count) = self.counts.get_mut(&entry.origin) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&entry.origin);
            }
        }
        Some(entry.value)
    }

    /// Removes the entries that have not been used for at least `idle`.
    pub fn expire(&mut self, now: Time, idle: Duration, mut gone: impl FnMut(V)) {
        for slot in 0..self.slots.len() {
            let old = self.slots[slot].as_ref().is_some_and(|e| now.since(e.last_used) >= idle);
            if old && let Some(value) = self.remove(slot) {
                gone(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000_000)
    }

    #[test]
    fn the_one_silent_longest_makes_room() {
        // Whether all are of one origin or each is of its own.
        for each in [0, 1] {
            let mut table = Table::new(3, 9);
            let slots: Vec<usize> = (0..3_u32)
                .map(|k| table.insert(k, k * each, k * 10, s(u64::from(k) % 2)).0)
                .collect();
            assert_eq!(table.touch(slots[0], s(5)), Some((0, &mut 0)));
            assert_eq!(table.touch(slots[1], s(4)), Some((1, &mut 10)));
            let (slot, displaced) = table.insert(7, 7 * each, 70, s(6));
            assert_eq!((slot, displaced), (slots[2], Some(20)), "2 was used before 0 and 1");
            assert_eq!((table.find(&2), table.find(&7)), (None, Some(slot)));
            assert_eq!(table.insert(7, 7 * each, 71, s(7)), (slot, Some(70)), "one entry per key");
            assert_eq!(table.by_key.len(), 3);
        }
    }

    /// Many origins with an entry each displace one another, not one that has two in use.
    #[test]
    fn origins_with_few_entries_are_equal() {
        let mut table = Table::new(10, 10);
        for n in 0..2 {
            table.insert((0, n), 0_u32, n, s(0));
        }
        for n in 1..1_000 {
            for key in [(0, 0), (0, 1)] {
                let slot = table.find(&key).expect("it is not displaced");
                table.touch(slot, s(n.into()));
            }
            table.insert((n, 0), n, 0, s(n.into()));
        }
    }

    /// An origin with many entries displaces its own, and makes room for others.
    #[test]
    fn the_origin_with_the_most_makes_room() {
        let mut table = Table::new(10, 8);
        let insert = |table: &mut Table<_, u8, u32>, origin, n, at| {
            table.insert((origin, n), origin, n, s(at)).1
        };
        assert_eq!(insert(&mut table, 1, 0, 0), None);
        assert_eq!(insert(&mut table, 2, 0, 0), None);
        for n in 0..10_000 {
            let displaced = insert(&mut table, 3, n, 1 + u64::from(n));
            assert_eq!(displaced, n.checked_sub(8), "no more than eight, and the oldest goes");
        }
        assert_eq!(insert(&mut table, 4, 0, 20_000), Some(9_992), "from the one with eight");
        assert_eq!(insert(&mut table, 3, 10_000, 20_001), Some(9_993), "in place of its own");
        assert!(table.find(&(1, 0)).is_some() && table.find(&(2, 0)).is_some());
        table.expire(s(30_000), Duration::from_secs(1), |_| {});
        assert!(table.counts.is_empty(), "{:?}", table.counts);
    }

    #[test]
    fn what_is_silent_lapses() {
        let mut table = Table::new(9, 9);
        for k in 0..4_u64 {
            table.insert(k, 0, k, s(k));
        }
        let mut gone = Vec::new();
        table.expire(s(12), Duration::from_secs(10), |v| gone.push(v));
        assert_eq!(gone, [0, 1, 2]);
        assert_eq!((table.by_key.len(), table.find(&2)), (1, None));
        let slot = table.find(&3).expect("it stays");
        assert_eq!(table.at(slot), Some((3, &mut 3)));
        table.expire(s(13), Duration::from_secs(10), |v| gone.push(v));
        assert_eq!(
            (table.by_key.len(), table.at(slot)),
            (0, None),
            "looking at one is not using it"
        );
        assert_eq!(table.remove(slot), None);
    }
}
