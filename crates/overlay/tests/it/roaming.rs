//! A node behind a NAT dials out, keeps its mapping alive without traffic of its own, and is
//! followed to another mapping by the other end of its link.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::identity::Identity;
use trunkline_overlay::link::{self, Link, LinkId};
use trunkline_overlay::node::{Config, Node, Sealing, SendOutcome, Sink, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::wire::{Incarnation, Kind, NodeId};

const STEP: Duration = Duration::from_millis(5);
const DELAY: Duration = Duration::from_millis(10);

struct Nobody;

impl Sink for Nobody {
    fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
        SendOutcome::Accepted
    }
}

fn address(n: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], port))
}

/// A sealed node with one link; `to` is its neighbour's address.
fn node(own: u8, other: u8, to: Option<SocketAddr>) -> Node {
    let identity = |n| Identity::from_secret(&[n; 32]);
    let mut config = Config::new(NodeId(own.into()));
    let mut link = link::Config::new(NodeId(other.into()));
    (link.key, link.address) = (Some(identity(other).public()), to);
    config.links.push(link);
    config.sealing = Some(Sealing::new(identity(own)));
    Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), own.into())).unwrap()
}

/// Node 1 behind a NAT, and node 2, which only answers.
struct Net {
    now: Time,
    nodes: [Node; 2],
    server: SocketAddr,
    /// Address that the NAT maps node 1 to.
    outside: SocketAddr,
    /// Whether initiations of node 1 are lost, but not its answers.
    mute: bool,
    /// Arrival time, receiving node, source and bytes.
    wire: VecDeque<(Time, usize, SocketAddr, Vec<u8>)>,
    /// Time at which node 1 last sent something, which keeps the NAT's mapping alive.
    last_out: Time,
    longest_silence: Duration,
    /// Destinations of node 2's handshakes.
    greeted: Vec<SocketAddr>,
}

impl Net {
    fn new() -> Net {
        let server = address(2, 7_000);
        Net {
            now: Time::ZERO,
            nodes: [node(1, 2, Some(server)), node(2, 1, None)],
            server,
            outside: address(1, 40_001),
            mute: false,
            wire: VecDeque::new(),
            last_out: Time::ZERO,
            longest_silence: Duration::ZERO,
            greeted: Vec::new(),
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut arena = TxArena::new(64 << 10, 64);
        while self.now < end {
            self.now += STEP;
            let now = self.now;
            while let Some((at, ..)) = self.wire.front()
                && *at <= now
                && let Some((at, to, from, mut bytes)) = self.wire.pop_front()
            {
                let mut batch = [RxDatagram { at, from, local: None, bytes: &mut bytes }];
                self.nodes[to].recv(now, &mut batch, &mut Nobody);
            }
            for from in 0..2 {
                self.nodes[from].handle_timeout(now, &mut Nobody);
                arena.clear();
                self.nodes[from].transmit(now, &mut arena);
                for run in arena.runs() {
                    for bytes in arena.envelopes(run) {
                        self.send(from, run.to, bytes.to_vec());
                    }
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        let shakes = Kind::of(&bytes).is_ok_and(Kind::is_handshake);
        let at = self.now + DELAY;
        if from == 0 {
            assert_eq!(to, self.server);
            let silence = self.now.since(self.last_out);
            self.longest_silence = self.longest_silence.max(silence);
            self.last_out = self.now;
            if self.mute && Kind::of(&bytes) == Ok(Kind::Initiation) {
                return;
            }
            return self.wire.push_back((at, 1, self.outside, bytes));
        }
        if shakes {
            self.greeted.push(to);
        }
        // A datagram to a former mapping is lost.
        if to == self.outside {
            self.wire.push_back((at, 0, self.server, bytes));
        }
    }

    fn link(&self, node: usize) -> &Link {
        self.nodes[node].link(LinkId(0)).unwrap()
    }
}

#[test]
fn a_mapping_is_kept_alive_and_a_new_one_followed() {
    let mut net = Net::new();
    let second = Duration::from_secs(1);
    net.run(2 * second);
    assert!(net.link(0).monitor().is_up() && net.link(1).monitor().is_up());
    assert_eq!(net.link(1).address(), Some(net.outside));
    net.longest_silence = Duration::ZERO;
    net.run(30 * second);
    // RFC 4787, 4.3: a mapping lasts two minutes, in the worst NATs half a minute.
    assert!(net.longest_silence < second, "{:?}", net.longest_silence);

    let (before, after) = (net.outside, address(9, 40_002));
    let straggler = loop {
        net.run(STEP);
        if let Some(i) = net.wire.iter().position(|(_, to, ..)| *to == 1) {
            break net.wire.remove(i).unwrap().3;
        }
    };
    net.outside = after;
    net.run(second);
    assert_eq!(net.link(1).address(), Some(after));
    // A delayed datagram from the old mapping is genuine, but not the newest.
    let received = net.link(1).stats().received.envelopes;
    net.wire.push_front((net.now, 1, before, straggler));
    net.run(STEP);
    assert_eq!(net.link(1).stats().received.envelopes, received + 1);
    assert_eq!(net.link(1).address(), Some(after));

    // Nor is the link lost if the end that only answered has to begin.
    (net.mute, net.greeted) = (true, Vec::new());
    net.run(150 * second);
    assert!(!net.greeted.is_empty() && net.greeted.iter().all(|to| *to == after));
    for node in 0..2 {
        let quality = net.link(node).monitor().quality();
        assert_eq!((quality.up, quality.downs), (true, 0), "node {}", node + 1);
    }
}
