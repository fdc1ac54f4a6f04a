//! Messages between an application and its node.

use super::Kind;
use super::codec::{bytes, flag, hex, message, message_of, number, optional, text, written};
use super::frames::service;
use crate::session::wire::stream::{Notice, Request, Reset};
use crate::session::wire::{RefusalReason, SESSION_VERSION, ToClient, ToNode, Unreachable};
use crate::wire::{Metric, NodeId, Service};
use core::time::Duration;
use serde_json::{Value, json};

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("session_from_application", "13.2", emit_to_node, parse_to_node, to_node_samples),
        kind("session_from_node", "13.2", emit_to_client, parse_to_client, to_client_samples),
    ]
}

fn node(fields: &Value, key: &str) -> NodeId {
    NodeId(number(fields, key))
}

fn payload(fields: &Value) -> Vec<u8> {
    if fields["payload"].is_null() { Vec::new() } else { bytes(fields, "payload") }
}

/// The message from an application that `fields` describe.
pub fn to_node(fields: &Value) -> Vec<u8> {
    let payload = payload(fields);
    let message = match text(fields, "message") {
        "bind" => ToNode::Bind { version: number(fields, "version"), port: number(fields, "port") },
        "send" => ToNode::Send {
            service: service(fields, "service"),
            deadline_ms: number(fields, "deadline_ms"),
            to: node(fields, "node"),
            port: number(fields, "port"),
            payload: &payload,
        },
        "metric" => ToNode::Metric(optional(fields, "metric").map(Metric::from_wire)),
        "late" => ToNode::Late(flag(fields, "on")),
        "wait" => ToNode::Blocking(flag(fields, "on")),
        "connect" => ToNode::Stream(Request::Connect {
            to: node(fields, "node"),
            port: number(fields, "port"),
            messages: flag(fields, "messages"),
            credit: number(fields, "credit"),
        }),
        "listen" => ToNode::Stream(Request::Listen { backlog: number(fields, "backlog") }),
        "accept" => ToNode::Stream(Request::Accept {
            version: number(fields, "version"),
            token: number(fields, "token"),
            credit: number(fields, "credit"),
        }),
        "data" => ToNode::Stream(Request::Data(&payload)),
        "credit" => ToNode::Stream(Request::Credit(number(fields, "credit"))),
        "shut" => ToNode::Stream(Request::Shut),
        "reset" => ToNode::Stream(Request::Reset),
        other => panic!("no such message: {other}"),
    };
    [written(|w| message.emit_head(w)), payload].concat()
}

fn emit_to_node(fields: &Value) -> Value {
    message(&to_node(fields))
}

fn parse_to_node(outputs: &Value, _: &Value) -> Value {
    to_node_fields(&message_of(outputs))
}

/// The fields of a message from an application.
pub fn to_node_fields(bytes: &[u8]) -> Value {
    match ToNode::parse(bytes).expect("a message") {
        ToNode::Bind { version, port } => {
            json!({ "message": "bind", "version": version, "port": port })
        }
        ToNode::Send { service, deadline_ms, to, port, payload } => json!({
            "message": "send", "service": service as u8, "deadline_ms": deadline_ms,
            "node": to.0, "port": port, "payload": hex(payload),
        }),
        ToNode::Metric(metric) => {
            json!({ "message": "metric", "metric": metric.map(Metric::to_wire) })
        }
        ToNode::Late(on) => json!({ "message": "late", "on": on }),
        ToNode::Blocking(on) => json!({ "message": "wait", "on": on }),
        ToNode::Stream(Request::Connect { to, port, messages, credit }) => json!({
            "message": "connect", "node": to.0, "port": port, "messages": messages,
            "credit": credit,
        }),
        ToNode::Stream(Request::Listen { backlog }) => {
            json!({ "message": "listen", "backlog": backlog })
        }
        ToNode::Stream(Request::Accept { version, token, credit }) => json!({
            "message": "accept", "version": version, "token": token, "credit": credit,
        }),
        ToNode::Stream(Request::Data(data)) => json!({ "message": "data", "payload": hex(data) }),
        ToNode::Stream(Request::Credit(bytes)) => json!({ "message": "credit", "credit": bytes }),
        ToNode::Stream(Request::Shut) => json!({ "message": "shut" }),
        ToNode::Stream(Request::Reset) => json!({ "message": "reset" }),
    }
}

