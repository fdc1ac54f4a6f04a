//! `trunkline proxy`: programs that support only UDP, over two real nodes.

use crate::common::on_time::on_time;
use crate::common::proxy::{LOCALHOST, end, pair, proxy, range, socket};
use crate::common::{self, Chain, Ended, Process, Setup, free_port, ms, run, trunkline, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{Address, Attachment, DatagramSocket, NodeId, Service, SocketOption};

/// A program that returns each datagram to its sender.
struct Echo {
    peers: thread::JoinHandle<BTreeSet<SocketAddr>>,
    over: Arc<AtomicBool>,
}

impl Echo {
    fn start(at: SocketAddr) -> Echo {
        let socket = UdpSocket::bind(at).expect("free");
        socket.set_read_timeout(Some(ms(20))).expect("an option");
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let peers = thread::spawn(move || {
            let (mut peers, mut buf) = (BTreeSet::new(), [0; 2_048]);
            while !ended.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buf) else { continue };
                peers.insert(from);
                // The sender may have gone.
                let _ = socket.send_to(&buf[..n], from);
            }
            peers
        });
        Echo { peers, over }
    }

    /// Stops the program, and returns the number of addresses that sent to it.
    fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.peers.join().expect("it ends").len()
    }
}

/// A program's socket, connected to `to`.
fn program(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((LOCALHOST, 0)).expect("a port");
    socket.connect(to).expect("connected");
    socket.set_read_timeout(Some(ms(200))).expect("an option");
    socket
}

/// Whether `question` is returned within a read timeout; no other datagram may arrive.
fn asks(socket: &UdpSocket, question: &[u8]) -> bool {
    let mut buf = [0; 2_048];
    socket.send(question).expect("sent");
    match socket.recv(&mut buf) {
        Ok(n) => {
            assert_eq!(&buf[..n], question);
            true
        }
        Err(_) => false,
    }
}

/// Repeats the question until it is answered.
fn ask(socket: &UdpSocket, question: &[u8]) {
    let mut buf = [0; 2_048];
    wait_for("an answer", || {
        socket.send(question).expect("sent");
        let n = socket.recv(&mut buf).ok()?;
        (&buf[..n] == question).then_some(())
    });
}

/// Two nodes and a proxy at each: `near` listens on UDP at `at`, and `far` sends by UDP to
/// `server`.
struct Bridge {
    chain: Chain,
    near: Process,
    far: Process,
    at: SocketAddr,
    server: SocketAddr,
}

impl Bridge {
    fn over(chain: Chain, near: &[&str], far: &[&str]) -> Bridge {
        let (at, server) = (free_port(LOCALHOST), free_port(LOCALHOST));
        let far = proxy(socket(&chain, 1), "2:4000", &format!("udp:{server}"), far);
        let near = proxy(socket(&chain, 0), &format!("udp:{at}"), "2:4000", near);
        Bridge { chain, near, far, at, server }
    }
}

/// Several programs at once send questions over a link that loses 5 % in each direction. Returns
/// the share that is answered.
fn share_answered(service: &str) -> f64 {
    const PROGRAMS: usize = 8;
    const QUESTIONS: usize = 100;
    let chain = Chain::start(&Setup {
        impair: "delay = \"5ms\"\nloss = \"5%\"\nburst = \"25%\"",
        ..Setup::default()
    });
    let bridge = Bridge::over(chain, &["--service", service], &["--service", service]);
    let echo = Echo::start(bridge.server);
    let at = bridge.at;
    let programs: Vec<_> = (0..PROGRAMS)
        .map(|k| {
            thread::spawn(move || {
                let socket = program(at);
                let asked = (0..QUESTIONS).map(|n| format!("question {n} of program {k}"));
                let answered = asked.filter(|q| {
                    // A late answer to the previous question does not count.
                    let start = Instant::now();
                    socket.send(q.as_bytes()).expect("sent");
                    let mut buf = [0; 200];
                    while start.elapsed() < ms(150) {
                        let Ok(n) = socket.recv(&mut buf) else { continue };
                        let answer = String::from_utf8_lossy(&buf[..n]);
                        assert!(answer.ends_with(&format!("program {k}")), "{answer} for {q}");
                        if answer == *q {
                            return true;
                        }
                    }
                    false
                });
                answered.count()
            })
        })
        .collect();
    let answered: usize = programs.into_iter().map(|p| p.join().expect("a count")).sum();
    assert_eq!(echo.end(), PROGRAMS, "each program has a port of its own at the other end");
    let (near, _) = end(bridge.near);
    assert_eq!(near["to_overlay"]["packets"], PROGRAMS * QUESTIONS, "{near}");
    assert_eq!(near["flows"]["opened"], PROGRAMS, "{near}");
    let (far, _) = end(bridge.far);
    assert_eq!(far["flows"]["opened"], PROGRAMS, "{far}");
    assert!(far["to_overlay"]["packets"] == far["from_overlay"]["packets"], "{far}");
    answered as f64 / (PROGRAMS * QUESTIONS) as f64
}

