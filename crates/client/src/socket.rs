use crate::carrier::{Carrier, Transport, Unix};
use crate::connection::{Connection, wait_for_room, wait_readable};
use crate::error::Error;
use crate::in_process::Connector;
use crate::keys::{self, Keys};
use crate::remote::Remote;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trunkline_overlay::session::wire::Unreachable;
use trunkline_overlay::wire::{Metric, NodeId, Service};

/// Time that [`DatagramSocket::bind`] waits for the node's answer. A running node answers in
/// microseconds; this covers one that is starting.
pub(crate) const BIND_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a node may take to answer a bind once it has accepted the connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Replaces both timeouts for a node on another host: TCP's first segment may be lost twice (1 s
/// and 2 s, RFC 6298) before further waiting is pointless.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(4);

/// An application's end of a flow: a virtual port at a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// Node that the application is attached to.
    pub node: NodeId,
    /// Virtual port at that node.
    pub port: u16,
}

impl fmt::Display for Address {
    /// Formats as `node:port`, both decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}

/// Where and how a socket reaches its node.
///
/// Converts from a string: a Unix socket's path, or `tcp://HOST:PORT?node=PUBKEY&key=FILE`, where
/// `HOST` is a name or an IP address (IPv6 in brackets), `PUBKEY` the node's public key and `FILE`
/// a secret key that only its owner may read, made by `trunkline keygen`. In both, `%` begins an
/// escape (RFC 3986); the key may also be URL-safe base64.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Attachment {
    /// The node listens on a `SOCK_SEQPACKET` Unix socket at this path.
    Unix(PathBuf),
    /// The node runs in this process.
    InProcess(Connector),
    /// The node runs on another host and accepts remote applications (`remote` in its
    /// configuration), over TCP and UDP: `HOST:PORT?node=PUBKEY&key=FILE`. The name is looked up
    /// once, and the file read, when the socket is bound.
    Remote(String),
}

impl From<PathBuf> for Attachment {
    fn from(path: PathBuf) -> Attachment {
        Attachment::Unix(path)
    }
}

impl From<&Path> for Attachment {
    fn from(path: &Path) -> Attachment {
        Attachment::Unix(path.into())
    }
}

impl From<&str> for Attachment {
    fn from(at: &str) -> Attachment {
        match at.strip_prefix("tcp://") {
            None => Attachment::Unix(at.into()),
            Some(rest) => Attachment::Remote(rest.into()),
        }
    }
}

impl From<Connector> for Attachment {
    fn from(connector: Connector) -> Attachment {
        Attachment::InProcess(connector)
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Unix(path) => path.display().fmt(f),
            Attachment::InProcess(_) => f.write_str("this process"),
            Attachment::Remote(text) => write!(f, "tcp://{text}"),
        }
    }
}

impl Attachment {
    /// Splits an attachment into the node's location and, for a remote node, the query after the
    /// question mark, which names the keys.
    pub(crate) fn split(self) -> (Site, Option<String>) {
        match self {
            Attachment::Unix(path) => (Site::Unix(path), None),
            Attachment::InProcess(connector) => (Site::InProcess(connector), None),
            Attachment::Remote(text) => {
                let (host, query) = text.split_once('?').unwrap_or((&text, ""));
                let name = || Site::Name(host.to_owned());
                (host.parse().map_or_else(|_| name(), Site::Address), Some(query.to_owned()))
            }
        }
    }
}

