//! An address is unvalidated until it has answered a challenge (RFC 9000, 8.2 and 9.3); yet a
//! neighbour that has moved is followed before its calls suffer.

use core::net::SocketAddr;
use core::time::Duration;
use rand::RngExt;
use std::collections::{BTreeMap, VecDeque};
use trunkline_base::wire::Writer;
use trunkline_base::{Rng, Time};
use trunkline_overlay::arena::{RxDatagram, TxArena, UplinkId};
use trunkline_overlay::identity::Identity;
use trunkline_overlay::link::{self, Link, LinkId};
use trunkline_overlay::node::{Config, Node, Sealing, SendOutcome, Sink, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{SESSION_VERSION, ToNode};
use trunkline_overlay::wire::{Incarnation, NodeId, Service};

const STEP: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// IP and UDP headers, which the test's counts include.
const HEADERS: usize = 28;

#[derive(Default)]
struct Packets(u64);

impl Sink for Packets {
    fn deliver(&mut self, _: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome {
        // Not the message that confirms a bind.
        self.0 += u64::from(head.len() + payload.len() > 100);
        SendOutcome::Accepted
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn address(n: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], port))
}

const SERVER: u8 = 2;

/// Protection of the links.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Links {
    Sealed,
    Unsealed,
}

fn node(own: u8, other: u8, to: Option<SocketAddr>, kind: Links, incarnation: u64) -> Node {
    let identity = |n| Identity::from_secret(&[n; 32]);
    let mut config = Config::new(NodeId(own.into()));
    let mut link = link::Config::new(NodeId(other.into()));
    link.address = to;
    if kind == Links::Sealed {
        link.key = Some(identity(other).public());
        config.sealing = Some(Sealing::new(identity(own)));
    }
    config.links.push(link);
    let start = Start::simulated(Time::ZERO, Incarnation(incarnation), own.into());
    Node::new(config, start).unwrap()
}

/// Node 1, which dials, and node 2, which only answers.
struct Net {
    now: Time,
    delay: Duration,
    nodes: [Node; 2],
    sessions: [SessionId; 2],
    came: [Packets; 2],
    talking: bool,
    /// Whether uplink 1 has no room.
    full: bool,
    /// Apparent source of node 1's datagrams, and addresses at which it can be reached.
    outside: SocketAddr,
    reached: Vec<SocketAddr>,
    /// Source of copies of node 1's datagrams that arrive before the originals.
    racer: Option<SocketAddr>,
    wire: VecDeque<(Time, usize, SocketAddr, Vec<u8>)>,
    /// Share of datagrams that are lost, decided by these draws.
    loss: f64,
    draws: Rng,
    /// Bytes that node 2 has sent to and received from each address.
    sent: BTreeMap<SocketAddr, usize>,
    had: BTreeMap<SocketAddr, usize>,
}

impl Net {
    fn new(kind: Links, delay: Duration) -> Net {
        let (server, outside) = (address(SERVER, 7_000), address(1, 40_001));
        let mut net = Net {
            now: Time::ZERO,
            delay,
            nodes: [node(1, 2, Some(server), kind, 1), node(2, 1, None, kind, 1)],
            sessions: [SessionId(0); 2],
            came: Default::default(),
            talking: false,
            full: false,
            outside,
            reached: vec![outside],
            racer: None,
            wire: VecDeque::new(),
            loss: 0.0,
            draws: trunkline_base::rng(1, 1),
            sent: BTreeMap::new(),
            had: BTreeMap::new(),
        };
        for i in 0..2 {
            net.open(i);
        }
        net.run(2 * SECOND);
        assert!(net.link(0).monitor().is_up() && net.link(1).monitor().is_up());
        net
    }

    fn open(&mut self, i: usize) {
        self.sessions[i] = self.nodes[i].session_open().unwrap();
        self.say(i, &ToNode::Bind { version: SESSION_VERSION, port: 5 });
    }

