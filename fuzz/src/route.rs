//! Link-state routing: its frames, and a router among neighbours that send arbitrary data.
//!
//! Invariants: no panic; the driver never spins; two routers with the same input emit the same
//! bytes; every emitted frame parses and fits; memory stays within its limits; no table leads to a
//! link that is down.

pub mod seeds;

use crate::script::{micros, steps};
use core::time::Duration;
use std::sync::Arc;
use trunkline_base::Time;
use trunkline_base::wire::Reader;
use trunkline_overlay::link::{LinkCost, LinkId};
use trunkline_overlay::route::update::{
    Introduction, LINK_LEN, MAX_FRAGMENTS, PENALISED_LEN, RouteFrame, UPDATE_OVERHEAD, Update, sign,
};
use trunkline_overlay::route::{
    Config, CostModel, ForwardingTable, Limits, MIN_ROOM, Neighbour, Part, Router, StaticRoute,
    Unsigned,
};
use trunkline_overlay::wire::{ControlKind, Metric, NodeId};

/// Parses `bytes` as a frame, and as the body of either kind of frame.
pub fn frame(bytes: &[u8]) {
    whole_frame(bytes);
    let Ok(len) = u16::try_from(bytes.len()) else { return };
    for kind in [ControlKind::LinkState, ControlKind::Ack] {
        whole_frame(&[&[kind as u8][..], &len.to_be_bytes(), bytes].concat());
    }
}

fn whole_frame(bytes: &[u8]) {
    match RouteFrame::parse(bytes) {
        Ok(RouteFrame::LinkState(records)) => {
            let mut len = 0;
            for record in records.map_while(Result::ok) {
                len += record.bytes().len() + 2;
                let (origin, seq, draining) = (record.key.origin, record.seq, record.draining);
                let again = match record.key.part {
                    Part::Links(fragment) => {
                        let links: Vec<_> = record.links().collect();
                        let length = |link| links.len() * link + UPDATE_OVERHEAD;
                        let exact = [LINK_LEN, PENALISED_LEN].map(length);
                        assert!(exact.contains(&(record.bytes().len() + 2)));
                        let digest = record.digest.expect("a record of links has one");
                        Update { origin, seq, fragment, draining, digest, links }.emit()
                    }
                    Part::Introduction => {
                        let certificate = record.certificate().to_vec();
                        Introduction { origin, seq, certificate }.emit()
                    }
                };
                let again = again.expect("what was read can be written");
                let again = [&sign(again, &Unsigned)[..], &record.age.to_be_bytes()].concat();
                let again =
                    trunkline_overlay::route::update::Record::parse(&mut Reader::new(&again));
                let again = again.expect("what was written can be read");
                // The bytes may differ: where the loss has fewer than 255 steps, a residual loss
                // has several encodings, and the absence of penalties has two.
                assert!(again.links().eq(record.links()));
                assert_eq!((again.key, again.seq, again.age), (record.key, seq, record.age));
                assert_eq!(again.certificate(), record.certificate());
                assert_eq!(again.digest, record.digest);
            }
            assert!(len <= bytes.len());
        }
        Ok(RouteFrame::Ack(acks)) => assert!(acks.iter().count() <= bytes.len() / 13),
        Err(_) => {}
    }
}

steps! {
    /// A step of the script. `link` is taken modulo the number of links.
    Step {
        /// The clock advances by `n` units, and the driver oversleeps.
        0 Sleep { unit: u8, n: u8 }
        /// The driver sleeps until the next timeout.
        1 Wake {}
        /// A link to this neighbour comes up.
        2 Up { link: u8, neighbour: u8, path: u8, restarted: u8, rtt: u8 }
        /// A link goes down.
        3 Down { link: u8 }
        /// The cost of a link changes.
        4 Cost { link: u8, latency: u16, loss: u16, residual: u16 }
        /// Draining begins or ends.
        5 Drain { yes: u8 }
        /// A frame of arbitrary bytes arrives.
        6 Raw { link: u8, bytes: Vec<u8> }
        /// An update with arbitrary contents arrives; each two bytes are a link. The digest is the
        /// router's own if `digest` is even.
        7 Links { link: u8, origin: u8, seq: u16, age: u16, fragment: u8, digest: u8, ends: Vec<u8> }
        /// An introduction of a node arrives.
        8 Introduce { link: u8, origin: u8, seq: u16, age: u16, certificate: Vec<u8> }
        /// A neighbour acknowledges the last frame sent to it.
        9 AckLast { link: u8 }
        /// A neighbour returns the last frame sent to it.
        10 Echo { link: u8 }
        /// The operator sets a route to a node.
        11 Static { to: u8, via: u8 }
    }
}

