//! Connects a session to its node, with retries, up to the node's first answer, and then turns it
//! into one end of a stream.

use crate::carrier::{Carrier, Stuck};
use crate::connection::{FIRST_PAUSE, emit, wake_after};
use crate::error::Error;
use crate::keys::KeyRing;
use crate::socket::{Address, Attachment, BIND_TIMEOUT, Site, look_up, no_address};
use crate::stream::end::{Connected, End, ROOM, WINDOW, out_of_place, receive};
use crate::stream::readiness::{Readiness, no_descriptor};
use nix::errno::Errno;
use nix::sys::epoll::Epoll;
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trunkline_overlay::session::wire::stream::{Notice, Request, Reset};
use trunkline_overlay::session::wire::{RefusalReason, SESSION_VERSION, ToClient, ToNode};

/// Pause before connecting again to a node with a full accept queue.
const CROWDED: Duration = Duration::from_millis(5);

/// A node's location, and the keys to authenticate with there.
#[derive(Clone)]
pub(crate) struct NodeEndpoint {
    at: Site,
    keys: Option<Arc<KeyRing>>,
}

impl NodeEndpoint {
    /// Reads the keys, if the node is on another host, and fails if they can't be read.
    pub(crate) fn new(at: Attachment) -> Result<NodeEndpoint, Error> {
        let (at, query) = at.split();
        let keys = match query {
            None => None,
            Some(query) => {
                let mut keys = KeyRing::new(query);
                keys.read()?;
                Some(Arc::new(keys))
            }
        };
        Ok(NodeEndpoint { at, keys })
    }

    /// Host name that has to be looked up first, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.at {
            Site::Name(name) => Some(name),
            _ => None,
        }
    }

    /// Addresses at which the node may be; a host name can have several. Blocks during the look-up.
    pub(crate) fn candidates(&self) -> Result<VecDeque<Site>, Error> {
        match self.name() {
            None => Ok([self.at.clone()].into()),
            Some(name) => Ok(look_up(name)?.map(Site::Address).collect()),
        }
    }
}

/// A node's answer to a session's first message.
pub(crate) enum Answer {
    Bound(Address),
    Connected(Connected),
    Reset(Reset),
}

/// A carrier, and the node's answer to the first message on it.
pub(crate) type Answered = (Box<dyn Carrier>, Answer);

/// Attempts to send a session's first message to a node and to receive the answer, trying one
/// address after another.
pub(crate) struct Dial {
    candidates: VecDeque<Site>,
    keys: Option<Arc<KeyRing>>,
    /// Identity by which a node on another host recognises this session, and number of connections
    /// that it has made.
    identity: u64,
    attempt: u32,
    first: ToNode<'static>,
    carrier: Option<Box<dyn Carrier>>,
    /// Time at which the current candidate has timed out.
    until: Option<Instant>,
    /// Time at which to retry the current candidate, and the pause after that.
    again: Option<Instant>,
    pause: Duration,
    /// Reason why the candidate before the current one failed.
    absent: Option<Error>,
}

impl Dial {
    pub(crate) fn new(
        candidates: VecDeque<Site>,
        place: &NodeEndpoint,
        (identity, attempt): (u64, u32),
        first: ToNode<'static>,
    ) -> Dial {
        Dial {
            candidates,
            keys: place.keys.clone(),
            identity,
            attempt,
            first,
            carrier: None,
            until: None,
            again: None,
            pause: FIRST_PAUSE,
            absent: None,
        }
    }

    /// Number of connections that this session has made.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Location of the current candidate: that of the node, once it has answered.
    pub(crate) fn place(&self) -> Option<NodeEndpoint> {
        let at = self.candidates.front()?.clone();
        Some(NodeEndpoint { at, keys: self.keys.clone() })
    }

    /// Removes the carrier, if there is one, from `watch` and drops it.
    pub(crate) fn leave(&mut self, watch: &mut Readiness) {
        if let Some(mut carrier) = self.carrier.take() {
            watch.leave(&mut *carrier);
        }
    }

    /// Time at which to call `advance` even if `watch` isn't readable.
    fn due(&self) -> Option<Instant> {
        self.again.or(self.until)
    }

