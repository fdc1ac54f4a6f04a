//! A port where streams come in.

use crate::carrier::{Carrier, Stuck};
use crate::connection::{FIRST_PAUSE, LONGEST_PAUSE, emit, wait_readable, wake_after};
use crate::error::Error;
use crate::socket::{Address, Attachment};
use crate::stream::end::{ROOM, out_of_place, receive};
use crate::stream::opening::{Answer, Dial, Opening, Place, Purpose, new_timer};
use crate::stream::watch::Watch;
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
use trunkline_overlay::session::wire::{Refusal, SESSION_VERSION, ToClient, ToNode};
use trunkline_overlay::wire::NodeId;

/// How many streams may wait to be accepted, unless told otherwise.
pub(crate) const BACKLOG: u16 = 32;

/// Takes streams that come in at a virtual port: what [`std::net::TcpListener`] is on a
/// network.
///
/// # When the node goes away
///
/// It takes its port again by itself when the node is back, after pauses as a
/// [`DatagramSocket`](crate::DatagramSocket) makes them; an
/// [`accept`](StreamListener::accept) that waits goes on to wait. The streams that it has
/// accepted are lost with the node.
pub struct StreamListener {
    port: Mutex<Port>,
    ready: Arc<Epoll>,
}

enum Link {
    /// The next attempt is at this time.
    Down(Instant),
    Dialling(Dial),
    Up(Box<dyn Carrier>),
    Closed,
}

pub(crate) struct Port {
    place: Place,
    local: Address,
    backlog: u16,
    nonblocking: bool,
    read_timeout: Option<Duration>,
    identity: u64,
    attempt: u32,
    link: Link,
    pause: Duration,
    /// The last refusal of an attempt that the application knows of.
    told: Option<Refusal>,
    /// A stream that was told of and is not being accepted yet.
    token: Option<u64>,
    accepting: Option<Opening>,
    /// Holds the link's carrier, `timer` and the descriptor of `accepting`.
    watch: Watch,
    timer: TimerFd,
}

impl StreamListener {
    /// Attaches to the node and listens at virtual port `port`, or any free one if that is
    /// 0. At most 32 streams wait to be accepted.
    ///
    /// # Errors
    ///
    /// [`NotReliable`](Error::NotReliable) if the node is of a release without streams; else
    /// those of [`DatagramSocket::bind`](crate::DatagramSocket::bind).
    pub fn bind(at: impl Into<Attachment>, port: u16) -> Result<StreamListener, Error> {
        StreamListener::with_backlog(at, port, BACKLOG)
    }

    /// The same, and as many as `backlog` streams wait to be accepted, at least 1; the node
    /// may allow fewer. Those beyond are refused with
    /// [`Reset::Full`](crate::Reset::Full).
    ///
    /// # Errors
    ///
    /// Those of [`bind`](StreamListener::bind).
    pub fn with_backlog(
        at: impl Into<Attachment>,
        port: u16,
        backlog: u16,
    ) -> Result<StreamListener, Error> {
        let place = Place::new(at.into())?;
        let candidates = place.candidates()?;
        let mut port = Port::new(Watch::new()?, place, candidates, port, backlog)?;
        while !port.dial()? {
            wait_readable(port.watch.as_fd(), None)?;
        }
        Ok(StreamListener::from(port))
    }

    /// The node and the virtual port.
    pub fn local(&self) -> Address {
        self.lock().local
    }

    /// Whether [`accept`](StreamListener::accept) returns
    /// [`WouldBlock`](Error::WouldBlock) rather than wait. Default: it waits. The streams
    /// that it returns wait all the same.
    pub fn set_nonblocking(&self, on: bool) {
        self.lock().nonblocking = on;
    }

