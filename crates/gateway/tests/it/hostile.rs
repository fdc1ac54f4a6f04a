//! Harm that phones could do to each other's calls, by malice or outdated software, and that
//! gateways prevent.

use crate::common;
use crate::common::*;
use std::net::SocketAddr;
use trunkline_gateway::{Config, Event, Found, Remote, is_media};
use trunkline_sip::Message;
use trunkline_sip::transaction::Hop;

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const C: Agent = Agent { at: "10.1.0.20:5060", tag: "c", gateway: G };

fn world() -> World {
    World::new(vec![config(1, G)])
}

fn call(world: &mut World) -> (Vec<String>, Vec<String>, Message) {
    let uri = "sip:b@10.1.0.20";
    world.send(A.at, G, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let ok = world.read(A.at, "200");
    let (there, mut back) = (routes(&invite), routes(&ok));
    back.reverse();
    world.send(A.at, G, &A.request(("ACK", 1, uri), "b", &back, ""));
    world.read(B.at, "ACK");
    (back, there, invite)
}
/// Addresses that RTP goes to on each side of the first call's first stream.
fn goes_to(w: &World) -> [Option<SocketAddr>; 2] {
    let site = &w.sites[0];
    let ports = site.gateway.calls().next().expect("a call").ports[0];
    ports.map(|port| match site.board.sends(port) {
        Remote::Udp { rtp, .. } => rtp,
        other => panic!("{other:?}"),
    })
}

/// A offers another address to B, who hasn't answered.
fn offer(w: &mut World, back: &[String]) -> Message {
    let invite = ("INVITE", 2, "sip:b@10.1.0.20");
    w.send(A.at, G, &A.request(invite, "b", back, &sdp("10.1.0.9:4444")));
    w.read(B.at, "INVITE")
}

#[test]
fn an_invite_cannot_name_a_call() {
    let mut w = world();
    let route = vec![format!("<sip:{G};lr;tl=0000000000000001>")];
    let media: String =
        (0..16).map(|n| format!("m=audio {} RTP/AVP 0\r\n", 4000 + 2 * n)).collect();
    let body =
        format!("v=0\r\no=- 1 1 IN IP4 10.1.0.9\r\ns=-\r\nc=IN IP4 10.1.0.9\r\nt=0 0\r\n{media}");
    for n in 1..=2 {
        w.send(A.at, G, &A.request(("INVITE", n, "sip:b@10.1.0.20"), "", &route, &body));
        let invite = w.read(B.at, "INVITE");
        w.send(B.at, G, &B.response(&invite, "486 Busy", ""));
    }
    // The same with both requests pending at once.
    let mut w = world();
    let mut invites = vec![];
    for n in 1..=2 {
        w.send(A.at, G, &A.request(("INVITE", n, "sip:b@10.1.0.20"), "", &route, &body));
        invites.push(w.read(B.at, "INVITE"));
    }
    for i in &invites {
        w.send(B.at, G, &B.response(i, "486 Busy", ""));
    }
    w.wait(3_600_000);
    assert_eq!(w.sites[0].gateway.free_ports(), 50);
}

#[test]
fn the_bye_of_one_that_answered_too_late_ends_nothing() {
    let mut w = world();
    let (_, there, _) = call(&mut w);
    // C answered too late, or never, and hangs up.
    w.send(C.at, G, &C.request(("BYE", 1, "sip:a@10.1.0.9"), "a", &there, ""));
    let bye = w.read(A.at, "BYE");
    w.send(A.at, G, &A.response(&bye, "481 No", ""));
    assert_eq!(w.sites[0].gateway.calls().count(), 1);
}

#[test]
fn a_stray_ack_moves_no_media() {
    let mut w = world();
    let (_, there, _) = call(&mut w);
    let evil = Agent { at: "10.1.0.66:5060", tag: "evil", gateway: G };
    w.send(
        evil.at,
        G,
        &evil.request(("ACK", 7, "sip:a@10.1.0.9"), "nonsense", &there, &sdp("10.1.0.66:6666")),
    );
    assert_eq!(goes_to(&w)[1], Some(at("10.1.0.20:5000")));
}

#[test]
fn a_request_that_is_refused_takes_no_others_offer_back() {
    let mut w = world();
    let (back, there, _) = call(&mut w);
    let re = offer(&mut w, &back);
    w.send(B.at, G, &B.request(("INFO", 1, "sip:a@10.1.0.9"), "a", &there, ""));
    let info = w.read(A.at, "INFO");
    w.send(A.at, G, &A.response(&info, "415 No", ""));
    w.send(B.at, G, &B.response(&re, "200 OK", &sdp("10.1.0.20:5000")));
    assert_eq!(goes_to(&w)[0], Some(at("10.1.0.9:4444")));
}

#[test]
fn a_request_that_is_agreed_to_settles_no_others_offer() {
    let mut w = world();
    let (back, there, _) = call(&mut w);
    let re = offer(&mut w, &back);
    w.send(B.at, G, &B.request(("UPDATE", 1, "sip:a@10.1.0.9"), "a", &there, ""));
    let up = w.read(A.at, "UPDATE");
    w.send(A.at, G, &A.response(&up, "200 OK", ""));
    w.send(B.at, G, &B.response(&re, "488 No", ""));
    assert_eq!(goes_to(&w)[0], Some(at("10.1.0.9:4000")));
}

#[test]
fn capabilities_are_no_answer() {
    let mut w = world();
    let (back, ..) = call(&mut w);
    w.send(A.at, G, &A.request(("OPTIONS", 2, "sip:b@10.1.0.20"), "b", &back, ""));
    let o = w.read(B.at, "OPTIONS");
    let caps = sdp("10.1.0.20:5000").replace("m=audio 5000", "m=audio 0");
    w.send(B.at, G, &B.response(&o, "200 OK", &caps));
    assert_eq!(w.sites[0].board.joined.len(), 2);
}

#[test]
fn capabilities_with_a_refusal_are_none() {
    let mut w = world();
    let (back, ..) = call(&mut w);
    let o = offer(&mut w, &back);
    let caps = sdp("10.1.0.20:5000").replace("m=audio 5000", "m=audio 0");
    w.send(B.at, G, &B.response(&o, "488 No", &caps));
    assert_eq!(w.sites[0].board.joined.len(), 2);
}

#[test]
fn an_ack_to_a_name_comes_through_when_it_is_repeated() {
    let mut w = world();
    let uri = "sip:b@10.1.0.20";
    w.send(A.at, G, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = w.read(B.at, "INVITE");
    w.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let ok = w.read(A.at, "200");
    let mut back = routes(&ok);
    back.reverse();
    let ack = A.request(("ACK", 1, "sip:b@pbx.example"), "b", &back, "");
    w.send(A.at, G, &ack);
    assert!(w.mail_of(B.at).is_empty());
    assert!(w.sites[0].events.contains(&Event::LookUp("pbx.example".into())));
    named(&mut w, "pbx.example", "10.1.0.20");
    w.send(A.at, G, &ack);
    w.read(B.at, "ACK");
}

/// Delivers the name service's answer.
fn named(w: &mut World, name: &str, address: &str) {
    let site = &mut w.sites[0];
    let ip = address.parse().expect("an address");
    let found = Found::Address(ip, std::time::Duration::from_secs(60));
    site.gateway.named(w.now, name, found, &mut site.board);
    w.run();
}

#[test]
fn what_only_gateways_say_goes_from_a_message_of_no_call() {
    let mut w = two_sites();
    let far = Agent { at: "10.2.0.9:5060", tag: "b", gateway: "10.2.0.1:5060" };
    let uri = "sip:b@10.2.0.9";
    w.send(A.at, G, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = w.read(far.at, "INVITE");
    w.send(far.at, far.gateway, &far.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    let ok = w.read(A.at, "200");
    let mut back = routes(&ok);
    back.reverse();
    let evil = format!("{}a=x-trunkline:1 1 7777\r\n", sdp("10.1.0.9:4000"));
    // With only the other gateway's route, and a To tag that this gateway has in no call.
    let ack = A.request(("ACK", 1, uri), "zzz", &back[1..], &evil);
    w.send(A.at, G, &ack);
    let s = &w.sites[1];
    let ports = s.gateway.calls().next().unwrap().ports[0];
    assert!(!matches!(s.board.sends(ports[0]), Remote::Overlay { port: 7777, .. }));
}

#[test]
fn offers_that_wait_cannot_close_a_loop() {
    let mut w = world();
    // Two calls of one attacker, with different Call-IDs: one between x and y, two between u and v.
    fn as_call(text: String, id: &str) -> String {
        text.replace("Call-ID: call", &format!("Call-ID: {id}"))
    }
    let mut ends = vec![];
    for (id, a, b) in [("one", "x", "y"), ("two", "u", "v")] {
        let caller = Agent { at: A.at, tag: a, gateway: G };
        let callee = Agent { at: B.at, tag: b, gateway: G };
        w.send(
            A.at,
            G,
            &as_call(
                caller.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &sdp("10.1.0.9:4000")),
                id,
            ),
        );
        let invite = w.read(B.at, "INVITE");
        w.send(B.at, G, &as_call(callee.response(&invite, "200 OK", &sdp("10.1.0.20:5000")), id));
        let ok = w.read(A.at, "200");
        let mut back = routes(&ok);
        back.reverse();
        ends.push((id, caller, callee, back));
    }
    let view = |w: &World, name: &str| {
        w.sites[0].gateway.calls().find(|c| c.name == name).unwrap().ports[0]
    };
    let (one, two) = (view(&w, "one"), view(&w, "two"));
    let here = |p: u16| sdp(&format!("10.1.0.1:{p}"));
    // u offers call one's caller port; the offer stays pending.
    let (id, u, _, back2) = &ends[1];
    w.send(
        A.at,
        G,
        &as_call(u.request(("INVITE", 2, "sip:b@10.1.0.20"), "v", back2, &here(one[0])), id),
    );
    let re2 = w.read(B.at, "INVITE");
    // x offers a meaningless port of the gateway, and y answers with call two's callee port.
    let (id, x, y, back1) = &ends[0];
    w.send(
        A.at,
        G,
        &as_call(x.request(("INVITE", 2, "sip:b@10.1.0.20"), "y", back1, &here(1024)), id),
    );
    let re1 = w.read(B.at, "INVITE");
    w.send(B.at, G, &as_call(y.response(&re1, "200 OK", &here(two[1])), id));
    // v answers with a meaningless port of the gateway.
    let id = ends[1].0;
    w.send(B.at, G, &as_call(ends[1].2.response(&re2, "200 OK", &here(1024)), id));
    // Follow a packet: in at `one[0]`, out at the port that it is joined to, on to that port's
    // remote, and so on.
    let board = &w.sites[0].board;
    let mut at_port = one[0];
    let mut path = vec![at_port];
    for _ in 0..4 {
        let Some(Some(relay)) = board.joined.get(&at_port) else { break };
        let Remote::Udp { rtp: Some(next), .. } = board.sends(relay.onto) else { break };
        at_port = next.port();
        path.push(at_port);
    }
    assert!(path.len() < 4, "packets go round: {path:?}");
}

#[test]
fn a_bye_that_is_challenged_ends_nothing() {
    let mut w = world();
    let (back, ..) = call(&mut w);
    w.send(A.at, G, &A.request(("BYE", 2, "sip:b@10.1.0.20"), "b", &back, ""));
    let bye = w.read(B.at, "BYE");
    w.send(B.at, G, &B.response(&bye, "407 Who", ""));
    assert_eq!(w.sites[0].gateway.calls().count(), 1);
}

#[test]
fn an_offer_before_the_answer_that_is_refused_changes_nothing() {
    let mut w = world();
    w.send(A.at, G, &A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &sdp("10.1.0.9:4000")));
    let invite = w.read(B.at, "INVITE");
    w.send(B.at, G, &B.response(&invite, "183 P", &sdp("10.1.0.20:5000")));
    let p = w.read(A.at, "183");
    let mut back = routes(&p);
    back.reverse();
    w.send(
        A.at,
        G,
        &A.request(("UPDATE", 2, "sip:b@10.1.0.20"), "b", &back, &sdp("10.1.0.9:4444")),
    );
    let u = w.read(B.at, "UPDATE");
    w.send(B.at, G, &B.response(&u, "491 No", ""));
    assert_eq!(goes_to(&w)[0], Some(at("10.1.0.9:4000")));
}

#[test]
fn a_caller_without_a_tag_is_one() {
    let mut w = world();
    let inv = A
        .request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &sdp("10.1.0.9:4000"))
        .replace("<sip:a@h>;tag=a", "<sip:a@h>");
    w.send(A.at, G, &inv);
    let invite = w.read(B.at, "INVITE");
    w.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let ok = w.read(A.at, "200");
    let mut back = routes(&ok);
    back.reverse();
    let re = A
        .request(("INVITE", 2, "sip:b@10.1.0.20"), "b", &back, &sdp("10.1.0.9:4444"))
        .replace("<sip:a@h>;tag=a", "<sip:a@h>");
    w.send(A.at, G, &re);
    let re = w.read(B.at, "INVITE");
    w.send(B.at, G, &B.response(&re, "200 OK", &sdp("10.1.0.20:5000")));
    assert_eq!(goes_to(&w)[0], Some(at("10.1.0.9:4444")));
    assert_eq!(goes_to(&w)[1], Some(at("10.1.0.20:5000")));
}

#[test]
fn who_rings_and_says_bye_ends_no_others_call() {
    let mut w = world();
    w.send(A.at, G, &A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &sdp("10.1.0.9:4000")));
    let invite = w.read(B.at, "INVITE");
    w.send(B.at, G, &B.response(&invite, "180 R", ""));
    w.send(B.at, G, &C.response(&invite, "180 R", ""));
    let p = w.read(A.at, "180");
    let mut back = routes(&p);
    back.reverse();
    w.send(A.at, G, &A.request(("BYE", 2, "sip:c@10.1.0.20"), "c", &back, ""));
    let bye = w.read(B.at, "BYE");
    w.send(B.at, G, &C.response(&bye, "200 OK", ""));
    w.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    // The answer to the BYE, and then to the INVITE.
    assert!(w.read(A.at, "200").body().is_empty());
    assert!(!w.read(A.at, "200").body().is_empty());
    assert_eq!(w.sites[0].gateway.calls().count(), 1);
}