    /// Continues without blocking. Returns the carrier, which is in `watch`, and the answer once
    /// the node has answered; until then call it again when `watch`, which includes `timer`, is
    /// readable.
    pub(crate) fn advance(
        &mut self,
        watch: &mut Readiness,
        timer: &TimerFd,
    ) -> Result<Option<Answered>, Error> {
        let result = loop {
            match self.try_candidate(watch) {
                Err(absent @ (Error::NotRunning { .. } | Error::NoAnswer { .. })) => {
                    self.candidates.pop_front();
                    (self.until, self.again) = (None, None);
                    if self.candidates.is_empty() {
                        break Err(absent);
                    }
                    self.absent = Some(absent);
                }
                other => break other,
            }
        };
        match &result {
            Ok(None) => {
                let due = self.due().map(|due| due.saturating_duration_since(Instant::now()));
                wake_after(timer, due);
            }
            _ => wake_after(timer, None),
        }
        result
    }

    fn try_candidate(&mut self, watch: &mut Readiness) -> Result<Option<Answered>, Error> {
        let Some(at) = self.candidates.front() else {
            let nothing = || no_address("the node", std::io::ErrorKind::NotFound.into());
            return Err(self.absent.take().unwrap_or_else(nothing));
        };
        let local = at.is_local();
        let now = Instant::now();
        let until = *self.until.get_or_insert(now + at.answer_timeout().max(BIND_TIMEOUT));
        let no_answer = Error::NoAnswer { at: at.to_string() };
        if self.carrier.is_none() {
            if now >= until {
                return Err(no_answer);
            }
            if self.again.is_some_and(|again| now < again) {
                return Ok(None);
            }
            self.attempt = self.attempt.wrapping_add(1);
            let keys = self.keys.as_ref().and_then(|ring| ring.keys());
            let mut carrier = match at.connect(self.identity, self.attempt, keys) {
                // No descriptor signals when the queue has room.
                Err(Error::WouldBlock) => {
                    self.again = Some(now + CROWDED);
                    return Ok(None);
                }
                connected => connected?,
            };
            if emit(&self.first, |head| carrier.send(head, &[], true)).is_err() {
                return Err(Error::Disconnected);
            }
            watch.add(carrier.descriptor())?;
            (self.carrier, self.again) = (Some(carrier), None);
        }
        let Some(mut carrier) = self.carrier.take() else { return Ok(None) };
        match hear(&mut *carrier) {
            Ok(Some(answer)) => Ok(Some((carrier, answer))),
            Ok(None) if now < until => {
                self.carrier = Some(carrier);
                Ok(None)
            }
            heard => {
                watch.leave(&mut *carrier);
                match heard {
                    // Many clients connected at once; the condition clears within seconds.
                    Err(Heard::Refused(Error::Refused(RefusalReason::Busy)))
                        if !local && now < until =>
                    {
                        self.again = Some((now + self.pause).min(until));
                        self.pause *= 2;
                        Ok(None)
                    }
                    Err(Heard::Refused(error)) => Err(error),
                    Err(Heard::Away(source)) => {
                        Err(Error::NotRunning { at: at.to_string(), source })
                    }
                    Ok(_) => Err(no_answer),
                }
            }
        }
    }
}

/// Reason why a node has not answered.
enum Heard {
    /// The connection was never established.
    Away(std::io::Error),
    Refused(Error),
}

/// Reads the node's answer to the last message, if it has arrived. Skips packets, which may come to
/// the bound port before the node knows the session's purpose.
fn hear(carrier: &mut dyn Carrier) -> Result<Option<Answer>, Heard> {
    let mut buffer = [0; ROOM];
    loop {
        let len = match receive(carrier, &mut buffer) {
            Ok(len) => len,
            Err(Stuck::WouldBlock) => return Ok(None),
            Err(Stuck::Closed) => return Err(Heard::Refused(Error::Disconnected)),
            Err(Stuck::Io(source)) => return Err(Heard::Away(source)),
        };
        let answer = match ToClient::parse(&buffer[..len.min(ROOM)]) {
            Ok(ToClient::Received { .. }) => continue,
            Ok(ToClient::Bound { node, port, .. }) if port != 0 => {
                Answer::Bound(Address { node, port })
            }
            Ok(ToClient::Stream(Notice::Connected {
                node,
                port,
                peer,
                peer_port,
                messages,
                credit,
            })) => Answer::Connected(Connected {
                local: Address { node, port },
                peer: Address { node: peer, port: peer_port },
                messages,
                credit,
            }),
            Ok(ToClient::Stream(Notice::Reset(why))) => Answer::Reset(why),
            Ok(ToClient::Error { refusal, port, .. }) => {
                return Err(Heard::Refused(Error::refused(refusal, port)));
            }
            Ok(_) => return Err(Heard::Refused(Error::Protocol(out_of_place()))),
            Err(error) => return Err(Heard::Refused(Error::Protocol(error))),
        };
        return Ok(Some(answer));
    }
}

