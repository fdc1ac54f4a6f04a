//! The gateway of a node: SIP by UDP, TCP and TLS, on a thread of its own. What to do
//! is `trunkline_gateway`'s to decide; media are the packet thread's.

mod driver;
mod ledger;
mod names;
mod port_board;
mod records;
mod stream;

use crate::clock;
use crate::datapath::media::Sender;
use crate::node::config::Sip;
use crate::operate::protocol::Call;
use driver::Driver;
use port_board::PortBoard;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc;
use trunkline_base::Time;
use trunkline_gateway::{Gateway, Stats, Transport};
use trunkline_sip::Message;
use trunkline_sip::transaction::Hop;

/// What waits to be looked at: more would be answered too late.
const INBOX: usize = 1_024;

/// What the packet thread tells and operators ask: more than all legs that may end at
/// once, and apart from what strangers send.
const TOLD: usize = 1 << 16;

/// Something that has come.
enum Input {
    /// A datagram.
    Datagram(Hop, Vec<u8>),
    /// A message of a connection.
    Message(Hop, Box<Message>),
    /// Somebody has connected to this socket.
    Accepted(u32, tokio::net::TcpStream, SocketAddr),
    /// A connection is over, or could not be made: then why.
    Closed(u64, Option<io::Error>),
    /// The name service has answered.
    Named(String, trunkline_gateway::Found),
    /// The packet thread has told.
    Sight(Box<crate::datapath::media::MediaSnapshot>),
    /// The packet thread has told of ways.
    Ways(crate::datapath::media::RouteView),
    /// A leg is over: all that came to it.
    LegEnded(crate::datapath::media::LegCounts),
    /// The file has changed, and what TLS goes by is this: the answer is whether that is
    /// new.
    Reconfigure(Box<Sip>, Box<stream::Tls>, SyncSender<bool>),
    /// New calls are refused from now on, or taken again; then the answer.
    Drain(bool, SyncSender<()>),
    /// The node ends: the answer is how many calls ended with it.
    Stop(SyncSender<usize>),
    /// Somebody asks what there is: of the calls, so many from this one on.
    Ask(usize, usize, SyncSender<GatewayReport>),
}

/// The gateway as one moment saw it.
#[derive(Clone, Debug, Default)]
pub struct GatewayReport {
    /// Calls: those there are, then those that ended last.
    pub calls: Vec<Call>,
    /// Whether there are more than were asked for.
    pub is_more: bool,
    /// What it has counted.
    pub stats: Stats,
    /// What the media of its calls have counted.
    pub media: crate::datapath::media::MediaStats,
    /// Pairs of media ports that are free.
    pub free_ports: usize,
}

/// How other threads ask the gateway.
#[derive(Clone)]
pub struct GatewayHandle(mpsc::Sender<Input>);

impl GatewayHandle {
    /// What there is, and `count` calls from number `from` on; `None` if the gateway does
    /// not answer within a second.
    pub fn report(&self, from: usize, count: usize) -> Option<GatewayReport> {
        let (reply, answer) = sync_channel(1);
        self.0.try_send(Input::Ask(from, count, reply)).ok()?;
        answer.recv_timeout(Duration::from_secs(1)).ok()
    }

    /// Has calls and connections that begin from now on go by `sip`: its names, networks,
    /// routes and what is in its files now; whether that last is new. Nothing changes if
    /// one of its files is wrong.
    pub fn reconfigure(&self, sip: &Sip) -> Result<bool, String> {
        let tls = stream::Tls::read(&sip.tls).map_err(|what| format!("[sip] {what}"))?;
        let (reply, answer) = sync_channel(1);
        let sent = self.0.try_send(Input::Reconfigure(Box::new(sip.clone()), Box::new(tls), reply));
        let is_new = sent.ok().and_then(|()| answer.recv_timeout(Duration::from_secs(1)).ok());
        is_new.ok_or_else(|| "the gateway does not answer: look at the node's log".into())
    }

    /// Has new calls refused from now on, or taken again.
    pub fn drain(&self, on: bool) {
        let (reply, answer) = sync_channel(1);
        if self.0.try_send(Input::Drain(on, reply)).is_ok() {
            // If it doesn't answer, it sees soon what the node does.
            let _ = answer.recv_timeout(Duration::from_secs(1));
        }
    }

    /// Ends all calls, and has their records written: how many there were; `None` if the
    /// gateway does not answer in time.
    pub fn stop(&self) -> Option<usize> {
        let (reply, answer) = sync_channel(1);
        self.0.try_send(Input::Stop(reply)).ok()?;
        answer.recv_timeout(ledger::PATIENCE + Duration::from_secs(2)).ok()
    }
}

/// A socket that SIP comes to.
enum Bound {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

/// Why a gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused an address.
    #[error("cannot listen for SIP at {transport}:{address}: {source}; {}", advice(source))]
    Bind {
        /// `udp`, `tcp` or `tls`.
        transport: &'static str,
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A file for TLS is missing or wrong.
    #[error("[sip] {0}")]
    Tls(String),
    /// The file for records can't be written.
    #[error("cannot write records of calls to {path}: {source}; change `records` in [sip]")]
    Records {
        /// The file's path.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused a thread, randomness or the like.
    #[error("cannot start the gateway: {0}")]
    Io(#[from] io::Error),
}

/// What to do about an address that can't be had.
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

/// Whether the files that `sip` names can be used.
pub fn check(sip: &Sip) -> Result<(), Error> {
    stream::Tls::read(&sip.tls).map_err(Error::Tls)?;
    let folder = sip.records.as_deref().and_then(std::path::Path::parent);
    match folder.filter(|folder| !folder.as_os_str().is_empty()).map(std::fs::metadata) {
        Some(Err(source)) => {
            Err(Error::Records { path: sip.records.clone().unwrap_or_default(), source })
        }
        _ => Ok(()),
    }
}

/// Starts the gateway that `sip` describes. `lasting` is a secret that stays the same
/// from start to start.
pub fn start(sip: &Sip, media: Sender, lasting: &[u8; 32]) -> Result<GatewayHandle, Error> {
    let mut bound = Vec::new();
    for (socket, address) in sip.gateway.sockets.iter().zip(&sip.bind) {
        let opened = match socket.transport {
            Transport::Udp => UdpSocket::bind(address).map(Bound::Udp),
            Transport::Tcp | Transport::Tls => TcpListener::bind(address).map(Bound::Tcp),
        };
        let transport = socket.transport.in_uri();
        bound.push(opened.map_err(|source| Error::Bind {
            transport,
            address: *address,
            source,
        })?);
    }
    let tls = stream::Tls::read(&sip.tls).map_err(Error::Tls)?;
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

/// Until when to sleep for something that is due at `at`.
fn until(at: Time) -> tokio::time::Instant {
    // Longer than any sleep here, and not so long that it overflows.
    let most = Duration::from_secs(3_600);
    let wait = if at == Time::NEVER { most } else { at.since(clock::now()).min(most) };
    tokio::time::Instant::now() + wait
}
