//! Packets that waited while their receiver was not running: real-time packets are dropped at their
//! deadline, and little memory is used for a receiver that never reads.

use crate::common::on_time::on_time;
use crate::common::{self, Chain, ms, numbered, try_recv_number};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_base::wire::Writer;
use trunkline_client::{DatagramSocket, Error, SocketOption};
use trunkline_overlay::session::wire::{MAX_HEAD, SESSION_VERSION, ToNode};

/// Sends a packet every 20 ms, which at most one link may delay. Returns the ages at arrival of the
/// packets that `reading` received by the end of its time.
fn ages(
    from: &DatagramSocket,
    to: &DatagramSocket,
    seconds: u32,
    mut reading: impl FnMut(Duration) -> bool,
) -> Vec<Duration> {
    let address = to.local_addr();
    let begin = Instant::now();
    let gap = ms(20);
    to.set_option(SocketOption::ReadTimeout(Some(ms(50)))).expect("in range");
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..seconds * 50 {
                thread::sleep((begin + gap * n).saturating_duration_since(Instant::now()));
                match from.send_to(&numbered(n), address) {
                    Ok(()) | Err(Error::Status(_) | Error::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let mut ages = Vec::new();
        while begin.elapsed() < Duration::from_secs(u64::from(seconds)) + ms(300) {
            if !reading(begin.elapsed()) {
                thread::sleep(ms(5));
                continue;
            }
            match try_recv_number(to) {
                Ok((n, _)) => ages.push(begin.elapsed().saturating_sub(gap * n)),
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
        ages
    })
}

fn oldest(ages: &[Duration]) -> Duration {
    ages.iter().max().copied().unwrap_or_default()
}

#[track_caller]
fn assert_nothing_is_late(ages: &[Duration]) {
    // The deadline is a tenth of a second; the rest allows for a busy machine.
    assert!(oldest(ages) < ms(200), "{:?} old", oldest(ages));
}

/// A relay is stopped for 2 s, as by a debugger or a hypervisor.
#[apply(on_time)]
fn a_relay_that_was_stopped_passes_nothing_on_that_is_late() {
    let mut chain = Chain::of(3);
    let (near, far) = (chain.nodes[0].bind(0), chain.nodes[2].bind(4_000));
    let relay = chain.nodes[1].process().id();
    let signal = |signal| {
        let pid = nix::unistd::Pid::from_raw(relay.cast_signed());
        nix::sys::signal::kill(pid, signal).expect("it runs");
    };
    let ages = thread::scope(|scope| {
        scope.spawn(|| {
            // Stop between two packets: one being processed would be sent on resumption.
            thread::sleep(ms(1_010));
            signal(Signal::SIGSTOP);
            thread::sleep(ms(2_000));
            signal(Signal::SIGCONT);
        });
        ages(&near, &far, 5, |_| true)
    });
    assert_nothing_is_late(&ages);
    assert!(ages.len() > 100, "{} of 250 arrived", ages.len());
    let late = chain.nodes[1].metrics().drops("late");
    assert!((10..110).contains(&late), "{late} were late at the relay");
}

/// Packets sent while the node was stopped keep their real age.
#[apply(on_time)]
fn a_node_that_was_stopped_sends_nothing_that_is_late() {
    let mut chain = Chain::of(2);
    let (near, far) = (chain.nodes[0].bind(0), chain.nodes[1].bind(4_000));
    let node = nix::unistd::Pid::from_raw(chain.nodes[0].process().id().cast_signed());
    let ages = thread::scope(|scope| {
        scope.spawn(|| {
            // Stop between two packets: one being processed would be sent on resumption.
            thread::sleep(ms(510));
            nix::sys::signal::kill(node, Signal::SIGSTOP).expect("it runs");
            thread::sleep(ms(700));
            nix::sys::signal::kill(node, Signal::SIGCONT).expect("it runs");
        });
        ages(&near, &far, 2, |_| true)
    });
    assert_nothing_is_late(&ages);
    assert!(ages.len() > 50, "{} of 100 arrived", ages.len());
}

/// An application stops receiving for 2 s.
#[apply(on_time)]
fn an_application_that_comes_back_gets_what_is_fresh_unless_it_asks_for_more() {
    let chain = Chain::of(2);
    for late in [false, true] {
        let (near, far) = (chain.nodes[0].bind(0), chain.nodes[1].bind(4_000));
        far.set_option(SocketOption::Late(late)).expect("in range");
        let away = ms(500)..ms(2_500);
        let ages = ages(&near, &far, 4, |at| !away.contains(&at));
        let oldest = oldest(&ages);
        if late {
            assert!(oldest > ms(1_500), "{oldest:?} old");
        } else {
            assert!(oldest < ms(400), "{oldest:?} old");
        }
        assert!((90..=130).contains(&ages.len()), "{} of 200 arrived", ages.len());
    }
    let dropped = chain.nodes[1].metrics().drops("session_full");
    assert!((120..=190).contains(&dropped), "{dropped} were for one who did not read");
}

/// A session that binds its port and then reads nothing.
fn silent(node: &common::Node, port: u16) -> Socket {
    let mut socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
    socket.connect(&SockAddr::unix(&node.socket).expect("short")).expect("connected");
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    ToNode::Bind { version: SESSION_VERSION, port }.emit_head(&mut w).expect("room");
    socket.write_all(w.written()).expect("sent");
    assert!(socket.read(&mut [0; 100]).expect("an answer") > 0);
    socket
}

/// Bytes and messages queued in `socket`.
fn waiting(socket: &mut Socket) -> (usize, usize) {
    socket.set_nonblocking(true).expect("an option");
    let mut buf = [0; 2_000];
    let lens: Vec<_> = std::iter::from_fn(|| socket.read(&mut buf).ok()).collect();
    (lens.iter().sum(), lens.len())
}

#[apply(on_time)]
fn two_hundred_applications_that_never_read_hold_little_and_trouble_nobody() {
    const SILENT: u16 = 200;
    let chain = Chain::of(2);
    let node = &chain.nodes[1];
    let near = chain.nodes[0].bind(0);
    let mut silent: Vec<_> = (0..SILENT).map(|i| silent(node, 5_000 + i)).collect();
    // Each of them is sent 25 packets per second, for 4 s.
    let begin = Instant::now();
    for n in 0..100u32 {
        for i in 0..SILENT {
            let due = begin + ms(40) * n + Duration::from_micros(200) * u32::from(i);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            near.send_to(&numbered(n), node.address(5_000 + i)).expect("sent");
        }
    }
    // A session that reads is served as before.
    let far = node.bind(4_000);
    let got = common::stream(&near, &far, 0..50, ms(10));
    assert!(got.len() >= 49, "{} of 50", got.len());
    let held: Vec<_> = silent.iter_mut().map(waiting).collect();
    let (bytes, messages) = held.iter().fold((0, 0), |(b, m), h| (b + h.0, m + h.1));
    println!("{messages} messages of {bytes} bytes wait for {SILENT} applications");
    // Keep 0.3 s of each, and as much again on a busy machine.
    assert!(held.iter().all(|h| h.1 <= 20), "{:?} for one", held.iter().max());
    assert!(messages >= 200 * 5, "useful messages are kept: {messages}");
    let dropped = node.metrics().drops("session_full");
    assert!(dropped > 200 * 70, "{dropped}");
    // A session that reads again receives packets again.
    near.send_to(&numbered(7), node.address(5_000)).expect("sent");
    thread::sleep(ms(100));
    near.send_to(&numbered(8), node.address(5_000)).expect("sent");
    thread::sleep(ms(100));
    assert!(waiting(&mut silent[0]).1 >= 1);
}
