//! Scripts for a node, its neighbours and its applications.

use super::script;
use crate::seeds::{data_frame, echoes, hello_frame, nack_frame, written};
use crate::world::Step as N;
use trunkline_overlay::node::NODE_PORT;
use trunkline_overlay::session::wire::stream::Request;
use trunkline_overlay::session::wire::{SESSION_VERSION, ToNode};
use trunkline_overlay::wire::{
    ControlKind, DataHeader, FlowHeader, Goodbye, HopHeader, NackRange, NodeId, Service,
};

const REAL_TIME: u8 = 0;
const BEST_EFFORT: u8 = 1;
/// Indices into `destination`, by role.
const SELF: u8 = 0;
const FIRST: u8 = 1;
const BEHIND_FIRST: u8 = 4;
const BEHIND_SECOND: u8 = 5;
const BY_DEFAULT: u8 = 6;

fn peer_send(link: u8, service: u8, to: u8, len: u16, count: u8) -> N {
    N::Send { node: link + 1, session: 0, service, deadline: 100, to, port: 5, len, count }
}

fn send(service: u8, to: u8, len: u16, count: u8) -> N {
    N::Send { node: 0, session: 0, service, deadline: 200, to, port: 5, len, count }
}

const SETTLE: N = N::Settle { node: 0, arena: 3 };
const ALL: N = N::Arrive { node: 0, n: 255, age: 0 };

fn ms(n: u8) -> N {
    N::Sleep { unit: 1, n }
}

/// Hellos in both directions, twice, so that all links are up and measured.
fn greetings() -> Vec<N> {
    let quarter = N::Sleep { unit: 2, n: 12 };
    let round = [quarter, N::PeersHear {}, ALL, SETTLE, ms(5), N::PeersHear {}, ALL, SETTLE];
    [round.clone(), round].concat()
}

/// An application of the node, bound to port 5.
fn application() -> Vec<N> {
    vec![N::Open {}, N::Bind { session: 0, port: 5 }]
}

pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let script = |settings: [u8; 5], parts: &[Vec<N>]| script(0, &settings, &parts.concat());
    let plain = [1, 1, 0, 2, 0];
    let lossy_relay = vec![
        peer_send(0, REAL_TIME, BEHIND_SECOND, 160, 6),
        N::Lose { node: 0, pick: 2 },
        N::Lose { node: 0, pick: 2 },
        ALL,
        SETTLE,
        ms(10),
        N::PeersHear {},
        ALL,
        SETTLE,
        N::Nack { link: 1, first: 1, count: 2, n: 0, step: 0 },
        SETTLE,
        ms(120),
        N::Nack { link: 1, first: 1, count: 2, n: 3, step: 2 },
        N::Wake { node: 0, arena: 0 },
    ];
    let crowded = vec![
        send(REAL_TIME, BY_DEFAULT, 1_100, 20),
        send(BEST_EFFORT, BY_DEFAULT, 1_100, 9),
        send(BEST_EFFORT, FIRST, 200, 9),
        send(REAL_TIME, BEHIND_FIRST, 900, 20),
        N::Room { uplink: 0, bytes: 3_000 },
        N::Transmit { bytes: 5, runs: 0 },
        N::Transmit { bytes: 160, runs: 0 },
        N::Transmit { bytes: 255, runs: 1 },
        N::Settle { node: 0, arena: 1 },
        N::Room { uplink: 0, bytes: 0 },
        N::Room { uplink: 1, bytes: 0 },
        N::Wake { node: 0, arena: 1 },
        N::Room { uplink: 0, bytes: u16::MAX },
        N::Wake { node: 0, arena: 0 },
        ms(30),
        N::Wake { node: 0, arena: 2 },
        N::Sleep { unit: 2, n: 20 },
        // The second uplink still accepts nothing at the end.
        send(REAL_TIME, BY_DEFAULT, 160, 2),
        SETTLE,
    ];
    let dead_and_restarted = vec![
        N::Sleep { unit: 3, n: 2 },
        N::Wake { node: 0, arena: 3 },
        send(REAL_TIME, BEHIND_FIRST, 160, 3),
        SETTLE,
        N::Restart { node: 0 },
        N::Sleep { unit: 2, n: 12 },
        N::PeersHear {},
        ALL,
        N::Wake { node: 0, arena: 3 },
    ];
    vec![
        ("neighbours_greetings", script(plain, &[greetings()])),
        ("neighbours_lossy_relay", script(plain, &[greetings(), lossy_relay])),
        ("neighbours_delivery", script(plain, &[application(), greetings(), delivery()])),
        ("neighbours_crowded", script([2, 1, 1, 0, 3], &[application(), greetings(), crowded])),
        (
            "neighbours_dead_and_restarted",
            script(plain, &[application(), greetings(), dead_and_restarted]),
        ),
        ("neighbours_forged", script(plain, &[application(), forged()])),
        ("neighbours_forged_echoes", script(plain, &[application(), greetings(), forged_echoes()])),
        ("neighbours_applications", script(plain, &[applications()])),
        ("neighbours_streams", script(plain, &[streams()])),
        ("neighbours_reliable", script(plain, &[application(), reliable(), greetings()])),
    ]
}

