//! Calls through gateways, from INVITE to BYE.

use crate::common::*;
use trunkline_gateway::{CallOutcome, Event, Found, Remote};
use trunkline_overlay::wire::NodeId;
use trunkline_sip::Name;

const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: "10.1.0.1:5060" };
const B: Agent = Agent { at: "10.2.0.9:5060", tag: "b", gateway: "10.2.0.1:5060" };

/// A calls B, who answers. Returns the routes of A and of B for later requests.
fn call(world: &mut World) -> (Vec<String>, Vec<String>) {
    let uri = "sip:b@10.2.0.9";
    let invite = A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000"));
    world.send(A.at, A.gateway, &invite);
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, B.gateway, &B.response(&invite, "180 Ringing", ""));
    world.read(A.at, "180");
    world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    let ok = world.read(A.at, "200");
    let (there, mut back) = (routes(&invite), routes(&ok));
    back.reverse();
    world.send(A.at, A.gateway, &A.request(("ACK", 1, uri), "b", &back, ""));
    world.read(B.at, "ACK");
    (back, there)
}

#[test]
fn media_of_a_call_cross_the_overlay_between_its_gateways() {
    let mut world = two_sites();
    let uri = "sip:b@10.2.0.9";
    let offer = sdp("10.1.0.9:4000");
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &offer));
    assert_eq!(world.mail_of(A.at), ["100"]);
    let invite = world.read(B.at, "INVITE");
    let (near_b, told) = wanted(&invite);
    assert_eq!((near_b.ip().to_string(), told), ("10.2.0.1".into(), None));
    assert!(body(&invite).contains("a=x-kept:yes\r\n"));
    assert_eq!(invite.list(Name::Via).count(), 3);
    assert_eq!(routes(&invite).len(), 2);

    world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    let ok = world.read(A.at, "200");
    let (near_a, told) = wanted(&ok);
    assert_eq!((near_a.ip().to_string(), told), ("10.1.0.1".into(), None));
    let mut back = routes(&ok);
    back.reverse();
    world.send(A.at, A.gateway, &A.request(("ACK", 1, uri), "b", &back, ""));
    let ack = world.read(B.at, "ACK");
    assert_eq!(ack.list(Name::Route).count(), 0);

    // From A's phone to the overlay, and from the overlay to B's phone.
    let [a, b] = [&world.sites[0], &world.sites[1]];
    let view = a.gateway.calls().next().unwrap();
    assert!(view.is_over && view.answered.is_some() && view.ports[0][0] == near_a.port());
    let far = view.ports[0][1];
    let Remote::Overlay { node: NodeId(2), port } = a.board.sends(far) else { panic!() };
    let Remote::Overlay { node: NodeId(1), port: back_at } = b.board.sends(port) else { panic!() };
    assert_eq!(back_at, far);
    assert_eq!(b.board.joined[&port].as_ref().unwrap().onto, near_b.port());
    for (site, port, phone) in
        [(a, near_a.port(), "10.1.0.9:4000"), (b, near_b.port(), "10.2.0.9:5000")]
    {
        let Remote::Udp { rtp: Some(rtp), rtcp: Some(rtcp), from } = site.board.sends(port) else {
            panic!()
        };
        assert_eq!((rtp, rtcp.port()), (at(phone), rtp.port() + 1));
        assert_eq!(from, [Some(rtp.ip()), None]);
    }

    // B hangs up the call.
    let there = routes(&invite);
    world.send(B.at, B.gateway, &B.request(("BYE", 1, "sip:a@10.1.0.9"), "a", &there, ""));
    let bye = world.read(A.at, "BYE");
    assert_eq!(world.sites[0].gateway.calls().count(), 1);
    world.send(A.at, A.gateway, &A.response(&bye, "200 OK", ""));
    world.read(B.at, "200");
    for site in &world.sites {
        assert_eq!((site.gateway.calls().count(), site.board.joined.len()), (0, 0));
        assert_eq!(site.gateway.free_ports(), 50);
        assert!(
            matches!(&site.events[..], [Event::Ended(call, CallOutcome::CalleeHungUp)] if call.answered.is_some() && call.is_over)
        );
    }
}

