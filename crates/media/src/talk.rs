//! A model of conversational speech, and of the packets that it makes on one side of a call.
//!
//! The source of Balan, Eggert, Niccolini and Brunner, *An Experimental Evaluation of Voice Quality
//! over the Datagram Congestion Control Protocol* (2007), §III-A and §III-B, after Sriram and Whitt
//! (1986): talkspurts and pauses of exponential length, and a codec that sends nothing during
//! pauses.

use core::iter::FusedIterator;
use core::time::Duration;

use rand::Rng as _;
use trunkline_base::{Bitrate, Rng, Time};

/// Headers of IPv4, UDP, RTP and the link layer per packet, in bytes, as counted in Table I of
/// Balan et al. 2007.
pub const TABLE_I_HEADERS: usize = 78;

/// Lengths and number of talkspurts and pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Mean length of a talkspurt.
    pub mean_talkspurt: Duration,
    /// Mean length of the pause after each talkspurt.
    pub mean_pause: Duration,
    /// Number of talkspurts in the call, each followed by a pause.
    pub cycles: u32,
}

impl Default for Model {
    /// 100 cycles of 1.0 s and 1.5 s, 250 s on average (Balan et al. 2007, §III-A).
    fn default() -> Model {
        Model {
            mean_talkspurt: Duration::from_secs(1),
            mean_pause: Duration::from_millis(1_500),
            cycles: 100,
        }
    }
}

impl Model {
    /// The talkspurts of one call, drawn from `rng`: two draws for each, so that the same generator
    /// gives the same call with any framing.
    pub fn talkspurts(self, rng: Rng) -> Talkspurts {
        Talkspurts { model: self, rng, start: Time::ZERO, drawn: 0 }
    }

    /// The packets of one call, drawn from `rng`.
    pub fn packets(self, framing: Framing, rng: Rng) -> Packets {
        Packets {
            talkspurts: self.talkspurts(rng),
            framing,
            next: Time::ZERO,
            left: 0,
            talkspurt: 0,
        }
    }
}

/// An uninterrupted stretch of speech, and the silence after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Talkspurt {
    /// Start of the talkspurt; [`Time::ZERO`] for the first of a call.
    pub start: Time,
    /// Length of the talkspurt, at least 1 ns.
    pub length: Duration,
    /// Length of the pause after it, at least 1 ns.
    pub pause: Duration,
}

/// The talkspurts of one call, from [`Model::talkspurts`].
#[derive(Debug, Clone)]
pub struct Talkspurts {
    model: Model,
    rng: Rng,
    start: Time,
    drawn: u32,
}

impl Iterator for Talkspurts {
    type Item = Talkspurt;

    fn next(&mut self) -> Option<Talkspurt> {
        if self.drawn == self.model.cycles {
            return None;
        }
        self.drawn += 1;
        let length = exponential(self.model.mean_talkspurt, &mut self.rng);
        let pause = exponential(self.model.mean_pause, &mut self.rng);
        let start = self.start;
        self.start = start + length + pause;
        Some(Talkspurt { start, length, pause })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.model.cycles - self.drawn) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Talkspurts {}
impl FusedIterator for Talkspurts {}

/// An exponentially distributed length with this mean; at most 36.7 times the mean, since the draw
/// has 53 bits.
fn exponential(mean: Duration, rng: &mut Rng) -> Duration {
    const ULP: f64 = 1.0 / (1u64 << 53) as f64;
    // In (0, 1], so that the logarithm is finite.
    let u = ((rng.next_u64() >> 11) + 1) as f64 * ULP;
    let nanos = -libm::log(u) * mean.as_nanos() as f64;
    Duration::from_nanos((libm::round(nanos) as u64).max(1))
}

/// Assignment of a codec's frames to packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// Duration of one frame; zero counts as 1 ns.
    pub frame: Duration,
    /// Size of one encoded frame, in bytes.
    pub frame_bytes: usize,
    /// Number of frames in one packet; zero counts as one.
    pub frames_per_packet: u32,
}

