//! What a gateway sees of a stream that comes to it: lost, late and unevenly spaced
//! packets (RFC 3550, appendix A), from the packets alone.

use core::time::Duration;
use trunkline_base::Time;

/// How much longer than the fastest packet's another's way may be, before a phone with
/// a jitter buffer of usual size plays on without it.
pub const LATE: Duration = Duration::from_millis(60);

/// A jump that is no loss, but another beginning (RFC 3550, A.1).
const RESTART: u16 = 3_000;

/// Counters of a stream; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that should have come, by their numbers.
    pub expected: u64,
    /// Packets that came, no copies.
    pub packets: u64,
    /// Bytes of these, with their RTP headers.
    pub bytes: u64,
    /// Packets that came more than once.
    pub duplicates: u64,
    /// Of `packets`: that came too late to be played ([`LATE`]), as far as the clock of
    /// their payload is known.
    pub late: u64,
    /// Of `packets`: that the overlay lost on their way and got again.
    pub recovered: u64,
    /// Times that one or more packets in a row were missing.
    pub gaps: u64,
    /// Packets that are RTCP's.
    pub rtcp: u64,
    /// Datagrams that are neither: a fax's, or what agrees on keys.
    pub other: u64,
}

impl Counts {
    /// Packets that did not come; so far, since they may still.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.packets)
    }

    /// What has come since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            expected: self.expected.saturating_sub(before.expected),
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            duplicates: self.duplicates.saturating_sub(before.duplicates),
            late: self.late.saturating_sub(before.late),
            recovered: self.recovered.saturating_sub(before.recovered),
            gaps: self.gaps.saturating_sub(before.gaps),
            rtcp: self.rtcp.saturating_sub(before.rtcp),
            other: self.other.saturating_sub(before.other),
        }
    }
}

/// The clocks of payload types, as a description says (`a=rtpmap`, RFC 8866, 6.6): of
/// the first that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks([Option<(u8, u32)>; 8]);

impl Clocks {
    /// Takes what an attribute says: `96 opus/48000/2`.
    pub fn take(&mut self, rtpmap: &[u8]) {
        let parsed = core::str::from_utf8(rtpmap).ok().and_then(|text| {
            let (payload_type, encoding) = text.split_once(' ')?;
            let rate = encoding.trim().split('/').nth(1)?.trim().parse().ok()?;
            Some((payload_type.parse().ok()?, rate))
        });
        // No sound is finer.
        let Some(said) = parsed.filter(|(kind, rate)| *kind < 128 && (1..=384_000).contains(rate))
        else {
            return;
        };
        let is_same = |place: &Option<(u8, u32)>| place.is_none_or(|(kind, _)| kind == said.0);
        if let Some(place) = self.0.iter_mut().find(|place| is_same(place)) {
            *place = Some(said);
        }
    }

    /// In ticks a second.
    fn rate(&self, payload_type: u8) -> Option<u32> {
        let said = self.0.iter().flatten().find(|(kind, _)| *kind == payload_type);
        said.map(|(_, rate)| *rate).or_else(|| clock_rate(payload_type))
    }
}

/// A stream as it comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reception {
    counts: Counts,
    clocks: Clocks,
    /// Who sends, and what, of the last packet.
    ssrc: u32,
    payload_type: u8,
    /// The highest number, and which of the 64 before it have come.
    newest: u16,
    seen: u64,
    /// When the last packet came, and its timestamp.
    last: Option<(Time, u32)>,
    /// The least of arrival less timestamp, in nanoseconds against the first packet's.
    fastest: i64,
    first: Option<(Time, u32)>,
    /// In nanoseconds, times 16.
    jitter: u64,
}

impl Reception {
    /// The counters of the stream so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The jitter of RFC 3550 (6.4.1); `None` where the clock of the payload isn't
    /// known.
    pub fn jitter(&self) -> Option<Duration> {
        self.clock_rate().map(|_| Duration::from_nanos(self.jitter / 16))
    }

    /// The clock of the payload that came last, in ticks a second, if it is known.
    pub fn clock_rate(&self) -> Option<u32> {
        self.clocks.rate(self.payload_type)
    }

