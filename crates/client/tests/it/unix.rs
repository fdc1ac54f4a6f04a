//! A socket against a node behind a Unix socket, well-behaved or not.

use crate::common::on_time::on_time;
use crate::common::{
    FAR, FakeNode, SocketPath, attach, bind_answered, bound, emit, packet, readable, refusal, until,
};
use macro_rules_attribute::apply;
use rand::RngExt;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{
    Address, DatagramSocket, Error, NodeId, RefusalReason, Service, SocketOption, Status,
    Unreachable, WireError,
};
use trunkline_overlay::session::wire::{MAX_MESSAGE, ToClient, ToNode};

fn unreachable(why: Unreachable) -> ToClient<'static> {
    ToClient::Unreachable { node: FAR.node, port: FAR.port, why }
}

fn node() -> (SocketPath, FakeNode) {
    let path = SocketPath::new();
    let node = FakeNode::listen(&path);
    (path, node)
}

#[apply(on_time)]
fn packets_go_and_come_with_their_options() {
    fn shareable<T: Send + Sync>(_: &T) {}
    let (path, node) = node();
    let (socket, mut session) = attach(&node, &path, 0);
    shareable(&socket);
    assert_eq!(socket.local_addr(), Address { node: NodeId(1), port: 4321 });
    assert_eq!(socket.max_payload(), 1200);

    let mut expect = |service, deadline_ms, payload: &[u8]| {
        socket.send_to(payload, FAR).unwrap();
        let send = ToNode::Send { service, deadline_ms, to: FAR.node, port: FAR.port, payload };
        assert_eq!(ToNode::parse(&session.read()), Ok(send));
    };
    expect(Service::RealTime, 100, &[7; 160]);
    expect(Service::RealTime, 100, &[7; 1200]);
    expect(Service::RealTime, 100, &[]);
    socket.set_option(SocketOption::Service(Service::BestEffort)).unwrap();
    socket.set_option(SocketOption::Deadline(Duration::from_micros(255_900))).unwrap();
    expect(Service::BestEffort, 255, &[8; 3]);
    for ms in [0, 256, 100_000] {
        let refused = socket.set_option(SocketOption::Deadline(Duration::from_millis(ms)));
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{ms} ms");
    }
    expect(Service::BestEffort, 255, &[8; 3]);

    session.say(&packet(&[9; 160]));
    let mut buf = [0; 1200];
    let got = socket.recv_from(&mut buf).unwrap();
    assert_eq!((got.len, got.from, got.service), (160, FAR, Service::RealTime));
    assert_eq!((got.recovered, got.remaining), (true, Duration::from_millis(42)));
    assert_eq!(got.flow_seq, 65_535);
    assert_eq!(buf[..161], [&[9; 160][..], &[0]].concat());
    session.say(&packet(&[]));
    assert_eq!(socket.recv_from(&mut []).unwrap().len, 0);
}

