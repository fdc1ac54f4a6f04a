//! Frames from neighbours: cheap comparisons first, then a queue and rate per neighbour, then
//! signatures, a few at a time.

use super::{Link, Router};
use crate::link::LinkId;
use crate::route::database::RecordFreshness;
use crate::route::stats::RefusedRecord;
use crate::route::update::{Key, Part, Record, RouteFrame};
use crate::wire::NodeId;
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;

/// Pause between two rounds of signature checks, if one is not enough.
const CHECK_PAUSE: Duration = Duration::from_millis(1);
/// Cost of an invalid signature to a neighbour, in records: an honest neighbour has checked it
/// before.
const INVALID_SIGNATURE_COST: u32 = 10;
/// Maximum number of unknown origins reported to an operator.
const MAX_UNKNOWN_PEERS: usize = 16;
/// Time for which an unknown origin is reported after its last record.
const STRANGE_FOR: Duration = Duration::from_secs(300);

impl Router {
    /// Takes a routing frame, whole as it was in an envelope from `link`. `wall_ns` is the present
    /// time in nanoseconds since 1970.
    pub fn recv(&mut self, now: Time, wall_ns: u64, link: LinkId, frame: &[u8]) {
        self.wake.set(None);
        self.wall = (wall_ns, now);
        let index = usize::from(link.0);
        if !self.link(link).is_some_and(|l| l.adjacency.up) {
            return self.refuse(now, index, RefusedRecord::LinkDown);
        }
        match RouteFrame::parse(frame) {
            Ok(RouteFrame::LinkState(records)) => {
                for record in records {
                    let taken = match record {
                        Ok(record) => self.queue(now, index, &record),
                        Err(_) => Err(RefusedRecord::Malformed),
                    };
                    if let Err(why) = taken {
                        self.refuse(now, index, why);
                    }
                }
            }
            Ok(RouteFrame::Ack(acks)) => {
                let Some(link) = &mut self.links[index] else { return };
                for (key, seq) in acks.iter() {
                    link.adjacency.acked(now, key, seq, &self.db);
                }
                let neighbour = link.adjacency.neighbour;
                self.confirm(now, neighbour);
            }
            Err(_) => self.refuse(now, index, RefusedRecord::Malformed),
        }
    }

    /// Queues a new record for the check of its signature, and answers any other record.
    fn queue(&mut self, now: Time, from: usize, record: &Record<'_>) -> Result<(), RefusedRecord> {
        self.sift(now, from, record)?;
        let limits = &self.config.limits;
        let Some(Link { adjacency, .. }) = &mut self.links[from] else { return Ok(()) };
        if !adjacency.inbox.pacer.is_ready(now) {
            return Err(RefusedRecord::NeighbourRate);
        }
        if !adjacency.inbox.push(record.whole(), now, limits) {
            return Err(RefusedRecord::QueueFull);
        }
        adjacency.inbox.pacer.spend(now, 1);
        Ok(())
    }

    /// Accepts only new records, as far as that can be decided without the signature.
    fn sift(&mut self, now: Time, from: usize, record: &Record<'_>) -> Result<(), RefusedRecord> {
        let Some(Link { adjacency, .. }) = &mut self.links[from] else { return Ok(()) };
        let own = record.key.origin == self.config.id;
        match self.db.standing(record) {
            RecordFreshness::New => {
                self.db.admit(record, now, self.wall_ns(now), &self.config.limits)
            }
            RecordFreshness::Here { reused: true } if own => Ok(()),
            RecordFreshness::Here { reused } => {
                adjacency.heard(record.key, record.seq);
                Err(if reused { RefusedRecord::Reused } else { RefusedRecord::Duplicate })
            }
            RecordFreshness::Older => {
                adjacency.correct(now, record.key);
                Err(RefusedRecord::Older)
            }
        }
    }

    /// Checks a limited number of signatures, of each neighbour in turn.
    pub(super) fn check(&mut self, now: Time) {
        let end = self.stats.checks + u64::from(self.config.limits.checks);
        let mut idle = 0;
        while idle < self.links.len() {
            if self.stats.checks >= end {
                self.check_at = now + CHECK_PAUSE;
                return;
            }
            self.turn = (self.turn + 1) % self.links.len();
            let from = self.turn;
            let next = self.links[from].as_mut().and_then(|l| l.adjacency.inbox.pop());
            let Some((bytes, came)) = next else {
                idle += 1;
                continue;
            };
            idle = 0;
            let Ok(mut record) = Record::parse(&mut Reader::new(&bytes)) else { continue };
            let waited = u16::try_from(now.since(came).as_secs()).unwrap_or(u16::MAX);
            record.age = record.age.saturating_add(waited);
            match self.sift(now, from, &record).and_then(|()| self.verify(now, &record)) {
                Ok(()) => self.accept(now, from, &record),
                Err(why) => self.refuse(now, from, why),
            }
        }
    }

    fn refuse(&mut self, now: Time, from: usize, why: RefusedRecord) {
        self.stats.refused.count(why);
        let Some(Some(link)) = self.links.get_mut(from) else { return };
        link.refused.count(why);
        if matches!(why, RefusedRecord::BadSignature | RefusedRecord::BadCertificate) {
            link.adjacency.inbox.pacer.spend(now, INVALID_SIGNATURE_COST);
        }
    }

    pub(super) fn verify(&mut self, now: Time, record: &Record<'_>) -> Result<(), RefusedRecord> {
        let Key { origin, part } = record.key;
        if part != Part::Introduction && !self.keys.knows(origin) {
            self.note_unknown_node(now, origin);
            return Err(RefusedRecord::UnknownOrigin);
        }
        self.stats.checks += if part == Part::Introduction { 2 } else { 1 };
        let wall_ns = self.wall_ns(now);
        record.verify(&mut *self.keys, wall_ns)
    }

    fn note_unknown_node(&mut self, now: Time, origin: NodeId) {
        // Anyone can name any origin, so the first to arrive get the slots.
        self.unknown_peers.retain(|_, at| now.since(*at) < STRANGE_FOR);
        if self.unknown_peers.len() < MAX_UNKNOWN_PEERS || self.unknown_peers.contains_key(&origin)
        {
            self.unknown_peers.insert(origin, now);
        }
    }

    /// Accepts a record that is authentic and new.
    fn accept(&mut self, now: Time, from: usize, record: &Record<'_>) {
        let Key { origin, part } = record.key;
        if origin == self.config.id {
            self.stats.superseded += 1;
            return self.own.supersede(now, part, record.seq);
        }
        self.stats.accepted += 1;
        self.keep(now, record, Some(from), now);
        self.confirm(now, origin);
    }
}