const OWN: NodeId = NodeId(1);
const LINKS: u8 = 4;
const WALL: u64 = 1 << 60;
const MAX_NODES: usize = 24;

struct World {
    now: Time,
    /// Two routers with the same input.
    routers: [Router; 2],
    table: Arc<ForwardingTable>,
    up: [bool; LINKS as usize],
    last: [Vec<u8>; LINKS as usize],
}

/// Runs a script of steps.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let mut config = Config::new(OWN);
    config.limits = Limits { max_nodes: MAX_NODES, max_queue: 64, ..Limits::default() };
    config.certificate = Some(vec![7; 40]);
    let now = Time::from_millis(1);
    let router = || Router::new(config.clone(), Box::new(Unsigned), Box::new(Unsigned), WALL, now);
    let mut world = World {
        now,
        routers: [router(), router()],
        table: Arc::default(),
        up: Default::default(),
        last: Default::default(),
    };
    world.settle();
    while let Some(step) = Step::read(&mut r) {
        world.step(&step);
        world.settle();
    }
}

/// Encodes a link given as two bytes.
fn advert(end: &[u8]) -> [u8; LINK_LEN] {
    [0, 0, 0, end[0] % 32, end[1] % 2, 0, end[1], 0, 0, 0]
}

impl World {
    fn each(&mut self, mut f: impl FnMut(&mut Router, Time)) {
        let now = self.now;
        self.routers.iter_mut().for_each(|r| f(r, now));
    }

    fn recv(&mut self, link: u8, frame: &[u8]) {
        let wall = WALL + self.now.as_nanos();
        self.each(|r, now| r.recv(now, wall, LinkId(u16::from(link % LINKS)), frame));
    }

