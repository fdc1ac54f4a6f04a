//! Offers that are answered early, refused late, or answered by several.

use crate::common::*;
use std::net::SocketAddr;
use trunkline_gateway::reception::Clocks;
use trunkline_gateway::{Event, Remote};
use trunkline_sip::Message;

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const C: Agent = Agent { at: "10.1.0.20:5060", tag: "c", gateway: G };
const URI: &str = "sip:b@10.1.0.20";

const WITH_VIDEO: &str = "m=video 4100 RTP/AVP 96\r\n";

/// Sends an INVITE with `body` and returns it as B receives it.
fn ring(world: &mut World, body: &str) -> Message {
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], body));
    world.read(B.at, "INVITE")
}

/// Sets up a call and returns the caller's routes.
fn call(world: &mut World) -> Vec<String> {
    let invite = ring(world, &sdp("10.1.0.9:4000"));
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let mut back = routes(&world.read(A.at, "200"));
    back.reverse();
    world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &back, ""));
    world.read(B.at, "ACK");
    back
}

/// B answers early with its stream at `place`. Returns the caller's routes.
fn answer_early(world: &mut World, invite: &Message, place: &str) -> Vec<String> {
    world.send(B.at, G, &B.response(invite, "183 Session Progress", &sdp(place)));
    let mut back = routes(&world.read(A.at, "183"));
    back.reverse();
    back
}

/// Addresses that RTP goes to on each side of stream `n`.
fn goes_to(world: &World, n: usize) -> [Option<SocketAddr>; 2] {
    let site = &world.sites[0];
    let ports = site.gateway.calls().next().expect("a call").ports[n];
    ports.map(|port| match site.board.sends(port) {
        Remote::Udp { rtp, .. } => rtp,
        _ => None,
    })
}

#[test]
fn what_is_answered_early_holds_and_is_undone_if_it_is_refused() {
    let mut world = World::new(vec![config(1, G)]);
    let back = call(&mut world);
    let before = goes_to(&world, 0);
    for said in ["488 Not Acceptable Here", "200 OK"] {
        let offer = sdp("10.1.0.9:4444") + WITH_VIDEO;
        let number = world.sites[0].gateway.stats().requests as u32 + 10;
        world.send(A.at, G, &A.request(("INVITE", number, URI), "b", &back, &offer));
        let invite = world.read(B.at, "INVITE");
        let answer = sdp("10.1.0.20:5555") + "m=video 5100 RTP/AVP 96\r\n";
        world.send(B.at, G, &B.response(&invite, "183 Session Progress", &answer));
        let agreed = ["10.1.0.9:4444", "10.1.0.20:5555"].map(|place| Some(at(place)));
        assert_eq!(goes_to(&world, 0), agreed);
        assert_eq!(world.sites[0].gateway.free_ports(), 46);
        // Acknowledging the early answer doesn't accept the offer for good.
        world.send(A.at, G, &A.request(("PRACK", number + 1, URI), "b", &back, ""));
        let prack = world.read(B.at, "PRACK");
        world.send(B.at, G, &B.response(&prack, "200 OK", ""));
        world.send(B.at, G, &B.response(&invite, said, ""));
        let refused = said != "200 OK";
        assert_eq!(goes_to(&world, 0), if refused { before } else { agreed }, "{said}");
        assert_eq!(world.sites[0].gateway.free_ports(), if refused { 48 } else { 46 });
    }
}

#[test]
fn a_stream_that_is_given_up_early_is_there_again_if_that_is_refused() {
    let mut world = World::new(vec![config(1, G)]);
    let back = call(&mut world);
    let before = goes_to(&world, 0);
    world.send(A.at, G, &A.request(("INVITE", 2, URI), "b", &back, &sdp("10.1.0.9:0")));
    let invite = world.read(B.at, "INVITE");
    world.send(B.at, G, &B.response(&invite, "183 Session Progress", &sdp("10.1.0.20:0")));
    assert_eq!(world.sites[0].gateway.free_ports(), 48);
    world.send(B.at, G, &B.response(&invite, "488 No", ""));
    assert_eq!(goes_to(&world, 0), before);
}