#[apply(on_time)]
fn several_programs_ask_and_each_gets_its_own_answers() {
    // Without recovery the share is 0.95², with it about 0.995².
    let with = share_answered("real-time");
    assert!(with > 0.97, "{with}");
    let without = share_answered("best-effort");
    assert!((0.8..0.96).contains(&without), "{without}");
}

#[apply(on_time)]
fn nodes_and_proxies_restart() {
    let mut bridge = Bridge::over(Chain::of(2), &[], &[]);
    let echo = Echo::start(bridge.server);
    let handle = program(bridge.at);
    ask(&handle, b"before");
    for i in [0, 1] {
        bridge.chain.nodes[i].crash();
        assert!(!asks(&handle, b"meanwhile"), "node {} is away", i + 1);
        // A program that starts while the node is away gets its answers later.
        let unconfigured_peer = program(bridge.at);
        assert!(!asks(&unconfigured_peer, b"too early"));
        bridge.chain.nodes[i].start();
        ask(&handle, format!("after node {}", i + 1).as_bytes());
        ask(&unconfigured_peer, b"now");
    }
    let Bridge { chain, near, far, at, server } = bridge;
    let (near, said) = end(near);
    assert!(said.contains("the node is away: packets are dropped"), "{said}");
    assert!(said.contains("was lost and is back; the proxy continues"), "{said}");
    assert!(near["reconnects"].as_u64() >= Some(1), "{near}");
    assert!(near["dropped"]["node_away"].as_u64() >= Some(1), "{near}");
    let (far, said) = end(far);
    assert!(said.contains("was lost and is back; the proxy continues"), "{said}");
    assert_eq!(far["reconnects"], 1, "{far}");
    // The proxies are new, the programs the same.
    let _near = proxy(socket(&chain, 0), &format!("udp:{at}"), "2:4000", &[]);
    let _far = proxy(socket(&chain, 1), "2:4000", &format!("udp:{server}"), &[]);
    ask(&handle, b"the end");
    assert!(echo.end() >= 3);
}

/// Packets that a proxy finds in its socket after it was stopped have passed their deadline.
#[apply(on_time)]
fn what_waited_for_a_proxy_past_its_deadline_is_dropped() {
    for (service, stale) in [("real-time", 10), ("best-effort", 0)] {
        let bridge = Bridge::over(Chain::of(2), &["--service", service], &[]);
        let echo = Echo::start(bridge.server);
        let program = program(bridge.at);
        ask(&program, b"before");
        bridge.near.signal(Signal::SIGSTOP);
        for _ in 0..10 {
            program.send(b"meanwhile").expect("sent");
        }
        thread::sleep(ms(300));
        bridge.near.signal(Signal::SIGCONT);
        let mut meanwhile = 0;
        wait_for("an answer", || {
            program.send(b"after").expect("sent");
            let mut buf = [0; 2_048];
            while let Ok(n) = program.recv(&mut buf) {
                match &buf[..n] {
                    b"meanwhile" => meanwhile += 1,
                    b"after" => return Some(()),
                    _ => {}
                }
            }
            None
        });
        assert_eq!(meanwhile, 10 - stale, "{service}");
        assert!(echo.end() >= 1);
        let (near, said) = end(bridge.near);
        let dropped = near["dropped"]["stale"].as_u64().unwrap_or(0);
        assert!(dropped >= stale && (stale > 0 || dropped == 0), "{near}");
        assert_eq!(said.contains("while this program was not running"), stale > 0, "{said}");
    }
}

