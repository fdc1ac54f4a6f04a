//! Applications on other hosts: TCP and UDP to a node, failing networks, and invalid bytes.

use crate::common::keys::CLIENT;
use crate::common::on_time::on_time;
use crate::common::raw::{Raw, bytes};
use crate::common::relay::Relay;
use crate::common::{
    self, Chain, allow_files, attach, ms, numbered, recv_number, settle, stream, try_recv_number,
    wait_for,
};
use macro_rules_attribute::apply;
use rand::RngExt;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{
    Address, DatagramSocket, Error, NodeId, RefusalReason, Service, SocketOption, Status,
    Transport, Unreachable,
};
use trunkline_overlay::session::remote::{
    DATAGRAM_HEAD, FromClient, FromNode, HANDSHAKE_TIMEOUT, MAX_DATAGRAM, MAX_FRAME, Token,
};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};

fn drops(node: &common::Node, reason: &str) -> u64 {
    node.metrics().sum("remote_drops_total", &format!("reason=\"{reason}\""))
}

fn sessions(node: &common::Node) -> u64 {
    node.metrics().sum("sessions", "")
}

/// Waits for the notice of a reconnection, and returns the time that it took.
#[track_caller]
fn until_reconnected(socket: &DatagramSocket) -> Duration {
    let start = Instant::now();
    socket.set_option(SocketOption::ReadTimeout(Some(ms(100)))).expect("in range");
    wait_for("the connection", || match try_recv_number(socket) {
        Err(Error::Reconnected) => Some(()),
        // Packets from before the reconnection.
        Ok(_) | Err(Error::WouldBlock) => None,
        Err(error) => panic!("{error}"),
    });
    start.elapsed()
}

/// Attachment of an application to the first node through `relay`.
fn through(chain: &Chain, relay: &Relay) -> String {
    chain.nodes[0].attachment_at(relay.address, CLIENT)
}

/// Number of established TCP connections to `at` on this machine.
fn connections_to(at: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let end = format!(":{:04X}", at.port());
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|f| f[2].ends_with(&end) && f[3] == "01").count()
}

#[apply(on_time)]
fn packets_cross_on_both_services_and_at_every_size() {
    let chain = Chain::sealed(2);
    let (a, b) = (chain.nodes[0].bind_remote(0), chain.nodes[1].bind_remote(4_000));
    for service in [Service::RealTime, Service::BestEffort] {
        a.set_option(SocketOption::Service(service)).expect("in range");
        let got = stream(&a, &b, 0..50, ms(2));
        assert_eq!(got.len(), 50, "{service:?}");
        assert!(got.iter().all(|(_, r)| r.service == service && r.from == a.local_addr()));
        assert_eq!(stream(&b, &a, 0..50, ms(2)).len(), 50, "the way back");
    }
    let max = a.max_payload();
    let mut buf = vec![0; max];
    for len in [0, 1, 1_000, max - 1, max] {
        a.send_to(&vec![7; len], b.local_addr()).expect("sent");
        assert_eq!(b.recv_from(&mut buf).expect("arrives").len, len);
        assert!(buf[..len].iter().all(|b| *b == 7));
    }
    let m = chain.nodes[1].metrics();
    assert_eq!(m.sum("remote_sessions", "carrier=\"udp\""), 1);
    assert_eq!(m.sum("remote_drops_total", ""), 0);
    assert_eq!(m.drops("malformed") + m.drops("session_full"), 0);
    // Attach by host name, alongside a local application of the node.
    let (node, ip) = (&chain.nodes[0], chain.nodes[0].remote.ip().to_string());
    let name = node.attachment().replacen(&ip, "localhost", 1);
    let named = DatagramSocket::bind(name.as_str(), 0).expect("bound");
    let local = chain.nodes[0].bind(0);
    named.send_to(&numbered(3), local.local_addr()).expect("sent");
    assert_eq!(recv_number(&local).0, 3);
}

