//! The listening side of streams: a virtual port, and the queue of incoming streams.

use crate::carrier::{Carrier, Stuck};
use crate::connection::{FIRST_PAUSE, LONGEST_PAUSE, emit, wait_readable, wake_after};
use crate::error::Error;
use crate::socket::{Address, Attachment, Site};
use crate::stream::end::{ROOM, out_of_place, receive};
use crate::stream::opening::{Answer, Dial, NodeEndpoint, Opening, Purpose, new_timer};
use crate::stream::readiness::Readiness;
use crate::stream::{Deadline, StreamSocket, not_zero};
use nix::errno::Errno;
use nix::sys::epoll::Epoll;
use nix::sys::timerfd::TimerFd;
use std::collections::VecDeque;
use std::fmt;
use std::mem::replace;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trunkline_overlay::session::wire::stream::{Notice, Request};
use trunkline_overlay::session::wire::{RefusalReason, SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::NodeId;

/// Default number of streams that may wait to be accepted.
pub(crate) const BACKLOG: u16 = 32;

/// Accepts incoming streams at a virtual port, as [`std::net::TcpListener`] does on a network.
///
/// # When the node goes away
///
/// The listener reconnects automatically, at the same intervals as a
/// [`DatagramSocket`](crate::DatagramSocket), and takes its port again when the node is back; an
/// [`accept`](StreamListener::accept) in progress keeps waiting. The streams that it has accepted
/// are lost with the node.
pub struct StreamListener {
    port: Mutex<Port>,
    ready: Arc<Epoll>,
}

enum Link {
    /// No connection to the node; the next attempt is made at this time.
    Down(Instant),
    Dialling(Dial),
    Up(Box<dyn Carrier>),
    Closed,
}

pub(crate) struct Port {
    place: NodeEndpoint,
    local: Address,
    backlog: u16,
    nonblocking: bool,
    read_timeout: Option<Duration>,
    identity: u64,
    attempt: u32,
    link: Link,
    pause: Duration,
    /// Last refusal that was reported to the application.
    told: Option<RefusalReason>,
    /// Token of an incoming stream that is being accepted or is next.
    token: Option<u64>,
    accepting: Option<Opening>,
    /// Watches the carrier of `link`, `timer` and `accepting`.
    watch: Readiness,
    timer: TimerFd,
}

impl StreamListener {
    /// Attaches to the node and listens at virtual port `port`, or at any free one if that is
    /// 0. At most 32 streams can wait to be accepted.
    ///
    /// # Errors
    ///
    /// Those of [`DatagramSocket::bind`](crate::DatagramSocket::bind).
    pub fn bind(at: impl Into<Attachment>, port: u16) -> Result<StreamListener, Error> {
        StreamListener::with_backlog(at, port, BACKLOG)
    }

    /// Listens as [`bind`](StreamListener::bind) does, but lets `backlog` streams wait to be
    /// accepted (0 means 1), or as many as the node allows if that is fewer. Further streams are
    /// refused with [`Reset::Full`](crate::Reset::Full).
    ///
    /// # Errors
    ///
    /// Those of [`bind`](StreamListener::bind).
    pub fn with_backlog(
        at: impl Into<Attachment>,
        port: u16,
        backlog: u16,
    ) -> Result<StreamListener, Error> {
        let place = NodeEndpoint::new(at.into())?;
        let candidates = place.candidates()?;
        let mut port = Port::new(Readiness::new()?, place, candidates, port, backlog)?;
        while !port.dial()? {
            wait_readable(port.watch.as_fd(), None)?;
        }
        Ok(StreamListener::from(port))
    }

    /// Node and virtual port at which this listens.
    pub fn local(&self) -> Address {
        self.lock().local
    }

    /// Sets whether [`accept`](StreamListener::accept) returns [`WouldBlock`](Error::WouldBlock)
    /// instead of blocking. Default: it blocks. The streams that it returns are blocking either
    /// way.
    pub fn set_nonblocking(&self, on: bool) {
        self.lock().nonblocking = on;
    }

    /// Sets the maximum time that [`accept`](StreamListener::accept) waits before it returns
    /// [`WouldBlock`](Error::WouldBlock). Default: `None`, for ever.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if `timeout` is zero.
    pub fn set_accept_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.lock().read_timeout = not_zero(timeout)?;
        Ok(())
    }

    /// Waits for the next stream, and returns it and the address of its other end. Streams that
    /// have ended while they waited are skipped.
    ///
    /// # Errors
    ///
    /// The listener remains usable after any of them. [`WouldBlock`](Error::WouldBlock) if it is
    /// nonblocking or the timeout has passed; [`PortInUse`](Error::PortInUse),
    /// [`Version`](Error::Version), [`NoFreePort`](Error::NoFreePort) or
    /// [`Refused`](Error::Refused) if it can't reconnect to the node, each once until the reason
    /// changes; [`Refused`](Error::Refused) with [`Full`](RefusalReason::Full) while the node has no
    /// session left for the stream, which stays queued, so try again later;
    /// [`Protocol`](Error::Protocol) if the node broke the session protocol, after which the
    /// listener reconnects; [`Io`](Error::Io) if this process has no descriptors left.
    pub fn accept(&self) -> Result<(StreamSocket, Address), Error> {
        let mut deadline = Deadline::default();
        loop {
            let timeout = {
                let mut port = self.lock();
                match port.accept() {
                    Err(Error::WouldBlock) if !port.nonblocking => port.read_timeout,
                    result => return result,
                }
            };
            wait_readable(self.as_fd(), deadline.left(timeout)?)?;
        }
    }

    /// Accepts the next stream without blocking, regardless of the listener's mode.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_accept(&self) -> Result<(StreamSocket, Address), Error> {
        self.lock().accept()
    }

    /// An iterator over incoming streams, each accepted as by [`accept`](StreamListener::accept).
    /// It never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Ends the listener; calls that wait on it fail with EBADF.
    pub(crate) fn close(&self) {
        let mut port = self.lock();
        port.leave(Link::Closed);
        port.accepting = None;
        port.watch.signal(true);
    }

    fn lock(&self) -> MutexGuard<'_, Port> {
        // No code panics halfway through a change.
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Port> for StreamListener {
    fn from(port: Port) -> StreamListener {
        StreamListener { ready: port.watch.epoll().clone(), port: Mutex::new(port) }
    }
}

