//! Playout against a fixed deadline.
//!
//! A voice packet is useful until it must be played, a fixed time after it was spoken; a later one
//! is as good as lost (Amir, Danilov, Goose, Hedqvist and Terzis 2005, §II-A). So each packet needs
//! only one number, the time that the network took to deliver it, and the order of arrival is
//! irrelevant.

pub mod adaptive;
pub mod optimal;

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use trunkline_base::{Time, extend};

/// Default for the longest useful network delay: 100 ms one way, as in Amir et al. 2005. With 20 ms
/// to fill a packet, it leaves a call below the 150 ms of ITU-T G.114.
pub const DEADLINE: Duration = Duration::from_millis(100);

/// Fate of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Arrived in time without help from the network.
    Played,
    /// Arrived in time because the network repaired its loss.
    Recovered,
    /// Arrived after its deadline.
    Late,
    /// The packet never arrived.
    Lost,
}

impl Fate {
    /// Whether the packet was late or lost, so the listener did not hear it.
    pub fn missed(self) -> bool {
        matches!(self, Fate::Late | Fate::Lost)
    }
}

/// Outcome of receiving a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The packet will be played.
    InTime,
    /// The packet arrived after its deadline.
    Late,
    /// The packet has arrived before; nothing changes.
    Duplicate,
}

/// Reasons for rejecting a packet; the playout is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlayoutError {
    /// The call would exceed [`Config::max_packets`].
    #[error(
        "packet {sequence} is outside a call of at most {max} packets: raise the maximum, or start a new playout"
    )]
    CallTooLong {
        /// RTP sequence number of the packet.
        sequence: u16,
        /// The value of [`Config::max_packets`].
        max: usize,
    },
    /// The sequence number lies before [`Config::first_sequence`].
    #[error(
        "packet {sequence} is before the call's first packet, {first}: it belongs to another stream"
    )]
    BeforeFirst {
        /// RTP sequence number of the packet.
        sequence: u16,
        /// The value of [`Config::first_sequence`].
        first: u16,
    },
    /// The payload has more than two bytes per sample.
    #[error("packet {sequence} carries {len} bytes, but a frame needs at most {max}")]
    TooLarge {
        /// RTP sequence number of the packet.
        sequence: u16,
        /// Length of the payload, in bytes.
        len: usize,
        /// Maximum length: two bytes per sample of a packet.
        max: usize,
    },
}

/// Parameters of the call to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The longest useful one-way network delay; a packet that took exactly this long is still
    /// played.
    pub deadline: Duration,
    /// Number of PCM samples per packet: 160 for 20 ms at 8 kHz.
    pub samples_per_packet: usize,
    /// Maximum number of packets. It bounds the memory: 2 bytes and, when finished, one PCM sample
    /// more per sample of the call.
    pub max_packets: usize,
    /// The sender's first sequence number, if known. Otherwise, the call begins with the lowest
    /// number that arrives.
    pub first_sequence: Option<u16>,
}

impl Default for Config {
    /// A deadline of 100 ms; 20 ms packets at 8 kHz; at most 4 hours.
    fn default() -> Config {
        Config {
            deadline: DEADLINE,
            samples_per_packet: 160,
            max_packets: 4 * 3600 * 50,
            first_sequence: None,
        }
    }
}

/// Decodes the packets of a call, in the order in which they were spoken, and conceals the missing
/// ones.
pub trait Decoder {
    /// Fills `frame` with the speech in `payload`.
    fn decode(&mut self, payload: &[u8], frame: &mut [i16]);
    /// Fills `frame` for a missed packet.
    fn conceal(&mut self, frame: &mut [i16]);
    /// Number of samples by which the frames lag behind the packets that they were filled for.
    /// [`Playout::finish`] removes the lag.
    fn delay(&self) -> usize {
        0
    }
    /// Fills `tail`, [`Decoder::delay`] samples long, with the samples that remain after the last
    /// frame.
    fn flush(&mut self, tail: &mut [i16]) {
        tail.fill(0);
    }
}

#[derive(Debug, Clone)]
struct Slot {
    fate: Fate,
    payload: Range<usize>,
}

const EMPTY: Slot = Slot { fate: Fate::Lost, payload: 0..0 };

/// Collects the packets of one call. The documentation of the module and the crate has more.
#[derive(Debug, Clone)]
pub struct Playout {
    config: Config,
    /// Unwrapped number of `slots[0]`; `None` before the first packet.
    base: Option<u64>,
    slots: VecDeque<Slot>,
    payloads: Vec<u8>,
}