#[test]
fn who_gives_up_while_a_name_is_looked_up_leaves_nothing() {
    let mut w = world();
    let invite = A.request(("INVITE", 1, "sip:b@pbx.example"), "", &[], &sdp("10.1.0.9:4000"));
    w.send(A.at, G, &invite);
    let cancel = invite.replace("INVITE", "CANCEL");
    // A CANCEL has the same branch as its INVITE.
    w.send(A.at, G, &cancel.replacen("z9hG4bKa1CANCEL", "z9hG4bKa1INVITE", 1));
    w.read(A.at, "487");
    named(&mut w, "pbx.example", "10.1.0.20");
    assert_eq!(w.sites[0].gateway.calls().count(), 0);
    assert!(w.mail_of(B.at).is_empty());
}

/// Number of names that the gateway asked to resolve.
fn wanted_names(w: &World) -> usize {
    let is = |event: &&Event| matches!(event, Event::LookUp(_));
    w.sites[0].events.iter().filter(is).count()
}

#[test]
fn who_asks_for_many_names_leaves_room_for_others() {
    let mut w = world();
    let ask = |w: &mut World, from: &str, method, n: u32| {
        let uri = format!("sip:b@host-{from}-{n}.example").replace(':', "-");
        let uri = uri.replacen("sip-", "sip:", 1);
        w.send(from, G, &A.request((method, n, &uri), "", &[], ""));
    };
    for n in 0..400 {
        ask(&mut w, A.at, "OPTIONS", n);
        ask(&mut w, A.at, "ACK", 1_000 + n);
    }
    let its = wanted_names(&w);
    assert!((200..=256).contains(&its), "{its}");
    ask(&mut w, B.at, "OPTIONS", 5_000);
    assert_eq!(wanted_names(&w), its + 1);
    assert_eq!(w.mail_of(B.at), [""; 0]);
}

