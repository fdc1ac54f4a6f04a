//! Messages about trunks, and the RTP headers that trunk packets restore.

use super::Kind;
use super::codec::{bytes, flag, hex, list, message, message_of, number, optional, text, written};
use crate::trunk::{
    Answer, Context, Entries, Entry, Head, Heard, Message, Receiver, Rtp, TRUNK_VERSION,
};
use core::time::Duration;
use serde_json::{Value, json};
use trunkline_base::Time;
use trunkline_rate::tfmc::Feedback;

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("trunk_ask", "10", emit_ask, parse_ask, ask_samples),
        kind("trunk_answer", "10", emit_answer, parse_answer, answer_samples),
        kind("trunk_packets", "10.1", emit_packets, parse_packets, packets_samples),
        kind("trunk_report", "10", emit_report, parse_report, report_samples),
    ]
}

fn emit_ask(fields: &Value) -> Value {
    let ask = Message::Ask {
        version: number(fields, "version"),
        generation: number(fields, "generation"),
        report_ms: number(fields, "report_ms"),
        rtt: optional(fields, "rtt_us").map(Duration::from_micros),
    };
    message(&written(|w| ask.emit(w)))
}

fn parse_ask(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let Some(Message::Ask { version, generation, report_ms, rtt }) = Message::parse(&bytes) else {
        panic!("an ask");
    };
    json!({
        "version": version, "generation": generation, "report_ms": report_ms,
        "rtt_us": rtt.map(|rtt| rtt.as_micros() as u64),
    })
}

fn ask_samples() -> Vec<(&'static str, Value)> {
    let fields = |rtt: Value| json!({ "version": TRUNK_VERSION, "generation": 0xbeef, "report_ms": 100, "rtt_us": rtt });
    vec![
        ("the first ask of a trunk", fields(Value::Null)),
        ("an ask with a round trip", fields(json!(70_500))),
    ]
}

fn emit_answer(fields: &Value) -> Value {
    let answer = match number::<u8>(fields, "answer") {
        0 => Answer::Known,
        1 => Answer::Fresh,
        2 => Answer::Refused,
        3 => Answer::Unknown,
        other => panic!("no such answer: {other}"),
    };
    let (version, generation) = (number(fields, "version"), number(fields, "generation"));
    let answer = Message::Answer { version, generation, answer, latest: number(fields, "newest") };
    message(&written(|w| answer.emit(w)))
}

fn parse_answer(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let Some(Message::Answer { version, generation, answer, latest }) = Message::parse(&bytes)
    else {
        panic!("an answer");
    };
    json!({
        "version": version, "generation": generation, "answer": answer as u8, "newest": latest,
    })
}

fn answer_samples() -> Vec<(&'static str, Value)> {
    let fields = |answer: u8| {
        let version = TRUNK_VERSION;
        json!({ "version": version, "generation": 0xbeef, "answer": answer, "newest": version })
    };
    vec![
        ("an answer that knows the contexts", fields(0)),
        ("an answer that knows none", fields(1)),
        ("an answer that refuses", fields(2)),
        ("an answer to packets of an unknown trunk", fields(3)),
    ]
}

fn push(entry: &Value, out: &mut Vec<u8>) {
    let kind = text(entry, "entry");
    let context = number(entry, "context");
    if kind == "definition" {
        let meant = Context {
            source_port: number(entry, "source_port"),
            destination_port: number(entry, "destination_port"),
            deadline_ms: number(entry, "deadline_ms"),
        };
        return Entry::Definition { number: context, context: meant }.push(out);
    }
    let (flow_seq, payload) = (number(entry, "flow_seq"), bytes(entry, "payload"));
    let rtp = match kind {
        "packet" => return Entry::Packet { context, flow_seq, payload: &payload }.push(out),
        "template" => {
            Rtp::Says { template: number(entry, "template"), step: number(entry, "step") }
        }
        "rtp" => Rtp::By {
            template: number(entry, "template"),
            marker: flag(entry, "marker"),
            timestamp: optional(entry, "timestamp"),
            seq: optional(entry, "seq"),
        },
        other => panic!("no such entry: {other}"),
    };
    Entry::Rtp { context, flow_seq, rtp, payload: &payload }.push(out);
}

