//! The applications attached to a node: the Unix socket that accepts them, and one carrier for
//! each.

use super::media::Legs;
use super::remote::{self, Hello, Remotes};
use super::unix::Unix;
use crate::clock::Stamps;
use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_client::in_process;
use trunkline_overlay::node::{SendOutcome, Sink};
use trunkline_overlay::session::wire::{MAX_HEAD, RefusalReason, ToClient};
use trunkline_overlay::session::{Client, SessionId};
use trunkline_overlay::wire::NodeId;

/// A listening socket, with a descriptor in reserve.
pub struct AcceptQueue {
    socket: Socket,
    /// Descriptor in reserve. When no other is left, it is given up to accept an application and
    /// hang up on it, so that the connection does not stay pending for ever.
    spare: Option<Socket>,
    stuck: bool,
}

impl AcceptQueue {
    /// Starts listening on `socket`, which is bound and nonblocking.
    pub fn open(socket: Socket) -> io::Result<AcceptQueue> {
        socket.listen(libc::SOMAXCONN)?;
        Ok(AcceptQueue { socket, spare: spare(), stuck: false })
    }

    /// Accepts the next connection, if one waits.
    pub fn accept(&mut self) -> io::Result<Option<Socket>> {
        match self.socket.accept() {
            Ok((socket, _)) => {
                self.stuck = false;
                self.spare = self.spare.take().or_else(spare);
                socket.set_nonblocking(true)?;
                Ok(Some(socket))
            }
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                    Ok(None)
                }
                _ => {
                    self.turn_one_away();
                    Err(e)
                }
            },
        }
    }

    /// Whether the waiting connection could be neither accepted nor rejected: epoll keeps reporting
    /// it, and an immediate retry would fail as well.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    fn turn_one_away(&mut self) {
        self.stuck = self.spare.take().is_none() || self.socket.accept().map(drop).is_err();
        self.spare = spare();
    }
}

fn spare() -> Option<Socket> {
    Socket::new(Domain::UNIX, Type::SEQPACKET, None).ok()
}

impl AsFd for AcceptQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Socket at which applications attach to a node: a Unix socket that keeps message boundaries.
pub struct Listener {
    /// Dropped before the socket: see [`SocketFile`].
    _file: SocketFile,
    queue: AcceptQueue,
}

impl Listener {
    /// Listens at `path`, replacing the socket that a dead node left there.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let (socket, file) = bind_unix(path, Type::SEQPACKET.nonblocking())?;
        Ok(Listener { _file: file, queue: AcceptQueue::open(socket)? })
    }

    /// Accepts the next application, if one waits.
    pub fn accept(&mut self) -> io::Result<Option<Socket>> {
        self.queue.accept()
    }

    /// Whether the listener is stuck; see [`AcceptQueue::is_stuck`].
    pub fn is_stuck(&self) -> bool {
        self.queue.is_stuck()
    }
}

/// Binds a Unix socket at `path`, replacing the one that a dead node left there. Any user who may
/// write the file may send voice, or operate the node: the owner and the group.
pub fn bind_unix(path: &Path, kind: Type) -> io::Result<(Socket, SocketFile)> {
    let (socket, address) = (Socket::new(Domain::UNIX, kind, None)?, SockAddr::unix(path)?);
    match socket.bind(&address) {
        Err(e) if e.kind() == ErrorKind::AddrInUse && is_socket(path) => {
            // A hung node with a full queue must not block this one.
            let probe = Socket::new(Domain::UNIX, kind.nonblocking(), None)?;
            match probe.connect(&address) {
                Err(dead) if dead.kind() == ErrorKind::ConnectionRefused => {}
                _ => return Err(e),
            }
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "something else is there"));
        }
        done => done?,
    }
    let file = SocketFile::there(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok((socket, file))
}

/// The file of a Unix socket, removed when this is dropped unless another file has replaced it. The
/// socket must be open until then, since no other file gets the inode of an open one.
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    inode: (u64, u64),
}

impl SocketFile {
    fn there(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), inode: inode(path)? })
    }
}

