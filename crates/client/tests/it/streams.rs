//! Streams against a node behind a Unix socket, well-behaved or not.

use crate::common::on_time::on_time;
use crate::common::{
    FAR, FakeNode, Session, SocketPath, bound, connected, packet, readable, refusal, until,
};
use macro_rules_attribute::apply;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{
    Address, ConnectOptions, Error, NodeId, RefusalReason, Reset, StreamListener, StreamSocket,
    WireError,
};
use trunkline_overlay::session::wire::stream::{MAX_DATA, Notice, Request};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};

/// Credit that the library grants a node, in bytes.
const WINDOW: u32 = 256 << 10;

fn node() -> (SocketPath, FakeNode) {
    let path = SocketPath::new();
    let node = FakeNode::listen(&path);
    (path, node)
}

fn connect_request(messages: bool) -> Request<'static> {
    Request::Connect { to: FAR.node, port: FAR.port, messages, credit: WINDOW }
}

/// An open stream, on which the node has granted `credit` bytes.
fn open_with(
    (path, node): &(SocketPath, FakeNode),
    messages: bool,
    credit: u32,
) -> (StreamSocket, Session) {
    thread::scope(|scope| {
        let options = ConnectOptions::new().messages(messages);
        let socket = scope.spawn(move || options.connect(path.as_ref(), FAR));
        let mut session = node.accept_and_bind(0);
        session.expect(connect_request(messages));
        session.notify(connected(messages, credit));
        (socket.join().unwrap().unwrap(), session)
    })
}

fn open(credit: u32) -> (StreamSocket, Session) {
    open_with(&node(), false, credit)
}

/// Error that connect returns when the node behaves like this.
#[track_caller]
fn not_opened(behave: impl FnOnce(&mut Session) + Send) -> Error {
    let (path, node) = node();
    let options = ConnectOptions::new().timeout(Duration::from_millis(100));
    thread::scope(|scope| {
        let socket = scope.spawn(|| options.connect(path.as_ref(), FAR));
        let mut session = node.accept();
        behave(&mut session);
        socket.join().unwrap().unwrap_err()
    })
}

/// Like `not_opened`, for a node that misbehaves after binding the port and receiving the stream's
/// request.
#[track_caller]
fn not_connected(behave: impl FnOnce(&mut Session) + Send) -> Error {
    not_opened(|session| {
        session.read();
        session.say(&bound(4321));
        session.expect(connect_request(false));
        behave(session);
    })
}

fn said(error: &Error, what: &str) -> bool {
    matches!(error, Error::Protocol(WireError::OutOfRange(text)) if text.contains(what))
}

#[apply(on_time)]
fn bytes_go_and_come() {
    fn shareable<T: Send + Sync>(_: &T) {}
    let (mut socket, mut session) = open(100);
    shareable(&socket);
    assert_eq!(socket.local(), Address { node: NodeId(1), port: 4321 });
    assert_eq!((socket.peer(), socket.messages()), (FAR, false));

    assert_eq!(socket.write(b"hello").unwrap(), 5);
    session.expect(Request::Data(b"hello"));
    assert_eq!(socket.write(b"").unwrap(), 0);
    session.notify(Notice::Data(b"wo"));
    session.notify(Notice::Data(b"rld"));
    assert_eq!(socket.read(&mut []).unwrap(), 0);
    let mut buf = [0; 9];
    socket.read_exact(&mut buf[..5]).unwrap();
    assert_eq!(&buf[..5], b"world");
    // The remaining credit is 95 of the 100 bytes.
    assert_eq!(socket.write(&[7; 200]).unwrap(), 95);
    session.expect(Request::Data(&[7; 95]));
}

