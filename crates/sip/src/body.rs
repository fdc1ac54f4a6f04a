//! Message bodies: a single one, or several in one (RFC 2046, 5.1; RFC 5621).

use crate::lex::{find, is_space, param, split, trim};
use crate::message::Message;
use crate::name::Name;

/// Maximum number of body parts that are searched.
const MAX_PARTS: usize = 32;
/// Maximum length of a boundary between parts, in bytes (RFC 2046, 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// A body of the requested media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The body, as a slice of the message's bytes.
    pub bytes: &'a [u8],
    /// Whether it is the only body of its type, and neither compressed nor encoded.
    pub is_readable: bool,
}

impl Message {
    /// The body of the media type `kind`, such as `application/sdp`: the message's own, or the
    /// first of several in it. `None` if there is none, or it is empty.
    pub fn part(&self, kind: &str) -> Option<Part<'_>> {
        let of_message = self.first(Name::ContentType)?;
        let is_plain = !self.is_encoded();
        if is_kind(media_type(of_message), kind) {
            let part = Part { bytes: self.body(), is_readable: is_plain };
            return Some(part).filter(|part| !part.bytes.is_empty());
        }
        let mut parts = Parts::new(of_message, self.body())?
            .take(MAX_PARTS)
            .filter(|part| is_kind(part.kind, kind));
        let Whole { bytes, is_encoded, .. } = parts.find(|part| !part.bytes.is_empty())?;
        let is_readable = is_plain && !is_encoded && parts.next().is_none();
        Some(Part { bytes, is_readable })
    }
}

impl Message {
    /// Whether the body may contain something that [`Message::part`] doesn't see: it is compressed
    /// or encoded, has nested parts or too many of them, or is a multipart body without an end.
    pub fn hides(&self) -> bool {
        let Some(kind) = self.first(Name::ContentType).filter(|_| !self.body().is_empty()) else {
            return self.is_encoded();
        };
        if !begins(kind, b"multipart/") {
            return self.is_encoded();
        }
        let Some(mut parts) = Parts::new(kind, self.body()) else { return true };
        let mut all = parts.by_ref().take(MAX_PARTS);
        let is_hidden = all.any(|part| part.is_encoded || begins(part.kind, b"multipart/"));
        is_hidden || self.is_encoded() || !parts.is_ended
    }

    fn is_encoded(&self) -> bool {
        let mut codings = self.list(Name::ContentEncoding);
        !codings.all(|coding| coding.eq_ignore_ascii_case(b"identity"))
    }
}

fn begins(value: &[u8], with: &[u8]) -> bool {
    value.get(..with.len()).is_some_and(|first| first.eq_ignore_ascii_case(with))
}

/// Whether a media type is `kind`, allowing for space around its slash (RFC 3261, 25.1).
fn is_kind(value: &[u8], kind: &str) -> bool {
    let mut words = value.splitn(2, |&b| b == b'/').map(trim);
    let mut wanted = kind.split('/').map(str::as_bytes);
    [(); 2].iter().all(|()| match (words.next(), wanted.next()) {
        (Some(word), Some(wanted)) => word.eq_ignore_ascii_case(wanted),
        _ => false,
    })
}

/// The value of a `Content-Type` without its parameters.
fn media_type(value: &[u8]) -> &[u8] {
    split(value, b';').next().unwrap_or_default()
}

/// A body part with the properties from its own header.
struct Whole<'a> {
    kind: &'a [u8],
    is_encoded: bool,
    bytes: &'a [u8],
}

