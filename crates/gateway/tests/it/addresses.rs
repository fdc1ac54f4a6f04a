//! A gateway between networks, and phones that name another address than they have.

use crate::common::*;
use std::net::IpAddr;
use trunkline_gateway::{Config, Remote, Socket, Transport};
use trunkline_sip::{Message, Name};

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.9.0.9:5060", tag: "b", gateway: G };
const URI: &str = "sip:b@10.9.0.9";

/// A gateway with a foot in 10.1.0.0/16 and one in 10.9.0.0/16.
fn between_networks() -> World {
    let second = at("10.9.0.1:5060");
    let mut config: Config = config(1, G);
    let local = second.ip();
    config.sockets.push(Socket { transport: Transport::Udp, address: second, local });
    config.media.push(second.ip());
    let mut world = World::new(vec![config]);
    for (remote, local) in [("10.1.0.9", "10.1.0.1"), ("10.9.0.9", "10.9.0.1")] {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        world.sites[0].board.locals.insert(ip(remote), ip(local));
    }
    world
}

fn invite(world: &mut World) -> Message {
    world.send(A.at, G, &A.request(("INVITE", 1, URI), "", &[], &sdp("10.1.0.9:4000")));
    world.read(B.at, "INVITE")
}

#[test]
fn each_network_is_given_the_address_in_it() {
    let mut world = between_networks();
    let invite = invite(&mut world);
    let text = |name| String::from_utf8_lossy(invite.first(name).unwrap()).into_owned();
    assert!(text(Name::Via).starts_with("SIP/2.0/UDP 10.9.0.1:5060"), "{}", text(Name::Via));
    let routes: Vec<_> = invite.list(Name::RecordRoute).collect();
    assert!(
        routes[0].starts_with(b"<sip:10.9.0.1:5060") && routes[1].starts_with(b"<sip:10.1.0.1")
    );
    let body = |message: &Message| String::from_utf8_lossy(message.body()).into_owned();
    assert!(body(&invite).contains("c=IN IP4 10.9.0.1"), "{}", body(&invite));
    world.send(B.at, G, &B.response(&invite, "200 OK", &sdp("10.9.0.9:5000")));
    let answer = world.read(A.at, "200");
    assert!(body(&answer).contains("c=IN IP4 10.1.0.1"), "{}", body(&answer));
}

/// Addresses that the media of the answering end may come from.
fn accepted(world: &World) -> Vec<IpAddr> {
    let site = &world.sites[0];
    let ports = site.gateway.calls().next().expect("a call").ports[0];
    let Remote::Udp { from, .. } = site.board.sends(ports[1]) else { panic!("a phone") };
    from.into_iter().flatten().collect()
}

#[test]
fn media_of_a_callee_without_a_proxy_may_come_from_where_its_answer_does() {
    let own: [IpAddr; 2] = ["192.168.0.7", "10.9.0.9"].map(|ip| ip.parse().unwrap());
    for (further, expected) in [("", &own[..]), ("Record-Route: <sip:10.9.0.8;lr>\r\n", &own[..1])]
    {
        let mut world = World::new(vec![config(1, G)]);
        let invite = invite(&mut world);
        let answer = B.response(&invite, "200 OK", &sdp("192.168.0.7:5000"));
        let answer = answer.replacen("Record-Route:", &format!("{further}Record-Route:"), 1);
        world.send(B.at, G, &answer);
        world.read(A.at, "200");
        assert_eq!(accepted(&world), expected, "{further}");
    }
}
