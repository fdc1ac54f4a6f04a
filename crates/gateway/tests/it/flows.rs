//! The connections that a gateway's calls and requests need.

use crate::common::*;
use trunkline_base::Time;
use trunkline_gateway::Gateway;
use trunkline_sip::Message;
use trunkline_sip::transaction::Hop;

const G: &str = "10.1.0.1:5060";
const A: Agent = Agent { at: "10.1.0.9:5060", tag: "a", gateway: G };
const B: Agent = Agent { at: "10.1.0.20:5060", tag: "b", gateway: G };
const URI: &str = "sip:b@10.1.0.20;transport=tcp";

#[test]
fn a_connection_is_in_use_while_a_call_or_an_unanswered_request_needs_it() {
    let mut gateway = Gateway::new(config(1, G), [1; 32], &[9; 32]);
    let mut board = PortBoard::default();
    let phone = gateway.connected(1, at(A.at));
    let idle = gateway.connected(1, at("10.1.0.9:40000"));
    let hop = |connection, agent: &Agent| Hop {
        socket: 1,
        remote: at(agent.at),
        connection: Some(connection),
    };
    let mut take = |from: Option<(u64, &Agent)>, text: &str| {
        if let Some((connection, agent)) = from {
            let now = Time::from_millis(1_000);
            gateway.receive(now, hop(connection, agent), text.as_bytes(), &mut board);
        }
        let sent: Vec<_> = std::iter::from_fn(|| gateway.poll()).collect();
        let last = sent.last().map(|last| {
            (last.to.connection.expect("by TCP"), Message::parse(&last.bytes).expect("a message"))
        });
        let used: Vec<u64> = gateway.connections_in_use().into_iter().collect();
        (last, used)
    };
    let from_a = Some((phone, &A));
    assert_eq!(take(None, "").1, []);

    let options = A.request(("OPTIONS", 1, URI), "", &[], "");
    let (Some((server, request)), used) = take(from_a, &options) else { panic!() };
    assert_eq!(used, [phone, server]);
    let from_b = Some((server, &B));
    assert_eq!(take(from_b, &B.response(&request, "200 OK", "")).1, []);

    let invite = A.request(("INVITE", 2, URI), "", &[], &sdp("10.1.0.9:4000"));
    let (Some((_, request)), used) = take(from_a, &invite) else { panic!() };
    assert_eq!(used, [phone, server]);
    let (Some((_, answer)), used) =
        take(from_b, &B.response(&request, "200 OK", &sdp("10.1.0.20:5000")))
    else {
        panic!()
    };
    assert_eq!(used, [phone, server]);
    let mut back = routes(&answer);
    back.reverse();
    let (Some((_, bye)), _) = take(from_a, &A.request(("BYE", 3, URI), "b", &back, "")) else {
        panic!()
    };
    assert_eq!(take(from_b, &B.response(&bye, "200 OK", "")).1, []);
    assert!(gateway.is_open(idle));
}