#[apply(on_time)]
fn what_does_not_get_there_is_counted_and_said_once() {
    let mut chain = Chain::of(2);
    let at = free_port(LOCALHOST);
    let near = proxy(socket(&chain, 0), &format!("udp:{at}"), "2:4000", &[]);
    let program = program(at);
    let say = |times: usize| {
        for _ in 0..times {
            program.send(b"is anybody there?").expect("sent");
            thread::sleep(ms(20));
        }
    };
    let told = |what: &str| wait_for(what, || near.stderr().contains(what).then_some(()));
    say(10);
    told("no application is bound to 2:4000: packets to there are lost");
    say(20);
    // Bind the port and send something.
    let server = chain.nodes[1].bind(4_000);
    say(1);
    let mut buf = [0; 100];
    let got = server.recv_from(&mut buf).expect("a packet");
    server.send_to(b"yes", got.from).expect("sent");
    told("2:4000 can be reached again");
    drop(server);
    chain.nodes[1].crash();
    // A node notices after a second.
    say(75);
    told("node 2 has been unreachable for ");
    let (tally, said) = end(near);
    let dropped = |why: &str| tally["dropped"][why].as_u64().expect("a count");
    assert!((25..=31).contains(&dropped("no_port")), "{tally}");
    assert!((10..=40).contains(&dropped("no_route")), "{tally}");
    for what in ["no application is bound", "can be reached again", "has been unreachable for"] {
        assert_eq!(said.matches(what).count(), 1, "{said}");
    }
}

#[apply(on_time)]
fn what_is_too_large_is_dropped_and_said_once() {
    let bridge = Bridge::over(Chain::of(2), &[], &[]);
    assert!(
        bridge.near.stderr().contains("packets of up to 1188 bytes"),
        "{}",
        bridge.near.stderr()
    );
    let echo = Echo::start(bridge.server);
    let handle = program(bridge.at);
    // The first packet of a flow takes a different path: it waits for the flow's port.
    handle.send(&[7; 1_189]).expect("sent");
    for size in [1_188, 1_189, 0, 9_001, 1, 65_507, 1_188] {
        let question: Vec<u8> = (0..size).map(|n| (n * 7) as u8).collect();
        assert_eq!(asks(&handle, &question), size <= 1_188, "{size} bytes");
    }
    let (near, said) = end(bridge.near);
    assert_eq!(near["dropped"]["too_large"], 4, "{near}");
    assert_eq!(near["to_overlay"]["packets"], 4, "{near}");
    assert_eq!(near["to_overlay"]["bytes"], 2 * 1_188 + 1, "{near}");
    let warned: Vec<_> = said.lines().filter(|l| l.contains("1189 bytes was dropped")).collect();
    assert_eq!(warned.len(), 1, "{said}");
    assert!(warned[0].contains("up to 1188") && warned[0].contains("pkt_size=1188"), "{said}");
    assert!(!said.contains("65507"), "{said}");
    assert_eq!(echo.end(), 1);
}

#[apply(on_time)]
fn only_the_far_end_gets_in() {
    let chain = Chain::of(2);
    let at = free_port(LOCALHOST);
    let near = proxy(socket(&chain, 0), &format!("udp:{at}"), "2:4000", &[]);
    let far = chain.nodes[1].bind(4_000);
    let handle = program(at);
    handle.send(b"hello").expect("sent");
    let mut buf = [0; 200];
    let got = far.recv_from(&mut buf).expect("the question");
    assert_eq!(&buf[..got.len], b"hello");
    let unknown_peer = chain.nodes[1].bind(0);
    for _ in 0..3 {
        unknown_peer.send_to(b"let me in", got.from).expect("sent");
    }
    far.send_to(b"hello to you", got.from).expect("sent");
    let n = handle.recv(&mut buf).expect("the answer");
    assert_eq!(&buf[..n], b"hello to you");
    let (near, said) = end(near);
    assert_eq!(near["dropped"]["unknown_peer"], 3, "{near}");
    assert!(said.contains("packets from elsewhere than 2:4000 were dropped"), "{said}");
}

#[apply(on_time)]
fn the_table_is_bounded_and_forgets_who_is_silent() {
    const MAX: usize = 4;
    let limits = ["--max-flows", "4", "--idle", "1500ms"];
    let bridge = Bridge::over(Chain::of(2), &limits, &limits);
    let echo = Echo::start(bridge.server);
    let askers: Vec<_> = (0..=MAX).map(|_| program(bridge.at)).collect();
    for handle in &askers[..MAX] {
        ask(handle, b"there is room");
    }
    // The first sender is active again, so the second is evicted.
    ask(&askers[0], b"still here");
    ask(&askers[MAX], b"one too many");
    assert_eq!(askers[1].recv(&mut [0; 9]).ok(), None);
    // It returns as a new sender, in place of the third.
    ask(&askers[1], b"back");
    // All are silent for longer than --idle, so the next one is a new flow, too.
    thread::sleep(ms(3_500));
    ask(&askers[0], b"again");
    let (near, said) = end(bridge.near);
    let flows = &near["flows"];
    assert_eq!((&flows["opened"], &flows["displaced"]), (&7.into(), &2.into()), "{near}");
    assert_eq!(flows["expired"], MAX, "{near}");
    assert!(said.contains("more than 4 senders at once") && said.contains("--max-flows"), "{said}");
    let (far, _) = end(bridge.far);
    assert_eq!(far["flows"], *flows, "{far}");
    assert_eq!(echo.end(), 7);
}