#[apply(on_time)]
fn bind_says_why_not() {
    let path = SocketPath::new();
    let failed = DatagramSocket::bind(path.as_ref(), 5).unwrap_err();
    assert!(matches!(failed, Error::NotRunning { .. }), "{failed}");
    assert!(failed.to_string().contains("trunkline-client-test"), "{failed}");
    drop(FakeNode::listen(&path));
    let failed = DatagramSocket::bind(path.as_ref(), 5).unwrap_err();
    assert!(matches!(failed, Error::NotRunning { .. }), "a stale file: {failed}");
    let control = SocketPath::new();
    let _operator = UnixListener::bind(&control).unwrap();
    let failed = DatagramSocket::bind(control.as_ref(), 5).unwrap_err().to_string();
    assert!(failed.contains("not the socket for applications"), "{failed}");

    let node = FakeNode::listen(&path);
    let answered = |answer: &[u8]| bind_answered(&node, &path, answer).unwrap_err();
    let refused = |why| answered(&emit(&refusal(why, 0, 5)));
    assert!(matches!(refused(RefusalReason::PortInUse), Error::PortInUse { port: 5 }));
    assert!(matches!(refused(RefusalReason::NoFreePort), Error::NoFreePort));
    assert!(matches!(refused(RefusalReason::Version), Error::Version));
    assert!(matches!(refused(RefusalReason::Malformed), Error::Refused(RefusalReason::Malformed)));
    assert!(matches!(answered(&[]), Error::Disconnected));
    assert!(matches!(answered(&[0]), Error::Protocol(WireError::UnknownType(0))));
    assert!(matches!(answered(&emit(&bound(6))), Error::Protocol(_)), "another port");
    assert!(matches!(answered(&emit(&packet(&[1]))), Error::Protocol(_)), "out of order");

    let start = Instant::now();
    let failed = DatagramSocket::bind(path.as_ref(), 5).unwrap_err();
    assert!(matches!(failed, Error::NoAnswer { .. }), "{failed}");
    assert!((2..4).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// A thread that waits for room learns that its connection has ended, and stops waiting.
#[apply(on_time)]
fn who_waits_for_room_learns_that_the_node_is_away() {
    let (path, node) = node();
    let (socket, session) = attach(&node, &path, 5);
    socket.set_option(SocketOption::Service(Service::BestEffort)).unwrap();
    socket.set_option(SocketOption::Blocking(true)).unwrap();
    thread::scope(|scope| {
        let filled = scope.spawn(|| {
            loop {
                if let Err(error) = socket.send_to(&[0; 1_000], FAR) {
                    return error;
                }
            }
        });
        thread::sleep(Duration::from_millis(200));
        assert!(!filled.is_finished(), "nobody reads, and it waits");
        drop(session);
        assert!(matches!(filled.join().unwrap(), Error::Disconnected));
    });
}

#[apply(on_time)]
fn what_becomes_of_a_packet_is_reported_once() {
    let (path, node) = node();
    let (socket, mut session) = attach(&node, &path, 9);
    socket.set_option(SocketOption::Nonblocking(true)).unwrap();
    let mut buf = [0; 200];

    session.say(&unreachable(Unreachable::NoRoute));
    let said = |result, why| match result {
        Err(Error::Status(status)) => assert_eq!(status, Status::Unreachable { to: FAR, why }),
        other => panic!("{other:?}"),
    };
    said(socket.recv_from(&mut buf).map(drop), Unreachable::NoRoute);
    assert!(matches!(socket.recv_from(&mut buf), Err(Error::WouldBlock)));

    session.say(&unreachable(Unreachable::NoPort));
    said(socket.send_to(&[1], FAR), Unreachable::NoPort);
    socket.send_to(&[2], FAR).unwrap();
    assert!(matches!(ToNode::parse(&session.read()), Ok(ToNode::Send { payload: &[2], .. })));

    // The error waits for its turn behind a packet.
    session.say(&packet(&[3]));
    session.say(&refusal(RefusalReason::TooLarge, 7, 70));
    socket.send_to(&[4], FAR).unwrap();
    assert_eq!(socket.recv_from(&mut buf).unwrap().len, 1);
    assert!(matches!(socket.recv_from(&mut buf), Err(Error::Refused(RefusalReason::TooLarge))));
    assert!(socket.status().connected);
    assert_eq!(socket.status().reconnects, 0);
}

#[apply(on_time)]
fn sizes_and_waits_are_bounded() {
    let (path, node) = node();
    let (socket, mut session) = attach(&node, &path, 9);
    assert!(matches!(
        socket.send_to(&[0; 1201], FAR),
        Err(Error::TooLarge { len: 1201, max: 1200 })
    ));

    session.say(&packet(&[5; 100]));
    session.say(&packet(&[6; 10]));
    let mut buf = [0; 10];
    assert!(matches!(socket.recv_from(&mut buf), Err(Error::Truncated { len: 100 })));
    assert_eq!(buf, [5; 10]);
    assert_eq!(socket.recv_from(&mut buf).unwrap().len, 10);

    socket.set_option(SocketOption::ReadTimeout(Some(Duration::from_millis(30)))).unwrap();
    let start = Instant::now();
    assert!(matches!(socket.recv_from(&mut buf), Err(Error::WouldBlock)));
    assert!(start.elapsed() >= Duration::from_millis(30));
    let zero = socket.set_option(SocketOption::ReadTimeout(Some(Duration::ZERO)));
    assert!(matches!(zero, Err(Error::InvalidOption { .. })));

    // The node reads nothing: eventually its socket is full, and send_to reports that instead of
    // blocking.
    let mut accepted = 0;
    let full = loop {
        match socket.send_to(&[0; 1200], FAR) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 1_000_000, "no bound");
    };
    assert!(matches!(full, Error::WouldBlock), "{full}");
    session.read();
}

#[apply(on_time)]
fn one_thread_waits_while_another_sends() {
    let (path, node) = node();
    let (socket, mut session) = attach(&node, &path, 9);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| socket.recv_from(&mut [0; 10]).map(|got| got.len));
        thread::sleep(Duration::from_millis(20));
        socket.send_to(&[1, 2], FAR).unwrap();
        assert!(matches!(
            ToNode::parse(&session.read()),
            Ok(ToNode::Send { payload: &[1, 2], .. })
        ));
        session.say(&packet(&[3; 3]));
        assert_eq!(waiting.join().unwrap().unwrap(), 3);
    });
}

