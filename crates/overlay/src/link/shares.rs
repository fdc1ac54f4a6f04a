//! Shares of sources in a queue that has another order than turns.
//!
//! While packets wait there for too long, what the link takes is divided as water fills vessels
//! (max-min fairness, Bertsekas & Gallager 1992, 6.5.2): up to a level that is the same for all,
//! and none gets more than it sends. A source below the level is refused nothing, whatever the others
//! send and whatever lifetimes their packets have.

use super::turns::Assignment;
use core::time::Duration;
use trunkline_base::Time;

/// Wait from which the queue is too long: that of a packet behind one of another service on a link
/// of 0.5 Mbit/s. The queue must also have been in use for this long.
const CROWDED: Duration = Duration::from_millis(20);
/// Time for which packets may wait before any source's are counted: those that came in one batch
/// leave in this time.
const BRIEF: Duration = Duration::from_millis(2);
/// Time over which the sources' bytes are counted.
const EPOCH: Duration = Duration::from_secs(1);
/// Time of an epoch after which its bytes say enough to be compared, and how often that is done then.
const ENOUGH: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_millis(50);
/// Time without a long wait and without a refusal after which all may send again.
const CALM: Duration = Duration::from_millis(500);
/// Burst that a source may send at once, in the time that its share takes.
const BURST: Duration = Duration::from_millis(40);
const LEAST_BURST: f64 = 3_000.0;
/// Bytes above the level that may be chance, in the time that they take: what was counted in an epoch
/// may still wait.
const CHANCE: Duration = Duration::from_millis(60);

/// Buckets of sources, and places in each. When a bucket is full, the source that has sent least
/// there makes room: it is below the level.
const BUCKETS: usize = 64;
const PLACES: usize = 4;

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It waits like all others.
    Waits,
    /// Its source is below the level, and others are not: it goes before theirs, which may already
    /// fill the queue.
    GoesFirst,
    /// Its source has had its share.
    Refused,
}

/// The bytes of one source.
#[derive(Clone, Copy, Debug)]
struct Record {
    id: u32,
    /// The epoch in which it has sent, and how many bytes, with those that were refused.
    epoch: u64,
    offered: u32,
    /// Whether it was above the level in the epoch before.
    was_over: bool,
    /// Bytes that it may send at `refilled`, once it is above the level.
    tokens: f32,
    refilled: Time,
}

impl Record {
    const NOBODY: Record =
        Record { id: 0, epoch: 0, offered: 0, was_over: false, tokens: 0.0, refilled: Time::ZERO };
}

/// Bytes that each source has sent lately over a queue that has another order.
#[derive(Debug)]
pub(super) struct Shares {
    records: Box<[[Record; PLACES]; BUCKETS]>,
    /// Number of the present epoch, from 1, and when it began.
    epoch: u64,
    began: Time,
    /// Bytes that have left in it.
    left: u64,
    /// Whether a packet has waited for too long in it and was dropped.
    has_expired: bool,
    /// Number of sources that have sent in it, and in the one before.
    sources: u32,
    sources_before: u32,
    /// The most that a source may send, in bytes per second.
    level: f64,
    /// When to compute it again.
    next_level: Time,
    /// Until when the level holds.
    crowded_until: Time,
    assignment: Assignment,
}

impl Shares {
    pub fn new(secret: u64) -> Shares {
        Shares {
            records: Box::new([[Record::NOBODY; PLACES]; BUCKETS]),
            epoch: 1,
            began: Time::ZERO,
            left: 0,
            has_expired: false,
            sources: 0,
            sources_before: 0,
            level: f64::INFINITY,
            next_level: Time::NEVER,
            crowded_until: Time::ZERO,
            assignment: Assignment(secret),
        }
    }