/// Location of a node, without the keys to authenticate with there.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    /// Unix socket path; see [`Attachment::Unix`].
    Unix(PathBuf),
    /// In-process connector; see [`Attachment::InProcess`].
    InProcess(Connector),
    /// `HOST:PORT` on another host, not yet looked up.
    Name(String),
    /// Resolved address on another host.
    Address(SocketAddr),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Unix(path) => path.display().fmt(f),
            Site::InProcess(_) => f.write_str("this process"),
            Site::Name(name) => write!(f, "tcp://{name}"),
            Site::Address(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Site {
    /// Connects a carrier. `identity` is the socket's secret, `attempt` counts its connections, and
    /// `keys` authenticate it on another host.
    pub(crate) fn connect(
        &self,
        identity: u64,
        attempt: u32,
        keys: Option<&Keys>,
    ) -> Result<Box<dyn Carrier>, Error> {
        let remote = |address| -> Result<Box<dyn Carrier>, Error> {
            let keys = keys.ok_or_else(keys::missing)?;
            Ok(Box::new(Remote::connect(address, identity, attempt, keys)?))
        };
        Ok(match self {
            Site::Unix(path) => Box::new(Unix::connect(path)?),
            Site::InProcess(connector) => Box::new(connector.connect()?),
            Site::Address(address) => remote(*address)?,
            Site::Name(name) => {
                let address = look_up(name)?.next();
                let address =
                    address.ok_or_else(|| no_address(name, io::ErrorKind::NotFound.into()))?;
                remote(address)?
            }
        })
    }

    /// Whether the node is on this host.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Site::Unix(_) | Site::InProcess(_))
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        if self.is_local() { ANSWER_TIMEOUT } else { REMOTE_TIMEOUT }
    }
}

pub(crate) fn look_up(name: &str) -> Result<impl Iterator<Item = SocketAddr>, Error> {
    name.to_socket_addrs().map_err(|source| no_address(name, source))
}

pub(crate) fn no_address(name: &str, source: io::Error) -> Error {
    Error::NoAddress { name: name.to_owned(), source }
}

/// An option of a datagram socket, set with [`DatagramSocket::set_option`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketOption {
    /// Service for packets sent from now on. Default: real time, since voice is the main use.
    Service(Service),
    /// Lifetime of packets sent from now on, counted from [`DatagramSocket::send_to`]: 1 to 255 ms,
    /// rounded down to whole milliseconds. Nodes retransmit a lost packet only while it can still
    /// arrive in time. Default: 100 ms, the latency threshold of the G.711 codec in Amir et al.
    /// 2005, §IV.
    Deadline(Duration),
    /// Metric used to route packets sent from now on. Default: `None`, the node's configured
    /// metric.
    Metric(Option<Metric>),
    /// Whether to receive real-time packets even if their deadline passed while they were queued
    /// for this application: because the node had no time to run, or because the application did
    /// not receive for longer than any deadline, 255 ms. Default: no, they are dropped. Set it
    /// before the application falls behind.
    Late(bool),
    /// Whether best-effort and reliable packets wait for room instead of being dropped, when they
    /// arrive faster than the node's outgoing link takes them.
    ///
    /// [`DatagramSocket::send_to`] then blocks as TCP's does, once two buffers are full: the socket
    /// to the node (with Linux's default, some 90 packets of 1,200 bytes; to a node on another host
    /// these packets take TCP) and the link's queue, of at most 64 KiB or 50 ms. Packets wait for
    /// the link's `rate` in the node's file: a link without one takes all best effort at once.
    /// Reliable packets also wait for their window.
    ///
    /// Nothing else is flow-controlled: not real-time packets, although those sent on this socket
    /// queue behind a packet that waits (use one socket for each service); not packets to an
    /// application that doesn't read; not packets on links after the first. A packet without a
    /// route is dropped as usual. Default: no.
    Blocking(bool),
    /// Whether [`DatagramSocket::recv_from`], and with [`Blocking`](SocketOption::Blocking) also
    /// [`DatagramSocket::send_to`], returns [`WouldBlock`](Error::WouldBlock) instead of blocking.
    /// Default: they block.
    ///
    /// A nonblocking socket of a node on another host works only while it is called: what TCP has
    /// not yet taken of the last packet is sent when the descriptor is readable and `recv_from` is
    /// called.
    Nonblocking(bool),
    /// Maximum time that [`DatagramSocket::recv_from`] waits; not zero. Default: `None`, for ever.
    ReadTimeout(Option<Duration>),
}

