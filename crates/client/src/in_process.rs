//! Sessions between a node and an application that share a process: two bounded byte rings and an
//! eventfd in each direction, no lock, and no system call while neither side sleeps.
//!
//! The node listens, keeps the [`Acceptor`] and one [`End`] per session in its packet thread, and
//! hands out [`Connector`]s. Both are polled through their descriptors and never block.
//!
//! ```
//! use trunkline_client::in_process;
//! # fn main() -> std::io::Result<()> {
//! let (connector, mut acceptor) = in_process::listen(256 * 1024, 64)?;
//! // An application: DatagramSocket::bind(connector.clone(), 4000)
//! // The node, whenever the acceptor's descriptor is readable:
//! while let Some(session) = acceptor.accept() {
//!     // Poll `session` for reading; then, until None or enough for one batch:
//!     // session.with_message(|first, second| …)
//! }
//! # drop(connector);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rtrb::{Consumer, Producer, RingBuffer};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, mpsc};
use trunkline_overlay::session::wire::MAX_MESSAGE;

/// Bytes of the length in front of each message in a ring.
const PREFIX: usize = 2;
const _: () = assert!(MAX_MESSAGE <= u16::MAX as usize);

/// Creates the two ends of one session, each with a send ring of `capacity_bytes` (raised to the
/// space that one message of [`MAX_MESSAGE`] bytes needs). A message occupies two bytes more than
/// its length.
///
/// Fails if the process has no descriptors left.
pub fn pair(capacity_bytes: usize) -> io::Result<(End, End)> {
    let capacity = capacity_bytes.max(PREFIX + MAX_MESSAGE);
    let (tx_a, rx_b) = RingBuffer::new(capacity);
    let (tx_b, rx_a) = RingBuffer::new(capacity);
    let (wake_a, wake_b) = (Arc::new(Wake::new()?), Arc::new(Wake::new()?));
    let (room_a, room_b) = (Arc::new(Wake::new()?), Arc::new(Wake::new()?));
    let closed = Arc::new(AtomicBool::new(false));
    let a = End {
        tx: tx_a,
        rx: rx_a,
        wake: wake_a.clone(),
        peer: wake_b.clone(),
        room: room_a.clone(),
        peer_room: room_b.clone(),
        closed: closed.clone(),
    };
    let (room, peer_room) = (room_b, room_a);
    let b = End { tx: tx_b, rx: rx_b, wake: wake_b, peer: wake_a, room, peer_room, closed };
    Ok((a, b))
}

/// One end of a session; both ends are alike.
///
/// Its descriptor is readable (level-triggered) while a message waits or the other end is gone.
/// After that it stays readable until a call has found nothing, and it is sometimes readable
/// spuriously.
pub struct End {
    tx: Producer<u8>,
    rx: Consumer<u8>,
    /// Wakes this end when a message arrives.
    wake: Arc<Wake>,
    /// Wakes the other end when a message arrives.
    peer: Arc<Wake>,
    /// Wakes this end when the other end has made room.
    room: Arc<Wake>,
    /// Wakes the other end when this end has made room.
    peer_room: Arc<Wake>,
    closed: Arc<AtomicBool>,
}

impl End {
    /// Sends `head` and `payload` as one message. False if it was dropped: the ring is full, the
    /// other end is gone, or the message exceeds [`MAX_MESSAGE`] bytes.
    pub fn send(&mut self, head: &[u8], payload: &[u8]) -> bool {
        let len = head.len() + payload.len();
        if len > MAX_MESSAGE || self.closed() {
            return false;
        }
        let Ok(mut chunk) = self.tx.write_chunk(PREFIX + len) else { return false };
        let (mut first, mut second) = chunk.as_mut_slices();
        for part in [&(len as u16).to_ne_bytes()[..], head, payload] {
            let cut = part.len().min(first.len());
            first.split_off_mut(..cut).unwrap_or_default().copy_from_slice(&part[..cut]);
            second
                .split_off_mut(..part.len() - cut)
                .unwrap_or_default()
                .copy_from_slice(&part[cut..]);
        }
        // The prefix and the message become visible together.
        chunk.commit_all();
        self.peer.signal();
        true
    }

    /// Takes the next message into `buf`. Returns its length, which exceeds that of `buf` if its
    /// end was cut off; `None` if no message waits.
    pub fn recv(&mut self, buf: &mut [u8]) -> Option<usize> {
        self.with_message(|first, second| {
            copy(first, second, buf);
            first.len() + second.len()
        })
    }

    /// Takes the next message, in place, as two parts (the second is empty unless the ring wraps
    /// within the message); `None` if no message waits.
    ///
    /// The descriptor becomes unreadable only once this has returned `None`: a caller that stops
    /// earlier finds it still readable.
    pub fn with_message<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<R> {
        let message = self.message(true, f);
        if message.is_none() {
            self.arm();
        }
        message
    }

    /// Like `with_message`, but leaves the message in the ring; never makes a system call.
    pub(crate) fn peek_message<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<R> {
        self.message(false, f)
    }

