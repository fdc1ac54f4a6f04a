//! What a listener says to those who call it: RTCP.

use super::line::{Line, Target};
use crate::clock;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_media::rtcp::{self, Reception, SenderInfo};

/// Packets of a call, and behind a gap in it, to which the listener says that it is
/// there: each answer may be lost.
const GREETED: u32 = 3;

/// Silence after which the caller's node may have been told that nobody listens.
const GAP: Duration = Duration::from_millis(500);

/// How often a caller that is not heard is told so.
const REJECT_EVERY: Duration = Duration::from_secs(1);

/// How many such callers are told so in that time, so that nobody makes a listener
/// send more than a little.
const UNKNOWN_PEERS: usize = 16;

/// The listener's side of the conversation.
pub struct Answers<'a> {
    line: &'a Line,
    ssrc: u32,
    heard: Heard,
    /// When a packet came last, and how many more are answered.
    last: Time,
    greet: u32,
    /// Who was turned away, and when.
    unknown_peers: Vec<(Target, Time)>,
}

/// What came of the caller's stream (RFC 3550, A.1, A.3 and A.8).
#[derive(Default)]
struct Heard {
    packets: u32,
    /// Numbers of the first and the highest, extended.
    first: u32,
    highest: u32,
    /// Arrival less timestamp of the last, and its mean change, in the payload's
    /// clock.
    transit: u32,
    jitter: f64,
    /// Packets that should have come, and came, when it was said last.
    said: (u32, u32),
}

impl Heard {
    fn packet(&mut self, sequence: u16, timestamp: u32, arrival: Time) {
        let transit = ((arrival.as_nanos() / 125_000) as u32).wrapping_sub(timestamp);
        if self.packets == 0 {
            (self.first, self.highest) = (sequence.into(), sequence.into());
        } else {
            let change = transit.wrapping_sub(self.transit) as i32;
            self.jitter += (f64::from(change.unsigned_abs()) - self.jitter) / 16.0;
        }
        let ahead = sequence.wrapping_sub(self.highest as u16) as i16;
        self.highest = self.highest.wrapping_add(u32::try_from(ahead).unwrap_or(0));
        self.transit = transit;
        self.packets = self.packets.wrapping_add(1);
    }

    fn reception(&mut self, report: &SenderInfo) -> Reception {
        let expected = self.highest.wrapping_sub(self.first).wrapping_add(1);
        let new = expected.wrapping_sub(self.said.0);
        let came = self.packets.wrapping_sub(self.said.1);
        let lost = u64::from(new.saturating_sub(came));
        self.said = (expected, self.packets);
        Reception {
            source: report.ssrc,
            fraction_lost: (lost << 8).checked_div(new.into()).unwrap_or(0).min(255) as u8,
            lost: expected.wrapping_sub(self.packets) as i32,
            highest: self.highest,
            jitter: self.jitter as u32,
            report: report.stamp(),
            // By this the caller knows one who answers.
            since: 0,
        }
    }
}

impl Answers<'_> {
    pub fn new(line: &Line) -> Answers<'_> {
        let last = clock::now();
        let ssrc = last.as_nanos() as u32;
        Answers {
            line,
            ssrc,
            heard: Heard::default(),
            last,
            greet: GREETED,
            unknown_peers: Vec::new(),
        }
    }

    /// A packet of the call has come. Its first ones, and those behind a gap, are
    /// answered, so that the caller's node knows that somebody listens, or does again.
    pub fn packet(&mut self, sequence: u16, timestamp: u32, arrival: Time, from: &Target) {
        self.heard.packet(sequence, timestamp, arrival);
        if arrival.since(self.last) > GAP {
            self.greet = GREETED;
        }
        self.last = arrival;
        if self.greet > 0 {
            self.greet -= 1;
            self.say(None, false, from);
        }
    }

    /// The caller's report has come, perhaps with its goodbye: says so.
    pub fn report(&mut self, report: &SenderInfo, from: &Target) {
        let reception = self.heard.reception(report);
        self.say(Some(&reception), false, from);
    }

    /// Tells somebody who calls and isn't heard, now and then.
    pub fn turn_away(&mut self, unknown_peer: &Target) {
        let now = clock::now();
        self.unknown_peers.retain(|(_, told)| now.since(*told) < REJECT_EVERY);
        if self.unknown_peers.len() < UNKNOWN_PEERS
            && !self.unknown_peers.iter().any(|(s, _)| s == unknown_peer)
        {
            self.unknown_peers.push((*unknown_peer, now));
            self.hang_up(unknown_peer);
        }
    }

    /// Tells `to` that nobody listens to it.
    pub fn hang_up(&self, to: &Target) {
        self.say(None, true, to);
    }

    /// What can't leave is as if it had been lost.
    fn say(&self, reception: Option<&Reception>, bye: bool, to: &Target) {
        let mut packet = [0; rtcp::MAX_LEN];
        let n = rtcp::emit_reception(self.ssrc, reception, bye, &mut packet).unwrap_or(0);
        let _ = self.line.send(&packet[..n], to, &mut |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SenderInfo {
        SenderInfo { ssrc: 7, ntp: 0x0001_0203_0405_0607, timestamp: 0, packets: 0, octets: 0 }
    }

    #[test]
    fn what_came_is_counted_over_a_wrap() {
        let mut heard = Heard::default();
        let hear = |heard: &mut Heard, n: u32, late: u64| {
            let arrival = Time::from_nanos(u64::from(n) * 20_000_000 + late);
            heard.packet((65_530 + n) as u16, n * 160, arrival);
        };
        (0..10).filter(|n| *n != 3 && *n != 7).for_each(|n| hear(&mut heard, n, 0));
        let said = heard.reception(&report());
        assert_eq!((said.source, said.report, said.since), (7, 0x0203_0405, 0));
        assert_eq!((said.highest, said.lost, said.fraction_lost), (65_539, 2, 51));
        assert_eq!(said.jitter, 0);
        // 4 ms late is 32 samples, each sixteenth of it twice; and what was lost has
        // come after all.
        hear(&mut heard, 10, 4_000_000);
        hear(&mut heard, 3, 0);
        let said = heard.reception(&report());
        assert_eq!((said.highest, said.lost, said.fraction_lost), (65_540, 1, 0));
        assert_eq!(said.jitter, 3);
    }
}