#[test]
fn a_fax_that_is_refused_leaves_audio() {
    let mut world = World::new(vec![config(1, G)]);
    let back = call(&mut world);
    let is_rtp = |world: &World| {
        let relays = world.sites[0].board.joined.values();
        relays.map(|relay| relay.as_ref().is_some_and(|relay| relay.is_rtp)).collect::<Vec<_>>()
    };
    assert_eq!(is_rtp(&world), [true; 2]);
    let offer = sdp("10.1.0.9:4000").replace("audio 4000 RTP/AVP 0", "image 4000 udptl t38");
    world.send(A.at, G, &A.request(("INVITE", 2, URI), "b", &back, &offer));
    let invite = world.read(B.at, "INVITE");
    assert_eq!(is_rtp(&world), [false; 2]);
    let call = world.sites[0].gateway.calls().next().unwrap();
    let mut ports = call.ports.concat();
    ports.sort();
    assert_eq!(call.no_speech, ports);
    world.send(B.at, G, &B.response(&invite, "488 No", ""));
    assert_eq!(is_rtp(&world), [true; 2]);
}

#[test]
fn who_is_chosen_of_several_need_not_say_again_where_it_is() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world, &sdp("10.1.0.9:4000"));
    for (agent, place) in [(&B, "10.1.0.20:5000"), (&C, "10.1.0.20:6000")] {
        world.send(B.at, G, &agent.response(&invite, "183 Session Progress", &sdp(place)));
        assert_eq!(goes_to(&world, 0)[1], Some(at(place)));
    }
    world.send(B.at, G, &B.response(&invite, "200 OK", ""));
    assert_eq!(goes_to(&world, 0)[1], Some(at("10.1.0.20:5000")));
}

#[test]
fn a_stream_that_one_of_several_does_not_want_is_there_for_the_others() {
    for chosen in [&B, &C] {
        for says_again in [false, true] {
            let mut world = World::new(vec![config(1, G)]);
            let invite = ring(&mut world, &(sdp("10.1.0.9:4000") + WITH_VIDEO));
            let offered = body(&invite);
            let video = offered.lines().find(|line| line.starts_with("m=video")).unwrap();
            let answers = [
                sdp("10.1.0.20:5000") + "m=video 0 RTP/AVP 96\r\n",
                sdp("10.1.0.20:6000") + "m=video 6100 RTP/AVP 96\r\n",
            ];
            for (agent, answer) in [&B, &C].into_iter().zip(&answers) {
                world.send(B.at, G, &agent.response(&invite, "183 Session Progress", answer));
            }
            let answer = &answers[usize::from(chosen.tag == "c")];
            let again = if says_again { &answer[..] } else { "" };
            world.send(B.at, G, &chosen.response(&invite, "200 OK", again));
            let site = &world.sites[0];
            if chosen.tag == "b" {
                assert_eq!(site.gateway.free_ports(), 48);
                continue;
            }
            assert_eq!(site.gateway.free_ports(), 46);
            assert_eq!(goes_to(&world, 1)[1], Some(at("10.1.0.20:6100")));
            // C sends to the port that it was offered.
            let ports = site.gateway.calls().next().unwrap().ports[1];
            assert!(video.contains(&format!(" {} ", ports[1])), "{video}: {ports:?}");
        }
    }
}

/// Starts a call `name` from A whose media go to `place`. Returns its ports.
fn call_to(world: &mut World, name: &str, place: &str) -> [u16; 2] {
    let invite = A.request(("INVITE", 1, URI), "", &[], &sdp(place));
    let invite = invite.replace("Call-ID: call", &format!("Call-ID: {name}"));
    world.send(A.at, G, &invite.replace("z9hG4bK", &format!("z9hG4bK{name}")));
    let mut calls = world.sites[0].gateway.calls();
    calls.find(|call| call.name == name).map_or([0; 2], |call| call.ports[0])
}