impl<'a> Whole<'a> {
    /// Parses a part; `text` begins after the boundary line.
    fn parse(text: &'a [u8]) -> Whole<'a> {
        let mut whole = Whole { kind: b"text/plain", is_encoded: false, bytes: &[] };
        let mut at = 0;
        while let Some(end) = text[at..].iter().position(|&b| b == b'\n').map(|n| at + n + 1) {
            let mut end = end;
            // A line that begins with white space continues the previous one.
            while let Some(b' ' | b'\t') =
                text.get(end).filter(|_| !trim(&text[at..end]).is_empty())
            {
                let more = text[end..].iter().position(|&b| b == b'\n');
                end = more.map_or(text.len(), |n| end + n + 1);
            }
            let line = trim(&text[at..end]);
            at = end;
            if line.is_empty() {
                whole.bytes = &text[at..];
                break;
            }
            let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
            let (name, value) = (trim(&line[..colon]), trim(&line[colon + 1..]));
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            let is_one_of =
                |all: &[&str]| all.iter().any(|one| value.eq_ignore_ascii_case(one.as_bytes()));
            if is("Content-Type") || is("c") {
                whole.kind = media_type(value);
            } else if is("Content-Transfer-Encoding") {
                whole.is_encoded |= !is_one_of(&["7bit", "8bit", "binary"]);
            } else if is("Content-Encoding") || is("e") {
                whole.is_encoded |= !is_one_of(&["identity"]);
            }
        }
        whole
    }
}

/// Iterator over the parts of a `multipart` body.
struct Parts<'a> {
    boundary: &'a [u8],
    rest: &'a [u8],
    /// Whether the last boundary has been read.
    is_ended: bool,
}

