//! Valid inputs of the targets, as `cargo run --example make_seeds` writes them
//! into `seeds/`: each reaches code that bytes by chance do not.

use crate::handshake::Step as H;
use crate::node::Step as N;
use crate::wire;
use core::time::Duration;
use trunkline_base::wire::{Short, Writer};
use trunkline_overlay::handshake::message::{
    Answer, Challenge, Initiation, Payload, Query, Response,
};
use trunkline_overlay::identity::{Certificate, Identity, MacKey};
use trunkline_overlay::node::{EchoKind, EchoMessage, NODE_PORT, PortUnbound};
use trunkline_overlay::session::remote::{Datagram, FromClient, Token, prefix};
use trunkline_overlay::session::wire::stream::{Notice, Request, Reset};
use trunkline_overlay::session::wire::{Refusal, SESSION_VERSION, ToClient, ToNode, Unreachable};
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{
    AckHead, AckRange, ControlKind, DataHeader, ENVELOPE_OVERHEAD, FlowHeader, Goodbye, Hello,
    HopHeader, Incarnation, Nack, NackRange, NodeId, Null, PathFrame, ReceiverIndex, Seal,
    SelectiveAck, Service,
};

/// One input of one target.
pub struct Seed {
    /// The target.
    pub target: &'static str,
    /// The file's name.
    pub name: &'static str,
    /// The input.
    pub bytes: Vec<u8>,
}

/// Every seed of the targets whose inputs are made here.
pub fn all() -> Vec<Seed> {
    let named = |target, seeds: Vec<(&'static str, Vec<u8>)>| {
        seeds.into_iter().map(move |(name, bytes)| Seed { target, name, bytes })
    };
    named("envelope", envelopes())
        .chain(named("echo_message", echoes()))
        .chain(named("trunk_message", trunks()))
        .chain(named("session_message", messages()))
        .chain(named("session_message", stream_messages()))
        .chain(named("remote_message", remote_messages()))
        .chain(named("handshake_message", handshake_messages()))
        .chain(named("handshakes", handshake_scripts()))
        .chain(named("node", node_scripts()))
        .chain(named("sealed_node", crate::sealed_node::seeds::scripts()))
        .chain(named("two_nodes", crate::two_nodes::seeds::scripts()))
        .chain(named("stream_segment", crate::stream_segment::seeds::scripts()))
        .chain(named("sip_calls", crate::calls::seeds::scripts()))
        .chain(named("route_frame", crate::route::seeds::frames()))
        .chain(named("router", crate::route::seeds::scripts()))
        .chain(named("tfmc", crate::tfmc::seeds::scripts()))
        .chain(named("tfrc", crate::tfrc::seeds::scripts()))
        .collect()
}

fn written(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Short>) -> Vec<u8> {
    let mut out = [0; 512];
    let mut w = Writer::new(&mut out);
    write(&mut w).expect("a seed is small");
    w.written().to_vec()
}

fn data_frame(service: Service) -> Vec<u8> {
    let header = DataHeader {
        flow: FlowHeader {
            service,
            metric: trunkline_overlay::wire::Metric::default(),
            source: NodeId(2),
            destination: NodeId(1),
            source_port: 5,
            destination_port: 5,
            flow_seq: 7,
        },
        hop: HopHeader { recovered: true, hop_limit: 30, link_seq: 65_535, remaining_ms: 80 },
    };
    written(|w| header.emit(8, w).and_then(|()| w.bytes(&[0xd5; 8])))
}

fn hello_frame(echo: Option<(u32, u32)>) -> Vec<u8> {
    written(|w| {
        Hello { probe: false, seq: 1, sent_us: 1_000_000, echo, ..Hello::default() }.emit(w)
    })
}

fn ack_frame() -> Vec<u8> {
    let delay = Duration::from_millis(3);
    let head = AckHead { instance: 9, sender: 1, epoch: 0, next: 3, latest: 7, delay };
    let ranges = [AckRange { first: 5, count: 1 }, AckRange { first: 7, count: 1 }];
    written(|w| SelectiveAck::emit(&head, &ranges, w))
}

