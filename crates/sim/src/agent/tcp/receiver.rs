//! The receiving half: reassembly, the contents of ACKs (RFC 2018, RFC 2883), and their timing (RFC
//! 5681, section 4.2).

use super::profile::{DelayedAck, Profile};
use super::ranges::Ranges;
use super::wire::{MAX_SACK, SackBlocks};
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_net::IpVersion;

/// Maximum number of separate ranges kept; data that would add another are not accepted.
const MAX_RANGES: usize = 4_096;

/// State of the receiving half: received data, and the next ACK.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Next number expected. The SYN has number 0.
    next: u64,
    /// Number of the FIN, once it has been seen.
    fin: Option<u64>,
    capacity: usize,
    /// Data received in order but not read yet.
    inbox: Vec<u8>,
    /// Data above `next`: byte `i` has number `next + i`, and is valid only if `held` contains that
    /// number.
    above: VecDeque<u8>,
    held: Ranges,
    /// Ranges out of order, most recently extended first.
    recent: VecDeque<(u64, u64)>,
    /// Data received twice, to be reported once (RFC 2883).
    duplicate: Option<(u64, u64)>,
    sack: bool,
    sack_fin: bool,
    rules: DelayedAck,
    quick: u32,
    mss: usize,
    /// Segments and bytes received since the last ACK.
    waiting: (u32, usize),
    ack_by: Time,
    ack_now: bool,
}

impl Receiver {
    /// Creates a receiver that expects the first byte of the stream.
    pub fn new(profile: &Profile, ip: IpVersion) -> Receiver {
        Receiver {
            next: 1,
            fin: None,
            capacity: profile.receive_buffer,
            inbox: Vec::new(),
            above: VecDeque::new(),
            held: Ranges::default(),
            recent: VecDeque::new(),
            duplicate: None,
            sack: false,
            sack_fin: profile.sack_fin,
            rules: profile.delayed_ack,
            quick: profile.delayed_ack.quick,
            mss: profile.full_segment(ip),
            waiting: (0, 0),
            ack_by: Time::NEVER,
            ack_now: false,
        }
    }

    /// Sets whether the peer accepts SACK blocks.
    pub fn use_sack(&mut self, sack: bool) {
        self.sack = sack;
    }

    /// Next number expected from the peer.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether everything up to the peer's FIN has arrived.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Receive window, in bytes.
    pub fn window(&self) -> usize {
        self.capacity.saturating_sub(self.inbox.len())
    }

    /// Hands over the data that arrived in order, and releases their buffer.
    pub fn read(&mut self, with: impl FnOnce(&[u8])) {
        if !self.inbox.is_empty() {
            // A nearly closed window is opening: an ACK announces it, so that the sender need not
            // probe.
            self.ack_now |= self.window() < 2 * self.mss;
            with(&self.inbox);
            self.inbox.clear();
        }
    }

    /// Processes data from number `start` on, followed by a FIN if `fin` is set.
    pub fn take(&mut self, now: Time, start: u64, data: &[u8], fin: bool) {
        let end = start + data.len() as u64;
        let last = end + u64::from(fin);
        if last == start {
            return;
        }
        let window_end = self.next + self.window() as u64;
        if last <= self.next || start > window_end {
            self.refuse(start, last);
            return;
        }
        if fin && self.fin.is_none() && end <= window_end {
            self.fin = Some(end);
        }
        // Data behind the FIN are ignored.
        let end = end.min(window_end).min(self.fin.unwrap_or(u64::MAX));
        let from = start.max(self.next);
        if start < self.next {
            self.duplicate = Some((start, self.next.min(last)));
            self.ack_now = true;
        }
        let data = &data[(from - start) as usize..end.max(from).saturating_sub(start) as usize];
        if from == self.next {
            self.append(now, data);
        } else {
            let has_fin = fin && self.sack_fin && self.fin == Some(from + data.len() as u64);
            self.hold(from, data, has_fin);
        }
        if self.fin == Some(self.next) {
            self.next += 1;
            self.ack_now = true;
        }
    }

    /// Rejects data that are old or beyond the window: they are only acknowledged.
    fn refuse(&mut self, start: u64, last: u64) {
        if last <= self.next {
            self.duplicate = Some((start, last));
        }
        self.ack_now = true;
    }

