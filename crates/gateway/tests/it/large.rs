//! Messages at the limits of what a gateway reads: each is passed on, or refused with the true reason.

use crate::common::*;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_gateway::{CallOutcome, Config, Event, Gateway};
use trunkline_sip::transaction::Hop;
use trunkline_sip::{MAX_FIELDS, MAX_MESSAGE, Message};

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };

fn invite(filler: &str) -> String {
    let invite = A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &sdp("10.1.0.9:4000"));
    invite.replace("Contact:", &format!("{filler}Contact:"))
}

/// An INVITE with as many header fields.
fn of(fields: usize) -> String {
    let own = invite("").split("\r\n\r\n").next().unwrap().lines().count() - 1;
    invite(&"X: y\r\n".repeat(fields - own))
}

fn told(world: &World) -> Vec<(String, Option<u16>)> {
    let told = |event: &Event| match event {
        Event::Malformed(_, why, code) => Some((why.clone(), *code)),
        _ => None,
    };
    world.sites[0].events.iter().filter_map(told).collect()
}

#[test]
fn as_many_fields_as_may_be_pass_and_more_are_refused() {
    for fields in [200, MAX_FIELDS - 4, MAX_FIELDS - 3, MAX_FIELDS - 2, MAX_FIELDS - 1, MAX_FIELDS]
    {
        let mut world = World::new(vec![config(1, G)]);
        world.send(A.at, G, &of(fields));
        assert_eq!(world.mail_of(A.at), ["100"], "{fields}");
        world.mail.clear();
        assert_eq!(world.sites[0].gateway.calls().count(), 1);
        // It goes by TCP first, since it is long.
        world.wait(37_000);
        // Without its ACK the refusal is repeated.
        assert_eq!(world.mail_of(A.at)[0], "408", "{fields}");
    }
    for fields in [MAX_FIELDS + 1, MAX_FIELDS + 2, 2_000] {
        let mut world = World::new(vec![config(1, G)]);
        world.send(A.at, G, &of(fields));
        let refusal = text(&world.read(A.at, "513"));
        assert!(refusal.starts_with("SIP/2.0 513 Message Too Large: More Than 256 Header"));
        assert_eq!(world.mail_of(B.at), [""; 0]);
        let why = "Message Too Large: More Than 256 Header Fields".to_owned();
        assert_eq!(told(&world), [(why, Some(513))]);
        assert_eq!(world.sites[0].gateway.stats().too_large, 1);
    }
}

#[test]
fn what_cannot_be_answered_is_counted_and_reported_of_known_hosts() {
    for (from, is_told) in [(A.at, true), ("192.0.2.99:5060", false)] {
        let mut world = World::new(vec![config(1, G)]);
        let response = of(300).replacen("INVITE sip:b@10.1.0.20 SIP/2.0", "SIP/2.0 200 OK", 1);
        world.send(from, G, &response);
        world.send(from, G, "GET / HTTP/1.1\r\n\r\n");
        let stats = world.sites[0].gateway.stats();
        assert_eq!((stats.too_large, stats.malformed), (1, 1));
        assert_eq!(told(&world).len(), if is_told { 2 } else { 0 });
        assert!(told(&world).iter().all(|(_, code)| code.is_none()));
        assert!(world.mail.is_empty());
    }
}

#[test]
fn what_grows_too_large_here_is_refused_with_the_true_reason() {
    let mut world = World::new(vec![config(1, G)]);
    let room = MAX_MESSAGE - invite("").len() - "X: \r\n".len();
    world.send(A.at, G, &invite(&format!("X: {}\r\n", "y".repeat(room))));
    let refusal = text(&world.read(A.at, "513"));
    assert!(refusal.contains("more than 65,535 bytes"), "{refusal}");
    let stats = world.sites[0].gateway.stats();
    assert_eq!((stats.too_large, stats.refused), (1, 1));
}

/// Messages that a gateway sends, with the connection of each.
fn sent(gateway: &mut Gateway) -> Vec<(Option<u64>, String)> {
    let all = std::iter::from_fn(|| gateway.poll());
    let word = |bytes: &[u8]| first_word(&Message::parse(bytes).unwrap());
    all.map(|output| (output.to.connection, word(&output.bytes))).collect()
}

