//! `trunkline impair` as a process: the packets that arrive are those that its model predicts.

use crate::common::emulator::assert_documented;
use crate::common::on_time::on_time;
use crate::common::{self, PATIENCE, wait_for};
use macro_rules_attribute::apply;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use trunkline_base::Time;
use trunkline_base::link_model::{Chain, Impairment, LinkModel, Loss, PacketFate};

fn impair() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("impair").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running relay, killed if the test fails.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// Addresses of the links' sockets, in order: a, b, a, b…
    listens: Vec<SocketAddr>,
}

impl Running {
    /// Starts the relay and waits for `ready`.
    fn start(command: &mut Command) -> Running {
        let mut child = command.spawn().expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut running = Running { child, stderr, listens: Vec::new() };
        loop {
            let mut line = String::new();
            let n = running.stderr.read_line(&mut line).expect("text");
            assert_ne!(n, 0, "it ended before it was ready");
            if line.contains("ready") {
                return running;
            }
            let addr = line.rsplit(' ').next().and_then(|a| a.trim().parse().ok());
            running.listens.push(addr.unwrap_or_else(|| panic!("unexpected: {line}")));
        }
    }

    fn stop(mut self, how: impl FnOnce(&mut Child)) -> Value {
        how(&mut self.child);
        let mut out = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "", "nothing to say after ready");
        assert!(self.child.wait().expect("it ends").success());
        serde_json::from_str(&out).expect("the ledger is one JSON object")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sigterm(child: &mut Child) {
    signal(child, Signal::SIGTERM);
}

fn signal(child: &Child, signal: Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, signal).expect("it runs");
}

/// Timeout for datagrams that must not arrive, and for the end of a rapid sequence.
const SILENCE: Duration = Duration::from_millis(500);

/// A node: a socket on a port of its own.
fn node() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    let addr = socket.local_addr().expect("bound");
    (socket, addr)
}

/// Number of unread bytes in the IPv4 UDP socket at this port.
fn unread(socket: SocketAddr) -> u64 {
    let sockets = std::fs::read_to_string("/proc/net/udp").expect("read");
    let port = format!(":{:04X}", socket.port());
    let line = sockets.lines().find(|line| {
        line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&port))
    });
    let queues = line.and_then(|line| line.split_whitespace().nth(4)).expect("a socket");
    let (_, received) = queues.split_once(':').expect("two queues");
    u64::from_str_radix(received, 16).expect("a number")
}

fn packets(direction: &Value, key: &str) -> u64 {
    direction[key]["packets"].as_u64().unwrap_or_else(|| panic!("{key} in {direction}"))
}

fn assert_adds_up(direction: &Value) {
    const PARTS: [&str; 6] =
        ["delivered", "lost", "queue_dropped", "pool_dropped", "send_errors", "in_flight"];
    for unit in ["packets", "bytes"] {
        let sum: u64 = PARTS.iter().map(|p| direction[*p][unit].as_u64().expect("a count")).sum();
        assert_eq!(direction["offered"][unit], sum, "{unit}: {direction}");
    }
}

const N: u32 = 2_000;
const SIZE: usize = 172;
const DELAY: Duration = Duration::from_millis(20);

/// Sends N numbered datagrams, one per half millisecond, and returns the number and delay of those
/// that arrive.
fn exchange(from: &UdpSocket, via: SocketAddr, to: &UdpSocket) -> Vec<(u32, Duration)> {
    let start = Instant::now();
    let due = |k: u32| start + Duration::from_micros(500) * k;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut got = Vec::new();
            let mut bytes = [0; SIZE];
            to.set_read_timeout(Some(4 * SILENCE)).expect("a socket option");
            while let Ok((n, _)) = to.recv_from(&mut bytes) {
                assert_eq!(n, SIZE);
                let nanos = start.elapsed().as_nanos() as u64;
                let k = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
                let sent = u64::from_be_bytes(bytes[4..12].try_into().expect("eight bytes"));
                got.push((k, Duration::from_nanos(nanos - sent)));
            }
            got
        });
        let mut bytes = [0; SIZE];
        for k in 0..N {
            thread::sleep(due(k).saturating_duration_since(Instant::now()));
            bytes[..4].copy_from_slice(&k.to_be_bytes());
            bytes[4..12].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_be_bytes());
            from.send_to(&bytes, via).expect("sent");
        }
        receiver.join().expect("the receiver ends")
    })
}

