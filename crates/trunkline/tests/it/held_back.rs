//! Flow-controlled applications (`SocketOption::Blocking`) at real nodes, on a slow link.

use crate::common::on_time::on_time;
use crate::common::raw::{self, bytes};
use crate::common::{self, Chain, Setup, ms, stream, wait_for};
use macro_rules_attribute::apply;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{Address, DatagramSocket, Error, NodeId, Service, SocketOption};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToNode};

const SIZE: usize = 1_000;
/// Length of a packet that no node carries.
const TOO_LARGE: usize = 2_000;
/// Number of packets that take the link four seconds.
const PACKETS: u32 = 450;

/// Starts two nodes with a link of 1 Mbit/s.
fn slow_chain() -> Chain {
    Chain::start(&Setup { link: "rate = \"1 Mbit/s\"\n", sealed: true, ..Setup::default() })
}

fn writer(socket: DatagramSocket, waits: bool) -> DatagramSocket {
    for option in [SocketOption::Service(Service::BestEffort), SocketOption::Blocking(waits)] {
        socket.set_option(option).expect("in range");
    }
    socket
}

fn packet(n: u32) -> [u8; SIZE] {
    let mut packet = [0x5a; SIZE];
    packet[..4].copy_from_slice(&n.to_be_bytes());
    packet
}