#[test]
fn a_host_that_takes_connections_and_is_silent_gets_long_requests_by_udp() {
    let mut gateway = Gateway::new(config(1, G), [1; 32], &[9; 32]);
    let mut board = PortBoard::default();
    let begun = Time::from_millis(1_000);
    let phone = Hop { socket: 0, remote: at(A.at), connection: None };
    let long = |number: u32| {
        let body = format!("{}a=x:{}\r\n", sdp("10.1.0.9:4000"), "y".repeat(1_300));
        let text = A.request(("INVITE", number, "sip:b@10.1.0.20"), "", &[], &body);
        text.replace("Call-ID: call", &format!("Call-ID: {number}"))
    };
    gateway.receive(begun, phone, long(1).as_bytes(), &mut board);
    let [(None, _), (Some(connection), invite)] = &sent(&mut gateway)[..] else { panic!() };
    assert_eq!(invite, "INVITE");
    let after = |millis| begun + Duration::from_millis(millis);
    gateway.handle_timeout(after(3_999), &mut board);
    assert!(sent(&mut gateway).is_empty());
    assert_eq!(gateway.next_timeout(), after(4_000));
    gateway.handle_timeout(after(4_000), &mut board);
    assert_eq!(sent(&mut gateway), [(None, "INVITE".to_owned())]);
    assert!(!gateway.is_open(*connection));
    let silent = Event::Silent(at("10.1.0.20:5060"), *connection, true);
    assert_eq!(gateway.event(), Some(silent));
    // It is remembered for ten minutes.
    for (seconds, by_udp) in [(5, true), (600, true), (605, false)] {
        gateway.receive(after(1_000 * seconds), phone, long(seconds as u32).as_bytes(), &mut board);
        let last = sent(&mut gateway).pop().unwrap();
        assert_eq!((last.0.is_none(), &last.1[..]), (by_udp, "INVITE"), "{seconds}");
    }
}

#[test]
fn a_host_that_says_anything_is_not_silent() {
    for says in ["SIP/2.0 100 Trying", "OPTIONS sip:a@10.1.0.9 SIP/2.0"] {
        let mut gateway = Gateway::new(config(1, G), [1; 32], &[9; 32]);
        let mut board = PortBoard::default();
        let begun = Time::from_millis(1_000);
        let phone = Hop { socket: 0, remote: at(A.at), connection: None };
        let body = format!("{}a=x:{}\r\n", sdp("10.1.0.9:4000"), "y".repeat(1_300));
        let invite = A.request(("INVITE", 1, "sip:b@10.1.0.20"), "", &[], &body);
        gateway.receive(begun, phone, invite.as_bytes(), &mut board);
        let connection = sent(&mut gateway)[1].0;
        let hop = Hop { socket: 1, remote: at("10.1.0.20:5060"), connection };
        let other = B.request(("OPTIONS", 9, "sip:a@10.1.0.9"), "", &[], "");
        let text = other.replacen("OPTIONS sip:a@10.1.0.9 SIP/2.0", says, 1);
        gateway.receive(begun + Duration::from_millis(9), hop, text.as_bytes(), &mut board);
        gateway.handle_timeout(begun + Duration::from_secs(5), &mut board);
        assert!(gateway.is_open(connection.unwrap()), "{says}");
        // After all, the INVITE is unanswered.
        gateway.handle_timeout(begun + Duration::from_secs(32), &mut board);
        assert!(sent(&mut gateway).contains(&(None, "408".to_owned())), "{says}");
    }
}

fn phone() -> Hop {
    Hop { socket: 0, remote: at(A.at), connection: None }
}

/// A request that is too long for a datagram.
fn long(method: &str, number: u32, uri: &str) -> String {
    let body = format!("{}a=x:{}\r\n", sdp("10.1.0.33:4000"), "y".repeat(1_300));
    let text = A.request((method, number, uri), "", &[], &body);
    text.replace("Call-ID: call", &format!("Call-ID: {number}"))
}

