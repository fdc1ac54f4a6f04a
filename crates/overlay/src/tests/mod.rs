//! The test vectors of `docs/protocol-vectors.json`, which section 15 of `docs/protocol.md`
//! describes.
//!
//! Each kind of vector has a function that makes bytes of fields and one that reads the fields off
//! the bytes, both by the code that nodes and applications run. `UPDATE_VECTORS=1 cargo test -p
//! trunkline-overlay vectors` rewrites the file.

mod codec;
mod frames;
mod handshake;
mod identity;
mod messages;
mod remote;
mod routing;
mod sessions;
mod streams;
mod trunks;

use serde_json::{Value, json};
use std::collections::BTreeSet;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol-vectors.json");

/// A kind of vector.
struct Kind {
    name: &'static str,
    /// The section of `docs/protocol.md` that specifies it.
    section: &'static str,
    /// Makes the outputs of the fields.
    emit: fn(&Value) -> Value,
    /// Reads the fields off the outputs, which are the first argument. Keys and other inputs that
    /// the outputs do not contain are taken from the fields, which are the second.
    parse: fn(&Value, &Value) -> Value,
    /// Names and fields of the vectors of this kind.
    samples: fn() -> Vec<(&'static str, Value)>,
}

fn kinds() -> Vec<Kind> {
    [
        identity::kinds(),
        frames::kinds(),
        handshake::kinds(),
        messages::kinds(),
        trunks::kinds(),
        streams::kinds(),
        routing::kinds(),
        sessions::kinds(),
        remote::kinds(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn text() -> String {
    let mut vectors = Vec::new();
    for kind in kinds() {
        for (name, fields) in (kind.samples)() {
            let outputs = (kind.emit)(&fields);
            let (section, kind) = (kind.section, kind.name);
            let vector = json!({
                "name": name, "kind": kind, "section": section, "fields": fields, "outputs": outputs,
            });
            vectors.push(vector);
        }
    }
    let all = json!({ "version": 1, "vectors": vectors });
    serde_json::to_string_pretty(&all).expect("JSON") + "\n"
}

/// Parses the file's bytes again: they yield each vector's fields, and the fields yield the same
/// bytes.
fn check(file: &str) {
    let file: Value = serde_json::from_str(file).expect("JSON");
    assert_eq!(file["version"], 1);
    let kinds = kinds();
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for vector in file["vectors"].as_array().expect("an array") {
        let name = vector["name"].as_str().expect("a name");
        let (fields, outputs) = (&vector["fields"], &vector["outputs"]);
        let kind = kinds.iter().find(|kind| vector["kind"] == kind.name);
        let kind = kind.unwrap_or_else(|| panic!("{name} is of an unknown kind"));
        assert_eq!(vector["section"], kind.section, "{name}");
        assert_eq!((kind.parse)(outputs, fields), *fields, "{name}, parsed");
        assert_eq!((kind.emit)(fields), *outputs, "{name}, written");
        assert!(names.insert(name), "two vectors are called {name}");
        seen.insert(kind.name);
    }
    for kind in kinds {
        assert!(seen.contains(kind.name), "no vector shows a {}", kind.name);
    }
}

#[test]
fn the_documented_vectors_are_what_the_code_reads_and_writes() {
    #[expect(clippy::disallowed_methods, reason = "the switch of this test, not of the library")]
    let update = std::env::var("UPDATE_VECTORS").is_ok();
    if update {
        std::fs::write(FILE, text()).expect("docs/protocol-vectors.json can be written");
    }
    let file = std::fs::read_to_string(FILE).expect("docs/protocol-vectors.json");
    check(&file);
    assert!(
        file == text(),
        "the vectors have changed: if that is meant, correct docs/protocol.md and run this again \
         with UPDATE_VECTORS=1"
    );
}