    /// How long [`accept`](StreamListener::accept) waits at most; then it returns
    /// [`WouldBlock`](Error::WouldBlock). Default: `None`, for ever.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if that is zero.
    pub fn set_accept_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.lock().read_timeout = not_zero(timeout)?;
        Ok(())
    }

    /// Takes the next stream, and says where it comes from. One that has gone away while it
    /// waited is passed over.
    ///
    /// # Errors
    ///
    /// None of them ends the listener: [`WouldBlock`](Error::WouldBlock); once per attempt
    /// to connect again that failed in a new way, [`PortInUse`](Error::PortInUse),
    /// [`NotReliable`](Error::NotReliable), [`NoFreePort`](Error::NoFreePort) or
    /// [`Refused`](Error::Refused); [`Protocol`](Error::Protocol) when the node broke the
    /// session protocol, and the connection is made anew; [`Io`](Error::Io) if this process
    /// has no descriptors left.
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

    /// Takes the next stream if one is there.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_accept(&self) -> Result<(StreamSocket, Address), Error> {
        self.lock().accept()
    }

    /// The streams that come in, one after another; it never ends by itself.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Ends it under those who wait, with EBADF.
    pub(crate) fn close(&self) {
        let mut port = self.lock();
        port.leave(Link::Closed);
        port.accepting = None;
        port.watch.signal(true);
    }

    fn lock(&self) -> MutexGuard<'_, Port> {
        // Nothing panics in between two halves of a change.
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
        watch: Watch,
        place: Place,
        candidates: VecDeque<Attachment>,
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

    /// Gives up. Who waits can be woken by what remains.
    pub(crate) fn into_watch(mut self) -> Watch {
        self.leave(Link::Closed);
        self.watch.remove(self.timer.as_fd());
        self.watch
    }

    fn new_dial(&self, candidates: VecDeque<Attachment>) -> Dial {
        let bind = ToNode::Bind { version: SESSION_VERSION, port: self.local.port };
        Dial::new(candidates, &self.place, (self.identity, self.attempt), bind)
    }

    /// Goes on with an attempt to connect; whether the node listens now.
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
                // A name is looked up once.
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

    /// Goes on to accept the stream that is being accepted, if one is.
    fn take_over(&mut self) -> Result<Option<StreamSocket>, Error> {
        let Some(opening) = &mut self.accepting else { return Ok(None) };
        let result = match opening.advance() {
            Ok(None) => return Err(Error::WouldBlock),
            Ok(Some(end)) => Ok(Some(StreamSocket::new(end))),
            // It has gone, or the node has, which its own session tells of.
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
        result
    }

    /// Opens the session of a stream that came in.
    fn begin(&mut self, token: u64) -> Result<(), Error> {
        let opening = Watch::new().and_then(|watch| {
            let purpose = Purpose::Accept { token };
            let opening = Opening::new(&self.place, self.place.candidates()?, purpose, watch)?;
            self.watch.add(opening.as_fd())?;
            Ok(opening)
        });
        match opening {
            Ok(opening) => {
                self.accepting = Some(opening);
                self.token = None;
                Ok(())
            }
            Err(error) => {
                // As when no descriptor is left: the stream stays, and nothing else tells
                // that it does.
                wake_after(&self.timer, Some(FIRST_PAUSE));
                Err(error)
            }
        }
    }

    /// The next stream that came in.
    fn next(&mut self) -> Result<u64, Error> {
        self.advance()?;
        let mut buffer = [0; ROOM];
        loop {
            let Link::Up(carrier) = &mut self.link else { return Err(Error::WouldBlock) };
            let error = match receive(&mut **carrier, &mut buffer) {
                Ok(len) => match ToClient::parse(&buffer[..len.min(ROOM)]) {
                    Ok(ToClient::Stream(Notice::Incoming { token, .. })) => return Ok(token),
                    // A packet to the port from before it listened.
                    Ok(ToClient::Received { .. }) => continue,
                    Ok(ToClient::Error { refusal, node, port }) => {
                        Error::refused(refusal, node, port)
                    }
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

    /// Makes a due attempt to connect again.
    fn advance(&mut self) -> Result<(), Error> {
        match self.link {
            Link::Closed => return Err(Error::io("use a socket that is closed", Errno::EBADF)),
            Link::Down(due) if Instant::now() >= due => match self.place.candidates() {
                Ok(candidates) => self.link = Link::Dialling(self.new_dial(candidates)),
                // Why does not matter: the next attempt may do better.
                Err(_) => self.down(),
            },
            _ => {}
        }
        match self.dial() {
            Ok(_) => Ok(()),
            Err(error) => {
                self.down();
                let refusal = match &error {
                    Error::PortInUse { .. } => Refusal::PortInUse,
                    Error::NoFreePort => Refusal::NoFreePort,
                    Error::NotReliable => Refusal::Version,
                    Error::Refused(refusal) => *refusal,
                    Error::Protocol(_) => return Err(error),
                    // The node is away.
                    _ => return Ok(()),
                };
                if self.told.replace(refusal) == Some(refusal) { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Drops the connection, if any, and plans the next attempt.
    fn down(&mut self) {
        self.leave(Link::Down(Instant::now() + self.pause));
        // What was told of is the old session's.
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

/// What [`StreamListener::incoming`] returns.
#[derive(Debug)]
pub struct Incoming<'a>(&'a StreamListener);

impl Iterator for Incoming<'_> {
    type Item = Result<StreamSocket, Error>;

    fn next(&mut self) -> Option<Result<StreamSocket, Error>> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl AsFd for StreamListener {
    /// Readable (level-triggered) when [`accept`](StreamListener::accept) has something to
    /// do, be it to try and connect again. As with any socket, a nonblocking one is safe
    /// against being readable for nothing.
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