/// A message from an application that sends a packet.
pub fn send() -> Value {
    json!({
        "message": "send", "service": Service::RealTime as u8, "deadline_ms": 100, "node": 18,
        "port": 5_002, "payload": "68656c6c6f",
    })
}

/// A message from an application that requests port 5000.
pub fn bind() -> Value {
    json!({ "message": "bind", "version": SESSION_VERSION, "port": 5_000 })
}

fn to_node_samples() -> Vec<(&'static str, Value)> {
    let connect = json!({
        "message": "connect", "node": 18, "port": 80, "messages": true, "credit": 65_536,
    });
    let accept = json!({
        "message": "accept", "version": SESSION_VERSION, "token": 0xfedc_ba98_7654_3210_u64,
        "credit": 65_536,
    });
    vec![
        ("bind", bind()),
        ("send", send()),
        ("metric", json!({ "message": "metric", "metric": 1 })),
        ("metric, the node's default", json!({ "message": "metric", "metric": null })),
        ("late", json!({ "message": "late", "on": true })),
        ("wait", json!({ "message": "wait", "on": true })),
        ("connect", connect),
        ("listen", json!({ "message": "listen", "backlog": 128 })),
        ("accept", accept),
        ("data from an application", json!({ "message": "data", "payload": "68656c6c6f" })),
        ("credit from an application", json!({ "message": "credit", "credit": 32_768 })),
        ("shut from an application", json!({ "message": "shut" })),
        ("reset from an application", json!({ "message": "reset" })),
    ]
}

fn refusal(code: u8) -> RefusalReason {
    use RefusalReason::{
        Busy, Forbidden, Full, Malformed, NoFreePort, OutOfOrder, OverRate, OverShare, PortInUse,
        TooLarge, Unauthenticated, UnknownClient, Version, WrongKey,
    };
    let all = [
        Version,
        PortInUse,
        NoFreePort,
        OutOfOrder,
        TooLarge,
        Malformed,
        Full,
        Forbidden,
        Unauthenticated,
        WrongKey,
        UnknownClient,
        Busy,
        OverShare,
        OverRate,
    ];
    all.into_iter().find(|refusal| *refusal as u8 == code).expect("an error code")
}

/// The message from a node that `fields` describe.
pub fn to_client(fields: &Value) -> Vec<u8> {
    let payload = payload(fields);
    let port = |key: &str| number::<u16>(fields, key);
    let message = match text(fields, "message") {
        "bound" => ToClient::Bound {
            node: node(fields, "node"),
            port: port("port"),
            max_payload: number(fields, "largest"),
        },
        "received" => ToClient::Received {
            service: service(fields, "service"),
            recovered: flag(fields, "recovered"),
            remaining_ms: number(fields, "remaining_ms"),
            flow_seq: number(fields, "flow_seq"),
            from: node(fields, "node"),
            port: port("port"),
            payload: &payload,
        },
        "error" => {
            let refusal = refusal(number(fields, "code"));
            ToClient::Error { refusal, node: node(fields, "node"), port: port("port") }
        }
        "status" => status(fields),
        _ => ToClient::Stream(notice(fields, &payload)),
    };
    [written(|w| message.emit_head(w)), payload].concat()
}

fn status(fields: &Value) -> ToClient<'static> {
    let (node, port) = (node(fields, "node"), number(fields, "port"));
    let why = match number::<u8>(fields, "status") {
        0 => return ToClient::Reachable { node, port },
        1 => Unreachable::NoRoute,
        2 => Unreachable::Since(Duration::from_millis(number(fields, "since_ms"))),
        3 => Unreachable::NoPort,
        other => panic!("no such status: {other}"),
    };
    ToClient::Unreachable { node, port, why }
}

fn notice<'a>(fields: &Value, payload: &'a [u8]) -> Notice<'a> {
    match text(fields, "message") {
        "incoming" => Notice::Incoming {
            token: number(fields, "token"),
            from: node(fields, "node"),
            port: number(fields, "port"),
            messages: flag(fields, "messages"),
        },
        "connected" => Notice::Connected {
            node: node(fields, "node"),
            port: number(fields, "port"),
            peer: node(fields, "peer_node"),
            peer_port: number(fields, "peer_port"),
            messages: flag(fields, "messages"),
            credit: number(fields, "credit"),
        },
        "data" => Notice::Data(payload),
        "credit" => Notice::Credit(number(fields, "credit")),
        "shut" => Notice::Shut,
        "reset" => Notice::Reset(Reset::from_wire(number(fields, "reason"))),
        "finished" => Notice::Finished,
        other => panic!("no such message: {other}"),
    }
}

