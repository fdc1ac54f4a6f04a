//! A small world: gateways, and agents that send messages written by a test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use trunkline_base::Time;
use trunkline_gateway::{
    CallOutcome, Config, Destination, Event, Gateway, Media, Relay, Remote, Route, Socket,
    Transport,
};
use trunkline_overlay::wire::NodeId;
use trunkline_sip::transaction::Hop;
use trunkline_sip::{Message, Name};

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Records how a gateway uses its ports.
#[derive(Default, Debug)]
pub struct PortBoard {
    pub joined: BTreeMap<u16, Option<Relay>>,
    pub taken_by_others: BTreeSet<u16>,
    pub nodes: BTreeSet<u32>,
    /// Nodes that take no new calls.
    pub full: BTreeSet<u32>,
    /// Addresses of this machine, by the one that packets go to.
    pub locals: BTreeMap<IpAddr, IpAddr>,
}

impl Media for PortBoard {
    fn open(&mut self, port: u16) -> bool {
        assert_eq!(port % 2, 0);
        assert!(!self.joined.contains_key(&port), "port {port} is open");
        let is_free = !self.taken_by_others.contains(&port);
        if is_free {
            self.joined.insert(port, None);
        }
        is_free
    }

    fn relay(&mut self, port: u16, relay: &Relay) {
        assert!(self.joined.contains_key(&relay.onto), "joined to a port that isn't open");
        *self.joined.get_mut(&port).expect("an open port") = Some(relay.clone());
    }

    fn close(&mut self, port: u16) {
        assert!(self.joined.remove(&port).is_some(), "port {port} is not open");
    }

    fn admits(&self, node: NodeId) -> bool {
        !self.full.contains(&node.0)
    }

    fn local(&self, remote: IpAddr) -> Option<IpAddr> {
        self.locals.get(&remote).copied()
    }

    fn knows(&self, node: NodeId) -> bool {
        self.nodes.contains(&node.0)
    }
}

impl PortBoard {
    /// The remote end that RTP leaving at `port` goes to.
    pub fn sends(&self, port: u16) -> Remote {
        self.joined.get(&port).and_then(Option::as_ref).map_or(Remote::Nobody, |relay| relay.remote)
    }
}

pub struct Site {
    pub gateway: Gateway,
    pub board: PortBoard,
    pub address: SocketAddr,
    pub events: Vec<Event>,
}

pub fn config(node: u32, address: &str) -> Config {
    let address = at(address);
    Config {
        node: NodeId(node),
        sockets: vec![
            Socket { transport: Transport::Udp, address, local: address.ip() },
            Socket { transport: Transport::Tcp, address, local: address.ip() },
        ],
        names: vec!["gw.example".into()],
        media: vec![address.ip()],
        own: vec![],
        ports: 30_000..=30_099,
        allow: vec!["10.0.0.0/8".parse().unwrap()],
        trust: vec![],
        nodes: vec![],
        routes: vec![],
        networks: vec![],
        elsewhere: Default::default(),
        idle: std::time::Duration::from_secs(600),
        bye_at_stop: true,
        max_calls: 100,
        max_transactions: 1_000,
    }
}

pub fn route(network: &str, via: &str) -> Route {
    let to = Destination::Network(network.parse().unwrap());
    Route { to, via: at(via), transport: Transport::Udp, name: None }
}

/// Two sites whose gateways trust each other.
pub fn two_sites() -> World {
    let site = |node, here: &str, there: &str, network: &str| Config {
        trust: vec![format!("{there}/32").parse().unwrap()],
        routes: vec![route(network, &format!("{there}:5060"))],
        ..config(node, &format!("{here}:5060"))
    };
    World::new(vec![
        site(1, "10.1.0.1", "10.2.0.1", "10.2.0.0/16"),
        site(2, "10.2.0.1", "10.1.0.1", "10.1.0.0/16"),
    ])
}

