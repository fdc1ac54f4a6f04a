//! A node's SIP gateway: UDP, TCP and TLS, on its own thread. The decisions are made in
//! `trunkline_gateway`; media belong to the packet thread.

mod connections;
mod driver;
mod ledger;
mod port_board;
mod records;
mod stream;
mod tls;

use crate::addresses;
use crate::clock;
use crate::datapath::media::Sender;
use crate::node::config::Sip;
use crate::operate::protocol::Call;
use connections::ConnectionStats;
use driver::Driver;
use port_board::PortBoard;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tls::Tls;
use tokio::sync::mpsc;
use trunkline_base::Time;
use trunkline_gateway::{CallSelection, Farewell, Gateway, Stats, Transport};
use trunkline_sip::Message;
use trunkline_sip::transaction::Hop;

/// Capacity of the queue of network inputs: with more, answers would be too late.
const INBOX: usize = 1_024;

/// Capacity of the queue of the packet thread's reports and operators' requests: more than all legs
/// that may end at once, and separate from traffic of unknown peers.
const TOLD: usize = 1 << 16;

/// Input of the SIP thread.
enum Input {
    /// A datagram from a UDP socket.
    Datagram(Hop, Vec<u8>),
    /// A message from a connection.
    Message(Hop, Box<Message>),
    /// A connection has brought what can't be processed: whether it is only too large, the reason, and
    /// the status code of the answer to it.
    Malformed(Hop, bool, (String, Option<u16>)),
    /// A new connection to this socket.
    Accepted(u32, tokio::net::TcpStream, SocketAddr),
    /// A connection has ended or, if there is an error, could not be established.
    Closed(u64, Option<io::Error>),
    /// An answer of the name service.
    Named(String, trunkline_gateway::Found),
    /// The packet thread's view of the media.
    Media(Box<crate::datapath::media::MediaSnapshot>),
    /// The routes reported by the packet thread.
    Ways(crate::datapath::media::RouteView),
    /// A leg has ended, with its final counts.
    LegEnded(crate::datapath::media::LegCounts),
    /// The configuration has changed, with these TLS settings: the answer is whether the latter are
    /// new.
    Reconfigure(Box<Sip>, Box<Tls>, SyncSender<bool>),
    /// Refuses new calls from now on, or accepts them again; acknowledged when done.
    Drain(bool, SyncSender<()>),
    /// The node is stopping: the answer describes the calls that ended with it.
    Stop(SyncSender<Stopped>),
    /// Ends these calls; the answer is their number.
    HangUp(CallSelection, SyncSender<usize>),
    /// Requests a report with the calls from the first number on, as many as the second.
    Ask(usize, usize, SyncSender<GatewayReport>),
}

/// State of the gateway at one moment.
#[derive(Clone, Debug, Default)]
pub struct GatewayReport {
    /// Current calls, then the calls that ended last.
    pub calls: Vec<Call>,
    /// Whether there are more calls than requested.
    pub is_more: bool,
    /// Counters of the gateway.
    pub stats: Stats,
    /// Counters of its calls' media.
    pub media: crate::datapath::media::MediaStats,
    /// Counts of its connections.
    pub connections: ConnectionStats,
    /// Number of free pairs of media ports.
    pub free_ports: usize,
    /// When its certificate expires, in seconds since 1970; 0 without one.
    pub certificate_not_after: u64,
    /// Media ports, and virtual ports, of streams that are no RTP: faxes.
    pub no_speech: BTreeSet<u16>,
    /// Number of ended calls by outcome.
    pub ended: Vec<(&'static str, u64)>,
}

/// The calls that ended because their gateway was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Number of calls that were up.
    pub up: usize,
    /// Number of calls that rang.
    pub ringing: usize,
    /// The first of them, in words.
    pub named: Vec<String>,
    /// How many of their ends were told, and have answered in time; `None` if `bye_at_stop` is false.
    pub farewell: Option<Farewell>,
}

/// Handle through which other threads query the gateway.
#[derive(Clone)]
pub struct GatewayHandle(mpsc::Sender<Input>);

impl GatewayHandle {
    /// Requests a report with `count` calls from number `from` on; `None` if the gateway does not
    /// answer within a second.
    pub fn report(&self, from: usize, count: usize) -> Option<GatewayReport> {
        let (reply, answer) = sync_channel(1);
        self.0.try_send(Input::Ask(from, count, reply)).ok()?;
        answer.recv_timeout(Duration::from_secs(1)).ok()
    }

    /// Applies `sip` to calls and connections that begin from now on: its names, networks, routes
    /// and TLS files. Returns whether the content of the files is new. Nothing changes if one of
    /// them is invalid.
    pub fn reconfigure(&self, sip: &Sip) -> Result<bool, String> {
        let tls = Tls::read(&sip.tls).map_err(|what| format!("[sip] {what}"))?;
        let (reply, answer) = sync_channel(1);
        let sent = self.0.try_send(Input::Reconfigure(Box::new(sip.clone()), Box::new(tls), reply));
        let is_new = sent.ok().and_then(|()| answer.recv_timeout(Duration::from_secs(1)).ok());
        is_new.ok_or_else(|| "the gateway does not answer: look at the node's log".into())
    }

