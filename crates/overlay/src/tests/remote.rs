//! A remote application: its handshake and the first messages in each direction.

use super::Kind;
use super::codec::{bytes, flag, hex, list, number, text, written};
use super::handshake::ephemeral;
use super::identity::{identity, seed};
use super::sessions::{
    bind, bound, received, send, to_client, to_client_fields, to_node, to_node_fields,
};
use crate::session::remote::{
    Datagram, FrameReader, FromClient, FromNode, Keys, Limits, Opening, PREFIX, Responder, Token,
};
use serde_json::{Value, json};

pub fn kinds() -> Vec<Kind> {
    let (emit, parse, samples) = (emit_remote, parse_remote, remote_samples);
    vec![Kind { name: "remote_session", section: "14", emit, parse, samples }]
}

const APPLICATION: u8 = 33;
const NODE: u8 = 34;

/// Both ends' keys after a handshake, with its two messages.
struct Begun {
    initiation: Vec<u8>,
    response: Vec<u8>,
    token: Token,
    application: Keys,
    node: Keys,
}

fn begin(fields: &Value) -> Begun {
    assert_eq!(fields["application_ephemeral"], ephemeral(APPLICATION));
    assert_eq!(fields["node_ephemeral"], ephemeral(NODE));
    let [application, node] = ["application_seed", "node_seed"].map(|key| identity(fields, key));
    let begun = Opening::begin(&application, &node.public(), [APPLICATION; 32]);
    let (opening, initiation) = begun.expect("a key");
    let clients = [application.public()];
    let mut responder = Responder::new(&node, &clients, Limits::default(), [NODE; 32]);
    let token = Token(number(fields, "token"));
    let answered = responder.answer(&initiation, token).expect("a known application");
    let (token, keys) = opening.finish(&answered.response).expect("the node's answer");
    let response = answered.response;
    Begun { initiation, response, token, application: keys, node: answered.keys }
}

/// The message described by `fields`: one of the carrier's own, or one of the session.
fn content(fields: &Value) -> Vec<u8> {
    let from_client = match text(fields, "message") {
        "ping" => FromClient::Ping,
        "hello" => FromClient::Hello {
            identity: number(fields, "identity"),
            attempt: number(fields, "attempt"),
        },
        "packets" => FromClient::Packets { udp: flag(fields, "udp") },
        "pong" => return written(|w| FromNode::Pong.emit(w)),
        _ if fields["from"] == "node" => return to_client(&fields["session"]),
        _ => return to_node(&fields["session"]),
    };
    written(|w| from_client.emit(w))
}

fn content_fields(from: &str, message: &[u8]) -> Value {
    let session = |message: &[u8]| match from {
        "node" => to_client_fields(message),
        _ => to_node_fields(message),
    };
    let mut fields = if from == "node" {
        match FromNode::parse(message).expect("a message") {
            FromNode::Pong => json!({ "message": "pong" }),
            FromNode::Session(message) => {
                json!({ "message": "session", "session": session(message) })
            }
            FromNode::Response(_) => panic!("one response"),
        }
    } else {
        match FromClient::parse(message).expect("a message") {
            FromClient::Ping => json!({ "message": "ping" }),
            FromClient::Hello { identity, attempt } => {
                json!({ "message": "hello", "identity": identity, "attempt": attempt })
            }
            FromClient::Packets { udp } => json!({ "message": "packets", "udp": udp }),
            FromClient::Session(message) => {
                json!({ "message": "session", "session": session(message) })
            }
            FromClient::Initiation(_) => panic!("one initiation"),
        }
    };
    fields["from"] = from.into();
    fields
}

fn emit_remote(fields: &Value) -> Value {
    let Begun { initiation, response, token, mut application, mut node } = begin(fields);
    let framed = |message: &[u8]| {
        let len = (message.len() as u16).to_be_bytes();
        hex(&[&len[..], message].concat())
    };
    let mut tcp = Vec::new();
    for message in list(fields, "tcp") {
        let keys = if message["from"] == "node" { &mut node } else { &mut application };
        let mut out = Vec::new();
        assert!(keys.seal_frame([&content(message), &[]], &mut out));
        tcp.push(hex(&out));
    }
    let mut udp = Vec::new();
    for message in list(fields, "udp") {
        let keys = if message["from"] == "node" { &node } else { &application };
        let head = Datagram { token, counter: number(message, "counter"), message: &[] }.head();
        let mut sealed = content(message);
        let tag = keys.seal_datagram(&head, &mut sealed).expect("keys");
        udp.push(hex(&[&head[..], &sealed, &tag].concat()));
    }
    json!({
        "initiation": framed(&initiation), "response": framed(&response), "tcp": tcp, "udp": udp,
    })
}

/// Opens the messages in `outputs` with the keys of the receiving end.
fn parse_remote(outputs: &Value, fields: &Value) -> Value {
    let Begun { initiation, response, mut application, mut node, .. } = begin(fields);
    assert_eq!(bytes(outputs, "initiation")[PREFIX..], initiation);
    assert_eq!(bytes(outputs, "response")[PREFIX..], response);
    let mut read = fields.clone();
    let from = |message: &Value| text(message, "from").to_owned();
    let senders = |key: &str| list(fields, key).iter().map(from).collect::<Vec<_>>();
    let mut tcp = Vec::new();
    for (sender, output) in senders("tcp").iter().zip(list(outputs, "tcp")) {
        let keys = if sender == "node" { &mut application } else { &mut node };
        let mut reader = FrameReader::default();
        for byte in bytes(&json!({ "frame": output }), "frame") {
            reader.room()[0] = byte;
            reader.filled(1).expect("a frame");
        }
        assert!(reader.open(keys));
        tcp.push(content_fields(sender, reader.whole().expect("a message")));
    }
    let mut udp = Vec::new();
    for (sender, output) in senders("udp").iter().zip(list(outputs, "udp")) {
        let keys = if sender == "node" { &application } else { &node };
        let mut datagram = bytes(&json!({ "datagram": output }), "datagram");
        let len = keys.open_datagram(&mut datagram).expect("a datagram");
        let Datagram { token, counter, message } =
            Datagram::parse(&datagram[..len]).expect("a datagram");
        assert_eq!(token.0, number::<u64>(fields, "token"));
        let mut message = content_fields(sender, message);
        message["counter"] = counter.into();
        udp.push(message);
    }
    (read["tcp"], read["udp"]) = (tcp.into(), udp.into());
    read
}

fn remote_samples() -> Vec<(&'static str, Value)> {
    let session = |from: &str, session: Value| json!({ "from": from, "message": "session", "session": session });
    let counted = |counter: u64, mut message: Value| {
        message["counter"] = counter.into();
        message
    };
    let ping = || json!({ "from": "application", "message": "ping" });
    let pong = || json!({ "from": "node", "message": "pong" });
    let fields = json!({
        "application_seed": seed(3), "node_seed": seed(1),
        "application_ephemeral": ephemeral(APPLICATION), "node_ephemeral": ephemeral(NODE),
        "token": 0x0123_4567_89ab_cdef_u64,
        "tcp": [
            { "from": "application", "message": "hello", "identity": 0xfeed_face_cafe_beef_u64,
              "attempt": 1 },
            session("application", bind()),
            session("node", bound()),
            ping(),
            pong(),
            { "from": "application", "message": "packets", "udp": true },
            session("node", received()),
        ],
        "udp": [
            counted(0, ping()),
            counted(0, pong()),
            counted(1, session("application", send())),
            counted(1, session("node", received())),
        ],
    });
    vec![("a remote application binds a port and sends a packet", fields)]
}
