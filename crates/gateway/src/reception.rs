//! Reception statistics of an incoming stream: lost, late and unevenly spaced packets (RFC 3550,
//! appendix A), derived from the packets alone.

mod playout;

use core::time::Duration;
use playout::Playout;
use trunkline_base::Time;

/// Jump in sequence numbers that means a restart instead of loss (RFC 3550, A.1).
const RESTART: u16 = 3_000;
/// Difference between arrival and timestamp, in nanoseconds, that is a pause or a jump of timestamps.
const JUMP: u64 = 1_000_000_000;
/// Least jump of timestamps that is told from jitter, in nanoseconds.
const STEP: i64 = 100_000_000;
/// Time after a jump of timestamps in which packets show what it was: the first may be late.
const SETTLES: Duration = Duration::from_millis(200);
/// Number of packets in a row with equal steps of the timestamp that make a stream regular.
const REGULAR: u8 = 3;
/// Wait of the fastest packets in the buffer of a phone in a good network, which every estimate of
/// the delay from mouth to ear includes.
const USUAL_WAIT: Duration = Duration::from_nanos(playout::LEAST as u64);

/// Counters of a stream, which never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that should have arrived, judged by sequence numbers.
    pub expected: u64,
    /// Packets that arrived, without duplicates.
    pub packets: u64,
    /// Bytes in `packets`, including RTP headers.
    pub bytes: u64,
    /// Copies of packets that had already arrived.
    pub duplicates: u64,
    /// Packets among `packets` that arrived too late to be played by a phone whose delay follows the
    /// network, if the clock rate of their payload is known.
    pub late: u64,
    /// Packets among `packets` for which a time to be played was found.
    pub timed: u64,
    /// Sum over these of the time that the fastest packets have to wait for slower ones, in nanoseconds.
    pub wait: u64,
    /// Packets among `packets` that the overlay lost on the way and recovered.
    pub recovered: u64,
    /// Number of gaps, each of one or more missing packets in a row.
    pub gaps: u64,
    /// Number of RTCP packets.
    pub rtcp: u64,
    /// Datagrams that are neither RTP nor RTCP, such as a fax's, or a key exchange's.
    pub other: u64,
}

impl Counts {
    /// Number of packets missing so far; some may still arrive.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.packets)
    }

    /// Mean delay that a phone adds, so that slower packets are in time, to the one that it has in a
    /// good network.
    pub fn extra_delay(&self) -> Duration {
        let mean = self.wait.checked_div(self.timed).unwrap_or(0);
        Duration::from_nanos(mean).saturating_sub(USUAL_WAIT)
    }

    /// The increase of each counter since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            expected: self.expected.saturating_sub(before.expected),
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            duplicates: self.duplicates.saturating_sub(before.duplicates),
            late: self.late.saturating_sub(before.late),
            timed: self.timed.saturating_sub(before.timed),
            wait: self.wait.saturating_sub(before.wait),
            recovered: self.recovered.saturating_sub(before.recovered),
            gaps: self.gaps.saturating_sub(before.gaps),
            rtcp: self.rtcp.saturating_sub(before.rtcp),
            other: self.other.saturating_sub(before.other),
        }
    }
}

/// A payload type, as a description declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    payload_type: u8,
    /// In ticks per second.
    rate: u32,
    /// Whether timestamps say when a packet is to be played. All packets of a digit have the same
    /// (RFC 4733, 2.5.1.2), and comfort noise comes when it changes (RFC 3389).
    is_timed: bool,
}

/// Clock rates of payload types, from a description (`a=rtpmap`, RFC 8866, 6.6); only the first
/// ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks([Option<Clock>; 16]);

