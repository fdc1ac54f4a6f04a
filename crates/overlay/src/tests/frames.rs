//! Test vectors of envelopes and frames.

use super::Kind;
use super::codec::{array, bytes, flag, hex, list, message, message_of, number, optional, written};
use crate::wire::{
    AckHead, AckRange, DataHeader, ENVELOPE_OVERHEAD, FlowHeader, Frame, Frames, Goodbye, Hello,
    HopHeader, Incarnation, Metric, Nack, NackRange, NodeId, Null, Opened, PathFrame,
    ReceiverIndex, Role, Seal, Sealed, SelectiveAck, Service, SessionKeys,
};
use core::time::Duration;
use serde_json::{Value, json};
use trunkline_base::Time;
use zeroize::Zeroizing;

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("sealed_envelope", "3.2", emit_sealed, parse_sealed, sealed_samples),
        kind("unsealed_envelope", "3.4", emit_unsealed, parse_unsealed, unsealed_samples),
        kind("data_frame", "5.2", emit_data, parse_data, data_samples),
        kind("hello", "5.3", emit_hello, parse_hello, hello_samples),
        kind("nack", "5.4", emit_nack, parse_nack, nack_samples),
        kind("goodbye", "5.5", emit_goodbye, parse_goodbye, goodbye_samples),
        kind("path_frame", "5.6", emit_path, parse_path, path_samples),
        kind("selective_ack", "5.7", emit_ack, parse_ack, ack_samples),
    ]
}

pub fn service(fields: &Value, key: &str) -> Service {
    Service::from_wire(number(fields, key)).expect("a service")
}