impl std::ops::Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|there| there == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// A file at `path` may be replaced only if it is a socket.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Transport of one application's messages.
pub enum Carrier {
    /// A connection of a [`Listener`].
    Unix(Unix),
    /// A pair of rings in this process.
    InProcess(in_process::End),
    /// A connection from another host.
    Remote(Box<remote::Session>),
}

/// An application's location and identity, as far as they are known to the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Application {
    /// A process on this machine, by its process id.
    Process(i32),
    /// A thread of the node's process.
    Inside,
    /// A client on another host, with the rights of this `[[client]]`.
    Remote(Client),
}

/// User on whose behalf a session's application sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum User {
    /// A user of this machine, by number.
    Local(u32),
    /// The `[[client]]` with this number.
    Client(u16),
}

/// Result of reading from a carrier.
pub enum Read {
    /// A message of this length in bytes.
    Message(usize),
    /// A control message of the carrier, or part of a message.
    Handled,
    /// Identity of the connection: an earlier one of the same client must be closed.
    Hello(Hello),
    /// Invalid bytes: the carrier can't be used any more.
    Broken,
    /// Nothing to read now.
    Empty,
    /// The application is gone.
    Closed,
}

impl Carrier {
    fn send(&mut self, now: Time, head: &[u8], payload: &[u8]) -> bool {
        match self {
            Carrier::Unix(unix) => unix.send(now, head, payload),
            Carrier::InProcess(end) => end.send(head, payload),
            Carrier::Remote(session) => session.send(head, payload),
        }
    }

    /// Application at the other end.
    pub fn application(&self) -> Application {
        match self {
            // Zero is a process that is not visible to this one.
            Carrier::Unix(socket) => Application::Process(
                getsockopt(socket, sockopt::PeerCredentials).map_or(0, |who| who.pid()),
            ),
            Carrier::InProcess(_) => Application::Inside,
            Carrier::Remote(session) => Application::Remote(session.client()),
        }
    }

    /// User on whose behalf the application at the other end sends.
    pub fn user(&self) -> User {
        match self {
            Carrier::Unix(socket) => User::Local(
                getsockopt(socket, sockopt::PeerCredentials).map_or(u32::MAX, |who| who.uid()),
            ),
            Carrier::InProcess(_) => User::Local(nix::unistd::geteuid().as_raw()),
            Carrier::Remote(session) => match session.client() {
                Client::Known(i) => User::Client(i),
                Client::Local | Client::Gateway => User::Local(u32::MAX),
            },
        }
    }

    /// Sends the application the reason for its rejection.
    pub fn turn_away(&mut self, now: Time, refusal: RefusalReason) {
        self.refuse(now, refusal, (NodeId::NONE, 0));
    }

    /// Sends the application the reason for which its packet to this address was refused.
    pub fn refuse(&mut self, now: Time, refusal: RefusalReason, (node, port): (NodeId, u16)) {
        let why = ToClient::Error { refusal, node, port };
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        if why.emit_head(&mut w).is_ok() {
            self.send(now, w.written(), &[]);
        }
    }

    /// Reads one message into `buf`; a longer one is cut off, which the node then refuses.
    pub fn recv(&mut self, buf: &mut [u8], now: Time) -> Read {
        match self {
            Carrier::Unix(unix) => unix.recv(buf, now),
            Carrier::InProcess(end) => {
                // Read before the ring is checked, so that a message sent just before the
                // application left is not missed.
                let closed = end.closed();
                match end.recv(buf) {
                    Some(n) => Read::Message(n.min(buf.len())),
                    None if closed => Read::Closed,
                    None => Read::Empty,
                }
            }
            Carrier::Remote(session) => session.recv(buf),
        }
    }

    /// Time at which the application sent the last message read, as far as is known: before `now`
    /// if this process had no time to run.
    pub fn sent_at(&self, stamps: &Stamps, now: Time) -> Time {
        match self {
            Carrier::Unix(unix) => unix.sent_at(stamps, now),
            _ => now,
        }
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Carrier::Unix(unix) => unix.as_fd(),
            Carrier::InProcess(end) => end.as_fd(),
            Carrier::Remote(session) => session.as_fd(),
        }
    }
}

