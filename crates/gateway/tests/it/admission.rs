//! Calls that a trunk between two gateways does not take.

use crate::common::*;
use trunkline_gateway::{CallOutcome, Config};
use trunkline_overlay::wire::NodeId;
use trunkline_sip::Message;

const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: "10.1.0.1:5060" };
const B: Agent = Agent { at: "10.2.0.9:5060", tag: "b", gateway: "10.2.0.1:5060" };

fn refused(world: &mut World) -> Message {
    let refusal = world.read(A.at, "503");
    assert!(text(&refusal).contains("\r\nRetry-After: 5\r\n"), "{}", text(&refusal));
    assert!(text(&refusal).contains("takes no new calls"), "{}", text(&refusal));
    assert_eq!(world.mail_of(B.at), [""; 0]);
    refusal
}

fn answered(world: &mut World, name: &str) {
    call_from(world, &A, A.at, name, "10.1.0.9:4000");
    let invite = world.read(B.at, "INVITE");
    let answer = B.response(&invite, "200 OK", &sdp("10.2.0.9:5000"));
    world.send(B.at, B.gateway, &answer.replace("Call-ID: call", &format!("Call-ID: {name}")));
    world.read(A.at, "200");
}

#[test]
fn the_far_gateway_judges_by_the_offer() {
    let mut world = two_sites();
    world.sites[1].board.full.insert(1);
    call_from(&mut world, &A, A.at, "first", "10.1.0.9:4000");
    refused(&mut world);
    assert_eq!(world.outcomes(1), [CallOutcome::Trunk]);
    assert_eq!(world.outcomes(0), [CallOutcome::Refused(503)]);
    assert!(world.sites.iter().all(|site| site.gateway.free_ports() == 50));
    // Room again: the next call is taken.
    world.sites[1].board.full.clear();
    answered(&mut world, "second");
}

#[test]
fn the_near_gateway_judges_by_the_node_of_the_last_call() {
    let mut world = two_sites();
    answered(&mut world, "first");
    world.sites[0].board.full.insert(2);
    call_from(&mut world, &A, A.at, "second", "10.1.0.9:4100");
    refused(&mut world);
    assert_eq!(world.outcomes(0), [CallOutcome::Trunk]);
    // The call that was let in stays in.
    let ids: Vec<_> =
        world.sites[0].gateway.calls().map(|call| (call.name, call.is_over)).collect();
    assert_eq!(ids, [("first".to_owned(), true)]);
}

#[test]
fn the_near_gateway_judges_by_a_node_that_is_configured() {
    for nodes in [vec![("10.2.0.1/32".parse().unwrap(), NodeId(2))], vec![]] {
        let known = !nodes.is_empty();
        let configs = two_sites().sites.into_iter().map(|site| site.gateway.config().clone());
        let mut configs: Vec<Config> = configs.collect();
        configs[0].nodes = nodes;
        let mut world = World::new(configs);
        world.sites[0].board.full.insert(2);
        if known {
            call_from(&mut world, &A, A.at, "first", "10.1.0.9:4000");
            refused(&mut world);
        } else {
            // An unknown node's call passes.
            answered(&mut world, "first");
            assert!(world.sites[0].gateway.calls().next().unwrap().is_over);
        }
    }
}
