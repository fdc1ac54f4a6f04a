//! The operator's cap on what the applications of a user send: `[access] rate`.

use crate::common::on_time::on_time;
use crate::common::streams::{add_control, control};
use crate::common::{Chain, Node, Setup, ms, numbered, run, trunkline, try_recv_number};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{
    DatagramSocket, Error, RefusalReason, Service, SocketOption, StreamListener, StreamSocket,
};

/// Two nodes with control sockets, of which the first limits its users.
fn chain(rate: &str) -> Chain {
    let mut chain = Chain::prepare(&Setup { sealed: true, ..Setup::default() });
    chain.nodes.iter().for_each(add_control);
    limit(&chain.nodes[0], "", rate);
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    chain
}

/// Replaces the line `was` of the node's rules, or adds rules.
fn limit(node: &Node, was: &str, rate: &str) {
    let text = fs::read_to_string(&node.config).expect("written before");
    let text = match was {
        "" => format!("{text}\n[access]\n{rate}\n"),
        was => text.replacen(was, rate, 1),
    };
    fs::write(&node.config, text).expect("written");
}

/// Reads until nothing arrives for half a second, and returns the number of packets.
fn count(from: &DatagramSocket) -> usize {
    from.set_option(SocketOption::ReadTimeout(Some(ms(500)))).expect("an option");
    std::iter::from_fn(|| try_recv_number(from).ok()).count()
}

/// Sends 4,000 packets a second from all of `sockets` in turn, for that time. Returns the numbers
/// sent and refused, as far as it was told.
fn flood(sockets: &[DatagramSocket], to: &DatagramSocket, time: Duration) -> (u32, u32) {
    let (start, to) = (Instant::now(), to.local_addr());
    let (mut sent, mut refused) = (0, 0);
    for k in 0.. {
        let due = start + Duration::from_micros(250) * k;
        if due > start + time {
            break;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        match sockets[k as usize % sockets.len()].send_to(&numbered(k), to) {
            Ok(()) => sent += 1,
            Err(Error::Refused(RefusalReason::OverRate)) => refused += 1,
            Err(Error::WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (sent, refused)
}

/// Fifty sessions of one user send eight times as much as it may, beside another user: a client on
/// another host.
#[apply(on_time)]
fn a_user_over_its_rate_is_told_and_another_is_unaffected() {
    // 538 packets of 160 bytes and 72 bytes of headers in a second.
    let chain = chain("rate = \"1 Mbit/s\"");
    let [greedy, other] = [900, 901].map(|port| chain.nodes[1].bind(port));
    let sockets: Vec<_> = (0..50).map(|_| chain.nodes[0].bind(0)).collect();
    for socket in &sockets {
        socket.set_option(SocketOption::Service(Service::BestEffort)).expect("an option");
    }
    let client = chain.nodes[0].bind_remote(0);
    thread::scope(|scope| {
        let (arrived, others) = (scope.spawn(|| count(&greedy)), scope.spawn(|| count(&other)));
        let flood = scope.spawn(|| flood(&sockets, &greedy, Duration::from_secs(4)));
        for n in 0..200 {
            client.send_to(&numbered(n), other.local_addr()).expect("within its rate");
            thread::sleep(ms(20));
        }
        let (sent, refused) = flood.join().expect("sent");
        let (arrived, others) = (arrived.join().expect("counted"), others.join().expect("counted"));
        println!("{sent} sent, {refused} refusals told, {arrived} arrived, others {others}");
        assert!((2_000..2_300).contains(&arrived), "{arrived} in four seconds");
        assert_eq!(others, 200);
        assert!(refused > 1_000, "{refused}");
        let metrics = chain.nodes[0].metrics();
        let counted = metrics.sum("over_rate_total", "");
        assert_eq!(counted, u64::from(sent) - arrived as u64, "of {sent}");
        let ended = run(trunkline(["status", "--json", "--control"]).arg(control(&chain.nodes[0])));
        let status: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(status["drops"]["over_rate"], counted, "{status}");
    });
    let mut chain = chain;
    let log = chain.first().process().stderr();
    let told = "packets are refused: applications of user";
    assert_eq!(log.matches(told).count(), 1, "once in ten seconds: {log}");
}

/// A stream takes what the rate allows, and a call of the same user passes beside it. Without the
/// rate, it takes no time.
#[apply(on_time)]
fn a_stream_is_slowed_down_and_loses_nothing() {
    const LEN: usize = 400_000;
    let rate = "rate = \"1 Mbit/s\"";
    let chain = chain(rate);
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("a port");
    let transfer = || {
        let start = Instant::now();
        let to = chain.nodes[1].address(900);
        let stream = StreamSocket::connect(chain.nodes[0].socket.as_path(), to).expect("opened");
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let (far, _) = listener.accept().expect("a stream");
                let (mut all, mut buf) = (0, vec![0; 1 << 16]);
                loop {
                    match far.read(&mut buf).expect("data") {
                        0 => break all,
                        n => all += n,
                    }
                }
            });
            let data = vec![7; LEN];
            let mut rest = &data[..];
            while !rest.is_empty() {
                let n = stream.write(rest).expect("open");
                rest = &rest[n..];
            }
            stream.shutdown().expect("open");
            assert_eq!(reads.join().expect("read"), LEN);
        });
        start.elapsed()
    };
    let (near, far) = (chain.nodes[0].bind(0), chain.nodes[1].bind(901));
    thread::scope(|scope| {
        let arrived = scope.spawn(|| count(&far));
        let talks = scope.spawn(|| {
            for n in 0..100 {
                near.send_to(&numbered(n), far.local_addr()).expect("within the rate");
                thread::sleep(ms(20));
            }
        });
        let took = transfer();
        println!("{LEN} bytes took {took:?}");
        assert!((ms(3_200)..ms(5_500)).contains(&took), "{took:?}");
        talks.join().expect("sent");
        assert_eq!(arrived.join().expect("counted"), 100);
    });
    let metrics = chain.nodes[0].metrics();
    assert!(metrics.sum("rate_waits_total", "") > 20);
    assert_eq!(metrics.sum("over_rate_total", ""), 0);

    limit(&chain.nodes[0], rate, "");
    let ended = run(trunkline(["reload", "--control"]).arg(control(&chain.nodes[0])));
    assert!(ended.stdout.contains("[access] rate"), "{}{}", ended.stdout, ended.stderr);
    let took = transfer();
    assert!(took < ms(2_000), "{took:?}");
}

/// A reload without the rate lets a stream go on that waits for it.
#[apply(on_time)]
fn a_stream_that_waits_goes_on_once_the_limit_is_gone() {
    let rate = "rate = \"1 kbit/s\"";
    let chain = chain(rate);
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("a port");
    let to = chain.nodes[1].address(900);
    let stream = StreamSocket::connect(chain.nodes[0].socket.as_path(), to).expect("opened");
    let (far, _) = listener.accept().expect("a stream");
    stream.write(&[7; 100]).expect("open");
    thread::sleep(ms(500));
    let data = thread::spawn(move || {
        let (mut all, mut buf) = (0, [0; 200]);
        while all < 100 {
            all += far.read(&mut buf).expect("data");
        }
    });
    assert!(!data.is_finished(), "opening the stream took its rate");
    limit(&chain.nodes[0], rate, "");
    run(trunkline(["reload", "--control"]).arg(control(&chain.nodes[0])));
    data.join().expect("it goes on");
}
