//! Messages that a proxy creates: responses to requests, and the ACK and CANCEL for a request that
//! it has forwarded.

use crate::lex::params;
use crate::message::{Message, Start};
use crate::name::Name;
use crate::value::{Via, host_address};
use core::net::{IpAddr, SocketAddr};

/// Creates a response of this proxy to `request`, which came from `source`. Codes above 100 get a
/// To tag if `to_tag` isn't empty; `more` are whole header lines to add.
pub fn response(
    request: &Message,
    source: SocketAddr,
    (code, reason): (u16, &str),
    to_tag: &[u8],
    more: &[u8],
) -> Vec<u8> {
    let mut out = format!("SIP/2.0 {code} {reason}\r\n").into_bytes();
    for (n, via) in request.list(Name::Via).enumerate() {
        let own = if n == 0 { Some(received(via, source)) } else { None };
        line(&mut out, Name::Via, own.as_deref().unwrap_or(via));
    }
    for name in [Name::From, Name::To, Name::CallId, Name::CSeq] {
        let Some(value) = request.first(name) else { continue };
        let untagged = name == Name::To
            && code > 100
            && !to_tag.is_empty()
            && request.to().is_none_or(|to| to.tag().is_none());
        if untagged {
            line(&mut out, name, &[value, b";tag=", to_tag].concat());
        } else {
            line(&mut out, name, value);
        }
    }
    out.extend_from_slice(more);
    line(&mut out, Name::ContentLength, b"0");
    out.extend_from_slice(b"\r\n");
    out
}

/// The topmost Via of a request from `source`, for the response and the following hops: with the
/// source address, and with the source port if requested (RFC 3261, 18.2.1; RFC 3581, 4).
pub fn received(via: &[u8], source: SocketAddr) -> Vec<u8> {
    let Some(view) = Via::parse(via) else { return via.to_vec() };
    let asks = view.param("rport").is_some();
    let same = host_address(view.host) == Some(source.ip());
    if same && !asks {
        return via.to_vec();
    }
    let end = crate::lex::find(via, b";").unwrap_or(via.len());
    let mut out = via[..end].to_vec();
    // Values that the sender wrote itself are not trusted.
    for (name, value) in params(&via[end..]) {
        if [&b"received"[..], b"rport"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
            continue;
        }
        out.extend([&b";"[..], name].concat());
        out.extend(value.map(|value| [&b"="[..], value].concat()).unwrap_or_default());
    }
    let address = match source.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip.to_string(),
    };
    out.extend(format!(";received={address}").bytes());
    if asks {
        out.extend(format!(";rport={}", source.port()).bytes());
    }
    out
}

/// The CANCEL for a request as forwarded (RFC 3261, 9.1).
pub fn cancel(forwarded: &Message) -> Vec<u8> {
    hop_by_hop(forwarded, b"CANCEL", forwarded.first(Name::To))
}

/// The ACK for a final response other than 2xx, to a request as forwarded (RFC 3261, 17.1.1.3).
pub fn ack(forwarded: &Message, response: &Message) -> Vec<u8> {
    hop_by_hop(forwarded, b"ACK", response.first(Name::To))
}

fn hop_by_hop(forwarded: &Message, method: &[u8], to: Option<&[u8]>) -> Vec<u8> {
    let Start::Request { uri, .. } = forwarded.start() else { return Vec::new() };
    let mut out = [method, b" ", uri, b" SIP/2.0\r\n"].concat();
    if let Some(via) = forwarded.list(Name::Via).next() {
        line(&mut out, Name::Via, via);
    }
    forwarded.list(Name::Route).for_each(|route| line(&mut out, Name::Route, route));
    line(&mut out, Name::MaxForwards, b"70");
    for (name, value) in [
        (Name::From, forwarded.first(Name::From)),
        (Name::To, to),
        (Name::CallId, forwarded.first(Name::CallId)),
    ] {
        line(&mut out, name, value.unwrap_or_default());
    }
    let number = forwarded.cseq().map_or(0, |cseq| cseq.number).to_string();
    line(&mut out, Name::CSeq, &[number.as_bytes(), b" ", method].concat());
    line(&mut out, Name::ContentLength, b"0");
    out.extend_from_slice(b"\r\n");
    out
}

