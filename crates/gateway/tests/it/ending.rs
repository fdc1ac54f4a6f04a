//! Calls that the gateway ends: both ends are told, by a BYE in the name of the other.

use crate::common::*;
use std::time::Duration;
use trunkline_gateway::{CallOutcome, CallSelection, Config, Farewell};
use trunkline_sip::{Message, Name};

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const URI: &str = "sip:b@10.1.0.20";

fn with(body_of_a: &str, body_of_b: &str, extra: &str, config: Config) -> World {
    let mut world = World::new(vec![config]);
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], body_of_a));
    let invite = world.read(B.at, "INVITE");
    let answer = B.response(&invite, "200 OK", body_of_b);
    world.send(B.at, G, &answer.replacen("Contact:", &format!("{extra}Contact:"), 1));
    let mut back = routes(&world.read(A.at, "200"));
    back.reverse();
    world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &back, ""));
    world.read(B.at, "ACK");
    world
}

fn call() -> World {
    with(&sdp("10.1.0.9:4000"), &sdp("10.1.0.20:5000"), "", config(1, G))
}

fn named(name: &str) -> CallSelection {
    CallSelection::Named(name.to_owned())
}

fn value(message: &Message, name: Name) -> String {
    String::from_utf8_lossy(message.first(name).unwrap_or_default()).into_owned()
}

/// Checks the BYE that each end has got, and answers it.
fn hear_byes(world: &mut World) {
    for (end, from, to) in [(&A, "tag=b", "tag=a"), (&B, "tag=a", "tag=b")] {
        let bye = world.read(end.at, "BYE");
        assert!(value(&bye, Name::From).contains(from) && value(&bye, Name::To).contains(to));
        assert_eq!(bye.list(Name::Via).count(), 1);
        assert!(bye.cseq().unwrap().number > 0 && text(&bye).contains("\r\nReason: SIP;"));
        assert_eq!(value(&bye, Name::CallId), "call");
        world.send(end.at, G, &end.response(&bye, "200 OK", ""));
    }
    assert!(world.sites[0].gateway.is_quiet());
    assert_eq!(world.sites[0].gateway.free_ports(), 50);
}

#[test]
fn a_call_without_a_sign_of_life_is_ended_at_both_ends() {
    let mut world = call();
    world.wait(599_000);
    assert_eq!(world.mail_of(A.at), [""; 0]);
    world.wait(2_000);
    hear_byes(&mut world);
    assert_eq!(world.outcomes(0), [CallOutcome::Idle]);
}

#[test]
fn silence_that_was_agreed_is_not_idle() {
    let held = |place: &str, direction: &str| format!("{}a={direction}\r\n", sdp(place));
    for (a, b) in [
        (held("10.1.0.9:4000", "inactive"), held("10.1.0.20:5000", "inactive")),
        (held("10.1.0.9:4000", "sendonly"), held("10.1.0.20:5000", "recvonly")),
        (sdp("10.1.0.9:4000"), sdp("10.1.0.20:5000").replace("IP4 10.1.0.20", "IP4 0.0.0.0")),
    ] {
        let mut world = with(&a, &b, "", config(1, G));
        world.wait(2 * 3_600_000);
        assert_eq!(world.outcomes(0), [], "{a} {b}");
        world.wait(11 * 3_600_000);
        assert_eq!(world.outcomes(0), [CallOutcome::Idle], "{a} {b}");
    }
}

#[test]
fn the_time_is_a_setting_and_at_least_that_of_the_session_timer() {
    for (idle, timer, ends) in [(60, "", 60), (60, "Session-Expires: 1800\r\n", 2_700)] {
        let config = Config { idle: Duration::from_secs(idle), ..config(1, G) };
        let mut world = with(&sdp("10.1.0.9:4000"), &sdp("10.1.0.20:5000"), timer, config);
        world.wait(1_000 * ends - 1_000);
        assert_eq!(world.outcomes(0), [], "{timer}");
        world.wait(3_000);
        assert_eq!(world.outcomes(0), [CallOutcome::Idle], "{timer}");
    }
}

