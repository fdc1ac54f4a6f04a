//! The handshake: its parsers, and two machines on a network that the script controls and that
//! forges messages.
//!
//! Invariants: no panic; an end opens only envelopes that the other end sealed, each at most once;
//! no two sessions of a node share an index; and once the network behaves and buckets are full
//! again, both ends have a session and communicate.

use crate::script::{micros, steps};
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use trunkline_base::Time;
use trunkline_base::wire::Reader;
use trunkline_overlay::handshake::message::{
    Answer, Challenge, ECHO, Initiation, Payload, Query, Response,
};
use trunkline_overlay::handshake::{Config, Event, Handshakes, Limits, Offer, Peer};
use trunkline_overlay::identity::{Certificate, Identity, MacKey, Trust};
use trunkline_overlay::link::LinkId;
use trunkline_overlay::wire::{ENVELOPE_OVERHEAD, Incarnation, Kind, NodeId, Seal, Sealed};

/// Parses `bytes` as each of the messages, and as their contents.
pub fn message(bytes: &[u8]) {
    let mac = MacKey::for_overlay(&operator().public());
    let key_and = |again: Vec<u8>| {
        assert!(mac.check(&again));
        again
    };
    // All but the MAC is reproduced; the padding of a query need not be zeros.
    let same = |again: &[u8]| assert_eq!((again[0], &again[17..]), (bytes[0], &bytes[17..]));
    if let Ok(query) = Query::parse(bytes) {
        let again = key_and(query.emit(&mac));
        assert_eq!(again[17..17 + ECHO], bytes[17..17 + ECHO]);
        assert_eq!(Query::parse(&again), Ok(query));
    }
    if let Ok(answer) = Answer::parse(bytes) {
        let again = key_and(answer.emit(&mac));
        // Data appended by a newer version is not kept.
        assert!(bytes[17..].starts_with(&again[17..]));
    }
    if let Ok(initiation) = Initiation::parse(bytes) {
        same(&key_and(initiation.emit(&mac)));
    }
    if let Ok(response) = Response::parse(bytes) {
        same(&key_and(response.emit(&mac)));
    }
    if let Ok(challenge) = Challenge::parse(bytes) {
        same(&key_and(challenge.emit(&mac)));
    }
    if let Ok(nonce) = Challenge::nonce(bytes) {
        assert!(bytes.starts_with(&Challenge::payload(&nonce)));
    }
    if let Ok(payload) = Payload::parse(bytes) {
        assert!(bytes.starts_with(&payload.to_bytes()));
    }
    if let Ok(certificate) = Certificate::parse(bytes) {
        assert_eq!(certificate.to_bytes(), bytes);
        assert_eq!(certificate.to_string().parse(), Ok(certificate));
    }
    if let Ok(text) = core::str::from_utf8(bytes) {
        let _ = text.parse::<Certificate>();
        let _ = Identity::from_text(text);
    }
}

steps! {
    /// A step of the script. `side` is the node that acts or is the destination of datagrams, and
    /// `pick` selects one of the datagrams.
    Step {
        /// The clock advances by `n` units.
        0 Sleep { unit: u8, n: u8 }
        /// A node handles its timers and sends.
        1 Wake { side: u8 }
        /// The oldest datagram arrives.
        2 Arrive { side: u8 }
        /// One datagram arrives, from another address if `from` is not 0, and also stays in flight.
        3 Copy { side: u8, pick: u8, from: u8 }
        /// One datagram is lost.
        4 Lose { side: u8, pick: u8 }
        /// One datagram is altered, with a valid MAC for `mac` 1 to 3.
        5 Alter { side: u8, pick: u8, at: u16, xor: u8, mac: u8 }
        /// A datagram of arbitrary bytes arrives, with a MAC as above.
        6 Forge { side: u8, mac: u8, bytes: Vec<u8> }
        /// A node seals an envelope, if it has a session.
        7 Say { side: u8, len: u8 }
        /// The link fails and starts again.
        8 Restart { side: u8 }
        /// The node restarts, with a later start number.
        9 Anew { side: u8 }
        /// The neighbour is revoked, or trusted again.
        10 Trust { side: u8, revoked: u8 }
        /// The link is removed and added again as configured.
        11 Again { side: u8 }
        /// Everything arrives for `n` times 100 ms.
        12 Calm { n: u8 }
        /// The node restarts, with its clock set back by `n` starts.
        13 SetBack { side: u8, n: u8 }
    }
}

const LINK: LinkId = LinkId(1);
const UNDER_WAY: usize = 64;
/// Number of the first start, and a clock with room to go back.
const CLOCK: (u64, u64) = (1, 1 << 16);
const UNIX: u64 = 1_800_000_000;

fn operator() -> Identity {
    Identity::from_secret(&[200; 32])
}

fn identity(side: usize) -> Identity {
    Identity::from_secret(&[side as u8 + 1; 32])
}

fn node(side: usize) -> NodeId {
    NodeId(side as u32 + 1)
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n as u8], 7_000))
}

