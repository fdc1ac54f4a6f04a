//! Field values that a proxy reads: URIs, addresses, Via and CSeq (RFC 3261, 20 and 25.1). Each is
//! a view of the message's bytes.

use crate::lex::{are_params, find, host_port, is_space, is_token, number, param, trim};
use core::net::IpAddr;

/// A view of a SIP or SIPS URI (RFC 3261, 19.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uri<'a> {
    /// Whether it is `sips:`, which requires TLS on every hop.
    pub secure: bool,
    /// The part before the `@`, including a password, with escapes as they are.
    pub user: Option<&'a [u8]>,
    /// A name or an address; IPv6 addresses are in brackets.
    pub host: &'a [u8],
    /// Port, never 0; `None` if not specified.
    pub port: Option<u16>,
    params: &'a [u8],
    /// The part after the question mark: header fields for a request to this URI.
    pub headers: Option<&'a [u8]>,
}

/// The address in a URI's or Via's host, unless it is a name; IPv6 addresses are in brackets.
pub fn host_address(host: &[u8]) -> Option<IpAddr> {
    core::str::from_utf8(host).ok()?.trim_matches(['[', ']']).parse().ok()
}

impl<'a> Uri<'a> {
    /// Parses a URI; `None` for another scheme, or if it is malformed as far as this view goes.
    pub fn parse(uri: &'a [u8]) -> Option<Uri<'a>> {
        let colon = uri.iter().position(|&b| b == b':')?;
        let (scheme, rest) = (&uri[..colon], &uri[colon + 1..]);
        let secure = scheme.eq_ignore_ascii_case(b"sips");
        if !secure && !scheme.eq_ignore_ascii_case(b"sip") || rest.iter().any(|&b| is_space(b)) {
            return None;
        }
        // The user part may contain semicolons and question marks, but no second @.
        let (user, rest) = match rest.iter().position(|&b| b == b'@') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        if user == Some(b"") {
            return None;
        }
        let (rest, headers) = match rest.iter().position(|&b| b == b'?') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let end = rest.iter().position(|&b| b == b';').unwrap_or(rest.len());
        let (host, port) = host_port(&rest[..end])?;
        Some(Uri { secure, user, host, port, params: &rest[end..], headers })
    }

    /// The value of a parameter; `Some(None)` if it has none.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        param(self.params, name)
    }
}

/// The scheme of a URI, if it is well-formed and followed by something.
pub fn scheme(uri: &[u8]) -> Option<&[u8]> {
    let colon = uri.iter().position(|&b| b == b':')?;
    let one = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    let (scheme, rest) = (&uri[..colon], &uri[colon + 1..]);
    let good = scheme.first()?.is_ascii_alphabetic() && scheme.iter().all(one);
    (good && !rest.is_empty()).then_some(scheme)
}

/// The value of From, To, Contact, Route or Record-Route: a URI with an optional name before it and
/// parameters after it (RFC 3261, 20.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// The URI without its angle brackets, of any scheme.
    pub uri: &'a [u8],
    params: &'a [u8],
}

impl<'a> Address<'a> {
    /// Parses an address; `None` if it is malformed.
    pub fn parse(value: &'a [u8]) -> Option<Address<'a>> {
        let value = trim(value);
        let (uri, params) = match open_bracket(value)? {
            Some(open) => {
                let length = value[open + 1..].iter().position(|&b| b == b'>')?;
                let (uri, rest) = value[open + 1..].split_at(length);
                (uri, without_comment(&rest[1..]))
            }
            // Without brackets, parameters don't belong to the URI, and a question mark or a comma
            // would require brackets (RFC 3261, 20).
            None => {
                let end = value.iter().position(|&b| b == b';' || is_space(b));
                let (uri, rest) = value.split_at(end.unwrap_or(value.len()));
                if uri.contains(&b'?') || uri.contains(&b',') {
                    return None;
                }
                (uri, rest)
            }
        };
        scheme(uri)?;
        let good = !uri.iter().any(|&b| is_space(b) || b == b'<') && are_params(params);
        good.then_some(Address { uri, params })
    }

    /// The value of a parameter after the URI; `Some(None)` if it has none.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        param(self.params, name)
    }

