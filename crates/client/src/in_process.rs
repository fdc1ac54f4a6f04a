//! Sessions between a node and an application that share a process: two
//! bounded byte rings and an eventfd each way, no lock, and no system call
//! while neither side sleeps.
//!
//! The node listens, keeps the [`Acceptor`] and one [`End`] per session in its
//! packet thread, and hands out [`Connector`]s. Both are polled by descriptor
//! and never block.
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

/// Each message in a ring follows its length.
const PREFIX: usize = 2;
const _: () = assert!(MAX_MESSAGE <= u16::MAX as usize);

/// Two ends of one session, each with a ring of `capacity_bytes` to send into
/// (raised to what one message of [`MAX_MESSAGE`] bytes takes). A message takes
/// two bytes more than it has.
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

/// One end of a session; both are alike.
///
/// Its descriptor is readable (level-triggered) while a message waits or the
/// other end is gone; after that until a call has found nothing, and once in a
/// while for nothing.
pub struct End {
    tx: Producer<u8>,
    rx: Consumer<u8>,
    /// Wakes this end.
    wake: Arc<Wake>,
    /// Wakes the other.
    peer: Arc<Wake>,
    /// Wakes this end when the other has made room.
    room: Arc<Wake>,
    /// Wakes the other when this one has.
    peer_room: Arc<Wake>,
    closed: Arc<AtomicBool>,
}

impl End {
    /// Sends `head` and `payload` as one message. False if it was dropped: the
    /// ring is full, the other end is gone, or it has more than [`MAX_MESSAGE`]
    /// bytes.
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
        // Prefix and message become visible at once.
        chunk.commit_all();
        self.peer.signal();
        true
    }

    /// Takes the next message into `buf`. Returns its length, which is more
    /// than `buf` has if its end was cut off; `None` if no message waits.
    pub fn recv(&mut self, buf: &mut [u8]) -> Option<usize> {
        self.with_message(|first, second| {
            copy(first, second, buf);
            first.len() + second.len()
        })
    }

    /// Takes the next message, in place, as two parts (the second is empty
    /// unless the ring wraps within the message); `None` if no message waits.
    ///
    /// Only `None` makes the descriptor wait for the next message: stop earlier
    /// and it stays readable.
    pub fn with_message<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<R> {
        let message = self.message(true, f);
        if message.is_none() {
            self.arm();
        }
        message
    }

    /// Like `with_message`, but the message stays; never a system call.
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
            // `send` commits whole messages, so this is a bug; whoever made
            // it, the session is of no more use.
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

    /// Whether the other end is gone. Messages that it sent before can still
    /// be received.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// A descriptor that becomes readable when there may be room to send; once in a
    /// while for nothing.
    pub(crate) fn arm_room(&self) -> BorrowedFd<'_> {
        let (tx, closed) = (&self.tx, &self.closed);
        let full = || tx.slots() < PREFIX + MAX_MESSAGE && !closed.load(Ordering::SeqCst);
        self.room.arm(full);
        self.room.event.as_fd()
    }

    /// If nothing waits, makes the descriptor unreadable until something does.
    pub(crate) fn arm(&mut self) {
        let (rx, closed) = (&self.rx, &self.closed);
        self.wake.arm(|| rx.is_empty() && !closed.load(Ordering::SeqCst));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Whatever the other end's state: this write stays in its descriptor.
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

/// Copies as much of two parts as fits.
pub(crate) fn copy(first: &[u8], second: &[u8], to: &mut [u8]) {
    let cut = first.len().min(to.len());
    let (start, rest) = to.split_at_mut(cut);
    start.copy_from_slice(&first[..cut]);
    let cut = second.len().min(rest.len());
    rest[..cut].copy_from_slice(&second[..cut]);
}

/// An eventfd that costs no system call while its reader is awake.
struct Wake {
    /// Whether the eventfd is readable or about to be. Only the one who set
    /// this writes it; only the reader, after emptying it, clears this.
    awake: AtomicBool,
    event: EventFd,
}

impl Wake {
    fn new() -> io::Result<Wake> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Wake { awake: AtomicBool::new(false), event: EventFd::from_value_and_flags(0, flags)? })
    }

    /// Fails only when the counter is at its maximum: then it is readable.
    fn write(&self) {
        let _ = self.event.write(1);
    }

    /// After adding a message: makes the eventfd readable unless it is.
    fn signal(&self) {
        // No wake-up is lost: this side adds a message, then looks at `awake`;
        // the reader clears `awake`, then looks for a message. The two fences
        // forbid that both see the old value.
        fence(Ordering::SeqCst);
        if !self.awake.load(Ordering::Relaxed) && !self.awake.swap(true, Ordering::SeqCst) {
            self.write();
        }
    }

    /// By the reader: if `idle`, empties the eventfd.
    fn arm(&self, idle: impl Fn() -> bool) {
        if !idle() || !self.awake.load(Ordering::Acquire) {
            return;
        }
        if self.event.read().is_err() {
            // Empty: the writer, perhaps preempted, has yet to write. That will
            // end a poll, for nothing but once; until then the poll sleeps.
            return;
        }
        self.awake.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !idle() {
            self.signal();
        }
        // A close whose write was just read had set its flag before, so `idle`
        // has seen it; one that comes later writes later.
    }
}

/// A node's in-process listener: connectors for applications, and the acceptor
/// for its packet thread. Each session gets rings of `capacity_bytes` (see
/// [`pair`]); at most `backlog` wait to be accepted.
///
/// Fails if the process has no descriptors left.
pub fn listen(capacity_bytes: usize, backlog: usize) -> io::Result<(Connector, Acceptor)> {
    let (tx, rx) = mpsc::sync_channel(backlog.max(1));
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let event = Arc::new(EventFd::from_value_and_flags(0, flags)?);
    let connector = Connector { capacity_bytes, sessions: tx, event: event.clone() };
    Ok((connector, Acceptor { sessions: rx, event }))
}

/// Asks a node in this process for sessions: give it to
/// [`DatagramSocket::bind`](crate::DatagramSocket::bind), but not on the thread
/// that accepts.
#[derive(Clone)]
pub struct Connector {
    capacity_bytes: usize,
    sessions: mpsc::SyncSender<End>,
    event: Arc<EventFd>,
}

impl Connector {
    /// `WouldBlock` if too many sessions wait to be accepted already.
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

/// Where a node takes new sessions. Its descriptor is readable while one waits,
/// and until [`accept`](Acceptor::accept) has found none.
#[derive(Debug)]
pub struct Acceptor {
    sessions: mpsc::Receiver<End>,
    event: Arc<EventFd>,
}

impl Acceptor {
    /// The next session; `None` if none waits.
    pub fn accept(&mut self) -> Option<End> {
        self.sessions.try_recv().ok().or_else(|| {
            // Emptied before the second look: what is sent after that look is
            // followed by a write.
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
