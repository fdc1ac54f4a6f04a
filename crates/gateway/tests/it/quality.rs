//! The rating that the packets of a stream give, beside the one that a listener has whose phone
//! plays them with an adaptive delay.

use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{RngExt as _, SeedableRng as _};
use trunkline_base::Time;
use trunkline_gateway::reception::{Clocks, Counts, Reception};
use trunkline_media::playout::adaptive::{Config, replay};
use trunkline_media::playout::optimal::Packet;
use trunkline_media::quality::emodel::{self, Codec, Parameters};

/// Packets of 20 ms in a second.
const RATE: u64 = 50;

/// From mouth to ear in a good network, with the least buffer of a phone in it.
const DELAY: Duration = Duration::from_millis(100);
const BUFFER: Duration = Duration::from_millis(40);

fn rating(missed: f64, delay: Duration) -> f64 {
    let plain = Parameters::default().with_codec(Codec::G711_PLC).with_delay(delay);
    emodel::rate(&plain.with_loss(missed, 1.0)).r
}

/// A packet as its sender sends it: when, with which number and timestamp, and how long it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub at: i64,
    pub number: u16,
    pub stamp: u32,
    pub delay: i64,
}

impl Sent {
    /// Packet `n` of a stream that starts at one second.
    pub(crate) fn new(n: u64, delay: i64) -> Sent {
        let at = (1_000 + 20 * n as i64) * MS;
        Sent { at, number: n as u16, stamp: (160 * n) as u32, delay }
    }
}

fn receive(packets: &[Sent]) -> Counts {
    receive_each(packets, false, |_, _| {})
}

