//! A silence has no cost after it ends, however many 16-bit numbers were used meanwhile.

use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::handshake::RefusedHandshake;
use trunkline_overlay::identity::{Identity, Trust};
use trunkline_overlay::link::{self, DownCause, LinkId};
use trunkline_overlay::node::{
    Changes, Config, Drained, Node, Notice, Sealing, SendOutcome, Sink, Start,
};
use trunkline_overlay::route::StaticRoute;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};
use trunkline_overlay::wire::{Incarnation, NodeId, Service};

/// The first bytes of each payload that applications received.
#[derive(Default)]
struct Application(Vec<u32>);

impl Sink for Application {
    fn deliver(&mut self, _: SessionId, _: &[u8], payload: &[u8]) -> SendOutcome {
        self.0.extend(payload.first_chunk().map(|n| u32::from_be_bytes(*n)));
        SendOutcome::Accepted
    }
}

fn message(what: &ToNode<'_>, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    what.emit_head(&mut w).unwrap();
    [w.written(), payload].concat()
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_001 + n as u16))
}

/// Two neighbours; the first sends to the second.
struct Pair {
    nodes: [Node; 2],
    session: SessionId,
    now: Time,
    sent: u32,
    rate: u32,
    service: Service,
    got: Application,
}

impl Pair {
    fn new(sealed: bool, rate: u32) -> Pair {
        let identity = |n: usize| Identity::from_secret(&[n as u8 + 1; 32]);
        let nodes = [0, 1].map(|n| {
            let (own, peer) = (NodeId(n as u32 + 1), NodeId(2 - n as u32));
            let mut link = link::Config::new(peer);
            link.address = Some(address(1 - n));
            link.key = sealed.then(|| identity(1 - n).public());
            let mut config = Config::new(own);
            config.links.push(link);
            config.routes.push(StaticRoute { to: None, via: peer, onward: Duration::ZERO });
            config.sealing = sealed.then(|| Sealing::new(identity(n)));
            Node::new(config, Start::simulated(Time::ZERO, Incarnation(1), 7)).unwrap()
        });
        let mut pair = Pair {
            nodes,
            session: SessionId(0),
            now: Time::ZERO,
            sent: 0,
            rate,
            service: Service::RealTime,
            got: Application::default(),
        };
        let bind = message(&ToNode::Bind { version: SESSION_VERSION, port: 9 }, &[]);
        for n in 0..2 {
            let session = pair.nodes[n].session_open().unwrap();
            pair.nodes[n].session_recv(Time::ZERO, session, &bind, &mut pair.got);
        }
        // Until both have the keys and know the round trip.
        pair.run(Duration::from_millis(700), 0, true);
        pair
    }

    /// Lets time pass; the first node sends `rate` packets a second, which are lost unless `heard`.
    /// The other direction has no loss.
    fn run(&mut self, time: Duration, rate: u32, heard: bool) {
        const STEP: Duration = Duration::from_micros(100);
        let end = self.now + time;
        let mut due = 0;
        while self.now < end {
            self.now += STEP;
            due += u64::from(rate) * STEP.as_nanos() as u64;
            while due >= 1_000_000_000 {
                due -= 1_000_000_000;
                let (service, to) = (self.service, NodeId(2));
                let send = ToNode::Send { service, deadline_ms: 100, to, port: 9, payload: &[] };
                let bytes = message(&send, &self.sent.to_be_bytes());
                self.sent += 1;
                self.nodes[0].session_recv(self.now, self.session, &bytes, &mut self.got);
            }
            self.carry(0, heard);
            self.carry(1, true);
        }
    }

    fn carry(&mut self, from: usize, heard: bool) {
        let mut arena = TxArena::new(64 << 10, 256);
        self.nodes[from].handle_timeout(self.now, &mut Application(Vec::new()));
        loop {
            arena.clear();
            let drained = self.nodes[from].transmit(self.now, &mut arena);
            for run in arena.runs().iter().filter(|_| heard) {
                for envelope in arena.envelopes(run) {
                    let mut bytes = envelope.to_vec();
                    let (at, from) = (self.now, address(from));
                    let other = &mut self.nodes[usize::from(from == address(0))];
                    other.recv(
                        at,
                        &mut [RxDatagram { at, from, local: None, bytes: &mut bytes }],
                        &mut self.got,
                    );
                }
            }
            if drained == Drained::All {
                return;
            }
        }
    }

