//! Calls through a gateway, by agents that follow the input: whatever they send or omit, ports are
//! allocated and released in order, and every call ends.

use crate::script::steps;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;
use trunkline_gateway::{Config, Event, Found, Gateway, Media, Relay, Remote, Socket, Transport};
use trunkline_overlay::wire::NodeId;
use trunkline_sip::transaction::Hop;
use trunkline_sip::{Message, Name, Start};

/// The agents: two phones, a trusted peer, and an agent that is not accepted.
const AGENTS: [&str; 4] = ["10.1.0.2:5060", "10.1.0.3:40000", "10.9.0.1:5060", "192.0.2.66:5060"];
const OWN: &str = "10.1.0.1:5060";

steps! {
    /// A step of the script. `who` is an agent, and `kind` chooses the message.
    Step {
        /// A request without context.
        0 Ask { who: u8, kind: u8 }
        /// A response to the last request received.
        1 Answer { who: u8, kind: u8, code: u8 }
        /// A request in the dialog of the last message received.
        2 Follow { who: u8, kind: u8, method: u8 }
        /// Nothing happens for 20 ms times the square of `time`.
        3 Wait { time: u8 }
        /// A received message is returned with one byte changed.
        4 Damage { who: u8, at: u8, byte: u8 }
        /// A connection is closed.
        5 Disconnect { connection: u8 }
    }
}

/// Ports of a gateway, which checks that the gateway uses them correctly.
#[derive(Default)]
struct Board(BTreeMap<u16, Option<Relay>>);

impl Media for Board {
    fn open(&mut self, port: u16) -> bool {
        assert!(port.is_multiple_of(2) && !self.0.contains_key(&port));
        // Some ports belong to other programs.
        let is_free = !port.is_multiple_of(10);
        if is_free {
            self.0.insert(port, None);
        }
        is_free
    }

    fn relay(&mut self, port: u16, relay: &Relay) {
        assert!(relay.onto != port && self.0.contains_key(&relay.onto));
        if let Remote::Udp { rtp: Some(to), .. } = relay.remote {
            assert!(to.port() >= 1_024 && !to.ip().is_multicast() && !to.ip().is_loopback());
        }
        *self.0.get_mut(&port).expect("an open port") = Some(relay.clone());
    }

    fn admits(&self, node: NodeId) -> bool {
        node.0 % 5 != 4
    }

    fn local(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }

    fn close(&mut self, port: u16) {
        assert!(self.0.remove(&port).is_some());
    }

    fn knows(&self, node: NodeId) -> bool {
        node.0 < 4
    }
}

struct World {
    now: Time,
    gateway: Gateway,
    board: Board,
    /// The last request and the last response that each agent has received.
    got: [[Option<Message>; 2]; 4],
    /// Counter for branches and call IDs.
    count: u32,
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn config() -> Config {
    let socket = |transport| Socket { transport, address: address(OWN), local: address(OWN).ip() };
    Config {
        node: NodeId(1),
        sockets: vec![socket(Transport::Udp), socket(Transport::Tcp)],
        names: vec!["gw.example".into()],
        media: vec![address(OWN).ip()],
        own: vec![],
        ports: 20_000..=20_039,
        allow: vec!["10.1.0.0/16".parse().expect("a network")],
        trust: vec!["10.9.0.0/16".parse().expect("a network")],
        nodes: vec![],
        routes: Vec::new(),
        networks: Vec::new(),
        elsewhere: Default::default(),
        idle: std::time::Duration::from_secs(600),
        bye_at_stop: true,
        max_calls: 6,
        max_transactions: 30,
    }
}

/// Runs a script of calls.
pub fn run(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let mut world = World {
        now: Time::from_millis(1_000),
        gateway: Gateway::new(config(), [1; 32], &[2; 32]),
        board: Board::default(),
        got: Default::default(),
        count: 0,
    };
    while let Some(step) = Step::read(&mut r) {
        world.step(&step);
        world.settle();
    }
    // With all agents silent, no state remains after a quarter of an hour.
    for _ in 0..1_000 {
        world.wait(Duration::from_secs(1));
    }
    // Calls on hold have longer, by half as much again as a session timer of a day.
    for _ in 0..37 {
        if world.gateway.calls().count() > 0 {
            world.wait(Duration::from_secs(3_600));
        }
    }
    assert_eq!(world.gateway.calls().count(), 0);
    assert!(world.board.0.is_empty());
    // Two in five pairs are never available; none of the others is lost.
    assert_eq!(world.gateway.free_ports(), 20);
}

/// Session description, chosen from a few kinds.
fn description(kind: u8) -> String {
    let (place, more) = match kind % 8 {
        0 => ("10.1.0.2 4000", ""),
        1 => ("10.1.0.3 4002", "a=rtcp:4009\r\n"),
        2 => ("10.9.0.1 30000", "a=x-trunkline:1 2 30000\r\n"),
        3 => ("0.0.0.0 4000", "m=video 4010 RTP/AVP 96\r\nm=image 0 udptl t38\r\n"),
        4 => ("10.1.0.1 20002", ""),
        5 => ("10.1.0.1 20004", "a=rtcp-mux\r\n"),
        6 => ("224.0.0.1 4000", ""),
        _ => ("10.1.0.2 0", ""),
    };
    let (host, port) = place.split_once(' ').expect("two words");
    format!("v=0\r\nc=IN IP4 {host}\r\nm=audio {port} RTP/AVP 0\r\n{more}")
}

impl World {
    fn step(&mut self, step: &Step) {
        let agent = |who: u8| usize::from(who) % AGENTS.len();
        match *step {
            Step::Ask { who, kind } => self.invite(agent(who), kind),
            Step::Answer { who, kind, code } => self.respond(agent(who), kind, code),
            Step::Follow { who, kind, method } => self.follow(agent(who), kind, method),
            Step::Wait { time } => {
                self.wait(Duration::from_millis(u64::from(time) * u64::from(time) * 20));
            }
            Step::Damage { who, at, byte } => self.damage(agent(who), at, byte),
            Step::Disconnect { connection } => {
                self.gateway.disconnected(self.now, connection.into(), &mut self.board);
            }
        }
    }

