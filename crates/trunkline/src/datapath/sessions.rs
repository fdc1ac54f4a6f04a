//! The applications attached to a node: the Unix socket that lets them in, and
//! one carrier for each.

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

/// A listening socket.
pub struct AcceptQueue {
    socket: Socket,
    /// A descriptor in reserve: when there is no other, giving it up lets an
    /// application in to be shown the door, lest it knock for ever.
    spare: Option<Socket>,
    stuck: bool,
}

impl AcceptQueue {
    /// Lets connections queue at `socket`, which is bound and nonblocking.
    pub fn open(socket: Socket) -> io::Result<AcceptQueue> {
        socket.listen(libc::SOMAXCONN)?;
        Ok(AcceptQueue { socket, spare: spare(), stuck: false })
    }

    /// The next connection that wants in, if one waits.
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

    /// Whether who waits could be neither let in nor turned away: epoll goes on
    /// saying that somebody waits, and asking again at once is of no use.
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

/// The place where applications find a node: a Unix socket that keeps message
/// boundaries.
pub struct Listener {
    /// Goes before the socket does: see [`SocketFile`].
    _file: SocketFile,
    queue: AcceptQueue,
}

impl Listener {
    /// Listens at `path`, replacing what a node that died there left behind.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let (socket, file) = bind_unix(path, Type::SEQPACKET.nonblocking())?;
        Ok(Listener { _file: file, queue: AcceptQueue::open(socket)? })
    }

    /// The next application that wants in, if one waits.
    pub fn accept(&mut self) -> io::Result<Option<Socket>> {
        self.queue.accept()
    }

    /// As [`Door::is_stuck`].
    pub fn is_stuck(&self) -> bool {
        self.queue.is_stuck()
    }
}

/// A Unix socket at `path`, in the place of what a node that died there left
/// behind. Whoever may write the file may send voice, or operate the node: the
/// owner and the group.
pub fn bind_unix(path: &Path, kind: Type) -> io::Result<(Socket, SocketFile)> {
    let (socket, address) = (Socket::new(Domain::UNIX, kind, None)?, SockAddr::unix(path)?);
    match socket.bind(&address) {
        Err(e) if e.kind() == ErrorKind::AddrInUse && is_socket(path) => {
            // A node that hangs, its queue full, must not hold up this one.
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

/// Where a Unix socket is found; it is removed when this is dropped, if nothing
/// else has taken its place. The socket must be open until then, since no other
/// file gets the inode of an open one.
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
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

/// What lies at `path` is ours to replace only if it is a socket.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// How one application's messages travel.
pub enum Carrier {
    /// A connection of a [`Listener`].
    Unix(Unix),
    /// A pair of rings in this process.
    InProcess(in_process::End),
    /// A connection from another host.
    Remote(Box<remote::Session>),
}

/// What a node knows of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Application {
    /// A process of this machine, by its number.
    Process(i32),
    /// The node's own process.
    Inside,
    /// On another host, with the rights of this `[[client]]`.
    Remote(Client),
}

/// What reading from a carrier gave.
pub enum Read {
    /// A message of so many bytes.
    Message(usize),
    /// Something that was the carrier's own business, or part of a message.
    Handled,
    /// Whose connection it is: an earlier one of the same client is over.
    Hello(Hello),
    /// Bytes that make no sense: the carrier is of no more use.
    Broken,
    /// Nothing now.
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

    /// Whose it is.
    pub fn application(&self) -> Application {
        match self {
            // Zero is a process that this one cannot see.
            Carrier::Unix(socket) => Application::Process(
                getsockopt(socket, sockopt::PeerCredentials).map_or(0, |who| who.pid()),
            ),
            Carrier::InProcess(_) => Application::Inside,
            Carrier::Remote(session) => Application::Remote(session.client()),
        }
    }

    /// Tells the application why it may not attach.
    pub fn turn_away(&mut self, now: Time, refusal: RefusalReason) {
        let why = ToClient::Error { refusal, node: NodeId::NONE, port: 0 };
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        if why.emit_head(&mut w).is_ok() {
            self.send(now, w.written(), &[]);
        }
    }

    /// Reads one message into `buf`; a longer one is cut off, which the node
    /// then refuses.
    pub fn recv(&mut self, buf: &mut [u8], now: Time) -> Read {
        match self {
            Carrier::Unix(unix) => unix.recv(buf, now),
            Carrier::InProcess(end) => {
                // Asked before the ring is looked at, lest what was sent just
                // before the application went be missed.
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

    /// When the application sent the message that was read last, as far as is
    /// known: before `now` if this process had no time to run.
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

/// The carriers by session: where a node's messages to applications go.
pub struct Carriers {
    slots: Vec<Option<Carrier>>,
    /// The present, as of this wake-up.
    pub now: Time,
    /// What the remote ones share.
    pub remotes: Remotes,
    /// The media of a gateway's calls, which have sessions of their own.
    pub legs: Legs,
}

impl Carriers {
    /// None yet.
    pub fn new(remotes: Remotes) -> Carriers {
        Carriers { slots: Vec::new(), now: Time::ZERO, remotes, legs: Legs::default() }
    }

    /// Gives `id` its carrier.
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

    /// The carrier of `id`.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Carrier> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Whose carrier `id` has.
    pub fn application(&self, id: SessionId) -> Option<Application> {
        Some(self.slots.get(id.0 as usize)?.as_ref()?.application())
    }

    /// Whose rights `id` has.
    pub fn client(&self, id: SessionId) -> Client {
        match self.slots.get(id.0 as usize) {
            Some(Some(Carrier::Remote(session))) => session.client(),
            _ => Client::Local,
        }
    }

    /// The carrier of `id`, if it is a remote one.
    pub fn remote_mut(&mut self, id: SessionId) -> Option<&mut remote::Session> {
        match self.get_mut(id)? {
            Carrier::Remote(session) => Some(session),
            _ => None,
        }
    }

    /// Takes the carrier of `id` away.
    pub fn remove(&mut self, id: SessionId) -> Option<Carrier> {
        let carrier = self.slots.get_mut(id.0 as usize)?.take();
        if let Some(Carrier::Remote(session)) = &carrier {
            self.remotes.dismiss(id, session);
        }
        carrier
    }

    /// Session `id` may have said something over TCP.
    pub fn note_stuck(&mut self, id: SessionId) {
        if let Some(Some(Carrier::Remote(session))) = self.slots.get_mut(id.0 as usize) {
            self.remotes.note_stuck(id, session);
        }
    }

    /// The remote sessions.
    pub fn remote_sessions(&self) -> impl Iterator<Item = &remote::Session> {
        self.slots.iter().flatten().filter_map(|carrier| match carrier {
            Carrier::Remote(session) => Some(&**session),
            _ => None,
        })
    }

    /// A datagram that came to the remote address at `via`: the session message
    /// in it, if it holds one.
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
