//! Two ends over a channel that loses, duplicates, reorders and delays.

use super::buffer::{Budget, Memory};
use super::segment::{Body, Data};
use super::*;
use crate::session::SessionId;
use crate::session::wire::stream::Reset;
use crate::wire::NodeId;
use rand::RngExt;
use std::collections::BinaryHeap;
use trunkline_base::{Rng, Time};
use trunkline_rate::window;

mod opening;
mod overtaken;
mod table;

const ROOM: usize = 1_000;
const MAX: u64 = 256 << 10;

struct Side {
    end: End,
    all: Budget,
    peer: Budget,
    /// Data still to be written, number of bytes written, and data read.
    to_write: Vec<u8>,
    written: usize,
    credit: usize,
    read: Vec<u8>,
    /// Bytes read since credit was last given.
    unread: u64,
    ended: bool,
    /// Number of segments that this side has sent.
    segments: u64,
    /// The opener's number in a request that is still to be answered.
    asked: Option<u32>,
}

/// The numbers of the stream: its tag and its number.
const NUMBERS: (u16, u32) = (7, 9);
/// The opener's number in the tests below.
const OPENER: u32 = 11;

impl Side {
    fn new(opens: bool, to_write: Vec<u8>) -> Side {
        let config = window::Config { max: 2 * MAX, ..window::Config::new(ROOM + 84) };
        let (tx, rx) = (Sender::new(MAX, config), Receiver::new(MAX, 64 << 10));
        let key = Key { peer: NodeId(2), peer_port: 2, port: 1 };
        let owner = Owner::Session(SessionId(0));
        let end = match opens {
            true => End::opening(Time::ZERO, key, (7, OPENER), owner, tx, rx),
            false => End::opened(Time::ZERO, key, NUMBERS, owner, tx, rx),
        };
        let (all, peer) = (Budget::new(4 << 20), Budget::new(4 << 20));
        let (written, credit, read, unread, ended) = (0, 0, Vec::new(), 0, false);
        let (segments, asked) = (0, None);
        Side { end, all, peer, to_write, written, credit, read, unread, ended, segments, asked }
    }

    /// Runs the application: it writes as much as permitted, and reads available data.
    fn run(&mut self, now: Time, reads: bool) {
        let mut memory = Memory { all: &mut self.all, peer: &mut self.peer };
        if !self.end.is_open() {
            return;
        }
        self.credit += self.end.tx.grant(&mut memory) as usize;
        let more = (self.to_write.len() - self.written).min(self.credit);
        if more > 0 {
            let data = &self.to_write[self.written..self.written + more];
            self.end.tx.write(data, &mut memory).unwrap();
            self.written += more;
            self.credit -= more;
        }
        if self.written == self.to_write.len() {
            self.end.tx.shut();
        }
        while reads && !self.end.rx.readable().is_empty() {
            let bytes = self.end.rx.readable();
            let len = bytes.len();
            self.read.extend_from_slice(bytes);
            self.end.rx.took(now, len);
            self.unread += len as u64;
            if self.unread > 16 << 10 {
                assert!(self.end.rx.give_credit(core::mem::take(&mut self.unread)));
            }
        }
        if self.end.rx.is_at_end() {
            self.ended = true;
        }
    }

    fn abandon(&mut self) -> Result<(), Reset> {
        self.end.abandon(&mut Memory { all: &mut self.all, peer: &mut self.peer })
    }

    fn hear(&mut self, now: Time, bytes: &[u8], marked: bool) -> Result<SegmentOutcome, Reset> {
        let mut memory = Memory { all: &mut self.all, peer: &mut self.peer };
        let Ok(Segment::Body(body)) = Segment::parse(bytes) else { panic!("a body") };
        if body.is_request() {
            self.asked = body.opener;
        }
        if !self.end.is_from_peer(&body) {
            return Ok(SegmentOutcome::Copy);
        }
        self.end.on_segment(now, &body, marked, &mut memory)
    }

    /// The next segment to send: an answer to a request, which the node makes, or one of the end's.
    fn poll(&mut self, now: Time, room: usize, out: &mut [u8]) -> Option<usize> {
        let Some(opener) = self.asked.take() else { return self.end.poll(now, room, out) };
        Some(emit(out, answer(opener, NUMBERS.1)))
    }
}

