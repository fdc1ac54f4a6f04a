//! A listener's RTCP answers to its caller.

use super::line::{Line, Target};
use crate::clock;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_media::rtcp::{self, Reception, SenderInfo};

/// Number of packets at the start of a call, and after a gap in it, that the listener answers to
/// show that it is there. Several, because an answer may be lost.
const GREETED: u32 = 3;

/// Silence after which the caller's node may have been notified that the port has no listener.
const GAP: Duration = Duration::from_millis(500);

/// Interval between rejections sent to a caller that is not accepted.
const REJECT_EVERY: Duration = Duration::from_secs(1);

/// Number of such callers that are rejected per interval, which limits the traffic that others can
/// make a listener send.
const UNKNOWN_PEERS: usize = 16;

/// Answers of the listener to its callers.
pub struct Answers<'a> {
    line: &'a Line,
    ssrc: u32,
    heard: Heard,
    /// Arrival of the last packet, and the number of packets still to be answered.
    last: Time,
    greet: u32,
    /// Rejected callers, and the times of the rejections.
    unknown_peers: Vec<(Target, Time)>,
}

/// Reception statistics of the caller's stream (RFC 3550, A.1, A.3 and A.8).
#[derive(Default)]
struct Heard {
    packets: u32,
    /// Extended sequence numbers of the first and the highest packet.
    first: u32,
    highest: u32,
    /// Arrival time less timestamp of the last packet, and the mean of its changes, in units of the
    /// payload's clock.
    transit: u32,
    jitter: f64,
    /// Packets expected and packets received at the time of the last report.
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
            // Zero marks an answer that was sent at once, which the caller recognises.
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

    /// Handles a packet of the call. The first packets, and those after a gap, are answered, so
    /// that the caller's node learns that there is a listener, or one again.
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

    /// Answers a report of the caller, which may contain its goodbye.
    pub fn report(&mut self, report: &SenderInfo, from: &Target) {
        let reception = self.heard.reception(report);
        self.say(Some(&reception), false, from);
    }

    /// Rejects a caller that is not accepted, at a limited rate.
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

    /// Notifies `to` that it has no listener.
    pub fn hang_up(&self, to: &Target) {
        self.say(None, true, to);
    }

    /// Sends an RTCP packet. A failure to send counts as a loss.
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
        // 4 ms late is 32 samples, and a sixteenth of it counts twice. The missing packet has
        // arrived after all.
        hear(&mut heard, 10, 4_000_000);
        hear(&mut heard, 3, 0);
        let said = heard.reception(&report());
        assert_eq!((said.highest, said.lost, said.fraction_lost), (65_540, 1, 0));
        assert_eq!(said.jitter, 3);
    }
}