    /// The tag, which identifies one end of a dialog (RFC 3261, 12).
    pub fn tag(&self) -> Option<&'a [u8]> {
        self.param("tag").flatten().map(without_comment)
    }
}

/// Position of the opening bracket in `name <uri>`; `Some(None)` if there is none. `None` if a quoted
/// string before it does not end. The name is only for display: any text will do, such as bare UTF-8.
fn open_bracket(value: &[u8]) -> Option<Option<usize>> {
    let at = find(value, b"<>")?;
    match value.get(at) {
        Some(b'<') => Some(Some(at)),
        Some(_) => None,
        None if value.contains(&b'"') => None,
        None => Some(None),
    }
}

/// `text` without a comment in parentheses before and after it (RFC 3261, 25.1).
fn without_comment(text: &[u8]) -> &[u8] {
    let text = trim(text);
    match text.iter().position(|&b| b == b'(') {
        Some(0) => {
            let end = text.iter().position(|&b| b == b')').map_or(0, |at| at + 1);
            trim(&text[end..])
        }
        Some(at) if is_space(text[at - 1]) && text.ends_with(b")") => trim(&text[..at]),
        _ => text,
    }
}

/// One hop of a request's path, which its responses return along (RFC 3261, 20.42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via<'a> {
    /// Transport, `UDP`, `TCP`, `TLS` …, in the sender's case.
    pub transport: &'a [u8],
    /// Destination host for responses; IPv6 addresses are in brackets.
    pub host: &'a [u8],
    /// Port, never 0; `None` if not specified.
    pub port: Option<u16>,
    params: &'a [u8],
}

/// Prefix of the branches of RFC 3261; branches without it are older.
pub const MAGIC_COOKIE: &[u8] = b"z9hG4bK";

impl<'a> Via<'a> {
    /// Parses a Via; `None` if it is malformed, or not of SIP 2.0.
    pub fn parse(value: &'a [u8]) -> Option<Via<'a>> {
        let slash = |bytes: &'a [u8]| {
            let at = bytes.iter().position(|&b| b == b'/')?;
            Some((trim(&bytes[..at]), trim(&bytes[at + 1..])))
        };
        let (protocol, rest) = slash(value)?;
        let (version, rest) = slash(rest)?;
        let end = rest.iter().position(|&b| is_space(b))?;
        let (transport, rest) = (&rest[..end], trim(&rest[end..]));
        let end = rest.iter().position(|&b| b == b';').unwrap_or(rest.len());
        let (host, port) = host_port(trim(&rest[..end]))?;
        let params = &rest[end..];
        let good = protocol.eq_ignore_ascii_case(b"SIP")
            && version == b"2.0"
            && is_token(transport)
            && are_params(params);
        good.then_some(Via { transport, host, port, params })
    }

    /// The value of a parameter; `Some(None)` if it has none, like an empty `rport`.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        param(self.params, name)
    }

    /// The branch, which identifies the transaction if its sender follows RFC 3261 (17.2.3): it
    /// must be more than the cookie alone.
    pub fn branch(&self) -> Option<&'a [u8]> {
        let branch = without_comment(self.param("branch").flatten()?);
        let (cookie, rest) = branch.split_at_checked(MAGIC_COOKIE.len())?;
        (cookie.eq_ignore_ascii_case(MAGIC_COOKIE) && !rest.is_empty()).then_some(branch)
    }
}

/// Number of a request in its dialog, and its method (RFC 3261, 20.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// Sequence number, below 2³¹.
    pub number: u32,
    /// Method, as in the request's first line.
    pub method: &'a [u8],
}

