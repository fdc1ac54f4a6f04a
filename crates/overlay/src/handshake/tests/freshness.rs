//! Nodes with a clock that went back, and copies that must not be taken for them.

use super::*;

/// Address of a node after its NAT forgot the mapping.
const ELSEWHERE: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 77)), 40_000);

fn start(config: Config, incarnation: u64) -> Config {
    Config { incarnation: Incarnation(incarnation), ..config }
}

/// Exchanges messages between `a`, which dials, and `b` from `from` on, with a delay of 10 ms each
/// way; returns the time in milliseconds until both use a session, if that is within 3 s.
fn meet(from: u64, a: &mut End, b: &mut End) -> Option<u64> {
    let before = (a.established.len(), b.established.len());
    let (mut to_a, mut to_b) = (Vec::<(SocketAddr, Vec<u8>)>::new(), Vec::<Vec<u8>>::new());
    for t in (from..from + 3_000).step_by(10) {
        let heard: Vec<_> = std::mem::take(&mut to_b);
        let (from_a, at_a) = (std::mem::take(&mut to_a), a.at);
        for bytes in heard {
            to_a.extend(b.hear(ms(t), at_a, &bytes).into_iter().filter(|(to, _)| *to == at_a));
        }
        for (_, bytes) in from_a {
            to_b.extend(a.hear(ms(t), b.at, &bytes).into_iter().map(|(_, bytes)| bytes));
        }
        to_b.extend(a.wake(ms(t)).into_iter().map(|(_, bytes)| bytes));
        // Datagrams to the old address of `a` are lost.
        to_a.extend(b.wake(ms(t)).into_iter().filter(|(to, _)| *to == at_a));
        if a.established.len() > before.0 && b.established.len() > before.1 {
            talk(a, b);
            return Some(t - from);
        }
    }
    None
}

/// Node 1 dials node 2. It has been in contact with node 2 in an earlier start, and its clock has
/// gone back since.
fn set_back(mut b: End, config: impl Fn() -> Config, known: bool) -> (End, End) {
    let mut before = End::new(1, start(config(), 3_600_000), Some(peer(2, known, true)));
    assert!(meet(1_000, &mut before, &mut b).is_some());
    let mut a = End::new(1, start(config(), 5), Some(peer(2, known, true)));
    a.at = ELSEWHERE;
    (a, b)
}

fn told(end: &End, own: bool) -> usize {
    let it = |e: &&Event| matches!(e, Event::ClockBehind { own: o, .. } if *o == own);
    end.events.iter().filter(it).count()
}

#[test]
fn a_node_whose_clock_went_back_is_up_again_at_once() {
    let b = End::new(2, config(2), Some(peer(1, true, false)));
    let (mut a, mut b) = set_back(b, || config(1), true);
    let took = meet(10_000, &mut a, &mut b).expect("a session within 3 s");
    assert!(took <= 100, "{took} ms, of two round trips of 20");
    assert_eq!((told(&a, true), told(&b, false)), (1, 1));
    // Keys are replaced as usual, and nothing more is logged.
    for t in [130_000, 250_000, 370_000] {
        a.machine.restart(LINK, ms(t));
        assert!(meet(t, &mut a, &mut b).is_some(), "at {t}");
    }
    assert_eq!((told(&a, true), told(&b, false)), (1, 1));
}

#[test]
fn so_is_one_that_a_certificate_admits() {
    let b = End::new(2, certified(2), Some(peer(1, false, false)));
    let (mut a, mut b) = set_back(b, || certified(1), false);
    let took = meet(10_000, &mut a, &mut b).expect("a session within 3 s");
    assert!(took <= 200, "{took} ms");
}

#[test]
fn the_successor_of_a_revoked_key_is_not_refused_for_what_that_said() {
    let mut b = End::new(2, certified(2), Some(peer(1, false, false)));
    let mut thief = End::new(1, start(certified(1), u64::MAX), Some(peer(2, false, true)));
    assert!(meet(1_000, &mut thief, &mut b).is_some());
    let copy = {
        thief.machine.restart(LINK, ms(5_000));
        thief.wake(ms(5_000)).remove(0).1
    };

    let key = identity(9);
    let issued = Certificate::issue(&operator(), NodeId(1), "node-1", key.public(), 0).unwrap();
    let anew = || Config {
        identity: identity(9),
        certificate: Some(issued.clone()),
        incarnation: Incarnation(5),
        ..certified(1)
    };
    let mut trust = certified(2).trust;
    // Before the old key is revoked…
    let mut a = End::new(1, anew(), Some(peer(2, false, true)));
    a.at = ELSEWHERE;
    assert!(meet(10_000, &mut a, &mut b).is_some(), "{:?}", b.machine.stats());
    // …and afterwards, without another round trip.
    trust.revoked.push(identity(1).public());
    b.machine.set_trust(trust, UNIX);
    let challenges = b.machine.stats().challenges;
    let mut a =
        End::new(1, Config { incarnation: Incarnation(6), ..anew() }, Some(peer(2, false, true)));
    a.at = ELSEWHERE;
    assert!(meet(20_000, &mut a, &mut b).is_some(), "{:?}", b.machine.stats());
    assert_eq!(b.machine.stats().challenges, challenges);
    let revoked = b.refused(RefusedHandshake::Revoked);
    b.hear(ms(30_000), address(66), &copy);
    assert_eq!(b.refused(RefusedHandshake::Revoked), revoked + 1);
}

