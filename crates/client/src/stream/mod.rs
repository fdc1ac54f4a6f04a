//! Streams: reliable, ordered byte streams between applications, as TCP provides them.

#[cfg(feature = "tokio")]
mod async_io;
mod end;
mod listener;
mod messages;
mod opening;
mod readiness;

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
pub(crate) use opening::{NodeEndpoint, Opening, Purpose};
pub(crate) use readiness::{Readiness, new_epoll};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Default time to wait for the other end to open a stream.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Options for opening a stream.
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
    /// Creates the defaults: any free virtual port, no message boundaries, and 60 s for the other
    /// end to answer.
    pub fn new() -> ConnectOptions {
        ConnectOptions { port: 0, messages: false, timeout: CONNECT_TIMEOUT }
    }

    /// Sets the virtual port of this end; 0, the default, means any free one.
    pub fn port(mut self, port: u16) -> ConnectOptions {
        self.port = port;
        self
    }

    /// Sets whether both ends keep message boundaries, which [`StreamSocket::send_message`] and
    /// [`StreamSocket::recv_message`] need. Default: false.
    pub fn messages(mut self, on: bool) -> ConnectOptions {
        self.messages = on;
        self
    }

    /// Sets the time to wait for the other end once this end's node has answered; after that,
    /// connecting fails with [`Reset::Timeout`](crate::Reset::Timeout). The node may give up
    /// sooner. Default: 60 s.
    pub fn timeout(mut self, timeout: Duration) -> ConnectOptions {
        self.timeout = timeout;
        self
    }

    pub(crate) fn purpose(&self, to: Address) -> Purpose {
        let ConnectOptions { port, messages, timeout } = *self;
        Purpose::Connect { from: port, to, messages, timeout }
    }

    /// Opens a stream to `to` as [`StreamSocket::connect`] does, with these options.
    ///
    /// # Errors
    ///
    /// Those of [`StreamSocket::connect`].
    pub fn connect(&self, at: impl Into<Attachment>, to: Address) -> Result<StreamSocket, Error> {
        let place = NodeEndpoint::new(at.into())?;
        let mut opening =
            Opening::new(&place, place.candidates()?, self.purpose(to), Readiness::new()?)?;
        loop {
            if let Some(end) = opening.advance()? {
                return Ok(StreamSocket::new(end));
            }
            wait_readable(opening.as_fd(), None)?;
        }
    }
}

/// One end of a stream on the overlay, the counterpart of [`std::net::TcpStream`].
///
/// Bytes arrive in order and without loss until both ends have ended their direction, one of them
/// resets the stream, or one of their two nodes goes away. A lost stream is not reopened. A writer
/// that is faster than the reader is flow-controlled: this socket holds at most 256 KiB of unread
/// data, besides the data that the nodes buffer.
///
/// Two threads can use one socket at once, one to read and one to write, without blocking each
/// other.
///
/// Dropping the socket closes it: as with TCP, the node still delivers all data written, and then
/// ends the stream. If the node is on another host, the data written last may still be in this
/// process and can be lost; [`shutdown`](StreamSocket::shutdown) waits until they have left.
///
/// # Polling
///
/// The descriptor ([`AsFd`]) is readable when a read would not block (there are data, the end of
/// the stream, or an error), and, after a write that returned [`WouldBlock`](Error::WouldBlock),
/// when writing may succeed. It stays readable until that read or write is made, so a caller that
/// waits for both has to try both. It never becomes writable. Don't poll it while you neither want
/// to read nor have a write to retry: it would be readable all the time.
///
/// If the node is on another host, its loss or that of the network is detected after 6 s of
/// silence, provided that the socket is called or polled meanwhile.
pub struct StreamSocket {
    end: Mutex<End>,
    ready: Arc<Epoll>,
    /// Serialise messages: one lock for each direction, held until a message is complete.
    sending: Mutex<Sending>,
    receiving: Mutex<Incomplete>,
}

impl StreamSocket {
    /// Opens a stream to an application that listens at `to`, from any free virtual port of the
    /// node at `at`. Waits for that node as
    /// [`DatagramSocket::bind`](crate::DatagramSocket::bind) does, and then up to 60 s for the
    /// other end. See [`ConnectOptions`] for other settings.
    ///
    /// # Errors
    ///
    /// [`Reset`](Error::Reset) with the reason, if the stream could not be opened;
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

    /// Node and virtual port of this end.
    pub fn local(&self) -> Address {
        self.lock().local
    }

    /// Node and virtual port of the other end.
    pub fn peer(&self) -> Address {
        self.lock().peer
    }

    /// Whether the ends keep message boundaries, as chosen by the end that connected.
    pub fn messages(&self) -> bool {
        self.lock().messages
    }

