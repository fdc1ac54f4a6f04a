//! A network that loses, delays, reorders and duplicates datagrams.

use super::*;
use proptest::prelude::*;
use rand::RngExt;

/// Runs both ends until each has received an envelope; returns the time taken, in milliseconds.
fn converge(seed: u64, loss: f64, copies: f64, known: bool, both: bool) -> Option<u64> {
    let mut rng = trunkline_base::rng(seed, 1);
    let config_of = if known { config } else { certified };
    let mut ends = [
        End::new(1, config_of(1), Some(peer(2, known, true))),
        End::new(2, config_of(2), Some(peer(1, known, both))),
    ];
    let mut wire: Vec<(u64, usize, SocketAddr, Vec<u8>)> = Vec::new();
    let mut talked = [false; 2];
    for t in 0..120_000 {
        let now = ms(t);
        let mut sent: Vec<(usize, Vec<u8>)> = Vec::new();
        for (i, end) in ends.iter_mut().enumerate() {
            sent.extend(end.wake(now).into_iter().map(|(_, bytes)| (i, bytes)));
            if t % 20 == 0 {
                sent.extend(end.say(b"voice").map(|bytes| (i, bytes)));
            }
        }
        let arrived: Vec<_> = wire.extract_if(.., |(at, ..)| *at <= t).collect();
        for (_, to, from, bytes) in arrived {
            if Kind::of(&bytes) == Ok(Kind::Aead) {
                talked[to] |= ends[to].open(&bytes).is_ok();
            } else {
                let out = ends[to].hear(now, from, &bytes);
                sent.extend(out.into_iter().map(|(_, bytes)| (to, bytes)));
            }
        }
        for (from, bytes) in sent {
            let n = usize::from(rng.random::<f64>() >= loss)
                + usize::from(rng.random::<f64>() < copies);
            for _ in 0..n {
                let at = t + 1 + rng.random_range(0..60);
                wire.push((at, 1 - from, ends[from].at, bytes.clone()));
            }
        }
        if talked == [true; 2] {
            return Some(t);
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn two_ends_agree_over_any_network(
        seed in any::<u64>(), loss in 0.0..0.5, copies in 0.0..0.5, known in any::<bool>(), both in any::<bool>(),
    ) {
        prop_assert!(converge(seed, loss, copies, known, both).is_some());
    }
}

#[test]
fn without_loss_a_round_trip_is_enough() {
    for seed in 0..8 {
        // Each direction takes at most 60 ms; an envelope may then wait for its turn.
        assert!(converge(seed, 0.0, 0.0, true, false).unwrap() < 2 * 60 + 2 * 80 + 10);
        assert!(converge(seed, 0.0, 0.0, true, true).unwrap() < 600);
    }
}
