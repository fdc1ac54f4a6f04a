//! Two or more machines, over a network that loses, delays and duplicates datagrams.

use super::*;
use crate::identity::{Certificate, Identity, MacKey, Trust};
use crate::link::LinkId;
use crate::wire::version::{CURRENT, VersionMismatch, VersionRange};
use crate::wire::{ENVELOPE_OVERHEAD, Incarnation, Kind, NodeId, Opened, Role, Seal, Sealed};
use core::net::SocketAddr;
use core::time::Duration;
use trunkline_base::Time;

const UNIX: u64 = 1_800_000_000;
pub(super) const LINK: LinkId = LinkId(3);

pub(super) fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 7_000))
}

pub(super) fn identity(n: u8) -> Identity {
    Identity::from_secret(&[n; 32])
}

pub(super) fn operator() -> Identity {
    identity(200)
}

pub(super) fn certificate(n: u8, not_after: u64) -> Certificate {
    let key = identity(n).public();
    let name = format!("node-{n}");
    Certificate::issue(&operator(), NodeId(n.into()), &name, key, not_after).unwrap()
}

pub(super) fn config(n: u8) -> Config {
    Config {
        node: NodeId(n.into()),
        identity: identity(n),
        certificate: None,
        trust: Trust::default(),
        incarnation: Incarnation(1),
        offer: Offer::default(),
        limits: Limits::default(),
    }
}

pub(super) fn certified(n: u8) -> Config {
    let trust = Trust { overlay_keys: vec![operator().public()], revoked: vec![] };
    Config { certificate: Some(certificate(n, 0)), trust, ..config(n) }
}

pub(super) fn peer(n: u8, known: bool, reachable: bool) -> Peer {
    Peer {
        node: NodeId(n.into()),
        path: "main".into(),
        key: known.then(|| identity(n).public()),
        address: reachable.then(|| address(n)),
        mtu: 1_280,
    }
}

/// A node with one link, its seal, and the sessions that were installed.
pub(super) struct End {
    pub at: SocketAddr,
    pub machine: Handshakes,
    pub seal: Seal,
    pub established: Vec<(Role, u8, SocketAddr)>,
    /// Whether the link comes up with each session.
    pub comes_up: bool,
    pub events: Vec<Event>,
}

impl End {
    pub fn new(n: u8, config: Config, peer: Option<Peer>) -> End {
        let seed = [n ^ config.incarnation.0 as u8; 32];
        let mut machine = Handshakes::new(config, seed);
        if let Some(peer) = peer {
            machine.add(LINK, peer, Time::ZERO);
        }
        let seal = Seal::Aead(Box::default());
        End {
            at: address(n),
            machine,
            seal,
            established: Vec::new(),
            comes_up: true,
            events: Vec::new(),
        }
    }

    pub fn sealed(&mut self) -> &mut Sealed {
        let Seal::Aead(sealed) = &mut self.seal else { panic!("sealed") };
        sealed
    }

    /// The datagrams that it sends now.
    pub fn drain(&mut self, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut out = Vec::new();
        while let Some(event) = self.machine.poll() {
            match event {
                Event::Send { to, bytes, .. } => out.push((to.address(), bytes)),
                Event::Established(e) => {
                    assert_eq!(e.link, LINK);
                    self.established.push((e.keys.role, e.version, e.address));
                    self.sealed().install(e.keys, now);
                    if self.comes_up {
                        self.machine.up(LINK, now);
                    }
                }
                other => self.events.push(other),
            }
        }
        out
    }

    pub fn wake(&mut self, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
        self.machine.handle_timeout(now);
        self.sealed().handle_timeout(now);
        self.drain(now)
    }