fn entry_fields(entry: &Entry<'_>) -> Value {
    match *entry {
        Entry::Definition { number, context } => json!({
            "entry": "definition", "context": number, "source_port": context.source_port,
            "destination_port": context.destination_port, "deadline_ms": context.deadline_ms,
        }),
        Entry::Packet { context, flow_seq, payload } => json!({
            "entry": "packet", "context": context, "flow_seq": flow_seq, "payload": hex(payload),
        }),
        Entry::Rtp { context, flow_seq, rtp: Rtp::Says { template, step }, payload } => json!({
            "entry": "template", "context": context, "flow_seq": flow_seq,
            "template": template, "step": step, "payload": hex(payload),
        }),
        Entry::Rtp {
            context,
            flow_seq,
            rtp: Rtp::By { template, marker, timestamp, seq },
            payload,
        } => json!({
            "entry": "rtp", "context": context, "flow_seq": flow_seq, "template": template,
            "marker": marker, "timestamp": timestamp, "seq": seq, "payload": hex(payload),
        }),
    }
}

/// The packets that the receiving end makes of a trunk packet.
fn restored(head: &Head, entries: &[u8]) -> Vec<Value> {
    let mut receiver = Receiver::new(Time::ZERO);
    let mut packets = Vec::new();
    for entry in Entries::new(head, entries) {
        match receiver.hear(Time::ZERO, head.number, entry.expect("an entry")) {
            Heard::Packet { payload, .. } => packets.push(hex(payload)),
            Heard::Definition => {}
            Heard::Unknown => panic!("all is defined"),
        }
    }
    packets
}

fn emit_packets(fields: &Value) -> Value {
    let entries = list(fields, "entries");
    let head = Head {
        entries: entries.len() as u8,
        generation: number(fields, "generation"),
        number: number(fields, "number"),
        remaining_ms: number(fields, "remaining_ms"),
    };
    let mut body = Vec::new();
    entries.iter().for_each(|entry| push(entry, &mut body));
    let bytes = [&head.bytes()[..], &body].concat();
    json!({ "bytes": hex(&bytes), "restored": restored(&head, &body) })
}

fn parse_packets(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let Some(Message::Packets(head, body)) = Message::parse(&bytes) else { panic!("packets") };
    let entries: Vec<_> =
        Entries::new(&head, body).map(|entry| entry_fields(&entry.expect("an entry"))).collect();
    assert_eq!(entries.len(), usize::from(head.entries));
    json!({
        "generation": head.generation, "number": head.number, "remaining_ms": head.remaining_ms,
        "entries": entries,
    })
}

fn packets_samples() -> Vec<(&'static str, Value)> {
    // Payload type 0, sequence number 0xfffe, timestamp 0x10, SSRC 0xdecafbad.
    let rtp = "8000fffe00000010decafbad0102";
    let by = |flow_seq: u16, marker: bool, timestamp: Value, seq: Value| {
        json!({
            "entry": "rtp", "context": 1, "flow_seq": flow_seq, "template": 9,
            "marker": marker, "timestamp": timestamp, "seq": seq, "payload": "0304",
        })
    };
    let fields = json!({
        "generation": 0xbeef, "number": 0x0a0b0c, "remaining_ms": 97,
        "entries": [
            { "entry": "definition", "context": 1, "source_port": 5_000, "destination_port": 5_002,
              "deadline_ms": 100 },
            { "entry": "template", "context": 1, "flow_seq": 7, "template": 9, "step": 160,
              "payload": rtp },
            by(8, false, Value::Null, Value::Null),
            by(9, true, json!(4_000_000_000_u32), Value::Null),
            by(10, false, Value::Null, json!(12)),
            { "entry": "definition", "context": 4_095, "source_port": 6_000,
              "destination_port": 6_002, "deadline_ms": 150 },
            { "entry": "packet", "context": 4_095, "flow_seq": 1, "payload": "68656c6c6f" },
        ],
    });
    vec![("a trunk packet", fields)]
}

fn emit_report(fields: &Value) -> Value {
    let report = Feedback {
        number: number(fields, "number"),
        elapsed: Duration::from_micros(number(fields, "elapsed_us")),
        loss: f64::from(number::<u32>(fields, "loss")) / f64::from(u32::MAX),
    };
    let (version, generation) = (number(fields, "version"), number(fields, "generation"));
    message(&written(|w| Message::Report { version, generation, report }.emit(w)))
}

fn parse_report(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let Some(Message::Report { version, generation, report }) = Message::parse(&bytes) else {
        panic!("a report");
    };
    json!({
        "version": version, "generation": generation, "number": report.number,
        "elapsed_us": report.elapsed.as_micros() as u64,
        "loss": (report.loss * f64::from(u32::MAX)).round() as u32,
    })
}

fn report_samples() -> Vec<(&'static str, Value)> {
    let fields = json!({
        "version": TRUNK_VERSION, "generation": 0xbeef, "number": 0x0a0b0c, "elapsed_us": 321,
        "loss": u32::MAX / 5,
    });
    vec![("a report of loss", fields)]
}