#[test]
fn calls_that_lead_into_each_other_are_few() {
    let mut world = World::new(vec![config(1, G)]);
    // Tail first: the media of each new call go into the previous one.
    let [_, mut into] = call_to(&mut world, "one", "10.1.0.9:4000");
    for name in ["two", "three", "four"] {
        [_, into] = call_to(&mut world, name, &format!("10.1.0.1:{into}"));
        assert_ne!(into, 0, "{name}");
    }
    call_to(&mut world, "five", &format!("10.1.0.1:{into}"));
    let refused = text(&world.read(A.at, "488"));
    assert!(refused.contains("pass this gateway too often"), "{refused}");
}

#[test]
fn calls_that_lead_into_each_other_are_few_whichever_comes_first() {
    let mut world = World::new(vec![config(1, G)]);
    let named =
        |text: String, name: &str| text.replace("Call-ID: call", &format!("Call-ID: {name}"));
    let mut invites = Vec::new();
    for n in 0..7 {
        let name = format!("call-{n}");
        let ports = call_to(&mut world, &name, "10.1.0.9:4000");
        invites.push((world.read(B.at, "INVITE"), name, ports));
    }
    // Head first: media for the callee of each call go into the next.
    let mut refused = None;
    for pair in invites.windows(2) {
        let [(invite, name, _), (_, _, next)] = pair else { unreachable!() };
        let answer = sdp(&format!("10.1.0.1:{}", next[0]));
        world.send(B.at, G, &named(B.response(invite, "200 OK", &answer), name));
        let ok = world.read(A.at, "200");
        if body(&ok).contains("m=audio 0 ") {
            refused = Some(name.clone());
            break;
        }
    }
    assert_eq!(refused.as_deref(), Some("call-3"));
    let is_told = |event: &Event| matches!(event, Event::Refused(_, _, why) if why.to_string().contains("too often"));
    assert!(world.sites[0].events.iter().any(is_told));
}

#[test]
fn the_clocks_that_a_description_names_are_the_streams() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world, &(sdp("10.1.0.9:4000") + "a=rtpmap:96 opus/48000/2\r\n"));
    let clocks = |world: &World| {
        let mut relays = world.sites[0].board.joined.values();
        relays.find_map(|relay| relay.as_ref().map(|relay| relay.clocks)).expect("a relay")
    };
    let mut expected = Clocks::default();
    expected.take(b"96 opus/48000/2");
    assert_eq!(clocks(&world), expected);
    let answer = sdp("10.1.0.20:5000") + "a=rtpmap:97 AMR-WB/16000\r\n";
    world.send(B.at, G, &B.response(&invite, "200 OK", &answer));
    expected.take(b"97 AMR-WB/16000");
    assert_eq!(clocks(&world), expected);
}

/// The caller changes its address to `place` before the answer, and B accepts with `agreed`.
fn update(world: &mut World, back: &[String], number: u32, (place, agreed): (&str, &str)) {
    world.send(A.at, G, &A.request(("UPDATE", number, URI), "b", back, &sdp(place)));
    let update = world.read(B.at, "UPDATE");
    world.send(B.at, G, &B.response(&update, "200 OK", &sdp(agreed)));
}

#[test]
fn a_port_that_was_given_back_before_the_answer_is_nobodys() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world, &sdp("10.1.0.9:4000"));
    let back = answer_early(&mut world, &invite, "10.1.0.20:5000");
    update(&mut world, &back, 2, ("10.1.0.9:0", "10.1.0.20:0"));
    assert_eq!(world.sites[0].gateway.free_ports(), 50);
    update(&mut world, &back, 3, ("10.1.0.9:4000", "10.1.0.20:5000"));
    let ports = world.sites[0].gateway.calls().next().unwrap().ports.clone();
    world.send(B.at, G, &B.response(&invite, "200 OK", ""));
    assert_eq!(world.sites[0].gateway.calls().next().unwrap().ports, ports);
    assert_eq!(goes_to(&world, 0)[1], Some(at("10.1.0.20:5000")));
    assert_eq!(world.sites[0].gateway.free_ports(), 48);
}

