//! The end of a path at this node: where the neighbour began the session, and what is answered
//! leaves from there.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_overlay::arena::{Ends, LocalAddress, OwnAddresses, RxDatagram, TxArena};
use trunkline_overlay::handshake::RefusedHandshake;
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
    /// The number of the address that node 2 sends from. Once it is set, the datagrams of node 1
    /// arrive at the address that they are sent to.
    second: Option<u8>,
    /// Whether node 2 can be reached.
    connected: bool,
    /// Datagrams under way to node 1 and node 2.
    wire: [VecDeque<(Vec<u8>, SocketAddr)>; 2],
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
            second: None,
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
                while let Some((bytes, to)) = self.wire[i].pop_front() {
                    let SocketAddr::V4(to) = to else { unreachable!("all are of IPv4") };
                    let arrive = self.second.map_or(self.arrive, |_| local(to.ip().octets()[3]));
                    self.receive(i, [None, Some(arrive)][i], bytes);
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
                self.wire[1 - i].push_back((bytes.to_vec(), run.to));
            }
        }
    }

    fn receive(&mut self, i: usize, local: Option<LocalAddress>, mut bytes: Vec<u8>) {
        let from = address([self.second.unwrap_or(2), 1][i]);
        let mut batch = [RxDatagram { at: self.now, from, local, bytes: &mut bytes }];
        self.nodes[i].recv(self.now, &mut batch, &mut Nobody);
    }

    fn link(&self, i: usize) -> &Link {
        self.nodes[i].link(LinkId(0)).unwrap()
    }

    /// Binds node 2 to an own address.
    fn bind(&mut self, n: u8) {
        let own = local(n).ip.into_iter().collect();
        self.nodes[1].bind(LinkId(0), Some(OwnAddresses::new(own)));
    }

    /// Number of handshakes that node 2 refused because they came by another path.
    fn refused(&self) -> u64 {
        let stats = self.nodes[1].control().handshakes().expect("links are sealed");
        stats.refused(RefusedHandshake::OtherPath)
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

#[test]
fn a_bound_link_takes_no_other_path() {
    let mut net = Net::new();
    net.nodes[1] = node(2, 1, Some(address(1)), 1);
    net.bind(2);
    // Its own handshakes get no answers, and those of node 1 arrive at another address.
    net.answers.clear();
    net.run(Duration::from_secs(3));
    assert!(net.refused() >= 3, "{}", net.refused());
    let own = [net.link(1).address(), net.link(0).address()];
    assert_eq!(own, [Some(address(1)), Some(address(2))]);
    assert_eq!(net.link(1).local(), None, "its session is the one that it began");
    // The link is up by the session that node 2 began, but its packets arrive elsewhere.
    let astray = net.link(1).astray(net.now).expect("packets arrive elsewhere");
    assert_eq!(Some(astray.0), local(1).ip);
    assert!(net.is_told());
    net.arrive = local(2);
    net.run(Duration::from_secs(3));
    assert_eq!(net.link(1).astray(net.now), None);

    // It is bound to another one while it is up, and a neighbour that calls there is heard.
    net.bind(1);
    net.nodes[0] = node(1, 2, Some(address(2)), 2);
    net.arrive = local(1);
    net.run(Duration::from_secs(2));
    assert_eq!(net.link(1).local(), Some(local(1)));
    net.bind(3);
    assert_eq!(net.link(1).local(), None, "it doesn't leave from there any more");
}

/// Anybody can send a copy to another address of a node, which is no fault of its neighbour's.
#[test]
fn a_copy_is_not_taken_for_another_path() {
    let mut net = Net::new();
    net.bind(1);
    net.run(Duration::from_secs(1));
    assert!(net.link(1).monitor().is_up());
    for bytes in net.handshakes.clone() {
        net.receive(1, Some(local(2)), bytes);
    }
    assert_eq!(net.refused(), 0);
}

/// A reload gives the link of node 2 another source. Node 1 knows nothing of that.
#[test]
fn the_neighbour_of_a_link_that_was_moved_follows_it() {
    let mut net = Net::new();
    net.second = Some(2);
    net.bind(2);
    net.run(Duration::from_secs(2));
    assert!(net.link(0).monitor().is_up() && net.link(1).monitor().is_up());
    net.bind(5);
    net.second = Some(5);
    net.run(Duration::from_secs(1));
    assert_eq!(net.link(0).address(), Some(address(5)));
    net.run(Duration::from_secs(3));
    assert_eq!(net.link(1).astray(net.now), None);
    assert_eq!([0, 1].map(|i| net.link(i).stats().downs), [0, 0]);
}

#[test]
fn where_the_own_end_is_unknown_the_ip_version_binds() {
    let own = OwnAddresses::new(vec![[198, 51, 100, 1].into()]);
    let includes = |from: &str, ip: Option<&str>| {
        let ip = ip.map(|ip| ip.parse().expect("an address"));
        let local = Some(LocalAddress { socket: 0, ip });
        own.include(&Ends { remote: from.parse().expect("an address"), local })
    };
    assert!(includes("192.0.2.1:7000", Some("198.51.100.1")));
    assert!(includes("192.0.2.1:7000", None));
    assert!(!includes("192.0.2.1:7000", Some("198.51.100.2")));
    assert!(!includes("[2001:db8::1]:7000", None));
}