    /// What the clocks are, from now on.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.clocks = clocks;
    }

    /// Counts a datagram that came at `at`; `recovered` if the overlay had lost it.
    pub fn note(&mut self, at: Time, datagram: &[u8], recovered: bool) {
        // The fixed header alone: of encrypted streams the rest isn't readable.
        let Some(&[first, kind, a, b, t0, t1, t2, t3, s0, s1, s2, s3]) =
            datagram.first_chunk::<12>()
        else {
            self.counts.other += 1;
            return;
        };
        match (first >> 6, kind) {
            // RFC 5761, 4.
            (2, 192..=223) => self.counts.rtcp += 1,
            (2, _) => {
                let ssrc = u32::from_be_bytes([s0, s1, s2, s3]);
                let number = u16::from_be_bytes([a, b]);
                let is_first = self.counts.packets == 0;
                if is_first || ssrc != self.ssrc || kind & 0x7f != self.payload_type {
                    self.turn_to(ssrc, kind & 0x7f, number);
                }
                if self.number(number) {
                    self.counts.packets += 1;
                    self.counts.bytes += datagram.len() as u64;
                    self.counts.recovered += u64::from(recovered);
                    self.timing(at, u32::from_be_bytes([t0, t1, t2, t3]));
                }
            }
            _ => self.counts.other += 1,
        }
    }

    /// Another source, or another kind of payload: the clock may be another.
    fn turn_to(&mut self, ssrc: u32, payload_type: u8, number: u16) {
        if self.counts.packets == 0 || ssrc != self.ssrc {
            (self.newest, self.seen) = (number.wrapping_sub(1), 0);
        }
        (self.ssrc, self.payload_type, self.last, self.first) = (ssrc, payload_type, None, None);
    }

    /// Whether the packet of this number is no copy.
    fn number(&mut self, number: u16) -> bool {
        let ahead = number.wrapping_sub(self.newest);
        match ahead {
            1..RESTART => {
                self.seen = self.seen.checked_shl(ahead.into()).unwrap_or(0) | 1;
                self.counts.expected += u64::from(ahead);
                self.counts.gaps += u64::from(ahead > 1);
                self.newest = number;
                true
            }
            _ if ahead == 0 || ahead > u16::MAX - 64 => {
                let bit = 1u64.checked_shl(self.newest.wrapping_sub(number).into()).unwrap_or(0);
                let is_new = bit != 0 && self.seen & bit == 0;
                self.seen |= bit;
                self.counts.duplicates += u64::from(!is_new);
                is_new
            }
            // So old that nobody knows, or another beginning.
            _ if ahead > u16::MAX - RESTART => false,
            _ => {
                (self.newest, self.seen) = (number, 1);
                self.counts.expected += 1;
                true
            }
        }
    }

    fn timing(&mut self, at: Time, stamp: u32) {
        let Some(rate) = self.clock_rate() else {
            self.last = Some((at, stamp));
            return;
        };
        let nanos = |ticks: i64| ticks * 1_000_000_000 / i64::from(rate);
        let apart = |(then, ticks): (Time, u32)| {
            let real = at.as_nanos() as i64 - then.as_nanos() as i64;
            real - nanos(i64::from(stamp.wrapping_sub(ticks) as i32))
        };
        if let Some(last) = self.last {
            let off = apart(last).unsigned_abs();
            // A pause, or timestamps that jump, are no jitter.
            if off < 1_000_000_000 {
                self.jitter = self.jitter + off - self.jitter / 16;
            } else {
                self.first = None;
            }
        }
        match self.first {
            Some(first) => {
                let transit = apart(first);
                self.fastest = self.fastest.min(transit);
                let behind = transit - self.fastest;
                self.counts.late += u64::from(behind > LATE.as_nanos() as i64);
            }
            None => (self.first, self.fastest) = (Some((at, stamp)), 0),
        }
        self.last = Some((at, stamp));
    }
}

