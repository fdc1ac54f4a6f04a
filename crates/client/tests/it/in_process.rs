//! A socket on a node in the same process.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;
use trunkline_base::wire::Writer;
use trunkline_client::in_process::{Acceptor, End, listen};
use trunkline_client::{
    Address, DatagramSocket, Error, NodeId, Service, SocketOption, StreamListener, StreamSocket,
};
use trunkline_overlay::session::wire::stream::{Notice, Request};
use trunkline_overlay::session::wire::{MAX_HEAD, MAX_MESSAGE, ToClient, ToNode};

const HERE: Address = Address { node: NodeId(1), port: 4321 };

fn readable(fd: impl AsFd, wait_ms: u16) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(wait_ms)).unwrap() == 1
}

fn say(end: &mut End, message: &ToClient<'_>, payload: &[u8]) -> bool {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    message.emit_head(&mut w).unwrap();
    end.send(w.written(), payload)
}

/// Accepts one session and assigns its port.
fn accept(acceptor: &mut Acceptor) -> End {
    let mut end = loop {
        assert!(readable(&*acceptor, 5_000));
        // Returns `None` once after the previous session.
        if let Some(end) = acceptor.accept() {
            break end;
        }
    };
    assert!(readable(&end, 5_000));
    let mut buf = [0; MAX_HEAD];
    let len = end.recv(&mut buf).unwrap();
    assert!(matches!(ToNode::parse(&buf[..len]), Ok(ToNode::Bind { .. })));
    let bound = ToClient::Bound { node: HERE.node, port: HERE.port, max_payload: 1200 };
    assert!(say(&mut end, &bound, &[]));
    end
}

/// Returns every packet to its sender, until the session closes.
fn echo(end: &mut End) {
    let mut buf = [0; MAX_MESSAGE];
    while !end.closed() {
        assert!(readable(&*end, 5_000));
        while let Some(len) = end.recv(&mut buf) {
            let Ok(ToNode::Send { service, deadline_ms, to, port, payload }) =
                ToNode::parse(&buf[..len])
            else {
                panic!("not a packet: {:?}", &buf[..len]);
            };
            let received = ToClient::Received {
                service,
                recovered: false,
                remaining_ms: deadline_ms,
                flow_seq: 0,
                from: to,
                port,
                payload,
            };
            assert!(say(end, &received, payload));
        }
    }
}

#[test]
fn packets_go_and_come_and_the_descriptor_tells() {
    let (connector, mut acceptor) = listen(64 * 1024, 4).unwrap();
    let node = thread::spawn(move || {
        let mut end = accept(&mut acceptor);
        echo(&mut end);
    });
    let socket = DatagramSocket::bind(connector, 0).unwrap();
    assert_eq!(socket.local_addr(), HERE);
    let far = Address { node: NodeId(9), port: 90 };
    let mut buf = [0; 1200];
    for round in 0..20_000u32 {
        let len = 4 + (round as usize * 37) % 1197;
        let mut payload = [round as u8; 1200];
        payload[..4].copy_from_slice(&round.to_ne_bytes());
        socket.send_to(&payload[..len], far).unwrap();
        if round % 2 == 0 {
            assert!(readable(&socket, 5_000));
        }
        let got = socket.recv_from(&mut buf).unwrap();
        assert_eq!((got.len, got.from), (len, far));
        assert_eq!(buf[..len], payload[..len]);
    }
    drop(socket);
    node.join().unwrap();
}

#[test]
fn the_descriptor_is_quiet_after_the_last_packet() {
    let (connector, mut acceptor) = listen(0, 4).unwrap();
    let binding = thread::spawn(|| DatagramSocket::bind(connector, 0).unwrap());
    let mut end = accept(&mut acceptor);
    let socket = binding.join().unwrap();
    assert!(!readable(&socket, 0));
    let packet = ToClient::Received {
        service: trunkline_client::Service::BestEffort,
        recovered: false,
        remaining_ms: 0,
        flow_seq: 3,
        from: NodeId(4),
        port: 5,
        payload: &[],
    };
    assert!(say(&mut end, &packet, &[1; 160]) && say(&mut end, &packet, &[2; 160]));
    let mut buf = [0; 200];
    for left in [true, false] {
        assert!(readable(&socket, 0));
        assert_eq!(socket.recv_from(&mut buf).unwrap().len, 160);
        assert_eq!(readable(&socket, 0), left);
    }
}

