//! Messages of the handshake between nodes, and a whole one.

use super::Kind;
use super::codec::{array, bytes, hex, message, message_of, number, text};
use super::identity::{certificate, identity, seed};
use crate::handshake::freshness::NONCE;
use crate::handshake::message::{Answer, Challenge, Initiation, Payload, Query, Response};
use crate::identity::{Certificate, Identity, MacKey, noise};
use crate::wire::version::VersionRange;
use crate::wire::{Incarnation, NodeId, ReceiverIndex};
use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use serde_json::{Value, json};

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("query", "4.2", emit_query, parse_query, query_samples),
        kind("answer", "4.2", emit_answer, parse_answer, answer_samples),
        kind("handshake_payload", "4.3", emit_payload, parse_payload, payload_samples),
        kind("handshake", "4", emit_handshake, parse_handshake, handshake_samples),
    ]
}

fn emit_query(fields: &Value) -> Value {
    let key = MacKey::for_overlay(&identity(fields, "overlay_seed").public());
    message(&Query { nonce: array(fields, "nonce") }.emit(&key))
}

fn parse_query(outputs: &Value, fields: &Value) -> Value {
    let bytes = message_of(outputs);
    let overlay = identity(fields, "overlay_seed").public();
    assert!(MacKey::for_overlay(&overlay).check(&bytes));
    let query = Query::parse(&bytes).expect("a query");
    json!({ "overlay_seed": fields["overlay_seed"], "nonce": hex(&query.nonce) })
}

fn query_samples() -> Vec<(&'static str, Value)> {
    vec![("a query", json!({ "overlay_seed": seed(200), "nonce": "0102030405060708" }))]
}

/// The mac key of an answer: of the query that it answers, or of the initiation.
fn answer_key(fields: &Value) -> MacKey {
    match fields["overlay_seed"].is_null() {
        false => MacKey::for_overlay(&identity(fields, "overlay_seed").public()),
        true => MacKey::for_node(&identity(fields, "responder_seed").public()).expect("a key"),
    }
}

fn emit_answer(fields: &Value) -> Value {
    let certificate = bytes(fields, "certificate");
    let (echo, cookie) = (array(fields, "echo"), array(fields, "cookie"));
    message(&Answer { echo, cookie, certificate: &certificate }.emit(&answer_key(fields)))
}

fn parse_answer(outputs: &Value, fields: &Value) -> Value {
    let bytes = message_of(outputs);
    assert!(answer_key(fields).check(&bytes));
    let Answer { echo, cookie, certificate } = Answer::parse(&bytes).expect("an answer");
    json!({
        "overlay_seed": fields["overlay_seed"], "responder_seed": fields["responder_seed"],
        "echo": hex(&echo), "cookie": hex(&cookie), "certificate": hex(certificate),
    })
}

fn answer_samples() -> Vec<(&'static str, Value)> {
    let cookie = hex(&[7; 16]);
    let query = json!({
        "overlay_seed": seed(200), "responder_seed": null, "echo": "0102030405060708",
        "cookie": cookie, "certificate": hex(&certificate(18, 2)),
    });
    let initiation = json!({
        "overlay_seed": null, "responder_seed": seed(2), "echo": "a1a2a3a4a5a6a7a8",
        "cookie": cookie, "certificate": "",
    });
    vec![("an answer to a query", query), ("an answer to an initiation", initiation)]
}

fn payload(fields: &Value) -> Vec<u8> {
    let certificate = bytes(fields, "certificate");
    let payload = Payload {
        versions: VersionRange {
            oldest: number(fields, "oldest"),
            newest: number(fields, "newest"),
        },
        index: ReceiverIndex::new(number(fields, "receiver_index")),
        node: NodeId(number(fields, "node")),
        incarnation: Incarnation(number(fields, "incarnation")),
        sent: number(fields, "time"),
        capabilities: number(fields, "capabilities"),
        mtu: number(fields, "mtu"),
        path: text(fields, "path").to_owned(),
        certificate: (!certificate.is_empty())
            .then(|| Certificate::parse(&certificate).expect("a certificate")),
        nonce: (!fields["nonce"].is_null()).then(|| array::<NONCE>(fields, "nonce")),
    };
    payload.to_bytes()
}