#[test]
fn without_trust_media_are_plain_and_nobody_is_told() {
    let mut world = two_sites();
    // B's site has no gateway that supports virtual ports.
    world.sites.pop();
    let uri = "sip:b@10.2.0.9";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.gateway, "INVITE");
    let (place, told) = wanted(&invite);
    assert_eq!(told, Some(format!("1 1 {}", place.port())));
    world.send(B.gateway, A.gateway, &B.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    world.read(A.at, "200");
    let site = &world.sites[0];
    assert!(
        matches!(site.board.sends(place.port()), Remote::Udp { rtp: Some(to), .. } if to == at("10.2.0.9:5000"))
    );
    assert!(!site.board.joined[&place.port()].as_ref().unwrap().told);
    assert!(matches!(site.events[..], [Event::Plain(_)]));
}

#[test]
fn virtual_ports_are_believed_of_those_who_are_trusted_and_of_nodes_that_are_known() {
    for (from, node, over) in [
        (B.gateway, 2, true),
        (B.gateway, 3, false),
        (B.gateway, 1, false),
        ("10.3.0.1:5060", 2, false),
    ] {
        let mut world = two_sites();
        world.sites.pop();
        let told = |node| format!("{}a=x-trunkline:1 {node} 7000\r\n", sdp("10.2.0.9:5000"));
        let agent = Agent { at: from, tag: "x", gateway: A.gateway };
        let invite = agent.request(("INVITE", 1, "sip:a@10.1.0.9"), "", &[], &told(node));
        world.send(from, A.gateway, &invite);
        let invite = world.read(A.at, "INVITE");
        assert!(!text(&invite).contains("x-trunkline"), "{}", text(&invite));
        let far = world.sites[0].gateway.calls().next().unwrap().ports[0][0];
        let is_over = matches!(world.sites[0].board.sends(far), Remote::Overlay { .. });
        assert_eq!(is_over, over, "{from} {node}");
        world.send(A.at, A.gateway, &A.response(&invite, "200 OK", &sdp("10.1.0.9:4000")));
        let ok = world.read(from, "200");
        assert_eq!(wanted(&ok).1.is_some(), over, "who isn't believed is told nothing in return");
    }
}

#[test]
fn both_gateways_take_the_same_way_though_only_one_sees_it() {
    // While a link fails or returns, one end of it notices before the other.
    let is_over = |world: &World| {
        [0, 1].map(|n| {
            let site = &world.sites[n];
            let [near_a, near_b] = site.gateway.calls().next().unwrap().ports[0];
            matches!(site.board.sends([near_b, near_a][n]), Remote::Overlay { .. })
        })
    };
    for blind in [0, 1] {
        let mut world = two_sites();
        let all = std::mem::take(&mut world.sites[blind].board.nodes);
        let (back, there) = call(&mut world);
        // The answering side decides.
        assert_eq!(is_over(&world), [blind == 0; 2], "site {blind} is blind");

        // The same holds for the next offer, from either end, and for retransmissions.
        world.sites[blind].board.nodes = all.clone();
        world.sites[1 - blind].board.nodes.clear();
        let again = A.request(("INVITE", 2, "sip:b@10.2.0.9"), "b", &back, &sdp("10.1.0.9:4000"));
        world.send(A.at, A.gateway, &again);
        let again = world.read(B.at, "INVITE");
        for _ in 0..2 {
            world.send(B.at, B.gateway, &B.response(&again, "200 OK", &sdp("10.2.0.9:5000")));
            world.read(A.at, "200");
            assert_eq!(is_over(&world), [blind == 1; 2], "site {blind} was blind");
        }
        world.send(A.at, A.gateway, &A.request(("ACK", 2, "sip:b@10.2.0.9"), "b", &back, ""));
        let mut again_by_b = |number, offer: &str, answer: &str| {
            let uri = "sip:a@10.1.0.9";
            let again = B.request(("INVITE", number, uri), "a", &there, offer);
            world.send(B.at, B.gateway, &again);
            let again = world.read(A.at, "INVITE");
            world.send(A.at, A.gateway, &A.response(&again, "200 OK", &sdp("10.1.0.9:4000")));
            world.read(B.at, "200");
            let ack = B.request(("ACK", number, uri), "a", &there, answer);
            world.send(B.at, B.gateway, &ack);
            is_over(&world)
        };
        assert_eq!(again_by_b(7, &sdp("10.2.0.9:5000"), ""), [blind == 0; 2], "A's site decides");
        // The 2xx carries the offer, and the ACK the answer.
        assert_eq!(again_by_b(8, "", &sdp("10.2.0.9:5000")), [blind == 1; 2], "B's site decides");
    }
}

