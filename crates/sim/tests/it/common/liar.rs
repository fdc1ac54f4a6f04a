//! A neighbour with a genuine certificate of the operator that sends arbitrary content: the
//! handshake and the seal are genuine, and everything inside the seal comes from the test.

use core::net::SocketAddr;
use std::collections::VecDeque;
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::handshake::{Config, Event, Handshakes, Limits, Offer, Peer};
use trunkline_overlay::identity::{Certificate, Identity, Trust};
use trunkline_overlay::link::{LinkCost, LinkId};
use trunkline_overlay::node::{Node, SendOutcome, Sink};
use trunkline_overlay::route::update::{Introduction, Update, path_number, sign};
use trunkline_overlay::route::{Advert, CostModel, Signer};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::wire::{ControlKind, ENVELOPE_OVERHEAD, Hello, Incarnation, NodeId, Seal};
use trunkline_sim::{HostId, World};

/// No application is involved while the liar sends.
pub struct Nobody;

impl Sink for Nobody {
    fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
        SendOutcome::Accepted
    }
}

/// Key of a node, as [`trunkline_sim::Topology::seal`] derives it.
pub fn identity(id: NodeId) -> Identity {
    let mut secret = [0; 32];
    secret[..4].copy_from_slice(&id.0.to_be_bytes());
    Identity::from_secret(&secret)
}

/// Key of the operator in [`trunkline_sim::Topology::seal`].
pub fn operator() -> Identity {
    Identity::from_secret(&[0xff; 32])
}

fn certificate(id: NodeId) -> Certificate {
    Certificate::issue(&operator(), id, "liar", identity(id).public(), 0).unwrap()
}

pub struct Liar {
    pub id: NodeId,
    address: SocketAddr,
    victim: HostId,
    handshakes: Handshakes,
    seal: Seal,
    hellos: u16,
}

impl Liar {
    /// Creates a liar that is not a neighbour yet: see [`Liar::greet`].
    pub fn new(id: NodeId, path: &str, victim: (HostId, NodeId)) -> Liar {
        let config = Config {
            node: id,
            identity: identity(id),
            certificate: Some(certificate(id)),
            trust: Trust { overlay_keys: vec![operator().public()], revoked: Vec::new() },
            incarnation: Incarnation(1),
            offer: Offer::default(),
            limits: Limits::default(),
        };
        let mut entropy = [0x66; 32];
        entropy[..4].copy_from_slice(&id.0.to_be_bytes());
        let mut handshakes = Handshakes::new(config, entropy);
        let peer = Peer {
            node: victim.1,
            path: path.into(),
            key: None,
            // Any address will do, because its datagrams are injected.
            address: Some(([192, 0, 2, 1], 7_000).into()),
            mtu: 1_280,
        };
        handshakes.add(LinkId(0), peer, Time::ZERO);
        let address = SocketAddr::from(([192, 0, 2, 66], 7_000 + id.0 as u16));
        let seal = Seal::Aead(Box::default());
        Liar { id, address, victim: victim.0, handshakes, seal, hellos: 0 }
    }

    /// Source address of its datagrams.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Performs a handshake, and returns whether the victim agreed. Anything that the victim sends
    /// to others at this moment is lost.
    pub fn greet(&mut self, world: &mut World) -> bool {
        let victim = self.victim;
        world.operate(victim, |now, node| self.shake(now, node))
    }

    fn shake(&mut self, now: Time, node: &mut Node) -> bool {
        let mut arena = TxArena::new(64 << 10, 64);
        let mut under_way = VecDeque::new();
        let mut agreed = false;
        for _ in 0..4 {
            self.handshakes.handle_timeout(now);
            while let Some(event) = self.handshakes.poll() {
                match event {
                    Event::Send { bytes, .. } => under_way.push_back(bytes),
                    Event::Established(e) => {
                        let Seal::Aead(sealed) = &mut self.seal else { unreachable!() };
                        sealed.install(e.keys, now);
                        agreed = true;
                    }
                    _ => {}
                }
            }
            while let Some(mut bytes) = under_way.pop_front() {
                let from = self.address;
                node.recv(
                    now,
                    &mut [RxDatagram { at: now, from, local: None, bytes: &mut bytes }],
                    &mut Nobody,
                );
            }
            arena.clear();
            node.transmit(now, &mut arena);
            for run in arena.runs().iter().filter(|run| run.to == self.address) {
                for bytes in arena.envelopes(run) {
                    self.handshakes.recv(now, 1, self.address, bytes);
                }
            }
        }
        agreed
    }