#[apply(on_time)]
fn exactly_the_predicted_packets_are_lost() {
    let ((a, a_addr), (b, b_addr)) = (node(), node());
    let relay = Running::start(
        impair()
            .args([
                "--a",
                &format!("127.0.0.1:0={a_addr}"),
                "--b",
                &format!("127.0.0.1:0={b_addr}"),
            ])
            .args(["--delay", "20ms", "--loss", "10%", "--burst", "50%", "--seed", "3"])
            .args(["--stream", "5", "--until-stdin-closes"])
            .stdin(Stdio::piped()),
    );
    let (a_side, b_side) = (relay.listens[0], relay.listens[1]);

    // A datagram from an unknown source is not offered, so it does not advance the chain.
    node().0.send_to(b"unknown_peer", a_side).expect("sent");
    let arrived = exchange(&a, a_side, &b);
    let back = exchange(&b, b_side, &a);
    let ledger = relay.stop(|child| drop(child.stdin.take()));

    let loss = Loss::Burst { p: 0.1, b: 0.5, chain: Chain::PerPacket };
    let model = LinkModel { delay: DELAY, loss, ..LinkModel::default() };
    for (d, (name, arrived)) in [("forward", arrived), ("reverse", back)].iter().enumerate() {
        // Stream s of a link is 2s forward and 2s + 1 in reverse.
        let mut predicted = Impairment::new(model.clone(), 3, 10 + d as u64).expect("valid");
        let survivors: Vec<u32> = (0..N)
            .filter(|_| matches!(predicted.offer(Time::ZERO, SIZE + 28), PacketFate::Deliver(_)))
            .collect();
        let got: Vec<u32> = arrived.iter().map(|&(k, _)| k).collect();
        assert_eq!(got, survivors, "{name}");

        let direction = &ledger["links"][0][*name];
        assert_adds_up(direction);
        assert_eq!(packets(direction, "offered"), u64::from(N));
        assert_eq!(direction["offered"]["bytes"], u64::from(N) * (SIZE as u64 + 28));
        assert_eq!(packets(direction, "delivered"), got.len() as u64);
        assert_eq!(packets(direction, "lost"), predicted.ledger().lost.packets);
        assert_eq!(packets(direction, "foreign"), u64::from(d == 0));
        assert_eq!(direction["kernel_dropped"], 0);

        let mut delays: Vec<Duration> = arrived.iter().map(|&(_, delay)| delay).collect();
        delays.sort();
        let median = delays[delays.len() / 2];
        assert!(delays[0] >= DELAY, "{name}: {:?} is early", delays[0]);
        // Well above the typical value, since test machines are busy.
        assert!(median < Duration::from_millis(30), "{name}: median {median:?}");
    }
    assert!(ledger["lateness_us"]["p50"].as_f64().expect("a number") < 10_000.0, "{ledger}");
}