    pub fn hear(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Vec<(SocketAddr, Vec<u8>)> {
        self.machine.recv(now, UNIX, from, bytes);
        self.drain(now)
    }

    pub fn refused(&self, why: RefusedHandshake) -> u64 {
        self.machine.stats().refused(why)
    }

    /// Seals `text` in an envelope, if there is a session.
    pub fn say(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let mut envelope = vec![0; ENVELOPE_OVERHEAD + text.len()];
        Seal::frames_mut(&mut envelope).copy_from_slice(text);
        self.seal.seal(&mut envelope).then_some(envelope)
    }

    /// Opens an envelope as a link does, and notifies the machine.
    pub fn open(
        &mut self,
        envelope: &[u8],
    ) -> Result<(Opened, u64, Vec<u8>), crate::wire::OpenError> {
        let mut bytes = envelope.to_vec();
        let (opened, counter) = self.seal.open(&mut bytes)?;
        if self.sealed().take_confirmed() {
            self.machine.confirmed(LINK);
        }
        Ok((opened, counter, Seal::frames(&bytes).to_vec()))
    }
}

/// Exchanges messages over a perfect network without delay until both ends are silent.
pub(super) fn settle(now: Time, a: &mut End, b: &mut End) {
    for _ in 0..20 {
        let from_a = a.wake(now);
        let from_b = b.wake(now);
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        let (at_a, at_b) = (a.at, b.at);
        let mut back: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
        for (to, bytes) in from_a {
            if to == at_b {
                back.extend(b.hear(now, at_a, &bytes));
            }
        }
        let mut forth = Vec::new();
        for (to, bytes) in from_b.into_iter().chain(back) {
            if to == at_a {
                forth.extend(a.hear(now, at_b, &bytes));
            }
        }
        for (_, bytes) in forth {
            for (_, bytes) in b.hear(now, at_a, &bytes) {
                a.hear(now, at_b, &bytes).into_iter().for_each(|(_, bytes)| {
                    b.hear(now, at_a, &bytes);
                });
            }
        }
    }
}

/// Asserts that both ends have a session, and uses it.
pub(super) fn talk(a: &mut End, b: &mut End) {
    // The initiator goes first: the responder waits for its first envelope.
    for _ in 0..2 {
        for (from, to) in [(true, b"ab"), (false, b"ba")] {
            let (from, to, text) =
                if from { (&mut *a, &mut *b, to) } else { (&mut *b, &mut *a, to) };
            if let Some(envelope) = from.say(text) {
                assert_eq!(to.open(&envelope).expect("a session").2, text);
            }
        }
    }
    assert!(a.seal.ready() && b.seal.ready());
}

pub(super) fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

mod attacks;
mod channel;
mod freshness;
mod trust;

#[test]
fn keys_known_on_both_ends() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    settle(ms(0), &mut a, &mut b);
    assert_eq!(a.established, [(Role::Initiator, CURRENT, address(2))]);
    assert_eq!(b.established, [(Role::Responder, CURRENT, address(1))]);
    assert!(!b.seal.ready(), "not before the initiator has used it");
    assert_eq!(b.say(b"x"), None);
    let first = a.say(b"hello").unwrap();
    assert_eq!(b.open(&first), Ok((Opened::Fresh { first: true }, 0, b"hello".to_vec())));
    talk(&mut a, &mut b);
    let stats = a.machine.stats();
    assert_eq!((stats.queries, stats.initiations, stats.computed), (0, 1, 1));
    // The next handshake begins only when the keys are old.
    assert_eq!(a.machine.next_timeout(), ms(120_000));
    assert_eq!(b.machine.next_timeout(), ms(140_000));
}

#[test]
fn certificates_in_place_of_keys() {
    let mut a = End::new(1, certified(1), Some(peer(2, false, true)));
    let mut b = End::new(2, certified(2), Some(peer(1, false, false)));
    settle(ms(0), &mut a, &mut b);
    talk(&mut a, &mut b);
    assert_eq!(a.machine.stats().queries, 1);
    assert_eq!(b.machine.stats().answers, 1);
}

#[test]
fn both_begin_at_once_and_one_session_comes_of_it() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, true)));
    let (from_a, from_b) = (a.wake(ms(0)), b.wake(ms(0)));
    let (at_a, at_b) = (a.at, b.at);
    let to_a = b.hear(ms(5), at_a, &from_a[0].1);
    let to_b = a.hear(ms(5), at_b, &from_b[0].1);
    assert_eq!(to_a.len() + to_b.len(), 1, "one answers");
    to_a.iter().for_each(|m| assert!(a.hear(ms(9), at_b, &m.1).is_empty()));
    to_b.iter().for_each(|m| assert!(b.hear(ms(9), at_a, &m.1).is_empty()));
    assert_eq!(
        a.refused(RefusedHandshake::Simultaneous) + b.refused(RefusedHandshake::Simultaneous),
        1
    );
    assert_eq!((a.established.len(), b.established.len()), (1, 1));
    talk(&mut a, &mut b);
}

#[test]
fn who_may_not_be_answered_yields_in_the_end() {
    // No datagram reaches the end that has precedence.
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, true)));
    let lower = if identity(1).dh_public() < identity(2).dh_public() { 1 } else { 2 };
    for t in (0..4_000).step_by(10) {
        let (from_a, from_b) = (a.wake(ms(t)), b.wake(ms(t)));
        let (from, to, messages) =
            if lower == 1 { (&mut b, &mut a, from_b) } else { (&mut a, &mut b, from_a) };
        for (_, bytes) in messages {
            for (_, answer) in to.hear(ms(t), from.at, &bytes) {
                from.hear(ms(t), to.at, &answer);
            }
        }
        if a.established.len() + b.established.len() >= 2 {
            return talk(&mut a, &mut b);
        }
    }
    panic!("no session in 4 s");
}