impl Playout {
    /// Creates a playout to which nothing has arrived.
    pub fn new(config: Config) -> Playout {
        let base = config.first_sequence.map(unwrapped);
        Playout { config, base, slots: VecDeque::new(), payloads: Vec::new() }
    }

    /// Receives a packet: its RTP sequence number, the time that the network took to deliver it
    /// (`arrival.since(sent)`, or from [`RelativeDelay`]), whether the network repaired its loss,
    /// and its payload.
    ///
    /// Of several copies, the first in time counts.
    pub fn receive(
        &mut self,
        sequence: u16,
        network_delay: Duration,
        repaired: bool,
        payload: &[u8],
    ) -> Result<Arrival, PlayoutError> {
        let max = 2 * self.config.samples_per_packet;
        if payload.len() > max {
            return Err(PlayoutError::TooLarge { sequence, len: payload.len(), max });
        }
        let slot = self.slot(sequence)?;
        if !slot.fate.missed() {
            return Ok(Arrival::Duplicate);
        }
        if network_delay > self.config.deadline {
            let before = core::mem::replace(&mut self.slots[slot.index].fate, Fate::Late);
            return Ok(if before == Fate::Late { Arrival::Duplicate } else { Arrival::Late });
        }
        let start = self.payloads.len();
        self.payloads.extend_from_slice(payload);
        self.slots[slot.index] = Slot {
            fate: if repaired { Fate::Recovered } else { Fate::Played },
            payload: start..self.payloads.len(),
        };
        Ok(Arrival::InTime)
    }

    /// Decodes the whole call, each sample at the position where it was spoken. `sent` is the
    /// number of packets sent, if known; otherwise, the call ends with the highest number that
    /// arrived.
    pub fn finish(self, sent: Option<usize>, decoder: &mut impl Decoder) -> Played {
        let packets = sent.unwrap_or(0).min(self.config.max_packets).max(self.slots.len());
        let samples = packets * self.config.samples_per_packet;
        let delay = decoder.delay();
        let mut pcm = vec![0; samples + delay];
        let mut fates = Vec::with_capacity(packets);
        let slots = self.slots.iter().chain(core::iter::repeat(&EMPTY));
        // A frame without samples would make no chunks, hence the range.
        for (i, slot) in (0..packets).zip(slots) {
            let at = i * self.config.samples_per_packet;
            let frame = &mut pcm[at..at + self.config.samples_per_packet];
            if slot.fate.missed() {
                decoder.conceal(frame);
            } else {
                decoder.decode(&self.payloads[slot.payload.clone()], frame);
            }
            fates.push(slot.fate);
        }
        decoder.flush(&mut pcm[samples..]);
        pcm.drain(..delay);
        Played { pcm, fates }
    }

    /// Finds the slot of `sequence`, extending the call at either end.
    fn slot(&mut self, sequence: u16) -> Result<Found, PlayoutError> {
        let max = self.config.max_packets;
        let too_long = PlayoutError::CallTooLong { sequence, max };
        let base = self.base.unwrap_or_else(|| unwrapped(sequence));
        let highest = base + (self.slots.len() as u64).saturating_sub(1);
        let number = extend(highest, sequence);

        if let (true, Some(first)) = (number < base, self.config.first_sequence) {
            return Err(PlayoutError::BeforeFirst { sequence, first });
        }
        let before = base.saturating_sub(number) as usize;
        let index = number.saturating_sub(base) as usize;
        if before + self.slots.len().max(index + 1) > max {
            return Err(too_long);
        }
        self.base = Some(base - before as u64);
        for _ in 0..before {
            self.slots.push_front(EMPTY);
        }
        if index >= self.slots.len() {
            self.slots.resize(index + 1, EMPTY);
        }
        Ok(Found { index, fate: self.slots[index].fate })
    }
}

struct Found {
    index: usize,
    fate: Fate,
}

/// Unwraps a first number, far enough above zero for lower numbers to exist.
fn unwrapped(sequence: u16) -> u64 {
    0x1_0000 + u64::from(sequence)
}

/// A call as the listener heard it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    /// The sound, without gaps from the first packet to the last.
    pub pcm: Vec<i16>,
    /// One fate per packet, in the order in which they were spoken.
    pub fates: Vec<Fate>,
}

impl Played {
    /// Number of packets with this fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.fates.iter().filter(|&&f| f == fate).count()
    }

    /// For each packet, whether it was late or lost.
    pub fn missed(&self) -> impl Iterator<Item = bool> + '_ {
        self.fates.iter().map(|f| f.missed())
    }

    /// The share of packets that were late or lost, 0 to 1; 0 for an empty call.
    pub fn missed_share(&self) -> f64 {
        let missed = self.missed().filter(|&m| m).count();
        missed as f64 / self.fates.len().max(1) as f64
    }
}