/// The clock of the payload types that have one for good (RFC 3551, 6).
fn clock_rate(payload_type: u8) -> Option<u32> {
    match payload_type {
        0 | 3..=5 | 7..=9 | 12 | 13 | 15 | 18 => Some(8_000),
        6 => Some(16_000),
        16 => Some(11_025),
        17 => Some(22_050),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u16, stamp: u32, ssrc: u32) -> Vec<u8> {
        let mut bytes = vec![0x80, 0];
        bytes.extend(number.to_be_bytes());
        bytes.extend(stamp.to_be_bytes());
        bytes.extend(ssrc.to_be_bytes());
        bytes.extend([0; 160]);
        bytes
    }

    /// Packets by their number, each `late` milliseconds after its time.
    fn hear(packets: &[(u16, u64)]) -> Reception {
        let mut heard = Reception::default();
        for &(number, late) in packets {
            let n = u64::from(number.wrapping_sub(65_530));
            let at = Time::from_millis(1_000 + n * 20 + late);
            heard.note(at, &packet(number, (n * 160) as u32, 7), false);
        }
        heard
    }

    #[test]
    fn lost_and_copied_packets_are_counted_over_the_wrap() {
        let heard = hear(&[(65_534, 0), (65_535, 0), (2, 0), (1, 20), (1, 30), (5, 0)]).counts();
        let Counts { expected, packets, duplicates, gaps, .. } = heard;
        assert_eq!((expected, packets, duplicates, gaps, heard.lost()), (8, 5, 1, 2, 3));
    }

    #[test]
    fn a_sender_that_begins_anew_has_lost_nothing() {
        let mut heard = hear(&[(65_534, 0), (65_535, 0)]);
        heard.note(Time::from_millis(2_000), &packet(30_000, 9, 8), false);
        heard.note(Time::from_millis(2_020), &packet(30_001, 169, 8), true);
        // The same source, far away.
        heard.note(Time::from_millis(2_040), &packet(10_001, 329, 8), false);
        let counts = heard.counts();
        assert_eq!((counts.expected, counts.packets, counts.recovered), (5, 5, 1));
    }

    #[test]
    fn what_comes_long_after_the_fastest_is_late() {
        let heard = hear(&[(0, 30), (1, 10), (2, 70), (3, 71), (4, 10)]);
        assert_eq!(heard.counts().late, 1);
        // Evenly, by 16 ms, and then not.
        let heard = hear(&[(0, 16), (1, 0), (2, 16)]);
        assert_eq!(heard.jitter(), Some(Duration::from_nanos((16_000_000 * 31 / 16) / 16)));
    }

    #[test]
    fn other_datagrams_are_told_apart() {
        let mut heard = Reception::default();
        let mut report = packet(0, 0, 0);
        report[1] = 200;
        heard.note(Time::ZERO, &report, false);
        heard.note(Time::ZERO, &[22, 254, 253], false);
        heard.note(Time::ZERO, &[0; 40], false);
        assert_eq!((heard.counts().rtcp, heard.counts().other, heard.counts().packets), (1, 2, 0));
        // A clock that nobody knows; and what a description says of it.
        let mut dynamic = packet(1, 0, 0);
        dynamic[1] = 96;
        heard.note(Time::ZERO, &dynamic, false);
        assert_eq!((heard.jitter(), heard.counts().packets), (None, 1));
        let mut clocks = Clocks::default();
        for said in ["96 x/0", "96 x", "x x/8000", "200 x/8000", "96  x/9", "97 y/8000"] {
            clocks.take(said.as_bytes());
        }
        clocks.take(b"96 opus/48000/2");
        heard.set_clocks(clocks);
        for n in 2..9u16 {
            let mut packet = packet(n, u32::from(n) * 960, 0);
            packet[1] = 96;
            heard.note(Time::from_millis(u64::from(n) * 20), &packet, false);
        }
        assert_eq!((heard.jitter(), heard.clock_rate()), (Some(Duration::ZERO), Some(48_000)));
        // As many as there is room for, and the known ones stay.
        (100..127).for_each(|n| clocks.take(format!("{n} x/16000").as_bytes()));
        let rates = [96, 97, 100, 126, 0].map(|kind| clocks.rate(kind));
        assert_eq!(rates, [Some(48_000), Some(8_000), Some(16_000), None, Some(8_000)]);
    }
}
