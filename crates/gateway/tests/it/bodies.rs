//! Descriptions that aren't the whole body of a message, or can't be read.

use crate::common::*;
use trunkline_gateway::{DescriptionError, Event};

const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: "10.1.0.1:5060" };
const B: Agent = Agent { at: "10.2.0.9:5060", tag: "b", gateway: "10.2.0.1:5060" };
const URI: &str = "sip:b@10.2.0.9";

/// The message with its body placed among other parts.
fn among_others(message: &str) -> String {
    let (head, description) = message.split_once("\r\n\r\n").expect("a body");
    let body = format!(
        "--x\r\nContent-Type: application/sdp\r\n\r\n{description}\r\n--x\r\n\
         Content-Type: application/isup;version=itu-t92+\r\n\r\n\x01\x02\r\n--x--\r\n"
    );
    let length = |text: &str| format!("Content-Length: {}", text.len());
    let head = head.replace(&length(description), &length(&body));
    let head = head.replace("application/sdp", "multipart/mixed;boundary=x");
    format!("{head}\r\n\r\n{body}")
}

#[test]
fn a_description_among_other_bodies_is_a_description() {
    let mut world = two_sites();
    let offer = A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000"));
    world.send(A.at, A.gateway, &among_others(&offer));
    let invite = world.read(B.at, "INVITE");
    let answer = B.response(&invite, "200 OK", &sdp("10.2.0.9:5000"));
    world.send(B.at, B.gateway, &among_others(&answer));
    let ok = world.read(A.at, "200");
    for (message, site) in [(&invite, "10.2.0.1"), (&ok, "10.1.0.1")] {
        let body = body(message);
        assert!(body.contains(&format!("c=IN IP4 {site}\r\n")), "{body}");
        assert!(body.contains("+\r\n\r\n\x01\x02\r\n--x--\r\n"), "{body}");
    }
    assert!(world.sites.iter().all(|s| s.gateway.calls().next().expect("a call").is_over));
}

#[test]
fn a_description_that_cannot_be_read_is_refused() {
    let mut world = two_sites();
    let two = "Content-Type: multipart/mixed;boundary=x\r\n";
    let part = "--x\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n";
    let body = format!("{part}{part}--x--\r\n");
    let compressed = "Content-Type: application/sdp\r\nContent-Encoding: gzip\r\n";
    for (n, (kind, body)) in [(1, (two, &*body)), (2, (compressed, "\x1f\x08"))] {
        let request = A.request(("INVITE", n, URI), "", &[], body);
        let request = request.replacen("Content-Type: application/sdp\r\n", kind, 1);
        world.send(A.at, A.gateway, &request);
        let refusal = text(&world.read(A.at, "415"));
        let says = "Accept: application/sdp\r\nAccept-Encoding: identity\r\n";
        assert!(refusal.contains(says), "{refusal}");
    }
    let site = &world.sites[0];
    let is_told =
        |event: &&Event| matches!(event, Event::Refused(_, _, DescriptionError::Unreadable));
    assert_eq!(site.events.iter().filter(is_told).count(), 2);
    assert_eq!((site.gateway.calls().count(), site.gateway.free_ports()), (0, 50));
}

#[test]
fn streams_that_would_share_a_port_have_one_each() {
    let mut world = two_sites();
    let offer = sdp("10.1.0.9:4000")
        .replace("t=0 0\r\n", "t=0 0\r\na=group:BUNDLE 1 2\r\na=group:LS 1 2\r\n")
        + "a=mid:1\r\nm=video 0 RTP/AVP 96\r\na=mid:2\r\na=bundle-only\r\n";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, URI), "", &[], &offer));
    let offer = body(&world.read(B.at, "INVITE"));
    assert!(offer.contains("a=group:LS 1 2\r\n") && !offer.contains("BUNDLE"), "{offer}");
    assert!(offer.contains("m=video 0 "), "not to be had without the other: {offer}");
}

/// Content that a phone may read as a description, although it is labelled otherwise or well
/// hidden.
#[test]
fn a_description_by_another_name_passes_no_gateway_unchanged() {
    let description = sdp("10.1.0.9:4000");
    let part = format!("Content-Type: application/sdp\r\n\r\n{description}\r\n");
    let inner = format!("--y\r\n{part}--y--\r\n");
    let many = "--x\r\n\r\nno\r\n".repeat(40);
    for (kind, body, code) in [
        ("", description.clone(), None),
        ("Content-Type: text/plain\r\n", description.clone(), None),
        ("Content-Type: \"application/sdp\"\r\n", description.clone(), None),
        ("Content-Type: application/sdp (x)\r\n", description.clone(), None),
        ("", format!("\r\n{description}"), None),
        ("c: multipart/mixed;boundary=x\r\n", format!("{many}--x\r\n{part}--x--"), Some("415")),
        (
            "c: multipart/mixed;boundary=x\r\n",
            format!("--x\r\nc: multipart/mixed;boundary=y\r\n\r\n{inner}--x--"),
            Some("415"),
        ),
        ("c: multipart/mixed;boundary=x\r\n", format!("--x\r\n{part}"), Some("415")),
        (
            "c: multipart/mixed;boundary=x\r\n",
            "--x\r\nc: multipart/alternative;boundary=y\r\n\r\n--y\r\n\
             c: application/sdp\r\nContent-Transfer-Encoding: base64\r\n\r\ndj0wDQo=\r\n--y--\r\n\
             --x--"
                .into(),
            Some("415"),
        ),
        ("c: application / sdp\r\nContent-Encoding: gzip\r\n", "\x1f".into(), Some("415")),
        ("", description.replace("a=x-kept:yes", "a=x\rc=IN IP4 203.0.113.66"), Some("400")),
        (
            "c: multipart/mixed;boundary=x\r\n",
            format!("--x\r\n{part}--x\r\nc: text/plain\r\n\r\n{description}--x--"),
            Some("415"),
        ),
    ] {
        let mut world = two_sites();
        let offer = A.request(("INVITE", 1, URI), "", &[], &body);
        let offer = offer.replacen("Content-Type: application/sdp\r\n", kind, 1);
        world.send(A.at, A.gateway, &offer);
        match code {
            Some(code) => drop(world.read(A.at, code)),
            None => {
                let invite = world.read(B.at, "INVITE");
                assert!(self::body(&invite).contains("c=IN IP4 10.2.0.1\r\n"), "{kind}");
            }
        }
        assert!(world.mail_of(B.at).is_empty(), "{kind}");
    }
}

