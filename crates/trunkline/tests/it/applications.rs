//! Applications at real nodes: many of them, misbehaving ones, fast and slow ones.

use crate::common::on_time::on_time;
use crate::common::{
    self, Chain, Setup, allow_files, ms, numbered, stream, try_recv_number, wait_for,
};
use macro_rules_attribute::apply;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_base::wire::Writer;
use trunkline_client::{
    Address, DatagramSocket, Error, NodeId, RefusalReason, Service, SocketOption, Status,
    Unreachable,
};
use trunkline_overlay::session::wire::{MAX_MESSAGE, SESSION_VERSION, ToClient, ToNode};

/// A session without the client library, to send messages that the library never would.
struct Raw(Socket);

impl Raw {
    fn connect(path: &Path) -> Raw {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
        socket.connect(&SockAddr::unix(path).expect("short")).expect("connected");
        socket.set_read_timeout(Some(common::PATIENCE)).expect("an option");
        Raw(socket)
    }

    fn say(&mut self, message: &[u8]) {
        assert_eq!(self.0.write(message).expect("sent"), message.len());
    }

    fn tell(&mut self, message: &ToNode<'_>, payload: &[u8]) {
        let mut bytes = vec![0; MAX_MESSAGE + 100];
        let mut w = Writer::new(&mut bytes);
        message.emit_head(&mut w).and_then(|()| w.bytes(payload)).expect("room");
        let n = w.len();
        self.say(&bytes[..n]);
    }

    /// Reads the node's answer, which must be a refusal.
    #[track_caller]
    fn refusal(&mut self) -> RefusalReason {
        let mut buf = [0; 100];
        let n = self.0.read(&mut buf).expect("an answer");
        match ToClient::parse(&buf[..n]) {
            Ok(ToClient::Error { refusal, .. }) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn bind(&mut self, port: u16) {
        self.tell(&ToNode::Bind { version: SESSION_VERSION, port }, &[]);
        let mut buf = [0; 100];
        let n = self.0.read(&mut buf).expect("an answer");
        assert!(matches!(ToClient::parse(&buf[..n]), Ok(ToClient::Bound { .. })));
    }

    fn closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 100]), Ok(0))
    }
}

fn send(to: Address) -> ToNode<'static> {
    let service = Service::RealTime;
    ToNode::Send { service, deadline_ms: 100, to: to.node, port: to.port, payload: &[] }
}

/// Echoes every packet until stopped.
fn echo(socket: &DatagramSocket, stop: &AtomicBool) {
    socket.set_option(SocketOption::ReadTimeout(Some(ms(100)))).expect("in range");
    while !stop.load(Ordering::Relaxed) {
        if let Ok((n, got)) = try_recv_number(socket) {
            let _ = socket.send_to(&numbered(n), got.from);
        }
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

#[apply(on_time)]
fn a_thousand_clients_and_the_one_too_many() {
    const CLIENTS: usize = 1_000;
    const LIMIT: usize = 2_048;
    if !allow_files(6_000) {
        println!("skipped: the system does not allow 6,000 open files");
        return;
    }
    let chain = Chain::of(2);
    let (near, far) = (&chain.nodes[0], &chain.nodes[1]);
    let peers: Vec<_> = (0..10).map(|i| far.bind(4_000 + i)).collect();
    let before = open_files();
    let clients: Vec<_> = (0..CLIENTS).map(|_| near.bind(0)).collect();
    let each = (open_files() - before) as f64 / CLIENTS as f64;
    println!("{each:.2} descriptors per client");
    assert!(each < 3.5, "{each} descriptors per client");
    assert_eq!(near.metrics().sum("sessions", ""), CLIENTS as u64);

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopper = Stopper(&stop);
        peers.iter().for_each(|peer| drop(scope.spawn(|| echo(peer, &stop))));
        let mut answers = vec![0; CLIENTS];
        for round in 0..3 {
            for (i, client) in clients.iter().enumerate() {
                client.send_to(&numbered(round), peers[i % 10].local_addr()).expect("sent");
                if i % 20 == 0 {
                    // A thousand calls are spread over time.
                    thread::sleep(ms(2));
                }
            }
            for (client, answers) in clients.iter().zip(&mut answers) {
                client.set_option(SocketOption::ReadTimeout(Some(ms(500)))).expect("in range");
                *answers += u32::from(try_recv_number(client).is_ok_and(|(n, _)| n == round));
            }
        }
        let silent = answers.iter().filter(|n| **n == 0).count();
        let total: u32 = answers.iter().sum();
        assert_eq!(silent, 0, "clients without an answer; {total} answers");
        assert!(total >= 2_970, "{total} of 3000 answers");
    });

    // Fill up the limit with bare connections, which cost one descriptor each.
    let mut more: Vec<_> = (CLIENTS..LIMIT).map(|_| Raw::connect(&near.socket)).collect();
    wait_for("every session", || {
        (near.metrics().sum("sessions", "") == LIMIT as u64).then_some(())
    });
    let asked = Instant::now();
    for _ in 0..30 {
        let error = DatagramSocket::bind(near.socket.as_path(), 0).expect_err("one too many");
        assert!(matches!(error, Error::Refused(RefusalReason::Full)), "{error}");
    }
    assert!(asked.elapsed() < Duration::from_secs(2), "at once, not after a timeout");
    let listener = far.bind(5_000);
    assert_eq!(stream(&clients[CLIENTS - 1], &listener, 0..5, ms(2)).len(), 5, "others live");
    // A freed slot is given to the next session.
    more.pop();
    wait_for("a free place", || DatagramSocket::bind(near.socket.as_path(), 0).ok());
}