    /// Takes a packet of `cost` bytes from the source with number `id`. `wait` is how long the packet
    /// that goes next has waited; `None` if there is none, so that this one delays no other.
    pub fn admit(&mut self, now: Time, id: u32, cost: usize, wait: Option<Duration>) -> Admission {
        if now >= self.crowded_until {
            if wait.is_none() {
                self.begin(now);
            }
            if now.since(self.began) < BRIEF {
                return Admission::Waits;
            }
        }
        if now.since(self.began) >= EPOCH {
            if now < self.crowded_until {
                self.set_level(now);
            }
            self.begin(now);
        }
        let at = self.place(id);
        let record = &mut self.records[at.0][at.1];
        record.offered = record.offered.saturating_add(cost as u32);
        let is_long = wait.is_some_and(|wait| wait > CROWDED);
        if (is_long || self.has_expired) && now.since(self.began) >= CROWDED {
            if now >= self.crowded_until {
                self.next_level = now;
            }
            self.crowded_until = now + CALM;
        }
        // One alone takes nothing from anybody.
        let are_several = self.sources.max(self.sources_before) > 1;
        if wait.is_none() || now >= self.crowded_until || !are_several {
            return Admission::Waits;
        }
        if now >= self.next_level {
            self.set_level(now);
        }
        // There may be enough for all.
        if self.level == f64::INFINITY {
            return Admission::Waits;
        }
        if !self.is_over(now, at) {
            return Admission::GoesFirst;
        }
        if !is_long || self.spend(now, at, cost) {
            return Admission::Waits;
        }
        self.crowded_until = now + CALM;
        Admission::Refused
    }

    /// Counts a packet that leaves.
    pub fn leaves(&mut self, cost: usize) {
        self.left += cost as u64;
    }

    /// Notes that a packet has waited for too long.
    pub fn expired(&mut self) {
        self.has_expired = true;
    }

    fn begin(&mut self, now: Time) {
        self.epoch += 1;
        self.sources_before = if now.since(self.began) < 2 * EPOCH { self.sources } else { 0 };
        (self.began, self.left, self.has_expired, self.sources) = (now, 0, false, 0);
        self.next_level = now + ENOUGH;
    }

    /// Where the record of a source is, which counts in the present epoch from now on.
    fn place(&mut self, id: u32) -> (usize, usize) {
        let bucket = self.assignment.source(id) % BUCKETS;
        let epoch = self.epoch;
        let sent = |record: &Record| (record.epoch + 1 >= epoch, record.offered);
        let records = &mut self.records[bucket];
        let known = records.iter().position(|record| record.id == id && record.epoch != 0);
        let least = || records.iter().zip(0..).min_by_key(|(record, _)| sent(record));
        let n = known.or_else(|| least().map(|(_, n)| n)).unwrap_or(0);
        let record = &mut records[n];
        self.sources += u32::from(known.is_none() || record.epoch != epoch);
        if known.is_none() {
            *record = Record { id, epoch, ..Record::NOBODY };
        } else if record.epoch != epoch {
            record.was_over &= record.epoch + 1 == epoch;
            (record.epoch, record.offered) = (epoch, 0);
        }
        (bucket, n)
    }

    /// Whether a source sends more than the level, or did in the epoch before.
    fn is_over(&self, now: Time, (bucket, n): (usize, usize)) -> bool {
        let record = &self.records[bucket][n];
        let time = now.since(self.began).max(BURST) + CHANCE;
        record.was_over || f64::from(record.offered) > self.level * time.as_secs_f64()
    }

    /// Whether a source that sends at the level may send `cost` bytes now.
    fn spend(&mut self, now: Time, (bucket, n): (usize, usize), cost: usize) -> bool {
        let record = &mut self.records[bucket][n];
        let burst = (self.level * BURST.as_secs_f64()).max(LEAST_BURST);
        let more = self.level * now.since(record.refilled).as_secs_f64();
        let tokens = (f64::from(record.tokens) + more).min(burst);
        let has_enough = tokens >= cost as f64;
        record.tokens = (tokens - if has_enough { cost as f64 } else { 0.0 }) as f32;
        record.refilled = now;
        has_enough
    }

    /// Computes the level at which the sources of this epoch send as much as has left in it.
    fn set_level(&mut self, now: Time) {
        self.next_level = now + AGAIN;
        let epoch = self.epoch;
        let mut all = [0; BUCKETS * PLACES];
        let mut count = 0;
        for record in self.records.iter().flatten().filter(|record| record.epoch == epoch) {
            all[count] = u64::from(record.offered);
            count += 1;
        }
        let level = water_level(&mut all[..count], self.left);
        let seconds = now.since(self.began).max(Duration::from_millis(1)).as_secs_f64();
        self.level = level.map_or(f64::INFINITY, |bytes| bytes as f64 / seconds);
        let most = self.level * (seconds + CHANCE.as_secs_f64());
        for record in self.records.iter_mut().flatten() {
            record.was_over = record.epoch == epoch && f64::from(record.offered) > most;
        }
    }
}

