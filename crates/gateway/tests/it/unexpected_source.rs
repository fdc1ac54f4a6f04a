//! Attackers that know a call's Call-ID and tags without being an end of it; and messages that ends
//! send twice.

use crate::common::*;
use std::net::SocketAddr;
use trunkline_gateway::{CallOutcome, Config, Remote};
use trunkline_sip::Message;

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
/// An attacker with the same tag as A.
const EVIL: Agent = Agent { at: "10.1.0.66:5060", tag: "a", gateway: G };
const URI: &str = "sip:b@10.1.0.20";

/// Sends an INVITE and returns it as B receives it.
fn ring(world: &mut World) -> Message {
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    world.read(B.at, "INVITE")
}

/// Sets up a call. Returns the routes of both ends, and the INVITE.
fn call(world: &mut World) -> (Vec<String>, Vec<String>, Message) {
    let invite = ring(world);
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let mut back = routes(&world.read(A.at, "200"));
    back.reverse();
    world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &back, ""));
    world.read(B.at, "ACK");
    (back, routes(&invite), invite)
}

/// Addresses that RTP goes to on each side.
fn goes_to(world: &World) -> [Option<SocketAddr>; 2] {
    let site = &world.sites[0];
    let ports = site.gateway.calls().next().expect("a call").ports[0];
    ports.map(|port| match site.board.sends(port) {
        Remote::Udp { rtp, .. } => rtp,
        _ => None,
    })
}

const ENDS: [&str; 2] = ["10.1.0.9:4000", "10.1.0.20:5000"];

fn assert_unmoved(world: &World) {
    assert_eq!(goes_to(world), ENDS.map(|place| Some(at(place))));
}

#[test]
fn a_stranger_who_answers_himself_moves_and_ends_nothing() {
    let mut world = World::new(vec![config(1, G)]);
    let (back, ..) = call(&mut world);
    let mut round = back.clone();
    round.push(format!("<sip:{};lr>", EVIL.at));
    for (n, method) in (20..).zip(["UPDATE", "INVITE", "PRACK", "BYE"]) {
        let body = if method == "BYE" { String::new() } else { sdp("10.1.0.66:6666") };
        world.send(EVIL.at, G, &EVIL.request((method, n, URI), "b", &round, &body));
        let own = world.read(EVIL.at, method);
        let body = if method == "BYE" { "" } else { &body };
        world.send(EVIL.at, G, &B.response(&own, "200 OK", body));
        world.read(EVIL.at, "200");
        assert_unmoved(&world);
    }
}

#[test]
fn a_strangers_bye_that_reaches_nobody_ends_nothing() {
    // To the host of the other end, but to another port.
    let uri = "sip:b@10.1.0.20:9";
    for (sender, code, ends) in
        [(EVIL, None, false), (EVIL, Some("481 No Such Call"), false), (A, None, true)]
    {
        let mut world = World::new(vec![config(1, G)]);
        let (back, ..) = call(&mut world);
        let back = if sender.at == A.at { &back[..] } else { &[] };
        world.send(sender.at, G, &sender.request(("BYE", 20, uri), "b", back, ""));
        let bye = world.read("10.1.0.20:9", "BYE");
        match code {
            Some(code) => world.send("10.1.0.20:9", G, &B.response(&bye, code, "")),
            None => world.wait(40_000),
        }
        assert_eq!(world.sites[0].gateway.calls().count(), usize::from(!ends), "{code:?}");
        if !ends {
            assert_unmoved(&world);
        }
    }
}

#[test]
fn who_only_rings_moves_nothing_before_the_answer() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world);
    let rings = Agent { tag: "c", ..EVIL };
    world.send(EVIL.at, G, &rings.response(&invite, "180 Ringing", ""));
    world.send(B.at, G, &B.response(&invite, "183 Session Progress", &sdp("10.1.0.20:5000")));
    let mut round = routes(&world.read(A.at, "183"));
    round.reverse();
    round.push(format!("<sip:{};lr>", EVIL.at));
    world.send(EVIL.at, G, &EVIL.request(("UPDATE", 9, URI), "c", &round, &sdp("10.1.0.66:6666")));
    let own = world.read(EVIL.at, "UPDATE");
    world.send(EVIL.at, G, &rings.response(&own, "200 OK", &sdp("10.1.0.66:7777")));
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    assert_unmoved(&world);
}

