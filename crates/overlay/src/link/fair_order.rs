//! An order that is fair to the sources of packets: start-time fair queueing (Goyal, Vin and Cheng
//! 1996).
//!
//! Each packet has a number: where the bytes of its source before it end, counted as if each source
//! had a link of its own. Packets leave in the order of these numbers, so that sources with packets
//! waiting send equally many bytes, and one that sends less waits behind at most one packet of each
//! of the others.

use super::turns::Assignment;
use core::time::Duration;
use trunkline_base::Time;

/// Time over which the pace is measured.
const SAMPLE: Duration = Duration::from_millis(50);

/// Buckets of sources, and places in each. A full bucket forgets the source that has sent least.
const BUCKETS: usize = 64;
const PLACES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Record {
    id: u32,
    /// Where the bytes of the source end.
    end: u64,
}

/// The numbers of sources' packets.
#[derive(Debug)]
pub(super) struct FairOrder {
    records: Box<[[Record; PLACES]; BUCKETS]>,
    /// Number of the last packet that has left, and the highest end.
    position: u64,
    highest: u64,
    /// Position at an earlier time, and the bytes per second by which it has advanced before.
    sample: (Time, u64),
    pace: u64,
    assignment: Assignment,
}

impl FairOrder {
    pub fn new(secret: u64) -> FairOrder {
        FairOrder {
            records: Box::new([[Record { id: 0, end: 0 }; PLACES]; BUCKETS]),
            position: 0,
            highest: 0,
            sample: (Time::ZERO, 0),
            pace: 0,
            assignment: Assignment(secret),
        }
    }

    /// Forgets what the sources have sent.
    pub fn restart(&mut self, now: Time) {
        self.position = self.highest;
        (self.sample, self.pace) = ((now, self.position), 0);
    }

    /// The number of a packet of `cost` bytes from the source `id`.
    pub fn number(&mut self, id: u32, cost: usize) -> u64 {
        let position = self.position;
        let record = self.record(id);
        let start = record.end.max(position);
        record.end = start + cost as u64;
        self.highest = self.highest.max(start + cost as u64);
        start
    }

    /// How long a packet of the source `id` would wait behind the source's others; zero until the
    /// pace is known.
    pub fn wait(&mut self, id: u32) -> Duration {
        let (position, pace) = (self.position, self.pace);
        if pace == 0 {
            return Duration::ZERO;
        }
        let ahead = self.record(id).end.saturating_sub(position);
        Duration::from_nanos(ahead.saturating_mul(1_000_000_000) / pace)
    }

    /// Notes that the packet with this number leaves.
    pub fn leaves(&mut self, now: Time, number: u64) {
        self.position = self.position.max(number);
        let (then, before) = self.sample;
        let time = now.since(then);
        if time >= SAMPLE {
            let nanos = time.as_nanos() as u64;
            self.pace = (self.position - before).saturating_mul(1_000_000_000) / nanos;
            self.sample = (now, self.position);
        }
    }

    fn record(&mut self, id: u32) -> &mut Record {
        let bucket = &mut self.records[self.assignment.source(id) % BUCKETS];
        let known = bucket.iter().position(|record| record.id == id);
        let least = || bucket.iter().zip(0..).min_by_key(|(record, _)| record.end);
        let n = known.or_else(|| least().map(|(_, n)| n)).unwrap_or(0);
        if known.is_none() {
            bucket[n] = Record { id, end: 0 };
        }
        &mut bucket[n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Bytes that each source sends over a link of 1 byte/µs, where each offers packets of a size in
    /// bytes at a distance in microseconds.
    fn shares(sources: &[(u32, u64, u64)]) -> Vec<u64> {
        let mut fair = FairOrder::new(7);
        let mut queue = BTreeSet::new();
        let mut sent = vec![0; sources.len()];
        let mut free = 0;
        for us in 0..2_000_000u64 {
            let now = Time::from_nanos(1_000 * us);
            for (n, &(id, size, every)) in sources.iter().enumerate() {
                if us % every == 0 {
                    queue.insert((fair.number(id, size as usize), us, n));
                }
            }
            if us >= free
                && let Some((number, _, n)) = queue.pop_first()
            {
                fair.leaves(now, number);
                sent[n] += sources[n].1;
                free = us + sources[n].1;
            }
        }
        sent
    }

    #[test]
    fn sources_share_equally_what_others_leave() {
        // A tenth of the link, beside one that fills it and one that fills it four times.
        let sent = shares(&[(1, 100, 1_000), (2, 1_000, 1_000), (3, 500, 125)]);
        assert_eq!(sent[0], 200_000, "{sent:?}");
        for n in [1, 2] {
            assert!((890_000..910_000).contains(&sent[n]), "{sent:?}");
        }
    }

    #[test]
    fn many_sources_of_a_packet_each_are_served_in_the_order_of_arrival() {
        let mut fair = FairOrder::new(7);
        fair.number(5, 10_000);
        for id in 1_000..5_096 {
            assert_eq!(fair.number(id, 100), 0);
        }
    }

    #[test]
    fn the_wait_follows_from_the_pace() {
        let mut fair = FairOrder::new(7);
        fair.restart(Time::ZERO);
        for n in 0..100u64 {
            let number = fair.number(1, 1_000);
            assert_eq!(fair.wait(1), Duration::ZERO);
            if n < 50 {
                fair.leaves(Time::from_millis(n), number);
            }
        }
        // 1,000 bytes a millisecond, and 51,000 of them wait.
        fair.leaves(Time::from_millis(50), 50_000);
        assert_eq!(fair.wait(1), Duration::from_millis(50));
        assert_eq!(fair.wait(2), Duration::ZERO);
        fair.restart(Time::from_millis(60));
        assert_eq!((fair.wait(1), fair.number(1, 10)), (Duration::ZERO, 100_000));
    }
}