#[test]
fn a_node_that_drops_the_session_gets_another() {
    let (connector, mut acceptor) = listen(0, 4).unwrap();
    let binding = thread::spawn(move || DatagramSocket::bind(connector, 0).unwrap());
    let end = accept(&mut acceptor);
    let socket = binding.join().unwrap();
    socket.set_option(SocketOption::Nonblocking(true)).unwrap();
    let far = Address { node: NodeId(9), port: 90 };

    drop(end);
    assert!(readable(&socket, 1_000));
    assert!(matches!(socket.send_to(&[1], far), Err(Error::Disconnected)));
    assert!(!readable(&socket, 0), "nothing to do until the first retry");
    let node = thread::spawn(move || (accept(&mut acceptor), acceptor));
    let mut tries = 0..20;
    let back = loop {
        assert!(tries.next().is_some() && readable(&socket, 5_000), "does not come back");
        match socket.recv_from(&mut [0; 10]) {
            Err(Error::WouldBlock) => {}
            other => break other,
        }
    };
    assert!(matches!(back, Err(Error::Reconnected)), "{back:?}");
    let (mut end, acceptor) = node.join().unwrap();
    socket.send_to(&[2], far).unwrap();
    assert!(end.recv(&mut [0; 100]).is_some());

    // A full ring drops a packet; it doesn't block.
    let full = (0..1_000).find_map(|_| socket.send_to(&[0; 1200], far).err());
    assert!(matches!(full, Some(Error::WouldBlock)), "{full:?}");
    drop((end, acceptor));
    assert!(matches!(socket.send_to(&[3], far), Err(Error::Disconnected)));
}

/// The node shares the descriptor and may keep it open for any length of time.
#[test]
fn a_session_that_was_given_up_does_not_wake() {
    let (connector, mut acceptor) = listen(0, 4).unwrap();
    let binding = thread::spawn(move || DatagramSocket::bind(connector, 0).unwrap());
    let mut end = accept(&mut acceptor);
    let socket = binding.join().unwrap();
    assert!(end.send(&[0], &[]) && end.send(&[0], &[]));
    assert!(matches!(socket.recv_from(&mut [0; 10]), Err(Error::Protocol(_))));
    assert!(!readable(&socket, 0), "nothing to do until the first retry");
    assert!(end.closed());
}

#[test]
fn without_a_node_bind_fails() {
    let (connector, acceptor) = listen(0, 1).unwrap();
    drop(acceptor);
    let failed = DatagramSocket::bind(connector, 0).unwrap_err();
    assert!(matches!(failed, Error::NotRunning { .. }), "{failed}");
    let (connector, _acceptor) = listen(0, 1).unwrap();
    let failed = DatagramSocket::bind(connector, 0).unwrap_err();
    assert!(matches!(failed, Error::NoAnswer { .. }), "{failed}");
}

/// Best effort that waits for room, at a node that takes a packet now and then: all packets arrive
/// in order, whether the writer blocks or polls.
#[test]
fn who_waits_for_room_loses_nothing() {
    const PACKETS: u32 = 300;
    for blocks in [true, false] {
        let (connector, mut acceptor) = listen(16 * 1024, 4).unwrap();
        let node = thread::spawn(move || {
            let mut end = accept(&mut acceptor);
            let (mut buf, mut next, mut told) = ([0; MAX_MESSAGE], 0, false);
            while next < PACKETS {
                assert!(readable(&end, 5_000));
                while let Some(len) = end.recv(&mut buf) {
                    match ToNode::parse(&buf[..len]) {
                        Ok(ToNode::Blocking(on)) => told = on,
                        Ok(ToNode::Send { payload, .. }) => {
                            assert!(told, "before any packet");
                            assert_eq!(payload[..4], next.to_be_bytes());
                            next += 1;
                        }
                        other => panic!("{other:?}"),
                    }
                    thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            end
        });
        let socket = DatagramSocket::bind(connector, 0).unwrap();
        socket.set_option(SocketOption::Service(Service::BestEffort)).unwrap();
        socket.set_option(SocketOption::Blocking(true)).unwrap();
        socket.set_option(SocketOption::Nonblocking(!blocks)).unwrap();
        let mut refused = 0;
        for n in 0..PACKETS {
            let mut packet = [0; 1_000];
            packet[..4].copy_from_slice(&n.to_be_bytes());
            while let Err(error) = socket.send_to(&packet, HERE) {
                assert!(!blocks && matches!(error, Error::WouldBlock), "{error}");
                refused += 1;
                assert!(readable(&socket, 5_000), "room is news");
                assert!(matches!(socket.recv_from(&mut []), Err(Error::WouldBlock)));
            }
        }
        assert!(blocks || (1..2 * PACKETS).contains(&refused), "{refused} times");
        drop(node.join().unwrap());
    }
}

/// Waits for the next request of a stream's session.
fn request<'a>(end: &mut End, buf: &'a mut [u8]) -> Option<Request<'a>> {
    let len = loop {
        assert!(readable(&*end, 5_000));
        if let Some(len) = end.recv(buf) {
            break len;
        }
        if end.closed() {
            return None;
        }
    };
    match ToNode::parse(&buf[..len]) {
        Ok(ToNode::Stream(request)) => Some(request),
        other => panic!("not of a stream: {other:?}"),
    }
}

