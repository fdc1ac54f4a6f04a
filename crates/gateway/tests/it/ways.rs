//! Calls that pass through several gateways, or through one twice.

use crate::common::*;
use trunkline_base::Time;
use trunkline_gateway::{CallOutcome, Config, Event, Gateway, Remote, Socket, Transport};
use trunkline_sip::transaction::Hop;
use trunkline_sip::{Message, Name};

const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: "10.1.0.1:5060" };
const B: Agent = Agent { at: "10.2.0.9:5060", tag: "b", gateway: "10.2.0.1:5060" };

#[test]
fn what_is_to_be_encrypted_on_every_hop_goes_over_tls_or_nowhere() {
    let tls = Socket {
        transport: Transport::Tls,
        address: at("10.1.0.1:5061"),
        local: [10, 1, 0, 1].into(),
    };
    let mut with_tls = config(1, "10.1.0.1:5060");
    with_tls.sockets.push(tls);
    let mut gateway = Gateway::new(with_tls, [1; 32], &[9; 32]);
    let mut board = PortBoard::default();
    let phone = at("10.1.0.9:40000");
    let connection = Some(gateway.connected(2, phone));
    let by_tls = Hop { socket: 2, remote: phone, connection };
    let by_udp = Hop { socket: 0, remote: at("10.1.0.8:5060"), connection: None };
    let mut number = 0;
    let mut sent = |from, method, uri: &str, routes: &[&str]| {
        number += 1;
        let routes: Vec<String> = routes.iter().map(|r| r.to_string()).collect();
        let body = if method == "INVITE" { sdp("10.1.0.9:4000") } else { String::new() };
        let text = A.request((method, number, uri), "", &routes, &body);
        gateway.receive(Time::from_millis(1_000), from, text.as_bytes(), &mut board);
        let last = std::iter::from_fn(|| gateway.poll()).last().unwrap();
        (last.to.socket, Message::parse(&last.bytes).unwrap())
    };
    let own = |message: &Message, name| {
        String::from_utf8_lossy(message.first(name).unwrap()).into_owned()
    };

    // The gateway's own routes demand it, too.
    let (socket, invite) = sent(by_tls, "INVITE", "sips:b@10.2.0.9", &[]);
    let route = own(&invite, Name::RecordRoute);
    assert_eq!((socket, route.starts_with("<sips:10.1.0.1:5061;lr;tl=")), (2, true), "{route}");
    let (_, invite) = sent(by_tls, "INVITE", "sip:b@10.2.0.9;transport=tls", &[]);
    let route = own(&invite, Name::RecordRoute);
    assert!(route.starts_with("<sip:10.1.0.1:5061;transport=tls;lr"), "{route}");
    let (_, register) = sent(by_tls, "REGISTER", "sips:10.2.0.9", &[]);
    let path = own(&register, Name::Path);
    assert!(path.starts_with("<sips:") && path.ends_with("@10.1.0.1:5061;lr>"), "{path}");

    // Neither a route nor a flow without encryption is accepted.
    let uri = "sips:b@10.2.0.9";
    assert_eq!(sent(by_tls, "OPTIONS", uri, &["<sips:10.2.0.1;lr>"]).0, 2);
    let (_, register) = sent(by_udp, "REGISTER", "sip:10.2.0.9", &[]);
    let path = own(&register, Name::Path);
    assert_eq!(sent(by_tls, "OPTIONS", "sip:b@10.1.0.8", &[&path]).0, 0);
    for route in ["<sip:10.2.0.1;lr>", "<sip:10.2.0.1;transport=tcp;lr>", &path] {
        let (_, answer) = sent(by_tls, "OPTIONS", uri, &[route]);
        assert_eq!(first_word(&answer), "503", "{route}");
    }
}

#[test]
fn a_gateway_between_two_others_has_the_overlay_on_one_side() {
    let site = |node, here: &str, others: &[(&str, &str)]| Config {
        trust: others.iter().map(|(_, via)| format!("{via}/32").parse().unwrap()).collect(),
        routes: others.iter().map(|(to, via)| route(to, &format!("{via}:5060"))).collect(),
        ..config(node, &format!("{here}:5060"))
    };
    let mut world = World::new(vec![
        site(1, "10.1.0.1", &[("10.3.0.0/16", "10.2.0.1")]),
        site(2, "10.2.0.1", &[("10.1.0.0/16", "10.1.0.1"), ("10.3.0.0/16", "10.3.0.1")]),
        site(3, "10.3.0.1", &[("10.1.0.0/16", "10.2.0.1")]),
    ]);
    let c = Agent { at: "10.3.0.9:5060", tag: "c", gateway: "10.3.0.1:5060" };
    let uri = "sip:c@10.3.0.9";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(c.at, "INVITE");
    world.send(c.at, c.gateway, &c.response(&invite, "200 OK", &sdp("10.3.0.9:4000")));
    let ok = world.read(A.at, "200");
    let mut back = routes(&ok);
    back.reverse();
    world.send(A.at, A.gateway, &A.request(("ACK", 1, uri), "c", &back, ""));
    world.read(c.at, "ACK");
    // For each gateway and each of its two ports, whether media leave over the overlay.
    let over = |world: &World| {
        let legs = |site: &Site| {
            let [caller, callee] = site.gateway.calls().next().unwrap().ports[0];
            [caller, callee].map(|port| matches!(site.board.sends(port), Remote::Overlay { .. }))
        };
        [0, 1, 2].map(|n| legs(&world.sites[n]))
    };
    assert_eq!(over(&world), [[false, true], [true, false], [false, false]]);

    // After a new offer by the callee, the sides are reversed.
    let uri = "sip:a@10.1.0.9:5060";
    let on = c.request(("INVITE", 7, uri), "a", &routes(&invite), &sdp("10.3.0.9:4002"));
    world.send(c.at, c.gateway, &on);
    let again = world.read(A.at, "INVITE");
    world.send(A.at, A.gateway, &A.response(&again, "200 OK", &sdp("10.1.0.9:4000")));
    world.read(c.at, "200");
    assert_eq!(over(&world), [[false, false], [false, true], [true, false]]);
}