#[apply(on_time)]
fn connect_says_why_not() {
    for why in Reset::ALL {
        let error = not_connected(|session| session.notify(Notice::Reset(why)));
        assert!(matches!(error, Error::Reset(said) if said == why), "{error}");
        assert_ne!(std::io::Error::from(error).kind(), ErrorKind::Other);
    }
    let version = |session: &mut Session| {
        let bind = ToNode::Bind { version: SESSION_VERSION, port: 0 };
        assert_eq!(ToNode::parse(&session.read()), Ok(bind));
        session.say(&refusal(RefusalReason::Version, 0, 0));
    };
    assert!(matches!(not_opened(version), Error::Version));
    let taken = |session: &mut Session| session.say(&refusal(RefusalReason::PortInUse, 0, 9));
    assert!(matches!(not_opened(taken), Error::PortInUse { port: 9 }));
    assert!(matches!(not_opened(|_| {}), Error::NoAnswer { .. }));
    assert!(matches!(not_opened(|s| s.say_bytes(&[0])), Error::Protocol(_)));
    let early = |session: &mut Session| session.notify(connected(false, 1));
    assert!(matches!(not_opened(early), Error::Protocol(_)), "before Connect");

    let malformed = |session: &mut Session| session.say(&refusal(RefusalReason::Malformed, 0, 0));
    assert!(matches!(not_connected(malformed), Error::Refused(RefusalReason::Malformed)));
    assert!(matches!(not_connected(|s| s.say(&bound(9))), Error::Protocol(_)));
    assert!(matches!(not_connected(|s| s.notify(Notice::Data(b"x"))), Error::Protocol(_)));
    let start = Instant::now();
    let silent = not_connected(|_| thread::sleep(Duration::from_millis(300)));
    assert!(matches!(silent, Error::Reset(Reset::Timeout)), "{silent}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());

    let path = SocketPath::new();
    let absent = StreamSocket::connect(path.as_ref(), FAR).unwrap_err();
    assert!(matches!(absent, Error::NotRunning { .. }), "{absent}");
}

#[apply(on_time)]
fn connect_may_wait_among_packets_and_for_its_turn() {
    let (path, node) = node();
    thread::scope(|scope| {
        let many: Vec<_> =
            (0..24).map(|_| scope.spawn(|| StreamSocket::connect(path.as_ref(), FAR))).collect();
        thread::sleep(Duration::from_millis(100));
        let mut sessions = Vec::new();
        for _ in 0..many.len() {
            let mut session = node.accept_and_bind(0);
            // A packet sent to the port before its purpose was known.
            session.say(&packet(b"stray"));
            session.expect(connect_request(false));
            session.say(&packet(b"stray"));
            session.notify(connected(false, 1));
            sessions.push(session);
        }
        for socket in many {
            socket.join().unwrap().unwrap();
        }
    });
}

#[apply(on_time)]
fn the_writer_keeps_to_its_credit_and_the_node_hears_of_what_is_read() {
    let (socket, mut session) = open(10_000);
    thread::scope(|scope| {
        let writer = scope.spawn(|| (&socket).write_all(&[3; 30_000]));
        let first = session.read_data(10_000);
        assert_eq!(first.len(), 10_000);
        thread::sleep(Duration::from_millis(50));
        assert!(!writer.is_finished());
        session.notify(Notice::Credit(1));
        assert_eq!(session.read_data(1), [3]);
        session.notify(Notice::Credit(100_000));
        assert_eq!(session.read_data(19_999).len(), 19_999);
        writer.join().unwrap().unwrap();
    });
    // The other direction: no credit is granted before a quarter is read, and then at once.
    let mut buf = vec![0; WINDOW as usize];
    let quarter = buf.len() / 4;
    for _ in 0..=quarter / MAX_DATA {
        session.notify(Notice::Data(&[5; MAX_DATA]));
    }
    (&socket).read_exact(&mut buf[..quarter - 1]).unwrap();
    socket.write(b"first").unwrap();
    session.expect(Request::Data(b"first"));
    (&socket).read_exact(&mut buf[quarter - 1..quarter]).unwrap();
    session.expect(Request::Credit(WINDOW / 4));
    (&socket).read_exact(&mut buf[quarter..quarter + MAX_DATA]).unwrap();
    assert!(buf[..quarter + MAX_DATA].iter().all(|byte| *byte == 5));
    session.notify(Notice::Data(&[6; 100]));
    assert_eq!(socket.read(&mut buf).unwrap(), 100);
}

#[test]
fn a_node_that_breaks_the_rules_is_left() {
    let too_much = |session: &mut Session| {
        for _ in 0..=WINDOW as usize / MAX_DATA {
            session.notify(Notice::Data(&[1; MAX_DATA]));
        }
    };
    type Behave<'a> = &'a (dyn Fn(&mut Session) + Sync);
    let cases: [(Behave<'_>, &str); 9] = [
        (&too_much, "the data beyond the credit"),
        (&|s| s.notify(connected(false, 1)), "the place"),
        (&|s| s.say(&bound(4321)), "the place"),
        (&|s| s.say(&packet(b"x")), "the place"),
        (&|s| s.say_bytes(&[&[0x89][..], &[0; MAX_DATA + 1]].concat()), "the length"),
        (&|s| s.say_bytes(&[&[0x89][..], &[0; MAX_DATA + 500]].concat()), "the length"),
        (&|s| (0..2).for_each(|_| s.notify(Notice::Credit(u32::MAX))), "the credit"),
        (&|s| s.notify(Notice::Credit(0)), "the place"),
        (&|s| (0..2).for_each(|_| s.notify(Notice::Shut)), "the place"),
    ];
    for (n, (behave, what)) in cases.into_iter().enumerate() {
        let (socket, mut session) = open(9);
        socket.write(&[0; 9]).unwrap();
        session.read_data(9);
        socket.set_nonblocking(true);
        let error = thread::scope(|scope| {
            scope.spawn(|| behave(&mut session));
            loop {
                // A reader would grant credit for the bytes it reads.
                let done = if n == 0 { socket.write(b"x") } else { socket.read(&mut [0; 100]) };
                match done {
                    Err(Error::WouldBlock) => assert!(readable_or_writer(&socket, n == 0)),
                    // The end was valid; the violation after it is reported to the writer.
                    Ok(0) => until("it is noticed", || {
                        !matches!(socket.write(b"x"), Err(Error::WouldBlock))
                    }),
                    Ok(_) => {}
                    Err(error) => break error,
                }
                if let Err(error @ Error::Protocol(_)) = socket.write(b"x") {
                    break error;
                }
            }
        });
        assert!(said(&error, what), "{n}: {error}");
        assert!(readable(&socket, 0), "{n}");
        let answer = session.read();
        assert!(answer.len() <= 2, "{n}: it has hung up: {answer:?}");
    }
}

/// Waits until the socket is readable; for a writer only briefly, since a writer can retry
/// directly.
fn readable_or_writer(socket: &StreamSocket, writer: bool) -> bool {
    readable(socket, if writer { 1 } else { 1_000 }) || writer
}

#[apply(on_time)]
fn each_half_closes_by_itself() {
    // This end finishes first.
    let (socket, mut session) = open(100);
    socket.write(b"all").unwrap();
    socket.shutdown().unwrap();
    socket.shutdown().unwrap();
    session.expect(Request::Data(b"all"));
    session.expect(Request::Shut);
    let error = std::io::Error::from(socket.write(b"x").unwrap_err());
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    session.notify(Notice::Data(b"answer"));
    session.notify(Notice::Shut);
    drop(session);
    let mut text = String::new();
    (&socket).read_to_string(&mut text).unwrap();
    assert_eq!(text, "answer");
    assert_eq!(socket.read(&mut [0; 9]).unwrap(), 0, "and so it stays");

    // The other end finishes first.
    let (socket, mut session) = open(100);
    session.notify(Notice::Data(b"late"));
    session.notify(Notice::Shut);
    let mut buf = [0; 9];
    assert_eq!(socket.read(&mut buf).unwrap(), 4);
    assert_eq!(socket.read(&mut buf).unwrap(), 0);
    assert!(!readable(&socket, 0), "the end was read");
    socket.write(b"still").unwrap();
    session.expect(Request::Data(b"still"));
    socket.shutdown().unwrap();
    session.expect(Request::Shut);
    drop(socket);
    assert_eq!(session.read(), [0; 0], "dropped is closed");
}

#[test]
fn a_break_is_told_after_what_came_before() {
    let (socket, mut session) = open(100);
    session.notify(Notice::Data(b"before"));
    session.notify(Notice::Reset(Reset::Aborted));
    drop(session);
    let error = loop {
        if let Err(error) = socket.write(b"x") {
            break error;
        }
    };
    assert!(matches!(error, Error::Reset(Reset::Aborted)), "{error}");
    let mut buf = [0; 9];
    assert_eq!(socket.read(&mut buf).unwrap(), 6);
    let error = socket.read(&mut buf).unwrap_err();
    assert!(matches!(error, Error::Reset(Reset::Aborted)), "{error}");
    assert!(readable(&socket, 0));

    // A node that disappears without notice.
    let (socket, mut session) = open(100);
    session.notify(Notice::Data(b"before"));
    drop(session);
    assert_eq!(socket.read(&mut buf).unwrap(), 6);
    assert!(matches!(socket.read(&mut buf), Err(Error::Disconnected)));
    assert!(matches!(socket.write(&buf), Err(Error::Disconnected)));
    assert!(matches!(socket.shutdown(), Err(Error::Disconnected)));

    let (socket, session) = open(100);
    drop(session);
    assert!(matches!(socket.shutdown(), Err(Error::Disconnected)));

    // A node that disappears when one half of the stream has ended.
    let (socket, mut session) = open(100);
    session.notify(Notice::Shut);
    drop(session);
    assert_eq!(socket.read(&mut buf).unwrap(), 0);
    until("it is noticed", || socket.write(&buf).is_err());
    assert!(matches!(socket.shutdown(), Err(Error::Disconnected)));
    assert_eq!(socket.read(&mut buf).unwrap(), 0);

    // A reset by this application.
    let (socket, mut session) = open(100);
    session.notify(Notice::Data(b"unread"));
    socket.reset().unwrap();
    session.expect(Request::Reset);
    for error in [socket.read(&mut buf).unwrap_err(), socket.write(&buf).unwrap_err()] {
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ConnectionAborted);
    }
    socket.reset().unwrap();
}

#[apply(on_time)]
fn nothing_waits_that_should_not() {
    let (socket, mut session) = open(10);
    socket.set_nonblocking(true);
    let mut buf = [0; 100];
    assert!(!readable(&socket, 0));
    assert!(matches!(socket.read(&mut buf), Err(Error::WouldBlock)));
    assert_eq!(socket.write(&[0; 100]).unwrap(), 10);
    assert!(!readable(&socket, 0), "nobody has asked for more");
    assert!(matches!(socket.write(&[0; 100]), Err(Error::WouldBlock)));
    assert!(!readable(&socket, 20));

    // A reader takes the credit, and the writer is woken.
    session.notify(Notice::Credit(5));
    assert!(readable(&socket, 1_000));
    assert!(matches!(socket.read(&mut buf), Err(Error::WouldBlock)));
    assert!(readable(&socket, 0), "the writer's news stay");
    assert_eq!(socket.write(&[0; 100]).unwrap(), 5);
    assert!(!readable(&socket, 0));
    // A writer takes data, and the reader is woken.
    session.notify(Notice::Data(b"x"));
    assert!(matches!(socket.write(&[0; 100]), Err(Error::WouldBlock)));
    assert!(readable(&socket, 0), "the reader's news stay");
    assert_eq!(socket.read(&mut buf).unwrap(), 1);
    assert!(!readable(&socket, 0));

    // The writer waits for room, not credit.
    session.notify(Notice::Credit(100_000_000));
    until("the node's socket is full", || {
        matches!(socket.write(&[1; 100_000]), Err(Error::WouldBlock))
    });
    assert!(!readable(&socket, 0));
    let (mut read, mut written) = (0, 0);
    while !readable(&socket, 0) {
        read += session.read_data(1).len();
        assert!(read < 10_000_000, "it is never told of room");
    }
    until("there is room", || socket.write(&[1; 100]).inspect(|n| written += n).is_ok());
    assert!(written > 0);

    socket.set_nonblocking(false);
    assert!(socket.set_read_timeout(Some(Duration::ZERO)).is_err());
    socket.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let start = Instant::now();
    assert!(matches!(socket.read(&mut buf), Err(Error::WouldBlock)));
    assert!(start.elapsed() >= Duration::from_millis(30));
}

/// One thread reads and one writes; each depends on events that the other may have taken off the
/// session.
#[apply(on_time)]
fn neither_thread_sleeps_through_the_others_news() {
    const ROUNDS: usize = 2_000;
    let (socket, mut session) = open(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                (&socket).write_all(&[1; 2]).unwrap();
            }
        });
        scope.spawn(|| {
            let mut byte = [0];
            for n in 0..ROUNDS {
                (&socket).read_exact(&mut byte).unwrap();
                assert_eq!(byte, [n as u8]);
            }
        });
        // Credit and data at once: the thread that wakes first takes both.
        for n in 0..ROUNDS {
            session.read_data(1);
            session.notify(Notice::Credit(1));
            session.notify(Notice::Data(&[n as u8]));
            session.read_data(1);
            if n % 2 == 0 {
                session.notify(Notice::Credit(1));
            } else {
                // Sent while both threads are asleep.
                thread::yield_now();
                session.notify(Notice::Credit(1));
            }
        }
    });
}

