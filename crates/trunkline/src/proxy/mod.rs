//! `trunkline proxy`: unmodified programs over the overlay, by UDP or TCP.
//!
//! The proxy listens on one end and sends to the other; one is UDP or TCP, the other a virtual
//! port. Each TCP connection becomes a stream, and each stream a TCP connection: see [`tcp`]. The
//! rest concerns UDP: each sender at the listening end gets a flow, with a port of its own on the
//! other side, so that answers find their way back. This is how a NAT works, and the terms here are
//! those of RFC 4787.

mod endpoint;
mod opener;
mod port;
mod relay;
mod share;
mod signalling;
mod table;
mod tally;
mod tcp;

use crate::call::{self, line::Target};
use crate::stop::Signals;
use crate::units::Span;
use crate::{names, node};
use endpoint::{Endpoint, EndpointHost};
use port::{Port, Terms};
use relay::Relay;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use trunkline_client::{
    Attachment, DatagramSocket, Error as ClientError, NodeId, Service, SocketOption,
};

const HELP: &str = "\
Examples:
  A DNS server at site F (node 6) answers programs at site A (node 1):
    on F:  trunkline proxy --socket /run/trunkline/node.sock 6:53 udp:127.0.0.1:53
    on A:  trunkline proxy --socket /run/trunkline/node.sock udp:127.0.0.1:5353 6:53
           dig @127.0.0.1 -p 5353 example.org

  A git server at F for A, by TCP:
    on F:  trunkline proxy --socket /run/trunkline/node.sock 6:9418 tcp:127.0.0.1:9418
    on A:  trunkline proxy --socket /run/trunkline/node.sock tcp:127.0.0.1:9418 6:9418
           git clone git://127.0.0.1/project.git

  The same server for twenty sites, of which none has more than 50 connections:
    on F:  trunkline proxy --socket /run/trunkline/node.sock 6:9418 tcp:127.0.0.1:9418 \\
             --max-flows 1000 --max-flows-per-node 50

  RTP and RTCP from A to F:
    on F:  trunkline proxy --socket /run/trunkline/node.sock 6:5004-5005 udp:127.0.0.1:5004-5005
    on A:  trunkline proxy --socket /run/trunkline/node.sock udp:127.0.0.1:5004-5005 6:5004-5005
           ffmpeg -re -i speech.wav -c:a pcm_mulaw -f rtp 'rtp://127.0.0.1:5004?pkt_size=172'

TCP: every connection at LISTEN is a stream of its own to SEND, as reliable as TCP itself.
Ends of a direction and resets are passed on in both directions. Beyond --max-flows,
or --max-flows-per-node of one node, a connection is reset, and so is one without a
stream or a server; the log gives the reason. A silent connection stays, unless --idle
is given; one whose client has vanished is reset after two minutes. The other end's
proxy may be any program that listens for streams (`trunkline cat --listen`), and vice
versa. If the node restarts, its open connections are reset, and later ones succeed.
When the proxy ends, open connections are reset.

UDP: every sender at LISTEN gets a port of its own at SEND's side, and answers to that
port are returned to it. A sender is forgotten after --idle. If there are more than
--max-flows, the one silent longest is forgotten, among those of the node (or host) that
has most: a node with 10,000 ports displaces only its own. The same holds for a node
with --max-flows-per-node.