#[apply(on_time)]
fn the_packet_thread_asks_for_no_memory_per_packet() {
    let chain = Chain::sealed(1);
    let (a, b) = (chain.nodes[0].bind_remote(0), chain.nodes[0].bind_remote(0));
    stream(&a, &b, 0..20, ms(1));
    let count = || chain.nodes[0].metrics().sum("packet_thread_allocations_total", "");
    let before = count();
    assert_eq!(stream(&a, &b, 0..300, ms(1)).len(), 300);
    let grown = count() - before;
    // Fetching the metrics allocates some memory itself.
    assert!(grown < 20, "{grown} requests for memory in 300 packets");
}

#[test]
fn mistakes_arrive_with_their_names() {
    let chain = Chain::sealed(1);
    let node = &chain.nodes[0];
    let socket = node.bind_remote(4_000);
    let taken = DatagramSocket::bind(node.attachment().as_str(), 4_000).expect_err("taken");
    assert!(matches!(taken, Error::PortInUse { port: 4_000 }), "{taken:?}");
    let told = |to: Address| {
        socket.send_to(&numbered(0), to).expect("sent");
        match try_recv_number(&socket).expect_err("nothing comes") {
            Error::Status(status) => status,
            other => panic!("{other}"),
        }
    };
    let (to, why) = (Address { node: NodeId(99), port: 1 }, Unreachable::NoRoute);
    assert_eq!(told(to), Status::Unreachable { to, why });
    let (to, why) = (node.address(9), Unreachable::NoPort);
    assert_eq!(told(to), Status::Unreachable { to, why });
    let max = socket.max_payload();
    let large = socket.send_to(&vec![0; max + 1], node.address(1)).expect_err("too large");
    assert!(matches!(large, Error::TooLarge { .. }), "{large:?}");

    let closed = common::free_port(node.remote.ip());
    let at = node.attachment_at(closed, CLIENT);
    let absent = DatagramSocket::bind(at.as_str(), 0).expect_err("nobody listens");
    assert!(matches!(absent, Error::NotRunning { .. }), "{absent:?}");
    assert!(absent.to_string().contains(&format!("tcp://{closed}")), "{absent}");
    let at = at.replace(&closed.to_string(), "no-port-here");
    let nameless = DatagramSocket::bind(at.as_str(), 0).expect_err("no port");
    let says = nameless.to_string();
    assert!(says.contains("no-port-here") && says.contains("HOST:PORT"), "{says}");
}

#[apply(on_time)]
fn a_full_node_says_so() {
    let mut chain = Chain::sealed(1);
    let node = chain.first();
    node.crash();
    let text = std::fs::read_to_string(&node.config).expect("written");
    std::fs::write(&node.config, text.replace("[node]", "[node]\nmax_sessions = 2")).expect("ok");
    node.start();
    let _two = (node.bind_remote(0), node.bind(0));
    for _ in 0..20 {
        let full = DatagramSocket::bind(node.attachment().as_str(), 0).expect_err("full");
        assert!(matches!(full, Error::Refused(RefusalReason::Full)), "{full:?}");
    }
}