#[test]
fn an_end_that_does_not_answer_its_bye_is_told_again_and_then_left() {
    for answer in ["481 Call/Transaction Does Not Exist", "408 Request Timeout", ""] {
        let mut world = call();
        let site = &mut world.sites[0];
        assert_eq!(site.gateway.hang_up(world.now, &named("call"), &mut site.board), 1);
        world.run();
        let bye = world.read(A.at, "BYE");
        if answer.is_empty() {
            world.wait(40_000);
            assert_eq!(world.mail_of(A.at).len(), 10, "timer E");
        } else {
            world.send(A.at, G, &A.response(&bye, answer, ""));
            let bye = world.read(B.at, "BYE");
            world.send(B.at, G, &B.response(&bye, answer, ""));
        }
        assert!(world.sites[0].gateway.is_quiet(), "{answer}");
        assert_eq!(world.outcomes(0), [CallOutcome::Operator]);
    }
}

#[test]
fn an_answer_that_its_caller_never_acknowledges_is_acknowledged_before_its_end() {
    for is_idle in [true, false] {
        let mut world = World::new(vec![config(1, G)]);
        world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
        let invite = world.read(B.at, "INVITE");
        world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
        world.mail.clear();
        if is_idle {
            world.wait(66_000);
        } else {
            let site = &mut world.sites[0];
            assert_eq!(site.gateway.hang_up(world.now, &CallSelection::All, &mut site.board), 1);
            world.run();
        }
        assert_eq!(world.mail_of(B.at)[..2], ["ACK", "BYE"]);
        let [ack, bye] = ["ACK", "BYE"].map(|what| world.read(B.at, what));
        assert_eq!(
            (value(&ack, Name::CSeq), value(&bye, Name::CSeq)),
            ("1 ACK".into(), "2 BYE".into())
        );
        for name in [Name::From, Name::To, Name::CallId] {
            assert_eq!(value(&ack, name), value(&bye, name));
        }
        assert!(world.mail_of(A.at).contains(&"BYE".to_owned()));
    }
    // An acknowledged one is not acknowledged again.
    let mut world = call();
    let site = &mut world.sites[0];
    site.gateway.hang_up(world.now, &CallSelection::All, &mut site.board);
    world.run();
    assert_eq!(world.mail_of(B.at), ["BYE"]);
}

#[test]
fn only_the_call_that_is_meant_is_ended() {
    let mut world = call();
    let site = &mut world.sites[0];
    assert_eq!(site.gateway.hang_up(world.now, &named("another"), &mut site.board), 0);
    assert_eq!(site.gateway.stats().live, 1);
    assert_eq!(site.gateway.hang_up(world.now, &CallSelection::All, &mut site.board), 1);
    world.run();
    hear_byes(&mut world);
}

#[test]
fn a_stop_tells_all_ends_unless_it_is_not_wanted() {
    for bye_at_stop in [true, false] {
        let config = Config { bye_at_stop, ..config(1, G) };
        let mut world = with(&sdp("10.1.0.9:4000"), &sdp("10.1.0.20:5000"), "", config);
        let ring = A.request(("INVITE", 7, URI), "", &[], &sdp("10.1.0.9:4100"));
        world.send(A.at, G, &ring.replace("Call-ID: call", "Call-ID: ring"));
        let invite = world.read(B.at, "INVITE");
        let ringing = B.response(&invite, "180 Ringing", "");
        world.send(B.at, G, &ringing.replace("Call-ID: call", "Call-ID: ring"));
        world.read(A.at, "180");
        let site = &mut world.sites[0];
        site.gateway.stop(world.now, &mut site.board);
        world.run();
        assert_eq!(world.outcomes(0), [CallOutcome::Stopped; 2]);
        if bye_at_stop {
            // The call that rings is refused and cancelled.
            assert_eq!(world.mail_of(A.at), ["BYE", "503"]);
            assert_eq!(world.mail_of(B.at), ["BYE", "CANCEL"]);
            let ended = B.response(&invite, "487 Request Terminated", "");
            world.send(B.at, G, &ended.replace("Call-ID: call", "Call-ID: ring"));
            hear_byes(&mut world);
        } else {
            assert_eq!((world.mail_of(A.at), world.mail_of(B.at)), (vec![], vec![]));
        }
    }
}