/// Copies neither create a session nor end one.
#[test]
fn copies_of_initiations_with_and_without_a_nonce_come_to_nothing() {
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    let mut before = End::new(1, start(config(1), 3_600_000), Some(peer(2, true, true)));
    let first = before.wake(ms(0)).remove(0).1;
    b.hear(ms(0), address(1), &first);
    // An initiation that never arrived, with a higher stamp than all that did.
    before.machine.restart(LINK, ms(300));
    let withheld = before.wake(ms(300)).remove(0).1;
    b.hear(ms(310), address(1), &withheld);

    let mut a = End::new(1, start(config(1), 5), Some(peer(2, true, true)));
    let old = a.wake(ms(10_000)).remove(0).1;
    let challenge = b.hear(ms(10_000), ELSEWHERE, &old).remove(0).1;
    assert_eq!(Kind::of(&challenge), Ok(Kind::Challenge));
    assert!(challenge.len() <= old.len());
    // The initiation with the nonce is delayed; a copy of the first is challenged.
    assert!(a.hear(ms(10_010), address(2), &challenge).is_empty());
    let held = a.wake(ms(10_010)).remove(0).1;
    for t in [10_011, 10_012] {
        let again = b.hear(ms(t), address(66), &first);
        assert_eq!(Kind::of(&again[0].1), Ok(Kind::Challenge));
        // The challenge goes to an attacker that can't read it: it has neither the handshake nor
        // the key.
        assert!(a.hear(ms(t), address(2), &again[0].1).is_empty());
    }
    // Its sender retries, with the same nonce.
    let retry = a.wake(ms(10_700)).remove(0).1;
    let challenge = b.hear(ms(10_700), ELSEWHERE, &retry).remove(0).1;
    a.hear(ms(10_710), address(2), &challenge);
    let answer = a.wake(ms(10_710)).remove(0).1;
    let response = b.hear(ms(10_710), ELSEWHERE, &answer).remove(0).1;
    assert_eq!(Kind::of(&response), Ok(Kind::Response));
    a.hear(ms(10_720), address(2), &response);
    talk(&mut a, &mut b);

    let sessions = b.established.len();
    for (i, copy) in [&first, &withheld, &old, &held, &retry, &answer].into_iter().enumerate() {
        let replies = b.hear(ms(10_800 + i as u64), address(66), copy);
        assert!(replies.iter().all(|(_, r)| Kind::of(r) == Ok(Kind::Challenge)), "copy {i}");
        assert!(replies.iter().all(|(_, r)| r.len() <= copy.len()));
    }
    // Nor does a copy of the challenge, or of the response, end anything.
    a.hear(ms(10_900), address(2), &challenge);
    a.hear(ms(10_900), address(2), &response);
    assert_eq!(b.established.len(), sessions);
    talk(&mut a, &mut b);
}

#[test]
fn a_nonce_is_of_no_use_after_a_while() {
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    let mut before = End::new(1, start(config(1), 3_600_000), Some(peer(2, true, true)));
    b.hear(ms(0), address(1), &before.wake(ms(0)).remove(0).1);
    let mut a = End::new(1, start(config(1), 5), Some(peer(2, true, true)));
    let old = a.wake(ms(10_000)).remove(0).1;
    let challenge = b.hear(ms(10_000), ELSEWHERE, &old).remove(0).1;
    a.hear(ms(10_000), address(2), &challenge);
    let answer = a.wake(ms(10_000)).remove(0).1;
    let late = b.hear(ms(15_000), ELSEWHERE, &answer).remove(0).1;
    assert_eq!(Kind::of(&late), Ok(Kind::Challenge), "and not a response");
}

/// 10⁴ copies a second from any address: computations and traffic stay within the limits for other
/// initiations, and a reply is never larger than its cause.
#[test]
fn a_flood_of_old_initiations_is_bounded() {
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    let mut before = End::new(1, start(config(1), 3_600_000), Some(peer(2, true, true)));
    let old = before.wake(ms(0)).remove(0).1;
    b.hear(ms(0), address(1), &old);
    let (computed, mut came, mut went) = (b.machine.stats().computed, 0, 0);
    for n in 0..10_000_u64 {
        let from = SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 9));
        let now = ms(5_000) + Duration::from_micros(100 * n);
        for (to, bytes) in b.hear(now, from, &old) {
            assert_eq!(to, from);
            assert!(bytes.len() <= old.len());
            went += bytes.len();
        }
        came += old.len();
    }
    let Limits { unknown_peers, answers, .. } = Limits::default();
    let computed = b.machine.stats().computed - computed;
    assert!(computed <= u64::from(unknown_peers.burst + unknown_peers.per_second), "{computed}");
    let sent = b.machine.stats().answers + b.machine.stats().challenges;
    assert!(sent <= u64::from(answers.burst + answers.per_second), "{sent}");
    assert!(went <= came);
    // The genuine neighbour still gets in, with a cookie.
    let mut a = End::new(1, start(config(1), 5), Some(peer(2, true, true)));
    a.at = ELSEWHERE;
    assert!(meet(6_010, &mut a, &mut b).is_some());
}
