//! Answers that cross the end of their call, and BYEs that fail: neither leaves an end in a call.

use crate::common::*;
use trunkline_gateway::{CallOutcome, CallSelection};
use trunkline_sip::{Message, Name};

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const C: Agent = Agent { at: "10.1.0.20:5060", tag: "c", gateway: G };
const URI: &str = "sip:b@10.1.0.20";

/// A call that is sent to B; the INVITE that B has got.
fn begun() -> (World, Message) {
    let mut world = World::new(vec![config(1, G)]);
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.at, "INVITE");
    (world, invite)
}

fn answered() -> World {
    let (mut world, invite) = begun();
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let back = back(&world.read(A.at, "200"));
    world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &back, ""));
    world.read(B.at, "ACK");
    world
}

fn back(answer: &Message) -> Vec<String> {
    let mut back = routes(answer);
    back.reverse();
    back
}

fn hang_up(world: &mut World, site: usize) {
    let now = world.now;
    let Site { gateway, board, .. } = &mut world.sites[site];
    assert_eq!(gateway.hang_up(now, &CallSelection::All, board), 1);
    world.run();
}

fn text_of(message: &Message, name: Name) -> String {
    String::from_utf8_lossy(message.first(name).unwrap_or_default()).into_owned()
}

/// Has `end` accept an INVITE whose call has ended, and checks that it is acknowledged and ended.
fn accept_late(world: &mut World, end: &Agent, invite: &Message) {
    let accepted = end.response(invite, "200 OK", &sdp("10.1.0.20:5000"));
    world.send(end.at, G, &accepted);
    assert_eq!(world.mail_of(end.at), ["ACK", "BYE"]);
    assert_eq!(world.mail_of(A.at), [""; 0], "the caller has another answer");
    let (ack, bye) = (world.read(end.at, "ACK"), world.read(end.at, "BYE"));
    for (message, cseq) in [(&ack, "1 ACK"), (&bye, "2 BYE")] {
        assert_eq!(text_of(message, Name::CSeq), cseq);
        assert_eq!(text_of(message, Name::From), text_of(invite, Name::From));
        assert_eq!(message.to().unwrap().tag(), Some(end.tag.as_bytes()));
        assert!(text(message).contains(&format!(" sip:{}@{} SIP/2.0\r\n", end.tag, end.at)));
    }
    // Without its ACK the answer is repeated.
    world.send(end.at, G, &accepted);
    assert_eq!(world.mail_of(end.at), ["ACK"]);
    world.read(end.at, "ACK");
    world.send(end.at, G, &end.response(&bye, "200 OK", ""));
}

#[test]
fn an_answer_that_crosses_the_end_of_a_ringing_call_is_acknowledged_and_ended() {
    for (wait, is_acknowledged) in [(0, false), (0, true), (10_000, true), (31_000, true)] {
        let (mut world, invite) = begun();
        world.send(B.at, G, &B.response(&invite, "180 Ringing", ""));
        world.read(A.at, "180");
        hang_up(&mut world, 0);
        let refusal = world.read(A.at, "503");
        world.read(B.at, "CANCEL");
        assert!(!world.sites[0].gateway.is_quiet(), "its callee may still accept it");
        if is_acknowledged {
            let ack = A.request(("INVITE", 1, URI), "x", &[], "");
            let to = text_of(&refusal, Name::To);
            let ack = ack.replace("INVITE sip", "ACK sip").replace("1 INVITE", "1 ACK");
            world.send(A.at, G, &ack.replace("To: <sip:b@h>;tag=x", &format!("To: {to}")));
        }
        world.wait(wait);
        world.mail.clear();
        accept_late(&mut world, &B, &invite);
        assert!(world.sites[0].gateway.is_quiet());
        assert_eq!(world.outcomes(0), [CallOutcome::Operator]);
        world.wait(70_000);
        world.mail.clear();
        world.send(B.at, G, &B.response(&invite, "200 OK", ""));
        assert_eq!(world.mail_of(B.at), [""; 0], "it is forgotten by now");
    }
}