/// A reader that can't grant the node credit, because the node doesn't read.
#[apply(on_time)]
fn credit_that_found_no_room_is_given_later() {
    let (socket, mut session) = open(u32::MAX);
    socket.set_nonblocking(true);
    while socket.write(&[1; MAX_DATA]).is_ok() {}
    socket.set_nonblocking(false);
    let all_read = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut all = vec![0; WINDOW as usize];
            (&socket).read_exact(&mut all).unwrap();
            all_read.store(true, Ordering::Relaxed);
            (&socket).read_exact(&mut all[..1]).map(|()| all[0])
        });
        for _ in 0..WINDOW as usize / MAX_DATA {
            session.notify(Notice::Data(&[2; MAX_DATA]));
        }
        until("all is read", || all_read.load(Ordering::Relaxed));
        loop {
            match ToNode::parse(&session.read()) {
                Ok(ToNode::Stream(Request::Data(_))) => {}
                Ok(ToNode::Stream(Request::Credit(WINDOW))) => break,
                other => panic!("{other:?}"),
            }
        }
        session.notify(Notice::Data(&[3]));
        assert_eq!(reader.join().unwrap().unwrap(), 3);
    });
}

#[test]
fn messages_keep_their_boundaries() {
    let (socket, mut session) = open_with(&node(), true, 10);
    assert!(socket.messages());
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            socket.send_message(b"")?;
            socket.send_message(b"hello")?;
            socket.send_message(&vec![7; 100_000])
        });
        assert_eq!(session.read_data(10), *b"\0\0\0\0\0\0\0\x05he");
        session.notify(Notice::Credit(1_000_000));
        assert_eq!(session.read_data(3), *b"llo");
        assert_eq!(session.read_data(100_004)[..5], [0, 1, 0x86, 0xa0, 7]);
        sender.join().unwrap().unwrap();
    });
    // Received in pieces, by a nonblocking reader.
    socket.set_nonblocking(true);
    let (mut got, mut pieces) = (vec![9; 3], 0);
    let stream = b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c";
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for byte in stream {
        session.notify(Notice::Data(&[*byte]));
        assert!(readable(&socket, 1_000));
        match socket.recv_message(&mut got) {
            Err(Error::WouldBlock) => pieces += 1,
            whole => {
                assert!(whole.unwrap());
                messages.push(got.clone());
            }
        }
    }
    assert_eq!((messages, pieces), (vec![b"ab".to_vec(), vec![], b"c".to_vec()], 12));
    let long = vec![0; trunkline_client::MAX_STREAM_MESSAGE + 1];
    assert!(matches!(socket.send_message(&long), Err(Error::MessageTooLong { .. })));
    session.notify(Notice::Shut);
    assert!(readable(&socket, 1_000));
    assert!(!socket.recv_message(&mut got).unwrap());
}