    fn send(&mut self, who: usize, text: &[u8]) {
        let hop = Hop { socket: 0, remote: address(AGENTS[who]), connection: None };
        self.gateway.receive(self.now, hop, text, &mut self.board);
    }

    /// Sends a request without context.
    fn invite(&mut self, who: usize, kind: u8) {
        self.count += 1;
        let to = AGENTS[usize::from(kind >> 6)];
        let method = ["INVITE", "INVITE", "REGISTER", "OPTIONS"][usize::from(kind >> 4 & 3)];
        let body = if kind & 8 == 0 { description(kind) } else { String::new() };
        let (n, own) = (self.count, AGENTS[who]);
        let text = format!(
            "{method} sip:x@{to} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{n};rport\r\n\
             From: <sip:a@h>;tag=t{who}\r\nTo: <sip:x@h>\r\nCall-ID: c{}\r\nCSeq: {n} {method}\r\n\
             Contact: <sip:a@{own}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            n / 2,
            body.len()
        );
        self.send(who, text.as_bytes());
    }

    /// Responds to the last request received.
    fn respond(&mut self, who: usize, kind: u8, code: u8) {
        let Some(request) = self.got[who][0].clone() else { return };
        let code = [100, 180, 183, 200, 200, 302, 404, 486, 487, 503][usize::from(code % 10)];
        let value = |name| String::from_utf8_lossy(request.first(name).unwrap_or_default());
        let lines = |name: Name| -> String {
            let line = |v: &[u8]| format!("{}: {}\r\n", name.text(), String::from_utf8_lossy(v));
            request.list(name).map(line).collect()
        };
        let body = if kind & 8 == 0 { description(kind) } else { String::new() };
        let tag = if value(Name::To).contains("tag=") {
            String::new()
        } else {
            format!(";tag=u{}", kind >> 5)
        };
        let text = format!(
            "SIP/2.0 {code} x\r\n{}{}From: {}\r\nTo: {}{tag}\r\nCall-ID: {}\r\nCSeq: {}\r\n\
             Contact: <sip:b@{}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            lines(Name::Via),
            lines(Name::RecordRoute),
            value(Name::From),
            value(Name::To),
            value(Name::CallId),
            value(Name::CSeq),
            AGENTS[who],
            body.len()
        );
        self.send(who, text.as_bytes());
    }

