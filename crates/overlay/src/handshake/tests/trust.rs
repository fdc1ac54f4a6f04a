use super::*;

/// Lets `a` begin and `b` answer, and asserts that the handshake was refused for `why`. Returns the
/// node that `a` reports as refused.
fn refused(
    a: Config,
    b: Config,
    a_knows: bool,
    b_knows: bool,
    why: RefusedHandshake,
) -> Option<NodeId> {
    let mut a = End::new(1, a, Some(peer(2, a_knows, true)));
    let mut b = End::new(2, b, Some(peer(1, b_knows, false)));
    settle(ms(0), &mut a, &mut b);
    assert!(!a.seal.ready());
    assert!(a.refused(why) + b.refused(why) > 0, "{:?} {:?}", a.machine.stats(), b.machine.stats());
    a.events.iter().find_map(|e| match e {
        Event::Refused { node, .. } => *node,
        _ => None,
    })
}

#[test]
fn what_is_not_vouched_for_is_refused() {
    let with = |certificate| Config { certificate: Some(certificate), ..certified(2) };
    let revoked = Trust { revoked: vec![identity(2).public()], ..certified(1).trust };
    // The certificate of the responder, in its answer.
    refused(certified(1), with(certificate(2, UNIX - 1)), false, true, RefusedHandshake::Expired);
    let told = refused(
        certified(1),
        with(certificate(4, 0)),
        false,
        true,
        RefusedHandshake::WrongCertificate,
    );
    assert_eq!(told, Some(NodeId(4)), "whom it found in node 2's place");
    refused(
        Config { trust: revoked, ..certified(1) },
        certified(2),
        false,
        true,
        RefusedHandshake::Revoked,
    );
    let rogue = Certificate::issue(&identity(66), NodeId(2), "b", identity(2).public(), 0).unwrap();
    refused(certified(1), with(rogue), false, true, RefusedHandshake::WrongCertificate);

    // The certificate of the initiator, in its initiation.
    let with = |certificate| Config { certificate, ..certified(1) };
    refused(
        with(Some(certificate(1, UNIX - 1))),
        certified(2),
        true,
        false,
        RefusedHandshake::Expired,
    );
    refused(
        with(Some(certificate(4, 0))),
        certified(2),
        true,
        false,
        RefusedHandshake::WrongCertificate,
    );
    refused(with(None), certified(2), true, false, RefusedHandshake::UnknownKey);
    let revoked = Trust { revoked: vec![identity(1).public()], ..certified(2).trust };
    refused(
        certified(1),
        Config { trust: revoked, ..certified(2) },
        true,
        false,
        RefusedHandshake::Revoked,
    );

    // A key that is not the configured one, whatever id it claims.
    let impostor = Config { identity: identity(9), ..config(1) };
    refused(impostor, config(2), true, true, RefusedHandshake::UnknownKey);
    // The responder is another node than the caller expected.
    let other = Config { node: NodeId(7), ..config(2) };
    refused(config(1), other, true, true, RefusedHandshake::WrongCertificate);
    // The responder has no operator's key to be certified by.
    refused(certified(1), config(2), false, true, RefusedHandshake::BadMac);
}

#[test]
fn a_certificate_of_another_does_not_fit_ones_key() {
    // The thief has node 1's certificate, which anyone may have, but not its key.
    let thief = Config { identity: identity(9), ..certified(1) };
    refused(thief, certified(2), true, false, RefusedHandshake::WrongCertificate);
}

#[test]
fn revocation_ends_what_there_is() {
    let mut a = End::new(1, certified(1), Some(peer(2, false, true)));
    let mut b = End::new(2, certified(2), Some(peer(1, false, true)));
    settle(ms(0), &mut a, &mut b);
    talk(&mut a, &mut b);
    let trust = certified(1).trust;
    a.machine.set_trust(trust.clone(), UNIX);
    a.drain(ms(10));
    assert!(a.events.is_empty(), "nothing has changed");
    a.machine.set_trust(Trust { revoked: vec![identity(2).public()], ..trust }, UNIX);
    a.drain(ms(10));
    let closed =
        |e: &Event| matches!(e, Event::Closed { link: LINK, why: RefusedHandshake::Revoked });
    assert!(a.events.iter().any(closed));
    a.sealed().clear();
    // Neither may begin again.
    a.machine.restart(LINK, ms(20));
    b.machine.restart(LINK, ms(20));
    for t in (20..20_000).step_by(50) {
        settle(ms(t), &mut a, &mut b);
    }
    assert!(!a.seal.ready());
    assert!(a.refused(RefusedHandshake::Revoked) > 0);
}

