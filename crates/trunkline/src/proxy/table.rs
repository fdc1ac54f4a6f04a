//! Table of flows: bounded, with entries that expire as a NAT's do.

use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;

/// Entries by key and by slot, a small number that is reused.
#[derive(Debug)]
pub struct Table<K, V> {
    by_key: BTreeMap<K, usize>,
    slots: Vec<Option<Entry<K, V>>>,
    free: Vec<usize>,
    max: usize,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    last_used: Time,
    value: V,
}

impl<K: Ord + Copy, V> Table<K, V> {
    /// Creates an empty table for `max` entries, at least one.
    pub fn new(max: usize) -> Table<K, V> {
        Table { by_key: BTreeMap::new(), slots: Vec::new(), free: Vec::new(), max: max.max(1) }
    }

    /// Number of entries in the table.
    pub fn len(&self) -> usize {
        self.by_key.len()
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

    /// Adds an entry. It replaces one with the same key or, if the table is full, the least
    /// recently used one, which is returned.
    pub fn insert(&mut self, key: K, value: V, now: Time) -> (usize, Option<V>) {
        let mut displaced = self.find(&key).and_then(|slot| self.remove(slot));
        if self.len() >= self.max {
            // A linear search, once per new flow and not per packet.
            let used = |slot: &usize| self.slots[*slot].as_ref().map(|e| e.last_used);
            let oldest = self.by_key.values().copied().min_by_key(used);
            displaced = oldest.and_then(|slot| self.remove(slot));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Entry { key, last_used: now, value });
        self.by_key.insert(key, slot);
        (slot, displaced)
    }

    /// Removes and returns the entry in `slot`.
    pub fn remove(&mut self, slot: usize) -> Option<V> {
        let entry = self.slots.get_mut(slot)?.take()?;
        self.by_key.remove(&entry.key);
        self.free.push(slot);
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
        let mut table = Table::new(3);
        let slots: Vec<usize> =
            (0..3_u32).map(|k| table.insert(k, k * 10, s(u64::from(k))).0).collect();
        assert_eq!(table.touch(slots[0], s(5)), Some((0, &mut 0)));
        let (slot, displaced) = table.insert(7, 70, s(6));
        assert_eq!((slot, displaced), (slots[1], Some(10)), "1 was used before 0 and 2");
        assert_eq!((table.len(), table.find(&1), table.find(&7)), (3, None, Some(slot)));
        assert_eq!(table.insert(7, 71, s(7)), (slot, Some(70)), "one entry per key");
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn what_is_silent_lapses() {
        let mut table = Table::new(9);
        for k in 0..4_u64 {
            table.insert(k, k, s(k));
        }
        let mut gone = Vec::new();
        table.expire(s(12), Duration::from_secs(10), |v| gone.push(v));
        assert_eq!(gone, [0, 1, 2]);
        assert_eq!((table.len(), table.find(&2)), (1, None));
        let slot = table.find(&3).expect("it stays");
        assert_eq!(table.at(slot), Some((3, &mut 3)));
        table.expire(s(13), Duration::from_secs(10), |v| gone.push(v));
        assert_eq!((table.len(), table.at(slot)), (0, None), "looking at one is not using it");
        assert_eq!(table.remove(slot), None);
    }
}
