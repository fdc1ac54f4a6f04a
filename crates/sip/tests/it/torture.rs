//! The messages of RFC 4475, bit for bit as in its appendix A: each is passed on undamaged, or
//! rejected as the RFC requires.
//!
//! The RFC's text is not part of this project. It is read from `$TRUNKLINE_DATA`, or else from
//! `shared/data` next to the workspace.

use base64::Engine as _;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use trunkline_sip::{Edit, Message, Name, Start};

/// Results for malformed messages: the code of the answer, or 0 for a response, which is dropped.
/// Sections 3.1.2 and 3.3 of the RFC. Two that it lets an element reject are not listed: the spaces
/// that end the first line of `trws` are removed, and the names without quotes of `baddn` are left
/// to the far end, which alone reads them.
const REFUSED: &[(&str, u16)] = &[
    ("badaspec", 400),
    ("badinv01", 400),
    ("badvers", 505),
    ("bigcode", 0),
    ("clerr", 400),
    ("escruri", 400),
    ("insuf", 400),
    ("ltgtruri", 400),
    ("lwsruri", 400),
    ("lwsstart", 400),
    ("mcl01", 400),
    ("mismatch01", 400),
    ("mismatch02", 400),
    ("multi01", 400),
    ("ncl", 400),
    ("quotbal", 400),
    ("scalar02", 400),
    ("scalarlg", 0),
];

#[expect(clippy::disallowed_methods, reason = "a test has to find its data")]
fn messages() -> Option<BTreeMap<String, Vec<u8>>> {
    let root = std::env::var("TRUNKLINE_DATA").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        Into::into,
    );
    let text = std::fs::read_to_string(root.join("rfc/rfc4475.txt")).ok()?;
    let (_, archive) = text.rsplit_once("-- BEGIN MESSAGE ARCHIVE --")?;
    let (archive, _) = archive.split_once("-- END MESSAGE ARCHIVE --")?;
    // Lines of one word; page breaks have more.
    let words = archive.lines().map(str::trim).filter(|line| !line.contains(' '));
    let packed = base64::engine::general_purpose::STANDARD.decode(words.collect::<String>());
    let packed = packed.expect("the archive is base64");
    let mut all = BTreeMap::new();
    for entry in
        tar::Archive::new(flate2::read::GzDecoder::new(&*packed)).entries().expect("an archive")
    {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").file_stem().expect("a name").to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("its bytes");
        all.insert(name.into_string().expect("plain letters"), bytes);
    }
    // The RFC's text has no such message, and has an empty line at the end of this one.
    all.remove("test");
    all.get_mut("baddn")?.extend_from_slice(b"\r\n");
    Some(all)
}

#[test]
fn each_passes_undamaged_or_is_refused_as_the_rfc_says() {
    let Some(messages) = messages() else {
        eprintln!("skipped: no reference data");
        return;
    };
    assert_eq!(messages.len(), 49);
    let mut refused = Vec::new();
    for (name, bytes) in &messages {
        let message = Message::parse(bytes).unwrap_or_else(|why| panic!("{name}: {why}"));
        let is_request = matches!(message.start(), Start::Request { .. });
        match message.fault() {
            Some(fault) => {
                println!("{name}: {} {fault}", fault.code());
                refused.push((name.as_str(), if is_request { fault.code() } else { 0 }));
            }
            None => passes(name, &message),
        }
    }
    assert_eq!(refused, REFUSED);
}

/// Asserts that a proxy's additions are present, and everything else is unchanged byte for byte.
fn passes(name: &str, message: &Message) {
    let mut edit = Edit::new(message);
    edit.push_front(Name::Via, b"SIP/2.0/UDP me;branch=z9hG4bKme");
    edit.push_front(Name::RecordRoute, b"<sip:me;lr>");
    edit.set(Name::MaxForwards, b"9");
    let forwarded = Message::parse(&edit.finish()).expect("a message");
    assert_eq!((forwarded.fault(), forwarded.max_forwards()), (None, Some(9)), "{name}");
    assert_eq!(forwarded.start(), message.start(), "{name}");
    assert_eq!(forwarded.body(), message.body(), "{name}");
    let ours = [&b"Via: SIP/2.0/UDP me;branch=z9hG4bKme\r\n"[..], b"Record-Route: <sip:me;lr>\r\n"];
    let lines = |m: &Message| -> Vec<Vec<u8>> {
        let others = m.fields().filter(|field| field.name != Name::MaxForwards);
        others.map(|field| field.line.to_vec()).filter(|line| !ours.contains(&&line[..])).collect()
    };
    assert_eq!(lines(&forwarded), lines(message), "{name}");
    let added = forwarded.fields().count() - message.fields().count();
    assert_eq!(added, if message.first(Name::MaxForwards).is_some() { 2 } else { 3 }, "{name}");
}
