//! Streams and listeners for applications that run on tokio.

use crate::error::Error;
use crate::socket::{Address, Attachment, Site};
use crate::stream::{
    ConnectOptions, NodeEndpoint, Opening, Port, Readiness, StreamListener, StreamSocket,
};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A [`StreamSocket`] as tokio's [`AsyncRead`] and [`AsyncWrite`]. Create and use it within a
/// runtime that has I/O enabled.
///
/// `shutdown`, from tokio's `AsyncWriteExt`, ends the writing direction only. Different tasks may
/// use the two directions, through `tokio::io::split` or two references, since `&AsyncStream` also
/// reads and writes; each direction may be used by one task at a time.
#[derive(Debug)]
pub struct AsyncStream {
    fd: AsyncFd<StreamSocket>,
    halves: Arc<Halves>,
    /// Wakes the tasks of both directions.
    both: Waker,
}

/// Tasks that wait for each direction. One descriptor signals both.
#[derive(Debug, Default)]
struct Halves([Mutex<Option<Waker>>; 2]);

/// The index of each direction in [`Halves`].
const READ: usize = 0;
const WRITE: usize = 1;

impl Halves {
    fn wait(&self, half: usize, waker: &Waker) {
        let mut waiting = self.0[half].lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waiting {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn wake_half(&self, half: usize) {
        let waiting = self.0[half].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Wake for Halves {
    fn wake(self: Arc<Halves>) {
        self.wake_half(READ);
        self.wake_half(WRITE);
    }
}

impl AsyncStream {
    /// Opens a byte stream, as [`StreamSocket::connect`] does.
    ///
    /// # Errors
    ///
    /// Those of [`StreamSocket::connect`].
    pub async fn connect(at: impl Into<Attachment>, to: Address) -> Result<AsyncStream, Error> {
        ConnectOptions::new().connect_async(at, to).await
    }

    /// Turns a socket into a stream on tokio, and makes it nonblocking.
    ///
    /// # Errors
    ///
    /// [`Io`](Error::Io) if the runtime can't poll its descriptor.
    pub fn new(stream: StreamSocket) -> Result<AsyncStream, Error> {
        stream.set_nonblocking(true);
        let fd = poll_readable(stream)?;
        let halves = Arc::new(Halves::default());
        let both = Waker::from(halves.clone());
        Ok(AsyncStream { fd, halves, both })
    }

    /// The underlying socket, which is nonblocking.
    pub fn get_ref(&self) -> &StreamSocket {
        self.fd.get_ref()
    }

    /// Turns the stream back into a socket, which is blocking again.
    pub fn into_inner(self) -> StreamSocket {
        let stream = self.fd.into_inner();
        stream.set_nonblocking(false);
        stream
    }

    /// Waits until both directions have ended and the other end's node has all data that was
    /// written here, as [`StreamSocket::finish`] does; or until the stream is reset. It may be
    /// awaited alongside reads and writes of the same task.
    ///
    /// # Errors
    ///
    /// Those of [`StreamSocket::finish`].
    pub async fn finish(&self) -> Result<(), Error> {
        std::future::poll_fn(|cx| self.poll(WRITE, cx, StreamSocket::finish)).await
    }

    fn poll<T>(
        &self,
        half: usize,
        cx: &Context<'_>,
        mut attempt: impl FnMut(&StreamSocket) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        // Registered before the attempt, so that every later change wakes this task.
        self.halves.wait(half, cx.waker());
        loop {
            match attempt(self.fd.get_ref()) {
                Err(Error::WouldBlock) => {}
                result => return Poll::Ready(result),
            }
            let mut both = Context::from_waker(&self.both);
            let mut guard = ready!(self.fd.poll_read_ready(&mut both)).map_err(polled)?;
            guard.clear_ready();
            // The event that made the descriptor readable may concern the other half, which gets no
            // other wake-up for it.
            self.halves.wake_half(1 - half);
        }
    }
}

impl AsyncRead for &AsyncStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = ready!(self.poll(READ, cx, |stream| stream.read(buf.initialize_unfilled())))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for AsyncStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_read(cx, buf)
    }
}

impl AsyncWrite for &AsyncStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(WRITE, cx, |stream| stream.write(buf)).map_err(io::Error::from)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(WRITE, cx, StreamSocket::shutdown).map_err(io::Error::from)
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_shutdown(cx)
    }
}