/// The same; `note` is told of each packet, and whether it came too late. With `is_marked` every packet
/// says that it begins a talkspurt.
pub(crate) fn receive_each(
    packets: &[Sent],
    is_marked: bool,
    mut note: impl FnMut(&Sent, bool),
) -> Counts {
    let mut heard = Reception::default();
    heard.set_clocks(Clocks::default());
    let mut arrivals: Vec<_> = packets.iter().map(|sent| (sent.at + sent.delay, sent)).collect();
    arrivals.sort_by_key(|(at, _)| *at);
    for (at, sent) in arrivals {
        let before = heard.counts().late;
        let mut bytes = [0x80, u8::from(is_marked) << 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        bytes[2..4].copy_from_slice(&sent.number.to_be_bytes());
        bytes[4..8].copy_from_slice(&sent.stamp.to_be_bytes());
        heard.note(Time::from_nanos(at as u64), &bytes, false);
        note(sent, heard.counts().late > before);
    }
    heard.counts()
}

/// The gateway's ratings: by what is missed alone, and with the delay that a phone needs.
fn rated(counts: &Counts) -> [f64; 2] {
    let missed = (counts.lost() + counts.late) as f64 / counts.expected as f64;
    [Duration::ZERO, DELAY + counts.extra_delay()].map(|delay| rating(missed, delay))
}

/// The same of a listener whose phone has the lab's adaptive playout, chooses its delay every `spurt`
/// packets, and misses `others` besides.
fn listener(packets: &[Sent], spurt: usize, others: usize) -> [f64; 2] {
    let packet = |(n, sent): (usize, &Sent)| {
        let delay = Some(Duration::from_nanos(sent.delay.unsigned_abs()));
        (Time::from_nanos(sent.at as u64), Packet { talkspurt: (n / spurt) as u32, delay })
    };
    let sent: Vec<(Time, Packet)> = packets.iter().enumerate().map(packet).collect();
    let chosen = replay(sent.iter().copied(), Config::default());
    let fastest = sent.iter().filter_map(|(_, packet)| packet.delay).min().unwrap_or_default();
    let least = fastest + BUFFER;
    let delay = |packet: &Packet| chosen.get(&packet.talkspurt).map_or(least, |d| (*d).max(least));
    let misses = |packet: &Packet| packet.delay.is_none_or(|took| took > delay(packet));
    let missed = sent.iter().filter(|(_, packet)| misses(packet)).count() + others;
    let missed = missed as f64 / sent.len() as f64;
    let waits: Duration = sent.iter().map(|(_, packet)| delay(packet) - least).sum();
    [Duration::ZERO, DELAY + waits / sent.len() as u32].map(|delay| rating(missed, delay))
}

/// Ratings of a stream whose packet `n` takes `delay(n)` nanoseconds: by the gateway, and of a
/// listener whose phone chooses its delay in pauses of speech `spurt` packets apart. `slope` is how
/// much more each packet takes because a clock is slow, which the phone takes into account.
fn ratings(
    seconds: u64,
    spurt: usize,
    slope: i64,
    mut delay: impl FnMut(u64) -> i64,
) -> [[f64; 2]; 2] {
    let sent: Vec<Sent> = (0..RATE * seconds).map(|n| Sent::new(n, delay(n))).collect();
    let drifts = |(n, sent): (usize, &Sent)| Sent { at: sent.at + slope * n as i64, ..*sent };
    let counts = receive(&sent.iter().enumerate().map(drifts).collect::<Vec<_>>());
    assert_eq!(counts.lost(), 0);
    [rated(&counts), listener(&sent, spurt, 0)]
}

pub(crate) const MS: i64 = 1_000_000;

/// Time that a pause of `length` milliseconds in the network every ten seconds adds to packet `n`.
fn hiccup(length: i64, n: u64) -> i64 {
    (length - 20 * (n % 500) as i64).max(0) * MS
}

fn assert_close(name: &str, [gateway, listener]: [[f64; 2]; 2]) {
    println!("{name}: {gateway:.1?}, a listener {listener:.1?}");
    for (gateway, listener) in gateway.into_iter().zip(listener) {
        let is_close = (gateway - listener).abs() <= 2.0;
        assert!(is_close, "{name}: {gateway:.1}, a listener {listener:.1}");
    }
}

#[test]
fn a_clock_that_is_off_costs_nothing() {
    for ppm in [20, 100, 1_000] {
        for slope in [-20 * ppm, 20 * ppm] {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            let all = ratings(1_800, 50, slope, |_| 40 * MS + rng.random_range(0..2 * MS));
            assert_close(&format!("{slope} ns a packet"), all);
            assert!(all[0][0] > 92.0, "{all:?}");
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

#[test]
fn even_jitter_costs_the_delay_that_a_listener_needs() {
    for most in [100, 200, 300, 450] {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let all = ratings(600, 50, 0, |_| 40 * MS + rng.random_range(0..most * MS));
        assert_close(&format!("even jitter of {most} ms"), all);
    }
}

/// Oddity of a sender, between two packets.
#[derive(Clone, Copy, Debug)]
enum Shift {
    /// Pauses for as many milliseconds without counting them in its timestamps.
    Pause(i64),
    /// Moves its timestamps by as many milliseconds.
    Stamps(i64),
    /// Continues with another number.
    Numbers(u16),
}

/// Packets of a sender that does this every `every` packets, and how often.
fn shifted(shift: Shift, seconds: u64, every: u64) -> (Vec<Sent>, usize) {
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let sent = |n: u64| {
        let times = n / every;
        let mut sent = Sent::new(n, 40 * MS + rng.random_range(0..4 * MS));
        match shift {
            Shift::Pause(ms) => sent.at += ms * times as i64 * MS,
            Shift::Stamps(ms) => {
                sent.stamp = sent.stamp.wrapping_add((8 * ms * times as i64) as u32)
            }
            Shift::Numbers(by) => {
                sent.number = sent.number.wrapping_add(by.wrapping_mul(times as u16))
            }
        }
        sent
    };
    let count = RATE * seconds;
    ((0..count).map(sent).collect(), ((count - 1) / every) as usize)
}

/// Packets that a phone misses until it plays by the sender's new clock.
const UNTIL_SHIFTED: usize = 5;

#[test]
fn a_sender_that_shifts_its_clock_costs_the_moment() {
    // Beyond a second, and where timestamps leave a gap, a phone sees at once what has happened.
    let slow = [Shift::Pause(200), Shift::Pause(500), Shift::Pause(900), Shift::Stamps(-200)];
    let fast =
        [Shift::Pause(1_100), Shift::Pause(3_000), Shift::Stamps(200), Shift::Stamps(-5_000)];
    for (shift, missed) in slow.map(|s| (s, UNTIL_SHIFTED)).into_iter().chain(fast.map(|s| (s, 0)))
    {
        for (seconds, every) in [(60, 1_500), (600, 500), (600, 250), (300, 6_000)] {
            let (sent, times) = shifted(shift, seconds, every);
            let counts = receive(&sent);
            assert_eq!(counts.lost(), 0);
            let name = format!("{shift:?} every {every} packets: {} late", counts.late);
            assert_close(&name, [rated(&counts), listener(&sent, 50, missed * times)]);
        }
    }
}

/// Some senders mark every packet as the first of a talkspurt.
#[test]
fn a_marker_on_every_packet_makes_none_late() {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let sent = |n: u64| {
        let slow =
            if n < RATE { 0 } else { 25 * MS } + if n.is_multiple_of(120) { 38 * MS } else { 0 };
        Sent::new(n, 40 * MS + slow + rng.random_range(0..MS))
    };
    let sent: Vec<Sent> = (0..RATE * 120).map(sent).collect();
    let [plain, marked] =
        [false, true].map(|is_marked| receive_each(&sent, is_marked, |_, _| {}).late);
    assert!(marked <= plain + 5, "{marked} packets are late, and {plain} without markers");
}

#[test]
fn small_pauses_do_not_add_up() {
    for ms in [30, 50, 80, 120] {
        let (sent, times) = shifted(Shift::Pause(ms), 600, 500);
        let counts = receive(&sent);
        let most = (UNTIL_SHIFTED + 3) * times;
        assert!(counts.late <= most as u64, "{ms} ms: {} late in {times} pauses", counts.late);
    }
}

/// The lab's playout sees a single shift in a long call as a path that has become longer.
#[test]
fn one_pause_costs_what_a_listener_misses() {
    for ms in [200, 500, 900] {
        for at in [500, 1_500, 12_000] {
            let all = ratings(600, 50, 0, |n| if n < at { 40 * MS } else { (40 + ms) * MS });
            let [gateway, listener] = all.map(|[missed, _]| [missed; 2]);
            assert_close(&format!("{ms} ms more from packet {at} on"), [gateway, listener]);
        }
    }
}

#[test]
fn numbers_that_jump_are_no_loss() {
    for by in
        [1, 2, 30, 100, 2_000, 10_000, 40_000, 0u16.wrapping_sub(30), 0u16.wrapping_sub(2_000)]
    {
        let (sent, times) = shifted(Shift::Numbers(by), 300, 250);
        let counts = receive(&sent);
        let name = format!("numbers that jump by {by}: {counts:?}");
        assert_close(&name, [rated(&counts), listener(&sent, 50, 0)]);
        assert_eq!((counts.lost(), counts.late, counts.duplicates), (0, 0, 0), "{name}");
        // The first of two in a row is not counted.
        assert!(counts.packets >= (sent.len() - times) as u64, "{name}");
    }
}

/// Of 750 packets that others overtake, some come from before a jump after one from behind it.
#[test]
fn a_jump_among_packets_that_overtake_one_another_costs_a_few() {
    let jumps = [0, 1_000, 5_000].map(Shift::Numbers);
    for shift in jumps.into_iter().chain([Shift::Stamps(200), Shift::Stamps(-200)]) {
        let mut rng = ChaCha20Rng::seed_from_u64(6);
        let (mut sent, times) = shifted(shift, 300, 250);
        for sent in sent.iter_mut().filter(|_| rng.random_range(0..100) < 5) {
            sent.delay += 35 * MS;
        }
        let counts = receive(&sent);
        println!("{shift:?}: {counts:?}");
        assert!(counts.lost() <= 3 && counts.duplicates <= 3, "{shift:?}: {counts:?}");
        assert!(counts.packets >= (sent.len() - 2 * times) as u64, "{shift:?}: {counts:?}");
        let is_back = matches!(shift, Shift::Stamps(by) if by < 0);
        let most = if is_back { (UNTIL_SHIFTED + 3) * times } else { 2 * times };
        assert!(counts.late <= most as u64, "{shift:?}: {counts:?}");
    }
}

#[test]
fn what_is_lost_remains_so() {
    let burst = |n: u64, from: u64, length: u64| n % 500 >= from && n % 500 < from + length;
    for length in [1, 2, 10, 100, 400] {
        let (mut sent, _) = shifted(Shift::Pause(0), 300, 250);
        let lost = |n: u64| burst(n, 50, length);
        let count = (0..sent.len() as u64).filter(|n| lost(*n)).count() as u64;
        let mut n = 0..;
        sent.retain(|_| !lost(n.next().unwrap_or(0)));
        let counts = receive(&sent);
        assert_eq!((counts.lost(), counts.late), (count, 0), "{length}");
    }
}
