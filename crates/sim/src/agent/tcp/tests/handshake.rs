//! Lost SYNs, SYN-ACKs and FINs.
//!
//! Observations of "Linux 6.18" are of its own TCP (`reno`, kernel 6.18.44) between two network
//! namespaces, with rules that drop the first packets of a kind.

use super::channel::{CLIENT, Pair, SERVER, ms};
use crate::agent::tcp::{Flags, Profile, Stats};
use trunkline_base::Time;
use trunkline_net::IpVersion;

/// One-way delay of the channel, in milliseconds.
const DELAY: u64 = 25;

/// A connection over which `syns` SYNs, then `answers` SYN-ACKs are lost.
struct Opened {
    /// Times at which the client sent a SYN, in milliseconds after the first.
    syns: Vec<u64>,
    /// Number of segments that it sent at once when the connection was established.
    burst: usize,
    /// The client's statistics at that moment.
    stats: Stats,
}

fn open(profile: &Profile, syns: usize, answers: usize) -> Opened {
    let mut pair = Pair::new(profile, [1, 2]);
    pair.client.write(&vec![1; 20 * profile.full_segment(IpVersion::V6)]);
    let (mut sent, mut answered, begin) = (0, 0, pair.now);
    while !pair.client.is_established() {
        let now = pair.now;
        pair.run(now + ms(1), &mut |to, segment| {
            let is_syn = segment.flags.has(Flags::SYN);
            let lost = if to == SERVER && is_syn {
                sent += 1;
                sent <= syns
            } else if is_syn {
                answered += 1;
                answered <= answers
            } else {
                false
            };
            if lost { vec![] } else { vec![ms(DELAY)] }
        });
        assert!(pair.now < Time::from_millis(60_000), "no connection");
    }
    let times = pair.sent[SERVER].iter().take(sent);
    let times = times.map(|(at, _)| at.since(begin).as_millis() as u64);
    let burst = pair.sent[SERVER].iter().filter(|(_, length)| *length > 0).count();
    Opened { syns: times.collect(), burst, stats: pair.client.stats() }
}

/// The profile with timestamps, and without.
fn with_and_without(profile: &Profile) -> [Profile; 2] {
    [true, false].map(|timestamps| Profile { timestamps, ..profile.clone() })
}

/// Linux 6.18 sends ten segments after one repeated SYN, and one after two, both with and without
/// timestamps. RFC 5681 would have it send one after the first. Earlier systems don't shrink the
/// window of the end that opens.
#[test]
fn repeated_syns_shrink_the_window_as_the_profile_says() {
    for profile in with_and_without(&Profile::linux_6()) {
        let bursts = [0, 1, 2, 3].map(|lost| open(&profile, lost, 0).burst);
        assert_eq!(bursts, [10, 10, 1, 1], "timestamps: {}", profile.timestamps);
    }
    for profile in [Profile::linux_2_4(), Profile::freebsd_5_4()] {
        let bursts = [0, 1, 2].map(|lost| open(&profile, lost, 0).burst);
        assert_eq!(bursts, [3, 3, 3], "{}", profile.name);
    }
    let strict = Profile { spare_syns: 0, ..Profile::linux_6() };
    assert_eq!([0, 1].map(|lost| open(&strict, lost, 0).burst), [10, 1]);
}

/// If the SYN-ACKs are lost instead, a listener of Linux 6.18 echoes the timestamp of the first SYN.
/// So the client knows that no SYN was lost, and keeps ten segments. Without timestamps it sends
/// one.
#[test]
fn an_echo_of_the_first_syn_restores_the_window() {
    let bursts = with_and_without(&Profile::linux_6()).map(|p| open(&p, 0, 3).burst);
    assert_eq!(bursts, [10, 1]);
    // A listener that echoes the last SYN doesn't show it.
    let profile = Profile { echo_last_syn: true, ..Profile::linux_6() };
    assert_eq!(open(&profile, 0, 3).burst, 1);
}

/// Linux 6.18 has an RTO of 0.2 s after a lost SYN, 3.04 s after a lost SYN-ACK (smoothed round trip
/// 1.014 s), and 3 s after either without timestamps (RFC 6298, section 5.7). FreeBSD's listener
/// echoes the repeated SYN's timestamp, so the round trip is measured as it is.
#[test]
fn the_first_measurement_is_from_the_syn_that_is_echoed() {
    let rto = |profile: &Profile, syns, answers| {
        let Opened { stats, .. } = open(profile, syns, answers);
        (stats.srtt.map(|rtt| rtt.as_millis()), stats.rto.as_millis())
    };
    let [linux, plain] = with_and_without(&Profile::linux_6());
    assert_eq!(rto(&linux, 1, 0), (Some(50), 250));
    assert_eq!(rto(&linux, 0, 1), (Some(1_050), 3_150));
    assert_eq!((rto(&plain, 1, 0), rto(&plain, 0, 1)), ((None, 3_000), (None, 3_000)));
    let freebsd = Profile::freebsd_5_4();
    // 50 + 4 · 25, and 200 for delayed ACKs.
    assert_eq!((rto(&freebsd, 1, 0), rto(&freebsd, 0, 1)), ((Some(50), 350), (Some(50), 350)));
}

/// Linux 6.18 repeats the SYN after 1, 2, 3, 4, 5 and 7 s.
#[test]
fn the_first_syns_are_repeated_at_equal_intervals() {
    assert_eq!(open(&Profile::linux_6(), 6, 0).syns, [0, 1, 2, 3, 4, 5, 7].map(|s| 1_000 * s));
    assert_eq!(open(&Profile::linux_2_4(), 3, 0).syns, [0, 3, 9, 21].map(|s| 1_000 * s));
}

/// Linux 6.18 answers a FIN behind a lost segment, of the bytes 1 to 100, with the SACK block 101 to
/// 102. Its sender then repeats the segment without waiting for a timeout.
#[test]
fn a_fin_that_arrives_too_early_repairs_the_tail() {
    for (profile, at_once) in [(Profile::linux_6(), true), (Profile::freebsd_5_4(), false)] {
        let mut pair = Pair::established(&profile);
        let begin = pair.now;
        pair.client.write(&[1; 100]);
        // The data are lost.
        pair.run(begin + ms(1), &mut |_, _| vec![]);
        pair.client.close();
        let mut blocks = Vec::new();
        pair.run(begin + ms(60), &mut |to, segment| {
            if to == CLIENT {
                blocks.extend_from_slice(segment.options.sack.as_slice());
            }
            vec![ms(10)]
        });
        let repaired = pair.read[SERVER].len() == 100;
        assert_eq!((!blocks.is_empty(), repaired), (at_once, at_once), "{}", profile.name);
    }
}