/// A call whose answer has been changed, and the gateway stops.
fn stopped(answer: impl Fn(String) -> String, rings: Option<&str>) -> World {
    let mut world = World::new(vec![config(1, G)]);
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.at, "INVITE");
    match rings {
        Some("") => {}
        Some(said) => world.send(B.at, G, &B.response(&invite, said, "")),
        None => {
            let said = B.response(&invite, "200 OK", &sdp("10.1.0.20:5000"));
            world.send(B.at, G, &answer(said));
            let mut back = routes(&world.read(A.at, "200"));
            back.reverse();
            world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &back, ""));
        }
    }
    world.mail.clear();
    let site = &mut world.sites[0];
    site.gateway.stop(world.now, &mut site.board);
    world
}

#[test]
fn a_stop_counts_the_ends_that_are_told_and_answer() {
    let same = |answer: String| answer;
    let farewell = |world: &World| {
        let Farewell { ends, told, unanswered } = world.sites[0].gateway.farewell();
        (ends, told, unanswered)
    };
    let mut world = stopped(same, None);
    world.run();
    assert_eq!(farewell(&world), (2, 2, 2));
    for (left, end, answer) in [(1, &A, "200 OK"), (0, &B, "481 No Such Call")] {
        let bye = world.read(end.at, "BYE");
        world.send(end.at, G, &end.response(&bye, answer, ""));
        assert_eq!(farewell(&world), (2, 2, left));
    }
    // An end without a way to it.
    let world = stopped(|answer| answer.replace("Contact: <sip:b@", "Subject: <sip:b@"), None);
    assert_eq!(farewell(&world), (2, 1, 1));
    // An end that takes no connection.
    let mut world =
        stopped(|answer| answer.replace("@10.1.0.20:5060>", "@10.1.0.21;transport=tcp>"), None);
    let Site { gateway, board, .. } = &mut world.sites[0];
    let all: Vec<_> = std::iter::from_fn(|| gateway.poll()).collect();
    let connection = all.iter().find_map(|output| output.to.connection).expect("a connection");
    gateway.unreachable(world.now, connection, board);
    assert!(gateway.poll().is_none(), "a response to itself");
    assert_eq!(farewell(&world), (2, 1, 1));
    // An end that rings has to be cancelled, and one that may not even be there can't be.
    let mut world = stopped(same, Some("180 Ringing"));
    world.run();
    assert_eq!(farewell(&world), (2, 2, 1));
    let cancel = world.read(B.at, "CANCEL");
    world.send(B.at, G, &B.response(&cancel, "200 OK", ""));
    let ended = B.response(&cancel, "487 Request Terminated", "");
    world.send(B.at, G, &ended.replace("1 CANCEL", "1 INVITE"));
    assert_eq!(farewell(&world), (2, 2, 0));
    assert_eq!(farewell(&stopped(same, Some(""))), (2, 1, 0));
}