#[test]
fn messages_that_are_none_are_refused() {
    let node = node();
    let mut got = Vec::new();
    let (socket, mut session) = open_with(&node, true, 10);
    session.notify(Notice::Data(b"\x01\0\0\x01"));
    let error = socket.recv_message(&mut got).unwrap_err();
    assert!(matches!(error, Error::MessageTooLong { len: 0x0100_0001, .. }), "{error}");

    for cut in [&b"\0\0"[..], b"\0\0\0\x02a"] {
        let (socket, mut session) = open_with(&node, true, 10);
        session.notify(Notice::Data(cut));
        session.notify(Notice::Shut);
        let error = std::io::Error::from(socket.recv_message(&mut got).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
    let (socket, _session) = open(10);
    for error in [socket.send_message(b"x"), socket.recv_message(&mut got).map(drop)] {
        assert_eq!(std::io::Error::from(error.unwrap_err()).kind(), ErrorKind::InvalidInput);
    }
    // A message resumes where it stopped, and no other message may take its turn.
    let (socket, mut session) = open_with(&node, true, 6);
    socket.set_nonblocking(true);
    assert!(matches!(socket.send_message(b"abcd"), Err(Error::WouldBlock)));
    assert_eq!(session.read_data(6), *b"\0\0\0\x04ab");
    assert!(socket.send_message(b"a").is_err());
    session.notify(Notice::Credit(9));
    assert!(readable(&socket, 1_000));
    socket.send_message(b"abcd").unwrap();
    session.expect(Request::Data(b"cd"));
}

fn incoming(token: u64) -> ToClient<'static> {
    ToClient::Stream(Notice::Incoming { token, from: FAR.node, port: FAR.port, messages: false })
}

fn listen((path, node): &(SocketPath, FakeNode), backlog: u16) -> (StreamListener, Session) {
    thread::scope(|scope| {
        let listener = scope.spawn(|| StreamListener::with_backlog(path.as_ref(), 5, backlog));
        let mut session = node.accept_and_bind(5);
        session.expect(Request::Listen { backlog });
        (listener.join().unwrap().unwrap(), session)
    })
}

/// The session that accepts a stream.
#[track_caller]
fn accepting(node: &FakeNode, token: u64) -> Session {
    let mut session = node.accept();
    session.expect(Request::Accept { version: SESSION_VERSION, token, credit: WINDOW });
    session
}

#[apply(on_time)]
fn streams_come_in() {
    let place = node();
    let (listener, mut session) = listen(&place, 2);
    assert_eq!(listener.local(), Address { node: NodeId(1), port: 5 });
    session.say(&packet(b"stray"));
    for token in [1, 2, 3] {
        session.say(&incoming(token));
    }
    thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let (first, from) = listener.accept()?;
            assert_eq!(from, FAR);
            Ok::<_, Error>((first, listener.incoming().next().unwrap()?))
        });
        let mut first = accepting(&place.1, 1);
        first.notify(connected(false, 3));
        // The stream has gone meanwhile; the next one is accepted.
        accepting(&place.1, 2).notify(Notice::Reset(Reset::Aborted));
        let mut third = accepting(&place.1, 3);
        third.notify(connected(true, 1));
        let (socket, other) = accepted.join().unwrap().unwrap();
        assert!(!socket.messages() && other.messages());
        assert_eq!(socket.write(b"four").unwrap(), 3);
        first.expect(Request::Data(b"fou"));
        third.notify(Notice::Data(b"x"));
        assert_eq!(other.read(&mut [0; 9]).unwrap(), 1);
    });
    listener.set_nonblocking(true);
    assert!(!readable(&listener, 0));
    assert!(matches!(listener.accept(), Err(Error::WouldBlock)));
    session.say(&incoming(4));
    assert!(readable(&listener, 1_000));
    assert!(matches!(listener.accept(), Err(Error::WouldBlock)), "the node has to answer");
    assert!(!readable(&listener, 20));
    let mut fourth = accepting(&place.1, 4);
    fourth.notify(connected(false, 1));
    assert!(readable(&listener, 1_000));
    let (socket, _) = listener.accept().unwrap();
    assert!(!readable(&listener, 0));
    listener.set_nonblocking(false);
    assert!(listener.set_accept_timeout(Some(Duration::ZERO)).is_err());
    listener.set_accept_timeout(Some(Duration::from_millis(20))).unwrap();
    assert!(matches!(listener.accept(), Err(Error::WouldBlock)));
    drop(listener);
    assert_eq!(session.read(), [0; 0]);
    fourth.notify(Notice::Shut);
    assert_eq!(socket.read(&mut [0]).unwrap(), 0, "it outlives its listener");
}