impl Clocks {
    /// Adds the value of an attribute, such as `96 opus/48000/2`.
    pub fn take(&mut self, rtpmap: &[u8]) {
        let parsed = core::str::from_utf8(rtpmap).ok().and_then(|text| {
            let (payload_type, encoding) = text.split_once(' ')?;
            let mut parts = encoding.split('/').map(str::trim);
            let (name, rate) = (parts.next()?, parts.next()?.parse().ok()?);
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let is_timed = !is("telephone-event") && !is("CN");
            Some(Clock { payload_type: payload_type.parse().ok()?, rate, is_timed })
        });
        // No audio clock is faster.
        let is_valid = |said: &Clock| said.payload_type < 128 && (1..=384_000).contains(&said.rate);
        let Some(said) = parsed.filter(is_valid) else { return };
        let is_same = |place: &Option<Clock>| {
            place.is_none_or(|clock| clock.payload_type == said.payload_type)
        };
        if let Some(place) = self.0.iter_mut().find(|place| is_same(place)) {
            *place = Some(said);
        }
    }

    fn of(&self, payload_type: u8) -> Option<&Clock> {
        self.0.iter().flatten().find(|clock| clock.payload_type == payload_type)
    }

    /// Clock rate in ticks per second.
    fn rate(&self, payload_type: u8) -> Option<u32> {
        self.of(payload_type).map(|clock| clock.rate).or_else(|| clock_rate(payload_type))
    }

    /// Whether the timestamps of a payload type say when its packets are to be played.
    fn is_timed(&self, payload_type: u8) -> bool {
        self.of(payload_type).map_or(payload_type != COMFORT_NOISE, |clock| clock.is_timed)
    }
}

/// The payload type of comfort noise at 8,000 ticks per second (RFC 3551, 6).
const COMFORT_NOISE: u8 = 13;

/// A packet that has a time.
#[derive(Clone, Copy, Debug)]
struct Timed {
    at: Time,
    number: u16,
    stamp: u32,
}

/// Steps of the timestamp from one packet to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    ticks: u32,
    /// Number of equal ones in a row.
    count: u8,
}

impl Steps {
    fn add(&mut self, ticks: u32) {
        let is_same = ticks == self.ticks && (1..1 << 31).contains(&ticks);
        // One odd step, such as that of a pause, does not make a stream irregular.
        self.count = if is_same { (self.count + 1).min(2 * REGULAR) } else { self.count / 2 };
        if self.count == 0 {
            self.ticks = ticks;
        }
    }

    /// Ticks per packet, if the stream is regular.
    fn regular(&self) -> Option<u32> {
        (self.count >= REGULAR).then_some(self.ticks)
    }
}

/// Timestamps that have jumped ahead: the sender paused and counted it, or they alone have stepped.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// By how many nanoseconds.
    by: i64,
    /// Delay of the fastest packets before it. After a pause none is much faster.
    fastest: i64,
    /// When it counts as a pause.
    until: Time,
}

/// An incoming stream, measured packet by packet.
#[derive(Clone, Debug, Default)]
pub struct Reception {
    counts: Counts,
    clocks: Clocks,
    /// Whether its datagrams are no RTP.
    is_other: bool,
    /// SSRC of the last packet.
    ssrc: u32,
    /// Payload type of the last packet that has a time.
    payload_type: u8,
    /// The highest sequence number, and a bitmap of it and the 63 before it that have arrived.
    newest: u16,
    seen: u64,
    /// The number after one that is far from `newest`: the stream begins anew if it arrives.
    anew: Option<u16>,
    /// The last packet that has a time, and the one with the highest number.
    last: Option<Timed>,
    head: Option<Timed>,
    steps: Steps,
    /// Delay of the last packet, in nanoseconds relative to the first.
    delay: i64,
    /// The last jump of timestamps, until it has turned out to be a step.
    jump: Option<Jump>,
    playout: Playout,
    /// In nanoseconds, times 16.
    jitter: u64,
}

impl Reception {
    /// The counters of the stream so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Interarrival jitter (RFC 3550, 6.4.1); `None` if the payload's clock rate isn't known.
    pub fn jitter(&self) -> Option<Duration> {
        self.clock_rate().map(|_| Duration::from_nanos(self.jitter / 16))
    }

    /// Clock rate of the last payload that has a time, in ticks per second, if known.
    pub fn clock_rate(&self) -> Option<u32> {
        self.clocks.rate(self.payload_type)
    }