fn emit_to_client(fields: &Value) -> Value {
    message(&to_client(fields))
}

fn parse_to_client(outputs: &Value, _: &Value) -> Value {
    to_client_fields(&message_of(outputs))
}

/// The fields of a message from a node.
pub fn to_client_fields(bytes: &[u8]) -> Value {
    let status = |status: u8, node: NodeId, port: u16, since: Option<Duration>| {
        let since = since.map(|since| since.as_millis() as u64);
        json!({
            "message": "status", "status": status, "node": node.0, "port": port,
            "since_ms": since,
        })
    };
    match ToClient::parse(bytes).expect("a message") {
        ToClient::Bound { node, port, max_payload } => {
            json!({ "message": "bound", "node": node.0, "port": port, "largest": max_payload })
        }
        ToClient::Received { service, recovered, remaining_ms, flow_seq, from, port, payload } => {
            json!({
                "message": "received", "service": service as u8, "recovered": recovered,
                "remaining_ms": remaining_ms, "flow_seq": flow_seq, "node": from.0, "port": port,
                "payload": hex(payload),
            })
        }
        ToClient::Reachable { node, port } => status(0, node, port, None),
        ToClient::Unreachable { node, port, why } => match why {
            Unreachable::NoRoute => status(1, node, port, None),
            Unreachable::Since(since) => status(2, node, port, Some(since)),
            Unreachable::NoPort => status(3, node, port, None),
        },
        ToClient::Error { refusal, node, port } => {
            json!({ "message": "error", "code": refusal as u8, "node": node.0, "port": port })
        }
        ToClient::Stream(notice) => notice_fields(&notice),
    }
}

fn notice_fields(notice: &Notice<'_>) -> Value {
    match *notice {
        Notice::Incoming { token, from, port, messages } => json!({
            "message": "incoming", "token": token, "node": from.0, "port": port,
            "messages": messages,
        }),
        Notice::Connected { node, port, peer, peer_port, messages, credit } => json!({
            "message": "connected", "node": node.0, "port": port, "peer_node": peer.0,
            "peer_port": peer_port, "messages": messages, "credit": credit,
        }),
        Notice::Data(data) => json!({ "message": "data", "payload": hex(data) }),
        Notice::Credit(bytes) => json!({ "message": "credit", "credit": bytes }),
        Notice::Shut => json!({ "message": "shut" }),
        Notice::Reset(why) => json!({ "message": "reset", "reason": why as u8 }),
        Notice::Finished => json!({ "message": "finished" }),
    }
}

/// A message from a node that gives an application its port.
pub fn bound() -> Value {
    json!({ "message": "bound", "node": 17, "port": 5_000, "largest": 1_188 })
}

/// A message from a node that delivers a packet.
pub fn received() -> Value {
    json!({
        "message": "received", "service": Service::RealTime as u8, "recovered": true,
        "remaining_ms": 61, "flow_seq": 513, "node": 18, "port": 5_002, "payload": "68656c6c6f",
    })
}

fn to_client_samples() -> Vec<(&'static str, Value)> {
    let error = |code: u8| json!({ "message": "error", "code": code, "node": 18, "port": 5_002 });
    let status = |status: u8, since: Value| json!({ "message": "status", "status": status, "node": 18, "port": 5_002, "since_ms": since });
    let incoming = json!({
        "message": "incoming", "token": 0xfedc_ba98_7654_3210_u64, "node": 18, "port": 49_153,
        "messages": false,
    });
    let connected = json!({
        "message": "connected", "node": 17, "port": 80, "peer_node": 18, "peer_port": 49_153,
        "messages": true, "credit": 2_097_152,
    });
    vec![
        ("bound", bound()),
        ("received", received()),
        ("an error about a packet", error(7)),
        ("an error of the last code", error(15)),
        ("status: reachable", status(0, Value::Null)),
        ("status: no route", status(1, Value::Null)),
        ("status: unreachable since", status(2, json!(70_000))),
        ("status: no port", status(3, Value::Null)),
        ("incoming", incoming),
        ("connected", connected),
        ("data from a node", json!({ "message": "data", "payload": "68656c6c6f" })),
        ("credit from a node", json!({ "message": "credit", "credit": 32_768 })),
        ("shut from a node", json!({ "message": "shut" })),
        ("reset from a node", json!({ "message": "reset", "reason": 13 })),
        ("finished", json!({ "message": "finished" })),
    ]
}
