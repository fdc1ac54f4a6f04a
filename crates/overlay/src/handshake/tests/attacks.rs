//! Attackers that have no key, or only old messages.

use super::*;
use crate::wire::OpenError;
use proptest::prelude::*;

/// Returns both ends after an exchange, the initiation of node 1 to node 2, and the response.
fn exchange() -> (End, End, Vec<u8>, Vec<u8>) {
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, config(2), Some(peer(1, true, false)));
    let initiation = a.wake(ms(0)).remove(0).1;
    let response = b.hear(ms(0), address(1), &initiation).remove(0).1;
    (a, b, initiation, response)
}

fn refusals(end: &End) -> u64 {
    end.machine.stats().refusals().map(|(_, n)| n).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_altered_or_cut_is_refused_and_counted(at in any::<prop::sample::Index>(), bit in 0..8, cut in any::<bool>()) {
        let (mut a, mut b, initiation, response) = exchange();
        let altered = |message: &[u8]| {
            let mut bytes = message.to_vec();
            if cut {
                bytes.truncate(at.index(message.len()));
            } else {
                *at.get_mut(&mut bytes) ^= 1u8 << bit;
            }
            bytes
        };
        let before = (refusals(&a), refusals(&b));
        prop_assert!(b.hear(ms(1), address(1), &altered(&initiation)).is_empty());
        prop_assert!(a.hear(ms(1), address(2), &altered(&response)).is_empty());
        prop_assert_eq!((refusals(&a), refusals(&b)), (before.0 + 1, before.1 + 1));
        prop_assert!(a.established.is_empty());
        // Genuine messages still get through.
        a.hear(ms(2), address(2), &response);
        talk(&mut a, &mut b);
        // The same holds for envelopes.
        let envelope = a.say(b"some voice").unwrap();
        prop_assert!(b.open(&altered(&envelope)).is_err());
        prop_assert!(b.open(&envelope).is_ok());
    }
}

#[test]
fn what_came_before_is_refused() {
    let (mut a, mut b, initiation, response) = exchange();
    a.hear(ms(1), address(2), &response);
    talk(&mut a, &mut b);
    // An attacker that sent the copy can't answer the challenge.
    let challenge = b.hear(ms(2), address(66), &initiation).remove(0).1;
    assert_eq!(Kind::of(&challenge), Ok(Kind::Challenge));
    assert!(a.hear(ms(2), address(2), &challenge).is_empty());
    assert_eq!(a.refused(RefusedHandshake::Unexpected), 1);
    assert_eq!(b.refused(RefusedHandshake::Replayed), 1);
    a.hear(ms(2), address(2), &response);
    assert_eq!(a.refused(RefusedHandshake::Unexpected), 2);
    let said: Vec<_> = (0..3_000).map(|_| a.say(b"v").unwrap()).collect();
    for envelope in &said {
        assert!(b.open(envelope).is_ok());
    }
    for envelope in &said {
        assert_eq!(b.open(envelope), Err(OpenError::Replayed));
    }
    talk(&mut a, &mut b);
}

#[test]
fn late_envelopes_are_opened_once() {
    let (mut a, mut b, _, response) = exchange();
    a.hear(ms(1), address(2), &response);
    let said: Vec<_> = (0..2_048).map(|_| a.say(b"v").unwrap()).collect();
    for envelope in said.iter().rev() {
        assert!(b.open(envelope).is_ok());
        assert_eq!(b.open(envelope), Err(OpenError::Replayed));
    }
    let newest = a.say(b"v").unwrap();
    assert!(b.open(&newest).is_ok());
    assert_eq!(b.open(&said[0]), Err(OpenError::Replayed), "too old to tell");
}

