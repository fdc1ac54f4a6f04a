use super::*;
use crate::edit::Edit;
use crate::reply;
use proptest::collection::vec;
use proptest::prelude::*;

const REQUEST: &str = "INVITE sip:b@h SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n\
    From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\
    Max-Forwards: 70\r\nContent-Length: 3\r\n\r\nabc";

fn parse(text: &str) -> Message {
    Message::parse(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// The fault after replacing `from` with `to`.
fn fault(from: &str, to: &str) -> Option<Fault> {
    assert!(REQUEST.contains(from), "{from}");
    parse(&REQUEST.replacen(from, to, 1)).fault()
}

#[test]
fn what_others_might_take_for_an_end_of_line_is_none() {
    let text = |value: &str| {
        format!(
            "OPTIONS sip:h SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
             To: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nX: {value}\r\n\r\n"
        )
    };
    for (value, fault) in [
        ("a", None),
        ("\"\\\0\"", None),
        ("a\rRoute: <sip:x>", Some(Fault::Line)),
        ("a\0b", Some(Fault::Line)),
        ("a\r\r", Some(Fault::Line)),
    ] {
        assert_eq!(Message::parse(text(value).as_bytes()).unwrap().fault(), fault, "{value:?}");
    }
}

#[test]
fn a_request_is_found_in_its_bytes() {
    let m = parse(&format!("{REQUEST} and what came after it"));
    assert_eq!((m.fault(), m.bytes()), (None, REQUEST.as_bytes()));
    assert_eq!(m.start(), Start::Request { method: b"INVITE", uri: b"sip:b@h" });
    assert_eq!((m.via().unwrap().branch(), m.max_forwards()), (Some(&b"z9hG4bK1"[..]), Some(70)));
    assert_eq!((m.from().unwrap().tag(), m.to().unwrap().tag()), (Some(&b"1"[..]), None));
    assert_eq!((m.call_id(), m.body()), (Some(&b"1"[..]), &b"abc"[..]));
}

#[test]
fn lines_may_be_folded_and_names_short_and_in_any_case() {
    let m = parse(
        "SIP/2.0 200 \r\nvIA : SIP/2.0/UDP a,\r\n SIP/2.0/UDP b\r\nV: SIP/2.0/UDP c\n\
         f:\r\n <sip:a@h>\r\nt: <sip:b@h>;tag=2\r\ni:\t1\r\nCSeq: 1\r\n\tINVITE\r\nSubject:\r\n\r\n",
    );
    assert_eq!((m.fault(), m.start()), (None, Start::Response { code: 200, reason: b"" }));
    let hops: Vec<_> = m.list(Name::Via).filter_map(Via::parse).map(|via| via.host).collect();
    assert_eq!(hops, [b"a", b"b", b"c"]);
    let last = m.fields().last().unwrap();
    assert_eq!((last.name, last.value, last.line), (Name::Other, &b""[..], &b"Subject:\r\n"[..]));
}

#[test]
fn what_is_wrong_has_a_name_and_a_code() {
    for (from, to, want) in [
        ("SIP/2.0\r\nVia", "SIP/7.0\r\nVia", Fault::Version),
        ("INVITE sip", "IN<VITE sip", Fault::Method),
        ("sip:b@h S", "sip:b@h; lr S", Fault::RequestUri),
        ("sip:b@h S", "<sip:b@h> S", Fault::RequestUri),
        ("sip:b@h S", " sip:b@h  S", Fault::RequestUri),
        ("sip:b@h S", "sip:b@h?Route=x S", Fault::RequestUri),
        ("sip:b@h S", "b S", Fault::RequestUri),
        ("Max-Forwards: 70", "Max Forwards: 70", Fault::Line),
        ("Via: SIP/2.0/UDP a;branch=z9hG4bK1\r\n", "", Fault::Missing(Name::Via)),
        ("Call-ID: 1\r\n", "", Fault::Missing(Name::CallId)),
        ("Call-ID: 1", "Call-ID:", Fault::Value(Name::CallId)),
        ("Call-ID: 1", "Call-ID: 1\r\ni: 1", Fault::Repeated(Name::CallId)),
        ("CSeq: 1 INVITE", "CSeq: 1 ACK", Fault::Mismatch),
        ("CSeq: 1 INVITE", "CSeq: x INVITE", Fault::Value(Name::CSeq)),
        ("/UDP a;branch=z9hG4bK1", "/UDP a;;", Fault::Value(Name::Via)),
        ("From: <sip:a@h>", "From: \"a <sip:a@h>", Fault::Value(Name::From)),
        ("Max-Forwards: 70", "Route: sip:b@h, ", Fault::Value(Name::Route)),
        ("Length: 3", "Length: five", Fault::Value(Name::ContentLength)),
        ("Length: 3", "Length: 4", Fault::Short),
        ("Length: 3", "Length: 3\r\nl: 2", Fault::Repeated(Name::ContentLength)),
    ] {
        assert_eq!(fault(from, to), Some(want), "{to}");
    }
    assert_eq!([Fault::Version, Fault::Short].map(Fault::code), [505, 400]);
    assert_eq!(Fault::Missing(Name::CallId).to_string(), "Missing Call-ID Header");
    for (from, to) in [
        ("70", "300"),
        ("70", "x"),
        ("Length: 3", "Length: 3\r\nl: 3"),
        ("b@h", "b;c=?@h"),
        // Elements that only the far end reads.
        ("Max-Forwards: 70", "nothing"),
        ("From: <sip:a@h>", "From: J\u{f6}rg, A. (at work) <sip:a@h>"),
        ("From: <sip:a@h>", "Contact: ,;\r\nFrom: a \"b\" [c] <sip:a@h> (d)"),
    ] {
        assert_eq!(fault(from, to), None, "{to}");
    }
    assert_eq!(parse("SIP/2.0 4294967301 better\r\n\r\n").fault(), Some(Fault::Status));
    assert_eq!(parse("SIP/2.0 099 better\r\n\r\n").fault(), Some(Fault::Status));
}

#[test]
fn empty_lines_before_a_request_and_space_after_its_version_are_removed() {
    let plain = "INVITE sip:b@h SIP/2.0\r\nVia: x\r\n\r\n";
    for odd in [
        "\r\n\r\nINVITE sip:b@h SIP/2.0\r\nVia: x\r\n\r\n",
        "INVITE sip:b@h SIP/2.0 \t\r\nVia: x\r\n\r\n",
        "\nINVITE sip:b@h SIP/2.0  \nVia: x\r\n\r\n",
        "INVITE sip:b@h SIP/2.0 \r\t\nVia: x\r\n\r\n",
    ] {
        let message = parse(odd);
        let Start::Request { uri, .. } = message.start() else { panic!("{odd}") };
        assert_eq!(uri, b"sip:b@h", "{odd}");
        let bytes = String::from_utf8_lossy(message.bytes()).replace("2.0\nVia", "2.0\r\nVia");
        assert_eq!(bytes, plain, "{odd}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for (bytes, want) in [
        (&b""[..], ParseError::NoEnd),
        (b"\r\n\r\n", ParseError::FirstLine),
        (b"GET / HTTP/1.1\r\n\r\n", ParseError::FirstLine),
        (b"SIP/2.0 x\r\n\r\n", ParseError::FirstLine),
        (b"SIP/2.0 200 OK\r\n folded\r\n\r\n", ParseError::FirstLine),
        (b"OPTIONS sip:h SIP/2.0\r\nVia: x\r\n", ParseError::NoEnd),
        (&[b'x'; MAX_MESSAGE + 1], ParseError::TooLong),
    ] {
        assert_eq!(Message::parse(bytes).err(), Some(want), "{}", String::from_utf8_lossy(bytes));
    }
    let fields = |count| format!("SIP/2.0 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert!(Message::parse(fields(MAX_FIELDS).as_bytes()).is_ok());
    let more = Message::parse(fields(MAX_FIELDS + 1).as_bytes()).unwrap();
    assert_eq!((more.fault(), more.is_answerable()), (Some(Fault::TooManyFields), false));
}

#[test]
fn a_message_with_too_many_fields_can_be_answered() {
    let filler = |count| "a: b\r\n".repeat(count);
    let needed = "Via: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
        To: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nContent-Length: 2\r\n";
    for (before, after) in [(0, 251), (0, 9_000), (251, 0), (256, 0), (9_000, 9), (253, 1)] {
        let text =
            format!("OPTIONS sip:h SIP/2.0\r\n{}{needed}{}\r\nxyz", filler(before), filler(after));
        let message = Message::parse(text.as_bytes()).unwrap();
        assert_eq!(message.fault(), Some(Fault::TooManyFields), "{before} {after}");
        assert!(message.is_answerable() && message.body() == b"xy");
        assert!(message.places.len() <= MAX_FIELDS + 6);
        let refusal = (513, "x");
        let answer = reply::response(&message, ([192, 0, 2, 1], 5).into(), refusal, b"t", b"");
        assert_eq!(Message::parse(&answer).unwrap().fault(), None);
    }
    let most = format!("OPTIONS sip:h SIP/2.0\r\n{needed}{}\r\nxy", filler(250));
    assert_eq!(Message::parse(most.as_bytes()).unwrap().fault(), None);
    assert_eq!(
        Message::parse_own(most.replace("a: b", "a: b\r\na: b").as_bytes()).unwrap().places.len(),
        272
    );
}

/// Fragments of messages, valid and invalid.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"Via: SIP/2.0/UDP a;branch=z9hG4bK1"[..],
        b", SIP/2.0/TCP [::1]:5",
        b"\r\n",
        b"\n ",
        b"\r",
        b"Route: <sip:r;lr>",
        b"Content-Length: 4",
        b"To: \"",
        b"<",
        b";tag=",
        b"CSeq: 1 INVITE",
        b":",
        b"From: a <sip:a@h>",
        b",",
        b"\\",
        b"\"",
        b"=",
        b" ",
        b"\r\n\r\n",
    ]);
    prop_oneof![4 => known.prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..6)]
}