    fn say(&mut self, i: usize, message: &ToNode<'_>) {
        let mut bytes = [0; 300];
        let mut w = Writer::new(&mut bytes);
        message.emit_head(&mut w).unwrap();
        if let ToNode::Send { .. } = message {
            w.bytes(&[7; 160]).unwrap();
        }
        let (id, bytes) = (self.sessions[i], w.written().to_vec());
        self.nodes[i].session_recv(self.now, id, &bytes, &mut self.came[i]);
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut arena = TxArena::new(64 << 10, 64);
        if self.full {
            arena.set_room(UplinkId(1), 0);
        }
        while self.now < end {
            self.now += STEP;
            let now = self.now;
            while let Some((at, ..)) = self.wire.front()
                && *at <= now
                && let Some((at, to, from, mut bytes)) = self.wire.pop_front()
            {
                if to == 1 {
                    *self.had.entry(from).or_default() += bytes.len() + HEADERS;
                }
                let mut batch = [RxDatagram { at, from, local: None, bytes: &mut bytes }];
                self.nodes[to].recv(now, &mut batch, &mut self.came[to]);
            }
            let is_time = now.as_nanos().is_multiple_of(20_000_000);
            for i in 0..2 {
                if self.talking && is_time {
                    let (to, service) = (NodeId(2 - i as u32), Service::RealTime);
                    let send =
                        ToNode::Send { service, deadline_ms: 100, to, port: 5, payload: &[] };
                    self.say(i, &send);
                }
                self.nodes[i].handle_timeout(now, &mut Packets::default());
                arena.clear();
                self.nodes[i].transmit(now, &mut arena);
                for run in arena.runs() {
                    for bytes in arena.envelopes(run) {
                        self.send(i, run.to, bytes.to_vec());
                    }
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        let at = self.now + self.delay;
        let lost = self.draws.random_bool(self.loss);
        if from == 0 {
            // An eavesdropper also has the datagrams that are lost afterwards.
            if let Some(racer) = self.racer {
                self.wire.push_back((at, 1, racer, bytes.clone()));
            }
            if !lost {
                self.wire.push_back((at, 1, self.outside, bytes));
            }
            return;
        }
        *self.sent.entry(to).or_default() += bytes.len() + HEADERS;
        if self.reached.contains(&to) && !lost {
            self.wire.push_back((at, 0, address(SERVER, 7_000), bytes));
        }
    }

    fn link(&self, node: usize) -> &Link {
        self.nodes[node].link(LinkId(0)).unwrap()
    }

    /// Packets of the call that node 1 and node 2 missed in `duration`.
    fn missed(&mut self, duration: Duration, events: impl FnOnce(&mut Net)) -> [i64; 2] {
        self.talking = true;
        self.run(SECOND);
        let before = [self.came[0].0, self.came[1].0];
        let began = self.now;
        events(self);
        let rest = duration.saturating_sub(self.now.since(began));
        self.run(rest);
        let due = (duration.as_millis() / 20) as i64;
        [0, 1].map(|i| due - (self.came[i].0 - before[i]) as i64)
    }

    fn down(&self) -> u64 {
        (0..2).map(|i| self.link(i).monitor().quality().downs).sum()
    }
}

const KINDS: [Links; 2] = [Links::Sealed, Links::Unsealed];

/// A member claims a victim's address as its own, with and without a call over its link.
#[test]
fn who_writes_anothers_address_brings_it_no_more_than_three_times_as_much() {
    for kind in KINDS {
        for talks in [false, true] {
            let mut net = Net::new(kind, ms(10));
            let victim = address(9, 40_009);
            net.outside = victim;
            // The member itself sends little.
            let mut t = 0;
            while t < 10_000 {
                net.talking = talks;
                net.run(ms(500));
                t += 500;
            }
            let (sent, had) = (net.sent.get(&victim).copied().unwrap_or(0), net.had[&victim]);
            println!("{kind:?}, a call {talks}: {sent} bytes to the victim for {had}");
            assert!(sent <= 3 * had, "{kind:?}: {sent} bytes for {had}");
            assert_eq!(net.link(1).address(), Some(address(1, 40_001)), "{kind:?}");
            assert_eq!(net.down(), 0, "the path that was there is kept");
        }
    }
}

/// The same without a call from the member: the traffic towards it is ten times the traffic it
/// sends.
#[test]
fn nor_by_signs_of_life_alone() {
    for kind in KINDS {
        let mut net = Net::new(kind, ms(10));
        let victim = address(9, 40_009);
        net.outside = victim;
        for _ in 0..1_000 {
            let (to, service) = (NodeId(1), Service::RealTime);
            net.run(ms(10));
            net.say(1, &ToNode::Send { service, deadline_ms: 100, to, port: 5, payload: &[] });
        }
        let (sent, had) = (net.sent.get(&victim).copied().unwrap_or(0), net.had[&victim]);
        println!("{kind:?}: {sent} bytes to the victim for {had}");
        assert!(sent <= 3 * had, "{kind:?}: {sent} bytes for {had}");
    }
}

/// Its NAT forgets a mapping in the middle of a call: datagrams to the old one are lost.
#[test]
fn a_call_hears_next_to_nothing_of_a_new_mapping() {
    for kind in KINDS {
        for one_way in [10, 40, 80] {
            let mut net = Net::new(kind, ms(one_way));
            let new = address(1, 40_002);
            let missed = net.missed(3 * SECOND, |net| {
                (net.outside, net.reached) = (new, vec![new]);
            });
            println!("{kind:?}, {} ms there and back: {missed:?} packets missed", 2 * one_way);
            assert_eq!(net.link(1).address(), Some(new), "{kind:?} {one_way}");
            // Packets in flight to the old mapping, and those sent until its first packet arrives
            // from the new one.
            let under_way = (2 * one_way as i64 + 20) / 20;
            assert!(missed[0] <= under_way + 1 && missed[1] <= 0, "{kind:?} {one_way} {missed:?}");
            assert_eq!(net.down(), 0);
        }
    }
}

/// The queue to the old address hangs, such as that of a radio network that the neighbour has left.
#[test]
fn a_neighbour_is_followed_away_from_an_uplink_that_takes_nothing() {
    for kind in KINDS {
        let mut net = Net::new(kind, ms(10));
        let new = address(1, 40_002);
        net.nodes[1].set_uplink(LinkId(0), UplinkId(1), None);
        (net.outside, net.reached, net.full) = (new, vec![new], true);
        net.run(SECOND);
        assert_eq!(net.link(1).address(), Some(new), "{kind:?}");
    }
}

/// An eavesdropper sends copies of node 1's datagrams from elsewhere and faster, first a single
/// one, then all of them, and drops the replies.
#[test]
fn copies_that_overtake_take_no_call_away() {
    for kind in KINDS {
        let mut net = Net::new(kind, ms(20));
        let racer = address(66, 40_066);
        let missed = net.missed(3 * SECOND, |net| {
            net.racer = Some(racer);
            net.run(ms(1));
            net.racer = None;
        });
        println!("{kind:?}, one copy: {missed:?} packets missed");
        assert_eq!(missed, [0, 0], "{kind:?}");
        let missed = net.missed(10 * SECOND, |net| {
            net.racer = Some(racer);
            net.run(5 * SECOND);
            net.racer = None;
        });
        println!("{kind:?}, 5 s of copies: {missed:?} packets missed");
        assert_eq!(net.link(1).address(), Some(address(1, 40_001)), "{kind:?}");
        assert_eq!(missed, [0, 0], "{kind:?}");
        // Copies are also relayed in both directions, while the old path works.
        if kind == Links::Sealed {
            net.reached.push(racer);
            let missed = net.missed(10 * SECOND, |net| {
                net.racer = Some(racer);
                net.run(5 * SECOND);
                net.reached.pop();
                net.run(SECOND);
                net.racer = None;
            });
            println!("{kind:?}, passed on for 5 s, then not: {missed:?} packets missed");
            assert_eq!(missed, [0, 0]);
        }
        assert_eq!(net.down(), 0, "{kind:?}");
    }
}

/// Challenges to the old address and their answers are lost, relayed ones are not.
#[test]
fn losses_alone_move_nobody() {
    let mut net = Net::new(Links::Sealed, ms(20));
    let racer = address(66, 40_066);
    net.reached.push(racer);
    (net.racer, net.loss, net.talking) = (Some(racer), 0.1, true);
    net.run(60 * SECOND);
    assert_eq!(net.link(1).address(), Some(address(1, 40_001)));
    assert_eq!(net.down(), 0);
}

/// The handshake of a node that restarts behind another mapping validates its address, which is
/// used from its first envelope on.
#[test]
fn a_new_start_elsewhere_is_followed_at_once() {
    let mut net = Net::new(Links::Sealed, ms(10));
    let new = address(1, 40_002);
    (net.outside, net.reached) = (new, vec![new]);
    net.nodes[0] = node(1, 2, Some(address(SERVER, 7_000)), Links::Sealed, 1 << 40);
    net.run(ms(60));
    assert_eq!(net.link(1).address(), Some(new), "a round trip and a way");
}

/// 10,000 addresses are used in turn, each with the credit of its datagrams.
#[test]
fn many_addresses_get_no_more_than_one() {
    let mut net = Net::new(Links::Sealed, ms(10));
    net.talking = true;
    for n in 0..10_000_u32 {
        net.outside = SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 9));
        net.run(STEP);
    }
    let victims = |net: &Net, map: &BTreeMap<SocketAddr, usize>| -> usize {
        map.iter().filter(|(a, _)| **a != net.reached[0]).map(|(_, n)| n).sum()
    };
    let (sent, had) = (victims(&net, &net.sent), victims(&net, &net.had));
    println!("{sent} bytes to 10,000 addresses for {had}");
    for (address, &sent) in net.sent.iter().filter(|(a, _)| **a != net.reached[0]) {
        let had = net.had.get(address).copied().unwrap_or(0);
        assert!(sent <= 3 * had, "{address}: {sent} bytes for {had}");
    }
    assert_eq!(net.link(1).address(), Some(net.reached[0]));
    assert_eq!(net.down(), 0);
}

/// Time for which node 2 keeps sending to the old address after node 1 has got another mapping in
/// the middle of a call, and the number of packets missed. Just before, for 5 s, copies from this
/// many addresses in turn overtook its datagrams.
fn followed_after(kind: Links, racers: u16) -> (Duration, [i64; 2]) {
    let mut net = Net::new(kind, ms(20));
    let (new, mut took) = (address(1, 40_002), None);
    let racer = |n: u16| address(66, 40_000 + n);
    let missed = net.missed(10 * SECOND, |net| {
        for n in 0..500 {
            net.racer = (racers > 0).then(|| racer(n % racers.max(1)));
            net.run(ms(10));
        }
        net.racer = None;
        (net.outside, net.reached) = (new, vec![new]);
        let begun = net.now;
        while net.link(1).address() != Some(new) && net.now.since(begun) < 4 * SECOND {
            net.run(STEP);
        }
        took = Some(net.now.since(begun));
    });
    for n in 0..racers {
        let bytes = |map: &BTreeMap<_, _>| map.get(&racer(n)).copied().unwrap_or(0);
        let (sent, had) = (bytes(&net.sent), bytes(&net.had));
        assert!(sent <= 3 * had, "{kind:?}, of {racers} {n}: {sent} bytes for {had}");
    }
    assert_eq!(net.down(), 0, "{kind:?}");
    (took.unwrap(), missed)
}

#[test]
fn a_mapping_that_is_new_right_after_an_attack_is_followed_as_soon() {
    for kind in KINDS {
        let (alone, _) = followed_after(kind, 0);
        for racers in [1, 3, 50, 500] {
            let (after, missed) = followed_after(kind, racers);
            println!("{kind:?}, after copies from {racers}: {after:?} {missed:?}; else {alone:?}");
            // Only packets in flight are missed, as without copies.
            assert!(missed[0] <= 3 && missed[1] <= 0, "{kind:?} {racers}: {missed:?}");
            // Two round trips and a hello later.
            assert!(after <= alone + ms(2 * 40 + 100), "{kind:?} {racers}: {after:?}, {alone:?}");
        }
    }
}
