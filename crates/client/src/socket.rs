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

/// How long [`DatagramSocket::bind`] waits for the node's answer. A node that
/// is up answers in microseconds; this covers one that is starting.
pub(crate) const BIND_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a node that takes a connection may think about the bind.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Both for a node on another host: TCP's first segment may be lost twice (1 s
/// and 2 s, RFC 6298) before it is no use to wait.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(4);

/// An application's end of a flow: a virtual port at a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The node.
    pub node: NodeId,
    /// The virtual port there.
    pub port: u16,
}

impl fmt::Display for Address {
    /// `node:port`, both decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}

/// Where the node is.
///
/// From a string: a Unix socket's path, or `tcp://HOST:PORT?node=PUBKEY&key=FILE`,
/// where `HOST` is a name or an IP address (IPv6 in brackets), `PUBKEY` the node's
/// public key and `FILE` a secret key that only its owner may read, made by
/// `trunkline keygen`. In both, `%` begins an escape (RFC 3986); the key may also
/// be in the base64 of URLs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Attachment {
    /// It listens on a `SOCK_SEQPACKET` Unix socket at this path.
    Unix(PathBuf),
    /// It is in this process.
    InProcess(Connector),
    /// It is on another host and lets remote applications in (`remote` in its
    /// configuration), over TCP and UDP: `HOST:PORT?node=PUBKEY&key=FILE`. The name
    /// is looked up once, and the file read, when the socket is bound.
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
    /// Where the node is, and of a remote one what follows the question mark: what to
    /// authenticate with.
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

/// Where a node is, without the keys to authenticate with there.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    /// See [`Attachment::Unix`].
    Unix(PathBuf),
    /// See [`Attachment::InProcess`].
    InProcess(Connector),
    /// `HOST:PORT` on another host, to be looked up.
    Name(String),
    /// An address on another host.
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
    /// `identity` is the socket's secret, `attempt` counts its connections,
    /// `keys` are those to authenticate with on another host.
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

/// What [`DatagramSocket::set_option`] sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketOption {
    /// How packets sent from now on are carried. Default: real time, since
    /// voice is what one comes here for.
    Service(Service),
    /// How long a packet sent from now on is of use, counted from
    /// [`DatagramSocket::send_to`]: 1 to 255 ms, fractions are cut off. Nodes
    /// repeat a lost packet only while it can still be in time. Default: 100 ms,
    /// the latency threshold of the G.711 codec in Amir et al. 2005, §IV.
    Deadline(Duration),
    /// By what the ways of packets sent from now on are chosen. Default: `None`,
    /// as the node is configured.
    Metric(Option<Metric>),
    /// Whether to receive real-time packets whose deadline passed while they waited
    /// to be received: because the node had no time to run, or this application did
    /// not receive for longer than any deadline, 255 ms. Default: no, they are
    /// dropped. Set it before the application falls behind.
    Late(bool),
    /// Whether best-effort and reliable packets wait for room rather than be dropped, when they
    /// come faster than the link on which they leave the node takes them. Then
    /// [`DatagramSocket::send_to`] waits as well, as TCP's does: behind what the
    /// socket to the node holds (with Linux's default some 90 packets of 1,200 bytes;
    /// to a node on another host they take TCP) and at most 64 KiB or 50 ms in
    /// the link. They wait for the link's `rate` in the node's file: a link without
    /// one takes all best effort at once; reliable packets wait for their window, too. Nothing else waits: not real-time packets, though what is sent by
    /// this socket behind a packet that waits is behind it (use one for each service);
    /// not for an application that doesn't read; not on the links behind the first. A
    /// packet that has no way is dropped as ever. Default: no.
    Blocking(bool),
    /// Whether [`DatagramSocket::recv_from`] returns
    /// [`WouldBlock`](Error::WouldBlock) rather than wait, and with
    /// [`Wait`](SocketOption::Wait) also [`DatagramSocket::send_to`]. Default: they
    /// wait.
    Nonblocking(bool),
    /// How long [`DatagramSocket::recv_from`] waits at most; not zero.
    /// Default: `None`, for ever.
    ReadTimeout(Option<Duration>),
}

/// A packet that [`DatagramSocket::recv_from`] put into the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Received {
    /// Its length in bytes.
    pub len: usize,
    /// Who sent it.
    pub from: Address,
    /// How it was carried.
    pub service: Service,
    /// Whether a link lost it on its way and got it again.
    pub recovered: bool,
    /// How much of its deadline was left, as the nodes reckon, in whole
    /// milliseconds; zero if it is late.
    pub remaining: Duration,
    /// Its number among the packets from there to here; wraps.
    pub flow_seq: u16,
}

/// How a socket's connection to its node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Whether the node has the socket's port bound, as far as is known.
    pub connected: bool,
    /// How often the connection was lost and came back.
    pub reconnects: u32,
    /// What carries packets; `None` without a connection.
    pub transport: Option<Transport>,
}

/// What the node says of a destination that the socket sends to: each change
/// once, as [`Error::Status`]. A destination of which nothing was said is
/// reachable, as far as is known.
///
/// A node says it of the 256 destinations in trouble that it knows of for a
/// socket. When the connection to it was lost and is back, it begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Packets from this socket don't get there, from now on.
    Unreachable {
        /// Where they go.
        to: Address,
        /// Why.
        why: Unreachable,
    },
    /// They do again, as far as is known. That a route is back is said by itself;
    /// that a port is bound, only to one who goes on sending to it, or is sent
    /// something from there.
    Reachable {
        /// Where they go.
        to: Address,
    },
}

