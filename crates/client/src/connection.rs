//! One socket's connection to its node, across reconnects.

use crate::carrier::{Carrier, HEAD, Next, Stuck};
use crate::error::Error;
use crate::keys::KeyRing;
use crate::socket::{
    Address, Attachment, BIND_TIMEOUT, ConnectionStatus, Received, Site, Status, look_up,
    no_address,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::mem::{replace, take};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trunkline_base::wire::Writer;
use trunkline_overlay::session::wire::{
    MAX_HEAD, RefusalReason, SESSION_VERSION, ToClient, ToNode,
};
use trunkline_overlay::wire::{Metric, NodeId, Service, WireError};

/// First pause before an attempt to reconnect: a restarted node is back about then.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Upper limit of the pause, which doubles after each attempt.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Interval in milliseconds at which a thread that waits for room checks whether its connection
/// still exists.
const LOOK_AFTER: u8 = 250;

/// No packet is useful for longer.
const LONGEST: Duration = Duration::from_millis(255);

enum Link {
    /// Not bound yet, or the bind failed.
    Unbound,
    /// No connection; the next attempt is at this time.
    Down(Instant),
    /// The bind has been sent; the answer is due before this time.
    Binding(Box<dyn Carrier>, Instant),
    Up(Box<dyn Carrier>),
    /// Closed for good; no reconnection follows.
    Closed,
}

pub(crate) struct Connection {
    pub(crate) service: Service,
    pub(crate) deadline_ms: u8,
    /// Metric used to route packets; `None` leaves the choice to the node.
    pub(crate) metric: Option<Metric>,
    /// Last value of `metric` that this connection has sent to the node.
    metric_told: Option<Metric>,
    /// Whether the application requested packets that waited past their deadline.
    pub(crate) late: bool,
    /// Last value of `late` that this connection has sent to the node.
    late_told: bool,
    /// Whether packets that aren't real-time wait for room instead of being dropped.
    pub(crate) wait: bool,
    /// Last value of `wait` that this connection has sent to the node.
    wait_told: bool,
    pub(crate) nonblocking: bool,
    pub(crate) read_timeout: Option<Duration>,
    /// Local address; before the first bind, its port is the requested one.
    pub(crate) local: Address,
    pub(crate) max_payload: usize,
    at: Site,
    /// Keys for a node on another host; read at each bind.
    keys: Option<Box<KeyRing>>,
    /// Secret by which a node recognises this socket across connections.
    identity: u64,
    /// Number of connections tried so far.
    attempt: u32,
    link: Link,
    pause: Duration,
    /// Last refusal of a rebind that was reported to the application.
    told: Option<RefusalReason>,
    /// Whether the reconnection has yet to be reported to the application.
    news: bool,
    bound_before: bool,
    reconnects: u32,
    /// Contains `timer` and the descriptor of the current carrier.
    ready: Arc<Epoll>,
    /// Makes `ready` readable when an attempt is due or `news` is set.
    timer: TimerFd,
    /// Readable when there may be room to send; created when blocking is first enabled.
    room: Option<Arc<Epoll>>,
    /// Whether `ready` also watches `room`.
    room_wanted: bool,
}

impl Connection {
    /// Connects and binds. It can be called again after an error.
    pub(crate) fn bind(&mut self, port: u16) -> Result<(), Error> {
        match self.link {
            Link::Unbound => {}
            Link::Closed => return Err(closed()),
            _ => return Err(Error::io("bind a socket that is bound already", Errno::EINVAL)),
        }
        self.local.port = port;
        let result = self
            .keys
            .as_mut()
            .map_or(Ok(()), |keys| keys.read())
            .and_then(|()| self.bind_somewhere());
        if result.is_err() {
            self.leave(Link::Unbound);
            wake_after(&self.timer, None);
            (self.pause, self.told, self.local.port) = (FIRST_PAUSE, None, 0);
        }
        result
    }

    /// Binds at the first address of the node's name that answers, and keeps that address from then
    /// on.
    fn bind_somewhere(&mut self) -> Result<(), Error> {
        let Site::Name(name) = self.at.clone() else {
            return self.connect_and_wait();
        };
        let mut absent = None;
        for address in look_up(&name)? {
            self.at = Site::Address(address);
            match self.connect_and_wait() {
                Ok(()) => return Ok(()),
                Err(e) => {
                    self.leave(Link::Unbound);
                    self.at = Site::Name(name.clone());
                    match e {
                        Error::NotRunning { .. } | Error::NoAnswer { .. } => absent = Some(e),
                        refused => return Err(refused),
                    }
                }
            }
        }
        Err(absent.unwrap_or_else(|| no_address(&name, std::io::ErrorKind::NotFound.into())))
    }

    fn connect_and_wait(&mut self) -> Result<(), Error> {
        let until = Instant::now() + self.at.answer_timeout().max(BIND_TIMEOUT);
        loop {
            match self.connect() {
                // The node's accept queue is full, and no descriptor signals when it has room.
                Err(Error::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Error::WouldBlock) => {
                    return Err(Error::NoAnswer { at: self.at.to_string() });
                }
                result => break result?,
            }
        }
        // Only handshakes are rate-limited, and only other hosts perform them.
        let local = self.at.is_local();
        loop {
            if let Link::Binding(_, answer_until) = &mut self.link {
                *answer_until = until;
            }
            let expired = Instant::now() >= until;
            match self.advance() {
                // Many clients connected at once; the condition clears within seconds.
                Err(Error::Refused(RefusalReason::Busy)) if !expired && !local => {}
                done => done?,
            }
            match &self.link {
                Link::Down(due) if self.told == Some(RefusalReason::Busy) && !expired && !local => {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                Link::Up(_) => return Ok(()),
                Link::Binding(carrier, _) => {
                    let left = until.saturating_duration_since(Instant::now());
                    wait_readable(carrier.descriptor(), Some(left))?;
                }
                _ if !expired => return Err(Error::Disconnected),
                _ => return Err(Error::NoAnswer { at: self.at.to_string() }),
            }
        }
    }

    /// Ends the connection for good. Threads that wait on the descriptor wake up, and every call
    /// fails with EBADF from now on.
    pub(crate) fn close(&mut self) {
        self.leave(Link::Closed);
        if let Some(room) = &self.room {
            let _ = room.add(&self.timer, readable());
        }
        wake_after(&self.timer, Some(Duration::ZERO));
    }

    pub(crate) fn new(at: Attachment) -> Result<Connection, Error> {
        let (at, query) = at.split();
        let new_error = |errno: Errno| Error::io("create a descriptor for a socket", errno);
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(new_error)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(new_error)?;
        ready.add(&timer, readable()).map_err(new_error)?;
        let identity = getrandom::u64().map_err(|e| Error::io("draw a random number", e))?;
        Ok(Connection {
            service: Service::RealTime,
            deadline_ms: 100,
            metric: None,
            metric_told: None,
            late: false,
            late_told: false,
            wait: false,
            wait_told: false,
            nonblocking: false,
            read_timeout: None,
            local: Address { node: NodeId::NONE, port: 0 },
            max_payload: 0,
            at,
            keys: query.map(|query| Box::new(KeyRing::new(query))),
            identity,
            attempt: 0,
            link: Link::Unbound,
            pause: FIRST_PAUSE,
            told: None,
            news: false,
            bound_before: false,
            reconnects: 0,
            ready: Arc::new(ready),
            timer,
            room: None,
            room_wanted: false,
        })
    }

    pub(crate) fn ready(&self) -> &Arc<Epoll> {
        &self.ready
    }

    pub(crate) fn status(&self) -> ConnectionStatus {
        let transport = match &self.link {
            Link::Up(carrier) => Some(carrier.transport()),
            _ => None,
        };
        ConnectionStatus { connected: transport.is_some(), reconnects: self.reconnects, transport }
    }

    pub(crate) fn send(&mut self, payload: &[u8], to: Address) -> Result<(), Error> {
        self.advance()?;
        if payload.len() > self.max_payload {
            return Err(Error::TooLarge { len: payload.len(), max: self.max_payload });
        }
        self.waiting_error()?;
        self.tell_late();
        let waits = self.waits();
        self.send_blocking().map_err(|stuck| self.not_sent(stuck))?;
        let Link::Up(carrier) = &mut self.link else { return Err(Error::Disconnected) };
        if self.metric != self.metric_told
            && emit(&ToNode::Metric(self.metric), |head| carrier.send(head, &[], true)).is_ok()
        {
            self.metric_told = self.metric;
        }
        let message = ToNode::Send {
            service: self.service,
            deadline_ms: self.deadline_ms,
            to: to.node,
            port: to.port,
            payload,
        };
        let sent = emit(&message, |head| carrier.send(head, payload, waits));
        sent.map_err(|stuck| self.not_sent(stuck))
    }

    /// Whether packets sent now wait for room.
    fn waits(&self) -> bool {
        self.wait && self.service != Service::RealTime
    }

    fn not_sent(&mut self, stuck: Stuck) -> Error {
        self.failed(stuck, Error::Disconnected, "send to the trunkline node")
    }

    /// After a send that would block: the descriptor that becomes readable when there may be room,
    /// for callers that may block. `None` for other callers, for which the socket's descriptor is
    /// used, and for packets that don't wait for room.
    pub(crate) fn room(&mut self, may_wait: bool) -> Option<Arc<Epoll>> {
        let waits = self.waits();
        let (Link::Up(carrier), Some(room)) = (&mut self.link, &self.room) else { return None };
        if !waits {
            return None;
        }
        let (descriptor, flags) = carrier.room();
        // It may be registered already.
        let _ = room.add(descriptor, EpollEvent::new(flags, 0));
        if may_wait && !self.nonblocking {
            return Some(room.clone());
        }
        self.room_wanted |= self.ready.add(room.0.as_fd(), readable()).is_ok();
        None
    }

    /// After a send: the same descriptor, while a part of the packet is still in this process and
    /// the caller may block. Without it the last packet of a caller that then does something else
    /// would never be complete.
    pub(crate) fn room_for_rest(&mut self, may_wait: bool) -> Option<Arc<Epoll>> {
        if !may_wait || self.nonblocking || !self.waits() {
            return None;
        }
        let Link::Up(carrier) = &mut self.link else { return None };
        // The next call detects a broken connection.
        if carrier.flushed().unwrap_or(true) { None } else { self.room(may_wait) }
    }

    pub(crate) fn receive(&mut self, buf: &mut [u8]) -> Result<Received, Error> {
        self.advance()?;
        let Link::Up(carrier) = &mut self.link else {
            return Err(if take(&mut self.news) { Error::Reconnected } else { Error::WouldBlock });
        };
        if take(&mut self.news) {
            wake_after(&self.timer, None);
            return Err(Error::Reconnected);
        }
        let mut head = [0; HEAD];
        let len = loop {
            match carrier.receive(&mut head, buf, Next::Take) {
                Ok(_) if !self.late && carrier.waited() > LONGEST && is_real_time(&head) => {}
                Ok(len) => break len,
                Err(stuck) => {
                    return Err(self.failed(
                        stuck,
                        Error::WouldBlock,
                        "receive from the trunkline node",
                    ));
                }
            }
        };
        match ToClient::parse(&head[..len.min(HEAD)]) {
            Ok(ToClient::Received {
                service,
                recovered,
                remaining_ms,
                flow_seq,
                from,
                port,
                ..
            }) => {
                let len = len.saturating_sub(HEAD);
                if len > buf.len() {
                    return Err(Error::Truncated { len });
                }
                Ok(Received {
                    len,
                    from: Address { node: from, port },
                    service,
                    recovered,
                    remaining: Duration::from_millis(remaining_ms.into()),
                    flow_seq,
                })
            }
            other => Err(self.not_a_packet(other)),
        }
    }

    /// Sets whether the application receives packets that waited past their deadline.
    pub(crate) fn set_late(&mut self, on: bool) {
        self.late = on;
        self.tell_late();
    }

    /// Sends `late` to the node unless the node already has that value.
    fn tell_late(&mut self) {
        let late = self.late;
        if let Link::Up(carrier) = &mut self.link
            && late != self.late_told
            && emit(&ToNode::Late(late), |head| carrier.send(head, &[], true)).is_ok()
        {
            self.late_told = late;
        }
    }

    /// Sets whether packets that aren't real-time wait for room instead of being dropped.
    pub(crate) fn set_blocking(&mut self, on: bool) -> Result<(), Error> {
        if on && self.room.is_none() {
            let room = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
            let new_error = |errno| Error::io("create a descriptor for a socket", errno);
            self.room = Some(Arc::new(room.map_err(new_error)?));
        }
        self.wait = on;
        // If this can't be sent now, the next packet sends it.
        let _ = self.send_blocking();
        Ok(())
    }

    /// Sends `wait` to the node unless the node already has that value.
    fn send_blocking(&mut self) -> Result<(), Stuck> {
        let wait = self.wait;
        if let Link::Up(carrier) = &mut self.link
            && wait != self.wait_told
        {
            emit(&ToNode::Blocking(wait), |head| carrier.send(head, &[], true))?;
            self.wait_told = wait;
        }
        Ok(())
    }

    /// Takes the next message and returns its error, if it is not a packet.
    fn waiting_error(&mut self) -> Result<(), Error> {
        let Link::Up(carrier) = &mut self.link else { return Ok(()) };
        let mut head = [0; HEAD];
        let len = match carrier.receive(&mut head, &mut [], Next::Peek) {
            Ok(len) => len,
            Err(Stuck::WouldBlock) => return Ok(()),
            Err(stuck) => {
                return Err(self.failed(
                    stuck,
                    Error::Disconnected,
                    "receive from the trunkline node",
                ));
            }
        };
        match ToClient::parse(&head[..len.min(HEAD)]) {
            Ok(ToClient::Received { .. }) => Ok(()),
            other => {
                // It was there a moment ago, and only this side takes messages.
                let _ = carrier.receive(&mut [0; HEAD], &mut [], Next::Take);
                Err(self.not_a_packet(other))
            }
        }
    }

    /// Error that the application gets for a message that is not a packet.
    fn not_a_packet(&mut self, message: Result<ToClient<'_>, WireError>) -> Error {
        match message {
            Ok(ToClient::Error { refusal, port, .. }) => {
                use RefusalReason::{Forbidden, OverRate, OverShare, TooLarge};
                if !matches!(refusal, TooLarge | Forbidden | OverShare | OverRate) {
                    // It concerns the session, not a packet.
                    self.down();
                }
                Error::refused(refusal, port)
            }
            Ok(ToClient::Unreachable { node, port, why }) => Error::unreachable(node, port, why),
            Ok(ToClient::Reachable { node, port }) => {
                Error::Status(Status::Reachable { to: Address { node, port } })
            }
            // A second Bound, or a packet before Bound.
            Ok(_) => {
                self.down();
                Error::Protocol(WireError::OutOfRange("the place of a message in the session"))
            }
            Err(error) => {
                self.down();
                Error::Protocol(error)
            }
        }
    }

    fn failed(&mut self, stuck: Stuck, closed: Error, what: &str) -> Error {
        match stuck {
            Stuck::WouldBlock => Error::WouldBlock,
            Stuck::Closed => {
                self.down();
                closed
            }
            Stuck::Io(source) => Error::io(what, source),
        }
    }

    /// Makes an attempt to connect if one is due, and reads the answer to a bind.
    fn advance(&mut self) -> Result<(), Error> {
        match self.link {
            Link::Unbound => return Err(Error::io("use a socket before its bind", Errno::EINVAL)),
            Link::Closed => return Err(closed()),
            _ => {}
        }
        if take(&mut self.room_wanted)
            && let Some(room) = &self.room
        {
            let _ = self.ready.delete(room.0.as_fd());
        }
        if let Link::Down(due) = self.link
            && Instant::now() >= due
            && self.connect().is_err()
        {
            // The reason doesn't matter: the application has been notified that the node is away.
            self.down();
        }
        let Link::Binding(carrier, until) = &mut self.link else { return Ok(()) };
        let mut head = [0; HEAD];
        let len = match carrier.receive(&mut head, &mut [], Next::Take) {
            Ok(len) => len,
            Err(Stuck::WouldBlock) if Instant::now() < *until => return Ok(()),
            Err(stuck) => {
                self.down();
                return match stuck {
                    // A connection that was never established has a reason to report.
                    Stuck::Io(source) if !self.bound_before => {
                        Err(Error::NotRunning { at: self.at.to_string(), source })
                    }
                    _ => Ok(()),
                };
            }
        };
        match ToClient::parse(&head[..len.min(HEAD)]) {
            Ok(ToClient::Bound { node, port, max_payload })
                if port != 0 && (port == self.local.port || self.local.port == 0) =>
            {
                self.bound(Address { node, port }, max_payload.into());
                Ok(())
            }
            Ok(ToClient::Error { refusal, port, .. }) => {
                self.down();
                if self.told.replace(refusal) == Some(refusal) {
                    return Ok(());
                }
                // A refusal need not carry the port that it is about.
                let port = if port == 0 { self.local.port } else { port };
                Err(Error::refused(refusal, port))
            }
            other => Err(self.not_a_packet(other)),
        }
    }

    fn bound(&mut self, local: Address, max_payload: usize) {
        let again = replace(&mut self.bound_before, true);
        self.local = local;
        self.max_payload = max_payload;
        self.pause = FIRST_PAUSE;
        self.told = None;
        let now = Instant::now();
        if let Link::Binding(carrier, _) = replace(&mut self.link, Link::Down(now)) {
            (self.metric_told, self.late_told, self.wait_told) = (None, false, false);
            self.link = Link::Up(carrier);
            self.tell_late();
            // If this can't be sent now, the next packet sends it.
            let _ = self.send_blocking();
        }
        if again {
            self.reconnects = self.reconnects.saturating_add(1);
            self.news = true;
        }
        // If send_to got here, recv_from still has to report the reconnection.
        wake_after(&self.timer, again.then_some(Duration::ZERO));
    }

    /// Connects and sends a bind.
    fn connect(&mut self) -> Result<(), Error> {
        self.attempt = self.attempt.wrapping_add(1);
        let keys = self.keys.as_ref().and_then(|ring| ring.keys());
        let mut carrier = self.at.connect(self.identity, self.attempt, keys)?;
        let bind = ToNode::Bind { version: SESSION_VERSION, port: self.local.port };
        if emit(&bind, |head| carrier.send(head, &[], true)).is_err() {
            return Err(Error::Disconnected);
        }
        self.ready
            .add(carrier.descriptor(), readable())
            .map_err(|errno| Error::io("poll a connection to the trunkline node", errno))?;
        let timeout = self.at.answer_timeout();
        self.link = Link::Binding(carrier, Instant::now() + timeout);
        wake_after(&self.timer, Some(timeout));
        Ok(())
    }

    /// Drops the connection, if any, and schedules the next attempt.
    fn down(&mut self) {
        self.leave(Link::Down(Instant::now() + self.pause));
        wake_after(&self.timer, Some(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Drops the connection, if any.
    fn leave(&mut self, next: Link) {
        if let Link::Binding(mut carrier, _) | Link::Up(mut carrier) = replace(&mut self.link, next)
        {
            // Closing is not enough: an in-process node shares the descriptor.
            let _ = self.ready.delete(carrier.descriptor());
            if let Some(room) = &self.room {
                let _ = room.delete(carrier.room().0);
            }
        }
    }
}

/// Whether a message that begins with `head` is a real-time packet.
fn is_real_time(head: &[u8; HEAD]) -> bool {
    let message = ToClient::parse(head);
    matches!(message, Ok(ToClient::Received { service: Service::RealTime, .. }))
}

fn readable() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, 0)
}

fn closed() -> Error {
    Error::io("use a socket that is closed", Errno::EBADF)
}

pub(crate) fn emit<R>(message: &ToNode<'_>, send: impl FnOnce(&[u8]) -> R) -> R {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    let fits = message.emit_head(&mut w);
    debug_assert!(fits.is_ok(), "MAX_HEAD is too small");
    send(w.written())
}

/// Makes the timer's descriptor readable after `pause` and not before; never if `pause` is `None`.
pub(crate) fn wake_after(timer: &TimerFd, pause: Option<Duration>) {
    let set = match pause {
        None => timer.unset(),
        Some(pause) => {
            // Zero would disarm the timer.
            let pause = pause.max(Duration::from_nanos(1));
            timer.set(Expiration::OneShot(pause.into()), TimerSetTimeFlags::empty())
        }
    };
    debug_assert!(set.is_ok(), "timerfd_settime refused a valid time: {set:?}");
}

/// Waits until there may be room, or until the connection needs attention.
pub(crate) fn wait_for_room(room: &Epoll) -> Result<(), Error> {
    match room.wait(&mut [EpollEvent::empty()], LOOK_AFTER) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::io("wait for the trunkline node", errno)),
    }
}

/// Waits until `fd` is readable, or for `timeout`; a signal may end it early.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<(), Error> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::io("wait for the trunkline node", errno)),
    }
}
