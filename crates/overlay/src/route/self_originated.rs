//! This node's own records, and when they are sent.

use super::database::{Database, Entry};
use super::keys::Signer;
use super::update::{
    Advert, Introduction, Key, LINKS_PER_RECORD, MAX_FRAGMENTS, Part, Update, sign,
};
use super::{Config, Limits};
use crate::wire::NodeId;
use trunkline_base::Time;

const FRAGMENTS: usize = MAX_FRAGMENTS as usize;
/// Maximum number of links that a node can advertise.
pub(super) const MAX_LINKS: usize = FRAGMENTS * LINKS_PER_RECORD;
/// More sequence numbers than a node uses in one life, yet a short time (4.3 s) on the scale of
/// other nodes' numbers.
const LEAP: u64 = 1 << 32;

/// Position of the introduction among the parts.
const INTRODUCTION: usize = FRAGMENTS;

/// The records of this node.
#[derive(Debug)]
pub(super) struct SelfOriginated {
    id: NodeId,
    /// The last sequence number used.
    seq: u64,
    /// Distance to jump beyond the numbers of an earlier life; no two lives use the same one.
    leap: u64,
    pub draining: bool,
    digest: u32,
    certificate: Option<Vec<u8>>,
    /// Parts to be signed again, even if their content is unchanged.
    renew: [bool; FRAGMENTS + 1],
    /// Time to look for changes; never if there are none.
    pub due: Time,
    /// Earliest time of the next update.
    earliest: Time,
    refresh_at: Time,
}

impl SelfOriginated {
    /// Creates the records; `seq` is where sequence numbers start: the node's wall clock in
    /// nanoseconds.
    pub fn new(config: &Config, seq: u64, now: Time) -> SelfOriginated {
        let mut own = SelfOriginated {
            id: config.id,
            seq,
            leap: LEAP + seq % LEAP,
            draining: false,
            digest: config.cost.digest(),
            certificate: config.certificate.clone(),
            renew: [false; FRAGMENTS + 1],
            due: now,
            earliest: now,
            refresh_at: now,
        };
        own.refresh(now, &config.limits);
        own
    }

    /// Records that something has changed.
    pub fn touch(&mut self, now: Time) {
        self.due = self.due.min(now.max(self.earliest));
    }

    /// Replaces the certificate in the introduction.
    pub fn introduce(&mut self, now: Time, certificate: Vec<u8>, limits: &Limits) {
        self.certificate = Some(certificate);
        // Nodes that found the previous certificate expired have forgotten our links, too.
        self.refresh(now, limits);
    }

    /// Handles a record of this node that is newer than its own: from an earlier life, when the
    /// clock was ahead of today's. The next number must exceed it, and all numbers that life has
    /// used since, even in records that are elsewhere: two records with the same number would both
    /// persist.
    pub fn supersede(&mut self, now: Time, part: Part, seq: u64) {
        if seq > self.seq {
            self.seq = seq.saturating_add(self.leap);
        }
        self.renew[place(part)] = true;
        self.touch(now);
    }

    pub fn next_timeout(&self) -> Time {
        self.due.min(self.refresh_at)
    }

    /// Schedules all records to be signed again before other nodes drop them.
    pub fn refresh(&mut self, now: Time, limits: &Limits) {
        self.refresh_at = now + limits.refresh;
        self.renew[0] = true;
        self.renew[INTRODUCTION] = self.certificate.is_some();
        self.touch(now);
    }

    pub fn refresh_due(&self, now: Time) -> bool {
        self.refresh_at <= now
    }

    /// The records to advertise, for the present `links` (ascending).
    pub fn originate(
        &mut self,
        now: Time,
        links: &[Advert],
        db: &Database,
        limits: &Limits,
        signer: &dyn Signer,
    ) -> Vec<Box<[u8]>> {
        self.due = Time::NEVER;
        self.earliest = now + limits.own_interval;
        let mut out = Vec::new();
        if core::mem::take(&mut self.renew[INTRODUCTION]) {
            out.extend(self.introduction(signer));
        }
        let mut chunks = links.chunks(LINKS_PER_RECORD);
        // All of a node's records are renewed together.
        let refresh = self.renew[0];
        for fragment in 0..MAX_FRAGMENTS {
            let chunk = chunks.next().unwrap_or_default();
            let key = Key { origin: self.id, part: Part::Links(fragment) };
            let last = db.get(key);
            let renew = core::mem::take(&mut self.renew[usize::from(fragment)]);
            let renew = renew || refresh && !chunk.is_empty();
            if renew || self.differs(last, chunk) {
                out.extend(self.update(fragment, chunk, signer));
            }
        }
        out
    }

    /// Whether the last record is out of date; no record means that there are no links.
    fn differs(&self, last: Option<&Entry>, links: &[Advert]) -> bool {
        match last {
            Some(entry) => (&*entry.links, entry.draining) != (links, self.draining),
            None => !links.is_empty(),
        }
    }

    fn update(&mut self, fragment: u8, links: &[Advert], signer: &dyn Signer) -> Option<Box<[u8]>> {
        let (origin, draining, links) = (self.id, self.draining, links.to_vec());
        let (seq, digest) = (self.next(), self.digest);
        let update = Update { origin, seq, fragment, draining, digest, links };
        Some(sign(update.emit().ok()?, signer))
    }

    fn introduction(&mut self, signer: &dyn Signer) -> Option<Box<[u8]>> {
        let certificate = self.certificate.clone()?;
        let introduction = Introduction { origin: self.id, seq: self.next(), certificate };
        Some(sign(introduction.emit().ok()?, signer))
    }

    fn next(&mut self) -> u64 {
        self.seq = self.seq.saturating_add(1);
        self.seq
    }
}

fn place(part: Part) -> usize {
    match part {
        Part::Introduction => INTRODUCTION,
        Part::Links(fragment) => usize::from(fragment) % FRAGMENTS,
    }
}
