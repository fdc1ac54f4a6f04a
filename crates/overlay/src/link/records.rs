//! Records of what comes and goes, found by a hash in constant time. There is room for twice as many
//! as are in use, however many that is: none is displaced by another that is needed less.
//!
//! Hashes are keyed by a secret of this node, so that no one can choose identities that share one.

/// Most records. Their numbers have 16 bits, one of which is for none.
const MOST: usize = 1 << 15;

/// Records looked at for each one that is added, to find those that are no longer in use: four, so
/// that all are looked at before a quarter of them has been added.
const LOOKS: usize = 4;

/// The number of no record.
pub(super) const NONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Record<T> {
    /// Its hash, or nothing if it is not in use.
    key: Option<u64>,
    value: T,
    /// The next record with the same bucket, or the next one that is not in use.
    behind: u16,
}

/// Records by a hash of 64 bits that is theirs alone.
#[derive(Debug)]
pub(super) struct Records<T> {
    all: Vec<Record<T>>,
    /// The first record of each bucket.
    buckets: Box<[u16]>,
    unused: u16,
    /// The record that is looked at next.
    hand: usize,
}

impl<T> Records<T> {
    pub fn new() -> Records<T> {
        Records { all: Vec::new(), buckets: [NONE].into(), unused: NONE, hand: 0 }
    }

    /// Number of records, with those that are not in use.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of the record with this hash, or [`NONE`].
    #[inline]
    pub fn find(&self, key: u64) -> u16 {
        let mut at = self.buckets[self.bucket(key)];
        while let Some(record) = self.all.get(usize::from(at))
            && record.key != Some(key)
        {
            at = record.behind;
        }
        at
    }

    #[inline]
    pub fn get(&self, at: u16) -> Option<&T> {
        self.all.get(usize::from(at)).map(|record| &record.value)
    }

    #[inline]
    pub fn get_mut(&mut self, at: u16) -> Option<&mut T> {
        self.all.get_mut(usize::from(at)).map(|record| &mut record.value)
    }

    /// Adds a record and returns its number. `until` says up to when a record is in use, or nothing
    /// if it no longer is. If there are too many, one of those that are so for the shortest time is
    /// displaced.
    pub fn insert(&mut self, key: u64, value: T, until: impl Fn(&T) -> Option<u64>) -> u16 {
        let mut least = (u64::MAX, 0);
        for _ in 0..LOOKS.min(self.all.len()) {
            let at = self.hand;
            self.hand = (at + 1) % self.all.len();
            let record = &self.all[at];
            match record.key.map(|key| (key, until(&record.value))) {
                None => {}
                Some((key, None)) => self.remove(at as u16, key),
                Some((_, Some(end))) => least = least.min((end, at)),
            }
        }
        if self.unused == NONE && self.all.len() >= MOST {
            let at = least.1;
            if let Some(key) = self.all[at].key {
                self.remove(at as u16, key);
            }
        }
        let bucket = self.bucket(key);
        let record = Record { key: Some(key), value, behind: self.buckets[bucket] };
        let at = self.unused;
        match self.all.get_mut(usize::from(at)) {
            Some(place) => {
                self.unused = place.behind;
                *place = record;
                self.buckets[bucket] = at;
                at
            }
            None => self.grow(record),
        }
    }

    /// Adds a record behind all others.
    fn grow(&mut self, record: Record<T>) -> u16 {
        let at = self.all.len();
        self.all.push(record);
        if self.all.len() > self.buckets.len() {
            self.buckets = vec![NONE; 2 * self.all.len().next_power_of_two()].into();
            for at in 0..at {
                if let Some(key) = self.all[at].key {
                    self.link(at as u16, key);
                }
            }
        }
        if let Some(key) = self.all[at].key {
            self.link(at as u16, key);
        }
        at as u16
    }

    /// Puts a record in front of its bucket.
    fn link(&mut self, at: u16, key: u64) {
        let bucket = self.bucket(key);
        self.all[usize::from(at)].behind = core::mem::replace(&mut self.buckets[bucket], at);
    }

    fn remove(&mut self, at: u16, key: u64) {
        let behind = self.all[usize::from(at)].behind;
        let bucket = self.bucket(key);
        match self.buckets[bucket] {
            first if first == at => self.buckets[bucket] = behind,
            mut before => {
                while let Some(record) = self.all.get_mut(usize::from(before)) {
                    if record.behind == at {
                        record.behind = behind;
                        break;
                    }
                    before = record.behind;
                }
            }
        }
        let record = &mut self.all[usize::from(at)];
        (record.key, record.behind) = (None, self.unused);
        self.unused = at;
    }

    /// The number of buckets is a power of two.
    fn bucket(&self, key: u64) -> usize {
        key as usize & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares the records with a map. Each is in use for a time.
        #[test]
        fn each_is_found_while_in_use(
            steps in prop::collection::vec((0u64..400, 1u64..300), 1..2_000), low_bits in 0..8u32,
        ) {
            let mut records = Records::new();
            let mut model = BTreeMap::new();
            let mut most = 0;
            for (now, (id, time)) in (0..).zip(steps) {
                // Some share a bucket.
                let key = id << low_bits;
                let at = match records.find(key) {
                    NONE => records.insert(key, (key, 0), |&(_, end)| (end > now).then_some(end)),
                    at => at,
                };
                *records.get_mut(at).unwrap() = (key, now + time);
                model.insert(key, now + time);
                model.retain(|_, end| *end > now);
                most = most.max(model.len());
                for (key, end) in &model {
                    prop_assert_eq!(records.get(records.find(*key)), Some(&(*key, *end)));
                }
                prop_assert!(records.len() <= 2 * most + LOOKS, "{} of {most}", records.len());
            }
        }
    }

    #[test]
    fn the_one_in_use_for_the_shortest_time_is_displaced() {
        let ends = |key: &u64| Some(1_000_000 - key);
        let mut records = Records::new();
        for key in 0..MOST as u64 {
            records.insert(key, key, ends);
        }
        // Of the ones that are looked at, the last is in use for the shortest time.
        let last = (records.hand + LOOKS - 1) as u64;
        records.insert(1 << 40, 0, ends);
        assert_eq!((records.len(), u64::from(records.find(1 << 40))), (MOST, last));
        assert_eq!(records.find(last), NONE);
        assert!((0..MOST as u64).all(|key| key == last || u64::from(records.find(key)) == key));
    }
}
