use core::iter::repeat_n;

use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_base::rng;

use super::*;

const CODECS: [Codec; 2] = [Codec::G711, Codec::G729];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn call(talkspurts: &[Vec<Option<u64>>]) -> Vec<Packet> {
    let of = |(i, delays): (usize, &Vec<Option<u64>>)| -> Vec<Packet> {
        delays.iter().map(|d| Packet { talkspurt: i as u32, delay: d.map(ms) }).collect()
    };
    talkspurts.iter().enumerate().flat_map(of).collect()
}

fn r(packets: &[Packet], fixed: u64, codec: Codec) -> f64 {
    optimal(packets.iter().copied(), ms(fixed), codec).unwrap().rating.r
}

/// Tries every combination of the packets' delays, and `None`, as playout delays.
fn brute_force(packets: &[Packet], fixed: u64, codec: Codec) -> f64 {
    let mut options = BTreeMap::<u32, Vec<Option<Duration>>>::new();
    for p in packets {
        let of_talkspurt = options.entry(p.talkspurt).or_insert_with(|| vec![None]);
        if !of_talkspurt.contains(&p.delay) {
            of_talkspurt.push(p.delay);
        }
    }
    let combinations: usize = options.values().map(Vec::len).product();
    let combine = |mut n: usize| {
        let mut chosen = BTreeMap::new();
        for (&talkspurt, delays) in &options {
            chosen.insert(talkspurt, delays[n % delays.len()]);
            n /= delays.len();
        }
        play(packets.iter().copied(), |t| chosen[&t], ms(fixed), codec).unwrap().rating.r
    };
    (0..combinations).map(combine).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn by_hand() {
    // If the second talkspurt waits for its last packet, Id is half of 2.4 and half of 0.024 · 900
    // + 0.11 · 722.7, together 51.7, and there is no loss. If not, Id is 2.4 and Ie 30 ln(1 + 15 /
    // 6) = 37.6.
    let packets = call(&[vec![Some(100); 3], vec![Some(100), Some(100), Some(900)]]);
    let best = optimal(packets, ms(0), Codec::G711).unwrap();
    assert!((best.rating.id - 2.4).abs() < 1e-12);
    assert!((best.rating.ie - 30.0 * 3.5f64.ln()).abs() < 1e-9);
    let second = Played { talkspurt: 1, delay: Some(ms(100)), played: 2, dropped: 1, lost: 0 };
    assert_eq!(best.talkspurts[1], second);
    assert_eq!((best.played(), best.dropped(), best.lost()), (5, 1, 0));

    // At 110 ms, waiting is cheaper.
    let packets = call(&[vec![Some(100); 3], vec![Some(100), Some(110), None]]);
    let best = optimal(packets, ms(38), Codec::G729).unwrap();
    let (id, ie) = (0.024 * (3.0 * 138.0 + 2.0 * 148.0) / 5.0, 10.0 + 47.82 * 4f64.ln());
    assert!((best.rating.id - id).abs() < 1e-9 && (best.rating.ie - ie).abs() < 1e-9);
    assert_eq!(best.talkspurts.iter().map(|t| t.delay).max(), Some(Some(ms(110))));
    assert_eq!((best.played(), best.dropped(), best.lost()), (5, 0, 1));
}

#[test]
fn equal_delays_are_played_without_drops() {
    let packets = call(&vec![vec![Some(150); 50]; 100]);
    let best = optimal(packets, ms(38), Codec::G729).unwrap();
    let expected = reduced::rate(ms(188), 0.0, Codec::G729);
    assert!((best.rating.r - expected.r).abs() < 1e-9);
    assert_eq!(best.dropped(), 0);
}

#[test]
fn nothing_to_play() {
    assert_eq!(optimal([], ms(0), Codec::G711), None);
    assert_eq!(play([], |_| Some(ms(9)), ms(0), Codec::G711), None);
    let lost = call(&[vec![None; 3], vec![None; 2]]);
    for codec in CODECS {
        let best = optimal(lost.clone(), ms(400), codec).unwrap();
        assert_eq!(best.rating, reduced::rate(Duration::ZERO, 1.0, codec), "no delay of silence");
        assert_eq!((best.played(), best.dropped(), best.lost()), (0, 0, 5));
        assert!(best.talkspurts.iter().all(|t| t.delay.is_none()));
    }
}

#[test]
fn a_hopeless_call_is_silent() {
    let packets = call(&[vec![Some(5_000); 3], vec![Some(u64::MAX / 2); 3]]);
    for codec in CODECS {
        let best = optimal(packets.clone(), ms(0), codec).unwrap();
        assert_eq!(best.rating, reduced::rate(Duration::ZERO, 1.0, codec));
        assert_eq!(best.dropped(), 6);
    }
    let endless = Packet { talkspurt: u32::MAX, delay: Some(Duration::MAX) };
    assert_eq!(optimal([endless], Duration::MAX, Codec::G711).unwrap().dropped(), 1);
}

#[test]
fn one_talkspurt() {
    for d in [0, 20, 200, 400] {
        let packets = call(&[vec![Some(d)]]);
        assert_eq!(
            optimal(packets, ms(10), Codec::G711).unwrap().rating,
            reduced::rate(ms(d + 10), 0.0, Codec::G711)
        );
    }
    // Dropping 1 packet of 20 costs 30 ln 1.75 = 16.8, waiting for it 0.024 · 680 + 0.11 · (700 −
    // 177.3) = 73.8.
    let mut delays = vec![Some(20); 19];
    delays.push(Some(700));
    assert_eq!(optimal(call(&[delays]), ms(0), Codec::G711).unwrap().dropped(), 1);
}

/// A call over a transport that builds queues at the start of talkspurts: `packets` packets in
/// each, with decaying delays in some, jitter and loss.
fn queueing(seed: u64, talkspurts: u32, packets: u32) -> Vec<Packet> {
    let mut rng = rng(seed, 0);
    let mut below = move |n: u64| rng.next_u64() % n;
    let mut all = Vec::new();
    for talkspurt in 0..talkspurts {
        let start = below(4) * below(400_000);
        for i in 0..packets {
            let left = start * u64::from(packets - i) / u64::from(packets);
            let delay = Duration::from_micros(50_000 + left + below(20_000));
            all.push(Packet { talkspurt, delay: (below(100) > 0).then_some(delay) });
        }
    }
    all
}

/// The smallest sum of Id for each number of packets played, by dynamic programming over talkspurts
/// as in Moon, Kurose and Towsley, and the best R that results.
fn dynamic_programme(packets: &[Packet], fixed: u64, codec: Codec) -> f64 {
    let mut least = vec![0.0];
    for talkspurt in Arrivals::collect(packets.iter().copied()).values() {
        let mut next = vec![f64::INFINITY; least.len() + talkspurt.delays.len()];
        for choice in talkspurt.choices(ms(fixed)) {
            for (before, after) in least.iter().zip(&mut next[choice.played..]) {
                *after = f64::min(*after, before + choice.cost);
            }
        }
        least = next;
    }
    let r = |(played, cost): (usize, &f64)| {
        let missed = 1.0 - played as f64 / packets.len() as f64;
        Rating::of(cost / played.max(1) as f64, codec.impairment(missed)).r
    };
    least.iter().enumerate().map(r).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn dynamic_programming_finds_nothing_better() {
    let calls = (0..60).map(|seed| queueing(seed, 20, 12)).chain([queueing(60, 100, 50)]);
    let mut dropped = [0, 0];
    for packets in calls {
        // The third is hardly impaired by loss, so many drops are worthwhile.
        let lenient = Codec { gamma1: 0.0, gamma2: 10.0, gamma3: 2.0 };
        for codec in [Codec::G711, Codec::G729, lenient] {
            let best = optimal(packets.iter().copied(), ms(38), codec).unwrap();
            let want = dynamic_programme(&packets, 38, codec);
            assert!((best.rating.r - want).abs() < 1e-9, "{} is not {want}", best.rating.r);
            dropped[usize::from(codec == lenient)] += best.dropped();
        }
    }
    assert!(dropped[0] > 0 && dropped[1] > 10 * dropped[0], "{dropped:?}: nothing was at stake");
}

fn calls() -> impl Strategy<Value = Vec<Vec<Option<u64>>>> {
    // Coarse, so that some delays are equal, and wide, so that drops are worthwhile.
    let delay = prop_oneof![
        4 => (0u64..30).prop_map(|d| Some(d * 10)),
        4 => (0u64..30).prop_map(|d| Some(d * 50)),
        1 => (0u64..10_000).prop_map(Some),
        1 => Just(None),
    ];
    vec(vec(delay, 1..6), 1..5)
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![
        Just(Codec::G711),
        Just(Codec::G729),
        // With a small impairment by loss, many drops are worthwhile.
        (0.0f64..20.0, 0.0f64..30.0).prop_map(|(gamma2, gamma3)| Codec {
            gamma1: 0.0,
            gamma2,
            gamma3
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_better(call_ in calls(), fixed in 0u64..300, codec in codecs()) {
        let packets = call(&call_);
        let (best, brute) = (r(&packets, fixed, codec), brute_force(&packets, fixed, codec));
        prop_assert!((best - brute).abs() < 1e-9, "{} is not {}", best, brute);
    }

    #[test]
    fn its_own_delays_give_its_own_outcome(
        call_ in calls(), fixed in 0u64..300, codec in codecs(), uniform in 0u64..2_000,
    ) {
        let packets = call(&call_);
        let best = optimal(packets.iter().copied(), ms(fixed), codec).unwrap();
        let delay = |t: u32| best.talkspurts[t as usize].delay;
        let again = play(packets.iter().copied(), delay, ms(fixed), codec).unwrap();
        prop_assert_eq!(&again, &best);
        prop_assert_eq!(best.played() + best.dropped() + best.lost(), packets.len());
        let same = play(packets, |_| Some(ms(uniform)), ms(fixed), codec).unwrap();
        prop_assert!(same.rating.r <= best.rating.r + 1e-9);
    }

    #[test]
    fn worse_networks_are_never_rated_better(
        call_ in calls(), fixed in 0u64..300, more in 0u64..300, codec in codecs(), which: usize,
    ) {
        let packets = call(&call_);
        let before = r(&packets, fixed, codec);
        prop_assert!(r(&packets, fixed + more, codec) <= before + 1e-9, "fixed delay");
        let which = which % packets.len();
        let mut later = packets.clone();
        later[which].delay = later[which].delay.map(|d| d + ms(more));
        prop_assert!(r(&later, fixed, codec) <= before + 1e-9, "one packet's delay");
        later[which].delay = None;
        prop_assert!(r(&later, fixed, codec) <= before + 1e-9, "one packet's loss");
    }

    #[test]
    fn order_does_not_matter(call_ in calls(), codec in codecs(), fixed in 0u64..300) {
        let packets = call(&call_);
        let reversed = packets.iter().rev().copied();
        prop_assert_eq!(optimal(reversed, ms(fixed), codec), optimal(packets, ms(fixed), codec));
    }

    #[test]
    fn any_codec_and_any_delay_are_survived(
        delays in vec(any::<Option<Duration>>(), 1..20), fixed: Duration,
        gamma1: f64, gamma2: f64, gamma3: f64,
    ) {
        let packets = delays.iter().zip([0, 1, 5].into_iter().cycle());
        let packets = packets.map(|(&delay, talkspurt)| Packet { talkspurt, delay });
        let best = optimal(packets, fixed, Codec { gamma1, gamma2, gamma3 }).unwrap();
        prop_assert_eq!(best.played() + best.dropped() + best.lost(), delays.len());
    }
}

#[test]
fn talkspurts_without_packets_that_came_stay_in_the_outcome() {
    let packets = repeat_n(Packet { talkspurt: 7, delay: None }, 2)
        .chain([Packet { talkspurt: 3, delay: Some(ms(40)) }]);
    let best = optimal(packets, ms(0), Codec::G711).unwrap();
    let numbers: Vec<_> = best.talkspurts.iter().map(|t| (t.talkspurt, t.delay)).collect();
    assert_eq!(numbers, [(3, Some(ms(40))), (7, None)]);
}