    /// Sets whether a call that would block returns [`WouldBlock`](Error::WouldBlock) instead.
    /// Default: it blocks.
    pub fn set_nonblocking(&self, on: bool) {
        self.lock().nonblocking = on;
    }

    /// Sets the maximum time that a read waits before it returns [`WouldBlock`](Error::WouldBlock).
    /// Default: `None`, for ever.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if `timeout` is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.lock().read_timeout = not_zero(timeout)?;
        Ok(())
    }

    /// Waits for data and reads them into `buf`, at least one byte unless `buf` is empty. Returns
    /// the number of bytes read; 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking or the timeout has passed.
    /// Once all data received before have been read: [`Reset`](Error::Reset) if the stream was
    /// reset, [`Disconnected`](Error::Disconnected) if the node has gone, and
    /// [`Protocol`](Error::Protocol) if it broke the session protocol.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let mut deadline = Deadline::default();
        loop {
            // The lock is held during the attempt, not while waiting.
            let timeout = match self.with(|end| (end.read(buf), end.nonblocking, end.read_timeout))
            {
                (Err(Error::WouldBlock), false, timeout) => timeout,
                (result, ..) => return result,
            };
            wait_readable(self.as_fd(), deadline.left(timeout)?)?;
        }
    }

    /// Waits until the node accepts data, and writes as much of `buf` as it accepts, at least one
    /// byte unless `buf` is empty. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking and the node accepts none;
    /// [`Reset`](Error::Reset) if the stream was reset, [`Disconnected`](Error::Disconnected) if
    /// the node has gone; an [`Io`](Error::Io) of [`BrokenPipe`](io::ErrorKind::BrokenPipe) after
    /// [`shutdown`](StreamSocket::shutdown).
    pub fn write(&self, buf: &[u8]) -> Result<usize, Error> {
        self.waiting_to_write(|end| end.write(buf))
    }

    /// Ends this direction: the other end reads all data written here and then the end of the
    /// stream. Waits until all of it has been passed to the operating system. Reading is not
    /// affected.
    ///
    /// # Errors
    ///
    /// Those of [`write`](StreamSocket::write). After [`WouldBlock`](Error::WouldBlock) call this
    /// again.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.waiting_to_write(End::shut)
    }

    /// Waits until both directions have ended and the other end's node has all data written here,
    /// so that they no longer depend on this node. Call it after
    /// [`shutdown`](StreamSocket::shutdown), when the end of the stream has been read.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](Error::WouldBlock) if the socket is nonblocking; [`Reset`](Error::Reset) if
    /// the stream was reset first; [`Disconnected`](Error::Disconnected) if the node has gone, in
    /// which case it isn't known whether the last bytes have arrived.
    pub fn finish(&self) -> Result<(), Error> {
        loop {
            match self.with(|end| (end.finish(), end.nonblocking)) {
                (Err(Error::WouldBlock), false) => wait_readable(self.as_fd(), None)?,
                (result, _) => return result,
            }
        }
    }

    /// Resets the stream: data in flight are lost, and the other end's calls fail with
    /// [`Reset::Aborted`](crate::Reset::Aborted). After that the socket can only be dropped.
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

    /// Ends the socket; calls that wait on it fail with EBADF.
    pub(crate) fn close(&self) {
        self.with(|end| end.fail(Broken::Closed));
    }

    /// Runs one operation under the lock, and signals its changes to other threads.
    fn with<R>(&self, step: impl FnOnce(&mut End) -> R) -> R {
        let mut end = self.lock();
        let result = step(&mut end);
        end.settle();
        result
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        // No code panics halfway through a change.
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
    /// Readable (level-triggered) when a read would not block, or when a write that would have
    /// blocked may succeed; see [`StreamSocket`].
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

/// Checks that a timeout isn't zero; [`Error::InvalidOption`] if it is.
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

/// Deadline of one call, counted from the first time that it has to wait.
#[derive(Default)]
pub(crate) struct Deadline(Option<Option<Instant>>);

impl Deadline {
    /// Time that the call may still wait, `None` for ever; fails with [`Error::WouldBlock`] if it
    /// has timed out.
    pub(crate) fn left(&mut self, timeout: Option<Duration>) -> Result<Option<Duration>, Error> {
        let Some(timeout) = timeout else { return Ok(None) };
        let now = Instant::now();
        // A deadline beyond the clock's range means for ever.
        let until = self.0.get_or_insert_with(|| now.checked_add(timeout));
        let left = until.map(|until| until.saturating_duration_since(now));
        if left == Some(Duration::ZERO) { Err(Error::WouldBlock) } else { Ok(left) }
    }
}
