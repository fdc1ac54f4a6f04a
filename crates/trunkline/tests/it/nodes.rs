//! Chains of real nodes: packets cross them, and they survive crashes.

use crate::common::on_time::on_time;
use crate::common::{
    Chain, PATIENCE, Setup, ms, numbered, recv_number, stream, try_recv_number, wait_for,
};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{DatagramSocket, Error, Service, SocketOption};

/// Sends with both services in both directions, and checks all metadata of the received packets.
fn exchange(chain: &Chain) {
    let (first, last) = (&chain.nodes[0], &chain.nodes[chain.nodes.len() - 1]);
    let (here, there) = (first.bind(4_000), last.bind(0));
    for service in [Service::BestEffort, Service::RealTime] {
        for (from, to) in [(&here, &there), (&there, &here)] {
            from.set_option(SocketOption::Service(service)).expect("in range");
            from.set_option(SocketOption::Deadline(ms(200))).expect("in range");
            let got = stream(from, to, 0..30, ms(2));
            let numbers: Vec<u32> = got.iter().map(|(n, _)| *n).collect();
            assert_eq!(numbers, (0..30).collect::<Vec<_>>());
            let first_seq = got[0].1.flow_seq;
            for (n, packet) in got {
                assert_eq!(packet.service, service);
                assert_eq!(packet.from, from.local_addr());
                assert_eq!(packet.flow_seq, first_seq + n as u16);
                assert!(!packet.recovered, "nothing is lost on the loopback interface");
                assert!(packet.remaining <= ms(200), "{:?}", packet.remaining);
            }
        }
    }
    let (m, packets) = (first.metrics(), 60);
    assert_eq!(
        (m.sum("from_sessions_total", ""), m.sum("to_sessions_total", "")),
        (packets, packets)
    );
    for node in &chain.nodes[1..chain.nodes.len() - 1] {
        assert_eq!(node.metrics().sum("forwarded_total", ""), 2 * packets);
    }
    for class in ["realtime", "best_effort"] {
        let sent = m.sum("link_sent_envelopes_total", &format!("class=\"{class}\""));
        assert_eq!(sent, 30, "{class}");
    }
}

#[apply(on_time)]
fn packets_cross_two_nodes() {
    exchange(&Chain::of(2));
}

#[apply(on_time)]
fn packets_cross_three_nodes() {
    exchange(&Chain::of(3));
}

#[apply(on_time)]
fn packets_cross_ipv6_links() {
    let ip = Ipv6Addr::LOCALHOST.into();
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    exchange(&Chain::start(&Setup { nodes: 3, ip, ..Setup::default() }));
}

#[apply(on_time)]
fn a_lossy_link_is_repaired_for_real_time_only() {
    let impair = "delay = \"5ms\"\nloss = \"10%\"";
    let chain = Chain::start(&Setup { impair, ..Setup::default() });
    let lost = |service, port| {
        let (from, to) = (chain.nodes[0].bind(0), chain.nodes[1].bind(port));
        from.set_option(SocketOption::Service(service)).expect("in range");
        let got = stream(&from, &to, 0..500, ms(2));
        let recovered = got.iter().filter(|(_, packet)| packet.recovered).count();
        (500 - got.len(), recovered)
    };
    let (lost_plain, none) = lost(Service::BestEffort, 5_000);
    let (lost_repaired, recovered) = lost(Service::RealTime, 5_001);
    // The expected number is 50, with a standard deviation of 7; then about 2p² of them.
    assert!((20..100).contains(&lost_plain) && none == 0, "{lost_plain} lost, {none} recovered");
    assert!(recovered > 15, "{recovered} recovered");
    assert!(lost_repaired * 2 < lost_plain, "{lost_repaired} of real time, {lost_plain} without");
}