    /// Sets whether the stream is RTP from now on: a fax (T.38 over UDPTL) is not, whatever its
    /// datagrams look like.
    pub fn set_rtp(&mut self, is_rtp: bool) {
        self.is_other = !is_rtp;
    }

    /// Sets the clock rates to use from now on.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.clocks = clocks;
    }

    /// Counts a datagram that arrived at `at`; `recovered` if the overlay had lost it on the way.
    pub fn note(&mut self, at: Time, datagram: &[u8], recovered: bool) {
        // Only the fixed header is read: the rest of an encrypted stream isn't readable.
        let header = datagram.first_chunk::<12>().filter(|_| !self.is_other);
        let Some(&[first, kind, a, b, t0, t1, t2, t3, s0, s1, s2, s3]) = header else {
            self.counts.other += 1;
            return;
        };
        match (first >> 6, kind) {
            // RTCP packet types share the byte with RTP payload types (RFC 5761, 4).
            (2, 192..=223) => self.counts.rtcp += 1,
            (2, _) => {
                let ssrc = u32::from_be_bytes([s0, s1, s2, s3]);
                let number = u16::from_be_bytes([a, b]);
                let packet = Timed { at, number, stamp: u32::from_be_bytes([t0, t1, t2, t3]) };
                if self.counts.packets == 0 || ssrc != self.ssrc {
                    self.turn_to(ssrc, number);
                }
                if self.number(&packet, kind & 0x7f) {
                    self.counts.packets += 1;
                    self.counts.bytes += datagram.len() as u64;
                    self.counts.recovered += u64::from(recovered);
                    self.timing(packet, kind);
                }
            }
            _ => self.counts.other += 1,
        }
    }

    /// Switches to another source, which has other numbers and another clock.
    fn turn_to(&mut self, ssrc: u32, number: u16) {
        (self.newest, self.seen, self.anew) = (number.wrapping_sub(1), 0, None);
        (self.ssrc, self.last, self.head) = (ssrc, None, None);
    }

    /// Counts a sequence number; false if the packet is a duplicate, or far from the others. Two such
    /// in a row are a stream that begins anew (RFC 3550, A.1).
    fn number(&mut self, packet: &Timed, payload_type: u8) -> bool {
        let number = packet.number;
        let follows = self.anew.take() == Some(number);
        let ahead = number.wrapping_sub(self.newest);
        match ahead {
            1..RESTART => {
                let sent = ahead.min(self.sent_since_newest(packet, payload_type));
                self.seen = self.seen.checked_shl(ahead.into()).unwrap_or(0) | 1;
                self.counts.expected += u64::from(sent);
                self.counts.gaps += u64::from(sent > 1);
                if sent < ahead {
                    self.renumber(number.wrapping_sub(sent));
                }
                self.newest = number;
                true
            }
            _ if (ahead == 0 || ahead > u16::MAX - 64)
                && (self.seen & self.bit(number) == 0 || !self.is_newer(packet, payload_type)) =>
            {
                let bit = self.bit(number);
                let is_new = bit != 0 && self.seen & bit == 0;
                self.seen |= bit;
                self.counts.duplicates += u64::from(!is_new);
                is_new
            }
            _ if follows => {
                self.renumber(number.wrapping_sub(2));
                (self.newest, self.seen) = (number, 1);
                self.counts.expected += 1;
                true
            }
            _ => {
                self.anew = Some(number.wrapping_add(1));
                false
            }
        }
    }

    /// The bit of `seen` for a number up to the newest.
    fn bit(&self, number: u16) -> u64 {
        1u64.checked_shl(self.newest.wrapping_sub(number).into()).unwrap_or(0)
    }

    /// The sender counts on from another number, as if its last packet had been `number`.
    fn renumber(&mut self, number: u16) {
        for packet in [&mut self.last, &mut self.head].into_iter().flatten() {
            packet.number = number;
        }
    }

    /// The newest packet and the ticks per packet, if the stream is regular and `payload_type` has a
    /// time.
    fn regular(&self, payload_type: u8) -> Option<(Timed, u32)> {
        let head = self.head.filter(|head| head.number == self.newest)?;
        let is_same = payload_type == self.payload_type && self.clocks.is_timed(payload_type);
        self.steps.regular().filter(|_| is_same).map(|step| (head, step))
    }

    /// How many packets the sender may have sent since the newest, with this one, by its timestamps
    /// or, if those jump, by the time that has passed.
    fn sent_since_newest(&self, packet: &Timed, payload_type: u8) -> u16 {
        let Some((head, step)) = self.regular(payload_type) else { return u16::MAX };
        let round = |of: i64, by: i64| ((of + by / 2) / by.max(1)).clamp(1, u16::MAX.into()) as u16;
        let ticks = i64::from(packet.stamp.wrapping_sub(head.stamp) as i32);
        let by_stamp = round(ticks, step.into());
        let Some((real, said)) = self.passed(&head, packet) else { return by_stamp };
        let jumps = ticks <= 0 || (real - said).unsigned_abs() >= JUMP;
        let length = self.nanos(step.into()).filter(|_| jumps);
        length.map_or(by_stamp, |length| round(real, length))
    }

    /// Whether a packet with a number that has been used is later than the newest by its timestamp:
    /// then it is neither a copy nor overtaken.
    fn is_newer(&self, packet: &Timed, payload_type: u8) -> bool {
        let newest = self.regular(payload_type).map(|(head, _)| head.stamp);
        newest.is_some_and(|stamp| packet.stamp.wrapping_sub(stamp) as i32 > 0)
    }

    /// Nanoseconds between two packets: by their arrival, and by their timestamps.
    fn passed(&self, before: &Timed, packet: &Timed) -> Option<(i64, i64)> {
        let real = packet.at.as_nanos() as i64 - before.at.as_nanos() as i64;
        let ticks = packet.stamp.wrapping_sub(before.stamp) as i32;
        self.nanos(ticks.into()).map(|said| (real, said))
    }

    /// Nanoseconds in these ticks of the last payload. Only ticks that a timestamp can't have are too
    /// many.
    fn nanos(&self, ticks: i64) -> Option<i64> {
        self.clock_rate().map(|rate| ticks.saturating_mul(1_000_000_000) / i64::from(rate))
    }

    fn timing(&mut self, packet: Timed, kind: u8) {
        let (payload_type, begins) = (kind & 0x7f, kind & 0x80 != 0);
        if !self.clocks.is_timed(payload_type) {
            return;
        }
        // Another payload may have another clock.
        let last = self.last.filter(|_| payload_type == self.payload_type);
        (self.payload_type, self.last) = (payload_type, Some(packet));
        if packet.number == self.newest {
            self.head = self.last;
        }
        let Some(last) = last else {
            self.steps = Steps::default();
            return self.begin(packet.at);
        };
        let regular = self.steps.regular();
        if packet.number == last.number.wrapping_add(1) {
            self.steps.add(packet.stamp.wrapping_sub(last.stamp));
        }
        let Some((real, said)) = self.passed(&last, &packet) else { return };
        let jump = self.jump(&last, &packet, regular, said);
        if packet.number.wrapping_sub(last.number) as i16 <= 0 && jump.saturating_abs() >= STEP {
            // It was overtaken by a packet with another relation to the clock.
            self.last = Some(last);
            return;
        }
        // A pause, or timestamps that jump, are not jitter.
        if (real - said).unsigned_abs() >= JUMP {
            return self.begin(packet.at);
        }
        let off = real - said + self.step(packet.at, jump, real - said);
        self.jitter = self.jitter + off.unsigned_abs() - self.jitter / 16;
        self.delay += off;
        self.play(packet.at, begins);
    }

    /// Nanoseconds that timestamps differ from what they usually do between two packets. If the packets
    /// themselves come as usual, this is the sender's doing: the network cannot, and a phone does not
    /// wait for what was not sent.
    fn jump(&self, last: &Timed, packet: &Timed, regular: Option<u32>, said: i64) -> i64 {
        let packets = i64::from(packet.number.wrapping_sub(last.number) as i16);
        let usual = regular.and_then(|step| self.nanos(i64::from(step) * packets));
        usual.map_or(0, |usual| said.saturating_sub(usual))
    }

    /// Nanoseconds by which timestamps are found to have stepped ahead, when a packet that comes `off`
    /// later than the last one follows a `jump`. That it comes early says nothing of a step: the packet
    /// before a pause may have been late. That it would be the fastest by far does.
    fn step(&mut self, at: Time, jump: i64, off: i64) -> i64 {
        if jump >= STEP {
            let fastest = self.playout.fastest(at).unwrap_or(self.delay);
            self.jump = Some(Jump { by: jump, fastest, until: at + SETTLES });
        }
        self.jump = self.jump.filter(|jump| at < jump.until);
        let delay = self.delay + off;
        let step = self.jump.take_if(|jump| delay < jump.fastest - jump.by / 2);
        step.map_or(0, |jump| jump.by)
    }

    /// Begins to measure delays anew.
    fn begin(&mut self, at: Time) {
        (self.delay, self.jump) = (0, None);
        self.playout.restart();
        self.play(at, true);
    }

    fn play(&mut self, at: Time, begins: bool) {
        if self.clock_rate().is_none() {
            return;
        }
        // Until it is known whether timestamps have stepped, the fastest packet stays as it was.
        let delay = self.jump.map_or(self.delay, |jump| self.delay.max(jump.fastest));
        let played = self.playout.take(at, delay, begins);
        self.counts.late += u64::from(played.is_late);
        self.counts.timed += 1;
        self.counts.wait += played.wait.unsigned_abs();
    }
}

