//! Tests of the opening of a stream, and of the numbers that it gives its ends.

use super::*;

/// An answer may be overtaken, and carries no flag about messages.
#[test]
fn the_opener_decides_whether_messages_have_boundaries() {
    let mut side = Side::new(true, vec![]);
    side.end.messages = true;
    side.end.poll(Time::ZERO, ROOM, &mut [0; 100]).unwrap();
    let mut out = [0; 32];
    let mut w = trunkline_base::wire::Writer::new(&mut out);
    let data = Some(Data { position: 0, end: false, retransmitted: false, bytes: &[] });
    Segment::Body(Body { data, ..answer(OPENER, 9) }).emit_head(&mut w).unwrap();
    w.bytes(b"1").unwrap();
    side.hear(Time::ZERO, w.written(), false).unwrap();
    assert!(side.end.is_open() && side.end.messages);
}

/// A late or forged answer has another number, or not the opener's. The opener accepts no byte and no
/// reset of it as its own.
#[test]
fn only_who_knows_the_numbers_is_believed() {
    let mut opener = Side::new(true, vec![]);
    opener.end.poll(Time::ZERO, ROOM, &mut [0; 100]).unwrap();
    let broken =
        |number, position| Broken { why: Reset::Unknown, number, position, is_of_recipient: false };
    assert!(!opener.end.is_from_peer(&answer(OPENER + 1, 9)), "an answer to another request");
    assert!(!opener.end.is_from_peer(&of_stream()) && !opener.end.is_from_peer(&Body::default()));
    assert!(!opener.end.believes(&broken(Number::Opener(OPENER + 1), 0)));
    assert!(!opener.end.believes(&broken(Number::Stream(9), 0)));
    assert!(opener.end.believes(&broken(Number::Opener(OPENER), 0)));
    let mut out = [0; 100];
    let len = emit(&mut out, answer(OPENER, 9));
    opener.hear(Time::ZERO, &out[..len], false).unwrap();
    let mut numbers = |out: &mut [u8]| {
        let len = opener.end.poll(Time::ZERO, ROOM, out).unwrap();
        let Ok(Segment::Body(body)) = Segment::parse(&out[..len]) else { panic!("a body") };
        (body.instance, body.opener)
    };
    assert_eq!(numbers(&mut out), (Some(9), Some(OPENER)), "it shows that it has the answer");
    let mut opener = Side::new(true, vec![]);
    opener.end.poll(Time::ZERO, ROOM, &mut [0; 100]).unwrap();
    let len = emit(&mut out, answer(OPENER, 9));
    opener.hear(Time::ZERO, &out[..len], false).unwrap();
    assert!(!opener.end.is_from_peer(&answer(OPENER, 10)), "another number");
    assert!(opener.end.is_from_peer(&answer(OPENER, 9)) && opener.end.is_from_peer(&of_stream()));
    opener.end.poll(Time::ZERO, ROOM, &mut [0; 100]).unwrap();
    for (number, position, is_believed) in [
        (Number::Stream(9), 0, true),
        (Number::Stream(9), 64 << 10, true),
        (Number::Stream(9), 1 << 40, false),
        (Number::Stream(10), 0, false),
        (Number::Opener(OPENER), 0, false),
    ] {
        assert_eq!(opener.end.believes(&broken(number, position)), is_believed, "{number:?}");
    }
}

/// The accepting node became full between its answer and the segment that shows the number.
#[test]
fn a_full_node_is_asked_again_until_it_has_the_stream() {
    let at = Time::from_millis;
    let mut side = Side::new(true, Vec::new());
    let mut out = [0; ROOM];
    let is_request = |side: &mut Side, now: Time, out: &mut [u8]| {
        let len = side.end.poll(now, ROOM, out)?;
        let Ok(Segment::Body(body)) = Segment::parse(&out[..len]) else { panic!("a body") };
        Some(body.is_request())
    };
    assert_eq!(is_request(&mut side, at(0), &mut out), Some(true));
    let mut reply = [0; 64];
    let len = emit(&mut reply, answer(OPENER, NUMBERS.1));
    side.hear(at(10), &reply[..len], false).unwrap();
    assert_eq!(is_request(&mut side, at(10), &mut out), Some(false), "it shows the number");
    assert!(side.end.is_open() && side.end.is_put_off(Reset::Full) && !side.end.is_open());
    assert_eq!(is_request(&mut side, at(500), &mut out), None);
    assert_eq!(is_request(&mut side, at(1_010), &mut out), Some(true), "a second later");
    let len = emit(&mut reply, answer(OPENER, 10));
    side.hear(at(1_020), &reply[..len], false).unwrap();
    assert!(!side.end.is_put_off(Reset::NotListening), "no other reason is put off");
    let len = emit(&mut reply, Body { instance: Some(10), ..of_stream() });
    side.hear(at(1_030), &reply[..len], false).unwrap();
    assert!(!side.end.is_put_off(Reset::Full), "the other end has the stream");
}