impl Port {
    pub(crate) fn new(
        watch: Readiness,
        place: NodeEndpoint,
        candidates: VecDeque<Site>,
        port: u16,
        backlog: u16,
    ) -> Result<Port, Error> {
        let identity = getrandom::u64().map_err(|e| Error::io("draw a random number", e))?;
        let timer = new_timer()?;
        watch.add(timer.as_fd())?;
        let mut port = Port {
            place,
            local: Address { node: NodeId::NONE, port },
            backlog: backlog.max(1),
            nonblocking: false,
            read_timeout: None,
            identity,
            attempt: 0,
            link: Link::Closed,
            pause: FIRST_PAUSE,
            told: None,
            token: None,
            accepting: None,
            watch,
            timer,
        };
        port.link = Link::Dialling(port.new_dial(candidates));
        Ok(port)
    }

    /// Gives up listening. The remaining watch can wake waiting threads.
    pub(crate) fn into_watch(mut self) -> Readiness {
        self.leave(Link::Closed);
        self.watch.remove(self.timer.as_fd());
        self.watch
    }

    fn new_dial(&self, candidates: VecDeque<Site>) -> Dial {
        let bind = ToNode::Bind { version: SESSION_VERSION, port: self.local.port };
        Dial::new(candidates, &self.place, (self.identity, self.attempt), bind)
    }

    /// Continues an attempt to connect, if there is one. True unless that is still in progress.
    pub(crate) fn dial(&mut self) -> Result<bool, Error> {
        let Link::Dialling(dial) = &mut self.link else { return Ok(true) };
        let dialled = dial.advance(&mut self.watch, &self.timer);
        self.attempt = dial.attempt();
        let place = dial.place();
        let Some((mut carrier, answer)) = dialled? else { return Ok(false) };
        let listen = ToNode::Stream(Request::Listen { backlog: self.backlog });
        match answer {
            Answer::Bound(local) if self.local.port == 0 || self.local.port == local.port => {
                // The node has read the only message before it.
                if emit(&listen, |head| carrier.send(head, &[], true)).is_err() {
                    self.watch.leave(&mut *carrier);
                    return Err(Error::Disconnected);
                }
                (self.local, self.pause, self.told) = (local, FIRST_PAUSE, None);
                // A name is looked up only once.
                self.place = place.unwrap_or_else(|| self.place.clone());
                self.link = Link::Up(carrier);
                Ok(true)
            }
            _ => {
                self.watch.leave(&mut *carrier);
                Err(Error::Protocol(out_of_place()))
            }
        }
    }

    fn accept(&mut self) -> Result<(StreamSocket, Address), Error> {
        loop {
            if let Some(stream) = self.take_over()? {
                let peer = stream.peer();
                return Ok((stream, peer));
            }
            match self.token {
                Some(token) => self.begin(token)?,
                None => self.token = Some(self.next()?),
            }
        }
    }