#[apply(on_time)]
fn a_file_a_learned_peer_and_packets_that_cannot_go() {
    let ((a, _), (b, b_addr)) = (node(), node());
    let dir = std::env::temp_dir().join(format!("trunkline-impair-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    let (config, saved) = (dir.join("links.toml"), dir.join("ledger.json"));
    let text = format!(
        "[[link]]\nname = \"C-D\"\na = {{ listen = \"127.0.0.1:0\" }}\n\
         b = {{ listen = \"127.0.0.1:0\", peer = \"{b_addr}\" }}\n\
         delay = {{ reverse = \"1 h\" }}\nrate = {{ forward = \"8 kbit/s\" }}\n\
         queue = {{ forward = \"2 packets\" }}\n"
    );
    std::fs::write(&config, text).expect("written");
    let relay = Running::start(impair().arg(&config).arg("--ledger").arg(&saved));
    let (a_side, b_side) = (relay.listens[0], relay.listens[1]);

    // A packet of 72 + 28 bytes takes 100 ms at 8 kbit/s. One is sent, two are queued, three are
    // dropped.
    for _ in 0..6 {
        a.send_to(&[1; 72], a_side).expect("sent");
    }
    let mut bytes = [0; 4096];
    for _ in 0..3 {
        let (n, from) = b.recv_from(&mut bytes).expect("arrives");
        assert_eq!((n, from), (72, b_side));
    }
    // One datagram is too long for the relay, and one is in flight when it stops.
    a.send_to(&[1; 3000], a_side).expect("sent");
    b.send_to(b"back", b_side).expect("sent");
    for side in [a_side, b_side] {
        wait_for("the relay to read", || (unread(side) == 0).then_some(()));
    }
    let ledger = relay.stop(sigterm);

    let (forward, reverse) = (&ledger["links"][0]["forward"], &ledger["links"][0]["reverse"]);
    assert_eq!(ledger["links"][0]["name"], "C-D");
    assert_documented(&ledger);
    assert_adds_up(forward);
    assert_adds_up(reverse);
    for (key, n) in [("offered", 6), ("delivered", 3), ("queue_dropped", 3), ("oversize", 1)] {
        assert_eq!(packets(forward, key), n, "{key}");
    }
    assert_eq!(packets(reverse, "in_flight"), 1);
    let saved: Value =
        serde_json::from_slice(&std::fs::read(&saved).expect("written")).expect("JSON");
    assert_eq!(saved, ledger);
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// A link between two nodes without impairments, as written in a file.
fn link_between(a: SocketAddr, b: SocketAddr) -> String {
    format!(
        "[[link]]\na = {{ listen = \"127.0.0.1:0\", peer = \"{a}\" }}\n\
         b = {{ listen = \"127.0.0.1:0\", peer = \"{b}\" }}\n"
    )
}

/// Writes a configuration to a new folder, and starts a relay with it.
fn start_from(text: &str) -> (tempfile::TempDir, Running) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let config = dir.path().join("links.toml");
    std::fs::write(&config, text).expect("written");
    let relay = Running::start(impair().arg(&config).current_dir("/"));
    (dir, relay)
}

/// Changes the file, makes the relay read it again, and returns the logged result.
fn reread(running: &mut Running, file: &std::path::Path, text: &str) -> String {
    std::fs::write(file, text).expect("written");
    signal(&running.child, Signal::SIGHUP);
    let mut line = String::new();
    running.stderr.read_line(&mut line).expect("text");
    line
}

#[apply(on_time)]
fn a_link_is_cut_and_mended_while_it_runs() {
    let ((a, a_addr), (b, b_addr)) = (node(), node());
    let text = link_between(a_addr, b_addr);
    let (dir, mut relay) = start_from(&text);
    let file = dir.path().join("links.toml");
    let sides = [relay.listens[0], relay.listens[1]];
    // Checks whether datagrams pass as expected, forward and reverse.
    let passes = |relay: &Running, expected: [bool; 2]| {
        assert_eq!(relay.listens, sides);
        let one = |from: &UdpSocket, via, to: &UdpSocket, expected| {
            let patience = if expected { PATIENCE } else { SILENCE };
            to.set_read_timeout(Some(patience)).expect("a socket option");
            from.send_to(b"there?", via).expect("sent");
            to.recv_from(&mut [0; 16]).is_ok()
        };
        let [forward, reverse] = expected;
        assert_eq!([one(&a, sides[0], &b, forward), one(&b, sides[1], &a, reverse)], expected);
    };
    passes(&relay, [true, true]);
    let cut = text.clone() + "loss = \"100%\"\n";
    assert_eq!(reread(&mut relay, &file, &cut), "impair: 2 directions changed\n");
    passes(&relay, [false, false]);
    let half = text.clone() + "loss = { forward = \"100%\" }\n";
    assert_eq!(reread(&mut relay, &file, &half), "impair: 1 direction changed\n");
    passes(&relay, [false, true]);

    // A change that it cannot apply has no effect.
    mkfifo(&dir.path().join("pipe"), Mode::S_IRWXU).expect("made");
    let elsewhere = text.replacen("127.0.0.1:0", "127.0.0.1:9", 1);
    for (bad, says) in [
        (elsewhere, "link 1: its name, a, b or stream differs from what runs: "),
        (text.clone() + &text, "the number of links differs"),
        (format!("seed = 7\n{text}"), "seed differs"),
        (text.clone() + "delay = \"fast\"\n", "links.toml:4:9: "),
        (text.clone() + "trace = \"pipe\"\n", "pipe: it is no regular file"),
    ] {
        let said = reread(&mut relay, &file, &bad);
        assert!(said.starts_with("error: the links stay as they are: "), "{said}");
        assert!(said.contains(says), "{said}");
        passes(&relay, [false, true]);
    }
    assert_eq!(reread(&mut relay, &file, &text), "impair: 1 direction changed\n");
    passes(&relay, [true, true]);
    let ledger = relay.stop(sigterm);
    let link = &ledger["links"][0];
    // The counters continue. Of nine datagrams in each direction, one was lost in reverse.
    assert_eq!((packets(&link["forward"], "delivered"), packets(&link["forward"], "lost")), (2, 7));
    assert_eq!((packets(&link["reverse"], "delivered"), packets(&link["reverse"], "lost")), (8, 1));
    assert_adds_up(&link["forward"]);
}

#[apply(on_time)]
fn a_hangup_before_it_is_ready_is_not_its_end() {
    let (a, b) = (node().1, node().1);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("links.toml");
    mkfifo(&file, Mode::S_IRWXU).expect("made");
    let mut child = impair().arg(&file).spawn().expect("the binary starts");
    // Opening the pipe blocks until the relay reads it: the relay has started, and has no link yet.
    let mut config = std::fs::File::create(&file).expect("it reads");
    signal(&child, Signal::SIGHUP);
    config.write_all(link_between(a, b).as_bytes()).expect("written");
    // The file is read again at once, with the same contents.
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, link_between(a, b)).expect("written");
    drop(config);
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut wait_for = |what: &str| {
        let line = said.by_ref().map_while(Result::ok).find(|line| line.contains(what));
        assert!(line.is_some(), "it ended without: {what}");
    };
    wait_for("ready");
    wait_for("0 directions changed");
    sigterm(&mut child);
    assert!(child.wait().expect("it ends").success());
}

/// A trace that takes minutes is read while the links keep working.
#[apply(on_time)]
fn links_go_on_while_a_long_file_is_read() {
    let ((a, a_addr), (b, b_addr)) = (node(), node());
    let text = link_between(a_addr, b_addr);
    let (dir, mut relay) = start_from(&text);
    std::fs::write(dir.path().join("long"), vec![b'0'; 20_000_000]).expect("written");
    let via = relay.listens[0];
    let file = dir.path().join("links.toml");
    // If the links stalled meanwhile, only one or two packets would arrive. On a busy machine one
    // packet may take as long as reading the file, but not always.
    let mut counts = Vec::new();
    while counts.last().is_none_or(|n| *n <= 100) && counts.len() < 20 {
        counts.push(thread::scope(|scope| {
            let read = scope.spawn(|| {
                let text = text.clone() + "trace = \"long\"\n";
                assert_eq!(reread(&mut relay, &file, &text), "impair: 2 directions changed\n");
                Instant::now()
            });
            let mut came = Vec::new();
            while !read.is_finished() {
                a.send_to(b"there?", via).expect("sent");
                b.recv_from(&mut [0; 16]).expect("it comes");
                came.push(Instant::now());
            }
            let read = read.join().expect("it ends");
            came.iter().filter(|at| **at < read).count()
        }));
        assert_eq!(reread(&mut relay, &file, &text), "impair: 2 directions changed\n");
    }
    println!("{counts:?} packets, one after another, while the file was read");
    assert!(counts.last().is_some_and(|n| *n > 100), "{counts:?}");
    relay.stop(sigterm);
}

#[apply(on_time)]
fn a_trace_says_packet_by_packet() {
    let ((a, _), (b, b_addr)) = (node(), node());
    let dir = tempfile::tempdir().expect("a temporary folder");
    let trace = dir.path().join("outage.txt");
    std::fs::write(&trace, "# one outage\n0 1 1\n0\n").expect("written");
    let relay = Running::start(
        impair()
            .args(["--a", "127.0.0.1:0", "--b", &format!("127.0.0.1:0={b_addr}")])
            .arg("--trace")
            .arg(&trace),
    );
    for k in 0..10 {
        a.send_to(&[k], relay.listens[0]).expect("sent");
    }
    let mut got = Vec::new();
    let mut byte = [0];
    for _ in 0..5 {
        b.recv_from(&mut byte).expect("arrives");
        got.push(byte[0]);
    }
    assert_eq!(got, [0, 3, 4, 7, 8]);
    let ledger = relay.stop(sigterm);
    assert_eq!(packets(&ledger["links"][0]["forward"], "lost"), 5);
}

/// The DSCP EF (RFC 3246), and the ECT(0) codepoint of an ECN-capable sender (RFC 3168).
const EF: u8 = 46 << 2;
const ECT0: u8 = 2;

/// Sends from one `node` address to another, with these TOS bytes, through a narrow link with a
/// queue that marks packets. Returns the TOS bytes that arrive, and the ledger.
fn through_red(node: &str, listen: &str, toses: &[u8]) -> (Vec<u8>, Value) {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    let socket = || {
        let socket = UdpSocket::bind(node).expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(1_000))).expect("a socket option");
        socket
    };
    let (a, b) = (socket(), socket());
    let b_addr = b.local_addr().expect("bound");
    let v6 = b_addr.is_ipv6();
    if v6 {
        setsockopt(&b, sockopt::Ipv6RecvTClass, &true).expect("a socket option");
    } else {
        setsockopt(&b, sockopt::IpRecvTos, &true).expect("a socket option");
    }
    // A packet of 100 bytes takes 1 ms; the average equals the queue itself.
    let size = if listen.starts_with('[') { 52 } else { 72 };
    let (_dir, relay) = start_from(&format!(
        "[[link]]\na = {{ listen = \"{listen}\" }}\n\
         b = {{ listen = \"{listen}\", peer = \"{b_addr}\" }}\n\
         rate = {{ forward = \"800 kbit/s\" }}\nqueue = \"200 packets\"\n\
         red = {{ min = \"5 packets\", max = \"100 packets\", max_p = 0.5, weight = 1, ecn = true }}\n"
    ));
    let relay_at = SocketAddr::new(b_addr.ip(), relay.listens[0].port());
    for (tos, k) in toses.iter().zip(0u8..) {
        if v6 {
            setsockopt(&a, sockopt::Ipv6TClass, &i32::from(*tos)).expect("a socket option");
        } else {
            setsockopt(&a, sockopt::Ipv4Tos, &i32::from(*tos)).expect("a socket option");
        }
        a.send_to(&vec![k; size], relay_at).expect("sent");
    }
    let mut control = nix::cmsg_space!(i32);
    let mut bytes = [0; 100];
    let mut arrived = Vec::new();
    loop {
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg::<()>(b.as_raw_fd(), &mut iov, Some(&mut control), MsgFlags::empty());
        let Ok(message) = got else { break };
        arrived.extend(message.cmsgs().expect("room").filter_map(|c| match c {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
            _ => None,
        }));
    }
    let ledger = relay.stop(sigterm)["links"][0]["forward"].clone();
    assert_adds_up(&ledger);
    assert_eq!(arrived.len() as u64, packets(&ledger, "delivered"));
    (arrived, ledger)
}