fn notify(end: &mut End, notice: Notice<'_>) -> bool {
    let message = ToClient::Stream(notice);
    say(end, &message, message.payload())
}

const OPEN: Notice<'_> = Notice::Connected {
    node: HERE.node,
    port: HERE.port,
    peer: NodeId(7),
    peer_port: 70,
    messages: false,
    credit: u32::MAX,
};

/// Echoes a stream's data, as the ring and the credit permit, and then its end.
fn return_stream(mut end: End) {
    let (mut buf, mut credit, mut held, mut shut) = ([0; MAX_MESSAGE], 0, Vec::new(), false);
    loop {
        match request(&mut end, &mut buf) {
            Some(Request::Data(bytes)) => held.extend_from_slice(bytes),
            Some(Request::Credit(bytes)) => credit += bytes as usize,
            Some(
                Request::Connect { credit: bytes, .. } | Request::Accept { credit: bytes, .. },
            ) => {
                credit = bytes as usize;
                assert!(notify(&mut end, OPEN));
            }
            Some(Request::Shut) => shut = true,
            other => panic!("{other:?}"),
        }
        // The ring has room again when the application has read; this end has no descriptor that
        // signals it.
        while !held.is_empty() && credit > 0 {
            let n = held.len().min(credit).min(1_000);
            if notify(&mut end, Notice::Data(&held[..n])) {
                held.drain(..n);
                credit -= n;
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
        if shut && held.is_empty() {
            while !notify(&mut end, Notice::Shut) {
                thread::sleep(Duration::from_millis(1));
            }
            break;
        }
    }
    while request(&mut end, &mut buf).is_some() {}
}

/// Uses a ring that holds one message, so that the writer waits for room.
#[test]
fn a_stream_comes_back_whole() {
    const LEN: usize = 1_000_000;
    let (connector, mut acceptor) = listen(1, 8).unwrap();
    let node = thread::spawn(move || {
        return_stream(accept(&mut acceptor));
        let mut port = accept(&mut acceptor);
        let mut buf = [0; MAX_MESSAGE];
        assert!(matches!(request(&mut port, &mut buf), Some(Request::Listen { .. })));
        let incoming = Notice::Incoming { token: 1, from: NodeId(7), port: 70, messages: false };
        assert!(notify(&mut port, incoming));
        let accepted = loop {
            assert!(readable(&acceptor, 5_000));
            if let Some(end) = acceptor.accept() {
                break end;
            }
        };
        return_stream(accepted);
    });
    let goes_and_comes = |stream: &StreamSocket| {
        thread::scope(|scope| {
            let mut writer = stream;
            let written = scope.spawn(move || {
                let bytes: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
                writer.write_all(&bytes).and_then(|()| Ok(stream.shutdown()?))
            });
            let (mut reader, mut all) = (stream, Vec::new());
            reader.read_to_end(&mut all).unwrap();
            written.join().unwrap().unwrap();
            assert_eq!(all.len(), LEN);
            assert!(all.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
        });
    };
    let to = Address { node: NodeId(7), port: 70 };
    let stream = StreamSocket::connect(connector.clone(), to).unwrap();
    assert_eq!((stream.local(), stream.peer()), (HERE, to));
    goes_and_comes(&stream);
    drop(stream);
    let listener = StreamListener::bind(connector, HERE.port).unwrap();
    let (stream, from) = listener.accept().unwrap();
    assert_eq!(from, to);
    goes_and_comes(&stream);
    drop(stream);
    node.join().unwrap();
}
