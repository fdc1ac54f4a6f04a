//! A flood of connections does not delay other applications.

use crate::common::on_time::on_time;
use crate::common::{Chain, allow_files, ms, numbered, try_recv_number};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;
use trunkline_client::{Error, SocketOption};

/// Four thousand connections are queued at the listener for other hosts, and the last one sends an
/// invalid message. While the node accepts them all, an application's packets continue.
#[apply(on_time)]
fn a_rush_to_the_door_for_other_hosts_holds_up_no_packet() {
    const RUSH: usize = 4_000;
    let mut chain = Chain::sealed(1);
    if !allow_files(8_000) {
        println!("skipped: the system does not allow 8,000 open files");
        return;
    }
    let at = chain.nodes[0].remote;
    let socket = chain.nodes[0].bind(0);
    socket.set_option(SocketOption::ReadTimeout(Some(ms(10)))).expect("in range");
    chain.first().process().signal(Signal::SIGSTOP);
    let mut crowd: Vec<_> = (0..RUSH).map_while(|_| TcpStream::connect(at).ok()).collect();
    let mut last = crowd.pop().expect("the kernel lets some wait");
    last.write_all(&[0xff; 64]).expect("taken by the kernel");
    let begin = Instant::now();
    chain.first().process().signal(Signal::SIGCONT);
    let answered = thread::spawn(move || {
        // The connection ends, cleanly or by a reset.
        let _ = last.read(&mut [0; 64]);
        begin.elapsed()
    });
    let (mut came, mut longest) = (begin, ms(0));
    let mut n = 0;
    while !answered.is_finished() {
        match socket.send_to(&numbered(n), socket.local_addr()) {
            Ok(()) | Err(Error::WouldBlock) => n += 1,
            Err(error) => panic!("{error}"),
        }
        if try_recv_number(&socket).is_ok() {
            longest = longest.max(came.elapsed());
            came = Instant::now();
        }
        thread::sleep(ms(1));
    }
    let all = answered.join().expect("no panic").max(came.elapsed());
    longest = longest.max(came.elapsed());
    println!("all were taken after {all:?}; no packet for {longest:?} at most");
    assert!(longest < all / 2, "{longest:?} of {all:?}");
    chain.first().assert_healthy();
}