    /// Sends a request in the dialog of the last message received.
    fn follow(&mut self, who: usize, kind: u8, method: u8) {
        let [request, response] = &self.got[who];
        let of_request = kind & 16 == 0;
        let Some(last) = (if of_request { request } else { response }).clone() else { return };
        self.count += 1;
        let methods = ["ACK", "BYE", "INVITE", "UPDATE", "PRACK", "CANCEL", "REFER", "INFO"];
        let method = methods[usize::from(method % 8)];
        let value =
            |name| String::from_utf8_lossy(last.first(name).unwrap_or_default()).into_owned();
        let (from, to) = match of_request {
            true => (format!("{};tag=u{}", value(Name::To), kind >> 5), value(Name::From)),
            false => (value(Name::From), value(Name::To)),
        };
        let mut routes: Vec<String> =
            last.list(Name::RecordRoute).map(|r| String::from_utf8_lossy(r).into_owned()).collect();
        if !of_request {
            routes.reverse();
        }
        let routes: String = routes.iter().map(|r| format!("Route: {r}\r\n")).collect();
        let body = if kind & 8 == 0 { description(kind) } else { String::new() };
        let contact = last.first(Name::Contact).unwrap_or(b"<sip:x@10.1.0.2>");
        let contact = String::from_utf8_lossy(contact).replace(['<', '>'], "");
        let (n, own) = (self.count, AGENTS[who]);
        let text = format!(
            "{method} {contact} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{n}\r\n{routes}\
             From: {from}\r\nTo: {to}\r\nCall-ID: {}\r\nCSeq: {n} {method}\r\n\
             Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            value(Name::CallId),
            body.len()
        );
        self.send(who, text.as_bytes());
    }

    /// Returns a received message with one byte changed.
    fn damage(&mut self, who: usize, at: u8, byte: u8) {
        let last = self.got[who].iter().flatten().next_back();
        let Some(mut bytes) = last.map(|message| message.bytes().to_vec()) else { return };
        let place = usize::from(at) * bytes.len() / 256;
        bytes[place] = byte;
        self.send(who, &bytes);
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.gateway.next_timeout() <= end {
            self.now = self.gateway.next_timeout().max(self.now);
            self.gateway.handle_timeout(self.now, &mut self.board);
            assert!(self.gateway.next_timeout() > self.now, "time stands still");
            self.settle();
        }
        self.now = end;
    }

    fn settle(&mut self) {
        while let Some(output) = self.gateway.poll() {
            let message = Message::parse(&output.bytes).expect("what is sent is a message");
            // A rejection of a malformed request repeats its mistake.
            let is_echo = matches!(message.start(), Start::Response { code: 400 | 505, .. });
            let fault = message.fault().filter(|_| !is_echo);
            assert_eq!(fault, None, "{}", String::from_utf8_lossy(&output.bytes));
            let agent = AGENTS.iter().position(|at| address(at) == output.to.remote);
            let kind = usize::from(!matches!(message.start(), Start::Request { .. }));
            if let Some(agent) = agent {
                // An agent that is not accepted receives nothing unless it is called.
                self.got[agent][kind] = Some(message);
            }
        }
        while let Some(event) = self.gateway.event() {
            if let Event::LookUp(name) = event {
                self.gateway.named(self.now, &name, Found::NoAnswer, &mut self.board);
            }
        }
        assert!(self.gateway.calls().count() <= 6);
    }
}

/// Scripts that are valid calls.
pub mod seeds {
    use super::Step;

    fn script(steps: &[Step]) -> Vec<u8> {
        let mut out = Vec::new();
        steps.iter().for_each(|step| step.write(&mut out));
        out
    }

    /// Scripts of a call that is answered and ended, and of one that is forked, held and cancelled.
    pub fn scripts() -> Vec<(&'static str, Vec<u8>)> {
        // A request from the first agent to the second, with a description.
        let ask = Step::Ask { who: 0, kind: 0b0100_0000 };
        let answer = |kind, code| Step::Answer { who: 1, kind, code };
        let follow = |who, kind, method| Step::Follow { who, kind, method };
        let call = [ask.clone(), answer(1, 1), answer(1, 3)];
        let ends = [follow(0, 24, 0), follow(0, 24, 1), answer(8, 3), Step::Wait { time: 9 }];
        let held = [follow(0, 19, 2), answer(1, 3), follow(0, 24, 0), follow(1, 0, 3)];
        let forked = [ask.clone(), answer(1, 2), answer(33, 2), answer(33, 3), answer(1, 3)];
        let cancelled =
            [ask, answer(8, 1), follow(0, 24, 5), answer(8, 7), Step::Wait { time: 60 }];
        let to_gateway =
            [Step::Ask { who: 0, kind: 0b1000_0000 }, Step::Answer { who: 2, kind: 2, code: 3 }];
        vec![
            ("call", script(&[&call[..], &ends].concat())),
            ("held", script(&[&call[..], &held, &ends].concat())),
            ("forked", script(&forked)),
            ("cancelled", script(&cancelled)),
            ("overlay", script(&to_gateway)),
        ]
    }
}
