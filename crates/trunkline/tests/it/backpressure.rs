//! Applications that do not keep up, and nodes that do not: each harms only itself.

use crate::common::on_time::on_time;
use crate::common::raw::{Raw, bytes};
use crate::common::{
    self, Chain, Node, allow_files, ms, numbered, run, trunkline, try_recv_number,
};
use macro_rules_attribute::apply;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{Address, DatagramSocket, Error, SocketOption};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};

/// Transport by which an application attaches.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Unix,
    Tcp,
    Udp,
}

/// An application that reads only on request.
enum Lazy {
    Library(DatagramSocket),
    /// A TCP session without the library, which would prefer UDP.
    Tcp(Box<Raw>),
}

const LAZY: u16 = 4_999;

impl Lazy {
    fn attach(node: &Node, by: By) -> Lazy {
        match by {
            By::Unix => Lazy::Library(node.bind(LAZY)),
            By::Udp => Lazy::Library(node.bind_remote(LAZY)),
            By::Tcp => {
                let mut raw = Raw::connect(node);
                let bind = ToNode::Bind { version: SESSION_VERSION, port: LAZY };
                raw.say(&bytes(|w| bind.emit_head(w)));
                let answer = raw.read().expect("an answer");
                assert!(matches!(ToClient::parse(&answer), Ok(ToClient::Bound { .. })));
                Lazy::Tcp(Box::new(raw))
            }
        }
    }

    /// Reads until `last` arrives, and returns the number of packets before it.
    fn read_until(&mut self, last: &[u8]) -> u64 {
        let mut buf = vec![0; 9_000];
        for n in 0.. {
            let got = match self {
                Lazy::Library(socket) => match socket.recv_from(&mut buf) {
                    Ok(got) => buf[..got.len].to_vec(),
                    Err(error) => panic!("{error}"),
                },
                Lazy::Tcp(raw) => match ToClient::parse(&raw.read().expect("a message")) {
                    Ok(ToClient::Received { payload, .. }) => payload.to_vec(),
                    other => panic!("{other:?}"),
                },
            };
            if got == last {
                return n;
            }
        }
        unreachable!("it counts for ever")
    }
}

/// Two nodes with control sockets, to which applications can attach as in `by`.
fn chain(by: By) -> Chain {
    let setup = common::Setup { sealed: by != By::Unix, ..common::Setup::default() };
    let mut chain = Chain::prepare(&setup);
    for node in &chain.nodes {
        let text = fs::read_to_string(&node.config).expect("written before");
        let control = node.socket.with_extension("ctl");
        let line = format!("[node]\ncontrol = {:?}", control.to_str().expect("text"));
        fs::write(&node.config, text.replacen("[node]", &line, 1)).expect("written");
    }
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    chain
}

/// The flow to `port` at `node`, as shown to the operator.
fn flow_to(node: &Node, port: u16) -> Value {
    let control = node.socket.with_extension("ctl");
    let ended = run(trunkline(["flows", "--json", "--control"]).arg(control));
    let flows: Vec<Value> = serde_json::from_str(&ended.stdout).expect("a list");
    let of_port = |f: &Value| f["port"] == port && f["direction"] == "in";
    flows.into_iter().find(of_port).expect("the flow")
}

const READERS: usize = 200;
/// Packets per reader and round, at 50 per second.
const PACKETS: u32 = 75;

/// Packets that the readers received in one round.
#[derive(Default)]
struct Heard {
    packets: u64,
    /// Delay of each packet, in ascending order.
    delays: Vec<Duration>,
}

impl Heard {
    fn add(&mut self, more: Heard) {
        self.packets += more.packets;
        self.delays.extend(more.delays);
        self.delays.sort();
    }

    fn quantile(&self, share: f64) -> Duration {
        self.delays[(self.delays.len() as f64 * share) as usize]
    }
}

/// Sends a packet, retrying until a busy machine has scheduled the sender's node.
fn send(from: &DatagramSocket, packet: &[u8], to: Address) {
    while let Err(error) = from.send_to(packet, to) {
        assert!(matches!(error, Error::WouldBlock), "{error}");
        thread::sleep(ms(1));
    }
}

/// Sends fifty packets per second to each of `readers`, and ten times as many large ones to `lazy`,
/// if it is given. Returns the packets that the readers received, and the number sent to `lazy`.
fn round(from: &DatagramSocket, readers: &[DatagramSocket], lazy: Option<Address>) -> (Heard, u64) {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let hears = scope.spawn(|| read_all(readers, start, &stop));
        let mut sent = 0;
        // The readers are not served at the same moment: a tenth of them every 2 ms.
        for k in 0..PACKETS * 10 {
            let due = start + ms(2) * k;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            for reader in readers.iter().skip(k as usize % 10).step_by(10) {
                let packet = numbered(start.elapsed().as_micros() as u32);
                send(from, &packet, reader.local_addr());
            }
            if let Some(lazy) = lazy {
                send(from, &vec![0; from.max_payload()], lazy);
                sent += 1;
            }
        }
        thread::sleep(ms(500));
        stop.store(true, Ordering::Relaxed);
        (hears.join().expect("the readers end"), sent)
    })
}

