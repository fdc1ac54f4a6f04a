//! Messages between nodes, from port 0 to port 0.

use super::Kind;
use super::codec::{message, message_of, number, text, written};
use crate::node::{EchoKind, EchoMessage, PortUnbound};
use serde_json::{Value, json};

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("echo", "9.1", emit_echo, parse_echo, echo_samples),
        kind("port_unreachable", "9.2", emit_port, parse_port, port_samples),
    ]
}

fn emit_echo(fields: &Value) -> Value {
    let kind = match text(fields, "kind") {
        "request" => EchoKind::Request,
        "reply" => EchoKind::Reply,
        "hop limit" => EchoKind::HopLimit,
        other => panic!("no such echo: {other}"),
    };
    let echo = EchoMessage { kind, left: number(fields, "left"), nonce: number(fields, "nonce") };
    let mut bytes = written(|w| echo.emit(w));
    bytes.resize(number(fields, "size"), 0);
    message(&bytes)
}

fn parse_echo(outputs: &Value, _: &Value) -> Value {
    let bytes = message_of(outputs);
    let echo = EchoMessage::parse(&bytes).expect("an echo");
    let kind = match echo.kind {
        EchoKind::Request => "request",
        EchoKind::Reply => "reply",
        EchoKind::HopLimit => "hop limit",
    };
    json!({ "kind": kind, "left": echo.left, "nonce": echo.nonce, "size": bytes.len() })
}

fn echo_samples() -> Vec<(&'static str, Value)> {
    let fields = |kind: &str, left: u8, size: usize| json!({ "kind": kind, "left": left, "nonce": 0xfedc_ba98_7654_3210_u64, "size": size });
    vec![
        ("an echo request", fields("request", 0, 16)),
        ("an echo reply", fields("reply", 29, 16)),
        ("an echo request whose hop limit ran out", fields("hop limit", 0, 10)),
    ]
}

fn emit_port(fields: &Value) -> Value {
    let port =
        PortUnbound { from: number(fields, "source_port"), to: number(fields, "destination_port") };
    message(&written(|w| port.emit(w)))
}

fn parse_port(outputs: &Value, _: &Value) -> Value {
    let port = PortUnbound::parse(&message_of(outputs)).expect("a message");
    json!({ "source_port": port.from, "destination_port": port.to })
}

fn port_samples() -> Vec<(&'static str, Value)> {
    let fields = json!({ "source_port": 5_000, "destination_port": 49_153 });
    vec![("an unreachable port", fields)]
}
