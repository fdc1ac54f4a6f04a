//! Descriptions that aren't the whole body of a message, or can't be read.

mod common;

use common::*;
use trunkline_gateway::{Event, Unpassable};

const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: "10.1.0.1:5060" };
const B: Agent = Agent { at: "10.2.0.9:5060", tag: "b", gateway: "10.2.0.1:5060" };
const URI: &str = "sip:b@10.2.0.9";

/// The message with its body among others.
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
    let is_told = |event: &&Event| matches!(event, Event::Refused(_, Unpassable::Unreadable));
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
