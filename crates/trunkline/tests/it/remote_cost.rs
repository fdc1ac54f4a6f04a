//! Cost of a remote application, compared with a local one. Prints the results, and fails only for
//! gross deviations. For numbers: `cargo test --release --test remote_cost -- --ignored --nocapture
//! --test-threads 1`.

use crate::common::{Chain, allow_files, ms, numbered, recv_number, settle, try_recv_number};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{DatagramSocket, SocketOption, Transport};

/// Measures round trips between two applications of one node: the median and the 99th percentile.
fn round_trips(a: &DatagramSocket, b: &DatagramSocket) -> (Duration, Duration) {
    const N: u32 = 4_000;
    let mut took = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..N {
                let (n, got) = recv_number(b);
                b.send_to(&numbered(n), got.from).expect("sent");
            }
        });
        for n in 0..N {
            let start = Instant::now();
            a.send_to(&numbered(n), b.local_addr()).expect("sent");
            assert_eq!(recv_number(a).0, n);
            took.push(start.elapsed());
            thread::sleep(Duration::from_micros(300));
        }
    });
    took.sort();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

#[test]
#[ignore = "measures"]
fn latency() {
    let chain = Chain::sealed(1);
    let node = &chain.nodes[0];
    let unix = round_trips(&node.bind(0), &node.bind(0));
    let udp = round_trips(&node.bind_remote(0), &node.bind_remote(0));
    println!("four hops, median and p99: Unix {unix:?}, UDP {udp:?}");
    assert!(udp.0 < ms(5));
}

/// Measures the node's processor time for each application that attaches.
#[test]
#[ignore = "measures"]
fn attaching() {
    const N: u32 = 1_000;
    if !allow_files(8_000) {
        println!("skipped: the system does not allow 8,000 open files");
        return;
    }
    let mut chain = Chain::sealed(1);
    let at = chain.nodes[0].attachment();
    let (cpu, start) = (chain.first().cpu_time(), Instant::now());
    let clients: Vec<_> =
        (0..N).map(|_| DatagramSocket::bind(at.as_str(), 0).expect("bound")).collect();
    let (took, used) = (start.elapsed(), chain.first().cpu_time() - cpu);
    println!("{N} attached in {took:?}; {:?} of the node each", used / N);
    drop(clients);
    assert!(took < ms(30_000), "{took:?}");
}

#[test]
#[ignore = "measures"]
fn calls_per_processor() {
    const CALLS: usize = 500;
    const SECONDS: u32 = 5;
    if !allow_files(8_000) {
        println!("skipped: the system does not allow 8,000 open files");
        return;
    }
    for remote in [false, true] {
        let mut chain = Chain::sealed(1);
        let node = &chain.nodes[0];
        let bind = || match remote {
            false => DatagramSocket::bind(node.socket.as_path(), 0).expect("bound"),
            true => DatagramSocket::bind(node.attachment().as_str(), 0).expect("bound"),
        };
        // Each socket is one end of a call; the other end is the next socket.
        let sockets: Vec<_> = (0..CALLS).map(|_| bind()).collect();
        if remote {
            sockets.iter().for_each(|s| settle(s, Transport::Udp));
        }
        for s in &sockets {
            s.set_option(SocketOption::Nonblocking(true)).expect("in range");
        }
        let (cpu, start) = (chain.first().cpu_time(), Instant::now());
        let mut heard = 0;
        for frame in 0..SECONDS * 50 {
            thread::sleep((start + ms(20) * frame).saturating_duration_since(Instant::now()));
            for (i, s) in sockets.iter().enumerate() {
                let to = sockets[(i + 1) % CALLS].local_addr();
                let _ = s.send_to(&numbered(frame), to);
            }
            for s in &sockets {
                while try_recv_number(s).is_ok() {
                    heard += 1;
                }
            }
        }
        let (took, used) = (start.elapsed(), chain.first().cpu_time() - cpu);
        let idle = chain.first().cpu_time();
        thread::sleep(ms(3_000));
        for s in &sockets {
            while try_recv_number(s).is_ok() {
                heard += 1;
            }
        }
        let idle = chain.first().cpu_time() - idle;
        let sent = CALLS as u32 * SECONDS * 50;
        println!(
            "remote: {remote}; {heard} of {sent} streams' packets, {used:?} of {took:?}: {:.0} \
             streams per processor; idle for 3 s: {idle:?}",
            CALLS as f64 * took.as_secs_f64() / used.as_secs_f64()
        );
        assert!(heard > sent * 9 / 10, "{heard} of {sent}");
    }
}