#[apply(on_time)]
fn one_server_talks_to_hundreds_of_clients() {
    const CLIENTS: usize = 300;
    if !allow_files(2_000) {
        println!("skipped: the system does not allow 2,000 open files");
        return;
    }
    let chain = Chain::of(2);
    let server = chain.nodes[1].bind(4_000);
    let clients: Vec<_> = (0..CLIENTS).map(|_| chain.nodes[0].bind(0)).collect();
    for client in &clients {
        // Packets are read one listener after the other, so they may be late.
        client.set_option(SocketOption::Late(true)).expect("in range");
    }
    for round in 0..4 {
        for (i, client) in clients.iter().enumerate() {
            server.send_to(&numbered(round), client.local_addr()).expect("sent");
            if i % 20 == 0 {
                thread::sleep(ms(1));
            }
        }
    }
    let mut heard = 0;
    for client in &clients {
        client.set_option(SocketOption::ReadTimeout(Some(ms(20)))).expect("in range");
        heard += std::iter::from_fn(|| try_recv_number(client).ok()).count();
    }
    assert_eq!(heard, 4 * CLIENTS, "packets heard");
}

#[apply(on_time)]
fn a_port_that_is_bound_again_is_heard_at_once() {
    let chain = Chain::of(2);
    let listener = chain.nodes[1].bind(4_000);
    for call in 0..3 {
        let caller = wait_for("the port", || {
            DatagramSocket::bind(chain.nodes[0].socket.as_path(), 5_000).ok()
        });
        // New sequence numbers from a known port may cost a packet before they are accepted.
        let heard = stream(&caller, &listener, 0..20, ms(2)).len();
        assert!(heard >= 18, "{heard} of 20 of call {call}");
    }
}

#[test]
fn every_mistake_has_its_error() {
    let chain = Chain::of(2);
    let (near, far) = (&chain.nodes[0], &chain.nodes[1]);
    let socket = near.bind(4_000);
    let told = |to: Address| {
        socket.send_to(&numbered(0), to).expect("sent");
        match try_recv_number(&socket).expect_err("nothing comes") {
            Error::Status(status) => status,
            other => panic!("{other}"),
        }
    };

    let taken = DatagramSocket::bind(near.socket.as_path(), 4_000).expect_err("taken");
    assert!(matches!(taken, Error::PortInUse { port: 4_000 }), "{taken:?}");
    let (to, why) = (near.address(4_001), Unreachable::NoPort);
    assert_eq!(told(to), Status::Unreachable { to, why });
    let (to, why) = (Address { node: NodeId(99), port: 1 }, Unreachable::NoRoute);
    assert_eq!(told(to), Status::Unreachable { to, why });
    let max = socket.max_payload();
    let large = socket.send_to(&vec![0; max + 1], far.address(1)).expect_err("too large");
    assert!(matches!(large, Error::TooLarge { len, max: m } if len == max + 1 && m == max));
    let absent = DatagramSocket::bind(chain.dir.path().join("no.sock"), 0).expect_err("absent");
    assert!(matches!(absent, Error::NotRunning { .. }), "{absent:?}");

    // The largest packet arrives. The missing port at the far node is counted there.
    let listener = far.bind(4_000);
    socket.send_to(&vec![7; max], listener.local_addr()).expect("sent");
    let mut buf = vec![0; max];
    assert_eq!(listener.recv_from(&mut buf).expect("arrives").len, max);
    assert!(buf.iter().all(|b| *b == 7));
    socket.send_to(&numbered(0), far.address(4_001)).expect("sent");
    wait_for("the far node's count", || (far.metrics().drops("no_port") == 1).then_some(()));
    let m = near.metrics();
    assert_eq!((m.drops("no_port"), m.drops("no_route"), m.drops("too_large")), (1, 1, 0));
}