/// Whether a long INVITE there would go by a connection.
fn connects(gateway: &mut Gateway, now: Time, number: u32, uri: &str) -> bool {
    gateway.receive(
        now,
        phone(),
        long("INVITE", number, uri).as_bytes(),
        &mut PortBoard::default(),
    );
    let (connection, method) = sent(gateway).pop().unwrap();
    assert_eq!(method, "INVITE");
    connection.is_some()
}

/// No provisional response to another request is due (RFC 4320, 4.1).
#[test]
fn only_an_invite_has_to_be_answered_soon() {
    for answers in [true, false] {
        let mut gateway = Gateway::new(config(1, G), [1; 32], &[9; 32]);
        let mut board = PortBoard::default();
        let after = |seconds| Time::from_millis(1_000) + Duration::from_secs(seconds);
        let uri = "sip:b@10.1.0.20";
        gateway.receive(after(0), phone(), long("MESSAGE", 1, uri).as_bytes(), &mut board);
        let output = gateway.poll().expect("a message");
        let message = Message::parse(&output.bytes).unwrap();
        let connection = output.to.connection.expect("TCP");
        gateway.handle_timeout(after(6), &mut board);
        assert_eq!((sent(&mut gateway), gateway.event()), (vec![], None));
        assert!(gateway.is_open(connection));
        if answers {
            let answer = B.response(&message, "200 OK", "").replace("Call-ID: call", "Call-ID: 1");
            gateway.receive(after(6), output.to, answer.as_bytes(), &mut board);
            assert_eq!(sent(&mut gateway), [(None, "200".to_owned())]);
        }
        gateway.handle_timeout(after(32), &mut board);
        let silent = Event::Silent(at("10.1.0.20:5060"), connection, false);
        assert_eq!(gateway.event(), (!answers).then_some(silent));
        assert!(connects(&mut gateway, after(33), 2, uri));
    }
}

#[test]
fn a_long_request_that_no_datagram_can_carry_is_refused_with_the_true_reason() {
    for is_silent in [true, false] {
        let mut gateway = Gateway::new(config(1, G), [1; 32], &[9; 32]);
        let mut board = PortBoard::default();
        let after = |seconds| Time::from_millis(1_000) + Duration::from_secs(seconds);
        gateway.receive(
            after(0),
            phone(),
            long("INVITE", 1, "sip:b@10.1.0.20").as_bytes(),
            &mut board,
        );
        let connection = sent(&mut gateway)[1].0.expect("TCP");
        // Meanwhile the place of its media is known as another gateway, which has not named it.
        let trust = vec!["10.1.0.33/32".parse().unwrap()];
        gateway.reconfigure(&Config { trust, ..config(1, G) });
        match is_silent {
            true => gateway.handle_timeout(after(4), &mut board),
            false => gateway.unreachable(after(1), connection, &mut board),
        }
        assert_eq!(sent(&mut gateway), [(None, "488".to_owned())]);
        let events: Vec<Event> = std::iter::from_fn(|| gateway.event()).collect();
        let ended = |event: &Event| matches!(event, Event::Ended(_, CallOutcome::Refused(488)));
        assert!(events.iter().any(ended), "{events:?}");
        assert_eq!(gateway.free_ports(), 50);
    }
}

#[test]
fn a_port_that_takes_no_connection_says_nothing_of_others_of_its_host() {
    for is_silent in [true, false] {
        let mut gateway = Gateway::new(config(1, G), [1; 32], &[9; 32]);
        let mut board = PortBoard::default();
        let after = |seconds| Time::from_millis(1_000) + Duration::from_secs(seconds);
        let (closed, usual) = ("sip:x@10.1.0.20:9", "sip:b@10.1.0.20");
        gateway.receive(after(0), phone(), long("INVITE", 1, closed).as_bytes(), &mut board);
        let connection = sent(&mut gateway)[1].0.expect("TCP");
        match is_silent {
            true => gateway.handle_timeout(after(4), &mut board),
            false => gateway.unreachable(after(1), connection, &mut board),
        }
        sent(&mut gateway);
        assert!(!connects(&mut gateway, after(5), 2, closed));
        assert!(connects(&mut gateway, after(5), 3, usual));
        assert!(connects(&mut gateway, after(5), 4, "sip:b@10.1.0.20:5060"));
    }
}