#[test]
fn who_only_rang_moves_nothing_after_the_answer() {
    for contact in ["sip:c@10.1.0.66", "sip:c@pbx.example"] {
        let mut world = World::new(vec![config(1, G)]);
        let invite = ring(&mut world);
        let rings = Agent { tag: "c", ..EVIL };
        let ringing = rings.response(&invite, "180 Ringing", "");
        let named = ringing.replace("<sip:c@10.1.0.66:5060>", &format!("<{contact}>"));
        assert_ne!(named, ringing);
        world.send(EVIL.at, G, &named);
        world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
        let mut round = routes(&world.read(A.at, "200"));
        round.reverse();
        round.push(format!("<sip:{};lr>", EVIL.at));
        let own = EVIL.request(("UPDATE", 9, URI), "b", &round, &sdp("10.1.0.66:6666"));
        world.send(EVIL.at, G, &own);
        let own = world.read(EVIL.at, "UPDATE");
        world.send(EVIL.at, G, &B.response(&own, "200 OK", &sdp("10.1.0.66:7777")));
        assert_unmoved(&world);
    }
}

#[test]
fn a_strangers_request_does_not_move_where_a_phone_is_spoken_to() {
    let mut world = World::new(vec![config(1, G)]);
    let (back, there, _) = call(&mut world);
    world.send(EVIL.at, G, &EVIL.request(("UPDATE", 9, URI), "b", &back, ""));
    let update = world.read(B.at, "UPDATE");
    world.send(B.at, G, &B.response(&update, "491 No", ""));
    world.send(B.at, G, &B.request(("INFO", 1, "sip:a@10.1.0.9"), "a", &there, ""));
    world.read(A.at, "INFO");
}

#[test]
fn a_strangers_cancel_is_of_nothing() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000"));
    world.send(A.at, G, &invite);
    let invited = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&invited, "180 Ringing", ""));
    let cancel = invite.replace("INVITE", "CANCEL").replace("1CANCEL;", "1INVITE;");
    world.send(EVIL.at, G, &cancel);
    assert_eq!(world.mail_of(B.at), [""; 0]);
    world.read(EVIL.at, "481");
    world.send(A.at, G, &cancel);
    world.read(B.at, "CANCEL");
}

#[test]
fn a_phone_that_is_elsewhere_is_who_the_other_end_says() {
    let mut world = World::new(vec![config(1, G)]);
    let (back, there, _) = call(&mut world);
    let moved = Agent { at: "10.1.0.77:5060", ..A };
    world.send(moved.at, G, &moved.request(("INVITE", 2, URI), "b", &back, &sdp("10.1.0.77:4000")));
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    assert_eq!(goes_to(&world)[0], Some(at("10.1.0.77:4000")));
    world.send(B.at, G, &B.request(("BYE", 1, "sip:a@10.1.0.77"), "a", &there, ""));
    world.read(moved.at, "BYE");
}

#[test]
fn what_is_said_again_moves_nothing_back() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world);
    let early = B.response(&invite, "183 Session Progress", &sdp("10.1.0.20:7000"));
    let answer = B.response(&invite, "200 OK", &sdp("10.1.0.20:7000"));
    world.send(B.at, G, &early);
    let mut back = routes(&world.read(A.at, "183"));
    back.reverse();
    world.send(A.at, G, &A.request(("UPDATE", 2, URI), "b", &back, &sdp("10.1.0.9:4000")));
    let update = world.read(B.at, "UPDATE");
    world.send(B.at, G, &B.response(&update, "200 OK", &sdp("10.1.0.20:5000")));
    world.send(B.at, G, &early);
    assert_unmoved(&world);
    world.send(B.at, G, &answer);
    world.send(A.at, G, &A.request(("INVITE", 3, URI), "b", &back, &sdp("10.1.0.9:4000")));
    let again = world.read(B.at, "INVITE");
    let agreed = B.response(&again, "200 OK", &sdp("10.1.0.20:5000"));
    world.send(B.at, G, &agreed);
    world.send(B.at, G, &answer);
    assert_unmoved(&world);
    // An older answer to a re-INVITE moves nothing back, either.
    world.send(A.at, G, &A.request(("INVITE", 4, URI), "b", &back, &sdp("10.1.0.9:4000")));
    let last = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&last, "200 OK", &sdp("10.1.0.20:8000")));
    world.send(B.at, G, &agreed);
    assert_eq!(goes_to(&world)[1], Some(at("10.1.0.20:8000")));
}