#[test]
fn proxies_on_the_way_are_passed() {
    let mut world = World::new(vec![config(1, G)]);
    // Proxy P1 is between the caller and the gateway, P2 between it and the callee.
    let [p1, p2] = ["10.3.0.1:5060", "10.4.0.1:5060"];
    let invite =
        A.request(("INVITE", 1, URI), "", &[format!("<sip:{p2};lr>")], &sdp("10.1.0.9:4000"));
    let invite = invite.replacen(
        "\r\n",
        &format!(
            "\r\nVia: SIP/2.0/UDP {p1};branch=z9hG4bKp1\r\n\
        Record-Route: <sip:{p1};lr>\r\n"
        ),
        1,
    );
    world.send(p1, G, &invite);
    let invite = world.read(p2, "INVITE");
    let answer = B.response(&invite, "200 OK", &sdp("10.1.0.20:5000"));
    let answer = answer.replacen(
        "Record-Route:",
        &format!("Record-Route: <sip:{p2};lr>\r\nRecord-Route:"),
        1,
    );
    world.send(p2, G, &answer);
    world.read(p1, "200");
    let site = &mut world.sites[0];
    site.gateway.hang_up(world.now, &CallSelection::All, &mut site.board);
    world.run();
    for (proxy, target) in [(p1, "sip:a@10.1.0.9:5060"), (p2, "sip:b@10.1.0.20:5060")] {
        let bye = world.read(proxy, "BYE");
        assert!(text(&bye).starts_with(&format!("BYE {target} SIP/2.0\r\n")), "{}", text(&bye));
        let routes: Vec<_> = bye.list(Name::Route).collect();
        assert_eq!(routes, [format!("<sip:{proxy};lr>").as_bytes()]);
    }
}

/// Ends a call whose INVITE and answer have been changed; the BYEs to A and to B.
fn odd(
    invite: impl Fn(String) -> String,
    answer: impl Fn(String) -> String,
) -> [Option<Message>; 2] {
    let mut world = World::new(vec![config(1, G)]);
    let begun = A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000"));
    world.send(A.at, G, &invite(begun));
    let got = world.read(B.at, "INVITE");
    world.send(B.at, G, &answer(B.response(&got, "200 OK", &sdp("10.1.0.20:5000"))));
    world.read(A.at, "200");
    let site = &mut world.sites[0];
    site.gateway.hang_up(world.now, &CallSelection::All, &mut site.board);
    world.run();
    assert_eq!(world.outcomes(0), [CallOutcome::Operator]);
    assert_eq!(world.sites[0].gateway.free_ports(), 50);
    [A.at, B.at].map(|end| (!world.mail_of(end).is_empty()).then(|| world.read(end, "BYE")))
}

#[test]
fn an_end_that_gives_no_way_to_it_does_not_keep_the_other_in_the_call() {
    let same = |text: String| text;
    let without_contact = |text: String| {
        let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("Contact:"));
        lines.collect::<String>()
    };
    let far = |text: String| {
        let route = format!("Record-Route: <sip:10.1.0.9;lr;x={}>\r\n", "y".repeat(2_100));
        text.replacen("Contact:", &format!("{route}Contact:"), 1)
    };
    let tags =
        |bye: &Message| [bye.from(), bye.to()].map(|end| end.unwrap().tag().unwrap().to_vec());
    let (a, b) = (b"a".to_vec(), b"b".to_vec());
    for [to_a, to_b] in [odd(without_contact, same), odd(far, same)] {
        assert!(to_a.is_none());
        assert_eq!(tags(&to_b.expect("a BYE")), [a.clone(), b.clone()]);
    }
    let [to_a, to_b] = odd(same, without_contact);
    assert!(to_b.is_none());
    assert_eq!(tags(&to_a.expect("a BYE")), [b.clone(), a.clone()]);
    // A long name is not repeated.
    let named =
        |text: String| text.replacen("From: <", &format!("From: \"{}\" <", "n".repeat(3_000)), 1);
    let [to_a, to_b] = odd(named, same).map(|bye| bye.expect("a BYE"));
    assert_eq!((tags(&to_a), tags(&to_b)), ([b.clone(), a.clone()], [a, b]));
    assert_eq!(to_b.first(Name::From), Some(&b"<sip:a@h>;tag=a"[..]));
}