#[test]
fn envelopes_for_no_session_and_of_no_key() {
    let (mut a, mut b, _, response) = exchange();
    a.hear(ms(1), address(2), &response);
    let mut envelope = a.say(b"voice").unwrap();
    let mut none = End::new(2, config(2), None);
    assert_eq!(none.open(&envelope), Err(OpenError::NoSession));
    envelope[9] ^= 1;
    assert_eq!(b.open(&envelope), Err(OpenError::Forged));
    envelope[9] ^= 1;
    // The header is authenticated, too.
    envelope[7] ^= 1;
    assert_eq!(b.open(&envelope), Err(OpenError::Forged));
    envelope[7] ^= 1;
    assert!(b.open(&envelope).is_ok());
    assert!(b.open(&envelope).is_err());
}

/// An initiation that makes its receiver compute the curve: the MAC is right, the rest is noise.
fn forged(n: u64) -> Vec<u8> {
    let mac = MacKey::for_node(&identity(2).public()).unwrap();
    let mut noise = [9; 200];
    noise[..8].copy_from_slice(&n.to_be_bytes());
    message::Initiation { cookie: [0; 16], noise: &noise }.emit(&mac)
}

fn spoofed(n: u64) -> SocketAddr {
    SocketAddr::from(([10, (n >> 16) as u8, (n >> 8) as u8, n as u8], 9))
}

/// Sends 10⁴ messages a second and prints the cost of each; machines differ, so it isn't asserted.
fn flood(b: &mut End, second: u64, message: impl Fn(u64) -> Vec<u8>) -> u64 {
    let messages: Vec<_> = (0..10_000).map(message).collect();
    let start = std::hint::black_box(clock());
    let mut answers = 0;
    for (n, bytes) in (0..).zip(&messages) {
        let now = ms(second * 1_000) + Duration::from_micros(100 * n);
        answers += b.hear(now, spoofed(n), bytes).len() as u64;
    }
    println!("{:.2} µs for each", start.elapsed().as_secs_f64() * 1e6 / 1e4);
    answers
}

#[allow(clippy::disallowed_methods)]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn a_flood_costs_little_and_starves_nobody() {
    let (mut a, mut b, _, response) = exchange();
    a.hear(ms(1), address(2), &response);
    talk(&mut a, &mut b);

    print!("without the key: ");
    let wrong = |n| {
        let mut bytes = forged(n);
        bytes[3] ^= 1;
        bytes
    };
    assert_eq!(flood(&mut b, 10, wrong), 0);
    assert_eq!(b.refused(RefusedHandshake::BadMac), 10_000);
    let computed = b.machine.stats().computed;

    print!("with it: ");
    let answers = flood(&mut b, 20, forged);
    let computed = b.machine.stats().computed - computed;
    let Limits { unknown_peers, answers: answered, .. } = Limits::default();
    assert!(computed <= u64::from(unknown_peers.burst + unknown_peers.per_second));
    assert!(answers <= u64::from(answered.burst + answered.per_second));
    assert_eq!(b.refused(RefusedHandshake::NoCookie), 10_000 - computed);

    // In the midst of the flood, a neighbour gets through at its address…
    a.machine.restart(LINK, ms(20_999));
    let first = a.wake(ms(20_999)).remove(0).1;
    let answer = b.hear(ms(20_999), address(1), &first);
    assert_eq!(Kind::of(&answer[0].1), Ok(Kind::Response));
    // …and, while that address is forged as well, at a new one with a cookie.
    let (roaming, mut asked, mut t) = (address(77), 0, 21_000);
    while a.established.len() < 2 {
        t += 1;
        assert!(t < 31_000, "{:?}", b.machine.stats());
        // Its message arrives at varying positions among the others.
        let turn = t % 10;
        for n in 0..10 {
            let from = if n % 2 == 0 { address(1) } else { spoofed(n) };
            b.hear(ms(t), from, &forged(n));
            let own = if n == turn { a.wake(ms(t)) } else { Vec::new() };
            for (_, bytes) in own {
                for (_, reply) in b.hear(ms(t), roaming, &bytes) {
                    assert!(reply.len() <= bytes.len());
                    asked += u32::from(Kind::of(&reply) == Ok(Kind::Answer));
                    a.hear(ms(t), address(2), &reply);
                }
            }
        }
    }
    assert!(asked > 0);
    println!("a neighbour with a new address got through after {} ms", t - 21_000);
    talk(&mut a, &mut b);
}