/// A packet that [`DatagramSocket::recv_from`] put into the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Received {
    /// Length of the packet, in bytes.
    pub len: usize,
    /// Address of the sender.
    pub from: Address,
    /// Service that carried the packet.
    pub service: Service,
    /// Whether a link lost the packet and recovered it.
    pub recovered: bool,
    /// Time left until its deadline, as the nodes measured it, in whole milliseconds; zero if the
    /// packet is late.
    pub remaining: Duration,
    /// Sequence number among the packets from that sender to this socket; wraps.
    pub flow_seq: u16,
}

/// State of a socket's connection to its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Whether the node has the socket's port bound, as far as is known.
    pub connected: bool,
    /// Number of times that the connection was lost and restored.
    pub reconnects: u32,
    /// Transport that carries packets; `None` without a connection.
    pub transport: Option<Transport>,
}

/// The state of a destination that the socket sends to, as the node reports it: each change once,
/// as [`Error::Status`]. A destination without a report is reachable, as far as is known.
///
/// A node tracks up to 256 unreachable destinations for a socket. Once a lost connection to the
/// node is restored, reporting starts from scratch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// From now on, packets from this socket don't reach the destination.
    Unreachable {
        /// Destination of the packets.
        to: Address,
        /// Reason why packets don't arrive.
        why: Unreachable,
    },
    /// Packets reach the destination again, as far as is known. A restored route is reported
    /// automatically; a port that is bound again, only if the socket keeps sending to it or
    /// receives something from it.
    Reachable {
        /// Destination of the packets.
        to: Address,
    },
}

impl Status {
    /// Destination that the status is about.
    pub fn to(&self) -> Address {
        match *self {
            Status::Unreachable { to, .. } | Status::Reachable { to } => to,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Reachable { to } => write!(f, "{to} can be reached again"),
            Status::Unreachable { to, why } => match why {
                Unreachable::NoRoute => write!(f, "there is no route to node {}", to.node),
                Unreachable::Since(ago) => {
                    let s = ago.as_secs_f64();
                    write!(f, "node {} has been unreachable for {s:.1} s", to.node)
                }
                Unreachable::NoPort => write!(f, "no application is bound to {to}"),
            },
        }
    }
}

/// A datagram socket on the overlay. See the [crate's documentation](crate).
///
/// It can be shared between threads; a thread that waits in
/// [`recv_from`](DatagramSocket::recv_from) does not keep others from sending.
///
/// # When the node goes away
///
/// The socket tries to connect and bind its port again after 50 ms, 100 ms and so on, up to every
/// second. It has no thread for that: the attempts are made in `recv_from` and `send_to`, and the
/// descriptor becomes readable when one is due. Until one succeeds, `send_to` returns
/// [`Error::Disconnected`] at once and `recv_from` waits; then `recv_from` returns
/// [`Error::Reconnected`] once. If the node refuses the port, that refusal is returned once, and
/// the attempts continue.
///
/// The loss of a node on another host, or of the network to it, is detected after 6 s of silence,
/// if `recv_from` or `send_to` is called or the descriptor is polled meanwhile; packets passed to
/// `send_to` are lost until then. When the socket is back, it replaces its old session at the node.
pub struct DatagramSocket {
    connection: Mutex<Connection>,
    ready: std::sync::Arc<nix::sys::epoll::Epoll>,
}

impl DatagramSocket {
    /// Attaches to the node and takes virtual port `port`, or any free one if that is 0. Waits up
    /// to 2 s for the node, or 4 s if it is on another host.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](Error::NotRunning), [`NoAddress`](Error::NoAddress),
    /// [`NoAnswer`](Error::NoAnswer), [`PortInUse`](Error::PortInUse),
    /// [`NoFreePort`](Error::NoFreePort), [`Attachment`](Error::Attachment),
    /// [`KeyFile`](Error::KeyFile), [`Refused`](Error::Refused) if the node's rules or keys don't
    /// permit it, [`Version`](Error::Version), [`Disconnected`](Error::Disconnected) if the node
    /// hung up, [`Protocol`](Error::Protocol), [`Io`](Error::Io).
    pub fn bind(at: impl Into<Attachment>, port: u16) -> Result<DatagramSocket, Error> {
        let socket = DatagramSocket::unbound(at.into())?;
        socket.lock().bind(port)?;
        Ok(socket)
    }

