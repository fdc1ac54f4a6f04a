//! Timing of ACKs, and Nagle's algorithm.

use super::channel::{CLIENT, Pair, SERVER, ms};
use crate::agent::tcp::{DelayedAck, Flags, Options, Profile, Segment};
use trunkline_base::Time;
use trunkline_net::IpVersion;

#[test]
fn a_lone_segment_is_acknowledged_when_the_profile_says() {
    let quick = Profile::linux_6();
    let slow = DelayedAck { quick: 0, ..quick.delayed_ack };
    for (profile, wait) in [
        (Profile::ns2_reno(), 0),
        (Profile::freebsd_5_4(), 100),
        (quick.clone(), 0),
        (Profile { delayed_ack: slow, ..quick }, 40),
    ] {
        let mut pair = Pair::established(&profile);
        let begin = pair.now;
        pair.client.write(&[1; 100]);
        pair.run(begin + ms(150), &mut |_, _| vec![ms(10)]);
        let acks: Vec<_> = pair.sent[CLIENT].iter().filter(|(at, _)| *at > begin).collect();
        assert_eq!(acks, [&(begin + ms(10 + wait), 0)], "{}", profile.name);
    }
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    let profile = Profile::freebsd_5_4();
    let mut pair = Pair::established(&profile);
    let begin = pair.now;
    pair.client.write(&vec![1; 100 * profile.full_segment(IpVersion::V6)]);
    pair.run(begin + ms(5_000), &mut |_, _| vec![ms(10)]);
    let acks = pair.sent[CLIENT].iter().filter(|(at, _)| *at > begin).count();
    assert!((50..=54).contains(&acks), "{acks}");
}

#[test]
fn data_carry_the_ack() {
    let mut pair = Pair::established(&Profile::freebsd_5_4());
    let begin = pair.now;
    pair.client.write(&[1; 100]);
    pair.run(begin + ms(30), &mut |_, _| vec![ms(10)]);
    pair.server.as_mut().unwrap().write(&[2; 50]);
    pair.run(begin + ms(45), &mut |_, _| vec![ms(10)]);
    assert_eq!(pair.sent[CLIENT].iter().filter(|(at, _)| *at > begin).count(), 1);
    assert_eq!(pair.client.stats().acknowledged, 100);
}

#[test]
fn nagle_s_algorithm_holds_short_segments_back() {
    for (nodelay, at_once) in [(false, 1), (true, 3)] {
        let profile = Profile::linux_6();
        let mut pair = Pair::established(&profile);
        pair.client.set_nodelay(nodelay);
        let begin = pair.now;
        for n in 0..3 {
            pair.client.write(&[n; 160]);
            pair.run(begin + ms(u64::from(n)), &mut |_, _| vec![ms(10)]);
        }
        let sent = pair.sent[SERVER].iter().filter(|s| s.0 >= begin && s.1 > 0);
        assert_eq!(sent.count(), at_once);
        pair.run(begin + ms(100), &mut |_, _| vec![ms(10)]);
        assert_eq!(pair.read[SERVER].len(), 480);
        let last = pair.sent[SERVER].iter().rfind(|s| s.1 > 0).unwrap();
        assert_eq!(last.1, if nodelay { 160 } else { 320 }, "what waited goes together");
    }
}

#[test]
fn a_closed_window_is_probed_and_opens() {
    let profile = Profile { receive_buffer: 10_000, ..Profile::linux_6() };
    let mut pair = Pair::established(&profile);
    pair.reads = false;
    pair.client.write(&[1; 30_000]);
    // Below, the segment that reopens the window is lost.
    pair.run(Time::from_millis(5_000), &mut |_, _| vec![ms(10)]);
    let filled = pair.client.stats().acknowledged;
    assert!((8_000..=10_000).contains(&filled), "{filled}");
    pair.reads = true;
    pair.run(Time::from_millis(5_001), &mut |_, _| vec![]);
    pair.run(Time::from_millis(30_000), &mut |_, _| vec![ms(10)]);
    assert_eq!(pair.read[SERVER].len(), 30_000);
}

#[test]
fn the_echo_is_that_of_the_last_segment_in_order() {
    // RFC 7323, section 4.3: the timestamp of a segment behind a gap is not echoed.
    let mut pair = Pair::established(&Profile::linux_6());
    let server = pair.server.as_mut().unwrap();
    let mut out = Vec::new();
    let data = [7; 100];
    let mut echo = |seq, value| {
        let options = Options { timestamps: Some((value, 1)), ..Options::default() };
        let segment =
            Segment { seq, ack: 3, flags: Flags::ACK, window: 100, options, ..Segment::default() };
        server.receive(pair.now, &Segment { data: &data, ..segment });
        assert!(server.transmit(pair.now, &mut out));
        let answer = Segment::parse(&out).unwrap();
        (answer.ack, answer.options.timestamps.unwrap().1)
    };
    assert_eq!(echo(2, 5_000), (102, 5_000));
    assert_eq!(echo(202, 5_010), (102, 5_000), "behind a gap");
    assert_eq!(echo(102, 5_005), (302, 5_005), "into it");
    assert_eq!(echo(2, 4_000), (302, 5_005), "an old one");
}
