//! Streams: bytes in order, none lost, as on TCP.

#[cfg(feature = "tokio")]
mod async_io;
mod end;
mod listener;
mod messages;
mod opening;
mod watch;

#[cfg(feature = "tokio")]
pub use async_io::{AsyncListener, AsyncStream};
pub(crate) use listener::Port;
pub use listener::{Incoming, StreamListener};
pub use messages::MAX_STREAM_MESSAGE;

use crate::connection::wait_readable;
use crate::error::Error;
use crate::socket::{Address, Attachment};
use end::{Broken, End};
use messages::{Incomplete, Sending};
use nix::sys::epoll::Epoll;
pub(crate) use opening::{Opening, Place, Purpose};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use watch::{Watch, new_epoll};

/// How long [`ConnectOptions`] wait for the other end, unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// How to open a stream.
///
/// ```no_run
/// use trunkline_client::{Address, ConnectOptions, NodeId};
///
/// let to = Address { node: NodeId(7), port: 4000 };
/// let stream = ConnectOptions::new().messages(true).connect("/run/trunkline/node.sock", to)?;
/// stream.send_message(b"hello")?;
/// # Ok::<(), trunkline_client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    pub(crate) port: u16,
    pub(crate) messages: bool,
    pub(crate) timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions::new()
    }
}

impl ConnectOptions {
    /// From any free virtual port, of bytes, within 60 s.
    pub fn new() -> ConnectOptions {
        ConnectOptions { port: 0, messages: false, timeout: CONNECT_TIMEOUT }
    }

    /// Sets the virtual port that the stream goes out from; 0 is any free one.
    pub fn port(mut self, port: u16) -> ConnectOptions {
        self.port = port;
        self
    }

    /// Sets whether both ends keep the boundaries of messages:
    /// [`StreamSocket::send_message`] and [`StreamSocket::recv_message`] work then.
    pub fn messages(mut self, on: bool) -> ConnectOptions {
        self.messages = on;
        self
    }

    /// Sets how long to wait for the other end once the own node has answered; after that
    /// the error is [`Reset::Timeout`](crate::Reset::Timeout). The node may give up sooner.
    pub fn timeout(mut self, timeout: Duration) -> ConnectOptions {
        self.timeout = timeout;
        self
    }

    pub(crate) fn purpose(&self, to: Address) -> Purpose {
        let ConnectOptions { port, messages, timeout } = *self;
        Purpose::Connect { from: port, to, messages, timeout }
    }

    /// Opens a stream as [`StreamSocket::connect`] does.
    ///
    /// # Errors
    ///
    /// Those of [`StreamSocket::connect`].
    pub fn connect(&self, at: impl Into<Attachment>, to: Address) -> Result<StreamSocket, Error> {
        let place = Place::new(at.into())?;
        let mut opening =
            Opening::new(&place, place.candidates()?, self.purpose(to), Watch::new()?)?;
        loop {
            if let Some(end) = opening.advance()? {
                return Ok(StreamSocket::new(end));
            }
            wait_readable(opening.as_fd(), None)?;
        }
    }
}

/// One end of a stream on the overlay: what [`std::net::TcpStream`] is on a network.
///
/// Bytes arrive in order, and none is lost while the stream lasts. It lasts until both ends
/// have said that they send no more, one of them breaks it off, or one of the two nodes
/// goes away; it isn't made again by itself. Whoever writes faster than the other end reads
/// is made to wait: at most 256 KiB wait at this end to be read, and what the nodes hold.
///
/// Two threads can use one socket at once, one to read and one to write; neither keeps the
/// other waiting.
///
/// Dropping it closes it: the node delivers what was written and then ends the stream, as
/// TCP's close does. To a node on another host what was written last may still be in this
/// process; [`shutdown`](StreamSocket::shutdown) returns when it isn't.
///
/// # Polling
///
/// The descriptor ([`AsFd`]) becomes readable when a read would not block, be it because the
/// end of the stream or an error is to be read, and after a write that would have blocked,
/// when the next one may not. It stays so until that read or that write is made; so whoever
/// waits for both makes both when it is readable. It never becomes writable. Who doesn't
/// want to read for now, and has no write outstanding, should not poll it.
///
/// A node on another host, or the network to it, is found to be away after 6 s of silence,
/// if the socket is called or polled meanwhile.
pub struct StreamSocket {
    end: Mutex<End>,
    ready: Arc<Epoll>,
    /// Serialise messages, each direction its own: held while waiting for the rest of one.
    sending: Mutex<Sending>,
    receiving: Mutex<Incomplete>,
}