    fn append(&mut self, now: Time, data: &[u8]) {
        self.inbox.extend_from_slice(data);
        self.next += data.len() as u64;
        // Overlapping data are duplicates; the newer copy has been taken.
        let passed = data.len().min(self.above.len());
        self.above.drain(..passed);
        if self.held.is_empty() {
            self.above.clear();
            self.schedule(now, data.len());
            return;
        }
        self.ack_now = true;
        self.held.drop_below(self.next);
        let first = self.held.iter().next();
        if let Some((_, end)) = first.filter(|r| r.0 == self.next) {
            // The last number may be that of the FIN, which is no data.
            let data_end = end.min(self.fin.unwrap_or(u64::MAX));
            let len = (data_end - self.next) as usize;
            let (a, b) = self.above.as_slices();
            self.inbox.extend_from_slice(&a[..len.min(a.len())]);
            self.inbox.extend_from_slice(&b[..len.saturating_sub(a.len())]);
            self.above.drain(..len);
            self.next = data_end;
            self.held.drop_below(end);
        }
        // All that is still held begins above the next number, and so do its blocks.
        let next = self.next;
        self.recent.retain(|r| r.0 > next);
    }

    /// Stores data that arrived out of order, and the FIN after them if `has_fin` is set.
    fn hold(&mut self, from: u64, data: &[u8], has_fin: bool) {
        self.ack_now = true;
        let end = from + data.len() as u64 + u64::from(has_fin);
        if end == from || self.held.len() >= MAX_RANGES {
            return;
        }
        if self.held.covers(from, end) {
            self.duplicate = Some((from, end));
        }
        let at = (from - self.next) as usize;
        if self.above.len() < at + data.len() {
            self.above.resize(at + data.len(), 0);
        }
        let (a, b) = self.above.as_mut_slices();
        let in_a = a.len().saturating_sub(at).min(data.len());
        if in_a > 0 {
            a[at..at + in_a].copy_from_slice(&data[..in_a]);
        }
        let at_b = at.saturating_sub(a.len());
        b[at_b..at_b + data.len() - in_a].copy_from_slice(&data[in_a..]);
        let range = self.held.insert(from, end);
        self.recent.retain(|r| r.0 < range.0 || r.1 > range.1);
        self.recent.push_front(range);
        self.recent.truncate(MAX_SACK);
    }

