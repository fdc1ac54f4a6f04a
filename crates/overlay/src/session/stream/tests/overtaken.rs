//! The time to wait for a segment that others have overtaken.

use super::super::segment::Ack;
use super::*;
use core::time::Duration;

/// One direction of a stream: a sender, and its receiver's acknowledgements made by hand.
struct OneDirection {
    tx: Sender,
    now: Time,
    retransmissions: u8,
}

impl OneDirection {
    fn new() -> OneDirection {
        let config = window::Config { max: 2 * MAX, ..window::Config::new(ROOM + 84) };
        OneDirection { tx: Sender::new(MAX, config), now: Time::ZERO, retransmissions: 0 }
    }

    fn write(&mut self, len: usize) {
        let (mut all, mut peer) = (Budget::new(4 << 20), Budget::new(4 << 20));
        let mut memory = Memory { all: &mut all, peer: &mut peer };
        self.tx.grant(&mut memory);
        self.tx.write(&vec![0; len], &mut memory).unwrap();
    }

    /// Sends all segments that are permitted now; returns the position of each.
    fn send(&mut self) -> Vec<u64> {
        let mut positions = Vec::new();
        while let Some(cut) = self.tx.next(self.now, ROOM, ROOM) {
            self.tx.sent(self.now, &cut);
            positions.push(cut.position);
        }
        positions
    }

    /// Acknowledges all bytes up to `next`, and one range beyond it.
    fn acknowledge(&mut self, next: u64, range: Option<(u32, u32)>) {
        let mut ack = Ack::new(next, u16::MAX, 0, self.retransmissions);
        range.into_iter().for_each(|range| ack.push(range));
        self.tx.on_ack(self.now, &ack).unwrap();
    }

    /// Lets time pass until something is sent, but no longer than `at_most`; returns the segments
    /// sent.
    fn wait(&mut self, at_most: Duration) -> Vec<u64> {
        let until = self.now + at_most;
        while self.now < until {
            self.now += Duration::from_millis(1);
            self.tx.handle_timeout(self.now);
            let sent = self.send();
            if !sent.is_empty() {
                return sent;
            }
        }
        Vec::new()
    }
}

/// Round trips take seconds, and the first of two segments is late again and again. Then all but
/// the last of four are lost: the segment that the application waits for is retransmitted soon, and
/// the others as soon as their loss is known.
#[test]
fn what_is_lost_is_repeated_soon_however_late_segments_have_come() {
    const RTT: Duration = Duration::from_secs(2);
    let len = ROOM as u64;
    let mut way = OneDirection::new();
    way.acknowledge(0, None);
    let mut first = 0;
    for _ in 0..6 {
        way.write(2 * ROOM);
        let mut sent = way.send();
        while sent.len() < 2 {
            sent.extend(way.wait(RTT));
        }
        way.now += RTT;
        way.acknowledge(first, Some((ROOM as u32, ROOM as u32)));
        assert_eq!(way.wait(40 * RTT), [first]);
        // No retransmission has been received: it was the original.
        first += 2 * len;
        way.acknowledge(first, None);
    }
    way.write(4 * ROOM);
    let mut sent = way.send();
    while sent.len() < 4 {
        sent.extend(way.wait(RTT));
    }
    way.now += RTT;
    way.acknowledge(first, Some((3 * ROOM as u32, ROOM as u32)));
    assert_eq!(way.wait(Duration::from_secs(3)), [first]);
    way.now += RTT;
    way.retransmissions += 1;
    way.acknowledge(first + len, Some((2 * ROOM as u32, ROOM as u32)));
    let mut retransmitted = way.send();
    while retransmitted.len() < 2 {
        let sent = way.wait(Duration::from_secs(1));
        assert!(!sent.is_empty(), "retransmitted only {retransmitted:?}");
        retransmitted.extend(sent);
    }
    assert_eq!(retransmitted, [first + len, first + 2 * len]);
}

/// Nine of ten segments are overtaken and count as lost, but then the first of them arrives: the
/// others are waited for, except for the next one that the application needs. The window is
/// restored, and the lateness of segments is known.
#[test]
fn when_an_original_comes_after_all_others_are_waited_for() {
    const RTT: Duration = Duration::from_millis(100);
    let (len, segment) = (ROOM as u64, ROOM as u32);
    let mut way = OneDirection::new();
    way.acknowledge(0, None);
    way.write(10 * ROOM);
    let mut sent = way.send();
    while sent.len() < 10 {
        sent.extend(way.wait(RTT));
    }
    let window = way.tx.window();
    way.now += RTT;
    way.acknowledge(0, Some((9 * segment, segment)));
    way.wait(3 * RTT);
    let retransmitted = way.tx.retransmits();
    assert!((1..9).contains(&retransmitted), "{retransmitted} retransmitted");
    assert!(way.tx.window() < window);
    way.now += 3 * RTT;
    way.acknowledge(len, Some((8 * segment, segment)));
    assert!(way.tx.window() >= window);
    assert!(way.wait(RTT).iter().all(|&position| position == len));
    for n in 2..9 {
        way.acknowledge(n * len, Some(((9 - n as u32) * segment, segment)));
    }
    way.acknowledge(10 * len, None);
    assert!(way.tx.retransmits() <= retransmitted + 1);
    // For the next overtaken segment, it waits longer than two round trips.
    way.write(3 * ROOM);
    let mut sent = way.send();
    while sent.len() < 3 {
        sent.extend(way.wait(RTT));
    }
    way.now += RTT;
    way.acknowledge(10 * len, Some((2 * segment, segment)));
    assert_eq!(way.wait(2 * RTT), [0; 0]);
}
