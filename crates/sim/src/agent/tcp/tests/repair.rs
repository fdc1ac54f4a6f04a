//! Repair of losses, and its effect on the window.

use super::channel::{Pair, SERVER, ms};
use crate::agent::tcp::{Idle, InitialWindow, Profile, Recovery, Stats};
use trunkline_base::Time;
use trunkline_net::IpVersion;

/// Sends `total` bytes in one go over a channel of 10 ms each way that loses the data segments with
/// these indices, in the order of sending. Returns the sender's statistics, and the time in
/// milliseconds until everything was acknowledged.
fn lose(profile: &Profile, total: usize, lost: &[usize]) -> (Stats, u64) {
    let mut pair = Pair::established(profile);
    let (begin, mut nth) = (pair.now, 0);
    assert_eq!(pair.client.write(&vec![1; total]), total);
    let mut took = 0;
    for step in 1..=10_000 {
        pair.run(begin + ms(step), &mut |to, segment| {
            let data = to == SERVER && !segment.data.is_empty();
            nth += usize::from(data);
            if data && lost.contains(&(nth - 1)) { vec![] } else { vec![ms(10)] }
        });
        if took == 0 && pair.client.stats().acknowledged == total as u64 {
            took = step;
        }
    }
    assert_eq!(pair.read[SERVER].len(), total, "{}", profile.name);
    (pair.client.stats(), took)
}

fn unlimited() -> [Profile; 4] {
    Profile::all().map(|p| Profile { window_limit: None, ..p })
}

#[test]
fn a_single_loss_is_repaired_without_a_timeout() {
    for profile in unlimited() {
        let full = profile.full_segment(IpVersion::V6);
        // The window has about 16 segments at this point.
        let (stats, _) = lose(&profile, 200 * full, &[30]);
        let of = (stats.retransmitted, stats.rtos, stats.fast_recoveries, stats.undone);
        assert_eq!(of, (1, 0, 1, 0), "{}: {stats:?}", profile.name);
    }
}

#[test]
fn a_peer_without_sack_makes_a_reno_of_each() {
    for profile in unlimited() {
        let mut pair = Pair::new(&profile, [1, 2]);
        pair.profile = Profile::ns2_reno();
        pair.client.write(&[1; 200_000]);
        let mut nth = 0;
        pair.run(Time::from_millis(20_000), &mut |to, segment| {
            nth += usize::from(to == SERVER && !segment.data.is_empty());
            if to == SERVER && nth == 30 { vec![] } else { vec![ms(10)] }
        });
        let stats = pair.client.stats();
        assert_eq!(pair.client.full_segment(), 980, "1,040 bytes over IPv6");
        assert_eq!(pair.read[SERVER].len(), 200_000, "{}", profile.name);
        assert_eq!((stats.fast_recoveries, stats.rtos), (1, 0), "{}: {stats:?}", profile.name);
    }
}

#[test]
fn without_sack_an_ack_past_the_repetition_proves_nothing() {
    // The seventh and the ninth of ten are lost: the ACK after the RTO also covers the eighth,
    // which was not retransmitted.
    let profile = Profile::linux_6();
    let mut pair = Pair::new(&profile, [1, 2]);
    pair.profile = Profile::ns2_reno();
    pair.client.write(&[1; 10_000]);
    let mut nth = 0;
    pair.run(Time::from_millis(20_000), &mut |to, segment| {
        nth += usize::from(to == SERVER && !segment.data.is_empty());
        if to == SERVER && [7, 9].contains(&nth) { vec![] } else { vec![ms(10)] }
    });
    let stats = pair.client.stats();
    assert_eq!((stats.acknowledged, stats.rtos, stats.undone), (10_000, 1, 0), "{stats:?}");
}

#[test]
fn three_sacks_leave_no_room_for_reordering() {
    // Ten segments, then twenty, and the eleventh of those is lost: it is retransmitted with the
    // third SACK, and not a quarter of a round trip later (RFC 8985, section 6.2).
    let profile = Profile::linux_6();
    let (stats, took) = lose(&profile, 30 * profile.full_segment(IpVersion::V6), &[20]);
    assert_eq!((took, stats.fast_recoveries), (60, 1), "{stats:?}");
    // With only two segments after it, the retransmission waits for that quarter.
    let (stats, took) = lose(&profile, 30 * profile.full_segment(IpVersion::V6), &[27]);
    assert_eq!((took, stats.fast_recoveries), (65, 1), "{stats:?}");
}