#[apply(on_time)]
fn a_thousand_remote_clients() {
    const CLIENTS: usize = 1_000;
    // Each has six descriptors open.
    if !allow_files(8_000) {
        println!("skipped: the system does not allow 8,000 open files");
        return;
    }
    let mut chain = Chain::sealed(2);
    let peers: Vec<_> = (0..10).map(|i| chain.nodes[1].bind(4_000 + i)).collect();
    let resident = chain.first().resident();
    let near = &chain.nodes[0];
    let start = Instant::now();
    let at = near.attachment();
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| DatagramSocket::bind(at.as_str(), 0).expect("bound")).collect();
    println!("{CLIENTS} attached in {:?}", start.elapsed());
    clients.iter().for_each(|c| settle(c, Transport::Udp));
    wait_for("all to be known", || {
        (near.metrics().sum("remote_sessions", "carrier=\"udp\"") == CLIENTS as u64).then_some(())
    });
    let mut heard = (0, 0);
    for round in 0..5 {
        for (i, client) in clients.iter().enumerate() {
            client.send_to(&numbered(round), peers[i % 10].local_addr()).expect("sent");
            if i % 20 == 0 {
                thread::sleep(ms(2));
            }
        }
        for peer in &peers {
            peer.set_option(SocketOption::ReadTimeout(Some(ms(300)))).expect("in range");
            for _ in 0..CLIENTS / peers.len() {
                let Ok((n, got)) = try_recv_number(peer) else { break };
                heard.0 += 1;
                peer.send_to(&numbered(n), got.from).expect("sent");
            }
        }
        for client in &clients {
            client.set_option(SocketOption::ReadTimeout(Some(ms(300)))).expect("in range");
            heard.1 += u32::from(try_recv_number(client).is_ok_and(|(n, _)| n == round));
        }
    }
    println!("{heard:?} of 5000 there and back");
    assert!(heard.1 >= 4_950, "{heard:?} of 5000 there and back");
    assert!(clients.iter().all(|c| c.status().reconnects == 0));
    let near = chain.first();
    let grown = near.resident() - resident;
    println!("the node grew by {grown} KiB");
    assert!(grown < 48 << 10, "{grown} KiB");
    drop(clients);
    wait_for("them to go", || (sessions(&chain.nodes[0]) == 0).then_some(()));
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn a_restarted_node_is_found_again() {
    let mut chain = Chain::sealed(2);
    let (a, b) = (chain.nodes[0].bind_remote(4_000), chain.nodes[1].bind(4_000));
    for restart in 1..=2 {
        chain.first().crash();
        thread::sleep(ms(300));
        chain.first().start();
        let took = until_reconnected(&a);
        println!("back after {took:?}");
        assert_eq!((a.local_addr().port, a.status().reconnects), (4_000, restart));
        chain.wait_until_up();
        settle(&a, Transport::Udp);
        assert!(stream(&a, &b, 0..30, ms(2)).len() >= 29);
        assert!(stream(&b, &a, 0..30, ms(2)).len() >= 29);
    }
    assert_eq!(sessions(&chain.nodes[0]), 1);
}

#[apply(on_time)]
fn a_network_that_goes_away_is_noticed_and_comes_back() {
    let mut chain = Chain::sealed(2);
    let relay = Relay::to(chain.nodes[0].remote);
    let (a, b) = (attach(through(&chain, &relay).as_str(), 4_000), chain.nodes[1].bind(4_000));
    assert_eq!(stream(&a, &b, 0..20, ms(2)).len(), 20);
    let resident = chain.first().resident();
    for outage in 1..=2 {
        relay.set(false, false);
        let cut = Instant::now();
        a.set_option(SocketOption::ReadTimeout(Some(ms(20)))).expect("in range");
        wait_for("the loss to be noticed", || {
            let _ = a.send_to(&numbered(0), b.local_addr());
            match try_recv_number(&a) {
                Err(Error::WouldBlock) => {}
                other => panic!("{other:?}"),
            }
            (!a.status().connected).then_some(())
        });
        let noticed = cut.elapsed();
        println!("noticed after {noticed:?}");
        assert!(noticed < ms(9_000), "{noticed:?}");
        // During a longer outage, attempts fail and nothing accumulates.
        let away = Instant::now();
        while away.elapsed() < ms(6_000) {
            assert!(matches!(a.send_to(&numbered(0), b.local_addr()), Err(Error::Disconnected)));
            assert!(matches!(try_recv_number(&a), Err(Error::WouldBlock)));
        }
        relay.set(true, true);
        let took = until_reconnected(&a);
        println!("back after {took:?}");
        assert!(took < ms(6_000), "{took:?}");
        assert_eq!(connections_to(relay.address), 1, "earlier attempts are closed");
        assert_eq!((a.local_addr().port, a.status().reconnects), (4_000, outage));
        settle(&a, Transport::Udp);
        assert!(stream(&a, &b, 0..30, ms(2)).len() >= 29);
        assert!(stream(&b, &a, 0..30, ms(2)).len() >= 29);
    }
    wait_for("the old sessions to go", || (sessions(&chain.nodes[0]) == 1).then_some(()));
    let grown = chain.first().resident().saturating_sub(resident);
    assert!(grown < 4 << 10, "the node grew by {grown} KiB");
}