/// The delay of packets whose send time is known only by their RTP timestamp: how much longer each
/// took than the fastest one so far.
///
/// The minimum falls as faster packets arrive, so for a recorded call a second pass over the same
/// packets gives delays above the call's own minimum. The sender's clock is assumed to run at its
/// nominal rate: at 50 ppm off, the delays drift by 3 ms per minute.
#[derive(Debug, Clone)]
pub struct RelativeDelay {
    clock_rate: u32,
    /// The previous packet's timestamp, as sent and unwrapped: ticks since the first.
    previous: Option<(u32, i64)>,
    /// Smallest time from speech to arrival, in nanoseconds, up to a constant.
    fastest: i128,
}

impl RelativeDelay {
    /// Creates the estimator for timestamps with `clock_rate` ticks per second; 0 counts as 1.
    pub fn new(clock_rate: u32) -> RelativeDelay {
        RelativeDelay { clock_rate: clock_rate.max(1), previous: None, fastest: i128::MAX }
    }

    /// The delay of a packet above the smallest delay so far, including its own.
    ///
    /// Successive timestamps may differ by less than 2^31 ticks in either direction.
    pub fn observe(&mut self, timestamp: u32, arrival: Time) -> Duration {
        let ticks = self.previous.map_or(0, |(wire, ticks)| {
            ticks.saturating_add(i64::from(timestamp.wrapping_sub(wire) as i32))
        });
        self.previous = Some((timestamp, ticks));
        let spoken = i128::from(ticks) * 1_000_000_000 / i128::from(self.clock_rate);
        let transit = i128::from(arrival.as_nanos()) - spoken;
        self.fastest = self.fastest.min(transit);
        Duration::from_nanos(u64::try_from(transit - self.fastest).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::g711::{Concealing, Law};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn small() -> Config {
        Config { samples_per_packet: 2, ..Config::default() }
    }

    /// A decoder that fills the frame with the payload's first byte.
    struct Plain;
    impl Decoder for Plain {
        fn decode(&mut self, payload: &[u8], frame: &mut [i16]) {
            frame.fill(i16::from(payload[0]));
        }
        fn conceal(&mut self, frame: &mut [i16]) {
            frame.fill(-1);
        }
    }

    #[test]
    fn each_fate_and_the_sound_of_it() {
        let mut p = Playout::new(small());
        assert_eq!(p.receive(1, 40 * MS, false, &[1]), Ok(Arrival::InTime));
        assert_eq!(p.receive(4, 100 * MS, true, &[4]), Ok(Arrival::InTime), "just in time");
        assert_eq!(p.receive(2, 101 * MS, true, &[2]), Ok(Arrival::Late));
        let played = p.finish(Some(5), &mut Plain);
        assert_eq!(
            played.fates,
            [Fate::Played, Fate::Late, Fate::Lost, Fate::Recovered, Fate::Lost]
        );
        assert_eq!(played.pcm, [1, 1, -1, -1, -1, -1, 4, 4, -1, -1]);
        assert_eq!(played.count(Fate::Lost), 2);
        assert_eq!(played.missed_share(), 0.6);
    }

    #[test]
    fn the_first_copy_in_time_counts() {
        let mut p = Playout::new(small());
        assert_eq!(p.receive(7, 150 * MS, false, &[1]), Ok(Arrival::Late));
        assert_eq!(p.receive(7, 160 * MS, false, &[2]), Ok(Arrival::Duplicate));
        assert_eq!(p.receive(7, 90 * MS, true, &[3]), Ok(Arrival::InTime));
        assert_eq!(p.receive(7, 10 * MS, false, &[4]), Ok(Arrival::Duplicate));
        let played = p.finish(None, &mut Plain);
        assert_eq!((played.pcm, played.fates), (vec![3, 3], vec![Fate::Recovered]));
    }

    #[test]
    fn numbers_wrap_in_both_directions() {
        let mut p = Playout::new(small());
        for n in [2u16, 0xffff, 1, 0xfffe] {
            p.receive(n, MS, false, &[n as u8]).unwrap();
        }
        let played = p.finish(None, &mut Plain);
        assert_eq!(played.pcm, [254, 254, 255, 255, -1, -1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_known_first_number_shows_what_was_lost_before_it() {
        let first = Config { first_sequence: Some(10), ..small() };
        let mut p = Playout::new(first);
        p.receive(12, MS, false, &[12]).unwrap();
        assert_eq!(
            p.receive(9, MS, false, &[9]),
            Err(PlayoutError::BeforeFirst { sequence: 9, first: 10 })
        );
        assert_eq!(p.finish(None, &mut Plain).fates, [Fate::Lost, Fate::Lost, Fate::Played]);
        assert_eq!(Playout::new(first).finish(Some(2), &mut Plain).fates, [Fate::Lost; 2]);
    }

    #[test]
    fn the_law_itself_decodes_and_leaves_silence() {
        let mut p = Playout::new(small());
        p.receive(0, MS, false, &[Law::A.encode(1000), Law::A.encode(-1000)]).unwrap();
        let played = p.finish(Some(2), &mut Law::A);
        assert_eq!(played.pcm, [1008, -1008, 0, 0]);
    }

    #[test]
    fn a_concealing_decoder_stays_aligned() {
        let pcm: Vec<i16> = (0..1600).map(|n| (n % 50 - 25) * 100).collect();
        let mut codes = vec![];
        Law::Mu.encode_to(&pcm, &mut codes);
        for samples_per_packet in [10, 80, 160, 200] {
            let mut p = Playout::new(Config { samples_per_packet, ..Config::default() });
            for (n, packet) in codes.chunks(samples_per_packet).enumerate() {
                p.receive(n as u16, MS, false, packet).unwrap();
            }
            let (plain, concealing) = (p.clone(), p);
            let want = plain.finish(None, &mut Law::Mu);
            let got = concealing.finish(None, &mut Concealing::new(Law::Mu));
            assert_eq!(got, want);
        }
        let nothing = Playout::new(Config::default()).finish(None, &mut Concealing::new(Law::Mu));
        assert_eq!(nothing.pcm, []);
    }

    proptest! {
        #[test]
        fn memory_is_bounded_whatever_comes(
            packets in vec((any::<u16>(), 0u64..200, any::<bool>(), 0usize..6), 0..200),
            known in proptest::option::of(any::<u16>()), sent in proptest::option::of(any::<usize>()),
        ) {
            let config = Config { max_packets: 1000, first_sequence: known, ..small() };
            let mut p = Playout::new(config);
            let mut in_time = 0;
            for (sequence, delay, repaired, len) in packets {
                if let Ok(Arrival::InTime) = p.receive(sequence, delay as u32 * MS, repaired, &[0; 6][..len]) {
                    in_time += 1;
                }
            }
            prop_assert!(p.payloads.len() <= 1000 * 4);
            let played = p.finish(sent, &mut Concealing::new(Law::Mu));
            prop_assert!(played.fates.len() <= 1000);
            prop_assert_eq!(played.pcm.len(), 2 * played.fates.len());
            prop_assert_eq!(played.count(Fate::Played) + played.count(Fate::Recovered), in_time);
        }

        #[test]
        fn order_of_arrival_does_not_matter(
            first: u16, mut order in Just((0u16..200).collect::<Vec<_>>()).prop_shuffle(), lost in 0usize..100,
        ) {
            order.truncate(200 - lost);
            let (mut shuffled, mut sorted) = (Playout::new(small()), Playout::new(small()));
            let feed = |p: &mut Playout, order: &[u16]| for &i in order {
                p.receive(first.wrapping_add(i), MS, false, &[i as u8]).unwrap();
            };
            feed(&mut shuffled, &order);
            order.sort_unstable();
            feed(&mut sorted, &order);
            prop_assert_eq!(shuffled.finish(None, &mut Plain), sorted.finish(None, &mut Plain));
        }

        #[test]
        fn relative_delay_recovers_the_jitter(
            start: u32, jitter in vec(0u64..50_000, 2..100), base in 0u64..1_000_000,
        ) {
            let least = *jitter.iter().min().unwrap();
            let mut delays = RelativeDelay::new(8_000);
            let mut pass = || -> Vec<u128> {
                jitter.iter().enumerate().map(|(i, j)| {
                    let ts = start.wrapping_add(160 * i as u32);
                    let arrival = Time::from_micros(20_000 * i as u64 + base + j);
                    delays.observe(ts, arrival).as_micros()
                }).collect()
            };
            pass();
            let second = pass();
            let want: Vec<u128> = jitter.iter().map(|j| u128::from(j - least)).collect();
            prop_assert_eq!(second, want);
        }
    }

    #[test]
    fn relative_delay_survives_anything() {
        let mut d = RelativeDelay::new(0);
        for i in 0..1000u32 {
            d.observe(i.wrapping_mul(0x7fff_ffff), Time::NEVER);
            d.observe(i.wrapping_mul(0x9e37_79b9), Time::ZERO);
        }
    }
}