impl ConnectOptions {
    /// Opens a stream as [`AsyncStream::connect`] does.
    ///
    /// # Errors
    ///
    /// Those of [`StreamSocket::connect`].
    pub async fn connect_async(
        &self,
        at: impl Into<Attachment>,
        to: Address,
    ) -> Result<AsyncStream, Error> {
        let place = NodeEndpoint::new(at.into())?;
        let candidates = candidates(&place).await?;
        let opening = Opening::new(&place, candidates, self.purpose(to), Readiness::new()?)?;
        let mut fd = poll_readable(opening)?;
        let end = advance(&mut fd, Opening::advance).await?;
        // The stream has the same descriptor.
        drop(fd.into_inner());
        AsyncStream::new(StreamSocket::new(end))
    }
}

/// A [`StreamListener`] on tokio. Create and use it within a runtime that has I/O enabled.
#[derive(Debug)]
pub struct AsyncListener(AsyncFd<StreamListener>);

impl AsyncListener {
    /// Listens at a virtual port as [`StreamListener::bind`] does.
    ///
    /// # Errors
    ///
    /// Those of [`StreamListener::bind`].
    pub async fn bind(at: impl Into<Attachment>, port: u16) -> Result<AsyncListener, Error> {
        let place = NodeEndpoint::new(at.into())?;
        let candidates = candidates(&place).await?;
        let port = Port::new(Readiness::new()?, place, candidates, port, super::listener::BACKLOG)?;
        let mut fd = poll_readable(port)?;
        advance(&mut fd, |port| Ok(port.dial()?.then_some(()))).await?;
        AsyncListener::new(StreamListener::from(fd.into_inner()))
    }

    /// Turns a blocking listener into one on tokio.
    ///
    /// # Errors
    ///
    /// [`Io`](Error::Io) if the runtime can't poll its descriptor.
    pub fn new(listener: StreamListener) -> Result<AsyncListener, Error> {
        Ok(AsyncListener(poll_readable(listener)?))
    }

    /// The underlying listener, for example to get its address. Calls of
    /// [`accept`](StreamListener::accept) on it block, unless it is set to be nonblocking.
    pub fn get_ref(&self) -> &StreamListener {
        self.0.get_ref()
    }

    /// Waits for the next stream, and returns it and the address of its other end. Dropping the
    /// future before it is ready loses no stream.
    ///
    /// # Errors
    ///
    /// Those of [`StreamListener::accept`].
    pub async fn accept(&self) -> Result<(AsyncStream, Address), Error> {
        loop {
            let mut guard = self.0.readable().await.map_err(polled)?;
            match self.0.get_ref().try_accept() {
                Err(Error::WouldBlock) => guard.clear_ready(),
                result => {
                    let (stream, from) = result?;
                    return Ok((AsyncStream::new(stream)?, from));
                }
            }
        }
    }
}

fn poll_readable<T: std::os::fd::AsRawFd>(inner: T) -> Result<AsyncFd<T>, Error> {
    // Deprecated in general because another type's descriptor might be closed or replaced before it
    // is taken out again. Ours stays the same for its owner's life, and the replacement is unsafe
    // to call.
    #[allow(deprecated)]
    AsyncFd::with_interest(inner, Interest::READABLE).map_err(polled)
}

fn polled(source: io::Error) -> Error {
    Error::io("poll a socket's descriptor", source)
}

/// Calls `step` whenever the descriptor is readable, until it has a result.
async fn advance<T: std::os::fd::AsRawFd, R>(
    fd: &mut AsyncFd<T>,
    mut step: impl FnMut(&mut T) -> Result<Option<R>, Error>,
) -> Result<R, Error> {
    loop {
        if let Some(result) = step(fd.get_mut())? {
            return Ok(result);
        }
        let mut guard = fd.readable_mut().await.map_err(polled)?;
        // Cleared before the next step, which finds anything that arrived earlier.
        guard.clear_ready();
    }
}

/// Addresses at which the node may be. A name is looked up without blocking other tasks.
async fn candidates(place: &NodeEndpoint) -> Result<VecDeque<Site>, Error> {
    let Some(name) = place.name() else { return place.candidates() };
    let found = tokio::net::lookup_host(name).await;
    let found = found.map_err(|source| crate::socket::no_address(name, source))?;
    Ok(found.map(Site::Address).collect())
}