#[test]
fn each_of_several_ends_that_accept_too_late_is_ended() {
    let (mut world, invite) = begun();
    world.send(B.at, G, &B.response(&invite, "180 Ringing", ""));
    hang_up(&mut world, 0);
    world.mail.clear();
    accept_late(&mut world, &B, &invite);
    accept_late(&mut world, &C, &invite);
}

#[test]
fn an_end_that_rings_only_after_the_call_has_ended_is_cancelled() {
    let (mut world, invite) = begun();
    hang_up(&mut world, 0);
    assert_eq!(world.mail_of(B.at), [""; 0], "a CANCEL follows a provisional response");
    assert!(world.sites[0].gateway.is_quiet(), "it may not even be there");
    world.send(B.at, G, &B.response(&invite, "180 Ringing", ""));
    let cancel = world.read(B.at, "CANCEL");
    world.send(B.at, G, &B.response(&cancel, "200 OK", ""));
    world.read(A.at, "503");
    world.mail.clear();
    accept_late(&mut world, &B, &invite);
}

#[test]
fn an_answer_after_this_gateway_has_given_up_is_ended_too() {
    for rings in [false, true] {
        let (mut world, invite) = begun();
        if rings {
            world.send(B.at, G, &B.response(&invite, "180 Ringing", ""));
            world.send(
                A.at,
                G,
                &A.request(("INVITE", 1, URI), "", &[], "")
                    .replace("INVITE", "CANCEL")
                    .replace("z9hG4bKa1CANCEL", "z9hG4bKa1INVITE"),
            );
            world.read(B.at, "CANCEL");
        }
        world.wait(33_000);
        world.read(A.at, if rings { "487" } else { "408" });
        world.mail.clear();
        accept_late(&mut world, &B, &invite);
    }
}

#[test]
fn a_bye_ends_the_call_whatever_it_is_answered() {
    for answer in [
        "200 OK",
        "400 Bad Request",
        "403 Forbidden",
        "404 Not Found",
        "408 Request Timeout",
        "481 Call Does Not Exist",
        "491 Request Pending",
        "500 Server Error",
        "503 Unavailable",
        "603 Decline",
        "302 Moved",
        "",
    ] {
        let mut world = answered();
        let answers = world.sites[0].gateway.calls().next().unwrap();
        assert!(answers.answered.is_some());
        world.send(B.at, G, &of_b("BYE", 1));
        let bye = world.read(A.at, "BYE");
        match answer {
            "" => world.wait(33_000),
            _ => world.send(A.at, G, &A.response(&bye, answer, "")),
        }
        assert_eq!(world.outcomes(0), [CallOutcome::CalleeHungUp], "{answer}");
        assert_eq!(world.sites[0].gateway.free_ports(), 50, "{answer}");
    }
}

/// A request of B within the call, without a route: this gateway knows it by its tags.
fn of_b(method: &str, number: u32) -> String {
    let text = B.request((method, number, "sip:a@10.1.0.9"), "a", &[], "");
    text.replace("To: <sip:b@h>", "To: <sip:a@h>")
}

#[test]
fn a_bye_that_is_challenged_may_be_repeated_and_else_counts() {
    for is_repeated in [true, false] {
        let mut world = answered();
        world.send(B.at, G, &of_b("BYE", 1));
        let bye = world.read(A.at, "BYE");
        world.send(A.at, G, &A.response(&bye, "407 Proxy Authentication Required", ""));
        world.read(B.at, "407");
        assert_eq!(world.outcomes(0), [], "it may be repeated");
        if is_repeated {
            world.send(B.at, G, &of_b("BYE", 2));
            let bye = world.read(A.at, "BYE");
            world.send(A.at, G, &A.response(&bye, "200 OK", ""));
        } else {
            world.wait(34_000);
        }
        assert_eq!(world.outcomes(0), [CallOutcome::CalleeHungUp]);
    }
}