fn nack_frame(ranges: &[NackRange]) -> Vec<u8> {
    written(|w| Nack::emit(Service::RealTime, ranges, w))
}

fn echoes() -> Vec<(&'static str, Vec<u8>)> {
    let echo = |kind| {
        let message = EchoMessage { kind, left: 30, nonce: 0x0123_4567_89ab_cdef };
        written(|w| message.emit(w).and_then(|()| w.bytes(&[0; 6])))
    };
    vec![
        ("request", echo(EchoKind::Request)),
        ("reply", echo(EchoKind::Reply)),
        ("hop_limit", echo(EchoKind::HopLimit)),
        ("port_unbound", written(|w| PortUnbound { from: 5, to: 5 }.emit(w))),
    ]
}

fn trunks() -> Vec<(&'static str, Vec<u8>)> {
    let (version, generation) = (trunk::BASE_VERSION, 7);
    let ask = trunk::Message::Ask { version, generation, report_ms: 5, rtt: None };
    let answer = trunk::Answer::Fresh;
    let context = trunk::Context { source_port: 5, destination_port: 6, deadline_ms: 100 };
    let head = trunk::Head { entries: 3, generation, number: 9, remaining_ms: 98 };
    let mut packets = head.bytes().to_vec();
    trunk::Entry::Definition { number: 1, context }.push(&mut packets);
    for flow_seq in [1, 2] {
        trunk::Entry::Packet { context: 1, flow_seq, payload: &[0xd5; 20] }.push(&mut packets);
    }
    let rtp = |rtp, payload, bytes: &mut Vec<u8>| {
        trunk::Entry::Rtp { context: 1, flow_seq: 3, rtp, payload }.push(bytes);
    };
    let mut compressed = trunk::Head { entries: 4, ..head }.bytes().to_vec();
    trunk::Entry::Definition { number: 1, context }.push(&mut compressed);
    let whole = [&[0x80, 18, 0, 1, 0, 0, 0, 160, 0, 0, 0, 9], &[0xd5; 20][..]].concat();
    rtp(trunk::Rtp::Says { template: 1, step: 160 }, &whole, &mut compressed);
    for (timestamp, seq) in [(None, None), (Some(1_000), Some(7))] {
        let by = trunk::Rtp::By { template: 1, marker: seq.is_some(), timestamp, seq };
        rtp(by, &whole[trunk::RTP_HEADER..], &mut compressed);
    }
    let answer = |latest| trunk::Message::Answer { version, generation, answer, latest };
    vec![
        ("ask", written(|w| ask.emit(w))),
        ("answer", written(|w| answer(version).emit(w))),
        ("answer_latest", written(|w| answer(trunk::TRUNK_VERSION).emit(w))),
        ("packets", packets),
        ("compressed", compressed),
    ]
}

fn envelopes() -> Vec<(&'static str, Vec<u8>)> {
    let sealed = |frames: &[u8]| {
        let mut bytes = vec![0; ENVELOPE_OVERHEAD + frames.len()];
        Seal::frames_mut(&mut bytes).copy_from_slice(frames);
        let index = ReceiverIndex::derived(NodeId(2), NodeId(1), "");
        Seal::Null(Null::new(index, Incarnation(5))).seal(&mut bytes);
        bytes
    };
    let range = |first, count| NackRange { first, count };
    let request = nack_frame(&[range(65_534, 4), range(10, 256)]);
    vec![
        ("empty", sealed(&[])),
        ("realtime", sealed(&data_frame(Service::RealTime))),
        ("best_effort", sealed(&data_frame(Service::BestEffort))),
        ("first_hello", sealed(&hello_frame(None))),
        ("request_and_hello", sealed(&[&request[..], &hello_frame(Some((1, 2)))].concat())),
        ("only_frames", [&data_frame(Service::RealTime)[..], &request].concat()),
        (
            "hello_and_goodbye",
            sealed(&[&hello_frame(None)[..], &written(|w| Goodbye.emit(w))].concat()),
        ),
        ("path_challenge", sealed(&written(|w| PathFrame::Challenge([7; 8]).emit(w)))),
        ("path_response", sealed(&written(|w| PathFrame::Response([7; 8]).emit(w)))),
        ("full_request", sealed(&nack_frame(&[range(1, 1); 64]))),
        (
            "request_of_a_service",
            sealed(&written(|w| Nack::emit(Service::BestEffort, &[range(9, 2)], w))),
        ),
        ("reliable", sealed(&[data_frame(Service::Reliable), ack_frame()].concat())),
    ]
}