proptest! {
    /// For any input, all elements are slices of it, and a proxy's changes leave the rest
    /// unchanged.
    #[test]
    fn any_bytes_are_kept(pieces in vec(piece(), 0..40), first: bool) {
        let start: &[u8] = if first { b"INVITE sip:b@h SIP/2.0\r\n" } else { b"SIP/2.0 180 R\r\n" };
        let bytes = [start, &pieces.concat()].concat();
        let Ok(m) = Message::parse(&bytes) else { return Ok(()) };
        prop_assert!(bytes.starts_with(m.bytes()));
        let lines: Vec<u8> = m.fields().flat_map(|field| field.line.to_vec()).collect();
        let head = m.bytes().len() - m.body().len();
        let rest = &m.bytes()[start.len()..head];
        prop_assert!(rest.starts_with(&lines) && [&b"\n"[..], b"\r\n"].contains(&&rest[lines.len()..]));
        prop_assert_eq!(Edit::new(&m).finish(), m.bytes());
        let _ = (m.fault(), m.via(), m.from(), m.to(), m.cseq(), m.max_forwards());

        // Adding and removing a hop restores the message.
        let mut edit = Edit::new(&m);
        edit.push_front(Name::Via, b"SIP/2.0/UDP me;branch=z9hG4bKme");
        let more = Message::parse(&edit.finish()).unwrap();
        prop_assert_eq!(more.list(Name::Via).count(), m.list(Name::Via).count() + 1);
        let mut edit = Edit::new(&more);
        edit.pop(Name::Via, 1);
        prop_assert_eq!(edit.finish(), m.bytes());
        let mut edit = Edit::new(&m);
        edit.set_part(m.body(), b"new");
        let changed = Message::parse(&edit.finish()).unwrap();
        prop_assert_eq!(changed.body(), b"new");
    }
}