#[test]
fn a_bye_that_another_host_sends_counts_only_if_it_is_accepted() {
    for (answer, ends) in
        [("500 Server Error", false), ("481 No Such Call", false), ("200 OK", true)]
    {
        let mut world = answered();
        world.send("10.1.0.77:5060", G, &of_b("BYE", 1).replace(B.at, "10.1.0.77:5060"));
        let bye = world.read(A.at, "BYE");
        world.send(A.at, G, &A.response(&bye, answer, ""));
        assert_eq!(world.outcomes(0).is_empty(), !ends, "{answer}");
    }
}

#[test]
fn a_bye_that_this_gateway_refuses_ends_the_call_and_tells_the_other_end() {
    for (of_old, new) in
        [("Max-Forwards: 70", "Max-Forwards: 0"), ("BYE sip:a@10.1.0.9 ", "BYE tel:1 ")]
    {
        let mut world = answered();
        world.send(B.at, G, &of_b("BYE", 1).replace(of_old, new));
        assert_eq!(world.outcomes(0), [CallOutcome::CalleeHungUp], "{new}");
        assert_eq!(world.mail_of(A.at), ["BYE"], "{new}");
        assert_eq!(world.mail_of(B.at).len(), 1, "its refusal");
    }
    // One with an unsupported extension can be repeated without it.
    let mut world = answered();
    world.send(B.at, G, &of_b("BYE", 1).replace("Max-", "Proxy-Require: x\r\nMax-"));
    assert_eq!((world.mail_of(B.at), world.outcomes(0)), (vec!["420".to_owned()], vec![]));
}

const G2: &str = "10.2.0.1:5060";
const FAR: Agent = Agent { at: "10.2.0.9:5060", tag: "b", gateway: G2 };

/// A call between two sites, from A to FAR.
fn between_sites() -> World {
    let mut world = two_sites();
    let uri = "sip:b@10.2.0.9";
    world.send(A.at, G, &A.request(("INVITE", 1, uri), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(FAR.at, "INVITE");
    world.send(FAR.at, G2, &FAR.response(&invite, "200 OK", &sdp("10.2.0.9:5000")));
    let back = back(&world.read(A.at, "200"));
    world.send(A.at, G, &A.request(("ACK", 1, uri), "b", &back, ""));
    world.read(FAR.at, "ACK");
    world
}

#[test]
fn the_other_gateway_records_why_a_gateway_has_ended_a_call() {
    for (site, cause) in [
        (0, CallOutcome::Operator),
        (1, CallOutcome::Operator),
        (0, CallOutcome::Stopped),
        (0, CallOutcome::Idle),
    ] {
        for answer in ["200 OK", "500 Server Error", ""] {
            let mut world = between_sites();
            match cause {
                CallOutcome::Operator => hang_up(&mut world, site),
                CallOutcome::Stopped => {
                    let now = world.now;
                    let Site { gateway, board, .. } = &mut world.sites[site];
                    gateway.stop(now, board);
                    world.run();
                }
                _ => {
                    let port = world.sites[1].gateway.calls().next().unwrap().ports[0][0];
                    world.wait(300_000);
                    let now = world.now;
                    world.sites[1].gateway.heard(now, port);
                    world.wait(302_000);
                }
            }
            let far = if site == 0 { &FAR } else { &A };
            let bye = world.read(far.at, "BYE");
            assert!(!text(&bye).contains("X-Trunkline"), "phones need not know it");
            match answer {
                "" => world.wait(33_000),
                _ => world.send(far.at, far.gateway, &far.response(&bye, answer, "")),
            }
            assert_eq!(world.outcomes(1 - site), [cause], "{answer}");
        }
    }
}

#[test]
fn a_phone_cannot_pretend_to_be_a_gateway_that_ends_a_call() {
    let mut world = between_sites();
    let bye = A.request(("BYE", 2, "sip:b@10.2.0.9"), "b", &[], "");
    world.send(A.at, G, &bye.replace("Max-", "X-Trunkline-Ended: operator\r\nMax-"));
    let bye = world.read(FAR.at, "BYE");
    assert!(!text(&bye).contains("X-Trunkline"));
    world.send(FAR.at, G2, &FAR.response(&bye, "200 OK", ""));
    assert_eq!([world.outcomes(0), world.outcomes(1)], [[CallOutcome::CallerHungUp]; 2]);
}