/// The level up to which each of `all` may have some of `bytes` so that all of it is taken; `None` if
/// there is enough for all.
fn water_level(all: &mut [u64], bytes: u64) -> Option<u64> {
    if all.iter().sum::<u64>() <= bytes {
        return None;
    }
    all.sort_unstable();
    let mut rest = bytes;
    for (n, &wanted) in all.iter().enumerate() {
        let each = rest / (all.len() - n) as u64;
        if wanted > each {
            return Some(each);
        }
        rest -= wanted;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_by_hand() {
        assert_eq!(water_level(&mut [], 5), None);
        assert_eq!(water_level(&mut [9], 5), Some(5));
        assert_eq!(water_level(&mut [2, 3], 5), None);
        assert_eq!(water_level(&mut [90, 20], 50), Some(30));
        assert_eq!(water_level(&mut [90, 80, 1], 51), Some(25));
        assert_eq!(water_level(&mut [7, 7], 0), Some(0));
    }

    /// Sources by number, each with a packet of 1,000 bytes every so many microseconds, beside one
    /// another on a link of 1 byte/µs whose queue is always too long. Returns the packets of each that
    /// were offered, and of these the accepted ones.
    fn beside(sources: &[(u32, u64)], seconds: u64) -> Vec<(u32, u32)> {
        let mut shares = Shares::new(0x1234_5678_9abc_def1);
        let mut counts = vec![(0, 0); sources.len()];
        let mut queue = 0u64;
        for us in 0..seconds * 1_000_000 {
            let now = Time::from_nanos(1_000_000_000 + 1_000 * us);
            for (&(id, every), (offered, accepted)) in sources.iter().zip(&mut counts) {
                if us % every == 0 {
                    *offered += 1;
                    let wait = (queue > 0).then(|| Duration::from_micros(queue));
                    let is_taken = shares.admit(now, id, 1_000, wait) != Admission::Refused;
                    *accepted += u32::from(is_taken);
                    queue += if is_taken { 1_000 } else { 0 };
                }
            }
            // Packets that can't be in time are given up.
            if queue > 50_000 {
                (queue, shares.has_expired) = (50_000, true);
            }
            if queue > 0 {
                queue -= 1;
                shares.leaves(1);
            }
        }
        counts
    }

    #[test]
    fn one_below_the_level_is_refused_nothing() {
        // Half of the link beside twice to sixteen times the link, and quiet sources.
        for flood in [900, 500, 250, 62] {
            let all = beside(&[(1, 2_100), (2, flood), (3, 100_000), (4, 99_000)], 10);
            for n in [0, 2, 3] {
                assert!(all[n].0 - all[n].1 <= all[n].0 / 100, "{flood}: {all:?}");
            }
            let got = f64::from(all[1].1) / 10_000.0;
            assert!((0.40..0.56).contains(&got), "{flood}: {all:?}");
        }
    }

    /// A queue that was too long for a moment, and is in use ever since: its order is as it was.
    #[test]
    fn where_there_is_enough_for_all_nobody_goes_first() {
        let mut shares = Shares::new(0x1234_5678_9abc_def1);
        for n in 0..1_000u64 {
            let now = Time::from_millis(1_000 + n);
            let wait = Duration::from_millis(if n < 40 { n } else { 1 });
            let admission = shares.admit(now, (n % 2) as u32, 100, Some(wait));
            shares.leaves(200);
            assert_eq!(admission, Admission::Waits, "{n} ms");
        }
        assert!(shares.crowded_until > Time::from_millis(1_500), "it was crowded");
    }

    #[test]
    fn equal_sources_have_equal_shares() {
        let all = beside(&[(1, 700), (2, 700), (3, 700)], 10);
        for (_, accepted) in &all {
            assert!((3_000..3_700).contains(accepted), "{all:?}");
        }
    }

    /// A source with little traffic does not answer for another one, whatever their numbers.
    #[test]
    fn nobody_answers_for_another() {
        for flooder in 1..200 {
            let all = beside(&[(1_000, 20_000), (flooder, 500), (2_000, 20_000)], 1);
            assert!([0, 2].iter().all(|&n| all[n].1 + 1 >= all[n].0), "{flooder}: {all:?}");
        }
    }
}
