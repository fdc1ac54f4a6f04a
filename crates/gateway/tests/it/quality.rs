//! The rating that the packets of a stream give, beside the one that a listener has whose phone
//! plays them with an adaptive delay.

use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{RngExt as _, SeedableRng as _};
use trunkline_base::Time;
use trunkline_gateway::reception::{Clocks, Reception};
use trunkline_media::playout::adaptive::{Config, replay};
use trunkline_media::playout::optimal::Packet;
use trunkline_media::quality::emodel::{self, Codec, Parameters};

/// Packets of 20 ms in a second.
const RATE: u64 = 50;

fn rating(missed: f64) -> f64 {
    let plain = Parameters::default().with_codec(Codec::G711_PLC);
    emodel::rate(&plain.with_loss(missed, 1.0)).r
}

/// Ratings of a stream whose packet `n` takes `delay(n)` nanoseconds: by the gateway, and of a
/// listener whose phone chooses its delay in pauses of speech `spurt` packets apart. `slope` is how
/// much more each packet takes because a clock is slow, which the phone takes into account.
fn ratings(seconds: u64, spurt: u64, slope: i64, mut delay: impl FnMut(u64) -> i64) -> [f64; 2] {
    let mut heard = Reception::default();
    heard.set_clocks(Clocks::default());
    let count = RATE * seconds;
    let mut sent: Vec<(Time, Packet)> = Vec::new();
    let mut arrivals: Vec<(i64, u64)> = Vec::new();
    for n in 0..count {
        let (at, more) = ((1_000 + 20 * n) * 1_000_000, delay(n));
        let talkspurt = (n / spurt) as u32;
        let delay = Some(Duration::from_nanos(more.unsigned_abs()));
        sent.push((Time::from_nanos(at), Packet { talkspurt, delay }));
        arrivals.push((at as i64 + more + slope * n as i64, n));
    }
    arrivals.sort_unstable();
    for (at, n) in arrivals {
        let mut bytes = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        bytes[2..4].copy_from_slice(&(n as u16).to_be_bytes());
        bytes[4..8].copy_from_slice(&((160 * n) as u32).to_be_bytes());
        heard.note(Time::from_nanos(at as u64), &bytes, false);
    }
    let chosen = replay(sent.iter().copied(), Config::default());
    // The least buffer of a phone has two packets.
    let least = sent.iter().filter_map(|(_, packet)| packet.delay).min().unwrap_or_default();
    let least = least + Duration::from_millis(40);
    let misses = |packet: &Packet| {
        let delay = chosen.get(&packet.talkspurt).map_or(least, |delay| (*delay).max(least));
        packet.delay.is_none_or(|took| took > delay)
    };
    let missed = sent.iter().filter(|(_, packet)| misses(packet)).count();
    let counts = heard.counts();
    assert_eq!(counts.lost(), 0);
    [counts.late as f64, missed as f64].map(|missed| rating(missed / count as f64))
}

const MS: i64 = 1_000_000;

/// Time that a pause of `length` milliseconds in the network every ten seconds adds to packet `n`.
fn hiccup(length: i64, n: u64) -> i64 {
    (length - 20 * (n % 500) as i64).max(0) * MS
}

fn assert_close(name: &str, [gateway, listener]: [f64; 2]) {
    println!("{name}: {gateway:.1}, a listener {listener:.1}");
    assert!((gateway - listener).abs() <= 2.0, "{name}: {gateway:.1}, a listener {listener:.1}");
}

#[test]
fn a_clock_that_is_off_costs_nothing() {
    for ppm in [20, 100, 1_000] {
        for slope in [-20 * ppm, 20 * ppm] {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            let all = ratings(1_800, 50, slope, |_| 40 * MS + rng.random_range(0..2 * MS));
            assert_close(&format!("{slope} ns a packet"), all);
            assert!(all[0] > 92.0, "{all:?}");
        }
    }
}

#[test]
fn hiccups_and_a_longer_path_cost_what_a_listener_misses() {
    for spurt in [30, 50, 90] {
        for length in [40, 80, 300] {
            let all = ratings(600, spurt, 0, |n| 40 * MS + hiccup(length, n));
            assert_close(&format!("hiccups of {length} ms, talkspurts of {spurt}"), all);
        }
        for at in [500, 3_000, 12_000] {
            let all = ratings(300, spurt, 0, |n| if n < at { 40 * MS } else { 100 * MS });
            assert_close(&format!("60 ms more from packet {at} on, talkspurts of {spurt}"), all);
        }
    }
}

#[test]
fn jitter_costs_what_a_listener_misses() {
    for mean in [2.0, 5.0, 10.0, 20.0, 40.0] {
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let all = ratings(300, 50, 0, |_| {
            let random: f64 = rng.random_range(1e-9..1.0);
            40 * MS - (mean * random.ln() * MS as f64) as i64
        });
        assert_close(&format!("exponential jitter of {mean} ms"), all);
    }
}
