//! Playout with a delay that follows the network, for a call in progress.
//!
//! Each talkspurt is played at the delay within which a given share of the packets before it
//! arrived: the quantile of a histogram, as in Moon, Kurose and Towsley, *Packet audio playout
//! delay adjustment: performance bounds and algorithms*, Multimedia Systems 6(1), 1998, without
//! their detection of delay spikes.
//!
//! The distance to the best possible playout:
//!
//! ```
//! use core::time::Duration;
//! use trunkline_base::Time;
//! use trunkline_media::playout::adaptive::{self, Config};
//! use trunkline_media::playout::optimal::{Packet, optimal, play};
//! use trunkline_media::quality::reduced::Codec;
//!
//! let sent: Vec<(Time, Packet)> = (0..500u64)
//!     .map(|i| {
//!         let delay = Duration::from_millis(40 + i * 7 % 20);
//!         let packet = Packet { talkspurt: i as u32 / 50, delay: Some(delay) };
//!         (Time::from_millis(i * 20), packet)
//!     })
//!     .collect();
//! let packets = || sent.iter().map(|s| s.1);
//! let delays = adaptive::replay(sent.iter().copied(), Config::default());
//! let delay = |talkspurt| delays.get(&talkspurt).copied();
//! let live = play(packets(), delay, Duration::ZERO, Codec::G711).unwrap();
//! let best = optimal(packets(), Duration::ZERO, Codec::G711).unwrap();
//! assert!((0.0..1.0).contains(&(best.rating.r - live.rating.r)));
//! ```

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use trunkline_base::Time;

use super::optimal::Packet;

/// Target of an adaptive playout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The share of packets that should arrive in time, 0 to 1; other values are clamped, NaN
    /// counts as 1.
    pub quantile: f64,
    /// Number of latest packets that count, at least 1. Each takes 32 bytes of memory.
    pub window: usize,
    /// Minimum delay until enough packets have arrived to know the quantile: 1 / (1 − quantile), or
    /// a full window.
    pub initial: Duration,
}

impl Default for Config {
    /// 99 % of the latest 10,000 packets, 200 s of speech in packets of 20 ms; an initial delay of
    /// 100 ms.
    fn default() -> Config {
        Config { quantile: 0.99, window: 10_000, initial: super::DEADLINE }
    }
}

/// Follows the delays of one call's packets.
#[derive(Debug, Clone)]
pub struct Adaptive {
    config: Config,
    /// Delays of the latest packets, oldest first.
    delays: VecDeque<Duration>,
    scratch: Vec<Duration>,
}

impl Adaptive {
    /// Creates a playout for a call to which nothing has arrived.
    pub fn new(config: Config) -> Adaptive {
        let share = config.quantile;
        let quantile = if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) };
        let config = Config { quantile, window: config.window.max(1), ..config };
        Adaptive { config, delays: VecDeque::new(), scratch: Vec::new() }
    }

    /// Records the delay of an arrived packet, in time or not, measured from when it was ready to
    /// be sent; if the clocks differ, see [`RelativeDelay`](super::RelativeDelay).
    pub fn observe(&mut self, delay: Duration) {
        if self.delays.len() == self.config.window {
            self.delays.pop_front();
        }
        self.delays.push_back(delay);
    }

    /// The delay for a talkspurt that begins now, in the network and the buffer together: each
    /// packet is played this long after it was ready to be sent.
    pub fn delay(&mut self) -> Duration {
        let Config { quantile, window, initial } = self.config;
        let known = self.delays.len();
        let rank = libm::ceil(quantile * known as f64).clamp(1.0, known.max(1) as f64);
        self.scratch.clear();
        self.scratch.extend(&self.delays);
        if self.scratch.is_empty() {
            return initial;
        }
        let (_, &mut delay, _) = self.scratch.select_nth_unstable(rank as usize - 1);
        let few = known < window && (known as f64) * (1.0 - quantile) < 1.0;
        if few { delay.max(initial) } else { delay }
    }
}

/// The delays that an adaptive playout would have chosen for a call, one for each talkspurt with an
/// arrived packet.
///
/// Takes each packet with the time at which it was ready to be sent, in any order. A talkspurt's
/// delay is chosen when the first of its packets arrives, from the arrivals up to then, including
/// that packet.
pub fn replay(
    packets: impl IntoIterator<Item = (Time, Packet)>,
    config: Config,
) -> BTreeMap<u32, Duration> {
    let arrival = |(sent, packet): (Time, Packet)| {
        let delay = packet.delay?;
        Some((sent + delay, packet.talkspurt, delay))
    };
    let mut arrivals: Vec<_> = packets.into_iter().filter_map(arrival).collect();
    arrivals.sort_unstable();
    let mut adaptive = Adaptive::new(config);
    let mut delays = BTreeMap::new();
    for (_, talkspurt, delay) in arrivals {
        adaptive.observe(delay);
        delays.entry(talkspurt).or_insert_with(|| adaptive.delay());
    }
    delays
}