#[test]
fn a_cookie_is_worth_a_few_handshakes_a_second() {
    let mut b = End::new(2, certified(2), None);
    let query = message::Query { nonce: [1; 8] };
    let mac = MacKey::for_overlay(&operator().public());
    let from = address(9);
    let reply = b.hear(ms(0), from, &query.emit(&mac)).remove(0).1;
    assert!(reply.len() <= message::QUERY_LEN);
    let cookie = message::Answer::parse(&reply).unwrap().cookie;
    let noise = [9; 200];
    let mac = MacKey::for_node(&identity(2).public()).unwrap();
    let shown = message::Initiation { cookie, noise: &noise }.emit(&mac);
    for t in 0..1_000 {
        b.hear(ms(t), from, &shown);
    }
    let computed = b.machine.stats().computed;
    assert!((5..=8).contains(&computed), "{computed}");
    assert_eq!(b.refused(RefusedHandshake::RateLimited), 1_000 - computed);
    // The cookie is useless at another address.
    for t in 1_000..1_200 {
        b.hear(ms(t), address(10), &shown);
    }
    assert!(b.refused(RefusedHandshake::NoCookie) > 100);
}

/// An attacker that forges a neighbour's source address, and reads the replies sent there, uses up
/// that address's handshakes, with cookies and without. The link survives: this end begins on its
/// own when its keys grow old, and the answers that it expects are not limited.
#[test]
fn a_link_outlives_a_flood_from_its_neighbours_address() {
    // A low limit for unknown peers, so that the test is fast.
    let limits = Limits { unknown_peers: trunkline_base::Rate::new(1, 1), ..Limits::default() };
    let mut a = End::new(1, config(1), Some(peer(2, true, true)));
    let mut b = End::new(2, Config { limits, ..config(2) }, Some(peer(1, true, true)));
    settle(ms(0), &mut a, &mut b);
    talk(&mut a, &mut b);
    let mut thief = End::new(66, config(66), Some(peer(2, true, true)));
    let refused = |b: &End| {
        [RefusedHandshake::RateLimited, RefusedHandshake::NoCookie].map(|why| b.refused(why))
    };
    let begun = |b: &End| b.established.iter().filter(|e| e.0 == Role::Initiator).count();
    let before = begun(&b);
    for t in (1_000..400_000).step_by(250) {
        for n in 0..3 {
            b.hear(ms(t), address(1), &forged(t + n));
        }
        thief.machine.restart(LINK, ms(t));
        for (_, bytes) in thief.wake(ms(t)) {
            for (_, reply) in b.hear(ms(t), address(1), &bytes) {
                thief.hear(ms(t), address(2), &reply);
            }
        }
        settle(ms(t), &mut a, &mut b);
        talk(&mut a, &mut b);
    }
    let [limited, without] = refused(&b);
    assert!(limited > 500 && without > 500, "{limited} {without}");
    // Keys last 180 s, so there were at least two key changes.
    assert!(begun(&b) - before >= 2, "{:?}", b.established);
}

/// A peer configured with the wrong key for this node shows up in its log; a flood of such messages
/// costs one line a second.
#[test]
fn a_wrong_mac_is_told_now_and_then() {
    let mut b = End::new(2, config(2), None);
    let wrong = MacKey::for_node(&identity(3).public()).unwrap();
    let bytes = message::Initiation { cookie: [0; 16], noise: &[9; 200] }.emit(&wrong);
    let mut told = Vec::new();
    for n in 0..20_000 {
        b.machine.recv(ms(n / 10), 0, spoofed(n), &bytes);
        while let Some(event) = b.machine.poll() {
            let Event::Refused { from, node: None, why: RefusedHandshake::BadMac, .. } = event
            else {
                panic!("{event:?}")
            };
            told.push((n, from));
        }
    }
    assert_eq!(told, [(0, spoofed(0)), (10_000, spoofed(10_000))]);
    assert_eq!(b.refused(RefusedHandshake::BadMac), 20_000);
}