/// A node and the seal of its link.
struct End {
    side: usize,
    starts: u64,
    clock: u64,
    known: bool,
    reachable: bool,
    machine: Handshakes,
    seal: Seal,
    indices: BTreeSet<u32>,
}

impl End {
    /// Creates an end from the number of its start and the reading of its clock.
    fn new(
        side: usize,
        (starts, clock): (u64, u64),
        known: bool,
        reachable: bool,
        now: Time,
    ) -> End {
        let key = identity(side).public();
        let certificate = Certificate::issue(&operator(), node(side), "node", key, 0);
        let config = Config {
            node: node(side),
            identity: identity(side),
            certificate: certificate.ok(),
            trust: Self::trust(side, false),
            incarnation: Incarnation(clock),
            offer: Offer::default(),
            limits: Limits { unconfigured_peers: 2, ..Limits::default() },
        };
        let mut seed = [side as u8; 32];
        seed[1..9].copy_from_slice(&starts.to_be_bytes());
        let mut machine = Handshakes::new(config, seed);
        machine.add(LINK, Self::peer(side, known, reachable), now);
        let (seal, indices) = (Seal::Aead(Box::default()), BTreeSet::new());
        End { side, starts, clock, known, reachable, machine, seal, indices }
    }

    fn trust(side: usize, revoked: bool) -> Trust {
        let other = identity(1 - side).public();
        Trust {
            overlay_keys: vec![operator().public()],
            revoked: if revoked { vec![other] } else { Vec::new() },
        }
    }

    fn peer(side: usize, known: bool, reachable: bool) -> Peer {
        let other = 1 - side;
        Peer {
            node: node(other),
            path: "path".into(),
            key: known.then(|| identity(other).public()),
            address: reachable.then(|| address(other)),
            mtu: 1_280,
        }
    }

    fn sealed(&mut self) -> &mut Sealed {
        let Seal::Aead(sealed) = &mut self.seal else { unreachable!("made sealed") };
        sealed
    }
}

struct World {
    now: Time,
    ends: [End; 2],
    /// Datagrams in flight by destination: source and bytes.
    wire: [VecDeque<(SocketAddr, Vec<u8>)>; 2],
    /// Payloads that each end has sealed and the other has not yet opened.
    said: [BTreeSet<Vec<u8>>; 2],
    talked: [bool; 2],
}

/// Runs a script of handshake steps.
pub fn run(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let Ok(kind) = r.u8() else { return };
    let (known, both) = (kind & 1 != 0, kind & 2 != 0);
    let now = Time::from_millis(1);
    let mut world = World {
        now,
        ends: [End::new(0, CLOCK, known, true, now), End::new(1, CLOCK, known, both, now)],
        wire: Default::default(),
        said: Default::default(),
        talked: [false; 2],
    };
    let mut steps = 0;
    while let Some(step) = Step::read(&mut r) {
        world.step(step);
        steps += 1;
        if steps == 400 {
            break;
        }
    }
    world.heal();
}

impl World {
    fn step(&mut self, step: Step) {
        let side = |side: u8| usize::from(side % 2);
        match step {
            Step::Sleep { unit, n } => self.now += Duration::from_micros(micros(unit, n)),
            Step::Wake { side: s } => self.wake(side(s)),
            Step::Arrive { side: s } => self.arrive(side(s)),
            Step::Copy { side: s, pick, from } => self.copy(side(s), pick, from),
            Step::Lose { side: s, pick } => {
                let wire = &mut self.wire[side(s)];
                let at = usize::from(pick) % wire.len().max(1);
                wire.remove(at);
            }
            Step::Alter { side: s, pick, at, xor, mac } => {
                let wire = &mut self.wire[side(s)];
                let i = usize::from(pick) % wire.len().max(1);
                let Some((_, bytes)) = wire.get_mut(i) else { return };
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= xor;
                stamp(side(s), mac, bytes);
            }
            Step::Forge { side: s, mac, mut bytes } => {
                stamp(side(s), mac, &mut bytes);
                self.receive(side(s), address(66), &bytes);
            }
            Step::Say { side: s, len } => self.say(side(s), usize::from(len)),
            Step::Restart { side: s } => self.ends[side(s)].machine.restart(LINK, self.now),
            Step::Anew { side: s } => self.anew(side(s), |clock| clock + 256),
            Step::SetBack { side: s, n } => {
                self.anew(side(s), |clock| clock.saturating_sub(1 + u64::from(n)));
            }
            Step::Trust { side: s, revoked } => self.trust(side(s), revoked % 2 != 0),
            Step::Again { side: s } => {
                let end = &mut self.ends[side(s)];
                let peer = End::peer(end.side, end.known, end.reachable);
                end.machine.add(LINK, peer, self.now);
                end.sealed().clear();
                self.drain(side(s));
            }
            Step::Calm { n } => self.calm(u64::from(n)),
        }
    }

