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

/// The next segment of an end: whether it is a request, and whether it has data.
fn next_of(side: &mut Side, now: Time) -> Option<(bool, bool)> {
    let mut out = [0; ROOM];
    let len = side.end.poll(now, ROOM, &mut out)?;
    let Ok(Segment::Body(body)) = Segment::parse(&out[..len]) else { panic!("a body") };
    Some((body.is_request(), body.data.is_some()))
}

fn hear(side: &mut Side, now: Time, body: Body<'_>) {
    let mut out = [0; 64];
    let len = emit(&mut out, body);
    side.hear(now, &out[..len], false).unwrap();
}

/// An opener that has been answered after 10 ms, and has shown its number with the data in two
/// segments, but was refused.
fn put_off() -> Side {
    let at = Time::from_millis;
    let mut side = Side::new(true, vec![7; 1_500]);
    assert_eq!(next_of(&mut side, at(0)), Some((true, false)));
    hear(&mut side, at(10), answer(OPENER, NUMBERS.1));
    side.run(at(10), true);
    for _ in 0..2 {
        assert_eq!(next_of(&mut side, at(10)), Some((false, true)), "it shows the number");
    }
    for _ in 0..2 {
        assert!(side.end.is_put_off(Reset::Full) && !side.end.is_open());
    }
    side
}

/// The accepting node became full between its answer and the segment that shows the number. The
/// opener keeps the number: the stream that it has shown once may come into being at any time.
#[test]
fn an_opener_that_is_put_off_shows_its_number_again() {
    let at = Time::from_millis;
    let mut side = put_off();
    assert_eq!(next_of(&mut side, at(500)), None);
    hear(&mut side, at(600), answer(OPENER, NUMBERS.1));
    assert!(!side.end.is_open(), "a copy of the answer");
    assert_eq!(next_of(&mut side, at(1_010)), Some((false, false)), "a second later");
    assert!(side.end.is_put_off(Reset::Full));
    assert_eq!(next_of(&mut side, at(1_500)), None);
    assert_eq!(next_of(&mut side, at(2_010)), Some((false, false)));
    assert!(!side.end.is_put_off(Reset::NotListening), "no other reason is put off");
    hear(&mut side, at(2_030), of_stream());
    assert!(side.end.is_open(), "the other end has the stream");
}

/// The refusal of one segment arrives after the acknowledgement of another, which has created the
/// stream.
#[test]
fn a_late_refusal_ends_no_stream() {
    let at = Time::from_millis;
    let mut side = put_off();
    hear(&mut side, at(20), of_stream());
    while next_of(&mut side, at(20)).is_some() {}
    assert!(side.end.is_put_off(Reset::Full) && side.end.is_open());
    assert_eq!(next_of(&mut side, at(20)), Some((false, false)), "it asks");
    assert_eq!(side.end.reason(Reset::Unknown), Reset::Full, "it was no late one");
    hear(&mut side, at(30), of_stream());
    assert_eq!(side.end.reason(Reset::Unknown), Reset::Unknown);
    let mut accepting = Side::new(false, vec![]);
    assert!(!accepting.end.is_put_off(Reset::Full), "the opener has no room");
}

/// Its application has been told that the stream is open, has written, and has gone.
#[test]
fn what_was_written_to_a_stream_that_is_put_off_is_still_delivered() {
    let at = Time::from_millis;
    let mut side = put_off();
    assert_eq!(side.abandon(), Ok(()));
    side.end.owner = Owner::Nobody;
    assert_eq!(next_of(&mut side, at(1_010)), Some((false, false)));
    hear(&mut side, at(1_020), of_stream());
    let mut sides = [side, Side::new(false, vec![])];
    for ms in 1_020..1_100 {
        settle(&mut sides, at(ms));
        sides[1].run(at(ms), true);
    }
    assert!(sides[1].ended && sides[1].read == [7; 1_500]);
}