#[test]
fn a_name_service_that_does_not_answer_is_asked_again_soon() {
    let mut w = world();
    let ask = |w: &mut World, n| {
        w.send(A.at, G, &A.request(("OPTIONS", n, "sip:b@pbx.example"), "", &[], ""));
    };
    ask(&mut w, 1);
    let site = &mut w.sites[0];
    site.gateway.named(w.now, "pbx.example", Found::NoAnswer, &mut site.board);
    w.run();
    let refused = text(&w.read(A.at, "503"));
    assert!(refused.contains("name service does not answer"), "{refused}");
    ask(&mut w, 2);
    w.read(A.at, "503");
    w.wait(5_000);
    ask(&mut w, 3);
    assert_eq!(wanted_names(&w), 2);
    named(&mut w, "pbx.example", "10.1.0.20");
    w.read(B.at, "OPTIONS");
}

#[test]
fn a_long_request_goes_by_datagram_where_no_connection_is_taken() {
    let mut w = world();
    let long = format!("{}a=x:{}\r\n", sdp("10.1.0.9:4000"), "y".repeat(1_200));
    let invite = A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &long);
    let site = &mut w.sites[0];
    let from = Hop { socket: 0, remote: at(A.at), connection: None };
    site.gateway.receive(w.now, from, invite.as_bytes(), &mut site.board);
    let sent: Vec<_> = std::iter::from_fn(|| site.gateway.poll()).collect();
    let tried = sent.iter().find(|output| output.to.remote == at(B.at)).expect("a try");
    assert_eq!(tried.to.socket, 1);
    let connection = tried.to.connection.expect("TCP");
    assert!(site.gateway.is_for_length(connection));
    site.gateway.unreachable(w.now, connection, &mut site.board);
    let again = site.gateway.poll().expect("another try");
    assert_eq!((again.to.socket, again.to.connection), (0, None));
    let again = Message::parse(&again.bytes).expect("a message");
    assert_eq!(again.via().map(|via| via.transport), Some(&b"UDP"[..]));
    // It remains one call, with one pair of ports towards either side.
    assert_eq!((site.gateway.calls().count(), site.board.joined.len()), (1, 2));
    w.send(B.at, G, &B.response(&again, "200 OK", &sdp("10.1.0.20:5000")));
    w.read(A.at, "200");
    assert_eq!(goes_to(&w), [Some(at("10.1.0.9:4000")), Some(at("10.1.0.20:5000"))]);
    // That is remembered for ten minutes.
    let mut tries = |number| {
        let site = &mut w.sites[0];
        let invite = A.request(("INVITE", number, "sip:b@10.1.0.20"), "", &[], &long);
        let invite = invite.replace("Call-ID: ", &format!("Call-ID: {number}"));
        site.gateway.receive(w.now, from, invite.as_bytes(), &mut site.board);
        let sent: Vec<_> = std::iter::from_fn(|| site.gateway.poll()).collect();
        w.now += core::time::Duration::from_secs(599);
        sent.iter().find(|output| output.to.remote == at(B.at)).expect("a try").to.socket
    };
    assert_eq!([tries(2), tries(3), tries(4)], [0, 0, 1]);
}