fn emit(out: &mut [u8], body: Body<'_>) -> usize {
    let mut w = trunkline_base::wire::Writer::new(out);
    Segment::Body(body).emit_head(&mut w).unwrap();
    w.len()
}

/// The answer to a request to open a stream.
fn answer(opener: u32, number: u32) -> Body<'static> {
    let ack = Some(super::segment::Ack::new(0, 64, 0, 0));
    Body { opener: Some(opener), instance: Some(number), ack, ..Body::default() }
}

/// A segment of the stream without content.
fn of_stream() -> Body<'static> {
    Body { instance: Some(NUMBERS.1), ..Body::default() }
}

/// Behaviour of a channel towards segments.
#[derive(Clone, Copy, Default, Debug)]
struct Channel {
    /// Number of segments lost, of 1,000; likewise copied, delayed, and marked for congestion.
    loss: u32,
    copies: u32,
    late: u32,
    marks: u32,
    /// One-way delay, and additional delay of a late segment, in milliseconds.
    delay: u64,
    later: u64,
    /// Start and end of the time when nothing gets through, in milliseconds.
    cut: (u64, u64),
    /// Number of milliseconds in which the applications don't read, of 1,000.
    rests: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay(std::cmp::Reverse<(u64, u64)>, bool, usize, Vec<u8>);

/// Runs two ends until both have ended; returns the time taken in milliseconds.
fn run(sides: &mut [Side; 2], channel: Channel, rng: &mut Rng) -> u64 {
    let mut way: BinaryHeap<UnderWay> = BinaryHeap::new();
    let mut count = 0;
    let mut out = vec![0; 2_000];
    let mut ms = 0;
    while ms < 600_000 {
        let now = Time::from_millis(ms);
        while way.peek().is_some_and(|u| u.0.0.0 <= ms) {
            let UnderWay(_, marked, to, bytes) = way.pop().unwrap();
            if let Err(why) = sides[to].hear(now, &bytes, marked) {
                panic!("{why:?} of {:?}\n{:?}", Segment::parse(&bytes), sides[to].end);
            }
        }
        for (from, side) in sides.iter_mut().enumerate() {
            let reads = !rng.random_ratio(channel.rests, 1_000);
            side.run(now, reads);
            let Side { end, all, peer, .. } = side;
            end.handle_timeout(now, &mut Memory { all, peer }).unwrap();
            while let Some(len) = side.poll(now, ROOM, &mut out) {
                assert!(len <= ROOM);
                side.segments += 1;
                if rng.random_ratio(channel.loss, 1_000)
                    || (channel.cut.0..channel.cut.1).contains(&ms)
                {
                    continue;
                }
                let marked = rng.random_ratio(channel.marks, 1_000);
                for _ in 0..1 + u32::from(rng.random_ratio(channel.copies, 1_000)) {
                    let late = rng.random_ratio(channel.late, 1_000);
                    let at = ms
                        + channel.delay
                        + if late { rng.random_range(0..=channel.later) } else { 0 };
                    count += 1;
                    let key = std::cmp::Reverse((at, count));
                    way.push(UnderWay(key, marked, 1 - from, out[..len].to_vec()));
                }
            }
        }
        if sides.iter().all(|s| s.ended && s.end.is_over()) {
            return ms;
        }
        // Nothing happens until a timer expires, or something arrives.
        let timers = sides.iter().map(|s| s.end.next_timeout().as_nanos().div_ceil(1_000_000));
        let next = timers.chain(way.peek().map(|u| u.0.0.0)).min();
        ms = if channel.rests > 0 { ms + 1 } else { next.unwrap_or(ms).max(ms + 1) };
    }
    panic!("no end of it: {channel:?}, {:?}", sides.each_ref().map(|s| (s.read.len(), &s.end)));
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.random()).collect()
}