fn payload_fields(bytes: &[u8]) -> Value {
    let payload = Payload::parse(bytes).expect("a payload");
    let certificate = payload.certificate.map(|c| c.to_bytes()).unwrap_or_default();
    json!({
        "oldest": payload.versions.oldest, "newest": payload.versions.newest,
        "receiver_index": payload.index.get(), "node": payload.node.0,
        "incarnation": payload.incarnation.0, "time": payload.sent,
        "capabilities": payload.capabilities, "mtu": payload.mtu, "path": payload.path,
        "certificate": hex(&certificate), "nonce": payload.nonce.map(|nonce| hex(&nonce)),
    })
}

fn emit_payload(fields: &Value) -> Value {
    message(&payload(fields))
}

fn parse_payload(outputs: &Value, _: &Value) -> Value {
    payload_fields(&message_of(outputs))
}

fn sample_payload(node: u32, index: u32, path: &str, nonce: Value) -> Value {
    json!({
        "oldest": 1, "newest": 1, "receiver_index": index, "node": node,
        "incarnation": 1_800_000_000_000_000_000_u64 + u64::from(node),
        "time": 1_234_567_890_123_u64, "capabilities": 0, "mtu": 1_280, "path": path,
        "certificate": "", "nonce": nonce,
    })
}

fn payload_samples() -> Vec<(&'static str, Value)> {
    let mut certified = sample_payload(17, 0x10203, "dsl", Value::Null);
    certified["certificate"] = hex(&certificate(17, 1));
    let challenged = sample_payload(17, 0x10203, "dsl", hex(&[9; NONCE]));
    vec![
        ("a payload with a certificate", certified),
        ("a payload that answers a challenge", challenged),
    ]
}

/// A generator for one end of a handshake, and the ephemeral secret that follows from it: nodes
/// draw a seed, and the secret from a second generator.
fn generator(n: u8) -> (ChaCha20Rng, [u8; 32]) {
    use rand::Rng;
    let mut seed = [0; 32];
    ChaCha20Rng::from_seed([n; 32]).fill_bytes(&mut seed);
    let mut ephemeral = [0; 32];
    ChaCha20Rng::from_seed(seed).fill_bytes(&mut ephemeral);
    (ChaCha20Rng::from_seed([n; 32]), ephemeral)
}

const INITIATOR: u8 = 31;
const RESPONDER: u8 = 32;

/// The generator of `n`, whose ephemeral secret is in field `key`.
pub fn rng(fields: &Value, key: &str, n: u8) -> ChaCha20Rng {
    let (rng, ephemeral) = generator(n);
    assert_eq!(hex(&ephemeral), fields[key]);
    rng
}

pub fn ephemeral(n: u8) -> Value {
    hex(&generator(n).1)
}

fn node(identity: &Identity) -> noise::Static {
    noise::Static::new(identity, noise::NEIGHBOURS)
}