    fn record(&mut self, link: u8, signed: Vec<u8>, age: u16) {
        let body = [&sign(signed, &Unsigned)[..], &age.to_be_bytes()].concat();
        let Ok(len) = u16::try_from(body.len()) else { return };
        self.recv(link, &[&[ControlKind::LinkState as u8][..], &len.to_be_bytes(), &body].concat());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep { unit, n } => self.now += Duration::from_micros(micros(unit, n)),
            Step::Wake {} => self.now = self.now.max(self.routers[0].next_timeout()),
            Step::Up { link, neighbour, path, restarted, rtt } => {
                self.up[usize::from(link % LINKS)] = true;
                let id = NodeId(u32::from(neighbour % 8));
                let rtt = Duration::from_millis(rtt.into());
                let neighbour = Neighbour { id, path: path % 2, restarted: restarted % 2 > 0, rtt };
                self.each(|r, now| r.link_up(now, LinkId(u16::from(link % LINKS)), neighbour));
            }
            Step::Down { link } => {
                self.up[usize::from(link % LINKS)] = false;
                self.each(|r, now| r.link_down(now, LinkId(u16::from(link % LINKS))));
            }
            Step::Cost { link, latency, loss, residual } => {
                // Every other record contains a penalty.
                let penalty = if residual % 2 > 0 { residual } else { 0 };
                let cost = LinkCost { latency, loss, residual, penalty };
                self.each(|r, now| r.set_cost(now, LinkId(u16::from(link % LINKS)), cost));
            }
            Step::Drain { yes } => self.each(|r, now| r.drain(now, yes % 2 > 0)),
            Step::Raw { link, ref bytes } => self.recv(link, bytes),
            Step::Links { link, origin, seq, age, fragment, digest, ref ends } => {
                let mut signed = vec![fragment % MAX_FRAGMENTS];
                signed.extend(u32::from(origin % 32).to_be_bytes());
                signed.extend((WALL + u64::from(seq)).to_be_bytes());
                let own = CostModel::default().digest();
                signed.extend((own ^ u32::from(digest % 2)).to_be_bytes());
                signed.push((ends.len() / 2).min(255) as u8);
                signed.extend(ends.chunks_exact(2).flat_map(advert));
                self.record(link, signed, age);
            }
            Step::Introduce { link, origin, seq, age, ref certificate } => {
                let origin = NodeId(u32::from(origin % 32));
                let seq = WALL + u64::from(seq);
                let introduction = Introduction { origin, seq, certificate: certificate.clone() };
                if let Ok(signed) = introduction.emit() {
                    self.record(link, signed, age);
                }
            }
            Step::AckLast { link } => self.acknowledge(link),
            Step::Echo { link } => {
                let frame = self.last[usize::from(link % LINKS)].clone();
                self.recv(link, &frame);
            }
            Step::Static { to, via } => {
                let node = |n: u8| NodeId(u32::from(n % 32));
                let to = (to > 0).then(|| node(to));
                let route = StaticRoute { to, via: node(via % 8), onward: Duration::ZERO };
                self.each(|r, now| r.set_routes(now, vec![route]));
            }
        }
    }

    fn acknowledge(&mut self, link: u8) {
        let frame = &self.last[usize::from(link % LINKS)];
        let Ok(RouteFrame::LinkState(records)) = RouteFrame::parse(frame) else { return };
        // A record begins with the bytes that acknowledge it.
        let acks: Vec<u8> = records
            .flatten()
            .flat_map(|r| [&[r.bytes()[0] & !0x40], &r.bytes()[1..13]].concat())
            .collect();
        let len = (acks.len() as u16).to_be_bytes();
        self.recv(link, &[&[ControlKind::Ack as u8][..], &len, &acks].concat());
    }

    fn settle(&mut self) {
        self.each(Router::handle_timeout);
        for link in 0..LINKS {
            let mut frames = 0;
            loop {
                let id = LinkId(u16::from(link));
                let now = self.now;
                let [one, two] = self.routers.each_mut().map(|r| r.poll_frame(id, now, MIN_ROOM));
                assert_eq!(one, two, "two routers fed alike differ");
                let Some(frame) = one else { break };
                assert!(frame.len() <= MIN_ROOM && self.up[usize::from(link)]);
                if let Ok(RouteFrame::LinkState(records)) = RouteFrame::parse(&frame) {
                    assert!(records.clone().all(|r| r.is_ok()) && records.count() > 0);
                    self.last[usize::from(link)] = frame;
                }
                frames += 1;
                assert!(frames < 1_000, "frames do not come to an end");
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let [one, two] = self.routers.each_mut().map(Router::table);
        assert_eq!(one, two, "two routers fed alike differ");
        if let Some(table) = one {
            self.table = table;
        }
        let router = &self.routers[0];
        let timeout = router.next_timeout();
        assert!(timeout > self.now, "a driver would spin: {timeout:?}, now {:?}", self.now);
        assert!(router.nodes() <= MAX_NODES && router.differing().len() < MAX_NODES);
        assert!(router.records().count() <= MAX_NODES * (usize::from(MAX_FRAGMENTS) + 1));
        // A table may be 20 ms old, and a link may have died since.
        if self.routers[0].stats().spf_runs > 0 && timeout > self.now + Duration::from_millis(20) {
            for metric in Metric::ALL {
                // A dead link is a next hop only if no route exists.
                for (node, hop) in self.table.iter(metric) {
                    let dead = !self.up[usize::from(hop.link.0)];
                    // Exempt the node itself: a link to itself, which no configuration allows, may
                    // lead there.
                    let led = node != OWN && self.routers[0].route(node, metric).is_some();
                    assert!(!dead || !led, "a route over a dead link");
                }
            }
        }
    }
}