#[test]
fn queries_without_the_overlay_key_stay_unanswered() {
    let mut b = End::new(2, certified(2), None);
    let query = message::Query { nonce: [1; 8] };
    let other = MacKey::for_overlay(&identity(5).public());
    assert!(b.hear(ms(0), address(9), &query.emit(&other)).is_empty());
    assert_eq!(b.refused(RefusedHandshake::BadMac), 1);
    // The rate of answers is limited, regardless of the sender.
    let mac = MacKey::for_overlay(&operator().public());
    let print = |_| query.emit(&mac);
    print!("queries: ");
    assert!(flood(&mut b, 1, print) <= 5_500);
}

/// A node that has forgotten its peers answers a copy, but continues on its own, however many
/// copies arrive.
#[test]
fn copies_from_before_a_restart_hold_nothing_up() {
    let mut a = End::new(1, certified(1), Some(peer(2, false, true)));
    let mut b = End::new(2, certified(2), Some(peer(1, false, false)));
    let mut copies = Vec::new();
    for t in 0..10 {
        // `b` answers queries, but its responses are lost.
        a.machine.restart(LINK, ms(10 * t));
        for (_, bytes) in [a.wake(ms(10 * t)), a.wake(ms(10 * t))].concat() {
            if Kind::of(&bytes) == Ok(Kind::Initiation) {
                copies.push(bytes);
                continue;
            }
            for (_, answer) in b.hear(ms(10 * t), address(1), &bytes) {
                a.hear(ms(10 * t), address(2), &answer);
            }
        }
    }
    assert!(copies.len() > 5, "{}", copies.len());

    let anew = Config { incarnation: Incarnation(2), ..certified(2) };
    let mut b = End::new(2, anew, Some(peer(1, false, true)));
    let mut a = End::new(1, certified(1), Some(peer(2, false, false)));
    let mut copies = copies.iter();
    for t in (1_000..1_500).step_by(50) {
        if let Some(copy) = copies.next() {
            b.hear(ms(t), address(66), copy);
        }
        settle(ms(t), &mut a, &mut b);
        if a.seal.ready() && b.seal.ready() {
            break;
        }
    }
    assert!(b.machine.stats().responses > 3, "copies were answered");
    talk(&mut a, &mut b);
}

/// A node that dials in has only the address that its initiation came from, and an attacker can
/// send a recorded initiation from any address.
#[test]
fn an_address_that_was_only_heard_of_gets_little() {
    for known in [true, false] {
        let mut a = End::new(1, certified(1), Some(peer(2, true, true)));
        let mut b = End::new(2, certified(2), Some(peer(1, known, false)));
        let copy = a.wake(ms(0)).remove(0).1;
        let victim = address(99);
        let mut sent = 0;
        for t in (0..60_000).step_by(50) {
            let heard = if t == 0 { b.hear(ms(t), victim, &copy) } else { Vec::new() };
            for (to, bytes) in heard.into_iter().chain(b.wake(ms(t))) {
                assert_eq!(to, victim);
                sent += bytes.len() + 28;
            }
        }
        assert!(sent <= 3 * (copy.len() + 28), "{sent} bytes for {}", copy.len() + 28);
        // The genuine neighbour begins from its own address.
        a.machine.restart(LINK, ms(60_000));
        settle(ms(60_000), &mut a, &mut b);
        talk(&mut a, &mut b);
        b.machine.restart(LINK, ms(70_000));
        settle(ms(70_000), &mut a, &mut b);
        talk(&mut a, &mut b);
    }
}

