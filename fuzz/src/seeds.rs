//! Valid inputs of the targets, which `cargo run --example make_seeds` writes into `seeds/`. Each
//! reaches code that random bytes do not.

use crate::handshake::Step as H;
use crate::wire;
use core::time::Duration;
use trunkline_base::wire::{Short, Writer};
use trunkline_overlay::handshake::message::{
    Answer, Challenge, Initiation, Payload, Query, Response,
};
use trunkline_overlay::identity::{Certificate, Identity, MacKey};
use trunkline_overlay::node::{EchoKind, EchoMessage, PortUnbound};
use trunkline_overlay::session::remote::{Datagram, FromClient, Token, prefix};
use trunkline_overlay::session::wire::stream::{Notice, Request, Reset};
use trunkline_overlay::session::wire::{
    RefusalReason, SESSION_VERSION, ToClient, ToNode, Unreachable,
};
use trunkline_overlay::trunk;
use trunkline_overlay::wire::version::VersionRange;
use trunkline_overlay::wire::{
    AckHead, AckRange, DataHeader, ENVELOPE_OVERHEAD, FlowHeader, Goodbye, Hello, HopHeader,
    Incarnation, Nack, NackRange, NodeId, Null, PathFrame, ReceiverIndex, Seal, SelectiveAck,
    Service,
};

/// An input of a target.
pub struct Seed {
    /// Name of the target.
    pub target: &'static str,
    /// Name of the seed's file.
    pub name: &'static str,
    /// Bytes of the input.
    pub bytes: Vec<u8>,
}

/// Returns the seeds of all targets that have generated ones.
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
        .chain(named("world", crate::world::seeds::scripts()))
        .chain(named("sip_calls", crate::calls::seeds::scripts()))
        .chain(named("latch", crate::latch::seeds::scripts()))
        .chain(named("route_frame", crate::route::seeds::frames()))
        .chain(named("router", crate::route::seeds::scripts()))
        .chain(named("tfmc", crate::tfmc::seeds::scripts()))
        .chain(named("tfrc", crate::tfrc::seeds::scripts()))
        .collect()
}

pub(crate) fn written(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Short>) -> Vec<u8> {
    let mut out = [0; 512];
    let mut w = Writer::new(&mut out);
    write(&mut w).expect("a seed is small");
    w.written().to_vec()
}

pub(crate) fn data_frame(service: Service) -> Vec<u8> {
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

pub(crate) fn hello_frame(echo: Option<(u32, u32)>) -> Vec<u8> {
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

pub(crate) fn nack_frame(ranges: &[NackRange]) -> Vec<u8> {
    written(|w| Nack::emit(Service::RealTime, ranges, w))
}

pub(crate) fn echoes() -> Vec<(&'static str, Vec<u8>)> {
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
    let (version, generation) = (trunk::TRUNK_VERSION, 7);
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
    let answer = trunk::Message::Answer { version, generation, answer, latest: version };
    vec![
        ("ask", written(|w| ask.emit(w))),
        ("answer", written(|w| answer.emit(w))),
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
    let error = ToClient::Error { refusal: RefusalReason::TooLarge, node, port };
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
        versions: VersionRange::default(),
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