impl Framing {
    /// G.711: one frame of 20 ms, 160 bytes (Balan et al. 2007, Table I).
    pub const G711: Framing =
        Framing { frame: Duration::from_millis(20), frame_bytes: 160, frames_per_packet: 1 };
    /// G.729: two frames of 10 ms, 20 bytes together (Balan et al. 2007, Table I).
    pub const G729: Framing =
        Framing { frame: Duration::from_millis(10), frame_bytes: 10, frames_per_packet: 2 };

    /// Duration of the speech in one packet, and so the time between two packets.
    pub fn interval(self) -> Duration {
        let frame = self.frame.max(Duration::from_nanos(1));
        frame.saturating_mul(self.frames_per_packet.max(1))
    }

    /// Size of the encoded speech in one packet, in bytes.
    pub fn payload(self) -> usize {
        self.frame_bytes.saturating_mul(self.frames_per_packet.max(1) as usize)
    }

    /// The rate on the wire during a talkspurt, rounded down to 1 bit/s, with this many bytes of
    /// headers per packet.
    pub fn bitrate(self, headers: usize) -> Bitrate {
        let bits = (self.payload() as u128 + headers as u128) * 8;
        let bps = bits.saturating_mul(1_000_000_000) / self.interval().as_nanos();
        Bitrate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}

/// One packet of speech, ready to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Time at which the last of its speech has been spoken, so that it can be sent: one
    /// [`Framing::interval`] after the first of it.
    pub time: Time,
    /// Number of the talkspurt that it belongs to, from 0.
    pub talkspurt: u32,
    /// Size of the encoded speech in bytes, without headers.
    pub bytes: usize,
}

/// The packets of one call in the order of their times, from [`Model::packets`].
///
/// The codec's frames start with the talkspurt. Its last packet is padded with silence, so every
/// packet has the same size; a talkspurt that would begin before that packet is full begins after
/// it.
#[derive(Debug, Clone)]
pub struct Packets {
    talkspurts: Talkspurts,
    framing: Framing,
    /// End of the last filled packet.
    next: Time,
    /// Number of packets left in the current talkspurt.
    left: u64,
    talkspurt: u32,
}

impl Iterator for Packets {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let interval = self.framing.interval();
        if self.left == 0 {
            self.talkspurt = self.talkspurts.drawn;
            let talkspurt = self.talkspurts.next()?;
            let packets = talkspurt.length.as_nanos().div_ceil(interval.as_nanos());
            self.left = u64::try_from(packets).unwrap_or(u64::MAX);
            self.next = self.next.max(talkspurt.start);
        }
        self.left -= 1;
        self.next += interval;
        Some(Packet { time: self.next, talkspurt: self.talkspurt, bytes: self.framing.payload() })
    }
}

impl FusedIterator for Packets {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trunkline_base::{rng, stats::Mean};

    const INTERVAL: Duration = Duration::from_millis(20);

    fn seconds(lengths: impl Iterator<Item = Duration>) -> Vec<f64> {
        lengths.map(|l| l.as_secs_f64()).collect()
    }

    #[track_caller]
    fn near(values: &[f64], want: f64) {
        let got = Mean::of(values).estimate;
        // Five standard errors of an exponential distribution's mean.
        let within = 5.0 * want / (values.len() as f64).sqrt();
        assert!((got - want).abs() < within, "{got} is not {want} ± {within}");
    }

    #[test]
    fn the_means_and_the_shape_are_those_of_the_model() {
        let model = Model { cycles: 20_000, ..Model::default() };
        let all: Vec<Talkspurt> = model.talkspurts(rng(1, 0)).collect();
        let talk = seconds(all.iter().map(|t| t.length));
        near(&talk, 1.0);
        near(&seconds(all.iter().map(|t| t.pause)), 1.5);
        // In an exponential distribution, exp(-2) = 13.5 % is beyond twice the mean.
        let long = talk.iter().filter(|&&t| t > 2.0).count() as f64 / 20_000.0;
        assert!((long - 0.1353).abs() < 0.01, "{long}");
    }