    /// Creates a socket without a port; its descriptor stays the same for its whole life.
    pub(crate) fn unbound(at: Attachment) -> Result<DatagramSocket, Error> {
        let connection = Connection::new(at)?;
        let ready = connection.ready().clone();
        Ok(DatagramSocket { connection: Mutex::new(connection), ready })
    }

    /// Node and virtual port of this socket.
    pub fn local_addr(&self) -> Address {
        self.lock().local
    }

    /// Largest payload, in bytes, that [`send_to`](DatagramSocket::send_to) accepts.
    pub fn max_payload(&self) -> usize {
        self.lock().max_payload
    }

    /// Whether the socket is connected to the node, over which transport, and how often it
    /// reconnected.
    pub fn status(&self) -> ConnectionStatus {
        self.lock().status()
    }

    /// Sends one packet. Never blocks, except for non-real-time packets with
    /// [`Blocking`](SocketOption::Blocking): real-time media are better dropped than delayed.
    ///
    /// # Errors
    ///
    /// The packet was not sent: [`TooLarge`](Error::TooLarge); [`WouldBlock`](Error::WouldBlock) if
    /// the node does not keep up (with [`Blocking`](SocketOption::Blocking), if the socket is
    /// nonblocking: its descriptor becomes readable when another attempt is worthwhile);
    /// [`Disconnected`](Error::Disconnected) while the node is away. If a [`Status`](Error::Status)
    /// or an error about an earlier packet (see [`recv_from`](DatagramSocket::recv_from)) is the
    /// next thing to receive, it is returned here, and this packet is not sent: send it again.
    pub fn send_to(&self, payload: &[u8], to: Address) -> Result<(), Error> {
        self.send_waiting(payload, to, true)
    }

    /// Sends one packet like `send_to`; without `may_wait` it never blocks.
    pub(crate) fn send_waiting(
        &self,
        payload: &[u8],
        to: Address,
        may_wait: bool,
    ) -> Result<(), Error> {
        // The lock is held during an attempt, not while waiting.
        loop {
            let room = {
                let mut connection = self.lock();
                match connection.send(payload, to) {
                    Ok(()) => break,
                    Err(Error::WouldBlock) => connection.room(may_wait),
                    Err(error) => return Err(error),
                }
            };
            wait_for_room(&*room.ok_or(Error::WouldBlock)?)?;
        }
        loop {
            let room = self.lock().room_for_rest(may_wait);
            let Some(room) = room else { return Ok(()) };
            if wait_for_room(&room).is_err() {
                // The packet has been accepted.
                return Ok(());
            }
        }
    }

    /// Receives one packet into `buf`.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking or the read timeout has
    /// passed; [`Truncated`](Error::Truncated) if `buf` was too short;
    /// [`Reconnected`](Error::Reconnected) once after the node was away.
    ///
    /// [`Status`](Error::Status), once for each change in the state of a destination.
    /// [`Refused`](Error::Refused), once for each packet that the node refused; with
    /// [`OverRate`](crate::RefusalReason::OverRate), send less.
    ///
    /// [`PortInUse`](Error::PortInUse), [`Version`](Error::Version) or
    /// [`NoFreePort`](Error::NoFreePort), once for each attempt to reconnect that failed for a new
    /// reason. [`Protocol`](Error::Protocol) when the node breaks the session protocol, after which
    /// the socket reconnects.
    pub fn recv_from(&self, buf: &mut [u8]) -> Result<Received, Error> {
        let mut until = None;
        loop {
            // The lock is held during the attempt, not while waiting.
            let timeout = {
                let mut connection = self.lock();
                match connection.receive(buf) {
                    Err(Error::WouldBlock) if !connection.nonblocking => connection.read_timeout,
                    result => return result,
                }
            };
            let mut left = None;
            if let Some(timeout) = timeout {
                let now = Instant::now();
                // A deadline beyond the clock's range means for ever.
                let until = *until.get_or_insert_with(|| now.checked_add(timeout));
                left = until.map(|until| until.saturating_duration_since(now));
                if left == Some(Duration::ZERO) {
                    return Err(Error::WouldBlock);
                }
            }
            wait_readable(self.as_fd(), left)?;
        }
    }