/// Purpose that a session is opened for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Connect { from: u16, to: Address, messages: bool, timeout: Duration },
    Accept { token: u64 },
}

impl Purpose {
    fn first(self) -> ToNode<'static> {
        let version = SESSION_VERSION;
        match self {
            Purpose::Connect { from, .. } => ToNode::Bind { version, port: from },
            Purpose::Accept { token } => {
                ToNode::Stream(Request::Accept { version, token, credit: WINDOW })
            }
        }
    }
}

/// A stream that is being opened or accepted.
pub(crate) struct Opening {
    dial: Dial,
    purpose: Purpose,
    /// Becomes the descriptor of the stream, and is `None` after that.
    watch: Option<Readiness>,
    ready: Arc<Epoll>,
    timer: TimerFd,
    /// Carrier on which the stream was requested, and the time of the request.
    asked: Option<(Box<dyn Carrier>, Instant)>,
}

impl Opening {
    pub(crate) fn new(
        place: &NodeEndpoint,
        candidates: VecDeque<Site>,
        purpose: Purpose,
        watch: Readiness,
    ) -> Result<Opening, Error> {
        let identity = getrandom::u64().map_err(|e| Error::io("draw a random number", e))?;
        let timer = new_timer()?;
        watch.add(timer.as_fd())?;
        let dial = Dial::new(candidates, place, (identity, 0), purpose.first());
        let ready = watch.epoll().clone();
        Ok(Opening { dial, purpose, watch: Some(watch), ready, timer, asked: None })
    }

    /// Continues without blocking. Returns the stream once it is open; until then call it again
    /// when the descriptor is readable.
    pub(crate) fn advance(&mut self) -> Result<Option<End>, Error> {
        let Some(watch) = &mut self.watch else {
            return Err(Error::io("open a stream twice", Errno::EINVAL));
        };
        if self.asked.is_none() {
            let Some((mut carrier, answer)) = self.dial.advance(watch, &self.timer)? else {
                return Ok(None);
            };
            match (self.purpose, answer) {
                (Purpose::Connect { from, to, messages, timeout }, Answer::Bound(local))
                    if from == 0 || from == local.port =>
                {
                    let connect =
                        Request::Connect { to: to.node, port: to.port, messages, credit: WINDOW };
                    let message = ToNode::Stream(connect);
                    // The node has read the only message before it.
                    if emit(&message, |head| carrier.send(head, &[], true)).is_err() {
                        return Err(Error::Disconnected);
                    }
                    wake_after(&self.timer, Some(timeout));
                    self.asked = Some((carrier, Instant::now()));
                }
                (Purpose::Accept { .. }, Answer::Connected(connected)) => {
                    return self.done(carrier, connected).map(Some);
                }
                (Purpose::Accept { .. }, Answer::Reset(why)) => return Err(Error::Reset(why)),
                _ => return Err(Error::Protocol(out_of_place())),
            }
        }
        let Some((mut carrier, since)) = self.asked.take() else { return Ok(None) };
        match hear(&mut *carrier) {
            Ok(Some(Answer::Connected(connected))) => self.done(carrier, connected).map(Some),
            Ok(Some(Answer::Reset(why))) => Err(Error::Reset(why)),
            Ok(Some(Answer::Bound(_))) => Err(Error::Protocol(out_of_place())),
            Ok(None) => match self.purpose {
                Purpose::Connect { timeout, .. } if since.elapsed() >= timeout => {
                    Err(Error::Reset(Reset::Timeout))
                }
                _ => {
                    self.asked = Some((carrier, since));
                    Ok(None)
                }
            },
            Err(Heard::Refused(error)) => Err(error),
            Err(Heard::Away(source)) => Err(Error::io("talk to the trunkline node", source)),
        }
    }

    /// Gives up opening the stream. The remaining watch can wake waiting threads.
    pub(crate) fn into_watch(mut self) -> Option<Readiness> {
        let mut watch = self.watch.take()?;
        self.dial.leave(&mut watch);
        if let Some((mut carrier, _)) = self.asked.take() {
            watch.leave(&mut *carrier);
        }
        watch.remove(self.timer.as_fd());
        Some(watch)
    }

    fn done(&mut self, carrier: Box<dyn Carrier>, connected: Connected) -> Result<End, Error> {
        let watch = self.watch.take().ok_or(Error::Disconnected)?;
        watch.remove(self.timer.as_fd());
        Ok(End::new(carrier, watch, connected))
    }
}

impl AsFd for Opening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.0.as_fd()
    }
}

impl AsRawFd for Opening {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

pub(crate) fn new_timer() -> Result<TimerFd, Error> {
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(no_descriptor)
}