fn stream_messages() -> Vec<(&'static str, Vec<u8>)> {
    let (node, port, messages, credit) = (NodeId(3), 5_004, true, 65_536);
    let (version, token) = (SESSION_VERSION, 0x0123_4567_89ab_cdef);
    let request = |r| {
        let message = ToNode::Stream(r);
        [written(|w| message.emit_head(w)), message.payload().to_vec()].concat()
    };
    let notice = |n| {
        let message = ToClient::Stream(n);
        [written(|w| message.emit_head(w)), message.payload().to_vec()].concat()
    };
    let (peer, peer_port) = (node, port);
    vec![
        ("connect", request(Request::Connect { to: node, port, messages, credit })),
        ("listen", request(Request::Listen { backlog: 8 })),
        ("accept", request(Request::Accept { version, token, credit })),
        ("stream_data", request(Request::Data(&[0xd5; 20]))),
        ("credit", request(Request::Credit(credit))),
        ("shut", request(Request::Shut)),
        ("reset", request(Request::Reset)),
        ("incoming", notice(Notice::Incoming { token, from: node, port, messages })),
        ("connected", notice(Notice::Connected { node, port, peer, peer_port, messages, credit })),
        ("stream_received", notice(Notice::Data(&[0xd5; 20]))),
        ("credit_of_node", notice(Notice::Credit(credit))),
        ("shut_by_peer", notice(Notice::Shut)),
        ("broken_off", notice(Notice::Reset(Reset::Stalled))),
    ]
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let payload = &[0xd5; 20][..];
    let with = |head: Vec<u8>| [&head, payload].concat();
    let (node, port) = (NodeId(3), 5_004);
    let bind = ToNode::Bind { version: SESSION_VERSION, port };
    let send =
        ToNode::Send { service: Service::RealTime, deadline_ms: 100, to: node, port, payload };
    let bound = ToClient::Bound { node, port, max_payload: 1_188 };
    let received = ToClient::Received {
        service: Service::BestEffort,
        recovered: true,
        remaining_ms: 70,
        flow_seq: 65_535,
        from: node,
        port,
        payload,
    };
    let error = ToClient::Error { refusal: Refusal::NoRoute, node, port };
    let unreachable = |why| written(|w| ToClient::Unreachable { node, port, why }.emit_head(w));
    vec![
        ("bind", written(|w| bind.emit_head(w))),
        ("newer_bind", with(written(|w| bind.emit_head(w)))),
        ("send", with(written(|w| send.emit_head(w)))),
        ("bound", written(|w| bound.emit_head(w))),
        ("received", with(written(|w| received.emit_head(w)))),
        ("error", written(|w| error.emit_head(w))),
        ("reachable", written(|w| ToClient::Reachable { node, port }.emit_head(w))),
        ("no_route", unreachable(Unreachable::NoRoute)),
        ("since", unreachable(Unreachable::Since(Duration::from_millis(70_000)))),
        ("no_port", unreachable(Unreachable::NoPort)),
    ]
}

fn remote_messages() -> Vec<(&'static str, Vec<u8>)> {
    let send = &messages()[2].1;
    let from_client = |m: FromClient<'_>| written(|w| m.emit(w));
    let framed = |m: Vec<u8>| [&prefix(m.len())[..], &m].concat();
    let token = Token(0x0123_4567_89ab_cdef);
    let hello = from_client(FromClient::Hello { identity: 7, attempt: 1 });
    let stream = [
        hello,
        messages()[0].1.clone(),
        from_client(FromClient::Ping),
        from_client(FromClient::Packets { udp: true }),
        send.clone(),
    ];
    let (_, initiation) = wire::opening();
    let response = wire::responder().answer(&initiation, token).expect("a known client").response;
    let datagram = Datagram { token, counter: 9, message: &[] };
    vec![
        ("stream", stream.map(framed).concat()),
        ("datagram", [&datagram.head()[..], send].concat()),
        ("ping", [&datagram.head()[..], &from_client(FromClient::Ping)].concat()),
        ("initiation", initiation),
        ("response", response),
    ]
}