/// Node 1 sends from ten thousand ports, beside a program at node 3.
#[apply(on_time)]
fn a_node_with_many_ports_displaces_only_its_own_flows() {
    let chain = Chain::of(3);
    let (at, server) = (free_port(LOCALHOST), free_port(LOCALHOST));
    let far = proxy(socket(&chain, 1), "2:4000", &format!("udp:{server}"), &["--max-flows", "64"]);
    let near = proxy(socket(&chain, 2), &format!("udp:{at}"), "2:4000", &[]);
    let echo = UdpSocket::bind(server).expect("free");
    let peers = thread::spawn(move || {
        let (mut peers, mut buf) = (BTreeSet::new(), [0; 99]);
        echo.set_read_timeout(Some(ms(2_000))).expect("an option");
        while let Ok((n, from)) = echo.recv_from(&mut buf) {
            if buf[..n].starts_with(b"honest") {
                peers.insert(from);
                echo.send_to(&buf[..n], from).expect("sent");
            }
        }
        peers
    });
    let honest = program(at);
    ask(&honest, b"honest at first");
    let to = Address { node: NodeId(2), port: 4_000 };
    let at = Attachment::from(socket(&chain, 0));
    for port in 20_000..30_000 {
        let socket = DatagramSocket::bind(at.clone(), port).expect("a port");
        socket.set_option(SocketOption::Service(Service::Reliable)).expect("an option");
        socket.send_to(b"x", to).expect("sent");
        if port % 500 == 0 {
            ask(&honest, b"honest meanwhile");
        }
    }
    ask(&honest, b"honest afterwards");
    assert_eq!(peers.join().expect("it ends").len(), 1, "always the same flow");
    let (far, log) = end(far);
    assert!(far["flows"]["displaced"].as_u64() > Some(5_000), "{far}");
    assert!(log.contains("--max-flows-per-node"), "{log}");
    let (near, _) = end(near);
    assert_eq!(near["flows"]["displaced"], 0, "{near}");
}

#[apply(on_time)]
fn a_program_that_is_not_there_yet_ends_nothing() {
    let bridge = Bridge::over(Chain::of(2), &[], &[]);
    let handle = program(bridge.at);
    for _ in 0..5 {
        assert!(!asks(&handle, b"is anybody there?"));
    }
    let echo = Echo::start(bridge.server);
    ask(&handle, b"now there is");
    // A server that goes away.
    drop(handle);
    let gone = program(bridge.at);
    gone.send(b"I will not wait").expect("sent");
    drop(gone);
    ask(&program(bridge.at), b"somebody else");
    let (far, said) = end(bridge.far);
    assert_eq!(far["dropped"]["udp_refused"], 5, "{far}");
    assert!(said.contains("no program listens at the UDP address"), "{said}");
    assert_eq!(said.matches("no program listens").count(), 1, "{said}");
    assert_eq!(end(bridge.near).0["dropped"]["udp_unsent"], 0);
    echo.end();
}

#[apply(on_time)]
fn pairs_of_ports_and_nodes_of_other_kinds() {
    let mut chain = Chain::prepare(&Setup { sealed: true, ..Setup::default() });
    chain.nodes[1].start();
    // The near node runs inside the proxy, the far one on another host.
    let (at, server) = (pair(), pair());
    let remote = chain.nodes[1].attachment();
    let far = proxy(&remote, "2:5004-5005", &range(server), &[]);
    let config = chain.nodes[0].config.to_str().expect("text").to_owned();
    let near = ["proxy", "--json", "--node", &config, &range(at), "2:5004-5005"];
    let mut near = Process::start(&mut trunkline(near));
    near.wait_for_word("listening on");
    let echoes = [0, 1].map(|k| Echo::start(SocketAddr::new(LOCALHOST, server.port() + k)));
    let (rtp, rtcp) = (program(at), program(SocketAddr::new(LOCALHOST, at.port() + 1)));
    ask(&rtp, b"RTP");
    ask(&rtcp, b"RTCP");
    assert!(asks(&rtp, b"more RTP"));
    assert_eq!(echoes.map(Echo::end), [1, 1]);
    assert_eq!(end(near).0["flows"]["opened"], 2);
    assert_eq!(end(far).0["flows"]["opened"], 2);
}

