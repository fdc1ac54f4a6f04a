//! `trunkline impair`: real UDP traffic through modelled links, in real time.
//!
//! Each link is a pair of sockets. A datagram that a node sends to its socket crosses an edge of a
//! [`Network`](trunkline_net::Network) and leaves by the other socket for the other node. The
//! network is the simulator's, with its models, seeds and streams, so both lose the same packets.

mod background;
mod clock;
mod config;
mod hosts;
mod pump;
mod relay;
mod report;
mod say;
mod setup;
mod socket;
mod stop;

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::sched::sched_setaffinity;
use nix::unistd::Pid;

use crate::sys::run_fifo;
use crate::units::{Fraction, Rate, Size, Span};
use background::Background;
pub use config::ConfigError;
use config::{ChainKind, Config, End, Limit, LinkText, PerDirection};
use hosts::Emulator;
use relay::Relay;
use serde::Serialize;
use stop::{Reread, Stop};
use toml::Spanned;

const HELP: &str = "\
Examples:
  One link by hand: node a at port 7003 talks to 5001, node b at 7004 to 5002.
    trunkline impair --a 127.0.0.1:5001=127.0.0.1:7003 \\
                     --b 127.0.0.1:5002=127.0.0.1:7004 \\
                     --delay 10ms --loss 5% --burst 25% --seed 1

  Many links, from a file:
    trunkline impair links.toml --ledger ledger.json

    seed = 1
    [[link]]
    name = \"C-D\"
    a = { listen = \"127.0.0.1:5001\", peer = \"127.0.0.1:7003\" }
    b = { listen = \"127.0.0.1:5002\", peer = \"127.0.0.1:7004\" }
    delay = \"10ms\"             # one way; both directions
    loss = { forward = \"5%\" }  # from a to b only
    burst = { forward = \"25%\" }
    rate = \"10 Mbit/s\"         # IP and UDP headers count
    queue = \"100 packets\"      # or a size: \"64 kB\"

  Other keys of a link: jitter, chain = \"per-packet\" or \"continuous\", spacing
  (of packets, at which burst holds on a continuous chain; \"20ms\"), and stream:
  links with one stream share one loss process.

  Instead of loss, trace = \"FILE\" (relative to the configuration): a 0 for each
  packet that is received and a 1 for each that is lost, in order, from the
  front again at the end. White space, and lines that begin with #, don't count.

  Random early detection (Floyd and Jacobson, 1993) before the queue is full, in
  both directions that have a rate; the values shown are the defaults:
    red = { min = \"5 packets\", max = \"15 packets\", max_p = \"2%\",
            weight = 0.002, packet = \"500 B\", gentle = false, ecn = false }
  With ecn it marks packets that can be marked (RFC 3168) instead of dropping
  them. If queue is a size, so are min and max. Of one direction alone, or of each:
    red = { forward = { ecn = true }, reverse = { max_p = \"10%\" } }

DSCP and ECN of a datagram are kept, except for those marks.

SIGHUP makes it read the file again: the model of links may change while they run, as in a
link that is cut (loss = \"100%\") and restored; packets in flight still arrive.

Hosts, for programs over the kernel's own TCP: each is a network namespace with one
device; needs root, or user namespaces, and iproute2.
    trunkline impair --hosts net.toml --punctual --pcap a=a.pcapng

    [[host]]
    name = \"a\"
    tcp = \"reno\"              # its congestion control; also: sysctl = { \"net.…\" = \"…\" }
    [[host]]
    name = \"b\"
    [[router]]
    name = \"r\"
    [[edge]]
    between = [\"a\", \"r\"]
    [[edge]]
    name = \"bottleneck\"
    between = [\"r\", \"b\"]
    rate = \"10 Mbit/s\"        # all of IP counts; and the other keys of a link, and mtu
    red = { ecn = true }
    trace = { forward = \"outage.txt\" }

  It says how to enter each, and its addresses:
    impair: host a: nsenter --net=/proc/4711/fd/8 10.64.0.1 fd74:6c::1 tcp reno/1/1
    nsenter --net=/proc/4711/fd/8 iperf3 -c 10.64.0.2
  Packets take the path of least delay, and hosts forward none. An edge with private = true
  has addresses of its own at hosts, for packets that must take this edge. A packet that is
  too long for an edge is dropped, and its sender is told. The namespaces have no names. They
  end with this command, however it ends, once nothing runs in them.

  A cell of IEEE 802.11e, in place of edges to its stations. A packet's DSCP selects one of
  its sender's four queues: voice (EF), video, best effort, or background (CS1):
    [[cell]]
    name = \"wifi\"
    access_point = \"r\"
    stations = [\"a\", \"b\"]
    parameters = \"standard\"   # of contention, or \"draft\"; these are the defaults:
    queue = 50                # packets in each queue
    attempts = 7              # of a packet
    bit_error_rate = 0.0

It runs until SIGTERM or SIGINT, then prints a JSON ledger of every packet, and
how late it sent them, on standard output; docs/impair.md explains its fields. On a busy machine give it real-time
priority (--punctual), or it will be late.";

/// Pass UDP datagrams through links with delay, loss and a rate, in real time
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// File with the links, in TOML; without it --a and --b describe one
    config: Option<PathBuf>,
    /// File with hosts, routers, edges and cells, in TOML, instead of links between sockets
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "OneLink"])]
    hosts: Option<PathBuf>,
    /// With --hosts, capture a host's traffic in a file for Wireshark
    #[arg(long, value_name = "HOST=FILE", requires = "hosts")]
    pcap: Vec<hosts::Wanted>,
    #[command(flatten)]
    link: OneLink,
    /// Also write the ledger to this file
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Also stop when standard input, a pipe, is closed
    #[arg(long)]
    until_stdin_closes: bool,
    /// Reduce the lateness of packets: real-time priority on one processor, if permitted, and no
    /// sleep within 100 µs of the next packet
    #[arg(long)]
    punctual: bool,
}

/// A link given on the command line, with the same keys as in a file.
#[derive(clap::Args, Debug)]
#[group(conflicts_with = "config", multiple = true)]
struct OneLink {
    /// Address to listen on for node a, and node a's own address
    #[arg(long, value_name = "LISTEN[=PEER]", requires = "b")]
    a: Option<End>,
    /// Address to listen on for node b, and node b's own address
    #[arg(long, value_name = "LISTEN[=PEER]", requires = "a")]
    b: Option<End>,
    /// One-way delay of the link: "10ms"
    #[arg(long, value_name = "TIME")]
    delay: Option<Span>,
    /// Extra delay of up to this much; never reorders
    #[arg(long, value_name = "TIME")]
    jitter: Option<Span>,
    /// Rate of the link, including IP and UDP headers: "10 Mbit/s"
    #[arg(long)]
    rate: Option<Rate>,
    /// Limit of the queue in front of the link: "100 packets" (the default) or "64 kB"
    #[arg(long, value_name = "LIMIT")]
    queue: Option<Limit>,
    /// Share of packets lost: "5%"
    #[arg(long, value_name = "SHARE")]
    loss: Option<Fraction>,
    /// Probability that a loss follows a loss: "25%"
    #[arg(long, value_name = "SHARE", requires = "loss")]
    burst: Option<Fraction>,
    /// Trigger of a state change in the loss chain
    #[arg(long, requires = "burst")]
    chain: Option<ChainKind>,
    /// Packet spacing at which --burst holds on a continuous chain [default: 20ms]
    #[arg(long, value_name = "TIME", requires = "burst")]
    spacing: Option<Span>,
    /// File of 0 (received) and 1 (lost), one per packet, instead of --loss
    #[arg(long, value_name = "FILE", conflicts_with = "loss")]
    trace: Option<PathBuf>,
    /// Seed of all randomness [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the seed's random stream [default: 0]
    #[arg(long)]
    stream: Option<u64>,
    /// Memory for packets in flight [default: 64 MiB]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Size>,
}

/// Reason why `impair` could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be bound.
    #[error("link {link}: cannot listen on {addr} for {side}: {source}; {}", advice(source))]
    Bind {
        /// The name of the link.
        link: String,
        /// The end that listens there, a or b.
        side: &'static str,
        /// The address that cannot be bound.
        addr: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// Hosts cannot be created.
    #[error(transparent)]
    Namespace(#[from] hosts::NamespaceError),
    /// A capture was requested for a host that does not exist.
    #[error("--pcap: {}", no_host(host, *is_router))]
    NoHost {
        /// Name of the missing host.
        host: String,
        /// Whether a router has this name.
        is_router: bool,
    },
    /// A capture cannot be written.
    #[error("cannot write the capture {}: {source}", path.display())]
    Capture {
        /// The file of the capture.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Os {
        /// Purpose of the call.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The ledger file cannot be written.
    #[error("cannot write the ledger to {}: {source}", path.display())]
    Ledger {
        /// The file of the ledger.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl Error {
    /// Exit status: 2 for a mistake in the configuration, 1 for any other error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) | Error::Namespace(_) | Error::NoHost { .. } => 2,
            Error::Bind { .. }
            | Error::Os { .. }
            | Error::Ledger { .. }
            | Error::Capture { .. } => 1,
        }
    }

    fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Os { what, source: source.into() }
    }
}

fn no_host(name: &str, is_router: bool) -> String {
    match is_router {
        true => format!("\"{name}\" is a router: name a [[host]] attached to it"),
        false => format!("no [[host]] is \"{name}\": name one of those in the file"),
    }
}

fn advice(bind: &io::Error) -> &'static str {
    match bind.kind() {
        io::ErrorKind::AddrInUse => "stop what uses that port, or choose another",
        io::ErrorKind::AddrNotAvailable => "listen on an address of this machine",
        io::ErrorKind::PermissionDenied => "choose a port above 1023",
        _ => "choose another address",
    }
}

/// Relays until stopped, then prints the ledger.
///
/// Prints `impair: ready, N links` on standard error once every socket is bound. Blocks SIGTERM,
/// SIGINT and, with a file, SIGHUP in this thread: call it before starting other threads.
///
/// # Errors
///
/// A configuration that is invalid, an address that cannot be bound, a ledger that cannot be
/// written, or a system call that failed.
pub fn run(args: Args) -> Result<(), Error> {
    match args.hosts.clone() {
        Some(path) => run_hosts(&path, &args),
        None => run_links(args),
    }
}

fn run_links(args: Args) -> Result<(), Error> {
    let background = Background::new();
    // This comes first, since an early SIGHUP would end the process.
    let reread = args.config.clone().map(|file| Reread::new(file, background)).transpose()?;
    let config = match &args.config {
        Some(path) => Config::read(path)?,
        None => args.link.config()?,
    };
    let ledger = args.ledger.map(Ledger::create).transpose()?;
    let stop = Stop::new(args.until_stdin_closes)?;
    if args.punctual {
        hurry(background);
    }
    let asked: Vec<End> = config.links.iter().flat_map(|l| l.ends).collect();
    let mut relay = Relay::bind(config, stop, reread, args.punctual)?;
    announce(&asked, &relay);
    relay.run()?;
    write(&relay.report(), ledger)
}

fn run_hosts(path: &Path, args: &Args) -> Result<(), Error> {
    let background = Background::new();
    let reread = Reread::new(path.to_owned(), background)?;
    let ledger = args.ledger.clone().map(Ledger::create).transpose()?;
    let stop = Stop::new(args.until_stdin_closes)?;
    let run = hosts::Run { path, captures: &args.pcap, is_punctual: args.punctual };
    let mut emulator = Emulator::new(&run, stop, reread)?;
    if args.punctual {
        hurry(background);
    }
    emulator.run()?;
    write(&emulator.report(), ledger)
}

/// File for the ledger.
struct Ledger {
    path: PathBuf,
    file: File,
}

impl Ledger {
    /// Creates the file at the start, so that a mistake shows before the measurement.
    fn create(path: PathBuf) -> Result<Ledger, Error> {
        match File::create(&path) {
            Ok(file) => Ok(Ledger { path, file }),
            Err(source) => Err(Error::Ledger { path, source }),
        }
    }
}

/// Writes a report to standard output, and to the ledger file if there is one.
fn write(report: &impl Serialize, ledger: Option<Ledger>) -> Result<(), Error> {
    let json = serde_json::to_string(report)
        .map_err(|error| Error::Os { what: "write the ledger", source: error.into() })?;
    if let Some(Ledger { path, mut file }) = ledger {
        writeln!(file, "{json}").map_err(|source| Error::Ledger { path, source })?;
    }
    writeln!(io::stdout(), "{json}").map_err(Error::os("write the ledger to standard output"))
}

/// Gives this thread real-time priority and a processor of its own, as far as permitted.
fn hurry(background: Background) {
    if let Err(why) = run_fifo(PRIORITY) {
        let _ = writeln!(io::stderr(), "impair: no real-time priority ({why}): others delay it");
        return;
    }
    // Other threads leave a processor that a real-time thread is bound to. They would not leave it
    // for an ordinary thread, which does better unbound.
    if let Some(last) = background.last_of_several() {
        let _ = sched_setaffinity(Pid::from_raw(0), &last);
    }
}

/// Real-time priority above the usual default of programs, below the kernel's own threads.
const PRIORITY: u8 = 50;

/// Announces that the links are ready. Writing may fail without a reader of standard error, which
/// is harmless.
fn announce(asked: &[End], relay: &Relay) {
    let mut stderr = io::stderr();
    for ((link, side, addr), end) in relay.addresses().zip(asked) {
        if end.listen.port() == 0 {
            let _ = writeln!(stderr, "impair: link {link}: {side} listens on {addr}");
        }
    }
    let n = asked.len() / 2;
    let _ = writeln!(stderr, "impair: ready, {n} link{}", if n == 1 { "" } else { "s" });
}

impl OneLink {
    fn config(self) -> Result<Config, ConfigError> {
        let (Some(a), Some(b)) = (self.a, self.b) else { return Err(ConfigError::NoLinks) };
        let link = LinkText {
            name: None,
            stream: self.stream,
            a,
            b,
            delay: PerDirection::both(self.delay),
            jitter: PerDirection::both(self.jitter),
            rate: PerDirection::both(self.rate),
            queue: PerDirection::both(self.queue),
            loss: PerDirection::both(self.loss),
            burst: PerDirection::both(self.burst),
            chain: PerDirection::both(self.chain),
            spacing: PerDirection::both(self.spacing),
            trace: PerDirection::both(self.trace),
            red: PerDirection::default(),
        };
        // Without a file, a mistake has no position.
        let links = vec![Spanned::new(0..0, link)];
        Config::new(self.seed.unwrap_or(0), self.buffer, links).map_err(|(_, what)| what)
    }
}