/// The limit is 1,300 bytes of the request as it leaves.
#[test]
fn a_request_goes_by_datagram_up_to_a_length() {
    for extra in 500..900 {
        let mut w = world();
        let long = format!("{}a=x:{}\r\n", sdp("10.1.0.9:4000"), "y".repeat(extra));
        let invite = A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &long);
        let site = &mut w.sites[0];
        let from = Hop { socket: 0, remote: at(A.at), connection: None };
        site.gateway.receive(w.now, from, invite.as_bytes(), &mut site.board);
        let mut sent = std::iter::from_fn(|| site.gateway.poll());
        let sent = sent.find(|output| output.to.remote == at(B.at)).expect("a try");
        assert_eq!(sent.to.connection.is_some(), sent.bytes.len() > 1_300, "{}", sent.bytes.len());
    }
}

#[test]
fn who_wants_a_connection_gets_no_datagram() {
    let mut w = world();
    let uri = "sip:b@10.1.0.20;transport=tcp";
    let site = &mut w.sites[0];
    let from = Hop { socket: 0, remote: at(A.at), connection: None };
    let invite = A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000"));
    site.gateway.receive(w.now, from, invite.as_bytes(), &mut site.board);
    let sent: Vec<_> = std::iter::from_fn(|| site.gateway.poll()).collect();
    let tried = sent.iter().find_map(|output| output.to.connection).expect("a connection");
    site.gateway.disconnected(w.now, tried, &mut site.board);
    w.run();
    assert_eq!((w.mail_of(A.at), w.mail_of(B.at)), (vec!["503".into()], vec![]));
    assert_eq!(w.sites[0].gateway.free_ports(), 50);
}