fn handshake_messages() -> Vec<(&'static str, Vec<u8>)> {
    let operator = Identity::from_secret(&[200; 32]);
    let mac = MacKey::for_overlay(&operator.public());
    let key = Identity::from_secret(&[1; 32]).public();
    let certificate =
        Certificate::issue(&operator, NodeId(1), "berlin-1", key, 2_000_000_000).expect("a name");
    let bytes = certificate.to_bytes();
    let payload = Payload {
        oldest: 1,
        newest: 1,
        index: ReceiverIndex::new(7),
        node: NodeId(1),
        incarnation: Incarnation(5),
        sent: 9,
        capabilities: 3,
        mtu: 1_280,
        path: "main".into(),
        certificate: Some(certificate.clone()),
        nonce: None,
    };
    let answering = Payload { nonce: Some([4; 16]), ..payload.clone() };
    let (cookie, noise, echo) = ([3; 16], &[9; 150][..], [1; 8]);
    vec![
        ("query", Query { nonce: echo }.emit(&mac)),
        ("answer", Answer { echo, cookie, certificate: &bytes }.emit(&mac)),
        ("cookie", Answer { echo, cookie, certificate: &[] }.emit(&mac)),
        ("initiation", Initiation { cookie, noise }.emit(&mac)),
        ("response", Response { receiver: payload.index, noise }.emit(&mac)),
        ("challenge", Challenge { receiver: payload.index, noise }.emit(&mac)),
        ("nonce", Challenge::payload(&[4; 16]).to_vec()),
        ("answering", answering.to_bytes()),
        ("payload", payload.to_bytes()),
        ("certificate", bytes.clone()),
        ("certificate_text", certificate.to_string().into_bytes()),
        ("key_text", key.to_string().into_bytes()),
    ]
}

fn handshake_scripts() -> Vec<(&'static str, Vec<u8>)> {
    let script = |kind: u8, steps: &[&[H]]| {
        let mut out = vec![kind];
        steps.concat().iter().for_each(|step| step.write(&mut out));
        out
    };
    let calm = |n| H::Calm { n };
    let begin = [H::Wake { side: 0 }, H::Wake { side: 1 }];
    let forged = [
        H::Copy { side: 1, pick: 0, from: 9 },
        H::Alter { side: 1, pick: 0, at: 40, xor: 1, mac: 1 },
        H::Arrive { side: 1 },
        calm(3),
        H::Say { side: 0, len: 20 },
        H::Copy { side: 1, pick: 0, from: 0 },
        H::Copy { side: 1, pick: 0, from: 7 },
        H::Alter { side: 1, pick: 0, at: 10, xor: 1, mac: 0 },
        H::Arrive { side: 1 },
    ];
    let rekeyed = [calm(5), H::Sleep { unit: 3, n: 125 }, calm(2), H::Sleep { unit: 3, n: 200 }];
    let restarted = [
        calm(5),
        H::Say { side: 0, len: 9 },
        H::Anew { side: 0 },
        H::Restart { side: 1 },
        calm(9),
        H::Again { side: 1 },
        calm(2),
    ];
    let set_back = [
        calm(5),
        H::SetBack { side: 0, n: 200 },
        calm(9),
        H::Copy { side: 1, pick: 0, from: 9 },
        H::SetBack { side: 1, n: 3 },
        calm(2),
    ];
    let revoked = [
        calm(5),
        H::Trust { side: 1, revoked: 1 },
        H::Restart { side: 0 },
        calm(9),
        H::Trust { side: 1, revoked: 0 },
    ];
    let query = handshake_messages()[0].1.clone();
    let flood: Vec<H> =
        (0..9).map(|mac| H::Forge { side: mac % 2, mac: 3, bytes: query.clone() }).collect();
    vec![
        ("known", script(1, &[&begin, &[calm(9)]])),
        ("simultaneous", script(3, &[&begin, &[calm(9)]])),
        ("certified", script(0, &[&begin, &[calm(9)]])),
        ("forged", script(1, &[&begin, &forged])),
        ("lossy", script(2, &[&begin, &[H::Lose { side: 1, pick: 0 }, calm(9)]])),
        ("rekeyed", script(3, &[&begin, &rekeyed])),
        ("restarted", script(1, &[&begin, &restarted])),
        ("revoked", script(0, &[&begin, &revoked])),
        ("set_back", script(1, &[&begin, &set_back])),
        ("queries", script(0, &[&flood, &begin])),
    ]
}