    /// Continues to accept the stream in progress, and returns it once it is open. `None` if there
    /// is none, or if it has ended meanwhile.
    fn take_over(&mut self) -> Result<Option<StreamSocket>, Error> {
        let Some(opening) = &mut self.accepting else { return Ok(None) };
        let result = match opening.advance() {
            Ok(None) => return Err(Error::WouldBlock),
            Ok(Some(end)) => Ok(Some(StreamSocket::new(end))),
            // The stream has gone, or the node has; the listener's session detects the latter.
            Err(
                Error::Reset(_)
                | Error::Disconnected
                | Error::NotRunning { .. }
                | Error::NoAnswer { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        };
        self.watch.remove(opening.as_fd());
        self.accepting = None;
        if matches!(result, Err(Error::Refused(RefusalReason::Full))) {
            // The node has no session left at the moment, and the stream stays queued.
            wake_after(&self.timer, Some(FIRST_PAUSE));
        } else {
            self.token = None;
        }
        result
    }

    /// Begins to accept the stream with this token, in a new session.
    fn begin(&mut self, token: u64) -> Result<(), Error> {
        let opening = Readiness::new().and_then(|watch| {
            let purpose = Purpose::Accept { token };
            let opening = Opening::new(&self.place, self.place.candidates()?, purpose, watch)?;
            self.watch.add(opening.as_fd())?;
            Ok(opening)
        });
        match opening {
            Ok(opening) => {
                self.accepting = Some(opening);
                Ok(())
            }
            Err(error) => {
                // For example when no descriptor is left: the stream stays queued, and only this
                // timer revisits it.
                wake_after(&self.timer, Some(FIRST_PAUSE));
                Err(error)
            }
        }
    }

    /// Token of the next incoming stream.
    fn next(&mut self) -> Result<u64, Error> {
        self.advance()?;
        let mut buffer = [0; ROOM];
        loop {
            let Link::Up(carrier) = &mut self.link else { return Err(Error::WouldBlock) };
            let error = match receive(&mut **carrier, &mut buffer) {
                Ok(len) => match ToClient::parse(&buffer[..len.min(ROOM)]) {
                    Ok(ToClient::Stream(Notice::Incoming { token, .. })) => return Ok(token),
                    // A packet sent to the port before it listened.
                    Ok(ToClient::Received { .. }) => continue,
                    Ok(ToClient::Error { refusal, port, .. }) => Error::refused(refusal, port),
                    Ok(_) => Error::Protocol(out_of_place()),
                    Err(error) => Error::Protocol(error),
                },
                Err(Stuck::WouldBlock) => return Err(Error::WouldBlock),
                Err(_) => Error::WouldBlock,
            };
            self.down();
            return Err(error);
        }
    }

    /// Begins or continues an attempt to reconnect, if one is due.
    fn advance(&mut self) -> Result<(), Error> {
        match self.link {
            Link::Closed => return Err(Error::io("use a socket that is closed", Errno::EBADF)),
            Link::Down(due) if Instant::now() >= due => match self.place.candidates() {
                Ok(candidates) => self.link = Link::Dialling(self.new_dial(candidates)),
                // The reason doesn't matter: the next attempt may succeed.
                Err(_) => self.down(),
            },
            _ => {}
        }
        match self.dial() {
            Ok(_) => Ok(()),
            Err(error) => {
                self.down();
                let refusal = match &error {
                    Error::PortInUse { .. } => RefusalReason::PortInUse,
                    Error::NoFreePort => RefusalReason::NoFreePort,
                    Error::Version => RefusalReason::Version,
                    Error::Refused(refusal) => *refusal,
                    Error::Protocol(_) => return Err(error),
                    // The node is away.
                    _ => return Ok(()),
                };
                if self.told.replace(refusal) == Some(refusal) { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Drops the connection, if there is one, and schedules the next attempt.
    fn down(&mut self) {
        self.leave(Link::Down(Instant::now() + self.pause));
        // A token of the old session is no longer valid.
        self.token = None;
        wake_after(&self.timer, Some(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn leave(&mut self, next: Link) {
        match replace(&mut self.link, next) {
            Link::Up(mut carrier) => self.watch.leave(&mut *carrier),
            Link::Dialling(mut dial) => dial.leave(&mut self.watch),
            Link::Down(_) | Link::Closed => {}
        }
    }
}

/// An iterator over the streams that a [`StreamListener`] accepts; see
/// [`StreamListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a>(&'a StreamListener);

impl Iterator for Incoming<'_> {
    type Item = Result<StreamSocket, Error>;

    fn next(&mut self) -> Option<Result<StreamSocket, Error>> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl AsFd for StreamListener {
    /// Readable (level-triggered) when [`accept`](StreamListener::accept) has something to do: a
    /// stream to accept, or an attempt to reconnect. It may thus be readable with no stream to
    /// accept; to poll it, make it nonblocking, as with any socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.0.as_fd()
    }
}

impl AsRawFd for StreamListener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsRawFd for Port {
    fn as_raw_fd(&self) -> RawFd {
        self.watch.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for StreamListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamListener").field("local", &self.local()).finish()
    }
}
