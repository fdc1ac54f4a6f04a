//! `bench idle`: cost of a node that has sealed links and no traffic. Its neighbours run in another
//! process, so that its memory can be measured on its own.

use super::markdown::Table;
use super::sealed::identity;
use super::under_test::{cpu_ns, new_thread, start_node, threads};
use super::{Error, cannot, print_json};
use crate::clock;
use crate::datapath::mmsg::{BATCH, RxBatch};
use crate::datapath::{NodeHandle, Snapshot, record};
use crate::units::Span;
use arrayvec::ArrayVec;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::time::Duration;
use trunkline_overlay::arena::{RxDatagram, TxArena};
use trunkline_overlay::link;
use trunkline_overlay::node::{Config, Drained, Node, Routing, Sealing, SendOutcome, Sink, Start};
use trunkline_overlay::session::SessionId;
use trunkline_overlay::wire::{Incarnation, NodeId};

/// The measured node; its neighbours have the numbers that follow.
const OWN: NodeId = NodeId(100);

/// Measure an idle node with sealed links: processor, bytes, memory
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline bench idle
  trunkline bench idle --links 10 --hello \"1 s\" --json

Each link has its own neighbour, all routing by link state, in another process.
Bytes are those of UDP payloads; IP and UDP add 28 to each datagram, or 48.
Memory is this process's resident set, most of it the program itself.")]
pub struct Args {
    /// Links of the node
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    links: u16,
    /// Duration of the measurement
    #[arg(long, default_value = "10 s")]
    time: Span,
    /// Interval between hellos, at both ends
    #[arg(long, default_value = "200 ms")]
    hello: Span,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the result as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Arguments of the process that runs the neighbours.
#[derive(clap::Args, Debug)]
pub struct NeighbourArgs {
    #[arg(long)]
    node: SocketAddr,
    #[arg(long)]
    links: u16,
    #[arg(long)]
    hello: Span,
    /// Time after which the process exits on its own.
    #[arg(long)]
    time: Span,
}

#[derive(Serialize)]
struct Report {
    links: u16,
    seconds: f64,
    hello_ms: f64,
    /// Share of a processor that the packet thread used.
    cpu: f64,
    wakeups_per_second: f64,
    /// UDP payload per link and second: the mean, and the busiest link.
    sent: PerLink,
    received: PerLink,
    /// Resident memory of the process before the node started, and at the end, KiB.
    rss_before_kib: u64,
    rss_kib: u64,
}

#[derive(Serialize)]
struct PerLink {
    bytes: f64,
    most: f64,
    datagrams: f64,
}

fn link_to(neighbour: NodeId, hello: Duration) -> link::Config {
    let mut link = link::Config::new(neighbour);
    link.key = Some(identity(neighbour).public());
    link.liveness.interval = hello;
    link.liveness.dead_after = link.liveness.dead_after.max(5 * hello);
    link
}

fn sealed(id: NodeId, links: u16) -> Config {
    let mut config = Config::new(id);
    let mut sealing = Sealing::new(identity(id));
    sealing.known = (0..=links).map(neighbour).map(|n| (n, identity(n).public())).collect();
    config.sealing = Some(sealing);
    config.routing = Some(Routing::default());
    config
}

fn neighbour(n: u16) -> NodeId {
    NodeId(OWN.0 + u32::from(n))
}

/// The neighbours' process, killed when this is dropped.
struct Neighbours(Child);

impl Drop for Neighbours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `bench idle` and prints its result.
pub fn run(args: &Args) -> Result<(), Error> {
    let rss_before_kib = rss_kib();
    let mut config = sealed(OWN, args.links);
    config.links = (1..=args.links).map(|n| link_to(neighbour(n), args.hello.0)).collect();
    let before = threads();
    let (handle, entry) = start_node(config, false)?;
    let tid = new_thread(&before)?;
    let node = handle.node_handle();
    let patience = Duration::from_secs(10);
    let program = std::env::current_exe().map_err(cannot("find this program"))?;
    let mut command = Command::new(program);
    command.args(["bench", "idle-neighbours", "--node", &entry.to_string()]);
    command.args(["--links", &args.links.to_string()]);
    command.args(["--hello", &format!("{} ms", args.hello.0.as_millis())]);
    let whole = args.time.0 + 2 * patience;
    command.args(["--time", &format!("{} s", whole.as_secs())]);
    let neighbours = Neighbours(command.spawn().map_err(cannot("start the neighbours"))?);
    wait_until_up(&node, args.links, patience)?;
    // Routes have spread and losses have been measured in this time.
    std::thread::sleep(Duration::from_secs(3));

    let look = || node.snapshot().ok_or(Error::Broken("the packet thread is silent"));
    let (first, cpu, start) = (look()?, cpu_ns(tid), clock::now());
    std::thread::sleep(args.time.0);
    let (cpu, seconds) = (cpu_ns(tid) - cpu, clock::now().since(start).as_secs_f64());
    let last = look()?;
    let rss_kib = rss_kib();
    drop(neighbours);
    handle.stop().map_err(cannot("stop the packet thread"))?;
    let report = Report {
        links: args.links,
        seconds,
        hello_ms: args.hello.0.as_secs_f64() * 1e3,
        cpu: cpu as f64 / seconds / 1e9,
        wakeups_per_second: (last.thread.wakeups - first.thread.wakeups) as f64 / seconds,
        sent: per_link(&first, &last, seconds, |s| {
            let sent = s.sent();
            (sent.bytes, sent.envelopes)
        }),
        received: per_link(&first, &last, seconds, |s| (s.received.bytes, s.received.envelopes)),
        rss_before_kib,
        rss_kib,
    };
    match (args.json, args.markdown) {
        (true, _) => print_json(&report),
        (_, true) => markdown(&report),
        _ => print(&report),
    }
    Ok(())
}

fn wait_until_up(handle: &NodeHandle, links: u16, patience: Duration) -> Result<(), Error> {
    let end = clock::now() + patience;
    while clock::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        let up = |s: Snapshot| s.links.iter().filter(|l| l.up).count();
        if handle.snapshot().map_or(0, up) == usize::from(links) {
            return Ok(());
        }
    }
    Err(Error::Broken("not all links came up within 10 s"))
}