    /// Seals an envelope with these frames.
    pub fn seal(&mut self, frames: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; ENVELOPE_OVERHEAD + frames.len()];
        Seal::frames_mut(&mut bytes).copy_from_slice(frames);
        self.seal.seal(&mut bytes);
        bytes
    }

    /// Delivers these frames to the victim, sealed.
    pub fn say(&mut self, world: &mut World, frames: &[u8]) {
        let bytes = self.seal(frames);
        throw(world, self.victim, self.address, &bytes);
    }

    /// Delivers these frames to the victim, and returns the frames of each envelope that it sends
    /// back at once. Anything that the victim sends to others at this moment is lost.
    pub fn ask(&mut self, world: &mut World, frames: &[u8]) -> Vec<Vec<u8>> {
        let mut bytes = self.seal(frames);
        let (from, seal) = (self.address, &mut self.seal);
        world.operate(self.victim, |now, node| {
            let mut datagrams = [RxDatagram { at: now, from, local: None, bytes: &mut bytes }];
            node.recv(now, &mut datagrams, &mut Nobody);
            let mut arena = TxArena::new(64 << 10, 64);
            node.transmit(now, &mut arena);
            let mut answers = Vec::new();
            for run in arena.runs().iter().filter(|run| run.to == from) {
                for bytes in arena.envelopes(run) {
                    let mut bytes = bytes.to_vec();
                    if seal.open(&mut bytes).is_ok() {
                        answers.push(Seal::frames_mut(&mut bytes).to_vec());
                    }
                }
            }
            answers
        })
    }

    /// Sends a hello for a link of 2 ms that receives everything.
    pub fn hello(&mut self, world: &mut World) {
        let now = world.now().as_micros() as u32;
        self.hellos += 1;
        let hello = Hello {
            seq: self.hellos,
            sent_us: now,
            echo: Some((now.wrapping_sub(2_000), 0)),
            heard_ms: Some(0),
            ..Hello::default()
        };
        let mut frame = [0; 64];
        let mut w = Writer::new(&mut frame);
        hello.emit(&mut w).unwrap();
        self.say(world, w.written());
    }

    /// Sends the liar's certificate, so that the victim can verify its updates.
    pub fn introduce(&mut self, world: &mut World) {
        let seq = world.now().as_nanos();
        let certificate = certificate(self.id).to_bytes();
        let signed = Introduction { origin: self.id, seq, certificate }.emit().unwrap();
        let whole = [&sign(signed, &identity(self.id))[..], &[0, 0]].concat();
        self.say(world, &link_state(&whole));
    }

    /// An update frame with the links that it claims to have, signed with its own key.
    pub fn update(&self, seq: u64, links: &[NodeId]) -> Vec<u8> {
        link_state(&record(self.id, seq, links, &identity(self.id)))
    }
}

/// Delivers `bytes` to `host`.
pub fn throw(world: &mut World, host: HostId, from: SocketAddr, bytes: &[u8]) {
    world.inject(host, from, &mut bytes.to_vec());
}

/// A record of `origin` with its links, of 0.1 ms each, signed by `by`.
pub fn record(origin: NodeId, seq: u64, links: &[NodeId], by: &dyn Signer) -> Vec<u8> {
    let cost = LinkCost { latency: 1, ..LinkCost::default() };
    let advert = |&neighbour| Advert { neighbour, path: path_number(""), cost };
    let links = links.iter().map(advert).collect();
    let digest = CostModel::default().digest();
    let update = Update { origin, seq, fragment: 0, draining: false, digest, links };
    [&sign(update.emit().unwrap(), by)[..], &[0, 0]].concat()
}

/// A routing frame that contains records.
pub fn link_state(records: &[u8]) -> Vec<u8> {
    let len = (records.len() as u16).to_be_bytes();
    [&[ControlKind::LinkState as u8][..], &len, records].concat()
}