fn transfer(lens: [usize; 2], channel: Channel, seed: u64) -> (u64, [Side; 2]) {
    let mut rng = trunkline_base::rng(seed, 3);
    let mut sides = [true, false].map(|opens| {
        let len = lens[usize::from(!opens)];
        Side::new(opens, random_bytes(&mut rng, len))
    });
    let ms = run(&mut sides, channel, &mut rng);
    let [a, b] = &sides;
    assert!(a.read == b.to_write && b.read == a.to_write, "{channel:?}");
    (ms, sides)
}

#[test]
fn what_is_read_is_what_was_written_whatever_the_channel_does() {
    let mut rng = trunkline_base::rng(5, 5);
    for seed in 0..10_000 {
        let channel = Channel {
            loss: rng.random_range(0..200),
            copies: rng.random_range(0..100),
            late: rng.random_range(0..300),
            marks: rng.random_range(0..50),
            delay: rng.random_range(0..120),
            later: rng.random_range(0..200),
            cut: (rng.random_range(0..400), rng.random_range(0..1_500)),
            rests: if seed % 4 == 0 { 990 } else { 0 },
        };
        let lens = [rng.random_range(0..12_000), rng.random_range(0..4_000)];
        transfer(lens, channel, seed);
    }
}

/// With a window's worth of data in flight, the round trip is the only cost.
#[test]
fn a_clean_path_repeats_nothing_and_asks_four_times_in_a_window() {
    let channel = Channel { delay: 50, ..Channel::default() };
    let (ms, [a, b]) = transfer([4_000_000, 0], channel, 1);
    assert_eq!(a.end.tx.retransmits(), 0);
    // A quarter of the 256 KiB per 100 ms may be read and not announced yet; slow start comes
    // before.
    assert!((1_600..2_600).contains(&ms), "{ms} ms");
    let windows = 4_000_000 / MAX;
    assert!((4 * windows..12 * windows).contains(&b.segments), "{} acknowledgements", b.segments);
}

/// Links recover lost packets, which then arrive one round trip of the link later.
#[test]
fn what_comes_late_is_not_taken_for_lost() {
    let channel = Channel { delay: 50, late: 20, later: 60, ..Channel::default() };
    let (ms, [a, _]) = transfer([4_000_000, 0], channel, 1);
    assert!(a.end.tx.retransmits() <= 4, "{} retransmissions", a.end.tx.retransmits());
    assert!(ms < 3_500, "{ms} ms");
}

#[test]
fn marks_bring_the_window_down_and_lose_nothing() {
    let delay = 20;
    let (free, _) = transfer([2_000_000, 0], Channel { delay, ..Channel::default() }, 1);
    let channel = Channel { delay, marks: 50, ..Channel::default() };
    let (marked, [a, _]) = transfer([2_000_000, 0], channel, 1);
    assert_eq!(a.end.tx.retransmits(), 0);
    assert!(marked > 3 * free, "{marked} ms with marks, {free} without");
}

#[test]
fn an_outage_of_seconds_costs_little_more_than_itself() {
    let channel = Channel { delay: 30, cut: (300, 4_300), ..Channel::default() };
    let (ms, _) = transfer([500_000, 500_000], channel, 1);
    assert!(ms < 10_500, "{ms} ms");
}

/// The reader pauses for longer than any timeout, and the writer waits.
#[test]
fn who_reads_nothing_holds_the_other_back() {
    let mut rng = trunkline_base::rng(1, 1);
    let mut sides = [Side::new(true, random_bytes(&mut rng, 1_000_000)), Side::new(false, vec![])];
    let mut out = vec![0; 2_000];
    let mut most = 0;
    for ms in 0..40_000u64 {
        let now = Time::from_millis(ms);
        for from in 0..2 {
            sides[from].run(now, ms > 30_000);
            let Side { end, all, peer, .. } = &mut sides[from];
            end.handle_timeout(now, &mut Memory { all, peer }).unwrap();
            while let Some(len) = sides[from].poll(now, ROOM, &mut out) {
                sides[1 - from].segments += u64::from(ms > 10_000 && ms < 30_000);
                sides[1 - from].hear(now, &out[..len], false).unwrap();
            }
        }
        most = most.max((4 << 20) - sides[1].all.left());
    }
    assert!(sides[1].ended && sides[1].read == sides[0].to_write);
    assert!(most <= MAX as usize + (64 << 10), "{most} bytes kept");
    assert!(sides[1].segments < 60, "{} probes in 20 s", sides[1].segments);
}