#[test]
fn two_losses_in_a_window_halve_it_twice_without_sack() {
    for profile in unlimited() {
        let full = profile.full_segment(IpVersion::V6);
        // More than 40 segments are in flight, so that Reno also gets enough duplicates.
        let (stats, _) = lose(&profile, 300 * full, &[80, 84]);
        let halvings = if profile.recovery == Recovery::Reno { 2 } else { 1 };
        assert_eq!(
            (stats.fast_recoveries, stats.rtos),
            (halvings, 0),
            "{}: {stats:?}",
            profile.name
        );
        assert_eq!(stats.retransmitted, 2, "{}", profile.name);
    }
}

#[test]
fn a_lost_retransmission_is_found_by_time_alone() {
    for profile in unlimited() {
        let full = profile.full_segment(IpVersion::V6);
        let again = 200;
        let (mut count, mut lost) = (0, 0);
        let mut pair = Pair::established(&profile);
        pair.client.write(&vec![1; again * full]);
        let mut target = None;
        let end = pair.now + ms(20_000);
        pair.run(end, &mut |to, segment| {
            let data = to == SERVER && !segment.data.is_empty();
            count += usize::from(data);
            if data && count == 60 {
                target = Some(segment.seq);
            }
            let loses = data && target == Some(segment.seq) && lost < 2;
            lost += usize::from(loses);
            if loses { vec![] } else { vec![ms(10)] }
        });
        assert_eq!(pair.read[SERVER].len(), again * full);
        let stats = pair.client.stats();
        assert!(stats.retransmitted >= 2, "{}: {stats:?}", profile.name);
        if profile.recovery == Recovery::Rack {
            assert_eq!((stats.rtos, stats.fast_recoveries), (0, 1), "{stats:?}");
        } else {
            assert!(stats.rtos > 0, "{}: {stats:?}", profile.name);
        }
    }
}

#[test]
fn a_lost_tail_takes_a_probe_with_rack_and_a_timeout_otherwise() {
    for profile in unlimited() {
        let full = profile.full_segment(IpVersion::V6);
        let (stats, took) = lose(&profile, 20 * full, &[18, 19]);
        if profile.recovery == Recovery::Rack {
            assert_eq!((stats.rtos, stats.probes), (0, 1), "{stats:?}");
            // Ten segments, ten more, and a probe after two round trips of 20 ms each, slightly
            // lengthened by a delayed ACK.
            assert!((80..=150).contains(&took), "{took} ms");
        } else {
            assert_eq!((stats.rtos, stats.probes), (1, 0), "{}: {stats:?}", profile.name);
            assert!(took >= 240, "{}: {took} ms", profile.name);
        }
    }
}

#[test]
fn a_timeout_that_came_early_is_taken_back_by_who_can_tell() {
    for profile in unlimited() {
        let full = profile.full_segment(IpVersion::V6);
        let mut pair = Pair::established(&profile);
        pair.client.write(&vec![1; 400 * full]);
        let begin = pair.now;
        // For a while, segments take a second longer, but nothing is lost.
        let end = begin + ms(20_000);
        let mut nth = 0;
        pair.run(end, &mut |to, _| {
            // A hundred segments, which is more than a window.
            nth += usize::from(to == SERVER);
            if to == SERVER && (60..160).contains(&nth) { vec![ms(1_010)] } else { vec![ms(10)] }
        });
        let stats = pair.client.stats();
        assert!(stats.rtos > 0, "{}: {stats:?}", profile.name);
        assert_eq!(stats.undone > 0, profile.undo, "{}: {stats:?}", profile.name);
    }
}

#[test]
fn limited_transmit_saves_a_small_window_from_a_timeout() {
    for limited_transmit in [true, false] {
        let profile = Profile { limited_transmit, ..Profile::freebsd_5_4() };
        // The first of three is lost, which gives two duplicate ACKs and two new segments.
        let (stats, _) = lose(&profile, 20 * profile.full_segment(IpVersion::V6), &[0]);
        let repaired = (stats.fast_recoveries, stats.rtos);
        assert_eq!(repaired, if limited_transmit { (1, 0) } else { (0, 1) }, "{stats:?}");
    }
}

#[test]
fn forward_acknowledgment_counts_the_gap() {
    // Only the last two of five arrive, which is too few duplicate ACKs.
    for (profile, rtos) in [(Profile::linux_2_4(), 0), (Profile::freebsd_5_4(), 1)] {
        let profile = Profile { initial_window: InitialWindow::Segments(5), ..profile };
        let (stats, _) = lose(&profile, 5 * profile.full_segment(IpVersion::V6), &[0, 1, 2]);
        assert_eq!((stats.rtos, stats.fast_recoveries), (rtos, 1 - rtos), "{stats:?}");
    }
}

