//! A bounded table with a cost that doesn't grow with the number of its values.

/// Index that stands for no slot.
const NONE: u32 = u32::MAX;

/// The slot of a value, stored apart from it: neighbouring slots are read together, so they should
/// be close in a processor's cache.
#[derive(Debug)]
struct Slot {
    key: u64,
    /// The next slot with the same hash.
    chain: u32,
    /// The slots used next after this one, and last before it.
    newer: u32,
    older: u32,
}

/// Values by key, up to a maximum number: when it is full, a new value displaces the least recently
/// used one, and takes its slot. Finding, adding and displacing take constant time.
#[derive(Debug)]
pub struct Lru<V> {
    slots: Vec<Slot>,
    values: Vec<V>,
    /// The first slot of each hash; the length is a power of two.
    chains: Vec<u32>,
    newest: u32,
    oldest: u32,
    max: usize,
    /// Prevents an attacker that chooses keys from choosing many with one hash.
    secret: u64,
}

impl<V> Lru<V> {
    /// Creates a table for at most `max` values; memory is allocated as they are added.
    pub fn new(max: usize, secret: u64) -> Lru<V> {
        let max = max.clamp(1, NONE as usize);
        let (slots, values, chains) = (Vec::new(), Vec::new(), Vec::new());
        Lru { slots, values, chains, newest: NONE, oldest: NONE, max, secret }
    }

    /// The value of `key`, created by `fresh` if there is none, and the value that it displaced.
    /// Counts as use.
    // Inlined because a displaced value is large: a call would copy the room for it each time.
    #[inline]
    pub fn entry(&mut self, key: u64, fresh: impl FnOnce() -> V) -> (&mut V, Option<V>) {
        let mut displaced = None;
        let slot = match self.find(key) {
            Some(slot) => {
                self.unlink(slot);
                slot
            }
            None => {
                let value = fresh();
                let slot = match self.slots.len() < self.max {
                    true => self.grow(key, value),
                    false => {
                        let slot = self.oldest;
                        self.unlink(slot);
                        self.unchain(slot);
                        self.slots[slot as usize].key = key;
                        displaced = Some(std::mem::replace(&mut self.values[slot as usize], value));
                        slot
                    }
                };
                self.chain(slot);
                slot
            }
        };
        self.link_newest(slot);
        (&mut self.values[slot as usize], displaced)
    }

    /// The value of `key`, if there is one; it doesn't count as used.
    pub fn get(&self, key: u64) -> Option<&V> {
        self.find(key).map(|slot| &self.values[slot as usize])
    }

    /// Mutable reference to the value of `key`, if there is one; it doesn't count as used.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let slot = self.find(key)?;
        Some(&mut self.values[slot as usize])
    }

    /// The least recently used value.
    pub fn oldest(&self) -> Option<&V> {
        self.values.get(self.oldest as usize)
    }

    /// All values, as mutable references.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut()
    }

    /// Keys and values by slot, from slot `from` on: their order is stable, but a displaced value's
    /// slot gets another one.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = (u64, &V)> {
        let slots = self.slots.get(from..).unwrap_or_default();
        let values = self.values.get(from..).unwrap_or_default();
        slots.iter().map(|slot| slot.key).zip(values)
    }

    /// Number of values in the table.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    fn hash(&self, key: u64) -> usize {
        // 2^64 divided by the golden ratio; the halves of the product are combined.
        let product = u128::from(key ^ self.secret) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        let folded = (product >> 64) as u64 ^ product as u64;
        (folded.wrapping_mul(self.secret | 1) >> 32) as usize & (self.chains.len() - 1)
    }

    fn find(&self, key: u64) -> Option<u32> {
        if self.chains.is_empty() {
            return None;
        }
        let mut slot = self.chains[self.hash(key)];
        while slot != NONE && self.slots[slot as usize].key != key {
            slot = self.slots[slot as usize].chain;
        }
        (slot != NONE).then_some(slot)
    }

    /// Adds a slot. The number of chains doubles when it equals that of the slots.
    fn grow(&mut self, key: u64, value: V) -> u32 {
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { key, chain: NONE, newer: NONE, older: NONE });
        self.values.push(value);
        if self.slots.len() > self.chains.len() {
            self.chains = vec![NONE; (self.chains.len() * 2).max(8)];
            (0..slot).for_each(|slot| self.chain(slot));
        }
        slot
    }

    fn chain(&mut self, slot: u32) {
        let hash = self.hash(self.slots[slot as usize].key);
        self.slots[slot as usize].chain = std::mem::replace(&mut self.chains[hash], slot);
    }

    fn unchain(&mut self, slot: u32) {
        let next = self.slots[slot as usize].chain;
        let hash = self.hash(self.slots[slot as usize].key);
        let mut at = self.chains[hash];
        if at == slot {
            self.chains[hash] = next;
            return;
        }
        while at != NONE {
            let place = &mut self.slots[at as usize];
            if place.chain == slot {
                place.chain = next;
                return;
            }
            at = place.chain;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        match older {
            NONE => self.oldest = slot,
            older => self.slots[older as usize].newer = slot,
        }
        let place = &mut self.slots[slot as usize];
        (place.newer, place.older) = (NONE, older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Compared with a list that is reordered in full.
        #[test]
        fn it_is_a_list_ordered_by_use(
            max in 1usize..40,
            secret in any::<u64>(),
            keys in prop::collection::vec(0u64..60, 0..400),
        ) {
            let mut lru = Lru::new(max, secret);
            let mut list: VecDeque<(u64, u64)> = VecDeque::new();
            for (key, fresh) in keys.into_iter().zip(0u64..) {
                let (value, displaced) = lru.entry(key, || fresh);
                let (value, before) = (*value, list.iter().position(|(k, _)| *k == key));
                let expected = match before {
                    Some(i) => list.remove(i).map_or(0, |(_, v)| v),
                    None => fresh,
                };
                list.push_back((key, expected));
                let gone = (list.len() > max).then(|| list.pop_front()).flatten();
                prop_assert_eq!((value, displaced), (expected, gone.map(|(_, v)| v)));
                prop_assert_eq!(lru.len(), list.len());
                for (key, value) in &list {
                    prop_assert_eq!(lru.get_mut(*key), Some(&mut value.clone()));
                }
            }
        }
    }

    /// Consecutive keys, like ports and nodes, or keys that differ only in high bits.
    #[test]
    fn chains_stay_short() {
        for (first, step) in [(0, 1), (7, 1 << 16), (7, 1 << 48), (0, (1 << 48) + 1)] {
            let mut lru = Lru::new(1 << 14, 0x0123_4567_89ab_cdef);
            (0..1 << 14).for_each(|n: u64| {
                lru.entry(first + n * step, || ());
            });
            let longest = (0..lru.chains.len()).map(|hash| {
                let mut slot = lru.chains[hash];
                std::iter::from_fn(|| {
                    let next = lru.slots.get(slot as usize)?.chain;
                    slot = next;
                    Some(())
                })
                .count()
            });
            let longest = longest.max();
            assert!(longest <= Some(12), "{longest:?} with step {step}");
        }
    }
}