fn opened() -> (Side, impl Fn(u64, bool, &[u8]) -> Vec<u8>) {
    let mut side = Side::new(false, vec![]);
    // From here on, it has announced a window.
    side.end.poll(Time::ZERO, ROOM, &mut [0; 100]).unwrap();
    let segment = |position: u64, end: bool, bytes: &[u8]| {
        let data = Data { position, end, retransmitted: false, bytes: &[] };
        let mut out = [0; 32];
        let mut w = trunkline_base::wire::Writer::new(&mut out);
        let body = Body { data: Some(data), ..of_stream() };
        Segment::Body(body).emit_head(&mut w).unwrap();
        [w.written(), bytes].concat()
    };
    (side, segment)
}

#[test]
fn who_sends_what_no_end_sends_is_refused() {
    let hear = |side: &mut Side, bytes: Vec<u8>| side.hear(Time::ZERO, &bytes, false);
    let (mut side, segment) = opened();
    assert_eq!(hear(&mut side, segment(MAX - 3, false, b"1234")), Err(Reset::Protocol));
    assert_eq!(hear(&mut side, segment((1 << 47) - 9, false, b"1")), Err(Reset::Protocol));
    assert_eq!(hear(&mut side, segment(10, true, b"12")), Ok(SegmentOutcome::New));
    assert_eq!(hear(&mut side, segment(9, true, b"1")), Err(Reset::Protocol), "two ends");
    assert_eq!(hear(&mut side, segment(12, false, b"1")), Err(Reset::Protocol), "behind the end");
    let (mut side, segment) = opened();
    assert_eq!(hear(&mut side, segment(10, false, b"12")), Ok(SegmentOutcome::New));
    assert_eq!(hear(&mut side, segment(3, true, b"1")), Err(Reset::Protocol), "an end before data");
    // Acknowledges data that was never sent: one byte, or a range of it.
    for bytes in [ack(1, &[]), ack(0, &[(0, 1)])] {
        let (mut side, _) = opened();
        assert_eq!(hear(&mut side, bytes), Err(Reset::Protocol));
    }
}

/// An honest end has a gap in front of each range, and its ranges ascend. A dishonest one must
/// neither leave a stream with nothing to wait for, nor make this end visit all segments once per
/// range.
#[test]
fn ranges_that_no_end_has_are_refused() {
    let hear = |ranges: &[(u32, u32)], next: u64| {
        let mut side = Side::new(false, vec![7; 20_000]);
        side.hear(Time::ZERO, &ack(0, &[]), false).unwrap();
        side.run(Time::ZERO, false);
        while side.end.poll(Time::from_millis(50), ROOM, &mut [0; ROOM]).is_some() {}
        side.hear(Time::from_millis(90), &ack(2_000, &[]), false).unwrap();
        side.hear(Time::from_millis(90), &ack(next, ranges), false)
    };
    for (next, ranges) in [
        (2_000, &[(0, 1_000)][..]),
        (0, &[(1_500, 2_000)]),
        (2_000, &[(1_000, 1_000), (2_000, 1_000)]),
        (2_000, &[(1_500, 1_000), (1_000, 200)]),
        (2_000, &[(1_000, 1_000), (1_000, 1_000)]),
    ] {
        assert_eq!(hear(ranges, next), Err(Reset::Protocol), "{ranges:?}");
    }
    // A late acknowledgement may have ranges that have been acknowledged since.
    for (next, ranges) in [(2_000, &[(500, 500), (1_500, 100)][..]), (0, &[(1_000, 1_000)])] {
        assert_eq!(hear(ranges, next), Ok(SegmentOutcome::Copy), "{ranges:?}");
    }
}

/// One byte in two, as far apart as permitted: memory and time stay bounded.
#[test]
fn who_sends_crumbs_with_gaps_is_kept_short() {
    let (mut side, segment) = opened();
    let mut kept = 0;
    for n in 0..20_000u32 {
        let taken =
            side.hear(Time::ZERO, &segment((2 * n + 1).into(), false, b"x"), false).unwrap();
        kept += u32::from(taken == SegmentOutcome::New);
    }
    assert_eq!(kept, 512);
    assert!((4 << 20) - side.all.left() <= MAX as usize);
}