#[test]
fn a_call_that_is_refused_or_given_up_leaves_nothing() {
    for refuses in [true, false] {
        let mut world = two_sites();
        let uri = "sip:b@10.2.0.9";
        let invite = A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000"));
        world.send(A.at, A.gateway, &invite);
        let there = world.read(B.at, "INVITE");
        world.send(B.at, B.gateway, &B.response(&there, "180 Ringing", ""));
        world.read(A.at, "180");
        if refuses {
            world.send(B.at, B.gateway, &B.response(&there, "486 Busy Here", ""));
            world.read(A.at, "486");
        } else {
            let cancel =
                invite.split("\r\n\r\n").next().unwrap().replace("INVITE sip", "CANCEL sip");
            let cancel = cancel.replace("CSeq: 1 INVITE", "CSeq: 1 CANCEL");
            let kept = |line: &&str| !line.starts_with("Content");
            let cancel: Vec<_> = cancel.split("\r\n").filter(kept).collect();
            world.send(A.at, A.gateway, &format!("{}\r\n\r\n", cancel.join("\r\n")));
            world.read(A.at, "200");
            let cancel = world.read(B.at, "CANCEL");
            world.send(B.at, B.gateway, &B.response(&cancel, "200 OK", ""));
            world.send(B.at, B.gateway, &B.response(&there, "487 Request Terminated", ""));
            world.read(A.at, "487");
        }
        world.read(B.at, "ACK");
        for site in &world.sites {
            assert_eq!((site.gateway.calls().count(), site.gateway.free_ports()), (0, 50));
            let [Event::Ended(call, outcome)] = &site.events[..] else {
                panic!("{:?}", site.events)
            };
            assert!(call.answered.is_none() && call.from == "sip:a@h");
            assert_eq!(*outcome, CallOutcome::Refused(if refuses { 486 } else { 487 }));
        }
    }
}

#[test]
fn who_does_not_answer_is_given_up() {
    let mut world = two_sites();
    let invite = A.request(("INVITE", 1, "sip:b@10.2.0.9"), "", &[], &sdp("10.1.0.9:4000"));
    world.send(A.at, A.gateway, &invite);
    world.wait(33_000);
    world.read(A.at, "408");
    for site in &world.sites {
        assert_eq!(site.gateway.calls().count(), 0);
    }
    // The phone rings for three minutes, and then the INVITE is cancelled.
    let invite = invite.replace("z9hG4bKa1INVITE", "z9hG4bKother").replace("CSeq: 1", "CSeq: 2");
    world.send(A.at, A.gateway, &invite);
    let rings = world.read(B.at, "INVITE");
    world.send(B.at, B.gateway, &B.response(&rings, "180 Ringing", ""));
    world.wait(200_000);
    world.send(B.at, B.gateway, &B.response(&rings, "487 Request Terminated", ""));
    world.wait(40_000);
    for site in &world.sites {
        // One site gave up, and its refusal reached the other.
        let last = site.events.last();
        let is = |why| matches!(last, Some(Event::Ended(_, outcome)) if *outcome == why);
        assert!(is(CallOutcome::Unanswered) || is(CallOutcome::Refused(408)), "{last:?}");
        assert_eq!(site.gateway.calls().count(), 0);
    }
    // Ten minutes of silence end the call; this test has no media.
    world.wait(40_000);
    world.mail.clear();
    call(&mut world);
    world.wait(599_000);
    assert_eq!(world.sites[0].gateway.calls().count(), 1);
    world.wait(3_000);
    for site in &world.sites {
        assert_eq!((site.gateway.calls().count(), site.gateway.stats().idle), (0, 1));
        assert_eq!(site.gateway.free_ports(), 50);
    }
}