    #[test]
    fn calls_last_250_seconds_on_average() {
        let calls: Vec<f64> = (0..200)
            .map(|seed| Model::default().talkspurts(rng(seed, 0)).last().unwrap())
            .map(|t| (t.start + t.length + t.pause).as_nanos() as f64 / 1e9)
            .collect();
        let mean = Mean::of(&calls);
        assert!(mean.interval.0 < 250.0 && 250.0 < mean.interval.1, "{mean:?}");
    }

    #[test]
    fn both_codecs_send_50_packets_a_second() {
        for (framing, bytes, bps) in [(Framing::G711, 160, 95_200), (Framing::G729, 20, 39_200)] {
            assert_eq!((framing.interval(), framing.payload()), (INTERVAL, bytes));
            assert_eq!(framing.bitrate(TABLE_I_HEADERS), Bitrate::from_bps(bps), "Table I");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_call_with_either_codec() {
        let call = |framing, seed| -> Vec<(Time, u32)> {
            Model::default().packets(framing, rng(seed, 7)).map(|p| (p.time, p.talkspurt)).collect()
        };
        assert_eq!(call(Framing::G711, 1), call(Framing::G729, 1));
        assert_ne!(call(Framing::G711, 1), call(Framing::G711, 2));
    }

    #[test]
    fn packets_by_hand() {
        let model = Model { cycles: 50, ..Model::default() };
        let talkspurts: Vec<Talkspurt> = model.talkspurts(rng(3, 0)).collect();
        let packets: Vec<Packet> = model.packets(Framing::G729, rng(3, 0)).collect();
        let (mut full, mut delayed) = (Time::ZERO, 0);
        for (i, talkspurt) in talkspurts.iter().enumerate() {
            let own: Vec<_> = packets.iter().filter(|p| p.talkspurt == i as u32).collect();
            assert_eq!(own.len(), (talkspurt.length.as_secs_f64() / 0.02).ceil() as usize);
            delayed += u32::from(full > talkspurt.start);
            assert_eq!(own[0].time, full.max(talkspurt.start) + INTERVAL);
            full = own[own.len() - 1].time;
        }
        assert_eq!(delayed, 1, "pauses shorter than what was missing of a packet");
    }

    #[test]
    fn without_cycles_there_is_nothing_and_it_stays_so() {
        let mut none = Model { cycles: 0, ..Model::default() }.packets(Framing::G711, rng(1, 0));
        assert_eq!((none.next(), none.next()), (None, None));
        let once = Model { cycles: 1, ..Model::default() };
        assert_eq!(once.packets(Framing::G711, rng(1, 0)).map(|p| p.talkspurt).max(), Some(0));
    }

    proptest! {
        #[test]
        fn packets_are_an_interval_apart_in_a_talkspurt_and_at_least_that_between(
            seed: u64, pause_ms in 0u64..200,
        ) {
            let mean_pause = Duration::from_millis(pause_ms);
            let model = Model { mean_pause, cycles: 30, ..Model::default() };
            let packets: Vec<Packet> = model.packets(Framing::G711, rng(seed, 0)).collect();
            for pair in packets.windows(2) {
                let gap = pair[1].time.since(pair[0].time);
                prop_assert!(gap >= INTERVAL);
                match pair[1].talkspurt - pair[0].talkspurt {
                    0 => prop_assert_eq!(gap, INTERVAL),
                    jump => prop_assert_eq!(jump, 1),
                }
            }
            prop_assert_eq!(packets.last().map(|p| p.talkspurt), Some(29));
        }

        #[test]
        fn absurd_parameters_do_not_panic(
            seed: u64, talk: Duration, pause: Duration, frame: Duration,
            frame_bytes: usize, frames_per_packet: u32,
        ) {
            let model = Model { mean_talkspurt: talk, mean_pause: pause, cycles: 3 };
            let framing = Framing { frame, frame_bytes, frames_per_packet };
            framing.bitrate(usize::MAX);
            let packets = model.packets(framing, rng(seed, 0)).take(1_000);
            prop_assert!(packets.count() > 0);
        }
    }
}
