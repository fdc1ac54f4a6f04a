//! Segments that no correct peer sends.

use super::channel::{CLIENT, Pair, SERVER, ms};
use crate::agent::tcp::{
    Connection, Flags, InitialWindow, Options, Profile, SackBlocks, Segment, reset,
};
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_base::Time;

/// A number close to those in use, or any other.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..100_000u32, any::<u32>(), (0..70u32).prop_map(|n| n * 1_428)]
}

type Junk = (u8, (u32, u32), u16, Vec<(u32, u32)>, Option<(u32, u32)>, usize);

fn junk() -> impl Strategy<Value = Junk> {
    let flags = prop_oneof![6 => Just(0x10u8), 2 => Just(0x11u8), 1 => any::<u8>()];
    let blocks = vec((number(), number()), 0..4);
    let stamps = any::<Option<(u32, u32)>>();
    (flags, (number(), number()), any::<u16>(), blocks, stamps, 0..3_000usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_segment_breaks_a_connection(
        which in 0..4usize,
        segments in vec((junk(), any::<bool>(), 0..300u64), 1..60),
    ) {
        let profile = Profile { window_limit: None, ..Profile::all()[which].clone() };
        let mut pair = Pair::established(&profile);
        pair.client.write(&[1; 200_000]);
        let mut bytes = Vec::new();
        for ((flags, (seq, ack), window, blocks, timestamps, len), to_client, wait) in segments {
            let mut sack = SackBlocks::default();
            blocks.into_iter().for_each(|b| sack.push(b));
            // A reset would end the connection at once.
            let flags = Flags(flags & !Flags::RST.0);
            let options = Options { timestamps, sack, ..Options::default() };
            let data = vec![7; len];
            let segment = Segment { seq, ack, flags, window, options, data: &data, ..Segment::default() };
            bytes.clear();
            segment.emit(&mut bytes);
            pair.deliver(if to_client { CLIENT } else { SERVER }, &bytes);
            let sent = pair.sent[SERVER].len();
            let until = pair.now + ms(wait);
            pair.run(until, &mut |_, s| if s.seq % 3 == 0 { vec![] } else { vec![ms(10)] });
            prop_assert!(pair.sent[SERVER].len() - sent < 10_000, "one segment lets off a flood");
        }
    }
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    for profile in Profile::all() {
        let initial_window = InitialWindow::Segments(10);
        let profile = Profile { initial_window, ..profile };
        let mut pair = Pair::established(&profile);
        pair.client.write(&[1; 9_000]);
        let until = pair.now + ms(1);
        pair.run(until, &mut |_, _| vec![]);
        let mut sack = SackBlocks::default();
        sack.push((60_000, 70_000));
        let options = Options { sack, timestamps: Some((0, 0)), ..Options::default() };
        let ack = Segment { seq: 3, flags: Flags::ACK, window: 9, options, ..Segment::default() };
        let before = pair.client.stats();
        for number in [1 + 1 + 9_001, 50_000, 1 << 31, u32::MAX, 0, 1] {
            pair.client.receive(pair.now, &Segment { ack: number, ..ack });
        }
        assert_eq!(pair.client.stats(), before, "{}", profile.name);
        pair.client.receive(pair.now, &Segment { ack: 3, ..ack });
        let after = pair.client.stats();
        assert_eq!((after.acknowledged, after.fast_recoveries), (1, 0), "{}", profile.name);
    }
}

#[test]
fn what_comes_for_nobody_is_reset_and_a_reset_ends_a_connection() {
    let profile = Profile::linux_6();
    let mut client = Connection::connect(profile.clone(), (1, 2), 77, false);
    let mut out = Vec::new();
    assert!(client.transmit(Time::ZERO, &mut out));
    let syn = Segment::parse(&out).unwrap();
    let answer = reset(&syn).unwrap();
    assert_eq!((answer.ack, answer.from, answer.to), (78, 2, 1));
    assert_eq!(reset(&answer), None);
    // The reset belongs to another connection.
    client.receive(Time::ZERO, &Segment { ack: 79, ..answer });
    assert!(!client.is_reset());
    client.receive(Time::ZERO, &answer);
    assert!(client.is_reset() && client.is_closed());

    let mut pair = Pair::established(&profile);
    let rst = Segment { flags: Flags::RST, seq: 3, ..Segment::default() };
    pair.client.receive(pair.now, &Segment { seq: 4, ..rst });
    assert!(pair.client.is_established(), "not at the number expected");
    pair.client.receive(pair.now, &rst);
    assert!(pair.client.is_reset());
    assert_eq!(pair.client.deadline(), Time::NEVER);
}