#[test]
fn mistakes_are_told_at_once() {
    let chain = Chain::of(2);
    let at = free_port(LOCALHOST);
    let udp = format!("udp:{at}");
    let near = socket(&chain, 0);
    let fails = |node: &str, args: &[&str]| -> Ended {
        run(trunkline(["proxy", "--socket", node]).args(args))
    };
    let wrong = [
        (["udp:127.0.0.1:1", &udp], "give one end as udp:HOST:PORT or tcp:HOST:PORT"),
        (["1:4000", "2:4000"], "the other as NODE:PORT"),
        (["2:4000", &udp], "is 1, so it would be 1:4000"),
        ([&range(at), "2:4000"], "is 2 ports, 2:4000 1: give as many of both"),
    ];
    for (ends, says) in wrong {
        let ended = fails(near, &ends);
        assert!(ended.one_line(2).contains(says), "{}", ended.stderr);
    }
    let ended = fails(near, &[&udp, "2:4000", "--deadline", "1 s"]);
    assert!(ended.one_line(2).contains("give 1 to 255 ms"), "{}", ended.stderr);
    let ended = fails(near, &["5004", "2:4000"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("udp:127.0.0.1:5004"), "{}", ended.stderr);

    let _taken = UdpSocket::bind(at).expect("free");
    let ended = fails(near, &[&udp, "2:4000"]);
    assert!(ended.one_line(1).contains(&format!("listen on UDP {at}")), "{}", ended.stderr);
    assert!(ended.stderr.contains("stop what uses it"), "{}", ended.stderr);
    let ended = fails(near, &["udp:192.0.2.77:5004", "2:4000"]);
    assert!(ended.one_line(1).contains("an address of this machine"), "{}", ended.stderr);
    let _bound = chain.nodes[0].bind(4_000);
    let ended = fails(near, &["1:4000", "udp:127.0.0.1:9"]);
    assert!(ended.one_line(1).contains("virtual port 4000 belongs"), "{}", ended.stderr);
    let ended = fails(near, &["1:4001", "udp:no-such-host.invalid:9"]);
    assert!(ended.one_line(1).contains("find the address of udp:no-such"), "{}", ended.stderr);
    let ended = fails("/nowhere/a.sock", &[&udp, "2:4000"]);
    assert!(ended.one_line(1).contains("is it running"), "{}", ended.stderr);
}

/// Datagrams of every kind, at a rate that no receiver can handle.
#[apply(on_time)]
fn a_flood_of_garbage_passes_or_is_counted() {
    let bridge = Bridge::over(Chain::of(2), &["--max-flows", "8"], &["--max-flows", "8"]);
    let echo = Echo::start(bridge.server);
    let until = Instant::now() + Duration::from_secs(2);
    let mut sent = 0u64;
    let mut bytes = vec![0u8; 3_000];
    while Instant::now() < until {
        let socket = program(bridge.at);
        for k in 0..20_u64 {
            let n = (sent * 7_919 + k) as usize % bytes.len();
            bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i as u64 * sent + k) as u8);
            sent += u64::from(socket.send(&bytes[..n]).is_ok());
        }
    }
    ask(&program(bridge.at), b"still alive");
    let (near, _) = end(bridge.near);
    println!("{sent} datagrams: {near}");
    assert!(near["dropped"]["too_large"].as_u64() > Some(0), "{near}");
    assert!(near["flows"]["displaced"].as_u64() > Some(0), "{near}");
    end(bridge.far);
    echo.end();
    let mut chain = bridge.chain;
    chain.nodes.iter_mut().for_each(common::Node::assert_healthy);
    let sessions = || chain.nodes[0].metrics().sum("sessions", "");
    wait_for("the node to forget the flows", || (sessions() == 0).then_some(()));
}

#[apply(on_time)]
fn a_call_whose_media_go_another_way_is_told_of_once() {
    let bridge = Bridge::over(Chain::of(2), &[], &[]);
    let echo = Echo::start(bridge.server);
    let socket = program(bridge.at);
    let sdp = "v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 4000 RTP/AVP 0\r\n";
    let invite =
        format!("INVITE sip:b@192.0.2.2 SIP/2.0\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len());
    ask(&socket, b"no call");
    assert!(!bridge.near.stderr().contains("bypass the overlay"));
    for _ in 0..3 {
        ask(&socket, invite.as_bytes());
    }
    let warned = |process: &Process| process.stderr().matches("bypass the overlay").count();
    for process in [&bridge.near, &bridge.far] {
        wait_for("a warning", || (warned(process) > 0).then_some(()));
        let said = process.stderr();
        assert!(said.contains("192.0.2.1:4000") && said.contains("[sip]"), "{said}");
        assert_eq!(warned(process), 1, "{said}");
    }
    echo.end();
}