    /// Schedules the ACK of data that arrived in order with none out of order; it may be delayed.
    fn schedule(&mut self, now: Time, bytes: usize) {
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + bytes);
        let (segments, waiting) = self.waiting;
        let second = if self.rules.by_bytes { waiting > self.mss } else { segments >= 2 };
        if self.quick > 0 || second || self.rules.wait.is_zero() {
            self.quick = self.quick.saturating_sub(1);
            self.ack_now = true;
        } else if self.ack_by == Time::NEVER {
            self.ack_by = now + self.rules.wait;
        }
    }

    /// Requests an immediate ACK.
    pub fn ack_at_once(&mut self) {
        self.ack_now = true;
    }

    /// Whether an ACK is due now.
    pub fn ack_is_due(&self, now: Time) -> bool {
        self.ack_now || self.ack_by <= now
    }

    /// Time at which a delayed ACK is due.
    pub fn ack_deadline(&self) -> Time {
        self.ack_by
    }

    /// Records that an ACK is sent. Returns its SACK blocks: a duplicate first, then the most
    /// recent ranges.
    pub fn acknowledged(&mut self, most: usize, wire: impl Fn(u64) -> u32) -> SackBlocks {
        (self.ack_now, self.ack_by, self.waiting) = (false, Time::NEVER, (0, 0));
        let mut blocks = SackBlocks::default();
        let duplicate = self.duplicate.take();
        if self.sack {
            let ranges = duplicate.into_iter().chain(self.recent.iter().copied());
            ranges.take(most).for_each(|(left, right)| blocks.push((wire(left), wire(right))));
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(r: &mut Receiver) -> Vec<(u32, u32)> {
        r.acknowledged(3, |n| n as u32).as_slice().to_vec()
    }

    fn receiver(profile: &Profile) -> Receiver {
        let mut r = Receiver::new(profile, IpVersion::V6);
        r.use_sack(true);
        r
    }

    #[test]
    fn the_latest_block_comes_first_and_a_duplicate_before_it() {
        let mut r = receiver(&Profile::linux_6());
        let mut take = |start: u64, len: usize| {
            r.take(Time::ZERO, start, &vec![1; len], false);
            assert!(r.ack_is_due(Time::ZERO));
            blocks(&mut r)
        };
        assert_eq!(take(101, 100), [(101, 201)]);
        assert_eq!(take(301, 100), [(301, 401), (101, 201)]);
        assert_eq!(take(501, 100), [(501, 601), (301, 401), (101, 201)]);
        assert_eq!(take(701, 100), [(701, 801), (501, 601), (301, 401)]);
        assert_eq!(take(201, 100), [(101, 401), (701, 801), (501, 601)]);
        assert_eq!(take(301, 50), [(301, 351), (101, 401), (701, 801)]);
        assert_eq!(take(1, 100), [(701, 801), (501, 601)]);
        assert_eq!(take(1, 100), [(1, 101), (701, 801), (501, 601)]);
        assert_eq!(r.next(), 401);
    }

    #[test]
    fn a_fin_behind_a_gap_is_reported_like_data() {
        for (profile, alone, with_data) in [
            (Profile::linux_6(), vec![(201, 202)], vec![(101, 202)]),
            (Profile::freebsd_5_4(), vec![], vec![(101, 201)]),
        ] {
            let mut r = receiver(&profile);
            r.take(Time::ZERO, 201, &[], true);
            assert!(r.ack_is_due(Time::ZERO));
            assert_eq!(blocks(&mut r), alone, "{}", profile.name);
            r.take(Time::ZERO, 101, &[2; 100], false);
            assert_eq!(blocks(&mut r), with_data, "{}", profile.name);
            r.take(Time::ZERO, 1, &[1; 100], false);
            assert_eq!((blocks(&mut r), r.next()), (vec![], 202), "{}", profile.name);
            let mut read = Vec::new();
            r.read(|bytes| read.extend_from_slice(bytes));
            assert_eq!(read, [[1; 100], [2; 100]].concat());
        }
    }

    #[test]
    fn acks_wait_as_the_profile_says() {
        let at = Time::from_millis;
        // Segments at 0 and 10 ms in order, and one at 20 ms behind a gap.
        for (profile, alone, two_small) in [
            (Profile::ns2_reno(), at(0), true),
            (Profile::freebsd_5_4(), at(100), true),
            (
                Profile {
                    delayed_ack: DelayedAck { quick: 0, ..Profile::linux_6().delayed_ack },
                    ..Profile::linux_6()
                },
                at(40),
                false,
            ),
        ] {
            let mut r = receiver(&profile);
            r.take(at(0), 1, &[0; 100], false);
            let due = if r.ack_is_due(at(0)) { at(0) } else { r.ack_deadline() };
            assert_eq!(due, alone, "{}", profile.name);
            r.take(at(10), 101, &[0; 100], false);
            assert_eq!(r.ack_is_due(at(10)), two_small, "{}", profile.name);
            r.take(at(10), 201, &vec![0; profile.full_segment(IpVersion::V6)], false);
            assert!(r.ack_is_due(at(10)));
            blocks(&mut r);
            r.take(at(20), 9_000, &[0; 100], false);
            assert!(r.ack_is_due(at(20)), "out of order, {}", profile.name);
        }
        let mut quick = receiver(&Profile::linux_6());
        let due = (0..20).map(|n| {
            quick.take(at(0), 1 + n, &[0], false);
            let due = quick.ack_is_due(at(0));
            if due {
                blocks(&mut quick);
            }
            due
        });
        assert_eq!(due.filter(|&due| due).count(), 16);
    }

    #[test]
    fn nothing_is_taken_beyond_the_window_or_the_fin() {
        let profile = Profile { receive_buffer: 1_000, ..Profile::linux_6() };
        let mut r = receiver(&profile);
        r.take(Time::ZERO, 1_100, &[1; 50], false);
        r.take(Time::ZERO, 901, &[2; 500], true);
        assert_eq!(blocks(&mut r), [(901, 1_001)]);
        r.take(Time::ZERO, 1, &[3; 900], false);
        assert_eq!((r.next(), r.window()), (1_001, 0));
        let mut read = Vec::new();
        r.read(|bytes| read.extend_from_slice(bytes));
        assert_eq!(read, [[3; 900].as_slice(), &[2; 100]].concat());
        assert_eq!(r.window(), 1_000);
        r.take(Time::ZERO, 1_001, &[4; 10], true);
        r.take(Time::ZERO, 1_011, &[5; 10], false);
        assert!(r.is_finished() && r.next() == 1_012);
    }
}