#[test]
fn what_was_agreed_to_last_before_the_answer_holds() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world, &sdp("10.1.0.9:4000"));
    for (agent, place) in [(&C, "10.1.0.20:6000"), (&B, "10.1.0.20:5000")] {
        world.send(B.at, G, &agent.response(&invite, "183 Session Progress", &sdp(place)));
    }
    let mut back = routes(&world.read(A.at, "183"));
    back.reverse();
    // B moves, then C answers again; B is chosen with its newest address.
    update(&mut world, &back, 2, ("10.1.0.9:4000", "10.1.0.20:5555"));
    world.send(B.at, G, &C.response(&invite, "183 Session Progress", &sdp("10.1.0.20:6666")));
    assert_eq!(goes_to(&world, 0)[1], Some(at("10.1.0.20:6666")));
    world.send(B.at, G, &B.response(&invite, "200 OK", ""));
    assert_eq!(goes_to(&world, 0)[1], Some(at("10.1.0.20:5555")));
}

#[test]
fn rtcp_does_not_go_round_either() {
    let mut world = World::new(vec![config(1, G)]);
    let [_, into] = call_to(&mut world, "one", "10.1.0.9:4000");
    // RTCP for the caller of `one` goes to `two`'s callee, and back.
    let rtcp =
        |port: u16| format!("{}a=rtcp:{} IN IP4 10.1.0.1\r\n", sdp("10.1.0.9:4000"), port + 1);
    let named =
        |text: String, name: &str| text.replace("Call-ID: call", &format!("Call-ID: {name}"));
    let invite = A.request(("INVITE", 1, URI), "", &[], &rtcp(into));
    let invite = invite.replace("z9hG4bK", "z9hG4bKtwo");
    world.send(A.at, G, &named(invite, "two"));
    let [_, back] =
        world.sites[0].gateway.calls().find(|call| call.name == "two").unwrap().ports[0];
    let one = world.read(B.at, "INVITE");
    world.send(B.at, G, &named(B.response(&one, "200 OK", &sdp("10.1.0.20:5000")), "one"));
    let mut routes = routes(&world.read(A.at, "200"));
    routes.reverse();
    let again = A.request(("INVITE", 2, URI), "b", &routes, &rtcp(back));
    world.send(A.at, G, &named(again, "one"));
    let refused = text(&world.read(A.at, "488"));
    assert!(refused.contains("come back"), "{refused}");
}

#[test]
fn an_answer_that_comes_again_in_another_ack_moves_nothing() {
    let mut world = World::new(vec![config(1, G)]);
    let invite = ring(&mut world, "");
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    let mut back = routes(&world.read(A.at, "200"));
    back.reverse();
    for place in ["10.1.0.9:4000", "10.1.0.9:6666"] {
        world.send(A.at, G, &A.request(("ACK", 1, URI), "b", &back, &sdp(place)));
        world.read(B.at, "ACK");
        assert_eq!(goes_to(&world, 0)[0], Some(at("10.1.0.9:4000")));
    }
}

#[test]
fn a_bye_that_is_challenged_ends_nothing_yet() {
    let mut world = World::new(vec![config(1, G)]);
    let back = call(&mut world);
    for (n, code, left) in [(7, 401, 1), (8, 407, 1), (9, 403, 0)] {
        world.send(A.at, G, &A.request(("BYE", n, URI), "b", &back, ""));
        let bye = world.read(B.at, "BYE");
        world.send(B.at, G, &B.response(&bye, &format!("{code} x"), ""));
        assert_eq!(world.sites[0].gateway.calls().count(), left, "{code}");
    }
}