/// Receives numbers until there are none for a second.
fn numbers(socket: &DatagramSocket) -> Vec<u32> {
    socket.set_option(SocketOption::ReadTimeout(Some(ms(1_000)))).expect("in range");
    let mut buf = [0; 2_048];
    let mut got = Vec::new();
    loop {
        match socket.recv_from(&mut buf) {
            Ok(_) => got.push(u32::from_be_bytes(buf[..4].try_into().expect("four bytes"))),
            Err(Error::WouldBlock) => return got,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes all packets as fast as they are accepted, during a call that must receive all its packets
/// on time. Returns the numbers received and the time taken.
fn write_all(chain: &Chain, mut send: impl FnMut(&[u8], Address) + Send) -> (Vec<u32>, Duration) {
    let (near, far) = (&chain.nodes[0], &chain.nodes[1]);
    let listener = far.bind(4_000);
    let (voice, ear) = (near.bind(0), far.bind(4_001));
    // Count packets also if this test was too slow to receive them on time.
    ear.set_option(SocketOption::Late(true)).expect("in range");
    thread::scope(|scope| {
        let came = scope.spawn(|| numbers(&listener));
        let start = Instant::now();
        let to = listener.local_addr();
        let wrote = scope.spawn(move || {
            (0..PACKETS).for_each(|n| send(&packet(n), to));
            start.elapsed()
        });
        let heard = stream(&voice, &ear, 0..100, ms(20));
        assert_eq!(heard.len(), 100, "the call's packets come");
        let late = heard.iter().filter(|(_, got)| got.remaining.is_zero()).count();
        assert_eq!(late, 0, "in time, by what the nodes say");
        (came.join().expect("it ends"), wrote.join().expect("it ends"))
    })
}

/// Checks that all arrived in order, and that the node delayed most of them.
#[track_caller]
fn nothing_lost(chain: &Chain, (came, took): (Vec<u32>, Duration)) {
    let m = chain.nodes[0].metrics();
    let waited = m.sum("flow_controlled_packets_total", "");
    println!("written in {took:?}; held back {waited} times");
    let far = chain.nodes[1].metrics();
    println!("the listener had no time for {} packets", far.drops("session_full"));
    let missing: Vec<u32> = (0..PACKETS).filter(|n| !came.contains(n)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing");
    assert!(came.iter().copied().eq(0..PACKETS), "in order, and once");
    // Sent at once they would take milliseconds, while the link takes 8 ms for each.
    assert!(waited > u64::from(PACKETS) / 2, "nobody waited");
    assert_eq!((m.drops("queue_full"), m.drops("queue_delay")), (0, 0));
}

fn send_to(socket: &DatagramSocket) -> impl FnMut(&[u8], Address) + Send {
    |packet, to| socket.send_to(packet, to).expect("sent")
}

#[apply(on_time)]
fn who_waits_loses_nothing_on_a_slow_link_and_delays_no_voice() {
    let chain = slow_chain();
    let socket = writer(chain.nodes[0].bind(0), true);
    nothing_lost(&chain, write_all(&chain, send_to(&socket)));
}

#[apply(on_time)]
fn who_waits_on_another_host_loses_nothing() {
    let chain = slow_chain();
    let socket = writer(chain.nodes[0].bind_remote(0), true);
    nothing_lost(&chain, write_all(&chain, send_to(&socket)));
}

#[apply(on_time)]
fn who_does_not_wait_loses_much() {
    let chain = slow_chain();
    let socket = writer(chain.nodes[0].bind(0), false);
    let (came, took) = write_all(&chain, |packet, to| {
        // Sends at twice the link's rate, to keep the node's queue from being the bottleneck.
        thread::sleep(ms(4));
        socket.send_to(packet, to).expect("never waits");
    });
    println!("{} of {PACKETS} came; written in {took:?}", came.len());
    assert!(came.len() < PACKETS as usize);
    assert!(chain.nodes[0].metrics().drops("queue_delay") > 0);
}

/// Handles the descriptor of a nonblocking socket, so that the rest of its last packet can go.
fn serve(socket: &DatagramSocket, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(50u16)).expect("polled");
        assert!(matches!(socket.recv_from(&mut [0; 9]), Err(Error::WouldBlock)));
    }
}

#[apply(on_time)]
fn who_does_not_block_is_told_when_there_is_room() {
    let chain = slow_chain();
    for socket in [chain.nodes[0].bind(0), chain.nodes[0].bind_remote(0)] {
        let socket = writer(socket, true);
        socket.set_option(SocketOption::Nonblocking(true)).expect("in range");
        let (mut refused, last) = (0, self::packet(PACKETS - 1));
        let outcome = write_all(&chain, |packet, to| {
            loop {
                match socket.send_to(packet, to) {
                    Ok(()) if *packet == last => return serve(&socket, ms(500)),
                    Ok(()) => return,
                    Err(Error::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
                refused += 1;
                let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
                let ready = poll(&mut fds, PollTimeout::from(10_000u16)).expect("polled");
                assert_eq!(ready, 1, "room is news");
                assert!(matches!(socket.recv_from(&mut [0; 9]), Err(Error::WouldBlock)));
            }
        });
        nothing_lost(&chain, outcome);
        assert!(refused > 0 && refused < 2 * PACKETS, "{refused} times");
    }
}

/// Requests over TCP queue behind flow-controlled packets; the node reports on its own that it is
/// alive.
#[apply(on_time)]
fn one_on_another_host_that_is_held_back_for_long_keeps_its_session() {
    let chain =
        Chain::start(&Setup { link: "rate = \"64 kbit/s\"\n", sealed: true, ..Setup::default() });
    let socket = writer(chain.nodes[0].bind_remote(0), true);
    let listener = chain.nodes[1].bind(4_000);
    thread::scope(|scope| {
        let came = scope.spawn(|| numbers(&listener));
        // Each takes 134 ms.
        (0..75).for_each(|n| socket.send_to(&packet(n), listener.local_addr()).expect("sent"));
        socket.set_option(SocketOption::ReadTimeout(Some(ms(9_000)))).expect("in range");
        let news = socket.recv_from(&mut [0; 9]);
        assert!(matches!(news, Err(Error::WouldBlock)), "{news:?}");
        assert!(came.join().expect("it ends").into_iter().eq(0..75));
    });
    assert_eq!(socket.status().reconnects, 0);
}

/// A datagram cannot be flow-controlled; it is counted.
#[apply(on_time)]
fn datagrams_of_one_that_is_held_back_are_counted() {
    let chain =
        Chain::start(&Setup { link: "rate = \"64 kbit/s\"\n", sealed: true, ..Setup::default() });
    let near = &chain.nodes[0];
    let mut raw = raw::Raw::bound(near);
    raw.say(&bytes(|w| ToNode::Blocking(true).emit_head(w)));
    assert!(raw.pings(raw.token, 1));
    let (to, port, service) = (NodeId(2), 4_000, Service::BestEffort);
    let send = ToNode::Send { service, deadline_ms: 255, to, port, payload: &[] };
    let message = [bytes(|w| send.emit_head(w)), vec![0; SIZE]].concat();
    let udp = UdpSocket::bind((near.remote.ip(), 0)).expect("a port");
    for n in 2..22 {
        udp.send_to(&raw.datagram(raw.token, n, &message), near.remote).expect("sent");
    }
    wait_for("all of them", || {
        let m = near.metrics();
        let lost = m.sum("remote_drops_total", "reason=\"flow_controlled\"");
        (lost > 10 && lost + m.sum("from_sessions_total", "") == 20).then_some(())
    });
}

/// Opens a local session without the client library.
fn bare(path: &Path) -> Socket {
    bare_at(path, 0)
}

fn bare_at(path: &Path, port: u16) -> Socket {
    let version = SESSION_VERSION;
    let mut socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
    socket.connect(&SockAddr::unix(path).expect("short")).expect("connected");
    socket.set_read_timeout(Some(common::PATIENCE)).expect("an option");
    socket.write_all(&bytes(|w| ToNode::Bind { version, port }.emit_head(w))).expect("sent");
    assert!(socket.read(&mut [0; 100]).expect("an answer") > 0);
    socket.set_nonblocking(true).expect("an option");
    socket
}

/// Sends packets of `size` bytes to `to` until the socket has accepted none for `patience`, and
/// returns the number accepted.
fn fill(mut socket: &Socket, (to, size): (Address, usize), patience: Duration) -> u32 {
    let (node, service) = (to.node, Service::BestEffort);
    let send = ToNode::Send { service, deadline_ms: 255, to: node, port: to.port, payload: &[] };
    let message = [bytes(|w| send.emit_head(w)), vec![0; size]].concat();
    let (mut taken, mut refused) = (0, Instant::now());
    while refused.elapsed() <= patience && taken < 20_000 {
        match socket.write(&message) {
            Ok(_) => (taken, refused) = (taken + 1, Instant::now()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(ms(1)),
            Err(e) => panic!("{e}"),
        }
    }
    taken
}

#[apply(on_time)]
fn hostile_ones_fill_their_sockets_and_read_nothing() {
    let mut chain = Chain::start(&Setup { link: "rate = \"64 kbit/s\"\n", ..Setup::default() });
    let (near, far) = (&chain.nodes[0], &chain.nodes[1]);
    let listener = far.bind(4_000);
    let (voice, ear) = (near.bind(0), near.bind(4_001));
    let path = near.socket.clone();
    // These wait, on a link that carries eight of their packets per second …
    let waiting: Vec<_> = (0..20).map(|_| bare(&path)).collect();
    for mut socket in &waiting {
        socket.write_all(&bytes(|w| ToNode::Blocking(true).emit_head(w))).expect("sent");
    }
    // … and these make the node report that each of their packets is too large.
    let told: Vec<_> = (0..5).map(|_| bare(&path)).collect();
    let resident = chain.first().resident();
    let to = listener.local_addr();
    let heard = thread::scope(|scope| {
        let fillers: Vec<_> = (waiting.iter().map(|s| (s, SIZE)))
            .chain(told.iter().map(|s| (s, TOO_LARGE)))
            .map(|(socket, size)| scope.spawn(move || fill(socket, (to, size), ms(100))))
            .collect();
        let heard = stream(&voice, &ear, 0..200, ms(10)).len();
        let taken: Vec<_> = fillers.into_iter().map(|f| f.join().expect("it ends")).collect();
        println!("taken of each: {taken:?}");
        assert!(taken[..20].iter().all(|n| *n < 1_000), "no more than a socket holds");
        heard
    });
    assert_eq!(heard, 200, "another application's packets");
    let node = chain.first();
    let grown = node.resident().saturating_sub(resident);
    let cpu = node.cpu_time();
    // Some flow-controlled sessions leave and some stay: the node has no work for them.
    drop(waiting.into_iter().take(10).collect::<Vec<_>>());
    thread::sleep(ms(2_000));
    let busy = node.cpu_time() - cpu;
    println!("the node grew by {grown} KiB; it was busy for {busy:?} of 2 s of holding back");
    assert!(grown < 2_048, "the node grew by {grown} KiB");
    assert!(busy < ms(500), "{busy:?} of processor time in 2 s");
    assert!(node.metrics().drops("session_full") > 0, "answers that nobody reads");
    assert_eq!(stream(&voice, &ear, 200..220, ms(5)).len(), 20);
    drop(told);
    wait_for("the told to go", || (node.metrics().sum("sessions", "") <= 22).then_some(()));
    node.assert_healthy();
}

#[apply(on_time)]
fn what_was_taken_goes_out_when_its_sender_has_gone() {
    let chain = slow_chain();
    let listener = chain.nodes[1].bind(4_000);
    for time in 0..3 {
        thread::scope(|scope| {
            let came = scope.spawn(|| numbers(&listener).len());
            let socket = bare(&chain.nodes[0].socket);
            (&socket).write_all(&bytes(|w| ToNode::Blocking(true).emit_head(w))).expect("sent");
            let taken = fill(&socket, (listener.local_addr(), SIZE), ms(1));
            drop(socket);
            assert!(taken > 20, "{taken} packets wait nowhere");
            assert_eq!(came.join().expect("it ends"), taken as usize, "time {time}");
        });
    }
    wait_for("the sessions to go", || {
        (chain.nodes[0].metrics().sum("sessions", "") == 0).then_some(())
    });
}

/// Binds port `port` of the node at `path`, fills its socket with packets to `to`, and leaves.
fn fill_and_go(path: &Path, port: u16, to: Address) {
    let socket = bare_at(path, port);
    (&socket).write_all(&bytes(|w| ToNode::Blocking(true).emit_head(w))).expect("sent");
    let taken = fill(&socket, (to, SIZE), ms(20));
    assert!(taken > 20, "{taken} packets wait nowhere");
}

/// A link that carries eight packets per second, and nodes with a limit of five sessions.
fn crowded() -> Chain {
    let link = "rate = \"64 kbit/s\"\n";
    let mut chain = Chain::prepare(&Setup { link, sealed: true, ..Setup::default() });
    for node in &mut chain.nodes {
        let text = std::fs::read_to_string(&node.config).expect("written");
        let text = text.replace("[node]", "[node]\nmax_sessions = 5");
        std::fs::write(&node.config, text).expect("written");
        node.start();
    }
    chain.wait_until_up();
    chain
}

fn sessions(node: &common::Node) -> u64 {
    node.metrics().sum("sessions", "")
}

#[apply(on_time)]
fn who_has_gone_takes_no_place_that_another_needs() {
    let chain = crowded();
    let (near, to) = (&chain.nodes[0], chain.nodes[1].address(4_000));
    (0..5).for_each(|_| fill_and_go(&near.socket, 0, to));
    let attached: Vec<_> = (0..5).map(|_| near.bind(0)).collect();
    assert_eq!(sessions(near), 5);
    let full = DatagramSocket::bind(near.socket.as_path(), 0);
    assert!(full.is_err(), "the living give way to nobody");
    drop(attached);
}

#[apply(on_time)]
fn who_has_gone_takes_no_port_that_another_needs() {
    let chain = crowded();
    let (near, to) = (&chain.nodes[0], chain.nodes[1].address(4_000));
    for _ in 0..3 {
        fill_and_go(&near.socket, 7_000, to);
        drop(near.bind(7_000));
    }
    let living = near.bind(7_000);
    let second = DatagramSocket::bind(near.socket.as_path(), 7_000);
    assert!(second.is_err(), "{:?} is taken", living.local_addr());
}

#[apply(on_time)]
fn nobody_waits_for_a_neighbour_that_is_dead() {
    let mut chain = crowded();
    let to = chain.nodes[1].address(4_000);
    fill_and_go(&chain.nodes[0].socket, 0, to);
    chain.last().crash();
    let start = Instant::now();
    wait_for("the session to go", || (sessions(&chain.nodes[0]) == 0).then_some(()));
    assert!(start.elapsed() < ms(8_000), "it would take 11 s: {:?}", start.elapsed());
}

#[apply(on_time)]
fn who_has_gone_on_another_host_is_forgotten_soon() {
    let chain = crowded();
    let mut raw = raw::Raw::bound(&chain.nodes[0]);
    raw.say(&bytes(|w| ToNode::Blocking(true).emit_head(w)));
    let (to, port, service) = (NodeId(2), 4_000, Service::BestEffort);
    let send = ToNode::Send { service, deadline_ms: 255, to, port, payload: &[] };
    let message = [bytes(|w| send.emit_head(w)), vec![0; SIZE]].concat();
    // Fills TCP's buffers, so that the end of the connection is behind data that will not be read
    // for minutes.
    raw.tcp.set_write_timeout(Some(ms(200))).expect("an option");
    let start = Instant::now();
    let mut n = 0;
    while n < 1_000 && start.elapsed() < ms(2_000) {
        raw.say(&message);
        n += 1;
    }
    assert!(n > 200, "{n} are 25 s of the link");
    drop(raw);
    let start = Instant::now();
    wait_for("the session to go", || (sessions(&chain.nodes[0]) == 0).then_some(()));
    assert!(start.elapsed() < ms(5_000), "{:?}", start.elapsed());
}

/// More clients than the link can serve within the time after which a client gives up its node.
#[apply(on_time)]
fn many_on_another_host_that_wait_for_their_turn_keep_their_sessions() {
    const MANY: u32 = 72;
    let chain =
        Chain::start(&Setup { link: "rate = \"64 kbit/s\"\n", sealed: true, ..Setup::default() });
    let listener = chain.nodes[1].bind(4_000);
    let sockets: Vec<_> = (0..MANY).map(|_| writer(chain.nodes[0].bind_remote(0), true)).collect();
    for (socket, n) in sockets.iter().zip(0..) {
        socket.set_option(SocketOption::Nonblocking(true)).expect("in range");
        for k in 0..2 {
            socket.send_to(&packet(2 * n + k), listener.local_addr()).expect("sent");
        }
    }
    let mut came = thread::scope(|scope| {
        let reader = scope.spawn(|| numbers(&listener));
        while !reader.is_finished() {
            for socket in &sockets {
                let news = socket.recv_from(&mut [0; 9]);
                assert!(matches!(news, Err(Error::WouldBlock)), "{news:?}");
            }
            thread::sleep(ms(100));
        }
        reader.join().expect("it ends")
    });
    came.sort_unstable();
    assert!(came.iter().copied().eq(0..2 * MANY), "{} came", came.len());
    assert_eq!(sockets.iter().map(|socket| socket.status().reconnects).sum::<u32>(), 0);
}

#[apply(on_time)]
fn a_port_that_is_refused_anyway_takes_nothing_from_who_has_gone() {
    let chain = crowded();
    let (near, listener) = (&chain.nodes[0], chain.nodes[1].bind(4_000));
    fill_and_go(&near.socket, 7_000, listener.local_addr());
    let socket = bare(&near.socket);
    for version in [SESSION_VERSION, 99] {
        let again = ToNode::Bind { version, port: 7_000 };
        (&socket).write_all(&bytes(|w| again.emit_head(w))).expect("sent");
    }
    thread::sleep(ms(300));
    assert_eq!(sessions(near), 2);
    drop(near.bind(7_000));
    wait_for("the session to go", || (sessions(near) == 1).then_some(()));
}