impl<'a> Parts<'a> {
    fn new(content_type: &'a [u8], body: &'a [u8]) -> Option<Parts<'a>> {
        if !begins(content_type, b"multipart/") {
            return None;
        }
        let params = &content_type[find(content_type, b";")?..];
        let boundary = param(params, "boundary")??;
        let boundary = boundary.strip_prefix(b"\"").unwrap_or(boundary);
        let boundary = boundary.strip_suffix(b"\"").unwrap_or(boundary);
        if boundary.is_empty() || boundary.len() > MAX_BOUNDARY {
            return None;
        }
        let mut parts = Parts { boundary, rest: body, is_ended: false };
        // Text before the first boundary belongs to no part.
        parts.take_to_boundary()?;
        Some(parts)
    }

    /// Takes the text before the next boundary; `rest` becomes the text after that line, and is
    /// empty after the last boundary.
    fn take_to_boundary(&mut self) -> Option<&'a [u8]> {
        let (all, mut at) = (self.rest, 0);
        while at < all.len() {
            let end = all[at..].iter().position(|&b| b == b'\n').map_or(all.len(), |n| at + n + 1);
            let after =
                all[at..end].strip_prefix(b"--").and_then(|l| l.strip_prefix(self.boundary));
            let is_last = after.is_some_and(|after| after.starts_with(b"--"));
            if is_last || after.is_some_and(|after| after.iter().all(|&b| is_space(b))) {
                self.is_ended |= is_last;
                self.rest = if is_last { &[] } else { &all[end..] };
                // The preceding line end belongs to the boundary.
                let part = &all[..at];
                let part = part.strip_suffix(b"\n").unwrap_or(part);
                return Some(part.strip_suffix(b"\r").unwrap_or(part));
            }
            at = end;
        }
        self.rest = &[];
        None
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Whole<'a>;

    fn next(&mut self) -> Option<Whole<'a>> {
        self.take_to_boundary().map(Whole::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edit;

    fn message(fields: &str, body: &str) -> Message {
        let text = format!(
            "INVITE sip:b@h SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n\
             From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\
             {fields}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Message::parse(text.as_bytes()).expect("a message")
    }

    const SDP: &str = "application/sdp";
    const TWO: &str = "not this\r\n--b 1\r\ncontent-type: Application/SDP; x=y\r\n\
        Content-Disposition: session\r\n\r\nv=0\r\nm=\r\n--b 1 \r\nContent-Type: application/isup\r\n\
        Content-Transfer-Encoding: binary\r\n\r\n\x01--b 1\r\n--b 1--\r\n--b 1\r\nnor this";

    #[test]
    fn a_body_of_its_own_is_the_part() {
        let readable = |fields: &str| message(fields, "v=0").part(SDP).map(|p| p.is_readable);
        assert_eq!(readable("c: application/SDP;charset=x"), Some(true));
        assert_eq!(
            readable("Content-Type: application/sdp\r\nContent-Encoding: gzip"),
            Some(false)
        );
        assert_eq!(readable("Content-Type: application/sdp\r\ne: identity"), Some(true));
        assert_eq!(readable("Content-Type: application / sdp"), Some(true));
        assert_eq!(readable("Content-Type: application/sdpx"), None);
        assert_eq!(readable("Content-Type: text/plain"), None);
        assert_eq!(readable("Subject: x"), None);
        assert_eq!(message("c: application/sdp", "").part(SDP), None);
    }

    #[test]
    fn of_several_it_is_found_and_changed_and_all_else_stays() {
        let m = message("Content-Type: multipart/mixed;boundary=\"b 1\"", TWO);
        let part = m.part(SDP).expect("a description");
        assert_eq!(part, Part { bytes: b"v=0\r\nm=", is_readable: true });
        assert_eq!(m.part("application/isup").map(|p| p.bytes), Some(&b"\x01--b 1"[..]));
        let mut edit = Edit::new(&m);
        edit.set_part(part.bytes, b"v=0\r\n");
        let changed = Message::parse(&edit.finish()).expect("a message");
        assert_eq!(changed.fault(), None);
        assert_eq!(changed.body(), TWO.replacen("v=0\r\nm=", "v=0\r\n", 1).as_bytes());
    }

    #[test]
    fn what_is_encoded_or_there_twice_is_not_readable() {
        let of = |body: &str| {
            message("c: Multipart/Mixed; boundary=b", body).part(SDP).map(|p| p.is_readable)
        };
        let part = "--b\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n";
        assert_eq!(of(&format!("{part}--b--")), Some(true));
        assert_eq!(of(&format!("{part}{part}--b--")), Some(false));
        for coding in ["Content-Transfer-Encoding: base64", "Content-Encoding: gzip", "e: gzip"] {
            let coded = part.replace("\r\n\r\n", &format!("\r\n{coding}\r\n\r\n"));
            assert_eq!(of(&format!("{coded}--b--")), Some(false), "{coding}");
        }
        // The length of an unterminated part is unknown.
        for none in ["", "--b", part, "--b--\r\n", "--b\r\n--b--", "--c\r\n\r\n--c--"] {
            assert_eq!(of(none), None, "{none}");
        }
        for bad in ["multipart/mixed", "multipart/mixed;boundary=", "multipart/mixed;boundary=\"\""]
        {
            assert_eq!(message(&format!("c: {bad}"), TWO).part(SDP), None, "{bad}");
        }
    }

    #[test]
    fn what_may_hide_another_body_is_known() {
        let hides = |fields: &str, body: &str| message(fields, body).hides();
        let mixed = "c: multipart/mixed;boundary=b";
        assert!(!hides(mixed, "--b\r\nc: text/plain\r\n\r\nx\r\n--b--"));
        assert!(!hides("c: text/plain", "x") && !hides("Subject: x", ""));
        assert!(hides("c: text/plain\r\ne: gzip", "x"));
        for body in [
            "--b\r\nContent-Transfer-Encoding: base64\r\n\r\nx\r\n--b--",
            "--b\r\nc:\r\n multipart/alternative;boundary=c\r\n\r\nx\r\n--b--",
            "--b\r\nc: text/plain\r\n\r\nno end",
            &("--b\r\n\r\nx\r\n".repeat(MAX_PARTS + 1) + "--b--"),
        ] {
            assert!(hides(mixed, body), "{body}");
        }
        assert!(hides("c: multipart/mixed", "x"), "nobody knows the boundary");
        let folded = "--b\r\nContent-Type:\r\n application/sdp\r\n\r\nv=0\r\n--b--";
        assert_eq!(message(mixed, folded).part(SDP).map(|p| p.bytes), Some(&b"v=0"[..]));
    }
}
