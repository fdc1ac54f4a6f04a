//! The link-state database: the newest record of each kind of each node.

use super::Limits;
use super::stats::RefusedRecord;
use super::update::{Advert, Key, MAX_FRAGMENTS, Part, Record};
use crate::wire::NodeId;
use core::time::Duration;
use std::collections::BTreeMap;
use trunkline_base::{Pacer, Time};

/// Maximum lead of a sequence number, which starts at its node's wall clock, over this node's
/// clock: with the largest possible number, a node could never update its records again.
const FUTURE: u64 = 24 * 3_600 * 1_000_000_000;

/// Time that a refresh may take to arrive.
const GRACE: Duration = Duration::from_secs(60);

/// A stored record of a node.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub seq: u64,
    pub draining: bool,
    /// `None` in an introduction.
    digest: Option<u32>,
    pub links: Box<[Advert]>,
    /// The record as received, without its age.
    pub bytes: Box<[u8]>,
    came: Time,
    /// Age of the record on arrival. (Not the time of its signature, which may be before this
    /// clock's epoch.)
    age: Duration,
    /// Time at which it is dropped. The age is not signed, so a record lives at least until its
    /// origin's next refresh, however old a malicious neighbour makes it.
    expires: Time,
    /// Rate at which its origin may change it.
    pacer: Pacer,
}

impl Entry {
    /// Whether the record has expired without a refresh.
    pub fn is_over(&self, now: Time) -> bool {
        self.expires <= now
    }

    /// The whole record, as it is forwarded.
    pub fn record(&self, now: Time) -> Vec<u8> {
        [&*self.bytes, &self.age(now).to_be_bytes()].concat()
    }

    /// Seconds since its origin signed it.
    pub fn age(&self, now: Time) -> u16 {
        u16::try_from((self.age + now.since(self.came)).as_secs()).unwrap_or(u16::MAX)
    }
}

/// Result of comparing a record with the stored one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordFreshness {
    New,
    /// The same version is stored, with the same bytes or (`reused`) with other content.
    Here {
        reused: bool,
    },
    /// A newer version is stored.
    Older,
}

#[derive(Debug)]
pub(super) struct Database {
    entries: BTreeMap<Key, Entry>,
    /// Number of nodes with a stored record.
    nodes: usize,
}

impl Database {
    pub fn new() -> Database {
        Database { entries: BTreeMap::new(), nodes: 0 }
    }

    pub fn get(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Entry)> {
        self.entries.iter().map(|(&key, entry)| (key, entry))
    }

    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Compares `record` with the stored one, before anything in it is verified.
    pub fn standing(&self, record: &Record<'_>) -> RecordFreshness {
        let Some(entry) = self.entries.get(&record.key) else { return RecordFreshness::New };
        match record.seq.cmp(&entry.seq) {
            core::cmp::Ordering::Greater => RecordFreshness::New,
            core::cmp::Ordering::Equal => {
                RecordFreshness::Here { reused: record.bytes() != &*entry.bytes }
            }
            core::cmp::Ordering::Less => RecordFreshness::Older,
        }
    }

    /// Whether a new record may be accepted, provided that its signature is valid.
    pub fn admit(
        &self,
        record: &Record<'_>,
        now: Time,
        wall_ns: u64,
        limits: &Limits,
    ) -> Result<(), RefusedRecord> {
        let origin = record.key.origin;
        if record.seq > wall_ns.saturating_add(FUTURE) {
            return Err(RefusedRecord::TooFarAhead);
        }
        if Duration::from_secs(record.age.into()) >= limits.max_age {
            return Err(RefusedRecord::Expired);
        }
        if !self.has(origin) && self.nodes >= limits.max_nodes {
            return Err(RefusedRecord::TooManyNodes);
        }
        match self.entries.get(&record.key) {
            Some(entry) if !entry.pacer.is_ready(now) => Err(RefusedRecord::OriginRate),
            _ => Ok(()),
        }
    }

    /// Stores `record`. Returns whether it may change routes.
    pub fn insert(&mut self, record: &Record<'_>, now: Time, limits: &Limits) -> bool {
        let origin = record.key.origin;
        if !self.has(origin) {
            self.nodes += 1;
        }
        let old = self.entries.get(&record.key);
        let mut pacer = old.map_or_else(|| limits.origin_pacer(), |e| e.pacer);
        pacer.spend(now, 1);
        let links: Box<[Advert]> = record.links().collect();
        let changed = old.is_none_or(|e| (e.draining, &e.links) != (record.draining, &links));
        let age = Duration::from_secs(record.age.into());
        let left = limits.max_age.saturating_sub(age).max(limits.refresh + GRACE);
        let entry = Entry {
            seq: record.seq,
            draining: record.draining,
            digest: record.digest,
            links,
            bytes: record.bytes().into(),
            came: now,
            age,
            expires: now + left,
            pacer,
        };
        self.entries.insert(record.key, entry);
        changed
    }

    /// Whether any record of `origin` is stored.
    pub fn has(&self, origin: NodeId) -> bool {
        self.of(origin).next().is_some()
    }

    /// The stored records of `origin`.
    pub fn of(&self, origin: NodeId) -> impl Iterator<Item = (Key, &Entry)> {
        let first = Key { origin, part: Part::Introduction };
        let last = Key { origin, part: Part::Links(MAX_FRAGMENTS) };
        self.entries.range(first..last).map(|(&key, entry)| (key, entry))
    }

    /// The digest in the newest record of `origin` that has one.
    pub fn digest(&self, origin: NodeId) -> Option<u32> {
        let digests = self.of(origin).filter_map(|(_, entry)| Some((entry.seq, entry.digest?)));
        Some(digests.max()?.1)
    }

    /// Drops records that were not refreshed in time; returns their keys.
    pub fn expire(&mut self, now: Time) -> Vec<Key> {
        let old = self.entries.iter().filter(|(_, e)| e.is_over(now));
        let gone: Vec<Key> = old.map(|(&key, _)| key).collect();
        for key in &gone {
            self.remove(*key);
        }
        gone
    }

    /// Removes and returns a record.
    pub fn remove(&mut self, key: Key) -> Option<Entry> {
        let gone = self.entries.remove(&key)?;
        self.nodes -= usize::from(!self.has(key.origin));
        Some(gone)
    }
}