/// Node 1 has another key by now, and the previous one is not revoked.
#[test]
fn a_copy_from_before_a_change_of_keys_brings_no_key_back() {
    let mut b = End::new(2, certified(2), Some(peer(1, false, false)));
    let mut before = End::new(1, certified(1), Some(peer(2, true, true)));
    let copy = before.wake(ms(0)).remove(0).1;
    b.hear(ms(0), address(1), &copy);
    assert_eq!(b.established.len(), 1);

    let key = identity(9);
    let issued = Certificate::issue(&operator(), NodeId(1), "node-1", key.public(), 0).unwrap();
    let anew = Config {
        identity: key,
        certificate: Some(issued),
        incarnation: Incarnation(2),
        ..certified(1)
    };
    let mut a = End::new(1, anew, Some(peer(2, true, true)));
    // Node 2 may be trying the old key at that time, and comes first.
    for t in (1_000..6_000).step_by(50) {
        settle(ms(t), &mut a, &mut b);
    }
    talk(&mut a, &mut b);

    let told = |b: &End| b.events.iter().filter(|e| matches!(e, Event::OtherKey { .. })).count();
    assert_eq!(told(&b), 1, "two nodes may have one number");
    let before = b.refused(RefusedHandshake::Replayed);
    b.hear(ms(10_000), address(66), &copy);
    assert_eq!(told(&b), 1);
    assert_eq!(b.refused(RefusedHandshake::Replayed), before + 1);
    // A handshake that it begins now uses the new key.
    let sessions = a.established.len();
    b.machine.restart(LINK, ms(20_000));
    settle(ms(20_000), &mut a, &mut b);
    assert_eq!(a.established.len(), sessions + 1);
    assert_eq!(a.established[sessions].0, Role::Responder);
    talk(&mut a, &mut b);
}

/// An eavesdropper has the receiver's key and index, and answers first.
#[test]
fn a_forged_response_spoils_no_handshake() {
    let (mut a, mut b, _, response) = exchange();
    let mac = MacKey::for_node(&identity(1).public()).unwrap();
    let receiver = message::Response::parse(&response).unwrap().receiver;
    for len in [0, 47, 48, 150, 400] {
        let forged = message::Response { receiver, noise: &vec![9; len] }.emit(&mac);
        assert!(a.hear(ms(1), address(66), &forged).is_empty());
    }
    assert_eq!(a.refused(RefusedHandshake::Forged) + a.refused(RefusedHandshake::Malformed), 5);
    assert!(a.established.is_empty());
    a.hear(ms(2), address(2), &response);
    talk(&mut a, &mut b);
}

fn freshness_of(key: crate::identity::DhKey, sent: u64) -> crate::handshake::freshness::Latest {
    let payload = message::Payload {
        versions: VersionRange::default(),
        index: crate::wire::ReceiverIndex::new(1),
        node: NodeId(1),
        incarnation: Incarnation(1),
        sent,
        capabilities: 0,
        mtu: 1_280,
        path: String::new(),
        certificate: None,
        nonce: None,
    };
    crate::handshake::freshness::Latest::new(key, &payload)
}

/// Bounded however many messages arrive, and however seldom a driver polls.
#[test]
fn what_is_remembered_of_strangers_is_bounded() {
    let mut b = End::new(2, certified(2), None);
    for n in 0..super::super::machine::MAX_SEEN as u64 + 100 {
        let key = crate::identity::DhKey([n as u8; 32]);
        b.machine.remember(key, n.to_string(), freshness_of(key, n));
        b.machine.push(Event::Refused {
            from: address(9),
            node: Some(NodeId(9)),
            why: RefusedHandshake::Revoked,
            versions: None,
        });
    }
    assert_eq!(b.machine.seen.len(), super::super::machine::MAX_SEEN);
    let events = core::iter::from_fn(|| b.machine.poll()).count();
    assert!(events <= 1 << 12, "{events}");
    // Only events for the log may be lost.
    for n in 0..5_000 {
        b.machine.push(Event::Retired { link: LINK, index: crate::wire::ReceiverIndex::new(n) });
    }
    assert_eq!(core::iter::from_fn(|| b.machine.poll()).count(), 5_000);
}
