//! The applications attached to a node: the Unix socket that lets them in, and
//! one carrier for each.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use trunkline_base::wire::Writer;
use trunkline_client::in_process;
use trunkline_overlay::node::Sink;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::wire::{MAX_HEAD, Refusal, ToClient};
use trunkline_overlay::wire::NodeId;

/// Memory for messages on their way to one application: a tenth of a second
/// of a hundred calls, as the kernel counts it.
const SEND_BUFFER: usize = 4 << 20;

/// The place where applications find a node: a Unix socket that keeps message
/// boundaries.
pub struct Listener {
    socket: Socket,
    path: PathBuf,
    /// A descriptor in reserve: when there is no other, giving it up lets an
    /// application in to be shown the door, lest it knock for ever.
    spare: Option<Socket>,
}

impl Listener {
    /// Listens at `path`, replacing what a node that died there left behind.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let fresh = || Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking(), None);
        let (socket, address) = (fresh()?, SockAddr::unix(path)?);
        match socket.bind(&address) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && is_socket(path) => {
                match fresh()?.connect(&address) {
                    Err(dead) if dead.kind() == ErrorKind::ConnectionRefused => {}
                    _ => return Err(e),
                }
                std::fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            done => done?,
        }
        // Whoever may write the file may send voice: the owner and the group.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        socket.listen(libc::SOMAXCONN)?;
        Ok(Listener { socket, path: path.to_owned(), spare: fresh().ok() })
    }

    /// The next application that wants in, if one waits.
    pub fn accept(&mut self) -> io::Result<Option<Socket>> {
        match self.socket.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true)?;
                let _ = socket.set_send_buffer_size(SEND_BUFFER);
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

    fn turn_one_away(&mut self) {
        if self.spare.take().is_some() {
            drop(self.socket.accept());
        }
        self.spare = Socket::new(Domain::UNIX, Type::SEQPACKET, None).ok();
    }
}

/// What lies at `path` is ours to replace only if it is a socket.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::ops::Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// How one application's messages travel.
pub enum Carrier {
    /// A connection of a [`Listener`].
    Unix(Socket),
    /// A pair of rings in this process.
    InProcess(in_process::End),
}

/// What reading from a carrier gave.
pub enum Read {
    /// A message of so many bytes.
    Message(usize),
    /// Nothing now.
    Empty,
    /// The application is gone.
    Closed,
}

impl Carrier {
    fn send(&mut self, head: &[u8], payload: &[u8]) -> bool {
        match self {
            Carrier::Unix(socket) => {
                let parts = [IoSlice::new(head), IoSlice::new(payload)];
                socket.send_vectored_with_flags(&parts, libc::MSG_NOSIGNAL).is_ok()
            }
            Carrier::InProcess(end) => end.send(head, payload),
        }
    }

    /// Tells the application that there is no room for it.
    pub fn turn_away(&mut self) {
        let full = ToClient::Error { refusal: Refusal::Full, node: NodeId(0), port: 0 };
        let mut head = [0; MAX_HEAD];
        let mut w = Writer::new(&mut head);
        if full.emit_head(&mut w).is_ok() {
            self.send(w.written(), &[]);
        }
    }

    /// Reads one message into `buf`; a longer one is cut off, which the node
    /// then refuses.
    pub fn recv(&mut self, buf: &mut [u8]) -> Read {
        match self {
            Carrier::Unix(socket) => match (&*socket).read(buf) {
                Ok(0) => Read::Closed,
                Ok(n) => Read::Message(n),
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => Read::Empty,
                    _ => Read::Closed,
                },
            },
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
        }
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Carrier::Unix(socket) => socket.as_fd(),
            Carrier::InProcess(end) => end.as_fd(),
        }
    }
}

/// The carriers by session: where a node's messages to applications go.
#[derive(Default)]
pub struct Carriers(Vec<Option<Carrier>>);

impl Carriers {
    /// Gives `id` its carrier.
    pub fn insert(&mut self, id: SessionId, carrier: Carrier) {
        let i = id.0 as usize;
        if self.0.len() <= i {
            self.0.resize_with(i + 1, || None);
        }
        self.0[i] = Some(carrier);
    }

    /// The carrier of `id`.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Carrier> {
        self.0.get_mut(id.0 as usize)?.as_mut()
    }

    /// Takes the carrier of `id` away.
    pub fn remove(&mut self, id: SessionId) -> Option<Carrier> {
        self.0.get_mut(id.0 as usize)?.take()
    }
}

impl Sink for Carriers {
    fn deliver(&mut self, to: SessionId, head: &[u8], payload: &[u8]) -> bool {
        self.get_mut(to).is_some_and(|carrier| carrier.send(head, payload))
    }
}