#[test]
fn one_that_is_never_answered_gives_up_and_one_that_falls_silent_does() {
    let mut side = Side::new(true, vec![]);
    let at = |side: &mut Side, ms| {
        let Side { end, all, peer, .. } = side;
        end.handle_timeout(Time::from_millis(ms), &mut Memory { all, peer })
    };
    assert_eq!(at(&mut side, 29_999), Ok(()));
    assert_eq!(at(&mut side, 30_000), Err(Reset::Timeout));
    let (mut side, _) = opened();
    let mut asked = 0;
    for ms in 0..59_999 {
        assert_eq!(at(&mut side, ms), Ok(()), "{ms}");
        asked += u32::from(side.end.poll(Time::from_millis(ms), ROOM, &mut [0; 100]).is_some());
    }
    assert!((2..=5).contains(&asked), "asked {asked} times");
    assert_eq!(at(&mut side, 60_000), Err(Reset::Timeout));
}

/// Exchanges all pending segments of two ends over a path without delay.
fn settle(sides: &mut [Side; 2], now: Time) {
    let mut out = vec![0; 2_000];
    let mut any = true;
    while core::mem::take(&mut any) {
        for from in 0..2 {
            let Side { end, all, peer, .. } = &mut sides[from];
            if end.next_timeout() <= now {
                end.handle_timeout(now, &mut Memory { all, peer }).unwrap();
            }
            while let Some(len) = sides[from].poll(now, ROOM, &mut out) {
                sides[1 - from].hear(now, &out[..len], false).unwrap();
                any = true;
            }
        }
    }
}

/// A reader that takes a little every few seconds keeps the receive window closed nearly all the
/// time, but has not stopped reading.
#[test]
fn a_slow_reader_is_not_taken_for_one_that_has_stopped() {
    let mut sides = [Side::new(true, vec![7; 12 << 20]), Side::new(false, vec![])];
    for tick in 0..2_600u64 {
        let now = Time::from_millis(250 * tick);
        sides[0].run(now, false);
        settle(&mut sides, now);
        if tick % 16 == 15 {
            for _ in 0..8 {
                let rx = &mut sides[1].end.rx;
                let len = rx.readable().len();
                rx.took(now, len);
                rx.give_credit(len as u64);
            }
            settle(&mut sides, now);
        }
    }
    assert!(sides[1].end.rx.received() > 10 << 20);
}

/// Encodes a segment with this acknowledgement.
fn ack(next: u64, ranges: &[(u32, u32)]) -> Vec<u8> {
    let mut ack = super::segment::Ack::new(next, 1_000, 0, 0);
    ranges.iter().for_each(|&range| ack.push(range));
    let mut out = [0; 200];
    let mut w = trunkline_base::wire::Writer::new(&mut out);
    let body = Body { ack: Some(ack), ..of_stream() };
    Segment::Body(body).emit_head(&mut w).unwrap();
    w.written().to_vec()
}

/// Each byte written is a separate segment as long as few are outstanding. A peer that acknowledges
/// all but the first keeps them in the list, which stays short.
#[test]
fn small_segments_wait_when_many_are_outstanding() {
    let (mut side, _) = opened();
    let mut memory = Memory { all: &mut side.all, peer: &mut side.peer };
    side.end.tx.grant(&mut memory);
    side.hear(Time::ZERO, &ack(0, &[]), false).unwrap();
    let (mut segments, mut sent) = (0, 0);
    for n in 1..=20_000u32 {
        let now = Time::from_millis(n.into());
        let mut memory = Memory { all: &mut side.all, peer: &mut side.peer };
        side.end.tx.write(b"x", &mut memory).unwrap();
        let mut out = [0; ROOM];
        while let Some(len) = side.end.poll(now, ROOM, &mut out) {
            segments += u32::from(len < 100);
            if let Ok(Segment::Body(Body { data: Some(data), .. })) = Segment::parse(&out[..len]) {
                sent = sent.max(data.position + data.bytes.len() as u64);
            }
        }
        if sent > 1 {
            side.hear(now, &ack(0, &[(1, sent as u32 - 1)]), false).unwrap();
        }
    }
    assert!((1_000..2_000).contains(&segments), "{segments} small segments");
}