#[apply(on_time)]
fn garbage_on_a_session_harms_only_that_session() {
    let mut chain = Chain::of(2);
    let (socket, listener) = (chain.nodes[0].bind(4_000), chain.nodes[1].bind(4_000));
    assert_eq!(stream(&socket, &listener, 0..10, ms(2)).len(), 10);
    let (path, to) = (chain.nodes[0].socket.clone(), listener.local_addr());
    let raw = || Raw::connect(&path);

    let mut version = raw();
    version.tell(&ToNode::Bind { version: 200, port: 0 }, &[]);
    assert_eq!(version.refusal(), RefusalReason::Version);
    let mut order = raw();
    order.tell(&send(to), b"before bind");
    assert_eq!(order.refusal(), RefusalReason::OutOfOrder);
    order.bind(0);
    order.tell(&ToNode::Bind { version: SESSION_VERSION, port: 0 }, &[]);
    assert_eq!(order.refusal(), RefusalReason::OutOfOrder);
    let mut large = raw();
    large.bind(0);
    for len in [2_000, 9_000] {
        large.tell(&send(to), &vec![0; len]);
        assert_eq!(large.refusal(), RefusalReason::TooLarge, "{len}");
    }
    large.say(&vec![2; 60_000]);
    large.refusal();
    let mut empty = raw();
    empty.say(&[]);
    assert!(empty.closed(), "an empty message is the end of a stream");

    let before = chain.nodes[0].metrics().drops("malformed");
    let messages: [&[u8]; 7] = [
        &[0],
        &[1],
        &[1, 1],
        &[2, 2, 100],
        &[2, 9, 100, 0, 0, 0, 2, 15, 160],
        &[2; 3],
        &[0xff; 500],
    ];
    for message in messages {
        let mut session = raw();
        session.say(message);
        assert_eq!(session.refusal(), RefusalReason::Malformed, "{message:?}");
    }
    // A session that is bound and then misbehaves does not disturb the others.
    let mut bound = raw();
    bound.bind(0);
    for _ in 0..100 {
        bound.say(&[0x77; 50]);
        assert_eq!(bound.refusal(), RefusalReason::Malformed);
    }
    let counted = chain.nodes[0].metrics().drops("malformed") - before;
    assert_eq!(counted, messages.len() as u64 + 100);

    assert_eq!(stream(&socket, &listener, 10..30, ms(2)).len(), 20);
    assert_eq!(stream(&listener, &socket, 0..20, ms(2)).len(), 20);
    assert_eq!(socket.status().reconnects, 0);
    drop((version, order, large, empty, bound));
    wait_for("the sessions to go", || {
        (chain.nodes[0].metrics().sum("sessions", "") == 1).then_some(())
    });
    chain.first().assert_healthy();
}