fn emit_handshake(fields: &Value) -> Value {
    let [a, b] = ["initiator_seed", "responder_seed"].map(|key| identity(fields, key));
    let mut rng_a = rng(fields, "initiator_ephemeral", INITIATOR);
    let mut rng_b = rng(fields, "responder_ephemeral", RESPONDER);
    let [mac_a, mac_b] = [&a, &b].map(|id| MacKey::for_node(&id.public()).expect("a key"));
    let mut initiator = node(&a).initiate(&b.dh_public(), &mut rng_a).expect("a handshake");
    let first = initiator.write(&payload(&fields["initiator"])).expect("a message");
    let initiation = Initiation { cookie: array(fields, "cookie"), noise: &first }.emit(&mac_b);
    let mut responder = node(&b).respond(&mut rng_b).expect("a handshake");
    responder.read(&first).expect("a message");
    let receiver = ReceiverIndex::new(number(&fields["initiator"], "receiver_index"));
    let (reply, keys) = if fields["challenge"].is_null() {
        let second = responder.write(&payload(&fields["responder"])).expect("a message");
        (Response { receiver, noise: &second }.emit(&mac_a), responder.split().ok())
    } else {
        let nonce = array(fields, "challenge");
        let second = responder.write(&Challenge::payload(&nonce)).expect("a message");
        (Challenge { receiver, noise: &second }.emit(&mac_a), None)
    };
    json!({
        "initiation": hex(&initiation), "reply": hex(&reply),
        "initiator_to_responder": keys.as_ref().map(|[forth, _]| hex(&forth[..])),
        "responder_to_initiator": keys.as_ref().map(|[_, back]| hex(&back[..])),
    })
}

fn parse_handshake(outputs: &Value, fields: &Value) -> Value {
    let [a, b] = ["initiator_seed", "responder_seed"].map(|key| identity(fields, key));
    let (initiation, reply) = (bytes(outputs, "initiation"), bytes(outputs, "reply"));
    let [mac_a, mac_b] = [&a, &b].map(|id| MacKey::for_node(&id.public()).expect("a key"));
    assert!(mac_b.check(&initiation) && mac_a.check(&reply));
    let mut read = fields.clone();
    let Initiation { cookie, noise } = Initiation::parse(&initiation).expect("an initiation");
    read["cookie"] = hex(&cookie);
    let mut responder = node(&b).respond(&mut generator(RESPONDER).0).expect("a handshake");
    read["initiator"] = payload_fields(&responder.read(noise).expect("a message"));
    assert_eq!(responder.peer(), Some(a.dh_public()));
    // The initiator reads the reply with the secrets of its own first message.
    let mut rng = rng(fields, "initiator_ephemeral", INITIATOR);
    let mut initiator = node(&a).initiate(&b.dh_public(), &mut rng).expect("a handshake");
    initiator.write(&payload(&fields["initiator"])).expect("a message");
    let index = if fields["challenge"].is_null() {
        let Response { receiver, noise } = Response::parse(&reply).expect("a response");
        read["responder"] = payload_fields(&initiator.read(noise).expect("a message"));
        let [forth, back] = initiator.split().expect("keys");
        assert_eq!(hex(&forth[..]), outputs["initiator_to_responder"]);
        assert_eq!(hex(&back[..]), outputs["responder_to_initiator"]);
        receiver
    } else {
        let Challenge { receiver, noise } = Challenge::parse(&reply).expect("a challenge");
        let payload = initiator.read(noise).expect("a message");
        read["challenge"] = hex(&Challenge::nonce(&payload).expect("a nonce"));
        receiver
    };
    assert_eq!(index.get(), number::<u32>(&fields["initiator"], "receiver_index"));
    read
}

fn handshake_samples() -> Vec<(&'static str, Value)> {
    let fields = |challenge: Value, cookie: [u8; 16]| {
        let responder = match challenge.is_null() {
            true => sample_payload(18, 0x0a0b0c, "dsl", Value::Null),
            false => Value::Null,
        };
        json!({
            "initiator_seed": seed(1), "responder_seed": seed(2),
            "initiator_ephemeral": ephemeral(INITIATOR),
            "responder_ephemeral": ephemeral(RESPONDER),
            "cookie": hex(&cookie), "challenge": challenge,
            "initiator": sample_payload(17, 0x010203, "dsl", Value::Null),
            "responder": responder,
        })
    };
    vec![
        ("a handshake", fields(Value::Null, [0; 16])),
        ("an initiation with a cookie, and a challenge", fields(hex(&[9; NONCE]), [7; 16])),
    ]
}