#[apply(on_time)]
fn an_application_that_sleeps_keeps_its_session() {
    let chain = Chain::sealed(1);
    let (a, b) = (chain.nodes[0].bind_remote(0), chain.nodes[0].bind(0));
    thread::sleep(ms(9_000));
    b.send_to(&numbered(1), a.local_addr()).expect("sent");
    assert_eq!(recv_number(&a).0, 1, "not Reconnected");
    assert_eq!(stream(&a, &b, 2..20, ms(2)).len(), 18);
    assert_eq!(a.status().reconnects, 0);
}

#[apply(on_time)]
fn without_udp_packets_take_tcp() {
    let chain = Chain::sealed(2);
    let relay = Relay::to(chain.nodes[0].remote);
    relay.set(true, false);
    let a = DatagramSocket::bind(through(&chain, &relay).as_str(), 4_000).expect("bound");
    let b = chain.nodes[1].bind(1);
    assert_eq!(a.status().transport, Some(Transport::Tcp));
    assert_eq!(stream(&a, &b, 0..100, ms(10)).len(), 100);
    assert_eq!(stream(&b, &a, 0..100, ms(10)).len(), 100);
    assert_eq!(a.status().transport, Some(Transport::Tcp));
    assert_eq!(chain.nodes[0].metrics().sum("remote_sessions", "carrier=\"tcp\""), 1);
    // UDP is tried again.
    relay.set(true, true);
    settle(&a, Transport::Udp);
    assert_eq!(stream(&a, &b, 100..120, ms(2)).len(), 20);
    // If UDP fails during a call, the call continues.
    relay.set(true, false);
    let cut = Instant::now();
    let got = stream(&a, &b, 0..400, ms(15));
    println!("{} of 400 packets arrived, the last took {:?}", got.len(), a.status().transport);
    assert!(cut.elapsed() >= ms(4_000));
    assert!(got.len() > 200 && got.last().is_some_and(|(n, _)| *n == 399), "{}", got.len());
    assert_eq!(stream(&b, &a, 0..20, ms(2)).len(), 20);
    assert_eq!((a.status().transport, a.status().reconnects), (Some(Transport::Tcp), 0));
}

#[apply(on_time)]
fn a_nat_that_changes_its_mind_costs_nothing() {
    let chain = Chain::sealed(2);
    let relay = Relay::to(chain.nodes[0].remote);
    let (a, b) = (attach(through(&chain, &relay).as_str(), 0), chain.nodes[1].bind(4_000));
    assert_eq!(stream(&b, &a, 0..20, ms(2)).len(), 20);
    for _ in 0..3 {
        relay.remap();
        assert_eq!(stream(&a, &b, 0..20, ms(2)).len(), 20, "from the new address");
        assert_eq!(stream(&b, &a, 0..20, ms(2)).len(), 20, "to the new address");
    }
    assert_eq!((a.status().transport, a.status().reconnects), (Some(Transport::Udp), 0));
    assert_eq!(drops(&chain.nodes[0], "bad_datagram"), 0);
}