impl StreamSocket {
    /// Opens a stream of bytes to an application that listens at `to`, from any free
    /// virtual port. Waits for the node as
    /// [`DatagramSocket::bind`](crate::DatagramSocket::bind) does, and then for the other
    /// end up to 60 s. [`ConnectOptions`] can do more.
    ///
    /// # Errors
    ///
    /// [`Reset`](Error::Reset) says why the stream did not come about;
    /// [`NotReliable`](Error::NotReliable) if the node is of a release without streams;
    /// else those of [`DatagramSocket::bind`](crate::DatagramSocket::bind).
    pub fn connect(at: impl Into<Attachment>, to: Address) -> Result<StreamSocket, Error> {
        ConnectOptions::new().connect(at, to)
    }

    pub(crate) fn new(end: End) -> StreamSocket {
        StreamSocket {
            ready: end.ready().epoll().clone(),
            end: Mutex::new(end),
            sending: Mutex::default(),
            receiving: Mutex::default(),
        }
    }

    /// The node and the virtual port of this end.
    pub fn local(&self) -> Address {
        self.lock().local
    }

    /// The node and the virtual port of the other end.
    pub fn peer(&self) -> Address {
        self.lock().peer
    }

    /// Whether the ends keep the boundaries of messages, as the one that connected has
    /// asked for.
    pub fn messages(&self) -> bool {
        self.lock().messages
    }

    /// Whether a call that would wait returns [`WouldBlock`](Error::WouldBlock) instead.
    /// Default: it waits.
    pub fn set_nonblocking(&self, on: bool) {
        self.lock().nonblocking = on;
    }