/// Appends a field as one line. A folded value is unfolded.
pub(crate) fn line(out: &mut Vec<u8>, name: Name, value: &[u8]) {
    out.extend_from_slice(name.text().as_bytes());
    out.extend_from_slice(b": ");
    let value = crate::lex::trim(value).iter();
    out.extend(value.map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(via: &str) -> Message {
        let text = format!(
            "INVITE sip:b@h SIP/2.0\r\nv: {via}, SIP/2.0/UDP z;branch=z9hG4bK0\r\nRoute: <sip:r;lr>\r\n\
             f: <sip:a@h>;tag=1\r\nt: <sip:b@h>\r\ni: 1\r\nCSeq: 7\r\n INVITE\r\n\r\n"
        );
        Message::parse(text.as_bytes()).unwrap()
    }

    fn source() -> SocketAddr {
        "192.0.2.7:5062".parse().unwrap()
    }

    #[test]
    fn a_response_goes_the_way_back() {
        let request = request("SIP/2.0/UDP 10.0.0.1;rport;branch=z9hG4bK1");
        let bytes = response(&request, source(), (404, "Not Found"), b"x", b"Server: t\r\n");
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(
            text,
            "SIP/2.0 404 Not Found\r\n\
             Via: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1;received=192.0.2.7;rport=5062\r\n\
             Via: SIP/2.0/UDP z;branch=z9hG4bK0\r\n\
             From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>;tag=x\r\nCall-ID: 1\r\nCSeq: 7   INVITE\r\n\
             Server: t\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(Message::parse(&bytes).unwrap().fault(), None);
        let trying = response(&request, source(), (100, "Trying"), b"x", b"");
        assert_eq!(Message::parse(&trying).unwrap().to().unwrap().tag(), None);
    }

    #[test]
    fn a_hop_is_told_where_it_came_from_if_it_does_not_know() {
        let stamp = |via: &str| String::from_utf8(received(via.as_bytes(), source())).unwrap();
        assert_eq!(stamp("SIP/2.0/UDP 192.0.2.7:5;x"), "SIP/2.0/UDP 192.0.2.7:5;x");
        assert_eq!(stamp("SIP/2.0/UDP h ;x"), "SIP/2.0/UDP h ;x;received=192.0.2.7");
        assert_eq!(
            stamp("SIP/2.0/UDP 192.0.2.7;RPORT;received=6.6.6.6"),
            "SIP/2.0/UDP 192.0.2.7;received=192.0.2.7;rport=5062"
        );
    }

    #[test]
    fn what_goes_with_a_request_has_its_branch_and_route() {
        let request = request("SIP/2.0/UDP me;branch=z9hG4bK1");
        let busy =
            b"SIP/2.0 486 B\r\nVia: SIP/2.0/UDP me;branch=z9hG4bK1\r\nf: <sip:a@h>;tag=1\r\n\
            t: <sip:b@h>;tag=2\r\ni: 1\r\nCSeq: 7 INVITE\r\n\r\n";
        for (bytes, method, tag) in [
            (cancel(&request), &b"CANCEL"[..], None),
            (ack(&request, &Message::parse(busy).unwrap()), b"ACK", Some(&b"2"[..])),
        ] {
            let m = Message::parse(&bytes).unwrap();
            assert_eq!((m.fault(), m.start()), (None, Start::Request { method, uri: b"sip:b@h" }));
            let hops: Vec<_> = m.list(Name::Via).collect();
            assert_eq!(hops, [b"SIP/2.0/UDP me;branch=z9hG4bK1"]);
            assert_eq!((m.to().unwrap().tag(), m.cseq().unwrap().number), (tag, 7));
            assert_eq!(m.list(Name::Route).collect::<Vec<_>>(), [b"<sip:r;lr>"]);
        }
    }
}