    /// Ends calls. Returns their number; `None` if the gateway does not answer in time.
    pub fn hang_up(&self, which: CallSelection) -> Option<usize> {
        let (reply, answer) = sync_channel(1);
        self.0.try_send(Input::HangUp(which, reply)).ok()?;
        answer.recv_timeout(Duration::from_secs(1)).ok()
    }

    /// Refuses new calls from now on, or accepts them again.
    pub fn drain(&self, on: bool) {
        let (reply, answer) = sync_channel(1);
        if self.0.try_send(Input::Drain(on, reply)).is_ok() {
            // If it doesn't answer, it soon sees the node's state anyway.
            let _ = answer.recv_timeout(Duration::from_secs(1));
        }
    }

    /// Ends all calls, has their ends told, and has their records written. `None` if the gateway does
    /// not answer in time.
    pub fn stop(&self) -> Option<Stopped> {
        let (reply, answer) = sync_channel(1);
        self.0.try_send(Input::Stop(reply)).ok()?;
        answer.recv_timeout(ledger::PATIENCE + Duration::from_secs(2)).ok()
    }
}

/// A bound socket for SIP.
enum Bound {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

/// Reason why a gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error("cannot listen for SIP at {transport}:{address}: {source}; {}", advice(source))]
    Bind {
        /// Transport: `udp`, `tcp` or `tls`.
        transport: &'static str,
        /// Address that was requested.
        address: SocketAddr,
        /// Error from the operating system.
        source: io::Error,
    },
    /// A TLS file is missing or invalid.
    #[error("[sip] {0}")]
    Tls(String),
    /// The file for call records can't be written.
    #[error("cannot write call records to {path}: {source}; change `records` in [sip]")]
    Records {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The system refused a thread, entropy or a similar resource.
    #[error("cannot start the gateway: {0}")]
    Io(#[from] io::Error),
}

/// Advice about an address that can't be bound.
fn advice(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has it: change `listen` in [sip]"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE: change `listen` in [sip]"
        }
        _ => "stop what uses it, or change `listen` in [sip]",
    }
}

/// Checks that the files named by `sip` can be used.
pub fn check(sip: &Sip) -> Result<(), Error> {
    Tls::read(&sip.tls).map_err(Error::Tls)?;
    let folder = sip.records.as_deref().and_then(std::path::Path::parent);
    match folder.filter(|folder| !folder.as_os_str().is_empty()).map(std::fs::metadata) {
        Some(Err(source)) => {
            Err(Error::Records { path: sip.records.clone().unwrap_or_default(), source })
        }
        _ => Ok(()),
    }
}

/// When the certificate of a gateway expires, in seconds since 1970; 0 without one, or if it can't be
/// read.
pub fn not_after(sip: &Sip) -> u64 {
    Tls::read(&sip.tls).map_or(0, |tls| tls.not_after)
}

/// Starts the gateway that `sip` describes. `lasting` is a secret that survives restarts.
pub fn start(sip: &Sip, media: Sender, lasting: &[u8; 32]) -> Result<GatewayHandle, Error> {
    let mut bound = Vec::new();
    for (socket, address) in sip.gateway.sockets.iter().zip(&sip.bind) {
        let opened = match socket.transport {
            Transport::Udp => addresses::udp(*address).map(Bound::Udp),
            Transport::Tcp | Transport::Tls => addresses::tcp(*address).map(Bound::Tcp),
        };
        let transport = socket.transport.in_uri();
        bound.push(opened.map_err(|source| Error::Bind {
            transport,
            address: *address,
            source,
        })?);
    }
    let tls = Tls::read(&sip.tls).map_err(Error::Tls)?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|e| Error::Io(e.into()))?;
    let ledger = ledger::Ledger::open(sip.records.as_deref()).map_err(|source| Error::Records {
        path: sip.records.clone().unwrap_or_default(),
        source,
    })?;
    let interfaces = nix::ifaddrs::getifaddrs().map_err(io::Error::from)?;
    let own = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|at| at.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|at| at.ip().into()))
    });
    let config = trunkline_gateway::Config { own: own.collect(), ..sip.gateway.clone() };
    let gateway = Gateway::new(config, secret, lasting);
    let (inbox, inputs) = mpsc::channel(INBOX);
    let (teller, told) = mpsc::channel(TOLD);
    let board = PortBoard::new(sip.media, media, teller.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = GatewayHandle(teller);
    let driver = Driver::new(gateway, board, ledger, tls, inbox);
    std::thread::Builder::new().name("sip".into()).spawn(move || {
        if let Err(error) = runtime.block_on(driver.run(bound, inputs, told)) {
            tracing::error!(%error, "the gateway has ended: calls are no longer set up");
        }
    })?;
    Ok(handle)
}

/// Wake-up time for something that is due at `at`.
fn until(at: Time) -> tokio::time::Instant {
    // Longer than any sleep here, but short enough not to overflow.
    let most = Duration::from_secs(3_600);
    let wait = if at == Time::NEVER { most } else { at.since(clock::now()).min(most) };
    tokio::time::Instant::now() + wait
}
