//! Who talks to whom: a bounded table whose entries lapse, as a NAT's do.

use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_base::Time;

/// Entries by key and by slot, a small number that is used again.
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
    /// An empty table for `max` entries; at least one.
    pub fn new(max: usize) -> Table<K, V> {
        Table { by_key: BTreeMap::new(), slots: Vec::new(), free: Vec::new(), max: max.max(1) }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The slot of `key`.
    pub fn find(&self, key: &K) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// The entry in `slot`, which counts as used `now`.
    pub fn touch(&mut self, slot: usize, now: Time) -> Option<(K, &mut V)> {
        let entry = self.slots.get_mut(slot)?.as_mut()?;
        entry.last_used = now;
        Some((entry.key, &mut entry.value))
    }

    /// The entry in `slot`, without using it.
    pub fn at(&mut self, slot: usize) -> Option<(K, &mut V)> {
        let entry = self.slots.get_mut(slot)?.as_mut()?;
        Some((entry.key, &mut entry.value))
    }

    /// The first slot whose value is such.
    pub fn position(&self, such: impl Fn(&V) -> bool) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|e| such(&e.value)))
    }

    /// Adds an entry in place of one with the same key, or, if the table is
    /// full, of the one that has not been used for longest, which is returned.
    pub fn insert(&mut self, key: K, value: V, now: Time) -> (usize, Option<V>) {
        let mut displaced = self.find(&key).and_then(|slot| self.remove(slot));
        if self.len() >= self.max {
            // A look at each: this happens once per new flow, not per packet.
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

    /// Takes out the entry in `slot`.
    pub fn remove(&mut self, slot: usize) -> Option<V> {
        let entry = self.slots.get_mut(slot)?.take()?;
        self.by_key.remove(&entry.key);
        self.free.push(slot);
        Some(entry.value)
    }

    /// Takes out what has not been used for `idle` or longer.
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