#[test]
fn an_offer_within_another_that_is_refused_leaves_the_other_to_be_undone() {
    let mut world = World::new(vec![config(1, G)]);
    let (back, ..) = call(&mut world);
    world.send(A.at, G, &A.request(("INVITE", 2, URI), "b", &back, &sdp("10.1.0.9:4444")));
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&invite, "183 Session Progress", &sdp("10.1.0.20:5555")));
    world.send(A.at, G, &A.request(("UPDATE", 3, URI), "b", &back, &sdp("10.1.0.9:4666")));
    let update = world.read(B.at, "UPDATE");
    world.send(B.at, G, &B.response(&update, "504 No", ""));
    assert_eq!(goes_to(&world), ["10.1.0.9:4444", "10.1.0.20:5555"].map(|it| Some(at(it))));
    world.send(B.at, G, &B.response(&invite, "488 No", ""));
    assert_unmoved(&world);
}

#[test]
fn who_may_no_longer_call_may_still_end_a_call() {
    let mut world = World::new(vec![config(1, G)]);
    let (back, ..) = call(&mut world);
    let narrow = Config { allow: vec!["10.1.0.20/32".parse().unwrap()], ..config(1, G) };
    world.sites[0].gateway.reconfigure(&narrow);
    world.send(A.at, G, &A.request(("OPTIONS", 2, URI), "", &[], ""));
    // A sender that is no longer allowed can't begin a call by naming one that the gateway has no
    // record of.
    let forgotten = vec![format!("<sip:{G};lr;tl=0123456789abcdef>")];
    world.send(A.at, G, &A.request(("INVITE", 9, URI), "x", &forgotten, &sdp("10.1.0.9:4000")));
    assert_eq!(world.sites[0].gateway.calls().count(), 1);
    world.mail.clear();
    world.send(EVIL.at, G, &EVIL.request(("BYE", 3, URI), "b", &back, ""));
    assert!(world.mail.is_empty());
    world.send(A.at, G, &A.request(("BYE", 3, URI), "b", &back, ""));
    let bye = world.read(B.at, "BYE");
    world.send(B.at, G, &B.response(&bye, "200 OK", ""));
    world.read(A.at, "200");
    assert_eq!(world.sites[0].gateway.calls().count(), 0);
    assert_eq!(world.sites[0].gateway.stats().forbidden, 2);
}

#[test]
fn who_was_hanging_up_when_the_gateway_is_stopped_has_hung_up() {
    let mut world = World::new(vec![config(1, G)]);
    let (back, ..) = call(&mut world);
    world.send(A.at, G, &A.request(("BYE", 2, URI), "b", &back, ""));
    let site = &mut world.sites[0];
    site.gateway.stop(world.now, &mut site.board);
    world.run();
    assert_eq!(world.outcomes(0), [CallOutcome::CallerHungUp]);
}

#[test]
fn what_others_have_written_is_shown_short_and_plain() {
    let mut world = World::new(vec![config(1, G)]);
    let name = format!("call\u{9b}31m\u{202e}{}", "x".repeat(9_000));
    let offer = A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000"));
    world.send(A.at, G, &offer.replace("Call-ID: call", &format!("Call-ID: {name}")));
    let view = world.sites[0].gateway.calls().next().expect("a call");
    assert!(view.name.starts_with("call\u{fffd}31m\u{fffd}xxx") && view.name.ends_with('…'));
    assert_eq!(view.name.chars().count(), 257);
}