#[test]
fn an_answer_that_is_not_understood_rejects_its_streams() {
    for answer in [
        "v=0\r\n x=1\r\nm=audio 5000 RTP/AVP 0\r\n",
        "v=0\r\nm=audio x RTP/AVP 0\r\n",
        "v=0\r\nm=audio 5000 RTP/AVP 0\r\n",
    ] {
        let mut world = two_sites();
        world.send(A.at, A.gateway, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
        let invite = world.read(B.at, "INVITE");
        world.send(B.at, B.gateway, &B.response(&invite, "200 OK", answer));
        let ok = world.read(A.at, "200");
        assert!(body(&ok).ends_with("m=audio 0 RTP/AVP 0\r\n"), "{answer}: {}", body(&ok));
        assert!(world.sites[1].events.iter().any(|e| matches!(e, Event::Refused(..))));
    }
}

#[test]
fn of_two_answers_in_one_message_none_passes() {
    let mut world = two_sites();
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.at, "INVITE");
    // The next gateway trusts this one and would accept this.
    let second = sdp("203.0.113.66:6666") + "a=x-trunkline:1 2 30000\r\n";
    let part = |body: &str| format!("--x\r\nContent-Type: application/sdp\r\n\r\n{body}\r\n");
    let both = format!("{}{}--x--\r\n", part(&sdp("10.2.0.9:5000")), part(&second));
    let answer = B.response(&invite, "200 OK", &both);
    let kind = "Content-Type: multipart/mixed;boundary=x\r\n";
    let answer = answer.replacen("Content-Type: application/sdp\r\n", kind, 1);
    world.send(B.at, B.gateway, &answer);
    assert_eq!(body(&world.read(A.at, "200")), "");
    // The first gateway was not told of a virtual port for the media.
    assert!(!world.sites[0].gateway.calls().next().expect("a call").is_over);
}

#[test]
fn other_places_for_a_stream_are_taken_out() {
    let mut world = two_sites();
    let alternatives = "a=altc:1 IP4 10.1.0.9 4000\r\na=ccap:1 IN IP4 10.1.0.9\r\n\
        a=acap:1 candidate:1 1 UDP 1 10.1.0.9 4000 typ host\r\n";
    let kept = "a=acap:2 crypto:1 AES_CM_128_HMAC_SHA1_80 inline:x\r\n";
    let offer = sdp("10.1.0.9:4000") + alternatives + kept;
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, URI), "", &[], &offer));
    let offer = body(&world.read(B.at, "INVITE"));
    assert!(!offer.contains("10.1.0.9 4000") && !offer.contains("ccap"), "{offer}");
    assert!(offer.contains(kept), "{offer}");
}

/// An answer with more streams than a call has, and descriptions that are mostly blank lines.
#[test]
fn an_odd_answer_keeps_what_can_be_relayed() {
    let stream = "m=audio 5000 RTP/AVP 0\r\n".repeat(64);
    for odd in [
        format!("v=0\r\nc=IN IP4 10.2.0.9\r\n{stream}"),
        sdp("10.2.0.9:5000").replacen("\r\n", &"\r\n".repeat(1_900), 1),
        format!("{}\0", sdp("10.2.0.9:5000")),
        sdp("10.2.0.9:5000").replace("v=0\r\n", "v=0 \r\nthis line has no equals sign\r\n"),
    ] {
        let mut world = two_sites();
        world.send(A.at, A.gateway, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
        let invite = world.read(B.at, "INVITE");
        world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &odd));
        let ok = world.read(A.at, "200");
        let why = world.sites.iter().flat_map(|site| &site.events).collect::<Vec<_>>();
        assert!(body(&ok).contains("c=IN IP4 10.1.0.1"), "{why:?} {}", &odd[..60]);
        let live = body(&ok).matches("m=audio ").count() - body(&ok).matches("m=audio 0 ").count();
        assert!((1..=8).contains(&live), "{live}");
    }
    // Too long to be read: its stream is rejected, and the answer is still one.
    let mut world = two_sites();
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.at, "INVITE");
    let blank = sdp("10.2.0.9:5000").replacen("\r\n", &"\r\n".repeat(30_000), 1);
    world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &blank));
    assert!(body(&world.read(A.at, "200")).contains("m=audio 0 "));
}