#[apply(on_time)]
fn a_listener_survives_its_node() {
    let (path, node) = node();
    let place = (path, node);
    let (listener, session) = listen(&place, 9);
    let (path, node) = place;
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().map(|(stream, _)| stream));
        thread::sleep(Duration::from_millis(20));
        drop((session, node));
        thread::sleep(Duration::from_millis(200));
        let node = FakeNode::listen(&path);
        // The first attempt is refused; the refusal is reported, and the listener retries.
        let mut session = node.accept();
        session.read();
        session.say(&refusal(RefusalReason::PortInUse, 0, 5));
        assert!(matches!(accepted.join().unwrap(), Err(Error::PortInUse { port: 5 })));
        let accepted = scope.spawn(|| listener.accept().map(|(stream, _)| stream));
        let mut session = node.accept_and_bind(5);
        session.expect(Request::Listen { backlog: 9 });
        session.say(&incoming(77));
        let mut stream = accepting(&node, 77);
        stream.notify(connected(false, 1));
        stream.notify(Notice::Data(b"x"));
        assert_eq!(accepted.join().unwrap().unwrap().read(&mut [0; 9]).unwrap(), 1);

        // An invalid message is reported once, and the listener reconnects.
        session.say_bytes(&[0x55]);
        assert!(matches!(listener.accept(), Err(Error::Protocol(_))));
        let accepted = scope.spawn(|| listener.accept().map(|(stream, _)| stream));
        let mut session = node.accept_and_bind(5);
        session.expect(Request::Listen { backlog: 9 });
        // The node dies while a stream is being accepted.
        session.say(&incoming(78));
        drop(accepting(&node, 78));
        drop(session);
        let mut session = node.accept_and_bind(5);
        session.expect(Request::Listen { backlog: 9 });
        session.say(&incoming(79));
        accepting(&node, 79).notify(connected(false, 1));
        accepted.join().unwrap().unwrap();
    });
}