    /// An outage of this duration in the middle of a stream.
    fn outage(&mut self, time: Duration, lost: u32) {
        let rate = self.rate;
        // As many packets as there are numbers, so that each has been used.
        self.run(Duration::from_secs(1) * 70_000 / rate, rate, true);
        let before = self.sent;
        self.run(time, lost, false);
        let after = self.sent;
        self.got.0.clear();
        self.run(Duration::from_secs(1) * 40_000 / rate, rate, true);
        let want: Vec<_> = (after..self.sent).collect();
        let (got, wanted) = (self.got.0.len(), want.len());
        assert!(
            self.got.0.iter().filter(|n| **n >= after).eq(&want),
            "{rate}/s, {} lost in {time:?}: {got} of {wanted} delivered",
            after - before
        );
        assert_eq!(self.nodes[1].stats().drops.get(DropReason::FlowDuplicate), 0);
    }
}

#[test]
fn no_outage_costs_anything_after_its_end() {
    for sealed in [false, true] {
        // In each case, the next numbers were in use within the last wrap.
        for (rate, ms) in [(500_000, 20), (500_000, 100), (500_000, 131), (500_000, 240)] {
            let mut pair = Pair::new(sealed, rate);
            pair.outage(Duration::from_millis(ms), rate);
        }
    }
}

#[test]
fn a_trunk_of_ten_thousand_packets_a_second_goes_on_after_any_outage() {
    for ms in [100, 800] {
        Pair::new(false, 10_000).outage(Duration::from_millis(ms), 10_000);
    }
    // As if the rate had grown during the outage: sixty thousand in two tenths of a second.
    Pair::new(false, 10_000).outage(Duration::from_millis(200), 300_000);
    Pair::new(true, 10_000).outage(Duration::from_millis(900), 65_000);
}

/// Best-effort packets count in envelopes, but have separate numbers.
#[test]
fn what_else_went_by_counts_for_nothing() {
    let mut pair = Pair::new(false, 10_000);
    pair.run(Duration::from_secs(7), 10_000, true);
    pair.service = Service::BestEffort;
    for heard in [true, false] {
        pair.run(Duration::from_millis(300), 300_000, heard);
    }
    pair.service = Service::RealTime;
    pair.outage(Duration::from_millis(50), 10_000);
}

/// Notices of `node` about links that went down, since the last call.
fn downs(node: &mut Node) -> Vec<(LinkId, DownCause)> {
    let notices = core::iter::from_fn(|| node.next_notice());
    let down = |notice| match notice {
        Notice::Down(link, why) => Some((link, why)),
        _ => None,
    };
    notices.filter_map(down).collect()
}

/// Revocation takes a link down at once, and it comes up again if that is undone.
#[test]
fn a_link_to_a_revoked_neighbour_goes_down_at_once() {
    let mut pair = Pair::new(true, 0);
    let is_up = |pair: &Pair| pair.nodes[0].link(LinkId(0)).unwrap().monitor().is_up();
    for _ in 0..2 {
        assert!(is_up(&pair));
        let revoked = vec![Identity::from_secret(&[2; 32]).public()];
        for (revoked, up) in [(revoked, false), (Vec::new(), true)] {
            let trust = Trust { revoked, ..Trust::default() };
            let changes = Changes { trust: Some((trust, Vec::new())), ..Changes::default() };
            pair.nodes[0].reconfigure(pair.now, &changes);
            let untrusted = DownCause::Untrusted(RefusedHandshake::Revoked.label());
            let expected = if up { vec![] } else { vec![(LinkId(0), untrusted)] };
            assert_eq!(downs(&mut pair.nodes[0]), expected);
            assert!(!is_up(&pair));
            // The other end notices the silence.
            pair.run(Duration::from_secs(3), 0, true);
            assert_eq!(is_up(&pair), up);
        }
        assert_eq!(downs(&mut pair.nodes[1]), [(LinkId(0), DownCause::Silence)]);
    }
}
