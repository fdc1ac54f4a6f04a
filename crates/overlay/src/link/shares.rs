//! Shares of sources in a queue that has another order than turns.

use super::turns::{Assignment, SOURCES};
use core::time::Duration;
use trunkline_base::Time;

/// Time over which the shares of sources are compared: once to twice this long.
const EPOCH: Duration = Duration::from_millis(250);

/// Bytes that each source has sent lately over a queue that has another order. While the queue is
/// too long, nothing more is accepted of a source with more than an equal share.
#[derive(Debug)]
pub(super) struct Shares {
    /// Accepted bytes by queue of the source: in this epoch, and in the one before.
    now: Box<[u32; SOURCES]>,
    before: Box<[u32; SOURCES]>,
    /// Bytes of all sources in both epochs, and the number of sources that have sent any.
    all: u64,
    sources: u64,
    ends: Time,
    assignment: Assignment,
}

impl Shares {
    pub fn new(secret: u64) -> Shares {
        Shares {
            now: Box::new([0; SOURCES]),
            before: Box::new([0; SOURCES]),
            all: 0,
            sources: 0,
            ends: Time::ZERO,
            assignment: Assignment(secret),
        }
    }

    /// The place of the source with this number.
    pub fn source(&self, turn: u32) -> u8 {
        self.assignment.source(turn) as u8
    }

    /// Whether a source has sent clearly more than an equal share: by a quarter, so that sources
    /// with equal traffic never exceed it by chance.
    pub fn exceeds(&mut self, now: Time, source: u8) -> bool {
        self.turn(now);
        let sent = u64::from(self.of(source.into()));
        self.sources > 1 && 4 * sent * self.sources > 5 * self.all
    }

    /// Counts a packet of `len` bytes that was accepted.
    pub fn add(&mut self, now: Time, source: u8, len: usize) {
        self.turn(now);
        let source = usize::from(source);
        self.sources += u64::from(self.of(source) == 0);
        self.now[source] = self.now[source].saturating_add(len as u32);
        self.all += len as u64;
    }

    fn of(&self, source: usize) -> u32 {
        self.now[source].saturating_add(self.before[source])
    }

    /// Begins the next epoch, if it is time.
    fn turn(&mut self, now: Time) {
        if now < self.ends {
            return;
        }
        core::mem::swap(&mut self.now, &mut self.before);
        self.now.fill(0);
        if now >= self.ends + EPOCH {
            self.before.fill(0);
        }
        self.ends = now + EPOCH;
        self.all = self.before.iter().map(|&bytes| u64::from(bytes)).sum();
        self.sources = self.before.iter().filter(|&&bytes| bytes > 0).count() as u64;
    }
}