    /// How long a read waits at most; then it returns [`WouldBlock`](Error::WouldBlock).
    /// Default: `None`, for ever.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if that is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.lock().read_timeout = not_zero(timeout)?;
        Ok(())
    }

    /// Reads what has come, at least one byte unless `buf` is empty; 0 is the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock); [`Reset`](Error::Reset) after what came before
    /// the stream broke off; [`Disconnected`](Error::Disconnected) if the node has gone;
    /// [`Protocol`](Error::Protocol) if it breaks the session protocol.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let mut deadline = Deadline::default();
        loop {
            // The lock is held for the attempt, not for the wait.
            let timeout = match self.with(|end| (end.read(buf), end.nonblocking, end.read_timeout))
            {
                (Err(Error::WouldBlock), false, timeout) => timeout,
                (result, ..) => return result,
            };
            wait_readable(self.as_fd(), deadline.left(timeout)?)?;
        }
    }

    /// Writes as much of `buf` as the node takes now, at least one byte unless `buf` is
    /// empty. Waits until it takes any.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking and the node takes
    /// none; [`Reset`](Error::Reset) if the stream has broken off,
    /// [`Disconnected`](Error::Disconnected) if the node has gone; an
    /// [`Io`](Error::Io) of [`BrokenPipe`](io::ErrorKind::BrokenPipe) after
    /// [`shutdown`](StreamSocket::shutdown).
    pub fn write(&self, buf: &[u8]) -> Result<usize, Error> {
        self.waiting_to_write(|end| end.write(buf))
    }

    /// Ends this direction: the other end reads the end of the stream after what was
    /// written. Returns when the operating system has all of it. Reading goes on.
    ///
    /// # Errors
    ///
    /// Those of [`write`](StreamSocket::write). After [`WouldBlock`](Error::WouldBlock)
    /// call it again.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.waiting_to_write(End::shut)
    }

    /// Waits until both directions have ended and the other end's node has all that was
    /// written here, so that it gets there whatever becomes of this node. Call it when this
    /// end was [shut down](StreamSocket::shutdown) and the other end's end was read.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking;
    /// [`Reset`](Error::Reset) if the stream has broken off before;
    /// [`Disconnected`](Error::Disconnected) if the node has gone: what of the last bytes got
    /// there isn't known then.
    pub fn finish(&self) -> Result<(), Error> {
        loop {
            match self.with(|end| (end.finish(), end.nonblocking)) {
                (Err(Error::WouldBlock), false) => wait_readable(self.as_fd(), None)?,
                (result, _) => return result,
            }
        }
    }

    /// Breaks the stream off: what is under way is lost, and the other end is told so with
    /// [`Reset::Aborted`](crate::Reset::Aborted). All that is left is to drop the socket.
    ///
    /// # Errors
    ///
    /// Those of [`write`](StreamSocket::write).
    pub fn reset(&self) -> Result<(), Error> {
        self.waiting_to_write(End::reset)
    }

    fn waiting_to_write<T>(
        &self,
        mut attempt: impl FnMut(&mut End) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let room = self.with(|end| match attempt(end) {
                Err(Error::WouldBlock) if !end.nonblocking => {
                    end.writers().map(|watch| Err(watch.epoll().clone()))
                }
                result => result.map(Ok),
            })?;
            match room {
                Ok(done) => return Ok(done),
                Err(room) => wait_readable(room.0.as_fd(), None)?,
            }
        }
    }

    pub(crate) fn ready(&self) -> &Arc<Epoll> {
        &self.ready
    }

    /// Ends it under those who wait, with EBADF.
    pub(crate) fn close(&self) {
        self.with(|end| end.fail(Broken::Closed));
    }

    /// One step, and what others have to be told of it.
    fn with<R>(&self, step: impl FnOnce(&mut End) -> R) -> R {
        let mut end = self.lock();
        let result = step(&mut end);
        end.settle();
        result
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        // Nothing panics in between two halves of a change.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for &StreamSocket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(StreamSocket::read(self, buf)?)
    }
}

impl Write for &StreamSocket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(StreamSocket::write(self, buf)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for StreamSocket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(StreamSocket::read(self, buf)?)
    }
}

impl Write for StreamSocket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(StreamSocket::write(self, buf)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for StreamSocket {
    /// Readable (level-triggered) when a read would not block, or a write that would have
    /// blocked may not any more; see [`StreamSocket`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.0.as_fd()
    }
}

impl AsRawFd for StreamSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for StreamSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, peer) = (self.local(), self.peer());
        f.debug_struct("StreamSocket").field("local", &local).field("peer", &peer).finish()
    }
}

/// Refuses a wait of zero.
pub(crate) fn not_zero(timeout: Option<Duration>) -> Result<Option<Duration>, Error> {
    match timeout {
        Some(Duration::ZERO) => Err(Error::InvalidOption {
            option: "the read timeout",
            value: "zero".into(),
            range: "use set_nonblocking, or None to wait for ever",
        }),
        timeout => Ok(timeout),
    }
}

/// When one call has waited long enough, from its first wait on.
#[derive(Default)]
pub(crate) struct Deadline(Option<Option<Instant>>);

impl Deadline {
    /// How long there is left to wait; [`Error::WouldBlock`] if nothing is.
    pub(crate) fn left(&mut self, timeout: Option<Duration>) -> Result<Option<Duration>, Error> {
        let Some(timeout) = timeout else { return Ok(None) };
        let now = Instant::now();
        // A time past what the clock can tell is for ever.
        let until = self.0.get_or_insert_with(|| now.checked_add(timeout));
        let left = until.map(|until| until.saturating_duration_since(now));
        if left == Some(Duration::ZERO) { Err(Error::WouldBlock) } else { Ok(left) }
    }
}