#[test]
fn rekeying_loses_nothing() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, true)));
    settle(ms(0), &mut a, &mut b);
    let (mut heard, mut expected) = (0_u64, 0_u64);
    // 400 s with an envelope in each direction every 20 ms; datagrams sent at one moment arrive
    // after the decisions of that moment.
    for t in (0..400_000).step_by(20) {
        let now = ms(t);
        let said = [a.say(&t.to_be_bytes()), b.say(&t.to_be_bytes())];
        settle(now, &mut a, &mut b);
        let [from_a, from_b] = said;
        if t > 100 {
            assert!(from_a.is_some() && from_b.is_some(), "at {t} ms");
        }
        for (envelope, to) in [(from_a, &mut b), (from_b, &mut a)] {
            let Some(envelope) = envelope else { continue };
            expected += 1;
            let (opened, counter, _) = to.open(&envelope).expect("no loss");
            heard += 1;
            assert!(t < 100 || opened == Opened::Same, "a new session is no new start");
            assert!(counter <= t / 20, "the count goes on over sessions");
            assert!(counter + 3 >= t / 20);
        }
    }
    assert_eq!(heard, expected);
    assert_eq!((a.established.len(), b.established.len()), (4, 4));
    assert_eq!(a.machine.stats().rekeyed, 3);
    let retired = a.events.iter().filter(|e| matches!(e, Event::Retired { .. })).count();
    assert!(retired >= 2, "{retired}");
}

#[test]
fn the_responder_rekeys_if_the_initiator_does_not() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, true)));
    let first = a.wake(ms(0)).remove(0);
    let answer = b.hear(ms(0), a.at, &first.1).remove(0);
    a.hear(ms(0), b.at, &answer.1);
    talk(&mut a, &mut b);
    assert!(b.wake(ms(139_999)).is_empty());
    let late = b.wake(ms(140_000));
    assert_eq!(Kind::of(&late[0].1), Ok(Kind::Initiation));
    // Without an answer, the session expires.
    b.wake(ms(179_999));
    assert!(b.seal.ready());
    b.wake(ms(180_000));
    assert!(!b.seal.ready());
    assert!(b.events.iter().any(|e| matches!(e, Event::Retired { .. })));
}

/// No retired index may still be in use by the seal: envelopes with it would match no link, and the
/// other end would not be received.
fn nothing_in_use_is_retired(end: &mut End, about: &str) {
    let retired: Vec<_> = end
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Retired { index, .. } => Some(*index),
            _ => None,
        })
        .collect();
    let lost = end.sealed().indices().find(|index| retired.contains(index));
    assert_eq!(lost, None, "{about}");
}

/// The other end restarts right after its response: it has no session, and waits to be called.
#[test]
fn a_session_that_the_other_end_does_not_use_is_replaced_soon() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    a.comes_up = false;
    let mut started = Vec::new();
    for start in 1..4 {
        let config = Config { incarnation: Incarnation(start), ..config(2) };
        let mut b = End::new(2, config, Some(peer(1, true, false)));
        let began = (0..200).map(|k| ms(100 * k)).find_map(|later| {
            let now =
                started.last().map_or(Time::ZERO, |last: &Time| *last) + later.since(Time::ZERO);
            let sent = a.wake(now);
            (!sent.is_empty()).then_some((now, sent))
        });
        let (now, sent) = began.expect("it tries again");
        started.push(now);
        for (_, bytes) in sent {
            for (_, answer) in b.hear(now, address(1), &bytes) {
                a.hear(now, address(2), &answer);
            }
        }
        assert_eq!(a.established.len(), start as usize);
    }
    assert!(started[2] <= ms(11_000), "{started:?}");
}

/// Both ends begin at once, again and again, as they do after outages.
#[test]
fn handshakes_that_cross_retire_nothing_in_use() {
    // In rounds of each kind, one end, or neither, is answered before it receives the other's
    // initiation.
    for order in 0..9 {
        let mut a = End::new(1, config(1), Some(peer(2, true, true)));
        let mut b = End::new(2, config(2), Some(peer(1, true, true)));
        for round in 0..6u64 {
            let about = format!("order {order}, round {round}");
            let now = ms(round * 2_000);
            let early = [order / 3, order % 3][round as usize % 2];
            let begun = [&mut a, &mut b].map(|end| {
                end.machine.restart(LINK, now);
                end.wake(now).remove(0).1
            });
            let (at_a, at_b) = (a.at, b.at);
            let mut to_a = vec![begun[1].clone()];
            let mut to_b = vec![begun[0].clone()];
            // Each list arrives in its order; an early answer comes first.
            if early == 1 {
                let answer = b.hear(now, at_a, &to_b.remove(0));
                to_a.splice(0..0, answer.into_iter().map(|(_, bytes)| bytes));
            } else if early == 2 {
                let answer = a.hear(now, at_b, &to_a.remove(0));
                to_b.splice(0..0, answer.into_iter().map(|(_, bytes)| bytes));
            }
            while !(to_a.is_empty() && to_b.is_empty()) {
                for bytes in std::mem::take(&mut to_a) {
                    to_b.extend(a.hear(now, at_b, &bytes).into_iter().map(|(_, b)| b));
                }
                for bytes in std::mem::take(&mut to_b) {
                    to_a.extend(b.hear(now, at_a, &bytes).into_iter().map(|(_, b)| b));
                }
            }
            for _ in 0..2 {
                for from_a in [true, false] {
                    let (from, to) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
                    let Some(envelope) = from.say(b"x") else { continue };
                    nothing_in_use_is_retired(to, &about);
                    to.open(&envelope).expect(&about);
                }
            }
            assert!(a.seal.ready() && b.seal.ready(), "{about}");
        }
    }
}