fn delivery() -> Vec<N> {
    vec![
        peer_send(1, BEST_EFFORT, SELF, 100, 4),
        N::Copy { node: 0, pick: 1, from: 0 },
        N::Overtake { node: 0, pick: 3, from: 0 },
        N::Overtake { node: 0, pick: 0, from: 9 },
        N::Alter { node: 0, pick: 0, from: 0, at: 12, xor: 0x40, mac: 0 },
        N::Arrive { node: 0, n: 255, age: 20 },
        N::Full { node: 0, yes: 1 },
        send(REAL_TIME, SELF, 50, 2),
        N::Full { node: 0, yes: 0 },
        send(REAL_TIME, SELF, 50, 2),
        N::Close { session: 0 },
        peer_send(1, REAL_TIME, SELF, 100, 2),
        ALL,
    ]
}

fn forged() -> Vec<N> {
    let packet = |service, seq, to, flow_seq| N::Data {
        link: 0,
        first: 10 << 3 | service,
        seq,
        from: BEHIND_FIRST,
        to,
        port: 5,
        flow_seq,
        remaining: 90,
        len: 30,
    };
    let forge = |seq, to, flow_seq| packet(REAL_TIME, seq, to, flow_seq);
    let request = nack_frame(&[NackRange { first: 0, count: 256 }]);
    vec![
        // Sequence numbers around the wrap, out of order.
        packet(BEST_EFFORT, 0, SELF, 1),
        packet(BEST_EFFORT, 0, SELF, 65_534),
        packet(BEST_EFFORT, 0, SELF, 2),
        packet(BEST_EFFORT, 0, SELF, 65_533),
        forge(1, SELF, 1),
        forge(2, SELF, 1),
        forge(9, SELF, 255),
        forge(700, SELF, 300),
        forge(700, SELF, 301),
        forge(40_000, FIRST, 2),
        N::Settle { node: 0, arena: 0 },
        N::Hello { from: 0, sent: 32_768, echo: 30_000, held: 100 },
        N::Nack { link: 0, first: 65_530, count: 20, n: 5, step: 3 },
        N::Frames { from: 2, incarnation: 9, frames: data_frame(Service::BestEffort) },
        N::Frames { from: 2, incarnation: 8, frames: hello_frame(None) },
        N::Frames { from: 1, incarnation: 1, frames: [hello_frame(None), request].concat() },
        N::Frames { from: 1, incarnation: 2, frames: vec![3, 0] },
        N::Frames { from: 1, incarnation: 2, frames: vec![ControlKind::Goodbye as u8] },
        N::Raw { from: 1, mac: 0, bytes: vec![0x11; 24] },
        SETTLE,
    ]
}