#[apply(on_time)]
fn on_a_slow_link_voice_goes_before_the_rest() {
    // A call of 200 packets per second takes 371 kbit/s of the link, including IP and UDP.
    let chain = Chain::start(&Setup {
        link: "rate = \"1 Mbit/s\"\n",
        // Both limits are reached: the queue fills in 0.1 s, and drains in 0.4 s.
        sections: "[best_effort]\nmemory = \"32 kB\"\nmax_wait = \"200 ms\"\n",
        ..Setup::default()
    });
    let (bulk, sink) = (chain.nodes[0].bind(0), chain.nodes[1].bind(6_000));
    let (voice, listener) = (chain.nodes[0].bind(0), chain.nodes[1].bind(6_001));
    bulk.set_option(SocketOption::Service(Service::BestEffort)).expect("in range");
    let (packet, mut sent) = ([0; 1_000], 0);
    let heard = thread::scope(|scope| {
        let call = scope.spawn(|| stream(&voice, &listener, 0..300, ms(5)));
        while !call.is_finished() {
            bulk.send_to(&packet, sink.local_addr()).expect("sent");
            sent += 1;
            thread::sleep(ms(2));
        }
        call.join().expect("the call ends")
    });
    let numbers: Vec<u32> = heard.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    let (dropped, arrived) = wait_for("the queue to drain", || {
        let (a, b) = (chain.nodes[0].metrics(), chain.nodes[1].metrics());
        let dropped = ["queue_full", "queue_delay"].map(|why| a.drops(why));
        // The listener does not read, so that delivery soon stops.
        let arrived = b.sum("to_sessions_total", "") + b.drops("session_full") - 300;
        (dropped[0] + dropped[1] + arrived == sent).then_some((dropped, arrived))
    });
    println!("of {sent} bulk packets {dropped:?} found the queue full or waited too long");
    assert!(dropped[0] > 0 && dropped[1] > 0, "{dropped:?}");
    // About 1.5 s at 630 kbit/s, or 110 packets, and those queued at the end.
    assert!((50..300).contains(&arrived), "{arrived} of {sent} bulk packets passed");
}

/// Sends numbered packets until stopped, and counts them.
fn chatter(socket: &DatagramSocket, to: &DatagramSocket, stop: &AtomicBool, sent: &AtomicU32) {
    let to = to.local_addr();
    while !stop.load(Ordering::Relaxed) {
        match socket.send_to(&numbered(sent.fetch_add(1, Ordering::Relaxed)), to) {
            Ok(()) | Err(Error::Disconnected) => {}
            Err(error) => panic!("{error}"),
        }
        thread::sleep(ms(5));
    }
}

#[apply(on_time)]
fn ends_do_not_notice_that_the_node_between_them_crashed() {
    let mut chain = Chain::of(3);
    let (from, to) = (chain.nodes[0].bind(0), chain.nodes[2].bind(6_000));
    let (stop, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        // This also ends the sender if an assertion below fails.
        let _stopper = Stopper(&stop);
        scope.spawn(|| chatter(&from, &to, &stop, &sent));
        for _ in 0..50 {
            recv_number(&to);
        }
        chain.nodes[1].crash();
        let crashed = sent.load(Ordering::Relaxed);
        thread::sleep(ms(300));
        let during = sent.load(Ordering::Relaxed);
        chain.nodes[1].start();
        // No packet sent during the crash arrives; then they continue.
        let (first, _) = wait_for("packets after the crash", || {
            Some(recv_number(&to)).filter(|(n, _)| *n > crashed + 1)
        });
        assert!(first >= during, "packet {first} crossed a dead node ({crashed} to {during})");
        for _ in 0..50 {
            assert_eq!(recv_number(&to).1.from, from.local_addr());
        }
    });
    for socket in [&from, &to] {
        assert_eq!(socket.status().reconnects, 0);
    }
    let restarts = chain.nodes[0].metrics().sum("link_restarts_total", "neighbour=\"2\"");
    assert_eq!(restarts, 1, "the one after the crash");
}

struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[apply(on_time)]
fn a_client_follows_its_node_through_a_crash() {
    let mut chain = Chain::of(2);
    // This keeps the client from having the first port that a new node assigns.
    let other = chain.nodes[0].bind(0);
    let (client, peer) = (chain.nodes[0].bind(0), chain.nodes[1].bind(6_000));
    let port = client.local_addr();
    drop(other);
    assert_eq!(stream(&client, &peer, 0..5, ms(2)).len(), 5);

    chain.nodes[0].crash();
    let away =
        wait_for("the client to notice", || client.send_to(&numbered(0), peer.local_addr()).err());
    assert!(matches!(away, Error::Disconnected), "{away}");
    assert!(!client.status().connected);
    chain.nodes[0].start();
    client.set_option(SocketOption::ReadTimeout(Some(PATIENCE))).expect("in range");
    let news = try_recv_number(&client).expect_err("nobody has sent anything");
    assert!(matches!(news, Error::Reconnected), "{news}");
    assert_eq!(client.local_addr(), port);
    assert_eq!((client.status().connected, client.status().reconnects), (true, 1));

    chain.wait_until_up();
    // The peer may need a packet before it accepts restarted sequence numbers.
    assert!(stream(&client, &peer, 0..20, ms(2)).len() >= 18);
    assert_eq!(stream(&peer, &client, 0..20, ms(2)).len(), 20, "no second Reconnected");
    assert_eq!((client.status().reconnects, peer.status().reconnects), (1, 0));
}

#[apply(on_time)]
fn an_idle_link_costs_less_than_a_hundred_bytes_a_second() {
    // The paper's hello interval (Amir et al. 2005, IV-B).
    let sections = "[hello]\ninterval = \"1 s\"\ndead_after = \"10 s\"\n";
    let chain = Chain::start(&Setup { sections, ..Setup::default() });
    let node = &chain.nodes[0];
    let bytes = || {
        let m = node.metrics();
        (m.sum("link_sent_bytes_total", ""), m.sum("link_received_bytes_total", ""))
    };
    // Each node advertises its links once.
    thread::sleep(Duration::from_secs(3));
    let (start, before) = (Instant::now(), bytes());
    thread::sleep(Duration::from_secs(5));
    let (after, seconds) = (bytes(), start.elapsed().as_secs_f64());
    let (sent, received) = (after.0 - before.0, after.1 - before.1);
    assert!(sent > 0 && received > 0, "{sent} and {received} bytes");
    let rate = (sent + received) as f64 / seconds;
    println!("{rate:.1} bytes/s both ways");
    assert!(rate <= 100.0, "{rate} bytes/s: {sent} sent and {received} received in {seconds} s");
}

#[apply(on_time)]
fn a_signal_stops_a_node_cleanly() {
    let mut chain = Chain::of(2);
    let client = chain.nodes[0].bind(0);
    for (i, signal) in [Signal::SIGTERM, Signal::SIGINT].into_iter().enumerate() {
        let node = &mut chain.nodes[i];
        let socket = node.socket.clone();
        assert!(socket.exists());
        let asked = Instant::now();
        node.process().signal(signal);
        let status = node.process().wait();
        assert!(asked.elapsed() < ms(2_000), "{:?} after {signal}", asked.elapsed());
        assert_eq!(status.code(), Some(0), "{signal}");
        assert!(!socket.exists(), "{} is left behind", socket.display());
        let (stdout, stderr) = node.process().rest();
        assert_eq!(stdout, "");
        let lines: Vec<_> = stderr.lines().collect();
        let [unsealed, ready, ..] = lines[..] else { panic!("two lines: {stderr}") };
        assert!(unsealed.contains("UNSEALED") && ready.contains("ready"), "{stderr}");
    }
    wait_for("the client to notice", || client.send_to(b"x", client.local_addr()).err());
}

#[apply(on_time)]
fn a_node_ends_with_its_parent_if_asked_to() {
    let mut chain = Chain::of(2);
    chain.first().process().close_stdin();
    assert_eq!(chain.first().process().wait().code(), Some(0));
    assert!(!chain.first().socket.exists());
    chain.last().assert_healthy();
}