/// A node without a link to the peer that it refuses tells its operator, too.
#[test]
fn a_newcomer_without_a_common_version_is_reported() {
    let limits = Limits { unconfigured_peers: 2, ..Limits::default() };
    let mut b = End::new(2, Config { limits, ..certified(2) }, None);
    let newer = VersionRange { oldest: CURRENT + 1, newest: CURRENT + 2 };
    let offer = Offer { versions: newer, ..Offer::default() };
    let mut a = End::new(1, Config { offer, ..certified(1) }, Some(peer(2, true, true)));
    let first = a.wake(ms(0)).remove(0).1;
    b.hear(ms(0), address(1), &first);
    let Some(Event::UnconfiguredPeer { id, .. }) = b.events.pop() else { panic!("a peer") };
    assert!(!b.machine.admit(id, LINK, 1_280, ms(100)));
    let answer = b.drain(ms(100)).remove(0).1;
    a.hear(ms(100), address(2), &answer);
    let own = VersionRange::default();
    assert_eq!(mismatches(&b), [VersionMismatch { own, other: newer }]);
    assert_eq!(mismatches(&a), [VersionMismatch { own: newer, other: own }]);
    let reported = b.events.iter().any(|e| matches!(e, Event::Refused { from, node, .. } if (*from, *node) == (address(1), Some(NodeId(1)))));
    assert!(reported, "{:?}", b.events);
}

#[test]
fn newcomers_are_admitted_if_certified() {
    let limits = Limits { unconfigured_peers: 2, ..Limits::default() };
    let mut b = End::new(2, Config { limits, ..certified(2) }, None);
    let mut a = End::new(1, certified(1), Some(peer(2, true, true)));
    let first = a.wake(ms(0)).remove(0).1;
    assert!(b.hear(ms(0), address(1), &first).is_empty());
    let Some(Event::UnconfiguredPeer { id, node, name, path, key, address: at }) = b.events.pop()
    else {
        panic!("a unconfigured_peer");
    };
    assert_eq!((node, name.as_str(), path.as_str()), (NodeId(1), "node-1", "main"));
    assert_eq!((key, at), (identity(1).public(), address(1)));
    assert!(b.machine.admit(id, LINK, 1_280, ms(100)));
    let answer = b.drain(ms(100)).remove(0);
    a.hear(ms(100), address(2), &answer.1);
    talk(&mut a, &mut b);

    // A copy of its messages creates no unconfigured peer, before or after it has left.
    b.hear(ms(200), address(1), &first);
    b.machine.remove(LINK);
    b.hear(ms(300), address(66), &first);
    assert_eq!(b.refused(RefusedHandshake::Replayed), 2);
    assert!(!b.machine.admit(id, LINK, 1_280, ms(300)), "only once");

    // Nor does a peer get in with a certificate that names this very node, or no node.
    for (refused, id) in (1..).zip([NodeId(2), NodeId::NONE]) {
        let twin = Certificate::issue(&operator(), id, "b", identity(9).public(), 0).unwrap();
        let certificate = Some(twin);
        let twin = Config { node: id, identity: identity(9), certificate, ..certified(2) };
        let bytes = End::new(9, twin, Some(peer(2, true, true))).wake(ms(0)).remove(0).1;
        b.hear(ms(350), address(9), &bytes);
        assert_eq!(b.refused(RefusedHandshake::WrongCertificate), refused);
    }

    // Without a certificate, an unknown peer is refused; and no more are admitted than fit.
    let mut unknown_peer = End::new(5, config(5), Some(peer(2, true, true)));
    let bytes = unknown_peer.wake(ms(0)).remove(0).1;
    b.hear(ms(400), address(5), &bytes);
    assert_eq!(b.refused(RefusedHandshake::UnknownKey), 1);
    for n in 6..9 {
        let mut node = End::new(n, certified(n), Some(peer(2, true, true)));
        let bytes = node.wake(ms(0)).remove(0).1;
        b.hear(ms(500), address(n), &bytes);
    }
    assert_eq!(b.refused(RefusedHandshake::UnconfiguredPeersFull), 1);
    b.wake(ms(6_000));
    assert_eq!(b.machine.next_timeout(), Time::NEVER, "they are forgotten");
}