    /// Sets one option of the socket.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if the value is out of range.
    pub fn set_option(&self, option: SocketOption) -> Result<(), Error> {
        let mut connection = self.lock();
        match option {
            SocketOption::Service(service) => connection.service = service,
            SocketOption::Metric(metric) => connection.metric = metric,
            SocketOption::Late(on) => connection.set_late(on),
            SocketOption::Blocking(on) => connection.set_blocking(on)?,
            SocketOption::Nonblocking(on) => connection.nonblocking = on,
            SocketOption::ReadTimeout(Some(Duration::ZERO)) => {
                return Err(Error::InvalidOption {
                    option: "the read timeout",
                    value: "zero".into(),
                    range: "use Nonblocking, or None to wait for ever",
                });
            }
            SocketOption::ReadTimeout(timeout) => connection.read_timeout = timeout,
            SocketOption::Deadline(deadline) => match u8::try_from(deadline.as_millis()) {
                Ok(ms @ 1..) => connection.deadline_ms = ms,
                _ => {
                    return Err(Error::InvalidOption {
                        option: "the deadline",
                        value: format!("{deadline:?}"),
                        range: "give 1 to 255 ms",
                    });
                }
            },
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        // No code panics halfway through a change.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for DatagramSocket {
    /// Readable (level-triggered) when [`recv_from`](DatagramSocket::recv_from) has something to
    /// do, which includes an attempt to reconnect. The descriptor stays the same for the socket's
    /// whole life. As with any socket, spurious readability is harmless if the socket is
    /// nonblocking.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.0.as_fd()
    }
}

impl AsRawFd for DatagramSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for DatagramSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, status) = {
            let connection = self.lock();
            (connection.local, connection.status())
        };
        f.debug_struct("DatagramSocket").field("local", &local).field("status", &status).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::listen;
    use nix::errno::Errno;
    use std::thread;
    use trunkline_base::wire::Writer;
    use trunkline_overlay::session::wire::{MAX_HEAD, ToClient};

    /// Closing wakes all threads that wait for room, at once.
    #[test]
    fn closing_wakes_who_waits_for_room() {
        let (connector, mut acceptor) = listen(1, 1).unwrap();
        let node = thread::spawn(move || {
            loop {
                if let Some(mut end) = acceptor.accept() {
                    let mut head = [0; MAX_HEAD];
                    let mut w = Writer::new(&mut head);
                    let bound = ToClient::Bound { node: NodeId(1), port: 5, max_payload: 1_200 };
                    bound.emit_head(&mut w).unwrap();
                    assert!(end.send(w.written(), &[]));
                    return end;
                }
            }
        });
        let socket = DatagramSocket::bind(connector, 5).unwrap();
        let _end = node.join().unwrap();
        socket.set_option(SocketOption::Service(Service::BestEffort)).unwrap();
        socket.set_option(SocketOption::Blocking(true)).unwrap();
        let fill = || {
            let to = Address { node: NodeId(2), port: 1 };
            loop {
                if let Err(error) = socket.send_to(&[0; 1_000], to) {
                    return error;
                }
            }
        };
        thread::scope(|scope| {
            let waiting = [0; 3].map(|_| scope.spawn(fill));
            thread::sleep(Duration::from_millis(50));
            assert!(waiting.iter().all(|thread| !thread.is_finished()));
            socket.lock().close();
            for thread in waiting {
                let error = thread.join().unwrap();
                let bad = Errno::EBADF as i32;
                assert!(
                    matches!(&error, Error::Io { source, .. } if source.raw_os_error() == Some(bad))
                );
            }
        });
    }
}