Packets larger than the overlay carries (shown at start; 1,188 bytes unless a
link's mtu differs) are dropped. While the node is away packets are lost;
the proxy waits for it to come back.

It runs until SIGTERM or SIGINT, then prints its counters.

A call's media do not follow the path of its SIP: for phones, see docs/gateway.md.

Anyone who can send to LISTEN can reach SEND: for udp: and tcp: use 127.0.0.1 or a network
that you trust; a virtual port can be reached from every node.";

/// Let unmodified UDP and TCP programs talk over the overlay
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    attach: Attach,
    /// Where to listen: udp:HOST:PORT, tcp:HOST:PORT, or NODE:PORT with the local node's number. A
    /// range of ports is FIRST-LAST
    #[arg(value_name = "LISTEN")]
    listen: Endpoint,
    /// Destination: NODE:PORT, or udp:HOST:PORT or tcp:HOST:PORT
    #[arg(value_name = "SEND")]
    send: Endpoint,
    /// udp: service of the overlay for packets sent from here [default: real-time]
    #[arg(long, value_parser = names::parser::<Service>())]
    service: Option<Service>,
    /// udp: age up to which a packet is useful, 1 to 255 ms: nodes retransmit a lost packet only
    /// within that time [default: 100ms]
    #[arg(long)]
    deadline: Option<Span>,
    /// Silence in both directions after which udp: forgets a sender (RFC 4787, REQ-5) [default: 5
    /// min], and tcp: resets a connection [default: never]
    #[arg(long)]
    idle: Option<Span>,
    /// Maximum number of simultaneous senders, or connections; each costs three open files (tcp:
    /// eight), and a virtual port if LISTEN is udp: or tcp:
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    max_flows: u16,
    /// Maximum number of them from one node, or from one host if LISTEN is udp: or tcp: [default:
    /// half of --max-flows for streams from a node, otherwise all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    max_flows_per_node: Option<u16>,
    /// Print the final counts as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Maximum number of flows, and of those from one node or host. Streams don't displace each
    /// other, so that a node could keep others out.
    fn max_flows(&self) -> (usize, usize) {
        let max = self.max_flows;
        let is_stream = is_tcp(&self.send);
        let share = if is_stream { max.div_ceil(2) } else { max };
        (max.into(), self.max_flows_per_node.unwrap_or(share).min(max).into())
    }
}

/// Connection to the node
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Attach {
    /// The node at this Unix socket, or on another host at tcp://HOST:PORT?node=PUBKEY&key=FILE:
    /// the node's public key, and the file with this application's secret key
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A node of this configuration, in this process
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
}

/// Reason why a proxy could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The two ends cannot form a proxy.
    #[error("{0}")]
    Usage(String),
    /// The node refused the session or is unreachable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node in this process failed.
    #[error(transparent)]
    Node(#[from] call::Error),
    /// A system call failed.
    #[error("cannot {what}: {source}{advice}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        source: io::Error,
        /// Advice for the user, after a semicolon; may be empty.
        advice: &'static str,
    },
}

impl Error {
    /// Exit status: 2 for a mistake in the user's input.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Client(ClientError::InvalidOption { .. }) => 2,
            Error::Node(error) => error.exit_code(),
            _ => 1,
        }
    }
}

fn cannot(what: impl Into<String>, advice: &'static str) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source, advice }
}

/// Error for `place` if listening there failed.
fn cannot_listen(place: String) -> impl FnOnce(io::Error) -> Error {
    move |source| {
        let advice = match source.kind() {
            io::ErrorKind::AddrNotAvailable => "; listen on an address of this machine",
            io::ErrorKind::PermissionDenied => "; choose a port above 1023",
            _ => "; stop what uses it, or listen elsewhere",
        };
        Error::Io { what: format!("listen on {place}"), source, advice }
    }
}

/// Parameters for binding virtual ports.
#[derive(Clone)]
struct Overlay {
    at: Attachment,
    service: Service,
    deadline: Duration,
}

impl Overlay {
    fn bind(&self, port: u16) -> Result<DatagramSocket, ClientError> {
        let socket = DatagramSocket::bind(self.at.clone(), port)?;
        socket.set_option(SocketOption::Nonblocking(true))?;
        socket.set_option(SocketOption::Service(self.service))?;
        socket.set_option(SocketOption::Deadline(self.deadline))?;
        Ok(socket)
    }
}

/// Limits of a proxy.
struct Limits {
    max_flows: usize,
    /// Maximum number of flows of one node or host.
    max_flows_each: usize,
    idle: Duration,
    /// Maximum payload that the node stated at first, in bytes.
    max_payload: usize,
    /// Terms for UDP ports. Packets sent by UDP are marked as the overlay marks them.
    terms: Terms,
}

/// A listening end and its destination.
struct Forward {
    listen: Port,
    /// Bound address, for UDP.
    listens_at: Option<std::net::SocketAddr>,
    to: Target,
}

fn is_tcp(end: &Endpoint) -> bool {
    matches!(end.place, EndpointHost::Tcp(_))
}