pub struct World {
    pub now: Time,
    pub sites: Vec<Site>,
    /// Messages delivered to agents but not read yet.
    pub mail: Vec<(SocketAddr, Message)>,
}

impl World {
    /// How calls have ended at a site, in order.
    pub fn outcomes(&self, site: usize) -> Vec<CallOutcome> {
        let ended = |event: &Event| match event {
            Event::Ended(_, outcome) => Some(*outcome),
            _ => None,
        };
        self.sites[site].events.iter().filter_map(ended).collect()
    }

    pub fn new(configs: Vec<Config>) -> World {
        let nodes: BTreeSet<u32> = configs.iter().map(|config| config.node.0).collect();
        let site = |(n, config): (usize, Config)| Site {
            address: config.sockets[0].address,
            gateway: Gateway::new(config, [n as u8 + 1; 32], &[9; 32]),
            board: PortBoard { nodes: nodes.clone(), ..PortBoard::default() },
            events: Vec::new(),
        };
        let sites = configs.into_iter().enumerate().map(site).collect();
        World { now: Time::from_millis(1_000), sites, mail: Vec::new() }
    }

    /// Sends `text` from `from` to `to`, and delivers everything that follows from it.
    pub fn send(&mut self, from: &str, to: &str, text: &str) {
        self.deliver(at(from), at(to), text.as_bytes());
        self.run();
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        match self.sites.iter_mut().find(|site| site.address == to) {
            Some(site) => {
                let hop = Hop { socket: 0, remote: from, connection: None };
                site.gateway.receive(now, hop, bytes, &mut site.board);
            }
            None => self.mail.push((to, Message::parse(bytes).expect("a message"))),
        }
    }

    pub fn run(&mut self) {
        for _ in 0..1_000 {
            let mut sent = Vec::new();
            for site in &mut self.sites {
                while let Some(output) = site.gateway.poll() {
                    sent.push((site.address, output.to.remote, output.bytes));
                }
                while let Some(event) = site.gateway.event() {
                    site.events.push(event);
                }
            }
            if sent.is_empty() {
                return;
            }
            for (from, to, bytes) in sent {
                self.deliver(from, to, &bytes);
            }
        }
        panic!("gateways talk without end");
    }

    /// Advances time by `millis`, handling timeouts on the way.
    pub fn wait(&mut self, millis: u64) {
        let end = self.now + std::time::Duration::from_millis(millis);
        loop {
            let next = self.sites.iter().map(|site| site.gateway.next_timeout()).min().unwrap();
            if next > end {
                break;
            }
            self.now = next.max(self.now);
            for site in &mut self.sites {
                site.gateway.handle_timeout(self.now, &mut site.board);
            }
            self.run();
        }
        self.now = end;
    }

    /// The next message delivered to `agent` with the status code or method `what`; earlier ones
    /// are dropped.
    pub fn read(&mut self, agent: &str, what: &str) -> Message {
        let agent = at(agent);
        while let Some(n) = self.mail.iter().position(|(to, _)| *to == agent) {
            let (_, message) = self.mail.remove(n);
            assert_eq!(message.fault(), None);
            if first_word(&message) == what {
                return message;
            }
        }
        panic!("{agent} has got no {what}");
    }

    /// Methods and status codes of all messages delivered to `agent`.
    pub fn mail_of(&self, agent: &str) -> Vec<String> {
        let agent = at(agent);
        let its = self.mail.iter().filter(|(to, _)| *to == agent);
        its.map(|(_, message)| first_word(message)).collect()
    }
}

/// The method, or the status code.
pub fn first_word(message: &Message) -> String {
    let line = String::from_utf8_lossy(message.bytes()).into_owned();
    let words: Vec<_> = line.split(' ').take(2).collect();
    if words[0] == "SIP/2.0" { words[1].into() } else { words[0].into() }
}

pub fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.bytes()).into_owned()
}

pub fn body(message: &Message) -> String {
    String::from_utf8_lossy(message.body()).into_owned()
}