#[test]
fn gateways_that_send_to_each_other_stop() {
    let site = |node, here: &str, there: &str| Config {
        routes: vec![route("10.9.0.0/16", &format!("{there}:5060"))],
        ..config(node, &format!("{here}:5060"))
    };
    let sites = [site(1, "10.1.0.1", "10.2.0.1"), site(2, "10.2.0.1", "10.1.0.1")];
    let mut w = World::new(sites.into());
    let invite = A.request(("INVITE", 1, "sip:b@10.9.0.20"), "", &[], &sdp("10.1.0.9:4000"));
    w.send(A.at, G, &invite);
    w.read(A.at, "482");
    for site in &w.sites {
        assert!(site.gateway.stats().calls <= 4);
        assert_eq!(site.gateway.free_ports(), 50);
    }
}

#[test]
fn a_message_that_grows_too_long_is_refused() {
    let mut w = world();
    let long = A.request(("MESSAGE", 1, "sip:b@10.1.0.20"), "", &[], "");
    let fields = format!("X: {}\r\n", "y".repeat(65_535 - long.len() - 5));
    w.send(A.at, G, &long.replacen("Contact:", &format!("{fields}Contact:"), 1));
    w.read(A.at, "513");
}

#[test]
fn of_many_streams_a_call_has_eight() {
    let mut w = world();
    let more: String = (0..31).map(|n| format!("m=audio {} RTP/AVP 0\r\n", 4_100 + n)).collect();
    let body = format!("{}{more}", sdp("10.1.0.9:4000"));
    w.send(A.at, G, &A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &body));
    let invite = w.read(B.at, "INVITE");
    assert_eq!(w.sites[0].gateway.free_ports(), 50 - 16);
    assert_eq!(common::body(&invite).matches("m=audio 0 ").count(), 24);
}