impl Status {
    /// The destination.
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
/// The socket tries to connect and bind its port again after 50 ms, 100 ms and
/// so on up to every second. It has no thread for that: the attempts are made
/// in `recv_from` and `send_to`, and the descriptor becomes readable when one
/// is due. Until one succeeds `send_to` returns [`Error::Disconnected`] at once
/// and `recv_from` waits; then `recv_from` returns [`Error::Reconnected`] once.
/// If the node refuses the port, that refusal is returned once, and the
/// attempts go on.
///
/// A node on another host, or the network to it, is found to be away after 6 s
/// of silence, if `recv_from` or `send_to` is called or the descriptor polled
/// meanwhile; `send_to` loses packets until then. What is left of the session
/// at the node is replaced when the socket is back.
pub struct DatagramSocket {
    connection: Mutex<Connection>,
    ready: std::sync::Arc<nix::sys::epoll::Epoll>,
}

impl DatagramSocket {
    /// Attaches to the node and takes virtual port `port`, or any free one if
    /// that is 0. Waits for the node up to 2 s, for one on another host 4 s.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](Error::NotRunning), [`NoAddress`](Error::NoAddress),
    /// [`NoAnswer`](Error::NoAnswer),
    /// [`PortInUse`](Error::PortInUse), [`NoFreePort`](Error::NoFreePort),
    /// [`Attachment`](Error::Attachment), [`KeyFile`](Error::KeyFile),
    /// [`Refused`](Error::Refused) if the node's rules or the keys say so,
    /// [`Version`](Error::Version), [`Disconnected`](Error::Disconnected) if the
    /// node hung up, [`Protocol`](Error::Protocol), [`Io`](Error::Io).
    pub fn bind(at: impl Into<Attachment>, port: u16) -> Result<DatagramSocket, Error> {
        let socket = DatagramSocket::unbound(at.into())?;
        socket.lock().bind(port)?;
        Ok(socket)
    }

    /// A socket without a port, whose descriptor is already that of its life.
    pub(crate) fn unbound(at: Attachment) -> Result<DatagramSocket, Error> {
        let connection = Connection::new(at)?;
        let ready = connection.ready().clone();
        Ok(DatagramSocket { connection: Mutex::new(connection), ready })
    }

    /// The node and the virtual port of this socket.
    pub fn local_addr(&self) -> Address {
        self.lock().local
    }

    /// The largest payload in bytes that [`send_to`](DatagramSocket::send_to)
    /// takes.
    pub fn max_payload(&self) -> usize {
        self.lock().max_payload
    }

    /// Whether the node is there, and how often it came back.
    pub fn status(&self) -> ConnectionStatus {
        self.lock().status()
    }

    /// Sends one packet. Never blocks, but for best effort with
    /// [`Wait`](SocketOption::Wait): for real-time media a packet too many is better
    /// lost than waited for.
    ///
    /// # Errors
    ///
    /// The packet was not sent: [`TooLarge`](Error::TooLarge);
    /// [`WouldBlock`](Error::WouldBlock) if the node does not keep up (with
    /// [`Wait`](SocketOption::Wait) if the socket is nonblocking: its descriptor
    /// becomes readable when it is worth another try);
    /// [`Disconnected`](Error::Disconnected) while the node is away. If a
    /// [`Status`](Error::Status) or an error about an earlier packet (see
    /// [`recv_from`](DatagramSocket::recv_from)) is the next thing to receive, it is
    /// returned here, and this packet is not sent: send it again.
    pub fn send_to(&self, payload: &[u8], to: Address) -> Result<(), Error> {
        self.send_waiting(payload, to, true)
    }

    /// The same; without `may_wait` it never blocks.
    pub(crate) fn send_waiting(
        &self,
        payload: &[u8],
        to: Address,
        may_wait: bool,
    ) -> Result<(), Error> {
        loop {
            // The lock is held for the attempt, not for the wait.
            let room = {
                let mut connection = self.lock();
                match connection.send(payload, to) {
                    Err(Error::WouldBlock) => connection.room(may_wait),
                    result => return result,
                }
            };
            wait_for_room(&*room.ok_or(Error::WouldBlock)?)?;
        }
    }

    /// Receives one packet into `buf`.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking or the
    /// read timeout has passed; [`Truncated`](Error::Truncated) if `buf` was too
    /// short; [`Reconnected`](Error::Reconnected) once after the node was away.
    ///
    /// Once for each change of what the node knows of a destination:
    /// [`Status`](Error::Status). Once per packet that the node refused:
    /// [`Refused`](Error::Refused).
    ///
    /// Once per attempt to connect again that failed in a new way:
    /// [`PortInUse`](Error::PortInUse), [`Version`](Error::Version),
    /// [`NoFreePort`](Error::NoFreePort). When the node breaks the session
    /// protocol, [`Protocol`](Error::Protocol), and the connection is made anew.
    pub fn recv_from(&self, buf: &mut [u8]) -> Result<Received, Error> {
        let mut until = None;
        loop {
            // The lock is held for the attempt, not for the wait.
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
                // A time past what the clock can tell is for ever.
                let until = *until.get_or_insert_with(|| now.checked_add(timeout));
                left = until.map(|until| until.saturating_duration_since(now));
                if left == Some(Duration::ZERO) {
                    return Err(Error::WouldBlock);
                }
            }
            wait_readable(self.as_fd(), left)?;
        }
    }

    /// Sets one option.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption).
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
        // Nothing panics in between two halves of a change.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for DatagramSocket {
    /// Readable (level-triggered) when [`recv_from`](DatagramSocket::recv_from)
    /// has something to do, be it to try and connect again. The same for the
    /// socket's whole life. As with any socket, a nonblocking one is safe
    /// against being readable for nothing.
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

    /// All who wait for room, at once.
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