fn per_link(
    first: &Snapshot,
    last: &Snapshot,
    seconds: f64,
    count: fn(&link::LinkStats) -> (u64, u64),
) -> PerLink {
    let rates = last.links.iter().zip(&first.links).map(|(b, a)| {
        let (a, b) = (count(&a.stats), count(&b.stats));
        ((b.0 - a.0) as f64 / seconds, (b.1 - a.1) as f64 / seconds)
    });
    let rates: Vec<(f64, f64)> = rates.collect();
    let n = rates.len().max(1) as f64;
    PerLink {
        bytes: rates.iter().map(|r| r.0).sum::<f64>() / n,
        most: rates.iter().map(|r| r.0).fold(0.0, f64::max),
        datagrams: rates.iter().map(|r| r.1).sum::<f64>() / n,
    }
}

/// Resident memory of this process.
fn rss_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn markdown(r: &Report) {
    let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
    let link = |p: &PerLink| format!("{:.0} bytes/s in {:.1} datagrams/s", p.bytes, p.datagrams);
    let rows = [
        ("processor", format!("{:.2} %", r.cpu * 100.0)),
        ("wake-ups", format!("{:.0}/s", r.wakeups_per_second)),
        ("sent on each link, UDP payload", link(&r.sent)),
        ("received on each link, UDP payload", link(&r.received)),
        ("resident memory", mib(r.rss_kib)),
        ("resident memory before the node started", mib(r.rss_before_kib)),
    ];
    Table {
        title: "An idle node",
        command: format!("idle --links {} --hello \"{:.0} ms\"", r.links, r.hello_ms),
        columns: &["", &format!("{} sealed links", r.links)],
        rows: rows.map(|(what, value)| vec![what.to_owned(), value]).into(),
        notes: Vec::new(),
    }
    .print();
}

fn print(r: &Report) {
    outln!(
        "{} sealed links, hellos every {:.0} ms, {:.1} s idle: {:.2} % of a processor, {:.0} wake-ups/s",
        r.links,
        r.hello_ms,
        r.seconds,
        r.cpu * 100.0,
        r.wakeups_per_second
    );
    for (what, p) in [("sent", &r.sent), ("received", &r.received)] {
        outln!(
            "each link {what:<8} {:>6.0} bytes/s (most {:.0}) in {:.1} datagrams/s",
            p.bytes,
            p.most,
            p.datagrams
        );
    }
    outln!(
        "resident {:.1} MiB, of which {:.1} before the node started",
        r.rss_kib as f64 / 1024.0,
        r.rss_before_kib as f64 / 1024.0
    );
}

struct Hole;

impl Sink for Hole {
    fn deliver(&mut self, _: SessionId, _: &[u8], _: &[u8]) -> SendOutcome {
        SendOutcome::Accepted
    }
}

/// One neighbour: a real node on a real socket.
struct Neighbour {
    node: Node,
    socket: UdpSocket,
}

/// Runs the neighbours' process.
pub fn neighbours(args: &NeighbourArgs) -> Result<(), Error> {
    let start = clock::now();
    let mut all = Vec::new();
    for n in 1..=args.links {
        let mut config = sealed(neighbour(n), args.links);
        let mut link = link_to(OWN, args.hello.0);
        link.address = Some(args.node);
        config.links.push(link);
        let incarnation = Incarnation(clock::since_epoch());
        let node = Node::new(
            config,
            Start {
                unix_nanos: clock::since_epoch(),
                ..Start::simulated(start, incarnation, n.into())
            },
        );
        let node = node.map_err(|_| Error::Broken("a neighbour refused its configuration"))?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot("bind a socket"))?;
        socket.set_nonblocking(true).map_err(cannot("make a socket non-blocking"))?;
        all.push(Neighbour { node, socket });
    }
    let (mut rx, mut arena) = (RxBatch::new(), record::arena());
    while clock::now().since(start) < args.time.0 {
        for neighbour in &mut all {
            neighbour.turn(&mut rx, &mut arena)?;
        }
        let mut fds: Vec<_> =
            all.iter().map(|n| PollFd::new(n.socket.as_fd(), PollFlags::POLLIN)).collect();
        let _ = poll(&mut fds, PollTimeout::from(2u8));
    }
    Ok(())
}

impl Neighbour {
    fn turn(&mut self, rx: &mut RxBatch, arena: &mut TxArena) -> Result<(), Error> {
        let now = clock::now();
        while rx.recv(self.socket.as_fd()).map_err(cannot("receive"))? > 0 {
            let mut batch = ArrayVec::<RxDatagram<'_>, BATCH>::new();
            for (m, bytes) in rx.iter_mut() {
                batch.push(RxDatagram { at: now, from: m.from, local: None, bytes });
            }
            self.node.recv(now, &mut batch, &mut Hole);
        }
        self.node.handle_timeout(now, &mut Hole);
        loop {
            let drained = self.node.transmit(now, arena);
            for run in arena.runs() {
                for bytes in arena.envelopes(run) {
                    let _ = self.socket.send_to(bytes, run.to);
                }
            }
            arena.clear();
            if drained == Drained::All {
                return Ok(());
            }
        }
    }
}