    fn anew(&mut self, side: usize, clock: impl FnOnce(u64) -> u64) {
        let End { starts, clock: before, known, reachable, .. } = self.ends[side];
        let clock = clock(before);
        self.ends[side] = End::new(side, (starts + 1, clock), known, reachable, self.now);
    }

    fn trust(&mut self, side: usize, revoked: bool) {
        self.ends[side].machine.set_trust(End::trust(side, revoked), UNIX);
        self.drain(side);
    }

    fn wake(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.machine.handle_timeout(self.now);
        assert!(end.machine.next_timeout() > self.now, "nothing is left to spin on");
        let now = self.now;
        end.sealed().handle_timeout(now);
        self.drain(side);
    }

    fn drain(&mut self, side: usize) {
        let mut events = 0;
        while let Some(event) = self.ends[side].machine.poll() {
            events += 1;
            assert!(events < 200, "one input, a few events");
            let end = &mut self.ends[side];
            match event {
                Event::Send { bytes, .. } => self.send(side, bytes),
                Event::Established(e) => {
                    assert!(end.indices.insert(e.keys.local.get()), "an index of its own");
                    let now = self.now;
                    end.sealed().install(e.keys, now);
                }
                Event::Retired { index, .. } => {
                    end.indices.remove(&index.get());
                }
                Event::Closed { .. } => end.sealed().clear(),
                Event::UnconfiguredPeer { .. } => panic!("both have their links"),
                Event::Refused { .. } | Event::OtherKey { .. } | Event::ClockBehind { .. } => {}
            }
        }
    }

    fn send(&mut self, from: usize, bytes: Vec<u8>) {
        let wire = &mut self.wire[1 - from];
        if wire.len() == UNDER_WAY {
            wire.pop_front();
        }
        wire.push_back((address(from), bytes));
    }

    fn say(&mut self, side: usize, len: usize) {
        let mut envelope = vec![7; ENVELOPE_OVERHEAD + len];
        if self.ends[side].seal.seal(&mut envelope) {
            self.said[side].insert(envelope.clone());
            self.send(side, envelope);
        } else {
            assert!(envelope.iter().all(|b| *b == 0), "nothing in the clear");
        }
    }

    fn arrive(&mut self, side: usize) {
        if let Some((from, bytes)) = self.wire[side].pop_front() {
            self.receive(side, from, &bytes);
        }
    }

    fn copy(&mut self, side: usize, pick: u8, from: u8) {
        let i = usize::from(pick) % self.wire[side].len().max(1);
        if let Some((at, bytes)) = self.wire[side].get(i).cloned() {
            let at = if from == 0 { at } else { address(usize::from(from)) };
            self.receive(side, at, &bytes);
        }
    }

    fn receive(&mut self, side: usize, from: SocketAddr, bytes: &[u8]) {
        let end = &mut self.ends[side];
        if Kind::of(bytes).is_ok_and(Kind::is_handshake) {
            end.machine.recv(self.now, UNIX, from, bytes);
            return self.drain(side);
        }
        let mut opened = bytes.to_vec();
        if end.seal.open(&mut opened).is_err() {
            return;
        }
        assert!(self.said[1 - side].remove(bytes), "opened what was not said, or twice");
        assert!(Seal::frames(&opened).iter().all(|b| *b == 7));
        if end.sealed().take_confirmed() {
            end.machine.confirmed(LINK);
        }
        end.machine.set_address(LINK, from);
        self.talked[side] = true;
        self.drain(side);
    }

    fn calm(&mut self, tenths: u64) {
        for _ in 0..tenths {
            self.now += Duration::from_millis(100);
            for _ in 0..2 {
                self.wake(0);
                self.wake(1);
                for _ in 0..2 * UNDER_WAY {
                    self.arrive(0);
                    self.arrive(1);
                }
            }
            self.say(0, 3);
            self.say(1, 3);
        }
    }

    /// Checks that both ends communicate in the end, whatever has happened.
    fn heal(&mut self) {
        self.wire = Default::default();
        for side in 0..2 {
            self.trust(side, false);
            // A forger lacks the contents of recent envelopes of the right session, but the roaming
            // copies of the script could have them.
            self.ends[side].machine.set_address(LINK, address(1 - side));
            self.ends[side].machine.restart(LINK, self.now);
        }
        self.now += Duration::from_secs(10);
        self.talked = [false; 2];
        self.calm(200);
        let stats = [self.ends[0].machine.stats(), self.ends[1].machine.stats()];
        assert_eq!(self.talked, [true; 2], "{stats:?}");
    }
}

/// Stamps a MAC that the node at `side` may accept: under its own key, under that of the node it
/// queried, or under a query's.
fn stamp(side: usize, mac: u8, bytes: &mut [u8]) {
    let key = match mac % 4 {
        1 => MacKey::for_node(&identity(side).public()),
        2 => MacKey::for_node(&identity(1 - side).public()),
        3 => Some(MacKey::for_overlay(&operator().public())),
        _ => None,
    };
    if let Some(key) = key {
        key.stamp(bytes);
    }
}