#[test]
fn retries_back_off_to_one_a_second_and_never_stop() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut at = Vec::new();
    let mut now = Time::ZERO;
    while now < ms(60_000) {
        at.extend(a.wake(now).iter().map(|_| now.as_micros() / 1_000));
        now = a.machine.next_timeout();
    }
    let gaps: Vec<u64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    assert!((187..=250).contains(&gaps[0]), "{gaps:?}");
    assert!(gaps.iter().all(|g| *g <= 1_000), "{gaps:?}");
    assert!(gaps[3..].iter().all(|g| *g >= 750), "{gaps:?}");
    assert!(gaps.len() > 55);
}

#[test]
fn a_restarted_neighbour_is_a_fresh_start() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    settle(ms(0), &mut a, &mut b);
    talk(&mut a, &mut b);
    for _ in 0..100 {
        let envelope = b.say(b"x").unwrap();
        a.open(&envelope).unwrap();
    }
    let straggler = a.say(b"old").unwrap();
    let mut a =
        End::new(1, Config { incarnation: Incarnation(2), ..config(1) }, Some(peer(2, true, true)));
    settle(ms(1_000), &mut a, &mut b);
    let first = a.say(b"again").unwrap();
    assert_eq!(b.open(&first), Ok((Opened::Fresh { first: false }, 0, b"again".to_vec())));
    assert_eq!(b.open(&straggler).unwrap().0, Opened::Stale);
    let answer = b.say(b"yes").unwrap();
    assert_eq!(a.open(&answer), Ok((Opened::Fresh { first: true }, 0, b"yes".to_vec())));
    talk(&mut a, &mut b);
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    settle(ms(0), &mut a, &mut b);
    talk(&mut a, &mut b);
    // Its NAT assigns another port: envelopes continue from any address, and the link informs the
    // machine.
    a.at = SocketAddr::from(([192, 0, 2, 1], 40_123));
    talk(&mut a, &mut b);
    b.machine.set_address(LINK, a.at);
    settle(ms(120_000), &mut a, &mut b);
    assert_eq!(b.established[1], (Role::Responder, CURRENT, a.at));
    talk(&mut a, &mut b);
    // If the initiator falls silent, the responder finds it at the new address.
    b.machine.restart(LINK, ms(130_000));
    assert_eq!(b.wake(ms(130_000))[0].0, a.at);
}

/// The versions in refusals that `end` has reported.
fn mismatches(end: &End) -> Vec<VersionMismatch> {
    let of = |e: &Event| match e {
        Event::Refused { versions, .. } => *versions,
        _ => None,
    };
    end.events.iter().filter_map(of).collect()
}

#[test]
fn neighbouring_versions_speak_the_older_one() {
    let offer = |oldest, newest, capabilities| {
        let versions = VersionRange { oldest, newest };
        Offer { versions, capabilities }
    };
    let of = |n: u8, offer| Config { offer, ..config(n) };
    let mut a = End::new(1, of(1, offer(4, 5, 0b110)), Some(peer(2, true, true)));
    let mut b = End::new(2, of(2, offer(3, 4, 0b1011)), Some(peer(1, true, false)));
    settle(ms(0), &mut a, &mut b);
    assert_eq!((a.established[0].1, b.established[0].1), (4, 4));
    talk(&mut a, &mut b);

    let mut c = End::new(1, of(1, offer(5, 6, 0)), Some(peer(2, true, true)));
    let mut d = End::new(2, of(2, offer(3, 4, 0)), Some(peer(1, true, false)));
    settle(ms(0), &mut c, &mut d);
    assert!(c.established.is_empty() && d.established.is_empty());
    let [newer, older] = [(5, 6), (3, 4)].map(|(oldest, newest)| VersionRange { oldest, newest });
    for (end, own, other) in [(&c, newer, older), (&d, older, newer)] {
        assert_eq!(end.refused(RefusedHandshake::Version), 1);
        assert_eq!(mismatches(end), [VersionMismatch { own, other }], "both ends hear of it");
    }
}