fn read_all(readers: &[DatagramSocket], start: Instant, stop: &AtomicBool) -> Heard {
    let mut heard = Heard::default();
    let watch = |r| PollFd::new(r, PollFlags::POLLIN);
    let mut fds: Vec<_> = readers.iter().map(|r| watch(r.as_fd())).collect();
    while !stop.load(Ordering::Relaxed) {
        poll(&mut fds, PollTimeout::from(50u8)).expect("polled");
        for (fd, reader) in fds.iter().zip(readers) {
            if fd.any() == Some(true) {
                while let Ok((sent_us, _)) = try_recv_number(reader) {
                    let sent = Duration::from_micros(sent_us.into());
                    heard.delays.push(start.elapsed().saturating_sub(sent));
                    heard.packets += 1;
                }
            }
        }
    }
    heard
}

fn one_never_reads_beside_200_that_do(by: By) {
    if !allow_files(4_000) {
        println!("skipped: the system does not allow 4,000 open files");
        return;
    }
    let mut chain = chain(by);
    let (near, far) = (&chain.nodes[0], &chain.nodes[1]);
    let from = near.bind(0);
    let attach = || if by == By::Unix { far.bind(0) } else { far.bind_remote(0) };
    let readers: Vec<_> = (0..READERS).map(|_| attach()).collect();
    for reader in &readers {
        reader.set_option(SocketOption::Nonblocking(true)).expect("in range");
        reader.set_option(SocketOption::Late(true)).expect("in range");
    }
    let mut lazy = Lazy::attach(far, by);
    if let Lazy::Library(lazy) = &lazy {
        lazy.set_option(SocketOption::Late(true)).expect("in range");
    }
    let to = far.address(LAZY);
    // After one packet per flow, memory use is stable.
    round(&from, &readers, Some(to));
    let grown = |chain: &mut Chain, since: u64| chain.last().resident().saturating_sub(since);
    let resident = chain.last().resident();
    let (mut without, mut beside, mut sent) = (Heard::default(), Heard::default(), 0);
    for _ in 0..2 {
        without.add(round(&from, &readers, None).0);
        let (heard, to_lazy) = round(&from, &readers, Some(to));
        beside.add(heard);
        sent += to_lazy;
    }
    let grown = grown(&mut chain, resident);
    let far = &chain.nodes[1];
    let full = far.metrics().drops("session_full");
    let due = 2 * u64::from(PACKETS) * READERS as u64;
    println!(
        "{by:?}: {} of {due} packets without it, {} beside it; p50 {:?} and {:?}, p99 {:?} and \
         {:?}; {full} of its packets dropped in the end, {sent} sent; the node grew by {grown} KiB",
        without.packets,
        beside.packets,
        without.quantile(0.5),
        beside.quantile(0.5),
        without.quantile(0.99),
        beside.quantile(0.99),
    );
    assert_eq!(without.packets, due, "else the machine is too slow to judge");
    assert_eq!(beside.packets, due, "the readers lose nothing");
    assert!(beside.quantile(0.5) <= 2 * without.quantile(0.5) + ms(5));
    assert!(beside.quantile(0.99) <= 2 * without.quantile(0.99) + ms(20));
    assert!(grown <= 1_024, "the node grew by {grown} KiB");
    if by != By::Udp {
        // Over UDP the client's kernel drops them, which the node cannot see.
        assert!(full > 0, "{sent} packets fit what is kept for one who reads nothing");
        let flow = flow_to(far, LAZY);
        assert_eq!(flow["refused"], full, "all of them are its own: {flow}");
    }
    it_comes_back(&from, &mut lazy, to);
    chain.last().assert_healthy();
}

/// Checks that it reads the queue and then receives current packets again, repeatedly.
fn it_comes_back(from: &DatagramSocket, lazy: &mut Lazy, to: Address) {
    for time in 1..=3u8 {
        let done = AtomicBool::new(false);
        let (done, present) = (&done, [time; 9]);
        thread::scope(|scope| {
            let said = scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    send(from, &present, to);
                    thread::sleep(ms(20));
                }
            });
            let before = lazy.read_until(&present);
            println!("time {time}: {before} packets had waited");
            done.store(true, Ordering::Relaxed);
            said.join().expect("it ends");
        });
        // The application falls behind again.
        for _ in 0..200 {
            send(from, &vec![0; from.max_payload()], to);
            thread::sleep(ms(2));
        }
    }
}

#[apply(on_time)]
fn one_on_this_host_never_reads_beside_200_that_do() {
    one_never_reads_beside_200_that_do(By::Unix);
}

#[apply(on_time)]
fn one_over_tcp_never_reads_beside_200_that_do() {
    one_never_reads_beside_200_that_do(By::Tcp);
}

#[apply(on_time)]
fn one_over_udp_never_reads_beside_200_that_do() {
    one_never_reads_beside_200_that_do(By::Udp);
}