#[test]
fn a_new_offer_holds_once_it_is_accepted() {
    let mut world = two_sites();
    let (back, _) = call(&mut world);
    let near = world.sites[0].gateway.calls().next().unwrap().ports[0][0];
    let goes_to = |world: &World| match world.sites[0].board.sends(near) {
        Remote::Udp { rtp, .. } => rtp.map(|rtp| rtp.to_string()),
        _ => panic!(),
    };
    let uri = "sip:b@10.2.0.9";
    for (number, place, said, goes) in [
        (2, "10.1.0.9:4100", "488 Not Acceptable Here", Some("10.1.0.9:4000")),
        (3, "10.1.0.9:4200", "200 OK", Some("10.1.0.9:4200")),
        // On hold, in the style before RFC 3264.
        (4, "0.0.0.0:4200", "200 OK", None),
        (5, "10.1.0.9:4200", "200 OK", Some("10.1.0.9:4200")),
    ] {
        let before = goes_to(&world);
        world.send(A.at, A.gateway, &A.request(("INVITE", number, uri), "b", &back, &sdp(place)));
        let invite = world.read(B.at, "INVITE");
        assert_eq!(body(&invite).contains("c=IN IP4 0.0.0.0"), place.starts_with("0."));
        assert_eq!(goes_to(&world), before, "{number}");
        let answer = if said == "200 OK" { sdp("10.2.0.9:5000") } else { String::new() };
        world.send(B.at, B.gateway, &B.response(&invite, said, &answer));
        world.read(A.at, &said[..3]);
        assert_eq!(goes_to(&world), goes.map(String::from), "{number}");
        world.send(A.at, A.gateway, &A.request(("ACK", number, uri), "b", &back, ""));
    }
    assert_eq!(world.sites[0].gateway.free_ports(), 48);
}

#[test]
fn an_offer_may_come_with_the_answer_and_the_answer_with_the_ack() {
    let mut world = two_sites();
    let uri = "sip:b@10.2.0.9";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], ""));
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    let ok = world.read(A.at, "200");
    assert_eq!(wanted(&ok).0.ip().to_string(), "10.1.0.1");
    let mut back = routes(&ok);
    back.reverse();
    world.send(A.at, A.gateway, &A.request(("ACK", 1, uri), "b", &back, &sdp("10.1.0.9:4000")));
    let ack = world.read(B.at, "ACK");
    assert_eq!(wanted(&ack).0.ip().to_string(), "10.2.0.1");
    for site in &world.sites {
        let call = site.gateway.calls().next().unwrap();
        assert!(call.is_over, "{call:?}");
    }
}

#[test]
fn a_stream_that_is_refused_gives_its_ports_back() {
    let mut world = two_sites();
    let uri = "sip:b@10.2.0.9";
    let two = format!("{}m=video 4002 RTP/AVP 96\r\n", sdp("10.1.0.9:4000"));
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &two));
    assert_eq!(world.sites[0].gateway.free_ports(), 46);
    let invite = world.read(B.at, "INVITE");
    let one = format!("{}m=video 0 RTP/AVP 96\r\n", sdp("10.2.0.9:5000"));
    world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &one));
    let ok = world.read(A.at, "200");
    assert!(body(&ok).contains("m=video 0 RTP/AVP 96\r\n"));
    assert_eq!(world.sites[0].gateway.free_ports(), 48);
    assert_eq!(world.sites[1].gateway.free_ports(), 48);
}

#[test]
fn the_first_to_answer_of_several_has_the_media() {
    let mut world = two_sites();
    world.sites.pop();
    let uri = "sip:b@10.2.0.9";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.gateway, "INVITE");
    let other = Agent { tag: "c", ..B };
    let far = wanted(&invite).0.port();
    let goes_to = |world: &World| match world.sites[0].board.sends(far) {
        Remote::Udp { rtp: Some(rtp), .. } => rtp.port(),
        other => panic!("{other:?}"),
    };
    for (agent, said, port, goes) in [
        (&B, "183 Session Progress", "10.2.0.9:5000", 5_000),
        (&other, "183 Session Progress", "10.2.0.9:6000", 6_000),
        (&B, "200 OK", "10.2.0.9:5000", 5_000),
        (&other, "200 OK", "10.2.0.9:6000", 5_000),
    ] {
        world.send(B.gateway, A.gateway, &agent.response(&invite, said, &sdp(port)));
        let got = world.read(A.at, &said[..3]);
        assert_eq!(wanted(&got).0.ip().to_string(), "10.1.0.1");
        assert_eq!(goes_to(&world), goes, "{said}");
    }
    // A ends the dialog with the other phone; the call with B continues.
    let mut back = routes(&invite);
    back.reverse();
    let bye = A.request(("BYE", 2, uri), "c", &back, "");
    world.send(A.at, A.gateway, &bye);
    let bye = world.read(B.gateway, "BYE");
    world.send(B.gateway, A.gateway, &other.response(&bye, "200 OK", ""));
    world.read(A.at, "200");
    assert_eq!(world.sites[0].gateway.calls().count(), 1);
    world.send(A.at, A.gateway, &A.request(("BYE", 3, uri), "b", &back, ""));
    let bye = world.read(B.gateway, "BYE");
    world.send(B.gateway, A.gateway, &B.response(&bye, "200 OK", ""));
    assert_eq!(world.sites[0].gateway.calls().count(), 0);
}

