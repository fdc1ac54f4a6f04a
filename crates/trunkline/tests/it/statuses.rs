//! Statuses that a node sends its applications about their destinations, over every carrier.

use crate::common::on_time::on_time;
use crate::common::{self, Chain, Setup, ms, numbered, try_recv_number, wait_for};
use macro_rules_attribute::apply;
use std::time::{Duration, Instant};
use trunkline_client::{
    Address, DatagramSocket, Error, NodeId, SocketOption, Status, Transport, Unreachable,
};

/// Sends a packet every 20 ms until the node reports a status, for at most `patience`.
#[track_caller]
fn told_while_sending(socket: &DatagramSocket, to: Address, patience: Duration) -> Option<Status> {
    socket.set_option(SocketOption::ReadTimeout(Some(ms(20)))).expect("in range");
    let begun = Instant::now();
    while begun.elapsed() < patience {
        match socket.send_to(&numbered(0), to) {
            Err(Error::Status(status)) => return Some(status),
            sent => sent.expect("sent"),
        }
        match try_recv_number(socket) {
            Err(Error::Status(status)) => return Some(status),
            Err(Error::WouldBlock) => {}
            other => panic!("{other:?}"),
        }
    }
    None
}

/// Receives a status from the node while nothing is sent.
#[track_caller]
fn told(socket: &DatagramSocket) -> Status {
    socket.set_option(SocketOption::ReadTimeout(Some(common::PATIENCE))).expect("in range");
    match try_recv_number(socket) {
        Err(Error::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

/// Covers a port that is unbound and then bound, a node that goes away and comes back, and one that
/// does not exist.
fn everything_that_can_be_told(chain: &mut Chain, socket: &DatagramSocket) {
    let far = chain.nodes[1].address(4_000);
    let unreachable = |to, why| Some(Status::Unreachable { to, why });
    let second = Duration::from_secs(1);
    let nowhere = Address { node: NodeId(99), port: 1 };
    let said = told_while_sending(socket, nowhere, second);
    assert_eq!(said, unreachable(nowhere, Unreachable::NoRoute));
    assert_eq!(told_while_sending(socket, nowhere, ms(300)), None, "once");

    let said = told_while_sending(socket, far, second);
    assert_eq!(said, unreachable(far, Unreachable::NoPort));
    assert_eq!(told_while_sending(socket, far, second * 3), None, "once");
    // An application binds the port and is silent; the port is no longer reported as unreachable.
    let listener = chain.nodes[1].bind(4_000);
    let said = told_while_sending(socket, far, second * 10);
    assert_eq!(said, Some(Status::Reachable { to: far }));
    // On a busy machine each packet may be late.
    listener.set_option(SocketOption::ReadTimeout(Some(ms(100)))).expect("in range");
    let got = wait_for("what is sent now", || {
        let _ = socket.send_to(&numbered(0), far);
        try_recv_number(&listener).ok()
    });
    assert_eq!(got.1.from, socket.local_addr());
    drop(listener);

    chain.nodes[1].crash();
    let gone = Instant::now();
    let said = wait_for("news", || told_while_sending(socket, far, second));
    // No packet reached the node, so the port was not reported again.
    let Status::Unreachable { to, why: Unreachable::Since(ago) } = said else { panic!("{said:?}") };
    assert!(to == far && ago < gone.elapsed(), "{ago:?}");
    // Another destination there: the status includes the time of the loss, and both are reported as
    // reachable again.
    std::thread::sleep(ms(500));
    let other = chain.nodes[1].address(4_001);
    let said = told_while_sending(socket, other, second);
    let Some(Status::Unreachable { why: Unreachable::Since(ago), .. }) = said else {
        panic!("{said:?}")
    };
    assert!(ago >= ms(500) && ago < gone.elapsed(), "{ago:?}");
    chain.nodes[1].start();
    let mut back = [told(socket).to(), told(socket).to()];
    back.sort();
    assert_eq!(back, [far, other]);
}

#[apply(on_time)]
fn over_a_unix_socket() {
    let mut chain = Chain::of(2);
    let socket = chain.nodes[0].bind(4_100);
    everything_that_can_be_told(&mut chain, &socket);
}

#[apply(on_time)]
fn from_another_host() {
    let mut chain = Chain::sealed(2);
    let socket = chain.nodes[0].bind_remote(4_100);
    assert_eq!(socket.status().transport, Some(Transport::Udp));
    everything_that_can_be_told(&mut chain, &socket);
    assert_eq!(socket.status().reconnects, 0);
}

/// Two nodes at the ends and one between them, on links without loss: a node reports an unbound
/// port once per second, whatever the number of senders.
#[apply(on_time)]
fn a_port_that_nobody_has_costs_little() {
    let chain = Chain::start(&Setup { nodes: 3, ..Setup::default() });
    let (near, far) = (&chain.nodes[0], &chain.nodes[2]);
    let socket = near.bind(4_100);
    let begun = Instant::now();
    for _ in 0..100 {
        let _ = socket.send_to(&numbered(0), far.address(4_000));
        std::thread::sleep(ms(20));
    }
    let most = begun.elapsed().as_secs() + 1;
    let metrics = far.metrics();
    let denied = metrics.sum("port_unreachable_sent_total", "");
    assert!((2..=most).contains(&denied), "{denied} in {:?}", begun.elapsed());
    assert_eq!(near.metrics().drops("echo_unexpected"), 0);
}