#[test]
fn who_is_believed_only_later_is_greeted_then() {
    let revoked = Trust { revoked: vec![identity(2).public()], ..Trust::default() };
    let nobody = Config { trust: Trust::default(), ..certified(1) };
    for (before, knows, after) in [
        (Config { trust: revoked, ..config(1) }, true, Trust::default()),
        (nobody, false, certified(1).trust),
    ] {
        let mut a = End::new(1, before, Some(peer(2, knows, true)));
        let mut b = End::new(2, certified(2), Some(peer(1, true, false)));
        settle(ms(0), &mut a, &mut b);
        assert!(!a.seal.ready());
        assert_eq!(a.machine.next_timeout(), Time::NEVER);
        a.machine.set_trust(after, UNIX);
        settle(ms(1_000), &mut a, &mut b);
        talk(&mut a, &mut b);
    }
}

/// The certificate that `end` has of its neighbour.
fn shown(end: &End) -> &Certificate {
    end.machine.neighbours[&LINK].certificate.as_ref().expect("shown")
}

#[test]
fn a_renewed_certificate_is_seen_with_new_keys_and_no_copy_brings_back_the_old_one() {
    let ends = Config { certificate: Some(certificate(1, UNIX + 100)), ..certified(1) };
    let mut a = End::new(1, ends, Some(peer(2, true, true)));
    let mut b = End::new(2, certified(2), Some(peer(1, false, false)));
    let first = a.wake(ms(0)).remove(0).1;
    for (_, bytes) in b.hear(ms(0), address(1), &first) {
        a.hear(ms(0), address(2), &bytes);
    }
    talk(&mut a, &mut b);
    let renewed = certificate(1, UNIX + 1_000);
    a.machine.set_certificate(renewed.clone(), ms(1_000));
    assert!(a.wake(ms(1_000)).is_empty(), "the session goes on");
    settle(ms(121_000), &mut a, &mut b);
    talk(&mut a, &mut b);
    assert_eq!(shown(&b), &renewed);

    b.hear(ms(122_000), address(66), &first);
    assert_eq!(b.refused(RefusedHandshake::Replayed), 1);
    assert_eq!(shown(&b), &renewed, "a copy of the first initiation");
    // Nor does an answer with the old certificate to a query that is still open.
    let old = certificate(1, UNIX + 100);
    let neighbour = b.machine.neighbours.get_mut(&LINK).unwrap();
    neighbour.hear(old.clone());
    assert_eq!(shown(&b), &renewed);
    let neighbour = b.machine.neighbours.get_mut(&LINK).unwrap();
    neighbour.hear(certificate(1, 0));
    neighbour.hear(renewed);
    assert_eq!(shown(&b).not_after(), 0, "for ever is the longest");
    b.machine.neighbours.get_mut(&LINK).unwrap().forget();
    b.machine.neighbours.get_mut(&LINK).unwrap().hear(old.clone());
    assert_eq!(shown(&b), &old, "better than none");
}

#[test]
fn a_link_that_is_down_since_its_certificate_is_over_comes_back_with_another() {
    let over = Config { certificate: Some(certificate(1, UNIX - 1)), ..certified(1) };
    let mut a = End::new(1, over, Some(peer(2, true, true)));
    let mut b = End::new(2, certified(2), Some(peer(1, false, false)));
    for t in (0..20_000).step_by(50) {
        settle(ms(t), &mut a, &mut b);
    }
    assert!(!a.seal.ready() && b.refused(RefusedHandshake::Expired) > 0);
    a.machine.set_certificate(certificate(1, UNIX + 1), ms(20_000));
    settle(ms(20_000), &mut a, &mut b);
    talk(&mut a, &mut b);
}
