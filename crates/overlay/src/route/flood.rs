//! Reliable flooding over one link: records that the neighbour does not have yet are sent, and
//! retransmitted until it acknowledges them (after RFC 2328, 13.3–13.6).
//!
//! A neighbour has a record if it acknowledges it or sends it. Recent changes go before records
//! that a new neighbour lacks, and both are paced, so that a whole database leaves room for voice.

use super::Limits;
use super::database::Database;
use super::stats::RouteStats;
use super::update::{FrameWriter, Key, Part};
use crate::wire::{ControlKind, NodeId};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use trunkline_base::{Pacer, Time};

/// Minimum time before a record is retransmitted.
const MIN_RETRANSMIT: Duration = Duration::from_millis(50);
/// Maximum of that time for a neighbour that acknowledges late.
const MAX_RETRANSMIT: Duration = Duration::from_secs(1);
/// Maximum time between retransmissions, reached if a neighbour will not accept a record.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of acknowledgements waiting to be sent; without one, the neighbour retransmits.
const MAX_ACKS: usize = 512;

/// A record to be sent to the neighbour.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due: Time,
    /// Time of the last transmission, if `tries` is not 0.
    sent: Time,
    tries: u8,
    class: Class,
}

impl Pending {
    fn new(due: Time, class: Class) -> Pending {
        Pending { due, sent: Time::ZERO, tries: 0, class }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    /// The record has just changed.
    Change,
    /// The neighbour is new, or has not acknowledged the record.
    Rest,
}

/// Received records with signatures that still have to be checked.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: VecDeque<(Box<[u8]>, Time)>,
    pub pacer: Pacer,
}

impl Inbox {
    fn new(limits: &Limits) -> Inbox {
        Inbox { queue: VecDeque::new(), pacer: limits.neighbour_pacer() }
    }

    /// Appends a record; false if the queue is full.
    pub fn push(&mut self, record: &[u8], now: Time, limits: &Limits) -> bool {
        let room = self.queue.len() < limits.max_queue;
        if room {
            self.queue.push_back((record.into(), now));
        }
        room
    }

