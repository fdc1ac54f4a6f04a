//! How long a segment is waited for that others have overtaken.

use super::super::segment::Ack;
use super::*;
use core::time::Duration;

/// One direction of a stream: a sender, and what its receiver says by hand.
struct Way {
    tx: Sender,
    now: Time,
    copies: u8,
}

impl Way {
    fn new() -> Way {
        let config = window::Config { max: 2 * MAX, ..window::Config::new(ROOM + 80) };
        Way { tx: Sender::new(MAX, config), now: Time::ZERO, copies: 0 }
    }

    fn write(&mut self, len: usize) {
        let (mut all, mut peer) = (Budget::new(4 << 20), Budget::new(4 << 20));
        let mut memory = Memory { all: &mut all, peer: &mut peer };
        self.tx.grant(&mut memory);
        self.tx.write(&vec![0; len], &mut memory).unwrap();
    }

    /// All that may be sent now: the position of each segment.
    fn send(&mut self) -> Vec<u64> {
        let mut positions = Vec::new();
        while let Some(cut) = self.tx.next(self.now, ROOM, ROOM) {
            self.tx.sent(self.now, &cut);
            positions.push(cut.position);
        }
        positions
    }

    /// All up to `next` has been received, and one range beyond it.
    fn acknowledge(&mut self, next: u64, range: Option<(u32, u32)>) {
        let mut ack = Ack::new(next, u16::MAX, 0, self.copies);
        range.into_iter().for_each(|range| ack.push(range));
        self.tx.on_ack(self.now, &ack).unwrap();
    }

    /// Lets time pass until something is sent, for as long as `at_most`; what is sent.
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

/// After many needless repetitions over a path whose round trip takes seconds, each of several lost
/// segments is still repeated soon, and not only after sixteen such round trips.
#[test]
fn what_is_lost_is_repeated_soon_however_late_segments_have_come() {
    const RTT: Duration = Duration::from_secs(2);
    let len = ROOM as u64;
    let mut way = Way::new();
    way.acknowledge(0, None);
    let mut first = 0;
    // Each time the first of two segments is overtaken, repeated, and turns out to be late.
    for _ in 0..6 {
        way.write(2 * ROOM);
        let mut sent = way.send();
        while sent.len() < 2 {
            sent.extend(way.wait(RTT));
        }
        way.now += RTT;
        way.acknowledge(first, Some((ROOM as u32, ROOM as u32)));
        assert_eq!(way.wait(40 * RTT), [first]);
        way.copies += 1;
        first += 2 * len;
        way.acknowledge(first, None);
    }
    // All but the last are lost.
    way.write(4 * ROOM);
    let mut sent = way.send();
    while sent.len() < 4 {
        sent.extend(way.wait(RTT));
    }
    way.now += RTT;
    way.acknowledge(first, Some((3 * ROOM as u32, ROOM as u32)));
    let begun = way.now;
    let mut repeated = Vec::new();
    while repeated.len() < 3 {
        let sent = way.wait(Duration::from_secs(60));
        assert!(!sent.is_empty(), "repeated only {repeated:?}");
        repeated.extend(sent);
    }
    repeated.sort_unstable();
    assert_eq!(repeated, [first, first + len, first + 2 * len]);
    let took = way.now.since(begun);
    assert!(took < Duration::from_secs(3), "{took:?}");
}