    fn message<R>(&mut self, take: bool, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<R> {
        let prefix = self.rx.read_chunk(PREFIX).ok()?;
        let (first, second) = prefix.as_slices();
        let mut len = [0; PREFIX];
        copy(first, second, &mut len);
        let len = usize::from(u16::from_ne_bytes(len));
        let Ok(chunk) = self.rx.read_chunk(PREFIX + len) else {
            // `send` commits whole messages, so this is a bug; on whichever side it is, the session
            // is no longer usable.
            debug_assert!(false, "half a message in a ring");
            self.closed.store(true, Ordering::SeqCst);
            return None;
        };
        let (first, second) = chunk.as_slices();
        let cut = PREFIX.min(first.len());
        let result = f(&first[cut..], &second[PREFIX - cut..]);
        if take {
            chunk.commit_all();
            self.peer_room.signal();
        }
        Some(result)
    }

    /// Whether the other end is gone. Messages that it sent earlier can still be received.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// A descriptor that becomes readable when there may be room to send, and sometimes spuriously.
    pub(crate) fn arm_room(&self) -> BorrowedFd<'_> {
        let (tx, closed) = (&self.tx, &self.closed);
        let full = || tx.slots() < PREFIX + MAX_MESSAGE && !closed.load(Ordering::SeqCst);
        self.room.arm(full);
        self.room.event.as_fd()
    }

    /// Makes the descriptor unreadable until a message arrives, if none is waiting.
    pub(crate) fn arm(&mut self) {
        let (rx, closed) = (&self.rx, &self.closed);
        self.wake.arm(|| rx.is_empty() && !closed.load(Ordering::SeqCst));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Regardless of the other end's state: this write stays in its descriptor.
        self.peer.write();
        self.peer_room.write();
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.event.as_fd()
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("closed", &self.closed()).finish_non_exhaustive()
    }
}

/// Copies as much of the two parts as fits into `to`.
pub(crate) fn copy(first: &[u8], second: &[u8], to: &mut [u8]) {
    let cut = first.len().min(to.len());
    let (start, rest) = to.split_at_mut(cut);
    start.copy_from_slice(&first[..cut]);
    let cut = second.len().min(rest.len());
    rest[..cut].copy_from_slice(&second[..cut]);
}

/// An eventfd that costs no system call while its reader is awake.
struct Wake {
    /// Whether the eventfd is readable or about to be. Only the side that sets this flag writes the
    /// eventfd; only the reader, after emptying it, clears the flag.
    awake: AtomicBool,
    event: EventFd,
}

impl Wake {
    fn new() -> io::Result<Wake> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Wake { awake: AtomicBool::new(false), event: EventFd::from_value_and_flags(0, flags)? })
    }

    /// Fails only when the counter is at its maximum, in which case it is readable already.
    fn write(&self) {
        let _ = self.event.write(1);
    }

    /// Makes the eventfd readable, unless it already is; called after a message was added.
    fn signal(&self) {
        // No wake-up is lost: this side adds a message, then checks `awake`; the reader clears
        // `awake`, then checks for a message. The two fences ensure that they can't both see the
        // old value.
        fence(Ordering::SeqCst);
        if !self.awake.load(Ordering::Relaxed) && !self.awake.swap(true, Ordering::SeqCst) {
            self.write();
        }
    }

    /// Called by the reader: empties the eventfd if `idle` holds.
    fn arm(&self, idle: impl Fn() -> bool) {
        if !idle() || !self.awake.load(Ordering::Acquire) {
            return;
        }
        if self.event.read().is_err() {
            // Empty: the writer, perhaps preempted, has yet to write. That write will end one poll
            // spuriously; until then the poll sleeps.
            return;
        }
        self.awake.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !idle() {
            self.signal();
        }
        // A close with its write just read had set its flag earlier, so `idle` has seen it; a later
        // close writes later.
    }
}

/// Creates a node's in-process listener: connectors for applications, and the acceptor for its
/// packet thread. Each session gets rings of `capacity_bytes` (see [`pair`]); at most `backlog`
/// sessions wait to be accepted.
///
/// Fails if the process has no descriptors left.
pub fn listen(capacity_bytes: usize, backlog: usize) -> io::Result<(Connector, Acceptor)> {
    let (tx, rx) = mpsc::sync_channel(backlog.max(1));
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let event = Arc::new(EventFd::from_value_and_flags(0, flags)?);
    let connector = Connector { capacity_bytes, sessions: tx, event: event.clone() };
    Ok((connector, Acceptor { sessions: rx, event }))
}

/// Requests sessions from a node in this process. Pass it to
/// [`DatagramSocket::bind`](crate::DatagramSocket::bind), but not on the thread that accepts.
#[derive(Clone)]
pub struct Connector {
    capacity_bytes: usize,
    sessions: mpsc::SyncSender<End>,
    event: Arc<EventFd>,
}

impl Connector {
    /// Fails with `WouldBlock` if too many sessions already wait to be accepted.
    pub(crate) fn connect(&self) -> Result<End, Error> {
        let (ours, theirs) =
            pair(self.capacity_bytes).map_err(|e| Error::io("create an in-process session", e))?;
        match self.sessions.try_send(theirs) {
            Ok(()) => {
                let _ = self.event.write(1);
                Ok(ours)
            }
            Err(mpsc::TrySendError::Full(_)) => Err(Error::WouldBlock),
            Err(mpsc::TrySendError::Disconnected(_)) => Err(Error::NotRunning {
                at: "this process".into(),
                source: io::ErrorKind::ConnectionRefused.into(),
            }),
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("capacity_bytes", &self.capacity_bytes)
            .finish_non_exhaustive()
    }
}

/// A node's queue of new sessions. Its descriptor is readable while one waits, and until
/// [`accept`](Acceptor::accept) has found none.
#[derive(Debug)]
pub struct Acceptor {
    sessions: mpsc::Receiver<End>,
    event: Arc<EventFd>,
}

impl Acceptor {
    /// Takes the next session; `None` if none waits.
    pub fn accept(&mut self) -> Option<End> {
        self.sessions.try_recv().ok().or_else(|| {
            // Emptied before the second check: a session sent after that check is followed by a
            // write.
            let _ = self.event.read();
            self.sessions.try_recv().ok()
        })
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests;