    pub fn pop(&mut self) -> Option<(Box<[u8]>, Time)> {
        self.queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// State of flooding over one link.
#[derive(Debug)]
pub(super) struct Adjacency {
    pub neighbour: NodeId,
    pub path: u8,
    pub up: bool,
    pub rtt: Duration,
    pub inbox: Inbox,
    /// Sequence numbers of the records that the neighbour is known to have.
    known: BTreeMap<Key, u64>,
    pending: BTreeMap<Key, Pending>,
    /// The records of `pending` in the order of sending, once due.
    agenda: BTreeSet<(Class, Time, Key)>,
    acks: VecDeque<(Key, u64)>,
    pacer: Pacer,
    /// Time that the neighbour is given to acknowledge a record. A busy processor may delay it by
    /// much more than the link: retransmitting to it sooner would keep it busy.
    patience: Duration,
    /// Time of the last increase of `patience`.
    widened: Time,
}

impl Adjacency {
    pub fn new(neighbour: NodeId, path: u8, limits: &Limits) -> Adjacency {
        Adjacency {
            neighbour,
            path,
            up: false,
            rtt: Duration::ZERO,
            inbox: Inbox::new(limits),
            known: BTreeMap::new(),
            pending: BTreeMap::new(),
            agenda: BTreeSet::new(),
            acks: VecDeque::new(),
            pacer: limits.flood_pacer(),
            patience: MIN_RETRANSMIT,
            widened: Time::ZERO,
        }
    }

    /// Handles the neighbour coming up; one that has restarted has lost all records.
    pub fn up(&mut self, now: Time, restarted: bool, rtt: Duration, db: &Database) {
        self.down();
        self.up = true;
        self.rtt = rtt;
        if restarted {
            self.known.clear();
        }
        for (key, entry) in db.iter() {
            if self.known.get(&key).is_none_or(|&seq| seq < entry.seq) {
                self.schedule(key, Pending::new(now, Class::Rest));
            }
        }
    }

    pub fn down(&mut self) {
        self.up = false;
        self.pending.clear();
        self.agenda.clear();
        self.acks.clear();
        self.inbox.queue.clear();
    }

    fn schedule(&mut self, key: Key, item: Pending) {
        self.cancel(key);
        self.pending.insert(key, item);
        self.agenda.insert((item.class, item.due, key));
    }

    fn cancel(&mut self, key: Key) -> Option<Pending> {
        let item = self.pending.remove(&key)?;
        self.agenda.remove(&(item.class, item.due, key));
        Some(item)
    }

    /// Offers the neighbour a newer record that came from elsewhere, to be sent at `due`.
    pub fn offer(&mut self, due: Time, key: Key) {
        if !self.up {
            return;
        }
        let item = Pending::new(due, Class::Change);
        // Without the key that verifies it, the record would be refused. An introduction that was
        // sent but not acknowledged may be lost, or have arrived before the neighbour had the link
        // up.
        let introduction = Key { part: Part::Introduction, ..key };
        if let Some(&before) = self.pending.get(&introduction) {
            // No later than before: records that already wait must not overtake it.
            let due = due.min(before.due);
            self.schedule(introduction, Pending { due, class: Class::Change, ..before });
        }
        self.schedule(key, item);
    }

    /// Offers the neighbour a record as [`Adjacency::offer`] does, but no later than a previous
    /// version that it still lacks.
    pub fn offer_by(&mut self, due: Time, key: Key) {
        let before = self.pending.get(&key).map_or(due, |item| item.due);
        self.offer(due.min(before), key);
    }

    /// Sends the record `key` now, if it was offered for later.
    pub fn hasten(&mut self, now: Time, key: Key) {
        if self.pending.get(&key).is_some_and(|item| item.tries == 0 && item.due > now) {
            self.offer(now, key);
        }
    }

    /// Whether the neighbour is known to have the record in version `seq`.
    pub fn has(&self, key: Key, seq: u64) -> bool {
        self.known.get(&key).is_some_and(|&known| known >= seq)
    }

    /// Sends the stored record because the neighbour's version is older.
    pub fn correct(&mut self, now: Time, key: Key) {
        if !self.pending.contains_key(&key) {
            self.offer(now, key);
        }
    }

    /// Handles a record from the neighbour with `seq`, the stored version. If ours is on its way to
    /// the neighbour, that serves as the answer; otherwise an acknowledgement is due.
    pub fn heard(&mut self, key: Key, seq: u64) {
        self.known.insert(key, seq);
        let crossed = self.cancel(key).is_some_and(|item| item.tries > 0);
        if !crossed && self.acks.len() < MAX_ACKS {
            self.acks.push_back((key, seq));
        }
    }

    /// Handles the neighbour's acknowledgement of `seq`.
    pub fn acked(&mut self, now: Time, key: Key, seq: u64, db: &Database) {
        if db.get(key).is_none_or(|entry| entry.seq != seq) {
            return;
        }
        let known = self.known.insert(key, seq);
        match self.cancel(key) {
            Some(item) if item.tries == 1 && 2 * now.since(item.sent) < self.patience => {
                self.patience = (self.patience - self.patience / 8).max(MIN_RETRANSMIT);
            }
            // A second acknowledgement of one record: a copy of it was sent in vain.
            None if known == Some(seq) && now >= self.widened + self.patience => {
                self.patience = (2 * self.patience).min(MAX_RETRANSMIT);
                self.widened = now;
            }
            _ => {}
        }
    }

    /// Forgets `key`, which the database has dropped.
    pub fn forget(&mut self, key: Key) {
        self.known.remove(&key);
        self.cancel(key);
    }

    /// Time at which there is something to send.
    pub fn next_timeout(&self) -> Time {
        if !self.up {
            return Time::NEVER;
        }
        if !self.acks.is_empty() {
            return Time::ZERO;
        }
        let first = |class| {
            let from = (class, Time::ZERO, KEY_MIN);
            self.agenda.range(from..).next().map_or(Time::NEVER, |&(_, due, _)| due)
        };
        // The first record of Change may previously have been one of Rest: then it is due no
        // earlier.
        let due = first(Class::Change).min(first(Class::Rest));
        if due == Time::NEVER { due } else { due.max(self.pacer.next()) }
    }

    /// The next frame of at most `room` bytes, if there is one.
    pub fn poll(
        &mut self,
        now: Time,
        room: usize,
        db: &Database,
        stats: &mut RouteStats,
    ) -> Option<Vec<u8>> {
        if self.next_timeout() > now {
            return None;
        }
        let frame = self.poll_acks(room).or_else(|| self.poll_records(now, room, db, stats))?;
        stats.sent_bytes += frame.len() as u64;
        Some(frame)
    }

    fn poll_acks(&mut self, room: usize) -> Option<Vec<u8>> {
        if self.acks.is_empty() {
            return None;
        }
        let mut w = FrameWriter::new(ControlKind::Ack, room);
        while let Some(&(key, seq)) = self.acks.front() {
            if !w.ack(key, seq) {
                break;
            }
            self.acks.pop_front();
        }
        w.finish()
    }

    fn poll_records(
        &mut self,
        now: Time,
        room: usize,
        db: &Database,
        stats: &mut RouteStats,
    ) -> Option<Vec<u8>> {
        if !self.pacer.is_ready(now) {
            return None;
        }
        let mut w = FrameWriter::new(ControlKind::LinkState, room);
        for class in [Class::Change, Class::Rest] {
            let from = (class, Time::ZERO, KEY_MIN);
            let to = (class, now, KEY_MAX);
            while let Some(&(_, _, key)) = self.agenda.range(from..=to).next() {
                let Some(entry) = db.get(key) else {
                    self.forget(key);
                    continue;
                };
                if !w.fits(entry.bytes.len()) {
                    return self.sent(now, w);
                }
                w.record(&entry.bytes, entry.age(now));
                stats.sent += 1;
                let tries = self.pending.get(&key).map_or(0, |item| item.tries);
                stats.repeated += u64::from(tries > 0);
                let wait = (2 * self.rtt).max(self.patience).saturating_mul(1 << tries.min(8));
                let due = now + wait.min(LONGEST_WAIT);
                let tries = tries.saturating_add(1);
                self.schedule(key, Pending { due, sent: now, tries, class: Class::Rest });
            }
        }
        self.sent(now, w)
    }

    fn sent(&mut self, now: Time, w: FrameWriter) -> Option<Vec<u8>> {
        let frame = w.finish()?;
        self.pacer.spend(now, frame.len() as u32);
        Some(frame)
    }
}

const KEY_MIN: Key = Key { origin: NodeId(0), part: Part::Introduction };
const KEY_MAX: Key = Key { origin: NodeId(u32::MAX), part: Part::Links(u8::MAX) };

#[cfg(test)]
mod tests {
    use super::*;

    /// One record waits, and another follows: the introduction that both need stays in front.
    #[test]
    fn an_introduction_goes_before_all_records_that_need_it() {
        let mut adjacency = Adjacency::new(NodeId(2), 0, &Limits::default());
        adjacency.up = true;
        let key = |part| Key { origin: NodeId(1), part };
        let introduction = key(Part::Introduction);
        let (early, late) = (key(Part::Links(0)), key(Part::Links(1)));
        for (ms, offered) in [(1, introduction), (1, early), (5, late)] {
            adjacency.offer(Time::from_millis(ms), offered);
        }
        let order: Vec<Key> = adjacency.agenda.iter().map(|&(_, _, key)| key).collect();
        assert_eq!(order, [introduction, early, late]);
    }
}