#[cfg(test)]
mod tests {
    use super::super::optimal::{optimal, play};
    use super::*;
    use crate::quality::reduced::Codec;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Packets with these delays, 20 ms apart, 10 in each talkspurt.
    fn sent(delays: &[Option<u64>]) -> Vec<(Time, Packet)> {
        let packet = |(i, delay): (u32, &Option<u64>)| {
            let packet = Packet { talkspurt: i / 10, delay: delay.map(ms) };
            (Time::from_millis(u64::from(i) * 20), packet)
        };
        (0..).zip(delays).map(packet).collect()
    }

    #[test]
    fn the_quantile_by_hand() {
        let mut adaptive = Adaptive::new(Config { quantile: 0.75, window: 8, initial: ms(50) });
        assert_eq!(adaptive.delay(), ms(50), "nothing is known");
        for delay in [30, 10, 20] {
            adaptive.observe(ms(delay));
        }
        assert_eq!(adaptive.delay(), ms(50), "three are too few for the upper quarter");
        adaptive.observe(ms(40));
        assert_eq!(adaptive.delay(), ms(30));
        for delay in [140, 150, 160, 170] {
            adaptive.observe(ms(delay));
        }
        assert_eq!(adaptive.delay(), ms(150), "6 of 8");
        for _ in 0..6 {
            adaptive.observe(ms(5));
        }
        assert_eq!(adaptive.delay(), ms(5), "160, 170 and six new ones");
    }

    #[test]
    fn the_first_delays_are_not_trusted_but_when_they_are_long() {
        let mut adaptive = Adaptive::new(Config::default());
        adaptive.observe(ms(20));
        assert_eq!(adaptive.delay(), ms(100));
        adaptive.observe(ms(300));
        assert_eq!(adaptive.delay(), ms(300));
        let mut strict = Adaptive::new(Config { quantile: 1.0, window: 2, ..Config::default() });
        strict.observe(ms(20));
        assert_eq!(strict.delay(), ms(100));
        strict.observe(ms(30));
        assert_eq!(strict.delay(), ms(30), "a full window");
    }

    #[test]
    fn it_follows_a_network_that_becomes_slower_and_faster_again() {
        let delays: Vec<_> = [50, 250, 50].iter().flat_map(|&d| vec![Some(d); 100]).collect();
        let config = Config { quantile: 0.9, window: 50, initial: ms(60) };
        let chosen = replay(sent(&delays), config);
        let at = |talkspurt: u32| chosen[&talkspurt];
        assert_eq!((at(0), at(9)), (ms(60), ms(50)));
        assert_eq!((at(10), at(11)), (ms(50), ms(250)), "the first to be slow is late");
        assert_eq!((at(20), at(25), at(29)), (ms(250), ms(50), ms(50)));
    }

    #[test]
    fn in_an_even_network_nothing_is_better() {
        let sent = sent(&[Some(50); 3_000]);
        let chosen = replay(sent.iter().copied(), Config { initial: ms(50), ..Config::default() });
        let packets = || sent.iter().map(|s| s.1);
        let live = play(packets(), |t| chosen.get(&t).copied(), ms(38), Codec::G711);
        assert_eq!(live, optimal(packets(), ms(38), Codec::G711));
    }

    fn delays() -> impl Strategy<Value = Vec<Option<u64>>> {
        vec(proptest::option::weighted(0.9, 0u64..400), 1..200)
    }

    proptest! {
        #[test]
        fn it_is_never_better_than_the_optimum_and_always_chooses_a_delay(
            delays in delays(), quantile in -0.5f64..1.5, window in 0usize..100,
        ) {
            let sent = sent(&delays);
            let config = Config { quantile, window, ..Config::default() };
            let chosen = replay(sent.iter().copied(), config);
            let packets = || sent.iter().map(|s| s.1);
            for packet in packets().filter(|p| p.delay.is_some()) {
                prop_assert!(chosen.contains_key(&packet.talkspurt));
            }
            let live = play(packets(), |t| chosen.get(&t).copied(), ms(0), Codec::G729).unwrap();
            let best = optimal(packets(), ms(0), Codec::G729).unwrap();
            prop_assert!(live.rating.r <= best.rating.r + 1e-9);
        }

        #[test]
        fn it_does_not_look_ahead(delays in delays(), cut in 0usize..200, window in 1usize..100) {
            let config = Config { window, ..Config::default() };
            let all = sent(&delays);
            let cut = cut.min(all.len() - 1);
            let now = all[cut].0;
            // Arrivals before a later packet is even sent cannot depend on it.
            let settled = replay(all[..cut].iter().copied(), config);
            let whole = replay(all.iter().copied(), config);
            for (talkspurt, delay) in settled {
                let of_it = all[..cut].iter().filter(|s| s.1.talkspurt == talkspurt);
                let first = of_it.filter_map(|s| Some(s.0 + s.1.delay?)).min();
                if first < Some(now) {
                    prop_assert_eq!(whole[&talkspurt], delay);
                }
            }
        }

        #[test]
        fn anything_is_survived(
            delays in vec(any::<Duration>(), 0..20), initial: Duration, window in 0usize..10,
            quantile in proptest::num::f64::ANY,
        ) {
            let mut adaptive = Adaptive::new(Config { quantile, window, initial });
            for delay in delays {
                adaptive.observe(delay);
                adaptive.delay();
            }
        }
    }
}