#[apply(on_time)]
fn a_restart_is_bridged_by_polling() {
    let (path, node) = node();
    let (socket, session) = attach(&node, &path, 0);
    socket.set_option(SocketOption::Nonblocking(true)).unwrap();
    let descriptor = socket.as_raw_fd();
    assert!(!readable(&socket, 0));

    drop((session, node));
    assert!(readable(&socket, 1_000), "the end of the connection");
    assert!(matches!(socket.send_to(&[1], FAR), Err(Error::Disconnected)));
    assert!(!socket.status().connected);
    assert_eq!((socket.local_addr().port, socket.max_payload()), (4321, 1200));

    let mut buf = [0; 200];
    thread::scope(|scope| {
        let node = scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            let node = FakeNode::listen(&path);
            let mut session = node.accept_and_bind(4321);
            session.say(&packet(&[1; 9]));
            (node, session)
        });
        let mut idle = 0;
        let back = loop {
            assert!(readable(&socket, 5_000), "no retry is due");
            match socket.recv_from(&mut buf) {
                Err(Error::WouldBlock) => idle += 1,
                other => break other,
            }
        };
        assert!(matches!(back, Err(Error::Reconnected)), "{back:?}");
        assert!(idle < 20, "polling spins: {idle} wake-ups for nothing");
        let (_node, mut session) = node.join().unwrap();
        assert!(readable(&socket, 5_000));
        assert_eq!(socket.recv_from(&mut buf).unwrap().len, 9, "Reconnected comes once");
        assert!(!readable(&socket, 0));
        assert_eq!(socket.as_raw_fd(), descriptor);
        assert_eq!(socket.status().reconnects, 1);
        assert!(socket.status().connected);
        socket.send_to(&[5], FAR).unwrap();
        assert!(matches!(ToNode::parse(&session.read()), Ok(ToNode::Send { payload: &[5], .. })));
    });
}

#[apply(on_time)]
fn a_restart_is_bridged_by_waiting() {
    let (path, node) = node();
    let (socket, session) = attach(&node, &path, 12);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let first = socket.recv_from(&mut [0; 10]).map(|got| got.len);
            (first, socket.recv_from(&mut [0; 10]).map(|got| got.len))
        });
        thread::sleep(Duration::from_millis(20));
        drop((session, node));
        until("the loss is noticed", || !socket.status().connected);
        let start = Instant::now();
        assert!(matches!(socket.send_to(&[1], FAR), Err(Error::Disconnected)));
        assert!(start.elapsed() < Duration::from_millis(20), "send_to waited");
        thread::sleep(Duration::from_millis(200));
        let node = FakeNode::listen(&path);
        let mut session = node.accept_and_bind(12);
        session.say(&packet(&[3; 3]));
        let (first, second) = waiting.join().unwrap();
        assert!(matches!(first, Err(Error::Reconnected)), "{first:?}");
        assert_eq!(second.unwrap(), 3);
    });
}

#[apply(on_time)]
fn a_restart_is_bridged_by_sending() {
    let (path, node) = node();
    let (socket, session) = attach(&node, &path, 12);
    drop((session, node));
    assert!(matches!(socket.send_to(&[1], FAR), Err(Error::Disconnected)));
    let node = FakeNode::listen(&path);
    let mut session = thread::scope(|scope| {
        let session = scope.spawn(|| node.accept_and_bind(12));
        until("sends again", || socket.send_to(&[2], FAR).is_ok());
        session.join().unwrap()
    });
    assert!(matches!(ToNode::parse(&session.read()), Ok(ToNode::Send { payload: &[2], .. })));
    assert!(readable(&socket, 1_000), "recv_from has news to tell");
    assert!(matches!(socket.recv_from(&mut [0; 10]), Err(Error::Reconnected)));
    assert!(!readable(&socket, 0));
}