#[apply(on_time)]
fn red_marks_what_can_be_marked_and_drops_the_rest() {
    // All are sent at once, so that the queue grows to some 80 packets.
    let cases = [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("127.0.0.1:0", "[::]:0")];
    for (node, listen) in cases {
        if UdpSocket::bind(listen).is_err() {
            println!("skipped: this machine has no IPv6");
            continue;
        }
        let (arrived, ledger) = through_red(node, listen, &[EF | ECT0; 80]);
        let marked = arrived.iter().filter(|&&tos| tos == (EF | 3)).count() as u64;
        let untouched = arrived.iter().filter(|&&tos| tos == (EF | ECT0)).count() as u64;
        assert_eq!((marked + untouched, arrived.len()), (80, 80), "{listen}: {arrived:?}");
        assert_eq!(marked, packets(&ledger, "marked"));
        assert!(marked > 10 && untouched > 10, "{listen}: {marked} of 80 marked");

        let (arrived, ledger) = through_red(node, listen, &[EF; 80]);
        assert!(arrived.iter().all(|&tos| tos == EF), "{listen}: {arrived:?}");
        assert_eq!(packets(&ledger, "marked"), 0);
        let early = packets(&ledger, "early_dropped");
        assert_eq!(early, packets(&ledger, "queue_dropped"));
        assert!(early > 5, "{listen}: {early} of 80 dropped");

        // Each datagram keeps its own TOS byte.
        let mixed: Vec<u8> = (0..6).map(|k| k << 4).collect();
        assert_eq!(through_red(node, listen, &mixed).0, mixed);
    }
}

