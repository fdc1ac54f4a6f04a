//! The end of a path at this node: where the neighbour began the session, and what is answered
//! leaves from there.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_overlay::arena::{LocalAddress, RxDatagram, TxArena};
use trunkline_overlay::identity::Identity;
use trunkline_overlay::link::{self, Link, LinkId};
use trunkline_overlay::node::{Config, Node, Sealing, SendOutcome, Sink, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::wire::{Incarnation, Kind, NodeId};

const STEP: Duration = Duration::from_millis(1);

struct Nobody;

impl Sink for Nobody {
    fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
        SendOutcome::Accepted
    }
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 7_000))
}

/// An address of node 2, which has several.
fn local(n: u8) -> LocalAddress {
    LocalAddress { socket: n.into(), ip: Some([198, 51, 100, n].into()) }
}

fn node(own: u8, other: u8, to: Option<SocketAddr>, start: u64) -> Node {
    let identity = |n| Identity::from_secret(&[n; 32]);
    let mut link = link::Config::new(NodeId(other.into()));
    (link.address, link.key) = (to, Some(identity(other).public()));
    let mut config = Config::new(NodeId(own.into()));
    config.links.push(link);
    config.sealing = Some(Sealing::new(identity(own)));
    Node::new(config, Start::simulated(Time::ZERO, Incarnation(start), own.into())).unwrap()
}

/// Node 1, which dials, and node 2.
struct Net {
    now: Time,
    nodes: [Node; 2],
    /// Where the datagrams of node 1 arrive at node 2.
    arrive: LocalAddress,
    /// Whether node 2 can be reached.
    connected: bool,
    /// Datagrams under way to node 1 and node 2.
    wire: [VecDeque<Vec<u8>>; 2],
    /// Where the answers to handshakes left node 2, in order, without repetitions.
    answers: Vec<Option<LocalAddress>>,
    /// Handshakes of node 1.
    handshakes: Vec<Vec<u8>>,
}

impl Net {
    fn new() -> Net {
        Net {
            now: Time::ZERO,
            nodes: [node(1, 2, Some(address(2)), 1), node(2, 1, None, 1)],
            arrive: local(1),
            connected: true,
            wire: Default::default(),
            answers: Vec::new(),
            handshakes: Vec::new(),
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut arena = TxArena::new(64 << 10, 64);
        while self.now < end {
            self.now += STEP;
            for i in 0..2 {
                let local = [None, Some(self.arrive)][i];
                while let Some(bytes) = self.wire[i].pop_front() {
                    self.receive(i, local, bytes);
                }
                self.nodes[i].handle_timeout(self.now, &mut Nobody);
                arena.clear();
                self.nodes[i].transmit(self.now, &mut arena);
                for run in arena.runs() {
                    self.leave(i, &arena, run);
                }
            }
        }
    }

    fn leave(&mut self, i: usize, arena: &TxArena, run: &trunkline_overlay::arena::Run) {
        for bytes in arena.envelopes(run) {
            let is_handshake = Kind::of(bytes).is_ok_and(Kind::is_handshake);
            if is_handshake && i == 0 {
                self.handshakes.push(bytes.to_vec());
            } else if is_handshake && self.answers.last() != Some(&run.from) {
                self.answers.push(run.from);
            }
            if self.connected {
                self.wire[1 - i].push_back(bytes.to_vec());
            }
        }
    }

    fn receive(&mut self, i: usize, local: Option<LocalAddress>, mut bytes: Vec<u8>) {
        let from = address(2 - i as u8);
        let mut batch = [RxDatagram { at: self.now, from, local, bytes: &mut bytes }];
        self.nodes[i].recv(self.now, &mut batch, &mut Nobody);
    }

    fn link(&self, i: usize) -> &Link {
        self.nodes[i].link(LinkId(0)).unwrap()
    }

    /// Whether the driver of node 2 is told of other ends of its link.
    fn is_told(&mut self) -> bool {
        self.nodes[1].next_moved().is_some()
    }
}

#[test]
fn a_session_leaves_from_where_the_neighbour_began_it() {
    let mut net = Net::new();
    net.run(Duration::from_secs(1));
    assert!(net.link(1).monitor().is_up() && net.is_told());
    assert_eq!(net.answers, [Some(local(1))]);
    assert_eq!(net.link(1).local(), Some(local(1)));
    assert_eq!(net.link(0).local(), None, "it chose the path itself");

    // A later packet at another address, of the same session, changes nothing: keys decide.
    net.arrive = local(2);
    net.run(Duration::from_secs(1));
    assert_eq!(net.link(1).local(), Some(local(1)));
    assert!(!net.is_told());

    // The neighbour starts anew, and calls at the other address.
    net.nodes[0] = node(1, 2, Some(address(2)), 2);
    net.run(Duration::from_secs(1));
    assert!(net.is_told());
    assert_eq!(net.link(1).local(), Some(local(2)));
    assert_eq!(net.answers, [1, 2].map(|n| Some(local(n))));
}

/// Anybody can send copies of handshakes, and handshakes in somebody's name, to any address.
#[test]
fn copies_of_handshakes_move_no_link() {
    let mut net = Net::new();
    net.run(Duration::from_secs(1));
    net.answers.clear();
    for bytes in net.handshakes.clone() {
        net.receive(1, Some(local(3)), bytes);
        net.run(Duration::from_millis(100));
    }
    net.run(Duration::from_secs(1));
    assert_eq!(net.link(1).local(), Some(local(1)));
    assert!(net.link(1).monitor().is_up());
    assert!(net.answers.iter().all(|from| *from == Some(local(3))), "{:?}", net.answers);
}

#[test]
fn a_link_that_is_down_leaves_as_the_host_chooses() {
    let mut net = Net::new();
    net.run(Duration::from_secs(1));
    while net.is_told() {}
    net.connected = false;
    net.run(Duration::from_secs(5));
    assert!(!net.link(1).monitor().is_up() && net.is_told());
    assert_eq!(net.link(1).local(), None);
    (net.connected, net.arrive) = (true, local(4));
    net.run(Duration::from_secs(2));
    assert_eq!(net.link(1).local(), Some(local(4)), "until the neighbour calls again");
}

/// The name of a neighbour has several addresses.
#[test]
fn a_link_that_is_down_tries_another_address() {
    let mut net = Net::new();
    net.nodes[0] = node(1, 2, Some(address(9)), 1);
    net.connected = false;
    net.run(Duration::from_secs(1));
    let mut arena = TxArena::new(64 << 10, 64);
    net.nodes[0].set_address(net.now, LinkId(0), address(2));
    net.nodes[0].handle_timeout(net.now, &mut Nobody);
    net.nodes[0].transmit(net.now, &mut arena);
    assert!(arena.runs().iter().any(|run| run.to == address(2)), "a handshake begins at once");
    net.connected = true;
    net.run(Duration::from_secs(1));
    assert!(net.link(0).monitor().is_up());
    net.nodes[0].set_address(net.now, LinkId(0), address(9));
    assert_eq!(net.link(0).address(), Some(address(2)), "a link that is up keeps its address");
}