#[test]
fn phones_that_register_through_a_gateway_are_called_by_their_flow() {
    let mut world = two_sites();
    world.sites.truncate(1);
    // Behind a NAT: the phone gives an address that can't be reached.
    let register = A.request(("REGISTER", 1, "sip:10.3.0.5"), "", &[], "");
    let register = register.replace("10.1.0.9", "192.168.1.9");
    world.send("10.1.0.77:40000", A.gateway, &register);
    let register = world.read("10.3.0.5:5060", "REGISTER");
    let path = String::from_utf8_lossy(register.first(Name::Path).unwrap()).into_owned();
    assert!(register.list(Name::Supported).any(|option| option == b"path"));
    assert!(path.contains("@10.1.0.1:5060;transport=udp;lr"), "{path}");
    world.send("10.3.0.5:5060", A.gateway, &B.response(&register, "200 OK", ""));
    assert_eq!(world.mail_of("10.1.0.77:40000"), ["200"]);

    // The registrar calls the phone, and later requests in the dialog reach it the same way.
    let registrar = Agent { at: "10.3.0.5:5060", tag: "r", gateway: A.gateway };
    let uri = "sip:a@192.168.1.9";
    let invite = registrar.request(("INVITE", 1, uri), "", &[path], &sdp("10.3.0.6:5000"));
    world.send(registrar.at, A.gateway, &invite);
    let invite = world.read("10.1.0.77:40000", "INVITE");
    assert_eq!(invite.list(Name::Route).count(), 0);
    let phone = Agent { at: "192.168.1.9:5060", ..A };
    let ok = phone.response(&invite, "200 OK", &sdp("192.168.1.9:4000"));
    world.send("10.1.0.77:40000", A.gateway, &ok);
    let ok = world.read(registrar.at, "200");
    let near = world.sites[0].gateway.calls().next().unwrap().ports[0][1];
    let Remote::Udp { from, .. } = world.sites[0].board.sends(near) else { panic!() };
    // Its media may come from the NAT's address.
    assert_eq!(from[1].map(|ip| ip.to_string()), Some("10.1.0.77".into()));
    let mut back = routes(&ok);
    back.reverse();
    let bye = registrar.request(("BYE", 2, uri), "a", &back, "");
    world.send(registrar.at, A.gateway, &bye);
    world.read("10.1.0.77:40000", "BYE");
    // A forged token is ignored: the request goes to the address in its URI.
    let made_up = "<sip:00@10.1.0.1:5060;lr>".to_owned();
    let options = registrar.request(("OPTIONS", 9, "sip:a@10.9.9.9"), "", &[made_up], "");
    world.send(registrar.at, A.gateway, &options);
    world.read("10.9.9.9:5060", "OPTIONS");
}

#[test]
fn who_may_not_call_is_not_heard() {
    let mut world = two_sites();
    let invite = A.request(("INVITE", 1, "sip:b@10.2.0.9"), "", &[], &sdp("10.1.0.9:4000"));
    world.send("192.0.2.7:5060", A.gateway, &invite);
    assert!(world.mail.is_empty());
    assert_eq!(world.sites[0].gateway.stats().forbidden, 1);
}

#[test]
fn where_ports_or_calls_run_out_callers_are_told() {
    let mut world = two_sites();
    for n in 0..25 {
        // A single sender may not have so many ringing calls.
        call_from(&mut world, &A, &format!("10.1.3.{n}:5060"), &format!("n{n}"), "10.1.0.9:4000");
    }
    assert_eq!(world.sites[0].gateway.free_ports(), 0);
    world.mail.clear();
    call_from(&mut world, &A, A.at, "more", "10.1.0.9:4000");
    assert_eq!(world.mail_of(A.at), ["100", "503"]);
    assert_eq!(world.sites[0].gateway.calls().count(), 25);
    // A call without streams needs no ports.
    world.mail.clear();
    let invite = A.request(("INVITE", 1, "sip:b@10.2.0.9"), "", &[], "");
    world.send(A.at, A.gateway, &invite);
    assert_eq!(world.mail_of(B.at), ["INVITE"]);
    world.wait(40_000);
    for site in &world.sites {
        assert_eq!((site.gateway.free_ports(), site.gateway.calls().count()), (50, 0));
    }
}