const REAL_TIME: u8 = 0;
const BEST_EFFORT: u8 = 1;
/// Indices of `destination` in the node target.
const SELF: u8 = 0;
const FIRST: u8 = 1;
const BEHIND_FIRST: u8 = 4;
const BEHIND_SECOND: u8 = 5;
const BY_DEFAULT: u8 = 6;

fn peer_send(link: u8, service: u8, to: u8, len: u16, count: u8) -> N {
    N::PeerSend { link, service, deadline: 100, to, port: 5, len, count }
}

fn send(service: u8, to: u8, len: u16, count: u8) -> N {
    N::Send { session: 0, service, deadline: 200, to, port: 5, len, count }
}

const SETTLE: N = N::Settle { arena: 3 };
const ALL: N = N::Arrive { n: 255, age: 0 };

fn ms(n: u8) -> N {
    N::Sleep { unit: 1, n }
}

/// Hellos both ways, twice, so that all links are up and measured.
fn greetings() -> Vec<N> {
    let quarter = N::Sleep { unit: 2, n: 12 };
    let round = [quarter, N::PeersHear {}, ALL, SETTLE, ms(5), N::PeersHear {}, ALL, SETTLE];
    [round.clone(), round].concat()
}

/// An application of the node on port 5.
fn application() -> Vec<N> {
    vec![N::Open {}, N::Bind { session: 0, port: 5 }]
}

fn node_scripts() -> Vec<(&'static str, Vec<u8>)> {
    let script = |settings: [u8; 5], parts: &[Vec<N>]| {
        let mut out = settings.to_vec();
        parts.iter().flatten().for_each(|step| step.write(&mut out));
        out
    };
    let plain = [1, 1, 0, 2, 0];
    let lossy_relay = vec![
        peer_send(0, REAL_TIME, BEHIND_SECOND, 160, 6),
        N::Lose { pick: 2 },
        N::Lose { pick: 2 },
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
        N::Wake { arena: 0 },
    ];
    let crowded = vec![
        send(REAL_TIME, BY_DEFAULT, 1_100, 20),
        send(BEST_EFFORT, BY_DEFAULT, 1_100, 9),
        send(BEST_EFFORT, FIRST, 200, 9),
        send(REAL_TIME, BEHIND_FIRST, 900, 20),
        N::Transmit { bytes: 5, runs: 0 },
        N::Transmit { bytes: 160, runs: 0 },
        N::Transmit { bytes: 255, runs: 1 },
        N::Settle { arena: 1 },
        N::Wake { arena: 1 },
        N::Wake { arena: 0 },
        ms(30),
        N::Wake { arena: 2 },
        N::Sleep { unit: 2, n: 20 },
        SETTLE,
    ];
    let dead_and_restarted = vec![
        N::Sleep { unit: 3, n: 2 },
        N::Wake { arena: 3 },
        send(REAL_TIME, BEHIND_FIRST, 160, 3),
        SETTLE,
        N::PeerRestart { link: 0 },
        N::Sleep { unit: 2, n: 12 },
        N::PeersHear {},
        ALL,
        N::Wake { arena: 3 },
    ];
    vec![
        ("greetings", script(plain, &[greetings()])),
        ("lossy_relay", script(plain, &[greetings(), lossy_relay])),
        ("delivery", script(plain, &[application(), greetings(), delivery()])),
        ("crowded", script([2, 1, 1, 0, 3], &[application(), greetings(), crowded])),
        ("dead_and_restarted", script(plain, &[application(), greetings(), dead_and_restarted])),
        ("forged", script(plain, &[application(), forged()])),
        ("forged_echoes", script(plain, &[application(), greetings(), forged_echoes()])),
        ("applications", script(plain, &[applications()])),
        ("streams", script(plain, &[streams()])),
        ("reliable", script(plain, &[application(), reliable(), greetings()])),
    ]
}