#[test]
fn a_call_may_come_through_one_gateway_twice() {
    // Both phones are at this site, and a proxy elsewhere sends the call back.
    let mut world = two_sites();
    world.sites.truncate(1);
    let proxy = "10.2.0.1:5060";
    let uri = "sip:b@10.2.0.9";
    world.send(A.at, A.gateway, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(proxy, "INVITE");
    // The proxy sends the call to a phone at the first site, and stays out of its route.
    let on = text(&invite).replace(uri, "sip:c@10.1.0.8").replacen(
        "Via:",
        &format!("Via: SIP/2.0/UDP {proxy};branch=z9hG4bKp\r\nVia:"),
        1,
    );
    world.send(proxy, A.gateway, &on);
    let invite = world.read("10.1.0.8:5060", "INVITE");
    // It is one call, with its two ends.
    let calls: Vec<_> = world.sites[0].gateway.calls().collect();
    assert_eq!(
        (calls.len(), calls[0].is_local, world.sites[0].gateway.stats().calls),
        (1, true, 1)
    );
    let c = Agent { at: "10.1.0.8:5060", tag: "c", gateway: A.gateway };
    world.send(c.at, A.gateway, &c.response(&invite, "200 OK", &sdp("10.1.0.8:6000")));
    let ok = world.read(proxy, "200");
    let via = format!("Via: SIP/2.0/UDP {proxy};branch=z9hG4bKp;rport=5060;received=10.2.0.1\r\n");
    let back = text(&ok);
    let start = back.find("Via:").unwrap();
    let end = start + back[start..].find("\r\n").unwrap() + 2;
    assert!(back[start..end].contains("z9hG4bKp"), "{back} {via}");
    world.send(proxy, A.gateway, &format!("{}{}", &back[..start], &back[end..]));
    let ok = world.read(A.at, "200");
    // In order: phone A, the first pass, the second pass, phone C.
    let board = &world.sites[0].board;
    let mut port = wanted(&ok).0.port();
    let mut steps = Vec::new();
    loop {
        let onto = board.joined[&port].as_ref().unwrap().onto;
        let Remote::Udp { rtp: Some(to), .. } = board.sends(onto) else { panic!() };
        steps.push(to.to_string());
        match to.ip().to_string().as_str() {
            "10.1.0.1" => port = to.port(),
            _ => break,
        }
    }
    assert_eq!((steps.len(), steps.last().unwrap().as_str()), (2, "10.1.0.8:6000"));
    // One BYE ends both, although the proxy isn't on its path.
    let mut back = routes(&ok);
    back.reverse();
    assert_eq!(back.len(), 2);
    world.send(A.at, A.gateway, &A.request(("BYE", 2, "sip:c@10.1.0.8"), "c", &back, ""));
    let bye = world.read(c.at, "BYE");
    let [towards_a, towards_c] = world.sites[0].gateway.calls().next().unwrap().ports[0];
    world.send(c.at, A.gateway, &c.response(&bye, "200 OK", ""));
    let site = &world.sites[0];
    assert_eq!((site.gateway.stats().live, site.gateway.free_ports()), (0, 50));
    let ended: Vec<_> = site.events.iter().collect();
    let [Event::Ended(view, CallOutcome::CallerHungUp)] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(view.ports, [[towards_a, towards_c]]);
    assert_eq!(wanted(&ok).0.port(), towards_a);
}

#[test]
fn media_that_would_come_back_for_ever_are_refused() {
    let mut world = two_sites();
    world.sites.truncate(1);
    let ports = |world: &World, name: &str| {
        let mut calls = world.sites[0].gateway.calls();
        calls.find(|call| call.name == name).unwrap().ports[0]
    };
    call_from(&mut world, &A, A.at, "first", "10.1.0.9:4000");
    let first = world.read(B.gateway, "INVITE");
    let [near, _] = ports(&world, "first");
    // Media from the second call towards its caller go into the first.
    call_from(&mut world, &A, A.at, "second", &format!("10.1.0.1:{near}"));
    let second = world.read(B.gateway, "INVITE");
    let [_, far] = ports(&world, "second");
    // Now in the other direction.
    let back = sdp(&format!("10.1.0.1:{far}"));
    let named = |text: String, name| text.replace("Call-ID: call", &format!("Call-ID: {name}"));
    world.send(B.gateway, A.gateway, &named(B.response(&first, "200 OK", &back), "first"));
    let ok = world.read(A.at, "200");
    assert!(body(&ok).contains("m=audio 0 "), "{}", body(&ok));
    let refused = world.sites[0].events.iter().find_map(|event| match event {
        Event::Refused(name, _, why) => Some((&name[..], why.to_string().contains("come back"))),
        _ => None,
    });
    assert_eq!(refused, Some(("first", true)));
    // A stream can't lead into itself, either.
    let own = sdp(&format!("10.1.0.1:{far}"));
    world.send(B.gateway, A.gateway, &named(B.response(&second, "200 OK", &own), "second"));
    let ok = world.read(A.at, "200");
    assert!(body(&ok).contains("m=audio 0 "), "{}", body(&ok));
}