/// The only frame in the bytes of `outputs`, as `read` sees it.
fn frame<R>(outputs: &Value, read: impl FnOnce(Frame<'_>) -> R) -> R {
    let bytes = message_of(outputs);
    let mut frames = Frames::new(&bytes);
    let frame = frames.next().expect("a frame").expect("a frame without errors");
    assert!(frames.next().is_none(), "one frame");
    read(frame)
}

/// A session with the key and receiver index in `fields`. Its next envelope in either direction has
/// number `counter`.
fn seal(fields: &Value, counter: u64) -> Sealed {
    let key = || Zeroizing::new(array(fields, "key"));
    let index = ReceiverIndex::new(number(fields, "receiver_index"));
    let (local, remote) = (index, index);
    let (role, peer) = (Role::Initiator, Incarnation(1));
    let mut sealed = Sealed::new();
    sealed.install(SessionKeys { local, remote, send: key(), recv: key(), role, peer }, Time::ZERO);
    sealed.continue_at(counter);
    sealed
}

fn emit_sealed(fields: &Value) -> Value {
    let frames = bytes(fields, "frames");
    let sealed = seal(fields, number(fields, "counter"));
    let mut seal = Seal::Aead(Box::new(sealed));
    let mut envelope = vec![0; ENVELOPE_OVERHEAD + frames.len()];
    Seal::frames_mut(&mut envelope).copy_from_slice(&frames);
    assert!(seal.seal(&mut envelope));
    message(&envelope)
}

fn parse_sealed(outputs: &Value, fields: &Value) -> Value {
    let mut envelope = message_of(outputs);
    // The counter of a receiver may lag by a few envelopes.
    let near = number::<u64>(fields, "counter").saturating_sub(3);
    let mut seal = Seal::Aead(Box::new(seal(fields, near)));
    let (opened, counter) = seal.open(&mut envelope).expect("an envelope");
    assert_eq!(opened, Opened::Same);
    let index = u32::from_be_bytes([0, envelope[1], envelope[2], envelope[3]]);
    json!({
        "key": fields["key"], "receiver_index": index, "counter": counter,
        "frames": hex(Seal::frames(&envelope)),
    })
}

fn sealed_samples() -> Vec<(&'static str, Value)> {
    let fields = |counter: u64, frames: &str| {
        let key = hex(&core::array::from_fn::<u8, 32, _>(|n| n as u8));
        json!({ "key": key, "receiver_index": 0xabcdef, "counter": counter, "frames": frames })
    };
    vec![
        ("a sealed goodbye", fields(0, "05")),
        ("a sealed path challenge, beyond 32 bits", fields((3 << 32) + 7, "060102030405060708")),
    ]
}

fn unsealed(fields: &Value) -> Null {
    let node = |key| NodeId(number(fields, key));
    let index =
        ReceiverIndex::derived(node("from"), node("to"), super::codec::text(fields, "path"));
    Null::new(index, Incarnation(number(fields, "incarnation")))
}

fn emit_unsealed(fields: &Value) -> Value {
    let frames = bytes(fields, "frames");
    let mut seal = Seal::Null(unsealed(fields));
    let mut envelope = vec![0; ENVELOPE_OVERHEAD + frames.len()];
    for _ in 0..=number::<u64>(fields, "counter") {
        Seal::frames_mut(&mut envelope).copy_from_slice(&frames);
        assert!(seal.seal(&mut envelope));
    }
    message(&envelope)
}

fn parse_unsealed(outputs: &Value, fields: &Value) -> Value {
    let mut envelope = message_of(outputs);
    let node = |key| NodeId(number(fields, key));
    let path = super::codec::text(fields, "path");
    let header = crate::wire::open_header(&envelope).expect("an envelope");
    assert_eq!(header.receiver, ReceiverIndex::derived(node("from"), node("to"), path));
    let mut seal = Seal::Null(unsealed(fields));
    let (_, counter) = seal.open(&mut envelope).expect("an envelope");
    json!({
        "from": fields["from"], "to": fields["to"], "path": path,
        "incarnation": seal.peer().expect("a peer").0, "counter": counter,
        "frames": hex(Seal::frames(&envelope)),
    })
}

fn unsealed_samples() -> Vec<(&'static str, Value)> {
    let fields = json!({
        "from": 1, "to": 2, "path": "dsl", "incarnation": 1_800_000_000_000_000_000_u64,
        "counter": 2, "frames": "05",
    });
    vec![("an unsealed envelope", fields)]
}

fn emit_data(fields: &Value) -> Value {
    let packet = bytes(fields, "packet");
    let node = |key| NodeId(number(fields, key));
    let flow = FlowHeader {
        service: service(fields, "service"),
        metric: Metric::from_wire(number(fields, "metric")),
        source: node("source"),
        destination: node("destination"),
        source_port: number(fields, "source_port"),
        destination_port: number(fields, "destination_port"),
        flow_seq: number(fields, "flow_seq"),
    };
    let hop = HopHeader {
        recovered: flag(fields, "recovered"),
        hop_limit: number(fields, "hop_limit"),
        link_seq: number(fields, "link_seq"),
        remaining_ms: number(fields, "remaining"),
    };
    let mut frame = written(|w| DataHeader { flow, hop }.emit(packet.len() as u16, w));
    frame.extend(packet);
    message(&frame)
}

fn parse_data(outputs: &Value, _: &Value) -> Value {
    frame(outputs, |frame| {
        let Frame::Data(DataHeader { flow, hop }, packet) = frame else { panic!("{frame:?}") };
        json!({
            "service": flow.service as u8, "metric": flow.metric.to_wire(),
            "source": flow.source.0, "destination": flow.destination.0,
            "source_port": flow.source_port, "destination_port": flow.destination_port,
            "flow_seq": flow.flow_seq, "recovered": hop.recovered, "hop_limit": hop.hop_limit,
            "link_seq": hop.link_seq, "remaining": hop.remaining_ms, "packet": hex(packet),
        })
    })
}

fn data_samples() -> Vec<(&'static str, Value)> {
    let fields = |service: u8, metric: u8, recovered: bool, remaining: u8| {
        json!({
            "service": service, "metric": metric, "source": 17, "destination": 0xfedc_ba98_u32,
            "source_port": 5_000, "destination_port": 49_153, "flow_seq": 65_535,
            "recovered": recovered, "hop_limit": 31, "link_seq": 258, "remaining": remaining,
            "packet": "68656c6c6f",
        })
    };
    vec![
        ("a packet of best effort", fields(1, 1, false, 100)),
        ("a real-time packet, retransmitted", fields(2, 0, true, 73)),
        ("a reliable packet of a stream, marked, in epoch 5", fields(3, 3, false, 0x35)),
    ]
}

fn emit_hello(fields: &Value) -> Value {
    let pair = |key| (!fields[key].is_null()).then(|| &fields[key]);
    let hello = Hello {
        probe: flag(fields, "probe"),
        seq: number(fields, "seq"),
        sent_us: number(fields, "sent_us"),
        echo: pair("echo").map(|echo| (number(echo, "sent_us"), number(echo, "held_us"))),
        heard_ms: optional(fields, "heard_ms"),
        loss: pair("loss").map(|loss| (number(loss, "loss"), number(loss, "burst"))),
        residual: optional(fields, "residual"),
    };
    message(&written(|w| hello.emit(w)))
}

fn parse_hello(outputs: &Value, _: &Value) -> Value {
    frame(outputs, |frame| {
        let Frame::Hello(hello) = frame else { panic!("{frame:?}") };
        json!({
            "probe": hello.probe, "seq": hello.seq, "sent_us": hello.sent_us,
            "echo": hello.echo.map(|(sent, held)| json!({ "sent_us": sent, "held_us": held })),
            "heard_ms": hello.heard_ms,
            "loss": hello.loss.map(|(loss, burst)| json!({ "loss": loss, "burst": burst })),
            "residual": hello.residual,
        })
    })
}

fn hello_samples() -> Vec<(&'static str, Value)> {
    let full = json!({
        "probe": true, "seq": 513, "sent_us": 4_000_000_001_u32,
        "echo": { "sent_us": 77, "held_us": 12_345 }, "heard_ms": 3,
        "loss": { "loss": 3_277, "burst": 64 }, "residual": 70,
    });
    let first = json!({
        "probe": false, "seq": 0, "sent_us": 1, "echo": null, "heard_ms": null, "loss": null,
        "residual": null,
    });
    vec![("a hello that asks for one", full), ("the first hello", first)]
}

fn emit_nack(fields: &Value) -> Value {
    let range =
        |range: &Value| NackRange { first: number(range, "first"), count: number(range, "count") };
    let ranges: Vec<_> = list(fields, "ranges").iter().map(range).collect();
    message(&written(|w| Nack::emit(service(fields, "service"), &ranges, w)))
}

fn parse_nack(outputs: &Value, _: &Value) -> Value {
    frame(outputs, |frame| {
        let Frame::Nack(nack) = frame else { panic!("{frame:?}") };
        let ranges = nack.ranges().map(|r| json!({ "first": r.first, "count": r.count }));
        json!({ "service": nack.service as u8, "ranges": ranges.collect::<Vec<_>>() })
    })
}

fn nack_samples() -> Vec<(&'static str, Value)> {
    let real_time = json!([{ "first": 65_535, "count": 2 }, { "first": 9, "count": 256 }]);
    let reliable = json!([{ "first": 4, "count": 1 }]);
    vec![
        ("a request of real time", json!({ "service": 2, "ranges": real_time })),
        ("a request of another service", json!({ "service": 3, "ranges": reliable })),
    ]
}

fn emit_goodbye(_: &Value) -> Value {
    message(&written(|w| Goodbye.emit(w)))
}

fn parse_goodbye(outputs: &Value, _: &Value) -> Value {
    frame(outputs, |frame| assert_eq!(frame, Frame::Goodbye(Goodbye)));
    json!({})
}

fn goodbye_samples() -> Vec<(&'static str, Value)> {
    vec![("a goodbye", json!({}))]
}

fn emit_path(fields: &Value) -> Value {
    let data = array(fields, "data");
    let frame = match flag(fields, "response") {
        false => PathFrame::Challenge(data),
        true => PathFrame::Response(data),
    };
    message(&written(|w| frame.emit(w)))
}

fn parse_path(outputs: &Value, _: &Value) -> Value {
    frame(outputs, |frame| match frame {
        Frame::Path(PathFrame::Challenge(data)) => json!({ "response": false, "data": hex(&data) }),
        Frame::Path(PathFrame::Response(data)) => json!({ "response": true, "data": hex(&data) }),
        other => panic!("{other:?}"),
    })
}

fn path_samples() -> Vec<(&'static str, Value)> {
    let fields = |response: bool| json!({ "response": response, "data": "00112233445566ff" });
    vec![("a path challenge", fields(false)), ("a path response", fields(true))]
}

fn emit_ack(fields: &Value) -> Value {
    let head = AckHead {
        instance: number(fields, "instance"),
        sender: number(fields, "sender"),
        epoch: number(fields, "epoch"),
        next: number(fields, "next"),
        latest: number(fields, "latest"),
        delay: Duration::from_micros(number(fields, "delay_us")),
    };
    let range =
        |range: &Value| AckRange { first: number(range, "first"), count: number(range, "count") };
    let ranges: Vec<_> = list(fields, "ranges").iter().map(range).collect();
    message(&written(|w| SelectiveAck::emit(&head, &ranges, w)))
}

fn parse_ack(outputs: &Value, _: &Value) -> Value {
    frame(outputs, |frame| {
        let Frame::Ack(ack) = frame else { panic!("{frame:?}") };
        let AckHead { instance, sender, epoch, next, latest, delay } = ack.head;
        let ranges = ack.ranges().map(|r| json!({ "first": r.first, "count": r.count }));
        json!({
            "instance": instance, "sender": sender, "epoch": epoch, "next": next,
            "latest": latest, "delay_us": delay.as_micros() as u64,
            "ranges": ranges.collect::<Vec<_>>(),
        })
    })
}

fn ack_samples() -> Vec<(&'static str, Value)> {
    let fields = json!({
        "instance": 0x1234, "sender": 0xabcd, "epoch": 15, "next": 65_530, "latest": 2,
        "delay_us": 1_230,
        "ranges": [{ "first": 65_533, "count": 2 }, { "first": 1, "count": 2 }],
    });
    vec![("a selective acknowledgement", fields)]
}