/// The carriers by session, through which a node's messages reach applications.
pub struct Carriers {
    slots: Vec<Option<Carrier>>,
    /// Time of this wake-up.
    pub now: Time,
    /// State shared by the remote carriers.
    pub remotes: Remotes,
    /// Media of a gateway's calls, which have separate sessions.
    pub legs: Legs,
}

impl Carriers {
    /// Creates an empty set of carriers.
    pub fn new(remotes: Remotes) -> Carriers {
        Carriers { slots: Vec::new(), now: Time::ZERO, remotes, legs: Legs::default() }
    }

    /// Sets the carrier of session `id`.
    pub fn insert(&mut self, id: SessionId, carrier: Carrier) {
        let i = id.0 as usize;
        if self.slots.len() <= i {
            self.slots.resize_with(i + 1, || None);
        }
        if let Carrier::Remote(session) = &carrier {
            self.remotes.admit(id, session);
        }
        self.slots[i] = Some(carrier);
    }

    /// Carrier of session `id`.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Carrier> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Application behind the carrier of session `id`.
    pub fn application(&self, id: SessionId) -> Option<Application> {
        Some(self.slots.get(id.0 as usize)?.as_ref()?.application())
    }

    /// Client that determines the rights of session `id`.
    pub fn client(&self, id: SessionId) -> Client {
        match self.slots.get(id.0 as usize) {
            Some(Some(Carrier::Remote(session))) => session.client(),
            _ => Client::Local,
        }
    }

    /// Carrier of session `id`, if it is a remote one.
    pub fn remote_mut(&mut self, id: SessionId) -> Option<&mut remote::Session> {
        match self.get_mut(id)? {
            Carrier::Remote(session) => Some(session),
            _ => None,
        }
    }

    /// Removes and returns the carrier of session `id`.
    pub fn remove(&mut self, id: SessionId) -> Option<Carrier> {
        let carrier = self.slots.get_mut(id.0 as usize)?.take();
        if let Some(Carrier::Remote(session)) = &carrier {
            self.remotes.dismiss(id, session);
        }
        carrier
    }

    /// Records a backlog of session `id`, which may have sent something over TCP.
    pub fn note_stuck(&mut self, id: SessionId) {
        if let Some(Some(Carrier::Remote(session))) = self.slots.get_mut(id.0 as usize) {
            self.remotes.note_stuck(id, session);
        }
    }

    /// Iterates over the remote sessions.
    pub fn remote_sessions(&self) -> impl Iterator<Item = &remote::Session> {
        self.slots.iter().flatten().filter_map(|carrier| match carrier {
            Carrier::Remote(session) => Some(&**session),
            _ => None,
        })
    }

    /// Processes a datagram that arrived at the remote address with index `via`, and returns the
    /// session message in it, if there is one.
    pub fn datagram<'a>(
        &mut self,
        via: usize,
        from: SocketAddr,
        bytes: &'a mut [u8],
    ) -> Option<(SessionId, &'a [u8])> {
        let id = self.remotes.owner(bytes)?;
        let Some(Carrier::Remote(session)) = self.slots.get_mut(id.0 as usize)?.as_mut() else {
            return None;
        };
        self.remotes.take(session, via, from, bytes).map(|message| (id, message))
    }
}

impl Sink for Carriers {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> SendOutcome {
        let sent = match self.slots.get_mut(to.0 as usize) {
            Some(Some(Carrier::Remote(session))) => {
                self.remotes.deliver(to, session, head, payload)
            }
            Some(Some(carrier)) => carrier.send(self.now, head, payload),
            _ => match self.legs.held_by(to) {
                Some(port) => self.legs.take_overlay(self.now, port, head, payload),
                None => false,
            },
        };
        if sent { SendOutcome::Accepted } else { SendOutcome::Backpressure }
    }
}