fn delivery() -> Vec<N> {
    vec![
        peer_send(1, BEST_EFFORT, SELF, 100, 4),
        N::Copy { pick: 1 },
        N::Overtake { pick: 3, from: 0 },
        N::Overtake { pick: 0, from: 9 },
        N::Alter { pick: 0, at: 12, xor: 0x40 },
        N::Arrive { n: 255, age: 20 },
        N::Full { yes: 1 },
        send(REAL_TIME, SELF, 50, 2),
        N::Full { yes: 0 },
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
        // Numbers about to wrap, out of order.
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
        N::Settle { arena: 0 },
        N::Hello { link: 0, sent: 32_768, echo: 30_000, held: 100 },
        N::Nack { link: 0, first: 65_530, count: 20, n: 5, step: 3 },
        N::Frames { link: 2, incarnation: 9, frames: data_frame(Service::BestEffort) },
        N::Frames { link: 2, incarnation: 8, frames: hello_frame(None) },
        N::Frames { link: 1, incarnation: 1, frames: [hello_frame(None), request].concat() },
        N::Frames { link: 1, incarnation: 2, frames: vec![3, 0] },
        N::Frames { link: 1, incarnation: 2, frames: vec![ControlKind::Goodbye as u8] },
        N::RawDatagram { from: 1, bytes: vec![0x11; 24] },
        SETTLE,
    ]
}

/// Every kind of echo, to the node and to where its hop limit runs out, then
/// more than are answered; and a packet after frames that are refused.
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
    let frames = |frames| N::Frames { link: 0, incarnation: 5, frames };
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

/// A stream within the node, and what a session says that is not open.
fn streams() -> Vec<N> {
    let say = |session, request: Request<'_>| {
        let message = ToNode::Stream(request);
        let bytes = [written(|w| message.emit_head(w)), message.payload().to_vec()].concat();
        N::RawMessage { session, bytes }
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

/// A reliable packet to a neighbour that is not there yet.
fn reliable() -> Vec<N> {
    let (to, port, payload) = (NodeId(2), 5, &[7; 100]);
    let message = ToNode::Send { service: Service::Reliable, deadline_ms: 200, to, port, payload };
    let bytes = [written(|w| message.emit_head(w)), payload.to_vec()].concat();
    vec![N::RawMessage { session: 0, bytes }, SETTLE]
}

fn applications() -> Vec<N> {
    let open = (0..7).map(|_| N::Open {});
    let bind = (0..7).map(|n| N::Bind { session: n, port: [5, 5, 0, 0, 1, 7, 8][n as usize] });
    let mut steps: Vec<N> = open.chain(bind).collect();
    let bind = ToNode::Bind { version: SESSION_VERSION + 1, port: 3 };
    steps.extend([
        N::RawMessage { session: 1, bytes: written(|w| bind.emit_head(w)) },
        N::RawMessage { session: 1, bytes: vec![2, 3, 0] },
        N::Bind { session: 1, port: 3 },
        send(REAL_TIME, SELF, 10, 3),
        send(BEST_EFFORT, BEHIND_SECOND, 1_300, 1),
        N::Send { session: 1, service: 0, deadline: 0, to: SELF, port: 6, len: 0, count: 1 },
        N::Close { session: 3 },
        N::Close { session: 3 },
        N::Open {},
        N::Bind { session: 3, port: 0 },
    ]);
    steps
}