/// Runs a command to its end, which must be a failure with one message.
fn failure(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("the binary starts");
    let text = String::from_utf8(stderr).expect("text");
    assert!(stdout.is_empty());
    assert!(common::is_message(&text), "{text}");
    (status.code(), text)
}

#[test]
fn a_busy_port_is_named() {
    let (_busy, addr) = node();
    let (code, text) = failure(impair().args([
        "--a",
        &format!("{addr}=127.0.0.1:9"),
        "--b",
        "127.0.0.1:0=127.0.0.1:9",
    ]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("cannot listen on {addr} for a")), "{text}");
    assert!(text.contains("choose another"), "{text}");
}

#[test]
fn bad_configurations_are_named_and_exit_with_2() {
    let ends = ["--a", "127.0.0.1:0=127.0.0.1:9", "--b", "127.0.0.1:0"];
    let (code, text) = failure(impair().args(ends).args(["--loss", "0.9", "--burst", "0"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("forward: loss 0.9 is more than burst 0 allows"), "{text}");

    let (code, text) = failure(impair().arg("/nonexistent/links.toml"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("cannot read /nonexistent/links.toml"), "{text}");

    let file = std::env::temp_dir().join(format!("trunkline-bad-{}.toml", std::process::id()));
    std::fs::write(&file, "seed = 1\n[[link]]\ndelay = \"10\"\n").expect("written");
    let (code, text) = failure(impair().arg(&file));
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains(".toml:3:9: \"10\" is not a length of time"), "{text}");
    assert!(text.ends_with("\n  3 | delay = \"10\"\n              ^\n"), "{text}");
}