#[test]
fn descriptions_that_cannot_be_relayed_are_refused_with_a_reason() {
    for (place, said) in
        [("224.0.0.1:4000", "488"), ("10.1.0.9:53", "488"), ("127.0.0.1:4000", "488")]
    {
        let mut world = two_sites();
        call_from(&mut world, &A, A.at, "x", place);
        let refusal = world.read(A.at, said);
        assert!(refusal.first(Name::Warning).is_some(), "{}", text(&refusal));
        assert_eq!((world.mail_of(B.at).len(), world.sites[0].gateway.free_ports()), (0, 50));
    }
    let mut world = two_sites();
    let invite = A.request(("INVITE", 1, "sip:b@10.2.0.9"), "", &[], "v=0\r\nm=audio\r\n");
    world.send(A.at, A.gateway, &invite);
    world.read(A.at, "400");
    assert_eq!(world.sites[0].gateway.calls().count(), 0);
    // Its own address is not a destination, either.
    let mut world = two_sites();
    world.sites.truncate(1);
    world.send(A.at, A.gateway, &A.request(("OPTIONS", 1, "sip:10.1.0.1"), "", &[], ""));
    world.read(A.at, "200");
    world.send(A.at, A.gateway, &A.request(("MESSAGE", 2, "sip:b@10.1.0.1"), "", &[], ""));
    world.read(A.at, "404");
    world.send(A.at, A.gateway, &A.request(("MESSAGE", 3, "sip:b@h.example"), "", &[], ""));
    assert!(matches!(&world.sites[0].events[..], [Event::LookUp(name)] if name == "h.example"));
    let site = &mut world.sites[0];
    site.gateway.named(world.now, "h.example", Found::Nothing, &mut site.board);
    world.run();
    world.read(A.at, "478");
}

#[test]
fn one_end_encrypts_and_the_other_does_not() {
    let mut world = two_sites();
    let uri = "sip:b@10.2.0.9";
    let secret = sdp("10.1.0.9:4000").replace("RTP/AVP", "RTP/SAVP")
        + "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:x\r\n";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &secret));
    let invite = world.read(B.at, "INVITE");
    assert!(body(&invite).contains("RTP/SAVP 0\r\n") && body(&invite).contains("a=crypto:1 AES"));
    world.send(B.at, B.gateway, &B.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    let ok = world.read(A.at, "200");
    assert!(!body(&ok).contains("m=audio 3"), "{}", body(&ok));
    assert!(world.sites[1].events.iter().any(|event| matches!(event, Event::Refused(..))));
}

#[test]
fn a_gateway_has_the_names_that_phones_call_it_by() {
    let mut world = two_sites();
    let uri = "sip:b@10.2.0.9";
    for (n, host, goes) in
        [(1, "GW.example", true), (2, "gw.example:5060", true), (3, "gw.example:5070", false)]
    {
        let route = vec![format!("<sip:{host};lr>")];
        world.send(A.at, A.gateway, &A.request(("OPTIONS", n, uri), "", &route, ""));
        assert_eq!(world.mail_of(B.at).contains(&"OPTIONS".to_owned()), goes, "{host}");
        world.mail.clear();
    }
    world.send(A.at, A.gateway, &A.request(("OPTIONS", 4, "sip:gw.example"), "", &[], ""));
    world.read(A.at, "200");
}

#[test]
fn a_phone_that_speaks_from_elsewhere_is_spoken_to_there() {
    let mut world = two_sites();
    let (back, there) = call(&mut world);
    // The phone's NAT has assigned another port.
    let moved = "10.1.0.9:7777";
    let update = A.request(("UPDATE", 7, "sip:b@10.2.0.9"), "b", &back, "");
    world.send(moved, A.gateway, &update);
    let update = world.read(B.at, "UPDATE");
    world.send(B.at, B.gateway, &B.response(&update, "200 OK", ""));
    world.read(moved, "200");
    world.send(B.at, B.gateway, &B.request(("BYE", 1, "sip:a@10.1.0.9"), "a", &there, ""));
    world.read(moved, "BYE");
}