#[apply(on_time)]
fn a_flood_is_held_back_or_counted() {
    // Without offload, the kernel counts datagrams instead of runs.
    let sections = "[runtime]\noffload = false\n";
    let mut chain = Chain::start(&Setup { sections, ..Setup::default() });
    let (flooder, sink) = (chain.nodes[0].bind(0), chain.nodes[1].bind(4_000));
    let (quiet, listener) = (chain.nodes[0].bind(0), chain.nodes[1].bind(4_001));
    for socket in [&flooder, &quiet] {
        socket.set_option(SocketOption::Service(Service::BestEffort)).expect("in range");
    }
    let (resident, to) = (chain.first().resident(), sink.local_addr());
    let stop = AtomicBool::new(false);
    let (mut sent, mut refused, mut heard) = (200, 0, 0);
    thread::scope(|scope| {
        let _stopper = Stopper(&stop);
        scope.spawn(|| swallow(&sink, &stop));
        let call = scope.spawn(|| stream(&quiet, &listener, 0..200, ms(5)).len());
        while !call.is_finished() {
            match flooder.send_to(&numbered(0), to) {
                Ok(()) => sent += 1,
                Err(Error::WouldBlock) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        heard = call.join().expect("the call ends");
    });
    println!("{sent} packets taken, {refused} refused; {heard} of 200 of another call arrived");
    assert!(refused > 0, "the flood was no flood");
    assert!(heard >= 50, "another application's call goes on: {heard} of 200");
    for node in &mut chain.nodes {
        node.assert_healthy();
    }
    // Every accepted packet is accounted for; the kernel may also have dropped some hellos.
    let mut seen = (0, 0);
    let counted = (0..200).any(|_| {
        thread::sleep(ms(20));
        let (a, b) = (chain.nodes[0].metrics(), chain.nodes[1].metrics());
        let dropped = ["queue_full", "queue_delay"].map(|why| a.drops(why));
        let arrived = b.sum("to_sessions_total", "") + b.sum("kernel_drops_total", "");
        let refused = ["session_full", "flow_duplicate"].map(|why| b.drops(why));
        seen = (
            a.sum("from_sessions_total", ""),
            arrived + dropped.iter().sum::<u64>() + refused.iter().sum::<u64>(),
        );
        seen.0 == sent && (sent..sent + 100).contains(&seen.1)
    });
    assert!(counted, "of {sent}, {} were taken by the node and {} accounted for", seen.0, seen.1);
    let grown = chain.first().resident().saturating_sub(resident);
    assert!(grown < 32 << 10, "the node grew by {grown} KiB");
}

/// Receives and discards packets until stopped.
fn swallow(socket: &DatagramSocket, stop: &AtomicBool) {
    socket.set_option(SocketOption::ReadTimeout(Some(ms(100)))).expect("in range");
    while !stop.load(Ordering::Relaxed) {
        let _ = try_recv_number(socket);
    }
}

/// Stops the other threads also when an assertion fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[apply(on_time)]
fn a_client_that_never_reads_loses_only_its_own() {
    // The socket's buffer is at most 2 MiB, and each packet takes 2 KiB or more of it.
    const MOST: u64 = 20_000;
    let mut chain = Chain::of(2);
    let (near, far) = (&chain.nodes[0], &chain.nodes[1]);
    let (talker, lazy) = (near.bind(0), far.bind(4_000));
    let (other, listener) = (near.bind(0), far.bind(4_001));
    let full = || far.metrics().drops("session_full");
    let mut sent = 0;
    let heard = thread::scope(|scope| {
        let heard = scope.spawn(|| stream(&other, &listener, 0..200, ms(5)).len());
        let mut packet = vec![0; talker.max_payload()];
        while !heard.is_finished() || (full() == 0 && sent < MOST) {
            for _ in 0..25 {
                packet[..8].copy_from_slice(&sent.to_be_bytes());
                talker.send_to(&packet, lazy.local_addr()).expect("sent");
                sent += 1;
            }
            thread::sleep(ms(4));
        }
        heard.join().expect("the call ends")
    });
    assert_eq!(heard, 200, "another application's packets");
    let dropped = wait_for("a count", || {
        let dropped = full();
        (dropped + far.metrics().sum("to_sessions_total", "") == sent + 200).then_some(dropped)
    });
    println!("{dropped} of {sent} dropped");
    assert!(dropped > 0, "{sent} packets fit the buffer of a client that reads none");
    // The first packets are old ones from the queue, and then current ones follow.
    lazy.set_option(SocketOption::Late(true)).expect("in range");
    let mut buf = vec![0; lazy.max_payload()];
    for n in 0..sent - dropped {
        lazy.recv_from(&mut buf).expect("a packet");
        assert_eq!(buf[..8], n.to_be_bytes());
    }
    // The sequence numbers have left its window, which may cost a packet.
    assert!(stream(&talker, &lazy, 0..20, ms(2)).len() >= 18);
    chain.last().assert_healthy();
}