/// Much data may be in flight before an outage: the window grows while that is retransmitted, and
/// not only afterwards.
#[test]
fn what_was_lost_in_an_outage_is_soon_sent_again() {
    // After 16 s, two and a half windows of 256 KiB are still to be sent.
    let channel = Channel { delay: 1_500, cut: (16_000, 32_000), ..Channel::default() };
    let (free, _) = transfer([1_000_000, 0], Channel { cut: (0, 0), ..channel }, 1);
    let (ms, _) = transfer([1_000_000, 0], channel, 1);
    // Twice the longest interval between tries.
    assert!(ms < free + 16_000 + 10_000, "{ms} ms, {free} without the outage");
}

/// The application has gone after reading everything: a copy of that data is harmless, and any
/// further data has no reader.
#[test]
fn copies_for_one_that_has_gone_break_nothing_off() {
    let (mut side, segment) = opened();
    assert_eq!(side.abandon(), Err(Reset::Aborted), "it may have had more to write");
    side.hear(Time::ZERO, &segment(0, false, b"1234"), false).unwrap();
    side.run(Time::ZERO, true);
    assert_eq!(side.abandon(), Ok(()));
    side.end.owner = Owner::Nobody;
    assert_eq!(side.hear(Time::ZERO, &segment(0, false, b"1234"), false), Ok(SegmentOutcome::Copy));
    assert_eq!(side.hear(Time::ZERO, &segment(4, false, b"5"), false), Err(Reset::Closed));
}

/// Both directions have ended, and its application has not read everything: the stream isn't
/// forgotten before that, however long it takes, and keeps no memory afterwards.
#[test]
fn what_nobody_has_read_yet_is_not_forgotten() {
    let (mut side, segment) = opened();
    let mut out = [0; 100];
    side.end.tx.shut();
    side.end.poll(Time::ZERO, ROOM, &mut out).unwrap();
    side.hear(Time::ZERO, &segment(0, true, b"1234"), false).unwrap();
    let ack = super::segment::Ack::new(1, 10, 0, 0);
    let mut w = trunkline_base::wire::Writer::new(&mut out);
    Segment::Body(Body { ack: Some(ack), ..of_stream() }).emit_head(&mut w).unwrap();
    let bytes = w.written().to_vec();
    side.hear(Time::ZERO, &bytes, false).unwrap();
    assert!(side.end.is_over());
    side.end.poll(Time::ZERO, ROOM, &mut [0; 100]);
    let late = Time::from_millis(1_000_000);
    assert!(!side.end.is_forgotten(late) && side.end.next_timeout() == Time::NEVER);
    side.run(late, true);
    assert!(side.ended && side.read == b"1234");
    (side.end.told_end, side.end.told_finished) = (true, true);
    side.end.note_read(&mut Memory { all: &mut side.all, peer: &mut side.peer });
    assert_eq!(side.all.left(), 4 << 20);
    assert!(side.end.is_forgotten(late) && side.end.next_timeout() <= late);
}

#[test]
fn writing_nothing_is_nothing() {
    let mut side = Side::new(true, vec![]);
    let mut memory = Memory { all: &mut side.all, peer: &mut side.peer };
    assert_eq!(side.end.tx.write(&[], &mut memory), Ok(()));
}

