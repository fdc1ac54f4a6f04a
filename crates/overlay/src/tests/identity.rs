//! Keys, macs and certificates.

use super::Kind;
use super::codec::{array, bytes, hex, message, message_of, number, text};
use crate::identity::{Certificate, Identity, MacKey, PublicKey};
use crate::wire::NodeId;
use serde_json::{Value, json};

pub fn kinds() -> Vec<Kind> {
    let kind = |name, section, emit, parse, samples| Kind { name, section, emit, parse, samples };
    vec![
        kind("keys", "2.1", emit_keys, parse_keys, keys_samples),
        kind("mac", "2.3", emit_mac, parse_mac, mac_samples),
        kind("certificate", "2.2", emit_certificate, parse_certificate, certificate_samples),
    ]
}

/// The seed of a node, an application or an operator in all vectors.
pub fn seed(n: u8) -> Value {
    hex(&[n; 32])
}

/// The identity whose seed is in field `key`.
pub fn identity(fields: &Value, key: &str) -> Identity {
    Identity::from_secret(&array(fields, key))
}

fn emit_keys(fields: &Value) -> Value {
    let identity = identity(fields, "identity_seed");
    let public = identity.public();
    assert_eq!(public.dh(), Some(identity.dh_public()), "derived both ways");
    json!({
        "ed25519_public": hex(&public.0),
        "x25519_public": hex(&identity.dh_public().0),
        "x25519_secret": hex(&*identity.dh_secret()),
        "text": public.to_string(),
    })
}

fn parse_keys(outputs: &Value, fields: &Value) -> Value {
    let public: PublicKey = text(outputs, "text").parse().expect("a key");
    assert_eq!(hex(&public.0), outputs["ed25519_public"]);
    let dh = public.dh().expect("a key");
    assert_eq!(hex(&dh.0), outputs["x25519_public"]);
    fields.clone()
}

fn keys_samples() -> Vec<(&'static str, Value)> {
    vec![("the keys of a seed", json!({ "identity_seed": seed(1) }))]
}

fn mac_key(fields: &Value) -> MacKey {
    let public = PublicKey(array(fields, "ed25519_public"));
    match text(fields, "label") {
        "trunkline query" => MacKey::for_overlay(&public),
        "trunkline initiation" => MacKey::for_node(&public).expect("a key"),
        "trunkline attach" => MacKey::for_remote(&public.dh().expect("a key")),
        other => panic!("no such label: {other}"),
    }
}

fn emit_mac(fields: &Value) -> Value {
    let mut message_bytes = bytes(fields, "message");
    mac_key(fields).stamp(&mut message_bytes);
    message(&message_bytes)
}

fn parse_mac(outputs: &Value, fields: &Value) -> Value {
    let mut bytes = message_of(outputs);
    assert!(mac_key(fields).check(&bytes));
    bytes[1..17].fill(0);
    json!({
        "label": fields["label"], "ed25519_public": fields["ed25519_public"],
        "message": hex(&bytes),
    })
}

fn mac_samples() -> Vec<(&'static str, Value)> {
    let public = hex(&Identity::from_secret(&[1; 32]).public().0);
    let fields = |label: &str| {
        let message = [&[0x13][..], &[0; 16], b"the rest"].concat();
        json!({ "label": label, "ed25519_public": public, "message": hex(&message) })
    };
    vec![
        ("a mac by an overlay's key", fields("trunkline query")),
        ("a mac by a node's key", fields("trunkline initiation")),
        ("a mac for an application's handshake", fields("trunkline attach")),
    ]
}

fn emit_certificate(fields: &Value) -> Value {
    let overlay = identity(fields, "overlay_seed");
    let certificate = Certificate::issue(
        &overlay,
        NodeId(number(fields, "node")),
        text(fields, "name"),
        PublicKey(array(fields, "key")),
        number(fields, "not_after"),
    );
    message(&certificate.expect("a name").to_bytes())
}

fn parse_certificate(outputs: &Value, fields: &Value) -> Value {
    let certificate = Certificate::parse(&message_of(outputs)).expect("a certificate");
    let overlay = identity(fields, "overlay_seed").public();
    assert_eq!(certificate.verify(&[overlay], certificate.not_after()), Ok(()));
    json!({
        "overlay_seed": fields["overlay_seed"], "node": certificate.node().0,
        "name": certificate.name(), "key": hex(&certificate.key().0),
        "not_after": certificate.not_after(),
    })
}

/// A certificate for node `node` with key `key`, by the operator of all vectors.
pub fn certificate(node: u32, key: u8) -> Vec<u8> {
    let (overlay, key) = (Identity::from_secret(&[200; 32]), Identity::from_secret(&[key; 32]));
    let certificate = Certificate::issue(&overlay, NodeId(node), "berlin", key.public(), 0);
    certificate.expect("a name").to_bytes()
}

fn certificate_samples() -> Vec<(&'static str, Value)> {
    let fields = |name: &str, not_after: u64| {
        let key = hex(&Identity::from_secret(&[1; 32]).public().0);
        json!({
            "overlay_seed": seed(200), "node": 17, "name": name, "key": key,
            "not_after": not_after,
        })
    };
    vec![
        ("a certificate that never expires", fields("berlin", 0)),
        ("a certificate that expires", fields("M\u{fc}nchen", 1_893_456_000)),
    ]
}