/// A description that asks for audio at `place`.
pub fn sdp(place: &str) -> String {
    let place = at(place);
    format!(
        "v=0\r\no=- 1 1 IN IP4 {0}\r\ns=-\r\nc=IN IP4 {0}\r\nt=0 0\r\n\
         m=audio {1} RTP/AVP 0\r\na=x-kept:yes\r\n",
        place.ip(),
        place.port()
    )
}

/// The address that a description gives for its first stream, and its virtual port, if advertised.
pub fn wanted(message: &Message) -> (SocketAddr, Option<String>) {
    let sdp = trunkline_sip::sdp::Sdp::parse(message.body()).expect("a description");
    let media = sdp.media()[0];
    let trunkline_sip::sdp::Host::Address(ip) = media.host else { panic!("a name") };
    let told = sdp.attributes(Some(0), "x-trunkline").next();
    let told = told.map(|value| String::from_utf8_lossy(value).into_owned());
    (SocketAddr::new(ip, media.port), told)
}

/// An agent that takes part in a dialog.
pub struct Agent {
    pub at: &'static str,
    pub tag: &'static str,
    pub gateway: &'static str,
}

impl Agent {
    /// A request to `uri` along `routes`.
    pub fn request(
        &self,
        said: (&str, u32, &str),
        to_tag: &str,
        routes: &[String],
        body: &str,
    ) -> String {
        let (method, number, uri) = said;
        let Agent { at, tag, .. } = self;
        let routes: String = routes.iter().map(|r| format!("Route: {r}\r\n")).collect();
        let to_tag = if to_tag.is_empty() { String::new() } else { format!(";tag={to_tag}") };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bK{tag}{number}{method};rport\r\n\
             Max-Forwards: 70\r\n{routes}From: <sip:{tag}@h>;tag={tag}\r\nTo: <sip:b@h>{to_tag}\r\n\
             Call-ID: call\r\nCSeq: {number} {method}\r\nContact: <sip:{tag}@{at}>\r\n{kind}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// A response to `request`.
    pub fn response(&self, request: &Message, said: &str, body: &str) -> String {
        let all = |name: Name| -> String {
            let line =
                |value: &[u8]| format!("{}: {}\r\n", name.text(), String::from_utf8_lossy(value));
            request.list(name).map(line).collect()
        };
        let to = String::from_utf8_lossy(request.first(Name::To).unwrap()).into_owned();
        let to = if to.contains("tag=") { to } else { format!("{to};tag={}", self.tag) };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        format!(
            "SIP/2.0 {said}\r\n{}{}From: {}\r\nTo: {to}\r\nCall-ID: call\r\nCSeq: {}\r\n\
             Contact: <sip:{}@{}>\r\n{kind}Content-Length: {}\r\n\r\n{body}",
            all(Name::Via),
            all(Name::RecordRoute),
            String::from_utf8_lossy(request.first(Name::From).unwrap()),
            String::from_utf8_lossy(request.first(Name::CSeq).unwrap()),
            self.tag,
            self.at,
            body.len()
        )
    }
}

/// The callee's routes from its INVITE; reversed, the caller's routes from its response.
pub fn routes(message: &Message) -> Vec<String> {
    message.list(Name::RecordRoute).map(|r| String::from_utf8_lossy(r).into_owned()).collect()
}

/// Sends an INVITE of `agent` from `from`: a call with this Call-ID that wants its media at
/// `place`.
pub fn call_from(world: &mut World, agent: &Agent, from: &str, name: &str, place: &str) {
    let invite = agent.request(("INVITE", 1, "sip:b@10.2.0.9"), "", &[], &sdp(place));
    let invite = invite.replace("Call-ID: call", &format!("Call-ID: {name}"));
    let invite = invite.replace("z9hG4bK", &format!("z9hG4bK{name}"));
    world.send(from, agent.gateway, &invite);
}
