//! An INVITE that is challenged, and repeated with credentials: one call.

use crate::common::*;
use trunkline_gateway::CallOutcome;
use trunkline_sip::Message;

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const URI: &str = "sip:b@10.1.0.20";

fn challenged(code: &str) -> (World, Message) {
    let mut world = World::new(vec![config(1, G)]);
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&invite, code, ""));
    world.read(A.at, &code[..3]);
    // The acknowledgement of a refusal is the transaction's.
    world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &[], "").replace("1ACK", "1INVITE"));
    (world, invite)
}

#[test]
fn a_challenge_and_its_answer_are_one_call() {
    for code in ["407 Proxy Authentication Required", "401 Unauthorized"] {
        let (mut world, first) = challenged(code);
        world.wait(20_000);
        assert!(world.outcomes(0).is_empty());
        world.send(A.at, G, &A.request(("INVITE", 2, URI), "", &[], &sdp("10.1.0.9:4000")));
        let second = world.read(B.at, "INVITE");
        assert_eq!(wanted(&first), wanted(&second), "the same ports");
        world.send(B.at, G, &B.response(&second, "200 OK", &sdp("10.1.0.20:5000")));
        let mut back = routes(&world.read(A.at, "200"));
        back.reverse();
        world.send(A.at, G, &A.request(("ACK", 2, URI), "b", &back, ""));
        world.wait(40_000);
        let stats = world.sites[0].gateway.stats();
        assert_eq!((stats.calls, stats.answered, stats.live), (1, 1, 1));
        world.send(A.at, G, &A.request(("BYE", 3, URI), "b", &back, ""));
        let bye = world.read(B.at, "BYE");
        world.send(B.at, G, &B.response(&bye, "200 OK", ""));
        assert_eq!(world.outcomes(0), [CallOutcome::CallerHungUp]);
        assert_eq!(world.sites[0].gateway.free_ports(), 50);
    }
}

#[test]
fn a_challenge_without_an_answer_ends_the_call() {
    let (mut world, _) = challenged("407 Proxy Authentication Required");
    world.wait(31_000);
    assert!(world.outcomes(0).is_empty());
    world.wait(2_000);
    assert_eq!(world.outcomes(0), [CallOutcome::Refused(407)]);
    assert_eq!(world.sites[0].gateway.free_ports(), 50);
    // The same Call-ID from another host, or with another tag, is another call.
    for (from, tag) in [("10.1.0.8:5060", "a"), (A.at, "c")] {
        let (mut world, _) = challenged("407 Proxy Authentication Required");
        let invite = A.request(("INVITE", 2, URI), "", &[], &sdp("10.1.0.9:4000"));
        world.send(from, G, &invite.replace(";tag=a", &format!(";tag={tag}")));
        world.read(B.at, "INVITE");
        assert_eq!(world.sites[0].gateway.stats().calls, 2, "{from} {tag}");
    }
}

/// A registrar that challenges whatever it gets: the phone's every try is a part of the same call,
/// and of those that give up none stays.
#[test]
fn a_registrar_that_challenges_for_ever_keeps_one_call() {
    let mut world = World::new(vec![config(1, G)]);
    for number in 1..50 {
        world.send(A.at, G, &A.request(("INVITE", number, URI), "", &[], &sdp("10.1.0.9:4000")));
        let invite = world.read(B.at, "INVITE");
        world.send(B.at, G, &B.response(&invite, "407 Proxy Authentication Required", ""));
        world.read(A.at, "407");
        world.wait(1_000);
    }
    let stats = world.sites[0].gateway.stats();
    assert_eq!((stats.calls, stats.live), (1, 1));
    world.wait(40_000);
    assert_eq!(world.outcomes(0), [CallOutcome::Refused(407)]);
}