#[test]
fn short_segments_are_sent_again_as_one() {
    for (coalesce, lengths) in [(true, vec![500]), (false, vec![100; 5])] {
        let initial_window = InitialWindow::Segments(10);
        let profile = Profile { coalesce, initial_window, ..Profile::linux_2_4() };
        let mut pair = Pair::established(&profile);
        pair.client.set_nodelay(true);
        let begin = pair.now;
        for n in 0..5u8 {
            pair.client.write(&[n; 100]);
            pair.run(begin + ms(u64::from(n)), &mut |_, _| vec![]);
        }
        let until = begin + ms(200);
        pair.run(until, &mut |_, _| vec![]);
        pair.run(begin + ms(2_000), &mut |_, _| vec![ms(10)]);
        let again = pair.sent[SERVER].iter().filter(|s| s.0 > until && s.1 > 0);
        assert_eq!(again.map(|s| s.1).collect::<Vec<_>>(), lengths);
        assert_eq!(pair.read[SERVER].len(), 500);
    }
}

#[test]
fn the_window_after_a_pause_is_the_profile_s() {
    let rfc_3390 = Profile { idle: Idle::InitialWindow, ..Profile::freebsd_5_4() };
    let keeps = Profile { idle: Idle::Keep, ..Profile::freebsd_5_4() };
    for (profile, segments) in [
        (Profile::freebsd_5_4(), 1),
        (rfc_3390, 3),
        (keeps, 20),
        (Profile::linux_6(), 10),
        (Profile::linux_2_4(), 3),
    ] {
        let full = profile.full_segment(IpVersion::V6);
        let mut pair = Pair::established(&profile);
        pair.client.write(&vec![1; 100 * full]);
        let resume = pair.now + ms(10_000);
        pair.run(resume, &mut |_, _| vec![ms(10)]);
        pair.client.write(&vec![1; 20 * full]);
        pair.run(resume + ms(9), &mut |_, _| vec![ms(10)]);
        let burst = pair.sent[SERVER].iter().filter(|(at, _)| *at >= resume).count();
        assert_eq!(burst, segments, "{} {:?}", profile.name, profile.idle);
    }
}

#[test]
fn reordering_is_learnt_by_rack() {
    // Every tenth segment arrives 2 ms late, after up to ten later ones.
    let of = |profile: Profile| {
        let full = profile.full_segment(IpVersion::V6);
        let mut pair = Pair::established(&profile);
        pair.client.write(&vec![1; 2_000 * full]);
        let (end, mut nth) = (pair.now + ms(60_000), 0u64);
        pair.run(end, &mut |to, _| {
            nth += u64::from(to == SERVER);
            vec![ms(10) + ms(if to == SERVER && nth % 10 == 0 { 2 } else { 0 })]
        });
        assert_eq!(pair.read[SERVER].len(), 2_000 * full);
        pair.client.stats().retransmitted
    };
    let [rack, sack] = [Profile::linux_6(), Profile::freebsd_5_4()].map(of);
    assert!(rack < 30 && sack > 3 * rack, "RACK {rack}, SACK {sack}");
}

#[test]
fn an_rto_in_fast_recovery_leaves_the_threshold_as_it_is() {
    // The first of twenty segments is lost, and so is its retransmission, with nothing after it that
    // could show that. Linux halves the threshold once, FreeBSD twice.
    for (profile, threshold) in [(Profile::linux_6(), 10), (Profile::freebsd_5_4(), 5)] {
        let profile = Profile { initial_window: InitialWindow::Segments(20), ..profile };
        let full = profile.full_segment(IpVersion::V6);
        let mut pair = Pair::established(&profile);
        pair.client.write(&vec![1; 20 * full]);
        let (begin, mut first, mut copies) = (pair.now, None, 0);
        pair.run(begin + ms(1_500), &mut |to, segment| {
            let data = to == SERVER && !segment.data.is_empty();
            let first = *first.get_or_insert(segment.seq);
            copies += u32::from(data && segment.seq == first);
            if data && segment.seq == first && copies < 3 { vec![] } else { vec![ms(10)] }
        });
        let stats = pair.client.stats();
        assert_eq!((stats.fast_recoveries, stats.rtos), (1, 1), "{}: {stats:?}", profile.name);
        assert_eq!(stats.acknowledged, 20 * full as u64);
        let unit = if profile.reduce_once { 1 } else { full as u64 };
        assert_eq!(stats.ssthresh, Some(threshold * unit), "{}: {stats:?}", profile.name);
    }
}

#[test]
fn the_ack_that_ends_a_recovery_lets_the_window_grow_as_the_profile_says() {
    // A lone segment is lost: the ACK of its retransmission ends the recovery.
    for (grow_at_end, cwnd) in [(true, 2), (false, 1)] {
        let profile = Profile { grow_at_end, ..Profile::linux_6() };
        let (stats, _) = lose(&profile, profile.full_segment(IpVersion::V6), &[0]);
        assert_eq!((stats.rtos, stats.cwnd), (1, cwnd), "{stats:?}");
    }
}