/// A link that was down for long delivers packets that a stream has long since sent over another
/// path. None is taken for later bytes, nor is the stream reset, however many GiB lie between.
#[test]
fn what_comes_gibibytes_late_is_a_copy() {
    const PIECE: u64 = 64 << 10;
    let (mut all, mut peer) = (Budget::new(4 << 20), Budget::new(4 << 20));
    let mut memory = Memory { all: &mut all, peer: &mut peer };
    let config = window::Config { max: 2 * MAX, ..window::Config::new(PIECE as usize) };
    let (mut tx, mut rx) = (Sender::new(MAX, config), Receiver::new(MAX, u64::from(u32::MAX)));
    let old = [1; 1_000];
    let late = Data { position: 3_000, end: false, retransmitted: true, bytes: &old };
    let late_ack = {
        let mut ack = super::segment::Ack::new(3_000, 1_000, 0, 0);
        ack.push((500, 1_000));
        ack
    };
    tx.on_ack(Time::ZERO, &rx.ack(0)).unwrap();
    let new = vec![7; PIECE as usize];
    for k in 1..=(5 << 30) / PIECE {
        let now = Time::from_millis(k);
        tx.grant(&mut memory);
        tx.write(&new, &mut memory).unwrap();
        let cut = tx.next(now, PIECE as usize, PIECE as usize).unwrap();
        tx.sent(now, &cut);
        let position = cut.position & ((1 << 48) - 1);
        let data = Data { position, end: false, retransmitted: false, bytes: &new };
        assert_eq!(rx.on_data(now, &data, &mut memory), Ok(SegmentOutcome::New));
        if (k * PIECE) % (1 << 30) < 2 * PIECE {
            assert_eq!(
                rx.on_data(now, &late, &mut memory),
                Ok(SegmentOutcome::Copy),
                "after {k} pieces"
            );
            assert_eq!(tx.on_ack(now, &late_ack), Ok(()), "after {k} pieces");
        }
        while !rx.readable().is_empty() {
            let len = rx.readable().len();
            assert!(rx.readable() == &new[..len], "old bytes after {k} pieces");
            rx.took(now, len);
        }
        assert!(rx.give_credit(PIECE));
        tx.on_ack(now, &rx.ack(0)).unwrap();
    }
    assert_eq!((rx.received(), tx.delivered()), (5 << 30, 5 << 30));
}

/// An application pauses while its node has less memory than the stream was promised: the stream
/// waits for both, and is neither lost nor taken for dead.
#[test]
fn want_of_memory_is_waited_for() {
    let mut sides = [Side::new(true, vec![7; 200_000]), Side::new(false, Vec::new())];
    sides[1].end.accept(Time::ZERO, MAX, 0);
    let (little, much) = (40 << 10, 4 << 20);
    (sides[1].all, sides[1].peer) = (Budget::new(little), Budget::new(little));
    for ms in 0..500_000 {
        let now = Time::from_millis(ms);
        if ms == 400_000 {
            assert!(sides[1].end.rx.received() < little as u64);
            assert!(sides[0].segments < 2_000, "{} segments", sides[0].segments);
            let taken = little - sides[1].all.left();
            sides[1].all = Budget::new(much - taken);
            sides[1].peer = Budget::new(much - taken);
        }
        sides[0].run(now, true);
        sides[1].run(now, ms >= 410_000);
        settle(&mut sides, now);
    }
    assert_eq!(sides[1].read.len(), 200_000);
    assert!(sides.iter().all(|side| side.end.is_over()));
}

/// A node that was stalled receives late what arrived in time.
#[test]
fn standing_still_is_no_round_trip() {
    let (mut side, segment) = opened();
    let ack = |next| super::segment::Ack::new(next, 200, 0, 0);
    let hear = |side: &mut Side, ms, next| {
        let mut out = [0; 64];
        let mut w = trunkline_base::wire::Writer::new(&mut out);
        let body = Body { ack: Some(ack(next)), ..of_stream() };
        Segment::Body(body).emit_head(&mut w).unwrap();
        side.hear(Time::from_millis(ms), w.written(), false).unwrap();
    };
    side.hear(Time::ZERO, &segment(0, false, b""), false).unwrap();
    hear(&mut side, 0, 0);
    side.to_write = vec![7; 10_000];
    side.run(Time::ZERO, true);
    let len = side.end.poll(Time::ZERO, ROOM, &mut [0; 2_000]).unwrap();
    let head = super::segment::HEAD + super::segment::ACK_HEAD;
    let first = (len - head) as u64;
    hear(&mut side, 198_000, first);
    assert_eq!((side.end.tx.delivered(), side.end.tx.rtt()), (first, None));
}