/// Every kind of echo, to the node and to where its hop limit expires, then more echoes than are
/// answered, and a packet after frames that are rejected.
fn forged_echoes() -> Vec<N> {
    let echo = |(n, (_, payload)): (u16, (&str, Vec<u8>)), to, hop_limit| {
        let header = DataHeader {
            flow: FlowHeader {
                service: Service::BestEffort,
                metric: trunkline_overlay::wire::Metric::default(),
                source: NodeId(3),
                destination: NodeId(to),
                source_port: NODE_PORT,
                destination_port: NODE_PORT,
                flow_seq: n,
            },
            hop: HopHeader { recovered: false, hop_limit, link_seq: 300 + n, remaining_ms: 0 },
        };
        written(|w| header.emit(payload.len() as u16, w).and_then(|()| w.bytes(&payload)))
    };
    let frames = |frames| N::Frames { from: 0, incarnation: 5, frames };
    let here = (0..).zip(echoes()).map(|e| echo(e, 1, 9));
    let onward = (10..).zip(echoes()).map(|e| echo(e, 30, 0));
    let mut steps: Vec<N> = here.chain(onward).map(frames).collect();
    for n in 20..150 {
        let to = if n % 2 == 0 { 1 } else { 30 };
        steps.push(frames(echo((n, echoes().remove(0)), to, 0)));
    }
    let goodbye = written(|w| Goodbye.emit(w));
    steps.push(frames([goodbye, data_frame(Service::BestEffort)].concat()));
    steps.push(SETTLE);
    steps
}

/// A stream within the node, and messages of a session that is not open.
fn streams() -> Vec<N> {
    let say = |session, request: Request<'_>| {
        let message = ToNode::Stream(request);
        let bytes = [written(|w| message.emit_head(w)), message.payload().to_vec()].concat();
        N::Say { pick: session, bytes }
    };
    let (to, port, messages, credit) = (NodeId(1), 5, true, 100);
    vec![
        N::Open {},
        N::Open {},
        N::Bind { session: 0, port: 5 },
        N::Bind { session: 1, port: 6 },
        say(0, Request::Listen { backlog: 1 }),
        say(1, Request::Connect { to, port, messages, credit }),
        SETTLE,
        say(1, Request::Data(&[7; 100])),
        say(1, Request::Shut),
        SETTLE,
        say(3, Request::Shut),
        N::Close { session: 1 },
        say(1, Request::Credit(9)),
        SETTLE,
    ]
}

/// A reliable packet to a neighbour that is not up yet.
fn reliable() -> Vec<N> {
    let (to, port, payload) = (NodeId(2), 5, &[7; 100]);
    let message = ToNode::Send { service: Service::Reliable, deadline_ms: 200, to, port, payload };
    let bytes = [written(|w| message.emit_head(w)), payload.to_vec()].concat();
    vec![N::Say { pick: 0, bytes }, SETTLE]
}

fn applications() -> Vec<N> {
    let open = (0..7).map(|_| N::Open {});
    let bind = (0..7).map(|n| N::Bind { session: n, port: [5, 5, 0, 0, 1, 7, 8][n as usize] });
    let mut steps: Vec<N> = open.chain(bind).collect();
    let bind = ToNode::Bind { version: SESSION_VERSION + 1, port: 3 };
    steps.extend([
        N::Say { pick: 1, bytes: written(|w| bind.emit_head(w)) },
        N::Say { pick: 1, bytes: vec![2, 3, 0] },
        N::Bind { session: 1, port: 3 },
        send(REAL_TIME, SELF, 10, 3),
        send(BEST_EFFORT, BEHIND_SECOND, 1_300, 1),
        N::Send {
            node: 0,
            session: 1,
            service: 0,
            deadline: 0,
            to: SELF,
            port: 6,
            len: 0,
            count: 1,
        },
        N::Close { session: 3 },
        N::Close { session: 3 },
        N::Open {},
        N::Bind { session: 3, port: 0 },
    ]);
    steps
}