/// Streams packets in both directions while `hostile` runs; all must arrive.
fn undisturbed(chain: &Chain, hostile: impl FnOnce()) {
    let (a, b) = (chain.nodes[0].bind_remote(0), chain.nodes[1].bind_remote(0));
    thread::scope(|scope| {
        let call = scope.spawn(|| stream(&a, &b, 0..300, ms(10)).len());
        hostile();
        assert_eq!(call.join().expect("the call ends"), 300, "packets of a good session");
    });
    assert_eq!(stream(&b, &a, 0..50, ms(2)).len(), 50);
    assert_eq!((a.status().reconnects, b.status().reconnects), (0, 0));
}

#[apply(on_time)]
fn garbage_on_tcp_ends_that_connection_only() {
    let mut chain = Chain::sealed(2);
    let node = &chain.nodes[0];
    let huge = u16::try_from(MAX_FRAME + 1).expect("small").to_be_bytes();
    let unsealed: [&[u8]; 4] = [&[0, 0], &huge, &[0xff, 0xff, 1, 2, 3], &[0, 1, 0x41]];
    let sealed: [&[u8]; 4] = [&[0x7f], &[0x43, 9], &[0x42], &[0x44; 200]];
    undisturbed(&chain, || {
        let mut count = 0;
        let mut broken = |raw: &mut Raw, what: &[u8]| {
            assert!(raw.closed(), "{what:?}");
            count += 1;
            assert_eq!(drops(node, "bad_stream"), count, "{what:?}");
        };
        for ending in unsealed {
            let mut raw = Raw::bound(node);
            raw.tcp.write_all(ending).expect("sent");
            broken(&mut raw, ending);
        }
        for ending in sealed {
            let mut raw = Raw::bound(node);
            raw.say(ending);
            broken(&mut raw, ending);
        }
        // A datagram sent twice, and an altered one.
        let ping = bytes(|w| FromClient::Ping.emit(w));
        let mut raw = Raw::bound(node);
        let frame = raw.frame(&ping);
        raw.tcp.write_all(&frame).expect("sent");
        assert!(raw.read().is_some(), "an answer");
        raw.tcp.write_all(&frame).expect("sent");
        broken(&mut raw, b"a copy");
        for at in 0..frame.len() {
            let mut raw = Raw::bound(node);
            let mut frame = raw.frame(&ping);
            frame[at] ^= 1;
            let _ = raw.tcp.write_all(&frame);
            let _ = raw.tcp.write_all(&[0; 300]);
            broken(&mut raw, &frame);
        }
        // A violation of the session's rules, unlike one of the carrier's, is answered.
        let mut raw = Raw::connect(node);
        for message in [&[0x17][..], &[2, 2], &[1]] {
            raw.say(message);
            assert_eq!(raw.refusal(), Some(RefusalReason::Malformed), "{message:?}");
        }
        // Two identities on the same connection.
        raw.say(&bytes(|w| FromClient::Hello { identity: 1, attempt: 1 }.emit(w)));
        raw.say(&bytes(|w| FromClient::Hello { identity: 2, attempt: 1 }.emit(w)));
        assert!(raw.closed());
        let mut rng = rand_pcg::Pcg64Mcg::new(3);
        for round in 0..300 {
            let mut raw = if round % 3 == 0 { Raw::dial(node.remote) } else { Raw::connect(node) };
            let mut junk: Vec<u8> = (0..rng.random_range(1..200)).map(|_| rng.random()).collect();
            if round % 2 == 0 {
                // Use valid lengths, so that parsing gets further.
                junk[0] = [1, 2, 0x41, 0x42, 0x43, 0x44][round / 2 % 6];
                raw.say(&junk);
            } else {
                let _ = raw.tcp.write_all(&junk);
            }
        }
    });
    wait_for("them to go", || (sessions(&chain.nodes[0]) == 0).then_some(()));
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn the_later_connection_of_a_client_stays() {
    let chain = Chain::sealed(1);
    let node = &chain.nodes[0];
    let hello = |attempt| bytes(|w| FromClient::Hello { identity: 9, attempt }.emit(w));
    // The counter may wrap while a client waits for its node.
    for later in [7_u32, 2, 1_u32 << 31] {
        let (mut first, mut second) = (Raw::bound(node), Raw::bound(node));
        first.say(&hello(later));
        first.say(&bytes(|w| FromClient::Ping.emit(w)));
        assert!(first.read().is_some(), "an answer");
        // This message was in flight for longer than its successor.
        second.say(&hello(later.wrapping_sub(2)));
        assert!(second.closed(), "{later}");
        let mut third = Raw::bound(node);
        third.say(&hello(later.wrapping_add(1)));
        assert!(first.closed(), "{later}");
        third.say(&bytes(|w| FromClient::Ping.emit(w)));
        assert!(third.read().is_some(), "an answer");
        drop(third);
        wait_for("it to go", || (sessions(node) == 0).then_some(()));
    }
    assert_eq!(node.metrics().sum("remote_replaced_total", ""), 6);
}

#[apply(on_time)]
fn who_does_not_bind_in_time_is_shown_out() {
    let chain = Chain::sealed(2);
    let node = &chain.nodes[0];
    undisturbed(&chain, || {
        let start = Instant::now();
        // Some are silent, and some authenticate and then are silent; none has a session.
        let silent = (0..10).map(|_| Raw::dial(node.remote));
        let mut idle: Vec<_> = silent.chain((0..10).map(|_| Raw::connect(node))).collect();
        // One that sends byte by byte, and one that was bound and is idle.
        let mut drip = Raw::dial(node.remote);
        let mut bound = Raw::bound(node);
        assert_eq!(sessions(node), 2, "this one, and one of the good call");
        drip.tcp.write_all(&[0]).expect("sent");
        thread::sleep(ms(2_500));
        drip.tcp.write_all(&[4]).expect("sent");
        assert!(idle.iter_mut().all(Raw::closed) && drip.closed());
        let took = start.elapsed();
        assert!((HANDSHAKE_TIMEOUT..HANDSHAKE_TIMEOUT + ms(2_000)).contains(&took), "{took:?}");
        bound.say(&bytes(|w| FromClient::Ping.emit(w)));
        assert_eq!(bound.read().expect("it lives"), bytes(|w| FromNode::Pong.emit(w)));
    });
    assert_eq!(drops(&chain.nodes[0], "handshake_timeout"), 21);
}

#[apply(on_time)]
fn strange_datagrams_are_counted_and_change_nothing() {
    let mut chain = Chain::sealed(2);
    let (node, at) = (&chain.nodes[0], chain.nodes[0].remote);
    let count = |why| drops(node, why);
    undisturbed(&chain, || {
        let good = Raw::bound(node);
        let (token, thief) = (good.token, UdpSocket::bind((at.ip(), 0)).expect("a port"));
        assert!(good.pings(token, 5));
        assert!(!good.pings(token, 5), "replayed");
        assert!(good.pings(token, 4), "overtaken on the way");
        assert!(!good.pings(Token(token.0 ^ 1), 6), "another token");
        assert!(good.pings(token, 6));
        assert_eq!((count("replayed_datagram"), count("bad_datagram")), (1, 1));
        let send = |datagram: &[u8]| thief.send_to(datagram, at).expect("sent");
        // A sealed message that is not valid in a datagram.
        let bind = bytes(|w| ToNode::Bind { version: SESSION_VERSION, port: 0 }.emit_head(w));
        let large = vec![2; MAX_DATAGRAM];
        let hello = bytes(|w| FromClient::Hello { identity: 1, attempt: 1 }.emit(w));
        for message in [&[][..], &bind, &hello, &[0xc1], &[0x7f], &[2, 9], &large] {
            send(&good.datagram(token, 7, message));
        }
        let ping = bytes(|w| FromClient::Ping.emit(w));
        let datagram = good.datagram(token, 7, &ping);
        for n in 0..DATAGRAM_HEAD {
            send(&datagram[..n]);
        }
        wait_for("their count", || (count("bad_datagram") == 1 + 7 + 16).then_some(()));
        // Not sealed with the session's keys: truncated, in the clear, and with each byte outside
        // the token altered.
        let clear = [&datagram[..DATAGRAM_HEAD], &ping].concat();
        send(&clear);
        for n in DATAGRAM_HEAD..datagram.len() {
            send(&datagram[..n]);
        }
        for i in 8..datagram.len() {
            let mut altered = datagram.clone();
            altered[i] ^= if i == 8 { 0x40 } else { 0x20 };
            send(&altered);
        }
        let forged = 1 + (datagram.len() - DATAGRAM_HEAD) + (datagram.len() - 8);
        wait_for("their count", || (count("forged_datagram") == forged as u64).then_some(()));
        // None of them was accepted as the session's newest, so its address is unchanged.
        assert!(good.pings(token, 7));
        // A copy of a genuine datagram from another address does not move it either.
        send(&datagram);
        wait_for("its count", || (count("replayed_datagram") == 2).then_some(()));

        let mut rng = rand_pcg::Pcg64Mcg::new(4);
        let sent = 20_000;
        for i in 0..sent {
            let junk: [u8; 40] = rng.random();
            thief.send_to(&junk, at).expect("sent");
            if i % 50 == 0 {
                thread::sleep(ms(1));
            }
        }
        let counted = wait_for("the flood's count", || {
            let m = chain.nodes[0].metrics();
            let n = m.sum("remote_drops_total", "bad_datagram") - 24;
            let lost = m.sum("kernel_drops_total", "");
            (n + lost * 64 >= sent && n <= sent).then_some(n)
        });
        println!("{counted} of {sent} random datagrams counted");
    });
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn a_client_that_reads_nothing_loses_only_its_own() {
    let mut chain = Chain::sealed(2);
    // Its packets use TCP, since it never sends by UDP.
    let mut lazy = Raw::connect(&chain.nodes[0]);
    lazy.say(&bytes(|w| ToNode::Bind { version: SESSION_VERSION, port: 7 }.emit_head(w)));
    let (a, b) = (chain.nodes[0].bind_remote(0), chain.nodes[0].bind_remote(0));
    let to = chain.nodes[0].address(7);
    let full = || chain.nodes[0].metrics().drops("session_full");
    let packet = vec![1; 1_100];
    let sent = wait_for("its buffers to be full", || {
        for _ in 0..200 {
            b.send_to(&packet, to).expect("sent");
        }
        (full() > 500).then_some(full())
    });
    println!("{sent} dropped");
    assert_eq!(stream(&a, &b, 0..50, ms(2)).len(), 50);
    // When it reads after all, it receives whole messages.
    let mut seen = 0;
    lazy.tcp.set_read_timeout(Some(ms(500))).expect("an option");
    while let Some(message) = lazy.read() {
        match ToClient::parse(&message) {
            Ok(ToClient::Received { payload, .. }) => {
                assert_eq!(payload, packet);
                seen += 1;
            }
            Ok(ToClient::Bound { port: 7, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    println!("{seen} packets had waited for it");
    assert!(seen > 5);
    // It also receives current packets again.
    b.send_to(&packet, to).expect("sent");
    assert!(lazy.read().is_some());
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn a_recording_holds_remote_sessions() {
    let mut chain = Chain::sealed(1);
    let file = chain.dir.path().join("remote.rec");
    let node = chain.first();
    node.crash();
    node.start_with(&["--record", file.to_str().expect("text")]);
    let (a, b) = (node.bind_remote(0), node.bind_remote(0));
    assert_eq!(stream(&a, &b, 0..50, ms(2)).len(), 50);
    drop(Raw::bound(node));
    drop((a, b));
    node.process().close_stdin();
    node.process().wait();
    let replayed = common::run(common::trunkline(["replay", "--json"]).arg(&file));
    assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
    assert!(replayed.stdout.contains("\"identical\":true"), "{}", replayed.stdout);
}