#[apply(on_time)]
fn a_port_lost_to_another_is_reported_once_and_tried_on() {
    let (path, node) = node();
    let (socket, session) = attach(&node, &path, 12);
    socket.set_option(SocketOption::ReadTimeout(Some(Duration::from_secs(5)))).unwrap();
    drop(session);
    thread::scope(|scope| {
        let sessions = scope.spawn(|| {
            for _ in 0..3 {
                let mut session = node.accept();
                session.read();
                session.say(&refusal(RefusalReason::PortInUse, 0, 0));
            }
            // A node that never answers, then one that does.
            let silent = node.accept();
            let bound = node.accept_and_bind(12);
            (silent, bound)
        });
        let mut buf = [0; 10];
        assert!(matches!(socket.recv_from(&mut buf), Err(Error::PortInUse { port: 12 })));
        let next = socket.recv_from(&mut buf);
        assert!(matches!(next, Err(Error::Reconnected)), "{next:?}");
        sessions.join().unwrap();
    });
}

/// Every second message is a valid one with a few bytes changed or cut.
fn hostile_bytes(rng: &mut impl RngExt) -> Vec<u8> {
    let mut bytes = match rng.random_range(0..5) {
        0 => emit(&bound(12)),
        1 => emit(&packet(&[1; 40])),
        2 => emit(&refusal(RefusalReason::PortInUse, 1, 2)),
        _ => (0..rng.random_range(1..64)).map(|_| rng.random()).collect(),
    };
    for _ in 0..rng.random_range(0..3) {
        let at = rng.random_range(0..bytes.len());
        bytes[at] = rng.random();
    }
    if rng.random_range(0..4) == 0 {
        bytes.truncate(rng.random_range(1..=bytes.len()));
    }
    if rng.random_range(0..4) == 0 {
        bytes.resize(2 * MAX_MESSAGE, rng.random());
    }
    bytes
}

#[test]
fn a_hostile_answer_to_a_bind_is_an_error() {
    let (path, node) = node();
    let mut rng = rand_pcg::Pcg64Mcg::new(1);
    let mut bound = 0;
    for _ in 0..300 {
        let answer = hostile_bytes(&mut rng);
        bound += u32::from(bind_answered(&node, &path, &answer).is_ok());
    }
    assert!(bound < 100, "{bound}");
}

#[apply(on_time)]
fn a_hostile_node_costs_the_connection_at_most() {
    let (path, node) = node();
    let (socket, mut session) = attach(&node, &path, 12);
    socket.set_option(SocketOption::Nonblocking(true)).unwrap();
    let mut rng = rand_pcg::Pcg64Mcg::new(2);
    let mut buf = [0; 64];
    for round in 0..25 {
        for _ in 0..20 {
            session.say_bytes(&hostile_bytes(&mut rng));
        }
        // The socket receives packets and refusals, and in the end a protocol violation.
        for call in 0.. {
            assert!(call < 40, "the connection should be gone");
            if round % 2 == 0 {
                let _ = socket.recv_from(&mut buf);
            } else {
                let _ = socket.send_to(&buf, FAR);
                let _ = socket.recv_from(&mut buf);
            }
            if !socket.status().connected {
                break;
            }
        }
        session = thread::scope(|scope| {
            let session = scope.spawn(|| node.accept_and_bind(12));
            let back = loop {
                assert!(readable(&socket, 5_000));
                match socket.recv_from(&mut buf) {
                    Err(Error::WouldBlock) => {}
                    other => break other,
                }
            };
            assert!(matches!(back, Err(Error::Reconnected)), "{back:?}");
            session.join().unwrap()
        });
    }
    session.say(&packet(&[1; 7]));
    assert_eq!(socket.recv_from(&mut buf).unwrap().len, 7);
    assert_eq!(socket.status().reconnects, 25);
}

/// `admit = "share"` refuses a packet that begins a flow, not the application's session: its other
/// flows continue (docs/configuration.md, include/trunkline.h on EDQUOT).
#[apply(on_time)]
fn a_flow_over_the_share_leaves_the_session_be() {
    let (path, node) = node();
    let (socket, mut session) = attach(&node, &path, 9);
    socket.set_option(SocketOption::Nonblocking(true)).unwrap();
    session.say(&refusal(RefusalReason::OverShare, 7, 71));
    let refused = socket.recv_from(&mut [0; 200]);
    assert!(matches!(refused, Err(Error::Refused(RefusalReason::OverShare))), "{refused:?}");
    socket.send_to(b"another flow's", FAR).expect("the session is still there");
    let payload = b"another flow's";
    assert!(
        matches!(ToNode::parse(&session.read()), Ok(ToNode::Send { payload: p, .. }) if p == payload)
    );
}