impl<'a> CSeq<'a> {
    /// Parses a CSeq; `None` if it is malformed.
    pub fn parse(value: &'a [u8]) -> Option<CSeq<'a>> {
        let value = trim(value);
        let end = value.iter().position(|&b| is_space(b))?;
        let number = number(&value[..end]).filter(|&n| n < 1 << 31)? as u32;
        let method = trim(&value[end..]);
        is_token(method).then_some(CSeq { number, method })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris() {
        let uri = Uri::parse(b"sip:a;b=c?d:pw@h.example:5061;lr;transport=tcp?X=y").unwrap();
        assert_eq!(
            (uri.user, uri.host, uri.port),
            (Some(&b"a;b=c?d:pw"[..]), &b"h.example"[..], Some(5_061))
        );
        assert_eq!(uri.param("LR"), Some(None));
        assert_eq!(uri.param("transport"), Some(Some(&b"tcp"[..])));
        assert_eq!(uri.headers, Some(&b"X=y"[..]));
        assert!(Uri::parse(b"SIPS:[::1]").unwrap().secure);
        for bad in [&b"tel:123"[..], b"sip:", b"sip:@h", b"sip:a@", b"sip:h; lr", b"<sip:h>", b"h"]
        {
            assert_eq!(Uri::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(scheme(b"tel:123"), Some(&b"tel"[..]));
        assert_eq!(
            (scheme(b"nobodyKnowsThisScheme"), scheme(b"a:"), scheme(b"1a:b")),
            (None, None, None)
        );
    }

    #[test]
    fn addresses() {
        let named = Address::parse(b" \"A \\\" <B>\"   <sip:x@h;tag=1>\r\n ; tag = 98 ").unwrap();
        assert_eq!((named.uri, named.tag()), (&b"sip:x@h;tag=1"[..], Some(&b"98"[..])));
        let bare = Address::parse(b"sip:x@h ;tag=1").unwrap();
        assert_eq!((bare.uri, bare.tag()), (&b"sip:x@h"[..], Some(&b"1"[..])));
        assert_eq!(Address::parse(b"caller<tel:1>").unwrap().uri, b"tel:1");
        assert_eq!(Address::parse(b"A. Bell <sip:x@h>").unwrap().tag(), None);
        // Names are for display only.
        for name in ["Bell, A", "Jos\u{e9} (at work)", "\"A\" B", "[A]", "A;B@C:D", ""] {
            let value = format!("{name} <sip:x@h> ;tag=1");
            let address = Address::parse(value.as_bytes()).unwrap();
            assert_eq!((address.uri, address.tag()), (&b"sip:x@h"[..], Some(&b"1"[..])), "{name}");
        }
        let commented = Address::parse(b"<sip:x@h> (a comment) ;tag=1 (and one)").unwrap();
        assert_eq!(commented.tag(), Some(&b"1"[..]));
        for bad in [
            &b""[..],
            b"<sip:x@h",
            b"\"A <sip:x@h>",
            b"Bell \" A <sip:x@h>",
            b"A > <sip:x@h>",
            b"\"sip:x@h\"",
            b"<sip:x@h>;;",
            b"< sip:x@h >",
            b"sip:x@h?a=b",
            b"<sip:x@h> x",
            b"x",
            b"<<sip:x@h>",
        ] {
            assert_eq!(Address::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn hops() {
        let via = Via::parse(b"SIP  / 2.0\r\n / TCP   h.example : 7 ;\r\n branch = z9hG4bKx;rport");
        let via = via.unwrap();
        assert_eq!((via.transport, via.host, via.port), (&b"TCP"[..], &b"h.example"[..], Some(7)));
        assert_eq!((via.branch(), via.param("rport")), (Some(&b"z9hG4bKx"[..]), Some(None)));
        assert_eq!(Via::parse(b"SIP/2.0/UDP h;branch=z9hG4bK").unwrap().branch(), None);
        assert_eq!(Via::parse(b"SIP/2.0/UDP h;branch=390skdjuw").unwrap().branch(), None);
        for bad in [
            &b"SIP/7.0/UDP h"[..],
            b"SIP/2.0/UDP",
            b"SIP/2.0/UDP h;;",
            b"HTTP/2.0/UDP h",
            b"SIP/2.0/UDP h:0",
            b"SIP/2.0/UDP 192.0.2.15;;,;,,",
            b"",
        ] {
            assert_eq!(Via::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn numbers_of_requests() {
        let cseq = CSeq::parse(b" 0009\r\n  INVITE ").unwrap();
        assert_eq!((cseq.number, cseq.method), (9, &b"INVITE"[..]));
        for bad in [&b"2147483648 INVITE"[..], b"1", b"-1 A", b"1 A B", b"x INVITE", b"1 "] {
            assert_eq!(CSeq::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
