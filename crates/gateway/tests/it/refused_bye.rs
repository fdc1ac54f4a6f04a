//! BYEs that don't arrive, because a proxy refuses them or doesn't answer: the other end is told past
//! that proxy. A BYE that is challenged ends a call only if its sender has really hung up.

use crate::common::*;
use trunkline_gateway::CallOutcome;
use trunkline_sip::{Message, Name};

const G: &str = "10.1.0.1:5060";
const PROXY: &str = "10.3.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const URI: &str = "sip:b@10.1.0.20:5060";

/// A call through a proxy that stays on its path, and A's routes. B is beyond the proxy, or at this
/// gateway, to which the proxy sends the call back.
fn through_proxy(is_local: bool) -> (World, Vec<String>) {
    let mut world = World::new(vec![config(1, G)]);
    let to = "sip:b@10.3.0.1";
    world.send(A.at, G, &A.request(("INVITE", 1, to), "", &[], &sdp("10.1.0.9:4000")));
    let invite = text(&world.read(PROXY, "INVITE"));
    let own = format!("Record-Route: <sip:{PROXY};lr>\r\n");
    let via = format!("Via: SIP/2.0/UDP {PROXY};branch=z9hG4bKp\r\n");
    let invite = invite.replace(to, URI).replacen("Via:", &format!("{own}{via}Via:"), 1);
    let invite = if is_local {
        world.send(PROXY, G, &invite);
        world.read(B.at, "INVITE")
    } else {
        Message::parse(invite.as_bytes()).unwrap()
    };
    let mut answer = B.response(&invite, "200 OK", &sdp("10.1.0.20:5000"));
    if is_local {
        world.send(B.at, G, &answer);
        answer = text(&world.read(PROXY, "200"));
    }
    let start = answer.find(&via[..via.len() - 2]).unwrap();
    let end = start + answer[start..].find("\r\n").unwrap() + 2;
    world.send(PROXY, G, &format!("{}{}", &answer[..start], &answer[end..]));
    let mut back = routes(&world.read(A.at, "200"));
    back.reverse();
    (world, back)
}

/// A's BYE, as the proxy gets it.
fn hang_up(world: &mut World, back: &[String], number: u32) -> Message {
    world.send(A.at, G, &A.request(("BYE", number, URI), "b", back, ""));
    world.read(PROXY, "BYE")
}

#[test]
fn the_other_end_is_told_past_a_proxy_that_refuses_a_bye() {
    for is_local in [true, false] {
        for answer in [
            "302 Moved",
            "401 Unauthorized",
            "403 Forbidden",
            "407 Proxy Authentication Required",
            "500 Server Error",
            "603 Decline",
            "",
        ] {
            let (mut world, back) = through_proxy(is_local);
            let bye = hang_up(&mut world, &back, 2);
            if !answer.is_empty() {
                world.send(PROXY, G, &B.response(&bye, answer, ""));
            }
            // The phone doesn't repeat it with credentials.
            let waits = answer.is_empty() || answer.starts_with("40") && !answer.contains("403");
            assert_eq!(world.mail_of(B.at).is_empty(), waits, "{is_local} {answer}");
            world.wait(if waits { 34_000 } else { 0 });
            let bye = world.read(B.at, "BYE");
            assert_eq!(bye.list(Name::Route).count(), 0, "{answer}");
            assert_eq!(bye.from().unwrap().tag(), Some(&b"a"[..]));
            assert_eq!(bye.to().unwrap().tag(), Some(&b"b"[..]));
            assert_eq!(bye.cseq().unwrap().number, 3);
            world.send(B.at, G, &B.response(&bye, "200 OK", ""));
            assert_eq!(world.outcomes(0), [CallOutcome::CallerHungUp], "{answer}");
            assert_eq!(world.sites[0].gateway.free_ports(), 50, "{answer}");
            assert!(world.sites[0].gateway.is_quiet());
        }
    }
}

#[test]
fn an_end_that_refuses_the_bye_itself_is_not_told_again() {
    for (is_local, answer) in [(true, "481 No Such Call"), (false, "481 No Such Call")] {
        let (mut world, back) = through_proxy(is_local);
        let bye = hang_up(&mut world, &back, 2);
        world.send(PROXY, G, &B.response(&bye, answer, ""));
        assert_eq!(world.outcomes(0), [CallOutcome::CallerHungUp]);
        assert_eq!(world.mail_of(B.at), [""; 0]);
    }
    // Without a proxy, whatever refuses it is the end itself.
    for answer in ["403 Forbidden", "500 Server Error", "407 Who", ""] {
        let mut world = World::new(vec![config(1, G)]);
        world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
        let invite = world.read(B.at, "INVITE");
        world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
        let mut back = routes(&world.read(A.at, "200"));
        back.reverse();
        world.send(A.at, G, &A.request(("BYE", 2, URI), "b", &back, ""));
        let bye = world.read(B.at, "BYE");
        if !answer.is_empty() {
            world.send(B.at, G, &B.response(&bye, answer, ""));
        }
        world.wait(34_000);
        assert_eq!(world.outcomes(0), [CallOutcome::CallerHungUp]);
        let branch = bye.via().unwrap().branch();
        let mut its = world.mail.iter().filter(|(to, _)| *to == at(B.at));
        assert!(its.all(|(_, it)| it.via().unwrap().branch() == branch), "{answer}");
    }
}

#[test]
fn a_challenged_bye_counts_unless_its_sender_is_heard_of_again() {
    let (caller, callee) = (0, 1);
    for (again, ends) in [
        ("BYE", true),
        ("ACK", true),
        ("INFO", false),
        ("INVITE", false),
        ("packets of the callee", true),
        ("packets of the caller", false),
        ("packets at once", true),
        ("", true),
    ] {
        let (mut world, back) = through_proxy(false);
        let bye = hang_up(&mut world, &back, 2);
        world.send(PROXY, G, &B.response(&bye, "407 Proxy Authentication Required", ""));
        world.wait(if again == "packets at once" { 1_000 } else { 6_000 });
        let ports = world.sites[0].gateway.calls().next().unwrap().ports[0];
        let (now, site) = (world.now, &mut world.sites[0]);
        match again {
            "" => {}
            "packets of the callee" => site.gateway.heard(now, ports[callee]),
            "packets of the caller" | "packets at once" => site.gateway.heard(now, ports[caller]),
            method => {
                let body = if method == "INVITE" { sdp("10.1.0.9:4000") } else { String::new() };
                world.send(A.at, G, &A.request((method, 3, URI), "b", &back, &body));
                world.read(PROXY, method);
            }
        }
        world.wait(40_000);
        let want = if ends { vec![CallOutcome::CallerHungUp] } else { vec![] };
        assert_eq!(world.outcomes(0), want, "{again}");
    }
}
