//! Test vectors of stream segments.

use super::Kind;
use super::codec::{bytes, flag, hex, list, message, message_of, number, optional, written};
use crate::session::stream::{Ack, Body, Broken, Data, Number, Segment};
use crate::session::wire::stream::Reset;
use serde_json::{Value, json};

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![kind("segment", "11.1", emit_segment, parse_segment, segment_samples)]
}

fn emit_segment(fields: &Value) -> Value {
    if let Some(reason) = optional(fields, "reset") {
        let opener = optional(fields, "opener").map(Number::Opener);
        let broken = Broken {
            why: Reset::from_wire(reason),
            number: opener.unwrap_or_else(|| Number::Stream(number(fields, "number"))),
            position: number(fields, "position"),
            is_of_recipient: flag(fields, "of_recipient"),
        };
        return message(&written(|w| Segment::Broken(broken).emit_head(w)));
    }
    let part = |key| (!fields[key].is_null()).then(|| &fields[key]);
    let bytes = part("data").map(|data| bytes(data, "bytes")).unwrap_or_default();
    let body = Body {
        opener: optional(fields, "opener"),
        messages: flag(fields, "messages"),
        ask: flag(fields, "ask"),
        instance: optional(fields, "number"),
        ack: part("ack").map(ack),
        data: part("data").map(|data| Data {
            position: number(data, "position"),
            end: flag(data, "end"),
            retransmitted: flag(data, "retransmitted"),
            bytes: &bytes,
        }),
    };
    let head = written(|w| Segment::Body(body).emit_head(w));
    message(&[head, bytes].concat())
}

fn ack(fields: &Value) -> Ack {
    let (marks, retransmissions) = (number(fields, "marks"), number(fields, "retransmissions"));
    let mut ack =
        Ack::new(number(fields, "next"), number(fields, "window"), marks, retransmissions);
    for range in list(fields, "ranges") {
        ack.push((number(range, "distance"), number(range, "length")));
    }
    ack
}

fn ack_fields(ack: &Ack) -> Value {
    let range =
        |&(distance, length): &(u32, u32)| json!({ "distance": distance, "length": length });
    json!({
        "next": ack.next, "window": ack.window, "marks": ack.marks,
        "retransmissions": ack.retransmissions,
        "ranges": ack.ranges().iter().map(range).collect::<Vec<_>>(),
    })
}

fn parse_segment(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let body = match Segment::parse(&bytes).expect("a segment") {
        Segment::Broken(broken) => {
            let (opener, number) = match broken.number {
                Number::Opener(number) => (Some(number), None),
                Number::Stream(number) => (None, Some(number)),
            };
            return json!({
                "reset": broken.why as u8, "opener": opener, "number": number,
                "position": broken.position, "of_recipient": broken.is_of_recipient,
            });
        }
        Segment::Body(body) => body,
    };
    let data = body.data.map(|data| {
        json!({
            "position": data.position, "end": data.end, "retransmitted": data.retransmitted,
            "bytes": hex(data.bytes),
        })
    });
    json!({
        "opener": body.opener, "messages": body.messages, "ask": body.ask,
        "number": body.instance, "ack": body.ack.as_ref().map(ack_fields), "data": data,
    })
}

fn segment_samples() -> Vec<(&'static str, Value)> {
    let ack = |next: u64, window: u16, ranges: Value| json!({ "next": next, "window": window, "marks": 3, "retransmissions": 255, "ranges": ranges });
    let fields = |(opener, number): (Value, Value), ask: bool, ack: Value, data: Value| json!({ "messages": !opener.is_null(), "opener": opener, "ask": ask, "number": number, "ack": ack, "data": data });
    let data = |position: u64, end: bool, retransmitted: bool, bytes: &str| json!({ "position": position, "end": end, "retransmitted": retransmitted, "bytes": bytes });
    let ranges =
        json!([{ "distance": 1_000, "length": 2_000 }, { "distance": 5_000, "length": 1 }]);
    let none = || Value::Null;
    let (opener, number) = (json!(0x0123_4567_u32), json!(0xc0de_beef_u32));
    let (request, both) = ((opener.clone(), none()), (opener.clone(), number.clone()));
    let stream = || (none(), number.clone());
    let opening = fields(request, false, ack(0, 8_192, json!([])), none());
    let answer = fields(both.clone(), false, ack(0, 64, json!([])), none());
    let first = fields(both, true, ack(0, 8_192, json!([])), data(0, false, false, "6869"));
    let last = fields(stream(), true, none(), data(1 << 40, true, true, "2e"));
    let gaps = fields(stream(), false, ack((1 << 48) - 1, 64, ranges), none());
    let reset = |reason: u8,
                 (opener, number): (Value, Value),
                 position: u64,
                 of_recipient: bool| json!({ "reset": reason, "opener": opener, "number": number, "position": position, "of_recipient": of_recipient });
    vec![
        ("a request to open a stream", opening),
        ("the answer to it", answer),
        ("the first data, which shows the number", first),
        ("the end of a stream, retransmitted", last),
        ("an acknowledgement with ranges", gaps),
        ("a request that is refused", reset(1, (opener.clone(), none()), 0, false)),
        ("a reset", reset(6, stream(), 70_000, false)),
        ("the answer to data of an unknown stream", reset(5, stream(), 1 << 40, true)),
    ]
}