#[test]
fn an_answer_that_nobody_acknowledges_is_given_up_sooner() {
    let mut w = world();
    let uri = "sip:b@10.1.0.20";
    w.send(A.at, G, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = w.read(B.at, "INVITE");
    w.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    w.wait(63_000);
    assert_eq!(w.sites[0].gateway.calls().count(), 1);
    w.wait(3_000);
    assert_eq!(w.sites[0].gateway.calls().count(), 0);
}

#[test]
fn media_go_neither_to_signalling_nor_to_a_gateway_that_has_not_said_so() {
    for place in ["10.1.0.20:5060", "10.1.0.20:5061", "10.1.0.1:5060", "10.2.0.1:30000"] {
        let mut w = two_sites();
        let invite = ("INVITE", 1, "sip:b@10.1.0.20");
        w.send(A.at, G, &A.request(invite, "", &[], &sdp(place)));
        w.read(A.at, "488");
        assert_eq!(w.sites[0].gateway.free_ports(), 50, "{place}");
    }
}

#[test]
fn what_is_no_media_is_known_by_its_first_byte() {
    for (first, is) in [
        (0, true),
        (0x16, true),
        (0x80, true),
        (0x90, true),
        (b'I', false),
        (b'S', false),
        (b'{', false),
        (0xc0, false),
    ] {
        assert_eq!(is_media(&[first, 0, 0, 0]), is, "{first}");
    }
    assert!(!is_media(b""));
}

/// M floods a peer that never answers with requests that look like part of a call.
fn ask_much(w: &mut World, count: u32, bytes: usize) {
    const M: Agent = Agent { at: "10.1.0.66:5060", tag: "m", gateway: G };
    for n in 0..count {
        let ask = M.request(("INFO", n, "sip:x@10.1.0.67"), "made-up", &[], "");
        let long = format!("X-Long: {}\r\n\r\n", "x".repeat(bytes));
        w.send(M.at, G, &ask.replacen("\r\n\r\n", &format!("\r\n{long}"), 1));
    }
    assert!(w.mail_of(M.at).contains(&"503".to_owned()), "all of that had room");
    w.mail.clear();
}

#[test]
fn who_asks_much_leaves_room_for_others_calls() {
    for (count, bytes) in [(1_000, 1), (200, 50_000)] {
        let mut w = world();
        let (back, ..) = call(&mut w);
        ask_much(&mut w, count, bytes);
        let other = Agent { at: "10.1.0.30:5060", tag: "o", gateway: G };
        w.send(other.at, G, &other.request(("OPTIONS", 1, "sip:b@10.1.0.20"), "", &[], ""));
        w.read(B.at, "OPTIONS");
        w.send(A.at, G, &A.request(("BYE", 2, "sip:b@10.1.0.20"), "b", &back, ""));
        w.read(B.at, "BYE");
    }
}

#[test]
fn the_calls_of_one_phone_leave_ports_for_others() {
    // Both while they ring and once they are answered.
    [false, true].into_iter().for_each(calls_leave_ports);
}

fn calls_leave_ports(are_up: bool) {
    let mut w = world();
    let media: String =
        (0..8).map(|n| format!("m=audio {} RTP/AVP 0\r\n", 4_000 + 2 * n)).collect();
    let body =
        format!("v=0\r\no=- 1 1 IN IP4 10.1.0.9\r\ns=-\r\nc=IN IP4 10.1.0.9\r\nt=0 0\r\n{media}");
    for n in 1..=9 {
        w.send(A.at, G, &A.request(("INVITE", n, "sip:b@10.1.0.20"), "", &[], &body));
        if are_up && w.mail_of(B.at).contains(&"INVITE".to_owned()) {
            let invite = w.read(B.at, "INVITE");
            w.send(B.at, G, &B.response(&invite, "200 OK", &body));
        }
    }
    assert!(w.mail_of(A.at).contains(&"503".to_owned()));
    w.mail.clear();
    const D: Agent = Agent { at: "10.1.0.31:5060", tag: "d", gateway: G };
    let invite = ("INVITE", 1, "sip:b@10.1.0.20");
    w.send(D.at, G, &D.request(invite, "", &[], &sdp("10.1.0.31:4000")));
    w.read(B.at, "INVITE");
}