/// Time that a codec waits for a packet (Amir et al. 2005, IV-B).
const DEADLINE: Duration = Duration::from_millis(100);
/// Idle time that RFC 4787 recommends for a NAT (REQ-5).
const IDLE: Duration = Duration::from_secs(300);

/// DSCP of expedited forwarding (RFC 3246).
const EXPEDITED: u8 = 46;

/// Runs `trunkline proxy` until a signal arrives.
pub fn run(args: &Args) -> Result<(), Error> {
    check(args)?;
    let stop = Signals::block().map_err(cannot("take over SIGTERM and SIGINT", ""))?;
    node::raise_descriptor_limit();
    node::memory::trim_in_background();
    let (at, _node) = call::attachment(args.attach.socket.as_deref(), args.attach.node.as_deref())?;
    let service = args.service.unwrap_or(Service::RealTime);
    let deadline = args.deadline.map_or(DEADLINE, |span| span.0);
    let terms = match service {
        Service::RealTime => Terms { dscp: EXPEDITED, useful_for: Some(deadline) },
        _ => Terms { dscp: 0, useful_for: None },
    };
    let overlay = Overlay { at, service, deadline };
    // Try this even if virtual ports are needed only later, so that the user sees an error at once.
    let probe = overlay.bind(0)?;
    let (own, max_payload) = (probe.local_addr().node, probe.max_payload());
    drop(probe);
    if is_tcp(&args.listen) || is_tcp(&args.send) {
        return tcp::run(args, overlay.at, own, &stop);
    }
    let forwards = listen(args, &overlay, own, terms)?;
    let (max_flows, max_flows_each) = args.max_flows();
    let idle = args.idle.map_or(IDLE, |span| span.0);
    let limits = Limits { max_flows, max_flows_each, idle, max_payload, terms };
    let mut relay = Relay::new(forwards, overlay, limits).map_err(cannot("start", ""))?;
    errln!(
        "listening on {}, sending to {}; packets of up to {max_payload} bytes",
        args.listen,
        args.send
    );
    let ended = relay.run(&stop).map_err(cannot("wait for packets", ""));
    match args.json {
        true => outln!("{}", relay.tally().json()),
        false => outln!("{}", relay.tally().line()),
    }
    ended
}

/// Checks that the two ends can form a proxy.
fn check(args: &Args) -> Result<(), Error> {
    let (listen, send) = (&args.listen, &args.send);
    let outside = [listen, send].map(|end| !matches!(end.place, EndpointHost::Node(_)));
    if outside[0] == outside[1] {
        return Err(Error::Usage(format!(
            "cannot join {listen} and {send}: give one end as udp:HOST:PORT or tcp:HOST:PORT, the \
             other as NODE:PORT"
        )));
    }
    if listen.len() != send.len() {
        return Err(Error::Usage(format!(
            "{listen} is {}, {send} {}: give as many of both",
            crate::operate::count(listen.len() as u64, "port"),
            send.len()
        )));
    }
    Ok(())
}

/// Opens the listening end; `own` is the local node's number.
fn listen(
    args: &Args,
    overlay: &Overlay,
    own: NodeId,
    terms: Terms,
) -> Result<Vec<Forward>, Error> {
    let look_up = |end: &Endpoint| {
        let what = format!("find the address of {end}");
        end.targets().map_err(cannot(what, "; is the name right?"))
    };
    let mut forwards = Vec::new();
    for (at, to) in look_up(&args.listen)?.into_iter().zip(look_up(&args.send)?) {
        let listens_at = match at {
            Target::Udp(address) => Some(address),
            Target::Overlay(_) => None,
        };
        let listen = match at {
            Target::Udp(address) => {
                let opened = Port::listen(address, terms);
                opened.map_err(cannot_listen(format!("UDP {address}")))?
            }
            Target::Overlay(address) if address.node != own => {
                return Err(Error::Usage(format!(
                    "cannot listen on {address}: the node at {} is {own}, so it would be {own}:{}",
                    overlay.at, address.port
                )));
            }
            Target::Overlay(address) => overlay.bind(address.port)?.into(),
        };
        forwards.push(Forward { listen, listens_at, to });
    }
    Ok(forwards)
}