/// Clock rate of the payload types with a fixed assignment (RFC 3551, 6).
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

    /// A stream of packets given by sequence number and delay in milliseconds.
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
        // The same source, far away in sequence numbers, ahead and back. One alone is a stray packet.
        let counts = |heard: &Reception| (heard.counts().expected, heard.counts().packets);
        assert_eq!((counts(&heard), heard.counts().recovered), ((4, 4), 1));
        for (from, expected) in [(10_001, 6), (9_500, 8), (50_000, 10)] {
            heard.note(Time::from_millis(2_040), &packet(777, 0, 8), false);
            for number in from..from + 3 {
                heard.note(Time::from_millis(2_040), &packet(number, 329, 8), false);
            }
            assert_eq!(counts(&heard), (expected, expected), "{from}");
            heard.note(Time::from_millis(2_040), &packet(777, 0, 8), false);
        }
        assert_eq!(heard.counts().duplicates, 0);
    }

    /// Packets of 20 ms, each sent as many milliseconds late as `late` says.
    fn hear_for(seconds: u64, late: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut heard = Reception::default();
        let second = |s: u64| {
            let before = heard.counts();
            for n in 50 * s..50 * (s + 1) {
                let at = Time::from_millis(1_000 + 20 * n + late(n));
                heard.note(at, &packet(n as u16, 160 * n as u32, 7), false);
            }
            heard.counts().since(&before).late
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn a_longer_path_and_a_slow_clock_cost_their_moment() {
        // 80 ms more from second 10 on.
        let late = hear_for(20, |n| if n < 500 { 0 } else { 80 });
        let bad = late.iter().filter(|late| **late > 0).count();
        assert!(bad == 1 && late[10] > 0, "{late:?}");
        for ppm in [20, 100, 1_000] {
            let late = hear_for(1_800, |n| 20 * n * ppm / 1_000_000);
            assert_eq!(late.iter().sum::<u64>(), 0, "{ppm} ppm");
        }
        // A sender that paces its packets by pauses of 20 ms, for a while.
        for per_mille in [3, 10] {
            let late = hear_for(10, |n| 20 * n * per_mille / 1_000);
            assert_eq!(late.iter().sum::<u64>(), 0, "{per_mille} in a thousand: {late:?}");
        }
        // The timestamp wraps.
        let mut heard = Reception::default();
        for n in 0..300u64 {
            let stamp = 0u32.wrapping_sub(24_000).wrapping_add(160 * n as u32);
            heard.note(Time::from_millis(20 * n), &packet(n as u16, stamp, 7), false);
        }
        assert_eq!((heard.counts().late, heard.jitter()), (0, Some(Duration::ZERO)));
    }

    /// Digits (RFC 4733) of twelve packets with one timestamp, and comfort noise, between speech.
    #[test]
    fn digits_and_comfort_noise_have_no_timing() {
        for (payload_type, rtpmap) in
            [(101, "101 telephone-event/8000"), (98, "98 cn/8000"), (13, "0 PCMU/8000")]
        {
            let mut heard = Reception::default();
            let mut clocks = Clocks::default();
            clocks.take(rtpmap.as_bytes());
            heard.set_clocks(clocks);
            for n in 0..1_000u16 {
                let is_event = n % 40 >= 28;
                let stamp = if is_event { n - n % 40 + 28 } else { n };
                let mut packet = packet(n, 160 * u32::from(stamp), 7);
                packet[1] = if is_event { payload_type } else { 0 };
                heard.note(Time::from_millis(20 * u64::from(n)), &packet, false);
            }
            let counts = heard.counts();
            let all = (counts.packets, counts.late, heard.jitter());
            assert_eq!(all, (1_000, 0, Some(Duration::ZERO)), "{rtpmap}");
        }
    }

    #[test]
    fn what_comes_long_after_the_fastest_is_late() {
        // Until a hundred packets have come, a phone waits 100 ms longer than for the fastest.
        let heard = hear(&[(0, 10), (1, 30), (2, 109), (3, 115), (4, 10)]);
        assert_eq!(heard.counts().late, 1);
        // Jitter of 16 ms from packet to packet.
        let heard = hear(&[(0, 16), (1, 0), (2, 16)]);
        assert_eq!(heard.jitter(), Some(Duration::from_nanos((16_000_000 * 31 / 16) / 16)));
    }

    #[test]
    fn timestamps_that_jump_by_hours_are_no_time() {
        for (rate, jump) in [(8_000, 1 << 30), (1, 1 << 30), (1, i32::MAX as u32), (384_000, 1)] {
            let mut heard = Reception::default();
            let mut clocks = Clocks::default();
            clocks.take(format!("96 x/{rate}").as_bytes());
            heard.set_clocks(clocks);
            let mut now = 0;
            let mut note = |n: u16, stamp: u32, kind: u8| {
                let mut packet = packet(n, stamp, 7);
                packet[1] = kind;
                now += 2;
                heard.note(Time::from_millis(now), &packet, false);
            };
            for n in 0..8 {
                note(n, jump.wrapping_mul(n.into()), 96);
            }
            for number in [108, 3_000, 5_900, 5_850] {
                // Comfort noise, which has no time, comes before it.
                note(number - 1, 0, 13);
                note(number, jump.wrapping_mul(7).wrapping_add(160), 96);
            }
            assert_eq!(heard.counts().packets, 16, "{rate} {jump}");
        }
    }

    /// UDPTL begins with its sequence number, whose upper bits can be those of RTP's version.
    #[test]
    fn a_fax_is_never_speech() {
        let mut heard = Reception::default();
        for is_rtp in [true, false, true] {
            heard.set_rtp(is_rtp);
            let before = heard.counts();
            for number in 0x8000..0x8100u16 {
                let mut datagram = packet(0, 0, 7);
                datagram[..2].copy_from_slice(&number.to_be_bytes());
                datagram[3] = number as u8;
                heard.note(Time::from_millis(20 * u64::from(number)), &datagram, false);
            }
            let Counts { packets, rtcp, other, .. } = heard.counts().since(&before);
            let is_other = (packets, rtcp, other) == (0, 0, 256);
            assert_eq!(is_other, !is_rtp, "{packets} {rtcp} {other}");
        }
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
        // A payload type with an unknown clock, then with the clock from a description.
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
        // Clocks beyond the capacity are ignored, and the earlier ones stay.
        (100..127).for_each(|n| clocks.take(format!("{n} x/16000").as_bytes()));
        let rates = [96, 97, 100, 126, 0].map(|kind| clocks.rate(kind));
        assert_eq!(rates, [Some(48_000), Some(8_000), Some(16_000), None, Some(8_000)]);
    }
}
